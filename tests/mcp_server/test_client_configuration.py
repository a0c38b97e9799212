from __future__ import annotations

import json
import stat
import sys
import tomllib
from pathlib import Path

import pytest
import tomlkit

from helix_desktop.commented_json import parse_commented_json
from helix_desktop.errors import ConfigFileMistake, InvalidInput, StoreFailed
from helix_desktop.mcp_server import client_configuration

COMMAND = ["helix-desktop", "mcp", "--workspace", "w-1"]


def made(client: str, tmp_path: Path) -> client_configuration.ClientSnippet:
    return client_configuration.build_client_snippet(
        client, COMMAND, "w-1", folder=tmp_path / "project", home=tmp_path, environ={}
    )


@pytest.mark.parametrize("client", ["claude-code", "cursor", "vscode", "gemini"])
def test_it_is_written_beside_what_is_there(client: str, tmp_path: Path) -> None:
    found = made(client, tmp_path)
    outer = found.path_in[0]
    found.file.parent.mkdir(parents=True)
    found.file.write_text(json.dumps({outer: {"other": {"command": "x"}}, "theme": "é"}))
    assert client_configuration.add_snippet_if_missing(found)
    whole = json.loads(found.file.read_text())
    assert whole["theme"] == "é"
    assert whole[outer]["other"] == {"command": "x"}
    assert whole[outer]["helix-w-1"]["command"] == "helix-desktop"
    assert whole[outer]["helix-w-1"]["args"] == ["mcp", "--workspace", "w-1"]
    assert not client_configuration.add_snippet_if_missing(found)
    assert json.loads(found.text)[outer]["helix-w-1"] == whole[outer]["helix-w-1"]


def test_comments_stay(tmp_path: Path) -> None:
    found = made("opencode", tmp_path)
    found.file.parent.mkdir(parents=True)
    found.file.write_text('{\n  // mine\n  "mcp": {"other": {"type": "remote"}}\n}')
    assert client_configuration.add_snippet_if_missing(found)
    text = found.file.read_text()
    servers = parse_commented_json(text, "it")["mcp"]
    assert "// mine" in text
    assert servers["helix-w-1"] == {"type": "local", "command": COMMAND, "enabled": True}
    assert servers["other"] == {"type": "remote"}
    assert not client_configuration.add_snippet_if_missing(found)


def test_codexs_own_folder_keeps_its_comments_and_other_servers(tmp_path: Path) -> None:
    found = made("codex", tmp_path)
    assert found.file == tmp_path / ".codex" / "config.toml"
    found.file.parent.mkdir()
    found.file.write_text('model = "x" # mine\n\n[mcp_servers.other]\ncommand = "y"\n')
    assert client_configuration.add_snippet_if_missing(found)
    text = found.file.read_text()
    assert text.startswith('model = "x" # mine\n')
    servers = tomllib.loads(text)["mcp_servers"]
    ours = {"command": COMMAND[0], "args": COMMAND[1:], "startup_timeout_sec": 60}
    assert servers == {"other": {"command": "y"}, "helix-w-1": ours}
    assert not client_configuration.add_snippet_if_missing(found)
    assert found.file.read_text() == text
    found.file.write_text("mcp_servers = 3")
    with pytest.raises(ConfigFileMistake, match="Nothing was changed"):
        client_configuration.add_snippet_if_missing(found)


def test_a_new_file_is_made(tmp_path: Path) -> None:
    assert client_configuration.add_snippet_if_missing(made("cursor", tmp_path))
    assert (tmp_path / "project" / ".cursor" / "mcp.json").exists()


@pytest.mark.parametrize("content", ["[]", '{"mcpServers": []}', "{"])
def test_what_is_not_understood_is_left_untouched(content: str, tmp_path: Path) -> None:
    found = made("claude-code", tmp_path)
    found.file.parent.mkdir(parents=True)
    found.file.write_text(content)
    with pytest.raises(ConfigFileMistake, match="Nothing was changed"):
        client_configuration.add_snippet_if_missing(found)
    assert found.file.read_text() == content


@pytest.mark.skipif(sys.platform == "win32", reason="links and rights of POSIX")
def test_a_link_stays_and_the_rights_stay(tmp_path: Path) -> None:
    found = made("claude-code", tmp_path)
    real = tmp_path / "kept elsewhere.json"
    real.write_text("{}")
    real.chmod(0o600)
    found.file.parent.mkdir(parents=True)
    found.file.symlink_to(real)
    assert client_configuration.add_snippet_if_missing(found)
    assert found.file.is_symlink()
    assert "helix-w-1" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_a_file_in_the_way_is_a_sentence(tmp_path: Path) -> None:
    found = made("cursor", tmp_path)
    found.file.parent.parent.mkdir(parents=True)
    found.file.parent.write_text("no folder")
    with pytest.raises(StoreFailed, match="could not be"):
        client_configuration.add_snippet_if_missing(found)


def test_gooses_is_shown_and_not_written(tmp_path: Path) -> None:
    found = made("goose", tmp_path)
    assert '  "helix-w-1":\n    name: "helix-w-1"' in found.text
    with pytest.raises(InvalidInput, match="yourself"):
        client_configuration.add_snippet_if_missing(found)
    with pytest.raises(
        InvalidInput,
        match="claude-code, codex, gemini, opencode, pi, qwen-code, cursor, vscode, goose",
    ):
        made("emacs", tmp_path)


def test_a_server_that_is_there_under_another_name_is_not_added_again(tmp_path: Path) -> None:
    for client, outer in (("claude-code", "mcpServers"), ("codex", "mcp_servers")):
        found = made(client, tmp_path)
        found.file.parent.mkdir(exist_ok=True)
        now = {outer: {"helix-context-cache": found.entry}}
        found.file.write_text(tomlkit.dumps(now) if client == "codex" else json.dumps(now))
        assert not client_configuration.add_snippet_if_missing(found)
