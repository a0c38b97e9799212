"""Editors that speak the Agent Client Protocol and lie, at the standard streams of real processes
of `helix-desktop acp`.

    python -m tests.faults.hostile_editor [--conversations 500] [--seed 1] [--first 1] [--only ATTACK]

What an editor does in a conversation is chosen by the seed and the conversation's number. A process
has ten conversations; then its input ends, sometimes in the middle of a line. No command may run
for which nobody said yes, nothing outside the folder may be read or written, each request must be
answered once, the process must not end before its input does, what it logs has no mistake of ours,
and what is recorded must be read again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from helix_desktop import program_folders
from helix_desktop.engine.facts import (
    ConversationStarted,
    TurnEnd,
    TurnEnded,
)
from helix_desktop.engine.request_building import find_violations
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import CLOSED
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from helix_desktop.workbench.interrupted_turns import end_interrupted_turns
from tests.faults.guarded_folder import SECRET, GuardedFolder
from tests.texts_and_calls import missing_results

ROOT = Path(__file__).parents[2]
CONVERSATIONS_OF_A_PROCESS = 10
ANSWER_SECONDS = 60.0
END_SECONDS = 30.0
TURN_SECONDS = 6.0  # A turn that takes longer is cancelled, as a user would.
LONGEST_LINE = 64 << 20  # What the program accepts.
MOST_MEGABYTES = 1_500  # A message of 64 MB lies in memory several times over.
LONGEST_SENTENCE = 2_000
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 5, 1.5, 10**30, 1e308, "", "x", "\x00", "\u202e", "\ud800", "x" * 5_000,
    "../../etc", [], [[]], [None], {}, {"a": {}}, {"type": "text"}, ["x"] * 2_000,
)  # fmt: skip
METHODS = (
    "initialize", "authenticate", "session/new", "session/load", "session/resume", "session/fork",
    "session/list", "session/prompt", "session/cancel", "session/close", "session/delete",
    "session/set_mode", "session/set_config_option", "session/set_model", "session/nonsense", "_x",
    "fs/read_text_file", "$/cancel_request", "",
)  # fmt: skip
FIELDS = (
    "cwd", "sessionId", "mcpServers", "additionalDirectories", "prompt", "modeId", "configId",
    "value", "cursor", "clientCapabilities", "protocolVersion", "_meta", "methodId",
)  # fmt: skip
NOT_OFFERED = (
    "once", "once:1", "once:99", "once:-1", "once:00", "once: 0", "once:0 ", "ONCE:0", "all:0",
    "edits:0", "ask:0", "always", "always:99", "conversation:99", "", "deny:0", "allow", "yes", "0",
)  # fmt: skip
Strategy = Callable[["Editor", dict[str, Any]], None]
numbers = count(1)


@dataclass
class Trial(GuardedFolder):
    """`log_size`: how much of the log of the program was looked at."""

    most_megabytes: int = 0
    most_processor_seconds: float = 0.0
    log_size: int = 0

    def prepare(self) -> None:
        self.prepare_folders()
        commands = self.inside / ".claude" / "commands"
        commands.mkdir(parents=True)
        (self.inside / "a.txt").write_text("alpha\nbeta\n")
        (self.inside / "link").symlink_to(self.outside)
        (self.inside / "loop").symlink_to("loop")
        (self.inside / "link.txt").symlink_to(self.outside / "secret")
        touch = f"touch {self.inside}/ran/000000000000-command"
        (commands / "evil.md").write_text(f"Do it: !`{touch}`\n")

    def new_mark(self, pick: random.Random) -> str:
        return f"{pick.randrange(10**12):012}-{next(numbers)}"

    def check(self, name: str) -> None:
        self.check_outside(name)
        self.take_what_ran(name)

    def check_log(self, name: str) -> None:
        """What is logged as an error is a mistake of ours."""
        file = self.home / "logs" / "command.log"
        if not file.exists():
            return
        content = file.read_bytes()
        new = content[self.log_size :]
        if len(content) < self.log_size:  # The file was begun again.
            new = content
        self.log_size = len(content)
        for line in new.decode("utf-8", "replace").splitlines():
            if '"ERROR"' in line or "Traceback" in line:
                self.fail(name, f"logged: {line[-1_500:]}")


def key_of(identity: Any) -> str:
    return json.dumps(identity, sort_keys=True)


class Editor:
    """One process, what was asked of it and what it answered."""

    def __init__(self, trial: Trial, process: asyncio.subprocess.Process) -> None:
        self.trial = trial
        self.process = process
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.unanswered: dict[str, None] = {}  # In their order.
        self.answers: dict[str, dict[str, Any]] = {}
        self.questions: list[dict[str, Any]] = []
        self.sessions: list[str] = []  # Those that this conversation has opened.
        self.strategy: Strategy = deny
        self.file_strategy: Strategy = no_such_file
        self.changed = asyncio.Event()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.has_ended = False
        self.name = ""
        self.reading = asyncio.ensure_future(self._read())  # noqa: TID251

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while True:
            await self.may_read.wait()
            line = await self.process.stdout.readline()
            if not line:
                break
            self._hear(line)
            self.changed.set()
        self.has_ended = True
        self.changed.set()

    def _hear(self, line: bytes) -> None:
        if SECRET.encode() in line:
            self.trial.fail(self.name, f"the file outside was read: {line[:300]!r}")
        message = json.loads(line)
        if "method" not in message:
            key = key_of(message.get("id"))
            self.answered[key] += 1
            if self.answered[key] >= self.asked[key]:
                self.unanswered.pop(key, None)
            self.answers[key] = message
            session = object_of(message.get("result")).get("sessionId")
            if isinstance(session, str):
                self.sessions.append(session)
            sentence = str(object_of(message.get("error")).get("message", ""))
            if len(sentence) > LONGEST_SENTENCE:
                self.trial.fail(self.name, f"an error of {len(sentence):,} characters")
            return
        if "id" not in message:
            return
        if message["method"] == "session/request_permission":
            self.questions.append(message)
            self.trial.counts["questions"] += 1
            self.strategy(self, message)
        else:
            self.trial.counts["files asked for"] += 1
            self.file_strategy(self, message)

    def write(self, content: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(content)

    async def drain(self) -> None:
        assert self.process.stdin is not None
        with suppress(ConnectionError):
            await self.process.stdin.drain()

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def expect_answer(self, identity: Any) -> None:
        key = key_of(identity)
        self.asked[key] += 1
        self.unanswered[key] = None

    def ask(self, method: str, identity: Any = None, /, **params: Any) -> str:
        """Sends a request, and returns the key of its answer."""
        if identity is None:
            identity = f"{method} {next(numbers)}"
        self.expect_answer(identity)
        self.send({"id": identity, "method": method, "params": params})
        return key_of(identity)

    def tell(self, method: str, **params: Any) -> None:
        self.send({"method": method, "params": params})

    def answer(self, question: dict[str, Any], result: Any) -> None:
        self.send({"id": question["id"], "result": result})

    async def until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not is_so():
            if self.has_ended or time.monotonic() > end:
                return False
            self.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self.changed.wait()
        return True

    async def answer_to(self, key: str, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        await self.until(lambda: key in self.answers, seconds)
        return self.answers.get(key, {})

    async def new_session(self) -> str:
        """A conversation with the demonstration as its model."""
        key = self.ask("session/new", cwd=str(self.trial.inside), mcpServers=[])
        session = object_of((await self.answer_to(key)).get("result")).get("sessionId", "")
        option = {"configId": "model", "value": "demo/demo"}
        await self.answer_to(self.ask("session/set_config_option", sessionId=session, **option))
        return str(session)

    async def run_turn(self, session: str, text: str, seconds: float = TURN_SECONDS) -> str:
        """A message, which is cancelled when it takes too long. Why its turn ended."""
        key = self.prompt(session, text)
        answer = await self.answer_to(key, seconds)
        if not answer:
            self.trial.counts["turns cancelled"] += 1
            self.tell("session/cancel", sessionId=session)
            answer = await self.answer_to(key)
        reason = str(object_of(answer.get("result")).get("stopReason", "an error"))
        self.trial.counts[f"turns {reason}"] += 1
        return reason

    def prompt(self, session: str, text: str) -> str:
        words = [{"type": "text", "text": text}]
        return self.ask("session/prompt", sessionId=session, prompt=words)

    async def until_all_answered(self, seconds: float) -> bool:
        """Whether every request is answered. Thousands may take long on a busy machine: it is given up
        when no further one was answered in this time.
        """
        answers = -1
        while self.unanswered:
            if self.has_ended or answers == self.answered.total():
                return False
            answers = self.answered.total()
            await self.until(lambda: not self.unanswered, seconds)
        return True

    def state(self) -> tuple[int, float]:
        """The most memory in megabytes that the process had, and its seconds of processor."""
        with suppress(OSError, IndexError):
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            kilobytes = int(status.split("VmHWM:")[1].split()[0])
            words = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks = int(words[11]) + int(words[12])
            return kilobytes // 1024, ticks / os.sysconf("SC_CLK_TCK")
        return 0, 0.0


def object_of(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {}


# --- How a question is answered. Only `allow` says yes.


def selected(option: Any) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


def allow(editor: Editor, question: dict[str, Any]) -> None:
    shown = json.dumps(question)
    for name in list(editor.trial.counts):
        if name.startswith("mark ") and name[5:] in shown:
            editor.trial.allowed.add(name[5:])
    editor.answer(question, selected("once:0"))


def deny(editor: Editor, question: dict[str, Any]) -> None:
    editor.answer(question, selected("deny"))


def be_silent(_editor: Editor, _question: dict[str, Any]) -> None:
    """The turn waits until it is cancelled."""


def no_such_file(editor: Editor, question: dict[str, Any]) -> None:
    editor.send({"id": question["id"], "error": {"code": -32002, "message": "no such file"}})


def lying_answers(pick: random.Random, question: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Answers of which none is a yes, in an order by chance."""
    identity = question["id"]
    offered = [option["optionId"] for option in question["params"].get("options", [])]
    yes = pick.choice([option for option in offered if option != "deny"] or ["once:0"])
    outcomes: list[Any] = [
        {"outcome": kind, "optionId": yes}
        for kind in (
            "cancelled",
            "",
            None,
            5,
            "SELECTED",
            "selected ",
            ["selected"],
            {"selected": 1},
            "allow",
        )
    ]
    outcomes += [
        {"optionId": yes},
        "selected",
        yes,
        [yes],
        None,
        5,
        [{"outcome": "selected", "optionId": yes}],
    ]
    outcomes += [{"outcome": "selected", "optionId": name} for name in NOT_OFFERED]
    outcomes += [
        {"outcome": "selected", "optionId": odd}
        for odd in (*ODD, [yes], {yes: 1}, {"optionId": yes}, yes + "\n", yes * 20_000)
    ]
    outcomes += [{"outcome": {"outcome": "selected", "optionId": yes}}]
    results: list[Any] = [{"outcome": outcome} for outcome in outcomes]
    results += [
        outcomes[0],
        yes,
        True,
        selected(yes)["outcome"],
        [selected(yes)],
        {"Outcome": selected(yes)["outcome"]},
    ]
    answers: list[dict[str, Any]] = [{"id": identity, "result": result} for result in results]
    errors: tuple[Any, ...] = (
        "no",
        5,
        True,
        [1],
        {},
        {"code": "x", "message": 5},
        {"code": [], "message": {"a": 1}},
        {"message": "\u202e"},
        {"code": -32601},
    )
    answers += [{"id": identity, "error": error} for error in errors]
    # Both at once are no answer of the protocol, and no yes.
    answers += [{"id": identity, "error": error, "result": selected(yes)} for error in errors]
    answers += [{"id": identity}, {"id": identity, "results": selected(yes)}]
    pick.shuffle(answers)
    yield from answers  # fmt: skip


