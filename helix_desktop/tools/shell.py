"""The tools that run commands: run_command, list_commands, read_command_output, stop_command.

Output goes from the pipe into the cache without being held in memory. Past the user's limit only the end is kept, with a note
of how much was cut. Stopping a command also stops everything it started.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import itertools
import os
import re
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from helix_desktop.engine.facts import Stored
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import NotThere, Refused, WrongUse
from helix_desktop.processes.command import Command, shell
from helix_desktop.processes.starter import ProcessLaunch, Where, Whose
from helix_desktop.tools import confine
from helix_desktop.tools.aftermath import Watched
from helix_desktop.tools.background import ADDRESS, ALONE, Background
from helix_desktop.tools.files import changed_by_command
from helix_desktop.tools.guard import Guard
from helix_desktop.tools.hidden_hint import hidden_hint
from helix_desktop.tools.openings import OPENING_NAMES, Opened, titles_of
from helix_desktop.tools.permission import Action, Effect
from helix_desktop.tools.sandbox import Kind, Sandbox
from helix_desktop.tools.tool import Arguments, Result, Tool, Use, fields, flag, text, whole
from helix_desktop.values import dataclass

_TAIL = 64 * 1024
_NAMED = 5
_SHOW_BYTES, _SHOW_SECONDS = 8 * 1024, 0.05
_SETTLE = 1.0
_ONLY_SETS = re.compile(r"\s*(?:cd|pushd|export|source|\.|alias|unset|ulimit|umask)\s[^\n;&|]*")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")
_LEAVES = re.compile(r"(?<![&|<>\\])&(?![&>])")
_WAITS = re.compile(r"\b(?:wait|fg|kill|pkill|killall)\b")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may use. The user sets these; a call may ask for more seconds, up to `most_seconds`."""

    seconds: int = 120
    most_seconds: int = 3600
    output: int = 256 * 1024 * 1024
    background_output: int = 16 * 1024 * 1024
    background_commands: int = 16


@dataclass(frozen=True, slots=True)
class Needs:
    """What one command asks for by name: openings, and files that agents otherwise don't see, by their real paths."""

    openings: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(slots=True)
class Shell:
    """The commands of one workspace: how they are locked in, and which ones run in the background."""

    sandbox: Sandbox
    environment: Mapping[str, str]
    spawn: Callable[..., asyncio.Task[Any]]
    limits: Limits = Limits()
    guard: Guard | None = None
    extra_names: tuple[str, ...] = ()
    background: dict[str, Background] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    planning: Callable[[], bool] = lambda: False  # whether commands may write nothing now
    opened: Callable[[], Opened] = Opened  # what of the home is open to commands now

    @property
    def running(self) -> list[Background]:
        """The commands in the background that have not ended."""
        return [one for one in self.background.values() if one.runs]

    async def start(
        self, line: str, folder: Path, *, network: bool, free: bool, opened: Opened, watched: Watched | None
    ) -> Command:
        sandbox = replace(self.sandbox, read_only=True) if self.planning() else self.sandbox
        self.sandbox.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = sandbox.environment(
            self.environment, network=network, free=free, extra=self.extra_names, opened=opened
        )
        held = self.guard.held() if self.guard is not None else ((), ())
        is_locked_in = self.sandbox.kind is not Kind.NONE and not free
        launch = ProcessLaunch(
            Whose.MODEL,
            shell(line),
            folder,
            environment,
            where=Where.SANDBOX if is_locked_in else Where.WATCHED,
            checks=watched,
            unchecked="" if watched else "the user allowed it as it is, or no folder of a workspace is in reach",
            is_allowed_outside=not is_locked_in,
        )
        return await Command.start(
            launch,
            lambda lifeline: sandbox.command(
                shell(line), lifeline, network=network, free=free, held=held, opened=opened
            ),
        )

    def open_now(self, needs: Needs) -> Opened:
        """What is open to one command: what the settings say and what it asked for, without files that stay hidden."""
        opened = self.opened()
        hidden = self.guard.hidden() if self.guard is not None else []
        names = tuple(dict.fromkeys((*opened.names, *needs.openings)))
        return replace(opened, names=names, hidden=tuple(path for path in hidden if path not in needs.files))

    async def watched(self, use: Use, *, free: bool, lasting: bool) -> Watched | None:
        """What to check and put back after a command. Changes by commands in the background are settled first."""
        if self.guard is None or free:
            return None
        for one in self.running:
            await one.settle(use, ask=True)
        return await Watched.begin(self.guard, lasting=lasting and self.sandbox.kind is Kind.BUBBLEWRAP)

    def settled(self, watched: Watched) -> None:
        """A command's changes are settled: commands in the background are compared with the new state."""
        for one in self.running:
            if one.watched is not None:
                one.watched.before = watched.before

    async def aclose(self) -> None:
        """End every background command; for the end of the program."""
        for one in self.background.values():
            one.command.end()
        await asyncio.gather(*(one.command.gone() for one in self.background.values()))


