"""Decides what a session that was read again means for its conversation here.

`decide_import` compares the messages that were imported before with those that the file
has now, and returns one of four outcomes: `Unchanged`, `Append`, `Fork` or `Reject`. It
reads and writes nothing; `session_import` acts on the outcome.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

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
    PartRef,
    Recorded,
    Rewound,
    Span,
    SystemSet,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.foreign_agent_facts import STRAY
from helix_desktop.engine.view import build_state
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_facts
from helix_desktop.histories.history_facts import FactDraft

REWRITTEN = "the other program compacted the conversation and overwrote its file"
KEPT_DESPITE_DAMAGE = "The messages that were recorded from it before are kept."
SAID = (UserSaid, ModelReplied, ToolReturned)
# By a draft's number: the number of the fact here that says the same.
Places = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The file has nothing that is not here."""

    damage: str = ""  # A sentence, if messages are kept that the file has no more.


@dataclass(frozen=True, slots=True)
class Reject:
    """The file has another session, which only bears the same name."""


@dataclass(frozen=True, slots=True)
class Append:
    """What is new follows in the same conversation.

    `first_new`: the number of the first new draft, behind the last one if there is none.
    `keeps_up_to`: if messages here are not in the file any more, the number of the last
    fact that stays. `changes`: facts before the new ones. `folds`: the other program's,
    over messages that are here. `is_redone`: the last import was undone, and comes back.
    """

    first_new: int
    places: Places
    keeps_up_to: int | None = None
    changes: tuple[Fact, ...] = ()
    folds: tuple[FactDraft, ...] = ()
    is_redone: bool = False
    damage: str = ""


@dataclass(frozen=True, slots=True)
class Fork:
    """The conversation was continued here, so what is new goes into a fork of it.

    `after`: the number of the last fact that both have. `shared`: the facts that the
    fork begins with. `is_countable`: whether their numbers have no gaps, as a fork's must.
    """

    first_new: int
    places: Places
    after: int
    shared: tuple[Recorded, ...]
    is_countable: bool
    damage: str = ""


ImportDecision = Unchanged | Reject | Append | Fork


@dataclass(frozen=True, slots=True)
class SessionInFile:
    """What the file has: `drafts` of facts, and its present title."""

    file: Path
    drafts: Sequence[FactDraft]
    title: str
    is_damaged: bool = False  # Whether some lines of it cannot be read.

    @property
    def behind_last(self) -> int:
        return len(self.drafts) + 1

    def draft(self, number: int) -> FactDraft:
        return self.drafts[number - 1]

    def message_numbers(self) -> list[int]:
        """Return the numbers of the drafts by which an earlier import is recognised."""
        return [number for number, draft in enumerate(self.drafts, 1) if draft.is_message_or_result]


@dataclass(frozen=True, slots=True)
class ConversationHere:
    """What is here: all `facts`, and of these what imports brought and what was done since.

    `imported`: the facts up to the last import that are still in effect. `messages`: the
    messages and results among them.
    """

    facts: Sequence[Recorded]
    imported: Sequence[Recorded]
    messages: Sequence[Recorded]
    is_continued: bool  # Whether something was said or taken back here since the last import.
    is_last_import_undone: bool
    has_forgotten_text: bool

    @classmethod
    def from_facts(cls, facts: Sequence[Recorded]) -> "ConversationHere":
        last = 0
        is_undone = False
        for one in facts:
            if isinstance(one.fact, BroughtIn):
                last = one.seq
                is_undone = one.fact.undone
        imported = [one for one in build_state(facts).facts_on_path() if one.seq <= last]
        later = [one.fact for one in facts if one.seq > last]
        return cls(
            facts,
            imported,
            messages=[one for one in imported if _is_message_fact(one.fact)],
            is_continued=any(isinstance(fact, (*SAID, Rewound)) for fact in later),
            is_last_import_undone=is_undone,
            has_forgotten_text=any(isinstance(one.fact, Forgotten) for one in facts),
        )


@dataclass(frozen=True, slots=True)
class MatchedMessages:
    """The first `count` messages here are in the file. What is new there begins at `first_new`."""

    count: int
    first_new: int
    places: Places = field(default_factory=dict)


def decide_import(
    facts: Sequence[Recorded], session: SessionInFile, *, is_in_another_file: bool
) -> ImportDecision:
    """Return what to do. `is_in_another_file`: whether another file, which is still there,
    has a session of the same name.
    """
    here = ConversationHere.from_facts(facts)
    matched = _match_first_messages(here, session)
    count_in_file = len(session.message_numbers())
    differs = matched.count < min(len(here.messages), count_in_file)
    is_other_file_longer = is_in_another_file and matched.count < len(here.messages)
    if is_other_file_longer and matched.count < count_in_file:
        return Reject()
    if differs or here.has_forgotten_text:
        aligned = _align_with_damaged_file(here, session)
        if aligned is not None:
            return _decide_for_damaged_file(here, session, aligned, is_other_file_longer)
    if differs and not here.is_continued:
        summarised = _decide_for_summary(here, session, matched)
        if summarised is not None:
            return summarised
    changes = _list_title_change_of_whole_session(here, session, matched)
    folds = _folds_made_since(here, session, matched)
    return _choose_outcome(
        here, session, matched, folds, changes, is_other_file_longer=is_other_file_longer
    )


