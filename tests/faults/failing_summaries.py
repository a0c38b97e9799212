"""Models that cannot write a handover, behind the real agents: the conversation goes on.

python -m tests.faults.failing_summaries [--agent NAME] [--model NAME] [--steps 40]

HELIX_CLIENTS: see tests/benchmarks/gateway_clients.py. Each agent works through the gateway with
long outputs that nothing shortens but handovers. Its model does the work, and each time it is
asked for a handover it fails in one way. Then at most three attempts may have been paid, no request
may be over the window, one sentence must say what happened, and all steps must be done.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.engine import failed_fold_attempts
from helix_desktop.engine.facts import Folded, FoldFailed, FoldKind
from helix_desktop.engine.strategies.handover import SECTIONS
from helix_desktop.gateway.agent_upstreams import AgentUpstream
from helix_desktop.gateway.known_agent import AgentStart
from helix_desktop.gateway.known_agents import find_known_agent
from helix_desktop.protocols.gateway_message import PieceKind
from helix_desktop.protocols.protocol_table import WIRE_MODULES
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.benchmarks.gateway_clients import BEGINS, KEY, PACKAGES, SHELLS, _arguments, installed
from tests.benchmarks.gateway_clients import _names as names_of_tools
from tests.faults.store_report import report
from tests.gateway.running import running
from tests.peers.agent_provider import Asked, Block, Provider, Says
from tests.peers.agent_provider import Calls as ToolCall

LONGEST_SECONDS = 300.0
MOST_ATTEMPTS = 3
CHARACTERS_PER_TOKEN = 3.0  # Of numbers in lines; the agents' own instructions have more.
TITLE_BYTES = 20_000  # A request for a title of the agent's is shorter.
WINDOW_TOKENS = {
    "claude": 200_000,
    "codex": 272_000,
    "opencode": 200_000,
    "gemini": 1_000_000,
    "pi": 200_000,
}
HANDOVER_TOKENS = 60_000  # A request of this length makes a handover due,
LEAST_HANDOVER_SHARE = 0.1  # but not with less than this share of the window.
ASKS_FOR_HANDOVER = SECTIONS[0]
ASKS_FOR_JSON = b'"responseMimeType":"application/json"'
FAILING_REPLIES: dict[str, Sequence[Block] | int] = {
    "keeps no detail": [Says("\n\n".join(f"## {name}\nAll is well." for name in SECTIONS))],
    "is too long": [
        Says("\n\n".join(f"## {name}\n" + "on and on \n" * 9_000 for name in SECTIONS))
    ],
    "has another form": [Says('{"sections": []}')],
    "answers nothing": [Says("")],
    "errs": 500,
}


def is_asked_for_handover(asked: Asked) -> bool:
    """Whether the last message asks for it. The handover itself stands further ahead."""
    messages = WIRE_MODULES[asked.protocol].parse_messages(asked.body)
    for piece in messages[-1].pieces_of_kind(PieceKind.TEXT):
        if ASKS_FOR_HANDOVER in piece.text:
            return True
    return False


class FailingModel:
    """Runs a numbered command with a long output in each step, and fails at handovers."""

    def __init__(self, steps: int, reply_to_handover: Sequence[Block] | int) -> None:
        self.steps = steps
        self.reply_to_handover = reply_to_handover
        self.done_count = 0
        self.handover_count = 0
        self.longest_request_tokens = 0

    def script(self, asked: Asked) -> Sequence[Block] | int:
        tokens = round(len(asked.raw) / CHARACTERS_PER_TOKEN)
        self.longest_request_tokens = max(self.longest_request_tokens, tokens)
        if is_asked_for_handover(asked):
            self.handover_count += 1
            return self.reply_to_handover
        shell = next((name for name in names_of_tools(asked.body) if name in SHELLS), "")
        if not shell and ASKS_FOR_JSON in asked.raw:
            return [Says("{}")]  # Gemini CLI checks whether the model repeats itself.
        if not shell:
            # Either the agent wants a title, or a part of a long text is to be summarized.
            if len(asked.raw) > TITLE_BYTES:
                return self.reply_to_handover
            return [Says("{}")]
        self.done_count += 1
        if self.done_count > self.steps:
            return [Says("All done.")]
        first = self.done_count * 10_000
        command = f"seq {first} {first + 4_000}; echo step {self.done_count}"
        return [Says(f"step {self.done_count}"), ToolCall(shell, _arguments(shell, command))]

    def usage(self, asked: Asked) -> dict[str, int]:
        return {"input": round(len(asked.raw) / CHARACTERS_PER_TOKEN), "read": 0, "write": 0}


def run_agent(agent: str, url: str, home: Path, place: Path) -> str:
    """Let the agent do its work through the gateway. Return what is wrong with its end."""
    program = installed(Path(os.environ.get("HELIX_CLIENTS", "/tmp/helix-clients")), agent)
    arguments = list(BEGINS[agent])
    if agent == "claude":  # The model that it takes by itself has a window of 1,000,000 tokens.
        arguments += ["--model", "claude-sonnet-4-5"]
    elif agent == "codex":  # It would shorten its history itself.
        arguments[arguments.index("-c") + 1] = "model_auto_compact_token_limit=10000000"
    elif agent == "gemini":
        arguments = ["--yolo", "--skip-trust", "-m", "gemini-2.5-flash", "-p", "do the work"]
    environment = {
        **os.environ,
        **dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), KEY),
        "HOME": str(home),
        "PWD": str(place),
        "PATH": f"{program}:{os.environ['PATH']}",
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    start = AgentStart({AgentUpstream(): url}, arguments, environment, home / "scratch")
    launch = find_known_agent(agent).launch(start)
    try:
        ended = subprocess.run(
            launch.command,
            cwd=place,
            env={**environment, **launch.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it had not ended after {LONGEST_SECONDS:.0f} s"
    if ended.returncode:
        return f"exit {ended.returncode}: {(ended.stdout + ended.stderr)[-600:]}"
    return ""


async def create_workspace(home: Path, place: Path, handover_share: float) -> None:
    """Create the workspace of the agent's conversation, in which nothing but handovers shortens."""
    thresholds = {
        "admission": "off",
        "caching": "off",
        "handover": "share",
        "handover_share": handover_share,
    }
    workspaces = AllWorkspaces(program_folders.find_program_folders(home).workspaces_folder)
    known = workspaces.create_stored_workspace("Work", place)
    workspace = await workspaces.open_stored_workspace(known.id)
    workspace.change_settings({"policy.preset": "layered", "policy.values": thresholds})
    await workspace.aclose()


