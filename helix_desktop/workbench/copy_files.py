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
from typing import Any

from helix_desktop import atomic_files
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem, pack_item
from helix_desktop.engine.changes.turn_changes import printable_path
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.folder_trees import list_tree_files
from helix_desktop.processes.starter import (
    CommandAuthor,
    ProcessLaunch,
    find_own_program,
    run_process,
)
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.tools import private_git_copy as copying
from helix_desktop.tools.changes.change_restoring import RestoreStep
from helix_desktop.tools.private_git_copy import CopySource, GitCheckout
from helix_desktop.tools.workspace_tools import WorkspaceTools
from helix_desktop.workbench import unfinished_bring_back
from helix_desktop.workbench.undo_and_change_list import COPIES

NAME = "copy.json"
DISCARDED = ".discarded"  # The folder of a copy that is being deleted ends with this.
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
        if not self.is_whole:
            return []
        return [(self.folder / inside).resolve() for _, inside in self.roots]

    def is_of(self, folders: Iterable[Path]) -> bool:
        """Whether it is a copy of these folders."""
        return [str(folder) for folder in folders] == [root for root, _ in self.roots]

    @property
    def places(self) -> list[tuple[int, str]]:
        """Return for each root the number of its repository, and how the names of its
        files begin there.
        """
        places: list[tuple[int, str]] = []
        for _, inside in self.roots:
            # A root that is the whole repository is written as "0/.".
            number, _, name_in_repository = inside.rstrip(".").partition("/")
            beginning = ""
            if name_in_repository:
                beginning = f"{name_in_repository}/"
            places.append((int(number), beginning))
        return places

    @property
    def label(self) -> str:
        """Return the branch, commit or folder that it is a copy of."""
        if not self.repositories:
            return ""
        first = self.repositories[0]
        return first.branch or first.base[:9] or Path(first.source).name


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
    copies: list[FolderCopy] = []
    for folder in sorted((workspace.folder / COPIES).glob("*"), reverse=True):
        if folder.is_dir():
            copies.append(read_copy_description(folder))
    copies.sort(key=lambda copy: copy.created, reverse=True)
    return copies


def create_copy_files(
    folder: Path,
    kit: WorkspaceTools,
    with_changes: bool,  # noqa: FBT001 -- for to_thread
    parent: FolderCopy | None,
) -> FolderCopy:
    """Copy the folders of a workspace, or those of another copy, `parent`. Until the caller saves
    what is returned, the copy counts as incomplete.
    """
    roots = kit.resources.roots.folders
    if not roots:
        raise ActionRefused("This workspace has no folder, so there is nothing to copy.")
    atomic_files.ensure_private_folder(folder.parent)
    folder.mkdir(mode=0o700)
    incomplete_copy = FolderCopy(folder.name, folder, time.time())
    save_copy_description(incomplete_copy)

    lenders: list[str] = []
    parent_id = ""
    if parent is not None:
        parent_id = parent.id
        for parent_source in parent.repositories:
            lenders.extend(parent_source.objects)
    ignore_file = kit.sandbox.command_folder / "git" / "ignore"
    number_by_top: dict[Path, int] = {}
    sources: list[CopySource] = []
    copied_roots: list[tuple[str, str]] = []
    for root in roots:
        repository = copying.find_source_repository(root, ignore_file)
        top = root
        if repository is not None:
            top = repository.folder
        # Roots in the same repository share one copy of it.
        if top not in number_by_top:
            number = len(sources)
            number_by_top[top] = number
            target = folder / str(number)
            if repository is None:
                source = _copy_without_git(root, target)
            else:
                checkout = GitCheckout(target, is_copy=True)
                source = copying.create_repository_copy(
                    repository, checkout, with_changes=with_changes, lenders=lenders
                )
            sources.append(source)
        root_within_top = root.relative_to(top).as_posix()
        inside = f"{number_by_top[top]}/{root_within_top}"
        # Git may keep nothing of a root that is empty or ignored.
        atomic_files.create_folders(folder / inside)
        copied_roots.append((str(root), inside))
    copied = time.time()
    return FolderCopy(
        folder.name,
        folder,
        copied,
        roots=tuple(copied_roots),
        repositories=tuple(sources),
        parent=parent_id,
    )


