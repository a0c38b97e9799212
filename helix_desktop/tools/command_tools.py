"""The tools that run commands: run_command, list_commands, read_command_output, stop_command.

Output is streamed into the cache and not held in memory. Beyond the user's limit, only the
end is kept, with a note of what was cut. Stopping a command also stops everything it started.
"""

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
from helix_desktop.errors import ActionRefused, InvalidInput, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes.running_command import RunningCommand, shell_command_line
from helix_desktop.processes.starter import CommandAuthor, ProcessLaunch, ProcessPlace
from helix_desktop.tools import workspace_roots
from helix_desktop.tools.autorun_guard import AutorunGuard
from helix_desktop.tools.background_command import (
    ADDRESS_PATTERN,
    NO_NETWORK_NOTE,
    BackgroundCommand,
)
from helix_desktop.tools.built_in_tool import (
    BuiltInTool,
    ToolArguments,
    ToolOutput,
    ToolResources,
    declare_tool,
)
from helix_desktop.tools.checks_after_command import CommandCheck
from helix_desktop.tools.file_tools import find_changes_by_command
from helix_desktop.tools.hidden_path_hint import describe_hidden_paths
from helix_desktop.tools.home_access import OPENING_NAMES, CommandOpenings, titles_of_openings
from helix_desktop.tools.permission import ActionEffect, ToolAction
from helix_desktop.tools.sandbox import HeldPaths, Sandbox, SandboxKind
from helix_desktop.tools.sandbox_home import is_within_folder