async def read_folds(home: Path) -> tuple[list[FoldFailed], Counter[FoldKind]]:
    """Return the failed folds of the agent's conversations, and how many of each kind worked."""
    workspaces = AllWorkspaces(program_folders.find_program_folders(home).workspaces_folder)
    workspace = await workspaces.open_stored_workspace("Work")
    failures: list[FoldFailed] = []
    folds = Counter[FoldKind]()
    for row in await workspace.journal.list_conversations():
        for recorded in await workspace.journal.read_facts(row.id):
            if isinstance(recorded.fact, FoldFailed):
                failures.append(recorded.fact)
            if isinstance(recorded.fact, Folded):
                folds[recorded.fact.kind] += 1
    await workspace.aclose()
    return failures, folds


def try_agent(agent: str, reply_name: str, steps: int) -> list[str]:
    """Return what was wrong."""
    model = FailingModel(steps, FAILING_REPLIES[reply_name])
    window_tokens = WINDOW_TOKENS[agent]
    handover_share = max(LEAST_HANDOVER_SHARE, HANDOVER_TOKENS / window_tokens)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        agent_home = Path(folder) / "agent"
        place = Path(folder) / "place"
        home = Path(folder) / "helix"
        agent_home.mkdir()
        place.mkdir()
        if agent == "gemini":
            settings = agent_home / ".gemini" / "settings.json"
            settings.parent.mkdir()
            settings.write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
        asyncio.run(create_workspace(home, place, handover_share))
        with (
            Provider(model.script, usage=model.usage, strict=False) as provider,
            running(home, provider.url, agent=agent, workspace="Work") as url,
        ):
            failed_end = run_agent(agent, url, agent_home, place)
        failures, folds = asyncio.run(read_folds(home))

    wrong: list[str] = []
    if failed_end:
        wrong.append(failed_end)
    if model.done_count < steps:
        wrong.append(f"{model.done_count} of {steps} steps")
    if not model.handover_count:
        wrong.append("no handover was asked for")
    # After one that worked, a later stretch of the conversation has attempts of its own.
    has_handover = folds[FoldKind.HANDOVER] > 0
    if not has_handover and model.handover_count > MOST_ATTEMPTS:
        wrong.append(f"{model.handover_count} handovers were asked for")
    if model.longest_request_tokens > window_tokens:
        wrong.append(f"a request had {model.longest_request_tokens:,} tokens")
    last_words = [failure.why for failure in failures if failure.why.startswith("After ")]
    if not has_handover and len(failures) >= MOST_ATTEMPTS and len(last_words) != 1:
        wrong.append(f"{len(last_words)} sentences say that no more is tried")
    counted = {kind.value: count for kind, count in folds.items()}
    sys.stdout.write(
        f"{agent}, {reply_name}: {model.done_count} steps, {model.handover_count} handovers asked for, "
        f"{len(failures)} failed, longest request {model.longest_request_tokens:,} tokens, folds {counted}\n"
    )
    for failure in failures[-1:]:
        sys.stdout.write(f"    {failure.why}\n")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agent", choices=tuple(PACKAGES))
    parser.add_argument("--model", choices=tuple(FAILING_REPLIES))
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    # The pauses between attempts are short, so that all of them happen within one run.
    failed_fold_attempts.FIRST_PAUSE_SECONDS = 0.5

    def trials(found: Counter[str]) -> None:
        for agent in PACKAGES:
            for reply_name in FAILING_REPLIES:
                if given.agent in (None, agent) and given.model in (None, reply_name):
                    wrong = try_agent(agent, reply_name, given.steps)
                    found["trials"] += 1
                    found.update(f"LOST {agent}, {reply_name}: {one}" for one in wrong)
                    sys.stdout.flush()

    return report("failing summaries", 0, trials)


if __name__ == "__main__":
    sys.exit(main())
