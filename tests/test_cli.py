"""The command line, whole: what goes in, what comes out, and the exit codes."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import __version__, cli, program_folders
from helix_desktop.atomic_files import ReplacementFile
from helix_desktop.commands import workspace_access
from helix_desktop.engine.facts import ConversationChanged, ConversationStarted, ToolReturned
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.store.all_workspaces import AllWorkspaces

PROGRAM = [sys.executable, "-m", "helix_desktop"]
CONTENTS = {
    "empty": b"",
    "a line": b"hello\n",
    "every byte": bytes(range(256)) * 10,
    "windows lines": b"one\r\ntwo\r\n",
    "utf-16": "Überraschung 你好".encode("utf-16"),
    "several chunks": random.Random(1).randbytes(3_000_001),
}


class Said:
    """What a command line came to."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Helix = Callable[..., Said]


@pytest.fixture
def helix(capfdbinary: pytest.CaptureFixture[bytes]) -> Helix:
    def run(*arguments: object) -> Said:
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = capfdbinary.readouterr()
        return Said(code, out.decode(), err.decode())

    return run


@pytest.fixture
def workspace(helix: Helix, tmp_path: Path) -> str:
    return helix("workspace", "new", "Work", "--folder", tmp_path).out.strip()


# --- cache


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_what_was_put_comes_out_byte_for_byte(
    helix: Helix, workspace: str, tmp_path: Path, content: bytes
) -> None:
    source = tmp_path / "source"
    target = tmp_path / "target"
    source.write_bytes(content)
    said = helix("cache", "put", "--workspace", workspace, source)
    assert (said.code, said.out.strip(), said.err) == (0, hashlib.sha256(content).hexdigest(), "")
    assert helix("cache", "get", "--workspace", workspace, said.out[:12], "-o", target).code == 0
    assert target.read_bytes() == content


@pytest.mark.parametrize("name", ["empty", "windows lines", "several chunks"])
def test_through_pipes_as_well(workspace: str, name: str) -> None:
    content = CONTENTS[name]
    put = subprocess.run(
        PROGRAM + ["cache", "put", "-w", workspace, "-"],
        input=content,
        capture_output=True,
        check=True,
    )
    digest = put.stdout.decode().strip()
    get = PROGRAM + ["cache", "get", "-w", workspace, digest]
    got = subprocess.run(get, capture_output=True, check=True)
    assert got.stdout == content


