"""Decides what a session that was read again means for its conversation here.

`decide_import` compares the messages that were imported before with those that the file
has now, and returns one of four outcomes: `Unchanged`, `Append`, `Fork` or `Reject`. It
reads and writes nothing; `session_import` acts on the outcome.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine.agent_additions import OUTPUT_WITHOUT_CALL
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
        """Sort a conversation's facts into what imports brought and what was done here
        since. An import ends with the fact `BroughtIn`; the last of these is the border.
        """
        last_import_seq = 0
        is_last_import_undone = False
        for recorded in facts:
            if isinstance(recorded.fact, BroughtIn):
                last_import_seq = recorded.seq
                is_last_import_undone = recorded.fact.undone
        facts_on_path = build_state(facts).facts_on_path()
        imported = [recorded for recorded in facts_on_path if recorded.seq <= last_import_seq]
        return cls(
            facts,
            imported,
            messages=[recorded for recorded in imported if _is_message_fact(recorded.fact)],
            is_continued=_was_continued_after(facts, last_import_seq),
            is_last_import_undone=is_last_import_undone,
            has_forgotten_text=any(isinstance(recorded.fact, Forgotten) for recorded in facts),
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
    conversation = ConversationHere.from_facts(facts)
    matched = _match_first_messages(conversation, session)
    count_in_file = len(session.message_numbers())
    differs = matched.count < min(len(conversation.messages), count_in_file)
    is_other_file_longer = is_in_another_file and matched.count < len(conversation.messages)
    if is_other_file_longer and matched.count < count_in_file:
        return Reject()
    if differs or conversation.has_forgotten_text:
        aligned = _align_with_damaged_file(conversation, session)
        if aligned is not None:
            return _decide_for_damaged_file(conversation, session, aligned, is_other_file_longer)
    if differs and not conversation.is_continued:
        summarised = _decide_for_summary(conversation, session, matched)
        if summarised is not None:
            return summarised
    changes = _list_title_change_of_whole_session(conversation, session, matched)
    folds = _folds_made_since(conversation, session, matched)
    return _choose_outcome(
        conversation, session, matched, folds, changes, is_other_file_longer=is_other_file_longer
    )


def _list_title_change_of_whole_session(
    conversation: ConversationHere, session: SessionInFile, matched: MatchedMessages
) -> list[Fact]:
    """Return the change to the title, if all that is here is in the file and nothing else."""
    if (
        conversation.is_continued
        or conversation.has_forgotten_text
        or matched.count < len(conversation.messages)
    ):
        return []
    return _list_title_change(conversation, session)


def _decide_for_damaged_file(
    conversation: ConversationHere,
    session: SessionInFile,
    matched: MatchedMessages,
    is_other_file_longer: bool,  # noqa: FBT001 -- as in its only caller
) -> ImportDecision:
    """Keep what is here, say once that the file is damaged, and add what is certainly
    new.
    """
    damage = f"{session.file} is damaged. {KEPT_DESPITE_DAMAGE}"
    note = TurnEnded(TurnEnd.FAILED, damage)
    is_noted = any(recorded.fact == note for recorded in conversation.facts)
    changes: list[Fact] = []
    if not conversation.is_continued and not is_noted:
        changes.append(note)

    time_of_newest = conversation.messages[-1].time
    new_folds = _folds_made_since(conversation, session, matched)
    folds = [fold for fold in new_folds if fold.time > time_of_newest]
    return _choose_outcome(
        conversation,
        session,
        matched,
        folds,
        changes,
        is_other_file_longer=is_other_file_longer,
        damage=damage,
    )


def _choose_outcome(
    conversation: ConversationHere,
    session: SessionInFile,
    matched: MatchedMessages,
    folds: Sequence[FactDraft],
    changes: Sequence[Fact],
    *,
    is_other_file_longer: bool,
    damage: str = "",
) -> ImportDecision:
    """Return what to do with matched messages: nothing, append what is new, or fork."""
    has_new_messages = matched.first_new < session.behind_last
    is_worth_a_fact = bool(folds or changes) or conversation.is_last_import_undone
    if not has_new_messages and (is_other_file_longer or not is_worth_a_fact):
        return Unchanged(damage)
    if conversation.is_continued and has_new_messages:
        return _fork_after(conversation, matched, damage)
    return _append_after(conversation, matched, folds, changes, damage)


def _append_after(
    conversation: ConversationHere,
    matched: MatchedMessages,
    folds: Sequence[FactDraft],
    changes: Sequence[Fact],
    damage: str = "",
) -> Append:
    """Append behind the last matched message. What the file lacks after it is rewound."""
    keeps_up_to = None
    if matched.count < len(conversation.messages):
        keeps_up_to = conversation.messages[matched.count].seq - 1
    return Append(
        matched.first_new,
        matched.places,
        keeps_up_to,
        tuple(changes),
        tuple(folds),
        is_redone=conversation.is_last_import_undone,
        damage=damage,
    )


def _fork_after(conversation: ConversationHere, matched: MatchedMessages, damage: str) -> Fork:
    last_shared_seq = 1
    if matched.count:
        last_shared_seq = conversation.messages[matched.count - 1].seq
    shared = tuple(
        recorded for recorded in conversation.imported if recorded.seq <= last_shared_seq
    )
    # After a rewind, the facts on the path have numbers with gaps.
    is_countable = len(shared) == last_shared_seq
    return Fork(matched.first_new, matched.places, last_shared_seq, shared, is_countable, damage)


# --- Which messages here are which in the file


def _match_first_messages(
    conversation: ConversationHere, session: SessionInFile
) -> MatchedMessages:
    """Match messages and results that are equal here and in the file, from the first on. If some
    text was forgotten, all are taken to be equal.
    """
    message_numbers = session.message_numbers()
    places: dict[int, int] = {}
    seqs_before_folds: set[int] = set()
    for recorded in conversation.imported:
        if isinstance(recorded.fact, Folded):
            seqs_before_folds.add(recorded.seq - 1)
    for number, recorded in zip(message_numbers, conversation.messages, strict=False):
        fact_in_file = session.draft(number).fact
        fact_here = recorded.fact
        if recorded.seq in seqs_before_folds:
            fact_here = _with_usage_of_file(fact_here, fact_in_file)
        is_equal = _comparable_text_of(fact_in_file) == _comparable_text_of(fact_here)
        if not is_equal and not conversation.has_forgotten_text:
            break
        places[number] = recorded.seq
    count = len(places)
    first_new = session.behind_last
    if count < len(message_numbers):
        first_new = message_numbers[count]
    return MatchedMessages(count, first_new, places)


def _with_usage_of_file(fact_here: Fact, fact_in_file: Fact) -> Fact:
    """Return the fact with the file's usage if it has none: earlier versions read no usage of a
    reply of Codex before a compaction.
    """
    if not isinstance(fact_here, ModelReplied) or not isinstance(fact_in_file, ModelReplied):
        return fact_here
    if fact_here.usage.input:
        return fact_here
    return replace(fact_here, usage=fact_in_file.usage)


def _align_with_damaged_file(
    conversation: ConversationHere, session: SessionInFile
) -> MatchedMessages | None:
    """Match what is left of a damaged file with what is here. What the file lacks was damaged,
    not taken back.

    Behind the last message that is equal here and in the file, what is later than all
    that is here is new. None if no line is damaged, or if the file has other words of
    the user.
    """
    message_numbers = session.message_numbers()
    if not session.is_damaged or not conversation.messages or not message_numbers:
        return None
    parts = _align_messages(conversation, session, message_numbers)
    later_numbers = _list_later_messages(conversation, session, message_numbers, parts[-1])
    if not conversation.has_forgotten_text:
        if _has_other_words_of_user(session, message_numbers, parts, later_numbers):
            return None
    places = _places_of_aligned_messages(conversation, message_numbers, parts)
    grown_number = _find_grown_last_reply(conversation, session, message_numbers, parts[-1])
    if grown_number is not None:
        return MatchedMessages(len(conversation.messages) - 1, grown_number, places)
    first_new = session.behind_last
    if later_numbers:
        first_new = later_numbers[0]
    return MatchedMessages(len(conversation.messages), first_new, places)


def _align_messages(
    conversation: ConversationHere, session: SessionInFile, message_numbers: Sequence[int]
) -> list["AlignedPart"]:
    texts_here = [_comparable_text_of(recorded.fact) for recorded in conversation.messages]
    texts_there = [_comparable_text_of(session.draft(number).fact) for number in message_numbers]
    matcher = difflib.SequenceMatcher(None, texts_here, texts_there, autojunk=False)
    return [AlignedPart(*opcode) for opcode in matcher.get_opcodes()]


def _list_later_messages(
    conversation: ConversationHere,
    session: SessionInFile,
    message_numbers: Sequence[int],
    last_part: "AlignedPart",
) -> list[int]:
    """Return the messages behind the last common one that are later than all that is here."""
    if last_part.is_equal:
        return []
    numbers_behind = message_numbers[last_part.first_there :]
    if last_part.first_here == len(conversation.messages):
        return list(numbers_behind)
    time_of_newest = conversation.messages[-1].time
    return [number for number in numbers_behind if session.draft(number).time > time_of_newest]


def _find_grown_last_reply(
    conversation: ConversationHere,
    session: SessionInFile,
    message_numbers: Sequence[int],
    last_part: "AlignedPart",
) -> int | None:
    """Return the number of the last reply here, if the agent was still writing it when it was
    recorded and has written more of it since.
    """
    if last_part.is_equal or conversation.has_forgotten_text:
        return None
    messages_behind = conversation.messages[last_part.first_here :]
    numbers_behind = message_numbers[last_part.first_there :]
    if len(messages_behind) != 1 or not numbers_behind:
        return None
    first_number_behind = numbers_behind[0]
    last_fact = conversation.messages[-1].fact
    if not _continues_reply(last_fact, session.draft(first_number_behind).fact):
        return None
    return first_number_behind


@dataclass(frozen=True, slots=True)
class AlignedPart:
    """Messages here, and those in the file that are equal or stand in their place. The fields
    are those of difflib's opcodes: positions, of which the two ends are not included.
    """

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
    message_numbers: Sequence[int],
    parts: Sequence[AlignedPart],
    later_numbers: Sequence[int],
) -> bool:
    """Whether the file has words of the user that are not here and are not new."""
    for part in parts:
        if part.is_equal:
            continue
        for number in message_numbers[part.first_there : part.end_there]:
            if number not in later_numbers and _is_typed(session.draft(number)):
                return True
    return False


def _places_of_aligned_messages(
    conversation: ConversationHere, message_numbers: Sequence[int], parts: Sequence[AlignedPart]
) -> dict[int, int]:
    """Return where each message of the file stands here. What differs is what is left of a message
    that stands here.
    """
    places: dict[int, int] = {}
    last_message = len(conversation.messages) - 1
    for part in parts:
        last_of_part = max(part.first_here, part.end_here - 1)
        for position in range(part.first_there, part.end_there):
            opposite = part.first_here + position - part.first_there
            # The file may have more messages in this part than are here.
            nearest = min(opposite, last_of_part, last_message)
            places[message_numbers[position]] = conversation.messages[nearest].seq
    return places


def _is_typed(draft: FactDraft) -> bool:
    """Whether it has words of the user, and is no output whose call was damaged."""
    if not isinstance(draft.fact, UserSaid):
        return False
    return OUTPUT_WITHOUT_CALL not in _comparable_text_of(draft.fact)


def _continues_reply(fact_here: Fact, fact_in_file: Fact) -> bool:
    """Whether both are replies, and the file's one begins with all parts of the one here."""
    if not isinstance(fact_here, ModelReplied) or not isinstance(fact_in_file, ModelReplied):
        return False
    return fact_in_file.parts[: len(fact_here.parts)] == fact_here.parts


