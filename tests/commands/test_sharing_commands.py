"""`workspace share`, `join`, `sync`, `status`, `unshare`: two homes and one PostgreSQL."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from helix_desktop import cli, program_folders, program_settings
from helix_desktop.commands import sharing_commands, workspace_access
from helix_desktop.console import Terminal
from helix_desktop.engine.facts import ConversationChanged
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.errors import NoUsableKeyring
from helix_desktop.secrets import Keyring, SecretStorage
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.shared import fact_segments, row_encryption
from helix_desktop.store.shared.conversation_heads import HeadUpdate
from helix_desktop.store.shared.link_progress import PROGRESS_FILE
from helix_desktop.store.shared.postgres_heads import PostgresHeads
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.shared_store_link import LinkStatus
from helix_desktop.store.workspace_settings import NAME, change_workspace_settings
from tests.peers import ports, postgres
from tests.store.shared.conftest import server  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from helix_desktop.store.shared.shared_store_link import SharedStoreLink
    from helix_desktop.store.stored_workspace import StoredWorkspace

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
    """Two homes whose users let keys be kept in a file, each with a folder beside it;
    the first has a workspace.
    """
    found = tmp_path / "here", tmp_path / "there"
    for home in found:
        home.mkdir()
        work_of(home).mkdir(parents=True)
        program_settings.ProgramSettings(
            program_folders.find_program_folders(home).settings_file
        ).change_setting(program_settings.KEYS_IN_FILE, value=True)
    workspace_access.open_all_workspaces(
        program_folders.find_program_folders(found[0])
    ).create_stored_workspace("Work", work_of(found[0]))
    return found


def known_at(home: Path) -> AllWorkspaces:
    return workspace_access.open_all_workspaces(program_folders.find_program_folders(home))


def work_of(home: Path) -> Path:
    return home.parent / f"on {home.name}" / "work"


def put(home: Path, content: bytes) -> str:
    async def put() -> str:
        workspaces = workspace_access.open_all_workspaces(
            program_folders.find_program_folders(home)
        )
        opened = await workspaces.open_stored_workspace(workspaces.list_workspaces()[0].id)
        stored = await opened.cache.store_content(content, EntryOrigin("shell"))
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
    assert "22 bytes of content" in err
    code, out, err = helix(
        "--home", here, "workspace", "share", "Work", "--to", server.url, "--yes"
    )
    assert (code, err) == (0, "")
    assert "PostgreSQL" in out
    again = helix(
        "--home", here, "workspace", "share", "Work", "--to", "-", "--yes", typed=f"{server.url}\n"
    )
    assert again[0] == 0  # a new password
    elsewhere = server.url.replace("127.0.0.1", "localhost")
    assert (
        "already shared"
        in helix("--home", here, "workspace", "share", "Work", "--to", elsewhere, "--yes")[2]
    )
    key = helix("--home", here, "workspace", "share", "Work", "--show-key")[1]
    assert key.startswith("helix1-")
    assert key.strip() not in out
    typed = f"{server.url}\n{key}"  # Everybody on the computer can read a command line.
    code, out, err = helix(
        "--home", there, "workspace", "join", "-", "--folder", work_of(there), typed=typed
    )
    assert (code, err) == (0, "")
    code, out, _ = helix("--home", there, "cache", "get", "-w", "work", digest)
    assert (code, out) == (0, "from the first machine")
    code, out, _ = helix("--home", here, "workspace", "status", "Work", "--json")
    figures = json.loads(out)
    assert (figures["waiting"], figures["rows"], figures["trouble"]) == (0, 1, "")
    later = put(here, b"later")
    assert (
        json.loads(helix("--home", here, "workspace", "status", "Work", "--json")[1])["waiting"]
        == 1
    )
    assert helix("--home", here, "workspace", "sync", "Work")[:2] == (0, "In sync.\n")
    assert helix("--home", there, "cache", "get", "-w", "work", later)[1] == "later"
    code, out, err = helix(
        "--home", here, "workspace", "sync", "Work", "--check", "--collect", "--json"
    )
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
    waiting = json.loads(helix("--home", here, "workspace", "status", "Work", "--json")[1])[
        "facts_waiting"
    ]
    assert (
        waiting == 0
        or f"{waiting} facts of conversations"
        in helix("--home", here, "workspace", "status", "Work")[1]
    )
    assert helix("--home", here, "workspace", "sync", "Work")[1] == "In sync.\n"


def test_what_is_not_installed_is_said_before_the_question(
    helix: Helix, homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    code, _, err = helix(
        "--home",
        homes[0],
        "workspace",
        "share",
        "Work",
        "--to",
        "postgresql://me@127.0.0.1:1/helix",
    )
    assert (code, "psycopg" in err, "would be" in err) == (1, True, False)


def test_a_wrong_address_key_or_store_changes_nothing(
    helix: Helix,
    homes: tuple[Path, Path],
    server: postgres.Server,  # noqa: F811
) -> None:
    here, there = homes
    for url in ("http://example.org", "postgresql:///", "work", f"{server.url}?password=x"):
        assert helix("--home", here, "workspace", "share", "Work", "--to", url, "--yes")[0] == 2
    nobody = f"postgresql://helix@127.0.0.1:{ports.free_port()}/postgres"
    code, _, err = helix("--home", here, "workspace", "share", "Work", "--to", nobody, "--yes")
    assert code == 1
    assert "No server is running" in err
    assert "Nothing was changed" in err
    assert "wait" not in err  # nothing is shared yet
    assert helix("--home", here, "workspace", "share", "Work", "--show-key")[0] == 1
    wrong = ["", "helix1-abc", "helix1-" + "a" * 52 + "0000"]
    for key in wrong:
        assert (
            helix(
                "--home",
                there,
                "workspace",
                "join",
                server.url,
                "--folder",
                work_of(there),
                typed=key,
            )[0]
            == 2
        )
    from helix_desktop.store.shared import row_encryption

    unknown = row_encryption.format_key_line(row_encryption.new_workspace_key())
    code, _, err = helix(
        "--home", there, "workspace", "join", server.url, "--folder", work_of(there), typed=unknown
    )
    assert code == 1
    assert "No workspace is shared at this address with this key" in err
    assert (
        workspace_access.open_all_workspaces(
            program_folders.find_program_folders(there)
        ).list_workspaces()
        == ()
    )


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
    monkeypatch.setenv("HELIX_STORE", server.url)
    monkeypatch.setenv("HELIX_STORE_KEY", key)
    join = ("workspace", "join", "--folder", work_of(there), "--name", "Agent")
    assert helix("--home", there, *join)[0] == 0
    code, _, err = helix("--home", there, *join)
    assert (
        code,
        "Agent on this computer is already shared with the key in HELIX_STORE_KEY" in err,
    ) == (1, True)
    assert [known.name for known in known_at(there).list_workspaces()] == ["Agent"]
    assert helix("--home", there, "cache", "get", "-w", "Agent", digest)[1] == "for the fleet"


def test_a_folder_of_the_programs_own_is_refused_before_anything_is_asked(
    helix: Helix, homes: tuple[Path, Path]
) -> None:
    """Tools refuse to enter it: the workspace that was joined there could do nothing."""
    (homes[1] / "inside").mkdir()
    where = (
        "workspace",
        "join",
        "postgresql://me:secret@127.0.0.1:1/helix",
        "--folder",
        homes[1] / "inside",
    )
    code, _, said = helix(
        "--home", homes[1], *where, typed=row_encryption.format_key_line(bytes(32))
    )
    assert code == 1
    assert "belongs to Helix Desktop, so tools cannot use it. Choose another folder." in " ".join(
        said.split()
    )
    assert not workspace_access.open_all_workspaces(
        program_folders.find_program_folders(homes[1])
    ).list_workspaces()


def test_without_a_keyring_nothing_is_shared(
    helix: Helix,
    homes: tuple[Path, Path],
    server: postgres.Server,  # noqa: F811
) -> None:
    here = homes[0]
    program_settings.ProgramSettings(
        program_folders.find_program_folders(here).settings_file
    ).change_setting(program_settings.KEYS_IN_FILE, value=False)
    code, _, err = helix("--home", here, "workspace", "share", "Work", "--to", server.url, "--yes")
    assert code == 1
    assert "Nothing was shared" in err
    assert "HELIX_STORE" in err
    assert helix("--home", here, "workspace", "status", "Work")[0] == 1


def test_joining_a_store_that_does_not_answer_creates_nothing(
    helix: Helix, homes: tuple[Path, Path]
) -> None:
    where = (
        "workspace",
        "join",
        "postgresql://me:secret@127.0.0.1:1/helix",
        "--folder",
        work_of(homes[1]),
    )
    code, _, said = helix(
        "--home", homes[1], *where, typed=row_encryption.format_key_line(bytes(32))
    )
    assert code == 1
    assert "Nothing was changed" in said
    assert "secret" not in said
    assert not workspace_access.open_all_workspaces(
        program_folders.find_program_folders(homes[1])
    ).list_workspaces()


@pytest.fixture
def shared(
    helix: Helix,
    homes: tuple[Path, Path],
    server: postgres.Server,  # noqa: F811
) -> tuple[Path, Path, str]:
    """Two homes that share a workspace, called Work in both, and its key."""
    here, there = homes
    assert helix("--home", here, "workspace", "share", "Work", "--to", server.url, "--yes")[0] == 0
    key = helix("--home", here, "workspace", "share", "Work", "--show-key")[1].strip()
    join = ("workspace", "join", server.url, "--folder", work_of(there), "--name", "Work")
    assert helix("--home", there, *join, typed=key)[0] == 0
    return here, there, key


def ask(helix: Helix, home: Path, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    code, out, err = helix("--home", home, "ask", "-w", "Work", "-m", "demo", "--json", *words)
    return code, [json.loads(line) for line in out.splitlines()], err


def turns(helix: Helix, home: Path) -> dict[str, int]:
    """How many turns ended in each conversation of a home, after it was brought up to date."""
    assert helix("--home", home, "workspace", "sync", "Work")[:2] == (0, "In sync.\n")

    async def read() -> dict[str, int]:
        workspaces = workspace_access.open_all_workspaces(
            program_folders.find_program_folders(home)
        )
        opened = await workspaces.open_stored_workspace(workspaces.list_workspaces()[0].id)
        found = {row.id: row.turns for row in await opened.journal.list_conversations()}
        await opened.aclose()
        return found

    return asyncio.run(read())


def test_two_homes_that_take_turns_write_one_conversation(
    helix: Helix, shared: tuple[Path, Path, str]
) -> None:
    here, there, _ = shared
    _, facts, _ = ask(helix, here, "hello")
    conversation = facts[0]["conversation"]
    for home, words in ((there, "second"), (here, "third"), (there, "fourth")):
        code, more, err = ask(helix, home, "-c", conversation, words)
        assert (code, err) == (0, "")
        assert more[0]["seq"] == facts[-1]["seq"] + 1
        assert {each["conversation"] for each in more} == {conversation}
        facts += more
    assert turns(helix, here) == turns(helix, there) == {conversation: 4}


class Laptop:
    """Another machine that holds the lease of a conversation."""

    def __init__(self, url: str, key: str, conversation: str) -> None:
        self._seal = row_encryption.RowCipher(row_encryption.parse_key_line(key))
        self._engine = PostgresRowStore(url, self._seal.space)
        self._heads = PostgresHeads(self._engine, self._seal.space)
        self._name = self._seal.keyed_row_name("head", conversation.encode())

    def hold(self, seconds: float) -> None:
        (head,) = self._heads.fetch_heads([self._name])
        contents = replace(
            fact_segments.decode_head(self._seal.decrypt_row(self._name, head.sealed)),
            machine="laptop",
        )
        sealed = self._seal.encrypt_row(self._name, fact_segments.encode_head(contents))
        move = HeadUpdate(self._name, head.version, b"l" * 16, sealed, seconds, force=True)
        assert self._heads.update_heads([move])[0][0]

    def damage(self) -> None:
        """As a disk might."""
        (head,) = self._heads.fetch_heads([self._name])
        sealed = head.sealed[:-1] + bytes([head.sealed[-1] ^ 1])
        assert self._heads.update_heads(
            [HeadUpdate(self._name, head.version, b"l" * 16, sealed, 0.0, force=True)]
        )[0][0]

    def close(self) -> None:
        self._engine.close()


@pytest.fixture
def laptop(
    helix: Helix,
    shared: tuple[Path, Path, str],
    server: postgres.Server,  # noqa: F811
) -> Iterator[tuple[Laptop, str]]:
    """With a conversation that the first home began."""
    conversation = ask(helix, shared[0], "hello")[1][0]["conversation"]
    one = Laptop(server.url, shared[2], conversation)
    yield one, conversation
    one.close()


def test_a_conversation_that_another_machine_works_in_is_not_split(
    helix: Helix,
    shared: tuple[Path, Path, str],
    laptop: tuple[Laptop, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, _, _ = shared
    other, conversation = laptop
    other.hold(600.0)
    code, facts, err = ask(helix, here, "-c", conversation, "me too")
    assert (code, facts) == (1, [])
    assert "laptop is working in this conversation" in err
    assert "--if-busy" in err
    assert turns(helix, here) == {conversation: 1}
    code, facts, err = ask(helix, here, "-c", conversation, "--if-busy", "branch", "me too")
    assert code == 0
    assert facts[-1]["conversation"] != conversation
    assert facts[-1]["fact"] == "TurnEnded"
    assert turns(helix, here) == {conversation: 1, facts[-1]["conversation"]: 2}
    other.hold(600.0)
    complain = Terminal.print_error

    async def finish_then(console: Terminal, text: str) -> None:
        other.hold(0.0)  # it ends while we wait
        await complain(console, text)

    monkeypatch.setattr(Terminal, "print_error", finish_then)
    code, facts, err = ask(helix, here, "-c", conversation, "--if-busy", "wait", "me too")
    assert (code, facts[0]["conversation"]) == (0, conversation)
    assert "Waiting for laptop" in err
    assert sorted(turns(helix, here).values()) == [2, 2]


def test_a_damaged_head_is_an_error(
    helix: Helix, shared: tuple[Path, Path, str], laptop: tuple[Laptop, str]
) -> None:
    here, there, _ = shared
    other, conversation = laptop
    assert turns(helix, there) == {conversation: 1}
    other.damage()
    for home in (here, there):
        code, out, err = helix("--home", home, "workspace", "sync", "Work")
        assert (code, "In sync." in out) == (1, False)
        assert "failed its authenticity check" in err
    assert ask(helix, there, "-c", conversation, "more")[0] == 1


@pytest.fixture
def fleet(
    helix: Helix,
    homes: tuple[Path, Path],
    server: postgres.Server,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A home whose workspace is shared by the environment alone, with a key of its own."""
    home = homes[0]
    code, key, err = helix("workspace", "new-key")
    assert (code, row_encryption.parse_key_line(key) is not None) == (0, True)
    assert "Anyone who has this key" in err
    assert helix("workspace", "new-key")[1] != key
    monkeypatch.setenv("HELIX_STORE", server.url)
    monkeypatch.setenv("HELIX_STORE_KEY", key.strip())
    return home


