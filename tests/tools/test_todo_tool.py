from __future__ import annotations

from typing import Any

import pytest

from tests.tools.world import World


async def test_the_list_is_said_and_kept(here: World) -> None:
    outcome = await here.run(
        "set_todo", items=[{"text": "one\n two", "state": "done"}, {"text": "three"}]
    )
    assert outcome.todo == (("one two", "done"), ("three", "open"))
    assert here.text(outcome) == "[x] one two\n[ ] three"
    assert (await here.run("set_todo", items=[])).todo == ()


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([{"state": "open"}], "'text'"),
        ([{"text": " "}], "no text"),
        ([{"text": "a", "state": "later"}], "one of open, doing, done"),
        (["a"], "type object"),
        ([{"text": "a"}] * 101, "The limit is 100"),
    ],
)
async def test_what_is_no_list_gets_a_sentence(here: World, items: Any, words: str) -> None:
    outcome = await here.run("set_todo", items=items)
    assert outcome.todo is None
    assert words in here.text(outcome)
