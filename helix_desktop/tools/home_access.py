"""What a user can open of their home to a workspace's commands, by name or by folder."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from helix_desktop import resources
from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class HomeOpening:
    """One thing people do with programs that keep keys in the home. Only commands with
    network access get it. `what_it_gives_away`: what commands could then do.
    `complaint_pattern`: how programs complain without it.
    """

    name: str
    title: str
    what_it_gives_away: str
    paths: tuple[str, ...]
    variables: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    complaint_pattern: str = ""


@dataclass(frozen=True, slots=True)
class CommandOpenings:
    """What commands can see: named openings and the user's added folders, but never
    hidden files.
    """

    names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


NOTHING_OPENED = CommandOpenings()


def _read_opening(name: str, fields: Mapping[str, Any]) -> HomeOpening:
    lists = {key: tuple(fields.get(key, "").split()) for key in ("paths", "variables", "sockets")}
    values: dict[str, Any] = {**fields, **lists}
    return HomeOpening(name, **values)


OPENINGS = tuple(
    _read_opening(name, fields) for name, fields in resources.read_table("openings").items()
)
OPENING_NAMES = tuple(opening.name for opening in OPENINGS)
_BY_NAME = {opening.name: opening for opening in OPENINGS}


def openings_in_force(opened: CommandOpenings, *, network: bool) -> list[HomeOpening]:
    """Return the openings that apply to a command. Unknown names open nothing."""
    return [_BY_NAME[name] for name in opened.names if name in _BY_NAME] if network else []


def opened_paths(opened: CommandOpenings, home: str, *, network: bool) -> Iterator[str]:
    for opening in openings_in_force(opened, network=network):
        yield from (f"{home}/{name}" for name in opening.paths)
    for folder in opened.folders:
        path = home + folder[1:] if folder.startswith("~/") else folder
        if path.startswith(f"{home}/"):
            yield path


def opened_variables(opened: CommandOpenings, *, network: bool) -> list[str]:
    return [
        name for opening in openings_in_force(opened, network=network) for name in opening.variables
    ]


def opened_sockets(
    opened: CommandOpenings, environ: Mapping[str, str], *, network: bool
) -> Iterator[str]:
    """Yield sockets a command can reach: by path, by a variable, or below a folder a
    variable names.
    """
    for opening in openings_in_force(opened, network=network):
        for name in opening.sockets:
            variable, slash, below = name.partition("/")
            path = (environ.get(variable, "") + slash + below).removeprefix("unix://")
            if path.startswith("/"):
                yield path


def titles_of_openings(names: Sequence[str]) -> list[str]:
    return [_BY_NAME[name].title for name in names if name in _BY_NAME]


def openings_missed_by(output: str, opened: CommandOpenings, *, network: bool) -> list[HomeOpening]:
    """Return the openings whose absence a program seems to complain about."""
    there = openings_in_force(opened, network=network)
    return [
        one
        for one in OPENINGS
        if one not in there and one.complaint_pattern and re.search(one.complaint_pattern, output)
    ]
