"""What the user opened is there for commands with the network, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.tools import home_access
from helix_desktop.tools.home_access import CommandOpenings, find_openings_on_computer

OPENED = CommandOpenings(("ssh", "docker", "no such opening"), ("~/data", "/srv/x", "/home/me/y"))


def test_an_opening_counts_only_with_the_network() -> None:
    assert home_access.openings_in_force(OPENED, network=False) == []
    names = [one.name for one in home_access.openings_in_force(OPENED, network=True)]
    assert names == ["ssh", "docker"]
    assert home_access.opened_variables(OPENED, network=False) == []
    assert "SSH_AUTH_SOCK" in home_access.opened_variables(OPENED, network=True)


def test_folders_that_the_user_added_count_always_and_in_this_home_alone() -> None:
    paths = list(home_access.opened_paths(OPENED, "/home/me", network=False))
    assert paths == ["/home/me/data", "/home/me/y"]
    with_network = list(home_access.opened_paths(OPENED, "/home/me", network=True))
    assert with_network[0] == "/home/me/.ssh"
    assert with_network[-2:] == paths


def test_a_socket_is_found_by_path_by_variable_or_below_a_folder_that_a_variable_names() -> None:
    environ = {"SSH_AUTH_SOCK": "/tmp/agent", "DOCKER_HOST": "unix:///d.sock", "XDG_RUNTIME_DIR": "/run/1", "CONTAINER_HOST": "tcp://x"}  # fmt: skip
    found = list(home_access.opened_sockets(OPENED, environ, network=True))
    assert {"/tmp/agent", "/d.sock", "/run/1/docker.sock", "/run/docker.sock"} <= set(found)
    assert not any("tcp" in path for path in found)
    assert list(home_access.opened_sockets(OPENED, environ, network=False)) == []


def test_without_its_variable_a_socket_is_nowhere_and_not_below_the_root() -> None:
    found = set(home_access.opened_sockets(OPENED, {}, network=True))
    assert found == {"/run/docker.sock", "/var/run/docker.sock"}
    assert found == set(home_access.opened_sockets(OPENED, {"XDG_RUNTIME_DIR": ""}, network=True))


@pytest.mark.parametrize(
    ("output", "missed"),
    [
        ("git@github.com: Permission denied (publickey).", ["ssh"]),
        ("npm error code E401", ["registries"]),
        ("Cannot connect to the Docker daemon", []),
        ("all fine", []),
    ],
)
def test_what_a_program_complains_about_names_the_opening(output: str, missed: list[str]) -> None:
    opened = CommandOpenings(("docker",))
    found = home_access.openings_missed_by(output, opened, network=True)
    assert [one.name for one in found] == missed


def test_titles_are_those_of_known_openings() -> None:
    assert home_access.titles_of_openings(["gh", "nothing"]) == [
        "GitHub and GitLab command-line tools"
    ]


def test_only_what_a_computer_has_is_listed_and_what_is_open(tmp_path: Path) -> None:
    """Nine sign-ins were listed, most of them for programs that nobody had here."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".config/gh").mkdir(parents=True)
    found = find_openings_on_computer(tmp_path, {"AWS_PROFILE": "work"}, ["azure"])
    assert [opening.name for opening in found if opening.name != "docker"] == [
        "ssh",
        "gh",
        "aws",
        "azure",
    ]
