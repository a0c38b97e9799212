"""Odd headers at the gateway, in all four protocols: a provider gets what its protocol knows, and
nothing else of what came along.

python -m tests.faults.gateway_headers [--requests 300] [--seed 1]

Each request (so many for each protocol) has some headers that its provider knows and some that are
for somebody else: written in any case, twice, folded over two lines, with blanks, very long, named by
`Connection`, or with a length that contradicts another. The words of the second kind, and the token,
must not reach the provider, and no request may become two.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tests.faults.gateway_rooms import send
from tests.faults.store_report import report
from tests.gateway.running import PROTOCOLS, Agent, running
from tests.gateway.test_request_routes import NOT_FOR_PROVIDERS, SENT_BY_AGENTS
from tests.peers.agent_provider import Provider, Says

STRANGE = "for-somebody-else"
# These would make another request of it, or none.
NOT_ADDED = {"content-length", "transfer-encoding", "host", "upgrade", "expect", "content-encoding", "origin", "sec-fetch-mode"}  # fmt: skip
SMUGGLED = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nX-Strange: for-somebody-else\r\n\r\n{}"


def strange_lines(chance: random.Random, token: str) -> list[str]:
    """Headers that are meant for somebody else, each in some odd way."""
    lines: list[str] = []
    names = [name for name in NOT_FOR_PROVIDERS if name not in NOT_ADDED]
    for name in chance.sample(names, chance.randrange(1, 9)):
        written = chance.choice([name, name.upper(), name.title(), name.swapcase()])
        value = chance.choice([STRANGE, f"{STRANGE}; {token}", f"a, {STRANGE}", f"{STRANGE}{'x' * 9_000}"])  # fmt: skip
        line = chance.choice(
            [f"{written}: {value}"] * 40
            + [
                f"{written}:{value}",
                f"{written}:\t  {value}  ",
                f"{written}: a\r\n {value}",
                f"{written} : {value}",
                f"{written.replace('-', '_')}: {value}",
                f"\u00a0{written}: {value}",
                f"{written}: {value}\nCookie: {STRANGE}",
            ]
        )
        lines.extend([line] * chance.choice([1, 1, 1, 2]))
    return lines


def request_of(
    chance: random.Random, protocol: str, path: str, token: str, number: int
) -> tuple[bytes, list[str]]:
    """One request, and the names that `Connection` has in it."""
    agent = Agent(protocol, "", streams=False)
    agent.say(f"try {number}")
    body = json.dumps(agent.body()).encode()
    known = [name for name in SENT_BY_AGENTS[protocol].split() if name not in NOT_ADDED]
    chosen = chance.sample(known, 4)
    lines = [f"{chance.choice([name, name.upper()])}: known-{number}" for name in chosen]
    lines += strange_lines(chance, token)
    named: list[str] = []
    if chance.random() < 0.4:
        named = chance.sample(chosen, 2)
        lines.append(f"{chance.choice(['Connection', 'CONNECTION'])}: close, {', '.join(named)}")
    if chance.random() < 0.2:
        lines.append(f"Http-Referer: http://127.0.0.1/t/{token}/")
    lengths = [f"Content-Length: {len(body)}"]
    behind = b""
    if chance.random() < 0.2:
        contradiction = chance.choice(
            ["Transfer-Encoding: chunked", "Content-Length: 0", "Transfer-Encoding: x, chunked"]
        )
        lengths.insert(chance.randrange(2), contradiction)
        behind = SMUGGLED
    chance.shuffle(lines)
    head = [
        f"POST {path}{agent.path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
    ]
    head += lengths + lines
    if not named:
        head.append("Connection: close")
    content = "\r\n".join([*head, "", ""]).encode("latin-1") + body + behind
    return content, named


def judge(
    found: Counter[str], asked: Sequence[tuple[str, str]], named: Sequence[str], token: str
) -> None:
    for name, value in asked:
        if STRANGE in name + value:
            found[f"LOST {name}: {value[:60]} was sent on"] += 1
        if token in value:
            found[f"LOST the token was sent on in {name}"] += 1
        if name in named and value.startswith("known-"):
            found[f"LOST {name} was named by Connection, and sent on"] += 1


def try_headers(home: Path, requests: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    with (
        Provider(lambda _: [Says("fine")], strict=False) as provider,
        running(home, provider.url) as url,
    ):
        address = urlsplit(url)
        token = address.path.rpartition("/")[2]
        for number in range(requests * len(PROTOCOLS)):
            protocol = PROTOCOLS[number % len(PROTOCOLS)]
            content, named = request_of(chance, protocol, address.path, token, number)
            before = len(provider.asked)
            answer = send(address.port or 0, content)
            arrived = provider.asked[before:]
            found[f"answered {answer[9:12].decode('latin-1') or 'nothing'}"] += 1
            if len(arrived) > 1:
                found[f"LOST one request became {len(arrived)}"] += 1
            for asked in arrived:
                judge(found, list(asked.headers.items()), named, token)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    def trials(found: Counter[str]) -> None:
        with tempfile.TemporaryDirectory() as home:
            try_headers(Path(home), arguments.requests, arguments.seed, found)

    return report("gateway headers", arguments.seed, trials)


if __name__ == "__main__":
    sys.exit(main())
