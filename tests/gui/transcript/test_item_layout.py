"""An item is laid out in slices, and a growing answer only where it grows."""

from __future__ import annotations

import time

import pytest

from helix_desktop.engine.facts import ModelRole, ModelSet
from helix_desktop.engine.messages import TextDelta
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import CopyText, LinkAddress, TextBox
from helix_desktop.gui.transcript.code_box import CodeBox
from helix_desktop.gui.transcript.message_bar import AnswerNameAndChoiceBox
from helix_desktop.gui.transcript.table_box import TableBox
from tests.gui.transcript.facts import Told
from tests.gui.transcript.laid_out_items import kinds, laid, page_of


def test_an_answer_with_everything(theme: Theme) -> None:
    told = Told()
    told.reply(
        "# Head\n\nSee [it](http://there).\n\n```py\nx = 1\n```\n\n| a |\n|---|\n| 1 |\n\n---"
    )
    made = laid(page_of(theme, told.facts))
    assert kinds(made)[:5] == [AnswerNameAndChoiceBox, TextBox, TextBox, CodeBox, TableBox]
    assert made.boxes[0].text == "m"
    assert [hot.act for hot in made.boxes[2].hot_spots] == [LinkAddress("http://there")]
    assert [hot.act for hot in made.boxes[3].hot_spots] == [CopyText("x = 1")]
    assert made.current_height == round(made.bottom_edge)


@pytest.mark.parametrize("cut", [1, 7, 40, 77, 120])
def test_an_answer_that_grows_is_laid_out_like_one_that_was_there(theme: Theme, cut: int) -> None:
    text = "One **two**\n\n- a\n- b\n\n```py\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\nThe end [x](http://y)."
    told = Told()
    told.add(ModelSet(ModelRole.MAIN, "peer/m", 8_000))
    page = page_of(theme, told.facts)
    page.items.append_reply_delta(TextDelta(text[:cut]))
    made = laid(page)
    for at in range(cut, len(text), 9):
        page.items.append_reply_delta(TextDelta(text[at : at + 9]))
        made.extend_answer_layout(0)
        assert made.lay_out_slice(time.perf_counter() + 600)
    told.reply(text)
    page.items.show_fact(told.facts[-1])
    assert made.take_over_continued_answer(0)
    fresh = laid(page)
    assert [(type(box), box.text) for box in made.boxes] == [
        (type(box), box.text) for box in fresh.boxes
    ]
    assert made.current_height == fresh.current_height


def test_only_the_last_chunk_of_a_growing_answer_is_laid_out_again(theme: Theme) -> None:
    page = page_of(theme, [])
    page.items.append_reply_delta(TextDelta("First.\n\nSecond.\n\nThi"))
    made = laid(page)
    kept = made.boxes[:3]
    page.items.append_reply_delta(TextDelta("rd."))
    made.extend_answer_layout(0)
    made.lay_out_slice(time.perf_counter() + 600)
    assert made.boxes[:3] == kept
    assert made.boxes[-1].text == "Third."


def test_text_and_markdown_of_a_part(theme: Theme) -> None:
    told = Told()
    source = "First **bold**.\n\n- one\n- two\n\nLast 👩‍💻 word."
    told.reply(source)
    made = laid(page_of(theme, told.facts))
    assert made.copyable_markdown(0, made.text_length) == source
    start = made.text_between_offsets(0, made.text_length).index("one")
    assert made.text_between_offsets(0, 1 + 1 + 5) == "m\nFirst"
    part = made.copyable_markdown(2, made.text_length - 3)
    assert "- one\n- two" in part
    assert "**bold**" in part
    assert start > 0
    places = made.find_starts_and_lengths("word")
    assert [made.text_between_offsets(at, at + size) for at, size in places] == ["word"]


def test_a_long_list_is_copied_as_one(theme: Theme) -> None:
    told = Told()
    source = (
        "Before.\n\n" + "\n".join(f"- the item {number}" for number in range(200)) + "\n\nAfter."
    )
    told.reply(source)
    made = laid(page_of(theme, told.facts))
    assert made.copyable_markdown(len("m\n"), made.text_length - 1) == source
