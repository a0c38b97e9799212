"""A real MCP server asks the user for something in the middle of a turn, and the
window's form answers it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QLineEdit, QPushButton

from helix_desktop.engine.facts import Text, ToolReturned
from helix_desktop.engine.session_events import Event
from helix_desktop.gui.chat.permission_card import PermissionQuestionPanel
from helix_desktop.gui.theme import Theme
from helix_desktop.providers.provider_catalog import ProviderConfig
from tests.peers.chat_server import ChatServer, reply
from tests.workbench.test_mcp_servers import PASTED, desk_at, ready


def press(approvals: PermissionQuestionPanel, text: str) -> None:
    assert approvals.visible_card is not None
    (button,) = (
        each for each in approvals.visible_card.findChildren(QPushButton) if each.text() == text
    )
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


async def until_asked(approvals: PermissionQuestionPanel, words: str) -> None:
    async with asyncio.timeout(60):
        while approvals.visible_card is None or not any(
            words in each.text() for each in approvals.visible_card.findChildren(QLabel)
        ):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("pressed", "came"),
    [("Send to server", "accept name='Ada'"), ("Decline", "decline"), ("Cancel", "cancel")],
)
async def test_a_servers_question_is_answered_declined_or_left(
    theme: Theme, tmp_path: Path, pressed: str, came: str
) -> None:
    (tmp_path / "project").mkdir()
    desk = desk_at(tmp_path)
    approvals = PermissionQuestionPanel(theme)
    approvals.resize(800, 300)
    with ChatServer([reply(calls=[("modern__ask", {})]), reply("Asked.")]) as server:
        try:
            desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
            bench = await desk.create_workspace("Asking", tmp_path / "project")
            await bench.choose_model_for_role("peer/scripted")
            await bench.mcp_servers.add_pasted_servers(PASTED)
            await ready(bench)
            session = await bench.start_conversation()

            def hear(_event: Event) -> None:
                approvals.show_waiting_questions(session.questions)

            session.subscribe_to_events(hear)
            approvals.answered.connect(session.answer_question)
            session.send_message((Text("ask me"),))
            await until_asked(approvals, "modern: ask")
            press(approvals, "Allow once")
            await until_asked(approvals, "The server modern has a question")
            assert approvals.visible_card is not None
            if pressed.startswith("Send"):
                QTest.keyClicks(approvals.visible_card.findChildren(QLineEdit)[0], "Ada")
            press(approvals, pressed)
            await asyncio.wait_for(session.wait_until_idle(), 60)
            (returned,) = (
                each.fact for each in session.all_facts if isinstance(each.fact, ToolReturned)
            )
            assert (
                came
                in (
                    await bench.workspace.cache.read_range(returned.output.digest, 0, 1_000)
                ).decode()
            )
        finally:
            await desk.aclose()
