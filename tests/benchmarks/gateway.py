"""Recorded sessions played by an HTTP client through the real endpoint, to a scripted
provider that bills by itself.

The provider knows nothing of the engine: it bills from the bytes it receives, with a
cache that finds a marked beginning at most 20 blocks before a mark, holds it five
minutes and not under 1,024 tokens. Where the recorded reply uses what stands in none of
these bytes, it first calls the recall that a marker names, as in a replay, round after
round, and that is billed as well. Time goes ten seconds a step, for the program too: it
goes by a clock that is set here, and the next step waits until it is at rest. So a run
is like every other, however fast the machine is.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import mmap
import os
import re
import runpy
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import PartRef, Text
from helix_desktop.engine.messages import Block as ViewBlock
from helix_desktop.engine.messages import ContextKind, Role
from helix_desktop.histories import history_reading
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from helix_desktop.replay.retention import IDENTIFIER
from helix_desktop.replay.simulated_recalls import (
    MissedReferences,
    RecalledPage,
    build_shown_entry,
    group_by_round,
    missing_from_view,
)
from helix_desktop.token_counting import TiktokenCounter
from tests.benchmarks import gateway_peers
from tests.benchmarks.row import Figure, Row
from tests.gateway.running import Agent
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says

Json = Any
# Prices, as shares of the input price.
READ = 0.1
WRITE = 1.25
OUTPUT = 5.0
LOOK_BACK = 20  # The provider looks for a known beginning in so many blocks before a mark.
LEAST = 1_024  # A shorter beginning is not cached, in tokens.
LIFETIME = 300.0  # of the provider's cache, in seconds
STEP = 10.0  # seconds that a step takes
BEGIN = 1_750_000_000.0  # seconds since 1970
# A process is at rest if so many looks in a row, some seconds apart, find it so.
LOOKS = 4
LOOK = 0.02
LONG = 140_000  # bytes of a session's file from which on it counts as long
FOLDERS = ("pi-mono", "dgm-claude", "who-and-when")
PEERS = Path(os.environ.get("HELIX_PEERS") or Path(tempfile.gettempdir(), "helix-peers"))
TRACES = Path(os.environ.get("HELIX_TRACES", "../shared/traces"))
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_MARKED = re.compile(
    r'^\[CACHED\][^\n]*\n?[^\n]*$|^Names in it: .*$|\[CACHED\](?:[^"\\\n]|\\.)*', re.MULTILINE
)


@dataclass
class Bill:
    """What one provider billed. `recalled`: what of it were requests that only recalled."""

    sent: int = 0
    billed: float = 0.0
    recalled: float = 0.0
    requests: int = 0
    recalls: int = 0
    memory: float = 0.0
    used: int = 0
    standing: int = 0
    waits: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class CachedBlock:
    """A block of a request as a provider caches it. `is_marked`: a beginning may end here."""

    text: str
    is_marked: bool


@dataclass(frozen=True)
class Beginning:
    """A request up to one of its blocks: its digest, and how many tokens it has."""

    digest: str
    tokens: int
    is_marked: bool


class Biller:
    """A provider's own account of what it received."""

    def __init__(self, count: Any) -> None:
        self.bill = Bill()
        self._count = count
        self._known: dict[str, float] = {}
        self._tokens: dict[str, int] = {}

    def tokens(self, text: str) -> int:
        if text not in self._tokens:
            self._tokens[text] = self._count(text)
        return self._tokens[text]

    def take(self, body: Mapping[str, Json], now: float, output: str) -> dict[str, int]:
        """One request and its reply. What a provider reports of it."""
        beginnings = self._beginnings_of(body)
        read = self._read_from_cache(beginnings, now)
        written = self._write_to_cache(beginnings, read, now)
        total = beginnings[-1].tokens
        uncached = total - read - written
        spoken = self.tokens(output)
        self.bill.sent += total
        self.bill.requests += 1
        self.bill.billed += read * READ + written * WRITE + uncached + spoken * OUTPUT
        return {"input": total, "read": read, "write": written}

    def _beginnings_of(self, body: Mapping[str, Json]) -> list[Beginning]:
        """The request up to each of its blocks."""
        beginnings: list[Beginning] = []
        so_far = hashlib.sha256()
        tokens = 0
        for block in _blocks(body):
            so_far.update(hashlib.sha256(block.text.encode("utf-8", "replace")).digest())
            tokens += self.tokens(block.text)
            beginnings.append(Beginning(so_far.hexdigest(), tokens, block.is_marked))
        return beginnings

    def _read_from_cache(self, beginnings: Sequence[Beginning], now: float) -> int:
        """How many tokens the cache has. What is read stays for another lifetime."""
        most_read = 0
        for place, marked in enumerate(beginnings):
            if not marked.is_marked:
                continue
            first = max(0, place - LOOK_BACK + 1)
            for beginning in reversed(beginnings[first : place + 1]):
                last_used = self._known.get(beginning.digest, -math.inf)
                if now - last_used <= LIFETIME:
                    self._known[beginning.digest] = now
                    most_read = max(most_read, beginning.tokens)
                    break
        return most_read

    def _write_to_cache(self, beginnings: Sequence[Beginning], read: int, now: float) -> int:
        """How many tokens behind those that were `read` the cache has from now on."""
        most_written = 0
        for beginning in beginnings:
            if beginning.is_marked and beginning.tokens >= LEAST:
                self._known[beginning.digest] = now
                most_written = max(most_written, beginning.tokens - read)
        return most_written


