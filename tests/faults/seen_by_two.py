"""One session of Claude Code, seen by the gateway and by the recorder in any order: it is one
conversation, with every word once, and each of its requests is paid once.

python -m tests.faults.seen_by_two [--sessions N] [--seed S]

An agent works in several turns, with calls, side by side and one after the other. Each request
goes through the gateway or, after the agent was started without it, does not. What the agent
writes to its file comes early, late or in two pieces, and the recorder reads the file at random
moments, also while a reply is under way, and again after the resident began anew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from helix_desktop.commands import cost_command
from helix_desktop.engine.facts import ModelReplied, Stop, Text, ToolCall, Usage, UserSaid
from helix_desktop.gateway.conversation_matching import compute_message_hashes
from helix_desktop.gateway.conversations_port import Arrival, Replied
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.workbench.open_workbench import Workbench
from tests.faults.gateway_histories import TOOLS, _nobody, bench
from tests.faults.store_report import report

Json = Any
MODEL = "claude-sonnet-4-5"
WAYS = ("gateway", "gateway, then alone", "alone, then gateway", "alone between")


@dataclass
class Session:
    """An agent's session: what it sends, and the lines of its file, some not written yet."""

    name: str
    chance: random.Random
    file: Path
    units: list[Json] = field(default_factory=list)
    lines: list[Json] = field(default_factory=list)
    written: int = 0
    replies: int = 0
    words: list[str] = field(default_factory=list)

    def add_line(self, kind: str, message: Json) -> None:
        number = len(self.lines) + 1
        self.lines.append(
            {
                "type": kind,
                "uuid": f"{self.name}-u{number}",
                "parentUuid": f"{self.name}-u{number - 1}" if self.lines else None,
                "sessionId": self.name,
                "cwd": str(self.file.parent),
                "version": "2.1.332",
                "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
                "isSidechain": False,
                "message": message,
            }
        )

    def write(self, lines: int) -> None:
        """Write so many of the lines that are not in the file yet."""
        with self.file.open("a", encoding="utf-8") as file:
            for line in self.lines[self.written : self.written + lines]:
                file.write(json.dumps(line) + "\n")
        self.written = min(len(self.lines), self.written + lines)

    def say(self) -> None:
        """Add what stands in the next request: results, or words of the user."""
        calls: list[Json] = []
        if self.units:  # The last one is a reply.
            calls = [block for block in self.units[-1]["content"] if block["type"] == "tool_use"]
        if not calls:
            text = f"words {self.chance.randrange(10**9)} of the user"
            self.words.append(text)
            self.units.append({"role": "user", "content": text})
            self.add_line("user", self.units[-1])
            return
        results = []
        for call in calls:
            text = f"output {self.chance.randrange(10**9)} of a tool"
            results.append({"type": "tool_result", "tool_use_id": call["id"], "content": text})
        self.units.append({"role": "user", "content": results})
        for result in results:  # Claude Code writes a line for each.
            self.add_line("user", {"role": "user", "content": [result]})

    def reply(self) -> tuple[Json, Json]:
        """Return the model's reply and its usage. Its lines are in the file one by one."""
        self.replies += 1
        text = f"reply {self.chance.randrange(10**9)} of the model"
        self.words.append(text)
        content: list[Json] = [{"type": "text", "text": text}]
        for _ in range(self.chance.choice((0, 0, 1, 1, 2))):
            call = {"type": "tool_use", "id": f"toolu_{self.chance.randrange(10**12)}"}
            content.append({**call, "name": "Bash", "input": {"command": text}})
        usage = {
            "input_tokens": 100,
            "output_tokens": self.replies,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
        }
        return {"role": "assistant", "content": content}, usage

    def add_reply(self, unit: Json, usage: Json) -> None:
        self.units.append(unit)
        for block in unit["content"]:
            message = {"id": f"msg_{self.name}_{self.replies}", "model": MODEL, "usage": usage}
            self.add_line("assistant", {**message, "role": "assistant", "content": [block]})


