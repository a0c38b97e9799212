"""Records agents' requests as facts of a conversation, and returns what its view sends.

Runs where the workspace is open, on the same sessions that
the window shows. It must not see keys, headers or addresses.
"""

import asyncio
import gc
import logging
import re
from collections.abc import Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

from helix_desktop import concurrency, glibc_memory
from helix_desktop.engine import content_recall, facts
from helix_desktop.engine.agent_additions import split_off_tagged_blocks
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.foreign_agent_facts import AgentOutput
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import ActionRefused, HelixError, StoppedByUser, shorten_to_line
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_conversation import COUNTED_HERE, OpenAgentConversation
from helix_desktop.gateway.agent_cost_and_savings import Figures, compute_agent_figures
from helix_desktop.gateway.conversation_matching import (
    LONG_HISTORY_MESSAGES,
    ConversationMatcher,
    KnownMessages,
    RequestPosition,
    RequestSender,
    next_message_hash,
)
from helix_desktop.gateway.conversations_port import Arrival, AskAgentModel, Replied, Sent, Ticket
from helix_desktop.gateway.imported_sessions import (
    ImportedSession,
    facts_that_connect_agent,
    find_facts_of_messages,
    find_imported_session,
    has_imported_facts,
)
from helix_desktop.gateway.view_entries import (
    As,
    Changed,
    Entry,
    ViewEntries,
    ViewEntriesBuilder,
    without_taken_out,
)
from helix_desktop.json_values import object_at, parse_json
from helix_desktop.protocols.gateway_message import Piece, PieceKind, Speaker, Wired
from helix_desktop.tools import recall_tools
from helix_desktop.tools.built_in_tool import ToolArguments
from helix_desktop.workbench.open_workbench import Workbench

log = logging.getLogger(__name__)

UNSENT_MESSAGE = Wired(Speaker.USER, (), ())
MOST_OPEN_CONVERSATIONS = 24  # The maximum number of conversations that are kept open.
MESSAGES_IN_COMMIT = 30
TITLE_CHARACTERS = 60
# The recording of a long history pauses for this long after a request, and for at most
# FIRST_REQUEST_SECONDS longer until the first request of another session is recorded.
QUIET_SECONDS = 0.025
FIRST_REQUEST_SECONDS = 0.25
MOST_RECENT_FACTS = 200  # Among these, a conversation's newest output is looked for.
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

    line: KnownMessages
    ticket: Ticket

    def is_continued_by(self, arrival: Arrival) -> bool:
        last_hash = arrival.chain[self.ticket.messages - 1 : self.ticket.messages]
        return last_hash == (self.ticket.last,) and self.line.agent == arrival.agent


@dataclass(frozen=True, slots=True)
class ForkBase:
    """A conversation and its last fact before the messages that a fork has of its own."""

    conversation: str
    last_seq: int


