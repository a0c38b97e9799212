"""Runs a command on a workspace: opens the workspace, or hands the command to the process that has
it open.

A command's work is one coroutine, which gets the open workspace and a console. The caller keeps its
own files: it reads `source` and writes `target` itself, and the work sees both as the console's
input and output.

A process that opens a workspace briefly answers others meanwhile, and ends after the
last answer. So an answer must not wait for a person or a pipe. A command that does
(`lasting`) waits until that process has ended. An import, which may take minutes, gives
way to it and continues in its process.
"""

from __future__ import annotations

import asyncio
import re
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix_desktop import commands, errors, program_folders, program_settings, running_instance
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import (
    Console,
    Terminal,
    dump_printed_json,
    print_text,
)
from helix_desktop.engine.facts import ConversationStarted
from helix_desktop.engine.ports import EmptyTrashResult
from helix_desktop.engine.tool_names import ALLOWED_GROUPS, ToolName
from helix_desktop.histories.added_formats import name_of_program
from helix_desktop.secrets import SecretStorage
from helix_desktop.store import read_only_copy, workspace_link
from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace
from helix_desktop.store.stored_workspace import StoredWorkspace

if TYPE_CHECKING:
    from helix_desktop.store.conversation_rows import StoredConversation
    from helix_desktop.workbench import Workbench

ASKING = 3  # The exit code that tells another process of this program: "the user must agree first".
LASTING_PATIENCE = 1.0
TOLD_EVERY = 2.0  # The interval between progress reports, in seconds.
WAY_TO_FORGET = "To remove it, use `helix-desktop forget -w {} --text -`."
NOTHING_REMOVED = "Removed 0 conversations and 0 entries (0 bytes)."
MOVE_SECONDS = 0.1  # A guest looks so often who has the workspace open after it moved.
# An import continues after this many processes ended while it waited for them.
MOST_LOST_OWNERS = 3
RETRY_SECONDS = 0.05  # After so many seconds, a command tries again to open a busy workspace.
# A process that has the workspace open and does not answer is waited for: without a word at first, and
# not for ever. On a busy computer, one that has just started or is ending may need a minute.
SILENT_WAIT_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 120.0


def run_on_workspace(
    arguments: Namespace,
    *,
    source: Path | None = None,
    target: Path | None = None,
    gather: bool = False,
) -> int:
    """Runs `arguments.work` on the workspace that the arguments name, and returns the exit code."""
    known = find_chosen_workspace(arguments)
    open_all_workspaces(arguments.places).remove_interrupted_imports_and_writes()

    def run_work(arguments: Namespace) -> int:
        with Terminal(source=source, target=target, gather=gather) as console:
            code = asyncio.run(run_here_or_at_owner(arguments, known.id, console))
            if code and target is not None:
                # Raised inside `with`, so that the output file is not replaced.
                raise SystemExit(code)
        return code

    return run_and_confirm(arguments, run_work)


def find_chosen_workspace(arguments: Namespace) -> KnownWorkspace:
    """Returns the named workspace, or that of the current folder, or the only one."""
    workspaces = open_all_workspaces(arguments.places)
    if arguments.workspace is not None:
        return workspaces.find_known_workspace(arguments.workspace)

    current_folder = Path.cwd()
    known_workspaces = workspaces.list_workspaces()
    workspace_of_folder = _find_workspace_of_folder(known_workspaces, current_folder)
    if workspace_of_folder is not None:
        return workspace_of_folder
    if len(known_workspaces) == 1:
        return known_workspaces[0]
    raise errors.NotFound(
        f"{current_folder} is not in a workspace folder.",
        remedy="Specify a workspace with --workspace, or create one for this folder.",
    )


def _find_workspace_of_folder(
    known_workspaces: Sequence[KnownWorkspace], folder: Path
) -> KnownWorkspace | None:
    """Returns the workspace in whose folders `folder` lies: of several, the one whose folder
    is the innermost.
    """
    workspace_of_folder: KnownWorkspace | None = None
    depth_of_innermost = 0
    for workspace in known_workspaces:
        for root in workspace.settings.roots:
            resolved_root = Path(root).resolve()
            depth = len(resolved_root.parts)
            if folder.is_relative_to(resolved_root) and depth > depth_of_innermost:
                depth_of_innermost = depth
                workspace_of_folder = workspace
    return workspace_of_folder


