"""SIGKILL of a host that has just said that something is done: it is done, and done once.

python -m tests.faults.acknowledged_kill [--trials 200] [--seed 1]

A client sends commands, most of them while a turn waits for permission: messages, messages that are
taken back, titles, attachments, and denials with words. The host is killed at any moment. Whatever
it had acknowledged must be there afterwards: in the conversation, or waiting in its queue, once.
What it had not acknowledged may be there or not, but never twice.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.engine.facts import Attachment, Text, ToolReturned, UserPart, UserSaid
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.errors import HelixError
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workspace_host.host_interface import (
    AnswerQuestion,
    ChangeConversation,
    SendMessage,
    StoreContent,
    TakeBackMessage,
    new_command_id,
    question_fingerprint,
    read_stored_content,
)
from helix_desktop.workspace_host.local_workspace_host import LocalWorkspaceHost
from tests.faults.store_load import Say, in_child, told
from tests.faults.store_report import report
from tests.scripted_tour import ClockWithoutPauses

ACTS = 40
LONGEST_RUN_SECONDS = 0.8  # So long take the acts on a busy machine.
ACTIONS = ("say", "say", "say", "steer", "ask", "deny", "take back", "title", "attach", "again")


def run_trials(count: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    for _ in range(count):
        home = Path(tempfile.mkdtemp(prefix="helix-acknowledged-"))
        try:
            run_trial(home, chance.randrange(1 << 30), found)
        finally:
            shutil.rmtree(home, ignore_errors=True)


def run_trial(home: Path, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    asyncio.run(_create_conversation(home))

    def work(say: Say) -> None:
        asyncio.run(_Client(home, chance, say).act_until_killed())

    child, reading = in_child(work)
    select.select([reading], [], [], 60)
    time.sleep(chance.random() * LONGEST_RUN_SECONDS)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found["kills"] += 1
    asyncio.run(_Check(home, told(reading), seed, found).check_all())


def _desk(home: Path) -> Workbenches:
    where = program_folders.find_program_folders(home / "home")
    return Workbenches(where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses())


async def _create_conversation(home: Path) -> None:
    (home / "folder").mkdir()
    desk = _desk(home)
    bench = await desk.create_workspace("Killed", home / "folder")
    await bench.choose_model_for_role("demo/demo")
    await bench.start_conversation("Killed")
    await desk.aclose()


async def _open_conversation(desk: Workbenches) -> tuple[Workbench, str]:
    bench = await desk.open_workspace("Killed")
    (row,) = bench.list_conversations()
    await bench.open_session(row.id)
    return bench, row.id


class _Client:
    """Says `? ` before a command with words, and `+ ` or `- ` once it is acknowledged."""

    def __init__(self, home: Path, chance: random.Random, say: Say) -> None:
        self._home = home
        self._chance = chance
        self._say = say
        self._last_command = SendMessage("", "")
        self._last_id = ""

    async def act_until_killed(self) -> None:
        bench, conversation = await _open_conversation(_desk(self._home))
        host = LocalWorkspaceHost(bench)
        for number in range(ACTS):
            action = self._chance.choice(ACTIONS)
            try:
                await self._act_once(host, bench, conversation, action, number)
            except HelixError as error:
                self._say(f"refused {action}: {error.what}")
            await asyncio.sleep(self._chance.choice((0.0, 0.002, 0.01)))
        await asyncio.Event().wait()

    async def _act_once(
        self,
        host: LocalWorkspaceHost,
        bench: Workbench,
        conversation: str,
        action: str,
        number: int,
    ) -> None:
        words = f"{action} {number}"
        match action:
            case "again":
                # As a client does whose line broke before it heard that its message had arrived.
                if self._last_id:
                    await host.run_host_command(self._last_command, self._last_id)
            case "say" | "steer":
                await self._send(host, conversation, words, steer=action == "steer")
            case "ask":
                question = f"write made-{number}.txt: text"
                await self._send(host, conversation, question, steer=False)
            case "deny":
                await self._deny_question(host, bench, conversation, words)
            case "take back":
                await self._take_back(host, bench, conversation)
            case "title":
                await host.run_host_command(ChangeConversation(conversation, title=words))
                self._say(f"title {words}")
            case "attach":
                await self._attach(host, conversation, words)

    async def _send(
        self, host: LocalWorkspaceHost, conversation: str, words: str, *, steer: bool
    ) -> None:
        self._last_command = SendMessage(conversation, words, steer=steer)
        self._last_id = new_command_id()
        self._say(f"? {words}")
        await host.run_host_command(self._last_command, self._last_id)
        self._say(f"+ {words}")

    async def _take_back(
        self, host: LocalWorkspaceHost, bench: Workbench, conversation: str
    ) -> None:
        session = await bench.open_session(conversation)
        if not session.queue:
            return
        part = self._chance.choice(session.queue).parts[0]
        assert isinstance(part, Text)
        self._say(f"- {part.text}")  # Before it: a kill between the two is no loss.
        await host.run_host_command(TakeBackMessage(conversation, part.text))
        self._say(f"taken {part.text}")

    async def _attach(self, host: LocalWorkspaceHost, conversation: str, words: str) -> None:
        stored = await host.run_host_command(StoreContent("a.txt", words.encode()))
        self._say(f"? {words}")
        message = SendMessage(conversation, words, stored.attachments)
        await host.run_host_command(message)
        self._say(f"+ {words}")
        self._say(f"attached {words}")

    async def _deny_question(
        self, host: LocalWorkspaceHost, bench: Workbench, conversation: str, words: str
    ) -> None:
        session = await bench.open_session(conversation)
        for number, question in list(session.questions.items()):
            answer = PermissionAnswer(allowed=False, words=words)
            fingerprint = question_fingerprint(question)
            await host.run_host_command(AnswerQuestion(conversation, number, fingerprint, answer))
            self._say(f"denied {words}")


class _Check:
    def __init__(self, home: Path, lines: list[str], seed: int, found: Counter[str]) -> None:
        self._home = home
        self._seed = seed
        self._found = found
        self._lines: dict[str, list[str]] = {}
        for line in lines:
            sign, _, words = line.partition(" ")
            self._lines.setdefault(sign, []).append(words)
            if sign == "RAISED":
                self._lose(line[:300])

    def _lose(self, what: str) -> None:
        self._found[f"LOST (seed {self._seed}) {what}"] += 1

    def _said(self, sign: str) -> list[str]:
        return self._lines.get(sign, [])

    async def check_all(self) -> None:
        desk = _desk(self._home)
        try:
            bench, conversation = await _open_conversation(desk)
            session = await bench.open_session(conversation)
            recorded = [entry.fact for entry in session.all_facts]
            messages = [fact.parts for fact in recorded if isinstance(fact, UserSaid)]
            waiting = [message.parts for message in session.queue]
            self._found["recorded"] += len(messages)
            self._found["still waiting"] += len(waiting)
            self._check_messages(Counter(map(text_of, messages + waiting)))
            await self._check_attachments(bench, messages + waiting)
            self._check_title(session.conversation.state.title)
            results = "\n".join(fact.head for fact in recorded if isinstance(fact, ToolReturned))
            for words in self._said("denied"):
                self._found["denials"] += 1
                if words not in results:
                    self._lose(f"the words of a denial: {words}")
        finally:
            await desk.aclose()

    def _check_messages(self, there: Counter[str]) -> None:
        for words in self._said("+"):
            self._found["acknowledged"] += 1
            if not there[words] and words not in self._said("-"):
                self._lose(words)
        for words in self._said("taken"):
            if there[words]:
                self._lose(f"taken back, and still there: {words}")
        for words, count in there.items():
            if count > 1:
                self._lose(f"{words} is there {count} times")

    async def _check_attachments(
        self, bench: Workbench, messages: list[tuple[UserPart, ...]]
    ) -> None:
        host = LocalWorkspaceHost(bench)
        for parts in messages:
            words = text_of(parts)
            if words not in self._said("attached"):
                continue
            self._found["attachments"] += 1
            (attachment,) = (part for part in parts if isinstance(part, Attachment))
            if await read_stored_content(host, attachment.stored) != words.encode():
                self._lose(f"the attachment of {words}")

    def _check_title(self, title: str) -> None:
        acknowledged = self._said("title")
        if acknowledged and title not in acknowledged[-1:] and not title.startswith("title"):
            self._lose(f"the title {acknowledged[-1]}: it is {title}")


def text_of(parts: tuple[UserPart, ...]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", type=int, help="the seed of a single trial")
    arguments = parser.parse_args()

    def run(found: Counter[str]) -> None:
        if arguments.one is None:
            run_trials(arguments.trials, arguments.seed, found)
            return
        home = Path(tempfile.mkdtemp(prefix="helix-acknowledged-"))
        try:
            run_trial(home, arguments.one, found)
        finally:
            shutil.rmtree(home, ignore_errors=True)

    return report("acknowledged kill", arguments.seed, run)


if __name__ == "__main__":
    sys.exit(main())
