"""Decides what a sandboxed command sees of the user's home: toolchains, caches, and
what the user opened.

Everything else is absent, so nobody has to know where the next program keeps
its keys. If the home itself is a folder of the workspace, its entries that
begin with a dot are absent instead. A link is closed where it leads to.
"""

# ruff: noqa: PTH110, PTH112, PTH116, PTH119 -- for each command: paths as texts are faster

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from helix_desktop import resources
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.home_access import CommandOpenings, opened_paths

# These lists are explained in `resources/tables/home.toml`.
_WORDS = resources.read_word_lists("home")
CACHES = tuple(resources.read_table("home")["caches"].items())
TOOLCHAINS = _WORDS["toolchains"]
VARIABLES = _WORDS["variables"]
CERTIFICATES = _WORDS["certificates"]
_BESIDE = ("lib", "lib64", "libexec", "include")  # Folders beside `bin` that its programs need.
_FOLDERS_OF_PROGRAMS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix", "/gnu", "/snap", "/proc", "/sys", "/dev", "/run",
    "/tmp",  # noqa: S108 - nothing is written there
)  # fmt: skip
# A link in a home to one of these, or to a folder above it, hides nothing: programs need them.
_NEEDED_BY_PROGRAMS = ("/usr", "/etc", "/opt", "/var/lib", "/var/cache")
_OF_A_REPOSITORY = (
    ".git",
    ".gitignore",
    ".gitattributes",
    ".gitmodules",
    ".github",
    ".gitlab",
    ".gitlab-ci.yml",
)
# Folders of these names contain a folder for each program.
_NAMES_OF_SHARED_FOLDERS = frozenset({".config", ".local", "share", "state", ".var", "app"})
_MOST_FOLDERS = 2_000
_SETTLED_NS = 2_000_000_000  # Changes closer together than this may leave a folder's time the same.


@dataclass(frozen=True, slots=True)
class ClosedHome:
    """`emptied_homes`: homes hidden except for what follows. `masked_paths`: real paths
    to hide elsewhere. `readable_paths` and `cache_paths`: what is visible, as pairs of
    paths outside and inside.
    """

    emptied_homes: tuple[str, ...]
    masked_paths: tuple[str, ...]
    readable_paths: tuple[tuple[str, str], ...]
    cache_paths: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class HeldPaths:
    """Paths inside the workspace's folders that a command cannot change. `folders` stay in
    their place, although files in them may change; `files` stay as they are.
    """

    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def home_folders(environ: Mapping[str, str]) -> list[str]:
    """Return the real paths of the user's home, as named by the environment and by the system."""
    named_homes = [environ.get("HOME", "")]
    with suppress(ImportError, KeyError):
        import pwd

        account = pwd.getpwuid(os.getuid())
        named_homes.append(account.pw_dir)
    homes: list[str] = []
    for name in named_homes:
        if name.startswith("/") and os.path.isdir(name):
            homes.append(os.path.realpath(name))
    return list(dict.fromkeys(homes))


def build_closed_home(
    folders: Sequence[str],
    environ: Mapping[str, str],
    caches: str,
    opened: CommandOpenings,
    *,
    network: bool,
) -> ClosedHome:
    """Return what is closed and what is visible. `folders` are real paths; `caches` is
    the workspace's own folder.
    """
    homes = home_folders(environ)
    emptied = [home for home in homes if _is_emptied(home, folders)]
    readable = _list_readable_paths(homes, emptied, folders, environ, opened, network=network)
    masked = _list_masked_paths(homes, emptied, folders, readable)
    readable += _list_real_places(readable, masked, environ)
    own_caches = _list_own_caches(homes, emptied, caches, readable, masked)
    return ClosedHome(tuple(emptied), tuple(masked), tuple(readable), tuple(own_caches))


# --- The rules, each with what would happen without it


def _is_emptied(home: str, folders: Sequence[str]) -> bool:
    """Whether nothing of a home is shown but what the other rules show.

    A home that is itself a folder of the workspace stays: the agent works in it, and only its
    dotted entries are masked. A home that contains /usr (it may be /) cannot be hidden either.
    """
    return not _contains_any_path(home, ("/usr",)) and not is_within_any_folder(home, folders)


