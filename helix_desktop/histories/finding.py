"""Where the histories of other programs lie on this computer, without reading them whole.

A file is one session, but for databases, which hold many. What is told of a session comes from the first lines of its file.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from helix_desktop.histories import claude_code, cline, codex, gemini_cli, goose, opencode, pi, sqlite_files
from helix_desktop.histories.beside import read_beneath
from helix_desktop.histories.rows import mapping, string, time_of
from helix_desktop.values import dataclass

_LOOKED_AT = 256 << 10  # bytes at the beginning of a file
_LARGEST_ABOUT = 64 << 20  # bytes of a file that only tells of a session
_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")


@dataclass(frozen=True, slots=True)
class Found:
    """Histories in one file. `folder`: where their work was done, as the file tells; empty where it does not."""

    kind: str
    path: Path
    folder: str
    conversations: int
    size: int
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look: a home folder, and what the programs' own variables say."""

    home: Path
    variables: Mapping[str, str]

    @classmethod
    def of_this_user(cls) -> Places:
        return cls(Path.home(), os.environ)

    def at(self, variable: str, *otherwise: str) -> Path:
        named = self.variables.get(variable, "")
        return Path(named) if named else self.home.joinpath(*otherwise)


def roots(places: Places) -> Mapping[str, Sequence[Path]]:
    """The folders each program keeps its histories under, there or not."""
    codex_home, data = places.at("CODEX_HOME", ".codex"), places.at("XDG_DATA_HOME", ".local", "share")
    return {
        claude_code.KIND: [places.at("CLAUDE_CONFIG_DIR", ".claude") / "projects"],
        codex.KIND: [codex_home / "sessions", codex_home / "archived_sessions"],
        opencode.KIND: [data / "opencode"],
        gemini_cli.KIND: [places.at("GEMINI_CLI_HOME") / ".gemini" / "tmp"],
        pi.KIND: [places.at("PI_CODING_AGENT_DIR", ".pi", "agent") / "sessions"],
        cline.KIND: list(_cline(places)),
        goose.KIND: [data / "goose" / "sessions"],
    }


def find(places: Places) -> Iterator[Found]:
    """All of them, program by program. A place that cannot be read has none."""
    for kind, folders in roots(places).items():
        for folder in folders:
            yield from _FIND[kind](folder)


def _files(kind: str, pattern: str) -> Callable[[Path], Iterator[Found]]:
    return lambda folder: _each(kind, _below(folder, pattern))


def _claude(projects: Path) -> Iterator[Found]:
    """Sub-agents come with the session they belong to."""
    files = [
        file
        for file in _below(projects, "*.jsonl")
        if "subagents" not in file.parts and not file.name.startswith("agent-")
    ]
    yield from _each(claude_code.KIND, files)


def _gemini(folder: Path) -> Iterator[Found]:
    yield from _each(gemini_cli.KIND, [file for file in _below(folder, "session-*.json*") if "chats" in file.parts])


def _goose(folder: Path) -> Iterator[Found]:
    yield from _database(goose.KIND, folder / "sessions.db", "SELECT working_dir, count(*), min(created_at), max(updated_at) FROM sessions GROUP BY working_dir")  # fmt: skip
    yield from _each(goose.KIND, _below(folder, "*.jsonl"))


def belonging(found: Found) -> Sequence[Path]:
    """The files to bring in for it: itself, and those of its sub-agents."""
    if found.kind != claude_code.KIND:
        return (found.path,)
    beside = found.path.parent
    return (found.path, *_below(beside / found.path.stem / "subagents", "agent-*.jsonl", beside))


def _below(folder: Path, pattern: str, root: Path | None = None) -> list[Path]:
    """The files below it. Links that lead out of `root`, or out of the folder, are not followed."""
    try:
        inside = folder.resolve() if root is None else root.resolve()
        return sorted(
            file for file in folder.rglob(pattern) if file.is_file() and file.resolve().is_relative_to(inside)
        )
    except OSError:
        return []


