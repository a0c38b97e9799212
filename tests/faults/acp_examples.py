"""The official SDKs' example clients and agents, unchanged, and all messages of their
test suites, against our agent and our client.

    python -m tests.faults.acp_examples FOLDER [--only PART]

FOLDER has the SDKs as they are published: `agent_client_protocol-*` (the source of the
package from PyPI) and `typescript-*` (the package `@agentclientprotocol/sdk` from npm,
at most 1.9.0: later ones come without examples and tests). For the suites' messages it
also has `venv` with that Python package, pytest and pytest-asyncio, and each
`typescript-*` has vitest, zod and ws installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acp import meta, schema
from pydantic import TypeAdapter

from helix_desktop import program_folders
from helix_desktop.engine.facts import ModelReplied, Text, TurnEnd
from helix_desktop.engine.session import Session
from helix_desktop.program_settings import ACP_AGENTS, ProgramSettings
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.acp_agent.test_official_clients import agent_words, create_workspace
from tests.faults.acp_agents import Watcher, facts, processes_of
from tests.faults.store_report import report
from tests.peers.chat_server import ChatServer, reply

LONGEST = 100.0
HELLO = "Hello there."
DONE = "All is done."
RECORDER = """
import json, os
from acp import connection
made = connection.Connection.__init__
def note(event):
    if event.direction is connection.StreamDirection.OUTGOING:
        with open(os.environ["ACP_TRANSCRIPT"], "a") as file:
            file.write(json.dumps(event.message, default=str) + "\\n")
def make(self, *values, **named):
    made(self, *values, **named)
    self.add_observer(note)
connection.Connection.__init__ = make
"""
LISTENER = """
import { appendFileSync } from "node:fs";
const Plain = globalThis.TransformStream;
const note = (chunk) => {
  const text = chunk instanceof Uint8Array ? new TextDecoder().decode(chunk) : typeof chunk === "object" ? JSON.stringify(chunk) + "\\n" : String(chunk);
  appendFileSync(process.env.ACP_TRANSCRIPT, text);
};
globalThis.TransformStream = class extends Plain {
  constructor(given, ...more) {
    super(given ?? { transform(chunk, out) { note(chunk); out.enqueue(chunk); } }, ...more);
  }
};
"""
# What an agent's answer to each method must be.
ANSWERS: dict[str, Any] = {
    "initialize": schema.InitializeResponse,
    "authenticate": schema.AuthenticateResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/list": schema.ListSessionsResponse,
    "session/resume": schema.ResumeSessionResponse,
    "session/fork": schema.ForkSessionResponse,
    "session/prompt": schema.PromptResponse,
    "session/set_mode": schema.SetSessionModeResponse,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
    "session/request_permission": schema.RequestPermissionResponse,
    "fs/read_text_file": schema.ReadTextFileResponse,
    "terminal/create": schema.CreateTerminalResponse,
    "terminal/output": schema.TerminalOutputResponse,
    "terminal/wait_for_exit": schema.WaitForTerminalExitResponse,
    "elicitation/create": schema.CreateElicitationResponse,
}
NOTIFICATIONS = ("session/update", "session/cancel", "elicitation/complete")


@dataclass
class Trial:
    """A home with our agent, a folder, and a scripted model; or with foreign agents."""

    place: Path
    found: Counter[str]
    wrong: list[str] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.place / "home"

    @property
    def folder(self) -> Path:
        return self.place / "project"

    def need(self, holds: object, what: str) -> None:
        if not holds:
            self.wrong.append(what[:600])


@contextmanager
def trial(name: str, found: Counter[str]) -> Iterator[Trial]:
    """One line of the table."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="helix-acp-", ignore_cleanup_errors=True) as place:
        made = Trial(Path(place), found)
        made.folder.mkdir()
        (made.folder / "a.txt").write_text("alpha\nbeta\n")
        yield made
    found["trials"] += 1
    found.update(f"LOST {name}: {each}" for each in made.wrong)
    print(
        f"{name}: {'; '.join(made.wrong) or 'right'} ({time.monotonic() - began:.0f} s)", flush=True
    )


