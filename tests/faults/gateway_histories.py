"""Agents that rewind, edit, shorten their history, work side by side and go on the next
day: each stays in its own conversation.

Every text names the agent that wrote it, so that a part of one in the conversation of
another is found by reading the journal.

python -m tests.faults.gateway_histories [--histories N] [--seed S]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helix_desktop import program_folders
from helix_desktop.engine.facts import (
    Fact,
    ModelReplied,
    Stop,
    ToolReturned,
    ToolSpec,
    Usage,
    UserSaid,
)
from helix_desktop.errors import ModelFailed
from helix_desktop.gateway.conversation_matching import compute_message_hashes
from helix_desktop.gateway.conversations_port import Arrival, Replied
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.view_entries import UnchangedMessage
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.workbench import all_workbenches
from helix_desktop.workbench.open_workbench import Workbench
from tests.faults.store_report import report
from tests.texts_and_calls import calls_in, texts_in

Json = Any
TOOLS = (ToolSpec("Bash", "run it", "{}"),)
_OF = re.compile(r"of agent (\d+)\b")


@dataclass
class Agent:
    """One agent: `number` is in all it says; `start` in what it shares with others that
    begin alike.
    """

    number: int
    start: str
    session: str
    rng: random.Random
    units: list[Json] = field(default_factory=list)
    conversation: str = ""
    requests: int = 0
    resumed: bool = False  # under another name, where it was
    # it has gone back, edited or shortened: without a name it may be in a new
    # conversation then
    left: bool = False

    def act(self) -> None:
        """What stands in its next request."""
        if not self.units:
            self.units = [_said(f"{self.start} begins")]
            return
        chance = 1.0 if self.resumed else self.rng.random()
        self.resumed = False
        if chance < 0.12:
            self._go_back()
        elif chance < 0.18 and len(self.units) > 3:
            self._edit_a_text()
        elif chance < 0.24 and len(self.units) > 4:  # it shortens its own history
            self.units = [_said(f"A summary {self._text()}")]
            self.left = True
            return
        last = self.units[-1] if self.units else None
        if last is not None and _calls(last):
            results = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": self._text()}
                for call in _calls(last)
            ]
            self.units.append({"role": "user", "content": results})
        elif last is None or last["role"] == "assistant":
            self.units.append(_said(self._text()))

    def _go_back(self) -> None:
        """To an earlier message of the user's, which goes, too."""
        places: list[int] = []
        for place, unit in enumerate(self.units):
            if unit["role"] == "user" and not _result(unit):
                places.append(place)
        del self.units[self.rng.choice(places) :]
        self.left = True

    def _edit_a_text(self) -> None:
        place = self.rng.randrange(1, len(self.units) - 1)
        unit = self.units[place]
        if not _result(unit) and not _calls(unit):
            self.units[place] = {**unit, "content": self._text()}
            self.left = True

    def resume_sometimes(self) -> None:
        """Behind a reply, under another name; a short session begins a new conversation then."""
        is_behind_reply = bool(self.units) and self.units[-1]["role"] == "assistant"
        if self.session and is_behind_reply and self.rng.random() < 0.04:
            self.session = f"{self.session}-again"
            self.resumed = len(self.units) > 2
            if not self.resumed:
                self.conversation = ""

    def _text(self) -> str:
        return f"text {self.rng.randrange(10**9)} of agent {self.number}"

    def replies(self) -> Json:
        """What the model says to it."""
        if self.rng.random() < 0.5:
            content: list[Json] = [{"type": "text", "text": self._text()}]
        else:
            call = {"type": "tool_use", "id": f"toolu_{self.rng.randrange(10**12)}", "name": "Bash"}
            content = [{**call, "input": {"command": self._text()}}]
        return {"role": "assistant", "content": content}


def _said(text: str) -> Json:
    return {"role": "user", "content": text}


def _calls(unit: Json) -> list[Json]:
    return [b for b in unit["content"] if isinstance(b, dict) and b["type"] == "tool_use"]


def _result(unit: Json) -> bool:
    return any(isinstance(b, dict) and b["type"] == "tool_result" for b in unit["content"])


async def _nobody(*_: object) -> tuple[str, Usage, str]:
    raise ModelFailed("There is no model here.")


