"""What stands on the page of changes, by its kind or its words."""

from __future__ import annotations

from helix_desktop.gui.changes.changes_page import (
    ChangesPage,
)

BEFORE = b"".join(b"line %d\n" % n for n in range(60))
AFTER = BEFORE.replace(b"line 5\n", b"LINE 5\n").replace(b"line 40\n", b"line forty\nmore\n")


def dialog(page: ChangesPage, kind: type) -> object:
    found: list[object] = list(page.findChildren(kind))
    return found[0]


def row_of_text(page: ChangesPage, text: str) -> int:
    for number, row in enumerate(page.body.view._sheet.rows):
        if row.right is not None and row.right.text == text:
            return number
    raise AssertionError(text)
