"""The timeline page: the chart of a conversation, its folds or those of the workspace,
and what each of them did.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QActionGroup, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QMenu, QPushButton, QSplitter, QWidget

from helix_desktop.engine.context_usage import measure_window
from helix_desktop.engine.facts import Folded, FoldKind, Forgotten, ModelRole, Recorded, Stored
from helix_desktop.engine.fold_kinds import (
    KINDS_OF_NOTES,
    KINDS_OF_SUMMARIES,
    FoldGroup,
    kinds_of_groups,
)
from helix_desktop.engine.message_cost_forecast import (
    ContextAfterUndo,
    estimate_context_after_undo,
)
from helix_desktop.engine.ports import ContentReader
from helix_desktop.engine.request_costs import RequestCost, read_original_and_explain_requests
from helix_desktop.engine.session_events import Event as SessionEvent
from helix_desktop.engine.session_events import FactAppended, MeterChanged
from helix_desktop.engine.span_text_and_detail_sources import read_short_outputs
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.unknown_names import find_unknown_names_of_fold
from helix_desktop.engine.view import build_state
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.elided_label import ElidedLabel
from helix_desktop.gui.common.past_moments import (
    PastMomentLoader,
    facts_shown_whole,
    format_view_as_text,
)
from helix_desktop.gui.common.policy_names import FoldThreshold, list_fold_thresholds
from helix_desktop.gui.common.savings_sentences import (
    describe_both_sums,
    describe_savings_of,
)
from helix_desktop.gui.common.widgets import (
    add_menu_choice,
    build_plain_label,
    build_push_button,
    build_scroll_area,
    set_surface_look,
)
from helix_desktop.gui.context_meter import describe_context_of_other_agent, format_token_count
from helix_desktop.gui.model_setup_port import lacks_price
from helix_desktop.gui.question_dialogs import DialogChoice, ask_to_choose_one
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.shown_workspace import ShownSession, ShownWorkspace
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.timeline import fold_sentences
from helix_desktop.gui.timeline.conversation_timeline import (
    ConversationTimeline,
    TimelineEvent,
    find_last_seq_of_event,
    group_timeline_events,
    merge_timeline_events,
)
from helix_desktop.gui.timeline.fold_list import MOST_MEASURED_ROWS, FoldList
from helix_desktop.gui.timeline.fold_panel import FoldPanel, ShownFold
from helix_desktop.gui.timeline.timeline_chart import TimelineChart
from helix_desktop.gui.transcript.chat_actions import AskToFold, ConversationAct, ShowInChat
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_number, tr
from helix_desktop.gui.views.text_comparison import TextComparisonDialog

READ_SLICE_SECONDS = 0.003
FRAME_MS = 16  # The list is updated this many milliseconds after a change, about one frame.
FACTS_PER_STEP = 64
# The chosen fold is below the list if the page is narrower than the second width, or taller than
# wide and narrower than the first.
NARROW = 700
TOO_NARROW = 520
# The heading with its sums, a few rows of the list and the beginning of the document beside them
# need so many pixels. The chart has what is left of the page.
LEAST_BESIDE_CHART = 450


class ListAndPanel(QSplitter):
    """Wants no more height than it needs, as the list and the document in it scroll themselves: a
    page that asked for more would scroll around them.
    """

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), self.minimumSizeHint().height())


class TimelinePage(QWidget):
    """`panel` shows the chosen fold. `intent_wanted` carries values of `chat_actions`."""

    intent_wanted = Signal(object)

    def __init__(
        self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None
    ) -> None:
        """Builds the page: the chart above, and below it the list of what was
        shortened, with the chosen place beside it. A long conversation is read in
        slices, between two frames.
        """
        super().__init__(parent)
        self._theme = theme
        self._doing = doing

        # What is shown: a conversation, and the others if the user asks for the whole workspace.
        self._session: ShownSession | None = None
        self._workspace: ShownWorkspace | None = None
        self.timeline = ConversationTimeline()
        self._other_timelines: list[ConversationTimeline] = []
        self._shows_whole_workspace = False
        self._kinds: frozenset[FoldKind] = frozenset()
        self._chosen: TimelineEvent | None = None
        self._wanted_fold = ""
        self._unknown_names: dict[str, Sequence[str]] = {}  # By a fold's text.

        # How far it has been read and drawn.
        self._reading: Iterator[None] = iter(())
        self._last_read_seq = 0
        self._has_undrawn_growth = False
        self._listed = 0  # The `change_count` of the listed timeline.
        self._past = PastMomentLoader(doing, self)
        self._read_timer = QTimer(self, interval=0)
        self._read_timer.timeout.connect(self._run_read_slice)
        self._list_timer = QTimer(self, interval=FRAME_MS, singleShot=True)
        self._list_timer.timeout.connect(self._refill_fold_list)
        self._list_timer.timeout.connect(self._show_chosen_in_panel)

        self.chart = TimelineChart(theme, self)
        self.list = FoldList(theme, self)
        self.panel = FoldPanel(theme)
        self._heading = ElidedLabel(self)
        set_widget_look(self._heading, "title")
        set_price = partial(self.intent_wanted.emit, ConversationAct.SET_MODEL_PRICE)
        self._price_link = build_push_button(tr("Set the price…"), self, set_price, "link")
        self._price_link.hide()
        # What shortening has saved, in the meter's words. The lines add up to it.
        self._savings_label = build_plain_label("", "", self)
        self.menu_button = QPushButton(self)
        set_widget_look(self.menu_button, "chip")
        self._lower = ListAndPanel(Qt.Orientation.Horizontal, self)
        self._place_timeline_widgets()
        self._build_timeline_menu()
        self._connect_timeline_signals()
        set_surface_look(self, "page")

    def _place_timeline_widgets(self) -> None:
        """Arranges heading, chart, list and panel. In a low window all of them scroll
        together.
        """
        heading = build_row(self._heading, self._price_link, 1, self.menu_button)
        top = build_column(heading, self._savings_label, self.chart, spacing=8)
        self._theme.keep_lengths_scaled(self, top.setContentsMargins, 24, 12, 16, 8)
        self._lower.addWidget(self.list)
        self._lower.addWidget(self.panel)
        self._lower.setChildrenCollapsible(False)
        # So the list has room for whole lines, as "17K → 600 tokens · saved 55.8K tokens in 4 requests".
        self._lower.setStretchFactor(0, 3)
        self._lower.setStretchFactor(1, 4)
        self._lower.setHandleWidth(1)
        scrolled_page = QWidget(self)
        set_surface_look(scrolled_page, "page")
        build_column(top, (self._lower, 1), owner=scrolled_page, margins=0, spacing=0)
        scroll_area = build_scroll_area(scrolled_page, self)
        build_column(scroll_area, owner=self, margins=0)
        self._theme.keep_lengths_scaled(self, scrolled_page.setMinimumWidth, 260)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Moves the chosen fold below the list if the page is narrow, but not if the
        list would then show hardly a row.
        """
        super().resizeEvent(event)
        self._lower_chart_in_low_page()
        pixels = self._theme.zoomed_pixels
        least_width_for_row = min(pixels(NARROW), self.height())
        least_width_for_row = max(least_width_for_row, pixels(TOO_NARROW))
        if self.width() < least_width_for_row:
            self._lower.setOrientation(Qt.Orientation.Vertical)
        else:
            self._lower.setOrientation(Qt.Orientation.Horizontal)

    def _lower_chart_in_low_page(self) -> None:
        least_height = self.chart.least_readable_height()
        room_for_chart = self.height() - self._theme.zoomed_pixels(LEAST_BESIDE_CHART)
        self.chart.setMaximumHeight(max(least_height, room_for_chart))

    def _connect_timeline_signals(self) -> None:
        self.chart.chosen.connect(self._choose_event)
        self.chart.step_chosen.connect(self._show_step_in_chat)
        self.list.chosen.connect(self._choose_event)
        self.panel.wanted.connect(self.intent_wanted)
        self.panel.undo_wanted.connect(self._undo_folds_or_ask)
        self.panel.redo_wanted.connect(partial(self._undo_or_redo_folds, "redo_fold"))
        self.panel.compare_wanted.connect(self.compare_handovers)
        self.panel.before_after_wanted.connect(self.compare_views_around_fold)
        self.panel.edited.connect(self._save_edited_document)

    def show_timeline_of(
        self, session: ShownSession | None, workspace: ShownWorkspace | None = None
    ) -> None:
        """Shows a conversation. `workspace` supplies the other conversations when the user
        asks for them.
        """
        self._session = session
        self._workspace = workspace
        history = None
        if session is not None:
            history = session.conversation.state
        self.timeline = ConversationTimeline(history)
        self._other_timelines = []
        self._shows_whole_workspace = False
        self._scope_actions[0].setChecked(True)
        self._costs_action.setChecked(False)
        self._chosen = None
        self._last_read_seq = 0
        self.panel.clear_fold_panel()
        self._past.cancel_pending_question()
        self._reading = self._read_and_show_in_steps()
        sends_its_requests = history is not None and not history.acp_agent
        self._fold_now_action.setVisible(sends_its_requests)
        self._costs_action.setVisible(sends_its_requests)
        self._heading.set_elided_text("")
        self._read_timer.start()

    def update_timeline_from_events(self, events: Sequence[SessionEvent]) -> None:
        if self._session is None or self._read_timer.isActive():
            return
        new_facts: list[Recorded] = []
        looks_otherwise = False
        for event in events:
            if isinstance(event, MeterChanged) and event.conversation == self._session.id:
                looks_otherwise = True
            if not isinstance(event, FactAppended):
                continue
            if event.recorded.conversation == self._session.id:
                new_facts.append(event.recorded)
                # What was forgotten is no point of the chart, and can no longer be put back.
                looks_otherwise |= isinstance(event.recorded.fact, Forgotten)
        # Another model was chosen, perhaps. It is recorded only with the next request, but what
        # fits after an Undo depends on its window already now.
        if self._add_facts_to_timeline(new_facts) or looks_otherwise:
            self._has_undrawn_growth = True
        if self._has_undrawn_growth and self.isVisible():
            self._update_chart()

    def showEvent(self, event: QShowEvent) -> None:
        """Draws what happened while the page was hidden."""
        super().showEvent(event)
        if self._has_undrawn_growth:
            self._update_chart()

    def _update_chart(self) -> None:
        """Updates the chart now and the list later: both take longer than a frame."""
        self._has_undrawn_growth = False
        self._expect_chosen_window()
        self.chart.extend_timeline_plot()
        self.chart.show_thresholds(self._list_thresholds())
        self._update_heading_and_price_link()
        if self._listed != self.timeline.change_count:
            self._list_timer.start()
        else:
            # The same rows, but with each step they were in one more request.
            self._let_rows_add_up(self.list.rows.items)
            self.list.viewport().update()
            self._show_chosen_in_panel()

    def _update_heading_and_price_link(self) -> None:
        foreign_agent = self.timeline.history.acp_agent
        self.chart.setVisible(not foreign_agent)
        if foreign_agent:
            self._price_link.hide()
            self._savings_label.hide()
            self._heading.set_elided_text(
                describe_context_of_other_agent(make_safe_text(foreign_agent))
            )
            return
        cost_of_agents = 0.0
        if self._session is not None:
            cost_of_agents = self._session.context.cost_of_agents()
        heading = fold_sentences.describe_timeline(self.timeline, cost_of_agents)
        self._heading.set_elided_text(heading)
        savings = describe_savings_of(self.timeline.history, cost_of_agents)
        self._savings_label.setText(savings)
        self._savings_label.setVisible(bool(savings))
        figures = self.timeline.history.savings_until_moment()
        self._savings_label.setToolTip(describe_both_sums(figures, cost_of_agents))
        has_cost = any(self.timeline.dollars[-1:])
        self._price_link.setVisible(lacks_price(self.timeline.history) and not has_cost)

    def choose_fold(self, fold: str) -> None:
        """Chooses a fold, now or once it has been read."""
        event = self.timeline.find_event_of_fold(fold)
        if event is None:
            self._wanted_fold = fold
            return
        self._wanted_fold = ""
        self._choose_event(event)

    def _run_read_slice(self) -> None:
        """Reads for a few milliseconds, so that the window stays responsive."""
        until = time.perf_counter() + READ_SLICE_SECONDS
        for _ in self._reading:
            if time.perf_counter() > until:
                self._read_timer.start()
                return
        self._read_timer.stop()

    def _read_and_show_in_steps(self) -> Iterator[None]:
        """Reads and shows the facts, in steps short enough for a slice. Facts appended
        in the meantime are read last.
        """
        facts = self.timeline.history.facts
        while self._last_read_seq < len(facts):
            end_of_step = self._last_read_seq + FACTS_PER_STEP
            self._add_facts_to_timeline(facts[self._last_read_seq : end_of_step])
            yield
        self._expect_chosen_window()
        self.chart.plot_timeline(self.timeline, self._list_thresholds())
        self._lower_chart_in_low_page()
        self._update_heading_and_price_link()
        yield
        self._refill_fold_list()
        self.list.doItemsLayout()
        yield
        if self._wanted_fold:
            self.choose_fold(self._wanted_fold)
        newest_event = self._newest_event_with_folds()
        if self._chosen is None and newest_event is not None:
            self._chosen = newest_event
            self.list.select_fold_event(newest_event)
            yield
            self._show_chosen_event()
        if self._add_facts_to_timeline(facts[self._last_read_seq :]):
            self._update_chart()

    def _list_thresholds(self) -> Sequence[FoldThreshold]:
        if self._session is None:
            return []
        conversation = self._session.conversation
        meter = measure_window(conversation.expected_state, conversation.policy)
        return list_fold_thresholds(conversation.policy, meter)

    def _expect_chosen_window(self) -> None:
        """Gives the timeline the window of the model that gets the next request."""
        if self._session is None:
            return
        expected_settings = self._session.conversation.expected_state.settings
        chosen = expected_settings.model_for_role(ModelRole.MAIN)
        window = 0
        if chosen is not None:
            window = chosen.window
        self.timeline.expected_window = window

    def _newest_event_with_folds(self) -> TimelineEvent | None:
        for event in reversed(self.timeline.events):
            if event.current_folds:
                return event
        return None

    def _add_facts_to_timeline(self, facts: Sequence[Recorded]) -> bool:
        """Returns whether the timeline grew. Facts that a slice has read already are skipped."""
        has_grown = False
        for recorded in facts:
            if recorded.seq > self._last_read_seq:
                self._last_read_seq = recorded.seq
                if self.timeline.read_next_fact(recorded):
                    has_grown = True
        return has_grown

    def _refill_fold_list(self) -> None:
        self._listed = self.timeline.change_count
        events: list[TimelineEvent] = list(self.timeline.events)
        if self._shows_whole_workspace:
            stories = [self.timeline]
            stories += self._other_timelines
            events = merge_timeline_events(stories)
            events.reverse()  # The oldest first, as in a single conversation.
        if self._kinds:
            events = [event for event in events if event.fold_kind in self._kinds]
        rows = group_timeline_events(events)
        self._let_rows_add_up(rows)
        rows.reverse()
        self.list.show_fold_events(rows, keep=self._chosen)

    def _let_rows_add_up(self, rows: Sequence[TimelineEvent]) -> None:
        """Rounds the rows so that they add up to the head, if all are there and not more than
        anybody adds up.
        """
        has_all_rows = not self._shows_whole_workspace and not self._kinds
        if self._session is None or not has_all_rows or len(rows) > MOST_MEASURED_ROWS:
            return
        fold_sentences.let_lines_add_up(rows, self._session.context.cost_of_agents())

    def _choose_event(self, event: TimelineEvent) -> None:
        if event is not self._chosen:  # The list also reports selections that the program makes.
            self._chosen = event
            self.list.select_fold_event(event)
            self._show_chosen_event()

    def _show_chosen_event(self) -> None:
        event = self._chosen
        if event is not None and event.history is not self.timeline.history:
            event = None  # It is of another conversation, which the chart does not show.
        self.chart.mark_selected_event(event)
        self._show_chosen_in_panel()

    def _show_chosen_in_panel(self) -> None:
        event = self._chosen
        if event is None:
            return
        fold: Folded | None = None
        known_names: Sequence[str] | None = ()  # None: they have not been searched for.
        if event.made_folds:
            fold = event.current_folds[0]
            known_names = self._unknown_names.get(fold.text)
        label = self._label_of_comparison(event)
        shown = ShownFold(event, label, known_names or ())
        self.panel.show_fold_document(self._with_effect_of_undo(shown))
        if known_names is None and fold is not None and self._workspace is not None:
            self._find_and_show_unknown_names(event, fold, self._workspace.contents)

    def _with_effect_of_undo(self, shown: ShownFold) -> ShownFold:
        if not shown.event.has_fold_in_force:
            return shown
        after = self._estimate_after_undo([fold.fold for fold in shown.folds_to_undo_or_redo()])
        if after is None:
            return shown
        sentence = fold_sentences.describe_context_after_undo(after)
        return replace(shown, effect_of_undo=sentence, can_be_undone=after.fits)

    def _estimate_after_undo(self, folds: Sequence[str]) -> ContextAfterUndo | None:
        """Returns what the context holds after an Undo, or None for folds of another conversation,
        of a foreign agent, or where there are none.
        """
        event = self._chosen
        if self._session is None or event is None or not folds:
            return None
        is_of_shown_conversation = self._timeline_of_event(event) is self.timeline
        conversation = self._session.conversation
        if not is_of_shown_conversation or conversation.state.acp_agent:
            return None
        return estimate_context_after_undo(
            conversation.expected_state, conversation.policy, folds, time.time()
        )

    def _label_of_comparison(self, event: TimelineEvent) -> str:
        """Returns the label of the button that compares a document with the one before it."""
        if event.fold_kind is not FoldKind.HANDOVER:
            return ""
        earlier = self._timeline_of_event(event).find_handover_before(event)
        if earlier is None:
            return ""
        return tr("Compare with summary {n}", n=earlier.current_folds[0].number)

    def _find_and_show_unknown_names(
        self, event: TimelineEvent, fold: Folded, contents: ContentReader
    ) -> None:
        """Marks names that the replaced messages do not contain, once these have been read."""

        def show_names(names: Sequence[str]) -> None:
            self._unknown_names[fold.text] = names
            if names and self._chosen is event:
                self._show_chosen_in_panel()

        self._unknown_names[fold.text] = ()  # So that they are searched for only once.
        work = find_unknown_names_of_fold(event.history, fold, contents)
        self._doing.run_in_background(work, then=show_names, owner=self)

    def _timeline_of_event(self, event: TimelineEvent) -> ConversationTimeline:
        for story in self._other_timelines:
            if event.history is story.history:
                return story
        return self.timeline

    def _show_step_in_chat(self, seq: int) -> None:
        if self._session is not None:
            self.intent_wanted.emit(ShowInChat(self._session.id, seq))

    # --- What the user can do with the chosen fold

    def _undo_folds_or_ask(self, folds: list[str]) -> None:
        """Undoes folds at once, or asks if the context would be so full that the next message is
        shortened in another way first.
        """
        after = self._estimate_after_undo(folds)
        undo = partial(self._undo_or_redo_folds, "undo_fold", folds)
        # What does not fit is refused, with figures and what to do instead.
        if after is None or not after.is_shortened_again or not after.fits:
            undo()
            return
        question = fold_sentences.describe_context_after_undo(after)
        ask_to_choose_one(self, tr("Undo"), question, [DialogChoice(tr("Undo"), undo)])

    def _undo_or_redo_folds(self, change: str, folds: list[str]) -> None:
        async def change_each(session: ShownSession) -> None:
            for fold in folds:
                if change == "undo_fold":
                    await session.folding.unfold(fold)
                else:
                    await session.folding.refold(fold)

        self._run_fold_command(change_each)

    def _save_edited_document(self, fold: str, text: str) -> None:
        event = self._chosen

        def return_unsaved_text(error: HelixError) -> None:
            if event is not None:
                self.panel.restore_unsaved_text(event, text)
            self._doing.failed.emit(error)

        self._run_fold_command(
            lambda session: session.context.edit_fold_text(fold, text), return_unsaved_text
        )

    def _run_fold_command(
        self,
        act: Callable[[ShownSession], Awaitable[None]],
        failed: Callable[[HelixError], None] | None = None,
    ) -> None:
        """Runs a command on the shown fold, in the conversation it belongs to."""
        event = self._chosen
        if self._session is None or event is None:
            return
        is_of_shown_conversation = self._timeline_of_event(event) is self.timeline
        if is_of_shown_conversation or self._workspace is None:
            self._doing.run_in_background(
                _run_in_session(act, self._session), owner=self, failed=failed
            )
            return
        work = _run_in_other_conversation(act, self._workspace, event.conversation)
        self._doing.run_in_background(
            work, then=lambda _: self._fetch_other_timelines(), owner=self, failed=failed
        )

    def compare_handovers(self) -> None:
        """Compares the chosen handover with the one before it, section by section."""
        event = self._chosen
        if event is None:
            return
        earlier = self._timeline_of_event(event).find_handover_before(event)
        if earlier is None:
            return
        old_sections = fold_sentences.split_document_sections(earlier.current_folds[0].text)
        new_sections = fold_sentences.split_document_sections(event.current_folds[0].text)
        texts = fold_sentences.align_document_sections(old_sections, new_sections)
        old_title = fold_sentences.describe_event_title(earlier)
        new_title = fold_sentences.describe_event_title(event)
        TextComparisonDialog(self._doing, self._theme, (old_title, new_title), texts, self).open()

    def compare_views_around_fold(self) -> None:
        """Compares what the model saw before the chosen fold and after it."""
        event = self._chosen
        session = self._session
        workspace = self._workspace
        if event is None or session is None or workspace is None:
            return
        if event.history is not self.timeline.history:
            return
        conversation = session.conversation
        last_seq = find_last_seq_of_event(event, conversation.state.facts)

        # The view before the fold is computed first, then the view after it.
        def compute_view_after(moment_before: Moment) -> None:
            show_both = partial(
                self._read_outputs_and_compare, event, workspace.contents, moment_before
            )
            self._past.compute_moment_at(conversation, last_seq, show_both)

        self._past.compute_moment_at(conversation, event.seq - 1, compute_view_after)

    def _read_outputs_and_compare(
        self,
        event: TimelineEvent,
        contents: ContentReader,
        moment_before: Moment,
        moment_after: Moment,
    ) -> None:
        """Reads the short outputs that the two views name, and opens the comparison."""
        old_view = moment_before.get_view()
        new_view = moment_after.get_view()
        titles = _titles_of_comparison(event, moment_before, moment_after)

        def open_comparison(outputs: Mapping[Stored, str]) -> None:
            old_text = format_view_as_text(old_view, outputs)
            new_text = format_view_as_text(new_view, outputs)
            texts = (old_text, new_text)
            TextComparisonDialog(self._doing, self._theme, titles, texts, self).open()

        facts = event.history.facts
        messages = list(facts_shown_whole(old_view, facts))
        messages += facts_shown_whole(new_view, facts)
        work = read_short_outputs(messages, contents)
        self._doing.run_in_background(work, then=open_comparison, owner=self)

    # --- Choosing what the timeline shows

    def _build_timeline_menu(self) -> None:
        """Builds the page's menu: which kinds of folds are listed, of this conversation or of all,
        and what can be done. A fold is what stands for messages or outputs that were shortened.
        """
        menu = QMenu(self.menu_button)
        all_kinds = tr("All kinds")
        kinds_by_name: dict[str, frozenset[FoldKind]] = {
            all_kinds: frozenset(),
            tr("Summaries"): KINDS_OF_SUMMARIES,
            tr("Dated notes"): KINDS_OF_NOTES,
            tr("Stored outputs"): kinds_of_groups(FoldGroup.LINE),
            tr("Excerpts"): kinds_of_groups(FoldGroup.EXCERPT),
        }
        kind_choices: list[tuple[str, Callable[[], None]]] = []
        for name, kinds in kinds_by_name.items():
            show_kinds = partial(self._show_fold_kinds, name, kinds)
            kind_choices.append((name, show_kinds))
        _add_exclusive_choices(menu, kind_choices)

        show_conversation = partial(self._show_timeline_scope, everywhere=False)
        show_workspace = partial(self._show_timeline_scope, everywhere=True)
        scope_choices: list[tuple[str, Callable[[], None]]] = []
        scope_choices.append((tr("This conversation"), show_conversation))
        scope_choices.append((tr("Whole workspace"), show_workspace))
        self._scope_actions = _add_exclusive_choices(menu, scope_choices)

        ask_to_fold = partial(self.intent_wanted.emit, AskToFold())
        self._fold_now_action = menu.addAction(tr("Shorten now…"), ask_to_fold)
        costs_label = tr("What each request cost")
        self._costs_action = add_menu_choice(
            menu, costs_label, self._show_request_costs, chosen=False
        )
        self.menu_button.setMenu(menu)
        self.menu_button.setText(f"{all_kinds} ▾")

    def _show_request_costs(self) -> None:
        """Examines the whole conversation in a thread, when the user asks for it."""
        session = self._session
        if session is None or not self._costs_action.isChecked():
            self.chart.show_request_costs(())
            return

        def show_bars(requests: Sequence[RequestCost]) -> None:
            if self._session is session and self._costs_action.isChecked():
                self.chart.show_request_costs(requests)

        read_facts = None
        if self._workspace is not None:
            read_facts = self._workspace.read_conversation_facts
        work = read_original_and_explain_requests(
            list(session.conversation.state.facts), lambda _progress: None, read_facts
        )
        self._doing.run_in_background(work, then=show_bars, owner=self)

    def _show_fold_kinds(self, name: str, kinds: frozenset[FoldKind]) -> None:
        self.menu_button.setText(f"{name} ▾")
        self._kinds = kinds
        self._refill_fold_list()

    def _show_timeline_scope(self, *, everywhere: bool) -> None:
        self._shows_whole_workspace = everywhere
        self._refill_fold_list()
        if everywhere and not self._other_timelines:
            self._fetch_other_timelines()

    def _fetch_other_timelines(self) -> None:
        session = self._session
        workspace = self._workspace

        def show_other_timelines(stories: list[ConversationTimeline]) -> None:
            if self._session is session:
                self._other_timelines = stories
                self._refill_fold_list()
                self._show_chosen_in_panel()

        if session is not None and workspace is not None:
            work = _fetch_timelines_except(workspace, session.id)
            self._doing.run_in_background(work, then=show_other_timelines, owner=self)


