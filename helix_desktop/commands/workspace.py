"""`workspace`: make, list, show, rename, colour, trash, restore, export, import, empty the trash of its conversations; share, join."""

from __future__ import annotations

import argparse
import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix_desktop import places
from helix_desktop.commands import as_json, on_workspace, open_workspace, sharing
from helix_desktop.commands.open_workspace import ASKING, agreed, say_json
from helix_desktop.console import Console, Terminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from helix_desktop.commands import Subparsers
    from helix_desktop.store.workspace import Workspace
    from helix_desktop.store.workspaces import Known, Workspaces


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("workspace", help="create, share, back up and delete workspaces")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    one = _verb(verbs, "new", "create a workspace for a folder", new)
    one.add_argument("name", metavar="NAME")
    one.add_argument("--folder", type=Path, required=True, metavar="DIR")
    one = _verb(verbs, "list", "list all workspaces", list_all)
    one.add_argument("--trash", action="store_true", help="list workspaces in the trash instead")
    one = _verb(verbs, "show", "show details of a workspace", open_workspace.run)
    on_workspace(one, positional=True)
    one.set_defaults(work=show, reads=True)
    one = _verb(verbs, "rename", "rename a workspace", _changing)
    on_workspace(one, positional=True)
    one.add_argument("name", metavar="NAME")
    one.set_defaults(work=rename)
    one = _verb(verbs, "colour", "change the colour of a workspace", _changing)
    on_workspace(one, positional=True)
    one.add_argument("colour", metavar="#RRGGBB")
    one.set_defaults(work=colour)
    on_workspace(_verb(verbs, "trash", "move a workspace to the trash", trash), positional=True)
    on_workspace(_verb(verbs, "restore", "restore a workspace from the trash", restore), positional=True)
    one = _verb(
        verbs, "export", "write the workspace's history and cache to one file, without keys", open_workspace.run
    )
    on_workspace(one, positional=True)
    one.add_argument("file", type=Path, metavar="FILE")
    one.set_defaults(
        work=export, reads=True, run=lambda arguments: open_workspace.run(arguments, target=arguments.file)
    )
    one = _verb(verbs, "empty-trash", "permanently remove the conversations in a workspace's trash", _emptying)
    on_workspace(one, positional=True)
    one.add_argument(
        "--yes",
        action="store_true",
        help="do not ask for confirmation (by default, show what would be removed, and ask if there is a terminal)",
    )
    one.set_defaults(work=empty_trash)
    sharing.add(verbs)
    one = _verb(verbs, "import", "create a workspace from an exported file", import_file)
    one.add_argument("file", type=Path, metavar="FILE")
    one.add_argument("--name", default="", help="a name for the workspace (default: the exported name)")