def test_a_fleet_begins_with_a_key_made_on_the_command_line(
    helix: Helix, fleet: Path, homes: tuple[Path, Path]
) -> None:
    code, _, err = helix("--home", homes[1], "workspace", "join", "--folder", work_of(homes[1]))
    assert code == 1  # a wrong key would look the same
    assert "No workspace is shared" in err
    code, _, err = helix("--home", fleet, "worker", "--workspace", "Work", "--drain")
    assert (code, "Work is not shared through HELIX_STORE" in err) == (1, True)
    code, out, err = helix("--home", fleet, "workspace", "share", "Work", "--yes")
    assert (code, err) == (0, "")
    assert (
        "helix-desktop workspace join --folder DIR\nSet HELIX_STORE and HELIX_STORE_KEY there, too."
        in out
    )
    digest = put(fleet, b"for the fleet")
    assert helix("--home", fleet, "workspace", "sync", "Work")[:2] == (0, "In sync.\n")
    known_at(homes[1]).create_stored_workspace("Agent", work_of(homes[1]))
    assert helix("--home", homes[1], "workspace", "share", "Agent", "--yes")[0] == 0
    assert helix("--home", homes[1], "cache", "get", "-w", "Agent", digest)[1] == "for the fleet"
    assert not program_folders.find_program_folders(fleet).key_file.exists()


