"""The recorder as users have it: the resident in its own process, agents' files that
grow, are cut, written anew and deleted.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import cli, program_folders
from helix_desktop.histories import pending_copies
from helix_desktop.histories.daily_read_check import DAY_SECONDS, read_checked_files
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.pending_copies import path_of_copy
from helix_desktop.processes.starter import own_program_command
from helix_desktop.program_settings import RECORDER, RECORDER_WITHOUT_AGENTS, ProgramSettings
from helix_desktop.resident import history_recorder
from helix_desktop.resident.gateway_keeper import GatewayKeeper
from helix_desktop.resident.page_keeper import PageKeeper
from helix_desktop.resident.resident_process import Resident
from helix_desktop.resident.schedule_keeper import ScheduleKeeper
from helix_desktop.tools.changes.folder_watch import FolderWatch
from tests.conftest import Expect
from tests.histories import written
from tests.resident.test_resident_process import is_gone

Helix = Callable[..., Any]
AGENT_VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "GEMINI_CLI_HOME", "PI_CODING_AGENT_DIR")  # fmt: skip


@pytest.fixture
def helix(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Helix]:
    """Runs commands with a home of its own, and stops the resident at the end. What
    only reads needs no process.
    """
    me = tmp_path / "me"
    (me / "project").mkdir(parents=True)
    environment = {
        name: value for name, value in os.environ.items() if name not in AGENT_VARIABLES
    } | {"HOME": str(me)}

    def run(*arguments: str) -> Any:
        is_json = "export" not in arguments
        words = ["--home", str(tmp_path / "helix"), *arguments, *(["--json"] if is_json else [])]
        if arguments[0] in {"workspace", "conversation"}:
            code = cli.main(words)
            out, err = capfd.readouterr()
        else:
            command = [sys.executable, "-m", "helix_desktop", *words]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            code = done.returncode
            out = done.stdout
            err = done.stderr
        assert code == 0, err
        return json.loads(out) if is_json else out

    yield run
    run("recorder", "off")
    run("resident", "stop")


def wait_until(done: Callable[[], bool], seconds: float = 200) -> None:
    """Until another process or thread has done it."""
    pause = threading.Event()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if done():
            return
        pause.wait(0.01)  # Looking without a pause would take a processor from what is waited for.
    raise AssertionError("it was not done in time")


def session(me: Path, count: int) -> list[dict[str, Any]]:
    turns = [written.claude_said(1, None, "list the files", cwd=str(me / "project"))]
    for number in range(1, count + 1):
        turns.append(written.claude_reply(10 * number, None, f"m{number}", written.text(f"answer {number}")))  # fmt: skip
        turns[-1]["parentUuid"] = turns[-2]["uuid"]
    return turns


def recorded_texts(helix: Helix, workspace: str) -> str:
    if workspace not in {one["name"] for one in helix("workspace", "list")}:
        return ""
    listed = helix("conversation", "list", "-w", workspace)
    return "".join(helix("conversation", "export", "-w", workspace, one["id"]) for one in listed)


class StoppedMeanwhile(history_recorder.ImportingProcess):
    """One that is asked when recording stops at that very moment."""

    stop: Callable[[], None]

    def ask_process(self, request: Mapping[str, object]) -> dict[str, Any] | None:
        self.stop()
        return super().ask_process(request)


class HeldBack(history_recorder.ImportingProcess):
    """One that imports nothing as long as the test looks."""

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(command)
        self.may_end = threading.Event()

    def ask_process(self, request: Mapping[str, object]) -> dict[str, Any] | None:
        self.may_end.wait(200)
        return {"imported": 0, "trouble": "", "is_checked": True}


@pytest.mark.parametrize(
    ("took", "failures", "pause"),
    [
        (0.1, 0, 1.0),
        (5.0, 0, 20.0),
        (600.0, 0, 30.0),
        (0.1, 3, 8.0),
        (5.0, 3, 20.0),
        (600.0, 3, 240.0),
        (0.1, 99, 64.0),
    ],
)
def test_a_slow_import_that_failed_is_tried_again_as_soon_as_one_that_did_not(
    took: float, failures: int, pause: float
) -> None:
    assert history_recorder.compute_import_pause(took, failures) == pause


def test_a_process_that_was_started_while_recording_stops_is_ended(tmp_path: Path) -> None:
    answers = [
        "/bin/sh",
        "-c",
        """while read -r line; do echo '{"imported": 0, "trouble": ""}'; done""",
    ]
    importing = StoppedMeanwhile(answers)
    where = program_folders.find_program_folders(tmp_path / "helix")
    recorder = history_recorder.HistoryRecorder(where, [], HistoryPlaces(tmp_path, {}), importing)
    importing.stop = recorder.stop_recording
    recorder.queue_files_for_import([tmp_path / "history.jsonl"])
    recorder.import_until_ended()
    assert importing.pid == 0


def write_pending_copies(recorded_in: Path, names: Sequence[str]) -> None:
    for name in names:
        (recorded_in / name).mkdir(parents=True)
        (recorded_in / name / "session.jsonl").write_text("{}\n")


def test_copies_after_those_that_crashed_the_import_have_as_many_tries(
    tmp_path: Path, expect: Expect
) -> None:
    expect("The importing process ended")
    where = program_folders.find_program_folders(tmp_path / "helix")
    folder = history_recorder.folder_of_pending_copies(where)
    write_pending_copies(folder, ["1", "2"])
    recorder = history_recorder.HistoryRecorder(where, ["/bin/false"], HistoryPlaces(tmp_path, {}))
    for _ in range(history_recorder.MOST_DEATHS):
        assert not recorder._import_copies()
    assert sorted(path.name for path in folder.iterdir()) == ["1.failed", "2"]


def test_copies_wait_while_the_importing_process_cannot_start(
    tmp_path: Path, expect: Expect
) -> None:
    """So it is for a moment while the program is being updated."""
    expect("The importing process could not start: No such file or directory.")
    where = program_folders.find_program_folders(tmp_path / "helix")
    folder = history_recorder.folder_of_pending_copies(where)
    write_pending_copies(folder, ["1"])
    gone = [str(tmp_path / "gone")]
    recorder = history_recorder.HistoryRecorder(where, gone, HistoryPlaces(tmp_path, {}))
    for _ in range(2 * history_recorder.MOST_DEATHS):
        assert not recorder._import_copies()
    assert [path.name for path in folder.iterdir()] == ["1"]


def test_importing_goes_on_after_a_moment_in_which_the_disk_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expect: Expect
) -> None:
    expect("The copies cannot be taken up: No space left on device.")
    where = program_folders.find_program_folders(tmp_path / "helix")
    answers = [
        "/bin/sh",
        "-c",
        'while read -r line; do echo \'{"imported": 1, "trouble": ""}\'; done',
    ]
    recorder = history_recorder.HistoryRecorder(where, answers, HistoryPlaces(tmp_path, {}))
    seal_copies = recorder._copies.seal_and_list_folders
    refusals = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]

    def seal_after_refusal() -> list[Path]:
        if refusals:
            raise refusals.pop()
        return seal_copies()

    monkeypatch.setattr(recorder._copies, "seal_and_list_folders", seal_after_refusal)
    recorder.start_recording()
    recorder.queue_files_for_import([tmp_path / "history.jsonl"])
    wait_until(lambda: recorder.last_import > 0.0)
    recorder.stop_recording()
    assert not recorder.trouble


def test_an_agent_whose_folder_cannot_be_looked_at_keeps_no_other_from_being_recorded(
    tmp_path: Path,
) -> None:
    """As where it was started with sudo once. The tests' user may enter every folder, so
    the name is one that the system refuses.
    """
    where = program_folders.find_program_folders(tmp_path / "helix")
    file = tmp_path / ".claude" / "projects" / "-project" / "session.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    importing = HeldBack([])
    places = HistoryPlaces(tmp_path, {"CODEX_HOME": str(tmp_path / ("refused" * 50))})
    recorder = history_recorder.HistoryRecorder(where, [], places, importing)
    recorder.start_recording()
    copies = history_recorder.folder_of_pending_copies(where)
    wait_until(lambda: any(files for _, _, files in os.walk(copies)))
    importing.may_end.set()
    recorder.stop_recording()


def test_the_first_conversation_of_an_agent_is_copied_while_it_is_written(tmp_path: Path) -> None:
    """Its folder is not there when recording starts, and the agent never pauses."""
    where = program_folders.find_program_folders(tmp_path / "helix")
    importing = HeldBack([])
    recorder = history_recorder.HistoryRecorder(where, [], HistoryPlaces(tmp_path, {}), importing)
    recorder.start_recording()
    path = tmp_path / ".codex" / "sessions" / "rollout-1.jsonl"
    path.parent.mkdir(parents=True)

    def is_copied_while_it_grows() -> bool:
        with path.open("a", encoding="utf-8") as file:
            file.write("{}\n")
        return any(
            files for _, _, files in os.walk(history_recorder.folder_of_pending_copies(where))
        )

    wait_until(is_copied_while_it_grows)
    importing.may_end.set()
    recorder.stop_recording()


def test_where_the_kernel_gives_no_more_watches_the_folders_are_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expect: Expect
) -> None:
    """The defect: with 128 watchers of other programs nothing was recorded. A file's
    second may not be over yet.
    """

    def refuse_to_watch(*_: object) -> None:
        raise RuntimeError("Error creating recommended watcher: Too many open files (os error 24)")

    monkeypatch.setattr("watchfiles._rust_notify.RustNotify", refuse_to_watch)
    monkeypatch.setattr(FolderWatch, "is_watching", False)
    monkeypatch.setattr(history_recorder, "POLL_SECONDS", 0.01)
    where = program_folders.find_program_folders(tmp_path / "helix")
    importing = HeldBack([])
    recorder = history_recorder.HistoryRecorder(where, [], HistoryPlaces(tmp_path, {}), importing)
    path = tmp_path / ".codex" / "sessions" / "rollout-1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("{}\n", "utf-8")

    def is_copied(content: str) -> bool:
        copies = history_recorder.folder_of_pending_copies(where)
        found = (
            path_of_copy(folder, path) for folder in (copies.iterdir() if copies.is_dir() else ())
        )
        with suppress(
            FileNotFoundError
        ):  # The recorder may take it away between the look and the reading.
            return any(one.is_file() and one.read_text("utf-8") == content for one in found)
        return False

    expect("they cannot be watched")
    recorder.start_recording()
    for content in ("{}\n", "{}\n[]\n", "[2]\n"):
        path.write_text(content, "utf-8")
        wait_until(lambda content=content: is_copied(content), 20)  # type: ignore[misc]
    importing.may_end.set()
    recorder.stop_recording()
    assert "watch histories" not in {thread.name for thread in threading.enumerate()}


def test_a_folder_that_cannot_be_read_while_all_are_looked_through_does_not_end_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expect: Expect
) -> None:
    """The error left the thread, and nothing was recorded until the next start."""

    def refuse_to_watch(*_: object) -> None:
        raise OSError("no watches are left")

    def refuse_once(*_: object) -> None:
        begun.append("read")
        if len(begun) == 1:
            raise PermissionError("it cannot be read")

    begun: list[str] = []
    monkeypatch.setattr("watchfiles._rust_notify.RustNotify", refuse_to_watch)
    monkeypatch.setattr(history_recorder, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(history_recorder.HistoryRecorder, "_copy_existing_files", refuse_once)
    where = program_folders.find_program_folders(tmp_path / "helix")
    recorder = history_recorder.HistoryRecorder(
        where, [], HistoryPlaces(tmp_path, {}), HeldBack([])
    )
    expect("they cannot be watched")
    expect("removed or cannot be read")
    recorder.start_recording()
    wait_until(lambda: len(begun) > 1, 20)
    recorder.stop_recording()


def test_a_database_that_changed_soon_after_its_copy_is_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent rests after its last change, and nothing is imported meanwhile."""
    monkeypatch.setattr(
        pending_copies, "DATABASE_SHARE", 300.0
    )  # Long enough for the change to come too soon.
    where = program_folders.find_program_folders(tmp_path / "helix")
    database = tmp_path / ".local" / "share" / "opencode" / "opencode.db"
    database.parent.mkdir(parents=True)
    importing = HeldBack([])
    recorder = history_recorder.HistoryRecorder(where, [], HistoryPlaces(tmp_path, {}), importing)

    def copied_rows() -> int:
        count = 0
        with suppress(FileNotFoundError):  # The recorder removes folders meanwhile.
            for copy in history_recorder.folder_of_pending_copies(where).rglob(database.name):
                with suppress(sqlite3.Error), closing(sqlite3.connect(copy)) as connection:
                    count = max(
                        count, connection.execute("SELECT count(*) FROM part").fetchone()[0]
                    )
        return count

    with closing(sqlite3.connect(database)) as agent:
        agent.execute("CREATE TABLE part (id)")
        recorder.start_recording()
        for number in (1, 2):
            with agent:
                agent.execute("INSERT INTO part VALUES (?)", (number,))
            wait_until(lambda number=number: copied_rows() == number)  # type: ignore[misc]
    importing.may_end.set()
    recorder.stop_recording()


