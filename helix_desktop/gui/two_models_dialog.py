"""The dialog that asks two models the same question and shows their answers side by side, each in a fork."""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QPlainTextEdit, QWidget

from helix_desktop.engine import token_budget
from helix_desktop.engine.facts import Attachment, Text, UserPart
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    Event,
    FactAppended,
    QuestionAnswered,
    QuestionAsked,
)
from helix_desktop.gui.chat.permission_questions import PermissionQuestionPanel, describe_uncovered_files
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.engine_sentences import translate_sentences
from helix_desktop.gui.event_bridge import EventBridge
from helix_desktop.gui.frame.model_chooser import ModelChooser
from helix_desktop.gui.frame.window_pages import OpenWorkspaceContents
from helix_desktop.gui.layouts import build_column, build_row
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.message_sending import ask_if_expensive
from helix_desktop.gui.model_setup_port import ModelChoice, ModelSetupPort
from helix_desktop.gui.shared.figure_formats import format_dollars
from helix_desktop.gui.shared.plain_widgets import build_plain_label, build_push_button
from helix_desktop.gui.transcript.transcript_pane import TranscriptPane
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import Session, Workbench
from helix_desktop.gui.workspace_activity import WORKING_STATES
from helix_desktop.program_settings import ASK_ABOVE

LINES = 3  # How many lines of the question are shown.
LONGEST = 40  # How many characters of the question a title takes.


class ModelAnswerColumn(QWidget):
    """One model and its answer. `model_wanted`: choose another; `continue_wanted`: continue with this conversation."""

    model_wanted = Signal()
    continue_wanted = Signal()
    changed = Signal()

    def __init__(self, window: MainWindow, bench: Workbench, parent: QWidget) -> None:
        super().__init__(parent)
        self.model = ""
        self.session: Session | None = None
        self._bench = bench
        self.button = build_push_button("", self)
        self.button.clicked.connect(self.model_wanted)
        self.continue_button = build_push_button(tr("Continue with this answer"), self)
        self.continue_button.setEnabled(False)
        self.continue_button.clicked.connect(self.continue_wanted)
        self._state_label = QLabel(self)
        self._state_label.setProperty("look", "small")
        self._state_label.setWordWrap(True)
        self._pane = TranscriptPane(window.theme, window.background_runner, OpenWorkspaceContents(lambda: bench), self)
        self._approvals = PermissionQuestionPanel(window.theme, {}, self)
        self._approvals.answered.connect(lambda number, answer: self.session and self.session.answer(number, answer))
        self.bridge = EventBridge(self)
        self.bridge.events_arrived.connect(self._on_answer_events)
        head = build_row(self.button, (self._state_label, 1))
        build_column(head, (self._pane, 1), self._approvals, self.continue_button, owner=self, margins=0, spacing=8)
        self.show_model_name("")

    def show_model_name(self, name: str) -> None:
        self.model = name
        self.button.setText((name or tr("Choose a model…")).replace("&", "&&"))
        self.button.setAccessibleName(tr("Model: {name}", name=name) if name else tr("Choose a model…"))

    def show_session_in_column(self, session: Session) -> None:
        """From now on this conversation is shown here; its model stays."""
        self.session = session
        self.button.setEnabled(False)
        self.continue_button.setEnabled(True)
        self._pane.open_transcript(session.conversation.state)
        self.bridge.listen_to_session(session.subscribe_to_events)
        self._update_answer_state()

    @property
    def is_answering(self) -> bool:
        return self.session is not None and self.session.running in WORKING_STATES

    def _on_answer_events(self, events: tuple[Event, ...]) -> None:
        session = self.session
        if session is None:
            return
        self._pane.view.apply_events(events)
        if any(isinstance(event, QuestionAsked | QuestionAnswered) for event in events):
            self._approvals.show_oldest_question(session.questions, describe_uncovered_files(self._bench))
        if any(isinstance(event, FactAppended | ActivityChanged) for event in events):
            self._update_answer_state()
            self.changed.emit()

    def _update_answer_state(self) -> None:
        """How it goes, what it has taken, what it has cost."""
        session = self.session
        if session is None:
            return
        meter = session.next_request_meter()
        cost = token_budget.compute_savings(session.conversation.state).paid
        state = {
            ConversationActivity.ASKING: tr("Waiting for you"),
            ConversationActivity.FAILED: translate_sentences(session.why),
        }
        parts = [
            state.get(session.running, tr("Working…") if self.is_answering else ""),
            tr("{n} tokens", n=format_token_count(meter.used)),
            format_dollars(cost) if cost else "",
        ]
        self._state_label.setText(" · ".join(filter(None, parts)))


