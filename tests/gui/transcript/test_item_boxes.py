"""Items become boxes: what stands in them, what can be clicked, and what waits for content."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from PySide6.QtGui import QImage

from helix_desktop.engine.facts import (
    Attachment,
    ConversationStarted,
    DetailsKept,
    FileChanged,
    Folded,
    FoldFailed,
    FoldKind,
    ModelRole,
    ModelSet,
    Origin,
    PartRef,
    Pinned,
    Recorded,
    Span,
    Stored,
    Text,
    TodoSet,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Unpinned,
    UserSaid,
)
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.common.fold_descriptions import describe_fold
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import (
    ActionLineBox,
    CopyText,
    FormulaPicture,
    LayoutBox,
    LinkAddress,
    PictureBox,
    TextBox,
    ToggleSection,
)
from helix_desktop.gui.transcript.call_and_fold_boxes import (
    ChipRowBox,
    ExpandableHeaderBox,
    FoldLineBox,
    ToolCallBox,
)
from helix_desktop.gui.transcript.chat_actions import (
    AskToFold,
    OpenConversation,
    OpenEntry,
    OpenFold,
)
from helix_desktop.gui.transcript.code_box import FIRST_LINES, CodeBox
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.item_layout import ItemLayout
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.layout_context import LayoutContext
from helix_desktop.gui.transcript.message_bar import AnswerNameAndChoiceBox
from helix_desktop.gui.transcript.table_box import TableBox
from tests.gui.stand_in import StandIn
from tests.gui.transcript.facts import OUTPUT, Told, call


class NoContents(StandIn):
    """Everything is on its way for ever, but for what a test puts in."""

    def get_or_draw_formula(
        self, latex: str, *, display: bool, size: float, colour: str
    ) -> FormulaPicture | None:
        return None

    def __init__(self) -> None:
        self.texts: dict[Digest, str] = {}
        self.images: dict[Digest, QImage] = {}
        self.children: dict[str, TranscriptItems] = {}
        self.wrong: dict[Digest, str] = {}

    def get_or_fetch_entry_text(self, stored: Stored) -> str | None:
        return self.texts.get(stored.digest)

    def get_or_fetch_entry_image(self, stored: Stored) -> QImage | None:
        return self.images.get(stored.digest)

    def explain_missing_entry(self, digest: Digest) -> str:
        return self.wrong.get(digest, "")

    def get_or_fetch_subagent_items(self, conversation: str) -> TranscriptItems | None:
        return self.children.get(conversation)


def page_of(
    theme: Theme, facts: list[Recorded], contents: NoContents | None = None
) -> LayoutContext:
    items = TranscriptItems()
    items.add_many_facts(facts)
    return LayoutContext(DrawingStyle(theme), 720.0, items, contents or NoContents(), lambda: 0.0)


def laid(page: LayoutContext, index: int = 0) -> ItemLayout:
    made = ItemLayout(page, index, 0)
    assert made.lay_out_slice(time.perf_counter() + 600)
    return made


def kinds(made: ItemLayout) -> list[type[LayoutBox]]:
    return [type(box) for box in made.boxes]


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


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (
            '{"path": "shop/totals.py", "old_text": "TAX = 0.2\\nx\\n", "new_text": "TAX = 0.19\\nx\\n"}',
            "-TAX = 0.2\n+TAX = 0.19\n x",
        ),
        ('{"file_path": "a.py", "old_string": "one", "new_string": ""}', "-one"),
        ('{"path": "a.py", "content": "one\\ntwo\\n"}', "one\ntwo"),
    ],
)
def test_an_opened_edit_shows_its_lines_and_no_json(
    theme: Theme, arguments: str, shown: str
) -> None:
    r"""A denied edit showed `{"old_text": "…\\n…"}`."""
    told = Told()
    told.reply("", call(1, "edit_file", arguments))
    told.returned("c1", head="Denied.", ok=False)
    page = page_of(theme, told.facts)
    call_box = laid(page).boxes[-1]
    toggle = call_box.hot_spots[-1].act
    assert isinstance(toggle, ToggleSection)
    page.section_amounts[toggle.key] = 1
    first_code = next(box for box in laid(page).boxes if isinstance(box, CodeBox))
    assert first_code.text.replace("\N{LINE SEPARATOR}", "\n") == shown


def test_what_is_pinned_says_so(theme: Theme) -> None:
    """Only the menu of the message knew."""
    told = Told()
    told.user("A rule")
    told.reply("First", call(1))
    told.returned("c1")
    page = page_of(theme, told.facts)

    def marked() -> list[bool]:
        return [laid(page, index).boxes[-1].text == "pinned" for index in range(3)]

    assert marked() == [False, False, False]
    pinned = [(PartRef(1), 0, 0), (PartRef(2), 1, 1), (PartRef(2, 1), 2, -1), (PartRef(3), 2, 2)]
    for ref, redrawn, shown in pinned:
        assert redrawn in page.items.show_fact(told.add(Pinned(ref))).changed_items
        assert marked() == [index == shown for index in range(3)]
        assert redrawn in page.items.show_fact(told.add(Unpinned(ref))).changed_items
    assert marked() == [False, False, False]


def test_long_code_opens_a_piece_at_a_time(theme: Theme) -> None:
    told = Told()
    told.reply("```\n" + "line\n" * 1_000 + "```")
    page = page_of(theme, told.facts)
    box = laid(page).boxes[1]
    assert isinstance(box, CodeBox)
    assert box.text.count("line") == FIRST_LINES
    (more,) = [hot for hot in box.hot_spots if isinstance(hot.act, ToggleSection)]
    assert "900 more lines" in more.name
    assert isinstance(more.act, ToggleSection)
    page.section_amounts[more.act.key] = more.act.extra_lines
    assert laid(page).boxes[1].text.count("line") == FIRST_LINES + more.act.extra_lines
    (copy,) = [hot.act for hot in box.hot_spots if isinstance(hot.act, CopyText)]
    assert copy.text.count("line") == 1_000


def test_a_long_message_is_shown_to_a_limit_that_can_be_moved(theme: Theme) -> None:
    told = Told()
    told.user("word " * 10_000)
    page = page_of(theme, told.facts)
    made = laid(page)
    last = made.boxes[-1]
    assert isinstance(last, ActionLineBox)
    assert "46,000" in last.hot_spots[0].name
    assert made.current_height < 2_000


def test_a_call_opens_to_its_output(theme: Theme) -> None:
    told = Told()
    told.reply("", call(1))
    told.returned("c1")
    page = page_of(theme, told.facts)
    (line,) = laid(page).boxes
    toggle = line.hot_spots[-1].act
    assert isinstance(toggle, ToggleSection)
    page.section_amounts[toggle.key] = 1
    made = laid(page)
    assert kinds(made) == [ToolCallBox, CodeBox, ActionLineBox]
    assert made.boxes[1].text.replace("\N{LINE SEPARATOR}", "\n") == "one\ntwo"
    assert made.boxes[2].hot_spots[0].act == OpenEntry(OUTPUT.digest)


def test_an_output_that_is_not_in_the_fact_is_asked_for(theme: Theme) -> None:
    told = Told()
    told.reply("", call(1))
    big = Stored(Digest.of_content(b"big"), 90_000, 900)
    told.add(ToolReturned("c1", big, 20_000, head="first"))
    contents = NoContents()
    page = page_of(theme, told.facts, contents)
    page.section_amounts["open", 1, 0] = 1
    assert "Loading" in laid(page).boxes[1].text
    contents.wrong[big.digest] = "The bytes do not match the hash."
    assert laid(page).boxes[1].text == "The bytes do not match the hash."
    contents.texts[big.digest] = "loaded\nnow"
    assert "loaded" in laid(page).boxes[1].text
    (link,) = (
        laid(page).boxes[2].hot_spots
    )  # The first 64 KB are read, and “Show more” counts only their lines.
    assert link.name.startswith("This is only the beginning of 900 lines. Open the full output")


def test_pictures_come_from_the_cache_alone(theme: Theme) -> None:
    told = Told()
    picture = Stored(Digest.of_content(b"png"), 100, 0, "image/png")
    told.add(UserSaid((Text("look ![x](http://evil/x.png)"), Attachment("a.png", picture, 900))))
    contents = NoContents()
    contents.images[picture.digest] = QImage(40, 20, QImage.Format.Format_RGB32)
    made = laid(page_of(theme, told.facts, contents))
    assert kinds(made) == [TextBox, PictureBox, ChipRowBox]
    assert "[picture: x]" in made.boxes[0].text
    assert made.boxes[2].hot_spots[0].act == OpenEntry(picture.digest)


def test_a_sub_agent_is_nested(theme: Theme) -> None:
    told = Told()
    child = Told()
    child.user("find it")
    child.reply("Found.")
    told.reply("", call(1, "delegate"))
    told.add(ToolReturned("c1", OUTPUT, 10, head="one\ntwo\n", child="child"))
    contents = NoContents()
    items = TranscriptItems()
    items.add_many_facts(child.facts)
    contents.children["child"] = items
    page = page_of(theme, told.facts, contents)
    page.section_amounts["open", 1, 0] = 1
    made = laid(page)
    nested = [box for box in made.boxes if box.is_from_subagent]
    assert [box.text for box in nested] == ["find it", "m", "Found."]
    assert all(box.left >= 18 for box in nested)
    assert any(hot.act == OpenConversation("child") for box in made.boxes for hot in box.hot_spots)


def test_what_a_fold_did_stands_where_it_happened(theme: Theme) -> None:
    told = Told()
    told.add(UserSaid((Text("one", 9_000),)))
    told.add(TurnEnded(TurnEnd.DONE))
    told.handover(1, 1)
    made = laid(page_of(theme, told.facts), 1)
    (box,) = made.boxes
    assert isinstance(box, FoldLineBox)
    assert box.text == "Older messages became a summary: 9K → 900 tokens, and nothing was lost"
    assert box.hot_spots[0].act == OpenFold("h")


def test_a_plan_shows_what_is_done(theme: Theme) -> None:
    told = Told()
    told.add(TodoSet((("one", "done"), ("two", "open"))))
    made = laid(page_of(theme, told.facts))
    assert kinds(made) == [ExpandableHeaderBox, TextBox, TextBox]
    assert made.boxes[0].text == "Plan · 1 of 2 done"
    assert made.text_between_offsets(0, made.text_length).splitlines() == [
        "Plan · 1 of 2 done",
        "☑ one",
        "☐ two",
    ]


def test_a_failed_fold_says_one_reason_and_can_be_tried_again(theme: Theme) -> None:
    told = Told()
    told.add(
        FoldFailed(FoldKind.HANDOVER, "a/m: it said no.; b/m: the text was too long; c: broken.")
    )
    (box,) = laid(page_of(theme, told.facts)).boxes
    assert box.text == "No summary was written; all messages stay here. Summary: a/m: it said no."
    assert [(hot.name, hot.act) for hot in box.hot_spots] == [
        ("Try again", AskToFold(FoldKind.HANDOVER))
    ]


def test_only_the_last_of_several_failed_folds_can_be_tried_again_until_one_succeeds(
    theme: Theme,
) -> None:
    told = Told()
    told.user("one")
    told.add(FoldFailed(FoldKind.HANDOVER, "a/m: it said no."))
    told.add(FoldFailed(FoldKind.HANDOVER, "a/m: it said no."))
    first, second = (laid(page_of(theme, told.facts), at).boxes[0] for at in (1, 2))
    assert not first.hot_spots
    assert [hot.name for hot in second.hot_spots] == ["Try again"]
    told.handover(1, 1)
    assert not laid(page_of(theme, told.facts), 2).boxes[0].hot_spots


def test_changed_files_are_counted(theme: Theme) -> None:
    told = Told()
    told.reply("", call(1, "edit_file"))
    changed = (FileChanged("a", Digest.of_content(b"a"), Digest.of_content(b"b")),)
    told.add(
        ToolReturned("c1", OUTPUT, 9, head="--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n", changes=changed)
    )
    (box,) = laid(page_of(theme, told.facts)).boxes
    assert isinstance(box, ToolCallBox)
    assert [placed.chip.text for placed in box._chips] == ["Preview", "+1 −1"]


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


def test_an_answer_of_another_model_than_was_chosen_is_named_anew_when_it_is_complete(
    theme: Theme,
) -> None:
    told = Told()
    page = page_of(theme, told.facts)
    page.items.append_reply_delta(TextDelta("Yes."))
    made = laid(page)
    told.reply("Yes.")
    page.items.show_fact(told.facts[-1])
    assert not made.take_over_continued_answer(0)
    assert (made.boxes[0].text, laid(page).boxes[0].text) == ("Helix", "m")


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


def test_a_message_that_is_only_an_attachment_stands_as_high_as_one_of_words(theme: Theme) -> None:
    alone = Attachment("notes.txt", OUTPUT, 3)
    page = page_of(
        theme,
        [
            Recorded("c", 1, 0.0, UserSaid((alone,))),
            Recorded("c", 2, 0.0, UserSaid((Text("Hello"),))),
        ],
    )
    assert [laid(page, index).boxes[0].gap for index in (0, 1)] == [0.0, 0.0]


def test_code_stands_under_its_language_with_a_copy_button(theme: Theme) -> None:
    told = Told()
    told.reply("```python\nx = 1\n```\n\n```\nplain\n```")
    named, plain = [
        box for box in laid(page_of(theme, told.facts)).boxes if isinstance(box, CodeBox)
    ]
    assert named.height > plain.height
    assert [hot.only_when_near for hot in named.hot_spots] == [True]
    assert [hot.only_when_near for hot in plain.hot_spots] == [True]


def test_the_chat_says_which_agent_compacted_the_conversation() -> None:
    """The defect: Claude Code's own compaction was called a handover document, as if
    this program had written it.
    """
    why = "Claude Code compacted the conversation here (manual)"
    fold = Folded("f", FoldKind.HANDOVER, Span(1, 9), "summary", 277, 3_500, number=1, why=why)
    words = "Claude Code compacted the conversation here: 3.5K → 277 tokens. What was replaced stays here."
    assert describe_fold(fold) == words


def test_the_chat_says_when_the_model_kept_few_of_the_important_details() -> None:
    kept = DetailsKept(11, 2, 0, 9)
    fold = Folded("f", FoldKind.HANDOVER, Span(1, 9), "text", 545, 1_800, model="p/m", details=kept)
    words = "Summary: only 2 of 11 important details are in the text · 1.8K → 545 tokens"
    assert describe_fold(fold) == words
    good = replace(fold, details=replace(kept, kept=6, added=4))
    assert describe_fold(good).endswith(": 1.8K → 545 tokens, and nothing was lost")
    cut = replace(fold, kind=FoldKind.TRUNCATION, model="", details=DetailsKept())
    assert describe_fold(cut).startswith(
        "The oldest messages are no longer sent: 1.8K → 545 tokens. What was replaced"
    )


REMINDER = "<system-reminder>\nToday is the 24th.\n</system-reminder>"


def test_what_an_agent_added_is_one_line_that_opens(theme: Theme) -> None:
    """The defect: reminders of Claude Code and the environment of Codex looked like
    messages of the user.
    """
    told = Told()
    told.add(ConversationStarted("T", origin=Origin("claude-code", "s")))
    told.user(f"{REMINDER}\nMend it.")
    stored = Stored(OUTPUT.digest, 300)
    told.add(UserSaid((Attachment("environment_context", stored, 75),)))
    contents = NoContents()
    contents.texts[stored.digest] = "the folder is /x"
    page = page_of(theme, told.facts, contents)
    assert [item.kind.name for item in page.items.all] == ["ADDITION", "USER", "ADDITION"]
    added, user, attached = (laid(page, index) for index in range(3))
    assert [box.text for box in added.boxes] == ["Claude Code added: system-reminder"]
    assert [box.text for box in user.boxes] == ["Mend it."]
    assert user.copyable_markdown(0, user.text_length) == "Mend it."
    assert [box.text for box in attached.boxes] == ["Claude Code added: environment context"]
    for made in (added, attached):
        (hot,) = made.boxes[0].hot_spots
        assert isinstance(hot.act, ToggleSection)
        page.section_amounts[hot.act.key] = 1
    assert [box.text for box in laid(page, 0).boxes][1:] == REMINDER.split("\n")
    assert [box.text for box in laid(page, 2).boxes][1] == "the folder is /x"


def test_an_output_whose_call_is_missing_is_not_shown_as_words_of_the_user(theme: Theme) -> None:
    told = Told()
    told.add(ConversationStarted("T", origin=Origin("claude-code", "s")))
    output = Attachment("output.txt", Stored(OUTPUT.digest, 300), 75)
    told.add(UserSaid((Text("[An output that answers no call]", 8), output)))
    page = page_of(theme, told.facts)
    assert [item.kind.name for item in page.items.all] == ["ADDITION", "ADDITION"]
    assert [box.text for box in laid(page, 0).boxes] == [
        "Claude Code added: An output that answers no call, output.txt"
    ]
    page.items.toggle_call_group(0)
    assert [box.text for box in laid(page, 1).boxes] == ["Claude Code added: output.txt"]


def test_what_is_typed_in_a_conversation_of_this_program_is_the_users(theme: Theme) -> None:
    told = Told()
    told.add(ConversationStarted("T"))
    told.user(REMINDER)
    assert [item.kind.name for item in page_of(theme, told.facts).items.all] == ["USER"]


def test_additions_in_a_row_are_one_line_that_opens_to_a_line_for_each(theme: Theme) -> None:
    """The defect: each reminder of Claude Code had a line of its own, also ten in a row."""
    told = Told()
    told.add(ConversationStarted("T", origin=Origin("claude-code", "s")))
    told.user(REMINDER)
    told.user(f"{REMINDER}\n<task-notification>done</task-notification>")
    told.user("Mend it.")
    told.user(REMINDER)
    page = page_of(theme, told.facts)
    items = page.items
    assert [item.kind.name for item in items.all] == ["ADDITION"] * 3 + ["USER", "ADDITION"]
    assert [items.is_item_hidden(index) for index in range(5)] == [False, True, True, False, False]
    assert [box.text for box in laid(page, 0).boxes] == [
        "Claude Code added: system-reminder ×2, task-notification"
    ]
    assert [box.text for box in laid(page, 4).boxes] == ["Claude Code added: system-reminder"]
    items.toggle_call_group(0)
    assert not any(items.is_item_hidden(index) for index in range(5))
    assert [box.text for box in laid(page, 0).boxes][1:] == ["Claude Code added: system-reminder"]
    assert [box.text for box in laid(page, 2).boxes] == ["Claude Code added: task-notification"]


def test_a_picture_that_a_user_sends_beside_a_reminder_is_shown(theme: Theme) -> None:
    """The defect: a message with nothing but a picture and a reminder was only the
    reminder's line.
    """
    told = Told()
    told.add(ConversationStarted("T", origin=Origin("claude-code", "s")))
    told.add(
        UserSaid(
            (Text(REMINDER), Attachment("shot.png", Stored(OUTPUT.digest, 300, 1, "image/png"), 75))
        )
    )
    assert [item.kind.name for item in page_of(theme, told.facts).items.all] == ["ADDITION", "USER"]


def test_why_a_call_failed_is_wrapped_as_text_and_shown_whole(theme: Theme) -> None:
    """The message was cut at the edge, coloured as code, and whole only in the cache."""
    message = (
        "edit_file has no argument 'old'; it was not run. The tool takes: path, old_text, "
        "new_text, replace_all, and nothing else, as its description says."
    )
    told = Told()
    told.reply("", call(1, "edit_file", '{"path": "a.py"}'))
    told.returned("c1", head=message, ok=False)
    page = page_of(theme, told.facts)
    toggle = laid(page).boxes[-1].hot_spots[-1].act
    assert isinstance(toggle, ToggleSection)
    page.section_amounts[toggle.key] = 1
    boxes = laid(page).boxes
    (shown,) = [box for box in boxes if isinstance(box, TextBox) and box.text == message]
    assert shown.height > DrawingStyle(theme).code_line_height * 1.5
    assert not any(isinstance(box, ActionLineBox) for box in boxes)
