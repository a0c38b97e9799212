"""`copy`: lists, merges and discards the copies of the folders that conversations work in."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from helix_desktop.commands import format_local_time, workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_workspace_option,
    add_yes_option,
)
from helix_desktop.commands.workspace_access import (
    find_id_by_prefix,
    print_result,
    run_on_workbench,
    run_on_workspace,
)
from helix_desktop.console import Console
from helix_desktop.errors import format_things

if TYPE_CHECKING:
    from helix_desktop.workbench import Workbench
    from helix_desktop.workbench.copy_files import CopyStatus, FolderCopy


async def _print_copies(bench: Workbench, arguments: Namespace, console: Console) -> int:
    """Lists the copies of the folders in which conversations work, each with what is only in it."""
    status_of_copy = await bench.copies.read_status_of_copies()
    listed: list[dict[str, object]] = []
    lines: list[str] = []
    for copy in await asyncio.to_thread(bench.copies.list_copies):
        status = status_of_copy.get(copy.id)
        if status is None:  # The copy was made since the states were read.
            continue
        listed.append(_describe_copy(bench, copy, status))
        lines.append(await _format_copy_line(bench, copy, status))
    if not listed and not arguments.json:
        await console.print_error("There are no copies of the repository.")
    return await print_result(arguments, console, listed, *lines)


async def _print_copy(bench: Workbench, arguments: Namespace, console: Console) -> int:
    """Prints a copy's folders, the commits that it began from, and what is only in it."""
    copy = await _find_copy(bench, arguments.copy)
    status_of_copy = await bench.copies.read_status_of_copies()
    status = status_of_copy[copy.id]
    lines = [await _format_copy_line(bench, copy, status)]
    for root, path_in_copy in copy.roots:
        lines.append(f"{root}: {copy.folder / path_in_copy}")
    for repository in copy.repositories:
        if repository.base:
            lines.append(f"{repository.source} at {repository.base}")
    for repository in copy.repositories:
        lines += repository.notes
    for name in status.uncommitted:
        lines.append(f"Not committed: {name}")
    for path, others in status.overlaps.items():
        lines.append(f"Also changed in {', '.join(others)}: {path}")
    described_copy = _describe_copy(bench, copy, status)
    return await print_result(arguments, console, described_copy, *lines)


async def _bring_back_into_folder(bench: Workbench, arguments: Namespace, console: Console) -> int:
    """Brings a copy's changes back into the user's own folder, in the way that `--by` names.

    With `discard`, the copy is deleted instead, so what is only in it is shown first and the
    user is asked.
    """
    copy = await _find_copy(bench, arguments.copy)
    if arguments.by == "discard" and not arguments.yes:
        status = await bench.copies.read_copy_status(copy)
        line = await _format_copy_line(bench, copy, status)
        await print_result(arguments, console, _describe_copy(bench, copy, status), line)
        return workspace_access.ASKING
    sentences = await bench.copies.bring_back(
        copy, arguments.by, arguments.message, arguments.conflicts
    )
    result = {"copy": copy.id, "by": arguments.by, "done": sentences}
    return await print_result(arguments, console, result, *sentences)


async def _find_copy(bench: Workbench, id_prefix: str) -> FolderCopy:
    copies = {copy.id: copy for copy in await asyncio.to_thread(bench.copies.list_copies)}
    remedy = "To see all copies, run `copy list`."
    copy_id = find_id_by_prefix(copies, id_prefix, ("copy", "copies"), remedy)
    return copies[copy_id]


def _describe_copy(bench: Workbench, copy: FolderCopy, status: CopyStatus) -> dict[str, object]:
    """Returns a copy as `--json` prints it."""
    title = ""
    row = bench.conversation_row(copy.id)
    if row:
        title = row.title
    repositories: list[dict[str, object]] = []
    for repository in copy.repositories:
        repositories.append(
            {"folder": repository.source, "base": repository.base, "branch": repository.branch}
        )
    described: dict[str, object] = {
        "id": copy.id,
        "conversation": title,
        "folder": str(copy.folder),
        "repositories": repositories,
        "created": copy.created,
        "whole": copy.is_whole,
    }
    return described | asdict(status)


