"""Checkpoints: complete before a step, cheap when nothing changed, and whose change is whose."""

from __future__ import annotations

import json
import mmap
import subprocess
from pathlib import Path

import pytest

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import StoreFailed, StoreFull
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.tools.changes import checkpoints, folder_walk
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.changes.checkpoints import CheckpointProgress, Checkpoints
from helix_desktop.tools.changes.content_storing import ABOUT
from tests.tools.changes.conftest import Net


async def names(net: Net, fact: FilesChanged | None) -> list[str]:
    assert fact is not None
    return [
        change.path
        for change in folder_state.decode_difference(
            await net.cache.read_content(fact.difference.digest)
        )
    ]


async def test_a_step_that_changes_nothing_has_no_fact(net: Net) -> None:
    (net.folder / "a").write_text("a")
    assert await net.step(lambda: None) is None


async def test_counts_names_and_the_states_around_it(net: Net) -> None:
    (net.folder / "a").write_text("one\ntwo\n")
    fact = await net.step(lambda: (net.folder / "a").write_text("one\n2\n3\n"))
    assert fact is not None
    assert (fact.files, fact.added, fact.removed, fact.names, fact.call) == (
        1,
        2,
        1,
        ("a",),
        "call",
    )
    before = await net.checkpoints.read_checkpoint_state(fact.before)
    after = await net.checkpoints.read_checkpoint_state(fact.after)
    assert folder_state.compare_trees(before, after) == folder_state.decode_difference(
        await net.cache.read_content(fact.difference.digest)
    )
    assert after == net.checkpoints.folders.known_items()


async def test_what_somebody_wrote_between_two_steps_is_theirs(net: Net) -> None:
    (net.folder / "a").write_text("a")
    await net.step(lambda: (net.folder / "b").write_text("agent"))
    (net.folder / "a").write_text("mine")
    fact = await net.step(lambda: (net.folder / "c").write_text("agent"))
    assert await names(net, fact) == ["0/c"]


async def test_a_tool_for_files_answers_for_its_own_paths_alone(net: Net) -> None:
    await net.checkpoints.ensure_first_check()
    window = await net.checkpoints.begin_step(
        "1", "c", "tool", only=[str(net.folder / "new" / "a")]
    )
    assert window is not None
    (net.folder / "new").mkdir()
    (net.folder / "new" / "a").write_text("agent")
    (net.folder / "b").write_text("somebody else, at the same time")
    fact = await net.checkpoints.end_step(window)
    assert await names(net, fact) == ["0/new", "0/new/a"]


async def test_two_conversations_at_once_do_not_take_each_others_changes(net: Net) -> None:
    await net.checkpoints.ensure_first_check()
    one = await net.checkpoints.begin_step("1", "one", "command")
    two = await net.checkpoints.begin_step("2", "two", "tool", only=["two"])
    assert one is not None
    assert two is not None
    (net.folder / "two").write_text("2")
    assert await names(net, await net.checkpoints.end_step(two)) == ["0/two"]
    (net.folder / "one").write_text("1")
    assert await names(net, await net.checkpoints.end_step(one)) == ["0/one"]


async def test_a_command_that_ends_first_takes_nothing_that_a_file_tool_writes_beside_it(
    net: Net,
) -> None:
    """The tool's conversation lacked its own change, and an undo of the command took it back."""
    await net.checkpoints.ensure_first_check()
    one = await net.checkpoints.begin_step("1", "one", "command")
    assert one is not None
    (net.folder / "early").write_text("of the command, before the tool")
    two = await net.checkpoints.begin_step("2", "two", "tool", only=["early", "new/two"])
    assert two is not None
    (net.folder / "new").mkdir()
    (net.folder / "new" / "two").write_text("2")
    (net.folder / "one").write_text("1")
    assert await names(net, await net.checkpoints.end_step(one)) == ["0/early", "0/one"]
    assert await names(net, await net.checkpoints.end_step(two)) == ["0/new", "0/new/two"]


async def test_after_a_restart_nothing_unchanged_is_read_again(net: Net) -> None:
    for number in range(20):
        (net.folder / f"f{number}").write_text(str(number))
    subprocess.run(
        ["touch", "-d", "2020-01-01", *(f"f{n}" for n in range(20))], cwd=net.folder, check=True
    )
    await net.checkpoints.ensure_first_check()
    first = net.checkpoints.folders.known_items()
    await net.checkpoints.aclose()
    (net.folder / "f3").write_text("other")
    again = net.again()
    await again.ensure_first_check()
    assert folder_state.compare_trees(first, again.folders.known_items()) != ()
    assert {
        change.path for change in folder_state.compare_trees(first, again.folders.known_items())
    } == {"0/f3"}


