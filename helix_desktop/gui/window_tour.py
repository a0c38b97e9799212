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
from helix_desktop.gui.frame.tour_card import ShownTourStep, TourGuide
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.transcript.chat_actions import OpenFold
from helix_desktop.gui.translation import tr, translate_name

# The numbers of these steps, counted from 0.
CUT_OUTPUT_STEP = 2
FOLD_STEP = 3
UNDO_FOLD_STEP = 4


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
        self.coach.card.next.clicked.connect(self._go_to_next_step)
        self.coach.card.back.clicked.connect(self._go_to_step_before)
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

    def _go_to_next_step(self) -> None:
        next_step = self._step_number + 1
        if next_step == UNDO_FOLD_STEP and not self._has_folded():
            next_step += 1  # Nothing was shortened, so nothing can be undone.
        self._go_to_step(next_step)

    def _go_to_step_before(self) -> None:
        step_before = self._step_number - 1
        if step_before == UNDO_FOLD_STEP and not self._has_folded():
            step_before -= 1
        self._go_to_step(step_before)

    def _go_to_step(self, step_number: int) -> None:
        if step_number >= len(self.steps):
            self.end_window_tour()
            return
        self._step_number = max(step_number, 0)
        self._window.switch_to_page(self.current_step.page)
        self._window.notices.hide()  # It could cover what this step points at.
        fold = self._newest_excerpt_or_marker()
        if self._step_number == CUT_OUTPUT_STEP and fold is not None:
            transcript = self._window.chat.transcript.view
            transcript.scroll_to_item(transcript.items.item_of_fold(fold.fold))
        self._update_tour_card()

    def _update_tour_card(self) -> None:
        """Updates target and text, a few times a second and after every step."""
        step = self.current_step
        if step.is_done():
            self._done_steps.add(self._step_number)
        is_done = self._step_number in self._done_steps
        offer = ""
        if self._needs_second_exchange():
            offer = tr("Send “list”")

        # A step that is left out counts, too, so that the total stays the same.
        shown_step = ShownTourStep(
            self._step_number + 1,
            len(self.steps),
            step.title,
            self._text_of_step(step, is_done=is_done),
            offer,
            is_done,
        )
        self.coach.show_tour_step(shown_step)

        target = QRect()
        is_last = self._step_number == len(self.steps) - 1
        if not is_done or is_last:
            target = step.place_to_point_at()
        areas_to_keep_clear = [
            self._place_of_page(),
            self._place_in_window(self._window.context_panel),
        ]
        self.coach.point_at_area(target, areas_to_keep_clear)

    def _text_of_step(self, step: WindowTourStep, *, is_done: bool) -> str:
        if is_done:
            return step.after
        if self._needs_second_exchange():
            return tr(
                "The latest message and answer are never shortened. Send one more message first."
            )
        if self._step_number == 0 and self._window.current_session is not None:
            return tr(
                "When the script asks whether it may change a file or run a command, click “Allow once”."
            )
        return step.before

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
        for fold in self._newest_folds_first():
            if fold.kind in (FoldKind.EXCERPT, FoldKind.MARKER):
                return fold
        return None

    def _has_folded(self) -> bool:
        return any(fold.kind is not FoldKind.EXCERPT for fold in self._newest_folds_first())

    def _needs_second_exchange(self) -> bool:
        """Whether there must be a second exchange, because a fold leaves the latest one alone."""
        if self._step_number != FOLD_STEP or self._has_folded():
            return False
        session = self._window.current_session
        if session is None:
            return False
        activities_at_rest = (ConversationActivity.IDLE, ConversationActivity.FAILED)
        return session.running in activities_at_rest and self._count_ended_turns() == 1

    def _place_in_window(self, widget: QWidget, part: QRect | None = None) -> QRect:
        """Returns the place of a widget, or of a part of it, in the window's coordinates. It is
        empty if the widget is not visible.
        """
        rect = widget.rect()
        if part is not None:
            rect = part & rect
        if not widget.isVisible() or rect.isEmpty():
            return QRect()
        corner = widget.mapTo(self._window, QPoint(0, 0))
        return rect.translated(corner)

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
        empty_page = self._window.chat.empty
        place = self._place_in_window(empty_page, empty_page.childrenRect())
        if not place.isNull():
            return place
        return self._place_in_window(self._window.page_area)

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
                fold_rect = view.hot_spot_rect_of(OpenFold(fold.fold))
                if fold.kind is not FoldKind.EXCERPT and not fold_rect.isEmpty():
                    return self._place_in_window(view.viewport(), fold_rect)
        return self._place_in_window(self._window.top.page_tab("timeline"))

    def _place_of_undo_file(self) -> QRect:
        if self._window.showing.page != "changes":
            return self._place_in_window(self._window.top.page_tab("changes"))
        return self._place_in_window(self._window.pages.changes.body.undo_button)

    def _build_tour_steps(self) -> tuple[WindowTourStep, ...]:
        """Builds the steps in their order. `CUT_OUTPUT_STEP` and `FOLD_STEP` count them."""
        return (
            _build_tour_step(
                "message", self._place_of_question_or_suggestion, self._has_ended_turn
            ),
            _build_tour_step("undo a change", self._place_of_undo_file, self._has_undone_change),
            _build_tour_step("cut output", self._place_of_excerpt, self._has_opened_timeline),
            _build_tour_step("fold", self._place_of_fold_button, self._has_folded),
            _build_tour_step("undo a fold", self._place_of_undo, self._has_undone_fold),
            _build_tour_step("model", self._place_of_model_button, self._is_never_done),
        )

    def _has_ended_turn(self) -> bool:
        return self._count_ended_turns() > 0

    def _has_undone_change(self) -> bool:
        for fact in self._facts_of_session():
            if isinstance(fact, FilesChanged) and fact.by == "undo":
                return True
        return False

    def _has_opened_timeline(self) -> bool:
        is_this_step = self._step_number == CUT_OUTPUT_STEP
        return is_this_step and self._window.showing.page == "timeline"

    def _has_undone_fold(self) -> bool:
        return any(isinstance(fact, Unfolded) for fact in self._facts_of_session())

    def _place_of_model_button(self) -> QRect:
        return self._place_in_window(self._window.top.model)

    def _is_never_done(self) -> bool:
        """The last step only shows where to go on."""
        return False


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
