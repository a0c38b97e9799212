"""A workspace of another computer, over a real ssh and a real sshd."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helix_desktop.errors import InvalidInput
from helix_desktop.workspace_host.ssh_address import SshAddress
from helix_desktop.workspace_host.ssh_host import ssh_command
from tests.peers.chat_server import ChatServer, reply
from tests.peers.peer import Answer, Seen
from tests.peers.ssh_machine import SshMachine

KEY = "sk-of-this-computer-4711"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshMachine]:
    with SshMachine(tmp_path_factory.mktemp("ssh")) as machine:
        yield machine


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "a project"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\n")
    return folder


def ask_demo(machine: SshMachine, project: Path, *words: str) -> tuple[int, str, str]:
    return machine.run_command(project, "ask", "--model", "demo/demo", *words)


def facts_of(machine: SshMachine, project: Path, conversation: str) -> list[dict[str, object]]:
    """The messages of a conversation over there."""
    code, out, err = machine.run_command(project, "conversation", "show", conversation, "--json")
    assert code == 0, err
    messages: list[dict[str, object]] = json.loads(out)
    return messages


# --- Addresses


@pytest.mark.parametrize(
    ("text", "target", "port", "folder"),
    [
        ("ssh://box/home/me/project", "box", None, "/home/me/project"),
        ("ssh://me@box.example.org:2222/srv/a%20b", "me@box.example.org", 2222, "/srv/a b"),
        ("ssh://box/~/project", "box", None, "~/project"),
        ("ssh://box", "box", None, ""),
    ],
)
def test_an_address_names_a_machine_and_a_folder(
    text: str, target: str, port: int | None, folder: str
) -> None:
    assert SshAddress.from_text(text) == SshAddress(target, port, folder)


@pytest.mark.parametrize(
    "text",
    [
        "box/home", "http://box/x", "ssh:///x", "ssh://-oProxyCommand=touch%20x/y", "ssh://me:secret@box/x",
        "ssh://box;touch/x", "ssh://a b/x", "ssh://box:99999999/x", "ssh://%2doption/x", "ssh://[/x",
    ],
)  # fmt: skip
def test_what_is_no_address_or_would_be_an_option_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not the address"):
        SshAddress.from_text(text)


def test_a_folder_is_one_word_for_the_shell_over_there() -> None:
    folder = "/a b; touch $HOME '\"`x`"
    command = ssh_command(SshAddress("box", 2222, folder), ["host", "--folder", folder])
    assert command[-2] == "box"
    assert command[-1].endswith("'/a b; touch $HOME '\"'\"'\"`x`'")


# --- Turns


def test_a_turn_runs_over_there_and_is_printed_here(machine: SshMachine, project: Path) -> None:
    code, out, err = ask_demo(machine, project, "--allow", "edits", "write b.txt: from here")
    assert (code, err) == (0, "")
    assert "write_file" in out
    assert (project / "b.txt").read_text() == "from here\n"
    code, out, _ = machine.run_command(project, "conversation", "list", "--json")
    assert code == 0
    (listed,) = json.loads(out)
    assert listed["title"] == "write b.txt: from here"
    messages = facts_of(machine, project, listed["id"][:8])
    assert [message["by"] for message in messages] == ["user", "demo/demo", "tool", "demo/demo"]


def test_a_machine_is_reached_through_another_one_as_the_user_has_it_configured(
    tmp_path: Path, project: Path
) -> None:
    with SshMachine(tmp_path / "jump") as jump_host, SshMachine(tmp_path / "behind") as behind:
        behind.reach_through(jump_host)
        code, out, err = ask_demo(behind, project, "--allow", "edits", "write b.txt: from afar")
        assert (code, err) == (0, "")
        assert "write_file" in out
        assert (project / "b.txt").read_text() == "from afar\n"
        assert jump_host.hosts() == []
        jump_host.stop_server()
        code, _, err = ask_demo(behind, project, "write c.txt: from afar")
        assert code == 1
        assert "There is no connection to testbox." in err


def test_what_was_not_allowed_is_refused_and_said(machine: SshMachine, project: Path) -> None:
    code, _, err = ask_demo(machine, project, "write c.txt: no")
    assert code == 0
    assert "add `--allow write_file`" in err
    assert not (project / "c.txt").exists()


def test_a_file_of_this_computer_is_attached(
    machine: SshMachine, project: Path, tmp_path: Path
) -> None:
    note = tmp_path / "note.txt"
    note.write_text("remember the milk\n")
    code, _, err = ask_demo(machine, project, "--attach", str(note), "see the note")
    assert (code, err) == (0, "")
    (user, _) = facts_of(machine, project, "see the note")
    assert "note.txt" in str(user["text"])


def test_another_command_says_that_it_cannot_be_run_from_here(
    machine: SshMachine, project: Path
) -> None:
    code, out, err = machine.run_command(project, "cost")
    assert (code, out) == (2, "")
    assert "log in there with ssh" in err


# --- Keys


def start_asking_server(
    machine: SshMachine, project: Path, server: ChatServer
) -> subprocess.Popen[str]:
    """Asks a provider of the user's own computer, with a key that is only there."""
    name = f"peer{server.port}"
    machine.run_here("provider", "add", name, "--base-url", server.base_url)
    return machine.start_command(
        project,
        *("ask", "--model", f"{name}/scripted", "hi"),
        environment={f"HELIX_KEY_{name.upper()}": KEY},
    )


