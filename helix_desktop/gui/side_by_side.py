"""One question to two models: their answers beside each other, each a fork that can be continued."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from helix_desktop.engine import budget
from helix_desktop.engine.events import Answered, Asked, Event, FactAppended, Running, StateChanged
from helix_desktop.engine.facts import Attachment, Text, UserPart
from helix_desktop.gui.activity import WORKING
from helix_desktop.gui.bridge import Bridge
from helix_desktop.gui.chat.approvals import Approvals, uncovered
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.frame.model_chooser import ModelChooser
from helix_desktop.gui.frame.pages import Present
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.meter import short
from helix_desktop.gui.ports import Session, Workbench
from helix_desktop.gui.sending import ask_first
from helix_desktop.gui.setup import Model, Setup
from helix_desktop.gui.shared.figures import money
from helix_desktop.gui.transcript.pane import TranscriptPane
from helix_desktop.gui.words import tr
from helix_desktop.settings import ASK_ABOVE

LINES = 3  # of the question
LONGEST = 40  # characters of a title that come from the question


class Column(QWidget):
    """One model and its answer. `model_wanted`: choose another; `going_on`: continue with this conversation."""

    model_wanted = Signal()
    going_on = Signal()
    changed = Signal()

    def __init__(self, window: MainWindow, bench: Workbench, parent: QWidget) -> None:
        super().__init__(parent)
        self.model = ""
        self.session: Session | None = None
        self._bench = bench
        self.button = QPushButton(self)
        self.button.setAutoDefault(False)
        self.button.clicked.connect(self.model_wanted)
        self.go = QPushButton(tr("Continue with this answer"), self)
        self.go.setAutoDefault(False)
        self.go.setEnabled(False)
        self.go.clicked.connect(self.going_on)
        self._told = QLabel(self)
        self._told.setProperty("look", "small")
        self._told.setWordWrap(True)
        self._pane = TranscriptPane(window.theme, window.doing, Present(lambda: bench), self)
        self._approvals = Approvals(window.theme, {}, self)
        self._approvals.answered.connect(lambda number, answer: self.session and self.session.answer(number, answer))
        self._bridge = Bridge(self)
        self._bridge.happened.connect(self._happened)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        head = QHBoxLayout()
        head.addWidget(self.button)
        head.addWidget(self._told, 1)
        column.addLayout(head)
        column.addWidget(self._pane, 1)
        column.addWidget(self._approvals)
        column.addWidget(self.go)
        self.show_model("")

    def show_model(self, name: str) -> None:
        self.model = name
        self.button.setText((name or tr("Choose a model…")).replace("&", "&&"))
        self.button.setAccessibleName(tr("Model: {name}", name=name) if name else tr("Choose a model…"))

    def show_session(self, session: Session) -> None:
        """From now on this conversation is shown here; its model stays."""
        self.session = session
        self.button.setEnabled(False)
        self.go.setEnabled(True)
        self._pane.open(session.conversation.state)
        self._bridge.listen(session.subscribe)
        self._tell()

    @property
    def works(self) -> bool:
        return self.session is not None and self.session.running in WORKING

    def leave(self) -> None:
        self._bridge.leave()

    def _happened(self, events: tuple[Event, ...]) -> None:
        session = self.session
        if session is None:
            return
        self._pane.hear(events)
        if any(isinstance(event, Asked | Answered) for event in events):
            self._approvals.show_questions(session.questions, uncovered(self._bench))
        if any(isinstance(event, FactAppended | StateChanged) for event in events):
            self._tell()
            self.changed.emit()

    def _tell(self) -> None:
        """How it goes, what it has taken, what it has cost."""
        session = self.session
        if session is None:
            return
        meter = session.meter()
        cost = budget.savings(session.conversation.state).paid
        state = {Running.ASKING: tr("Waiting for you"), Running.FAILED: said(session.why)}
        parts = [
            state.get(session.running, tr("Working…") if self.works else ""),
            tr("{n} tokens", n=short(meter.used)),
            money(cost) if cost else "",
        ]
        self._told.setText(" · ".join(filter(None, parts)))


class SideBySide(QDialog):
    """`parts`: what stands in the composer. Who asks opens a fork for each model; both stay in the list."""

    asked = Signal()

    def __init__(self, window: MainWindow, setup: Setup, bench: Workbench, parts: Sequence[UserPart]) -> None:
        super().__init__(window)
        self._window, self._bench = window, bench
        self._from = window.session.id if window.session is not None else ""
        self._files = [part for part in parts if isinstance(part, Attachment)]
        self._models: Sequence[Model] = ()
        self._chooser: ModelChooser | None = None
        self.setWindowTitle(tr("Ask two models"))
        screen = window.screen().availableGeometry().size()
        self.resize(QSize(window.theme.px(1_080), window.theme.px(720)).boundedTo(screen * 0.92))
        self._text = QPlainTextEdit("\n\n".join(part.text for part in parts if isinstance(part, Text)), self)
        self._text.setPlaceholderText(tr("Question for both models"))
        self._text.setAccessibleName(tr("Question for both models"))
        self._text.setTabChangesFocus(True)
        self._text.setFixedHeight(self._text.fontMetrics().lineSpacing() * LINES + 18)
        self._ask = QPushButton(tr("Ask both"), self)
        self._ask.setProperty("look", "primary")
        self._ask.setAutoDefault(False)
        self._ask.clicked.connect(self.ask)
        self._about = QLabel(self._words(), self)
        self._about.setProperty("look", "small")
        self._about.setWordWrap(True)
        self.columns = [Column(window, bench, self) for _ in range(2)]
        self._lay_out()
        for column in self.columns:
            column.model_wanted.connect(partial(self._choose, column))
            column.going_on.connect(partial(self._continue, column))
            column.changed.connect(self._changed)
        self.columns[0].show_model(bench.model_of(self._from))
        self._text.textChanged.connect(self._changed)
        self._changed()
        window.doing.do(setup.known(), name="list the models", then=self._known, owner=self)

    def _lay_out(self) -> None:
        whole = QVBoxLayout(self)
        whole.setContentsMargins(20, 16, 20, 16)
        whole.setSpacing(10)
        whole.addWidget(self._text)
        line = QHBoxLayout()
        line.addWidget(self._about, 1)
        line.addWidget(self._ask)
        whole.addLayout(line)
        both = QHBoxLayout()
        both.setSpacing(16)
        for column in self.columns:
            both.addWidget(column, 1)
        whole.addLayout(both, 1)

    def _words(self) -> str:
        words = tr("Each model gets its own request and its own conversation. Both may use tools in this folder.")
        if self._files:
            return f"{words} {tr('The attachments of your message are sent too.')}"
        return words

    def _known(self, models: Sequence[Model]) -> None:
        """The second is the one used last that is not the first."""
        self._models = models
        recent: list[str] = self._window.memory.get("models", "recent", default=[])
        names = [*recent, *(model.name for model in models)]
        known = {model.name for model in models}
        first, second = self.columns
        if not second.model and second.session is None:
            second.show_model(next((name for name in names if name in known and name != first.model), ""))
        self._changed()

    def _choose(self, column: Column) -> None:
        if self._chooser is not None:
            self._chooser.deleteLater()
        chooser = self._chooser = ModelChooser(self._window.theme, self._window.memory, self)
        chooser.only_choose()
        chooser.chosen.connect(column.show_model)
        chooser.chosen.connect(lambda _name: self._changed())
        chooser.open(column.button, column.model)
        chooser.show_models(self._models, refreshing=False)

    def _changed(self) -> None:
        models = [column.model for column in self.columns]
        ready = all(models) and models[0] != models[1] and not any(column.works for column in self.columns)
        self._ask.setEnabled(ready and bool(self._text.toPlainText().strip() or self._files))

    def ask(self) -> None:
        """The first time two conversations are made; from then on both are asked again."""
        words = self._text.toPlainText().strip()
        parts: tuple[UserPart, ...] = (*((Text(words),) if words else ()), *self._files)
        if not self._ask.isEnabled():
            return
        self._ask.setEnabled(False)
        self._files = []
        if all(column.session is not None for column in self.columns):
            self._send(parts)
            return
        title = self._title(words)
        models = {
            column.model: f"{title} · {column.model.partition('/')[2] or column.model}" for column in self.columns
        }
        work, begun = self._new(models), partial(self._begun, parts)
        self._window.doing.do(work, name="ask two models", then=begun, owner=self, failed=self._not_begun)

    async def _new(self, models: dict[str, str]) -> Sequence[Session]:
        sessions = await self._bench.side_by_side(self._from, models)
        if self._window.settings[ASK_ABOVE]:
            for session in sessions:
                await self._bench.look_ahead(session.id)
        return sessions

    def _send(self, parts: tuple[UserPart, ...]) -> None:
        """To both, at the price of both."""
        sessions = [column.session for column in self.columns if column.session is not None]

        def send() -> None:
            for session in sessions:
                session.send(parts)
            self._text.clear()

        ask_first(
            self._window, sum(session.price_with(parts) for session in sessions), send, partial(self._hold, parts)
        )

    def _hold(self, parts: tuple[UserPart, ...]) -> None:
        """It was too dear: the words stand there still, and the attachments are kept."""
        self._files = [part for part in parts if isinstance(part, Attachment)]
        self._changed()

    def _title(self, words: str) -> str:
        row = self._window.row(self._from) if self._from else None
        first = words.splitlines()[0] if words else ""
        whole = row.title if row is not None and row.title else first or tr("Two models")
        return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1].rstrip()}…"

    def _begun(self, parts: tuple[UserPart, ...], sessions: Sequence[Session]) -> None:
        for column, session in zip(self.columns, sessions, strict=True):
            column.show_session(session)
        self._about.setText(tr("Both conversations are in the list. Ask both again, or continue with one of them."))
        self._send(parts)
        self._window.refresh_conversations()
        self.asked.emit()
        self._changed()

    def _not_begun(self, error: Exception) -> None:
        self._about.setText(said(str(error)))
        self._changed()

    def _continue(self, column: Column) -> None:
        session = column.session
        if session is not None:
            self.close()
            self._window.show_page("chat")
            self._window.open_conversation(session.id)

    def closeEvent(self, event: QCloseEvent) -> None:
        for column in self.columns:
            column.leave()
        super().closeEvent(event)
        self.deleteLater()
