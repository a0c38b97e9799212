"""What a killed program has changed belongs to the step that was open."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.errors import StoreFailed
from helix_desktop.tools.changes.change_attribution import OpenStep
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.changes.checkpoints import Checkpoints
from tests.tools.changes.conftest import Net

Recorded = list[tuple[str, FilesChanged]]


class Killed:
    """Checkpoints that are not closed, and their next start."""

    def __init__(self, net: Net, tmp_path: Path) -> None:
        self.net = net
        self.steps_file = tmp_path / "steps.json"
        self.recorded: Recorded = []
        self.is_disk_full = False
        self.started = self.begin()

    def begin(self, coverage: CheckpointCoverage | None = None) -> Checkpoints:
        async def record(conversation: str, fact: FilesChanged) -> None:
            if self.is_disk_full:
                raise StoreFailed("The disk is full.")
            self.recorded.append((conversation, fact))

        wanted = coverage or CheckpointCoverage()
        found = Checkpoints(
            [self.net.folder],
            self.net.cache,
            file=self.net.file,
            steps_file=self.steps_file,
            coverage=wanted,
        )
        found.record_changes = record
        return found

    async def step(
        self, by: str = "command", only: list[str] | None = None, call: str = "1"
    ) -> OpenStep:
        step = await self.started.begin_step(call, f"conversation {call}", by, only=only)
        assert step is not None
        return step

    async def start_again(
        self, coverage: CheckpointCoverage | None = None
    ) -> list[tuple[str, str, str, list[str]]]:
        """Return what was recorded: conversation, call, by and paths."""
        again = self.begin(coverage)
        await again.ensure_first_check()
        await again.aclose()
        if self.started._beat is not None:
            self.started._beat.cancel()  # As a killed program's is.
        return [
            (conversation, fact.call, fact.by, [path for path, _, _ in await self.changes_of(fact)])
            for conversation, fact in self.recorded
        ]

    async def changes_of(self, fact: FilesChanged) -> tuple[folder_state.PathChange, ...]:
        return folder_state.decode_difference(
            await self.net.cache.read_content(fact.difference.digest)
        )


@pytest.fixture
def killed(net: Net, tmp_path: Path) -> Killed:
    (net.folder / "old").write_text("before")
    return Killed(net, tmp_path)


async def test_what_a_command_has_changed_before_a_kill_is_its_own_and_can_be_undone(
    killed: Killed,
) -> None:
    await killed.step()
    (killed.net.folder / "old").write_text("after")
    (killed.net.folder / "new").mkdir()
    (killed.net.folder / "new" / "a").write_text("a")
    assert await killed.start_again() == [
        ("conversation 1", "1", "command", ["0/new", "0/new/a", "0/old"])
    ]
    assert await killed.start_again() == await killed.start_again(), "it is recorded once"
    again = killed.net.again()
    await again.ensure_first_check()
    await killed.net.undo(killed.recorded[0][1])
    assert {path.name: path.read_text() for path in killed.net.folder.iterdir()} == {
        "old": "before"
    }


async def test_a_file_tool_has_changed_its_own_path_alone(killed: Killed) -> None:
    await killed.step("tool", ["old"])
    (killed.net.folder / "old").write_text("after")
    (killed.net.folder / "other").write_text("somebody else, at the same time")
    assert await killed.start_again() == [("conversation 1", "1", "tool", ["0/old"])]


async def test_what_was_recorded_but_is_not_in_the_journal_is_recorded_as_it_was(
    killed: Killed,
) -> None:
    step = await killed.step()
    (killed.net.folder / "old").write_text("after\nmore")
    fact = await killed.started.end_step(step)
    (killed.net.folder / "old").write_text("the user's")
    assert await killed.start_again() == [("conversation 1", "1", "command", ["0/old"])]
    assert fact is not None
    assert killed.recorded[0][1].difference == fact.difference


async def test_what_cannot_be_recorded_yet_is_recorded_later(killed: Killed) -> None:
    await killed.step()
    (killed.net.folder / "old").write_text("after")
    killed.is_disk_full = True
    assert await killed.start_again() == []
    (killed.net.folder / "theirs").write_text("between two starts")
    again = killed.begin()
    await again.ensure_first_check()
    assert again.is_ready
    killed.is_disk_full = False
    step = await again.begin_step("2", "c", "command")
    assert step is not None
    assert await again.end_step(step) is None
    await again.aclose()
    assert [fact.names for _, fact in killed.recorded] == [("old",)]


async def test_what_the_journal_has_is_not_recorded_again(killed: Killed) -> None:
    step = await killed.step()
    (killed.net.folder / "old").write_text("after")
    fact = await killed.started.end_step(step)
    assert fact is not None
    killed.started.steps.forget_recorded_change(fact)
    await killed.step(call="2")
    (killed.net.folder / "new").write_text("after")
    assert await killed.start_again() == [("conversation 2", "2", "command", ["0/new"])]


async def test_steps_that_ran_side_by_side_each_have_their_own(killed: Killed) -> None:
    await killed.step()
    (killed.net.folder / "slow").write_text("of the command")
    tool = await killed.step("tool", ["old"], "2")
    (killed.net.folder / "old").write_text("of the tool")
    recorded = await killed.started.end_step(tool)
    assert recorded is not None
    killed.started.steps.forget_recorded_change(recorded)
    await killed.step("tool", ["old"], "3")
    (killed.net.folder / "old").write_text("of another tool")
    (killed.net.folder / "more").write_text("of the command")
    assert sorted(await killed.start_again()) == [
        ("conversation 1", "1", "command", ["0/more", "0/slow"]),
        ("conversation 3", "3", "tool", ["0/old"]),
    ]


async def test_what_users_do_after_a_kill_stays_theirs(killed: Killed) -> None:
    await killed.step()
    (killed.net.folder / "theirs").write_text("a minute after the kill")
    (killed.net.folder / "old").unlink()
    long_ago = time.time() - 60
    os.utime(killed.steps_file, (long_ago, long_ago))
    assert await killed.start_again() == []


async def test_while_a_step_runs_the_file_says_so(killed: Killed) -> None:
    step = await killed.step()
    os.utime(killed.steps_file, (1.0, 1.0))
    killed.started._show_that_steps_run()
    assert killed.steps_file.stat().st_mtime > 1.0
    assert killed.started._beat is not None
    killed.started._beat.cancel()
    await killed.started.end_step(step)
    assert not killed.steps_file.exists(), "nothing was changed, so there is nothing to record"
    killed.started._show_that_steps_run()
    assert killed.started._beat is None


async def test_a_command_in_the_background_has_what_it_changes_in_a_turn(killed: Killed) -> None:
    step = await killed.step()
    killed.started.steps.continue_in_background("1", "conversation 1")
    (killed.net.folder / "built").write_text("in the turn")
    assert await killed.start_again() == [("conversation 1", "1", "command", ["0/built"])]
    step.is_between_turns = True
    await killed.started.save_open_steps()
    (killed.net.folder / "theirs").write_text("between two turns")
    killed.recorded.clear()
    assert await killed.start_again() == []


@pytest.mark.parametrize("harm", [b"", b"{", b"[]", b'{"made_for": 1}'])
async def test_a_damaged_file_is_nothing(killed: Killed, harm: bytes) -> None:
    await killed.step()
    (killed.net.folder / "old").write_text("after")
    killed.steps_file.write_bytes(harm)
    assert await killed.start_again() == []


async def test_other_rules_make_no_changes_of_what_they_leave_out(killed: Killed) -> None:
    await killed.step()
    assert await killed.start_again(CheckpointCoverage(leave_out=("old",))) == []


@pytest.mark.parametrize("moment", ["check_for_changes", "build_change_fact"])
async def test_a_step_whose_end_is_cancelled_is_still_recorded(killed: Killed, moment: str) -> None:
    step = await killed.step()
    (killed.net.folder / "old").write_text("after")
    checkpoints = killed.started
    reached = asyncio.Event()
    real: Callable[..., object] = getattr(checkpoints, moment)

    async def wait_there(*given: object, **named: object) -> object:
        reached.set()
        await asyncio.Event().wait()
        return real(*given, **named)

    setattr(checkpoints, moment, wait_there)
    ending = asyncio.get_running_loop().create_task(checkpoints.end_step(step))
    await reached.wait()
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    setattr(checkpoints, moment, real)
    (open_step,) = checkpoints.steps.open_steps_of_conversation("conversation 1")
    fact = await checkpoints.end_step(open_step)
    assert fact is not None
    assert fact.names == ("old",)
    await checkpoints.aclose()


@pytest.mark.parametrize(
    ("file", "beside", "stays"),
    [
        ("before", "aft", False),
        ("after", "before", False),
        ("after", "the user's, of that very moment", True),
    ],
)
async def test_a_half_written_file_is_removed_unless_it_is_all_there_is_of_it(
    killed: Killed, file: str, beside: str, stays: bool
) -> None:
    await killed.step("tool", ["old"])
    left = killed.net.folder / ".old.0123456789ab.helix"
    (killed.net.folder / "old").write_text(file)
    left.write_text(beside)
    strange = killed.net.folder / ".new.0123456789ab.helix"
    strange.write_text("not of this step")
    await killed.start_again()
    assert (left.exists(), strange.exists()) == (stays, True)
