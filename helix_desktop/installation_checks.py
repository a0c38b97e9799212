"""Finds what is wrong with this installation, and what to do about it.

Each check is a small function that yields findings. An unexpected error becomes a finding, too. The
diagnostics file contains findings, versions, settings and the end of the log, without secrets and
without anything that was said or stored.
"""

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix_desktop import __version__, logs, program_settings, resources, screen_check
from helix_desktop.doctor_findings import DoctorFinding, DoctorFindingState
from helix_desktop.errors import ConfigFileMistake, HelixError, NoUsableKeyring, StoreBusy
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.installed_agent_versions import find_old_agents
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.secrets import KeyringState, ProviderKey, SecretStorage

if TYPE_CHECKING:
    from helix_desktop.store.stored_workspace import StoredWorkspace

MEGABYTE = 1_000_000
LITTLE_ROOM = 1_000 * MEGABYTE
NO_ROOM = 100 * MEGABYTE
LOG_LINES = 200
LIBRARIES = (
    "PySide6-Essentials", "qasync", "httpx", "plyvel", "plyvel-ci", "tiktoken", "keyring", "mcp", "zstandard",
    "platformdirs", "tomlkit", "markdown-it-py", "Pygments",
)  # fmt: skip
EITHER = {"plyvel", "plyvel-ci"}
_OVER = "Free up space in Settings > Files and storage or by running helix-desktop cache collect, or raise the limit. Nothing is removed automatically."
_QT_REMEDY = (
    "On Debian and Ubuntu: apt-get install libegl1 libgl1 libxcb-cursor0. "
    "In a checkout, `python3 packaging/dev.py run` installs these libraries or tells you how."
)
log = logging.getLogger(__name__)


_GOOD, _NOTE, _BAD = DoctorFindingState
PROCESS_FOLDER = Path("/proc")


@dataclass(frozen=True, slots=True)
class CheckedInstallation:
    """What the checks look at."""

    where: ProgramFolders
    secrets: SecretStorage
    process_folder: Path = PROCESS_FOLDER


Findings = Iterator[DoctorFinding] | AsyncIterator[DoctorFinding]


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """A check of the doctor. `name` is what is said of it if the check itself fails."""

    name: str
    find: Callable[[CheckedInstallation], Findings]


def _judge(
    what: str, good: str, problem: str, remedy: str, state: DoctorFindingState = _BAD
) -> DoctorFinding:
    if problem:
        return DoctorFinding(what, state, problem, remedy)
    return DoctorFinding(what, _GOOD, good)


async def check_installation(
    where: ProgramFolders, secrets: SecretStorage
) -> tuple[DoctorFinding, ...]:
    """Runs every check, in the order in which a person would ask."""
    installation = CheckedInstallation(where, secrets)
    findings: list[DoctorFinding] = []
    for check in CHECKS:
        try:
            found_by_check = check.find(installation)
            if isinstance(found_by_check, AsyncIterator):
                findings += [finding async for finding in found_by_check]
            else:
                findings += found_by_check
        except Exception as error:  # A broken installation can raise any kind of error.
            log.info("a check failed", exc_info=error)
            sentence = f"This check failed with the error {type(error).__name__}: {error}."
            findings.append(DoctorFinding(check.name, _BAD, sentence))
    return tuple(findings)


def _check_python(_: CheckedInstallation) -> Iterator[DoctorFinding]:
    version = f"{platform.python_implementation()} {platform.python_version()}"
    sentence = f"{version}, {platform.platform()}."
    is_new_enough = sys.version_info >= (3, 11)
    problem = ""
    if not is_new_enough:
        problem = sentence
    yield _judge("Python", sentence, problem, "Python 3.11 or newer is needed.")


def _check_process_folder(installation: CheckedInstallation) -> Iterator[DoctorFinding]:
    """Looks for /proc, without which no workspace can be created on Linux. Some
    containers and chroots do not mount it.
    """
    folder = installation.process_folder
    if sys.platform == "linux" and not (folder / "self").exists():
        sentence = f"{folder} is not mounted, so workspaces cannot be created or opened."
        yield DoctorFinding("Processes", _BAD, sentence, f"Mount it: mount -t proc proc {folder}")


def _check_libraries(_: CheckedInstallation) -> Iterator[DoctorFinding]:
    versions = installed_library_versions()
    missing = [name for name in LIBRARIES if name not in versions and name not in EITHER]
    if not EITHER & versions.keys():
        missing.append("plyvel")
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    problem = ""
    if missing:
        problem = f"Missing: {', '.join(missing)}."
    yield _judge("Libraries", f"{listed}.", problem, "Reinstall Helix Desktop.")
    qt = versions.get("PySide6-Essentials", "")
    if sys.version_info < (3, 12) and qt.startswith("6.12"):
        remedy = "Install a version of PySide6-Essentials earlier than 6.12."
        yield DoctorFinding("Qt", _BAD, f"PySide6 {qt} crashes on Python 3.11.", remedy)


