"""`changes`: what the agent changed in the workspace's folders, as a list or a patch, and taking it back."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from helix_desktop.commands import as_json, on_workspace, open_workspace
from helix_desktop.commands.open_workspace import ASKING, Work, agreed, say_json
from helix_desktop.console import Console, shown
from helix_desktop.errors import NotThere

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.engine.changes.story import FileChange, Planned, TurnOfChanges
    from helix_desktop.store.workspace import Workspace
    from helix_desktop.workbench import Workbench

    _Act = Callable[[Workbench, argparse.Namespace, Console], Awaitable[int]]


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("changes", help="show and undo the changes that agents made to your files")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _verb(verbs, "list", "list the turns that changed files, or the files of one turn", list_changes)
    one = _verb(verbs, "show", "print the changes as a patch for `git apply`", show)
    one.add_argument("paths", nargs="*", metavar="PATH", help="only these files")
    one = _verb(verbs, "restore", "restore files to their state before the agent changed them", restore)
    one.add_argument("paths", nargs="*", metavar="PATH", help="only these files")
    one.add_argument(
        "--yes",
        action="store_true",
        help="do not ask for confirmation (by default, show what would be done, and ask if there is a terminal)",
    )
    one.add_argument(
        "--conflicts",
        choices=("now", "before", "merge"),
        default="now",
        help="what to do with files that were changed later: leave them unchanged (default), restore them anyway, or undo only the agent's lines",
    )


def _verb(verbs: Subparsers, name: str, sentence: str, work: Work) -> argparse.ArgumentParser:
    one = verbs.add_parser(name, help=sentence, description=f"{sentence[:1].upper()}{sentence[1:]}.")
    on_workspace(one)
    one.add_argument(
        "--conversation",
        "-c",
        default="",
        metavar="C",
        help="the conversation's ID or title (default: the newest conversation)",
    )
    one.add_argument("--turn", default="", metavar="N", help="the number of a turn, or last (default: all turns)")
    as_json(one)
    one.set_defaults(run=_asking if work is restore else open_workspace.run, work=work, counts=False)
    return one


def _asking(arguments: argparse.Namespace) -> int:
    """Ask here, after what would be done has been shown: who has the workspace open must not wait for a person."""
    code = open_workspace.run(arguments)
    if code != ASKING:
        return code
    if not agreed("Restore these files? [y/N] "):
        return 1
    arguments.yes, arguments.argv = True, [*arguments.argv, "--yes"]
    return open_workspace.run(arguments)


async def list_changes(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    return await _with(workspace, arguments, console, _list)


async def show(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    return await _with(workspace, arguments, console, _show)


async def restore(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    return await _with(workspace, arguments, console, _restore)


async def _with(workspace: Workspace, arguments: argparse.Namespace, console: Console, act: _Act) -> int:
    from helix_desktop import workbench

    bench = workbench.of(workspace)
    if bench is not None:
        return await act(bench, arguments, console)
    async with workbench.alone(workspace, arguments.places) as bench:
        return await act(bench, arguments, console)


async def _list(bench: Workbench, arguments: argparse.Namespace, console: Console) -> int:
    conversation = _conversation(bench, arguments.conversation)
    turns = await _turns(bench, arguments, conversation)
    told = []
    for turn in turns:
        files = await bench.changes.files(turn.sources)
        told.append({"turn": turn.number, "message": turn.title, "files": [_described(file) for file in files]})
        if not arguments.json:
            await console.say(f"Turn {turn.numbers}: {turn.title}")
            for file in files:
                await console.say(f"  {file.sort:<8} +{file.added:<6} -{file.removed:<6} {shown(_text(file.place))}")
    if arguments.json:
        await bench.changes.prepare()
        left = [{"path": left.place, "why": left.why} for left in bench.changes.not_covered()]
        await say_json(console, {"conversation": conversation, "turns": told, "not_covered": left})
    elif not turns:
        await console.say("No turn of this conversation changed files.")
    return 0


async def _show(bench: Workbench, arguments: argparse.Namespace, console: Console) -> int:
    files, _ = await _files(bench, arguments)
    patch = await bench.changes.patch([file for file in files if _named(file, arguments.paths)])
    if arguments.json:
        await say_json(console, {"patch": patch.decode("utf-8", "replace")})
    else:
        await console.write(patch)
    return 0


async def _restore(bench: Workbench, arguments: argparse.Namespace, console: Console) -> int:
    files, conversation = await _files(bench, arguments)
    files = [file for file in files if _named(file, arguments.paths)]
    await bench.changes.prepare()
    plan = await bench.changes.plan(files)
    if not arguments.yes:
        await _say_plan(files, plan, arguments, console)
        await console.complain("Nothing was changed. Add --yes to restore the files.")
        return 1 if arguments.json else ASKING
    choices = {one.path: arguments.conflicts for one in plan}
    undone = await bench.changes.take_back(files, conversation=conversation, choices=choices)
    left = [{"path": _text(place), "why": why} for place, why in undone.left]
    if arguments.json:
        await say_json(console, {"restored": [_text(place) for place in undone.restored], "left": left})
    else:
        await console.say(f"{len(undone.restored):,} files and folders were restored.")
        for one in left:
            await console.complain(f"{shown(one['path'])} was not changed: {one['why']}.")
    return 1 if left else 0


async def _say_plan(
    files: Sequence[FileChange], plan: Sequence[Planned], arguments: argparse.Namespace, console: Console
) -> None:
    places = {file.path: _text(file.place) for file in files}
    words = {
        "restore": "would be restored",
        "already": "has not changed",
        "conflict": {
            "now": "was changed since, and would be left as it is",
            "before": "was changed since, and would be restored anyway",
            "merge": "was changed since; only the agent's lines would be undone",
        }[arguments.conflicts],
    }
    if arguments.json:
        await say_json(console, [{"path": places[one.path], "how": one.how.value} for one in plan])
        return
    for one in plan:
        await console.say(f"{shown(places[one.path])} {words[one.how.value]}")


async def _files(bench: Workbench, arguments: argparse.Namespace) -> tuple[Sequence[FileChange], str]:
    conversation = _conversation(bench, arguments.conversation)
    turns = await _turns(bench, arguments, conversation)
    return await bench.changes.with_folders([source for turn in turns for source in turn.sources]), conversation


async def _turns(bench: Workbench, arguments: argparse.Namespace, conversation: str) -> Sequence[TurnOfChanges]:
    turns = await bench.changes.turns(conversation)
    if arguments.turn == "last":
        return turns[-1:]
    if arguments.turn:
        turns = [turn for turn in turns if arguments.turn in map(str, range(turn.number, turn.last + 1))]
        if not turns:
            raise NotThere(f"Turn {arguments.turn} of this conversation changed no files.")
    return turns


def _conversation(bench: Workbench, name: str) -> str:
    """By id, or by title; the one that changed last without a name."""
    rows = [row for row in bench.conversations() if not row.trashed and not row.parent]
    if name:
        rows = [row for row in bench.conversations() if name in (row.id, row.title)]
    if not rows:
        raise NotThere(f"There is no conversation {name} in {bench.name}.".replace("  ", " "))
    return rows[0].id


def _named(file: FileChange, paths: Sequence[str]) -> bool:
    """Whether it is one of `paths`, or lies in one of them."""
    if not paths:
        return True
    wanted = [path.rstrip("/").removeprefix("./") for path in paths]
    return any(file.place == path or file.place.startswith(f"{path}/") for path in wanted)


def _described(file: FileChange) -> dict[str, object]:
    return {"path": _text(file.place), "change": file.sort, "added": file.added, "removed": file.removed, "by": file.by}


def _text(place: str) -> str:
    from helix_desktop.engine.changes.story import written

    return written(place)
