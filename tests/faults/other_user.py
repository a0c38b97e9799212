"""Another user of the machine against every port and socket of the program. It needs
root, to be that user.

python -m tests.faults.other_user [--tries 10000] [--seed 1]

A resident with a gateway runs, and an agent works through it with its key. As another
user (nobody), requests of all kinds are sent to the gateway's port, closed behind every
byte, with tokens that are nearly right; the sockets are connected to; files are read;
then the port is squatted while no resident runs, and a wrap is started. Nothing of
these requests may reach the provider, and no byte of a key or a prompt the squatter.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from helix_desktop import program_folders
from tests.faults.store_report import report
from tests.gateway.running import Agent, wrapped
from tests.peers.agent_provider import Asked, Block, Provider, Says

NOBODY = 65_534
CANARY = b"canary-of-another-user"
PATHS = (
    "/v1/messages",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/models",
    "/.helix/status",
    "/w/x/v1/messages",
)


def _script(_: Asked) -> Sequence[Block]:
    return [Says("fine")]


def request(chance: random.Random, token: str) -> bytes:
    """One request, with a token that is not the right one. `token`: the right one, so
    that it can be nearly right.
    """
    wrong = chance.choice(
        ["", token[:-1], token + "A", token.swapcase(), token[::-1], "..", "%00", "a" * 5000]
    )
    prefix = chance.choice(
        [
            "",
            f"/t/{wrong}",
            f"/t/{wrong}/a/claude",
            f"/t//{wrong}",
            f"/T/{wrong}",
            f"/x/../t/{wrong}",
        ]
    )
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": CANARY.decode()}]}
    ).encode()
    headers = [
        "Host: 127.0.0.1",
        f"Content-Length: {len(body)}",
        chance.choice(
            ["x-api-key: stolen", f"x-helix-token: {wrong}", "Authorization: Bearer x", "X-A: b"]
        ),
        chance.choice(["Connection: close", "Connection: keep-alive", "Expect: 100-continue"]),
    ]
    line = f"{chance.choice(['POST', 'GET', 'PUT', 'OPTIONS'])} {prefix}{chance.choice(PATHS)} HTTP/1.1"
    return "\r\n".join([line, *headers, "", ""]).encode() + body


def as_another_user(
    port: int, token: str, files: Sequence[str], tries: int, seed: int, tell: Any
) -> None:
    """All tries, in a process that gives up what root may do. What came of them is told
    as a counter.
    """
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    chance = random.Random(seed)
    found = Counter[str]()
    for number in range(tries):
        content = request(chance, token)
        end = chance.randrange(len(content) + 1) if number % 2 else len(content)
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=20) as asking:
            asking.sendall(content[:end])
            if end < len(content) or number % 4 == 0:
                found["closed at once"] += 1
                continue
            answer = asking.recv(65_536)
            found[
                "was refused"
                if b" 403 " in answer.split(b"\r\n")[0] or b" 400 " in answer.split(b"\r\n")[0]
                else f"LOST answered {answer[:60]!r}"
            ] += 1
    for name in files:
        with suppress(OSError):
            Path(name).read_bytes()
            found[f"LOST {name} was read"] += 1
        with suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
            asking.connect(name)
            found[f"LOST {name} was connected to"] += 1
        found["files and sockets"] += 1
    tell.send(found)


def from_outside(
    home: Path, provider: Provider, tries: int, seed: int, found: Counter[str]
) -> None:
    """The tries against a resident that runs."""
    with wrapped(home, provider.url, agent="claude") as held:
        agent = Agent("anthropic", held.addresses[0], session="mine")
        agent.say("hello")
        agent.ask()
        parts = urlsplit(held.addresses[0])
        files = [
            str(file)
            for folder in (home, program_folders.find_program_folders(home).run)
            for file in folder.rglob("*")
        ]
        here, there = multiprocessing.Pipe(duplex=False)
        arguments = (parts.port, parts.path.split("/")[2], files, tries, seed, there)
        process = multiprocessing.get_context("fork").Process(
            target=as_another_user, args=arguments
        )
        process.start()
        there.close()  # so that a process that fails ends the wait
        found.update(here.recv())
        process.join()
        agent.say("still there?")
        agent.ask()
    found["requests of the user's own"] += len(provider.asked)
    for asked in provider.asked:
        if CANARY in asked.raw:
            found["LOST a request passed the door"] += 1
    if len(provider.asked) != 2:
        found[f"LOST {len(provider.asked)} requests reached the provider, not 2"] += 1


def _listen_as_soon_as_it_is_free(port: int) -> socket.socket:
    """The resident that had the port may still be ending."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with suppress(OSError):
            return socket.create_server(("127.0.0.1", port))
        time.sleep(0.05)
    return socket.create_server(("127.0.0.1", port))


def squat(listens: Any, port: int) -> None:
    """Listen as another user until told to end, and tell everything that is sent there."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    heard = bytearray()
    with _listen_as_soon_as_it_is_free(port) as server:
        listens.send(server.getsockname()[1])
        server.settimeout(0.2)
        while not listens.poll():
            with suppress(OSError):
                connection, _ = server.accept()
                connection.settimeout(1)
                heard += connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    listens.send(bytes(heard))


def from_a_squatted_port(home: Path, provider: Provider, found: Counter[str]) -> None:
    """The usual port is another user's: a wrap goes elsewhere, and nothing is sent
    there. Then the port a killed resident had.
    """
    with wrapped(home, provider.url) as held:
        port = urlsplit(held.addresses[0]).port or 0
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=squat, args=(there, port))
    process.start()
    there.close()  # so that a process that fails ends the wait
    here.recv()
    with wrapped(home, provider.url) as held:
        agent = Agent("anthropic", held.addresses[0], session="squatted")
        agent.say("a secret prompt")
        agent.ask()
        if urlsplit(held.addresses[0]).port == port:
            found["LOST the squatted port was taken for ours"] += 1
    here.send("end")
    heard = here.recv()
    process.join()
    found[f"bytes at a squatted port: {len(heard)}"] += 1
    if heard:
        found[f"LOST {heard[:60]!r} was sent to a squatted port"] += 1


def trials(tries: int, seed: int, found: Counter[str]) -> None:
    """Both."""
    with tempfile.TemporaryDirectory() as home, Provider(_script) as provider:
        Path(home).chmod(0o755)  # the program closes what is its own
        from_outside(Path(home) / "home", provider, tries, seed, found)
        from_a_squatted_port(Path(home) / "home", provider, found)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if os.getuid() != 0:
        print("It needs root, to be another user.")
        return 1
    return report(
        "other user", arguments.seed, lambda found: trials(arguments.tries, arguments.seed, found)
    )


if __name__ == "__main__":
    sys.exit(main())
