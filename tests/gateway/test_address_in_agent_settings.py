"""The address goes into an agent's configuration and out again byte for byte."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop.commented_json import parse_commented_json, set_commented_json
from helix_desktop.errors import ActionRefused, NotFound, StoreFailed
from helix_desktop.gateway import address_in_agent_settings, known_agents
from helix_desktop.gateway.agent_upstreams import AgentUpstream

URL = "http://127.0.0.1:4356/t/"
BEFORE = {
    "claude": b'{"model":"opus",\n  "env": {"A": "1"}}',
    "codex": b'# mine\nmodel = "gpt-5"\n\n[model_providers.own]\nname = "own"\n',
    "opencode": b'{\n  // mine\n  "provider": {\n    "own": {}, /* "x": { */\n    "openai": {"options": {}},\n  },\n}\n',
    "gemini": b"GEMINI_API_KEY=k\n",
    "pi": b'{"providers": {"own": {"baseUrl": "https://own.example/v1"}}}',
    "qwen": b"OPENAI_API_KEY=k\n",
}


@pytest.mark.parametrize("name", known_agents.KNOWN_AGENTS)
@pytest.mark.parametrize("there", [True, False])
def test_installing_and_uninstalling_leaves_the_file_as_it_was(
    tmp_path: Path, name: str, there: bool
) -> None:
    agent = known_agents.find_known_agent(name)
    home = tmp_path / "home"
    config = tmp_path / "config"
    file = agent.file(home, {})
    if there:
        file.parent.mkdir(parents=True)
        file.write_bytes(BEFORE[name])
    change = address_in_agent_settings.plan_address_install(agent, 4356, home, {})
    assert URL in change.as_unified_diff()
    address_in_agent_settings.install_address(change, config)
    assert URL in file.read_text("utf-8")
    assert address_in_agent_settings.is_agent_connected(agent, config)
    ((registration, port),) = address_in_agent_settings.read_written_registrations(config).items()
    assert (registration.agent, port) == (name, 4356)
    assert registration.token in file.read_text("utf-8")
    address_in_agent_settings.remove_address(
        address_in_agent_settings.plan_address_removal(agent, config), config
    )
    assert (file.read_bytes() if file.exists() else None) == (BEFORE[name] if there else None)
    assert not address_in_agent_settings.is_agent_connected(agent, config)
    assert there or not home.exists()  # with what was made for the file
    assert not config.exists() or list(config.iterdir()) == []


def test_comments_and_the_way_it_is_written_stay(tmp_path: Path) -> None:
    agent = known_agents.find_known_agent("opencode")
    file = agent.file(tmp_path, {}).with_suffix(".jsonc")
    file.parent.mkdir(parents=True)
    file.write_bytes(BEFORE["opencode"])
    change = address_in_agent_settings.plan_address_install(agent, 4356, tmp_path, {})
    assert change.file == file
    after = (change.after or b"").decode()
    lines = [line for line in after.splitlines() if URL not in line]
    assert all(line in lines for line in ("  // mine", '    "own": {}, /* "x": { */'))
    providers = parse_commented_json(after, "opencode.json")["provider"]
    assert set(providers) == {"own", "openai", "anthropic", "google"}
    assert all(
        URL in providers[name]["options"]["baseURL"] for name in ("openai", "anthropic", "google")
    )


@pytest.mark.parametrize(
    "text", ["", "{}", "{ // a\n}", '{"a": {}}', '{"a": {"b": 1}, "c": "}"}', '{"a": "x" /* {"a": */,}', '{"z": [1, {"a": 2}],\n "a": {"b": "\\"",},\n}', '{"a": {"b": 1}, "a": {"b": 2}}']
)  # fmt: skip
def test_a_value_is_set_and_the_rest_is_equal(text: str) -> None:
    before = parse_commented_json(text, "")
    after = parse_commented_json(set_commented_json(text, ("a", "b", "c"), "new"), "")
    assert after.pop("a")["b"] == {"c": "new"}
    before.pop("a", None)
    assert after == before


def test_a_file_that_somebody_changed_since_is_left_alone(tmp_path: Path) -> None:
    agent = known_agents.find_known_agent("claude")
    config = tmp_path / "config"
    address_in_agent_settings.install_address(
        address_in_agent_settings.plan_address_install(agent, 4356, tmp_path, {}), config
    )
    file = agent.file(tmp_path, {})
    file.write_text("{}")
    with pytest.raises(ActionRefused, match="was changed"):
        address_in_agent_settings.plan_address_removal(agent, config)
    assert file.read_text() == "{}"


def connected(tmp_path: Path, *names: str) -> dict[str, Path]:
    """Agents whose settings have the gateway's address; the file of each."""
    files = {}
    for name in names:
        agent = known_agents.find_known_agent(name)
        files[name] = agent.file(tmp_path / "home", {})
        address_in_agent_settings.install_address(address_in_agent_settings.plan_address_install(agent, 4356, tmp_path / "home", {}), tmp_path / "config")  # fmt: skip
    return files


