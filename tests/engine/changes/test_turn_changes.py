"""An undo is told with the turns that it undoes, whenever it was done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helix_desktop.engine.changes import turn_changes
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.changes.turn_changes import ChangeSource, FileChange
from helix_desktop.engine.facts import (
    ChangeKept,
    ConversationStarted,
    Fact,
    FilesChanged,
    ModelReplied,
    Origin,
    Recorded,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest


def _turns(*facts: Fact) -> list[tuple[str, list[int], int]]:
    recorded = [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(facts, 1)]
    return [
        (turn.turn_numbers, [source.seq for source in turn.sources], turn.end)
        for turn in turn_changes.group_changes_by_turn(recorded)
    ]


def _said() -> UserSaid:
    return UserSaid((Text("do it", 2),))


def _changed(*undoes: int) -> FilesChanged:
    digest = Digest.of_content(b"")
    return FilesChanged(
        Stored(digest, 0), digest, digest, by="undo" if undoes else "command", undoes=undoes
    )


TWO = (_said(), _changed(), _said(), _changed())


@pytest.mark.parametrize(
    ("more", "turns"),
    [
        ((), [("1", [2], 2), ("2", [4], 4)]),
        ((_changed(2),), [("1", [2, 5], 2), ("2", [4], 5)]),
        ((_changed(4),), [("1", [2], 2), ("2", [4, 5], 5)]),
        ((_changed(2, 4),), [("1–2", [2, 4, 5], 5)]),
        (
            (_changed(2, 4), _said(), _changed(), _changed(2, 4)),
            [("1–2", [2, 4, 5, 8], 5), ("3", [7], 8)],
        ),
    ],
)
def test_an_undo_belongs_to_the_turns_that_it_undoes(
    more: tuple[Fact, ...], turns: list[tuple[str, list[int], int]]
) -> None:
    assert _turns(*TWO, *more) == turns


@pytest.mark.parametrize(("by", "turn"), [("command", 0), ("tool", 0), ("background", 1)])
def test_what_is_recorded_after_a_kill_belongs_to_the_turn_of_its_call(by: str, turn: int) -> None:
    """A command in the background goes on in the next turn, so there it is that turn's."""
    called = ModelReplied((ToolCall("1", "run_command", "{}"),), "demo", Stop.CALLS)
    later = replace(_changed(), call="1", by=by)
    sources = [sources for _, sources, _ in _turns(_said(), called, _said(), _changed(), later)]
    assert sources == [[5], [4]] if turn == 0 else [[], [4, 5]]


def test_what_another_agents_program_wrote_is_not_called_a_command() -> None:
    """A change of one file, asked for and allowed as an edit, was said to be a command's."""
    for agent, acp_agent, what in (("claude", "", "agent"), ("", "Walker", "agent"), ("", "", "")):
        started = ConversationStarted("", "", "", agent=agent, acp_agent=acp_agent)
        facts: list[Fact] = [started, _said(), _changed()]
        recorded = [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(facts, 1)]
        (turn,) = turn_changes.group_changes_by_turn(recorded)
        assert [source.what for source in turn.sources] == [what]


def test_what_an_agent_added_begins_no_turn() -> None:
    """The defect: a reminder of Claude Code was a turn of its own, named after it."""
    reminder = "<system-reminder>\nToday is the 24th.\n</system-reminder>"
    added = UserSaid((Text(reminder),))
    said = UserSaid((Text(f"{reminder}\ndo it"),))
    start = ConversationStarted(origin=Origin("claude-code", "s"))
    facts: list[Fact] = [start, said, added, _changed()]
    recorded = [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(facts, 1)]
    (turn,) = turn_changes.group_changes_by_turn(recorded)
    assert (turn.title, [source.seq for source in turn.sources]) == ("do it", [4])
    assert _turns(UserSaid((Text(reminder),)), _changed()) == [("1", [2], 2)]


# --- What became of single files

FILE = TreeItem(PathKind.FILE, 0o644, 5, b"content" * 4 + b"1234")
OTHER = TreeItem(PathKind.FILE, 0o644, 5, b"another" * 4 + b"1234")
EMPTY = TreeItem(PathKind.FILE, 0o644, 0, bytes(32))


def file_change(path: str, before: TreeItem | None, after: TreeItem | None) -> FileChange:
    return FileChange(PathChange(path, before, after), place=path[2:], added=3, removed=4)


def test_a_file_is_added_deleted_or_changed() -> None:
    assert file_change("0/a", None, FILE).change_word == "added"
    assert file_change("0/a", FILE, None).change_word == "deleted"
    assert file_change("0/a", FILE, OTHER).change_word == "changed"