def listed_tasks(helix: Helix, home: Path) -> dict[str, Any]:
    code, out, err = helix("--home", home, "task", "list", "-w", "Work", "--json")
    assert (code, err) == (0, "")
    return {task["text"]: task for task in json.loads(out)}


def test_tasks_and_budgets_from_before_a_workspace_is_shared_go_on_in_the_shared_list(
    helix: Helix, fleet: Path
) -> None:
    """Nobody would look into the computer's own list any more."""
    add = ("--home", fleet, "task", "add", "-w", "Work")
    assert helix(*add, "--key", "first", "--priority", "3", "one")[0] == 0
    assert helix(*add, "--after", "first", "two")[0] == 0
    stopped = helix(*add, "three")[1].strip()
    assert helix("--home", fleet, "task", "cancel", "-w", "Work", stopped)[0] == 0
    assert helix("--home", fleet, "fleet", "budget", "-w", "Work", "2.5")[0] == 0
    before = listed_tasks(helix, fleet)
    assert helix("--home", fleet, "workspace", "share", "Work", "--yes")[0] == 0
    after = listed_tasks(helix, fleet)
    assert after.keys() == {"one", "two"}
    for text, task in after.items():
        assert task["id"] == before[text]["id"]
        assert task["priority"] == before[text]["priority"]
        assert task["state"] == "waiting"
    status = json.loads(helix("--home", fleet, "fleet", "status", "-w", "Work", "--json")[1])
    assert status["budgets"] == {"workspace": {"limit": 2.5, "spent": 0.0}}
    # What waits for another task still does, and nothing is taken over a second time.
    assert helix("--home", fleet, "task", "cancel", "-w", "Work", after["one"]["id"])[0] == 0
    ended = listed_tasks(helix, fleet)
    assert {task["state"] for task in ended.values()} == {"cancelled"}