def _list_readable_paths(
    homes: Sequence[str],
    emptied: Sequence[str],
    folders: Sequence[str],
    environ: Mapping[str, str],
    opened: CommandOpenings,
    *,
    network: bool,
) -> list[tuple[str, str]]:
    """Return toolchains, and what the user opened, as pairs of paths outside and inside."""
    readable: dict[tuple[str, str], None] = {}
    for home in homes:
        for path in _readable_home_paths(home, environ, opened, network=network):
            # What a folder of the workspace contains is there anyway, except dotted entries, which
            # are masked if the home is that folder.
            if is_within_any_folder(path, folders) and not _is_dotted(path, home):
                continue
            place = path
            if home not in emptied:
                # The home's links are there, and a mount over one would be made where it leads to.
                place = os.path.realpath(path)
            readable[place, place] = None
    for path in opened.folders:
        if _may_be_shown_outside_homes(path, homes):
            readable[path, path] = None
    return list(readable)


def _may_be_shown_outside_homes(path: str, homes: Sequence[str]) -> bool:
    # Folders in a home have rules of their own.
    if not path.startswith("/") or is_within_any_folder(path, homes):
        return False
    # A folder above a home would show all of that home.
    return os.path.exists(path) and not _contains_any_path(path, homes)


def _list_masked_paths(
    homes: Sequence[str],
    emptied: Sequence[str],
    folders: Sequence[str],
    readable: Sequence[tuple[str, str]],
) -> list[str]:
    """Return what is hidden although its place is shown: secrets that a link keeps elsewhere,
    and the dotted entries of a home that is a folder of the workspace.

    What only contains something shown is hidden, too, such as `.cargo` for `.cargo/bin`, or the
    folder around a workspace: the shown part is mounted above the mask, without the keys beside it.
    """
    masked: dict[str, None] = {}
    shown_places = [os.path.realpath(path) for path, _ in readable]
    for home in homes:
        is_home_shown = home not in emptied
        for target in _targets_of_links(home, is_home_shown=is_home_shown):
            # What lies in an emptied home is hidden with it, unless a folder of the workspace shows it.
            is_in_emptied_home = is_within_any_folder(target, emptied)
            if is_in_emptied_home and not is_within_any_folder(target, folders):
                continue
            is_shown_itself = target in folders or is_within_any_folder(target, shown_places)
            if not is_shown_itself and not _must_stay_open(target, homes):
                masked[target] = None
        if is_home_shown:
            # Opened paths are mounted above the mask, so they need no exception here.
            closed_entries = _closed_entries_of_shown_home(home, folders, homes)
            masked.update(dict.fromkeys(closed_entries))
    return list(masked)


def _closed_entries_of_shown_home(
    home: str, folders: Sequence[str], homes: Sequence[str]
) -> list[str]:
    closed_entries = []
    for entry in _dotted_entries(home):
        if entry not in folders and not _must_stay_open(entry, homes):
            closed_entries.append(entry)
    return closed_entries


