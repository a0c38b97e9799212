"""`wrap`: starts an agent with the gateway's address, or writes it to the agent's settings."""

import json
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from helix_desktop import program_folders, running_instance
from helix_desktop.commands.gateway_command import check_upstream_address
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
    agent_upstreams,
    project_workspace,
    wrapped_agent,
)
from helix_desktop.gateway.agent_upstreams import AgentSurroundings, AgentUpstream
from helix_desktop.gateway.known_agents import (
    AgentStart,
    KnownAgent,
    build_agent_of_command,
    find_known_agent,
)
from helix_desktop.gateway.own_headers import find_own_header_names
from helix_desktop.histories.history_finding import HistoryPlaces, is_opencode2_in_use
from helix_desktop.resident import agent_connecting, resident_client
from helix_desktop.store.all_workspaces import AllWorkspaces


def run_wrap_command(arguments: Namespace) -> int:
    where = arguments.places
    command = _parse_agent_command_words(arguments)
    given = _arguments_for_agent(arguments)
    agent = (
        build_agent_of_command(command, arguments.protocol)
        if command
        else find_known_agent(arguments.agent)
    )
    if arguments.install or arguments.uninstall:
        return _change_agent_configuration(arguments, agent, where)
    surroundings = agent_upstreams.AgentSurroundings(os.environ, Path.home(), Path.cwd(), given)
    if command:
        found = [agent_upstreams.find_protocol_upstream(arguments.protocol, os.environ)]
    else:
        found = agent_upstreams.find_agent_upstreams(agent.name, surroundings)
    upstreams = address_in_agent_settings.resolve_own_addresses(found, where.config)
    check_upstream_address(arguments.upstream)
    if arguments.upstream:
        upstreams = [
            replace(one, address=arguments.upstream, source="--upstream") for one in upstreams
        ]
    if not arguments.dry_run:
        wrapped_agent.check_agent_is_installed(agent)
    _print_notices_before_agent_start(arguments, agent.title, surroundings, upstreams)
    if arguments.dry_run:
        text = escape_control_characters(
            "\n".join(f"{agent.title}, {one.describe_route()}." for one in upstreams)
        )
        routes = [{"agent": agent.name, **asdict(one)} for one in upstreams]
        print_text(dump_printed_json(routes, indent=1) if arguments.json else text)
        return 0
    workspace = _workspace_id_for_agent(where, arguments.workspace)
    environ = agent_upstreams.read_agent_environment(agent.name, surroundings)
    headers = find_own_header_names(agent.name, surroundings)
    built = [
        wrapped_agent.build_registration_for_run(agent.name, upstream, environ, headers)
        for upstream in upstreams
    ]
    registrations = [
        replace(one, folds_plans=arguments.fold_plans, workspace=workspace) for one in built
    ]
    with resident_client.HeldRegistration(
        where, wrapped_agent.command_of_this_program(where), *registrations
    ) as held:
        urls = dict(zip(upstreams, held.addresses, strict=True))
        start = AgentStart(urls, given, environ, running_instance.check_private_folder(where.run))
        code = wrapped_agent.run_agent(agent, start)
        told = [
            wrapped_agent.fetch_gateway_status(url, patience_seconds=20) or {}
            for url in held.addresses
        ]
        done = list(
            {one["conversation"]: one for each in told for one in each.get("figures", [])}.values()
        )
    unrecorded = next((one["unrecorded"] for one in told if "unrecorded" in one), "")
    print_text(
        json.dumps(done) if arguments.json else wrapped_agent.format_run_summary(done, unrecorded),
        file=sys.stderr,
    )
    return code


def _parse_agent_command_words(arguments: Namespace) -> list[str]:
    """Returns the words of `--command`, or an empty list without it, if an agent is named."""
    try:
        words = shlex.split(arguments.command)
    except ValueError as error:
        raise InvalidInput(f"--command is not a valid command line: {error}.", remedy="Quote the command line as in a shell: --command 'qwen --yolo'.") from None  # fmt: skip
    if bool(words) != bool(arguments.protocol):
        raise InvalidInput("--command and --protocol must be used together.", remedy="Add --protocol anthropic, openai or gemini to --command. For a known agent, leave --protocol out.")  # fmt: skip
    if words and "--" in arguments.argv:  # Everything after `--` belongs to the agent.
        arguments.agent, arguments.arguments = "", arguments.argv[arguments.argv.index("--") + 1 :]
    if words and (arguments.install or arguments.uninstall):
        raise InvalidInput("--install and --uninstall work for known agents only.", remedy="Start the agent with wrap --command each time.")  # fmt: skip
    if bool(words) == bool(arguments.agent):
        raise InvalidInput("Enter either an agent or --command.", remedy="For example: wrap claude, or wrap --command 'qwen --yolo' --protocol openai.")  # fmt: skip
    return words