def lie(pick: random.Random, repeats: int = 1) -> Strategy:
    """Answers with something that is no yes, and then perhaps with more, which counts for nothing."""

    def answer(editor: Editor, question: dict[str, Any]) -> None:
        lies = lying_answers(pick, question)
        for _ in range(repeats):
            editor.send(next(lies))
        if repeats > 1:  # The first answer counts.
            editor.answer(question, selected("once:0"))

    return answer


def answer_wrong_ids(pick: random.Random) -> Strategy:
    """A yes for questions that nobody asked, and a no for the one that was asked."""

    def answer(editor: Editor, question: dict[str, Any]) -> None:
        identity = str(question["id"])
        pipe, _, inner = identity.partition(":")
        for other in (
            inner,
            int(inner or 0),
            f"{pipe}:{int(inner) + 1}",
            f"{int(pipe) + 1}:{inner}",
            f" {identity}",
            [identity],
            {"id": identity},
            f"{identity}.0",
            f"0{identity}",
        ):
            editor.send({"id": other, "result": selected("once:0")})
        if pick.random() < 0.5:
            deny(editor, question)
        # Or it is never answered.

    return answer  # fmt: skip


def lie_about_files(pick: random.Random) -> Strategy:
    def answer(editor: Editor, question: dict[str, Any]) -> None:
        texts: tuple[Any, ...] = (
            "",
            "\x1b]0;owned\x07\u202e",
            "\ud800",
            "\x00" * 100,
            "x" * 3_000_000,
            "\n" * 300_000,
            "alpha\nbeta\n",
            5,
            None,
            [],
            {"a": 1},
            ["alpha"],
        )
        how = pick.randrange(4)
        if how == 0:
            editor.send({"id": question["id"], "error": pick.choice(("no", 5, [1], {"code": "x"}))})
        elif how == 1:
            return  # It never answers.
        else:
            for _ in range(pick.choice((1, 1, 3))):
                editor.answer(question, {"content": pick.choice(texts)})

    return answer  # fmt: skip


