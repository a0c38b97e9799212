"""What a machine knows of the others' facts, and what becomes of facts that both have."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop.engine.facts import (
    ConversationStarted,
    Forgotten,
    Stored,
    Text,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import JournalCorrupt
from helix_desktop.store import content_forgetting
from helix_desktop.store.journal_file import JournalFile, StoredFact
from helix_desktop.store.shared.fact_segments import (
    NOTHING,
    FactSegment,
    HeadContents,
    compute_chain,
)
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.sync_state import SharedProgress, SyncState
from tests.store.shared.machines import KEY, Clock


class Pair:
    """Two journals: both have the same two facts, and the second one's first fact was
    forgotten there.
    """

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.mine, self.theirs = (
            JournalFile(folder / f"{name}.sqlite3", now=self.clock.now) for name in ("a", "b")
        )
        self.state = SyncState(self.mine, RowCipher(KEY))
        self.say(self.mine, "swordfish")
        self.say(self.mine, "thank you")
        self.known = self.progress(self.mine, generation=0)
        self.state.save_progress(self.known)
        self.theirs.insert_stored_facts(self.mine.read_stored_facts("c"), trusted=True)
        self.theirs.replace_fact(
            self.theirs.read_stored_facts("c")[0], UserSaid((Text("[forgotten]", 1),))
        )

    def say(self, journal: JournalFile, text: str) -> None:
        self.clock.time += 1
        journal.append_all_or_nothing("c", [UserSaid((Text(text, 1),))])

    def forget(self, journal: JournalFile) -> None:
        self.clock.time += 1
        journal.append_all_or_nothing("c", [Forgotten((), 1, "why")])

    @staticmethod
    def progress(journal: JournalFile, *, generation: int) -> SharedProgress:
        lines = journal.read_stored_facts("c")
        chain = compute_chain(NOTHING, lines)
        contents = HeadContents("c", "somebody", len(lines), chain, generation=generation)
        return SharedProgress("c", len(lines), chain, generation + 1, b"w" * 16, contents)

    def merge(self, *, generation: int = 1) -> int | None:
        seen = self.progress(self.theirs, generation=generation)
        return self.state.merge_changed_facts(self.known, self.theirs.read_stored_facts("c"), seen)

    @staticmethod
    def facts(journal: JournalFile) -> list[str]:
        said = [one.fact for one in journal.read_recorded("c")]
        return [
            str(fact.parts[0].text) if isinstance(fact, UserSaid) else type(fact).__name__  # type: ignore[union-attr]
            for fact in said
        ]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.mine.close()
    made.theirs.close()


def test_what_another_machine_forgot_is_gone_here_and_what_it_wrote_after_that_follows(
    pair: Pair,
) -> None:
    pair.forget(pair.theirs)
    pair.say(pair.theirs, "more")
    assert pair.merge() is None
    assert (
        pair.facts(pair.mine)
        == pair.facts(pair.theirs)
        == ["[forgotten]", "thank you", "Forgotten", "more"]
    )
    assert pair.state.read_shared_progress("c") == pair.progress(pair.theirs, generation=1)
    assert pair.state.count_facts_to_send() == {}


def test_another_machine_may_forget_but_not_put_other_words_in_their_place(pair: Pair) -> None:
    line = pair.theirs.read_stored_facts("c")[1]
    pair.theirs.replace_fact(line, UserSaid((Text("send the money", 1),)))
    with pytest.raises(JournalCorrupt, match="changed record 2"):
        pair.merge()
    assert pair.facts(pair.mine) == ["swordfish", "thank you"]
    assert pair.state.read_shared_progress("c") == pair.known


def test_what_was_written_here_alone_stays_behind_what_another_machine_forgot(pair: Pair) -> None:
    pair.say(pair.mine, "and one more")
    assert pair.merge() is None
    assert pair.facts(pair.mine) == ["[forgotten]", "thank you", "and one more"]
    assert pair.state.count_facts_to_send() == {"c": 1}


def test_facts_that_came_already_are_not_taken_for_words_of_both(pair: Pair) -> None:
    pair.say(pair.theirs, "third")
    pair.mine.insert_stored_facts(pair.theirs.read_stored_facts("c", 2), trusted=True)
    pair.say(pair.theirs, "fourth")
    assert pair.merge() is None
    assert pair.facts(pair.mine) == ["[forgotten]", "thank you", "third", "fourth"]


def test_where_both_wrote_the_number_is_told_and_both_keep_what_they_wrote(pair: Pair) -> None:
    pair.say(pair.theirs, "third")
    pair.mine.insert_stored_facts(pair.theirs.read_stored_facts("c", 2), trusted=True)
    pair.forget(pair.mine)
    pair.say(pair.mine, "mine")
    pair.say(pair.theirs, "theirs")
    pair.say(pair.theirs, "theirs again")
    assert pair.merge() == 3
    assert pair.facts(pair.mine) == ["[forgotten]", "thank you", "third", "Forgotten", "mine"]
    assert pair.state.read_shared_progress("c") == pair.known, "nothing of the other's is here yet"


def test_a_mark_of_forgetting_makes_room_for_what_another_machine_wrote_meanwhile(
    pair: Pair,
) -> None:
    pair.say(pair.theirs, "third")
    pair.mine.insert_stored_facts(pair.theirs.read_stored_facts("c", 2), trusted=True)
    pair.forget(pair.mine)
    pair.say(pair.theirs, "theirs")
    assert pair.merge() is None
    assert pair.facts(pair.mine) == ["[forgotten]", "thank you", "third", "theirs"]


def test_what_was_forgotten_here_is_not_undone_by_what_another_machine_wrote_and_is_sent_anew(
    pair: Pair,
) -> None:
    first = pair.mine.read_stored_facts("c")[0]
    pair.mine.replace_fact(first, UserSaid((Text("[forgotten] here", 1),)))
    pair.forget(pair.mine)
    pair.known = pair.progress(pair.mine, generation=2)
    pair.known = SharedProgress("c", 2, pair.known.chain, 1, b"w" * 16, pair.known.contents)
    pair.say(pair.theirs, "theirs")
    assert pair.merge() is None
    assert pair.facts(pair.mine) == ["[forgotten] here", "thank you", "theirs", "Forgotten"]
    assert pair.mine.read_recorded("c")[-1].fact == Forgotten((), 1, "why"), (
        "the mark that was here"
    )
    planned = pair.state.read_shared_progress("c").contents
    assert planned is not None
    assert (planned.generation, planned.last) == (2, 0)


def test_of_a_message_in_which_both_forgot_something_at_once_neither_text_comes_back(
    pair: Pair,
) -> None:
    first = pair.mine.read_stored_facts("c")[0]
    pair.mine.replace_fact(first, UserSaid((Text("[forgotten]fish", 1),)))
    first = pair.theirs.read_stored_facts("c")[0]
    pair.theirs.replace_fact(first, UserSaid((Text("sword[forgotten]", 1),)))
    contents = HeadContents("c", "here", segments=(FactSegment(b"n" * 32, 1, 2),), generation=1)
    pair.known = SharedProgress(
        "c", 2, pair.progress(pair.mine, generation=1).chain, 1, b"w" * 16, contents
    )
    assert pair.merge() is None
    assert pair.facts(pair.mine)[:2] == [content_forgetting.FORGOTTEN_MARK, "thank you"]
    planned = pair.state.read_shared_progress("c").contents
    assert planned is not None
    assert (planned.generation, planned.last) == (2, 0), "what is here is not what the others have"


def test_of_a_conversation_removed_here_nothing_is_left_to_go_on_from(pair: Pair) -> None:
    assert pair.state.read_progress_unless_removed("c") == pair.known
    pair.mine.delete_conversation("c")
    assert pair.state.read_shared_progress("c") == pair.known
    known = pair.known
    left = SharedProgress("c", 0, NOTHING, known.version, known.writer, known.contents)
    assert pair.state.read_progress_unless_removed("c") == left
    assert pair.state.read_progress_unless_removed("unknown") == SharedProgress("unknown")


def test_marks_and_heads_that_could_not_be_read_are_known_again(pair: Pair) -> None:
    assert (pair.state.read_mark(), pair.state.read_unread_heads()) == (("", 0), frozenset())
    pair.state.save_mark(("an engine 1", 17))
    pair.state.save_unread_heads(frozenset({b"b" * 32, b"a" * 32}))
    again = SyncState(pair.mine)
    assert again.read_mark() == ("an engine 1", 17)
    assert again.read_unread_heads() == {b"a" * 32, b"b" * 32}
    assert (again.machine, len(again.machine)) == (pair.state.machine, 16)


def test_a_journal_in_a_copied_folder_belongs_to_another_machine(
    pair: Pair, tmp_path: Path
) -> None:
    pair.mine.remove_write_ahead_log()
    (tmp_path / "copied").mkdir()
    shutil.copy(pair.mine.path, tmp_path / "copied" / "a.sqlite3")
    for _ in range(2):
        with closing(JournalFile(tmp_path / "copied" / "a.sqlite3")) as journal:
            copied = SyncState(journal)
        assert copied.machine != pair.state.machine
    assert SyncState(pair.mine).machine == pair.state.machine


@pytest.mark.parametrize(
    ("seq", "segments", "last", "is_stale"),
    [(2, 1, 0, True), (2, 1, 2, False), (2, 0, 0, False), (0, 1, 0, True)],
)
def test_what_was_changed_in_place_must_be_sent_anew(
    seq: int, segments: int, last: int, is_stale: bool
) -> None:
    parts = (FactSegment(b"n" * 32, 1, 2),) * segments
    known = SharedProgress(
        "c", seq, contents=HeadContents("c", "here", last, segments=parts, generation=4)
    )
    assert (known.must_be_sent_again, known.generation) == (is_stale, 4)
    assert (SharedProgress("c", seq).must_be_sent_again, SharedProgress("c").generation) == (
        False,
        0,
    )


def test_only_facts_that_are_all_here_are_noted_as_shared(pair: Pair) -> None:
    known = SharedProgress("c")
    seen = pair.progress(pair.mine, generation=0)
    assert not pair.state.save_progress_if_here(pair.known, seen), "nothing is new in it"
    assert not pair.state.save_progress_if_here(pair.progress(pair.theirs, generation=0), known), (
        "they differ"
    )
    pair.state.save_progress(known)
    assert pair.state.save_progress_if_here(seen, known)
    assert pair.state.read_shared_progress("c") == seen


def test_the_own_heads_are_those_this_machine_wrote_last_and_need_not_send_anew(pair: Pair) -> None:
    own = pair.state.machine
    part = (FactSegment(b"n" * 32, 1, 2),)
    heads = {name: HeadContents(name, "here", 2, segments=part) for name in ("own", "other")}
    for name, writer in (("own", own), ("other", b"w" * 16)):
        pair.state.save_progress(
            SharedProgress(name, 2, version=1, writer=writer, contents=heads[name])
        )
    stale = HeadContents("stale", "here", segments=part)
    pair.state.save_progress(SharedProgress("stale", 2, version=1, writer=own, contents=stale))
    pair.state.save_progress(SharedProgress("bare", 2, version=1, writer=own))
    found = pair.state.list_current_own_heads(["own", "other", "stale", "bare", "unknown"])
    assert found == [(pair.state.read_shared_progress("own"), heads["own"])]
    assert pair.state.needed_segment_names() == (b"n" * 32,) * 3


def test_a_new_generation_is_planned_with_the_chain_of_all_facts_the_others_have(
    pair: Pair,
) -> None:
    pair.say(pair.mine, "not sent yet")
    bare = SharedProgress("bare", 2, version=1, writer=b"w" * 16)
    pair.state.save_progress(bare)
    first = pair.mine.read_stored_facts("c")[0]
    pair.mine.replace_fact(first, UserSaid((Text("[forgotten] here", 1),)))
    pair.state.mark_conversations_for_resending(["c", "bare", "unknown"])
    planned = pair.state.read_shared_progress("c")
    known = pair.known
    assert known.contents is not None
    contents = HeadContents("c", "somebody", 0, known.contents.chain, generation=1)
    chain = compute_chain(NOTHING, pair.mine.read_stored_facts("c", 0, 2))
    assert planned == SharedProgress("c", 2, chain, known.version, known.writer, contents)
    assert pair.state.list_progress() == (planned, bare)


def share(state: SyncState, conversation: str, seq: int) -> None:
    contents = HeadContents(conversation, "somebody", seq, NOTHING)
    state.save_progress(SharedProgress(conversation, seq, NOTHING, 1, b"w" * 16, contents))


def test_what_waits_and_what_was_removed_is_known_also_after_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    journal = JournalFile(tmp_path / "journal.sqlite3", now=clock.now)
    state = SyncState(journal, RowCipher(KEY))
    for name in ("later", "whole", "removed", "half", "unknown"):
        for _ in range(2):
            journal.append_all_or_nothing(name, [UserSaid((Text("word", 1),))])
    for name, seq in (("later", 2), ("whole", 2), ("removed", 2), ("half", 1)):
        share(state, name, seq)
    clock.time += 1
    journal.append_all_or_nothing("later", [UserSaid((Text("word", 1),))])
    journal.delete_conversation("removed")
    expected = [("half", 1), ("unknown", 2), ("later", 1)]
    assert list(state.count_facts_to_send().items()) == expected
    assert state.list_removed_conversations() == ("removed",)
    journal.close()
    journal = JournalFile(tmp_path / "journal.sqlite3", now=clock.now)
    state = SyncState(journal, RowCipher(KEY))
    assert list(state.count_facts_to_send().items()) == expected
    assert state.list_removed_conversations() == ("removed",)
    for name, seq in (("half", 2), ("unknown", 2), ("later", 3)):
        share(state, name, seq)
    assert state.count_facts_to_send() == {}
    share(state, "whole", 0)
    assert state.count_facts_to_send() == {"whole": 2}
    journal.close()


def test_facts_of_a_conversation_that_had_left_this_disk_wait_to_be_sent_like_any_other(
    tmp_path: Path,
) -> None:
    journal = JournalFile(tmp_path / "journal.sqlite3")
    state = SyncState(journal, RowCipher(KEY))
    for name in ("c", "gone"):
        journal.append_all_or_nothing(name, [UserSaid((Text("word", 1),))])
        share(state, name, 1)
    state.released.release_from_disk(["c", "gone"])
    assert (state.count_facts_to_send(), state.list_removed_conversations()) == ({}, ())
    for _ in range(2):
        journal.append_all_or_nothing("c", [UserSaid((Text("it goes on", 1),))])
    assert state.count_facts_to_send() == {"c": 1}
    state.released.remove_release_marks("gone")
    assert state.list_removed_conversations() == ("gone",)
    journal.close()


def test_what_a_branch_begins_with_is_safe_as_far_as_the_others_have_it_in_the_first_conversation(
    tmp_path: Path,
) -> None:
    journal = JournalFile(tmp_path / "journal.sqlite3")
    state = SyncState(journal, RowCipher(KEY))
    for _ in range(4):
        journal.append_all_or_nothing("c", [UserSaid((Text("word", 1),))])
    journal.copy_conversation("c", 3, "branch")
    assert state.count_facts_to_send() == {"c": 4, "branch": 4}
    share(state, "c", 2)
    assert state.count_facts_to_send() == {"c": 2, "branch": 2}
    share(state, "c", 4)
    assert state.count_facts_to_send() == {"branch": 1}
    share(state, "branch", 4)
    assert state.count_facts_to_send() == {}
    journal.close()


def test_looking_for_what_waits_takes_no_longer_with_many_conversations(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "journal.sqlite3")
    state = SyncState(journal, RowCipher(KEY))
    steps: list[int] = []
    for count in (10, 300):
        with journal.in_one_transaction():
            for number in range(count):
                journal.append_all_or_nothing(f"{count} {number}", [UserSaid((Text("word", 1),))])
                share(state, f"{count} {number}", 1)
        looked: list[None] = []
        journal.connection.set_progress_handler(lambda looked=looked: looked.append(None), 1)  # type: ignore[misc]
        assert state.count_facts_to_send() == {}
        assert state.list_removed_conversations() == ()
        steps.append(len(looked))
        journal.connection.set_progress_handler(None, 1)
    journal.close()
    assert steps[1] < 2 * steps[0]


def forget_in_place(pair: Pair, place: int = 0) -> tuple[StoredFact, SharedProgress]:
    """A fact that the others have is changed here; what it was, and what is planned."""
    was = pair.mine.read_stored_facts("c")[place]
    pair.mine.replace_fact(was, UserSaid((Text("[forgotten] here", 1),)))
    pair.state.mark_conversations_for_resending(["c"])
    return was, pair.state.read_shared_progress("c")


def test_facts_of_another_machine_follow_those_that_are_here(pair: Pair) -> None:
    pair.say(pair.theirs, "third")
    new = pair.theirs.read_stored_facts("c", 2)
    seen = pair.progress(pair.theirs, generation=0)
    pair.state.append_facts_of_others(new, seen)
    assert pair.facts(pair.mine) == ["swordfish", "thank you", "third"]
    assert pair.state.read_shared_progress("c") == seen
    assert pair.state.count_facts_to_send() == {}


def test_facts_that_were_not_taken_as_they_came_are_sent_anew(pair: Pair) -> None:
    pair.say(pair.theirs, "third")
    new = pair.theirs.read_stored_facts("c", 2)
    seen = pair.progress(pair.theirs, generation=0)
    pair.state.append_facts_of_others(new, seen, anew=True)
    assert pair.facts(pair.mine) == ["swordfish", "thank you", "third", "Forgotten"]
    planned = pair.state.read_shared_progress("c").contents
    assert planned is not None
    assert (planned.generation, planned.last) == (1, 0)
    again = pair.progress(pair.mine, generation=2)
    pair.state.append_facts_of_others((), again, anew=True)
    assert pair.state.read_shared_progress("c") == again, "what the others have is what is here"


def test_what_was_forgotten_here_does_not_come_back_with_another_machines_copy(pair: Pair) -> None:
    assert pair.state.blank_forgotten_facts(pair.mine.read_stored_facts("c")) == list(
        pair.mine.read_stored_facts("c")
    )
    was, _ = forget_in_place(pair)
    other = pair.mine.read_stored_facts("c")[1]
    here, same = pair.state.blank_forgotten_facts([was, other])
    assert (here.decode_recorded().fact, same) == (UserSaid((Text("[forgotten] here", 1),)), other)
    moved = replace(was, time=was.time + 1)
    assert pair.state.blank_forgotten_facts([moved]) == [moved], "another fact that says the same"
    pair.mine.delete_conversation("c")
    (mark,) = pair.state.blank_forgotten_facts([was])
    assert mark.decode_recorded().fact == Forgotten((), 1, content_forgetting.REASON)


def test_content_that_was_forgotten_here_is_quoted_by_no_fact_that_comes(pair: Pair) -> None:
    gone, kept = (Stored(Digest.of_content(content), 4, 1) for content in (b"gone", b"kept"))
    returned = [
        ToolReturned("c1", one, 1, head=text) for one, text in ((gone, "gone"), (kept, "kept"))
    ]
    pair.theirs.append_all_or_nothing("d", returned)
    lines = pair.theirs.read_stored_facts("d")
    state = SyncState(pair.mine, RowCipher(KEY), forgotten=lambda digest: digest == gone.digest)
    blanked, same = state.blank_forgotten_facts(lines)
    assert blanked.decode_recorded().fact == replace(returned[0], head="")
    assert same == lines[1]
    assert SyncState(pair.mine, RowCipher(KEY)).blank_forgotten_facts(lines) == list(lines)


def test_words_of_this_machine_move_to_a_branch_and_the_others_take_their_place(pair: Pair) -> None:
    pair.say(pair.mine, "mine")
    pair.say(pair.theirs, "theirs")
    theirs = pair.theirs.read_stored_facts("c", 2)
    seen = pair.progress(pair.theirs, generation=0)
    was, _ = forget_in_place(pair, 2)
    pair.state.move_own_facts_to_branch("c", 2, "branch", ConversationStarted("here"), theirs, seen)
    assert pair.facts(pair.mine)[:3] == ["swordfish", "thank you", "theirs"]
    branch = [one.fact for one in pair.mine.read_recorded("branch")]
    assert branch[0] == UserSaid((Text("swordfish", 1),))
    assert branch[2:] == [UserSaid((Text("[forgotten] here", 1),)), ConversationStarted("here")]
    (here,) = pair.state.blank_forgotten_facts([was])
    assert here.decode_recorded().fact == UserSaid((Text("[forgotten] here", 1),)), (
        "also in its new place"
    )


def test_conversations_that_are_gone_or_wait_are_listed(pair: Pair) -> None:
    assert (pair.state.list_removed_conversations(), pair.state.count_facts_to_send()) == ((), {})
    assert pair.state.list_completely_sent(["c", "unknown"]) == [pair.known]
    pair.say(pair.mine, "one")
    pair.say(pair.mine, "two")
    assert pair.state.count_facts_to_send() == {"c": 2}
    assert pair.state.list_completely_sent(["c"]) == []
    pair.mine.delete_conversation("c")
    assert pair.state.list_removed_conversations() == ("c",)


def test_several_conversations_are_noted_together(pair: Pair) -> None:
    both = [SharedProgress(name, 1, version=1) for name in ("d", "e")]
    pair.state.save_progress_together(both)
    assert [pair.state.read_shared_progress(one.conversation) for one in both] == both


def test_what_a_worker_wrote_is_known_from_its_first_fact_on(pair: Pair) -> None:
    assert not pair.state.was_written_by_worker("c")
    pair.state.note_facts_of_worker("c", 1)
    assert pair.state.was_written_by_worker("c")
    assert not pair.state.was_written_by_worker("another")