# --- A file in which the other program replaced older messages


def _decide_for_summary(
    conversation: ConversationHere, session: SessionInFile, matched: MatchedMessages
) -> Append | Unchanged | None:
    """Decide for a file in which the other program replaced older messages by a summary or by
    nothing: they stay here, the summary becomes a fold over them, and new messages
    follow. None if the file has other content.
    """
    message_numbers = session.message_numbers()[matched.count :]
    first_unmatched = session.draft(message_numbers[0])
    numbers_behind = message_numbers
    if first_unmatched.is_summary:
        numbers_behind = message_numbers[1:]
    kept_count = _count_kept_messages(
        conversation.messages[matched.count :], numbers_behind, session
    )
    replaced_count = len(conversation.messages) - kept_count
    fold: Folded | None = None
    if first_unmatched.is_summary:
        fold = _build_fold_of_summary(
            conversation, conversation.messages[:replaced_count], first_unmatched
        )
    if not kept_count and fold is None and not _has_fold_of_summary(conversation, first_unmatched):
        return None
    places = dict(matched.places)
    kept_numbers = numbers_behind[:kept_count]
    for number, recorded in zip(kept_numbers, conversation.messages[replaced_count:], strict=True):
        places[number] = recorded.seq
    first_new = session.behind_last
    if kept_count < len(numbers_behind):
        first_new = numbers_behind[kept_count]
    if fold is None and first_new == session.behind_last:
        return Unchanged()
    all_matched = MatchedMessages(len(conversation.messages), first_new, places)
    changes: list[Fact] = []
    if fold is not None:
        changes.append(fold)
    append = _append_after(conversation, all_matched, folds=[], changes=changes)
    # What an undone import brought is here again only by an import that says so.
    return replace(append, is_redone=False)