# --- What an editor does


def command_with_mark(editor: Editor, pick: random.Random) -> str:
    mark = editor.trial.new_mark(pick)
    editor.trial.counts[f"mark {mark}"] += 1
    how = ("touch {}", "true; touch {}", "ls > {}", "touch {}\n#\u202e", "env A=1 touch {}")
    return "run " + pick.choice(how).format(f"{editor.trial.inside}/ran/{mark}")


async def say_yes(editor: Editor, session: str, pick: random.Random) -> None:
    editor.strategy = allow
    await editor.run_turn(session, command_with_mark(editor, pick))


async def lie_to_questions(editor: Editor, session: str, pick: random.Random) -> None:
    for _ in range(4):
        editor.strategy = lie(pick)
        await editor.run_turn(session, command_with_mark(editor, pick))


async def answer_twice(editor: Editor, session: str, pick: random.Random) -> None:
    editor.strategy = lie(pick, repeats=pick.choice((2, 5, 60)))
    await editor.run_turn(session, command_with_mark(editor, pick))


async def answer_others(editor: Editor, session: str, pick: random.Random) -> None:
    """Two sessions ask at once, and only one is answered; the other question is then answered when
    it is over.
    """
    other = await editor.new_session()
    editor.strategy = be_silent
    before = len(editor.questions)
    keys = [editor.prompt(name, command_with_mark(editor, pick)) for name in (session, other)]

    def asked_here() -> list[dict[str, Any]]:
        """Other sessions may ask meanwhile, and their questions stay open."""
        new = editor.questions[before:]
        return [asked for asked in new if asked["params"]["sessionId"] in (session, other)]

    def are_all_asked() -> bool:
        return len(asked_here()) >= 2 or any(key in editor.answers for key in keys)

    await editor.until(are_all_asked, ANSWER_SECONDS)
    asked = asked_here()
    if asked:
        allow(editor, asked[0])
    for name in (session, other):
        await asyncio.sleep(0)
        if pick.random() < 0.5:
            editor.tell("session/cancel", sessionId=name)
        else:
            editor.ask("session/close", sessionId=name)
    for key in keys:
        await editor.answer_to(key)
    for question in asked[1:]:
        for _ in range(3):
            editor.answer(question, selected("once:0"))