# --- run_command -----------------------------------------------------------------------------------------------------


def tools(commands: Shell) -> tuple[Tool, ...]:
    """The four tools on one workspace's commands."""
    acts = (run_command, list_commands, read_output, stop_command)
    first, *rest = [
        Tool(name, about, schema, partial(act, commands), rare=act is not run_command)
        for (name, about, schema), act in zip(_SPECS, acts, strict=True)
    ]
    where = _ASKED_FOR if commands.sandbox.kind is Kind.NONE else _SANDBOXED
    return (replace(first, description=f"{_RUN}{where}{_BACKGROUND}", alone=True), *rest)


async def run_command(commands: Shell, args: Arguments, use: Use) -> Result:
    line = args.text("command").strip()
    if not line or "\0" in line:
        raise WrongUse("Specify a command.")
    folder = await _folder(use, args.text("folder", "."))
    network, free = args.flag("network"), args.flag("outside_sandbox")
    needs = await _needs(use, args, network=network)
    action = _action(commands, line, use.roots.folders[0], folder, network=network, free=free)
    await use.permit(action if free else await _with_needs(commands, use, action, needs))
    if args.flag("background"):
        _refuse_more(commands)
    watched = await commands.watched(use, free=free, lasting=args.flag("background"))
    opened = commands.open_now(needs)
    command = await _started(commands, line, folder, opened, watched, network=network, free=free)
    closed = commands.sandbox.kind is not Kind.NONE and not network and not free
    if args.flag("background"):
        return await _leave_running(commands, use, line, command, watched, closed=closed)
    seconds = min(max(args.number("seconds", commands.limits.seconds), 1), commands.limits.most_seconds)
    hint = ALONE if closed and commands.running and ADDRESS.search(line) else _hint(line)
    seen = (
        None
        if free or commands.sandbox.kind is Kind.NONE
        else partial(_hint_of_hidden, commands, line, opened, network)
    )
    return await _follow(
        commands, use, line, command, seconds, hint, _End(time.monotonic(), watched=watched, hidden=seen)
    )


async def _started(
    commands: Shell, line: str, folder: Path, opened: Opened, watched: Watched | None, *, network: bool, free: bool
) -> Command:
    try:
        return await commands.start(line, folder, network=network, free=free, opened=opened, watched=watched)
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        raise WrongUse(
            f"The command is longer than the system allows ({len(line.encode()):,} bytes); it was not run.",
            remedy="Write the long part to a file with write_file.",
        ) from error


async def _folder(use: Use, name: str) -> Path:
    place = use.roots.place(name)
    await asyncio.to_thread(confine.listing, use.roots, place)
    return place.path


async def _needs(use: Use, args: Arguments, *, network: bool) -> Needs:
    names = [name.strip() for name in args.text("needs").split(",") if name.strip()]
    openings = tuple(name for name in names if name in OPENING_NAMES)
    if openings and not network:
        raise WrongUse(f"{openings[0]} needs `network`: it is open to commands with network access only.")
    places = [use.roots.unhidden.place(name) for name in names if name not in openings]
    for place in places:
        if not use.roots.is_hidden(place.path):
            raise WrongUse(
                f"{use.roots.shown(place)} is not hidden, so a command need not ask for it.",
                remedy=f"`needs` takes hidden files of the workspace, and {', '.join(OPENING_NAMES)}.",
            )
    return Needs(openings, tuple([await asyncio.to_thread(os.path.realpath, place.path) for place in places]))


