from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop import atomic_files
from helix_desktop.errors import (
    ConfigFileMistake,
    InvalidInput,
    NotFound,
    StoreFailed,
    WrittenByNewerVersion,
)
from helix_desktop.program_settings import find_line_of_key
from helix_desktop.store import workspace_settings
from helix_desktop.store.workspace_settings import WorkspaceConfig, parse_workspace_settings

PATH = Path("workspace.toml")
GOOD = """\
# mine
version = 1
name = "Thesis"   # its name
colour = "#7aa2f7"
roots = ["/home/me/a", "/home/me/b"]
mood = "sunny"

[models]
main = "anthropic/claude"
fast = ""

[policy]
preset = "layered"
[policy.values]
handover_at = 0.85  # late
[permissions]
mode = "ask"
[[permissions.rules]]
tool = "shell"
allow = ["ls *"]

[mcp.github]
command = "github-mcp"
env = { A = "b" }
[limits]
cache_bytes = 5_000
"""


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    """Editors of Windows put it at the beginning."""
    path = tmp_path / "workspace.toml"
    path.write_text("\ufeff" + GOOD, encoding="utf-8")
    assert workspace_settings.read_workspace_settings(path).name == "Thesis"
    workspace_settings.change_workspace_settings(path, {"name": "Book"})
    assert workspace_settings.read_workspace_settings(path).name == "Book"


def test_everything_is_read() -> None:
    settings = parse_workspace_settings(GOOD, PATH)
    assert settings.name == "Thesis"
    assert settings.roots == ("/home/me/a", "/home/me/b")
    assert settings.models == {"main": "anthropic/claude"}
    assert (settings.preset, settings.policy) == ("layered", {"handover_at": 0.85})
    assert (settings.mode, settings.rules) == ("ask", ({"tool": "shell", "allow": ["ls *"]},))
    assert settings.mcp == {"github": {"command": "github-mcp", "env": {"A": "b"}}}
    assert settings.limit == 5000
    assert len(settings.warnings) == 1
    assert "line 6: mood" in settings.warnings[0]


@settings(max_examples=300)
@given(st.data())
def test_whatever_is_in_the_file_it_is_read_or_refused_in_a_sentence(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(GOOD)))
    text = GOOD[:at] + data.draw(st.text(max_size=12)) + GOOD[at + data.draw(st.integers(0, 30)) :]
    with contextlib.suppress(ConfigFileMistake, WrittenByNewerVersion):
        assert isinstance(parse_workspace_settings(text, PATH), WorkspaceConfig)


def test_an_empty_file_is_a_workspace_with_no_settings() -> None:
    assert parse_workspace_settings("", PATH) == WorkspaceConfig()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = 5", ["line 1", "name = 5", "a text"]),
        ('version = 1\nroots = "/home"', ["line 2", "roots", "a list of folders"]),
        ("[models]\nmain = true", ["line 2", "models.main", "name of a model"]),
        ("[limits]\n\ncache_bytes = -1", ["line 3", "limits.cache_bytes", "number of bytes"]),
        ("limits.cache_bytes = 1.5", ["line 1", "limits.cache_bytes"]),
        ("mcp = 3", ["line 1", "mcp", "table for each server"]),
        ("[mcp]\ngithub = 1", ["line 1", "mcp"]),
        ('colour = "#12"', ["line 1", "colour"]),
        ('effort = "hgih"', ["line 1", "effort", "low"]),
        ("permissions.rules = [1]", ["line 1", "permissions.rules"]),
        ("name = 'a\nx = 1", ["line 1"]),
        ("a = 1\nb = ]", ["line 2"]),
        ("a = 1\na = 2", ["a"]),
    ],
)
def test_a_mistake_names_line_key_and_what_was_expected(text: str, said: list[str]) -> None:
    with pytest.raises(ConfigFileMistake) as caught:
        parse_workspace_settings(text, PATH)
    for each in ("workspace.toml", *said):
        assert each in str(caught.value)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ('color = "#7aa2f7"', "colour"),
        ("root = []", "roots"),
        ('[model]\nmain = "x"', "models"),
        ('[models]\nmian = "x"', "models.main"),
        ("cache_bytes = 5", "limits.cache_bytes"),
    ],
)
def test_an_unknown_key_that_looks_like_one_gets_a_suggestion(text: str, suggestion: str) -> None:
    (warning,) = parse_workspace_settings(text, PATH).warnings
    assert f"Did you mean {suggestion}?" in warning


def test_a_newer_file_is_left_alone() -> None:
    with pytest.raises(WrittenByNewerVersion):
        parse_workspace_settings("version = 2", PATH)