def test_nothing_is_copied_once_recording_has_stopped(tmp_path: Path) -> None:
    """Another recorder may import these copies then, and would leave out what is still
    being written.
    """
    where = program_folders.find_program_folders(tmp_path / "helix")
    for number in range(500):
        written.lines(
            tmp_path / ".claude" / "projects" / "-p" / f"session-{number}.jsonl",
            session(tmp_path, 1),
        )
    importing = HeldBack([])
    importing.may_end.set()
    recorder = history_recorder.HistoryRecorder(where, [], HistoryPlaces(tmp_path, {}), importing)
    recorder.start_recording()
    wait_until(
        lambda: any(
            files for _, _, files in os.walk(history_recorder.folder_of_pending_copies(where))
        )
    )
    recorder.stop_recording()
    assert not {"watch histories", "import histories"} & {
        thread.name for thread in threading.enumerate()
    }


async def test_a_resident_that_is_told_several_times_at_once_has_one_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    where = program_folders.find_program_folders(tmp_path / "helix")
    ProgramSettings(where.settings_file).change_setting(RECORDER, value=True)
    resident = Resident(where, GatewayKeeper([]), ScheduleKeeper(where.data, []), PageKeeper([]))
    await asyncio.gather(*(resident.start_or_stop_recorder() for _ in range(4)))
    assert resident._recorder is not None
    resident._recorder.keys["a key"] = None
    await resident.start_or_stop_recorder()
    assert resident.resident_status_as_json()["recorder"]["keys"] == ["a key"], (
        "`recorder on` starts it twice"
    )
    assert [thread.name for thread in threading.enumerate()].count("watch histories") == 1
    await resident.aclose()
    assert "watch histories" not in {thread.name for thread in threading.enumerate()}


