from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import stat
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine import fact_encoding
from helix_desktop.engine.facts import ConversationStarted, Stored, Text, ToolReturned, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import (
    ConfigFileMistake,
    HelixError,
    InvalidInput,
    JournalCorrupt,
    NotFound,
    StoreFailed,
    WrittenByNewerVersion,
)
from helix_desktop.store import workspace_export
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_export import settings_without_keys


async def exported(workspace: StoredWorkspace, path: Path) -> Path:
    await workspace.export_to_file(path)
    return path


async def filled(workspace: StoredWorkspace) -> list[Digest]:
    contents = [b"", b"small", b"x" * 3_000_000, bytes(range(256)) * 9000]
    stored = [
        await workspace.cache.store_content(content, EntryOrigin("shell", f"é {n}"))
        for n, content in enumerate(contents)
    ]
    await workspace.cache.pin_entry(stored[1].digest)
    await workspace.journal.append_to_journal(
        "a", [ConversationStarted("Title"), ToolReturned("1", stored[1], 2)]
    )
    await workspace.journal.append_to_journal("b", [UserSaid((Text("naïve"),))])
    await workspace.journal.append_to_journal("a", [UserSaid((Text("more"),))])
    return [each.digest for each in stored]


async def test_history_and_cache_come_back_whole(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    digests = await filled(workspace)
    known = await workspaces.import_workspace(
        await exported(workspace, tmp_path / "w.helix"), name="Copy"
    )
    assert known.settings.colour != workspace.settings.colour, "two tiles of one name and colour"
    copy = await workspaces.open_stored_workspace(known.id)
    for conversation in ("a", "b"):
        assert await copy.journal.read_facts(conversation) == await workspace.journal.read_facts(
            conversation
        )
    for digest in digests:
        assert await copy.cache.read_content(digest) == await workspace.cache.read_content(digest)
        assert await copy.cache.describe_entry(digest) == await workspace.cache.describe_entry(
            digest
        )
    await copy.index.wait_until_indexed()
    assert [row.pinned for row in await copy.index.entries_page(limit=9)].count(True) == 1
    assert (await copy.cache.verify_cache()).checked == len(digests)
    assert copy.name == "Copy"
    await copy.aclose()


async def test_an_import_puts_nothing_into_force(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    workspace.change_settings(
        {
            "permissions.mode": "free",
            "permissions.rules": [{"tool": "shell", "allow": True}],
            "mcp": {
                "github": {
                    "command": "run-me",
                    "env": {"GITHUB_TOKEN": "ghp_abcdefghijklmnop1234"},
                    "args": ["-x"],
                }
            },
            "changes.off": True,
            "copies": {"always": True, "set_up": "touch /tmp/planted"},
            "limits.turn_cost": 1_000_000,
        }
    )
    settings = (
        await workspaces.import_workspace(await exported(workspace, tmp_path / "w.helix"))
    ).settings
    assert (settings.roots, settings.mode, settings.rules, dict(settings.mcp)) == ((), "", (), {})
    assert (dict(settings.changes), dict(settings.copies), dict(settings.limits)) == ({}, {}, {})
    assert settings.proposed["copies"]["set_up"] == "touch /tmp/planted"
    assert settings.proposed["permissions"]["mode"] == "free"
    assert settings.proposed["mcp"]["github"] == {
        "command": "run-me",
        "env": {"GITHUB_TOKEN": ""},
        "args": ["-x"],
    }
    assert settings.proposed["roots"] == list(workspace.settings.roots)


def test_keys_never_leave() -> None:
    text = settings_without_keys(
        '# my key is sk-1234567890abcdef\nname = "x"\n[mcp.a]\nargs = ["--token", "ghp_abcdefghijklmnop1234"]\n'
        'url = "https://a/?t=eyJhbGciOiJIUzI1NiIsInR5"\napi_key = "hunter22"\n[mcp.a.headers]\nX-Any = "plain"\n'
    )
    for secret in ("1234567890abcdef", "ghp_", "hunter22", "plain", "eyJ"):
        assert secret not in text
    assert 'name = "x"' in text


@pytest.mark.parametrize(
    "address",
    [
        "https://q7w9x2secret@dev.example.com/x",
        "postgresql://user:q7w9@x2secret@db.example.com/work",
        "HTTPS://user:x2secret@dev.example.com/x",
    ],
)
def test_a_token_or_a_password_with_an_at_sign_in_an_address_never_leaves(address: str) -> None:
    text = settings_without_keys(f'[mcp.a]\nargs = ["--url={address}"]\n')
    assert "x2secret" not in text
    assert ".example.com/" in text


@pytest.mark.parametrize("name", ["skeleton-generator", "pkg-config-wrapper", "ghost-in-the-shell"])
def test_a_folder_that_begins_like_a_key_keeps_its_name(name: str) -> None:
    text = settings_without_keys(f'roots = ["/home/ada/{name}", "ssh://git@host/{name}"]\n')
    assert f'["/home/ada/{name}", "ssh://git@host/{name}"]' in text


@pytest.mark.parametrize(
    "key",
    ["sk-ant-api03-abcdefgh", "ghu_abcdefghijkl", "github_pat_abcdefghijkl", "AKIAABCDEFGHIJKL"],
)
def test_what_looks_like_a_key_never_leaves_in_any_text(key: str) -> None:
    assert key not in settings_without_keys(f'instructions = "use {key} for it"\n')


def test_keys_of_servers_written_by_hand_never_leave() -> None:
    text = settings_without_keys(
        '[mcp.a]\nargs = ["-y", "server", "--api-key", "hunter2", "--auth-token=hunter2", "--header", "X-Key: hunter2", '
        '"--db", "postgres://me:hunter2@db/x", "--verbose"]\n[mcp.b]\nurl = "https://a/sse?api_key=hunter2&page=3"\n'
        '[mcp.c]\nurl = "https://me:hunter2@a/mcp"\n[copies]\nset_up = "TOKEN=hunter2 npm ci"\n'
    )
    assert "hunter2" not in text
    for kept in (
        '"server"',
        '"--verbose"',
        "postgres://me:@db/x",
        "page=3",
        "https://me:@a/mcp",
        "npm ci",
        "X-Key: ",
    ):
        assert kept in text


async def test_a_damaged_entry_is_left_out_and_named(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    digests = await filled(workspace)
    folder = workspace._stores.cache
    record = folder.reader.record_of_content(digests[1])
    folder.level.write_batch([(b"b" + record.blob.to_bytes(8, "big") + bytes(4), b"\x00wrong")])
    path = tmp_path / "w.helix"
    assert await workspace.export_to_file(path) == (digests[1].hex,)
    with zipfile.ZipFile(path) as archive:
        assert json.loads(archive.read("manifest.json"))["damaged"] == [digests[1].hex]
    left_out: list[str] = []
    async for _ in workspace.export_pieces(left_out):
        pass
    assert left_out == [digests[1].hex]
    known = await workspaces.import_workspace(path)
    assert (
        f"{digests[1].hex} was already damaged when this file was exported"
        in (known.folder / "notes.txt").read_text()
    )
    copy = await workspaces.open_stored_workspace(known.id)
    with pytest.raises(NotFound):
        await copy.cache.read_content(digests[1])
    assert await copy.cache.read_content(digests[2]) == b"x" * 3_000_000
    await copy.aclose()


@pytest.mark.parametrize("cut", [0, 10, 0.5, 0.99])
async def test_an_incomplete_file_is_refused_and_leaves_nothing(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path, cut: float
) -> None:
    await filled(workspace)
    path = await exported(workspace, tmp_path / "w.helix")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(cut * len(whole)) if cut < 1 else int(cut)])
    with pytest.raises(InvalidInput, match="not a complete workspace export"):
        await workspaces.import_workspace(path)
    assert [each.name for each in workspaces.list_workspaces()] == ["Thesis"]
    with pytest.raises(NotFound):
        await workspaces.import_workspace(tmp_path / "missing")


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("facts.jsonl", b'["a", 2, 1.0, "{}"]\n', InvalidInput),
        ("facts.jsonl", b"[]\n", InvalidInput),
        (
            "facts.jsonl",
            b'["a", 1, 1.0, "{\\"fact\\":\\"Folded\\",\\"version\\":1,\\"fold\\":5}"]\n',
            JournalCorrupt,
        ),
        (
            "facts.jsonl",
            b'["a", 1, 1.0, "{\\"fact\\":\\"ConversationChanged\\",\\"version\\":1,\\"title\\":5}"]\n',
            JournalCorrupt,
        ),
        (
            "facts.jsonl",
            b'["/home/me/settings", 1, 1.0, "{\\"fact\\":\\"ConversationChanged\\",\\"version\\":1}"]\n',
            InvalidInput,
        ),
        (
            "facts.jsonl",
            b'["a", 1, 1e300, "{\\"fact\\":\\"ConversationChanged\\",\\"version\\":1}"]\n',
            InvalidInput,
        ),
        (
            "facts.jsonl",
            b'["a", 1, -1.0, "{\\"fact\\":\\"ConversationChanged\\",\\"version\\":1}"]\n',
            InvalidInput,
        ),
        (
            "facts.jsonl",
            b'["a", 1, NaN, "{\\"fact\\":\\"ConversationChanged\\",\\"version\\":1}"]\n',
            InvalidInput,
        ),
        (
            "facts.jsonl",
            b'[5, 1, 1.0, "{\\"fact\\":\\"ConversationChanged\\",\\"version\\":1}"]\n',
            InvalidInput,
        ),
        (
            "entries.bin",
            b'{"sha256": "%s", "collected": 1, "lines": 1, "time": 1e300, "tool": "", "source": "", "media_type": ""}\n'
            % (b"0" * 64),
            InvalidInput,
        ),
        (
            "facts.jsonl",
            b'["a", 1, 1.0, "{\\"fact\\":\\"FromTheFuture\\",\\"version\\":1}"]\n',
            WrittenByNewerVersion,
        ),
        ("entries.bin", b'{"sha256":"zz"}\n', InvalidInput),
        (
            "entries.bin",
            b'{"sha256":"'
            + b"0" * 64
            + b'","size":5,"time":1,"tool":"","source":"","media_type":""}\nabc',
            InvalidInput,
        ),
        (
            "entries.bin",
            b'{"sha256": "%s", "collected": -1, "lines": 1, "time": 1, "tool": "", "source": "", "media_type": ""}\n'
            % (b"0" * 64),
            InvalidInput,
        ),
        (
            "entries.bin",
            b'{"sha256": "%s", "collected": 9223372036854775808, "lines": 1, "time": 1, "tool": "", "source": "", "media_type": ""}\n'
            % (b"0" * 64),
            InvalidInput,
        ),
        (
            "entries.bin",
            b'{"sha256": "%s", "collected": 1, "lines": 9223372036854775808, "time": 1, "tool": "", "source": "", "media_type": ""}\n'
            % (b"0" * 64),
            InvalidInput,
        ),
        (
            "entries.bin",
            b'{"sha256": "%s", "size": 1e400, "time": 1, "tool": "", "source": "", "media_type": ""}\n'
            % (b"0" * 64),
            InvalidInput,
        ),
        ("workspace.toml", b"name = [", HelixError),
        ("workspace.toml", b"roots = 5", InvalidInput),
    ],
)
async def test_a_file_made_to_harm_is_refused(
    workspace: StoredWorkspace,
    workspaces: AllWorkspaces,
    tmp_path: Path,
    name: str,
    content: bytes,
    error: type[HelixError],
) -> None:
    await filled(workspace)
    good = await exported(workspace, tmp_path / "w.helix")
    bad = tmp_path / "bad.helix"
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w") as target:
        for member in source.namelist():
            target.writestr(member, content if member == name else source.read(member))
    if name == "workspace.toml" and content == b"roots = 5":
        await workspaces.import_workspace(bad)  # only proposed, and so checked when the user agrees
        return
    with pytest.raises(error):
        await workspaces.import_workspace(bad)
    assert len(workspaces.list_workspaces()) == 1
    assert [
        path.name for path in workspaces.folder.iterdir() if path.name.startswith(".importing")
    ] == []


