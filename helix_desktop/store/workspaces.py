"""All workspaces below one folder: made, found, renamed, put into the trash, imported, opened; nothing crosses between them."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from helix_desktop import durable
from helix_desktop.errors import Ambiguous, HelixError, NotThere, Stopped, StoreBusy, StoreFailed, WrongUse
from helix_desktop.store import config, transfer
from helix_desktop.store.config import Settings
from helix_desktop.store.lock import Lock
from helix_desktop.store.thread import StoreThread
from helix_desktop.store.transfer import Report
from helix_desktop.store.workspace import Workspace
from helix_desktop.values import dataclass

COLOURS = ("#0d7d74", "#8b5e3c", "#4a5fa5", "#7c4dcc", "#a8455d", "#3f7d3a", "#8a6d1b", "#4b6475")
_TRASH = ".trash"
_IMPORTING = ".importing-"


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
        known = [_known(each, trashed=trashed) for each in within.iterdir() if _is_one(each)]
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
        raise NotThere(
            f"There is no workspace {name_or_id}{' in the trash' if trashed else ''}.", remedy=f"Available: {there}."
        )

    def create(self, name: str, folder: Path | None = None) -> Known:
        """A new workspace that works on `folder`."""
        name = _checked_name(name)
        if folder is not None and not folder.is_dir():
            raise NotThere(f"{folder} is not a folder.", remedy="Create the folder first, or choose another folder.")
        roots = (str(folder.absolute()),) if folder is not None else ()
        place = self._new_place(name)
        colour = COLOURS[len(self.list()) % len(COLOURS)]
        try:
            durable.write(place / config.NAME, config.fresh(name, colour, roots), private=True)
        except HelixError:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return _known(place)

    def _new_place(self, name: str) -> Path:
        slug = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:40]
        place = self.folder / "-".join(filter(None, (slug, secrets.token_hex(3))))
        try:
            durable.private_folder(self.folder)
            place.mkdir(mode=0o700)
            durable.keep_private(place)
        except OSError as error:
            raise StoreFailed(f"The workspace's folder {place} cannot be created: {error.strerror}.") from error
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
            durable.private_folder(to)
            moved = to / known.id
            if moved.exists():
                raise WrongUse(f"The workspace {known.id} already exists at {to}.")
            if os.name == "nt":  # which moves no folder a file of which is open
                lock.release()
            known.folder.rename(moved)
            durable.sync_folder(to)
            durable.sync_folder(known.folder.parent)
        except OSError as error:
            raise StoreFailed(
                f"{known.name} could not be moved: {error.strerror}.", remedy="Nothing was changed."
            ) from error
        finally:
            lock.release()
        return _known(moved, trashed=trashed)

    def delete(self, name_or_id: str) -> None:
        """Remove a workspace in the trash for good."""
        known = self.find(name_or_id, trashed=True)
        Lock(known.folder / "lock").release()
        try:
            shutil.rmtree(known.folder)
        except OSError as error:
            raise StoreFailed(
                f"{known.name} could not be removed completely: {error.strerror}.",
                remedy="The remaining files are in the trash.",
            ) from error

    async def import_(self, path: Path, *, name: str = "", report: Report = transfer.unheard) -> Known:
        """A new workspace from an export. What the file asks for (folders, permissions, MCP servers) is only proposed.

        Nothing is left behind when it fails or is cancelled. What could not be imported is listed in the new
        workspace's `notes.txt`. `report` hears on the loop how many bytes of how many are done.
        """
        transfer.check(path)
        named = _checked_name(name) if name else ""
        place = self._new_place(named or path.stem)
        hidden = place.with_name(f"{_IMPORTING}{place.name}")
        lock = _locked(place, hidden)
        thread = StoreThread("import")
        loop, stopped = asyncio.get_running_loop(), threading.Event()

        def heard(done: int, total: int) -> None:
            if stopped.is_set():
                raise Stopped("The import was stopped.")
            loop.call_soon_threadsafe(report, done, total)

        try:
            said = await thread.run(transfer.unpack, path, hidden, name=named, report=heard)
            if said:
                durable.write(hidden / "notes.txt", "\n".join(said) + "\n", private=True)
            if os.name == "nt":  # which moves no folder a file of which is open
                lock.release()
            hidden.rename(place)
        except BaseException:
            stopped.set()
            await thread.run(shutil.rmtree, hidden, ignore_errors=True)
            raise
        finally:
            lock.release()
            await thread.aclose()
        return _known(place)

    async def open(self, name_or_id: str) -> Workspace:
        """Open it as its owner; StoreBusy where it is open already, here or elsewhere."""
        known = self.find(name_or_id)
        if known.id in self._open:
            raise StoreBusy(f"{known.name} is already open in this program.", remedy="Use it there.")
        workspace = await Workspace.open(known.folder, count=self._count)
        self._open[known.id] = workspace
        workspace.closed = lambda: self._open.pop(known.id, None)
        return workspace

    def tidy(self) -> tuple[str, ...]:
        """Remove what killed imports and writes left, but not what is still in use. Says in sentences what was removed."""
        told = []
        for folder in self.folder.glob(f"{_IMPORTING}*") if self.folder.is_dir() else ():
            with suppress(HelixError):  # StoreBusy: it goes on, in this program or another
                Lock(folder / "lock").release()
                shutil.rmtree(folder, ignore_errors=True)
                left = "could not be removed completely" if folder.exists() else "was removed"
                told.append(f"An import was interrupted. What it left in {folder.name} {left}.")
        for path in durable.left_over(self.folder.parent):
            with suppress(OSError):
                path.unlink()
                told.append(f"An unfinished file was removed: {path.name}.")
        return tuple(told)

    def opened(self) -> Mapping[str, Workspace]:
        """The open ones, by id."""
        return dict(self._open)


def _locked(place: Path, hidden: Path) -> Lock:
    """The folder of an import under its hidden name, held: whoever finds it so knows that the import goes on."""
    if os.name == "nt":
        place.rename(hidden)
        return Lock(hidden / "lock")
    lock = Lock(place / "lock")
    place.rename(hidden)
    return lock


def _is_one(folder: Path) -> bool:
    """One whose settings are gone is one all the same: its conversations are there."""
    settings, journal = folder / config.NAME, folder / "journal.sqlite3"
    return not folder.name.startswith(".") and (settings.is_file() or journal.is_file())


def _known(folder: Path, *, trashed: bool = False) -> Known:
    try:
        return Known(folder.name, folder, config.read(folder / config.NAME), trashed)
    except HelixError as error:
        return Known(folder.name, folder, Settings(name=folder.name), trashed, str(error))


def _checked_name(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > 80:
        raise WrongUse("A workspace name must have 1 to 80 characters.")
    return name
