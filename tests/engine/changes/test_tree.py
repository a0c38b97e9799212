"""States and differences come back from their bytes as they were, and differences lead from one state to the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.changes import tree
from helix_desktop.engine.changes.tree import Change, Item, Kind
from helix_desktop.engine.digest import Digest
from helix_desktop.errors import NewerVersion, WrongUse

NAMES = st.binary(min_size=1, max_size=6).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
ITEMS = st.one_of(
    st.builds(
        Item, st.just(Kind.FILE), st.integers(0, 0o7777), st.integers(0, 2**40), st.binary(min_size=32, max_size=32)
    ),
    st.builds(Item, st.just(Kind.LINK), st.just(0o777), st.just(0), st.binary(max_size=20)),
    st.builds(Item, st.just(Kind.FOLDER), st.integers(0, 0o777), st.just(0), st.just(b"")),
)
FIRST = Digest(b"1" * 32)
TREES = st.dictionaries(NAMES, ITEMS, max_size=12)


@given(TREES)
def test_a_manifest_comes_back(state: dict[str, Item]) -> None:
    content = b"".join(tree.write_manifest((path, tree.pack(item)) for path, item in state.items()))
    assert tree.read_manifest(content) == state


@given(TREES, TREES)
def test_a_difference_leads_from_one_state_to_the_other(before: dict[str, Item], after: dict[str, Item]) -> None:
    changes = tree.compared(before, after)
    first = b"".join(tree.write_manifest((path, tree.pack(item)) for path, item in before.items()))
    there = tree.write_difference(changes, FIRST)
    back = tree.write_difference([tree.Change(one.path, one.after, one.before) for one in changes], FIRST)
    assert tree.read_difference(there) == changes
    assert tree.built([first, there]) == after
    assert tree.built([first, there, back]) == before


@given(TREES, TREES, TREES)
def test_changes_join_to_what_they_come_to(one: dict[str, Item], two: dict[str, Item], three: dict[str, Item]) -> None:
    whole, broken = tree.joined([*tree.compared(one, two), *tree.compared(two, three)])
    assert whole == tree.compared(one, three)
    assert not broken


def test_what_somebody_changed_in_between_is_named() -> None:
    old, new, other = (Item(Kind.FILE, 0o644, 1, bytes((n,)) * 32) for n in range(3))
    whole, broken = tree.joined([Change("a", old, new), Change("a", other, old)])
    assert whole == ()
    assert broken == {"a"}


def test_a_folder_is_counted_only_where_nothing_in_it_changed() -> None:
    folder, file = Item(Kind.FOLDER, 0o755), Item(Kind.FILE, 0o644, 0, bytes(32))
    changes = [Change("0/a", None, folder), Change("0/a/b", None, file), Change("0/empty", None, folder)]
    assert [change.path for change in tree.files_of(changes)] == ["0/a/b", "0/empty"]


def test_what_has_to_be_read_for_a_state() -> None:
    old = b'{"checkpoint": 1, "roots": ["/a"], "manifest": "%s", "differences": ["%s"]}' % (b"00" * 32, b"11" * 32)
    assert tree.behind(old) == (Digest(bytes(32)), Digest(b"\x11" * 32))
    assert tree.behind(tree.write_difference([], FIRST)) == (FIRST,)
    assert tree.behind(b"helix difference 1\n") == tree.behind(b"helix manifest 1\n") == ()


def test_newer_forms_are_refused() -> None:
    for content in (b"helix manifest 2\n", b"helix difference 3\n", b'{"checkpoint": 2}'):
        with pytest.raises(NewerVersion):
            (tree.behind(content), tree.built([content]))
    with pytest.raises(WrongUse):
        tree.read_manifest(b"helix difference 1\n")