_TAIL = 64 * 1024
_NAMED = 5
_SHOW_BYTES, _SHOW_SECONDS = 8 * 1024, 0.05
_SETTLE = 1.0
_ONLY_SETS = re.compile(r"\s*(?:cd|pushd|export|source|\.|alias|unset|ulimit|umask)\s[^\n;&|]*")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")
_LEAVES = re.compile(r"(?<![&|<>\\])&(?![&>])")
_WAITS = re.compile(r"\b(?:wait|fg|kill|pkill|killall)\b")


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Limits of one command. A call may ask for more seconds, up to `most_seconds`."""

    seconds: int = 120
    most_seconds: int = 3600
    output: int = 256 * 1024 * 1024
    background_output: int = 16 * 1024 * 1024
    background_commands: int = 16


@dataclass(frozen=True, slots=True)
class CommandNeeds:
    """What a command asks for by name: openings, and the real paths of otherwise hidden files."""

    openings: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(slots=True)
class WorkspaceCommands:
    """The commands of one workspace: how they are sandboxed, and which run in the background."""

    sandbox: Sandbox
    environment: Mapping[str, str]
    spawn: Callable[..., asyncio.Task[Any]]
    limits: CommandLimits = CommandLimits()
    guard: AutorunGuard | None = None
    background: dict[str, BackgroundCommand] = field(default_factory=dict)
    next_numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    is_planning: Callable[[], bool] = lambda: (
        False
    )  # True while the agent makes a plan. Commands must not write then.
    opened: Callable[[], CommandOpenings] = (
        CommandOpenings  # Tells which parts of the home folder commands may use.
    )

    @property
    def running_in_background(self) -> list[BackgroundCommand]:
        return [one for one in self.background.values() if one.is_running]

    async def start_in_sandbox(
        self,
        action: ToolAction,
        folder: Path,
        opened: CommandOpenings,
        watched: CommandCheck | None,
        *,
        free: bool,
    ) -> RunningCommand:
        words, network = shell_command_line(action.command), action.network
        sandbox = replace(self.sandbox, read_only=True) if self.is_planning() else self.sandbox
        self.sandbox.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = sandbox.build_environment(
            self.environment, network=network, free=free, opened=opened
        )
        held: HeldPaths = ((), ())
        if self.guard is not None:
            held = self.guard.paths_to_hold_in_place(
                set(self.guard.hidden_files).difference(opened.hidden)
            )
        is_locked_in = self.sandbox.kind is not SandboxKind.NONE and not free
        launch = ProcessLaunch(
            CommandAuthor.MODEL,
            words,
            folder,
            environment,
            place=ProcessPlace.SANDBOX if is_locked_in else ProcessPlace.WATCHED,
            checks=watched,
            reason_unchecked=""
            if watched
            else "the user allowed it as it is, or no folder of a workspace is in reach",
            is_allowed_outside=not is_locked_in,
        )
        wrap = partial(
            sandbox.wrap_command, words, network=network, outside=free, held=held, opened=opened
        )
        try:
            return await RunningCommand.start_in_jail(launch, wrap)
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            raise InvalidInput(
                f"The command is longer than the system allows ({len(action.command.encode()):,} bytes); it was not run.",
                remedy="Write the long part to a file with write_file.",
            ) from error

    def openings_for_command(self, needs: CommandNeeds) -> CommandOpenings:
        """Return what is open to a command by settings or request, without hidden files."""
        opened = self.opened()
        hidden = self.guard.hidden_files if self.guard is not None else []
        names = tuple(dict.fromkeys((*opened.names, *needs.openings)))
        return replace(
            opened, names=names, hidden=tuple(path for path in hidden if path not in needs.files)
        )

    async def begin_command_check(
        self, use: ToolResources, *, outside: bool, lasting: bool
    ) -> CommandCheck | None:
        """Start a check for a command's changes, after asking about those of commands
        in the background.
        """
        if self.guard is None or outside:
            return None
        for one in self.running_in_background:
            await one.revert_and_append_note(use, ask=True)
        return await CommandCheck.begin_check(
            self.guard, lasting=lasting and self.sandbox.kind is SandboxKind.BUBBLEWRAP
        )

    def update_background_checks(self, watched: CommandCheck) -> None:
        """Tell commands in the background which changes the user let another command keep."""
        for one in self.running_in_background:
            if one.check is not None:
                one.check.kept |= watched.kept

    async def aclose(self) -> None:
        """End all background commands when the program ends."""
        for one in self.background.values():
            one.command.kill_process_tree()
        await asyncio.gather(*(one.command.kill_and_wait() for one in self.background.values()))


# --- The tool run_command ---


def build_command_tools(commands: WorkspaceCommands) -> tuple[BuiltInTool, ...]:
    shell = "PowerShell" if sys.platform == "win32" else "shell"
    where = "It runs in a sandbox: it can write only in the workspace, and has no network without `network`. "
    if commands.sandbox.kind is SandboxKind.NONE:
        where = "There is no sandbox on this system, so the user is asked for every command. "
    run = declare_tool(ToolName.RUN_COMMAND, partial(run_command, commands))
    return (
        replace(run, description=run.description.format(shell=shell, where=where)),
        declare_tool(ToolName.LIST_COMMANDS, partial(list_commands, commands)),
        declare_tool(ToolName.READ_COMMAND_OUTPUT, partial(read_background_output, commands)),
        declare_tool(ToolName.STOP_COMMAND, partial(stop_command, commands)),
    )


async def run_command(
    commands: WorkspaceCommands, args: ToolArguments, use: ToolResources
) -> ToolOutput:
    line = args.text_argument("command").strip()
    if not line or "\0" in line:
        raise InvalidInput("Specify a command.")
    place = use.roots.resolve_path(args.text_argument("folder", "."))
    await asyncio.to_thread(workspace_roots.list_folder, use.roots, place)
    folder = place.full_path
    network, free = args.flag_argument("network"), args.flag_argument("outside_sandbox")
    needs = await _parse_command_needs(commands, use, args, network=network)
    action = _build_run_action(
        commands, line, use.roots.folders[0], folder, network=network, outside=free
    )
    await use.permit(action if free else await _action_with_needs(commands, use, action, needs))
    if args.flag_argument("background"):
        _check_background_limit(commands)
    watched = await commands.begin_command_check(
        use, outside=free, lasting=args.flag_argument("background")
    )
    opened = commands.openings_for_command(needs)
    command = await commands.start_in_sandbox(action, folder, opened, watched, free=free)
    closed = commands.sandbox.kind is not SandboxKind.NONE and not network and not free
    if args.flag_argument("background"):
        return await _add_to_background(
            commands,
            use,
            BackgroundCommand(
                f"bg{next(commands.next_numbers)}", line, command, time.time(), watched, closed
            ),
        )
    seconds = min(
        max(args.number_argument("seconds", commands.limits.seconds), 1),
        commands.limits.most_seconds,
    )
    hint, seen = _hint_for_command(line), None
    if closed and commands.running_in_background and ADDRESS_PATTERN.search(line):
        hint = NO_NETWORK_NOTE
    if not free and commands.sandbox.kind is not SandboxKind.NONE:
        seen = partial(_sandbox_hint, commands, line, opened, network)
    followed = _FollowedCommand(commands, use, line, command, seconds, hint, watched, seen)
    return await followed.follow_to_end()


async def _parse_command_needs(
    commands: WorkspaceCommands, use: ToolResources, args: ToolArguments, *, network: bool
) -> CommandNeeds:
    names = [name.strip() for name in args.text_argument("needs").split(",") if name.strip()]
    openings = tuple(name for name in names if name in OPENING_NAMES)
    if openings and not network:
        raise InvalidInput(
            f"{openings[0]} needs `network`: it is open to commands with network access only."
        )
    if len(names) == len(openings) or commands.guard is None:
        return CommandNeeds(openings)
    await asyncio.to_thread(commands.guard.scan_autorun_files)
    files: dict[str, None] = {}
    for name in names:
        if name not in openings:
            hidden = await _find_hidden_files_at(commands.guard, use, name)
            files.update(dict.fromkeys(hidden))
    return CommandNeeds(openings, tuple(files))


async def _find_hidden_files_at(guard: AutorunGuard, use: ToolResources, name: str) -> list[str]:
    """Return the hidden files that this path names, or that the folder it names contains."""
    place = use.roots.with_nothing_hidden.resolve_path(name)
    path = await asyncio.to_thread(os.path.realpath, place.full_path)
    # The guard names a closed folder instead of the files in it.
    hidden = [
        file
        for file in guard.hidden_files
        if is_within_folder(file, path) or is_within_folder(path, file)
    ]
    if not hidden:
        raise InvalidInput(
            f"{use.roots.display_path(place)} is not hidden, so a command need not ask for it.",
            remedy=f"`needs` takes hidden files, folders around them, and {', '.join(OPENING_NAMES)}.",
        )
    return hidden


async def _action_with_needs(
    commands: WorkspaceCommands, use: ToolResources, action: ToolAction, needs: CommandNeeds
) -> ToolAction:
    """Add to the question which hidden things the command wants to see, and what can't
    be hidden from it.
    """
    sandbox = commands.sandbox
    danger = ""
    new = [name for name in needs.openings if name not in commands.opened().names]
    if sandbox.kind is SandboxKind.LANDLOCK:
        if commands.guard is not None:
            await asyncio.to_thread(commands.guard.scan_autorun_files)
        opened = commands.openings_for_command(needs)
        seen = sandbox.paths_left_visible(opened, network=action.network)
        if seen:
            danger = f"this sandbox, Landlock, cannot hide these files from the command: {_display_paths(use, seen)}"
        action = replace(
            action,
            title=f"{action.title} in the weaker sandbox, Landlock (bubblewrap is missing or does not work)",
        )
    if needs.files:
        danger = (
            f"it would see files that are hidden from agents: {_display_paths(use, needs.files)}"
        )
    if new:
        danger = f"it would use access that other commands don't have: {', '.join(titles_of_openings(new))}"
    if new and needs.files:
        danger = (
            f"{danger}, and files that are hidden from agents: {_display_paths(use, needs.files)}"
        )
    if not danger or action.reason_to_ask:
        return action
    return replace(
        action, reason_to_ask=danger, asks_in_every_mode=True, separate_permission="opened"
    )


def _display_paths(use: ToolResources, paths: Sequence[str]) -> str:
    places = [use.roots.with_nothing_hidden.resolve_path(path) for path in paths[:_NAMED]]
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(map(use.roots.display_path, places)) + more


def _sandbox_hint(
    commands: WorkspaceCommands,
    line: str,
    opened: CommandOpenings,
    network: bool,  # noqa: FBT001 -- of a partial
    output: str,
) -> str:
    folders = [str(folder) for folder in commands.sandbox.folders]
    return describe_hidden_paths(
        line, output, opened, folders, commands.environment, network=network
    )


def _build_run_action(
    commands: WorkspaceCommands,
    line: str,
    root: Path,
    folder: Path,
    *,
    network: bool,
    outside: bool,
) -> ToolAction:
    where = "" if folder == root else f" in {folder}"
    extra = " with network access" if network else ""
    danger = (
        "it would run outside the sandbox"
        if outside and commands.sandbox.kind is not SandboxKind.NONE
        else ""
    )
    title = f"Run a command{extra}{where}"
    action = ToolAction(
        ToolName.RUN_COMMAND, ActionEffect.RUN, title, line, command=line, network=network
    )
    return replace(action, reason_to_ask=danger, separate_permission=danger and "outside_sandbox")


@dataclass(slots=True)
class _FollowedCommand:
    """A command whose end is awaited, and how it ended."""

    commands: WorkspaceCommands
    use: ToolResources
    line: str
    command: RunningCommand
    seconds: int
    hint: str = ""
    check: CommandCheck | None = None
    # Gets the end of the output, and says which hidden paths made the command fail.
    hidden: Callable[[str], str] | None = None
    started: float = field(default_factory=time.monotonic)
    code: int | None = None
    is_timed_out: bool = False
    was_stopped: bool = False

    async def follow_to_end(self) -> ToolOutput:
        """Wait until the command ends, times out or is cancelled. Only its output remains."""
        try:
            stored = await self._store_printed_output()
        finally:
            self.command.kill_process_tree()
            if self.code is None:
                await asyncio.shield(self.command.kill_and_wait())
            if self.check is not None:
                await asyncio.shield(self.check.revert_without_asking())
                self.commands.update_background_checks(self.check)
        output = ToolOutput(
            source=self.line[:200], ok=False, changes=await find_changes_by_command(self.use)
        )
        if self.was_stopped:
            return replace(output, output=await _read_end_of_output(self.use, stored), stopped=True)
        return replace(
            output, stored=stored, ok=self.code == 0 and not self.is_timed_out, exit_code=self.code
        )

    async def _store_printed_output(self) -> Stored:
        """Store the whole output. If we are cancelled, end the command and keep what it
        printed so far.
        """
        storing = self.use.store_result(self._output_with_footer(), self.line[:200])
        keeping: asyncio.Task[Stored] = self.commands.spawn(storing, name="output of a command")
        while not keeping.done():
            try:
                await asyncio.shield(keeping)
            except asyncio.CancelledError:
                if not keeping.done():
                    cast("asyncio.Task[object]", asyncio.current_task()).uncancel()
                    self.was_stopped = True
                    self.command.kill_process_tree()
                    if self.check is not None:
                        self.check.cancel_open_question()
        return keeping.result()

    async def _output_with_footer(self) -> AsyncIterator[bytes]:
        """Yield the output up to the limit, a note, the end, and how the command ended."""
        trim = _OutputTrimmer(self.commands.limits.output)
        show = _LiveOutput(self.use.context.show)
        last = b""
        try:
            async for piece in self.output_until_deadline():
                show.add_printed_piece(piece)
                last = (last + piece)[-_SHOW_BYTES:]
                if kept := trim.pass_piece_within_limit(piece):
                    yield kept
        finally:
            show.show_waiting_output()
        if rest := trim.note_and_end_of_output():
            yield rest
        self.code = await self.command.kill_and_wait()
        yield self._format_footer(trim.size).encode()
        if self.check is not None:
            yield (await self.check.revert_and_ask(self.use, ask=not self.was_stopped)).encode()
        if self.hidden is not None and self.code and not self.was_stopped:
            yield (await asyncio.to_thread(self.hidden, last.decode("utf-8", "replace"))).encode()
        if self.hint and not self.was_stopped and (self.code == 0 or self.hint == NO_NETWORK_NOTE):
            yield f"{chr(10) if trim.size else ''}[{self.hint}]\n".encode()

    async def output_until_deadline(self) -> AsyncIterator[bytes]:
        output = self.command.iterate_output()
        now = asyncio.get_running_loop().time
        deadline = now() + self.seconds
        while now() < deadline:  # The deadline also ends a program that prints without a pause.
            try:
                async with asyncio.timeout_at(deadline):
                    piece = await anext(output, b"")
            except TimeoutError:
                break
            if not piece:
                return
            yield piece
        self.is_timed_out = True
        self.command.kill_process_tree()

    def _format_footer(self, size: int) -> str:
        if self.was_stopped:
            return (
                f"\n[stopped after {time.monotonic() - self.started:.0f} s, before it had ended]\n"
            )
        if self.is_timed_out:
            return f"\n[stopped: it ran longer than {self.seconds} s. Ask for more seconds, or run it in the background.]\n"
        if self.code:
            return f"\n[exit code {self.code}]\n"
        return "" if size else "[no output, exit code 0]\n"


async def _read_end_of_output(use: ToolResources, stored: Stored) -> bytes:
    """Return the end of a stopped command's output, since nobody said how much of it is wanted."""
    start = max(0, stored.size - _SHOW_BYTES)
    note = (
        f'[… {start:,} bytes before this: recall_cached_content("{stored.digest.hex}")]\n'
        if start
        else ""
    )
    return note.encode() + await use.cache.read_range(stored.digest, start, _SHOW_BYTES)


