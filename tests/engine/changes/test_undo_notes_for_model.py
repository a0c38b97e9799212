"""What the model is told of an undo: all of its change, or the part that the user took back."""

from __future__ import annotations

import pytest

from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.changes.undo_notes_for_model import UndoneFiles
from helix_desktop.engine.sha256_digest import Digest

PATH = "0/main.py"


def item(text: str) -> TreeItem:
    return TreeItem(
        PathKind.FILE, 0o644, len(text), bytes.fromhex(Digest.of_content(text.encode()).hex)
    )


@pytest.mark.parametrize(
    ("restored", "said"),
    [
        ("one two", 'The user undid your changes to "main.py".'),
        ("ONE two", 'The user undid a part of your changes to "main.py".'),
        ("ONE TWO", ""),
    ],
)
def test_an_undo_of_one_of_two_hunks_is_not_called_an_undo_of_both(
    restored: str, said: str
) -> None:
    """The defect: after one of two hunks was undone, the model was told that its changes were."""
    files = UndoneFiles(names={PATH: "main.py"})
    files.add_agent_change(PathChange(PATH, item("one two"), item("ONE TWO")))
    files.add_undo(PathChange(PATH, item("ONE TWO"), item(restored)), is_shown=True)
    assert files.describe_news() == said


def test_the_rest_of_the_change_can_be_undone_later() -> None:
    files = UndoneFiles(names={PATH: "main.py"})
    files.add_agent_change(PathChange(PATH, item("one two"), item("ONE TWO")))
    files.add_undo(PathChange(PATH, item("ONE TWO"), item("ONE two")), is_shown=True)
    files.told.update(files.restored)
    files.add_undo(PathChange(PATH, item("ONE two"), item("one two")), is_shown=True)
    assert files.describe_news() == 'The user undid your changes to "main.py".'
