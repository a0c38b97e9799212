"""Asks how the copy that a conversation works in is brought back, and brings it back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from PySide6.QtWidgets import QWidget

from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.question_dialogs import ask_to_choose_one, ask_to_confirm
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, format_number, tr
from helix_desktop.gui.workbench_types import FolderCopy, Workbench

MOST_FILES_SHOWN = 10


@dataclass(eq=False)
class CopyBringBack:
    """`done` gets sentences on what was done."""

    window: QWidget
    doing: BackgroundRunner
    bench: Workbench
    row: ConversationListRow
    done: Callable[[Sequence[str]], object]

    def ask_for_way(self) -> None:
        self._run_with_copy(self._find_files_to_name, self._show_ways)

    def _run_with_copy(
        self,
        work: Callable[[FolderCopy], Awaitable[Sequence[Any]]],
        then: Callable[[Sequence[Any]], object],
    ) -> None:
        """Works with the copy, which may be another conversation's if this is a fork or
        a sub-agent's.
        """

        async def find_copy_and_work() -> Sequence[Any]:
            session = await self.bench.open_session(self.row.id)
            copy = await asyncio.to_thread(
                self.bench.copies.find_copy, session.conversation.state.own_copy
            )
            if copy is None:
                return ()
            return await work(copy)

        self.doing.run_in_background(find_copy_and_work(), then=then)

    async def _find_files_to_name(self, copy: FolderCopy) -> Sequence[Sequence[str]]:
        """Finds the files that were not brought back, and those that other copies have
        changed as well.
        """
        status = (await self.bench.copies.read_status_of_copies()).get(copy.id)
        left = await self.bench.copies.list_files_not_brought_back(copy)
        if status is None:
            return left, ()
        return left, list(status.overlaps)

    def _show_ways(self, files: Sequence[Sequence[str]]) -> None:
        ways: list[tuple[str, Callable[[], object]]] = [
            (tr("Merge"), partial(self._bring_back_and_tell, "merge")),
            (tr("Rebase"), partial(self._bring_back_and_tell, "rebase")),
            (tr("Apply as uncommitted changes"), self._apply_or_ask),
            (tr("Discard…"), self._ask_to_discard),
        ]
        title = tr("Bring back the copy of {branch}", branch=self.row.copy)
        ask_to_choose_one(self.window, title, explain_bring_back_ways(*files), "", ways)

    def _bring_back_and_tell(self, way: str, conflicts: str = "leave") -> None:
        self._run_with_copy(
            lambda copy: self.bench.copies.bring_back(copy, way, self.row.title, conflicts),
            self.done,
        )

    def _apply_or_ask(self) -> None:
        def ask_which_version(conflicts: Sequence[str]) -> None:
            if not conflicts:
                self._bring_back_and_tell("apply")
                return
            ways = {
                "yours": tr("Keep mine"),
                "copy": tr("Use the copy's"),
                "markers": tr("Add conflict markers"),
            }
            acts = [
                (words, partial(self._bring_back_and_tell, "apply", way))
                for way, words in ways.items()
            ]
            text = tr("These files were changed both in your folder and in the copy. Which version do you want? All other changes are applied as well, and you can undo this.")  # fmt: skip
            ask_to_choose_one(
                self.window, tr("Conflicts"), f"{text}\n\n{name_first_files(conflicts)}", "", acts
            )

        self._run_with_copy(self.bench.copies.find_conflicts, ask_which_version)

    def _ask_to_discard(self) -> None:
        def ask_about_files(files: Sequence[str]) -> None:
            text = tr("The copy will be deleted. Before that, its changes are stored in the cache.")
            if files:
                text += f"\n\n{tr('Not brought back:')}\n{name_first_files(files)}"
            discard = partial(self._bring_back_and_tell, "discard")
            ask_to_confirm(self.window, tr("Discard the copy"), text, tr("Discard"), discard)

        self._run_with_copy(self.bench.copies.list_files_not_brought_back, ask_about_files)


def explain_bring_back_ways(left: Sequence[str], both: Sequence[str]) -> str:
    """Explains the ways to merge a copy. `left`: its files to bring back; `both`: those
    that other copies have changed, too.
    """
    text = tr("“Merge” and “Rebase” move your branch. Uncommitted files in the copy are committed first, with the conversation's title as the message. “Apply as uncommitted changes” edits your files, and you can undo these edits. Files you have changed are never overwritten.")  # fmt: skip
    if left:
        text += f"\n\n{tr('Not brought back yet:')}\n{name_first_files(left)}"
    if both:
        heading = tr("These files were also changed in other copies:")
        text += f"\n\n{heading}\n{name_first_files(both)}"
    return text


async def find_files_left_in_copies(
    bench: Workbench, rows: Sequence[ConversationListRow]
) -> list[tuple[FolderCopy, Sequence[str]]]:
    """Finds the copies that belong to these conversations, and their files that were
    not brought back.
    """
    left: list[tuple[FolderCopy, Sequence[str]]] = []
    for row in rows:
        copy = await asyncio.to_thread(bench.copies.find_copy, row.id)
        if copy is not None:
            left.append((copy, await bench.copies.list_files_not_brought_back(copy)))
    return left


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
    left = len(paths) - MOST_FILES_SHOWN
    if left > 0:
        lines.append(tr("and {n} more", n=format_number(left)))
    return "\n".join(lines)