async def answer_nobody(editor: Editor, session: str, pick: random.Random) -> None:
    editor.strategy = answer_wrong_ids(pick)
    await editor.run_turn(session, command_with_mark(editor, pick))
    for identity in (*ODD, "1:0", "1:1", "0:0", "greeting", '1:"greeting"', -0.0):
        editor.send({"id": identity, "result": selected("once:0")})
        editor.send({"id": identity, "error": pick.choice(ODD)})


async def answer_too_late(editor: Editor, session: str, pick: random.Random) -> None:
    """A yes after the turn was cancelled, or after the session was closed or deleted."""
    editor.strategy = be_silent
    before = len(editor.questions)
    key = editor.prompt(session, command_with_mark(editor, pick))
    await editor.until(lambda: len(editor.questions) > before, ANSWER_SECONDS)
    how = pick.choice(("session/cancel", "session/close", "session/delete"))
    if how in ("session/delete", "session/close"):
        editor.ask(how, sessionId=session)
    else:
        editor.tell(how, sessionId=session)
    await editor.answer_to(key)
    for question in editor.questions[before:]:
        editor.answer(question, selected("once:0"))


async def lie_about_contents(editor: Editor, session: str, pick: random.Random) -> None:
    editor.file_strategy = lie_about_files(pick)
    editor.strategy = pick.choice((deny, lie(pick)))
    await editor.run_turn(
        session,
        f"read {pick.choice(('a.txt', 'README.md', 'link.txt', 'loop', 'link/secret', 'none'))}",
    )
    await editor.run_turn(session, f"write new{next(numbers)}.txt: text")
    await editor.run_turn(session, f"read {editor.trial.outside}/secret")  # fmt: skip


