"""Writes a session of another program into a conversation: a new one, a grown one, or a fork.

Contents are stored first. The facts follow in one transaction, with a `BroughtIn` that
says where they are from.
"""

import asyncio
import hashlib
import time as clock
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine.context_usage import WindowMeter, compute_cost
from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationChanged,
    ConversationStarted,
    Fact,
    Folded,
    Forgotten,
    ModelReplied,
    Origin,
    Recorded,
    Rewound,
    Spent,
    Stored,
    Text,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_facts
from helix_desktop.histories.history_facts import FactDraft
from helix_desktop.histories.program_names import NAMES
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from helix_desktop.histories.seen_twice import is_seen_live
from helix_desktop.providers.model_prices import shipped_prices
from helix_desktop.store.conversation_rows import conversation_id_of_session
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench import conversation_list_rows
from helix_desktop.workbench.import_decision import (
    Append,
    Fork,
    ImportDecision,
    Places,
    Reject,
    SessionInFile,
    Unchanged,
    cover_with_places,
    decide_import,
)
from helix_desktop.workbench.session_seen_live import (
    Apart,
    decide_for_session_seen_live,
)

Hold = Callable[[str], AbstractAsyncContextManager[None]]
# Whether an agent's reply is being written in this conversation now.
IsReplyUnderWay = Callable[[str], bool]
# So many contents, or contents with more bytes in all, share one sync.
TOGETHER = 256
SLICE = 1 << 20
# While an agent writes its file, its conversation notes at most this often that nothing is new.
NOTE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class ImportedConversation:
    """An imported conversation. `state`: "new", "more" (grown), "fork" (continued
    here), "back" (import redone).
    """

    id: str
    state: str
    title: str
    kind: str
    session: str
    path: str
    messages: int
    outputs: int
    folds: int
    facts: int  # The number of facts that were appended.
    last: float = 0.0  # The time of the last event in the conversation.
    parent: str = ""
    forked_from: str = ""


@dataclass(frozen=True, slots=True)
class SessionToImport:
    """A session that was read. `stamp`: of its file, if it is the last session in it."""

    file: Path
    recording: RecordedSession
    made: list[FactDraft]
    stamp: tuple[int, int]
    meter: WindowMeter | None  # The context's size, for the list. None: unknown until it is opened.
    keys: list[tuple[int, str]]  # Texts that look like keys, each with the number of its message.
    unread: Sequence[bytes] = ()  # Lines that the reader skipped. They are stored unchanged.
    is_damaged: bool = False  # Whether some lines of the file cannot be read.

    def with_unique_session_name(self) -> "SessionToImport":
        """Return the session with a unique name, because two files may use the same name."""
        name = hashlib.sha256(str(self.file).encode("utf-8", "replace")).hexdigest()[:8]
        return replace(
            self, recording=replace(self.recording, session=f"{self.recording.session}#{name}")
        )

    def newer_part(self, deleted: float) -> "SessionToImport | None":
        """Return what begins with the first message that was typed after a deletion.
        Titles, summaries and lines that are not read are left out, because they may
        repeat what was deleted. Cline saves no times, only its start and end.
        """
        first = self._first_message_typed_after(deleted)
        later = self._drafts_from_words_on(first)
        if not any(isinstance(draft.fact, ModelReplied) for draft in later):
            return None
        words = ""
        if isinstance(later[0].fact, UserSaid):
            words = "".join(part.text for part in later[0].fact.parts if isinstance(part, Text))
        begins = RecordedSession("", (RecordedMessage("user", words),))
        title = history_facts.title_of_recording(begins)
        recording = replace(self.recording, title=title, forked_from="", forked_at=0)
        keys = [(position, key) for position, key in self.keys if position >= first]
        return replace(self, recording=recording, made=later, keys=keys, meter=None, unread=())

    def _drafts_from_words_on(self, first_message: int) -> list[FactDraft]:
        """Return what comes from this message on, and begins with words of the user."""
        later: list[FactDraft] = []
        for draft in self.made:
            is_later = draft.message >= first_message and not draft.repeats_earlier_ones
            if is_later and (later or isinstance(draft.fact, UserSaid)):
                later.append(draft)
        return later

    def _first_message_typed_after(self, deleted: float) -> int:
        messages = self.recording.messages
        if self.recording.kind != "cline":
            for position, message in enumerate(messages):
                is_typed = message.role == "user" and not message.beside
                if is_typed and deleted < message.time <= clock.time():
                    return position
        return len(messages)