async def _with_needs(commands: Shell, use: Use, action: Action, needs: Needs) -> Action:
    """The question names what the command is to see that others do not, and what this sandbox cannot hide from it."""
    sandbox, danger = commands.sandbox, ""
    new = [name for name in needs.openings if name not in commands.opened().names]
    if sandbox.kind is Kind.LANDLOCK:
        if commands.guard is not None:
            await asyncio.to_thread(commands.guard.state)
        if seen := sandbox.cannot_hide(commands.open_now(needs), network=action.network):
            danger = f"this sandbox, Landlock, cannot hide these files from it: {_shown(use, seen)}"
        action = replace(
            action, title=f"{action.title} in the weaker sandbox, Landlock (bubblewrap is missing or does not work)"
        )
    if needs.files:
        danger = f"it would see files that agents otherwise don't see: {_shown(use, needs.files)}"
    if new:
        danger = f"it would use what is closed to other commands: {', '.join(titles_of(new))}"
    if new and needs.files:
        danger = f"{danger}; and files that agents otherwise don't see: {_shown(use, needs.files)}"
    return replace(action, danger=danger, strict=True, apart="opened") if danger and not action.danger else action


def _shown(use: Use, paths: Sequence[str]) -> str:
    places = [use.roots.unhidden.place(path) for path in paths[:_NAMED]]
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(map(use.roots.shown, places)) + more


def _hint_of_hidden(commands: Shell, line: str, opened: Opened, network: bool, output: str) -> str:  # noqa: FBT001 -- of a partial
    folders = [str(folder) for folder in commands.sandbox.folders]
    return hidden_hint(line, output, opened, folders, commands.environment, network=network)


def _action(commands: Shell, line: str, root: Path, folder: Path, *, network: bool, free: bool) -> Action:
    where = "" if folder == root else f" in {folder}"
    extra = " with network access" if network else ""
    danger = "it would run outside the sandbox" if free and commands.sandbox.kind is not Kind.NONE else ""
    title = f"Run a command{extra}{where}"
    return Action(
        ToolName.RUN_COMMAND,
        Effect.RUN,
        title,
        line,
        command=line,
        network=network,
        danger=danger,
        apart=danger and "outside_sandbox",
    )


async def _follow(commands: Shell, use: Use, line: str, command: Command, seconds: int, hint: str, end: _End) -> Result:
    """Until the command ends, its time is over, or we are cancelled; then nothing of it is left but what it printed."""
    try:
        stored = await _kept(commands, use, line, command, seconds, hint, end)
    finally:
        command.end()
        if end.code is None:
            await asyncio.shield(command.gone())
        if end.watched is not None:
            await asyncio.shield(end.watched.take_back())
            commands.settled(end.watched)
    if end.stopped:
        shown = await _end_of(use, stored)
        return Result(shown, source=line[:200], ok=False, changes=await changed_by_command(use), stopped=True)
    return Result(
        stored=stored,
        source=line[:200],
        ok=end.code == 0 and not end.late,
        exit_code=end.code,
        changes=await changed_by_command(use),
    )


async def _kept(commands: Shell, use: Use, line: str, command: Command, seconds: int, hint: str, end: _End) -> Stored:
    """What it prints, whole. When we are cancelled it is ended, and what it has printed is kept all the same."""
    output = _printed(commands, use, command, seconds, hint, end)
    keeping: asyncio.Task[Stored] = commands.spawn(use.keep(output, line[:200]), name="output of a command")
    while not keeping.done():
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            if not keeping.done():
                cast("asyncio.Task[object]", asyncio.current_task()).uncancel()
                end.stopped = True
                command.end()
                if end.watched is not None:
                    end.watched.stop()
    return keeping.result()


async def _end_of(use: Use, stored: Stored) -> bytes:
    """Of what a stopped command printed nobody has asked how much is wanted: the end, and where the rest is."""
    start = max(0, stored.size - _SHOW_BYTES)
    note = f'[… {start:,} bytes before this: recall_cached_content("{stored.digest.hex}")]\n' if start else ""
    return note.encode() + await use.cache.read(stored.digest, start, _SHOW_BYTES)


