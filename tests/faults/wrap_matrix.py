"""The real agents through `wrap`, in the situations people are in: each is right, or
refused before a byte is sent.

python -m tests.faults.wrap_matrix [--steps 6] [--agent NAME] [--situation NAME] [--seed
N] [--hidden-faults SHARE]

HELIX_CLIENTS: see tests/benchmarks/gateway_clients.py. The last two are of "provider
fails": which requests fail, and how many of those behind a recall.

Every agent has a planted key. It may arrive at the provider its user chose and nowhere else.
Where nothing is killed or fails, `cost` has the tokens of every answer, to the last one.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import hashlib
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from helix_desktop import concurrency
from tests.benchmarks.gateway_clients import (
    BEGINS,
    CLAUDE_WINDOW,
    GOES_ON,
    HIDDEN,
    KEY,
    PACKAGES,
    Work,
    installed,
)
from tests.faults.agent_ends import (
    SHARE,
    FailingProvider,
    WorkWithFiles,
    differences_of_ends,
    end_of_run,
)
from tests.faults.agent_resume import session_file, session_id
from tests.faults.store_report import report
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says
from tests.peers.company_proxy import CompanyProxy
from tests.resident.test_resident_process import is_gone, status, wait_until

LONGEST = 600.0
ESTIMATE_SAID = "got no whole answer"
HTTP_KEYS = ("authorization", "x-api-key", "x-goog-api-key")
VARIABLES = {
    **dict.fromkeys(("claude", "opencode"), "ANTHROPIC_BASE_URL"),
    "codex": "OPENAI_BASE_URL",
    "gemini": "GOOGLE_GEMINI_BASE_URL",
}
SIGNED = {
    "claude": (".claude/settings.json", '{"env": {"CLAUDE_CODE_USE_BEDROCK": "1"}}'),
    "codex": (".codex/config.toml", 'model_provider = "ollama"'),
    "gemini": (".gemini/settings.json", '{"security": {"auth": {"selectedType": "vertex-ai"}}}'),
}
CLAIMS = json.dumps(
    {"exp": 9_999_999_999, "https://api.openai.com/auth": {"chatgpt_account_id": "acc"}}
)
TOKEN = f"e30.{base64.urlsafe_b64encode(CLAIMS.encode()).decode().strip('=')}.x"
TOKENS = {"access_token": TOKEN, "id_token": TOKEN, "refresh_token": "r", "account_id": "acc"}
SIGNED_IN = {
    "claude": (".claude/.credentials.json", json.dumps({"claudeAiOauth": {"accessToken": "sk-ant-oat01-planted", "refreshToken": "r", "expiresAt": 9_999_999_999_000, "scopes": ["user:inference", "user:profile"], "subscriptionType": "max"}})),
    "codex": (".codex/auth.json", json.dumps({"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": TOKENS, "last_refresh": "2099-01-01T00:00:00Z"})),
}  # fmt: skip
RESUMES = {
    "claude": [*BEGINS["claude"][2:], "--resume", "{session}", "-p", "{words}"],
    "opencode": [*BEGINS["opencode"][:-1], "--session", "{session}", "{words}"],
    "pi": [*BEGINS["pi"][:-2], "--session", "{session}", "-p", "{words}"],
    "codex": [*BEGINS["codex"][:-1], "resume", "{session}", "{words}"],
}
FORKS = {
    "claude": ["--fork-session", *RESUMES["claude"]],
    "opencode": [*RESUMES["opencode"][:-1], "--fork", "{words}"],
    "pi": [*BEGINS["pi"][:-2], "--fork", "{session}", "-p", "{words}"],
}
CODEX_SERVER = ["app-server", "-c", 'model="gpt-5.1-codex"']
CODEX_BEGINS: Sequence[Mapping[str, Any]] = (
    {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "trial", "version": "1"}}},
    {"method": "initialized"},
)
MOST_SEARCHES = 8
COMPANY_KEY = "company-key-of-its-own"
ANSWERS_OF_TERMINAL = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?62c"}
SUMMARY_TEXT = b"The numbers were counted."
# In these, some requests are not for this workspace, are ended, or their answers fail.
NOT_ALL_PAID = (
    "two at once", "begun without wrap", "compaction without wrap", "gateway killed", "gateway killed in a stream", "provider fails",
    "SIGTERM", "SIGINT", "wrap killed", "terminal closed", "signed",
)  # fmt: skip


@dataclass
class Stage:
    """One agent in a home of its own. `provider`: the one its user chose; `elsewhere`:
    the one nobody chose for it.
    """

    agent: str
    steps: int
    home: Path
    provider: Provider
    elsewhere: Provider
    work: Work
    seed: str = ""
    hidden_faults: float = SHARE
    halfway: threading.Event = field(default_factory=threading.Event)
    wrong: list[str] = field(default_factory=list)
    is_wrapped: bool = True  # Whether the agent is started by `wrap` unless something else is said.

    @property
    def place(self) -> Path:
        return self.home / "work"

    def script(self, asked: Asked) -> list[Block] | int:
        if self.work.done >= self.steps // 2:
            self.halfway.set()
        return list(self.work.script(asked))

    def start(
        self,
        *options: str,
        goes_on: bool = False,
        given: Sequence[str] = (),
        own: Mapping[str, str] = MappingProxyType({}),
        wrapped: bool | None = None,
        **more: Any,
    ) -> subprocess.Popen[str]:
        """`wrap` as a user types it, or the agent alone. `given`: all of the agent's arguments.
        `own`: variables; an empty one is not there.
        """
        if wrapped is None:
            wrapped = self.is_wrapped
        program = installed(Path(os.environ.get("HELIX_CLIENTS", "/tmp/helix-clients")), self.agent)
        begins = (
            BEGINS[self.agent]
            if self.agent != "gemini"
            else ["--yolo", "--skip-trust", "-p", "do the work"]
        )
        if goes_on:
            again = GOES_ON[self.agent]
            begins = (
                [*begins[:-1], *again, begins[-1]]
                if self.agent in ("codex", "opencode")
                else [*again, *begins]
            )
        begins = list(given) or begins
        variables = {
            **dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), KEY),
            "HOME": str(self.home),
            "PWD": str(self.place),  # opencode reads its project there.
            "PATH": f"{program}:{os.environ['PATH']}",
            "IS_SANDBOX": "1",
            "PYTHONPATH": str(Path.cwd()),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        command = [sys.executable, "-m", "helix_desktop", "--home", str(self.home / "helix"), "wrap", *options, self.agent, "--", *begins]  # fmt: skip
        if not wrapped:
            command = [str(program / self.agent), *begins]
        pipe = subprocess.PIPE
        streams = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, **more}
        environ = {
            name: value for name, value in {**os.environ, **variables, **own}.items() if value
        }
        return subprocess.Popen(command, cwd=self.place, env=environ, text=True, **streams)

    def finish(self, process: subprocess.Popen[str], *, code: int = 0, errors: bool = True) -> str:
        """Its end. What it said on its standard error, or what it printed."""
        try:
            out, err = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            process.terminate()
            self.wrong.append(f"it hung: {process.communicate()[1][-200:]}")
            return ""
        if process.returncode != code:
            self.wrong.append(f"exit {process.returncode}, not {code}: {(out + err)[-3_000:]}")
        return err if errors else out

    def check_work(self, least: int) -> None:
        if self.work.done < least:
            self.wrong.append(f"{self.work.done} of {least} steps")

    def write_settings(self, url: str, header: str = "x-company", value: str = "yes") -> None:
        """The address in the agent's own settings, as its manual says, and a header
        that the company wants.
        """
        tables = f'[model_providers.corp]\nname = "Corp"\nbase_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
        named = {
            "claude": (".claude/settings.json", json.dumps({"env": {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_CUSTOM_HEADERS": f"{header}: {value}"}})),
            "codex": (".codex/config.toml", f'model_provider = "corp"\n{tables}http_headers = {{ "{header}" = "{value}" }}\n'),
            "opencode": (".config/opencode/opencode.jsonc", f'{{ // mine\n "provider": {{"anthropic": {{"options": {{"baseURL": "{url}/v1", "headers": {{"{header}": "{value}"}}}}}}}}}}'),
            "gemini": (".gemini/.env", f"GOOGLE_GEMINI_BASE_URL={url}\nGEMINI_CLI_CUSTOM_HEADERS={header}:{value}\n"),
            "pi": (".pi/agent/models.json", json.dumps({"providers": {"anthropic": {"baseUrl": url, "headers": {header: value}}}})),
        }  # fmt: skip
        name, text = named[self.agent]
        self.write(name, text)

    def helix(self, *words: str) -> str:
        """What a command of this program prints."""
        command = [sys.executable, "-m", "helix_desktop", "--home", str(self.home / "helix")]
        environ = {**os.environ, "HOME": str(self.home), "PYTHONPATH": str(Path.cwd())}
        done = subprocess.run(
            [*command, *words], env=environ, capture_output=True, text=True, check=False
        )
        return done.stdout

    def write(self, name: str, text: str) -> None:
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


def plain(stage: Stage) -> None:
    stage.finish(stage.start("--upstream", stage.provider.url))


def in_the_shell(stage: Stage) -> None:
    version = "/v1" if stage.agent in ("codex", "opencode") else ""
    stage.finish(stage.start(own={VARIABLES[stage.agent]: stage.provider.url + version}))


def in_settings(stage: Stage) -> None:
    stage.write_settings(stage.provider.url)
    stage.finish(
        stage.start(
            own={VARIABLES[stage.agent]: stage.elsewhere.url} if stage.agent == "claude" else {}
        )
    )
    if any(
        asked.protocol and asked.headers.get("x-company") != "yes" for asked in stage.provider.asked
    ):
        stage.wrong.append("the company's header is missing")


def own_key_header(stage: Stage) -> None:
    """A company's gateway that wants its own key under a name of its own."""
    stage.write_settings(stage.provider.url, "api-key", COMPANY_KEY)
    stage.finish(stage.start())
    if any(
        asked.protocol and asked.headers.get("api-key") != COMPANY_KEY
        for asked in stage.provider.asked
    ):
        stage.wrong.append("the company's key is missing")


