"""An item from a folder, as it now is on disk, and how to read its file.

Nothing here is trusted: an item is a text to show to the user, who trusts exactly this
content, by SHA-256.
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

from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.fast_dataclass import dataclass

LARGEST_FILE_BYTES = 256 * 1024
MOST_FILE_ACCESSES = 20_000
LONGEST_FRONT_MATTER = 8_000
DEEPEST_LEVEL = 32


@dataclass(frozen=True, slots=True)
class ProjectItem:
    """`text` is what the user trusts, `body` is for the model. `own`: in the user's own folders.
    `notes`: what is wrong or unsupported. `broken`: it cannot be used.
    """

    kind: str
    name: str
    path: Path
    text: str
    body: str
    about: str = ""
    own: bool = False
    # `text` contains these, too.
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)
    notes: tuple[str, ...] = ()
    broken: bool = False
    trusted: bool = False
    known: bool = False  # True if the user trusted an earlier version.
    off: bool = False
    # True for a user's hook that runs, or may run, a file from the folder.
    reaches_folder: bool = False
    why: str = ""  # The reason why these rules apply.
    below: Path | None = None  # These rules apply once a file below this folder is used.
    # Patterns of the files in `below` that these rules apply to. If empty, all of them.
    globs: tuple[str, ...] = ()

    @property
    def is_nested(self) -> bool:
        return self.below is not None

    def applies_to(self, paths: Iterable[Path]) -> bool:
        return any(map(self._applies_to_file, paths))

    def _applies_to_file(self, path: Path) -> bool:
        if self.below is None or not path.is_relative_to(self.below):
            return False
        if not self.globs:
            return True
        path_in_folder = path.relative_to(self.below).as_posix()
        return any(path_fits_glob(path_in_folder, glob) for glob in self.globs)

    @property
    def settings_key(self) -> str:
        """Return its name in settings: its path, and for a hook its name within the file."""
        if self.kind == "hook":
            return f"{self.path}#{self.name}"
        return str(self.path)

    @property
    def content_sha256(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def is_in_force(self) -> bool:
        return self.trusted and not self.off and not self.broken

    @property
    def awaits_trust(self) -> bool:
        """Whether it is used only after the user has read and trusted it."""
        return not (self.broken or self.off or self.trusted)

    @property
    def state_description(self) -> str:
        """Describe its state in a word or two, for a list."""
        if self.broken:
            return "cannot be used"
        if self.off:
            return "off"
        if self.trusted:
            return "in use"
        if self.known:
            return "changed: not trusted yet"
        return "new: not trusted yet"


_FRONT_MATTER = re.compile(
    r"\A---[ \t]*\r?\n(.*?)(?:\r?\n)?^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE
)
_Key = tuple[str, int, int, int, int]
_texts_by_file: dict[_Key, str] = {}
_hashes_by_file: dict[_Key, str] = {}


class ProjectReading:
    """One reading of a folder's files, before each step: the user's `own`, or one that
    nobody trusts yet. Accesses to remembered files count, too, so that the next reading
    ends at the same file.
    """

    def __init__(self, root: Path, *, own: bool = False) -> None:
        self.root = root
        self.own = own
        self.real_root = Path(os.path.realpath(root))
        self._accesses_left = MOST_FILE_ACCESSES

    def count_file_accesses(self, access_count: int) -> None:
        """Count looks, each as long as finding a file (50 µs). Raises HelixError if
        there are too many.
        """
        self._accesses_left -= access_count
        if self._accesses_left < 0:
            raise HelixError(
                "The folder contains too many files for agents, or these files are too large."
            )

    def contains(self, path: Path) -> bool:
        """Whether a path is in the folder, after following links."""
        with suppress(OSError, RuntimeError, ValueError):
            return path.resolve().is_relative_to(self.real_root)
        return False

    def read_text(self, path: Path) -> str | None:
        """Return a file's text, or None if it is outside, too large, unreadable or no
        plain file.
        """
        self.count_file_accesses(1)
        try:
            real_path = path.resolve(strict=True)
            status = real_path.stat()
            is_outside = not real_path.is_relative_to(self.real_root)
            if is_outside or not real_path.is_file() or status.st_size > LARGEST_FILE_BYTES:
                return None
            text = _compute_from_content_once(
                real_path,
                status,
                _texts_by_file,
                lambda content: content.decode("utf-8", "replace"),
            )
        except (OSError, RuntimeError, ValueError):
            return None
        self.count_file_accesses(status.st_size >> 10)
        if without_byte_order_mark(text).startswith("---"):
            # Its values are parsed, which takes longer than reading.
            front_length = text.find("\n---", 3, LONGEST_FRONT_MATTER)
            self.count_file_accesses(max(front_length, 0) >> 6)
        return text

    def list_folder_inside(self, folder: Path) -> list[Path]:
        """Return a folder's entries by name, or nothing if it is outside or unreadable."""
        self.count_file_accesses(1)
        if not self.contains(folder):
            return []
        paths: list[Path] = []
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                self.count_file_accesses(1)
                paths.append(folder / entry.name)
        return sorted(paths)

    def list_files_below(self, folder: Path, limit: int, ending: str = "") -> list[Path]:
        """List files and links that lead out, which are not followed, by their paths;
        each real folder once.

        Folders below the 32nd level are ignored, because the time that a path takes
        grows with its length.
        """
        files: list[Path] = []
        folders_to_list = [folder]
        listed_folders: set[str] = set()
        most_parts = len(folder.parts) + DEEPEST_LEVEL
        while folders_to_list and len(files) < limit:
            folder_to_list = folders_to_list.pop()
            real_path = os.path.realpath(folder_to_list)
            if real_path in listed_folders:
                continue
            listed_folders.add(real_path)
            # Deep folders, to which a link may lead, take longer.
            self.count_file_accesses(real_path.count(os.sep) >> 3)
            for path in self.list_folder_inside(folder_to_list):
                leads_out = path.is_symlink() and not self.contains(path)
                if not leads_out and path.is_dir():
                    if len(path.parts) <= most_parts:
                        folders_to_list.append(path)
                elif path.name.endswith(ending):
                    files.append(path)
        return sorted(files)[:limit]

    def read_markdown_files(self, folder: Path) -> Iterator[tuple[Path, str]]:
        """Yield the readable Markdown files below a folder, by path, at most 500."""
        for path in self.list_files_below(folder, 500, ".md"):
            text = self.read_text(path)
            if text is not None:
                yield path, text


