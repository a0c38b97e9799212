"""All workspaces of this program: which there are, and a workbench for each that is open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from helix_desktop import instance
from helix_desktop.console import Terminal
from helix_desktop.engine.ports import Clock, Found
from helix_desktop.errors import HelixError, NotThere, StoreBusy
from helix_desktop.places import Places
from helix_desktop.providers.catalog import SystemClock
from helix_desktop.providers.configured import Configured
from helix_desktop.providers.demo import DEMO
from helix_desktop.providers.transport import Connections
from helix_desktop.secrets import Secrets
from helix_desktop.settings import FETCH_PAGES, INSTRUCTIONS, KEYS_IN_FILE, MACHINE, Settings
from helix_desktop.store import closed, linking
from helix_desktop.store.transfer import Report, unheard
from helix_desktop.store.workspace import Workspace
from helix_desktop.store.workspaces import Known, Workspaces
from helix_desktop.tokens import Counter
from helix_desktop.values import dataclass
from helix_desktop.workbench import shared_store
from helix_desktop.workbench.bench import Shared, Workbench
from helix_desktop.workbench.models import Access


class Serving(Protocol):
    """Answers commands from outside about an open workspace until it is finished."""

    async def finish(self) -> None: ...


PATIENCE, PAUSE = 30, 0.1  # tries and seconds
COMMAND_LAST = 5.0  # seconds a command that ends gives a shared store for the last facts
log = logging.getLogger(__name__)
Serve = Callable[[Workspace], Awaitable[Serving]]


@dataclass(frozen=True, slots=True)
class WorkspaceRow:
    """A workspace as a list shows it."""

    id: str
    name: str
    colour: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Imported:
    """A workspace that came out of a file. `left_out`: what could not be taken over, in sentences."""

    id: str
    name: str
    left_out: Sequence[str] = ()


class Desk:
    """`serve` lets the command line reach a workspace while it is open here."""

    def __init__(
        self, places: Places, secrets: Secrets, *, serve: Serve | None = None, clock: Clock | None = None
    ) -> None:
        self.places = places
        self.secrets = secrets
        self.configured = Configured(places.providers)
        self.connections = Connections()
        self.tokens = Counter()
        self._serve = serve
        self._clock = clock or SystemClock()
        self._known = Workspaces(places.workspaces, count=self.tokens.count)
        self._open: dict[str, tuple[Workspace, Workbench, Serving | None]] = {}
        self._opening = asyncio.Lock()
        self._tidied = False

    def workspaces(self, *, trashed: bool = False) -> Sequence[WorkspaceRow]:
        return [_row(known) for known in self._known.list(trashed=trashed)]

    def opened(self) -> Sequence[Workbench]:
        return [bench for _, bench, _ in self._open.values()]

    async def open(self, workspace: str) -> Workbench:
        """The workbench of a workspace; opened when nobody here has it open."""
        known = await asyncio.to_thread(self._known.find, workspace)
        async with self._opening:
            if not self._tidied:
                self._tidied = True
                for sentence in await asyncio.to_thread(self._known.tidy):
                    log.info("%s", sentence)
            if known.id not in self._open:
                self._open[known.id] = await self._opened(known.id)
            return self._open[known.id][1]

    async def close(self, workspace: str) -> None:
        """Close it here; what runs in it is stopped."""
        if workspace in self._open:
            opened, bench, serving = self._open.pop(workspace)
            async with AsyncExitStack() as last_first:  # whatever fails on the way, it can be opened again
                last_first.push_async_callback(opened.aclose)
                last_first.push_async_callback(bench.aclose)
                if serving is not None:
                    last_first.push_async_callback(serving.finish)

    async def search_closed(self, workspace: str, words: str) -> Found:
        """What is found in a workspace that is not open, one at a time. StoreBusy where another program has it open."""
        known = await asyncio.to_thread(self._known.find, workspace)
        if (wire := await instance.reach(self.places.run, known.id)) is not None:
            await wire.close()
            raise StoreBusy(
                f"{known.name} is open in another program.",
                remedy="Use the workspace in that program, or close it there first.",
            )
        async with self._opening:  # nobody here opens it while it is read
            if known.id in self._known.opened():
                raise StoreBusy(f"{known.name} is already open in this program.", remedy="Use it there.")
            return await asyncio.to_thread(closed.search, known.folder, words)

    async def create(self, name: str, folder: Path | None) -> Workbench:
        """A workspace on a folder, or on none, with the models chosen last."""
        models = await self._last_models()
        known = await asyncio.to_thread(self._known.create, name, folder)
        return await self._begun(known, models)

    async def join(self, address: str, key: str, name: str, folder: Path) -> Workbench:
        """A workspace that another computer shares, on this folder."""
        if not await asyncio.to_thread(folder.is_dir):
            raise NotThere(f"{folder} is not a folder.", remedy="Nothing was created. Choose another folder.")
        models = await self._last_models()
        return await self._begun(await shared_store.join(self._known, address, key, name, folder, self.secrets), models)

    async def _last_models(self) -> dict[str, str]:
        """Those chosen last; the demonstration's script is none for work."""
        last = (known.settings.models for known in await asyncio.to_thread(self._known.list))
        return next((dict(chosen) for chosen in last if not _of_the_demonstration(chosen)), {})

    async def _begun(self, known: Known, models: Mapping[str, str]) -> Workbench:
        bench = await self.open(known.id)
        if models:
            await bench.change({f"models.{role}": model for role, model in models.items()})
        return bench

    async def rename(self, workspace: str, name: str) -> None:
        await asyncio.to_thread(self._known.rename, workspace, name)

    async def recolour(self, workspace: str, colour: str) -> None:
        await asyncio.to_thread(self._known.recolour, workspace, colour)

    async def trash(self, *, workspace: str) -> None:
        """Close it and put it into the trash, whole; `restore` brings it back."""
        known = await asyncio.to_thread(self._known.find, workspace)
        await self.close(known.id)
        await asyncio.to_thread(self._known.trash, known.id)

    async def restore(self, workspace: str) -> None:
        await asyncio.to_thread(self._known.restore, workspace)

    async def delete(self, workspace: str) -> None:
        """Remove a workspace of the trash for good. The folder it worked on is not touched."""
        await asyncio.to_thread(self._known.delete, workspace)

    async def set_folders(self, workspace: str, folders: Sequence[Path]) -> Workbench:
        """Let it work on these folders, and open it anew."""
        bench = await self.open(workspace)
        if gone := [str(folder) for folder in folders if not folder.is_dir()]:
            raise NotThere(f"{', '.join(gone)} is not a folder.", remedy="Nothing was changed. Choose another folder.")
        await bench.change({"roots": [str(folder.absolute()) for folder in folders]})
        return await self.reopen(workspace)

    async def reopen(self, workspace: str) -> Workbench:
        """What runs in it is stopped, and its tools are confined to the folders it has now."""
        await self.close(workspace)
        return await self.open(workspace)

    async def export(self, workspace: str, path: Path, report: Report = unheard) -> Sequence[str]:
        """History and cache as one file, keys never. `report` hears the bytes written and roughly how many it will be.
        Gives the hashes of entries that are damaged and not in it.
        """
        opened = (await self.open(workspace)).workspace
        roughly = (await opened.index.stats()).kept
        return await opened.export_to(path, lambda written: report(written, max(roughly, written)))

    async def import_(self, path: Path, name: str = "", report: Report = unheard) -> Imported:
        """A new workspace from an export. What it asks to be allowed is only proposed."""
        known = await self._known.import_(path, name=name, report=report)
        notes = known.folder / "notes.txt"
        said = await asyncio.to_thread(notes.read_text, "utf-8") if notes.exists() else ""
        return Imported(known.id, known.name, tuple(said.splitlines()))

    async def aclose(self) -> None:
        """Close everything, all workspaces side by side, also where one of them fails."""
        ends = await asyncio.gather(*(self.close(workspace) for workspace in tuple(self._open)), return_exceptions=True)
        await self.connections.aclose()
        for error in filter(None, ends):
            raise error

    async def _opened(self, workspace: str) -> tuple[Workspace, Workbench, Serving | None]:
        async with AsyncExitStack() as undo:
            opened = await self._taken(workspace)
            undo.push_async_callback(opened.aclose)
            if linking.wanted(opened):
                linking.link(opened, self.secrets)
            bench = await Workbench.open(opened, self._shared())
            undo.push_async_callback(bench.aclose)
            serving = await self._serve(opened) if self._serve else None
            undo.pop_all()
        return opened, bench, serving

    async def _taken(self, workspace: str) -> Workspace:
        """Open it as its owner; a command that has it for a moment is waited for."""
        asked = False
        for _ in range(PATIENCE):
            try:
                return await self._known.open(workspace)
            except StoreBusy:
                if not asked:
                    asked = True
                    await self._ask_gateway(workspace)
                await asyncio.sleep(PAUSE)
        return await self._known.open(workspace)

    async def _ask_gateway(self, workspace: str) -> None:
        """A gateway that has the workspace open lets it go, and works with who opens it from then on."""
        with suppress(HelixError, OSError):
            if (wire := await instance.reach(self.places.run, workspace)) is not None:
                with Terminal() as console:
                    await instance.hand_over(wire, ["gateway", "--release"], console)

    def _shared(self) -> Shared:
        access = Access(self.configured, self.secrets, self.connections, self.tokens, self._clock)
        return _shared_by(access, self.places)


