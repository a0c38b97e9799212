"""The guard: files that other programs run later are read before and after a command, and what it changed is put back.

A command may write everywhere in the roots, also what git, a shell or an editor will run once the command and its
sandbox are gone. What it changed there is taken away at once and held in memory; then the user is asked, by name,
whether it is to be there after all. Nothing here depends on the sandbox or on undo.
"""

# ruff: noqa: PTH111, PTH112, PTH113, PTH114, PTH115, PTH118, PTH119, PTH120 -- every folder of a workspace is looked at: paths as texts are faster

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.errors import HelixError
from helix_desktop.tools import confine, git_settings, runs_later
from helix_desktop.tools.confine import Roots
from helix_desktop.tools.hidden_files import is_hidden
from helix_desktop.values import dataclass

_DEEPEST, _MOST_HELD = 500, 200
_OF_GIT = frozenset({"config", "config.worktree", "commondir", ".git", "git-rebase-todo"})
_SETTLED = 2_000_000_000  # nanoseconds after which a change surely has another time than the one before
_SETTINGS = ("config", "config.worktree")
_TODO = ("rebase-merge/git-rebase-todo", "rebase-apply/git-rebase-todo")
_WRITTEN = ("refs", "logs", "objects", "info")  # folders of a git directory that git writes in
_SHALLOW = ("pack", "info")  # of those in `objects`, the only ones that are gone on into


@dataclass(frozen=True, slots=True)
class Item:
    """A file that is run later. `meaning`: what of it can run something, empty where nothing can; `link`: where it leads."""

    meaning: str
    content: bytes | None = None
    link: str = ""
    mode: int = 0o644


State = dict[str, Item]


@dataclass(frozen=True, slots=True)
class Planted:
    """A file as it was before a command, and as the command left it."""

    path: str
    before: Item | None
    after: Item


@dataclass(frozen=True, slots=True)
class _Folder:
    stamp: tuple[int, int]
    settled: bool
    folders: tuple[str, ...]  # that are gone on into
    whole: tuple[str, ...]  # of which everything counts
    notable: tuple[str, ...]
    git: bool
    links: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()  # files that no agent sees


@dataclass(slots=True)
class Guard:
    """The folders of a workspace. What is in one of them is remembered for as long as it has not changed."""

    roots: Roots
    patterns: Callable[[], tuple[str, ...]] = tuple  # of files that no agent sees
    _patterns: tuple[str, ...] = ()
    _folders: dict[str, _Folder] = field(default_factory=dict)
    _of_git: dict[str, _Folder] = field(default_factory=dict)  # folders in git directories
    _items: dict[str, tuple[tuple[int, ...], Item]] = field(default_factory=dict)
    _whole: list[str] = field(default_factory=list)

    def state(self) -> State:
        """All there is now that is run later, by path."""
        if (now := self.patterns()) != self._patterns:
            self._patterns = now
            self._folders, self._of_git = {}, {}
        return _Look(self).state()

    def is_hidden(self, inside: str) -> bool:
        """Whether no agent sees a file, by its path from its root."""
        return is_hidden(inside, self._patterns)

    def hidden(self) -> list[str]:
        """Files that no agent sees, where they really are, as the last look found them."""
        found = (os.path.realpath(f"{path}/{name}") for path, folder in self._folders.items() for name in folder.hidden)
        return [path for path in dict.fromkeys(found) if os.path.isfile(path)]

    def held(self) -> tuple[list[str], list[str]]:
        """What a sandbox can hold as it is: folders of git's, which stay where they are, and files and folders that no
        command needs to change.
        """
        gits = [f"{path}/.git" for path, folder in self._folders.items() if ".git" in folder.notable]
        gits = [path for path in gits if os.path.isdir(path) and os.path.realpath(path) == path]
        files = [f"{path}/{name}" for path in gits for name in ("config", "config.worktree", "hooks", "commondir")]
        files += [path for path in self.fixed() if os.path.realpath(path) == path]
        return sorted(gits, key=len)[:_MOST_HELD], sorted(files, key=len)[:_MOST_HELD]

    def fixed(self) -> list[str]:
        """Files and folders that are there and that no command needs to change: they can be held as they are."""
        files = [path for path in self._items if os.path.basename(path) not in _OF_GIT]
        return [*self._whole, *(path for path in files if not runs_later.in_part(os.path.basename(path)))]

    def planted(self, before: State) -> list[Planted]:
        """What has changed since then so that it can run something; links first, and folders before what is in them."""
        found = []
        for path, item in self.state().items():
            old = before.get(path)
            if _runs_more(os.path.basename(path), old, item):
                found.append(Planted(path, old, item))
        return sorted(found, key=lambda one: (one.path.count("/"), one.path))

    def put_back(self, planted: list[Planted]) -> list[str]:
        """Make each file what it was; the paths where that could not be done."""
        failed = []
        for one in planted:
            before = one.before if one.before and not one.before.link else None
            try:
                self._put(one.path, one.before.link if one.before else "", before)
            except (HelixError, OSError):
                failed.append(one.path)
        return failed

    def allow(self, planted: list[Planted]) -> None:
        """The user wants them: make each what the command made of it."""
        for one in planted:
            self._put(one.path, one.after.link, one.after)

    def remember(self, look: _Look) -> None:
        self._folders, self._of_git, self._items, self._whole = look.folders, look.of_git, look.items, look.whole

    def folder(self, path: str) -> _Folder | None:
        return self._folders.get(path) or self._of_git.get(path)

    def item(self, path: str) -> tuple[tuple[int, ...], Item] | None:
        return self._items.get(path)

    def _put(self, path: str, link: str, item: Item | None) -> None:
        content = item.content if item and not link else None
        confine.put_back(self.roots, self.roots.place(path), content, item.mode if item else 0o644, link)


