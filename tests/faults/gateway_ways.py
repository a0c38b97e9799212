"""What goes wrong around a gateway and inside it: the agent sees what it would have
seen without one, or better.

python -m tests.faults.gateway_ways [--ways 0] [--seed 1]

A provider that cuts, hangs, answers 429, 529 or "too long"; a disk that takes nothing
more, a journal that cannot be read, a fold that raises. Every way is tried in every
protocol, once beside the same agent without a gateway. 0 means all.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import logging
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.gateway import wrapped_agent
from helix_desktop.gateway.view_entries import ViewEntriesBuilder
from tests.faults.store_report import report
from tests.gateway.running import PROTOCOLS, TOOL, Agent, running
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says, Thinks

LARGE = "\n".join(f"line {n}: the quick brown fox number {n * 7919}" for n in range(1_200))
STEPS = 6
FULL = 600  # blocks after which a file grows no more
UPSTREAM = ("cut", "status 429", "status 529", "status 500", "too long")
INSIDE = ("full disk", "broken journal", "the folding raises", "the view raises")


@dataclass
class Failing:
    """A provider's script that fails in one way at its third request, and then behaves."""

    way: str
    provider: Provider | None = None
    asked: int = 0

    def script(self, _: Asked) -> Sequence[Block] | int:
        self.asked += 1
        if self.asked == 3 and self.way.startswith("status"):
            return int(self.way.split()[1])
        if self.asked == 3 and self.way == "too long":
            return 400
        if self.asked == 3 and self.way == "cut" and self.provider is not None:
            self.provider.cut_after = 200
        return [
            Thinks("let me see"),
            Says(f"step {self.asked}"),
            Calls(TOOL, {"command": f"do {self.asked}"}),
        ]


def outcomes(agent: Agent, steps: int = STEPS) -> Iterator[str]:
    """What an agent sees of each step; what broke is tried once more."""
    agent.say("look around")
    for _ in range(steps):
        for _ in range(2):
            try:
                calls = agent.ask()
            except AssertionError as error:
                yield str(error)[:60] if str(error)[:3].isdigit() else "broke off"
            except httpx.HTTPError:
                yield "broke off"
            else:
                yield f"{[name for _, name, _ in calls]}"
                agent.results([(call, name, LARGE) for call, name, _ in calls])
                break


def _beside(way: str, protocol: str, found: Counter[str]) -> Iterator[str]:
    """The same agent without and with a gateway."""
    seen: list[list[str]] = []
    for through in (False, True):
        failing = Failing(way if way in UPSTREAM else "")
        with tempfile.TemporaryDirectory() as home, Provider(failing.script) as provider:
            failing.provider = provider
            with _gateway(way if through else "", Path(home), provider.url) as url:
                seen.append(list(outcomes(Agent(protocol, url))))
            if provider.refused:
                yield f"refused: {provider.refused[0]}"
        found["requests"] += len(seen[-1])
    without, through_it = seen
    is_longer = len(through_it) > len(without)
    has_fewer_replies = _count_replies(through_it) < _count_replies(without)
    if is_longer or has_fewer_replies:
        yield f"with a gateway {through_it}, without {without}"


def _count_replies(outcomes_of_agent: list[str]) -> int:
    return sum("[" in outcome for outcome in outcomes_of_agent)


@contextmanager
def _gateway(way: str, home: Path, upstream: str) -> Iterator[str]:
    if not way:
        yield upstream
    elif way == "full disk":
        yield from _on_a_full_disk(home, upstream)
    elif way == "broken journal":
        with running(home, upstream):
            pass
        for file in home.rglob("journal*"):
            file.write_bytes(b"this is no journal" * 300)
        with running(home, upstream) as url:
            yield url
    elif way == "the folding raises":
        with _raising(ConversationFolding, "apply_due_folds"), running(home, upstream) as url:
            yield url
    elif way == "the view raises":
        with _raising(ViewEntriesBuilder, "build_entries"), running(home, upstream) as url:
            yield url
    else:
        with running(home, upstream) as url:
            yield url


def _on_a_full_disk(home: Path, upstream: str) -> Iterator[str]:
    """A process whose files stay small: every write beyond that fails, as on a full disk."""
    limited = [
        "sh",
        "-c",
        f'ulimit -f {FULL}; exec "$@"',
        "sh",
        sys.executable,
        "-m",
        "helix_desktop",
    ]
    command = [*limited, "--home", str(home), "gateway", "--port", "0", "--upstream", upstream]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield (process.stdout.readline() if process.stdout else "").split()[-1]
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def _raising(kind: type, name: str) -> Iterator[None]:
    def fails(*_: object, **__: object) -> object:
        raise RuntimeError("a mistake")

    before: Callable[..., object] = getattr(kind, name)
    setattr(kind, name, fails)
    try:
        yield
    finally:
        setattr(kind, name, before)


def _hangs(protocol: str) -> Iterator[str]:
    """The provider says nothing and the agent hangs up: the request to the provider
    ends too, and the next one succeeds.
    """
    came, ends, waits = threading.Event(), threading.Event(), itertools.count()

    def script(_: Asked) -> Sequence[Block]:
        if next(waits) == 0:
            came.set()
            ends.wait(60)
        return [Says("fine")]

    with (
        tempfile.TemporaryDirectory() as home,
        Provider(script) as provider,
        running(Path(home), provider.url) as url,
    ):
        agent = Agent(protocol, url)
        agent.say("look around")
        where = urlsplit(url)
        hangs = http.client.HTTPConnection(where.hostname or "", where.port)
        hangs.request("POST", where.path + agent.path, json.dumps(agent.body()), {"x-api-key": "k"})
        if not came.wait(60):
            yield "the request did not reach the provider"
        hangs.close()
        begun = time.monotonic()
        if agent.ask() != [] or time.monotonic() - begun > 30:
            yield "the next request did not go through"
        ends.set()
        if wrapped_agent.fetch_gateway_status(url) is None:
            yield "the gateway hangs"


def trials(ways: int, seed: int, found: Counter[str]) -> None:
    """All ways, or so many of them."""
    every = [*itertools.product((*UPSTREAM, *INSIDE, "hang"), PROTOCOLS)]
    chosen = random.Random(seed).sample(every, ways) if ways else every
    for way, protocol in chosen:
        for wrong in _hangs(protocol) if way == "hang" else _beside(way, protocol, found):
            found[f"LOST {way}, {protocol}: {wrong}"] += 1
        found["ways"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ways", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    return report(
        "gateway ways", arguments.seed, lambda found: trials(arguments.ways, arguments.seed, found)
    )


if __name__ == "__main__":
    sys.exit(main())
