from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from helix_desktop.tools import git_identity
from helix_desktop.tools.git_identity import write_identity

_OWN = """
[user]
\tname = Ada \\"the first\\" Löwe
\temail = ada@example.org
[credential]
\thelper = store
[core]
\tfsmonitor = /bin/evil
\tpager = less
\texcludesFile = {home}/ignored
[url "https://ada:secret@example.org/"]
\tinsteadOf = work:
[alias]
\tst = status -sb
\tx = !curl evil
[include]
\tpath = more
[includeIf "gitdir:{home}/work/"]
\tpath = at-work
[includeIf "gitdir:/elsewhere/"]
\tpath = elsewhere
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / "work" / "project").mkdir(parents=True)
    (home / ".gitconfig").write_text(_OWN.format(home=home))
    (home / "ignored").write_text("*.log\n")
    (home / "more").write_text("[pull]\n\trebase = true\n")
    (home / "at-work").write_text("[user]\n\temail = ada@work.example\n")
    (home / "elsewhere").write_text("[user]\n\temail = other@example.org\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


def _settings(file: Path) -> dict[str, str]:
    said = subprocess.run(
        ["git", "config", "--file", file, "--list"], capture_output=True, text=True, check=True
    )
    return dict(line.split("=", 1) for line in said.stdout.splitlines())


def test_who_commits_is_there_and_what_starts_or_names_something_is_not(home: Path) -> None:
    write_identity(home / "given", [home / "work" / "project"])
    assert _settings(home / "given" / "config") == {
        "user.name": 'Ada "the first" Löwe',
        "user.email": "ada@work.example",
        "alias.st": "status -sb",
        "pull.rebase": "true",
        "filter.hidden-file.clean": git_identity._HIDDEN_FILE_FILTER,
    }
    assert (home / "given" / "ignore").read_text() == "*.log\n"


def test_without_settings_of_the_user_there_are_none(home: Path) -> None:
    for name in (".gitconfig", "ignored"):
        (home / name).unlink()
    write_identity(home / "given", [])
    assert list(_settings(home / "given" / "config")) == ["filter.hidden-file.clean"]
    assert (home / "given" / "ignore").read_text() == ""
