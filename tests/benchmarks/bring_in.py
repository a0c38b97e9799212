"""A gigabyte of histories: listed, brought in, found, brought in again; what it takes of memory and of the event loop meanwhile.

python -m tests.benchmarks.bring_in [--quick: 50 MB] [--size MB] [--traces DIR]      sessions of four agents made from the traces, each copy unlike the others
    [--folder DIR --seconds N]      in slices of so long, each run goes on where the last one was stopped; figures are those of all of them
"""

from __future__ import annotations

import argparse
import asyncio
import binascii
import hashlib
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import tiktoken

from helix_desktop.engine.facts import ReplyPart, Text, ToolCall
from helix_desktop.histories import (
    claude_code_writer,
    codex_writer,
    gemini_cli_writer,
    history_finding,
    history_reading,
    pi_writer,
    subagent_files,
)
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from helix_desktop.resources import resources_folder
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.token_counting import VOCABULARIES, TiktokenCounter
from helix_desktop.workbench.history_imports import HistoryImport
from tests.benchmarks.row import Figure, Row

TRACES = Path(__file__).parents[3] / "shared" / "traces"
SIZE = 1 << 30  # bytes that are brought in
QUICK = 50 << 20
TICK = 0.005  # seconds between two looks at the event loop
TURN = 0.001  # as the window sets it
AGENTS = ("claude", "codex", "pi", "gemini")
WORDS = [f"word{number}" for number in range(5_000)]


def rows(*, quick: bool, traces: Path = TRACES, size: int = SIZE) -> list[Row]:
    base = Path(tempfile.mkdtemp(prefix="helix-bring-in-"))
    try:
        _written(base / "home", QUICK if quick else size, traces)
        return asyncio.run(_measured(base))
    finally:
        shutil.rmtree(base)


def slice_of(folder: Path, seconds: float, traces: Path, size: int) -> list[Row]:
    """The files are written by the first run, which measures nothing; each further one
    goes on for so long.
    """
    if not folder.exists():
        _written(folder / "home", size, traces)
        return []
    return asyncio.run(_measured(folder, seconds))


@dataclass
class Sums:
    """What the slices came to; in a file between them."""

    taken: float = 0.0
    worked: float = 0.0
    memory: int = 0
    late: list[float] = field(default_factory=list)
    imported: int = 0


async def _measured(base: Path, seconds: float | None = None) -> list[Row]:
    sys.setswitchinterval(TURN)
    begun = time.perf_counter()
    histories = list(history_finding.find_histories(HistoryPlaces(base / "home", {})))
    listed = time.perf_counter() - begun
    kept = base / "sums.json"
    sums = Sums()
    if kept.exists():
        sums = Sums(**json.loads(kept.read_text()))
    counter = TiktokenCounter()
    workspace = await _open_workspace(base, counter)
    counter.count_tokens("The vocabulary is there before anything is measured.")
    idle = Lateness()
    with suppress(TimeoutError):
        await asyncio.wait_for(idle.watch(), 5.0)
    files: list[Path] = []
    for history in histories:
        files += subagent_files.list_files_with_subagents(history.path)
    is_all_imported = await _import(workspace, counter, files, sums, seconds)
    kept.write_text(json.dumps(asdict(sums)))
    if not is_all_imported:
        await workspace.aclose()
        print(
            f"{sums.imported} of {len(files)} files in {sums.taken:.1f} s; run it again for the rest"
        )
        return []
    answers = [await _search(workspace) for _ in range(20)]
    begun = time.perf_counter()
    again = await HistoryImport(workspace, counter).import_files(files)
    second = time.perf_counter() - begun
    await workspace.aclose()
    size = sum(history.size for history in histories)
    late = Lateness(sums.late)
    note = (
        f"{size / 1e6:,.0f} MB in {len(histories)} files, {sums.imported} conversations,"
        f" {len(again.imported)} new in the second import"
    )
    return [
        _row("listed", "s", listed, "≤ 60", listed <= 60, note),
        _row("brought in and searchable", "s", sums.taken, "≤ 300", sums.taken <= 300, note),
        _row("processor time", "s", sums.worked, "", None, note),
        *_compared_with_parts(sums, files, size),
        _row("brought in again", "s", second, "", None, note),
        _row("memory more at most", "MB", sums.memory / 1e6, "≤ 100", sums.memory <= 100e6, note),
        _row(
            "event loop late, p99",
            "ms",
            late.p99 * 1e3,
            "≤ 16",
            late.p99 <= 0.016,
            f"at rest, just before: {idle.p99 * 1e3:.1f} ms",
        ),
        _row(
            "a rare word found",
            "ms",
            statistics.median(answers) * 1e3,
            "≤ 100",
            max(answers) <= 0.1,
            f"slowest {max(answers) * 1e3:.0f} ms",
        ),
    ]


