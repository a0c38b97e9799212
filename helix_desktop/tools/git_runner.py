"""The only way the program runs git: with few settings, and no programs that a repository names.

A repository can come from anywhere, and its settings can name programs for nearly
everything. They cannot all be switched off at once, so we only use commands that read
or write objects, override settings that run something, and never fetch. Of the user's
settings, we use identity, signing and trusted folders.
"""

import functools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from helix_desktop.errors import ActionRefused
from helix_desktop.processes import starter
from helix_desktop.processes.starter import run_process
from helix_desktop.resources import read_word_lists

LIMIT_SECONDS = 120.0
_NOTHING = os.devnull
_SETTINGS = read_word_lists("git_settings")
_OVERRIDDEN = tuple(each.replace("{nothing}", _NOTHING) for each in _SETTINGS["overridden"])
# With these variables, git reads no system or user settings, fetches nothing and
# reaches no other repository.
_ENVIRONMENT = dict(
    each.replace("{nothing}", _NOTHING).split("=") for each in _SETTINGS["environment"]
)


def run_git(
    folder: Path,
    *arguments: str,
    stdin: bytes = b"",
    environment: Mapping[str, str] = {},
    remedy: str = "Nothing was committed.",
    highest_code: int = 0,
    settings: Sequence[str] = (),
) -> bytes:
    """`environment`, `settings`: further variables and settings. `remedy`: what to say
    after git's error message. `highest_code`: the highest exit code that means no
    error.
    """
    if not folder.is_dir():
        raise ActionRefused(f"The workspace's folder {folder} no longer exists.", remedy=remedy)
    if _READING.intersection(arguments[:2]):
        done, of_folder = None, _settings_for_reading(str(Path.home()))
    else:
        done = _list_git_settings(folder, environment)
        of_folder = _settings_for_folder(done.stdout)
    if done is None or not done.returncode:
        given_settings = [
            word for each in (*_OVERRIDDEN, *of_folder, *settings) for word in ("-c", each)
        ]
        words = [
            "git",
            "--no-pager",
            "--no-optional-locks",
            "-C",
            str(folder),
            *given_settings,
            *arguments,
        ]
        done = _run_git_process(words, stdin, _ENVIRONMENT | dict(environment))
    if not 0 <= done.returncode <= highest_code:
        said = (
            done.stderr.decode("utf-8", "replace").strip()
            or done.stdout.decode("utf-8", "replace").strip()
        )
        if "tell me who you are" in said:
            way = 'Run `git config --global user.name "NAME"`, and the same for `user.email`.'
            raise ActionRefused(
                "git does not know your name and email address.", remedy=f"{way} {remedy}"
            )
        if lock := _LOCKED.search(said):
            raise ActionRefused(
                "Another git program is working in this repository, or was killed there.",
                remedy=f"{remedy} Wait until it has ended and try again. If none is running, delete {lock[1]}.",
            )
        told = " ".join(_NO_REASON.sub("", said).split())
        raise ActionRefused(f"git refused: {told[:500].rstrip('.')}.", remedy=remedy)
    return done.stdout


def find_filtered_files(
    folder: Path, names: list[bytes], environment: Mapping[str, str] = {}
) -> list[str]:
    """Return files that a filter of the repository or the user would change on commit."""
    listed = b"".join(name + b"\0" for name in names)
    said = run_git(
        folder, "check-attr", "-z", "--stdin", "filter", stdin=listed, environment=environment
    ).split(b"\0")
    return [
        os.fsdecode(name)
        for name, value in zip(said[::3], said[2::3], strict=False)
        if value not in _UNFILTERED
    ]


def _list_git_settings(folder: Path, environment: Mapping[str, str]) -> starter.FinishedProcess:
    """List the user's settings for a folder, also those included only for it, and those
    of its repository.
    """
    words = ["git", "-C", str(folder), "config", "--includes", "--null", "--show-scope", "--list"]
    variables = {name: value for name, value in _ENVIRONMENT.items() if name != "GIT_CONFIG_GLOBAL"}
    return _run_git_process(words, b"", {**variables, "HOME": str(Path.home()), **environment})


def _settings_for_folder(listed: bytes) -> list[str]:
    """Return the user's settings, and those that disable filters, drivers, hooks and
    merge strategies of the repository.
    """
    users: list[str] = []
    repositorys: list[str] = []  # Names alone: none of their values is used.
    words = listed.decode("utf-8", "surrogateescape").split("\0")
    for scope, entry in zip(words[::2], words[1::2], strict=False):
        if scope == "global":
            users.append(entry)
        else:
            repositorys.append(_name_of_setting(entry))
    off = _list_settings_that_switch_off(repositorys)
    # What the repository sets itself is not the user's choice for it.
    wanted = set(_SETTINGS["of_the_user"]).difference(repositorys)
    wanted.update(_SETTINGS["of_the_user_alone"])
    kept = [entry for entry in users if _name_of_setting(entry) in wanted]
    return [entry.replace("\n", "=", 1) for entry in kept] + off


def _name_of_setting(entry: str) -> str:
    """Git prints a name and its value on lines of their own."""
    return entry.partition("\n")[0]


def _list_settings_that_switch_off(names: Sequence[str]) -> list[str]:
    """Return settings without which git would run programs that the repository names."""
    drivers = [name for name in names if _DRIVER.fullmatch(name)]
    filters = [name for name in names if name.startswith("filter.")]
    hooks = [name for name in names if name.startswith("hook.")]
    if any("=" in name for name in (*drivers, *filters, *hooks)):
        raise ActionRefused(
            "This repository's Git settings name a program with “=”, which Git cannot be told to leave out.",
            remedy="Rename that filter, driver or hook in the repository's .git/config.",
        )
    off = [f"{name}=" for name in drivers]
    # A filter that is required would make git fail without it.
    off += [f"{name.rpartition('.')[0]}.required=false" for name in filters]
    off += [f"{name.rpartition('.')[0]}.enabled=false" for name in hooks]
    return off


@functools.lru_cache(maxsize=4)
def _settings_for_reading(home: str) -> Sequence[str]:
    """Return the user's settings outside any repository, which is enough to read
    objects. `home` is the user's home.
    """
    return _settings_for_folder(_list_git_settings(Path("/"), {"HOME": home}).stdout)


_READING = frozenset({"cat-file", "ls-tree", "ls-files", "rev-parse", "check-attr"})
_DRIVER = re.compile(
    r"(filter\..*\.(clean|smudge|process)|diff\..*\.(command|textconv)|merge\..*\.driver|branch\..*\.mergeoptions)",
    re.DOTALL,
)
_LOCKED = re.compile(r"Unable to create '([^']+\.lock)': File exists")
_NO_REASON = re.compile(r"^(hint:.*|Aborting\.?|error: |fatal: )", re.MULTILINE)
_UNFILTERED = (b"unspecified", b"unset", b"set", b"")


def _run_git_process(
    words: list[str], stdin: bytes, environment: Mapping[str, str]
) -> starter.FinishedProcess:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    git = starter.find_program(words[0])
    if not git:
        raise ActionRefused(
            "The program git was not found.", remedy="Install git, or commit with another program."
        )
    launch = starter.ProcessLaunch(
        starter.CommandAuthor.PROGRAM, [git, *words[1:]], None, {**kept, **environment}
    )
    try:
        return run_process(launch, input_bytes=stdin, seconds=LIMIT_SECONDS)
    except starter.ProcessTimeout as error:
        raise ActionRefused(
            f"git did not finish within {LIMIT_SECONDS:.0f} seconds and was stopped.",
            remedy="Nothing was committed.",
        ) from error