def test_a_change_keeps_comments_unknown_keys_and_order(tmp_path: Path) -> None:
    path = tmp_path / "workspace.toml"
    path.write_text(GOOD)
    settings = workspace_settings.change_workspace_settings(
        path,
        {
            "name": "New",
            "models.long": "z",
            "policy.values": {"x": 1},
            "permissions.mode": None,
            "limits.cache_bytes": 7,
        },
    )
    assert (
        settings.name,
        settings.models["long"],
        settings.policy,
        settings.mode,
        settings.limit,
    ) == (
        "New",
        "z",
        {"x": 1},
        "",
        7,
    )
    text = path.read_text()
    for kept in (
        "# mine",
        "# its name",
        'mood = "sunny"',
        "[[permissions.rules]]",
        'env = { A = "b" }',
    ):
        assert kept in text
    assert text.index("[models]") < text.index("[policy]") < text.index("[mcp.github]")
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize("name", ["my.server", "my server", 'a "b"', "ü", "a\\b"])
def test_a_name_of_any_letters_is_changed_where_it_stands(tmp_path: Path, name: str) -> None:
    path = tmp_path / "workspace.toml"
    path.write_text(GOOD)
    key = f"mcp.{workspace_settings.quote_key_part(name)}"
    assert workspace_settings.change_workspace_settings(path, {key: {"command": "x"}}).mcp[
        name
    ] == {"command": "x"}
    assert set(
        workspace_settings.change_workspace_settings(path, {f"{key}.enabled": False}).mcp
    ) == {"github", name}
    assert workspace_settings.read_workspace_settings(path).mcp[name] == {
        "command": "x",
        "enabled": False,
    }
    assert set(workspace_settings.change_workspace_settings(path, {key: None}).mcp) == {"github"}


def test_a_change_takes_edits_by_hand_along(tmp_path: Path) -> None:
    path = tmp_path / "workspace.toml"
    atomic_files.write_file_atomically(
        path, workspace_settings.new_settings_text("A", "#123456", ("/x",))
    )
    path.write_text(path.read_text() + "\n[models]\nmain = 'by hand'\n")
    assert workspace_settings.change_workspace_settings(path, {"name": "B"}).models == {
        "main": "by hand"
    }


def test_a_file_with_a_mistake_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "workspace.toml"
    path.write_text("name = ")
    with pytest.raises(ConfigFileMistake):
        workspace_settings.change_workspace_settings(path, {"name": "B"})
    assert path.read_text() == "name = "


def test_a_value_that_does_not_fit_is_refused_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "workspace.toml"
    atomic_files.write_file_atomically(path, workspace_settings.new_settings_text("A", "", ()))
    before = path.read_text()
    with pytest.raises(ConfigFileMistake) as refused:
        workspace_settings.change_workspace_settings(path, {"colour": "#nonsense"})
    assert str(refused.value).startswith(
        "colour = '#nonsense' is not valid"
    )  # the file has no mistake
    assert str(refused.value).endswith("Nothing was changed.")
    assert path.read_text() == before


def test_a_name_that_is_not_utf_8_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "workspace.toml"
    atomic_files.write_file_atomically(path, workspace_settings.new_settings_text("A", "", ()))
    before = path.read_text()
    with pytest.raises(InvalidInput, match="Only UTF-8"):
        workspace_settings.change_workspace_settings(path, {"name": "a\udcff"})
    assert path.read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == ["workspace.toml"]


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        workspace_settings.read_workspace_settings(tmp_path / "workspace.toml")
    (tmp_path / "latin").write_bytes(b"name = '\xe9'")
    with pytest.raises(ConfigFileMistake, match="UTF-8"):
        workspace_settings.read_workspace_settings(tmp_path / "latin")
    with pytest.raises(StoreFailed):
        workspace_settings.read_workspace_settings(tmp_path)


@pytest.mark.parametrize(
    ("dotted", "line"),
    [
        ("name", 3),
        ("models", 8),
        ("models.main", 9),
        ("policy.values", 14),
        ("mcp.github", 22),
        ("nowhere", 1),
    ],
)
def test_lines_are_found(dotted: str, line: int) -> None:
    assert find_line_of_key(GOOD, dotted) == line


def test_what_commands_see_is_read_and_what_was_never_set_is_told_from_nothing() -> None:
    text = '[permissions]\nopenings = ["ssh"]\nreadable = ["~/data"]\nhidden = []\n'
    settings = parse_workspace_settings(text, PATH)
    assert (settings.openings, settings.readable, settings.hidden) == (("ssh",), ("~/data",), ())
    assert parse_workspace_settings("", PATH).hidden is None


def test_what_the_program_writes_into_tables_of_its_own_is_no_mistake() -> None:
    """The defect: an MCP tool that was allowed in the chat was said to be no setting at
    the next start.
    """
    text = '[permissions.approved]\nweather__get_weather = "3fa9"\n[permissions.trusted]\n"AGENTS.md" = "3fa9"\n'
    settings = parse_workspace_settings(text, PATH)
    assert settings.warnings == ()
    assert settings.approved == {"weather__get_weather": "3fa9"}
