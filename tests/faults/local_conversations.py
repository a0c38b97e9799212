"""Conversations with a small model on this computer: long pastes, small windows, slips.

    python -m tests.faults.local_conversations [--conversations 50] [--turns 20] [--seed N]
        [--tokenizer URL]    count with the llama.cpp server there, which has SmolLM2 in memory
        [--real URL]         let this llama.cpp server answer, with one conversation after another

Without `--real`, stand-ins answer: of llama.cpp, which refuses what is too long, and of Ollama,
which silently cuts its beginning. Of each conversation it is checked that no request was over the
window or lost its beginning, no reply was over the limit, each summary that was due was written or
said why not, and what the user said that holds always is in the last request.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helix_desktop import program_folders
from helix_desktop.engine.facts import (
    Folded,
    FoldFailed,
    FoldKind,
    ModelReplied,
    Text,
    TurnEnd,
    TurnEnded,
)
from helix_desktop.engine.session import Session
from helix_desktop.engine.strategies.handover import SECTIONS
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.faults.store_report import report
from tests.peers import chat_server
from tests.peers.llama_server import LlamaServer, RealTokenizer, TokenCount, estimate_tokens
from tests.peers.ollama_server import OllamaServer
from tests.peers.recording_relay import RecordingRelay
from tests.scripted_tour import ClockWithoutPauses

SECONDS_FOR_A_TURN = 300.0
SECONDS_FOR_A_REAL_TURN = 1_800.0
LONGEST_PASTE = 30_000
TEMPLATE_TOKENS_OF_A_MESSAGE = 5
RULES = (
    "From now on, never delete anything in the folder attic-{mark}.",
    "Always write amounts in euros, and always name the ledger {mark}.",
    "Never use port {mark}: another program needs it.",
    "Please always answer in short sentences, and never mention the customer {mark}.",
)


@dataclass(frozen=True)
class Setting:
    """A server, the window of its model, and whether the model can call tools."""

    server: str
    window: int
    has_tools: bool


SETTINGS = (
    Setting("llama.cpp", 8_192, has_tools=True),
    Setting("llama.cpp", 4_096, has_tools=True),
    Setting("llama.cpp", 2_048, has_tools=False),
    Setting("Ollama", 8_192, has_tools=True),
    Setting("Ollama", 4_096, has_tools=True),
    Setting("llama.cpp", 4_096, has_tools=False),
    Setting("Ollama", 2_048, has_tools=False),
)


# --- What the user writes


def write_paste(chance: random.Random, size: int) -> str:
    kind = chance.choice((prose_line, log_line, python_line, json_line, german_line, chinese_line))
    lines: list[str] = []
    length = 0
    while length < size:
        line = kind(chance)
        lines.append(line)
        length += len(line.encode()) + 1
    return "\n".join(lines)


WORDS = (
    "the late fee of a book is paid by its reader when it comes back after the day that was agreed"
)
GERMAN_WORDS = (
    "die Gebühr für überfällige Bücher zahlt der Leser bei der Rückgabe am nächsten Werktag"
)
CHINESE_WORDS = "读者 归还 图书 时 支付 逾期 罚款 图书馆 规定 日期"


def prose_line(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS.split(), k=18)).capitalize() + "."


def german_line(chance: random.Random) -> str:
    return " ".join(chance.choices(GERMAN_WORDS.split(), k=14)) + "."


def chinese_line(chance: random.Random) -> str:
    return "".join(chance.choices(CHINESE_WORDS.split(), k=16)) + "。"


def log_line(chance: random.Random) -> str:
    moment = f"2026-11-{chance.randint(1, 28):02}T{chance.randint(0, 23):02}:14:07.{chance.randint(0, 999):03}Z"
    return f"{moment} WARN loans[{chance.randint(1000, 9999)}]: request {chance.getrandbits(48):012x} took {chance.randint(1, 9000)} ms"


def python_line(chance: random.Random) -> str:
    number = chance.randint(1, 999)
    return f"def fee_{number}(days: int, rate: float = {number / 100}) -> float:\n    return max(0, days - {number % 30}) * rate"


def json_line(chance: random.Random) -> str:
    return f'{{"id": {chance.randint(1, 99_999)}, "reader": "r-{chance.getrandbits(24):06x}", "fee": {chance.randint(0, 900) / 100}}},'


@dataclass(frozen=True)
class Plan:
    """What the user writes in a conversation, and what of it holds until the end."""

    setting: Setting
    limit: int  # Of a reply, as the user has set it; 0: none.
    drops_tools: bool  # Whether the template leaves tools out, whatever its server says.
    messages: Sequence[str]
    rules: Sequence[str]


def plan_conversation(chance: random.Random, setting: Setting, turns: int, longest: int) -> Plan:
    rules = [rule.format(mark=chance.randint(4_000, 9_999)) for rule in chance.sample(RULES, 2)]
    messages = [f"Hello, who are you? {rules[0]}"]
    second_rule_at = chance.randrange(1, max(2, turns // 2))
    for turn in range(1, turns):
        size = round(longest ** chance.uniform(0.4, 1))
        if turn == second_rule_at:
            messages.append(f"{rules[1]} Which fee is due after {turn} days?")
        elif chance.random() < 0.5:
            paste = write_paste(chance, size)
            messages.append(f"What is unusual in this text?\n\n{paste}")
        else:
            messages.append(f"And what about number {turn}? Read src/pairs.py if you need it.")
    limit = chance.choice((0, 150, 400))
    drops_tools = chance.random() < 0.5
    return Plan(setting, limit, drops_tools, messages, rules)


# --- What the model answers


@dataclass
class SmallModel:
    """Answers as a small model does: mostly usable, now and then with a slip."""

    chance: random.Random
    summaries: int = 0

    def reply(self, body: dict[str, Any]) -> str | chat_server.Calls:
        messages = body["messages"]
        if SECTIONS[0] in str(messages[-1].get("content")):
            self.summaries += 1
            return self._summary()
        was_result = messages[-1]["role"] == "tool"
        if body.get("tools") and not was_result and self.chance.random() < 0.3:
            return [("read_file", {"path": "src/pairs.py"})]
        return self.chance.choice((self._answer, self._answer, self._story, self._slip))()

    def text_reply(self, messages: list[dict[str, Any]]) -> str:
        """Reply to a server that is asked for no tools."""
        said = self.reply({"messages": messages})
        assert isinstance(said, str)
        return said

    def _answer(self) -> str:
        return f"The fee is {self.chance.randint(1, 90)} euros. " + prose_line(self.chance)

    def _story(self) -> str:
        return "\n".join(prose_line(self.chance) for _ in range(self.chance.randint(5, 120)))

    def _slip(self) -> str:
        return self.chance.choice(
            (
                "",
                "I see. " + "As a language model I can help. " * 300,
                "<tool_call>\n" + '{"name": "fly", "arguments": {}}' + "\n</tool_call>",
                "Die Gebühr ist fällig. " * 3,
                "<think>\n" + "Wait, maybe not. " * 500,
            )
        )

    def _summary(self) -> str:
        """Write a summary; one in five is not in the form that was asked for."""
        if self.chance.random() < 0.2:
            return "We talked about fees."
        return "\n\n".join(f"## {name}\n{prose_line(self.chance)}" for name in SECTIONS)


def ollama_of_plan(plan: Plan, model: SmallModel, count: TokenCount) -> OllamaServer:
    def count_messages(messages: Iterable[dict[str, Any]]) -> int:
        total = 0
        for message in messages:
            total += count(str(message.get("content") or "")) + TEMPLATE_TOKENS_OF_A_MESSAGE
        return total

    capabilities = ("completion", "tools") if plan.setting.has_tools else ("completion",)
    return OllamaServer(
        "smollm2:135m",
        largest=plan.setting.window,
        capabilities=capabilities,
        says=model.text_reply,
        count_tokens=count_messages,
        counts_tools=not plan.drops_tools,
    )


# --- What is checked


@dataclass
class Outcome:
    """What came of a conversation."""

    requests: int = 0
    over_window: int = 0
    cut: int = 0
    replies_over_limit: int = 0
    summaries: int = 0
    failed_folds: int = 0
    untold_overflows: int = 0
    lost_rules: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # Of failed folds and turns.

    def problems(self) -> list[str]:
        counts = {
            "requests over the window": self.over_window,
            "beginnings cut silently": self.cut,
            "replies over the limit": self.replies_over_limit,
            "turns that ended without a reason": self.untold_overflows,
            "turns that failed for another reason than a slip": self.ends["failed"],
        }
        found = [f"{count} {name}" for name, count in counts.items() if count]
        found += [f"the rule {rule!r} is not in the last request" for rule in self.lost_rules]
        return found


async def talk(session: Session, plan: Plan, seconds: float) -> None:
    for message in plan.messages:
        session.send_message((Text(message),))
        await asyncio.wait_for(session.wait_until_idle(), seconds)


def read_outcome(session: Session, plan: Plan) -> Outcome:
    """Read from the recorded facts what the conversation's replies, folds and ends were."""
    outcome = Outcome()
    for recorded in session.all_facts:
        fact = recorded.fact
        if isinstance(fact, ModelReplied):
            outcome.requests += 1
            output = fact.usage.output if fact.usage is not None else 0
            if plan.limit and output > plan.limit:
                outcome.replies_over_limit += 1
        elif isinstance(fact, Folded) and fact.kind is FoldKind.HANDOVER:
            outcome.summaries += 1
        elif isinstance(fact, FoldFailed):
            outcome.failed_folds += 1
            outcome.reasons[f"fold: {fact.why}"] += 1
            if not fact.why:
                outcome.untold_overflows += 1
        elif isinstance(fact, TurnEnded):
            note_end(outcome, fact)
    return outcome


