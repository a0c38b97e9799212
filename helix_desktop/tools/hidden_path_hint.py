"""Says after a failed command which paths the sandbox hid from it, and how to open them."""

# ruff: noqa: PTH110 -- paths as texts

import os
import re
from collections.abc import Callable, Mapping, Sequence

from helix_desktop.tools.home_access import (
    OPENINGS,
    CommandOpenings,
    HomeOpening,
    openings_missed_by,
)
from helix_desktop.tools.sandbox_home import (
    build_closed_home,
    home_folders,
    is_within_any_folder,
    is_within_folder,
    touches_any_folder,
)

_PATH = re.compile(r"(?:~|/)[\w.@+~%/-]*[\w@+~%/-]")
_NAME = re.compile(r"[\w.@+~%-]+")
# Commands say this about mount points, such as hidden files and the folders that contain them.
_IN_USE = re.compile(r"busy|EBUSY|belegt|忙")
_GIT_NAMES_NO_FILES = re.compile(r"unstaged changes|uncommitted changes")
_MOST_PATHS = 200
_MOST_NAMED = 3
_WHERE_TO_OPEN = "in Settings > Permissions"


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

    In this order: what could be opened for the command (an opening is a part of the home,
    such as the settings of git, that the user can open), other paths of the home that it
    names, and files in the workspace that are hidden from agents.
    """

    def list_shown_folders() -> list[str]:
        home = build_closed_home(folders, environ, "", opened, network=network)
        return list(folders) + [place for _, place in home.readable_paths]

    homes = home_folders(environ)
    text = f"{line}\n{output}"
    hidden_paths = _find_hidden_paths(text, homes, environ, list_shown_folders)
    # In the order of the table, whatever the output names first.
    openings = [opening for opening in OPENINGS if _covers_any_path(opening, hidden_paths, homes)]
    openings += openings_missed_by(output, opened, network=network)
    sentences: list[str] = []
    for opening in dict.fromkeys(openings):  # Each once.
        sentences.append(_describe_opening(opening, opened, homes, network=network))
    paths_without_opening = _find_paths_without_opening(hidden_paths, homes)
    if paths_without_opening:
        sentences.append(_describe_paths_without_opening(paths_without_opening))
    hidden_files = _find_hidden_files(text, opened.hidden, folders)
    if hidden_files:
        sentences.append(_describe_hidden_files(hidden_files))
    return "".join(f"[{sentence}]\n" for sentence in sentences if sentence)


def _covers_any_path(opening: HomeOpening, paths: Sequence[str], homes: Sequence[str]) -> bool:
    """Whether this opening would show a command one of these paths."""
    return any(_opening_covers_path(opening.paths, path, homes) for path in paths)


def _find_paths_without_opening(paths: Sequence[str], homes: Sequence[str]) -> list[str]:
    paths_without_opening: list[str] = []
    for path in paths:
        has_opening = any(_covers_any_path(opening, [path], homes) for opening in OPENINGS)
        if not has_opening:
            paths_without_opening.append(path)
    return paths_without_opening


def _describe_paths_without_opening(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:_MOST_NAMED])
    return (
        f"The sandbox hides {shown}: of the home folder, commands see toolchains only. "
        f"The user can add a folder under Folders that commands can read, {_WHERE_TO_OPEN}."
    )


def _describe_hidden_files(files: Sequence[str]) -> str:
    return (
        f"Agents don't see {', '.join(files[:_MOST_NAMED])} in this workspace. A command that reads, changes, moves or "
        "removes such a file can ask with `needs`, by the path of the file or of a folder around it. "
        "Git shows such a file as changed until `git add -u`, which keeps it as it was."
    )


def _describe_opening(
    opening: HomeOpening, opened: CommandOpenings, homes: Sequence[str], *, network: bool
) -> str:
    """Say how commands can use what this opening gives them; empty if there is nothing of it here."""
    if opening.name in opened.names and not network:
        return f"{opening.title} is open to commands with network access only."
    hidden = []
    for home in homes:
        for name in opening.paths:
            if os.path.exists(f"{home}/{name}"):
                hidden.append(f"~/{name}")
    if not hidden and not opening.sockets:
        return ""
    places = ""
    if hidden:
        places = f" hides {', '.join(hidden[:_MOST_NAMED])}, and"
    return (
        f"The sandbox{places} does not let commands use {opening.title}. The user can open it {_WHERE_TO_OPEN}; "
        f'one command can ask with `network` and `needs`: "{opening.name}".'
    )


def _find_hidden_files(text: str, hidden: Sequence[str], folders: Sequence[str]) -> list[str]:
    """Return hidden files that a text names, or all if git reports changes without names."""
    relative_paths = [_path_within_folders(path, folders) for path in hidden]
    named_by_path = [path for path in relative_paths if path in text]
    if named_by_path:
        return named_by_path
    named_by_name = [path for path in relative_paths if os.path.basename(path) in text]  # noqa: PTH119
    if named_by_name:
        return named_by_name
    files_in_use = _find_files_in_use(text, relative_paths)
    if files_in_use:
        return files_in_use
    if _GIT_NAMES_NO_FILES.search(text):
        return relative_paths
    return []


def _find_files_in_use(text: str, paths: Sequence[str]) -> list[str]:
    """Return files in a folder that a command could not move, as it says by the folder's name."""
    if not _IN_USE.search(text):
        return []
    words = set(_NAME.findall(text))
    return [path for path in paths if not words.isdisjoint(path.split("/"))]


def _path_within_folders(path: str, folders: Sequence[str]) -> str:
    for folder in folders:
        if is_within_folder(path, folder):
            return path[len(folder) + 1 :]
    return path


def _find_hidden_paths(
    text: str, homes: Sequence[str], environ: Mapping[str, str], list_shown: Callable[[], list[str]]
) -> list[str]:
    """Return existing paths in a text that the command could not see, as the text writes them.

    `list_shown` is only called if a path in the home is named at all.
    """
    paths_in_home: dict[str, str] = {}
    words = list(dict.fromkeys(_PATH.findall(text)))
    for word in words[:_MOST_PATHS]:
        path = _real_path_of_word(word, homes, environ)
        other_homes = [home for home in homes if home != path]
        if is_within_any_folder(path, other_homes) and os.path.exists(path):
            paths_in_home[word] = path
    if not paths_in_home:
        return []

    shown_folders = list_shown()
    hidden_words: list[str] = []
    for word, path in paths_in_home.items():
        if not touches_any_folder(path, shown_folders):
            hidden_words.append(word)
    return hidden_words


def _real_path_of_word(word: str, homes: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the path that a word names. HOME, which `~` stands for, may be a link to the
    real home, which is the first of `homes`.
    """
    home_of_user = environ.get("HOME", "") or "/"
    named_home = os.path.normpath(home_of_user)
    full_path = word
    if word.startswith("~"):
        full_path = named_home + word.removeprefix("~")
    path = os.path.normpath(full_path)
    if homes and is_within_folder(path, named_home):
        return homes[0] + path[len(named_home) :]
    return path


def _opening_covers_path(names: Sequence[str], path: str, homes: Sequence[str]) -> bool:
    path_in_home = path.removeprefix("~")
    for home in homes:
        if is_within_folder(path, home):
            path_in_home = path[len(home) :]
            break
    return any(is_within_folder(path_in_home, f"/{name}") for name in names)
