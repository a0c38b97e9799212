"""A copy of a workspace's folders on the disk: its description, its git repositories,
and what differs in it.

They are in the workspace's data, in `copies/<conversation>/<number>`. A description
says when one is complete.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, fields, replace
from pathlib import Path

from helix_desktop import atomic_files
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem, pack_item
from helix_desktop.engine.changes.turn_changes import printable_path
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.folder_trees import list_tree_files
from helix_desktop.processes.starter import CommandAuthor, ProcessLaunch, find_program, run_process
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.tools import private_git_copy as copying
from helix_desktop.tools.changes.change_restoring import RestoreStep
from helix_desktop.tools.private_git_copy import CopySource, GitCheckout
from helix_desktop.tools.workspace_tools import WorkspaceTools
from helix_desktop.workbench import unfinished_bring_back
from helix_desktop.workbench.undo_and_change_list import COPIES

NAME, DISCARDED = "copy.json", ".discarded"
MOST_VERSIONS = 4  # This many versions of a file that were brought back are remembered.


@dataclass(frozen=True, slots=True)
class FolderCopy:
    """`roots`: each folder of the workspace, and where its copy is below `folder`; `parent`:
    the copy that it was made from, if any; `start`: the checkpoint of its first state;
    `brought`: the versions of files that were brought back later, oldest first, in hexadecimal;
    `replaced`: the versions that the last apply has replaced.
    """

    id: str
    folder: Path
    created: float = 0.0
    roots: Sequence[Sequence[str]] = ()
    repositories: Sequence[CopySource] = ()
    parent: str = ""
    start: str = ""
    brought: Mapping[str, Sequence[str]] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = False
    problem: str = ""

    @property
    def root_folders(self) -> list[Path]:
        return (
            [(self.folder / inside).resolve() for _, inside in self.roots] if self.is_whole else []
        )

    def is_of(self, folders: Iterable[Path]) -> bool:
        """Whether it is a copy of these folders."""
        return [*map(str, folders)] == [root for root, _ in self.roots]

    @property
    def places(self) -> list[tuple[int, str]]:
        """Return for each root the number of its repository, and how the names of its
        files begin there.
        """
        parts = (inside.rstrip(".").partition("/") for _, inside in self.roots)
        return [(int(number), f"{below}/" if below else "") for number, _, below in parts]

    @property
    def label(self) -> str:
        """Return the branch, commit or folder that it is a copy of."""
        return next(
            (each.branch or each.base[:9] or Path(each.source).name for each in self.repositories),
            "",
        )


@dataclass(frozen=True, slots=True)
class CopyStatus:
    """`changed`: the user's files that differ in it; `overlaps`: those other copies
    changed, too.
    """

    bytes: int = 0
    uncommitted: tuple[str, ...] = ()
    commits: int = 0
    problem: str = ""
    changed: tuple[str, ...] = ()
    overlaps: Mapping[str, Sequence[str]] = field(default_factory=dict)


def list_folder_copies(workspace: StoredWorkspace) -> list[FolderCopy]:
    """Return all copies of a workspace's folders, newest first."""
    folders = sorted((workspace.folder / COPIES).glob("*"), reverse=True)
    found = [read_copy_description(folder) for folder in folders if folder.is_dir()]
    return sorted(found, key=lambda copy: -copy.created)


