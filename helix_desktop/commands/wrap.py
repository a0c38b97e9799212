"""`wrap`: an agent you have, started with the gateway's address; and that address in its configuration, if you like."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from helix_desktop import places
from helix_desktop.commands import as_json
from helix_desktop.errors import WrongUse

if TYPE_CHECKING:
    from pathlib import Path

    from helix_desktop.commands import Subparsers


def add(nouns: Subparsers) -> None:
    wrap = nouns.add_parser("wrap", help="start Claude Code, Codex, opencode, Gemini CLI or pi through the gateway")
    wrap.add_argument("agent", metavar="AGENT", help="the agent: claude, codex, opencode, gemini or pi")
    wrap.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="-- ARGS", help="arguments that are passed to the agent"
    )
    wrap.add_argument(
        "--workspace",
        "-w",
        metavar="W",
        default="",
        help="the workspace for the agent's conversation (default: the one of this folder)",
    )
    wrap.add_argument(
        "--upstream",
        metavar="URL",
        default="",
        help="send all requests to this address instead of the agent's own provider",
    )
    wrap.add_argument(
        "--fold-plans", action="store_true", help="fold even if the agent is signed in with a subscription"
    )
    wrap.add_argument("--install", action="store_true", help="add the gateway's address to the agent's configuration")
    wrap.add_argument(
        "--uninstall", action="store_true", help="restore the agent's original configuration, byte for byte"
    )
    wrap.add_argument("--yes", action="store_true", help="with --install or --uninstall: do not ask for confirmation")
    as_json(wrap)
    wrap.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from helix_desktop import instance
    from helix_desktop.gateway import agents, wrapping
    from helix_desktop.resident import client

    agent = agents.known(arguments.agent)
    where = places.find(arguments.home)
    if arguments.install or arguments.uninstall:
        return _change(arguments, agent, where)
    given = arguments.arguments[1:] if arguments.arguments[:1] == ["--"] else arguments.arguments
    own = wrapping.registration_of(agent)
    registration = replace(
        own,
        upstream=arguments.upstream or own.upstream,
        folds_plans=arguments.fold_plans,
        workspace=_workspace(where, arguments.workspace),
    )
    with client.HeldRegistration(where, wrapping.program(where), registration) as held:
        code = wrapping.run(agent, given, held.address, instance.private(where.run))
        done = (wrapping.status(held.address) or {}).get("figures", [])
    print(json.dumps(done) if arguments.json else wrapping.line(done), file=sys.stderr)
    return code


def _workspace(where: places.Places, named: str) -> str:
    """The ID of the workspace the agent's conversations go to: the one that is named, or that of this folder, which is made where
    there is none. Empty, for Connected agents, where the folder is nobody's project.
    """
    from pathlib import Path

    from helix_desktop.gateway import project_workspace
    from helix_desktop.store.workspaces import Workspaces

    workspaces, folder = Workspaces(where.workspaces), Path.cwd().resolve()
    if named:
        return workspaces.find(named).id
    if not project_workspace.has_project(folder, Path.home().resolve()):
        return ""
    found = project_workspace.find_project_workspace(workspaces.list(), folder)
    if found is None:
        found = project_workspace.make_project_workspace(workspaces, folder)
        told = f"Helix Desktop: the new workspace {found.name} keeps what agents do in this folder."
        print(told, file=sys.stderr)
    return found.id


def _change(arguments: argparse.Namespace, agent: object, where: places.Places) -> int:
    from helix_desktop.gateway import installing
    from helix_desktop.gateway.agents import KnownAgent
    from helix_desktop.resident import connecting

    if not isinstance(agent, KnownAgent):
        raise TypeError("no agent")
    if arguments.install and arguments.uninstall:
        raise WrongUse("Use either --install or --uninstall.")
    change = connecting.planned(agent, where) if arguments.install else installing.removal(agent, where.config)
    print(change.difference() or f"{change.file} already contains this.")
    if change.before == change.after or not (arguments.yes or _agreed(change.file)):
        return 0
    (connecting.connect if arguments.install else connecting.disconnect)(change, where)
    print(f"{change.file} was written.")
    if arguments.install:
        print("The gateway now runs in the background, and starts when you log in.")
    return 0


def _agreed(file: Path) -> bool:
    if not sys.stdin.isatty():
        raise WrongUse(
            f"{file} was not written, because there is no terminal in which to ask for confirmation.",
            remedy="Add --yes to confirm.",
        )
    return input(f"Write {file}? [y/N] ").strip().lower() in ("y", "yes")
