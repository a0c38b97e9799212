"""A private copy of a git repository, with its own refs, index and settings, but with
borrowed objects.

Unlike a worktree of git's, it shares nothing that can be written, so an agent in it
cannot reach the user's branches or hooks. The repository may come from anywhere, and an
agent has worked in the copy: if a git file in them leads elsewhere, nothing is done.
"""

import os
import re
import stat
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path, PurePosixPath

from helix_desktop.atomic_files import write_file_atomically
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
_UNCHANGED = "Nothing was changed."
_KEPT = "Nothing was changed in your folder, and the copy keeps its changes."
_TAKEN_OVER = re.compile(
    r"user\.(name|email)|core\.(autocrlf|eol|ignorecase|precomposeunicode|sparsecheckout|sparsecheckoutcone)"
)
_OF_COMMITTER = re.compile(r"(user|author|committer)\..*|commit\.gpgsign|gpg\.format")
_ESSENTIAL = (
    "HEAD",
    "config",
    "index",
    "objects",
    "packed-refs",
    "refs",
    "shallow",
    "info",
    "logs",
)
_STASHED_BY_GIT = ("MERGE_AUTOSTASH", "rebase-merge/autostash", "rebase-apply/autostash")
_USUAL_COVERAGE = CheckpointCoverage()
_ALWAYS_BACK = (
    "always"  # The folder for files that are put back whether or not the user's commit was merged.
)
_DELETED = "deleted by the user"  # A link to this name stands for a file that was not there.
_UNFINISHED = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")


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
        return (
            {"GIT_DIR": str(self.folder / ".git"), "GIT_WORK_TREE": str(self.folder)}
            if self.is_copy
            else {}
        )

    def run(self, *arguments: str, given: bytes = b"", remedy: str = _UNCHANGED) -> bytes:
        own = (f"core.excludesFile={self.excludes}", *self.settings)
        return run_git(
            self.folder,
            *arguments,
            stdin=given,
            environment=self.git_variables,
            remedy=remedy,
            settings=own,
        )

    def git_line(self, *arguments: str) -> str:
        return os.fsdecode(self.run(*arguments).removesuffix(b"\n"))

    def git_names(self, *arguments: str, given: bytes = b"") -> list[bytes]:
        return [name for name in self.run(*arguments, given=given).split(b"\0") if name]

    def list_settings(self) -> dict[str, str]:
        listed = map(os.fsdecode, self.git_names("config", "--includes", "--null", "--list"))
        parts = (entry.partition("\n") for entry in listed)
        return {name: value if is_given else "true" for name, is_given, value in parts}

    def with_committer_of(self, source: "GitCheckout") -> "GitCheckout":
        """Return this copy with commits made as in the user's repository now, whatever
        an agent has set in the copy.
        """
        found = source.list_settings().items()
        return replace(
            self,
            settings=[f"{name}={value}" for name, value in found if _OF_COMMITTER.fullmatch(name)],
        )

    @property
    def head(self) -> str:
        return self.git_line("rev-parse", "--verify", "--quiet", "HEAD^{commit}")

    @property
    def branch(self) -> str:
        """Return the current branch, or an empty string for a detached HEAD."""
        name = self.git_line("rev-parse", "--abbrev-ref", "HEAD")
        return "" if name == "HEAD" else name

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
        git = (
            self.folder / ".git"
            if self.is_copy
            else Path(self.git_line("rev-parse", "--absolute-git-dir"))
        )
        return any((git / name).exists() for name in _UNFINISHED)

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
        found = [(entry[:1], entry[3:]) for entry in self.git_names("status", *options)]
        return [name for mark, name in found if mark != b"?" or not self._is_in_cache(name)]

    def paths_changed_since(self, commit: str) -> list[str]:
        """Return files that differ from a commit, also new ones, but not ignored or cached ones."""
        self._clear_hiding_marks()
        raw = self.git_names("diff", "-z", "--name-only", "--no-renames", commit)
        new = self.git_names("ls-files", "-z", "--others", "--exclude-standard")
        return [*map(os.fsdecode, (*raw, *(name for name in new if not self._is_in_cache(name))))]

    def names_that_differ(self, one: str, other: str) -> list[bytes]:
        return self.git_names("diff-tree", "-r", "-z", "--name-only", "--no-renames", one, other)

    def entries_of_commit(self, commit: str) -> dict[bytes, bytes]:
        """Return git's lines on all files of a commit, by name."""
        return {
            line.partition(b"\t")[2]: line for line in self.git_names("ls-tree", "-r", "-z", commit)
        }

    def _is_in_cache(self, name: bytes) -> bool:
        """Whether a file is in a folder that programs fill by themselves, such as `__pycache__`."""
        above = [self.folder / each for each in PurePosixPath(os.fsdecode(name)).parents][:-1]
        return any(map(_USUAL_COVERAGE.leaves_out_folder, above))

    def stage_files(self, names: Iterable[bytes]) -> None:
        options = ("--add", "--remove", "--replace", "-z", "--stdin")
        self.run("update-index", *options, given=b"\0".join(names))

    def list_submodule_paths(self) -> list[bytes]:
        staged = self.git_names("ls-files", "--stage", "-z")
        return [entry.partition(b"\t")[2] for entry in staged if entry.startswith(b"160000")]

    def _clear_hiding_marks(self) -> None:
        """Remove marks in a copy's index that hide changes, except those of files
        outside a sparse checkout.
        """
        hidden = list[bytes]()
        for entry in self.git_names("ls-files", "-v", "-z") if self.is_copy else ():
            tag, _, name = entry.partition(b" ")
            if tag == b"h" or (tag in b"sS" and os.path.lexists(self.folder / os.fsdecode(name))):
                hidden.append(name)
        for option in ("--no-assume-unchanged", "--no-skip-worktree") if hidden else ():
            self.run("update-index", option, "-z", "--stdin", given=b"\0".join(hidden))

    def check_no_merge_open(self) -> None:
        """Raise ActionRefused if a merge or rebase is unfinished."""
        if self.is_merge_open:
            kind = "the copy" if self.is_copy else "your repository"
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
    folder = next((each for each in (root, *root.parents) if os.path.lexists(each / ".git")), None)
    if folder is None:
        return None
    found = GitCheckout(folder, excludes=excludes)
    git = folder / ".git"
    if git.is_dir() and not git.is_symlink():
        refuse_links_in_git_folder(git, _ESSENTIAL)
    elif git.is_symlink() or not _is_known_to_its_repository(found):
        raise ActionRefused(
            f"{git} leads to a repository that does not know of this folder.", remedy=_UNCHANGED
        )
    if Path(found.git_line("rev-parse", "--show-toplevel")) != folder:
        raise ActionRefused(
            f"The files of the repository in {folder} are in another folder.", remedy=_UNCHANGED
        )
    return found


