"""Pictures of everything a person meets in the real program, to be looked at: in any
language, scheme, size and scale.

`python -m tests.gui.surfaces FOLDER [--language de] [--scheme dark] [--size 900x600]
[--scale 2] [--text 200] [--only NAME…]`; needs Xvfb and openbox. A picture is named
after its surface. Nothing is checked here but that each surface opens. `contrast.txt`
in the folder names the words of labels, buttons and fields whose contrast with what is
behind them is below 4.5:1 in the picture, `too-large.txt` the dialogs that are larger
than the screen or scroll sideways.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QDialog, QLabel, QLineEdit, QScrollArea

from helix_desktop import concurrency, program_folders
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.engine.conversation_context import NeededSummary
from helix_desktop.engine.facts import (
    Fact,
    FoldKind,
    ModelReplied,
    Stop,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.session_events import ConversationActivity, FoldProgress
from helix_desktop.gateway import wrapped_agent
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.gui.colours import contrast_ratio
from helix_desktop.gui.fleet.fleet_dialog import FleetDialog
from helix_desktop.gui.message_sending import MessageToSend
from helix_desktop.gui.settings.settings_dialog import SettingsDialog
from helix_desktop.gui.transcript.basic_boxes import ToggleSection
from helix_desktop.gui.transcript.chat_actions import OpenFile
from helix_desktop.program_settings import LANGUAGE, THEME, ZOOM, ProgramSettings
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.resident.resident_client import HeldRegistration
from helix_desktop.secrets import SecretStorage
from helix_desktop.store.fleet_task_files import open_fleet_task_list
from helix_desktop.store.fleet_tasks import (
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
)
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workbench.tour_folder import create_tour_folder
from tests.documents import written_documents
from tests.gateway.running import Agent
from tests.gui import screen, story
from tests.peers.agent_provider import Provider, Says
from tests.scripted_tour import ClockWithoutPauses, run_tour_session
from tests.soak.driven import HOME, drive, opened, until

MODELS = 350
MATH = r"""The waiting time of a queue with one server is

$$W_q = \frac{\lambda}{\mu(\mu-\lambda)} = \int_0^\infty t\,\mathrm{d}F(t)$$

so with $\rho = \lambda/\mu$ close to 1 it grows like $\frac{1}{1-\rho}$.

| load | waiting time | served |
|------|-------------:|--------|
| 0.5 | 1.0 s | all of them |
| 0.9 | 9.0 s | all of them, late, and in the order in which they came |
| 0.99 | 99.0 s | *some* |

