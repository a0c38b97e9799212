"""`ask`: a turn without a window, alone and beside a program that has the workspace open."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from helix_desktop import cli, program_folders
from helix_desktop.commands import workspace_access
from helix_desktop.commands.turn_output import TurnPrinter, describe_early_end
from helix_desktop.commands.workspace_access import OwnerSilence
from helix_desktop.console import Console
from helix_desktop.engine.facts import Fact, Text, ToolCall, TurnEnd, TurnEnded, UserSaid
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    Event,
    FactAppended,
    MessagesQueued,
    QuestionAsked,
)
from helix_desktop.errors import StoreBusy
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.documents import written_documents
from tests.peers.chat_server import ChatServer, chunk, refused, reply
from tests.peers.peer import Answer, Seen, sse
from tests.peers.ssh_machine import list_kept_hosts
from tests.scripted_tour import ClockWithoutPauses


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\nbeta\n")
    monkeypatch.chdir(folder)
    assert cli.main(["workspace", "new", "Here", "--folder", str(folder)]) == 0
    return "Here"


def ask(*words: str) -> int:
    return cli.main(["ask", "--model", "demo/demo", *words])


def test_the_answer_is_streamed_to_standard_output(
    workspace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    assert ask("--workspace", workspace, "read a.txt") == 0
    out, err = capfd.readouterr()
    assert "read_file" in out
    assert "alpha" in out
    assert err == ""


def test_a_slash_command_of_the_folder_is_said_with_its_shell_lines(
    workspace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = Path.cwd() / ".claude/commands/greet.md"
    path.parent.mkdir(parents=True)
    path.write_text("Greet $ARGUMENTS. !`echo one-and-two`\n")
    capfd.readouterr()
    assert cli.main(["project", "list", "-w", workspace, "--json"]) == 0
    item = next(each for each in json.loads(capfd.readouterr().out) if each["item"] == str(path))
    assert cli.main(["project", "trust", "-w", workspace, f"{path}={item['sha256']}"]) == 0
    for allowed in ((), ("--allow", "commands")):
        capfd.readouterr()
        ask("--json", *allowed, "--workspace", workspace, "/greet Ada")
        said = next(line for line in capfd.readouterr().out.splitlines() if '"UserSaid"' in line)
        assert "Greet Ada" in said
        assert ("one-and-two" in said.replace("echo one-and-two", "")) is bool(allowed)


def test_a_command_that_is_unknown_or_not_trusted_is_not_sent_as_text(
    workspace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = Path.cwd() / ".claude/commands/greet.md"
    path.parent.mkdir(parents=True)
    path.write_text("Greet $ARGUMENTS.\n")
    capfd.readouterr()
    assert ask("-w", workspace, "/greet Ada") == 1
    said = capfd.readouterr().err
    assert said.startswith("/greet is new: not trusted yet. Nothing was sent. See `project show ")
    assert "`project trust`" in said
    assert ask("-w", workspace, "/greeet Ada") == 2
    assert "There is no command or skill /greeet. Nothing was sent." in capfd.readouterr().err
    assert cli.main(["conversation", "list", "-w", workspace, "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == []
    for text in (
        "/etc/hosts is what?",
        "/tmp what is in there?",
        "/ what is in there?",
        " /greet as text",
    ):
        assert ask("-w", workspace, text) == 0


def test_facts_are_lines_of_json_and_the_conversation_can_be_continued(
    workspace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    assert ask("--json", "hello") == 0  # the workspace of this folder
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["fact"] for line in lines][-1] == "TurnEnded"
    assert [line["seq"] for line in lines] == list(
        range(lines[0]["seq"], lines[0]["seq"] + len(lines))
    )
    assert ask("--json", "--conversation", lines[0]["conversation"], "hello again") == 0
    more = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert more[0]["seq"] == lines[-1]["seq"] + 1
    assert {line["conversation"] for line in more} == {lines[0]["conversation"]}


def test_what_was_not_allowed_is_refused_and_what_was_is_done(
    workspace: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ask("write new.txt: text") == 0
    assert not (tmp_path / "project" / "new.txt").exists()
    out, err = capfd.readouterr()
    assert "denied this" in out
    assert (
        err
        == "Refused, because nobody was there to give permission: write_file. To allow this, add `--allow write_file`.\n"
    )
    assert ask("--allow", "edits", "write new.txt: text") == 0
    assert (tmp_path / "project" / "new.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ask", "hello"], 2, "No model has been chosen"),
        (["ask", "-w", "Elsewhere", "hello"], 1, "There is no workspace Elsewhere"),
        (["ask", "--model", "nonsense", "hello"], 1, "is not a valid model name"),
        (
            ["ask", "--conversation", "none", "hello"],
            1,
            "There is no conversation with an ID that begins with none",
        ),
        (["ask", "  "], 2, "The message is empty"),
        (["ask"], 2, "TEXT"),
        (
            ["ask", "--model", "demo", "--allow", "nosuch", "hello"],
            2,
            "There is no nosuch to allow. Use edits,",
        ),
    ],
)
def test_wrong_use_is_a_sentence(
    workspace: str, arguments: list[str], code: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        got = cli.main(arguments)
    except SystemExit as ended:
        got = int(ended.code or 0)
    err = capfd.readouterr().err
    assert got == code
    assert words in err
    assert "Traceback" not in err
    capfd.readouterr()
    assert cli.main(["conversation", "list", "-w", workspace, "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == []  # nothing is begun in vain


def test_a_title_several_have_is_answered_with_their_ids(
    workspace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert [ask("--workspace", workspace, "hello") for _ in range(2)] == [0, 0]
    capfd.readouterr()
    assert cli.main(["conversation", "list", "-w", workspace, "--json"]) == 0
    ids = [row["id"] for row in json.loads(capfd.readouterr().out)]
    assert ask("-w", workspace, "-c", "hello", "and more") == 1
    assert (
        capfd.readouterr().err
        == f"2 conversations are called hello: {ids[0]}, {ids[1]}. Use the ID instead of the name.\n"
    )


def test_json_is_what_the_help_says(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["ask", "--help"])
    said = " ".join(capfd.readouterr().out.split())
    assert "--json print every record of the turn as a line of JSON" in said


def test_the_built_in_model_goes_by_its_name_alone(
    workspace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["ask", "--model", "demo", "read a.txt"]) == 0
    assert "alpha" in capfd.readouterr().out


async def test_beside_an_open_program_it_works_on_the_same_sessions(workspace: str) -> None:
    where = program_folders.find_program_folders()
    desk = Workbenches(
        where,
        SecretStorage(where.key_file),
        serve=lambda opened: workspace_access.listen_for_commands(opened, where),
        clock=ClockWithoutPauses(),
    )
    bench = await desk.open_workspace(workspace)
    await bench.choose_model_for_role("demo/demo")
    heard: list[Event] = []
    bench.subscribe_to_events(heard.append)
    try:
        code = await asyncio.to_thread(
            cli.main, ["ask", "--workspace", workspace, "hello from outside"]
        )
        said = [
            e.recorded.fact
            for e in heard
            if isinstance(e, FactAppended) and isinstance(e.recorded.fact, UserSaid)
        ]
        assert code == 0
        assert len(said) == 1
        assert [row.title for row in bench.list_conversations()] == ["hello from outside"]
    finally:
        await desk.aclose()


@pytest.mark.parametrize("is_first_stopped", [False, True])
async def test_a_message_that_waits_for_another_turn_gets_its_own_answer(
    workspace: str, capfd: pytest.CaptureFixture[str], *, is_first_stopped: bool
) -> None:
    """The answer to the window's message was printed, and `--allow all` answered the
    question shown there.
    """
    where = program_folders.find_program_folders()
    call = ("write_file", json.dumps({"path": "new.txt", "content": "x"}))
    with ChatServer(
        [reply("first", calls=[call]), reply("ended the first"), reply("answered the second")]
    ) as server:
        assert (
            await asyncio.to_thread(
                cli.main, ["provider", "add", "peer", "--base-url", server.base_url]
            )
            == 0
        )
        desk = Workbenches(
            where,
            SecretStorage(where.key_file),
            serve=lambda opened: workspace_access.listen_for_commands(opened, where),
        )
        bench = await desk.open_workspace(workspace)
        await bench.choose_model_for_role("peer/scripted")
        session = await bench.start_users_conversation()
        heard: asyncio.Queue[Event] = asyncio.Queue()
        session.subscribe_to_events(heard.put_nowait)
        try:
            session.send_message((Text("in the window"),))
            while not isinstance(question := await heard.get(), QuestionAsked):
                pass
            words = ["ask", "-w", workspace, "-c", session.id, "--allow", "all", "in the terminal"]
            asked = asyncio.get_running_loop().run_in_executor(None, cli.main, words)
            while not (isinstance(event := await heard.get(), MessagesQueued) and event.messages):
                pass
            if is_first_stopped:
                session.stop_turn()
                assert await asked == 1
                assert not session.queue
            else:
                session.answer_question(
                    question.number, PermissionAnswer(allowed=False, words="not now")
                )
                assert await asked == 0
        finally:
            await desk.aclose()
    out, err = capfd.readouterr()
    assert "ended the first" not in out
    assert ("answered the second" in out, "Your message was not sent." in err) == (
        not is_first_stopped,
        is_first_stopped,
    )
    assert not Path("new.txt").exists()


@pytest.mark.parametrize("answers_at_once", [True, False])
async def test_a_turn_goes_on_when_the_program_with_the_workspace_is_closed(
    answers_at_once: bool,
    workspace: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program that did not answer at first ran the command itself, and ended it with its own end."""
    wait_for_owner = OwnerSilence.wait_for_owner
    waits = threading.Event()

    async def wait_and_tell(self: OwnerSilence, busy: StoreBusy) -> None:
        waits.set()
        await wait_for_owner(self, busy)

    monkeypatch.setattr(OwnerSilence, "wait_for_owner", wait_and_tell)
    where = program_folders.find_program_folders()
    has_come = threading.Event()

    def begin_slowly(_: Seen) -> Answer:
        has_come.set()
        return reply("Too late.").silent_after(1, 60.0)

    with ChatServer([begin_slowly, reply("Answered in the next program.")]) as server:
        added = ["provider", "add", "peer", "--base-url", server.base_url]
        assert await asyncio.to_thread(cli.main, added) == 0
        desk = Workbenches(where, SecretStorage(where.key_file))
        opened = (await desk.open_workspace(workspace)).workspace
        words = ["ask", "-w", workspace, "--model", "peer/scripted", "go on"]
        if answers_at_once:
            service = await workspace_access.listen_for_commands(opened, where)
        asked = asyncio.get_running_loop().run_in_executor(None, cli.main, words)
        if not answers_at_once:
            assert await asyncio.to_thread(waits.wait, 60)
            service = await workspace_access.listen_for_commands(opened, where)
        assert await asyncio.to_thread(has_come.wait, 60)
        await service.finish_requests()
        await desk.aclose()
        try:
            assert await asked == 0
        finally:
            for pid in list_kept_hosts(where.data):
                os.kill(pid, signal.SIGKILL)
    out, err = capfd.readouterr()
    assert out.strip().endswith("Answered in the next program.")
    assert "The turn goes on there, or in the next one." in err
    assert len(server.bodies) == 2