@dataclass(frozen=True, slots=True)
class EarlierImports:
    """Where sessions are, by program and session. `last`: the newest fact about an import;
    `calls`: the call that started it; `seen_live`: the conversation that saw it first.
    """

    last: dict[tuple[str, str], Recorded] = field(default_factory=dict)
    calls: dict[tuple[str, str], str] = field(default_factory=dict)
    seen_live: dict[tuple[str, str], str] = field(default_factory=dict)

    def conversation_of_recording(self, recording: RecordedSession) -> str:
        return self.imported_conversation(
            recording.kind, recording.session
        ) or conversation_id_of_session(*recording.identity_of_session)

    def is_in_another_file(self, held: SessionToImport) -> bool:
        """Whether another file, which is still there, has a session of the same name."""
        known = self.last.get(held.recording.identity_of_session)
        if known is None:
            return False
        path = imported_path(known)
        return path != str(held.file) and Path(path).is_file()

    def imported_conversation(self, kind: str, session: str) -> str:
        if not session:
            return ""
        known = self.last.get((kind, session))
        if known is not None:
            return known.conversation
        return self.seen_live.get((kind, session), "")


def imported_path(recorded: Recorded) -> str:
    if not isinstance(recorded.fact, BroughtIn):
        return ""
    return recorded.fact.origin.path.partition("#")[0]


