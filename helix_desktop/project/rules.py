"""Rules files of a folder: which there are, what they import, and when they come into force.

Those of a root hold always; those of a folder below it from the moment a file below them is touched; Cursor's rules with
`globs` from the moment a file that fits is touched.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath

from helix_desktop.errors import WrongUse
from helix_desktop.project.item import Item, front_matter, listed, plain, text_of

NAMES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
OF_A_ROOT = (".claude/CLAUDE.md", ".github/copilot-instructions.md", ".cursorrules")
DEEPEST_IMPORT = 5
MOST_IMPORTED = 256 * 1024
_IMPORT = re.compile(r"(?<![\w`@/])@([~\w./][^\s`,;:!?)\]]*)")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)


def of_roots(roots: Sequence[Path], touched: Iterable[Path] = ()) -> Iterator[Item]:
    """All that hold now; `touched`: files the agent has looked at or changed."""
    files = tuple(touched)
    for root in roots:
        for name in (*NAMES, *OF_A_ROOT):
            yield from _file(root / name, root, "")
        yield from _cursor(root, root, files)
        for folder in _folders(root, files):
            where = folder.relative_to(root).as_posix()
            for name in NAMES:
                yield from _file(folder / name, root, f"a file in {where} was used")
            yield from _cursor(folder, root, files)


def _folders(root: Path, touched: Sequence[Path]) -> list[Path]:
    """Below the root, every folder a touched file lies in or below, outer ones first."""
    found: dict[Path, None] = {}
    for path in touched:
        if path.is_relative_to(root):
            for folder in reversed(path.parents):
                if folder != root and folder.is_relative_to(root):
                    found[folder] = None
    return list(found)


def _file(path: Path, root: Path, why: str) -> Iterator[Item]:
    if path.is_symlink() and path.name in NAMES:
        return  # most often CLAUDE.md that points to AGENTS.md: the same text once is enough
    text = text_of(path, root)
    if text is not None and text.strip():
        whole, notes = with_imports(text, path, root)
        yield Item("rules", path.name, path, whole, whole, why=why or "it belongs to the workspace's folder", notes=notes)


def with_imports(text: str, path: Path, root: Path) -> tuple[str, tuple[str, ...]]:
    """The text with every `@file` it imports behind it, word for word, and what could not be imported."""
    notes: list[str] = []
    parts = [text]
    seen = {path}

    def take(said: str, beside: Path, depth: int) -> None:
        for name in _IMPORT.findall(_CODE.sub(" ", said)):
            target = (beside.parent / name.rstrip(".")).resolve()
            if target in seen or ("." not in target.name and not target.is_file()):
                continue
            seen.add(target)
            found = text_of(target, root) if depth < DEEPEST_IMPORT else None
            if found is None or sum(map(len, parts)) + len(found) > MOST_IMPORTED:
                if "/" in name or "." in name[1:]:
                    notes.append(f"@{name} was not imported: it is missing, too large, too deep, or outside of the folder.")
                continue
            parts.append(f"Imported from {target.relative_to(root.resolve())}:\n\n{found}")
            take(found, target, depth + 1)

    take(text, path, 0)
    return "\n\n".join(parts), tuple(notes)


def _cursor(folder: Path, root: Path, touched: Sequence[Path]) -> Iterator[Item]:
    try:
        files = sorted((folder / ".cursor" / "rules").rglob("*.mdc"))[:200]
    except OSError:
        return
    for path in files:
        text = text_of(path, root)
        if text is None:
            continue
        try:
            values, body = front_matter(text)
        except WrongUse as error:
            yield Item("rules", path.name, path, text, text, notes=(str(error),), broken=True)
            continue
        why = _holds(values, folder, touched)
        if why:
            yield Item("rules", path.name, path, text, body.strip(), plain(values.get("description")), why=why)


def _holds(values: dict[str, object], folder: Path, touched: Sequence[Path]) -> str:
    """Why a rule of Cursor's holds now; empty where it does not."""
    if plain(values.get("alwaysApply")).lower() == "true":
        return "it says that it always applies"
    globs = listed(values.get("globs"))
    for path in touched:
        if path.is_relative_to(folder):
            inside = path.relative_to(folder).as_posix()
            for glob in globs:
                if fits(inside, glob):
                    return f"{inside} was used, and it is for {glob}"
    return ""


def fits(path: str, glob: str) -> bool:
    """Whether a path fits a glob: `**` any folders, `*.ts` any file so named."""
    return fnmatch.fnmatchcase(path, glob.replace("**/", "*")) or (
        "/" not in glob and fnmatch.fnmatchcase(PurePath(path).name, glob)
    )
