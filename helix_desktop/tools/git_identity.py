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

from helix_desktop.resources import read_word_lists
from helix_desktop.tools import risky_git_settings

_KEPT = read_word_lists("git_settings")["kept_for_commands"]
_DEEPEST = 5
# A hidden file is empty for commands. Git then uses its content in the index, or a
# commit would empty it.
_FILTER = 'f=%f; if [ -s "$f" ]; then cat; else cat >/dev/null; git cat-file blob ":$f" 2>/dev/null || :; fi'


def write_identity(folder: Path, roots: Sequence[Path]) -> None:
    """Write the current identity into the folder, as `config` and `ignore`."""
    pairs = list(_read_settings_of_home(roots))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ignore = next(
        (
            Path(value).expanduser()
            for name, value in reversed(pairs)
            if name == "core.excludesfile"
        ),
        None,
    )
    content = b""
    with suppress(OSError):
        content = (ignore or Path.home() / ".config/git/ignore").read_bytes()
    (folder / "ignore").write_bytes(content)
    settings = format_identity_settings(pairs) + _format_git_setting(
        "filter.hidden-file.clean", _FILTER
    )
    (folder / "config").write_text(settings, "utf-8", "surrogateescape")


def write_attributes_of_hidden_files(folder: Path, hidden: Sequence[str]) -> None:
    """Write `attributes`, which lists hidden files by their paths in their repositories."""
    lines = ""
    for path in map(Path, hidden):
        if top := next((above for above in path.parents if (above / ".git").exists()), None):
            inside = re.sub(r"[*?\[\\]", r"\\\g<0>", path.relative_to(top).as_posix())
            lines += f'"/{_escape_git_value(inside)}" filter=hidden-file\n'
    (folder / "attributes.new").write_text(lines, "utf-8", "surrogateescape")
    (folder / "attributes.new").replace(
        folder / "attributes"
    )  # Background git processes never see half a file.


def format_identity_settings(pairs: Sequence[tuple[str, str]]) -> str:
    """Format those of the settings that are harmless as git reads them."""
    harmless = (pair for pair in pairs if not pair[1].startswith("!") and "\0" not in pair[1])
    return "".join(
        _format_git_setting(*pair)
        for pair in harmless
        if any(fnmatchcase(pair[0], each) for each in _KEPT)
    )


def _format_git_setting(name: str, value: str) -> str:
    section, _, key = name.rpartition(".")
    first, _, below = section.partition(".")
    head = f'[{first} "{_escape_git_value(below)}"]' if below else f"[{first}]"
    return f'{head}\n\t{key} = "{_escape_git_value(value)}"\n'


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
        if depth < _DEEPEST and (
            name == "include.path" or _is_include_for_roots(name, path, roots)
        ):
            yield from _read_git_settings_file(
                path.parent / Path(value).expanduser(), roots, depth + 1
            )


def _is_include_for_roots(name: str, path: Path, roots: Sequence[Path]) -> bool:
    """Whether an `includeIf` names one of these folders. Other conditions count as false."""
    condition = name.removeprefix("includeif.").removesuffix(".path")
    kind, _, pattern = condition.partition(":")
    if condition == name or kind not in ("gitdir", "gitdir/i") or not pattern:
        return False
    pattern = (
        str(path.parent) + pattern[1:] if pattern.startswith("./") else os.path.expanduser(pattern)  # noqa: PTH111
    )
    pattern = pattern if pattern.startswith("/") else f"**/{pattern}"
    pattern = (f"{pattern}*" if pattern.endswith("/") else pattern).replace("**", "*")
    fold = str.casefold if kind.endswith("i") else str
    return any(fnmatchcase(fold(f"{root}/.git"), fold(pattern)) for root in roots)
