"""Somebody swaps folders and files for links all the time while tools read, write and
edit: nothing may escape.

    python -m tests.faults.confinement [--races 20000] [--seed 1]

Two swappers run in processes of their own: one swaps a folder for a link to a folder
outside, one a file for a link to a file outside. An escape is a byte of the outside
that was read, or a byte of ours that arrived there.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.tools import safe_path_opening, workspace_roots
from helix_desktop.tools.file_text import replace_text_in_file
from helix_desktop.tools.workspace_roots import WorkspaceRoots

# The two change places in one step (renameat2 with RENAME_EXCHANGE); a link that was
# written over is made again.
SWAP = """
import ctypes, os, sys
path, outside = sys.argv[1:]
other = path + ".other"
exchange = ctypes.CDLL(None).renameat2
one, two = os.fsencode(path), os.fsencode(other)
swaps = 0
while True:
    exchange(-100, one, -100, two, 2)
    swaps += 1
    if not swaps % 16 and not os.path.islink(path) and not os.path.islink(other):
        os.symlink(outside, other + ".new")
        os.rename(other + ".new", other)
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--races", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    escaped = 0
    for way in (check_then_open, safe_path_opening.open_by_kernel, safe_path_opening.open_by_steps):
        with tempfile.TemporaryDirectory() as folder:
            found, seconds = trial(
                Path(folder), way, arguments.races, random.Random(arguments.seed)
            )
        ours = way is not check_then_open
        escaped += found["ESCAPED"] * ours
        told = "" if ours else " (not ours: how it is usually done, to see that the races are real)"
        print(
            f"{way.__name__}: {arguments.races:,} races in {seconds:.0f} s: {dict(sorted(found.items()))}{told}"
        )
    print(f"confinement: {escaped} escapes from ours; seed {arguments.seed}")
    return 1 if escaped else 0


def trial(
    folder: Path, way: safe_path_opening.OpenWithinFolder, races: int, chance: random.Random
) -> tuple[Counter[str], float]:
    """Race, and count what came of it."""
    outside = folder / "outside"
    root = folder / "root"
    outside.mkdir()
    root.mkdir()
    (outside / "file").write_text("OUTSIDE")
    roots = WorkspaceRoots.from_folders([root])
    (root / "folder").mkdir()
    (root / "folder" / "file").write_text("inside")
    (root / "plain").write_text("inside")
    swappers = [swapper(root / "folder", outside), swapper(root / "plain", outside / "file")]
    original, safe_path_opening.choose_opener = safe_path_opening.choose_opener, lambda: way  # type: ignore[assignment]
    found: Counter[str] = Counter()
    started = time.monotonic()
    try:
        for _ in range(races):
            found[race(roots, chance)] += 1
            time.sleep(chance.random() * 1e-4)  # or the swappers would hardly get to run
    finally:
        safe_path_opening.choose_opener = original
        for process in swappers:
            process.kill()
            process.wait()
    if {path.name: path.read_text() for path in outside.iterdir()} != {"file": "OUTSIDE"}:
        found["ESCAPED"] += 1
    return found, time.monotonic() - started


def swapper(path: Path, outside: Path) -> subprocess.Popen[bytes]:
    path.with_name(f"{path.name}.other").symlink_to(outside)
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", SWAP, str(path), str(outside)])


def check_then_open(folder: int, path: str, flags: int) -> int:
    """The control: what this trial must be able to catch."""
    base = str(Path(f"/proc/self/fd/{folder}").readlink())
    if not os.path.realpath(os.path.join(base, path)).startswith(base):  # noqa: PTH118 -- as it is often done
        raise OSError(errno.EXDEV, "leads out")
    return os.open(os.path.join(base, path), flags | os.O_CLOEXEC)  # noqa: PTH118


def race(roots: WorkspaceRoots, chance: random.Random) -> str:
    """One read, write or edit of what is being swapped."""
    place = roots.resolve_path(chance.choice(("folder/file", "plain", "folder/new")))
    act: Callable[[], bytes] = chance.choice(
        (lambda: read(roots, place), lambda: write(roots, place), lambda: edit(roots, place))
    )
    try:
        return "ESCAPED" if b"OUTSIDE" in act() else "done"
    except HelixError as error:
        return f"refused ({type(error).__name__})"


def read(roots: WorkspaceRoots, place: workspace_roots.RootPath) -> bytes:
    return workspace_roots.read_whole_file(roots, place)


def write(roots: WorkspaceRoots, place: workspace_roots.RootPath) -> bytes:
    before = workspace_roots.read_file_or_none(roots, place)
    workspace_roots.replace_file(
        roots, place, b"inside too", expected=None if before is None else Digest.of_content(before)
    )
    return before or b""


def edit(roots: WorkspaceRoots, place: workspace_roots.RootPath) -> bytes:
    before = workspace_roots.read_whole_file(roots, place)
    after = replace_text_in_file(before, "inside", "inside and in", "file", every=True)
    workspace_roots.replace_file(roots, place, after, expected=Digest.of_content(before))
    return after


if __name__ == "__main__":
    sys.exit(main())
