"""Conversations from other programs for the window: found, brought into the workspace of their folder, taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop import tasks
from helix_desktop.gui.bring_in.port import Group, Outcome, Report
from helix_desktop.gui.words import tr
from helix_desktop.histories.names import NAMES
from helix_desktop.values import dataclass

if TYPE_CHECKING:
    from helix_desktop.histories.finding import Found
    from helix_desktop.workbench.bench import Workbench
    from helix_desktop.workbench.bring_in import Result
    from helix_desktop.workbench.desk import Desk

Key = tuple[str, str]
_EARLIER = ("Brought in", "Übernommen")  # what the workspace without a folder was called before


@dataclass(slots=True)
class _Part:
    """What goes into one workspace: the folder, where it is on this computer, and the files with the folders wanted of each."""

    folder: Path | None
    files: dict[Path, set[str]] = field(default_factory=dict)
    size: int = 0


class Histories:
    """bring_in.port.Histories on the desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._found: dict[Key, list[Found]] = {}
        self._results: dict[str, Result] = {}  # of the last import, by workspace
        self._going: asyncio.Task[Result] | None = None
        self._stopped = False
        self._run = ""
        self._one_import = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None

    async def find(self) -> Sequence[Group]:
        self._found = await asyncio.to_thread(_by_folder)
        groups = [_group(key, found) for key, found in self._found.items()]
        return sorted(groups, key=lambda group: (-group.conversations, group.program, group.folder))

    async def bring_in(self, groups: Sequence[Group], report: Report) -> Outcome:
        async with self._one_import:
            return await self._bring_in(groups, report)

    async def _bring_in(self, groups: Sequence[Group], report: Report) -> Outcome:
        from helix_desktop.workbench.bring_in import new_run

        if not self._stopped:  # what was stopped goes on, as one import
            self._results, self._run = {}, new_run()
        self._stopped = False
        parts = self._parts(groups)
        total, done = sum(part.size for part in parts), 0
        for part in parts:
            if self._stopped:
                break
            opened = {bench.id for bench in self._desk.opened()}
            bench = await self._bench(part.folder)
            before = done

            def heard(read: int, _of: int, _file: str, before: int = before) -> None:
                report(before + read, total)

            await self._one(bench, part, heard)
            done += part.size
            if bench.id not in opened and part is not parts[0] and not self._stopped:
                await self._desk.close(bench.id)
        return await asyncio.to_thread(self._outcome)

    async def _one(self, bench: Workbench, part: _Part, heard: object) -> None:
        from helix_desktop.workbench.bring_in import Result

        result = self._results.setdefault(bench.id, Result(self._run))
        wanted = {str(file): frozenset(folders) for file, folders in part.files.items()}
        work = bench.bring_in(list(part.files), wanted=wanted, report=heard, result=result)  # type: ignore[arg-type]
        self._going = tasks.Tasks("window").spawn(work, name="bring in conversations")
        try:
            await asyncio.shield(self._going)
        except asyncio.CancelledError:
            self._going.cancel()
            await asyncio.wait([self._going])
            if not self._stopped:
                raise
        finally:
            self._going = None

    def stop(self) -> None:
        self._stopped = True
        if self._going is not None:
            self._going.cancel()

    @property
    def watching(self) -> bool:
        return self._watch is not None and not self._watch.done()

    def watch(self, groups: Sequence[Group], heard: Callable[[Outcome], object]) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if groups:
            work = self._watched({_key(group) for group in groups}, heard)
            self._watch = tasks.Tasks("window").spawn(work, name="watch conversations")

    async def _watched(self, wanted: set[Key], heard: Callable[[Outcome], object]) -> None:
        """The last import somebody asked for stays the one that can be undone."""
        import watchfiles

        from helix_desktop.histories import finding

        roots = finding.roots(finding.Places.of_this_user()).values()
        there = [folder for folders in roots for folder in folders if folder.is_dir()]
        changes = watchfiles.awatch(*there, step=200, debounce=1_000, rust_timeout=500, yield_on_timeout=True)
        begun = False
        async for changed in changes:  # the first comes when the folders are watched, so that nothing is missed
            if begun and not changed:
                continue
            begun = True
            async with self._one_import:
                asked = self._run, self._results, self._stopped
                self._stopped = False
                groups = [group for group in await self.find() if _key(group) in wanted]
                outcome = await self._bring_in(groups, lambda *_: None)
                self._run, self._results, self._stopped = asked
            if outcome.new or outcome.grown:
                heard(outcome)

    async def undo(self) -> Sequence[str]:
        stayed: list[str] = []
        for workspace, result in self._results.items():
            if result.imported:
                bench = await self._desk.open(workspace)
                stayed += (await bench.undo_import(result.run))[1]
        return stayed

    async def forget_keys(self) -> int:
        keys = {(workspace, key) for workspace, result in self._results.items() for key in result.keys.places}
        for workspace, key in keys:
            await (await self._desk.open(workspace)).forget(text=key)
        return len({key for _, key in keys})

    # --- where it goes

    def _parts(self, groups: Sequence[Group]) -> list[_Part]:
        """What was chosen, by workspace; the part with the newest conversation first."""
        from helix_desktop.histories import finding

        parts: dict[Path | None, _Part] = {}
        newest: dict[Path | None, float] = {}
        for group in groups:
            folder = Path(group.folder) if group.there else None
            part = parts.setdefault(folder, _Part(folder))
            newest[folder] = max(newest.get(folder, 0.0), group.last)
            for found in self._found.get(_key(group), []):
                for file in finding.belonging(found):
                    part.files.setdefault(file, set()).add(found.folder)
                part.size += found.size
        return sorted(parts.values(), key=lambda part: -newest[part.folder])

    async def _bench(self, folder: Path | None) -> Workbench:
        """The workspace of a folder; one for all whose folder is not on this computer."""
        rows = await asyncio.to_thread(self._desk.workspaces)
        name = folder.name or str(folder) if folder is not None else tr("Imported conversations")
        if folder is None:
            known = next((row.id for row in rows if row.name in {name, *_EARLIER}), "")
        else:
            known = next((row.id for row in rows if row.folder == folder), "")
        if known:
            return await self._desk.open(known)
        return await self._desk.create(_unlike(name, [row.name for row in rows]), folder)

    def _outcome(self) -> Outcome:
        from helix_desktop.histories.keys import masked

        results = self._results
        brought = [one for result in results.values() for one in result.imported]
        whole = [
            (one.last, name, one.id) for name, result in results.items() for one in result.imported if not one.parent
        ]
        _, *show = max(whole, default=(0.0, "", ""))
        return Outcome(
            sum(one.state in ("new", "fork", "back") for one in brought),
            sum(one.state == "more" for one in brought),
            sum(result.unchanged for result in results.values()),
            self._stopped,
            (show[0], show[1]),
            sorted({masked(key) for result in results.values() for key in result.keys.places}),
            [sentence for result in results.values() for sentence in result.complaints],
            sorted(row.name for row in self._desk.workspaces() if row.id in results and results[row.id].imported),
        )


def _by_folder() -> dict[Key, list[Found]]:
    from helix_desktop.histories import finding

    groups: dict[Key, list[Found]] = {}
    for one in finding.find(finding.Places.of_this_user()):
        groups.setdefault((NAMES.get(one.kind, one.kind), one.folder), []).append(one)
    return groups


def _group(key: Key, found: Sequence[Found]) -> Group:
    program, folder = key
    return Group(
        program,
        folder,
        sum(one.conversations for one in found),
        sum(one.size for one in found),
        min(one.first for one in found),
        max(one.last for one in found),
        bool(folder) and Path(folder).is_absolute() and Path(folder).is_dir(),
    )


def _key(group: Group) -> Key:
    return (group.program, group.folder)


def _unlike(name: str, taken: Sequence[str]) -> str:
    name = name[:70]
    number = 2
    fresh = name
    while fresh.casefold() in (one.casefold() for one in taken):
        fresh, number = f"{name} {number}", number + 1
    return fresh
