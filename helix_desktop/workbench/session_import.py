"""Writes a session of another program into a conversation: a new one, a grown one, or a fork.

Contents are stored first. The facts follow in one transaction, with a `BroughtIn` that
says where they are from.
"""

import asyncio
import difflib
import hashlib
import itertools
import time as clock
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine.context_usage import WindowMeter, compute_cost
from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationChanged,
    ConversationStarted,
    Cover,
    Fact,
    Folded,
    FoldKind,
    Forgotten,
    ModelReplied,
    Origin,
    PartRef,
    Recorded,
    Rewound,
    Span,
    Stored,
    SystemSet,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.foreign_agent_facts import STRAY
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.view import build_state
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_facts
from helix_desktop.histories.history_facts import FactDraft
from helix_desktop.histories.program_names import NAMES
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from helix_desktop.providers.model_prices import shipped_prices
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench import conversation_list_rows

Hold = Callable[[str], AbstractAsyncContextManager[None]]
TOGETHER, SLICE = (
    256,
    1 << 20,
)  # So many contents, or contents with more bytes in all, share one sync.
REWRITTEN = "the other program compacted the conversation and overwrote its file"
KEPT_DESPITE_DAMAGE = "The messages that were recorded from it before are kept."
SAID = (UserSaid, ModelReplied, ToolReturned)


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


def conversation_id_of_session(kind: str, session: str) -> str:
    """Return the id of a session's conversation, which is the same in every import."""
    return hashlib.sha256(f"{kind}\0{session}".encode("utf-8", "replace")).hexdigest()[:20]


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
        said = self.recording.messages
        new = {
            at
            for at, one in enumerate(said)
            if deleted < one.time <= clock.time() and self.recording.kind != "cline"
        }
        typed = (
            at for at, one in enumerate(said) if at in new and one.role == "user" and not one.beside
        )
        first = next(typed, len(said))
        later = [
            draft
            for draft in self.made
            if draft.message >= first and not draft.repeats_earlier_ones
        ]
        begun = next(
            (at for at, draft in enumerate(later) if isinstance(draft.fact, UserSaid)), len(later)
        )
        if not any(isinstance(draft.fact, ModelReplied) for draft in later[begun:]):
            return None
        words = "".join(getattr(part, "text", "") for part in later[begun].fact.parts)  # type: ignore[union-attr]
        title = history_facts.title_of_recording(
            RecordedSession("", (RecordedMessage("user", words),))
        )
        recording = replace(self.recording, title=title, forked_from="", forked_at=0)
        keys = [(at, key) for at, key in self.keys if at >= first]
        return replace(
            self, recording=recording, made=later[begun:], keys=keys, meter=None, unread=()
        )


@dataclass(frozen=True, slots=True)
class EarlierImports:
    """Earlier imports by program and session. `last`: the newest fact; `calls`: the
    call that started it.
    """

    last: dict[tuple[str, str], Recorded] = field(default_factory=dict)
    calls: dict[tuple[str, str], str] = field(default_factory=dict)

    def conversation_of_recording(self, recording: RecordedSession) -> str:
        return self.imported_conversation(
            recording.kind, recording.session
        ) or conversation_id_of_session(*recording.identity_of_session)

    def is_in_another_file(self, held: SessionToImport) -> bool:
        """Whether another file, which is still there, has a session of the same name."""
        known = self.last.get(held.recording.identity_of_session)
        path = imported_path(known) if known else str(held.file)
        return path != str(held.file) and Path(path).is_file()

    def imported_conversation(self, kind: str, session: str) -> str:
        known = self.last.get((kind, session)) if session else None
        return known.conversation if known else ""


