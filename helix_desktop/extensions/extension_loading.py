"""Runs the code of allowed extensions, and switches off what fails or hangs.

An extension runs in this process with the user's rights: nothing here is a sandbox. What is
held is the program's own work. An extension that raises, never returns, or takes a name that
the program has, is switched off with a sentence, and everything else goes on.
"""

import asyncio
import importlib
import site
import sys
import sysconfig
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import ModuleType
from typing import Any

import helix_desktop
from helix_desktop.concurrency import run_on_detached_thread
from helix_desktop.engine.facts import ToolSpec
from helix_desktop.engine.ports import CallContext, ForeignToolResult
from helix_desktop.errors import HelixError
from helix_desktop.extensions.allowed_imports import (
    AllowedPackagesFinder,
    modules_of_files,
    start_finding,
)
from helix_desktop.extensions.extension_interfaces import Extension, ExtensionTool
from helix_desktop.extensions.extension_offers import (
    check_declaration,
    offer_declared_things,
)
from helix_desktop.extensions.installed_extensions import (
    AllowedExtensions,
    ExtensionState,
    InstalledExtension,
    describe_changed_extension,
    describe_failed_extension,
)
from helix_desktop.extensions.limited_calls import (
    ExtensionFailed,
    message_of,
    run_with_limit,
)
from helix_desktop.extensions.loading_marks import LoadingMarks
from helix_desktop.extensions.running_extension import RunningExtension
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import format_json_value
from helix_desktop.program_folders import ProgramFolders

IMPORT_SECONDS = 10.0
CHECK_SECONDS = 5.0


@dataclass(slots=True)
class LoadedExtensions:
    """All extensions that run in this process. `complaints`: a sentence for each that does not."""

    decisions: AllowedExtensions
    running: list[RunningExtension] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def load_allowed(self) -> None:
        """Load what the user allowed. Takes no time if nothing is allowed."""
        if not self.decisions.is_any_allowed():
            return
        finder = AllowedPackagesFinder(self.decisions.folder)
        start_finding(finder, self.decisions.bytecode_folder)
        marks = LoadingMarks(self.decisions.loading_folder)
        names_that_ended = marks.remove_names_of_ended_processes()
        try:
            for known in self.decisions.list_in_order_of_consent():
                if known.state is ExtensionState.CHANGED:
                    self.complaints.append(describe_changed_extension(known.installed))
                if known.state is not ExtensionState.ALLOWED:
                    continue
                if known.installed.name in names_that_ended:
                    self._switch_off_failed(
                        known.installed, "the program ended while it was loaded"
                    )
                    continue
                modules = modules_of_files(known.installed.files, self.decisions.folder)
                finder.allow_modules(modules, known.installed.packages)
                marks.note_loading(known.installed.name)
                self._load_or_switch_off(known.installed)
        finally:
            marks.note_end_of_loading()

    def _switch_off_failed(self, installed: InstalledExtension, why: str) -> None:
        self.decisions.switch_off_failed(installed, why)
        self.complaints.append(describe_failed_extension(installed, why))

    def _load_or_switch_off(self, installed: InstalledExtension) -> None:
        try:
            declared = _import_extension(installed)
            # Looking at a declaration is limited, too: what it holds may be objects of its own.
            checked = run_with_limit(
                lambda: check_declaration(installed, declared), CHECK_SECONDS, "its declaration"
            )
            extension = RunningExtension(installed, checked, self.decisions, self.complaints)
            extension.withdraws = offer_declared_things(extension)
        except HelixError as error:
            self._switch_off_failed(installed, error.what)
            return
        self.running.append(extension)

    def withdraw_everything(self) -> None:
        for extension in self.running:
            for withdraw in extension.withdraws:
                withdraw()
        self.running.clear()

    def list_tools(self) -> Sequence["ToolOfExtension"]:
        tools: list[ToolOfExtension] = []
        for extension in self.running:
            if extension.stopped_because:
                continue
            for declared in extension.declared.tools:
                tools.append(ToolOfExtension(extension, declared))
        return tools


