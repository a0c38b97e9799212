"""`resident`: the process that holds the gateway's address while windows come and go."""

import argparse
from argparse import Namespace
from collections.abc import Sequence
from functools import partial

from helix_desktop.commands import format_local_time
from helix_desktop.commands.option_parsing import Subparsers, add_command, add_json_option
from helix_desktop.commands.resident_page import add_page_commands
from helix_desktop.console import Terminal
from helix_desktop.gateway import address_in_agent_settings, wrapped_agent
from helix_desktop.gateway.agent_identity import title_of_known_agent
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.program_settings import RECORDER, ProgramSettings
from helix_desktop.resident import login_start, resident_client
from helix_desktop.resident.schedules import read_schedules


async def _print_resident_status(arguments: Namespace) -> int:
    command = wrapped_agent.command_of_this_program(arguments.places) if arguments.starts else ()
    found = await resident_client.ask_resident(arguments.places, "status", command=command)
    if found is None:
        lines = _describe_what_waits("The background process is not running.", arguments.places)
        return await _print_answer(arguments, None, *lines)
    lines = [
        f"The background process {found['pid']} has been running since {format_local_time(found['since'])}."
    ]
    address = f"The gateway's address is 127.0.0.1:{found['port']}."
    lines.append(address if found["port"] else "The gateway is not in use.")
    if found["trouble"]:
        lines.append(found["trouble"])
    if found["page"]:
        answers = (
            found["page"]["trouble"] or f"The page for phones answers at {found['page']['url']}"
        )
        lines.append(answers)
    for one in found["registered"]:
        lines.append(
            " ".join(
                filter(None, (f"- {one['agent'] or 'any agent'}", one["folder"], one["upstream"]))
            )
        )
    return await _print_answer(arguments, found, *lines)


async def _stop_resident(arguments: Namespace) -> int:
    found = await resident_client.ask_resident(arguments.places, "stop")
    state = "is not running" if found is None else "was stopped"
    lines = _describe_what_waits(f"The background process {state}.", arguments.places)
    return await _print_answer(arguments, {"stopped": found is not None}, *lines)


def _describe_what_waits(sentence: str, where: ProgramFolders) -> Sequence[str]:
    """Returns the sentence, and what does not work until the background process runs again."""
    waiting = [
        f"- {title_of_known_agent(one.agent)} gets no answers, because its settings contain the gateway's address. "
        f"To remove it, run: helix-desktop wrap --uninstall {one.agent}"
        for one in address_in_agent_settings.read_written_registrations(where.config)
    ]
    if ProgramSettings(where.settings_file)[RECORDER]:
        waiting.append("- No conversation is recorded.")
    if any(one.is_on for one in read_schedules(where.data)):
        waiting.append("- No schedule adds a task.")
    if not waiting:
        return [f"{sentence} It starts when it is needed."]
    return [
        f"{sentence} Until it runs again:",
        *waiting,
        "To start it, run: helix-desktop resident start",
    ]


async def _disconnect_all(arguments: Namespace) -> int:
    """Disconnects all agents. If some settings cannot be changed, the exit code is 3
    and the address stays.
    """
    removed, left = address_in_agent_settings.remove_all_addresses(arguments.places.config)
    lines = [f"{agent} no longer uses the gateway." for agent in removed] + left or [
        "No agent used the gateway."
    ]
    if not left:
        login_start.disable_login_start()
        await resident_client.ask_resident(arguments.places, "stop")
        lines.append("The background process is stopped, and no longer starts when you log in.")
    await _print_answer(arguments, {"removed": removed, "left": left}, *lines)
    return 3 if left else 0


async def _print_answer(arguments: Namespace, value: object, *lines: str) -> int:
    from helix_desktop.commands.workspace_access import (
        print_result,
    )  # 5 MB that the resident does not need.

    return await print_result(arguments, Terminal(), value, *lines)


async def _run_resident(arguments: Namespace) -> int:
    from helix_desktop.resident import resident_process

    command, tell = (
        wrapped_agent.command_of_this_program(arguments.places),
        partial(print, "ready", flush=True),
    )
    await resident_process.run_resident(arguments.places, command, tell)
    return 0


def add_resident_commands(nouns: Subparsers) -> None:
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
