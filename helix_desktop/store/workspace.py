"""Workspaces: a folder each, with its cache, journal, index and settings; one owner each; nothing crosses between them."""

from __future__ import annotations

import re
import secrets
import shutil
import time as clock
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix_desktop.errors import Ambiguous, HelixError, NotThere, StoreBusy, StoreFailed, WrongUse
from helix_desktop.store import config, index
from helix_desktop.store.cache import CacheFolder
from helix_desktop.store.catalogue import Catalogue
from helix_desktop.store.config import Settings
from helix_desktop.store.index import IndexFile
from helix_desktop.store.journal import JournalFile
from helix_desktop.store.lock import Lock
from helix_desktop.store.served import Cache, Index, Journal, StoreFeed
from helix_desktop.store.thread import StoreThread

COLOURS = ("#7aa2f7", "#9ece6a", "#e0af68", "#f7768e", "#bb9af7", "#7dcfff", "#ff9e64", "#73daca")
_TRASH = ".trash"


@dataclass(frozen=True, slots=True)
class Known:
    """A workspace as a list shows it, open or not. `mistake`: why its settings cannot be read, or empty."""

    id: str
    folder: Path
    settings: Settings
    trashed: bool = False
    mistake: str = ""

    @property
    def name(self) -> str:
        return self.settings.name or self.id


class Workspaces:
    """All workspaces below one folder (places.workspaces), and which of them this program has open."""

    def __init__(self, folder: Path, *, count: Callable[[str], int] = lambda _: 0) -> None:
        self.folder = folder
        self._count = count
        self._open: dict[str, Workspace] = {}

    def list(self, *, trashed: bool = False) -> tuple[Known, ...]:
        """By name. One with a mistake in its file is listed too, and says so."""
        within = self.folder / _TRASH if trashed else self.folder
        if not within.is_dir():
            return ()
        known = [_known(each, trashed=trashed) for each in within.iterdir() if (each / config.NAME).is_file()]
        return tuple(sorted(known, key=lambda each: (each.name.casefold(), each.id)))

    def find(self, name_or_id: str, *, trashed: bool = False) -> Known:
        """By id, or by name where only one has it."""
        known = self.list(trashed=trashed)
        for each in known:
            if each.id == name_or_id:
                return each
        named = [each for each in known if each.name.casefold() == name_or_id.casefold()]
        if len(named) == 1:
            return named[0]
        if named:
            ids = ", ".join(each.id for each in named)
            raise Ambiguous(f"{len(named)} workspaces are called {name_or_id}: {ids}.", remedy="Use the id.")
        there = ", ".join(each.name for each in known) or "none"
        raise NotThere(f"There is no workspace {name_or_id}{' in the trash' if trashed else ''}.", remedy=f"There are: {there}.")

    def create(self, name: str, folder: Path | None = None, *, colour: str = "") -> Known:
        """A new workspace that works on `folder`."""
        name = _checked_name(name)
        if folder is not None and not folder.is_dir():
            raise NotThere(f"{folder} is no folder.", remedy="Make it first, or choose another.")
        roots = (str(folder.absolute()),) if folder is not None else ()
        place = self._new_place(name)
        colour = colour or COLOURS[len(self.list()) % len(COLOURS)]
        config.write(place / config.NAME, config.fresh(name, colour, roots))
        return _known(place)

    def _new_place(self, name: str) -> Path:
        slug = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:40]
        place = self.folder / "-".join(filter(None, (slug, secrets.token_hex(3))))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            place.mkdir(mode=0o700)
        except OSError as error:
            raise StoreFailed(f"The workspace's folder {place} cannot be made: {error.strerror}.") from error
        return place

    def rename(self, name_or_id: str, name: str) -> Known:
        return self._change(name_or_id, {"name": _checked_name(name)})

    def recolour(self, name_or_id: str, colour: str) -> Known:
        return self._change(name_or_id, {"colour": colour})

    def _change(self, name_or_id: str, changes: Mapping[str, Any]) -> Known:
        known = self.find(name_or_id)
        if (workspace := self._open.get(known.id)) is not None:
            workspace.change(changes)
        else:
            config.change(known.folder / config.NAME, changes)
        return _known(known.folder)

    def trash(self, name_or_id: str) -> Known:
        """Put a closed workspace into the trash, whole."""
        return self._move(self.find(name_or_id), self.folder / _TRASH, trashed=True)

    def restore(self, name_or_id: str) -> Known:
        """Take a workspace out of the trash."""
        return self._move(self.find(name_or_id, trashed=True), self.folder, trashed=False)

    def _move(self, known: Known, to: Path, *, trashed: bool) -> Known:
        lock = Lock(known.folder / "lock")
        try:
            to.mkdir(exist_ok=True)
            moved = to / known.id
            if moved.exists():
                raise WrongUse(f"There is a workspace {known.id} at {to} already.")
            known.folder.rename(moved)
            config.sync_folder(to)
            config.sync_folder(known.folder.parent)
        except OSError as error:
            raise StoreFailed(f"{known.name} could not be moved: {error.strerror}.", remedy="It is where it was.") from error
        finally:
            lock.release()
        return _known(moved, trashed=trashed)

    def delete(self, name_or_id: str) -> None:
        """Remove a workspace in the trash for good."""
        known = self.find(name_or_id, trashed=True)
        Lock(known.folder / "lock").release()
        shutil.rmtree(known.folder)

    async def open(self, name_or_id: str) -> Workspace:
        """Open it as its owner; StoreBusy where it is open already, here or elsewhere."""
        known = self.find(name_or_id)
        if known.id in self._open:
            raise StoreBusy(f"{known.name} is open already in this program.", remedy="Use it there.")
        workspace = await Workspace.open(known.folder, count=self._count)
        self._open[known.id] = workspace
        workspace.closed = lambda: self._open.pop(known.id, None)
        return workspace

    def opened(self) -> Mapping[str, Workspace]:
        """The open ones, by id."""
        return dict(self._open)


