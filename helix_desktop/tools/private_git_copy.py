"""A private copy of a git repository, with its own refs, index and settings, but with
borrowed objects.

Unlike a worktree of git's, it shares nothing that can be written, so an agent in it
cannot reach the user's branches or hooks. The repository may come from anywhere, and an
agent has worked in the copy: if a git file in them leads elsewhere, nothing is done.
"""

import ast
import os
import re
import stat
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path, PurePosixPath

from helix_desktop import atomic_files
from helix_desktop.atomic_files import create_folders, write_file_atomically
from helix_desktop.engine.changes.folder_state import PathKind, TreeItem
from helix_desktop.engine.changes.turn_changes import printable_path
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.folder_trees import delete_folder_tree, list_tree_files
from helix_desktop.tools.autorun_files import is_autorun_path
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.git_runner import find_filtered_files, run_git
from helix_desktop.tools.workspace_roots import (
    RootPath,
    WorkspaceRoots,
    read_whole_file,
    restore_entry,
)

LARGEST_CARRIED = 1 << 30
FindVersions = Callable[[str], Sequence[TreeItem | None]]
MOST_NAMED = 20
_NOTHING_CHANGED = "Nothing was changed."
_COPY_KEEPS_CHANGES = "Nothing was changed in your folder, and the copy keeps its changes."
_COPIED_SETTINGS = re.compile(
    r"user\.(name|email)|core\.(autocrlf|eol|ignorecase|precomposeunicode|sparsecheckout|sparsecheckoutcone)"
)
_COMMITTER_SETTINGS = re.compile(r"(user|author|committer)\..*|commit\.gpgsign|gpg\.format")
_ESSENTIAL_GIT_FILES = (
    "HEAD",
    "config",
    "index",
    "objects",
    "objects/info",
    "objects/info/alternates",
    "objects/pack",
    "packed-refs",
    "refs",
    "shallow",
    "info",
    "info/attributes",
    "info/exclude",
    "info/grafts",
    "info/sparse-checkout",
    "logs",
)
_MOST_COPIED_BYTES = 64 << 20  # Of a list of ignored files, for example.
_AUTOSTASH_FILES = ("MERGE_AUTOSTASH", "rebase-merge/autostash", "rebase-apply/autostash")
_USUAL_COVERAGE = CheckpointCoverage()
# The folder for files that are put back whether or not the user's commit was merged.
_ALWAYS_PUT_BACK = "always"
_SUBMODULE_MODE = b"160000"
# A link to this name stands for a file that was not there.
_DELETED_FILE_MARK = "deleted by the user"
_FILES_OF_OPEN_MERGE = (
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
)


