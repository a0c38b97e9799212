"""SIGKILL of the real window while its message box is used: no message is lost or there twice.

python -m tests.faults.sending_kill [--trials 60] [--seed 1] [--hosted]

Messages are sent in conversations that are there and in new ones, also with "Send now" and in place
of earlier ones. Those that wait are moved, edited and removed. The window asks about prices, needed
summaries and unknown commands, and is answered, or killed while it asks. After the kill every word
is in a conversation, in its queue or in a message box, exactly once. Equal messages are sent on
purpose. What was killed is counted by the last act that had begun.

`--hosted`: another window has the workspace open. It has asked for a permission, and is killed at
the same time as this one. The next program asks again, and nothing ran without an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import select
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QMessageBox

from helix_desktop.desktop.history_import import HistoryImporter
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.engine.facts import Text, UserPart, UserSaid
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.session_events import Event, QuestionAsked
from helix_desktop.engine.session_setup import QueuedMessage
from helix_desktop.engine.view import ConversationState
from helix_desktop.gui.chat.composer import Composer
from helix_desktop.gui.conversation_sides import NEW
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.shown_workspace import ShownSession, client_of_host
from helix_desktop.gui.theme import Theme
from helix_desktop.program_folders import find_program_folders
from helix_desktop.program_settings import ASK_ABOVE
from helix_desktop.workbench import Workbench
from helix_desktop.workbench.tour_folder import MODEL, create_tour_folder
from tests.faults.store_load import Say, in_child, told
from tests.faults.store_report import report
from tests.faults.window_kill import desk_of, history_lines
from tests.soak.driven import HOME, drive, opened, until

WORKSPACE = "Killed"
MADE = "made.txt"
ASKING_WORDS = f"write {MADE}: kept"
ACTS = 60
LONGEST_RUN_SECONDS = 5.0  # From the first act on; so long take the acts on a busy machine.
LONGEST_PAUSE_SECONDS = 0.15
LONGEST_START_SECONDS = 300.0
Person = Callable[[WindowProgram, Say], Coroutine[Any, Any, None]]
PRICE = 1_000.0  # In dollars for a million tokens: each message is above a limit of a cent.
LINES_OF_LONG_CONVERSATION = 400
ACT_WEIGHTS = {
    "say": 4,
    "send now": 3,
    "begin": 3,
    "edit earlier": 2,
    "unknown command": 2,
    "price": 2,
    "needed summary": 1,
    "edit waiting": 3,
    "remove waiting": 1,
    "move waiting": 2,
    "turn waiting": 1,
    "go elsewhere": 1,
}


def run_trials(count: int, seed: int, found: Counter[str], *, hosted: bool = False) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="helix-sending-", ignore_cleanup_errors=True) as folder:
        prepared = Path(folder) / "prepared"
        place = Path(folder) / "killed"
        place.mkdir()
        _prepare_in_child(place, "ask" if hosted else "allow all")
        place.rename(prepared)
        for trial in range(count):
            # The workspace knows its folder by its path, so each trial has the same one.
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(prepared, place, symlinks=True)
            _run_trial(place, chance.randrange(1 << 30), found, trial, hosted=hosted)
            print(f"trial {trial}: {dict(found)}", flush=True)


def _prepare_in_child(place: Path, mode: str) -> None:
    """In a child, as this process must have no threads when it forks."""
    child, reading = in_child(lambda _say: asyncio.run(prepare(place, mode)))
    lines = told(reading)
    os.waitpid(child, 0)
    assert not lines, lines


async def prepare(place: Path, mode: str) -> None:
    """A workspace with a conversation that was worked in, and one that is too long for its model."""
    create_tour_folder(place / "work")
    desk = desk_of(place)
    desk.configured.correct_model("demo", "demo", {"input": PRICE, "output": PRICE})
    small = {"window": 8_192, "input": PRICE, "output": PRICE}
    desk.configured.correct_model("demo", "small", small)
    bench = await desk.create_workspace(WORKSPACE, place / "work")
    await bench.choose_model_for_role(MODEL)
    await bench.choose_permission_mode(mode)
    lines = list(history_lines(1, place / "work"))[:LINES_OF_LONG_CONVERSATION]
    history = place / "1.jsonl"
    history.write_text("".join(lines))
    importer = HistoryImporter(desk)
    chosen = await importer.read_chosen_files([history])
    await importer.import_history_groups(chosen.groups, lambda *_: None)
    (imported,) = bench.list_conversations()
    await bench.save_conversation_model(imported.id, "demo/small")
    session = await bench.start_conversation("worked")
    for words in ("before 1", "before 2"):
        session.send_message((Text(words),))
        await session.wait_until_idle()
    await desk.aclose()


def _start_window(place: Path, person: Person, *arguments: str) -> tuple[int, int]:
    """Returns the window's process and what it says, when it has said something."""

    def work(say: Say) -> None:
        signal.alarm(0)  # The kill is the end, also on a busy machine.
        if drive(place, lambda run: person(run, say), *arguments):
            say("RAISED what the person did ended with an error")

    child, reading = in_child(work)
    begun, _, _ = select.select([reading], [], [], LONGEST_START_SECONDS)
    assert begun, "the window did not begin"
    return child, reading


