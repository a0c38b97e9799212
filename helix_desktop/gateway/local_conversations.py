"""Records agents' requests as facts of a conversation, and returns what its view sends.

Runs where the workspace is open, on the same sessions that
the window shows. It must not see keys, headers or addresses.
"""

import asyncio
import gc
import logging
import re
import time
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from helix_desktop import concurrency, glibc_memory
from helix_desktop.engine import content_recall, facts
from helix_desktop.engine.agent_additions import split_off_tagged_blocks
from helix_desktop.engine.context_policy import Policy
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.foreign_agent_facts import AgentOutput
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.errors import ActionRefused, HelixError, StoppedByUser, shorten_to_line
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_conversation import COUNTED_HERE, OpenAgentConversation
from helix_desktop.gateway.agent_cost_and_savings import Figures, compute_agent_figures
from helix_desktop.gateway.agent_identity import AGENTS_WITH_TOOLS
from helix_desktop.gateway.conversation_matching import (
    LONG_HISTORY_MESSAGES,
    ConversationMatcher,
    KnownMessages,
    RequestPosition,
    RequestSender,
    next_message_hash,
)
from helix_desktop.gateway.conversations_port import (
    Arrival,
    AskAgentModel,
    HiddenCallAnswer,
    Replied,
    Sent,
    Ticket,
)
from helix_desktop.gateway.history_summarized_by_agent import (
    asks_for_summary,
    begins_with_summary,
    find_seq_before_summary_request,
    find_summary_at_beginning,
    find_summary_piece,
    is_question_beside_work,
    text_of_summary,
)
from helix_desktop.gateway.imported_sessions import (
    MOST_LOOKED_AT,
    ImportedSession,
    facts_that_connect_agent,
    find_facts_of_messages,
    find_imported_session,
    has_imported_facts,
)
from helix_desktop.gateway.summarized_conversation import (
    LEAST_CHARACTERS_OF_SUMMARY,
    KeptEnd,
    find_kept_end,
    has_imported_summary,
    has_written_summary,
    keeps_nothing,
    list_messages_behind_summary,
)
from helix_desktop.gateway.view_entries import (
    ChangedMessage,
    Entry,
    UnchangedMessage,
    ViewEntries,
    ViewEntriesBuilder,
    without_taken_out,
)
from helix_desktop.json_values import object_at, parse_json
from helix_desktop.protocols.gateway_message import Piece, PieceKind, ProtocolMessage, Speaker
from helix_desktop.tools import recall_tools
from helix_desktop.tools.built_in_tool import ToolArguments
from helix_desktop.workbench.open_questions import (
    FOLDER,
    HeldQuestion,
    OpenQuestions,
    record_unanswered_questions,
    was_answered_since,
)
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workbench.unread_requests import unread_requests_of_workspace

log = logging.getLogger(__name__)