def _count_kept_messages(
    messages_here: Sequence[Recorded], message_numbers: Sequence[int], session: SessionInFile
) -> int:
    """Return how many of the last messages here are the first ones in the file."""
    texts_here = [_comparable_text_of(recorded.fact) for recorded in messages_here]
    texts_there = [_comparable_text_of(session.draft(number).fact) for number in message_numbers]
    longest = min(len(texts_here), len(texts_there))
    for length in range(longest, 0, -1):
        if texts_here[-length:] == texts_there[:length]:
            return length
    return 0


def _build_fold_of_summary(
    conversation: ConversationHere, replaced_messages: Sequence[Recorded], summary: FactDraft
) -> Folded | None:
    """Return a fold over what the summary replaces: the view shows its text in their place. None
    if there is one or it is not valid.
    """
    covered_seqs: list[int] = []
    for recorded in replaced_messages:
        if not isinstance(recorded.fact, SystemSet):
            covered_seqs.append(recorded.seq)
    if not covered_seqs or _has_fold_of_summary(conversation, summary):
        return None

    state = build_state(conversation.facts)
    cover = Span(covered_seqs[0], covered_seqs[-1])
    tokens_before = state.branch.shown_tokens(cover)
    tokens_of_summary = 0
    if isinstance(summary.fact, UserSaid):
        tokens_of_summary = summary.fact.parts[0].tokens
    earlier_folds = _folds_among(conversation.facts)
    fold_number = len(earlier_folds) + 1
    earlier_handovers = [fold for fold in earlier_folds if fold.kind is FoldKind.HANDOVER]
    handover_number = len(earlier_handovers) + 1
    fold = Folded(
        fold=f"handover-{fold_number}",
        kind=FoldKind.HANDOVER,
        cover=cover,
        text=history_facts.summary_text_of_draft(summary),
        tokens=tokens_of_summary,
        tokens_before=tokens_before,
        number=handover_number,
        why=REWRITTEN,
    )
    # The fold is tried out: the engine makes only a valid one live.
    last_fact = conversation.facts[-1]
    next_seq = last_fact.seq + 1
    state.advance_state(Recorded(last_fact.conversation, next_seq, last_fact.time, fold))
    if fold.fold not in state.branch.live:
        return None
    return fold


