"""`wrap`: starts an agent with the gateway's address, or writes it to the agent's settings."""

import json
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from helix_desktop import program_folders, running_instance
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_yes_option,
    option_words,
)
from helix_desktop.commands.workspace_access import is_confirmed
from helix_desktop.console import dump_printed_json, escape_control_characters, print_text
from helix_desktop.errors import InvalidInput
from helix_desktop.gateway import (
    address_in_agent_settings,
    project_workspace,
    wrapped_agent,
)
from helix_desktop.gateway.agent_upstreams import (
    PROTOCOLS_OF_AGENTS,
    AgentSurroundings,
    AgentUpstream,
    check_upstream_address,
)
from helix_desktop.gateway.known_agent import AgentStart, KnownAgent
from helix_desktop.gateway.known_agents import (
    KNOWN_AGENTS,
    build_agent_of_command,
    find_known_agent,
)
from helix_desktop.gateway.own_headers import find_own_header_names
from helix_desktop.histories.installed_agent_versions import NEEDED_NODE, find_old_agent
from helix_desktop.resident import agent_connecting, resident_client
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.workbench.unread_requests import UnreadSum, describe_unread_requests

# The gateway has this many seconds to say what the agent's requests took.
STATUS_SECONDS = 20


def run_wrap_command(arguments: Namespace) -> int:
    """Starts an agent through the gateway, or changes its settings with `--install`, or with
    `--dry-run` only says where its requests would go.
    """
    command_words = _parse_agent_command_words(arguments)
    agent_arguments = _arguments_for_agent(arguments)
    if command_words:
        agent = build_agent_of_command(command_words, arguments.protocol)
    else:
        agent = find_known_agent(arguments.agent)
    if arguments.install or arguments.uninstall:
        return _change_agent_configuration(arguments, agent, arguments.places)

    surroundings = AgentSurroundings(os.environ, Path.home(), Path.cwd(), agent_arguments)
    upstreams = _find_upstreams(arguments, agent, surroundings)
    if not arguments.dry_run:
        wrapped_agent.check_agent_is_installed(agent)
    _print_notices_before_agent_start(arguments, agent, surroundings, upstreams)
    if arguments.dry_run:
        _print_routes(arguments, agent, upstreams)
        return 0
    return _run_agent_through_gateway(arguments, agent, surroundings, upstreams)


def _find_upstreams(
    arguments: Namespace, agent: KnownAgent, surroundings: AgentSurroundings
) -> list[AgentUpstream]:
    """Returns where the agent's requests go, as its settings or `--upstream` say."""
    upstreams_in_settings = agent.find_upstreams(surroundings)
    # With --install, the agent's settings name the gateway. The address that they named before counts.
    upstreams = address_in_agent_settings.resolve_own_addresses(
        upstreams_in_settings, arguments.places.config
    )
    check_upstream_address(arguments.upstream)
    if not arguments.upstream:
        return upstreams
    return [
        replace(upstream, address=arguments.upstream, source="--upstream") for upstream in upstreams
    ]


def _print_routes(
    arguments: Namespace, agent: KnownAgent, upstreams: Sequence[AgentUpstream]
) -> None:
    """Prints where the requests would go, for `--dry-run`."""
    if arguments.json:
        routes: list[dict[str, Any]] = []
        for upstream in upstreams:
            route: dict[str, Any] = {"agent": agent.name}
            route.update(asdict(upstream))
            routes.append(route)
        print_text(dump_printed_json(routes, indent=1))
        return
    lines = [f"{agent.title}, {upstream.describe_route()}." for upstream in upstreams]
    print_text(escape_control_characters("\n".join(lines)))


