"""Decides what checkpoints leave out, by rules that users can change and a few that are fixed."""

import fnmatch
import functools
import re
from collections.abc import Callable
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass

NEVER = ".git"  # Checkpoints do not store the user's Git history, so an undo does not change it.
UNDO_LEFTOVER = re.compile(r"\.helix-undo-[0-9a-f]{16}")
CACHE_TAG_FILE = "CACHEDIR.TAG"
_CONDITION = re.compile(r"(?P<pattern>.+?)\s+(?P<how>beside|with)\s+(?P<other>.*[^/])")
DEFAULT = (
    "node_modules/", ".venv/", "venv/ with pyvenv.cfg", "target/ beside Cargo.toml",
    "target/ beside pom.xml", "build/ beside build.gradle", "build/ beside CMakeLists.txt",
    "__pycache__/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".hypothesis/", ".tox/",
    ".gradle/", ".next/", ".nuxt/", ".terraform/", ".cache/", "DerivedData/",
)  # fmt: skip
MOST_FILES = 200_000
MOST_BYTES = 5_000_000_000
MOST_FILE_BYTES = 2_000_000_000


@dataclass(frozen=True, slots=True)
class _LeaveOutRule:
    """`name/` fits folders of this name. `beside` and `with` require another name next
    to it or in it.
    """

    text: str
    name: str
    folder: bool
    beside: str = ""
    within: str = ""

    @property
    def has_wildcards(self) -> bool:
        return any(letter in self.name for letter in "*?[")

    def fits(
        self, beside: Callable[[str], bool], within: Callable[[str], bool], *, folder: bool
    ) -> bool:
        if self.folder and not folder:
            return False
        if self.beside and not beside(self.beside):
            return False
        return not self.within or within(self.within)


@dataclass(frozen=True)
class CheckpointCoverage:
    """`leave_out`: rules such as `node_modules/`, `*.iso`, `target/ beside Cargo.toml`.
    `most_files` and `most_bytes`: what is new beyond them is left out, by name; 0: no
    limit. `most_file_bytes`: a larger file is left out in any case.
    """

    leave_out: tuple[str, ...] = DEFAULT
    most_files: int = MOST_FILES
    most_bytes: int = MOST_BYTES
    most_file_bytes: int = MOST_FILE_BYTES
    off: bool = False

    @functools.cached_property
    def _wildcard_free_rules_by_name(self) -> dict[str, list[_LeaveOutRule]]:
        rules_by_name: dict[str, list[_LeaveOutRule]] = {}
        for rule in self._parsed_rules:
            if not rule.has_wildcards:
                rules_by_name.setdefault(rule.name, []).append(rule)
        return rules_by_name

    @functools.cached_property
    def _parsed_rules(self) -> tuple[_LeaveOutRule, ...]:
        return tuple(_parse_leave_out_rule(text) for text in self.leave_out if text.strip())

    def find_rule_leaving_out(
        self,
        name: str,
        beside: Callable[[str], bool],
        within: Callable[[str], bool],
        *,
        folder: bool,
    ) -> str:
        """Return the text of the rule by which checkpoints leave this entry out, or an empty string.
        `beside` and `within` tell whether there is a name next to this one or in it.

        It is asked for every entry, so rules without wildcards are looked up by their name.
        """
        for rule in self._wildcard_free_rules_by_name.get(name, ()):
            if rule.fits(beside, within, folder=folder):
                return str(rule.text)
        for rule in self._rules_with_wildcards:
            has_fitting_name = fnmatch.fnmatchcase(name, rule.name)
            if has_fitting_name and rule.fits(beside, within, folder=folder):
                return str(rule.text)
        # Programs mark folders that they can fill again with such a file.
        if folder and within(CACHE_TAG_FILE):
            return CACHE_TAG_FILE
        return ""

    def leaves_out_folder(self, folder: Path) -> bool:
        rule = self.find_rule_leaving_out(
            folder.name,
            beside=lambda other: folder.with_name(other).exists(),
            within=lambda other: (folder / other).exists(),
            folder=True,
        )
        return bool(rule)

    @functools.cached_property
    def _rules_with_wildcards(self) -> tuple[_LeaveOutRule, ...]:
        return tuple(rule for rule in self._parsed_rules if rule.has_wildcards)

    @functools.cached_property
    def file_name_check(self) -> Callable[[str], object]:
        """Return a quick test of whether any rule for files could apply to a name."""
        patterns = [fnmatch.translate(rule.name) for rule in self._parsed_rules if not rule.folder]
        if not patterns:
            return lambda _name: None
        return re.compile("|".join(patterns)).match


def _parse_leave_out_rule(text: str) -> _LeaveOutRule:
    """Parse a rule such as `target/ beside Cargo.toml` or `venv/ with pyvenv.cfg`: a pattern,
    and what must be next to what fits it, or in it. A slash at its end means that only folders
    fit.
    """
    rule_text = text.strip()
    pattern = rule_text
    beside = ""
    within = ""
    condition = _CONDITION.fullmatch(rule_text)
    if condition is not None:
        pattern = condition["pattern"]
        if condition["how"] == "beside":
            beside = condition["other"]
        else:
            within = condition["other"]
    return _LeaveOutRule(rule_text, pattern.rstrip("/"), pattern.endswith("/"), beside, within)