async def never_end(editor: Editor, session: str, pick: random.Random) -> None:
    """A command without an end or with endless output, which is cancelled."""
    editor.strategy = allow
    key = editor.prompt(
        session,
        pick.choice(("run sleep 1000", "run yes", "run cat /dev/zero", "run tail -f README.md")),
    )
    await asyncio.sleep(pick.uniform(0, 2))
    for _ in range(pick.choice((1, 50))):
        editor.tell("session/cancel", sessionId=session)
    await editor.answer_to(key)  # fmt: skip


async def name_hostile_folders(editor: Editor, session: str, pick: random.Random) -> None:
    inside = str(editor.trial.inside)
    outside = str(editor.trial.outside)
    places: list[Any] = [
        outside, f"{inside}/link", f"{inside}/loop", f"{inside}/loop/x", f"{inside}/README.md", f"{inside}/none", "/", "//", "/proc/self/root", "/dev/fd/0",
        f"{inside}/../outside", "..", ".", "", "~", "file:///", "/\x00", "/\ud800", "/" + "x" * 100_000, "/x" * 50_000, "/root", "/etc", *ODD,
    ]  # fmt: skip
    for place in pick.sample(places, 12):
        method = pick.choice(("session/load", "session/resume", "session/fork", "session/list"))
        key = editor.ask(method, sessionId=session, cwd=place, mcpServers=[])
        answer = await editor.answer_to(key)
        is_outside = isinstance(place, str) and place.startswith(outside)
        if is_outside and "result" in answer and method != "session/list":
            editor.trial.fail(editor.name, f"{method} with {place[:100]!r} was not refused")
        key = editor.ask(
            "session/load",
            sessionId=pick.choice((session, "0" * 20, "../../x")),
            cwd=inside,
            mcpServers=[],
            additionalDirectories=[place],
        )
        answer = await editor.answer_to(key)
        if is_outside and "result" in answer:
            editor.trial.fail(editor.name, f"{place[:100]!r} was taken as a further folder")  # fmt: skip


async def start_servers(editor: Editor, session: str, pick: random.Random) -> None:
    """The editor names MCP servers, which nobody agreed to."""
    del session
    mark = editor.trial.new_mark(pick)
    command = {
        "name": "x",
        "command": "/usr/bin/touch",
        "args": [f"{editor.trial.inside}/ran/{mark}"],
        "env": [],
    }
    for servers in (
        [command],
        [command] * 500,
        {"x": command},
        "x",
        [5],
        [{"type": "http", "name": "y", "url": "http://127.0.0.1:1/", "headers": []}],
    ):
        await editor.answer_to(editor.ask("session/new", cwd=str(editor.trial.inside), mcpServers=servers))  # fmt: skip


async def send_odd_messages(editor: Editor, session: str, pick: random.Random) -> None:
    outside = str(editor.trial.outside)
    secret = f"file://{outside}/secret"
    blocks: list[Any] = [
        {"type": "resource_link", "name": "x", "uri": secret}, {"type": "resource_link", "name": "\u202e](x)", "uri": "http://[::1"},
        {"type": "resource", "resource": {"uri": secret, "text": "a note"}}, {"type": "resource", "resource": {"uri": secret, "blob": "eA=="}},
        {"type": "resource", "resource": {"uri": "../../../x", "blob": "!!"}}, {"type": "image", "data": "eA==", "mimeType": "image/png", "uri": secret},
        {"type": "image", "data": "x" * 100_001, "mimeType": "\x00"}, {"type": "audio", "data": "", "mimeType": "x"}, {"type": "text", "text": "\ud800\x00\x1b[2J\u202e"},
        {"type": "text", "text": "/evil"}, {"type": "text", "text": "/evil \n!`touch x`"}, {"type": "text", "text": "x " * 300_000}, *ODD,
    ]  # fmt: skip
    editor.strategy = deny
    for _ in range(3):
        chosen = pick.choices(blocks, k=pick.randrange(1, 5))
        key = editor.ask("session/prompt", sessionId=session, prompt=chosen)
        if not await editor.answer_to(key, TURN_SECONDS):
            editor.tell("session/cancel", sessionId=session)
            await editor.answer_to(key)


