"""`resident`: the process that holds the gateway's address while windows come and go."""

import argparse
import json
from functools import partial

from helix_desktop.commands import Subparsers, add_subcommand, format_local_time
from helix_desktop.console import escape_control_characters
from helix_desktop.gateway import agent_run, agent_settings
from helix_desktop.gateway.agent_identity import title_of_known_agent
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.program_settings import RECORDER, ProgramSettings
from helix_desktop.resident import login_start, resident_client
from helix_desktop.resident.schedules import read_schedules


def add_resident_command(nouns: Subparsers) -> None:
    noun = nouns.add_parser("resident", help="show or control the process that holds the gateway's address")
    noun.add_argument("--run", dest="run_here", action="store_true", help=argparse.SUPPRESS)
    noun.set_defaults(
        run=lambda given: (_run_resident if given.run_here else _print_resident_status)(given), json=False, starts=False
    )
    verbs = noun.add_subparsers(metavar="VERB")
    add_subcommand(verbs, "status", "show the background process and which agents use it", _print_resident_status)
    sentence = "start the background process if it is not running"
    add_subcommand(verbs, "start", sentence, _print_resident_status, starts=True)
    add_subcommand(verbs, "stop", "stop the background process; agents then cannot reach the gateway", _stop_resident)
    add_subcommand(
        verbs, "leave", "remove the gateway's address from the agents' settings, before you uninstall Helix Desktop", _disconnect_all
    )  # fmt: skip


async def _print_resident_status(arguments: argparse.Namespace) -> int:
    command = agent_run.command_of_this_program(arguments.places) if arguments.starts else ()
    found = await resident_client.ask_resident(arguments.places, "status", command=command)
    if arguments.json:
        print(json.dumps(found, indent=1))
    elif found is None:
        _print_that_it_is_stopped("The background process is not running.", arguments.places)
    else:
        print(f"The background process {found['pid']} has been running since {format_local_time(found['since'])}.")
        print(f"The gateway's address is 127.0.0.1:{found['port']}." if found["port"] else "The gateway is not in use.")
        if found["trouble"]:
            print(found["trouble"])
        for one in found["registered"]:
            told = filter(None, (f"- {one['agent'] or 'any agent'}", one["folder"], one["upstream"]))
            print(escape_control_characters(" ".join(told)))
    return 0


async def _stop_resident(arguments: argparse.Namespace) -> int:
    found = await resident_client.ask_resident(arguments.places, "stop")
    if arguments.json:
        print(json.dumps({"stopped": found is not None}))
    else:
        state = "is not running" if found is None else "was stopped"
        _print_that_it_is_stopped(f"The background process {state}.", arguments.places)
    return 0


def _print_that_it_is_stopped(sentence: str, where: ProgramFolders) -> None:
    """Prints the sentence, and what does not work until the background process runs again."""
    waiting = [
        f"- {title_of_known_agent(one.agent)} gets no answers, because its settings contain the gateway's address. "
        f"To remove it, run: helix-desktop wrap --uninstall {one.agent}"
        for one in agent_settings.read_written_registrations(where.config)
    ]
    if ProgramSettings(where.settings_file)[RECORDER]:
        waiting.append("- No conversation is recorded.")
    if any(one.is_on for one in read_schedules(where.data)):
        waiting.append("- No schedule adds a task.")
    if waiting:
        print(f"{sentence} Until it runs again:", *waiting, "To start it, run: helix-desktop resident start", sep="\n")
    else:
        print(f"{sentence} It starts when it is needed.")


async def _disconnect_all(arguments: argparse.Namespace) -> int:
    """Disconnects all agents. If some settings cannot be changed, the exit code is 3 and the address stays."""
    removed, left = agent_settings.remove_all_addresses(arguments.places.config)
    lines = [f"{agent} no longer uses the gateway." for agent in removed] + left or ["No agent used the gateway."]
    if not left:
        login_start.disable_login_start()
        await resident_client.ask_resident(arguments.places, "stop")
        lines.append("The background process is stopped, and no longer starts when you log in.")
    print(json.dumps({"removed": removed, "left": left}) if arguments.json else "\n".join(lines))
    return 3 if left else 0


async def _run_resident(arguments: argparse.Namespace) -> int:
    from helix_desktop.resident import resident_process

    command, tell = agent_run.command_of_this_program(arguments.places), partial(print, "ready", flush=True)
    await resident_process.run_resident(arguments.places, command, tell)
    return 0
