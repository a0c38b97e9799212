"""What the soak says of its samples, and the agent it talks to."""

from __future__ import annotations

import gc
import json
from collections import Counter

import pytest
import shiboken6
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QWidget

from tests.benchmarks.row import Row
from tests.peers.peer import Answer, Seen
from tests.soak.__main__ import Sample, count_qt_objects, grown_types, run_of, verdict
from tests.soak.server import Agent


def samples(end: float) -> list[Sample]:
    """An hour, every quarter of a minute; memory grows evenly from 200 MB after ten
    minutes to `end`.
    """
    grown = [200 + (end - 200) * max(0.0, minute / 4 - 10) / 50 for minute in range(241)]
    return [
        Sample(at / 4, memory, 1, 1, 1, 1, 1, at // 24, at, 1.0) for at, memory in enumerate(grown)
    ]


@pytest.mark.parametrize(("end", "good"), [(200.0, True), (218.0, True), (225.0, False)])
def test_memory_may_grow_by_a_tenth(end: float, good: bool) -> None:
    found, words = verdict(samples(end), 60)
    assert found is good
    assert words.startswith(
        "60 minutes, 10 turns (0.3 hours of a person's work): 200 MB after 10 minutes"
    )


def test_the_figures_page_gets_the_end_beside_the_beginning() -> None:
    run = run_of(samples(225.0), 60, {})
    assert isinstance(run["rows"], list)
    memory = Row.from_json(run["rows"][0])
    assert (memory.name, memory.met, memory.peers["after one sixth of the time"].median) == (
        "memory at the end",
        False,
        200.0,
    )


def asked(messages: list[dict[str, object]]) -> Answer:
    body = {"messages": messages, "tools": [{}]}
    return Agent(steps=1, pause=0).answer(
        Seen("POST", "/v1/chat/completions", {}, json.dumps(body).encode())
    )


def said(answer: Answer) -> str:
    return b"".join(piece for piece in answer.pieces if isinstance(piece, bytes)).decode()


def test_the_agent_calls_and_then_answers() -> None:
    user: dict[str, object] = {"role": "user", "content": "go on"}
    called: dict[str, object] = {"role": "assistant", "content": "", "tool_calls": []}
    assert "tool_calls" in said(asked([user]))
    assert '"finish_reason": "stop"' in said(asked([user, called]))


def test_the_agent_writes_the_documents_it_is_asked_for() -> None:
    lines = said(asked([{"role": "user", "content": "Write a handover document"}])).splitlines()
    deltas = [json.loads(line[6:])["choices"] for line in lines if line.startswith("data: {")]
    text = "".join(choice["delta"].get("content", "") for choices in deltas for choice in choices)
    assert text.startswith("## Project Background")


def test_what_grew_is_named_and_what_shrank_is_not() -> None:
    first = Counter({"builtins.dict": 100, "engine.Fold": 2})
    last = Counter({"builtins.dict": 90, "engine.Fold": 7})
    assert grown_types(first, last) == "grown by 5 to 7: engine.Fold\n"


def actions_that_qt_has_deleted() -> int:
    """How many wrappers Python still has of them."""
    gc.collect()
    actions = [each for each in gc.get_objects() if type(each) is QAction]
    return sum(not shiboken6.isValid(action) for action in actions)


@pytest.mark.usefixtures("application")
def test_counting_the_objects_of_qt_holds_none_of_them() -> None:
    """`findChildren` kept actions that Qt had deleted, and looked like a leak of the program."""
    window = QWidget()
    before = actions_that_qt_has_deleted()
    for _ in range(5):
        menu = QMenu(window)
        menu.addAction("Copy")
        assert count_qt_objects(window) == len(window.children()) + len(menu.children())
        menu.deleteLater()
        del menu
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert actions_that_qt_has_deleted() == before
