"""What stands below the text of a summary."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPlainTextEdit, QPushButton

from helix_desktop.engine.facts import (
    ConversationStarted,
    Folded,
    FoldFailed,
    FoldKind,
    PartRef,
    Purpose,
    Rewound,
    Spent,
    Unfolded,
    Usage,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline import fold_panel
from helix_desktop.gui.timeline.conversation_timeline import ConversationTimeline, TimelineEvent
from helix_desktop.gui.timeline.fold_panel import (
    FoldPanel,
    ShownFold,
    _build_replaced_boxes,
)
from helix_desktop.gui.transcript.basic_boxes import LayoutBox, LinkAddress, ToggleSection
from helix_desktop.gui.transcript.call_and_fold_boxes import ToolCallBox
from helix_desktop.gui.transcript.chat_actions import OpenEntry, ShowInChat
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.tool_call_lines import CallStatus
from helix_desktop.gui.views import boxes_view
from tests.gui.timeline.conftest import Written


@pytest.fixture(autouse=True)
def _whole_document_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, a document would be laid out in several turns of the window."""
    monkeypatch.setattr(boxes_view, "SLICE_SECONDS", 60.0)


def test_the_details_of_a_summary_lead_to_the_text_that_holds_the_rest(
    theme: Theme, written: Written
) -> None:
    recorded = written.facts[-2]
    summary = recorded.fact
    assert isinstance(summary, Folded)
    stored = Digest.of_content(b"details")
    written.facts[-2] = replace(recorded, fact=replace(summary, entries=(stored,)))
    story = ConversationTimeline()
    story.read_all_facts(written.facts)
    shown = ShownFold(story.events[-1], earlier="")
    boxes = list(_build_replaced_boxes(shown, DrawingStyle(theme), 400.0))
    texts = [str(getattr(box, "text", "")) for box in boxes]
    assert any("Important details found: 42." in text for text in texts)
    assert stored.short_hex in texts


def test_the_reason_stands_first_and_an_undone_summary_says_what_may_still_be_shortened(
    theme: Theme, written: Written
) -> None:
    """After a summary was undone, another one was tried of later messages, and nothing said so."""
    story = ConversationTimeline()
    story.read_all_facts(written.facts)
    panel = FoldPanel(theme)
    panel.resize(500, 400)
    shown = ShownFold(story.events[-1], earlier="")
    panel.show_fold_document(shown)
    assert panel.document.all_text().startswith("Why it was shortened: ")
    assert "You undid this" not in panel.document.all_text()
    written.add(Unfolded("h2"))
    story.read_next_fact(written.facts[-1])
    panel.show_fold_document(shown)
    assert "Later messages can be." in panel.document.all_text()


# --- Which fold is shown, and what can be done with it


class Heard:
    """What a panel asks for."""

    def __init__(self, panel: FoldPanel) -> None:
        self.said: list[tuple[str, object]] = []
        for name in ("wanted", "undo_wanted", "redo_wanted"):
            getattr(panel, name).connect(partial(self._hear, name))
        panel.compare_wanted.connect(partial(self._hear, "compare", None))
        panel.before_after_wanted.connect(partial(self._hear, "before and after", None))
        panel.edited.connect(lambda fold, text: self._hear("edited", (fold, text)))

    def _hear(self, name: str, value: object = None) -> None:
        self.said.append((name, value))


def story_of(written: Written) -> ConversationTimeline:
    story = ConversationTimeline()
    story.read_all_facts(written.facts)
    return story


def shown_of(story: ConversationTimeline, index: int = -1, earlier: str = "") -> ShownFold:
    return ShownFold(story.events[index], earlier)


def opened(theme: Theme, shown: ShownFold | None = None) -> tuple[FoldPanel, Heard]:
    panel = FoldPanel(theme)
    panel.resize(500, 400)
    panel.show()
    if shown is not None:
        panel.show_fold_document(shown)
    return panel, Heard(panel)


def visible_buttons(panel: FoldPanel) -> list[str]:
    """From left to right."""
    buttons = [one for one in panel.findChildren(QPushButton) if one.isVisible()]
    buttons.sort(key=lambda one: one.mapTo(panel, QPoint()).x())
    return [one.text() for one in buttons]


