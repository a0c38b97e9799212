"""Many who work in one workspace, and kills of them, of their lines and of the host at any moment.

python -m tests.faults.host_kill [--stories 500] [--seed 1] [--one SEED] [--minutes N] [--at-once 3]

Two windows and a phone work in one conversation; commands, an editor and an agent at the gateway in
conversations of their own. They send messages, answer questions (sometimes the same one) and follow.
Lines break in the middle of a message, or hang. All of them and the host are killed. Afterwards every
word that was sent is in its conversation exactly once, both windows have the view of the journal,
and no command ran twice, or without an answer that allowed it.

`--one` tells the story of one seed again. `--minutes`: no story is begun after so many.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import Decided, ModelReplied, Recorded, Text, UserSaid
from helix_desktop.engine.view import build_state
from helix_desktop.errors import HelixError, StoreBusy
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workspace_host.followed_conversation import digest_of_view
from tests.faults.command_nursery import CommandNursery, NurseryProcess
from tests.faults.host_story_clients import (
    EditorClient,
    GatewayAgent,
    PhoneClient,
    Story,
    WindowClient,
    text_of,
)
from tests.faults.store_report import report
from tests.peers.agent_provider import Asked, Block, Provider, Says
from tests.peers.ssh_machine import list_kept_hosts

ACTS = 14
LONGEST_PAUSE_SECONDS = 0.5
# On a busy computer, processes of a story get a processor only now and then.
SETTLE_SECONDS = 600.0
MARKS = "marks.txt"
OWNER_ENDED = "The running program was closed before it answered. Try again."
WINDOW_ACTS = ("say", "say", "run", "run", "break line", "hang line", "kill host", "kill host")
OTHER_ACTS = ("ask", "ask", "phone", "phone run", "editor", "editor run", "gateway", "gateway")
KILLS = ("kill ask", "end page", "kill editor", "kill gateway")


@dataclass
class AskCommand:
    """An `ask` in a conversation of its own."""

    process: NurseryProcess
    words: str
    complaint: Path  # What it wrote to its standard error.
    is_killed: bool = False


@dataclass
class Clients:
    windows: list[WindowClient]
    phone: PhoneClient
    editor: EditorClient
    gateway: GatewayAgent
    commands: list[AskCommand] = field(default_factory=list)

    @property
    def all_that_settle(self) -> Sequence[WindowClient | PhoneClient | EditorClient | GatewayAgent]:
        return [*self.windows, self.phone, self.editor, self.gateway]


def open_desk(story: Story) -> Workbenches:
    return Workbenches(story.places, SecretStorage(story.places.key_file, environ={}))


async def create_conversation(story: Story) -> None:
    story.folder.mkdir()
    desk = open_desk(story)
    bench = await desk.create_workspace("Killed", story.folder)
    await bench.choose_model_for_role("demo/demo")
    session = await bench.start_conversation("Killed")
    story.workspace = bench.id
    story.conversation = session.id
    await desk.aclose()


async def tell_story(story: Story, upstream: str) -> None:
    await create_conversation(story)
    clients = Clients(
        [WindowClient(story, "left"), WindowClient(story, "right")],
        PhoneClient(story),
        EditorClient(story),
        GatewayAgent(story, upstream),
    )
    tasks = OwnedTasks("clients of a story")
    working = [
        tasks.spawn_task(client.work_until_over(), name=type(client).__name__)
        for client in clients.all_that_settle
    ]
    try:
        for number in range(ACTS):
            await act_once(story, clients, number)
            await asyncio.sleep(story.chance.random() * LONGEST_PAUSE_SECONDS)
        has_settled = await settle(story, clients, working)
    finally:
        story.is_over = True
        for task in working:
            task.cancel()
        await tasks.aclose(limit=5)
        for client in clients.all_that_settle:
            await client.close()
        story.kill_host()
        # An `ask` whose host was killed may have started one of its own, which stays for a minute.
        for pid in list_kept_hosts(story.home / "home"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if has_settled:
        await check_story(story, clients)


async def act_once(story: Story, clients: Clients, number: int) -> None:
    chance = story.chance
    kind_of_act = chance.choice((WINDOW_ACTS, WINDOW_ACTS, OTHER_ACTS, KILLS))
    act = chance.choice(kind_of_act)
    words = f"token-{number}-{chance.randrange(1 << 30)}"
    if kind_of_act is WINDOW_ACTS:
        with suppress(HelixError):  # The line broke while it was sent: it is sent again.
            await act_in_window(story, chance.choice(clients.windows), act, words)
    elif kind_of_act is OTHER_ACTS:
        act_elsewhere(story, clients, act, words)
    else:
        await kill_client(story, clients, act)


async def act_in_window(story: Story, window: WindowClient, act: str, words: str) -> None:
    match act:
        case "say":
            await window.say(words)
        case "run":
            await window.say(command_that_marks(words))
        case "break line":
            window.break_line()
        case "hang line":
            await window.hang_line()
        case "kill host":
            story.kill_host()


def act_elsewhere(story: Story, clients: Clients, act: str, words: str) -> None:
    match act:
        case "ask":
            start_ask_command(story, clients, f"asked {words}")
        case "phone":
            clients.phone.say(words)
        case "phone run":
            clients.phone.say(command_that_marks(words))
        case "editor":
            clients.editor.say(words)
        case "editor run":
            clients.editor.say(command_that_marks(words))
        case "gateway":
            clients.gateway.say(words)


async def kill_client(story: Story, clients: Clients, act: str) -> None:
    match act:
        case "kill ask":
            kill_last_command(story, clients)
        case "end page":
            await clients.phone.restart()
        case "kill editor":
            clients.editor.kill()
        case "kill gateway":
            clients.gateway.kill()


def command_that_marks(words: str) -> str:
    return f"run echo {words} >> {MARKS}"


def start_ask_command(story: Story, clients: Clients, words: str) -> None:
    story.found["commands"] += 1
    complaint = story.home / f"complaint-{len(clients.commands)}.txt"
    nothing = os.open(os.devnull, os.O_RDWR)
    with complaint.open("wb") as error_file:
        argv = story.argv("ask", "-w", story.workspace, words)
        process = story.nursery.start_command(
            argv, nothing, error_file.fileno(), error_file.fileno()
        )
    os.close(nothing)
    clients.commands.append(AskCommand(process, words, complaint))


def kill_last_command(story: Story, clients: Clients) -> None:
    if clients.commands and clients.commands[-1].process.kill():
        clients.commands[-1].is_killed = True
        story.found["commands killed"] += 1


async def settle(story: Story, clients: Clients, working: Sequence[asyncio.Task[None]]) -> bool:
    """Waits until everything that was sent has arrived, and nothing works or asks any more. Returns
    False if that takes too long: then nobody can say what is lost.
    """
    deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
    while True:
        for task in working:
            if task.done():
                task.result()  # A client that failed is a mistake of this trial.
        waiting = what_is_unsettled(clients)
        if not waiting:
            return True
        if asyncio.get_running_loop().time() > deadline:
            story.found[f"LOST a story that does not end: {waiting}"] += 1
            return False
        for window in clients.windows:
            await window.go_on()
        await asyncio.sleep(0.2)


def what_is_unsettled(clients: Clients) -> list[str]:
    words: list[str] = []
    for client in clients.all_that_settle:
        if not client.has_settled:
            words.append(client.describe())
    for command in clients.commands:
        if command.process.is_running:
            words.append(f"{command.words} runs")
    return words


# --- What must be true afterwards


async def check_story(story: Story, clients: Clients) -> None:
    desk = open_desk(story)
    bench = await open_when_free(desk, story.workspace)
    stored_by_conversation: dict[str, list[Recorded]] = {}
    titles: Counter[str] = Counter()
    for row in bench.list_conversations():
        titles[row.title] += 1
        recorded = await bench.read_conversation_facts(row.id)
        stored_by_conversation[row.id] = list(recorded)
    session = await bench.open_session(story.conversation)
    waiting = [text_of(message.parts) for message in session.queue]
    await desk.aclose()

    stored = stored_by_conversation.pop(story.conversation)
    check_messages(story, stored, waiting)
    for window in clients.windows:
        check_view(story, window, stored)
    check_commands(story, clients, titles)
    elsewhere: list[Recorded] = []
    for recorded_facts in stored_by_conversation.values():
        elsewhere += recorded_facts
    check_editor(story, clients.editor, elsewhere)
    check_gateway(story, clients.gateway, elsewhere)
    check_commands_that_ran(story, clients.editor)


async def open_when_free(desk: Workbenches, workspace: str) -> Workbench:
    """What was killed may hold its lock for a moment longer."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return await desk.open_workspace(workspace)
        except StoreBusy:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