@dataclass(frozen=True, slots=True)
class ToolOfExtension:
    """A tool in the form that the Toolbox takes (`toolbox.ForeignTool`), so that every call is
    asked about like one of an MCP server.
    """

    extension: RunningExtension
    declared: ExtensionTool

    @property
    def spec(self) -> ToolSpec:
        name = f"{self.extension.installed.name}__{self.declared.name}"
        return ToolSpec(name, self.declared.description, format_json_value(self.declared.schema))

    @property
    def title_for_question(self) -> str:
        return f"{self.extension.declared.title}: {self.declared.name}"

    @property
    def has_changed_description(self) -> bool:
        return False  # With another description, it is another version, which is not allowed yet.

    @property
    def runs_alone(self) -> bool:
        return True  # Nobody knows what it changes.

    @property
    def only_reads(self) -> bool:
        return False

    def remember_approval(self) -> None:
        """Do nothing: what is allowed is the extension with all of its files."""

    async def call_foreign_tool(
        self, values: Mapping[str, Any], context: CallContext
    ) -> ForeignToolResult:
        return await self.call_with_limit(values)

    async def call_with_limit(self, values: Mapping[str, Any]) -> ForeignToolResult:
        # A thread and a loop of its own: code that never waits would stop the window otherwise.
        calling = run_on_detached_thread(
            lambda: _run_tool_to_its_end(self.declared, values),
            name=f"extension {self.extension.installed.name}",
        )
        try:
            async with asyncio.timeout(self.declared.limit_seconds):
                text = await calling
        except TimeoutError:
            why = f"{self.declared.name} did not return within {self.declared.limit_seconds:.0f} s"
            self.extension.note_hanging(why)
            return ForeignToolResult(
                f"The extension {self.extension.installed.name} was switched off: {why}.", ok=False
            )
        except ExtensionFailed as error:
            self.extension.note_failure(self.declared.name, error.what)
            return ForeignToolResult(error.what, ok=False)
        self.extension.note_success(self.declared.name)
        return ForeignToolResult(text)


def _run_tool_to_its_end(tool: ExtensionTool, values: Mapping[str, Any]) -> str:
    """Run a tool's coroutine on a loop of this thread. Raises ExtensionFailed, also where the
    tool wants to end the program.
    """

    async def await_result() -> object:
        return await tool.run(values)

    try:
        result = asyncio.run(await_result())
    except BaseException as error:
        raise ExtensionFailed(
            f"{tool.name} failed with {type(error).__name__}: {message_of(error)}"
        ) from error
    if not isinstance(result, str):
        raise ExtensionFailed(
            f"{tool.name} failed with TypeError: it returned {type(result).__name__} instead of a text"
        )
    return result


# --- Loading: import, check, offer

_loaded: dict[Path, LoadedExtensions] = {}
_loading = threading.Lock()


async def load_extensions_once(where: ProgramFolders) -> LoadedExtensions:
    """Return what runs in this process for these folders, and load it the first time."""
    return await asyncio.to_thread(load_extensions_in_thread, where)


def forget_loaded_extensions() -> None:
    """Let the next call load the extensions again, for tests that share one process."""
    for extensions in _loaded.values():
        extensions.withdraw_everything()
    _loaded.clear()


def load_extensions_in_thread(where: ProgramFolders) -> LoadedExtensions:
    with _loading:
        if where.config not in _loaded:
            extensions = LoadedExtensions(AllowedExtensions(where))
            extensions.load_allowed()
            _loaded[where.config] = extensions
        return _loaded[where.config]


def _import_extension(installed: InstalledExtension) -> Extension:
    """Import the package's module and return what its entry point names."""
    module_name, _, attributes = installed.target.partition(":")

    def import_and_find() -> object:
        value: object = importlib.import_module(module_name)
        for attribute in filter(None, attributes.split(".")):
            value = getattr(value, attribute)
        return value

    modules_before = set(sys.modules)
    declared = run_with_limit(import_and_find, IMPORT_SECONDS, "its module")
    if not isinstance(declared, Extension):
        raise ExtensionFailed(f"{installed.target} is no Extension, but {type(declared).__name__}")
    _check_loaded_files(installed, set(sys.modules) - modules_before | {module_name})
    return declared


def _check_loaded_files(installed: InstalledExtension, module_names: Iterable[str]) -> None:
    """Raises ExtensionFailed for a module that came from a file whose change nobody would notice."""
    trusted_folders = _folders_of_program_and_libraries()
    for name in module_names:
        module = sys.modules.get(name)
        # Anything can be put among the modules, and looking at it could run somebody else's code.
        if type(module) is not ModuleType:
            continue
        file = module.__dict__.get("__file__")
        if not isinstance(file, str) or Path(file) in installed.files:
            continue
        real_file = Path(file).resolve()
        if not any(real_file.is_relative_to(folder) for folder in trusted_folders):
            raise ExtensionFailed(
                f"it loaded {file}, which is not among the files that were allowed"
            )


def _folders_of_program_and_libraries() -> list[Path]:
    """Return where the program, Python and the packages beside the program are installed."""
    folders = [str(Path(helix_desktop.__file__).parent), sys.prefix, sys.base_prefix]
    folders.extend(sysconfig.get_paths().values())
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return [Path(folder).resolve() for folder in folders]