def behind_an_opening_proxy(stage: Stage) -> None:
    """The company's proxy shows its own certificate, which the agent trusts by its variable."""
    with CompanyProxy(stage.home, "llm.company.example", stage.provider.port) as proxy:
        name = "SSL_CERT_FILE" if stage.agent == "codex" else "NODE_EXTRA_CA_CERTS"
        own = {name: str(proxy.certificate), "HTTPS_PROXY": proxy.url, "https_proxy": proxy.url}
        stage.finish(stage.start("--upstream", "https://llm.company.example", own=own))
        if "llm.company.example:443" not in proxy.asked_hosts:
            stage.wrong.append("a request did not go through the proxy")


def subscription(stage: Stage) -> None:
    """Signed in with an account and without a key: recorded, not folded, and said at once."""
    stage.write(*SIGNED_IN[stage.agent])
    own = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY"), "")
    told = stage.finish(stage.start("--upstream", stage.provider.url, own=own))
    if "recording, not folding" not in told:
        stage.wrong.append("the terminal does not say that it does not fold")
    if any(HIDDEN.encode() in asked.raw for asked in stage.provider.asked):
        stage.wrong.append("a request was folded")


def shortens_its_own(stage: Stage) -> None:
    """The provider says that the window is full: the agent shortens its history itself,
    and goes on.
    """
    own = {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(CLAUDE_WINDOW)}
    stage.finish(stage.start("--upstream", stage.provider.url, own=own))
    stage.work.begin(stage.steps, fills=True)
    stage.finish(stage.start("--upstream", stage.provider.url, own=own, goes_on=True))
    if not stage.work.compacted:
        stage.wrong.append("it did not shorten its history")


