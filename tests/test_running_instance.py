"""instance.py: commands handed to the process that owns what they ask for, over each
kind of connection.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from helix_desktop import program_folders, running_instance
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import Console
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput, NotFound, StoreFailed
from helix_desktop.running_instance import (
    HEADER,
    RequestListener,
    claim_instance,
    connect_to_owner,
    listen_for_requests,
)
from tests.conftest import Expect

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="both kinds are tried where both exist"
)
KINDS = pytest.mark.parametrize("sockets", [True, False], ids=["socket", "port"])


class MemoryConsole:
    """A console with its input given beforehand and its output kept."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)
        self.output = bytearray()
        self.sentences: list[str] = []

    async def read_input(self) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    async def write_output(self, data: bytes) -> None:
        self.output += data

    async def print_line(self, text: str) -> None:
        self.output += f"{text}\n".encode()

    async def print_error(self, sentence: str) -> None:
        self.sentences.append(sentence)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


async def hand_over(
    run: Path, arguments: list[str], console: Console, *, sockets: bool = True
) -> int:
    wire = await connect_to_owner(run, "it", sockets=sockets)
    assert wire is not None
    return await running_instance.run_at_owner(wire, arguments, console)


@asynccontextmanager
async def owner(
    run: Path,
    answer: Callable[[list[str], Console], Awaitable[int]],
    *,
    sockets: bool = True,
    name: str = "it",
) -> AsyncIterator[None]:
    listening = await listen_for_requests(run, name, answer, sockets=sockets)
    try:
        yield
    finally:
        await listening.aclose()


async def echo(arguments: list[str], console: Console) -> int:
    while piece := await console.read_input():
        await console.write_output(piece)
    await console.print_error(" ".join(arguments))
    return len(arguments)


