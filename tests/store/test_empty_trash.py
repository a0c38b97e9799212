from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from helix_desktop.engine.facts import (
    Attachment,
    ConversationChanged,
    ConversationStarted,
    Fact,
    FileChanged,
    ModelReplied,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import EmptyTrashResult, EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import NotFound
from helix_desktop.store import empty_trash
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.store.journal_damage import find_journal_damage
from tests.store.test_content_forgetting import stands_in

SHELL = EntryOrigin("shell", "cat file")
TRASHED = ConversationChanged(trashed=True)


async def put(workspace: StoredWorkspace, text: str, about: EntryOrigin = SHELL) -> Stored:
    return await workspace.cache.store_content(text.encode(), about)


async def said(
    workspace: StoredWorkspace, name: str, *stored: Stored, text: str = "", child: str = ""
) -> None:
    """A conversation whose tools returned these."""
    facts = [ToolReturned(str(number), each, 1, child=child) for number, each in enumerate(stored)]
    await workspace.journal.append_to_journal(
        name, [ConversationStarted(name), UserSaid((Text(text),)), *facts]
    )


async def there(workspace: StoredWorkspace, *stored: Stored) -> list[bool]:
    found = []
    for each in stored:
        try:
            found.append(
                Digest.of_content(await workspace.cache.read_content(each.digest)) == each.digest
            )
        except NotFound:
            found.append(False)
    return found


async def names(workspace: StoredWorkspace) -> set[str]:
    return {row.id for row in await workspace.journal.list_conversations()}


async def test_nothing_of_it_can_be_reached_any_more(workspace: StoredWorkspace) -> None:
    secret = "the-private-thing-9931"
    output = await put(workspace, f"{secret} output")
    picture = await put(workspace, f"{secret} picture")
    before = await put(workspace, f"{secret} before")
    attached = await put(workspace, f"{secret} attached", EntryOrigin("user", "notes.txt"))
    change = FileChanged("a.py", before.digest, None)
    facts: list[Fact] = [
        ConversationStarted(f"About {secret}"),
        UserSaid((Text(f"look at {secret}"), Attachment("notes.txt", attached, 3))),
        ToolReturned("1", output, 3, head=secret, images=(picture,), changes=(change,)),
        TRASHED,
    ]
    await workspace.journal.append_to_journal("gone", facts)
    await workspace.journal.store_meter("gone", secret)
    await said(workspace, "other", await put(workspace, "other"), text="nothing to see")
    await workspace.index.wait_until_indexed()
    await workspace.back_up_now()
    (workspace.folder / "damaged").mkdir()
    (workspace.folder / "damaged" / "journal.sqlite3").write_text(secret)
    kept_bytes = 0
    for stored in (output, picture, before, attached):
        row = await workspace.index.find_entry_row(stored.digest)
        assert row is not None
        kept_bytes += row.kept

    emptied = await workspace.delete_conversations_for_good()

    assert emptied.conversations == ("gone",)
    assert emptied.entries == 4
    assert emptied.bytes == kept_bytes > 0
    assert await there(workspace, output, picture, before, attached) == [False] * 4
    assert await names(workspace) == {"other"}
    await workspace.index.wait_until_indexed()
    assert await workspace.index.search_index("private") == ()
    await workspace.aclose()
    assert stands_in(workspace.folder, secret) == []
    (copy,) = workspace.list_journal_backups()
    with closing(JournalFile(copy.path)) as journal:
        assert [row.id for row in journal.conversation_rows()] == ["other"]


async def test_the_same_output_of_a_later_conversation_is_stored_again(
    workspace: StoredWorkspace,
) -> None:
    """The recorder left it out: each output that came again was lost to all later conversations."""
    stored = await put(workspace, "the same listing")
    await said(workspace, "gone", stored)
    await workspace.delete_conversations_for_good({"gone"})
    await workspace.cache.store_many([(b"the same listing", SHELL)])
    assert await there(workspace, stored) == [True]


async def test_what_others_refer_to_stays(workspace: StoredWorkspace) -> None:
    own, shared, quoted, begun, recalled, pinned = [
        await put(workspace, word)
        for word in ("own", "shared", "quoted", "begun", "recalled", "pinned")
    ]
    by_hand = await put(workspace, "by hand", EntryOrigin())
    outside = await put(workspace, "outside", EntryOrigin("outside:editor"))
    await workspace.cache.pin_entry(pinned.digest)
    await said(workspace, "gone", own, shared, quoted, begun, recalled, pinned, by_hand, outside)
    await workspace.journal.append_to_journal("gone", [TRASHED])
    await said(
        workspace,
        "stays",
        shared,
        text=f"see {quoted.digest.hex} and {begun.digest.hex[:12].upper()}",
    )
    call = ToolCall("1", "recall_cached_content", json.dumps({"sha256": recalled.digest.hex[:16]}))
    await workspace.journal.append_to_journal("stays", [ModelReplied((call,), "m", Stop.CALLS)])
    before = await workspace.journal.read_facts("stays")

    assert (await workspace.delete_conversations_for_good()).entries == 1

    assert await there(
        workspace, own, shared, quoted, begun, recalled, pinned, by_hand, outside
    ) == [
        False,
        *[True] * 7,
    ]
    assert await workspace.journal.read_facts("stays") == before
    assert await find_journal_damage(workspace) == ()
    assert (await workspace.cache.verify_cache()).damaged == ()


async def test_what_a_trashed_conversation_only_recalled_is_not_its_own(
    workspace: StoredWorkspace,
) -> None:
    entry = await put(workspace, "an entry of yesterday")
    call = ToolCall("1", "recall_cached_content", json.dumps({"sha256": entry.digest.hex}))
    await workspace.journal.append_to_journal(
        "gone", [ModelReplied((call,), "m", Stop.CALLS), TRASHED]
    )
    assert (await workspace.delete_conversations_for_good()) == EmptyTrashResult(("gone",))
    assert await there(workspace, entry) == [True]


async def test_a_fork_of_it_is_whole(workspace: StoredWorkspace) -> None:
    early, late, inside, unshown = [
        await put(workspace, word) for word in ("early", "late", "inside", "unshown")
    ]
    await said(workspace, "shown", inside)
    await workspace.journal.append_to_journal(
        "shown", [ConversationStarted("shown", parent="trunk", parent_call="0")]
    )
    await workspace.journal.append_to_journal(
        "unshown", [ConversationStarted("unshown", parent="trunk", parent_call="0")]
    )
    await workspace.journal.append_to_journal("unshown", [ToolReturned("1", unshown, 1)])
    await workspace.journal.append_to_journal(
        "below", [ConversationStarted("below", parent="unshown", parent_call="1")]
    )
    await said(workspace, "trunk", early, child="shown")
    await workspace.journal.fork_conversation("trunk", 3, "fork")
    await workspace.journal.append_to_journal(
        "trunk", [ToolReturned("2", late, 1, child="unshown"), TRASHED]
    )
    before = await workspace.journal.read_facts("fork")

    emptied = await workspace.delete_conversations_for_good()

    assert emptied.conversations == ("below", "trunk", "unshown")
    assert await names(workspace) == {"fork", "shown"}
    assert await there(workspace, early, late, inside, unshown) == [True, False, True, False]
    assert await workspace.journal.read_facts("fork") == before
    assert (await workspace.cache.verify_cache()).damaged == ()


async def test_an_empty_trash_stays_as_it_is(workspace: StoredWorkspace) -> None:
    kept = await put(workspace, "kept")
    await said(workspace, "c", kept)
    await workspace.journal.append_to_journal("c", [TRASHED, ConversationChanged(trashed=False)])
    assert await workspace.delete_conversations_for_good() == EmptyTrashResult()
    assert await there(workspace, kept) == [True]


async def test_what_is_put_again_meanwhile_stays(
    workspace: StoredWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await put(workspace, "wanted again")
    await said(workspace, "gone", stored)
    await workspace.journal.append_to_journal("gone", [TRASHED])
    renew = workspace.index.rebuild_after

    async def meanwhile(between: object) -> None:
        await put(workspace, "wanted again")
        await renew(between)  # type: ignore[arg-type]

    monkeypatch.setattr(workspace.index, "rebuild_after", meanwhile)
    assert (await workspace.delete_conversations_for_good()).entries == 0
    assert await there(workspace, stored) == [True]


async def test_it_can_be_done_again_after_it_failed(
    workspace: StoredWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await put(workspace, "content")
    await said(workspace, "gone", stored)
    await workspace.journal.append_to_journal("gone", [TRASHED])
    await workspace.back_up_now()
    with monkeypatch.context() as broken:
        broken.setattr(JournalFile, "delete_conversation", _fails)
        with pytest.raises(OSError, match="unplugged"):
            await workspace.delete_conversations_for_good()
    assert await names(workspace) == {"gone"}, "it is still in the trash"
    assert await put(workspace, "and on") is not None
    assert (await workspace.delete_conversations_for_good()).conversations == ("gone",)
    assert await names(workspace) == set()


def _fails(*_: object) -> int:
    raise OSError("unplugged")


@pytest.fixture
async def workspace(workspaces: AllWorkspaces, tmp_path: Path) -> AsyncIterator[StoredWorkspace]:
    opened = await workspaces.open_stored_workspace(
        workspaces.create_stored_workspace("Thesis", tmp_path).id
    )
    yield opened
    await opened.aclose()


def test_the_list_of_deleted_conversations_is_read_whatever_is_in_it(tmp_path: Path) -> None:
    """Otherwise the recorder would import nothing more into the workspace."""
    file = tmp_path / empty_trash.DELETED
    file.write_bytes(
        b"without-time\n\ntalk 2\nwith-time 1700000000.5\nid of 0.1 1700000001.0\nd\xffmaged 17x\n"
    )
    empty_trash.save_deleted_conversations(tmp_path, {"another id of 0.1"})
    times = empty_trash.read_deleted_conversations(tmp_path)
    assert times["with-time"] == 1700000000.5
    assert times["id of 0.1"] == 1700000001.0
    assert {"without-time", "talk 2", "another id of 0.1"} <= times.keys()