def shortens_by_command(stage: Stage) -> None:
    """The agent's own command shortens its history, and it goes on behind it."""
    if stage.agent == "pi":  # It keeps 20,000 tokens as they are, and so would shorten nothing.
        stage.write(".pi/agent/settings.json", '{"compaction": {"keepRecentTokens": 100}}')
    words = "MARK-behind-it"
    if stage.agent == "gemini":
        _compress_in_terminal(stage, words)
    else:
        upstream = ("--upstream", stage.provider.url)
        stage.finish(stage.start(*upstream))
        session = session_id(stage.agent, session_file(stage.agent, stage.home))
        SHORTENS[stage.agent](stage, session)
        stage.work.begin(stage.steps)
        stage.finish(stage.start(*upstream, given=_resume(stage.agent, session, words)))
    if not stage.work.compacted:
        stage.wrong.append("it did not shorten its history")
    bodies = [asked.raw for asked in stage.provider.asked]
    if not any(words.encode() in body and SUMMARY_TEXT in body for body in bodies):
        stage.wrong.append("its summary is missing")
    if words not in stage.helix("conversation", "search", "-w", "work", words, "--json"):
        stage.wrong.append("what was said behind it was not recorded")


def shortened_without_wrap(stage: Stage) -> None:
    """A session that was begun and shortened without `wrap`, and imported, goes on with it in the
    conversation of the import.
    """
    if stage.agent == "pi":
        stage.write(".pi/agent/settings.json", '{"compaction": {"keepRecentTokens": 100}}')
    stage.write_settings(stage.provider.url)
    if stage.agent == "codex":
        stage.write(".codex/config.toml", f'openai_base_url = "{stage.provider.url}/v1"\n')
        _sign_codex_in(stage)
    stage.helix("workspace", "new", "work", "--folder", str(stage.place))
    stage.finish(stage.start(wrapped=False))
    file = session_file(stage.agent, stage.home)
    session = session_id(stage.agent, file)
    stage.is_wrapped = False
    SHORTENS[stage.agent](stage, session)
    stage.is_wrapped = True
    stage.helix("conversation", "import", "-w", "work", str(file))
    stage.work.begin(stage.steps)
    words = "MARK-behind-it"
    stage.finish(stage.start(given=_resume(stage.agent, session, words)))
    if not stage.work.compacted:
        stage.wrong.append("it did not shorten its history")
    listed = json.loads(stage.helix("conversation", "list", "-w", "work", "--json"))
    if len(listed) != 1:
        stage.wrong.append(f"it is {len(listed)} conversations")
    shown = "".join(stage.helix("conversation", "show", "-w", "work", row["id"]) for row in listed)
    for number in range(1, stage.steps + 1):
        if f"echo step {number}" not in shown:
            stage.wrong.append(f"step {number}, before its summary, is not in the conversation")
    if words not in stage.helix("conversation", "search", "-w", "work", words, "--json"):
        stage.wrong.append("what was said behind it was not recorded")


