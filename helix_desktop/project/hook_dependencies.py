"""Finds the files that a hook's command names, and whether it only runs what is the user's own.

In general, what a command runs cannot be known (imports, `make`, `npm`). So trust
covers what is known, and what is not surely the user's own counts as the folder's.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from helix_desktop.errors import InvalidInput
from helix_desktop.processes.starter import find_own_program
from helix_desktop.project.project_item import ProjectReading, is_stored_file

# Folders in the user's home that contain the configuration of agents.
SETTINGS_FOLDERS = (".claude", ".agents")
_SYSTEM_FOLDERS = frozenset({"/bin", "/dev", "/dev/fd"})
_SHOWN_BYTES = 256 * 1024
_MOST_BYTES = 64 << 20
_MOST_FILES = 50
_MOST_PATHS_CHECKED = 5_000
_INTERPRETERS = frozenset(
    {"sh", "bash", "dash", "zsh", "python", "python3", "node", "ruby", "perl"}
)
_PROJECT_DIR = re.compile(r"\$(?:CLAUDE_PROJECT_DIR\b|\{CLAUDE_PROJECT_DIR\})|%CLAUDE_PROJECT_DIR%")
_HOME_DIR = re.compile(r"\$(?:HOME\b|\{HOME\})")
_WITHOUT_SHELL_SYNTAX = re.compile(r"[\w@%+=:,./~ '\"-]*")
_RECIPE_FILES = {  # For each program: the files in the current folder that it runs.
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "npm": ("package.json",), "npx": ("package.json",), "pnpm": ("package.json",), "yarn": ("package.json",), "bun": ("package.json",),
    "just": ("justfile", "Justfile"), "task": ("Taskfile.yml",), "tox": ("tox.ini",), "pre-commit": (".pre-commit-config.yaml",),
    "cargo": ("Cargo.toml", "build.rs"), "gradle": ("build.gradle",), "composer": ("composer.json",),
}  # fmt: skip


def read_files_named_in_command(command: str, folder: Path, reading: ProjectReading) -> str:
    """Return the files a command names, to be trusted with it; long ones and binaries by hash."""
    files = find_files_named_in_command(command, folder, reading)
    return "".join(f"\n\n--- {path}\n{_text_or_hash(path, reading)}" for path in files)


def find_files_named_in_command(command: str, folder: Path, reading: ProjectReading) -> list[Path]:
    """Return files that a command's words lead to, from the folder or one that it changes to."""
    reading.count_file_accesses(len(command) // 4)
    words = [_PROJECT_DIR.sub(str(folder), word) for word in _split_command_words(command)]
    start_folders = [folder]
    for word in words:
        if word and os.path.isdir(folder / word):  # noqa: PTH112 -- never raises
            start_folders.append(folder / word)
    names = list(_possible_file_names(words))
    look_count = len(names) * len(start_folders)
    if look_count > _MOST_PATHS_CHECKED:
        raise _too_many_files_error()
    reading.count_file_accesses(look_count)
    files: dict[Path, None] = {}
    for name in names:
        expanded = os.path.expanduser(name)  # noqa: PTH111 -- a word, which may be no path
        for start_folder in start_folders:
            path = start_folder / expanded
            if _is_file_to_trust_with_hook(path):
                files.setdefault(path)
    if len(files) > _MOST_FILES:
        raise _too_many_files_error()
    if any(path.stat().st_size > _MOST_BYTES for path in files):
        raise _too_many_files_error()
    return list(files)


def _too_many_files_error() -> InvalidInput:
    return InvalidInput("This hook does not run, because it refers to files that are too many or too large to be checked.")  # fmt: skip


def runs_only_scripts_of_user(
    command: str, home: Path, roots: Sequence[Path], folder: Path
) -> bool:
    """Whether everything a command names is surely the user's own: a script in their
    settings folder, by its full path, with words that lead to nothing in the
    workspace's folders. If in doubt, it is not.
    """
    expanded_command = _HOME_DIR.sub(str(home), command.strip())
    if not expanded_command or not _WITHOUT_SHELL_SYNTAX.fullmatch(expanded_command):
        return False
    try:
        words = list(map(os.path.expanduser, shlex.split(expanded_command)))
        real_roots = [root.resolve() for root in roots]
        if len(words) > 1 and words[0] in _INTERPRETERS:
            interpreter = find_own_program(words.pop(0))
            if not interpreter or _is_within(Path(interpreter), real_roots):
                return False
        if not _is_script_in_users_agent_settings(Path(words[0]), home, real_roots):
            return False
        return not any(_may_be_path_within(word, folder, real_roots) for word in words[1:])
    except (OSError, ValueError, RuntimeError):
        return False


def _is_script_in_users_agent_settings(path: Path, home: Path, real_roots: Sequence[Path]) -> bool:
    if not path.is_absolute() or _is_within(path, real_roots):
        return False
    real_path = path.resolve(strict=True)
    # Under another name, a file with several could be in the workspace's folders.
    if not real_path.is_file() or real_path.stat().st_nlink != 1:
        return False
    settings_folders = [(home / name).resolve() for name in SETTINGS_FOLDERS]
    return any(real_path.is_relative_to(folder) for folder in settings_folders)


def _may_be_path_within(word: str, folder: Path, roots: Sequence[Path]) -> bool:
    """Whether a word, or an option's value after `=`, may be a path in the workspace's folders."""
    value_behind_equals = word.partition("=")[2]
    value_behind_letter = word.lstrip("-")[1:]
    for part in (word, value_behind_equals, value_behind_letter):
        if not part:
            continue
        path = Path(part)
        if path.is_absolute():
            if _is_within(path, roots):
                return True
        elif "/" in part or os.path.lexists(folder / part):
            return True
    return False


def _is_within(path: Path, roots: Sequence[Path]) -> bool:
    """Whether a path, as it is written or behind links, is in one of these folders."""
    as_written = Path(os.path.normpath(path))
    # Unlike `Path.resolve`, this raises no error for links that form a circle.
    behind_links = Path(os.path.realpath(path))
    for root in roots:
        if as_written.is_relative_to(root) or behind_links.is_relative_to(root):
            return True
    return False


def _split_command_words(command: str) -> list[str]:
    """Return the words of a command line, and those of command lines in its quotes."""
    lines = [command]
    for in_double_quotes, in_single_quotes in re.findall(r"\"([^\"]*)\"|'([^']*)'", command):
        lines += [in_double_quotes, in_single_quotes]
    words: list[str] = []
    for line in lines:
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            lexer.commenters = ""
            words += list(lexer)
        except ValueError:
            words += line.replace('"', " ").replace("'", " ").split()
    return list(dict.fromkeys(words))


def _possible_file_names(words: Sequence[str]) -> Iterator[str]:
    """Yield possible file names: words, text after `=`, a module after `-m`, and a
    program's recipe.
    """
    previous_word = ""
    for word in words:
        yield word
        if "=" in word:
            yield word.partition("=")[2]
        if previous_word == "-m":
            path = word.replace(".", "/")
            yield f"{path}.py"
            yield f"{path}/__main__.py"
            yield f"{path}/__init__.py"
        yield from _RECIPE_FILES.get(word.rpartition("/")[2], ())
        previous_word = word


def _is_file_to_trust_with_hook(path: Path) -> bool:
    """Whether this is a file whose content counts for the trust in a hook. What the system
    itself provides, such as programs in /usr, does not.
    """
    try:
        # Under /dev, only what the kernel creates is trusted, because anybody can write
        # to /dev/shm.
        is_of_system = path.is_relative_to("/usr") or str(path.parent) in _SYSTEM_FOLDERS
        return is_stored_file(path) and not is_of_system
    except (OSError, ValueError, RuntimeError):
        return False


def _text_or_hash(path: Path, reading: ProjectReading) -> str:
    """Return a file's text, which the user reads before trusting it, or the hash of one that is
    too long or is no text. The work is counted, as a folder may name many files.
    """
    try:
        size = path.stat().st_size
        if size <= _SHOWN_BYTES:
            reading.count_file_accesses(size // 1024)
            return path.read_bytes().decode("utf-8")
        reading.count_file_accesses(size // 65_536)
        with path.open("rb") as file:
            return f"{size:,} bytes, SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()}"
    except UnicodeDecodeError:
        return f"no text, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
