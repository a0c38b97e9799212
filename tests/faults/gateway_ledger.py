"""What `wrap` and `cost` say of money against the provider's own ledger: scripted
agents of all four protocols, one run each.

python -m tests.faults.gateway_ledger [--runs 200] [--seed 1]

The provider reports tokens as real ones do and adds up what it bills by its own price
list. It refuses with 429, 500 and 529, cuts streams, and its model recalls. Prices of
some models are not known to the program. What a run's figures say it paid, the amount
that its closing line prints, what the window's page of agents adds up after each run,
and the sums that `cost` prints over all runs, are to equal the ledger to the cent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from helix_desktop import program_folders, resources
from helix_desktop.gateway.wrapped_agent import fetch_gateway_status, format_run_summary
from helix_desktop.resident.connected_agents import ConnectedAgents
from tests.faults.store_report import report
from tests.gateway.running import PROTOCOLS, Agent, wrapped
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says, Thinks

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
    "gemini": "gemini-2.5-pro",
}
UNKNOWN = "a-model-nobody-knows"
CENT = 0.005
OUTPUT = 10  # tokens that the stand-in reports for every reply


def dollars(model: str, usage: Mapping[str, int], output: int) -> float:
    """By the price list, which is read here once more; 0 for a model it does not have."""
    known = json.loads((resources.resources_folder() / "models.json").read_bytes())["models"].get(
        model
    )
    if known is None:
        return 0.0
    fresh = usage["input"] - usage["read"] - usage["write"]
    cached = usage["read"] * (known.get("cache_read") or known["input"])
    written = usage["write"] * (known.get("cache_write") or known["input"])
    return float(fresh * known["input"] + cached + written + output * known["output"]) / 1e6


@dataclass
class Ledger:
    """A provider's script and its account. `billed`: of the run that goes on."""

    chance: random.Random
    billed: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    provider: Provider | None = None

    def usage(self, asked: Asked) -> Mapping[str, int]:
        return self._usages[id(asked)]

    _usages: dict[int, Mapping[str, int]] = field(default_factory=dict)

    def answer(self, asked: Asked) -> Sequence[Block] | int:
        if self.provider is None:
            raise RuntimeError("no provider")
        self.provider.cut_after = 0  # The last reply may have been too short to be cut.
        if self.chance.random() < 0.15:
            self.kinds["refused"] += 1
            return self.chance.choice((429, 500, 529))
        body = asked.body
        model = body.get("model") or asked.path.partition("models/")[2].partition(":")[0]
        whole = self.chance.randrange(2_000, 60_000)
        read = self.chance.randrange(whole) if self.chance.random() < 0.7 else 0
        write = self.chance.randrange(whole - read) if asked.protocol == "anthropic" else 0
        usage = self._usages[id(asked)] = {"input": whole, "read": read, "write": write}
        streams = body.get("stream") is True or "streamGenerate" in asked.path
        output = OUTPUT
        if streams and self.chance.random() < 0.12:
            self.provider.cut_after = self.chance.randrange(1, 300)
            self.kinds["cut"] += 1
            # What a stream told before it was cut is billed: at its beginning, or in every part.
            output = {"anthropic": 1, "gemini": OUTPUT}.get(asked.protocol, -1)
        if output >= 0:
            self.billed += dollars(model, usage, output)
        self.kinds["answered"] += 1
        text = asked.raw.decode()
        if "recall_cached_content" in text and self.chance.random() < 0.15:
            self.kinds["recalls"] += 1
            return [Calls("recall_cached_content", {"sha256": "ab12cd"})]
        if "Bash" not in text or self.chance.random() < 0.1:
            return [Says("That is all.")]
        return [
            *([Thinks("Let me see.")] if self.chance.random() < 0.3 else []),
            Calls("Bash", {"command": "ls"}),
        ]


class ScriptedAgent(Agent):
    """One that asks again when it was refused or cut off, as real ones do. `model`:
    instead of the usual one.
    """

    model = ""

    def body(self) -> dict[str, Any]:
        found = super().body()
        return {**found, "model": self.model} if self.model and "model" in found else found

    def step(self) -> list[tuple[str, str, str]]:
        for _ in range(40):
            with suppress(AssertionError, httpx.HTTPError):
                return self.ask()
        raise RuntimeError("forty tries were not enough")


def run_agent(agent: ScriptedAgent, chance: random.Random) -> None:
    agent.say("look around")
    for number in range(chance.randrange(2, 12)):
        calls = agent.step()
        if not calls:
            agent.say("go on")
        else:
            size = chance.choice((100, 1_000, 40_000))
            agent.results(
                [(call, name, f"output {number}\n" * (size // 10)) for call, name, _ in calls]
            )


def trials(runs: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    ledger = Ledger(random.Random(seed + 1))
    total, unequal, seen = 0.0, 0.0, Counter[str]()
    with (
        tempfile.TemporaryDirectory() as home,
        Provider(ledger.answer, usage=ledger.usage, strict=False) as provider,
        wrapped(Path(home), provider.url),
    ):
        ledger.provider = provider
        window = ConnectedAgents(program_folders.find_program_folders(Path(home)))
        for number in range(runs):
            ledger.billed, before = 0.0, Counter(ledger.kinds)
            protocol = PROTOCOLS[number % len(PROTOCOLS)]
            with wrapped(Path(home), provider.url) as held:
                agent = ScriptedAgent(
                    protocol,
                    held.addresses[0],
                    streams=chance.random() < 0.8,
                    session=f"run {number}",
                )
                agent.model = UNKNOWN if chance.random() < 0.1 else ""
                run_agent(agent, chance)
                figures = (fetch_gateway_status(held.addresses[0], 30) or {}).get("figures", [])
                shown = asyncio.run(window.list_agent_connections()).today.paid
            said = sum(float(one["paid"]) for one in figures)
            total += ledger.billed
            if printed := re.search(r"\$([\d.,]+) instead of", format_run_summary(figures)):
                seen["amounts printed"] += 1
                if abs(float(printed[1].replace(",", "")) - ledger.billed) > CENT:
                    found[f"LOST {protocol}: printed {printed[1]}, billed {ledger.billed:.4f}"] += 1
            if abs(shown - total) >= CENT:
                found[f"LOST the window shows {shown:.4f} after {total:.4f}"] += 1
            equal = abs(said - ledger.billed) < CENT
            unequal += abs(said - ledger.billed)
            found[
                "runs equal to the cent"
                if equal
                else f"LOST {protocol}: said {said:.4f}, billed {ledger.billed:.4f}, {dict(Counter(ledger.kinds) - before)}"
            ] += 1
            provider.asked.clear()
        told = subprocess.run(
            [sys.executable, "-m", "helix_desktop", "--home", home, "cost", "-w", "Connected agents", "--json"],
            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(Path.cwd())}, check=False,
        )  # fmt: skip
        costs = json.loads(told.stdout or "{}")
        sums = {
            name: sum(one["cost"] for one in costs.get(name, []))
            for name in ("agents", "models", "causes", "days")
        }
        found[
            f"ledger {total:.4f}, off by {unequal:.4f} over all runs; cost says {sums}; {dict(ledger.kinds)}; {dict(seen)}"
        ] += 1
        for name, said in sums.items():
            if abs(said - total) >= CENT:
                found[
                    f"LOST cost by {name} says {said:.4f} of {total:.4f} {told.stderr[-300:]}"
                ] += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report(
        "gateway ledger",
        arguments.seed,
        lambda found: trials(arguments.runs, arguments.seed, found),
    )


if __name__ == "__main__":
    sys.exit(main())
