"""Agents that `wrap` knows by their command and protocol only, each for twenty steps at
a scripted provider.

python -m tests.benchmarks.gateway_other_agents FOLDER [--agent NAME] [--steps 20]
    [--situation NAME]

FOLDER holds each agent's installation in a folder of its name: from npm, or an
environment of Python. What an agent is given is what its manual says of a provider of
one's own. An agent counts as seen when it made all its steps, nothing of ours was
refused and no hidden call was shown to it.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from helix_desktop import concurrency
from tests.benchmarks import gateway_clients
from tests.benchmarks.gateway_clients import HIDDEN, KEY, SUMMARY_TEXT, Work
from tests.faults.agent_ends import FailingProvider, WorkWithFiles
from tests.faults.wrap_matrix import ESTIMATE_SAID
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says
from tests.resident.test_resident_process import status, wait_until

LONGEST = 300.0
USUAL_WORDS = "do the work"
MCP_SETTINGS = {
    "qwen": ".qwen/settings.json",
    "copilot": ".copilot/mcp-config.json",
    "cline": ".cline/data/settings/cline_mcp_settings.json",
}
MORE_OF_MCP_SERVER: Mapping[str, Mapping[str, object]] = {
    "copilot": {"type": "local", "tools": ["*"]}
}
DEFERRED = re.compile(rf"mcp__[\w.-]+?__{HIDDEN}\b")
TOOL_OF_SERVER = re.compile(rf"[\w.-]+__{HIDDEN}\b")
MOST_SEARCHES = 8
COMPACTS_ITSELF = ("copilot", "cline")
COMPACTS_BY_COMMAND = {"qwen": "/compress", "copilot": "/compact"}
SESSION_FILES = {"qwen": ".qwen/projects/*/chats/*.jsonl"}


@dataclass(frozen=True)
class OtherAgent:
    """`command`: what `--command` is given, or empty for an agent that is declared. `files`: settings in the home, in which
    {url} is the gateway's address when `wrap` cannot set one. `by_words`: it has no
    tools of the protocol, and its steps are words. `goes_on`: what it is given to go on with its last
    session, and `forks`: in a fork of it. `company`: settings with a header that
    a company wants, where {url} is the company's address; `company_environment`: variables.
    """

    name: str
    command: str
    protocol: str
    given: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    before: tuple[tuple[str, ...], ...] = ()
    by_words: bool = False
    goes_on: tuple[str, ...] = ()
    forks: tuple[str, ...] = ()
    company: dict[str, str] = field(default_factory=dict)
    company_environment: dict[str, str] = field(default_factory=dict)
    is_refused_behind_proxy: bool = False


MODEL = "gpt-5"
COMPANY_HEADER = "x-company-tenant"
COMPANY_HEADERS = {COMPANY_HEADER: "yes"}
CLINE_SETTINGS = {
    "version": 1,
    "lastUsedProvider": "openai-compatible",
    "providers": {
        "openai-compatible": {
            "settings": {"provider": "openai-compatible", "headers": COMPANY_HEADERS},
            "updatedAt": "2026-11-28T00:00:00.000Z",
            "tokenSource": "manual",
        }
    },
}
AIDER_SETTINGS = [
    {"name": f"openai/{MODEL}", "extra_params": {"extra_headers": COMPANY_HEADERS}},
]
QWEN_SETTINGS = {
    "security": {"auth": {"selectedType": "openai", "baseUrl": "{url}"}},
    "model": {"generationConfig": {"customHeaders": COMPANY_HEADERS}},
    "$version": 3,
}
AGENTS = (
    OtherAgent(
        "qwen", "", "", ("--yolo", "-p", USUAL_WORDS),
        {"OPENAI_MODEL": MODEL},
        {".qwen/settings.json": json.dumps({"security": {"auth": {"selectedType": "openai"}}, "$version": 3})},
        goes_on=("--continue",),
        forks=("--continue", "--fork-session"),
        company={".qwen/settings.json": json.dumps(QWEN_SETTINGS)},
        is_refused_behind_proxy=True,
    ),
    OtherAgent(
        "copilot", "env COPILOT_PROVIDER_BASE_URL={url} copilot", "openai", ("-p", USUAL_WORDS, "--allow-all-tools"),
        {"COPILOT_PROVIDER_API_KEY": KEY, "COPILOT_PROVIDER_TYPE": "openai", "COPILOT_MODEL": MODEL, "COPILOT_OFFLINE": "true"},
        goes_on=("--continue",),
        company_environment={"OPENAI_BASE_URL": "{url}", "COPILOT_PROVIDER_HEADERS": f"{COMPANY_HEADER}: yes"},
    ),
    OtherAgent(
        "cline", "cline", "openai", ("-P", "openai-compatible", "-m", MODEL, USUAL_WORDS),
        before=(("cline", "auth", "-p", "openai", "-k", KEY, "-m", MODEL, "-b", "{url}"),),
        company={".cline/data/settings/providers.json": json.dumps(CLINE_SETTINGS)},
        company_environment={"OPENAI_BASE_URL": "{url}"},
    ),
    OtherAgent("aider", "aider", "openai", ("--model", f"openai/{MODEL}", "--yes-always", "--no-git", "--no-check-update", "--no-show-model-warnings", "--analytics-disable"), by_words=True, goes_on=("--restore-chat-history",),
        company={".aider.model.settings.yml": json.dumps(AIDER_SETTINGS)},
        company_environment={"OPENAI_BASE_URL": "{url}"},
    ),
    OtherAgent(
        "openhands", "openhands --headless --override-with-envs --json --always-approve", "openai", ("-t", USUAL_WORDS),
        {"LLM_API_KEY": KEY, "LLM_MODEL": "openai/gpt-4.1", "OPENHANDS_SUPPRESS_BANNER": "1"},
    ),
    OtherAgent("droid", "droid exec --auto high", "openai", (USUAL_WORDS,), {"FACTORY_API_KEY": "fk-planted"}),
    OtherAgent("amp", "amp -x", "anthropic", (USUAL_WORDS,), {"AMP_API_KEY": "planted"}),
    OtherAgent("crush", "crush run", "openai", (USUAL_WORDS,)),
)  # fmt: skip


class OtherWork(Work):
    """As `Work`; an agent without tools is told that each step is done."""

    def script(self, asked: Asked) -> Sequence[Block]:
        if not asked.protocol:
            return [Says("{}")]
        own = [name for name in gateway_clients._names(asked.body) if "cached_content" not in name]
        if self.name == "aider" and not set(own) - {"recall_history"}:
            self.done += 1
            return [
                Says(
                    f"Step {self.done} is done. "
                    + "The numbers were counted and nothing is left. " * 120
                )
            ]
        return super().script(asked)


class OtherWorkWithFiles(WorkWithFiles):
    """Each step appends to a file of its own, so that the files say what was done how often."""

    def script(self, asked: Asked) -> Sequence[Block]:
        if not asked.protocol:
            return [Says("{}")]
        return super().script(asked)


@dataclass
class Trial:
    """What came of one agent. `wrong`: what must not be. `last_line`: `wrap`'s own."""

    work: Work
    provider: Provider
    wrong: list[str] = field(default_factory=list)
    last_line: str = ""


