"""Every defect of an open workspace's journal, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from helix_desktop.store.journal_file import find_journal_defects
from helix_desktop.store.stored_workspace import StoredWorkspace


async def find_journal_damage(workspace: StoredWorkspace) -> Sequence[str]:
    journal = workspace.journal
    return await journal._thread.run_work(lambda: tuple(find_journal_defects(journal._file)))