async def _run_in_session(
    act: Callable[[ShownSession], Awaitable[None]], session: ShownSession
) -> None:
    await act(session)


async def _run_in_other_conversation(
    act: Callable[[ShownSession], Awaitable[None]], workspace: ShownWorkspace, conversation: str
) -> None:
    session = await workspace.open_session(conversation)
    await act(session)


def _titles_of_comparison(
    event: TimelineEvent, moment_before: Moment, moment_after: Moment
) -> tuple[str, str]:
    name = fold_sentences.describe_event_title(event)
    old_tokens = moment_before.counted_tokens
    new_tokens = moment_after.counted_tokens
    difference = format_number(new_tokens - old_tokens)
    if new_tokens > old_tokens:
        difference = f"+{difference}"
    old_title = f"{tr('Before {name}', name=name)} · {format_token_count(old_tokens)}"
    new_title = f"{tr('After {name}', name=name)} · {format_token_count(new_tokens)}"
    return old_title, f"{new_title} ({difference})"


def _add_exclusive_choices(
    menu: QMenu, choices: Sequence[tuple[str, Callable[[], None]]]
) -> list[QAction]:
    """Adds choices of which one is chosen, at first the first one."""
    group = QActionGroup(menu)
    for number, (name, act) in enumerate(choices):
        group.addAction(add_menu_choice(menu, name, act, chosen=number == 0))
    menu.addSeparator()
    return group.actions()


async def _fetch_timelines_except(
    workspace: ShownWorkspace, omitted_conversation: str
) -> list[ConversationTimeline]:
    """Returns the timelines of all other conversations, read one after another."""
    stories: list[ConversationTimeline] = []
    for row in workspace.list_conversations():
        if row.id != omitted_conversation:
            facts = await workspace.read_conversation_facts(row.id)
            stories.append(await asyncio.to_thread(_build_timeline, facts))
    return stories


def _build_timeline(facts: Sequence[Recorded]) -> ConversationTimeline:
    story = ConversationTimeline(build_state(facts))
    story.read_all_facts(facts)
    return story