async def _open_workspace(base: Path, counter: TiktokenCounter) -> StoredWorkspace:
    """The workspace of an earlier slice, or a new one."""
    workspaces = AllWorkspaces(base / "workspaces", count=counter.count_tokens)
    for known in workspaces.list_workspaces():
        return await workspaces.open_stored_workspace(known.id)
    created = workspaces.create_stored_workspace("Big", base)
    return await workspaces.open_stored_workspace(created.id)


def _compared_with_parts(sums: Sums, files: list[Path], size: int) -> list[Row]:
    """Times of what nobody can do without, in the same run: the files read, hashed, and
    all of their bytes counted as tokens.

    They are counted by the program's own counter, and by tiktoken with the expression
    it publishes, which takes longer.
    """
    counter = TiktokenCounter()
    counter.count_tokens("The vocabulary is there before anything is measured.")
    own = _time_parts(files, counter.count_ahead)
    published = _published_encoding()
    of_tiktoken = _time_parts(
        files, lambda lines: [published.encode_ordinary(line) for line in lines]
    )
    times_own = sums.taken / own.taken
    times_tiktoken = sums.taken / of_tiktoken.taken
    note = own.describe(size)
    other_note = of_tiktoken.describe(size)
    return [
        _row("times its parts", "", times_own, "≤ 1.5", times_own <= 1.5, note),
        _row("processor times its parts", "", sums.worked / own.worked, "", None, note),
        _row("times parts of tiktoken", "", times_tiktoken, "", None, other_note),
        _row(
            "processor times parts of tiktoken",
            "",
            sums.worked / of_tiktoken.worked,
            "",
            None,
            other_note,
        ),
    ]


@dataclass(frozen=True)
class PartTimes:
    """Seconds, and seconds of processor time, of reading, hashing and counting all files."""

    taken: float
    worked: float

    def describe(self, size: int) -> str:
        return (
            f"reading, hashing and counting {size / 1e6:,.0f} MB: {self.taken:.1f} s,"
            f" {self.worked:.1f} s of processor"
        )


def _time_parts(files: list[Path], count: Callable[[list[str]], object]) -> PartTimes:
    begun = time.perf_counter()
    worked = time.process_time()
    for file in files:
        content = file.read_bytes()
        hashlib.sha256(content).digest()
        count(content.decode("utf-8", "replace").splitlines(keepends=True))
    return PartTimes(time.perf_counter() - begun, time.process_time() - worked)


def _published_encoding() -> tiktoken.Encoding:
    """The same vocabulary with tiktoken's own expression, which has no group for speed."""
    known = VOCABULARIES["o200k_base"]
    lines = (resources_folder() / "encodings" / "o200k_base.tiktoken").read_bytes().splitlines()
    return tiktoken.Encoding(
        "published",
        pat_str=known.pattern.removeprefix("(?:").replace(r")|\s+(?!\S)", r"|\s+(?!\S)"),
        mergeable_ranks={
            binascii.a2b_base64(token): int(rank) for token, rank in map(bytes.split, lines)
        },
        special_tokens=dict(known.special),
    )


async def _import(
    workspace: StoredWorkspace,
    counter: TiktokenCounter,
    files: list[Path],
    sums: Sums,
    seconds: float | None,
) -> bool:
    """Bring in the files until the time is over; whether that was all."""
    memory = Highest()
    late = Lateness()
    watching = [asyncio.ensure_future(watcher.watch()) for watcher in (memory, late)]  # noqa: TID251 - a benchmark's own
    begun = time.perf_counter()
    worked = time.process_time()
    run = HistoryImport(workspace, counter)
    try:
        await asyncio.wait_for(run.import_files(files), seconds)
        whole = True
    except TimeoutError:
        whole = False
    await workspace.index.wait_until_indexed()
    sums.taken += time.perf_counter() - begun
    sums.worked += time.process_time() - worked
    sums.memory = max(sums.memory, memory.more)
    sums.late += late.late
    sums.imported += len(run.result.imported)
    for watch in watching:
        watch.cancel()
    return whole


def _row(name: str, unit: str, value: float, asked: str, met: bool | None, note: str) -> Row:
    return Row(name, unit, Figure(value, value, value), asked=asked, met=met, note=note)


async def _search(workspace: StoredWorkspace) -> float:
    begun = time.perf_counter()
    assert await workspace.index.search_index("needleinthehaystack")
    return time.perf_counter() - begun


class Highest:
    """How much more memory the process takes than at first."""

    def __init__(self) -> None:
        self.first = _resident()
        self.more = 0

    async def watch(self) -> None:
        while True:
            self.more = max(self.more, _resident() - self.first)
            await asyncio.sleep(0.1)


