"""Qwen Code is started at the gateway's address, and where its own settings send it is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helix_desktop.errors import ActionRefused
from helix_desktop.gateway.agent_identity import agent_from_headers
from helix_desktop.gateway.agent_upstreams import AgentSurroundings, AgentUpstream
from helix_desktop.gateway.agents.qwen_code_agent import AGENT
from helix_desktop.gateway.known_agent import AgentStart
from helix_desktop.gateway.own_headers import find_own_header_names

COMPANY = "https://llm.company.example/v1"
URL = "http://127.0.0.1:4356/t/a-token"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path


def write(file: Path, content: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), "utf-8")
    return file


def upstream(home: Path, *arguments: str, **environ: str) -> AgentUpstream:
    (found,) = AGENT.find_upstreams(AgentSurroundings(environ, home, home / "work", arguments))
    return found


def test_the_environment_is_stronger_than_env_files_and_these_than_the_settings(home: Path) -> None:
    assert upstream(home) == AgentUpstream()
    settings = {
        "env": {"OPENAI_BASE_URL": "https://env/v1"},
        "security": {"auth": {"baseUrl": "https://auth/v1"}},
    }
    file = write(home / ".qwen" / "settings.json", {"security": settings["security"]})
    assert upstream(home) == AgentUpstream("", "https://auth/v1", f"{file}, line 4")
    write(file, settings)
    assert upstream(home).address == "https://env/v1"
    write(home / ".env", "OPENAI_BASE_URL=https://home/v1\n")
    assert upstream(home).address == "https://home/v1"
    write(home / ".qwen" / ".env", 'export OPENAI_BASE_URL="https://own/v1" # mine\n')
    assert upstream(home).address == "https://own/v1"
    assert upstream(home, OPENAI_BASE_URL=COMPANY).address == COMPANY


def test_a_folder_of_its_own_is_read_in_place_of_the_usual_one(home: Path) -> None:
    write(home / ".qwen" / ".env", "OPENAI_BASE_URL=https://usual/v1\n")
    write(home / "own" / ".env", f"OPENAI_BASE_URL={COMPANY}\n")
    assert upstream(home, QWEN_HOME=str(home / "own")).address == COMPANY
    assert AGENT.file(home, {"QWEN_HOME": str(home / "own")}) == home / "own" / ".env"


@pytest.mark.parametrize("name", [".env", ".qwen/.env"])
def test_an_address_in_a_projects_folder_is_refused(home: Path, name: str) -> None:
    write(home / "work" / name, "OPENAI_BASE_URL=https://stranger/v1\n")
    with pytest.raises(ActionRefused, match="names an address"):
        upstream(home)


def test_an_address_in_a_projects_settings_is_refused(home: Path) -> None:
    settings = {"security": {"auth": {"baseUrl": "https://stranger/v1"}}}
    write(home / "work" / ".qwen" / "settings.json", settings)
    with pytest.raises(ActionRefused, match="names an address"):
        upstream(home)


def test_other_sign_ins_and_arguments_with_an_address_are_refused(home: Path) -> None:
    with pytest.raises(ActionRefused, match="its arguments name an address"):
        upstream(home, "--openai-base-url=https://x/v1")
    write(home / ".qwen" / "settings.json", {"security": {"auth": {"selectedType": "qwen-oauth"}}})
    with pytest.raises(ActionRefused, match="it signs in with qwen-oauth"):
        upstream(home)


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"])
def test_it_is_not_started_beside_a_proxy_which_would_get_its_key(
    home: Path, variable: str
) -> None:
    """Seen with 0.24.4: it asked the proxy for 127.0.0.1, also with NO_PROXY=127.0.0.1 and *."""
    proxy = "http://proxy:3128"
    with pytest.raises(ActionRefused, match=f"HTTP proxy in {variable}, whatever NO_PROXY says"):
        upstream(home, **{variable: proxy, "NO_PROXY": "*", "no_proxy": "127.0.0.1"})
    assert upstream(home, **{variable: "", "NO_PROXY": "x"}) == AgentUpstream()
    write(home / ".env", f"{variable}={proxy}\n")
    with pytest.raises(ActionRefused, match=f"{variable} in .*env, whatever"):
        upstream(home)


def test_a_proxy_in_its_arguments_or_settings_is_seen_too(home: Path) -> None:
    with pytest.raises(ActionRefused, match=r"HTTP proxy in its arguments \(--proxy\)"):
        upstream(home, "--proxy", "http://proxy:3128")
    file = write(home / ".qwen" / "settings.json", {"proxy": "http://proxy:3128"})
    with pytest.raises(ActionRefused, match="HTTP proxy in its setting `proxy` in"):
        upstream(home)
    write(file, {"env": {"HTTP_PROXY": "http://proxy:3128"}})
    with pytest.raises(ActionRefused, match="HTTP proxy in HTTP_PROXY in"):
        upstream(home)


def test_it_is_started_with_the_variable_of_its_sign_in(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "work")
    start = AgentStart({AgentUpstream(): URL}, ["--yolo"], {}, home / "scratch")
    launch = AGENT.launch(start)
    assert launch.command == ("qwen", "--yolo")
    assert launch.environment == {"OPENAI_BASE_URL": f"{URL}/v1"}
    write(home / ".qwen" / "settings.json", {"security": {"auth": {"selectedType": "anthropic"}}})
    assert AGENT.launch(start).environment == {"ANTHROPIC_BASE_URL": URL}


def test_its_env_file_gets_the_address_and_keeps_the_users_lines() -> None:
    before = "OPENAI_API_KEY=k\nOPENAI_BASE_URL=https://old/v1\n"
    after = AGENT.change(before, URL, {})
    assert after == (f"OPENAI_API_KEY=k\nOPENAI_BASE_URL={URL}/v1\nANTHROPIC_BASE_URL={URL}\n")
    assert AGENT.change(after, URL, {}) == after


def test_models_with_an_address_of_their_own_pass_by(home: Path) -> None:
    models = [
        {"id": "corp-large", "baseUrl": COMPANY, "generationConfig": {"customHeaders": {"X-Corp": "a"}}},
        {"id": "usual"},
    ]  # fmt: skip
    write(home / ".qwen" / "settings.json", {"modelProviders": {"openai": models, "odd": 3}})
    where = AgentSurroundings({}, home, home / "work")
    assert AGENT.list_bypassing_providers(where, [AgentUpstream()]) == ["corp-large"]
    assert find_own_header_names(AGENT, where) == ("x-corp",)


def test_its_requests_are_recognised() -> None:
    assert agent_from_headers({"user-agent": "QwenCode/0.24.4 (linux; x64)"}) == "Qwen Code"