def try_agent(folder: Path, agent: OtherAgent, steps: int, situation: str = "plain") -> Trial:
    """Run one agent through `wrap`, in one of the situations."""
    work = OtherWork(agent.name, steps)
    work.begin(steps)
    work._delegates = False
    with ExitStack() as lasting:
        home = lasting.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        provider = Provider(work.script, usage=work.usage, strict=False)
        trial = Trial(work, lasting.enter_context(provider))
        Path(home, "work").mkdir()
        for name, text in agent.files.items():
            Path(home, name).parent.mkdir(parents=True, exist_ok=True)
            Path(home, name).write_text(text, "utf-8")
        run = Run(folder, agent, home, steps, trial)
        SITUATIONS[situation](run)
        # The resident ends a moment after its last agent.
        wait_until(lambda: not _processes_of(home, ours=True))
        for left in _processes_of(home, ours=False):
            os.kill(left, signal.SIGKILL)
        return trial


@dataclass(frozen=True)
class Run:
    """What a situation needs to start the agent."""

    folder: Path
    agent: OtherAgent
    home: str
    steps: int
    trial: Trial

    def start(
        self,
        upstream: str,
        *,
        own: Mapping[str, str] = MappingProxyType({}),
        given: Sequence[str] = (),
        words: str = "",
        is_wrapped: bool = True,
    ) -> subprocess.Popen[str]:
        """`own`: variables; `given`: what stands before its usual arguments; `words`: instead of the
        usual ones. Not wrapped, it asks the upstream itself.
        """
        variables = {**_environment(self.folder, self.agent, self.home), **own}
        arguments = [*given, *self.agent.given]
        if words:
            arguments[arguments.index(USUAL_WORDS)] = words
        command = _wrap_command(self.agent, self.home, upstream, arguments)
        if not is_wrapped:
            url = f"{upstream}/v1"
            command = [word.replace("{url}", url) for word in _agent_command(self.agent)]
            command += arguments
            variables["OPENAI_BASE_URL"] = variables["OPENAI_API_BASE"] = url
        return subprocess.Popen(
            command,
            cwd=Path(self.home, "work"),
            env=variables,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )


