"""Histories of other programs from the command line."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helix_desktop import cli, commands, program_folders, running_instance, token_counting
from helix_desktop.commands import conversation_import_command, workspace_access
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.gateway.gateway_workspaces import GatewayWorkspaces
from helix_desktop.gateway.remote_conversations import RemoteAgentConversations
from helix_desktop.histories.history_finding import FoundHistories
from helix_desktop.resident.resident_client import CollectingConsole
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench import history_imports
from helix_desktop.workbench.session_preparation import SessionPreparation
from tests.faults.gateway_histories import _nobody
from tests.histories import written

Ran = tuple[int, str, str]
Helix = Callable[..., Ran]


@pytest.fixture
def helix(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Helix:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    for name in (
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "XDG_DATA_HOME",
        "XDG_CONFIG_HOME",
        "GEMINI_CLI_HOME",
        "PI_CODING_AGENT_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    workspace_access.open_all_workspaces(
        program_folders.find_program_folders()
    ).create_stored_workspace("Work", tmp_path)

    def run(*arguments: object) -> Ran:
        code = cli.main([str(argument) for argument in arguments])
        return (code, *capfd.readouterr())

    return run


def told(ran: Ran) -> dict[str, object]:
    assert ran[0] == 0, ran[2]
    return dict(json.loads(ran[1]))


def test_what_is_found_is_brought_in_once_and_taken_back(helix: Helix, tmp_path: Path) -> None:
    written.claude(tmp_path / "me" / ".claude")
    written.pi(tmp_path / "me" / ".pi" / "agent")
    _, out, _ = helix("conversation", "find")
    assert "2 conversations found" in out
    first = told(helix("conversation", "import", "-w", "Work", "--json"))
    imported = first["imported"]
    assert isinstance(imported, list)
    assert {one["kind"] for one in imported} == {"claude-code", "pi"}
    assert {(one["messages"], one["outputs"]) for one in imported} == {(5, 1)}
    again = told(helix("conversation", "import", "-w", "Work", "--json"))
    assert (again["imported"], again["unchanged"], again["complaints"]) == ([], 2, [])
    _, out, _ = helix("conversation", "imports", "-w", "Work")
    assert out.split()[:2] == [first["run"], "2"]
    back = told(helix("conversation", "undo-import", "-w", "Work", first["run"], "--json"))
    assert back == {"undone": 2, "stayed": []}


def test_complaints_name_the_lines_and_a_key_is_masked_and_forgotten(
    helix: Helix, tmp_path: Path
) -> None:
    key = "sk-" + "ant-api03-" + "aB3" * 10
    path = written.lines(
        tmp_path / "s.jsonl",
        [{"role": "user", "content": f"use {key}"}, {"role": "assistant", "content": "ok"}],
    )
    path.write_text(path.read_text() + "{broken\n")
    code, out, err = helix(
        "conversation", "import", "-w", "Work", path, "--from", "openai", "--forget-keys"
    )
    assert code == 0
    assert "line 3" in err
    assert key not in out + err
    assert "(forgotten)" in out
    places_ = program_folders.find_program_folders()
    held = [
        file for root in (places_.data, places_.logs) for file in root.rglob("*") if file.is_file()
    ]
    assert held
    assert [file for file in held if key.encode() in file.read_bytes()] == []


def test_a_key_goes_from_what_a_killed_program_left_and_the_window_is_named(
    helix: Helix, tmp_path: Path
) -> None:
    key = "sk-" + "ant-api03-" + "aB3" * 10
    path = written.lines(
        tmp_path / "s.jsonl",
        [{"role": "user", "content": f"use {key}"}, {"role": "assistant", "content": "ok"}],
    )
    places_ = program_folders.find_program_folders()
    (known,) = workspace_access.open_all_workspaces(places_).list_workspaces()
    partial = known.folder / "partial"
    partial.mkdir()
    for name in ("c1.json", ".c1.json-0123abcd", "c1.queue-damaged", "c1.queue-new"):
        (partial / name).write_text(json.dumps({"after": 1, "text": key}))
    failed_copy = places_.data / "recorder" / "1.failed"
    failed_copy.mkdir(parents=True)
    (failed_copy / "s.jsonl").write_text(key)
    window = places_.window_state_path
    window.parent.mkdir(parents=True, exist_ok=True)
    window.write_text(json.dumps({"history/other": [f"say {key}"]}))
    code, out, err = helix(
        "conversation", "import", "-w", "Work", path, "--from", "openai", "--forget-keys", "--json"
    )
    assert code == 0
    held = [file for file in places_.data.rglob("*") if file.is_file() and file != window]
    assert [file for file in held if key.encode() in file.read_bytes()] == []
    assert [f"The text is also in {window}" in place for place in json.loads(out)["elsewhere"]] == [
        True
    ]
    assert key not in out + err


def test_of_a_key_whose_beginning_was_printed_before_it_nothing_is_left(
    helix: Helix, tmp_path: Path
) -> None:
    printed_beginning = "sk-" + "aB3" * 8
    end_of_key = "TheEndOfThisKey"
    path = written.lines(
        tmp_path / "s.jsonl",
        [
            {"role": "user", "content": f"{printed_beginning}... is our key"},
            {"role": "assistant", "content": f"It is {printed_beginning}{end_of_key}."},
        ],
    )
    ran = helix("conversation", "import", "-w", "Work", path, "--from", "openai", "--forget-keys")
    assert ran[0] == 0, ran[2]
    places_ = program_folders.find_program_folders()
    held = [file for file in places_.data.rglob("*") if file.is_file()]
    assert held
    assert [file for file in held if end_of_key.encode() in file.read_bytes()] == []


def test_an_export_is_one_line_for_each_message(helix: Helix, tmp_path: Path) -> None:
    written.lines(tmp_path / "s.jsonl", written.claude_session())
    imported = told(helix("conversation", "import", "-w", "Work", tmp_path / "s.jsonl", "--json"))[
        "imported"
    ]
    assert isinstance(imported, list)
    _, out, _ = helix("conversation", "export", "-w", "Work", imported[0]["id"][:6])
    roles = [json.loads(line)["role"] for line in out.splitlines()]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


async def test_an_import_that_gave_way_waits_for_the_other_process_however_long_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process has the workspace open a moment before it answers. An import that had
    begun more than five seconds before ended then, with the rest not imported.
    """
    where = program_folders.find_program_folders(tmp_path / "helix")
    workspaces = workspace_access.open_all_workspaces(where)
    name = workspaces.create_stored_workspace("Work").id
    loop = asyncio.get_running_loop()
    tries = 0
    others: list[StoredWorkspace] = []
    open_workspace = AllWorkspaces.open_stored_workspace

    async def open_beside_another(self: AllWorkspaces, identity: str) -> StoredWorkspace:
        """Another process takes the workspace before the second try, and is gone at the fourth."""
        nonlocal tries
        tries += 1
        if tries == 2:
            others.append(await open_workspace(workspaces, identity))
        if tries == 4:
            await others[0].aclose()
        return await open_workspace(self, identity)

    async def import_for_an_hour(arguments: Namespace, *_: object) -> int:
        if others:
            return 0
        began = loop.time()
        monkeypatch.setattr(loop, "time", lambda: began + 3_600)
        arguments.gives_way = True
        raise asyncio.CancelledError

    monkeypatch.setattr(AllWorkspaces, "open_stored_workspace", open_beside_another)
    monkeypatch.setattr(running_instance, "GIVEN_WAY_SECONDS", 0.0)
    monkeypatch.setattr(workspace_access, "RETRY_SECONDS", 0.0)
    arguments = Namespace(places=where, argv=[], work=import_for_an_hour, counts=False)
    code = await workspace_access.run_here_or_at_owner(arguments, name, CollectingConsole())
    assert (code, tries) == (0, 4)


