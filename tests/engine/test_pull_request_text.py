"""The text of a pull request: nothing that the record does not say, and what was not tested."""

from __future__ import annotations

import pytest

from helix_desktop.engine.facts import ModelReplied, Stop, Text, UserSaid
from helix_desktop.engine.pull_request_text import MOST_REQUESTS, write_pull_request_text
from tests.engine.test_state_of_work import Work


def ask(work: Work, words: str, by: str = "") -> None:
    work.talk.add(UserSaid((Text(words),), by=by))


async def body_of(work: Work) -> str:
    return (await write_pull_request_text(work.talk.state, work.cache)).body


async def test_it_says_what_was_asked_decided_tried_changed_and_tested() -> None:
    work = Work()
    ask(work, "Make the parser\naccept empty lines.")
    work.talk.add(
        ModelReplied((Text("Hello. We decided to keep the old grammar."),), "m", Stop.END)
    )
    call, _ = await work.run("edit a", "done")
    await work.change(call, "src/a.py", (0, 1))
    await work.run("pytest -q", "1 failed, 3 passed in 0.1s", code=1)
    await work.run("pytest -q", "4 passed in 0.1s")
    await work.run("ruff check", "E501", code=1)
    text = await write_pull_request_text(work.talk.state, work.cache)
    assert text.title == "Make the parser"
    assert text.body == (
        "## What was asked\n\n- Make the parser accept empty lines.\n\n"
        "## What was decided\n\n- We decided to keep the old grammar.\n\n"
        "## What was tried\n\n- `pytest -q` failed once, and then succeeded\n"
        "- `ruff check` failed once, and was not run again\n\n"
        "## What changed\n\n- `src/a.py` (new)\n\n"
        "## Tests\n\n- `pytest -q` succeeded: “4 passed in 0.1s”\n"
    )


async def test_what_was_not_tested_is_named() -> None:
    work = Work()
    ask(work, "Do it.")
    assert "No test run is recorded: these changes were not tested here." in await body_of(work)
    await work.run("pytest", "2 passed in 0.1s")
    call, _ = await work.run("edit", "done")
    await work.change(call, "late.py", (1, 2))
    assert "Changed after that run, so not tested: `late.py`" in await body_of(work)
    await work.run("pytest", "", code=None, stopped=True)
    assert "was stopped before it ended: these changes were not tested here" in await body_of(work)
    await work.run("pytest", "1 failed in 0.1s", code=1)
    assert "`pytest` failed: “1 failed in 0.1s”" in await body_of(work)


async def test_what_another_said_for_the_user_is_not_said_to_be_asked() -> None:
    work = Work()
    ask(work, "A summary by the program.", by="program")
    ask(work, "Do it.")
    assert "summary" not in await body_of(work)


@pytest.mark.parametrize(
    ("more", "said"), [(0, ""), (1, "- and one more message\n"), (5, "- and 5 more messages\n")]
)
async def test_long_conversations_are_cut_and_say_so(more: int, said: str) -> None:
    work = Work()
    for number in range(MOST_REQUESTS + more):
        ask(work, f"Wish {number}. {'word ' * 1_000}")
    body = await body_of(work)
    assert body.count("- Wish") == MOST_REQUESTS
    assert said in body
    assert ("more message" in body) == bool(more)
    assert len(body) < 8_000