UNSENT_MESSAGE = ProtocolMessage(Speaker.USER, (), ())
MOST_OPEN_CONVERSATIONS = 24  # The maximum number of conversations that are kept open.
MESSAGES_IN_COMMIT = 30
TITLE_CHARACTERS = 60
CHARACTERS_SEARCHED_FOR_TITLE = 20_000
# In a long conversation, more new messages count as few: one more for each so many known ones.
KNOWN_MESSAGES_PER_NEW = 50
# The recording of a long history pauses for this long after a request, and for at most
# FIRST_REQUEST_SECONDS longer until the first request of another session is recorded.
QUIET_SECONDS = 0.025
FIRST_REQUEST_SECONDS = 0.25
MOST_SUMMARIES = 4  # So many texts that may be an agent's summary of a conversation are remembered.
# A shorter text without the name of a session is no question for the summary of a conversation.
LEAST_CHARACTERS_OF_QUESTION = 2_000
MOST_RECENT_FACTS = 200  # Among these, a conversation's newest output is looked for.
# An agent asks again within seconds for what a killed gateway did not answer.
MOST_HELD_SECONDS = 120.0
# A forwarded request is recorded after this delay, or as soon as another one needs it.
AHEAD_SECONDS = 0.05
# Begins the blocks that clients put before a first message.
_OPENING_TAG = re.compile(r"^\s*<([a-zA-Z_-]{1,40})[^<>]*>", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ClosedFigures:
    """The figures of a closed conversation, and when they were computed since when."""

    updated: float
    since: float
    figures: Figures


@dataclass(frozen=True, slots=True)
class RunningImport:
    """A long history that was forwarded and is still being recorded."""

    known_messages: KnownMessages
    ticket: Ticket

    def is_continued_by(self, arrival: Arrival) -> bool:
        """Whether a request begins with all messages of this history."""
        history_count = self.ticket.messages
        if self.known_messages.agent != arrival.agent or len(arrival.chain) < history_count:
            return False
        hash_of_same_messages = arrival.chain[history_count - 1]
        return hash_of_same_messages == self.ticket.last


@dataclass(frozen=True, slots=True)
class SummarizedConversation:
    """The conversation that an agent's summary stands for. `kept`: its end, which the agent sends
    word for word behind the summary; None: it sends nothing of it, or in another form.
    """

    known_messages: KnownMessages
    kept: KeptEnd | None


@dataclass(frozen=True, slots=True)
class TextBesideConversation:
    """What a model wrote that is no message of a conversation. `is_summary`: it was asked for a
    summary of all its messages.
    """

    text: str
    is_summary: bool


@dataclass(frozen=True, slots=True)
class PlaceOfRequest:
    """Where a request goes on. `kept`: the end of its conversation, if the request has that behind
    the agent's own summary.
    """

    position: RequestPosition
    kept: KeptEnd | None = None


@dataclass(frozen=True, slots=True)
class ForkBase:
    """A conversation and its last fact before the messages that a fork has of its own."""

    conversation: str
    last_seq: int


class LocalAgentConversations:
    """The conversations of connected agents in a workspace that this process has open.

    An *arrival* is what the gateway knows of a request besides its messages. The *known
    messages* of a conversation are what its agent has sent of it so far. The matcher finds the
    position among them at which a request goes on. A *ticket* names a request that was sent, so
    that its reply is recorded behind it.
    """

    def __init__(self, bench: Workbench, ask: AskAgentModel) -> None:
        self._bench = bench
        self._ask = ask
        self.questions = OpenQuestions(bench.workspace.folder / FOLDER)
        self.unread_requests = unread_requests_of_workspace(bench.workspace.folder)
        # By conversation: steps of killed gateways, until their agents ask for them again.
        self._held_questions: dict[str, list[HeldQuestion]] = {}
        bench.record_held_questions = self.record_unanswered_requests
        self._matcher = ConversationMatcher()
        # By id. The one that was used last comes last.
        self._open_conversations: dict[str, OpenAgentConversation] = {}
        self._closed_figures: dict[str, ClosedFigures] = {}
        self._reading_stored_messages = asyncio.Lock()
        self._has_read_stored_messages = False
        # Until this time of the event loop's clock, the recording of a long history pauses.
        self._quiet_until = 0.0
        self._tasks = concurrency.OwnedTasks("recording requests")
        self._running_imports: list[RunningImport] = []
        # By conversation of agents that name no session: what its model last wrote that the agent
        # has no message of. One of these texts may be the agent's summary of the conversation.
        self._texts_beside: dict[str, deque[TextBesideConversation]] = {}
        # The hashes of requests that certainly ask for the summary of their conversation.
        self._questions_for_summary: set[str] = set()

    async def count_known_messages(self, arrival: Arrival) -> int:
        """Return how many of a request's messages are recorded, or will be: those with which a
        conversation begins that the agent has sent before.
        """
        await self._read_stored_messages_once()
        running_import = self._find_running_import(arrival)
        if running_import is not None:
            return running_import.ticket.messages
        return self._find_position_of(arrival).known_count

    async def find_conversation_asked_about(self, agent: str, session: str, text: str) -> str:
        """Return the conversation that a request beside it is about, or an empty string.

        It is the one that was last recorded of the session. Where an agent names none, it is the one
        of which most words of the user and of the model are in the text, as in a question for a
        summary: one for a title has none of the model's.
        """
        await self._read_stored_messages_once()
        for known_messages in reversed(self._matcher.list_of_session(agent, session)):
            if self._bench.has_conversation(known_messages.conversation):
                return known_messages.conversation
        if session or len(text) < LEAST_CHARACTERS_OF_QUESTION:
            return ""
        most_similar = ""
        most_characters = 0
        for known_messages in self._matcher.list_without_session(agent)[:MOST_LOOKED_AT]:
            conversation = known_messages.conversation
            if not self._bench.has_conversation(conversation):
                continue
            recorded_facts = await self._bench.read_conversation_facts(conversation)
            characters = await asyncio.to_thread(_count_words_in_text, recorded_facts, text)
            if characters > most_characters:
                most_similar = conversation
                most_characters = characters
        return most_similar

    async def receive_request(
        self, arrival: Arrival, messages: Sequence[ProtocolMessage], *, known_count: int = 0
    ) -> Sent:
        """Record what is new in a request, fold (shorten) what is due, and return what each of
        its messages is to be sent as.

        `known_count`: how many earlier messages are recorded here already, and are not among
        `messages`. A long history goes on before it is recorded. While that lasts, a request
        behind it goes on as it came, too, and is recorded next.
        """
        # Of the known messages, only the number is needed.
        all_messages = [UNSENT_MESSAGE] * known_count
        all_messages.extend(messages)
        self._quiet_until = asyncio.get_running_loop().time() + QUIET_SECONDS
        await self._read_stored_messages_once()
        running_import = self._find_running_import(arrival)
        if running_import is not None:
            return await self._send_behind_history(
                running_import, arrival, all_messages, known_count
            )
        sent = await self._receive_when_free(arrival, all_messages, known_count)
        self._bench.replies_under_way.remember_asked_reply(sent.ticket.conversation)
        self._quiet_until = asyncio.get_running_loop().time() + QUIET_SECONDS
        if arrival.fold:
            return replace(sent, unfolded=self._bench.policy_mistake)
        return sent

    async def _send_behind_history(
        self,
        running_import: RunningImport,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        known_count: int,
    ) -> Sent:
        """Send a request as it came, and record it once the history before it is recorded.

        Only what the user took out of that history meanwhile is left out.
        """
        known_messages = running_import.known_messages
        recording = self._receive_when_free(
            arrival, messages, known_count, history_before=known_messages
        )
        self._tasks.spawn_task(recording, name="record behind a history")
        ticket = replace(running_import.ticket, messages=len(arrival.chain), last=arrival.chain[-1])
        opened = await self._get_open_conversation(known_messages)
        builder = ViewEntriesBuilder(opened.conversation, known_messages.seqs, contents={})
        taken_out = tuple(builder.find_taken_out())
        entries = without_taken_out(len(messages), taken_out)
        return Sent(ticket, entries, recallable=False, taken_out=taken_out)

    def _find_running_import(self, arrival: Arrival) -> RunningImport | None:
        """Return the long history that this request continues, if it is still being recorded."""
        for running_import in self._running_imports:
            if running_import.is_continued_by(arrival):
                return running_import
        return None

    async def _receive_when_free(
        self,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        known_count: int,
        history_before: KnownMessages | None = None,
    ) -> Sent:
        """Record a request once no other one of its conversation is being recorded.

        Its position says behind which messages of which conversation it goes on. This may change
        while it waits for the others, so it is then looked for again. `history_before`: the long
        history that it continues, of which nothing may be recorded yet.
        """
        while True:
            if history_before is None:
                await self._follow_shortened_outputs(arrival, messages)
                await self._follow_changed_additions(arrival, messages)
            place = await self._find_place_of_request(arrival, messages, history_before)
            if _is_question_for_summary(arrival, messages, place.position):
                return await self._send_question_for_summary(arrival, messages, place.position)
            expected_messages = history_before or place.position.known_messages
            if expected_messages is not None:
                known_messages = expected_messages
            else:  # Its conversation is created once the lock is held.
                known_messages = KnownMessages(
                    "", arrival.session, arrival.head, agent=arrival.agent
                )
                self._matcher.add_known_messages(known_messages)
            if history_before is None:
                sent = self._forward_if_no_fold_due(
                    arrival, messages, place.position, known_messages
                )
                if sent is not None:
                    return sent
            async with known_messages.lock_once_recorded():
                if expected_messages is not None:
                    # It may have grown meanwhile.
                    place = await self._find_place_of_request(arrival, messages, history_before)
                if place.position.known_messages is not expected_messages:
                    # The request belongs elsewhere by now: begin again, without the history.
                    history_before = None
                    continue
                if place.position.known_count < known_count:
                    raise ActionRefused("The conversation was continued elsewhere in the meantime.")
                return await self._record_and_fold_request(arrival, messages, place, known_messages)

    async def _find_place_of_request(
        self,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        history_before: KnownMessages | None,
    ) -> PlaceOfRequest:
        """Return where a request goes on, also if it begins with the agent's own summary."""
        position = self._find_position_of(arrival)
        # There is no pause behind a history: these requests are recorded in the order they came.
        if position.known_messages is not None or history_before is not None:
            return PlaceOfRequest(position)
        # In a thread: the first message may be long.
        is_summarized = await asyncio.to_thread(begins_with_summary, messages)
        if not is_summarized:
            return PlaceOfRequest(position)
        if arrival.session or arrival.is_below_another:
            return PlaceOfRequest(self._find_position_of(arrival, is_summarized=True))
        summarized = await self._find_summarized_conversation(arrival, messages)
        if summarized is None:
            return PlaceOfRequest(position)
        return PlaceOfRequest(RequestPosition(summarized.known_messages), summarized.kept)

    async def _follow_shortened_outputs(
        self, arrival: Arrival, messages: Sequence[ProtocolMessage]
    ) -> None:
        """If the agent has shortened old outputs of a conversation itself, let that one be found
        by the messages of this request from now on.
        """
        position = self._find_position_of(arrival)
        if position.is_at_end or not 0 < position.known_count < len(messages):
            return
        if not messages[position.known_count].pieces_of_kind(PieceKind.RESULT):
            return
        sender = _sender_of(arrival)
        candidates = self._matcher.find_all_that_begin_alike(
            sender, arrival.chain, position.known_count
        )
        for known_messages in candidates:
            async with known_messages.lock_once_recorded():
                if await self._has_followed(arrival, messages, position, known_messages):
                    return

    async def _follow_changed_additions(
        self, arrival: Arrival, messages: Sequence[ProtocolMessage]
    ) -> None:
        """If the agent says all messages of a conversation with other additions of its own, as Qwen
        Code leaves out the date when it resumes a session, let that one be found by them from now on.
        """
        has_reply = any(message.speaker is Speaker.ASSISTANT for message in messages)
        if arrival.session or arrival.is_below_another or not has_reply:
            return
        if self._find_position_of(arrival).known_messages is not None:
            return
        same: list[KnownMessages] = []
        for known_messages in self._matcher.list_without_session(arrival.agent)[:MOST_LOOKED_AT]:
            if await self._has_same_words(known_messages, messages):
                same.append(known_messages)
        if len(same) != 1:
            return
        (known_messages,) = same
        async with known_messages.lock_once_recorded():
            # It may have grown meanwhile.
            if not await self._has_same_words(known_messages, messages):
                return
            chain = arrival.chain[: len(known_messages.chain)]
            seqs = list(known_messages.seqs)
            opened = await self._get_open_conversation(known_messages)
            received = facts.Received(
                chain, tuple(seqs), known_messages.session, known_messages.head, replaced=len(chain)
            )
            await opened.conversation.append_facts(received)
            self._matcher.replace_messages(known_messages, chain, seqs)

    async def _has_same_words(
        self, known_messages: KnownMessages, messages: Sequence[ProtocolMessage]
    ) -> bool:
        """Whether a request begins with all that was said in a conversation, and has more."""
        count = len(known_messages.chain)
        if not 2 <= count < len(messages):
            return False
        row = self._bench.conversation_row(known_messages.conversation)
        if row is None or row.trashed:
            return False
        recorded_facts = await self._bench.read_conversation_facts(known_messages.conversation)
        # In threads: a long conversation takes a while.
        moment = await asyncio.to_thread(build_state, recorded_facts)
        compared = await asyncio.to_thread(list_messages_behind_summary, messages, "")
        kept = await asyncio.to_thread(find_kept_end, moment, compared)
        return kept is not None and kept.is_certain and not kept.seq_before

    async def _has_followed(
        self,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        position: RequestPosition,
        known_messages: KnownMessages,
    ) -> bool:
        """Whether a request goes on with this conversation but for shortened outputs. If so, they
        are recorded, with the messages' new hashes. The lock of the known messages is held.
        """
        if not self._bench.has_conversation(known_messages.conversation):
            return False
        opened = await self._get_open_conversation(known_messages)
        shortened_outputs = await opened.find_shortened_outputs(
            known_messages, arrival.wire, messages, position.known_count
        )
        if not shortened_outputs:
            return False
        new_facts = await opened.build_agent_folds(shortened_outputs)
        chain = arrival.chain[: len(known_messages.chain)]
        seqs = list(known_messages.seqs)
        received = facts.Received(
            chain[position.known_count :],
            tuple(seqs[position.known_count :]),
            known_messages.session,
            known_messages.head,
            replaced=len(chain) - position.known_count,
        )
        await opened.conversation.append_facts(*new_facts, received)
        self._matcher.replace_messages(known_messages, chain, seqs)
        return True

    async def preview_request(self, arrival: Arrival, messages: Sequence[ProtocolMessage]) -> Sent:
        """Return what each message of a request would be sent as, without recording anything."""
        await self._read_stored_messages_once()
        return await self._build_unrecorded(arrival, messages, self._find_position_of(arrival))

    async def _build_unrecorded(
        self, arrival: Arrival, messages: Sequence[ProtocolMessage], position: RequestPosition
    ) -> Sent:
        """Return what is sent of a request of which nothing is recorded: the known messages as
        their conversation shows them, and all others as they came.
        """
        known_messages = position.known_messages
        entries: list[Entry] = []
        taken_out: tuple[ChangedMessage, ...] = ()
        if known_messages is not None and position.seqs and known_messages.conversation:
            view_entries = await self._preview_known_messages(position, known_messages)
            entries.extend(view_entries.entries)
            taken_out = view_entries.taken_out

        # Behind the known messages, every message is sent as it came.
        first_new = 0
        if position.seqs:
            first_new = position.known_count
        for message_position in range(first_new, len(messages)):
            entries.append(UnchangedMessage(message_position))

        ticket = _build_ticket(
            known_messages or KnownMessages(conversation="", session="", head=""),
            arrival,
            newest_seq_sent=0,
        )
        return Sent(ticket, tuple(entries), recallable=False, taken_out=taken_out)

    async def _preview_known_messages(
        self, position: RequestPosition, known_messages: KnownMessages
    ) -> ViewEntries:
        """Return what the messages of a conversation up to a position would be sent as."""
        opened = await self._get_open_conversation(known_messages)
        if position.is_at_end:
            view = opened.conversation.current_view()
        else:
            view = opened.view_at_fact(position.seqs[-1])
        view_entries, _ = await opened.build_entries_of_view(view, position.seqs)
        return view_entries

    def _find_position_of(
        self, arrival: Arrival, *, is_summarized: bool = False
    ) -> RequestPosition:
        """Return behind which messages of which conversation a request goes on. `is_summarized`:
        it begins with the agent's own summary of what came before.

        Conversations that the user has deleted meanwhile are forgotten, and it is looked for again.
        """
        sender = _sender_of(arrival)
        while True:
            position = self._matcher.find_request_position(
                sender, arrival.chain, arrival.head, is_summarized=is_summarized
            )
            deleted_conversation = self._find_deleted_conversation(position)
            if not deleted_conversation:
                return position
            self._matcher.remove_known_messages(deleted_conversation)
            self._open_conversations.pop(deleted_conversation, None)

    def _find_deleted_conversation(self, position: RequestPosition) -> str:
        """Return the conversation of a position if the user deleted it meanwhile."""
        conversations = [position.parent]
        if position.known_messages is not None:
            conversations.append(position.known_messages.conversation)
        for conversation in conversations:
            if conversation and not self._bench.has_conversation(conversation):
                return conversation
        return ""

    async def _record_and_fold_request(
        self,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        place: PlaceOfRequest,
        known_messages: KnownMessages,
    ) -> Sent:
        """Record what is new in a request, fold (shorten) what is due, and return what is sent.

        The lock of the known messages, those that the agent has sent of the conversation, is
        held. A very long history, and a request that is not to be folded, is sent first and
        recorded afterwards.
        """
        position = place.position
        has_conversation = position.known_messages is not None
        has_nothing_new = has_conversation and position.known_count == len(messages)
        if has_nothing_new:
            known_messages.asked_again.add(arrival.chain[-1])
        is_earlier_request = has_nothing_new and not position.is_at_end
        if is_earlier_request and not _belongs_to_same_session(arrival, known_messages):
            return await self._build_view_of_earlier_request(arrival, position, known_messages)

        # Bring the conversation to where the request's new messages begin.
        known_messages = await self._go_to_place(arrival, messages, place, known_messages)
        try:
            return await self._record_behind_known_messages(arrival, messages, known_messages)
        except Exception:
            # Otherwise the next request would begin another one, and so each request after it.
            await self._take_back_conversation_of_nothing(known_messages)
            raise

    async def _record_behind_known_messages(
        self,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        known_messages: KnownMessages,
    ) -> Sent:
        """Record the new messages of a request behind those that its conversation has, and return
        what is sent. The conversation is at the place where they begin.
        """
        self._matcher.assign_session(known_messages, arrival.session, arrival.head)
        opened = await self._get_open_conversation(known_messages)
        await self._go_on_behind_known_messages(opened, known_messages, arrival, messages)
        await opened.apply_request_settings(arrival)

        if not arrival.fold or _is_long_history(messages, known_messages):
            view_entries = await opened.update_entries(known_messages)
            return self._forward_before_recording(
                opened, known_messages, arrival, messages, view_entries
            )

        await self._append_unrecorded_messages(opened, known_messages, arrival, messages)
        known_messages.newest_fact_sent = opened.conversation.state.seq
        await opened.follower.apply_folds_and_get_view()
        view_entries = await opened.update_entries(known_messages)
        newest_seq = opened.conversation.state.seq
        ticket = _build_ticket(known_messages, arrival, newest_seq_sent=newest_seq)
        return Sent(ticket, view_entries.entries, view_entries.has_fold, view_entries.taken_out)

    async def _take_back_conversation_of_nothing(self, known_messages: KnownMessages) -> None:
        """Delete a conversation if nothing was said in it, as its first request failed."""
        conversation = known_messages.conversation
        if known_messages.chain or not self._bench.has_conversation(conversation):
            return
        for recorded in await self._bench.read_conversation_facts(conversation):
            if isinstance(recorded.fact, facts.UserSaid | facts.ModelReplied):
                return
        self._matcher.remove_known_messages(conversation)
        self._open_conversations.pop(conversation, None)
        await self._bench.take_back_new_conversation(conversation)

    async def _go_on_behind_known_messages(
        self,
        opened: OpenAgentConversation,
        known_messages: KnownMessages,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
    ) -> None:
        """Make the conversation end with the last message that the agent has sent of it, so that
        the request's new messages can be recorded there.

        Behind it may be what was imported from the agent's own files meanwhile, or a reply that
        never reached the agent. The one is noted, the other left behind.
        """
        recorded_facts = opened.conversation.state.facts
        if _seq_of_last_message(recorded_facts) <= known_messages.last_message_seq:
            return
        if has_imported_facts(recorded_facts, known_messages.last_message_seq):
            # The session went on without the gateway, and its file was imported meanwhile.
            new_messages = messages[len(known_messages.chain) :]
            imported_seqs = await asyncio.to_thread(
                find_facts_of_messages,
                recorded_facts,
                new_messages,
                known_messages.last_message_seq,
            )
            await self._add_imported_messages(opened, known_messages, arrival, imported_seqs)
        if _seq_of_last_message(recorded_facts) > known_messages.last_message_seq:
            # A recorded reply never reached the agent, so rewind the conversation.
            await opened.rewind_and_keep_exclusions(known_messages.last_message_seq)

    async def _add_imported_messages(
        self,
        opened: OpenAgentConversation,
        known_messages: KnownMessages,
        arrival: Arrival,
        imported_seqs: Sequence[int],
    ) -> None:
        """Note that the first new messages of a request were imported, so are recorded already.

        `imported_seqs`: the last fact of each of them.
        """
        if not imported_seqs:
            return
        known_count = len(known_messages.chain)
        hashes = arrival.chain[known_count : known_count + len(imported_seqs)]
        received = facts.Received(
            hashes, tuple(imported_seqs), known_messages.session, known_messages.head
        )
        await opened.conversation.append_facts(received)
        for message_hash, seq in zip(hashes, imported_seqs, strict=True):
            self._matcher.append_message_hash(known_messages, message_hash, seq)

    async def _build_view_of_earlier_request(
        self, arrival: Arrival, position: RequestPosition, known_messages: KnownMessages
    ) -> Sent:
        """Answer a request that is repeated, or that another session shares: nothing is recorded."""
        self._matcher.assign_session(known_messages, arrival.session, arrival.head)
        opened = await self._get_open_conversation(known_messages)
        view = opened.view_at_fact(position.seqs[-1])
        view_entries, _ = await opened.build_entries_of_view(view, position.seqs)
        newest_seq = opened.conversation.state.seq
        ticket = _build_ticket(known_messages, arrival, newest_seq_sent=newest_seq)
        # The reply to it is not recorded.
        ticket = replace(ticket, live=False)
        return Sent(ticket, view_entries.entries, view_entries.has_fold, view_entries.taken_out)

    async def _go_to_place(
        self,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        place: PlaceOfRequest,
        known_messages: KnownMessages,
    ) -> KnownMessages:
        """Bring a conversation to the position behind which a request goes on, and return its
        known messages, that is, those that the agent has sent of it.

        The request may go on at the conversation's end. It may repeat only a beginning of it: then
        the conversation is rewound to there, or, if the request may be of another session with the
        same beginning, copied up to there (a fork) or begun anew.
        """
        position = place.position
        if not known_messages.conversation:
            await self._start_conversation(arrival, messages, position.parent, known_messages)
            return known_messages
        if position.is_at_end:
            return known_messages
        # Only its own session's requests, or those with its end, come here without its beginning.
        if await self._has_new_summary(arrival, messages, position, known_messages):
            await self._go_on_behind_summary(known_messages, arrival, messages, place.kept)
            return known_messages
        opened = await self._get_open_conversation(known_messages)
        is_same_session = _belongs_to_same_session(arrival, known_messages)
        leaves_only_question = _leaves_only_question_for_summary(opened, position, known_messages)
        if (
            is_same_session
            or leaves_only_question
            or self._says_last_reply_in_other_words(arrival, messages, position, known_messages)
        ):
            await self._rewind(position, known_messages, arrival)
            return known_messages
        # An agent that names no conversation: this may be another session with the same beginning.
        was_answered = opened.was_answered_before(_last_seq_of_position(position))
        # In a fork, what the user took out of the beginning stays out.
        if was_answered or opened.has_taken_out_parts:
            return await self._fork(arrival, messages, position, known_messages)
        no_messages_yet = KnownMessages("", arrival.session, arrival.head, agent=arrival.agent)
        self._matcher.add_known_messages(no_messages_yet)
        await self._start_conversation(
            arrival, messages, position.parent, no_messages_yet, begins_like_another=True
        )
        return no_messages_yet

    async def _has_new_summary(
        self,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        position: RequestPosition,
        known_messages: KnownMessages,
    ) -> bool:
        """Whether a request begins with a summary by its agent that the conversation does not have.

        The words before opencode's summary are always the same, so they may be known from an
        earlier one, but the summary behind them is not. Before that of Codex stand messages that
        the conversation has.
        """
        summary = find_summary_at_beginning(messages)
        if summary is None or position.known_count >= summary.message_count:
            return False
        if position.known_count == 0:
            return True
        if summary.keeps_messages:
            return _belongs_to_same_session(arrival, known_messages)
        opened = await self._get_open_conversation(known_messages)
        last_known = opened.conversation.fact_at(_last_seq_of_position(position))
        return isinstance(last_known, facts.Folded) and last_known.is_by_agent

    def _says_last_reply_in_other_words(
        self,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        position: RequestPosition,
        known_messages: KnownMessages,
    ) -> bool:
        """Whether an agent that names no session goes on with its conversation, and only repeats
        the newest reply in another form. A conversation for each request would help nobody.
        """
        known_count = position.known_count
        if arrival.session or not position.has_current_messages or len(messages) < known_count + 2:
            return False
        if messages[known_count].speaker is not Speaker.ASSISTANT:
            return False
        if not known_messages.is_surely_behind_own_reply(arrival.head, known_count):
            return False
        alike = self._matcher.find_all_that_begin_alike(
            _sender_of(arrival), arrival.chain, known_count
        )
        return alike == [known_messages]

    async def _start_conversation(
        self,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        parent: str,
        known_messages: KnownMessages,
        *,
        begins_like_another: bool = False,
    ) -> None:
        """Find or begin the conversation of a request that continues none which is known.

        It is the one that was imported from the agent's own files, or else a fork: a copy of a
        conversation up to the place where the request leaves it. Otherwise it is new, below
        `parent` if the agent is a sub-agent of that conversation's. `known_messages` is given the
        conversation's name.
        """
        self._quiet_until += FIRST_REQUEST_SECONDS
        imported = await find_imported_session(self._bench, arrival, messages)
        if imported is not None and not self._matcher.find_known_messages(imported.conversation):
            await self._continue_imported_session(imported, arrival, known_messages)
            if imported.is_summarized:
                await self._go_on_behind_summary(known_messages, arrival, messages, imported.kept)
            return

        fork_base = await self._find_fork_base(arrival, messages, parent)
        if fork_base is not None:
            fork = await self._bench.fork_conversation(
                fork_base.conversation, fork_base.last_seq, agent=arrival.agent
            )
            original = self._open_conversations.get(fork_base.conversation)
            if original is not None:
                failures = original.failed_folds_after(fork_base.last_seq)
                await fork.conversation.append_facts(*failures)
            known_messages.conversation = fork.id
            return

        parent_of_new = parent
        if not parent and self._bench.has_conversation(arrival.below):
            parent_of_new = arrival.below
        title = title_from_messages(messages)
        if begins_like_another:
            title = self._number_title(title)
        new_session = await self._bench.start_conversation(
            title, agent=arrival.agent, parent=parent_of_new
        )
        known_messages.conversation = new_session.id

    async def _continue_imported_session(
        self, imported: ImportedSession, arrival: Arrival, known_messages: KnownMessages
    ) -> None:
        """Go on in the conversation that an import made of the agent's session."""
        session = await self._bench.open_session(imported.conversation)
        await session.conversation.append_facts(*facts_that_connect_agent(imported, arrival))
        known_messages.conversation = session.id
        for message_hash, seq in zip(arrival.chain, imported.seqs, strict=False):
            self._matcher.append_message_hash(known_messages, message_hash, seq)

    async def _find_fork_base(
        self, arrival: Arrival, messages: Sequence[ProtocolMessage], parent: str
    ) -> ForkBase | None:
        """Return the conversation that a request continues although it begins in another way: its
        newest output is in the request, too.

        An agent that names its session may have changed its tools and its first message at once,
        so only `parent`, the conversation of that session, comes into question.
        """
        if arrival.session and arrival.is_below_another:
            return None
        candidates = self._list_open_conversations_to_fork(arrival, parent)
        if not candidates:
            return None
        # It may take a second.
        digests_by_call = await asyncio.to_thread(_digests_of_results, messages)
        for conversation, opened in candidates.items():
            state = opened.conversation.state
            newest_output = _newest_output_among(state.facts, digests_by_call)
            if newest_output is None or not state.branch.order:
                continue
            has_same_output = digests_by_call[newest_output.call] == newest_output.output.digest
            if has_same_output:
                first_message_seq = state.branch.order[0]
                return ForkBase(conversation, last_seq=first_message_seq - 1)
        return None

    def _list_open_conversations_to_fork(
        self, arrival: Arrival, parent: str
    ) -> dict[str, OpenAgentConversation]:
        """Return those of the same agent, the one used last first."""
        candidates: dict[str, OpenAgentConversation] = {}
        for conversation, opened in reversed(self._open_conversations.items()):
            # An agent that names its session goes on in a conversation of this session only.
            may_be_forked = conversation == parent or not arrival.session
            if may_be_forked and opened.session.agent == arrival.agent:
                candidates[conversation] = opened
        return candidates

    # --- Summaries of agents that name no session

    async def _send_question_for_summary(
        self, arrival: Arrival, messages: Sequence[ProtocolMessage], position: RequestPosition
    ) -> Sent:
        """Send the request with which an agent asks for its summary as the conversation shows its
        messages. It is no step of the conversation, but its reply is paid for there.
        """
        sent = await self._build_unrecorded(arrival, messages, position)
        # Behind the conversation's messages stands the question alone, or an answer and the
        # question whether it is complete. Else it may be about another one that begins alike.
        if position.known_count >= len(messages) - 2:
            self._questions_for_summary.add(sent.ticket.last)
        return replace(sent, ticket=replace(sent.ticket, live=False))

    async def _find_summarized_conversation(
        self, arrival: Arrival, messages: Sequence[ProtocolMessage]
    ) -> SummarizedConversation | None:
        """Return the conversation that the summary at the beginning of a request stands for.

        It is the one that ends with what the request has behind the summary. Where it has nothing
        there but new words, or little, it is the one in which the agent's model wrote this summary.
        """
        summary = find_summary_piece(messages[0])
        if summary is None:
            return None
        candidates: list[SummarizedConversation] = []
        for known_messages in self._matcher.list_without_session(arrival.agent)[:MOST_LOOKED_AT]:
            candidate = await self._compare_with_summary(known_messages, messages, summary)
            if candidate is not None:
                candidates.append(candidate)
        return _choose_longest_kept(candidates)

    async def _compare_with_summary(
        self, known_messages: KnownMessages, messages: Sequence[ProtocolMessage], summary: Piece
    ) -> SummarizedConversation | None:
        """Return the conversation if the summary certainly stands for it."""
        conversation = known_messages.conversation
        row = self._bench.conversation_row(conversation)
        if row is None or row.trashed:
            return None
        texts_in_summary = self._list_texts_beside_in(conversation, summary)
        behind_summary = list_messages_behind_summary(messages, summary.text)
        recorded_facts = await self._bench.read_conversation_facts(conversation)
        # In threads: a long conversation takes a while.
        moment = await asyncio.to_thread(build_state, recorded_facts)
        is_imported = await asyncio.to_thread(has_imported_summary, moment, summary.text)
        seq_before_question = find_seq_before_summary_request(
            moment.branch, summary.text, LEAST_CHARACTERS_OF_SUMMARY
        )
        if keeps_nothing(behind_summary):
            is_beside = any(written.is_summary for written in texts_in_summary)
            if is_imported or seq_before_question or is_beside:
                return SummarizedConversation(known_messages, kept=None)
            return None
        if seq_before_question:
            # What was kept stood before the question, or was said while its reply was written.
            moment = await asyncio.to_thread(_build_moment_at, recorded_facts, seq_before_question)
            kept = await asyncio.to_thread(find_kept_end, moment, behind_summary)
            return SummarizedConversation(known_messages, kept)
        kept = await asyncio.to_thread(find_kept_end, moment, behind_summary)
        is_known = is_imported or bool(texts_in_summary)
        is_same = await asyncio.to_thread(
            _is_same_conversation, kept, recorded_facts, summary.text, is_known=is_known
        )
        return SummarizedConversation(known_messages, kept) if is_same else None

    def _list_texts_beside_in(
        self, conversation: str, summary: Piece
    ) -> list[TextBesideConversation]:
        """Return what the model wrote beside a conversation that is in the agent's summary."""
        texts_in_summary: list[TextBesideConversation] = []
        for written in self._texts_beside.get(conversation, ()):
            is_long = len(written.text) >= LEAST_CHARACTERS_OF_SUMMARY
            if is_long and written.text in summary.text:
                texts_in_summary.append(written)
        return texts_in_summary

    def _remember_text_beside(
        self, known_messages: KnownMessages, ticket: Ticket, replied: Replied
    ) -> None:
        """Remember what a model wrote if it is no message of the conversation, and the agent does
        not name its session.
        """
        is_message = ticket.live and ticket.messages > 0
        if is_message or known_messages.session:
            return
        is_summary = ticket.last in self._questions_for_summary
        self._questions_for_summary.discard(ticket.last)
        texts = [piece.text for piece in replied.pieces if piece.kind is PieceKind.TEXT]
        text = text_of_summary("\n".join(texts))
        remembered = self._texts_beside.setdefault(
            known_messages.conversation, deque(maxlen=MOST_SUMMARIES)
        )
        remembered.append(TextBesideConversation(text, is_summary))

    # --- Sending requests before they are recorded

    def _forward_if_no_fold_due(
        self,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        position: RequestPosition,
        known_messages: KnownMessages,
    ) -> Sent | None:
        """Send a request before it is recorded, to save time, if nothing can have to be folded
        (shortened) first. Return None if something may.

        That needs the conversation to be open, at its end and unchanged since the last request,
        with equal settings and little that is new. What this makes due is folded for the next
        request.
        """
        has_new_messages = position.is_at_end and position.known_count < len(messages)
        if not has_new_messages or not known_messages.can_lock_now:
            return None
        opened = self._open_conversations.get(known_messages.conversation)
        if opened is None or opened.last_entries is None:
            return None
        last_entries = opened.last_entries
        if last_entries.seq != opened.conversation.state.seq:
            return None
        if opened.applied_settings != opened.settings_of_arrival(arrival):
            return None
        if not opened.cannot_make_fold_due(messages[position.known_count :]):
            return None
        self._matcher.assign_session(known_messages, arrival.session, arrival.head)
        return self._forward_before_recording(
            opened, known_messages, arrival, messages, last_entries
        )

    def _forward_before_recording(
        self,
        opened: OpenAgentConversation,
        known_messages: KnownMessages,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        view_entries: ViewEntries,
    ) -> Sent:
        """Return what is sent, and begin to record the request behind it, as a task.

        The known messages are sent as the conversation shows them, and all others as they came.
        """
        entries = list(view_entries.entries)
        if known_messages.chain:
            for position in range(len(known_messages.chain), len(messages)):
                entries.append(UnchangedMessage(position))
        # Else nothing is known, and without entries the body is sent as it came.

        ticket = _build_ticket(
            known_messages, arrival, newest_seq_sent=opened.conversation.state.seq
        )
        is_import = _is_long_history(messages, known_messages)
        ticket = replace(ticket, ahead=True, is_import=is_import)

        known_messages.is_recorded.clear()
        known_messages.is_wanted.clear()
        try:
            recording = self._record_forwarded_request(opened, known_messages, arrival, messages)
            self._tasks.spawn_task(recording, name="record a request")
        except StoppedByUser:  # The workspace is being closed: nobody must wait for the recording.
            known_messages.is_recorded.set()
            raise
        if is_import:
            self._running_imports.append(RunningImport(known_messages, ticket))
        return Sent(ticket, tuple(entries), view_entries.has_fold, view_entries.taken_out)

    async def _append_unrecorded_messages(
        self,
        opened: OpenAgentConversation,
        known_messages: KnownMessages,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
    ) -> None:
        """Record the messages of a request that the conversation does not have, in batches.

        A long history becomes one commit for each batch, so that it need not begin anew if that is
        interrupted. Between its batches other agents' requests are handled.
        """
        is_long = _is_long_history(messages, known_messages)
        new_messages = messages[len(known_messages.chain) :]
        policy = opened.conversation.policy
        is_in_one_transaction = is_long or _can_be_written_together(new_messages, policy)
        while len(known_messages.chain) < len(messages):
            if is_long:
                await self._pause_for_other_requests()
                # It counts as just used: closed and opened again, it would be in memory twice.
                conversation = known_messages.conversation
                still_open = self._open_conversations.pop(conversation, opened)
                self._open_conversations[conversation] = still_open
            await self._append_next_batch(
                opened,
                known_messages,
                arrival,
                messages,
                is_in_one_transaction=is_in_one_transaction,
            )
            # The view is built part by part: all at once would delay other agents.
            opened.conversation.current_view()

    async def _pause_for_other_requests(self) -> None:
        """Wait until it is quiet, or for a quarter of a second: a session's first request waits
        for several of these commits.
        """
        # `_quiet_until` moves on with each request that comes meanwhile, but only so often.
        most_pauses = round(FIRST_REQUEST_SECONDS / QUIET_SECONDS) + 1
        for _ in range(most_pauses):
            seconds_until_quiet = self._quiet_until - asyncio.get_running_loop().time()
            await asyncio.sleep(min(seconds_until_quiet, QUIET_SECONDS))

    async def _append_next_batch(
        self,
        opened: OpenAgentConversation,
        known_messages: KnownMessages,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        *,
        is_in_one_transaction: bool,
    ) -> None:
        """Append the next messages of a request as facts, and note which facts are whose."""
        batch_start = len(known_messages.chain)
        batch_end = _end_of_next_batch(messages, batch_start)
        hashes = arrival.chain[batch_start:batch_end]
        # Their pieces are kept meanwhile: those of short messages are parsed at each use.
        batch = [
            ProtocolMessage(message.speaker, message.units, message.pieces)
            for message in messages[batch_start:batch_end]
        ]
        writing: AbstractAsyncContextManager[OpenAgentConversation] = nullcontext(opened)
        if is_in_one_transaction:
            writing = opened.write_in_one_transaction()
        async with writing as writer:
            first_new_seq = writer.conversation.state.seq + 1
            seqs = await writer.append_messages(batch, known_messages.last_message_seq)
            received = facts.Received(
                hashes, tuple(seqs), known_messages.session, known_messages.head
            )
            new_facts: list[facts.Fact] = [received]
            has_replies = any(message.speaker is Speaker.ASSISTANT for message in batch)
            if has_replies:
                # The agent got these replies without the gateway.
                new_facts.append(facts.BroughtIn(facts.Origin(), "", first_new_seq))
            await writer.conversation.append_facts(*new_facts)
        for message_hash, seq in zip(hashes, seqs, strict=True):
            self._matcher.append_message_hash(known_messages, message_hash, seq)

    async def _record_forwarded_request(
        self,
        opened: OpenAgentConversation,
        known_messages: KnownMessages,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
    ) -> None:
        """Record a request that was sent before. This begins a little later, or once somebody
        wants it.

        The end of the reply waits for this, except for long histories, which take a millisecond a
        message. A failure is only logged, since the request has gone on already.
        """
        with suppress(TimeoutError):
            await concurrency.wait_with_limit(known_messages.is_wanted.wait(), AHEAD_SECONDS)
        try:
            is_long = _is_long_history(messages, known_messages)
            await self._append_unrecorded_messages(opened, known_messages, arrival, messages)
            if is_long:  # The memory that recording has left unused is needed for its fold.
                gc.freeze()  # These facts are long-lived, so garbage collection can skip them.
                await asyncio.to_thread(glibc_memory.return_free_pages)
            # The user may have set the model's window or prices since the request before.
            await opened.apply_request_settings(arrival)
            known_messages.newest_fact_sent = opened.conversation.state.seq
            if arrival.fold:
                await opened.follower.apply_folds_and_get_view()
            await opened.update_entries(known_messages)
            if is_long:  # What the fold needed is free again: with 37,000 messages, 25 MB.
                await asyncio.to_thread(glibc_memory.return_free_pages)
        except StoppedByUser:
            log.info("a request is recorded with the next one, since the workspace is being closed")
        except Exception:
            log.exception("a request could not be recorded; it had gone on already")
            opened.last_entries = None
            await self._take_back_conversation_of_nothing(known_messages)
        finally:
            self._running_imports = [
                running_import
                for running_import in self._running_imports
                if running_import.known_messages is not known_messages
            ]
            known_messages.is_recorded.set()

    async def _rewind(
        self, position: RequestPosition, known_messages: KnownMessages, arrival: Arrival
    ) -> None:
        """Go back to where a request leaves its own conversation: it repeats only the first of
        the messages that its agent has sent before.
        """
        opened = await self._get_open_conversation(known_messages)
        await opened.rewind_and_keep_exclusions(_last_seq_of_position(position))
        known_messages.rewind_known_messages(
            arrival.chain[: position.known_count], position.seqs[: position.known_count]
        )

    async def _go_on_behind_summary(
        self,
        known_messages: KnownMessages,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        kept: KeptEnd | None,
    ) -> None:
        """Let the conversation go on from the agent's own summary of all its messages so far.

        `kept`: the end that the agent sends again behind its summary. It is recorded there, and
        what was recorded of it before is left behind.
        """
        opened = await self._get_open_conversation(known_messages)
        if kept is not None and kept.seq_before:
            await opened.rewind_and_keep_exclusions(kept.seq_before)
        summary = find_summary_at_beginning(messages)
        if summary is None or not opened.conversation.state.branch.order:
            known_messages.rewind_known_messages([], [])  # There is nothing that it stands for.
            return
        message_with_summary = messages[summary.message_count - 1]
        hashes = arrival.chain[: summary.message_count]
        async with opened.write_in_one_transaction() as writer:
            last_seq = await writer.append_summary_by_agent(
                message_with_summary, summary, arrival.agent
            )
            last_seqs = (last_seq,) * summary.message_count
            received = facts.Received(
                hashes,
                last_seqs,
                arrival.session,
                arrival.head,
                replaced=len(known_messages.chain),
            )
            await writer.conversation.append_facts(received)
        opened.last_entries = None
        self._matcher.replace_messages(known_messages, hashes, last_seqs)

    async def _fork(
        self,
        arrival: Arrival,
        messages: Sequence[ProtocolMessage],
        position: RequestPosition,
        known_messages: KnownMessages,
    ) -> KnownMessages:
        """Copy a conversation up to where a request leaves it (a fork), and return the messages
        that the copy has. It is named by what is new in the request.
        """
        last_common_seq = position.seqs[-1]
        opened = await self._get_open_conversation(known_messages)
        later_exclusions = opened.exclusions_made_after(last_common_seq)
        session = await self._bench.fork_conversation(
            known_messages.conversation, last_common_seq, agent=known_messages.agent
        )
        new_facts: list[facts.Fact] = list(later_exclusions)
        new_facts.extend(opened.failed_folds_after(last_common_seq))
        new_messages = messages[position.known_count :]
        title = title_from_messages(new_messages)
        if not title:
            title = self._number_title(opened.conversation.state.title, copy=session.id)
        if title:
            new_facts.append(facts.ConversationChanged(title=title))
        if new_facts:
            await session.conversation.append_facts(*new_facts)
        common_chain = list(arrival.chain[: position.known_count])
        common_seqs = list(position.seqs)
        messages_of_fork = KnownMessages(
            session.id,
            arrival.session,
            arrival.head,
            chain=common_chain,
            seqs=common_seqs,
            agent=arrival.agent,
        )
        self._matcher.add_known_messages(messages_of_fork)
        await self._record_which_messages_fork_contains(messages_of_fork)
        return messages_of_fork

    def _number_title(self, title: str, *, copy: str = "") -> str:
        """Return a title with a number, so that it can be told from the conversations that have it.
        `copy`: one that has it from its original.
        """
        number = 1
        for row in self._bench.list_conversations():
            has_title = row.title == title or row.title.startswith(f"{title} (")
            if has_title and row.id != copy:
                number += 1
        if number == 1:
            return title
        return f"{title} ({number})"

    async def _record_which_messages_fork_contains(self, messages_of_fork: KnownMessages) -> None:
        """Record which of the agent's messages a fork's facts stand for, by their hashes.

        A note on them that comes behind the place of the fork was not copied with them.
        """
        conversation = messages_of_fork.conversation
        journal = self._bench.workspace.journal
        recorded_facts = await journal.facts_about_received_messages(conversation)
        noted_count = len(known_messages_from_facts(conversation, recorded_facts).chain)
        if noted_count >= len(messages_of_fork.chain):
            return
        opened = await self._get_open_conversation(messages_of_fork)
        received = facts.Received(
            tuple(messages_of_fork.chain[noted_count:]),
            tuple(messages_of_fork.seqs[noted_count:]),
            messages_of_fork.session,
            messages_of_fork.head,
        )
        await opened.conversation.append_facts(received)

    async def _get_open_conversation(self, known_messages: KnownMessages) -> OpenAgentConversation:
        """Return the conversation, opened. Closes those not used recently."""
        conversation = known_messages.conversation
        opened = self._open_conversations.pop(conversation, None)
        if opened is None:
            opened = await OpenAgentConversation.open_by_name(self._bench, conversation, self._ask)
        self._open_conversations[conversation] = opened  # It is now the one used last.
        while len(self._open_conversations) > MOST_OPEN_CONVERSATIONS:
            used_longest_ago = next(iter(self._open_conversations))
            del self._open_conversations[used_longest_ago]
        return opened

    async def answer_hidden_calls(
        self, ticket: Ticket, replied: Replied, calls: Sequence[Piece], refusal: str = ""
    ) -> list[HiddenCallAnswer]:
        """Answer hidden calls: those by which the model recalls originals, and which its agent
        never sees. The reply that makes them is recorded, with their outputs.

        With a `refusal`, they are not run, and get this as their answer.
        """
        known_messages = await self._known_messages_of_ticket(ticket)
        outputs: list[AgentOutput] = []
        for call in calls:
            if refusal:
                outputs.append(AgentOutput(call.id, refusal, ok=False))
            else:
                text, is_ok = await self._run_recall_call(call, known_messages)
                outputs.append(AgentOutput(call.id, text, is_ok))
        if known_messages is not None:
            async with known_messages.lock_once_recorded():
                await self._record_hidden_reply(known_messages, ticket, replied, outputs)
        answers: list[HiddenCallAnswer] = []
        for call, output in zip(calls, outputs, strict=True):
            answers.append(HiddenCallAnswer(call.id, call.name, output.text, output.ok))
        return answers

    async def _record_hidden_reply(
        self,
        known_messages: KnownMessages,
        ticket: Ticket,
        replied: Replied,
        outputs: Sequence[AgentOutput],
    ) -> None:
        """Record a reply with hidden calls and their outputs, or else only what it cost."""
        opened = await self._get_open_conversation(known_messages)
        reply = opened.build_agent_reply(replied)
        if ticket.live and self._is_unchanged_since(known_messages, ticket):
            await opened.follower.record_reply(reply, _newest_fact_sent(known_messages, ticket))
            await opened.follower.record_outputs(list(outputs))
        else:  # The agent went on without this reply, so only what it cost is kept.
            spent = facts.Spent(facts.Purpose.STEP, reply.model, reply.usage)
            await opened.conversation.append_facts(spent)

    async def record_agent_reply(
        self, ticket: Ticket, replied: Replied | None, shown_key: str
    ) -> None:
        """Record a reply to a request that was sent. Without `replied`, it is recorded already.

        `shown_key` identifies the message that the agent was shown, by which its next request is
        recognised. It is empty if the reply was cut off.
        """
        recording = self._record_reply(ticket, replied, shown_key)
        if ticket.is_import:
            self._tasks.spawn_task(recording, name="record a reply")
        else:
            await recording

    async def _record_reply(self, ticket: Ticket, replied: Replied | None, shown_key: str) -> None:
        try:
            await self._record_reply_or_cost(ticket, replied, shown_key)
        finally:
            if ticket.messages:  # What is beside the conversation may end earlier.
                self._bench.replies_under_way.forget_asked_reply(ticket.conversation)

    async def _record_reply_or_cost(
        self, ticket: Ticket, replied: Replied | None, shown_key: str
    ) -> None:
        """Record a reply that the agent goes on from, or else only what it cost."""
        known_messages = await self._known_messages_of_ticket(ticket)
        if known_messages is None or not known_messages.conversation:
            return
        if replied is not None:
            self._remember_text_beside(known_messages, ticket, replied)
        async with known_messages.lock_once_recorded():
            is_side = not ticket.messages
            if is_side:
                if replied is not None:
                    await self._record_cost_alone(known_messages, replied, facts.Purpose.OTHER)
                return

            # The agent may have gone on without this reply, or got only a part of it.
            is_expected = ticket.live and self._is_unchanged_since(known_messages, ticket)
            if is_expected and (replied is None or shown_key):
                await self._record_shown_reply(known_messages, ticket, replied, shown_key)
                return
            if replied is None:
                return  # It broke off, and the agent has gone on without it.
            if not await self._was_recorded_elsewhere(known_messages, ticket, replied):
                # It may be a summary that the agent asked for while it went on.
                self._remember_text_beside(known_messages, replace(ticket, live=False), replied)
                await self._record_cost_alone(known_messages, replied, facts.Purpose.STEP)

    async def _was_recorded_elsewhere(
        self, known_messages: KnownMessages, ticket: Ticket, replied: Replied
    ) -> bool:
        """Whether another process recorded this very reply, and was killed before it said so."""
        chain = known_messages.chain
        has_one_more_message = len(chain) == ticket.messages + 1
        if not has_one_more_message or chain[ticket.messages - 1] != ticket.last:
            return False
        opened = await self._get_open_conversation(known_messages)
        reply = opened.build_agent_reply(replied)
        seq_of_request = known_messages.seqs[ticket.messages - 1]
        return _is_recorded_behind(opened.conversation.state.facts, seq_of_request, reply)

    async def _record_cost_alone(
        self, known_messages: KnownMessages, replied: Replied, purpose: facts.Purpose
    ) -> None:
        """Record what a reply cost of which the agent has nothing. The purpose is OTHER for a
        request beside the conversation.
        """
        opened = await self._get_open_conversation(known_messages)
        is_side = purpose is facts.Purpose.OTHER
        priced_reply = replied
        if replied.stop is facts.Stop.CUT and not is_side:
            priced_reply = await opened.with_estimated_usage(replied)
        paid_reply = opened.build_agent_reply(priced_reply, is_side=is_side)
        is_estimate = priced_reply.usage.input != replied.usage.input
        spent = facts.Spent(purpose, paid_reply.model, paid_reply.usage, is_estimate)
        await opened.conversation.append_facts(spent)

    async def _record_shown_reply(
        self,
        known_messages: KnownMessages,
        ticket: Ticket,
        replied: Replied | None,
        shown_key: str,
    ) -> None:
        """Record a reply that the agent has, so that its next request is recognised by it.
        Without `replied`, it is recorded already, and only how the agent sends it is noted.

        The reply and the note are written at once. If this process were killed between the two,
        the reply would be taken for one that the agent never got, and recorded a second time.
        """
        opened = await self._get_open_conversation(known_messages)
        conversation = opened.conversation
        reply: facts.ModelReplied | None = None
        if replied is not None:
            await opened.count_tokens_of_texts([piece.text for piece in replied.pieces])
            whole_reply = opened.follower.complete_reply(
                opened.build_agent_reply(replied), _newest_fact_sent(known_messages, ticket)
            )
            last_seq = known_messages.last_message_seq
            if not _is_recorded_behind(conversation.state.facts, last_seq, whole_reply):
                reply = whole_reply
        held_questions = self._take_held_questions(known_messages.conversation, reply)
        ends_turn = replied is not None and replied.stop is not facts.Stop.CALLS
        reply_hash = next_message_hash(known_messages.chain, ticket.wire, shown_key)

        def reply_and_note(next_seq: int) -> tuple[facts.Fact, ...]:
            """Return what is recorded, now that the number of its first fact is known."""
            new_facts: list[facts.Fact] = []
            last_seq_of_reply = next_seq - 1
            if reply is not None:
                new_facts.extend(_spent_as_reported(held_questions, reply, conversation.state))
                last_seq_of_reply = next_seq + len(new_facts)
                new_facts.append(reply)
            received = facts.Received(
                (reply_hash,), (last_seq_of_reply,), known_messages.session, known_messages.head
            )
            new_facts.append(received)
            if ends_turn:
                new_facts.append(facts.TurnEnded(facts.TurnEnd.DONE))
            return tuple(new_facts)

        recorded_facts = await conversation.append_facts_from(reply_and_note)
        _delete_held_notes(held_questions)
        for recorded in recorded_facts:
            if isinstance(recorded.fact, facts.Received):
                (last_seq_of_reply,) = recorded.fact.seqs
                self._matcher.append_message_hash(known_messages, reply_hash, last_seq_of_reply)
                known_messages.reply_given_here = reply_hash
        if ends_turn:
            opened.session.folding.start_folds_after_turn()
        await opened.update_entries(known_messages)

    async def fold_after_overflow(self, ticket: Ticket, window: int = 0) -> Sent | None:
        """Shorten a conversation further, because the provider found the request too long. Return
        what is sent then, or None if nothing more can be folded, that is, shortened.

        `window`: how many tokens the provider says that its model takes; 0: it does not say.
        """
        known_messages = await self._known_messages_of_ticket(ticket)
        if known_messages is None or not ticket.live:
            return None
        async with known_messages.lock_once_recorded():
            if not self._is_unchanged_since(known_messages, ticket):
                return None
            opened = await self._get_open_conversation(known_messages)
            conversation = opened.conversation
            facts_since_sent = conversation.state.facts[ticket.saw :]
            await opened.learn_window(window)
            if not _has_fold(facts_since_sent):
                tokens_before = conversation.state.counted_tokens
                await opened.session.folding.apply_due_folds(overflowed=True)
                if conversation.state.counted_tokens >= tokens_before:
                    return None
            view_entries = await opened.update_entries(known_messages)
            new_ticket = replace(ticket, saw=conversation.state.seq, ahead=False)
            return Sent(
                new_ticket,
                view_entries.entries,
                recallable=True,
                taken_out=view_entries.taken_out,
            )

    async def figures_since(self, since: float = 0.0) -> Sequence[Figures]:
        """Return the figures of open conversations. `since`: of all used after that
        time, from then on.
        """
        await self._record_questions_held_for_long()
        all_figures: list[Figures] = []
        open_conversations = dict(self._open_conversations)
        for conversation, opened in open_conversations.items():
            state = opened.conversation.state
            all_figures.append(compute_agent_figures(conversation, state, since))
        if not since:
            return all_figures

        for row in self._bench.list_conversations():
            is_closed = row.agent and row.id not in open_conversations
            if is_closed and row.updated >= since:
                all_figures.append(await self._figures_of_closed(row.id, row.updated, since))
        return [figures for figures in all_figures if figures.requests]

    async def _figures_of_closed(self, name: str, updated: float, since: float) -> Figures:
        """Return the figures of a closed conversation, which change only when it does."""
        earlier = self._closed_figures.get(name)
        if earlier is not None and earlier.updated == updated and earlier.since == since:
            return earlier.figures
        conversation = await Conversation.open(self._bench.workspace.journal, name)
        figures = compute_agent_figures(name, conversation.state, since)
        self._closed_figures[name] = ClosedFigures(updated, since, figures)
        return figures

    async def _known_messages_of_ticket(self, ticket: Ticket) -> KnownMessages | None:
        """Return the messages of a ticket's conversation. Its request may have been recorded by
        another process, which has closed since.
        """
        await self._read_stored_messages_once()
        if not self._bench.has_conversation(ticket.conversation):
            return None
        return self._matcher.find_known_messages(ticket.conversation)

    @staticmethod
    def _is_unchanged_since(known_messages: KnownMessages, ticket: Ticket) -> bool:
        """Whether the conversation still ends with the request that the ticket is for."""
        chain = known_messages.chain
        return len(chain) == ticket.messages and chain[-1] == ticket.last

    async def _run_recall_call(
        self, call: Piece, known_messages: KnownMessages | None
    ) -> tuple[str, bool]:
        """Run a hidden recall call. Return its text and success; the model gets errors as text."""
        try:
            arguments = ToolArguments(object_at(parse_json(call.text or "{}")))
            conversation_id = ""
            if known_messages is not None:
                conversation_id = known_messages.conversation
            if call.name.startswith("search"):
                query = arguments.text_argument("query")
                limit = arguments.number_argument("limit", 10)
                index = self._bench.workspace.index
                text = await content_recall.search_entries(
                    index, query, limit=limit, conversation=conversation_id
                )
                return text, True

            conversation: Conversation | None = None
            if known_messages is not None:
                opened = await self._get_open_conversation(known_messages)
                conversation = opened.conversation
            if call.name == ToolName.RECALL_HISTORY:
                return await self._recall_history(arguments, conversation)
            return await self._recall_entry(arguments, conversation), True
        except (HelixError, ValueError) as error:
            return f"[{error}]", False

    async def _recall_entry(
        self, arguments: ToolArguments, conversation: Conversation | None
    ) -> str:
        """Return a stored original, or a part of it, as the conversation has room for it."""
        most_tokens = 0
        conversation_id = ""
        if conversation is not None:
            conversation_id = conversation.id
            most_tokens = content_recall.most_tokens_recalled_whole(
                conversation.state, conversation.policy
            )
        workspace = self._bench.workspace
        stores = recall_tools.RecallStores(
            workspace.cache, workspace.index, self._bench.token_counter
        )
        return await recall_tools.recall_asked_entry(
            arguments, stores, conversation_id, most_tokens
        )

    async def _recall_history(
        self, arguments: ToolArguments, conversation: Conversation | None
    ) -> tuple[str, bool]:
        """Return messages that a fold covers, and whether they could be found."""
        if conversation is None:
            return "[This conversation's earlier messages cannot be recalled now.]", False
        fold = arguments.text_argument("fold")
        words_to_find = arguments.text_argument("find")
        cache = self._bench.workspace.cache
        text = await content_recall.recall_folded_messages(
            conversation.state, cache, self._bench.token_counter, fold, words_to_find
        )
        return text, True

    # --- Reading known conversations again after a restart

    async def _read_stored_messages_once(self) -> None:
        """Read which messages of agents are in the journal, before the first request."""
        async with self._reading_stored_messages:
            if self._has_read_stored_messages:
                return
            journal = self._bench.workspace.journal
            # The newest last: the matcher takes the last one that fits.
            rows = sorted(self._bench.list_conversations(), key=lambda row: row.updated)
            for row in rows:
                if not row.agent or row.trashed:
                    continue
                recorded_facts = await journal.facts_about_received_messages(row.id)
                known_messages = known_messages_from_facts(row.id, recorded_facts, row.agent)
                self._matcher.add_known_messages(known_messages)
            await self._hold_unanswered_steps()
            self._has_read_stored_messages = True

    # --- Requests of gateways that have ended

    async def _hold_unanswered_steps(self) -> None:
        """Look which steps ended gateways have asked for. Their agents ask for them again soon."""
        steps = await asyncio.to_thread(self.questions.list_unanswered_steps)
        for held in steps:
            conversation = held.question.conversation
            if not self._bench.has_conversation(conversation):
                continue
            recorded_facts = await self._bench.workspace.journal.read_facts(conversation)
            if not was_answered_since(recorded_facts, held.question):
                self._held_questions.setdefault(conversation, []).append(held)

    async def record_unanswered_requests(self) -> None:
        """Record what requests have cost whose gateway was killed before their replies came: by
        estimate, as nobody has asked for them again.
        """
        await self._read_stored_messages_once()
        self._held_questions.clear()
        await record_unanswered_questions(self._bench.workspace, self._open_conversation_by_name)

    def _take_held_questions(
        self, conversation: str, reply: facts.ModelReplied | None
    ) -> list[HeldQuestion]:
        """Return the steps that are held of a conversation if this reply says what they cost."""
        if reply is None or not reply.usage.input:
            return []
        return self._held_questions.pop(conversation, [])

    async def _record_questions_held_for_long(self) -> None:
        """Do so for those that no agent seems to ask again."""
        await self._read_stored_messages_once()
        held_files: list[Path] = []
        for conversation, all_held in list(self._held_questions.items()):
            newest = max(held.question.asked for held in all_held)
            # Far in the future, the clock was set back since.
            if abs(time.time() - newest) > MOST_HELD_SECONDS:
                del self._held_questions[conversation]
                continue
            held_files.extend(held.path for held in all_held)
        await record_unanswered_questions(
            self._bench.workspace, self._open_conversation_by_name, held_files
        )

    async def _open_conversation_by_name(self, name: str) -> Conversation | None:
        known_messages = self._matcher.find_known_messages(name)
        if known_messages is None or not self._bench.has_conversation(name):
            return None
        opened = await self._get_open_conversation(known_messages)
        return opened.conversation

    async def aclose(self) -> None:
        """Close the conversations once forwarded requests are recorded."""
        await self._tasks.wait_for_all_tasks()
        if self._held_questions:
            await self.record_unanswered_requests()
        await self._tasks.aclose(limit=1)
        self._open_conversations.clear()


def _spent_as_reported(
    held_questions: Sequence[HeldQuestion], reply: facts.ModelReplied, state: ConversationState
) -> list[facts.Spent]:
    return [held.spent_as_reported(reply.usage, state) for held in held_questions]


def _delete_held_notes(held_questions: Sequence[HeldQuestion]) -> None:
    for held in held_questions:
        held.delete_held_note()


def _count_words_in_text(recorded_facts: Sequence[facts.Recorded], text: str) -> int:
    """Return how many characters of what was said in a conversation are in a text, or 0 if nothing
    is that the user said, or nothing that the model did.
    """
    of_user = 0
    of_model = 0
    for recorded in recorded_facts:
        fact = recorded.fact
        if isinstance(fact, facts.UserSaid):
            of_user += _count_parts_in_text(fact.parts, text)
        elif isinstance(fact, facts.ModelReplied):
            of_model += _count_parts_in_text(fact.parts, text)
    if not of_user or not of_model:
        return 0
    return of_user + of_model


def _count_parts_in_text(parts: Sequence[object], text: str) -> int:
    characters = 0
    for part in parts:
        if isinstance(part, facts.Text) and part.text.strip() in text:
            characters += len(part.text.strip())
    return characters


def _digests_of_results(messages: Sequence[ProtocolMessage]) -> dict[str, Digest]:
    """Return the digest of each call's output in a request."""
    digests: dict[str, Digest] = {}
    for message in messages:
        for result in message.pieces_of_kind(PieceKind.RESULT):
            content = result.text.encode("utf-8", "surrogatepass")
            digests[result.id] = Digest.of_content(content)
    return digests


def _newest_output_among(
    recorded_facts: Sequence[facts.Recorded], calls: Collection[str]
) -> facts.ToolReturned | None:
    """Return the newest recent output of one of these calls."""
    for recorded in reversed(recorded_facts[-MOST_RECENT_FACTS:]):
        if isinstance(recorded.fact, facts.ToolReturned) and recorded.fact.call in calls:
            return recorded.fact
    return None


def _can_be_written_together(messages: Sequence[ProtocolMessage], policy: Policy) -> bool:
    """Whether the messages need no model to shorten them. Then they and the note by which the next
    request recognises them are written at once, so that a kill leaves both or neither.
    """
    if policy.admission != "ask":
        return True  # Excerpts of what is long are made without a model.
    characters = 0
    for message in messages:
        for piece in message.pieces:
            characters += len(piece.text)
    return characters <= COUNTED_HERE


def _is_long_history(messages: Sequence[ProtocolMessage], known_messages: KnownMessages) -> bool:
    """Whether so many messages are new that it is sent, without folds, before they are recorded."""
    known_count = len(known_messages.chain)
    new_count = len(messages) - known_count
    return new_count > LONG_HISTORY_MESSAGES + known_count // KNOWN_MESSAGES_PER_NEW


def _end_of_next_batch(messages: Sequence[ProtocolMessage], batch_start: int) -> int:
    """Return the end of the batch: before a reply if possible, so that results stay together."""
    farthest_end = min(batch_start + 2 * MESSAGES_IN_COMMIT, len(messages))
    for position in range(batch_start + MESSAGES_IN_COMMIT, farthest_end):
        if messages[position].speaker is Speaker.ASSISTANT:
            return position
    return farthest_end


def known_messages_from_facts(
    conversation: str, recorded_facts: Sequence[facts.Recorded], agent: str = ""
) -> KnownMessages:
    """Return which messages an agent has sent of a conversation: their hashes and last facts.

    The facts about it say so. A rewind takes those behind its place away again.
    """
    known_messages = KnownMessages(conversation, session="", head="", agent=agent)
    # The hashes and last facts that each summary by the agent stands for, in order.
    before_summaries: list[tuple[list[str], list[int]]] = []
    for recorded in recorded_facts:
        fact = recorded.fact
        if isinstance(fact, facts.Rewound):
            # Before a summary of the agent's, the messages that it stands for are there again.
            while before_summaries and known_messages.seqs and fact.to < known_messages.seqs[0]:
                known_messages.chain, known_messages.seqs = before_summaries.pop()
            remaining_seqs = [seq for seq in known_messages.seqs if seq <= fact.to]
            del known_messages.chain[len(remaining_seqs) :]
            del known_messages.seqs[len(remaining_seqs) :]
        elif isinstance(fact, facts.Received):
            # What was rewound just before is no longer there to be replaced.
            unchanged_count = max(0, len(known_messages.chain) - fact.replaced)
            if unchanged_count == 0 and known_messages.chain:
                before_summaries.append((list(known_messages.chain), list(known_messages.seqs)))
                known_messages.rewind_known_messages([], [])
            del known_messages.chain[unchanged_count:]
            del known_messages.seqs[unchanged_count:]
            known_messages.chain.extend(fact.chain)
            known_messages.seqs.extend(fact.seqs)
            known_messages.session = fact.session
            known_messages.head = fact.head
            known_messages.heads.add(fact.head)
    return known_messages


def _sender_of(arrival: Arrival) -> RequestSender:
    return RequestSender(arrival.agent, arrival.session, arrival.parent, arrival.is_below_another)


def _build_ticket(known_messages: KnownMessages, arrival: Arrival, newest_seq_sent: int) -> Ticket:
    return Ticket(
        conversation=known_messages.conversation,
        messages=len(arrival.chain),
        last=arrival.chain[-1],
        saw=newest_seq_sent,
        wire=arrival.wire,
    )


def _newest_fact_sent(known_messages: KnownMessages, ticket: Ticket) -> int:
    """Return the newest fact of the request. One that was sent before it was recorded has no
    facts in its ticket, and another process may have recorded it.
    """
    if ticket.ahead:
        return known_messages.newest_fact_sent or known_messages.last_message_seq
    return ticket.saw


def _is_question_for_summary(
    arrival: Arrival, messages: Sequence[ProtocolMessage], position: RequestPosition
) -> bool:
    """Whether an agent asks for its summary of a conversation. One that names no session says so."""
    if not position.known_count:
        return False
    if not arrival.session:
        # With tools it is recorded as any step, and a later process knows the summary by that.
        return asks_for_summary(messages) and not arrival.tools
    # Codex asks a provider of the user's own without tools.
    if arrival.tools or arrival.agent not in AGENTS_WITH_TOOLS:
        return False
    # With results of calls in the same request, it is a step all the same: they stand nowhere else.
    is_all_new = position.is_at_end and position.known_count == len(messages) - 1
    has_results = bool(messages[-1].pieces_of_kind(PieceKind.RESULT))
    return is_all_new and not has_results


def _build_moment_at(recorded_facts: Sequence[facts.Recorded], seq: int) -> ConversationState:
    return build_state([recorded for recorded in recorded_facts if recorded.seq <= seq])


def _is_same_conversation(
    kept: KeptEnd | None,
    recorded_facts: Sequence[facts.Recorded],
    summary: str,
    *,
    is_known: bool,
) -> bool:
    """Whether a summary with this kept end behind it is certainly of this conversation. `is_known`:
    the summary is known to be.
    """
    if kept is None:
        return False
    return is_known or kept.is_certain or has_written_summary(recorded_facts, summary)


def _leaves_only_question_for_summary(
    opened: OpenAgentConversation, position: RequestPosition, known_messages: KnownMessages
) -> bool:
    """Whether a request goes on before the question for a summary with which its conversation ends."""
    left_seqs = known_messages.seqs[position.known_count :]
    # Behind the question stands its reply at most.
    if not position.known_count or len(left_seqs) not in (1, 2):
        return False
    return is_question_beside_work(opened.conversation.fact_at(left_seqs[0]))


def _choose_longest_kept(
    candidates: Sequence[SummarizedConversation],
) -> SummarizedConversation | None:
    """Return the conversation of which most was kept, or None if that is true of several."""
    most_kept = max((_count_kept(candidate) for candidate in candidates), default=0)
    with_most_kept = [one for one in candidates if _count_kept(one) == most_kept]
    if len(with_most_kept) != 1:
        return None
    return with_most_kept[0]


def _count_kept(summarized: SummarizedConversation) -> int:
    if summarized.kept is None:
        return 0
    return summarized.kept.messages


def _last_seq_of_position(position: RequestPosition) -> int:
    if not position.seqs:
        return 0
    return position.seqs[-1]


def _has_fold(recorded_facts: Sequence[facts.Recorded]) -> bool:
    for recorded in recorded_facts:
        if isinstance(recorded.fact, facts.Folded):
            return True
    return False


def _belongs_to_same_session(arrival: Arrival, known_messages: KnownMessages) -> bool:
    """Whether it names this session, so that missing messages were rewound or are being
    repeated.
    """
    return bool(arrival.session) and arrival.session == known_messages.session


def title_from_messages(messages: Sequence[ProtocolMessage]) -> str:
    """Return the first words of a person, without what the client added."""
    for message in messages:
        if message.speaker is not Speaker.USER:
            continue
        if find_summary_piece(message) is not None:
            continue  # An agent's own summary of an earlier session.
        for piece in message.pieces_of_kind(PieceKind.TEXT):
            beginning = piece.text[:CHARACTERS_SEARCHED_FOR_TITLE]
            own_words, _ = split_off_tagged_blocks(beginning, _OPENING_TAG)
            if own_words.strip():
                first_line = own_words.strip().splitlines()[0]
                return shorten_to_line(first_line, TITLE_CHARACTERS)
    return ""


def _is_recorded_behind(
    recorded_facts: Sequence[facts.Recorded], seq: int, reply: facts.ModelReplied
) -> bool:
    """Whether a reply is recorded behind a fact already: a process that closed had not yet noted
    that the agent has it.
    """
    for recorded in reversed(recorded_facts):
        newest = recorded.fact
        if recorded.seq <= seq or isinstance(newest, facts.Rewound):
            return False
        if isinstance(newest, facts.ModelReplied):
            # No two replies take the same fraction of a second.
            return newest.seconds == reply.seconds and newest.usage == reply.usage
    return False


def _seq_of_last_message(recorded_facts: Sequence[facts.Recorded]) -> int:
    """Return the fact of the last message, or 0 if there is none since the last rewind."""
    message_kinds = facts.ModelReplied | facts.ToolReturned | facts.UserSaid
    for recorded in reversed(recorded_facts):
        if isinstance(recorded.fact, facts.Rewound):
            return 0
        if isinstance(recorded.fact, message_kinds):
            return recorded.seq
    return 0
