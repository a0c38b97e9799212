from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop.tools import sandbox as module
from helix_desktop.tools.home_access import NOTHING_OPENED, OPENINGS, CommandOpenings
from helix_desktop.tools.sandbox import Sandbox, SandboxKind, find_sandbox
from helix_desktop.tools.sandbox_home import build_closed_home
from tests.tools.linked_homes import linked_homes, what_got_through
from tests.tools.test_sandbox import ran

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="sandboxes are Linux's"
)
KINDS = (SandboxKind.BUBBLEWRAP, SandboxKind.LANDLOCK)


@pytest.fixture
def base() -> Iterator[Path]:
    """Not in /tmp, of which commands get one of their own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


async def _box(
    kind: SandboxKind,
    base: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    root: Path | None = None,
) -> Sandbox:
    for folder in (root or base / "root", base / "scratch", home):
        folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    box = Sandbox(
        kind, ((root or base / "root").resolve(),), base / "scratch", caches=base / "caches"
    )
    if not await module.is_sandbox_effective(box):
        pytest.skip(f"{kind} does not work here")
    return box


async def test_no_layout_of_links_shows_a_secret_or_weakens_the_sandbox(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _box(SandboxKind.BUBBLEWRAP, base, base / "plain", monkeypatch)
    for layout in linked_homes(base, 8):
        monkeypatch.setenv("HOME", str(layout.home))
        assert await what_got_through(layout, base / "scratch") == []


@pytest.mark.parametrize("kind", KINDS)
async def test_of_a_home_there_is_nothing_that_was_not_opened(
    kind: SandboxKind, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = base / "home"
    for name in (
        ".next-agent/auth.json",
        "Documents/letter",
        ".ssh/id",
        ".cargo/bin/tool",
        ".cargo/credentials.toml",
        "work/beside",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("content\n")
    box = await _box(kind, base, home, monkeypatch)
    names = "Documents/letter .next-agent/auth.json .ssh/id .cargo/credentials.toml work/beside"
    look = f"cd {home}; cat {names} 2>/dev/null; cat .cargo/bin/tool"
    for network in (False, True):
        assert await ran(box, look, network=network) == "content\n"
    opened = CommandOpenings(("ssh",), ("~/work",))
    look = f"cat {home}/.ssh/id; cat {home}/work/beside; true"
    assert (await ran(box, look, opened=opened)).count("content") == 1
    assert (await ran(box, look, network=True, opened=opened)).count("content") == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_caches_are_the_workspaces_own_and_are_kept(
    kind: SandboxKind, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = base / "home"
    (home / ".cache").mkdir(parents=True)
    (home / ".cache" / "mine").write_text("content\n")
    box = await _box(kind, base, home, monkeypatch)
    cache = "${XDG_CACHE_HOME:-$HOME/.cache}"
    await ran(box, f"mkdir -p {cache}; echo built > {cache}/build")
    assert await ran(box, f"cat {cache}/build; cat {cache}/mine 2>/dev/null; true") == "built\n"
    assert sorted(path.name for path in (home / ".cache").iterdir()) == ["mine"]
    other = replace(box, caches=base / "others")
    assert "built" not in await ran(other, f"cat {cache}/build")


async def test_a_home_that_is_worked_in_has_no_hidden_entries(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = base / "home"
    for name in (".ssh/id", ".netrc", ".git/HEAD", "letter", ".pyenv/shims/python"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("content\n")
    box = await _box(SandboxKind.BUBBLEWRAP, base, home, monkeypatch, root=home)
    said = await ran(
        box,
        "cat .ssh/id .netrc 2>/dev/null; ls .git; cat letter .pyenv/shims/python; echo new > new",
    )
    assert said == "HEAD\ncontent\ncontent\n"
    assert (home / "new").read_text() == "new\n"
    assert sorted(path.name for path in home.iterdir()) == [
        ".git",
        ".netrc",
        ".pyenv",
        ".ssh",
        "letter",
        "new",
    ]
    assert replace(box, kind=SandboxKind.LANDLOCK).paths_left_visible() != []


async def test_what_cannot_be_closed_stops_the_command_and_nothing_weaker_is_used(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = base / "home"
    await _box(SandboxKind.BUBBLEWRAP, base, home, monkeypatch)
    monkeypatch.setattr(module, "_arguments_to_mask_path", lambda *_: ("--tmpfs", "/proc/nowhere"))
    (home / ".ssh").symlink_to(base / "outside")
    (base / "outside").mkdir()
    box = await find_sandbox([base / "root"], base / "scratch")
    assert box.kind is SandboxKind.BUBBLEWRAP
    assert "reached" not in (said := await ran(box, "echo reached"))
    assert said.startswith("bwrap: ")


def test_what_path_and_variables_name_is_there_without_what_lies_beside_it(base: Path) -> None:
    home = base / "home"
    for name in (
        "tools/x/bin/x",
        "tools/x/lib/y",
        "tools/x/secret",
        "env/bin/python",
        "env/pyvenv.cfg",
        ".sdk/java",
        "all/k",
        "certificates/ours.pem",
        "certificates/key",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    (home / ".nvm").symlink_to(home)
    environ = {
        "HOME": str(home),
        "PATH": f"{home}/tools/x/bin:{home}/env/bin:{home}:/usr/bin:{base}",
        "JAVA_HOME": f"{home}/.sdk",
        "GOROOT": f"{home}/../home",
        "SSL_CERT_FILE": f"{home}/certificates/ours.pem",
    }
    there = build_closed_home([str(base / "root")], environ, "", NOTHING_OPENED, network=False)
    read = [
        Path(place).relative_to(home).as_posix()
        for _, place in there.readable_paths
        if Path(place).is_relative_to(home)
    ]
    assert read == [".sdk", "certificates/ours.pem", "env", "tools/x/bin", "tools/x/lib"]
    assert str(home) in there.emptied_homes


def test_openings_have_names_of_their_own_and_name_places_in_the_home() -> None:
    assert len({opening.name for opening in OPENINGS}) == len(OPENINGS)
    for opening in OPENINGS:
        for path in opening.paths:
            assert not path.startswith("/")
            assert ".." not in path
            assert os.path.normpath(path) == path


async def test_a_cache_is_there_though_a_link_stands_for_it_and_one_with_a_toolchain_in_it_is_a_folder(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = base / "home"
    (home / ".cargo/bin").mkdir(parents=True)
    box = await _box(SandboxKind.BUBBLEWRAP, base, home, monkeypatch)
    look = f"cd {home}; echo kept > .npm/file; echo kept > .cargo/file; test -d .m2/repository && cat .npm/file .cargo/file"
    assert await ran(box, look) == "kept\nkept\n"
    assert (
        await ran(
            box,
            f"cd {home}; touch .npmrc .cargo/bin/x 2>/dev/null; rm -rf .npm 2>/dev/null; cat .npm/file",
        )
        == "kept\n"
    )


def test_a_link_that_is_made_in_a_folder_seen_before_is_closed(base: Path) -> None:
    home = base / "home"
    target = base / "elsewhere"
    (home / ".config/app").mkdir(parents=True)
    (home / ".config/older").mkdir()
    target.mkdir()
    for number in range(3):
        for path in (home / ".config/app", home / ".config/older"):
            os.utime(path, ns=(1, 1))  # whoever sets a folder's time back hides nothing
        (target / f"kept{number}").touch()
        (home / f".config/app/link{number}").symlink_to(target / f"kept{number}")
        os.utime(home / ".config/app", ns=(1, 1))
        there = build_closed_home([], {"HOME": str(home)}, "", NOTHING_OPENED, network=False)
        assert str(target / f"kept{number}") in there.masked_paths
