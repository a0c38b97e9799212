"""Homes whose entries are links, made by a generator: to files and folders, outside and
in a root, dangling, in chains and loops.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from helix_desktop.tools.sandbox import SandboxKind, find_sandbox
from tests.tools.test_sandbox import ran

SECRET = "secret-of-the-user"
TOOL = "tool-of-the-user"
# Folders with programs that commands see, in folders with keys that they must not see.
_TOOLCHAINS = (
    ".cargo/bin",
    ".local/bin",
    ".config/yarn/global",
    ".conda/envs",
    ".gem/ruby",
    "go/bin",
    ".deno/bin",
)
_FOLDERS = (
    ".ssh",
    ".config",
    ".aws",
    ".config/gh",
    ".local/share/keyrings",
    ".gnupg",
    ".claude",
    ".next-agent",
)
_FILES = (
    ".netrc",
    ".git-credentials",
    ".claude.json",
    ".config/opencode/auth.json",
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".bash_history",
    ".next-agent/key",
)


@dataclass(frozen=True, slots=True)
class LinkedHome:
    """`secrets`: every path under which something is that no command may print; `root`:
    the workspace's folder. `tools`: programs that a command can read.
    """

    home: Path
    root: Path
    secrets: tuple[Path, ...]
    tools: tuple[Path, ...] = ()


def linked_homes(base: Path, count: int, seed: int = 33) -> Iterator[LinkedHome]:
    chance = random.Random(seed)
    for number in range(count):
        yield _made(base / f"layout{number}", chance)


async def what_got_through(layout: LinkedHome, scratch: Path) -> list[str]:
    """What a command prints of the user's secrets, in each kind of sandbox that says
    nothing; the home is HOME already.
    """
    found = await find_sandbox([layout.root], scratch)
    through = [] if found.kind is SandboxKind.BUBBLEWRAP else [f"fell back to {found.kind}"]
    for box in (found, replace(found, kind=SandboxKind.LANDLOCK)):
        if box.paths_left_visible():
            continue
        for network in (False, True):
            line = " ".join(
                f"cat '{path}' 2>/dev/null && echo ' in {path}';" for path in layout.secrets
            )
            said = await ran(box, f"{line} echo end", network=network)
            through += [f"{box.kind}: {row}" for row in said.splitlines() if SECRET in row]
            through += [] if said.endswith("end\n") else [f"{box.kind}: no end: {said[:200]}"]
            if box.kind is SandboxKind.BUBBLEWRAP:
                said = await ran(box, "".join(f"cat '{path}';" for path in layout.tools))
                if said != TOOL * len(layout.tools):
                    through.append(f"{box.kind}: tools are missing: {said[:300]}")
    return through


def _made(base: Path, chance: random.Random) -> LinkedHome:
    home = base / "users" / "me"
    root = (
        home
        if chance.random() < 0.1
        else chance.choice([base / "work", home / "work", home / "a" / "b"])
    )
    for folder in (home, root, base / "outside", base / "scratch"):
        folder.mkdir(parents=True, exist_ok=True)
    secrets: list[Path] = []
    for name in chance.sample(_FOLDERS, 4):
        _link(base, home, root, name, chance, secrets, is_folder=True)
    for name in chance.sample(_FILES, 5):
        _link(base, home, root, name, chance, secrets, is_folder=False)
    tools = _toolchains(base, home, root, chance, secrets)
    named = base / "linked"
    if chance.random() < 0.2:  # the home itself has another name
        named.symlink_to(home)
        return LinkedHome(
            named,
            root,
            (
                *secrets,
                *(named / path.relative_to(home) for path in secrets if path.is_relative_to(home)),
            ),
            tuple(tools),
        )
    return LinkedHome(home, root, tuple(secrets), tuple(tools))


def _toolchains(
    base: Path, home: Path, root: Path, chance: random.Random, secrets: list[Path]
) -> list[Path]:
    """Folders with programs and keys side by side, in the home or behind a link; and documents
    behind a link without a dot. Return the programs.
    """
    tools = []
    for name in chance.sample(_TOOLCHAINS, 3):
        owner = home / name.partition("/")[0]
        if owner.exists() or owner.is_symlink():
            continue
        place = chance.choice(
            [
                owner,
                base / "outside" / owner.name,
                root / f"kept{owner.name}",
                home / f"far{owner.name}",
            ]
        )
        inside = place / name.partition("/")[2]
        inside.mkdir(parents=True, exist_ok=True)
        (inside / "tool").write_text(TOOL)
        tools.append(home / name / "tool")
        (place / "credentials").write_text(SECRET)
        if place != owner:
            owner.symlink_to(place)
        if name != "go/bin" or root != home:
            secrets += [place / "credentials", owner / "credentials"]
    if root != home:
        documents = base / "outside" / "documents"
        secrets += _content(documents, is_folder=True)
        (home / "Documents").symlink_to(documents)
    return tools


def _link(
    base: Path,
    home: Path,
    root: Path,
    name: str,
    chance: random.Random,
    secrets: list[Path],
    *,
    is_folder: bool,
) -> None:
    """Make an entry of the home: plain, or a link of some kind that leads to where its
    content is.
    """
    entry = home / name
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
    except OSError:  # below a link that leads nowhere, or to a file
        return
    if entry.exists() or entry.is_symlink():
        return
    kind = chance.choice(
        ["plain", "outside", "inside", "chain", "dangling", "loop", "beside", "relative", "hidden"]
    )
    place = {
        "plain": entry,
        "inside": root / f"kept-{len(secrets)}",
        "beside": home / f"dotfiles-{len(secrets)}",
        "hidden": home / f".dotfiles-{len(secrets)}",
    }.get(kind, base / "outside" / f"kept-{len(secrets)}")
    if kind == "loop":
        entry.symlink_to(entry.name)
    elif kind == "dangling":
        entry.symlink_to(base / "outside" / "nothing")
    else:
        secrets += _content(place, is_folder=is_folder)
        target = place
        if kind == "chain":
            target = base / "outside" / f"link-{len(secrets)}"
            target.symlink_to(place)
        if kind != "plain":
            entry.symlink_to(
                os.path.relpath(target, entry.parent.resolve()) if kind == "relative" else target
            )
            secrets += [entry / path.name for path in secrets[-1:]] if is_folder else [entry]


def _content(place: Path, *, is_folder: bool) -> list[Path]:
    if not is_folder:
        place.write_text(SECRET)
        return [place]
    place.mkdir(parents=True, exist_ok=True)
    (place / "key").write_text(SECRET)
    return [place / "key"]