def _blocks(body: Mapping[str, Json]) -> Iterator[CachedBlock]:
    """Everything a provider caches by, in its order: tools, system, the blocks of messages."""
    tools = body.get("tools") or []
    has_marked_tool = any("cache_control" in tool for tool in tools)
    yield CachedBlock(json.dumps(_without_marks(tools)), has_marked_tool)
    for block in _as_blocks(body.get("system", "")):
        yield CachedBlock(json.dumps(_without_marks(block)), "cache_control" in block)
    for message in body["messages"]:
        for block in _as_blocks(message["content"]):
            text = json.dumps(_without_marks(block), ensure_ascii=False)
            yield CachedBlock(f"{message['role']} {text}", "cache_control" in block)


def _as_blocks(content: str | list[Json]) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content


def _without_marks(value: Json) -> Json:
    if isinstance(value, dict):
        return {
            name: _without_marks(inner) for name, inner in value.items() if name != "cache_control"
        }
    if isinstance(value, list):
        return [_without_marks(item) for item in value]
    return value


@dataclass(frozen=True)
class OpenCall:
    """A call without a result: the id that the client gave it, and the recorded one."""

    id: str
    recorded_id: str
    name: str


class Playing:
    """One session: what the client says, and what the provider answers."""

    def __init__(
        self, recording: RecordedSession, counter: TiktokenCounter, *, recalls: bool
    ) -> None:
        self.between: Callable[[float], object] = lambda _: None  # the seconds so far
        self.recording = recording
        self.biller = Biller(counter.count_tokens)
        self._counter = counter
        self._recalls = recalls
        self._misses = MissedReferences(counter)
        self._earlier: set[str] = set()
        self._texts: dict[str, str] = {}  # by hash: every output the client returned
        self._open_calls: list[OpenCall] = []
        self._results: list[tuple[str, str, str]] = []  # id, tool and text, as `Agent` takes them
        self._shown: dict[str, ViewBlock] = {}
        self._now = 0.0
        self._reply: RecordedMessage | None = None
        # The rounds of recalls that are still to come before the reply; None: not known yet.
        self._rounds: list[list[RecalledPage]] | None = None
        self._numbers = 0
        self._usage = threading.local()  # each request is answered in a thread of its own

    # --- the provider

    def usage(self, _: Asked) -> Mapping[str, int]:
        found: Mapping[str, int] = self._usage.told
        return found

    def _bill(self, body: Mapping[str, Json], output: str) -> None:
        self._usage.told = self.biller.take(body, self._now, output)

    def script(self, asked: Asked) -> Sequence[Block]:
        body = asked.body
        if self._reply is None or "Project Background" in _last_text(body):
            text = self._document(body)
            self._bill(body, text)
            return [Says(text)]
        reply = self._reply
        texts = [block.text for block in _blocks(body)]
        del texts[0]  # What the tools say is not read in the conversation.
        if self._recalls and self._rounds is None:
            self._rounds = self._missed(texts, reply)
        if self._rounds:
            return self._recall(body, self._rounds.pop(0))
        self._count_retention(texts, reply)
        self._bill(body, reply.text + "".join(call.arguments for call in reply.calls))
        blocks: list[Block] = []
        if reply.text.strip():
            blocks.append(Says(reply.text))
        for call in reply.calls:
            blocks.append(Calls(call.name, _object(call.arguments), self._id()))
        return blocks or [Says("(nothing)")]

    def _recall(self, body: Mapping[str, Json], pages: Sequence[RecalledPage]) -> list[Calls]:
        calls: list[Calls] = []
        for page in pages:
            arguments = dict(page.asked)
            if page.entry:
                arguments = {"sha256": page.entry} | arguments
            calls.append(Calls(page.tool, arguments))
        bill = self.biller.bill
        billed_before = bill.billed
        self._bill(body, json.dumps([call.arguments for call in calls]))
        bill.recalls += len(calls)
        bill.recalled += bill.billed - billed_before
        return calls

    def _id(self) -> str:
        self._numbers += 1
        return f"toolu_{self._numbers:06d}"

    def _missed(self, texts: Sequence[str], reply: RecordedMessage) -> list[list[RecalledPage]]:
        """The rounds of recalls before a reply, by the rule of the replay."""
        blocks = [
            self._shown.setdefault(
                text, ViewBlock(ContextKind.CONVERSATION, Role.USER, PartRef(1), Text(text), 0)
            )
            for text in texts
        ]
        self._misses.set_shown_view(blocks, _plain)
        missed = missing_from_view(
            self._misses.references_used_but_not_in_view(reply), map(_unescaped, texts)
        )
        if not missed:
            return []
        hashes: list[str] = []
        for text in texts:
            hashes += _HASH.findall(text)
        entries = [
            build_shown_entry(digest, self._texts[digest], texts)
            for digest in dict.fromkeys(hashes)
            if digest in self._texts
        ]
        pages = self._misses.pages_to_recall(missed, reply, entries, texts, has_summary=False)
        return group_by_round(pages)

    def _count_retention(self, texts: Sequence[str], reply: RecordedMessage) -> None:
        used = _identifiers_of(reply) & self._earlier
        in_sight: set[str] = set()
        for text in texts:
            in_sight |= _names(text)
        self.biller.bill.used += len(used)
        self.biller.bill.standing += len(used & in_sight)

    def _document(self, body: Mapping[str, Json]) -> str:
        """A handover of three thousand tokens in the right form, with rules and paths
        of what it read.
        """
        rules: list[str] = []
        messages = list(_blocks(body))[2:]
        for block in reversed(messages):
            rules += _rules_in(block.text)[:4]
            if len(rules) > 60:
                break
        sections = (
            "Project Background",
            "Technical Details",
            "Completed Work",
            "Current Issues",
            "TODO Items",
            "User Preferences",
        )
        fill = "the work went on as it was asked and the rest of it is as it was said " * 22
        written: list[str] = []
        for name in sections:
            section = f"## {name}\n{fill}"
            if name == "Technical Details":
                section += "\n".join(rules)
            written.append(section)
        return "\n\n".join(written)

    # --- the client

    def play(self, url: str, *, session: str) -> Bill:
        agent = Agent(
            "anthropic",
            url,
            session=session,
            system="You are the agent of a recorded session." + " It has rules." * 700,
            headers={"x-api-key": gateway_peers.KEY, "anthropic-version": "2023-06-01"},
            patience=600.0,
        )
        for message in self.recording.messages:
            if message.role == "tool":
                self._take_result(message)
            elif message.role == "user":
                self._send_results(agent)
                _say(agent, message.text or "(nothing)")
            elif message.role == "assistant":
                self._send_results(agent)
                self._step(agent, message)
            self._hear(message)
        return self.biller.bill

    def _hear(self, message: RecordedMessage) -> None:
        self._misses.add_earlier_message(message)
        self._earlier |= _identifiers_of(message)

    def _take_result(self, message: RecordedMessage) -> None:
        """Keeps a result until all of a step are sent. One of no known call is the next one's."""
        digest = hashlib.sha256(message.text.encode("utf-8", "surrogatepass")).hexdigest()
        self._texts[digest] = message.text
        if not self._open_calls:
            return
        answered = self._open_calls[0]
        for call in self._open_calls:
            if call.recorded_id == message.answers:
                answered = call
                break
        self._open_calls.remove(answered)
        self._results.append((answered.id, answered.name, message.text or "(no output)"))

    def _send_results(self, agent: Agent) -> None:
        for call in self._open_calls:
            self._results.append((call.id, call.name, "(interrupted)"))
        self._open_calls.clear()
        if self._results:
            agent.results(self._results)
            self._results.clear()

    def _step(self, agent: Agent, message: RecordedMessage) -> None:
        if not agent.units or agent.units[-1]["role"] == "assistant":
            agent.say("(go on)")
        self._reply = message
        self._rounds = None
        self._now += STEP
        self.between(self._now)
        mark(agent.units)
        began = time.perf_counter()
        calls = agent.ask()
        self.biller.bill.waits.append(time.perf_counter() - began)
        self._reply = None
        for (own_id, _, _), recorded in zip(calls, message.calls, strict=False):
            self._open_calls.append(OpenCall(own_id, recorded.id, recorded.name))


