"""`ask`: runs one turn of a conversation without a window, and streams the reply. Works
while a window is open.
"""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import TYPE_CHECKING

from helix_desktop import errors
from helix_desktop.commands import workspace_access
from helix_desktop.commands.ask_input import (
    check_ask_arguments,
    is_last_turn_complete,
    read_attached_file,
    read_message_text,
)
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_workspace_option,
    parse_name,
)
from helix_desktop.console import Console
from helix_desktop.engine.facts import Text
from helix_desktop.store.workspace_link import is_set_up_to_be_shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from helix_desktop.commands.turn_output import TurnPrinter
    from helix_desktop.engine.facts import Attachment, UserPart
    from helix_desktop.engine.session import Session
    from helix_desktop.store.stored_workspace import StoredWorkspace
    from helix_desktop.workbench import Workbench

FETCH_SECONDS = 20.0  # A turn waits at most this long for facts that other machines have written.
WAIT_SECONDS = 1.0  # The pause between two checks of whether another machine has finished.


def run_ask_command(arguments: Namespace) -> int:
    check_ask_arguments(arguments)
    if _can_be_client(arguments):
        arguments.run_as_client = _ask_owner
    return workspace_access.run_on_workspace(arguments, source=None)


def _can_be_client(arguments: Namespace) -> bool:
    """Whether a host understands all that is asked. A turn in a copy, of another agent or in a shared
    workspace is run by a command at the owner.
    """
    if arguments.acp or arguments.copy or arguments.copy_with_changes or arguments.choose:
        return False
    return not is_set_up_to_be_shared(workspace_access.find_chosen_workspace(arguments))


async def _ask_owner(arguments: Namespace, workspace: str, console: Console) -> int | None:
    """Asks as a client of the process that has the workspace open. None if that has no agents."""
    # Imported when needed, as most commands find the workspace closed.
    from helix_desktop.commands.ask_as_client import ask_as_client
    from helix_desktop.commands.workspace_owner import WorkspaceOwner

    owner = WorkspaceOwner(arguments.places, workspace, console)
    if await owner.is_serving_clients():
        return await ask_as_client(arguments, owner, console)
    return None


