"""How long a window waits for a long conversation over a slow line: for its newest messages, and for
all of it.

    python -m tests.benchmarks.slow_line [--messages 100000] [--milliseconds 50] [--megabits 10]

The workspace is open in a process of its own. In turn, a window that waits for all of the
conversation, as it did before, and one that shows the newest messages first; then one more fact is recorded,
which costs what is new. `--milliseconds`: the time there and back.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from helix_desktop import program_folders, running_instance
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import (
    Fact,
    ModelReplied,
    Stop,
    Text,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.newest_facts import build_state_of_newest_facts
from helix_desktop.engine.session_events import ActivityChanged, Event, FactAppended
from helix_desktop.engine.view import ConversationState
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.transcript_pane import TranscriptPane
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from helix_desktop.workspace_host.byte_streams import ByteStream, OwnerStream
from helix_desktop.workspace_host.client_workspace import ClientWorkspace
from helix_desktop.workspace_host.host_connection import HOST_ARGUMENTS, connect_to_host
from helix_desktop.workspace_host.host_line import HostLine
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost
from tests.gui.fake_desk import now
from tests.gui.transcript.conftest import MemorySource

PIECE = 16 << 10
ROUNDS = 3
FACTS_AT_ONCE = 3_000


@dataclass(frozen=True)
class LineQuality:
    seconds_one_way: float
    bytes_per_second: float


class SlowStream:
    """A stream whose bytes come later, and not faster than the line allows."""

    def __init__(self, stream: ByteStream, quality: LineQuality) -> None:
        self._stream = stream
        self._quality = quality
        self._tasks = OwnedTasks("a slow line")
        self._arriving: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._leaving: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self.bytes_read = 0
        self._tasks.spawn_task(self._receive(), name="receive")
        self._tasks.spawn_task(self._send(), name="send")

    async def read_bytes(self) -> bytes:
        arrives_at, piece = await self._arriving.get()
        await asyncio.sleep(max(0.0, arrives_at - time.monotonic()))
        self.bytes_read += len(piece)
        return piece

    async def write_bytes(self, content: bytes) -> None:
        self._leaving.put_nowait((time.monotonic() + self._quality.seconds_one_way, content))

    async def close_stream(self) -> None:
        await self._tasks.aclose(limit=1)
        await self._stream.close_stream()

    async def _receive(self) -> None:
        line_is_free_at = 0.0
        while content := await self._stream.read_bytes():
            for start in range(0, len(content), PIECE):
                piece = content[start : start + PIECE]
                begins_at = max(line_is_free_at, time.monotonic())
                line_is_free_at = begins_at + len(piece) / self._quality.bytes_per_second
                self._arriving.put_nowait((line_is_free_at + self._quality.seconds_one_way, piece))
        self._arriving.put_nowait((0.0, b""))

    async def _send(self) -> None:
        while True:
            arrives_at, content = await self._leaving.get()
            await asyncio.sleep(max(0.0, arrives_at - time.monotonic()))
            await self._stream.write_bytes(content)


@dataclass
class Waited:
    """Seconds until the newest messages are drawn, until it is known besides what the agent does and
    asks, so that it can be stopped and answered, and until all of the conversation is drawn.
    `worked`: of the newest, the processor's seconds here and at the host, which do not depend on who
    else uses the computer.
    """

    newest: list[float] = field(default_factory=list)
    worked: list[float] = field(default_factory=list)
    answerable: list[float] = field(default_factory=list)
    complete: list[float] = field(default_factory=list)


def processor_seconds(host: subprocess.Popen[bytes]) -> float:
    """Of this process and of the host's."""
    fields = Path(f"/proc/{host.pid}/stat").read_text().rpartition(")")[2].split()
    ticks_of_host = int(fields[11]) + int(fields[12])
    return time.process_time() + ticks_of_host / os.sysconf("SC_CLK_TCK")


