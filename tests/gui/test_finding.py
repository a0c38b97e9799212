from __future__ import annotations

import asyncio
from pathlib import Path

from helix_desktop.engine.ports import About, Hit
from helix_desktop.engine.rows import ConversationRow as Row
from helix_desktop.gui import finding
from helix_desktop.gui.chat.completion import Asked
from helix_desktop.gui.links import Place
from helix_desktop.gui.main_window import MainWindow
from tests.gui import story
from tests.gui.fake_desk import FakeWorkbench

ROWS = [Row("a", "Older", 1.0), Row("b", "Newer", 2.0, archived=True), Row("c", "Gone", 3.0, trashed=True)]


def test_conversations_are_found_newest_first_and_never_in_the_trash() -> None:
    went: list[Place] = []
    finds = finding.of_conversations(ROWS, "one", went.append)
    assert [(find.text, find.note) for find in finds] == [("Newer", "archived"), ("Older", "conversation")]
    finds[0].act()
    assert went == [Place("conversation", "one", "b")]


def test_a_hit_leads_to_its_message_or_entry() -> None:
    went: list[Place] = []
    digest = story.stored(story.TABLE).digest
    hits = [Hit("said\n  here", conversation="a", seq=7), Hit("text", digest=digest, about=About("read_file", "a.rs"))]
    finds = finding.of_hits(hits, {"a": "Older"}, "one", went.append)
    assert [(find.text, find.kind) for find in finds] == [("said here", "message"), ("text", "entry")]
    assert finds[0].note == "Older"
    assert finds[1].note.startswith("read_file · a.rs · ")
    for find in finds:
        find.act()
    assert went == [Place("conversation", "one", "a", 7), Place("entry", "one", digest=digest)]


def test_every_command_is_an_action(window: MainWindow) -> None:
    assert all(window.actions_[action] is not None for action in finding.COMMANDS.values())
    window.actions_.on("tour", lambda: None)
    offers = finding.commands(window.actions_, Asked("/", "", 0))
    assert {offer.text for offer in offers} == {f"/{name}" for name in finding.COMMANDS}
    assert [offer.text for offer in finding.commands(window.actions_, Asked("/", "mo", 0))][:2] == ["/model", "/mode"]


def test_a_command_that_cannot_be_done_now_is_not_offered(window: MainWindow) -> None:
    window.show_session(None)
    assert "/fork" not in {offer.text for offer in finding.commands(window.actions_, Asked("/", "fork", 0))}


def test_mentions_are_files_and_then_entries() -> None:
    bench = FakeWorkbench("one", "#0d7d74", Path("/x"))
    offers = asyncio.run(finding.mentions(bench, Asked("@", "Shard", 0)))
    assert [offer.value for offer in offers] == [story.stored(story.TABLE).digest]
    offers = asyncio.run(finding.mentions(bench, Asked("@", "lock", 0)))
    assert [offer.insert for offer in offers][:2] == ["@src/lock/manager.rs ", "@src/lock/table.rs "]