class Arrival:
    """Answers a request, and tells that it has arrived."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.has_come = threading.Event()

    def __call__(self, _: Seen) -> Answer:
        self.has_come.set()
        return self._answer


def test_the_model_is_asked_with_the_key_of_this_computer_and_the_key_stays_here(
    machine: SshMachine, project: Path
) -> None:
    with ChatServer([reply("Hello from the model")]) as server:
        out, err = start_asking_server(machine, project, server).communicate(timeout=100)
        assert err == ""
        assert "Hello from the model" in out
        (seen,) = server.requests
        assert seen.headers["authorization"] == f"Bearer {KEY}"
    for path in machine.home.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes()
    hosts = machine.hosts()
    assert hosts
    for pid in hosts:
        assert KEY.encode() not in memory_of_process(pid)


class Lending:
    """A turn whose model is slow to answer, and the key of its provider lent for it."""

    def __init__(self, machine: SshMachine, project: Path, server: ChatServer) -> None:
        self._machine = machine
        self._project = project
        self._environment = {f"HELIX_KEY_PEER{server.port}": KEY}
        listed = machine.run_command(project, "conversation", "list", "--json")[1]
        newest = json.loads(listed)[0]
        self.conversation: str = newest["id"]

    def run(self, verb: str) -> tuple[int, str, str]:
        return self._machine.run_command(
            self._project, "conversation", verb, self.conversation, environment=self._environment
        )

    def wait_until_nobody_holds_a_key(self) -> None:
        deadline = time.monotonic() + 100
        while self._machine.key_holders():
            assert time.monotonic() < deadline, "the key is held still"
            time.sleep(0.05)


def check_no_key_in_hosts(machine: SshMachine) -> None:
    hosts = machine.hosts()
    assert hosts
    for pid in hosts:
        assert KEY.encode() not in memory_of_process(pid)


def test_with_a_lent_key_the_agent_goes_on_alone_and_the_key_is_gone_with_the_turn(
    machine: SshMachine, project: Path, tmp_path: Path
) -> None:
    machine.kill_hosts()  # Those of other tests, which would be looked through, too.
    slow = Arrival(reply("Too late.").silent_after(1, 60.0))
    with ChatServer([slow, reply("Written while the lid was closed.")]) as server:
        asking = start_asking_server(machine, project, server)
        assert slow.has_come.wait(100)
        lending = Lending(machine, project, server)
        check_no_key_in_hosts(machine)
        (host,) = machine.hosts()
        trace = tmp_path / "trace"
        with traced(host, trace):
            code, out, err = lending.run("lend-key")
            assert (code, err) == (0, "")
            assert "holds your key" in out
            check_no_key_in_hosts(machine)
            (holder,) = machine.key_holders()
            assert KEY.encode() in memory_of_process(holder), (
                "or this test would find no key at all"
            )
            asking.kill()
            asking.communicate()
            machine.break_lines()
            lending.wait_until_nobody_holds_a_key()
        assert server.requests[1].headers["authorization"] == f"Bearer {KEY}"
    check_no_key_in_hosts(machine)
    assert trace.stat().st_size > 0
    for path in [trace, *machine.home.rglob("*")]:
        if path.is_file():
            assert KEY.encode() not in path.read_bytes()
    messages = facts_of(machine, project, lending.conversation)
    assert "Written while the lid was closed." in str(messages[-1])


def test_a_key_is_taken_back_while_the_turn_runs_and_none_is_lent_without_one(
    machine: SshMachine, project: Path
) -> None:
    slow = Arrival(reply("Slowly.").silent_after(1, 60.0))
    with ChatServer([slow]) as server:
        asking = start_asking_server(machine, project, server)
        assert slow.has_come.wait(100)
        lending = Lending(machine, project, server)
        assert lending.run("lend-key")[0] == 0
        assert lending.run("take-key-back")[0] == 0
        lending.wait_until_nobody_holds_a_key()
        code, _, err = lending.run("take-key-back")
        assert (code, "No key is lent" in err) == (1, True)
        asking.send_signal(signal.SIGINT)
        asking.communicate(timeout=100)
        code, _, err = lending.run("lend-key")
        assert (code, "The agent does not work in this conversation" in err) == (1, True)
        lending.wait_until_nobody_holds_a_key()


@contextmanager
def traced(pid: int, trace: Path) -> Iterator[None]:
    """What a process reads, writes and sends, as strace sees it."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    command = ["strace", "-f", "-s", "1000000", "-p", str(pid), "-o", str(trace)]
    watching = subprocess.Popen(command, stderr=subprocess.PIPE)
    assert watching.stderr is not None
    watching.stderr.readline()  # "Process … attached"
    try:
        yield
    finally:
        watching.send_signal(signal.SIGINT)
        watching.communicate()