async def run_on_workbench(
    act: Callable[[Workbench, Namespace, Console], Awaitable[int]],
    arguments: Namespace,
    workspace: StoredWorkspace,
    console: Console,
) -> int:
    """Runs the work on the open workbench, or on one that is opened for it."""
    from helix_desktop import workbench

    async with workbench.use_workbench(workspace, arguments.places) as bench:
        return await act(bench, arguments, console)


def run_and_confirm(arguments: Namespace, run: Callable[[Namespace], int]) -> int:
    """Runs work. If it returns ASKING, after it said what it would do, asks and runs it
    with `--yes`.

    It asks here, so that the process that has the workspace open never waits for a person.
    """
    code = run(arguments)
    if code != ASKING:
        return code
    if not is_confirmed(arguments):
        return 1
    arguments.yes = True
    arguments.argv = insert_options(arguments.argv, "--yes")
    return run(arguments)


def is_confirmed(arguments: Namespace) -> bool:
    """Whether `--yes` was given, or the user agrees in a terminal. If not, says what that means."""
    if arguments.yes:
        return True
    can_ask = not arguments.json and bool(sys.stdin and sys.stdin.isatty())
    if not can_ask:
        print_text("Nothing was changed. To confirm, add --yes.", file=sys.stderr)
        return False
    answer = ""
    with suppress(EOFError):
        answer = input("Continue? [y/N] ").strip().lower()
    if answer in ("y", "yes"):
        return True
    print_text("Nothing was changed.", file=sys.stderr)
    return False


def insert_options(argv: Sequence[str], *options: str) -> list[str]:
    """Adds options to a command line. Behind `--` they would not be options."""
    end_of_options = len(argv)
    if "--" in argv:
        end_of_options = argv.index("--")
    before = list(argv[:end_of_options])
    after = list(argv[end_of_options:])
    return before + list(options) + after


async def run_here_or_at_owner(arguments: Namespace, identity: str, console: Console) -> int:
    """Runs `arguments.work` here, or in the process that has the workspace open (its owner), and
    returns the exit code.

    It tries to open the workspace. If it is busy, its owner is asked to run the command. An owner that
    cannot be reached may just be starting, ending or without a processor, so all this is tried again
    until it has been silent for long. Who waits is told so.
    """
    where = arguments.places
    token_counter = OptionalTokenCounter(wanted=_counts_tokens(arguments))
    workspaces = open_all_workspaces(where, count=token_counter)
    known_workspace = workspaces.find_known_workspace(identity)
    silence = OwnerSilence(console)
    while True:
        try:
            workspace = await workspaces.open_stored_workspace(identity)
        except errors.StoreBusy as busy:
            exit_code = await _run_where_open(arguments, identity, console, silence)
            if exit_code is not None:
                return exit_code
            await silence.wait_for_owner(busy)
        except errors.StoreFailed:
            if not _can_run_on_copy(arguments, known_workspace):
                raise
            return await _run_on_temporary_copy(arguments, known_workspace, token_counter, console)
        else:
            own_exit_code = await _run_as_owner(arguments, workspace, token_counter, console)
            if own_exit_code is not None:
                return own_exit_code
            await asyncio.sleep(running_instance.GIVEN_WAY_SECONDS)
            silence.begin_again()


async def _run_where_open(
    arguments: Namespace, identity: str, console: Console, silence: OwnerSilence
) -> int | None:
    """Runs the command in the process that has the workspace open, or as a client of it, which
    outlives it. Returns the exit code, or None if that must be tried again in a moment.
    """
    run_as_client = getattr(arguments, "run_as_client", None)
    if run_as_client is not None:
        client_exit_code: int | None = await run_as_client(arguments, identity, console)
        if client_exit_code is not None or silence.is_short:
            # It may have no agents yet, and a command that ran there would end with it.
            return client_exit_code
    connection = await running_instance.connect_to_owner(arguments.places.run, identity)
    if connection is None:
        return None
    exit_code = await _run_at_owner(connection, arguments, console)
    # A guest must say again what it said to the process that gave way.
    if exit_code != running_instance.LATER or _follows_workspace(arguments):
        return exit_code
    silence.begin_again()
    return None


