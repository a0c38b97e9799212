"""Items become boxes: what stands in them, what can be clicked, and what waits for content."""

from __future__ import annotations

import time

import pytest
from PySide6.QtGui import QImage

from helix_desktop.engine.blocks import TextDelta
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import (
    Attachment,
    FileChanged,
    Recorded,
    Stored,
    Text,
    TodoSet,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.bars import CallBox, ChipsBox, FoldBox, HeadBox
from helix_desktop.gui.transcript.boxes import Address, Box, CopyText, More, Picture, Toggle, Words
from helix_desktop.gui.transcript.code import FIRST_LINES, CodeBox
from helix_desktop.gui.transcript.drawing import Ink
from helix_desktop.gui.transcript.formula import Drawn
from helix_desktop.gui.transcript.hover_bar import NameBox
from helix_desktop.gui.transcript.intents import OpenConversation, OpenEntry, OpenFold
from helix_desktop.gui.transcript.item_layout import Laid
from helix_desktop.gui.transcript.page import Page
from helix_desktop.gui.transcript.projection import Items
from helix_desktop.gui.transcript.table import TableBox
from tests.gui.transcript.facts import OUTPUT, Told, call


class NoContents:
    """Everything is on its way for ever, but for what a test puts in."""

    def formula(self, latex: str, *, display: bool, size: float, colour: str) -> Drawn | None:
        return None

    def __init__(self) -> None:
        self.texts: dict[Digest, str] = {}
        self.images: dict[Digest, QImage] = {}
        self.children: dict[str, Items] = {}
        self.wrong: dict[Digest, str] = {}

    def text(self, stored: Stored) -> str | None:
        return self.texts.get(stored.digest)

    def image(self, stored: Stored) -> QImage | None:
        return self.images.get(stored.digest)

    def trouble(self, digest: Digest) -> str:
        return self.wrong.get(digest, "")

    def child(self, conversation: str) -> Items | None:
        return self.children.get(conversation)


def page_of(theme: Theme, facts: list[Recorded], contents: NoContents | None = None) -> Page:
    items = Items()
    items.extend(facts)
    return Page(Ink(theme), 720.0, items, contents or NoContents(), lambda: 0.0)


def laid(page: Page, index: int = 0) -> Laid:
    made = Laid(page, index, 0)
    assert made.advance(time.perf_counter() + 600)
    return made


def kinds(made: Laid) -> list[type[Box]]:
    return [type(box) for box in made.boxes]


def test_an_answer_with_everything(theme: Theme) -> None:
    told = Told()
    told.reply("# Head\n\nSee [it](http://there).\n\n```py\nx = 1\n```\n\n| a |\n|---|\n| 1 |\n\n---")
    made = laid(page_of(theme, told.facts))
    assert kinds(made)[:5] == [NameBox, Words, Words, CodeBox, TableBox]
    assert made.boxes[0].text == "Helix"
    assert [hot.act for hot in made.boxes[2].hots] == [Address("http://there")]
    assert [hot.act for hot in made.boxes[3].hots] == [CopyText("x = 1")]
    assert made.height == round(made.bottom)


def test_long_code_opens_a_piece_at_a_time(theme: Theme) -> None:
    told = Told()
    told.reply("```\n" + "line\n" * 1_000 + "```")
    page = page_of(theme, told.facts)
    box = laid(page).boxes[1]
    assert isinstance(box, CodeBox)
    assert box.text.count("line") == FIRST_LINES
    (more,) = [hot for hot in box.hots if isinstance(hot.act, Toggle)]
    assert "900 more lines" in more.name
    assert isinstance(more.act, Toggle)
    page.opened[more.act.key] = more.act.by
    assert laid(page).boxes[1].text.count("line") == FIRST_LINES + more.act.by
    (copy,) = [hot.act for hot in box.hots if isinstance(hot.act, CopyText)]
    assert copy.text.count("line") == 1_000


def test_a_long_message_is_shown_to_a_limit_that_can_be_moved(theme: Theme) -> None:
    told = Told()
    told.user("word " * 10_000)
    page = page_of(theme, told.facts)
    made = laid(page)
    last = made.boxes[-1]
    assert isinstance(last, More)
    assert "46,000" in last.hots[0].name
    assert made.height < 2_000


def test_a_call_opens_to_its_output(theme: Theme) -> None:
    told = Told()
    told.reply("", call(1))
    told.returned("c1")
    page = page_of(theme, told.facts)
    (line,) = laid(page).boxes
    toggle = line.hots[-1].act
    assert isinstance(toggle, Toggle)
    page.opened[toggle.key] = 1
    made = laid(page)
    assert kinds(made) == [CallBox, CodeBox, More]
    assert made.boxes[1].text.replace("\N{LINE SEPARATOR}", "\n") == "one\ntwo"
    assert made.boxes[2].hots[0].act == OpenEntry(OUTPUT.digest)


def test_an_output_that_is_not_in_the_fact_is_asked_for(theme: Theme) -> None:
    told = Told()
    told.reply("", call(1))
    big = Stored(Digest.of(b"big"), 90_000, 900)
    told.add(ToolReturned("c1", big, 20_000, head="first"))
    contents = NoContents()
    page = page_of(theme, told.facts, contents)
    page.opened["open", 1, 0] = 1
    assert "Loading" in laid(page).boxes[1].text
    contents.wrong[big.digest] = "The bytes do not match the hash."
    assert laid(page).boxes[1].text == "The bytes do not match the hash."
    contents.texts[big.digest] = "loaded\nnow"
    assert "loaded" in laid(page).boxes[1].text


def test_pictures_come_from_the_cache_alone(theme: Theme) -> None:
    told = Told()
    picture = Stored(Digest.of(b"png"), 100, 0, "image/png")
    told.add(UserSaid((Text("look ![x](http://evil/x.png)"), Attachment("a.png", picture, 900))))
    contents = NoContents()
    contents.images[picture.digest] = QImage(40, 20, QImage.Format.Format_RGB32)
    made = laid(page_of(theme, told.facts, contents))
    assert kinds(made) == [Words, Picture, ChipsBox]
    assert "[picture: x]" in made.boxes[0].text
    assert made.boxes[2].hots[0].act == OpenEntry(picture.digest)


def test_a_sub_agent_is_nested(theme: Theme) -> None:
    told, child = Told(), Told()
    child.user("find it")
    child.reply("Found.")
    told.reply("", call(1, "delegate"))
    told.add(ToolReturned("c1", OUTPUT, 10, head="one\ntwo\n", child="child"))
    contents = NoContents()
    items = Items()
    items.extend(child.facts)
    contents.children["child"] = items
    page = page_of(theme, told.facts, contents)
    page.opened["open", 1, 0] = 1
    made = laid(page)
    nested = [box for box in made.boxes if box.nested]
    assert [box.text for box in nested] == ["find it", "Helix", "Found."]
    assert all(box.left >= 18 for box in nested)
    assert any(hot.act == OpenConversation("child") for box in made.boxes for hot in box.hots)


def test_what_a_fold_did_stands_where_it_happened(theme: Theme) -> None:
    told = Told()
    told.add(UserSaid((Text("one", 9_000),)))
    told.add(TurnEnded(TurnEnd.DONE))
    told.handover(1, 1)
    made = laid(page_of(theme, told.facts), 1)
    (box,) = made.boxes
    assert isinstance(box, FoldBox)
    assert box.text == "Handover 1 · 9K → 900 tokens"
    assert box.hots[0].act == OpenFold("h")


def test_a_plan_shows_what_is_done(theme: Theme) -> None:
    told = Told()
    told.add(TodoSet((("one", "done"), ("two", "open"))))
    made = laid(page_of(theme, told.facts))
    assert kinds(made) == [HeadBox, Words, Words]
    assert made.boxes[0].text == "Plan · 1 of 2 done"
    assert made.text(0, made.length).splitlines() == ["Plan · 1 of 2 done", "☑ one", "☐ two"]


def test_changed_files_are_counted(theme: Theme) -> None:
    told = Told()
    told.reply("", call(1, "edit_file"))
    changed = (FileChanged("a", Digest.of(b"a"), Digest.of(b"b")),)
    told.add(ToolReturned("c1", OUTPUT, 9, head="--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n", changes=changed))
    (box,) = laid(page_of(theme, told.facts)).boxes
    assert isinstance(box, CallBox)
    assert [chip.text for chip, _ in box._chips] == ["+1 −1"]


@pytest.mark.parametrize("cut", [1, 7, 40, 77, 120])
def test_an_answer_that_grows_is_laid_out_like_one_that_was_there(theme: Theme, cut: int) -> None:
    text = "One **two**\n\n- a\n- b\n\n```py\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\nThe end [x](http://y)."
    told = Told()
    page = page_of(theme, told.facts)
    page.items.stream(TextDelta(text[:cut]))
    made = laid(page)
    for at in range(cut, len(text), 9):
        page.items.stream(TextDelta(text[at : at + 9]))
        made.grow(0)
        assert made.advance(time.perf_counter() + 600)
    told.reply(text)
    page.items.advance(told.facts[-1])
    assert made.becomes(0)
    fresh = laid(page)
    assert [(type(box), box.text) for box in made.boxes] == [(type(box), box.text) for box in fresh.boxes]
    assert made.height == fresh.height


def test_only_the_last_chunk_of_a_growing_answer_is_laid_out_again(theme: Theme) -> None:
    page = page_of(theme, [])
    page.items.stream(TextDelta("First.\n\nSecond.\n\nThi"))
    made = laid(page)
    kept = made.boxes[:3]
    page.items.stream(TextDelta("rd."))
    made.grow(0)
    made.advance(time.perf_counter() + 600)
    assert made.boxes[:3] == kept
    assert made.boxes[-1].text == "Third."


def test_text_and_markdown_of_a_part(theme: Theme) -> None:
    told = Told()
    source = "First **bold**.\n\n- one\n- two\n\nLast 👩‍💻 word."
    told.reply(source)
    made = laid(page_of(theme, told.facts))
    assert made.markdown(0, made.length) == source
    start = made.text(0, made.length).index("one")
    assert made.text(0, 5 + 1 + 5) == "Helix\nFirst"
    part = made.markdown(6, made.length - 3)
    assert "- one\n- two" in part
    assert "**bold**" in part
    assert start > 0
    places = made.found("word")
    assert [made.text(at, at + size) for at, size in places] == ["word"]


def test_a_long_list_is_copied_as_one(theme: Theme) -> None:
    told = Told()
    source = "Before.\n\n" + "\n".join(f"- the item {number}" for number in range(200)) + "\n\nAfter."
    told.reply(source)
    made = laid(page_of(theme, told.facts))
    assert made.markdown(len("Helix\n"), made.length - 1) == source


def test_a_message_that_is_only_an_attachment_stands_as_high_as_one_of_words(theme: Theme) -> None:
    alone = Attachment("notes.txt", OUTPUT, 3)
    page = page_of(
        theme, [Recorded("c", 1, 0.0, UserSaid((alone,))), Recorded("c", 2, 0.0, UserSaid((Text("Hello"),)))]
    )
    assert [laid(page, index).boxes[0].gap for index in (0, 1)] == [0.0, 0.0]


def test_code_stands_under_its_language_with_a_copy_button(theme: Theme) -> None:
    told = Told()
    told.reply("```python\nx = 1\n```\n\n```\nplain\n```")
    named, plain = [box for box in laid(page_of(theme, told.facts)).boxes if isinstance(box, CodeBox)]
    assert named.height > plain.height
    assert [hot.quiet for hot in named.hots] == [False]
    assert [hot.quiet for hot in plain.hots] == [True]
