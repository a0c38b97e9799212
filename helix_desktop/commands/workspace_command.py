"""`workspace`: creates, lists, shows, renames, colours, trashes, restores, exports,
imports and shares workspaces.
"""

import argparse
import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from helix_desktop import running_instance
from helix_desktop.commands import workspace_access
from helix_desktop.commands.cache_command import STANDARD, file_unless_dash
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_workspace_argument,
    add_yes_option,
)
from helix_desktop.commands.sharing_commands import (
    add_workspace_join,
    add_workspace_new_key,
    add_workspace_share,
    add_workspace_status,
    add_workspace_sync,
    add_workspace_unshare,
)
from helix_desktop.commands.workspace_access import print_result, run_on_workspace
from helix_desktop.console import Console, Terminal, print_text
from helix_desktop.engine.hidden_characters import mark_text
from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace, build_roots_of_folder
from helix_desktop.store.imported_proposals import list_imported_questions
from helix_desktop.store.stored_workspace import StoredWorkspace


def _parse_colour(text: str) -> str:
    if not re.fullmatch(r"#[0-9A-Fa-f]{6}", text):
        raise argparse.ArgumentTypeError(f"{text} is not a color such as #7aa2f7")
    return text


def _run_export(arguments: Namespace) -> int:
    target = file_unless_dash(arguments.file)
    if target is not None and target.is_file():
        print_text(f"{target} already exists.", file=sys.stderr)
        if not workspace_access.is_confirmed(arguments):
            return 1
    return workspace_access.run_on_workspace(arguments, target=target)


# --- Commands that work without opening a workspace ---


async def run_new_workspace_command(arguments: Namespace) -> int:
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    workspaces.check_usable_by_tools(arguments.folder)
    created = workspaces.create_stored_workspace(arguments.name, arguments.folder)
    return await _print_workspace(arguments, created, Terminal())


async def print_workspace_list(arguments: Namespace) -> int:
    """Lists the workspaces, or those in the trash."""
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    listed: list[dict[str, Any]] = []
    lines: list[str] = []
    for known in workspaces.list_workspaces(trashed=arguments.trash):
        listed.append(_workspace_as_json(known))
        roots = ", ".join(known.settings.roots)
        line = f"{known.id:<24}  {known.name:<24}  {roots}  {known.mistake}".rstrip()
        lines.append(line.replace("\n", "\\n"))  # A folder's name can hold a line end.
    if not lines:
        lines.append("There are no workspaces.")
    return await print_result(arguments, Terminal(), listed, *lines)


async def _trash_or_restore_workspace(arguments: Namespace) -> int:
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    if arguments.restores:
        known = workspaces.restore_workspace(arguments.workspace)
    else:
        known = workspaces.trash_workspace(arguments.workspace)
    return await _print_workspace(arguments, known, Terminal())


async def run_import_workspace(arguments: Namespace) -> int:
    """Makes a workspace of an exported file, and says what the file asks for or could not
    bring.

    Settings that could harm the user, such as permissions, are only proposed: the window asks
    about them.
    """
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    roots: tuple[str, ...] = ()
    if arguments.folder is not None:
        workspaces.check_usable_by_tools(arguments.folder)
        roots = build_roots_of_folder(arguments.folder)
    imported = await workspaces.import_workspace(arguments.file, name=arguments.name)
    known: KnownWorkspace = imported
    if roots:
        known = workspaces.change_roots(imported.id, roots)
    questions = list_imported_questions(known.settings.proposed)
    if questions:
        sentence = "The file asks for these settings. To agree, open the workspace in the window:"
        print_text(sentence, file=sys.stderr)
    for question in questions:
        print_text(f"\n{mark_text(question.text)}", file=sys.stderr)
    for sentence in imported.left_out:
        print_text(sentence, file=sys.stderr)
    return await _print_workspace(arguments, known, Terminal())


async def _print_workspace(arguments: Namespace, known: KnownWorkspace, console: Console) -> int:
    all_workspaces = AllWorkspaces(known.folder.parent).list_workspaces()
    same_name = [workspace for workspace in all_workspaces if workspace.name == known.name]
    if len(same_name) > 1:
        await console.print_error(
            f"{len(same_name)} workspaces are called {known.name}. Use the ID {known.id}."
        )
    return await print_result(arguments, console, _workspace_as_json(known), known.id)


def _workspace_as_json(known: KnownWorkspace) -> dict[str, Any]:
    """Returns a workspace as `--json` prints it."""
    return {
        "id": known.id,
        "name": known.name,
        "colour": known.settings.colour,
        "roots": list(known.settings.roots),
        "folder": str(known.folder),
        "trashed": known.trashed,
        "mistake": known.mistake,
    }


async def _run_workspace_change(arguments: Namespace) -> int:
    """Changes the workspace through the process that has it open, or else directly in its file."""
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    console = Terminal()
    known = workspaces.find_known_workspace(arguments.workspace)
    wire = await running_instance.connect_to_owner(arguments.places.run, known.id)
    if wire is not None:
        return await running_instance.run_at_owner(wire, arguments.argv, console)
    if arguments.setting == "name":
        changed = workspaces.rename_workspace(known.id, arguments.name)
    else:
        changed = workspaces.recolour_workspace(known.id, arguments.colour)
    return await _print_workspace(arguments, changed, console)


