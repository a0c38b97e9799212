"""The stand-in for the models that write folds."""

from __future__ import annotations

import pytest

from helix_desktop.engine.facts import Purpose, Stop, Text
from helix_desktop.engine.messages import Message, Reply, Request, Role, ToolResult
from helix_desktop.engine.strategies.handover import SECTIONS
from helix_desktop.errors import ContextTooLong, ModelOverloaded
from helix_desktop.replay import simulated_clock
from helix_desktop.replay.retention import IDENTIFIER
from helix_desktop.replay.stand_in_model import FOREVER, KINDS, SIZES, StandInModel, StandInRequest


class Words:
    def count_tokens(self, text: str) -> int:
        return len(text.split())


def asked_for(
    purpose: Purpose, text: str = "", kind: str = "works"
) -> tuple[str, list[StandInRequest]]:
    heard: list[StandInRequest] = []
    request = Request(
        "", "", (Message(Role.USER, (ToolResult("c", text), Text(text or "?"))),), purpose=purpose
    )

    async def work() -> str:
        replies = [
            delta
            async for delta in StandInModel("m", kind, Words(), heard.append).stream_reply(request)
        ]
        assert isinstance(replies[-1], Reply)
        assert replies[-1].stop is Stop.END
        return "".join(part.text for part in replies[-1].parts if isinstance(part, Text))

    return simulated_clock.run_on_jumping_loop(work()), heard


@pytest.mark.parametrize("purpose", list(SIZES))
def test_replies_have_the_sizes_of_the_price_model(purpose: Purpose) -> None:
    text, (heard,) = asked_for(purpose)
    assert 0.9 * SIZES[purpose] <= len(text.split()) <= 1.1 * SIZES[purpose]
    assert heard.output == len(text.split())


def test_a_handover_has_its_sections_and_no_names_of_its_own() -> None:
    text, _ = asked_for(Purpose.HANDOVER)
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(SECTIONS)
    assert all(
        name in "Project Background Technical Details Completed Preferences"
        for name in IDENTIFIER.findall(text)
    )


def test_it_keeps_what_it_found_unless_it_is_forgetful() -> None:
    said = "You must never touch src/engine/view.py again. See https://example.org/rules for it."
    assert "must never touch" in asked_for(Purpose.HANDOVER, said)[0]
    assert "https://example.org/rules" in asked_for(Purpose.HANDOVER, said)[0]
    assert "example.org" not in asked_for(Purpose.HANDOVER, said, "forgetful")[0]


def test_the_question_of_admission_is_answered_for_every_output() -> None:
    text, _ = asked_for(Purpose.ADMISSION, "Output 1, of ls:\nx\n\nOutput 2, of cat:\ny")
    assert [line.split(":")[0] for line in text.splitlines()] == ["1", "2"]


def test_the_ways_to_let_one_down() -> None:
    assert asked_for(Purpose.HANDOVER, kind="empty")[0] == ""
    assert "##" not in asked_for(Purpose.HANDOVER, kind="wrong-form")[0]
    assert not any(
        section in asked_for(Purpose.HANDOVER, kind="other-language")[0] for section in SECTIONS
    )
    assert len(asked_for(Purpose.HANDOVER, kind="too-long")[0].split()) > 50_000
    with pytest.raises(ModelOverloaded):
        asked_for(Purpose.HANDOVER, kind="fails")
    assert set(KINDS) == {
        "works",
        "slow",
        "forgetful",
        "fails",
        "hangs",
        "empty",
        "wrong-form",
        "other-language",
        "too-long",
    }


def test_a_request_larger_than_its_window_is_refused() -> None:
    async def work() -> None:
        async for _ in StandInModel(
            "m", "works", Words(), lambda _: None, lambda _: False
        ).stream_reply(Request("", "", ())):
            pass

    with pytest.raises(ContextTooLong):
        simulated_clock.run_on_jumping_loop(work())


def test_one_that_hangs_does_not_answer() -> None:
    async def work() -> None:
        import asyncio

        async with asyncio.timeout(FOREVER / 2):
            async for _ in StandInModel("m", "hangs", Words(), lambda _: None).stream_reply(
                Request("", "", ())
            ):
                pass

    with pytest.raises(TimeoutError):
        simulated_clock.run_on_jumping_loop(work())


def test_a_slow_one_says_the_same_at_the_pace_of_a_real_model() -> None:
    async def work() -> tuple[float, int]:
        request = Request("", "", (Message(Role.USER, (Text("?"),)),), purpose=Purpose.HANDOVER)
        begun = simulated_clock.LoopClock().current_time()
        deltas = [
            delta
            async for delta in StandInModel("m", "slow", Words(), lambda _: None).stream_reply(
                request
            )
        ]
        return simulated_clock.LoopClock().current_time() - begun, len(deltas)

    seconds, deltas = simulated_clock.run_on_jumping_loop(work())
    assert 30 < seconds < 50
    assert deltas > 10
    assert asked_for(Purpose.HANDOVER, kind="slow")[0] == asked_for(Purpose.HANDOVER)[0]