def test_what_was_on_the_disk_is_kept_through_growing_cutting_deleting_and_kills(
    tmp_path: Path, helix: Helix
) -> None:
    me = tmp_path / "me"
    copies = tmp_path / "helix" / "recorder"

    def is_recorded(text: str) -> bool:
        """Asked now and then, and not while a copy waits to be imported: who looks
        keeps the recorder out.
        """
        time.sleep(0.05)
        return not any(files for _, _, files in os.walk(copies)) and text in recorded_texts(
            helix, "project"
        )

    path = written.lines(me / ".claude" / "projects" / "-p" / "session-1.jsonl", session(me, 2))
    status = helix(
        "recorder", "on", "--without-agent", "goose", "--without-folder", str(tmp_path / "private")
    )
    helix("recorder", "on")  # a second time, while the first has just started to import
    assert [(one["agent"], one["folder"]) for one in status["reads"]] == [
        ("claude-code", str(me / ".claude/projects"))
    ]
    wait_until(lambda: is_recorded("answer 2"))
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in session(me, 4)[3:])
    resident = helix("resident", "status")
    wait_until(lambda: is_recorded("answer 4"))
    os.kill(helix("resident", "status")["recorder"]["pid"], signal.SIGKILL)
    written.lines(path, session(me, 6))
    wait_until(lambda: is_recorded("answer 6"))
    os.kill(resident["pid"], signal.SIGKILL)
    wait_until(lambda: is_gone(resident["pid"]))
    written.lines(path, session(me, 7))
    helix("recorder", "on")
    wait_until(lambda: is_recorded("answer 7"))
    path.unlink()
    private = [
        {**line, "cwd": str(tmp_path / "private" / "deep"), "sessionId": "other"}
        for line in session(me, 3)
    ]
    written.lines(path.with_name("other.jsonl"), private)
    written.lines(
        path.with_name("third.jsonl"), [{**line, "sessionId": "third"} for line in session(me, 8)]
    )
    wait_until(lambda: is_recorded("answer 8"))
    assert [one["name"] for one in helix("workspace", "list")] == ["project"]
    assert "answer 7" in recorded_texts(helix, "project")
    assert not [one for one in copies.rglob("*") if one.is_file()]
    assert helix("recorder", "off")["on"] is False
    assert helix("recorder", "status")["recording"] is False