def _plain(run: Run) -> None:
    with run.start(run.trial.provider.url) as process:
        _run_to_its_end(run.trial, process, run.agent, run.steps)


def _interrupted(run: Run) -> None:
    with run.start(run.trial.provider.url) as process:
        _end_in_the_middle(run.trial, process, run.steps, "SIGINT")


def _terminated(run: Run) -> None:
    with run.start(run.trial.provider.url) as process:
        _end_in_the_middle(run.trial, process, run.steps, "SIGTERM")


def _behind_a_proxy(run: Run) -> None:
    """The provider is the proxy. A request for another host than the provider's comes to it, too:
    one for the gateway, with the key in it, must not.
    """
    trial = run.trial
    names = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy")
    own = dict.fromkeys(names, trial.provider.url)
    host = "http://llm.company.example/"
    with run.start(host, own=own) as process:
        if run.agent.is_refused_behind_proxy:
            _check_refusal(trial, process)
            return
        _run_to_its_end(trial, process, run.agent, run.steps)
    for asked in trial.provider.asked:
        if asked.protocol and not asked.path.startswith(host):
            trial.wrong.append(f"a request did not go through the proxy: {asked.path[:60]}")
        if not asked.protocol and "127.0.0.1" in asked.path:
            trial.wrong.append(f"the proxy was asked for {asked.path[:60]}")


def _check_refusal(trial: Trial, process: subprocess.Popen[str]) -> None:
    _, err = process.communicate(timeout=LONGEST)
    trial.last_line = err.strip().rpartition("\n")[2]
    if not process.returncode or "Nothing was sent" not in err:
        trial.wrong.append(f"it was not refused: exit {process.returncode}: {err[-500:]}")
    if trial.provider.asked:
        trial.wrong.append("something was sent")


