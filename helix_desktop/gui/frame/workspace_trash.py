"""The workspaces in the trash: each can be taken out again, or removed for good after a question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.frame.sidebar import folder_words
from helix_desktop.gui.layouts import clear
from helix_desktop.gui.ports import Desk, WorkspaceRow
from helix_desktop.gui.questions import ask_yes
from helix_desktop.gui.shared.plain import plain_label, push_button
from helix_desktop.gui.words import tr


class TrashDialog(QDialog):
    """`changed` is called when one came back, `gone` with one that was deleted for good."""

    def __init__(
        self,
        parent: QWidget,
        doing: Doing,
        desk: Desk,
        changed: Callable[[], object],
        gone: Callable[[str], object],
    ) -> None:
        super().__init__(parent)
        self._doing, self._desk, self._changed, self._gone = doing, desk, changed, gone
        self.setWindowTitle(tr("Workspaces in the trash"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setMinimumWidth(460)
        self._rows = QVBoxLayout()
        self._rows.setSpacing(6)
        self._said = plain_label(tr("Loading…"), "muted", self)
        close = QPushButton(tr("Close"), self)
        close.clicked.connect(self.accept)
        column = QVBoxLayout(self)
        column.addLayout(self._rows)
        column.addWidget(self._said)
        column.addWidget(close, 0, Qt.AlignmentFlag.AlignRight)
        self._list()

    def _list(self) -> None:
        work = asyncio.to_thread(self._desk.workspaces, trashed=True)
        self._doing.do(work, name="list the trash", then=self._show, owner=self)

    def _show(self, rows: Sequence[WorkspaceRow]) -> None:
        clear(self._rows)
        for row in rows:
            self._rows.addWidget(self._row(row))
        self._said.setText("" if rows else tr("No workspaces in the trash."))
        self._said.setVisible(not rows)
        self.adjustSize()

    def _row(self, row: WorkspaceRow) -> QWidget:
        card = QWidget(self)
        card.setProperty("look", "card")
        card.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        words = QVBoxLayout()
        words.setSpacing(1)
        for text, look in ((row.name, ""), (folder_words(row.folder), "small")):
            words.addWidget(plain_label(text, look, card, wraps=False))
        line = QHBoxLayout(card)
        line.setContentsMargins(12, 6, 6, 6)
        line.addLayout(words, 1)
        for text, act in ((tr("Restore"), self._restore), (tr("Delete permanently…"), self._ask)):
            button = push_button(text, card, partial(act, row), "link")
            button.setAccessibleName(f"{text}: {row.name}")
            line.addWidget(button)
        return card

    def _restore(self, row: WorkspaceRow) -> None:
        desk, changed = self._desk, self._changed

        async def back() -> None:
            await desk.restore(row.id)
            changed()  # also where this dialog was closed meanwhile

        self._do(back(), lambda _done: self._list())

    def _ask(self, row: WorkspaceRow) -> None:
        text = tr(
            "All conversations and the entire cache of “{name}” will be deleted. This can't be undone. Its folder will not be changed.",
            name=row.name,
        )
        ask_yes(self, tr("Delete workspace"), text, tr("Delete permanently"), partial(self._delete, row))

    def _delete(self, row: WorkspaceRow) -> None:
        desk, gone = self._desk, self._gone

        async def deleted() -> None:
            await desk.delete(row.id)
            gone(row.id)

        self._do(deleted(), lambda _done: self._list())

    def _do(self, work: Coroutine[Any, Any, None], then: Callable[[None], object]) -> None:
        def failed(error: HelixError) -> None:
            self._said.setText(said(str(error)))
            self._said.show()

        self._doing.do(work, name="the trash of workspaces", then=then, owner=self, failed=failed)