class Lasting:
    """A command that lasts until it is ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, _arguments: list[str], _console: Console) -> int:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        return 0


@KINDS
async def test_input_output_sentences_and_exit_code_arrive(run: Path, sockets: bool) -> None:
    pieces = [b"\x00\xff\r\n", b"X" * (3 * running_instance.LARGEST + 1), "Ünï".encode("utf-16")]
    console = MemoryConsole(*pieces)
    async with owner(run, echo, sockets=sockets):
        assert (
            await hand_over(
                run, ["cache", "put", "--workspace", "müll\udcff"], console, sockets=sockets
            )
            == 4
        )
    assert bytes(console.output) == b"".join(pieces)
    assert console.sentences == ["cache put --workspace müll?"]


@KINDS
async def test_nobody_there(run: Path, sockets: bool) -> None:
    assert await connect_to_owner(run, "it", sockets=sockets) is None
    async with owner(run, echo, sockets=sockets):
        pass
    assert await connect_to_owner(run, "it", sockets=sockets) is None


@KINDS
async def test_a_name_may_be_as_long_as_a_workspace_has_it(sockets: bool) -> None:
    """In a home whose path was of middling length, nobody could ask a workspace that
    had a long name.
    """
    name = f"{'a-workspace-whose-name-is-very-long-' * 2:.40}-a1b2c3"
    with tempfile.TemporaryDirectory(prefix="h") as base:
        run = Path(base, "x" * (program_folders.SOCKET_PATH_LIMIT - len(base) - 1))
        async with owner(run, echo, sockets=sockets, name=name):
            wire = await connect_to_owner(run, name, sockets=sockets)
            assert wire is not None
            await wire.close()
            assert await connect_to_owner(run, f"{name}-other", sockets=sockets) is None


async def test_an_owner_that_hangs_is_nobody(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_instance, "HELLO_SECONDS", 0.05)
    run.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(run / "it.sock"))
        silent.listen()
        async with asyncio.timeout(60):
            assert await connect_to_owner(run, "it") is None


async def test_who_comes_while_the_owner_leaves_is_let_go_at_once(run: Path) -> None:
    listening = await listen_for_requests(run, "it", echo)
    await listening._tasks.aclose()
    async with asyncio.timeout(60):
        assert await connect_to_owner(run, "it") is None
    await listening.aclose()


async def test_many_at_once_keep_apart(run: Path) -> None:
    consoles = [MemoryConsole(str(number).encode()) for number in range(20)]
    async with owner(run, echo):
        await asyncio.gather(*(hand_over(run, [], console) for console in consoles))
    assert [bytes(console.output) for console in consoles] == [
        str(number).encode() for number in range(20)
    ]


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (NotFound("no such entry."), 1, "no such entry."),
        (InvalidInput("a hash has 64 digits."), 2, "a hash has 64 digits."),
    ],
)
async def test_an_error_is_a_sentence_at_the_callers_end(
    run: Path, error: Exception, code: int, sentence: str
) -> None:
    async def fails(_arguments: list[str], _console: Console) -> int:
        raise error

    console = MemoryConsole()
    async with owner(run, fails):
        assert await hand_over(run, [], console) == code
    assert console.sentences == [sentence]


async def test_a_defect_is_logged_and_the_owner_goes_on(run: Path, expect: Expect) -> None:
    expect("a request failed")

    async def fails(_arguments: list[str], _console: Console) -> int:
        raise ZeroDivisionError

    console = MemoryConsole()
    async with owner(run, fails):
        assert [await hand_over(run, [], console) for _ in range(2)] == [1, 1]
    assert "bug" in console.sentences[0]


@KINDS
async def test_a_caller_that_goes_away_takes_its_command_with_it(run: Path, sockets: bool) -> None:
    lasting = Lasting()
    async with owner(run, lasting, sockets=sockets):
        caller = asyncio.ensure_future(hand_over(run, ["wait"], MemoryConsole(), sockets=sockets))  # noqa: TID251
        await lasting.begun.wait()
        caller.cancel()
        await asyncio.wait_for(lasting.ended.wait(), 60)


async def test_what_somebody_asks_is_in_no_name_the_log_would_carry(run: Path) -> None:
    names: list[str] = []

    async def answers(_arguments: list[str], _console: Console) -> int:
        names.extend(task.get_name() for task in asyncio.all_tasks())
        return 0

    async with owner(run, answers):
        await hand_over(run, ["forget", "--text=hunter2"], MemoryConsole())
    assert names
    assert not [name for name in names if "hunter2" in name]


async def stopped_while_it_finishes(listening: RequestListener) -> None:
    finishing = asyncio.ensure_future(listening.finish_requests())  # noqa: TID251
    await asyncio.sleep(0)
    finishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await finishing


@pytest.mark.parametrize(
    ("leave", "patience"),
    [
        (RequestListener.aclose, None),
        (RequestListener.finish_requests, 0.01),
        (stopped_while_it_finishes, None),
    ],
)
async def test_an_owner_that_goes_away_ends_what_lasts_and_its_caller_is_told(
    run: Path, leave: Callable[[RequestListener], Awaitable[None]], patience: float | None
) -> None:
    lasting = Lasting()
    listening = await listen_for_requests(run, "it", lasting, patience=patience)
    caller = asyncio.ensure_future(hand_over(run, [], MemoryConsole()))  # noqa: TID251
    await lasting.begun.wait()
    await leave(listening)
    assert lasting.ended.is_set()
    with pytest.raises(HelixError, match="closed before"):
        await caller


async def test_a_reader_that_has_seen_enough_is_not_the_owner_gone(run: Path) -> None:
    class Head(MemoryConsole):
        async def print_line(self, text: str) -> None:
            raise BrokenPipeError

    async def says(_arguments: list[str], console: Console) -> int:
        await console.print_line("first")
        return 0

    async with owner(run, says):
        with pytest.raises(BrokenPipeError):
            await hand_over(run, [], Head())


async def test_an_input_that_cannot_be_read_ends_and_is_said(run: Path) -> None:
    class Unreadable(MemoryConsole):
        async def read_input(self) -> bytes:
            raise InvalidInput("The input cannot be read.")

    console = Unreadable()
    async with owner(run, echo), asyncio.timeout(60):
        assert await hand_over(run, ["put"], console) == 1
    assert console.sentences == ["The input cannot be read.", "put"]


async def test_an_owner_that_finishes_answers_those_it_has_begun_with(run: Path) -> None:
    begun = asyncio.Event()
    go = asyncio.Event()

    async def waits(_arguments: list[str], console: Console) -> int:
        begun.set()
        await go.wait()
        await console.print_line("done")
        return 0

    listening = await listen_for_requests(run, "it", waits)
    console = MemoryConsole()
    caller = asyncio.ensure_future(hand_over(run, [], console))  # noqa: TID251
    await begun.wait()
    finishing = asyncio.ensure_future(listening.finish_requests())  # noqa: TID251
    await asyncio.sleep(0)
    assert await connect_to_owner(run, "it") is None
    go.set()
    assert await caller == 0
    await finishing
    assert bytes(console.output) == b"done\n"


async def test_a_request_nobody_understands_is_refused(run: Path, expect: Expect) -> None:
    expect("a caller was refused")

    async def never(_arguments: list[str], _console: Console) -> int:
        pytest.fail("it was run")

    garbage = [
        b"GET / HTTP/1.1\r\n\r\n",
        HEADER.pack(b"A", 1 << 31),
        HEADER.pack(b"O", 1) + b"x",
        HEADER.pack(b"A", 2) + b"[]",
        HEADER.pack(b"A", 60_000) + b"[" * 60_000,
        HEADER.pack(b"A", 29) + json.dumps({"version": 9, "arguments": []}).encode(),
    ]
    async with owner(run, never):
        for said in garbage:
            reader, writer = await asyncio.open_unix_connection(run / "it.sock")
            writer.write(said)
            assert await reader.read() == HEADER.pack(b"H", 0)
            writer.close()


async def test_a_port_answers_only_those_who_know_the_token(run: Path, expect: Expect) -> None:
    expect("without the token")
    async with owner(run, echo, sockets=False):
        address = run / "it.port"
        known = json.loads(address.read_text())
        assert address.stat().st_mode & 0o077 == 0
        address.write_text(json.dumps({**known, "token": "0" * 64}))
        assert await connect_to_owner(run, "it", sockets=False) is None


async def test_the_folder_has_to_be_private(run: Path) -> None:
    async with owner(run, echo):
        assert run.stat().st_mode & 0o077 == 0
        run.chmod(0o755)
        with pytest.raises(ActionRefused, match="Other users can access"):
            await connect_to_owner(run, "it")


async def test_a_folder_that_takes_no_socket_is_said(run: Path) -> None:
    run.mkdir(mode=0o700)
    (run / "it.sock").mkdir()
    with pytest.raises(HelixError, match="cannot listen for commands"):
        await listen_for_requests(run, "it", echo)


def test_a_folder_that_belongs_to_everybody_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(ActionRefused, match="Other users can access"):
        running_instance.check_private_folder(tmp_path)
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


async def test_a_link_in_place_of_the_folder_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    run.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ActionRefused, match="not a folder"):
        await listen_for_requests(run, "it", echo)


async def test_an_address_left_by_a_crash_is_taken_over(run: Path) -> None:
    running_instance.check_private_folder(run)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(run / "it.sock"))
    assert await connect_to_owner(run, "it") is None
    async with owner(run, echo):
        assert await hand_over(run, ["a"], MemoryConsole()) == 1


@KINDS
@pytest.mark.parametrize("turns", range(8))
async def test_one_ended_while_it_begins_leaves_no_address(
    run: Path, turns: int, sockets: bool
) -> None:
    beginning = OwnedTasks("test").spawn_task(
        listen_for_requests(run, "it", echo, sockets=sockets), name="begin"
    )
    for _ in range(turns):
        await asyncio.sleep(0)
    if beginning.cancel():
        await asyncio.wait([beginning])
    if beginning.cancelled():
        assert [each.name for each in run.glob("it.*")] == []
    else:
        await (await beginning).aclose()


async def test_the_kernel_says_who_is_at_the_other_end(run: Path) -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert running_instance.user_id_of_peer(one) == os.getuid()


async def test_another_process_is_served(run: Path) -> None:
    script = (
        "import asyncio, sys; from pathlib import Path; from helix_desktop import console, running_instance\n"
        "async def main():\n"
        "    wire = await running_instance.connect_to_owner(Path(sys.argv[1]), 'it')\n"
        "    return await running_instance.run_at_owner(wire, ['x', 'y'], console.Terminal())\n"
        "sys.exit(asyncio.run(main()))"
    )
    data = os.urandom(5_000_000)
    async with owner(run, echo):
        caller = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            script,
            str(run),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await caller.communicate(data)
    assert (caller.returncode, err.decode()) == (2, "x y\n")
    assert hashlib.sha256(out).digest() == hashlib.sha256(data).digest()


def test_a_claim_that_cannot_be_opened_is_said_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(
            StoreFailed, match=f"{folder}/window.lock cannot be opened: "
        ) as refused:
            claim_instance(folder, "window")
        assert "--home" in refused.value.remedy


def test_only_one_can_claim_and_the_next_after_it(run: Path) -> None:
    first = claim_instance(run, "window")
    assert first is not None
    assert claim_instance(run, "window") is None
    first.close()
    second = claim_instance(run, "window")
    assert second is not None
    second.close()


@pytest.mark.parametrize("size", [running_instance.LARGEST + 1, 2 * running_instance.LARGEST])
async def test_arguments_of_any_length_arrive(run: Path, size: int) -> None:
    """An import names each of its files, and some people have ten thousand."""
    shell = len(json.dumps({"version": 1, "arguments": [""]}))
    heard: list[list[str]] = []

    async def hear(arguments: list[str], _console: Console) -> int:
        heard.append(arguments)
        return 0

    async with owner(run, hear), asyncio.timeout(60):
        assert await hand_over(run, ["x" * (size - shell)], MemoryConsole()) == 0
    assert [len(one) for (one,) in heard] == [size - shell]


OPENINGS_WITHOUT_AN_END = {
    "nothing": b"",
    "half a frame": HEADER.pack(b"A", 100) + b"{",
    "arguments": HEADER.pack(b"A", running_instance.LARGEST) + b" " * running_instance.LARGEST,
}


@KINDS
@pytest.mark.parametrize("begin", OPENINGS_WITHOUT_AN_END)
async def test_a_caller_that_never_says_what_it_wants_is_let_go(
    run: Path, begin: str, sockets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any program of this user could hold a connection for ever."""
    monkeypatch.setattr(running_instance, "OPENING_SECONDS", 0.3)
    async with owner(run, echo, sockets=sockets), asyncio.timeout(60):
        reader, writer = await connect_by_hand(run, sockets=sockets)
        writer.write(OPENINGS_WITHOUT_AN_END[begin])
        with suppress(ConnectionError):
            assert await reader.read() in (b"", HEADER.pack(b"H", 0))
        writer.close()