1. Measure the load **before** changing anything.
2. Then look at `src/lock/manager.rs`, and at [the notes](https://example.com/notes).

> A queue that is never empty is not a queue.

```sql
select day, count(*) from waits where seconds > 9 group by day order by 2 desc limit 20;
```
"""


class Listing(BaseHTTPRequestHandler):
    """An aggregator's list of models, and nothing else."""

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            self.send_error(404)
            return
        makers = (
            "anthropic",
            "google",
            "meta-llama",
            "mistralai",
            "openai",
            "qwen",
            "a-maker-with-a-rather-long-name",
        )
        models = [
            {
                "id": f"{makers[number % len(makers)]}/model-{number:03}" + ("-instruct-preview-2026-05" if number % 5 == 0 else ""),
                "context_length": (8_192, 131_072, 1_048_576)[number % 3],
                "architecture": {"input_modalities": ["text", "image"] if number % 2 else ["text"]},
                "supported_parameters": ["tools", "reasoning"] if number % 4 else [],
                "pricing": {"prompt": f"{number / 1e8:.9f}", "completion": f"{number / 2e7:.9f}"},
            }
            for number in range(MODELS)
        ]  # fmt: skip
        body = json.dumps({"data": models}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


def listing() -> int:
    """Serve it while the program lives; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Listing)
    concurrency.start_thread(server.serve_forever, name="listing", daemon=True)
    return server.server_port


def prepare(home: Path, port: int) -> None:
    """A user's home after some weeks."""

    async def make() -> None:
        where = program_folders.find_program_folders(home / HOME)
        desk = Workbenches(
            where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses()
        )
        desk.configured.save_provider(
            ProviderConfig("aggregator", base_url=f"http://127.0.0.1:{port}/v1")
        )
        desk.configured.save_provider(ProviderConfig("dead", base_url="http://127.0.0.1:9/v1"))
        folder = home / "storage-engine"
        create_tour_folder(folder)
        for line in (["init", "-q", "."], ["add", "."], ["commit", "-qm", "first"]):
            subprocess.run(
                ["git", "-c", "user.name=a", "-c", "user.email=a@b", *line], cwd=folder, check=True
            )
        (home / "website").mkdir()
        agent = home / "bin" / "claude"
        agent.parent.mkdir()
        agent.write_text("#!/bin/sh\n")
        agent.chmod(0o755)
        other = await desk.create_workspace("A website with quite a long name", home / "website")
        await other.choose_model_for_role("demo/demo")
        bench = await desk.create_workspace("storage-engine", folder)
        await run_tour_session(bench)
        await bench.choose_model_for_role("demo/demo")
        await bench.choose_permission_mode("allow all")
        for title in (
            "Why is the second test flaky? A long question that does not fit in the list",
            "Release notes",
        ):
            await bench.start_conversation(title)
        await bench.workspace.journal.append_to_journal(
            (await bench.start_conversation("Queues")).id, await _hard(bench)
        )
        session = await bench.start_conversation("Extract the lock manager")
        for text in story.CONTENT.values():
            await bench.workspace.cache.store_content(
                text.encode(), EntryOrigin("read_file", "src/lock/table.rs")
            )
        await bench.workspace.journal.append_to_journal(session.id, story.facts()[1:])
        changing = await bench.start_conversation("Rename the values")
        changing.send_message(
            (
                Text(
                    "run sed -i 's/self/this/' src/*.py && rm README.md && echo new > src/new.txt && mkdir -p a/b && date > a/b/c"
                ),
            )
        )
        await _idle(changing)
        await _give_tasks(bench)
        await desk.aclose()

    asyncio.run(make())


async def _idle(session: object) -> None:
    async with asyncio.timeout(60):
        while not any(
            isinstance(each.fact, TurnEnded)
            for each in session.conversation.state.facts  # type: ignore[attr-defined]
        ):
            await asyncio.sleep(0.05)


TASKS = (
    ("Review pull request 431", FleetTaskState.RUNNING, FleetTaskResult()),
    ("Nightly: dependency report", FleetTaskState.RUNNING, FleetTaskResult()),
    ("Release notes for 2.4", FleetTaskState.NEEDS_YOU, FleetTaskResult("The task needs your permission: git push.", cost=0.21, asked="run_command")),
    ("Port tests of crate 7 of 14", FleetTaskState.DONE, FleetTaskResult(answer="All 212 tests pass. 4 files were changed.", cost=0.37)),
    ("Benchmark on the old kernel", FleetTaskState.FAILED, FleetTaskResult("The deadline passed while the task was running.", cost=0.02)),
    ("Port tests of crate 9 of 14", FleetTaskState.WAITING, FleetTaskResult()),
    ("Port tests of crate 10 of 14, and say which of them could not be ported and why", FleetTaskState.WAITING, FleetTaskResult()),
)  # fmt: skip


async def _give_tasks(bench: Workbench) -> None:
    async with open_fleet_task_list(bench.workspace) as tasks:
        await tasks.notes.set_limit("workspace", 50.0)
        await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder(text, "")) for text, *_ in TASKS])
        await tasks.notes.renew_worker_and_tell_if_draining("build-2 3f2a1c.1", 3_600)
        claimed = await tasks.claim_fleet_tasks("build-1 99aa01.1", 1, 3_600)
        claimed += await tasks.claim_fleet_tasks("build-2 3f2a1c.1", 4, 3_600)
        for task in claimed:
            _, state, result = next(one for one in TASKS if one[0] == task.order.text)
            if state is not FleetTaskState.RUNNING:
                await tasks.end_fleet_task(task, state, result)


