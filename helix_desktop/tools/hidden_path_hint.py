"""Says after a failed command which paths the sandbox hid from it, and how to open them."""

# ruff: noqa: PTH110 -- paths as texts

import os
import re
from collections.abc import Callable, Mapping, Sequence

from helix_desktop.tools.home_access import OPENINGS, CommandOpenings, openings_missed_by
from helix_desktop.tools.sandbox_home import build_closed_home, home_folders, is_within_folder

_PATH = re.compile(r"(?:~|/)[\w.@+~%/-]*[\w@+~%/-]")
_NAME = re.compile(r"[\w.@+~%-]+")
# Commands say this about mount points, such as hidden files and the folders that contain them.
_IN_USE = re.compile(r"busy|EBUSY|belegt|忙")
_CHANGED = re.compile(r"unstaged changes|uncommitted changes")
_MOST_PATHS, _NAMED = 200, 3
_WAY = "in Settings > Permissions"


def describe_hidden_paths(
    line: str,
    output: str,
    opened: CommandOpenings,
    folders: Sequence[str],
    environ: Mapping[str, str],
    *,
    network: bool,
) -> str:
    """Return sentences for the end of the output, or an empty string if nothing hidden
    explains a failure.
    """

    def list_shown_folders() -> list[str]:
        there = build_closed_home(folders, environ, "", opened, network=network)
        return [*folders, *(place for _, place in there.readable_paths)]

    homes = home_folders(environ)
    paths = _find_hidden_paths(f"{line}\n{output}", homes, environ, list_shown_folders)
    named = [
        one
        for one in OPENINGS
        if any(_opening_covers_path(one.paths, path, homes) for path in paths)
    ]
    found = []
    for one in dict.fromkeys((*named, *openings_missed_by(output, opened, network=network))):
        there = [
            f"~/{name}" for home in homes for name in one.paths if os.path.exists(f"{home}/{name}")
        ]
        if one.name in opened.names and not network:
            found.append(f"{one.title} is open to commands with network access only.")
        elif there or one.sockets:
            places = f" hides {', '.join(there[:_NAMED])}, and" if there else ""
            found.append(
                f"The sandbox{places} does not let commands use {one.title}. The user can open it {_WAY}; "
                f'one command can ask with `network` and `needs`: "{one.name}".'
            )
    others = [
        path
        for path in paths
        if not any(_opening_covers_path(one.paths, path, homes) for one in OPENINGS)
    ]
    if others:
        found.append(
            f"The sandbox hides {', '.join(others[:_NAMED])}: of the home folder, commands see toolchains only. "
            f"The user can add a folder under Folders that commands can read, {_WAY}."
        )
    if hidden := _find_hidden_files(f"{line}\n{output}", opened.hidden, folders):
        found.append(
            f"Agents don't see {', '.join(hidden[:_NAMED])} in this workspace. A command that reads, changes, moves or "
            "removes such a file can ask with `needs`, by the path of the file or of a folder around it. "
            "Git shows such a file as changed until `git add -u`, which keeps it as it was."
        )
    return "".join(f"[{sentence}]\n" for sentence in found)


def _find_hidden_files(text: str, hidden: Sequence[str], folders: Sequence[str]) -> list[str]:
    """Return hidden files that a text names, or all if git reports changes without names."""
    inside = [
        next((path[len(top) + 1 :] for top in folders if is_within_folder(path, top)), path)
        for path in hidden
    ]
    named = [path for path in inside if path in text] or [
        path
        for path in inside
        if os.path.basename(path) in text  # noqa: PTH119
    ]
    if not named and _IN_USE.search(text):
        words = set(_NAME.findall(text))
        named = [path for path in inside if not words.isdisjoint(path.split("/"))]
    return named or (inside if _CHANGED.search(text) else [])


def _find_hidden_paths(
    text: str, homes: Sequence[str], environ: Mapping[str, str], list_shown: Callable[[], list[str]]
) -> list[str]:
    """Return existing paths in a text that the command could not see."""
    spelled = os.path.normpath(environ.get("HOME", "") or "/")
    shown: list[str] | None = None
    found: list[str] = []
    for word in list(dict.fromkeys(_PATH.findall(text)))[:_MOST_PATHS]:
        path = os.path.normpath(spelled + word[1:] if word.startswith("~") else word)
        real = (
            homes[0] + path[len(spelled) :] if homes and is_within_folder(path, spelled) else path
        )
        if not any(
            is_within_folder(real, home) and real != home for home in homes
        ) or not os.path.exists(real):
            continue
        if shown is None:
            shown = list_shown()
        if not any(is_within_folder(real, each) or is_within_folder(each, real) for each in shown):
            found.append(word)
    return found


def _opening_covers_path(names: Sequence[str], path: str, homes: Sequence[str]) -> bool:
    inside = next(
        (path[len(home) :] for home in homes if is_within_folder(path, home)),
        path.removeprefix("~"),
    )
    return any(is_within_folder(inside, f"/{name}") for name in names)
