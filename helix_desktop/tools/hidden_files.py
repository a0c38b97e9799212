"""Files that are hidden from agents by patterns as in `.gitignore`: the last one that fits decides.

Tools and commands do not see them, but undo covers them.
"""

import fnmatch
import re
from collections.abc import Sequence
from functools import lru_cache

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.autorun_files import PACKAGE_FOLDERS

_KEYS = (
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
)  # fmt: skip
DEFAULT = (
    ".env", ".env.*", "!.env.example", "!.env.*.example", "!.env.sample", "!.env.template", "!.env.dist", "!.env.defaults",
    *_KEYS, "!*.pub", ".netrc", ".pgpass", ".git-credentials",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _HiddenPattern:
    """One pattern. `shows_again`: it began with `!`. `fits_paths`: it is compared with the
    path and not with the name alone.
    """

    pattern: str
    shows_again: bool
    fits_paths: bool

    def fits_path_parts(self, parts: Sequence[str]) -> bool:
        if self.pattern.endswith("/"):
            return _folder_pattern_fits(self.pattern.strip("/"), parts[:-1])
        if self.fits_paths:
            return fnmatch.fnmatchcase("/".join(parts), self.pattern)
        return fnmatch.fnmatchcase(parts[-1], self.pattern)


@dataclass(frozen=True, slots=True)
class _HiddenPatterns:
    """All patterns. `any_name`: one expression for all of them, if they are compared with names
    alone: nearly every file is told apart by it at once.
    """

    patterns: tuple[_HiddenPattern, ...]
    any_name: re.Pattern[str] | None


def matches_hidden_patterns(path_in_root: str, patterns: Sequence[str]) -> bool:
    """Whether a file, by its path in its root, is hidden. Patterns with a slash fit
    from the root, or fit folders if they end in one; others fit names. Public
    certificates in installed packages are not hidden.
    """
    compiled = _compile_hidden_patterns(tuple(patterns))
    parts = path_in_root.casefold().split("/")
    if compiled.any_name is not None and not compiled.any_name.match(parts[-1]):
        return False
    is_in_package = not _PACKAGES.isdisjoint(parts[:-1])
    is_hidden = False
    for pattern in compiled.patterns:
        if pattern.shows_again is not is_hidden:
            continue  # It would change nothing.
        if is_in_package and not pattern.fits_paths and pattern.pattern in _KEYS:
            continue
        if pattern.fits_path_parts(parts):
            is_hidden = not pattern.shows_again
    return is_hidden


def is_hidden_only_by_place(path_in_root: str, patterns: Sequence[str]) -> bool:
    """Whether a hidden file of the workspace would be visible under the same name in
    another folder: because a pattern is about paths, or because it is in a folder of installed
    packages, in which public certificates are not hidden.
    """
    parts = path_in_root.casefold().split("/")
    is_in_package = not _PACKAGES.isdisjoint(parts[:-1])
    if is_in_package:
        return False
    for pattern in _compile_hidden_patterns(tuple(patterns)).patterns:
        if pattern.fits_paths:
            return True
    path_in_package = f"{PACKAGE_FOLDERS[0]}/{parts[-1]}"
    return not matches_hidden_patterns(path_in_package, patterns)


def _folder_pattern_fits(pattern: str, folders: Sequence[str]) -> bool:
    """Whether a pattern fits one of the folders above a file, given from the root downwards."""
    if "/" not in pattern:
        return any(fnmatch.fnmatchcase(name, pattern) for name in folders)
    for depth in range(1, len(folders) + 1):
        if fnmatch.fnmatchcase("/".join(folders[:depth]), pattern):
            return True
    return False


@lru_cache(maxsize=64)
def _compile_hidden_patterns(texts: tuple[str, ...]) -> _HiddenPatterns:
    """Parse the patterns of hidden files, one a line: `!` shows what an earlier line hides, and
    a pattern with `/` is compared with the whole path instead of the name.

    If all are compared with names only, one expression for all of them is compiled, too.
    """
    patterns: list[_HiddenPattern] = []
    for text in texts:
        stripped_text = text.strip()
        pattern_text = re.sub(r"^\*\*/", "", stripped_text.removeprefix("!").casefold())
        if pattern_text:
            pattern = _HiddenPattern(
                pattern_text.removeprefix("/"),
                shows_again=stripped_text.startswith("!"),
                fits_paths="/" in pattern_text,
            )
            patterns.append(pattern)
    if any(pattern.fits_paths for pattern in patterns):
        return _HiddenPatterns(tuple(patterns), None)

    expressions: list[str] = []
    for pattern in patterns:
        if not pattern.shows_again:
            expressions.append(fnmatch.translate(pattern.pattern))
    matches_nothing = r"(?!)"
    any_name = re.compile("|".join(expressions) or matches_nothing)
    return _HiddenPatterns(tuple(patterns), any_name)


_PACKAGES = frozenset(name.casefold() for name in PACKAGE_FOLDERS)
