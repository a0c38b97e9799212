"""Sessions with hidden recalls whose gateway is restarted, loses its journal, or is
taken away, at random moments.

python -m tests.faults.gateway_cuts [--cuts 500] [--seed 1]

The provider is strict: it refuses what a real one refuses. No request may be refused,
and the agent sees no hidden call.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.faults.store_report import report
from tests.gateway.running import PROTOCOLS, TOOL, Agent, running
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says, Thinks

LARGE = "\n".join(f"line {n}: the quick brown fox number {n * 7919}" for n in range(1_200))
DIGEST = hashlib.sha256(LARGE.encode()).hexdigest()
STEPS = 14  # of one session
WAYS = ("restarted", "journal lost", "taken away")


class Model:
    """Calls and recalls at random; of tools it was not offered it knows nothing."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def script(self, asked: Asked) -> Sequence[Block]:
        chance = self._chance
        tool = Calls(TOOL, {"command": f"do {chance.randrange(10_000)}"})
        recall = Calls(
            "recall_cached_content", {"sha256": DIGEST, "lines": f"{chance.randrange(1, 900)}"}
        )
        search = Calls("search_cached_content", {"query": "fox"})
        think, says = Thinks(f"thought {chance.random()}"), Says(f"said {chance.random()}")
        visible: list[list[Block]] = [
            [tool],
            [think, tool],
            [think, says, tool],
            [says, tool, tool],
        ]
        hidden: list[list[Block]] = [
            [recall],
            [think, recall],
            [think, search],
            [think, says, recall],
            [think, recall, tool],
            [tool, search],
            [recall, search],
        ]
        offered = b"recall_cached_content" in asked.raw
        return chance.choice(visible + hidden if offered else visible)


def trials(cuts: int, seed: int, found: Counter[str]) -> None:
    """Sessions until there were so many cuts."""
    chance = random.Random(seed)
    for number in itertools.count():
        if sum(found[way] for way in WAYS) >= cuts:
            return
        protocol = PROTOCOLS[number % len(PROTOCOLS)]
        try:
            for wrong in _session(protocol, chance, found):
                found[f"LOST {protocol}, session {number}: {wrong}"] += 1
        except (AssertionError, httpx.HTTPError) as error:
            found[f"LOST {protocol}, session {number}: {error!r}"] += 1
        found["sessions"] += 1


def _session(protocol: str, chance: random.Random, found: Counter[str]) -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Provider(Model(chance).script) as provider,
        ExitStack() as gateway,
    ):
        homes = (Path(folder, str(n)) for n in itertools.count())
        home = next(homes)
        agent = Agent(
            protocol,
            gateway.enter_context(running(home, provider.url)),
            streams=chance.random() < 0.7,
            patience=300.0,
        )
        agent.session = chance.choice(["", "a-session"])
        agent.say("look around")
        for _ in range(STEPS):
            if chance.random() < 0.5:
                way = chance.choice(WAYS)
                found[way] += 1
                gateway.close()
                if way == "taken away":
                    agent.url = provider.url
                else:
                    home = next(homes) if way == "journal lost" else home
                    agent.url = gateway.enter_context(running(home, provider.url))
            calls = agent.ask()
            found["requests"] += 1
            agent.results(
                [(call, name, chance.choice([LARGE, "short"])) for call, name, _ in calls]
            )
            if not calls:
                agent.say("go on")
        yield from provider.refused
        if other := set(agent.seen) - {TOOL}:
            yield f"the agent saw {other}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuts", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)
    return report(
        "gateway cuts", arguments.seed, lambda found: trials(arguments.cuts, arguments.seed, found)
    )


if __name__ == "__main__":
    sys.exit(main())
