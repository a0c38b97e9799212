"""States and differences come back from their bytes as they were, and differences lead
from one state to the other.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import InvalidInput, WrittenByNewerVersion

NAMES = st.binary(min_size=1, max_size=6).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
ITEMS = st.one_of(
    st.builds(
        TreeItem,
        st.just(PathKind.FILE),
        st.integers(0, 0o7777),
        st.integers(0, 2**40),
        st.binary(min_size=32, max_size=32),
    ),
    st.builds(TreeItem, st.just(PathKind.LINK), st.just(0o777), st.just(0), st.binary(max_size=20)),
    st.builds(TreeItem, st.just(PathKind.FOLDER), st.integers(0, 0o777), st.just(0), st.just(b"")),
)
FIRST = Digest(b"1" * 32)
TREES = st.dictionaries(NAMES, ITEMS, max_size=12)


@given(TREES)
def test_a_manifest_comes_back(state: dict[str, TreeItem]) -> None:
    content = b"".join(
        folder_state.encode_manifest(
            (path, folder_state.pack_item(item)) for path, item in state.items()
        )
    )
    assert folder_state.decode_manifest(content) == state


@given(TREES, TREES)
def test_a_difference_leads_from_one_state_to_the_other(
    before: dict[str, TreeItem], after: dict[str, TreeItem]
) -> None:
    changes = folder_state.compare_trees(before, after)
    first = b"".join(
        folder_state.encode_manifest(
            (path, folder_state.pack_item(item)) for path, item in before.items()
        )
    )
    there = folder_state.encode_difference(changes, FIRST)
    back = folder_state.encode_difference(
        [folder_state.PathChange(one.path, one.after, one.before) for one in changes], FIRST
    )
    assert folder_state.decode_difference(there) == changes
    assert folder_state.build_tree([first, there]) == after
    assert folder_state.build_tree([first, there, back]) == before


@given(TREES, TREES, TREES)
def test_changes_join_to_what_they_come_to(
    one: dict[str, TreeItem], two: dict[str, TreeItem], three: dict[str, TreeItem]
) -> None:
    whole, broken = folder_state.merge_changes_and_find_paths_changed_by_others(
        [*folder_state.compare_trees(one, two), *folder_state.compare_trees(two, three)]
    )
    assert whole == folder_state.compare_trees(one, three)
    assert not broken


def test_what_somebody_changed_in_between_is_named() -> None:
    old, new, other = (TreeItem(PathKind.FILE, 0o644, 1, bytes((n,)) * 32) for n in range(3))
    whole, broken = folder_state.merge_changes_and_find_paths_changed_by_others(
        [PathChange("a", old, new), PathChange("a", other, old)]
    )
    assert whole == ()
    assert broken == {"a"}


def test_a_folder_is_listed_only_where_nothing_below_it_is() -> None:
    folder = TreeItem(PathKind.FOLDER, 0o755)
    file = TreeItem(PathKind.FILE, 0o644, 0, bytes(32))
    changes = [
        PathChange("0/a", None, folder),
        PathChange("0/a/b", None, file),
        PathChange("0/empty", None, folder),
    ]
    assert [change.path for change in folder_state.without_folders_beside_files(changes)] == [
        "0/a/b",
        "0/empty",
    ]
    changes[1] = PathChange("0/a/b", None, folder)
    assert [change.path for change in folder_state.without_folders_beside_files(changes)] == [
        "0/a/b",
        "0/empty",
    ]


def test_what_has_to_be_read_for_a_state() -> None:
    old = b'{"checkpoint": 1, "roots": ["/a"], "manifest": "%s", "differences": ["%s"]}' % (
        b"00" * 32,
        b"11" * 32,
    )
    assert folder_state.entries_to_read_first(old) == (Digest(bytes(32)), Digest(b"\x11" * 32))
    assert folder_state.entries_to_read_first(folder_state.encode_difference([], FIRST)) == (FIRST,)
    assert (
        folder_state.entries_to_read_first(b"helix difference 1\n")
        == folder_state.entries_to_read_first(b"helix manifest 1\n")
        == ()
    )


def test_newer_forms_are_refused() -> None:
    for content in (b"helix manifest 2\n", b"helix difference 3\n", b'{"checkpoint": 2}'):
        with pytest.raises(WrittenByNewerVersion):
            (folder_state.entries_to_read_first(content), folder_state.build_tree([content]))
    with pytest.raises(InvalidInput):
        folder_state.decode_manifest(b"helix difference 1\n")