class OwnerSilence:
    """How long the process that has the workspace open has not answered a command."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_wait_told = False
        self.begin_again()

    def begin_again(self) -> None:
        """Says that the owner has answered, or that this process had the workspace open until now."""
        self._begun = asyncio.get_running_loop().time()

    @property
    def is_short(self) -> bool:
        """Whether it is too short to be told yet."""
        return asyncio.get_running_loop().time() - self._begun < SILENT_WAIT_SECONDS

    async def wait_for_owner(self, busy: errors.StoreBusy) -> None:
        """Waits a moment, and says so once it has taken long. Raises StoreBusy after very long."""
        silent_seconds = asyncio.get_running_loop().time() - self._begun
        if silent_seconds > LONGEST_WAIT_SECONDS:
            raise errors.StoreBusy(
                f"{busy.what} That program has not answered for {silent_seconds:.0f} seconds, so this command was not run there.",
                remedy="It may have been stopped, or the computer may be very busy. Try again later, or end that program if it never answers.",
            ) from busy
        if silent_seconds > SILENT_WAIT_SECONDS and not self._is_wait_told:
            self._is_wait_told = True
            await self._console.print_error(
                f"{busy.what} That program does not answer yet. Waiting for it…"
            )
        await asyncio.sleep(RETRY_SECONDS)


def _counts_tokens(arguments: Namespace) -> bool:
    return bool(getattr(arguments, "counts", True))


def _can_run_on_copy(arguments: Namespace, known_workspace: KnownWorkspace) -> bool:
    """Whether the disk cannot be written, and the command only reads. A repair of a copy would
    help nobody.
    """
    only_reads = getattr(arguments, "reads", False)
    repairs = getattr(arguments, "repair", False)
    if not only_reads or repairs:
        return False
    return read_only_copy.is_disk_unwritable(known_workspace.folder)


async def _run_at_owner(
    connection: running_instance.FrameConnection, arguments: Namespace, console: Console
) -> int:
    """Runs the command in the process that has the workspace open.

    If that process ends, an import that gave way to it can continue (LATER), but not for ever.
    """
    try:
        return await running_instance.run_at_owner(connection, arguments.argv, console)
    except errors.OwnerEnded:
        arguments.lost = getattr(arguments, "lost", 0) + 1
        gave_way = getattr(arguments, "earlier", "")
        if not gave_way or arguments.lost > MOST_LOST_OWNERS:
            raise
        return running_instance.LATER


async def serve_guest_wherever_open(
    arguments: Namespace, identity: str, console: Console, prepare: Callable[[], Awaitable[None]]
) -> int:
    """Serves a guest of a workspace, such as an MCP client, until the guest leaves.

    If the workspace moves to another process meanwhile, `prepare` is called, and the guest
    is served there.
    """
    arguments.follows_workspace = True
    while True:
        try:
            code = await run_here_or_at_owner(arguments, identity, console)
        except errors.OwnerEnded:
            code = running_instance.LATER
        if code != running_instance.LATER:
            return code
        await prepare()
        await _wait_for_next_owner(arguments.places.run, identity)


async def _wait_for_next_owner(run: Path, identity: str) -> None:
    """Lets others open the workspace first. A window that asked for it would have to wait
    for its guests otherwise.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + running_instance.GIVEN_WAY_SECONDS
    while loop.time() < deadline:
        await asyncio.sleep(MOVE_SECONDS)
        connection = await running_instance.connect_to_owner(run, identity)
        if connection is not None:
            await connection.close()
            return


async def _run_on_temporary_copy(
    arguments: Namespace,
    known_workspace: KnownWorkspace,
    token_counter: OptionalTokenCounter,
    console: Console,
) -> int:
    """Runs a read-only command on a temporary copy, because the disk is read-only."""
    with read_only_copy.copy_for_reading(known_workspace.folder) as folder:
        async with aclosing(await StoredWorkspace.open(folder, count=token_counter)) as workspace:
            await console.print_error(
                f"The disk that contains {known_workspace.folder} is full or read-only. The data was read from a copy, and nothing was changed."
            )
            arguments.is_on_copy = True
            return await _do_work(arguments, workspace, console)


async def _do_work(arguments: Namespace, workspace: StoredWorkspace, console: Console) -> int:
    """Runs the command's own coroutine, and returns its exit code."""
    try:
        return int(await arguments.work(arguments, workspace, console))
    except UnicodeEncodeError as error:
        # Databases accept only text that can be encoded as UTF-8. A lone surrogate cannot.
        for word in arguments.argv:
            if re.search("[\ud800-\udfff]", word):
                raise errors.InvalidInput(
                    f"{word} is not UTF-8 text.", remedy="Enter the text in UTF-8."
                ) from error
        raise


