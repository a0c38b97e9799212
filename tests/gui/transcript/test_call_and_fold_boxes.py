"""The lines of calls, folds and sub-agents, and what they open to."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QImage, QPainter

from helix_desktop.engine.facts import (
    Folded,
    FoldFailed,
    FoldKind,
    PartRef,
    Stored,
    Text,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Unfolded,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import ActionLineBox, TextBox, ToggleSection
from helix_desktop.gui.transcript.call_and_fold_boxes import (
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
from helix_desktop.gui.transcript.code_box import CodeBox
from helix_desktop.gui.transcript.drawing_style import DrawingStyle, TextMarks
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from tests.gui.transcript.facts import OUTPUT, Told, call
from tests.gui.transcript.laid_out_items import NoContents, kinds, laid, page_of


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
    assert kinds(made) == [ToolCallBox, CodeBox]
    assert made.boxes[1].text.replace("\N{LINE SEPARATOR}", "\n") == "one\ntwo"


def test_an_opened_call_leads_to_its_excerpt_before_the_output(theme: Theme) -> None:
    """The tour promised an excerpt, and below the opened call stood 1,500 lines first."""
    told = Told()
    told.reply("", call(1))
    told.returned("c1")
    told.add(Folded("e", FoldKind.EXCERPT, PartRef(2), "short", 2, 900))
    page = page_of(theme, told.facts)
    page.section_amounts["open", 1, 0] = 1
    made = laid(page)
    assert kinds(made) == [ToolCallBox, ActionLineBox, CodeBox]
    (link,) = made.boxes[1].hot_spots
    assert link.act == OpenFold("e")
    told.add(Unfolded("e"))
    page = page_of(theme, told.facts)
    page.section_amounts["open", 1, 0] = 1
    assert kinds(laid(page)) == [ToolCallBox, CodeBox]


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


@pytest.mark.parametrize(("lines", "has_link"), [(1, False), (40, False), (41, True)])
def test_only_an_output_that_is_not_shown_whole_leads_to_the_cache(
    theme: Theme, lines: int, *, has_link: bool
) -> None:
    """Below an output of three bytes stood “Open the full output in the cache (3 B)”."""
    output = "b5\n" * lines
    told = Told()
    told.reply("", call(1))
    stored = Stored(Digest.of_content(output.encode()), len(output), lines)
    told.add(ToolReturned("c1", stored, 3, head=output))
    page = page_of(theme, told.facts)
    page.section_amounts["open", 1, 0] = 1
    acts = [spot.act for box in laid(page).boxes for spot in box.hot_spots]
    assert (OpenEntry(stored.digest) in acts) is has_link


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
    assert (
        box.text
        == "Older messages became a summary: 9K → 900 tokens. What was replaced stays here."
    )
    assert box.hot_spots[0].act == OpenFold("h")


def test_a_line_counts_only_the_outputs_that_are_still_short(theme: Theme) -> None:
    """After one of nine outputs was put back, the chat went on saying nine."""
    told = Told()
    for number in range(3):
        told.reply("", call(number))
        told.returned(f"c{number}", head="one\ntwo")
    outputs = [each.seq for each in told.facts if isinstance(each.fact, ToolReturned)]
    for seq in outputs:
        name = f"m{seq}"
        told.add(Folded(name, FoldKind.MARKER, PartRef(seq), "[CACHED]", 2, 900, batch="batch"))
    line = len(page_of(theme, told.facts).items.all) - 1
    assert "3 older outputs" in laid(page_of(theme, told.facts), line).boxes[0].text
    told.add(Unfolded(f"m{outputs[0]}"))
    words = laid(page_of(theme, told.facts), line).boxes[0].text
    assert "2 older outputs" in words
    assert "1.8K → 4 tokens" in words


def test_a_failed_fold_says_one_reason_and_can_be_tried_again(theme: Theme) -> None:
    told = Told()
    told.add(
        FoldFailed(FoldKind.HANDOVER, "a/m: it said no.; b/m: the text was too long; c: broken.")
    )
    (box,) = laid(page_of(theme, told.facts)).boxes
    assert box.text == "No summary was written, and nothing is lost. Summary: a/m: it said no."
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


def test_a_line_that_opens_a_section_ends_with_an_ellipsis_where_the_column_ends(
    theme: Theme,
) -> None:
    """Seen: "Claude Code added: …, remote sessio" was cut in the middle of a word."""
    words = "Claude Code added: file ×4, task status, environment, model, remote session"
    box = ExpandableHeaderBox(
        DrawingStyle(theme), 200.0, words, ToggleSection(("any",)), opened=False
    )
    image = QImage(300, 30, QImage.Format.Format_ARGB32)
    image.fill(0)
    with QPainter(image) as painter:
        box.draw_box(painter, TextMarks(), near=False)
    assert any(image.pixel(x, y) for x in range(170, 200) for y in range(20))
    assert not any(image.pixel(x, y) for x in range(201, 300) for y in range(20))
    assert (box._words.endswith("…"), box.text, box.hot_spots[0].name) == (True, words, words)


def test_the_figure_of_a_fold_stays_whole_where_its_words_find_no_room(theme: Theme) -> None:
    """In German at 200 %, a summary's line ended with “98,9K → 8,6…”."""
    words = "Ältere Nachrichten wurden zu einer Zusammenfassung: 98,9K → 8,6K Tokens. Das Ersetzte bleibt hier."
    act = ToggleSection(("any",))
    narrow = FoldLineBox(DrawingStyle(theme), 420.0, words, "Anzeigen", act, undone=True)
    assert narrow.shown_words.startswith("Ältere Nach")
    assert narrow.shown_words.endswith(": 98,9K → 8,6K Tokens")
    # The sentence that explains it goes first.
    medium = FoldLineBox(DrawingStyle(theme), 680.0, words, "Anzeigen", act)
    assert medium.shown_words == words.partition(". ")[0]
    wide = FoldLineBox(DrawingStyle(theme), 1200.0, words, "Anzeigen", act)
    assert wide.shown_words == words