def installed_library_versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _check_qt_plugin(_: CheckedInstallation) -> Iterator[DoctorFinding]:
    """Loads Qt's X11 plugin without Qt itself, so that the linker names any missing library."""
    package = importlib.util.find_spec("PySide6")
    if sys.platform != "linux" or package is None or package.origin is None:
        return
    plugin = Path(package.origin).parent / "Qt/plugins/platforms/libqxcb.so"
    problem = ""
    try:
        ctypes.CDLL(str(plugin))
    except OSError as error:  # PyInstaller's bundle wraps the original error.
        problem = f"Qt cannot be loaded: {error.__cause__ or error}."
    yield _judge(
        "System libraries", "All libraries that Qt needs are installed.", problem, _QT_REMEDY
    )


def _check_screen(_: CheckedInstallation) -> Iterator[DoctorFinding]:
    reason = screen_check.describe_missing_screen()
    problem = ""
    if reason:
        problem = f"The window could not be opened: {reason}."
    yield _judge("Display", "A display is available.", problem, screen_check.INSTEAD, _NOTE)


def _check_sqlite(_: CheckedInstallation) -> Iterator[DoctorFinding]:
    with sqlite3.connect(":memory:") as connection:
        options = {row[0] for row in connection.execute("PRAGMA compile_options")}
    connection.close()
    problem = ""
    if "ENABLE_FTS5" not in options:
        problem = f"{sqlite3.sqlite_version} does not include full-text search (FTS5)."
    good = f"{sqlite3.sqlite_version}, with full-text search."
    yield _judge("SQLite", good, problem, "Use a Python build whose SQLite includes FTS5.")


def _check_leveldb(_: CheckedInstallation) -> Iterator[DoctorFinding]:
    import plyvel

    with tempfile.TemporaryDirectory() as folder:
        database = plyvel.DB(folder, create_if_missing=True)
        database.put(b"key", b"value", sync=True)
        kept = database.get(b"key")
        database.close()
    problem = ""
    if kept != b"value":
        problem = "LevelDB does not give back what was stored."
    yield _judge("LevelDB", "LevelDB can store and read data.", problem, "Reinstall Helix Desktop.")


def _check_token_vocabularies(_: CheckedInstallation) -> Iterator[DoctorFinding]:
    from helix_desktop.token_counting import TiktokenCounter

    try:
        counts: dict[str, int] = {}
        for name in ("o200k_base", "cl100k_base"):
            counts[name] = TiktokenCounter(name).count_tokens("hello world")
    except (HelixError, OSError) as error:
        remedy = f"Put the vocabulary files in {resources.resources_folder() / 'encodings'}."
        yield DoctorFinding("Encodings", _BAD, str(error), remedy)
        return
    problem = ""
    if set(counts.values()) != {2}:
        problem = "A token vocabulary counts wrongly."
    good = f"{', '.join(counts)} are installed."
    yield _judge("Encodings", good, problem, "Reinstall Helix Desktop.")


async def _check_keyring(installation: CheckedInstallation) -> AsyncIterator[DoctorFinding]:
    try:
        state = await installation.secrets.check_keyring()
    except NoUsableKeyring as error:
        yield DoctorFinding("Keyring", _NOTE, error.what, error.remedy)
        return
    match state:
        case KeyringState.OPEN:
            yield DoctorFinding("Keyring", _GOOD, "The system's keyring works.")
        case KeyringState.LOCKED:
            yield DoctorFinding(
                "Keyring",
                _GOOD,
                "The system's keyring is locked. It asks for its password when a key is needed.",
            )
        case KeyringState.NOT_CREATED:
            yield DoctorFinding(
                "Keyring",
                _GOOD,
                "The system's keyring is empty. It asks for a password when the first key is stored.",
            )


def _check_disk_space(installation: CheckedInstallation) -> Iterator[DoctorFinding]:
    where = installation.where
    folder = where.data
    while not folder.exists():  # It is made with the first workspace.
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    sentence = f"{free // MEGABYTE:,} MB free on the disk that contains {where.data}."
    if free >= LITTLE_ROOM:
        yield DoctorFinding("Disk", _GOOD, sentence)
        return
    state = _NOTE
    if free < NO_ROOM:
        state = _BAD
    yield DoctorFinding("Disk", state, sentence, "Free up disk space, or remove old entries.")