@dataclass(slots=True)
class _End:
    """How a command ended."""

    started: float
    code: int | None = None
    late: bool = False
    stopped: bool = False
    watched: Watched | None = None
    hidden: Callable[[str], str] | None = None  # what to say of paths it did not see, given the end of its output


async def _printed(
    commands: Shell, use: Use, command: Command, seconds: int, hint: str, end: _End
) -> AsyncIterator[bytes]:
    """The output as it is to be kept: up to the limit, then a note and the end; then how the command ended."""
    trim = _Trim(commands.limits.output)
    show = _Shower(use.context.show)
    last = b""
    try:
        async for piece in _in_time(command, seconds, end):
            show.add(piece)
            last = (last + piece)[-_SHOW_BYTES:]
            if kept := trim.take(piece):
                yield kept
    finally:
        show.flush()
    if rest := trim.rest():
        yield rest
    end.code = await command.gone()
    yield _footer(end, seconds, trim.size).encode()
    if end.watched is not None:
        yield (await end.watched.settle(use, ask=not end.stopped)).encode()
    if end.hidden is not None and end.code and not end.stopped:
        yield (await asyncio.to_thread(end.hidden, last.decode("utf-8", "replace"))).encode()
    if hint and not end.stopped and (end.code == 0 or hint == ALONE):
        yield f"{chr(10) if trim.size else ''}[{hint}]\n".encode()


