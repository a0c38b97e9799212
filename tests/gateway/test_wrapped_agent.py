"""One run of an agent: what of its user's surroundings reaches the gateway and the
agent, and what becomes of signals.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from helix_desktop import program_folders
from helix_desktop.errors import NotFound
from helix_desktop.gateway import wrapped_agent
from helix_desktop.gateway.agent_upstreams import AgentSurroundings, AgentUpstream
from helix_desktop.gateway.known_agent import AgentStart
from helix_desktop.gateway.known_agents import KNOWN_AGENTS, build_agent_of_command
from helix_desktop.providers import http_transport
from tests.resident.test_resident_process import is_gone, status, wait_until

URL = "http://127.0.0.1:4356/t/a-token"
SCRIPT = """#!{python}
import json, os, sys, time
import subprocess
below = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(json.dumps({{"pid": os.getpid(), "below": below.pid, "argv": sys.argv, "env": dict(os.environ)}}), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("name", KNOWN_AGENTS)
def test_no_command_line_shows_the_token(tmp_path: Path, name: str) -> None:
    environ = {"PI_CODING_AGENT_DIR": str(tmp_path / "pi")}
    launch = KNOWN_AGENTS[name].launch(
        AgentStart({AgentUpstream(): URL}, ["-p", "x"], environ, tmp_path / "agent")
    )
    assert "a-token" not in " ".join(launch.command)
    files = " ".join(file.read_text("utf-8") for file in tmp_path.rglob("*.json") if file.exists())
    assert "a-token" in json.dumps(dict(launch.environment)) + files


def test_an_agent_that_nobody_described_gets_the_address_by_variables_or_where_it_is_asked_for(
    tmp_path: Path,
) -> None:
    agent = build_agent_of_command(["bin/qwen", "--base={url}"], "openai-chat")
    launch = agent.launch(
        AgentStart({AgentUpstream(): URL}, ["-p", "what is {url}?"], {}, tmp_path)
    )
    assert (agent.title, agent.program) == ("Qwen Code", "bin/qwen")
    assert launch.command == (
        "bin/qwen",
        f"--base={URL}/v1",
        "-p",
        "what is {url}?",
    )  # A prompt gets no token.
    assert launch.environment == {"OPENAI_BASE_URL": f"{URL}/v1", "OPENAI_API_BASE": f"{URL}/v1"}
    launch = build_agent_of_command(["x"], "anthropic").launch(
        AgentStart({AgentUpstream(): URL}, [], {}, tmp_path)
    )
    assert launch.environment["ANTHROPIC_BASE_URL"] == URL


def test_a_registration_has_the_proxies_of_its_agent() -> None:
    environ = {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "intern"}
    registration = wrapped_agent.build_registration_for_run(
        "claude", AgentUpstream("", "https://llm.example/v1"), environ
    )
    assert registration.upstream == "https://llm.example/v1"
    assert registration.proxies == {"https_proxy": "http://proxy:3128", "no_proxy": "intern"}


def test_a_registration_has_the_certificates_of_its_agent_and_of_its_trusted_settings(
    tmp_path: Path,
) -> None:
    project, own = tmp_path / "work" / ".claude", tmp_path / ".claude"
    for folder, name in ((own, "NODE_EXTRA_CA_CERTS"), (project, "HTTPS_PROXY")):
        folder.mkdir(parents=True)
        (folder / "settings.json").write_text(json.dumps({"env": {name: "/etc/ca.pem"}}), "utf-8")
    where = AgentSurroundings({"SSL_CERT_FILE": "/etc/all.pem"}, tmp_path, tmp_path / "work")
    environ = KNOWN_AGENTS["claude"].read_environment(where)
    assert environ == {"SSL_CERT_FILE": "/etc/all.pem", "NODE_EXTRA_CA_CERTS": "/etc/ca.pem"}
    with pytest.raises(http_transport.UnmendableFailure, match="SSL_CERT_FILE cannot be read"):
        wrapped_agent.build_registration_for_run("claude", AgentUpstream(), environ)


async def test_each_registration_goes_through_its_own_proxy() -> None:
    proxies = {"https_proxy": "proxy:3128", "no_proxy": ".intern, 10.0.0.1"}
    limits, trusted = httpx.Limits(), http_transport.trusted_certificates()
    mounts = http_transport._proxy_mounts(proxies, limits, trusted)
    assert {name: made is not None for name, made in mounts.items()} == {
        "https://": True,
        "all://intern": False,
        "all://*.intern": False,
        "all://10.0.0.1": False,
        "all://*.10.0.0.1": False,
    }
    assert http_transport._proxy_mounts({**proxies, "no_proxy": "*"}, limits, trusted) == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_wrap_that_ends_ends_the_agent_with_all_that_it_started_and_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(SCRIPT.format(python=sys.executable))
    program.chmod(0o755)
    environ = {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HTTP_PROXY": "http://127.0.0.1:9",
    }
    command = [
        sys.executable,
        "-m",
        "helix_desktop",
        "--home",
        str(tmp_path / "home"),
        "wrap",
        "claude",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, text=True
    ) as wrap:
        assert wrap.stdout is not None
        told = json.loads(wrap.stdout.readline())
        assert "127.0.0.1" in told["env"]["NO_PROXY"].split(",")
        assert told["env"]["HELIX_WRAP_ADDRESSES"] == told["env"]["ANTHROPIC_BASE_URL"]
        others = status(tmp_path / "home")
        wrap.send_signal(number)
        assert wrap.wait(30) == (128 + number if number != signal.SIGKILL else -number)
    wait_until(
        lambda: all(map(is_gone, (told["pid"], told["below"], others["pid"], others["gateway"])))
    )
    left = [file.name for file in (tmp_path / "home" / "run").iterdir() if file.suffix != ".lock"]
    assert number == signal.SIGKILL or left == []


def test_the_closing_line_says_nothing_it_does_not_know() -> None:
    one = {
        "requests": 3,
        "sent": 900,
        "without": 900,
        "recalls": 0,
        "paid": 0.18,
        "paid_without": 0.24,
    }
    assert (
        wrapped_agent.format_run_summary([one])
        == "Helix Desktop: 3 requests were recorded, and no tokens were saved."
    )
    saved = {**one, "without": 1800}
    assert "(50% saved), $0.18 instead of $0.24" in wrapped_agent.format_run_summary([saved])
    assert "$" not in wrapped_agent.format_run_summary(
        [saved, {**saved, "paid": 0.0}]
    )  # one has no price
    assert (
        wrapped_agent.format_run_summary([])
        == "Helix Desktop: no request to a model was answered through the gateway."
    )
    lost = "Helix Desktop: requests were not recorded, and went on as they came. The disk is full."
    assert wrapped_agent.format_run_summary([], "The disk is full.") == lost
    assert wrapped_agent.format_run_summary([one], "The disk is full.").splitlines()[1:] == [lost]
    beside = "Helix Desktop: 1 request was answered that belongs to no conversation here, so `cost` does not have it."
    assert wrapped_agent.format_run_summary([one], unfolded="Why.").splitlines()[1:] == [
        "Helix Desktop: nothing was shortened. Why."
    ]
    assert wrapped_agent.format_run_summary([one], unserved="Why.").splitlines()[1:] == [
        "Helix Desktop: Why."
    ]
    assert wrapped_agent.format_run_summary([], unread="1 request.") == "Helix Desktop: 1 request."
    assert wrapped_agent.format_run_summary([], beside=1) == beside
    assert wrapped_agent.format_run_summary([one], "The disk is full.", 1).splitlines()[1:] == [
        lost,
        beside,
    ]
    assert "2 requests were answered" in wrapped_agent.format_run_summary([], beside=2)
    alike = {**saved, "paid": 0.181, "paid_without": 0.184}
    assert "$" not in wrapped_agent.format_run_summary([alike])  # In cents, both are the same.
    estimated = wrapped_agent.format_run_summary([{**saved, "unanswered": 1, "estimated": 1200}])
    assert estimated.endswith(" One request got no whole answer: its 1,200 tokens are an estimate.")
    twice = {**one, "unanswered": 2, "estimated": 1200}
    assert wrapped_agent.format_run_summary([twice]).endswith(
        "saved. 2 requests got no whole answer: their 1,200 tokens are an estimate."
    )
    dearer = {**saved, "paid": 0.3, "recalls": 2}
    assert wrapped_agent.format_run_summary([dearer]) == (
        "Helix Desktop: 900 tokens sent instead of 1,800 (50% saved); 2 recalls."
    )


RUNS = """
import json, os, sys
from pathlib import Path
from helix_desktop.gateway.wrapped_agent import run_agent
from helix_desktop.gateway.agent_upstreams import AgentUpstream
from helix_desktop.gateway.known_agent import AgentStart
from helix_desktop.gateway.known_agents import build_agent_of_command
private, url = Path(sys.argv[1]), "http://127.0.0.1:9/t/token"
ends = ["0", "3", "os.kill(os.getpid(), 9)"]
tells = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.exit(%s)"
for end in ends:
    agent = build_agent_of_command([sys.executable, "-c", tells % end], "anthropic")
    print(run_agent(agent, AgentStart({AgentUpstream(): url}, [], os.environ, private)), flush=True)
print(os.listdir(private))
"""


def test_a_run_has_the_agents_exit_code_and_a_direct_way_to_the_gateway(tmp_path: Path) -> None:
    (private := tmp_path / "private").mkdir()
    command = [sys.executable, "-c", RUNS, str(private)]
    environ = {
        **{k: v for k, v in os.environ.items() if k.lower() != "no_proxy"},
        "no_proxy": "intern",
    }
    ran = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)
    told, *lines = ran.stdout.splitlines()
    assert [line for line in lines if not line.startswith("{")] == ["0", "3", "137", "[]"], (
        "nothing is left behind"
    )
    found = json.loads(told)
    assert found["NO_PROXY"] == found["no_proxy"] == "intern,127.0.0.1,localhost"
    assert found["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9/t/token"


def test_before_anything_is_made_the_agent_must_be_there() -> None:
    wrapped_agent.check_agent_is_installed(build_agent_of_command([sys.executable], "anthropic"))
    with pytest.raises(NotFound, match="no-such-agent was not found"):
        wrapped_agent.check_agent_is_installed(
            build_agent_of_command(["no-such-agent"], "anthropic")
        )


def test_a_gateway_that_is_not_there_says_nothing() -> None:
    assert wrapped_agent.fetch_gateway_status("http://127.0.0.1:9/t/token") is None


def test_this_program_is_started_on_the_home_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = program_folders.find_program_folders(tmp_path / "home")
    assert wrapped_agent.command_of_this_program(own)[-2:] == ["--home", str(own.data)]
    monkeypatch.delenv("HELIX_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    usual = program_folders.find_program_folders()
    assert ("--home" in wrapped_agent.command_of_this_program(usual)) == (
        usual.data == usual.config
    )
    assert "--home" in wrapped_agent.command_of_this_program(own)