async def _format_copy_line(bench: Workbench, copy: FolderCopy, status: CopyStatus) -> str:
    line = f"{copy.id}  {format_local_time(copy.created)}  {status.bytes / 1e6:,.1f} MB  "
    if copy.label:
        line += f"copy of {copy.label}: "
    line += await _describe_state_of_copy(bench, copy, status)
    if status.overlaps:
        overlaps = format_things(len(status.overlaps), "file", "files")
        line += f", {overlaps} also changed in other copies"
    return line


async def _describe_state_of_copy(bench: Workbench, copy: FolderCopy, status: CopyStatus) -> str:
    """Says what of a copy is nowhere else: files without a commit, commits, and files that the
    last bring-back has left.
    """
    if status.problem:
        return status.problem
    if not copy.is_whole:
        return "incomplete: the copy was never finished, and no work was done in it"
    files = format_things(len(status.uncommitted), "file", "files")
    commits = format_things(status.commits, "commit", "commits")
    state = f"{files} not committed, {commits} of its own"
    if copy.brought:
        left = await bench.copies.list_files_not_brought_back(copy)
        state = f"{format_things(len(left), 'file', 'files')} not brought back, {state}"
    return state


def add_copy_commands(nouns: Subparsers) -> None:
    """Declares `copy` and its verbs."""
    noun = add_command(
        nouns,
        "copy",
        "list the repository copies that agents work in, and bring back their changes",
    )
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_copy_list(verbs)
    _add_copy_show(verbs)
    _add_copy_bring_back(verbs)


def _add_copy_list(verbs: Subparsers) -> None:
    """Declares `copy list`."""
    command = add_command(
        verbs,
        "list",
        "list the copies of the repository, with the size and age of each copy and the changes that exist only in it",
    )
    add_workspace_option(command)
    add_json_option(command)
    command.set_defaults(
        run=run_on_workspace, work=partial(run_on_workbench, _print_copies), counts=False
    )


def _add_copy_show(verbs: Subparsers) -> None:
    """Declares `copy show`."""
    command = add_command(
        verbs, "show", "show the changes that exist only in a copy of the repository"
    )
    add_workspace_option(command)
    command.add_argument(
        "copy",
        metavar="COPY",
        help="the ID of the copy or of its conversation, or the first part of it",
    )
    add_json_option(command)
    command.set_defaults(
        run=run_on_workspace, work=partial(run_on_workbench, _print_copy), counts=False
    )


def _add_copy_bring_back(verbs: Subparsers) -> None:
    """Declares `copy bring-back`."""
    command = add_command(
        verbs,
        "bring-back",
        "bring the changes in a copy of the repository back into your own folder",
    )
    add_workspace_option(command)
    command.add_argument(
        "copy",
        metavar="COPY",
        help="the ID of the copy or of its conversation, or the first part of it",
    )
    command.add_argument(
        "--by",
        choices=["merge", "rebase", "apply", "discard"],
        default="merge",
        help="merge: merge the copy's commits into your branch; rebase: add them on top of your branch; apply: add the copy's changes as uncommitted changes, which can be undone; discard: store the changes in the cache and delete the copy (default: merge)",
    )
    command.add_argument(
        "--conflicts",
        choices=["leave", "yours", "copy", "markers"],
        default="leave",
        help="for apply: what happens to files that were changed on both sides: leave them for later, keep yours, use the copy's, or add both with conflict markers (default: leave)",
    )
    command.add_argument(
        "--message",
        "-m",
        metavar="TEXT",
        default="",
        help="for merge and rebase: commit the copy's uncommitted changes with this message first",
    )
    add_yes_option(command)
    add_json_option(command)
    command.set_defaults(
        run=run_on_workspace, work=partial(run_on_workbench, _bring_back_into_folder), counts=False
    )
