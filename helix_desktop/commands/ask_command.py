"""`ask`: runs one turn of a conversation without a window, and streams the reply. Works
while a window is open.
"""

from __future__ import annotations

import asyncio
import re
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop import errors
from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_workspace_option,
    parse_name,
)
from helix_desktop.console import Console
from helix_desktop.engine.facts import Text, TurnEnd, TurnEnded, UserSaid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from helix_desktop.engine.facts import Attachment, UserPart
    from helix_desktop.engine.session import Session
    from helix_desktop.engine.view import ConversationState
    from helix_desktop.store.stored_workspace import StoredWorkspace
    from helix_desktop.workbench import Workbench

FETCH_SECONDS = 20.0  # A turn waits at most this long for facts that other machines have written.
LARGEST_ATTACHED = 200 << 20  # Bytes.
WAIT_SECONDS = 1.0  # The pause between two checks of whether another machine has finished.


def run_ask_command(arguments: Namespace) -> int:
    if arguments.resume and (arguments.text or arguments.attach or not arguments.conversation):
        raise errors.InvalidInput(
            "To resume a turn, specify its conversation with --conversation and no TEXT."
        )
    if not arguments.resume and not arguments.text:
        raise errors.InvalidInput("There is no message.", remedy="Enter a message as TEXT, or use - to read standard input.")  # fmt: skip
    return workspace_access.run_on_workspace(arguments, source=None)


