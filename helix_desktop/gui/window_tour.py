"""The tour: six steps in which the user presses the real buttons, and a built-in script
is the model.
"""

from collections.abc import Callable

from PySide6.QtCore import QObject, QPoint, QRect
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.facts import (
    Fact,
    FilesChanged,
    Folded,
    FoldKind,
    Text,
    TurnEnded,
    Unfolded,
)
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.frame.tour_card import TourGuide
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.transcript.chat_actions import OpenFold
from helix_desktop.gui.translation import tr, translate_name


@dataclass(frozen=True, slots=True)
class WindowTourStep:
    """One step. `place_to_point_at` and `is_done` are called repeatedly. `before` and
    `after`: the texts.
    """

    title: str
    before: str
    after: str
    place_to_point_at: Callable[[], QRect]
    is_done: Callable[[], bool]
    page: str = "chat"


class WindowTour(QObject):
    """Runs from the first step until the user leaves, and then calls `ended`."""

    def __init__(self, window: MainWindow, ended: Callable[[], object]) -> None:
        super().__init__(window)
        self._window = window
        self._bench = window.current_workbench
        self._ended = ended
        self._step_number = 0
        self._done_steps: set[int] = set()  # Steps of the tour that the user has completed.
        self.steps = self._build_tour_steps()
        self.coach = TourGuide(window.theme, window)
        self.coach.card.next.clicked.connect(lambda: self._go_to_step(self._step_number + 1))
        self.coach.card.back.clicked.connect(lambda: self._go_to_step(self._step_number - 1))
        self.coach.card.leave.clicked.connect(self.end_window_tour)
        self.coach.card.offer.clicked.connect(self._send_list)
        self.coach.target_needed.connect(self._update_tour_card)
        window.workbench_shown.connect(self._end_because_workspace_changed)
        self._go_to_step(0)

    def _send_list(self) -> None:
        self._window.messages.send_or_hold_message((Text("list"),), steer=False)

    @property
    def current_step(self) -> WindowTourStep:
        return self.steps[self._step_number]

    def end_window_tour(self) -> None:
        """Ends the tour. Everything it did stays."""
        self._window.workbench_shown.disconnect(self._end_because_workspace_changed)
        self.coach.close_tour_guide()
        self._ended()
        self.deleteLater()

    def _end_because_workspace_changed(self) -> None:
        if self._window.current_workbench is not self._bench:
            self.end_window_tour()

    def _go_to_step(self, at: int) -> None:
        if at >= len(self.steps):
            self.end_window_tour()
            return
        self._step_number = max(at, 0)
        self._window.switch_to_page(self.current_step.page)
        self._window.notices.hide()  # It could cover what this step points at.
        fold = self._newest_excerpt_or_marker()
        if self._step_number == 2 and fold is not None:
            transcript = self._window.chat.transcript.view
            transcript.scroll_to_item(transcript.items.item_of_fold(fold.fold))
        self._update_tour_card()

    def _update_tour_card(self) -> None:
        """Updates target and text, a few times a second and after every step."""
        step = self.current_step
        if step.is_done():
            self._done_steps.add(self._step_number)
        done = self._step_number in self._done_steps
        offer = ""
        if self._needs_second_exchange():
            offer = tr("Send “list”")
        words = step.before
        if done:
            words = step.after
        if self._step_number == 0 and not done and self._window.current_session is not None:
            words = tr(
                "When the script asks whether it may change a file or run a command, click “Allow once”."
            )
        if offer and not done:
            words = tr(
                "The latest message and answer are never shortened. Send one more message first."
            )
        self.coach.show_tour_step(
            (self._step_number + 1, len(self.steps)), step.title, words, offer=offer, done=done
        )
        is_last = self._step_number == len(self.steps) - 1
        target = QRect()
        if not done or is_last:
            target = step.place_to_point_at()
        self.coach.point_at_area(
            target,
            self._place_of_page(),
            self._place_in_window(self._window.context_panel),
        )

    def _facts_of_session(self) -> list[Fact]:
        session = self._window.current_session
        if session is None:
            return []
        return [recorded.fact for recorded in session.conversation.state.facts]

    def _count_ended_turns(self) -> int:
        return sum(isinstance(fact, TurnEnded) for fact in self._facts_of_session())

    def _newest_folds_first(self) -> list[Folded]:
        return [fact for fact in reversed(self._facts_of_session()) if isinstance(fact, Folded)]

    def _newest_excerpt_or_marker(self) -> Folded | None:
        kinds = (FoldKind.EXCERPT, FoldKind.MARKER)
        return next((fold for fold in self._newest_folds_first() if fold.kind in kinds), None)

    def _has_folded(self) -> bool:
        return any(fold.kind is not FoldKind.EXCERPT for fold in self._newest_folds_first())

    def _needs_second_exchange(self) -> bool:
        """Whether there must be a second exchange, because a fold leaves the latest one alone."""
        session = self._window.current_session
        at_rest = session is not None and session.running in (
            ConversationActivity.IDLE,
            ConversationActivity.FAILED,
        )
        return (
            self._step_number == 3
            and at_rest
            and not self._has_folded()
            and self._count_ended_turns() == 1
        )

    def _place_in_window(self, widget: QWidget, place: QRect | None = None) -> QRect:
        """Returns a widget's place in the window's coordinates. Empty if it is not visible."""
        inner = widget.rect()
        if place is not None:
            inner = place & inner
        if not widget.isVisible() or inner.isEmpty():
            return QRect()
        return QRect(widget.mapTo(self._window, QPoint(0, 0)) + inner.topLeft(), inner.size())

    def _place_of_question_or_suggestion(self) -> QRect:
        chat = self._window.chat
        card = chat.approvals.visible_card
        if card is not None:
            return self._place_in_window(card)
        if self._window.current_session is None:
            return self._place_in_window(chat.empty.first)
        return QRect()

    def _place_of_page(self) -> QRect:
        """Returns the page's place, without the blank parts of an empty page."""
        empty = self._window.chat.empty
        return self._place_in_window(empty, empty.childrenRect()) or self._place_in_window(
            self._window.page_area
        )

    def _place_of_excerpt(self) -> QRect:
        view = self._window.chat.transcript.view
        fold = self._newest_excerpt_or_marker()
        if fold is None:
            return QRect()
        return self._place_in_window(view.viewport(), view.hot_spot_rect_of(OpenFold(fold.fold)))

    def _place_of_fold_button(self) -> QRect:
        if self._needs_second_exchange():
            return QRect()  # First the card's own button is to be pressed.
        panel = self._window.context_panel
        if panel.isVisible():
            return self._place_in_window(panel.fold_link)
        return self._place_in_window(self._window.chat.composer.context_button)

    def _place_of_undo(self) -> QRect:
        if self._window.showing.page == "timeline":
            return self._place_in_window(self._window.pages.timeline.panel.undo_button)
        view = self._window.chat.transcript.view
        if self._window.showing.page == "chat":
            for fold in self._newest_folds_first():
                place = view.hot_spot_rect_of(OpenFold(fold.fold))
                if fold.kind is not FoldKind.EXCERPT and not place.isEmpty():
                    return self._place_in_window(view.viewport(), place)
        return self._place_in_window(self._window.top.page_tab("timeline"))

    def _place_of_undo_file(self) -> QRect:
        if self._window.showing.page != "changes":
            return self._place_in_window(self._window.top.page_tab("changes"))
        return self._place_in_window(self._window.pages.changes.body.undo_button)

    def _build_tour_steps(self) -> tuple[WindowTourStep, ...]:
        return (
            _build_tour_step(
                "message",
                self._place_of_question_or_suggestion,
                lambda: self._count_ended_turns() > 0,
            ),
            _build_tour_step(
                "undo a change",
                self._place_of_undo_file,
                lambda: any(map(_is_undo_of_change, self._facts_of_session())),
            ),
            _build_tour_step("cut output", self._place_of_excerpt, self._has_opened_timeline),
            _build_tour_step("fold", self._place_of_fold_button, self._has_folded),
            _build_tour_step(
                "undo a fold",
                self._place_of_undo,
                lambda: any(isinstance(fact, Unfolded) for fact in self._facts_of_session()),
            ),
            _build_tour_step(
                "model", lambda: self._place_in_window(self._window.top.model), lambda: False
            ),
        )

    def _has_opened_timeline(self) -> bool:
        return self._step_number == 2 and self._window.showing.page == "timeline"


def _build_tour_step(
    name: str, place_to_point_at: Callable[[], QRect], is_done: Callable[[], bool]
) -> WindowTourStep:
    return WindowTourStep(
        translate_name("title of a tour step", name),
        translate_name("tour step", name),
        translate_name("after a tour step", name),
        place_to_point_at,
        is_done,
    )


def _is_undo_of_change(fact: Fact) -> bool:
    return isinstance(fact, FilesChanged) and fact.by == "undo"
