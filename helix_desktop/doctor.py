"""What is wrong with this installation, and what to do about it.

Each check is a small function that yields findings; one that fails in a way nobody thought of is a finding too. The
diagnostics file holds the findings, versions, settings and the end of the log, blotted: nothing of what was said or
stored, so that a user can read it in a minute and then send it.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib.metadata
import importlib.util
import json
import logging
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

from helix_desktop import __version__, display, logs, resources, settings
from helix_desktop.errors import ConfigMistake, HelixError, NoKeyring, StoreBusy
from helix_desktop.places import Places
from helix_desktop.secrets import ProviderKey, Secrets
from helix_desktop.values import dataclass

MEGABYTE = 1_000_000
LITTLE_ROOM, NO_ROOM = 1_000 * MEGABYTE, 100 * MEGABYTE
LOG_LINES = 200
LIBRARIES = (
    "PySide6-Essentials", "qasync", "httpx", "plyvel", "plyvel-ci", "tiktoken", "keyring", "mcp", "zstandard",
    "platformdirs", "tomlkit", "markdown-it-py", "Pygments",
)  # fmt: skip
EITHER = {"plyvel", "plyvel-ci"}
_OVER = "Free up space in Settings > Storage or by running helix-desktop cache collect, or raise the limit. Nothing is removed automatically."
_QT_REMEDY = (
    "On Debian and Ubuntu: apt-get install libegl1 libgl1 libxcb-cursor0. "
    "In a checkout, `python3 packaging/dev.py run` installs it or tells you how."
)
log = logging.getLogger(__name__)


class State(StrEnum):
    GOOD = "good"
    NOTE = "note"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, and what to do about it."""

    what: str
    state: State
    says: str
    remedy: str = ""


async def examine(where: Places, secrets: Secrets) -> tuple[Finding, ...]:
    """Every check, in the order a person would ask."""
    checks: tuple[Callable[[], Iterator[Finding] | AsyncIterator[Finding]], ...] = (
        _python, _libraries, _qt, _screen, _sqlite, _leveldb, _encodings, lambda: _keyring(secrets),
        lambda: _room(where), lambda: _settings(where), lambda: _providers(where),
        lambda: _keys(secrets), lambda: _workspaces(where),
    )  # fmt: skip
    findings: list[Finding] = []
    for check in checks:
        try:
            found = check()
            findings.extend([one async for one in found] if isinstance(found, AsyncIterator) else found)
        except Exception as error:  # a broken installation breaks in ways nobody thought of
            log.info("a check failed", exc_info=error)
            name = getattr(check, "__name__", "check").strip("_<>")
            findings.append(
                Finding(name, State.BAD, f"This check failed unexpectedly: {type(error).__name__}: {error}.")
            )
    return tuple(findings)


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    fits = sys.version_info >= (3, 11)
    yield Finding(
        "Python", State.GOOD if fits else State.BAD, f"{platform.python_implementation()} {version}, {platform.platform()}.",
        "" if fits else "Python 3.11 or newer is needed.",
    )  # fmt: skip


def _libraries() -> Iterator[Finding]:
    versions = installed()
    missing = [name for name in LIBRARIES if name not in versions and name not in EITHER]
    if not EITHER & versions.keys():
        missing.append("plyvel")
    if missing:
        yield Finding("Libraries", State.BAD, f"Missing: {', '.join(missing)}.", "Reinstall Helix Desktop.")
    else:
        yield Finding(
            "Libraries", State.GOOD, ", ".join(f"{name} {version}" for name, version in versions.items()) + "."
        )
    qt = versions.get("PySide6-Essentials", "")
    if sys.version_info < (3, 12) and qt.startswith("6.12"):
        yield Finding(
            "Qt",
            State.BAD,
            f"PySide6 {qt} crashes on Python 3.11.",
            "Install a version of PySide6-Essentials earlier than 6.12.",
        )