def _write_six_conversations(folder: Path, *, key_in_first: str) -> None:
    folder.mkdir()
    for number in range(6):
        said = f"Number {number}"
        if number == 0:
            said = f"use {key_in_first}"
        messages = [{"role": "user", "content": said}, {"role": "assistant", "content": "ok"}]
        written.lines(folder / f"{number}.jsonl", messages)


def _let_import_wait_for_gateway(
    monkeypatch: pytest.MonkeyPatch, *, gateway_ends: bool
) -> asyncio.Event:
    """Let an import of six files wait at the fourth until a gateway has asked for the workspace.

    If the gateway ends meanwhile, the import waits at the sixth, too. The returned event says
    that it is there.
    """
    has_gateway_asked = threading.Event()
    is_at_last_file = asyncio.Event()
    loop = asyncio.get_running_loop()
    prepare = SessionPreparation.prepare_file
    serves = RemoteAgentConversations.serves_agents

    def wait_and_prepare(self: SessionPreparation, file: Path, *rest: object) -> Iterator[object]:
        if file.name == "3.jsonl":
            assert has_gateway_asked.wait(20)
        if file.name == "5.jsonl" and gateway_ends and not is_at_last_file.is_set():
            loop.call_soon_threadsafe(is_at_last_file.set)
            threading.Event().wait(0.5)  # The gateway ends meanwhile.
        yield from prepare(self, file, *rest)  # type: ignore[arg-type]

    async def note_that_gateway_has_asked(self: RemoteAgentConversations) -> bool:
        answer = await serves(self)
        has_gateway_asked.set()
        return answer

    monkeypatch.setattr(SessionPreparation, "prepare_file", wait_and_prepare)
    monkeypatch.setattr(RemoteAgentConversations, "serves_agents", note_that_gateway_has_asked)
    return is_at_last_file


