"""Lists what the folders and the user provide, and whether the user trusts its current content."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.project import (
    agent_descriptions,
    project_hooks,
    rules_files,
    skills,
    slash_commands,
)
from helix_desktop.project.hook_dependencies import runs_only_scripts_of_user
from helix_desktop.project.project_item import ProjectItem, ProjectReading

_OWN_COMMANDS = (
    ".agents/commands",
    ".claude/commands",
    ".config/opencode/command",
    ".config/opencode/commands",
)
_OWN_AGENTS = (".agents/agents", ".claude/agents", ".config/opencode/agent")


def user_home() -> Path:
    return Path.home()


@dataclass(frozen=True, slots=True)
class ProjectItems:
    """All items, the workspace's first. Of items with the same name, the first counts."""

    items: tuple[ProjectItem, ...] = ()

    def items_of_kind(self, kind: str) -> tuple[ProjectItem, ...]:
        return tuple(item for item in self.items if item.kind == kind)

    def items_in_force(self, kind: str) -> tuple[ProjectItem, ...]:
        found: dict[str, ProjectItem] = {}
        for item in self.items:
            if item.kind == kind and item.is_in_force:
                found.setdefault(
                    item.settings_key if kind in ("rules", "hook") else item.name, item
                )
        return tuple(found.values())

    def find_item(self, kind: str, name: str) -> ProjectItem | None:
        return next((item for item in self.items_in_force(kind) if item.name == name), None)

    def items_to_ask_about(self) -> tuple[ProjectItem, ...]:
        return tuple(item for item in self.items if not (item.trusted or item.off or item.broken))


def read_project_files(
    roots: Sequence[str],
    trusted: Mapping[str, object],
    off: Iterable[str] = (),
    touched: Iterable[Path] = (),
    is_hidden: Callable[[Path], bool] = rules_files.nothing_is_hidden,
) -> ProjectItems:
    """Read the folders, without items that lead to hidden files. It waits for slow disks."""
    folders = [Path(root) for root in roots]
    mine, switched = user_home(), frozenset(off)
    found: dict[str, ProjectItem] = {}
    readings = [
        (each := ProjectReading(root), _items_of_folder(each, tuple(touched), is_hidden))
        for root in folders
    ]
    own = ProjectReading(mine, own=True)
    readings.append((own, _items_of_user(own, next(iter(folders), mine))))
    for item in (
        item
        for reading, items in readings
        for item in _yield_items_and_note_failure(reading, items)
    ):
        if item.own or not is_hidden(item.path.resolve()):
            found.setdefault(item.settings_key, _with_trust_state(item, trusted, switched, folders))
    return ProjectItems(_without_repeated_rules(found.values()))


def _yield_items_and_note_failure(
    reading: ProjectReading, items: Iterator[ProjectItem]
) -> Iterator[ProjectItem]:
    """Yield what is read before a folder costs too much or is unreadable, and then say
    that there is more.
    """
    try:
        yield from items
    except (HelixError, OSError, RuntimeError, ValueError) as error:
        why = f"Some rules, skills, commands, agents or hooks in this folder were not read. {error}"
        where, own = reading.root, reading.own
        yield ProjectItem(
            "rules", where.name, where, why, str(where), own=own, notes=(why,), broken=True
        )


def _items_of_folder(
    reading: ProjectReading, touched: Sequence[Path], is_hidden: Callable[[Path], bool]
) -> Iterator[ProjectItem]:
    """Yield a folder's items, the most important first, in case there are too many."""
    root = reading.root
    for place in project_hooks.PLACES:
        yield from project_hooks.read_hooks_file(root / place, reading, root)
    yield from rules_files.find_rules_of_root(reading, touched, is_hidden)
    for place in skills.PLACES:
        yield from skills.find_skills(root / place, reading)
    for place in slash_commands.PLACES:
        yield from slash_commands.find_command_files(root / place, reading)
    for place in agent_descriptions.PLACES:
        yield from agent_descriptions.find_agent_files(root / place, reading)
    yield from rules_files.find_rules_of_touched_folders(reading, touched, is_hidden)


def _items_of_user(reading: ProjectReading, folder: Path) -> Iterator[ProjectItem]:
    yield from project_hooks.read_hooks_file(
        reading.root / project_hooks.PLACES[0], reading, folder
    )
    for place in skills.PLACES:
        yield from skills.find_skills(reading.root / place, reading)
    for place in _OWN_COMMANDS:
        yield from slash_commands.find_command_files(reading.root / place, reading)
    for place in _OWN_AGENTS:
        yield from agent_descriptions.find_agent_files(reading.root / place, reading)


def _with_trust_state(
    item: ProjectItem, trusted: Mapping[str, object], off: frozenset[str], folders: Sequence[Path]
) -> ProjectItem:
    is_own_hook, home = item.kind == "hook" and item.own and not item.broken, user_home()
    reaches = is_own_hook and not runs_only_scripts_of_user(
        item.body, home, folders, next(iter(folders), home)
    )
    agreed = (item.own and not reaches) or trusted.get(item.settings_key) == item.content_sha256
    notes = item.notes
    if trusted.get(f"{item.settings_key}#outside"):  # Earlier versions let users allow this.
        notes += (
            "You have let this hook run outside the sandbox. A folder's hooks now always run in the sandbox.",
        )
    known = item.settings_key in trusted
    return replace(
        item,
        trusted=agreed,
        known=known,
        off=item.settings_key in off,
        notes=notes,
        reaches_folder=reaches,
    )


def _without_repeated_rules(items: Iterable[ProjectItem]) -> tuple[ProjectItem, ...]:
    """Remove rules that repeat others: CLAUDE.md is often a copy of AGENTS.md."""
    seen: set[str] = set()
    kept = []
    for item in items:
        if item.kind == "rules":
            if item.body in seen:
                continue
            seen.add(item.body)
        kept.append(item)
    return tuple(kept)