def note_end(outcome: Outcome, end: TurnEnded) -> None:
    outcome.ends[f"{end.reason.value} {end.cause}".strip()] += 1
    if end.why:
        outcome.reasons[f"turn {end.reason.value}: {end.why}"] += 1
    elif end.reason is not TurnEnd.DONE:
        outcome.untold_overflows += 1


def note_lost_rules(outcome: Outcome, plan: Plan, last_request: str) -> None:
    for rule in plan.rules:
        if rule not in last_request:
            outcome.lost_rules.append(rule)


def text_of_messages(messages: Iterable[dict[str, Any]]) -> str:
    return "\n".join(str(message.get("content")) for message in messages)


async def run_conversation(
    plan: Plan, base_url: str, model: str, home: Path, seconds: float
) -> tuple[Outcome, str]:
    """Return what came of it, and the title under which it can be looked at."""
    folder = home / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "pairs.py").write_text("def count(sequence):\n    return len(sequence)\n")
    where = program_folders.find_program_folders(home / "home")
    desk = Workbenches(where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses())
    try:
        desk.configured.save_provider(ProviderConfig("mine", base_url=base_url))
        if plan.limit:
            desk.configured.correct_model("mine", model, {"max_output": plan.limit})
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role(f"mine/{model}")
        session = await bench.start_conversation("Small")
        await talk(session, plan, seconds)
        return read_outcome(session, plan), str(session.id)
    finally:
        await desk.aclose()


