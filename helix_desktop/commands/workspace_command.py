"""`workspace`: creates, lists, shows, renames, colours, trashes, restores, exports,
imports and shares workspaces.
"""

import argparse
import re
import sys
from argparse import Namespace
from typing import Any

from helix_desktop import running_instance
from helix_desktop.commands import workspace_access
from helix_desktop.commands.cache_command import STANDARD, file_unless_dash
from helix_desktop.commands.workspace_access import print_result
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
    known = workspace_access.open_all_workspaces(arguments.places).list_workspaces(
        trashed=arguments.trash
    )
    lines = [
        f"{one.id:<24}  {one.name:<24}  {', '.join(one.settings.roots)}  {one.mistake}".rstrip()
        for one in known
    ]
    lines = [line.replace("\n", "\\n") for line in lines]  # A folder's name can hold a line end.
    told = [_workspace_as_json(one) for one in known]
    return await print_result(
        arguments, Terminal(), told, "\n".join(lines) or "There are no workspaces."
    )


async def _trash_or_restore_workspace(arguments: Namespace) -> int:
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    move = workspaces.restore_workspace if arguments.restores else workspaces.trash_workspace
    return await _print_workspace(arguments, move(arguments.workspace), Terminal())


async def run_import_workspace(arguments: Namespace) -> int:
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    roots: tuple[str, ...] = ()
    if arguments.folder is not None:
        workspaces.check_usable_by_tools(arguments.folder)
        roots = build_roots_of_folder(arguments.folder)
    imported = await workspaces.import_workspace(arguments.file, name=arguments.name)
    known = workspaces.change_roots(imported.id, roots) if roots else imported
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
    named = [
        one
        for one in AllWorkspaces(known.folder.parent).list_workspaces()
        if one.name == known.name
    ]
    if len(named) > 1:
        await console.print_error(
            f"{len(named)} workspaces are called {known.name}. Use the ID {known.id}."
        )
    return await print_result(arguments, console, _workspace_as_json(known), known.id)


def _workspace_as_json(known: KnownWorkspace) -> dict[str, Any]:
    settings = known.settings
    described = {
        "id": known.id,
        "name": known.name,
        "colour": settings.colour,
        "roots": list(settings.roots),
    }
    return described | {
        "folder": str(known.folder),
        "trashed": known.trashed,
        "mistake": known.mistake,
    }


async def _run_workspace_change(arguments: Namespace) -> int:
    """Changes the workspace through the process that has it open, or else directly in its file."""
    workspaces, console = workspace_access.open_all_workspaces(arguments.places), Terminal()
    known = workspaces.find_known_workspace(arguments.workspace)
    if (
        wire := await running_instance.connect_to_owner(arguments.places.run, known.id)
    ) is not None:
        return await running_instance.run_at_owner(wire, arguments.argv, console)
    change = (
        workspaces.rename_workspace
        if arguments.setting == "name"
        else workspaces.recolour_workspace
    )
    return await _print_workspace(
        arguments, change(known.id, getattr(arguments, arguments.setting)), console
    )


async def change_open_workspace_setting(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    settings = workspace.change_settings({arguments.setting: getattr(arguments, arguments.setting)})
    return await _print_workspace(
        arguments, KnownWorkspace(workspace.id, workspace.folder, settings), console
    )


async def print_workspace_details(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
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
    lines = [
        f"{name.replace('_', ' '):<16}{_format_figure(figure)}" for name, figure in figures.items()
    ]
    return await print_result(arguments, console, figures, *lines)


def _format_figure(figure: object) -> str:
    return (
        f"{figure:,}"
        if isinstance(figure, int)
        else ", ".join(figure)
        if isinstance(figure, list)
        else str(figure)
    )


async def export_workspace_file(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    size = 0
    damaged: list[str] = []
    async for piece in workspace.export_pieces(damaged):
        size += len(piece)
        await console.write_output(piece)
    if arguments.file != STANDARD:  # Standard output must contain nothing but the export.
        line = f"{workspace.name} was written to {arguments.file} ({size:,} bytes)."
        await print_result(
            arguments,
            console,
            {"file": str(arguments.file), "bytes": size, "damaged": damaged},
            line,
        )
    if damaged:
        names = ", ".join(name[:16] for name in damaged[:5]) + (", …" if len(damaged) > 5 else "")
        await console.print_error(
            f"{len(damaged):,} damaged entries were left out ({names}). Everything else is in the file."
        )
    return 0


async def empty_workspace_trash(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    trashed = [row.id for row in await workspace.journal.list_conversations() if row.trashed]
    return await workspace_access.delete_if_confirmed(arguments, workspace, console, trashed)


TYPES_OF_COLOUR = {"colour": _parse_colour}