def is_stored_file(path: Path) -> bool:
    """Whether it is a regular, finite file. The system's own, even behind links, may be
    endless or block.
    """
    if not path.is_file():
        return False
    real_path = path.resolve()
    return not real_path.is_relative_to("/proc") and not real_path.is_relative_to("/sys")


def hash_of_file(path: Path) -> str:
    return _compute_from_content_once(
        path, path.stat(), _hashes_by_file, lambda content: hashlib.sha256(content).hexdigest()
    )


def _compute_from_content_once(
    path: Path, status: os.stat_result, results: dict[_Key, str], compute: Callable[[bytes], str]
) -> str:
    """Return what `compute` makes of a file's content, from memory as long as the file's times
    and size stay the same.
    """
    key = (str(path), status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
    if key not in results:
        if len(results) > 2_000:
            results.clear()
        results[key] = compute(path.read_bytes())
    return results[key]


def split_front_matter(text: str) -> tuple[Mapping[str, Any], str]:
    """Split a text into the values between the `---` lines and the rest. InvalidInput
    says what is wrong.
    """
    plain_text = without_byte_order_mark(text)
    if not plain_text.startswith("---"):
        return {}, text
    front_matter = _FRONT_MATTER.match(plain_text)
    if front_matter is None:
        raise InvalidInput(
            "The block that begins with --- at the start of the file is not closed properly."
        )
    values = _parse_front_matter(front_matter[1])
    if isinstance(values, str):
        raise InvalidInput(values)
    return values, plain_text[front_matter.end() :]


def without_byte_order_mark(text: str) -> str:
    """Return a file's text without the mark that editors of Windows put at its beginning. The
    user trusts the file with it, so it is only left out where the text is parsed.
    """
    return text.removeprefix("\ufeff")


@functools.lru_cache(maxsize=4_096)
def _parse_front_matter(text: str) -> Mapping[str, Any] | str:
    """Parse the values between the `---` lines at the start of a file, which are YAML. Return
    what is wrong as a text.

    It is remembered, because folders are read again before each step.
    """
    # Most folders have no such block, and the import would delay the start.
    import yaml  # type: ignore[import-untyped]

    # The parser written in Python takes seconds for some brackets.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    if len(text) > LONGEST_FRONT_MATTER:
        return "The block between the two --- lines is longer than 8,000 characters."
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, loader)):
            # They may grow without end.
            return "YAML aliases (*name) aren't supported between the --- lines."
        values = yaml.load(text, Loader=loader)  # noqa: S506 -- makes texts, lists and tables
    except (yaml.YAMLError, RecursionError, ValueError):
        return _parse_front_matter_leniently(text)
    if not isinstance(values, dict | None):
        return "The block between the two --- lines must be a YAML mapping of names to values."
    return {str(name): value for name, value in (values or {}).items()}


def _parse_front_matter_leniently(text: str) -> Mapping[str, Any] | str:
    """Parse values with colons, which YAML refuses but published files contain."""
    values: dict[str, Any] = {}
    for line in text.splitlines():
        pair = re.fullmatch(r"([A-Za-z][\w-]*):[ \t]+(\S.*)", line)
        # Such a sign begins a list, a table or something else that is no plain text.
        if pair is not None and pair[2][0] not in "[{&*|>%@`":
            values[pair[1]] = pair[2].strip().strip("\"'")
        elif line.strip() and not line.startswith((" ", "\t", "#")):
            return "Invalid YAML between the --- lines."
    return values or "Invalid YAML between the --- lines."


def text_or_empty(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return value.strip()


def parse_name_list(value: object) -> tuple[str, ...]:
    """Return a list of names from a list, or from text with commas or blanks: `Bash(git
    add:*), Read`.
    """
    names = value
    if isinstance(value, str):
        names = re.findall(r"[^\s,()]+(?:\([^()]*\))?", value)
    if not isinstance(names, Sequence):
        return ()
    texts = [text_or_empty(name) for name in names]
    return tuple(text for text in texts if text)


def path_fits_glob(path: str, glob: str) -> bool:
    """Whether a path matches a glob: `**` is any folders, `*.ts` any such file."""
    if fnmatch.fnmatchcase(path, glob.replace("**/", "*")):
        return True
    is_about_names = "/" not in glob
    return is_about_names and fnmatch.fnmatchcase(PurePath(path).name, glob)