def _gateway_killed(run: Run) -> None:
    """While a request has no answer yet."""
    trial = run.trial
    is_halfway = threading.Event()
    is_killed = threading.Event()

    def wait_for_kill(asked: Asked) -> Sequence[Block]:
        said = trial.work.script(asked)
        if trial.work.done > run.steps // 2:
            is_halfway.set()
            is_killed.wait(LONGEST)
        return said

    trial.provider.script = wait_for_kill
    with run.start(trial.provider.url) as process:

        def kill() -> None:
            is_halfway.wait(LONGEST)
            os.kill(status(Path(run.home, "helix"))["gateway"], signal.SIGKILL)
            is_killed.set()

        killing = concurrency.start_thread(kill, name="kill", daemon=True)
        _run_to_its_end(trial, process, run.agent, run.steps)
        killing.join(1)
    if ESTIMATE_SAID not in trial.last_line:
        trial.wrong.append(f"the last line lacks what was asked for in vain: {trial.last_line}")


def _in_settings(run: Run) -> None:
    """The agent's own settings have a company's address and a header that the company wants."""
    trial = run.trial
    url = f"{trial.provider.url}/v1"
    for name, text in run.agent.company.items():
        file = Path(run.home, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("{url}", url), "utf-8")
    own = {
        name: value.replace("{url}", url) for name, value in run.agent.company_environment.items()
    }
    with run.start("", own=own) as process:
        _run_to_its_end(trial, process, run.agent, run.steps)
    asked_with_protocol = [asked for asked in trial.provider.asked if asked.protocol]
    missing = [asked for asked in asked_with_protocol if asked.headers.get(COMPANY_HEADER) != "yes"]
    if missing:
        trial.wrong.append(
            f"the company's header is missing in {len(missing)} of {len(asked_with_protocol)} requests"
        )


def _goes_on(run: Run) -> None:
    """A second process goes on with the session of the first."""
    _plain(run)
    _go_on(run, run.agent.goes_on)


def _forked(run: Run) -> None:
    """A second process goes on in a fork, and a third in the first session, without what the fork
    was told.
    """
    trial = run.trial
    _plain(run)
    first_id = _session_of(run)
    fork_words = "MARK-in-the-fork"
    _go_on(run, run.agent.forks, words=fork_words)
    if _session_of(run) == first_id:
        trial.wrong.append("it made no fork")
    before = len(trial.provider.asked)
    _go_on(run, ("--resume", first_id))
    if any(fork_words.encode() in asked.raw for asked in trial.provider.asked[before:]):
        trial.wrong.append("the first session has what the fork was told")


def _session_of(run: Run) -> str:
    """The id of the newest session."""
    files = Path(run.home).glob(SESSION_FILES[run.agent.name])
    newest = max(files, key=lambda file: file.stat().st_mtime)
    return newest.name.partition(".")[0]


def _go_on(run: Run, arguments: Sequence[str], words: str = "") -> None:
    trial = run.trial
    before = len(trial.provider.asked)
    trial.work.begin(run.steps)
    with run.start(trial.provider.url, given=arguments, words=words) as process:
        _run_to_its_end(trial, process, run.agent, trial.work.done + run.steps)
    first_words = b"step 1"
    if run.agent.by_words:
        first_words = b"Step 1 is done"
    if not any(first_words in asked.raw for asked in trial.provider.asked[before:]):
        trial.wrong.append("it did not go on")