def _has_fold_of_summary(conversation: ConversationHere, summary: FactDraft) -> bool:
    if not summary.is_summary:
        return False
    text = history_facts.summary_text_of_draft(summary)
    for fold in _folds_among(conversation.facts):
        if fold.text == text:
            return True
    return False


def _folds_among(facts: Sequence[Recorded]) -> list[Folded]:
    folds: list[Folded] = []
    for recorded in facts:
        if isinstance(recorded.fact, Folded):
            folds.append(recorded.fact)
    return folds


# --- What else the other program changed


def _list_title_change(conversation: ConversationHere, session: SessionInFile) -> list[Fact]:
    """Return the change to a title that the other program gave later, unless the user gave one
    here.
    """
    title = session.title
    last_title = ""
    imports = _spans_of_imports(conversation.facts)
    for recorded in conversation.facts:
        fact = recorded.fact
        if isinstance(fact, ConversationStarted | ConversationChanged) and fact.title is not None:
            last_title = fact.title
            if not any(recorded.seq in span for span in imports):
                return []
    if not title or title == last_title:
        return []
    return [ConversationChanged(title)]


def _spans_of_imports(facts: Sequence[Recorded]) -> list[range]:
    """Return the numbers of the facts that each import brought."""
    spans: list[range] = []
    for recorded in facts:
        if isinstance(recorded.fact, BroughtIn) and not recorded.fact.undone:
            spans.append(range(recorded.fact.first, recorded.seq))
    return spans


def _folds_made_since(
    conversation: ConversationHere, session: SessionInFile, matched: MatchedMessages
) -> list[FactDraft]:
    """Return new folds of the other program over messages that are already here."""
    folds_here = _folds_among(conversation.facts)
    known_covers = {(fold.kind, fold.cover) for fold in folds_here}
    new_folds: list[FactDraft] = []
    for draft in session.drafts[: matched.first_new - 1]:
        if not isinstance(draft.fact, Folded):
            continue
        cover = cover_with_places(draft.fact.cover, matched.places)
        if cover is not None and (draft.fact.kind, cover) not in known_covers:
            new_folds.append(draft)
    return new_folds


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


def _was_continued_after(facts: Sequence[Recorded], last_import_seq: int) -> bool:
    """Whether anything was said or taken back here after the last import."""
    for recorded in facts:
        is_later = recorded.seq > last_import_seq
        if is_later and isinstance(recorded.fact, SAID + (Rewound,)):
            return True
    return False


def _is_message_fact(fact: Fact) -> bool:
    return FactDraft(0.0, fact).is_message_or_result
