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

from helix_desktop.atomic_files import create_private_folder
from helix_desktop.cancellation import finish_ignoring_cancellation
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import ActionRefused, InvalidInput, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes.folders_of_agents import environment_without_agents
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
    ToolDeclaration,
    ToolOutput,
    ToolResources,
)
from helix_desktop.tools.checks_after_command import CommandCheck
from helix_desktop.tools.file_tools import find_changes_by_command
from helix_desktop.tools.hidden_path_hint import describe_hidden_paths
from helix_desktop.tools.home_access import OPENING_NAMES, CommandOpenings, titles_of_openings
from helix_desktop.tools.permission import ActionEffect, ToolAction
from helix_desktop.tools.sandbox import NOTHING_HELD, Sandbox, SandboxKind
from helix_desktop.tools.sandbox_home import is_within_folder

_TAIL_BYTES = 64 * 1024
_MOST_NAMED = 5
_SHOW_BYTES = 8 * 1024
_SHOW_SECONDS = 0.05
_FIRST_OUTPUT_SECONDS = 1.0
_CHANGES_ONLY_ITS_SHELL = re.compile(
    r"\s*(?:cd|pushd|export|source|\.|alias|unset|ulimit|umask)\s[^\n;&|]*"
)
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")
_LEAVES_RUNNING = re.compile(r"(?<![&|<>\\])&(?![&>])")
_WAITS_FOR_OTHERS = re.compile(r"\b(?:wait|fg|kill|pkill|killall)\b")


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
    # True while the agent makes a plan. Commands must not write then.
    is_planning: Callable[[], bool] = lambda: False
    # Tells which parts of the home folder commands may use.
    opened: Callable[[], CommandOpenings] = CommandOpenings

    @property
    def running_in_background(self) -> list[BackgroundCommand]:
        return [command for command in self.background.values() if command.is_running]

    async def start_in_sandbox(
        self,
        action: ToolAction,
        folder: Path,
        openings: CommandOpenings,
        check: CommandCheck | None,
        *,
        runs_outside: bool,
    ) -> RunningCommand:
        """Start a command in the sandbox, with only those folders in reach that are open to it.

        While the agent makes a plan, the command can't write. With `runs_outside`, the user has
        allowed it to run outside the sandbox.
        """
        sandbox = self.sandbox
        if self.is_planning():
            sandbox = replace(sandbox, read_only=True)
        create_private_folder(sandbox.scratch)
        environment = sandbox.build_environment(
            self.environment, network=action.network, free=runs_outside, opened=openings
        )
        if runs_outside:
            # The question named a program, and not the file that an agent may have put there.
            environment = environment_without_agents(environment)
        held_paths = NOTHING_HELD
        if self.guard is not None:
            shown_files = set(self.guard.hidden_files).difference(openings.hidden)
            held_paths = self.guard.paths_to_hold_in_place(shown_files)
        words = shell_command_line(action.command)
        launch = self._build_launch(words, folder, environment, check, runs_outside=runs_outside)
        wrap = partial(
            sandbox.wrap_command,
            words,
            network=action.network,
            outside=runs_outside,
            held=held_paths,
            opened=openings,
        )
        try:
            return await RunningCommand.start_in_jail(launch, wrap)
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            size = len(action.command.encode())
            raise InvalidInput(
                f"The command is longer than the system allows ({size:,} bytes); it was not run.",
                remedy="Write the long part to a file with write_file.",
            ) from error

    def _build_launch(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        check: CommandCheck | None,
        *,
        runs_outside: bool,
    ) -> ProcessLaunch:
        """Describe the process to start: where it runs, and whether its changes are checked."""
        is_locked_in = self.sandbox.kind is not SandboxKind.NONE and not runs_outside
        place = ProcessPlace.WATCHED
        if is_locked_in:
            place = ProcessPlace.SANDBOX
        reason_unchecked = ""
        if check is None:
            reason_unchecked = (
                "the user allowed it as it is, or no folder of a workspace is in reach"
            )
        return ProcessLaunch(
            CommandAuthor.MODEL,
            words,
            folder,
            environment,
            place=place,
            checks=check,
            reason_unchecked=reason_unchecked,
            is_allowed_outside=not is_locked_in,
        )

    def openings_for_command(self, needs: CommandNeeds) -> CommandOpenings:
        """Return what is open to a command by settings or request, without hidden files."""
        openings = self.opened()
        names = tuple(dict.fromkeys(openings.names + needs.openings))
        hidden: list[str] = []
        if self.guard is not None:
            hidden = [path for path in self.guard.hidden_files if path not in needs.files]
        return replace(openings, names=names, hidden=tuple(hidden))

    async def begin_command_check(
        self, resources: ToolResources, *, outside: bool, lasting: bool
    ) -> CommandCheck | None:
        """Start a check for a command's changes, after asking about those of commands
        in the background.
        """
        if self.guard is None or outside:
            return None
        for background_command in self.running_in_background:
            await background_command.revert_and_append_note(resources, ask=True)
        return await CommandCheck.begin_check(
            self.guard, lasting=lasting and self.sandbox.kind is SandboxKind.BUBBLEWRAP
        )

    def update_background_checks(self, check: CommandCheck) -> None:
        """Tell commands in the background which changes the user let another command keep."""
        for background_command in self.running_in_background:
            if background_command.check is not None:
                background_command.check.kept |= check.kept

    async def aclose(self) -> None:
        """End all background commands when the program ends."""
        commands = [background.command for background in self.background.values()]
        for command in commands:
            command.kill_process_tree()
        await asyncio.gather(*(command.kill_and_wait() for command in commands))


