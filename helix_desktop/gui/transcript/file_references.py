"""Finds what reads as a path of a file in a text, with the line or page that stands beside it.

Answers write `src/lock.rs:118`, compilers `src/lock.rs(118,4)`, tracebacks `File "lock.py", line 118`,
searches `lock.py:118: the line`. Of a PDF, answers name the page: `terms.pdf, page 2`. Whether there is such a file is known once it is pressed.
"""

import re
from collections.abc import Iterator

from helix_desktop.fast_dataclass import dataclass

FILE_LINK = "helix-file:"  # Begins the link of a text that reads as a path.
_MOST_IN_A_TEXT = 200
_LONGEST_LINE = 4_000  # What is longer is data, not a sentence with paths.
_LONGEST_SCHEME = 12  # So many characters of an address may stand before "://".
# A name without a folder counts if its ending is that of a file people open: "3.5" and "e.g." are none.
_KNOWN_ENDINGS = frozenset(
    [
        "bat",
        "bash",
        "bib",
        "c",
        "cc",
        "cfg",
        "clj",
        "cmake",
        "conf",
        "cpp",
        "cs",
        "css",
        "csv",
        "cu",
        "cxx",
        "dart",
        "diff",
        "docx",
        "el",
        "env",
        "epub",
        "ex",
        "exs",
        "fish",
        "fs",
        "go",
        "gradle",
        "graphql",
        "h",
        "hpp",
        "hs",
        "htm",
        "html",
        "ini",
        "ipynb",
        "java",
        "jl",
        "jpeg",
        "jpg",
        "js",
        "json",
        "jsonl",
        "jsx",
        "kt",
        "kts",
        "less",
        "lock",
        "log",
        "lua",
        "m",
        "md",
        "mjs",
        "ml",
        "mm",
        "nix",
        "odt",
        "ods",
        "patch",
        "pdf",
        "php",
        "pl",
        "png",
        "pptx",
        "proto",
        "ps1",
        "py",
        "pyi",
        "pyx",
        "r",
        "rb",
        "rs",
        "rst",
        "sass",
        "scala",
        "scss",
        "sh",
        "sql",
        "svelte",
        "svg",
        "swift",
        "tex",
        "tf",
        "toml",
        "ts",
        "tsv",
        "tsx",
        "txt",
        "vue",
        "webp",
        "xlsx",
        "xml",
        "yaml",
        "yml",
        "zig",
    ]
)
# Files whose names have no ending, or nothing else.
_KNOWN_NAMES = frozenset(
    [
        ".bashrc",
        ".dockerignore",
        ".editorconfig",
        ".env",
        ".gitattributes",
        ".gitignore",
        ".gitmodules",
        ".npmrc",
        ".profile",
        ".zshrc",
        "CODEOWNERS",
        "Containerfile",
        "Dockerfile",
        "Gemfile",
        "Jenkinsfile",
        "LICENSE",
        "Makefile",
        "Procfile",
        "Rakefile",
        "Vagrantfile",
    ]
)
_NAME = r"\.?[\w@+~%-][\w.@+~%-]*"
_NOT_WITHIN_WORD = r"(?<![\w/\\.:@-])"
_FOLDERS = rf"(?:~/|\.{{1,2}}/|/|[A-Za-z]:[\\/])?(?:{_NAME}[\\/])*"
_LINE_OR_PAGE = (
    r"(?:(?::|#L)(?P<line>\d{1,7})(?:-L?(?P<last>\d{1,7})|(?::\d{1,5})?)(?!\d)"
    r"|\((?P<line_in_brackets>\d{1,7})(?:,\s?\d{1,5})?\)"
    r"|[\"'`]?,? (?:at )?line (?P<line_in_words>\d{1,7})"
    r"|(?<=\.pdf),? \(?(?:on |auf )?(?:[Pp]age|p\.|Seite|S\.) ?(?P<page>\d{1,5})(?!\d)"
    r"|(?<=\.pdf)[,，]? ?第 ?(?P<chinese_page>\d{1,5}) ?页)?"
)
_PATH = re.compile(
    rf"{_NOT_WITHIN_WORD}(?P<path>{_FOLDERS}{_NAME}\.(?P<ending>[A-Za-z]\w{{0,9}}))(?![\w/\\])"
    + _LINE_OR_PAGE
)
_PATH_WITHOUT_ENDING = re.compile(
    rf"{_NOT_WITHIN_WORD}(?P<path>{_FOLDERS}(?P<name>\.?[A-Za-z_][\w-]*))(?![\w/\\-]|\.\w)"
    + _LINE_OR_PAGE
)


@dataclass(frozen=True, slots=True)
class FileReference:
    """A path in a text. `first_line` is 0 where no line stands beside it. A PDF has pages
    instead: there, it is the page.
    """

    start: int
    end: int
    path: str
    first_line: int = 0
    last_line: int = 0


def find_file_references(text: str) -> Iterator[FileReference]:
    """In the order of the text. A path without an ending is none within one that has an ending."""
    if len(text) > _LONGEST_LINE:
        return
    with_ending = [match for match in _PATH.finditer(text) if _is_likely_path(match)]
    taken_positions: set[int] = set()
    for match in with_ending:
        taken_positions.update(range(*match.span()))
    matches = list(with_ending)
    for match in _PATH_WITHOUT_ENDING.finditer(text):
        is_apart = taken_positions.isdisjoint(range(*match.span()))
        if is_apart and _is_likely_path_without_ending(match):
            matches.append(match)
    matches.sort(key=re.Match.start)
    for match in matches[:_MOST_IN_A_TEXT]:
        yield _build_file_reference(match)


def _is_likely_path(match: re.Match[str]) -> bool:
    if not _has_folder(match) and match["ending"].lower() not in _KNOWN_ENDINGS:
        return False
    return not _is_part_of_address(match)


def _is_likely_path_without_ending(match: re.Match[str]) -> bool:
    """Whether it is known by its name, or a line stands beside it: "and/or" is no file."""
    has_line = bool(match["line"] or match["line_in_brackets"] or match["line_in_words"])
    if match["name"] not in _KNOWN_NAMES and not (has_line and _has_folder(match)):
        return False
    return not _is_part_of_address(match)


def _has_folder(match: re.Match[str]) -> bool:
    return "/" in match["path"] or "\\" in match["path"]


def _is_part_of_address(match: re.Match[str]) -> bool:
    """Whether what stands just before it makes it a part of an address."""
    start_of_address = max(0, match.start() - _LONGEST_SCHEME)
    beginning = match.string[start_of_address : match.start() + len("://")]
    return "://" in beginning


def _build_file_reference(match: re.Match[str]) -> FileReference:
    line_or_page = ""
    for group in ("line", "line_in_brackets", "line_in_words", "page", "chinese_page"):
        if match[group]:
            line_or_page = match[group]
    line = line_or_page or "0"
    last_line = match["last"] or line
    return FileReference(match.start(), match.end(), match["path"], int(line), int(last_line))


def find_file_reference_at(text: str, offset: int) -> FileReference | None:
    for reference in find_file_references(text):
        if reference.start <= offset < reference.end:
            return reference
    return None
