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
from helix_desktop.gateway.known_agent import AgentStart, KnownAgent, except_from_proxy
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.gateway.request_routes import STATUS
from helix_desktop.json_values import parse_object
from helix_desktop.processes.running_command import open_terminal_process
from helix_desktop.processes.starter import CommandAuthor, ProcessLaunch, own_program_command
from helix_desktop.program_folders import WRAP_ADDRESSES, ProgramFolders
from helix_desktop.providers import http_transport

PROXY_VARIABLES = frozenset(("http_proxy", "https_proxy", "all_proxy", "no_proxy"))
# Windows has neither SIGQUIT nor SIGHUP.
_KEYBOARD_SIGNALS = {signal.SIGINT, getattr(signal, "SIGQUIT", signal.SIGINT)}
_ENDING_SIGNALS = {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}


def fetch_gateway_status(url: str, patience_seconds: float = 3.0) -> dict[str, Any] | None:
    """Return the gateway's status, or None if it does not answer."""
    # A proxy for 127.0.0.1 would see the token in the address, so none is used.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}{STATUS}", timeout=patience_seconds) as answer:
            return parse_object(answer.read())
    except OSError:  # `URLError` is one, too.
        return None


def command_of_this_program(where: ProgramFolders) -> list[str]:
    """Return the command that starts this program again, with the same home."""
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
    wanted_names = PROXY_VARIABLES | http_transport.CERTIFICATE_VARIABLES
    proxies: dict[str, str] = {}
    for name, value in environ.items():
        lower_name = name.lower()
        if value and lower_name in wanted_names:
            proxies[lower_name] = value
    names_certificates = bool(http_transport.CERTIFICATE_VARIABLES & proxies.keys())
    if names_certificates:
        # Reports an unreadable certificate file before the agent starts.
        http_transport.trusted_certificates(frozenset(proxies.items()))
    folder = str(Path.cwd())
    return GatewayRegistration(
        token="",
        upstream=upstream.address,
        agent=agent,
        folder=folder,
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
    """Run the agent in this terminal until it ends, and return its exit code as a shell would.

    Signals from the keyboard reach the agent directly. Those that end this process are passed on
    to it. `start.scratch`: the folder in which the agent gets one of its own for this run.
    """
    with tempfile.TemporaryDirectory(prefix="wrap-", dir=start.scratch) as scratch:
        launch = agent.launch(replace(start, scratch=Path(scratch) / "agent"))
        environment = dict(os.environ)
        environment.update(launch.environment)
        environment[WRAP_ADDRESSES] = " ".join(start.urls.values())
        environment.update(except_from_proxy(start.environ))

        # Ctrl+C in the terminal reaches the agent directly, so this process does nothing then.
        # It must not ignore the signals, as the agent would inherit that.
        for signal_number in _KEYBOARD_SIGNALS:
            signal.signal(signal_number, _do_nothing_on_signal)
        try:
            process = open_terminal_process(
                ProcessLaunch(
                    CommandAuthor.USER,
                    launch.command,
                    environment=environment,
                    keeps_search_path=True,
                )
            )
        except FileNotFoundError:  # The file exists, but is a script whose interpreter is missing.
            raise NotFound(
                f"{agent.program} cannot be started. Install the program again."
            ) from None

        def pass_signal_on(signal_number: int, _frame: object) -> None:
            os.kill(process.pid, signal_number)

        for signal_number in _ENDING_SIGNALS:
            signal.signal(signal_number, pass_signal_on)
        exit_code = process.wait()
    if exit_code < 0:  # It was ended by a signal: shells say so in this way.
        return 128 - exit_code
    return exit_code


def _do_nothing_on_signal(_signal_number: int, _frame: object) -> None:
    pass


def format_run_summary(
    figures: Sequence[dict[str, Any]],
    unrecorded: str = "",
    beside: int = 0,
    unfolded: str = "",
    unread: str = "",
    unserved: str = "",
) -> str:
    """Return what is known of a run's cost and savings. `unrecorded`: why requests were
    not recorded. `beside`: so many were answered that belong to no conversation here.
    `unfolded`: why nothing was shortened. `unread`: a sentence about requests that went on unread.
    `unserved`: why the provider does not answer in the agent's protocol.
    """
    unpaid: list[str] = []
    if unserved:
        unpaid.append(unserved)
    if unfolded:
        unpaid.append(f"nothing was shortened. {unfolded}")
    if unrecorded:
        unpaid.append(f"requests were not recorded, and went on as they came. {unrecorded}")
    if unread:
        unpaid.append(unread)
    if beside == 1:
        unpaid.append(
            "1 request was answered that belongs to no conversation here, so `cost` does not have it."
        )
    elif beside:
        unpaid.append(
            f"{beside:,} requests were answered that belong to no conversation here, so `cost` does not have them."
        )
    lines = [f"Helix Desktop: {sentence}" for sentence in unpaid]
    if figures or not lines:
        lines.insert(0, _format_figures(figures))
    return "\n".join(lines)


def _format_figures(figures: Sequence[dict[str, Any]]) -> str:
    if not figures:
        return "Helix Desktop: no request to a model was answered through the gateway."

    sent = _sum_of(figures, "sent")
    without = _sum_of(figures, "without")
    estimate = _format_unanswered(figures)
    if without <= sent:
        count = int(_sum_of(figures, "requests"))
        requests = format_things(count, "request was", "requests were")
        return f"Helix Desktop: {requests} recorded, and no tokens were saved.{estimate}"

    saved = f"{1 - sent / without:.0%} saved"
    money = _format_saved_money(figures)
    recalls = format_things(int(_sum_of(figures, "recalls")), "recall", "recalls")
    return f"Helix Desktop: {sent:,.0f} tokens sent instead of {without:,.0f} ({saved}){money}; {recalls}.{estimate}"


def _format_unanswered(figures: Sequence[dict[str, Any]]) -> str:
    """Return the sentence that says how much of the figures is an estimate, if anything is."""
    # A gateway of an earlier version does not say it.
    unanswered = sum(int(figure.get("unanswered", 0)) for figure in figures)
    tokens = sum(int(figure.get("estimated", 0)) for figure in figures)
    if not unanswered:
        return ""
    if unanswered == 1:
        return f" One request got no whole answer: its {tokens:,} tokens are an estimate."
    return f" {unanswered} requests got no whole answer: their {tokens:,} tokens are an estimate."


def _format_saved_money(figures: Sequence[dict[str, Any]]) -> str:
    """Return what was paid and would have been paid, or nothing if a price is not known or both
    are the same in cents.
    """
    for figure in figures:
        if not float(figure["paid"]):
            return ""
    paid = f"${_sum_of(figures, 'paid'):.2f}"
    paid_without = f"${_sum_of(figures, 'paid_without'):.2f}"
    is_cheaper = _sum_of(figures, "paid") < _sum_of(figures, "paid_without")
    if not is_cheaper or paid == paid_without:
        return ""  # "$0.00 instead of $0.00" would say less than the tokens do.
    return f", {paid} instead of {paid_without}"


def _sum_of(figures: Sequence[dict[str, Any]], name: str) -> float:
    return sum(float(figure[name]) for figure in figures)
