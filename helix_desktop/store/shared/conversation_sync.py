"""Keeps conversations of several machines in step: sends what is new here, and fetches
what is new there.

Facts are always written here first. Content is sent before the segment that refers to
it, the segment before the head that names it, and the head changes by compare-and-set.
If another machine changed it, its facts are fetched and compared: a continuation is
appended, but if both wrote, what was written here becomes a branch. Leases by the
engine's clock allow one writer at a time. A late writer loses only the head.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, replace

from helix_desktop.engine import fact_encoding
from helix_desktop.engine.facts import ConversationStarted
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import (
    ActionRefused,
    CacheCorrupt,
    JournalCorrupt,
    NotFound,
    WrittenByNewerVersion,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.index_file import entries_used_by
from helix_desktop.store.journal_file import JournalFile, StoredFact
from helix_desktop.store.shared import fact_segments
from helix_desktop.store.shared.async_rows import AsyncRowStore
from helix_desktop.store.shared.conversation_heads import (
    ConversationHead,
    ConversationHeads,
    HeadMark,
    HeadUpdate,
)
from helix_desktop.store.shared.fact_segments import FactSegment, HeadContents
from helix_desktop.store.shared.known_leases import KnownLeases, seconds_since_start_of_computer
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.sync_state import SharedProgress, SyncState
from helix_desktop.store.store_thread import StoreThread

LEASE_SECONDS = 30.0  # In seconds. A lease ends after this time unless it is renewed.
_MOST_TRIES = 8
_MOST_SEGMENT_BYTES = 4 << 20  # In bytes. The approximate maximum size of a segment of facts.
CONVERSATIONS_IN_BATCH = 64  # How many conversations' facts are sent together.
# Content named in this many of the newest received facts is fetched in advance.
_FACTS_TO_PREFETCH = 400


class OpenConversations:
    """Knows who has conversations open, and tells them of changed facts. This base
    class knows nobody.
    """

    async def append_facts_of_others(
        self, conversation: str, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Run `work`, which appends facts, while nobody else does."""
        await work()

    @asynccontextmanager
    async def hold_for_change(self, conversation: str) -> AsyncIterator[None]:
        """Allow changes to its facts meanwhile. Raises ActionRefused if work is going on there."""
        yield

    def on_local_facts_moved(self, conversation: str, new_conversation: str) -> None:
        """Note that what was written here is now in `new_conversation`, or in place if
        facts were forgotten elsewhere.
        """


async def send_nothing(*_entries: Collection[Digest]) -> None:
    """Do nothing, for conversations without content of their own."""


@dataclass(frozen=True, slots=True)
class _OutgoingSegment:
    """The facts of a segment to send. `facts_sent_before`: those already there, in segments that
    this one replaces.
    """

    progress: SharedProgress
    facts_sent_before: Sequence[StoredFact]
    new_facts: Sequence[StoredFact]
    replaced_segments: tuple[FactSegment, ...]

    @property
    def all_facts_to_send(self) -> list[StoredFact]:
        facts = list(self.facts_sent_before)
        facts += self.new_facts
        return facts

    def build_head_after_sending(self, name: bytes, machine: str) -> HeadContents:
        """Return what the conversation's head says once this segment is in the store under `name`. A
        head is the newest state of a conversation there: its segments, and a hash over its facts.
        """
        facts = self.all_facts_to_send
        segment = FactSegment(name, facts[0].seq, facts[-1].seq)
        segments_before = self.progress.segments
        kept_count = len(segments_before) - len(self.replaced_segments)
        segments = list(segments_before[:kept_count])
        segments.append(segment)
        return HeadContents(
            self.progress.conversation,
            machine,
            last=segment.last,
            chain=fact_segments.compute_chain(self.progress.chain, self.new_facts),
            segments=tuple(segments),
            generation=self.progress.generation,
        )


@dataclass(slots=True)
class _OutgoingBatch:
    """The next segments of some conversations. `to_send_as_whole`: those that are sent again as a whole.
    `with_more`: those with more facts than these.
    """

    segments: list[_OutgoingSegment] = field(default_factory=list)
    to_send_as_whole: list[SharedProgress] = field(default_factory=list)
    with_more: list[str] = field(default_factory=list)


def _progress_with_head(
    progress: SharedProgress, contents: HeadContents, head: ConversationHead
) -> SharedProgress:
    """Return how far a conversation is in step once everything that this head says is here."""
    return replace(
        progress,
        seq=contents.last,
        chain=contents.chain,
        version=head.version,
        writer=head.writer,
        contents=contents,
    )


