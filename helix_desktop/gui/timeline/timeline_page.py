"""The timeline page: tokens over time, the folds of a conversation or of the workspace, and what each of them did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QActionGroup, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QMenu, QPushButton, QVBoxLayout, QWidget

from helix_desktop.engine import context_policy
from helix_desktop.engine.blocks import ContextKind, View
from helix_desktop.engine.facts import FoldKind, PartRef, Recorded, ToolCall, ToolReturned
from helix_desktop.engine.history.moment import Moment
from helix_desktop.engine.session_events import Event as SessionEvent
from helix_desktop.engine.session_events import FactAppended
from helix_desktop.engine.view import build_state
from helix_desktop.engine.view_difference import compare_views
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.question_dialogs import ask_new_file
from helix_desktop.gui.shared.past_moments import PastMomentLoader, format_view_as_text
from helix_desktop.gui.text_file_saving import save_text_file
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.timeline import fold_sentences
from helix_desktop.gui.timeline.conversation_timeline import ConversationTimeline, TimelineEvent, merge_timeline_events
from helix_desktop.gui.timeline.fold_list import FoldList, filter_events_by_kind
from helix_desktop.gui.timeline.fold_now_dialog import FoldNowDialog
from helix_desktop.gui.timeline.fold_panel import FoldPanel, ShownFold
from helix_desktop.gui.timeline.timeline_chart import Threshold, TimelineChart
from helix_desktop.gui.transcript.chat_intents import ShowInChat
from helix_desktop.gui.transcript.tool_call_lines import format_call
from helix_desktop.gui.translation import tr
from helix_desktop.gui.views.text_comparison import TextComparisonDialog
from helix_desktop.gui.window_ports import SessionPort, WorkbenchPort

READ_SLICE_SECONDS = 0.003
FRAME_MS = 16  # milliseconds
FACTS_PER_STEP = 64
MAX_FACTS_TO_CALL = 400  # a call stands at most this many facts before its output


class TimelinePage(QWidget):
    """`panel` shows the chosen fold; the window puts it at the right. `intent_wanted` carries values of `chat_intents`."""

    intent_wanted = Signal(object)

    def __init__(self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._doing = doing
        self._session: SessionPort | None = None
        self._bench: WorkbenchPort | None = None
        self.timeline = ConversationTimeline()
        self._other_timelines: list[ConversationTimeline] = []
        self._shows_whole_workspace = False
        self._has_undrawn_growth = False
        self._listed: tuple[int, int] = (0, 0)  # the story's state when the list was last filled
        self._last_read_seq = 0
        self._kinds: frozenset[FoldKind] = frozenset()
        self._chosen: TimelineEvent | None = None
        self._wanted_fold = ""
        self._reading: Iterator[None] = iter(())
        self.chart = TimelineChart(theme, self)
        self.list = FoldList(theme, self)
        self.panel = FoldPanel(theme)
        self._past = PastMomentLoader(doing, self)
        self._read_timer = QTimer(self, interval=0)
        self._read_timer.timeout.connect(self._run_read_slice)
        self._list_timer = QTimer(self, interval=FRAME_MS, singleShot=True)
        self._list_timer.timeout.connect(self._update_list_and_panel)
        self._kind_pill = self._build_timeline_button(tr("All kinds"))
        self._scope_pill = self._build_timeline_button(tr("This conversation"))
        self._fold_now_button = self._build_timeline_button(tr("Fold now…"))
        self._export = self._build_timeline_button(tr("Export timeline…"))
        self._more = self._build_timeline_button("⋯")
        self._more.setAccessibleName(tr("More actions"))
        self._lay_out_timeline()
        self._build_filter_menus()
        self._connect_timeline_signals()
        set_widget_look(self, "page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)

    def _build_timeline_button(self, text: str) -> QPushButton:
        pill = QPushButton(text, self)
        set_widget_look(pill, "chip")
        return pill

    def _lay_out_timeline(self) -> None:
        chart = QVBoxLayout()
        self._theme.keep_scaled(self, chart.setContentsMargins, 24, 20, 20, 0)
        chart.addWidget(self.chart)
        row = QHBoxLayout()
        self._theme.keep_scaled(self, row.setContentsMargins, 24, 10, 20, 8)
        self._theme.keep_scaled(self, row.setSpacing, 6)
        row.addWidget(self._kind_pill)
        row.addWidget(self._scope_pill)
        row.addStretch(1)
        row.addWidget(self._fold_now_button)
        row.addWidget(self._export)
        row.addWidget(self._more)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(chart)
        column.addLayout(row)
        column.addWidget(self.list, 1)
        self._theme.keep_scaled(self, self.setMinimumWidth, 260)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Moves the commands into one menu if there is little room."""
        super().resizeEvent(event)
        narrow = self.width() < self._theme.zoomed_pixels(520)
        for button in (self._fold_now_button, self._export):
            button.setVisible(not narrow)
        self._more.setVisible(narrow)

    def _connect_timeline_signals(self) -> None:
        self.chart.chosen.connect(self._choose_event)
        self.chart.step_chosen.connect(self._show_step_in_chat)
        self.list.chosen.connect(self._choose_event)
        self.panel.wanted.connect(self.intent_wanted)
        self.panel.undo_wanted.connect(self._undo_shown_folds)
        self.panel.redo_wanted.connect(self._redo_shown_folds)
        self.panel.compare_wanted.connect(self.compare_handovers)
        self.panel.before_after_wanted.connect(self.compare_views_around_fold)
        self.panel.edited.connect(self._save_edited_document)
        self._fold_now_button.clicked.connect(self.ask_to_fold)
        self._export.clicked.connect(self.export_timeline)

    def show_timeline_of(self, session: SessionPort | None, bench: WorkbenchPort | None = None) -> None:
        """Shows a conversation. `bench` supplies the workspace's other conversations when the user asks for them."""
        self._session, self._bench = session, bench
        history = session.conversation.state if session is not None else None
        self.timeline, self._other_timelines, self._shows_whole_workspace = ConversationTimeline(history), [], False
        self._scope_pill.menu().actions()[0].setChecked(True)
        self._scope_pill.setText(f"{tr('This conversation')} ▾")
        self._chosen, self._last_read_seq = None, 0
        self.panel.clear_fold_panel()
        self._past.cancel_pending_question()
        self._reading = self._read_in_steps()
        self._fold_now_button.setEnabled(session is not None)
        self._read_timer.start()

    def update_timeline_from_events(self, events: Sequence[SessionEvent]) -> None:
        """What has happened since the last time."""
        if self._session is None or self._read_timer.isActive():
            return
        came = [event.recorded for event in events if isinstance(event, FactAppended)]
        self._has_undrawn_growth |= self._add_facts_to_timeline(
            [each for each in came if each.conversation == self._session.id]
        )
        if self._has_undrawn_growth and self.isVisible():
            self._update_chart()

    def showEvent(self, event: QShowEvent) -> None:
        """Draws what has happened while the page was hidden."""
        super().showEvent(event)
        if self._has_undrawn_growth:
            self._update_chart()

    def _update_chart(self) -> None:
        """Updates the chart now and the list in the next pass of the event loop: both together take
        longer than a frame.
        """
        self._has_undrawn_growth = False
        self.chart.extend_timeline_plot()
        if self._listed != (self.timeline.change_count, self.timeline.model_window):
            self._list_timer.start()

    def _update_list_and_panel(self) -> None:
        self._refill_fold_list()
        self._show_chosen_in_panel()

    def choose_fold(self, fold: str) -> None:
        """Chooses a fold, now or once it has been read."""
        event = self.timeline.find_event_of_fold(fold)
        if event is None:
            self._wanted_fold = fold
            return
        self._wanted_fold = ""
        self._choose_event(event)

    def _run_read_slice(self) -> None:
        """Reads for a few milliseconds and yields, so that the window stays responsive while a long
        conversation is read.
        """
        until = time.perf_counter() + READ_SLICE_SECONDS
        for _ in self._reading:
            if time.perf_counter() > until:
                self._read_timer.start()
                return
        self._read_timer.stop()

    def _read_in_steps(self) -> Iterator[None]:
        """Reads and shows the facts, in steps short enough for a slice. Facts appended in the meantime are read last."""
        facts = self.timeline.history.facts
        while self._last_read_seq < len(facts):
            self._add_facts_to_timeline(facts[self._last_read_seq : self._last_read_seq + FACTS_PER_STEP])
            yield
        self.chart.plot_timeline(self.timeline, self._chart_thresholds())
        yield
        self._refill_fold_list()
        self.list.doItemsLayout()
        yield
        if self._wanted_fold:
            self.choose_fold(self._wanted_fold)
        newest = next((event for event in reversed(self.timeline.events) if event.current_folds), None)
        if self._chosen is None and newest is not None:
            self._chosen = newest
            self.list.select_fold_event(newest)
            yield
            self._show_chosen_event()
        if self._add_facts_to_timeline(facts[self._last_read_seq :]):
            self._update_chart()

    def _add_facts_to_timeline(self, facts: Sequence[Recorded]) -> bool:
        """Adds facts; returns True if the story grew. Facts that a slice has read already are skipped."""
        grown = False
        for recorded in facts:
            if recorded.seq > self._last_read_seq:
                self._last_read_seq = recorded.seq
                grown = self.timeline.read_next_fact(recorded) or grown
        return grown

    def _chart_thresholds(self) -> Sequence[Threshold]:
        if self._session is None:
            return ()
        chosen = context_policy.policy_from_fact(self._session.conversation.state.settings.policy)
        found: list[Threshold] = []
        if chosen.handover != "off":
            share = chosen.handover_share
            found.append((tr("hand over {share}%", share=round(100 * share)), ContextKind.HANDOVER, share))
        if chosen.observation:
            found.append(
                (
                    tr("reflect {share}%", share=round(100 * chosen.reflection_share)),
                    ContextKind.OBSERVATIONS,
                    chosen.reflection_share,
                )
            )
            found.append(
                (
                    tr("observe {share}%", share=round(100 * chosen.observation_share)),
                    ContextKind.OBSERVATIONS,
                    chosen.observation_share,
                )
            )
        return found

    def _refill_fold_list(self) -> None:
        self._listed = self.timeline.change_count, self.timeline.model_window
        events = self.timeline.events
        if self._shows_whole_workspace:
            events = list(reversed(merge_timeline_events([self.timeline, *self._other_timelines])))
        self.list.show_fold_events(
            filter_events_by_kind(events, self._kinds), self.timeline.model_window, keep=self._chosen
        )

    def _choose_event(self, event: TimelineEvent) -> None:
        if event is not self._chosen:  # otherwise the list only reports the selection made here
            self._chosen = event
            self.list.select_fold_event(event)
            self._show_chosen_event()

    def _show_chosen_event(self) -> None:
        event = self._chosen
        self.chart.mark_selected_event(event if event is not None and event.history is self.timeline.history else None)
        self._show_chosen_in_panel()

    def _show_chosen_in_panel(self) -> None:
        event = self._chosen
        if event is None:
            return
        story = self._timeline_of_event(event)
        earlier = story.find_handover_before(event) if event.fold_kind is FoldKind.HANDOVER else None
        name = tr("Compare with {n}", n=earlier.current_folds[0].number) if earlier is not None else ""
        about = self._describe_covered_part if story is self.timeline else lambda ref: tr("#{n}", n=ref.seq)
        shown = ShownFold(event, story.model_window, name, about)
        self.panel.show_fold_document(shown)

    def _timeline_of_event(self, event: TimelineEvent) -> ConversationTimeline:
        return next((story for story in self._other_timelines if event.history is story.history), self.timeline)

    def _describe_covered_part(self, ref: PartRef) -> str:
        """Describes the call whose output a fold covers. It stands a few facts before the output."""
        facts = self._session.conversation.state.facts if self._session is not None else []
        returned = facts[ref.seq - 1].fact if 0 < ref.seq <= len(facts) else None
        if isinstance(returned, ToolReturned):
            for recorded in reversed(facts[max(0, ref.seq - MAX_FACTS_TO_CALL) : ref.seq - 1]):
                for part in getattr(recorded.fact, "parts", ()):
                    if isinstance(part, ToolCall) and part.id == returned.call:
                        return format_call(part.name, part.arguments)
        return tr("#{n}", n=ref.seq)

    def _show_step_in_chat(self, seq: int) -> None:
        if self._session is not None:
            self.intent_wanted.emit(ShowInChat(self._session.id, seq))

    # --- commands

    def _undo_shown_folds(self, folds: list[str]) -> None:
        self._run_fold_command("undo a fold", lambda session: _run_for_each_fold(session.undo_fold, folds))

    def _redo_shown_folds(self, folds: list[str]) -> None:
        self._run_fold_command("redo a fold", lambda session: _run_for_each_fold(session.redo_fold, folds))

    def _save_edited_document(self, fold: str, text: str) -> None:
        event = self._chosen

        def return_unsaved_text(error: HelixError) -> None:
            if event is not None:
                self.panel.restore_unsaved_text(event, text)
            self._doing.failed.emit(error)

        self._run_fold_command(
            "edit a document", lambda session: session.edit_fold_text(fold, text), return_unsaved_text
        )

    def _run_fold_command(
        self,
        name: str,
        act: Callable[[SessionPort], Awaitable[None]],
        failed: Callable[[HelixError], None] | None = None,
    ) -> None:
        """Runs a command on the shown fold, in the conversation it belongs to."""
        session, bench, event = self._session, self._bench, self._chosen
        if session is None or event is None:
            return
        other = self._timeline_of_event(event) is not self.timeline and bench is not None

        async def run_in_conversation() -> None:
            await act(await bench.open_session(event.conversation) if other and bench is not None else session)

        def refresh_other_timelines(_: None) -> None:
            if other:
                self._fetch_other_timelines()

        self._doing.run_in_background(
            run_in_conversation(), name=name, then=refresh_other_timelines, owner=self, failed=failed
        )

    def ask_to_fold(self) -> None:
        """Ask what to keep, then fold."""
        if self._session is not None:
            FoldNowDialog(self._session, self._doing, self).open()

    def compare_handovers(self) -> None:
        """The chosen handover beside the one before it, section by section."""
        event = self._chosen
        earlier = self._timeline_of_event(event).find_handover_before(event) if event is not None else None
        if event is None or earlier is None:
            return
        old, new = (fold_sentences.split_document_sections(each.current_folds[0].text) for each in (earlier, event))
        titles = (fold_sentences.describe_event_title(earlier), fold_sentences.describe_event_title(event))
        TextComparisonDialog(self._theme, titles, fold_sentences.align_document_sections(old, new), self).open()

    def compare_views_around_fold(self) -> None:
        """What the model saw before the chosen fold and after it, side by side."""
        event, session = self._chosen, self._session
        if event is None or session is None or event.history is not self.timeline.history:
            return
        talk, facts = session.conversation, session.conversation.state.facts
        last = self._last_seq_of_batch(event, facts)

        def compare_with_view_after(then: Moment) -> None:
            old = then.take_view()
            self._past.compute_moment_at(
                talk, last, lambda after: self._show_views_side_by_side(event, old, after.take_view(), facts)
            )

        self._past.compute_moment_at(talk, event.seq - 1, compare_with_view_after)

    def _last_seq_of_batch(self, event: TimelineEvent, facts: Sequence[Recorded]) -> int:
        """The last fact of the batch."""
        names = {fold.fold for fold in event.current_folds}
        last = event.seq
        for recorded in facts[event.seq : event.seq + 4 * len(names)]:
            if getattr(recorded.fact, "fold", "") in names:
                last = recorded.seq
        return last

    def _show_views_side_by_side(self, event: TimelineEvent, old: View, new: View, facts: Sequence[Recorded]) -> None:
        found = compare_views(old, new)
        before, after = (
            tr("Before {name}", name=fold_sentences.describe_event_title(event)),
            tr("After {name}", name=fold_sentences.describe_event_title(event)),
        )
        titles = (
            f"{before} · {format_token_count(found.before)}",
            f"{after} · {format_token_count(found.after)} ({found.net_tokens:+,})",
        )
        TextComparisonDialog(
            self._theme, titles, (format_view_as_text(old, facts), format_view_as_text(new, facts)), self
        ).open()

    def export_timeline(self) -> None:
        """Write the story as Markdown to a file of the user's choice."""
        if self._session is None:
            return
        text = fold_sentences.format_timeline_as_markdown(
            self.timeline, self._session.conversation.state.title or tr("Conversation")
        )

        def save_timeline_to(file: Path) -> None:
            self._doing.run_in_background(save_text_file(file, lambda: text), name="export", owner=self)

        ask_new_file(self, tr("Export timeline"), "story.md", save_timeline_to)

    # --- filters

    def _build_filter_menus(self) -> None:
        kinds = (
            (tr("All kinds"), frozenset[FoldKind]()),
            (tr("Handovers"), frozenset({FoldKind.HANDOVER, FoldKind.TRUNCATION})),
            (tr("Observations"), frozenset({FoldKind.OBSERVATIONS, FoldKind.REFLECTION})),
            (tr("Cached outputs"), frozenset({FoldKind.MARKER})),
            (tr("Excerpts"), frozenset({FoldKind.EXCERPT})),
        )
        self._add_choice_menu(
            self._kind_pill, [(name, partial(self._show_fold_kinds, chosen)) for name, chosen in kinds]
        )
        more = QMenu(self._more)
        more.addAction(tr("Fold now…"), self.ask_to_fold)
        more.addAction(tr("Export timeline…"), self.export_timeline)
        self._more.setMenu(more)
        scopes = ((tr("This conversation"), False), (tr("Whole workspace"), True))
        self._add_choice_menu(
            self._scope_pill, [(name, partial(self._show_timeline_scope, everywhere=on)) for name, on in scopes]
        )

    def _add_choice_menu(self, pill: QPushButton, choices: Sequence[tuple[str, Callable[[], None]]]) -> None:
        menu = QMenu(pill)
        group = QActionGroup(menu)
        for number, (name, act) in enumerate(choices):
            action = menu.addAction(name)
            action.setCheckable(True)
            action.setChecked(number == 0)
            group.addAction(action)
            action.triggered.connect(partial(self._on_menu_choice, pill, name, act))
        pill.setMenu(menu)
        pill.setText(f"{choices[0][0]} ▾")

    def _on_menu_choice(self, pill: QPushButton, name: str, act: Callable[[], None], _: object = None) -> None:
        pill.setText(f"{name} ▾")
        act()

    def _show_fold_kinds(self, kinds: frozenset[FoldKind]) -> None:
        self._kinds = kinds
        self._refill_fold_list()

    def _show_timeline_scope(self, *, everywhere: bool) -> None:
        self._shows_whole_workspace = everywhere
        self._refill_fold_list()
        if everywhere and not self._other_timelines:
            self._fetch_other_timelines()

    def _fetch_other_timelines(self) -> None:
        session, bench = self._session, self._bench

        def show_other_timelines(stories: list[ConversationTimeline]) -> None:
            if self._session is session:
                self._other_timelines = stories
                self._refill_fold_list()
                self._show_chosen_in_panel()

        if session is not None and bench is not None:
            self._doing.run_in_background(
                _fetch_timelines_except(bench, session.id),
                name="folds of the workspace",
                then=show_other_timelines,
                owner=self,
            )


async def _run_for_each_fold(command: Callable[[str], Awaitable[None]], folds: list[str]) -> None:
    for fold in folds:
        await command(fold)


async def _fetch_timelines_except(bench: WorkbenchPort, but: str) -> list[ConversationTimeline]:
    """The stories of all other conversations, read one after another."""
    stories = []
    for row in bench.list_conversations():
        if row.id != but:
            facts = await bench.read_conversation_facts(row.id)
            stories.append(await asyncio.to_thread(_build_timeline, facts))
    return stories


def _build_timeline(facts: Sequence[Recorded]) -> ConversationTimeline:
    story = ConversationTimeline(build_state(facts))
    story.read_all_facts(facts)
    return story