@dataclass(frozen=True, slots=True)
class GitCheckout:
    """`is_copy`: a copy of ours, where only its own `.git` counts. `excludes`: the
    user's ignore patterns. `settings`: git settings that replace its own.
    """

    folder: Path
    is_copy: bool = False
    excludes: Path = Path(os.devnull)
    settings: Sequence[str] = ()

    @property
    def git_variables(self) -> dict[str, str]:
        """Return variables that make git use a copy's folders, whatever its settings say."""
        if not self.is_copy:
            return {}
        return {"GIT_DIR": str(self.folder / ".git"), "GIT_WORK_TREE": str(self.folder)}

    def run(self, *arguments: str, stdin: bytes = b"", remedy: str = _NOTHING_CHANGED) -> bytes:
        """Run git in this checkout and return what it prints. If git fails, raise ActionRefused
        with this remedy.

        The user's own ignore patterns always count, and `settings` replace what is set
        elsewhere.
        """
        settings = [f"core.excludesFile={self.excludes}"]
        settings.extend(self.settings)
        return run_git(
            self.folder,
            *arguments,
            stdin=stdin,
            environment=self.git_variables,
            remedy=remedy,
            settings=settings,
        )

    def git_line(self, *arguments: str) -> str:
        return os.fsdecode(self.run(*arguments).removesuffix(b"\n"))

    def git_names(self, *arguments: str, stdin: bytes = b"") -> list[bytes]:
        return [name for name in self.run(*arguments, stdin=stdin).split(b"\0") if name]

    def list_settings(self) -> dict[str, str]:
        """Return all settings that git has here, from every file it reads, by name."""
        settings: dict[str, str] = {}
        for entry in self.git_names("config", "--includes", "--null", "--list"):
            name, line_end, value = os.fsdecode(entry).partition("\n")
            if not line_end:
                value = "true"  # A setting without a value, such as a bare `[core] bare`.
            settings[name] = value
        return settings

    def with_committer_of(self, source: "GitCheckout") -> "GitCheckout":
        """Return this copy with commits made as in the user's repository now, whatever
        an agent has set in the copy.
        """
        settings = []
        for name, value in source.list_settings().items():
            if _COMMITTER_SETTINGS.fullmatch(name):
                settings.append(f"{name}={value}")
        return replace(self, settings=settings)

    @property
    def head(self) -> str:
        return self.git_line("rev-parse", "--verify", "--quiet", "HEAD^{commit}")

    @property
    def branch(self) -> str:
        """Return the current branch, or an empty string for a detached HEAD."""
        name = self.git_line("rev-parse", "--abbrev-ref", "HEAD")
        if name == "HEAD":
            return ""
        return name

    @property
    def folder_for_set_aside(self) -> Path:
        """Return the folder beside a copy, where no agent writes, that has a folder for
        each commit to be merged.
        """
        return self.folder.with_name(f"aside-{self.folder.name}")

    def path_in_git_folder(self, name: str) -> Path:
        return Path(self.git_line("rev-parse", "--path-format=absolute", "--git-path", name))

    @property
    def is_merge_open(self) -> bool:
        if self.is_copy:
            git = self.folder / ".git"
        else:
            git = Path(self.git_line("rev-parse", "--absolute-git-dir"))
        return any((git / name).exists() for name in _FILES_OF_OPEN_MERGE)

    def uncommitted_paths(self) -> list[bytes]:
        """Return files that differ from the last commit, even new ones, but no ignored
        or cached ones.
        """
        self._clear_hiding_marks()
        options = (
            "--porcelain=v1",
            "-z",
            "--untracked-files=all",
            "--ignore-submodules=all",
            "--no-renames",
        )
        names = []
        for entry in self.git_names("status", *options):
            # Each line has two letters for the state, a blank and the name.
            is_untracked = entry.startswith(b"?")
            name = entry[3:]
            if is_untracked and self._is_in_cache(name):
                continue
            names.append(name)
        return names

    def paths_changed_since(self, commit: str) -> list[str]:
        """Return files that differ from a commit, also new ones, but not ignored or cached ones."""
        self._clear_hiding_marks()
        changed = self.git_names("diff", "-z", "--name-only", "--no-renames", commit)
        for name in self.git_names("ls-files", "-z", "--others", "--exclude-standard"):
            if not self._is_in_cache(name):
                changed.append(name)
        return list(map(os.fsdecode, changed))

    def names_that_differ(self, first_commit: str, second_commit: str) -> list[bytes]:
        return self.git_names(
            "diff-tree", "-r", "-z", "--name-only", "--no-renames", first_commit, second_commit
        )

    def entries_of_commit(self, commit: str) -> dict[bytes, bytes]:
        """Return git's lines on all files of a commit, by name."""
        lines = self.git_names("ls-tree", "-r", "-z", commit)
        return {line.partition(b"\t")[2]: line for line in lines}

    def _is_in_cache(self, name: bytes) -> bool:
        """Whether a file is in a folder that programs fill by themselves, such as `__pycache__`."""
        parent = PurePosixPath(os.fsdecode(name)).parent
        while parent.name:
            if _USUAL_COVERAGE.leaves_out_folder(self.folder / parent):
                return True
            parent = parent.parent
        return False

    def stage_files(self, names: Iterable[bytes]) -> None:
        """Put these files into the index as they are in the folder, deletions included."""
        options = ("--add", "--remove", "--replace", "-z", "--stdin")
        self.run("update-index", *options, stdin=b"\0".join(names))

    def list_submodule_paths(self) -> list[bytes]:
        """Return the paths where the index has a submodule: another repository inside this one."""
        paths = []
        for entry in self.git_names("ls-files", "--stage", "-z"):
            if entry.startswith(_SUBMODULE_MODE):
                paths.append(entry.partition(b"\t")[2])
        return paths

    def _clear_hiding_marks(self) -> None:
        """Remove marks in a copy's index that hide changes, except those of files
        outside a sparse checkout.
        """
        if not self.is_copy:
            return
        hidden: list[bytes] = []
        for entry in self.git_names("ls-files", "-v", "-z"):
            tag, _, name = entry.partition(b" ")
            is_assumed_unchanged = tag == b"h"
            # Outside a sparse checkout, a file is skipped because it is not there.
            is_skipped = tag in b"sS" and os.path.lexists(self.folder / os.fsdecode(name))
            if is_assumed_unchanged or is_skipped:
                hidden.append(name)
        if not hidden:
            return
        for option in ("--no-assume-unchanged", "--no-skip-worktree"):
            self.run("update-index", option, "-z", "--stdin", stdin=b"\0".join(hidden))

    def check_no_merge_open(self) -> None:
        """Raise ActionRefused if a merge or rebase is unfinished."""
        if self.is_merge_open:
            kind = "your repository"
            if self.is_copy:
                kind = "the copy"
            raise ActionRefused(
                f"A merge or a rebase in {kind} has not been finished ({self.folder}).",
                remedy="Finish or abort it with git, or ask the agent in this conversation to do it, then try again.",
            )


@dataclass(frozen=True, slots=True)
class CopySource:
    """What a copy was made from. `base`: the commit, or empty without git; `branch`:
    empty for a detached HEAD; `objects`: folders whose objects it borrows; `notes`:
    sentences on what it lacks; `carried`: uncommitted files, with size, time and mode
    in the copy, or nothing for a deleted file.
    """

    source: str
    base: str = ""
    branch: str = ""
    objects: Sequence[str] = ()
    notes: Sequence[str] = ()
    carried: Mapping[str, Sequence[int]] = field(default_factory=dict)


def find_source_repository(root: Path, excludes: Path = Path(os.devnull)) -> GitCheckout | None:
    """Return the repository around a folder, or None. ActionRefused if its git folder
    belongs elsewhere.
    """
    folder = _find_folder_with_git(root)
    if folder is None:
        return None
    checkout = GitCheckout(folder, excludes=excludes)
    git = folder / ".git"
    if git.is_dir() and not git.is_symlink():
        refuse_links_in_git_folder(git, _ESSENTIAL_GIT_FILES)
    elif git.is_symlink() or not _is_known_to_its_repository(checkout):
        raise ActionRefused(
            f"{git} leads to a repository that does not know of this folder.",
            remedy=_NOTHING_CHANGED,
        )
    if Path(checkout.git_line("rev-parse", "--show-toplevel")) != folder:
        raise ActionRefused(
            f"The files of the repository in {folder} are in another folder.",
            remedy=_NOTHING_CHANGED,
        )
    return checkout


def _find_folder_with_git(root: Path) -> Path | None:
    for folder in (root, *root.parents):
        if os.path.lexists(folder / ".git"):
            return folder
    return None


def refuse_links_in_git_folder(git: Path, names: Sequence[str] = ()) -> None:
    """Raise ActionRefused for links and pipes in a git folder. `names`: check only these entries,
    and all of `refs`.
    """
    entries = [git]
    searched = git
    if names:
        entries = [git / name for name in names]
        searched = git / "refs"
    entries.extend(path for path, _ in list_tree_files(searched))
    leading_elsewhere = [path for path in entries if path.is_symlink() or path.is_fifo()]
    # A folder with `commondir` is a part of another repository.
    if not git.is_dir() or os.path.lexists(git / "commondir"):
        leading_elsewhere.append(git)
    if leading_elsewhere:
        raise _error_of_link(leading_elsewhere[0])