async def send_through_gateway(
    made: Workbench, room: LocalAgentConversations, session: Session
) -> None:
    said = anthropic_gateway.parse_messages({"messages": session.units})
    hashes = compute_message_hashes("anthropic", said)
    arrival = Arrival("anthropic", "Claude Code", session.name, "head", MODEL, "system", TOOLS, hashes)  # fmt: skip
    sent = await room.receive_request(arrival, said)
    if session.chance.random() < 0.3:
        session.write(session.chance.randint(0, 2))
        await read_file(made, session)
    unit, usage = session.reply()
    reply = anthropic_gateway.parse_message(unit)
    stop = Stop.CALLS if len(unit["content"]) > 1 else Stop.END
    session.add_reply(unit, usage)
    if session.chance.random() < 0.3:  # The file has the reply before the gateway does.
        session.write(99)
        await read_file(made, session)
    tokens = Usage(100, 0, 0, session.replies)
    await room.record_agent_reply(
        sent.ticket, Replied(reply.pieces, MODEL, stop, tokens), reply.identity_key
    )


async def read_file(made: Workbench, session: Session) -> None:
    """The recorder reads the file, if there is one yet."""
    if session.file.exists():
        await made.import_histories([session.file])


async def run_session(made: Workbench, session: Session, way: str) -> None:
    room = LocalAgentConversations(made, _nobody)
    steps = session.chance.randint(2, 8)
    change = session.chance.randint(1, steps)
    for step in range(steps):
        session.say()
        is_alone = {
            "gateway": False,
            "gateway, then alone": step >= change,
            "alone, then gateway": step < change,
            "alone between": step == change,
        }[way]
        if is_alone:
            unit, usage = session.reply()
            session.add_reply(unit, usage)
        else:
            await send_through_gateway(made, room, session)
        if session.chance.random() < 0.7:
            session.write(session.chance.choice((0, 1, 2, 99)))
        if session.chance.random() < 0.5:
            await read_file(made, session)
        if session.chance.random() < 0.1:  # The next day: the gateway has begun anew.
            await room.aclose()
            room = LocalAgentConversations(made, _nobody)
    session.write(99)
    await read_file(made, session)
    await read_file(made, session)
    await room.aclose()


async def faults_of_session(made: Workbench, session: Session) -> list[str]:
    faults: list[str] = []
    rows = []
    for row in made.list_conversations():
        said = await texts_of_conversation(made, row.id)
        if said & set(session.words):
            rows.append((row, said))
    shown = [(row, said) for row, said in rows if not row.archived]
    if len(shown) != 1:
        faults.append(f"{len(shown)} rows")
    else:
        _, said = shown[0]
        missing = [words for words in session.words if words not in said]
        if missing:
            faults.append(f"{len(missing)} of {len(session.words)} texts are not in it")
    paid = len(await cost_command._read_requests_of_agents(made.workspace))
    if paid != session.replies:
        faults.append(f"{session.replies} replies are paid {paid} times")
    return faults


async def texts_of_conversation(made: Workbench, conversation: str) -> set[str]:
    said: set[str] = set()
    for recorded in await made.read_conversation_facts(conversation):
        if isinstance(recorded.fact, UserSaid | ModelReplied):
            for part in recorded.fact.parts:
                if isinstance(part, Text):
                    said.add(part.text)
                elif isinstance(part, ToolCall):
                    said.add(part.arguments)
    return said


async def trial(home: Path, sessions: int, seed: int, found: Counter[str]) -> None:
    for number in range(sessions):
        chance = random.Random(f"{seed} {number}")
        folder = home / str(number)
        folder.mkdir()
        name = f"0000{number:04}-1111-4222-8333-444455556666"
        session = Session(name, chance, folder / f"{name}.jsonl")
        way = WAYS[number % len(WAYS)]
        async with bench(folder / "home") as made:
            await run_session(made, session, way)
            for fault in await faults_of_session(made, session):
                found[f"LOST session {number} ({way}): {fault}"] += 1
        found["sessions"] += 1
        found["replies"] += session.replies


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    seed = arguments.seed

    def trials(found: Counter[str]) -> None:
        with tempfile.TemporaryDirectory() as home:
            asyncio.run(trial(Path(home), arguments.sessions, seed, found))

    return report("seen by two", seed, trials)


if __name__ == "__main__":
    sys.exit(main())
