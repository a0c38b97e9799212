"""All workspaces of this program: which there are, and a workbench for each that is open."""

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from helix_desktop import program_settings, running_instance
from helix_desktop.console import Terminal
from helix_desktop.engine.facts import Recorded
from helix_desktop.engine.ports import Clock, ClosedSearchResult
from helix_desktop.errors import HelixError, NotFound, StoreBusy
from helix_desktop.extensions.extension_loading import load_extensions_once
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import pending_copies
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.demo_model import DEMO
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.provider_catalog import SystemClock
from helix_desktop.secrets import SecretStorage
from helix_desktop.store import closed_workspace_search, workspace_link
from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace
from helix_desktop.store.fleet_tasks import TaskRetention
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_export import Report, ignore_progress
from helix_desktop.token_counting import TiktokenCounter
from helix_desktop.workbench.model_roles import ModelAccess
from helix_desktop.workbench.open_workbench import ProgramDependencies, Workbench, workbench_of
from helix_desktop.workbench.shared_store_setup import join_shared_workspace

if TYPE_CHECKING:
    from helix_desktop.workbench.fleet_overview import FleetOverview


class WorkspaceService(Protocol):
    """Answers commands from outside about an open workspace until it is finished."""

    async def finish_requests(self) -> None: ...


MOST_ATTEMPTS = 30  # To open a workspace that a command has open for a moment.
PAUSE_SECONDS = 0.1  # Between two attempts.
LAST_SEND_SECONDS = 5.0  # Before a command ends, it has this many seconds to send the last facts.
log = logging.getLogger(__name__)
Serve = Callable[[StoredWorkspace], Awaitable[WorkspaceService]]


@dataclass(frozen=True, slots=True)
class OpenWorkspace:
    """An open workspace, and what answers commands from outside about it, if anything does."""

    stored: StoredWorkspace
    bench: Workbench
    service: WorkspaceService | None