class _Trim:
    """Lets output pass up to a limit; of what comes after, keeps the end and counts the rest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail: deque[bytes] = deque()
        self._waiting = 0
        self.size = 0

    def take(self, piece: bytes) -> bytes:
        """What of the piece passes now."""
        room = max(0, self._limit - self.size)
        self.size += len(piece)
        if len(piece) > room:
            self._tail.append(piece[room:])
            self._waiting += len(piece) - room
            while self._waiting - len(self._tail[0]) >= _TAIL:
                self._waiting -= len(self._tail.popleft())
        return piece[:room]

    @property
    def cut(self) -> int:
        return max(0, self.size - self._limit - min(self._waiting, _TAIL))

    def rest(self) -> bytes:
        """A note of what was cut, and the end."""
        tail = b"".join(self._tail)[-_TAIL:]
        if not self.cut:
            return tail
        note = f"\n[… {self.cut:,} bytes were cut here: outputs are kept up to {self._limit:,} bytes …]\n"
        return note.encode() + tail


def _footer(end: _End, seconds: int, size: int) -> str:
    if end.stopped:
        return f"\n[stopped by the user after {time.monotonic() - end.started:.0f} s]\n"
    if end.late:
        return f"\n[stopped: it ran longer than {seconds} s. Ask for more seconds, or run it in the background.]\n"
    if end.code:
        return f"\n[exit code {end.code}]\n"
    return "" if size else "[no output, exit code 0]\n"


def _hint(line: str) -> str:
    """What is no failure, and yet not as it would be in a terminal."""
    if _ONLY_SETS.fullmatch(line):
        return "This held for this command alone: the next one begins anew. Use `folder`, or put both into one command."
    leaves = sys.platform != "win32" and "<<" not in line and _LEAVES.search(_QUOTED.sub("", line))
    if leaves and not _WAITS.search(line):
        return "What a command leaves running with & is ended with it. Use `background` for what is to go on."
    return ""


async def _in_time(command: Command, seconds: int, end: _End) -> AsyncIterator[bytes]:
    output = command.output()
    now = asyncio.get_running_loop().time
    deadline = now() + seconds
    while now() < deadline:  # what is printed all the time is never waited for
        try:
            async with asyncio.timeout_at(deadline):
                piece = await anext(output, b"")
        except TimeoutError:
            break
        if not piece:
            return
        yield piece
    end.late = True
    command.end()


class _Shower:
    """Shows what a command prints while it runs, at most 8 KB every 50 ms: nobody reads faster, and windows choke."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._waiting = b""
        self._next = 0.0
        self._later: asyncio.TimerHandle | None = None

    def add(self, piece: bytes) -> None:
        self._waiting = (self._waiting + piece)[-_SHOW_BYTES:]
        pause = self._next - time.monotonic()
        if pause <= 0:
            self.flush()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(pause, self.flush)

    def flush(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._waiting:
            self._show(self._decode(self._waiting))
            self._waiting = b""
            self._next = time.monotonic() + _SHOW_SECONDS


# --- commands in the background --------------------------------------------------------------------------------------


def _refuse_more(commands: Shell) -> None:
    running = commands.running
    if len(running) >= commands.limits.background_commands:
        raise Refused(
            f"{len(running)} commands are already running in the background.",
            remedy="Stop one of them with stop_command.",
        )


async def _leave_running(
    commands: Shell, use: Use, line: str, command: Command, watched: Watched | None, *, closed: bool
) -> Result:
    ended = [name for name, one in commands.background.items() if not one.runs]
    for name in ended[: -commands.limits.background_commands]:  # with the megabytes each of them keeps
        del commands.background[name]
    one = Background(f"bg{next(commands.numbers)}", line, command, time.time(), watched, closed)
    commands.background[one.name] = one
    commands.spawn(one.collect(use, commands.limits.background_output), name=f"output of {one.name}")
    await one.wait(_SETTLE, for_news=False)  # a server that cannot start says so at once
    first = one.news()
    state = "still running" if one.runs else f"ended with exit code {one.code}"
    return Result(f"[{one.name}: {state}]\n{first}", source=line[:200], ok=not one.code)


async def list_commands(commands: Shell, _args: Arguments, _use: Use) -> Result:
    lines = [f"{one.name}  {one.state}  {one.line}" for one in commands.background.values()]
    return Result("\n".join(lines) or "[no command was started in the background]")


async def read_output(commands: Shell, args: Arguments, use: Use) -> Result:
    one = _named(commands, args.text("name"))
    if one.runs:
        await one.settle(use, ask=True)
    if args.flag("all"):
        one.read = 0
    if wait := min(args.number("wait", 0), 60):
        await one.wait(wait, for_news=True)
    return Result(f"[{one.name}: {one.state}]\n{one.news()}", source=one.line[:200])


async def stop_command(commands: Shell, args: Arguments, _use: Use) -> Result:
    one = _named(commands, args.text("name"))
    one.code = await one.command.gone()
    return Result(f"[{one.name}: stopped]\n{one.news()}", source=one.line[:200])


def _named(commands: Shell, name: str) -> Background:
    if name not in commands.background:
        known = ", ".join(commands.background) or "none"
        raise NotThere(f"No command named {name[:40]!r} was started in the background.", remedy=f"Available: {known}.")
    return commands.background[name]


_SHELL = "PowerShell" if sys.platform == "win32" else "shell"
_RUN = f"Run a {_SHELL} command. "
_SANDBOXED = "It runs in a sandbox: it can write only in the workspace, and has no network without `network`. "
_ASKED_FOR = "There is no sandbox on this system, so the user is asked for every command. "
_BACKGROUND = "Servers and watchers go to the `background`; read_command_output, list_commands and stop_command follow them (call_tool)."
_NAME = text("Its name, such as bg1")
_SPECS = (
    (
        ToolName.RUN_COMMAND,
        _RUN,
        fields(
            "command",
            command=text(),
            folder=text(),
            seconds=whole("Time limit", 1),
            network=flag(),
            background=flag(),
            outside_sandbox=flag("Only after the sandbox was in the way"),
            needs=text(),  # what may stand here is said where something was hidden
        ),
    ),
    (ToolName.LIST_COMMANDS, "List the commands running in the background.", fields()),
    (
        ToolName.READ_COMMAND_OUTPUT,
        "Read what a command in the background has printed since the last look.",
        fields(
            "name",
            name=_NAME,
            wait=whole("Wait up to this many seconds for something new"),
            all=flag("From the beginning again"),
        ),
    ),
    (
        ToolName.STOP_COMMAND,
        "Stop a command running in the background, and all it started.",
        fields("name", name=_NAME),
    ),
)