async def try_with_stand_in(plan: Plan, chance: random.Random, count: TokenCount) -> Outcome:
    model = SmallModel(chance)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if plan.setting.server == "Ollama":
            ollama = stack.enter_context(ollama_of_plan(plan, model, count))
            outcome, _ = await run_conversation(
                plan, ollama.base_url, ollama.model, home, SECONDS_FOR_A_TURN
            )
            outcome.cut = ollama.cut
            outcome.requests = len(ollama.shown)
            note_lost_rules(outcome, plan, text_of_messages(ollama.shown[-1]))
            return outcome
        llama = stack.enter_context(
            LlamaServer(
                model.reply,
                window=plan.setting.window,
                has_tools=plan.setting.has_tools,
                count_tokens=count,
            )
        )
        outcome, _ = await run_conversation(
            plan, llama.base_url, llama.model, home, SECONDS_FOR_A_TURN
        )
        outcome.over_window = llama.refused
        outcome.requests = len(llama.prompt_tokens)
        last = next(body for body in reversed(llama.bodies) if "stream" in body)
        note_lost_rules(outcome, plan, text_of_messages(last["messages"]))
        return outcome


async def try_with_real_model(plan: Plan, url: str, home: Path) -> Outcome:
    with RecordingRelay(url) as relay:
        outcome, _ = await run_conversation(
            plan, f"{relay.url}/v1", "SmolLM2", home, SECONDS_FOR_A_REAL_TURN
        )
        bodies = [body for body in relay.json_bodies() if "stream" in body]
        outcome.requests = len(bodies)
        outcome.over_window = relay.answers().count(b"exceed_context_size_error")
        note_lost_rules(outcome, plan, text_of_messages(bodies[-1]["messages"]))
        return outcome


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversations", type=int, default=50)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--tokenizer", default="")
    parser.add_argument("--real", default="")
    parser.add_argument("--window", type=int, default=8_192, help="of the real server")
    parser.add_argument("--longest", type=int, default=LONGEST_PASTE, help="bytes of a paste")
    parser.add_argument("--only", type=int, default=-1, help="this conversation alone")
    given = parser.parse_args()
    count: TokenCount = estimate_tokens
    if given.tokenizer:
        count = RealTokenizer(given.tokenizer)

    def trials(found: Counter[str]) -> None:
        for number in range(given.conversations):
            if given.only not in (-1, number):
                continue
            chance = random.Random(f"{given.seed} {number}")
            setting = SETTINGS[number % len(SETTINGS)]
            if given.real:
                setting = Setting("llama.cpp", given.window, has_tools=False)
            plan = plan_conversation(chance, setting, given.turns, given.longest)
            if given.real:
                with tempfile.TemporaryDirectory() as home:
                    outcome = asyncio.run(try_with_real_model(plan, given.real, Path(home)))
            else:
                outcome = asyncio.run(try_with_stand_in(plan, chance, count))
            found["conversations"] += 1
            found["requests"] += outcome.requests
            found["summaries"] += outcome.summaries
            found["folds that failed with a reason"] += outcome.failed_folds
            found.update({f"turns {end}": turns for end, turns in outcome.ends.items()})
            problems = outcome.problems()
            name = f"{number} ({setting.server}, {setting.window}, tools {setting.has_tools}, limit {plan.limit})"
            found.update(f"LOST {name}: {problem}" for problem in problems)
            sys.stdout.write(f"{name}: {outcome}\n")
            sys.stdout.flush()

    return report("local conversations", given.seed, trials)


if __name__ == "__main__":
    sys.exit(main())