@KINDS
async def test_callers_that_say_nothing_do_not_take_all_files(run: Path, sockets: bool) -> None:
    async with owner(run, echo, sockets=sockets), asyncio.timeout(60):
        strangers = []
        for _ in range(running_instance.MOST_OPENINGS + 50):
            strangers.append(await connect_by_hand(run, sockets=sockets))
        assert await hand_over(run, ["a"], MemoryConsole(), sockets=sockets) == 1
        # The oldest were closed: of all others, each would have to be waited for.
        for reader, _ in strangers[:50]:
            with suppress(ConnectionError):
                assert await reader.read() in (b"", HEADER.pack(b"H", 0))
        for _, writer in strangers:
            writer.close()


async def test_arguments_without_an_end_are_refused(
    run: Path, expect: Expect, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect("a caller was refused")
    monkeypatch.setattr(running_instance, "MOST_ARGUMENT_BYTES", 3 * running_instance.LARGEST)
    async with owner(run, echo), asyncio.timeout(60):
        reader, writer = await connect_by_hand(run)
        with suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(OPENINGS_WITHOUT_AN_END["arguments"])
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()


@pytest.mark.parametrize("sent", ["unasked", "endless"])
async def test_input_that_nobody_reads_is_not_kept(
    run: Path, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was all kept in memory, as long as the command ran."""
    monkeypatch.setattr(running_instance, "MOST_PIECE_BYTES", 3 * running_instance.LARGEST)
    command = Lasting()
    if sent == "endless":
        answer: Callable[[list[str], Console], Awaitable[int]] = echo
    else:
        answer = command
    async with owner(run, answer), asyncio.timeout(60):
        reader, writer = await connect_by_hand(run)
        content = json.dumps({"version": 1, "arguments": []}).encode()
        writer.write(HEADER.pack(b"A", len(content)) + content)
        if sent == "endless":
            assert await reader.readexactly(2 * HEADER.size) == HEADER.pack(b"H", 0) + HEADER.pack(b"R", 0)  # fmt: skip
        piece = HEADER.pack(b"I", running_instance.LARGEST) + bytes(running_instance.LARGEST)
        with suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        if sent == "unasked":
            await command.ended.wait()
        writer.close()


async def connect_by_hand(
    run: Path, *, sockets: bool = True
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if sockets:
        return await asyncio.open_unix_connection(run / "it.sock")
    at = json.loads((run / "it.port").read_text())
    reader, writer = await asyncio.open_connection("127.0.0.1", at["port"])
    writer.write(HEADER.pack(b"T", len(at["token"])) + at["token"].encode())
    return reader, writer
