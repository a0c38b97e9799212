"""A recorded session through the whole program: a scripted server over HTTP, real tools
on a scratch folder.

`python -m tests.workbench.recorded TRACE [--steps N] [--window N]` plays a session in
the format of ../shared/traces. What was recorded is never executed: a command becomes
`cat` of a file with its recorded output, a file that was read is written before with
the recorded content. The server checks every request by itself: what a call lacks, what
is out of order, and how many tokens it is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helix_desktop import program_folders
from helix_desktop.engine.facts import Folded, ModelReplied, Text, ToolReturned, TurnEnded
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.token_counting import TiktokenCounter as Tokens
from helix_desktop.workbench import Workbenches
from tests.peers.chat_server import ChatServer, reply
from tests.peers.peer import Answer, Seen
from tests.scripted_tour import ClockWithoutPauses

CHOOSE = "Some outputs of your last calls are long."
ASIDES = (
    "<material>",
    "Write a handover document",
    "sections of the handover document are missing",
    "into observations:",
    "Merge these observations",
    CHOOSE,
)
SUMMARY = "\n\n".join(
    f"## {name}\n\nAs it was said."
    for name in (
        "Project Background",
        "Technical Details",
        "Completed Work",
        "Current Issues",
        "TODO Items",
        "User Preferences",
    )
)


@dataclass(frozen=True, slots=True)
class Step:
    """What the model says and calls, and what each call gave."""

    text: str
    calls: tuple[tuple[str, dict[str, Any], str], ...] = ()


@dataclass
class Judge:
    """The server's own view of the requests."""

    window: int
    tokens: Tokens = field(default_factory=Tokens)
    wrong: list[str] = field(default_factory=list)
    largest: int = 0
    asides: int = 0
    seen: int = 0

    def look(self, body: Any) -> None:
        self.seen += 1
        texts = [texts_of(message) for message in body["messages"]]
        tools = json.dumps(body.get("tools", []), ensure_ascii=False)
        size = sum(self.tokens.count_tokens(text) + 4 for text in texts) + self.tokens.count_tokens(
            tools
        )
        self.largest = max(self.largest, size)
        if size > self.window:
            self.wrong.append(f"request {self.seen} has about {size} tokens")
        self.wrong += [f"request {self.seen}: {what}" for what in order_of(body["messages"])]


def texts_of(message: dict[str, Any]) -> str:
    """All that a model reads of a message."""
    content = message.get("content") or ""
    said = (
        content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
    )
    calls = "".join(
        call["function"]["name"] + call["function"]["arguments"]
        for call in message.get("tool_calls") or ()
    )
    return said + calls


