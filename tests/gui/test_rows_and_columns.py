from __future__ import annotations

import shiboken6
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from helix_desktop.gui.rows_and_columns import build_row, clear_layout
from helix_desktop.gui.theme import Theme


def test_what_stood_in_a_layout_is_gone_and_so_is_what_stood_in_those_inside(theme: Theme) -> None:
    parent = QWidget()
    column = QVBoxLayout(parent)
    row = QHBoxLayout()
    labels = [QLabel("outside", parent), QLabel("inside", parent)]
    column.addWidget(labels[0])
    row.addWidget(labels[1])
    row.addStretch(1)
    column.addLayout(row)
    parent.show()
    clear_layout(column)
    assert column.count() == 0
    assert [label.isVisible() for label in labels] == [False, False]
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert [shiboken6.isValid(label) for label in labels] == [False, False]


def test_a_row_that_wraps_needs_the_height_of_its_lines(theme: Theme) -> None:
    """Qt's own least height of such a row was whatever stood in memory, and dialogs
    scrolled at random.
    """
    for _ in range(50):
        owner = QWidget()
        labels = [QLabel("words " * 4, owner) for _ in range(3)]
        row = build_row(*labels, owner=owner, margins=4, spacing=6, wraps=True)
        line = labels[0].sizeHint().height()
        wide = 3 * labels[0].sizeHint().width() + 20
        narrow = labels[0].sizeHint().width() + 8
        assert (row.minimumHeightForWidth(wide), row.heightForWidth(wide)) == (line + 8, line + 8)
        assert (row.minimumHeightForWidth(narrow), row.heightForWidth(narrow)) == (
            3 * line + 20,
            3 * line + 20,
        )
        owner.resize(narrow, 400)
        owner.show()
        assert len({label.y() for label in labels}) == 3
        assert len({label.x() for label in labels}) == 1


def test_a_row_that_is_narrower_than_its_margins_is_laid_out(theme: Theme) -> None:
    """An error in a layout ends the program: Qt calls it where there is no Python frame
    that could raise it.
    """
    owner = QWidget()
    row = build_row(
        QLabel("words", owner),
        1,
        QLabel("more", owner),
        owner=owner,
        margins=60,
        spacing=6,
        wraps=True,
    )
    assert all(row.heightForWidth(width) > 120 for width in (119, 100, 0))


def test_a_spacer_takes_the_room_that_is_left_in_its_line(theme: Theme) -> None:
    owner = QWidget()
    first = QLabel("first", owner)
    last = QLabel("last", owner)
    build_row(first, 1, last, owner=owner, margins=0, spacing=6, wraps=True)
    owner.show()
    for width, is_beside in ((500, True), (first.sizeHint().width() + 8, False)):
        owner.resize(width, 200)
        assert (last.geometry().right() == width - 1, last.y() == first.y()) == (
            is_beside,
            is_beside,
        )
        assert first.x() == 0


def test_what_may_grow_is_as_high_as_its_line(theme: Theme) -> None:
    """Of four cards in a row, the one with two lines of words began above the others."""
    owner = QWidget()
    cards = [QLabel("one line", owner), QLabel("two\nlines", owner), QLabel("in the middle", owner)]
    for card in cards[:2]:
        card.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
    build_row(*cards, owner=owner, margins=0, wraps=True)
    owner.resize(1_000, cards[1].sizeHint().height())
    owner.show()
    tops_and_heights = [(card.y(), card.height()) for card in cards]
    assert tops_and_heights[0] == tops_and_heights[1] == (0, cards[1].sizeHint().height())
    assert tops_and_heights[2][0] > 0