def count_users_words(stored: Sequence[Recorded]) -> Counter[str]:
    said: Counter[str] = Counter()
    for entry in stored:
        if isinstance(entry.fact, UserSaid) and not entry.fact.by:
            said[text_of(entry.fact.parts)] += 1
    return said


def check_messages(story: Story, stored: Sequence[Recorded], waiting: Sequence[str]) -> None:
    """Every message is there once, and no call was answered twice."""
    said = count_users_words(stored)
    said.update(waiting)
    for words in story.sent:
        story.found["messages"] += 1
        if said[words] != 1:
            lose(story, f"{words!r} is there {said[words]} times")
    decided: Counter[str] = Counter()
    for entry in stored:
        if isinstance(entry.fact, Decided):
            decided[entry.fact.call] += 1
    for call, count in decided.items():
        if count > 1:
            lose(story, f"the call {call} was answered {count} times")


def check_view(story: Story, window: WindowClient, stored: Sequence[Recorded]) -> None:
    known = list(window.followed.state.facts)
    first = list(stored[: len(known)])
    if known != first:
        lose(story, f"{window.name} has other facts")
    elif digest_of_view(window.followed.state) != digest_of_view(build_state(first)):
        lose(story, f"{window.name} has another view")


def check_commands(story: Story, clients: Clients, titles: Counter[str]) -> None:
    for command in clients.commands:
        code = command.process.exit_code
        times = titles[command.words]
        said = command.complaint.read_text("utf-8", "replace")[-500:]
        if not command.is_killed and (code != 0 or times != 1):
            lose(story, f"{command.words!r} ended with {code}, {times} times there: {said!r}")