async def wait_for_index(workspace: StoredWorkspace, console: Console) -> None:
    """Waits until all entries can be searched, and says from time to time how many are indexed."""
    waiting = OwnedTasks("command").spawn_task(workspace.index.wait_until_indexed(), name="index")
    try:
        while not waiting.done():
            finished_tasks, _ = await asyncio.wait([waiting], timeout=TOLD_EVERY)
            progress = workspace.index.progress
            if finished_tasks or progress.is_complete:
                continue
            done = progress.words + progress.facts
            total = progress.entries + progress.of_facts
            await console.print_error(f"Indexing new entries: {done:,} of {total:,}…")
        await waiting
    finally:
        waiting.cancel()


async def _run_as_owner(
    arguments: Namespace,
    workspace: StoredWorkspace,
    token_counter: OptionalTokenCounter,
    console: Console,
) -> int | None:
    """Runs the command in this process, which answers other commands about the workspace meanwhile.

    Returns the exit code, or None if the work was stopped to give way to another process.
    """
    is_lasting = getattr(arguments, "lasting", False)
    give_way = None
    if not is_lasting:
        give_way = partial(_stop_work_for_another_process, arguments)

    # What is pushed last is closed first.
    async with AsyncExitStack() as closing_stack:
        closing_stack.push_async_callback(workspace.aclose)
        if workspace_link.is_set_up_to_be_shared(workspace):
            secrets = open_secrets(arguments.places)
            workspace_link.link_workspace(workspace, secrets, syncs=is_lasting)
        command_service = await listen_for_commands(
            workspace, arguments.places, give_way=give_way, counting=token_counter
        )
        closing_stack.push_async_callback(command_service.finish_requests)
        # Each note describes a repair made when the workspace was opened.
        for note in workspace.notes:
            await console.print_error(note)
        if _follows_workspace(arguments):
            return await serve_until_released(workspace, _do_work(arguments, workspace, console))
        try:
            return await _do_work(arguments, workspace, console)
        except asyncio.CancelledError:
            if not vars(arguments).pop("gives_way", False):
                raise
            return None


def _stop_work_for_another_process(arguments: Namespace) -> None:
    """Stops the work if it can be stopped, such as an import. The other process asks again
    meanwhile, so the work is stopped only once.
    """
    stop_work = getattr(arguments, "stop_work", None)
    if stop_work is not None:
        arguments.stop_work = None
        arguments.gives_way = stop_work()


def _follows_workspace(arguments: Namespace) -> bool:
    """Whether this command goes on in another process if the workspace is opened there."""
    return bool(getattr(arguments, "follows_workspace", False))


async def serve_until_released(
    workspace: StoredWorkspace, serve: Coroutine[Any, Any, object]
) -> int:
    """Serves a client until it leaves, or until a window wants to open the workspace and no agent
    works here. Returns LATER then: the client finds the window.
    """
    from helix_desktop import workbench
    from helix_desktop.gateway import gateway_workspaces

    tasks = OwnedTasks("client")
    serving = tasks.spawn_task(serve, name="serve a client")
    is_released = asyncio.Event()

    def release_workspace() -> None:
        bench = workbench.workbench_of(workspace)
        if bench is not None and any(session.is_working for session in bench.sessions):
            raise errors.ActionRefused(
                "The agent is working in this workspace.",
                remedy="Wait until the agent has finished.",
            )
        is_released.set()
        serving.cancel()

    withdraw = gateway_workspaces.set_release_handler(workspace.id, release_workspace)
    try:
        await asyncio.wait({serving})
        # A client's server may end without an error when it is cancelled.
        if is_released.is_set():
            return running_instance.LATER
        result = serving.result()
        if isinstance(result, int):
            return result
        return 0
    finally:
        withdraw()
        await tasks.aclose(limit=2)


def open_secrets(where: program_folders.ProgramFolders) -> SecretStorage:
    consent = program_settings.ProgramSettings(where.settings_file)[program_settings.KEYS_IN_FILE]
    return SecretStorage(where.key_file, consent=lambda: consent)


class OptionalTokenCounter:
    """Counts tokens only for commands that need it, because the vocabulary takes 75 MB
    and half a second.
    """

    def __init__(self, *, wanted: bool = True) -> None:
        self.wanted = wanted

    def __call__(self, text: str) -> int:
        if not self.wanted:
            raise errors.StoppedByUser(
                "The tokens have not been counted yet. They are counted later, when a count is needed."
            )
        from helix_desktop import token_counting

        return token_counting.shared_token_counter().count_tokens(text)