async def send_wrong_types(editor: Editor, session: str, pick: random.Random) -> None:
    for _ in range(60):
        params: dict[str, Any] = {}
        for name in pick.sample(FIELDS, pick.randrange(1, 5)):
            params[name] = pick.choice(ODD)
        if pick.random() < 0.6:
            params["sessionId"] = session
        if pick.random() < 0.6:
            params["cwd"] = str(editor.trial.inside)
        method = pick.choice(METHODS)
        if pick.random() < 0.2:
            editor.tell(method, **params)
        else:
            editor.ask(method, pick.choice((None, next(numbers), -next(numbers))), **params)
    for params in ODD[:8]:
        editor.asked[key_of(f"params {next(numbers)}")] += 0
        editor.send({"method": "session/cancel", "params": params})


async def write_rubbish(editor: Editor, session: str, pick: random.Random) -> None:
    """Lines that are no messages. They are answered with an error without an id."""
    inside = str(editor.trial.inside)
    deep = pick.randrange(900, 1_100)
    opening = pick.choice(("[", '{"a":'))
    closing = "1" + pick.choice(("]", "}")) * deep if opening == "[" else "1" + "}" * deep
    lines: list[bytes] = [
        b"{", b"[1]", b"null", b'{"id":{}}', b'{"method":4}', b'{"id":1e999}', b'{"id":NaN,"result":{}}', b"\xef\xbb\xbf{}", b"\xff\xfe\x00", b"9" * 5_000, b"\r", b"\x00" * 1_000,
        b'{"id":"1:0","id":"1:1","result":1}', b'{"jsonrpc":"2.0","method":null,"id":1}', (opening * deep + closing).encode(), b"x" * pick.choice((1 << 16, 5 << 20)),
        b'{"jsonrpc":"2.0","method":"session/cancel","params":' + b"[" * 150 + b"]" * 150 + b"}", b'{"method":"session/list\\ud800"}', pick.randbytes(5_000).replace(b"\n", b""),
    ]  # fmt: skip
    pick.shuffle(lines)
    for line in lines:
        editor.write(line + pick.choice((b"\n", b"\r\n")))
    key = f"in pieces {next(numbers)}"
    editor.expect_answer(key)
    whole = json.dumps(
        {"jsonrpc": "2.0", "id": key, "method": "session/list", "params": {"cwd": inside}}
    )
    for sign in whole + "\n":
        editor.write(sign.encode())
        if pick.random() < 0.05:
            await editor.drain()
            await asyncio.sleep(0.001)
    del session