def _error_of_link(path: Path) -> ActionRefused:
    return ActionRefused(
        f"{path} leads elsewhere, so git was not used there.", remedy=_NOTHING_CHANGED
    )


def _is_known_to_its_repository(checkout: GitCheckout) -> bool:
    """Whether the folder that a `.git` file names has this folder as its worktree or submodule."""
    git = Path(checkout.git_line("rev-parse", "--absolute-git-dir"))
    own_git_file = str(checkout.folder / ".git")
    with suppress(OSError):  # A worktree's folder says where its `.git` file is.
        return (git / "gitdir").read_text("utf-8", "surrogateescape").strip() == own_git_file
    with suppress(HelixError):
        worktree = git / checkout.git_line("config", "--get", "core.worktree")
        return worktree.resolve() == checkout.folder
    return False


# --- Creating a copy of a repository


def create_repository_copy(
    source: GitCheckout, copy: GitCheckout, *, with_changes: bool, lenders: Sequence[str] = ()
) -> CopySource:
    """Copy the user's current commit, and with `with_changes` also what they have not committed.

    `lenders`: folders from which the source may borrow objects, because it is a copy of ours.
    """
    try:
        base = source.head
        branch = source.branch
    except ActionRefused as error:
        raise ActionRefused(f"The repository in {source.folder} has no commit yet.", remedy="Make a first commit, then try again.") from error  # fmt: skip
    changed_names: list[bytes] = []
    if with_changes:
        changed_names = source.uncommitted_paths()
    _create_repository_with_borrowed_objects(source, copy, branch)
    borrowed = _list_borrowed_object_folders(source, copy, lenders)
    _copy_git_settings(source, copy)
    copy.run("update-ref", "HEAD", base)
    copy.run("read-tree", "-m", "-u", "HEAD")
    notes = list(_copy_uncommitted_changes(source, copy, changed_names))
    if copy.list_submodule_paths():
        notes.append("Submodules are not copied: their folders are empty.")
    if source.head != base:
        raise ActionRefused(
            "A commit was made while the repository was being copied.", remedy="Try again."
        )
    carried_files = {}
    for name in map(os.fsdecode, changed_names):
        carried_files[name] = size_time_and_mode(copy.folder / name)
    return CopySource(
        source=str(source.folder),
        base=base,
        branch=branch,
        objects=tuple(borrowed),
        notes=tuple(notes),
        carried=carried_files,
    )


def _create_repository_with_borrowed_objects(
    source: GitCheckout, copy: GitCheckout, branch: str
) -> None:
    """Create an empty repository that finds git's objects (contents and commits) in the user's
    repository instead of having copies of its own.
    """
    object_folder = source.path_in_git_folder("objects")
    # Git reads one folder a line, quoted ones in C's way, and skips comments.
    if "\n" in str(object_folder) or str(object_folder).startswith(('"', "#")):
        raise ActionRefused(
            f"git cannot borrow objects from {object_folder}.", remedy=_NOTHING_CHANGED
        )
    object_format = source.git_line("rev-parse", "--show-object-format")
    run_git(
        copy.folder.parent,
        "init",
        "--quiet",
        "--template=",
        f"--object-format={object_format}",
        f"--initial-branch={branch or 'detached'}",
        str(copy.folder),
    )
    alternates = copy.folder / ".git/objects/info/alternates"
    alternates.write_bytes(os.fsencode(object_folder) + b"\n")


def _list_borrowed_object_folders(
    source: GitCheckout, copy: GitCheckout, lenders: Sequence[str]
) -> list[str]:
    """Return the folders from which the copy borrows objects. Commands in the copy may read them, so
    they are the repository's own and `lenders`. The repository's list of others is refused: an agent
    can write into it whatever it wants to read.
    """
    own_folder = os.path.realpath(source.path_in_git_folder("objects"))
    known_folders = {own_folder, *map(os.path.realpath, lenders)}
    borrowed: list[str] = []
    line_prefix = b"alternate: "
    for line in copy.run("count-objects", "-v").splitlines():
        if not line.startswith(line_prefix):
            continue
        folder = os.path.realpath(_unquote_git_path(line.removeprefix(line_prefix)))
        if folder not in known_folders:
            raise ActionRefused(
                f"The repository in {source.folder} borrows objects from {folder}, which is outside of it.",
                remedy="Nothing was changed. If you want a copy of it, run `git repack -a -d` there, and delete .git/objects/info/alternates.",
            )
        borrowed.append(folder)
    return list(dict.fromkeys(borrowed))


def _unquote_git_path(path: bytes) -> str:
    """Git writes a path with letters beyond ASCII in quotes, as C does, which Python reads, too."""
    if path.startswith(b'"'):
        path = ast.literal_eval(f"b{path.decode('ascii')}")
    return os.fsdecode(path)


def _copy_git_settings(source: GitCheckout, copy: GitCheckout) -> None:
    """Copy who commits and what a checkout needs, but no other settings of the user's."""
    for name, value in source.list_settings().items():
        if _COPIED_SETTINGS.fullmatch(name):
            copy.run("config", name, value)
    git_folder = source.git_line("rev-parse", "--path-format=absolute", "--git-common-dir")
    for name in ("shallow", "info/sparse-checkout", "info/exclude"):
        path = copy.folder / ".git" / name
        path.parent.mkdir(exist_ok=True)
        original = source.path_in_git_folder(name)
        if not original.is_relative_to(git_folder):  # Git has followed a link.
            raise _error_of_link(original)
        with suppress(FileNotFoundError):
            content = atomic_files.read_small_file(original, _MOST_COPIED_BYTES)
            path.write_bytes(content)
    with suppress(OSError), (copy.folder / ".git/info/exclude").open("ab") as patterns:
        patterns.write(b"\n" + source.excludes.read_bytes())