def _resume(agent: str, session: str, words: str) -> list[str]:
    return [one.format(session=session, words=words) for one in RESUMES[agent]]


def _shorten_by_words(stage: Stage, session: str) -> None:
    given = _resume(stage.agent, session, "/compact")
    stage.finish(stage.start("--upstream", stage.provider.url, given=given))


def _shorten_codex(stage: Stage, session: str) -> None:
    """Its command is in its window, and in its protocol for other programs. There, sessions of its
    usual provider are paid only if it is signed in.
    """
    _sign_codex_in(stage)
    requests = (
        *CODEX_BEGINS,
        {"id": 2, "method": "thread/resume", "params": {"threadId": session}},
        {"id": 3, "method": "thread/compact/start", "params": {"threadId": session}},
    )
    _tell_by_lines(stage, CODEX_SERVER, requests, '"method":"turn/completed"')


def _sign_codex_in(stage: Stage) -> None:
    sign_in = {"auth_mode": "apikey", "OPENAI_API_KEY": KEY}
    stage.write(".codex/auth.json", json.dumps(sign_in))


def _fork_codex(stage: Stage, session: str) -> str:
    """The id of the fork. `codex exec` makes none."""
    requests = (
        *CODEX_BEGINS,
        {"id": 2, "method": "thread/fork", "params": {"threadId": session}},
    )
    answer = _tell_by_lines(stage, CODEX_SERVER, requests, '"id":2')
    return str(json.loads(answer)["result"]["thread"]["id"])


def _shorten_pi(stage: Stage, session: str) -> None:
    given = [*BEGINS["pi"][:-2], "--mode", "rpc", "--session", session]
    _tell_by_lines(stage, given, ({"id": "1", "type": "compact"},), '"type":"response"')