def _run_agent_through_gateway(
    arguments: Namespace,
    agent: KnownAgent,
    surroundings: AgentSurroundings,
    upstreams: Sequence[AgentUpstream],
) -> int:
    """Runs the agent until it ends, prints what it did, and returns its exit code.

    A registration is a secret address of the gateway for this run. The agent gets one for each
    address that it would send requests to (its upstreams), and they hold until it has ended.
    """
    where = arguments.places
    workspace_id = _workspace_id_for_agent(where, arguments.workspace)
    environ = agent.read_environment(surroundings)
    headers = find_own_header_names(agent, surroundings)
    registrations = []
    for upstream in upstreams:
        registration = wrapped_agent.build_registration_for_run(
            agent.name, upstream, environ, headers
        )
        registration = replace(
            registration, folds_plans=arguments.fold_plans, workspace=workspace_id
        )
        registrations.append(registration)

    program = wrapped_agent.command_of_this_program(where)
    with resident_client.HeldRegistration(where, program, *registrations) as held_registration:
        gateway_urls = held_registration.addresses
        url_of_upstream = dict(zip(upstreams, gateway_urls, strict=True))
        run_folder = running_instance.check_private_folder(where.run)
        agent_start = AgentStart(url_of_upstream, surroundings.arguments, environ, run_folder)
        exit_code = wrapped_agent.run_agent(agent, agent_start)
        # The gateway forgets these figures when the registration ends.
        statuses: list[dict[str, Any]] = []
        for url in gateway_urls:
            status = wrapped_agent.fetch_gateway_status(url, patience_seconds=STATUS_SECONDS)
            if status:
                statuses.append(status)
    _print_run_summary(arguments, statuses)
    return exit_code


def _print_run_summary(arguments: Namespace, statuses: Sequence[dict[str, Any]]) -> None:
    """Prints what the agent's requests took and what folds saved, for each conversation once."""
    # Addresses that share a conversation report the same figures. Each counts once.
    figures_by_conversation = {}
    unrecorded = ""
    unfolded = ""
    unserved = ""
    unread = UnreadSum()
    beside = 0
    for status in statuses:
        beside += int(status.get("beside", 0))
        if "unread" in status:
            unread.add_unread_sum(status["unread"])
        for figures in status.get("figures", []):
            figures_by_conversation[figures["conversation"]] = figures
        if not unrecorded:
            unrecorded = status.get("unrecorded", "")
        if not unfolded:
            unfolded = status.get("unfolded", "")
        if not unserved:
            unserved = status.get("unserved", "")
    all_figures = list(figures_by_conversation.values())
    if arguments.json:
        summary = json.dumps(all_figures)
    else:
        summary = wrapped_agent.format_run_summary(
            all_figures, unrecorded, beside, unfolded, describe_unread_requests(unread), unserved
        )
    print_text(summary, file=sys.stderr)


def _parse_agent_command_words(arguments: Namespace) -> list[str]:
    """Returns the words of `--command`, or an empty list without it, if an agent is named."""
    try:
        words = shlex.split(arguments.command)
    except ValueError as error:
        raise InvalidInput(f"--command is not a valid command line: {error}.", remedy="Quote the command line as in a shell: --command 'qwen --yolo'.") from None  # fmt: skip
    if bool(words) != bool(arguments.protocol):
        raise InvalidInput("--command and --protocol must be used together.", remedy="Add --protocol anthropic, openai or gemini to --command. For a known agent, leave --protocol out.")  # fmt: skip
    if words and "--" in arguments.argv:
        # Everything after `--` belongs to the agent. The parser took the first word for its name.
        arguments.agent = ""
        arguments.arguments = arguments.argv[arguments.argv.index("--") + 1 :]
    if words and (arguments.install or arguments.uninstall):
        raise InvalidInput("--install and --uninstall work for known agents only.", remedy="Start the agent with wrap --command each time.")  # fmt: skip
    if bool(words) == bool(arguments.agent):
        raise InvalidInput("Enter either an agent or --command.", remedy="For example: wrap claude, or wrap --command 'qwen --yolo' --protocol openai.")  # fmt: skip
    return words


def _arguments_for_agent(arguments: Namespace) -> list[str]:
    """The arguments after `--`. Without `--`: all after the agent's name, except
    options meant for this program.
    """
    words_after_agent: list[str] = arguments.arguments
    words_before_dashes = _words_before_dashes(words_after_agent, arguments.argv)
    if arguments.install or arguments.uninstall:
        _take_options_of_install(arguments, words_before_dashes)
        return []

    for word in words_before_dashes:
        long_name = word.partition("=")[0]
        short_name = word[:2]
        if long_name in arguments.own_options or short_name in arguments.own_options:
            raise InvalidInput(
                f"{word} comes after the agent's name. Nothing was started.",
                remedy="Put wrap's own options before the agent's name, and the agent's options after --.",
            )
    if words_after_agent[:1] == ["--"]:
        return words_after_agent[1:]
    return words_after_agent