def _copy_without_git(root: Path, target: Path) -> CopySource:
    """Create a copy that takes no disk space until something in it is changed."""
    cp = find_own_program("cp")
    words = [cp, "-aT", "--reflink=always", str(root), str(target)]
    launch = ProcessLaunch(CommandAuthor.PROGRAM, words, environment={})
    if not cp or run_process(launch).returncode:
        raise ActionRefused(
            f"{root} is not in a git repository, and its file system cannot make a copy that shares disk space with the original.",
            remedy="Nothing was copied. Make the folder a git repository first, or work in the folder itself.",
        )
    return CopySource(str(root))


def save_copy_description(copy: FolderCopy) -> None:
    description = asdict(copy)
    # These are known from where the description is, and from whether it can be read.
    for name in ("id", "folder", "problem"):
        del description[name]
    atomic_files.write_file_atomically(copy.folder / NAME, json.dumps(description), private=True)


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
    # A merge is not undone file by file, so it replaces nothing.
    replaced: dict[str, str] = {}
    if not is_merged:
        replaced = dict(copy.replaced)
        for change in changes:
            replaced.pop(change.path, None)
        for step in steps:
            replaced[step.path] = pack_item(step.now).hex()
    brought = dict(copy.brought)
    for change in changes:
        version = pack_item(change.after).hex()
        earlier_versions = brought.get(change.path, ())
        versions = [earlier for earlier in earlier_versions if earlier != version]
        versions.append(version)
        brought[change.path] = versions[-MOST_VERSIONS:]
    repositories = copy.repositories
    if is_merged:
        repositories = _repositories_after_merge(copy)
    save_copy_description(
        replace(copy, brought=brought, replaced=replaced, repositories=repositories)
    )
    unfinished_bring_back.forget_unfinished_bring_back(copy.folder)


def _repositories_after_merge(copy: FolderCopy) -> list[CopySource]:
    """Return the copy's repositories, compared with their present commits from now on."""
    merged: dict[str, CopySource] = {}
    for _, checkout, repository in find_checkouts(copy):
        # Uncommitted files count as changed only once they differ from what they are now.
        carried = {}
        for raw_name in checkout.uncommitted_paths():
            name = os.fsdecode(raw_name)
            carried[name] = copying.size_time_and_mode(checkout.folder / name)
        merged[repository.source] = replace(repository, base=checkout.head, carried=carried)
    return [merged.get(repository.source, repository) for repository in copy.repositories]


