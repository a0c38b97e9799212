"""Whole turns against a model server that fails at random: cut, stalled, malformed,
refused, overloaded, too long.

python -m tests.faults.network [--turns 400] [--seed 1]

Every protocol the program speaks takes its turn. After each turn: it has ended, no call
is open, the next request is legal, every word of the user and every reply that was told
stands in the journal after opening it again. When the server behaves again, the same
conversation goes on and comes to its end.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix_desktop import program_folders
from helix_desktop.engine import request_building
from helix_desktop.engine.facts import (
    ModelReplied,
    Recorded,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.session import Session
from helix_desktop.protocols.anthropic import anthropic_client
from helix_desktop.protocols.gemini import gemini_client
from helix_desktop.protocols.openai_chat import chat_client
from helix_desktop.protocols.openai_responses import responses_client
from helix_desktop.providers.http_transport import ProviderPatience
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.faults.store_report import report
from tests.peers import anthropic_server, chat_server, gemini_server, responses_server
from tests.peers.anthropic_server import AnthropicServer
from tests.peers.chat_server import ChatServer
from tests.peers.gemini_server import GeminiServer
from tests.peers.peer import Answer, Peer, Seen, json_answer
from tests.peers.responses_server import ResponsesServer
from tests.scripted_tour import ClockWithoutPauses

PATIENCE = ProviderPatience(
    first_byte=0.3, silence=0.3, after_end=0.1, longest_wait=5, attempts=3, attempts_unreachable=3
)
TURNS = 5  # of one conversation
LONGEST = 60.0  # seconds a turn may take before it counts as hung
TOO_LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 16384 tokens."


@dataclass(frozen=True, slots=True)
class Protocol:
    kind: str
    server: type[Peer]
    reply: Callable[..., Answer]


PROTOCOLS = (
    Protocol(chat_client.KIND, ChatServer, chat_server.reply),
    Protocol(responses_client.KIND, ResponsesServer, responses_server.reply),
    Protocol(anthropic_client.KIND, AnthropicServer, anthropic_server.reply),
    Protocol(gemini_client.KIND, GeminiServer, gemini_server.reply),
)


class Broken:
    """Answers as a model would, or as a network does. `failing`: whether it does the
    latter at all.
    """

    def __init__(self, protocol: Protocol, chance: random.Random, found: Counter[str]) -> None:
        self.protocol = protocol
        self.chance = chance
        self.found = found
        self.failing = True
        self.left = 0
        self.files = (
            itertools.count()
        )  # in turn: by chance, one read often enough alike would be taken for a loop

    def __call__(self, _: Seen) -> Answer:
        answer = self._meant()
        if not self.failing or self.chance.random() < 0.55:
            return answer
        name = self.chance.choice(FAULTS)
        self.found[name] += 1
        return fault(name, answer, self.chance)

    def _meant(self) -> Answer:
        """Some steps with one call or several, then words."""
        self.left -= 1
        if self.left < 0:
            return self.protocol.reply("That was all. " * 10)
        calls = [
            ("read_file", {"path": f"f{next(self.files) % 4}.txt"})
            for _ in range(self.chance.randint(1, 3))
        ]
        return self.protocol.reply("I look.", calls=calls)


FAULTS = (
    "cut", "ended early", "stalled", "malformed event", "rubbish", "wrong type", "429", "500", "529", "too long",
    "refused key", "empty", "one byte at a time", "twice",
)  # fmt: skip


def fault(name: str, answer: Answer, chance: random.Random) -> Answer:  # noqa: C901, PLR0911, PLR0912 - one line for each
    """What becomes of an answer on the way."""
    at = chance.randint(0, len(answer.pieces))
    match name:
        case "cut":
            return answer.cut_after(at)
        case "ended early":
            return answer.ended_after(at)
        case "stalled":
            return answer.silent_after(at, 1.0)
        case "malformed event":
            return answer.with_piece(
                at,
                chance.choice(
                    (b"data: {\n\n", b"data: nonsense\n\n", b"data: [1, 2]\n\n", b"\xff\xfe\n\n")
                ),
            )
        case "rubbish":
            return Answer(pieces=(chance.randbytes(chance.randint(0, 400)),))
        case "wrong type":
            return Answer(
                pieces=(b"<html>Please log in to the hotel's network</html>",),
                content_type="text/html",
            )
        case "429":
            return _refused(
                429, "slow down", retry_after=chance.choice(("0", "0.1", "3600", "soon", ""))
            )
        case "500" | "529":
            return _refused(int(name), "overloaded")
        case "too long":
            return _refused(400, TOO_LONG, code="context_length_exceeded")
        case "refused key":
            return _refused(401, "no such key")
        case "empty":
            return Answer()
        case "one byte at a time":
            return answer.split(1)
        case _:
            return Answer(pieces=(*answer.pieces, *answer.pieces))


def _refused(status: int, message: str, *, code: str = "", retry_after: str = "") -> Answer:
    error = {
        "message": message,
        "code": code or status,
        "type": "invalid_request_error",
        "status": "INVALID_ARGUMENT",
    }
    return json_answer(
        {"type": "error", "error": error},
        status,
        **({"retry_after": retry_after} if retry_after else {}),
    )


def trials(turns: int, seed: int, found: Counter[str], each: int = TURNS) -> None:
    """`each`: turns of one conversation while the server fails; one more follows when
    it behaves.
    """
    chance = random.Random(seed)
    while found["turns"] < turns:
        protocol = PROTOCOLS[found["conversations"] % len(PROTOCOLS)]
        found["conversations"] += 1
        home = Path(tempfile.mkdtemp(prefix="helix-network-"))
        try:
            for line in asyncio.run(_conversation(home, protocol, chance, found, each)):
                found[
                    f"LOST in conversation {found['conversations']} ({protocol.kind}): {line}"
                ] += 1
        finally:
            shutil.rmtree(home, ignore_errors=True)


async def _conversation(
    home: Path, protocol: Protocol, chance: random.Random, found: Counter[str], each: int
) -> list[str]:
    """A conversation of some turns, opened again at its end; what was wrong."""
    folder = home / "folder"
    folder.mkdir()
    for number in range(4):
        (folder / f"f{number}.txt").write_text(f"line {number}\n" * 50 * (number + 1))
    broken = Broken(protocol, chance, found)
    server = protocol.server(default=broken)
    with server:
        desk = _desk(home)
        desk.configured.save_provider(
            ProviderConfig("peer", protocol.kind, server.base_url, patience=PATIENCE)
        )
        bench = await desk.create_workspace("Network", folder)
        await bench.choose_model_for_role("peer/scripted")
        await bench.choose_permission_mode("allow all")
        session = await bench.start_conversation()
        said = [f"message {number}, {chance.random()}" for number in range(each)]
        wrong: list[str] = []
        for words in said:
            wrong += await _turn(session, words, broken, found)
        broken.failing = False
        wrong += await _turn(session, "and now", broken, found, must=TurnEnd.DONE)
        facts = list(session.all_facts)
        name = session.id
        await desk.aclose()
    return wrong + await _again(home, name, facts, [*said, "and now"])


def _desk(home: Path) -> Workbenches:
    where = program_folders.find_program_folders(home / "home")
    return Workbenches(
        where,
        SecretStorage(where.key_file, environ={"HELIX_KEY_PEER": "sk-test-0000000000000000"}),
        clock=ClockWithoutPauses(),
    )


async def _turn(
    session: Session, words: str, broken: Broken, found: Counter[str], must: TurnEnd | None = None
) -> list[str]:
    broken.left = broken.chance.randint(0, 4)
    before = len(session.all_facts)
    session.send_message((Text(words),))
    try:
        await asyncio.wait_for(session.wait_until_idle(), LONGEST)
    except TimeoutError:
        return [f"the turn on {words!r} did not end within {LONGEST:.0f} s"]
    found["turns"] += 1
    ends = [one.fact for one in session.all_facts[before:] if isinstance(one.fact, TurnEnded)]
    wrong: list[str] = []
    if len(ends) != 1:
        wrong.append(f"the turn ended {len(ends)} times")
    for end in ends:
        found[f"ended {end.reason.value}"] += 1
        if must is not None and end.reason is not must:
            reason = end.reason.value
            wrong.append(f"with a server that behaves, the turn ended {reason}: {end.why}")
        if end.reason is TurnEnd.FAILED and not end.why:
            wrong.append("a failed turn does not say why")
    for call in open_calls(session.all_facts):
        wrong.append(f"call {call} is open")
    next_request = await session.context.rebuild_request()
    for violation in request_building.find_violations(next_request):
        wrong.append(f"the next request is illegal: {violation}")
    return wrong


def open_calls(facts: Sequence[Recorded]) -> Iterator[str]:
    """Calls without a result. A reply that was cut is never run, and its calls need none."""
    returned = Counter(one.fact.call for one in facts if isinstance(one.fact, ToolReturned))
    for one in facts:
        if isinstance(one.fact, ModelReplied) and one.fact.stop.value == "calls":
            for part in one.fact.parts:
                if isinstance(part, ToolCall) and not returned[part.id]:
                    yield part.id


async def _again(
    home: Path, name: str, facts: Sequence[Recorded], said: Sequence[str]
) -> list[str]:
    """Opened again: the same facts, and every word of the user in its order."""
    desk = _desk(home)
    bench = await desk.open_workspace("Network")
    session = await bench.open_session(name)
    kept = list(session.all_facts)
    wrong = (
        [] if kept[: len(facts)] == list(facts) else ["after opening again the facts are others"]
    )
    words = [_words(one.fact) for one in kept if isinstance(one.fact, UserSaid)]
    if words != list(said):
        wrong.append(f"the user said {json.dumps(said)}, kept is {json.dumps(words)}")
    await desk.aclose()
    return wrong


def _words(said: UserSaid) -> Any:
    return "".join(part.text for part in said.parts if isinstance(part, Text))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    return report(
        "network", arguments.seed, lambda found: trials(arguments.turns, arguments.seed, found)
    )


if __name__ == "__main__":
    sys.exit(main())