def _words_before_dashes(words_after_agent: list[str], command_line: Sequence[str]) -> list[str]:
    """Returns the words between the agent's name and `--`, or all of them without `--`.

    They are counted from the end of the command line, as argparse may have removed the `--`.
    """
    if "--" not in command_line:
        return words_after_agent
    count_from_dashes = len(command_line) - command_line.index("--")
    count_before_dashes = max(0, len(words_after_agent) - count_from_dashes)
    return words_after_agent[:count_before_dashes]


def _take_options_of_install(arguments: Namespace, words: Sequence[str]) -> None:
    """Sets `--yes` and `--json` if they come after the agent's name. Nothing else may come there."""
    if "--yes" in words:
        arguments.yes = True
    if "--json" in words:
        arguments.json = True
    for word in words:
        if word not in ("--yes", "--json"):
            raise InvalidInput(f"{word} cannot be used with --install or --uninstall.")


def _print_notices_before_agent_start(
    arguments: Namespace,
    agent: KnownAgent,
    surroundings: AgentSurroundings,
    upstreams: Sequence[AgentUpstream],
) -> None:
    """Says where requests go and what is not recorded or folded, before the agent's own output."""
    notices = []
    if not arguments.dry_run:
        for upstream in upstreams:
            if upstream.address:
                notices.append(f"{agent.title}, {upstream.describe_route()}.")

    bypassing = agent.list_bypassing_providers(surroundings, upstreams)
    if bypassing:
        notices.append(
            f"requests to {', '.join(bypassing)} do not go through the gateway and are not recorded."
        )

    if agent.uses_subscription(surroundings) and not arguments.fold_plans:
        notices.append(
            f"recording, not folding: {agent.title} is signed in with a subscription. To fold, use --fold-plans."
        )

    notice_of_agent = agent.notice(surroundings)
    if notice_of_agent:
        notices.append(notice_of_agent)
    old_agent = find_old_agent(arguments.agent or "")
    if old_agent is not None:
        notices.append(
            f"{old_agent.program} {old_agent.version} is an old version. With a Node.js older than {NEEDED_NODE}, npm installs one without saying so."
        )
    for notice in notices:
        print_text(f"Helix Desktop: {notice}", file=sys.stderr)


def _workspace_id_for_agent(where: program_folders.ProgramFolders, workspace_name: str) -> str:
    """Returns the id of the workspace for the agent's conversations: the named one, or that of this
    folder, which is created if necessary. Empty, for connected agents, if the folder is no project.
    """
    workspaces = AllWorkspaces(where.workspaces_folder)
    if workspace_name:
        return workspaces.find_known_workspace(workspace_name).id

    folder = Path.cwd().resolve()
    if not project_workspace.can_be_project_folder(folder, Path.home().resolve()):
        return ""
    workspace = project_workspace.find_project_workspace(workspaces.list_workspaces(), folder)
    if workspace is None:
        workspace = project_workspace.create_project_workspace(workspaces, folder)
        print_text(
            f"Helix Desktop: the new workspace {workspace.name} stores what agents do in this folder.",
            file=sys.stderr,
        )
    return workspace.id


