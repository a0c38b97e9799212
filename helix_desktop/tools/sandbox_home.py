"""Decides what a sandboxed command sees of the user's home: toolchains, caches, and
what the user opened.

Everything else is absent, so nobody has to know where the next program keeps
its keys. If the home itself is a folder of the workspace, its entries that
begin with a dot are absent instead. A link is closed where it leads to.
"""

# ruff: noqa: PTH110, PTH112, PTH116, PTH119 -- for each command: paths as texts are faster

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from helix_desktop import resources
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.home_access import CommandOpenings, opened_paths

# These lists are explained in `resources/tables/home.toml`.
_WORDS, CACHES = (
    resources.read_word_lists("home"),
    tuple(resources.read_table("home")["caches"].items()),
)
TOOLCHAINS, VARIABLES, CERTIFICATES = (
    _WORDS["toolchains"],
    _WORDS["variables"],
    _WORDS["certificates"],
)
_BESIDE = ("lib", "lib64", "libexec", "include")  # Folders beside `bin` that its programs need.
_PROGRAMS = tuple(
    "/usr /bin /sbin /lib /lib32 /lib64 /nix /gnu /snap /proc /sys /dev /run /tmp".strip().split()
)
_OF_A_REPOSITORY = (
    ".git",
    ".gitignore",
    ".gitattributes",
    ".gitmodules",
    ".github",
    ".gitlab",
    ".gitlab-ci.yml",
)
_SPREAD = frozenset(
    {".config", ".local", "share", "state", ".var", "app"}
)  # These contain a folder for each program.
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


def home_folders(environ: Mapping[str, str]) -> list[str]:
    """Return the real paths of the user's home, as named by the environment and by the system."""
    named = [environ.get("HOME", "")]
    with suppress(ImportError, KeyError):
        import pwd

        named.append(pwd.getpwuid(os.getuid()).pw_dir)
    real = (
        os.path.realpath(name) for name in named if name.startswith("/") and os.path.isdir(name)
    )
    return list(dict.fromkeys(real))


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
    emptied = [
        home
        for home in homes
        if not _contains_any_path(home, ("/usr",)) and not _is_within_any_folder(home, folders)
    ]
    read = dict.fromkeys(
        (path, place)
        for home in homes
        for path, place in _readable_home_paths(home, environ, opened, network=network)
        if not _is_within_any_folder(place, folders) or _is_dotted(place, home)
    )
    outside = [
        path
        for path in opened.folders
        if path.startswith("/") and not _is_within_any_folder(path, homes)
    ]
    read |= dict.fromkeys(
        (path, path)
        for path in outside
        if os.path.exists(path) and not _contains_any_path(path, homes)
    )
    needed = [*folders, *homes, *(os.path.realpath(path) for path, _ in read)]
    masked = [
        path
        for home in homes
        for path in _targets_of_dotted_links(home)
        if not _must_stay_open(path, needed)
    ]
    masked = [
        path
        for path in masked
        if _is_within_any_folder(path, folders) or not _is_within_any_folder(path, emptied)
    ]
    for home in homes:
        if home not in emptied:
            masked += [
                path
                for path in _dotted_entries(home)
                if not _must_stay_open(path, [*folders, *homes])
            ]
    kept = (
        [(f"{caches}/{name}", f"{homes[0]}/{name}") for name, _ in CACHES]
        if homes and caches
        else []
    )
    if homes and homes[0] not in emptied:
        kept = [
            (path, place)
            for path, place in kept
            if os.path.isdir(place) and _is_dotted(place, homes[0])
        ]
    kept = [
        (path, place)
        for path, place in kept
        if os.path.isdir(place) or not _is_within_any_folder(place, [at for _, at in read])
    ]
    return ClosedHome(tuple(emptied), tuple(dict.fromkeys(masked)), tuple(read), tuple(kept))