def agent_program(here: Trial, name: str, *, lead: Sequence[str] = ()) -> Path:
    """Our agent under another name, for examples that start a fixed one."""
    program = here.place / "bin" / name
    program.parent.mkdir(exist_ok=True)
    words = shlex.join([*lead, *agent_words(here.home)])
    program.write_text(f"#!/bin/sh\nexec env PYTHONPATH={shlex.quote(str(Path.cwd()))} {words}\n")
    program.chmod(0o755)
    return program


# --- their clients and our agent


def run_example_client(
    here: Trial,
    command: Sequence[str | Path],
    given: str = "",
    path: str = "",
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    replies = [
        reply(HELLO, calls=[("write_file", {"path": "b.txt", "content": "text\n"})]),
        reply(DONE),
        *[reply("more")] * 5,
    ]
    with ChatServer(replies) as server:
        asyncio.run(create_workspace(here.home, folder or here.folder, server.base_url))
        env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
        return subprocess.run(
            command,
            input=given,
            cwd=here.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )


def check_client(here: Trial, done: subprocess.CompletedProcess[str], *, is_written: bool) -> None:
    told = " ".join(done.stdout.replace("| Agent:", "").split())
    here.need(done.returncode == 0, f"exit {done.returncode}: {done.stderr[-300:]}")
    here.need("Traceback" not in done.stderr, done.stderr[-500:])
    squeezed = told.replace(" ", "")
    here.need(HELLO.replace(" ", "") in squeezed, f"the first words are missing: {told[:300]}")
    here.need(DONE.replace(" ", "") in squeezed, f"the last words are missing: {told[-300:]}")
    here.need((here.folder / "b.txt").exists() == is_written, f"written: {not is_written}")


def try_clients(folder: Path, found: Counter[str]) -> None:
    for sdk in sorted(folder.glob("agent_client_protocol-*/examples")):
        with trial(f"Python {sdk.parent.name.rpartition('-')[2]}, client.py", found) as here:
            done = run_example_client(
                here, [sys.executable, sdk / "client.py", agent_program(here, "agent")], "Hello\n"
            )
            check_client(here, done, is_written=False)  # it has no answer to questions
        for is_allowed in (True, False):
            with trial(
                f"Python, gemini.py, {'allowed' if is_allowed else 'refused'}", found
            ) as here:
                command: list[str | Path] = [
                    sys.executable,
                    sdk / "gemini.py",
                    "--gemini",
                    agent_program(here, "gemini"),
                ]
                more = ["--yolo", "--prompt", "Hello"] if is_allowed else []
                refusal = ":exit\n" if is_allowed else "Hello\n4\n:exit\n"
                done = run_example_client(here, [*command, *more], refusal)
                check_client(here, done, is_written=is_allowed)
        with trial("Python, duet.py", found) as here:
            beside = here.place / "sdk" / "examples"
            shutil.copytree(sdk, beside)
            shutil.copytree(sdk.parent / "src", here.place / "sdk" / "src")
            words = [*agent_words(here.home)]
            (beside / "agent.py").write_text(f"import os\nos.execv({words[0]!r}, {words!r})\n")
            os.environ["PYTHONPATH"] = str(Path.cwd())
            done = run_example_client(
                here, [sys.executable, beside / "duet.py"], "Hello\n", folder=beside
            )
            check_client(here, done, is_written=False)
    for sdk in sorted(folder.glob("typescript-*/dist/examples/client.js")):
        version = sdk.parents[2].name.rpartition("-")[2]
        for answer, is_allowed in (("1\n", True), ("4\n", False)):
            with trial(
                f"TypeScript {version}, client.js, {'allowed' if is_allowed else 'refused'}", found
            ) as here:
                program = agent_program(here, "npx")
                check_client(
                    here,
                    run_example_client(here, ["node", sdk], answer, str(program.parent)),
                    is_written=is_allowed,
                )


# --- their agents and our client


async def with_agent(
    here: Trial,
    command: str,
    story: Callable[[Workbench, Session, Watcher], Any],
    environ: dict[str, str],
) -> None:
    where = program_folders.find_program_folders(here.home)
    where.settings_file.parent.mkdir(parents=True, exist_ok=True)
    ProgramSettings(where.settings_file).change_setting(ACP_AGENTS, f"Example = {command}")
    os.environ.update(environ)
    desks = Workbenches(where, SecretStorage(where.key_file, environ={}))
    try:
        bench = await desks.create_workspace("project", here.folder)
        session = await bench.start_conversation(acp_agent="Example")
        watch = Watcher(session)
        watch.refuses = False
        await story(bench, session, watch)
    finally:
        await desks.aclose()


async def turn(here: Trial, session: Session, text: str, expected: TurnEnd = TurnEnd.DONE) -> str:
    """What the agent said in it."""
    before = len(said(session))
    session.send_message((Text(text),))
    try:
        await asyncio.wait_for(session.wait_until_idle(), LONGEST)
    except TimeoutError:
        here.need(expected is None, f"it hung: {text}")
        session.stop_turn()
        await session.wait_until_idle()
    end = session.turns.last_end
    here.need(end and end.reason is expected, f"the turn ended {end}")
    return said(session)[before:]


def said(session: Session) -> str:
    return "".join(
        part.text
        for each in facts(session, ModelReplied)
        for part in each.parts
        if isinstance(part, Text)
    )


async def killed(bench: Workbench, session: Session) -> None:
    for each in processes_of(session, bench)[1:] or processes_of(session, bench):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    await asyncio.sleep(0.1)


def try_agents(folder: Path, found: Counter[str]) -> None:
    for sdk in sorted(folder.glob("agent_client_protocol-*/examples")):
        for name, answer in (("agent.py", "Client sent:Hello"), ("echo_agent.py", "Hello")):

            async def echo(
                bench: Workbench, session: Session, _: Watcher, answer: str = answer
            ) -> None:
                here.need(
                    (heard := await turn(here, session, "Hello")) == answer,
                    f"it said {heard[:200]!r}",
                )
                await killed(bench, session)
                heard = await turn(here, session, "Hello again")
                here.need("Hello again" in heard, f"after its end it said {heard[:200]!r}")

            with trial(f"Python {sdk.parent.name.rpartition('-')[2]}, {name}", found) as here:
                asyncio.run(
                    with_agent(here, shlex.join([sys.executable, str(sdk / name)]), echo, {})
                )
    for sdk in sorted(folder.glob("typescript-*/dist/examples/agent.js")):
        version = sdk.parents[2].name.rpartition("-")[2]

        async def simulated(bench: Workbench, session: Session, watch: Watcher) -> None:
            heard = await turn(here, session, "Hello")
            here.need(
                heard.endswith("The changes have been applied."), f"allowed: {heard[-100:]!r}"
            )
            here.need(watch.asked == 1, f"asked {watch.asked} times")
            watch.refuses = True
            watch.asked = 4
            heard = await turn(here, session, "Hello")
            here.need(
                heard.endswith("I'll skip the configuration update."), f"refused: {heard[-100:]!r}"
            )
            session.send_message((Text("Hello"),))
            await asyncio.sleep(1.5)
            since = time.monotonic()
            session.stop_turn()
            await session.wait_until_idle()
            here.need(
                time.monotonic() - since < 2, f"stopped after {time.monotonic() - since:.1f} s"
            )
            here.need(
                session.turns.last_end and session.turns.last_end.reason is TurnEnd.STOPPED,
                f"stopped: {session.turns.last_end}",
            )
            await killed(bench, session)
            here.need(await turn(here, session, "Hello again"), "nothing after its end")

        with trial(f"TypeScript {version}, agent.js", found) as here:
            asyncio.run(with_agent(here, shlex.join(["node", str(sdk)]), simulated, {}))

        async def dual(_: Workbench, session: Session, __: Watcher) -> None:
            heard = await turn(here, session, "Hello")
            here.need(heard == "Hello from the v1 implementation.", f"it said {heard[:200]!r}")

        if (other := sdk.with_name("dual-version-agent.js")).exists():
            with trial(f"TypeScript {version}, dual-version-agent.js", found) as here:
                asyncio.run(with_agent(here, shlex.join(["node", str(other)]), dual, {}))


# --- the messages of their test suites


def golden_messages(folder: Path) -> list[dict[str, Any]]:
    """The Python SDK's golden files, each as a message that carries it."""
    made: list[dict[str, Any]] = []
    methods = {
        "cancel_notification": "session/cancel",
        "fs_read_text_file_request": "fs/read_text_file",
        "fs_write_text_file_request": "fs/write_text_file",
        "initialize_request": "initialize",
        "new_session_request": "session/new",
        "prompt_request": "session/prompt",
        "request_permission_request": "session/request_permission",
        "set_session_config_option_request": "session/set_config_option",
    }
    for file in sorted(folder.glob("agent_client_protocol-*/tests/golden/*.json")):
        value = json.loads(file.read_text())
        kind = file.stem.partition("_")[0]
        if file.stem in methods:
            made.append({"method": methods[file.stem], "params": value})
        elif file.stem.startswith("session_update_"):
            made.append(_update(value))
        elif kind == "content":
            made.append(
                {"method": "session/prompt", "params": {"sessionId": "s", "prompt": [value]}}
            )
            made += [_update({"sessionUpdate": f"{who}_chunk", "content": value}) for who in ("agent_message", "agent_thought", "user_message")]  # fmt: skip
        elif file.stem.startswith("tool_content_"):
            call = {
                "toolCallId": file.stem,
                "title": file.stem,
                "status": "completed",
                "content": [value],
            }
            made.append(_update({"sessionUpdate": "tool_call", **call}))
    return made


def _update(value: dict[str, Any]) -> dict[str, Any]:
    return {"method": "session/update", "params": {"sessionId": "s", "update": value}}


def recorded_messages(folder: Path, place: Path) -> list[dict[str, Any]]:
    """Requests and notifications that go over the line while the SDKs' own test suites run."""
    kept = place / "transcript"
    (place / "acp_recorder.py").write_text(RECORDER)
    (place / "listener.mjs").write_text(LISTENER)
    settings = {"test": {"setupFiles": [str(place / "listener.mjs")]}}
    (place / "settings.mjs").write_text(f"export default {json.dumps(settings)};\n")
    runs: list[tuple[Path, list[str]]] = []
    for sdk in folder.glob("agent_client_protocol-*/"):
        tests = ["tests", "--ignore=tests/http", "--ignore=tests/test_gemini_example.py"]
        runs.append(
            (
                sdk,
                [
                    str(folder / "venv/bin/python"),
                    "-m",
                    "pytest",
                    "-q",
                    "-p",
                    "acp_recorder",
                    *tests,
                ],
            )
        )
    for sdk in folder.glob("typescript-*/"):
        options = [
            "run",
            "--dir",
            "dist",
            f"--config={place / 'settings.mjs'}",
            "--root=.",
            "--no-file-parallelism",
        ]
        runs.append(
            (
                sdk,
                [
                    "npx",
                    "vitest",
                    *options,
                    "acp.test",
                    "connection.test",
                    "proxy.test",
                    "stream.test",
                ],
            )
        )
    for sdk, command in runs:
        before = kept.stat().st_size if kept.exists() else 0
        env = {
            **os.environ,
            "ACP_TRANSCRIPT": str(kept),
            "PYTHONPATH": f"{place}:{sdk}:{sdk / 'src'}",
        }
        done = subprocess.run(
            command, cwd=sdk, env=env, capture_output=True, text=True, timeout=600, check=False
        )
        last = " ".join(done.stdout.split()[-20:])
        size = (kept.stat().st_size if kept.exists() else 0) - before
        print(f"  {sdk.name}: {size} bytes of messages; its own tests: {last[-160:]}", flush=True)
    found: dict[str, dict[str, Any]] = {}
    for line in kept.read_text(errors="replace").splitlines() if kept.exists() else ():
        with suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict) and isinstance(message.get("method"), str):
                plain = {
                    name: value for name, value in message.items() if name in ("method", "params")
                }
                is_request = "id" in message
                found.setdefault(
                    json.dumps([plain, is_request]), {**plain, **({"id": 0} if is_request else {})}
                )
    return list(found.values())