def _list_title_change_of_whole_session(
    here: ConversationHere, session: SessionInFile, matched: MatchedMessages
) -> list[Fact]:
    """Return the change to the title, if all that is here is in the file and nothing else."""
    if here.is_continued or here.has_forgotten_text or matched.count < len(here.messages):
        return []
    return _list_title_change(here, session)


def _decide_for_damaged_file(
    here: ConversationHere,
    session: SessionInFile,
    matched: MatchedMessages,
    is_other_file_longer: bool,  # noqa: FBT001 -- as in its only caller
) -> ImportDecision:
    damage = f"{session.file} is damaged. {KEPT_DESPITE_DAMAGE}"
    note = TurnEnded(TurnEnd.FAILED, damage)
    is_noted = any(one.fact == note for one in here.facts)
    changes: list[Fact] = []
    if not here.is_continued and not is_noted:
        changes.append(note)
    newest = here.messages[-1].time
    folds = [fold for fold in _folds_made_since(here, session, matched) if fold.time > newest]
    return _choose_outcome(
        here,
        session,
        matched,
        folds,
        changes,
        is_other_file_longer=is_other_file_longer,
        damage=damage,
    )


def _choose_outcome(
    here: ConversationHere,
    session: SessionInFile,
    matched: MatchedMessages,
    folds: Sequence[FactDraft],
    changes: Sequence[Fact],
    *,
    is_other_file_longer: bool,
    damage: str = "",
) -> ImportDecision:
    has_new_messages = matched.first_new < session.behind_last
    is_worth_a_fact = bool(folds or changes) or here.is_last_import_undone
    if not has_new_messages and (is_other_file_longer or not is_worth_a_fact):
        return Unchanged(damage)
    if here.is_continued and has_new_messages:
        return _fork_after(here, matched, damage)
    return _append_after(here, matched, folds, changes, damage)


def _append_after(
    here: ConversationHere,
    matched: MatchedMessages,
    folds: Sequence[FactDraft],
    changes: Sequence[Fact],
    damage: str = "",
) -> Append:
    keeps_up_to = None
    if matched.count < len(here.messages):
        keeps_up_to = here.messages[matched.count].seq - 1
    return Append(
        matched.first_new,
        matched.places,
        keeps_up_to,
        tuple(changes),
        tuple(folds),
        is_redone=here.is_last_import_undone,
        damage=damage,
    )


def _fork_after(here: ConversationHere, matched: MatchedMessages, damage: str) -> Fork:
    after = 1
    if matched.count:
        after = here.messages[matched.count - 1].seq
    shared = tuple(one for one in here.imported if one.seq <= after)
    # After a rewind, the facts on the path have numbers with gaps.
    is_countable = len(shared) == after
    return Fork(matched.first_new, matched.places, after, shared, is_countable, damage)


# --- Which messages here are which in the file


def _match_first_messages(here: ConversationHere, session: SessionInFile) -> MatchedMessages:
    """Match messages and results that are equal here and in the file, from the first on. If some
    text was forgotten, all are taken to be equal.
    """
    numbers = session.message_numbers()
    places: dict[int, int] = {}
    folded = {one.seq - 1 for one in here.imported if isinstance(one.fact, Folded)}
    for number, recorded in zip(numbers, here.messages, strict=False):
        draft = session.draft(number)
        fact = recorded.fact
        # Earlier versions read no usage of a reply of Codex before a compaction.
        if recorded.seq in folded and isinstance(fact, ModelReplied) and not fact.usage.input:
            fact = replace(fact, usage=getattr(draft.fact, "usage", fact.usage))
        is_equal = _comparable_text_of(draft.fact) == _comparable_text_of(fact)
        if not is_equal and not here.has_forgotten_text:
            break
        places[number] = recorded.seq
    count = len(places)
    first_new = session.behind_last
    if count < len(numbers):
        first_new = numbers[count]
    return MatchedMessages(count, first_new, places)