@asynccontextmanager
async def alone(workspace: Workspace, places: Places) -> AsyncIterator[Workbench]:
    """A workbench on a workspace that was opened for one command."""
    settings = Settings(places.settings)
    consent = settings[KEYS_IN_FILE]
    secrets = Secrets(places.key_file, consent=lambda: consent)
    access = Access(Configured(places.providers), secrets, Connections(), Counter(), SystemClock())
    bench = await Workbench.open(workspace, _shared_by(access, places))
    try:
        yield bench
    finally:
        await bench.sharing.end(limit_seconds=COMMAND_LAST)
        await bench.aclose()
        await access.connections.aclose()


def _shared_by(access: Access, places: Places) -> Shared:
    """The user's instructions are read again before each step: they may be changed by any process."""
    settings = Settings(places.settings)
    instructions = partial(_instructions, places)
    return Shared(access, closed_folders(places), places.sample, settings[FETCH_PAGES], instructions, settings[MACHINE])


def _instructions(places: Places) -> str:
    """The user's own, as they are now."""
    return Settings(places.settings)[INSTRUCTIONS]


def closed_folders(places: Places) -> tuple[Path, ...]:
    """The program's own folders: no tool may enter them."""
    return (places.data, places.config, places.logs, places.run)


def _row(known: Known) -> WorkspaceRow:
    folder = Path(known.settings.roots[0]) if known.settings.roots else Path.home()
    return WorkspaceRow(known.id, known.name, known.settings.colour, folder)


def _of_the_demonstration(models: Mapping[str, str]) -> bool:
    return not models or models.get("main", "").partition("/")[0] == DEMO