@pytest.mark.parametrize("gateway_ends", [False, True])
async def test_an_import_gives_way_to_an_agent_at_the_gateway_and_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gateway_ends: bool
) -> None:
    """Before, each request waited five seconds while an import had the workspace open,
    and was not recorded.

    If the gateway ends before the import is done, it goes on by itself.
    """
    where = program_folders.find_program_folders(tmp_path / "helix")
    workspaces = workspace_access.open_all_workspaces(where)
    name = workspaces.create_stored_workspace("Work").id
    _write_six_conversations(tmp_path / "old", key_in_first="sk-" + "ant-api03-" + "aB3" * 10)
    command = "conversation import -w Work --from openai --json"
    argv = command.split() + [str(tmp_path / "old")]
    arguments: Namespace = commands.build_command_line_parser(argv).parse_args(argv)
    arguments.argv = argv
    arguments.places = where
    reached = _let_import_wait_for_gateway(monkeypatch, gateway_ends=gateway_ends)
    monkeypatch.setattr(history_imports, "TOGETHER", 0)
    monkeypatch.setattr(running_instance, "GIVEN_WAY_SECONDS", 0.3)
    monkeypatch.setattr(workspace_access, "LASTING_PATIENCE", 0.0)
    gateway = GatewayWorkspaces(
        where, "", lambda one: workspace_access.listen_for_commands(one, where), _nobody
    )
    console = CollectingConsole()
    tasks = OwnedTasks("an import")
    importing = tasks.spawn_task(
        workspace_access.run_here_or_at_owner(arguments, name, console), name="import"
    )
    try:
        while not (where.run / f"{name}.sock").exists():
            assert not importing.done(), console.complaint or importing
            await asyncio.sleep(0)
        async with gateway.hold_workspace_open(name) as room:
            here = await room._find_open_conversations()  # type: ignore[attr-defined]
            assert len(await here._bench.workspace.journal.list_conversations()) < 6
            if gateway_ends:
                await reached.wait()
            else:
                assert await importing == 0, console.complaint
        await gateway.aclose()
        assert await importing == 0, console.complaint
    finally:
        await tasks.aclose()
        await gateway.aclose()
    told = json.loads(console.answers[-1])
    imported = len({one["id"] for one in told["imported"]})
    unchanged = told["unchanged"]
    assert imported + unchanged == 6
    assert gateway_ends or (unchanged, len(told["keys"])) == (0, 1)


def test_a_title_that_orders_the_terminal_about_is_only_shown(helix: Helix, tmp_path: Path) -> None:
    said = written.claude_said(1, None, "Look\x1b]52;c;cm0=\x07 here")
    written.lines(
        tmp_path / "s.jsonl", [said, written.claude_reply(2, 1, "m", written.text("I look."))]
    )
    for command in (["import", "-w", "Work", tmp_path / "s.jsonl"], ["list", "-w", "Work"]):
        code, out, _ = helix("conversation", *command)
        assert (code, "Look⟨001B⟩]52;c;cm0=⟨0007⟩ here" in out) == (0, True)


def test_an_unknown_format_is_refused_once_before_anything_is_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["conversation", "import", "--from", "foo", str(tmp_path / "nowhere")]) == 2
    assert capfd.readouterr().err.count("foo") == 1


@pytest.mark.parametrize(
    "content", [b"", b"import os\n" * 40, bytes(range(256)) * 9, b'{"a": 1}', b"[1, 2]"]
)
def test_a_named_file_that_is_no_conversation_is_said_once_and_fails(
    helix: Helix, tmp_path: Path, content: bytes
) -> None:
    (file := tmp_path / "main.py").write_bytes(content)
    code, out, err = helix("conversation", "import", "-w", "Work", file)
    assert (code, out.startswith("0 imported")) == (1, True)
    assert err.startswith(f"{file} doesn't contain a session that can be read.")
    assert len(err.splitlines()) == 1
    assert helix("conversation", "import", "-w", "Work", file, "--json")[0] == 1
    good = written.lines(tmp_path / "s.jsonl", written.claude_session())
    assert helix("conversation", "import", "-w", "Work", good)[0] == 0
    assert helix("conversation", "import", "-w", "Work", good)[0] == 0, (
        "what had already been imported is no failure"
    )


