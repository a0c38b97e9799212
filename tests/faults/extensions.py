"""A hundred ways in which an extension's code changes after it was allowed, or what it brings
misbehaves. Nothing of it may run unnoticed, stop an import or be taken for something else.

    python -m tests.faults.extensions [--strategies 20] [--seed 1]

And fold strategies that choose and write at random: no word may be lost.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.machinery
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.extensions import (
    added_actions,
    added_search_sources,
    doctor_checks,
    extension_loading,
    read_sessions,
)
from helix_desktop.extensions.doctor_checks import run_checks_of_extensions
from helix_desktop.extensions.extension_interfaces import ActionPlace
from helix_desktop.extensions.extension_loading import LoadedExtensions
from helix_desktop.extensions.installed_extensions import AllowedExtensions, ExtensionState
from helix_desktop.histories import added_formats
from helix_desktop.program_folders import ProgramFolders, find_program_folders
from helix_desktop.token_counting import shared_token_counter
from helix_desktop.workbench.history_imports import HistoryImport
from helix_desktop.workbench.session_preparation import SessionPreparation
from tests.extensions.random_strategies import code_of_random_strategy, play_beside_none

HARMLESS = """
from helix_desktop.extensions.extension_interfaces import Extension
extension = Extension("Harmless")
"""
EXTENSION_SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]


# --- Ways to change what runs


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """An allowed extension `words` in a folder for extensions, with a dependency `needed`."""

    where: ProgramFolders
    folder: Path
    elsewhere: Path

    @property
    def module(self) -> Path:
        return self.folder / "words.py"

    @property
    def package(self) -> Path:
        return self.folder / "words_package"

    @property
    def information(self) -> Path:
        return self.folder / "words-1.0.dist-info"


Change = Callable[[InstalledPackage], None]


def _write(path: Path, text: str = "changed = True\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def _shadow_on_path(installed: InstalledPackage) -> None:
    _write(installed.elsewhere / "words.py")
    sys.path.insert(0, str(installed.elsewhere))


def _shadow_by_archive(installed: InstalledPackage) -> None:
    archive = installed.elsewhere / "words.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("words.py", HARMLESS)
    sys.path.insert(0, str(archive))


def _replace_by_link(installed: InstalledPackage) -> None:
    _write(installed.elsewhere / "other.py")
    installed.module.unlink()
    installed.module.symlink_to(installed.elsewhere / "other.py")


def _replace_package_by_link(installed: InstalledPackage) -> None:
    shutil.move(installed.package, installed.elsewhere / "moved")
    installed.package.symlink_to(installed.elsewhere / "moved")
    _write(installed.elsewhere / "moved" / "__init__.py")


def _replace_by_fifo(installed: InstalledPackage) -> None:
    installed.module.unlink()
    os.mkfifo(installed.module)


CHANGES: dict[str, Change] = {
    "a byte of the module": lambda it: _append(it.module, "#"),
    "the module is empty": lambda it: _write(it.module, ""),
    "the module is gone": lambda it: it.module.unlink(),
    "a folder takes the module's name": lambda it: _write(it.folder / "words" / "__init__.py"),
    "a compiled module takes its name": lambda it: _write(it.folder / f"words{EXTENSION_SUFFIX}"),
    "a module earlier on the path": _shadow_on_path,
    "an archive earlier on the path": _shadow_by_archive,
    "the module becomes a link": _replace_by_link,
    "the module becomes a pipe": _replace_by_fifo,
    "the package's file": lambda it: _append(it.package / "__init__.py", "#"),
    "a file in the package": lambda it: _write(it.package / "more.py"),
    "a file deep in the package": lambda it: _write(it.package / "a" / "b" / "c.py"),
    "a text in the package": lambda it: _write(it.package / "words.txt"),
    "a source beside bytecode": lambda it: _write(it.package / "__pycache__" / "more.py"),
    "a folder of another language": lambda it: _write(it.package / "node_modules" / "more.py"),
    "a hidden file in the package": lambda it: _write(it.package / ".words"),
    "bytecode without source": lambda it: _write(it.package / "more.pyc"),
    "a compiled module in the package": lambda it: _write(it.package / f"x{EXTENSION_SUFFIX}"),
    "a link to a file": lambda it: (it.package / "more.py").symlink_to(it.module),
    "a link to a folder": lambda it: (it.package / "more").symlink_to(it.elsewhere),
    "a link to itself": lambda it: (it.package / "more").symlink_to(it.package),
    "a link to a device": lambda it: (it.package / "more.py").symlink_to("/dev/zero"),
    "a link to nothing": lambda it: (it.package / "more.py").symlink_to("/nothing"),
    "a pipe in the package": lambda it: os.mkfifo(it.package / "more.py"),
    "the package becomes a link": _replace_package_by_link,
    "the dependency": lambda it: _append(it.folder / "needed.py", "#"),
    "a folder takes the dependency's name": lambda it: _write(it.folder / "needed/__init__.py"),
    "a compiled module as the dependency": lambda it: _write(
        it.folder / f"needed{EXTENSION_SUFFIX}"
    ),
    "a file in the dependency's package": lambda it: _write(it.folder / "needed_more" / "x.py"),
    "a new dependency": lambda it: _append(
        it.information / "METADATA", "Requires-Dist: unrelated\n"
    ),
    "another version": lambda it: _write(
        it.information / "METADATA", "Metadata-Version: 2.1\nName: words\nVersion: 2\n"
    ),
    "another package": lambda it: _write(
        it.information / "METADATA", "Metadata-Version: 2.1\nName: sword\nVersion: 1.0\n"
    ),
    "another entry point": lambda it: _write(
        it.information / "entry_points.txt",
        "[helix_desktop.extensions]\nwords = unrelated:extension\n",
    ),
    "another attribute": lambda it: _write(
        it.information / "entry_points.txt", "[helix_desktop.extensions]\nwords = words:other\n"
    ),
    "another list of files": lambda it: _write(
        it.information / "RECORD", "words.py,,\nunrelated.py,,\n"
    ),
}


@contextmanager
def installed_package() -> Iterator[InstalledPackage]:
    search_path = list(sys.path)
    with tempfile.TemporaryDirectory() as temporary:
        where = find_program_folders(Path(temporary) / "home")
        installed = InstalledPackage(where, where.extensions_folder, Path(temporary) / "elsewhere")
        installed.elsewhere.mkdir()
        _write(installed.module, HARMLESS)
        _write(installed.package / "__init__.py", "")
        _write_description(installed.folder, "words", ["words.py", "words_package/__init__.py"])
        _append(installed.information / "METADATA", "Requires-Dist: needed\n")
        _write(
            installed.information / "entry_points.txt",
            "[helix_desktop.extensions]\nwords = words:extension\n",
        )
        _write(installed.folder / "needed.py", "")
        _write(installed.folder / "needed_more" / "__init__.py", "")
        _write_description(installed.folder, "needed", ["needed.py", "needed_more/__init__.py"])
        _write(installed.folder / "unrelated.py", HARMLESS)
        _write_description(installed.folder, "unrelated", ["unrelated.py"])
        try:
            yield installed
        finally:
            sys.path[:] = search_path


def _write_description(folder: Path, name: str, files: Sequence[str]) -> None:
    information = folder / f"{name}-1.0.dist-info"
    _write(information / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    _write(information / "RECORD", "".join(f"{file},,\n" for file in files))


def is_change_noticed(change: Change) -> bool:
    """Allow an extension, change it, and say whether it would not run any more."""
    with installed_package() as installed:
        decisions = AllowedExtensions(installed.where)
        decisions.allow_extension(decisions.find_extension("words").installed)
        if decisions.find_extension("words").state is not ExtensionState.ALLOWED:
            raise AssertionError("It was not allowed.")
        change(installed)
        for known in decisions.list_extensions():
            if known.installed.name == "words" and known.state is ExtensionState.ALLOWED:
                return False
        return True


# --- Formats of histories that misbehave

FORMAT = """
import itertools, os, sys, threading
from helix_desktop.engine.facts import *
from helix_desktop.extensions.extension_interfaces import *
from helix_desktop.histories.recorded_session import *