def _say(agent: Agent, text: str) -> None:
    """What the user says. Behind results, it is part of their message."""
    if agent.units and agent.units[-1]["role"] == "user":
        agent.units[-1]["content"].append({"type": "text", "text": text})
    else:
        agent.say(text)


def _identifiers_of(message: RecordedMessage) -> set[str]:
    """The identifiers in what a message says and calls."""
    identifiers = set(IDENTIFIER.findall(message.text))
    for call in message.calls:
        identifiers |= set(IDENTIFIER.findall(call.arguments))
    return identifiers


def _rules_in(text: str) -> list[str]:
    rules: list[str] = []
    for line in _unescaped(text)[:20_000].splitlines():
        if re.search(r"\b(?:must|never|always)\b", line):
            rules.append(line.strip()[:200])
    return rules


def mark(units: list[Json]) -> None:
    """As Claude Code does: the last two messages of the user's."""
    users = [unit for unit in units if unit["role"] == "user"]
    for unit in users:
        for block in unit["content"]:
            block.pop("cache_control", None)
    for unit in users[-2:]:
        unit["content"][-1]["cache_control"] = {"type": "ephemeral"}


def _last_text(body: Mapping[str, Json]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else str(content[-1].get("text", ""))


@functools.lru_cache(maxsize=20_000)
def _names(text: str) -> frozenset[str]:
    """The identifiers in plain sight: those of markers and lists of names do not count."""
    return frozenset(IDENTIFIER.findall(_MARKED.sub("", _unescaped(text))))


def _unescaped(text: str) -> str:
    return text.replace("\\n", "\n").replace('\\"', '"').replace("\\t", "\t")


def _plain(block: ViewBlock) -> str:
    return _unescaped(block.content.text) if isinstance(block.content, Text) else ""


def _object(arguments: str) -> dict[str, Json]:
    try:
        found = json.loads(arguments)
    except ValueError:
        return {"text": arguments}
    return found if isinstance(found, dict) else {"value": found}


class Clock:
    """A clock in a file, which another process reads."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(struct.pack("d", BEGIN))
        with file.open("r+b") as opened:
            self._at = mmap.mmap(opened.fileno(), 8)
        self.file = file

    def set(self, seconds: float) -> None:
        self._at[:] = struct.pack("d", BEGIN + seconds)


def on_clock(file: str) -> None:
    """The program, in this process, by that clock."""
    with Path(file).open("rb") as opened:
        at = mmap.mmap(opened.fileno(), 8, access=mmap.ACCESS_READ)
    time.time = lambda: float(struct.unpack("d", at[:])[0])
    runpy.run_module("helix_desktop", run_name="__main__")


def rest(pid: int) -> None:
    """Until nothing runs or wants to in that process, and nothing but this thread in this one."""
    looks_at_rest = 0
    while looks_at_rest < LOOKS:
        time.sleep(LOOK)
        looks_at_rest += 1
        if _works(pid) or _works(os.getpid(), but=threading.get_native_id()):
            looks_at_rest = 0


def _works(pid: int, but: int = 0) -> bool:
    """Whether a thread of that process runs or waits for the disk."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        if int(thread.name) == but:
            continue
        with suppress(OSError):  # it ended
            behind_name = (thread / "stat").read_text("utf-8").rpartition(")")[2]
            state = behind_name.split()[0]
            if state in "RD":
                return True
    return False


@contextmanager
def gateway(upstream: str, *more: str, clock: Clock | None = None) -> Iterator[tuple[str, int]]:
    """The real program on a home of its own: its address and its process."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable]
        if clock is None:
            command += ["-m", "helix_desktop"]
        else:
            start = "import sys; from tests.benchmarks.gateway import on_clock; on_clock(sys.argv.pop(1))"
            command += ["-c", start, str(clock.file)]
        command += ["--home", home, "gateway", "--port", "0", "--upstream", upstream]
        command += more
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                line = process.stdout.readline()
                yield line.split()[-1], process.pid
            finally:
                process.terminate()
                process.wait(20)


def long_sessions() -> list[RecordedSession]:
    """The long shared ones."""
    recordings: list[RecordedSession] = []
    for folder in FOLDERS:
        for file in sorted((TRACES / folder).rglob("*.json*")):
            if file.stat().st_size >= LONG:
                recordings += history_reading.read_history_file(file).recordings
    return recordings


def played(
    recording: RecordedSession, counter: TiktokenCounter, through: str = ""
) -> tuple[Bill, list[str]]:
    """One session, and what was refused. `through`: ours, headroom or litellm."""
    playing = Playing(recording, counter, recalls=through == "ours")
    with (
        Provider(playing.script, usage=playing.usage) as provider,
        tempfile.TemporaryDirectory() as home,
    ):
        if not through:
            return playing.play(provider.url, session="s"), provider.refused
        if through != "ours":
            with gateway_peers.running(PEERS, through, provider.url, Path(home)) as (url, pid):
                bill = playing.play(url, session="s")
                bill.memory = private_memory(pid)
                return bill, provider.refused
        clock = Clock(Path(home) / "clock")
        with gateway(provider.url, clock=clock) as (url, pid):

            def pass_time(seconds: float) -> None:
                rest(pid)
                clock.set(seconds)

            playing.between = pass_time
            bill = playing.play(url, session="s")
            bill.memory = private_memory(pid)
            return bill, provider.refused


def private_memory(pid: int) -> float:
    """MB a process holds by itself."""
    kilobytes = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
        if line.startswith(("Private", "Swap:")):
            kilobytes += int(line.split()[1])
    return kilobytes / 1024


def beside(
    sessions: Sequence[RecordedSession], names: Sequence[str], results: Path | None = None
) -> list[Row]:
    """The same sessions through ours and through other proxies, one after the other, in
    one run. `results`: a file that every result is added to; what it has already is not
    measured again, so that a long run may be made in several parts.
    """
    counter = TiktokenCounter()
    bills: dict[str, list[Bill]] = {}
    measured = _read_results(results)
    for recording in sessions:
        for name in ("", *names):
            refused: list[str] = []
            bill = measured.get((recording.name, name))
            if bill is None:
                bill, refused = played(recording, counter, name)
                if results:
                    _add_result(results, recording.name, name, bill)
            bills.setdefault(name, []).append(bill)
            _say_how_it_went(recording.name, name, bill, bills[""][-1], len(refused))
    direct = bills.pop("")
    figures_by_unit: dict[str, dict[str, Figure]] = {}
    for name, of_proxy in bills.items():
        for unit, figure in _figures_of_proxy(of_proxy, direct).items():
            figures_by_unit.setdefault(unit, {})[name] = figure
    title = f"beside other proxies, {len(sessions)} sessions"
    note = "headroom without its model, and its retrievals not billed"
    return [
        Row(title, unit, figures.pop("ours"), figures, note=note)
        for unit, figures in figures_by_unit.items()
    ]


def _read_results(results: Path | None) -> dict[tuple[str, str], Bill]:
    """What was measured before, by session and proxy."""
    measured: dict[tuple[str, str], Bill] = {}
    if results and results.exists():
        for line in results.read_text("utf-8").splitlines():
            found = json.loads(line)
            measured[found["session"], found["name"]] = Bill(**found["bill"])
    return measured


def _add_result(results: Path, session: str, name: str, bill: Bill) -> None:
    line = json.dumps({"session": session, "name": name, "bill": asdict(bill)})
    with results.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def _say_how_it_went(session: str, name: str, bill: Bill, direct: Bill, refused: int) -> None:
    share = bill.billed / direct.billed
    kept = bill.standing / max(1, bill.used)
    wait = statistics.median(bill.waits) * 1e3
    print(
        f"{session}, {name or 'direct'}: billed {share:.3f}, retention {kept:.3f},"
        f" {bill.requests} requests, {refused} refused, {bill.memory:.0f} MB,"
        f" {wait:.0f} ms a reply",
        file=sys.stderr,
    )


def _figures_of_proxy(bills: Sequence[Bill], direct: Sequence[Bill]) -> dict[str, Figure]:
    """By their unit; `direct`: the bills of the same sessions without any proxy."""
    billed_directly = sum(bill.billed for bill in direct)
    direct_wait = statistics.median(_all_waits(direct))
    waits = _all_waits(bills)
    standing = sum(bill.standing for bill in bills)
    used = sum(bill.used for bill in bills)
    return {
        "billed, of no gateway": Figure.of([sum(bill.billed for bill in bills) / billed_directly]),
        "in plain sight": Figure.of([standing / max(1, used)]),
        "ms added to a reply": Figure.of([(statistics.median(waits) - direct_wait) * 1e3]),
        "MB": Figure.of([bill.memory for bill in bills]),
        "requests a second": Figure.of([len(waits) / sum(waits)]),
    }


def _all_waits(bills: Sequence[Bill]) -> list[float]:
    waits: list[float] = []
    for bill in bills:
        waits.extend(bill.waits)
    return waits


def rows(*, quick: bool = False) -> list[Row]:
    """The bill, what the agent still saw of what it used, and what was refused."""
    counter = TiktokenCounter()
    sessions = long_sessions()
    if quick:
        sessions = sessions[:2]
    if not sessions:
        print(
            f"There are no recorded sessions in {TRACES}; HELIX_TRACES names their folder.",
            file=sys.stderr,
        )
        return []
    bills: list[Bill] = []
    direct_bills: list[Bill] = []
    shares: list[float] = []
    refused = 0
    for recording in sessions:
        direct, _ = played(recording, counter)
        bill, complaints = played(recording, counter, "ours")
        for why in complaints[:3]:
            print(f"refused: {recording.name}: {why}", file=sys.stderr)
        share = bill.billed / direct.billed
        print(
            f"{Path(recording.name).name}: {share:.3f} sent {bill.sent / direct.sent:.3f},"
            f" {bill.recalls} recalls, retention {bill.standing / max(1, bill.used):.3f}",
            file=sys.stderr,
        )
        bills.append(bill)
        direct_bills.append(direct)
        shares.append(share)
        refused += len(complaints)
    billed = sum(bill.billed for bill in bills)
    billed_for_recalls = sum(bill.recalled for bill in bills)
    billed_directly = sum(bill.billed for bill in direct_bills)
    effective = billed / billed_directly
    bare = (billed - billed_for_recalls) / billed_directly
    used = sum(bill.used for bill in bills)
    kept = sum(bill.standing for bill in bills) / max(1, used)
    recalls = sum(bill.recalls for bill in bills)
    share_sent = sum(bill.sent for bill in bills) / sum(bill.sent for bill in direct_bills)
    return [
        Row(
            "billed with recalls, of no gateway",
            "share",
            Figure(effective, min(shares), max(shares), len(shares)),
            asked="at most 0.50",
            met=effective <= 0.5,
        ),
        Row(
            "billed without the requests that recalled, of no gateway",
            "share",
            Figure.of([bare]),
            asked="at most 0.45",
            met=bare <= 0.45,
        ),
        Row("sent, of no gateway", "share", Figure.of([share_sent])),
        Row(
            "of what replies use, still in plain sight",
            "share",
            Figure.of([kept]),
            asked="at least 0.89",
            met=kept >= 0.89,
        ),
        Row("recalls", "calls", Figure.of([float(recalls)])),
        Row(
            "requests a strict provider refused",
            "requests",
            Figure.of([float(refused)]),
            asked="0",
            met=refused == 0,
        ),
        *beside(sessions[:1] if quick else sessions, ("ours", *gateway_peers.PACKAGES)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--beside", type=int, default=0, help="only so many sessions beside other proxies"
    )
    parser.add_argument(
        "--results",
        type=Path,
        help="with --beside: a file of results, so that the run can be continued",
    )
    arguments = parser.parse_args()
    names = ("ours", *gateway_peers.PACKAGES)
    found = (
        beside(long_sessions()[: arguments.beside], names, arguments.results)
        if arguments.beside
        else rows(quick=arguments.quick)
    )
    for row in found:
        peers = ", ".join(f"{name} {figure.median:.3f}" for name, figure in row.peers.items())
        print(f"{row.name}: {row.ours.median:.3f} {row.unit} {row.asked} {peers}")


if __name__ == "__main__":
    main()
