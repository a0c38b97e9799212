from __future__ import annotations

import pytest
from PySide6.QtCore import QLocale, QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QComboBox,
    QDoubleSpinBox,
    QLabel,
    QSpinBox,
    QToolTip,
    QWidget,
)

from helix_desktop.gui.common.setting_fields import (
    FieldDeclaration,
    RefusedValueLine,
    build_field,
    build_field_row,
)
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.theme import Theme


def test_a_choice_with_long_words_stands_below_its_own(window: MainWindow) -> None:
    """Beside them, the longest was cut in German, and they had a column of three words."""
    words = ("Kurz", "Den Agenten vorher angeben lassen, was er braucht")
    declared = FieldDeclaration(
        "n",
        "Titel",
        "Was geschieht, wenn eine große Ausgabe eintrifft.",
        "b",
        choices=("a", "b"),
        words=words,
    )
    whole = build_field_row(declared, lambda _: None, window)
    whole.resize(460, 100)
    whole.show()
    choice = whole.findChild(QComboBox)
    assert choice is not None
    assert choice.width() >= choice.sizeHint().width()
    bottoms = [
        label.mapTo(whole, QPoint(0, label.height())).y() for label in whole.findChildren(QLabel)
    ]
    assert choice.y() >= max(bottoms)


@pytest.mark.parametrize(
    ("language", "typed", "value"),
    [
        ("en_GB", "0,5", 0.5),
        ("en_GB", "1,5", 1.5),
        ("en_GB", "0,500", 0.5),
        ("en_GB", "0.5", 0.5),
        ("en_GB", "1,500", 1_500.0),
        ("en_GB", "1,500.5", 1_500.5),
        ("de_DE", "0.5", 0.5),
        ("de_DE", "0,5", 0.5),
        ("de_DE", "12.34", 12.34),
        ("de_DE", "1.500", 1_500.0),
    ],
)
def test_a_sign_for_thousands_that_no_thousands_follow_is_a_decimal_sign(
    theme: Theme, language: str, typed: str, value: float
) -> None:
    """A limit of “0,5” dollars became 5, and a price of “1,5” became 15."""
    given: list[object] = []
    field = build_field(
        FieldDeclaration("cost", "Limit", "", 9.0, most=100_000, unit="$"), given.append
    )
    assert isinstance(field, QDoubleSpinBox)
    field.setLocale(QLocale(language))
    field.show()
    field.selectAll()
    QTest.keyClicks(field, typed)
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert given == [value]
    field.close()


@pytest.mark.parametrize(
    ("typed", "value"), [("1,5", 9), ("1,50", 9), ("1,500", 1_500), ("1,500,000", 1_500_000)]
)
def test_a_whole_number_with_a_part_of_a_group_is_not_taken(
    theme: Theme, typed: str, value: int
) -> None:
    field = build_field(FieldDeclaration("tokens", "Tokens", "", 9, most=9_000_000), lambda _: None)
    assert isinstance(field, QSpinBox)
    field.setLocale(QLocale("en_GB"))
    field.show()
    field.selectAll()
    QTest.keyClicks(field, typed)
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert field.value() == value
    field.close()


@pytest.mark.parametrize("typed", ["-3", "99999999", "abc", "1,5", "12"])
@pytest.mark.parametrize("value", [500, 500.0])
def test_a_number_out_of_range_goes_back_and_the_field_says_what_the_range_is(
    theme: Theme, typed: str, value: float
) -> None:
    """“-3” became 3 and “99999999” 9,999, without a word."""
    field = build_field(
        FieldDeclaration("n", "N", "", value, least=100, most=10_000), lambda _: None
    )
    assert isinstance(field, QAbstractSpinBox)
    field.setLocale(QLocale("en_GB"))
    field.show()
    QToolTip.hideText()
    field.selectAll()
    QTest.keyClicks(field, typed)
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert field.property("value") == 500
    assert field.text() == "500"
    assert QToolTip.text() == "From 100 to 10,000"
    field.close()
    QToolTip.hideText()


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [("page.port", 4_357, "4357"), ("most_files", 4_357, "4,357")],
)
def test_a_port_is_a_number_without_thousands(
    theme: Theme, name: str, value: int, shown: str
) -> None:
    declared = FieldDeclaration(name, "Title", "", value, least=1_024, most=65_535)
    field = build_field(declared, lambda _: None)
    assert isinstance(field, QSpinBox)
    field.setLocale(QLocale("en_GB"))
    assert field.text() == shown


def test_a_refused_value_is_named_below_its_row_until_another_one_is_taken(theme: Theme) -> None:
    """A text size of 9999 went back to 100, and the hint was gone before it was read."""
    window = QWidget()
    declared = FieldDeclaration("zoom", "Text size", "", 100, least=50, most=300, unit="%")
    row = build_field_row(declared, lambda _: None, window)
    window.show()
    (field,) = row.findChildren(QAbstractSpinBox)
    line = row.findChild(RefusedValueLine)
    assert line is not None
    field.selectAll()
    QTest.keyClicks(field, "9999")
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert field.property("value") == 100
    assert line.isVisible()
    assert line.text() == "9999% was not saved. Enter a number from 50 to 300%."
    field.selectAll()
    QTest.keyClicks(field, "120")
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert not line.isVisible()