def create_copy_files(
    folder: Path,
    kit: WorkspaceTools,
    with_changes: bool,  # noqa: FBT001 -- for to_thread
    parent: str,
) -> FolderCopy:
    if not (roots := kit.resources.roots.folders):
        raise ActionRefused("This workspace has no folder, so there is nothing to copy.")
    atomic_files.ensure_private_folder(folder.parent)
    folder.mkdir(mode=0o700)
    save_copy_description(FolderCopy(folder.name, folder, time.time()))
    made: dict[Path, CopySource] = {}
    places = []
    for root in roots:
        source = copying.find_source_repository(root, kit.sandbox.command_folder / "git" / "ignore")
        top = source.folder if source is not None else root
        number = [*made, top].index(top)
        target = folder / str(number)
        if top not in made and source is not None:
            checkout = GitCheckout(target, is_copy=True)
            made[top] = copying.create_repository_copy(source, checkout, with_changes=with_changes)
        elif top not in made:
            made[top] = _copy_without_git(root, target)
        inside = f"{number}/{root.relative_to(top).as_posix()}"
        (folder / inside).mkdir(parents=True, exist_ok=True)
        places.append((str(root), inside))
    return FolderCopy(folder.name, folder, time.time(), tuple(places), tuple(made.values()), parent)


def _copy_without_git(root: Path, target: Path) -> CopySource:
    """Create a copy that takes no disk space until something in it is changed."""
    cp = find_program("cp")
    words = [cp, "-aT", "--reflink=always", str(root), str(target)]
    if not cp or run_process(ProcessLaunch(CommandAuthor.PROGRAM, words)).returncode:
        raise ActionRefused(
            f"{root} is not in a git repository, and its file system cannot make a copy that shares disk space with the original.",
            remedy="Nothing was copied. Make the folder a git repository first, or work in the folder itself.",
        )
    return CopySource(str(root))


def save_copy_description(copy: FolderCopy) -> None:
    said = {
        name: value
        for name, value in asdict(copy).items()
        if name not in ("id", "folder", "problem")
    }
    atomic_files.write_file_atomically(copy.folder / NAME, json.dumps(said), private=True)


def remember_brought_back(
    copy: FolderCopy,
    changes: Sequence[PathChange],
    steps: Iterable[RestoreStep] = (),
    *,
    is_merged: bool = False,
) -> None:
    """Note in a copy's description what the user's folders have of it now, and from
    which commit git compares.
    """
    replaced = {
        path: item
        for path, item in copy.replaced.items()
        if all(path != one.path for one in changes)
    }
    replaced = (
        {}
        if is_merged
        else {**replaced, **{step.path: pack_item(step.now).hex() for step in steps}}
    )
    brought = dict(copy.brought)
    for path, _, after in changes:
        version = pack_item(after).hex()
        brought[path] = [*(each for each in brought.get(path, ()) if each != version), version][
            -MOST_VERSIONS:
        ]
    repositories = copy.repositories
    if is_merged:
        merged = {}
        for _, at, made in find_checkouts(copy):
            names = map(os.fsdecode, at.uncommitted_paths())
            carried = {name: copying.size_time_and_mode(at.folder / name) for name in names}
            merged[made.source] = replace(made, base=at.head, carried=carried)
        repositories = [merged.get(made.source, made) for made in repositories]
    save_copy_description(
        replace(copy, brought=brought, replaced=replaced, repositories=repositories)
    )
    unfinished_bring_back.forget_unfinished_bring_back(copy.folder)


def read_copy_description(folder: Path) -> FolderCopy:
    problem = "What describes this copy cannot be read."
    try:
        said = json.loads(atomic_files.read_small_file(folder / NAME))
        named, known = (
            said.keys() | set[str]().union(*said["repositories"]),
            [*fields(FolderCopy), *fields(CopySource)],
        )
        if not named <= {each.name for each in known}:
            problem = "This copy was last used with a newer version of Helix Desktop, and only that version can bring it back."
        said["repositories"] = [CopySource(**each) for each in said["repositories"]]
        said["is_whole"] = said["is_whole"] is True and not folder.name.endswith(DISCARDED)
        return FolderCopy(folder.name, folder, **said)
    except (OSError, HelixError, ValueError, KeyError, TypeError, AttributeError):
        is_kept = not folder.name.endswith(DISCARDED) and any(folder.glob("[0-9]*"))
        return FolderCopy(
            folder.name, folder, folder.stat().st_mtime, problem=problem if is_kept else ""
        )