def all_messages(folder: Path, place: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Those for an agent and those for a client; what neither knows is for both."""
    golden = [
        {**each, **({} if each["method"] in NOTIFICATIONS else {"id": 0})}
        for each in golden_messages(folder)
    ]
    every = [{"method": name, "params": {}, "id": 0} for name in {*meta.AGENT_METHODS.values(), *meta.CLIENT_METHODS.values()} if name not in NOTIFICATIONS]  # fmt: skip
    both = [*golden, *recorded_messages(folder, place), *every]
    agents = set(meta.AGENT_METHODS.values())
    clients = set(meta.CLIENT_METHODS.values())
    to_agent = [each for each in both if each["method"] in agents or each["method"] not in clients]
    to_client = [each for each in both if each["method"] in clients or each["method"] not in agents]
    return to_agent, to_client


def as_ours(message: dict[str, Any], session: str, folder: Path) -> dict[str, Any]:
    """The same message with the session, the folder and the files that there are here."""

    def change(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: change(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [change(each) for each in value]
        if isinstance(value, str):
            replaced = {"sessionId": session, "cwd": str(folder), "terminalId": "$terminal"}
            if name == "path":
                return str(folder / Path(value).name)
            return replaced.get(name, value)
        return value

    found: dict[str, Any] = change(message)
    return found


def check_answer(here: Trial, method: str, answer: dict[str, Any]) -> str:
    """In a word, whether it is one."""
    if "error" in answer:
        error = answer["error"]
        here.need(
            isinstance(error.get("code"), int) and str(error.get("message")).strip(),
            f"{method}: {error}",
        )
        is_known = method in {*meta.AGENT_METHODS.values(), *meta.CLIENT_METHODS.values()}
        here.need(
            is_known or error["code"] == -32601, f"{method} is unknown, and answered with {error}"
        )
        return "refused"
    if method in ANSWERS:
        try:
            TypeAdapter(ANSWERS[method]).validate_python(answer.get("result"))
        except ValueError as error:
            here.need(answer is None, f"{method}: not an answer: {error}")
    return "answered"


class RawEditor:
    """Our agent's process, and an editor that writes lines. It answers what it is asked
    as `answers` say.
    """

    def __init__(self, here: Trial, answers: dict[str, Any]) -> None:
        self.here = here
        self.answers = answers
        self.updates: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        env = {**os.environ, "PYTHONPATH": str(Path.cwd())}
        self.process = subprocess.Popen(
            agent_words(here.home),
            cwd=here.folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._unread = b""

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, params: Any, identity: Any) -> dict[str, Any]:
        self.send({"method": method, "params": params, "id": identity})
        until = time.monotonic() + LONGEST
        while (line := self._line(until)) is not None:
            message = json.loads(line)
            if "method" not in message and message.get("id") == identity:
                found: dict[str, Any] = message
                return found
            if message.get("method") == "session/update":
                self.updates[message["params"]["update"]["sessionUpdate"]] += 1
            elif "id" in message and "method" in message:
                self.asked[message["method"]] += 1
                result = self.answers.get(message["method"])
                refusal = {"error": {"code": -32601, "message": "Method not found"}}
                self.send(
                    {"id": message["id"], **({"result": result} if result is not None else refusal)}
                )
        self.here.need(line, f"no answer to {method} {json.dumps(params)[:200]}")
        return {"error": {"code": 0, "message": "none"}}

    def _line(self, until: float) -> bytes | None:
        assert self.process.stdout is not None
        while b"\n" not in self._unread:
            if not select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[
                0
            ]:
                return None
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                return None
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)


def try_messages_to_agent(
    folder: Path, messages: Sequence[dict[str, Any]], found: Counter[str]
) -> None:
    golden = {file.stem: json.loads(file.read_text()) for file in folder.glob("agent_client_protocol-*/tests/golden/*.json")}  # fmt: skip
    abilities = {"fs": {"readTextFile": True, "writeTextFile": True}, "elicitation": {"form": {}}, "session": {"compaction": {}}}  # fmt: skip
    for is_ours in (False, True):
        name = "with our sessions and files" if is_ours else "as they are"
        with trial(f"{len(messages)} messages to our agent, {name}", found) as here, ChatServer([reply("ok")] * 2_000) as server:  # fmt: skip
            asyncio.run(create_workspace(here.home, here.folder, server.base_url))
            editor = RawEditor(here, {"fs/read_text_file": golden["fs_read_text_file_response"], "session/request_permission": golden["request_permission_response_selected"]})  # fmt: skip
            greeting = {"protocolVersion": 1, "clientCapabilities": abilities}
            editor.request("initialize", greeting, "greeting")
            new = {"cwd": str(here.folder), "mcpServers": []}
            outcomes = Counter[str]()
            session = editor.request("session/new", new, "s")["result"]["sessionId"]
            for number, each in enumerate(messages):
                message = as_ours(each, session, here.folder) if is_ours else each
                if "id" in message:
                    answer = editor.request(message["method"], message.get("params"), number)
                    outcome = check_answer(here, message["method"], answer)
                    outcomes[f"{message['method']} {outcome}"] += 1
                    if os.environ.get("ACP_SHOW") and outcome == "refused":
                        print(
                            "   ",
                            message["method"],
                            json.dumps(message.get("params"))[:300],
                            "->",
                            answer["error"],
                        )
                else:
                    editor.send(message)
                    outcomes[f"{message['method']} noted"] += 1
                if message["method"] in ("session/close", "session/delete", "session/new"):
                    session = editor.request("session/new", new, f"s{number}")["result"][
                        "sessionId"
                    ]
            last = editor.request("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "and now?"}]}, "last")  # fmt: skip
            here.need(last.get("result", {}).get("stopReason") == "end_turn", f"afterwards: {last}")
            here.need(editor.end() == 0, f"exit {editor.process.returncode}")
            print("  " + ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items())))
            print(f"  updates: {dict(editor.updates)}, asked: {dict(editor.asked)}")


def try_messages_to_client(
    folder: Path, messages: Sequence[dict[str, Any]], found: Counter[str]
) -> None:
    golden = {file.stem: json.loads(file.read_text()) for file in folder.glob("agent_client_protocol-*/tests/golden/*.json")}  # fmt: skip
    for is_ours, is_allowed in ((False, True), (True, True), (True, False)):
        name = f"{'with our sessions and files' if is_ours else 'as they are'}, {'allowed' if is_allowed else 'refused'}"
        with trial(f"{len(messages)} messages to our client, {name}", found) as here:
            sent = [
                as_ours(each, "$session", here.folder) if is_ours else each for each in messages
            ]
            words = _update(
                {
                    "sessionUpdate": "agent_message_chunk",
                    "content": {"type": "text", "text": "the end"},
                }
            )
            turns = [[*sent[at : at + 40], words] for at in range(0, len(sent), 40)]
            script = here.place / "plan"
            script.write_text(json.dumps({"initialize": golden["initialize_response"], "session/new": golden["new_session_response"], "session/set_config_option": golden["set_session_config_option_response"], "turns": turns}))  # fmt: skip

            async def replay(
                _: Workbench,
                session: Session,
                watch: Watcher,
                turns: Any = turns,
                is_allowed: bool = is_allowed,
                is_ours: bool = is_ours,
            ) -> None:
                watch.refuses = not is_allowed
                watch.every = 1
                for number in range(len(turns) + 1):
                    heard = await turn(here, session, f"turn {number}")
                    here.need(
                        number == len(turns) or heard.endswith("the end"),
                        f"turn {number}: {heard[-100:]!r}",
                    )
                here.need(
                    is_ours or "The capital of France is Paris." in said(session),
                    "its golden words are missing",
                )

            command = shlex.join([sys.executable, "-m", "tests.faults.acp_replay"])
            environ = {"ACP_REPLAY": str(script), "PYTHONPATH": str(Path.cwd())}
            asyncio.run(with_agent(here, command, replay, environ))
            outcomes = Counter[str]()
            lines = []
            with suppress(FileNotFoundError):
                lines = script.with_suffix(".answers").read_text().splitlines()
            for line in lines:
                pair = json.loads(line)
                method = pair["asked"]["method"]
                answer = pair["answer"]
                outcome = check_answer(here, method, answer)
                outcomes[f"{method} {outcome}"] += 1
                if os.environ.get("ACP_SHOW") and outcome == "refused":
                    print(
                        "   ",
                        method,
                        json.dumps(pair["asked"].get("params"))[:300],
                        "->",
                        answer["error"],
                    )
            asked = sum("id" in each for each in sent)
            here.need(len(lines) == asked, f"{len(lines)} of {asked} requests were answered")
            print("  " + ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items())))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=("clients", "agents", "to-agent", "to-client"))
    given = parser.parse_args()
    folder = given.folder.resolve()

    def trials(found: Counter[str]) -> None:
        if given.only in (None, "clients"):
            try_clients(folder, found)
        if given.only in (None, "agents"):
            try_agents(folder, found)
        if given.only in (None, "to-agent", "to-client"):
            with tempfile.TemporaryDirectory() as place:
                to_agent, to_client = all_messages(folder, Path(place))
            if given.only != "to-client":
                try_messages_to_agent(folder, to_agent, found)
            if given.only != "to-agent":
                try_messages_to_client(folder, to_client, found)

    return report("the SDKs' examples", 0, trials)


if __name__ == "__main__":
    sys.exit(main())