def _act_and_kill(place: Path, seed: int, *, hosted: bool) -> list[str]:
    """Returns what the person said of the acts."""
    processes: list[int] = []
    arguments: list[str] = []
    if hosted:
        host, _ = _start_window(place, hold_workspace_open)
        processes.append(host)
        arguments.append("--new-window")
    chance = random.Random(seed)
    pause = chance.random() * LONGEST_RUN_SECONDS
    person = partial(act_until_killed, chance=chance, hosted=hosted)
    window, reading = _start_window(place, person, *arguments)
    processes.append(window)
    time.sleep(pause)
    for process in processes:
        os.kill(process, signal.SIGKILL)
    for process in processes:
        os.waitpid(process, 0)
    return told(reading)


def _run_trial(place: Path, seed: int, found: Counter[str], trial: int, *, hosted: bool) -> None:
    lines = _act_and_kill(place, seed, hosted=hosted)
    found["kills"] += 1
    for line in lines:
        if line.startswith("RAISED"):
            found[f"LOST in trial {trial} (seed {seed}): {line[:300]}"] += 1
    written, last_act = read_acts(lines)
    asked = [line.removeprefix("asked ") for line in lines if line.startswith("asked ")]
    found[f"killed in: {last_act}"] += 1
    there = _read_in_child(place, asked, found, f"trial {trial} (seed {seed})")
    # The last word was perhaps written, but not yet said, or taken back.
    for words in written.keys() | there.keys():
        if words.startswith("import "):
            continue
        if there[words] < written[words]:
            found[f"LOST in trial {trial} (seed {seed}, {last_act}): {words}"] += 1
        is_one = not words.endswith("again")  # As "/nosuch again" is written twice, too.
        if there[words] > written[words] + 1 or (is_one and there[words] > 1):
            found[f"LOST twice in trial {trial} (seed {seed}, {last_act}): {words}"] += 1


def read_acts(lines: Iterable[str]) -> tuple[Counter[str], str]:
    """Returns which words were written and not removed, and the last act that had begun."""
    written: Counter[str] = Counter({"before 1": 1, "before 2": 1})
    last_act = "the start"
    for line in lines:
        sign, _, words = line.partition(" ")
        match sign:
            case "+":
                written[words] += 1
            case "-":
                written[words] -= 1
            case "act":
                last_act = words
    return written, last_act