async def test_a_record_that_no_import_would_accept_is_told_when_it_is_exported(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    await filled(workspace)
    await workspace.journal.append_to_journal(
        "b", [ToolReturned("1", Stored(Digest.of_content(b"x"), -1), 2)]
    )
    with pytest.raises(JournalCorrupt, match="Record 2 of conversation b cannot be read"):
        await exported(workspace, tmp_path / "w.helix")
    assert not (tmp_path / "w.helix").exists()


async def test_an_entry_that_is_not_what_it_says_is_left_out(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    await filled(workspace)
    good = await exported(workspace, tmp_path / "w.helix")
    bad = tmp_path / "bad.helix"
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w") as target:
        for member in source.namelist():
            target.writestr(member, source.read(member).replace(b"\nsmall", b"\nSMALL"))
    known = await workspaces.import_workspace(bad)
    assert "was damaged in the export" in (known.folder / "notes.txt").read_text()
    copy = await workspaces.open_stored_workspace(known.id)
    with pytest.raises(NotFound):
        await copy.cache.read_content(Digest.of_content(b"SMALL"))
    await copy.aclose()
    shutil.rmtree(known.folder)


async def test_what_was_collected_is_still_known(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    gone = await workspace.cache.store_content(b"never used", EntryOrigin("shell", "ls"))
    await workspace.cache.remove_unused_down_to(0)
    copy = await workspaces.open_stored_workspace(
        (await workspaces.import_workspace(await exported(workspace, tmp_path / "w.helix"))).id
    )
    with pytest.raises(NotFound, match="removed to free up space"):
        await copy.cache.read_content(gone.digest)
    await copy.aclose()


async def test_what_was_forgotten_is_known_as_forgotten_and_not_as_damaged(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    digests = await filled(workspace)
    await workspace.forget_content(entries=(digests[1],))
    known = await workspaces.import_workspace(
        await exported(workspace, tmp_path / "w.helix"), name="Copy"
    )
    copy = await workspaces.open_stored_workspace(known.id)
    with pytest.raises(NotFound, match="permanently removed at the user's request"):
        await copy.cache.read_content(digests[1])
    assert (
        (await copy.cache.verify_cache()).damaged
        == (await workspace.cache.verify_cache()).damaged
        == ()
    )


async def test_a_damaged_file_is_refused_or_named_and_never_half_taken(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    """Bytes changed anywhere: in the archive itself, and in what it holds."""
    await filled(workspace)
    good = await exported(workspace, tmp_path / "w.helix")
    bad = tmp_path / "bad.helix"
    with zipfile.ZipFile(good) as source:
        members = {name: source.read(name)[:30_000] for name in source.namelist()}
    chance = random.Random(4)
    for trial in range(24):
        if trial % 2:
            content = bytearray(good.read_bytes())
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            bad.write_bytes(content)
        else:
            broken = chance.choice(sorted(members))
            changed = bytearray(members[broken])
            for _ in range(chance.choice((1, 1, 5))):
                changed[chance.randrange(len(changed))] = chance.choice(b'"{}[],:0\n\\ax\xff')
            with zipfile.ZipFile(bad, "w") as target:
                for name, held in members.items():
                    target.writestr(name, changed if name == broken else held)
        with contextlib.suppress(HelixError):
            shutil.rmtree((await workspaces.import_workspace(bad)).folder)
    assert [each.name for each in workspaces.list_workspaces()] == ["Thesis"]
    assert not list(workspaces.folder.glob(".importing*"))


async def test_a_file_whose_compression_makes_no_sense_is_refused(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    await filled(workspace)
    good = await exported(workspace, tmp_path / "w.helix")
    bad = tmp_path / "bad.helix"
    content = bytearray(good.read_bytes())
    for trial in range(40, len(content) - 400, len(content) // 20):
        bad.write_bytes(content[:trial] + b"\xff" * 40 + content[trial + 40 :])
        with pytest.raises(InvalidInput, match="Export the workspace again"):
            await workspaces.import_workspace(bad)
    assert [each.name for each in workspaces.list_workspaces()] == ["Thesis"]


async def test_a_mistake_in_the_settings_is_told_when_it_is_exported(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    with (workspace.folder / "workspace.toml").open("a") as file:
        file.write("colour = ")
    with pytest.raises(ConfigFileMistake, match="line"):
        await exported(workspace, tmp_path / "w.helix")
    assert not list(tmp_path.glob("w.helix*"))


async def test_a_cancelled_import_leaves_nothing_and_says_how_far_it_was(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    await filled(workspace)
    path = await exported(workspace, tmp_path / "w.helix")
    before = {each.name for each in workspaces.folder.iterdir()}
    heard: list[tuple[int, int]] = []
    begun = asyncio.Event()

    def report(done: int, total: int) -> None:
        heard.append((done, total))
        begun.set()

    importing = asyncio.ensure_future(workspaces.import_workspace(path, report=report))  # noqa: TID251 - a test's own task
    await begun.wait()
    importing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await importing
    assert {each.name for each in workspaces.folder.iterdir()} == before
    assert all(0 < done <= total for done, total in heard)
    await workspaces.import_workspace(path, report=report)
    assert heard[-1][0] == heard[-1][1]


async def test_a_cancelled_export_leaves_no_file(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    await filled(workspace)
    written: list[int] = []
    begun = asyncio.Event()

    def report(size: int) -> None:
        written.append(size)
        begun.set()

    exporting = asyncio.ensure_future(workspace.export_to_file(tmp_path / "w.helix", report))  # noqa: TID251 - as above
    await begun.wait()
    exporting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exporting
    assert written
    assert list(tmp_path.glob("w.helix*")) == []


def _hostile_archives() -> Iterator[tuple[str, dict[str, Any]]]:
    """What a file that means harm holds beside or instead of an export's own members,
    and how it is compressed.
    """
    huge = bytes(200 << 20)
    wide = b"[" + b"[]," * 4_000_000 + b"1]\n"
    yield "manifest", {"manifest.json": huge}
    yield "manifest of many values", {"manifest.json": wide}
    yield "settings", {"workspace.toml": huge}
    yield "fact", {"facts.jsonl": huge}
    yield "fact of many values", {"facts.jsonl": wide}
    yield "entry", {"entries.bin": huge}
    yield "entry of many values", {"entries.bin": wide}
    yield "members", {f"x{number}": b"" for number in range(20_000)}
    yield "bzip2", {"how": zipfile.ZIP_BZIP2}
    yield "lzma", {"how": zipfile.ZIP_LZMA}


@pytest.mark.parametrize("at", range(10))
async def test_a_file_that_stands_for_much_takes_little_memory(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path, at: int
) -> None:
    await filled(workspace)
    good = await exported(workspace, tmp_path / "w.helix")
    bad = tmp_path / "bad.helix"
    _, instead = list(_hostile_archives())[at]
    how = instead.pop("how", zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w", how, compresslevel=1) as target:
        for member in {*source.namelist(), *instead}:
            target.writestr(member, instead[member] if member in instead else source.read(member))
    instead.clear()
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="Export"):
            await workspaces.import_workspace(bad)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 160 << 20, f"{peak:,}"
    assert [each.name for each in workspaces.list_workspaces()] == ["Thesis"]
    assert not list(workspaces.folder.glob(".importing*"))


async def test_an_export_can_be_read_by_its_user_only_and_its_facts_come_in_with_little_memory(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    good = await exported(workspace, tmp_path / "w.helix")
    large = tmp_path / "large.helix"
    assert stat.S_IMODE(good.stat().st_mode) & 0o077 == 0
    said = fact_encoding.encode_fact(UserSaid((Text("x" * (4 << 20)),)))
    with (
        zipfile.ZipFile(good) as source,
        zipfile.ZipFile(large, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target,
    ):
        for member in source.namelist():
            if member != "facts.jsonl":
                target.writestr(member, source.read(member))
        with target.open("facts.jsonl", "w") as facts:
            for number in range(1, 41):
                facts.write(json.dumps(["c", number, 1.0, said]).encode() + b"\n")
    tracemalloc.start()
    try:
        known = await workspaces.import_workspace(large)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20, f"{peak:,}"
    assert known.name == "Thesis"


@pytest.mark.parametrize("name", ["manifest.json", "facts.jsonl"])
async def test_a_member_that_is_encrypted_or_twice_there_is_refused(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path, name: str
) -> None:
    await filled(workspace)
    good = await exported(workspace, tmp_path / "w.helix")
    bad = tmp_path / "bad.helix"
    content = bytearray(good.read_bytes())
    at = content.rindex(name.encode()) - 46  # its head in the directory at the end
    content[at + 8] |= 1
    bad.write_bytes(content)
    with pytest.raises(InvalidInput, match="Export"):
        await workspaces.import_workspace(bad)
    shutil.copy(good, bad)
    with zipfile.ZipFile(bad, "a") as target, pytest.warns(UserWarning, match="Duplicate"):
        target.writestr(name, b"{}")
    with pytest.raises(InvalidInput, match="Export"):
        await workspaces.import_workspace(bad)
    assert [each.name for each in workspaces.list_workspaces()] == ["Thesis"]


async def test_an_import_that_would_fill_the_disk_ends_and_leaves_nothing(
    workspace: StoredWorkspace,
    workspaces: AllWorkspaces,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await filled(workspace)
    path = await exported(workspace, tmp_path / "w.helix")
    monkeypatch.setattr(workspace_export, "KEPT_FREE_BYTES", 1 << 62)
    with pytest.raises(StoreFailed, match="disk"):
        await workspaces.import_workspace(path)
    assert [each.name for each in workspaces.list_workspaces()] == ["Thesis"]
    assert not list(workspaces.folder.glob(".importing*"))


async def test_settings_that_would_take_minutes_to_read_are_refused(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    good = await exported(workspace, tmp_path / "w.helix")
    bad = tmp_path / "bad.helix"
    for more in (
        "".join(f"[t{number}]\n" for number in range(20_000)),
        "k = {" + "a=1," * 20_000 + "}",
    ):
        with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w") as target:
            for name in source.namelist():
                held = source.read(name).decode()
                target.writestr(name, f"{held}\n{more}" if name == "workspace.toml" else held)
        with pytest.raises(InvalidInput, match="too many settings"):
            await workspaces.import_workspace(bad)


async def test_models_count_only_once_the_user_agrees_and_no_shared_store_is_proposed(
    workspace: StoredWorkspace, workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    workspace.change_settings(
        {
            "models.main": "elsewhere/expensive",
            "proposed": {"shared": {"url": "postgresql://evil/x"}, "roots": ["/"]},
        }
    )
    settings = (
        await workspaces.import_workspace(await exported(workspace, tmp_path / "w.helix"))
    ).settings
    assert dict(settings.models) == {}
    assert settings.proposed["models"] == {"main": "elsewhere/expensive"}
    assert "shared" not in settings.proposed
