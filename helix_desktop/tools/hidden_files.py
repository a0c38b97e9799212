"""Files that are hidden from agents by patterns as in `.gitignore`: the last one that fits decides.

Tools and commands do not see them, but undo covers them.
"""

import fnmatch
import re
from collections.abc import Sequence
from functools import lru_cache

from helix_desktop.tools.autorun_files import PACKAGE_FOLDERS

_KEYS = (
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
)  # fmt: skip
DEFAULT = (
    ".env", ".env.*", "!.env.example", "!.env.*.example", "!.env.sample", "!.env.template", "!.env.dist", "!.env.defaults",
    *_KEYS, "!*.pub", ".netrc", ".pgpass", ".git-credentials",
)  # fmt: skip


def matches_hidden_patterns(path_in_root: str, patterns: Sequence[str]) -> bool:
    """Whether a file, by its path in its root, is hidden. Patterns with a slash fit
    from the root, or fit folders if they end in one; others fit names. Public
    certificates in installed packages are not hidden.
    """
    rows, names = _compile_hidden_patterns(tuple(patterns))
    if names is not None and not names.match(path_in_root.casefold().rpartition("/")[2]):
        return False
    parts = path_in_root.casefold().split("/")
    in_package = any(part in _PACKAGES for part in parts[:-1])
    hidden = False
    for pattern, negated, whole in rows:
        spared = in_package and not whole and pattern in _KEYS
        if negated is hidden and not spared and _hidden_pattern_fits(pattern, parts, whole=whole):
            hidden = not negated
    return hidden


def is_hidden_only_by_place(path_in_root: str, patterns: Sequence[str]) -> bool:
    """Whether a hidden file of the workspace would be visible under the same name in
    another folder.
    """
    *above, name = path_in_root.casefold().split("/")
    if not _PACKAGES.isdisjoint(above):
        return False
    return any(
        whole for _, _, whole in _compile_hidden_patterns(tuple(patterns))[0]
    ) or not matches_hidden_patterns(f"{PACKAGE_FOLDERS[0]}/{name}", patterns)


def _hidden_pattern_fits(pattern: str, parts: Sequence[str], *, whole: bool) -> bool:
    if pattern.endswith("/"):
        return _folder_pattern_fits(pattern, parts)
    return fnmatch.fnmatchcase("/".join(parts) if whole else parts[-1], pattern)


def _folder_pattern_fits(pattern: str, parts: Sequence[str]) -> bool:
    above = [*parts[:-1]]
    name = pattern.strip("/")
    if "/" in name:
        return any(
            fnmatch.fnmatchcase("/".join(above[: end + 1]), name) for end in range(len(above))
        )
    return any(fnmatch.fnmatchcase(part, name) for part in above)


@lru_cache(maxsize=64)
def _compile_hidden_patterns(
    patterns: tuple[str, ...],
) -> tuple[tuple[tuple[str, bool, bool], ...], re.Pattern[str] | None]:
    """Return rows (form, shows files again, fits paths), and one expression if all fit names."""
    rows = []
    for text in patterns:
        pattern = re.sub(r"^\*\*/", "", text.strip().removeprefix("!").casefold())
        if pattern:
            rows.append((pattern.removeprefix("/"), text.strip().startswith("!"), "/" in pattern))
    if any(whole for _, _, whole in rows):
        return tuple(rows), None
    names = [fnmatch.translate(pattern) for pattern, negated, _ in rows if not negated]
    return tuple(rows), re.compile("|".join(names) or r"(?!)")


_PACKAGES = frozenset(name.casefold() for name in PACKAGE_FOLDERS)