def test_forgetting_reaches_the_list_of_tasks_from_before_a_workspace_was_shared(
    helix: Helix, fleet: Path
) -> None:
    task = helix("--home", fleet, "task", "add", "-w", "Work", "tell of the marmalade")[1].strip()
    assert helix("--home", fleet, "task", "cancel", "-w", "Work", task)[0] == 0
    assert helix("--home", fleet, "workspace", "share", "Work", "--yes")[0] == 0
    assert helix("--home", fleet, "forget", "-w", "Work", "--text", "marmalade", "--yes")[0] == 0
    (file,) = fleet.rglob("tasks.sqlite3")
    for part in file.parent.glob("tasks.sqlite3*"):
        assert b"marmalade" not in part.read_bytes(), part


def questions(home: Path, name: str) -> list[str]:
    """How the conversations of a workspace begin, as its own disk has them."""

    async def read() -> list[str]:
        workspaces = known_at(home)
        opened = await workspaces.open_stored_workspace(workspaces.find_known_workspace(name).id)
        found = [row.begins for row in await opened.journal.list_conversations()]
        await opened.aclose()
        return found

    return asyncio.run(read())


def test_the_environment_shares_only_the_workspace_that_was_shared_with_it(
    helix: Helix, fleet: Path, homes: tuple[Path, Path]
) -> None:
    known_at(fleet).create_stored_workspace("Private")
    assert helix("--home", fleet, "workspace", "share", "Work", "--yes")[0] == 0
    assert helix("--home", fleet, "ask", "-w", "Work", "-m", "demo", "for the team")[0] == 0
    assert helix("--home", fleet, "ask", "-w", "Private", "-m", "demo", "my illness")[0] == 0
    code, _, err = helix("--home", fleet, "workspace", "sync", "Private")
    assert (code, "Private is not shared" in err) == (1, True)
    assert helix("--home", fleet, "workspace", "sync", "Work")[:2] == (0, "In sync.\n")
    code, _, err = helix("--home", fleet, "workspace", "share", "Private", "--yes")
    assert (code, "Work on this computer is already shared with the key" in err) == (1, True)
    assert (
        helix(
            "--home",
            homes[1],
            "workspace",
            "join",
            "--folder",
            work_of(homes[1]),
            "--name",
            "Agent",
        )[0]
        == 0
    )
    assert questions(homes[1], "Agent") == ["for the team"], (
        "what was shared is there when `join` returns"
    )
    assert questions(fleet, "Private") == ["my illness"]