def test_all_addresses_are_taken_out_and_what_somebody_changed_is_left_and_named(
    tmp_path: Path,
) -> None:
    files = connected(tmp_path, "claude", "gemini", "codex")
    files["codex"].write_text("# another\n")
    (tmp_path / "config" / address_in_agent_settings.FOLDER / "unknown.json").write_text("{}")
    removed, (left,) = address_in_agent_settings.remove_all_addresses(tmp_path / "config")
    assert removed == ["Claude Code", "Gemini CLI"]
    assert str(files["codex"]) in left
    assert [name for name, file in files.items() if file.exists()] == ["codex"]
    assert [address_in_agent_settings.is_agent_connected(known_agents.find_known_agent(name), tmp_path / "config") for name in files] == [False, False, True]  # fmt: skip
    assert address_in_agent_settings.remove_all_addresses(tmp_path / "nowhere") == ([], [])


def test_a_run_of_its_own_goes_where_the_address_in_the_settings_leads(tmp_path: Path) -> None:
    connected(tmp_path, "claude")
    ((registration, _),) = address_in_agent_settings.read_written_registrations(
        tmp_path / "config"
    ).items()
    here = f"{URL}{registration.token}"
    usual = AgentUpstream("mine", here, "settings.json")
    others = [AgentUpstream("openai", f"{here}/v1"), AgentUpstream("own", "https://own.example")]
    found = address_in_agent_settings.resolve_own_addresses([usual, *others], tmp_path / "config")
    assert found == [
        AgentUpstream("", registration.upstream, "its configuration from before wrap --install"),
        others[1],
    ]
    elsewhere = AgentUpstream("mine", "https://own.example")
    assert address_in_agent_settings.resolve_own_addresses(
        [elsewhere, *others], tmp_path / "config"
    ) == [
        elsewhere,
        others[1],
    ]


def test_notes_that_cannot_be_read_and_those_without_a_token_stand_for_nothing(
    tmp_path: Path,
) -> None:
    folder = tmp_path / address_in_agent_settings.FOLDER
    folder.mkdir()
    for name, text in (
        ("a", "{broken"),
        ("b", '{"port": 5}'),
        ("c", '{"token": "x"}'),
        ("d", '{"token": "x", "port": 7}'),
    ):
        (folder / f"{name}.json").write_text(text)
    ((registration, port),) = address_in_agent_settings.read_written_registrations(tmp_path).items()
    assert (registration.agent, registration.token, registration.upstream, port) == (
        "d",
        "x",
        "",
        7,
    )


@pytest.mark.parametrize("there", [True, False])
def test_what_somebody_saves_while_the_change_is_shown_stays(tmp_path: Path, there: bool) -> None:
    agent = known_agents.find_known_agent("claude")
    home = tmp_path / "home"
    config = tmp_path / "config"
    file = agent.file(home, {})
    file.parent.mkdir(parents=True)
    if there:
        file.write_bytes(BEFORE["claude"])
    change = address_in_agent_settings.plan_address_install(agent, 4356, home, {})
    file.write_bytes(b'{"mine": 1}')
    with pytest.raises(ActionRefused, match="has changed since it was read"):
        address_in_agent_settings.install_address(change, config)
    assert file.read_bytes() == b'{"mine": 1}'
    assert not address_in_agent_settings.is_agent_connected(agent, config)
    file.unlink()
    if there:
        file.write_bytes(BEFORE["claude"])
    address_in_agent_settings.install_address(
        address_in_agent_settings.plan_address_install(agent, 4356, home, {}), config
    )
    removal = address_in_agent_settings.plan_address_removal(agent, config)
    file.write_bytes(b'{"mine": 2}')
    with pytest.raises(ActionRefused, match="has changed since it was read"):
        address_in_agent_settings.remove_address(removal, config)
    assert file.read_bytes() == b'{"mine": 2}'
    assert address_in_agent_settings.is_agent_connected(agent, config)