def press(panel: FoldPanel, text: str) -> None:
    (button,) = [
        one for one in panel.findChildren(QPushButton) if one.text() == text and one.isVisible()
    ]
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def edit_text(panel: FoldPanel) -> str | None:
    """What stands in the editor, or None while the document is shown."""
    editor = panel.findChildren(QPlainTextEdit)[0]
    return editor.toPlainText() if editor.isVisible() else None


def test_an_empty_panel_says_what_it_is_for_and_offers_nothing(theme: Theme) -> None:
    panel, heard = opened(theme)
    assert panel._title.text() == "What was shortened"
    assert visible_buttons(panel) == []
    assert not panel._figures.isVisible()
    assert not panel._kept_details_label.isVisible()
    assert panel.document.all_text().startswith("Everything that was shortened is listed")
    panel._carry_out_document_action(ToggleSection(("before and after",)))
    panel._undo_or_redo_fold()
    panel._start_document_edit()
    assert (heard.said, edit_text(panel)) == ([], None)
    assert panel.minimumWidth() == 260


def test_the_panel_has_its_margins_and_the_text_takes_the_room_that_is_left(
    theme: Theme, written: Written
) -> None:
    panel, _ = opened(theme, shown_of(story_of(written), earlier="Compare with 1"))
    panel.resize(900, 600)
    QApplication.processEvents()
    assert panel._title.mapTo(panel, QPoint()).x() == 16
    head = panel._title.parentWidget()
    assert head is not None
    undo = panel.undo_button
    assert undo.mapTo(panel, QPoint(undo.width(), 0)).x() == 900 - 16
    assert min(panel._title.y(), undo.mapTo(panel, QPoint()).y()) == 14
    compare = panel._compare
    assert undo.x() - compare.x() - compare.width() == 8
    assert panel.document.mapTo(panel, QPoint()).x() == 0
    assert panel.document.height() > 400
    assert panel._figures.mapTo(panel, QPoint()).x() == 16
    press(panel, "Edit")
    QApplication.processEvents()
    (editor,) = panel.findChildren(QPlainTextEdit)
    assert editor.mapTo(panel, QPoint()).x() == 16
    assert editor.width() == 900 - 32
    save = next(one for one in panel.findChildren(QPushButton) if one.text() == "Save my changes")
    assert save.mapTo(panel, QPoint(save.width(), save.height())).toTuple() == (884, 600 - 14)
    assert editor.height() > 300


def test_a_summary_in_force_can_be_edited_compared_and_undone(
    theme: Theme, written: Written
) -> None:
    story = story_of(written)
    panel, heard = opened(theme, shown_of(story, earlier="Compare with 1"))
    assert visible_buttons(panel) == ["Edit", "Compare with 1", "Undo"]
    assert panel._figures.isVisible()
    assert panel._kept_details_label.isVisible()
    assert "\u00a0" in panel._figures.text()
    press(panel, "Compare with 1")
    press(panel, "Undo")
    assert heard.said == [("compare", None), ("undo_wanted", ["h2"])]
    written.add(Unfolded("h2"))
    story.read_next_fact(written.facts[-1])
    panel.show_fold_document(shown_of(story))
    assert visible_buttons(panel) == ["Redo"], "an undone one cannot be edited"
    press(panel, "Redo")
    assert heard.said[-1] == ("redo_wanted", ["h2"])


def test_the_start_of_a_conversation_has_neither_figures_nor_buttons(theme: Theme) -> None:
    written = Written()
    written.add(ConversationStarted("Extract"))
    written.step(1_000)
    story = story_of(written)
    start = ShownFold(TimelineEvent(story.history, 1, 0.0, 0), "")
    panel, _ = opened(theme, start)
    assert visible_buttons(panel) == []
    assert not panel._figures.isVisible()
    assert panel.document.all_text().startswith("The conversation starts here.")
    assert start.document_text == ""


# --- Editing


