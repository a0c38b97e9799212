"""`wrap` before anything is started: whose options are whose, and where requests would go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helix_desktop.gateway import address_in_agent_settings
from helix_desktop.gateway.known_agents import find_known_agent
from helix_desktop.program_folders import find_program_folders
from helix_desktop.resident import agent_connecting
from tests.commands.conftest import NOT_CONFIRMED, Helix


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HELIX_HOME", str(tmp_path / "helix"))
    for name in ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "--yes",
        "--upstream=http://x",
        "--dry-run",
        "--workspace",
        "-w W",
        "-wW",
        "--json",
        "--home H",
        "-w W -- exec",
    ],
)
@pytest.mark.parametrize("first", [[], ["--dry-run"]])
def test_an_option_of_ours_behind_the_agents_name_is_refused(
    words: str, first: list[str], helix: Helix
) -> None:
    code, out, error = helix("wrap", *first, "codex", *words.split())
    assert code == 2
    option = words.partition(" ")[0]
    assert f"{option} comes after the agent's name. Nothing was started." in out + error


def test_what_only_begins_like_an_option_of_ours_is_the_agents(helix: Helix) -> None:
    for words in ("-p --jsonx", "exec --worktree x", "-- -w W --json", "exec -- --yes"):
        assert helix("wrap", "--dry-run", "codex", *words.split())[0] == 0


def test_a_dry_run_says_where_requests_would_go_and_why(home: Path, helix: Helix) -> None:
    assert helix("wrap", "--dry-run", "claude", "--", "--yes") == (
        0,
        "Claude Code, requests: to their usual provider; no setting names another address.\n",
        "",
    )
    (home / ".claude").mkdir()
    (home / ".claude" / "settings.json").write_text(
        '{"env": {"ANTHROPIC_BASE_URL": "https://llm.example"}}'
    )
    (home / ".claude" / ".credentials.json").write_text('{"claudeAiOauth": {}, "x": 1}')
    _, out, error = helix("wrap", "--dry-run", "claude")
    settings = f"{home}/.claude/settings.json, line 1"
    reason = f"to https://llm.example, as ANTHROPIC_BASE_URL in {settings} says"
    assert reason in out + error
    _, out, error = helix("wrap", "--dry-run", "--upstream", "http://other.example", "claude")
    assert "http://other.example, as --upstream says" in out + error
    (home / ".claude" / ".credentials.json").write_text(
        '{"claudeAiOauth": {"accessToken": "a-secret"}}'
    )
    _, out, error = helix("wrap", "--dry-run", "claude")
    assert "recording, not folding" in out + error
    assert "a-secret" not in out + error


def test_one_json_value_is_printed_instead_of_text(
    helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(*_request: object, **_more: object) -> dict[str, int]:
        return {"port": 4356}

    monkeypatch.setattr(agent_connecting, "ask_resident", answer)
    code, out, _ = helix("wrap", "--dry-run", "--json", "claude")
    assert (code, json.loads(out)) == (
        0,
        [{"agent": "claude", "provider": "", "address": "", "source": ""}],
    )
    code, out, _ = helix(
        "wrap", "--dry-run", "--json", "--upstream", "http://other.example", "claude"
    )
    (route,) = json.loads(out)
    assert (code, route["address"], route["source"]) == (0, "http://other.example", "--upstream")
    code, out, err = helix("wrap", "--install", "--json", "claude")
    assert (code, out, err.endswith(NOT_CONFIRMED)) == (1, "", True)
    code, out, err = helix("wrap", "--install", "--json", "--yes", "claude")
    told = json.loads(out)
    assert (code, told["written"], "settings.json was written." in err) == (0, True, True)
    assert "ANTHROPIC_BASE_URL" in told["diff"]
    assert Path(told["file"]).is_file()
    code, out, _ = helix("wrap", "--uninstall", "--json", "--yes", "claude")
    assert (code, json.loads(out)["written"]) == (0, True)


def test_any_agent_is_started_by_its_command(
    home: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_BASE", "https://llm.example/v1")
    code, out, error = helix(
        "wrap", "--dry-run", "--command", "qwen --yolo", "--protocol", "openai", "--", "-p", "hi"
    )
    assert not code
    assert (
        "Qwen Code, requests: to https://llm.example/v1, as OPENAI_API_BASE in the environment says."
        in out + error
    )
    for line in (["--command", "qwen"], ["--command", "'qwen", "--protocol", "openai"], [], ["--command", "qwen", "--protocol", "openai", "claude"]):  # fmt: skip
        code, out, error = helix("wrap", "--dry-run", *line)
        assert code
        assert (
            "wrap " in out + error
            or "--protocol anthropic" in out + error
            or "in a shell" in out + error
        )
    code, out, error = helix("wrap", "--install", "--command", "qwen", "--protocol", "openai")
    assert code
    assert "known agents only" in out + error


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("env DEBUG=1 qwen --yolo", "Qwen Code"),
        ("timeout 60 env -u DEBUG /opt/bin/goose run", "goose"),
        ("sh -c 'cd /tmp && crush'", "crush"),
        ("python -m aider", "python"),
        ("qwen --url {url}", "Qwen Code"),
    ],
)
def test_an_agent_is_called_after_the_program_that_runs(
    home: Path, helix: Helix, line: str, name: str
) -> None:
    _, out, error = helix("wrap", "--dry-run", "--command", line, "--protocol", "openai")
    assert f"{name}, requests: to " in out + error


def test_install_takes_yes_behind_the_name_and_nothing_else(helix: Helix) -> None:
    code, out, error = helix("wrap", "--uninstall", "claude", "--yes")
    assert code
    assert "was not connected by Helix Desktop" in out + error
    code, out, error = helix("wrap", "--install", "claude", "-p")
    assert code
    assert "-p cannot be used with --install" in out + error
    for options in (["--upstream", "http://127.0.0.1:1"], ["--dry-run"], ["--fold-plans"]):
        code, out, error = helix("wrap", *options, "--install", "--yes", "claude")
        assert code
        assert f"{options[0]} cannot be used with --install" in out + error


def test_nothing_is_created_for_an_agent_that_is_not_installed(
    home: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    (home / "project" / ".git").mkdir(parents=True)
    monkeypatch.chdir(home / "project")
    for agent in (["claude"], ["--command", "qwen --yolo", "--protocol", "openai"]):
        code, out, error = helix("wrap", *agent)
        assert code
        assert "was not found. Install the program, or add it to your PATH." in out + error
        assert "workspace" not in out + error
    assert not list((home / "helix").rglob("journal.sqlite3"))


@pytest.mark.parametrize(
    "address",
    ["localhost:1234", "htp://localhost:1234", "http:/localhost", "http://", "http://exa mple", "http://127.0.0.1:99999", "http://a:b@host"],
)  # fmt: skip
def test_an_upstream_with_a_typing_error_is_refused_before_anything_starts(
    helix: Helix, address: str
) -> None:
    for words in (["wrap", "--upstream", address, "claude"], ["gateway", "--upstream", address]):
        code, out, error = helix(*words)
        assert code == 2
        assert f"{address} is not the address of a provider. For example:" in out + error


def test_a_protocol_of_a_known_agent_is_refused(helix: Helix) -> None:
    code, out, error = helix("wrap", "--protocol", "openai", "--dry-run", "claude")
    assert code == 2
    assert "For a known agent, leave --protocol out." in out + error


def test_uninstall_says_that_a_file_made_for_the_address_is_gone(home: Path, helix: Helix) -> None:
    where = find_program_folders(home / "helix")
    agent = find_known_agent("claude")
    address_in_agent_settings.install_address(
        address_in_agent_settings.plan_address_install(agent, 4356, home, {}), where.config
    )
    code, out, _ = helix("wrap", "--uninstall", "--yes", "claude")
    assert (code, out.splitlines()[-1]) == (0, f"{home}/.claude/settings.json was deleted.")
    assert not (home / ".claude" / "settings.json").exists()


def test_an_agent_that_is_connected_is_said_to_be_so_before_anything_is_shown(
    home: Path, helix: Helix
) -> None:
    where = find_program_folders(home / "helix")
    agent = find_known_agent("claude")
    address_in_agent_settings.install_address(
        address_in_agent_settings.plan_address_install(agent, 4356, home, {}), where.config
    )
    code, out, err = helix("wrap", "--install", "claude")
    assert (code, out) == (1, "")
    assert err.startswith(
        "Claude Code is already connected. Disconnect the agent first by running: helix-desktop "
    )
    code, out, _ = helix("wrap", "--dry-run", "claude")
    assert (code, "4356" in out) == (0, False)


@pytest.mark.parametrize("port", ["99999", "-5", "x"])
def test_a_port_that_cannot_be_is_a_sentence(port: str, helix: Helix) -> None:
    code, out, err = helix("gateway", f"--port={port}")
    assert (code, out) == (2, "")
    assert f"'{port}' is not a port number. See helix-desktop gateway --help." in err


def test_yes_and_json_are_options_of_install_behind_the_agents_name_too(
    home: Path, helix: Helix
) -> None:
    where = find_program_folders(home / "helix")
    agent = find_known_agent("claude")
    address_in_agent_settings.install_address(
        address_in_agent_settings.plan_address_install(agent, 4356, home, {}), where.config
    )
    code, out, _ = helix("wrap", "--uninstall", "claude", "--json", "--yes")
    assert (code, json.loads(out)["written"]) == (0, True)