def open_all_workspaces(
    where: program_folders.ProgramFolders, *, count: OptionalTokenCounter | None = None
) -> AllWorkspaces:
    return AllWorkspaces(where.workspaces_folder, count=count or OptionalTokenCounter())


class CommandService:
    """Answers commands about an open workspace until it is finished."""

    def __init__(self, requests: running_instance.RequestListener, onlookers: OwnedTasks) -> None:
        self._requests = requests
        self._onlookers = onlookers

    async def finish_requests(self) -> None:
        """Waits for the commands that run, but not for clients of the host: they find its successor."""
        await self._onlookers.aclose(limit=1)
        await self._requests.finish_requests()


async def listen_for_commands(
    workspace: StoredWorkspace,
    where: program_folders.ProgramFolders,
    *,
    give_way: Callable[[], None] | None = None,
    counting: OptionalTokenCounter | None = None,
) -> CommandService:
    """Answers commands about `workspace` while this process has it open. Finishing the
    service waits for running commands; one that may never end (`mcp`) is stopped after
    a moment. `give_way`: called for such a command, which is then not answered, because
    this process has the workspace open only briefly.
    """
    onlookers = OwnedTasks("clients of the host")
    answer_command = partial(
        run_command_of_caller, workspace, where, give_way, counting, onlookers=onlookers
    )
    patience = None
    if give_way is None:
        patience = LASTING_PATIENCE
    requests = await running_instance.listen_for_requests(
        where.run, workspace.id, answer_command, patience=patience
    )
    return CommandService(requests, onlookers)


async def run_command_of_caller(
    workspace: StoredWorkspace,
    where: program_folders.ProgramFolders,
    give_way: Callable[[], None] | None,
    counting: OptionalTokenCounter | None,
    argv: list[str],
    console: Console,
    *,
    onlookers: OwnedTasks | None = None,
) -> int:
    """Runs a caller's command line on the open workspace, whatever workspace it names."""
    # In a thread, because this imports the command's modules, which would freeze an open window.
    try:
        arguments = await asyncio.to_thread(_parse_command_line, argv)
    except SystemExit as ended:
        return int(ended.code or 0)
    if not hasattr(arguments, "work"):
        raise errors.ActionRefused(
            "This command cannot run while another program has this workspace open.",
            remedy="Close the workspace in the other program first.",
        )
    is_onlooker = getattr(arguments, "looks_on", False)
    is_lasting = getattr(arguments, "lasting", False)
    if give_way is not None and is_lasting and not is_onlooker:
        give_way()
        return running_instance.LATER

    if counting is not None and _counts_tokens(arguments):
        counting.wanted = True
    arguments.places = where
    arguments.argv = argv
    if is_onlooker and onlookers is not None:
        return await _serve_onlooker(arguments, workspace, console, onlookers)
    return await _do_work(arguments, workspace, console)


def _parse_command_line(argv: Sequence[str]) -> Namespace:
    return commands.build_command_line_parser(argv).parse_args(argv)


async def _serve_onlooker(
    arguments: Namespace, workspace: StoredWorkspace, console: Console, onlookers: OwnedTasks
) -> int:
    """Serves a client of the host as long as this process has agents, and no longer: it keeps nobody
    waiting. LATER if no agent can work here, as a client would open a workbench for nothing.
    """
    from helix_desktop import workbench

    if workbench.workbench_of(workspace) is None:
        return running_instance.LATER
    looking = onlookers.spawn_task(_do_work(arguments, workspace, console), name="look on")
    try:
        await asyncio.wait({looking})
    finally:
        # If the client has gone without a word, nobody else would ever end this.
        looking.cancel()
    if looking.cancelled():
        return running_instance.LATER
    return looking.result()


async def delete_if_confirmed(
    arguments: Namespace, workspace: StoredWorkspace, console: Console, chosen: Collection[str]
) -> int:
    """Deletes these conversations for ever with `--yes`. Otherwise lists them."""
    if chosen and not arguments.yes:
        ids: list[str] = []
        lines: list[str] = []
        for row in await workspace.journal.list_conversations():
            if row.id in chosen:
                ids.append(row.id)
                lines.append(f"{row.id}  {row.title or row.begins}")
        await print_result(arguments, console, {"would_remove": ids}, *lines)
        return ASKING

    removed = EmptyTrashResult()
    line = NOTHING_REMOVED
    if chosen:
        removed = await _delete_for_good(workspace, chosen)
        conversations = errors.format_things(
            len(removed.conversations), "conversation", "conversations"
        )
        entries = errors.format_things(removed.entries, "entry", "entries")
        line = f"Removed {conversations} and {entries} ({removed.bytes:,} bytes) from {workspace.name}."
    figures = {
        "conversations": removed.conversations,
        "entries": removed.entries,
        "bytes": removed.bytes,
    }
    return await print_result(arguments, console, figures, line)


