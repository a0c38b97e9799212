"""The tour: six steps on the real window, each paused until the user goes on. The user presses the real buttons; the tour
points at them and says what they do. The built-in scripted model answers.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QPoint, QRect
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.events import Running
from helix_desktop.engine.facts import Fact, Folded, FoldKind, Text, TurnEnded, Unfolded
from helix_desktop.gui import sending
from helix_desktop.gui.frame.coach import Coach
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.transcript.intents import OpenFold
from helix_desktop.gui.words import tr
from helix_desktop.values import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """`where` to point now, `done` whether the user has done it; `before` and `after` that, what is said."""

    title: str
    before: str
    after: str
    where: Callable[[], QRect]
    done: Callable[[], bool]
    page: str = "chat"


class Tour(QObject):
    """From the first step until it is left. `ended` is called then."""

    def __init__(self, window: MainWindow, ended: Callable[[], object]) -> None:
        super().__init__(window)
        self._window = window
        self._bench = window.bench
        self._ended = ended
        self._at = 0
        self._seen: set[int] = set()  # steps the user has done
        self._brought: set[int] = set()  # steps whose place has been scrolled to
        self.steps = self._all()
        self.coach = Coach(window.theme, window)
        self.coach.next_wanted.connect(lambda: self._go(self._at + 1))
        self.coach.back_wanted.connect(lambda: self._go(self._at - 1))
        self.coach.left.connect(self.leave)
        self.coach.offered.connect(self._say_more)
        self.coach.looking.connect(self._look)
        window.workbench_shown.connect(self._elsewhere)
        self._go(0)

    @property
    def step(self) -> Step:
        return self.steps[self._at]

    def leave(self) -> None:
        """Everything it did stays."""
        self._window.workbench_shown.disconnect(self._elsewhere)
        self.coach.end()
        self._ended()
        self.deleteLater()

    def _elsewhere(self) -> None:
        """Another workspace is in front: there is nothing to show there."""
        if self._window.bench is not self._bench:
            self.leave()

    def _go(self, at: int) -> None:
        if at >= len(self.steps):
            self.leave()
            return
        self._at = max(at, 0)
        self._window.show_page(self.step.page)
        if self._at == 1 and (fold := self._fold_of(FoldKind.EXCERPT, FoldKind.MARKER)) is not None:
            self._window.chat.transcript.show_fold(fold.fold)
        self._look()

    def _look(self) -> None:
        """Where to point and what to say now: asked a few times a second, and after every step."""
        step = self.step
        if step.done():
            self._seen.add(self._at)
        done = self._at in self._seen
        offer = tr("Send “list”") if self._needs_more() else ""
        words = step.after if done else self._more_words() if offer else step.before
        self.coach.say((self._at + 1, len(self.steps)), step.title, words, offer=offer, done=done)
        self.coach.point_at(QRect() if done and self._at != len(self.steps) - 1 else step.where())

    # --- what has happened

    def _facts(self) -> list[Fact]:
        session = self._window.session
        return [recorded.fact for recorded in session.conversation.state.facts] if session is not None else []

    def _ended_turns(self) -> int:
        return sum(isinstance(fact, TurnEnded) for fact in self._facts())

    def _fold_of(self, *kinds: FoldKind) -> Folded | None:
        return next((fact for fact in reversed(self._facts()) if isinstance(fact, Folded) and fact.kind in kinds), None)

    def _folded(self) -> bool:
        return any(isinstance(fact, Folded) and fact.kind is not FoldKind.EXCERPT for fact in self._facts())

    def _undone(self) -> bool:
        return any(isinstance(fact, Unfolded) for fact in self._facts())

    def _needs_more(self) -> bool:
        """A fold leaves the latest exchange alone, so there must be two."""
        session = self._window.session
        at_rest = session is not None and session.running in (Running.IDLE, Running.FAILED)
        return self.steps[self._at] is self.steps[2] and at_rest and not self._folded() and self._ended_turns() == 1

    def _more_words(self) -> str:
        return tr("A fold never covers the latest exchange. Send one more message first.")

    def _say_more(self) -> None:
        sending.send(self._window, (Text("list"),), steer=False)

    # --- where things are

    def _of(self, widget: QWidget, place: QRect | None = None) -> QRect:
        """A widget, or a place in it, in the window's coordinates; empty where it cannot be seen."""
        if not widget.isVisible() or (place is not None and place.isEmpty()):
            return QRect()
        inner = widget.rect() if place is None else place & widget.rect()
        if inner.isEmpty():
            return QRect()
        return QRect(widget.mapTo(self._window, QPoint(0, 0)) + inner.topLeft(), inner.size())

    def _question_or_suggestion(self) -> QRect:
        chat = self._window.chat
        if chat.approvals.isVisible():
            return self._of(chat.approvals)
        return self._of(chat.empty.first) if self._window.session is None else QRect()

    def _excerpt(self) -> QRect:
        view = self._window.chat.transcript.view
        fold = self._fold_of(FoldKind.EXCERPT, FoldKind.MARKER)
        return self._of(view.viewport(), view.place_of(OpenFold(fold.fold))) if fold is not None else QRect()

    def _fold_now(self) -> QRect:
        inspector = self._window.pages.inspector
        if not inspector.isVisible():
            return self._of(self._window.top.inspector_button)
        view, name = inspector.view, tr("Fold now…")
        if self._at not in self._brought and not view.viewport().rect().contains(view.place_of(name)):
            self._brought.add(self._at)  # once: then the user may scroll where they like
            view.bring(name)
        return self._of(view.viewport(), view.place_of(name))

    def _undo(self) -> QRect:
        if self._window.page == "timeline":
            return self._of(self._window.pages.timeline.panel.undo_button)
        view = self._window.chat.transcript.view
        folds = [fact for fact in self._facts() if isinstance(fact, Folded) and fact.kind is not FoldKind.EXCERPT]
        wanted = next((each for each in reversed(folds) if not view.place_of(OpenFold(each.fold)).isEmpty()), None)
        if wanted is not None and self._window.page == "chat":
            return self._of(view.viewport(), view.place_of(OpenFold(wanted.fold)))
        return self._of(self._window.top.tab("timeline"))

    def _recall(self) -> QRect:
        if self._window.page != "cache":
            return self._of(self._window.top.tab("cache"))
        viewer = self._window.pages.cache.viewer
        return self._of(viewer.recall_button) or self._of(self._window.pages.cache.table)

    def _model(self) -> QRect:
        """In a narrow window the inspector takes its room; the tour opened it, and closes it."""
        window = self._window
        if not window.top.model.isVisible() and window.side_shown and self._at not in self._brought:
            self._brought.add(self._at)
            window.toggle_side()
        return self._of(window.top.model)

    def _all(self) -> tuple[Step, ...]:
        chat = self._window.chat
        return (
            Step(
                tr("Send a message"),
                tr(
                    "Click the suggested message. A built-in script answers instead of a language model, but the tools it calls are real. It asks before it runs a command: click “Allow once”."
                ),
                tr("That was a whole turn: the script read files and ran commands, and asked you before each command."),
                self._question_or_suggestion,
                lambda: self._ended_turns() > 0,
            ),
            Step(
                tr("See what was left out"),
                tr(
                    "One command printed 52,000 tokens. The model saw a short excerpt; the rest is in the cache. Click the label to see both."
                ),
                tr("On the right, you see what the model saw, and how to get the original back. Nothing is ever lost."),
                self._excerpt,
                lambda: self._at == 1 and self._window.page == "timeline",
            ),
            Step(
                tr("Fold now"),
                tr(
                    "When the context fills up, older parts are folded: something shorter takes their place. You can also start folding yourself: press Fold now, then Start."
                ),
                tr("The line across the chat is the fold. From here on, the shorter text is sent to the model."),
                self._fold_now,
                self._folded,
            ),
            Step(
                tr("Undo it"),
                tr("Every fold can be undone. Click the fold's line, then press Undo."),
                tr("The original is sent to the model again, word for word. Redo brings the fold back."),
                self._undo,
                self._undone,
            ),
            Step(
                tr("Recall something"),
                tr(
                    "The cache holds every tool output. Open the Cache page, choose an entry, and press Recall into chat."
                ),
                tr("The entry is attached to your next message. You can remove it there."),
                self._recall,
                lambda: self._at == 4 and bool(chat.composer.attachments.held),
            ),
            Step(
                tr("Connect a model"),
                tr(
                    "The script can't do real work. To connect a provider or a server on this computer (such as Ollama), click the model's name."
                ),
                tr("Choose a model, then open a folder of your own with the + on the left."),
                self._model,
                lambda: False,
            ),
        )