async def _hard(bench: Workbench) -> Sequence[Fact]:
    """What is hard to draw: a picture, a group of calls, math, a table, a failure."""
    picture = QImage(900, 500, QImage.Format.Format_RGB32)
    picture.fill(QColor("#2f6bd8"))
    painter = QPainter(picture)
    painter.fillRect(60, 60, 300, 380, QColor("#e5a13a"))
    painter.end()
    file = bench.main_folder / "queue.png"
    picture.save(str(file))
    attached = await bench.attach_content("queue.png", file.read_bytes(), "image/png")
    calls = [
        ToolCall(f"q{n}", "read_file", json.dumps({"path": f"src/lock/module_{n}.rs"}), tokens=40)
        for n in range(4)
    ]
    done = [
        ToolReturned(call.id, story.stored(story.TABLE), 4_812, seconds=0.02, head=story.TABLE)
        for call in calls
    ]
    long = ToolCall(
        "q9",
        "run_command",
        json.dumps({"command": "cargo test --workspace --all-features -- --nocapture " * 3}),
        tokens=40,
    )
    return (
        UserSaid((Text("What does this picture of our queue mean? It costs $5 on Monday and $10 on Friday.", 20), attached)),
        ModelReplied((Text("I look at the modules first.", 8), *calls, long), story.MODEL, Stop.CALLS, Usage(input=9_000, output=90, cost=0.03)),
        *done,
        ToolReturned("q9", story.stored(story.TESTS), 18_240, ok=False, exit_code=101, seconds=41.0, head=story.TESTS),
        ModelReplied((Text(MATH, 400),), story.MODEL, Stop.END, Usage(input=30_000, cache_read=27_000, output=400, cost=0.05)),
        TurnEnded(TurnEnd.DONE),
        UserSaid((Text("And with two servers?", 6),)),
        TurnEnded(TurnEnd.FAILED, "The model dead/model could not be reached: connection refused.", "connection"),
    )  # fmt: skip


def _written(bench: Any, name: str, content: bytes) -> Path:
    path = Path(bench.main_folder, name)
    path.write_bytes(content)
    return path