@dataclass(slots=True)
class SessionWriter:
    """Writes one session. `run`: the import's name. While `hold` is entered, nobody
    else changes it.
    """

    workspace: StoredWorkspace
    hold: Hold
    earlier: EarlierImports
    run: str
    held: SessionToImport
    conversation: str
    is_reply_under_way: IsReplyUnderWay = lambda _conversation: False
    new_from: int = 0  # The number of the first new message.
    damage: str = ""  # A sentence, if messages are kept that can no longer be read in the file.
    recorded: Recorded | None = None  # The fact about this import, or None if nothing was new.
    brought: ImportedConversation | None = None

    async def write_session(self) -> None:
        async with self.hold(self.conversation):
            facts = await self.workspace.journal.read_facts(self.conversation)
            if not facts:
                await self._create_imported_conversation()
                return
            if await self._was_text_forgotten(facts):
                # The lines that are not read may contain the text again.
                self.held = replace(self.held, unread=())
            decision = self._decide_what_is_new(facts)
            await self._act_on_decision(facts, decision)
        if isinstance(decision, Reject):
            self.held = self.held.with_unique_session_name()
            self.conversation = self.earlier.conversation_of_recording(self.held.recording)
            await self.write_session()
        elif isinstance(decision, Apart):
            self.conversation = self._conversation_beside_the_one_seen_live()
            await self.write_session()

    def _decide_what_is_new(self, facts: Sequence[Recorded]) -> ImportDecision | Apart:
        if is_seen_live(facts):
            is_under_way = self.is_reply_under_way(self.conversation)
            return decide_for_session_seen_live(
                facts, self.held.made, is_reply_under_way=is_under_way
            )
        title = history_facts.title_of_recording(self.held.recording)
        session = SessionInFile(self.held.file, self.held.made, title, self.held.is_damaged)
        is_in_another_file = self.earlier.is_in_another_file(self.held)
        return decide_import(facts, session, is_in_another_file=is_in_another_file)

    def _conversation_beside_the_one_seen_live(self) -> str:
        kind, session = self.held.recording.identity_of_session
        beside = conversation_id_of_session(kind, session)
        if beside == self.conversation:
            beside = conversation_id_of_session(kind, f"{session}\0beside")
        return beside

    async def _act_on_decision(
        self, facts: Sequence[Recorded], decision: ImportDecision | Apart
    ) -> None:
        match decision:
            case Unchanged(damage=damage):
                self.damage = damage
                self.new_from = len(self.held.recording.messages)
                if is_seen_live(facts):
                    await self._note_file_of_live_session(facts)
            case Append():
                self.damage = decision.damage
                await self._append_new_facts(facts, decision)
            case Fork():
                self.damage = decision.damage
                await self._fork_with_new_messages(decision)

    async def _was_text_forgotten(self, facts: Sequence[Recorded]) -> bool:
        unread = {
            one.fact.unread.digest
            for one in facts
            if isinstance(one.fact, BroughtIn) and one.fact.unread
        }
        missing = await self.workspace.cache.find_missing_content(unread)
        return bool(missing) or any(isinstance(one.fact, Forgotten) for one in facts)

    async def _create_imported_conversation(self) -> None:
        """Append all of it in one transaction. A branch becomes a fork of its original."""
        recording = self.held.recording
        drafts = self.held.made
        source = self.earlier.imported_conversation(recording.kind, recording.forked_from)
        shared = 0
        if source:
            shared = sum(draft.message < recording.forked_at for draft in drafts)
        time = next((draft.time for draft in drafts if draft.time), clock.time())
        began = self._build_started_fact()
        if source:  # The facts up to the fork are the original's, which says where it is from.
            began = replace(began, origin=Origin())
        facts = [FactDraft(time, began), *drafts[:shared]]
        if source:
            forked = history_facts.build_started_fact(recording, fork=(source, shared + 1))
            facts.append(FactDraft(time, forked))
        facts += drafts[shared:]
        places: dict[int, int] = {}
        for number in range(1, len(drafts) + 1):
            # Behind the fact that begins the conversation, and the one that begins the fork.
            places[number] = number + 1
            if source and number > shared:
                places[number] += 1
        numbering = asyncio.to_thread(_renumber_drafts, facts, 1, places)
        placed, _ = await asyncio.gather(numbering, self._store_contents_of_drafts(drafts))
        await self._append_with_import_fact(placed, "new")

    def _build_started_fact(self) -> ConversationStarted:
        recording = self.held.recording
        parent = self.earlier.imported_conversation(recording.kind, recording.parent)
        call = recording.parent_call
        if not call:
            call = self.earlier.calls.get(recording.identity_of_session, "")
        return history_facts.build_started_fact(replace(recording, parent_call=call), parent=parent)

    async def _note_file_of_live_session(self, facts: Sequence[Recorded]) -> None:
        """Record now and then how large the file is, so that it is not read again, and keep its
        lines that nobody reads.
        """
        if self.is_reply_under_way(self.conversation):
            return
        notes = [one.fact for one in facts if isinstance(one.fact, BroughtIn) and one.fact.run]
        _, modified = self.held.stamp
        if notes:
            grown_seconds = (modified - notes[-1].modified) / 1e9
            quiet_seconds = clock.time() - modified / 1e9
            is_worth_a_note = grown_seconds >= NOTE_SECONDS or quiet_seconds >= NOTE_SECONDS
            # Without a time, it is one of several sessions of a database.
            if not modified or modified == notes[-1].modified or not is_worth_a_note:
                return
        await self._append_with_import_fact([], "more", facts)
        self.brought = None

    async def _append_new_facts(self, facts: Sequence[Recorded], decision: Append) -> None:
        new = self.held.made[decision.first_new - 1 :]
        begun = list(decision.changes)
        if decision.keeps_up_to is not None:
            # The file's messages are not those that were imported before.
            begun.append(Rewound(decision.keeps_up_to))
        if decision.is_redone and _was_trashed(facts):
            begun.append(ConversationChanged(trashed=False))
        first = facts[-1].seq + 1 + len(begun)
        first_of_new = first + len(decision.folds)
        places = dict(decision.places)
        for offset in range(len(new)):
            places[decision.first_new + offset] = first_of_new + offset
        await self._store_contents_of_drafts(new)
        numbered = _renumber_drafts([*decision.folds, *new], first, places)
        appended: list[tuple[float, Fact]] = [(0.0, fact) for fact in begun]
        before = [one.fact for one in facts] + begun
        appended += _rename_folds(before, numbered)
        state = "more"
        if new:
            self.new_from = new[0].message
        else:
            self.new_from = len(self.held.recording.messages)
            if decision.is_redone:
                state = "back"
        await self._append_with_import_fact(appended, state, facts)

    async def _fork_with_new_messages(self, decision: Fork) -> None:
        """Fork the imported part and append what is new. The conversation stays as it
        was continued here.
        """
        recording = self.held.recording
        count = len(self.held.made)
        if not decision.is_countable:
            name = f"{recording.session}\0{count}"
            self.conversation = conversation_id_of_session(recording.kind, name)
            await self._create_imported_conversation()
            return
        source = self.conversation
        name = f"{recording.session}\0{source}\0{decision.after}\0{count}"
        self.conversation = conversation_id_of_session(recording.kind, name)
        begun = history_facts.build_started_fact(recording, fork=(source, decision.after))
        new = self.held.made[decision.first_new - 1 :]
        first_of_new = decision.after + 2
        places = dict(decision.places)
        for offset in range(len(new)):
            places[decision.first_new + offset] = first_of_new + offset
        await self._store_contents_of_drafts(new)
        facts: list[tuple[float, Fact]] = [(one.time, one.fact) for one in decision.shared]
        facts.append((0.0, begun))
        before = [one.fact for one in decision.shared]
        facts += _rename_folds(before, _renumber_drafts(new, first_of_new, places))
        self.new_from = 0
        if new:
            self.new_from = new[0].message
        await self._append_with_import_fact(facts, "fork")

    async def _store_contents_of_drafts(self, new: Sequence[FactDraft]) -> None:
        """Store the contents of these facts, before they refer to them."""
        batch: list[history_facts.Content] = []
        size = 0
        for content in (content for draft in new for content in draft.contents):
            batch.append(content)
            size += len(content[0])
            if len(batch) == TOGETHER or size > SLICE:
                await self.workspace.cache.store_many(batch)
                batch = []
                size = 0
        await self.workspace.cache.store_many(batch)

    async def _store_unread_lines(self, before: Sequence[Recorded]) -> Stored | None:
        """Store the lines that no earlier import has stored."""
        earlier = [
            one.fact.unread.digest
            for one in before
            if isinstance(one.fact, BroughtIn) and one.fact.unread
        ]
        known: set[bytes] = set()
        if earlier:
            stored = await self.workspace.cache.read_contents(earlier)
            known = {line for content in stored.values() for line in content.splitlines()}
        lines = [line.rstrip(b"\r\n") for line in self.held.unread]
        new = [line for line in lines if line not in known]
        if not new:
            return None
        about = EntryOrigin("import", f"notes of the agent, no messages, in {self.held.file.name}")
        return await self.workspace.cache.store_content(b"\n".join(new), about)

    async def _append_with_import_fact(
        self, facts: list[tuple[float, Fact]], state: str, before: Sequence[Recorded] = ()
    ) -> None:
        """Append the facts in one transaction, with the fact that says where they come from."""
        new_facts = [fact for _, fact in facts]
        brought = await self._build_import_fact(new_facts, before)
        whole = [*facts, (0.0, brought)]
        meter = ""
        if self.held.meter and not is_seen_live(before):
            seq = len(before) + len(whole)
            program = NAMES.get(brought.origin.kind, "")
            meter = conversation_list_rows.encode_meter(self.held.meter, seq, "", "", program)
        appended = await self.workspace.journal.append_imported_facts(
            self.conversation, whole, meter
        )
        self.recorded = appended[-1]
        title = history_facts.title_of_recording(self.held.recording)
        self.brought = _imported_conversation_from_facts(appended, state, title, brought.origin)

    async def _build_import_fact(
        self, new_facts: Sequence[Fact], before: Sequence[Recorded]
    ) -> BroughtIn:
        size, modified = self.held.stamp
        paid = 0.0
        for fact in new_facts:
            if isinstance(fact, ModelReplied | Spent):
                paid += fact.usage.cost
            elif isinstance(fact, BroughtIn):
                paid -= fact.cost
        return BroughtIn(
            history_facts.origin_of_recording(self.held.recording),
            self.run,
            len(before) + 1,
            size,
            modified,
            cost=paid,
            unread=await self._store_unread_lines(before),
        )


