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
from helix_desktop.histories.program_names import NAMES
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
MOST_BUSY_TRIES = 12
PATIENCE = 5.0  # The process that has the workspace open must answer within this many seconds.


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
    innermost_root: Path | None = None
    workspace_of_root: KnownWorkspace | None = None
    for workspace in known_workspaces:
        for root in workspace.settings.roots:
            resolved_root = Path(root).resolve()
            if not current_folder.is_relative_to(resolved_root):
                continue
            depth = len(resolved_root.parts)
            if innermost_root is None or depth > len(innermost_root.parts):
                innermost_root = resolved_root
                workspace_of_root = workspace
    if workspace_of_root is not None:
        return workspace_of_root
    if len(known_workspaces) == 1:
        return known_workspaces[0]
    raise errors.NotFound(
        f"{current_folder} is not in a workspace folder.",
        remedy="Specify a workspace with --workspace, or create one for this folder.",
    )


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
    longer = list(argv)
    longer[end_of_options:end_of_options] = options
    return longer


async def run_here_or_at_owner(arguments: Namespace, identity: str, console: Console) -> int:
    """Runs `arguments.work` here, or in the process that has the workspace open, and
    returns the exit code.
    """
    where = arguments.places
    counting = OptionalTokenCounter(wanted=bool(getattr(arguments, "counts", True)))
    workspaces = open_all_workspaces(where, count=counting)
    known = workspaces.find_known_workspace(identity)
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE
    while True:
        try:
            workspace = await workspaces.open_stored_workspace(identity)
        except errors.StoreBusy:
            wire = await running_instance.connect_to_owner(where.run, identity)
            if wire is not None:
                answer = await _run_at_owner(wire, arguments, console)
                # A guest must say again what it said to the process that gave way.
                if answer != running_instance.LATER or _follows_workspace(arguments):
                    return answer
            elif loop.time() > until:
                raise
            await asyncio.sleep(0.05)
        except errors.StoreFailed:
            if not _is_reading(arguments) or not read_only_copy.is_disk_unwritable(known.folder):
                raise
            return await _run_on_temporary_copy(arguments, known, counting, console)
        else:
            code = await _run_as_owner(arguments, workspace, counting, console)
            if code is not None:
                return code
            await asyncio.sleep(running_instance.GIVEN_WAY_SECONDS)


def _is_reading(arguments: Namespace) -> bool:
    """Whether a copy of the workspace is as good. A repair of a copy would help nobody."""
    return getattr(arguments, "reads", False) and not getattr(arguments, "repair", False)


async def _run_at_owner(
    wire: running_instance.FrameConnection, arguments: Namespace, console: Console
) -> int:
    """Runs the command there. If that process ends, an import that gave way to it can
    continue, but not for ever.
    """
    try:
        return await running_instance.run_at_owner(wire, arguments.argv, console)
    except errors.OwnerEnded:
        arguments.lost = getattr(arguments, "lost", 0) + 1
        gave_way = getattr(arguments, "earlier", "")
        if not gave_way or arguments.lost > 3:
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
    busy_tries = 0
    has_been_served = False
    while True:
        try:
            code = await run_here_or_at_owner(arguments, identity, console)
        except errors.OwnerEnded:
            code = running_instance.LATER
        except errors.StoreBusy:
            # A process that is ending holds the workspace for a while without answering.
            busy_tries += 1
            if not has_been_served or busy_tries == MOST_BUSY_TRIES:
                raise
            continue
        if code != running_instance.LATER:
            return code
        has_been_served = True
        busy_tries = 0
        await prepare()
        await _wait_for_next_owner(arguments.places.run, identity)


