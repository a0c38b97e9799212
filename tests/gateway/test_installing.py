"""The address goes into an agent's configuration and out again byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.errors import Refused
from helix_desktop.gateway import agents, installing

URL = "http://127.0.0.1:4356/t/"
BEFORE = {
    "claude": b'{"model":"opus",\n  "env": {"A": "1"}}',
    "codex": b'# mine\nmodel = "gpt-5"\n\n[model_providers.own]\nname = "own"\n',
    "opencode": b'{"provider": {"own": {}}}',
    "gemini": b"GEMINI_API_KEY=k\n",
    "pi": b'{"providers": {"own": {"baseUrl": "x"}}}',
}


@pytest.mark.parametrize("name", agents.AGENTS)
@pytest.mark.parametrize("there", [True, False])
def test_installing_and_uninstalling_leaves_the_file_as_it_was(tmp_path: Path, name: str, there: bool) -> None:
    agent, home, config = agents.known(name), tmp_path / "home", tmp_path / "config"
    file = agent.file(home, {})
    if there:
        file.parent.mkdir(parents=True)
        file.write_bytes(BEFORE[name])
    change = installing.planned(agent, 4356, home, {})
    assert URL in change.difference()
    installing.install(change, config)
    assert URL in file.read_text("utf-8")
    assert installing.connected(agent, config)
    ((registration, port),) = installing.installed_registrations(config).items()
    assert (registration.agent, port) == (name, 4356)
    assert registration.token in file.read_text("utf-8")
    installing.uninstall(installing.removal(agent, config), config)
    assert (file.read_bytes() if file.exists() else None) == (BEFORE[name] if there else None)
    assert not installing.connected(agent, config)


def test_a_file_that_somebody_changed_since_is_left_alone(tmp_path: Path) -> None:
    agent, config = agents.known("claude"), tmp_path / "config"
    installing.install(installing.planned(agent, 4356, tmp_path, {}), config)
    file = agent.file(tmp_path, {})
    file.write_text("{}")
    with pytest.raises(Refused, match="was changed"):
        installing.removal(agent, config)
    assert file.read_text() == "{}"