# --- The tool run_command ---


def build_command_tools(commands: WorkspaceCommands) -> tuple[BuiltInTool, ...]:
    """Return the tools for commands. The description of `run_command` says which shell this
    system has and whether there is a sandbox, as the model can't know it.
    """
    shell = "shell"
    if sys.platform == "win32":
        shell = "PowerShell"
    where = "It runs in a sandbox: it can write only in the workspace, and has no network without `network`. "
    if commands.sandbox.kind is SandboxKind.NONE:
        where = "There is no sandbox on this system, so the user is asked for every command. "
    description = RUN_COMMAND.description.format(shell=shell, where=where)
    declaration = replace(RUN_COMMAND, description=description)
    return (
        BuiltInTool(declaration, partial(run_command, commands)),
        BuiltInTool(LIST_COMMANDS, partial(list_commands, commands)),
        BuiltInTool(READ_COMMAND_OUTPUT, partial(read_background_output, commands)),
        BuiltInTool(STOP_COMMAND, partial(stop_command, commands)),
    )


async def run_command(
    commands: WorkspaceCommands, arguments: ToolArguments, resources: ToolResources
) -> ToolOutput:
    """Run a command, to its end or in the background. The tool `run_command`.

    What it needs is read first, as the user is asked about it together with the command. The
    check of its changes to files that other programs run begins right before it starts.
    """
    wanted = await _parse_wanted_command(arguments, resources)
    needs = await _parse_command_needs(commands, resources, arguments, network=wanted.network)
    main_folder = resources.roots.folders[0]
    action = _build_run_action(
        commands,
        wanted.line,
        main_folder,
        wanted.folder.full_path,
        network=wanted.network,
        outside=wanted.outside_sandbox,
    )
    if not wanted.outside_sandbox:
        action = await _action_with_needs(commands, resources, action, needs)
    await resources.permit(action)
    if wanted.background:
        _check_background_limit(commands)
    check = await commands.begin_command_check(
        resources, outside=wanted.outside_sandbox, lasting=wanted.background
    )
    openings = commands.openings_for_command(needs)
    # While the user was asked, a command in the background may have put a link in the folder's place.
    with workspace_roots.open_same_folder(
        resources.roots, wanted.folder, wanted.identity
    ) as asked_folder:
        command = await commands.start_in_sandbox(
            action, asked_folder, openings, check, runs_outside=wanted.outside_sandbox
        )

    is_locked_in = commands.sandbox.kind is not SandboxKind.NONE and not wanted.outside_sandbox
    has_no_network = is_locked_in and not wanted.network
    if wanted.background:
        number = next(commands.next_numbers)
        begun = time.monotonic()
        background_command = BackgroundCommand(
            f"bg{number}", wanted.line, command, begun, check, has_no_network
        )
        return await _add_to_background(commands, resources, background_command)

    seconds = _seconds_of_command(commands, arguments)
    followed = _FollowedCommand(commands, resources, wanted.line, command, seconds, check=check)
    # Hints are added to the output if it looks as if the sandbox made the command fail.
    followed.hint = _hint_for_command(wanted.line)
    if has_no_network and commands.running_in_background and ADDRESS_PATTERN.search(wanted.line):
        followed.hint = NO_NETWORK_NOTE
    if is_locked_in:
        followed.explain_hidden_paths = partial(
            _sandbox_hint, commands, wanted.line, openings, wanted.network
        )
    return await followed.follow_to_end()