def _list_real_places(
    readable: Sequence[tuple[str, str]], masked: Sequence[str], environ: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return what must be shown of the places that are hidden because a link leads to them:
    toolchains by their real names, as their programs often name each other by these, and the
    folders of programs that PATH and other variables name there.
    """
    paths = [path for path, _ in readable]
    for name in VARIABLES + CERTIFICATES:
        paths.append(environ.get(name, ""))
    for entry in environ.get("PATH", "").split(os.pathsep):
        if entry.startswith("/"):
            paths += _programs_with_libraries(os.path.realpath(entry), "")
    real_places: dict[tuple[str, str], None] = {}
    for path in paths:
        real_path = os.path.realpath(path)
        if path.startswith("/") and is_within_any_folder(real_path, masked):
            real_places[real_path, real_path] = None
    return list(real_places)


def _list_own_caches(
    homes: Sequence[str],
    emptied: Sequence[str],
    caches: str,
    readable: Sequence[tuple[str, str]],
    masked: Sequence[str],
) -> list[tuple[str, str]]:
    """Return the workspace's own build caches, and where programs look for them.

    The user's are not shown: one project could poison the next one's builds.
    """
    if not homes or not caches:
        return []
    home = homes[0]
    own_caches = []
    for name, _ in CACHES:
        if home in emptied:
            place = _place_of_cache_in_emptied_home(f"{home}/{name}", readable)
        else:
            place = _place_of_cache_in_shown_home(f"{home}/{name}", home, masked)
        if place:
            own_caches.append((f"{caches}/{name}", place))
    return own_caches


def _place_of_cache_in_emptied_home(path: str, readable: Sequence[tuple[str, str]]) -> str:
    """Return where a command sees the workspace's own cache, or an empty text if nowhere."""
    read_only_places = [place for _, place in readable]
    # Within a toolchain that is shown read-only, no folder can be made for the mount.
    if not os.path.isdir(path) and is_within_any_folder(path, read_only_places):
        return ""
    return path


def _place_of_cache_in_shown_home(path: str, home: str, masked: Sequence[str]) -> str:
    """As above, for a home that is a folder of the workspace. It keeps what is not hidden in it,
    and nothing new may appear in it.
    """
    if not os.path.isdir(path) or not _is_dotted(path, home):
        return ""
    real_path = os.path.realpath(path)
    # A mount over a link would be made where the link leads to, so that must be hidden, too.
    if real_path != path and not is_within_any_folder(real_path, masked):
        return ""
    return real_path


# --- Paths within others


def is_within_folder(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _contains_any_path(folder: str, paths: Sequence[str]) -> bool:
    return any(is_within_folder(path, folder) for path in paths)


def is_within_any_folder(path: str, folders: Sequence[str]) -> bool:
    return any(is_within_folder(path, folder) for folder in folders)


def touches_any_folder(path: str, folders: Sequence[str]) -> bool:
    """Whether a path is within one of these folders, or contains one."""
    return is_within_any_folder(path, folders) or _contains_any_path(path, folders)


def _must_stay_open(path: str, homes: Sequence[str]) -> bool:
    """Whether a path must stay open, because programs are in it or it contains a home."""
    if is_within_any_folder(path, _FOLDERS_OF_PROGRAMS):
        return True
    return _contains_any_path(path, homes) or _contains_any_path(path, _NEEDED_BY_PROGRAMS)


def _is_dotted(path: str, home: str) -> bool:
    return path.startswith(f"{home}/.")


def _readable_home_paths(
    home: str, environ: Mapping[str, str], opened: CommandOpenings, *, network: bool
) -> Iterator[str]:
    """Yield readable paths of a home: none inside another, never the whole home."""
    wanted = set(_toolchain_paths(home, environ))
    wanted.update(opened_paths(opened, home, network=network))
    for path in _outermost_existing_paths(wanted):
        # A link to the home, or to a folder above it, would show all of it.
        if not is_within_folder(home, os.path.realpath(path)):
            yield path


def _outermost_existing_paths(paths: Iterable[str]) -> list[str]:
    outermost: list[str] = []
    # In this order, a folder stands before what is in it.
    for path in sorted(filter(os.path.exists, paths)):
        is_inside_last = bool(outermost) and is_within_folder(path, outermost[-1])
        if not is_inside_last:
            outermost.append(path)
    return outermost


def _toolchain_paths(home: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield where a home has toolchains: in the usual places, and where variables say."""
    home_of_user = environ.get("HOME", "") or home
    named = os.path.normpath(home_of_user)
    if os.path.realpath(named) != home:  # This is the home that only the system names.
        named = home
    for name in TOOLCHAINS:
        yield f"{home}/{name}"
    for name in VARIABLES + CERTIFICATES:
        yield from _path_in_home(environ.get(name, ""), home, named)
    for name in ("CARGO_HOME", "GOPATH"):
        for path in _path_in_home(environ.get(name, ""), home, named):
            yield f"{path}/bin"
    for entry in environ.get("PATH", "").split(os.pathsep):
        for path in _path_in_home(entry, home, named):
            yield from _programs_with_libraries(path, home)


def _path_in_home(path: str, home: str, named: str) -> Iterator[str]:
    """Yield the path, by the home's real name, if it is below this home. `named`: how
    the user spells the home.
    """
    path = os.path.normpath(path)
    if is_within_folder(path, named):
        path = home + path[len(named) :]
    if path != home and is_within_folder(path, home):
        yield path


def _programs_with_libraries(programs: str, home: str) -> Iterator[str]:
    """Yield a folder on PATH, and the folders beside it that its programs need."""
    yield programs
    above, _, name = programs.rpartition("/")
    if above == home or name not in ("bin", "shims", "condabin"):
        return
    if os.path.exists(f"{above}/pyvenv.cfg") or os.path.isdir(f"{above}/conda-meta"):
        yield above
    for beside in _BESIDE:
        yield f"{above}/{beside}"


def _dotted_entries(home: str) -> Iterator[str]:
    """Yield the real paths of a home's entries with a dot, except those of a repository
    in the home.
    """
    with suppress(OSError), os.scandir(home) as entries:
        for entry in entries:
            is_dotted = entry.name.startswith(".") and entry.name not in _OF_A_REPOSITORY
            if is_dotted and os.path.exists(entry.path):
                yield os.path.realpath(entry.path)


def _targets_of_links(home: str, *, is_home_shown: bool) -> Iterator[str]:
    """Yield where links in a home lead; in one that is shown, only those among its dotted entries.
    Folders that these entries lead to are searched, too.
    """
    if not is_home_shown:
        # For example `Documents`, on another disk.
        links_in_home, _ = _links_and_folders(home)
        yield from _existing_targets(links_in_home)

    searched = {home}
    waiting = [_FolderToSearch(home, is_shared=True)]
    while waiting and len(searched) < _MOST_FOLDERS:
        folder = waiting.pop()
        links, subfolders = _links_and_folders(folder.path)
        if folder.path == home:
            links = _dotted_paths(links, home)
            subfolders = _dotted_paths(subfolders, home)
        yield from _existing_targets(links)
        # Deeper than the folders of single programs, only links are followed.
        if not folder.is_shared:
            continue
        for next_folder in _folders_to_search_next(home, links, subfolders):
            if next_folder.path not in searched:
                searched.add(next_folder.path)
                waiting.append(next_folder)


def _existing_targets(links: Sequence[str]) -> Iterator[str]:
    for link in links:
        target = os.path.realpath(link)
        if os.path.exists(target):
            yield target


def _dotted_paths(paths: Sequence[str], home: str) -> list[str]:
    return [path for path in paths if _is_dotted(path, home)]


def _folders_to_search_next(
    home: str, links: Sequence[str], subfolders: Sequence[str]
) -> "Iterator[_FolderToSearch]":
    for link in links:
        target = os.path.realpath(link)
        if os.path.isdir(target) and not _contains_any_path(target, [home]):
            is_shared = os.path.basename(link) in _NAMES_OF_SHARED_FOLDERS
            yield _FolderToSearch(target, is_shared)
    for subfolder in subfolders:
        is_shared = os.path.basename(subfolder) in _NAMES_OF_SHARED_FOLDERS
        yield _FolderToSearch(subfolder, is_shared)


@dataclass(frozen=True, slots=True)
class _FolderToSearch:
    """`is_shared`: whether programs keep folders of their own in it."""

    path: str
    is_shared: bool


def _links_and_folders(folder: str) -> tuple[list[str], list[str]]:
    """Return a folder's links and folders. They are listed again if it changed, or so
    recently that times prove nothing.
    """
    try:
        about = os.stat(folder)
    except OSError:
        return [], []
    version = (about.st_dev, about.st_ino, about.st_mtime_ns, about.st_ctime_ns)
    changed_ns = max(about.st_mtime_ns, about.st_ctime_ns)
    if time.time_ns() - changed_ns > _SETTLED_NS:
        return _list_links_and_folders(folder, version)
    return _list_links_and_folders.__wrapped__(folder, version)


@lru_cache(maxsize=2 * _MOST_FOLDERS)
def _list_links_and_folders(folder: str, _version: tuple[int, ...]) -> tuple[list[str], list[str]]:
    links: list[str] = []
    subfolders: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                links.append(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                subfolders.append(entry.path)
    return links, subfolders