def recognizes(path, beginning): return path.suffix == ".quill"

def said(**values):
    return RecordedMessage(**({{"role": "assistant", "text": "Nothing."}} | values))

def session(path, *messages, **values):
    messages = messages or (RecordedMessage("user", "What?"), said())
    return RecordedSession(**({{"name": str(path), "session": "one", "messages": messages}} | values))

def read(path): yield session(path)

class Word(str): pass
class Odd(RecordedSession): __slots__ = ()
{body}
form = ExtensionHistoryFormat("quill", "Quill", recognizes, read, endings=(".quill",))
extension = Extension("Quill", history_formats=[form])
"""
# What is read, and whether a session of it may be imported.
READINGS: dict[str, bool] = {
    "def read(path): return None": False,
    "def read(path): return 7": False,
    "def read(path): return [None]": False,
    "def read(path): return [{'role': 'user'}]": False,
    "def read(path): return itertools.repeat(session(path))": False,
    "def read(path): return itertools.repeat('left out')": False,
    "def read(path): threading.Event().wait()": False,
    "def read(path): os.read(os.pipe()[0], 1)": False,
    "def read(path): raise SystemExit": False,
    "def read(path): raise KeyboardInterrupt": False,
    "def read(path): raise MemoryError": False,
    "def read(path): raise RecursionError": False,
    "def read(path): raise HistoryUnreadable('a\\x1b[2J\\n' * 999)": False,
    "def read(path): raise HistoryUnreadable(7)": False,
    "def read(path):\n yield session(path)\n raise ValueError('late')": False,
    "def read(path):\n yield session(path)\n yield 'left out\\x1b]8;;'": True,
    "def read(path): return [Odd('n', ())]": False,
    "def read(path): yield session(path, kind='claude-code')": False,
    "def read(path): yield session(path, session='')": False,
    "def read(path): yield session(path, session=Word('one'))": False,
    "def read(path): yield session(path, session=7)": False,
    "def read(path): yield session(path, name=None)": False,
    "def read(path): yield session(path, title=b'bytes')": False,
    "def read(path): yield session(path, folder='/\\x00\\n')": True,
    "def read(path): yield session(path, title='x' * 1_000_000)": True,
    "def read(path): yield session(path, forked_at=-1)": True,
    "def read(path): yield session(path, forked_from='nobody', forked_at=10**9)": True,
    "def read(path): yield session(path, parent='nobody', parent_call='7')": True,
    "def read(path): yield session(path, lines=(b'{}\\n',) * 9)": True,
    "def read(path): yield session(path, compactions=[RecordedCompaction(-5, 10**9, 'x')])": True,
    "def read(path): yield session(path, compactions=[7])": False,
    "def read(path): yield session(path, messages=None)": False,
    "def read(path): yield session(path, messages=itertools.repeat(said()))": False,
    "def read(path): yield session(path, messages=[])": False,
    "def read(path): yield session(path, said(text='\\ud800'))": True,
    "def read(path): yield session(path, said(text='\\x00' * 99))": True,
    "def read(path): yield session(path, said(text=Word('a')))": False,
    "def read(path): yield session(path, said(text='x' * 5_000_000))": True,
    "def read(path): yield session(path, said(role='system'))": False,
    "def read(path): yield session(path, said(role='nobody'))": False,
    "def read(path): yield session(path, said(time=1e308))": False,
    "def read(path): yield session(path, said(time=-1))": False,
    "def read(path): yield session(path, said(time=True))": False,
    "def read(path): yield session(path, said(time=float('inf')))": False,
    "def read(path): yield session(path, said(seconds='1'))": False,
    "def read(path): yield session(path, said(usage=Usage(input=-10**30)))": True,
    "def read(path): yield session(path, said(usage=Usage(cost=float('nan'))))": False,
    "def read(path): yield session(path, said(usage=None))": False,
    "def read(path): yield session(path, said(calls=[ToolCall('1', 'a', '{')] * 2))": True,
    "def read(path): yield session(path, said(calls=[ToolCall('1', 'a', {})]))": False,
    "def read(path): yield session(path, said(calls={}))": False,
    "def read(path): yield session(path, said(parts=[said()]))": False,
    "def read(path): yield session(path, said(parts=[Reasoning('a', opaque='{')]))": True,
    "def read(path): yield session(path, said(pictures=[RecordedPicture('', b'')]))": True,
    "def read(path): yield session(path, said(pictures=[RecordedPicture('a', 'b')]))": False,
    "def read(path): yield session(path, said(role='tool', answers='nobody'), said())": True,
    "def recognizes(path, beginning): raise SystemExit": False,
    "def recognizes(path, beginning): threading.Event().wait()": False,
    "def recognizes(path, beginning): return type('B', (), {'__bool__': lambda s: 1 / 0})()": False,
}


async def describe_import(body: str) -> tuple[int, list[str]]:
    """Import a file by a format with this code. Returns what was imported, and what was said."""
    from helix_desktop.store.all_workspaces import AllWorkspaces

    with tempfile.TemporaryDirectory() as temporary:
        where = find_program_folders(Path(temporary) / "home")
        _install(where, FORMAT.format(body=body))
        history = Path(temporary) / "talk.quill"
        history.write_text("quill", "utf-8")
        workspaces = AllWorkspaces(where.workspaces_folder)
        known = workspaces.create_stored_workspace("Quill", Path(temporary))
        workspace = await workspaces.open_stored_workspace(known.id)
        extensions = _load(where)
        try:
            preparation = SessionPreparation(named=frozenset({history}))
            importing = HistoryImport(workspace, shared_token_counter(), preparation)
            result = await importing.import_files([history])
            for conversation in result.imported:
                await workspace.journal.read_facts(conversation.id)
            return len(result.imported), [*result.complaints, *extensions.complaints]
        finally:
            extensions.withdraw_everything()
            await workspace.aclose()


def _install(where: ProgramFolders, code: str) -> None:
    folder = where.extensions_folder
    _write(folder / "quill.py", code)
    _write_description(folder, "quill", ["quill.py"])
    _write(
        folder / "quill-1.0.dist-info" / "entry_points.txt",
        "[helix_desktop.extensions]\nquill = quill:extension\n",
    )


def _load(where: ProgramFolders) -> LoadedExtensions:
    sys.modules.pop("quill", None)
    for finder in list(sys.meta_path):
        if type(finder).__name__ == "AllowedPackagesFinder":
            sys.meta_path.remove(finder)
    decisions = AllowedExtensions(where)
    decisions.allow_extension(decisions.find_extension("quill").installed)
    extensions = LoadedExtensions(decisions)
    extensions.load_allowed()
    return extensions


# --- Searches, actions and checks that misbehave

BEHAVIOURS = (
    "raise SystemExit",
    "raise GeneratorExit",
    "threading.Event().wait()",
    "return 7",
    "return [7]",
    "return itertools.repeat(7)",
    "return [type('P', (FoundPage,), {'__slots__': ()})('a', 'https://a')]",
    "return [FoundPage('a', 'javascript:alert(1)')]",
    "return [FoundPage('a', 'https://' + 'a' * 9_999)]",
)
PLACES = """
import itertools, threading
from helix_desktop.extensions.extension_interfaces import *
def run(*_):
    {body}