@dataclass(frozen=True, slots=True)
class _WantedCommand:
    """The command that the model asked for, and how it is to run. `identity`: of the folder that was
    there when the model asked.
    """

    line: str
    folder: workspace_roots.RootPath
    identity: workspace_roots.FolderIdentity
    network: bool
    outside_sandbox: bool
    background: bool


async def _parse_wanted_command(
    arguments: ToolArguments, resources: ToolResources
) -> _WantedCommand:
    """Parse the arguments of `run_command`. Raises InvalidInput if the folder cannot be used."""
    line = arguments.text_argument("command").strip()
    if not line or "\0" in line:
        raise InvalidInput("Specify a command.")
    root_path = await asyncio.to_thread(
        resources.roots.resolve_real_path, arguments.text_argument("folder", ".")
    )
    # This raises an error with a sentence if the folder cannot be used.
    identity = await asyncio.to_thread(workspace_roots.identify_folder, resources.roots, root_path)
    return _WantedCommand(
        line,
        root_path,
        identity,
        network=arguments.flag_argument("network"),
        outside_sandbox=arguments.flag_argument("outside_sandbox"),
        background=arguments.flag_argument("background"),
    )


def _seconds_of_command(commands: WorkspaceCommands, args: ToolArguments) -> int:
    seconds = args.number_argument("seconds", commands.limits.seconds)
    return min(max(seconds, 1), commands.limits.most_seconds)


async def _parse_command_needs(
    commands: WorkspaceCommands, resources: ToolResources, args: ToolArguments, *, network: bool
) -> CommandNeeds:
    """Parse the argument `needs`: names of openings, which are parts of the home that can be
    opened for one command, and paths of files that are hidden from agents.
    """
    openings = []
    file_names = []
    for text in args.text_argument("needs").split(","):
        name = text.strip()
        if name in OPENING_NAMES:
            openings.append(name)
        elif name:
            file_names.append(name)
    if openings and not network:
        raise InvalidInput(
            f"{openings[0]} needs `network`: it is open to commands with network access only."
        )
    if not file_names or commands.guard is None:
        return CommandNeeds(tuple(openings))
    await asyncio.to_thread(commands.guard.scan_autorun_files)
    files: dict[str, None] = {}
    for name in file_names:
        hidden = await _find_hidden_files_at(commands.guard, resources, name)
        files.update(dict.fromkeys(hidden))
    return CommandNeeds(tuple(openings), tuple(files))


async def _find_hidden_files_at(
    guard: AutorunGuard, resources: ToolResources, name: str
) -> list[str]:
    """Return the hidden files that this path names, or that the folder it names contains."""
    root_path = resources.roots.with_nothing_hidden.resolve_path(name)
    path = await asyncio.to_thread(os.path.realpath, root_path.full_path)
    hidden_files = []
    for file in guard.hidden_files:
        # The guard names a closed folder instead of the files in it.
        if is_within_folder(file, path) or is_within_folder(path, file):
            hidden_files.append(file)
    if not hidden_files:
        raise InvalidInput(
            f"{resources.roots.display_path(root_path)} is not hidden, so a command need not ask for it.",
            remedy=f"`needs` takes hidden files, folders around them, and {', '.join(OPENING_NAMES)}.",
        )
    return hidden_files