class TwoModelsDialog(QDialog):
    """`parts`: what stands in the composer. Who asks opens a fork for each model; both stay in the list."""

    asked = Signal()

    def __init__(self, window: MainWindow, setup: ModelSetupPort, bench: Workbench, parts: Sequence[UserPart]) -> None:
        super().__init__(window)
        self._window, self._bench = window, bench
        self._parent_conversation = window.showing.conversation_id
        self._files = [part for part in parts if isinstance(part, Attachment)]
        self._models: Sequence[ModelChoice] = ()
        self._chooser: ModelChooser | None = None
        self.setWindowTitle(tr("Ask two models"))
        screen = window.screen().availableGeometry().size()
        self.resize(QSize(window.theme.zoomed_pixels(1_080), window.theme.zoomed_pixels(720)).boundedTo(screen * 0.92))
        self._text = QPlainTextEdit("\n\n".join(part.text for part in parts if isinstance(part, Text)), self)
        self._text.setPlaceholderText(tr("Question for both models"))
        self._text.setAccessibleName(tr("Question for both models"))
        self._text.setTabChangesFocus(True)
        self._text.setFixedHeight(self._text.fontMetrics().lineSpacing() * LINES + 18)
        self._ask = build_push_button(tr("Ask both"), self, self.ask_both_models, "primary")
        self._explanation_label = build_plain_label(self._explanation(), "small", self)
        self.columns = [ModelAnswerColumn(window, bench, self) for _ in range(2)]
        self._lay_out_two_models()
        for column in self.columns:
            column.model_wanted.connect(partial(self._open_chooser_for, column))
            column.continue_wanted.connect(partial(self._continue_in_chat, column))
            column.changed.connect(self._enable_ask_button)
        self.columns[0].show_model_name(bench.model_of_conversation(self._parent_conversation))
        self._text.textChanged.connect(self._enable_ask_button)
        self._enable_ask_button()
        window.background_runner.run_in_background(
            setup.list_known_models(), then=self._preselect_second_model, owner=self
        )

    def _lay_out_two_models(self) -> None:
        line = build_row((self._explanation_label, 1), self._ask)
        both = QHBoxLayout()
        both.setSpacing(16)
        for column in self.columns:
            both.addWidget(column, 1)
        build_column(self._text, line, (both, 1), owner=self, margins=(20, 16, 20, 16), spacing=10)

    def _explanation(self) -> str:
        words = tr("Each model gets its own request and its own conversation. Both may use tools in this folder.")
        if self._files:
            return f"{words} {tr('The attachments of your message are sent too.')}"
        return words

    def _preselect_second_model(self, models: Sequence[ModelChoice]) -> None:
        """The second is the one used last that is not the first."""
        self._models = models
        recent: list[str] = self._window.memory.get_remembered("models", "recent", default=[])
        names = [*recent, *(model.name for model in models)]
        known = {model.name for model in models}
        first, second = self.columns
        if not second.model and second.session is None:
            second.show_model_name(next((name for name in names if name in known and name != first.model), ""))
        self._enable_ask_button()

    def _open_chooser_for(self, column: ModelAnswerColumn) -> None:
        if self._chooser is not None:
            self._chooser.deleteLater()
        chooser = self._chooser = ModelChooser(self._window.theme, self._window.memory, self)
        chooser.hide_connect_and_edit()
        chooser.chosen.connect(column.show_model_name)
        chooser.chosen.connect(lambda _name: self._enable_ask_button())
        chooser.open_below(column.button, column.model)
        chooser.show_known_models(self._models, refreshing=False)

    def _enable_ask_button(self) -> None:
        models = [column.model for column in self.columns]
        ready = all(models) and models[0] != models[1] and not any(column.is_answering for column in self.columns)
        self._ask.setEnabled(ready and bool(self._text.toPlainText().strip() or self._files))

    def ask_both_models(self) -> None:
        """The first time two conversations are made; from then on both are asked again."""
        words = self._text.toPlainText().strip()
        parts: tuple[UserPart, ...] = (*((Text(words),) if words else ()), *self._files)
        if not self._ask.isEnabled():
            return
        self._ask.setEnabled(False)
        self._files = []
        if all(column.session is not None for column in self.columns):
            self._send_to_both(parts)
            return
        title = self._title_for_forks(words)
        models = {
            column.model: f"{title} · {column.model.partition('/')[2] or column.model}" for column in self.columns
        }
        work, begun = self._create_both_conversations(models), partial(self._show_both_conversations, parts)
        self._window.background_runner.run_in_background(work, then=begun, owner=self, failed=self._show_why_not_begun)

    async def _create_both_conversations(self, models: dict[str, str]) -> Sequence[Session]:
        sessions = await self._bench.start_model_comparison(self._parent_conversation, models)
        if self._window.settings[ASK_ABOVE]:
            for session in sessions:
                await self._bench.predict_next_request(session.id)
        return sessions

    def _send_to_both(self, parts: tuple[UserPart, ...]) -> None:
        sessions = [column.session for column in self.columns if column.session is not None]

        def send_to_each() -> None:
            for session in sessions:
                session.send_message(parts)
            self._text.clear()

        ask_if_expensive(
            self._window,
            sum(session.estimate_cost_with(parts) for session in sessions),
            send_to_each,
            partial(self._keep_question, parts),
        )

    def _keep_question(self, parts: tuple[UserPart, ...]) -> None:
        """The user found it too expensive: keep the text and the attachments."""
        self._files = [part for part in parts if isinstance(part, Attachment)]
        self._enable_ask_button()

    def _title_for_forks(self, words: str) -> str:
        row = self._window.find_current_row(self._parent_conversation) if self._parent_conversation else None
        first = words.splitlines()[0] if words else ""
        whole = row.title if row is not None and row.title else first or tr("Two models")
        return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1].rstrip()}…"

    def _show_both_conversations(self, parts: tuple[UserPart, ...], sessions: Sequence[Session]) -> None:
        for column, session in zip(self.columns, sessions, strict=True):
            column.show_session_in_column(session)
        self._explanation_label.setText(
            tr("Both conversations are in the list. Ask both again, or continue with one of them.")
        )
        self._send_to_both(parts)
        self._window.refresh_conversations()
        self.asked.emit()
        self._enable_ask_button()

    def _show_why_not_begun(self, error: Exception) -> None:
        self._explanation_label.setText(translate_sentences(str(error)))
        self._enable_ask_button()

    def _continue_in_chat(self, column: ModelAnswerColumn) -> None:
        session = column.session
        if session is not None:
            self.close()
            self._window.switch_to_page("chat")
            self._window.go_to_conversation(session.id)

    def closeEvent(self, event: QCloseEvent) -> None:
        for column in self.columns:
            column.bridge.stop_listening_to_session()
        super().closeEvent(event)
        self.deleteLater()
