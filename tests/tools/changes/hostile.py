"""What commands of an agent do to a folder: everything that is hard to take back."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path


def fill(folder: Path, chance: random.Random, files: int) -> None:
    """A tree of sources, with some names of any bytes, links and an executable here and there."""
    for number in range(files):
        above = folder.joinpath(*(f"d{chance.randrange(9)}" for _ in range(chance.randrange(1, 4))))
        above.mkdir(parents=True, exist_ok=True)
        name = os.fsdecode(b"n\xff%d" % number) if number % 97 == 0 else f"f{number}.py"
        body = f"def f{number}():\n" + "".join(
            f"    x = {chance.random()}\n" for _ in range(chance.randrange(1, 40))
        )
        (above / name).write_text(body)
        if number % 50 == 3:
            (above / name).chmod(0o755)
        if number % 60 == 7:
            (above / f"l{number}").symlink_to(name)
        if number % 80 == 9:
            (above / f"h{number}").hardlink_to(above / name)


def turn(folder: Path, chance: random.Random) -> None:
    """One to four hostile things, one after the other."""
    for _ in range(chance.randrange(1, 5)):
        chance.choice(ACTS)(folder, chance)


def git_state(folder: Path) -> str:
    """All bytes below .git as one hash."""
    found = hashlib.sha256()
    for path in sorted((folder / ".git").rglob("*")):
        if path.is_file():
            found.update(os.fsencode(path) + path.read_bytes())
    return found.hexdigest()


def _files(folder: Path) -> list[Path]:
    found = [
        Path(at, name) for at, _, names in os.walk(folder) for name in names if ".git" not in at
    ]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def _folders(folder: Path) -> list[Path]:
    """No links: what is done to one would be done to the folder it leads to, and that
    may be the machine's own.
    """
    found = (
        Path(at, name)
        for at, names, _ in os.walk(folder)
        for name in names
        if ".git" not in f"{at}/{name}"
    )
    return sorted(path for path in found if not path.is_symlink())


def _pick(
    folder: Path, chance: random.Random, some: Callable[[Path], list[Path]] = _files
) -> Path | None:
    found = some(folder)
    return chance.choice(found) if found else None


def _run(folder: Path, *line: str) -> None:
    subprocess.run(line, cwd=folder, check=False, capture_output=True)


def _remove(folder: Path, chance: random.Random) -> None:
    if path := _pick(folder, chance, _folders):
        _run(folder, "rm", "-rf", str(path))


def _git(folder: Path, chance: random.Random) -> None:
    lines = (
        ["clean", "-fdx"],
        ["reset", "-q", "--hard"],
        ["checkout", "-q", "--", "."],
        ["stash", "-u"],
    )
    _run(folder, "git", "-c", "user.name=a", "-c", "user.email=a@b", *chance.choice(lines))


def _edit(folder: Path, chance: random.Random) -> None:
    some = chance.sample(found, min(5, len(found))) if (found := _files(folder)) else []
    if some:
        _run(folder, "sed", "-i", "s/x/yy/", *map(str, some))


def _same_size(folder: Path, chance: random.Random) -> None:
    if (path := _pick(folder, chance)) and path.stat().st_size:
        st = path.stat()
        content = bytearray(path.read_bytes())
        content[chance.randrange(len(content))] ^= 1
        with path.open("r+b") as file:
            file.write(content)
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


def _move(folder: Path, chance: random.Random) -> None:
    one = _pick(folder, chance)
    other = _pick(folder, chance)
    if one and other:
        _run(folder, "mv", "-f", str(one), str(other))


def _move_folder(folder: Path, chance: random.Random) -> None:
    if path := _pick(folder, chance, _folders):
        path.rename(folder / f"moved{chance.random()}")


def _mode(folder: Path, chance: random.Random) -> None:
    if path := _pick(folder, chance, chance.choice([_files, _folders])):
        path.chmod(chance.choice([0o600, 0o755, 0o444, 0o700]))


def _link(folder: Path, chance: random.Random) -> None:
    if path := _pick(folder, chance):
        path.unlink()
        path.symlink_to(chance.choice(["/etc/passwd", "..", "../../x", "/", "."]))


def _link_folder(folder: Path, chance: random.Random) -> None:
    if path := _pick(folder, chance, _folders):
        _run(folder, "rm", "-rf", str(path))
        path.symlink_to(chance.choice(["/etc", "..", "/tmp"]))


def _twin(folder: Path, chance: random.Random) -> None:
    if path := _pick(folder, chance):
        path.with_name(f"twin{chance.random()}").hardlink_to(path)


def _write_twin(folder: Path, chance: random.Random) -> None:
    twins = [path for path in _files(folder) if path.stat().st_nlink > 1]
    if twins:
        with chance.choice(twins).open("ab") as file:
            file.write(b"more\n")


def _case(folder: Path, chance: random.Random) -> None:
    if path := _pick(folder, chance):
        path.rename(path.with_name(path.name.swapcase()))


def _name(folder: Path, chance: random.Random) -> None:
    if path := _pick(folder, chance):
        path.rename(
            path.with_name(
                os.fsdecode(bytes(chance.choice(b"\xff\xfe\n\t\"'\\ \x01a") for _ in range(9)))
            )
        )


def _kind(folder: Path, chance: random.Random) -> None:
    if path := _pick(folder, chance):
        path.unlink()
        path.mkdir()
        (path / "in").write_text("x")


def _other_kind(folder: Path, chance: random.Random) -> None:
    if path := _pick(folder, chance, _folders):
        _run(folder, "rm", "-rf", str(path))
        path.write_text("was a folder")


def _pipe(folder: Path, chance: random.Random) -> None:
    os.mkfifo(folder / f"pipe{chance.random()}")


def _socket(folder: Path, chance: random.Random) -> None:
    here = os.open(folder, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"/proc/self/fd/{here}/s{chance.random()}")
    os.close(here)


def _new(folder: Path, chance: random.Random) -> None:
    above = folder / "new" / f"n{chance.randrange(5)}"
    if not (folder / "new").is_file() and not any(
        each.is_symlink() for each in (above, above.parent)
    ):
        above.mkdir(parents=True, exist_ok=True)
        (above / f"{chance.random()}.bin").write_bytes(chance.randbytes(5_000))


ACTS = (
    _remove,
    _git,
    _edit,
    _same_size,
    _move,
    _move_folder,
    _mode,
    _link,
    _link_folder,
    _twin,
    _write_twin,
    _case,
    _name,
    _kind,
    _other_kind,
    _pipe,
    _socket,
    _new,
)