async def request(room: LocalAgentConversations, agent: Agent) -> Iterator[str]:
    """One request and its reply; what was wrong."""
    agent.act()
    said = anthropic_gateway.parse_messages({"messages": agent.units})
    arrival = Arrival("anthropic", "an agent", agent.session, "head", "claude-opus-4-6", "system", TOOLS, compute_message_hashes("anthropic", said))  # fmt: skip
    sent = await room.receive_request(arrival, said)
    wrong = []
    if list(sent.entries) != [UnchangedMessage(at) for at in range(len(said))]:
        wrong.append(f"agent {agent.number} was sent something else than it said")
    if agent.conversation not in ("", sent.ticket.conversation) and (
        agent.session or not agent.left
    ):
        wrong.append(
            f"agent {agent.number} ({agent.session or 'no name'}) is in another conversation"
        )
    agent.conversation = sent.ticket.conversation
    agent.left = len(agent.units) == 1  # so far it has said only what another may have said as well
    agent.requests += 1
    if agent.rng.random() < 0.06:
        return iter(wrong)  # the reply never comes: the agent asks again
    reply = anthropic_gateway.parse_message(agent.replies())
    stop = Stop.CALLS if _calls(reply.units[0]) else Stop.END
    await room.record_agent_reply(
        sent.ticket,
        Replied(reply.pieces, "claude-opus-4-6", stop, Usage(10, 0, 0, 1)),
        reply.identity_key,
    )
    agent.units.append(reply.units[0])
    return iter(wrong)


def agents(number: int, rng: random.Random) -> list[Agent]:
    """Two or three at work in one folder: with names, without, and two that begin alike."""
    alike = f"history {number}"
    made = []
    named = rng.random() < 0.5
    for at in range(rng.randint(2, 3)):
        own = number * 10 + at
        start = alike if at < 2 and rng.random() < 0.6 else f"start of agent {own}"
        session = f"session-{own}" if named or at == 2 else ""
        made.append(Agent(own, start, session, random.Random(rng.random())))
    return made


@asynccontextmanager
async def bench(home: Path) -> AsyncIterator[Workbench]:
    """A workspace of its own, open."""
    where = program_folders.find_program_folders(home)
    known = AllWorkspaces(where.workspaces_folder)
    workspace = await known.open_stored_workspace(
        (await asyncio.to_thread(known.create_stored_workspace, "agents")).id
    )
    try:
        async with all_workbenches.open_single_workbench(workspace, where) as made:
            yield made
    finally:
        await workspace.aclose()


async def mixed(made: Workbench) -> list[str]:
    """Conversations with parts of two agents."""
    wrong = []
    for row in made.list_conversations():
        agents: set[str] = set()
        for recorded in await made.read_conversation_facts(row.id):
            for text in _texts_of(recorded.fact):
                agents.update(_OF.findall(text))
        if len(agents) > 1:
            wrong.append(f"conversation {row.id} has parts of agents {', '.join(sorted(agents))}")
    return wrong


def _texts_of(fact: Fact) -> list[str]:
    match fact:
        case UserSaid(parts=parts) | ModelReplied(parts=parts):
            return texts_in(parts) + [call.arguments for call in calls_in(parts)]
        case ToolReturned(head=head):
            return [head]
        case _:
            return []


async def trial(home: Path, histories: int, seed: int, found: Counter[str]) -> None:
    """Histories and requests that were tried, and what was wrong."""
    rng = random.Random(seed)
    async with bench(home) as made:
        room = LocalAgentConversations(made, _nobody)
        try:
            for number in range(1, histories + 1):
                at_work = agents(number, rng)
                for _ in range(rng.randint(6, 16)):
                    if rng.random() < 0.04:  # the next day: the gateway has begun anew
                        await room.aclose()
                        room = LocalAgentConversations(made, _nobody)
                    agent = rng.choice(at_work)
                    agent.resume_sometimes()
                    for what in await request(room, agent):
                        found[f"LOST history {number}: {what}"] += 1
                    found["requests"] += 1
                found["histories"] += 1
        finally:  # interrupted, it looks at what was done by then
            await room.aclose()
            for what in await mixed(made):
                found[f"LOST {what}"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    seed = arguments.seed

    def trials(found: Counter[str]) -> None:
        with tempfile.TemporaryDirectory() as home:
            asyncio.run(trial(Path(home), arguments.histories, seed, found))

    return report("gateway histories", seed, trials)


if __name__ == "__main__":
    sys.exit(main())