def refuse_links_in_git_folder(git: Path, names: Sequence[str] = ()) -> None:
    """Raise ActionRefused for links in a git folder. `names`: check only these entries,
    and all of `refs`.
    """
    entries = [git / name for name in names] if names else [git]
    for start in [git / "refs"] if names else [git]:
        entries += [path for path, _ in list_tree_files(start)]
    links = [path for path in entries if path.is_symlink()]
    if links or not git.is_dir() or os.path.lexists(git / "commondir"):
        where = links[0] if links else git
        raise ActionRefused(
            f"{where} leads elsewhere, so git was not used there.", remedy=_UNCHANGED
        )


def _is_known_to_its_repository(found: GitCheckout) -> bool:
    """Whether the folder that a `.git` file names has this folder as its worktree or submodule."""
    git = Path(found.git_line("rev-parse", "--absolute-git-dir"))
    with suppress(OSError):
        return (git / "gitdir").read_text("utf-8", "surrogateescape").strip() == str(
            found.folder / ".git"
        )
    with suppress(HelixError):
        return (git / found.git_line("config", "--get", "core.worktree")).resolve() == found.folder
    return False


# --- Creating a copy of a repository


def create_repository_copy(
    source: GitCheckout, copy: GitCheckout, *, with_changes: bool
) -> CopySource:
    """Copy the user's current commit, and with `with_changes` also what they have not committed."""
    try:
        base, branch = source.head, source.branch
    except ActionRefused as error:
        raise ActionRefused(f"The repository in {source.folder} has no commit yet.", remedy="Make a first commit, then try again.") from error  # fmt: skip
    changed = source.uncommitted_paths() if with_changes else []
    objects = source.path_in_git_folder("objects")
    if "\n" in str(objects) or str(objects).startswith(('"', "#")):
        raise ActionRefused(f"git cannot borrow objects from {objects}.", remedy=_UNCHANGED)
    form = source.git_line("rev-parse", "--show-object-format")
    start = f"--initial-branch={branch or 'detached'}"
    run_git(
        copy.folder.parent,
        "init",
        "--quiet",
        "--template=",
        f"--object-format={form}",
        start,
        str(copy.folder),
    )
    (copy.folder / ".git/objects/info/alternates").write_bytes(os.fsencode(objects) + b"\n")
    _copy_git_settings(source, copy)
    copy.run("update-ref", "HEAD", base)
    copy.run("read-tree", "-m", "-u", "HEAD")
    notes = list(_copy_uncommitted_changes(source, copy, changed))
    if copy.list_submodule_paths():
        notes.append("Submodules are not copied: their folders are empty.")
    if source.head != base:
        raise ActionRefused(
            "A commit was made while the repository was being copied.", remedy="Try again."
        )
    lines = copy.run("count-objects", "-v").splitlines()
    borrowed = [os.fsdecode(line[11:]) for line in lines if line.startswith(b"alternate: ")]
    carried = {name: size_time_and_mode(copy.folder / name) for name in map(os.fsdecode, changed)}
    return CopySource(str(source.folder), base, branch, tuple(borrowed), tuple(notes), carried)