def installed() -> dict[str, str]:
    """The versions of our libraries, of those that are there."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _qt() -> Iterator[Finding]:
    """Load Qt's X11 plugin as the system's linker would, without Qt itself: what is missing names itself."""
    package = importlib.util.find_spec("PySide6")
    if sys.platform != "linux" or package is None or package.origin is None:
        return
    plugin = Path(package.origin).parent / "Qt/plugins/platforms/libqxcb.so"
    try:
        ctypes.CDLL(str(plugin))
    except OSError as error:
        why = error.__cause__ or error  # a bundle puts words of its own in front
        yield Finding("System libraries", State.BAD, f"Qt can't be loaded: {why}.", _QT_REMEDY)
    else:
        yield Finding("System libraries", State.GOOD, "All libraries that Qt needs are installed.")


def _screen() -> Iterator[Finding]:
    if reason := display.missing():
        yield Finding("Display", State.NOTE, f"The window couldn't be opened: {reason}.", display.INSTEAD)
    else:
        yield Finding("Display", State.GOOD, "A display is available.")


def _sqlite() -> Iterator[Finding]:
    with sqlite3.connect(":memory:") as connection:
        options = {row[0] for row in connection.execute("PRAGMA compile_options")}
    connection.close()
    if "ENABLE_FTS5" in options:
        yield Finding("SQLite", State.GOOD, f"{sqlite3.sqlite_version}, with full-text search.")
    else:
        yield Finding(
            "SQLite",
            State.BAD,
            f"{sqlite3.sqlite_version} has no FTS5.",
            "Use a Python build whose SQLite includes FTS5.",
        )


def _leveldb() -> Iterator[Finding]:
    import plyvel

    with tempfile.TemporaryDirectory() as folder:
        database = plyvel.DB(folder, create_if_missing=True)
        database.put(b"key", b"value", sync=True)
        kept = database.get(b"key")
        database.close()
    yield Finding("LevelDB", State.GOOD if kept == b"value" else State.BAD, "LevelDB can store and read data.")


def _encodings() -> Iterator[Finding]:
    from helix_desktop.tokens import Counter

    try:
        counts = {name: Counter(name).count("hello world") for name in ("o200k_base", "cl100k_base")}
    except (HelixError, OSError) as error:
        yield Finding(
            "Encodings", State.BAD, str(error), f"Put the vocabulary files in {resources.folder() / 'encodings'}."
        )
        return
    good = set(counts.values()) == {2}
    yield Finding("Encodings", State.GOOD if good else State.BAD, f"{' and '.join(counts)} are installed.")


async def _keyring(secrets: Secrets) -> AsyncIterator[Finding]:
    try:
        await secrets.check()
    except NoKeyring as error:
        yield Finding("Keyring", State.NOTE, error.what, error.remedy)
    else:
        yield Finding("Keyring", State.GOOD, "The system's keyring works.")


def _room(where: Places) -> Iterator[Finding]:
    place = next(path for path in (where.data, *where.data.parents) if path.exists())
    free = shutil.disk_usage(place).free
    state = State.BAD if free < NO_ROOM else State.NOTE if free < LITTLE_ROOM else State.GOOD
    remedy = "" if state is State.GOOD else "Free up disk space, or remove old entries."
    yield Finding("Disk", state, f"{free // MEGABYTE:,} MB free for {where.data}.", remedy)


def _settings(where: Places) -> Iterator[Finding]:
    mistakes = settings.Settings(where.settings).mistakes
    for mistake in mistakes:
        yield Finding("Settings", State.NOTE, mistake.what, mistake.remedy)
    if not mistakes:
        yield Finding("Settings", State.GOOD, f"{where.settings} has no errors.")


def _providers(where: Places) -> Iterator[Finding]:
    from helix_desktop.providers.configured import mistake_in

    if mistake := mistake_in(where.providers):
        yield Finding("Providers", State.BAD, mistake.what, mistake.remedy)


async def _keys(secrets: Secrets) -> AsyncIterator[Finding]:
    """The file with the keys, where the user allowed one."""
    try:
        await secrets.get(ProviderKey("nobody"))
    except ConfigMistake as mistake:
        yield Finding("Keys", State.BAD, mistake.what, mistake.remedy)
    except NoKeyring:
        return  # which was said before


async def _workspaces(where: Places) -> AsyncIterator[Finding]:
    from helix_desktop.store.workspaces import Workspaces

    workspaces = Workspaces(where.workspaces)
    for sentence in workspaces.tidy():
        yield Finding("Left over", State.NOTE, sentence)
    for known in workspaces.list():
        what = f"Workspace {known.name}"
        if known.mistake:
            yield Finding(what, State.BAD, known.mistake)
            continue
        for warning in known.settings.warnings:
            yield Finding(what, State.NOTE, warning)
        try:
            workspace = await workspaces.open(known.id)
        except StoreBusy:
            yield Finding(what, State.GOOD, "The workspace is already open in a running program.")
        except HelixError as error:
            yield Finding(what, State.BAD, error.what, error.remedy)
        else:
            conversations, over = await workspace.journal.conversations(), await workspace.over_limit()
            await workspace.aclose()
            for note in workspace.notes:  # what opening it had to mend
                yield Finding(what, State.NOTE, note)
            if over:
                yield Finding(what, State.NOTE, f"The workspace's cache exceeds its limit by {over:,} bytes.", _OVER)
            yield Finding(what, State.GOOD, f"The workspace opens and has {len(conversations)} conversations.")


def diagnostics(findings: Sequence[Finding], where: Places, redaction: logs.Redaction) -> str:
    """The text of the file: JSON, indented for reading, with the home folder shortened and secrets blotted out."""
    content: dict[str, Any] = {
        "read this before you send it": "This report describes the installation. It contains nothing that you or an agent wrote or stored.",
        "program": __version__,
        "libraries": installed(),
        "findings": [asdict(finding) for finding in findings],
        "settings that differ": _changed(where),
        "end of the log": _log_lines(where.logs / "helix.log"),
    }
    text = redaction(json.dumps(content, ensure_ascii=False, indent=1))
    return text.replace(json.dumps(str(Path.home()))[1:-1], "~") + "\n"


def _changed(where: Places) -> dict[str, Any]:
    found = settings.Settings(where.settings)
    return {each.key: found[each] for each in settings.ALL if found[each] != each.default}


def _log_lines(file: Path) -> list[Any]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
    except OSError:
        return []
    return [json.loads(line) if line.startswith("{") and line.endswith("}") else line for line in lines]


def run(where: Places) -> tuple[tuple[Finding, ...], str]:
    """The findings, and the diagnostics file's text, for a caller without a loop."""
    redaction = logs.Redaction()
    consent = settings.Settings(where.settings)[settings.KEYS_IN_FILE]
    secrets = Secrets(where.key_file, consent=lambda: consent, seen=redaction.add, limit=3.0)
    findings = asyncio.run(examine(where, secrets))
    return findings, diagnostics(findings, where, redaction)