def imported_path(recorded: Recorded) -> str:
    return (
        recorded.fact.origin.path.partition("#")[0] if isinstance(recorded.fact, BroughtIn) else ""
    )


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
    new_from: int = 0  # The number of the first new message.
    damage: str = ""  # A sentence, if messages are kept that can no longer be read in the file.
    recorded: Recorded | None = None  # The fact about this import, or None if nothing was new.
    brought: ImportedConversation | None = None
    _seqs: dict[int, int] = field(default_factory=dict)  # By draft: the number of its fact.

    async def write_session(self) -> None:
        async with self.hold(self.conversation):
            facts = await self.workspace.journal.read_facts(self.conversation)
            if not facts:
                await self._create_imported_conversation()
                return
            if await self._was_text_forgotten(
                facts
            ):  # The lines that are not read may contain it again.
                self.held = replace(self.held, unread=())
            if await self._append_new_messages_of_recording(facts):
                return
        self.held = self.held.with_unique_session_name()
        self.conversation = self.earlier.conversation_of_recording(self.held.recording)
        self._seqs.clear()
        await self.write_session()

    async def _was_text_forgotten(self, facts: Sequence[Recorded]) -> bool:
        unread = {
            one.fact.unread.digest
            for one in facts
            if isinstance(one.fact, BroughtIn) and one.fact.unread
        }
        missing = await self.workspace.cache.find_missing_content(unread)
        return bool(missing) or any(isinstance(one.fact, Forgotten) for one in facts)

    # --- A new conversation, or new messages of a known one

    async def _create_imported_conversation(self) -> None:
        """Append all of it in one transaction. A branch becomes a fork of its original."""
        recording, earlier = self.held.recording, self.earlier
        source = earlier.imported_conversation(recording.kind, recording.forked_from)
        parent = earlier.imported_conversation(recording.kind, recording.parent)
        call = recording.parent_call or earlier.calls.get(recording.identity_of_session, "")
        began = history_facts.build_started_fact(
            replace(recording, parent_call=call), parent=parent
        )
        shared = (
            sum(draft.message < recording.forked_at for draft in self.held.made) if source else 0
        )
        time = next((draft.time for draft in self.held.made if draft.time), clock.time())
        first = FactDraft(time, began if not source else replace(began, origin=Origin()))
        facts = [first, *self.held.made[:shared]]
        if source:
            facts.append(
                FactDraft(
                    time, history_facts.build_started_fact(recording, fork=(source, shared + 1))
                )
            )
        facts += self.held.made[shared:]
        self._assign_seqs_to_drafts(1, range(1, shared + 1))
        self._assign_seqs_to_drafts(
            shared + 1 + bool(source), range(shared + 1, len(self.held.made) + 1)
        )
        numbering = asyncio.to_thread(self._renumber_drafts, facts, 1)
        placed, _ = await asyncio.gather(numbering, self._store_contents_of_drafts(self.held.made))
        await self._append_with_import_fact(placed, "new")

    def _assign_seqs_to_drafts(self, behind: int, numbers: range) -> None:
        for at, number in enumerate(numbers, behind + 1):
            self._seqs[number] = at

    async def _append_new_messages_of_recording(self, facts: Sequence[Recorded]) -> bool:
        """Append what is new, to a fork if it was continued here. False if the file
        holds another session.
        """
        last = max((one.seq for one in facts if isinstance(one.fact, BroughtIn)), default=0)
        undone = any(
            one.seq == last and isinstance(one.fact, BroughtIn) and one.fact.undone for one in facts
        )
        present = [one for one in build_state(facts).facts_on_path() if one.seq <= last]
        stand = [one for one in present if _is_message_fact(one.fact)]
        forgotten = any(isinstance(one.fact, Forgotten) for one in facts)
        folded = {one.seq - 1 for one in present if isinstance(one.fact, Folded)}
        common = self._count_common_messages(stand, folded, forgotten=forgotten)
        ours = any(one.seq > last and isinstance(one.fact, (*SAID, Rewound)) for one in facts)
        said = [
            number for number, draft in enumerate(self.held.made, 1) if draft.is_message_or_result
        ]
        shorter = common < len(stand) and self.earlier.is_in_another_file(self.held)
        if shorter and common < len(said):
            return False
        fresh = said[common] if common < len(said) else len(self.held.made) + 1
        is_other = common < min(len(stand), len(said))
        aligned = (
            self._align_with_damaged_file(stand, said, forgotten=forgotten)
            if is_other or forgotten
            else None
        )
        if aligned is not None:
            self.damage = f"{self.held.file} is damaged. {KEPT_DESPITE_DAMAGE}"
            common, fresh = aligned
        elif is_other and not ours and await self._append_after_summary(facts, present, common):
            return True
        folds = self._folds_made_since(facts, fresh)
        renamed = [] if ours or forgotten or common < len(stand) else self._list_title_change(facts)
        if self.damage:
            folds = [fold for fold in folds if fold.time > stand[-1].time]
            note = TurnEnded(TurnEnd.FAILED, self.damage)
            renamed = [] if ours or any(one.fact == note for one in facts) else [note]
        has_more = fresh <= len(self.held.made)
        if not has_more and (shorter or not (folds or undone or renamed)):
            self.new_from = len(self.held.recording.messages)
        elif ours and has_more:
            await self._fork_with_new_messages(present, common, fresh)
        else:
            await self._append_added_messages(
                facts, present, (common, fresh), folds, renamed, undone=undone
            )
        return True

    def _align_with_damaged_file(
        self, stand: Sequence[Recorded], said: Sequence[int], *, forgotten: bool
    ) -> tuple[int, int] | None:
        """Return how many messages stay, and the first new draft. What the file lacks
        was damaged, not taken back.

        Behind the last message that is equal here and in the file, what is later than
        all that is here is new. None if no line is damaged, or if the file has other
        words of the user.
        """
        made, compare = self.held.made, history_facts.comparable_text
        if not (self.held.is_damaged and stand and said):
            return None
        here, there = (
            [compare(one.fact) for one in stand],
            [compare(made[number - 1].fact) for number in said],
        )
        steps = difflib.SequenceMatcher(None, here, there, autojunk=False).get_opcodes()
        step, first, _, begin, _ = steps[-1]
        tail, rest = ([], []) if step == "equal" else (stand[first:], said[begin:])
        late = [number for number in rest if not tail or made[number - 1].time > stand[-1].time]
        for step, first, last, begin, end in steps:
            for at in range(
                begin, end
            ):  # What differs is what is left of a message that stands here.
                is_typed = (
                    isinstance(made[said[at] - 1].fact, UserSaid) and STRAY.strip() not in there[at]
                )
                if is_typed and step != "equal" and not forgotten and said[at] not in late:
                    return None
                self._seqs[said[at]] = stand[
                    min(first + at - begin, max(first, last - 1), len(stand) - 1)
                ].seq
        if len(tail) == 1 and rest and not forgotten:
            old, new = tail[0].fact, made[rest[0] - 1].fact
            if (
                isinstance(old, ModelReplied)
                and isinstance(new, ModelReplied)
                and new.parts[: len(old.parts)] == old.parts
            ):
                return len(stand) - 1, rest[
                    0
                ]  # The agent was still writing this reply when it was recorded.
        return len(stand), late[0] if late else len(made) + 1

    def _list_title_change(self, facts: Sequence[Recorded]) -> list[Fact]:
        """Return the change to a title that the other program gave later, unless the
        user gave one here.
        """
        spans = [range(one.fact.first, one.seq) for one in facts if isinstance(one.fact, BroughtIn) and not one.fact.undone]  # fmt: skip
        titles = {one.seq: one.fact.title for one in facts if isinstance(one.fact, ConversationStarted | ConversationChanged)}  # fmt: skip
        given = [(seq, title) for seq, title in titles.items() if title is not None]
        title = history_facts.title_of_recording(self.held.recording)
        if (
            not title
            or given[-1][1] == title
            or any(not any(seq in span for span in spans) for seq, _ in given)
        ):
            return []
        return [ConversationChanged(title)]

    async def _append_after_summary(
        self, facts: Sequence[Recorded], present: Sequence[Recorded], common: int
    ) -> bool:
        """Import a file in which the other program replaced older messages by a summary
        or by nothing: they stay here, the summary becomes a fold over them, and new
        messages follow. False if the file has other content.
        """
        stand = [one for one in present if _is_message_fact(one.fact)]
        said = [
            number for number, draft in enumerate(self.held.made, 1) if draft.is_message_or_result
        ][common:]
        first = self.held.made[said[0] - 1]
        later = said[1:] if first.is_summary else said
        here = [history_facts.comparable_text(one.fact) for one in stand[common:]]
        there = [history_facts.comparable_text(self.held.made[number - 1].fact) for number in later]
        lengths = range(min(len(here), len(there)), 0, -1)
        kept = next(
            (length for length in lengths if here[len(here) - length :] == there[:length]), 0
        )
        fold = (
            _build_fold_of_summary(facts, stand[: len(stand) - kept], first)
            if first.is_summary
            else None
        )
        if not kept and fold is None and not _has_fold_of_summary(facts, first):
            return False
        for number, one in zip(later[:kept], stand[len(stand) - kept :], strict=True):
            self._seqs[number] = one.seq
        fresh = later[kept] if kept < len(later) else len(self.held.made) + 1
        if fold is not None or fresh <= len(self.held.made):
            await self._append_added_messages(
                facts, present, (len(stand), fresh), [], [fold] if fold else []
            )
        else:
            self.new_from = len(self.held.recording.messages)
        return True

    def _count_common_messages(
        self, present: Sequence[Recorded], folded: set[int], *, forgotten: bool
    ) -> int:
        """Count messages and results that are equal here and in the file. If some were
        forgotten, all count.
        """
        said = [
            (number, draft)
            for number, draft in enumerate(self.held.made, 1)
            if draft.is_message_or_result
        ]
        common, compare = 0, history_facts.comparable_text
        for (number, draft), one in zip(said, present, strict=False):
            here = one.fact
            # Earlier versions read no usage of a reply of Codex before a compaction.
            if one.seq in folded and isinstance(here, ModelReplied) and not here.usage.input:
                here = replace(here, usage=getattr(draft.fact, "usage", here.usage))
            if not forgotten and compare(draft.fact) != compare(here):
                break
            self._seqs[number] = one.seq
            common += 1
        return common

    def _folds_made_since(self, facts: Sequence[Recorded], fresh: int) -> list[FactDraft]:
        """Return new folds of the other program over messages that are already here."""
        there = {(one.fact.kind, one.fact.cover) for one in facts if isinstance(one.fact, Folded)}
        folds = (
            (one, one.fact) for one in self.held.made[: fresh - 1] if isinstance(one.fact, Folded)
        )
        found = ((one, fold.kind, self._renumber_cover(fold.cover)) for one, fold in folds)
        return [one for one, kind, cover in found if cover and (kind, cover) not in there]

    async def _append_added_messages(
        self,
        facts: Sequence[Recorded],
        present: Sequence[Recorded],
        at: tuple[int, int],
        folds: list[FactDraft],
        begun: Sequence[Fact] = (),
        *,
        undone: bool = False,
    ) -> None:
        common, fresh = at
        new = self.held.made[fresh - 1 :] if fresh <= len(self.held.made) else []
        begun = [*begun]
        stand = [one for one in present if _is_message_fact(one.fact)]
        if common < len(stand):  # The file's messages are not those that were imported before.
            begun.append(Rewound(stand[common].seq - 1))
        if undone and any(
            isinstance(one.fact, ConversationChanged) and one.fact.trashed for one in facts
        ):
            begun.append(ConversationChanged(trashed=False))
        first = facts[-1].seq + 1
        self._assign_seqs_to_drafts(
            facts[-1].seq + len(begun) + len(folds), range(fresh, len(self.held.made) + 1)
        )
        await self._store_contents_of_drafts(new)
        numbered = self._renumber_drafts([*folds, *new], first + len(begun))
        appended = [*((0.0, one) for one in begun), *_rename_folds(facts, numbered)]
        self.new_from = new[0].message if new else len(self.held.recording.messages)
        await self._append_with_import_fact(
            appended, "back" if undone and not new else "more", facts
        )

    async def _fork_with_new_messages(
        self, present: Sequence[Recorded], common: int, fresh: int
    ) -> None:
        """Fork the imported part and append what is new. The conversation stays as it
        was continued here.
        """
        stand = [one for one in present if _is_message_fact(one.fact)]
        source, at = self.conversation, stand[common - 1].seq if common else 1
        forked = [one for one in present if one.seq <= at]
        recording, count = self.held.recording, len(self.held.made)
        if len(forked) != at:  # The conversation was rewound earlier: its fact numbers differ.
            self._seqs.clear()
            self.conversation = conversation_id_of_session(
                recording.kind, f"{recording.session}\0{count}"
            )
            await self._create_imported_conversation()
            return
        name = f"{recording.session}\0{source}\0{at}\0{count}"
        self.conversation = conversation_id_of_session(recording.kind, name)
        begun = history_facts.build_started_fact(recording, fork=(source, at))
        new = self.held.made[fresh - 1 :]
        self._assign_seqs_to_drafts(at + 1, range(fresh, len(self.held.made) + 1))
        await self._store_contents_of_drafts(new)
        facts: list[tuple[float, Fact]] = [(one.time, one.fact) for one in forked]
        facts.append((0.0, begun))
        facts += _rename_folds(forked, self._renumber_drafts(new, at + 2))
        self.new_from = new[0].message if new else 0
        await self._append_with_import_fact(facts, "fork")

    def _renumber_drafts(self, drafts: Sequence[FactDraft], first: int) -> list[tuple[float, Fact]]:
        return [(draft.time, self._renumber(draft, seq)) for seq, draft in enumerate(drafts, first)]

    def _renumber(self, draft: FactDraft, seq: int) -> Fact:
        match draft.fact:
            case Folded(cover=cover) as fold:
                return replace(fold, cover=self._renumber_cover(cover) or cover)
            case ModelReplied(usage=usage) as reply:  # Most files do not record the cost.
                cost = compute_cost(usage, shipped_prices(reply.model))
                return replace(reply, saw=seq - 1, usage=replace(usage, cost=cost))
        return draft.fact

    def _renumber_cover(self, cover: Cover) -> Cover | None:
        if isinstance(cover, PartRef):
            seq = self._seqs.get(cover.seq)
            return PartRef(seq, cover.part) if seq else None
        first, last = self._seqs.get(cover.first), self._seqs.get(cover.last)
        return Span(first, last) if first and last else None

    async def _store_contents_of_drafts(self, new: Sequence[FactDraft]) -> None:
        """Store the contents of these facts, before they refer to them."""
        batch: list[history_facts.Content] = []
        size = 0
        for content in (content for draft in new for content in draft.contents):
            batch.append(content)
            size += len(content[0])
            if len(batch) == TOGETHER or size > SLICE:
                await self.workspace.cache.store_many(batch)
                batch, size = [], 0
        await self.workspace.cache.store_many(batch)

    async def _store_unread_lines(self, before: Sequence[Recorded]) -> Stored | None:
        """Store the lines that no earlier import has stored."""
        earlier = [
            one.fact.unread.digest
            for one in before
            if isinstance(one.fact, BroughtIn) and one.fact.unread
        ]
        stored = (await self.workspace.cache.read_contents(earlier)).values() if earlier else ()
        known = {line for content in stored for line in content.splitlines()}
        new = [line for each in self.held.unread if (line := each.rstrip(b"\r\n")) not in known]
        about = EntryOrigin("import", f"notes of the agent, no messages, in {self.held.file.name}")
        return await self.workspace.cache.store_content(b"\n".join(new), about) if new else None

    async def _append_with_import_fact(
        self, facts: list[tuple[float, Fact]], state: str, before: Sequence[Recorded] = ()
    ) -> None:
        """Append the facts in one transaction, with the fact that says where they come from."""
        size, modified = self.held.stamp
        origin, said = (
            history_facts.origin_of_recording(self.held.recording),
            [fact for _, fact in facts],
        )
        paid = sum(fact.usage.cost for fact in said if isinstance(fact, ModelReplied))
        paid -= sum(fact.cost for fact in said if isinstance(fact, BroughtIn))
        unread = await self._store_unread_lines(before)
        brought = BroughtIn(
            origin, self.run, len(before) + 1, size, modified, cost=paid, unread=unread
        )
        whole = [*facts, (0.0, brought)]
        seq, known = len(before) + len(whole), self.held.meter
        meter = (
            conversation_list_rows.encode_meter(known, seq, "", "", NAMES.get(origin.kind, ""))
            if known
            else ""
        )
        appended = await self.workspace.journal.append_imported_facts(
            self.conversation, whole, meter
        )
        self.recorded = appended[-1]
        self.brought = ImportedConversation(
            self.conversation,
            state,
            history_facts.title_of_recording(self.held.recording),
            origin.kind,
            origin.session,
            origin.path,
            sum(isinstance(fact, UserSaid | ModelReplied) for fact in said),
            sum(isinstance(fact, ToolReturned) for fact in said),
            sum(isinstance(fact, Folded) for fact in said),
            len(facts) + 1,
            appended[-1].time,
            next(
                (
                    fact.parent
                    for fact in said
                    if isinstance(fact, ConversationStarted) and fact.parent
                ),
                "",
            ),
            next(
                (
                    fact.forked_from
                    for fact in said
                    if isinstance(fact, ConversationStarted) and fact.forked_from
                ),
                "",
            ),
        )