class Tour:
    """Goes from surface to surface. `only`: their names; empty: all."""

    def __init__(
        self,
        run: WindowProgram,
        home: Path,
        folder: Path,
        size: tuple[int, int],
        only: Sequence[str],
    ) -> None:
        self.window = run.window
        self.front = run
        self.home = home
        self.folder = folder
        self.only = only
        self.size = size

    async def shot(self, name: str, seconds: float = 0.6) -> None:
        await asyncio.sleep(seconds)
        if self.wants(name):
            shown = QApplication.primaryScreen().grabWindow(0)
            shown.save(str(self.folder / f"{name}.png"))
            with (self.folder / "contrast.txt").open("a", encoding="utf-8") as file:
                file.writelines(f"{name}: {line}\n" for line in poor_contrasts(shown.toImage()))
            with (self.folder / "too-large.txt").open("a", encoding="utf-8") as file:
                file.writelines(f"{name}: {line}\n" for line in dialogs_without_room())

    def wants(self, *names: str) -> bool:
        """Whether one of these is asked for, by its number or by its words."""
        known = [form for name in names for form in (name, name.partition("-")[2])]
        return not self.only or any(form.startswith(each) for form in known for each in self.only)

    def act(self, name: str) -> None:
        self.window.window_actions[name].trigger()

    async def full(self) -> None:
        shell = self.window.window()
        shell.showFullScreen()
        await until(lambda: shell.size().width() == self.size[0], 10)
        await asyncio.sleep(0.5)

    async def first(self) -> None:
        """An empty home: the first start, connecting, and the first steps of the tour."""
        window = self.window
        await until(lambda: window.showing.page == "welcome" and window.welcome.tour.isEnabled())
        await self.full()
        await self.shot("01-welcome", 2.5)
        window.workspaces.create_workspace_for_folder(self.folder)
        await until(lambda: window.current_workbench is not None)
        await self.shot("02-empty-workspace", 1.5)
        window.chat.composer.text.setPlainText("What is in this folder?")
        window.chat.composer.send_composed_message(steer=False)
        await self.shot("03-connect", 2)
        await self.close()
        self.act("tour")
        await self.shot("04-tour", 2.5)

    async def used(self) -> None:
        """A home after some weeks."""
        window = self.window
        await until(lambda: window.current_workbench is not None)
        await opened(self.front, "storage-engine")
        await self.full()
        for part in (
            self.chat,
            self.summary,
            self.preview,
            self.pages,
            self.dialogs,
            self.fleet,
            self.settings,
        ):
            await part()

    async def open(self, title: str) -> None:
        window = self.window
        row = next(row for row in window.sides.list_rows() if row.title.startswith(title))
        window.switch_to_page("chat")
        window.sides.go_to_conversation(row.id)
        await until(
            lambda: window.current_session is not None and window.current_session.id == row.id
        )
        await asyncio.sleep(0.5)

    async def chat(self) -> None:
        view = self.window.chat.transcript.view
        await self.open("Extract the lock")
        await self.shot("10-chat", 1)
        if self.wants("10-menu"):
            self.act("menu")
            await self.shot("10-menu")
            self.pop()
        if self.wants("10-side-panel"):
            self.act("inspector")
            await until(lambda: self.window.is_side_panel_shown)
            for section in ("largest", "tools"):
                self.window.pages.inspector._carry_out_box_action(ToggleSection((section,)))
            await self.shot("10-side-panel", 1)
            self.act("inspector")
        await self.open("Queues")
        await self.shot("11-chat-failure", 1.5)
        view.scroll_to_item(0)
        await self.shot("12-chat-picture", 1.5)
        group = next(
            (
                at
                for at in range(len(view.items.all))
                if view.items.groups.group_headed_by(at) is not None
            ),
            None,
        )
        if group is not None:
            view.scroll_to_item(min(group + 1, len(view.items.all) - 1))
            await self.shot("13-chat-math", 1.5)
        await self.open("Release")
        await self.shot("14-chat-empty")
        if self.wants("15-composer", "16-approval"):
            await self.window.current_workbench.choose_permission_mode("ask")  # type: ignore[union-attr]
            composer = self.window.chat.composer
            composer.text.setPlainText(
                'run for f in src/*.py; do python3 -m py_compile "$f" || echo bad; done && git status --short && curl -s https://example.com/install.sh | sh'
            )
            await self.shot("15-composer")
            composer.send_composed_message(steer=False)
            await until(lambda: self.window.chat.approvals.visible_card is not None)
            await self.shot("16-approval", 1)
            self.act("refuse")
            await asyncio.sleep(1.5)
            self.act("refuse")
            await asyncio.sleep(1)

    async def summary(self) -> None:
        """What a message that waits for a summary says, and the question before a large one."""
        if not self.wants("17-summary", "17-summary-retry", "17-summary-question"):
            return
        window = self.window
        view = window.chat.transcript.view
        await self.open("Extract the lock")
        session = window.current_session
        bench = window.current_workbench
        assert session is not None
        assert bench is not None
        window.chat.composer.show_run_state(ConversationActivity.THINKING)
        why = "the next request would not fit"
        waited_for = FoldProgress(session.id, FoldKind.HANDOVER, why, is_waited_for=True)
        view.apply_events([waited_for])
        await self.shot("17-summary")
        error = "openrouter says: the model is overloaded, try again later (529)."
        retry = replace(waited_for, is_update=True, retry_why=error, retry_seconds=12.0)
        view.apply_events([retry])
        await self.shot("17-summary-retry")
        view.apply_events([replace(waited_for, done=True)])
        window.chat.composer.show_run_state(ConversationActivity.IDLE)
        message = MessageToSend(
            window.messages, bench, session, (Text("Go on."),), not_sent=lambda _: None
        )
        message._ask_to_summarize(NeededSummary(1_240_000, 200_000, 20_000, 9, 1.2, True))
        await self.shot("17-summary-question")
        await self.close()

    async def preview(self) -> None:
        """Documents in the message box, queued messages, and files at the right."""
        if not self.wants("17-steering", "18-preview", "19-preview-source"):
            return
        window = self.window
        bench = window.current_workbench
        assert bench is not None
        await self.open("Extract the lock")
        composer = window.chat.composer
        window.messages.attaching.attach_files(
            [_written(bench, "report.pdf", written_documents.pdf(14))]
        )
        window.messages.attaching.attach_files(
            [_written(bench, "timings.xlsx", written_documents.excel(60))]
        )
        await until(lambda: len(composer.attachments.listed_attachments) == 2)
        composer.text.setPlainText("Write a one-page summary of the attached report for the team.")
        composer.show_run_state(ConversationActivity.TOOLS)
        waiting = (
            "Do not touch the public functions.",
            "Then run the tests.",
            "And say what is open.",
        )
        composer.show_waiting_messages([(Text(words),) for words in waiting], 1)
        await self.shot("17-steering", 1)
        composer.show_waiting_messages([])
        composer.show_run_state(ConversationActivity.IDLE)
        composer.text.clear()
        composer.attachments.show_attachments([])
        page = f"<h1>{written_documents.TITLE}</h1><p>{written_documents.SENTENCE}</p><ul><li>one</li></ul>"
        source = "".join(f"fn step_{number}() {{ wait({number}); }}\n" for number in range(1, 200))
        for name, content in {"manager.rs": source, "report.pdf": "", "summary.html": page}.items():
            if content:
                _written(bench, name, content.encode())
            window.chat_actions.carry_out_intent(OpenFile(name))
            await until(lambda name=name: window.pages.preview.shown_path == name)  # type: ignore[misc]
        await self.shot("18-preview", 1.5)
        window.chat_actions.carry_out_intent(OpenFile("manager.rs", 118, 120))
        await self.shot("19-preview-source", 1.5)
        window.chat_actions.carry_out_intent(OpenFile("report.pdf"))
        await self.shot("19-preview-pdf", 2.5)
        window.pages.preview.close_preview()

    async def pages(self) -> None:
        window = self.window
        await self.open("Tour")
        await self.shot("20-tour-chat", 1)
        for number, page in enumerate(("changes", "cache", "timeline"), 21):
            window.switch_to_page(page)
            await self.shot(f"{number}-{page}", 2)
        await self.open("Extract the lock")
        window.switch_to_page("timeline")
        await self.shot("24-timeline-handover", 1.5)
        await self.open("Rename")
        window.switch_to_page("changes")
        await self.shot("25-changes-command", 2)
        window.switch_to_page("chat")

    async def dialogs(self) -> None:
        await self.open("Queues")
        for number, (name, wait) in enumerate(
            (("model", 2.0), ("palette", 0.6), ("policy", 0.6), ("mode", 0.6), ("share-workspace", 1.0), ("bring-in", 2.0),
             ("connect-agent", 1.5), ("lab", 1.0), ("brought", 1.0), ("forget-text", 1.0), ("workspace-trash", 1.0)), 30
        ):  # fmt: skip
            if self.wants(f"{number}-{name}"):
                if name in ("policy", "mode"):
                    asyncio.get_running_loop().call_later(wait + 0.9, self.pop)
                    asyncio.get_running_loop().call_later(wait, self.grab, f"{number}-{name}")
                    self.act(name)
                    await asyncio.sleep(wait + 1.2)
                    continue
                self.act(name)
                if name == "palette":
                    self.window.palette_box.line.setText("lock")
                await self.shot(f"{number}-{name}", wait)
                if name == "connect-agent":
                    await self.requests(f"{number}-{name}-first-request")
                await self.close()

    async def requests(self, name: str) -> None:
        """The page of connected agents when the first request arrives, with one of the
        agents on this computer.
        """
        where = program_folders.find_program_folders(self.home)
        with Provider(lambda _: [Says("It holds a storage engine.")]) as provider:
            gateway = HeldRegistration(
                where,
                wrapped_agent.command_of_this_program(where),
                GatewayRegistration("", provider.url),
            )
            await asyncio.to_thread(gateway.__enter__)
            agent = Agent(
                "anthropic",
                gateway.addresses[0],
                session="first",
                headers={"user-agent": "claude-cli/2.0"},
            )
            try:
                agent.say("What is in this folder?")
                await asyncio.to_thread(agent.ask)
                await self.shot(name, 2.5)
            finally:
                await asyncio.to_thread(gateway.__exit__, None, None, None)

    async def fleet(self) -> None:
        if not self.wants("45-fleet", "46-new-task", "47-workers"):
            return
        self.act("fleet")
        await until(
            lambda: any(isinstance(each, FleetDialog) for each in QApplication.topLevelWidgets())
        )
        dialog = next(
            each for each in QApplication.topLevelWidgets() if isinstance(each, FleetDialog)
        )
        await until(lambda: dialog.tasks_page.task_list.topLevelItemCount() == len(TASKS))
        dialog.tasks_page.task_list.setFocus()
        for _ in range(2):
            QTest.keyClick(dialog.tasks_page.task_list, Qt.Key.Key_Down)
        await self.shot("45-fleet", 1)
        dialog.tasks_page.open_new_task_dialog()
        await self.shot("46-new-task", 1)
        next(each for each in dialog.findChildren(QDialog)).reject()
        dialog.computers_tab.click()
        await self.shot("47-workers", 1)
        await self.close()

    def grab(self, name: str) -> None:
        QApplication.primaryScreen().grabWindow(0).save(str(self.folder / f"{name}.png"))

    def pop(self) -> None:
        popup = QApplication.activePopupWidget()
        if popup is not None:
            popup.close()

    async def settings(self) -> None:
        self.act("settings")
        await until(
            lambda: any(
                isinstance(each, SettingsDialog) and each.isVisible()
                for each in QApplication.topLevelWidgets()
            )
        )
        dialog = next(
            each
            for each in QApplication.topLevelWidgets()
            if isinstance(each, SettingsDialog) and each.isVisible()
        )
        for number, name in enumerate(dialog._page_factories, 50):
            if self.wants(f"{number}-{name}"):
                dialog.show_settings_page(name)
                await self.shot(f"{number}-{name}", 1)
        await self.close()

    async def close(self) -> None:
        for each in QApplication.topLevelWidgets():
            if isinstance(each, QDialog) and each.isVisible():
                each.reject()
        self.pop()
        self.window.palette_box.close_and_return_focus()
        chooser = self.front._dialogs.models.chooser
        if chooser.isVisible():
            chooser.close_and_return_focus()
        await asyncio.sleep(0.3)