def _copy_git_settings(source: GitCheckout, copy: GitCheckout) -> None:
    """Copy who commits and what a checkout needs, but no other settings of the user's."""
    for name, value in source.list_settings().items():
        if _TAKEN_OVER.fullmatch(name):
            copy.run("config", name, value)
    for name in ("shallow", "info/sparse-checkout", "info/exclude"):
        path = copy.folder / ".git" / name
        path.parent.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            path.write_bytes(source.path_in_git_folder(name).read_bytes())
    with suppress(OSError), (copy.folder / ".git/info/exclude").open("ab") as patterns:
        patterns.write(b"\n" + source.excludes.read_bytes())


def _copy_uncommitted_changes(
    source: GitCheckout, copy: GitCheckout, names: Iterable[bytes]
) -> Iterator[str]:
    """Make these files as in the user's folder. Yield sentences on those that could not
    be carried over.
    """
    theirs, ours = WorkspaceRoots((source.folder,)), WorkspaceRoots((copy.folder,))
    paths = sorted(map(os.fsdecode, names), reverse=True)
    yield from (
        f"{path} is a repository of its own, and was not carried over."
        for path in paths
        if path.endswith("/")
    )
    there = {path: _stat_entry(source.folder / path) for path in paths}
    for path in (path for path in paths if there[path] is None):
        _remove_file_and_emptied_folders(copy.folder, path)
    for path in reversed(paths):
        if (entry := there[path]) is None:
            continue
        found, link = entry
        if found.st_size > LARGEST_CARRIED or not (link or stat.S_ISREG(found.st_mode)):
            yield f"{path} was not carried over."
            continue
        place = RootPath(source.folder, path)
        content = None if link else read_whole_file(theirs, place, LARGEST_CARRIED)
        restore_entry(ours, RootPath(copy.folder, path), content, found.st_mode, link)


def _remove_file_and_emptied_folders(folder: Path, path: str) -> None:
    """Remove a file, and the folders above it that are then empty, as git does."""
    restore_entry(WorkspaceRoots((folder,)), RootPath(folder, path), None, 0)
    for above in [folder / each for each in Path(path).parents][:-1]:
        with suppress(OSError):
            above.rmdir()


