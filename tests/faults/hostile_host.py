"""`python -m tests.faults.hostile_host [--messages N] [--seed S]`: another computer that lies.

A program named `ssh` stands first in the search path. It speaks the protocol between a window and a host,
as the program on a computer that somebody has taken over would: facts of every class with values that no
journal has, rows that are parents of each other, names with control characters, answers to what was not
asked, cut frames, newest messages that nothing fits or that nothing follows. The real client connects to it, opens conversations, and computes what a window paints.

An end with a sentence is what should happen. Counted as failures: any other exception, a message that takes
longer than LONGEST_SECONDS of processor time, more memory than MOST_MEMORY, a file that the client wrote, a secret in what it was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import random
import resource
import sys
import tempfile
import time
import types
import typing
from collections import Counter
from enum import StrEnum
from pathlib import Path

from helix_desktop.engine import fact_encoding, facts
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.newest_facts import build_state_of_newest_facts
from helix_desktop.engine.session_events import ConversationActivity, MessagesQueued
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.workspace_host import host_wire
from helix_desktop.workspace_host.client_workspace import ClientWorkspace
from helix_desktop.workspace_host.host_interface import (
    CommandResult,
    FactsAdded,
    HistoryReplaced,
    HostListRow,
    LiveState,
    NewestFacts,
    WorkspaceDescription,
)
from helix_desktop.workspace_host.host_line import HostLine
from helix_desktop.workspace_host.kept_host import START_OF_LINE
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost
from helix_desktop.workspace_host.ssh_address import SshAddress
from helix_desktop.workspace_host.ssh_host import connect_over_ssh

LONGEST_SECONDS = 1.0
STORY_SECONDS = 20.0
MESSAGES_OF_STORY = 20
MOST_MEMORY = 400 << 20  # What the client takes more than at its beginning.
# One of so many hosts says at most the newest messages. The user closes such a conversation.
STORIES_TO_SILENCE = 10
SECONDS_TO_SILENCE = 1.0
STORIES_TO_PROGRESS = 5  # So often it prints how far it is.
# Numbers of newest messages: possible, far too large, and at the edge of what is believed.
STARTS_OF_NEWEST = (1, 900, 499_000, 999_000, 9_999_000, 2**40)
STEPS_OF_NEWEST = (0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 300, -3)
SECRET = "sk-ant-hostile-host-secret"
NAMES = ("a", "b", "c")
TEXTS = (
    "",
    "a",
    "../../etc/passwd",
    "\x1b[2J\u202e",
    "<b>x</b>" * 50,
    "9" * 5_000,
    "{}",
    "[" * 2_000,
    "\0",
    "a" * 20_000,
)
DEEPEST_VALUE = 3
NUMBERS = (0, 1, 2, 3, 7, 2**31, 2**39)


# --- The host: the program that is started as `ssh`


def build_value(chance: random.Random, hint: typing.Any, depth: int = 0) -> typing.Any:
    """A value of a field's type, as no honest host would choose it."""
    inner_hints = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and Ellipsis in inner_hints:
        count = 0 if depth > DEEPEST_VALUE else chance.randrange(4)
        return tuple(build_value(chance, inner_hints[0], depth + 1) for _ in range(count))
    if typing.get_origin(hint) is tuple:
        return tuple(build_value(chance, inner, depth + 1) for inner in inner_hints)
    if inner_hints:
        return build_value(chance, chance.choice(inner_hints), depth + 1)
    if dataclasses.is_dataclass(hint) and hint is not Digest:
        return build_dataclass(chance, typing.cast(type, hint), depth)
    return build_plain_value(chance, hint)


def build_plain_value(chance: random.Random, hint: typing.Any) -> typing.Any:
    choices: list[typing.Any] = [*NAMES, *TEXTS]
    if hint is types.NoneType:
        choices = [None]
    elif hint is Digest:
        choices = [Digest.of_content(bytes([number])) for number in range(4)]
    elif isinstance(hint, type) and issubclass(hint, StrEnum):
        choices = list(hint)
    elif hint is bool:
        choices = [True, False]
    elif hint is int:
        choices = list(NUMBERS)
    elif hint is float:
        choices = [float(number) for number in NUMBERS]
    return chance.choice(choices)


def build_dataclass(chance: random.Random, kind: type, depth: int = 0) -> typing.Any:
    hints = typing.get_type_hints(kind)
    values = {name: build_value(chance, hint, depth + 1) for name, hint in hints.items()}
    return kind(**values)


