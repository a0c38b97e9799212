"""What a session that was read again means for its conversation: unchanged, more, a fork, or
another session.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationChanged,
    ConversationStarted,
    Fact,
    Folded,
    FoldKind,
    Forgotten,
    ModelReplied,
    Origin,
    Recorded,
    Rewound,
    Span,
    Stop,
    Text,
    TurnEnd,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.histories.history_facts import FactDraft
from helix_desktop.workbench.import_decision import (
    KEPT_DESPITE_DAMAGE,
    REWRITTEN,
    Append,
    Fork,
    ImportDecision,
    Reject,
    SessionInFile,
    Unchanged,
    cover_with_places,
    decide_import,
)

FILE = Path("/agent/session.jsonl")
BROUGHT = BroughtIn(Origin("codex", "s", str(FILE)), "run", 1)


def said(text: str) -> UserSaid:
    return UserSaid((Text(text, 50),))


def reply(text: str, *more: str) -> ModelReplied:
    parts = tuple(Text(part, 50) for part in (text, *more))
    return ModelReplied(parts, "m", Stop.END, Usage(9))


def here(*facts: Fact) -> list[Recorded]:
    """A conversation as imported, with these facts; an import ends at each BROUGHT."""
    started = ConversationStarted("Files")
    return [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate((started, *facts), 1)]


def decide(
    recorded: list[Recorded], *drafts: Fact | FactDraft, title: str = "Files", **more: Any
) -> ImportDecision:
    made = [
        one if isinstance(one, FactDraft) else FactDraft(100.0 + number, one)
        for number, one in enumerate(drafts)
    ]
    is_in_another_file = more.pop("is_in_another_file", False)
    session = SessionInFile(FILE, made, title, **more)
    return decide_import(recorded, session, is_in_another_file=is_in_another_file)


ASKED = said("go")
DONE = reply("done")
MORE = said("more")
LATER = reply("later")


def test_a_file_without_anything_new_changes_nothing() -> None:
    assert decide(here(ASKED, DONE, BROUGHT), ASKED, DONE) == Unchanged()
    assert decide(here(ASKED, DONE, BROUGHT), ASKED, DONE, TurnEnded(TurnEnd.DONE)) == Unchanged()


def test_a_file_that_has_grown_is_appended() -> None:
    found = decide(here(ASKED, DONE, BROUGHT), ASKED, DONE, MORE, LATER)
    assert found == Append(first_new=3, places={1: 2, 2: 3})


def test_messages_that_are_not_in_the_file_any_more_are_taken_back() -> None:
    found = decide(here(ASKED, DONE, MORE, BROUGHT), ASKED, DONE, said("other"), LATER)
    assert found == Append(first_new=3, places={1: 2, 2: 3}, keeps_up_to=3)
    assert decide(here(ASKED, DONE, BROUGHT), said("other"), LATER) == Append(
        first_new=1, places={}, keeps_up_to=1
    )


def test_what_was_continued_here_becomes_a_fork() -> None:
    recorded = here(ASKED, DONE, BROUGHT, said("said here"))
    found = decide(recorded, ASKED, DONE, MORE)
    assert isinstance(found, Fork)
    assert (found.first_new, found.places, found.after, found.is_countable) == (3, {1: 2, 2: 3}, 3, True)  # fmt: skip
    assert found.shared == tuple(recorded[:3])
    assert decide(recorded, ASKED, DONE) == Unchanged()
    taken_back = here(ASKED, DONE, BROUGHT, Rewound(2))
    assert isinstance(decide(taken_back, ASKED, DONE, MORE), Fork)


def test_a_fork_of_a_conversation_that_was_rewound_cannot_be_counted_out() -> None:
    recorded = here(ASKED, DONE, Rewound(2), LATER, BROUGHT, said("said here"))
    found = decide(recorded, ASKED, LATER, MORE)
    assert isinstance(found, Fork)
    assert not found.is_countable


def test_a_session_of_the_same_name_in_another_file_is_another_one() -> None:
    recorded = here(ASKED, DONE, MORE, BROUGHT)
    other = decide(recorded, said("another"), LATER, is_in_another_file=True)
    assert other == Reject()
    shorter = decide(recorded, ASKED, DONE, is_in_another_file=True)
    assert shorter == Unchanged(), "an older copy of the same session"
    assert isinstance(decide(recorded, ASKED, DONE, MORE, LATER, is_in_another_file=True), Append)


def test_an_undone_import_comes_back() -> None:
    undone = replace(BROUGHT, undone=True)
    found = decide(
        here(ASKED, DONE, BROUGHT, ConversationChanged(trashed=True), undone), ASKED, DONE
    )
    assert found == Append(first_new=3, places={1: 2, 2: 3}, is_redone=True)


def test_a_title_given_later_is_taken_unless_the_user_gave_one_here() -> None:
    recorded = here(ASKED, DONE, BROUGHT)
    found = decide(recorded, ASKED, DONE, title="Better")
    assert isinstance(found, Append)
    assert found.changes == (ConversationChanged("Better"),)
    named = here(ASKED, DONE, BROUGHT, ConversationChanged("Mine"))
    assert decide(named, ASKED, DONE, title="Better") == Unchanged()
    continued = here(ASKED, DONE, BROUGHT, said("said here"))
    assert decide(continued, ASKED, DONE, title="Better") == Unchanged()


def test_a_fold_of_the_other_program_over_what_is_here_is_appended_once() -> None:
    fold = Folded("handover-1", FoldKind.HANDOVER, Span(1, 2), "sum", 1, 100)
    found = decide(here(ASKED, DONE, MORE, BROUGHT), ASKED, DONE, MORE, fold)
    assert isinstance(found, Append)
    assert [one.fact for one in found.folds] == [fold]
    moved = replace(fold, cover=Span(2, 3))
    assert decide(here(ASKED, DONE, MORE, moved, BROUGHT), ASKED, DONE, MORE, fold) == Unchanged()


def test_where_text_was_forgotten_all_messages_count_as_equal() -> None:
    forgotten = Forgotten(facts=1)
    recorded = here(said("without it"), DONE, BROUGHT, forgotten)
    assert decide(recorded, said("with the key"), DONE, title="With the key") == Unchanged()
    found = decide(recorded, said("with the key"), DONE, MORE)
    assert found == Append(first_new=3, places={1: 2, 2: 3})


# --- A file that was rewritten with a summary


def summary(text: str) -> FactDraft:
    return FactDraft(50.0, said(text), is_summary=True)


def test_a_summary_in_the_place_of_older_messages_becomes_a_fold_over_them() -> None:
    recorded = here(said("go " * 60), reply("done " * 60), MORE, LATER, BROUGHT)
    found = decide(recorded, summary("Sum."), MORE, LATER, said("new"))
    assert isinstance(found, Append)
    (fold,) = found.changes
    assert isinstance(fold, Folded)
    assert (fold.cover, fold.why, fold.text) == (Span(2, 3), REWRITTEN, "[Conversation History Summary]\nSum.")  # fmt: skip
    assert (found.first_new, found.places, found.keeps_up_to) == (4, {2: 4, 3: 5}, None)
    again = here(said("go " * 60), reply("done " * 60), MORE, LATER, fold, BROUGHT)
    assert decide(again, summary("Sum."), MORE, LATER) == Unchanged()


def test_a_beginning_that_was_cut_off_stays_here() -> None:
    recorded = here(ASKED, DONE, MORE, LATER, BROUGHT)
    assert decide(recorded, MORE, LATER) == Unchanged()
    found = decide(recorded, MORE, LATER, said("new"))
    assert found == Append(first_new=3, places={1: 4, 2: 5})


# --- A damaged file


def test_what_a_damaged_file_lacks_is_kept_and_what_is_later_is_new() -> None:
    recorded = here(ASKED, DONE, MORE, LATER, BROUGHT)
    damage = f"{FILE} is damaged. {KEPT_DESPITE_DAMAGE}"
    lost = decide(recorded, ASKED, LATER, is_damaged=True)
    assert isinstance(lost, Append)
    assert lost.changes == (TurnEnded(TurnEnd.FAILED, damage),)
    assert (lost.keeps_up_to, lost.damage) == (None, damage)
    noted = here(ASKED, DONE, MORE, LATER, TurnEnded(TurnEnd.FAILED, damage), BROUGHT)
    assert decide(noted, ASKED, LATER, is_damaged=True) == Unchanged(damage)
    grown = decide(noted, ASKED, LATER, said("new"), is_damaged=True)
    assert isinstance(grown, Append)
    assert (grown.first_new, grown.keeps_up_to) == (3, None)


def test_other_words_of_the_user_are_no_damage() -> None:
    recorded = here(ASKED, DONE, BROUGHT)
    early = FactDraft(0.5, said("other words"))
    found = decide(recorded, early, DONE, is_damaged=True)
    assert isinstance(found, Append)
    assert (found.damage, found.keeps_up_to) == ("", 1)


def test_a_reply_that_was_still_being_written_is_replaced_by_the_whole_one() -> None:
    recorded = here(ASKED, DONE, MORE, reply("half"), BROUGHT)
    found = decide(recorded, ASKED, MORE, reply("half", "whole"), is_damaged=True)
    assert isinstance(found, Append)
    assert (found.first_new, found.keeps_up_to) == (3, 4)


def test_a_cover_whose_messages_are_not_here_is_none() -> None:
    assert cover_with_places(Span(1, 2), {1: 5, 2: 7}) == Span(5, 7)
    assert cover_with_places(Span(1, 3), {1: 5, 2: 7}) is None
