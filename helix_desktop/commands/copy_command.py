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
    contents = await bench.copies.read_status_of_copies()
    found = [
        copy for copy in await asyncio.to_thread(bench.copies.list_copies) if copy.id in contents
    ]
    told = [_describe_copy(bench, copy, contents[copy.id]) for copy in found]
    lines = [await _format_copy_line(bench, each, contents[each.id]) for each in found]
    return await print_result(arguments, console, told, *lines)


async def _print_copy(bench: Workbench, arguments: Namespace, console: Console) -> int:
    copy = await _find_copy(bench, arguments.copy)
    found = (await bench.copies.read_status_of_copies())[copy.id]
    lines = [f"{root}: {copy.folder / inside}" for root, inside in copy.roots]
    lines += [f"{made.source} at {made.base}" for made in copy.repositories if made.base]
    lines += [note for made in copy.repositories for note in made.notes]
    lines += [f"Not committed: {name}" for name in found.uncommitted]
    lines += [
        f"Also changed in {', '.join(others)}: {path}" for path, others in found.overlaps.items()
    ]
    lines = [await _format_copy_line(bench, copy, found), *lines]
    return await print_result(arguments, console, _describe_copy(bench, copy, found), *lines)


async def _bring_back_into_folder(bench: Workbench, arguments: Namespace, console: Console) -> int:
    copy = await _find_copy(bench, arguments.copy)
    if arguments.by == "discard" and not arguments.yes:
        found = await bench.copies.read_copy_status(copy)
        line = await _format_copy_line(bench, copy, found)
        await print_result(arguments, console, _describe_copy(bench, copy, found), line)
        return workspace_access.ASKING
    said = await bench.copies.bring_back(copy, arguments.by, arguments.message, arguments.conflicts)
    return await print_result(
        arguments, console, {"copy": copy.id, "by": arguments.by, "done": said}, *said
    )


async def _find_copy(bench: Workbench, id_prefix: str) -> FolderCopy:
    copies = {copy.id: copy for copy in await asyncio.to_thread(bench.copies.list_copies)}
    return copies[
        find_id_by_prefix(
            copies, id_prefix, ("copy", "copies"), "To see all copies, run `copy list`."
        )
    ]


def _describe_copy(bench: Workbench, copy: FolderCopy, found: CopyStatus) -> dict[str, object]:
    row = bench.conversation_row(copy.id)
    made = [
        {"folder": each.source, "base": each.base, "branch": each.branch}
        for each in copy.repositories
    ]
    about = {
        "id": copy.id,
        "conversation": row.title if row else "",
        "folder": str(copy.folder),
        "repositories": made,
    }
    return {**about, "created": copy.created, "whole": copy.is_whole, **asdict(found)}


async def _format_copy_line(bench: Workbench, copy: FolderCopy, found: CopyStatus) -> str:
    files, overlaps = (
        format_things(len(some), "file", "files") for some in (found.uncommitted, found.overlaps)
    )
    if copy.brought and not found.problem:
        left = await bench.copies.list_files_not_brought_back(copy)
        files = f"{format_things(len(left), 'file', 'files')} not brought back, {files}"
    only = f"{files} not committed, {format_things(found.commits, 'commit', 'commits')} of its own"
    state = found.problem or (
        only
        if copy.is_whole
        else "incomplete: the copy was never finished, and no work was done in it"
    )
    state += f", {overlaps} also changed in other copies" if found.overlaps else ""
    start = f"{copy.id}  {format_local_time(copy.created)}  {found.bytes / 1e6:,.1f} MB"
    return f"{start}  {f'copy of {copy.label}: ' if copy.label else ''}{state}"


def add_copy_commands(nouns: Subparsers) -> None:
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