class LocalAgentConversations:
    def __init__(self, bench: Workbench, ask: AskAgentModel) -> None:
        self._bench = bench
        self._ask = ask
        self._matcher = ConversationMatcher()
        self._open_conversations: dict[str, OpenAgentConversation] = {}
        self._closed_figures: dict[str, ClosedFigures] = {}
        self._read = asyncio.Lock()
        self._is_read = False
        self._quiet_until = 0.0  # A time of the event loop's clock.
        self._tasks = concurrency.OwnedTasks("recording requests")
        self._running_imports: list[RunningImport] = []

    async def count_known_messages(self, arrival: Arrival) -> int:
        """Return how many of the messages are, or will be, facts."""
        await self._read_stored_lines_once()
        running = self._find_running_import(arrival)
        if running is not None:
            return running.ticket.messages
        return self._find_position_of(arrival).known_count

    async def receive_request(
        self, arrival: Arrival, messages: Sequence[Wired], *, known_count: int = 0
    ) -> Sent:
        """Records the new messages, folds what is due, and returns the entries to send.
        `known_count`: how many earlier messages are recorded here already. While a long
        history is recorded, what follows it goes on as it came and is recorded behind
        it.
        """
        all_messages = [UNSENT_MESSAGE] * known_count
        all_messages += messages
        self._quiet_until = asyncio.get_running_loop().time() + QUIET_SECONDS
        await self._read_stored_lines_once()
        running = self._find_running_import(arrival)
        if running is None:
            sent = await self._receive_when_free(arrival, all_messages, known_count)
            self._bench.replies_under_way.remember_asked_reply(sent.ticket.conversation)
            self._quiet_until = asyncio.get_running_loop().time() + QUIET_SECONDS
            return sent
        line = running.line
        recording = self._receive_when_free(arrival, all_messages, known_count, line)
        self._tasks.spawn_task(recording, name="record behind a history")
        ticket = replace(running.ticket, messages=len(arrival.chain), last=arrival.chain[-1])
        follower = await self._get_open_conversation(line)
        builder = ViewEntriesBuilder(follower.conversation, line.seqs, {})
        taken_out = tuple(builder.find_taken_out())
        entries = without_taken_out(len(all_messages), taken_out)
        return Sent(ticket, entries, recallable=False, taken_out=taken_out)

    def _find_running_import(self, arrival: Arrival) -> RunningImport | None:
        """Return the long history that this request continues, if it is still being recorded."""
        for running in self._running_imports:
            if running.is_continued_by(arrival):
                return running
        return None

    async def _receive_when_free(
        self,
        arrival: Arrival,
        messages: Sequence[Wired],
        known_count: int,
        behind: KnownMessages | None = None,
    ) -> Sent:
        """Record a request. `behind`: the history before it, of which nothing may be
        recorded yet.
        """
        while True:
            place = self._find_position_of(arrival)
            line = behind or place.line
            track = line
            if track is None:
                track = KnownMessages("", arrival.session, arrival.head, agent=arrival.agent)
                self._matcher.add_known_messages(track)
            if behind is None:
                sent = self._forward_if_no_fold_due(arrival, messages, place, track)
                if sent is not None:
                    return sent
            async with track.lock_once_recorded():
                if line is not None:
                    place = self._find_position_of(arrival)  # It may have grown meanwhile.
                if place.line is not line:
                    behind = None
                    continue
                if place.known_count < known_count:
                    raise ActionRefused("The conversation was continued elsewhere in the meantime.")
                return await self._record_and_fold_request(arrival, messages, place, track)

    async def preview_request(self, arrival: Arrival, messages: Sequence[Wired]) -> Sent:
        """Return what the request would become, without recording it."""
        await self._read_stored_lines_once()
        place = self._find_position_of(arrival)
        entries: tuple[Entry, ...] = ()
        taken_out: tuple[Changed, ...] = ()
        if place.line is not None and place.seqs and place.line.conversation:
            follower = await self._get_open_conversation(place.line)
            if place.is_at_end:
                view = follower.conversation.current_view()
            else:
                view = follower.view_at_fact(place.seqs[-1])
            shown = (await follower.build_entries_of_view(view, place.seqs))[0]
            entries = shown.entries
            taken_out = shown.taken_out
        known_count = 0
        if place.seqs:
            known_count = place.known_count
        entries += tuple(map(As, range(known_count, len(messages))))
        ticket = _build_ticket(place.line or KnownMessages("", "", ""), arrival, 0)
        return Sent(ticket, entries, recallable=False, taken_out=taken_out)

    def _find_position_of(self, arrival: Arrival) -> RequestPosition:
        """Return a request's position, forgetting conversations deleted meanwhile."""
        sender = RequestSender(
            arrival.agent, arrival.session, arrival.parent, arrival.is_below_another
        )
        while True:
            place = self._matcher.find_request_position(sender, arrival.chain, arrival.head)
            gone = self._find_deleted_conversation(place)
            if not gone:
                return place
            self._matcher.remove_known_messages(gone)
            self._open_conversations.pop(gone, None)

    def _find_deleted_conversation(self, place: RequestPosition) -> str:
        """Return the conversation of a position if the user deleted it meanwhile."""
        named = [place.parent]
        if place.line is not None:
            named.append(place.line.conversation)
        for name in named:
            if name and not self._bench.has_conversation(name):
                return name
        return ""

    async def _record_and_fold_request(
        self,
        arrival: Arrival,
        messages: Sequence[Wired],
        place: RequestPosition,
        track: KnownMessages,
    ) -> Sent:
        is_known = place.line is not None and place.known_count == len(messages)
        if is_known and not place.is_at_end and not _belongs_to_same_session(arrival, track):
            return await self._build_view_of_earlier_request(arrival, place, track)
        track = await self._go_to_position(arrival, messages, place, track)
        self._matcher.assign_session(track, arrival.session, arrival.head)
        follower = await self._get_open_conversation(track)
        conversation = follower.conversation
        await self._go_on_behind_known_messages(follower, track, arrival, messages)
        await follower.apply_request_settings(arrival)
        if not arrival.fold or _is_long_history(messages, track):
            shown = await follower.update_entries(track)
            return self._forward_before_recording(follower, track, arrival, messages, shown)
        await self._append_unrecorded_messages(follower, track, arrival, messages)
        track.newest_fact_sent = conversation.state.seq
        await follower.follower.apply_folds_and_get_view()
        shown = await follower.update_entries(track)
        ticket = _build_ticket(track, arrival, conversation.state.seq)
        return Sent(ticket, shown.entries, shown.has_fold, shown.taken_out)

    async def _go_on_behind_known_messages(
        self,
        follower: OpenAgentConversation,
        track: KnownMessages,
        arrival: Arrival,
        messages: Sequence[Wired],
    ) -> None:
        """Let the conversation end where the request's new messages begin."""
        recorded_facts = follower.conversation.state.facts
        if _seq_of_last_message(recorded_facts) <= track.last_message_seq:
            return
        if has_imported_facts(recorded_facts, track.last_message_seq):
            # The session went on without the gateway, and its file was imported meanwhile.
            new = messages[len(track.chain) :]
            seqs = await asyncio.to_thread(
                find_facts_of_messages, recorded_facts, new, track.last_message_seq
            )
            await self._add_imported_messages(follower, track, arrival, seqs)
        if _seq_of_last_message(recorded_facts) > track.last_message_seq:
            # A recorded reply never reached the agent, so rewind the conversation.
            await follower.rewind_and_keep_exclusions(track.last_message_seq)

    async def _add_imported_messages(
        self,
        follower: OpenAgentConversation,
        track: KnownMessages,
        arrival: Arrival,
        seqs: Sequence[int],
    ) -> None:
        """Remember for which messages of the request there are imported facts."""
        if not seqs:
            return
        known = len(track.chain)
        hashes = arrival.chain[known : known + len(seqs)]
        received = facts.Received(hashes, tuple(seqs), track.session, track.head)
        await follower.conversation.append_facts(received)
        for hashed, seq in zip(hashes, seqs, strict=True):
            self._matcher.append_message_hash(track, hashed, seq)

    async def _build_view_of_earlier_request(
        self, arrival: Arrival, place: RequestPosition, track: KnownMessages
    ) -> Sent:
        """Answer a request that is repeated, or that another session shares: nothing is recorded."""
        self._matcher.assign_session(track, arrival.session, arrival.head)
        follower = await self._get_open_conversation(track)
        view = follower.view_at_fact(place.seqs[-1])
        shown = (await follower.build_entries_of_view(view, place.seqs))[0]
        ticket = _build_ticket(track, arrival, follower.conversation.state.seq)
        return Sent(replace(ticket, live=False), shown.entries, shown.has_fold, shown.taken_out)

    async def _go_to_position(
        self,
        arrival: Arrival,
        messages: Sequence[Wired],
        place: RequestPosition,
        track: KnownMessages,
    ) -> KnownMessages:
        """Return the line that the request goes on with: a new, a rewound or a forked one."""
        if not track.conversation:
            await self._start_line(arrival, messages, place.parent, track)
            return track
        if place.is_at_end:
            return track
        if _belongs_to_same_session(arrival, track):
            await self._rewind(place, track, arrival)
            return track
        # An agent that names no conversation: this may be another session with the same beginning.
        follower = await self._get_open_conversation(track)
        seq = _last_seq_of_position(place)
        # In a fork, what the user took out of the beginning stays out.
        if follower.was_answered_before(seq) or follower.has_taken_out_parts:
            return await self._fork(arrival, messages, place, track)
        fresh = KnownMessages("", arrival.session, arrival.head, agent=arrival.agent)
        self._matcher.add_known_messages(fresh)
        await self._start_line(arrival, messages, place.parent, fresh)
        return fresh

    async def _start_line(
        self, arrival: Arrival, messages: Sequence[Wired], parent: str, track: KnownMessages
    ) -> None:
        self._quiet_until += FIRST_REQUEST_SECONDS
        imported = await find_imported_session(self._bench, arrival, messages)
        if imported is not None and not self._matcher.find_known_messages(imported.conversation):
            await self._continue_imported_session(imported, arrival, track)
            return
        base = await self._find_fork_base(arrival, messages, parent)
        if base is not None:
            session = await self._bench.fork_conversation(
                base.conversation, base.last_seq, agent=arrival.agent
            )
        else:
            above = parent
            if not above and self._bench.has_conversation(arrival.below):
                above = arrival.below
            title = title_from_messages(messages)
            session = await self._bench.start_conversation(title, agent=arrival.agent, parent=above)
        track.conversation = session.id

    async def _continue_imported_session(
        self, imported: ImportedSession, arrival: Arrival, track: KnownMessages
    ) -> None:
        """Go on in the conversation that an import made of the agent's session."""
        session = await self._bench.open_session(imported.conversation)
        await session.conversation.append_facts(*facts_that_connect_agent(imported, arrival))
        track.conversation = session.id
        for hashed, seq in zip(arrival.chain, imported.seqs, strict=False):
            self._matcher.append_message_hash(track, hashed, seq)

    async def _find_fork_base(
        self, arrival: Arrival, messages: Sequence[Wired], above: str
    ) -> ForkBase | None:
        """Return the conversation whose newest output a request contains. If an agent has
        a session, it can only be `above`: the agent has changed its tools and its first
        message at once.
        """
        if arrival.session and arrival.is_below_another:
            return None
        candidates: dict[str, OpenAgentConversation] = {}
        for name, follower in reversed(self._open_conversations.items()):
            may_be_it = name == above or not arrival.session
            if may_be_it and follower.session.agent == arrival.agent:
                candidates[name] = follower
        if not candidates:
            return None
        results = await asyncio.to_thread(_digests_of_results, messages)  # It may take a second.
        for name, follower in candidates.items():
            state = follower.conversation.state
            newest = _newest_output_among(state.facts, results)
            if newest is None or not state.branch.order:
                continue
            if results[newest.call] == newest.output.digest:
                return ForkBase(name, state.branch.order[0] - 1)
        return None

    # --- Sending requests before they are recorded

    def _forward_if_no_fold_due(
        self,
        arrival: Arrival,
        messages: Sequence[Wired],
        place: RequestPosition,
        track: KnownMessages,
    ) -> Sent | None:
        """Send the request before recording it if no fold can be due. The reply waits
        for the recording.

        What the new messages make due is folded for the next request. None: something
        may be due now.
        """
        has_new_messages = place.is_at_end and place.known_count < len(messages)
        if not has_new_messages or not track.can_lock_now:
            return None
        follower = self._open_conversations.get(track.conversation)
        if follower is None or follower.last_entries is None:
            return None
        shown = follower.last_entries
        if shown.seq != follower.conversation.state.seq:
            return None
        if follower.applied_settings != follower.settings_of_arrival(arrival):
            return None
        if not follower.cannot_make_fold_due(messages[place.known_count :]):
            return None
        self._matcher.assign_session(track, arrival.session, arrival.head)
        return self._forward_before_recording(follower, track, arrival, messages, shown)

    def _forward_before_recording(
        self,
        follower: OpenAgentConversation,
        track: KnownMessages,
        arrival: Arrival,
        messages: Sequence[Wired],
        shown: ViewEntries,
    ) -> Sent:
        """Send known messages as the view shows them, and all others as they came."""
        first = len(track.chain) or len(messages)  # Else the body is sent as it came.
        entries = shown.entries + tuple(map(As, range(first, len(messages))))
        ticket = _build_ticket(track, arrival, follower.conversation.state.seq)
        ticket = replace(ticket, ahead=True, is_import=_is_long_history(messages, track))
        track.is_recorded.clear()
        track.is_wanted.clear()
        try:
            recording = self._record_forwarded_request(follower, track, arrival, messages)
            self._tasks.spawn_task(recording, name="record a request")
        except StoppedByUser:
            track.is_recorded.set()
            raise
        if ticket.is_import:
            self._running_imports.append(RunningImport(track, ticket))
        return Sent(ticket, entries, shown.has_fold, shown.taken_out)

    async def _append_unrecorded_messages(
        self,
        follower: OpenAgentConversation,
        track: KnownMessages,
        arrival: Arrival,
        messages: Sequence[Wired],
    ) -> None:
        """Record long histories in parts, one commit each, so that an aborted request
        can be continued later.
        """
        is_long = _is_long_history(messages, track)
        is_together = is_long or _can_be_written_together(messages[len(track.chain) :])
        while len(track.chain) < len(messages):
            if is_long:
                await self._pause_for_other_requests()
                # It counts as just used: closed and opened again, it would be in memory twice.
                held = self._open_conversations
                held[track.conversation] = held.pop(track.conversation, follower)
            await self._append_next_batch(
                follower, track, arrival, messages, is_together=is_together
            )
            # The view is built part by part: all at once would delay other agents.
            follower.conversation.current_view()

    async def _pause_for_other_requests(self) -> None:
        """Wait until it is quiet, or for a quarter of a second: a session's first request waits
        for several of these commits.
        """
        for _ in range(round(FIRST_REQUEST_SECONDS / QUIET_SECONDS) + 1):
            left = self._quiet_until - asyncio.get_running_loop().time()
            await asyncio.sleep(min(left, QUIET_SECONDS))

    async def _append_next_batch(
        self,
        follower: OpenAgentConversation,
        track: KnownMessages,
        arrival: Arrival,
        messages: Sequence[Wired],
        *,
        is_together: bool,
    ) -> None:
        known = len(track.chain)
        end = _end_of_next_batch(messages, known)
        hashes = arrival.chain[known:end]
        # Their pieces are kept meanwhile: those of short messages are parsed at each use.
        batch = [
            Wired(message.speaker, message.units, message.pieces) for message in messages[known:end]
        ]
        transaction = follower.write_in_one_transaction() if is_together else nullcontext(follower)
        async with transaction as writer:
            first = writer.conversation.state.seq + 1
            seqs = await writer.append_messages(batch, track.last_message_seq)
            new_facts: list[facts.Fact] = [
                facts.Received(hashes, tuple(seqs), track.session, track.head)
            ]
            if any(message.speaker is Speaker.ASSISTANT for message in batch):
                # The agent got these replies without the gateway.
                new_facts.append(facts.BroughtIn(facts.Origin(), "", first))
            await writer.conversation.append_facts(*new_facts)
        for hashed, seq in zip(hashes, seqs, strict=True):
            self._matcher.append_message_hash(track, hashed, seq)

    async def _record_forwarded_request(
        self,
        follower: OpenAgentConversation,
        track: KnownMessages,
        arrival: Arrival,
        messages: Sequence[Wired],
    ) -> None:
        """Record a request after sending it. An immediate answer gets through, but the reply's
        end waits for this, except for long histories, which take a millisecond a message.
        """
        with suppress(TimeoutError):
            await concurrency.wait_with_limit(track.is_wanted.wait(), AHEAD_SECONDS)
        try:
            is_long = _is_long_history(messages, track)
            await self._append_unrecorded_messages(follower, track, arrival, messages)
            if is_long:  # The memory that recording has left unused is needed for its fold.
                gc.freeze()  # These facts are long-lived, so garbage collection can skip them.
                await asyncio.to_thread(glibc_memory.return_free_pages)
            track.newest_fact_sent = follower.conversation.state.seq
            if arrival.fold:
                await follower.follower.apply_folds_and_get_view()
            await follower.update_entries(track)
            if is_long:  # What the fold needed is free again: with 37,000 messages, 25 MB.
                await asyncio.to_thread(glibc_memory.return_free_pages)
        except StoppedByUser:
            log.info("a request is recorded with the next one, since the workspace is being closed")
        except Exception:
            log.exception("a request could not be recorded; it had gone on already")
            follower.last_entries = None
        finally:
            self._running_imports = [
                running for running in self._running_imports if running.line is not track
            ]
            track.is_recorded.set()

    async def _rewind(self, place: RequestPosition, track: KnownMessages, arrival: Arrival) -> None:
        """Handle a request that leaves the known line of its own conversation."""
        follower = await self._get_open_conversation(track)
        await follower.rewind_and_keep_exclusions(_last_seq_of_position(place))
        track.rewind_known_messages(
            arrival.chain[: place.known_count], place.seqs[: place.known_count]
        )

    async def _fork(
        self,
        arrival: Arrival,
        messages: Sequence[Wired],
        place: RequestPosition,
        track: KnownMessages,
    ) -> KnownMessages:
        """Fork the conversation where the request leaves it. The fork is named by what is new."""
        seq = place.seqs[-1]
        kept_out = (await self._get_open_conversation(track)).exclusions_made_after(seq)
        session = await self._bench.fork_conversation(track.conversation, seq, agent=track.agent)
        new_facts: list[facts.Fact] = list(kept_out)
        title = title_from_messages(messages[place.known_count :])
        if title:
            new_facts.append(facts.ConversationChanged(title=title))
        if new_facts:
            await session.conversation.append_facts(*new_facts)
        fresh = KnownMessages(
            session.id,
            arrival.session,
            arrival.head,
            chain=list(arrival.chain[: place.known_count]),
            seqs=list(place.seqs),
            agent=arrival.agent,
        )
        self._matcher.add_known_messages(fresh)
        await self._record_which_messages_fork_contains(fresh)
        return fresh

    async def _record_which_messages_fork_contains(self, track: KnownMessages) -> None:
        """Record which messages a fork's facts stand for, because that note is not copied."""
        recorded = await self._bench.workspace.journal.facts_about_received_messages(
            track.conversation
        )
        noted = len(known_messages_from_facts(track.conversation, recorded).chain)
        if noted < len(track.chain):
            follower = await self._get_open_conversation(track)
            fact = facts.Received(
                tuple(track.chain[noted:]), tuple(track.seqs[noted:]), track.session, track.head
            )
            await follower.conversation.append_facts(fact)

    async def _get_open_conversation(self, track: KnownMessages) -> OpenAgentConversation:
        """Return the conversation, opened. Closes those not used recently."""
        name = track.conversation
        follower = self._open_conversations.pop(name, None)
        if follower is None:
            follower = await OpenAgentConversation.open_by_name(self._bench, name, self._ask)
        self._open_conversations[name] = follower  # It is now the one used last.
        while len(self._open_conversations) > MOST_OPEN_CONVERSATIONS:
            del self._open_conversations[next(iter(self._open_conversations))]
        return follower

    async def answer_hidden_calls(
        self, ticket: Ticket, replied: Replied, calls: Sequence[Piece], refusal: str = ""
    ) -> list[tuple[str, str, str, bool]]:
        """Record a reply with calls of ours, and answer them: id, name, text and
        success of each.
        """
        track = self._known_messages_of_ticket(ticket)
        outputs = []
        for call in calls:
            if refusal:
                text = refusal
                is_ok = False
            else:
                text, is_ok = await self._run_recall_call(call, track)
            outputs.append(AgentOutput(call.id, text, is_ok))
        if track is not None:
            async with track.lock_once_recorded():
                await self._record_hidden_reply(track, ticket, replied, outputs)
        return [
            (call.id, call.name, output.text, output.ok)
            for call, output in zip(calls, outputs, strict=True)
        ]

    async def _record_hidden_reply(
        self,
        track: KnownMessages,
        ticket: Ticket,
        replied: Replied,
        outputs: Sequence[AgentOutput],
    ) -> None:
        follower = await self._get_open_conversation(track)
        reply = follower.build_agent_reply(replied)
        if ticket.live and self._is_unchanged_since(track, ticket):
            await follower.follower.record_reply(reply, _newest_fact_sent(track, ticket))
            await follower.follower.record_outputs(list(outputs))
        else:  # The agent went on without this reply, so only what it cost is kept.
            spent = facts.Spent(facts.Purpose.STEP, reply.model, reply.usage)
            await follower.conversation.append_facts(spent)

    async def record_agent_reply(
        self, ticket: Ticket, replied: Replied | None, shown_key: str
    ) -> None:
        """Record a reply. `shown_key`: of what the agent saw; empty: cut off; None: the
        last hidden one.
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
        track = self._known_messages_of_ticket(ticket)
        if track is None or not track.conversation:
            return
        async with track.lock_once_recorded():
            is_side = not ticket.messages  # It is beside the conversation.
            went_on = is_side or not ticket.live or not self._is_unchanged_since(track, ticket)
            if replied is not None and (went_on or not shown_key):
                await self._record_cost_alone(track, replied, is_side=is_side)
            elif not went_on:
                await self._record_shown_reply(track, ticket, replied, shown_key)

    async def _record_cost_alone(
        self, track: KnownMessages, replied: Replied, *, is_side: bool
    ) -> None:
        """Record what a reply cost of which the agent has nothing."""
        follower = await self._get_open_conversation(track)
        if replied.stop is facts.Stop.CUT and not is_side:
            replied = await follower.with_estimated_usage(replied)
        paid = follower.build_agent_reply(replied, is_side=is_side)
        purpose = facts.Purpose.OTHER if is_side else facts.Purpose.STEP
        await follower.conversation.append_facts(facts.Spent(purpose, paid.model, paid.usage))

    async def _record_shown_reply(
        self, track: KnownMessages, ticket: Ticket, replied: Replied | None, shown_key: str
    ) -> None:
        follower = await self._get_open_conversation(track)
        conversation = follower.conversation
        if replied is not None:
            await follower.count_tokens_of_texts([piece.text for piece in replied.pieces])
            reply = follower.build_agent_reply(replied)
            await follower.follower.record_reply(reply, _newest_fact_sent(track, ticket))
        hashed = next_message_hash(track.chain, ticket.wire, shown_key)
        self._matcher.append_message_hash(track, hashed, conversation.state.seq)
        new_facts: list[facts.Fact] = [
            facts.Received((hashed,), (track.last_message_seq,), track.session, track.head)
        ]
        ends_turn = replied is not None and replied.stop is not facts.Stop.CALLS
        if ends_turn:
            new_facts.append(facts.TurnEnded(facts.TurnEnd.DONE))
        await conversation.append_facts(*new_facts)
        if ends_turn:
            follower.session.folding.start_folds_after_turn()
        await follower.update_entries(track)

    async def fold_after_overflow(self, ticket: Ticket) -> Sent | None:
        """Fold because the provider found the request too long. None: no more can be folded."""
        track = self._known_messages_of_ticket(ticket)
        if track is None or not ticket.live:
            return None
        async with track.lock_once_recorded():
            if not self._is_unchanged_since(track, ticket):
                return None
            follower = await self._get_open_conversation(track)
            conversation = follower.conversation
            if not _has_fold(conversation.state.facts[ticket.saw :]):
                before = conversation.state.counted_tokens
                await follower.session.folding.apply_due_folds(overflowed=True)
                if conversation.state.counted_tokens >= before:
                    return None
            shown = await follower.update_entries(track)
            again = replace(ticket, saw=conversation.state.seq, ahead=False)
            return Sent(again, shown.entries, recallable=True, taken_out=shown.taken_out)

    async def figures_since(self, since: float = 0.0) -> Sequence[Figures]:
        """Return the figures of open conversations. `since`: of all used after that
        time, from then on.
        """
        figures = [
            compute_agent_figures(name, held.conversation.state, since)
            for name, held in list(self._open_conversations.items())
        ]
        if not since:
            return figures
        known = {figure.conversation for figure in figures}
        for row in self._bench.list_conversations():
            if row.agent and row.updated >= since and row.id not in known:
                figures.append(await self._figures_of_closed(row.id, row.updated, since))
        return [figure for figure in figures if figure.requests]

    async def _figures_of_closed(self, name: str, updated: float, since: float) -> Figures:
        kept = self._closed_figures.get(name)
        if kept is None or (kept.updated, kept.since) != (updated, since):
            opened = await Conversation.open(self._bench.workspace.journal, name)
            computed = compute_agent_figures(name, opened.state, since)
            kept = ClosedFigures(updated, since, computed)
            self._closed_figures[name] = kept
        return kept.figures

    def _known_messages_of_ticket(self, ticket: Ticket) -> KnownMessages | None:
        if not self._bench.has_conversation(ticket.conversation):
            return None
        return self._matcher.find_known_messages(ticket.conversation)

    @staticmethod
    def _is_unchanged_since(track: KnownMessages, ticket: Ticket) -> bool:
        return len(track.chain) == ticket.messages and track.chain[-1] == ticket.last

    async def _run_recall_call(self, call: Piece, track: KnownMessages | None) -> tuple[str, bool]:
        """Run a hidden recall call. Return its text and success; the model gets errors as text."""
        try:
            arguments = ToolArguments(object_at(parse_json(call.text or "{}")))
            if call.name.startswith("search"):
                query = arguments.text_argument("query")
                limit = arguments.number_argument("limit", 10)
                index = self._bench.workspace.index
                return await content_recall.search_entries(index, query, limit=limit), True
            conversation = None
            if track is not None:
                conversation = (await self._get_open_conversation(track)).conversation
            if call.name == ToolName.RECALL_HISTORY:
                return await self._recall_history(arguments, conversation)
            return await self._recall_entry(arguments, conversation), True
        except (HelixError, ValueError) as error:
            return f"[{error}]", False

    async def _recall_entry(
        self, arguments: ToolArguments, conversation: Conversation | None
    ) -> str:
        most = 0
        if conversation is not None:
            most = content_recall.most_tokens_recalled_whole(
                conversation.state, conversation.policy
            )
        cache = self._bench.workspace.cache
        return await recall_tools.recall_asked_entry(
            arguments, cache, self._bench.token_counter, most
        )

    async def _recall_history(
        self, arguments: ToolArguments, conversation: Conversation | None
    ) -> tuple[str, bool]:
        if conversation is None:
            return "[This conversation's earlier messages cannot be recalled now.]", False
        fold = arguments.text_argument("fold")
        words = arguments.text_argument("find")
        text = await content_recall.recall_folded_messages(
            conversation.state, self._bench.workspace.cache, self._bench.token_counter, fold, words
        )
        return text, True

    # --- Reading known conversations again after a restart

    async def _read_stored_lines_once(self) -> None:
        async with self._read:
            if self._is_read:
                return
            journal = self._bench.workspace.journal
            for row in sorted(self._bench.list_conversations(), key=lambda row: row.updated):
                if row.agent and not row.trashed:
                    recorded_facts = await journal.facts_about_received_messages(row.id)
                    self._matcher.add_known_messages(
                        known_messages_from_facts(row.id, recorded_facts, row.agent)
                    )
            self._is_read = True

    async def aclose(self) -> None:
        """Close the conversations once forwarded requests are recorded."""
        await self._tasks.wait_for_all_tasks()
        await self._tasks.aclose(limit=1)
        self._open_conversations.clear()


def _digests_of_results(messages: Sequence[Wired]) -> dict[str, Digest]:
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


def _can_be_written_together(messages: Sequence[Wired]) -> bool:
    """Whether several messages need no model to shorten them."""
    if len(messages) <= 1:
        return False
    characters = sum(len(piece.text) for message in messages for piece in message.pieces)
    return characters <= COUNTED_HERE


def _is_long_history(messages: Sequence[Wired], track: KnownMessages) -> bool:
    """Whether so many messages are new that it is sent, without folds, before they are recorded."""
    return len(messages) - len(track.chain) > LONG_HISTORY_MESSAGES + len(track.chain) // 50


def _end_of_next_batch(messages: Sequence[Wired], first: int) -> int:
    """Return the end of the batch at `first`: before a reply if possible, so that
    results stay together.
    """
    most = min(first + 2 * MESSAGES_IN_COMMIT, len(messages))
    for position in range(first + MESSAGES_IN_COMMIT, most):
        if messages[position].speaker is Speaker.ASSISTANT:
            return position
    return most


def known_messages_from_facts(
    conversation: str, recorded_facts: Sequence[facts.Recorded], agent: str = ""
) -> KnownMessages:
    track = KnownMessages(conversation, "", "", agent=agent)
    for recorded in recorded_facts:
        fact = recorded.fact
        if isinstance(fact, facts.Rewound):
            known = sum(seq <= fact.to for seq in track.seqs)
            del track.chain[known:], track.seqs[known:]
        elif isinstance(fact, facts.Received):
            track.chain.extend(fact.chain)
            track.seqs.extend(fact.seqs)
            track.session = fact.session
            track.head = fact.head
            track.heads.add(fact.head)
    return track


def _build_ticket(track: KnownMessages, arrival: Arrival, newest_seq_sent: int) -> Ticket:
    return Ticket(
        track.conversation, len(arrival.chain), arrival.chain[-1], newest_seq_sent, arrival.wire
    )


def _newest_fact_sent(track: KnownMessages, ticket: Ticket) -> int:
    if ticket.ahead:
        return track.newest_fact_sent
    return ticket.saw


def _last_seq_of_position(place: RequestPosition) -> int:
    if not place.seqs:
        return 0
    return place.seqs[-1]


def _has_fold(recorded_facts: Sequence[facts.Recorded]) -> bool:
    return any(isinstance(recorded.fact, facts.Folded) for recorded in recorded_facts)


def _belongs_to_same_session(arrival: Arrival, track: KnownMessages) -> bool:
    """Whether it names this session, so that missing messages were rewound or are being
    repeated.
    """
    return bool(arrival.session) and arrival.session == track.session


def title_from_messages(messages: Sequence[Wired]) -> str:
    """Return the first words of a person, without what the client added."""
    for message in messages:
        if message.speaker is not Speaker.USER:
            continue
        for piece in message.pieces_of_kind(PieceKind.TEXT):
            own_words, _ = split_off_tagged_blocks(piece.text[:20_000], _OPENING_TAG)
            if own_words.strip():
                first_line = own_words.strip().splitlines()[0]
                return shorten_to_line(first_line, TITLE_CHARACTERS)
    return ""


def _seq_of_last_message(recorded_facts: Sequence[facts.Recorded]) -> int:
    kinds = facts.ModelReplied | facts.ToolReturned | facts.UserSaid | facts.Rewound
    for recorded in reversed(recorded_facts):
        if isinstance(recorded.fact, facts.Rewound):
            return 0
        if isinstance(recorded.fact, kinds):
            return recorded.seq
    return 0
