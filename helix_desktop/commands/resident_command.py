"""`resident`: the process that holds the gateway's address while windows come and go."""

import argparse
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from helix_desktop.commands import format_local_time
from helix_desktop.commands.option_parsing import Subparsers, add_command, add_json_option
from helix_desktop.commands.resident_page import add_page_commands
from helix_desktop.console import Terminal
from helix_desktop.gateway import address_in_agent_settings, wrapped_agent
from helix_desktop.gateway.known_agents import title_of_known_agent
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.program_settings import RECORDER, ProgramSettings
from helix_desktop.resident import login_start, resident_client
from helix_desktop.resident.schedules import read_schedules


async def _print_resident_status(arguments: Namespace) -> int:
    """Prints what the background process does; `resident start` starts it first.

    The background process (called resident) keeps the gateway's address, through which agents send
    their requests, while windows are opened and closed.
    """
    command: Sequence[str] = ()
    if arguments.starts:
        command = wrapped_agent.command_of_this_program(arguments.places)
    status = await resident_client.ask_resident(arguments.places, "status", command=command)
    if status is None:
        lines = _describe_what_waits("The background process is not running.", arguments.places)
    else:
        lines = _describe_resident(status)
    return await _print_answer(arguments, status, *lines)


def _describe_resident(status: Mapping[str, Any]) -> list[str]:
    """Returns the lines that `resident status` prints: the process, its addresses, its agents."""
    since = format_local_time(status["since"])
    lines = [f"The background process {status['pid']} has been running since {since}."]
    if status["port"]:
        lines.append(f"The gateway's address is 127.0.0.1:{status['port']}.")
    else:
        lines.append("The gateway is not in use.")
    if status["trouble"]:
        lines.append(status["trouble"])

    page = status["page"]
    if page and page["trouble"]:
        lines.append(page["trouble"])
    elif page:
        lines.append(f"The page for phones answers at {page['url']}")

    for registered in status["registered"]:
        line = f"- {registered['agent'] or 'any agent'}"
        if registered["folder"]:
            line += f" {registered['folder']}"
        if registered["upstream"]:
            line += f" {registered['upstream']}"
        lines.append(line)
    return lines


async def _stop_resident(arguments: Namespace) -> int:
    """Stops the background process, and says what does not work without it."""
    answer = await resident_client.ask_resident(arguments.places, "stop")
    if answer is None:
        sentence = "The background process is not running."
    else:
        sentence = "The background process was stopped."
    lines = _describe_what_waits(sentence, arguments.places)
    return await _print_answer(arguments, {"stopped": answer is not None}, *lines)


def _describe_what_waits(sentence: str, where: ProgramFolders) -> Sequence[str]:
    """Returns the sentence, and what does not work until the background process runs again."""
    consequences: list[str] = []
    for registration in address_in_agent_settings.read_written_registrations(where.config):
        agent = title_of_known_agent(registration.agent)
        consequences.append(
            f"- {agent} gets no answers, because its settings contain the gateway's address. "
            f"To remove it, run: helix-desktop wrap --uninstall {registration.agent}"
        )
    if ProgramSettings(where.settings_file)[RECORDER]:
        consequences.append("- No conversation is recorded.")
    if any(schedule.is_on for schedule in read_schedules(where.data)):
        consequences.append("- No schedule adds a task.")
    if not consequences:
        return [f"{sentence} It starts when it is needed."]

    lines = [f"{sentence} Until it runs again:"]
    lines += consequences
    lines.append("To start it, run: helix-desktop resident start")
    return lines


async def _disconnect_all(arguments: Namespace) -> int:
    """Disconnects all agents. If some settings cannot be changed, the exit code is 3
    and the address stays.
    """
    disconnected_agents, complaints = address_in_agent_settings.remove_all_addresses(
        arguments.places.config
    )
    lines = [f"{agent} no longer uses the gateway." for agent in disconnected_agents]
    lines += complaints
    if not lines:
        lines.append("No agent used the gateway.")

    if not complaints:
        # An agent whose settings still have the address needs the process that answers there.
        login_start.disable_login_start()
        await resident_client.ask_resident(arguments.places, "stop")
        lines.append("The background process is stopped, and no longer starts when you log in.")
    result = {"removed": disconnected_agents, "left": complaints}
    await _print_answer(arguments, result, *lines)
    if complaints:
        return 3
    return 0


async def _print_answer(arguments: Namespace, value: object, *lines: str) -> int:
    # Imported here, because it takes 5 MB that the background process does not need.
    from helix_desktop.commands.workspace_access import print_result

    return await print_result(arguments, Terminal(), value, *lines)


async def _run_resident(arguments: Namespace) -> int:
    """Is the background process: `resident --run`, which other processes of this program start.
    It prints `ready` once it can be reached.
    """
    from helix_desktop.resident import resident_process

    command = wrapped_agent.command_of_this_program(arguments.places)
    say_ready = partial(print, "ready", flush=True)
    await resident_process.run_resident(arguments.places, command, say_ready)
    return 0


def add_resident_commands(nouns: Subparsers) -> None:
    """Declares `resident` and its verbs. Without a verb, it prints the status."""
    noun = add_command(
        nouns, "resident", "show or control the process that holds the gateway's address"
    )
    noun.set_defaults(run=_print_resident_status, json=False, starts=False, process=_run_resident)
    noun.add_argument(
        "--run", dest="run", action="store_const", const=_run_resident, help=argparse.SUPPRESS
    )
    verbs = noun.add_subparsers(required=False, metavar="VERB")
    _add_resident_status(verbs)
    _add_resident_start(verbs)
    _add_resident_stop(verbs)
    _add_resident_leave(verbs)
    add_page_commands(verbs)


def _add_resident_status(verbs: Subparsers) -> None:
    command = add_command(verbs, "status", "show the background process and which agents use it")
    add_json_option(command)
    command.set_defaults(run=_print_resident_status)


def _add_resident_start(verbs: Subparsers) -> None:
    command = add_command(verbs, "start", "start the background process if it is not running")
    add_json_option(command)
    command.set_defaults(run=_print_resident_status, starts=True)


def _add_resident_stop(verbs: Subparsers) -> None:
    command = add_command(
        verbs, "stop", "stop the background process; agents then cannot reach the gateway"
    )
    add_json_option(command)
    command.set_defaults(run=_stop_resident)


def _add_resident_leave(verbs: Subparsers) -> None:
    command = add_command(
        verbs,
        "leave",
        "remove the gateway's address from the agents' settings, before you uninstall Helix Desktop",
    )
    add_json_option(command)
    command.set_defaults(run=_disconnect_all)
