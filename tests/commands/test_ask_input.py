"""What `ask` is given before any turn runs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from helix_desktop.commands import ask_input
from helix_desktop.commands.ask_input import (
    check_ask_arguments,
    is_last_turn_complete,
    read_attached_file,
    read_message_text,
)
from helix_desktop.engine.facts import Fact, Text, TurnEnd, TurnEnded, UserSaid
from helix_desktop.engine.view import build_state
from helix_desktop.errors import InvalidInput
from helix_desktop.resident.resident_client import CollectingConsole
from tests.engine.talk import Talk


def given(*text: str, resume: bool = False, conversation: str = "", attach: str = "") -> Namespace:
    attached = [attach] if attach else []
    return Namespace(text=list(text), resume=resume, conversation=conversation, attach=attached)


def test_a_message_or_a_conversation_to_resume_is_needed_and_not_both() -> None:
    check_ask_arguments(given("hello"))
    check_ask_arguments(given(resume=True, conversation="c"))
    with pytest.raises(InvalidInput, match="There is no message"):
        check_ask_arguments(given())
    for wrong in (
        given(resume=True),
        given("hello", resume=True, conversation="c"),
        given(resume=True, conversation="c", attach="a.png"),
    ):
        with pytest.raises(InvalidInput, match="To resume a turn"):
            check_ask_arguments(wrong)


async def test_words_are_one_message_and_an_empty_one_is_refused() -> None:
    assert await read_message_text(given("hello", "there"), CollectingConsole()) == "hello there"
    for empty in (given(" "), given("-")):
        with pytest.raises(InvalidInput, match="The message is empty"):
            await read_message_text(empty, CollectingConsole())


async def test_a_file_is_attached_with_its_name_unless_it_is_missing_or_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(b"1234")
    monkeypatch.setattr(ask_input, "LARGEST_ATTACHED", 4)
    assert await read_attached_file(str(file)) == ("notes.txt", b"1234")
    monkeypatch.setattr(ask_input, "LARGEST_ATTACHED", 3)
    with pytest.raises(InvalidInput, match=r"notes\.txt is larger than 200 MB"):
        await read_attached_file(str(file))
    with pytest.raises(InvalidInput, match="could not be read: No such file"):
        await read_attached_file(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("facts", "complete"),
    [
        ([], True),
        ([UserSaid((Text("go"),))], False),
        ([UserSaid((Text("go"),)), TurnEnded(TurnEnd.DONE)], True),
        ([UserSaid((Text("go"),)), TurnEnded(TurnEnd.STOPPED)], False),
        ([UserSaid((Text("go"),)), TurnEnded(TurnEnd.DONE), UserSaid((Text("more"),))], False),
    ],
)
def test_a_turn_is_complete_once_its_end_is_recorded_as_done(
    facts: list[Fact], complete: bool
) -> None:
    talk = Talk()
    for fact in facts:
        talk.add(fact)
    assert is_last_turn_complete(build_state(talk.facts)) == complete
