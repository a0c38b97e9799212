"""`recorder`: what its status says before anything was recorded, what is left out, and
what `forget` says.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.commands import build_command_line_parser, recorder_command
from helix_desktop.program_settings import (
    RECORDER_WITHOUT_AGENTS,
    RECORDER_WITHOUT_FOLDERS,
    ProgramSettings,
)
from helix_desktop.resident import history_recorder
from tests.commands.conftest import NOT_CONFIRMED, Helix
from tests.histories import written


def test_the_status_says_whether_there_is_anything_to_read(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    said = helix("recorder", "status")[1]
    assert said.startswith(
        "The recorder is off. No conversations from other programs were found on this computer.\n"
    )
    (tmp_path / ".claude" / "projects").mkdir(parents=True)
    said = helix("recorder", "status")[1]
    assert said.startswith(
        f"The recorder is off. It would read:\n- claude-code: {tmp_path}/.claude/projects\n"
    )


def test_the_status_says_what_was_not_read_and_why_the_last_import_failed() -> None:
    status = {
        "on": True,
        "recording": True,
        "reads": [{"agent": "codex", "folder": "/home/a/.codex"}],
        "without_agents": [],
        "without_folders": [],
        "keeps_in": "/home/a/helix",
        "last_import": 0.0,
        "damaged": ["A file is damaged."],
        "unread": ["A database was not read."],
        "keys": ["A key was recorded."],
        "trouble": "the disk is full",
    }
    assert recorder_command._describe_status(status)[-4:] == [
        "A file is damaged.",
        "A database was not read.",
        "A key was recorded.",
        "The last import failed and will be tried again: the disk is full",
    ]
    without_trouble = recorder_command._describe_status({**status, "trouble": ""})
    assert without_trouble[-1] == "A key was recorded."


def test_what_is_left_out_stays_left_out_until_it_is_named_again(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "private").mkdir()
    settings = ProgramSettings(program_folders.find_program_folders().settings_file)

    def turn_on(*words: str) -> tuple[list[str], list[str]]:
        given = ["recorder", "on", *words]
        recorder_command.change_exclusions(
            build_command_line_parser(given).parse_args(given), settings
        )
        status = json.loads(helix("recorder", "status", "--json")[1])
        return status["without_agents"], status["without_folders"]

    private = str(tmp_path / "private")
    other = str(tmp_path / "other")
    assert turn_on("--without-agent", "goose", "--without-folder", "~/private") == (
        ["goose"],
        [private],
    )
    assert turn_on("--without-folder", "private/../other", "--without-agent", "Codex") == (
        ["goose", "codex"],
        [private, other],
    )
    assert turn_on() == (["goose", "codex"], [private, other])
    said = helix("recorder", "status")[1]
    assert "- not recorded: conversations with goose\n" in said
    assert (
        f"- not recorded: work in {private}\n- not recorded: work in {other} (no such folder)\n"
        in said
    )
    assert turn_on("--with-agent", "goose", "--with-folder", "other") == (["codex"], [private])
    settings.change_setting(RECORDER_WITHOUT_AGENTS, "Claude Code\ncodex")
    assert turn_on("--with-agent", "claude-code") == (["codex"], [private]), (
        "as the window writes it"
    )
    settings.change_setting(RECORDER_WITHOUT_FOLDERS, "proj")
    assert "- not recorded: work in proj\n" in helix("recorder", "status")[1], (
        "it leaves out each folder of that name"
    )


def test_a_folder_that_is_left_out_without_its_full_path_is_left_out_wherever_it_is(
    tmp_path: Path,
) -> None:
    """Which folder is meant depended on where the recorder was started: after a login
    it left nothing out.
    """
    inside = tmp_path / "proj" / "deep"
    assert recorder_command.is_folder_within(str(inside), ["proj"])
    assert recorder_command.is_folder_within(str(inside), [str(tmp_path / "proj")])
    assert not recorder_command.is_folder_within(
        str(inside), ["roj", "other", "deep/proj", str(inside / "x")]
    )


def test_who_changes_what_is_left_out_is_told_what_becomes_of_older_conversations(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_resident(*_: object, **__: object) -> dict[str, object]:
        return {}

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(recorder_command, "ask_resident", no_resident)
    kept = recorder_command.STILL_THERE
    too = recorder_command.RECORDED_TOO

    def told(*words: str) -> list[bool]:
        code, out, _ = helix("recorder", "on", *words)
        assert code == 0
        return [kept in out, too in out]

    assert told() == [False, False]
    assert told("--without-folder", "~/private") == [True, False]
    assert told("--without-agent", "goose") == [True, False]
    assert told("--with-folder", "~/private") == [False, True]
    assert told("--with-agent", "goose", "--without-folder", "~/other") == [True, True]
    assert "on" in json.loads(helix("recorder", "on", "--with-folder", "~/other", "--json")[1])
    assert "recorder forget" in kept


def test_forget_answers_once_for_all_workspaces(tmp_path: Path, helix: Helix) -> None:
    for name, history in (("Empty", None), ("Work", written.codex), ("Thesis", written.claude)):
        (tmp_path / name).mkdir()
        assert helix("workspace", "new", name, "--folder", tmp_path / name)[0] == 0
        if history is not None:
            assert helix("conversation", "import", "-w", name, history(tmp_path / name))[0] == 0
    code, out, err = helix("recorder", "forget")
    assert (code, err, len(out.splitlines())) == (1, NOT_CONFIRMED, 2)
    code, out, _ = helix("recorder", "forget", "--json")
    assert (code, len(json.loads(out)["would_remove"])) == (1, 2)
    code, out, _ = helix("recorder", "forget", "--folder", tmp_path / "nowhere", "--yes")
    assert (code, out) == (0, "Removed 0 conversations and 0 entries (0 bytes).\n")
    code, out, _ = helix(
        "recorder",
        "forget",
        "--yes",
        "--json",
        "--agent",
        "codex",
        "--folder",
        tmp_path / "Empty/../Work",
    )
    assert (code, len(json.loads(out)["conversations"])) == (0, 1)
    code, out, _ = helix("recorder", "forget", "--yes")
    assert code == 0
    assert out.startswith("Removed 1 conversation and ")
    assert out.endswith(f" bytes) from Thesis.\n{recorder_command.NOT_AGAIN}\n")


def test_the_conversations_of_all_agents_are_imported_together(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each import opens the workspace, and a large one starts a process: one for each
    agent made 1 GB a quarter slower.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    files = [
        written.claude(tmp_path / ".claude"),
        written.codex(tmp_path / ".codex"),
        written.pi(tmp_path / ".pi" / "agent"),
    ]
    where = program_folders.find_program_folders()
    commands = list(
        recorder_command._group_imports_by_workspace(where, files, tmp_path / "no-copies", set())
    )
    assert [words[:3] for _, words in commands] == [[str(file) for file in files]]
    answer = recorder_command._answer_import_request(
        where, {"files": [str(file) for file in files]}, set()
    )
    assert answer == {"imported": 3, "trouble": "", "damaged": [], "keys": [], "unread": []}
    rows = files[0].read_bytes().splitlines(keepends=True)
    files[0].write_bytes(b"".join([b"\0" * 9 + b"\n", *rows[1:3], b"\0" * 9 + b"\n", *rows[4:]]))
    answer = recorder_command._answer_import_request(where, {"files": [str(files[0])]}, set())
    kept = f"{files[0]} is damaged. The messages that were recorded from it before are kept."
    assert (answer["trouble"], answer["damaged"]) == ("", [kept])

    async def running(*_: object) -> dict[str, object]:
        return {"recorder": answer}

    monkeypatch.setattr(recorder_command, "ask_resident", running)
    assert kept in helix("recorder", "status")[1].splitlines()
    assert json.loads(helix("recorder", "status", "--json")[1])["damaged"] == [kept]


def test_keys_in_a_recorded_conversation_are_named_in_shortened_form(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only an import did this: a recorded conversation with three keys showed nothing at all."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    key = "ghp_" + "aB3d" * 9
    other = "sk-" + "ant-api03-" + "x1Y2" * 8
    rows = written.claude_session()
    rows[0] = written.claude_said(1, None, f"my key is {key}")
    rows[4] = written.claude_said(5, 4, [written.result("t1", f"{written.OUTPUT}\nKEY={other}\n")])
    file = written.lines(tmp_path / ".claude/projects/p/session-1.jsonl", rows)
    where = program_folders.find_program_folders()
    answer = recorder_command._answer_import_request(where, {"files": [str(file)]}, set())
    (workspace,) = json.loads(helix("workspace", "list", "--json")[1])
    (row,) = json.loads(helix("conversation", "list", "-w", workspace["id"], "--json")[1])
    command = f"`helix-desktop forget -w {workspace['id']} --text -`"
    told = f"Text that looks like a key was recorded in conversation {row['id']}: %s. To remove it, use {command}."
    assert answer["keys"] == [told % "ghp_aB3…3d", told % "sk-ant-…Y2"]
    _, out, err = helix("conversation", "show", "-w", workspace["id"], row["id"])
    assert err == f"This looks like a key: ghp_aB3…3d, sk-ant-…Y2. To remove it, use {command}.\n"
    assert other not in out

    async def running(*_: object) -> dict[str, object]:
        return {"recorder": answer}

    monkeypatch.setattr(recorder_command, "ask_resident", running)
    assert (told % "ghp_aB3…3d") in helix("recorder", "status")[1].splitlines()
    assert json.loads(helix("recorder", "status", "--json")[1])["keys"] == answer["keys"]
    again = recorder_command._answer_import_request(where, {"files": [str(file)]}, set())
    assert again["keys"] == [], "it is named once"


def test_copies_that_could_never_be_imported_go_with_forgetting(
    tmp_path: Path, helix: Helix
) -> None:
    """They crashed the import three times, were set aside, and stayed with what was to
    be forgotten.
    """
    assert helix("workspace", "new", "Work", "--folder", tmp_path)[0] == 0
    pending = history_recorder.folder_of_pending_copies(program_folders.find_program_folders())
    with_text = pending / "1.failed" / "home" / "a.jsonl"
    without = pending / "2.failed" / "home" / "b.jsonl"
    for file, text in ((with_text, "the-old-password-77"), (without, "nothing")):
        file.parent.mkdir(parents=True)
        file.write_text(f'{{"text": "{text}"}}\n', "utf-8")
    helix("forget", "-w", "Work", "--text", "the-old-password-77", "--yes")
    assert (with_text.exists(), without.exists()) == (False, True)
    helix("recorder", "forget")
    assert without.exists()
    helix("recorder", "forget", "--yes")
    assert not without.exists()