def _imported_conversation_from_facts(
    appended: Sequence[Recorded], state: str, title: str, origin: Origin
) -> ImportedConversation:
    messages = 0
    outputs = 0
    folds = 0
    parent = ""
    forked_from = ""
    for recorded in appended:
        match recorded.fact:
            case UserSaid() | ModelReplied():
                messages += 1
            case ToolReturned():
                outputs += 1
            case Folded():
                folds += 1
            case ConversationStarted() as started:
                parent = parent or started.parent
                forked_from = forked_from or started.forked_from
    return ImportedConversation(
        id=appended[-1].conversation,
        state=state,
        title=title,
        kind=origin.kind,
        session=origin.session,
        path=origin.path,
        messages=messages,
        outputs=outputs,
        folds=folds,
        facts=len(appended),
        last=appended[-1].time,
        parent=parent,
        forked_from=forked_from,
    )


def _was_trashed(facts: Sequence[Recorded]) -> bool:
    changes = (one.fact for one in facts if isinstance(one.fact, ConversationChanged))
    return any(change.trashed for change in changes)


def _renumber_drafts(
    drafts: Sequence[FactDraft], first: int, places: Places
) -> list[tuple[float, Fact]]:
    """Return the facts of drafts that get the numbers from `first` on."""
    return [
        (draft.time, _renumber_fact(draft.fact, seq, places))
        for seq, draft in enumerate(drafts, first)
    ]


def _renumber_fact(fact: Fact, seq: int, places: Places) -> Fact:
    if isinstance(fact, Folded):
        return replace(fact, cover=cover_with_places(fact.cover, places) or fact.cover)
    if isinstance(fact, ModelReplied):  # Most files do not record the cost.
        cost = compute_cost(fact.usage, shipped_prices(fact.model))
        return replace(fact, saw=seq - 1, usage=replace(fact.usage, cost=cost))
    return fact


def _rename_folds(
    before: Iterable[Fact], facts: Sequence[tuple[float, Fact]]
) -> list[tuple[float, Fact]]:
    """Return the facts, with names for their folds that are not used yet."""
    names = [fact.fold for fact in before if isinstance(fact, Folded)]
    numbers = [name.rpartition("-")[2] for name in names]
    highest = max((int(number) for number in numbers if number.isdecimal()), default=0)
    renamed: list[tuple[float, Fact]] = []
    for time, fact in facts:
        if isinstance(fact, Folded):
            highest += 1
            renamed.append((time, replace(fact, fold=f"{fact.kind.value}-{highest}")))
        else:
            renamed.append((time, fact))
    return renamed