async def change_open_workspace_setting(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    value = getattr(arguments, arguments.setting)
    settings = workspace.change_settings({arguments.setting: value})
    changed = KnownWorkspace(workspace.id, workspace.folder, settings)
    return await _print_workspace(arguments, changed, console)


async def print_workspace_details(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Prints where a workspace is and how much is in it."""
    conversations = await workspace.journal.list_conversations()
    await workspace_access.wait_for_index(workspace, console)
    stored = await workspace.index.compute_figures()
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
    lines: list[str] = []
    for name, figure in figures.items():
        shown_name = name.replace("_", " ")
        shown_figure = _format_figure(figure)
        lines.append(f"{shown_name:<16}{shown_figure}")
    return await print_result(arguments, console, figures, *lines)


def _format_figure(figure: object) -> str:
    if isinstance(figure, int):
        return f"{figure:,}"
    if isinstance(figure, list):
        return ", ".join(figure)
    return str(figure)


async def export_workspace_file(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Writes the whole workspace to a file or to standard output, piece by piece. Entries of
    the cache that are damaged are left out, and it is said which.
    """
    size = 0
    damaged: list[str] = []
    async for piece in workspace.export_pieces(damaged):
        size += len(piece)
        await console.write_output(piece)
    if arguments.file != STANDARD:  # Standard output must contain nothing but the export.
        line = f"{workspace.name} was written to {arguments.file} ({size:,} bytes)."
        result = {"file": str(arguments.file), "bytes": size, "damaged": damaged}
        await print_result(arguments, console, result, line)
    if damaged:
        names = ", ".join(name[:16] for name in damaged[:5])
        if len(damaged) > 5:
            names += ", …"
        await console.print_error(
            f"{len(damaged):,} damaged entries were left out ({names}). Everything else is in the file."
        )
    return 0


async def empty_workspace_trash(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    trashed = [row.id for row in await workspace.journal.list_conversations() if row.trashed]
    return await workspace_access.delete_if_confirmed(arguments, workspace, console, trashed)


def add_workspace_commands(nouns: Subparsers) -> None:
    """Declares `workspace` and its verbs."""
    noun = add_command(nouns, "workspace", "create, share, back up and delete workspaces")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_workspace_new(verbs)
    _add_workspace_list(verbs)
    _add_workspace_show(verbs)
    _add_workspace_rename(verbs)
    _add_workspace_colour(verbs)
    _add_workspace_trash(verbs)
    _add_workspace_restore(verbs)
    _add_workspace_export(verbs)
    _add_workspace_empty_trash(verbs)
    add_workspace_share(verbs)
    add_workspace_new_key(verbs)
    add_workspace_join(verbs)
    add_workspace_sync(verbs)
    add_workspace_status(verbs)
    add_workspace_unshare(verbs)
    _add_workspace_import(verbs)


def _add_workspace_new(verbs: Subparsers) -> None:
    command = add_command(verbs, "new", "create a workspace for a folder")
    command.add_argument("name", metavar="NAME", help="")
    command.add_argument("--folder", metavar="DIR", type=Path, default="", required=True)
    add_json_option(command)
    command.set_defaults(run=run_new_workspace_command)


def _add_workspace_list(verbs: Subparsers) -> None:
    command = add_command(verbs, "list", "list all workspaces")
    command.add_argument(
        "--trash", action="store_true", help="list workspaces in the trash instead"
    )
    add_json_option(command)
    command.set_defaults(run=print_workspace_list)


def _add_workspace_show(verbs: Subparsers) -> None:
    command = add_command(verbs, "show", "show details of a workspace")
    add_workspace_argument(command)
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=print_workspace_details, reads=True)


def _add_workspace_rename(verbs: Subparsers) -> None:
    command = add_command(verbs, "rename", "rename a workspace")
    add_workspace_argument(command)
    command.add_argument("name", metavar="NAME", help="")
    add_json_option(command)
    command.set_defaults(
        run=_run_workspace_change, work=change_open_workspace_setting, setting="name"
    )


def _add_workspace_colour(verbs: Subparsers) -> None:
    command = add_command(verbs, "colour", "change the color of a workspace")
    add_workspace_argument(command)
    command.add_argument("colour", metavar="#RRGGBB", type=_parse_colour)
    add_json_option(command)
    command.set_defaults(
        run=_run_workspace_change, work=change_open_workspace_setting, setting="colour"
    )


def _add_workspace_trash(verbs: Subparsers) -> None:
    command = add_command(verbs, "trash", "move a workspace to the trash")
    add_workspace_argument(command)
    add_json_option(command)
    command.set_defaults(run=_trash_or_restore_workspace, restores=False)


def _add_workspace_restore(verbs: Subparsers) -> None:
    command = add_command(verbs, "restore", "restore a workspace from the trash")
    add_workspace_argument(command)
    add_json_option(command)
    command.set_defaults(run=_trash_or_restore_workspace, restores=True)


def _add_workspace_export(verbs: Subparsers) -> None:
    command = add_command(
        verbs, "export", "write the workspace's history and cache to one file, without keys"
    )
    add_workspace_argument(command)
    command.add_argument("file", metavar="FILE", type=Path, help="a file, or - for standard output")
    add_yes_option(command)
    add_json_option(command)
    command.set_defaults(run=_run_export, work=export_workspace_file, reads=True)


def _add_workspace_empty_trash(verbs: Subparsers) -> None:
    command = add_command(
        verbs, "empty-trash", "permanently remove the conversations in a workspace's trash"
    )
    add_workspace_argument(command)
    add_yes_option(command)
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=empty_workspace_trash)


def _add_workspace_import(verbs: Subparsers) -> None:
    """Declares `workspace import`."""
    command = add_command(verbs, "import", "create a workspace from an exported file")
    command.add_argument("file", metavar="FILE", type=Path)
    command.add_argument(
        "--name",
        metavar="NAME",
        default="",
        help="a name for the workspace (default: the exported name)",
    )
    command.add_argument(
        "--folder",
        metavar="DIR",
        type=Path,
        default=None,
        help="the folder to work in (default: none)",
    )
    add_json_option(command)
    command.set_defaults(run=run_import_workspace)