def switches_of(thread: int) -> int:
    """How often a thread of this process went to sleep so far."""
    status = Path(f"/proc/self/task/{thread}/status").read_text("utf-8")
    return int(
        next(
            line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches")
        ).split()[1]
    )


def rests_for(thread: int, seconds: float) -> bool:
    pause = threading.Event()
    before = switches_of(thread)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if switches_of(thread) != before:
            return False
        pause.wait(0.02)
    return switches_of(thread) == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify")
def test_nothing_runs_while_nothing_changes_and_a_change_is_copied_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        history_recorder, "ACTIVE_SECONDS", 1.0
    )  # So that it rests between the changes.
    where = program_folders.find_program_folders(tmp_path / "helix")
    sessions = tmp_path / ".codex" / "sessions"
    for number in range(100):
        path = written.lines(sessions / str(number % 9) / f"rollout-{number}.jsonl", [{}])
        os.utime(path, (1, 1))
    importing = HeldBack([])
    recorder = history_recorder.HistoryRecorder(where, [], HistoryPlaces(tmp_path, {}), importing)
    recorder.start_recording()
    (watching,) = (
        one.native_id or 0 for one in threading.enumerate() if one.name == "watch histories"
    )
    wait_until(lambda: rests_for(watching, 2.5), 40)
    first = sessions / "3" / "rollout-3.jsonl"
    second = sessions / "new" / "rollout-1.jsonl"
    third = tmp_path / ".pi" / "agent" / "sessions" / "p" / "s.jsonl"
    fourth = sessions / "3" / "rollout-4.jsonl"

    def is_copied(path: Path) -> bool:
        copies = history_recorder.folder_of_pending_copies(where)
        return any(
            path_of_copy(folder, path).is_file()
            for folder in (copies.iterdir() if copies.is_dir() else ())
        )

    for path in (first, second, third, fourth):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("{}\n")
        wait_until(lambda path=path: is_copied(path), 20)  # type: ignore[misc]
        if path != first:
            wait_until(lambda: rests_for(watching, 1.5), 40)
    ProgramSettings(where.settings_file).change_setting(RECORDER_WITHOUT_AGENTS, "codex")
    wait_until(lambda: "codex" not in {kind for kind, _ in recorder._recorded}, 40)
    importing.may_end.set()
    recorder.stop_recording()
    assert "watch histories" not in {thread.name for thread in threading.enumerate()}