def lying_facts(chance: random.Random, count: int) -> list[FactsAdded]:
    """Facts that have the shape of facts and follow each other by number."""
    events: list[FactsAdded] = []
    seq = 0
    while len(events) < count:
        kind = chance.choice(list(fact_encoding.KINDS.values()))
        try:
            fact = build_dataclass(chance, kind)
            fact_encoding.decode_fact(fact_encoding.encode_fact(fact), is_foreign=True)
        except (ValueError, TypeError, HelixError):
            continue  # The client would refuse it at once.
        seq += 1
        recorded = facts.Recorded("a", seq, float(seq), fact)
        events.append(FactsAdded((recorded,)))
    return events


def lying_newest_facts(chance: random.Random) -> NewestFacts:
    """Newest messages with numbers that may repeat, go back, or be larger than any journal's."""
    conversation = chance.choice(("a", "a", "a", "b"))
    seq = chance.choice(STARTS_OF_NEWEST)
    has_growing_numbers = chance.random() < 0.5
    newest: list[facts.Recorded] = []
    for event in lying_facts(chance, chance.randrange(1, 30)):
        newest.append(facts.Recorded(conversation, seq, event.facts[0].time, event.facts[0].fact))
        if has_growing_numbers:
            seq += 1
        else:
            seq = max(0, seq + chance.choice(STEPS_OF_NEWEST))
    return NewestFacts(tuple(newest))


def is_silent_host(seed: int) -> bool:
    return seed % STORIES_TO_SILENCE == STORIES_TO_SILENCE - 1


def lying_rows(chance: random.Random) -> tuple[HostListRow, ...]:
    rows: list[HostListRow] = []
    for name in NAMES:
        row = ConversationListRow(
            name, chance.choice(TEXTS), float(chance.choice(NUMBERS)), parent=chance.choice(NAMES)
        )
        rows.append(
            HostListRow(row, chance.choice(list(ConversationActivity)), chance.choice(TEXTS))
        )
    return tuple(rows)


class LyingHost:
    """Answers on standard output what is asked on standard input."""

    def __init__(self, seed: int, heard: Path) -> None:
        self._chance = random.Random(seed)
        self._heard = heard
        self._is_silent = is_silent_host(seed)
        self._out = sys.stdout.buffer

    def serve(self) -> None:
        self._out.write(b"Welcome\x1b[2J\n" + START_OF_LINE)
        name = self._chance.choice(TEXTS)
        self._say(
            host_wire.encode_frame(host_wire.Greeting(host_wire.PROTOCOL_VERSION, "x", "w", name))
        )
        reader = host_wire.FrameReader()
        while piece := os.read(0, 1 << 16):
            with self._heard.open("ab") as file:
                file.write(piece)
            for frame in reader.pop_whole_frames(piece):
                self._answer(host_wire.decode_client_message(frame))

    def _say(self, frame: bytes) -> None:
        self._out.write(frame)
        self._out.flush()

    def _answer(self, message: host_wire.ClientMessage) -> None:
        match message:
            case host_wire.RunCommand():
                description = WorkspaceDescription(
                    folders=TEXTS[1:4], main_model=self._chance.choice(TEXTS)
                )
                result = CommandResult(conversation="a", description=description)
                self._say(host_wire.encode_frame(host_wire.CommandDone(message.number, result)))
            case host_wire.FollowList():
                self._say(
                    host_wire.encode_frame(host_wire.CommandDone(message.number, CommandResult()))
                )
                rows = lying_rows(self._chance)
                self._say(host_wire.encode_frame(host_wire.RowsChanged(message.number, rows)))
            case host_wire.FollowConversation():
                self._say(
                    host_wire.encode_frame(host_wire.CommandDone(message.number, CommandResult()))
                )
                self._tell_newest_facts(message.number)
                if not self._is_silent:
                    self._tell_conversation(message.number)
            case host_wire.ReadRange():
                content = self._chance.randbytes(self._chance.randrange(100))
                self._say(host_wire.encode_frame(host_wire.RangeRead(message.number, content)))
            case _:
                pass

    def _tell_newest_facts(self, number: int) -> None:
        """None, one set of them, or several that contradict each other."""
        for _ in range(self._chance.choice((0, 1, 1, 1, 3))):
            self._say(host_wire.encode_host_event(number, lying_newest_facts(self._chance)))

    def _tell_conversation(self, number: int) -> None:
        told = lying_facts(self._chance, MESSAGES_OF_STORY)
        if self._chance.random() < 0.1:
            self._chance.shuffle(told)
        if self._chance.random() < 0.1:
            sys.exit()  # Nothing follows the newest messages.
        for event in told:
            self._say(host_wire.encode_host_event(number, event))
        if self._chance.random() < 0.2:
            self._say(host_wire.encode_host_event(number, HistoryReplaced()))
        queued = MessagesQueued("a", ((facts.Text(self._chance.choice(TEXTS)),),))
        activity = self._chance.choice(list(ConversationActivity))
        live = LiveState(
            activity, self._chance.choice(TEXTS), (), queued, self._chance.choice(TEXTS)
        )
        self._say(host_wire.encode_host_event(number, live))
        if self._chance.random() < 0.3:
            self._say(self._chance.randbytes(40))


