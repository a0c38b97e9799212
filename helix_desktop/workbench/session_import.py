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
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import claude_code_history, history_facts, kept_lines
from helix_desktop.histories.added_formats import name_of_program
from helix_desktop.histories.history_facts import FactDraft
from helix_desktop.histories.openai_chat_export import digests_needed_for_export
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from helix_desktop.histories.seen_twice import is_seen_live
from helix_desktop.json_values import parse_json_or_none, text_at
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
    drafts: list[FactDraft]
    stamp: tuple[int, int]
    meter: WindowMeter | None  # The context's size, for the list. None: unknown until it is opened.
    keys: list[tuple[int, str]]  # Texts that look like keys, each with the number of its message.
    unread: Sequence[bytes] = ()  # Lines that the reader skipped. They are stored unchanged.
    # All lines of its file, if the agent continues there with this session: see `kept_lines`.
    lines: Sequence[bytes] = ()
    is_damaged: bool = False  # Whether some lines of the file cannot be read.
    is_cut_off: bool = False  # Whether the file ends within a message.

    def with_unique_session_name(self) -> "SessionToImport":
        """Return the session with a unique name, because two files may use the same name."""
        digest_of_path = hashlib.sha256(str(self.file).encode("utf-8", "replace"))
        unique_name = f"{self.recording.session}#{digest_of_path.hexdigest()[:8]}"
        return replace(self, recording=replace(self.recording, session=unique_name))

    def newer_part(self, deleted: float) -> "SessionToImport | None":
        """Return what begins with the first message that was typed after a deletion.
        Titles, summaries and lines that are not read are left out, because they may
        repeat what was deleted. Cline saves no times, only its start and end.
        """
        first_message = self._first_message_typed_after(deleted)
        newer_drafts = self._drafts_from_words_on(first_message)
        has_reply = any(isinstance(draft.fact, ModelReplied) for draft in newer_drafts)
        if not has_reply:
            return None

        # The title is made of the words that the newer part begins with.
        first_words = _words_of_message(newer_drafts[0].fact)
        beginning = RecordedSession("", (RecordedMessage("user", first_words),))
        title = history_facts.title_of_recording(beginning)

        recording = replace(self.recording, title=title, forked_from="", forked_at=0)
        keys: list[tuple[int, str]] = []
        for message, key in self.keys:
            if message >= first_message:
                keys.append((message, key))
        return replace(
            self,
            recording=recording,
            drafts=newer_drafts,
            keys=keys,
            meter=None,
            unread=(),
            lines=(),
        )

    def _drafts_from_words_on(self, first_message: int) -> list[FactDraft]:
        """Return what comes from this message on, and begins with words of the user."""
        newer_drafts: list[FactDraft] = []
        for draft in self.drafts:
            if draft.message < first_message or draft.repeats_earlier_ones:
                continue
            if newer_drafts or isinstance(draft.fact, UserSaid):
                newer_drafts.append(draft)
        return newer_drafts

    def _first_message_typed_after(self, deleted: float) -> int:
        """Return its number, or the number of all messages if there is none."""
        messages = self.recording.messages
        if self.recording.kind == "cline":
            return len(messages)
        for number, message in enumerate(messages):
            is_typed = message.role == "user" and not message.beside
            if is_typed and deleted < message.time <= clock.time():
                return number
        return len(messages)


@dataclass(frozen=True, slots=True)
class Delegations:
    """The calls of a conversation that started sub-agents: by the sub-agent's conversation, as far
    as results name it, and by the words that it was given.
    """

    by_conversation: dict[str, str]
    by_words: dict[str, str]

    def find_call(self, conversation: str, words: str) -> str:
        call = self.by_conversation.get(conversation, "")
        if call or not words.strip():
            return call
        return self.by_words.get(words.strip(), "")


def find_delegations(facts: Sequence[Recorded]) -> Delegations:
    """Return the calls of these facts that started sub-agents."""
    by_conversation: dict[str, str] = {}
    by_words: dict[str, str] = {}
    for recorded in facts:
        fact = recorded.fact
        if isinstance(fact, ToolReturned) and fact.child:
            by_conversation[fact.child] = fact.call
        if not isinstance(fact, ModelReplied):
            continue
        for part in fact.parts:
            if isinstance(part, ToolCall) and part.name in claude_code_history.DELEGATES:
                words = text_at(parse_json_or_none(part.arguments), "prompt")
                by_words.setdefault(words.strip(), part.id)
    return Delegations(by_conversation, by_words)