def _check_settings_file(installation: CheckedInstallation) -> Iterator[DoctorFinding]:
    file = installation.where.settings_file
    mistakes = program_settings.ProgramSettings(file).file_mistakes
    for mistake in mistakes:
        yield DoctorFinding("Settings", _NOTE, mistake.what, mistake.remedy)
    if not mistakes:
        yield DoctorFinding("Settings", _GOOD, f"{file} has no errors.")


def _check_providers_file(installation: CheckedInstallation) -> Iterator[DoctorFinding]:
    from helix_desktop.providers.configured_providers import find_config_mistake

    mistake = find_config_mistake(installation.where.providers_file)
    if mistake:
        yield DoctorFinding("Providers", _BAD, mistake.what, mistake.remedy)


async def _check_key_file(installation: CheckedInstallation) -> AsyncIterator[DoctorFinding]:
    try:
        await installation.secrets.read_secret(ProviderKey("nobody"))
    except ConfigFileMistake as mistake:
        yield DoctorFinding("Keys", _BAD, mistake.what, mistake.remedy)
    except NoUsableKeyring:
        return  # `_check_keyring` has reported this already.


def _check_histories(installation: CheckedInstallation) -> Iterator[DoctorFinding]:
    yield from check_histories_of_agents(installation.where)


def check_histories_of_agents(where: ProgramFolders) -> Iterator[DoctorFinding]:
    """Finds what agents write and Helix Desktop does not read yet."""
    from helix_desktop.histories import read_share
    from helix_desktop.histories.history_format import HistoryPlaces

    shares = read_share.measure_read_shares(HistoryPlaces.of_this_user(), where.data)
    for sentence in read_share.sentences_about_unread(where.data, shares):
        yield DoctorFinding("Histories", _NOTE, sentence, "Look for a newer Helix Desktop.")


def _check_extensions(installation: CheckedInstallation) -> Iterator[DoctorFinding]:
    """Finds allowed extensions that do not run, without running any."""
    from helix_desktop.extensions import installed_extensions

    extensions = installed_extensions.AllowedExtensions(installation.where)
    if not extensions.is_any_allowed():
        return
    for known in extensions.list_extensions():
        if known.state is installed_extensions.ExtensionState.CHANGED:
            sentence = installed_extensions.describe_changed_extension(known.installed)
            yield DoctorFinding("Extensions", _NOTE, sentence)
        elif known.state is installed_extensions.ExtensionState.FAILED:
            sentence = installed_extensions.describe_failed_extension(known.installed, known.why)
            yield DoctorFinding("Extensions", _NOTE, sentence)


async def _check_workspaces(installation: CheckedInstallation) -> AsyncIterator[DoctorFinding]:
    from helix_desktop.store.all_workspaces import AllWorkspaces

    workspaces = AllWorkspaces(installation.where.workspaces_folder)
    for sentence in workspaces.remove_interrupted_imports_and_writes():
        yield DoctorFinding("Left over", _NOTE, sentence)
    for known in workspaces.list_workspaces():
        what = f"Workspace {known.name}"
        if known.mistake:
            yield DoctorFinding(what, _BAD, known.mistake)
            continue
        for warning in known.settings.warnings:
            yield DoctorFinding(what, _NOTE, warning)
        try:
            workspace = await workspaces.open_stored_workspace(known.id)
        except StoreBusy:
            yield DoctorFinding(what, _GOOD, "The workspace is already open in a running program.")
        except HelixError as error:
            yield DoctorFinding(what, _BAD, error.what, error.remedy)
        else:
            for finding in await _examine_open_workspace(workspace, what):
                yield finding


async def _examine_open_workspace(workspace: "StoredWorkspace", what: str) -> list[DoctorFinding]:
    """Returns what is to be said of a workspace, and closes it."""
    conversations = await workspace.journal.list_conversations()
    over = await workspace.bytes_over_limit()
    damaged = len(workspace.cache.quarantined_entries())
    await workspace.aclose()
    # Repairs that were made when the workspace was opened.
    findings = [DoctorFinding(what, _NOTE, note) for note in workspace.notes]
    if damaged:
        sentence = f"Cache entries that are damaged or lost: {damaged}."
        remedy = f"`helix-desktop cache verify --workspace {workspace.id} --repair` names them, and restores those that are still somewhere else."
        findings.append(DoctorFinding(what, _BAD, sentence, remedy))
    if over:
        sentence = f"The workspace's cache exceeds its limit by {over:,} bytes."
        findings.append(DoctorFinding(what, _NOTE, sentence, _OVER))
    sentence = f"The workspace can be opened. Conversations: {len(conversations)}."
    findings.append(DoctorFinding(what, _GOOD, sentence))
    return findings


