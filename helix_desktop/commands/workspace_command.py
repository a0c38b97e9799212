"""`workspace`: make, list, show, rename, colour, trash, restore, export, import, empty the trash of its conversations; share, join."""

from __future__ import annotations

import argparse
import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix_desktop import program_folders
from helix_desktop.commands import add_json_option, add_workspace_argument, sharing_commands, workspace_access
from helix_desktop.commands.workspace_access import ASKING, ask_yes_or_no, print_json
from helix_desktop.console import Console, Terminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from helix_desktop.commands import Subparsers
    from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace
    from helix_desktop.store.stored_workspace import StoredWorkspace


def add_workspace_command(nouns: Subparsers) -> None:
    noun = nouns.add_parser("workspace", help="create, share, back up and delete workspaces")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    one = _add_workspace_command_verb(verbs, "new", "create a workspace for a folder", run_new_workspace)
    one.add_argument("name", metavar="NAME")
    one.add_argument("--folder", type=Path, required=True, metavar="DIR")
    one = _add_workspace_command_verb(verbs, "list", "list all workspaces", print_workspace_list)
    one.add_argument("--trash", action="store_true", help="list workspaces in the trash instead")
    one = _add_workspace_command_verb(verbs, "show", "show details of a workspace", workspace_access.run_on_workspace)
    add_workspace_argument(one, positional=True)
    one.set_defaults(work=show_workspace, reads=True)
    one = _add_workspace_command_verb(verbs, "rename", "rename a workspace", _run_workspace_change)
    add_workspace_argument(one, positional=True)
    one.add_argument("name", metavar="NAME")
    one.set_defaults(work=rename_in_file)
    one = _add_workspace_command_verb(verbs, "colour", "change the colour of a workspace", _run_workspace_change)
    add_workspace_argument(one, positional=True)
    one.add_argument("colour", metavar="#RRGGBB")
    one.set_defaults(work=recolour_in_file)
    add_workspace_argument(
        _add_workspace_command_verb(verbs, "trash", "move a workspace to the trash", run_trash_workspace),
        positional=True,
    )
    add_workspace_argument(
        _add_workspace_command_verb(verbs, "restore", "restore a workspace from the trash", run_restore_workspace),
        positional=True,
    )
    one = _add_workspace_command_verb(
        verbs,
        "export",
        "write the workspace's history and cache to one file, without keys",
        workspace_access.run_on_workspace,
    )
    add_workspace_argument(one, positional=True)
    one.add_argument("file", type=Path, metavar="FILE")
    one.set_defaults(
        work=export_workspace_file,
        reads=True,
        run=lambda arguments: workspace_access.run_on_workspace(arguments, target=arguments.file),
    )
    one = _add_workspace_command_verb(
        verbs, "empty-trash", "permanently remove the conversations in a workspace's trash", _run_empty_trash
    )
    add_workspace_argument(one, positional=True)
    one.add_argument(
        "--yes",
        action="store_true",
        help="do not ask for confirmation (by default, show what would be removed, and ask if there is a terminal)",
    )
    one.set_defaults(work=empty_workspace_trash)
    sharing_commands.add_sharing_commands(verbs)
    one = _add_workspace_command_verb(verbs, "import", "create a workspace from an exported file", run_import_workspace)
    one.add_argument("file", type=Path, metavar="FILE")
    one.add_argument("--name", default="", help="a name for the workspace (default: the exported name)")