def _change_agent_configuration(
    arguments: Namespace, agent: KnownAgent, where: program_folders.ProgramFolders
) -> int:
    """Shows how the agent's configuration would change, and changes it once the user agrees."""
    if arguments.install and arguments.uninstall:
        raise InvalidInput("Use either --install or --uninstall.")
    _refuse_options_of_one_run(arguments)
    if arguments.install:
        change = agent_connecting.prepare_agent_connection(agent, where)
    else:
        change = address_in_agent_settings.plan_address_removal(agent, where.config)
    diff = change.as_unified_diff()
    is_changed = change.before != change.after
    # With --json, only the JSON goes to the output, so that a script can read it.
    sentences_file = sys.stdout
    if arguments.json:
        sentences_file = sys.stderr
    print_sentence = partial(print, file=sentences_file)

    print_sentence(diff or f"{change.file} does not need to be changed.")
    if is_changed:
        if not is_confirmed(arguments):
            return 1
        if arguments.install:
            agent_connecting.connect_agent(change, where)
        else:
            agent_connecting.disconnect_agent(change, where)
        if change.after is None:
            print_sentence(f"{change.file} was deleted.")
        else:
            print_sentence(f"{change.file} was written.")
        if arguments.install:
            _say_what_holds_after_install(agent, print_sentence)

    if arguments.json:
        result = {"file": str(change.file), "diff": diff, "written": is_changed}
        print_text(json.dumps(result, ensure_ascii=False))
    return 0


def _say_what_holds_after_install(
    agent: KnownAgent, print_sentence: Callable[[str], object]
) -> None:
    print_sentence("The gateway now runs in the background, and starts when you log in.")
    print_sentence("The agent's conversations are saved in the workspace Connected agents.")
    notice = agent.notice_of_settings()
    if notice:
        print_sentence(notice)


def _refuse_options_of_one_run(arguments: Namespace) -> None:
    """Raises for an option that `--install` and `--uninstall` would do nothing with."""
    given = {
        "--upstream": arguments.upstream,
        "--workspace": arguments.workspace,
        "--fold-plans": arguments.fold_plans,
        "--dry-run": arguments.dry_run,
    }
    for option, value in given.items():
        if not value:
            continue
        remedy = "Leave it out, or start the agent with wrap each time."
        if option == "--upstream":
            remedy = "Name the address in the agent's own settings first: its requests then go there through the gateway."
        raise InvalidInput(f"{option} cannot be used with --install or --uninstall.", remedy=remedy)


def add_wrap_commands(nouns: Subparsers) -> None:
    """Declares `wrap`, which has no verbs."""
    titles = [agent.title for agent in KNOWN_AGENTS.values()]
    sentence = f"start {', '.join(titles[:-1])} or {titles[-1]} through the gateway"
    noun = add_command(nouns, "wrap", sentence)
    noun.add_argument(
        "agent", metavar="AGENT", nargs="?", help=f"the agent: {', '.join(KNOWN_AGENTS)}"
    )
    noun.add_argument(
        "--command",
        metavar="LINE",
        default="",
        help="start any other agent with this command line, for example 'qwen --yolo'; {url} is replaced with the gateway's address",
    )
    noun.add_argument(
        "--protocol",
        metavar="P",
        choices=sorted(PROTOCOLS_OF_AGENTS),
        default="",
        help="with --command: the protocol that the agent uses: anthropic, openai (also openai-chat and openai-responses) or gemini",
    )
    noun.add_argument(
        "--workspace",
        "-w",
        metavar="W",
        default="",
        help="the workspace for the agent's conversation (default: the workspace of this folder)",
    )
    noun.add_argument(
        "--upstream",
        metavar="URL",
        default="",
        help="send all requests to this address instead of the agent's own provider",
    )
    noun.add_argument(
        "--fold-plans",
        action="store_true",
        help="shorten (fold) old messages even if the agent is signed in with a subscription",
    )
    noun.add_argument(
        "--dry-run",
        action="store_true",
        help="show where the agent's requests would go and why, without starting the agent",
    )
    noun.add_argument(
        "--install",
        action="store_true",
        help="add the gateway's address to the agent's configuration",
    )
    noun.add_argument(
        "--uninstall",
        action="store_true",
        help="restore the agent's original configuration, byte for byte",
    )
    add_yes_option(noun)
    add_json_option(noun)
    noun.add_argument(
        "arguments", metavar="-- ARGS", nargs="...", help="arguments that are passed to the agent"
    )
    own_options = option_words(noun) | {"--home"}
    # The agent gets all variables, as from the user's shell.
    noun.set_defaults(run=run_wrap_command, own_options=own_options, keeps_variables=True)