def _stat_entry(place: Path) -> tuple[os.stat_result, str] | None:
    """Return an entry's status and link target, or None for a folder or something behind a link."""
    with suppress(OSError):
        found = place.lstat()
        if place.parent.resolve() == place.parent and not stat.S_ISDIR(found.st_mode):
            return found, str(place.readlink()) if stat.S_ISLNK(found.st_mode) else ""
    return None


# --- What a copy changed, and bringing it into the user's repository


def list_changed_paths(copy: GitCheckout, made: CopySource) -> list[str]:
    """Return what has changed since the copy was made, committed or not."""
    names = {*copy.paths_changed_since(made.base), *made.carried}
    return sorted(names - _untouched_paths(copy, made))


def list_uncommitted_paths(copy: GitCheckout, made: CopySource) -> list[bytes]:
    """Return what is not committed in the copy, except what came with it and is as it was."""
    untouched = _untouched_paths(copy, made)
    return [name for name in copy.uncommitted_paths() if os.fsdecode(name) not in untouched]


def _untouched_paths(copy: GitCheckout, made: CopySource) -> set[str]:
    """Return the user's uncommitted files that are as they were when the copy was made."""
    there = (
        (name, at, size_time_and_mode(copy.folder / name)) for name, at in made.carried.items()
    )
    return {
        name for name, at, found in there if [*at] == found[: len(at) or None]
    }  # Older copies have no mode.


def size_time_and_mode(path: Path) -> list[int]:
    """Return what tells that a file was changed; of its mode, only whether it is
    executable, as git does.
    """
    with suppress(OSError):
        found = path.lstat()
        return [found.st_size, found.st_mtime_ns, found.st_mode & 0o100]
    return []


def list_commits_only_in_copy(
    source: GitCheckout | None, copy: GitCheckout, made: CopySource
) -> list[str]:
    """Return the commits that are on no branch of the user's, also those that a refused
    merge put into refs/helix.
    """
    return copy.git_line(
        "rev-list", "--all", "HEAD", "--not", *_commits_in_users_repository(source, made)
    ).split()


def _commits_in_users_repository(source: GitCheckout | None, made: CopySource) -> list[str]:
    if source is None:
        return [made.base]
    tips = source.git_line(
        "for-each-ref", "--format=%(objectname)", "refs/heads", "refs/tags"
    ).split()
    return [made.base, source.head, *tips]


def commit_and_bundle_copy(
    source: GitCheckout | None, copy: GitCheckout, made: CopySource
) -> bytes:
    """Commit everything in the copy, and bundle what only it has for `git fetch`, if anything."""
    copy = copy.with_committer_of(source) if source is not None else copy
    filled = [
        name + b"/"
        for name in copy.list_submodule_paths()
        if any((copy.folder / os.fsdecode(name)).glob("*"))
    ]
    names = [
        *copy.uncommitted_paths(),
        *filled,
    ]  # Git says nothing of files in the folder of a submodule.
    _give_refs_to_stashes(copy)
    _commit_everything(copy, names, "What was not committed in the copy", "--no-gpg-sign")
    if not list_commits_only_in_copy(source, copy, made):
        return b""
    return copy.run(
        "bundle",
        "create",
        "-",
        "--all",
        "HEAD",
        "--not",
        *_commits_in_users_repository(source, made),
    )


def _give_refs_to_stashes(copy: GitCheckout) -> None:
    """Give a ref to the index and to each commit without one, since a bundle has only
    what refs lead to.
    """
    tips = copy.git_line("rev-list", "--no-walk", "--reflog").split()
    for name in _STASHED_BY_GIT:
        with suppress(ActionRefused):
            tips.append(copy.git_line("rev-parse", "--verify", "--quiet", name))
    # An index with conflicts is no tree. If the user has no name, committing everything
    # is refused as well.
    with suppress(ActionRefused):
        if (tree := copy.git_line("write-tree")) != copy.git_line("rev-parse", "HEAD^{tree}"):
            tips.append(
                copy.git_line(
                    "commit-tree", "--no-gpg-sign", "-p", "HEAD", "-m", "Staged in the copy", tree
                )
            )
    copy.run(
        "update-ref",
        "--stdin",
        given="".join(f"update refs/helix/kept/{tip} {tip}\n" for tip in tips).encode(),
    )


