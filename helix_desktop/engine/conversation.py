"""One conversation in memory: its state, and the only way facts get into it.

Facts are written to the journal first. They enter the state once they are on disk, in
order, and then listeners are called. One lock keeps that order, even if the caller is
cancelled during a write. Only parts of a long history enter the state first
(`append_together`), and leave it again if they can't be written.
"""

import asyncio
import gc
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from helix_desktop.engine.context_policy import Policy, policy_from_fact
from helix_desktop.engine.context_usage import WindowMeter, measure_window
from helix_desktop.engine.facts import (
    Fact,
    Folded,
    FoldKind,
    PartRef,
    Pinned,
    PolicySet,
    Recorded,
    Rewound,
    ToolReturned,
)
from helix_desktop.engine.messages import View
from helix_desktop.engine.ports import JournalPort
from helix_desktop.engine.prompt_cache_marks import MarkedRequest
from helix_desktop.engine.server_speed import ServerSpeed
from helix_desktop.engine.session_events import ConversationReplaced, Event, FactAppended
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.state.request_settings import RequestSettings
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.errors import ActionRefused, HelixError, NotFound, StoreFailed

Listener = Callable[[Event], None]
Facts = Sequence[Fact]
# Outputs of so many characters are not kept in memory if so many facts are written at once.
LEAST_LEFT_OUT = 100
LEAST_FACTS = 20
# After reading more facts, garbage collection is told to skip them.
MANY_FACTS = 10_000


