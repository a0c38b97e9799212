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
from helix_desktop.processes.folders_of_agents import environment_without_agents
from helix_desktop.processes.starter import run_process
from helix_desktop.resources import read_word_lists

LIMIT_SECONDS = 120.0
# A whole file of a repository, or what a copy of it has that it has not. A few bytes of a hostile
# repository can stand for far more.
MOST_OUTPUT_BYTES = 512 << 20
# Git reads some files of a repository to their end, which a device never has. Packs do not count:
# git maps them.
MOST_MEMORY_BYTES = 2 << 30
_NOTHING = os.devnull
_SETTINGS = read_word_lists("git_settings")
_OVERRIDDEN = [setting.replace("{nothing}", _NOTHING) for setting in _SETTINGS["overridden"]]


def _read_environment() -> dict[str, str]:
    variables: dict[str, str] = {}
    for assignment in _SETTINGS["environment"]:
        name, value = assignment.split("=")
        variables[name] = value.replace("{nothing}", _NOTHING)
    return variables


# With these variables, git reads no system or user settings, fetches nothing and
# reaches no other repository.
_ENVIRONMENT = _read_environment()


def run_git(
    folder: Path,
    *arguments: str,
    stdin: bytes = b"",
    environment: Mapping[str, str] = {},
    remedy: str = "Nothing was committed.",
    highest_code: int = 0,
    settings: Sequence[str] = (),
) -> bytes:
    """Run a command of git in a folder, and return what it prints. Raises ActionRefused with
    git's error message.

    `environment`, `settings`: further variables and settings. `remedy`: what to say
    after git's error message. `highest_code`: the highest exit code that means no
    error.
    """
    if not folder.is_dir():
        raise ActionRefused(f"The workspace's folder {folder} no longer exists.", remedy=remedy)
    only_reads_objects = not _READING.isdisjoint(arguments[:2])
    if only_reads_objects:
        settings_of_folder = _settings_for_reading(str(Path.home()))
    else:
        listing = _list_git_settings(folder, environment)
        if listing.returncode:
            raise _error_of_git(listing, remedy)
        settings_of_folder = _settings_for_folder(listing.stdout)
    words = ["git", "--no-pager", "--no-optional-locks", "-C", str(folder)]
    for setting in _OVERRIDDEN + list(settings_of_folder) + list(settings):
        words += ["-c", setting]
    words.extend(arguments)
    process = _run_git_process(words, stdin, _ENVIRONMENT | dict(environment))
    if not 0 <= process.returncode <= highest_code:
        raise _error_of_git(process, remedy)
    return process.stdout


def _error_of_git(process: starter.FinishedProcess, remedy: str) -> ActionRefused:
    """Return what git said as an error, with a remedy for what people meet most often."""
    message = process.stderr.decode("utf-8", "replace").strip()
    if not message:
        message = process.stdout.decode("utf-8", "replace").strip()
    if "tell me who you are" in message:
        how_to_set_it = 'Run `git config --global user.name "NAME"`, and the same for `user.email`.'
        return ActionRefused(
            "git does not know your name and email address.", remedy=f"{how_to_set_it} {remedy}"
        )
    lock_file = _LOCKED.search(message)
    if lock_file is not None:
        return ActionRefused(
            "Another git program is working in this repository, or was killed there.",
            remedy=f"{remedy} Wait until it has ended and try again. If none is running, delete {lock_file[1]}.",
        )
    reason = " ".join(_NO_REASON.sub("", message).split())
    return ActionRefused(f"git refused: {reason[:500].rstrip('.')}.", remedy=remedy)


def choose_variables(*lists: str) -> dict[str, str]:
    """Return the user's own variables that are in these lists of the table of settings for git.

    The others can have keys and tokens that a program has no need of, and those for git itself could
    name another repository, or programs.
    """
    wanted_names: set[str] = set()
    beginnings: list[str] = []
    for list_name in lists:
        for name in _SETTINGS[list_name]:
            if name.endswith("*"):
                beginnings.append(name.removesuffix("*"))
            else:
                wanted_names.add(name)

    chosen: dict[str, str] = {}
    for name, value in os.environ.items():
        if name in wanted_names or name.startswith(tuple(beginnings)):
            chosen[name] = value
    return environment_without_agents(chosen)


def find_filtered_files(
    folder: Path, names: list[bytes], environment: Mapping[str, str] = {}
) -> list[str]:
    """Return files that a filter of the repository or the user would change on commit."""
    stdin = b"".join(name + b"\0" for name in names)
    options = ("check-attr", "-z", "--stdin", "filter")
    output = run_git(folder, *options, stdin=stdin, environment=environment)
    # For each file its name, the attribute's name and its value.
    words = output.split(b"\0")
    filtered = []
    for name, value in zip(words[::3], words[2::3], strict=False):
        if value not in _UNFILTERED:
            filtered.append(os.fsdecode(name))
    return filtered


