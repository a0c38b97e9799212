"""A slice of `faults other_user` that needs no other user: nothing without its token
passes the door, wherever it is cut.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.faults.other_user import CANARY, request
from tests.gateway.running import Agent, running
from tests.peers.agent_provider import Provider, Says


def test_requests_without_the_token_reach_no_provider_wherever_they_are_cut(tmp_path: Path) -> None:
    chance = random.Random(7)
    with (
        Provider(lambda _: [Says("fine")]) as provider,
        running(tmp_path, provider.url, key="stored-key") as url,
    ):
        parts = urlsplit(url)
        for number in range(120):
            content = request(chance, parts.path.split("/")[2])
            end = len(content) if number % 3 else chance.randrange(len(content))
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", parts.port or 0), timeout=20) as asking,
            ):
                asking.sendall(content[:end])
                if number % 3 == 1:
                    assert asking.recv(12)[9:12] in (b"403", b"400")
        agent = Agent("anthropic", url)
        agent.say("hello")
        agent.ask()
        assert [CANARY in asked.raw for asked in provider.asked] == [False]