class Workspace:
    """One open workspace. Made by `open`, ended by `aclose`; in between nobody else can open it."""

    def __init__(self, folder: Path, settings: Settings, lock: Lock, stores: _Stores) -> None:
        self.id = folder.name
        self.folder = folder
        self.settings = settings
        self.closed: Callable[[], object] = lambda: None
        self._lock = lock
        self._stores = stores
        self.index = stores.index
        self.journal = Journal(stores.journal, stores.thread, self.index.follow)
        self.cache = Cache(stores.cache, stores.thread, self.index.follow)

    @classmethod
    async def open(cls, folder: Path, *, count: Callable[[str], int] = lambda _: 0) -> Workspace:
        settings = config.read(folder / config.NAME)
        lock = Lock(folder / "lock")
        try:
            stores = await _open_stores(folder, count)
        except BaseException:
            lock.release()
            raise
        workspace = cls(folder, settings, lock, stores)
        workspace.index.follow()
        return workspace

    @property
    def name(self) -> str:
        return self.settings.name or self.id

    def change(self, changes: Mapping[str, Any]) -> Settings:
        """Set dotted keys of workspace.toml; None takes one out."""
        self.settings = config.change(self.folder / config.NAME, changes)
        return self.settings

    def reread(self) -> Settings:
        """Take over what was edited by hand; on a mistake the settings stay as they were."""
        self.settings = config.read(self.folder / config.NAME)
        return self.settings

    async def aclose(self) -> None:
        """Finish what was begun and let go of everything."""
        await self._stores.aclose()
        self._lock.release()
        self.closed()


@dataclass(frozen=True, slots=True)
class _Stores:
    thread: StoreThread
    journal: JournalFile
    cache: CacheFolder
    index: Index

    async def aclose(self) -> None:
        await self.index.aclose()
        await self.thread.run(self.cache.close)
        await self.thread.run(self.journal.close)
        await self.thread.aclose()


async def _open_stores(folder: Path, count: Callable[[str], int]) -> _Stores:
    thread = StoreThread("store")
    journal = await thread.run(JournalFile, folder / "journal.sqlite3")
    cache = await thread.run(CacheFolder, folder / "cache")
    feed = StoreFeed(cache, journal, thread)
    writer, reader = StoreThread("index"), StoreThread("answers")
    path = folder / "index.sqlite3"
    file = await writer.run(IndexFile, path, feed, count=count)
    catalogue = Catalogue(await reader.run(index.reading, path))
    return _Stores(thread, journal, cache, Index(file, catalogue, feed, writer, reader))


def _known(folder: Path, *, trashed: bool = False) -> Known:
    try:
        return Known(folder.name, folder, config.read(folder / config.NAME), trashed)
    except HelixError as error:
        return Known(folder.name, folder, Settings(name=folder.name), trashed, str(error))


def _checked_name(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > 80:
        raise WrongUse("A workspace's name has 1 to 80 characters.")
    return name