def _copy_uncommitted_changes(
    source: GitCheckout, copy: GitCheckout, names: Iterable[bytes]
) -> Iterator[str]:
    """Make these files as in the user's folder. Yield sentences on those that could not
    be carried over.
    """
    sorted_paths = sorted(map(os.fsdecode, names))
    for path in reversed(sorted_paths):
        if path.endswith("/"):
            yield f"{path} is a repository of its own, and was not carried over."
    entries = {path: _stat_entry(source.folder / path) for path in sorted_paths}
    # What is deleted goes first, the deepest before its folder: a folder may have become a file.
    for path in reversed(sorted_paths):
        if entries[path] is None:
            _remove_file_and_emptied_folders(copy.folder, path)
    for path, entry in entries.items():
        if entry is not None and not _carry_entry_over(source, copy, path, entry):
            yield f"{path} was not carried over."


def _carry_entry_over(
    source: GitCheckout, copy: GitCheckout, path: str, entry: "EntryStatus"
) -> bool:
    """Copy a file or a link. Returns whether it could be."""
    if entry.status.st_size > LARGEST_CARRIED:
        return False
    if not entry.is_file and not entry.link_target:
        return False
    content = None
    if not entry.link_target:
        users_folder = WorkspaceRoots((source.folder,))
        content = read_whole_file(users_folder, RootPath(source.folder, path), LARGEST_CARRIED)
    restore_entry(
        WorkspaceRoots((copy.folder,)),
        RootPath(copy.folder, path),
        content,
        entry.status.st_mode,
        entry.link_target,
    )
    return True


def _remove_file_and_emptied_folders(folder: Path, path: str) -> None:
    """Remove a file, and the folders above it that are then empty, as git does."""
    restore_entry(WorkspaceRoots((folder,)), RootPath(folder, path), None, 0)
    parent = Path(path).parent
    while parent.name:
        with suppress(OSError):  # The folder has other files.
            (folder / parent).rmdir()
        parent = parent.parent


@dataclass(frozen=True, slots=True)
class EntryStatus:
    """A file or link, not followed. `link_target`: empty for a file."""

    status: os.stat_result
    link_target: str

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    @property
    def is_executable(self) -> bool:
        """As git sees it: only the owner's right counts."""
        return bool(self.status.st_mode & 0o100)


def _stat_entry(path: Path) -> EntryStatus | None:
    """Return an entry's status and link target, or None for a folder or something behind a link."""
    with suppress(OSError):
        status = path.lstat()
        is_behind_link = path.parent.resolve() != path.parent
        if is_behind_link or stat.S_ISDIR(status.st_mode):
            return None
        link_target = ""
        if stat.S_ISLNK(status.st_mode):
            link_target = str(path.readlink())
        return EntryStatus(status, link_target)
    return None


# --- What a copy changed, and bringing it into the user's repository


def list_changed_paths(copy: GitCheckout, origin: CopySource) -> list[str]:
    """Return what has changed since the copy was made, committed or not."""
    names = set(copy.paths_changed_since(origin.base))
    names.update(origin.carried)
    return sorted(names - _untouched_paths(copy, origin))


def list_uncommitted_paths(copy: GitCheckout, origin: CopySource) -> list[bytes]:
    """Return what is not committed in the copy, except what came with it and is as it was."""
    untouched = _untouched_paths(copy, origin)
    return [name for name in copy.uncommitted_paths() if os.fsdecode(name) not in untouched]


def _untouched_paths(copy: GitCheckout, origin: CopySource) -> set[str]:
    """Return the user's uncommitted files that are as they were when the copy was made."""
    untouched = set()
    for name, carried_state in origin.carried.items():
        present_state = size_time_and_mode(copy.folder / name)
        # Copies of earlier versions have no mode. A deleted file has nothing at all.
        if carried_state:
            present_state = present_state[: len(carried_state)]
        if list(carried_state) == present_state:
            untouched.add(name)
    return untouched


def size_time_and_mode(path: Path) -> list[int]:
    """Return what tells that a file was changed; of its mode, only whether it is
    executable, as git does.
    """
    with suppress(OSError):
        status = path.lstat()
        return [status.st_size, status.st_mtime_ns, status.st_mode & 0o100]
    return []


def list_commits_only_in_copy(
    source: GitCheckout | None, copy: GitCheckout, origin: CopySource
) -> list[str]:
    """Return the commits that are on no branch of the user's, also those that a refused
    merge put into refs/helix.
    """
    known_commits = _commits_in_users_repository(source, origin)
    return copy.git_line("rev-list", "--all", "HEAD", "--not", *known_commits).split()


def _commits_in_users_repository(source: GitCheckout | None, origin: CopySource) -> list[str]:
    """Return commits that the user certainly has: the one the copy was made from, the current
    one, and those of all branches and tags.
    """
    commits = [origin.base]
    if source is not None:
        commits.append(source.head)
        branch_and_tag_commits = (
            "for-each-ref",
            "--format=%(objectname)",
            "refs/heads",
            "refs/tags",
        )
        commits.extend(source.git_line(*branch_and_tag_commits).split())
    return commits


def commit_and_bundle_copy(
    source: GitCheckout | None, copy: GitCheckout, origin: CopySource
) -> bytes:
    """Commit everything in the copy, and bundle what only it has for `git fetch`, if anything."""
    if source is not None:
        copy = copy.with_committer_of(source)
    names = copy.uncommitted_paths()
    # Git says nothing of files in the folder of a submodule.
    for submodule in copy.list_submodule_paths():
        if any((copy.folder / os.fsdecode(submodule)).glob("*")):
            names.append(submodule + b"/")
    _give_refs_to_stashes(copy)
    _commit_everything(copy, names, "What was not committed in the copy", "--no-gpg-sign")
    if not list_commits_only_in_copy(source, copy, origin):
        return b""
    known_commits = _commits_in_users_repository(source, origin)
    return copy.run("bundle", "create", "-", "--all", "HEAD", "--not", *known_commits)