async def _action_with_needs(
    commands: WorkspaceCommands, resources: ToolResources, action: ToolAction, needs: CommandNeeds
) -> ToolAction:
    """Add to the question which hidden things the command wants to see, and what can't
    be hidden from it.
    """
    reason = _reason_to_ask_for_needs(commands, resources, needs)
    if commands.sandbox.kind is SandboxKind.LANDLOCK:
        if not reason:
            reason = await _reason_to_ask_in_landlock(commands, resources, action, needs)
        title = f"{action.title} in the weaker sandbox, Landlock (bubblewrap is missing or does not work)"
        action = replace(action, title=title)
    if not reason or action.reason_to_ask:
        return action
    return replace(
        action, reason_to_ask=reason, asks_in_every_mode=True, separate_permission="opened"
    )


def _reason_to_ask_for_needs(
    commands: WorkspaceCommands, resources: ToolResources, needs: CommandNeeds
) -> str:
    """Say which access the command wants that others don't have, or nothing."""
    always_open = commands.opened().names
    new_openings = [name for name in needs.openings if name not in always_open]
    files = _display_paths(resources, needs.files)
    if new_openings:
        titles = ", ".join(titles_of_openings(new_openings))
        reason = f"it would use access that other commands don't have: {titles}"
        if needs.files:
            reason = f"{reason}, and files that are hidden from agents: {files}"
        return reason
    if needs.files:
        return f"it would see files that are hidden from agents: {files}"
    return ""


async def _reason_to_ask_in_landlock(
    commands: WorkspaceCommands, resources: ToolResources, action: ToolAction, needs: CommandNeeds
) -> str:
    """Say which files this sandbox would leave visible that should be hidden, or nothing.

    Landlock (a sandbox of the Linux kernel) only allows whole folders, and can't take single
    files out of them.
    """
    if commands.guard is not None:
        await asyncio.to_thread(commands.guard.scan_autorun_files)
    openings = commands.openings_for_command(needs)
    visible_paths = commands.sandbox.paths_left_visible(openings, network=action.network)
    if not visible_paths:
        return ""
    return f"this sandbox, Landlock, cannot hide these files from the command: {_display_paths(resources, visible_paths)}"


def _display_paths(resources: ToolResources, paths: Sequence[str]) -> str:
    root_paths = map(resources.roots.with_nothing_hidden.resolve_path, paths[:_MOST_NAMED])
    listed_paths = ", ".join(map(resources.roots.display_path, root_paths))
    if len(paths) > _MOST_NAMED:
        return f"{listed_paths} and {len(paths) - _MOST_NAMED} more"
    return listed_paths