def test_settings_behind_a_link_are_changed_where_they_are(tmp_path: Path) -> None:
    agent = known_agents.find_known_agent("claude")
    home = tmp_path / "home"
    config = tmp_path / "config"
    file = agent.file(home, {})
    real = tmp_path / "dotfiles" / "claude.json"
    file.parent.mkdir(parents=True)
    real.parent.mkdir()
    real.write_bytes(BEFORE["claude"])
    file.symlink_to(real)
    address_in_agent_settings.install_address(
        address_in_agent_settings.plan_address_install(agent, 4356, home, {}), config
    )
    assert file.is_symlink()
    assert URL in real.read_text("utf-8")
    address_in_agent_settings.remove_address(
        address_in_agent_settings.plan_address_removal(agent, config), config
    )
    assert real.read_bytes() == BEFORE["claude"]


def settings_of_opencode(home: Path, provider: str) -> Path:
    file = known_agents.find_known_agent("opencode").file(home, {})
    file.parent.mkdir(parents=True)
    file.write_text(
        f'{{"provider": {{"{provider}": {{"options": {{"baseURL": "https://own.example/v1"}}}}}}}}'
    )
    return file


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_an_agent_that_goes_elsewhere_for_a_usual_provider_keeps_its_address(
    tmp_path: Path, provider: str
) -> None:
    file = settings_of_opencode(tmp_path, provider)
    before = file.read_bytes()
    with pytest.raises(ActionRefused, match=f"already has another address for {provider}"):
        address_in_agent_settings.plan_address_install(
            known_agents.find_known_agent("opencode"), 4356, tmp_path, {}
        )
    assert file.read_bytes() == before


def test_a_provider_of_the_users_own_is_no_reason_to_refuse(tmp_path: Path) -> None:
    settings_of_opencode(tmp_path, "mine")
    change = address_in_agent_settings.plan_address_install(
        known_agents.find_known_agent("opencode"), 4356, tmp_path, {}
    )
    assert b"https://own.example/v1" in (change.after or b"")


def test_an_agent_is_connected_once(tmp_path: Path) -> None:
    agent = known_agents.find_known_agent("gemini")
    config = tmp_path / "config"
    change = address_in_agent_settings.plan_address_install(agent, 4356, tmp_path, {})
    address_in_agent_settings.install_address(change, config)
    written = agent.file(tmp_path, {}).read_bytes()
    with pytest.raises(ActionRefused, match="Gemini CLI is already connected"):
        address_in_agent_settings.install_address(change, config)
    assert agent.file(tmp_path, {}).read_bytes() == written
    same = replace(change, before=b"x", after=b"x")
    address_in_agent_settings.install_address(
        same, config
    )  # There is nothing to write, so nothing is refused.


def test_who_was_not_connected_or_whose_note_is_damaged_is_told(tmp_path: Path) -> None:
    agent = known_agents.find_known_agent("claude")
    with pytest.raises(NotFound, match="was not connected by Helix Desktop"):
        address_in_agent_settings.plan_address_removal(agent, tmp_path)
    note = tmp_path / address_in_agent_settings.FOLDER / "claude.json"
    note.parent.mkdir()
    for damaged in (
        "{broken",
        "[]",
        "{}",
        '{"before": null, "file": "f", "after": 5}',
        '{"before": "x", "file": "f"}',
    ):
        note.write_text(damaged)
        with pytest.raises(
            StoreFailed, match="could not be read, so the previous settings are unknown"
        ):
            address_in_agent_settings.plan_address_removal(agent, tmp_path)


PROXY = {"HTTPS_PROXY": "http://proxy:3128"}
DIRECT = "127.0.0.1,localhost"