@dataclass(frozen=True, slots=True)
class EarlierImports:
    """Where sessions are, by program and session. `last`: the newest fact about an import;
    `calls`: the call that started it; `seen_live`: the conversation that saw it first.
    `delegations`: the calls in a conversation that started others, once they were looked for.
    """

    last: dict[tuple[str, str], Recorded] = field(default_factory=dict)
    calls: dict[tuple[str, str], str] = field(default_factory=dict)
    seen_live: dict[tuple[str, str], str] = field(default_factory=dict)
    delegations: dict[str, Delegations] = field(default_factory=dict)

    def conversation_of_recording(self, recording: RecordedSession) -> str:
        """Return the conversation that a session is in, or the id of the one it will be in."""
        conversation = self.imported_conversation(recording.kind, recording.session)
        if conversation:
            return conversation
        return conversation_id_of_session(recording.kind, recording.session)

    def is_in_another_file(self, session: SessionToImport) -> bool:
        """Whether another file, which is still there, has a session of the same name."""
        last_import = self.last.get(session.recording.identity_of_session)
        if last_import is None:
            return False
        path = imported_path(last_import)
        return path != str(session.file) and Path(path).is_file()

    def imported_conversation(self, kind: str, session: str) -> str:
        if not session:
            return ""
        last_import = self.last.get((kind, session))
        if last_import is not None:
            return last_import.conversation
        return self.seen_live.get((kind, session), "")


def imported_path(recorded: Recorded) -> str:
    """Return the file that an import was of. Behind a "#" stands which session of the file."""
    if not isinstance(recorded.fact, BroughtIn):
        return ""
    file, _, _session = recorded.fact.origin.path.partition("#")
    return file


