"""The checkpoints of a workspace's folders: taken before a step that may change files and after it.

Contents are in the cache, synced, before a difference names them, and that before a fact does. So a crash leaves at most contents that
nothing refers to, which are found again by their hash. What the program knows of the folders' stamps is derived and may be lost.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from sys import maxsize

from helix_desktop.engine.changes import diff_hunks, folder_state
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.errors import HelixError, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes import content_storing, folder_walk
from helix_desktop.tools.changes import known_state_file as kept_known
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.changes.content_storing import ABOUT, BatchContentCache, RootFileOpener
from helix_desktop.tools.changes.coverage_limits import CoveredAmount, leave_out_beyond_limits
from helix_desktop.tools.changes.folder_walk import (
    STAMP,
    UNRELIABLE_STAMP,
    FolderWalk,
    KnownRecords,
    UncoveredEntry,
    WalkResult,
    is_record_of_kind,
    leave_out_file,
)
from helix_desktop.tools.changes.folder_watch import FolderWatch

FEW_CHANGES = 200  # If no more folders than this may have changed, only these are checked.
COUNTED = 16 << 20  # In bytes. If a step's files are larger, its changed lines are not counted.
ROOM = 2  # A new full list of files is stored once the differences since the last take this many times its space.
MOST_NAMES = 5
DEFAULT_COVERAGE = CheckpointCoverage()
SHORT = 0.25  # In seconds. If checking all files is faster than this, it is done after each command.


@dataclass(frozen=True, slots=True)
class CheckpointProgress:
    """`state`: waiting, reading, ready, off or failed."""

    state: str = "waiting"
    files: int = 0
    of_files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    why: str = ""


@dataclass(slots=True, eq=False)
class OpenStep:
    """The time of one step: from the state it met on. `goes_on`: its command runs in the background,
    also when the call has ended. `is_between_turns`: its changes cannot be told from the user's.
    """

    call: str
    conversation: str
    changed_by: str
    since_look: int  # The number of the last check of the files before this step.
    checkpoint: Digest
    left_out: frozenset[str] = frozenset()  # Paths that were not covered even before the step.
    begun: int = field(default_factory=time.time_ns)  # In nanoseconds.
    met: set[str] = field(default_factory=set)  # Folders in which something changed since then.
    goes_on: bool = False
    is_between_turns: bool = False


class Checkpoints:
    """Made with the workspace, closed with it. `file`: where stamps are kept between two starts."""

    def __init__(
        self,
        roots: Sequence[Path],
        contents: BatchContentCache,
        *,
        file: Path | None = None,
        coverage: CheckpointCoverage = DEFAULT_COVERAGE,
        closed: Sequence[Path] = (),
    ) -> None:
        self.roots = tuple(roots)
        self.contents = contents
        self.reader = RootFileOpener(self.roots)
        self.coverage = coverage
        self.progress = CheckpointProgress("off" if coverage.off else "waiting")
        self.listeners: list[Callable[[CheckpointProgress], object]] = []
        self._file = file
        self._closed = closed
        self._known: KnownRecords = {}
        self._covered = CoveredAmount()
        self._seen: dict[str, folder_walk.UnchangedFolder] = {}
        self._left: dict[str, list[UncoveredEntry]] = {}
        self._linked: dict[tuple[int, int], list[tuple[str, int]]] = {}
        self.latest_checkpoint: Digest | None = None  # The state of the files at the last check.
        # In bytes: the last full list, and the differences since; then the number of these.
        self._chain = 0, 0, 0
        self._looks = 0
        self._moments: dict[int, dict[str, PathChange]] = {}  # By look and path: changes that no step has claimed yet.
        self._windows: list[OpenStep] = []
        self._lock = asyncio.Lock()
        self._watch = FolderWatch()
        self._saved: Digest | None = None
        # Appends what a command in the background has changed to its conversation.
        self.record_changes: Callable[[str, FilesChanged], Awaitable[object]] | None = None
        self.leftovers: list[str] = []  # Files that an interrupted undo left behind; the first check finds them.
        self._unsure: set[str] = set()  # Folders with files changed so recently that their times prove nothing.
        self._modes: dict[Path, int] = {}  # The permission modes of the workspace's folders at the first check.
        self._seconds = 0.0  # In seconds. How long it took to check all files the last time.
        # Device and inode of each workspace folder at the last check; None if it was missing.
        self._standing: tuple[tuple[int, int] | None, ...] = ()

    @property
    def is_ready(self) -> bool:
        return self.progress.state == "ready"

    @property
    def is_undo_available(self) -> bool:
        return bool(self.roots) and self.progress.state != "off"

    def largest_top_folders(self) -> list[tuple[str, int, int]]:
        """The folders right below the roots as the rules leave them: name, files, bytes. An empty name: files in none."""
        closed = frozenset(filter(None, map(_device_and_inode, self._closed)))
        return folder_walk.measure_top_folders(
            self.roots, replace(self.coverage, most_files=0, most_bytes=0, most_file_bytes=1 << 63), closed
        )

    def uncovered_entries(self) -> tuple[UncoveredEntry, ...]:
        found = [left for lefts in self._left.values() for left in lefts]
        for group in self._linked.values():
            if group and group[0][1] > len(group):
                found += [UncoveredEntry(path, "has another name outside") for path, _ in group]
        return tuple(sorted(found, key=lambda left: left.path))

    def _paths_uncovered_by_limits(self) -> frozenset[str]:
        """What is not covered for its size or because it cannot be read: not by a rule, which the user knows."""
        return frozenset(left.path for lefts in self._left.values() for left in lefts if left.is_beyond_limits)

    def last_item_at(self, path: str) -> TreeItem | None:
        folder, _, name = path.rpartition("/")
        return folder_state.unpack_item(self._known.get(folder, {}).get(name, b"")[STAMP.size :])

    def known_items(self) -> dict[str, TreeItem]:
        """Everything that was there at the last look."""
        return {
            path: item
            for path, body in folder_walk.iterate_packed_items(self._known)
            if (item := folder_state.unpack_item(body)) is not None
        }

    def other_names_of_file(self, path: str) -> list[str]:
        for group in self._linked.values():
            names = [name for name, _ in group]
            if path in names:
                return [name for name in names if name != path]
        return []

    def displayed_path(self, path: str) -> str:
        """A path as people know it: relative to the first root, in full in another one."""
        number, _, inside = path.partition("/")
        return inside or "." if number == "0" else f"{self.roots[int(number)]}/{inside}"

    def checkpoint_path(self, place: str | Path) -> str:
        """Converts a readable path back into a checkpoint path. A path outside all roots is returned unchanged."""
        for number, root in enumerate(self.roots):
            if Path(place).is_absolute() and Path(place).is_relative_to(root):
                inside = Path(place).relative_to(root).as_posix()
                return str(number) if inside == "." else f"{number}/{inside}"
        return f"0/{place}"

    def restore_root_modes(self) -> None:
        """Give the folders themselves the mode again that they had when they were looked at first, where they were closed since."""
        for root, mode in self._modes.items():
            with suppress(OSError):
                if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
                    root.chmod(mode)

    async def ensure_first_look(self) -> None:
        """The first look. It is complete when this returns, or `progress` says why there is none."""
        if not self.is_ready:
            await self.look_for_changes(thorough=True)

    async def look_for_changes(self, *, thorough: bool = False, ended: OpenStep | None = None) -> None:
        """`thorough`: at every file, whatever was heard of changes. `ended`: a step whose files are read again."""
        if not self.is_undo_available:
            return
        async with self._lock:
            try:
                if ended is not None:
                    self._distrust_times_of_step(ended)
                await self._look_at_folders(thorough=thorough or self.latest_checkpoint is None)
            except StoreFailed as error:  # Before the next step, the files are checked again.
                self._watch.is_in_doubt = True
                self._notify_progress(CheckpointProgress("failed", why=str(error)))

    async def apply_coverage(self, coverage: CheckpointCoverage) -> None:
        """Applies new coverage rules and reads all folders again."""
        async with self._lock:
            self.coverage = coverage
            self._known, self.latest_checkpoint, self._covered = {}, None, CoveredAmount()
            self._seen.clear()
            self._watch.is_in_doubt = True
            self._notify_progress(CheckpointProgress("off" if coverage.off else "waiting"))
        await self.ensure_first_look()

    async def begin_step(self, call: str, conversation: str, by: str) -> OpenStep | None:
        """Begins a step. Changes made before it are not credited to it."""
        await self.ensure_first_look()
        await self.look_for_changes()
        if self.progress.state == "failed":
            raise StoreFailed(
                f"The state of the folder could not be saved, so it won't be possible to undo these changes: {self.progress.why}",
                remedy="Nothing was run. Free up space on the disk and try again.",
            )
        if self.latest_checkpoint is None or not self.is_ready or None in self._standing:
            return None
        window = OpenStep(
            call, conversation, by, self._looks, self.latest_checkpoint, self._paths_uncovered_by_limits()
        )
        self._windows.append(window)
        return window

    async def end_step(
        self, window: OpenStep, only: Iterable[str] | None = None, *, thorough: bool = False
    ) -> FilesChanged | None:
        """What it changed so far, as a fact, if anything. `only`: the paths it says it changed."""
        is_told = True  # If False, the step is recorded later, when the disk has space again.
        try:
            self.restore_root_modes()
            thorough = thorough or (window.changed_by != "tool" and self._seconds < SHORT)
            await self.look_for_changes(thorough=thorough, ended=None if window.goes_on else window)
            if self.progress.state == "failed":
                is_told = False
                return None
            if not self.is_ready or self.latest_checkpoint is None:
                return None
            changes = self.claim_unowned_changes(
                window.since_look,
                None if only is None else {self.checkpoint_path(place) for place in only},
                self._first_look_of_a_call() if window.changed_by == "background" else maxsize,
            )
            uncovered, before, after = self._paths_uncovered_by_limits(), window.checkpoint, self.latest_checkpoint
            left = () if only is not None else sorted(uncovered - window.left_out)
            window.since_look, window.checkpoint, window.left_out = self._looks, after, uncovered
            return await self.build_change_fact(
                changes, before, after, call=window.call, by=window.changed_by, left_out=left
            )
        finally:
            if is_told and not window.goes_on:
                self.close_open_step(window)

    def leave_step_open(self, call: str, conversation: str) -> OpenStep | None:
        """The step of a call whose command goes on in the background."""
        for step in self.open_steps_of_conversation(conversation):
            if step.call == call and not step.goes_on:
                step.changed_by, step.goes_on = "background", True
                return step
        return None

    async def record_end_of_step(self, step: OpenStep) -> None:
        """A command in the background has ended, perhaps between two turns."""
        if (fact := await self.end_step(step)) is not None and self.record_changes is not None:
            await self.record_changes(step.conversation, fact)

    def begin_turn(self, conversation: str) -> None:
        """What differs at the next look is nobody's, since the user works between turns, too."""
        for step in self.open_steps_of_conversation(conversation):
            if step.is_between_turns:
                step.since_look, step.is_between_turns = self._looks + 1, False

    def _first_look_of_a_call(self) -> int:
        """What differs since then belongs to a call that still runs, not to a command in the background."""
        return min((each.since_look for each in self._windows if each.changed_by == "command"), default=maxsize)

    def close_open_step(self, window: OpenStep) -> None:
        self._windows = [each for each in self._windows if each is not window]
        first = min((each.since_look for each in self._windows), default=self._looks)
        for number in [number for number in self._moments if number <= first]:
            del self._moments[number]

    def open_steps_of_conversation(self, conversation: str) -> tuple[OpenStep, ...]:
        """Steps whose end nobody has told."""
        return tuple(window for window in self._windows if window.conversation == conversation)

    async def build_change_fact(
        self,
        changes: Sequence[PathChange],
        before: Digest,
        after: Digest,
        *,
        call: str = "",
        by: str = "command",
        left_out: Sequence[str] = (),
    ) -> FilesChanged | None:
        """The fact of some changes, with all it names in the cache; None where there are none and nothing new is left out."""
        counted = folder_state.without_implied_changes(changes)
        if not changes and not left_out:
            return None
        added, removed = await self._count_added_and_removed(counted)
        (difference,) = await self.contents.store_many([(folder_state.encode_difference(changes, before), ABOUT)])
        names = tuple(self.displayed_path(change.path) for change in counted[:MOST_NAMES])
        left = tuple(map(self.displayed_path, left_out[:MOST_NAMES]))
        return FilesChanged(
            difference, before, after, len(counted), added, removed, call, by, names=names, left_out=left
        )

    async def aclose(self) -> None:
        """Saves the stamps for the next start."""
        async with self._lock:
            self._watch.close()
            await self._save_known_state()

    async def _look_at_folders(self, *, thorough: bool) -> None:
        began = time.monotonic()
        if self.latest_checkpoint is None:
            self._modes = {root: root.stat().st_mode & 0o7777 for root in self.roots if root.is_dir()}
            await self._read_known_state()
            self._notify_progress(replace(self.progress, state="reading"))
        found = await asyncio.to_thread(self._walk_folders, thorough)
        try:
            if not self.is_ready:
                self.leftovers = found.leftovers
            await self._store_wanted_contents(found, began)
        finally:
            folder_walk.restore_folder_modes(found.opened)
        changes = self._adopt_walk_result(found)
        await self._store_checkpoint(changes)
        if not self.is_ready:
            files = sum(len(names) for names in self._known.values())
            self._notify_progress(CheckpointProgress("ready", files, files, found.bytes, time.monotonic() - began))
            await self._save_known_state()

    def _walk_folders(self, thorough: bool) -> WalkResult:  # noqa: FBT001 -- for to_thread
        closed = frozenset(filter(None, map(_device_and_inode, self._closed)))
        looking = FolderWalk(
            self.roots, self._known, self.coverage, closed, self._watch.watch_listed_folder, self._seen
        )
        before, self._standing = self._standing, tuple(map(_device_and_inode, self.roots))
        # A workspace folder was moved, or its drive was mounted or unmounted, without any notice.
        thorough |= before != self._standing
        folders = self._watch.take_changed_folders()
        folders |= {path.rpartition("/")[0] for group in self._linked.values() for path, _ in group}
        try:
            if not thorough and not self._watch.is_in_doubt and len(folders) <= FEW_CHANGES:
                looking.walk_some_folders(folders | self._unsure)
            else:
                self._watch.begin_full_walk()
                began = time.monotonic()
                looking.walk_all_roots()
                self._seconds = time.monotonic() - began
            leave_out_beyond_limits(looking.found, self._known, self.coverage, self._covered)
        except BaseException:
            folder_walk.restore_folder_modes(looking.found.opened)
            raise
        return looking.found

    def _distrust_times_of_step(self, step: OpenStep) -> None:
        """What has mapped a file into memory may write to it without moving its times again."""
        since = step.begun - folder_walk.COARSE
        for folder in step.met & self._known.keys():
            for name, record in self._known[folder].items():
                if is_record_of_kind(record, PathKind.FILE) and STAMP.unpack_from(record)[2] > since:
                    self._known[folder][name] = UNRELIABLE_STAMP + record[STAMP.size :]
                    self._unsure.add(folder)
                    self._seen.pop(folder, None)

    async def _read_known_state(self) -> None:
        """What was known when the program ended, as far as its contents are there."""
        kept = None
        if self._file is not None:
            kept = await asyncio.to_thread(
                kept_known.read_known_state, self._file, tuple(map(str, self.roots)), self.coverage
            )
        if kept is None:
            return
        digests = {
            Digest(record[-32:])
            for names in kept.known.values()
            for record in names.values()
            if is_record_of_kind(record, PathKind.FILE)
        }
        lacking = set(await self.contents.find_missing_content([*digests, kept.checkpoint]))
        if kept.checkpoint in lacking:
            return
        for names in kept.known.values():
            for name, record in names.items():
                if is_record_of_kind(record, PathKind.FILE) and Digest(record[-32:]) in lacking:
                    names[name] = UNRELIABLE_STAMP + record[STAMP.size :]
        self._known, self.latest_checkpoint, self._chain = kept.known, kept.checkpoint, kept.chain_sizes
        self._covered = CoveredAmount()
        for names in self._known.values():
            self._covered.add_records(names.values())

    async def _store_wanted_contents(self, found: WalkResult, began: float) -> None:
        """Have the contents that are wanted in the cache, and their records in what was found."""
        done = 0
        wanted = {one.path: one for one in found.wanted}
        async for batch in content_storing.store_wanted_files(self.contents, self.reader, found.wanted):
            for got in batch:
                folder, _, name = got.path.rpartition("/")
                names = found.folders[folder]
                if names is None:
                    continue
                if got.record:
                    names[name] = got.record
                elif got.reason_unread:
                    leave_out_file(found, self._known, wanted[got.path], names, got.reason_unread)
                else:
                    names.pop(name, None)
                if got.keeps_changing:
                    found.uncovered.setdefault(folder, []).append(UncoveredEntry(got.path, "changed while it was read"))
            done += len(batch)
            if not self.is_ready:
                self._notify_progress(
                    CheckpointProgress("reading", done, len(found.wanted), found.bytes, time.monotonic() - began)
                )

    def _adopt_walk_result(self, found: WalkResult) -> list[PathChange]:
        """Take over what was found; what is different in it."""
        self._resolve_hard_links(found)
        changes: list[PathChange] = []
        for folder, names in found.folders.items():
            held = self._known.get(folder, {})
            now = names or {}
            for name in held.keys() | now.keys():
                before, after = held.get(name, b"")[STAMP.size :], now.get(name, b"")[STAMP.size :]
                if before != after:
                    changes.append(
                        PathChange(
                            f"{folder}/{name}", folder_state.unpack_item(before), folder_state.unpack_item(after)
                        )
                    )
                    self._covered.add_item(changes[-1].before, -1)
                    self._covered.add_item(changes[-1].after)
            self._left.pop(folder, None)
            self._unsure.discard(folder)
            if any(
                record.startswith(UNRELIABLE_STAMP) and is_record_of_kind(record, PathKind.FILE)
                for record in now.values()
            ):
                self._unsure.add(folder)
            if names is None:
                self._known.pop(folder, None)
            else:
                self._known[folder] = now
        self._left.update(found.uncovered)
        self._looks += 1
        for step in self._windows:
            step.met.update(found.folders)
        if changes and self._windows:
            self._moments[self._looks] = {change.path: change for change in changes}
        return sorted(changes)

    def _resolve_hard_links(self, found: WalkResult) -> None:
        """Hard links: the first name in order is the file, the others are twins of it."""
        self._linked = found.linked
        for group in found.linked.values():
            paths = sorted(path for path, _ in group)
            items = (self._item_after_walk(found, path) for path in paths)
            file = next((item for item in items if item is not None and item.kind is PathKind.FILE), None)
            if file is None:
                continue
            self._replace_found_item(found, paths[0], file)
            twin = TreeItem(PathKind.TWIN, file.mode, file.size, paths[0].encode("utf-8", "surrogateescape"))
            for path in paths[1:]:
                self._replace_found_item(found, path, twin)

    def _item_after_walk(self, found: WalkResult, path: str) -> TreeItem | None:
        folder, _, name = path.rpartition("/")
        names = found.folders.get(folder, self._known.get(folder))
        return folder_state.unpack_item((names or {}).get(name, b"")[STAMP.size :])

    def _replace_found_item(self, found: WalkResult, path: str, wanted: TreeItem) -> None:
        folder, _, name = path.rpartition("/")
        names = found.folders.get(folder, self._known.get(folder))
        record = (names or {}).get(name, b"")
        item = folder_state.unpack_item(record[STAMP.size :])
        if names is None or item is None or wanted == item:
            return
        if folder not in found.folders:
            names = found.folders[folder] = dict(names)
        names[name] = record[: STAMP.size] + folder_state.pack_item(wanted)

    async def _store_checkpoint(self, changes: Sequence[PathChange]) -> None:
        """The state as a checkpoint: one more difference, or a manifest where there is none or the chain is long."""
        if self.latest_checkpoint is not None and not changes:
            return
        manifest, room, length = self._chain
        if self.latest_checkpoint is None or length >= folder_state.LONGEST_CHAIN or room > ROOM * manifest:
            content = await asyncio.to_thread(
                lambda: b"".join(folder_state.encode_manifest(folder_walk.iterate_packed_items(self._known)))
            )
            self.latest_checkpoint = (await self.contents.store_content(content, ABOUT)).digest
            self._chain = (max(len(content), 1 << 16), 0, 0)
            return
        (stored,) = await self.contents.store_many(
            [(folder_state.encode_difference(changes, self.latest_checkpoint), ABOUT)]
        )
        self.latest_checkpoint = stored.digest
        self._chain = (manifest, room + stored.size, length + 1)

    async def read_checkpoint_state(self, digest: Digest) -> dict[str, TreeItem]:
        waiting, read = [digest], list[bytes]()
        while waiting:
            read.append(await self.contents.read_content(waiting.pop()))
            waiting += folder_state.entries_to_read_first(read[-1])
        return await asyncio.to_thread(folder_state.build_tree, read[::-1])

    async def read_item_content(self, item: TreeItem | None) -> bytes:
        """What a file held, where a link leads; nothing for the rest."""
        if item is None:
            return b""
        if item.kind is PathKind.LINK:
            return item.content
        if item.kind is PathKind.TWIN:
            path = item.content.decode("utf-8", "surrogateescape")
            leader = self.last_item_at(path)
            return await self.read_item_content(leader) if leader is not None and leader.kind is PathKind.FILE else b""
        return await self.contents.read_content(Digest(item.content)) if item.kind is PathKind.FILE else b""

    async def _count_added_and_removed(self, changes: Sequence[PathChange]) -> tuple[int, int]:
        """Lines that came and went, where that is not much work."""
        sizes = sum(max(item.size for item in change[1:] if item is not None) for change in changes)
        if sizes > COUNTED:
            return 0, 0
        added = removed = 0
        for change in changes:
            with suppress(HelixError):
                before, after = await self.read_item_content(change.before), await self.read_item_content(change.after)
                came, went = await asyncio.to_thread(diff_hunks.count_changed_lines, before, after)
                added, removed = added + came, removed + went
        return added, removed

    def claim_unowned_changes(self, since: int, paths: set[str] | None, until: int = maxsize) -> tuple[PathChange, ...]:
        """What was found since a look and belongs to nobody yet; it belongs to this step from now on."""
        found: list[PathChange] = []
        for changes in [changes for look, changes in self._moments.items() if since < look <= until]:
            mine = [
                path
                for path in changes
                if paths is None or path in paths or any(each.startswith(f"{path}/") for each in paths)
            ]
            found += map(changes.pop, mine)
        return folder_state.merge_changes_per_path(found)[0]

    def _notify_progress(self, progress: CheckpointProgress) -> None:
        self.progress = progress
        for listener in tuple(self.listeners):
            listener(progress)

    async def _save_known_state(self) -> None:
        if self._file is None or self.latest_checkpoint is None or self._saved == self.latest_checkpoint:
            return
        with suppress(StoreFailed):
            kept = kept_known.KnownFolderState(self._known, self.latest_checkpoint, self._chain)
            roots = tuple(map(str, self.roots))
            await asyncio.to_thread(kept_known.write_known_state, self._file, kept, roots, self.coverage)
            self._saved = self.latest_checkpoint


def _device_and_inode(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        st = path.stat()
        return st.st_dev, st.st_ino
    return None