def _each(kind: str, files: Sequence[Path]) -> Iterator[Found]:
    for file in files:
        try:
            about = file.stat()
        except OSError:
            continue
        folder, begun = _begins(kind, file)
        if about.st_size:
            yield Found(kind, file, folder, 1, about.st_size, begun or about.st_mtime, about.st_mtime)


def _begins(kind: str, file: Path) -> tuple[str, float]:
    """The folder and the time its first lines name."""
    folder, time = "", 0.0
    if kind == gemini_cli.KIND:
        folder = _text(file.parent.parent, ".project_root")
    try:
        with file.open("rb") as opened:
            begins = opened.read(_LOOKED_AT)
    except OSError:
        return folder, time
    if kind == cline.KIND:
        return cline.folder_in(begins.decode("utf-8", "replace")), time
    lines = begins.split(b"\n")
    for line in lines:
        value = _loaded(line)
        inner = mapping(value.get("payload"))
        folder = folder or string(value, "cwd", "working_dir") or string(inner, "cwd")
        time = time or time_of(value.get("timestamp", value.get("startTime")))
        if folder and time:
            break
    return folder, time


def _loaded(line: bytes) -> Mapping[str, object]:
    try:
        return mapping(orjson.loads(line))
    except ValueError:
        return {}


def _text(folder: Path, name: str) -> str:
    try:
        return read_beneath(folder, name, _LOOKED_AT).decode("utf-8").strip()[:4096]
    except (OSError, ValueError):
        return ""


def _opencode(data: Path) -> Iterator[Found]:
    query = "SELECT directory, count(*), min(time_created), max(time_updated) FROM session WHERE parent_id IS NULL GROUP BY directory"
    found = list(_database(opencode.KIND, data / "opencode.db", query))
    yield from found
    if not found:
        for file in _below(data / "storage" / "session", "ses_*.json"):
            value = _loaded(read_beneath(data, str(file.relative_to(data)), _LARGEST_ABOUT))
            times = mapping(value.get("time"))
            if not value.get("parentID"):
                size = file.stat().st_size + sum(
                    one.stat().st_size for one in _below(data / "storage" / "message" / file.stem, "*.json")
                )
                yield Found(opencode.KIND, file, string(value, "directory"), 1, size, time_of(times.get("created")), time_of(times.get("updated")))  # fmt: skip


def _database(kind: str, path: Path, query: str) -> Iterator[Found]:
    """A line for each folder; the size of the file is shared out by how many sessions each has."""
    if not sqlite_files.is_one(path):
        return
    try:
        with sqlite_files.opened(path) as connection:
            rows = [tuple(row) for row in connection.execute(query)]
    except sqlite3.Error:
        return
    whole = max(1, sum(row[1] for row in rows))
    size = path.stat().st_size
    for folder, count, first, last in rows:
        yield Found(kind, path, str(folder or ""), count, size * count // whole, time_of(first), time_of(last))


def _cline(places: Places) -> Iterator[Path]:
    """Cline is a part of an editor, and its tasks lie with that editor's data; newer versions have a folder of their own."""
    yield places.home / ".cline" / "data" / "tasks"
    data = _editor_data(places)
    for editor in _EDITORS:
        yield data / editor / "User" / "globalStorage" / "saoudrizwan.claude-dev" / "tasks"


def _editor_data(places: Places) -> Path:
    by_system: Mapping[str, Callable[[], Path]] = {
        "darwin": lambda: places.home / "Library" / "Application Support",
        "win32": lambda: places.at("APPDATA", "AppData", "Roaming"),
    }
    return by_system.get(sys.platform, lambda: places.at("XDG_CONFIG_HOME", ".config"))()


_FIND: Mapping[str, Callable[[Path], Iterator[Found]]] = {
    claude_code.KIND: _claude,
    codex.KIND: _files(codex.KIND, "rollout-*.jsonl"),
    opencode.KIND: _opencode,
    gemini_cli.KIND: _gemini,
    pi.KIND: _files(pi.KIND, "*.jsonl"),
    cline.KIND: _files(cline.KIND, cline.NAME),
    goose.KIND: _goose,
}
