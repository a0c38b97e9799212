"""The only way the program runs git: with few settings, and no programs that a repository names.

A repository can come from anywhere, and its settings can name programs for nearly everything. They cannot
all be switched off at once, so we only use commands that read or write objects, override settings that
run something, and never fetch. Of the user's settings, we use identity, signing and trusted folders.
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
# With these variables, git reads no system or user settings, fetches nothing and reaches no other repository.
_ENVIRONMENT = dict(each.replace("{nothing}", _NOTHING).split("=") for each in _SETTINGS["environment"])


def run_git(
    folder: Path,
    *arguments: str,
    stdin: bytes = b"",
    environment: Mapping[str, str] = {},
    remedy: str = "Nothing was committed.",
    highest_code: int = 0,
    settings: Sequence[str] = (),
) -> bytes:
    """`environment`, `settings`: further variables and settings. `remedy`: what to say after git's error
    message. `highest_code`: the highest exit code that means no error.
    """
    if not folder.is_dir():
        raise ActionRefused(f"The workspace's folder {folder} no longer exists.", remedy=remedy)
    settings = [*_OVERRIDDEN, *_read_user_git_settings(str(Path.home())), *settings]
    variables = _ENVIRONMENT | dict(environment)
    if not _READING.intersection(arguments[:2]):
        settings += _settings_disabling_drivers(folder, variables)
    given_settings = [word for each in settings for word in ("-c", each)]
    words = ["git", "--no-pager", "--no-optional-locks", "-C", str(folder), *given_settings, *arguments]
    done = _run_git_process(words, stdin, variables)
    if not 0 <= done.returncode <= highest_code:
        said = done.stderr.decode("utf-8", "replace").strip() or done.stdout.decode("utf-8", "replace").strip()
        if "tell me who you are" in said:
            _read_user_git_settings.cache_clear()  # The next try has to see the name that is given now.
            way = 'Run `git config --global user.name "NAME"`, and the same for `user.email`.'
            raise ActionRefused("git does not know your name and email address.", remedy=f"{way} {remedy}")
        if lock := _LOCKED.search(said):
            raise ActionRefused(
                "Another git program is working in this repository, or was killed there.",
                remedy=f"{remedy} Wait until it has ended and try again. If none is running, delete {lock[1]}.",
            )
        told = " ".join(_NO_REASON.sub("", said).split())
        raise ActionRefused(f"git refused: {told[:500].rstrip('.')}.", remedy=remedy)
    return done.stdout


def find_filtered_files(folder: Path, names: list[bytes], environment: Mapping[str, str] = {}) -> list[str]:
    """Return files that a filter of the repository or the user would change on commit."""
    listed = b"".join(name + b"\0" for name in names)
    said = run_git(folder, "check-attr", "-z", "--stdin", "filter", stdin=listed, environment=environment).split(b"\0")
    return [os.fsdecode(name) for name, value in zip(said[::3], said[2::3], strict=False) if value not in _UNFILTERED]


def _settings_disabling_drivers(folder: Path, variables: Mapping[str, str]) -> list[str]:
    """Return settings that disable filters, drivers, hooks and merge strategies the repository names itself."""
    words = ["git", "-C", str(folder), "config", "--includes", "--null", "--name-only", "--list"]
    listed = _run_git_process(words, b"", variables)
    names = listed.stdout.decode("utf-8", "surrogateescape").split("\0")
    if any("=" in name for name in names if _DRIVER.fullmatch(name) or name.startswith(("filter.", "hook."))):
        raise ActionRefused(
            "This repository's Git settings name a program with “=”, which Git cannot be told to leave out.",
            remedy="Rename that filter, driver or hook in the repository's .git/config.",
        )
    off = [f"{name}=" for name in names if _DRIVER.fullmatch(name)]
    off += [f"{name.rpartition('.')[0]}.required=false" for name in names if name.startswith("filter.")]
    return off + [f"{name.rpartition('.')[0]}.enabled=false" for name in names if name.startswith("hook.")]


_READING = frozenset({"cat-file", "ls-tree", "ls-files", "rev-parse", "check-attr"})
_DRIVER = re.compile(
    r"(filter\..*\.(clean|smudge|process)|diff\..*\.(command|textconv)|merge\..*\.driver|branch\..*\.mergeoptions)",
    re.DOTALL,
)
_LOCKED = re.compile(r"Unable to create '([^']+\.lock)': File exists")
_NO_REASON = re.compile(r"^(hint:.*|Aborting\.?|error: |fatal: )", re.MULTILINE)
_UNFILTERED = (b"unspecified", b"unset", b"set", b"")


@functools.lru_cache(maxsize=4)
def _read_user_git_settings(home: str) -> tuple[str, ...]:
    """Read the user's settings outside any repository. `home` is the user's home."""
    words = ["git", "config", "--global", "--includes", "--null", "--list"]
    done = _run_git_process(words, b"", {"HOME": home}, folder="/")
    pairs = [each.partition("\n")[::2] for each in done.stdout.decode("utf-8", "surrogateescape").split("\0")]
    return tuple(f"{name}={value}" for name, value in pairs if name in _SETTINGS["of_the_user"])


def _run_git_process(
    words: list[str], stdin: bytes, environment: Mapping[str, str], folder: str | None = None
) -> starter.FinishedProcess:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    if not (git := starter.find_program(words[0])):
        raise ActionRefused("The program git was not found.", remedy="Install git, or commit with another program.")
    launch = starter.ProcessLaunch(starter.CommandAuthor.PROGRAM, [git, *words[1:]], folder, {**kept, **environment})
    try:
        return run_process(launch, input_bytes=stdin, seconds=LIMIT_SECONDS)
    except starter.ProcessTimeout as error:
        raise ActionRefused(
            f"git did not finish within {LIMIT_SECONDS:.0f} seconds and was stopped.", remedy="Nothing was committed."
        ) from error
