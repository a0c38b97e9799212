from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from helix_desktop.tools import sandbox as module
from helix_desktop.tools.credentials import KEYS, RINGS
from helix_desktop.tools.sandbox import Kind, Sandbox
from tests.tools.test_sandbox import ran


@pytest.mark.parametrize("kind", [Kind.BUBBLEWRAP, Kind.LANDLOCK])
async def test_no_file_of_the_list_is_read(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        home = Path(folder) / "home"
        for name in (*KEYS, *RINGS, "plain"):
            if not (home / name).exists():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                (home / name).write_text("secret\n")
        for name in ("root", "scratch"):
            (Path(folder) / name).mkdir()
        monkeypatch.setenv("HOME", str(home))
        box = Sandbox(kind, (Path(folder) / "root",), Path(folder) / "scratch")
        if not await module.holds(box):
            pytest.skip(f"{kind} does not work here")
        look = " ".join(["grep -ls secret", *(f"{home}/{name}" for name in (*KEYS, *RINGS, "plain")), "; true"])
        assert await ran(box, look) == f"{home}/plain\n"
        seen = (await ran(box, look, network=True)).splitlines()
        assert not [path for path in seen if any(path == f"{home}/{name}" for name in RINGS)]
        assert f"{home}/.netrc" in seen


def test_names_are_told_from_the_home_and_once() -> None:
    assert len({*KEYS, *RINGS}) == len(KEYS) + len(RINGS)
    assert not [name for name in (*KEYS, *RINGS) if name.startswith("/") or ".." in name]