def _align_with_damaged_file(
    here: ConversationHere, session: SessionInFile
) -> MatchedMessages | None:
    """Match what is left of a damaged file with what is here. What the file lacks was damaged,
    not taken back.

    Behind the last message that is equal here and in the file, what is later than all
    that is here is new. None if no line is damaged, or if the file has other words of
    the user.
    """
    numbers = session.message_numbers()
    if not session.is_damaged or not here.messages or not numbers:
        return None
    steps = _align_messages(here, session, numbers)
    late = _list_later_messages(here, session, numbers, steps[-1])
    if not here.has_forgotten_text and _has_other_words_of_user(session, numbers, steps, late):
        return None
    places = _places_of_aligned_messages(here, numbers, steps)
    grown = _find_grown_last_reply(here, session, numbers, steps[-1])
    if grown is not None:
        return MatchedMessages(len(here.messages) - 1, grown, places)
    first_new = late[0] if late else session.behind_last
    return MatchedMessages(len(here.messages), first_new, places)


def _align_messages(
    here: ConversationHere, session: SessionInFile, numbers: Sequence[int]
) -> list["AlignedPart"]:
    texts_here = [_comparable_text_of(one.fact) for one in here.messages]
    texts_there = [_comparable_text_of(session.draft(number).fact) for number in numbers]
    matcher = difflib.SequenceMatcher(None, texts_here, texts_there, autojunk=False)
    return [AlignedPart(*step) for step in matcher.get_opcodes()]


def _list_later_messages(
    here: ConversationHere,
    session: SessionInFile,
    numbers: Sequence[int],
    last_step: "AlignedPart",
) -> list[int]:
    """Return the messages behind the last common one that are later than all that is here."""
    if last_step.is_equal:
        return []
    rest = numbers[last_step.first_there :]
    if last_step.first_here == len(here.messages):
        return list(rest)
    newest = here.messages[-1].time
    return [number for number in rest if session.draft(number).time > newest]


def _find_grown_last_reply(
    here: ConversationHere,
    session: SessionInFile,
    numbers: Sequence[int],
    last_step: "AlignedPart",
) -> int | None:
    """Return the number of the last reply here, if the agent was still writing it when it was
    recorded and has written more of it since.
    """
    if last_step.is_equal or here.has_forgotten_text:
        return None
    tail = here.messages[last_step.first_here :]
    rest = numbers[last_step.first_there :]
    if len(tail) != 1 or not rest:
        return None
    is_grown = _continues_reply(tail[0].fact, session.draft(rest[0]).fact)
    return rest[0] if is_grown else None


@dataclass(frozen=True, slots=True)
class AlignedPart:
    """Messages here, and those in the file that are equal or stand in their place."""

    tag: str
    first_here: int
    end_here: int
    first_there: int
    end_there: int

    @property
    def is_equal(self) -> bool:
        return self.tag == "equal"


def _has_other_words_of_user(
    session: SessionInFile,
    numbers: Sequence[int],
    steps: Sequence[AlignedPart],
    late: Sequence[int],
) -> bool:
    """Whether the file has words of the user that are not here and are not new."""
    for step in steps:
        for position in range(step.first_there, step.end_there):
            number = numbers[position]
            if not step.is_equal and number not in late and _is_typed(session.draft(number)):
                return True
    return False


def _places_of_aligned_messages(
    here: ConversationHere, numbers: Sequence[int], steps: Sequence[AlignedPart]
) -> dict[int, int]:
    """Return where each message of the file stands here. What differs is what is left of a message
    that stands here.
    """
    places: dict[int, int] = {}
    last_message = len(here.messages) - 1
    for step in steps:
        last_of_step = max(step.first_here, step.end_here - 1)
        for position in range(step.first_there, step.end_there):
            opposite = step.first_here + position - step.first_there
            nearest = min(opposite, last_of_step, last_message)
            places[numbers[position]] = here.messages[nearest].seq
    return places


def _is_typed(draft: FactDraft) -> bool:
    """Whether it has words of the user, and is no output whose call was damaged."""
    return isinstance(draft.fact, UserSaid) and STRAY.strip() not in _comparable_text_of(draft.fact)


def _continues_reply(old: Fact, new: Fact) -> bool:
    if not isinstance(old, ModelReplied) or not isinstance(new, ModelReplied):
        return False
    return new.parts[: len(old.parts)] == old.parts


# --- A file in which the other program replaced older messages


def _decide_for_summary(
    here: ConversationHere, session: SessionInFile, matched: MatchedMessages
) -> Append | Unchanged | None:
    """Decide for a file in which the other program replaced older messages by a summary or by
    nothing: they stay here, the summary becomes a fold over them, and new messages
    follow. None if the file has other content.
    """
    numbers = session.message_numbers()[matched.count :]
    first = session.draft(numbers[0])
    later = numbers
    if first.is_summary:
        later = numbers[1:]
    kept = _count_kept_messages(here.messages[matched.count :], later, session)
    covered = here.messages[: len(here.messages) - kept]
    fold: Folded | None = None
    if first.is_summary:
        fold = _build_fold_of_summary(here, covered, first)
    if not kept and fold is None and not _has_fold_of_summary(here, first):
        return None
    places = dict(matched.places)
    kept_here = here.messages[len(here.messages) - kept :]
    for number, recorded in zip(later[:kept], kept_here, strict=True):
        places[number] = recorded.seq
    first_new = session.behind_last
    if kept < len(later):
        first_new = later[kept]
    if fold is None and first_new == session.behind_last:
        return Unchanged()
    whole = MatchedMessages(len(here.messages), first_new, places)
    changes: list[Fact] = []
    if fold is not None:
        changes.append(fold)
    # What an undone import brought is here again only by an import that says so.
    return replace(_append_after(here, whole, [], changes), is_redone=False)