async def test_a_damaged_file_of_stamps_only_costs_time(net: Net) -> None:
    (net.folder / "a").write_text("a")
    await net.checkpoints.ensure_first_check()
    await net.checkpoints.aclose()
    net.file.write_bytes(net.file.read_bytes()[:-1] + b"?")
    again = net.again()
    await again.ensure_first_check()
    assert again.is_ready
    assert list(again.folders.known_items()) == ["0/a"]


async def test_what_is_left_out_is_named_before_and_git_is_never_covered(net: Net) -> None:
    for path in ("node_modules/x", "target/y", "rust/target/z", ".git/config", "src/.git"):
        (net.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (net.folder / path).write_text("x")
    (net.folder / "rust" / "Cargo.toml").write_text("")
    await net.checkpoints.ensure_first_check()
    left = {(one.path, one.why) for one in net.checkpoints.folders.uncovered_entries()}
    assert left == {
        ("0/node_modules", "node_modules/"),
        ("0/rust/target", "target/ beside Cargo.toml"),
    }
    assert sorted(net.checkpoints.folders.known_items()) == [
        "0/rust",
        "0/rust/Cargo.toml",
        "0/src",
        "0/target",
        "0/target/y",
    ]


async def test_what_was_forgotten_is_not_stored_again(net: Net, tmp_path: Path) -> None:
    (net.folder / "secret").write_text("the secret")
    await net.checkpoints.ensure_first_check()
    item = net.checkpoints.folders.last_item_at("0/secret")
    assert item is not None
    assert item.file_digest is not None
    assert list(await net.cache.find_missing_content([item.file_digest])) == []


async def test_a_long_chain_becomes_a_manifest_again(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_state, "LONGEST_CHAIN", 5)
    await net.checkpoints.ensure_first_check()
    for number in range(8):
        (net.folder / "a").write_text(str(number))
        await net.checkpoints.check_for_changes()
        assert net.checkpoints.latest_checkpoint is not None
        assert (
            await net.checkpoints.read_checkpoint_state(net.checkpoints.latest_checkpoint)
            == net.checkpoints.folders.known_items()
        )
    assert net.checkpoints.latest_checkpoint is not None
    assert await entries_for(net, net.checkpoints.latest_checkpoint) == 3


async def entries_for(net: Net, digest: Digest) -> int:
    behind = folder_state.entries_to_read_first(await net.cache.read_content(digest))
    return 1 + sum([await entries_for(net, each) for each in behind])


async def test_a_checkpoint_of_the_first_form_is_read(net: Net) -> None:
    item = folder_state.TreeItem(folder_state.PathKind.FILE, 0o644, 1, b"1" * 32)
    manifest = b"".join(
        folder_state.encode_manifest(
            [("0/a", folder_state.pack_item(item)), ("0/b", folder_state.pack_item(item))]
        )
    )
    linked = folder_state.encode_difference(
        [folder_state.PathChange("0/a", item, None)], Digest(bytes(32))
    )
    difference = b"helix difference 1\n" + linked[len(b"helix difference 2\n") + 32 :]
    first, second = await net.cache.store_many([(manifest, ABOUT), (difference, ABOUT)])
    named = {
        "checkpoint": 1,
        "roots": ["/x"],
        "manifest": first.digest.hex,
        "differences": [second.digest.hex],
    }
    (old,) = await net.cache.store_many([(json.dumps(named).encode(), ABOUT)])
    assert await net.checkpoints.read_checkpoint_state(old.digest) == {"0/b": item}


async def test_writing_through_another_name_is_seen(net: Net) -> None:
    (net.folder / "x").mkdir()
    (net.folder / "y").mkdir()
    (net.folder / "x" / "one").write_text("1")
    (net.folder / "y" / "two").hardlink_to(net.folder / "x" / "one")
    fact = await net.step(lambda: (net.folder / "y" / "two").write_text("22"))
    assert await names(net, fact) == ["0/x/one", "0/y/two"]


@pytest.mark.parametrize("kept", [False, True])
async def test_a_root_that_was_not_there_and_comes_back_is_nobodys_work(
    net: Net, kept: bool
) -> None:
    """A drive that is mounted late: else an undo of the next step would delete all of it."""
    (net.folder / "a").write_text("mine")
    away = net.folder.with_name("away")
    if kept:
        await net.step(lambda: None)
        await net.checkpoints.aclose()
        net.again()
    net.folder.rename(away)
    await net.checkpoints.ensure_first_check()
    assert await net.checkpoints.begin_step("early", "c", "command") is None
    away.rename(net.folder)
    fact = await net.step(lambda: (net.folder / "b").write_text("agent"))
    assert await names(net, fact) == ["0/b"]


async def test_a_root_that_goes_while_a_step_runs_was_not_emptied_by_it(net: Net) -> None:
    (net.folder / "a").write_text("mine")
    away = net.folder.with_name("away")
    assert await net.step(lambda: net.folder.rename(away)) is None
    away.rename(net.folder)
    assert await net.step(lambda: None) is None


async def test_another_folder_at_the_place_of_a_root_is_met_before_the_step(net: Net) -> None:
    """A drive that is gone leaves the empty folder it was mounted on."""
    (net.folder / "a").write_text("mine")
    away = net.folder.with_name("away")
    empty = net.folder.with_name("empty")
    empty.mkdir()
    await net.step(lambda: None)
    net.folder.rename(away)
    empty.rename(net.folder)
    assert await net.step(lambda: None) is None
    net.folder.rename(empty)
    away.rename(net.folder)
    assert await net.step(lambda: None) is None


async def test_a_step_is_not_begun_when_its_checkpoint_cannot_be_stored(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk: the next command would have run without a net, and nobody was told."""
    await net.checkpoints.ensure_first_check()
    (net.folder / "a").write_text("a")

    async def full(contents: object) -> object:
        raise StoreFull("No space is left on the disk.")

    with monkeypatch.context() as patch:
        patch.setattr(net.cache, "store_many", full)
        with pytest.raises(StoreFailed, match="won't be possible to undo these changes: No space"):
            await net.checkpoints.begin_step("1", "c", "command")
    assert await net.checkpoints.begin_step("2", "c", "command") is not None


async def test_what_a_step_did_while_nothing_could_be_stored_is_told_later(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that fills the disk had no turn, and nothing to restore."""
    (net.folder / "thesis").write_text("mine")
    window = await net.checkpoints.begin_step("1", "c", "command")
    assert window is not None
    (net.folder / "thesis").write_text("lost")

    async def full(contents: object) -> object:
        raise StoreFull("No space is left on the disk.")

    with monkeypatch.context() as patch:
        patch.setattr(net.cache, "store_many", full)
        assert await net.checkpoints.end_step(window) is None
    (open_window,) = net.checkpoints.steps.open_steps_of_conversation("c")
    fact = await net.checkpoints.end_step(open_window)
    assert await names(net, fact) == ["0/thesis"]
    assert fact is not None
    await net.undo(fact)
    assert (net.folder / "thesis").read_text() == "mine"
    assert net.checkpoints.steps.open_steps_of_conversation("c") == ()


async def test_names_of_one_file_within_the_folders_and_outside(net: Net, tmp_path: Path) -> None:
    for name in ("b", "a", "c", "shared", "alone"):
        (net.folder / name).write_text(name)
    (net.folder / "z").hardlink_to(net.folder / "a")
    (net.folder / "y").hardlink_to(net.folder / "a")
    (net.folder / "s2").hardlink_to(net.folder / "shared")
    (tmp_path / "outside").hardlink_to(net.folder / "shared")
    await net.checkpoints.ensure_first_check()
    others = {
        name: sorted(net.checkpoints.folders.other_names_of_file(f"0/{name}"))
        for name in ("a", "y", "s2", "b")
    }
    assert others == {"a": ["0/y", "0/z"], "y": ["0/a", "0/z"], "s2": ["0/shared"], "b": []}
    left = [(one.path, one.why) for one in net.checkpoints.folders.uncovered_entries()]
    assert left == [("0/s2", "has another name outside"), ("0/shared", "has another name outside")]
    twin = net.checkpoints.folders.last_item_at("0/y")
    leader = net.checkpoints.folders.last_item_at("0/a")
    assert (twin and twin.kind, leader and leader.kind) == (
        folder_state.PathKind.TWIN,
        folder_state.PathKind.FILE,
    )
    assert await net.checkpoints.read_item_content(twin) == b"a"


async def test_what_an_item_held(net: Net) -> None:
    (net.folder / "file").write_text("held")
    (net.folder / "link").symlink_to("where/it/leads")
    (net.folder / "folder").mkdir()
    await net.checkpoints.ensure_first_check()
    read = {
        name: await net.checkpoints.read_item_content(
            net.checkpoints.folders.last_item_at(f"0/{name}")
        )
        for name in ("file", "link", "folder", "missing")
    }
    assert read == {"file": b"held", "link": b"where/it/leads", "folder": b"", "missing": b""}
    gone = folder_state.TreeItem(folder_state.PathKind.TWIN, 0o644, 1, b"0/missing")
    assert await net.checkpoints.read_item_content(gone) == b""
    gone = folder_state.TreeItem(folder_state.PathKind.TWIN, 0o644, 1, b"0/link")
    assert await net.checkpoints.read_item_content(gone) == b""


@pytest.mark.parametrize(
    ("place", "stored", "read"),
    [
        ("a", "0/a", "a"),
        ("deep/a", "0/deep/a", "deep/a"),
        ("ROOT", "0", "."),
        ("ROOT/a", "0/a", "a"),
        ("OTHER", "1", "OTHER/"),
        ("OTHER/x/a", "1/x/a", "OTHER/x/a"),
    ],
)
def test_a_path_as_people_know_it_and_as_it_is_stored(
    net: Net, tmp_path: Path, place: str, stored: str, read: str
) -> None:
    def full(text: str) -> str:
        return text.replace("ROOT", str(net.folder)).replace("OTHER", str(tmp_path / "other"))

    both = Checkpoints([net.folder, tmp_path / "other"], net.cache)
    assert both.checkpoint_path(full(place)) == stored
    assert both.displayed_path(stored) == full(read)


async def test_the_largest_folders_are_told_before_anything_is_covered(net: Net) -> None:
    for path, size in (("big/x/a", 70), ("big/b", 30), ("small/a", 5), ("a", 3)):
        (net.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (net.folder / path).write_bytes(bytes(size))
    limited = net.again(CheckpointCoverage(most_files=1, most_bytes=1, most_file_bytes=1))
    found = {name: (files, size) for name, files, size in limited.folders.largest_top_folders()}
    assert sorted(found.values()) == [(1, 3), (1, 5), (2, 100)]
    assert limited.latest_checkpoint is None


async def test_without_folders_or_turned_off_there_is_no_net(net: Net) -> None:
    (net.folder / "a").write_text("a")
    none = Checkpoints([], net.cache)
    off = Checkpoints([net.folder], net.cache)
    await off.apply_coverage(CheckpointCoverage(off=True))
    restarted = Checkpoints([net.folder], net.cache, coverage=CheckpointCoverage(off=True))
    for without in (none, off, restarted):
        assert not without.is_undo_available
        assert await without.begin_step("1", "c", "command") is None
        assert (without.latest_checkpoint, without.is_ready) == (None, False)
    assert net.checkpoints.is_undo_available
    await off.apply_coverage(CheckpointCoverage())
    assert (off.is_undo_available, off.is_ready, list(off.folders.known_items())) == (
        True,
        True,
        ["0/a"],
    )
    for one in (none, off, restarted):
        await one.aclose()


async def test_a_fact_counts_all_and_names_the_first(net: Net) -> None:
    fact = await net.step(
        lambda: [(net.folder / f"f{number}").write_text("1\n2\n") for number in range(7)]
    )
    assert fact is not None
    assert (fact.files, fact.added, fact.removed) == (7, 14, 0)
    assert fact.names == ("f0", "f1", "f2", "f3", "f4")
    assert (fact.by, fact.call, fact.left_out) == ("command", "call", ())


async def settle(checkpoints: Checkpoints) -> None:
    """Until the files are old enough that their times prove something."""
    await checkpoints.check_for_changes()
    while checkpoints.folders._folders_with_unreliable_times:
        await checkpoints.check_for_changes()


async def test_a_command_is_looked_after_thoroughly_and_a_tool_by_what_is_heard(net: Net) -> None:
    """Nobody is told of what is written through a mapping of memory."""
    path = net.folder / "a"
    path.write_text("before")
    for by, seen in (("tool", False), ("command", True)):
        await settle(net.checkpoints)
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            await net.checkpoints.check_for_changes(thorough=True)
            await settle(net.checkpoints)

            def write(mapped: mmap.mmap = mapped, by: str = by) -> None:
                mapped[:] = by[:4].encode() + b"!!"
                mapped.flush()

            assert (await net.step(write, by) is not None) == seen, by


async def test_a_thorough_look_takes_too_long_in_a_large_folder(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "SHORT_CHECK_SECONDS", 0.0)
    path = net.folder / "a"
    path.write_text("before")
    await settle(net.checkpoints)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        await net.checkpoints.check_for_changes(thorough=True)
        await settle(net.checkpoints)
        window = await net.checkpoints.begin_step("1", "c", "command")
        assert window is not None
        mapped[:] = b"after!"
        mapped.flush()
        fact = await net.checkpoints.end_step(window, thorough=True)
    assert await names(net, fact) == ["0/a"], "as asked for"


async def test_other_rules_are_applied_to_folders_in_which_nothing_changed(net: Net) -> None:
    for path in ("deep/a.txt", "deep/b.log", "c.log"):
        (net.folder / path).parent.mkdir(exist_ok=True)
        (net.folder / path).write_text("x")
    await settle(net.checkpoints)
    await net.checkpoints.check_for_changes(thorough=True)
    await net.checkpoints.apply_coverage(CheckpointCoverage(leave_out=("*.log",)))
    assert sorted(net.checkpoints.folders.known_items()) == ["0/deep", "0/deep/a.txt"]
    await net.checkpoints.check_for_changes(thorough=True)
    await net.checkpoints.apply_coverage(CheckpointCoverage())
    assert sorted(net.checkpoints.folders.known_items()) == [
        "0/c.log",
        "0/deep",
        "0/deep/a.txt",
        "0/deep/b.log",
    ]


async def test_progress_is_told_and_after_a_restart_little_is_read(net: Net) -> None:
    for number in range(3):
        (net.folder / f"f{number}").write_text("x" * 10)
    told: list[CheckpointProgress] = []
    net.checkpoints.listeners.append(told.append)
    await settle(net.checkpoints)
    assert [one.state for one in told][:2] == ["reading", "reading"]
    assert [one.state for one in told].count("ready") == 1
    assert (told[-2].files, told[-2].of_files) == (3, 3)
    assert net.checkpoints.progress == told[-1]
    (net.folder / "f3").write_text("more")
    await settle(net.checkpoints)
    await net.checkpoints.aclose()
    again = net.again()
    told_again: list[CheckpointProgress] = []
    again.listeners.append(told_again.append)
    (net.folder / "f1").write_text("other")
    await again.ensure_first_check()
    assert {one.of_files for one in told_again if one.state == "reading"} == {0, 1}
    assert sum(map(len, again.folders.records.values())) == 4


async def test_a_change_right_after_a_look_is_seen_without_being_told(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is so young may be written again in the same moment of its times."""
    path = net.folder / "a"
    path.write_text("before")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        with monkeypatch.context() as slow:
            slow.setattr(
                folder_walk, "FINE", 3_600 * 10**9
            )  # On a busy machine, the first look may come late.
            slow.setattr(folder_walk, "COARSE", 3_600 * 10**9)
            await net.checkpoints.ensure_first_check()
        assert net.checkpoints.folders._folders_with_unreliable_times == {"0"}
        mapped[:] = b"after!"
        mapped.flush()
        await net.checkpoints.check_for_changes()
        assert (
            await net.checkpoints.read_item_content(net.checkpoints.folders.last_item_at("0/a"))
            == b"after!"
        )
        await settle(net.checkpoints)
    (net.folder / "folder").mkdir()
    await net.checkpoints.check_for_changes()
    await settle(net.checkpoints)


async def test_content_that_is_lost_from_the_cache_is_stored_again_after_a_restart(
    net: Net, tmp_path: Path
) -> None:
    (net.folder / "a").write_text("lost")
    await settle(net.checkpoints)
    (net.folder / "b").write_text("kept")
    await settle(net.checkpoints)
    latest = net.checkpoints.latest_checkpoint
    assert latest is not None
    await net.checkpoints.aclose()
    other = AllWorkspaces(tmp_path / "other home")
    workspace = await other.open_stored_workspace(
        other.create_stored_workspace("other", net.folder).id
    )
    for kept in (b"kept", await net.cache.read_content(latest)):
        await workspace.cache.store_content(kept, ABOUT)
    again = Checkpoints([net.folder], workspace.cache, file=net.file)
    told: list[CheckpointProgress] = []
    again.listeners.append(told.append)
    await again.ensure_first_check()
    assert {one.of_files for one in told if one.state == "reading"} == {0, 1}, (
        "only that one is read"
    )
    assert sorted(again.folders.known_items()) == ["0/a", "0/b"]
    assert await again.read_item_content(again.folders.last_item_at("0/a")) == b"lost"
    await again.aclose()
    await workspace.aclose()


async def test_steps_that_are_open_keep_what_nobody_claimed(net: Net) -> None:
    await net.checkpoints.ensure_first_check()
    first = await net.checkpoints.begin_step("1", "one", "tool", only=["a"])
    assert first is not None
    (net.folder / "a").write_text("first's")
    second = await net.checkpoints.begin_step("2", "two", "tool", only=["b"])
    assert second is not None
    (net.folder / "b").write_text("second's")
    assert await names(net, await net.checkpoints.end_step(second)) == ["0/b"]
    assert await names(net, await net.checkpoints.end_step(first)) == ["0/a"]
    assert await net.step(lambda: None) is None


async def test_names_of_one_file_stay_together_when_the_folder_of_the_first_is_renamed(
    net: Net,
) -> None:
    (net.folder / "x").mkdir()
    (net.folder / "y").mkdir()
    (net.folder / "x" / "a").write_text("one")
    (net.folder / "y" / "b").hardlink_to(net.folder / "x" / "a")
    await settle(net.checkpoints)
    (net.folder / "x").rename(net.folder / "z")
    await net.checkpoints.check_for_changes(thorough=True)
    known = net.checkpoints.folders.known_items()
    assert (known["0/y/b"].kind, known["0/z/a"].kind) == (
        folder_state.PathKind.FILE,
        folder_state.PathKind.TWIN,
    )
    assert await net.checkpoints.read_item_content(known["0/z/a"]) == b"one"
    fact = await net.step((net.folder / "y" / "b").unlink)
    assert fact is not None
    await net.undo(fact)
    assert (net.folder / "y" / "b").samefile(net.folder / "z" / "a")


async def test_what_is_written_through_a_mapping_after_a_look_belongs_to_the_step_and_can_be_undone(
    net: Net,
) -> None:
    """A page that was written to already is written to again without moving the file's times."""
    path = net.folder / "a"
    path.write_text("before")
    await settle(net.checkpoints)
    window = await net.checkpoints.begin_step("1", "c", "command")
    assert window is not None
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:] = b"middle"
        await net.checkpoints.check_for_changes(thorough=True)
        await settle(net.checkpoints)
        mapped[:] = b"after!"
    fact = await net.checkpoints.end_step(window, thorough=True)
    assert await names(net, fact) == ["0/a"]
    assert (
        await net.checkpoints.read_item_content(net.checkpoints.folders.last_item_at("0/a"))
        == b"after!"
    )
    assert fact is not None
    await net.undo(fact)
    assert path.read_text() == "before"


async def test_a_step_in_the_background_takes_nothing_of_calls_that_run_beside_it(net: Net) -> None:
    await net.checkpoints.ensure_first_check()
    behind = await net.checkpoints.begin_step("1", "one", "background")
    assert behind is not None
    (net.folder / "behind").write_text("1")
    call = await net.checkpoints.begin_step("2", "two", "command")
    assert call is not None
    (net.folder / "call").write_text("2")
    assert await names(net, await net.checkpoints.end_step(behind)) == ["0/behind"]
    assert await names(net, await net.checkpoints.end_step(call)) == ["0/call"]


async def test_what_an_undo_that_was_cut_short_left_is_known_from_the_first_check_alone(
    net: Net,
) -> None:
    left = net.folder / f".helix-undo-{'0' * 16}"
    left.write_text("the text of a file")
    await net.checkpoints.ensure_first_check()
    assert net.checkpoints.leftovers == [f"0/{left.name}"]
    (net.folder / f".helix-undo-{'1' * 16}").write_text("of an undo that runs now")
    await net.checkpoints.check_for_changes(thorough=True)
    assert net.checkpoints.leftovers == [f"0/{left.name}"]
    assert list(net.checkpoints.folders.known_items()) == [], "they are no files of the user"


async def test_lines_are_counted_up_to_a_size(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    file = net.folder / "a"
    file.write_text("1\n" * 5)
    monkeypatch.setattr(checkpoints, "MOST_COUNTED_BYTES", 22)
    fact = await net.step(lambda: file.write_text("2\n" * 6))
    assert fact is not None
    assert (fact.added, fact.removed) == (6, 5)
    fact = await net.step(lambda: file.write_text("3\n" * 6))
    assert fact is not None
    assert (fact.files, fact.added, fact.removed) == (1, 0, 0)