async def ask_in_workspace(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    from helix_desktop import workbench

    text = ""
    if not arguments.resume:
        text = await read_message_text(arguments, console)
    opens_it = workbench.workbench_of(workspace) is None
    async with workbench.use_workbench(workspace, arguments.places) as bench:
        if not (arguments.acp or arguments.conversation):  # Other agents' tools have other names.
            workspace_access.check_permission_names(arguments.allow)
        if not arguments.acp:
            await _check_slash_command(bench, text, arguments.conversation or "")
        reached = await _fetch_from_other_machines(bench, console)
        if opens_it:
            resumed = ""
            if arguments.resume:
                resumed = arguments.conversation
            await _end_turns_left_open(bench, resumed, console)
        return await _run_asked_turn(
            bench, arguments, text, console, reached=reached, closes_after=opens_it
        )


async def _check_slash_command(bench: Workbench, text: str, conversation: str) -> None:
    """Refuses an unknown or untrusted command. A message may begin with a path."""
    named = re.match(r"/([\w:.-]+)(?!\S)", text)
    if named is None or await asyncio.to_thread(Path(named[0]).exists):
        return
    command_name = named[1]
    server = command_name.partition(":")[0]
    if server in bench.workspace.settings.mcp:  # The server may still be starting.
        return
    await bench.project.reread_project_folders()
    if conversation:
        session = await _open_named_session(bench, conversation)
        if session.conversation.state.acp_agent:  # The agent has commands of its own.
            return
    known_commands = bench.slash_commands.list_slash_commands()
    if any(item.name == command_name for item in known_commands):
        return
    for item in bench.project.now.items:
        if item.kind in ("command", "skill") and item.name == command_name:
            raise errors.ActionRefused(
                f"{named[0]} is {item.state_description}. Nothing was sent.",
                remedy=f"See `project show {item.settings_key}`, then use `project trust` or `project on`.",
            )
    raise errors.InvalidInput(
        f"There is no command or skill {named[0]}. Nothing was sent.",
        remedy="To see the commands and skills, run `project list`. To send a text that begins with / as it is, put a space before it.",
    )


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


async def read_message_text(arguments: Namespace, console: Console) -> str:
    text = " ".join(arguments.text)
    if text == "-":
        text = await workspace_access.read_whole_input(console)
    if not text.strip():
        raise errors.InvalidInput("The message is empty.")
    return text


async def _run_asked_turn(
    bench: Workbench,
    arguments: Namespace,
    text: str,
    console: Console,
    *,
    reached: bool,
    closes_after: bool,
) -> int:
    """Runs the turn. `closes_after`: the workspace is closed with the end of this command."""
    from helix_desktop.commands.turn_output import TurnPrinter, report_end_of_turn

    _check_model_before_anything_is_created(bench, arguments)
    session = await _open_asked_session(bench, arguments, console)
    if arguments.resume and is_last_turn_complete(session.conversation.state):
        raise errors.NotFound("There is nothing to continue.", remedy="Nothing was sent.")
    if reached:
        session = await _acquire_or_fork_session(bench, session, arguments.if_busy, console)
    if arguments.model:
        bench.set_model_until_closed(session.id, arguments.model)
    elif not (session.conversation.state.acp_agent or bench.model_of_conversation(session.id)):
        raise _no_model_chosen_error(bench)
    # A summary that is begun after the turn would be paid for and lost with this command.
    session.folding.prepares_next_turn = not closes_after
    telling = TurnPrinter(session, frozenset(arguments.allow), as_lines=arguments.json)
    unsubscribe = session.subscribe_to_events(telling.answer_question_before_turn)
    try:
        parts = await _read_message_parts(bench, session, arguments, text)
    finally:
        unsubscribe()
    unsubscribe = session.subscribe_to_events(telling.print_event)
    try:
        telling.send_and_print(parts)
        await telling.print_until_turn_ends(console)
        if closes_after:
            await session.folding.wait_for_fold_in_work()
    finally:
        unsubscribe()
        telling.stop_or_take_back()
    is_done = await report_end_of_turn(telling.ended, telling.refused, console)
    is_delivered = True
    if reached:
        is_delivered = await _deliver_to_other_machines(bench, console)
    if is_done and is_delivered:
        return 0
    return 1


def _check_model_before_anything_is_created(bench: Workbench, arguments: Namespace) -> None:
    if arguments.model:
        bench.models.model_by_name(arguments.model)
    elif not (arguments.conversation or bench.main_model_name or arguments.acp):
        raise _no_model_chosen_error(bench)


async def _read_message_parts(
    bench: Workbench, session: Session, arguments: Namespace, text: str
) -> tuple[UserPart, ...]:
    if not text:
        return ()
    attached = await _attach_files(bench, session, arguments.attach)
    said: tuple[UserPart, ...] = (Text(text), *attached)
    return await bench.slash_commands.expand_command_message(session, said)


async def _attach_files(
    bench: Workbench, session: Session, files: Sequence[str]
) -> Sequence[Attachment]:
    """Reads the files before anything is sent. One that cannot be read ends the command."""
    attached: list[Attachment] = []
    for file in files:
        name, content = await read_attached_file(file)
        attached += await bench.attach_file(name, content, session.id)
    return attached


async def read_attached_file(file: str) -> tuple[str, bytes]:
    """Returns the file's name and content. InvalidInput if it cannot be read."""
    path = Path(file)
    try:
        status = await asyncio.to_thread(path.stat)
        if status.st_size > LARGEST_ATTACHED:
            raise errors.InvalidInput(
                f"{path.name} is larger than 200 MB. Nothing was sent.",
                remedy="Name the file in the message instead.",
            )
        content = await asyncio.to_thread(path.read_bytes)
    except OSError as error:
        raise errors.InvalidInput(
            f"{file} could not be read: {error.strerror or error}. Nothing was sent."
        ) from error
    return path.name, content


def is_last_turn_complete(state: ConversationState) -> bool:
    """Whether the last turn is finished, or none was started."""
    for recorded in reversed(state.facts_on_path()):
        fact = recorded.fact
        if isinstance(fact, UserSaid):
            return False
        if isinstance(fact, TurnEnded):
            return fact.reason is TurnEnd.DONE
    return True


async def _fetch_from_other_machines(bench: Workbench, console: Console) -> bool:
    """Fetches what other machines wrote. Returns False if that failed, in which case
    the local state is used.
    """
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            await bench.sharing.fetch_facts_of_others()
            return True
    except errors.SharedStoreUnreachable as error:
        await console.print_error(error.what)
    except TimeoutError:
        await console.print_error("The shared store is taking too long to respond.")
    return False


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
    if not (arguments.copy or arguments.copy_with_changes):
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
        what, _, value = choice.partition("=")
        foreign = await bench.acp.open_conversation(session.conversation)
        await foreign.choose_agent_option(session.conversation, what, value)
    return session


async def _open_named_session(bench: Workbench, name: str, acp_agent: str = "") -> Session:
    """Opens a conversation, or starts a new one without a name."""
    if not name:
        return await bench.start_users_conversation(acp_agent=acp_agent)
    named = await workspace_access.find_conversation_by_prefix(bench.workspace, name)
    return await bench.open_session(named)


def _no_model_chosen_error(bench: Workbench) -> errors.InvalidInput:
    return errors.InvalidInput(
        f"No model has been chosen for {bench.name}.",
        remedy="Choose a model with --model or `helix-desktop model set`.",
    )


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
