"""The agents that people have, in the real window: 60 steps with questions, kills at
random moments, and starts of the window between them.

python -m tests.faults.acp_window AGENT [--steps 60] [--kills 100] [--starts 5] [--seed
1]      ACP_CLIENTS: a folder with their npm packages

A person at the keyboard begins a conversation with the agent, sends messages and
answers its questions, every fifth with no. Meanwhile the agent's processes are killed
as in acp_agents.py. The window is then closed, or killed every other time: the next one
must show all that was said, and the conversation must go on. Needs Xvfb, openbox and
xdotool.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QPushButton

from helix_desktop import program_folders
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.engine.facts import TurnEnd, TurnEnded
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, ReplyStreamed
from helix_desktop.gui.conversation_starting import AgentChoiceDialog
from helix_desktop.gui.transcript.transcript_item import TranscriptItemKind, item_source_text
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.faults.acp_agents import PROGRAMS, TITLES, Model, Upstream, processes_of, set_up
from tests.gui.hands import click, key, type_
from tests.gui.screen import screen
from tests.soak.driven import HOME, drive, until

HUNG = 300.0
ALIVE = 20.0  # the window's own thread: seconds for what has nothing to wait for
LATER = 4  # steps of each turn but the first


class Person:
    """At one window, from its start to its end. `kept`: what the windows before it have
    shown, and what was wrong.
    """

    def __init__(
        self, run: WindowProgram, place: Path, agent: str, kills: int, pick: random.Random
    ) -> None:
        self.window = run.window
        self.agent = agent
        self.kills = kills
        self.pick = pick
        self.file = place / "seen.json"
        self.kept: dict[str, Any] = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.streamed: list[str] = []
        self.refuses = True

    @property
    def session(self) -> Session:
        assert isinstance(self.window.current_session, Session)
        return self.window.current_session

    @property
    def bench(self) -> Workbench:
        assert isinstance(self.window.current_workbench, Workbench)
        return self.window.current_workbench

    def note(self, name: str, more: int = 1) -> None:
        self.kept[name] = self.kept.get(name, 0) + more

    def blame(self, what: str) -> None:
        self.kept.setdefault("wrong", []).append(what)
        print(what, flush=True)

    async def work(self) -> None:
        await until(
            lambda: self.window.current_workbench is not None and self.window.isActiveWindow()
        )
        if "text" in self.kept:
            await self.find_all_again()
        else:
            await self.begin()
        self.session.subscribe_to_events(self.hear)
        if "text" not in self.kept:
            await self.turn("do the work")
        await self.kill_often()
        self.refuses = False
        if (
            await self.turn(f"the last message of window {self.kept.get('windows', 0)}")
            is not TurnEnd.DONE
        ):
            self.blame(f"the last turn failed: {self.ends()[-1].why}")
        self.kept["text"] = self.kept.get("text", "") + "".join(self.streamed)
        await self.compare("before its end")
        self.note("windows")
        self.file.write_text(json.dumps(self.kept))

    async def begin(self) -> None:
        self.window.window_actions["new-acp"].trigger()
        await click(await self.find_use_button(TITLES.get(self.agent, self.agent)))
        await until(
            lambda: bool(
                isinstance(self.window.current_session, Session)
                and self.window.showing.foreign_agent
            )
        )
        if self.agent == "codex":  # In its usual mode it asks nobody.
            foreign = await self.bench.acp.start_agent(self.session.conversation)
            await foreign.choose_agent_option(self.session.conversation, "mode", "read-only")

    async def find_use_button(self, name: str) -> QPushButton:
        """The button of the list of agents that begins with this one."""

        def found() -> list[QPushButton]:
            return [
                button
                for dialog in self.window.findChildren(AgentChoiceDialog)
                for button in dialog.findChildren(QPushButton)
                if button.accessibleName() == f"Use: {name}"
            ]

        await until(lambda: bool(found()))
        return found()[0]

    async def find_all_again(self) -> None:
        """A restart: the conversation is open, with all that the windows before have shown."""
        await until(lambda: isinstance(self.window.current_session, Session) and bool(self.shown()))
        await self.compare("after a restart")

    async def compare(self, when: str) -> None:
        try:
            await until(lambda: self.shown() == self.kept["text"], ALIVE)
        except TimeoutError:
            self.blame(
                f"{when} the window shows {len(self.shown())} of {len(self.kept['text'])} characters"
            )

    def hear(self, event: Event) -> None:
        if isinstance(event, ReplyStreamed) and isinstance(event.delta, TextDelta):
            self.streamed.append(event.delta.text)

    def shown(self) -> str:
        """What the agent has said, as the chat has it."""
        items = self.window.chat.transcript.view.items.all
        return "".join(
            item_source_text(item) for item in items if item.kind is TranscriptItemKind.REPLY
        )

    def ends(self) -> list[TurnEnded]:
        return [each.fact for each in self.session.all_facts if isinstance(each.fact, TurnEnded)]

    async def turn(self, words: str) -> TurnEnd:
        """A message by the keyboard, and an answer to each question. How it ended."""
        before = len(self.ends())
        since = time.monotonic()
        await click(self.window.chat.composer.text)
        await type_(words)
        await key("Return")
        await until(lambda: not self.session.is_idle or len(self.ends()) > before, ALIVE)
        while len(self.ends()) == before:
            if self.window.chat.approvals.visible_card is not None:
                await self.answer_question()
            if time.monotonic() - since > HUNG:
                self.blame(f"hung: {words}")
                self.session.stop_turn()
                await self.session.wait_until_idle()
            await asyncio.sleep(0.02)
        end = self.ends()[-1]
        self.note(f"ended {end.reason.value}")
        self.kept.setdefault("why", {})
        self.kept["why"][end.why[:120]] = self.kept["why"].get(end.why[:120], 0) + 1
        return end.reason

    async def answer_question(self) -> None:
        # A refusal ends a turn of Codex: of its first turn all steps are wanted, of the
        # last one its answer.
        is_needed = self.agent == "codex" and (not self.ends() or not self.refuses)
        refuses = not is_needed and self.pick.random() < 0.2
        card = self.window.chat.approvals.visible_card
        while self.window.chat.approvals.visible_card is card:
            await key("alt+n" if refuses else "alt+y")
            await asyncio.sleep(0.1)
        self.note("refused" if refuses else "allowed")

    async def kill_often(self) -> None:
        longest = 4.0
        done = 0
        while done < self.kills:
            message = self.turn(f"go on {self.kept.get('kills', 0)}")
            _, killed = await asyncio.gather(message, self.kill_at_random(longest))
            done += bool(killed)
            if not killed:
                longest = max(1.0, longest * 0.9)
            self.note("kills", int(bool(killed)))
            self.note(f"killed {killed}" if killed else "not killed")
            print(
                json.dumps({name: value for name, value in self.kept.items() if name != "text"}),
                flush=True,
            )

    async def kill_at_random(self, longest: float) -> str:
        """One of the agent's processes, or all of them, unless its turn ends before.
        Their names.
        """
        before = len(self.ends())
        with_all = self.pick.random() < 0.5
        until_then = time.monotonic() + self.pick.uniform(0, longest)
        while time.monotonic() < until_then and len(self.ends()) == before:
            await asyncio.sleep(0.01)
        there = processes_of(self.session, self.bench)[1:] or processes_of(self.session, self.bench)
        if len(self.ends()) > before or self.session.is_idle or not there:
            return ""
        names = []
        for victim in there if with_all else [self.pick.choice(there)]:
            try:
                names.append(Path(f"/proc/{victim}/comm").read_text().strip())
                os.kill(victim, signal.SIGKILL)
            except OSError:
                continue
        return "+".join(names)


def prepare(place: Path) -> None:
    async def make() -> None:
        where = program_folders.find_program_folders(place / HOME)
        desks = Workbenches(where, SecretStorage(where.key_file, environ={}))
        (place / "work").mkdir()
        await desks.create_workspace("work", place / "work")
        await desks.aclose()

    asyncio.run(make())


def play(place: Path, agent: str, kills: int, seed: int, *, is_killed: bool) -> int:
    """One window, in a process of its own."""

    async def story(run: WindowProgram) -> None:
        await Person(run, place, agent, kills, random.Random(seed)).work()
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)

    return drive(place, story)


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("agent", help=f"{', '.join(PROGRAMS)}, or another with --command")
    arguments.add_argument("--command", default="", help="the command line of another agent")
    arguments.add_argument("--steps", type=int, default=60)
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--starts", type=int, default=5)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--window", type=Path, help=argparse.SUPPRESS)
    arguments.add_argument("--killed", action="store_true", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.window:
        return play(given.window, given.agent, given.kills, given.seed, is_killed=given.killed)
    model = Model(given.steps, LATER)
    with (
        tempfile.TemporaryDirectory(
            prefix="helix-acp-", dir=os.environ.get("ACP_PLACE"), ignore_cleanup_errors=True
        ) as folder,
        Upstream(model.script) as provider,
    ):
        place = Path(folder)
        wrong = []
        set_up(given.agent, place, provider, command=given.command)
        prepare(place)
        with screen() as on:
            for start in range(given.starts):
                command = [
                    sys.executable,
                    "-m",
                    "tests.faults.acp_window",
                    given.agent,
                    "--window",
                    folder,
                ]
                command += [
                    "--kills",
                    str(given.kills // given.starts),
                    "--seed",
                    str(given.seed * 1_000 + start),
                ]
                command += ["--killed"] if start % 2 else []
                code = subprocess.run(command, env=on.environment, check=False).returncode
                if code != (-signal.SIGKILL if start % 2 else 0):
                    wrong.append(f"window {start} ended with {code}")
                    on.shot(Path(tempfile.gettempdir(), "helix-acp-window-failed.png"))
                    break
        seen = (
            json.loads((place / "seen.json").read_text()) if (place / "seen.json").exists() else {}
        )
        seen["characters"] = len(seen.pop("text", ""))
        seen["wrong"] = [*seen.get("wrong", []), *wrong, *provider.refused[:3]]
        print(json.dumps({**seen, "steps": model.done}, indent=1))
        return 1 if seen["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