def commit_in_copy(copy: GitCheckout, made: CopySource, message: str) -> None:
    names = list_uncommitted_paths(copy, made)
    _check_unfiltered(copy, names)
    if names and not message.strip():
        raise ActionRefused(
            f"Files in the copy are not committed: {len(names):,}.",
            remedy="Commit these files in the copy, specify a commit message, or bring the files back as uncommitted changes.",
        )  # fmt: skip
    if names:
        _commit_everything(copy, names, message)


def _commit_everything(copy: GitCheckout, names: list[bytes], message: str, *options: str) -> None:
    if nested := [name for name in names if name.endswith(b"/")]:
        raise ActionRefused(
            f"{printable_path(os.fsdecode(nested[0]))} in the copy is a repository of its own, which git does not commit.",
            remedy="Move this repository out of the copy, or delete it, and try again.",
        )
    copy.stage_files(names)
    if copy.git_names(
        "diff-index", "--cached", "-z", "--name-only", "HEAD"
    ):  # Not if only line ends differ.
        copy.run("commit", "--quiet", *options, "--message", message)


def merge_or_rebase_in_copy(
    source: GitCheckout, copy: GitCheckout, made: CopySource, *, rebase: bool
) -> str:
    """Merge the user's commit, or rebase onto it. Return the commit to move to, or an
    empty string.
    """
    head = source.head
    if not copy.git_line("rev-list", "--max-count=1", f"{head}..HEAD"):
        return ""
    _check_autorun_files_are_in_folder(copy, head)
    way = ("rebase",) if rebase else ("merge", "--no-edit")
    _set_aside_what_came_with_copy(copy, made, head)
    try:
        _check_nothing_in_the_way(copy, head, {*copy.git_names("ls-files", "-z")})
        copy.run(*way, "--quiet", head, remedy="Your own folder was not changed.")
    except ActionRefused as error:
        if not (names := copy.git_names("diff", "--name-only", "--diff-filter=U", "-z")):
            raise
        raise ActionRefused(
            f"Your branch and the copy changed these files in ways that conflict: {name_some_files([*map(os.fsdecode, names)])}.",
            remedy="Your own folder was not changed. Ask the agent in this conversation to resolve the conflicts and to finish the merge with git, then bring the copy back again.",
        ) from error
    finally:
        put_back_set_aside_files(copy, made)
    changed = copy.names_that_differ(head, "HEAD")
    _check_unfiltered(copy, changed)
    _check_unfiltered(source, changed)
    return copy.head


def _set_aside_what_came_with_copy(copy: GitCheckout, made: CopySource, head: str) -> None:
    """Move files that came with the copy and that only the user has changed out of the
    way of a merge.

    Those that differ in `head` were committed by the user since. What git sets aside
    itself is lost if it is killed.
    """
    copy.run("reset", "--quiet")
    untouched = set(map(os.fsencode, _untouched_paths(copy, made)))
    committed = {*copy.names_that_differ("HEAD", head)} & untouched
    tracked = {*copy.git_names("ls-files", "-z")}
    changed = {*copy.git_names("diff-files", "-z", "--name-only")} & untouched - committed
    for place, names in ((head, committed), (_ALWAYS_BACK, changed)):
        for name in map(os.fsdecode, names):
            kept = copy.folder_for_set_aside / place / name
            kept.parent.mkdir(parents=True, exist_ok=True)
            if _stat_entry(copy.folder / name) is not None and os.fsencode(name) in tracked:
                # It stays until git replaces it: after a kill, a file that is missing
                # would be committed as deleted.
                kept.unlink(missing_ok=True)
                os.link(
                    copy.folder / name,
                    kept,
                    follow_symlinks=os.link not in os.supports_follow_symlinks,
                )
            elif _stat_entry(copy.folder / name) is not None:
                (copy.folder / name).replace(kept)
            elif not os.path.lexists(copy.folder / name):
                kept.symlink_to(_DELETED)
    if again := tracked & (committed | changed):
        copy.run("checkout-index", "--force", "-z", "--stdin", given=b"\0".join(again))