def told_facts(message_count: int) -> Iterator[tuple[float, Fact]]:
    chance = random.Random(1)
    words = [f"{chance.randrange(1 << 24):x}" for _ in range(4_000)]
    for number in range(message_count // 2):
        question = " ".join(chance.choices(words, k=chance.randrange(20, 60)))
        answer = " ".join(chance.choices(words, k=chance.randrange(20, 60)))
        yield float(number), UserSaid((Text(question, 60),))
        yield float(number), ModelReplied((Text(answer, 60),), "demo", Stop.END)
        yield float(number), TurnEnded(TurnEnd.DONE)


async def create_long_conversation(home: Path, message_count: int) -> tuple[str, str]:
    places = program_folders.find_program_folders(home / "home")
    desk = Workbenches(places, SecretStorage(places.key_file, environ={}))
    folder = home / "folder"
    folder.mkdir(parents=True)
    bench = await desk.create_workspace("Slow", folder)
    await bench.choose_model_for_role("demo/demo")
    session = await bench.start_users_conversation()
    journal = bench.workspace.journal
    facts = told_facts(message_count)
    while some_facts := list(islice(facts, FACTS_AT_ONCE)):
        await journal.append_imported_facts(session.id, some_facts)
    await desk.aclose()
    return bench.id, session.id


class SlowWindow:
    """A window over a slow line to a workspace that another process has open."""

    def __init__(self, home: Path, workspace: str, quality: LineQuality) -> None:
        self._places = program_folders.find_program_folders(home / "home")
        self._workspace = workspace
        self._quality = quality
        self.stream: SlowStream | None = None

    async def connect(self) -> RemoteWorkspaceHost | None:
        wire = await running_instance.connect_to_owner(self._places.run, self._workspace)
        if wire is None:
            return None
        owner = OwnerStream(wire, [*HOST_ARGUMENTS, self._workspace])
        self.stream = SlowStream(owner, self._quality)
        return await RemoteWorkspaceHost.connect_over_stream(self.stream)

    async def open(self) -> ClientWorkspace:
        line = HostLine(self.connect, "slow")
        await line.connect_line()
        client = ClientWorkspace(line, self._workspace)
        await client.begin_with_list()
        return client


class DrawnChat:
    """The real transcript, drawn into a picture."""

    def __init__(self) -> None:
        self._theme = Theme(scheme="light")
        self._theme.apply_to_application()
        self.pane = TranscriptPane(self._theme, BackgroundRunner(now), MemorySource())
        self.pane.resize(900, 800)
        self.pane.show()

    async def draw(self, state: ConversationState) -> None:
        await self.pane.view.build_items_of_long_history(state)
        self.pane.open_transcript(state)
        self.pane.grab()


async def wait_for_new_fact(client: ClientWorkspace, conversation: str) -> float:
    """Gives the conversation another title at the host, and returns the seconds until it is told."""
    session = await client.open_session(conversation)
    is_told = asyncio.Event()

    def notice(event: Event) -> None:
        if isinstance(event, FactAppended):
            is_told.set()

    stop = session.subscribe_to_events(notice)
    start = time.monotonic()
    await session.set_title(f"Title at {start}")
    await is_told.wait()
    stop()
    return time.monotonic() - start


async def open_once(
    window: SlowWindow,
    host: subprocess.Popen[bytes],
    conversation: str,
    waited: Waited,
    *,
    newest_first: bool,
) -> None:
    client = await window.open()
    assert window.stream is not None
    chat = DrawnChat()
    worked_before = processor_seconds(host)
    start = time.monotonic()
    if newest_first:
        is_activity_known = asyncio.Event()

        def notice(event: Event) -> None:
            if isinstance(event, ActivityChanged) and event.conversation == conversation:
                is_activity_known.set()

        client.subscribe_to_events(notice)
        newest = await client.read_newest_facts(conversation)
        await chat.draw(build_state_of_newest_facts(newest))
        waited.newest.append(time.monotonic() - start)
        waited.worked.append(processor_seconds(host) - worked_before)
        await is_activity_known.wait()
        waited.answerable.append(time.monotonic() - start)
    session = await client.open_session(conversation)
    await chat.draw(session.conversation.state)
    waited.complete.append(time.monotonic() - start)
    read_before = window.stream.bytes_read
    seconds = await wait_for_new_fact(client, conversation)
    print(
        f"newest first: {newest_first}, newest {waited.newest[-1:]}, "
        f"answerable {waited.answerable[-1:]}, all {waited.complete[-1]:.2f} s, "
        f"{read_before:,} bytes; a further fact {seconds:.2f} s, "
        f"{window.stream.bytes_read - read_before:,} bytes; load {os.getloadavg()[0]:.0f}",
        flush=True,
    )
    chat.pane.close()
    await client.end_client()


async def measure(arguments: argparse.Namespace, home: Path) -> None:
    workspace, conversation = await create_long_conversation(home, arguments.messages)
    quality = LineQuality(arguments.milliseconds / 2_000, arguments.megabits * 1e6 / 8)
    command = [
        sys.executable,
        "-m",
        "helix_desktop",
        "--home",
        str(home / "home"),
        "host",
        "--keep",
    ]
    host = subprocess.Popen([*command, "--workspace", workspace])
    window = SlowWindow(home, workspace, quality)
    run = program_folders.find_program_folders(home / "home").run
    try:
        while True:
            opened = await connect_to_host(run, workspace)
            if opened is not None:
                await opened.close_host()
                break
            await asyncio.sleep(0.1)
        today = Waited()
        newest_first = Waited()
        for _ in range(arguments.rounds):
            # The first of all finds the conversation closed at its host.
            await open_once(window, host, conversation, newest_first, newest_first=True)
            await open_once(window, host, conversation, today, newest_first=False)
    finally:
        host.terminate()
        host.wait()
    for name, seconds in (
        ("newest messages", newest_first.newest),
        ("newest messages, processor", newest_first.worked),
        ("they and what the agent asks", newest_first.answerable),
        ("all, after the newest", newest_first.complete),
        ("all, as before", today.complete),
    ):
        listed = ", ".join(f"{each:.2f}" for each in seconds)
        print(f"{name}: median {statistics.median(seconds):.2f} s ({listed})")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--milliseconds", type=float, default=50)
    parser.add_argument("--megabits", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    application = QApplication(["slow-line"])
    with tempfile.TemporaryDirectory(prefix="helix-slow-") as folder:
        asyncio.run(measure(arguments, Path(folder)))
    application.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
