"""Asks how the copy that a conversation works in is brought back, and brings it back."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtWidgets import QWidget

from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.question_dialogs import DialogChoice, ask_to_choose_one, ask_to_confirm
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, format_number, tr
from helix_desktop.gui.workbench_types import FolderCopy, Workbench

MOST_FILES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class FilesOfCopy:
    """The files that were not brought back, and those that other copies have changed as well."""

    not_brought_back: Sequence[str] = ()
    changed_elsewhere: Sequence[str] = ()


@dataclass(eq=False)
class CopyBringBack:
    """`done` gets sentences on what was done."""

    window: QWidget
    runner: BackgroundRunner
    bench: Workbench
    row: ConversationListRow
    done: Callable[[Sequence[str]], object]

    def ask_for_way(self) -> None:
        self.runner.run_in_background(self._find_files_to_name(), then=self._show_ways)

    async def _find_copy_of_conversation(self) -> FolderCopy | None:
        """Finds the copy, which is another conversation's if this is a fork or a sub-agent's."""
        session = await self.bench.open_session(self.row.id)
        copy_id = session.conversation.state.own_copy
        return await asyncio.to_thread(self.bench.copies.find_copy, copy_id)

    async def _find_files_to_name(self) -> FilesOfCopy:
        copy = await self._find_copy_of_conversation()
        if copy is None:
            return FilesOfCopy()
        not_brought_back = await self.bench.copies.list_files_not_brought_back(copy)
        status_by_copy = await self.bench.copies.read_status_of_copies()
        status = status_by_copy.get(copy.id)
        if status is None:
            return FilesOfCopy(not_brought_back)
        return FilesOfCopy(not_brought_back, list(status.overlaps))

    def _show_ways(self, files: FilesOfCopy) -> None:
        title = tr("Bring back the copy of {branch}", branch=self.row.copy)
        if not files.not_brought_back:
            # Offered again after "Apply", merging would only meet the same changes in the folder.
            discard = DialogChoice(tr("Discard…"), self._ask_to_discard)
            nothing_left = tr("Everything that differs in the copy has been brought back already. You can go on working in it, or discard it.")  # fmt: skip
            ask_to_choose_one(self.window, title, nothing_left, [discard])
            return
        merge = partial(self._bring_back, "merge")
        rebase = partial(self._bring_back, "rebase")
        choices = [
            DialogChoice(tr("Merge"), merge),
            DialogChoice(tr("Rebase"), rebase),
            DialogChoice(tr("Apply as uncommitted changes"), self._apply_or_ask),
            DialogChoice(tr("Discard…"), self._ask_to_discard),
        ]
        explanation = explain_bring_back_ways(files)
        ask_to_choose_one(self.window, title, explanation, choices)

    def _bring_back(self, way: str, conflicts: str = "leave") -> None:
        work = self._bring_back_and_describe(way, conflicts)
        self.runner.run_in_background(work, then=self.done)

    async def _bring_back_and_describe(self, way: str, conflicts: str) -> Sequence[str]:
        copy = await self._find_copy_of_conversation()
        if copy is None:
            return ()
        return await self.bench.copies.bring_back(copy, way, self.row.title, conflicts)

    def _apply_or_ask(self) -> None:
        self.runner.run_in_background(self._find_conflicts(), then=self._apply_or_ask_which_version)

    async def _find_conflicts(self) -> Sequence[str]:
        copy = await self._find_copy_of_conversation()
        if copy is None:
            return ()
        return await self.bench.copies.find_conflicts(copy)

    def _apply_or_ask_which_version(self, conflicts: Sequence[str]) -> None:
        if not conflicts:
            self._bring_back("apply")
            return
        apply = partial(self._bring_back, "apply")
        choices = [
            DialogChoice(tr("Keep mine"), partial(apply, "yours")),
            DialogChoice(tr("Use the copy's"), partial(apply, "copy")),
            DialogChoice(tr("Add conflict markers"), partial(apply, "markers")),
        ]
        question = tr("These files were changed both in your folder and in the copy. Which version do you want? All other changes are applied as well, and you can undo this.")  # fmt: skip
        text = f"{question}\n\n{name_first_files(conflicts)}"
        ask_to_choose_one(self.window, tr("Conflicts"), text, choices)

    def _ask_to_discard(self) -> None:
        search = self._find_files_not_brought_back()
        self.runner.run_in_background(search, then=self._ask_to_discard_files)

    async def _find_files_not_brought_back(self) -> Sequence[str]:
        copy = await self._find_copy_of_conversation()
        if copy is None:
            return ()
        return await self.bench.copies.list_files_not_brought_back(copy)

    def _ask_to_discard_files(self, files: Sequence[str]) -> None:
        text = tr("The copy will be deleted. Before that, its changes are stored in the cache.")
        if files:
            text += f"\n\n{tr('Not brought back:')}\n{name_first_files(files)}"
        discard = partial(self._bring_back, "discard")
        ask_to_confirm(self.window, tr("Discard the copy"), text, tr("Discard"), discard)


def explain_bring_back_ways(files: FilesOfCopy) -> str:
    """Explains the ways to bring back a copy, and names its files."""
    text = tr("“Merge” and “Rebase” move your branch. Uncommitted files in the copy are committed first, with the conversation's title as the message. “Apply as uncommitted changes” edits your files, and you can undo these edits. Files you have changed are never overwritten.")  # fmt: skip
    if files.not_brought_back:
        heading = tr("Not brought back yet:")
        text += f"\n\n{heading}\n{name_first_files(files.not_brought_back)}"
    if files.changed_elsewhere:
        heading = tr("These files were also changed in other copies:")
        text += f"\n\n{heading}\n{name_first_files(files.changed_elsewhere)}"
    return text


@dataclass(frozen=True, slots=True)
class CopyOfConversation:
    """The copy that belongs to a conversation, and its files that were not brought back."""

    copy: FolderCopy
    files_not_brought_back: Sequence[str]


async def find_copies_of_conversations(
    bench: Workbench, rows: Sequence[ConversationListRow]
) -> list[CopyOfConversation]:
    copies: list[CopyOfConversation] = []
    for row in rows:
        copy = await asyncio.to_thread(bench.copies.find_copy, row.id)
        if copy is not None:
            files = await bench.copies.list_files_not_brought_back(copy)
            copies.append(CopyOfConversation(copy, files))
    return copies


def explain_copies_left(copies: int, files: Sequence[str]) -> str:
    """Explains what becomes of the copies of conversations that are deleted, and what
    is only there.
    """
    text = format_count(
        copies,
        "A copy of the repository belongs to it. If you discard the copy, its changes are stored in the cache first. If you keep it, “helix-desktop copy list” shows it.",
        "{n} copies of the repository belong to them. If you discard the copies, their changes are stored in the cache first. If you keep them, “helix-desktop copy list” shows them.",
    )
    if files:
        text += f"\n\n{tr('Not brought back:')}\n{name_first_files(files)}"
    return text


def name_first_files(paths: Sequence[str]) -> str:
    lines = [make_safe_text(path) for path in paths[:MOST_FILES_SHOWN]]
    unnamed_count = len(paths) - MOST_FILES_SHOWN
    if unnamed_count > 0:
        lines.append(tr("and {n} more", n=format_number(unnamed_count)))
    return "\n".join(lines)