def put_back_set_aside_files(copy: GitCheckout, made: CopySource) -> None:
    """Put files back if their commit was not merged after all, also after a crash, or
    once the merge was aborted.

    Without them, the user's own words would be missing in the copy as if the agent had
    removed them.
    """
    if copy.is_merge_open:
        return
    for folder in copy.folder_for_set_aside.glob("*"):
        is_back = folder.name == _ALWAYS_BACK or copy.git_line(
            "rev-list", "--max-count=1", f"HEAD..{folder.name}"
        )
        names = made.carried if is_back else ()
        by_agent = {*copy.paths_changed_since(made.base)} if names else set[str]()
        tracked = copy.entries_of_commit(made.base) if by_agent else {}
        for name in names:  # The agent could have put other files there.
            place, kept = copy.folder / name, folder / name
            with suppress(OSError):
                if not os.path.lexists(kept) or place.parent.resolve() != place.parent:
                    continue
                if kept.is_symlink() and str(kept.readlink()) == _DELETED:
                    if name not in by_agent:
                        _remove_file_and_emptied_folders(copy.folder, name)
                elif (
                    name in by_agent
                    and place.is_file()
                    and not place.is_symlink()
                    and not kept.is_symlink()
                ):
                    base = (
                        copy.run("cat-file", "blob", f"{made.base}:{name}")
                        if os.fsencode(name) in tracked
                        else b""
                    )
                    versions = place.read_bytes(), base, kept.read_bytes()
                    write_file_atomically(place, merge_versions(*versions, with_markers=True))
                elif name not in by_agent or not os.path.lexists(place):
                    place.parent.mkdir(parents=True, exist_ok=True)
                    kept.replace(place)
        delete_folder_tree(folder, ignore_errors=True)


def _describe_files(at: GitCheckout, names: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the line that git would have in a commit on each of these files and links
    as it is now in the folder.
    """
    found = {
        name: _stat_entry(at.folder / os.fsdecode(name)) for name in names if b"\n" not in name
    }
    files = {
        name: one[0].st_mode for name, one in found.items() if one and stat.S_ISREG(one[0].st_mode)
    }
    hashes = at.run("hash-object", "--stdin-paths", given=b"\n".join(files)).split()
    modes = [b"100755" if mode & 0o100 else b"100644" for mode in files.values()]
    there = [b"%s blob %s\t%s" % each for each in zip(modes, hashes, files, strict=True)]
    links = {name: os.fsencode(one[1]) for name, one in found.items() if one and one[1]}
    hashes = [at.run("hash-object", "--stdin", given=target).strip() for target in links.values()]
    there += [b"120000 blob %s\t%s" % each for each in zip(hashes, links, strict=True)]
    return dict(zip((*files, *links), there, strict=True))


def _find_files_as_in_commit(
    at: GitCheckout, names: Iterable[bytes], entries: Mapping[bytes, bytes]
) -> list[bytes]:
    """Return the files that are in the folder exactly as in a commit with these entries."""
    return [name for name, line in _describe_files(at, names).items() if entries.get(name) == line]


def _check_autorun_files_are_in_folder(copy: GitCheckout, head: str) -> None:
    """Refuse the commit of a file that other programs run if it differs from the one in
    the copy's folder.
    """
    added = copy.git_names(
        "diff", "-z", "--name-only", "--no-renames", "--diff-filter=d", f"{head}...HEAD"
    )
    added = [name for name in added if is_autorun_path(os.fsdecode(name))]
    same = _find_files_as_in_commit(copy, added, copy.entries_of_commit("HEAD"))
    for name in map(os.fsdecode, added):
        if os.fsencode(name) not in same or (copy.folder / name).is_symlink():
            raise ActionRefused(
                f"Other programs run {printable_path(name)}, and in the copy's folder this file differs from its committed version.",
                remedy="Compare the file in the copy's folder with the copy's last commit. To keep the committed version, restore the file in the copy's folder from the copy's last commit.",
            )


def _check_unfiltered(checkout: GitCheckout, names: list[bytes]) -> None:
    if filtered := find_filtered_files(checkout.folder, names, checkout.git_variables):
        raise ActionRefused(
            f"A git filter (such as Git LFS) would have to change {filtered[0]}, and Helix Desktop does not run filters.",
            remedy="Your own folder was not changed. Bring the file back with git itself, from the copy's folder.",
        )


def bring_commit_to_source(source: GitCheckout, copy: GitCheckout, commit: str, name: str) -> None:
    """Bring a commit into the user's repository as `refs/helix/<name>`."""
    pack = copy.run(
        "pack-objects", "--revs", "--stdout", "-q", given=f"{commit}\n^{source.head}\n".encode()
    )
    source.run("unpack-objects", "-q", "--strict", given=pack)
    source.run("update-ref", f"refs/helix/{name}", commit)


@dataclass(frozen=True, slots=True)
class BranchMove:
    """How the branch in the folder `source` gets from `head` to `commit`. `staged`: the
    index before; `same`: files that are in the folder as in the commit; `replaced`:
    files with an older version from the copy, and git's line on that version.
    """

    source: str
    head: str
    commit: str
    staged: str
    same: Sequence[str] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)