def _add_workspace_command_verb(
    verbs: Subparsers, name: str, sentence: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    one = verbs.add_parser(name, help=sentence, description=f"{sentence[:1].upper()}{sentence[1:]}.")
    add_json_option(one)
    one.set_defaults(run=run)
    return one


# --- those that need no open workspace ------------------------------------------------------------------------------


def run_new_workspace(arguments: argparse.Namespace) -> int:
    return _print_known_workspace(
        arguments, _workspaces_of_home(arguments).create_stored_workspace(arguments.name, arguments.folder)
    )


def print_workspace_list(arguments: argparse.Namespace) -> int:
    known = _workspaces_of_home(arguments).list_workspaces(trashed=arguments.trash)
    if arguments.json:
        return _print_with_terminal(lambda console: print_json(console, [_workspace_as_json(one) for one in known]))
    lines = [f"{one.id:<24}  {one.name:<24}  {', '.join(one.settings.roots)}  {one.mistake}".rstrip() for one in known]
    return _print_with_terminal(lambda console: console.print_line("\n".join(lines) or "There are no workspaces."))


def run_trash_workspace(arguments: argparse.Namespace) -> int:
    return _print_known_workspace(arguments, _workspaces_of_home(arguments).trash_workspace(arguments.workspace))


def run_restore_workspace(arguments: argparse.Namespace) -> int:
    return _print_known_workspace(arguments, _workspaces_of_home(arguments).restore_workspace(arguments.workspace))


def run_import_workspace(arguments: argparse.Namespace) -> int:
    workspaces = _workspaces_of_home(arguments)
    known = asyncio.run(workspaces.import_workspace(arguments.file, name=arguments.name))
    notes = known.folder / "notes.txt"
    if notes.exists():  # The file lists what could not be migrated.
        print(notes.read_text(encoding="utf-8").rstrip(), file=sys.stderr)
    return _print_known_workspace(arguments, known)


def _workspaces_of_home(arguments: argparse.Namespace) -> AllWorkspaces:
    return workspace_access.open_all_workspaces(program_folders.find_program_folders(arguments.home))


def _print_with_terminal(saying: Callable[[Console], Awaitable[None]]) -> int:
    async def print_and_flush() -> None:
        await saying(Terminal())

    asyncio.run(print_and_flush())
    return 0


def _print_known_workspace(arguments: argparse.Namespace, known: KnownWorkspace) -> int:
    return _print_with_terminal(partial(_print_workspace, arguments, known))


async def _print_workspace(arguments: argparse.Namespace, known: KnownWorkspace, console: Console) -> None:
    if arguments.json:
        await print_json(console, _workspace_as_json(known))
    else:
        await console.print_line(known.id)


def _workspace_as_json(known: KnownWorkspace) -> dict[str, Any]:
    settings = known.settings
    described = {"id": known.id, "name": known.name, "colour": settings.colour, "roots": list(settings.roots)}
    return described | {"folder": str(known.folder), "trashed": known.trashed, "mistake": known.mistake}


def _run_workspace_change(arguments: argparse.Namespace) -> int:
    """Changes the workspace through the process that has it open, or else directly in its file."""
    return asyncio.run(_change_closed_workspace(arguments))


async def _change_closed_workspace(arguments: argparse.Namespace) -> int:
    from helix_desktop import running_instance

    workspaces, console = _workspaces_of_home(arguments), Terminal()
    known = workspaces.find_known_workspace(arguments.workspace)
    if (
        wire := await running_instance.connect_to_owner(
            program_folders.find_program_folders(arguments.home).run, known.id
        )
    ) is not None:
        return await running_instance.run_at_owner(wire, arguments.argv, console)
    if arguments.work is rename_in_file:
        known = workspaces.rename_workspace(known.id, arguments.name)
    else:
        known = workspaces.recolour_workspace(known.id, arguments.colour)
    await _print_workspace(arguments, known, console)
    return 0


async def rename_in_file(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    return await _change_open_workspace(arguments, workspace, console, {"name": arguments.name})


async def recolour_in_file(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    return await _change_open_workspace(arguments, workspace, console, {"colour": arguments.colour})


async def _change_open_workspace(
    arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console, changes: dict[str, str]
) -> int:
    from helix_desktop.store.all_workspaces import KnownWorkspace

    await _print_workspace(
        arguments, KnownWorkspace(workspace.id, workspace.folder, workspace.change_settings(changes)), console
    )
    return 0


async def show_workspace(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    conversations = await workspace.journal.list_conversations()
    await workspace_access.wait_for_index(workspace, console)
    stored = await workspace.index.stats()
    figures = {
        "id": workspace.id,
        "name": workspace.name,
        "colour": workspace.settings.colour,
        "roots": list(workspace.settings.roots),
        "folder": str(workspace.folder),
        "conversations": len(conversations),
        "entries": stored.entries,
        "bytes": stored.size,
        "on_disk": stored.kept,
    }
    if arguments.json:
        await print_json(console, figures)
        return 0
    for name, figure in figures.items():
        text = f"{figure:,}" if isinstance(figure, int) else ", ".join(figure) if isinstance(figure, list) else figure
        await console.print_line(f"{name.replace('_', ' '):<16}{text}")
    return 0


async def export_workspace_file(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    size = 0
    damaged: list[str] = []
    async for piece in workspace.export_pieces(damaged):
        size += len(piece)
        await console.write_output(piece)
    if arguments.json:
        await print_json(console, {"file": str(arguments.file), "bytes": size, "damaged": damaged})
    if damaged:
        names = ", ".join(name[:16] for name in damaged[:5]) + (", …" if len(damaged) > 5 else "")
        await console.print_error(
            f"{len(damaged):,} damaged entries were left out ({names}). Everything else is in the file."
        )
    return 0


def _run_empty_trash(arguments: argparse.Namespace) -> int:
    """Asks here before emptying the trash, so that the process that has the workspace open never waits for a person."""
    code = workspace_access.run_on_workspace(arguments)
    if code != ASKING:
        return code
    if arguments.json or not ask_yes_or_no("Delete them permanently? [y/N] "):
        return 1
    arguments.yes, arguments.argv = True, [*arguments.argv, "--yes"]
    return workspace_access.run_on_workspace(arguments)


async def empty_workspace_trash(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    trashed = [row for row in await workspace.journal.list_conversations() if row.trashed]
    if not arguments.yes and trashed:
        if arguments.json:
            await print_json(console, {"would_remove": [row.id for row in trashed]})
        else:
            await console.print_line("\n".join(f"{row.id}  {row.title or row.begins}" for row in trashed))
        await console.print_error(
            "Nothing was removed. Add --yes to delete these conversations permanently, also from the backups."
        )
        return ASKING
    from helix_desktop import workbench

    bench = workbench.workbench_of(workspace)
    emptied = await (workspace.delete_trashed_conversations() if bench is None else bench.empty_conversation_trash())
    if arguments.json:
        figures = {"conversations": emptied.conversations, "entries": emptied.entries, "bytes": emptied.bytes}
        await print_json(console, figures)
    else:
        count = f"{len(emptied.conversations):,}"
        await console.print_line(
            f"Removed {count} conversations and {emptied.entries:,} entries ({emptied.bytes:,} bytes)."
        )
    return 0