def _tell_by_lines(
    stage: Stage, given: Sequence[str], requests: Sequence[Mapping[str, Any]], last: str
) -> str:
    """Write each request, and the next when it was answered; then wait for a line with these words,
    and return it.
    """
    process = stage.start("--upstream", stage.provider.url, given=given, stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for request in requests:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        if "id" in request:
            line = next(one for one in process.stdout if json.loads(one).get("id") == request["id"])
    if last not in line:
        line = next(one for one in process.stdout if last in one)
    process.stdin.close()
    process.stdin = None
    stage.finish(process)
    return line


def _shorten_opencode(stage: Stage, session: str) -> None:
    """Its command is in its window, and in its server's interface."""
    upstream = ("--upstream", stage.provider.url)
    process = stage.start(*upstream, given=["serve", "--port", "0"])
    assert process.stdout is not None
    url = next(line.split()[-1] for line in process.stdout if "listening on" in line)
    model = {"providerID": "anthropic", "modelID": "claude-sonnet-4-5"}
    request = urllib.request.Request(  # noqa: S310 -- its own address
        f"{url}/session/{session}/summarize?directory={stage.place}",
        json.dumps(model).encode(),
        {"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=LONGEST).close()  # noqa: S310 -- its own address
    process.terminate()
    code = -signal.SIGTERM
    if stage.is_wrapped:
        code = 128 + signal.SIGTERM
    stage.finish(process, code=code)


class Typing:
    """Somebody at a terminal with an agent's window in it."""

    def __init__(self, terminal: int) -> None:
        self.heard = b""
        self._terminal = terminal

    def hear(self, is_over: Callable[[], bool], seconds: float = 120.0) -> bool:
        """Read what the window shows, and answer what it asks the terminal. Whether it came so far."""
        end = time.monotonic() + seconds
        while not is_over():
            if time.monotonic() > end:
                return False
            if not select.select([self._terminal], [], [], 0.1)[0]:
                continue
            try:
                shown = os.read(self._terminal, 65_536)
            except OSError:  # It has ended.
                return is_over()
            self.heard += shown
            for question, answer in ANSWERS_OF_TERMINAL.items():
                if question in shown:
                    os.write(self._terminal, answer)
        return True

    def type_line(self, words: str) -> None:
        """A return that comes with the words would count as pasted."""
        for letter in words:
            os.write(self._terminal, letter.encode())
            self.hear(lambda: False, 0.05)
        self.hear(lambda: False, 1.5)
        os.write(self._terminal, b"\r")


def in_terminal(its: int) -> dict[str, Any]:
    """How a process is started in a terminal. `its`: the end that it gets."""
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    return {
        "stdin": its,
        "stdout": its,
        "stderr": its,
        "start_new_session": True,
        "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    }


def _compress_in_terminal(stage: Stage, words: str) -> None:
    """Gemini CLI knows its command only in its window, and goes on only there. It keeps a summary that
    is shorter than what the provider has counted.
    """
    stage.provider.usage = lambda asked: {"input": len(asked.raw) // 4, "read": 0, "write": 0}
    stage.write(".gemini/trustedFolders.json", json.dumps({str(stage.place): "TRUST_FOLDER"}))
    ours, its = pty.openpty()
    process = stage.start(
        "--upstream",
        stage.provider.url,
        given=["--yolo", "--skip-trust"],
        own={"TERM": "xterm-256color"},
        **in_terminal(its),
    )
    os.close(its)
    typing = Typing(ours)
    ends = stage.steps
    stages: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("do the work", lambda: stage.work.done > ends),
        ("/compress", lambda: stage.work.compacted > 0),
        (words, lambda: any(words.encode() in asked.raw for asked in stage.provider.asked)),
    )
    if not typing.hear(lambda: b"Type your message" in typing.heard):
        stage.wrong.append("its window did not come")
    for line, is_over in stages:
        typing.hear(lambda: False, 4.0)
        typing.type_line(line)
        if not typing.hear(is_over):
            stage.wrong.append(f"nothing came of {line!r}")
    typing.hear(lambda: False, 4.0)
    typing.type_line("/quit")
    typing.hear(lambda: process.poll() is not None)
    if process.wait(LONGEST):
        stage.wrong.append(f"exit {process.returncode}")
    os.close(ours)


SHORTENS: Mapping[str, Callable[[Stage, str], None]] = {
    "claude": _shorten_by_words,
    "codex": _shorten_codex,
    "opencode": _shorten_opencode,
    "pi": _shorten_pi,
}


class WorkWithServer(Work):
    """Its model asks the agent's own MCP client for a text by its hash, once the agent offers that."""

    digest = ""
    asked_server = False
    searches = 0

    def _step(self, text: str, names: Sequence[str], shell: str) -> Sequence[Block]:
        tool = next((name for name in names if HIDDEN in name and name != HIDDEN), "")
        if tool and not self.asked_server:
            self.asked_server = True
            return [Says("I need it"), Calls(tool, {"sha256": self.digest})]
        if "ToolSearch" in names and not self.asked_server and self.searches < MOST_SEARCHES:
            self.searches += 1  # Its servers may be starting.
            return [Calls("ToolSearch", {"query": "recall_cached_content", "max_results": 5})]
        return super()._step(text, names, shell)


def uses_our_mcp_server(stage: Stage) -> None:
    """The agent starts the workspace's MCP server itself, before it asks its model."""
    known_text = "".join(f"KNOWN line {number}\n" for number in range(20))
    stage.write("known.txt", known_text)
    stage.helix("workspace", "new", "Work", "--folder", str(stage.place))
    stage.helix("cache", "put", "-w", "Work", str(stage.home / "known.txt"))
    client = {"claude": "claude-code"}.get(stage.agent, stage.agent)
    stage.helix("mcp", "install", "-w", "Work", "--client", client, "--write")
    if stage.agent == "codex":  # `codex exec` does not wait for servers unless they are required.
        settings = stage.home / ".codex/config.toml"
        settings.write_text(f"{settings.read_text('utf-8')}required = true\n", "utf-8")
    if stage.agent == "gemini":  # Only in a folder that its user trusts it starts servers.
        stage.write(".gemini/trustedFolders.json", json.dumps({str(stage.place): "TRUST_FOLDER"}))
    work = WorkWithServer(stage.agent, stage.steps)
    work.digest = hashlib.sha256(known_text.encode()).hexdigest()
    work.begin(stage.steps)
    stage.work = work
    stage.provider.usage = work.usage
    told = stage.finish(stage.start("--upstream", stage.provider.url))
    if not any(b"KNOWN line 19" in asked.raw for asked in stage.provider.asked):
        stage.wrong.append(f"no text came from the server; asked: {work.asked_server}")
    if "not recorded" in told:
        stage.wrong.append(told.strip().splitlines()[-1])


def behind_a_proxy(stage: Stage) -> None:
    """The provider is the proxy: a request for another host comes to it whole."""
    proxies = dict.fromkeys(
        ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"), stage.provider.url
    )
    stage.finish(stage.start("--upstream", "http://llm.company.example", own=proxies))
    if not all(
        asked.path.startswith("http://llm.company.example/") for asked in stage.provider.asked
    ):
        stage.wrong.append("a request did not go through the proxy")


def signed(stage: Stage) -> None:
    stage.write(*SIGNED[stage.agent])
    if "Nothing was sent" not in stage.finish(stage.start(), code=1):
        stage.wrong.append("nothing says why")
    if stage.provider.asked:
        stage.wrong.append("something was sent")


def two_at_once(stage: Stage) -> None:
    """Another wrap with another upstream begins first, and ends while this one works."""
    other = Work(stage.agent, 2)
    other.begin(2)
    with Provider(other.script, usage=other.usage) as second:
        first = stage.start("--upstream", second.url)
        mine = stage.start(
            "--upstream", stage.provider.url, own={"HOME": str(stage.home / "second")}
        )
        stage.finish(first)
        stage.finish(mine)
        if not second.asked:
            stage.wrong.append("the other wrap was not served")


def gateway_killed(stage: Stage) -> None:
    """While a request has no answer yet. Behind half an answer Gemini CLI ends without
    a gateway, too.
    """
    killed = threading.Event()
    plain_script = stage.script

    def wait_for_kill(asked: Asked) -> list[Block] | int:
        said = plain_script(asked)
        if stage.halfway.is_set():
            killed.wait(LONGEST)
        return said

    stage.provider.script = wait_for_kill
    process = stage.start("--upstream", stage.provider.url)
    stage.halfway.wait(LONGEST)
    os.kill(status(stage.home / "helix")["gateway"], signal.SIGKILL)
    killed.set()
    _check_that_estimate_is_said(stage, stage.finish(process))


def _check_that_estimate_is_said(stage: Stage, told: str) -> None:
    """The provider has billed the request that the killed gateway had sent."""
    if ESTIMATE_SAID not in told:
        last_line = told.strip().rpartition("\n")[2]
        stage.wrong.append(f"the last line lacks what was asked for in vain: {last_line}")


def gateway_killed_in_a_stream(stage: Stage) -> None:
    """Behind the beginning of an answer, which the agent has seen."""
    begun = threading.Event()
    killed = threading.Event()

    def wait_for_kill() -> None:
        if stage.halfway.is_set() and not killed.is_set():
            begun.set()
            killed.wait(LONGEST)

    stage.provider.in_stream = wait_for_kill
    process = stage.start("--upstream", stage.provider.url)
    begun.wait(LONGEST)
    os.kill(status(stage.home / "helix")["gateway"], signal.SIGKILL)
    killed.set()
    _check_that_estimate_is_said(stage, stage.finish(process))


def provider_fails(stage: Stage) -> None:
    """Refuses with 429, 500 and 529, is late, and cuts its streams, also behind a
    recall; the work comes to the same end as without the gateway.
    """
    ends: list[Mapping[str, Sequence[str]]] = []
    with staged(stage.agent, stage.steps, stage.seed, stage.hidden_faults) as direct:
        for one in (direct, stage):
            one.work = WorkWithFiles(stage.agent, stage.steps)
            one.work.begin(stage.steps)
            one.provider.usage = one.work.usage
            one.provider.script = failing = FailingProvider(
                one.work, stage.seed, stage.hidden_faults
            )
            one.write_settings(one.provider.url)
            began = time.monotonic()
            # As `wrap` sets it: otherwise Claude Code shows its model other tools at an
            # address that is not Anthropic's.
            process = one.start(own={"ENABLE_TOOL_SEARCH": "true"}, wrapped=one is stage)
            printed = one.finish(process, errors=False)
            ends.append(end_of_run(stage.agent, one.home, one.place, printed))
            words = f"{one.work.done} steps, {one.work.recalls} recalls, {dict(failing.kinds)}"
            way = "wrapped" if one is stage else "direct"
            sys.stdout.write(f"{stage.agent}, {way}: {words} ({time.monotonic() - began:.0f} s)\n")
        direct.check_work(stage.steps)
        stage.wrong += [f"without the gateway: {one}" for one in direct.wrong]
        stage.wrong += differences_of_ends(*ends)


def terminated(stage: Stage) -> None:
    process = stage.start("--upstream", stage.provider.url)
    _ends_in_the_middle(stage, process, lambda: process.send_signal(signal.SIGTERM))


def interrupted(stage: Stage) -> None:
    """Ctrl-C in a terminal: the whole group of processes gets it, and Codex and Gemini CLI
    may have to be told twice.
    """
    process = stage.start("--upstream", stage.provider.url, start_new_session=True)

    def interrupt() -> None:
        while process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(3)

    _ends_in_the_middle(stage, process, interrupt)


def wrap_killed(stage: Stage) -> None:
    process = stage.start("--upstream", stage.provider.url)
    _ends_in_the_middle(stage, process, process.kill)


def terminal_closed(stage: Stage) -> None:
    """A real terminal, whose window is closed."""
    ours, its = pty.openpty()
    more: dict[str, Any] = {"stdin": its, "stdout": its, "stderr": its, "start_new_session": True}
    process = stage.start(
        "--upstream",
        stage.provider.url,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        **more,
    )
    os.close(its)
    reading = concurrency.start_thread(lambda: _read_until_end(ours), name="terminal", daemon=True)
    _ends_in_the_middle(stage, process, lambda: os.close(ours))
    reading.join(1)


def _read_until_end(terminal: int) -> None:
    with suppress(OSError):
        while select.select([terminal], [], [], 0.2)[0] == [] or os.read(terminal, 65_536):
            pass


def _ends_in_the_middle(
    stage: Stage, process: subprocess.Popen[str], end: Callable[[], None]
) -> None:
    """Nothing of it is left then."""
    stage.halfway.wait(LONGEST)
    told = status(stage.home / "helix")
    end()
    process.wait(60)
    stage.work.done = max(stage.work.done, stage.steps)
    wait_until(lambda: is_gone(told["pid"]) and is_gone(told["gateway"]))
    try:
        wait_until(lambda: not _processes_of(stage.home))
    except AssertionError:
        left = [Path(f"/proc/{one}/cmdline").read_bytes()[:80] for one in _processes_of(stage.home)]
        stage.wrong.append(f"processes are left: {left}")


def _processes_of(home: Path) -> list[int]:
    """Whose home it is, however they are named."""
    found = []
    for each in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"HOME={home}".encode() in each.read_bytes().split(b"\0"):
                found.append(int(each.parent.name))
    return found


def goes_on(stage: Stage) -> None:
    """A second process goes on with the conversation, at once behind the first."""
    stage.finish(stage.start("--upstream", stage.provider.url))
    before = len(stage.provider.asked)
    stage.work.begin(stage.steps)
    stage.finish(stage.start("--upstream", stage.provider.url, goes_on=True))
    if not any(b"step 1" in asked.raw for asked in stage.provider.asked[before:]):
        stage.wrong.append("it did not go on")


def forked(stage: Stage) -> None:
    """A second process goes on in a fork, and a third in the first session. Neither has what the
    other was told, and both are recorded.
    """
    upstream = ("--upstream", stage.provider.url)
    stage.finish(stage.start(*upstream))
    session = session_id(stage.agent, session_file(stage.agent, stage.home))
    marks = ("MARK-in-the-fork", "MARK-in-the-first")
    for mark, other_mark in (marks, reversed(marks)):
        if mark == "MARK-in-the-first":
            given = _resume(stage.agent, session, mark)
        elif stage.agent == "codex":
            given = _resume(stage.agent, _fork_codex(stage, session), mark)
        else:
            given = [one.format(session=session, words=mark) for one in FORKS[stage.agent]]
        before = len(stage.provider.asked)
        stage.work.begin(stage.steps)
        stage.finish(stage.start(*upstream, given=given))
        bodies = [asked.raw for asked in stage.provider.asked[before:]]
        if not any(mark.encode() in body and b"step 1" in body for body in bodies):
            stage.wrong.append(f"{mark}: its history is missing")
        if any(other_mark.encode() in body for body in bodies):
            stage.wrong.append(f"{mark}: it has {other_mark}, too")
        if mark not in stage.helix("conversation", "search", "-w", "work", mark, "--json"):
            stage.wrong.append(f"{mark}: it was not recorded")


def begun_without_wrap(stage: Stage) -> None:
    """A session that was begun without `wrap` goes on with it, and then without it again."""
    stage.write_settings(stage.provider.url)
    if stage.agent == "codex":
        # Its usual provider: another one's address in its settings is the same with and without.
        stage.write(".codex/config.toml", f'openai_base_url = "{stage.provider.url}/v1"\n')
        _sign_codex_in(stage)
    stage.finish(stage.start(wrapped=False))
    for is_wrapped in (True, False):
        before = len(stage.provider.asked)
        stage.work.begin(stage.steps)
        done = stage.work.done
        stage.finish(stage.start(wrapped=is_wrapped, goes_on=True))
        way = "with wrap" if is_wrapped else "without it"
        if stage.work.done <= done:
            stage.wrong.append(f"it did not go on {way}")
        if not any(b"step 1" in asked.raw for asked in stage.provider.asked[before:]):
            stage.wrong.append(f"its history is missing {way}")


ALL = tuple(PACKAGES)
SITUATIONS: Mapping[str, tuple[Callable[[Stage], None], tuple[str, ...]]] = {
    "plain": (plain, ALL),
    "in the shell": (in_the_shell, tuple(VARIABLES)),
    "in settings": (in_settings, ALL),
    "own key header": (own_key_header, ALL),
    "proxy": (behind_a_proxy, ALL),
    "certificate": (behind_an_opening_proxy, ALL),
    "subscription": (subscription, tuple(SIGNED_IN)),
    "own compaction": (shortens_its_own, ("claude", "codex", "opencode", "pi")),
    "own command for a compaction": (shortens_by_command, (*SHORTENS, "gemini")),
    "compaction without wrap": (shortened_without_wrap, tuple(SHORTENS)),
    "MCP": (uses_our_mcp_server, ALL),
    "signed": (signed, tuple(SIGNED)),
    "two at once": (two_at_once, ALL),
    "gateway killed": (gateway_killed, ALL),
    "gateway killed in a stream": (
        gateway_killed_in_a_stream,
        tuple(one for one in ALL if one != "gemini"),
    ),
    "provider fails": (provider_fails, ALL),
    "SIGTERM": (terminated, ALL),
    "SIGINT": (interrupted, ALL),
    "wrap killed": (wrap_killed, ALL),
    "terminal closed": (terminal_closed, ALL),
    "goes on": (goes_on, tuple(GOES_ON)),
    "forked": (forked, (*FORKS, "codex")),
    "begun without wrap": (begun_without_wrap, tuple(GOES_ON)),
}


@contextmanager
def staged(agent: str, steps: int, *told: Any) -> Iterator[Stage]:
    work = Work(agent, steps)
    work.begin(steps)
    work._delegates = False
    with ExitStack() as lasting:
        home = Path(lasting.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        provider, elsewhere = (
            lasting.enter_context(Provider(work.script, usage=work.usage)) for _ in range(2)
        )
        stage = Stage(agent, steps, home, provider, elsewhere, work, *told)
        provider.script = stage.script
        (home / "work").mkdir()
        (home / "second").mkdir()
        if agent == "gemini":
            for one in (home, home / "second"):
                text = json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}})
                (one / ".gemini").mkdir()
                (one / ".gemini" / "settings.json").write_text(text, "utf-8")
        yield stage


def _check_cost(stage: Stage) -> None:
    """The workspace may have been made by the trial."""
    printed = stage.helix("cost", "-w", "work", "--json") or stage.helix(
        "cost", "-w", "Work", "--json"
    )
    in_cost = sum(day["tokens"] for day in json.loads(printed)["days"])
    if in_cost != stage.provider.paid_tokens:
        stage.wrong.append(f"cost has {in_cost} tokens of {stage.provider.paid_tokens}")


def _check_keys(stage: Stage) -> None:
    """Each request to a model has the user's key."""
    asked_models = [asked for asked in stage.provider.asked if asked.protocol]
    without_key = [asked for asked in asked_models if not _has_key(asked)]
    if not asked_models or without_key:
        stage.wrong.append(
            f"the key did not arrive with {len(without_key)} of {len(asked_models)} requests"
        )


def _has_key(asked: Asked) -> bool:
    return any(KEY in asked.headers.get(name, "") for name in HTTP_KEYS)


def try_cell(agent: str, situation: str, steps: int, *told: Any) -> list[str]:
    """What was wrong."""
    with staged(agent, steps, *told) as stage:
        SITUATIONS[situation][0](stage)
        if situation != "signed":
            stage.check_work(steps)
            if situation != "subscription":
                _check_keys(stage)
        if situation not in NOT_ALL_PAID:
            _check_cost(stage)
        if stage.elsewhere.asked:
            stage.wrong.append("requests went elsewhere")
        # Some agents ask on their own what a strict provider refuses, such as Gemini
        # CLI whether it goes in circles.
        refused = [
            why for why, asked in stage.provider.refused_requests if HIDDEN.encode() in asked.raw
        ]
        stage.wrong += [f"refused: {why}" for why in refused[:1]]
        stage.wrong += [f"{name} arrived" for asked in stage.provider.asked[:1] for name in asked.headers if name.startswith("x-helix")]  # fmt: skip
        return stage.wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--agent", choices=ALL)
    parser.add_argument("--situation", choices=tuple(SITUATIONS))
    parser.add_argument("--seed", default="")
    parser.add_argument("--hidden-faults", type=float, default=SHARE)
    given = parser.parse_args()

    def trials(found: Counter[str]) -> None:
        for situation, (_, agents) in SITUATIONS.items():
            for agent in agents:
                if given.situation in (None, situation) and given.agent in (None, agent):
                    began = time.monotonic()
                    wrong = try_cell(agent, situation, given.steps, given.seed, given.hidden_faults)
                    found["cells"] += 1
                    found.update(f"LOST {agent}, {situation}: {one}" for one in wrong)
                    sys.stdout.write(
                        f"{agent}, {situation}: {'; '.join(wrong) or 'right'} ({time.monotonic() - began:.0f} s)\n"
                    )
                    sys.stdout.flush()

    return report("wrap matrix", 0, trials)


if __name__ == "__main__":
    sys.exit(main())