@pytest.mark.parametrize(
    ("own", "shell"), [("", ""), ("x.example", ""), ("", "x.example"), ("x.example", "y.example")]
)
def test_a_connected_claude_code_sends_its_key_to_no_proxy(
    tmp_path: Path, own: str, shell: str
) -> None:
    """Claude Code takes an HTTP proxy for 127.0.0.1 too; its settings override the
    shell, which may get a proxy later.
    """
    agent = known_agents.find_known_agent("claude")
    file = agent.file(tmp_path, {})
    file.parent.mkdir()
    file.write_text(json.dumps({"env": {"NO_PROXY": own}} if own else {}))
    environ = {**PROXY, "no_proxy": shell}
    change = address_in_agent_settings.plan_address_install(agent, 4356, tmp_path, environ)
    told = json.loads(change.after or b"")["env"]
    names = ",".join(filter(None, (own, shell, DIRECT)))
    assert told["NO_PROXY"] == told["no_proxy"] == names


@pytest.mark.parametrize("name", ["codex", "opencode", "gemini", "pi"])
def test_an_agent_that_would_send_its_key_to_a_proxy_is_not_connected(
    tmp_path: Path, name: str
) -> None:
    agent = known_agents.find_known_agent(name)
    for environ in (
        {**PROXY, "NO_PROXY": "x.example"},
        {"http_proxy": "p:1", "NO_PROXY": DIRECT, "no_proxy": "x"},
    ):
        with pytest.raises(ActionRefused, match="through the HTTP proxy"):
            address_in_agent_settings.plan_address_install(agent, 4356, tmp_path, environ)
    for environ in (
        {**PROXY, "NO_PROXY": f"x.example, {DIRECT}"},
        {**PROXY, "no_proxy": "*"},
        {"NO_PROXY": "x"},
    ):
        address_in_agent_settings.plan_address_install(agent, 4356, tmp_path, environ)


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("pi", ".pi/agent/settings.json", '{"httpProxy": "http://proxy:3128"}'),
        ("codex", ".codex/.env", "HTTPS_PROXY=http://proxy:3128\n"),
    ],
)
def test_an_agent_whose_own_file_names_a_proxy_is_not_connected(
    tmp_path: Path, name: str, file: str, text: str
) -> None:
    """Seen with pi 1.6: it asked that proxy for this computer's addresses, with its key."""
    agent = known_agents.find_known_agent(name)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text, "utf-8")
    with pytest.raises(ActionRefused, match="through the HTTP proxy"):
        address_in_agent_settings.plan_address_install(agent, 4356, tmp_path, {})
    environ = {"NO_PROXY": DIRECT}
    address_in_agent_settings.plan_address_install(agent, 4356, tmp_path, environ)


def test_gemini_cli_reads_its_exceptions_from_its_own_file_where_the_shell_has_none(
    tmp_path: Path,
) -> None:
    agent = known_agents.find_known_agent("gemini")
    file = agent.file(tmp_path, {})
    file.parent.mkdir()
    file.write_text("NO_PROXY=x.example\nHTTPS_PROXY=http://proxy:3128\n")
    change = address_in_agent_settings.plan_address_install(agent, 4356, tmp_path, PROXY)
    lines = (change.after or b"").decode().splitlines()
    assert [line for line in lines if "NO_PROXY" in line.upper()] == [
        f"NO_PROXY=x.example,{DIRECT}",
        f"no_proxy=x.example,{DIRECT}",
    ]
    assert "HTTPS_PROXY=http://proxy:3128" in lines


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and devices in a folder")
@pytest.mark.parametrize("kind", ["pipe", "endless"])
@pytest.mark.parametrize("place", ["note", "settings"])
def test_what_never_ends_is_not_waited_for(tmp_path: Path, kind: str, place: str) -> None:
    note = tmp_path / address_in_agent_settings.FOLDER / "claude.json"
    settings = tmp_path / "settings.json"
    note.parent.mkdir()
    known = {"file": str(settings), "before": None, "after": "", "token": "t", "port": 1}
    note.write_text(json.dumps(known), encoding="utf-8")
    hostile = note if place == "note" else settings
    hostile.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(hostile)
    else:
        hostile.symlink_to("/dev/zero")
    removed, left = address_in_agent_settings.remove_all_addresses(tmp_path)
    assert (removed, len(left)) == ([], 1)
    address_in_agent_settings.read_written_registrations(tmp_path)