def test_a_workspace_is_named_or_numbered_in_any_case(
    helix: Helix, workspace: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("a")
    assert [
        helix("cache", "put", "-w", name, tmp_path / "a").code
        for name in (workspace, "Work", "WORK")
    ] == [0, 0, 0]
    assert helix("cache", "stats", "-w", "work", "--json").json["entries"] == 1


def test_list_search_and_stats_for_people_and_programs(
    helix: Helix, workspace: str, tmp_path: Path
) -> None:
    for name in ("one.log", "two.log"):
        (tmp_path / name).write_text(f"the kettle of {name} boils\n")
        helix("cache", "put", "-w", workspace, tmp_path / name)
    listed = helix("cache", "list", "-w", workspace, "--json").json
    assert [entry["source"] for entry in listed] == ["two.log", "one.log"]
    assert listed[0]["sha256"][:16] in helix("cache", "list", "-w", workspace).out
    shortened = helix("cache", "list", "-w", workspace, "--limit", 1)
    assert (len(shortened.out.splitlines()), "1 more" in shortened.err) == (1, True)
    found = helix("cache", "search", "-w", workspace, "two.log", "kettle", "--json").json
    assert (found[0]["source"], found[0]["line"]) == ("two.log", 1)
    assert (
        len(helix("cache", "search", "-w", workspace, "kettle", "--limit", 0, "--json").json) == 2
    )
    assert helix("cache", "search", "-w", workspace, "teapot").code == 1
    assert "entries" in helix("cache", "stats", "-w", workspace).out


def test_a_cache_beyond_its_limit_is_said_and_left_alone(
    helix: Helix, workspace: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(random.Random(7).randbytes(5000))
    assert helix("cache", "put", "-w", workspace, tmp_path / "a").err == "", "there is no limit"
    settings = (
        program_folders.find_program_folders().workspaces_folder / workspace / "workspace.toml"
    )
    settings.write_text(settings.read_text() + "\n[limits]\ncache_bytes = 2000\n")
    (tmp_path / "b").write_bytes(random.Random(8).randbytes(3000))
    said = helix("cache", "put", "-w", workspace, tmp_path / "b")
    assert said.code == 0
    assert "6,002 bytes over its limit of 2,000 bytes" in said.err
    assert f"cache collect --workspace {workspace} --to 2000" in said.err
    figures = helix("cache", "stats", "-w", workspace, "--json")
    assert (figures.json["limit"], figures.json["over_limit"], figures.json["entries"]) == (
        2000,
        6002,
        2,
    )
    assert "6,002 bytes over its limit" in figures.err
    collected = helix("cache", "collect", "-w", workspace, "--to", 2000)
    assert "Removed 0 entries" in collected.out
    assert "8,002 bytes belong to entries" in collected.err, "put by hand stays"


async def thrown_away(workspace: str) -> None:
    """Two conversations, one of them in the trash."""
    opened = await AllWorkspaces(
        program_folders.find_program_folders().workspaces_folder
    ).open_stored_workspace(workspace)
    for name in ("kept", "thrown away"):
        stored = await opened.cache.store_content(name.encode() * 100, EntryOrigin("shell"))
        await opened.journal.append_to_journal(
            name, [ConversationStarted(f"Title, {name}"), ToolReturned("1", stored, 1)]
        )
    await opened.journal.append_to_journal("thrown away", [ConversationChanged(trashed=True)])
    await opened.aclose()


def test_the_trash_of_conversations_is_emptied_when_one_says_so(
    helix: Helix, workspace: str
) -> None:
    asyncio.run(thrown_away(workspace))
    assert helix("workspace", "empty-trash", "--sideways", workspace).code == 2
    asked = helix("workspace", "empty-trash", workspace, "--json")
    assert (asked.code, len(asked.json["would_remove"])) == (1, 1)
    said = helix("workspace", "empty-trash", workspace)
    assert (said.code, said.out) == (1, "thrown away  Title, thrown away\n")
    assert "Nothing was changed. To confirm, add --yes.\n" in said.err
    assert helix("workspace", "show", workspace, "--json").json["conversations"] == 2
    removed = helix("workspace", "empty-trash", "work", "--yes", "--json").json
    assert (removed["conversations"], removed["entries"], removed["bytes"] > 0) == (
        ["thrown away"],
        1,
        True,
    )
    shown = helix("workspace", "show", workspace, "--json").json
    assert (shown["conversations"], shown["entries"]) == (1, 1)
    nothing = helix("workspace", "empty-trash", workspace)
    assert (nothing.code, nothing.out) == (0, "Removed 0 conversations and 0 entries (0 bytes).\n")


class AtTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "left"), [("y\n", 1), ("\n", 2), ("", 2), (None, 2)])
def test_on_a_terminal_it_asks(
    helix: Helix, workspace: str, monkeypatch: pytest.MonkeyPatch, answer: str | None, left: int
) -> None:
    """Also Ctrl+D, and a closed input, are no."""
    asyncio.run(thrown_away(workspace))
    monkeypatch.setattr(sys, "stdin", None if answer is None else AtTerminal(answer))
    assert helix("workspace", "empty-trash", workspace).code == (0 if left == 1 else 1)
    assert helix("workspace", "show", workspace, "--json").json["conversations"] == left


def test_get_as_json_holds_text_or_base64(helix: Helix, workspace: str, tmp_path: Path) -> None:
    for name, content in (("t", "täxt".encode()), ("b", b"\xff\x00")):
        (tmp_path / name).write_bytes(content)
    digests = [helix("cache", "put", "-w", workspace, tmp_path / name).out.strip() for name in "tb"]
    described = [
        helix("cache", "get", "-w", workspace, digest, "--json").json for digest in digests
    ]
    assert (described[0]["text"], described[1]["base64"]) == ("täxt", "/wA=")