def _verb(
    verbs: Subparsers, name: str, sentence: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    one = verbs.add_parser(name, help=sentence, description=f"{sentence[:1].upper()}{sentence[1:]}.")
    as_json(one)
    one.set_defaults(run=run)
    return one


# --- those that need no open workspace ------------------------------------------------------------------------------


def new(arguments: argparse.Namespace) -> int:
    return _say_known(arguments, _workspaces(arguments).create(arguments.name, arguments.folder))


def list_all(arguments: argparse.Namespace) -> int:
    known = _workspaces(arguments).list(trashed=arguments.trash)
    if arguments.json:
        return _say(lambda console: say_json(console, [_described(one) for one in known]))
    lines = [f"{one.id:<24}  {one.name:<24}  {', '.join(one.settings.roots)}  {one.mistake}".rstrip() for one in known]
    return _say(lambda console: console.say("\n".join(lines) or "There are no workspaces."))


def trash(arguments: argparse.Namespace) -> int:
    return _say_known(arguments, _workspaces(arguments).trash(arguments.workspace))


def restore(arguments: argparse.Namespace) -> int:
    return _say_known(arguments, _workspaces(arguments).restore(arguments.workspace))


def import_file(arguments: argparse.Namespace) -> int:
    workspaces = _workspaces(arguments)
    known = asyncio.run(workspaces.import_(arguments.file, name=arguments.name))
    notes = known.folder / "notes.txt"
    if notes.exists():  # what could not be taken over
        print(notes.read_text(encoding="utf-8").rstrip(), file=sys.stderr)
    return _say_known(arguments, known)


def _workspaces(arguments: argparse.Namespace) -> Workspaces:
    return open_workspace.all_of(places.find(arguments.home))


def _say(saying: Callable[[Console], Awaitable[None]]) -> int:
    async def said() -> None:
        await saying(Terminal())

    asyncio.run(said())
    return 0


def _say_known(arguments: argparse.Namespace, known: Known) -> int:
    return _say(partial(_tell, arguments, known))


async def _tell(arguments: argparse.Namespace, known: Known, console: Console) -> None:
    if arguments.json:
        await say_json(console, _described(known))
    else:
        await console.say(known.id)


def _described(known: Known) -> dict[str, Any]:
    settings = known.settings
    described = {"id": known.id, "name": known.name, "colour": settings.colour, "roots": list(settings.roots)}
    return described | {"folder": str(known.folder), "trashed": known.trashed, "mistake": known.mistake}


# --- those that change one, which may be open beside -----------------------------------------------------------------


def _changing(arguments: argparse.Namespace) -> int:
    """Through the program that has it open, so that it knows; else in the file, without opening the stores."""
    return asyncio.run(_changed(arguments))


async def _changed(arguments: argparse.Namespace) -> int:
    from helix_desktop import instance

    workspaces, console = _workspaces(arguments), Terminal()
    known = workspaces.find(arguments.workspace)
    if (wire := await instance.reach(places.find(arguments.home).run, known.id)) is not None:
        return await instance.hand_over(wire, arguments.argv, console)
    if arguments.work is rename:
        known = workspaces.rename(known.id, arguments.name)
    else:
        known = workspaces.recolour(known.id, arguments.colour)
    await _tell(arguments, known, console)
    return 0


async def rename(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    return await _change(arguments, workspace, console, {"name": arguments.name})


async def colour(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    return await _change(arguments, workspace, console, {"colour": arguments.colour})


async def _change(
    arguments: argparse.Namespace, workspace: Workspace, console: Console, changes: dict[str, str]
) -> int:
    from helix_desktop.store.workspaces import Known

    await _tell(arguments, Known(workspace.id, workspace.folder, workspace.change(changes)), console)
    return 0


# --- those that need it open ----------------------------------------------------------------------------------------


async def show(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    conversations = await workspace.journal.conversations()
    await open_workspace.caught_up(workspace, console)
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
        await say_json(console, figures)
        return 0
    for name, figure in figures.items():
        text = f"{figure:,}" if isinstance(figure, int) else ", ".join(figure) if isinstance(figure, list) else figure
        await console.say(f"{name.replace('_', ' '):<16}{text}")
    return 0


async def export(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    size = 0
    damaged: list[str] = []
    async for piece in workspace.export(damaged):
        size += len(piece)
        await console.write(piece)
    if arguments.json:
        await say_json(console, {"file": str(arguments.file), "bytes": size, "damaged": damaged})
    if damaged:
        names = ", ".join(name[:16] for name in damaged[:5]) + (", …" if len(damaged) > 5 else "")
        await console.complain(
            f"{len(damaged):,} damaged entries were left out ({names}). Everything else is in the file."
        )
    return 0


def _emptying(arguments: argparse.Namespace) -> int:
    """Ask first, here: who has the workspace open must not wait for a person."""
    code = open_workspace.run(arguments)
    if code != ASKING:
        return code
    if arguments.json or not agreed("Delete them permanently? [y/N] "):
        return 1
    arguments.yes, arguments.argv = True, [*arguments.argv, "--yes"]
    return open_workspace.run(arguments)


async def empty_trash(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    trashed = [row for row in await workspace.journal.conversations() if row.trashed]
    if not arguments.yes and trashed:
        if arguments.json:
            await say_json(console, {"would_remove": [row.id for row in trashed]})
        else:
            await console.say("\n".join(f"{row.id}  {row.title or row.begins}" for row in trashed))
        await console.complain(
            "Nothing was removed. Add --yes to delete these conversations permanently, also from the backups."
        )
        return ASKING
    from helix_desktop import workbench

    bench = workbench.of(workspace)
    emptied = await (workspace.empty_trash() if bench is None else bench.empty_trash())
    if arguments.json:
        figures = {"conversations": emptied.conversations, "entries": emptied.entries, "bytes": emptied.bytes}
        await say_json(console, figures)
    else:
        count = f"{len(emptied.conversations):,}"
        await console.say(f"Removed {count} conversations and {emptied.entries:,} entries ({emptied.bytes:,} bytes).")
    return 0
