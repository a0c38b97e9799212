from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from helix_desktop.context_server import client_snippets
from helix_desktop.errors import ConfigFileMistake, InvalidInput, StoreFailed

COMMAND = ["helix-desktop", "mcp", "--workspace", "w-1"]


def made(client: str, tmp_path: Path) -> client_snippets.ClientSnippet:
    return client_snippets.build_client_snippet(client, COMMAND, "helix", folder=tmp_path / "project", home=tmp_path)


@pytest.mark.parametrize("client", ["claude-code", "cursor", "vscode"])
def test_it_is_written_beside_what_is_there(client: str, tmp_path: Path) -> None:
    found = made(client, tmp_path)
    outer = found.path_in[0]
    found.file.parent.mkdir(parents=True)
    found.file.write_text(json.dumps({outer: {"other": {"command": "x"}}, "theme": "é"}))
    assert client_snippets.write_client_snippet(found)
    whole = json.loads(found.file.read_text())
    assert whole["theme"] == "é"
    assert whole[outer]["other"] == {"command": "x"}
    assert whole[outer]["helix"]["command"] == "helix-desktop"
    assert whole[outer]["helix"]["args"] == ["mcp", "--workspace", "w-1"]
    assert not client_snippets.write_client_snippet(found)
    assert json.loads(found.text)[outer]["helix"] == whole[outer]["helix"]


def test_a_new_file_is_made(tmp_path: Path) -> None:
    assert client_snippets.write_client_snippet(made("cursor", tmp_path))
    assert (tmp_path / "project" / ".cursor" / "mcp.json").exists()


@pytest.mark.parametrize("content", ["// mine\n{}", "[]", '{"mcpServers": []}', "{"])
def test_what_is_not_understood_is_left_untouched(content: str, tmp_path: Path) -> None:
    found = made("claude-code", tmp_path)
    found.file.parent.mkdir(parents=True)
    found.file.write_text(content)
    with pytest.raises(ConfigFileMistake, match=r"[Nn]othing was written"):
        client_snippets.write_client_snippet(found)
    assert found.file.read_text() == content


@pytest.mark.skipif(sys.platform == "win32", reason="links and rights of POSIX")
def test_a_link_stays_and_the_rights_stay(tmp_path: Path) -> None:
    found, real = made("claude-code", tmp_path), tmp_path / "kept elsewhere.json"
    real.write_text("{}")
    real.chmod(0o600)
    found.file.parent.mkdir(parents=True)
    found.file.symlink_to(real)
    assert client_snippets.write_client_snippet(found)
    assert found.file.is_symlink()
    assert "helix" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_a_file_in_the_way_is_a_sentence(tmp_path: Path) -> None:
    found = made("cursor", tmp_path)
    found.file.parent.parent.mkdir(parents=True)
    found.file.parent.write_text("no folder")
    with pytest.raises(StoreFailed, match="could not be"):
        client_snippets.write_client_snippet(found)


def test_gooses_is_shown_and_not_written(tmp_path: Path) -> None:
    found = made("goose", tmp_path)
    assert '  "helix":\n    name: "helix"' in found.text
    with pytest.raises(InvalidInput, match="yourself"):
        client_snippets.write_client_snippet(found)
    with pytest.raises(InvalidInput, match="claude-code, cursor, vscode, goose"):
        made("emacs", tmp_path)