def _rename_folds(
    before: Sequence[Recorded], facts: Sequence[tuple[float, Fact]]
) -> list[tuple[float, Fact]]:
    """Return the facts, with names for their folds that are not used yet."""
    taken = (one.fact.fold.rpartition("-")[2] for one in before if isinstance(one.fact, Folded))
    numbers = itertools.count(1 + max((int(name) for name in taken if name.isdecimal()), default=0))
    return [
        (
            time,
            replace(fact, fold=f"{fact.kind.value}-{next(numbers)}")
            if isinstance(fact, Folded)
            else fact,
        )
        for time, fact in facts
    ]


def _build_fold_of_summary(
    facts: Sequence[Recorded], covered: Sequence[Recorded], summary: FactDraft
) -> Folded | None:
    """Return a fold over what the summary replaces. None if there is one or it is not valid."""
    covered = [one for one in covered if not isinstance(one.fact, SystemSet)]
    if not covered or _has_fold_of_summary(facts, summary):
        return None
    text, state = history_facts.summary_text_of_draft(summary), build_state(facts)
    cover = Span(covered[0].seq, covered[-1].seq)
    number = sum(isinstance(one.fact, Folded) for one in facts) + 1
    documents = sum(
        isinstance(one.fact, Folded) and one.fact.kind is FoldKind.HANDOVER for one in facts
    )
    tokens, before = summary.fact.parts[0].tokens, state.branch.shown_tokens(cover)  # type: ignore[union-attr]
    fold = Folded(f"handover-{number}", FoldKind.HANDOVER, cover, text, tokens, before, number=documents + 1, why=REWRITTEN)  # fmt: skip
    state.advance_state(Recorded(facts[-1].conversation, facts[-1].seq + 1, facts[-1].time, fold))
    return fold if fold.fold in state.branch.live else None


def _has_fold_of_summary(facts: Sequence[Recorded], summary: FactDraft) -> bool:
    text = history_facts.summary_text_of_draft(summary) if summary.is_summary else None
    return any(isinstance(one.fact, Folded) and one.fact.text == text for one in facts)


def _is_message_fact(fact: Fact) -> bool:
    return FactDraft(0.0, fact).is_message_or_result