def test_verify_names_what_is_damaged_and_collect_makes_room(
    helix: Helix, workspace: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(random.Random(5).randbytes(200_000))
    digest = helix("cache", "put", "-w", workspace, tmp_path / "a").out.strip()
    assert helix("cache", "verify", "-w", workspace, "--json").json["entries"] == 1
    assert helix("cache", "collect", "-w", workspace, "--json").json == {
        "removed": 0,
        "bytes": 0,
    }, "put by hand stays"
    largest = max(
        (program_folders.find_program_folders().workspaces_folder / workspace / "cache").iterdir(),
        key=lambda path: path.stat().st_size,
    )
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    (tmp_path / "a").unlink()  # Otherwise the entry would be restored from this file.
    said = helix("cache", "verify", "-w", workspace)
    assert "damaged" in said.out + said.err
    assert "lost: 1" in said.err
    assert helix("cache", "get", "-w", workspace, digest, "-o", tmp_path / "b").code == 1
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["cache", "get", "-w", "Work", "abcd1234"], 1, "begins with abcd1234"),
        (["cache", "get", "-w", "Work", "not a hash"], 2, "hexadecimal"),
        (["cache", "put", "-w", "Work", "/no/such/file"], 1, "/no/such/file does not exist"),
        (["cache", "put", "-w", "Play", "-"], 1, "There is no workspace Play"),
        (["cache", "get"], 2, "arguments are required: HASH"),
        (["cache", "list", "-w", "Work", "--limit", "-3"], 2, "-3"),
        (["cache", "list", "-w", "Work", "--limit", "9" * 20], 2, "is not a number"),
        (["workspace", "new", "X", "--folder", "/no/such"], 1, "/no/such"),
        (["cache", "list", "-w", "Work", "--tool", "caf\udce9"], 2, "caf\\udce9 is not UTF-8 text"),
        (["cupboard"], 2, "cupboard"),
        (["workspace"], 2, "A command is missing after helix-desktop workspace"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("workspace")
def test_errors_are_a_sentence_on_stderr(
    helix: Helix, arguments: list[str], code: int, words: str
) -> None:
    said = helix(*arguments)
    assert (said.code, said.out) == (code, "")
    assert words in said.err
    assert said.err.count("\n") == 1
    assert said.err.endswith(".\n")


def test_a_search_for_a_byte_that_is_no_utf_8_finds_nothing(helix: Helix, workspace: str) -> None:
    said = helix("cache", "search", "-w", workspace, "caf\udce9")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("Nothing ")


def test_a_get_that_fails_leaves_the_file_that_was_there(
    helix: Helix, workspace: str, tmp_path: Path
) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    assert helix("cache", "get", "-w", workspace, "abcdef", "-o", target).code == 1
    assert target.read_text() == "precious"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("tmp")]