def _sandbox_hint(
    commands: WorkspaceCommands,
    line: str,
    openings: CommandOpenings,
    network: bool,  # noqa: FBT001 -- of a partial
    output: str,
) -> str:
    """Say which paths that the sandbox hides the command's output complains about, or nothing."""
    folders = [str(folder) for folder in commands.sandbox.folders]
    return describe_hidden_paths(
        line, output, openings, folders, commands.environment, network=network
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
    """Return the action that the user is asked about. Its title names what is unusual: network
    access, and another folder than the workspace's first. `outside`: not in the sandbox.
    """
    title = "Run a command"
    if network:
        title += " with network access"
    if folder != root:
        title += f" in {folder}"
    action = ToolAction(
        ToolName.RUN_COMMAND, ActionEffect.RUN, title, line, command=line, network=network
    )
    if not outside or commands.sandbox.kind is SandboxKind.NONE:
        return action
    return replace(
        action,
        reason_to_ask="it would run outside the sandbox, so it can only be allowed once",
        separate_permission="outside_sandbox",
    )


@dataclass(slots=True)
class _FollowedCommand:
    """A command whose end is awaited, and how it ended."""

    commands: WorkspaceCommands
    resources: ToolResources
    line: str
    command: RunningCommand
    seconds: int
    hint: str = ""
    check: CommandCheck | None = None
    # Gets the end of the output, and says which hidden paths made the command fail.
    explain_hidden_paths: Callable[[str], str] | None = None
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
                await finish_ignoring_cancellation(self.command.kill_and_wait())
            if self.check is not None:
                await finish_ignoring_cancellation(self.check.revert_without_asking())
                self.commands.update_background_checks(self.check)
        # The command is over, and its result counts even if it is stopped now.
        return await finish_ignoring_cancellation(self._build_output_of_command(stored))

    async def _build_output_of_command(self, stored: Stored) -> ToolOutput:
        changes = await find_changes_by_command(self.resources)
        source = self.line[:200]
        if self.was_stopped:
            end = await _read_end_of_output(self.resources, stored)
            return ToolOutput(end, source=source, ok=False, changes=changes, stopped=True)
        has_succeeded = self.code == 0 and not self.is_timed_out
        return ToolOutput(
            stored=stored, source=source, ok=has_succeeded, changes=changes, exit_code=self.code
        )

    async def _store_printed_output(self) -> Stored:
        """Store the whole output. If we are cancelled, end the command and keep what it
        printed so far.
        """
        store_output = self.resources.store_result(self._output_with_footer(), self.line[:200])
        storing_task: asyncio.Task[Stored] = self.commands.spawn(
            store_output, name="output of a command"
        )
        while not storing_task.done():
            try:
                await asyncio.shield(storing_task)
            except asyncio.CancelledError:
                if not storing_task.done():
                    cast("asyncio.Task[object]", asyncio.current_task()).uncancel()
                    self.was_stopped = True
                    self.command.kill_process_tree()
                    if self.check is not None:
                        self.check.cancel_open_question()
        return storing_task.result()

    async def _output_with_footer(self) -> AsyncIterator[bytes]:
        """Yield the output up to the limit, a note, the end, and how the command ended."""
        trimmer = _OutputTrimmer(self.commands.limits.output)
        live_output = _LiveOutput(self.resources.context.show)
        last_bytes = b""
        try:
            async for piece in self.output_until_deadline():
                live_output.add_printed_piece(piece)
                last_bytes = (last_bytes + piece)[-_SHOW_BYTES:]
                yield trimmer.pass_piece_within_limit(piece)
        finally:
            live_output.show_waiting_output()
        yield trimmer.note_and_end_of_output()
        self.code = await self.command.kill_and_wait()
        yield self._format_footer(trimmer.size).encode()
        if self.check is not None:
            note = await self.check.revert_and_ask(self.resources, ask=not self.was_stopped)
            yield note.encode()
        if not self.was_stopped:
            yield await self._hints_after_end(last_bytes, has_output=trimmer.size > 0)

    async def _hints_after_end(self, last_bytes: bytes, *, has_output: bool) -> bytes:
        """Return what helps the agent to understand how the command ended, or nothing."""
        hints = ""
        if self.explain_hidden_paths is not None and self.code:
            text = last_bytes.decode("utf-8", "replace")
            hints = await asyncio.to_thread(self.explain_hidden_paths, text)
        if self.hint and (self.code == 0 or self.hint == NO_NETWORK_NOTE):
            if has_output:
                hints += "\n"
            hints += f"[{self.hint}]\n"
        return hints.encode()

    async def output_until_deadline(self) -> AsyncIterator[bytes]:
        """Yield the command's output until it ends or its time is up, and then end it."""
        output = self.command.iterate_output()
        current_time = asyncio.get_running_loop().time
        deadline = current_time() + self.seconds
        # The deadline also ends a program that prints without a pause.
        while current_time() < deadline:
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
        """Return the note at the end of a command's output on how it ended; none after success,
        unless there was no output at all.
        """
        if self.was_stopped:
            seconds = time.monotonic() - self.started
            return f"\n[stopped after {seconds:.0f} s, before it had ended]\n"
        if self.is_timed_out:
            return f"\n[stopped: it ran longer than {self.seconds} s. Ask for more seconds, or run it in the background.]\n"
        if self.code:
            return f"\n[exit code {self.code}]\n"
        if not size:
            return "[no output, exit code 0]\n"
        return ""


async def _read_end_of_output(resources: ToolResources, stored: Stored) -> bytes:
    """Return the end of a stopped command's output, since nobody said how much of it is wanted."""
    start = max(0, stored.size - _SHOW_BYTES)
    end = await resources.cache.read_range(stored.digest, start, _SHOW_BYTES)
    if start == 0:
        return end
    note = f'[… {start:,} bytes before this: recall_cached_content("{stored.digest.hex}")]\n'
    return note.encode() + end


class _OutputTrimmer:
    """Passes output on up to a limit. Beyond it, keeps the end and counts the rest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail: deque[bytes] = deque()
        self._waiting = 0
        self.size = 0

    def pass_piece_within_limit(self, piece: bytes) -> bytes:
        """Return the part of a piece that is still within the limit. Keep the rest as a part of
        the output's end, and drop what is no longer in the last 64 KB.
        """
        room = max(0, self._limit - self.size)
        self.size += len(piece)
        if len(piece) > room:
            self._tail.append(piece[room:])
            self._waiting += len(piece) - room
            while self._waiting - len(self._tail[0]) >= _TAIL_BYTES:
                self._waiting -= len(self._tail.popleft())
        return piece[:room]

    @property
    def cut_byte_count(self) -> int:
        return max(0, self.size - self._limit - min(self._waiting, _TAIL_BYTES))

    def note_and_end_of_output(self) -> bytes:
        """Return what comes after the output's first part: a note on how much was cut, if
        anything was, and the end.
        """
        tail = b"".join(self._tail)[-_TAIL_BYTES:]
        if not self.cut_byte_count:
            return tail
        note = f"\n[… {self.cut_byte_count:,} bytes were cut here: outputs are kept up to {self._limit:,} bytes …]\n"
        return note.encode() + tail


def _hint_for_command(line: str) -> str:
    """Explain what works differently than in a terminal, such as a `cd`, which affects
    only this command.
    """
    if _CHANGES_ONLY_ITS_SHELL.fullmatch(line):
        return "This held for this command alone: the next one begins anew. Use `folder`, or put both into one command."
    # In a here document, & is text. PowerShell's & calls a program.
    if sys.platform == "win32" or "<<" in line:
        return ""
    leaves_something = _LEAVES_RUNNING.search(_QUOTED.sub("", line)) is not None
    if leaves_something and not _WAITS_FOR_OTHERS.search(line):
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
        """Show a piece of output now, or with the next ones if something was shown just before."""
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
    commands: WorkspaceCommands, resources: ToolResources, background_command: BackgroundCommand
) -> ToolOutput:
    """Keep a command that was started in the background, collect its output from now on, and
    wait a moment: its first output, or how it ended, is the call's output.
    """
    ended = [name for name, command in commands.background.items() if not command.is_running]
    # Of those that have ended, only the newest stay: each holds megabytes of output.
    for name in ended[: -commands.limits.background_commands]:
        del commands.background[name]
    commands.background[background_command.name] = background_command
    checkpoints = resources.workspace_resources.checkpoints
    if checkpoints is not None:
        background_command.step = checkpoints.steps.continue_in_background(
            resources.call.id, resources.context.conversation
        )
    collect_output = background_command.collect_newest_output(
        resources, commands.limits.background_output
    )
    commands.spawn(collect_output, name=f"output of {background_command.name}")
    # A server that cannot start usually fails at once.
    await background_command.wait_for_end_or_output(_FIRST_OUTPUT_SECONDS, for_news=False)
    first_output = background_command.read_new_output()
    state = "still running"
    if not background_command.is_running:
        state = f"ended with exit code {background_command.code}"
    return ToolOutput(
        f"[{background_command.name}: {state}]\n{first_output}",
        source=background_command.command_line[:200],
        ok=not background_command.code,
    )


async def list_commands(
    commands: WorkspaceCommands, _args: ToolArguments, _use: ToolResources
) -> ToolOutput:
    """List the commands that were started in the background, with their states. The tool
    `list_commands`.
    """
    lines = []
    for command in commands.background.values():
        lines.append(f"{command.name}  {command.run_state}  {command.command_line}")
    return ToolOutput("\n".join(lines) or "[no command was started in the background]")


async def read_background_output(
    commands: WorkspaceCommands, args: ToolArguments, resources: ToolResources
) -> ToolOutput:
    """Return what a command in the background has printed since the last call, or with `all`,
    everything that is kept of it. The tool `read_command_output`.

    Before, the user is asked about files that the command changed and that other programs run.
    """
    command = _find_background_command(commands, args.text_argument("name"))
    if command.is_running:
        await command.revert_and_append_note(resources, ask=True)
    if args.flag_argument("all"):
        command.bytes_read = 0
    wait_seconds = min(args.number_argument("wait", 0), 60)
    if wait_seconds:
        await command.wait_for_end_or_output(wait_seconds, for_news=True)
    output = f"[{command.name}: {command.run_state}]\n{command.read_new_output()}"
    return ToolOutput(output, source=command.command_line[:200])


async def stop_command(
    commands: WorkspaceCommands, args: ToolArguments, _use: ToolResources
) -> ToolOutput:
    """End a command in the background, and return the rest of its output. The tool
    `stop_command`.
    """
    command = _find_background_command(commands, args.text_argument("name"))
    command.code = await command.command.kill_and_wait()
    output = f"[{command.name}: stopped]\n{command.read_new_output()}"
    return ToolOutput(output, source=command.command_line[:200])


def _find_background_command(commands: WorkspaceCommands, name: str) -> BackgroundCommand:
    if name not in commands.background:
        known = ", ".join(commands.background) or "none"
        raise NotFound(
            f"No command named {name[:40]!r} was started in the background.",
            remedy=f"Available: {known}.",
        )
    return commands.background[name]


# --- What the model is told of the tools ---

RUN_COMMAND = ToolDeclaration(
    ToolName.RUN_COMMAND,
    "Run a {shell} command. {where}Servers and watchers go to the `background`; read_command_output, list_commands and stop_command follow them (call_tool).",
    {
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "folder": {"type": "string"},
            "seconds": {"type": "integer", "description": "Time limit", "minimum": 1},
            "network": {"type": "boolean"},
            "background": {"type": "boolean"},
            "outside_sandbox": {
                "type": "boolean",
                "description": "Only after the sandbox was in the way",
            },
            "needs": {"type": "string"},
        },
        "required": ["command"],
    },
    runs_alone=True,
)
LIST_COMMANDS = ToolDeclaration(
    ToolName.LIST_COMMANDS,
    "List the commands running in the background.",
    {"type": "object", "properties": {}, "required": []},
    is_rare=True,
)
READ_COMMAND_OUTPUT = ToolDeclaration(
    ToolName.READ_COMMAND_OUTPUT,
    "Read what a command in the background has printed since the last look.",
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Its name, such as bg1"},
            "wait": {
                "type": "integer",
                "description": "Wait up to this many seconds for something new",
            },
            "all": {"type": "boolean", "description": "From the beginning again"},
        },
        "required": ["name"],
    },
    is_rare=True,
)
STOP_COMMAND = ToolDeclaration(
    ToolName.STOP_COMMAND,
    "Stop a command running in the background, and all it started.",
    {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "Its name, such as bg1"}},
        "required": ["name"],
    },
    is_rare=True,
)