class Conversation:
    """One conversation's state. `append_facts` writes all of the facts to journal and
    state, or none.
    """

    def __init__(self, journal: JournalPort, conversation: str, state: ConversationState) -> None:
        self.journal = journal
        self.id = conversation
        self.state = state
        self.listeners: list[Listener] = []
        # The last request, one number per message. Its unchanged beginning is in the
        # provider's cache.
        self.sent = MarkedRequest()
        # The last undo and the number of rewinds when it was examined what the model
        # has to be told.
        self.examined_undo = (0, 0)
        self.speed = ServerSpeed()
        self._lock = asyncio.Lock()
        self._last_fold_number = 0  # The number of the last fold name that was given out.
        self._policy: Policy | None = None
        self._policy_fact: PolicySet | None = None
        # The next request's settings: those recorded last, and those that it will use.
        self._expected: tuple[RequestSettings, RequestSettings] | None = None

    @classmethod
    async def open(cls, journal: JournalPort, conversation: str) -> "Conversation":
        return cls(journal, conversation, await _read_state(journal, conversation))

    async def append_facts(self, *facts: Fact) -> tuple[Recorded, ...]:
        """Append all facts or none. A fold over part 0 of seq 0, -1, … covers the
        first, second, … fact.
        """
        return await self.append_facts_from(lambda _: facts)

    async def append_facts_from(self, make: Callable[[int], Facts]) -> tuple[Recorded, ...]:
        """Append the facts that `make(next_seq)` returns. It runs under the lock, so
        what it checks still holds.
        """
        written = await asyncio.shield(self._write_facts_or_return_error(make))
        if isinstance(written, HelixError):
            raise written
        return written

    async def _write_facts_or_return_error(
        self, make: Callable[[int], Facts]
    ) -> tuple[Recorded, ...] | HelixError:
        """Write facts, even if the caller is cancelled. That is why an error is
        returned, not raised.
        """
        recorded: tuple[Recorded, ...] = ()
        async with self._lock:
            first_seq = self.state.seq + 1
            facts = tuple(resolve_relative_cover(fact, first_seq) for fact in make(first_seq))
            try:
                if facts:
                    recorded = tuple(await self.journal.append_to_journal(self.id, facts))
            except (StoreFailed, ActionRefused) as error:
                return error
            await self._advance_state(recorded)
        self._notify_of_facts(recorded)
        return recorded

    async def wait_until_recorded(self) -> None:
        """Wait until all appends are on disk and listeners know. Cancelling stops only the wait."""
        async with self._lock:
            pass

    async def append_foreign_facts(self, append_to_journal: Callable[[], Awaitable[None]]) -> None:
        """Add another machine's facts, which `append_to_journal` writes. Nothing else
        is written meanwhile.
        """
        failed = await asyncio.shield(self._append_foreign_facts_or_return_error(append_to_journal))
        if failed is not None:
            raise failed

    async def _append_foreign_facts_or_return_error(
        self, append_to_journal: Callable[[], Awaitable[None]]
    ) -> HelixError | None:
        """Let them be written, read them back, and tell listeners. An error is returned, because
        the task must run to its end even if nobody waits for it any more.
        """
        async with self._lock:
            try:
                await append_to_journal()
                recorded = await self.journal.read_facts(self.id, after=self.state.seq)
            except HelixError as error:
                return error
            await self._advance_state(recorded)
        self._notify_of_facts(recorded)
        return None

    async def _advance_state(self, recorded_facts: Sequence[Recorded]) -> None:
        for recorded in recorded_facts:
            branch = None
            if isinstance(recorded.fact, Rewound):
                # The branch to continue from. Building a long one takes a second.
                target_seq = max(0, min(recorded.fact.to, self.state.seq))
                branch = await asyncio.to_thread(self.state.branch_at_rewind, target_seq)
            self.state.advance_state(recorded, branch)

    @asynccontextmanager
    async def block_appending(self) -> AsyncIterator[None]:
        """Prevent appending while the caller works on the journal itself. If the caller has
        changed it, or fails, the state is read again.
        """
        is_changed = False
        try:
            async with self._lock:
                is_changed = True  # Until the journal is compared: also if the caller fails.
                try:
                    yield
                    is_changed = await self._differs_from_journal()
                finally:
                    if is_changed:
                        self.state = await _read_state(self.journal, self.id)
        finally:
            if is_changed:
                self.notify_listeners(ConversationReplaced(self.id))

    async def _differs_from_journal(self) -> bool:
        """Whether the journal's last fact is another one than the state's, or others follow it."""
        last_fact = self.state.facts[-1:]
        seq_before_last = self.state.seq - len(last_fact)
        newest_in_journal = await self.journal.read_facts(self.id, after=seq_before_last)
        return list(newest_in_journal) != list(last_fact)

    def new_fold_name(self, kind: FoldKind) -> str:
        """Return a name that no fold has, including those still being made."""
        self._last_fold_number = max(self._last_fold_number, self.state.last_fold) + 1
        return f"{kind.value}-{self._last_fold_number}"

    def fact_at(self, seq: int) -> Fact:
        """Return the fact with this number. Raises NotFound."""
        if not 1 <= seq <= len(self.state.facts):
            raise NotFound(
                f"This conversation has no record {seq}. The last record is {self.state.seq}."
            )
        return self.state.facts[seq - 1].fact

    def notify_listeners(self, event: Event) -> None:
        # A listener may add or remove others.
        for listener in tuple(self.listeners):
            listener(event)

    def _notify_of_facts(self, recorded_facts: Sequence[Recorded]) -> None:
        for recorded in recorded_facts:
            self.notify_listeners(FactAppended(recorded))

    def current_view(self) -> View:
        return self.state.get_view()

    @property
    def policy(self) -> Policy:
        """Return the policy in force. Its fact is parsed once."""
        return self.policy_at(self.state)

    def policy_at(self, moment: Moment) -> Policy:
        fact = moment.settings.policy
        if fact is not self._policy_fact or self._policy is None:
            self._policy_fact = fact
            self._policy = policy_from_fact(fact)
        return self._policy

    def current_meter(self) -> WindowMeter:
        return measure_window(self.state, self.policy)

    def set_expected_settings(self, facts: Facts) -> None:
        """Say what the user has chosen for the next request, such as another model.

        It is recorded only when the request is sent, so that a choice which is taken back leaves
        no trace. Until then, meters and costs are shown as if it were recorded.
        """
        recorded = self.state.settings
        expected = recorded
        for fact in facts:
            if not self.state.has_settings_of_fact(fact):
                expected = expected.settings_after(Recorded(self.id, 0, 0.0, fact))
        self._expected = None
        if expected is not recorded:
            self._expected = (recorded, expected)

    @property
    def expected_state(self) -> ConversationState:
        """Return the state with the settings expected for the next request. A turn
        records them first.
        """
        if self._expected is None:
            return self.state
        recorded, expected = self._expected
        if recorded is not self.state.settings:
            return self.state
        return self.state.with_settings(expected)

    @asynccontextmanager
    async def append_together(self) -> AsyncIterator["ConversationDraft"]:
        """Yield a draft whose facts are in the state at once, and at the end in the
        journal, in one transaction. Nobody else appends meanwhile. After a failure or
        cancellation, the state is read again.
        """
        await self._lock.acquire()
        last_written = self.state.seq
        is_whole = False
        try:
            yield ConversationDraft(self.journal, self.id, self.state)
            is_whole = True
        finally:
            writing = self._write_draft_and_release(last_written, is_whole=is_whole)
            failure = await asyncio.shield(writing)
        if failure is not None:
            raise failure

    async def _write_draft_and_release(
        self, last_written: int, *, is_whole: bool
    ) -> HelixError | None:
        """Write the draft's facts to the journal, and release the lock in any case.

        `last_written`: the last fact that the journal has already. `is_whole`: the draft was
        finished. If nothing was written, the draft's facts leave the state again.
        """
        new_facts = [recorded.fact for recorded in self.state.facts[last_written:]]
        written: tuple[Recorded, ...] = ()
        failure: HelixError | None = None
        try:
            if new_facts and is_whole:
                written = tuple(await self.journal.append_to_journal(self.id, new_facts))
                self._replace_draft_facts(last_written, written)
        except (StoreFailed, ActionRefused) as error:
            failure = error
        finally:
            # Also after an error that nobody foresaw: others wait for the lock.
            was_dropped = bool(new_facts) and not written
            await self._end_draft(written, was_dropped=was_dropped)
        return failure

    async def _end_draft(self, written: Sequence[Recorded], *, was_dropped: bool) -> None:
        """Release the lock and tell listeners what was written, or that the draft was dropped."""
        try:
            if was_dropped:
                self.state = await _read_state(self.journal, self.id)
        finally:
            self._lock.release()
        if was_dropped:
            self.notify_listeners(ConversationReplaced(self.id))
        else:
            self._notify_of_facts(written)

    def _replace_draft_facts(self, last_written: int, written: Sequence[Recorded]) -> None:
        """Put the facts as written, with their time in the journal, in place of the draft's.

        Of a long draft, such as an import, the texts of outputs do not stay in memory.
        """
        draft_facts = self.state.facts[last_written:]
        if len(draft_facts) < LEAST_FACTS:
            self.state.facts[last_written:] = written
            return
        shortened_facts: list[Recorded] = []
        for draft_fact, written_fact in zip(draft_facts, written, strict=False):
            shortened_facts.append(_recorded_without_long_output(draft_fact, written_fact))
        self.state.facts[last_written:] = shortened_facts

    async def moment_at(self, seq: int) -> Moment:
        """Compute, in a thread, the state when `seq` was the newest fact."""
        return await asyncio.to_thread(self.state.past_moment, seq)