def _count_kept_messages(
    here: Sequence[Recorded], numbers: Sequence[int], session: SessionInFile
) -> int:
    """Return how many of the last messages here are the first ones in the file."""
    texts_here = [_comparable_text_of(one.fact) for one in here]
    texts_there = [_comparable_text_of(session.draft(number).fact) for number in numbers]
    for length in range(min(len(texts_here), len(texts_there)), 0, -1):
        if texts_here[len(texts_here) - length :] == texts_there[:length]:
            return length
    return 0


def _build_fold_of_summary(
    here: ConversationHere, covered: Sequence[Recorded], summary: FactDraft
) -> Folded | None:
    """Return a fold over what the summary replaces. None if there is one or it is not valid."""
    covered = [one for one in covered if not isinstance(one.fact, SystemSet)]
    if not covered or _has_fold_of_summary(here, summary):
        return None
    state = build_state(here.facts)
    cover = Span(covered[0].seq, covered[-1].seq)
    earlier = [one.fact for one in here.facts if isinstance(one.fact, Folded)]
    handovers = [fold for fold in earlier if fold.kind is FoldKind.HANDOVER]
    said = summary.fact
    tokens = 0
    if isinstance(said, UserSaid):
        tokens = said.parts[0].tokens
    fold = Folded(
        f"handover-{len(earlier) + 1}",
        FoldKind.HANDOVER,
        cover,
        history_facts.summary_text_of_draft(summary),
        tokens,
        state.branch.shown_tokens(cover),
        number=len(handovers) + 1,
        why=REWRITTEN,
    )
    last = here.facts[-1]
    state.advance_state(Recorded(last.conversation, last.seq + 1, last.time, fold))
    if fold.fold not in state.branch.live:
        return None
    return fold


def _has_fold_of_summary(here: ConversationHere, summary: FactDraft) -> bool:
    if not summary.is_summary:
        return False
    text = history_facts.summary_text_of_draft(summary)
    return any(isinstance(one.fact, Folded) and one.fact.text == text for one in here.facts)


# --- What else the other program changed


def _list_title_change(here: ConversationHere, session: SessionInFile) -> list[Fact]:
    """Return the change to a title that the other program gave later, unless the user gave one
    here.
    """
    title = session.title
    last_title = ""
    imports = _spans_of_imports(here.facts)
    for recorded in here.facts:
        fact = recorded.fact
        if isinstance(fact, ConversationStarted | ConversationChanged) and fact.title is not None:
            last_title = fact.title
            if not any(recorded.seq in span for span in imports):
                return []
    if not title or title == last_title:
        return []
    return [ConversationChanged(title)]


def _spans_of_imports(facts: Sequence[Recorded]) -> list[range]:
    spans = []
    for recorded in facts:
        if isinstance(recorded.fact, BroughtIn) and not recorded.fact.undone:
            spans.append(range(recorded.fact.first, recorded.seq))
    return spans


def _folds_made_since(
    here: ConversationHere, session: SessionInFile, matched: MatchedMessages
) -> list[FactDraft]:
    """Return new folds of the other program over messages that are already here."""
    known = {(one.fact.kind, one.fact.cover) for one in here.facts if isinstance(one.fact, Folded)}
    folds = []
    for draft in session.drafts[: matched.first_new - 1]:
        if not isinstance(draft.fact, Folded):
            continue
        cover = cover_with_places(draft.fact.cover, matched.places)
        if cover is not None and (draft.fact.kind, cover) not in known:
            folds.append(draft)
    return folds


def cover_with_places(cover: Cover, places: Places) -> Cover | None:
    """Return what a draft's fold covers by the numbers of facts, or None if it is not here."""
    if isinstance(cover, PartRef):
        seq = places.get(cover.seq)
        if not seq:
            return None
        return PartRef(seq, cover.part)
    first = places.get(cover.first)
    last = places.get(cover.last)
    if not first or not last:
        return None
    return Span(first, last)


def _comparable_text_of(fact: Fact) -> str:
    return history_facts.comparable_text(fact)


def _is_message_fact(fact: Fact) -> bool:
    return FactDraft(0.0, fact).is_message_or_result