def test_what_is_no_longer_shared_is_not_shared_by_the_next_command(
    helix: Helix, fleet: Path, homes: tuple[Path, Path]
) -> None:
    assert helix("--home", fleet, "workspace", "share", "Work", "--yes")[0] == 0
    assert helix("--home", fleet, "workspace", "unshare", "Work", "--yes")[0] == 0
    assert helix("--home", fleet, "ask", "-w", "Work", "-m", "demo", "for me")[0] == 0
    known_at(homes[1]).create_stored_workspace("Agent", work_of(homes[1]))
    assert helix("--home", homes[1], "workspace", "share", "Agent", "--yes")[0] == 0
    assert questions(homes[1], "Agent") == []


def test_a_workspace_that_an_earlier_version_shared_through_the_environment_goes_on(
    helix: Helix, fleet: Path
) -> None:
    """It says nothing of it. Where two were poured into one, nothing more is sent
    before one of them is taken out.
    """
    assert helix("--home", fleet, "workspace", "share", "Work", "--yes")[0] == 0
    work = known_at(fleet).find_known_workspace("Work")
    private = known_at(fleet).create_stored_workspace("Private")
    change_workspace_settings(work.folder / NAME, {"shared": None})
    assert helix("--home", fleet, "workspace", "sync", "Work")[:2] == (0, "In sync.\n")
    shutil.copy(work.folder / PROGRESS_FILE, private.folder)
    for one, other in (("Work", "Private"), ("Private", "Work")):
        code, _, err = helix("--home", fleet, "ask", "-w", one, "-m", "demo", "hello")
        assert (code, f"{other} on this computer is already shared with the key" in err) == (
            1,
            True,
        )
    assert helix("--home", fleet, "workspace", "unshare", "Private", "--yes")[0] == 0
    assert helix("--home", fleet, "workspace", "sync", "Work")[:2] == (0, "In sync.\n")
    assert helix("--home", fleet, "workspace", "sync", "Private")[0] == 1