async def _wait_for_next_owner(run: Path, identity: str) -> None:
    """Lets others open the workspace first. A window that asked for it would have to wait
    for its guests otherwise.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + running_instance.GIVEN_WAY_SECONDS
    while loop.time() < until:
        await asyncio.sleep(MOVE_SECONDS)
        wire = await running_instance.connect_to_owner(run, identity)
        if wire is not None:
            await wire.close()
            return


async def _run_on_temporary_copy(
    arguments: Namespace, known: KnownWorkspace, counting: OptionalTokenCounter, console: Console
) -> int:
    """Runs a read-only command on a temporary copy, because the disk is read-only."""
    with read_only_copy.copy_for_reading(known.folder) as folder:
        async with aclosing(await StoredWorkspace.open(folder, count=counting)) as workspace:
            await console.print_error(
                f"The disk that contains {known.folder} is full or read-only. The data was read from a copy, and nothing was changed."
            )
            arguments.is_on_copy = True
            return await _do_work(arguments, workspace, console)


async def _do_work(arguments: Namespace, workspace: StoredWorkspace, console: Console) -> int:
    try:
        return int(await arguments.work(arguments, workspace, console))
    except UnicodeEncodeError as error:  # Databases accept only text that can be encoded as UTF-8.
        strange = next(
            (word for word in arguments.argv if re.search("[\ud800-\udfff]", word)), None
        )
        if strange is None:
            raise
        raise errors.InvalidInput(
            f"{strange} is not UTF-8 text.", remedy="Enter the text in UTF-8."
        ) from error


async def wait_for_index(workspace: StoredWorkspace, console: Console) -> None:
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
    counting: OptionalTokenCounter,
    console: Console,
) -> int | None:
    """Returns the exit code, or None if the work was stopped to give way to another process."""
    leaving = not getattr(arguments, "lasting", False)

    def give_way() -> None:
        stop_work = getattr(arguments, "stop_work", None)
        if stop_work is not None:
            # The other process asks again meanwhile.
            arguments.stop_work = None
            arguments.gives_way = stop_work()

    async with AsyncExitStack() as last_first:
        last_first.push_async_callback(workspace.aclose)
        if workspace_link.is_set_up_to_be_shared(workspace):
            workspace_link.link_workspace(
                workspace, open_secrets(arguments.places), syncs=not leaving
            )
        release = give_way if leaving else None
        serving = await listen_for_commands(
            workspace, arguments.places, give_way=release, counting=counting
        )
        last_first.push_async_callback(serving.finish_requests)
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
        if bench is not None and not all(session.is_idle for session in bench.sessions):
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
    requests = await running_instance.listen_for_requests(
        where.run,
        workspace.id,
        partial(run_command_of_caller, workspace, where, give_way, counting, onlookers=onlookers),
        patience=None if give_way else LASTING_PATIENCE,
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
    try:  # Imported in a thread, because this is slow and would freeze an open window.
        arguments = await asyncio.to_thread(
            lambda: commands.build_command_line_parser(argv).parse_args(argv)
        )
    except SystemExit as ended:
        return int(ended.code or 0)
    if not hasattr(arguments, "work"):
        raise errors.ActionRefused(
            "This command cannot run while another program has this workspace open.",
            remedy="Close the workspace in the other program first.",
        )
    is_onlooker = getattr(arguments, "looks_on", False)
    if give_way is not None and getattr(arguments, "lasting", False) and not is_onlooker:
        give_way()
        return running_instance.LATER
    if counting is not None:
        counting.wanted |= bool(getattr(arguments, "counts", True))
    arguments.places, arguments.argv = where, argv
    if is_onlooker and onlookers is not None:
        return await _serve_onlooker(arguments, workspace, console, onlookers)
    return await _do_work(arguments, workspace, console)


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
    if not arguments.yes and chosen:
        rows = [row for row in await workspace.journal.list_conversations() if row.id in chosen]
        lines = [f"{row.id}  {row.title or row.begins}" for row in rows]
        await print_result(arguments, console, {"would_remove": [row.id for row in rows]}, *lines)
        return ASKING
    from helix_desktop import workbench

    bench = workbench.workbench_of(workspace)
    delete = (
        workspace.delete_conversations_for_good if bench is None else bench.empty_conversation_trash
    )
    emptied = await delete(chosen) if chosen else EmptyTrashResult()
    figures = {
        "conversations": emptied.conversations,
        "entries": emptied.entries,
        "bytes": emptied.bytes,
    }
    gone = errors.format_things(len(emptied.conversations), "conversation", "conversations")
    entries = errors.format_things(emptied.entries, "entry", "entries")
    line = f"Removed {gone} and {entries} ({emptied.bytes:,} bytes) from {workspace.name}."
    return await print_result(arguments, console, figures, line if chosen else NOTHING_REMOVED)


def check_permission_names(names: Iterable[str]) -> None:
    """Refuses a mistyped `--allow`. A name with an underscore may be an MCP server's tool."""
    known = (*ALLOWED_GROUPS, ToolName.DELEGATE)
    if unknown := [name for name in names if "_" not in name and name not in known]:
        remedy = f"Use {', '.join(known)}, or the name of another tool."
        raise errors.InvalidInput(f"There is no {unknown[0]} to allow.", remedy=remedy)


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
    while piece := await console.read_input():
        content += piece
    return content.decode("utf-8", "replace")


async def find_conversation_by_prefix(
    workspace: StoredWorkspace, prefix: str, *, listed_first: bool = True
) -> str:
    """Finds a conversation by its id's beginning or its title. `listed_first`: others
    only if none fits.
    """
    rows = await workspace.journal.list_conversations()
    named_rows = [row for row in rows if prefix in (row.id, row.title or row.begins)]
    if listed_first:
        listed_rows = [row for row in named_rows if not row.archived and not row.trashed]
        named_rows = listed_rows or named_rows
    if len(named_rows) > 1:
        first_ids = ", ".join(row.id for row in named_rows[:10])
        raise errors.AmbiguousName(
            f"{len(named_rows)} conversations are called {prefix}: {first_ids}.",
            remedy="Use the ID instead of the name.",
        )
    if named_rows:
        return named_rows[0].id
    remedy = "To see all conversations, run `conversation list`."
    ids = [row.id for row in rows]
    return find_id_by_prefix(ids, prefix, ("conversation", "conversations"), remedy)


async def read_agent_of_conversation(workspace: StoredWorkspace, row: StoredConversation) -> str:
    """Returns the name of the connected or recorded agent that began it, or an empty string."""
    # A fork may begin with a fact that does not name the agent.
    first_facts = await workspace.journal.read_facts(row.id, after=row.forked_at, limit=2)
    for recorded in first_facts:
        if isinstance(recorded.fact, ConversationStarted):
            agent = recorded.fact.agent or NAMES.get(recorded.fact.origin.kind, "")
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
