"""Agents that work for sixty steps at a provider that fails: they come to the same end
as without the gateway.

python -m tests.faults.gateway_steps [--runs 8] [--seed 1]

Every request may be refused with 429, 500 or 529, cut off in its stream, or answered
late, also those behind a recall, which no agent knows of. The agent asks again, as real
ones do. What it has in the end is laid beside what it has after the same work without a
gateway: every call, every result and every word.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.gateway_ledger import ScriptedAgent
from tests.faults.store_report import report
from tests.gateway.running import PROTOCOLS, WIRES, wrapped
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says

STEPS = 60
FAULTS = 0.2  # of all requests, and of those behind a recall


@dataclass
class FailingProvider:
    """What it answers depends on how far the work is alone; whether it fails, on
    chance. `recalls`: how many in front of which step.
    """

    chance: random.Random
    recalls: dict[int, int] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    provider: Provider | None = None

    def answer(self, asked: Asked) -> Sequence[Block] | int:
        text = asked.raw.decode()
        done = text.count("the result of step ")
        hidden = "ab12cd" in text[text.rfind("the result of step ") :]
        if self.provider is not None:
            self.provider.cut_after = 0
        if self.chance.random() < FAULTS:
            return self.fail(asked, hidden="hidden " if hidden else "")
        if "recall_cached_content" in text and self.recalls.get(done, 0):
            self.recalls[done] -= 1
            self.kinds["recalls"] += 1
            return [Calls("recall_cached_content", {"sha256": "ab12cd"})]
        return (
            [Says("All of it is done.")]
            if done >= STEPS
            else [
                Says(f"I do step {done}."),
                Calls("Bash", {"command": f"step {done}"}, f"call{done}"),
            ]
        )

    def fail(self, asked: Asked, *, hidden: str) -> Sequence[Block] | int:
        kinds = ("429", "500", "529", "late", "cut")
        kind = self.chance.choice(
            kinds[:-1] if asked.protocol == "gemini" else kinds
        )  # Its replies here are one event.
        self.kinds[f"{hidden}{kind}"] += 1
        if kind == "late":
            time.sleep(1.0)  # A provider under load; nothing is waited for here.
        if kind == "cut" and self.provider is not None:
            self.provider.cut_after = self.chance.choice((1, 200, 400))
        elif kind not in ("cut", "late"):
            return int(kind)
        return (
            self.answer(asked)
            if kind == "late"
            else [Says("This is cut off, and nobody should keep it." * 20)]
        )


def work(agent: ScriptedAgent) -> list[Any]:
    """To its end: all that it says, calls and is told, without the ids that a provider makes."""
    agent.say("do all of it")
    while calls := agent.step():
        done = int(json.loads(calls[0][2])["command"].removeprefix("step "))
        agent.results([(call, name, f"the result of step {done}") for call, name, _ in calls])
    messages = WIRES[agent.protocol].parse_messages(
        {"messages": agent.units, "input": agent.units, "contents": agent.units}
    )
    return [
        (message.speaker, piece.kind, piece.text)
        for message in messages
        for piece in message.pieces
    ]


def trials(runs: int, seed: int, found: Counter[str]) -> None:
    for number in range(runs):
        protocol, ends = PROTOCOLS[number % len(PROTOCOLS)], []
        for through in (False, True):
            chance = random.Random(f"{seed} {number} {through}")
            script = FailingProvider(
                chance, {step: chance.choice((0, 0, 1, 2)) for step in range(STEPS)}
            )
            with (
                tempfile.TemporaryDirectory() as home,
                Provider(script.answer, strict=False) as provider,
            ):
                script.provider = provider
                if through:
                    with wrapped(Path(home), provider.url) as held:
                        ends.append(
                            work(
                                ScriptedAgent(protocol, held.addresses[0], session=f"run {number}")
                            )
                        )
                else:
                    ends.append(work(ScriptedAgent(protocol, provider.url)))
            if through:
                for kind, count in script.kinds.items():
                    found[kind] += count
        found[
            "runs with the same end"
            if ends[0] == ends[1]
            else f"LOST {protocol}: {len(ends[0])} and {len(ends[1])}"
        ] += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report(
        "gateway steps", arguments.seed, lambda found: trials(arguments.runs, arguments.seed, found)
    )


if __name__ == "__main__":
    sys.exit(main())
