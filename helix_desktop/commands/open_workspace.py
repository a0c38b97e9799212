"""How a command reaches a workspace: it opens it, or, beside a running program that has it open, is run there.

A command's work is written once, as a coroutine on the open workspace and a console. The caller keeps its own files:
it reads `source` and writes `target` itself, and the work sees both as the console's input and output.

Who opens a workspace for a moment answers others meanwhile, and leaves after the last answer. So an answer must not
wait for a person or a pipe; a command that does (`lasting`) is not asked of somebody who is about to leave.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix_desktop import commands, places, tasks
from helix_desktop.commands import as_json, on_workspace
from helix_desktop.console import Console, Terminal
from helix_desktop.errors import Refused, Stopped, StoreBusy, StoreFailed

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.instance import Owner
    from helix_desktop.secrets import Secrets
    from helix_desktop.store.index import Progress
    from helix_desktop.store.workspace import Workspace
    from helix_desktop.store.workspaces import Known, Workspaces
    from helix_desktop.tokens import Counter

Work = Callable[[argparse.Namespace, "Workspace", Console], Awaitable[int]]
ASKING = 3  # the exit code for "it was not done yet", seen only between two of our processes
LATER = 75  # the exit code for "ask again in a moment", seen only between two of our processes
LASTING_PATIENCE = 1.0
TOLD_EVERY = 2.0  # seconds after which somebody who waits is told how far it is
PATIENCE = 5.0  # seconds: another command may hold the workspace for a moment


def verb(verbs: Subparsers, name: str, sentence: str, work: Work) -> argparse.ArgumentParser:
    """A command on a workspace that needs no tokens counted."""
    one = verbs.add_parser(name, help=sentence, description=f"{sentence[:1].upper()}{sentence[1:]}.")
    on_workspace(one)
    as_json(one)
    one.set_defaults(run=run, work=work, counts=False)
    return one


def run(
    arguments: argparse.Namespace, *, source: Path | None = None, target: Path | None = None, gather: bool = False
) -> int:
    """Do `arguments.work` on the workspace the arguments name. The exit code."""
    arguments.places = places.find(arguments.home)
    workspaces = all_of(arguments.places)
    known = workspaces.find(arguments.workspace)
    workspaces.tidy()
    with Terminal(source=source, target=target, gather=gather) as console:
        code = asyncio.run(_reach(arguments, known.id, console))
        if code and target is not None:
            raise SystemExit(code)  # the target is not put in its place
    return code


def agreed(question: str) -> bool:
    """Nobody to ask is a no, and so is an input that ends."""
    try:
        return bool(sys.stdin and sys.stdin.isatty()) and input(question).strip().casefold() in {"y", "yes"}
    except EOFError:
        return False


async def _reach(arguments: argparse.Namespace, identity: str, console: Console) -> int:
    from helix_desktop import instance
    from helix_desktop.store import reading_copy

    where = arguments.places
    counting = Counting(wanted=_counts(arguments))
    workspaces = all_of(where, count=counting)
    known = workspaces.find(identity)
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE
    while True:
        try:
            workspace = await workspaces.open(identity)
        except StoreBusy:
            if (wire := await instance.reach(where.run, identity)) is not None:
                code = await instance.hand_over(wire, arguments.argv, console)
                if code != LATER:
                    return code
            elif loop.time() > until:
                raise
            await asyncio.sleep(0.05)
        except StoreFailed:
            if not getattr(arguments, "reads", False) or not reading_copy.takes_nothing(known.folder):
                raise
            return await _from_a_copy(arguments, known, counting, console)
        else:
            return await _as_owner(arguments, workspace, counting, console)


async def _from_a_copy(arguments: argparse.Namespace, known: Known, counting: Counting, console: Console) -> int:
    """What only reads is done on a disk that takes nothing."""
    from helix_desktop.store import reading_copy
    from helix_desktop.store.workspace import Workspace

    with reading_copy.of(known.folder) as folder:
        workspace = await Workspace.open(folder, count=counting)
        try:
            await console.complain(
                f"The disk with {known.folder} is full or read-only. This was read from a copy; nothing was changed."
            )
            return int(await arguments.work(arguments, workspace, console))
        finally:
            await workspace.aclose()


async def caught_up(workspace: Workspace, console: Console) -> None:
    """Wait for the index; what lasts is told on standard error."""
    clock = asyncio.get_running_loop().time
    told = clock()
    late: list[str] = []

    def report(progress: Progress) -> None:
        nonlocal told
        if clock() - told > TOLD_EVERY and not progress.done:
            told = clock()
            done, of = progress.words + progress.facts, progress.entries + progress.of_facts
            late.append(f"Indexing new entries: {done:,} of {of:,}…")

    waiting = tasks.Tasks("command").spawn(workspace.index.caught_up(report), name="index")
    try:
        while not waiting.done():
            await asyncio.wait([waiting], timeout=0.2)
            while late:
                await console.complain(late.pop(0))
        await waiting
    finally:
        waiting.cancel()


async def _as_owner(arguments: argparse.Namespace, workspace: Workspace, counting: Counting, console: Console) -> int:
    leaving = not getattr(arguments, "lasting", False)
    async with AsyncExitStack() as last_first:
        last_first.push_async_callback(workspace.aclose)
        link(workspace, arguments.places, working=not leaving)
        serving = await serve(workspace, arguments.places, leaving=leaving, counting=counting)
        last_first.push_async_callback(serving.finish)
        for note in workspace.notes:  # what opening it had to mend
            await console.complain(note)
        return int(await arguments.work(arguments, workspace, console))


def link(workspace: Workspace, where: places.Places, *, working: bool) -> None:
    """To the store it shares with other machines, where there is one."""
    from helix_desktop.store import linking

    if linking.wanted(workspace):
        linking.link(workspace, secrets_of(where), working=working)


def secrets_of(where: places.Places) -> Secrets:
    from helix_desktop import settings
    from helix_desktop.secrets import Secrets

    consent = settings.Settings(where.settings)[settings.KEYS_IN_FILE]
    return Secrets(where.key_file, consent=lambda: consent)


class Counting:
    """Counts tokens, but not for a command that has no use for them: the vocabulary takes 75 MB and half a second.

    The index leaves what was not counted for whoever opens the workspace next.
    """

    def __init__(self, *, wanted: bool = True) -> None:
        self.wanted = wanted
        self._counter: Counter | None = None

    def __call__(self, text: str) -> int:
        if not self.wanted:
            raise Stopped("Tokens were not counted, because a count was not requested. They are counted later.")
        if self._counter is None:
            from helix_desktop import tokens

            self._counter = tokens.Counter()
        return self._counter.count(text)


def _counts(arguments: argparse.Namespace) -> bool:
    return bool(getattr(arguments, "counts", True))


def all_of(where: places.Places, *, count: Counting | None = None) -> Workspaces:
    from helix_desktop.store.workspaces import Workspaces

    return Workspaces(where.workspaces, count=count or Counting())


class Serving:
    """Answers commands about a workspace until `finish`."""

    def __init__(self, owner: Owner, patience: float | None) -> None:
        self._owner = owner
        self._patience = patience

    async def finish(self) -> None:
        """Wait for the answers that are under way; one that may last (`mcp`) is ended after a moment."""
        await self._owner.finish(limit=self._patience)


async def serve(
    workspace: Workspace, where: places.Places, *, leaving: bool = False, counting: Counting | None = None
) -> Serving:
    """Answer commands about `workspace` for as long as this process has it open; finish what is returned first."""
    from helix_desktop import instance

    owner = await instance.listen(where.run, workspace.id, partial(answer, workspace, where, leaving, counting))
    return Serving(owner, None if leaving else LASTING_PATIENCE)


async def answer(
    workspace: Workspace,
    where: places.Places,
    leaving: bool,  # noqa: FBT001
    counting: Counting | None,
    argv: list[str],
    console: Console,
) -> int:
    """Run a caller's command line on the open workspace. It is this workspace, and where this program keeps things, whatever
    the arguments name: a folder may be meant as seen from the caller's.
    """
    try:  # it imports the commands and makes their arguments: a window is not to wait for that
        arguments = await asyncio.to_thread(lambda: commands.parser().parse_args(argv))
    except SystemExit as ended:
        return int(ended.code or 0)
    if not hasattr(arguments, "work"):
        raise Refused("This command can't be passed to a running program.")
    if leaving and getattr(arguments, "lasting", False):
        return LATER
    if counting is not None:
        counting.wanted |= _counts(arguments)
    arguments.places = where
    return int(await arguments.work(arguments, workspace, console))


async def say_json(console: Console, value: Any) -> None:
    await console.say(json.dumps(value, ensure_ascii=False, indent=1))
