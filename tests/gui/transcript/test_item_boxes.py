"""Items become boxes: what stands in them, what can be clicked, and what waits for content."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtGui import QImage

from helix_desktop.engine.facts import (
    Attachment,
    ConversationStarted,
    DetailsKept,
    FileChanged,
    Folded,
    FoldKind,
    Origin,
    PartRef,
    Pinned,
    Recorded,
    Span,
    Stored,
    Text,
    TodoSet,
    ToolReturned,
    Unpinned,
    UserSaid,
)
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN
from helix_desktop.gui.common.fold_descriptions import describe_fold
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import (
    ActionLineBox,
    PictureBox,
    TextBox,
    ToggleSection,
)
from helix_desktop.gui.transcript.call_and_fold_boxes import (
    ChipRowBox,
    ExpandableHeaderBox,
    ToolCallBox,
)
from helix_desktop.gui.transcript.chat_actions import (
    OpenAttachment,
)
from helix_desktop.gui.transcript.code_box import CodeBox
from helix_desktop.gui.transcript.item_boxes import (
    LINES_OF_CLOSED_CALL,
    _mark_up_long_arguments,
)
from helix_desktop.gui.transcript.layout_context import LayoutContext
from helix_desktop.gui.translation import set_translations
from tests.gui.transcript.facts import OUTPUT, Told, call
from tests.gui.transcript.laid_out_items import NoContents, kinds, laid, page_of
from tests.unmarking import unmark_text


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


def test_a_long_message_is_shown_to_a_limit_that_can_be_moved(theme: Theme) -> None:
    told = Told()
    told.user("word " * 10_000)
    page = page_of(theme, told.facts)
    made = laid(page)
    last = made.boxes[-1]
    assert isinstance(last, ActionLineBox)
    assert "46,000" in last.hot_spots[0].name
    assert made.current_height < 2_000


def test_pictures_come_from_the_cache_alone(theme: Theme) -> None:
    told = Told()
    picture = Stored(Digest.of_content(b"png"), 100, 0, "image/png")
    told.add(UserSaid((Text("look ![x](http://evil/x.png)"), Attachment("a.png", picture, 900))))
    contents = NoContents()
    contents.images[picture.digest] = QImage(40, 20, QImage.Format.Format_RGB32)
    made = laid(page_of(theme, told.facts, contents))
    assert kinds(made) == [TextBox, PictureBox, ChipRowBox]
    assert "[picture: x]" in made.boxes[0].text
    assert made.boxes[2].hot_spots[0].act == OpenAttachment(Attachment("a.png", picture, 900))


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


def test_a_running_command_shows_its_last_lines_also_while_it_is_closed(theme: Theme) -> None:
    told = Told()
    told.user("build it")
    told.reply("", call(1))
    page = page_of(theme, told.facts)
    index = len(page.items.all) - 1
    assert kinds(laid(page, index)) == [ToolCallBox]
    lines = [f"step {number}" for number in range(40)]
    page.items.calls.append_output("c1", "\n".join(lines))
    assert kinds(laid(page, index)) == [ToolCallBox, CodeBox]
    assert laid(page, index).boxes[1].text.split("\u2028") == lines[-LINES_OF_CLOSED_CALL:]
    page.items.show_fact(told.returned("c1"))
    assert kinds(laid(page, index)) == [ToolCallBox]


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
    assert describe_fold(good).endswith(": 1.8K → 545 tokens. What was replaced stays here.")
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
    assert lines_of(page, 0) == ["Claude Code added: system-reminder"]
    assert lines_of(page, 1) == ["Mend it."]
    assert user.copyable_markdown(0, user.text_length) == "Mend it."
    assert lines_of(page, 2) == ["Claude Code added: environment context"]
    for made in (added, attached):
        (hot,) = made.boxes[0].hot_spots
        assert isinstance(hot.act, ToggleSection)
        page.section_amounts[hot.act.key] = 1
    assert lines_of(page, 0)[1:] == REMINDER.split("\n")
    assert lines_of(page, 2)[1] == "the folder is /x"


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
    assert lines_of(page, 0) == ["Claude Code added: system-reminder ×2, task-notification"]
    assert lines_of(page, 4) == ["Claude Code added: system-reminder"]
    items.toggle_call_group(0)
    assert not any(items.is_item_hidden(index) for index in range(5))
    assert lines_of(page, 0)[1:] == ["Claude Code added: system-reminder"]
    assert lines_of(page, 2) == ["Claude Code added: task-notification"]


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


def lines_of(page: LayoutContext, index: int) -> list[str]:
    """The text of each box of an item."""
    return [box.text for box in laid(page, index).boxes]


@given(st.text(st.sampled_from('abn"\\\n {}:,'), min_size=60, max_size=80))
def test_what_an_opened_call_shows_is_what_the_agent_asked_for(command: str) -> None:
    arguments = {"command": command, "keep": "the last lines"}
    shown = _mark_up_long_arguments(json.dumps(arguments))
    # Line ends within a text are shown as such, and spaces before them by a mark.
    assert json.loads(unmark_text(shown), strict=False) == arguments


def test_why_a_call_was_not_run_is_said_in_the_users_language(theme: Theme) -> None:
    told = Told()
    told.reply("", call(1))
    told.returned("c1", head=NOT_BEGUN, ok=False)
    page = page_of(theme, told.facts)
    page.section_amounts["open", 1, 0] = 1
    set_translations({}, {NOT_BEGUN: "Dieser Aufruf wurde nicht ausgeführt."})
    try:
        texts = [box.text for box in laid(page).boxes]
    finally:
        set_translations({})
    assert "Dieser Aufruf wurde nicht ausgeführt." in texts
