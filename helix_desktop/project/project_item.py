"""One thing a folder brings, as it stands on the disk now, and how its file is read.

Nothing here is believed: an item is text to be shown to the user, who trusts exactly this content, by its SHA-256.
"""

import fnmatch
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path, PurePath
from typing import Any

import yaml  # type: ignore[import-untyped]

from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass

LARGEST = 256 * 1024


@dataclass(frozen=True, slots=True)
class ProjectItem:
    """`text` is what the user is shown and trusts; `body` what the model is given. `own`: of the user's own folders.
    `notes`: what is wrong with it or not supported, in sentences; `broken`: it cannot be used at all.
    """

    kind: str
    name: str
    path: Path
    text: str
    body: str
    about: str = ""
    own: bool = False
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)  # All are in `text`.
    notes: tuple[str, ...] = ()
    broken: bool = False
    trusted: bool = False
    known: bool = False  # True if the user once trusted a version of this item.
    off: bool = False
    reaches_folder: bool = False  # True for a hook of the user that runs, or may run, a file from the folder.
    why: str = ""  # Why these rules apply.
    below: Path | None = None  # These rules apply once a file below this folder is used.
    globs: tuple[str, ...] = ()  # The files below it to which these rules apply; empty: all.

    @property
    def is_nested(self) -> bool:
        """Whether it comes into force only when a file is used."""
        return self.below is not None

    def applies_to(self, paths: Iterable[Path]) -> bool:
        """Whether one of these files brings it into force."""
        return any(
            self.below is not None
            and path.is_relative_to(self.below)
            and (
                not self.globs
                or any(path_fits_glob(path.relative_to(self.below).as_posix(), glob) for glob in self.globs)
            )
            for path in paths
        )

    @property
    def settings_key(self) -> str:
        """How settings name it: its path, and for a hook which one of the file."""
        return f"{self.path}#{self.name}" if self.kind == "hook" else str(self.path)

    @property
    def content_sha256(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def is_in_force(self) -> bool:
        return self.trusted and not self.off and not self.broken

    @property
    def describe_state(self) -> str:
        """In a word or two, for a list."""
        if self.broken:
            return "cannot be used"
        if self.off:
            return "off"
        if self.trusted:
            return "in use"
        return "changed: not trusted yet" if self.known else "new: not trusted yet"


_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)(?:\r?\n)?^---[ \t]*$\r?\n?", re.DOTALL | re.MULTILINE)
_Key = tuple[str, int, int, int, int]
_read: dict[_Key, str] = {}
_hashed: dict[_Key, str] = {}


def read_plain_file(path: Path, within: Path) -> str | None:
    """The file's text; None for what is no plain file inside `within`, is too large or cannot be read."""
    try:
        real = path.resolve(strict=True)
        stat = real.stat()
        if not real.is_relative_to(within.resolve()) or not real.is_file() or stat.st_size > LARGEST:
            return None
        return _compute_once(real, stat, _read, lambda content: content.decode("utf-8", "replace"))
    except (OSError, RuntimeError, ValueError):
        return None


def read_markdown_files(place: Path, within: Path) -> Iterator[tuple[Path, str]]:
    """The Markdown files below a folder that can be read, by their paths; the first 500."""
    try:
        files = sorted(place.rglob("*.md"))[:500]
    except OSError:
        return
    for path in files:
        if (text := read_plain_file(path, within)) is not None:
            yield path, text


def is_stored_file(path: Path) -> bool:
    """Whether it is a regular file with an end: the system's own, also behind a link, may have none or make the reader wait."""
    return path.is_file() and not path.resolve().is_relative_to("/proc") and not path.resolve().is_relative_to("/sys")


def hash_of_file(path: Path) -> str:
    """The SHA-256 of a file's content, read again only when the file is another."""
    return _compute_once(path, path.stat(), _hashed, lambda content: hashlib.sha256(content).hexdigest())


def _compute_once(path: Path, stat: os.stat_result, known: dict[_Key, str], make: Callable[[bytes], str]) -> str:
    key = (str(path), stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
    if key not in known:
        if len(known) > 2_000:
            known.clear()
        known[key] = make(path.read_bytes())
    return known[key]


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """The values between the two lines `---`, all of them texts, lists or tables, and what follows.
    InvalidInput says what is wrong; a text without any has no values.
    """
    if not text.startswith("---"):
        return {}, text
    found = _FRONT.match(text)
    if found is None:
        raise InvalidInput("The block that begins with --- at the start of the file is not closed properly.")
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(found[1], yaml.BaseLoader)):
            raise InvalidInput(
                "YAML aliases (*name) aren't supported between the --- lines."
            )  # They may grow without end.
        values = yaml.load(found[1], Loader=yaml.BaseLoader)  # noqa: S506 -- makes texts, lists and tables
    except (yaml.YAMLError, RecursionError, ValueError):
        values = _parse_front_matter_leniently(found[1])
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise InvalidInput("The block between the two --- lines must be a YAML mapping of names to values.")
    return {str(name): value for name, value in values.items()}, text[found.end() :]


def _parse_front_matter_leniently(text: str) -> dict[str, Any]:
    """Published files have colons in their descriptions, which YAML refuses and everybody takes."""
    values: dict[str, Any] = {}
    for line in text.splitlines():
        found = re.fullmatch(r"([A-Za-z][\w-]*):[ \t]+(\S.*)", line)
        if found is None or found[2][0] in "[{&*|>%@`":
            if line.strip() and not line.startswith((" ", "\t", "#")):
                raise InvalidInput("Invalid YAML between the --- lines.")
            continue
        values[found[1]] = found[2].strip().strip("\"'")
    if not values:
        raise InvalidInput("Invalid YAML between the --- lines.")
    return values


def text_value(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def split_names(value: object) -> tuple[str, ...]:
    """A value that should be a list of names: a list, or names with commas or blanks between them: `Bash(git add:*), Read`."""
    if isinstance(value, str):
        value = re.findall(r"[^\s,()]+(?:\([^()]*\))?", value)
    names = (text_value(each) for each in value) if isinstance(value, Sequence) else ()
    return tuple(filter(None, names))


def path_fits_glob(path: str, glob: str) -> bool:
    """Whether a path fits a glob: `**` any folders, `*.ts` any file so named."""
    return fnmatch.fnmatchcase(path, glob.replace("**/", "*")) or (
        "/" not in glob and fnmatch.fnmatchcase(PurePath(path).name, glob)
    )