def count_kernel_watches() -> int:
    found = 0
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # Something closed it.
            found += "inotify" in str(handle.readlink())
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify")
def test_a_recorder_that_rests_stops_at_once_and_without_agents_it_rests_too(
    tmp_path: Path,
) -> None:
    where = program_folders.find_program_folders(tmp_path / "helix")
    recorder = history_recorder.HistoryRecorder(
        where, [], HistoryPlaces(tmp_path, {}), HeldBack([])
    )
    handles = count_kernel_watches()
    recorder.start_recording()
    (watching,) = (
        one.native_id or 0 for one in threading.enumerate() if one.name == "watch histories"
    )
    wait_until(lambda: rests_for(watching, 2.5), 40)
    recorder.stop_recording()
    assert "watch histories" not in {thread.name for thread in threading.enumerate()}
    wait_until(
        lambda: count_kernel_watches() <= handles, 20
    )  # The library ends its own thread, which closes the last one.


def test_what_agents_write_is_checked_once_a_day_after_restarts_and_whatever_the_clock_says(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = tmp_path / "me"
    monkeypatch.setattr(history_recorder, "SHORTEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(history_recorder, "PAUSE_SHARE", 0.0)
    monkeypatch.setenv("HOME", str(me))
    for name in AGENT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    where = program_folders.find_program_folders(tmp_path / "helix")
    ProgramSettings(where.settings_file).change_setting(RECORDER_WITHOUT_AGENTS, "codex")
    sessions = me / ".claude" / "projects" / "-p"
    mood = written.claude_said(99, None, "more", mood="good", cwd=str(me / "project"))
    path = written.lines(sessions / "session-1.jsonl", [*session(me, 2), mood])
    written.lines(me / ".codex" / "sessions" / "rollout-1.jsonl", [{"type": "tomorrow"}])
    clock = [2_000_000_000.0]
    command = own_program_command("--home", str(tmp_path / "helix"))

    def start() -> history_recorder.HistoryRecorder:
        places = HistoryPlaces(me, {})
        started = history_recorder.HistoryRecorder(where, command, places, now=lambda: clock[0])
        started.start_recording()
        return started

    def look_at_clock() -> None:
        recorder.queue_files_for_import([])
        wait_until(lambda: not recorder._has_work.is_set())

    def is_checked() -> bool:
        return read_checked_files(where.data).finished_at == clock[0]

    recorder = start()
    wait_until(is_checked)
    wait_until(lambda: recorder._seconds_until_check() > 0)
    (sentence,) = helix("recorder", "status")["unread"]
    assert "Claude Code 2.1.197: 1 file" in sentence
    assert "not read yet: the field mood (1)." in sentence

    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(mood | {"weather": "fine", "uuid": "u100"}) + "\n")
    clock[0] += DAY_SECONDS - 1
    look_at_clock()
    recorder.stop_recording()
    recorder = start()
    assert recorder._seconds_until_check() == 1.0, "a restart is no reason to check again"
    clock[0] += 1
    look_at_clock()
    wait_until(is_checked)
    (sentence,) = helix("recorder", "status")["unread"]
    assert "not read yet: the field mood (2), the field weather (1)." in sentence

    for days in (-365, 365):
        wait_until(lambda: recorder._seconds_until_check() > 0)
        clock[0] += days * DAY_SECONDS
        look_at_clock()
        wait_until(is_checked)
        wait_until(lambda: recorder._seconds_until_check() == DAY_SECONDS)
    recorder.stop_recording()
    assert list(read_checked_files(where.data).files) == [str(path)], "what is excluded is not read"
