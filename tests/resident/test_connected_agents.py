"""Connecting agents: what the dialog offers to copy, and what their login shell sets."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from helix_desktop.errors import ActionRefused
from helix_desktop.gateway import wrapped_agent
from helix_desktop.gateway.known_agents import KNOWN_AGENTS
from helix_desktop.program_folders import find_program_folders
from helix_desktop.resident import agent_connecting, login_start
from helix_desktop.resident.connected_agents import (
    ConnectedAgents,
    list_words_that_start_this_program,
)


def test_the_command_to_copy_exists_in_a_checkout_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a checkout, the dialog offered `helix-desktop wrap claude`, which did not
    exist there.
    """
    python = tmp_path / "python"
    script = tmp_path / "helix-desktop"
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert list_words_that_start_this_program() == [str(python), "-m", "helix_desktop"]
    script.touch()
    assert list_words_that_start_this_program() == [str(script)]
    monkeypatch.setattr(shutil, "which", lambda _name: "/usr/bin/helix-desktop")
    assert list_words_that_start_this_program() == ["helix-desktop"]


async def test_an_agents_row_says_what_the_gateway_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {
        "agent": "Claude Code",
        "requests": 7,
        "last": 5.0,
        "conversation": "",
        "unfolded": "",
        "failure": "No way.",
    }
    arrival = {"agent": "Claude Code", "host": "a.example", "time": 5.0, "status": 401}
    told = {"agents": [seen], "figures": [], "today": [], "arrival": arrival}
    held = SimpleNamespace(
        is_held=True, addresses=["http://127.0.0.1:4356/t/own", "http://127.0.0.1:4356/t/others"]
    )
    monkeypatch.setattr(
        wrapped_agent,
        "fetch_gateway_status",
        lambda url: told if url == held.addresses[0] else None,
    )
    agents = ConnectedAgents(find_program_folders(tmp_path))
    monkeypatch.setattr(agents, "_switched_on", held)
    found = await agents.list_agent_connections()
    assert (found.address, found.for_others) == ("http://127.0.0.1:4356", held.addresses[1])
    assert (found.last_request_agent, found.last_request_time) == ("Claude Code", 5.0)
    assert found.last_request_problem == "a.example answered with an error (status 401)."
    row = next(row for row in found.agents if row.name == "claude")
    assert (row.requests, row.last_request_time, row.last_failure) == (7, 5.0, "No way.")


@pytest.fixture
def proxy_in_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The login shell sets a proxy that this program, started from a menu, does not have."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    shell = tmp_path / "shell"
    shell.write_text(
        '#!/bin/bash\nexport HTTPS_PROXY=http://proxy.example:8080 NO_PROXY=corp.example\neval "$4"\n'
    )
    shell.chmod(0o755)
    monkeypatch.setenv("SHELL", str(shell))
    monkeypatch.setenv("HOME", str(tmp_path))

    async def hold_port(*_: object, **__: object) -> dict[str, int]:
        return {"port": 4356}

    monkeypatch.setattr(agent_connecting, "ask_resident", hold_port)
    monkeypatch.setattr(login_start, "check_login_start", lambda: None)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no login shells")
@pytest.mark.usefixtures("proxy_in_shell")
@pytest.mark.parametrize("name", ["codex", "opencode", "pi"])
def test_an_agent_whose_login_shell_names_a_proxy_is_not_connected(
    name: str, tmp_path: Path
) -> None:
    """From a menu, the window saw no proxy: the agent was connected, and sent its key
    to the shell's proxy.
    """
    with pytest.raises(ActionRefused, match="HTTP proxy in HTTPS_PROXY"):
        agent_connecting.prepare_agent_connection(
            KNOWN_AGENTS[name], find_program_folders(tmp_path / "helix")
        )


@pytest.mark.skipif(sys.platform == "win32", reason="there are no login shells")
@pytest.mark.usefixtures("proxy_in_shell")
def test_what_the_login_shell_excepts_from_its_proxy_stays_excepted(tmp_path: Path) -> None:
    """Claude Code's settings override the shell's NO_PROXY, so they must name what it names."""
    change = agent_connecting.prepare_agent_connection(
        KNOWN_AGENTS["claude"], find_program_folders(tmp_path / "helix")
    )
    assert change.after is not None
    assert json.loads(change.after)["env"]["NO_PROXY"] == "corp.example,127.0.0.1,localhost"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no login shells")
@pytest.mark.usefixtures("proxy_in_shell")
@pytest.mark.parametrize(
    ("name", "variable"), [("claude", "ANTHROPIC_BASE_URL"), ("gemini", "GOOGLE_GEMINI_BASE_URL")]
)
def test_an_address_that_only_the_login_shell_names_stays_the_destination(
    name: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a menu, the window did not see it, and sent the company's key to the agent's
    usual provider.
    """
    monkeypatch.delenv(variable, raising=False)
    shell = tmp_path / "company shell"
    shell.write_text(f'#!/bin/bash\nexport {variable}=https://company.example/llm\neval "$4"\n')
    shell.chmod(0o755)
    monkeypatch.setenv("SHELL", str(shell))
    change = agent_connecting.prepare_agent_connection(
        KNOWN_AGENTS[name], find_program_folders(tmp_path / "helix")
    )
    assert change.registration is not None
    assert change.registration.upstream == "https://company.example/llm"