@dataclass(slots=True)
class SessionWriter:
    """Writes one session. `run`: the import's name. While `hold` is entered, nobody
    else changes it.
    """

    workspace: StoredWorkspace
    hold: Hold
    earlier: EarlierImports
    run: str
    session: SessionToImport
    conversation: str
    is_reply_under_way: IsReplyUnderWay = lambda _conversation: False
    new_from: int = 0  # The number of the first new message.
    damage: str = ""  # A sentence, if messages are kept that can no longer be read in the file.
    recorded: Recorded | None = None  # The fact about this import, or None if nothing was new.
    imported: ImportedConversation | None = None

    async def write_session(self) -> None:
        """Write what is new in the session. If it cannot be in its conversation, try
        another one.
        """
        async with self.hold(self.conversation):
            facts = await self.workspace.journal.read_facts(self.conversation)
            if not facts:
                await self._create_imported_conversation()
                return
            if await self._was_text_forgotten(facts):
                # The lines may contain the text again.
                self.session = replace(self.session, unread=(), lines=())
            decision = self._decide_what_is_new(facts)
            await self._act_on_decision(facts, decision)
        if isinstance(decision, Reject):
            self.session = self.session.with_unique_session_name()
            self.conversation = self.earlier.conversation_of_recording(self.session.recording)
            await self.write_session()
        elif isinstance(decision, Apart):
            self.conversation = self._conversation_beside_the_one_seen_live()
            await self.write_session()

    def _decide_what_is_new(self, facts: Sequence[Recorded]) -> ImportDecision | Apart:
        if is_seen_live(facts):
            is_under_way = self.is_reply_under_way(self.conversation)
            return decide_for_session_seen_live(
                facts, self.session.drafts, is_reply_under_way=is_under_way
            )
        title = history_facts.title_of_recording(self.session.recording)
        session = SessionInFile(
            self.session.file, self.session.drafts, title, self.session.is_damaged
        )
        is_in_another_file = self.earlier.is_in_another_file(self.session)
        return decide_import(facts, session, is_in_another_file=is_in_another_file)

    def _conversation_beside_the_one_seen_live(self) -> str:
        kind, session = self.session.recording.identity_of_session
        beside = conversation_id_of_session(kind, session)
        if beside == self.conversation:
            beside = conversation_id_of_session(kind, f"{session}\0beside")
        return beside

    async def _act_on_decision(
        self, facts: Sequence[Recorded], decision: ImportDecision | Apart
    ) -> None:
        """Append, fork or do nothing. `Reject` and `Apart` are for the caller."""
        match decision:
            case Unchanged(damage=damage):
                self.damage = damage
                self.new_from = len(self.session.recording.messages)
                if is_seen_live(facts):
                    await self._note_file_of_live_session(facts)
            case Append():
                self.damage = decision.damage
                await self._append_new_facts(facts, decision)
            case Fork():
                self.damage = decision.damage
                await self._fork_with_new_messages(decision)

    async def _was_text_forgotten(self, facts: Sequence[Recorded]) -> bool:
        """Whether the user had a text forgotten, also one of the file's lines."""
        digests = set(_digests_of_unread_lines(facts))
        digests.update(kept_lines.digests_of_kept_lines(facts))
        missing_digests = await self.workspace.cache.find_missing_content(digests)
        if missing_digests:
            return True
        for recorded in facts:
            if isinstance(recorded.fact, Forgotten):
                return True
        return False

    async def _create_imported_conversation(self) -> None:
        """Append all of it in one transaction. A branch becomes a fork of its original."""
        drafts = self.session.drafts
        all_drafts = await self._drafts_with_beginning()
        # The drafts refer to each other by their numbers, which the facts between them move.
        places: dict[int, int] = {}
        for place, draft in enumerate(all_drafts, 1):
            if not isinstance(draft.fact, ConversationStarted):
                places[len(places) + 1] = place
        numbering = asyncio.to_thread(_renumber_drafts, all_drafts, 1, places)
        numbered, _ = await asyncio.gather(numbering, self._store_contents_of_drafts(drafts))
        await self._append_with_import_fact(numbered, "new")

    async def _drafts_with_beginning(self) -> list[FactDraft]:
        """Return the session's drafts behind the fact that begins their conversation, and in a fork
        behind the original's facts up to it.
        """
        recording = self.session.recording
        drafts = self.session.drafts
        original = self.earlier.imported_conversation(recording.kind, recording.forked_from)
        start_time = _first_known_time(drafts)
        started = await self._build_started_fact()
        if not original:
            return [FactDraft(start_time, started), *drafts]

        # The facts up to the fork are the original's, which says where it is from.
        beginning = FactDraft(start_time, replace(started, origin=Origin()))
        shared_drafts = [draft for draft in drafts if draft.message < recording.forked_at]
        own_drafts = drafts[len(shared_drafts) :]
        fork_point = (original, len(shared_drafts) + 1)
        forked = history_facts.build_started_fact(recording, fork=fork_point)
        return [beginning, *shared_drafts, FactDraft(start_time, forked), *own_drafts]

    async def _build_started_fact(self) -> ConversationStarted:
        recording = self.session.recording
        parent = self.earlier.imported_conversation(recording.kind, recording.parent)
        call = await self._find_call_of_subagent(parent)
        return history_facts.build_started_fact(replace(recording, parent_call=call), parent=parent)

    async def put_below_parent(self) -> None:
        """Put a sub-agent's conversation below the one that started it, if it came without it.

        Earlier versions imported some sub-agents before their sessions, or without the call.
        """
        recording = self.session.recording
        parent = self.earlier.imported_conversation(recording.kind, recording.parent)
        if not parent or parent == self.conversation:
            return
        row = await self.workspace.journal.find_conversation(self.conversation)
        if row.parent and (row.parent != parent or row.parent_call):
            return
        call = await self._find_call_of_subagent(parent)
        if row.parent and not call:
            return
        started = history_facts.build_started_fact(
            replace(recording, parent_call=call), parent=parent
        )
        # The conversation has its title already, perhaps one that the user gave it.
        started = replace(started, title="")
        await self.workspace.journal.append_imported_facts(self.conversation, [(0.0, started)])

    async def _find_call_of_subagent(self, parent: str) -> str:
        """Return the id of the call in its parent's conversation that started it, or ""."""
        recording = self.session.recording
        call = recording.parent_call or self.earlier.calls.get(recording.identity_of_session, "")
        if call or not parent:
            return call
        # The parent's file was not read this time, so its facts tell.
        if parent not in self.earlier.delegations:
            facts = await self.workspace.journal.read_facts(parent)
            self.earlier.delegations[parent] = await asyncio.to_thread(find_delegations, facts)
        delegations = self.earlier.delegations[parent]
        return delegations.find_call(self.conversation, _first_words(self.session.drafts))

    async def _note_file_of_live_session(self, facts: Sequence[Recorded]) -> None:
        """Record now and then how large the file is, so that it is not read again, and keep its
        lines that nobody reads.
        """
        if self.is_reply_under_way(self.conversation):
            return
        # Facts about imports without a run are of requests at the gateway, not of files.
        last_note: BroughtIn | None = None
        for recorded in facts:
            if isinstance(recorded.fact, BroughtIn) and recorded.fact.run:
                last_note = recorded.fact
        if last_note is not None and not self._is_worth_a_note(last_note):
            return
        await self._append_with_import_fact([], "more", facts)
        self.imported = None

    def _is_worth_a_note(self, last_note: BroughtIn) -> bool:
        """Whether the file has changed since, either long after the last note or so long ago that
        the agent has stopped writing.
        """
        _size, modified = self.session.stamp
        # Without a time, it is one of several sessions of a database.
        if not modified or modified == last_note.modified:
            return False
        seconds_since_note = (modified - last_note.modified) / 1e9
        quiet_seconds = clock.time() - modified / 1e9
        return seconds_since_note >= NOTE_SECONDS or quiet_seconds >= NOTE_SECONDS

    async def _append_new_facts(self, facts: Sequence[Recorded], decision: Append) -> None:
        """Append what changes what is here, then the folds over it, then what is new."""
        new_drafts = self.session.drafts[decision.first_new - 1 :]
        changes = list(decision.changes)
        if decision.keeps_up_to is not None:
            # The file's messages are not those that were imported before.
            changes.append(Rewound(decision.keeps_up_to))
        if decision.is_redone and _was_trashed(facts):
            changes.append(ConversationChanged(trashed=False))
        first_fold_seq = facts[-1].seq + 1 + len(changes)
        first_new_seq = first_fold_seq + len(decision.folds)
        places = dict(decision.places)
        for offset in range(len(new_drafts)):
            places[decision.first_new + offset] = first_new_seq + offset
        await self._store_contents_of_drafts(new_drafts)
        drafts_to_append = list(decision.folds) + list(new_drafts)
        numbered = _renumber_drafts(drafts_to_append, first_fold_seq, places)
        timed_facts: list[tuple[float, Fact]] = [(0.0, fact) for fact in changes]
        earlier_facts = [recorded.fact for recorded in facts] + changes
        timed_facts += _rename_folds(earlier_facts, numbered)
        state = "more"
        if new_drafts:
            self.new_from = new_drafts[0].message
        else:
            self.new_from = len(self.session.recording.messages)
            if decision.is_redone:
                state = "back"
        await self._append_with_import_fact(timed_facts, state, facts)

    async def _fork_with_new_messages(self, decision: Fork) -> None:
        """Fork the imported part and append what is new. The conversation stays as it
        was continued here.
        """
        recording = self.session.recording
        # The names are made of what they depend on, so that the same import finds its fork again.
        draft_count = len(self.session.drafts)
        if not decision.is_countable:
            name = f"{recording.session}\0{draft_count}"
            self.conversation = conversation_id_of_session(recording.kind, name)
            await self._create_imported_conversation()
            return
        original = self.conversation
        name = f"{recording.session}\0{original}\0{decision.after}\0{draft_count}"
        self.conversation = conversation_id_of_session(recording.kind, name)
        started = history_facts.build_started_fact(recording, fork=(original, decision.after))
        new_drafts = self.session.drafts[decision.first_new - 1 :]
        # Behind the shared facts stands the one that begins the fork.
        first_new_seq = decision.after + 2
        places = dict(decision.places)
        for offset in range(len(new_drafts)):
            places[decision.first_new + offset] = first_new_seq + offset
        await self._store_contents_of_drafts(new_drafts)
        timed_facts: list[tuple[float, Fact]] = []
        for recorded in decision.shared:
            timed_facts.append((recorded.time, recorded.fact))
        timed_facts.append((0.0, started))
        shared_facts = [recorded.fact for recorded in decision.shared]
        numbered = _renumber_drafts(new_drafts, first_new_seq, places)
        timed_facts += _rename_folds(shared_facts, numbered)
        self.new_from = 0
        if new_drafts:
            self.new_from = new_drafts[0].message
        await self._append_with_import_fact(timed_facts, "fork")

    async def _store_contents_of_drafts(self, drafts: Sequence[FactDraft]) -> None:
        """Store the contents of these facts, before they refer to them."""
        batch: list[history_facts.Content] = []
        batch_bytes = 0
        for draft in drafts:
            for content in draft.contents:
                stored_bytes, _origin = content
                batch.append(content)
                batch_bytes += len(stored_bytes)
                if len(batch) == TOGETHER or batch_bytes > SLICE:
                    await self.workspace.cache.store_many(batch)
                    batch = []
                    batch_bytes = 0
        await self.workspace.cache.store_many(batch)

    async def _store_unread_lines(self, earlier_facts: Sequence[Recorded]) -> Stored | None:
        """Store the lines that no earlier import has stored."""
        stored_lines: set[bytes] = set()
        digests = _digests_of_unread_lines(earlier_facts)
        if digests:
            contents = await self.workspace.cache.read_contents(digests)
            for content in contents.values():
                stored_lines.update(content.splitlines())
        lines = [line.rstrip(b"\r\n") for line in self.session.unread]
        new_lines = [line for line in lines if line not in stored_lines]
        if not new_lines:
            return None
        origin = EntryOrigin(
            "import", f"notes of the agent, no messages, in {self.session.file.name}"
        )
        return await self.workspace.cache.store_content(b"\n".join(new_lines), origin)

    async def _store_lines(
        self, earlier_facts: Sequence[Recorded], new_facts: Sequence[Fact]
    ) -> Stored | None:
        """Store the lines of the agent's file that no earlier import has stored."""
        if not self.session.lines:
            return None
        lines: Sequence[bytes] = self.session.lines
        if is_seen_live(earlier_facts):
            lines = await asyncio.to_thread(self._lines_as_seen_live, earlier_facts, new_facts)
        digests = kept_lines.digests_of_kept_lines(earlier_facts)
        contents = await self.workspace.cache.read_contents(digests)
        earlier = [contents[digest] for digest in digests]
        to_store = kept_lines.build_kept_lines(earlier, lines)
        if not to_store:
            return None
        origin = EntryOrigin(
            "import", f"lines of {self.session.file.name}", "application/octet-stream"
        )
        return await self.workspace.cache.store_content(to_store, origin)

    def _lines_as_seen_live(
        self, earlier_facts: Sequence[Recorded], new_facts: Sequence[Fact]
    ) -> list[bytes]:
        """Return the lines with all contents that the conversation was not shown live, such as
        what the agent wrote down only for itself.
        """
        facts = list(earlier_facts)
        for seq, fact in enumerate(new_facts, len(facts) + 1):
            facts.append(Recorded(self.conversation, seq, 0.0, fact))
        known = {digest.hex for digest in digests_needed_for_export(facts)}
        contents: dict[Digest, bytes] = {}
        for draft in self.session.drafts:
            for content, _origin in draft.contents:
                contents[Digest.of_content(content)] = content
        return kept_lines.put_back_contents(self.session.lines, known, contents.get)

    async def _append_with_import_fact(
        self,
        timed_facts: list[tuple[float, Fact]],
        state: str,
        earlier_facts: Sequence[Recorded] = (),
    ) -> None:
        """Append the facts in one transaction, with the fact that says where they come from."""
        new_facts = [fact for _time, fact in timed_facts]
        import_fact = await self._build_import_fact(new_facts, earlier_facts)
        origin = import_fact.origin
        all_new_facts = timed_facts + [(0.0, import_fact)]
        meter = ""
        if self.session.meter and not is_seen_live(earlier_facts):
            last_seq = len(earlier_facts) + len(all_new_facts)
            program = name_of_program(origin.kind)
            meter = conversation_list_rows.encode_meter(
                self.session.meter, last_seq, "", "", program
            )
        appended = await self.workspace.journal.append_imported_facts(
            self.conversation, all_new_facts, meter
        )
        self.recorded = appended[-1]
        title = history_facts.title_of_recording(self.session.recording)
        self.imported = _imported_conversation_from_facts(appended, state, title, origin)

    async def _build_import_fact(
        self, new_facts: Sequence[Fact], earlier_facts: Sequence[Recorded]
    ) -> BroughtIn:
        """Return the fact that says where the new facts are from, and what they cost."""
        size, modified = self.session.stamp
        cost = 0.0
        for fact in new_facts:
            if isinstance(fact, ModelReplied | Spent):
                cost += fact.usage.cost
            elif isinstance(fact, BroughtIn):
                cost -= fact.cost
        return BroughtIn(
            origin=history_facts.origin_of_recording(self.session.recording),
            run=self.run,
            first=len(earlier_facts) + 1,
            size=size,
            modified=modified,
            cost=cost,
            unread=await self._store_unread_lines(earlier_facts),
            lines=await self._store_lines(earlier_facts, new_facts),
        )