def order_of(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What OpenAI would refuse: results without calls, calls without results, empty messages."""
    waiting: list[str] = []
    for message in messages:
        role = message["role"]
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"a result without a call ({message['tool_call_id']})"
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield f"{len(waiting)} calls without a result before a message of {role}"
            waiting = []
        calls = message.get("tool_calls") or []
        waiting = [call["id"] for call in calls]
        if not calls and not message.get("content"):
            yield f"an empty message of {role}"
    if waiting:
        yield f"{len(waiting)} calls without a result at the end"


class Player(ChatServer):
    """Plays the steps in order; questions of the strategies get a summary that leaves
    every detail out.
    """

    def __init__(self, steps: Sequence[Step], judge: Judge) -> None:
        super().__init__()
        self.steps = list(steps)
        self.judge = judge

    def answer(self, seen: Seen) -> Answer:
        if seen.method == "GET":
            return self.listing(seen)
        self.judge.look(seen.body)
        if any(mark in texts_of(seen.body["messages"][-1]) for mark in ASIDES):
            self.judge.asides += 1
            return reply("1: preview" if CHOOSE in texts_of(seen.body["messages"][-1]) else SUMMARY)
        if not self.steps:
            return reply("That was all.")
        step = self.steps.pop(0)
        return reply(step.text, calls=[(name, arguments) for name, arguments, _ in step.calls])


def recorded_steps(trace: Path, most: int) -> tuple[str, list[Step]]:
    """The first message of the user, and the assistant's messages with their results."""
    messages = [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]
    results = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
    asked = next(m["content"] for m in messages if m["role"] == "user")
    steps: list[Step] = []
    for message in messages:
        if message["role"] == "assistant" and message.get("tool_calls"):
            calls = tuple(_call(call, results) for call in message["tool_calls"])
            steps.append(Step(message["content"] or "", calls))
    return asked, steps[:most]


def _call(call: dict[str, Any], results: dict[str, str]) -> tuple[str, dict[str, Any], str]:
    return (
        call["function"]["name"],
        json.loads(call["function"]["arguments"]),
        results.get(call["id"], ""),
    )


def on_a_folder(steps: Sequence[Step], folder: Path) -> list[Step]:
    """The steps with calls of our own tools, and the files they need: outputs/N.txt
    holds what a call gave then.
    """
    outputs = folder / "outputs"
    outputs.mkdir(parents=True)
    made = []
    number = 0
    for step in steps:
        calls: list[tuple[str, dict[str, Any], str]] = []
        for name, arguments, result in step.calls:
            number += 1
            path = f"outputs/{number}.txt"
            (folder / path).write_text(result, encoding="utf-8")
            calls.append(_ours(name, arguments, path, result))
        made.append(Step(step.text, tuple(calls)))
    return made


def _ours(
    name: str, arguments: dict[str, Any], path: str, result: str
) -> tuple[str, dict[str, Any], str]:
    if name in {"write", "edit"}:
        text = str(
            arguments.get("content")
            or arguments.get("newText")
            or arguments.get("new_str")
            or result
        )
        return "write_file", {"path": f"written/{Path(path).name}", "content": text}, result
    if name == "read":
        return "read_file", {"path": path}, result
    return "run_command", {"command": f"cat {path}"}, result


async def play(
    asked: str, steps: Sequence[Step], home: Path, *, window: int, preset: str = "layered"
) -> dict[str, Any]:
    """One turn of all the steps; the figures of it, and everything that was wrong."""
    folder = home / "project"
    ours = on_a_folder(steps, folder)
    judge = Judge(window)
    where = program_folders.find_program_folders(home / "home")
    desk = Workbenches(where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses())
    with Player(ours, judge) as server:
        desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
        desk.configured.correct_model("peer", "scripted", {"window": window})
        bench = await desk.create_workspace("Recorded", folder)
        bench.workspace.change_settings({"limits.steps": 10_000, "limits.repeats": 1_000})
        await bench.choose_model_for_role("peer/scripted")
        await bench.choose_context_policy(preset)
        await bench.choose_permission_mode("allow all")
        session = await bench.start_conversation()
        session.send_message((Text(asked),))
        await session.wait_until_idle()
        facts = [recorded.fact for recorded in session.all_facts]
        lost = [
            fold.fold for fold in facts if isinstance(fold, Folded) for digest in fold.entries
            if (await bench.workspace.cache.describe_entry(digest)).stored.digest != digest
        ]  # fmt: skip
        await desk.aclose()
    end = next(fact for fact in facts if isinstance(fact, TurnEnded))
    returned = [fact for fact in facts if isinstance(fact, ToolReturned)]
    return {
        "end": end.reason.value,
        "why": end.why,
        "steps": sum(isinstance(fact, ModelReplied) for fact in facts),
        "calls": len(returned),
        "failed_calls": sum(not fact.ok for fact in returned),
        "requests": judge.seen,
        "asides": judge.asides,
        "largest_request": judge.largest,
        "window": window,
        "wrong": judge.wrong,
        "lost": lost,
        "folds": dict(Counter(fact.kind.value for fact in facts if isinstance(fact, Folded))),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", type=Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--window", type=int, default=128_000)
    parser.add_argument("--policy", default="layered")
    given = parser.parse_args()
    asked, steps = recorded_steps(given.trace, given.steps)
    with tempfile.TemporaryDirectory() as home:
        figures = asyncio.run(
            play(asked, steps, Path(home), window=given.window, preset=given.policy)
        )
    print(json.dumps(figures, indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