class Workbenches:
    """`serve` lets the command line reach a workspace while it is open here."""

    def __init__(
        self,
        places: ProgramFolders,
        secrets: SecretStorage,
        *,
        serve: Serve | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.places = places
        self.secrets = secrets
        self.configured = ConfiguredProviders(places.providers_file)
        self.connections = ProviderConnections()
        self.tokens = TiktokenCounter()
        self.register_route: Callable[..., dict[str, Any] | None] = lambda *_: None
        self._serve = serve
        self._clock = clock or SystemClock()
        self._known = AllWorkspaces(places.workspaces_folder, count=self.tokens.count_tokens)
        self._open: dict[str, OpenWorkspace] = {}
        self._opening = asyncio.Lock()
        self._has_cleaned_up = False

    def list_workspaces(self, *, trashed: bool = False) -> Sequence[KnownWorkspace]:
        return self._known.list_workspaces(trashed=trashed)

    @cached_property
    def fleet(self) -> "FleetOverview":
        """Created when somebody looks at tasks."""
        from helix_desktop.workbench.fleet_overview import FleetOverview

        return FleetOverview(self._known, self.open_workspace)

    def opened_workbenches(self) -> Sequence[Workbench]:
        return [open_workspace.bench for open_workspace in self._open.values()]

    async def open_workspace(self, workspace: str) -> Workbench:
        """Return a workspace's workbench, which is opened if it is not open in this program."""
        known_workspace = await asyncio.to_thread(self._known.find_known_workspace, workspace)
        async with self._opening:
            if not self._has_cleaned_up:
                self._has_cleaned_up = True
                sentences = await asyncio.to_thread(
                    self._known.remove_interrupted_imports_and_writes
                )
                for sentence in sentences:
                    log.info("%s", sentence)
            if known_workspace.id not in self._open:
                self._open[known_workspace.id] = await self._open_with_service(known_workspace.id)
            return self._open[known_workspace.id].bench

    async def close_workspace(self, workspace: str) -> None:
        closed = self._open.pop(workspace, None)
        if closed is None:
            return
        # All steps run even if one of them fails, so that the workspace can be opened again.
        # They run in the reverse order: first the requests end, and the store closes last.
        async with AsyncExitStack() as closing_steps:
            closing_steps.push_async_callback(closed.stored.aclose)
            closing_steps.push_async_callback(closed.bench.aclose)
            if closed.service is not None:
                closing_steps.push_async_callback(closed.service.finish_requests)

    async def search_closed_workspace(self, workspace: str, words: str) -> ClosedSearchResult:
        """Search a workspace that is not open. Raises StoreBusy if it is, here or elsewhere."""
        known_workspace = await asyncio.to_thread(self._known.find_known_workspace, workspace)
        wire_to_owner = await running_instance.connect_to_owner(self.places.run, known_workspace.id)
        if wire_to_owner is not None:
            await wire_to_owner.close()
            raise StoreBusy(
                f"{known_workspace.name} is open in another program.",
                remedy="Use the workspace in the other program, or close it there first.",
            )
        async with self._opening:  # While this is held, this program does not open the workspace.
            if known_workspace.id in self._known.workspaces_open_here():
                raise StoreBusy(
                    f"{known_workspace.name} is already open in this program.",
                    remedy="Use the workspace in the window where it is open.",
                )
            return await asyncio.to_thread(
                closed_workspace_search.search_closed_stores, known_workspace.folder, words
            )

    async def read_import_facts(self) -> list[Recorded]:
        """Return the facts about imports of all workspaces that can be read, oldest first."""
        import_facts: list[Recorded] = []
        opened_by_id = {bench.id: bench for bench in self.opened_workbenches()}
        for workspace in await asyncio.to_thread(self.list_workspaces):
            bench = opened_by_id.get(workspace.id)
            with suppress(HelixError):
                if bench is not None:
                    facts_here = await bench.workspace.journal.facts_about_imports()
                else:
                    facts_here = await asyncio.to_thread(
                        closed_workspace_search.read_import_facts, workspace.folder
                    )
                import_facts += facts_here
        return sorted(import_facts, key=lambda recorded: recorded.time)

    async def create_workspace(self, name: str, folder: Path | None) -> Workbench:
        """Create a workspace for a folder, or for none, with the models that were chosen last."""
        if folder is not None:
            await asyncio.to_thread(self._known.check_usable_by_tools, folder)
        models = await self._last_chosen_models()
        known_workspace = await asyncio.to_thread(self._known.create_stored_workspace, name, folder)
        return await self._open_new_workspace(known_workspace, models)

    async def join_workspace(self, address: str, key: str, name: str, folder: Path) -> Workbench:
        if not await asyncio.to_thread(folder.is_dir):
            raise NotFound(
                f"{folder} is not a folder.", remedy="Nothing was created. Choose another folder."
            )
        models = await self._last_chosen_models()
        joined = await join_shared_workspace(self._known, address, key, name, folder, self.secrets)
        return await self._open_new_workspace(joined, models)

    async def _last_chosen_models(self) -> dict[str, str]:
        """Return the models by role that were chosen last, but never the scripted demonstration."""
        for workspace in await asyncio.to_thread(self._known.list_workspaces):
            models = workspace.settings.models
            provider, _, _model = models.get("main", "").partition("/")
            if models and provider != DEMO:
                return dict(models)
        return {}

    async def _open_new_workspace(
        self, known_workspace: KnownWorkspace, models: Mapping[str, str]
    ) -> Workbench:
        bench = await self.open_workspace(known_workspace.id)
        if models:
            await bench.change_settings({f"models.{role}": model for role, model in models.items()})
        return bench

    async def rename_workspace(self, workspace: str, name: str) -> None:
        await asyncio.to_thread(self._known.rename_workspace, workspace, name)

    async def recolour_workspace(self, workspace: str, colour: str) -> None:
        await asyncio.to_thread(self._known.recolour_workspace, workspace, colour)

    async def trash_workspace(self, *, workspace: str) -> None:
        """Close a workspace and move all of it to the trash. `restore_workspace` brings it back."""
        known_workspace = await asyncio.to_thread(self._known.find_known_workspace, workspace)
        await self.close_workspace(known_workspace.id)
        await asyncio.to_thread(self._known.trash_workspace, known_workspace.id)

    async def restore_workspace(self, workspace: str) -> None:
        await asyncio.to_thread(self._known.restore_workspace, workspace)

    async def delete_workspace(self, workspace: str) -> None:
        """Delete a workspace in the trash for good. The user's folder is not touched."""
        await asyncio.to_thread(self._known.delete_workspace, workspace)

    async def set_workspace_folders(self, workspace: str, folders: Sequence[Path]) -> Workbench:
        """Let a workspace work on these folders, and open it again."""
        bench = await self.open_workspace(workspace)
        missing_folders: list[str] = []
        for folder in folders:
            if not folder.is_dir():
                missing_folders.append(str(folder))
        if missing_folders:
            raise NotFound(
                f"{', '.join(missing_folders)} is not a folder.",
                remedy="Nothing was changed. Choose another folder.",
            )
        for folder in folders:
            await asyncio.to_thread(self._known.check_usable_by_tools, folder)
        await bench.change_settings({"roots": [str(folder.absolute()) for folder in folders]})
        return await self.reopen_workspace(workspace)

    async def reopen_workspace(self, workspace: str) -> Workbench:
        """Stop what runs in a workspace and open it again, confined to the folders it has now."""
        await self.close_workspace(workspace)
        return await self.open_workspace(workspace)

    async def export_workspace(
        self, workspace: str, path: Path, report: Report = ignore_progress
    ) -> Sequence[str]:
        """Export all but keys to a file. Returns the hashes of damaged entries, left out."""
        bench = await self.open_workspace(workspace)
        figures = await bench.workspace.index.compute_figures()

        def report_written_bytes(written_bytes: int) -> None:
            # The figures are about right: what was written may be more than they say.
            report(written_bytes, max(figures.kept, written_bytes))

        return await bench.workspace.export_to_file(path, report_written_bytes)

    async def import_workspace(
        self, path: Path, name: str = "", report: Report = ignore_progress
    ) -> KnownWorkspace:
        """Create a workspace from an export. The permissions in it are only proposed to
        the user.
        """
        return await self._known.import_workspace(path, name=name, report=report)

    async def aclose(self) -> None:
        """Close all workspaces at the same time, even if one of them fails."""
        closings = [self.close_workspace(workspace) for workspace in tuple(self._open)]
        errors_or_none = await asyncio.gather(*closings, return_exceptions=True)
        await self.connections.aclose()
        for error in errors_or_none:
            if error is not None:
                raise error

    async def _open_with_service(self, workspace: str) -> OpenWorkspace:
        """Open the stores and tools of a workspace, and let commands from outside reach
        it.
        """
        # If a step fails, the stack closes what was opened before.
        async with AsyncExitStack() as exit_stack:
            stored = await self._open_as_owner(workspace)
            exit_stack.push_async_callback(stored.aclose)
            if workspace_link.is_set_up_to_be_shared(stored):
                workspace_link.link_workspace(stored, self.secrets)
            access = ModelAccess(
                self.configured, self.secrets, self.connections, self.tokens, self._clock
            )
            shared = await _build_program_dependencies(access, self.places)
            dependencies = replace(shared, register_route=self.register_route)
            bench = await Workbench.open_workbench(stored, dependencies)
            exit_stack.push_async_callback(bench.aclose)
            service = None
            if self._serve is not None:
                service = await self._serve(stored)
            exit_stack.pop_all()  # All is open, so nothing is closed at the end of this block.
        return OpenWorkspace(stored, bench, service)

    async def _open_as_owner(self, workspace: str) -> StoredWorkspace:
        """Open the workspace as its owner, and wait if a command has it open for a moment."""
        for attempt in range(MOST_ATTEMPTS):
            try:
                return await self._known.open_stored_workspace(workspace)
            except StoreBusy:
                if attempt == 0:
                    await self._ask_gateway_to_release(workspace)
                await asyncio.sleep(PAUSE_SECONDS)
        # If it is still busy, the error says so.
        return await self._known.open_stored_workspace(workspace)

    async def _ask_gateway_to_release(self, workspace: str) -> None:
        """Ask a gateway that has the workspace open to close it, and to use this
        process from then on.
        """
        with suppress(HelixError, OSError):
            wire_to_owner = await running_instance.connect_to_owner(self.places.run, workspace)
            if wire_to_owner is None:
                return
            with Terminal() as console:
                await running_instance.run_at_owner(
                    wire_to_owner, ["gateway", "--release"], console
                )


@asynccontextmanager
async def open_single_workbench(
    workspace: StoredWorkspace, places: ProgramFolders, *, holds_questions: bool = False
) -> AsyncIterator[Workbench]:
    """Yield a workbench for a workspace that was opened for one command, or for a gateway.

    `holds_questions`: what ended gateways asked is left to who serves agents with it.
    """
    settings = program_settings.ProgramSettings(places.settings_file)
    consent = settings[program_settings.KEYS_IN_FILE]
    secrets = SecretStorage(places.key_file, consent=lambda: consent)
    access = ModelAccess(
        ConfiguredProviders(places.providers_file),
        secrets,
        ProviderConnections(),
        TiktokenCounter(),
        SystemClock(),
    )
    shared = await _build_program_dependencies(access, places)
    bench = await Workbench.open_workbench(workspace, shared, holds_questions=holds_questions)
    try:
        yield bench
    finally:
        await bench.sharing.stop_conversation_sync(limit_seconds=LAST_SEND_SECONDS)
        await bench.aclose()
        await access.connections.aclose()


@dataclass(slots=True)
class _WorkbenchUse:
    """How many commands use a workspace's workbench. `last` closes it if it was opened for them."""

    users: int = 0
    last: AsyncExitStack = field(default_factory=AsyncExitStack)
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


_use_by_workspace: "weakref.WeakKeyDictionary[StoredWorkspace, _WorkbenchUse]" = (
    weakref.WeakKeyDictionary()
)


@asynccontextmanager
async def use_workbench(
    workspace: StoredWorkspace, places: ProgramFolders
) -> AsyncIterator[Workbench]:
    """Yield this process's workbench of a workspace. If it is opened for this, its last
    user closes it.
    """
    use = _use_by_workspace.setdefault(workspace, _WorkbenchUse())
    async with use.opening:
        bench = workbench_of(workspace)
        if bench is None:
            bench = await use.last.enter_async_context(open_single_workbench(workspace, places))
        use.users += 1
    try:
        yield bench
    finally:
        use.users -= 1
        async with use.opening:
            if not use.users:
                await use.last.aclose()


async def _build_program_dependencies(
    access: ModelAccess, places: ProgramFolders
) -> ProgramDependencies:
    """Any process may change the user's instructions, so they are read again before each step."""
    settings = program_settings.ProgramSettings(places.settings_file)
    read_instructions = partial(_read_user_setting, places, program_settings.INSTRUCTIONS)
    read_acp_agents = partial(_read_user_setting, places, program_settings.ACP_AGENTS)
    seconds_to_keep_tasks = settings[program_settings.KEEP_DAYS] * 86_400.0
    most_tasks_kept = settings[program_settings.KEEP_TASKS]
    extensions = await load_extensions_once(places)
    return ProgramDependencies(
        access=access,
        closed=folders_closed_to_tools(places),
        sample=places.tour_folder,
        fetching=settings[program_settings.FETCH_PAGES],
        instructions=read_instructions,
        machine=settings[program_settings.MACHINE],
        acp_agents=read_acp_agents,
        extensions=extensions,
        task_retention=TaskRetention(seconds_to_keep_tasks, most_tasks_kept),
        pending_copies=places.data / pending_copies.FOLDER_NAME,
    )


def _read_user_setting(
    places: ProgramFolders, setting: program_settings.ProgramSetting[str]
) -> str:
    return program_settings.ProgramSettings(places.settings_file)[setting]


def folders_closed_to_tools(places: ProgramFolders) -> tuple[Path, ...]:
    """Return the program's own folders, which no tool may enter."""
    return (places.data, places.config, places.logs, places.run)