def _runs_more(name: str, before: Item | None, now: Item) -> bool:
    """Whether a file can run something that it could not run before."""
    if before is None:
        return bool(now.meaning or now.link)
    if runs_later.in_part(name) and before.content is not None and now.content is not None:
        return before.content != now.content and bool(runs_later.meaning(name, now.content, before.content))
    return bool(now.meaning or now.link) and (before.meaning, before.link) != (now.meaning, now.link)


class _Look:
    """One look at all folders."""

    def __init__(self, guard: Guard) -> None:
        self.guard, self.found = guard, State()
        self.folders: dict[str, _Folder] = {}
        self.of_git: dict[str, _Folder] = {}
        self.items: dict[str, tuple[tuple[int, ...], Item]] = {}
        self.whole: list[str] = []
        self.gits: set[str] = set()
        self.tops = [str(root) for root in guard.roots.folders]
        self.closed = {str(path) for path in guard.roots.closed}

    def state(self) -> State:
        shared = _settings_of_the_user()
        for root in self.tops:
            self._walk(root, root)
        for top in [path for path, folder in self.folders.items() if ".git" in folder.notable]:
            self._named_in(shared, top, top)
        self.guard.remember(self)
        return self.found

    # --- folders -----------------------------------------------------------------------------------------------------

    def _walk(self, root: str, start: str) -> None:
        todo = [(start, False, 0)]
        while todo:
            path, package, depth = todo.pop()
            if path in self.folders or path in self.closed or depth > _DEEPEST:
                continue
            folder = self._folder(path, path[len(root) + 1 :])
            if folder is None:
                continue
            self.folders[path] = folder
            if folder.git:
                todo += self._git(path, path, depth)
            for name in folder.notable:
                if name == ".git":
                    todo += self._dot_git(path, depth)
                elif not package:
                    self._take(f"{path}/{name}")
            for name in () if package else folder.whole:
                self.whole.append(f"{path}/{name}")
                self._take_all(f"{path}/{name}")
            todo += [(f"{path}/{name}", package or name in runs_later.PACKAGES, depth + 1) for name in folder.folders]

    def _folder(self, path: str, inside: str) -> _Folder | None:
        try:
            found = os.lstat(path)
            known = self.guard.folder(path)
            stamp = (found.st_ino, found.st_ctime_ns)
            if known is not None and known.settled and known.stamp == stamp:
                return known
            if not stat.S_ISDIR(found.st_mode):
                return None
            settled = 0 <= found.st_ctime_ns < time.time_ns() - _SETTLED
            with os.scandir(path) as entries:
                return _sorted(stamp, entries, inside, self.guard.is_hidden, settled=settled)
        except OSError:
            return None

    def _take_all(self, path: str) -> None:
        """Everything in a folder, or in what it is a link to."""
        for number, (folder, names, files) in enumerate(os.walk(path)):
            for name in files:
                self._take(f"{folder}/{name}")
            for name in names:
                if os.path.islink(f"{folder}/{name}"):
                    self._take(f"{folder}/{name}")
            if number > 2_000:
                names.clear()

    # --- files -------------------------------------------------------------------------------------------------------

    def _take(self, path: str, *, hook: bool = False, settings: bool = False) -> Item | None:
        """Take a file in; what of it can run something depends on what it is."""
        try:
            found = os.lstat(path)
        except OSError:
            return None
        link = os.readlink(path) if stat.S_ISLNK(found.st_mode) else ""
        stamp = (found.st_ino, found.st_ctime_ns, found.st_size, hook, settings)
        known = self.guard.item(path)
        fresh = found.st_ctime_ns > time.time_ns() - _SETTLED
        if known is not None and known[0] == stamp and not link and not fresh:
            item = known[1]
        else:
            item = self._read(path, found, link, hook=hook, settings=settings)
        self.items[path] = (stamp, item)
        self.found[path] = item
        return item

    def _read(self, path: str, found: os.stat_result, link: str, *, hook: bool, settings: bool) -> Item:
        mode = stat.S_IMODE(found.st_mode)
        try:
            content = confine.read(self.guard.roots, self.guard.roots.place(path), runs_later.MOST_BYTES)
        except (HelixError, OSError):
            return Item(f"{found.st_size} {found.st_mtime_ns} {found.st_ino}", None, link, mode)
        if settings:
            meaning = "\n".join(git_settings.running(content.decode("utf-8", "surrogateescape")))
        else:
            meaning = runs_later.meaning(os.path.basename(path), content)
        return Item(f"{meaning} {bool(mode & 0o111)}" if hook and meaning else meaning, content, link, mode)

    # --- git ---------------------------------------------------------------------------------------------------------

    def _dot_git(self, top: str, depth: int) -> list[tuple[str, bool, int]]:
        """`.git` as a folder, as a file that names one, or as a link."""
        path = f"{top}/.git"
        if os.path.islink(path):
            self.found[path] = Item("", None, os.readlink(path))
        if os.path.isdir(path):
            return self._git(path, top, depth)
        item = self._take(path)
        where = self._pointer(path, item, "gitdir:")
        return self._git(where, top, depth) if where else []

    def _pointer(self, path: str, item: Item | None, word: str) -> str:
        """The folder a file of git's names, where a command can write; then its own content is harmless."""
        if item is None or item.content is None:
            return ""
        text = item.content.decode("utf-8", "surrogateescape").strip().removeprefix(word).strip()
        where = os.path.realpath(os.path.join(os.path.dirname(path), text))
        if not self._inside(where):
            return ""
        self.found[path] = Item("", item.content, item.link, item.mode)
        return where

    def _inside(self, path: str) -> bool:
        return any(path == top or path.startswith(f"{top}/") for top in self.tops)

    def _git(self, path: str, top: str, depth: int) -> list[tuple[str, bool, int]]:
        """A folder of git's: its settings, hooks and what those name; and where there are more such folders."""
        if path in self.gits:
            return []
        self.gits.add(path)
        for name in _SETTINGS:
            self._settings(f"{path}/{name}", top)
        for name in _TODO:
            self._take(f"{path}/{name}")
        self._hooks(f"{path}/hooks")
        self._links(path)
        common = self._pointer(f"{path}/commondir", self._take(f"{path}/commondir"), "")
        more = self._git(common, top, depth) if common else []
        return [*more, *((f"{path}/{name}", True, depth + 1) for name in ("modules", "worktrees"))]

    def _links(self, git: str) -> None:
        """Links in a git directory that lead out of the roots: git would write through them."""
        todo = [git]
        while todo:
            path = todo.pop()
            folder = None if path in self.of_git else self._folder(path, "")
            if folder is None:
                continue
            self.of_git[path] = folder
            for name in folder.links:
                self._link_out(f"{path}/{name}")
            inside = path[len(git) + 1 :]
            wanted = _WRITTEN if not inside else _SHALLOW if inside == "objects" else folder.folders
            todo += [f"{path}/{name}" for name in folder.folders if name in wanted]

    def _link_out(self, path: str) -> None:
        if path not in self.found and not self._inside(os.path.realpath(path)):
            with suppress(OSError):
                self.found[path] = Item("", None, os.readlink(path))

    def _settings(self, path: str, top: str) -> None:
        if path in self.found:
            return
        item = self._take(path, settings=True)
        if item is None or item.content is None or not item.meaning:
            return
        pairs = list(git_settings.settings(item.content.decode("utf-8", "surrogateescape")))
        folder = os.path.dirname(path)
        counted = [
            f"{name} = {value}"
            for name, value in pairs
            if git_settings.runs(name, value) and not (name == "core.worktree" and self._is_worktree_of(folder, value))
        ]
        self.found[path] = replace(item, meaning="\n".join(counted))
        self._named_in(pairs, folder, top)

    def _is_worktree_of(self, git: str, value: str) -> bool:
        """Whether `core.worktree` is the folder around `.git`, or the folder of a submodule as git sets it up."""
        where = os.path.normpath(os.path.join(git, value))
        if not self._inside(where) or os.path.realpath(where) != where or ".git" in where.split("/"):
            return False
        if where == os.path.dirname(git) or not os.path.lexists(where):
            return True
        with suppress(OSError, ValueError):
            if not any(Path(where).iterdir()):
                return True
            text = Path(where, ".git").read_text(errors="surrogateescape").strip().removeprefix("gitdir:").strip()
            return os.path.realpath(os.path.join(where, text)) == os.path.realpath(git)
        return False

    def _named_in(self, pairs: list[tuple[str, str]], folder: str, top: str) -> None:
        """Files inside the roots that settings have git run or read."""
        for name, value in pairs:
            paths = name.startswith("include") or name == "core.hookspath"
            base = folder if name.startswith("include") else top
            words = (
                [value] if paths else [word for word in _words(value) if "/" in word]
            )  # others are looked up in PATH
            where = [os.path.normpath(os.path.join(base, os.path.expanduser(word))) for word in words]
            for path in filter(self._inside, where):
                if name == "core.hookspath":
                    self._hooks(path)
                elif name.startswith("include"):
                    self._settings(path, top)
                elif os.path.isfile(path) and path not in self.found:
                    self._take(path, hook=True)

    def _hooks(self, path: str) -> None:
        if os.path.islink(path):
            self.found[path] = Item("", None, os.readlink(path))
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if not entry.name.endswith(".sample"):
                    if entry.is_dir():
                        self._take_all(entry.path)
                    else:
                        self._take(entry.path, hook=True)