async def send_giants(editor: Editor, session: str, pick: random.Random) -> None:
    """Lines near the limit, some of which are many small values."""
    size = pick.choice((1 << 20, 8 << 20, 33 << 20, 63 << 20, 70 << 20))
    kind = pick.randrange(4)
    name = json.dumps(session).encode()
    head = b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":' + name + b',"x":'
    if kind == 0:
        editor.write(head + b'"' + b"x" * size + b'"}}\n')
    elif kind == 1:
        editor.write(head + b"[" + b"[]," * (size // 3) + b"0]}}\n")
    elif kind == 2:
        editor.write(head + b"[" + b'{"a":0},' * (size // 8) + b"0]}}\n")
    else:
        editor.write(b"x" * size + b"\n")
    await editor.drain()


async def flood(editor: Editor, session: str, pick: random.Random) -> None:
    inside = str(editor.trial.inside)
    amount = pick.choice((500, 3_000, 20_000))
    kind = pick.randrange(6)
    for number in range(amount):
        if kind == 0:
            editor.tell("session/cancel", sessionId=session)
        elif kind == 1:
            editor.ask("session/list", cwd=inside)
        elif kind == 2:
            editor.send({"id": f"1:{number}", "result": selected("once:0")})
        elif kind == 3:
            editor.ask("session/prompt", sessionId=session, prompt=[])
        elif kind == 4:
            editor.ask("session/set_mode", sessionId=session, modeId=pick.choice(("x", "ask")))
        elif number % 20 == 0:
            editor.ask("session/new", cwd=inside, mcpServers=[])
        if number % 500 == 0:
            await editor.drain()


async def prompt_at_once(editor: Editor, session: str, pick: random.Random) -> None:
    """Many messages while the first is answered, or in many sessions, of which some are closed."""
    editor.strategy = lie(pick)
    names = [session]
    names += [await editor.new_session() for _ in range(pick.choice((0, 4)))]
    for number in range(30):
        editor.prompt(names[number % len(names)], command_with_mark(editor, pick))
        if number % 7 == 3:
            editor.ask("session/close", sessionId=pick.choice(names))
        if number % 11 == 5:
            editor.ask("session/fork", sessionId=pick.choice(names), cwd=str(editor.trial.inside))


async def repeat_ids(editor: Editor, session: str, pick: random.Random) -> None:
    del session
    identities: tuple[Any, ...] = (
        "same",
        7,
        None,
        [],
        {},
        {"a": [1]},
        1.5,
        True,
        "greeting",
        10**30,
        "x" * 70_000,
        "\ud800",
    )
    for identity in pick.sample(identities, 5):
        for _ in range(pick.choice((1, 3))):
            editor.expect_answer(identity)
            editor.send({"id": identity, "method": "session/list", "params": {"cwd": str(editor.trial.inside)}})  # fmt: skip


async def read_nothing(editor: Editor, session: str, pick: random.Random) -> None:
    """It sends, but does not read for a while."""
    editor.may_read.clear()
    for _ in range(pick.choice((300, 4_000))):
        editor.ask("session/list", cwd=str(editor.trial.inside))
    editor.prompt(session, "read README.md")
    await asyncio.sleep(pick.uniform(0, 1.5))
    editor.may_read.set()


Attack = Callable[[Editor, str, random.Random], Awaitable[None]]
ATTACKS: tuple[Attack, ...] = (
    say_yes, lie_to_questions, lie_to_questions, lie_to_questions, answer_twice, answer_twice, answer_others, answer_nobody, answer_too_late,
    lie_about_contents, never_end, name_hostile_folders, start_servers, send_odd_messages, send_wrong_types, write_rubbish, send_giants,
    flood, prompt_at_once, repeat_ids, read_nothing,
)  # fmt: skip


async def converse(editor: Editor, number: int) -> None:
    trial = editor.trial
    pick = random.Random(f"{trial.seed} {number}")
    session = await editor.new_session()
    known = [attack for attack in ATTACKS if trial.only in ("", attack.__name__)]
    chosen = pick.choices(known, k=pick.randrange(1, 4))
    names = ", ".join(attack.__name__ for attack in chosen)
    editor.name = f"conversation {number} ({names})"
    _, processor_before = editor.state()
    for attack in chosen:
        await attack(editor, session, pick)
        editor.strategy = deny
        editor.file_strategy = no_such_file
    await editor.drain()
    await check_every_answer_comes(editor)
    await close_sessions(editor)  # No more may be open than the program allows.
    calm = await editor.new_session()
    reason = await editor.run_turn(calm, "read README.md", ANSWER_SECONDS)
    if reason != "end_turn":
        last_answer = list(editor.answers.values())[-1]
        trial.fail(editor.name, f"the calm turn ended with {reason}: {last_answer}")
    await close_sessions(editor)
    check_no_answer_comes_twice(editor)
    megabytes, processor = editor.state()
    trial.most_megabytes = max(trial.most_megabytes, megabytes)
    trial.most_processor_seconds = max(trial.most_processor_seconds, processor - processor_before)
    if megabytes > MOST_MEGABYTES:
        trial.fail(editor.name, f"{megabytes} MB")
    trial.check(editor.name)
    trial.counts["conversations"] += 1
    for mark in [key for key in trial.counts if key.startswith("mark ")]:
        del trial.counts[mark]
        trial.counts["commands asked for"] += 1


async def check_every_answer_comes(editor: Editor) -> None:
    """Also where everything is cancelled."""
    for session in editor.sessions:
        editor.tell("session/cancel", sessionId=session)
    if await editor.until_all_answered(ANSWER_SECONDS):
        return
    some = [key[:80] for key in list(editor.unanswered)[:5]]
    editor.trial.fail(editor.name, f"{len(editor.unanswered)} not answered: {some}")
    editor.unanswered.clear()


def check_no_answer_comes_twice(editor: Editor) -> None:
    twice: list[str] = []
    for key, answers in editor.answered.items():
        if answers > editor.asked[key] and key != "null":
            twice.append(key[:80])
    if twice:
        editor.trial.fail(editor.name, f"answered more often than asked: {twice[:5]}")


async def close_sessions(editor: Editor) -> None:
    for one in editor.sessions:
        editor.ask("session/close", sessionId=one)
    editor.sessions.clear()
    await editor.until_all_answered(ANSWER_SECONDS)


async def run_process(trial: Trial, conversations: list[int]) -> None:
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "helix_desktop", "--home", str(trial.home), "acp"]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=trial.inside, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=pipe, stdout=pipe,
        stderr=pipe, limit=256 << 20,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stderr is not None
    editor = Editor(trial, process)
    complaints = asyncio.ensure_future(process.stderr.read())  # noqa: TID251
    abilities = {"fs": {"readTextFile": True}}
    editor.ask("initialize", protocolVersion=1, clientCapabilities=abilities)
    for number in conversations:
        await converse(editor, number)
        if editor.has_ended:
            trial.fail(editor.name, "the process ended before its input did")
            break
    with suppress(ConnectionError):
        process.stdin.write(
            random.Random(conversations[0]).choice((b"", b'{"id":1', b"x" * 100_000))
        )
        process.stdin.close()
    begun = time.monotonic()
    try:
        await asyncio.wait_for(process.wait(), END_SECONDS)
    except TimeoutError:
        trial.fail(editor.name, f"it did not end in {END_SECONDS:.0f} s")
        process.kill()
    trial.counts["longest end, ms"] = max(
        trial.counts["longest end, ms"], int(1000 * (time.monotonic() - begun))
    )
    await editor.reading
    text = (await complaints).decode("utf-8", "replace")
    if process.returncode != 0 or "Traceback" in text:
        trial.fail(editor.name, f"it ended with {process.returncode}: {text[-1_500:]}")
    trial.check_log(editor.name)
    await check_recorded(trial, editor.name)  # fmt: skip


async def check_recorded(trial: Trial, name: str) -> None:
    """Each conversation is read again. Each call in it has one result, except in a turn that the
    end of the input broke off: the next opening says so, and its next request is legal.
    """
    places = program_folders.find_program_folders(trial.home)
    desk = Workbenches(places, SecretStorage(places.key_file, environ={}))
    for summary in desk.list_workspaces():
        bench = await desk.open_workspace(summary.id)
        broken_off = await end_interrupted_turns(bench)
        trial.counts["turns broken off"] += len(broken_off)
        for row in bench.list_conversations():
            session = await bench.open_session(row.id)
            if session.conversation.state.branch.turn.running:
                trial.fail(name, f"in {row.id} a turn is still open")
            violations = find_violations(await session.context.rebuild_request())
            if violations:
                trial.fail(name, f"the next request of {row.id} is illegal: {violations}")
            wrong = calls_without_one_result(session)
            if wrong:
                trial.fail(name, f"in {row.id} calls without one result each: {wrong[:3]}")
    await desk.aclose()


def calls_without_one_result(session: Session) -> list[str]:
    """A call that runs when its conversation is forked gets its result in the original alone."""
    missing: Counter[str] = Counter()
    for recorded in session.all_facts:
        fact = recorded.fact
        missing.update(missing_results([fact]))
        is_fork = isinstance(fact, ConversationStarted) and bool(fact.forked_from)
        if is_fork or fact == TurnEnded(TurnEnd.FAILED, CLOSED):
            missing = Counter({call: count for call, count in missing.items() if count < 0})
    return [call for call, count in missing.items() if count]


async def run(trial: Trial, first: int, amount: int) -> None:
    begun = time.monotonic()
    all_numbers = range(first, first + amount)
    for start in range(0, amount, CONVERSATIONS_OF_A_PROCESS):
        batch = list(all_numbers[start : start + CONVERSATIONS_OF_A_PROCESS])
        await run_process(trial, batch)
        seconds = time.monotonic() - begun
        failures = len(trial.failures)
        print(f"conversations {batch[0]} to {batch[-1]}: {seconds:.0f} s, {failures} failures, at most {trial.most_megabytes} MB", flush=True)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversations", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="the number of the first one")
    parser.add_argument("--only", default="", help="one attack, by the name of its function")
    arguments = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        trial = Trial(Path(folder), arguments.seed, arguments.only)
        trial.prepare()
        asyncio.run(run(trial, arguments.first, arguments.conversations))
    counts = ", ".join(f"{amount} {key}" for key, amount in sorted(trial.counts.items()))
    print(
        f"hostile_editor: {counts}; at most {trial.most_megabytes} MB, {trial.most_processor_seconds:.1f} s of processor in one conversation; "
        f"{len(trial.failures)} failures; {time.monotonic() - begun:.0f} s, seed {arguments.seed}, from number {arguments.first}"
    )
    return int(bool(trial.failures))


if __name__ == "__main__":
    sys.exit(main())