def _arguments_for_agent(arguments: Namespace) -> list[str]:
    """The arguments after `--`. Without `--`: all after the agent's name, except
    options meant for this program.
    """
    given: list[str] = arguments.arguments
    words: list[str] = (
        arguments.argv
    )  # The original command line: argparse may have removed a `--`.
    before = (
        given[: max(0, len(given) - len(words) + words.index("--"))] if "--" in words else given
    )
    if arguments.install or arguments.uninstall:
        arguments.yes, arguments.json = (
            arguments.yes or "--yes" in before,
            arguments.json or "--json" in before,
        )
        before = [one for one in before if one not in ("--yes", "--json")]
        if before:
            raise InvalidInput(f"{before[0]} cannot be used with --install or --uninstall.")
        return []
    own_options = arguments.own_options
    if mistaken := next(
        (one for one in before if own_options & {one.partition("=")[0], one[:2]}), ""
    ):
        raise InvalidInput(
            f"{mistaken} comes after the agent's name. Nothing was started.",
            remedy="Put wrap's own options before the agent's name, and the agent's options after --.",
        )
    return given[1:] if given[:1] == ["--"] else given


def _print_notices_before_agent_start(
    arguments: Namespace,
    title: str,
    surroundings: AgentSurroundings,
    upstreams: Sequence[AgentUpstream],
) -> None:
    told = [
        f"{title}, {one.describe_route()}."
        for one in upstreams
        if one.address and not arguments.dry_run
    ]
    if passing := agent_upstreams.list_bypassing_providers(
        arguments.agent, surroundings, upstreams
    ):
        told.append(
            f"requests to {', '.join(passing)} do not go through the gateway and are not recorded."
        )
    if not arguments.fold_plans and agent_upstreams.uses_subscription_by_settings(
        arguments.agent, surroundings
    ):
        told.append(
            f"recording, not folding: {title} is signed in with a subscription. To fold, use --fold-plans."
        )
    if arguments.agent == "opencode" and is_opencode2_in_use(HistoryPlaces.of_this_user()):
        told.append(
            "opencode 2 works in a background service that this command can't set up yet: what it asks may not go through the gateway. The recorder records its conversations."
        )
    for sentence in told:
        print_text(f"Helix Desktop: {sentence}", file=sys.stderr)


def _workspace_id_for_agent(where: program_folders.ProgramFolders, named: str) -> str:
    """Returns the id of the workspace for the agent's conversations: the named one, or that of this
    folder, which is created if necessary. Empty, for connected agents, if the folder is no project.
    """
    workspaces, folder = AllWorkspaces(where.workspaces_folder), Path.cwd().resolve()
    if named:
        return workspaces.find_known_workspace(named).id
    if not project_workspace.can_be_project_folder(folder, Path.home().resolve()):
        return ""
    found = project_workspace.find_project_workspace(workspaces.list_workspaces(), folder)
    if found is None:
        found = project_workspace.create_project_workspace(workspaces, folder)
        print_text(
            f"Helix Desktop: the new workspace {found.name} stores what agents do in this folder.",
            file=sys.stderr,
        )
    return found.id


def _change_agent_configuration(
    arguments: Namespace, agent: KnownAgent, where: program_folders.ProgramFolders
) -> int:
    if arguments.install and arguments.uninstall:
        raise InvalidInput("Use either --install or --uninstall.")
    change = (
        agent_connecting.prepare_agent_connection(agent, where)
        if arguments.install
        else address_in_agent_settings.plan_address_removal(agent, where.config)
    )
    diff, is_changed = change.as_unified_diff(), change.before != change.after
    say = partial(print, file=sys.stderr if arguments.json else sys.stdout)
    say(diff or f"{change.file} does not need to be changed.")
    if is_changed:
        if not is_confirmed(arguments):
            return 1
        (
            agent_connecting.connect_agent
            if arguments.install
            else agent_connecting.disconnect_agent
        )(change, where)
        say(f"{change.file} was {'deleted' if change.after is None else 'written'}.")
        if arguments.install:
            say("The gateway now runs in the background, and starts when you log in.")
            say("The agent's conversations are saved in the workspace Connected agents.")
    if arguments.json:
        print_text(
            json.dumps(
                {"file": str(change.file), "diff": diff, "written": is_changed}, ensure_ascii=False
            )
        )
    return 0


def add_wrap_commands(nouns: Subparsers) -> None:
    noun = add_command(
        nouns, "wrap", "start Claude Code, Codex, opencode, Gemini CLI or pi through the gateway"
    )
    noun.add_argument(
        "agent", metavar="AGENT", nargs="?", help="the agent: claude, codex, opencode, gemini or pi"
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
        choices=["anthropic", "openai", "openai-chat", "openai-responses", "gemini"],
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
    noun.set_defaults(run=run_wrap_command, own_options=own_options)