def test_what_reads_only_the_beginning_is_no_error(workspace: str, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(os.urandom(4_000_000))
    put = subprocess.run(
        PROGRAM + ["cache", "put", "-w", workspace, str(tmp_path / "big")],
        capture_output=True,
        check=True,
    )
    digest = put.stdout.decode().strip()
    with subprocess.Popen(
        PROGRAM + ["cache", "get", "-w", workspace, digest], stdout=-1, stderr=-1
    ) as got:
        assert got.stdout is not None
        assert got.stderr is not None
        got.stdout.read(10)
        got.stdout.close()
        assert (got.wait(60), got.stderr.read()) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full device")
@pytest.mark.parametrize(
    "arguments", [["mcp", "install", "-w", "Work"], ["workspace", "list"], ["doctor"]]
)
def test_an_output_that_is_full_is_a_sentence(workspace: str, arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        ran = subprocess.run(
            PROGRAM + list(arguments), stdout=full, stderr=-1, check=False, env=buffered
        )
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1, ran.stderr.decode()


@pytest.mark.skipif(
    sys.platform == "win32", reason="there a folder somebody is in cannot be removed"
)
@pytest.mark.parametrize(
    "arguments",
    [
        ["ask", "hello"],
        ["workspace", "new", "X", "--folder", "."],
        ["--home", "here", "workspace", "list"],
    ],
)
def test_in_a_folder_that_was_removed_that_is_said(tmp_path: Path, arguments: list[str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = [
        sys.executable,
        "-c",
        f"import os; os.rmdir({str(gone)!r}); from helix_desktop.cli import main; ",
    ]
    program[2] += f"raise SystemExit(main({arguments!r}))"
    ran = subprocess.run(program, cwd=gone, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert (
        ran.stderr
        == "The folder you are in no longer exists. Change to another one and try again.\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for a process's memory")
def test_a_large_file_never_stands_in_memory(workspace: str, tmp_path: Path) -> None:
    """What the process holds itself, not the pages of files the kernel may take back at
    any time.
    """
    source = tmp_path / "large"
    target = tmp_path / "back"
    with source.open("wb") as file:
        for number in range(64):
            file.write(random.Random(number).randbytes(1_000_000))
    peaks = []
    for name in (Path(__file__), source):
        digest = hashlib.sha256(name.read_bytes()).hexdigest()
        put = ["cache", "put", "-w", workspace, str(name)]
        get = ["cache", "get", "-w", workspace, digest, "-o", str(target)]
        peaks.append(_peak(PROGRAM + put))
        peaks.append(_peak(PROGRAM + get))
        assert target.read_bytes() == name.read_bytes()
    small_put, small_get, large_put, large_get = peaks
    assert large_put - small_put < 40_000
    assert large_get - small_get < 40_000


def _peak(command: list[str]) -> int:
    """The most memory of its own a command was seen with, in KB."""
    most = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            found = re.search(r"RssAnon:\s*(\d+)", status)
            most = max(most, int(found[1]) if found else 0)
            with suppress(subprocess.TimeoutExpired):  # Looking all the time takes a processor.
                process.wait(0.002)
    assert process.returncode == 0
    return most


# --- beside a running program


async def test_every_command_works_beside_the_owner(helix: Helix, tmp_path: Path) -> None:
    where = program_folders.find_program_folders()
    workspaces = workspace_access.open_all_workspaces(where)
    known = workspaces.create_stored_workspace("Open", tmp_path)
    workspace = await workspaces.open_stored_workspace(known.id)
    serving = await workspace_access.listen_for_commands(workspace, where)
    content = os.urandom(2_500_000)
    try:
        put = await _elsewhere("cache", "put", "-w", "open", "-", given=content)
        assert put == (0, hashlib.sha256(content).hexdigest().encode() + b"\n", b"")
        digest = put[1].decode().strip()
        assert await _elsewhere("cache", "get", "-w", "open", digest[:10]) == (0, content, b"")
        assert await _elsewhere(
            "cache", "get", "-w", "open", digest, "-o", str(tmp_path / "got")
        ) == (0, b"", b"")
        assert (tmp_path / "got").read_bytes() == content
        code, out, err = await _elsewhere("cache", "get", "-w", "open", "beef00")
        assert (code, out, b"begins with beef00" in err) == (1, b"", True)
        code, out, _ = await _elsewhere("workspace", "rename", "open", "Other", "--json")
        assert (code, json.loads(out)["name"], workspace.name) == (0, "Other", "Other")
        code, _, err = await _elsewhere("cache", "list", "-w", "Other", "--tool", "caf\udce9")
        assert (code, err) == (2, b"caf? is not UTF-8 text. Enter the text in UTF-8.\n")
        code, _, err = await _elsewhere("workspace", "trash", "Other")
        assert (code, b"open" in err) == (1, True)
    finally:
        await serving.finish_requests()
        await workspace.aclose()
    assert (await _elsewhere("cache", "get", "-w", "Other", digest))[1] == content


async def test_a_home_named_from_another_folder_is_meant_as_seen_from_there(tmp_path: Path) -> None:
    where = program_folders.find_program_folders(tmp_path / "home")
    workspaces = workspace_access.open_all_workspaces(where)
    workspace = await workspaces.open_stored_workspace(
        workspaces.create_stored_workspace("Open", tmp_path).id
    )
    serving = await workspace_access.listen_for_commands(workspace, where)
    where.window_state_path.write_text('{"history": ["my long secret"]}')
    forget = ("forget", "-w", "open", "--text", "my long secret", "--yes")
    try:
        _, _, err = await _elsewhere("--home", "home", *forget, folder=tmp_path)
        assert f"The text is also in {where.window_state_path}".encode() in err
    finally:
        await serving.finish_requests()
        await workspace.aclose()


async def _elsewhere(
    *arguments: str, given: bytes = b"", folder: Path | None = None
) -> tuple[int | None, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, *arguments, stdin=-1, stdout=-1, stderr=-1, cwd=folder
    )
    out, err = await process.communicate(given)
    return process.returncode, out, err


async def test_an_owner_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helix: Helix
) -> None:
    monkeypatch.setattr(workspace_access, "LONGEST_WAIT_SECONDS", 0.1)
    workspaces = workspace_access.open_all_workspaces(program_folders.find_program_folders())
    workspace = await workspaces.open_stored_workspace(
        workspaces.create_stored_workspace("Open", tmp_path).id
    )
    try:
        said = await asyncio.to_thread(helix, "cache", "stats", "-w", "Open")
    finally:
        await workspace.aclose()
    assert said.code == 1
    assert f"process {os.getpid()}" in said.err


def test_many_commands_at_once_all_get_through(workspace: str) -> None:
    commands = [
        subprocess.Popen(
            PROGRAM + ["cache", "put", "-w", workspace, "-"], stdin=-1, stdout=-1, stderr=-1
        )
        for _ in range(6)
    ]
    said = [command.communicate(str(number).encode()) for number, command in enumerate(commands)]
    assert [err for _, err in said] == [b""] * 6
    assert [out.decode().strip() for out, _ in said] == [
        hashlib.sha256(str(n).encode()).hexdigest() for n in range(6)
    ]


# --- workspace, and the rest


def test_a_workspace_from_new_to_the_trash_and_back(
    helix: Helix, workspace: str, tmp_path: Path
) -> None:
    assert helix("workspace", "rename", "Work", "Thesis").code == 0
    assert helix("workspace", "colour", "Thesis", "#123456", "--json").json["colour"] == "#123456"
    shown = helix("workspace", "show", "Thesis", "--json").json
    assert (shown["id"], shown["roots"], shown["entries"]) == (workspace, [str(tmp_path)], 0)
    assert helix("workspace", "trash", "Thesis").code == 0
    assert helix("workspace", "list", "--json").json == []
    assert [one["id"] for one in helix("workspace", "list", "--trash", "--json").json] == [
        workspace
    ]
    assert helix("workspace", "restore", "Thesis").code == 0
    assert workspace in helix("workspace", "list").out


def test_a_workspace_travels_in_a_file(helix: Helix, workspace: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENTS["several chunks"])
    digest = helix("cache", "put", "-w", workspace, tmp_path / "a").out.strip()
    assert helix("workspace", "export", "Work", tmp_path / "work.helix").code == 0
    imported = helix("workspace", "import", tmp_path / "work.helix", "--name", "Again")
    settings = [line for line in imported.err.splitlines()[1:] if line]
    assert (imported.code, settings) == (0, [f'roots = ["{tmp_path}"]'])
    assert helix("cache", "get", "-w", "Again", digest, "-o", tmp_path / "b").code == 0
    assert (tmp_path / "b").read_bytes() == CONTENTS["several chunks"]
    (tmp_path / "no.helix").write_bytes(b"not an export")
    assert helix("workspace", "import", tmp_path / "no.helix").code == 2


def test_home_moves_everything(helix: Helix, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    made = helix("--home", elsewhere, "workspace", "new", "There", "--folder", tmp_path).out.strip()
    assert (elsewhere / "workspaces" / made / "workspace.toml").is_file()
    assert helix("workspace", "list", "--json").json == []


def test_a_home_that_is_no_folder_is_refused(helix: Helix, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print()\n")
    for home, defect in (
        (tmp_path / "main.py", "is not a folder"),
        (tmp_path / "main.py" / "a", "cannot be created"),
    ):
        said = helix("--home", home, "workspace", "list")
        assert (said.code, said.out) == (2, "")
        assert (
            f"{home} {defect}. Choose another folder with --home DIR, or set HELIX_HOME."
            in said.err
        )
    assert helix("--home", tmp_path / "new", "workspace", "list").code == 0
    said = helix(tmp_path / "nowhere")  # a folder to open
    assert (said.code, said.err) == (2, f"{tmp_path / 'nowhere'} does not exist.\n")


def test_what_is_no_number_is_said_in_plain_words(helix: Helix) -> None:
    said = helix("conversation", "restore", "abc", "--window", "200k")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("Argument --window: '200k' is not a number. See ")


def test_version_and_help(helix: Helix) -> None:
    assert helix("--version").out == f"Helix Desktop {__version__}\n"
    assert "Exit codes" in helix("--help").out


def test_without_a_display_the_window_says_so_in_one_line(
    helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(variable, raising=False)
    for arguments in ([], ["helix://workspace/x"]):
        said = helix(*arguments)
        assert (said.code, said.err.count("\n"), "xvfb-run" in said.err) == (1, 1, True)


@pytest.mark.skipif(sys.platform == "win32", reason="a library of Linux")
def test_where_qt_lacks_a_library_the_window_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "PySide6").mkdir()
    (tmp_path / "PySide6/__init__.py").touch()
    (tmp_path / "PySide6/QtCore.abi3.so").write_bytes(b"cut short")
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    starting = "import helix_desktop, runpy, sys; sys.path.insert(0, sys.argv.pop()); runpy.run_module('helix_desktop', run_name='__main__')"
    command = [sys.executable, "-c", starting, str(tmp_path)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("The window could not be opened: ")
    assert done.stderr.endswith(": helix-desktop doctor\n")


def test_doctor_finds_this_installation_sound(helix: Helix, workspace: str, tmp_path: Path) -> None:
    said = helix("doctor", "--json")
    findings = said.json
    assert [finding for finding in findings if finding["state"] == "bad"] == []
    assert said.code == 0
    assert {"Python", "LevelDB", "Encodings", "Workspace Work"} <= {
        finding["what"] for finding in findings
    }
    assert "Read the report before" in helix("doctor", "-o", tmp_path / "report").out
    report = json.loads((tmp_path / "report").read_text())
    assert report["program"] == __version__


@pytest.mark.usefixtures("workspace")
def test_diagnostics_that_found_no_room_are_not_said_to_be_written(
    helix: Helix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_beside: ReplacementFile) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ReplacementFile, "replace_target", full)
    said = helix("doctor", "-o", tmp_path / "report")
    assert (said.code, said.out) == (1, "")
    assert "could not be written" in said.err


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (
            errno.EROFS,
            "/home/x/run: Read-only file system. Make the folder writable, or start the program with",
        ),
        (
            errno.EACCES,
            "/home/x/run: Permission denied. Make the folder writable, or start the program with",
        ),
        (errno.ENOSPC, "The disk is full"),
    ],
)
def test_a_disk_that_takes_nothing_is_said_in_a_sentence(
    helix: Helix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(*_given: object) -> None:
        raise OSError(number, os.strerror(number), "/home/x/run")

    monkeypatch.setattr(AllWorkspaces, "create_stored_workspace", refuse)
    said = helix("workspace", "new", "Disk", "--folder", tmp_path)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(words)


def test_a_text_in_the_place_of_a_file_is_called_too_long_in_a_sentence(
    helix: Helix, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    text = "please go through all of these " + "very " * 100
    sentence = "No file can have so long a name: "
    said = helix("workspace", "new", "Long", "--folder", text)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(sentence)
    assert cli.main(["--home", str(tmp_path), text]) == 1
    assert capfdbinary.readouterr().err.startswith(f"{sentence}please go".encode())


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    script = "import sys; from helix_desktop import cli; cli.main(['workspace', 'list']); print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines())
    assert (
        loaded & {"PySide6", "mcp", "httpx", "keyring", "openai", "pygments", "markdown_it"}
        == set()
    )


def test_a_folder_is_opened_in_the_window_and_a_command_stays_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[Path | None, str]] = []

    def window(home: Path | None, place: str) -> int:
        opened.append((home, place))
        return 0

    monkeypatch.setattr(cli, "_open_window", window)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "replay").mkdir()
    assert cli.main(["."]) == 0
    assert cli.main(["--home", "h", "./replay"]) == 0
    assert cli.main(["helix:workspace/x"]) == 0
    assert opened == [
        (None, str(tmp_path)),
        (Path("h"), str(tmp_path / "replay")),
        (None, "helix:workspace/x"),
    ]
    with pytest.raises(SystemExit):
        cli.main(["replay"])
    with pytest.raises(SystemExit):
        cli.main(["no-such-folder"])


def test_a_command_without_a_workspace_takes_the_one_of_the_folder(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("thesis", "thesis/notes", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    said = helix("cache", "list")
    assert said.code
    assert "Specify a workspace with --workspace" in said.err
    helix("workspace", "new", "Thesis", "--folder", tmp_path / "thesis")
    helix("workspace", "new", "Notes", "--folder", tmp_path / "thesis" / "notes")
    monkeypatch.chdir(tmp_path / "thesis")
    (tmp_path / "a").write_text("kept")
    assert helix("cache", "put", tmp_path / "a").code == 0
    assert len(json.loads(helix("cache", "list", "-w", "Thesis", "--json").out)) == 1
    monkeypatch.chdir(tmp_path / "thesis" / "notes")
    assert json.loads(helix("cache", "list", "--json").out) == []
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert helix("cache", "list").code
