"""Finding in the chat: counts, steps, and marks."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from helix_desktop.engine.facts import ConversationStarted, Origin, Stored, ToolReturned
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import build_state
from helix_desktop.gui.transcript.transcript_pane import TranscriptPane
from tests.gui.transcript.conftest import MemorySource
from tests.gui.transcript.facts import Told, call

Settle = Callable[[], None]


def talk() -> Told:
    told = Told()
    for number in range(60):
        told.user(f"Message {number} about a needle." if number % 10 == 0 else f"Message {number}.")
        told.reply("Two: needle, Needle." if number == 30 else "Nothing here.", call(number))
        told.returned(f"c{number}")
    return told


def test_all_places_are_counted_and_stepped_through(pane: TranscriptPane, settle: Settle) -> None:
    pane.open_transcript(build_state(talk().facts))
    settle()
    pane.view.jump_to_end()
    QTest.keyClick(pane.view, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    assert pane.bar.isVisible()
    QTest.keyClicks(pane.bar.field, "needle")
    settle()
    assert pane.bar.counts.text().endswith("of 8")
    seen = []
    for _ in range(8):
        QTest.keyClick(pane.bar.field, Qt.Key.Key_Return)
        settle()
        finding = pane.view.finding
        assert finding is not None
        index = finding.places[finding.current]
        y = pane.view.verticalScrollBar().value()
        height = pane.view.viewport().height()
        assert index in list(pane.view.column.visible_items(y, height))
        seen.append(index)
    assert len(set(seen)) == 7
    assert not pane.view.scrolling.is_following_end
    QTest.keyClick(pane.bar.field, Qt.Key.Key_Escape)
    assert not pane.bar.isVisible()
    assert pane.view.finding is None


def test_what_a_search_of_the_workspace_found_is_marked_and_in_view(
    pane: TranscriptPane, settle: Settle
) -> None:
    told = talk()
    pane.open_transcript(build_state(told.facts))
    settle()
    seq = next(one.seq for one in told.facts if "Two: needle" in str(one.fact))
    for words, found in (("NEEDLE", "NEEDLE"), ("zebra two", "two"), ("zebra", "")):
        pane._close_find_bar()
        pane.scroll_to_fact(seq, words)
        settle()
        assert (pane.bar.field.text() if pane.bar.isVisible() else "") == found
        index = pane.view.items.item_of_fact(seq)
        y = pane.view.verticalScrollBar().value()
        height = pane.view.viewport().height()
        assert index in list(pane.view.column.visible_items(y, height))
        if found:
            assert pane.view.finding is not None
            assert pane.view.finding.places[pane.view.finding.current] == index


def test_the_place_that_somebody_was_led_to_has_a_line_beside_it(
    pane: TranscriptPane, settle: Settle
) -> None:
    told = talk()
    pane.open_transcript(build_state(told.facts))
    settle()
    accent = pane.view.theme.colour_of_token("accent").rgb()

    def marked_rows() -> list[int]:
        picture = pane.view.viewport().grab().toImage()
        x = pane.view.column_left - pane.view.theme.zoomed_pixels(13)
        return [y for y in range(picture.height()) if picture.pixel(x, y) == accent]

    assert marked_rows() == []
    pane.scroll_to_fact(told.facts[90].seq)
    settle()
    assert len(marked_rows()) >= 10
    pane.open_transcript(build_state(told.facts))
    settle()
    assert marked_rows() == []


def talk_with_outputs(source: MemorySource) -> Told:
    """Three outputs: a short one, one of which the fact holds only the beginning, and one
    without the text.
    """
    told = Told()
    told.user("Read them.")
    short = "plain\n" * 60 + "a needle\n"
    long = "head\n" + "x\n" * 200 + "the Needle\n"
    for number, (whole, head) in enumerate([(short, short), (long, "head\n"), ("no\n", "no\n")]):
        stored = Stored(Digest.of_content(whole.encode()), len(whole), whole.count("\n"))
        source.contents[stored.digest] = whole.encode()
        arguments = '{"path": "needle.txt", "because": "' + "it is long, " * 9 + 'a needle"}'
        told.reply("", call(number, "read_file", arguments if number == 1 else "{}"))
        told.add(ToolReturned(f"c{number}", stored, 9, ok=True, head=head))
        told.reply("Read.")
    told.user("Thanks. " * 300)
    return told


def shown_current_hit(pane: TranscriptPane) -> str:
    """The line of the current hit, if it is in sight."""
    finding = pane.view.finding
    assert finding is not None
    index = finding.places[finding.current]
    layout = pane.view.column.lay_out_fully(index)
    hits = layout.find_starts_and_lengths(finding.needle)
    start, length = hits[finding.current_hit_in_item(index, len(hits))]
    place = pane.view.rect_in_viewport(index, layout.caret_rect_at(start))
    assert pane.view.viewport().rect().contains(place.center().toPoint())
    box, _ = layout.nearest_box_and_inner_place(layout.caret_rect_at(start).center())
    return (
        f"{type(layout.boxes[box]).__name__} {layout.text_between_offsets(start, start + length)}"
    )


def test_collapsed_outputs_are_searched_and_the_one_with_the_hit_opens(
    pane: TranscriptPane, settle: Settle, source: MemorySource
) -> None:
    pane.open_transcript(build_state(talk_with_outputs(source).facts))
    settle()
    pane.open_find_bar()
    pane.bar.field.setText("needle")
    settle()
    assert pane.bar.counts.text().endswith("of 3"), "two outputs, and the line of the second call"
    finding = pane.view.finding
    assert finding is not None
    seen = []
    for _ in range(3):
        QTest.keyClick(pane.bar.field, Qt.Key.Key_Return)
        settle()
        seen.append(shown_current_hit(pane))
    assert sorted(seen) == ["CodeBox Needle", "CodeBox needle", "ToolCallBox needle"]
    calls = sorted(set(finding.places))
    assert [pane.view.column.is_output_open(index) for index in calls] == [True, True]
    pane.bar.field.setText("nothing like it")
    settle()
    assert [pane.view.column.is_output_open(index) for index in calls] == [False, False]


def test_an_output_that_is_gone_does_not_end_the_search(
    pane: TranscriptPane, settle: Settle, source: MemorySource
) -> None:
    told = talk_with_outputs(source)
    source.contents.clear()
    pane.open_transcript(build_state(told.facts))
    pane.open_find_bar()
    pane.bar.field.setText("needle")
    settle()
    assert pane.bar.counts.text() == "1 of 2"


def test_nothing_found_is_said(pane: TranscriptPane, settle: Settle) -> None:
    pane.open_transcript(build_state(talk().facts))
    pane.open_find_bar()
    QTest.keyClicks(pane.bar.field, "zebra")
    settle()
    assert pane.bar.counts.text() == "Nothing found"


def test_the_selected_words_are_what_is_looked_for(pane: TranscriptPane, settle: Settle) -> None:
    told = Told()
    told.user("one needle")
    pane.open_transcript(build_state(told.facts))
    settle()
    pane.view.select_all_text()
    pane.open_find_bar()
    assert pane.bar.field.text() == "one needle"


def test_the_end_is_offered_only_where_it_cannot_be_seen(
    pane: TranscriptPane, settle: Settle
) -> None:
    told = Told()
    told.user("Short.")
    pane.open_transcript(build_state(told.facts))
    settle()
    pane.view.scrolling.set_following_end(following=False)
    assert not pane._end.isVisible()
    pane.open_transcript(build_state(talk().facts))
    settle()
    assert not pane._end.isVisible()
    pane.view.scroll_to_item(0)
    assert pane._end.isVisible()
    pane.view.scroll_to_item(len(pane.view.items.all) - 1)
    settle()
    assert not pane._end.isVisible(), "it covered the last line, which was in sight"


def test_what_is_found_in_what_an_agent_added_is_opened(
    pane: TranscriptPane, settle: Settle
) -> None:
    """The defect: a hit was counted, and the line of the addition stayed closed."""
    told = Told()
    told.add(ConversationStarted("T", origin=Origin("claude-code", "s")))
    for words in ("The wind.", "The needle.", "The rain."):
        told.user(f"<system-reminder>\n{words}\n</system-reminder>")
    told.reply("Fine.")
    pane.open_transcript(build_state(told.facts))
    settle()
    pane.open_find_bar()
    for words, index in (("needle", 1), ("wind", 0)):
        QTest.keyClicks(pane.bar.field, words)
        settle()
        assert pane.bar.counts.text() == "1 of 1"
        assert words in " ".join(box.text for box in pane.view.column.lay_out_fully(index).boxes)
        y = pane.view.verticalScrollBar().value()
        height = pane.view.viewport().height()
        assert index in list(pane.view.column.visible_items(y, height))
        pane.bar.field.clear()


def test_what_is_found_in_the_first_call_of_a_group_opens_the_group(
    pane: TranscriptPane, settle: Settle
) -> None:
    """The defect: only hits in the others opened it."""
    told = Told()
    told.user("Read.")
    told.reply(
        "", *(call(number, "read_file", f'{{"path": "file{number}"}}') for number in range(4))
    )
    for number in range(4):
        told.returned(f"c{number}")
    pane.open_transcript(build_state(told.facts))
    settle()
    pane.view.scroll_to_item(1)
    group = pane.view.items.groups.group_headed_by(1)
    assert group is not None
    assert not group.opened, "who is only led there sees the line"
    pane.open_find_bar()
    QTest.keyClicks(pane.bar.field, "file0")
    settle()
    assert "file0" in " ".join(box.text for box in pane.view.column.lay_out_fully(1).boxes)