def test_a_wrong_key_in_the_environment_is_an_error(
    helix: Helix, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert helix("--home", fleet, "workspace", "share", "Work", "--yes")[0] == 0
    assert helix("--home", fleet, "workspace", "sync", "Work")[:2] == (0, "In sync.\n")
    monkeypatch.setenv("HELIX_STORE_KEY", helix("workspace", "new-key")[1].strip())
    for command in (["workspace", "sync", "Work"], ["ask", "-w", "Work", "-m", "demo", "hello"]):
        code, out, err = helix("--home", fleet, *command)
        assert (code, out) == (1, "")
        assert "HELIX_STORE_KEY" in err


def test_a_store_from_the_environment_asks_no_keyring(
    helix: Helix, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_secrets: SecretStorage, _work: Callable[[Keyring], object]) -> None:
        raise NoUsableKeyring("The system's keyring did not respond within 10 s.")

    monkeypatch.setattr(SecretStorage, "_call_keyring", silent)
    assert helix("--home", fleet, "workspace", "share", "Work", "--yes")[0] == 0
    assert helix("--home", fleet, "workspace", "sync", "Work")[:2] == (0, "In sync.\n")
    monkeypatch.delenv("HELIX_STORE_KEY")
    code, _, err = helix("--home", fleet, "workspace", "sync", "Work")
    assert code == 1
    assert "HELIX_STORE_KEY" in err


def test_facts_that_still_wait_after_a_sync_are_no_success(
    helix: Helix, shared: tuple[Path, Path, str], laptop: tuple[Laptop, str]
) -> None:
    here, _, _ = shared
    other, conversation = laptop
    other.hold(600.0)

    async def write() -> None:
        workspaces = workspace_access.open_all_workspaces(
            program_folders.find_program_folders(here)
        )
        opened = await workspaces.open_stored_workspace(workspaces.list_workspaces()[0].id)
        await opened.journal.append_to_journal(conversation, [ConversationChanged(title="Mine")])
        await opened.aclose()

    asyncio.run(write())
    code, out, _ = helix("--home", here, "workspace", "sync", "Work")
    assert code == 1
    assert "1 fact of conversations" in out
    assert (
        json.loads(helix("--home", here, "workspace", "sync", "Work", "--json")[1])["facts_waiting"]
        == 1
    )


async def test_a_store_that_takes_no_conversations_has_none_that_wait() -> None:
    class LinkToBucket:
        async def link_status(self) -> LinkStatus:
            return LinkStatus("s3://bucket/work", "local", 2, 30, 1, 5.0, 0.0, "")

    # The workspace's journal is not asked.
    figures = await sharing_commands._sharing_figures(
        cast("StoredWorkspace", None), cast("SharedStoreLink", LinkToBucket())
    )
    assert figures == {
        "facts_waiting": 0,
        "url": "s3://bucket/work",
        "acknowledge": "local",
        "waiting": 2,
        "waiting_bytes": 30,
        "forgetting": 1,
        "contact": 5.0,
        "away": 0.0,
        "trouble": "",
    }
