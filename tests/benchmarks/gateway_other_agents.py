"""Agents that `wrap` knows by their command and protocol only, each for twenty steps at
a scripted provider.

python -m tests.benchmarks.gateway_other_agents FOLDER [--agent NAME] [--steps 20]

FOLDER holds each agent's installation in a folder of its name: from npm, or an
environment of Python. What an agent is given is what its manual says of a provider of
one's own. An agent counts as seen when it made all its steps, nothing of ours was
refused and no hidden call was shown to it.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks import gateway_clients
from tests.benchmarks.gateway_clients import HIDDEN, KEY, Work
from tests.peers.agent_provider import Asked, Block, Provider, Says

LONGEST = 100.0


@dataclass(frozen=True)
class OtherAgent:
    """`command`: what `--command` is given. `files`: settings in the home, in which
    {url} is the gateway's address when `wrap` cannot set one. `by_words`: it has no
    tools of the protocol, and its steps are words.
    """

    name: str
    command: str
    protocol: str
    given: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    before: tuple[tuple[str, ...], ...] = ()
    by_words: bool = False


MODEL = "gpt-5"
AGENTS = (
    OtherAgent(
        "qwen", "qwen --yolo", "openai", ("-p", "do the work"),
        {"OPENAI_MODEL": MODEL},
        {".qwen/settings.json": json.dumps({"security": {"auth": {"selectedType": "openai"}}, "$version": 3})},
    ),
    OtherAgent(
        "copilot", "env COPILOT_PROVIDER_BASE_URL={url} copilot", "openai", ("-p", "do the work", "--allow-all-tools"),
        {"COPILOT_PROVIDER_API_KEY": KEY, "COPILOT_PROVIDER_TYPE": "openai", "COPILOT_MODEL": MODEL, "COPILOT_OFFLINE": "true"},
    ),
    OtherAgent(
        "cline", "cline", "openai", ("-P", "openai-compatible", "-m", MODEL, "do the work"),
        before=(("cline", "auth", "-p", "openai", "-k", KEY, "-m", MODEL, "-b", "{url}"),),
    ),
    OtherAgent("aider", "aider", "openai", ("--model", f"openai/{MODEL}", "--yes-always", "--no-git", "--no-check-update", "--no-show-model-warnings", "--analytics-disable"), by_words=True),
    OtherAgent(
        "openhands", "openhands --headless --override-with-envs --json --always-approve", "openai", ("-t", "do the work"),
        {"LLM_API_KEY": KEY, "LLM_MODEL": "openai/gpt-4.1", "OPENHANDS_SUPPRESS_BANNER": "1"},
    ),
    OtherAgent("droid", "droid exec --auto high", "openai", ("do the work",), {"FACTORY_API_KEY": "fk-planted"}),
    OtherAgent("amp", "amp -x", "anthropic", ("do the work",), {"AMP_API_KEY": "planted"}),
    OtherAgent("crush", "crush run", "openai", ("do the work",)),
)  # fmt: skip


class OtherWork(Work):
    """As `Work`, and it counts which addresses are asked. An agent without tools is
    told that each step is done.
    """

    def __init__(self, name: str, steps: int) -> None:
        super().__init__(name, steps)
        self.paths = Counter[str]()

    def script(self, asked: Asked) -> Sequence[Block]:
        self.paths[asked.path.partition("?")[0]] += 1
        if not asked.protocol:
            return [Says("{}")]
        own = [name for name in gateway_clients._names(asked.body) if "cached_content" not in name]
        if self.name == "aider" and not set(own) - {"recall_history"}:
            self.done += 1
            return [
                Says(
                    f"Step {self.done} is done. "
                    + "The numbers were counted and nothing is left. " * 120
                )
            ]
        return super().script(asked)


def tried(folder: Path, agent: OtherAgent, steps: int) -> tuple[OtherWork, Provider, str]:
    """The agent's work, its provider, and what was wrong."""
    work = OtherWork(agent.name, steps)
    work.begin(steps)
    work._delegates = False
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, Provider(work.script, usage=work.usage, strict=False) as provider:  # fmt: skip
        place = Path(home, "work")
        place.mkdir()
        for name, text in agent.files.items():
            Path(home, name).parent.mkdir(parents=True, exist_ok=True)
            Path(home, name).write_text(text, "utf-8")
        programs = f"{folder / agent.name / 'node_modules' / '.bin'}:{folder / agent.name / 'bin'}"
        variables = {
            **{name: value for name, value in os.environ.items() if "API_KEY" not in name},
            **dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY"), KEY),
            **agent.environment,
            "HOME": home,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path.cwd()),
            "NO_COLOR": "1",
        }
        said = ""
        line = " && ".join([*(shlex.join(each) for each in agent.before), agent.command])
        command = (
            agent.command
            if not agent.before
            else shlex.join(["sh", "-c", f'{line} "$@"', agent.name])
        )
        wrap = [
            sys.executable,
            "-m",
            "helix_desktop",
            "--home",
            f"{home}/helix",
            "wrap",
            "--upstream",
            provider.url,
        ]
        wrap += ["--command", command, "--protocol", agent.protocol, "--", *agent.given]
        own = (
            None
            if not agent.by_words
            else "".join(f"do step {number}\n" for number in range(1, steps + 1)) + "/exit\n"
        )
        with subprocess.Popen(wrap, cwd=place, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:  # fmt: skip
            try:
                out, err = process.communicate(own, timeout=LONGEST)
            except subprocess.TimeoutExpired:
                process.terminate()
                out, err = process.communicate()
                said += "it hung; "
        if process.returncode:
            said += f"exit {process.returncode}: {(out + err)[-1500:]}; "
        if HIDDEN in out:
            said += "a hidden call was printed; "
        if "Helix Desktop" in err:
            said += err.strip().splitlines()[-1]
        return work, provider, said


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agent", choices=[one.name for one in AGENTS])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--tools", action="store_true", help="print the tools that the agent offers"
    )
    arguments = parser.parse_args()
    for agent in AGENTS:
        if arguments.agent in (None, agent.name):
            work, provider, said = tried(arguments.folder.resolve(), agent, arguments.steps)
            print(f"{agent.name}: {work.done} steps, {work.recalls} recalls, {dict(work.paths)}, {len(provider.refused)} refused; {said}", flush=True)  # fmt: skip
            if arguments.tools:
                for asked in [one for one in provider.asked if one.protocol][:2]:
                    print(json.dumps(asked.body.get("tools"))[:6_000])
    return 0


if __name__ == "__main__":
    sys.exit(main())
