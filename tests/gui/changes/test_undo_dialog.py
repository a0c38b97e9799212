"""An undo over what somebody else changed is the user's choice, file by file."""

from __future__ import annotations

from PySide6.QtWidgets import QComboBox

from helix_desktop.engine.changes.turn_changes import PlannedUndo, UndoOutlook
from helix_desktop.gui.changes.undo_dialog import UndoChangesDialog
from helix_desktop.gui.theme import Theme


def test_each_conflict_has_its_choices_and_is_left_as_it_is_unless_another_is_made(
    theme: Theme,
) -> None:
    planned = [
        PlannedUndo(path, None, None, None, UndoOutlook.CONFLICT) for path in ("0/a.py", "0/b.py")
    ]
    dialog = UndoChangesDialog(theme, "Undo turn 1", [], planned)
    first, second = dialog.findChildren(QComboBox)
    assert [first.itemData(index) for index in range(first.count())] == ["now", "before", "merge"]
    assert (first.accessibleName(), second.accessibleName()) == ("a.py", "b.py")
    second.setCurrentIndex(1)
    assert dialog.choices_by_path == {"0/a.py": "now", "0/b.py": "before"}