class PersonAtMessageBox:
    def __init__(self, run: WindowProgram, chance: random.Random, say: Say) -> None:
        self.window = run.window
        self.chance = chance
        self.say = say
        self.number = 0

    @property
    def composer(self) -> Composer:
        return self.window.chat.composer

    @property
    def session(self) -> ShownSession | None:
        return self.window.parts.showing.conversation

    async def act(self) -> None:
        await self.answer_questions()
        if self.composer.text.toPlainText().strip():
            self.say("act send what came back")
            self.composer.send_composed_message(steer=self.chance.random() < 0.3)
            return
        (name,) = self.chance.choices(list(ACT_WEIGHTS), list(ACT_WEIGHTS.values()))
        self.say(f"act {name}")
        match name:
            case "say" | "send now":
                self.write_and_send(steer=name == "send now")
            case "begin":
                self.window.sides.begin_new_conversation()
                self.write_and_send()
            case "edit earlier":
                self.edit_earlier_message()
            case "unknown command":
                self.write_and_send(before="/nosuch ")
            case "price":
                self.window.settings.change_setting(ASK_ABOVE, 1)
                self.write_and_send()
                await self.answer_questions()
                self.window.settings.change_setting(ASK_ABOVE, 0)
            case "needed summary":
                await self.go_to("import")
                self.write_and_send()
                await self.answer_questions()
                await self.go_to("worked")
            case "go elsewhere":
                await self.go_to("")
            case _:
                await self.change_queue(name)

    def write(self, before: str = "") -> None:
        self.number += 1
        words = self.chance.choice(["again", f"one {self.number}", f"one {self.number}"])
        words = f"{before}{words}"
        # Below what stands there: the box of another conversation may have come into sight.
        lines = [self.composer.text.toPlainText(), words]
        self.composer.text.setPlainText("\n".join(filter(None, lines)))
        self.note_written(words)

    def note_written(self, words: str) -> None:
        self.window.state_file.write_state_file()
        self.say(f"+ {words}")

    def write_and_send(self, *, steer: bool = False, before: str = "") -> None:
        self.write(before)
        self.composer.send_composed_message(steer=steer)

    def edit_earlier_message(self) -> None:
        if self.session is None:
            return
        facts = self.session.conversation.state.facts
        own = [entry.seq for entry in facts if isinstance(entry.fact, UserSaid)]
        if not own:
            return
        self.number += 1
        words = f"one {self.number}"
        self.composer.edit_earlier_message(self.chance.choice(own[-3:]), (Text(words),))
        self.note_written(words)
        self.composer.send_composed_message(steer=False)

    async def change_queue(self, name: str) -> None:
        """What a person does with the rows of waiting messages, some of which there must be."""
        for _ in range(2):
            self.write_and_send()
        await asyncio.sleep(0.05)  # The rows are drawn.
        waiting = self.composer.waiting
        count = len(waiting.shown_messages)
        if not count:
            return
        index = self.chance.randrange(count)
        match name:
            case "edit waiting":
                waiting.editing.emit(index)
            case "remove waiting":
                self.remove(index)
            case "move waiting":
                waiting.moving.emit(index, self.chance.choice((-1, 1)))
            case "turn waiting":
                waiting.steering.emit(index, self.chance.random() < 0.5)

    def remove(self, index: int) -> None:
        session = self.session
        shown = self.composer.waiting.shown_messages
        if session is None or tuple(message.parts for message in session.queue) != shown:
            return
        # Before it: a kill between the two must not look like a loss.
        for line in lines_of(shown[index]):
            self.say(f"- {line}")
        self.composer.waiting.discarding.emit(index)

    async def answer_questions(self) -> None:
        """Thinks for a moment, in which the program may be killed, and says yes or no."""
        await asyncio.sleep(0)
        for box in self.window.findChildren(QMessageBox):
            if not box.isVisible():
                continue
            self.say(f"act is asked: {box.windowTitle() or box.text()[:40]}")
            await asyncio.sleep(self.chance.random() * LONGEST_PAUSE_SECONDS)
            yes = [button for button in box.buttons() if button.text() != "Cancel"]
            self.say("act answers")
            if self.chance.random() < 0.6 and yes:
                self.chance.choice(yes).click()
            else:
                box.reject()

    async def let_it_ask(self) -> None:
        """For a permission, which nobody gives."""
        session = self.session
        assert session is not None
        self.composer.text.setPlainText(ASKING_WORDS)
        self.note_written(ASKING_WORDS)
        self.composer.send_composed_message(steer=False)
        await until(lambda: bool(session.questions))
        (question,) = session.questions.values()
        self.say(f"asked {encode_preview(question)}")

    def find_conversation(self, title: str) -> str:
        rows = self.window.sides.list_rows()
        return self.chance.choice([row.id for row in rows if row.title.startswith(title)])

    async def go_to(self, title: str) -> None:
        conversation = self.find_conversation(title)
        self.window.sides.go_to_conversation(conversation)
        if self.chance.random() < 0.3:
            self.write_and_send()  # While it is being opened, or still in the one before.
        with suppress(TimeoutError):  # What was begun meanwhile is shown instead.
            await until(lambda: getattr(self.session, "id", "") == conversation, 1)


async def hold_workspace_open(run: WindowProgram, say: Say) -> None:
    await opened(run, WORKSPACE)
    say("listens")
    await asyncio.Event().wait()