def test_a_deleted_file_whose_content_is_elsewhere_now_was_renamed() -> None:
    files = [file_change("0/new", None, FILE), file_change("0/old", FILE, None)]
    new, old = turn_changes.mark_renames(files)
    assert (old.place, old.renamed, old.added, old.removed) == ("old", "new", 0, 0)
    assert (new.place, new.renamed, new.added, new.removed) == ("new", "old", 0, 0)
    assert new.moved_from == old
    assert new.both_halves == (old, new)
    assert old.both_halves == (old,)


@pytest.mark.parametrize(
    "files",
    [
        [file_change("0/old", FILE, None), file_change("0/new", None, OTHER)],
        [file_change("0/old", EMPTY, None), file_change("0/new", None, EMPTY)],
        [file_change("0/old", FILE, OTHER), file_change("0/new", None, FILE)],
        [file_change("0/old", FILE, None), file_change("0/new", OTHER, FILE)],
    ],
    ids=["other content", "nothing in it", "still there", "was there before"],
)
def test_anything_else_is_no_rename(files: list[FileChange]) -> None:
    assert turn_changes.mark_renames(files) == files


def test_one_deleted_file_became_one_other_and_a_second_copy_is_new() -> None:
    files = [
        file_change("0/old", FILE, None),
        file_change("0/first", None, FILE),
        file_change("0/second", None, FILE),
    ]
    old, first, second = turn_changes.mark_renames(files)
    assert (old.renamed, first.renamed, second.renamed) == ("first", "old", "")


# --- Which facts an undo is of


def source(seq: int, *undoes: int, conversation: str = "c") -> ChangeSource:
    return ChangeSource(conversation, seq, float(seq), _changed(*undoes))


def test_a_change_stands_with_the_undos_of_it_and_of_no_other() -> None:
    step = source(2)
    sources = [step, source(4), source(5, 4), source(6, 2), source(7, 2, 4)]
    with_undos = turn_changes.step_with_undos(step, sources)
    assert [change.seq for change in with_undos] == [2, 6, 7]
    without = turn_changes.without_user_undos(sources)
    assert [change.seq for change in without] == [2, 4]


def test_an_undo_names_what_was_undone_in_this_conversation() -> None:
    changes = [source(6), source(7, 3, 2), source(9, conversation="another")]
    assert turn_changes.seqs_to_name_in_undo(changes, "c") == (2, 3, 6)
    said = Recorded("c", 8, 8.0, _said())
    assert turn_changes.seqs_to_name_in_undo([said], "c") == ()


def test_hunks_that_the_user_keeps_are_known_by_their_path() -> None:
    facts: list[Fact] = [
        ChangeKept("0/a", "1"),
        ChangeKept("0/b", ""),
        ChangeKept("0/a", "2"),
        _said(),
    ]
    recorded = [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(facts, 1)]
    assert turn_changes.kept_hunks(recorded) == {
        "0/a": frozenset({"1", "2"}),
        "0/b": frozenset({""}),
    }


def test_sub_agents_and_long_titles_belong_to_their_turn() -> None:
    long = UserSaid((Text("word " * 40),))
    child = ToolReturned("1", Stored(Digest.of_content(b""), 0), 1, child="child")
    nothing = ToolReturned("2", Stored(Digest.of_content(b""), 0), 1)
    facts: list[Fact] = [_said(), _changed(), long, child, nothing, child, _changed(2, 7)]
    recorded = [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(facts, 1)]
    separate = turn_changes.group_changes_by_turn(recorded[:-1])
    assert [turn.children for turn in separate] == [(), ("child", "child")]
    assert len(separate[1].title) == turn_changes.LONGEST_TITLE
    (joined,) = turn_changes.group_changes_by_turn(recorded)
    assert (joined.turn_numbers, joined.children) == ("1–2", ("child", "child"))


def test_a_steering_message_begins_no_turn_and_changes_before_any_are_nobodys() -> None:
    steering = UserSaid((Text("and mind this"),), steering=True)
    assert _turns(_said(), steering, _changed()) == [("1", [3], 3)]
    assert _turns(_changed(), _said()) == [("1", [], 2)]


def test_a_path_that_is_no_text_is_shown_with_escapes() -> None:
    assert turn_changes.printable_path("grün/a b.txt") == "grün/a b.txt"
    assert turn_changes.printable_path("a\udcff\n") == "a\\\\xff\\n"
    comment = turn_changes.format_line_comment("a.py", 7, "  x = 1 ", " why? ")
    assert comment == "About a.py, line 7:\n\n    x = 1\n\nwhy?"
