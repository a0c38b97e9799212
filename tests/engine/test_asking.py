"""Asking a model for one text: half a text is none."""

from __future__ import annotations

import asyncio

import pytest

from helix_desktop.engine.asking import Asking, plain_request
from helix_desktop.engine.blocks import Reply, Request
from helix_desktop.engine.facts import Spent, Stop, Text, Usage
from helix_desktop.errors import ModelFailed
from tests.engine.agent import ScriptedModel, says

CUT = Reply((Text("ha"),), Stop.CUT, Usage(input=3), "scripted", "the stream broke")


async def asked(*script: Reply) -> tuple[str, list[Spent]]:
    spent: list[Spent] = []
    request = plain_request("material", "What is it?", "handover")
    return await Asking(spent.append).text(ScriptedModel(list(script)), request, 5), spent


async def test_the_text_comes_back_and_its_cost_is_told() -> None:
    text, spent = await asked(says("an answer"))
    assert text == "an answer"
    assert [(one.purpose, one.usage.input) for one in spent] == [("handover", 10)]


async def test_a_reply_that_breaks_off_is_asked_for_once_more() -> None:
    text, spent = await asked(CUT, says("whole"))
    assert text == "whole"
    assert [one.usage.input for one in spent] == [3, 10]


async def test_half_a_text_is_none() -> None:
    with pytest.raises(ModelFailed, match="the stream broke"):
        await asked(CUT, CUT)
    with pytest.raises(ModelFailed, match="broke off"):
        await asked(says("no", Stop.FILTERED))


async def test_a_model_that_hangs_fails() -> None:
    async def hang(request: Request) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(ModelFailed, match="did not finish"):
        await Asking(lambda _: None).text(ScriptedModel([hang]), plain_request("m", "q", "handover"), 0.01)