def find_checkouts(
    copy: FolderCopy,
) -> Iterator[tuple[GitCheckout | None, GitCheckout, CopySource]]:
    """Yield the user's repository (None if it is gone), the copy if its git files lead
    nowhere else, and its source.
    """
    for number, made in enumerate(copy.repositories):
        source = None
        with suppress(ActionRefused):
            source = copying.find_source_repository(Path(made.source))
        if made.base:
            there = source if source is not None and source.folder == Path(made.source) else None
            checkout = GitCheckout(copy.folder / str(number), is_copy=True)
            copying.refuse_links_in_git_folder(checkout.folder / ".git")
            yield there, checkout, made


def put_back_files_of_copy(copy: FolderCopy) -> None:
    for _, checkout, made in find_checkouts(copy):
        copying.put_back_set_aside_files(checkout, made)


def read_copy_status(copy: FolderCopy) -> CopyStatus:
    size = sum(about.st_blocks * 512 for _, about in list_tree_files(copy.folder))
    uncommitted, changed = list[str](), tuple[str, ...]()
    commits, problem = 0, copy.problem
    try:
        for source, checkout, made in find_checkouts(copy) if copy.is_whole else ():
            names = copying.list_uncommitted_paths(checkout, made)
            uncommitted += [printable_path(os.fsdecode(name)) for name in names]
            commits += len(copying.list_commits_only_in_copy(source, checkout, made))
        changed = list_changed_files(copy)
    except ActionRefused as error:
        problem = str(error)
    return CopyStatus(size, tuple(uncommitted), commits, problem, changed)


def list_changed_files(copy: FolderCopy) -> tuple[str, ...]:
    found = []
    for _, checkout, made in find_checkouts(copy) if copy.is_whole else ():
        folder = _find_users_folder(made.source)
        found += [f"{folder}/{name}" for name in copying.list_changed_paths(checkout, made)]
    return tuple(found)


def _find_users_folder(source: str) -> str:
    """Return the user's folder from which a copy, or a copy of a copy, was made."""
    above = Path(source).parent
    if above.parent.name != COPIES or not Path(source).name.isdigit():
        return source
    made = read_copy_description(above).repositories
    number = int(Path(source).name)
    return _find_users_folder(made[number].source) if number < len(made) else source


def list_names_by_root(copy: FolderCopy) -> dict[int, frozenset[str] | None]:
    """Return the files of each root that git sees as changed or new, or None without git."""
    found: dict[int, frozenset[str] | None] = dict.fromkeys(range(len(copy.roots)))
    for _, checkout, made in find_checkouts(copy):
        # The half of one, with its conflict markers, is not brought back.
        checkout.check_no_merge_open()
        names = copying.list_changed_paths(checkout, made)
        for at, (number, start) in enumerate(copy.places):
            if str(number) == checkout.folder.name:
                found[at] = frozenset(
                    name.removeprefix(start) for name in names if name.startswith(start)
                )
    return found


def find_git_file_missing_from_checkpoint(
    roots: Sequence[Path],
    checkpoint_items: Mapping[str, TreeItem],
    git_names: Mapping[int, frozenset[str] | None],
) -> str:
    """Return a file that git knows but checkpoints do not, or an empty string."""
    for number, names in git_names.items():
        for name in names or ():
            item, place = checkpoint_items.get(f"{number}/{name}"), roots[number] / name
            if (
                (item is None or item.kind is PathKind.OTHER)
                and os.path.lexists(place)
                and not place.is_dir()
            ):
                return str(place)
    return ""


def is_brought_back(change: PathChange, git_names: Mapping[int, frozenset[str] | None]) -> bool:
    """Whether to bring a change back. New files only if git would track them."""
    if all(item is None or item.kind is PathKind.FOLDER for item in change[1:]):
        return change.after is None
    number, _, inside = change.path.partition("/")
    names = git_names[int(number)]
    return change.before is not None or names is None or inside in names