# --- The client


async def read_newest_messages(workspace: ClientWorkspace, found: Counter[str]) -> None:
    """What a window does first. It catches what is caught here, and nothing else."""
    newest = await workspace.read_newest_facts("a")
    if not newest:
        return
    try:
        await asyncio.to_thread(build_state_of_newest_facts, newest)
        found["newest messages shown"] += 1
    except (HelixError, ValueError):
        found["newest messages refused"] += 1


async def open_silent_conversation(workspace: ClientWorkspace, found: Counter[str]) -> None:
    try:
        async with asyncio.timeout(SECONDS_TO_SILENCE):
            await read_newest_messages(workspace, found)
            await workspace.open_session("a")
    except TimeoutError:
        found["closed while the host said nothing"] += 1


async def run_story(found: Counter[str], *, is_silent: bool) -> None:
    async def connect() -> RemoteWorkspaceHost | None:
        return await connect_over_ssh(SshAddress("enemy", None, "/tmp/a"), has_terminal=False)

    workspace = ClientWorkspace(HostLine(connect, "enemy"), "known")
    try:
        async with asyncio.timeout(STORY_SECONDS):
            await workspace.line.connect_line()
            await workspace.begin_with_list()
            for name in NAMES:
                workspace.conversations_above(name)
            if is_silent:
                await open_silent_conversation(workspace, found)
                return
            await read_newest_messages(workspace, found)
            session = await workspace.open_session("a")
            found["conversations told whole"] += 1
            began = time.process_time()
            session.context.next_request_meter()
            session.context.next_message_cost()
            await session.context.explain_costs_of_last_turn()
            for seq in range(session.conversation.state.seq + 1):
                await session.conversation.moment_at(seq)
            await session.context.rebuild_request()
            if time.process_time() - began > LONGEST_SECONDS:
                found["failed: slow"] += 1
    except HelixError:
        found["ended with a sentence"] += 1
    except TimeoutError:
        found["failed: no end"] += 1
    except Exception as error:  # noqa: BLE001 - whatever else it is, is what is looked for
        found[f"failed: {type(error).__name__}: {error}"[:200]] += 1
    finally:
        try:
            async with asyncio.timeout(STORY_SECONDS):
                await workspace.end_client()
        except TimeoutError:
            found["failed: no end of the client"] += 1


def run_trials(messages: int, seed: int, found: Counter[str]) -> None:
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        heard = folder / "heard"
        heard.touch()
        program = folder / "ssh"
        repository = Path(__file__).parents[2]
        path_before = os.environ["PATH"]
        os.environ["ANTHROPIC_API_KEY"] = SECRET
        os.environ["PATH"] = f"{folder}{os.pathsep}{path_before}"
        try:
            for story in range(max(1, messages // MESSAGES_OF_STORY)):
                program.write_text(
                    f"#!/bin/sh\ncd {repository}\nexec {sys.executable} -m tests.faults.hostile_host --serve {seed * 100_000 + story} {heard}\n"
                )
                program.chmod(0o755)
                is_silent = is_silent_host(seed * 100_000 + story)
                asyncio.run(run_story(found, is_silent=is_silent))
                found["messages"] += MESSAGES_OF_STORY
                if story % STORIES_TO_PROGRESS == STORIES_TO_PROGRESS - 1:
                    print(f"{found['messages']} messages so far", flush=True)
        finally:
            os.environ["PATH"] = path_before
            del os.environ["ANTHROPIC_API_KEY"]
        if SECRET.encode() in heard.read_bytes():
            found["failed: a key was sent"] += 1
        if {path.name for path in folder.iterdir()} != {"ssh", "heard"}:
            found["failed: a file was written"] += 1
    memory_after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found["MB more"] = (memory_after - memory_before) >> 10
    if found["MB more"] << 20 > MOST_MEMORY:
        found["failed: memory"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", nargs=2)
    options = parser.parse_args()
    if options.serve:
        seed, heard = options.serve
        LyingHost(int(seed), Path(heard)).serve()
        return 0
    found: Counter[str] = Counter()
    run_trials(options.messages, options.seed, found)
    failures = sum(count for name, count in found.items() if name.startswith("failed"))
    print(f"hostile_host: {dict(found)}; {failures} failures, seed {options.seed}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
