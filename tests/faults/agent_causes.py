"""Why the requests of the real agents cost what they did: causes injected one by one
and in pairs, and the bill to the cent.

python -m tests.faults.agent_causes [--agent NAME] [--only CAUSE+CAUSE] [--every-pair]
HELIX_CLIENTS: see tests/benchmarks/gateway_clients.py

Each agent works through a proxy that changes its requests as an agent, its user or its
settings would, then through the gateway, to a provider that bills by the bytes it gets.
Whether a change cost anything is judged by that bill.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from helix_desktop import concurrency, program_folders, resources
from helix_desktop.gateway.agent_upstreams import AgentUpstream
from helix_desktop.gateway.known_agent import AgentStart
from helix_desktop.gateway.known_agents import find_known_agent
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.journal_file import JournalFile
from tests.benchmarks.gateway_clients import (
    BEGINS,
    KEY,
    PACKAGES,
    SHELLS,
    _arguments,
    _names,
    _settings,
    installed,
)
from tests.faults.store_report import report
from tests.gateway.running import running
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says
from tests.peers.anthropic_billing import Cache
from tests.peers.prefix_billing import PrefixCache

Json = Any
APART = 3  # main requests between two changes
LIFE = 300.0
RECORDED = 1.0  # seconds without a new fact, after which all earlier replies are recorded
OUTPUT = 10  # tokens that the stand-in reports for every reply
PLAIN = {"read from the cache", "first time", "new content", "reply", "not cacheable"}
SCHEMAS = ("input_schema", "parameters", "parametersJsonSchema")
OTHER_MODELS = {"claude": "claude-opus-4-5", "codex": "gpt-5.2", "gemini": "gemini-2.5-pro", "opencode": "claude-opus-4-5", "pi": "claude-opus-4-5"}  # fmt: skip
CAUSES = {
    "time": "time ran out",
    "loss": "not kept by the provider",
    "tool": "tools changed",
    "schema": "tools changed",
    "order": "another order",
    "keys": "another order",
    "system": "system prompt changed",
    "edit": "edit or rewind",
    "thinking": "model switched",
    "switch": "model switched",
    "back": "model switched",
    "rules": "edit or rewind",  # They stand in the first message.
}
PAIRS = (("time", "edit"), ("tool", "time"), ("edit", "loss"), ("switch", "system"), ("back", "time"), ("schema", "edit"), ("system", "order"), ("edit", "thinking"))  # fmt: skip
IN_ONE_RUN = 22  # More would fill the windows of the agents' models.
HEAD = {"tools changed", "another order"}  # Both at once are one change of the tools.
FREE = ("gemini",)  # Of these the stand-in keeps its cache when the thinking changes.


def _reverse_schema(tool: Json) -> None:
    for name in SCHEMAS:
        if isinstance(tool.get(name), dict):
            tool[name] = dict(reversed(tool[name].items()))


def tools_of(body: dict[str, Json]) -> list[Json]:
    tools: list[Json] = body.get("tools") or []
    declared = next((tool for tool in tools if "functionDeclarations" in tool), None)
    return declared["functionDeclarations"] if declared else tools


def messages_of(body: dict[str, Json]) -> list[str]:
    """The messages as the agent sends them, without its marks for the cache."""
    messages = body.get("contents") or body.get("messages") or body.get("input") or []
    return [
        re.sub(r', "cache_control": \{[^{}]*\}', "", json.dumps(message)) for message in messages
    ]


@dataclass
class Changes:
    """What is different from now on in every request of the agent's main work."""

    agent: str
    counts: Counter[str] = field(default_factory=Counter)
    edited: list[int] = field(default_factory=list)
    model: str = ""

    def begin(self, cause: str, done: int) -> None:
        self.counts[cause] += 1
        if cause == "edit":
            self.edited.append(max(1, done // 2))
        elif cause in ("switch", "back"):
            self.model = OTHER_MODELS[self.agent] if cause == "switch" else ""

    def apply(self, raw: bytes, path: str) -> tuple[bytes, str]:
        """The body and the path of the request that the changes make of one."""
        for step in self.edited:
            raw = raw.replace(f"end of step {step}.".encode(), b"[Old output removed]")
        if self.counts["rules"]:
            rules = b", and briefly" * self.counts["rules"]
            raw = raw.replace(b"do the work", b"do the work well" + rules)
        body = json.loads(raw)
        self._change_tools(tools_of(body))
        self._change_system(body)
        self._change_thinking(body)
        if self.model and "model" in body:
            body["model"] = self.model
        elif self.model:  # Gemini's protocol names the model in the path.
            before = path.partition("models/")[0]
            method = path.rpartition(":")[2]
            path = f"{before}models/{self.model}:{method}"
        return json.dumps(body).encode(), path

    def _change_tools(self, tools: list[Json]) -> None:
        described = next(tool for tool in tools if tool.get("description"))
        described["description"] += " It is fast." * self.counts["schema"]
        for number in range(self.counts["tool"]):
            tools.append({**described, "name": f"extra_{number}"})
        if self.counts["keys"] % 2:
            for tool in tools:
                _reverse_schema(tool)
        if self.counts["order"] % 2:
            tools.reverse()

    def _change_system(self, body: dict[str, Json]) -> None:
        more = " Be brief." * self.counts["system"]
        if isinstance(body.get("instructions"), str):
            body["instructions"] += more
        elif "systemInstruction" in body:
            body["systemInstruction"]["parts"][-1]["text"] += more
        elif isinstance(body.get("system"), list):
            body["system"][-1]["text"] += more
        elif isinstance(body.get("input"), list):
            first = next(
                item for item in body["input"] if item.get("role") in ("developer", "system")
            )
            first["content"][-1]["text"] += more
        elif more:
            body["system"] = body.get("system", "") + more

    def _change_thinking(self, body: dict[str, Json]) -> None:
        times = self.counts["thinking"]
        if not times:
            return
        if "messages" in body:
            body["thinking"] = {"type": "enabled", "budget_tokens": 2_000 + times}
        elif "input" in body:
            body["reasoning"] = {
                **(body.get("reasoning") or {}),
                "effort": ("low", "high")[times % 2],
            }
        else:
            body.setdefault("generationConfig", {})["thinkingConfig"] = {
                "thinkingBudget": 2_000 + times
            }


@dataclass
class Paid:
    """One request as the provider billed it."""

    model: str
    tokens: int
    dollars: float
    is_main: bool
    lost: int = 0  # tokens of what it had been sent before that it did not read
    cause: tuple[str, ...] = ()  # what began with it


@dataclass
class Trial:
    """One agent's work, what is changed in front of which of its requests, and the bill."""

    agent: str
    schedule: Mapping[int, tuple[str, ...]]
    steps: int
    later: float = 0.0
    bills: list[Paid] = field(default_factory=list)
    caches: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    done: int = 0
    edited_by_agent: set[int] = field(
        default_factory=set
    )  # requests in which the agent itself changed older messages

    def __post_init__(self) -> None:
        self.changes = Changes(self.agent)
        self._begun = dict[bytes, tuple[str, ...]]()
        self._last_input = 0
        self._lock = threading.Lock()
        self._asked = 0
        self._noted = time.monotonic()  # when the journal last asked for the time
        self._messages: list[Json] = []

    def now(self) -> float:
        self._noted = time.monotonic()
        return time.time() + self.later

    # --- in front of the gateway

    def change(self, raw: bytes, path: str) -> tuple[bytes, str]:
        try:
            body = json.loads(raw)
        except ValueError:
            return raw, path
        if not isinstance(body, dict) or not any(name in SHELLS for name in _names(body)):
            return raw, path
        with self._lock:
            begins = self.schedule.get(self._asked, ())
            before, self._messages = self._messages, messages_of(body)
            if self._messages[: len(before)] != before:
                self.edited_by_agent.add(self._asked)
            self._asked += 1
            for cause in begins:
                self.changes.begin(cause, self.done)
                if cause == "time":
                    while (
                        time.monotonic() - self._noted < RECORDED
                    ):  # Their times are those before the pause.
                        time.sleep(0.05)
                    self.later += 700
                elif cause == "loss":
                    self.caches.clear()
            return self.changes.apply(raw, path)

    # --- the provider

    def script(self, asked: Asked) -> Sequence[Block]:
        shell = next((name for name in _names(asked.body) if name in SHELLS), "")
        if not shell:
            return [Says("{}")]
        self.done += 1
        if self.done > self.steps:
            return [Says("All done.")]
        command = (
            f"seq {self.done * 1000} {self.done * 1000 + 700}; echo 'end of' step {self.done}."
        )
        return [Says(f"step {self.done}"), Calls(shell, _arguments(shell, command))]

    def usage(self, asked: Asked) -> Mapping[str, int]:
        body = asked.body
        model = body.get("model") or asked.path.partition("models/")[2].partition(":")[0]
        is_main = any(name in SHELLS for name in _names(body))
        if asked.protocol == "anthropic":
            if isinstance(body.get("system"), str):
                body["system"] = [{"type": "text", "text": body["system"]}]
            for message in body["messages"]:
                if isinstance(message["content"], str):
                    message["content"] = [{"type": "text", "text": message["content"]}]
            cache = self.caches.setdefault(model, Cache(life=LIFE, sorts_keys=False))
            fresh, read, write = cache.bill(body, self.now()).values()
            used = {"input": fresh + read + write, "read": read, "write": write}
        else:
            cache = self.caches.setdefault(model, PrefixCache(life=LIFE))
            used = {**cache.bill(body, self.now()), "write": 0}
        paid = Paid(model, used["input"], dollars(model, used), is_main)
        if is_main:
            paid.lost = max(0, self._last_input - 128 - used["read"])
            self._last_input = used["input"]
            paid.cause = self.schedule.get(sum(one.is_main for one in self.bills), ())
        self.bills.append(paid)
        return used


def dollars(model: str, usage: Mapping[str, int]) -> float:
    """By the price list, which is read here once more."""
    models = json.loads((resources.resources_folder() / "models.json").read_bytes())["models"]
    known = models.get(model) or models[re.sub(r"-codex$|-\d{8}$", "", model)]
    fresh = usage["input"] - usage["read"] - usage["write"]
    cached = usage["read"] * (known.get("cache_read") or known["input"])
    written = usage["write"] * (known.get("cache_write") or known["input"])
    return float(fresh * known["input"] + cached + written + OUTPUT * known["output"]) / 1e6


@contextmanager
def changing_proxy(
    gateway: str, change: Callable[[bytes, str], tuple[bytes, str]]
) -> Iterator[str]:
    """Between the agent and the gateway. Its address."""
    where = urllib.parse.urlsplit(gateway)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with suppress(ConnectionError):
                super().handle()

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            raw, path = change(raw, self.path)
            onward = http.client.HTTPConnection(where.hostname or "", where.port or 80, timeout=120)
            headers = {
                name: value
                for name, value in self.headers.items()
                if name.lower() != "content-length"
            }
            onward.request(self.command, path, raw, {**headers, "Content-Length": str(len(raw))})
            reply = onward.getresponse()
            self.send_response(reply.status)
            for name, value in reply.getheaders():
                if name.lower() not in (
                    "transfer-encoding",
                    "content-length",
                    "connection",
                    "date",
                    "server",
                ):
                    self.send_header(name, value)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            while piece := reply.read1(65_536):
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            onward.close()

        do_GET = do_POST  # noqa: N815 -- the library's name

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    concurrency.start_thread(server.serve_forever, name="changing proxy", daemon=True)
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{where.path}"
    finally:
        server.shutdown()
        server.server_close()


def run_agent(trial: Trial, url: str, home: Path, place: Path) -> None:
    program = installed(Path(os.environ.get("HELIX_CLIENTS", "/tmp/helix-clients")), trial.agent)
    begins = BEGINS[trial.agent] if trial.agent != "gemini" else ["--yolo", "--skip-trust", "-m", "gemini-2.5-flash", "-p", "do the work"]  # fmt: skip
    begins = ["do the work" if word == "do it" else word for word in begins]
    environ = {
        **os.environ,
        **dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), KEY),
        "HOME": str(home),
        "PATH": f"{program}:{os.environ['PATH']}",
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "NO_PROXY": "127.0.0.1,localhost",
    }
    launch = find_known_agent(trial.agent).launch(
        AgentStart({AgentUpstream(): url}, begins, environ, home / "scratch")
    )
    process = subprocess.Popen(launch.command, cwd=place, env={**environ, **launch.environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        out, err = process.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    if process.returncode:
        trial.wrong.append(f"exit {process.returncode}: {(out + err)[-600:]}")


def explained(home: Path) -> tuple[list[Json], float]:
    """The requests of all conversations, and what they cost by the sums of `cost`."""

    def helix(*words: str) -> Json:
        command = [
            sys.executable,
            "-m",
            "helix_desktop",
            "--home",
            str(home),
            *words,
            "-w",
            "Work",
            "--json",
        ]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    rows = helix("conversation", "list")
    found = [one for row in rows for one in helix("cost", "-c", row["id"])["requests"]]
    return found, sum(one["cost"] for one in helix("cost")["causes"])


def play(trial: Trial, folder: Path, *, policy: Mapping[str, Json]) -> tuple[list[Json], float]:
    home = folder / "agent"
    place = folder / "place"
    helix = folder / "helix"
    for each in (home, place):
        each.mkdir()
    _settings(trial.agent, home)
    workspaces = AllWorkspaces(program_folders.find_program_folders(helix).workspaces_folder)
    known = workspaces.create_stored_workspace("Work", place)

    async def choose() -> None:
        workspace = await workspaces.open_stored_workspace(known.id)
        workspace.change_settings({f"policy.{name}": value for name, value in policy.items()})
        await workspace.aclose()

    asyncio.run(choose())
    usual = dict(JournalFile.__init__.__kwdefaults__ or {})
    JournalFile.__init__.__kwdefaults__ = {**usual, "now": trial.now}
    try:
        with (
            Provider(trial.script, usage=trial.usage, strict=False) as provider,
            running(helix, provider.url, agent=trial.agent, workspace="Work") as gateway,
            changing_proxy(gateway, trial.change) as url,
        ):
            run_agent(trial, url, home, place)
    finally:
        JournalFile.__init__.__kwdefaults__ = usual
    return explained(helix)


def judge(trial: Trial, requests: Sequence[Json], told: float, found: Counter[str]) -> None:
    """Each main request: is what began with it named, and nothing else? And do all sums
    agree with the bill?
    """
    main = [paid for paid in trial.bills if paid.is_main]
    _compare_bills(trial, told, found)
    for why in trial.wrong:
        found[f"LOST {trial.agent}: {why}"] += 1
    left = list(requests)
    for number, paid in enumerate(main):
        explained_request = None
        for request in left:
            if request["tokens"] == paid.tokens:
                explained_request = request
                break
        if explained_request is None:
            found[f"LOST {trial.agent} #{number}: not explained: {paid}"] += 1
            continue
        left.remove(explained_request)
        _compare_sums(trial, number, paid, explained_request, found)
        _judge_causes(trial, number, paid, explained_request, found)


def _compare_bills(trial: Trial, told: float, found: Counter[str]) -> None:
    """Is what the conversation is said to have cost what was billed?"""
    billed = 0.0
    beside = 0.0
    count_beside = 0
    for paid in trial.bills:
        billed += paid.dollars
        if not paid.is_main:
            beside += paid.dollars
            count_beside += 1
    count_main = len(trial.bills) - count_beside
    print(f"{trial.agent}: {count_main} requests and {count_beside} beside, billed ${billed:.4f} (${beside:.4f} beside), told ${told:.4f}", file=sys.stderr)  # fmt: skip
    if abs(billed - told) >= 0.005:
        found[f"LOST {trial.agent}: billed {billed:.4f}, told {told:.4f}, {beside:.4f} beside"] += 1


def _compare_sums(
    trial: Trial, number: int, paid: Paid, request: Json, found: Counter[str]
) -> None:
    """Do the causes of a request add up to its tokens and its price?"""
    tokens = sum(cause["tokens"] for cause in request["causes"])
    dollars = sum(cause["cost"] for cause in request["causes"])
    if tokens != paid.tokens or abs(dollars - paid.dollars) > 1e-6:
        sums = (tokens, dollars)
        found[f"LOST {trial.agent} #{number}: {sums} explained, {paid} billed"] += 1


def _judge_causes(
    trial: Trial, number: int, paid: Paid, request: Json, found: Counter[str]
) -> None:
    """Are the causes that cost something named, and no others?"""
    named = {cause["cause"].partition(":")[0] for cause in request["causes"]} - PLAIN
    if number in trial.edited_by_agent and not {"edit", "rules"} & set(paid.cause):
        found[f"{trial.agent}: the agent itself changed its history"] += 1
        named -= {CAUSES["edit"]}
    injected = {CAUSES.get(cause, cause) for cause in paid.cause}
    costly = _costly_causes(trial.agent, paid)

    label = f"{trial.agent} #{number} {'+'.join(paid.cause) or 'nothing'}"
    what_was_said = f"lost {paid.lost}: {request['causes']}"
    blamed = named - injected
    if blamed:
        found[f"LOST {label}: blamed {sorted(blamed)}; {what_was_said}"] += 1
        return
    one_hides_another = len(costly) > 1 and named and can_hide(costly - named, costly)
    if named == costly or one_hides_another:
        kind = f"{len(paid.cause)} causes: right"
        if paid.cause and not costly:
            kind += ", cost nothing"
        found[kind] += 1
        return
    found[f"{len(paid.cause)} causes: missed"] += 1
    found[f"LOST {label}: named {sorted(named)} of {sorted(costly)}; {what_was_said}"] += 1


def _costly_causes(agent: str, paid: Paid) -> set[str]:
    """Those of a request that has to say what it cost."""
    if paid.lost <= 128:
        return set()
    causes = set(paid.cause)
    if agent in FREE:
        causes.discard("thinking")
    return {CAUSES[cause] for cause in causes}


def can_hide(missed: set[str], costs: set[str]) -> bool:
    """What the other cause lost anyway was not read by anybody."""
    return missed == {"not kept by the provider"} or (missed < HEAD and costs == HEAD)


def every_pair() -> list[tuple[str, ...]]:
    """All pairs of causes; those in which a model is left and returned to follow each
    other in turns.
    """
    pairs = [pair for pair in itertools.combinations(CAUSES, 2) if set(pair) != {"switch", "back"}]
    leaves, returns = ([pair for pair in pairs if name in pair] for name in ("switch", "back"))
    turns = [pair for both in zip(leaves, returns, strict=True) for pair in both]
    return [*turns, *(pair for pair in pairs if pair not in turns)]


def trials(agents: Sequence[str], causes: Sequence[tuple[str, ...]], found: Counter[str]) -> None:
    for agent in agents:
        for first in range(0, len(causes), IN_ONE_RUN):
            some = causes[first : first + IN_ONE_RUN]
            schedule = {(number + 1) * APART: cause for number, cause in enumerate(some)}
            with tempfile.TemporaryDirectory() as folder:
                trial = Trial(agent, schedule, (len(some) + 1) * APART)
                judge(trial, *play(trial, Path(folder), policy={"preset": "none"}), found)
        _try_folds(agent, found)


def _try_folds(agent: str, found: Counter[str]) -> None:
    """Where nothing else changes, folds are named and everything is explained by them."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(agent, {}, 14)
        policy = {"preset": "helix", "caching_steps": 4, "tail_steps": 2}
        requests, told = play(trial, Path(folder), policy=policy)
        has_fold = False
        for request in requests:
            folds = [cause for cause in request["causes"] if cause["cause"].startswith("fold")]
            if folds:
                has_fold = True
                # It is judged as a request in which nothing was changed but by the reply.
                others = [cause for cause in request["causes"] if cause not in folds]
                tokens = sum(fold["tokens"] for fold in folds)
                cost = sum(fold["cost"] for fold in folds)
                reply = {"cause": "reply", "tokens": tokens, "cost": cost}
                request["causes"] = [*others, reply]
        if has_fold:
            found[f"{agent}: folds named in some of 15"] += 1
        else:
            found[f"LOST {agent}: no fold is named"] += 1
        for paid in trial.bills:
            paid.lost = 0
        judge(trial, requests, told, found)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agent", choices=PACKAGES)
    parser.add_argument(
        "--only", action="append", default=[], help="causes, with + between those of one request"
    )
    parser.add_argument("--every-pair", action="store_true", help="all pairs of causes instead")
    arguments = parser.parse_args()
    causes = (
        every_pair()
        if arguments.every_pair
        else [tuple(one.split("+")) for one in arguments.only]
        or [
            *((one,) for one in CAUSES if one != "rules"),
            *PAIRS,
            ("rules",),
        ]
    )
    agents = [arguments.agent] if arguments.agent else list(PACKAGES)
    return report("causes in real agents", 0, lambda found: trials(agents, causes, found))


if __name__ == "__main__":
    sys.exit(main())
