"""`workspace share`, `join`, `sync`, `status`, `unshare`: two homes and one PostgreSQL."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from helix_desktop import cli, places, settings
from helix_desktop.commands import open_workspace
from helix_desktop.engine.ports import About
from helix_desktop.store.shared import sealing
from tests.peers import postgres
from tests.store.shared.conftest import server  # noqa: F401 - a fixture

Ran = tuple[int, str, str]
Helix = Callable[..., Ran]


@pytest.fixture
def helix(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Helix:
    """Runs a command; `typed` is its standard input."""

    def run(*arguments: object, typed: str = "") -> Ran:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        code = cli.main([str(argument) for argument in arguments])
        return (code, *capfd.readouterr())

    return run


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    """Two homes whose users let keys be kept in a file; the first has a workspace."""
    found = tmp_path / "here", tmp_path / "there"
    for home in found:
        (home / "work").mkdir(parents=True)
        settings.Settings(places.find(home).settings).change(settings.KEYS_IN_FILE, value=True)
    open_workspace.all_of(places.find(found[0])).create("Work", found[0] / "work")
    return found


def put(home: Path, content: bytes) -> str:
    async def put() -> str:
        workspaces = open_workspace.all_of(places.find(home))
        opened = await workspaces.open(workspaces.list()[0].id)
        stored = await opened.cache.put(content, About("shell"))
        await opened.aclose()
        return stored.digest.hex

    return asyncio.run(put())


def test_what_is_shared_from_one_home_is_read_in_another(
    helix: Helix,
    homes: tuple[Path, Path],
    server: postgres.Server,  # noqa: F811
) -> None:
    here, there = homes
    digest = put(here, b"from the first machine")
    code, out, err = helix("--home", here, "workspace", "share", "Work", "--to", server.url)
    assert (code, out) == (1, "")
    assert "1 entries" in err
    code, out, err = helix("--home", here, "workspace", "share", "Work", "--to", server.url, "--yes")
    assert (code, err) == (0, "")
    assert "PostgreSQL" in out
    assert helix("--home", here, "workspace", "share", "Work", "--to", server.url, "--yes")[0] == 0  # a new password
    elsewhere = server.url.replace("127.0.0.1", "localhost")
    assert "already shared" in helix("--home", here, "workspace", "share", "Work", "--to", elsewhere, "--yes")[2]
    key = helix("--home", here, "workspace", "share", "Work", "--show-key")[1]
    assert key.startswith("helix1-")
    assert key.strip() not in out
    code, out, err = helix("--home", there, "workspace", "join", server.url, "--folder", there / "work", typed=key)
    assert (code, err) == (0, "")
    code, out, _ = helix("--home", there, "cache", "get", "-w", "work", digest)
    assert (code, out) == (0, "from the first machine")
    code, out, _ = helix("--home", here, "workspace", "status", "Work", "--json")
    figures = json.loads(out)
    assert (figures["waiting"], figures["rows"], figures["trouble"]) == (0, 1, "")
    later = put(here, b"later")
    assert json.loads(helix("--home", here, "workspace", "status", "Work", "--json")[1])["waiting"] == 1
    assert helix("--home", here, "workspace", "sync", "Work")[:2] == (0, "In sync.\n")
    assert helix("--home", there, "cache", "get", "-w", "work", later)[1] == "later"
    code, out, err = helix("--home", here, "workspace", "sync", "Work", "--check", "--collect", "--json")
    assert json.loads(out)["checked"] == 2
    assert helix("--home", here, "workspace", "unshare", "Work")[0] == 1
    assert helix("--home", here, "workspace", "unshare", "Work", "--yes", "--forget-key")[0] == 0
    code, out, err = helix("--home", here, "workspace", "status", "Work")
    assert code == 1
    assert "is not shared" in err


def test_facts_that_wait_are_counted_too(
    helix: Helix,
    homes: tuple[Path, Path],
    server: postgres.Server,  # noqa: F811
) -> None:
    here = homes[0]
    assert helix("--home", here, "workspace", "share", "Work", "--to", server.url, "--yes")[0] == 0
    assert helix("--home", here, "ask", "-w", "Work", "-m", "demo", "hello")[0] == 0
    waiting = json.loads(helix("--home", here, "workspace", "status", "Work", "--json")[1])["facts_waiting"]
    assert (
        waiting == 0 or f"{waiting} facts of conversations" in helix("--home", here, "workspace", "status", "Work")[1]
    )
    assert helix("--home", here, "workspace", "sync", "Work")[1] == "In sync.\n"


def test_a_wrong_address_key_or_store_changes_nothing(
    helix: Helix,
    homes: tuple[Path, Path],
    server: postgres.Server,  # noqa: F811
) -> None:
    here, there = homes
    for url in ("http://example.org", "postgresql:///", "work", f"{server.url}?password=x"):
        assert helix("--home", here, "workspace", "share", "Work", "--to", url, "--yes")[0] == 2
    nobody = f"postgresql://helix@127.0.0.1:{postgres.free_port()}/postgres"
    code, _, err = helix("--home", here, "workspace", "share", "Work", "--to", nobody, "--yes")
    assert code == 1
    assert "No server is running" in err
    assert "Nothing was changed" in err
    assert "wait" not in err  # nothing is shared yet
    assert helix("--home", here, "workspace", "share", "Work", "--show-key")[0] == 1
    wrong = ["", "helix1-abc", "helix1-" + "a" * 52 + "0000"]
    for key in wrong:
        assert helix("--home", there, "workspace", "join", server.url, "--folder", there, typed=key)[0] == 2
    from helix_desktop.store.shared import sealing

    unknown = sealing.written(sealing.new_key())
    code, _, err = helix("--home", there, "workspace", "join", server.url, "--folder", there, typed=unknown)
    assert code == 1
    assert "No workspace is shared at this address with this key" in err
    assert open_workspace.all_of(places.find(there)).list() == ()


def test_a_machine_without_a_desktop_gets_store_and_key_from_its_environment(
    helix: Helix,
    homes: tuple[Path, Path],
    server: postgres.Server,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, there = homes
    digest = put(here, b"for the fleet")
    assert helix("--home", here, "workspace", "share", "Work", "--to", server.url, "--yes")[0] == 0
    key = helix("--home", here, "workspace", "share", "Work", "--show-key")[1].strip()
    open_workspace.all_of(places.find(there)).create("Agent", there / "work")
    monkeypatch.setenv("HELIX_STORE", server.url)
    monkeypatch.setenv("HELIX_STORE_KEY", key)
    assert helix("--home", there, "cache", "get", "-w", "Agent", digest)[1] == "for the fleet"


def test_without_a_keyring_nothing_is_shared(
    helix: Helix,
    homes: tuple[Path, Path],
    server: postgres.Server,  # noqa: F811
) -> None:
    here = homes[0]
    settings.Settings(places.find(here).settings).change(settings.KEYS_IN_FILE, value=False)
    code, _, err = helix("--home", here, "workspace", "share", "Work", "--to", server.url, "--yes")
    assert code == 1
    assert "Nothing was shared" in err
    assert "HELIX_STORE" in err
    assert helix("--home", here, "workspace", "status", "Work")[0] == 1


def test_joining_a_store_that_does_not_answer_creates_nothing(helix: Helix, homes: tuple[Path, Path]) -> None:
    where = ("workspace", "join", "postgresql://me:secret@127.0.0.1:1/helix", "--folder", homes[1] / "work")
    code, _, said = helix("--home", homes[1], *where, typed=sealing.written(bytes(32)))
    assert code == 1
    assert "Nothing was changed" in said
    assert "secret" not in said
    assert not open_workspace.all_of(places.find(homes[1])).list()
