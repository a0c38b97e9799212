"""Rules files of a folder: which exist, what they import, and when they apply.

Those in a root always apply; those in a folder below it, once a file below
them is touched; Cursor's rules with `globs`, once a matching file is touched.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.project.project_item import (
    ProjectItem,
    ProjectReading,
    split_front_matter,
    text_or_empty,
)

NAMES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
OF_A_ROOT = (".claude/CLAUDE.md", ".github/copilot-instructions.md", ".cursorrules")
DEEPEST_IMPORT = 5
MOST_IMPORTED = 256 * 1024
_IMPORT = re.compile(r"(?<![\w`@/])@([~\w./][^\s`,;:!?)\]]*)")
# A pattern in a list of them; a comma within braces does not end it.
_GLOB = re.compile(r"(?:\{[^{}]*\}|[^\s,])+")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_GLOBS = 256
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)


def nothing_is_hidden(_path: Path) -> bool:
    """Return False, for folders without hidden files."""
    return False


def find_rules_of_root(
    reading: ProjectReading,
    touched: Sequence[Path] = (),
    is_hidden: Callable[[Path], bool] = nothing_is_hidden,
) -> Iterator[ProjectItem]:
    """Yield the rules that now apply. `touched`: files the agent read or changed.
    `is_hidden`: tells hidden files.
    """
    for name in NAMES + OF_A_ROOT:
        yield from _read_rules_file(reading.root / name, reading, "", is_hidden)
    yield from _find_cursor_rules(reading.root, reading, touched)


def find_rules_of_touched_folders(
    reading: ProjectReading,
    touched: Sequence[Path],
    is_hidden: Callable[[Path], bool] = nothing_is_hidden,
) -> Iterator[ProjectItem]:
    """Yield rules that apply because a file below them was touched."""
    for folder in _folders_of_touched(reading.root, touched):
        path_in_root = folder.relative_to(reading.root).as_posix()
        for name in NAMES:
            yield from _read_rules_file(
                folder / name,
                reading,
                f"a file in {path_in_root} was used",
                is_hidden,
                below=folder,
            )
        yield from _find_cursor_rules(folder, reading, touched)


def _folders_of_touched(root: Path, touched: Sequence[Path]) -> Iterator[Path]:
    """Yield the folders between the root and each touched file, the outer ones first."""
    known_folders = {root}
    for path in touched:
        if path == root or not path.is_relative_to(root):
            continue
        new_folders = []
        for folder in path.parents:
            if folder in known_folders:
                break
            new_folders.append(folder)
        known_folders.update(new_folders)
        yield from reversed(new_folders)


def _read_rules_file(
    path: Path,
    reading: ProjectReading,
    reason: str,
    is_hidden: Callable[[Path], bool],
    below: Path | None = None,
) -> Iterator[ProjectItem]:
    """Yield the rules in this file, with the files they import, or nothing if it is missing or
    empty. `reason`: why they apply, for the user. `below`: they apply only to this folder.
    """
    if _is_link_to_rules_beside_it(path):
        return  # CLAUDE.md is often a link to AGENTS.md, which is sent anyway.
    text = reading.read_text(path)
    if text is not None and text.strip():
        text_with_imports, notes = append_imported_files(text, path, reading, is_hidden)
        reason = reason or "it belongs to the workspace's folder"
        yield ProjectItem(
            "rules",
            path.relative_to(reading.root).as_posix(),
            path,
            text_with_imports,
            text_with_imports,
            why=reason,
            notes=notes,
            below=below,
        )


def _is_link_to_rules_beside_it(path: Path) -> bool:
    if not path.is_symlink() or path.name not in NAMES:
        return False
    with suppress(OSError, RuntimeError, ValueError):
        real_path = path.resolve()
        is_beside = real_path.parent == path.parent.resolve()
        return is_beside and real_path.name in NAMES
    return True  # A link that leads to itself.


def append_imported_files(
    text: str,
    path: Path,
    reading: ProjectReading,
    is_hidden: Callable[[Path], bool] = nothing_is_hidden,
) -> tuple[str, tuple[str, ...]]:
    """Return the text followed by every `@file` that it imports, and what could not be imported."""
    imports = _Imports(
        reading, is_hidden, parts=[text], total_characters=len(text), imported_paths={path}
    )
    imports.add_imports_of(text, path, 0)
    return "\n\n".join(imports.parts), tuple(imports.notes)


@dataclass(slots=True)
class _Imports:
    """Files that rules import, each once, in the order in which they are named."""

    reading: ProjectReading
    is_hidden: Callable[[Path], bool]
    parts: list[str]
    total_characters: int
    imported_paths: set[Path]
    notes: list[str] = field(default_factory=list)

    def add_imports_of(self, text: str, path: Path, depth: int) -> None:
        """Add the files that a text names as `@path`, and those that these import in turn. What
        stands in code is no import. What cannot be imported is noted.
        """
        for name in _IMPORT.findall(_CODE.sub(" ", text)):
            self.reading.count_file_accesses(1)
            target = self._find_new_target(name, path)
            if target is None:
                continue
            self.imported_paths.add(target)
            if self.is_hidden(target):
                self.notes.append(
                    f"@{name} was not imported, because it is hidden from agents in this workspace."
                )
                continue
            imported = None
            if depth < DEEPEST_IMPORT:
                imported = self.reading.read_text(target)
            if imported is None or self.total_characters + len(imported) > MOST_IMPORTED:
                self._note_missing(name)
                continue
            shown_path = target.relative_to(self.reading.real_root)
            part = f"Imported from {shown_path}:\n\n{imported}"
            self.parts.append(part)
            self.total_characters += len(part)
            self.add_imports_of(imported, target, depth + 1)

    def _find_new_target(self, name: str, importing_file: Path) -> Path | None:
        """Return the file that a name after an `@` means, seen from the file it stands in, or
        None if it is no file name or was imported before.
        """
        # The name may be too long, or links may form a circle.
        with suppress(OSError, RuntimeError, ValueError):
            target = (importing_file.parent / name.rstrip(".")).resolve()
            if target in self.imported_paths:
                return None
            # Otherwise, a word such as @decorator is meant.
            if "/" in name or "." in name or target.is_file():
                return target
        return None

    def _note_missing(self, name: str) -> None:
        if "/" in name or "." in name[1:]:
            self.notes.append(
                f"@{name} was not imported: it is missing, too large, nested too deeply, or outside the folder."
            )


def _find_cursor_rules(
    folder: Path, reading: ProjectReading, touched: Sequence[Path]
) -> Iterator[ProjectItem]:
    """Yield a folder's rules in the format of the editor Cursor that apply now: always, or
    because of patterns of files that the agent has used.
    """
    for path in reading.list_files_below(folder / ".cursor" / "rules", 200, ".mdc"):
        text = reading.read_text(path)
        if text is None:
            continue
        name = path.relative_to(reading.root).as_posix()
        try:
            values, body = split_front_matter(text)
        except InvalidInput as error:
            yield ProjectItem("rules", name, path, text, text, notes=(str(error),), broken=True)
            continue
        always_applies = text_or_empty(values.get("alwaysApply")).lower() == "true"
        globs = _parse_globs(values.get("globs"))
        if not always_applies and not globs:
            continue  # The model can ask for these rules, so they are not sent.
        # Comparing 32 paths with a pattern takes about as long as an access to a file.
        comparison_count = len(globs) * len(touched)
        reading.count_file_accesses(comparison_count // 32)
        description = text_or_empty(values.get("description"))
        item = ProjectItem(
            kind="rules",
            name=name,
            path=path,
            text=text,
            body=body.strip(),
            about=description,
            below=folder,
            globs=globs,
        )
        if always_applies:
            item = replace(item, globs=())
        if always_applies and folder == reading.root:
            item = replace(item, below=None)
        reason = _explain_cursor_rule(item, touched)
        if reason:
            yield replace(item, why=reason)


def _parse_globs(value: object) -> tuple[str, ...]:
    """Return patterns from a list, or from text with commas or blanks: `**/*.{ts,tsx}, *.py`.

    A pattern with braces becomes one for each alternative.
    """
    patterns: list[str] = []
    if isinstance(value, str):
        patterns = _GLOB.findall(value)
    elif isinstance(value, Sequence):
        for item in value:
            patterns.append(text_or_empty(item))
    globs: list[str] = []
    while patterns:
        pattern = patterns.pop(0)
        braces = _BRACES.search(pattern)
        if braces is None or len(globs) + len(patterns) > _MOST_GLOBS:
            globs.append(pattern)
            continue
        before = pattern[: braces.start()]
        after = pattern[braces.end() :]
        for alternative in braces[1].split(","):
            patterns.append(f"{before}{alternative.strip()}{after}")
    return tuple(glob for glob in globs if glob)


def _explain_cursor_rule(item: ProjectItem, touched: Sequence[Path]) -> str:
    """Say why these rules apply, or return an empty text if they don't."""
    if not item.is_nested:
        return "it is set to always apply"
    used_names = [path.name for path in touched if item.applies_to([path])]
    if not used_names:
        return ""
    files = ", ".join(item.globs) or "all files there"
    return f"it applies to {files}, and the agent used {used_names[0]}"
