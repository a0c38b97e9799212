"""The dialog of trashed workspaces: restores one, or deletes it for ever after a question."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtWidgets import QHBoxLayout, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import (
    TransientDialog,
    build_plain_label,
    build_push_button,
    build_surface,
)
from helix_desktop.gui.frame.sidebar import format_folder
from helix_desktop.gui.question_dialogs import ask_to_confirm
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import KnownWorkspace, Workbenches


class WorkspaceTrashDialog(TransientDialog):
    """`on_restored` is called after a workspace was restored, `on_deleted` with the id
    of a deleted one.
    """

    def __init__(
        self,
        parent: QWidget,
        runner: BackgroundRunner,
        desk: Workbenches,
        on_restored: Callable[[], object],
        on_deleted: Callable[[str], object],
    ) -> None:
        super().__init__(tr("Workspaces in the trash"), parent, 460)
        self._runner = runner
        self._desk = desk
        self._on_restored = on_restored
        self._on_deleted = on_deleted
        self._rows = build_column(spacing=6)
        self._status_label = build_plain_label(tr("Loading…"), "muted", self)
        close_button = build_push_button(tr("Close"), self, self.accept)
        build_column(self._rows, self._status_label, build_row(1, close_button), owner=self)
        self._fetch_trashed_workspaces()

    def _fetch_trashed_workspaces(self) -> None:
        work = asyncio.to_thread(self._desk.list_workspaces, trashed=True)
        self._runner.run_in_background(work, then=self._show_trashed_workspaces, owner=self)

    def _show_trashed_workspaces(self, rows: Sequence[KnownWorkspace]) -> None:
        clear_layout(self._rows)
        for row in rows:
            self._rows.addWidget(self._build_trash_row(row))
        self._status_label.setText(tr("No workspaces in the trash."))
        self._status_label.setVisible(not rows)
        self.adjustSize()

    def _build_trash_row(self, row: KnownWorkspace) -> QWidget:
        card = build_surface(self, "card")
        name = build_plain_label(row.name, "", card, wraps=False)
        folder_words = format_folder(row.first_folder)
        folder = build_plain_label(folder_words, "small", card, wraps=False)
        texts = build_column(name, folder, spacing=1)
        line = build_row((texts, 1), owner=card, margins=(12, 6, 6, 6))
        restore = partial(self._restore_workspace, row)
        self._add_trash_button(line, row, tr("Restore"), restore)
        ask_to_delete = partial(self._ask_delete_workspace, row)
        self._add_trash_button(line, row, tr("Delete permanently…"), ask_to_delete)
        return card

    def _add_trash_button(
        self, line: QHBoxLayout, row: KnownWorkspace, text: str, act: Callable[[], object]
    ) -> None:
        button = build_push_button(text, self, act, "link", name=f"{text}: {row.name}")
        line.addWidget(button)

    def _restore_workspace(self, row: KnownWorkspace) -> None:
        self._run_trash_work(self._restore_and_report(row))

    async def _restore_and_report(self, row: KnownWorkspace) -> None:
        await self._desk.restore_workspace(row.id)
        self._on_restored()  # This is called even if the dialog has been closed.

    def _ask_delete_workspace(self, row: KnownWorkspace) -> None:
        text = tr("All conversations and the entire cache of “{name}” will be deleted. This cannot be undone. The workspace's folder will not be changed.", name=row.name)  # fmt: skip
        delete = partial(self._delete_workspace, row)
        ask_to_confirm(self, tr("Delete workspace"), text, tr("Delete permanently"), delete)

    def _delete_workspace(self, row: KnownWorkspace) -> None:
        self._run_trash_work(self._delete_and_report(row))

    async def _delete_and_report(self, row: KnownWorkspace) -> None:
        await self._desk.delete_workspace(row.id)
        self._on_deleted(row.id)  # This is called even if the dialog has been closed.

    def _run_trash_work(self, work: Coroutine[Any, Any, None]) -> None:
        self._runner.run_in_background(
            work,
            then=lambda _done: self._fetch_trashed_workspaces(),
            failed=self._show_trash_error,
            owner=self,
        )

    def _show_trash_error(self, error: HelixError) -> None:
        self._status_label.setText(translate_sentences(str(error)))
        self._status_label.show()