def _give_refs_to_stashes(copy: GitCheckout) -> None:
    """Give a ref to the index and to each commit without one, since a bundle has only
    what refs lead to.
    """
    tips = copy.git_line("rev-list", "--no-walk", "--reflog").split()
    for name in _AUTOSTASH_FILES:
        with suppress(ActionRefused):
            tips.append(copy.git_line("rev-parse", "--verify", "--quiet", name))
    # An index with conflicts is no tree. If the user has no name, committing everything
    # is refused as well.
    with suppress(ActionRefused):
        tree = copy.git_line("write-tree")
        if tree != copy.git_line("rev-parse", "HEAD^{tree}"):
            options = ("--no-gpg-sign", "-p", "HEAD", "-m", "Staged in the copy")
            tips.append(copy.git_line("commit-tree", *options, tree))
    lines = [f"update refs/helix/kept/{tip} {tip}\n" for tip in tips]
    copy.run("update-ref", "--stdin", stdin="".join(lines).encode())


def commit_in_copy(copy: GitCheckout, origin: CopySource, message: str) -> None:
    """Commit what is not committed yet in the copy, except the user's own changes that came
    with it.

    Raise ActionRefused if a file goes through a git filter, or if there is something to commit
    and the message is empty.
    """
    names = list_uncommitted_paths(copy, origin)
    _check_unfiltered(copy, names)
    if names and not message.strip():
        raise ActionRefused(
            f"Files in the copy are not committed: {len(names):,}.",
            remedy="Commit these files in the copy, specify a commit message, or bring the files back as uncommitted changes.",
        )  # fmt: skip
    if names:
        _commit_everything(copy, names, message)


def _commit_everything(copy: GitCheckout, names: list[bytes], message: str, *options: str) -> None:
    """Commit these files in the copy. Raise ActionRefused if one is a folder with a repository
    of its own, since git would commit only a reference to that.
    """
    # Git names a folder that is a repository of its own with a slash at the end.
    nested_repositories = [name for name in names if name.endswith(b"/")]
    if nested_repositories:
        first_path = printable_path(os.fsdecode(nested_repositories[0]))
        raise ActionRefused(
            f"{first_path} in the copy is a repository of its own, which git does not commit.",
            remedy="Move this repository out of the copy, or delete it, and try again.",
        )
    copy.stage_files(names)
    # Nothing is staged if only line ends differ.
    if copy.git_names("diff-index", "--cached", "-z", "--name-only", "HEAD"):
        copy.run("commit", "--quiet", *options, "--message", message)


def merge_or_rebase_in_copy(
    source: GitCheckout, copy: GitCheckout, origin: CopySource, *, rebase: bool
) -> str:
    """Merge the user's commit, or rebase onto it. Return the commit to move to, or an
    empty string.
    """
    head = source.head
    if not copy.git_line("rev-list", "--max-count=1", f"{head}..HEAD"):
        return ""
    _check_autorun_files_are_in_folder(copy, head)
    command = ["merge", "--no-edit"]
    if rebase:
        command = ["rebase"]
    _set_aside_what_came_with_copy(copy, origin, head)
    try:
        tracked_names = set(copy.git_names("ls-files", "-z"))
        _check_nothing_in_the_way(copy, head, tracked_names)
        copy.run(*command, "--quiet", head, remedy="Your own folder was not changed.")
    except ActionRefused as error:
        conflicting = copy.git_names("diff", "--name-only", "--diff-filter=U", "-z")
        if not conflicting:
            raise
        conflicting_paths = [os.fsdecode(name) for name in conflicting]
        shown_names = name_some_files(conflicting_paths)
        raise ActionRefused(
            f"Your branch and the copy changed these files in ways that conflict: {shown_names}.",
            remedy="Your own folder was not changed. Ask the agent in this conversation to resolve the conflicts and to finish the merge with git, then bring the copy back again.",
        ) from error
    finally:
        put_back_set_aside_files(copy, origin)
    changed_names = copy.names_that_differ(head, "HEAD")
    _check_unfiltered(copy, changed_names)
    _check_unfiltered(source, changed_names)
    return copy.head


def _set_aside_what_came_with_copy(copy: GitCheckout, origin: CopySource, head: str) -> None:
    """Move files that came with the copy and that only the user has changed out of the
    way of a merge.

    Those that differ in `head` were committed by the user since. What git sets aside
    itself is lost if it is killed.
    """
    copy.run("reset", "--quiet")
    untouched_names = {os.fsencode(path) for path in _untouched_paths(copy, origin)}
    tracked_names = set(copy.git_names("ls-files", "-z"))
    names_committed_by_user = untouched_names.intersection(copy.names_that_differ("HEAD", head))
    unstaged_names = copy.git_names("diff-files", "-z", "--name-only")
    names_changed_by_user = untouched_names.intersection(unstaged_names) - names_committed_by_user
    for name in names_committed_by_user:
        _set_file_aside(copy, name, head, is_tracked=name in tracked_names)
    for name in names_changed_by_user:
        _set_file_aside(copy, name, _ALWAYS_PUT_BACK, is_tracked=name in tracked_names)
    names_to_check_out = tracked_names & (names_committed_by_user | names_changed_by_user)
    if names_to_check_out:
        joined_names = b"\0".join(names_to_check_out)
        copy.run("checkout-index", "--force", "-z", "--stdin", stdin=joined_names)


def _set_file_aside(copy: GitCheckout, name: bytes, group: str, *, is_tracked: bool) -> None:
    """Keep a file beside the copy. `group`: the commit that may replace it, or `_ALWAYS_PUT_BACK`."""
    path = copy.folder / os.fsdecode(name)
    path_aside = copy.folder_for_set_aside / group / os.fsdecode(name)
    create_folders(path_aside.parent)
    if _stat_entry(path) is None:
        if not os.path.lexists(path):
            path_aside.symlink_to(_DELETED_FILE_MARK)
    elif is_tracked:
        # It stays until git replaces it: after a kill, a file that is missing would be
        # committed as deleted.
        path_aside.unlink(missing_ok=True)
        # Where links can be linked themselves, Python has to be told to do so.
        follows = os.link not in os.supports_follow_symlinks
        os.link(path, path_aside, follow_symlinks=follows)
    else:
        path.replace(path_aside)