def check_editor(story: Story, editor: EditorClient, stored: Sequence[Recorded]) -> None:
    """A prompt that was answered is there, and as often as it was tried at most."""
    said = count_users_words(stored)
    for words in editor.answered:
        if not 1 <= said[words] <= editor.tries[words]:
            lose(story, f"the editor's {words!r} is there {said[words]} times")


def check_gateway(story: Story, gateway: GatewayAgent, stored: Sequence[Recorded]) -> None:
    """What an agent has stands in the journal once its next request has come. The last step has
    none, and the story ends with a kill.
    """
    said = count_users_words(stored)
    replies: Counter[str] = Counter()
    for entry in stored:
        if isinstance(entry.fact, ModelReplied):
            for part in entry.fact.parts:
                if isinstance(part, Text):
                    replies[part.text] += 1
    for words in gateway.said[:-1]:
        if said[words] != 1:
            lose(story, f"the agent's {words!r} is there {said[words]} times")
    for reply in gateway.replies[:-1]:
        if replies[reply] != 1:
            lose(story, f"the reply {reply!r} is there {replies[reply]} times")


def check_commands_that_ran(story: Story, editor: EditorClient) -> None:
    """An editor that was killed asks again for what it does not know to be done."""
    marks = story.folder / MARKS
    ran: Counter[str] = Counter()
    if marks.exists():
        ran.update(marks.read_text().split())
    for token, count in ran.items():
        story.found["commands that ran"] += count
        most = max(1, editor.tries[command_that_marks(token)])
        if count > most or count > story.allowed[token]:
            lose(story, f"{token} ran {count} times, and was allowed {story.allowed[token]} times")


def lose(story: Story, what: str) -> None:
    story.found[f"LOST {what}"] += 1


# --- Telling many


async def tell_many(
    seeds: Sequence[int],
    minutes: float,
    at_once: int,
    nursery: CommandNursery,
    found: Counter[str],
) -> None:
    deadline = time.monotonic() + minutes * 60
    untold = list(reversed(seeds))

    async def tell_until_none_is_left() -> None:
        while untold and time.monotonic() < deadline:
            await tell_one(untold.pop(), nursery, found)

    await asyncio.gather(*[tell_until_none_is_left() for _ in range(at_once)])


async def tell_one(seed: int, nursery: CommandNursery, found: Counter[str]) -> None:
    home = Path(tempfile.mkdtemp(prefix="helix-host-"))
    found_here: Counter[str] = Counter()
    replies = iter(range(1 << 30))

    def answer(_: Asked) -> Sequence[Block]:
        return [Says(f"reply {next(replies)} of {seed}")]

    story = Story(home, random.Random(seed), found_here, nursery)
    start = time.monotonic()
    try:
        with Provider(answer) as provider:
            await tell_story(story, provider.url)
        found_here["stories"] += 1
    except Exception as error:  # noqa: BLE001 - the other stories are told all the same
        found_here[f"LOST the story broke: {error!r}"] += 1
    finally:
        story.kill_host()
        shutil.rmtree(home, ignore_errors=True)
    losses = [what for what in found_here if what.startswith("LOST")]
    print(f"seed {seed}: {time.monotonic() - start:.1f} s, {len(losses)} losses", flush=True)
    for what in losses:
        print(f"  {what}", flush=True)
        found[f"{what} (--one {seed})"] += found_here.pop(what)
    found.update(found_here)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stories", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", type=int, default=None)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--at-once", type=int, default=3)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    nursery = CommandNursery()

    seeds = [arguments.one]
    if arguments.one is None:
        chance = random.Random(arguments.seed)
        seeds = [chance.randrange(1 << 30) for _ in range(arguments.stories)]

    def tell(found: Counter[str]) -> None:
        work = tell_many(seeds, arguments.minutes, arguments.at_once, nursery, found)
        asyncio.run(work)

    try:
        return report("host kill", arguments.seed, tell)
    finally:
        nursery.close()


if __name__ == "__main__":
    sys.exit(main())