def memory_of_process(pid: int) -> bytes:
    """All that the process may have written, as a core dump would have it."""
    pieces: list[bytes] = []
    with (
        Path(f"/proc/{pid}/maps").open(encoding="utf-8") as maps,
        Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory,
    ):
        for line in maps:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if found is None:
                continue
            start = int(found[1], 16)
            end = int(found[2], 16)
            try:
                memory.seek(start)
                pieces.append(memory.read(end - start))
            except (OSError, OverflowError, ValueError):
                continue  # A page that cannot be read, such as the kernel's.
    return b"".join(pieces)


def test_a_missing_key_is_asked_for_on_this_computer_alone(
    machine: SshMachine, project: Path
) -> None:
    code, out, err = machine.run_command(
        project,
        *("ask", "--model", "anthropic/claude-sonnet-4-5", "hi"),
        environment={"ANTHROPIC_API_KEY": ""},
    )
    assert (code, out) == (1, "")
    assert "There is no key for anthropic." in err


# --- What may be wrong


def test_a_missing_program_is_said(machine: SshMachine, project: Path) -> None:
    program = machine.programs / "helix-desktop"
    aside = program.rename(machine.programs / "aside")
    try:
        code, out, err = machine.run_command(project, "conversation", "list")
    finally:
        aside.rename(program)
    assert (code, out) == (1, "")
    assert "Helix Desktop is not installed on testbox" in err
    assert "Install it there" in err


