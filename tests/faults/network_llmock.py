"""Whole conversations, ten times as long as the model's window, before a server nobody
here wrote that judges its client: llmock.

python -m tests.faults.network_llmock [KIND ...] [--faults]     KIND: anthropic, gemini,
openai-chat, openai-responses

The server's window is 32,000 tokens and it refuses what is longer. `--faults`: it also
answers with 429, 500 and 503, and cuts, drops, stalls and spoils its streams. Its
verdict is printed word for word; an error in it is a failure, and so is a turn that was
not done.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from helix_desktop import program_folders
from helix_desktop.engine.facts import Folded, FoldFailed, Text, TurnEnd, TurnEnded, UserSaid
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, QuestionAsked
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches

WINDOW = 32_000
TIMES = 10
BASES = {
    "anthropic": ("claude-sonnet-4-5", "/anthropic"),
    "gemini": ("gemini-2.0-flash", "/gemini"),
    "openai-chat": ("gpt-4o", "/v1"),
    "openai-responses": ("gpt-4o", "/v1"),
}
FAULTS = [
    "--error-rate",
    "429=0.05",
    "--error-rate",
    "500=0.03",
    "--error-rate",
    "503=0.03",
    "--stream-fault",
    "truncate=0.04",
    "--stream-fault",
    "disconnect=0.04",
    "--stream-fault",
    "malformed=0.04",
    "--stream-fault",
    "stall=0.01",
    "--stream-stall-seconds",
    "3",
]


@asynccontextmanager
async def judge(*options: str) -> AsyncIterator[str]:
    """llmock, as a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = asyncio.subprocess.DEVNULL
    program = str(Path(sys.executable).with_name("llmock"))
    window = ("--context-window", str(WINDOW))
    process = await asyncio.create_subprocess_exec(
        program,
        "serve",
        "-p",
        str(port),
        *window,
        "--log-level",
        "warning",
        *options,
        stdout=quiet,
        stderr=quiet,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        await _answers(url)
        yield url
    finally:
        process.terminate()
        await process.wait()


async def _answers(url: str) -> None:
    async with httpx.AsyncClient() as client, asyncio.timeout(30):
        while True:
            try:
                await client.get(f"{url}/_llmock/verdict")  # not one of the requests it judges
            except httpx.TransportError:
                await asyncio.sleep(0.1)
            else:
                return


async def verdict(url: str) -> tuple[bool, str]:
    """Whether it passed, and the report as llmock words it; behind an error, the
    attempts around it.
    """
    async with httpx.AsyncClient(base_url=f"{url}/_llmock", timeout=60) as client:
        words = (await client.get("/verdict", params={"format": "text"})).text.strip()
        findings = (await client.get("/verdict")).json()["findings"]
        attempts = (await client.get("/requests")).json()["requests"]
    wrong = [one for one in findings if one["severity"] == "error"]
    seqs = {
        seq + beside for one in wrong for seq in one["requests"] for beside in (-2, -1, 0, 1, 2)
    }
    return not wrong, "\n".join([words, *(_told(one) for one in attempts if one["seq"] in seqs)])


def _told(attempt: dict[str, Any]) -> str:
    names = ("seq", "status", "fault", "completed", "chunks_sent", "started_at", "ended_at")
    return f"{ {name: attempt[name] for name in names} } {attempt['fingerprint'][:8]} …{str(attempt['body'])[-300:]}"


async def conversation(
    kind: str, url: str, home: Path, messages: int
) -> tuple[Session, Workbenches]:
    """The whole program, with a folder of files, in a conversation of so many long
    messages; the window is full ten times over.
    """
    model, base = BASES[kind]
    (home / "work").mkdir()
    for number in range(30):
        (home / "work" / f"f{number}.txt").write_text(
            f"file {number}: identifier_{number} has content\n" * 300
        )
    where = program_folders.find_program_folders(home / "home")
    desk = Workbenches(
        where,
        SecretStorage(where.key_file, environ={"HELIX_KEY_LLMOCK": "sk-test-123456"}),
        clock=None,
    )
    desk.configured.save_provider(ProviderConfig("llmock", kind, f"{url}{base}"))
    desk.configured.correct_model("llmock", model, {"window": WINDOW})
    bench = await desk.create_workspace("llmock", home / "work")
    await bench.choose_model_for_role(f"llmock/{model}")
    await bench.choose_permission_mode("allow all")
    session = await bench.start_conversation()

    def hear(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            session.answer_question(event.number, PermissionAnswer(allowed=True))

    session.subscribe_to_events(hear)
    words = TIMES * WINDOW // messages // 4
    for number in range(messages):
        said = f"Message {number}: never forget rule {number}. " + " ".join(
            f"word{at}_{number}" for at in range(words)
        )
        session.send_message((Text(said),))
        await session.wait_until_idle()
    return session, desk


async def trial(kind: str, found: Counter[str], *, faults: bool, messages: int = 130) -> str:
    """One protocol; the verdict as it is worded."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="helix-llmock-") as folder:
        async with judge(*(FAULTS if faults else ())) as url:
            session, desk = await conversation(kind, url, Path(folder), messages)
            facts: list[Any] = [recorded.fact for recorded in session.all_facts]
            await desk.aclose()
            is_good, words = await verdict(url)
    ends: Counter[TurnEnd] = Counter()
    whys: Counter[str] = Counter()
    folds: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    said = 0
    for fact in facts:
        if isinstance(fact, UserSaid):
            said += sum(part.tokens for part in fact.parts if isinstance(part, Text))
        elif isinstance(fact, Folded):
            folds[fact.kind.value] += 1
        elif isinstance(fact, FoldFailed):
            failed[f"{fact.kind.value}: {fact.why}"] += 1
        elif isinstance(fact, TurnEnded):
            ends[fact.reason] += 1
            if fact.why:
                whys[fact.why] += 1
    found["turns"] += ends.total()
    all_done = set(ends) == {TurnEnd.DONE} and ends.total() == messages
    found[f"LOST: {kind}: an error in the verdict"] += not is_good
    found[f"LOST: {kind}: turns ended {dict(ends)}, {dict(whys)}"] += not all_done
    found[f"LOST: {kind}: only {said:,} tokens were said"] += said < TIMES * WINDOW * 0.9
    with_faults = "faults" if faults else "clean"
    figures = f"{said:,} tokens said, folds {dict(folds)}, failed {dict(failed)}"
    seconds = time.monotonic() - begun
    return f"{kind}, {with_faults}: {figures}, {seconds:.0f} s\n{words}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(BASES))
    parser.add_argument("--faults", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)
    found: Counter[str] = Counter()
    for kind in arguments.kinds or BASES:
        print(asyncio.run(trial(kind, found, faults=arguments.faults)), flush=True)
    lost = [key for key, count in found.items() if key.startswith("LOST") and count]
    print(*lost, sep="\n")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