extension = Extension(
    "Places",
    actions=[ExtensionAction("Do it", run, 0.2)],
    search_sources=[ExtensionSearchSource("Find it", run)],
    doctor_checks=[ExtensionCheck("Check it", run)],
)
"""


async def is_misbehaviour_named(body: str) -> bool:
    """Ask a search, a check and an action that do this, and say whether each was named."""
    with tempfile.TemporaryDirectory() as temporary:
        where = find_program_folders(Path(temporary) / "home")
        _install(where, PLACES.format(body=body))
        extensions = _load(where)
        # The checks of the doctor ask for the extensions that are loaded in this process.
        extension_loading._loaded[where.config] = extensions
        try:
            (action,) = added_actions.list_added_actions()
            (source,) = added_search_sources.list_added_search_sources()
            findings = await run_checks_of_extensions(where)
            answer = await source.search("words")
            is_action_named = False
            try:
                await action.run_at_place(ActionPlace("", "", ""))
            except HelixError:
                is_action_named = True
            return len(findings) == 1 and bool(answer.failure) and is_action_named
        finally:
            extension_loading._loaded.pop(where.config)
            extensions.withdraw_everything()


def try_changes() -> Iterator[str]:
    """Yield a sentence for each change that would not be noticed."""
    for description, change in CHANGES.items():
        try:
            if not is_change_noticed(change):
                yield f"It would run unnoticed: {description}"
        except (ActionRefused, OSError) as error:
            yield f"{description}: {error}"


def try_readings(most: int) -> Iterator[str]:
    """Yield a sentence for each format that got more, or less, than it should."""
    for body, may_be_imported in list(READINGS.items())[:most]:
        imported, said = asyncio.run(describe_import(body))
        if bool(imported) is not may_be_imported:
            yield f"Imported: {imported}: {body}: {' '.join(said)[:300]}"
        if not imported and not said:
            yield f"Nothing was said: {body}"
        if any(not sentence.isprintable() for sentence in said):
            yield f"Control characters were said: {body}"
    if added_formats.list_added_formats():
        yield "A format stayed."


def try_behaviours() -> Iterator[str]:
    for body in BEHAVIOURS:
        if not asyncio.run(is_misbehaviour_named(body)):
            yield f"Not all were named: {body}"


def try_strategies(count: int, first_seed: int) -> Iterator[str]:
    """Yield a sentence for each random fold strategy that lost a word, or whose play ended badly."""
    for seed in range(first_seed, first_seed + count):
        with tempfile.TemporaryDirectory() as temporary:
            where = find_program_folders(Path(temporary) / "home")
            _install(where, code_of_random_strategy(seed))
            extensions = _load(where)
            try:
                problem = asyncio.run(play_beside_none(seed)).problem
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told with its seed
                problem = f"With the seed {seed}: {type(error).__name__}: {error}"
            finally:
                extensions.withdraw_everything()
            if problem:
                yield problem


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=0, help="formats to try; 0: all")
    parser.add_argument("--strategies", type=int, default=20, help="random fold strategies to try")
    parser.add_argument("--seed", type=int, default=1, help="of the first of these")
    arguments = parser.parse_args()
    most = arguments.trials or len(READINGS)
    read_sessions.READING_SECONDS = 1.0
    read_sessions.RECOGNIZING_SECONDS = 1.0
    added_search_sources.SECONDS_FOR_SEARCH = 0.3
    doctor_checks.SECONDS_FOR_CHECK = 0.3
    started = time.monotonic()
    wrong = list(try_changes()) + list(try_readings(most)) + list(try_behaviours())
    wrong += list(try_strategies(arguments.strategies, arguments.seed))
    tried = len(CHANGES) + most + len(BEHAVIOURS) + arguments.strategies
    for line in wrong:
        print(line)
    print(f"{tried} tried in {time.monotonic() - started:.0f} s, {len(wrong)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