def test_a_conversation_goes_on_with_the_model_that_it_was_begun_with(
    workspace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without -m it said that no model has been chosen, where the workspace has none."""
    assert cli.main(["ask", "--json", "-m", "demo/demo", "hello"]) == 0
    first_line = capfd.readouterr().out.splitlines()[0]
    conversation = json.loads(first_line)["conversation"]
    assert cli.main(["ask", "-c", conversation, "and now?"]) == 0
    assert capfd.readouterr().err == ""
    assert cli.main(["ask", "another one"]) == 2, "a new conversation still needs a model"
    assert "No model has been chosen" in capfd.readouterr().err


def test_what_a_model_says_gives_a_terminal_no_orders_and_reasons_end_once(
    workspace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with ChatServer([reply("one \x1b]0;title\x07 two"), refused(401, "a bad key")]) as server:
        assert cli.main(["provider", "add", "peer", "--base-url", server.base_url]) == 0
        capfd.readouterr()
        assert cli.main(["ask", "-m", "peer/scripted", "hello"]) == 0
        assert "one ⟨001B⟩]0;title⟨0007⟩ two" in capfd.readouterr().out
        assert cli.main(["ask", "-m", "peer/scripted", "hello"]) == 1
        assert capfd.readouterr().err.endswith("No key was sent. Enter a key for this provider.\n")


def test_a_key_in_the_file_the_user_allowed_is_used(
    workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = program_folders.find_program_folders()
    where.settings_file.parent.mkdir(parents=True, exist_ok=True)
    where.settings_file.write_text("[keys]\nfile = true\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-kept-in-a-file-0123\n"))
    with ChatServer([reply("hello")]) as server:
        adding = [
            "provider",
            "add",
            "peer",
            "--base-url",
            server.base_url,
            "--key",
            "--keep",
            "file",
        ]
        assert cli.main(adding) == 0
        assert cli.main(["ask", "-m", "peer/scripted", "hello"]) == 0
        assert server.requests[-1].headers["authorization"] == "Bearer sk-kept-in-a-file-0123"


async def test_a_turn_whose_end_found_no_room_ends_all_the_same() -> None:
    telling = TurnPrinter(cast(Session, None), frozenset(), as_lines=False)
    telling.print_event(ActivityChanged("c", ConversationActivity.FAILED, "The disk is full."))
    async with asyncio.timeout(60):
        await telling.print_until_turn_ends(cast(Console, None))
    assert describe_early_end(telling.ended) == "The turn ended early: The disk is full."


@pytest.mark.parametrize(
    ("allowed", "name", "apart", "expected"),
    [
        ({"commands"}, "run_command", "", True),
        ({"commands"}, "run_command", "outside_sandbox", False),
        ({"run_command"}, "run_command", "hidden", False),
        ({"commands", "outside_sandbox"}, "run_command", "outside_sandbox", True),
        ({"edits"}, "write_file", "", True),
        ({"edits"}, "write_file", "runs_later", False),
        ({"all"}, "write_file", "runs_later", True),
    ],
)
def test_what_is_allowed_apart_needs_its_own_name(
    allowed: set[str], name: str, apart: str, *, expected: bool
) -> None:
    telling = TurnPrinter(cast(Session, None), frozenset(allowed), as_lines=False)
    answer = telling.answer_by_allowed_names(
        PermissionQuestion(ToolCall("1", name, "{}"), "", "", apart=apart)
    )
    assert answer.allowed is expected
    assert telling.refused == ([] if expected else [apart])


def test_each_wait_is_told_on_standard_error(
    workspace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A server in trouble meant two minutes of silence."""
    busy = refused(503, "overloaded", retry_after=0)
    with ChatServer([busy, busy, reply("here at last")]) as server:
        assert cli.main(["provider", "add", "peer", "--base-url", server.base_url]) == 0
        capfd.readouterr()
        assert cli.main(["ask", "-m", "peer/scripted", "hello"]) == 0
    out, err = capfd.readouterr()
    assert "here at last" in out
    assert [line[:14] for line in err.splitlines()] == ["Retrying: peer"] * 2, (
        "nothing to count down"
    )


def test_a_call_without_a_name_is_answered_and_does_not_pass_for_the_end(
    workspace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    call = {"index": 0, "id": "call_aaaaaaaa", "function": {"arguments": "{}"}}
    nameless = Answer(pieces=sse(chunk({"tool_calls": [call]}), chunk({}, "tool_calls"), "[DONE]"))
    with ChatServer([nameless, reply("sorry")]) as server:
        assert cli.main(["provider", "add", "peer", "--base-url", server.base_url]) == 0
        assert cli.main(["ask", "-m", "peer/scripted", "hello"]) == 0
        assert len(server.bodies) == 2
    assert "sorry" in capfd.readouterr().out


@pytest.fixture
def killed(workspace: str, capfd: pytest.CaptureFixture[str]) -> Iterator[tuple[str, ChatServer]]:
    """A conversation whose command was killed while a tool worked, and the server of its model."""
    call = ("run_command", json.dumps({"command": "sleep 600"}))
    with ChatServer([reply("working", calls=[call]), reply("done"), reply("done again")]) as server:
        assert cli.main(["provider", "add", "peer", "--base-url", server.base_url]) == 0
        words = [
            "--json",
            "--allow",
            "commands",
            "--allow",
            "outside_sandbox",
            "-m",
            "peer/scripted",
            "wait long",
        ]
        asked = [sys.executable, "-m", "helix_desktop", "ask", *words]
        with subprocess.Popen(
            asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            line = next(line for line in process.stdout if '"ModelReplied"' in line)
            process.kill()
        capfd.readouterr()
        yield json.loads(line)["conversation"], server


def test_a_turn_whose_command_was_killed_is_ended_by_the_next_one(
    killed: tuple[str, ChatServer], capfd: pytest.CaptureFixture[str]
) -> None:
    conversation, _ = killed
    assert cli.main(["ask", "--json", "-m", "peer/scripted", "something else"]) == 0
    out, err = capfd.readouterr()
    line = next(line for line in err.splitlines() if "--resume" in line).partition(
        "run: helix-desktop "
    )[2]
    assert line.startswith("ask -w ")
    assert line.endswith(f" -c {conversation} --resume")
    assert conversation not in out
    assert cli.main(["ask", "--json", "-m", "peer/scripted", "-c", conversation, "go on"]) == 0
    out, err = capfd.readouterr()
    assert err == ""  # once
    facts = asyncio.run(facts_of(conversation))
    ends = [fact for fact in facts if isinstance(fact, TurnEnded)]
    assert [(end.reason, end.why) for end in ends] == [
        (TurnEnd.FAILED, "The program stopped during this turn."),
        (TurnEnd.DONE, ""),
    ]


def test_a_turn_whose_command_was_killed_can_be_resumed(
    killed: tuple[str, ChatServer], capfd: pytest.CaptureFixture[str]
) -> None:
    conversation, server = killed
    assert cli.main(["ask", "-m", "peer/scripted", "-c", conversation, "--resume"]) == 0
    out, err = capfd.readouterr()
    assert ("done" in out, err) == (True, "")
    ends = [fact for fact in asyncio.run(facts_of(conversation)) if isinstance(fact, TurnEnded)]
    assert [end.reason for end in ends] == [TurnEnd.DONE]
    assert "check before repeating" in json.dumps(server.bodies[-1])
    assert cli.main(["ask", "-c", conversation, "--resume", "words"]) == 2


def test_a_complete_turn_is_not_resumed(workspace: str, capfd: pytest.CaptureFixture[str]) -> None:
    with ChatServer([reply("all done"), refused(400, "no"), reply("at last")]) as server:
        assert cli.main(["provider", "add", "peer", "--base-url", server.base_url]) == 0
        capfd.readouterr()
        assert cli.main(["ask", "--json", "-m", "peer/scripted", "hello"]) == 0
        conversation = json.loads(capfd.readouterr().out.splitlines()[0])["conversation"]
        assert cli.main(["ask", "-c", conversation, "--resume"]) == 1
        assert "There is nothing to continue. Nothing was sent." in capfd.readouterr().err
        assert len(server.bodies) == 1
        assert cli.main(["ask", "-m", "peer/scripted", "-c", conversation, "and now?"]) == 1
        assert (
            cli.main(["ask", "-m", "peer/scripted", "-c", conversation, "--resume"]) == 0
        )  # a turn that failed goes on
        assert "at last" in capfd.readouterr().out


async def facts_of(conversation: str) -> list[Fact]:
    workspaces = workspace_access.open_all_workspaces(program_folders.find_program_folders())
    opened = await workspaces.open_stored_workspace(workspaces.list_workspaces()[0].id)
    found = [recorded.fact for recorded in await opened.journal.read_facts(conversation)]
    await opened.aclose()
    return found


def test_an_attached_document_is_sent_as_text(
    workspace: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.pdf").write_bytes(written_documents.pdf())
    said = ["--attach", str(tmp_path / "report.pdf"), "--json", "Read it"]
    assert ask("--workspace", workspace, *said) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line[:1] == "{"]
    (message,) = [line for line in lines if line.get("fact") == "UserSaid"]
    (attached,) = [part for part in message["parts"] if part["is"] == "Attachment"]
    assert attached["document"]["count"] == 3
    capfd.readouterr()
    assert cli.main(["cache", "get", "-w", workspace, attached["stored"]["digest"]]) == 0
    assert written_documents.TITLE in capfd.readouterr().out


def test_a_file_that_cannot_be_read_ends_before_anything_is_sent(
    workspace: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret.pdf").write_bytes(written_documents.pdf(password="secret"))
    capfd.readouterr()
    for name, said in {"secret.pdf": "password", "gone.pdf": "could not be read"}.items():
        assert ask("--workspace", workspace, "--attach", str(tmp_path / name), "Read it") != 0
        assert said in capfd.readouterr().err


@pytest.mark.parametrize("option", ["--conversation=", "--model=", "--acp="])
def test_an_empty_name_starts_nothing(
    workspace: str, option: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """`ask -c "$ID"` with an empty variable began a new conversation, which was paid for."""
    with pytest.raises(SystemExit) as raised:
        cli.main(["ask", "--workspace", workspace, option, "go on"])
    assert raised.value.code == 2
    assert "the name is empty" in capfd.readouterr().err
    assert cli.main(["conversation", "list", "--workspace", workspace, "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == []
