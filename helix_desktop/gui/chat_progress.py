"""Shows on each side what its conversation does: streamed replies, questions, messages that wait,
the meter and the price of the next message.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QObject

from helix_desktop.engine import session_events
from helix_desktop.engine.context_usage import WindowMeter
from helix_desktop.engine.facts import FilesChanged, ModelReplied, Spent, UserPart
from helix_desktop.engine.fold_economics import SMALL_WINDOW
from helix_desktop.engine.hidden_characters import mark_on_one_line
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.engine.session_setup import QueuedMessage
from helix_desktop.engine.view import ConversationState
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.chat.permission_card import (
    build_question_announcement,
    read_undo_coverage,
)
from helix_desktop.gui.common.fold_descriptions import describe_fold_kind
from helix_desktop.gui.common.running_states import WORKING_STATES
from helix_desktop.gui.context_meter import format_token_count, has_unknown_window
from helix_desktop.gui.context_panel_opening import ContextPanelOpener
from helix_desktop.gui.frame.notices import announce_to_screen_reader
from helix_desktop.gui.model_setup_port import lacks_price
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.shown_workspace import ShownSession, ShownWorkspace, client_of_host
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.window_contents import WindowContents
from helix_desktop.gui.workspace_activity import WorkspaceActivity


class ChatProgress(QObject):
    def __init__(self, contents: WindowContents, context_panel: ContextPanelOpener) -> None:
        super().__init__(contents.frame)
        self._parts = contents.parts
        self._showing = contents.parts.showing
        self._top = contents.frame.top
        self._pages = contents.pages
        self._workspaces = contents.workspaces
        self._sides = contents.sides
        self._context_panel = context_panel
        # What the meter showed last, by conversation.
        self._shown_meters: dict[str, WindowMeter] = {}
        self._sides.call_for_each_side(self._follow_side)
        self._sides.conversation_shown.connect(self._show_progress)
        self._sides.newest_messages_shown.connect(self._show_activity_of_opening_session)
        self._workspaces.state_changed.connect(self._show_state_of_listed_conversation)

    def _follow_side(self, side: ChatPage) -> None:
        side.bridge.events_arrived.connect(partial(self._pass_events_on, side))
        side.measuring.timeout.connect(partial(self._price_next_message, side))
        # An edited message takes what follows it out of the context.
        side.composer.edited_message_changed.connect(
            lambda _edited: self._update_meter_and_price(side)
        )

    def _show_progress(self, side: ChatPage) -> None:
        """Shows how far the conversation is that a side shows from now on."""
        session = side.session
        self.update_run_state(side)
        self._show_waiting_messages_and_questions(side, session)
        if session is not None and session.folding.progress is not None:
            side.transcript.view.apply_events([session.folding.progress])
        if session is not None and session.turns.next_try is not None:
            delayed = session_events.ReplyStreamed(session.id, session.turns.next_try)
            side.transcript.view.apply_events([delayed])
        side.turn_end_help.show_last_turn_end(session)
        side.rewrite_cost.explain_costs_of_last_turn(session)
        self._update_meter_and_price(side)

    def _show_waiting_messages_and_questions(
        self, side: ChatPage, session: ShownSession | None
    ) -> None:
        questions: Mapping[int, PermissionQuestion] = {}
        if session is not None:
            questions = session.questions
            messages: list[tuple[UserPart, ...]] = []
            steering_count = 0
            for waiting in session.queue:
                messages.append(waiting.parts)
                if waiting.steer:
                    steering_count += 1
            side.composer.show_waiting_messages(messages, steering_count)
        self._take_over_messages_of_last_start(side, session)
        undo_coverage = read_undo_coverage(self._showing.bench)
        side.approvals.show_waiting_questions(questions, undo_coverage)

    def _take_over_messages_of_last_start(
        self, side: ChatPage, session: ShownSession | None
    ) -> None:
        if session is None and side.awaited_conversation:
            return  # Only the conversation tells what it has, and it is still being opened.
        ids_of_this_start = self._sides.unsent_messages.ids_of_this_start(side.composer.draft_place)
        state = ConversationState()
        queue: Iterable[QueuedMessage] = ()
        if session is not None:
            state = session.conversation.state
            queue = session.queue
            client = client_of_host(self._showing.workspace)
            if client is not None:
                for unsent in client.unconfirmed_messages_of(session.id):
                    ids_of_this_start.add(unsent.command_id)
        side.composer.take_over_messages_of_last_start(state, queue, ids_of_this_start)

    # --- What happens in a conversation

    def _pass_events_on(self, side: ChatPage, events: tuple[session_events.Event, ...]) -> None:
        session = side.session
        if session is None:
            self._pass_events_of_opening_session_on(side, events)
            return
        side.transcript.view.apply_events(events)
        if side is self._sides.current:
            self._pages.pass_events_to_pages(events)
        for event in events:
            self._update_side_for_event(side, session, event)
        if _has_event(events, session_events.ConversationReplaced):
            self._sides.show_session_or_new(session, side=side)
        if _has_event(events, session_events.FactAppended):
            side.show_transcript()

        row = self._sides.find_listed_conversation(session.id)
        if row is not None and row.agent:
            return  # A connected agent's conversation has no composer.
        if _has_event(events, session_events.FactAppended, session_events.MeterChanged):
            self._update_meter_and_price(side)

    def _pass_events_of_opening_session_on(
        self, side: ChatPage, events: tuple[session_events.Event, ...]
    ) -> None:
        """Shows what a conversation does and asks of which not all is there yet. Its messages are
        drawn when they are.
        """
        if side.opening_session is None:
            return
        for event in events:
            if isinstance(event, session_events.ActivityChanged):
                side.transcript.view.apply_events([event])
            elif isinstance(event, session_events.QuestionAsked):
                self._announce_question(event)
        self._show_activity_of_opening_session(side)

    def _show_activity_of_opening_session(self, side: ChatPage) -> None:
        self.update_run_state(side)
        if side.opening_session is not None:
            self._show_questions(side, side.opening_session)

    def _announce_question(self, event: session_events.QuestionAsked) -> None:
        announce_to_screen_reader(self._parts.widget, build_question_announcement(event.question))

    def _update_side_for_event(
        self, side: ChatPage, session: ShownSession, event: session_events.Event
    ) -> None:
        match event:
            case session_events.ActivityChanged():
                self.update_run_state(side)
                side.turn_end_help.show_last_turn_end(session)
                if event.running in WORKING_STATES:
                    side.rewrite_cost.hide_costs_of_last_turn()
                else:
                    side.measuring.start()
                    side.rewrite_cost.explain_costs_of_last_turn(session)
            case session_events.QuestionAsked():
                self._show_questions(side, session)
                self._announce_question(event)
            case session_events.QuestionAnswered():
                self._show_questions(side, session)
            case session_events.MessagesQueued():
                side.composer.show_waiting_messages(event.messages, event.steering_count)
                side.turn_end_help.show_last_turn_end(session)
            case session_events.FoldProgress():
                self.update_run_state(side)
            case session_events.FactAppended():
                # What an interrupted turn changed is found after its conversation is shown.
                is_change = isinstance(event.recorded.fact, FilesChanged)
                if is_change and session.running not in WORKING_STATES:
                    side.turn_end_help.show_last_turn_end(session)
                has_cost = isinstance(event.recorded.fact, ModelReplied | Spent)
                # A turn of a connected agent runs elsewhere, so its costs come while we are idle.
                if has_cost and session.running not in WORKING_STATES:
                    side.rewrite_cost.explain_costs_of_last_turn(session)

    def _show_questions(self, side: ChatPage, session: ShownSession) -> None:
        undo_coverage = read_undo_coverage(self._showing.bench)
        side.approvals.show_waiting_questions(session.questions, undo_coverage)

    def update_run_state(self, side: ChatPage) -> None:
        """Shows what is running in a conversation, and what of it can be stopped."""
        running = ConversationActivity.IDLE
        is_folding = False
        if side.steered_session is not None:
            running = side.steered_session.running
            is_folding = side.steered_session.folding.kind_in_progress is not None
        # Another maker's agent is sent nothing before the end of its turn.
        sends_only_when_done = False
        if side.session is not None:
            sends_only_when_done = bool(side.session.conversation.state.acp_agent)
        side.composer.show_run_state(
            running, is_folding=is_folding, sends_only_when_done=sends_only_when_done
        )
        # A message that was written before its conversation is open is sent by itself.
        is_at_rest = side.session is not None and running not in WORKING_STATES
        side.composer.waiting.show_when_sent(
            waits_for_user=is_at_rest, goes_only_when_done=sends_only_when_done
        )
        if side is self._sides.current:
            self._show_background_work(side.steered_session)
            self._parts.actions.update_enabled()

    def _show_background_work(self, session: ShownSession | None) -> None:
        """Shows a fold, which can be stopped, or sub-agents that work in the background."""
        agents_label = tr("Agents")
        if session is None:
            self._top.show_background_work("", agents_label)
            return
        progress = session.folding.progress
        if progress is not None:
            description, reason = _describe_fold_in_work(progress)
            self._top.show_background_work(
                description, tr("Stop"), is_stopped_in_chat=True, hint=reason
            )
            return
        agents = self._workspaces.shown_activity.working_agents_below(session.id)
        description = ""
        if agents:
            description = describe_working_agents(len(agents))
        self._top.show_background_work(description, agents_label)

    def _show_state_of_listed_conversation(
        self, activity: WorkspaceActivity, conversation: str, _running: ConversationActivity
    ) -> None:
        """Shows what a sub-agent does at the call that started it."""
        if activity.bench is not self._showing.workspace:
            return
        side = self._sides.find_side(conversation)
        if side is not None and side.session is not None:
            side.transcript.content.refetch_subagent_items()
        if self._showing.conversation is not None and self._showing.conversation.id == conversation:
            self._show_background_work(self._showing.conversation)

    # --- The meter and the price of the next message

    def _update_meter_and_price(self, side: ChatPage) -> None:
        if side.session is not None:
            self._show_meter_and_price_of(side, side.session)
        else:
            self._hide_meter_and_price(side)

    def _hide_meter_and_price(self, side: ChatPage) -> None:
        side.measured_session = None
        self._context_panel.hide_panel()
        side.composer.show_window_meter()
        side.composer.price.show_next_message_cost(None)

    def _show_meter_and_price_of(self, side: ChatPage, session: ShownSession) -> None:
        if session.conversation.state.acp_agent:
            # Another agent keeps its own context, of which nothing is known here.
            self._hide_meter_and_price(side)
            return
        if has_unknown_window(session.conversation.state):
            side.composer.show_window_meter()
            return
        side.rewrite_cost.warn_before_message(session)
        savings = session.conversation.state.savings_until_moment()
        paid = savings.paid + session.context.cost_of_agents()
        has_price = not lacks_price(session.conversation.expected_state)
        edited = side.composer.replaced_message
        meter = session.context.next_request_meter(edited)
        self._explain_other_window(self._shown_meters.get(session.id), meter)
        self._shown_meters[session.id] = meter
        side.composer.show_window_meter(meter, replace(savings, paid=paid), has_price=has_price)
        model_and_room: tuple[object, ...] = (meter.model, meter.window)
        if meter.window <= SMALL_WINDOW:  # What fits in there is sent whole.
            model_and_room += (meter.free_tokens,)
        side.composer.attachments.count_again_if_other_room(model_and_room)
        side.composer.price.show_next_message_cost(
            session.context.next_message_cost(edited),
            session.context.message_cost_forecast(),
            session.context.estimate_saving_of_markers,
        )
        side.measured_session = session
        self._context_panel.update_if_visible(side, session)

    def _explain_other_window(self, before: WindowMeter | None, current: WindowMeter) -> None:
        """Says why the meter jumps although the conversation did not grow: a server's error, often in
        another conversation, named the real window of the model, an assumed one was too small, or
        the user has set it.
        """
        if before is None or before.model != current.model or before.window == current.window:
            return
        is_known = before.window > 0 and current.window > 0
        if not is_known:
            return
        sentence = tr(
            "For {model}, the meter now uses a context window of {window} tokens instead of {before}. The conversation did not change.",
            model=mark_on_one_line(current.model),
            window=format_token_count(current.window),
            before=format_token_count(before.window),
        )
        if current.window > before.window and self._is_window_assumed(current.model):
            reason = tr(
                "Its server does not say how large the window is, and has read a longer text whole than was expected to fit."
            )
            sentence = join_sentences(sentence, reason)
        self._parts.notices.show_notice(sentence)

    def _is_window_assumed(self, model: str) -> bool:
        """Whether nobody has said how large the model's window is. Not known of a workspace that
        another process has open.
        """
        bench = self._showing.bench
        return bench is not None and bench.models.is_window_assumed(model)

    def _price_next_message(self, side: ChatPage) -> None:
        """Computes the cost of the next message, even before the first message of a
        conversation.
        """
        bench = self._showing.workspace
        if bench is None or side.awaited_conversation:
            return
        conversation = ""
        if side.session is not None:
            conversation = side.session.id
        if not bench.model_of_conversation(conversation):
            return
        if conversation:
            self._parts.run_for_window(bench.predict_next_request(conversation))
        elif self._showing.bench is not None:
            show = partial(self._show_price_of_first_message, side, bench)
            self._parts.run_for_window(self._showing.bench.open_draft_session(), then=show)

    def _show_price_of_first_message(
        self, side: ChatPage, bench: ShownWorkspace, draft_session: ShownSession
    ) -> None:
        is_new = side.session is None and not side.awaited_conversation
        is_shown = side in self._sides.sides and self._showing.workspace is bench
        if is_new and is_shown:
            self._show_meter_and_price_of(side, draft_session)


def _has_event(
    events: tuple[session_events.Event, ...], *kinds: type[session_events.Event]
) -> bool:
    return any(isinstance(event, kinds) for event in events)


def describe_working_agents(number: int) -> str:
    return format_count(number, "{n} agent is still working.", "{n} agents are still working.")


def _describe_fold_in_work(progress: session_events.FoldProgress) -> tuple[str, str]:
    """Returns what is being made, in a few words, and why its model is asked again, if it is."""
    kind = describe_fold_kind(progress.kind)
    if not progress.retry_why:
        return tr("Shortening: {kind}…", kind=kind), ""
    reason = mark_on_one_line(translate_sentences(progress.retry_why))
    return tr("Retrying: {kind}…", kind=kind), reason
