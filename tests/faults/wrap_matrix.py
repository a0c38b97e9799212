"""The real agents through `wrap`, in the situations people are in: each is right, or refused before a byte is sent.

python -m tests.faults.wrap_matrix [--steps 6] [--agent NAME] [--situation NAME]      HELIX_CLIENTS: see tests/benchmarks/gateway_clients.py

Every agent has a planted key. It may arrive at the provider its user chose and nowhere else.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from tests.benchmarks.gateway_clients import BEGINS, GOES_ON, KEY, PACKAGES, Work, installed
from tests.faults.store_report import report
from tests.peers.agent_provider import Asked, Block, Provider
from tests.resident.test_resident_process import is_gone, status, wait_until

LONGEST = 150.0
HTTP_KEYS = ("authorization", "x-api-key", "x-goog-api-key")
VARIABLES = {"claude": "ANTHROPIC_BASE_URL", "codex": "OPENAI_BASE_URL", "gemini": "GOOGLE_GEMINI_BASE_URL"}
SIGNED = {
    "claude": (".claude/settings.json", '{"env": {"CLAUDE_CODE_USE_BEDROCK": "1"}}'),
    "codex": (".codex/config.toml", 'model_provider = "ollama"'),
    "gemini": (".gemini/settings.json", '{"security": {"auth": {"selectedType": "vertex-ai"}}}'),
}


@dataclass
class Stage:
    """One agent in a home of its own. `provider`: the one its user chose; `elsewhere`: the one nobody chose for it."""

    agent: str
    steps: int
    home: Path
    provider: Provider
    elsewhere: Provider
    work: Work
    halfway: threading.Event = field(default_factory=threading.Event)
    wrong: list[str] = field(default_factory=list)

    @property
    def place(self) -> Path:
        return self.home / "work"

    def script(self, asked: Asked) -> list[Block] | int:
        if self.work.done >= self.steps // 2:
            self.halfway.set()
        return list(self.work.script(asked))

    def start(
        self, *options: str, goes_on: bool = False, own: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.Popen[str]:
        """`wrap` as a user types it."""
        program = installed(Path(os.environ.get("HELIX_CLIENTS", "/tmp/helix-clients")), self.agent)
        begins = BEGINS[self.agent] if self.agent != "gemini" else ["--yolo", "--skip-trust", "-p", "do the work"]
        if goes_on:
            more = GOES_ON[self.agent]
            begins = [*begins[:-1], *more, begins[-1]] if self.agent in ("codex", "opencode") else [*more, *begins]
        variables = {
            **dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), KEY),
            "HOME": str(self.home),
            "PATH": f"{os.environ['PATH']}:{program}",
            "IS_SANDBOX": "1",
            "PYTHONPATH": str(Path.cwd()),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        command = [sys.executable, "-m", "helix_desktop", "--home", str(self.home / "helix"), "wrap", *options, self.agent, "--", *begins]  # fmt: skip
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.place, env={**os.environ, **variables, **own}, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)  # fmt: skip

    def finish(self, process: subprocess.Popen[str], *, code: int = 0) -> str:
        """Its end. What it said on its standard error."""
        try:
            out, err = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            process.terminate()
            self.wrong.append(f"it hung: {process.communicate()[1][-200:]}")
            return ""
        if process.returncode != code:
            self.wrong.append(f"exit {process.returncode}, not {code}: {(out + err)[-300:]}")
        return err

    def check_work(self, least: int) -> None:
        if self.work.done < least:
            self.wrong.append(f"{self.work.done} of {least} steps")

    def write_settings(self, url: str) -> None:
        """The address in the agent's own settings, as its manual says."""
        tables = f'[model_providers.corp]\nname = "Corp"\nbase_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
        named = {
            "claude": (".claude/settings.json", json.dumps({"env": {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_CUSTOM_HEADERS": "x-company: yes"}})),
            "codex": (".codex/config.toml", f'model_provider = "corp"\n{tables}http_headers = {{ "x-company" = "yes" }}\n'),
            "opencode": (".config/opencode/opencode.jsonc", f'{{ // mine\n "provider": {{"anthropic": {{"options": {{"baseURL": "{url}/v1", "headers": {{"x-company": "yes"}}}}}}}}}}'),
            "gemini": (".gemini/.env", f"GOOGLE_GEMINI_BASE_URL={url}\nGEMINI_CLI_CUSTOM_HEADERS=x-company:yes\n"),
            "pi": (".pi/agent/models.json", json.dumps({"providers": {"anthropic": {"baseUrl": url, "headers": {"x-company": "yes"}}}})),
        }  # fmt: skip
        name, text = named[self.agent]
        self.write(name, text)

    def write(self, name: str, text: str) -> None:
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


def plain(stage: Stage) -> None:
    stage.finish(stage.start("--upstream", stage.provider.url))


def in_the_shell(stage: Stage) -> None:
    version = "/v1" if stage.agent == "codex" else ""
    stage.finish(stage.start(own={VARIABLES[stage.agent]: stage.provider.url + version}))


def in_settings(stage: Stage) -> None:
    stage.write_settings(stage.provider.url)
    stage.finish(stage.start(own={VARIABLES[stage.agent]: stage.elsewhere.url} if stage.agent == "claude" else {}))
    if any(asked.protocol and asked.headers.get("x-company") != "yes" for asked in stage.provider.asked):
        stage.wrong.append("the company's header is missing")


def behind_a_proxy(stage: Stage) -> None:
    """The provider is the proxy: a request for another host comes to it whole."""
    proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"), stage.provider.url)
    stage.finish(stage.start("--upstream", "http://llm.company.example", own=proxies))
    if not all(asked.path.startswith("http://llm.company.example/") for asked in stage.provider.asked):
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
        mine = stage.start("--upstream", stage.provider.url, own={"HOME": str(stage.home / "second")})
        stage.finish(first)
        stage.finish(mine)
        if not second.asked:
            stage.wrong.append("the other wrap was not served")


def gateway_killed(stage: Stage) -> None:
    process = stage.start("--upstream", stage.provider.url)
    stage.halfway.wait(LONGEST)
    os.kill(status(stage.home / "helix")["gateway"], signal.SIGKILL)
    stage.finish(process)


def terminated(stage: Stage) -> None:
    process = stage.start("--upstream", stage.provider.url)
    stage.halfway.wait(LONGEST)
    told = status(stage.home / "helix")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    stage.work.done = stage.steps
    wait_until(lambda: is_gone(told["pid"]) and is_gone(told["gateway"]))
    below = subprocess.run(["pgrep", "-f", str(stage.home)], capture_output=True, text=True, check=False).stdout.split()
    if below:
        stage.wrong.append(f"{len(below)} processes are left")


def goes_on(stage: Stage) -> None:
    """A second process goes on with the conversation, at once behind the first."""
    stage.finish(stage.start("--upstream", stage.provider.url))
    before = len(stage.provider.asked)
    stage.work.begin(stage.steps)
    stage.finish(stage.start("--upstream", stage.provider.url, goes_on=True))
    if not any(b"step 1" in asked.raw for asked in stage.provider.asked[before:]):
        stage.wrong.append("it did not go on")


ALL = tuple(PACKAGES)
SITUATIONS: Mapping[str, tuple[Callable[[Stage], None], tuple[str, ...]]] = {
    "plain": (plain, ALL),
    "in the shell": (in_the_shell, tuple(VARIABLES)),
    "in settings": (in_settings, ALL),
    "proxy": (behind_a_proxy, ALL),
    "signed": (signed, tuple(SIGNED)),
    "two at once": (two_at_once, ALL),
    "gateway killed": (gateway_killed, ALL),
    "SIGTERM": (terminated, ALL),
    "goes on": (goes_on, tuple(GOES_ON)),
}


@contextmanager
def staged(agent: str, steps: int) -> Iterator[Stage]:
    work = Work(agent, steps)
    work.begin(steps)
    work._delegates = False
    with ExitStack() as lasting:
        home = Path(lasting.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        provider, elsewhere = (lasting.enter_context(Provider(work.script, usage=work.usage)) for _ in range(2))
        stage = Stage(agent, steps, home, provider, elsewhere, work)
        provider.script = stage.script
        (home / "work").mkdir()
        (home / "second").mkdir()
        if agent == "gemini":
            for one in (home, home / "second"):
                text = json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}})
                (one / ".gemini").mkdir()
                (one / ".gemini" / "settings.json").write_text(text, "utf-8")
        yield stage


def try_cell(agent: str, situation: str, steps: int) -> list[str]:
    """What was wrong."""
    with staged(agent, steps) as stage:
        SITUATIONS[situation][0](stage)
        if situation != "signed":
            stage.check_work(steps)
            if not any(KEY in asked.headers.get(name, "") for asked in stage.provider.asked for name in HTTP_KEYS):
                stage.wrong.append("the key did not arrive")
        if stage.elsewhere.asked:
            stage.wrong.append("requests went elsewhere")
        stage.wrong += [f"refused: {why}" for why in stage.provider.refused[:1]]
        stage.wrong += [f"{name} arrived" for asked in stage.provider.asked[:1] for name in asked.headers if name.startswith("x-helix")]  # fmt: skip
        return stage.wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--agent", choices=ALL)
    parser.add_argument("--situation", choices=tuple(SITUATIONS))
    given = parser.parse_args()

    def trials(found: Counter[str]) -> None:
        for situation, (_, agents) in SITUATIONS.items():
            for agent in agents:
                if given.situation in (None, situation) and given.agent in (None, agent):
                    began = time.monotonic()
                    wrong = try_cell(agent, situation, given.steps)
                    found["cells"] += 1
                    found.update(f"LOST {agent}, {situation}: {one}" for one in wrong)
                    sys.stdout.write(
                        f"{agent}, {situation}: {'; '.join(wrong) or 'right'} ({time.monotonic() - began:.0f} s)\n"
                    )
                    sys.stdout.flush()

    return report("wrap matrix", 0, trials)


if __name__ == "__main__":
    sys.exit(main())
