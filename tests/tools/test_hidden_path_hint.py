from __future__ import annotations

import time
from pathlib import Path

import pytest

from helix_desktop.tools.hidden_path_hint import describe_hidden_paths
from helix_desktop.tools.home_access import NOTHING_OPENED, CommandOpenings


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in (
        "home/.ssh/id",
        "home/.aws/credentials",
        "home/data/set",
        "home/.pyenv/shims/python",
        "work/.env",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path / "home"


def _hint(
    home: Path,
    line: str,
    output: str,
    opened: CommandOpenings = NOTHING_OPENED,
    *,
    network: bool = True,
) -> str:
    return describe_hidden_paths(
        line, output, opened, [str(home.parent / "work")], {"HOME": str(home)}, network=network
    )


@pytest.mark.parametrize(
    ("line", "output", "wanted"),
    [
        ("git push", "Host key verification failed.", '"ssh"'),
        ("git push", "git@host: Permission denied (publickey).", '"ssh"'),
        ("cat ~/.ssh/id", "cat: No such file or directory", '"ssh"'),
        (
            "aws s3 ls",
            'Unable to locate credentials. You can configure them by running "aws configure".',
            '"aws"',
        ),
        (
            "docker ps",
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
            '"docker"',
        ),
        ("cat ~/data/set", "", "hides ~/data/set"),
        ("x", "cannot open {home}/data/set", "hides {home}/data/set"),
    ],
)
def test_a_hidden_path_is_named_with_what_opens_it(
    home: Path, line: str, output: str, wanted: str
) -> None:
    assert wanted.format(home=home) in _hint(home, line, output.format(home=home))


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("make", "No rule to make target"),
        ("cat ~/missing", "No such file"),
        ("~/.pyenv/shims/python x", "SyntaxError"),
        ("cat ../work/x /etc/missing", "No such file"),
        ("cd ~", "failed"),
    ],
)
def test_what_was_not_hidden_is_not_blamed(home: Path, line: str, output: str) -> None:
    assert _hint(home, line, output) == ""


def test_what_is_open_is_not_blamed_and_the_network_is_named(home: Path) -> None:
    opened = CommandOpenings(("ssh",), ("~/data",))
    assert _hint(home, "cat ~/.ssh/id ~/data/set", "", opened) == ""
    assert "with network access only" in _hint(home, "cat ~/.ssh/id", "", opened, network=False)


def test_a_file_that_no_agent_sees_is_named(home: Path) -> None:
    opened = CommandOpenings(hidden=(str(home.parent / "work" / ".env"),))
    assert "don't see .env" in _hint(home, "node --env-file=.env x", "", opened)
    assert _hint(home, "node x", "", opened) == ""


def test_an_output_that_complains_without_end_takes_no_quadratic_time(home: Path) -> None:
    start = time.thread_time()
    assert _hint(home, "x", "The config profile (" * 20_000) == ""
    assert time.thread_time() - start < 2