def test_what_is_only_found_and_holds_no_conversation_is_no_failure(
    helix: Helix, tmp_path: Path
) -> None:
    assert helix("conversation", "import", "-w", "Work")[0] == 0
    begun = written.lines(
        tmp_path / "me" / ".claude" / "projects" / "-p" / "s.jsonl", written.claude_session()[:1]
    )
    code, _, err = helix("conversation", "import", "-w", "Work")
    assert (code, err.strip()) == (0, f"{begun} was left out because it contains no reply.")


def test_lines_that_are_no_messages_are_counted_in_one_sentence_and_listed_as_json(
    helix: Helix, tmp_path: Path
) -> None:
    files = []
    for name in ("a", "b", "c"):
        rows = [{**row, "sessionId": name} for row in written.claude_session()]
        files.append(
            written.lines(tmp_path / f"{name}.jsonl", [*rows, {"type": "queue-operation"}])
        )
    code, _, err = helix("conversation", "import", "-w", "Work", *files)
    assert (code, len(err.splitlines()), "in 3 files, are kept" in err) == (0, 1, True)
    for file in files:
        file.write_bytes(file.read_bytes() + b'{"type": "last-prompt"}\n')
    result = told(helix("conversation", "import", "-w", "Work", *files, "--json"))
    assert isinstance(complaints := result["complaints"], list)
    assert [
        f"{file}: these lines are not part" in one
        for file, one in zip(files, complaints, strict=True)
    ] == [True] * 3


def test_a_path_that_is_not_there_is_said(helix: Helix, tmp_path: Path) -> None:
    code, _, err = helix("conversation", "import", "-w", "Work", tmp_path / "nowhere.jsonl")
    assert code == 1
    assert "does not exist" in err


def test_a_folder_without_any_history_is_said_like_a_file_without_one(
    helix: Helix, tmp_path: Path
) -> None:
    (empty := tmp_path / "empty").mkdir()
    code, _, err = helix("conversation", "import", "-w", "Work", empty)
    assert (code, err.count(f"no file under {empty} that could be a history: *.jsonl")) == (1, 1)


def test_a_watch_tells_what_comes_and_at_the_end_what_came(tmp_path: Path) -> None:
    path = written.lines(tmp_path / "s.jsonl", written.claude_session()[:6])
    home = tmp_path / "home"
    workspace_access.open_all_workspaces(
        program_folders.find_program_folders(home)
    ).create_stored_workspace("Work", tmp_path)
    command = [sys.executable, "-m", "helix_desktop", "--home", str(home), "conversation", "import", "-w", "Work", str(path), "--watch"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            assert "list the files" in watching.stdout.readline()
            assert watching.stdout.readline().startswith("1 imported")
            written.lines(path, written.claude_session())
            assert "list the files" in watching.stdout.readline()
            assert watching.stdout.readline().startswith("1 imported")
            watching.send_signal(signal.SIGINT)
            assert watching.stdout.read() == "Stopped watching. New or changed conversations: 1.\n"
            assert watching.wait(30) == 0
        finally:
            watching.kill()  # a trial that fails does not wait for it


def test_an_import_and_the_index_share_what_they_counted() -> None:
    text = "counted by the index, and then by an import"
    assert workspace_access.OptionalTokenCounter()(text) > 5
    counter = token_counting.shared_token_counter()
    assert counter._remembered_count(token_counting._hash_of_text(text)) is not None


def test_found_histories_are_a_line_for_each_program_and_folder_and_a_total() -> None:
    def noon(day_of_january: int) -> float:
        return (day_of_january - 0.5) * 86_400

    found = [
        FoundHistories("codex", Path("a"), "/work", 2, 1_500_000, first=noon(4), last=noon(6)),
        FoundHistories("claude-code", Path("b"), "/work", 1, 100_000, first=noon(2), last=noon(3)),
        FoundHistories("codex", Path("c"), "/work", 1_200, 500_000, first=noon(3), last=noon(5)),
        FoundHistories("codex", Path("d"), "", 1, 0, first=noon(8), last=noon(8)),
    ]
    lines = conversation_import_command._describe_histories_by_folder(found)
    words = [" ".join(line.split()) for line in lines]
    assert words == [
        "Claude Code 1 0.1 MB 1970-01-02 to 1970-01-03 /work",
        "Codex 1 0.0 MB 1970-01-08 to 1970-01-08 (no folder)",
        "Codex 1202 2.0 MB 1970-01-03 to 1970-01-06 /work",
        "1,204 conversations found, 2.1 MB.",
    ]
    assert conversation_import_command._describe_histories_by_folder([]) == []
