"""Runs an agent through the gateway once and prints what the run cost and saved."""

import os
import shutil
import signal
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from helix_desktop.errors import NotFound, format_things
from helix_desktop.gateway.agent_upstreams import AgentUpstream
from helix_desktop.gateway.known_agents import AgentStart, KnownAgent, except_from_proxy
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.gateway.request_routes import STATUS
from helix_desktop.json_values import parse_object
from helix_desktop.processes.running_command import open_terminal_process
from helix_desktop.processes.starter import CommandAuthor, ProcessLaunch, own_program_command
from helix_desktop.program_folders import WRAP_ADDRESSES, ProgramFolders
from helix_desktop.providers import http_transport

PROXY_VARIABLES = frozenset(("http_proxy", "https_proxy", "all_proxy", "no_proxy"))


def fetch_gateway_status(url: str, patience_seconds: float = 3.0) -> dict[str, Any] | None:
    """Return the gateway's status, or None if it does not answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}{STATUS}", timeout=patience_seconds) as answer:
            return parse_object(answer.read())
    except OSError:  # `URLError` is one, too.
        return None


def command_of_this_program(where: ProgramFolders) -> list[str]:
    if os.environ.get("HELIX_HOME") or where.data == where.config:
        return own_program_command("--home", str(where.data))
    return own_program_command()


def build_registration_for_run(
    agent: str,
    upstream: AgentUpstream,
    environ: Mapping[str, str] = os.environ,
    headers: Sequence[str] = (),
) -> GatewayRegistration:
    """Build the registration for an agent started here, with its folder and its upstream.

    `headers`: names of those that its settings add to its requests.
    """
    wanted = PROXY_VARIABLES | http_transport.CERTIFICATE_VARIABLES
    proxies = {
        name.lower(): value for name, value in environ.items() if name.lower() in wanted and value
    }
    if http_transport.CERTIFICATE_VARIABLES & proxies.keys():
        # Reports an unreadable certificate file before the agent starts.
        http_transport.trusted_certificates(frozenset(proxies.items()))
    return GatewayRegistration(
        "",
        upstream.address,
        agent=agent,
        folder=str(Path.cwd()),
        headers=tuple(headers),
        proxies=proxies,
        since=time.time(),
    )


def check_agent_is_installed(agent: KnownAgent) -> None:
    """Raise if the agent is missing, before a workspace is created for it."""
    if shutil.which(agent.program) is None:
        raise NotFound(
            f"{agent.program} was not found. Install the program, or add it to your PATH.",
            remedy="Agents from npm need Node.js 22 or later: with an older one, npm installs an old version of the agent without saying so.",
        )


def run_agent(agent: KnownAgent, start: AgentStart) -> int:
    """Run the agent in this terminal. Return its exit code. Its address is in a folder
    below `start.scratch`.
    """
    with tempfile.TemporaryDirectory(prefix="wrap-", dir=start.scratch) as scratch:
        launch = agent.launch(replace(start, scratch=Path(scratch) / "agent"))
        for wanted in (signal.SIGINT, getattr(signal, "SIGQUIT", signal.SIGINT)):
            # Ctrl+C in the terminal reaches the agent directly, so this process ignores
            # the signals. A handler that does nothing, because the agent would inherit
            # SIG_IGN.
            signal.signal(wanted, lambda *_: None)
        try:
            own = {
                WRAP_ADDRESSES: " ".join(start.urls.values()),
                **except_from_proxy(start.environ),
            }
            environment = {**os.environ, **launch.environment, **own}
            process = open_terminal_process(
                ProcessLaunch(CommandAuthor.USER, launch.command, environment=environment)
            )
        except FileNotFoundError:  # The file exists, but is a script whose interpreter is missing.
            raise NotFound(
                f"{agent.program} cannot be started. Install the program again."
            ) from None
        for wanted in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            signal.signal(wanted, lambda number, _: os.kill(process.pid, number))
        code = process.wait()
    if code < 0:  # It was ended by a signal: shells say so in this way.
        return 128 - code
    return code


def format_run_summary(figures: Sequence[dict[str, Any]], unrecorded: str = "") -> str:
    """Return what is known of a run's cost and savings. `unrecorded`: why requests were
    not recorded.
    """
    if unrecorded:
        left = f"Helix Desktop: requests were not recorded, and went on as they came. {unrecorded}"
        if figures:
            return f"{format_run_summary(figures)}\n{left}"
        return left
    if not figures:
        return "Helix Desktop: no request to a model was answered through the gateway."
    sent = _sum_of(figures, "sent")
    without = _sum_of(figures, "without")
    if without <= sent:
        count = int(_sum_of(figures, "requests"))
        requests = format_things(count, "request was", "requests were")
        return f"Helix Desktop: {requests} recorded, and no tokens were saved."
    paid = _sum_of(figures, "paid")
    paid_without = _sum_of(figures, "paid_without")
    money = ""
    if paid < paid_without and all(float(figure["paid"]) for figure in figures):
        money = f", ${paid:.2f} instead of ${paid_without:.2f}"
    saved = f"{1 - sent / without:.0%} saved"
    recalls = format_things(int(_sum_of(figures, "recalls")), "recall", "recalls")
    return f"Helix Desktop: {sent:,.0f} tokens sent instead of {without:,.0f} ({saved}){money}; {recalls}."


def _sum_of(figures: Sequence[dict[str, Any]], name: str) -> float:
    return sum(float(figure[name]) for figure in figures)
