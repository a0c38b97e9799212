"""The meter beside the count of the model's own tokenizer, on texts of eight kinds.

    python -m tests.faults.local_meter --tokenizer URL [--texts 200] [--seed N] [--counts]

URL is a llama.cpp server that has SmolLM2 in memory. A conversation gets five texts of its kind.
What the meter said when a request was sent is compared with the tokenizer's count of it: of the
first request (at most 15 % off), and of the fourth and fifth, after three replies (at most 5 %).
Without `--counts`, the server only reports the tokens of its replies, as Ollama does; with it, it
counts on request, as llama.cpp does.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helix_desktop import program_folders
from helix_desktop.engine.facts import Text
from helix_desktop.engine.session import Session
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.faults.local_conversations import log_line
from tests.faults.store_report import report
from tests.peers.llama_server import LlamaServer, RealTokenizer
from tests.peers.peer import Answer, Seen, json_answer
from tests.scripted_tour import ClockWithoutPauses

ROOT = Path(__file__).parents[2]
TEXTS_OF_A_CONVERSATION = 5
TEXT_CHARACTERS = (300, 4_000)
WINDOW = 65_536  # Nothing is shortened, so that each request has all texts before it.
MOST_OFF_BEFORE = 0.15
MOST_OFF_AFTER = 0.05
ANSWERS = ("Understood.", "I have read it. What would you like to know?", "Thank you, noted.")


# --- Texts of eight kinds


def read_prose() -> str:
    return "\n".join(path.read_text("utf-8") for path in (ROOT / "resources/help").glob("*.md"))


def read_german() -> str:
    return "\n".join(path.read_text("utf-8") for path in (ROOT / "resources/help/de").glob("*.md"))


def read_chinese() -> str:
    return "\n".join(path.read_text("utf-8") for path in (ROOT / "resources/help/zh").glob("*.md"))


def read_code() -> str:
    paths = sorted((ROOT / "helix_desktop/engine").glob("*.py"))
    return "\n".join(path.read_text("utf-8") for path in paths)


def read_json() -> str:
    return (ROOT / "tests/benchmarks/last.json").read_text("utf-8")


def read_logs() -> str:
    chance = random.Random(1)
    return "\n".join(log_line(chance) for _ in range(2_000))


def read_differences() -> str:
    shown = ["git", "log", "-p", "-8", "--", "helix_desktop"]
    return subprocess.run(shown, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def read_tables() -> str:
    chance = random.Random(2)
    rows = [
        f"{chance.randint(1, 9_999)},{chance.choice('ABC')}-{chance.randint(10, 99)},{chance.random():.3f},2026-{chance.randint(1, 12):02}-14"
        for _ in range(4_000)
    ]
    return "\n".join(rows)


KINDS: dict[str, Callable[[], str]] = {
    "prose": read_prose,
    "German": read_german,
    "Chinese": read_chinese,
    "code": read_code,
    "JSON": read_json,
    "logs": read_logs,
    "differences": read_differences,
    "tables": read_tables,
}


# --- The server, and what the meter says when it is asked


class ReportingServer(LlamaServer):
    """Counts each request, and remembers what the meter said of it. Unless `counts`, it is a
    server that says nothing of itself but the tokens in its replies.
    """

    def __init__(self, count: RealTokenizer, chance: random.Random, *, counts: bool) -> None:
        super().__init__(self._say, window=WINDOW, has_tools=False, count_tokens=count)
        self.chance = chance
        self.counts = counts
        self.session: Session | None = None
        self.metered: list[int] = []

    def listing(self, seen: Seen) -> Answer:
        if seen.path == "/props" and not self.counts:
            return json_answer({"error": "nothing here"}, 404)
        return super().listing(seen)

    def answer(self, seen: Seen) -> Answer:
        if seen.path in ("/apply-template", "/tokenize") and not self.counts:
            return json_answer({"error": "nothing here"}, 404)
        return super().answer(seen)

    def _say(self, _body: dict[str, Any]) -> str:
        assert self.session is not None
        self.metered.append(self.session.context.next_request_meter().used)
        return self.chance.choice(ANSWERS)


async def run_conversation(
    texts: list[str], count: RealTokenizer, chance: random.Random, *, counts: bool
) -> list[float]:
    """Return how far the meter was off for each request, as a share of the tokenizer's count."""
    with (
        tempfile.TemporaryDirectory() as home,
        ReportingServer(count, chance, counts=counts) as server,
    ):
        folder = Path(home) / "project"
        folder.mkdir()
        where = program_folders.find_program_folders(Path(home) / "home")
        desk = Workbenches(
            where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses()
        )
        try:
            desk.configured.save_provider(ProviderConfig("mine", base_url=server.base_url))
            desk.configured.correct_model("mine", server.model, {"window": WINDOW, "tools": False})
            bench = await desk.create_workspace("Local", folder)
            await bench.choose_model_for_role(f"mine/{server.model}")
            server.session = await bench.start_conversation("Texts")
            for text in texts:
                server.session.send_message((Text(text),))
                await asyncio.wait_for(server.session.wait_until_idle(), 300)
        finally:
            await desk.aclose()
        return [
            metered / counted - 1
            for metered, counted in zip(server.metered, server.prompt_tokens, strict=True)
        ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--counts", action="store_true")
    given = parser.parse_args()
    count = RealTokenizer(given.tokenizer)

    def trials(found: Counter[str]) -> None:
        source_of_kind = {kind: read() for kind, read in KINDS.items()}
        off_before: list[float] = []
        off_after: list[float] = []
        for number in range(given.texts // TEXTS_OF_A_CONVERSATION):
            chance = random.Random(f"{given.seed} {number}")
            kind = list(KINDS)[number % len(KINDS)]
            source = source_of_kind[kind]
            texts: list[str] = []
            for _ in range(TEXTS_OF_A_CONVERSATION):
                length = chance.randint(*TEXT_CHARACTERS)
                start = chance.randrange(len(source) - length)
                texts.append(source[start : start + length])
            off = asyncio.run(run_conversation(texts, count, chance, counts=given.counts))
            off_before.append(abs(off[0]))
            off_after += [abs(share) for share in off[3:]]
            found["texts"] += len(texts)
            if abs(off[0]) > MOST_OFF_BEFORE:
                found[f"LOST {number} ({kind}): {off[0]:+.1%} before the first reply"] += 1
            for share in off[3:]:
                if abs(share) > MOST_OFF_AFTER:
                    found[f"LOST {number} ({kind}): {share:+.1%} after three replies"] += 1
            sys.stdout.write(f"{number} {kind}: {' '.join(f'{share:+.1%}' for share in off)}\n")
            sys.stdout.flush()
        for name, shares in (("before", off_before), ("after", off_after)):
            mean = sum(shares) / len(shares)
            sys.stdout.write(f"{name}: mean {mean:.1%}, worst {max(shares):.1%} of {len(shares)}\n")

    return report("local meter", given.seed, trials)


if __name__ == "__main__":
    sys.exit(main())
