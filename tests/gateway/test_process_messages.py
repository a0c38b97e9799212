"""What two processes say to each other: questions both ways, refusals, and an end in the middle."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import ToolSpec
from helix_desktop.errors import HelixError, ModelFailed, StoppedByUser
from helix_desktop.gateway.process_messages import (
    MOST_HELD_VALUES,
    LastSentValues,
    ProcessQuestions,
    decode_line,
    encode_line,
)
from helix_desktop.gateway.view_entries import UnchangedMessage
from helix_desktop.protocols.gateway_message import Piece, PieceKind, ProtocolMessage, Speaker
from tests.conftest import Expect


class _TwoEnds:
    """Two talks whose lines reach each other, as bytes."""

    def __init__(self) -> None:
        self.left = ProcessQuestions(OwnedTasks("left"), self._to_right, self._answer, ModelFailed)
        self.right = ProcessQuestions(OwnedTasks("right"), self._to_left, self._answer, HelixError)

    async def _to_right(self, line: tuple[str, int, Any]) -> None:
        self.right.handle_message(*decode_line(encode_line(line)))

    async def _to_left(self, line: tuple[str, int, Any]) -> None:
        self.left.handle_message(*decode_line(encode_line(line)))

    async def _answer(self, kind: str, value: Sequence[Any]) -> Any:
        match kind:
            case "sum":
                return sum(value)
            case "refuse":
                raise HelixError("No.")
            case "back":
                return await self.right.ask("sum", value)
            case "never":
                await asyncio.Event().wait()
        raise KeyError(kind)

    async def aclose(self) -> None:
        await self.left.tasks.aclose(limit=1)
        await self.right.tasks.aclose(limit=1)


async def test_questions_go_both_ways_and_each_gets_its_own_answer() -> None:
    ends = _TwoEnds()
    asked = (
        ends.left.ask("sum", (1, 2)),
        ends.right.ask("sum", (3, 4)),
        ends.left.ask("back", (5, 6)),
    )
    assert tuple(await asyncio.gather(*asked)) == (3, 7, 11)
    await ends.aclose()


async def test_a_refusal_is_the_sentence_of_the_other_end() -> None:
    ends = _TwoEnds()
    with pytest.raises(ModelFailed) as refused:
        await ends.left.ask("refuse", ())
    assert refused.value.what == "No."
    with pytest.raises(HelixError) as other:
        await ends.right.ask("refuse", ())
    assert (type(other.value), other.value.what) == (HelixError, "No.")
    await ends.aclose()


async def test_a_bug_at_the_other_end_is_an_answer_too(expect: Expect) -> None:
    expect("a question of another process failed")
    ends = _TwoEnds()
    with pytest.raises(HelixError, match=r"a mistake in Helix Desktop \(KeyError\)"):
        await ends.right.ask("unknown", ())
    await ends.aclose()


async def test_whoever_waits_hears_that_the_other_end_has_gone() -> None:
    ends = _TwoEnds()
    waiting = ends.left.tasks.spawn_task(ends.left.ask("never", ()), name="ask")
    await asyncio.sleep(0)
    ends.left.fail_all_questions(StoppedByUser("It has closed."))
    with pytest.raises(StoppedByUser):
        await waiting
    ends.left.handle_message("answer", 1, "late")  # is nobody's any more
    ends.left.handle_message("answer", 99, "of no question")
    await ends.aclose()


def test_a_line_holds_the_very_value_but_for_the_json_of_messages() -> None:
    message = ProtocolMessage(
        Speaker.USER,
        ({"role": "user"},),
        (Piece(PieceKind.RESULT, "x", (0, "content"), "id", ok=False),),
    )
    kind, number, value = decode_line(
        encode_line(("arrive", 7, (message, UnchangedMessage(3), {"a": [1, None]})))
    )
    assert (kind, number) == ("arrive", 7)
    assert value == (
        ProtocolMessage(message.speaker, (), message.pieces),
        UnchangedMessage(3),
        {"a": (1, None)},
    )
    assert isinstance(value[0].pieces[0].kind, PieceKind)


def test_only_what_differs_is_told_again() -> None:
    here, there = LastSentValues(), LastSentValues()
    for value, known in ((("a", "b"), 0), (("a", "b", "c"), 2), (("a", "x"), 1), ((), 0)):
        same, rest = here.split_known_start("s", value)
        assert (same, there.restore_value("s", same, rest)) == (known, value)


def test_of_many_names_the_one_told_longest_ago_is_told_whole_again() -> None:
    here, there = LastSentValues(), LastSentValues()

    def tell(name: str) -> int:
        same, rest = here.split_known_start(name, ("a", "b"))
        assert there.restore_value(name, same, rest) == ("a", "b")
        return same

    for number in range(MOST_HELD_VALUES):
        assert tell(str(number)) == 0
    assert tell("0") == 2
    assert tell("one more") == 0
    assert [tell(name) for name in ("0", "2", "1")] == [2, 2, 0]


async def test_a_bug_is_logged_where_it_is_and_a_refusal_is_not(
    expect: Expect, caplog: pytest.LogCaptureFixture
) -> None:
    expect("a question of another process failed")
    ends = _TwoEnds()
    with pytest.raises(HelixError, match=r"No\."):
        await ends.right.ask("refuse", ())
    assert caplog.messages == []
    with pytest.raises(HelixError, match="KeyError"):
        await ends.right.ask("unknown", ())
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info is not None) == (
        "a question of another process failed",
        True,
    )
    await ends.aclose()


async def test_an_answer_that_comes_after_the_question_was_given_up_changes_nothing() -> None:
    ends = _TwoEnds()
    waiting = ends.left.tasks.spawn_task(ends.left.ask("never", ()), name="ask")
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    ends.left.handle_message("answer", 1, "late")
    ends.left.fail_all_questions(StoppedByUser("It has closed."))
    assert await ends.left.ask("sum", (1, 2)) == 3
    await ends.aclose()


def test_an_offered_tool_keeps_the_name_that_older_versions_know() -> None:
    line = encode_line((ToolSpec("run", "runs", "{}"),))
    assert json.loads(line) == [
        {"is": "Tool", "name": "run", "description": "runs", "schema": "{}"}
    ]
    assert decode_line(line) == (ToolSpec("run", "runs", "{}"),)