def test_an_older_program_is_said(machine: SshMachine, project: Path) -> None:
    program = machine.programs / "helix-desktop"
    script = program.read_text()
    machine.install("echo 'unrecognized arguments: --over-line --folder' >&2; exit 2")
    try:
        code, out, err = machine.run_command(project, "conversation", "list")
    finally:
        program.write_text(script)
    assert (code, out) == (1, "")
    assert "of an older version" in err


def test_a_folder_that_is_not_there_is_said_and_nothing_is_created(
    machine: SshMachine, project: Path
) -> None:
    code, _, err = machine.run_command(project / "nowhere", "ask", "hi")
    assert code == 1
    assert "is not a folder there. Nothing was created." in err
    assert not (project / "nowhere").exists()


def test_words_of_a_login_before_the_program_do_no_harm(machine: SshMachine, project: Path) -> None:
    program = machine.programs / "helix-desktop"
    script = program.read_text()
    machine.install("echo 'Welcome! You have mail.'\n" + script.partition("\n")[2])
    try:
        code, out, err = ask_demo(machine, project, "hello")
    finally:
        program.write_text(script)
    assert (code, err) == (0, "")
    assert "Welcome" not in out


# --- Broken lines


def test_a_broken_line_loses_nothing_and_does_nothing_twice(
    machine: SshMachine, project: Path
) -> None:
    marks = project / "marks"
    command = "echo begun >> marks; sleep 4; echo done >> marks"
    running = machine.start_command(
        project, *("ask", "--model", "demo/demo", "--allow", "all", f"run {command}")
    )
    assert running.stdout is not None
    first_line = running.stdout.readline()
    while "run_command" not in first_line:
        first_line = running.stdout.readline()
    machine.break_lines()
    out, err = running.communicate(timeout=100)
    assert running.returncode == 0, err
    assert "The connection to testbox broke off." in err
    assert "`run_command` returned" in out
    assert marks.read_text() == "begun\ndone\n"
    (conversation,) = json.loads(machine.run_command(project, "conversation", "list", "--json")[1])
    messages = facts_of(machine, project, conversation["id"])
    assert [message["by"] for message in messages] == ["user", "demo/demo", "tool", "demo/demo"]


def test_a_connection_that_is_cut_during_the_login_is_made_again(tmp_path: Path) -> None:
    """The command gave up at once, although nothing had been sent."""
    project = tmp_path / "project"
    project.mkdir()
    with SshMachine(tmp_path / "ssh") as machine:
        machine.cut_next_logins(2)
        code, _, err = ask_demo(machine, project, "hello")
        assert (code, err) == (0, "")
        listed = json.loads(machine.run_command(project, "conversation", "list", "--json")[1])
        assert len(listed) == 1
        machine.cut_next_logins(9)
        code, _, err = ask_demo(machine, project, "hello")
        assert code == 1
        assert "There is no connection to testbox." in err


def test_a_line_that_breaks_while_the_model_answers_is_asked_again_when_it_is_back(
    machine: SshMachine, project: Path
) -> None:
    slow = Arrival(reply("The whole answer.").silent_after(1, 30.0))
    with ChatServer([slow, reply("The whole answer.")]) as server:
        running = start_asking_server(machine, project, server)
        assert slow.has_come.wait(100)
        machine.break_lines()
        out, err = running.communicate(timeout=100)
        assert running.returncode == 0, err
        assert out.count("The whole answer.") == 1
        assert len(server.requests) == 2


def test_a_host_that_is_killed_is_started_again_and_the_turn_goes_on(
    machine: SshMachine, project: Path
) -> None:
    slow = Arrival(reply("Too late.").silent_after(1, 30.0))
    with ChatServer([slow, reply("The whole answer.")]) as server:
        running = start_asking_server(machine, project, server)
        assert slow.has_come.wait(100)
        machine.kill_hosts()
        out, err = running.communicate(timeout=100)
        assert running.returncode == 0, err
        assert "The whole answer." in out
    (user, model) = facts_of(machine, project, "hi")
    assert (user["text"], model["text"]) == ("hi", "The whole answer.")