@dataclass(slots=True)
class ConversationSync:
    """One machine's part. `send_content` returns once others can read these entries;
    `send_last_again` sends the last ones again; `learn_forgotten` tells `sync_state`
    what others forgot. `on_new_entries` is called with entries of others' new facts.
    `now` only measures how long ago the engine was asked.
    """

    journal: JournalFile
    thread: StoreThread
    sync_state: SyncState
    remote: AsyncRowStore
    heads: ConversationHeads
    seal: RowCipher
    machine: str
    open_conversations: OpenConversations = field(default_factory=OpenConversations)
    send_content: Callable[[Collection[Digest]], Awaitable[None]] = send_nothing
    send_last_again: Callable[[], Awaitable[None]] = send_nothing
    learn_forgotten: Callable[[], Awaitable[None]] = send_nothing
    on_new_entries: Callable[[Collection[Digest]], object] = bool
    now: Callable[[], float] = seconds_since_start_of_computer
    lease: float = LEASE_SECONDS
    complaints: dict[str, str] = field(default_factory=dict)  # Why conversations cannot be read.
    leases: KnownLeases = field(init=False)
    # Maps a head's name to the version that was last merged, and to its conversation.
    _merged_versions: dict[bytes, tuple[int, str]] = field(default_factory=dict)
    # New heads that cannot be merged yet, mostly because someone here uses their conversations.
    _heads_to_merge_later: dict[bytes, ConversationHead] = field(default_factory=dict)
    _mark: HeadMark | None = None  # All of the server's changes up to here are known.
    # Older heads that could not be merged yet.
    _older_unmerged_heads: frozenset[bytes] = frozenset()
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.leases = KnownLeases(self.sync_state.machine, lambda: self.now())  # noqa: PLW0108 - it may be set later

    async def read_known_writers(self) -> None:
        """Read what was known when the program ended."""
        for progress in await self.thread.run_work(self.sync_state.list_progress):
            self.leases.set_writer_from_head(progress)
        self._older_unmerged_heads = await self.thread.run_work(self.sync_state.read_unread_heads)

    async def sync_once(self) -> None:
        """Fetch what is new there, then send what is new here."""
        await self.fetch_new_facts()
        await self.send_new_facts()

    async def fetch_new_facts(self) -> None:
        async with self._busy:
            await self._fetch_and_merge_heads()

    async def acquire_turn_lease(self, conversation: str, *, takes_over: bool = False) -> None:
        """Fetch what others wrote, and become the only writer. Raises ActionRefused if
        another machine is.

        A lease is the right to write in a conversation for some seconds. Others may write, or take
        the lease, between two steps of this; then all of it is tried again.
        """
        if self.leases.holds_lease(conversation, self.lease / 2):
            return
        name = self._head_row_name(conversation)
        async with self._busy:
            for _ in range(_MOST_TRIES):
                await self._merge_heads_named([name])
                if takes_over:  # Each time, since a branch of local facts ends the take-over.
                    self.leases.taken_over.add(conversation)
                if name in self._heads_to_merge_later:
                    continue
                await self._fetch_released_conversation(conversation)
                self._refuse_if_used_elsewhere(conversation, name)
                await self._send_all_segments(conversation)
                if await self._try_to_take_lease(conversation):
                    return
            self._refuse_if_used_elsewhere(conversation, name)
            raise _busy_elsewhere_error(self.leases.last_other_machine(conversation))

    async def _send_all_segments(self, conversation: str) -> None:
        has_more = True
        while has_more:
            has_more = bool(await self._send_next_segments([conversation]))

    async def _try_to_take_lease(self, conversation: str) -> bool:
        """Whether nobody else can write now: this machine has the lease, or nothing is shared."""
        progress = await self.thread.run_work(self.sync_state.read_shared_progress, conversation)
        contents = progress.contents
        if contents is None or contents.is_removed:
            return True
        if self.leases.holds_lease(conversation, self.lease / 2):
            return True
        own_head = replace(contents, machine=self.machine)
        return bool(await self._update_heads([(progress, own_head)]))

    def _refuse_if_used_elsewhere(self, conversation: str, name: bytes) -> None:
        complaint = self.complaints.get(name.hex())
        if complaint:
            raise JournalCorrupt(
                complaint, remedy="To work here anyway, continue in a copy of the conversation."
            )
        machine = self.leases.find_machine_writing(conversation)
        if machine:
            raise _busy_elsewhere_error(machine)

    async def renew_leases(self, conversations: Collection[str]) -> None:
        """Renew the leases of these conversations that are half over. Updating a conversation's head
        renews its lease. A lease that another machine has taken meanwhile is not taken back.
        """
        async with self._busy:
            ending_leases: list[str] = []
            for conversation in conversations:
                if self.leases.seconds_left(conversation) < self.lease / 2:
                    ending_leases.append(conversation)
            if not ending_leases:
                return
            own_heads = await self.thread.run_work(
                self.sync_state.list_current_own_heads, ending_leases
            )
            await self._update_heads(own_heads, force=False)

    @asynccontextmanager
    async def pause_sync(self) -> AsyncIterator[None]:
        """Keep anything from being sent or fetched, while facts are changed in place."""
        async with self._busy:
            yield

    async def send_and_release_leases(self) -> None:
        """Send everything, and then let others write in all conversations: an update with a
        lease of no seconds ends it at once.
        """
        await self.send_new_facts()
        async with self._busy:
            leased_conversations = self.leases.list_held()
            for start in range(0, len(leased_conversations), CONVERSATIONS_IN_BATCH):
                batch = leased_conversations[start : start + CONVERSATIONS_IN_BATCH]
                own_heads = await self.thread.run_work(
                    self.sync_state.list_current_own_heads, batch
                )
                await self._update_heads(own_heads, force=False, seconds=0.0)

    async def take_over_lease(self, conversation: str) -> None:
        """Make this machine the writer, even if another one still writes. What that has
        not sent becomes a branch.
        """
        self.leases.taken_over.add(conversation)  # Recorded even if the server cannot be reached.
        await self.acquire_turn_lease(conversation, takes_over=True)

    async def _resend_missing_heads(self) -> None:
        """Send heads again that are missing or older than known, after the store was
        emptied or restored.
        """
        known_by_name: dict[bytes, SharedProgress] = {}
        for progress in await self.thread.run_work(self.sync_state.list_progress):
            if progress.contents and not progress.contents.is_removed:
                head_name = self._head_row_name(progress.conversation)
                known_by_name[head_name] = progress
        heads = await self.remote.run_in_thread(self.heads.fetch_heads, known_by_name.keys())
        version_by_name = {head.name: head.version for head in heads}
        for name, progress in known_by_name.items():
            version_in_store = version_by_name.get(name, 0)
            if version_in_store < progress.version:
                nothing_sent = SharedProgress(progress.conversation)
                await self.thread.run_work(self.sync_state.save_progress, nothing_sent)

    async def _fetch_and_merge_heads(self) -> None:
        """Merge the heads of other machines: first those that could not be merged earlier, then
        those changed since the mark. A head is a conversation's newest state in the store.

        The mark is saved last: after a crash, heads are read again rather than missed.
        """
        for head in list(self._heads_to_merge_later.values()):
            await self._merge_head_if_new(head)
        left_unread = self._older_unmerged_heads - self._heads_to_merge_later.keys()
        if left_unread:
            await self._merge_heads_named(left_unread)

        heads, new_mark, is_other_server = await self._fetch_heads_since_mark()
        is_any_new = any(self._is_new_head(head) for head in heads)
        if is_any_new:
            await self.learn_forgotten()
        for head in heads:
            await self._merge_head_if_new(head)

        await self._save_unread_heads_if_changed()
        self._mark = new_mark
        # Otherwise not worth a sync, since a change can be read again.
        if is_any_new or is_other_server:
            await self.thread.run_work(self.sync_state.save_mark, new_mark)

    async def _fetch_heads_since_mark(self) -> tuple[Sequence[ConversationHead], HeadMark, bool]:
        """Return changed heads, the mark behind them, and whether this is another server, which
        is sent and asked everything.
        """
        mark = self._mark
        if mark is None:
            mark = await self.thread.run_work(self.sync_state.read_mark)
        heads, new_mark = await self.remote.run_in_thread(self.heads.fetch_changed_heads, mark[1])
        is_other_server = _is_other_server(mark, new_mark)
        if is_other_server or self._mark is None:
            self._merged_versions.clear()
            await self._resend_missing_heads()
        if is_other_server:
            await self.send_last_again()
            heads, new_mark = await self.remote.run_in_thread(self.heads.fetch_changed_heads, 0)
        return heads, new_mark, is_other_server

    def _is_new_head(self, head: ConversationHead) -> bool:
        version, _ = self._merged_versions.get(head.name, (0, ""))
        return version != head.version

    async def _save_unread_heads_if_changed(self) -> None:
        """Save them before the mark, because older heads are not read again."""
        names = set(self._heads_to_merge_later)
        for name_as_hex in self.complaints:
            names.add(bytes.fromhex(name_as_hex))
        unread = frozenset(names)
        if unread != self._older_unmerged_heads:
            self._older_unmerged_heads = unread
            await self.thread.run_work(self.sync_state.save_unread_heads, unread)

    async def _merge_heads_named(self, names: Collection[bytes]) -> None:
        for head in await self.remote.run_in_thread(self.heads.fetch_heads, names):
            await self._merge_head_if_new(head)

    async def _merge_head_if_new(self, head: ConversationHead) -> None:
        """Merge a head. An unreadable one, or one in use, does not block others."""
        self._heads_to_merge_later.pop(head.name, None)
        version, conversation = self._merged_versions.get(head.name, (0, ""))
        if version == head.version:
            self.leases.set_lease_end(conversation, head.lease_seconds_left)
            return
        try:
            decrypted = self.seal.decrypt_row(head.name, head.sealed)
            contents = fact_segments.decode_head(decrypted)
            fact_segments.check_fetched_head(contents)
            self._check_place_of_head(head, contents)
            await self._merge_head(head, contents)
        except ActionRefused:
            self._heads_to_merge_later[head.name] = head
        except NotFound as error:  # A newer head may have replaced the head's segments.
            self._heads_to_merge_later[head.name] = head
            self.complaints[head.name.hex()] = str(error)
        except (CacheCorrupt, JournalCorrupt, WrittenByNewerVersion) as error:
            self.complaints[head.name.hex()] = str(error)
        else:
            self._merged_versions[head.name] = (head.version, contents.conversation)
            self.complaints.pop(head.name.hex(), None)

    def _check_place_of_head(self, head: ConversationHead, contents: HeadContents) -> None:
        if self._head_row_name(contents.conversation) != head.name:
            raise JournalCorrupt(
                f"The shared data of the conversation {contents.conversation} is in the place of another's.",
                remedy="Your own copy is intact.",
            )

    async def _merge_head(self, head: ConversationHead, contents: HeadContents) -> None:
        """Merge a head unless it is older than what is known here, or says nothing new of a
        conversation that was released from this disk. How long its lease goes on is noted
        before the facts are fetched, and who writes there only after.
        """
        conversation = contents.conversation
        progress = await self.thread.run_work(
            self.sync_state.read_progress_unless_removed, conversation
        )
        if head.version < progress.version:
            return
        if head.version == progress.version and await self._is_released(conversation):
            return
        head_progress = _progress_with_head(SharedProgress(conversation), contents, head)
        self.leases.set_lease_end(conversation, head.lease_seconds_left)
        await self._merge_facts_of_head(progress, head_progress, contents)
        self.leases.set_writer_from_head(head_progress)

    async def _merge_facts_of_head(
        self, progress: SharedProgress, head_progress: SharedProgress, contents: HeadContents
    ) -> None:
        """Bring the facts of a head here, in the cheapest way that is right: none to fetch,
        all here already, facts rewritten in place, or further facts to append.

        `progress`: how far this conversation was in step before. `head_progress`: how far
        it is once this head is merged. A generation ends when facts are changed in place.
        """
        has_nothing_new = (contents.last, contents.chain) == (progress.seq, progress.chain)
        if contents.is_removed or has_nothing_new:
            if head_progress != progress:
                progress_without_facts = replace(
                    head_progress, seq=progress.seq, chain=progress.chain
                )
                await self.thread.run_work(self.sync_state.save_progress, progress_without_facts)
            return
        if await self.thread.run_work(
            self.sync_state.save_progress_if_here, head_progress, progress
        ):
            return  # All of these facts are here, so even a working session does not matter.
        is_same_generation = contents.generation == progress.generation
        if progress.seq and (progress.must_be_sent_again or not is_same_generation):
            await self._merge_rewritten_facts(progress, head_progress)
            return
        nothing_known = SharedProgress(head_progress.conversation)
        continues_known_facts = head_progress.seq > progress.seq and is_same_generation
        if not continues_known_facts:
            await self._append_fetched_facts(head_progress, nothing_known)
            return
        try:
            await self._append_fetched_facts(head_progress, progress)
        except _ChainDiffers:  # What was taken for known is not what the others have.
            await self._append_fetched_facts(head_progress, nothing_known)

    async def _is_released(self, conversation: str) -> bool:
        return await self.thread.run_work(self.sync_state.released.is_released, conversation)

    async def _fetch_released_conversation(self, conversation: str) -> None:
        """Fetch a conversation that was released from this disk and in which somebody now works."""
        if not await self._is_released(conversation):
            return
        progress = await self.thread.run_work(self.sync_state.read_shared_progress, conversation)
        nothing_known = SharedProgress(conversation)
        await self._append_fetched_facts(progress, nothing_known)

    async def _append_fetched_facts(
        self, head_progress: SharedProgress, progress: SharedProgress
    ) -> None:
        """Fetch the facts after `progress` and append them here. If both machines have written,
        what was written here becomes a branch, a conversation of its own.

        Facts are appended while nobody else appends; the branch is made afterwards, as that
        needs the conversation held for a change of facts it already has.
        """
        last_known_seq = progress.seq
        fetched = await self._fetch_facts(head_progress, progress)
        stored_facts = await self.thread.run_work(self.sync_state.blank_forgotten_facts, fetched)
        are_changed = stored_facts != fetched
        is_appended = True

        async def append_or_note_conflict() -> None:
            nonlocal is_appended
            is_appended = await self.thread.run_work(
                self._append_if_compatible,
                head_progress,
                stored_facts,
                last_known_seq,
                anew=are_changed,
            )

        await self.open_conversations.append_facts_of_others(
            head_progress.conversation, append_or_note_conflict
        )
        newest_facts = stored_facts[-_FACTS_TO_PREFETCH:]
        new_entries = await asyncio.to_thread(_entries_named_by_facts, newest_facts)
        self.on_new_entries(new_entries)
        if is_appended:
            return
        async with self.open_conversations.hold_for_change(head_progress.conversation):
            branch = await self.thread.run_work(
                self._branch_if_both_wrote, head_progress, stored_facts, last_known_seq
            )
        if branch:
            self.leases.taken_over.discard(head_progress.conversation)
            self.open_conversations.on_local_facts_moved(head_progress.conversation, branch)

    async def _merge_rewritten_facts(
        self, progress: SharedProgress, head_progress: SharedProgress
    ) -> None:
        """Merge a conversation in which something was forgotten, here or there. If both have written
        since, what stands here alone goes on in a branch.
        """
        conversation = head_progress.conversation
        nothing_known = SharedProgress(conversation)
        fetched = await self._fetch_facts(head_progress, nothing_known)
        stored_facts = await self.thread.run_work(self.sync_state.blank_forgotten_facts, fetched)
        moved_to = conversation
        async with self.open_conversations.hold_for_change(conversation):
            branch_after = await self.thread.run_work(
                self.sync_state.merge_changed_facts, progress, stored_facts, head_progress
            )
            if branch_after is not None:
                facts_behind = stored_facts[branch_after:]
                branch = await self.thread.run_work(
                    self._branch_if_both_wrote, head_progress, facts_behind, branch_after
                )
                moved_to = branch or conversation
        self.leases.set_writer_from_head(head_progress)
        self.open_conversations.on_local_facts_moved(conversation, moved_to)

    def _append_if_compatible(
        self,
        head_progress: SharedProgress,
        stored_facts: list[StoredFact],
        last_known_seq: int,
        *,
        anew: bool = True,
    ) -> bool:
        """On the stores' thread: append a continuation. Return False if both wrote."""
        local_facts = self.journal.read_stored_facts(head_progress.conversation, last_known_seq)
        common_count = fact_segments.count_common_facts(local_facts, stored_facts)
        have_both_written = common_count < min(len(local_facts), len(stored_facts))
        if have_both_written:
            return False
        facts_to_append = stored_facts[len(local_facts) :]
        self.sync_state.append_facts_of_others(facts_to_append, head_progress, anew=anew)
        return True

    def _branch_if_both_wrote(
        self, head_progress: SharedProgress, stored_facts: list[StoredFact], last_known_seq: int
    ) -> str:
        """On the stores' thread: let another machine's facts take the place of those written
        here. Return the branch with what was written here, or this conversation if that was
        only a worker's unfinished work, or an empty string if there was nothing to move.
        """
        if self._append_if_compatible(head_progress, stored_facts, last_known_seq):
            return ""
        local_facts = self.journal.read_stored_facts(head_progress.conversation, last_known_seq)
        common_count = fact_segments.count_common_facts(local_facts, stored_facts)
        last_common_seq = last_known_seq + common_count
        facts_of_others = stored_facts[common_count:]
        if self.sync_state.is_unfinished_work(head_progress.conversation, last_common_seq):
            self.sync_state.replace_unfinished_work(
                head_progress.conversation, last_common_seq, facts_of_others, head_progress
            )
            return head_progress.conversation
        row = self.journal.conversation_row(head_progress.conversation)
        shown_title = row.title or row.begins
        branch = self._name_branch(head_progress.conversation, local_facts)
        started = ConversationStarted(
            f"{shown_title} ({self.machine})",
            forked_from=head_progress.conversation,
            forked_at=last_common_seq,
        )
        self.sync_state.move_own_facts_to_branch(
            head_progress.conversation,
            last_common_seq,
            branch,
            started,
            facts_of_others,
            head_progress,
        )
        return branch

    def _name_branch(self, conversation: str, facts: Sequence[StoredFact]) -> str:
        """Return the same id each time, so that a repeated attempt makes no second branch."""
        link = fact_segments.compute_chain(fact_segments.NOTHING, facts)
        text = f"{conversation}\0{self.sync_state.machine.hex()}\0{link.hex()}"
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    async def _fetch_facts(
        self, head_progress: SharedProgress, progress: SharedProgress
    ) -> list[StoredFact]:
        """Return the facts after the known ones, according to the head."""
        segments = [segment for segment in head_progress.segments if segment.last > progress.seq]
        rows = await self.remote.fetch_in_batches([segment.name for segment in segments])
        return await asyncio.to_thread(
            _decrypt_facts, self.seal, head_progress, progress, segments, rows
        )

    async def send_new_facts(self) -> None:
        """Send new facts in batches, to block the agents' event loop only briefly.
        Turns may begin in between.
        """
        async with self._busy:
            unsent_counts = await self.thread.run_work(self.sync_state.count_facts_to_send)
        conversations_left = list(unsent_counts)
        while conversations_left:
            batch = conversations_left[:CONVERSATIONS_IN_BATCH]
            after_batch = conversations_left[CONVERSATIONS_IN_BATCH:]
            async with self._busy:
                with_more = await self._send_next_segments(batch)
            conversations_left = with_more + after_batch
        async with self._busy:
            removed = await self.thread.run_work(self.sync_state.list_removed_conversations)
            for conversation in removed:
                await self._publish_removal(conversation)

    async def _send_next_segments(self, conversations: Sequence[str]) -> list[str]:
        """Send one segment of each conversation, unless another machine writes there.
        Return those with more.

        The heads that name the segments are updated as the last of them are sent, and the segments
        that they replace are removed: others may read those until a head no longer names them.
        """
        batch = await self.thread.run_work(self._build_outgoing_batch, conversations)
        for progress in batch.to_send_as_whole:
            await self._send_whole_conversation(progress)
        if not batch.segments:
            return batch.with_more

        entries, rows, contents = await asyncio.to_thread(
            _encrypt_segments, self.seal, self.machine, batch.segments
        )
        await self.send_content(entries)
        known_before = [segment.progress for segment in batch.segments]
        last_rows = await self.remote.store_all_but_last_batch(rows)
        row_changes = _RowChanges(last_rows)
        for segment in batch.segments:
            replaced_names = {replaced.name for replaced in segment.replaced_segments}
            # A segment with the same content has the same name, and stays.
            replaced_names -= rows.keys()
            row_changes.replaced[segment.progress.conversation] = tuple(replaced_names)
        wanted = list(zip(known_before, contents, strict=True))
        await self._update_heads(wanted, row_changes=row_changes)
        return batch.with_more

    def _build_outgoing_batch(self, conversations: Sequence[str]) -> _OutgoingBatch:
        """On the stores' thread: build the next segment of each conversation."""
        batch = _OutgoingBatch()
        size = 0
        for place, conversation in enumerate(conversations):
            if size > _MOST_SEGMENT_BYTES:
                batch.with_more += conversations[place:]
                break
            if self.leases.find_machine_writing(conversation):
                continue
            progress = self._read_progress_to_send(conversation)
            if progress.must_be_sent_again:
                batch.to_send_as_whole.append(progress)
                continue
            segment, is_last = self._build_next_segment(progress)
            if not segment.new_facts:
                continue
            batch.segments.append(segment)
            size += sum(len(stored_fact.fact) for stored_fact in segment.all_facts_to_send)
            if not is_last:
                batch.with_more.append(conversation)
        return batch

    def _read_progress_to_send(self, conversation: str) -> SharedProgress:
        progress = self.sync_state.read_shared_progress(conversation)
        if progress.contents and progress.contents.is_removed and progress.seq:
            # Another machine removed this conversation, but facts have been added here since.
            progress = replace(progress, seq=0, chain=fact_segments.NOTHING)
            self.sync_state.save_progress(progress)
        return progress

    async def _send_whole_conversation(self, progress: SharedProgress) -> None:
        """Send all of it in new segments, because the old ones contain what was forgotten here."""
        stored_facts = await self.thread.run_work(
            self.journal.read_stored_facts, progress.conversation
        )
        contents = HeadContents(progress.conversation, self.machine, generation=progress.generation)
        while contents.last < len(stored_facts):
            next_facts = _select_facts_that_fit(stored_facts[contents.last :])
            progress_so_far = replace(progress, chain=contents.chain, contents=contents)
            segment = _OutgoingSegment(progress_so_far, (), next_facts, ())
            (contents,) = await _send_segments(self, [segment])
        if await self._update_heads([(progress, contents)]):
            new_names = {segment.name for segment in contents.segments}
            old_names = {segment.name for segment in progress.segments}
            await self.remote.remove_in_batches(old_names - new_names)

    def _build_next_segment(self, progress: SharedProgress) -> tuple[_OutgoingSegment, bool]:
        """Return the next segment, and whether it is the last one waiting."""
        waiting_facts = self.journal.read_stored_facts(
            progress.conversation, progress.seq, fact_segments.MOST_FACTS_IN_SEGMENT
        )
        new_facts = _select_facts_that_fit(waiting_facts)
        do_all_read_fit = len(new_facts) == len(waiting_facts)
        were_all_read = len(waiting_facts) < fact_segments.MOST_FACTS_IN_SEGMENT
        segment = self._merge_with_small_segments(progress, new_facts)
        return segment, do_all_read_fit and were_all_read

    def _merge_with_small_segments(
        self, progress: SharedProgress, new_facts: Sequence[StoredFact]
    ) -> _OutgoingSegment:
        """Return a segment with these facts that replaces the last small ones: they are sent again
        as one. Those that would make it too large stay.
        """
        segments_before = progress.segments
        replaced_count = fact_segments.count_segments_to_merge(segments_before, len(new_facts))
        replaced_segments = segments_before[len(segments_before) - replaced_count :]
        facts_sent_before: Sequence[StoredFact] = ()
        if replaced_segments:
            first = replaced_segments[0].first
            facts_sent_before = self.journal.read_stored_facts(
                progress.conversation, first - 1, progress.seq - first + 1
            )
        while replaced_segments:
            all_facts = list(facts_sent_before) + list(new_facts)
            if len(_select_facts_that_fit(all_facts)) == len(all_facts):
                break
            facts_sent_before = facts_sent_before[replaced_segments[0].fact_count :]
            replaced_segments = replaced_segments[1:]
        return _OutgoingSegment(progress, facts_sent_before, new_facts, replaced_segments)

    async def _update_heads(
        self,
        wanted: Sequence[tuple[SharedProgress, HeadContents]],
        *,
        force: bool | None = None,
        seconds: float | None = None,
        row_changes: "_RowChanges | None" = None,
    ) -> frozenset[str]:
        """Update heads by compare-and-set. Return conversations where this succeeded; other
        machines' heads are looked at. `force`: by default, for conversations that were taken over.
        `row_changes`: made together with it.
        """
        if seconds is None:
            seconds = self.lease
        if row_changes is None:
            row_changes = _RowChanges({})
        # In the same order everywhere, so that no two machines wait for each other.
        sorted_updates = sorted(wanted, key=lambda pair: pair[0].conversation)
        force_flags: list[bool] = []
        for progress, _contents in sorted_updates:
            if force is None:
                force_flags.append(progress.conversation in self.leases.taken_over)
            else:
                force_flags.append(force)
        asked_at = self.now()
        server_answers = await self.remote.run_in_thread(
            self._update_heads_now, sorted_updates, force_flags, seconds, row_changes
        )
        outcome = _sort_head_answers(sorted_updates, server_answers)
        await self._save_progress_of_heads(outcome)
        for progress in outcome.won:
            self._note_own_head(progress, seconds, asked_at)
        for head in outcome.other_heads:
            await self._merge_head_if_new(head)
        return frozenset(progress.conversation for progress in outcome.won)

    async def _save_progress_of_heads(self, outcome: "_HeadUpdateOutcome") -> None:
        changed = outcome.won + outcome.unknown
        if changed:
            await self.thread.run_work(self.sync_state.save_progress_together, changed)
        for progress in outcome.unknown:
            self._merged_versions.pop(self._head_row_name(progress.conversation), None)

    def _note_own_head(self, progress: SharedProgress, seconds: float, asked: float) -> None:
        conversation = progress.conversation
        self.leases.set_lease_end(conversation, seconds, asked)
        self._merged_versions[self._head_row_name(conversation)] = (progress.version, conversation)
        self.leases.taken_over.discard(conversation)
        self.leases.set_writer_from_head(progress)

    def _update_heads_now(
        self,
        wanted_heads: Sequence[tuple[SharedProgress, HeadContents]],
        force_flags: Sequence[bool],
        seconds: float,
        row_changes: "_RowChanges",
    ) -> list[tuple[bool, ConversationHead | None]]:
        """On a thread of the store: encrypt the heads and ask the store to update them, each
        only if it is still as this machine knows it, or in any case with its flag in
        `force_flags`.
        """
        updates = []
        for (progress, contents), force in zip(wanted_heads, force_flags, strict=True):
            name = self._head_row_name(progress.conversation)
            sealed = self.seal.encrypt_row(name, fact_segments.encode_head(contents))
            replaced = row_changes.replaced.get(progress.conversation, ())
            machine = self.sync_state.machine
            updates.append(
                HeadUpdate(name, progress.version, machine, sealed, seconds, force, replaced)
            )
        if row_changes.new:
            return self.heads.update_heads_with_rows(self.remote.engine, row_changes.new, updates)
        return self.heads.update_heads(updates)

    async def _publish_removal(self, conversation: str) -> None:
        """Publish that it was removed for good here. Others keep what they have,
        without sharing it.
        """
        progress = await self.thread.run_work(self.sync_state.read_shared_progress, conversation)
        if progress.contents is None or progress.contents.is_removed:
            return
        removal = HeadContents(
            conversation, self.machine, generation=progress.contents.generation, is_removed=True
        )
        if await self._update_heads([(progress, removal)], force=False):
            await self.remote.remove_in_batches([segment.name for segment in progress.segments])

    def _head_row_name(self, conversation: str) -> bytes:
        return self.seal.keyed_row_name("head", conversation.encode())