def dialogs_without_room() -> list[str]:
    """Those that reach beyond the screen, and those whose contents must be scrolled to the side."""
    found = []
    for dialog in QApplication.topLevelWidgets():
        if isinstance(dialog, QDialog) and dialog.isVisible():
            if not dialog.screen().availableGeometry().contains(dialog.frameGeometry()):
                found.append(f"{dialog.windowTitle()} is at {dialog.frameGeometry().getRect()}")
            found += [
                f"{dialog.windowTitle()} scrolls to the side ({area.horizontalScrollBar().maximum()} pixels)"
                for area in dialog.findChildren(QScrollArea)
                if area.isVisible() and area.horizontalScrollBar().maximum()
            ]
    return found


def poor_contrasts(shown: QImage) -> list[str]:
    """Enabled widgets with words that nothing covers: their commonest colour is behind
    the words, the one farthest from it is the words'.
    """
    found = []
    for widget in QApplication.allWidgets():
        words = widget.text() if isinstance(widget, QLabel | QAbstractButton | QLineEdit) else ""
        place = QRect(widget.mapToGlobal(QPoint()), widget.size()).intersected(shown.rect())
        if not words.strip() or not widget.isVisible() or not widget.isEnabled() or place.isEmpty():
            continue
        if QApplication.widgetAt(place.center()) is not widget:
            continue
        inside = place.adjusted(3, 3, -3, -3)  # without its edge
        colours = Counter(
            shown.pixelColor(x, y).name()
            for x in range(inside.left(), inside.right())
            for y in range(inside.top(), inside.bottom())
        )
        if colours:
            behind = colours.most_common(1)[0][0]
            best = max(contrast_ratio(behind, each) for each in colours)
            if best < 4.5:
                found.append(f"{best:.2f} {words[:60]!r} ({type(widget).__name__} on {behind})")
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--language", default="en")
    parser.add_argument("--scheme", default="light")
    parser.add_argument("--size", default="1440x900")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--text", type=int, default=100, help="the text size, in per cent")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--inside", choices=("first", "used"))
    chosen = parser.parse_args()
    width, height = map(int, chosen.size.split("x"))
    chosen.folder.mkdir(parents=True, exist_ok=True)
    if not chosen.inside:
        with screen.screen(f"{round(width * chosen.scale)}x{round(height * chosen.scale)}") as own:
            environment = {**own.environment, "QT_SCALE_FACTOR": f"{chosen.scale:g}"}
            for inside in ("first", "used"):
                subprocess.run(
                    [sys.executable, "-m", "tests.gui.surfaces", *sys.argv[1:], "--inside", inside],
                    env=environment,
                    check=False,
                )
        return 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        home = Path(made)
        if chosen.inside == "used":
            prepare(home, listing())
            os.environ["PATH"] = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
        settings = ProgramSettings(program_folders.find_program_folders(home / HOME).settings_file)
        settings.change_setting(LANGUAGE, chosen.language)
        settings.change_setting(THEME, chosen.scheme)
        settings.change_setting(ZOOM, chosen.text)

        def walk(run: WindowProgram) -> Coroutine[Any, Any, None]:
            tour = Tour(run, home / HOME, chosen.folder, (width, height), chosen.only)
            return tour.first() if chosen.inside == "first" else tour.used()

        return drive(home, walk)


if __name__ == "__main__":
    sys.exit(main())
