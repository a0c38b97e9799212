"""Reverts files that other programs run later if a command changed them, then asks the
user whether to keep them.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from helix_desktop.engine.changes.git_patch import format_unified_diff
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools import file_text
from helix_desktop.tools.autorun_guard import AutorunChange, AutorunFiles, AutorunGuard
from helix_desktop.tools.built_in_tool import ToolResources
from helix_desktop.tools.file_tools import printable_name

AUTORUN_PERMISSION = "runs_later"
_MOST_NAMED = 20


@dataclass(slots=True)
class CommandCheck:
    """`open_question` is cancelled when the turn stops. `is_in_background`: the sandbox
    protects existing files, so the user must have changed these. `kept`: changes the
    user has allowed commands to keep.
    """

    guard: AutorunGuard
    before: AutorunFiles
    is_in_background: bool = False
    open_question: asyncio.Task[Any] | None = None
    is_settled: bool = False
    kept: AutorunFiles = field(default_factory=dict)
    begun: int = field(default_factory=time.time_ns)  # In nanoseconds since 1970.

    @classmethod
    async def begin_check(cls, guard: AutorunGuard, *, lasting: bool = False) -> "CommandCheck":
        return cls(guard, await asyncio.to_thread(guard.scan_autorun_files), lasting)

    async def revert_and_ask(self, resources: ToolResources, *, ask: bool) -> str:
        """Revert the command's changes, ask about them, and report the outcome (empty
        without changes).

        They are reverted before the question and made again if the answer is yes, so that
        no other program can run the changed files while the user decides.
        """
        changes = await self._find_changes_to_ask_about()
        if not changes:
            self.is_settled = True
            return ""
        failed_paths = await asyncio.to_thread(self.guard.revert_autorun_changes, changes)
        reverted = [change for change in changes if change.path not in failed_paths]
        shown_changes, paths_too_large = _set_apart_too_large(reverted)
        are_kept = False
        if ask and shown_changes:
            are_kept = await self._ask_to_keep(resources, shown_changes)
        if are_kept:
            await self._keep_changes(shown_changes)
        self.is_settled = True
        outcome = _PUT_BACK
        if are_kept:
            outcome = _KEPT
        shown_paths = [change.path for change in shown_changes]
        report = _describe_check_outcome(resources, outcome, shown_paths)
        report += _describe_check_outcome(resources, _LOST, paths_too_large)
        report += _describe_check_outcome(resources, _NOT_PUT_BACK, failed_paths)
        return report

    async def _keep_changes(self, changes: list[AutorunChange]) -> None:
        for change in changes:
            self.kept[change.path] = replace(change.after, held=None)
        await asyncio.to_thread(self.guard.reapply_autorun_changes, changes)

    async def _find_changes_to_ask_about(self) -> list[AutorunChange]:
        changes = await self._find_changes()
        if self.is_in_background:
            return [change for change in changes if change.path not in self.before]
        return changes

    async def _find_changes(self) -> list[AutorunChange]:
        known_files = self.before | self.kept
        return await asyncio.to_thread(self.guard.find_autorun_changes, known_files, self.begun)

    async def revert_without_asking(self) -> None:
        """Revert the command's changes without asking, because nobody is left to answer."""
        if not self.is_settled:
            changes = await self._find_changes()
            await asyncio.to_thread(self.guard.revert_autorun_changes, changes)
            self.is_settled = True

    def cancel_open_question(self) -> None:
        if self.open_question is not None:
            self.open_question.cancel()

    async def _ask_to_keep(
        self, resources: ToolResources, changes: Sequence[AutorunChange]
    ) -> bool:
        """Ask the user whether a command's changes, which were reverted, are to be made again.
        A question that is taken back counts as no. If the turn ends, so does the question.
        """
        count = len(changes)
        first_path = display_path_or_text(resources, changes[0].path)
        # Whole sentences, so that the window finds them in its table of translations.
        title = f"Keep the command's changes to {first_path}?"
        if count > 1:
            title = f"Keep the command's changes to {count} files?"
        descriptions = [
            _format_autorun_change(display_path_or_text(resources, change.path), change)
            for change in changes
        ]
        reason = "other programs run these files outside the sandbox; the files stay unchanged until you answer"
        question = PermissionQuestion(
            resources.call,
            title,
            "\n".join(descriptions),
            reason,
            ("once",),
            apart=AUTORUN_PERMISSION,
        )
        self.open_question = asyncio.ensure_future(resources.context.ask(question))  # noqa: TID251 -- to end it with the turn
        try:
            answer: PermissionAnswer = await asyncio.shield(self.open_question)
        except (asyncio.CancelledError, HelixError):
            if not self.open_question.done():
                self.open_question.cancel()
                raise
            return False
        return answer.allowed


def display_path_or_text(resources: ToolResources, path: str) -> str:
    try:
        return printable_name(resources.roots.display_path(resources.roots.resolve_path(path)))
    except HelixError:
        return printable_name(path)


def _format_autorun_change(name: str, change: AutorunChange) -> str:
    """Return a change to a file as text for the question: the difference, or a link's new
    target.
    """
    after = change.after
    if after.link:
        return f"{name} → {printable_name(after.link)}"
    if after.content is None:
        return f"{name}: cannot be shown"
    content_before = b""
    if change.before is not None:
        content_before = change.before.content or b""
    before = file_text.decode_file_text(content_before)
    return format_unified_diff(before, file_text.decode_file_text(after.content), name)


_KEPT = "[The user was asked about {}, and keeps what the command did there.]\n"
_PUT_BACK = (
    "[Put back as it was: {}. Other programs run what is in there later. "
    "Change such files with write_file, where the user sees what is changed.]\n"
)
_LOST = "[Put back as it was: {}. Other programs run what is in there later, and it is too large to ask the user about.]\n"
_NOT_PUT_BACK = "[Could not be put back: {}. Other programs run what is in there. Tell the user.]\n"


def _set_apart_too_large(
    changes: Sequence[AutorunChange],
) -> tuple[list[AutorunChange], list[str]]:
    """Return the changes that can be shown, and the paths of the others: what is too large to be
    held in memory cannot be shown, so it cannot be kept either.
    """
    shown_changes: list[AutorunChange] = []
    paths_too_large: list[str] = []
    for change in changes:
        if change.after.is_content_unknown and change.after.held is None:
            paths_too_large.append(change.path)
        else:
            shown_changes.append(change)
    return shown_changes, paths_too_large


def _describe_check_outcome(resources: ToolResources, sentence: str, paths: Sequence[str]) -> str:
    if not paths:
        return ""
    listed_paths = ", ".join(display_path_or_text(resources, path) for path in paths[:_MOST_NAMED])
    if len(paths) > _MOST_NAMED:
        listed_paths = f"{listed_paths} and {len(paths) - _MOST_NAMED} more"
    return sentence.format(listed_paths)
