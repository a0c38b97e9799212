"""One thing a folder brings, as it stands on the disk now, and how its file is read.

Nothing here is believed: an item is text to be shown to the user, who trusts exactly this content, by its SHA-256.
"""

import fnmatch
import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path, PurePath
from typing import Any

import yaml  # type: ignore[import-untyped]

from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.fast_dataclass import dataclass

LARGEST = 256 * 1024
MOST_LOOKS, LONGEST_FRONT = 20_000, 8_000
_YAML = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # A few brackets take the one in Python seconds.


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


class ProjectReading:
    """One reading of a folder's files, before each step: of the user's `own`, or of a folder that
    nobody trusts yet. All looks are counted, also at what is remembered: the next reading then ends
    at the same file.
    """

    def __init__(self, root: Path, *, own: bool = False) -> None:
        self.root, self.own, self.real_root = root, own, Path(os.path.realpath(root))
        self._looks_left = MOST_LOOKS

    def count_looks(self, looks: int) -> None:
        """A look takes about as long as finding a file: 50 µs."""
        self._looks_left -= looks
        if self._looks_left < 0:
            raise HelixError("The folder has too many files for agents, or they are too large.")

    def contains(self, path: Path) -> bool:
        """Whether it lies in the folder, wherever links lead."""
        try:
            return path.resolve().is_relative_to(self.real_root)
        except (OSError, RuntimeError, ValueError):
            return False

    def read_text(self, path: Path) -> str | None:
        """The file's text; None for what is no plain file in the folder, is too large or cannot be read."""
        self.count_looks(1)
        try:
            real = path.resolve(strict=True)
            stat = real.stat()
            if not real.is_relative_to(self.real_root) or not real.is_file() or stat.st_size > LARGEST:
                return None
            text = _compute_once(real, stat, _read, lambda content: content.decode("utf-8", "replace"))
        except (OSError, RuntimeError, ValueError):
            return None
        front = text.find("\n---", 3, LONGEST_FRONT) if text.startswith("---") else 0
        self.count_looks((stat.st_size >> 10) + (max(front, 0) >> 6))
        return text

    def list_folder(self, folder: Path) -> list[Path]:
        """What is in it, by name; nothing where it lies outside or cannot be read."""
        self.count_looks(1)
        found = list[Path]()
        with suppress(OSError), os.scandir(folder if self.contains(folder) else "") as entries:
            for entry in entries:
                self.count_looks(1)
                found.append(folder / entry.name)
        return sorted(found)

    def list_files_below(self, folder: Path, limit: int, ending: str = "") -> list[Path]:
        """Files and links that lead out, which are not followed, by their paths; each real folder once."""
        waiting, entered, found = [folder], set[str](), list[Path]()
        while waiting and len(found) < limit:
            folder = waiting.pop()
            if (real := os.path.realpath(folder)) not in entered:
                entered.add(real)
                for path in self.list_folder(folder):
                    if (not path.is_symlink() or self.contains(path)) and path.is_dir():
                        waiting.append(path)
                    elif path.name.endswith(ending):
                        found.append(path)
        return sorted(found)[:limit]

    def read_markdown_files(self, place: Path) -> Iterator[tuple[Path, str]]:
        """The Markdown files below a folder that can be read, by their paths; the first 500."""
        for path in self.list_files_below(place, 500, ".md"):
            if (text := self.read_text(path)) is not None:
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


def split_front_matter(text: str) -> tuple[Mapping[str, Any], str]:
    """The values between the two lines `---`, all of them texts, lists or tables, and what follows.
    InvalidInput says what is wrong; a text without any has no values.
    """
    if not text.startswith("---"):
        return {}, text
    found = _FRONT.match(text)
    if found is None:
        raise InvalidInput("The block that begins with --- at the start of the file is not closed properly.")
    values = _parse_front_matter(found[1])
    if isinstance(values, str):
        raise InvalidInput(values)
    return values, text[found.end() :]


@functools.lru_cache(maxsize=4_096)
def _parse_front_matter(text: str) -> Mapping[str, Any] | str:
    """The values, or what is wrong with them."""
    if len(text) > LONGEST_FRONT:
        return "The block between the two --- lines is longer than 8,000 characters."
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, _YAML)):
            return "YAML aliases (*name) aren't supported between the --- lines."  # They may grow without end.
        values = yaml.load(text, Loader=_YAML)  # noqa: S506 -- makes texts, lists and tables
    except (yaml.YAMLError, RecursionError, ValueError):
        return _parse_front_matter_leniently(text)
    if not isinstance(values, dict | None):
        return "The block between the two --- lines must be a YAML mapping of names to values."
    return {str(name): value for name, value in (values or {}).items()}


def _parse_front_matter_leniently(text: str) -> Mapping[str, Any] | str:
    """Published files have colons in their descriptions, which YAML refuses and everybody takes."""
    values: dict[str, Any] = {}
    for line in text.splitlines():
        found = re.fullmatch(r"([A-Za-z][\w-]*):[ \t]+(\S.*)", line)
        if found is None or found[2][0] in "[{&*|>%@`":
            if line.strip() and not line.startswith((" ", "\t", "#")):
                return "Invalid YAML between the --- lines."
            continue
        values[found[1]] = found[2].strip().strip("\"'")
    return values or "Invalid YAML between the --- lines."


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