class Lateness:
    """How late the event loop is, look after look."""

    def __init__(self, late: Sequence[float] = ()) -> None:
        self.late = list(late)

    async def watch(self) -> None:
        while True:
            due = time.perf_counter() + TICK
            await asyncio.sleep(TICK)
            self.late.append(time.perf_counter() - due)

    @property
    def p99(self) -> float:
        return sorted(self.late)[int(len(self.late) * 0.99)] if self.late else 0.0


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * 4096


# --- what is brought in


def _written(home: Path, size: int, traces: Path) -> None:
    """Sessions of four agents by turns, in their own formats, until there are so many
    bytes. No text is in two of them.
    """
    recordings = [
        recording
        for recording in history_reading.read_history_files([traces]).recordings
        if not recording.forked_from and len(recording.messages) > 8
    ]
    chance = random.Random(7)
    written = 0
    number = 0
    while written < size:
        recording = recordings[number % len(recordings)]
        identity = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        begun = 1_772_000_000 + 60.0 * number
        messages: list[RecordedMessage] = []
        for place, message in enumerate(recording.messages):
            varied = _varied(message, chance, rare=number == 3)
            messages.append(replace(varied, time=begun + place))
        session = RecordedSession("", tuple(messages), folder=f"/home/me/project-{number % 12}")
        # By rounds, so that each recording is in each format.
        agent = AGENTS[(number + number // len(recordings)) % len(AGENTS)]
        lines, inside = _in_format(agent, session, identity, begun)
        text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
        content = text.encode("utf-8", "replace")
        file = home / inside
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        written += len(content)
        number += 1


def _varied(message: RecordedMessage, chance: random.Random, *, rare: bool) -> RecordedMessage:
    """The message with a word more in each line of an output, and one behind every other text."""

    def mark() -> str:
        return f"{chance.choice(WORDS)}-{chance.getrandbits(32):x}"

    if message.role == "tool":
        lines = [f"{line} {chance.choice(WORDS)}" for line in message.text.splitlines()]
        text = "\n".join(lines) + f" {mark()}"
        if rare:
            text = f"{text} needleinthehaystack"
        return replace(message, text=text)

    calls = tuple(
        replace(call, arguments=json.dumps(_object(call.arguments) | {"mark": mark()}))
        for call in message.calls
    )
    parts: list[ReplyPart] = []
    text = ""
    if message.text:
        text = f"{message.text} {mark()}"
        parts.append(Text(text))
    model = message.model
    if calls:
        model = "claude-sonnet-4-5"
    parts += [ToolCall(call.id, call.name, call.arguments) for call in calls]
    return replace(message, text=text, calls=calls, parts=tuple(parts), model=model)


def _in_format(
    agent: str, session: RecordedSession, identity: str, begun: float
) -> tuple[Iterable[object], str]:
    """The lines of the session, and its file below the home folder."""
    project = session.folder.rpartition("/")[2]
    match agent:
        case "claude":
            lines = claude_code_writer.build_claude_code_lines(session, identity)
            folder = claude_code_writer.project_folder_name(session.folder)
            return lines, f".claude/projects/{folder}/{identity}.jsonl"
        case "codex":
            lines = codex_writer.build_codex_lines(session, identity, begun)
            file = codex_writer.rollout_path_below_sessions(identity, begun)
            return lines, f".codex/sessions/{file}"
        case "pi":
            lines = pi_writer.build_pi_lines(session, identity, begun)
            file = pi_writer.build_relative_pi_session_path(session.folder, identity, begun)
            return lines, f".pi/agent/sessions/{file}"
    lines = gemini_cli_writer.build_gemini_lines(session, identity, begun)
    name = gemini_cli_writer.gemini_file_name(identity, begun)
    return lines, f".gemini/tmp/{project}/chats/{name}"


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {"text": text}
    if isinstance(value, dict):
        return value
    return {"value": value}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--size", type=int, default=SIZE >> 20, help="megabytes")
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--folder", type=Path, help="for slices; it is made by the first run")
    parser.add_argument("--seconds", type=float, default=100.0, help="a slice")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else arguments.size << 20
    if arguments.folder:
        measured = slice_of(arguments.folder, arguments.seconds, arguments.traces, size)
    else:
        measured = rows(quick=arguments.quick, traces=arguments.traces, size=size)
    for row in measured:
        met = {None: "", True: "met", False: "NOT met"}[row.met]
        print(
            f"{row.name:<28} {row.ours.median:>9,.2f} {row.unit:<3} {row.asked:>6} {met:<8} {row.note}"
        )


if __name__ == "__main__":
    main()