async def _delete_for_good(workspace: StoredWorkspace, chosen: Collection[str]) -> EmptyTrashResult:
    """Deletes conversations through the open workbench, if there is one: it also closes their
    sessions and takes them off its list.
    """
    from helix_desktop import workbench

    bench = workbench.workbench_of(workspace)
    if bench is not None:
        return await bench.empty_conversation_trash(chosen)
    return await workspace.delete_conversations_for_good(chosen)


def check_permission_names(names: Iterable[str]) -> None:
    """Refuses a mistyped `--allow`. A name with an underscore may be an MCP server's tool."""
    known_names = list(ALLOWED_GROUPS)
    known_names.append(ToolName.DELEGATE)
    for name in names:
        if "_" not in name and name not in known_names:
            remedy = f"Use {', '.join(known_names)}, or the name of another tool."
            raise errors.InvalidInput(f"There is no {name} to allow.", remedy=remedy)


async def print_result(arguments: Namespace, console: Console, value: Any, *lines: str) -> int:
    """Prints the value with `--json`, and the lines otherwise. Returns the exit code
    for success.
    """
    if arguments.json:
        await console.print_line(dump_printed_json(value, indent=1))
        return 0
    for line in lines:
        await console.print_line(line)
    return 0


async def read_whole_input(console: Console) -> str:
    content = bytearray()
    piece = await console.read_input()
    while piece:
        content += piece
        piece = await console.read_input()
    return content.decode("utf-8", "replace")


async def find_conversation_by_prefix(
    workspace: StoredWorkspace, prefix: str, *, listed_first: bool = True
) -> str:
    """Finds a conversation by its id's beginning or its title. `listed_first`: others
    only if none fits.
    """
    rows = await workspace.journal.list_conversations()
    ids_with_name = _list_ids_with_name(rows, prefix, listed_first=listed_first)
    if len(ids_with_name) > 1:
        first_ids = ", ".join(ids_with_name[:10])
        raise errors.AmbiguousName(
            f"{len(ids_with_name)} conversations are called {prefix}: {first_ids}.",
            remedy="Use the ID instead of the name.",
        )
    if ids_with_name:
        return ids_with_name[0]

    all_ids = [row.id for row in rows]
    remedy = "To see all conversations, run `conversation list`."
    return find_id_by_prefix(all_ids, prefix, ("conversation", "conversations"), remedy)


def _list_ids_with_name(
    rows: Sequence[StoredConversation], name: str, *, listed_first: bool
) -> list[str]:
    """Returns the ids of the conversations that have this id or title."""
    ids: list[str] = []
    listed_ids: list[str] = []
    for row in rows:
        title = row.title or row.begins
        if name not in (row.id, title):
            continue
        ids.append(row.id)
        if not row.archived and not row.trashed:
            listed_ids.append(row.id)
    if listed_first and listed_ids:
        return listed_ids
    return ids


async def read_agent_of_conversation(workspace: StoredWorkspace, row: StoredConversation) -> str:
    """Returns the name of the connected or recorded agent that began it, or an empty string."""
    # A fork may begin with a fact that does not name the agent.
    first_facts = await workspace.journal.read_facts(row.id, after=row.forked_at, limit=2)
    for recorded in first_facts:
        if isinstance(recorded.fact, ConversationStarted):
            agent = recorded.fact.agent or name_of_program(recorded.fact.origin.kind)
            if agent:
                return agent
    return ""


def find_id_by_prefix(
    ids: Iterable[str], prefix: str, singular_and_plural: tuple[str, str], remedy: str
) -> str:
    """Returns the only id with this beginning. `remedy`: how to list the ids."""
    singular, plural = singular_and_plural
    matching_ids = [candidate for candidate in ids if candidate.startswith(prefix)]
    if len(matching_ids) > 1:
        raise errors.AmbiguousName(
            f"The IDs of {len(matching_ids)} {plural} begin with {prefix}.",
            remedy="Enter more characters of the ID.",
        )
    if not matching_ids:
        raise errors.NotFound(
            f"There is no {singular} with an ID that begins with {prefix}.", remedy=remedy
        )
    return matching_ids[0]
