"""The timeline by mouse and keyboard: read a fold, follow its sources, take it back,
compare, edit, fold now.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QApplication, QDialogButtonBox, QMessageBox, QPushButton, QScrollArea

from helix_desktop.engine.context_policy import preset_policy
from helix_desktop.engine.facts import (
    ConversationStarted,
    DocumentEdited,
    FoldKind,
    Forgotten,
    ModelReplied,
    ModelRole,
    ModelSet,
    Recorded,
    Rewound,
    Stop,
    Unfolded,
    Usage,
)
from helix_desktop.engine.facts import Text as FactText
from helix_desktop.engine.list_rows import ConversationListRow as Row
from helix_desktop.engine.request_costs import explain_requests
from helix_desktop.engine.session_events import FactAppended, MeterChanged
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import StoreFull
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline import timeline_page
from helix_desktop.gui.timeline.fold_list import (
    FIGURES_LINE,
    ROW,
    SEPARATOR,
    TEXT_LEFT,
    TEXT_RIGHT,
    wrap_figures,
)
from helix_desktop.gui.timeline.fold_now_dialog import FoldNowDialog
from helix_desktop.gui.timeline.fold_panel import _build_document_boxes
from helix_desktop.gui.timeline.fold_sentences import describe_event_briefly
from helix_desktop.gui.timeline.timeline_chart import LEGEND
from helix_desktop.gui.timeline.timeline_page import TimelinePage
from helix_desktop.gui.transcript.basic_boxes import LinkAddress, ToggleSection
from helix_desktop.gui.transcript.chat_actions import (
    AskToFold,
    ChatIntent,
    ConversationAct,
    OpenEntry,
    ShowInChat,
)
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.views.text_comparison import TextComparisonDialog
from tests.gui.fake_catalogue import FakeCatalogue
from tests.gui.fake_desk import FakeSession, FakeWorkbench, Held, now
from tests.gui.timeline.conftest import HASH, Written

Settle = Callable[[], None]
LEFT = Qt.MouseButton.LeftButton


class Editable(FakeSession):
    chosen: ModelSet | None = None

    @property
    def expected_state(self) -> ConversationState:
        """What was chosen for the next request, and is recorded only when it is sent."""
        if self.chosen is None:
            return self.state
        chosen = Recorded(self.id, 0, 0.0, self.chosen)
        return self.state.with_settings(self.state.settings.settings_after(chosen))

    async def edit_fold_text(self, fold: str, text: str) -> None:
        self.append(DocumentEdited(fold, text, 3))


@pytest.fixture
def page(theme: Theme, written: Written, settle: Settle) -> Iterator[tuple[TimelinePage, Editable]]:
    made = TimelinePage(theme, BackgroundRunner(now))
    made.resize(1130, 800)
    made.show()
    session = Editable("c", written.facts)
    session.subscribe_to_events(lambda event: made.update_timeline_from_events([event]))
    made.show_timeline_of(session)
    settle()
    yield made, session
    made.close()


Page = tuple[TimelinePage, Editable]


def test_in_a_low_page_the_chart_leaves_room_for_the_rows_and_the_document(
    page: Page, theme: Theme, settle: Settle
) -> None:
    """In a window of 900x600 it had nearly the whole height, and the document one line."""
    made, _ = page
    made.resize(590, 540)
    settle()
    assert made._lower.height() > 200
    assert made.chart.height() < 0.5 * made.height()
    assert made.chart._plot_area.height() >= theme.zoomed_pixels(90)
    made.resize(1130, 900)
    settle()
    assert made.chart.height() > 380


@pytest.mark.parametrize(("width", "height"), [(590, 540), (640, 500), (850, 540)])
def test_in_a_low_page_the_list_of_a_long_conversation_scrolls_and_the_page_does_not(
    page: Page, written: Written, settle: Settle, width: int, height: int
) -> None:
    """In a window of 900x600 two scroll bars stood inside each other."""
    made, _ = page
    for number in range(3, 60):
        written.handover(number)
    made.show_timeline_of(Editable("c", written.facts))
    made.resize(width, height)
    settle()
    (scrolled_page,) = made.findChildren(QScrollArea)
    assert made.list.verticalScrollBar().maximum() > 0
    assert scrolled_page.verticalScrollBar().maximum() == 0
    assert made.panel.document.height() >= 60


def test_the_editor_of_a_document_has_room_for_its_buttons_in_a_low_page(
    page: Page, settle: Settle
) -> None:
    made, _ = page
    made.resize(590, 470)
    settle()
    made.panel._edit.click()
    settle()
    for button in made.panel._edit_page.findChildren(QPushButton):
        assert button.height() >= button.minimumSizeHint().height()
        assert made.panel.rect().contains(QRect(button.mapTo(made.panel, QPoint()), button.size()))
    assert made.panel._editor.height() >= 60


@pytest.mark.parametrize(
    ("zoom", "width", "height"), [(1.0, 670, 500), (2.0, 590, 470), (3.0, 970, 730)]
)
def test_with_large_text_nothing_is_cut_and_the_rest_can_be_scrolled_to(
    page: Page, theme: Theme, settle: Settle, zoom: float, width: int, height: int
) -> None:
    made, _ = page
    theme.set_zoom(zoom)
    made.resize(width, height)
    settle()
    panel = made.panel
    buttons = panel._edit, panel._compare, panel.undo_button
    assert all(button.isVisible() for button in buttons)
    for widget in (*buttons, panel._title, panel._figures):
        assert widget.height() >= widget.minimumSizeHint().height()
        assert panel.rect().contains(QRect(widget.mapTo(panel, QPoint()), widget.size()))
    assert all(button.width() >= button.sizeHint().width() for button in buttons)
    assert panel._figures.height() >= panel._figures.heightForWidth(panel._figures.width())
    assert made.list.viewport().width() >= theme.zoomed_pixels(180)
    assert made.chart._plot_area.height() >= theme.zoomed_pixels(40)


def test_the_buttons_of_a_fold_move_to_the_next_line_together(page: Page, settle: Settle) -> None:
    made, _ = page
    panel = made.panel
    lines: set[int] = set()
    buttons = panel._edit, panel._compare, panel.undo_button
    for width in range(1130, 760, -30):
        made.resize(width, 800)
        settle()
        below = {button.mapTo(panel, QPoint()).y() for button in buttons}
        assert len(below) == 1, width
        lines |= below
    assert len(lines) > 1, "there is a width at which they have moved"


def dialogs(
    kind: type[TextComparisonDialog | FoldNowDialog],
) -> list[TextComparisonDialog | FoldNowDialog]:
    return [w for w in QApplication.topLevelWidgets() if isinstance(w, kind) and w.isVisible()]


def click(page: TimelinePage, kind: type, name: str, number: int = 0) -> None:
    """Click a place of the document by its name, the first or another one so called."""
    view = page.panel.document
    stack = view._stack
    named = [
        s
        for s in stack.list_hot_spots()
        if isinstance(stack.hot_spot_and_rect(s)[0].act, kind)
        and name in stack.hot_spot_and_rect(s)[0].name
    ]
    spot = named[number]
    place = stack.hot_spot_and_rect(spot)[1].center().toPoint()
    view.verticalScrollBar().setValue(max(0, place.y() - 100))
    QTest.mouseClick(view.viewport(), LEFT, pos=place - QPoint(0, view.verticalScrollBar().value()))


def shown_words(page: TimelinePage) -> str:
    return "\n".join(box.text for box in page.panel.document._stack.boxes)


def acts_of(page: TimelinePage) -> list[object]:
    stack = page.panel.document._stack
    return [stack.hot_spot_and_rect(spot)[0].act for spot in stack.list_hot_spots()]


def test_the_chosen_fold_stays_in_sight_where_the_list_becomes_small(
    page: Page, settle: Settle
) -> None:
    made, _ = page
    made.list.setCurrentIndex(made.list.rows.index(made.list.rows.rowCount() - 1))
    made.resize(600, 620)  # narrow and taller than wide: the list stands above the fold
    settle()
    place = made.list.visualRect(made.list.currentIndex())
    assert made.list.viewport().height() < made.list.rows.rowCount() * place.height()
    assert made.list.viewport().rect().contains(place)


def test_the_newest_fold_is_shown(page: Page) -> None:
    timeline, _ = page
    assert timeline.panel._title._words == "Summary 2"
    assert timeline.panel._compare.text() == "Compare with summary 1"
    text = timeline.panel.document.all_text()
    assert "Project Background" in text
    assert "Important details found: 42" in text
    rows = [
        str(timeline.list.rows.data(timeline.list.rows.index(i))).split(",")[0] for i in range(4)
    ]
    assert rows == [
        "Summary 2",
        "Summary 1",
        "Reduced 3 tool outputs to one line each",
        "Conversation started",
    ]


def test_the_list_and_the_chart_choose_the_same(page: Page, settle: Settle) -> None:
    timeline, _ = page
    timeline.list.setFocus()
    QTest.keyClick(timeline.list, Qt.Key.Key_Down)
    assert timeline.panel._title._words == "Summary 1"
    assert timeline.chart._selected is timeline.timeline.events[2]
    timeline.choose_fold("m1")
    assert timeline.list.currentIndex().row() == 2
    assert timeline.panel._title._words == "Reduced 3 tool outputs to one line each"


def test_sources_lead_into_the_chat_and_to_entries(page: Page) -> None:
    timeline, _ = page
    wanted: list[ChatIntent] = []
    timeline.intent_wanted.connect(wanted.append)
    click(timeline, LinkAddress, "7")
    click(timeline, OpenEntry, Digest.from_hex(HASH).short_hex)
    assert wanted == [ShowInChat("c", 7), OpenEntry(Digest.from_hex(HASH))]


def test_undo_one_of_a_batch_and_all_of_it(page: Page, settle: Settle) -> None:
    timeline, session = page
    timeline.choose_fold("m0")
    settle()
    assert (
        "The button “Undo” brings back all of these outputs, “Undo” beside an output only that one."
        in (shown_words(timeline))
    )
    click(timeline, ToggleSection, "Undo", 1)
    assert session.done == ["undo m1"]
    session.append(Unfolded("m1"))
    settle()
    timeline.panel.undo_button.setFocus()
    QTest.mouseClick(timeline.panel.undo_button, LEFT)
    assert session.done[1:] == ["undo m0", "undo m1", "undo m2"]
    # Return, pressed once more, took the undo back.
    assert timeline.window().focusWidget() is timeline.panel.document
    # The sentence explained “Undo” where both buttons said “Redo”.
    for fold in ("m0", "m2"):
        session.append(Unfolded(fold))
    settle()
    assert timeline.panel.undo_button.text() == "Redo"
    assert (
        "The button “Redo” shortens all of these outputs again, “Redo” beside an output only that one."
        in (shown_words(timeline))
    )
    assert "“Undo”" not in shown_words(timeline)


def test_what_was_forgotten_cannot_be_restored(page: Page, settle: Settle) -> None:
    timeline, session = page
    timeline.choose_fold("m0")
    gone = [Digest.of_content(b"%d" % number) for number in range(3)]
    session.append(Forgotten((gone[1],), 1))
    settle()
    shown = shown_words(timeline)
    assert "1 output was permanently removed." in shown
    assert "2 outputs, all still in the cache." in shown
    restored = [act for act in acts_of(timeline) if isinstance(act, ToggleSection)]
    assert [act.key for act in restored[:2]] == [("fold", "m0"), ("fold", "m2")]
    QTest.mouseClick(timeline.panel.undo_button, LEFT)
    assert session.done == ["undo m0", "undo m2"]
    session.append(Forgotten((gone[0], gone[2]), 1))
    settle()
    assert timeline.panel.undo_button.isHidden()
    assert "still in the cache" not in shown_words(timeline)
    assert ("fold", "m0") not in [
        act.key for act in acts_of(timeline) if isinstance(act, ToggleSection)
    ]


def test_a_rewind_to_before_a_fold_leaves_nothing_to_redo(page: Page, settle: Settle) -> None:
    made, session = page
    batch = made.timeline.events[1]
    assert len(batch.made_folds) > 1
    made._choose_event(batch)
    assert made.panel.undo_button.isVisible()
    session.append(Rewound(5))
    settle()
    assert not made.panel.undo_button.isVisible()
    assert "no longer part of the conversation" in shown_words(made)
    assert not [
        act for act in acts_of(made) if isinstance(act, ToggleSection) and act.key[0] == "fold"
    ]
    rewind, newest_fold = (str(made.list.rows.data(made.list.rows.index(row))) for row in (0, 1))
    assert rewind.startswith("Rewound to an earlier message")
    assert newest_fold.endswith("no longer part of this conversation")


def test_an_undone_fold_can_be_redone(page: Page, settle: Settle) -> None:
    timeline, session = page
    session.append(Unfolded("h2"))
    settle()
    assert timeline.panel.undo_button.text() == "Redo"
    QTest.mouseClick(timeline.panel.undo_button, LEFT)
    assert session.done == ["redo h2"]


def test_two_handovers_are_compared_by_section(page: Page, settle: Settle) -> None:
    timeline, _ = page
    QTest.mouseClick(timeline.panel._compare, LEFT)
    settle()
    (dialog,) = dialogs(TextComparisonDialog)
    assert isinstance(dialog, TextComparisonDialog)
    assert any("12 call sites" in line.text for line in dialog.view.shown_lines)
    assert "only on the left" in dialog._result_label.text()


def test_what_the_model_saw_before_and_after(page: Page, settle: Settle) -> None:
    timeline, session = page
    timeline.show_timeline_of(
        session, FakeWorkbench("one", "#0d7d74", Path("/one"), [Row("c", "", 1.0)])
    )
    settle()
    click(timeline, ToggleSection, "before and after")
    settle()
    (dialog,) = dialogs(TextComparisonDialog)
    assert isinstance(dialog, TextComparisonDialog)
    event = timeline.timeline.find_event_of_fold("h2")
    assert event is not None
    before, after = (session.state.past_moment(seq) for seq in (event.seq - 1, event.seq))
    was = before.counted_tokens
    now_is = after.counted_tokens
    assert dialog.titles[0].text().endswith(f" · {format_token_count(was)}")
    assert dialog.titles[1].text().endswith(f" · {format_token_count(now_is)} ({now_is - was:+,})")
    added = "\n".join(line.text for line in dialog.view.shown_lines if line.mark == "+")
    removed = "\n".join(line.text for line in dialog.view.shown_lines if line.mark == "-")
    assert "re-enters the shard [7]" in added
    assert removed
    assert "re-enters the shard [7]" not in removed
    assert after.get_view().blocks != before.get_view().blocks


def test_a_document_is_edited_by_hand_as_a_fact(page: Page, settle: Settle) -> None:
    timeline, session = page
    QTest.mouseClick(timeline.panel._edit, LEFT)
    editor = timeline.panel._editor
    assert editor.toPlainText() == timeline.timeline.events[-1].current_folds[0].text
    (save,) = [
        each
        for each in timeline.panel.findChildren(QPushButton)
        if each.text() == "Save my changes"
    ]
    editor.setPlainText(" \n")
    assert not save.isEnabled(), "it closed the editor as if an empty text had been saved"
    editor.setPlainText("## User Preferences\nAlways ask.")
    assert save.isEnabled()
    timeline.panel._save_document_edit()
    settle()
    fact = session.state.facts[-1].fact
    assert fact == DocumentEdited("h2", "## User Preferences\nAlways ask.", 3)
    assert "Always ask." in timeline.panel.document.all_text()


def test_a_wording_that_finds_no_room_is_not_lost(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_fold: str, _text: str) -> None:
        raise StoreFull("The journal could not be written: the disk is full.")

    timeline, session = page
    told = QSignalSpy(timeline._doing.failed)
    monkeypatch.setattr(session, "edit_fold_text", full)
    QTest.mouseClick(timeline.panel._edit, LEFT)
    timeline.panel._editor.setPlainText("An hour of work.")
    timeline.panel._save_document_edit()
    assert told.count() == 1
    assert timeline.panel._stack.currentIndex() == 1
    assert timeline.panel._editor.toPlainText() == "An hour of work."


def test_a_wording_that_is_left_open_is_there_again(page: Page) -> None:
    timeline, _ = page
    panel = timeline.panel
    events = timeline.timeline.events
    QTest.mouseClick(panel._edit, LEFT)
    panel._editor.setPlainText("half a sentence")
    timeline._choose_event(events[0])
    assert panel._stack.currentIndex() == 0
    timeline._choose_event(events[-1])
    assert panel._stack.currentIndex() == 1
    assert panel._editor.toPlainText() == "half a sentence"
    panel._discard_document_edit()  # Cancel
    timeline._choose_event(events[0])
    timeline._choose_event(events[-1])
    assert panel._stack.currentIndex() == 0


def test_hand_over_now_with_a_wish(page: Page, settle: Settle) -> None:
    timeline, session = page
    wanted: list[object] = []
    timeline.intent_wanted.connect(wanted.append)
    next(
        act for act in timeline.menu_button.menu().actions() if act.text() == "Shorten now…"
    ).trigger()
    assert wanted == [AskToFold(FoldKind.HANDOVER)]
    dialog = FoldNowDialog(session, timeline._doing, timeline)
    dialog.show()
    QTest.keyClicks(dialog.wish, "keep the API decisions")
    buttons = dialog.findChild(QDialogButtonBox)
    assert buttons is not None
    QTest.mouseClick(buttons.buttons()[0], LEFT)
    assert session.done == [f"fold {FoldKind.HANDOVER}"]


def test_bars_show_what_each_request_cost_and_why(page: Page, settle: Settle) -> None:
    timeline, session = page
    requests = explain_requests(session.conversation.state.facts, lambda _: None)
    dearest = max(requests, key=lambda one: one.cost)
    point = bisect_left(timeline.timeline.seqs, dearest.seq)
    before = timeline.chart.grab().toImage()
    said = timeline.chart.describe_point(point)
    timeline._costs_action.trigger()
    settle()
    parts = timeline.chart._bars.describe_costs(point).splitlines()
    assert parts[0] == f"{format_dollars(dearest.cost)} for this request"
    assert any(line.startswith("new content: $") for line in parts)
    assert timeline.chart.grab().toImage() != before
    shown = timeline.chart.grab().toImage()
    row = round(timeline.chart._theme.zoomed_pixels(LEGEND) * 1.5)
    legend = {shown.pixelColor(x, row).name() for x in range(shown.width())}
    named = timeline.chart._bars.names_and_colours_of_parts()
    assert [name for name, _ in named] == [
        "read from the cache",
        "new content",
        "written again",
        "reply",
    ]
    assert {timeline.chart._theme.colour_of_token(colour).name() for _, colour in named} <= legend
    timeline._costs_action.trigger()
    settle()
    assert timeline.chart.describe_point(point) == said
    assert timeline.chart.grab().toImage() == before


def test_kinds_are_filtered(page: Page) -> None:
    timeline, _ = page
    timeline._show_fold_kinds("Stored outputs", frozenset({FoldKind.MARKER}))
    assert timeline.menu_button.text() == "Stored outputs ▾"
    assert timeline.list.rows.rowCount() == 1
    timeline._show_fold_kinds("All kinds", frozenset())
    assert timeline.list.rows.rowCount() == 4


class Bench:
    def __init__(self, facts: list[Recorded]) -> None:
        self.facts = facts
        self.contents = FakeCatalogue().cache

    def list_conversations(self) -> list[FakeSession]:
        return [FakeSession("c"), FakeSession("other")]

    async def read_conversation_facts(self, conversation: str) -> list[Recorded]:
        return self.facts


def test_folds_of_the_whole_workspace(page: Page, written: Written, settle: Settle) -> None:
    timeline, session = page
    timeline.show_timeline_of(session, Bench(written.facts))  # type: ignore[arg-type]
    settle()
    timeline._show_timeline_scope(everywhere=True)
    settle()
    assert timeline.list.rows.rowCount() == 8


def test_what_happens_while_it_is_hidden_is_there_when_it_is_shown(
    page: Page, written: Written, settle: Settle
) -> None:
    timeline, _ = page
    timeline.window().hide()
    described = timeline.chart.accessibleDescription()
    written.handover(3)
    timeline.update_timeline_from_events([FactAppended(written.facts[-1])])
    assert timeline.list.rows.rowCount() == 4
    assert timeline.chart.accessibleDescription() == described, "nobody looks at it"
    timeline.window().show()
    settle()
    assert timeline.list.rows.rowCount() == 5
    assert timeline.chart.accessibleDescription() != described


def test_a_step_alone_adds_to_the_chart_and_leaves_the_list(
    page: Page, written: Written, settle: Settle
) -> None:
    timeline, session = page
    filled = QSignalSpy(timeline.list.rows.modelReset)
    points = len(timeline.timeline.points)
    requests_before = [event.saved.requests for event in timeline.timeline.folded_events]
    written.step(31_000)
    session.append(written.facts[-1].fact)
    settle()
    assert len(timeline.timeline.points) == points + 1
    assert filled.count() == 0
    requests_after = [event.saved.requests for event in timeline.timeline.folded_events]
    assert max(requests_after) > max(requests_before), "its rows have the newest sums"
    session.append(Unfolded("h2"))
    settle()
    assert filled.count() == 1


def test_it_is_live(page: Page, written: Written, settle: Settle) -> None:
    timeline, _ = page
    written.handover(3)
    timeline.update_timeline_from_events([FactAppended(written.facts[-1])])
    settle()
    assert timeline.list.rows.rowCount() == 5
    assert timeline.panel._title._words == "Summary 2"


def test_an_empty_conversation_says_what_will_be_here(theme: Theme, settle: Settle) -> None:
    made = TimelinePage(theme, BackgroundRunner(now))
    made.show_timeline_of(None)
    settle()
    assert "is listed on this page" in made.panel.document.all_text()
    made.panel.deleteLater()


def test_what_was_read_in_slices_is_not_counted_again(
    page: Page, written: Written, settle: Settle
) -> None:
    timeline, session = page
    points = len(timeline.timeline.points)
    timeline.update_timeline_from_events(
        [FactAppended(recorded) for recorded in session.state.facts]
    )
    assert len(timeline.timeline.points) == points


def test_a_fold_of_another_conversation_is_undone_there(
    page: Page, written: Written, settle: Settle
) -> None:
    timeline, session = page
    bench = FakeWorkbench("one", "#0d7d74", Path("/one"), [Row("c", "", 1.0), Row("d", "", 1.0)])
    other = bench.sessions["d"] = FakeSession(
        "d", [replace(each, conversation="d") for each in written.facts]
    )
    bench.sessions["c"] = session
    timeline.show_timeline_of(session, bench)
    timeline._show_timeline_scope(everywhere=True)
    settle()
    timeline._choose_event(
        next(
            each
            for each in timeline.list.rows.items
            if each.conversation == "d" and each.current_folds
        )
    )
    timeline._undo_or_redo_folds("undo_fold", ["f"])
    assert (session.done, other.done) == ([], ["undo f"])
    timeline.show_timeline_of(other, bench)
    settle()
    assert timeline._scope_actions[0].isChecked()
    assert {each.conversation for each in timeline.list.rows.items} == {"d"}


def test_the_folds_of_a_workspace_that_was_left_are_not_shown(
    page: Page, written: Written, settle: Settle
) -> None:
    timeline, session = page
    held = timeline._doing._spawn = Held()
    bench = FakeWorkbench("one", "#0d7d74", Path("/one"), [Row("c", "", 1.0), Row("d", "", 1.0)])
    bench.sessions["d"] = FakeSession(
        "d", [replace(each, conversation="d") for each in written.facts]
    )
    timeline.show_timeline_of(session, bench)
    timeline._show_timeline_scope(everywhere=True)
    timeline.show_timeline_of(Editable("e", []), bench)
    held.let()
    assert timeline._other_timelines == []


def test_undo_closes_the_editor_and_keeps_what_was_written(page: Page) -> None:
    panel = page[0].panel
    QTest.mouseClick(panel._edit, LEFT)
    panel._editor.setPlainText("half a sentence")
    QTest.mouseClick(panel.undo_button, LEFT)
    assert panel._stack.currentIndex() == 0
    assert list(panel._drafts.values()) == ["half a sentence"]


@pytest.mark.parametrize(
    "before", ["Sure! Here is the handover:", "[Summary]\nSure! Use recall_history(1)."]
)
def test_what_stands_before_the_first_section_is_not_shown(theme: Theme, before: str) -> None:
    text = f"{before}\n\n## Project Background\nA parser."
    boxes = list(_build_document_boxes(text, DrawingStyle(theme), 400.0))
    shown = " ".join(getattr(box, "text", "") for box in boxes)
    assert "A parser." in shown
    assert "Sure!" not in shown


def test_names_in_a_document_that_occur_nowhere_are_marked(
    theme: Theme, written: Written, settle: Settle
) -> None:
    made = TimelinePage(theme, BackgroundRunner(now))
    made.show_timeline_of(FakeSession("c", written.facts), Bench(written.facts))  # type: ignore[arg-type]
    settle()
    fold = next(
        one.fact for one in written.facts if getattr(one.fact, "kind", "") is FoldKind.HANDOVER
    )
    made.choose_fold(fold.fold)  # type: ignore[union-attr]
    settle()
    assert made.panel._shown is not None
    assert made.panel._shown.unknown_names
    assert "not in the messages that it replaces" in made.panel.document.all_text()
    made.close()


@pytest.mark.parametrize(
    ("width", "height", "beside"),
    [(592, 552, True), (592, 850, False), (1130, 800, True)],
    ids=["900x600", "half", "wide"],
)
def test_the_list_of_folds_never_shrinks_to_hardly_a_row(
    page: Page, width: int, height: int, beside: bool
) -> None:
    shown, _ = page
    shown.resize(width, height)
    QApplication.processEvents()
    assert (shown.panel.x() > shown.list.x()) is beside
    assert shown.list.height() > 100


def test_no_figure_of_the_list_is_cut(page: Page, settle: Settle) -> None:
    """The second line ended in "20 messa…"."""
    made, _ = page
    for width in (1130, 760):
        made.resize(width, 800)
        settle()
        QApplication.processEvents()
        rows = made.list.rows
        room = made.list.viewport().width() - TEXT_LEFT - TEXT_RIGHT
        for row, event in enumerate(rows.items):
            words = describe_event_briefly(event)
            lines = wrap_figures(words, made.list.fontMetrics(), room)
            height = made.list.visualRect(rows.index(row)).height()
            assert height >= ROW + (len(lines) - 1) * FIGURES_LINE, words
            shown_words = " ".join(lines).replace(SEPARATOR, " ")
            assert shown_words == words.replace(SEPARATOR, " ")
    assert any(
        made.list.visualRect(rows.index(row)).height() > ROW for row in range(len(rows.items))
    )


def test_of_an_agent_that_reports_no_context_it_is_said_instead_of_an_empty_chart(
    page: Page, settle: Settle
) -> None:
    made, _ = page
    assert not made.chart.isHidden()
    started = Recorded("f", 1, 0.0, ConversationStarted(acp_agent="Echo"))
    policy = Recorded("f", 2, 0.0, preset_policy("none").to_policy_fact())
    model = Recorded("f", 3, 0.0, ModelSet(ModelRole.MAIN, "Echo", 50_000))
    foreign = FakeSession("f", [started, policy, model])
    made.show_timeline_of(foreign)
    settle()
    assert made.chart.isHidden()
    assert made._heading._words.startswith("Echo keeps its own context.")
    assert made._price_link.isHidden()
    assert not any(describe_event_briefly(event) for event in made.list.rows.items)
    actions = {action.text(): action for action in made.menu_button.menu().actions()}
    for name in ("Shorten now…", "What each request cost"):
        assert not actions[name].isVisible()
    made.show_timeline_of(FakeSession("c", []))
    assert actions["Shorten now…"].isVisible()


# --- Where things stand, and what the menu offers


def test_the_page_has_its_margins_and_the_panel_a_little_more_room_than_the_list(
    page: Page, settle: Settle
) -> None:
    made, _ = page
    settle()
    QApplication.processEvents()
    assert made._heading.mapTo(made, QPoint()).x() == 24
    button = made.menu_button
    assert button.mapTo(made, QPoint(button.width(), 0)).x() == made.width() - 16
    tops = [one.mapTo(made, QPoint()).y() for one in (made._heading, button)]
    assert min(tops) == 12
    chart = made.chart
    assert chart.mapTo(made, QPoint()).x() == 24
    assert made._lower.mapTo(made, QPoint()).y() - chart.mapTo(made, QPoint()).y() == (
        chart.height() + 8
    )
    listed, panel = made._lower.sizes()
    assert 0.6 < listed / panel < 0.8
    assert made._lower.handleWidth() == 1
    assert not made._lower.childrenCollapsible()
    savings = made._savings_label
    assert not savings.isHidden()
    above = savings.mapTo(made, QPoint(0, savings.height())).y()
    assert chart.mapTo(made, QPoint()).y() - above == 8


@pytest.mark.parametrize(
    ("width", "height", "beside"),
    [
        (700, 900, True),
        (699, 900, False),
        (600, 600, True),
        (599, 600, False),
        (520, 300, True),
        (519, 300, False),
    ],
)
def test_the_panel_moves_below_the_list_exactly_where_the_page_is_too_narrow(
    page: Page, width: int, height: int, *, beside: bool
) -> None:
    made, _ = page
    made.resize(width, height)
    expected = Qt.Orientation.Horizontal if beside else Qt.Orientation.Vertical
    assert made._lower.orientation() is expected


def actions_of(page: TimelinePage) -> list[str]:
    return [act.text() for act in page.menu_button.menu().actions() if not act.isSeparator()]


def trigger(page: TimelinePage, text: str) -> None:
    (action,) = [act for act in page.menu_button.menu().actions() if act.text() == text]
    action.trigger()


def checked(page: TimelinePage) -> list[str]:
    return [act.text() for act in page.menu_button.menu().actions() if act.isChecked()]


def test_the_menu_offers_kinds_the_whole_workspace_and_what_can_be_done(page: Page) -> None:
    made, _ = page
    assert actions_of(made) == [
        "All kinds",
        "Summaries",
        "Dated notes",
        "Stored outputs",
        "Excerpts",
        "This conversation",
        "Whole workspace",
        "Shorten now…",
        "What each request cost",
    ]
    assert made.menu_button.text() == "All kinds ▾"
    assert checked(made) == ["All kinds", "This conversation"]
    separators = [act.isSeparator() for act in made.menu_button.menu().actions()]
    assert [number for number, is_one in enumerate(separators) if is_one] == [5, 8]
    for name, rows in (
        ("Summaries", 2),
        ("Stored outputs", 1),
        ("Excerpts", 0),
        ("Dated notes", 0),
        ("All kinds", 4),
    ):
        trigger(made, name)
        assert made.list.rows.rowCount() == rows
        assert made.menu_button.text() == f"{name} ▾"
        assert checked(made) == [name, "This conversation"]


def test_without_a_conversation_nothing_can_be_shortened(page: Page, settle: Settle) -> None:
    made, session = page
    assert made._fold_now_action.isEnabled()
    made.show_timeline_of(None)
    settle()
    assert not made._fold_now_action.isEnabled()
    assert made.list.rows.rowCount() == 0
    made._show_step_in_chat(3)
    made._undo_or_redo_folds("undo_fold", ["h2"])
    made.compare_handovers()
    made.compare_views_around_fold()
    assert session.done == []
    assert dialogs(TextComparisonDialog) == []
    made.show_timeline_of(session)
    settle()
    assert made._fold_now_action.isEnabled()


def test_a_step_that_is_pressed_is_shown_in_the_chat(page: Page) -> None:
    made, _ = page
    wanted: list[object] = []
    made.intent_wanted.connect(wanted.append)
    made.chart.step_chosen.emit(7)
    assert wanted == [ShowInChat("c", 7)]


def test_the_costs_are_shown_until_they_are_switched_off(page: Page, settle: Settle) -> None:
    made, session = page
    trigger(made, "What each request cost")
    settle()
    assert made.chart._bars.names_and_colours_of_parts()
    made.show_timeline_of(session)
    settle()
    assert not made._costs_action.isChecked()
    assert not made.chart._bars.names_and_colours_of_parts()
    held = made._doing._spawn = Held()
    trigger(made, "What each request cost")
    trigger(made, "What each request cost")
    held.let()
    assert not made.chart._bars.names_and_colours_of_parts(), "they came too late"


# --- What it listens to


def test_what_happens_elsewhere_changes_nothing(page: Page, written: Written) -> None:
    made, _ = page
    points = len(made.timeline.points)
    written.step(31_000)
    elsewhere = replace(written.facts[-1], conversation="other")
    made.update_timeline_from_events([MeterChanged("c"), FactAppended(elsewhere)])
    assert len(made.timeline.points) == points
    made.update_timeline_from_events([MeterChanged("c"), FactAppended(written.facts[-1])])
    assert len(made.timeline.points) == points + 1


def test_a_fold_is_chosen_now_or_once_it_has_been_read(
    page: Page, written: Written, settle: Settle
) -> None:
    made, session = page
    made.choose_fold("h1")
    assert made.panel._title._words == "Summary 1"
    assert made.list.currentIndex().row() == 1
    made.show_timeline_of(session)
    made.choose_fold("h1")
    assert made._wanted_fold == "h1"
    settle()
    assert made.panel._title._words == "Summary 1"
    assert made._wanted_fold == ""
    made.choose_fold("nobody")
    settle()
    assert made.panel._title._words == "Summary 1"


def test_rows_of_several_conversations_are_the_newest_first(
    page: Page, written: Written, settle: Settle
) -> None:
    made, session = page
    bench = FakeWorkbench("one", "#0d7d74", Path("/one"), [Row("c", "", 1.0), Row("d", "", 1.0)])
    later = [replace(one, conversation="d", time=one.time + 30) for one in written.facts]
    bench.sessions["c"] = session
    bench.sessions["d"] = FakeSession("d", later)
    made.show_timeline_of(session, bench)
    settle()
    trigger(made, "Whole workspace")
    settle()
    times = [row.time for row in made.list.rows.items]
    assert times == sorted(times, reverse=True)
    assert len(times) == 8
    assert [row.conversation for row in made.list.rows.items][:2] == ["d", "c"]
    trigger(made, "This conversation")
    assert {row.conversation for row in made.list.rows.items} == {"c"}


def test_a_fold_of_another_conversation_is_not_marked_in_the_chart(
    page: Page, written: Written, settle: Settle
) -> None:
    made, session = page
    bench = FakeWorkbench("one", "#0d7d74", Path("/one"), [Row("c", "", 1.0), Row("d", "", 1.0)])
    bench.sessions["c"] = session
    bench.sessions["d"] = FakeSession(
        "d", [replace(one, conversation="d") for one in written.facts]
    )
    made.show_timeline_of(session, bench)
    settle()
    assert made.chart._selected is made._chosen
    made._show_timeline_scope(everywhere=True)
    settle()
    other = next(
        one for one in made.list.rows.items if one.conversation == "d" and one.current_folds
    )
    made._choose_event(other)
    assert made.chart._selected is None
    assert made._timeline_of_event(other) is made._other_timelines[0]
    made.compare_views_around_fold()
    settle()
    assert dialogs(TextComparisonDialog) == [], "the chart has only this conversation's moments"


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [(30_000, 12_500, "-17,500"), (1_000, 1_250, "+250"), (1_000, 1_000, "0")],
)
def test_a_comparison_says_how_many_tokens_more_or_fewer_there_are(
    page: Page, before: int, after: int, difference: str
) -> None:
    made, _ = page
    event = made._newest_event_with_folds()
    assert event is not None
    moments = [cast(Moment, SimpleNamespace(counted_tokens=count)) for count in (before, after)]
    old, new = timeline_page._titles_of_comparison(event, *moments)
    assert old == f"Before Summary 2 · {format_token_count(before)}"
    assert new == f"After Summary 2 · {format_token_count(after)} ({difference})"


def test_only_a_second_summary_can_be_compared_with_one_before(page: Page, settle: Settle) -> None:
    made, _ = page
    labels = [made._label_of_comparison(event) for event in made.timeline.events]
    assert labels == ["", "", "", "Compare with summary 1"]
    made.choose_fold("h1")
    made.compare_handovers()
    assert dialogs(TextComparisonDialog) == []


def test_the_price_can_be_set_where_none_is_known_and_nothing_was_paid(
    theme: Theme, settle: Settle
) -> None:
    free = Written()
    free.add(ModelSet(ModelRole.MAIN, "m", 90_000))
    free.add(ModelReplied((FactText("x", 20),), "m", Stop.END, Usage(input=1_000)))
    made = TimelinePage(theme, BackgroundRunner(now))
    made.show()
    made.show_timeline_of(FakeSession("c", free.facts))
    settle()
    assert made._price_link.isVisible()
    assert made._savings_label.isHidden()
    wanted: list[object] = []
    made.intent_wanted.connect(wanted.append)
    QTest.mouseClick(made._price_link, LEFT)
    assert wanted == [ConversationAct.SET_MODEL_PRICE]
    free.add(ModelReplied((FactText("x", 20),), "m", Stop.END, Usage(input=1_000, cost=0.5)))
    made.show_timeline_of(FakeSession("c", free.facts))
    settle()
    assert made._price_link.isHidden()
    made.close()


def test_a_long_conversation_is_read_in_slices(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    made, session = page
    monkeypatch.setattr(timeline_page, "READ_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(timeline_page, "FACTS_PER_STEP", 3)
    made.show_timeline_of(session)
    made._run_read_slice()
    assert made._last_read_seq == 3
    assert made._read_timer.isActive()
    made._run_read_slice()
    assert made._last_read_seq == 6
    monkeypatch.setattr(timeline_page, "READ_SLICE_SECONDS", 60.0)
    made._run_read_slice()
    assert made._last_read_seq == len(session.conversation.state.facts)
    assert not made._read_timer.isActive()
    assert made.list.rows.rowCount() == 4


def test_a_fold_of_the_shown_conversation_is_undone_in_it_and_not_in_another_session(
    page: Page, settle: Settle
) -> None:
    made, session = page
    bench = FakeWorkbench("one", "#0d7d74", Path("/one"), [Row("c", "", 1.0)])
    other = bench.sessions["c"] = FakeSession("c", session.state.facts)
    made.show_timeline_of(session, bench)
    settle()
    made._undo_or_redo_folds("undo_fold", ["h2"])
    made._undo_or_redo_folds("redo_fold", ["h2"])
    assert session.done == ["undo h2", "redo h2"]
    assert other.done == []


def test_the_line_of_the_next_summary_is_that_of_the_model_that_is_used_now(
    page: Page, settle: Settle
) -> None:
    """A conversation was opened before its model was recorded: the chart said 85% until the window
    was opened again, and then 80%.
    """
    made, session = page
    before = list(made.chart._thresholds)
    session.append(ModelSet(ModelRole.MAIN, "small", 32_000, 8_000, 3.0, 15.0))
    session.append(ModelReplied((FactText("words", 20),), "small", Stop.END, Usage(input=9_000)))
    settle()
    assert list(made.chart._thresholds) == list(made._list_thresholds()) != before


def test_what_an_undo_leads_to_stands_beside_it_and_a_full_window_is_asked_about_first(
    page: Page, settle: Settle
) -> None:
    """One press put in more than fits with the next message, without a word or a figure."""
    made, session = page
    batch = made.timeline.events[1]
    session.append(Unfolded("h1"))
    session.append(Unfolded("h2"))
    made._choose_event(batch)
    settle()
    words = made.panel.undo_button.toolTip()
    assert words.startswith("After Undo, the context would be about ")
    assert "The next message would then cost about $" in words
    assert "shortened again" not in words
    assert words in shown_words(made)
    session.append(ModelSet(ModelRole.MAIN, "small", 24_000, 2_000, 3.0, 15.0))
    made._show_chosen_in_panel()
    QTest.mouseClick(made.panel.undo_button, LEFT)
    (box,) = made.findChildren(QMessageBox)
    assert box.text().endswith("so much that the next message would first be shortened again.")
    assert session.done == []
    next(each for each in box.buttons() if each.text() == "Undo").click()
    assert session.done == ["undo m0", "undo m1", "undo m2"]
    settle()
    assert made.panel.undo_button.text() == "Redo"
    assert made.panel.undo_button.toolTip() == ""


def test_an_undo_that_does_not_fit_is_not_asked_about_and_says_so(
    page: Page, settle: Settle
) -> None:
    made, session = page
    session.append(Unfolded("h1"))
    session.append(Unfolded("h2"))
    session.append(ModelSet(ModelRole.MAIN, "small", 20_000, 2_000, 3.0, 15.0))
    made._choose_event(made.timeline.events[1])
    settle()
    assert made.panel.undo_button.toolTip().endswith("so this cannot be undone now.")
    assert not made.panel.undo_button.isEnabled()
    QTest.mouseClick(made.panel.undo_button, LEFT)
    assert made.findChildren(QMessageBox) == []
    assert session.done == []


def test_a_model_that_is_chosen_counts_before_its_first_request(page: Page, settle: Settle) -> None:
    """Undo stayed grey with the figure of the small window, and the line of the next summary stood
    where that window had it, until another row was selected or a message was sent.
    """
    made, session = page
    session.append(Unfolded("h1"))
    session.append(Unfolded("h2"))
    session.append(ModelSet(ModelRole.MAIN, "small", 20_000, 2_000, 3.0, 15.0))
    session.append(ModelReplied((FactText("words", 20),), "small", Stop.END, Usage(input=9_000)))
    made._choose_event(made.timeline.events[1])
    settle()
    assert not made.panel.undo_button.isEnabled()
    lines_of_small_window = list(made.chart._thresholds)
    session.chosen = ModelSet(ModelRole.MAIN, "large", 400_000, 8_000, 3.0, 15.0)
    session.tell(MeterChanged(session.id))
    settle()
    assert " 5% full." in made.panel.undo_button.toolTip()
    assert made.panel.undo_button.isEnabled()
    assert made.timeline.model_window == 400_000
    assert list(made.chart._thresholds) != lines_of_small_window


def test_a_model_that_is_chosen_while_the_page_is_hidden_counts_when_it_is_shown(
    page: Page, settle: Settle
) -> None:
    made, session = page
    made._choose_event(made.timeline.events[1])
    session.append(ModelSet(ModelRole.MAIN, "small", 20_000, 2_000, 3.0, 15.0))
    settle()
    made.window().hide()
    session.chosen = ModelSet(ModelRole.MAIN, "large", 400_000, 8_000, 3.0, 15.0)
    session.tell(MeterChanged(session.id))
    made.window().show()
    settle()
    assert made.timeline.model_window == 400_000