async def act_until_killed(
    run: WindowProgram, say: Say, *, chance: random.Random, hosted: bool
) -> None:
    await opened(run, WORKSPACE)
    person = PersonAtMessageBox(run, chance, say)
    if hosted:
        assert client_of_host(run.window.parts.showing.workspace) is not None
        person.window.sides.go_to_conversation(person.find_conversation("worked"))
        await until(lambda: person.session is not None)
        await person.let_it_ask()
    else:
        await person.go_to("worked")
    for _ in range(ACTS):
        await person.act()
        await asyncio.sleep(chance.random() ** 2 * LONGEST_PAUSE_SECONDS)
    say("act nothing more")
    await asyncio.Event().wait()


def lines_of(parts: Iterable[UserPart]) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            lines += filter(None, part.text.splitlines())
    return lines


def _read_in_child(place: Path, asked: list[str], found: Counter[str], trial: str) -> Counter[str]:
    """Each window is a process of its own: Qt does not start again after a fork."""

    def read(say: Say) -> None:
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
        from PySide6.QtWidgets import QApplication

        application = QApplication([])
        for where, words in asyncio.run(read_what_is_there(place, asked)):
            say(f"{where} {words}")
        say("done")
        del application

    child, reading = in_child(read)
    lines = told(reading)
    os.waitpid(child, 0)
    if "done" not in lines:
        found[f"LOST it could not be opened again in {trial}: {lines[-1:]}"] += 1
    there: Counter[str] = Counter()
    for line in lines:
        where, _, words = line.partition(" ")
        if where in ("recorded", "queued", "drafted"):
            there[words] += 1
            found[where] += not words.startswith("import ")
        elif where == "again":
            found["asked again" if words == "asked" else f"LOST in {trial}: {words}"] += 1
    return there


async def read_what_is_there(place: Path, asked: Sequence[str]) -> list[tuple[str, str]]:
    """What the conversations and queues have, and what the message boxes have after a new start.
    Then what was `asked` must be asked again.
    """
    desk = desk_of(place)
    bench = await desk.open_workspace(WORKSPACE)
    # A further window has a file of its own.
    boxes: list[Composer] = []
    for file in find_program_folders(place / HOME).list_window_state_paths():
        boxes.append(Composer(Theme(scheme="light"), WindowStateFile(file)))
    there: list[tuple[str, str]] = []

    def look_into_boxes(
        conversation: str, state: ConversationState, queue: Iterable[QueuedMessage]
    ) -> None:
        for composer in boxes:
            composer.show_draft_of(bench.id, conversation, "")
            composer.take_over_messages_of_last_start(state, queue)
            there.extend(("drafted", line) for line in lines_of(composer.message_parts()))
            there.extend(("drafted", line) for line in lines_of(composer._interrupted_draft))

    for row in bench.list_conversations():
        session = await bench.open_session(row.id)
        for entry in session.all_facts:
            if isinstance(entry.fact, UserSaid):
                there.extend(("recorded", line) for line in lines_of(entry.fact.parts))
        for message in session.queue:
            there.extend(("queued", line) for line in lines_of(message.parts))
        look_into_boxes(row.id, session.conversation.state, session.queue)
    look_into_boxes(NEW, ConversationState(), ())
    for preview in asked:
        there.append(("again", await ask_again(bench, place / "work" / MADE, preview)))
    await desk.aclose()
    return there


def encode_preview(question: PermissionQuestion) -> str:
    return question.preview.replace("\n", "\\n")


async def ask_again(bench: Workbench, made: Path, asked: str) -> str:
    """Continues the turn, which must ask the same before anything runs."""
    rows = bench.list_conversations()
    (conversation,) = [row.id for row in rows if row.title.startswith("worked")]
    session = await bench.open_session(conversation)
    again: asyncio.Future[PermissionQuestion] = asyncio.get_running_loop().create_future()

    def hear(event: Event) -> None:
        if isinstance(event, QuestionAsked) and not again.done():
            again.set_result(event.question)

    session.subscribe_to_events(hear)
    session.resume_turn()
    try:
        question = await asyncio.wait_for(again, 60)
    except TimeoutError:
        return "it was not asked again"
    if encode_preview(question) != asked:
        return "something else was asked"
    if made.exists():
        return "it ran without an answer"
    return "asked"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosted", action="store_true")
    arguments = parser.parse_args()
    # Without a screen, as nothing is pressed by its place.
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    return report(
        "sending_kill",
        arguments.seed,
        lambda found: run_trials(arguments.trials, arguments.seed, found, hosted=arguments.hosted),
    )


if __name__ == "__main__":
    raise SystemExit(main())