def plan_branch_move(source: GitCheckout, commit: str, find_versions: FindVersions) -> BranchMove:
    """Check that the user's branch can be moved to a commit.

    `find_versions`: the versions of a file that the copy began with or that were
    brought back from it. The commit replaces them though the user has not committed
    them.
    """
    with suppress(ActionRefused):  # It also fails for files that are no obstacle.
        source.run("update-index", "-q", "--refresh")
    staged, entries = source.git_line("write-tree"), source.entries_of_commit(commit)
    changed = {*source.names_that_differ("HEAD", commit)}
    unstaged = source.git_names("diff-files", "-z", "--name-only", "--ignore-submodules=all")
    in_index = source.git_names("diff-index", "--cached", "-z", "--name-only", "HEAD")
    # A file that is in the folder as in the commit is no obstacle, but git must be told so.
    same = _find_files_as_in_commit(source, changed - ({*unstaged} & {*in_index}), entries)
    replaced = _find_files_of_versions(
        source, changed & {*entries} - {*same, *in_index}, find_versions
    )
    clean = {*source.git_names("ls-files", "-z")} - {*unstaged, *in_index} | {*same, *replaced}
    _check_nothing_in_the_way(source, commit, clean, {*unstaged, *in_index})
    lines = {
        os.fsdecode(name): os.fsdecode(line)
        for name, line in _describe_files(source, replaced).items()
    }
    return BranchMove(
        str(source.folder), source.head, commit, staged, (*map(os.fsdecode, same),), lines
    )


def move_branch_forward(source: GitCheckout, move: BranchMove) -> None:
    """Move the user's branch forward if HEAD is still what was merged."""
    entries, replaced = source.entries_of_commit(move.commit), [*map(os.fsencode, move.replaced)]
    source.stage_files(map(os.fsencode, move.same))
    source.run(
        "update-index", "-z", "--index-info", given=b"\0".join(entries[name] for name in replaced)
    )
    before = source.git_line("write-tree")
    try:
        source.run("merge", "--ff-only", "--quiet", move.commit, remedy=_KEPT)
    except ActionRefused:  # Git changed the files, but could not move the branch.
        source.run("read-tree", "-m", "-u", source.git_line("write-tree"), before)
        source.run("read-tree", move.staged)
        raise
    _write_files_of_index(source, replaced)


