"""States and differences come back from their bytes as they were, and differences lead from one state to the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.changes import tree
from helix_desktop.engine.changes.tree import Change, Checkpoint, Item, Kind
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
TREES = st.dictionaries(NAMES, ITEMS, max_size=12)


@given(TREES)
def test_a_manifest_comes_back(state: dict[str, Item]) -> None:
    content = b"".join(tree.write_manifest((path, tree.pack(item)) for path, item in state.items()))
    assert tree.read_manifest(content) == state


@given(TREES, TREES)
def test_a_difference_leads_from_one_state_to_the_other(before: dict[str, Item], after: dict[str, Item]) -> None:
    changes = tree.read_difference(tree.write_difference(tree.compared(before, after)))
    assert tree.applied(before, changes) == after
    assert tree.applied(after, [change.back for change in changes]) == before


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


def test_a_checkpoint_comes_back_and_a_newer_one_is_refused() -> None:
    checkpoint = Checkpoint(("/home/\udcffme",), Digest(bytes(32)), (Digest(b"1" * 32),))
    assert tree.read_checkpoint(tree.write_checkpoint(checkpoint)) == checkpoint
    with pytest.raises(NewerVersion):
        tree.read_manifest(b"helix manifest 2\n")
    with pytest.raises(WrongUse):
        tree.read_manifest(b"helix difference 1\n")