def test_a_text_is_edited_and_handed_on_once_if_it_is_another(
    theme: Theme, written: Written
) -> None:
    shown = shown_of(story_of(written))
    panel, heard = opened(theme, shown)
    press(panel, "Edit")
    assert edit_text(panel) == shown.document_text
    press(panel, "Save my changes")
    assert (edit_text(panel), heard.said) == (None, []), "nothing was changed"
    press(panel, "Edit")
    panel.findChildren(QPlainTextEdit)[0].setPlainText("  \n")
    save = next(one for one in panel.findChildren(QPushButton) if one.text() == "Save my changes")
    assert not save.isEnabled(), "a document without a word stands for nothing"
    panel.findChildren(QPlainTextEdit)[0].setPlainText("My words.")
    assert save.isEnabled()
    press(panel, "Save my changes")
    assert heard.said == [("edited", ("h2", "My words."))]
    assert edit_text(panel) is None


def test_an_edit_that_was_not_saved_comes_back_with_its_fold_until_it_is_cancelled(
    theme: Theme, written: Written
) -> None:
    story = story_of(written)
    newest, older = shown_of(story), shown_of(story, -2)
    panel, heard = opened(theme, newest)
    press(panel, "Edit")
    panel.findChildren(QPlainTextEdit)[0].setPlainText("Begun.")
    panel.show_fold_document(shown_of(story, earlier="Compare with 1"))
    assert edit_text(panel) == "Begun.", "the same fold was drawn again"
    panel.show_fold_document(older)
    assert edit_text(panel) is None
    panel.show_fold_document(newest)
    assert edit_text(panel) == "Begun."
    panel.clear_fold_panel()
    assert edit_text(panel) is None
    panel.show_fold_document(newest)
    assert edit_text(panel) == "Begun."
    press(panel, "Cancel")
    assert edit_text(panel) is None
    panel.show_fold_document(older)
    panel.show_fold_document(newest)
    assert (edit_text(panel), heard.said) == (None, [])


def test_an_undo_keeps_what_was_being_edited(theme: Theme, written: Written) -> None:
    story = story_of(written)
    panel, heard = opened(theme, shown_of(story))
    press(panel, "Edit")
    panel.findChildren(QPlainTextEdit)[0].setPlainText("Begun.")
    press(panel, "Undo")
    assert edit_text(panel) is None
    assert heard.said == [("undo_wanted", ["h2"])]
    panel.show_fold_document(shown_of(story, -2))
    panel.show_fold_document(shown_of(story))
    assert edit_text(panel) == "Begun."


def test_a_text_that_could_not_be_saved_is_in_the_editor_again(
    theme: Theme, written: Written
) -> None:
    story = story_of(written)
    newest, older = shown_of(story), shown_of(story, 1)
    panel, _ = opened(theme, newest)
    panel.restore_unsaved_text(newest.event, "Lost?")
    assert edit_text(panel) == "Lost?"
    panel.findChildren(QPlainTextEdit)[0].setPlainText("Written since.")
    panel.restore_unsaved_text(newest.event, "Lost?")
    assert edit_text(panel) == "Written since."
    other, _ = opened(theme, older)
    other.restore_unsaved_text(newest.event, "Lost?")
    assert edit_text(other) is None
    other.show_fold_document(newest)
    assert edit_text(other) == "Lost?"


# --- What is pressed in the document


def test_what_is_pressed_in_the_document_goes_where_it_belongs(
    theme: Theme, written: Written
) -> None:
    story = story_of(written)
    event = next(one for one in story.events if one.fold_kind is FoldKind.MARKER)
    panel, heard = opened(theme, ShownFold(event, ""))
    entry = OpenEntry(Digest.of_content(b"0"))
    press_in = panel._carry_out_document_action
    press_in(LinkAddress("helix-seq:7"))
    press_in(entry)
    press_in(LinkAddress("https://example.org"))
    press_in(ToggleSection(("before and after",)))
    press_in(ToggleSection(("fold", "m1")))
    press_in(ToggleSection(("other", "m1")))
    written.add(Unfolded("m1"))
    story.read_next_fact(written.facts[-1])
    press_in(ToggleSection(("fold", "m1")))
    assert heard.said == [
        ("wanted", ShowInChat(event.conversation, 7)),
        ("wanted", entry),
        ("wanted", LinkAddress("https://example.org")),
        ("before and after", None),
        ("undo_wanted", ["m1"]),
        ("redo_wanted", ["m1"]),
    ]


# --- The text


def boxes_of(theme: Theme, shown: ShownFold) -> list[LayoutBox]:
    panel = FoldPanel(theme)
    return list(panel._build_fold_boxes(shown, DrawingStyle(theme), 400.0))