def read_copy_description(folder: Path) -> FolderCopy:
    """Read what was saved about a copy. One that cannot be read is returned with a
    sentence about the problem.
    """
    problem = "What describes this copy cannot be read."
    is_being_deleted = folder.name.endswith(DISCARDED)
    try:
        description = json.loads(atomic_files.read_small_file(folder / NAME))
        if _has_unknown_keys(description):
            problem = "This copy was last used with a newer version of Helix Desktop, and only that version can bring it back."
        # A key of a newer version makes this fail.
        repositories = [CopySource(**repository) for repository in description["repositories"]]
        description["repositories"] = repositories
        description["is_whole"] = description["is_whole"] is True and not is_being_deleted
        return FolderCopy(folder.name, folder, **description)
    except (OSError, HelixError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        # Nothing is lost when a copy without any files is deleted.
        has_files = any(folder.glob("[0-9]*"))
        if is_being_deleted or not has_files:
            problem = ""
        return FolderCopy(folder.name, folder, folder.stat().st_mtime, problem=problem)


def _has_unknown_keys(description: Any) -> bool:
    """Whether a copy's description has a key that this version does not know."""
    keys = set[str](description)
    for repository in description["repositories"]:
        keys.update(repository)
    known_fields = fields(FolderCopy) + fields(CopySource)
    known_keys = {known_field.name for known_field in known_fields}
    return not keys <= known_keys


def find_checkouts(
    copy: FolderCopy,
) -> Iterator[tuple[GitCheckout | None, GitCheckout, CopySource]]:
    """Yield the user's repository (None if it is gone), the copy if its git files lead
    nowhere else, and its source.
    """
    for number, repository in enumerate(copy.repositories):
        if not repository.base:  # A folder without git.
            continue
        users_repository = None
        with suppress(ActionRefused):
            users_repository = copying.find_source_repository(Path(repository.source))
        # If the user's repository is gone, one around its folder may be found instead.
        if users_repository is not None and users_repository.folder != Path(repository.source):
            users_repository = None
        checkout = GitCheckout(copy.folder / str(number), is_copy=True)
        copying.refuse_links_in_git_folder(checkout.folder / ".git")
        yield users_repository, checkout, repository


def put_back_files_of_copy(copy: FolderCopy) -> None:
    for _, checkout, repository in find_checkouts(copy):
        copying.put_back_set_aside_files(checkout, repository)


def read_copy_status(copy: FolderCopy) -> CopyStatus:
    """Return what is in a copy and nowhere else, as far as git can tell."""
    size = 0
    for _, file_status in list_tree_files(copy.folder):
        size += file_status.st_blocks * 512  # The system counts in blocks of 512 bytes.
    if not copy.is_whole:
        return CopyStatus(size, problem=copy.problem)
    uncommitted: list[str] = []
    changed: tuple[str, ...] = ()
    commits = 0
    problem = copy.problem
    try:
        for source, checkout, repository in find_checkouts(copy):
            for name in copying.list_uncommitted_paths(checkout, repository):
                uncommitted.append(printable_path(os.fsdecode(name)))
            commits += len(copying.list_commits_only_in_copy(source, checkout, repository))
        changed = list_changed_files(copy)
    except ActionRefused as error:
        # What was counted before is shown with the problem.
        problem = str(error)
    return CopyStatus(size, tuple(uncommitted), commits, problem, changed)


def list_changed_files(copy: FolderCopy) -> tuple[str, ...]:
    if not copy.is_whole:
        return ()
    changed_files: list[str] = []
    for _, checkout, repository in find_checkouts(copy):
        folder = _find_users_folder(repository.source)
        for name in copying.list_changed_paths(checkout, repository):
            changed_files.append(f"{folder}/{name}")
    return tuple(changed_files)


def _find_users_folder(source: str) -> str:
    """Return the user's folder from which a copy, or a copy of a copy, was made."""
    above = Path(source).parent
    if above.parent.name != COPIES or not Path(source).name.isdigit():
        return source
    repositories = read_copy_description(above).repositories
    number = int(Path(source).name)
    if number >= len(repositories):
        return source
    return _find_users_folder(repositories[number].source)


def list_names_by_root(copy: FolderCopy) -> dict[int, frozenset[str] | None]:
    """Return the files of each root that git sees as changed or new, or None without git."""
    names_by_root: dict[int, frozenset[str] | None] = dict.fromkeys(range(len(copy.roots)))
    for _, checkout, repository in find_checkouts(copy):
        # The half of one, with its conflict markers, is not brought back.
        checkout.check_no_merge_open()
        names = copying.list_changed_paths(checkout, repository)
        for root_number, (repository_number, beginning) in enumerate(copy.places):
            if str(repository_number) == checkout.folder.name:
                names_below = [name for name in names if name.startswith(beginning)]
                names_in_root = frozenset(name.removeprefix(beginning) for name in names_below)
                names_by_root[root_number] = names_in_root
    return names_by_root


def find_git_file_missing_from_checkpoint(
    roots: Sequence[Path],
    checkpoint_items: Mapping[str, TreeItem],
    git_names: Mapping[int, frozenset[str] | None],
) -> str:
    """Return a file that git knows but checkpoints do not, or an empty string."""
    for number, names in git_names.items():
        for name in names or ():
            item = checkpoint_items.get(f"{number}/{name}")
            is_covered = item is not None and item.kind is not PathKind.OTHER
            path = roots[number] / name
            # A file that was deleted is in no checkpoint either, and git names submodules.
            if not is_covered and os.path.lexists(path) and not path.is_dir():
                return str(path)
    return ""


def is_brought_back(change: PathChange, git_names: Mapping[int, frozenset[str] | None]) -> bool:
    """Whether to bring a change back. New files only if git would track them."""
    is_change_of_folder = True
    for item in (change.before, change.after):
        if item is not None and item.kind is not PathKind.FOLDER:
            is_change_of_folder = False
    if is_change_of_folder:
        # A new folder comes along with a file in it.
        return change.after is None
    if change.before is not None:
        return True
    number, _, name = change.path.partition("/")
    names = git_names[int(number)]
    return names is None or name in names