def put_back_set_aside_files(copy: GitCheckout, origin: CopySource) -> None:
    """Put files back if their commit was not merged after all, also after a crash, or
    once the merge was aborted.

    Without them, the user's own words would be missing in the copy as if the agent had
    removed them.
    """
    if copy.is_merge_open:
        return
    for folder in copy.folder_for_set_aside.glob("*"):
        if folder.name == _ALWAYS_PUT_BACK or not _is_merged(copy, folder.name):
            _put_back_files_of_folder(copy, origin, folder)
        delete_folder_tree(folder, ignore_errors=True)


def _is_merged(checkout: GitCheckout, commit: str) -> bool:
    """Whether the current branch has this commit."""
    missing_commit = checkout.git_line("rev-list", "--max-count=1", f"HEAD..{commit}")
    return not missing_commit


def _put_back_files_of_folder(copy: GitCheckout, origin: CopySource, folder: Path) -> None:
    """Put the user's uncommitted changes back into the copy, from the folder in which they
    were put aside for a merge. A file that the agent has changed, too, gets both changes.
    """
    if not origin.carried:
        return
    changed_by_agent = set(copy.paths_changed_since(origin.base))
    entries_of_base: Mapping[bytes, bytes] = {}
    if changed_by_agent:
        entries_of_base = copy.entries_of_commit(origin.base)
    # Only those that came with the copy: the agent could have put other files there.
    for name in origin.carried:
        path_aside = folder / name
        with suppress(OSError):
            if not _may_be_put_back(path_aside, copy.folder / name):
                continue
            if name not in changed_by_agent:
                _put_back_file(copy, name, path_aside)
                continue
            commit_with_file = ""
            if os.fsencode(name) in entries_of_base:
                commit_with_file = origin.base
            _put_back_beside_agents_changes(copy, name, path_aside, commit_with_file)


def _put_back_file(copy: GitCheckout, name: str, path_aside: Path) -> None:
    """Make a file that the agent has not changed again what it was before the merge."""
    if _stands_for_deleted_file(path_aside):
        _remove_file_and_emptied_folders(copy.folder, name)
        return
    path = copy.folder / name
    create_folders(path.parent)
    path_aside.replace(path)


def _put_back_beside_agents_changes(
    copy: GitCheckout, name: str, path_aside: Path, base: str
) -> None:
    """Add the user's uncommitted words to a file that the agent has changed meanwhile.
    `base`: the commit with the version before both, or empty if there is none.
    """
    if _stands_for_deleted_file(path_aside):
        return
    path = copy.folder / name
    if _is_plain_file(path) and _is_plain_file(path_aside):
        content_before = b""
        if base:
            content_before = copy.run("cat-file", "blob", f"{base}:{name}")
        merged = merge_versions(
            path.read_bytes(), content_before, path_aside.read_bytes(), with_markers=True
        )
        write_file_atomically(path, merged)
    elif not os.path.lexists(path):
        create_folders(path.parent)
        path_aside.replace(path)


def _may_be_put_back(path_aside: Path, path: Path) -> bool:
    """Whether the file was kept, and no link of the agent's leads out of the copy."""
    return os.path.lexists(path_aside) and path.parent.resolve() == path.parent