def texts_of(boxes: list[LayoutBox]) -> list[str]:
    texts = []
    for box in boxes:
        actions = [spot.name for spot in box.hot_spots]
        texts.append(box.text or " ".join(actions))
    return texts


def markers(theme: Theme, written: Written) -> tuple[ConversationTimeline, TimelineEvent]:
    story = story_of(written)
    event = next(one for one in story.events if one.fold_kind is FoldKind.MARKER)
    assert len(event.current_folds) == 3
    return story, event


def test_each_output_of_several_has_its_own_undo_and_what_the_button_does_is_said(
    theme: Theme, written: Written
) -> None:
    story, event = markers(theme, written)
    boxes = boxes_of(theme, ShownFold(event, ""))
    lines = lines_of_calls(boxes)
    assert [line.line.outcome for line in lines] == ["Undo"] * 3
    assert [line.line.status for line in lines] == [CallStatus.CACHED] * 3
    assert [line.gap for line in lines] == [6, 6, 6]
    assert "brings back all of these outputs" in " ".join(texts_of(boxes))
    written.add(Unfolded("m1"))
    story.read_next_fact(written.facts[-1])
    lines = lines_of_calls(boxes_of(theme, ShownFold(event, "")))
    assert [line.line.outcome for line in lines] == ["Undo", "Redo", "Undo"]
    assert lines[1].line.status is CallStatus.DONE


def lines_of_calls(boxes: list[LayoutBox]) -> list[ToolCallBox]:
    return [box for box in boxes if isinstance(box, ToolCallBox)]


def test_the_only_output_has_no_words_at_its_right(theme: Theme, written: Written) -> None:
    written.step(50_000)
    seq = written.output(7)
    digest = Digest.of_content(b"7")
    for _ in range(3):
        written.step(24_000)
    written.add(
        Folded("e7", FoldKind.EXCERPT, PartRef(seq), f"kept {digest.hex}", 30, 5_000, "", (digest,))
    )
    shown = shown_of(story_of(written))
    boxes = boxes_of(theme, shown)
    (line,) = [box for box in boxes if isinstance(box, ToolCallBox)]
    assert (line.line.outcome, line.gap) == ("", 0)
    texts = texts_of(boxes)
    assert not any("brings back all" in text for text in texts)
    at = texts.index("What the model sees")
    assert texts[at + 1] == f"kept {digest.hex}"
    assert texts[at + 2 :] == [
        "Replaced outputs",
        "1 output, still in the cache.",
        "Compare what the model saw before and after",
    ]


def test_an_excerpt_that_was_undone_is_not_what_the_model_sees(
    theme: Theme, written: Written
) -> None:
    seq = written.output(7)
    digest = Digest.of_content(b"7")
    written.add(Folded("e7", FoldKind.EXCERPT, PartRef(seq), "kept", 30, 5_000, "", (digest,)))
    written.add(Unfolded("e7"))
    texts = texts_of(boxes_of(theme, shown_of(story_of(written))))
    assert "What the model saw" in texts
    assert "What the model sees" not in texts


def test_what_the_model_sees_is_shown_word_for_word(theme: Theme, written: Written) -> None:
    """The hash was cut to eight of its digits, and the model gets all of them."""
    seq = written.output(7)
    digest = Digest.of_content(b"7")
    text = f'[EXCERPT; the whole: recall_cached_content("{digest.hex}")]'
    written.add(Folded("e7", FoldKind.EXCERPT, PartRef(seq), text, 30, 5_000, "", (digest,)))
    assert text in texts_of(boxes_of(theme, shown_of(story_of(written))))


