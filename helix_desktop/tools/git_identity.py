"""A git identity for commands: who commits, and settings for showing and merging that
start no program.

Made from the user's settings, which commands do not see, since they may name helpers,
keys and passwords.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from helix_desktop.atomic_files import create_private_folder
from helix_desktop.resources import read_word_lists
from helix_desktop.tools import risky_git_settings

_KEPT_SETTINGS = read_word_lists("git_settings")["kept_for_commands"]
_DEEPEST_INCLUDE = 5
# A hidden file is empty for commands. Git then uses its content in the index, or a
# commit would empty it.
_HIDDEN_FILE_FILTER = 'f=%f; if [ -s "$f" ]; then cat; else cat >/dev/null; git cat-file blob ":$f" 2>/dev/null || :; fi'


def write_identity(folder: Path, roots: Sequence[Path]) -> None:
    """Write the current identity into the folder, as `config` and `ignore`."""
    pairs = list(_read_settings_of_home(roots))
    create_private_folder(folder)
    ignore_file = Path.home() / ".config/git/ignore"
    for name, value in pairs:
        if name == "core.excludesfile":  # As for git, the last one counts.
            ignore_file = Path(value).expanduser()
    content = b""
    with suppress(OSError):
        content = ignore_file.read_bytes()
    (folder / "ignore").write_bytes(content)
    settings = format_identity_settings(pairs)
    settings += _format_git_setting("filter.hidden-file.clean", _HIDDEN_FILE_FILTER)
    (folder / "config").write_text(settings, "utf-8", "surrogateescape")


def write_attributes_of_hidden_files(folder: Path, hidden: Sequence[str]) -> None:
    """Write `attributes`, which lists hidden files by their paths in their repositories."""
    lines = []
    for path in map(Path, hidden):
        repository = _find_repository_around(path)
        if repository is None:
            continue
        path_in_repository = path.relative_to(repository).as_posix()
        literal_path = re.sub(r"[*?\[\\]", r"\\\g<0>", path_in_repository)
        lines.append(f'"/{_escape_git_value(literal_path)}" filter=hidden-file\n')
    # Git processes in the background must never see half a file.
    new_file = folder / "attributes.new"
    new_file.write_text("".join(lines), "utf-8", "surrogateescape")
    new_file.replace(folder / "attributes")


def _find_repository_around(path: Path) -> Path | None:
    for folder in path.parents:
        if (folder / ".git").exists():
            return folder
    return None


def format_identity_settings(pairs: Sequence[tuple[str, str]]) -> str:
    """Format those of the settings that are harmless as git reads them."""
    lines = []
    for name, value in pairs:
        is_kept = any(fnmatchcase(name, pattern) for pattern in _KEPT_SETTINGS)
        # Git starts a program for a value that begins with an exclamation mark.
        is_harmless = not value.startswith("!") and "\0" not in value
        if is_kept and is_harmless:
            lines.append(_format_git_setting(name, value))
    return "".join(lines)


def _format_git_setting(name: str, value: str) -> str:
    section, _, key = name.rpartition(".")
    section_name, _, subsection = section.partition(".")
    heading = f"[{section_name}]"
    if subsection:
        heading = f'[{section_name} "{_escape_git_value(subsection)}"]'
    return f'{heading}\n\t{key} = "{_escape_git_value(value)}"\n'


def _escape_git_value(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")


def _read_settings_of_home(roots: Sequence[Path]) -> Iterator[tuple[str, str]]:
    home = Path.home()
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    for path in (config / "git" / "config", home / ".gitconfig"):
        yield from _read_git_settings_file(path, roots, 0)


def _read_git_settings_file(
    path: Path, roots: Sequence[Path], depth: int
) -> Iterator[tuple[str, str]]:
    """Yield a file's settings in order, including those of files it includes for one of
    these folders.
    """
    text = ""
    with suppress(OSError):
        text = path.read_text("utf-8", "surrogateescape")
    for name, value in risky_git_settings.parse_git_settings(text):
        yield name, value
        is_include = name == "include.path" or _is_include_for_roots(name, path, roots)
        if is_include and depth < _DEEPEST_INCLUDE:  # Files may include one another.
            included = path.parent / Path(value).expanduser()
            yield from _read_git_settings_file(included, roots, depth + 1)


def _is_include_for_roots(name: str, path: Path, roots: Sequence[Path]) -> bool:
    """Whether an `includeIf` names one of these folders. Other conditions count as false."""
    if not name.startswith("includeif."):
        return False
    condition = name.removeprefix("includeif.").removesuffix(".path")
    kind, _, given_pattern = condition.partition(":")
    if kind not in ("gitdir", "gitdir/i") or not given_pattern:
        return False
    pattern = _expand_include_pattern(given_pattern, path)
    git_folders = [f"{root}/.git" for root in roots]
    if kind == "gitdir/i":
        pattern = pattern.casefold()
        git_folders = [git_folder.casefold() for git_folder in git_folders]
    return any(fnmatchcase(git_folder, pattern) for git_folder in git_folders)


def _expand_include_pattern(pattern: str, path: Path) -> str:
    """Return an `includeIf` pattern as a pattern for full paths, by the rules of git."""
    if pattern.startswith("./"):
        pattern = str(path.parent) + pattern.removeprefix(".")
    else:
        pattern = os.path.expanduser(pattern)  # noqa: PTH111 -- a pattern is no path
    if not pattern.startswith("/"):
        pattern = f"**/{pattern}"
    if pattern.endswith("/"):
        pattern = f"{pattern}**"
    return pattern.replace("**", "*")
