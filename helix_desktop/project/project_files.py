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
        """Return the items of this kind that are trusted and switched on, each name once."""
        items_by_name: dict[str, ProjectItem] = {}
        for item in self.items:
            if item.kind != kind or not item.is_in_force:
                continue
            # Rules and hooks add to each other; of skills with one name, only one is meant.
            key = item.name
            if kind in ("rules", "hook"):
                key = item.settings_key
            items_by_name.setdefault(key, item)
        return tuple(items_by_name.values())

    def find_item(self, kind: str, name: str) -> ProjectItem | None:
        for item in self.items_in_force(kind):
            if item.name == name:
                return item
        return None

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
    home = user_home()
    switched_off = frozenset(off)
    used_files = tuple(touched)
    items: list[ProjectItem] = []
    for folder in folders:
        reading = ProjectReading(folder)
        folder_items = _items_of_folder(reading, used_files, is_hidden)
        items += _yield_items_and_note_failure(reading, folder_items)
    reading_of_user = ProjectReading(home, own=True)
    first_folder = home
    if folders:
        first_folder = folders[0]
    user_items = _items_of_user(reading_of_user, first_folder)
    items += _yield_items_and_note_failure(reading_of_user, user_items)
    items_by_key: dict[str, ProjectItem] = {}
    for item in items:
        if item.settings_key in items_by_key:
            continue
        if item.own or not is_hidden(item.path.resolve()):
            items_by_key[item.settings_key] = _with_trust_state(
                item, trusted, switched_off, folders
            )
    return ProjectItems(_without_repeated_rules(items_by_key.values()))


def _yield_items_and_note_failure(
    reading: ProjectReading, items: Iterator[ProjectItem]
) -> Iterator[ProjectItem]:
    """Yield what is read before a folder costs too much or is unreadable, and then say
    that there is more.
    """
    try:
        yield from items
    except (HelixError, OSError, RuntimeError, ValueError) as error:
        reason = (
            f"Some rules, skills, commands, agents or hooks in this folder were not read. {error}"
        )
        folder = reading.root
        yield ProjectItem(
            "rules",
            folder.name,
            folder,
            text=reason,
            body=str(folder),
            own=reading.own,
            notes=(reason,),
            broken=True,
        )


def _items_of_folder(
    reading: ProjectReading, touched: Sequence[Path], is_hidden: Callable[[Path], bool]
) -> Iterator[ProjectItem]:
    """Yield a folder's items, the most important first, in case there are too many."""
    root = reading.root
    for path in project_hooks.HOOK_FILES:
        yield from project_hooks.read_hooks_file(root / path, reading, root)
    yield from rules_files.find_rules_of_root(reading, touched, is_hidden)
    for path in skills.SKILL_FOLDERS:
        yield from skills.find_skills(root / path, reading)
    for path in slash_commands.COMMAND_FOLDERS:
        yield from slash_commands.find_command_files(root / path, reading)
    for path in agent_descriptions.AGENT_FOLDERS:
        yield from agent_descriptions.find_agent_files(root / path, reading)
    yield from rules_files.find_rules_of_touched_folders(reading, touched, is_hidden)


def _items_of_user(reading: ProjectReading, folder: Path) -> Iterator[ProjectItem]:
    """Yield what the user's own folders provide. `folder`: the workspace's folder in which
    their hooks run.
    """
    yield from project_hooks.read_hooks_file(
        reading.root / project_hooks.HOOK_FILES[0], reading, folder
    )
    for path in skills.SKILL_FOLDERS:
        yield from skills.find_skills(reading.root / path, reading)
    for path in _OWN_COMMANDS:
        yield from slash_commands.find_command_files(reading.root / path, reading)
    for path in _OWN_AGENTS:
        yield from agent_descriptions.find_agent_files(reading.root / path, reading)


def _with_trust_state(
    item: ProjectItem, trusted: Mapping[str, object], off: frozenset[str], folders: Sequence[Path]
) -> ProjectItem:
    """Return the item with whether it is trusted, was trusted before in another version, or is
    switched off.

    Users trust a folder's item by its content: `trusted` has the hash of each by its key in the
    settings. Their own items are trusted as they are, except hooks that run files of the
    folder.
    """
    reaches_folder = False
    if item.kind == "hook" and item.own and not item.broken:
        home = user_home()
        first_folder = home
        if folders:
            first_folder = folders[0]
        # A hook of the user's that runs a file of the folder needs trust like the folder's own.
        reaches_folder = not runs_only_scripts_of_user(item.body, home, folders, first_folder)
    is_trusted = item.own and not reaches_folder
    if trusted.get(item.settings_key) == item.content_sha256:
        is_trusted = True
    notes = item.notes
    if trusted.get(f"{item.settings_key}#outside"):  # Earlier versions let users allow this.
        notes += (
            "You have let this hook run outside the sandbox. A folder's hooks now always run in the sandbox.",
        )
    was_trusted_before = item.settings_key in trusted
    return replace(
        item,
        trusted=is_trusted,
        known=was_trusted_before,
        off=item.settings_key in off,
        notes=notes,
        reaches_folder=reaches_folder,
    )


def _without_repeated_rules(items: Iterable[ProjectItem]) -> tuple[ProjectItem, ...]:
    """Remove rules that repeat others: CLAUDE.md is often a copy of AGENTS.md."""
    known_bodies: set[str] = set()
    kept_items = []
    for item in items:
        if item.kind == "rules":
            if item.body in known_bodies:
                continue
            known_bodies.add(item.body)
        kept_items.append(item)
    return tuple(kept_items)
