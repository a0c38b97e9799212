"""What the chat itself says of a fact, and where it says nothing."""

from __future__ import annotations

import pytest

from helix_desktop.engine.facts import (
    Fact,
    FoldFailed,
    FoldKind,
    Forgotten,
    Stop,
    Text,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.session import PLAN
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.transcript.status_lines import describe_fact_if_needed
from tests.gui.transcript.facts import Told


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (TurnEnded(TurnEnd.DONE), ""),
        (TurnEnded(TurnEnd.STOPPED), "Stopped."),
        (TurnEnded(TurnEnd.FAILED, "No network."), "The turn failed. No network."),
        (TurnEnded(TurnEnd.SPENDING_LIMIT), "The cost limit was reached."),
        (FoldFailed(FoldKind.HANDOVER, "it was too long"), "Summary: it was too long."),
        (
            FoldFailed(
                FoldKind.HANDOVER,
                "local/m, using this conversation's context: The model's reply was not a summary.",
            ),
            "The model's reply was not a summary. local/m was asked to write it.",
        ),
        (
            Forgotten((), 2, ""),
            "Content was permanently removed here: 0 stored outputs, 2 records.",
        ),
        (
            Forgotten((Digest.of_content(b"x"),), 1, ""),
            "Content was permanently removed here: 1 stored output, 1 record.",
        ),
        (UserSaid((Text("hello"),)), ""),
    ],
)
def test_what_is_noted_of_a_fact(fact: Fact, words: str) -> None:
    assert describe_fact_if_needed(fact) == words


def test_an_approved_plan_stands_in_the_chat_as_it_was_approved() -> None:
    """The user may have changed it, and the call's line shows what the agent had written."""
    note = describe_fact_if_needed(UserSaid((Text(f"{PLAN}1. Read\n\n2. Write"),), by="plan"))
    assert note.endswith("the full text of the approved plan.\n\n1. Read\n\n2. Write")
    assert (
        describe_fact_if_needed(UserSaid((Text("[Go on.]"),), by="task"))
        == "You gave this task the permission that it needed."
    )


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("agent", "A message from the agent that delegated this task."),
        ("agent:reviewer", "The sub-agent “reviewer” has finished."),
        (
            "interrupted:Count: slowly",
            "The sub-agent “Count: slowly” did not finish, because the program ended.",
        ),
    ],
)
def test_messages_between_agents_say_from_whom_they_are(by: str, words: str) -> None:
    assert describe_fact_if_needed(UserSaid((Text("[…]"),), by=by)) == words


@pytest.mark.parametrize("stop", Stop)
def test_an_answer_is_noted_where_it_was_cut_short(stop: Stop) -> None:
    told = Told()
    told.reply("so far", stop=stop)
    noted = describe_fact_if_needed(told.facts[-1].fact)
    assert bool(noted) == (stop in {Stop.LENGTH, Stop.FILTERED, Stop.CUT})