def test_only_so_many_outputs_are_drawn(
    theme: Theme, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, event = markers(theme, written)
    for most in (1, 2, 3):
        monkeypatch.setattr(fold_panel, "MOST_OUTPUT_BOXES", most)
        boxes = boxes_of(theme, ShownFold(event, ""))
        assert sum(isinstance(box, ToolCallBox) for box in boxes) == most


def test_a_batch_says_how_many_outputs_it_replaced(theme: Theme, written: Written) -> None:
    _, event = markers(theme, written)
    texts = texts_of(boxes_of(theme, ShownFold(event, "")))
    assert texts[-3:] == [
        "Replaced outputs",
        "3 outputs, all still in the cache.",
        "Compare what the model saw before and after",
    ]


def test_a_summary_says_how_many_messages_it_replaced_and_what_it_invented(
    theme: Theme, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = replace(shown_of(story_of(written)), unknown_names=("one.py", "two.py", "three.py"))
    monkeypatch.setattr(fold_panel, "MOST_UNKNOWN_NAMES", 2)
    texts = texts_of(boxes_of(theme, shown))
    at = texts.index("In the summary, but not in the messages that it replaces")
    assert texts[at + 1].split("\u2028") == ["• one.py", "• two.py"]
    assert texts[at + 2] == "Details"
    assert texts[-3] == "Replaced messages"
    assert texts[-2].endswith("messages, all still in the history.")
    without = texts_of(boxes_of(theme, shown_of(story_of(written))))
    assert not any("but not in the messages" in text for text in without)


def document(theme: Theme, text: str) -> list[tuple[str, float]]:
    boxes = fold_panel._build_document_boxes(text, DrawingStyle(theme), 400.0)
    return [(box.text, box.gap) for box in boxes]


def test_a_document_is_shown_without_what_is_for_the_model(theme: Theme) -> None:
    digest = Digest.of_content(b"source")
    with_headings = document(theme, f"[For the model.]\n\n## State\n\nDone, see {digest.hex}.\n")
    texts = [text for text, _ in with_headings]
    assert with_headings[0] == ("State", 12)
    assert not any("For the model" in text for text in texts)
    assert texts[1].startswith("Done, see ")
    assert with_headings[-1] == (digest.short_hex, 4)
    assert [text for text, _ in document(theme, "[For the model.]\nPlain words.")] == [
        "Plain words."
    ]
    assert [text for text, _ in document(theme, "Plain words.\nMore.")] != []
    assert fold_panel._without_line_for_model("Plain [words].\nMore.") == "Plain [words].\nMore."
    assert fold_panel._without_line_for_model("[only this]") == ""


def test_a_reason_is_quoted_up_to_a_limit(theme: Theme, written: Written) -> None:
    recorded = written.facts[-2]
    summary = recorded.fact
    assert isinstance(summary, Folded)
    written.facts[-2] = replace(recorded, fact=replace(summary, why="x" * 2_000))
    first = texts_of(boxes_of(theme, shown_of(story_of(written))))[0]
    assert first.startswith("Why it was shortened: ")
    assert len(first) == len("Why it was shortened: ") + 1_000


def test_what_a_rewind_left_behind_says_so_and_offers_nothing(
    theme: Theme, written: Written
) -> None:
    written.add(Rewound(5))
    story = story_of(written)
    event = next(one for one in story.events if one.fold_kind is FoldKind.HANDOVER)
    assert event.is_left_behind
    shown = ShownFold(event, "")
    assert shown.folds_to_undo_or_redo() == []
    texts = texts_of(boxes_of(theme, shown))
    assert any("no longer part of the conversation" in text for text in texts)
    assert not any("You undid this" in text for text in texts)
    panel, _ = opened(theme, shown)
    assert visible_buttons(panel) == []


def test_a_failed_attempt_says_why_what_is_sent_and_what_it_took(
    theme: Theme, written: Written
) -> None:
    written.add(Spent(Purpose.HANDOVER, "main", Usage(input=33_000, output=47, cost=0.0284)))
    written.add(FoldFailed(FoldKind.HANDOVER, "main, using notes: The reply was not a summary"))
    texts = texts_of(boxes_of(theme, shown_of(story_of(written))))
    assert texts == [
        "The reply was not a summary. main was asked to write it.",
        "What the model sees did not change.",
        "The attempt took $0.028.",
    ]


def test_a_rewind_says_that_one_can_return(theme: Theme, written: Written) -> None:
    left = len(written.facts)
    written.add(Rewound(8))
    panel, _heard = opened(theme, shown_of(story_of(written)))
    assert visible_buttons(panel) == []
    (words,) = texts_of(boxes_of(theme, shown_of(story_of(written))))
    assert words.endswith("the chat offers to return to it.")
    written.add(Rewound(left))
    (words,) = texts_of(boxes_of(theme, shown_of(story_of(written))))
    assert words.endswith("continues from messages that an earlier rewind left behind.")
