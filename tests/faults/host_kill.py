"""Two clients and commands in one conversation, and kills of them and of the host at any moment.

python -m tests.faults.host_kill [--stories 500] [--seed 1]

Each client connects as over ssh: by the end of a line, a process of its own, which leads to the kept
host. They send messages, answer questions (sometimes both the same one) and follow. Lines and hosts are
killed. Afterwards every word that was sent is in the conversation exactly once, both clients have the
view of the journal, and no command ran more often than it was allowed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import Decided, Recorded, Text, UserPart, UserSaid
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session_events import ConversationActivity, QuestionAsked
from helix_desktop.engine.view import build_state
from helix_desktop.errors import ActionRefused, HelixError, OwnerEnded
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from helix_desktop.workspace_host.followed_conversation import FollowedConversation, digest_of_view
from helix_desktop.workspace_host.host_interface import (
    AnswerQuestion,
    FactsAdded,
    LiveState,
    SendMessage,
    new_command_id,
    question_fingerprint,
)
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost
from helix_desktop.workspace_host.ssh_host import SshAddress, SshStream
from tests.faults.store_report import report
from tests.peers.ssh_machine import list_kept_hosts

ACTS = 14
SETTLE_SECONDS = 60.0
MARKS = "marks.txt"
TOKEN = re.compile(r"token-\d+-\d+")


class Story:
    """One home, one conversation, and what was sent and allowed in it."""

    def __init__(self, home: Path, chance: random.Random, found: Counter[str]) -> None:
        self.home = home
        self.chance = chance
        self.found = found
        self.workspace = ""
        self.conversation = ""
        self.sent: list[str] = []
        self.allowed: Counter[str] = (
            Counter()
        )  # By token: answers that may have allowed its command.
        self.is_over = False

    @property
    def folder(self) -> Path:
        return self.home / "folder"

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "helix_desktop", "--home", str(self.home / "home"), *words]

    def desk(self) -> Workbenches:
        where = program_folders.find_program_folders(self.home / "home")
        return Workbenches(where, SecretStorage(where.key_file, environ={}))

    async def create_conversation(self) -> None:
        self.folder.mkdir()
        desk = self.desk()
        bench = await desk.create_workspace("Killed", self.folder)
        await bench.choose_model_for_role("demo/demo")
        session = await bench.start_conversation("Killed")
        self.workspace = bench.id
        self.conversation = session.id
        await desk.aclose()

    def kill_host(self) -> None:
        for pid in list_kept_hosts(self.home / "home"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.found["hosts killed"] += 1


class StoryClient:
    """Connects again and again, sends what has not arrived, and answers some questions."""

    def __init__(self, story: Story, name: str) -> None:
        self._story = story
        self.name = name
        self.followed = FollowedConversation()
        self._ids: dict[str, str] = {}  # Of commands, by the words that they send.
        self._line: asyncio.subprocess.Process | None = None
        self._host: RemoteWorkspaceHost | None = None
        self._answers = OwnedTasks(f"answers of {name}")
        self._has_caught_up = False

    def kill_line(self) -> None:
        if self._line is not None and self._line.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._line.pid, signal.SIGKILL)
                self._story.found["lines killed"] += 1

    async def say(self, words: str) -> None:
        self._story.sent.append(words)
        self._ids[words] = new_command_id()
        if self._host is not None and self._has_caught_up:
            await self._send_what_is_missing(self._host)

    async def follow_until_over(self) -> None:
        while not self._story.is_over:
            try:
                await self._follow_once()
            except HelixError as error:
                self._has_caught_up = False
                self._host = None
                if not isinstance(error, OwnerEnded):
                    self._story.found[f"other ends ({error.what[:90]})"] += 1
        await self._answers.aclose()

    async def _follow_once(self) -> None:
        self._line = await asyncio.create_subprocess_exec(
            *self._story.argv("host", "--over-line", "--workspace", self._story.workspace),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stream = SshStream(self._line, SshAddress("here"))
        try:
            await stream.read_to_start_of_line()
            host = await RemoteWorkspaceHost.connect_over_stream(stream)
        except BaseException:
            await stream.close_stream()
            raise
        try:
            self._host = host
            follower = await host.follow_conversation(
                self._story.conversation, self.followed.state.seq
            )
            while True:
                for event in await follower.next_events():
                    self.followed.apply_event(event)
                    if isinstance(event, FactsAdded):
                        self._note_arrived(event.facts)
                    if isinstance(event, LiveState):
                        self._has_caught_up = True
                        await self._send_what_is_missing(host)
                        for asked in event.questions:
                            self._answer_sometimes(host, asked)
                    if isinstance(event, QuestionAsked):
                        self._answer_sometimes(host, event)
        finally:
            await host.close_host()

    def _note_arrived(self, recorded_facts: tuple[Recorded, ...]) -> None:
        for recorded in recorded_facts:
            if isinstance(recorded.fact, UserSaid):
                self._ids.pop(text_of(recorded.fact.parts), None)

    async def _send_what_is_missing(self, host: RemoteWorkspaceHost) -> None:
        queued = self.followed.queued
        waiting = [text_of(parts) for parts in queued.messages] if queued else []
        for words, command_id in list(self._ids.items()):
            if words not in waiting:
                await host.run_host_command(
                    SendMessage(self._story.conversation, words), command_id
                )

    def _answer_sometimes(self, host: RemoteWorkspaceHost, asked: QuestionAsked) -> None:
        chance = self._story.chance
        pause = chance.random() * 0.6
        is_allowed = self._story.is_over or chance.random() < 0.7
        work = self._answer_question(host, asked, pause, allowed=is_allowed)
        self._answers.spawn_task(work, name="answer")

    async def _answer_question(
        self, host: RemoteWorkspaceHost, asked: QuestionAsked, pause: float, *, allowed: bool
    ) -> None:
        await asyncio.sleep(pause)
        story = self._story
        (token,) = TOKEN.findall(asked.question.call.arguments)
        fingerprint = question_fingerprint(asked.question)
        answer = AnswerQuestion(
            story.conversation, asked.number, fingerprint, PermissionAnswer(allowed=allowed)
        )
        if allowed:
            story.allowed[token] += 1
        try:
            await host.run_host_command(answer)
        except ActionRefused:
            story.found["answers that came too late"] += 1
            if allowed:
                story.allowed[token] -= 1
        except HelixError:
            story.found["answers that are not known"] += 1
        else:
            story.found["answers"] += 1

    def answer_open_questions(self) -> None:
        if self._host is not None and self._has_caught_up:
            for number, question in self.followed.questions.items():
                asked = QuestionAsked(self._story.conversation, number, question)
                self._answer_sometimes(self._host, asked)

    @property
    def has_settled(self) -> bool:
        queued = self.followed.queued
        return (
            self._has_caught_up
            and not self._ids
            and not self.followed.questions
            and not (queued and queued.messages)
            and self.followed.running in (ConversationActivity.IDLE, ConversationActivity.FAILED)
        )


def text_of(parts: tuple[UserPart, ...]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


async def tell_story(story: Story) -> None:
    await story.create_conversation()
    clients = [StoryClient(story, "left"), StoryClient(story, "right")]
    tasks = OwnedTasks("clients of a story")
    following = [
        tasks.spawn_task(client.follow_until_over(), name=client.name) for client in clients
    ]
    commands: list[AskCommand] = []
    try:
        for number in range(ACTS):
            await act_once(story, clients, commands, number)
            await asyncio.sleep(story.chance.random() * 1.2)
        for command in commands:
            await command.process.wait()
        await settle(story, clients)
    finally:
        story.is_over = True
        for task in following:
            task.cancel()
        await tasks.aclose(limit=10)
        story.kill_host()
    await check_story(story, clients, commands)


@dataclass
class AskCommand:
    """An `ask` in a conversation of its own."""

    process: asyncio.subprocess.Process
    words: str
    is_killed: bool = False


async def act_once(
    story: Story,
    clients: list[StoryClient],
    commands: list[AskCommand],
    number: int,
) -> None:
    chance = story.chance
    client = chance.choice(clients)
    act = chance.choice(["say", "say", "run", "run", "kill line", "kill host", "ask", "kill ask"])
    words = f"token-{number}-{chance.randrange(1 << 30)}"
    with suppress(HelixError):  # The line broke while it was sent: it is sent again.
        if act == "say":
            await client.say(words)
        elif act == "run":
            await client.say(f"run echo {words} >> {MARKS}")
    if act == "kill line":
        client.kill_line()
    elif act == "kill host":
        story.kill_host()
    elif act == "ask":
        story.found["commands"] += 1
        process = await asyncio.create_subprocess_exec(
            *story.argv("ask", "-w", story.workspace, f"asked {words}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        commands.append(AskCommand(process, f"asked {words}"))
    elif act == "kill ask" and commands and commands[-1].process.returncode is None:
        commands[-1].is_killed = True
        with suppress(ProcessLookupError):
            commands[-1].process.kill()
            story.found["commands killed"] += 1


async def settle(story: Story, clients: list[StoryClient]) -> None:
    """Waits until everything that was sent has arrived, and nothing works or asks any more."""
    deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
    while not all(client.has_settled for client in clients):
        if asyncio.get_running_loop().time() > deadline:
            states = [
                (client.name, client.followed.running, len(client.followed.questions))
                for client in clients
            ]
            story.found[f"LOST a story that does not end: {states}"] += 1
            return
        for client in clients:
            client.answer_open_questions()
        await asyncio.sleep(0.3)


async def check_story(story: Story, clients: list[StoryClient], commands: list[AskCommand]) -> None:
    desk = story.desk()
    bench = await desk.open_workspace(story.workspace)
    session = await bench.open_session(story.conversation)
    stored = list(session.all_facts)
    titles = Counter(row.title for row in bench.list_conversations())
    await desk.aclose()
    for command in commands:
        code = command.process.returncode
        times = titles[command.words]
        if not command.is_killed and (code != 0 or times != 1):
            story.found[f"LOST {command.words!r} ended with {code}, {times} times there"] += 1
    check_messages(story, stored)
    for client in clients:
        check_view(story, client, stored)
    check_commands_that_ran(story)


def check_messages(story: Story, stored: list[Recorded]) -> None:
    """Every message is there once, and no call was answered twice."""
    said: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    for entry in stored:
        if isinstance(entry.fact, UserSaid) and not entry.fact.by:
            said[text_of(entry.fact.parts)] += 1
        if isinstance(entry.fact, Decided):
            decided[entry.fact.call] += 1
    for words in story.sent:
        story.found["messages"] += 1
        if said[words] != 1:
            story.found[f"LOST {words!r} is there {said[words]} times"] += 1
    for call, count in decided.items():
        if count > 1:
            story.found[f"LOST the call {call} was answered {count} times"] += 1


def check_view(story: Story, client: StoryClient, stored: list[Recorded]) -> None:
    known = list(client.followed.state.facts)
    first = stored[: len(known)]
    if known != first:
        story.found[f"LOST {client.name} has other facts"] += 1
    elif digest_of_view(client.followed.state) != digest_of_view(build_state(first)):
        story.found[f"LOST {client.name} has another view"] += 1


def check_commands_that_ran(story: Story) -> None:
    marks = story.folder / MARKS
    ran: Counter[str] = Counter()
    if marks.exists():
        ran.update(marks.read_text().split())
    for token, count in ran.items():
        story.found["commands that ran"] += count
        if count > 1 or count > story.allowed[token]:
            story.found[f"LOST {token} ran {count} times"] += 1


def trials(stories: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    for _ in range(stories):
        home = Path(tempfile.mkdtemp(prefix="helix-host-"))
        story = Story(home, random.Random(chance.randrange(1 << 30)), found)
        try:
            asyncio.run(tell_story(story))
            found["stories"] += 1
        finally:
            story.kill_host()
            shutil.rmtree(home, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stories", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    return report(
        "host kill",
        arguments.seed,
        lambda found: trials(arguments.stories, arguments.seed, found),
    )


if __name__ == "__main__":
    sys.exit(main())