async def _check_with_extensions(installation: CheckedInstallation) -> AsyncIterator[DoctorFinding]:
    """Runs the checks of allowed extensions, after all others."""
    from helix_desktop.extensions.doctor_checks import run_checks_of_extensions

    for finding in await run_checks_of_extensions(installation.where):
        yield finding


def _check_git(_: CheckedInstallation) -> Iterator[DoctorFinding]:
    path = shutil.which("git")
    problem = ""
    if path is None:
        problem = "git was not found, so the page Changes shows no repository, and no conversation can start in a copy of one."
    yield _judge("Git", f"{path}.", problem, "Install git if you work with repositories.", _NOTE)


def _check_agents(_: CheckedInstallation) -> Iterator[DoctorFinding]:
    """Say which agents are old versions, without being asked for it."""
    for old_agent in find_old_agents():
        problem = f"{old_agent.program} {old_agent.version} is an old version. With a Node.js older than 22, npm installs one without saying so."
        remedy = "Install Node.js 22 or later, and then the agent again."
        yield DoctorFinding("Agents", _NOTE, problem, remedy)


CHECKS: tuple[DoctorCheck, ...] = (
    DoctorCheck("Python", _check_python),
    DoctorCheck("Libraries", _check_libraries),
    DoctorCheck("System libraries", _check_qt_plugin),
    DoctorCheck("Display", _check_screen),
    DoctorCheck("Processes", _check_process_folder),
    DoctorCheck("SQLite", _check_sqlite),
    DoctorCheck("LevelDB", _check_leveldb),
    DoctorCheck("Encodings", _check_token_vocabularies),
    DoctorCheck("Git", _check_git),
    DoctorCheck("Agents", _check_agents),
    DoctorCheck("Keyring", _check_keyring),
    DoctorCheck("Disk", _check_disk_space),
    DoctorCheck("Settings", _check_settings_file),
    DoctorCheck("Providers", _check_providers_file),
    DoctorCheck("Keys", _check_key_file),
    DoctorCheck("Workspaces", _check_workspaces),
    DoctorCheck("Histories", _check_histories),
    DoctorCheck("Extensions", _check_extensions),
    DoctorCheck("Checks of extensions", _check_with_extensions),
)


def build_diagnostics_text(
    findings: Sequence[DoctorFinding], where: ProgramFolders, redaction: logs.LogRedaction
) -> str:
    """Returns the text of the file: JSON with the home folder shortened and secrets removed."""
    findings_as_json = [asdict(finding) for finding in findings]
    content: dict[str, Any] = {
        "read this before you send it": "This report describes the installation. It contains nothing that you or an agent wrote or stored.",
        "program": __version__,
        "libraries": installed_library_versions(),
        "findings": findings_as_json,
        "settings that differ": _changed_settings(where),
        "end of the log": _read_log_lines(where.logs / "helix.log"),
    }
    text = redaction(json.dumps(content, ensure_ascii=False, indent=1))
    # As it stands within the texts of JSON, without the quotation marks.
    home = json.dumps(str(Path.home()))[1:-1]
    return text.replace(home, "~") + "\n"


def _changed_settings(where: ProgramFolders) -> dict[str, Any]:
    settings = program_settings.ProgramSettings(where.settings_file)
    changed: dict[str, Any] = {}
    for setting in program_settings.ALL:
        value = settings[setting]
        if value != setting.default:
            changed[setting.key] = value
    return changed


def _read_log_lines(file: Path) -> list[Any]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
    except OSError:
        return []
    parsed: list[Any] = []
    for line in lines:
        try:
            parsed.append(json.loads(line))
        except (ValueError, RecursionError):  # The program may have been killed in this line.
            parsed.append(line)
    return parsed


def run_checks_with_diagnostics(where: ProgramFolders) -> tuple[tuple[DoctorFinding, ...], str]:
    """Runs the checks and returns them with the diagnostics file's text, for a caller
    without an event loop.
    """
    redaction = logs.LogRedaction()
    consent = program_settings.ProgramSettings(where.settings_file)[program_settings.KEYS_IN_FILE]
    secrets = SecretStorage(
        where.key_file, consent=lambda: consent, seen=redaction.add_secret_to_redact, limit=3.0
    )
    findings = asyncio.run(check_installation(where, secrets))
    return findings, build_diagnostics_text(findings, where, redaction)