def _shortens_by_command(run: Run) -> None:
    """The agent's own command shortens its history, and it goes on behind it: one conversation, in
    which all is paid. Qwen Code shortens nothing that its provider counts as short.
    """
    trial = run.trial
    trial.provider.usage = lambda asked: {"input": len(asked.raw) // 4, "read": 0, "write": 0}
    _plain(run)
    command = COMPACTS_BY_COMMAND[run.agent.name]
    with run.start(trial.provider.url, given=run.agent.goes_on, words=command) as process:
        _run_to_its_end(trial, process, run.agent, run.steps)
    words = "MARK-behind-it"
    trial.work.begin(run.steps)
    with run.start(trial.provider.url, given=run.agent.goes_on, words=words) as process:
        _run_to_its_end(trial, process, run.agent, trial.work.done + run.steps)
    _check_is_one(run, words_behind=words)


def _shortens_its_own(run: Run) -> None:
    """The agent shortens its history itself, as its window is full, and works on."""
    run.trial.work.begin(run.steps, fills=True)
    _plain(run)
    _check_is_one(run)


def _check_is_one(run: Run, words_behind: str = "") -> None:
    """What was shortened is one conversation, in which all is said and paid. `words_behind`: what the
    user said behind the summary.
    """
    trial = run.trial
    if not trial.work.compacted:
        trial.wrong.append("it did not shorten its history")
    bodies = [asked.raw for asked in trial.provider.asked]
    if not any(words_behind.encode() in body and SUMMARY_TEXT.encode() in body for body in bodies):
        trial.wrong.append("its summary is missing")
    listed = json.loads(_run_helix(run, "conversation", "list", "-w", "work", "--json"))
    if len(listed) != 1:
        trial.wrong.append(f"it is {len(listed)} conversations")
    for said in filter(None, (USUAL_WORDS, words_behind)):
        if said not in _run_helix(run, "conversation", "search", "-w", "work", said, "--json"):
            trial.wrong.append(f"{said!r} was not recorded")
    days = json.loads(_run_helix(run, "cost", "-w", "work", "--json"))["days"]
    in_cost = sum(day["tokens"] for day in days)
    if in_cost != trial.provider.paid_tokens:
        trial.wrong.append(f"cost has {in_cost} tokens of {trial.provider.paid_tokens}")


def _provider_fails(run: Run) -> None:
    """Refuses with 429, 500 and 529, is late, and cuts its streams; the files come to the same end as
    without the gateway.
    """
    trial = run.trial
    ends = []
    for is_wrapped in (False, True):
        place = Path(run.home, "work")
        shutil.rmtree(place)
        place.mkdir()
        work: Work = OtherWorkWithFiles(run.agent.name, run.steps)
        if run.agent.by_words:
            work = OtherWork(run.agent.name, run.steps)
        work.begin(run.steps)
        failing = FailingProvider(work, seed="")
        trial.work = work
        trial.provider.script = failing
        with run.start(trial.provider.url, is_wrapped=is_wrapped) as process:
            out, _ = _say_and_wait(trial, process, run.agent, run.steps)
        if HIDDEN in out:
            trial.wrong.append("a hidden call was printed")
        files = sorted(place.glob("*.txt"))
        contents = [f"{file.name}: {file.read_text('utf-8')}" for file in files]
        ends.append([f"exit {process.returncode}", f"{work.done} steps", *contents])
        way = "wrapped" if is_wrapped else "direct"
        print(f"{way}: {ends[-1][:2]}, {len(files)} files, {dict(failing.kinds)}")
    for direct, wrapped in itertools.zip_longest(*ends):
        if direct != wrapped:
            trial.wrong.append(f"{str(direct)[:200]} is with the gateway {str(wrapped)[:200]}")


class WorkWithServer(OtherWork):
    """Its model asks the agent's own MCP client for a text by its hash, once the agent offers that.
    Qwen Code names such tools in a text, and has one to look for them and one to call them.
    """

    digest = ""
    has_asked_server = False
    searches = 0

    def _step(self, text: str, names: Sequence[str], shell: str) -> Sequence[Block]:
        if self.has_asked_server:
            return super()._step(text, names, shell)
        arguments = {"sha256": self.digest}
        tool = next((name for name in names if HIDDEN in name and name != HIDDEN), "")
        if tool:
            self.has_asked_server = True
            return [Says("I need it"), Calls(tool, arguments)]
        deferred = DEFERRED.search(text)
        if deferred and "tool_call" in names:
            self.has_asked_server = True
            call = {"name": deferred[0], "arguments": arguments}
            return [Says("I need it"), Calls("tool_call", call)]
        if self.searches >= MOST_SEARCHES:
            return super()._step(text, names, shell)
        self.searches += 1  # Its servers may be starting.
        if "tool_search" in names:
            return [Calls("tool_search", {"query": f"recall {self.searches}", "max_results": 9})]
        wait = f"sleep 2; echo waited {self.searches}"
        return [Calls(shell, gateway_clients._arguments(shell, wait))]


def _uses_our_mcp_server(run: Run) -> None:
    """The agent starts the workspace's MCP server itself, as `mcp install` says it."""
    trial = run.trial
    known_text = "".join(f"KNOWN line {number}\n" for number in range(20))
    Path(run.home, "known.txt").write_text(known_text, "utf-8")
    _run_helix(run, "workspace", "new", "Work", "--folder", str(Path(run.home, "work")))
    _run_helix(run, "cache", "put", "-w", "Work", str(Path(run.home, "known.txt")))
    # The others have the same settings as Qwen Code, in files of their own.
    shown = _run_helix(run, "mcp", "install", "-w", "Work", "--client", "qwen-code")
    settings = json.loads(shown[shown.index("{") :])
    for server in settings["mcpServers"].values():
        server.update(MORE_OF_MCP_SERVER.get(run.agent.name, {}))
    file = Path(run.home, MCP_SETTINGS[run.agent.name])
    if file.exists():
        settings = {**json.loads(file.read_text("utf-8")), **settings}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(settings), "utf-8")
    work = WorkWithServer(run.agent.name, run.steps)
    work.digest = hashlib.sha256(known_text.encode()).hexdigest()
    work.begin(run.steps)
    work._delegates = False
    trial.work = work
    trial.provider.script = work.script
    with run.start(trial.provider.url) as process:
        _run_to_its_end(trial, process, run.agent, run.steps)
    if not any(b"KNOWN line 19" in asked.raw for asked in trial.provider.asked):
        trial.wrong.append(f"no text came from the server; asked: {work.has_asked_server}")
    if "not recorded" in trial.last_line:
        trial.wrong.append(trial.last_line)