class _OutputTrimmer:
    """Passes output on up to a limit. Beyond it, keeps the end and counts the rest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail: deque[bytes] = deque()
        self._waiting = 0
        self.size = 0

    def pass_piece_within_limit(self, piece: bytes) -> bytes:
        room = max(0, self._limit - self.size)
        self.size += len(piece)
        if len(piece) > room:
            self._tail.append(piece[room:])
            self._waiting += len(piece) - room
            while self._waiting - len(self._tail[0]) >= _TAIL:
                self._waiting -= len(self._tail.popleft())
        return piece[:room]

    @property
    def cut_byte_count(self) -> int:
        return max(0, self.size - self._limit - min(self._waiting, _TAIL))

    def note_and_end_of_output(self) -> bytes:
        tail = b"".join(self._tail)[-_TAIL:]
        if not self.cut_byte_count:
            return tail
        note = f"\n[… {self.cut_byte_count:,} bytes were cut here: outputs are kept up to {self._limit:,} bytes …]\n"
        return note.encode() + tail


def _hint_for_command(line: str) -> str:
    """Explain what works differently than in a terminal, such as a `cd`, which affects
    only this command.
    """
    if _ONLY_SETS.fullmatch(line):
        return "This held for this command alone: the next one begins anew. Use `folder`, or put both into one command."
    leaves = sys.platform != "win32" and "<<" not in line and _LEAVES.search(_QUOTED.sub("", line))
    if leaves and not _WAITS.search(line):
        return "What a command leaves running with & is ended with it. Use `background` for what is to go on."
    return ""


class _LiveOutput:
    """Shows output of a running command, at most 8 KB every 50 ms: more would only slow
    windows down.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._waiting = b""
        self._next = 0.0
        self._later: asyncio.TimerHandle | None = None

    def add_printed_piece(self, piece: bytes) -> None:
        self._waiting = (self._waiting + piece)[-_SHOW_BYTES:]
        pause = self._next - time.monotonic()
        if pause <= 0:
            self.show_waiting_output()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(pause, self.show_waiting_output)

    def show_waiting_output(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._waiting:
            self._show(self._decode(self._waiting))
            self._waiting = b""
            self._next = time.monotonic() + _SHOW_SECONDS


# --- Tools for commands that run in the background ---


def _check_background_limit(commands: WorkspaceCommands) -> None:
    running = commands.running_in_background
    if len(running) >= commands.limits.background_commands:
        raise ActionRefused(
            f"{len(running)} commands are already running in the background.",
            remedy="Stop one of these commands with stop_command.",
        )


async def _add_to_background(
    commands: WorkspaceCommands, use: ToolResources, one: BackgroundCommand
) -> ToolOutput:
    ended = [name for name, each in commands.background.items() if not each.is_running]
    for name in ended[: -commands.limits.background_commands]:  # Each holds megabytes of output.
        del commands.background[name]
    commands.background[one.name] = one
    if (checkpoints := use.workspace_resources.checkpoints) is not None:
        one.step = checkpoints.steps.continue_in_background(use.call.id, use.context.conversation)
    commands.spawn(
        one.collect_newest_output(use, commands.limits.background_output),
        name=f"output of {one.name}",
    )
    await one.wait_for_end_or_output(
        _SETTLE, for_news=False
    )  # A server that cannot start usually fails at once.
    first = one.read_new_output()
    state = "still running" if one.is_running else f"ended with exit code {one.code}"
    return ToolOutput(
        f"[{one.name}: {state}]\n{first}", source=one.command_line[:200], ok=not one.code
    )


async def list_commands(
    commands: WorkspaceCommands, _args: ToolArguments, _use: ToolResources
) -> ToolOutput:
    lines = [
        f"{one.name}  {one.run_state}  {one.command_line}" for one in commands.background.values()
    ]
    return ToolOutput("\n".join(lines) or "[no command was started in the background]")


async def read_background_output(
    commands: WorkspaceCommands, args: ToolArguments, use: ToolResources
) -> ToolOutput:
    one = _find_background_command(commands, args.text_argument("name"))
    if one.is_running:
        await one.revert_and_append_note(use, ask=True)
    if args.flag_argument("all"):
        one.bytes_read = 0
    if wait := min(args.number_argument("wait", 0), 60):
        await one.wait_for_end_or_output(wait, for_news=True)
    return ToolOutput(
        f"[{one.name}: {one.run_state}]\n{one.read_new_output()}", source=one.command_line[:200]
    )


async def stop_command(
    commands: WorkspaceCommands, args: ToolArguments, _use: ToolResources
) -> ToolOutput:
    one = _find_background_command(commands, args.text_argument("name"))
    one.code = await one.command.kill_and_wait()
    return ToolOutput(
        f"[{one.name}: stopped]\n{one.read_new_output()}", source=one.command_line[:200]
    )


def _find_background_command(commands: WorkspaceCommands, name: str) -> BackgroundCommand:
    if name not in commands.background:
        known = ", ".join(commands.background) or "none"
        raise NotFound(
            f"No command named {name[:40]!r} was started in the background.",
            remedy=f"Available: {known}.",
        )
    return commands.background[name]