def repair_branch_move(source: GitCheckout, move: BranchMove) -> bool:
    """Complete what a killed program left of a move, or take it back. Returns whether
    the branch was moved.
    """
    entries, older = source.entries_of_commit(move.commit), {*map(os.fsencode, move.replaced)}
    if not source.git_line("rev-list", "--max-count=1", f"HEAD..{move.commit}"):
        lines = {os.fsencode(name): os.fsencode(line) for name, line in move.replaced.items()}
        staged = source.git_names("diff-index", "--cached", "-z", "--name-only", "HEAD")
        _write_files_of_index(
            source, {*_find_files_as_in_commit(source, older, lines)}.difference(staged)
        )
        return True
    now = source.git_line("write-tree")
    there, held = source.entries_of_commit(now), source.entries_of_commit(move.staged)
    staged = source.names_that_differ(move.staged, now)
    if source.head != move.head or any(there.get(name) != entries.get(name) for name in staged):
        return False  # The user has worked on since.
    source.run("read-tree", move.staged)
    changed = (
        {*source.names_that_differ("HEAD", move.commit)} - {*map(os.fsencode, move.same)} - older
    )
    written = [*_find_files_as_in_commit(source, changed, entries)]
    # Git removes a file before it writes another version of it.
    written += [name for name in changed if not os.path.lexists(source.folder / os.fsdecode(name))]
    for name in {*written} - {*held}:
        _remove_file_and_emptied_folders(source.folder, os.fsdecode(name))
    _write_files_of_index(source, [name for name in written if name in held])
    return False


def _write_files_of_index(at: GitCheckout, names: Collection[bytes]) -> None:
    if names:
        at.run("checkout-index", "--index", "--force", "-z", "--stdin", given=b"\0".join(names))


def _check_nothing_in_the_way(
    at: GitCheckout, commit: str, clean: Collection[bytes], dirty: Collection[bytes] = ()
) -> None:
    """Raise ActionRefused for files that the commit would replace and that are not
    `clean`. Git does not mind losing ignored ones.
    """
    entries = at.entries_of_commit(commit)
    found = set[bytes]()
    for name in {*at.names_that_differ("HEAD", commit)}.difference(clean):
        place, entry = at.folder / os.fsdecode(name), entries.get(name, b"")
        if place.is_dir() and not place.is_symlink():
            inside = (
                os.fsencode(path.relative_to(at.folder)) for path, _ in list_tree_files(place)
            )
            found.update(
                {*inside}.difference(clean) if entry and not entry.startswith(b"160000") else ()
            )
        elif os.path.lexists(place) or (entry and name in dirty):
            found.add(name)
        elif entry:
            above = [
                each
                for each in place.parents
                if os.path.lexists(each) and (each.is_symlink() or not each.is_dir())
            ]
            found.update(
                {os.fsencode(each.relative_to(at.folder)) for each in above}.difference(clean)
            )
    if found:
        raise ActionRefused(
            f"These files in {at.folder} are not committed and are in the way: {name_some_files(sorted(map(os.fsdecode, found)))}.",
            remedy=f"{_KEPT} Commit, move or delete these files, then try again.",
        )


def name_some_files(names: Sequence[str]) -> str:
    return ", ".join(map(printable_path, names[:MOST_NAMED])) + (
        ", …" if len(names) > MOST_NAMED else ""
    )


def _find_files_of_versions(
    at: GitCheckout, names: Iterable[bytes], find_versions: FindVersions
) -> list[bytes]:
    """Return the files that are in the folder as in one of their versions."""
    found = []
    for name in sorted(names):
        path, entry = os.fsdecode(name), _stat_entry(at.folder / os.fsdecode(name))
        files = [
            item for item in find_versions(path) if item is not None and item.kind is PathKind.FILE
        ]
        if files and entry is not None and stat.S_ISREG(entry[0].st_mode):
            held, mode = Digest.of_content((at.folder / path).read_bytes()).raw, entry[0].st_mode
            if any(held == item.content and not (mode ^ item.mode) & 0o100 for item in files):
                found.append(name)
    return found


def merge_versions(ours: bytes, base: bytes, theirs: bytes, *, with_markers: bool = False) -> bytes:
    """Merge three versions of a file as git does. Without markers, ActionRefused for a conflict."""
    if theirs == base:
        return ours
    with tempfile.TemporaryDirectory(prefix="helix-") as name:
        for each, content in (("ours", ours), ("base", base), ("theirs", theirs)):
            Path(name, each).write_bytes(content)
        words = ["-L", "your folder", "-L", "before", "-L", "the copy", "ours", "base", "theirs"]
        highest_code = 127 if with_markers else 0  # The number of conflicts.
        return run_git(
            Path(name), "merge-file", "--stdout", "--quiet", *words, highest_code=highest_code
        )
