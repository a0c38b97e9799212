"""Histories of other programs brought into a workspace as conversations, and what is new of them when it is done again.

Content is stored first; then the facts of a conversation are appended in one transaction, with a `BroughtIn` that tells where they come
from. So a crash or a stop leaves whole conversations, and the next import goes on with the rest. A file whose size and time are as they
were is not read again; one that has grown adds what is new. Where the conversation was continued here meanwhile, what is new goes into a
fork of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import secrets as random
import time as clock
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path

from helix_desktop import tokens
from helix_desktop.engine import budget, policy
from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationChanged,
    ConversationStarted,
    Cover,
    Fact,
    Folded,
    Forgotten,
    ModelReplied,
    Origin,
    PartRef,
    Recorded,
    Rewound,
    Span,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import Tokens
from helix_desktop.engine.view import state_of
from helix_desktop.errors import HelixError, NotThere, WrongUse
from helix_desktop.histories import as_facts, keys, reading, sqlite_files
from helix_desktop.histories.as_facts import Draft
from helix_desktop.histories.recording import Recording, counted, texts
from helix_desktop.histories.rows import Told
from helix_desktop.store.thread import StoreThread
from helix_desktop.store.workspace import Workspace
from helix_desktop.values import dataclass
from helix_desktop.workbench import rows

Report = Callable[[int, int, str], object]  # bytes read, bytes in all, the file being read
Hold = Callable[[str], AbstractAsyncContextManager[None]]
AHEAD, BEHIND = (
    4 << 20,
    2_000,
)  # after so many bytes the index has its turn, until it lacks so little: what was counted is still known then
TOGETHER, SLICE = 64, 1 << 20  # contents that share a sync, and their bytes
_SAID = (UserSaid, ModelReplied, ToolReturned)


def unheard(_done: int, _total: int, _file: str) -> None:
    """For who needs no progress."""


@asynccontextmanager
async def nobody(_conversation: str) -> AsyncIterator[None]:
    """For a workspace without open sessions."""
    yield


@dataclass(frozen=True, slots=True)
class Brought:
    """A conversation after its import. `state`: "new", "more" (it had grown), "fork" (it was continued here), "back" (an undone import)."""

    id: str
    state: str
    title: str
    kind: str
    session: str
    path: str
    messages: int
    outputs: int
    folds: int
    facts: int  # that were appended
    last: float = 0.0  # when something happened in it last
    parent: str = ""
    forked_from: str = ""


@dataclass(slots=True)
class Result:
    """What an import came to. `unchanged`: conversations that were already here."""

    run: str
    imported: list[Brought] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    unchanged: int = 0
    keys: keys.Keys = field(default_factory=keys.Keys)


def new_run() -> str:
    """A name for an import; it tells when it was."""
    return f"{clock.strftime('%Y%m%dT%H%M%S', clock.gmtime())}-{random.token_hex(3)}"


def conversation_of(kind: str, session: str) -> str:
    """The conversation a session becomes: the same in every import."""
    return hashlib.sha256(f"{kind}\0{session}".encode("utf-8", "replace")).hexdigest()[:20]


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files to read; NotThere for a path that is not there."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise NotThere(f"{path} is not there.", remedy="Check the name.")
        found += reading.files(path) if path.is_dir() else [path]
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Held:
    """A session that was read. `stamp`: of its file, where it is the last in it."""

    file: Path
    recording: Recording
    made: list[Draft]
    stamp: tuple[int, int]
    meter: str  # what stands in its window, for the list
    keys: list[tuple[int, str]]  # what looks like a key, by message


@dataclass(slots=True)
class Import:
    """One import into one workspace. `hold`: nobody else changes a conversation within it."""

    workspace: Workspace
    tokens: Tokens
    kind: str = ""
    hold: Hold = nobody
    wanted: Mapping[str, frozenset[str]] = field(
        default_factory=dict
    )  # of a database: the folders whose sessions are wanted
    result: Result = field(default_factory=lambda: Result(new_run()))
    settings: Sequence[Fact] = ()  # what the next request of such a conversation would have besides it
    _known: dict[tuple[str, str], Recorded] = field(default_factory=dict)  # the last import of each session
    _stamps: dict[str, tuple[int, int]] = field(default_factory=dict)
    _calls: dict[tuple[str, str], str] = field(default_factory=dict)  # of a sub-agent's session: the call that made it

    async def read(self, files: Sequence[Path], report: Report = unheard) -> Result:
        """Bring in all sessions of these files. What cannot be read, or not be written now, gets a sentence."""
        await self._look()
        thread = StoreThread("bring in")
        sizes = [_size(file) for file in files]
        done, ahead = dict(zip(files, itertools.accumulate(sizes, initial=0), strict=False)), 0
        held = self._held(files)
        try:
            coming = thread.submit(next, held, None)
            while (one := await asyncio.wrap_future(coming)) is not None:
                coming = thread.submit(next, held, None)  # is read while this one is written
                report(done[one.file], sum(sizes), str(one.file))
                if done[one.file] - ahead > AHEAD:
                    await self.workspace.index.caught_up(but=BEHIND)
                    ahead = done[one.file]
                await self._one(one)
        finally:
            await thread.aclose()
        report(sum(sizes), sum(sizes), "")
        return self.result

    async def _look(self) -> None:
        """What is here already."""
        for recorded in await self.workspace.journal.brought_in():
            if isinstance(fact := recorded.fact, BroughtIn):
                self._known[fact.origin.kind, fact.origin.session] = recorded
                path = fact.origin.path.partition("#")[0]
                self._stamps[path] = (fact.size, fact.modified) if not fact.undone else (0, 0)

    # --- on a thread of its own

    def _held(self, files: Sequence[Path]) -> Iterator[_Held]:
        """Every session of the files that may have something new, as facts."""
        known = Counter(_path_of(recorded) for recorded in self._known.values())
        for file in files:
            stamp = _stamp(file)
            if stamp[0] and self._stamps.get(str(file)) == stamp:
                self.result.unchanged += known[str(file)]
            else:
                yield from self._of_file(file, stamp)

    def _of_file(self, file: Path, stamp: tuple[int, int]) -> Iterator[_Held]:
        told = Told()
        read = reading.sessions(file, told, self.kind)
        if (folders := self.wanted.get(str(file))) and sqlite_files.is_one(file):
            read = (one for one in read if one.folder in folders)
            stamp = (0, 0)  # of the others of this file nothing is known yet
        try:
            recording = next(read, None)
            while recording is not None:
                after = next(read, None)
                if isinstance(self.tokens, tokens.Counter):
                    self.tokens.ahead(text for message in recording.messages for text in counted(message))
                made = as_facts.drafts(recording, self.tokens, partial(conversation_of, recording.kind))
                known = stamp if after is None else (0, 0)
                yield _Held(file, recording, made, known, self._meter(made), _keys(recording))
                recording = after
        except (NotThere, WrongUse) as error:
            self.result.complaints.append(str(error))
        self.result.complaints.extend(told.sentences(str(file)))

    def _meter(self, made: Sequence[Draft]) -> str:
        after = [Draft(0.0, fact) for fact in self.settings]
        state = state_of(Recorded("", at, draft.time, draft.fact) for at, draft in enumerate([*made, *after], 1))
        return rows.written(budget.meter(state, policy.from_fact(state.settings.policy)))

    # --- on the event loop

    async def _one(self, held: _Held) -> None:
        recording = held.recording
        if not any(message.role == "assistant" for message in recording.messages):
            self.result.complaints.append(f"{recording.name}: nothing was answered in it, so it was left out.")
            return
        for message in recording.messages:
            if message.child:
                self._calls[recording.kind, message.child] = message.answers
        writing = _Writing(self, held, self._here(recording))
        try:
            await writing.write()
        except HelixError as error:
            self.result.complaints.append(f"{recording.name}: {error}")
            return
        for at, key in held.keys:
            if at >= writing.new_from:
                self.result.keys.note(writing.conversation, key)

    def _here(self, recording: Recording) -> str:
        known = self._known.get((recording.kind, recording.session))
        return known.conversation if known else conversation_of(recording.kind, recording.session)

    def parent_of(self, recording: Recording) -> str:
        """The conversation of the session that started this one, where it is here."""
        known = self._known.get((recording.kind, recording.parent)) if recording.parent else None
        return known.conversation if known else ""

    def call_of(self, recording: Recording) -> str:
        return recording.parent_call or self._calls.get((recording.kind, recording.session), "")

    def source_of(self, recording: Recording) -> str:
        known = self._known.get((recording.kind, recording.forked_from)) if recording.forked_from else None
        return known.conversation if known else ""

    def remember(self, recording: Recording, recorded: Recorded) -> None:
        self._known[recording.kind, recording.session] = recorded


@dataclass(slots=True)
class _Writing:
    """One recording on its way into its conversation."""

    run: Import
    held: _Held
    conversation: str
    new_from: int = 0  # the first message that is new
    _seqs: dict[int, int] = field(default_factory=dict)  # of a draft's number: where its fact stands

    @property
    def recording(self) -> Recording:
        return self.held.recording

    @property
    def made(self) -> list[Draft]:
        return self.held.made

    async def write(self) -> None:
        async with self.run.hold(self.conversation):
            facts = await self.run.workspace.journal.read(self.conversation)
            if facts:
                await self._go_on(facts)
            else:
                await self._begin()

    # --- a new conversation

    async def _begin(self) -> None:
        """All of it, in one transaction. A branch begins with what it shares, and then is a fork."""
        recording, source = self.recording, self.run.source_of(self.recording)
        call = self.run.call_of(recording)
        parent = self.run.parent_of(recording)
        began = as_facts.started(replace(recording, parent_call=call), parent=parent)
        shared = sum(draft.message < recording.forked_at for draft in self.made) if source else 0
        first: list[Draft] = [Draft(self._first(), began if not source else replace(began, origin=Origin()))]
        facts = [*first, *self.made[:shared]]
        if source:
            facts.append(Draft(self._first(), as_facts.started(recording, fork=(source, shared + 1))))
        facts += self.made[shared:]
        self._place(1, range(1, shared + 1))
        self._place(shared + 1 + bool(source), range(shared + 1, len(self.made) + 1))
        await self._put(self.made)
        await self._append(await asyncio.to_thread(self._all_placed, facts), "new")

    def _first(self) -> float:
        return next((draft.time for draft in self.made if draft.time), clock.time())

    def _place(self, behind: int, numbers: range) -> None:
        for at, number in enumerate(numbers, behind + 1):
            self._seqs[number] = at

    # --- one that is here

    async def _go_on(self, facts: Sequence[Recorded]) -> None:
        """What is new of it; where it was continued here, into a fork of what came from there."""
        last = max((one.seq for one in facts if isinstance(one.fact, BroughtIn)), default=0)
        undone = any(one.seq == last and isinstance(one.fact, BroughtIn) and one.fact.undone for one in facts)
        present = [one for one in state_of(facts).present() if one.seq <= last]
        common = self._common([one for one in present if _is_said(one.fact)], forgotten=_has_tombstone(facts))
        ours = any(one.seq > last and isinstance(one.fact, (*_SAID, Rewound)) for one in facts)
        said = [number for number, draft in enumerate(self.made, 1) if draft.said]
        fresh = said[common] if common < len(said) else len(self.made) + 1
        folds = self._missing_folds(facts, fresh)
        if common == len(said) and not folds and not undone:
            self.run.result.unchanged += 1
            self.new_from = len(self.recording.messages)
            return
        if ours and common < len(said):
            await self._fork(present, common, fresh)
            return
        await self._more(facts, present, (common, fresh), folds, undone=undone)

    def _common(self, present: Sequence[Recorded], *, forgotten: bool) -> int:
        """How many of the facts that were said stand here as the file has them; with forgotten ones among them, all."""
        said = [(number, draft) for number, draft in enumerate(self.made, 1) if draft.said]
        common = 0
        for (number, draft), one in zip(said, present, strict=False):
            if not forgotten and as_facts.compared(draft.fact) != as_facts.compared(one.fact):
                break
            self._seqs[number] = one.seq
            common += 1
        return common

    def _missing_folds(self, facts: Sequence[Recorded], fresh: int) -> list[Draft]:
        """Folds over what is here already that the other program made since."""
        there = {(one.fact.kind, one.fact.cover) for one in facts if isinstance(one.fact, Folded)}
        folds = (draft for draft in self.made[: fresh - 1] if isinstance(draft.fact, Folded))
        covers = ((draft, self._cover(draft.fact.cover)) for draft in folds if isinstance(draft.fact, Folded))
        return [
            draft
            for draft, cover in covers
            if cover is not None and isinstance(draft.fact, Folded) and (draft.fact.kind, cover) not in there
        ]

    async def _more(
        self,
        facts: Sequence[Recorded],
        present: Sequence[Recorded],
        at: tuple[int, int],
        folds: list[Draft],
        *,
        undone: bool,
    ) -> None:
        common, fresh = at
        new = self.made[fresh - 1 :] if fresh <= len(self.made) else []
        begun: list[tuple[float, Fact]] = []
        stand = [one for one in present if _is_said(one.fact)]
        if common < len(stand):  # the file tells it differently now
            begun.append((0.0, Rewound(stand[common].seq - 1)))
        if undone and any(isinstance(one.fact, ConversationChanged) and one.fact.trashed for one in facts):
            begun.append((0.0, ConversationChanged(trashed=False)))
        first = facts[-1].seq + 1
        self._place(facts[-1].seq + len(begun) + len(folds), range(fresh, len(self.made) + 1))
        await self._put(new)
        names = _Names(facts)
        appended = [*begun]
        for place, draft in enumerate((*folds, *new), first + len(begun)):
            appended.append((draft.time, names.fresh(self._placed(draft, place))))
        self.new_from = new[0].message if new else len(self.recording.messages)
        await self._append(appended, "back" if undone and not new else "more", facts)

    async def _fork(self, present: Sequence[Recorded], common: int, fresh: int) -> None:
        """The part that came from there and what is new of it, beside the conversation as it was continued here."""
        stand = [one for one in present if _is_said(one.fact)]
        source, at = self.conversation, stand[common - 1].seq if common else 1
        forked = [one for one in present if one.seq <= at]
        if len(forked) != at:  # rewound before: its numbers would not hold
            self._seqs.clear()
            self.conversation = conversation_of(self.recording.kind, f"{self.recording.session}\0{len(self.made)}")
            await self._begin()
            return
        self.conversation = conversation_of(
            self.recording.kind, f"{self.recording.session}\0{source}\0{at}\0{len(self.made)}"
        )
        begun = as_facts.started(self.recording, fork=(source, at))
        new = self.made[fresh - 1 :]
        self._place(at + 1, range(fresh, len(self.made) + 1))
        await self._put(new)
        names = _Names(forked)
        facts: list[tuple[float, Fact]] = [(one.time, one.fact) for one in forked]
        facts.append((0.0, begun))
        facts += [(draft.time, names.fresh(self._placed(draft, place))) for place, draft in enumerate(new, at + 2)]
        self.new_from = new[0].message if new else 0
        await self._append(facts, "fork")

    # --- facts in their places

    def _all_placed(self, drafts: Sequence[Draft]) -> list[tuple[float, Fact]]:
        return [(draft.time, self._placed(draft, at)) for at, draft in enumerate(drafts, 1)]

    def _placed(self, draft: Draft, seq: int) -> Fact:
        match draft.fact:
            case Folded(cover=cover) as fold:
                return replace(fold, cover=self._cover(cover) or cover)
            case ModelReplied() as reply:
                return replace(reply, saw=seq - 1)
        return draft.fact

    def _cover(self, cover: Cover) -> Cover | None:
        if isinstance(cover, PartRef):
            seq = self._seqs.get(cover.seq)
            return PartRef(seq, cover.part) if seq else None
        first, last = self._seqs.get(cover.first), self._seqs.get(cover.last)
        return Span(first, last) if first and last else None

    async def _put(self, new: Sequence[Draft]) -> None:
        """Store the contents of these facts, before they refer to them."""
        batch: list[as_facts.Content] = []
        for content in (content for draft in new for content in draft.contents):
            batch.append(content)
            if len(batch) == TOGETHER or sum(len(each) for each, _ in batch) > SLICE:
                await self.run.workspace.cache.put_many(batch)
                batch = []
        await self.run.workspace.cache.put_many(batch)

    async def _append(self, facts: list[tuple[float, Fact]], state: str, before: Sequence[Recorded] = ()) -> None:
        """Behind what is there already, in one transaction, with the fact that says where it comes from."""
        size, modified = self.held.stamp
        origin, said = as_facts.origin_of(self.recording), [fact for _, fact in facts]
        paid = sum(fact.usage.cost for fact in said if isinstance(fact, ModelReplied))
        paid -= sum(fact.cost for fact in said if isinstance(fact, BroughtIn))
        brought = BroughtIn(origin, self.run.result.run, len(before) + 1, size, modified, cost=paid)
        whole = [*facts, (0.0, brought)]
        appended = await self.run.workspace.journal.bring_in(self.conversation, whole, self.held.meter)
        self.run.remember(self.recording, appended[-1])
        self.run.result.imported.append(
            Brought(
                self.conversation,
                state,
                as_facts.title_of(self.recording),
                origin.kind,
                origin.session,
                origin.path,
                sum(isinstance(fact, UserSaid | ModelReplied) for fact in said),
                sum(isinstance(fact, ToolReturned) for fact in said),
                sum(isinstance(fact, Folded) for fact in said),
                len(facts) + 1,
                appended[-1].time,
                next((fact.parent for fact in said if isinstance(fact, ConversationStarted) and fact.parent), ""),
                _forked_from(said),
            )
        )


class _Names:
    """Names for folds that no fold of a conversation has."""

    def __init__(self, facts: Sequence[Recorded]) -> None:
        taken = (one.fact.fold for one in facts if isinstance(one.fact, Folded))
        self._last = max(
            (int(name.rpartition("-")[2]) for name in taken if name.rpartition("-")[2].isdecimal()), default=0
        )

    def fresh(self, fact: Fact) -> Fact:
        if not isinstance(fact, Folded):
            return fact
        self._last += 1
        return replace(fact, fold=f"{fact.kind.value}-{self._last}")


def _is_said(fact: Fact) -> bool:
    return Draft(0.0, fact).said


def _has_tombstone(facts: Sequence[Recorded]) -> bool:
    return any(isinstance(one.fact, Forgotten) for one in facts)


def _forked_from(facts: Sequence[Fact]) -> str:
    forks = (fact.forked_from for fact in facts if isinstance(fact, ConversationStarted) and fact.forked_from)
    return next(forks, "")


def _path_of(recorded: Recorded) -> str:
    return recorded.fact.origin.path.partition("#")[0] if isinstance(recorded.fact, BroughtIn) else ""


def _keys(recording: Recording) -> list[tuple[int, str]]:
    texts_of = ((at, text) for at, message in enumerate(recording.messages) for text in texts(message))
    return [(at, key) for at, text in texts_of for key in keys.found(text)]


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _stamp(file: Path) -> tuple[int, int]:
    """What tells that a file has not changed: its size and its time, with what a database keeps beside it."""
    size = modified = 0
    for name in (
        file,
        file.with_name(f"{file.name}-wal"),
        file.parents[2] / "message" / file.stem if len(file.parents) > 2 else file,
    ):
        try:
            found = name.stat()
        except OSError:
            continue
        size, modified = size + found.st_size, max(modified, found.st_mtime_ns)
    return size, modified


# --- undo ------------------------------------------------------------------------------------------------------------


async def undo(workspace: Workspace, run: str, hold: Hold = nobody) -> tuple[int, list[str]]:
    """Take an import back: what it made goes to the trash, what it added leaves the line. How many conversations, and a sentence
    for each that stays because it was continued here.
    """
    newest = {
        one.conversation: (one, one.fact)
        for one in await workspace.journal.brought_in()
        if isinstance(one.fact, BroughtIn) and one.fact.run == run
    }
    found = [one for one, fact in newest.values() if not fact.undone]
    if not found:
        raise NotThere(f"There is no import {run} that could be undone.", remedy="`conversation imports` lists them.")
    count, stayed = 0, []
    for one in found:
        async with hold(one.conversation):
            if await _undone(workspace, one):
                count += 1
            else:
                stayed.append(f"{one.conversation} was continued since, so it stays.")
    return count, stayed


async def _undone(workspace: Workspace, brought: Recorded) -> bool:
    facts = await workspace.journal.read(brought.conversation)
    later = [one.fact for one in facts if one.seq > brought.seq]
    if any(isinstance(fact, (*_SAID, Rewound, BroughtIn)) for fact in later) or not isinstance(brought.fact, BroughtIn):
        return False
    fact = brought.fact
    change: Fact = ConversationChanged(trashed=True) if fact.first <= 1 else Rewound(fact.first - 1)
    await workspace.journal.bring_in(
        brought.conversation, [(0.0, change), (0.0, replace(fact, size=0, modified=0, undone=True, cost=0.0))]
    )
    return True


async def runs(workspace: Workspace) -> list[tuple[str, int, bool]]:
    """The imports of a workspace, the newest first: name, how many conversations, whether it was undone."""
    found: dict[str, dict[str, bool]] = {}
    for one in await workspace.journal.brought_in():
        if isinstance(one.fact, BroughtIn):
            found.setdefault(one.fact.run, {})[one.conversation] = one.fact.undone
    return [(run, len(those), all(those.values())) for run, those in sorted(found.items(), reverse=True)]