def is_within_folder(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _contains_any_path(folder: str, paths: Sequence[str]) -> bool:
    return any(is_within_folder(path, folder) for path in paths)


def _is_within_any_folder(path: str, folders: Sequence[str]) -> bool:
    return any(is_within_folder(path, folder) for folder in folders)


def _must_stay_open(path: str, needed: Sequence[str]) -> bool:
    """Whether a path must stay open, because programs are in it or it contains an open one."""
    return _is_within_any_folder(path, _PROGRAMS) or _contains_any_path(path, needed)


def _is_dotted(path: str, home: str) -> bool:
    return path.startswith(f"{home}/.")


def _readable_home_paths(
    home: str, environ: Mapping[str, str], opened: CommandOpenings, *, network: bool
) -> Iterator[tuple[str, str]]:
    """Yield readable paths of a home, and where they appear: none inside another, never
    the whole home.
    """
    found: list[str] = []
    wanted = [*_toolchain_paths(home, environ), *opened_paths(opened, home, network=network)]
    for path in sorted({path for path in wanted if os.path.exists(path)}):
        if not found or not is_within_folder(path, found[-1]):
            found.append(path)
    yield from (
        (path, path) for path in found if not is_within_folder(home, os.path.realpath(path))
    )


def _toolchain_paths(home: str, environ: Mapping[str, str]) -> Iterator[str]:
    named = os.path.normpath(environ.get("HOME", "") or home)
    if os.path.realpath(named) != home:
        named = home
    yield from (f"{home}/{name}" for name in TOOLCHAINS)
    for name in (*VARIABLES, *CERTIFICATES):
        yield from _path_in_home(environ.get(name, ""), home, named)
    yield from (
        f"{path}/bin"
        for name in ("CARGO_HOME", "GOPATH")
        for path in _path_in_home(environ.get(name, ""), home, named)
    )
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
    yield from (f"{above}/{each}" for each in _BESIDE)


def _dotted_entries(home: str) -> Iterator[str]:
    """Yield the real paths of a home's entries with a dot, except those of a repository
    in the home.
    """
    with suppress(OSError), os.scandir(home) as entries:
        for entry in entries:
            if (
                entry.name.startswith(".")
                and entry.name not in _OF_A_REPOSITORY
                and os.path.exists(entry.path)
            ):
                yield os.path.realpath(entry.path)


def _targets_of_dotted_links(home: str) -> Iterator[str]:
    """Yield where links among a home's dotted entries lead. Folders that they lead to
    are searched, too.
    """
    todo, seen = [(home, True)], {home}
    while todo and len(seen) < _MOST_FOLDERS:
        folder, is_spread = todo.pop()
        links, below = _links_and_folders(folder)
        for path in links:
            if folder == home and not _is_dotted(path, home):
                continue
            real = os.path.realpath(path)
            if os.path.exists(real):
                yield real
            if (
                is_spread
                and real not in seen
                and not _contains_any_path(real, [home])
                and os.path.isdir(real)
            ):
                seen.add(real)
                todo.append((real, os.path.basename(path) in _SPREAD))
        for path in below if is_spread else ():
            if path not in seen and (folder != home or _is_dotted(path, home)):
                seen.add(path)
                todo.append((path, os.path.basename(path) in _SPREAD))


def _links_and_folders(folder: str) -> tuple[list[str], list[str]]:
    """Return a folder's links and folders. They are listed again if it changed, or so
    recently that times prove nothing.
    """
    try:
        about = os.stat(folder)
    except OSError:
        return [], []
    changed_ns = max(about.st_mtime_ns, about.st_ctime_ns)
    read = (
        _list_links_and_folders
        if time.time_ns() - changed_ns > _SETTLED_NS
        else _list_links_and_folders.__wrapped__
    )
    return read(folder, (about.st_dev, about.st_ino, about.st_mtime_ns, about.st_ctime_ns))


@lru_cache(maxsize=2 * _MOST_FOLDERS)
def _list_links_and_folders(folder: str, _: tuple[int, ...]) -> tuple[list[str], list[str]]:
    links, below = [], []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                links.append(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
    return links, below
