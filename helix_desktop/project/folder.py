"""Everything the workspace's folders and the user's own bring, with whether the user trusts it as it is now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from helix_desktop.project import agents, commands, hooks, rules, skills
from helix_desktop.project.hook_reach import runs_the_users_own_alone
from helix_desktop.project.item import Item
from helix_desktop.values import dataclass

_OWN_COMMANDS = (".agents/commands", ".claude/commands", ".config/opencode/command", ".config/opencode/commands")
_OWN_AGENTS = (".agents/agents", ".claude/agents", ".config/opencode/agent")


def home() -> Path:
    """Where the user's own skills, commands and agents lie."""
    return Path.home()


@dataclass(frozen=True, slots=True)
class Brought:
    """All items, the workspace's before the user's own; of two with one name the first counts."""

    items: tuple[Item, ...] = ()

    def of(self, kind: str) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.kind == kind)

    def in_force(self, kind: str) -> tuple[Item, ...]:
        """Those that are used now, one of each name."""
        found: dict[str, Item] = {}
        for item in self.items:
            if item.kind == kind and item.in_force:
                found.setdefault(item.key if kind in ("rules", "hook") else item.name, item)
        return tuple(found.values())

    def find(self, kind: str, name: str) -> Item | None:
        return next((item for item in self.in_force(kind) if item.name == name), None)

    def asking(self) -> tuple[Item, ...]:
        """New or changed ones the user has not seen yet."""
        return tuple(item for item in self.items if not (item.trusted or item.off or item.broken))


def look(
    roots: Sequence[str], trusted: Mapping[str, object], off: Iterable[str] = (), touched: Iterable[Path] = ()
) -> Brought:
    """Read the folders. Files on a disk that does not answer make this wait: it belongs beside the loop."""
    folders = [Path(root) for root in roots]
    mine, switched = home(), frozenset(off)
    found: dict[str, Item] = {}
    for item in (*rules.of_roots(folders, touched), *_of_folders(folders), *_of_user(mine, folders)):
        found.setdefault(item.key, _judged(item, trusted, switched, folders))
    return Brought(_without_copies(found.values()))


def _of_folders(folders: Sequence[Path]) -> Iterator[Item]:
    for root in folders:
        for place in hooks.PLACES:
            yield from hooks.of_file(root / place, root, root)
        for place in skills.PLACES:
            yield from skills.of_place(root / place, root)
        for place in commands.PLACES:
            yield from commands.of_place(root / place, root)
        for place in agents.PLACES:
            yield from agents.of_place(root / place, root)


def _of_user(mine: Path, folders: Sequence[Path]) -> Iterator[Item]:
    yield from hooks.of_file(mine / hooks.PLACES[0], mine, next(iter(folders), mine), own=True)
    for place in skills.PLACES:
        yield from skills.of_place(mine / place, mine, own=True)
    for place in _OWN_COMMANDS:
        yield from commands.of_place(mine / place, mine, own=True)
    for place in _OWN_AGENTS:
        yield from agents.of_place(mine / place, mine, own=True)


def _judged(item: Item, trusted: Mapping[str, object], off: frozenset[str], folders: Sequence[Path]) -> Item:
    reaches = item.kind == "hook" and item.own and not item.broken and _reaches(item, folders)
    agreed = (item.own and not reaches) or trusted.get(item.key) == item.sha256
    notes = item.notes
    if trusted.get(f"{item.key}#outside"):  # an earlier version could let a hook run outside the sandbox
        notes += ("You once let this hook run outside the sandbox. Hooks of a folder no longer do: it runs inside.",)
    known = item.key in trusted
    return replace(item, trusted=agreed, known=known, off=item.key in off, notes=notes, reaches_folder=reaches)


def _reaches(item: Item, folders: Sequence[Path]) -> bool:
    return not runs_the_users_own_alone(item.body, home(), folders, next(iter(folders), home()))


def _without_copies(items: Iterable[Item]) -> tuple[Item, ...]:
    """Rules that say the same as others before them are one: CLAUDE.md is often a copy of AGENTS.md."""
    seen: set[str] = set()
    kept = []
    for item in items:
        if item.kind == "rules":
            if item.body in seen:
                continue
            seen.add(item.body)
        kept.append(item)
    return tuple(kept)