def _first_words(drafts: Sequence[FactDraft]) -> str:
    """Return what a sub-agent was told to do."""
    for draft in drafts:
        if isinstance(draft.fact, UserSaid):
            return "".join(part.text for part in draft.fact.parts if isinstance(part, Text))
    return ""


def _first_known_time(drafts: Sequence[FactDraft]) -> float:
    """Return the time of the first draft that has one, or the present time."""
    for draft in drafts:
        if draft.time:
            return draft.time
    return clock.time()


def _digests_of_unread_lines(facts: Sequence[Recorded]) -> list[Digest]:
    """Return under which digests earlier imports have stored lines that nobody reads."""
    digests: list[Digest] = []
    for recorded in facts:
        if isinstance(recorded.fact, BroughtIn) and recorded.fact.unread:
            digests.append(recorded.fact.unread.digest)
    return digests


def _imported_conversation_from_facts(
    appended: Sequence[Recorded], state: str, title: str, origin: Origin
) -> ImportedConversation:
    """Count what an import has appended, for the user."""
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
    last_recorded = appended[-1]
    fact_count = len(appended)
    return ImportedConversation(
        id=last_recorded.conversation,
        state=state,
        title=title,
        kind=origin.kind,
        session=origin.session,
        path=origin.path,
        messages=messages,
        outputs=outputs,
        folds=folds,
        facts=fact_count,
        last=last_recorded.time,
        parent=parent,
        forked_from=forked_from,
    )