@dataclass(slots=True)
class _RowChanges:
    """What changes with heads. `new`: rows that they name, few enough for one call. `replaced`: by
    conversation, rows that its head names no longer.
    """

    new: Mapping[bytes, bytes]
    replaced: dict[str, tuple[bytes, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _HeadUpdateOutcome:
    """What became of heads to update. `won`: now this machine's. `unknown`: the server was
    emptied or restored, so all of it is sent again. `other_heads`: other machines were quicker.
    """

    won: list[SharedProgress] = field(default_factory=list)
    unknown: list[SharedProgress] = field(default_factory=list)
    other_heads: list[ConversationHead] = field(default_factory=list)


def _sort_head_answers(
    wanted: Sequence[tuple[SharedProgress, HeadContents]],
    answers: Sequence[tuple[bool, ConversationHead | None]],
) -> _HeadUpdateOutcome:
    """Sort what the store answered for each head: updated; not known there or older than known,
    as after the store was emptied; or changed by another machine, whose head is then looked at.
    """
    outcome = _HeadUpdateOutcome()
    for (progress, contents), (is_won, head) in zip(wanted, answers, strict=True):
        if is_won and head is not None:
            outcome.won.append(_progress_with_head(progress, contents, head))
            continue
        if head is None or head.version < progress.version:
            outcome.unknown.append(SharedProgress(progress.conversation))
        if head is not None:
            outcome.other_heads.append(head)
    return outcome


async def list_completely_stored(sync: ConversationSync, ids: Collection[str]) -> list[str]:
    """Return the conversations that, according to the store, it has completely."""
    sent = await sync.thread.run_work(sync.sync_state.list_completely_sent, ids)
    known_by_name = {}
    for progress in sent:
        name = sync.seal.keyed_row_name("head", progress.conversation.encode())
        known_by_name[name] = progress
    heads = await sync.remote.run_in_thread(sync.heads.fetch_heads, known_by_name.keys())
    segments_by_conversation: dict[str, set[bytes]] = {}
    for head in heads:
        progress = known_by_name[head.name]
        if head.version == progress.version:
            names = {segment.name for segment in progress.segments}
            segments_by_conversation[progress.conversation] = names
    all_names = frozenset[bytes]().union(*segments_by_conversation.values())
    missing = await sync.remote.find_missing_in_batches(all_names)
    complete = []
    for conversation, names in segments_by_conversation.items():
        if missing.isdisjoint(names):
            complete.append(conversation)
    return complete


def _decrypt_facts(
    seal: RowCipher,
    head_progress: SharedProgress,
    progress: SharedProgress,
    segments: Sequence[FactSegment],
    rows: Mapping[bytes, bytes],
) -> list[StoredFact]:
    """Decrypt segments. Each is checked by its seal, and all by the chain."""
    stored_facts: list[StoredFact] = []
    for segment in segments:
        if segment.name not in rows:
            raise NotFound(
                f"Part of the conversation {head_progress.conversation} is missing.",
                remedy="The missing part will be requested again.",
            )
        content = seal.decrypt_row(segment.name, rows[segment.name])
        for stored_fact in fact_segments.unpack_segment(content):
            if stored_fact.seq > progress.seq:
                stored_facts.append(stored_fact)
    if fact_segments.compute_chain(progress.chain, stored_facts) == head_progress.chain:
        fact_segments.check_fetched_facts(
            stored_facts, head_progress.conversation, progress.seq, head_progress.seq
        )
        return stored_facts
    if progress.seq:
        raise _ChainDiffers(head_progress.conversation)
    raise JournalCorrupt(
        f"The conversation {head_progress.conversation} differs from what the other computer shared.",
        remedy="Your own copy is intact.",
    )


def _select_facts_that_fit(stored_facts: Sequence[StoredFact]) -> Sequence[StoredFact]:
    """Return as many first facts as fit into one segment. A larger fact goes alone."""
    size = 0
    for count, stored_fact in enumerate(stored_facts):
        size += len(stored_fact.fact)
        is_full = size > _MOST_SEGMENT_BYTES or count == fact_segments.MOST_FACTS_IN_SEGMENT
        if is_full and count > 0:
            return stored_facts[:count]
    return stored_facts


async def _send_segments(
    sync: ConversationSync, segments: Sequence[_OutgoingSegment]
) -> list[HeadContents]:
    """Send segments. Return the heads' new contents."""
    entries, rows, contents = await asyncio.to_thread(
        _encrypt_segments, sync.seal, sync.machine, segments
    )
    await sync.send_content(entries)
    await sync.remote.store_in_batches(rows)
    return contents


def _encrypt_segments(
    cipher: RowCipher, machine: str, outgoing: Sequence[_OutgoingSegment]
) -> tuple[frozenset[Digest], Mapping[bytes, bytes], list[HeadContents]]:
    """Return the entries that the segments refer to, their rows, and the heads' new contents."""
    rows: dict[bytes, bytes] = {}
    contents: list[HeadContents] = []
    new_facts: list[StoredFact] = []
    for segment in outgoing:
        content = fact_segments.pack_segment(segment.all_facts_to_send)
        name = cipher.keyed_row_name("segment", content)
        rows[name] = cipher.encrypt_row(name, content)
        contents.append(segment.build_head_after_sending(name, machine))
        new_facts += segment.new_facts
    return _entries_named_by_facts(new_facts), rows, contents


def _is_other_server(mark: HeadMark, reached: HeadMark) -> bool:
    """Whether this is not the server, or not the state of it, that had the mark."""
    server, change = mark
    server_now, change_now = reached
    is_first_contact = change <= 0
    if is_first_contact:
        return False
    return server_now != server or change_now < change


def _busy_elsewhere_error(machine: str) -> ActionRefused:
    return ActionRefused(
        f"{machine} is working in this conversation.",
        remedy="Wait until the turn ends, continue here anyway, or continue in a copy.",
    )


class _ChainDiffers(Exception):
    """What others have does not continue what is known. Not a failure. Only used here."""


def _entries_named_by_facts(stored_facts: Sequence[StoredFact]) -> frozenset[Digest]:
    digests: set[Digest] = set()
    for stored_fact in stored_facts:
        fact = fact_encoding.decode_fact(stored_fact.fact)
        digests.update(digest for _, digest in entries_used_by(fact))
    return frozenset(digests)