def _sorted(
    stamp: tuple[int, int],
    entries: Iterator[os.DirEntry[str]],
    inside: str,
    hides: Callable[[str], bool],
    *,
    settled: bool,
) -> _Folder:
    """What matters of a folder's entries. Of one in `.git` that is git's own, only the folders of further repositories."""
    folders, whole, notable, links, names, hidden = [], [], [], [], set(), []
    for entry in entries:
        name = entry.name
        names.add(name)
        path = f"{inside}/{name}" if inside else name
        if entry.is_symlink():
            links.append(name)
        if hides(path) and entry.is_file():
            hidden.append(name)
        if confine.spelling(name) == ".git":
            notable.append(name)
        elif entry.is_dir(follow_symlinks=False):
            folders.append(name)
            if runs_later.counts(name, path, folder=True):
                whole.append(name)
        elif runs_later.counts(name, path, folder=False):
            notable.append(name)
        elif entry.is_symlink() and runs_later.counts(name, path, folder=True):
            notable.append(name)
            whole.append(name)
    git = "HEAD" in names and ({"objects", "refs"} <= names or "commondir" in names)
    # A folder elsewhere only looks like one of git's: what lies below it is looked at as anywhere.
    below = [name for name in folders if not git or ".git" not in inside.split("/") or name in ("modules", "worktrees")]
    return _Folder(stamp, settled, tuple(below), tuple(whole), tuple(notable), git, tuple(links), tuple(hidden))


def _settings_of_the_user() -> list[tuple[str, str]]:
    """The user's own settings, which may name hooks or programs by a path that is looked up in each folder."""
    found: list[tuple[str, str]] = []
    for path in (Path.home() / ".gitconfig", Path.home() / ".config/git/config", Path("/etc/gitconfig")):
        with suppress(OSError):
            found += git_settings.settings(path.read_text(errors="surrogateescape"))
    return [(name, value) for name, value in found if git_settings.runs(name, value) and not value.startswith("/")]


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value.removeprefix("!"))
    except ValueError:
        return value.split()