async def ask_in_workspace(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Runs the turn on the workspace's open workbench, or on one that is opened for it."""
    from helix_desktop import workbench

    text = ""
    if not arguments.resume:
        text = await read_message_text(arguments, console)
    opens_workbench = workbench.workbench_of(workspace) is None
    async with workbench.use_workbench(workspace, arguments.places) as bench:
        # Other agents' tools have other names.
        if not arguments.acp and not arguments.conversation:
            workspace_access.check_permission_names(arguments.allow)
        # The named conversation may have been started on another machine, so this comes first.
        is_store_reached = await _fetch_from_other_machines(bench, console)
        await _check_slash_command(bench, arguments, text)
        if opens_workbench:
            conversation_to_resume = ""
            if arguments.resume:
                conversation_to_resume = arguments.conversation
            await _end_turns_left_open(bench, conversation_to_resume, console)
        return await _run_asked_turn(
            bench,
            arguments,
            text,
            console,
            reached=is_store_reached,
            closes_after=opens_workbench,
        )


async def _check_slash_command(bench: Workbench, arguments: Namespace, text: str) -> None:
    """Refuses a mistyped slash command before anything is sent. Other agents have their own."""
    from helix_desktop.workspace_host import message_checks

    if arguments.acp:
        return
    session = None
    if arguments.conversation:
        session = await _open_named_session(bench, arguments.conversation)
    await message_checks.check_slash_command(bench, text, session)


async def _end_turns_left_open(bench: Workbench, resumed: str, console: Console) -> None:
    """Ends turns that a killed command left open, except the one that is to be resumed."""
    from helix_desktop.workbench import interrupted_turns

    keep = ""
    if resumed:
        session = await _open_named_session(bench, resumed)
        keep = session.id
    for conversation in await interrupted_turns.end_interrupted_turns(bench, keep=keep):
        title = conversation
        row = bench.conversation_row(conversation)
        if row:
            title = row.title
        await console.print_error(
            f"The program was stopped during a turn in {title}."
            f" To continue the turn, run: helix-desktop ask -w {bench.id} -c {conversation} --resume"
        )


async def _run_asked_turn(
    bench: Workbench,
    arguments: Namespace,
    text: str,
    console: Console,
    *,
    reached: bool,
    closes_after: bool,
) -> int:
    """Runs the turn, and returns the exit code. `reached`: the shared store could be reached, if
    there is one. `closes_after`: the workspace is closed with the end of this command.
    """
    from helix_desktop.commands.turn_output import TurnPrinter, report_end_of_turn
    from helix_desktop.workspace_host import message_checks

    is_model_needed = not (arguments.conversation or arguments.acp)
    message_checks.check_chosen_model(bench, arguments.model or "", is_needed=is_model_needed)

    session = await _open_asked_session(bench, arguments, console)
    if arguments.resume and is_last_turn_complete(session.conversation.state):
        raise errors.NotFound("There is nothing to continue.", remedy="Nothing was sent.")
    if reached:
        session = await _acquire_or_fork_session(bench, session, arguments.if_busy, console)
    _choose_model_for_turn(bench, session, arguments.model or "")
    # A summary that is begun after the turn would be paid for and lost with this command.
    session.folding.prepares_next_turn = not closes_after

    printer = TurnPrinter(session, frozenset(arguments.allow), as_lines=arguments.json)
    stop_answering = session.subscribe_to_events(printer.answer_question_before_turn)
    try:
        parts = await _read_message_parts(bench, session, arguments, text)
    finally:
        stop_answering()
    await _send_and_print_turn(session, printer, parts, console, closes_after=closes_after)

    is_done = await report_end_of_turn(printer.ended, printer.refused, console)
    is_delivered = True
    if reached:
        is_delivered = await _deliver_to_other_machines(bench, console)
    if is_done and is_delivered:
        return 0
    return 1


async def _send_and_print_turn(
    session: Session,
    printer: TurnPrinter,
    parts: tuple[UserPart, ...],
    console: Console,
    *,
    closes_after: bool,
) -> None:
    """Sends the message and prints until the turn ends. If this is ended first, so is the turn."""
    stop_printing = session.subscribe_to_events(printer.print_event)
    try:
        printer.send_and_print(parts)
        await printer.print_until_turn_ends(console)
        if closes_after:
            await session.folding.wait_for_fold_in_work()
    finally:
        stop_printing()
        printer.stop_or_take_back()


def _choose_model_for_turn(bench: Workbench, session: Session, model: str) -> None:
    from helix_desktop.workspace_host import message_checks

    if model:
        bench.set_model_until_closed(session.id, model)
        return
    if session.conversation.state.acp_agent:
        return
    message_checks.use_recorded_model(bench, session)
    if not bench.model_of_conversation(session.id):
        raise message_checks.no_model_chosen_error(bench)


async def _read_message_parts(
    bench: Workbench, session: Session, arguments: Namespace, text: str
) -> tuple[UserPart, ...]:
    """Returns the message with its files, or nothing if a turn is resumed."""
    if not text:
        return ()
    parts: list[UserPart] = [Text(text)]
    parts += await _attach_files(bench, session, arguments.attach)
    return await bench.slash_commands.expand_command_message(session, tuple(parts))


async def _attach_files(
    bench: Workbench, session: Session, files: Sequence[str]
) -> Sequence[Attachment]:
    """Reads the files before anything is sent. One that cannot be read ends the command."""
    attached: list[Attachment] = []
    for file in files:
        name, content = await read_attached_file(file)
        attached += await bench.attach_file(name, content, session.id)
    return attached


async def _fetch_from_other_machines(bench: Workbench, console: Console) -> bool:
    """Fetches what other machines wrote. Returns False if that failed, in which case
    the local state is used.
    """
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            await bench.sharing.fetch_facts_of_others()
    except errors.SharedStoreUnreachable as error:
        await console.print_error(error.what)
        return False
    except TimeoutError:
        await console.print_error("The shared store is taking too long to respond.")
        return False
    return True


async def _acquire_or_fork_session(
    bench: Workbench, session: Session, if_busy: str, console: Console
) -> Session:
    """Returns a session to write to. If another machine is writing to it, `if_busy`
    decides what to do.
    """
    reported_machine = ""
    while True:
        try:
            await bench.sharing.acquire_lease_for_turn(session.id)
        except errors.SharedStoreUnreachable:
            return session
        except errors.ActionRefused as error:
            machine = bench.sharing.other_machine_writing(session.id)
            if if_busy == "branch":
                return await bench.fork_conversation(session.id)
            if not machine or if_busy == "refuse":
                raise errors.ActionRefused(
                    error.what, remedy="Nothing was sent. Add --if-busy wait or --if-busy branch."
                ) from error
            if machine != reported_machine:
                reported_machine = machine
                await console.print_error(
                    f"Waiting for {machine}, which is working in this conversation."
                )
            await asyncio.sleep(WAIT_SECONDS)
        else:
            return session


async def _deliver_to_other_machines(bench: Workbench, console: Console) -> bool:
    """Sends the turn to the shared store. Returns False if that failed and the user
    wants its confirmation.
    """
    try:
        await bench.sharing.wait_until_sent()
    except errors.HelixError as error:
        await console.print_error(f"Not sent to the shared store yet: {error}")
        link = bench.workspace.link
        return link is None or link.acknowledge == "local"
    return True


async def _open_asked_session(bench: Workbench, arguments: Namespace, console: Console) -> Session:
    """Opens the named conversation, a fork of it in a copy, or a new one."""
    is_in_copy = arguments.copy or arguments.copy_with_changes
    if not is_in_copy:
        session = await _open_named_session(
            bench, arguments.conversation or "", arguments.acp or ""
        )
    elif arguments.conversation:
        named = await _open_named_session(bench, arguments.conversation)
        session = await bench.fork_conversation(named.id, in_copy=True)
    else:
        session = await bench.start_conversation_in_copy(
            with_changes=arguments.copy_with_changes, acp_agent=arguments.acp or ""
        )
    if session.conversation.state.own_copy == session.id:
        line = f"helix-desktop copy bring-back -w {bench.id} {session.id}"
        await console.print_error(
            f"The agent works in a copy. To bring back its changes, run: {line}"
        )
    for choice in arguments.choose:
        option, _, value = choice.partition("=")
        agent = await bench.acp.open_conversation(session.conversation)
        await agent.choose_agent_option(session.conversation, option, value)
    return session


async def _open_named_session(bench: Workbench, name: str, acp_agent: str = "") -> Session:
    """Opens a conversation, or starts a new one without a name."""
    if not name:
        return await bench.start_users_conversation(acp_agent=acp_agent)
    conversation = await workspace_access.find_conversation_by_prefix(bench.workspace, name)
    return await bench.open_session(conversation)


def add_ask_commands(nouns: Subparsers) -> None:
    noun = add_command(
        nouns, "ask", "send a message and print the agent's answer, without a window"
    )
    add_workspace_option(noun)
    noun.add_argument(
        "--conversation",
        "-c",
        metavar="C",
        type=parse_name,
        default=None,
        help="the conversation to continue, by its ID or title",
    )
    noun.add_argument(
        "--model",
        "-m",
        metavar="M",
        type=parse_name,
        default=None,
        help="the model for this conversation, as provider/model",
    )
    noun.add_argument(
        "--allow",
        metavar="WHAT",
        action="append",
        default=[],
        help="edits, commands, all, or the name of a tool. Five permissions are given only by name or with all: hidden (run commands that hide what they run), held (run commands that a rule may deny or may require you to approve), outside_sandbox (run commands outside the sandbox), opened (run commands that use hidden files or other access that you did not give to all commands) and runs_later (change files that other programs run). Anything else that needs permission is refused",
    )
    noun.add_argument(
        "--if-busy",
        choices=["refuse", "wait", "branch"],
        default="refuse",
        help="what to do when another computer is working in the conversation: refuse (send nothing), wait until it has finished, or branch (continue in a copy); default: refuse",
    )
    noun.add_argument(
        "--copy",
        action="store_true",
        help="start the conversation in its own copy of the repository; with --conversation, continue in a fork that works in a copy of its files",
    )
    noun.add_argument(
        "--copy-with-changes",
        action="store_true",
        help="like --copy, but the copy also contains your uncommitted changes",
    )
    noun.add_argument(
        "--acp",
        metavar="AGENT",
        type=parse_name,
        default=None,
        help="start the conversation with an agent that speaks the Agent Client Protocol: one found on this computer, or added in the settings",
    )
    noun.add_argument(
        "--attach",
        metavar="FILE",
        action="append",
        default=[],
        help="attach a file: a text, a picture, or a document (PDF, Word, PowerPoint, Excel, OpenDocument, EPUB, HTML, notebook, CSV), which is sent as text",
    )
    noun.add_argument(
        "--choose",
        metavar="WHAT=VALUE",
        action="append",
        default=[],
        help="with --acp: a mode, a model or another option of the agent",
    )
    noun.add_argument(
        "--resume",
        action="store_true",
        help="with --conversation and without TEXT: continue a turn that was interrupted or stopped at a limit",
    )
    noun.add_argument(
        "--json",
        action="store_true",
        help="print every record of the turn as a line of JSON instead of text",
    )
    noun.add_argument(
        "text",
        metavar="TEXT",
        nargs="*",
        help="the message; - reads standard input, /NAME uses a slash command or skill from the folder",
    )
    noun.set_defaults(
        run=run_ask_command,
        work=ask_in_workspace,
        lasting=True,
        elsewhere="ask",
    )