def _stands_for_deleted_file(path_aside: Path) -> bool:
    return path_aside.is_symlink() and str(path_aside.readlink()) == _DELETED_FILE_MARK


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _build_tree_lines(checkout: GitCheckout, names: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the line that git would have in a commit on each of these files and links
    as it is now in the folder.

    Such a line has git's mode for the kind of file, the hash that git gives the content, and
    the name. All files are hashed by one call of git; of a link, its target is hashed.
    """
    files: dict[bytes, EntryStatus] = {}
    tree_lines: dict[bytes, bytes] = {}
    for name in names:
        if b"\n" in name:  # git is given one name a line.
            continue
        entry = _stat_entry(checkout.folder / os.fsdecode(name))
        if entry is None:
            continue
        if entry.is_file:
            files[name] = entry
        elif entry.link_target:
            target = os.fsencode(entry.link_target)
            link_id = checkout.run("hash-object", "--stdin", stdin=target).strip()
            tree_lines[name] = b"120000 blob %s\t%s" % (link_id, name)
    file_ids = checkout.run("hash-object", "--stdin-paths", stdin=b"\n".join(files)).split()
    for (name, entry), file_id in zip(files.items(), file_ids, strict=True):
        mode = b"100755" if entry.is_executable else b"100644"
        tree_lines[name] = b"%s blob %s\t%s" % (mode, file_id, name)
    return tree_lines


def _find_files_as_in_commit(
    checkout: GitCheckout, names: Iterable[bytes], entries_of_commit: Mapping[bytes, bytes]
) -> list[bytes]:
    """Return the files that are in the folder exactly as in a commit with these entries."""
    matching_names = []
    for name, line in _build_tree_lines(checkout, names).items():
        if entries_of_commit.get(name) == line:
            matching_names.append(name)
    return matching_names


def _check_autorun_files_are_in_folder(copy: GitCheckout, head: str) -> None:
    """Refuse the commit of a file that other programs run if it differs from the one in
    the copy's folder.
    """
    options = ("-z", "--name-only", "--no-renames", "--diff-filter=d")
    added_or_changed = copy.git_names("diff", *options, f"{head}...HEAD")
    autorun_names = [name for name in added_or_changed if is_autorun_path(os.fsdecode(name))]
    unchanged_names = _find_files_as_in_commit(copy, autorun_names, copy.entries_of_commit("HEAD"))
    for name in autorun_names:
        path = os.fsdecode(name)
        if name not in unchanged_names or (copy.folder / path).is_symlink():
            raise ActionRefused(
                f"Other programs run {printable_path(path)}, and in the copy's folder this file differs from its committed version.",
                remedy="Compare the file in the copy's folder with the copy's last commit. To keep the committed version, restore the file in the copy's folder from the copy's last commit.",
            )


def _check_unfiltered(checkout: GitCheckout, names: list[bytes]) -> None:
    """Raise ActionRefused for files that git would pass through another program (a filter)."""
    filtered = find_filtered_files(checkout.folder, names, checkout.git_variables)
    if filtered:
        raise ActionRefused(
            f"A git filter (such as Git LFS) would have to change {filtered[0]}, and Helix Desktop does not run filters.",
            remedy="Your own folder was not changed. Bring the file back with git itself, from the copy's folder.",
        )


def bring_commit_to_source(source: GitCheckout, copy: GitCheckout, commit: str, name: str) -> None:
    """Bring a commit into the user's repository as `refs/helix/<name>`."""
    # All objects that the commit needs and the user's own commit does not have.
    revisions = f"{commit}\n^{source.head}\n".encode()
    pack = copy.run("pack-objects", "--revs", "--stdout", "-q", stdin=revisions)
    source.run("unpack-objects", "-q", "--strict", stdin=pack)
    source.run("update-ref", f"refs/helix/{name}", commit)


@dataclass(frozen=True, slots=True)
class BranchMove:
    """How the branch in the folder `source` gets from `head` to `commit`."""

    source: str
    head: str
    commit: str
    staged: str  # The index before.
    same: Sequence[str] = ()  # Files that are in the folder as in the commit, before the move.
    # Files that the folder has in an older version from the copy, and git's line on that version.
    replaced: Mapping[str, str] = field(default_factory=dict)


def plan_branch_move(source: GitCheckout, commit: str, find_versions: FindVersions) -> BranchMove:
    """Check that the user's branch can be moved to a commit.

    `find_versions`: the versions of a file that the copy began with or that were
    brought back from it. The commit replaces them though the user has not committed
    them.
    """
    with suppress(ActionRefused):  # It also fails for files that are no obstacle.
        source.run("update-index", "-q", "--refresh")
    staged_tree = source.git_line("write-tree")
    entries_of_commit = source.entries_of_commit(commit)
    changed_names = set(source.names_that_differ("HEAD", commit))
    diff_files = source.git_names("diff-files", "-z", "--name-only", "--ignore-submodules=all")
    unstaged_names = set(diff_files)
    diff_index = source.git_names("diff-index", "--cached", "-z", "--name-only", "HEAD")
    staged_names = set(diff_index)
    # A file that is in the folder as in the commit is no obstacle, but git must be told so.
    # One that is also staged in another version holds work that would be lost.
    staged_in_another_version = unstaged_names & staged_names
    names_that_may_match = changed_names - staged_in_another_version
    names_as_in_commit = _find_files_as_in_commit(source, names_that_may_match, entries_of_commit)
    # What the commit brings back may replace a version that came from the copy earlier.
    names_to_compare = changed_names.intersection(entries_of_commit)
    names_to_compare -= staged_names
    names_to_compare.difference_update(names_as_in_commit)
    names_to_replace = _find_files_of_versions(source, names_to_compare, find_versions)

    uncommitted_names = unstaged_names | staged_names
    tracked_names = set(source.git_names("ls-files", "-z"))
    names_that_may_change = tracked_names - uncommitted_names
    names_that_may_change.update(names_as_in_commit, names_to_replace)
    _check_nothing_in_the_way(source, commit, names_that_may_change, uncommitted_names)
    lines_of_replaced = {}
    for name, line in _build_tree_lines(source, names_to_replace).items():
        path = os.fsdecode(name)
        lines_of_replaced[path] = os.fsdecode(line)
    paths_as_in_commit = [os.fsdecode(name) for name in names_as_in_commit]
    return BranchMove(
        source=str(source.folder),
        head=source.head,
        commit=commit,
        staged=staged_tree,
        same=tuple(paths_as_in_commit),
        replaced=lines_of_replaced,
    )


def move_branch_forward(source: GitCheckout, move: BranchMove) -> None:
    """Move the user's branch forward if HEAD is still what was merged."""
    entries = source.entries_of_commit(move.commit)
    replaced_names = list(map(os.fsencode, move.replaced))
    source.stage_files(map(os.fsencode, move.same))
    lines = b"\0".join(entries[name] for name in replaced_names)
    source.run("update-index", "-z", "--index-info", stdin=lines)
    tree_before = source.git_line("write-tree")
    try:
        source.run("merge", "--ff-only", "--quiet", move.commit, remedy=_COPY_KEEPS_CHANGES)
    except ActionRefused:  # Git changed the files, but could not move the branch.
        source.run("read-tree", "-m", "-u", source.git_line("write-tree"), tree_before)
        source.run("read-tree", move.staged)
        raise
    _write_files_of_index(source, replaced_names)


def repair_branch_move(source: GitCheckout, move: BranchMove) -> bool:
    """Complete what a killed program left of a move, or take it back. Returns whether
    the branch was moved.
    """
    entries_of_commit = source.entries_of_commit(move.commit)
    if _is_merged(source, move.commit):
        _write_versions_not_written_yet(source, move)
        return True
    tree_now = source.git_line("write-tree")
    entries_now = source.entries_of_commit(tree_now)
    entries_before = source.entries_of_commit(move.staged)
    for name in source.names_that_differ(move.staged, tree_now):
        if entries_now.get(name) != entries_of_commit.get(name):
            return False  # The user has staged something else since.
    if source.head != move.head:
        return False  # The user has committed since.
    source.run("read-tree", move.staged)
    written_names = _find_files_written_by_move(source, move, entries_of_commit)
    for name in written_names:
        if name not in entries_before:
            _remove_file_and_emptied_folders(source.folder, os.fsdecode(name))
    _write_files_of_index(source, [name for name in written_names if name in entries_before])
    return False


def _write_versions_not_written_yet(source: GitCheckout, move: BranchMove) -> None:
    """The branch was moved, but older versions may still stand where the commit's belong."""
    line_of_older_version: dict[bytes, bytes] = {}
    for name, line in move.replaced.items():
        line_of_older_version[os.fsencode(name)] = os.fsencode(line)
    names_replaced = set(line_of_older_version)
    names_in_older_version = set(
        _find_files_as_in_commit(source, names_replaced, line_of_older_version)
    )
    staged_names = source.git_names("diff-index", "--cached", "-z", "--name-only", "HEAD")
    _write_files_of_index(source, names_in_older_version.difference(staged_names))


def _find_files_written_by_move(
    source: GitCheckout, move: BranchMove, entries_of_commit: Mapping[bytes, bytes]
) -> set[bytes]:
    """Return the files that a move of the branch, broken off when the program was killed, has
    already changed: those that are in the folder as in its commit, or are gone.
    """
    names_to_write = set(source.names_that_differ("HEAD", move.commit))
    # What was like the commit before, or is put there from the copy, says nothing about the move.
    names_to_write.difference_update(map(os.fsencode, move.same))
    names_to_write.difference_update(map(os.fsencode, move.replaced))
    written_names = set(_find_files_as_in_commit(source, names_to_write, entries_of_commit))
    # Git removes a file before it writes another version of it.
    for name in names_to_write:
        if not os.path.lexists(source.folder / os.fsdecode(name)):
            written_names.add(name)
    return written_names


def _write_files_of_index(checkout: GitCheckout, names: Collection[bytes]) -> None:
    """Write these files into the folder as the index (what is staged) has them."""
    if names:
        checkout.run(
            "checkout-index", "--index", "--force", "-z", "--stdin", stdin=b"\0".join(names)
        )


def _check_nothing_in_the_way(
    checkout: GitCheckout,
    commit: str,
    names_that_may_change: Collection[bytes],
    uncommitted_names: Collection[bytes] = (),
) -> None:
    """Raise ActionRefused for files that the commit would replace and that are not
    `names_that_may_change`. Git does not mind losing ignored ones.
    """
    entries_of_commit = checkout.entries_of_commit(commit)
    changed_names = set(checkout.names_that_differ("HEAD", commit))
    names_in_the_way: set[bytes] = set()
    for name in changed_names.difference(names_that_may_change):
        entry = entries_of_commit.get(name, b"")
        is_uncommitted = name in uncommitted_names
        files_in_the_way = _find_files_in_the_way_of(
            checkout, name, entry, is_uncommitted=is_uncommitted
        )
        names_in_the_way.update(files_in_the_way)
    names_in_the_way.difference_update(names_that_may_change)
    if names_in_the_way:
        paths_in_the_way = sorted(os.fsdecode(name) for name in names_in_the_way)
        shown_names = name_some_files(paths_in_the_way)
        raise ActionRefused(
            f"These files in {checkout.folder} are not committed and are in the way: {shown_names}.",
            remedy=f"{_COPY_KEEPS_CHANGES} Commit, move or delete these files, then try again.",
        )


def _find_files_in_the_way_of(
    checkout: GitCheckout, name: bytes, entry_in_commit: bytes, *, is_uncommitted: bool
) -> list[bytes]:
    """Return what stands where a commit has this entry, or has removed it (empty)."""
    path = checkout.folder / os.fsdecode(name)
    if path.is_dir() and not path.is_symlink():
        # The folder of a submodule may stay, and where the commit has nothing, git leaves folders.
        if not entry_in_commit or entry_in_commit.startswith(_SUBMODULE_MODE):
            return []
        return _list_names_below(checkout, path)
    if os.path.lexists(path):
        return [name]
    if not entry_in_commit:
        return []
    if is_uncommitted:  # The user has deleted it, but not committed that.
        return [name]
    return _list_files_in_place_of_folders(checkout, path)


def _list_names_below(checkout: GitCheckout, folder: Path) -> list[bytes]:
    paths = [path for path, _ in list_tree_files(folder)]
    return [os.fsencode(path.relative_to(checkout.folder)) for path in paths]


def _list_files_in_place_of_folders(checkout: GitCheckout, path: Path) -> list[bytes]:
    """Files and links that stand where the commit has a folder above this file."""
    names = []
    for above in path.parents:
        is_folder = above.is_dir() and not above.is_symlink()
        if os.path.lexists(above) and not is_folder:
            names.append(os.fsencode(above.relative_to(checkout.folder)))
    return names


def name_some_files(names: Sequence[str]) -> str:
    """Return the names as one text for a message, only the first ones if there are many."""
    listed_names = ", ".join(map(printable_path, names[:MOST_NAMED]))
    if len(names) > MOST_NAMED:
        return f"{listed_names}, …"
    return listed_names


def _find_files_of_versions(
    checkout: GitCheckout, names: Iterable[bytes], find_versions: FindVersions
) -> list[bytes]:
    """Return the files that are in the folder as in one of their versions."""
    matching_names = []
    for name in sorted(names):
        versions = find_versions(os.fsdecode(name))
        if _is_file_as_in_version(checkout.folder / os.fsdecode(name), versions):
            matching_names.append(name)
    return matching_names


def _is_file_as_in_version(path: Path, versions: Sequence[TreeItem | None]) -> bool:
    """Whether the file has the content of one of these versions, and is executable if that one
    was.
    """
    entry = _stat_entry(path)
    if not versions or entry is None or not entry.is_file:
        return False
    content = Digest.of_content(path.read_bytes()).raw
    for version in versions:
        if version is None or version.kind is not PathKind.FILE:
            continue
        is_same_mode = bool(version.mode & 0o100) == entry.is_executable
        if version.content == content and is_same_mode:
            return True
    return False


def merge_versions(ours: bytes, base: bytes, theirs: bytes, *, with_markers: bool = False) -> bytes:
    """Merge three versions of a file as git does. Without markers, ActionRefused for a conflict."""
    if theirs == base:
        return ours
    # The highest exit code that is no failure.
    highest_code = 0
    if with_markers:
        highest_code = 127  # Git returns the number of conflicts as its code.
    labels = ("-L", "your folder", "-L", "before", "-L", "the copy")
    with tempfile.TemporaryDirectory(prefix="helix-") as folder_name:
        folder = Path(folder_name)
        (folder / "ours").write_bytes(ours)
        (folder / "base").write_bytes(base)
        (folder / "theirs").write_bytes(theirs)
        options = ("--stdout", "--quiet", *labels)
        return run_git(
            folder, "merge-file", *options, "ours", "base", "theirs", highest_code=highest_code
        )
