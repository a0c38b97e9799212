"""A text that needs consent is shown whole, and what has been in sight is known."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QWidget

from helix_desktop.gui.common.consent_text_view import ExactTextView, describe_exact_text
from helix_desktop.gui.theme import Theme


@pytest.mark.parametrize(
    ("text", "marks", "end_seen", "words"),
    [
        ("ls", 0, True, ""),
        ("ls", 0, False, "1 line · 2 characters · scroll to the end to continue"),
        ("a\nb\n", 0, False, "2 lines · 4 characters · scroll to the end to continue"),
        ("a\nb", 1, True, "1 hidden or look-alike character, marked ⟨…⟩"),
        ("x", 2, False, "1 line · 1 character · 2 hidden or look-alike characters, marked ⟨…⟩ · scroll to the end to continue"),
    ],
)  # fmt: skip
def test_what_there_is_to_read_is_said_until_it_was_read(
    text: str, marks: int, end_seen: bool, words: str
) -> None:
    assert describe_exact_text(text, marks, end_seen=end_seen) == words


def view_of(theme: Theme, text: str, height: int = 300) -> ExactTextView:
    around = QWidget()
    view = ExactTextView(theme, text, around)
    view.resize(500, height)
    around.resize(500, height)
    view.around = around  # type: ignore[attr-defined]  # As long as the view.
    return view


def paint(view: ExactTextView) -> None:
    view.around.show()  # type: ignore[attr-defined]
    view.grab()


@pytest.mark.parametrize(
    ("text", "is_short"),
    [
        ("x" * 599, True),
        ("x" * 600, False),
        ("x\n" * 11, True),
        ("x\n" * 12, False),
    ],
)
def test_only_what_fits_every_window_counts_as_seen_before_it_was_drawn(
    theme: Theme, text: str, is_short: bool
) -> None:
    assert view_of(theme, text).is_end_seen is is_short


def test_a_short_text_that_does_not_fit_after_all_has_to_be_read(theme: Theme) -> None:
    view = view_of(theme, "x\n" * 10, height=60)
    heard: list[bool] = []
    view.reading_state_changed.connect(lambda: heard.append(view.is_end_seen))
    paint(view)
    assert heard == [False]
    view.verticalScrollBar().setValue(view.verticalScrollBar().maximum())
    paint(view)
    assert heard == [False, True]
    view.verticalScrollBar().setValue(0)
    paint(view)
    assert heard == [False, True]
    assert view.is_end_seen


def test_a_long_text_comes_in_parts_and_all_of_it_comes(theme: Theme) -> None:
    text = "\n".join(f"line {number}" for number in range(500))
    view = view_of(theme, text)
    paint(view)
    assert view.blockCount() == 200
    assert not view.is_end_seen
    pages = 0
    while not view.is_end_seen and pages < 100:
        view.show_next_part()
        paint(view)
        pages += 1
    assert view.toPlainText() == text
    assert view.is_end_seen
    assert 10 < pages < 60


def test_marks_of_later_parts_are_counted_when_they_come(theme: Theme) -> None:
    view = view_of(theme, "a\u202eb\n" + "x\n" * 300 + "c\u202ed")
    paint(view)
    assert "1 hidden" in view.describe_length_and_warnings()
    for _ in range(30):
        view.show_next_part()
    assert "2 hidden" in view.describe_length_and_warnings()
    assert "a⟨202E⟩b" in view.toPlainText()


def test_its_height_is_that_of_its_lines_up_to_a_screen(theme: Theme) -> None:
    spacing = view_of(theme, "").fontMetrics().lineSpacing()
    heights = [
        view_of(theme, "x\n" * lines + "x").sizeHint().height() for lines in (0, 1, 9, 79, 150)
    ]
    least = view_of(theme, "x").minimumSizeHint().height()
    assert heights[0] == least
    assert [round((height - least) / spacing) for height in heights] == [0, 1, 9, 79, 79]