def _list_git_settings(folder: Path, environment: Mapping[str, str]) -> starter.FinishedProcess:
    """List the user's settings for a folder, also those included only for it, and those
    of its repository.
    """
    words = ["git", "-C", str(folder), "config", "--includes", "--null", "--show-scope", "--list"]
    variables = dict(_ENVIRONMENT)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"):
        variables.pop(name, None)
    variables.update(choose_variables("variables_of_settings"))
    variables["HOME"] = str(Path.home())
    return _run_git_process(words, b"", variables | dict(environment))


def _settings_for_folder(output: bytes) -> list[str]:
    """Return the user's settings, and those that disable filters, drivers, hooks and
    merge strategies of the repository.
    """
    user_entries: list[str] = []
    repository_names: list[str] = []  # Names alone: none of their values is used.
    words = output.decode("utf-8", "surrogateescape").split("\0")
    for scope, entry in zip(words[::2], words[1::2], strict=False):
        if scope in _SCOPES_OF_USER:
            user_entries.append(entry)
        else:
            repository_names.append(_name_of_setting(entry))
    # What the repository sets itself is not the user's choice for it.
    names_to_use = set(_SETTINGS["of_the_user"]).difference(repository_names)
    names_to_use.update(_SETTINGS["of_the_user_alone"])
    settings = []
    for entry in user_entries:
        if _name_of_setting(entry) in names_to_use:
            settings.append(entry.replace("\n", "=", 1))
    settings += _list_settings_that_switch_off(repository_names)
    return settings


def _name_of_setting(entry: str) -> str:
    """Git prints a name and its value on lines of their own."""
    return entry.partition("\n")[0]


def _list_settings_that_switch_off(names: Sequence[str]) -> list[str]:
    """Return settings without which git would run programs that the repository names."""
    settings: list[str] = []
    for name in names:
        section = name.rpartition(".")[0]
        settings_for_name: list[str] = []
        if _DRIVER.fullmatch(name) is not None:
            settings_for_name.append(f"{name}=")
        if name.startswith("filter."):  # One that is required would make git fail without it.
            settings_for_name.append(f"{section}.required=false")
        if name.startswith("hook."):
            settings_for_name.append(f"{section}.enabled=false")
        if settings_for_name and "=" in name:
            raise ActionRefused(
                "This repository's Git settings name a program with “=”, which Git cannot be told to leave out.",
                remedy="Rename that filter, driver or hook in the repository's .git/config.",
            )
        settings += settings_for_name
    return settings


@functools.lru_cache(maxsize=4)
def _settings_for_reading(home: str) -> Sequence[str]:
    """Return the user's settings outside any repository, which is enough to read
    objects. `home` is the user's home.
    """
    listing = _list_git_settings(Path("/"), {"HOME": home})
    return _settings_for_folder(listing.stdout)


# The system's settings, the user's, and those in the user's variables.
_SCOPES_OF_USER = frozenset({"system", "global", "command"})
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
    """Run git with this input. ActionRefused if there is no git, or it takes too long, prints
    too much or waits at a pipe.

    A repository may have a named pipe in the place of any file that git reads, from its settings to
    a single object. Each such call would hold one of the few threads for work, and with it all else
    that the window has asked for.
    """
    program = starter.find_own_program(words[0])
    if not program:
        raise ActionRefused(
            "The program git was not found.", remedy="Install git, or commit with another program."
        )
    variables = choose_variables("variables_to_run", "variables_of_author")
    variables.update(environment)
    command_line = [program] + words[1:]
    launch = starter.ProcessLaunch(
        starter.CommandAuthor.PROGRAM,
        command_line,
        None,
        variables,
        filled_memory_bytes=MOST_MEMORY_BYTES,
    )
    try:
        return run_process(
            launch,
            input_bytes=stdin,
            seconds=LIMIT_SECONDS,
            most_bytes=MOST_OUTPUT_BYTES,
            ends_at_pipes=True,
        )
    except starter.PipeOpened as error:
        raise ActionRefused(
            "In this repository, a named pipe is in the place of a file that Git reads, so Git was stopped.",
            remedy="Find the pipe with `find -type p`, and delete it if you do not need it.",
        ) from error
    except starter.OutputTooLong as error:
        raise ActionRefused(
            f"git printed more than {MOST_OUTPUT_BYTES >> 20} MB and was stopped.",
            remedy="The repository has a file or a list of this size. Use git itself.",
        ) from error
    except starter.ProcessTimeout as error:
        raise ActionRefused(
            f"git did not finish within {LIMIT_SECONDS:.0f} seconds and was stopped.",
            remedy="Nothing was committed.",
        ) from error