def _run_helix(run: Run, *words: str) -> str:
    """Return what a command of this program prints."""
    command = [sys.executable, "-m", "helix_desktop", "--home", f"{run.home}/helix", *words]
    environment = _environment(run.folder, run.agent, run.home)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout


SITUATIONS: Mapping[str, Callable[[Run], None]] = {
    "MCP": _uses_our_mcp_server,
    "plain": _plain,
    "SIGINT": _interrupted,
    "SIGTERM": _terminated,
    "in settings": _in_settings,
    "proxy": _behind_a_proxy,
    "gateway killed": _gateway_killed,
    "provider fails": _provider_fails,
    "goes on": _goes_on,
    "forked": _forked,
    "own compaction": _shortens_its_own,
    "own command for a compaction": _shortens_by_command,
}


def _say_and_wait(
    trial: Trial, process: subprocess.Popen[str], agent: OtherAgent, steps: int
) -> tuple[str, str]:
    """What it printed until its end, and what on its standard error."""
    typed = None
    if agent.by_words:
        typed = "".join(f"do step {number}\n" for number in range(1, steps + 1)) + "/exit\n"
    try:
        return process.communicate(typed, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        process.terminate()
        trial.wrong.append("it hung")
        return process.communicate()


def _run_to_its_end(
    trial: Trial, process: subprocess.Popen[str], agent: OtherAgent, steps: int
) -> None:
    out, err = _say_and_wait(trial, process, agent, steps)
    if process.returncode:
        trial.wrong.append(f"exit {process.returncode}: {(out + err)[-1500:]}")
    if HIDDEN in TOOL_OF_SERVER.sub("", out):
        trial.wrong.append("a hidden call was printed")
    if "Helix Desktop" in err:
        trial.last_line = err.strip().splitlines()[-1]
    if trial.work.done < steps:
        trial.wrong.append(f"{trial.work.done} of {steps} steps")
    for why, asked in trial.provider.refused_requests:
        if HIDDEN.encode() in asked.raw:
            trial.wrong.append(f"refused: {why}")


def _end_in_the_middle(
    trial: Trial, process: subprocess.Popen[str], steps: int, ended_by: str
) -> None:
    """End it as a terminal or a service does, again and again as an impatient person would."""
    number = signal.Signals[ended_by]
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.write("do step 1\n" * steps)  # For the agent that reads words.
            process.stdin.flush()
    reading = concurrency.start_thread(process.communicate, name="hear", daemon=True)
    wait_until(lambda: trial.work.done >= steps // 2 or process.poll() is not None)
    for _ in range(20):
        if process.poll() is not None:
            break
        with suppress(ProcessLookupError):
            if ended_by == "SIGINT":
                os.killpg(process.pid, number)  # All that the terminal runs get it.
            else:
                process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(3)
    if process.poll() is None:
        trial.wrong.append(f"{ended_by} does not end it")
        process.kill()
    reading.join(10)


def _agent_command(agent: OtherAgent) -> list[str]:
    """The command line that starts it, with {url} where it needs an address."""
    if not agent.before:
        return shlex.split(agent.command or agent.name)
    parts = [shlex.join(before) for before in agent.before]
    parts.append(agent.command)
    line = " && ".join(parts)
    return ["sh", "-c", f'{line} "$@"', agent.name]


def _wrap_command(
    agent: OtherAgent, home: str, upstream: str, arguments: Sequence[str]
) -> list[str]:
    program = [sys.executable, "-m", "helix_desktop", "--home", f"{home}/helix"]
    wrap = ["wrap"]
    if upstream:
        wrap += ["--upstream", upstream]
    if agent.command:
        wrap += ["--command", shlex.join(_agent_command(agent)), "--protocol", agent.protocol]
    else:
        wrap.append(agent.name)
    return [*program, *wrap, "--", *arguments]


def _environment(folder: Path, agent: OtherAgent, home: str) -> dict[str, str]:
    place = folder / agent.name
    environment = {name: value for name, value in os.environ.items() if "API_KEY" not in name}
    environment.update(dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY"), KEY))
    environment.update(agent.environment)
    environment["HOME"] = home
    environment["PATH"] = f"{place / 'node_modules' / '.bin'}:{place / 'bin'}:{os.environ['PATH']}"
    environment["PYTHONPATH"] = str(Path.cwd())
    environment["NO_COLOR"] = "1"
    return environment


def _processes_of(home: str, *, ours: bool) -> list[int]:
    """The processes of this program with that home, or all others: Cline leaves a daemon."""
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"HOME={home}".encode() not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            is_ours = b"helix_desktop" in (folder / "cmdline").read_bytes()
            if is_ours is ours:
                processes.append(int(folder.name))
    return processes


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agent", choices=[one.name for one in AGENTS])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--situation", choices=tuple(SITUATIONS), default="plain")
    parser.add_argument(
        "--tools", action="store_true", help="print the tools that the agent offers"
    )
    arguments = parser.parse_args()
    is_wrong = False
    for agent in AGENTS:
        if arguments.agent not in (None, agent.name):
            continue
        folder = arguments.folder.resolve()
        trial = try_agent(folder, agent, arguments.steps, arguments.situation)
        work = trial.work
        if arguments.tools:
            for asked in [one for one in trial.provider.asked if one.protocol][:2]:
                print(json.dumps(asked.body.get("tools"))[:6_000])
        print(trial.last_line)
        refused = f"{len(trial.provider.refused)} refused"
        paths = Counter(asked.path.partition("?")[0] for asked in trial.provider.asked)
        came = f"{work.done} steps, {work.recalls} recalls, {dict(paths)}, {refused}"
        print(f"{agent.name}: {came}; {'; '.join(trial.wrong) or 'right'}", flush=True)
        is_wrong = is_wrong or bool(trial.wrong)
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