class ConversationDraft(Conversation):
    """Appends to the state ahead of the journal, for one writer
    (`Conversation.append_together`).
    """

    async def append_facts_from(self, make: Callable[[int], Facts]) -> tuple[Recorded, ...]:
        """Append without a lock or task of its own, as no write can be cut off here."""
        first_seq = self.state.seq + 1
        current_time = time.time()
        recorded_facts: list[Recorded] = []
        for seq, fact in enumerate(make(first_seq), first_seq):
            resolved_fact = resolve_relative_cover(fact, first_seq)
            recorded_facts.append(Recorded(self.id, seq, current_time, resolved_fact))
        await self._advance_state(recorded_facts)
        return tuple(recorded_facts)


def _recorded_without_long_output(draft: Recorded, written: Recorded) -> Recorded:
    """Return the fact without its output's text, which the cache has and which takes
    much memory.
    """
    fact = written.fact
    if isinstance(fact, ToolReturned) and len(fact.head) > LEAST_LEFT_OUT:
        fact = replace(fact, head="")
    return replace(draft, time=written.time, fact=fact)


async def _read_state(journal: JournalPort, conversation: str) -> ConversationState:
    """Read the state in a thread, because a long conversation takes a second or two.

    Nothing that is created here is garbage. To look for it took a fifth of the time.
    """
    collects_garbage = gc.isenabled()
    gc.disable()
    try:
        recorded_facts = await journal.read_facts(conversation)
        state = await asyncio.to_thread(build_state, recorded_facts)
        if len(recorded_facts) > MANY_FACTS:
            gc.freeze()  # These facts are long-lived, so garbage collection can skip them.
    finally:
        if collects_garbage:
            gc.enable()
    return state


def new_conversation_id() -> str:
    """Return a unique ID that sorts by time. Also used for tasks of a fleet."""
    milliseconds = int(time.time() * 1000)
    return f"{milliseconds:012x}{secrets.token_hex(4)}"


def resolve_relative_cover(fact: Fact, first: int) -> Fact:
    """Replace a relative number in a fold's cover or a pin. `first`: the first new fact.

    What is appended together does not know its numbers yet. So 0 stands for the first new
    fact, -1 for the second.
    """
    if isinstance(fact, Folded) and isinstance(fact.cover, PartRef) and fact.cover.seq <= 0:
        cover = replace(fact.cover, seq=first - fact.cover.seq)
        return replace(fact, cover=cover)
    if isinstance(fact, Pinned) and isinstance(fact.ref, PartRef) and fact.ref.seq <= 0:
        ref = replace(fact.ref, seq=first - fact.ref.seq)
        return replace(fact, ref=ref)
    return fact
