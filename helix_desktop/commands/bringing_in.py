"""`conversation import`, `find`, `imports` and `undo-import`: histories of other programs."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop.commands import as_json, minute, on_workspace, open_workspace
from helix_desktop.commands.open_workspace import say_json
from helix_desktop.console import Console

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.histories.finding import Found
    from helix_desktop.store.workspace import Workspace
    from helix_desktop.workbench.bring_in import Result

SHOWN = 20  # complaints that are printed
KEYS_SHOWN = 20


def add(verbs: Subparsers) -> None:
    one = _verb(verbs, "import", "import conversations from other programs, except those already imported")
    one.add_argument(
        "paths", metavar="PATH", nargs="*", type=Path, help="a file or a folder (default: everything that `find` lists)"
    )
    one.add_argument(
        "--from", dest="kind", metavar="KIND", default="", help="the program or format, if it can't be detected"
    )
    one.add_argument("--watch", action="store_true", help="keep importing new conversations until you press Ctrl+C")
    one.add_argument(
        "--forget-keys",
        action="store_true",
        help="after the import, permanently remove everything that looks like a key",
    )
    one.set_defaults(run=run_import, work=bring_in, counts=True)
    found = verbs.add_parser("find", help="list conversations from other programs on this computer", description="List conversations from other programs on this computer.")  # fmt: skip
    as_json(found)
    found.set_defaults(run=run_find)
    _verb(verbs, "imports", "list imports, newest first").set_defaults(work=imports)
    back = _verb(verbs, "undo-import", "undo an import and move its conversations to the trash")
    back.add_argument("import_run", metavar="IMPORT", help="the import, as shown by `conversation imports`")
    back.set_defaults(work=undo)


def _verb(verbs: Subparsers, name: str, sentence: str) -> argparse.ArgumentParser:
    one = verbs.add_parser(name, help=sentence, description=f"{sentence[:1].upper()}{sentence[1:]}.")
    on_workspace(one)
    as_json(one)
    one.set_defaults(run=open_workspace.run, counts=False)
    return one


# --- finding --------------------------------------------------------------------------------------------------------


def run_find(arguments: argparse.Namespace) -> int:
    import json

    from helix_desktop.histories import finding

    found = list(finding.find(finding.Places.of_this_user()))
    if arguments.json:
        print(json.dumps({"found": [_as_json(one) for one in found]}, ensure_ascii=False, indent=1))
        return 0
    if not found:
        print("No conversations from other programs were found on this computer.")
        return 0
    for line in _by_folder(found):
        print(line)
    return 0


def _as_json(one: Found) -> dict[str, object]:
    return {**asdict(one), "path": str(one.path)}


def _by_folder(found: Sequence[Found]) -> Sequence[str]:
    """A line for each program and folder, and one for all."""
    from helix_desktop.histories.names import NAMES

    groups: dict[tuple[str, str], list[Found]] = {}
    for one in found:
        groups.setdefault((one.kind, one.folder), []).append(one)
    lines = []
    for (kind, folder), those in sorted(groups.items()):
        count, size = sum(one.conversations for one in those), sum(one.size for one in those)
        days = f"{minute(min(one.first for one in those))[:10]} to {minute(max(one.last for one in those))[:10]}"
        lines.append(
            f"{NAMES.get(kind, kind):<12} {count:>5}  {size / 1e6:>9,.1f} MB  {days}  {folder or '(no folder)'}"
        )
    whole = sum(one.conversations for one in found)
    return [*lines, f"{whole:,} conversations found, {sum(one.size for one in found) / 1e6:,.1f} MB."]


# --- bringing in ----------------------------------------------------------------------------------------------------


def run_import(arguments: argparse.Namespace) -> int:
    """The paths as whoever does the work has to see them: it may be a program in another folder."""
    given = {str(path): str(path.absolute()) for path in arguments.paths}
    if not given and not arguments.watch:
        arguments.paths = _found_files()
        arguments.argv = [*arguments.argv, *map(str, arguments.paths)]
    arguments.argv = [given.get(word, word) for word in arguments.argv]
    arguments.paths = [path.absolute() for path in arguments.paths]
    arguments.lasting = arguments.watch
    return open_workspace.run(arguments)


def _found_files() -> list[Path]:
    from helix_desktop.histories import finding

    return [file for one in finding.find(finding.Places.of_this_user()) for file in finding.belonging(one)]


async def bring_in(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    if arguments.watch:
        return await _watch(arguments, workspace, console)
    await _tell(arguments, workspace, await _one(arguments, workspace), console)
    return 0


async def _one(arguments: argparse.Namespace, workspace: Workspace) -> Result:
    from helix_desktop import workbench
    from helix_desktop.tokens import Counter
    from helix_desktop.workbench.bring_in import Import, files_of

    files = await asyncio.to_thread(files_of, arguments.paths) if arguments.paths else _found_files()
    if (bench := workbench.of(workspace)) is not None:
        return await bench.bring_in(files, kind=arguments.kind)
    return await Import(workspace, Counter(), arguments.kind).read(files)


async def _watch(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    """Import, and again whenever a file has changed; Ctrl+C ends it and tells what came."""
    import watchfiles

    from helix_desktop.histories import finding

    places = finding.Places.of_this_user()
    all_roots = (folder for folders in finding.roots(places).values() for folder in folders if folder.is_dir())
    folders = {path if path.is_dir() else path.parent for path in arguments.paths} or set(all_roots)
    seen: dict[str, str] = {}
    begun = False
    changes = watchfiles.awatch(*folders, step=200, debounce=1_000, rust_timeout=500, yield_on_timeout=True)
    try:
        async for changed in changes:  # the first comes when the folders are watched, so that nothing is missed
            if changed or not begun:
                result = await _one(arguments, workspace)
                seen |= {one.id: one.state for one in result.imported}
                if result.imported or not begun:
                    await _tell(arguments, workspace, result, console)
                begun = True
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        if not arguments.json:
            await console.say(f"Stopped watching. Conversations that were new or had new messages: {len(seen):,}.")
    return 0


async def _tell(arguments: argparse.Namespace, workspace: Workspace, result: Result, console: Console) -> None:
    from helix_desktop.histories.keys import masked

    keys = [{"key": masked(key), "places": counts} for key, counts in result.keys.places.items()]
    forgotten = 0
    if arguments.forget_keys:
        for key in result.keys.places:
            await workspace.forgetting(text=key)
            forgotten += 1
    if arguments.json:
        told = {
            "run": result.run,
            "imported": [asdict(one) for one in result.imported],
            "unchanged": result.unchanged,
            "complaints": result.complaints,
            "keys": keys,
            "forgotten": forgotten,
        }
        await say_json(console, told)
        return
    for one in result.imported:
        await console.say(f"{one.id}  {one.messages:>5} messages {one.outputs:>5} outputs  {one.title or one.path}")
    await _tell_rest(result, console)
    for found in keys[:KEYS_SHOWN]:
        await console.say(f"This looks like a key: {found['key']}{' (forgotten)' if forgotten else ''}")
    if keys and not forgotten:
        await console.say(
            "To remove these keys permanently, use `helix-desktop forget`, or import again with --forget-keys."
        )


async def _tell_rest(result: Result, console: Console) -> None:
    for complaint in result.complaints[:SHOWN]:
        await console.complain(complaint)
    if len(result.complaints) > SHOWN:
        await console.complain(f"… and {len(result.complaints) - SHOWN} more; --json lists all of them.")
    await console.say(
        f"{len(result.imported):,} imported (import {result.run}); {result.unchanged:,} had already been imported."
    )


async def imports(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    from helix_desktop.workbench.bring_in import runs

    found = await runs(workspace)
    if arguments.json:
        await say_json(
            console, [{"run": run, "conversations": count, "undone": undone} for run, count, undone in found]
        )
        return 0
    for run, count, undone in found:
        await console.say(f"{run}  {count:>5} conversations{'  (undone)' if undone else ''}")
    return 0


async def undo(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    from helix_desktop import workbench
    from helix_desktop.workbench import bring_in as bringing

    bench = workbench.of(workspace)
    if bench is not None:
        count, stayed = await bench.undo_import(arguments.import_run)
    else:
        count, stayed = await bringing.undo(workspace, arguments.import_run)
    if arguments.json:
        await say_json(console, {"undone": count, "stayed": stayed})
        return 0
    for sentence in stayed:
        await console.complain(sentence)
    await console.say(
        f"The import of {count:,} conversations was undone. Newly imported conversations are in the trash."
    )
    return 0
