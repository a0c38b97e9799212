"""The context inspector: how full the window is and with what, every block of it, at
this step or any earlier one.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QCursor, QShowEvent
from PySide6.QtWidgets import QMenu, QSlider, QWidget

from helix_desktop.engine import context_policy, context_usage
from helix_desktop.engine.context_policy import Policy
from helix_desktop.engine.facts import FoldKind, ModelReplied, PartRef, Recorded, Span
from helix_desktop.engine.messages import Block, ContextKind
from helix_desktop.engine.session_events import Event, FactAppended, FoldProgress, MeterChanged
from helix_desktop.engine.state.fold_covers import first_and_last
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.state.token_ledger import newest_fact_seen_by
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.figure_formats import format_dollars, format_time_of_day
from helix_desktop.gui.common.past_moments import PastMomentLoader, describe_block_source
from helix_desktop.gui.common.policy_names import list_fold_thresholds
from helix_desktop.gui.context_meter import (
    context_kind_name,
    describe_context_of_other_agent,
    format_token_count,
)
from helix_desktop.gui.inspector import inspector_figures
from helix_desktop.gui.inspector.inspector_boxes import (
    FigureBox,
    build_context_boxes,
    build_cost_boxes,
)
from helix_desktop.gui.inspector.inspector_figures import ListedBlock
from helix_desktop.gui.model_setup_port import lacks_price
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.shown_workspace import ShownSession, ShownWorkspace, workbench_of_shown
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import (
    ActionLineBox,
    LayoutBox,
    SectionKey,
    ToggleSection,
    build_heading_box,
    build_note_box,
)
from helix_desktop.gui.transcript.call_and_fold_boxes import ExpandableHeaderBox
from helix_desktop.gui.transcript.chat_actions import AskToFold, OpenEntry, OpenFold, ShowInChat
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, format_number, tr
from helix_desktop.gui.views.boxes_view import BoxesView

REFRESH_DELAY_MS = 120
READ_SLICE_SECONDS = 0.003
FACTS_BETWEEN_CLOCK_CHECKS = 128
MAX_SHOWN_BLOCKS = 300
_BLOCKS: SectionKey = ("blocks",)
_REQUEST: SectionKey = ("request",)
_LARGEST: SectionKey = ("largest",)
_TOOLS: SectionKey = ("tools",)
_OPENED_BY_CLICK = frozenset({_BLOCKS, _LARGEST, _TOOLS})


class ContextInspector(QWidget):
    """Shows how full the window is and with what, now or at an earlier step: a step is one reply
    of the model. `intent_requested` carries values of `chat_actions`.
    """

    intent_requested = Signal(object)
    moment_shown = Signal(
        object
    )  # Carries the number of the newest fact at the shown moment, or None for now.

    def __init__(
        self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._doing = doing
        self._session: ShownSession | None = None
        self._workspace: ShownWorkspace | None = None

        # The replies of the conversation, which are read in slices.
        self._steps: list[Recorded] = []
        self._unread: Iterator[Recorded] = iter(())
        self._last_read_seq = 0
        self._read_timer = QTimer(self, interval=0)
        self._read_timer.timeout.connect(self._read_facts_slice)

        # The shown moment: its blocks, and which sections are open.
        self._past = PastMomentLoader(doing, self)
        self._parts: list[ListedBlock] = []
        self._open: set[SectionKey] = set()
        self._refresh_timer = QTimer(self, interval=REFRESH_DELAY_MS, singleShot=True)
        self._refresh_timer.timeout.connect(self._show_chosen_step)

        self.view = BoxesView(theme, self, surface="window", pad=(16, 16))
        self.view.setAccessibleName(tr("Context"))
        self.view.intent_requested.connect(self._carry_out_box_action)
        self.slider = QSlider(Qt.Orientation.Horizontal, self)
        name_of_slider = tr("Show an earlier step")
        self.slider.setAccessibleName(name_of_slider)
        self.slider.setToolTip(name_of_slider)
        self.slider.valueChanged.connect(lambda _: self._refresh_timer.start())
        self._step = widgets.build_plain_label("", "faint", self, wraps=False)
        self._now_button = widgets.build_push_button(tr("Now"), self, self._go_to_present, "chip")
        hint = tr("Hide the side panel")
        self.close_button = widgets.build_push_button("✕", self, look="chip", name=hint)
        self.close_button.setToolTip(hint)
        self._lay_out_inspector()
        widgets.set_surface_look(self, "inspector")

    def _lay_out_inspector(self) -> None:
        """Puts what moment is shown above what is shown of it, and the button that closes the panel
        at the upper right, where people look for it.
        """
        row = build_row((self._step, 1), self._now_button, self.close_button)
        head = build_column(row, self.slider)
        self._theme.keep_lengths_scaled(self, head.setContentsMargins, 16, 12, 16, 0)
        self._theme.keep_lengths_scaled(self, head.setSpacing, 4)
        build_column(head, (self.view, 1), owner=self, margins=0, spacing=0)
        self._theme.keep_lengths_scaled(self, self.setMinimumWidth, 220)

    def inspect_conversation(
        self, session: ShownSession | None, workspace: ShownWorkspace | None = None
    ) -> None:
        self._session = session
        self._workspace = workspace
        self._steps = []
        self._past.cancel_pending_question()
        self._unread = iter(())
        if session is not None:
            self._unread = iter(session.conversation.state.facts)
        self._last_read_seq = 0
        self._update_step_slider(at_end=True)
        self._read_timer.start()

    def update_inspector_from_events(self, events: Sequence[Event]) -> None:
        has_new_figures = False
        for event in events:
            if isinstance(event, FactAppended) and self._session is not None:
                self._read_appended_fact(event.recorded, self._session)
            if isinstance(event, FactAppended | FoldProgress | MeterChanged):
                has_new_figures = True
        if has_new_figures and self.isVisible() and not self._refresh_timer.isActive():
            self._refresh_timer.start()

    def _read_appended_fact(self, recorded: Recorded, session: ShownSession) -> None:
        # While older facts are still being read in slices, a later slice will read this one.
        is_read_later = self._read_timer.isActive()
        is_read_already = recorded.seq <= self._last_read_seq
        if is_read_later or is_read_already:
            return
        if recorded.conversation == session.id:
            self._add_step_from_fact(recorded)

    def showEvent(self, event: QShowEvent) -> None:
        """Refreshes: nothing is computed while the inspector is hidden."""
        super().showEvent(event)
        self._refresh_timer.start()

    def _read_facts_slice(self) -> None:
        deadline = time.perf_counter() + READ_SLICE_SECONDS
        for read_count, recorded in enumerate(self._unread, 1):
            self._add_step_from_fact(recorded)
            is_clock_due = read_count % FACTS_BETWEEN_CLOCK_CHECKS == 0
            if is_clock_due and time.perf_counter() > deadline:
                return
        self._read_timer.stop()
        self._show_chosen_step()

    def _add_step_from_fact(self, recorded: Recorded) -> None:
        self._last_read_seq = recorded.seq
        if isinstance(recorded.fact, ModelReplied):
            self._steps.append(recorded)

    def _show_costs_of_other_agent(self, session: ShownSession, agent: str) -> None:
        """Shows what the agent itself reports to have cost. Its context is not known here."""
        self._parts = []
        state = session.conversation.state
        agents_cost = session.context.cost_of_agents()
        explanation = describe_context_of_other_agent(make_safe_text(agent))

        def build_boxes(ink: DrawingStyle, width: float) -> Iterator[LayoutBox]:
            yield build_heading_box(ink, width, tr("Context"))
            yield build_note_box(ink, width, explanation, gap=6)
            yield from build_cost_boxes(ink, width, state, agents_cost, asks_for_price=False)

        self.view.show_boxes(build_boxes, keep_place=True)

    def _update_step_slider(self, *, at_end: bool) -> None:
        # One position for each step, and the last for the request that comes next.
        last_position = len(self._steps)
        if self._session is not None and self._session.conversation.state.acp_agent:
            last_position = 0  # Its steps are not the requests that it sends.
        self.slider.blockSignals(True)
        self.slider.setRange(0, last_position)
        self.slider.setVisible(last_position > 0)
        if at_end:
            self.slider.setValue(last_position)
        self.slider.blockSignals(False)

    @property
    def _is_at_present(self) -> bool:
        return self.slider.value() >= self.slider.maximum()

    def _go_to_present(self) -> None:
        self.slider.setValue(self.slider.maximum())

    def _show_chosen_step(self) -> None:
        """Shows the slider's step. The last one is the next request; any other is the
        request of an earlier reply.
        """
        self._update_step_slider(at_end=self._is_at_present)
        self._now_button.setVisible(not self._is_at_present)
        if self._session is None:
            hint = tr("What is sent to the model appears here.")
            self.view.show_boxes(lambda ink, width: [build_note_box(ink, width, hint)])
            self._step.setText("")
        elif self._is_at_present:
            self._show_present(self._session)
        else:
            self._show_earlier_step(self._session, self.slider.value())

    def _show_present(self, session: ShownSession) -> None:
        self.moment_shown.emit(None)
        agent = session.conversation.state.acp_agent
        if agent:
            self._past.cancel_pending_question()
            self._step.setText("")
            self._show_costs_of_other_agent(session, agent)
            return
        if self._steps:
            steps = format_number(len(self._steps))
            self._step.setText(tr("Now, after step {n}", n=steps))
        else:
            self._step.setText(tr("Now"))
        self._past.cancel_pending_question()
        self._show_moment(session.conversation.expected_state)

    def _show_earlier_step(self, session: ShownSession, index: int) -> None:
        reply_of_step = self._steps[index]
        number = format_number(index + 1)
        step_count = format_number(len(self._steps))
        when = format_time_of_day(reply_of_step.time)
        words = tr("Step {n} of {all} · {when}", n=number, all=step_count, when=when)
        self._step.setText(words)
        seq_of_moment = newest_fact_seen_by(reply_of_step)
        self.moment_shown.emit(seq_of_moment)
        self._past.compute_moment_at(session.conversation, seq_of_moment, self._show_moment)

    def _show_moment(self, state: Moment) -> None:
        policy = context_policy.policy_from_fact(state.settings.policy)
        meter = context_usage.measure_window(state, policy)
        self._parts = inspector_figures.list_view_blocks(state)
        self.view.show_boxes(
            lambda ink, width: self._build_inspector_boxes(ink, width, state, meter, policy),
            keep_place=True,
        )

    def _build_inspector_boxes(
        self,
        ink: DrawingStyle,
        width: float,
        state: Moment,
        meter: context_usage.WindowMeter,
        policy: Policy,
    ) -> Iterator[LayoutBox]:
        yield from build_context_boxes(
            ink, width, state, meter, list_fold_thresholds(policy, meter)
        )
        if self._is_at_present:
            yield from self._build_coming_up_boxes(ink, width)
        yield from self._build_request_link(ink, width)
        yield build_heading_box(ink, width, tr("This session"), gap=22)
        if self._session is not None and self._is_at_present:
            current_state = self._session.conversation.state
            agents_cost = self._session.context.cost_of_agents()
            yield from build_cost_boxes(
                ink,
                width,
                current_state,
                agents_cost,
                asks_for_price=lacks_price(state),
                has_details=True,
            )
        else:
            asks_for_price = lacks_price(state)
            yield from build_cost_boxes(
                ink, width, state, asks_for_price=asks_for_price, has_details=True
            )
        yield from self._build_boxes_of_largest_parts(ink, width)
        yield from self._build_tool_boxes(ink, width, state)
        yield from self._build_block_list_boxes(ink, width, state)

    def _build_boxes_of_largest_parts(self, ink: DrawingStyle, width: float) -> Iterator[LayoutBox]:
        """Builds the largest parts below a line that opens and closes them."""
        is_open = _LARGEST in self._open
        title = tr("Largest parts of the context")
        toggle = ToggleSection(_LARGEST)
        yield ExpandableHeaderBox(ink, width, title, toggle, opened=is_open, gap=16)
        if not is_open:
            return
        gap = 10
        for part in inspector_figures.largest_blocks(self._parts):
            name = part.shown_name
            yield FigureBox(
                ink,
                width,
                name.words,
                format_token_count(part.tokens),
                mono=name.is_code,
                act=_toggle_for_block(part),
                wraps=False,
                gap=gap,
            )
            gap = 0

    def _build_tool_boxes(
        self, ink: DrawingStyle, width: float, state: Moment
    ) -> Iterator[LayoutBox]:
        """Builds what is known of the agent's tools below a line that opens and closes it."""
        tools = state.settings.tools
        is_open = _TOOLS in self._open
        toggle = ToggleSection(_TOOLS)
        heading = tr("Tools")
        yield ExpandableHeaderBox(ink, width, heading, toggle, opened=is_open, gap=10)
        if not is_open:
            return
        sent_count = format_number(len(tools.tools))
        sent = tr("Included above: {n}", n=sent_count)
        sent_tokens = format_token_count(tools.tokens)
        yield FigureBox(ink, width, sent, sent_tokens, gap=10)
        if tools.withheld:
            withheld_count = format_number(tools.withheld)
            words = tr("Left out until searched for: {n}", n=withheld_count)
            withheld_tokens = format_token_count(tools.withheld_tokens)
            yield FigureBox(ink, width, words, withheld_tokens)

    def _build_coming_up_boxes(self, ink: DrawingStyle, width: float) -> Iterator[LayoutBox]:
        yield build_heading_box(ink, width, tr("Coming up"), gap=22)
        next_fold = ""
        if self._session is not None:
            next_fold = self._session.folding.describe_next_fold()
        if next_fold:
            yield build_note_box(ink, width, translate_sentences(next_fold), gap=6)
        yield ActionLineBox(ink, width, tr("Shorten now…"), AskToFold(), gap=4)

    def _build_request_link(self, ink: DrawingStyle, width: float) -> Iterator[LayoutBox]:
        yield ActionLineBox(ink, width, tr("Show the request"), ToggleSection(_REQUEST), gap=4)

    def _build_block_list_boxes(
        self, ink: DrawingStyle, width: float, state: Moment
    ) -> Iterator[LayoutBox]:
        is_open = _BLOCKS in self._open
        # Without their number: a request is counted in messages, which have several of these.
        words = tr("All texts, calls and outputs in the context")
        yield ExpandableHeaderBox(ink, width, words, ToggleSection(_BLOCKS), opened=is_open, gap=10)
        if not is_open:
            return
        for part in self._parts[:MAX_SHOWN_BLOCKS]:
            yield _build_block_box(ink, width, part)
        unlisted = len(self._parts) - MAX_SHOWN_BLOCKS
        if unlisted > 0:
            note = tr("and {n} more", n=format_number(unlisted))
            yield build_note_box(ink, width, note)
        for ref in state.branch.exclusions:
            first_seq, _last_seq = first_and_last(ref)
            name = tr("excluded: #{n}", n=str(first_seq))
            include = ToggleSection(("include", ref))
            label = tr("Include")
            yield FigureBox(ink, width, name, label, accent=True, act=include)

    def _carry_out_box_action(self, act: object) -> None:
        if not isinstance(act, ToggleSection):
            self.intent_requested.emit(act)
        elif act.key in _OPENED_BY_CLICK:
            self._open ^= {act.key}  # What was open is closed, and the other way round.
            self._show_chosen_step()
        elif act.key == _REQUEST:
            self.show_request_of_step()
        else:
            self._act_on_part(act.key)

    def _act_on_part(self, key: SectionKey) -> None:
        """Carries out what a line's key names: an action, and the part that it is for."""
        action, part = key
        if action == "include":
            self._include_part(part)
        elif action == "block":
            number = int(str(part))
            menu = self.build_block_menu(number)
            if self.underMouse():
                menu.popup(QCursor.pos())
            else:  # It was chosen with the keyboard.
                view = self.view.viewport()
                middle = view.rect().center()
                menu.popup(view.mapToGlobal(middle))

    def _include_part(self, ref: object) -> None:
        """Gives a part that the user had excluded back to the model."""
        if self._session is not None and isinstance(ref, PartRef | Span):
            self._doing.run_in_background(self._session.context.include_part(ref), owner=self)

    def build_block_menu(self, number: int) -> QMenu:
        menu = widgets.build_popup_menu(self)
        session = self._session
        if session is None or not 0 <= number < len(self._parts):
            return menu
        part = self._parts[number]
        self._add_block_description(menu, part)
        self._add_links_of_block(menu, session, part.block)
        self._add_changes_of_block(menu, session, part.block)
        return menu

    def _add_links_of_block(self, menu: QMenu, session: ShownSession, block: Block) -> None:
        """Adds what leads to the block elsewhere in the window."""
        _first_seq, last_seq = first_and_last(block.source)
        show_in_chat = ShowInChat(session.id, last_seq)
        menu.addAction(tr("Show in chat"), partial(self.intent_requested.emit, show_in_chat))
        if block.cached:
            open_entry = OpenEntry(block.cached[0].digest)
            menu.addAction(
                tr("Open the stored output"), partial(self.intent_requested.emit, open_entry)
            )
        if block.fold:
            open_fold = OpenFold(block.fold)
            menu.addAction(
                tr("Show what was shortened"), partial(self.intent_requested.emit, open_fold)
            )

    def _add_changes_of_block(self, menu: QMenu, session: ShownSession, block: Block) -> None:
        """Adds what changes how the model sees the block."""
        offer_change = partial(self._offer_change_of_block, menu)
        context = session.context
        part = block.source
        if block.fold:
            restore = partial(session.folding.unfold, block.fold)
            offer_change(tr("Restore the original"), restore)
        if block.kind is not ContextKind.SYSTEM and isinstance(part, PartRef):
            if block.pinned:
                offer_change(tr("Unpin"), partial(context.unpin_part, part))
            else:
                offer_change(tr("Pin: never shorten"), partial(context.pin_part, part))
            offer_change(tr("Exclude from context"), partial(context.exclude_part, part))
        if block.kind is ContextKind.OUTPUT and not block.fold:
            shorten = partial(session.fold_on_request, FoldKind.MARKER)
            offer_change(tr("Shorten old outputs to one line now"), shorten)

    def _offer_change_of_block(
        self, menu: QMenu, label: str, change: Callable[[], Coroutine[Any, Any, object]]
    ) -> None:
        """Adds a line to the menu. The change begins when the user chooses it."""
        menu.addAction(label, lambda: self._doing.run_in_background(change(), owner=self))

    def _add_block_description(self, menu: QMenu, part: ListedBlock) -> None:
        kind = context_kind_name(part.block.kind)
        source = describe_block_source(part.block)
        tokens = format_count(part.tokens, "{n} token", "{n} tokens")
        words = [kind, source, tokens]
        if part.cost:
            money = format_dollars(part.cost)
            words.append(tr("at least {money} per request", money=money))
        description = menu.addAction(" · ".join(words))
        description.setEnabled(False)
        menu.addSeparator()

    def show_request_of_step(self) -> None:
        if self._session is None:
            return
        if self._is_at_present:
            self._open_request_dialog(self._session, None, tr("Next request"))
            return
        step = self._steps[self.slider.value()].seq
        title = f"{tr('Request')} · {self._step.text()}"
        self._open_request_dialog(self._session, step, title)

    def show_request_of_reply(self, seq: int) -> None:
        if self._session is None:
            return
        title = tr("Request")
        for number, step in enumerate(self._steps, 1):
            if step.seq == seq:
                title += f" · {tr('Step {n}', n=format_number(number))}"
        self._open_request_dialog(self._session, seq, title)

    def _open_request_dialog(self, session: ShownSession, step: int | None, title: str) -> None:
        fetching = self._fetch_request_forms(session, step)
        show_dialog = partial(self._show_request_if_current, session, title)
        self._doing.run_in_background(fetching, then=show_dialog, owner=self)

    def _show_request_if_current(
        self, session: ShownSession, title: str, request: tuple[str, dict[str, list[str]]]
    ) -> None:
        """Shows a request, unless another conversation was opened while it was read."""
        # Imported here, so that the window's start does not wait for it.
        from helix_desktop.gui.inspector.request_dialog import RequestDialog

        if self._session is not session:
            return
        description, forms = request
        dialog = RequestDialog(self._theme, title, description, forms, self)
        dialog.open()

    async def _fetch_request_forms(
        self, session: ShownSession, step: int | None
    ) -> tuple[str, dict[str, list[str]]]:
        """Fetches a request's forms, and a sentence on its length and whether it is
        what was sent.
        """
        from helix_desktop.gui.inspector.request_dialog import build_request_forms, describe_request

        request = await session.context.rebuild_request(step)
        provider_body = None
        # Only the workbench knows the provider. Without its form, the readable one is shown alone.
        bench = workbench_of_shown(self._workspace)
        if bench is not None:
            with suppress(HelixError):
                provider_body = await bench.request_as_sent(session.id, step, request)
        as_sent: bool | None = None  # None: it was not sent yet.
        if step is not None:
            matches = session.context.matches_sent_request
            as_sent = await asyncio.to_thread(matches, step, request)
        forms = await asyncio.to_thread(build_request_forms, request, provider_body)
        return describe_request(request, as_sent=as_sent), forms


def _toggle_for_block(part: ListedBlock) -> ToggleSection:
    return ToggleSection(("block", part.number))


def _build_block_box(ink: DrawingStyle, width: float, part: ListedBlock) -> LayoutBox:
    block = part.block
    words = part.shown_name.words
    if block.pinned:
        words = f"{tr('pinned')} · {words}"
    words_on_hover = context_kind_name(block.kind)
    if part.cost:
        words_on_hover = format_dollars(part.cost)
    is_one_shortened_part = bool(block.fold) and isinstance(block.source, PartRef)
    return FigureBox(
        ink,
        width,
        words,
        format_token_count(part.tokens),
        dot=ink.theme.fill_colour_of_kind(block.kind),
        ring=is_one_shortened_part,
        mono=part.shown_name.is_code,
        act=_toggle_for_block(part),
        more=words_on_hover,
        wraps=False,
    )
