"""`model`: what can be chosen, and what a workspace uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop import program_folders
from tests.commands.test_provider_command import Helix, MemoryKeyring, helix, ring
from tests.peers.chat_server import ChatServer

__all__ = ["helix", "ring"]  # fixtures


class Several(ChatServer):
    models = ({"id": "big", "context_length": 50_000}, {"id": "gpt-5-mini"})


@pytest.fixture
def workspace(helix: Helix, tmp_path: Path) -> str:
    folder = tmp_path / "project"
    folder.mkdir()
    return helix("workspace", "new", "Thesis", "--folder", folder).out.strip()


def settings_of(workspace: str) -> str:
    (file,) = program_folders.find_program_folders().workspaces_folder.glob(
        f"{workspace}/workspace.toml"
    )
    return file.read_text()


def test_models_are_listed_with_what_is_known(helix: Helix, ring: MemoryKeyring) -> None:
    with Several() as server:
        helix("provider", "add", "work", "--base-url", server.base_url)
        listed = {model["name"]: model for model in helix("model", "list", "--json").json}
        lines = helix("model", "list", "--provider", "work").out.splitlines()
    assert set(listed) == {"work/big", "work/gpt-5-mini", "demo/demo"}
    assert (listed["work/big"]["window"], listed["work/gpt-5-mini"]["window"]) == (50_000, 272_000)
    assert ["50,000" in lines[0], "free" in lines[0], "as of" in lines[1]] == [
        True,
        True,
        True,
    ]


def test_a_provider_that_is_away_does_not_hide_the_others(
    helix: Helix, ring: MemoryKeyring
) -> None:
    with Several() as server:
        helix("provider", "add", "work", "--base-url", server.base_url)
        helix("provider", "add", "away", "--base-url", "http://127.0.0.1:9/v1")
        said = helix("model", "list", "--json")
    assert (said.code, len(said.json), "No connection to away" in said.err) == (0, 3, True)
    assert helix("model", "list", "--provider", "away").code == 1


def test_a_workspace_gets_a_model_for_each_role(
    helix: Helix, ring: MemoryKeyring, workspace: str
) -> None:
    with Several() as server:
        helix("provider", "add", "work", "--base-url", server.base_url)
        assert helix("model", "set", "work/big", "--workspace", "Thesis").code == 0
        said = helix("model", "set", "work/gpt-5-mini", "-w", workspace, "--role", "fast", "--json")
    assert said.json == {"workspace": workspace, "role": "fast", "model": "work/gpt-5-mini"}
    assert 'main = "work/big"' in settings_of(workspace)
    assert 'fast = "work/gpt-5-mini"' in settings_of(workspace)


def test_what_is_known_can_be_corrected(helix: Helix, ring: MemoryKeyring) -> None:
    with Several() as server:
        helix("provider", "add", "work", "--base-url", server.base_url)
        said = helix("model", "set", "work/big", "--window", 12_345, "--input", 1.5, "--json")
        assert (said.json["window"], said.json["input"], said.json["note"]) == (
            12_345,
            1.5,
            "window as you set it",
        )
        assert helix("model", "list", "--provider", "work", "--json").json[0]["window"] == 12_345


def test_a_model_of_a_provider_that_is_away_can_be_chosen_and_that_is_said(
    helix: Helix, ring: MemoryKeyring, workspace: str
) -> None:
    helix("provider", "add", "away", "--base-url", "http://127.0.0.1:9/v1")
    said = helix("model", "set", "away/m", "-w", workspace)
    assert (said.code, "Not checked" in said.err) == (0, True)


@pytest.mark.parametrize("name", ["demo/demo", "demo"])
def test_the_demonstration_can_be_chosen(
    helix: Helix, ring: MemoryKeyring, workspace: str, name: str
) -> None:
    assert helix("model", "set", name, "-w", workspace).code == 0
    assert 'main = "demo/demo"' in settings_of(workspace)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("big", "-w", "Thesis"), 2, "PROVIDER/MODEL"),
        (("work/", "-w", "Thesis"), 2, "PROVIDER/MODEL"),
        (
            ("work/nope", "-w", "Thesis"),
            1,
            "has no model named 'nope'. The provider's models are: big",
        ),
        (("nobody/m", "-w", "Thesis"), 1, "There is no provider"),
        (("work/big", "-w", "Nowhere"), 1, "Nowhere"),
        (("work/big", "--window", "-5"), 2, "must be 0 or greater"),
        (("work/big", "--input", "nan"), 2, "must be 0 or greater"),
        (("work/big", "--input", "inf"), 2, "must be 0 or greater"),
        (("work/big", "-w", "Thesis", "--role", "odd"), 2, "invalid choice"),
    ],
)
def test_mistakes_are_a_sentence(
    helix: Helix,
    ring: MemoryKeyring,
    workspace: str,
    arguments: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    with Several() as server:
        helix("provider", "add", "work", "--base-url", server.base_url)
        said = helix("model", "set", *arguments)
    assert (said.code, words in said.err) == (code, True), said.err
    assert "main" not in settings_of(workspace)


def test_a_correction_of_a_model_that_is_not_there_changes_nothing(
    helix: Helix, ring: MemoryKeyring
) -> None:
    assert helix("model", "set", "demo/none", "--window", 5_000).code == 1
    assert not program_folders.find_program_folders().providers_file.exists()
    assert helix("model", "set", "demo/demo", "--window", 5_000).code == 0
    assert [one["name"] for one in helix("provider", "list", "--json").json] == ["demo"]


def test_a_model_is_chosen_for_the_workspace_of_the_folder(
    helix: Helix,
    ring: MemoryKeyring,
    workspace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path / "project")
    assert helix("model", "set", "demo/demo").code == 0
    assert 'main = "demo/demo"' in settings_of(workspace)