def _was_trashed(facts: Sequence[Recorded]) -> bool:
    """Whether it has ever been put into the trash."""
    for recorded in facts:
        if isinstance(recorded.fact, ConversationChanged) and recorded.fact.trashed:
            return True
    return False


def _renumber_drafts(
    drafts: Sequence[FactDraft], first: int, places: Places
) -> list[tuple[float, Fact]]:
    """Return the facts of drafts that get the numbers from `first` on."""
    timed_facts: list[tuple[float, Fact]] = []
    for seq, draft in enumerate(drafts, first):
        timed_facts.append((draft.time, _renumber_fact(draft.fact, seq, places)))
    return timed_facts


def _renumber_fact(fact: Fact, seq: int, places: Places) -> Fact:
    if isinstance(fact, Folded):
        return replace(fact, cover=cover_with_places(fact.cover, places) or fact.cover)
    if isinstance(fact, ModelReplied):  # Most files do not record the cost.
        cost = compute_cost(fact.usage, shipped_prices(fact.model))
        return replace(fact, saw=seq - 1, usage=replace(fact.usage, cost=cost))
    return fact


def _rename_folds(
    earlier_facts: Iterable[Fact], timed_facts: Sequence[tuple[float, Fact]]
) -> list[tuple[float, Fact]]:
    """Return the facts, with names for their folds that are not used yet. A name ends in a
    number, such as `handover-3`.
    """
    highest_number = 0
    for earlier_fact in earlier_facts:
        if isinstance(earlier_fact, Folded):
            _, _, number = earlier_fact.fold.rpartition("-")
            if number.isdecimal():
                highest_number = max(highest_number, int(number))

    renamed_facts: list[tuple[float, Fact]] = []
    for time, fact in timed_facts:
        if isinstance(fact, Folded):
            highest_number += 1
            renamed_fold = replace(fact, fold=f"{fact.kind.value}-{highest_number}")
            renamed_facts.append((time, renamed_fold))
        else:
            renamed_facts.append((time, fact))
    return renamed_facts


def _words_of_message(fact: Fact) -> str:
    """Return the texts of a user's message. Attachments have none."""
    if not isinstance(fact, UserSaid):
        return ""
    texts = [part.text for part in fact.parts if isinstance(part, Text)]
    return "".join(texts)
