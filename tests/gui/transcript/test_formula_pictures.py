"""Formulas are drawn off the window's thread, and shown as their source where they cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QPointF
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript import formula_pictures
from helix_desktop.gui.transcript.basic_boxes import FormulaPicture
from helix_desktop.gui.transcript.drawing_style import DrawingStyle, TextMarks
from helix_desktop.gui.transcript.formula_pictures import (
    LONGEST,
    FormulaBox,
    FormulaRequest,
    draw_formulas,
)
from helix_desktop.gui.transcript.markdown_blocks import MathBlock
from tests.conftest import Expect


async def test_it_is_drawn_in_its_colour_and_what_is_none_is_not(application: QApplication) -> None:
    texts = (r"\frac{a}{b}\,dx", r"\frac{a", "x" * 5_000)
    made, broken, long = await draw_formulas(
        [FormulaRequest(text, True, 17.0, "#ff0000", 2.0) for text in texts]
    )
    assert made is not None
    assert made.width > made.height / 4
    assert made.image.width() == round(made.width * 2)
    colours = {
        made.image.pixelColor(x, y).name()
        for x in range(made.image.width())
        for y in range(made.image.height())
    }
    assert "#ff0000" in colours
    assert (broken, long) == (None, None)


async def test_a_formula_that_takes_too_long_is_given_up_and_the_next_one_is_drawn(
    application: QApplication,
) -> None:
    """Each level doubles the work: this one would take an hour. 500 others:
    `packaging/dev.py faults formulas`.
    """
    deep = r"\frac{1}{" * 20 + "x" + "}" * 20
    assert len(deep) < LONGEST
    before, lost, after = await draw_formulas(
        [FormulaRequest(text, True, 17.0, "#000000") for text in ("x", deep, "y")]
    )
    assert (before is not None, lost, after is not None) == (True, None, True)


# --- The picture


def svg_of(width: float, height: float, top: float = 0.0) -> str:
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 {top} {width} {height}'>"
        f"<rect x='0' y='{top}' width='{width / 2}' height='{height}' fill='#ff0000'/></svg>"
    )


def test_a_picture_has_the_density_of_the_screen_and_the_size_of_the_formula(
    application: QApplication,
) -> None:
    picture = formula_pictures._picture_from_answer({"svg": svg_of(40, 20, -15)}, 2.0)
    assert picture is not None
    assert picture.image.size().toTuple() == (80, 40)
    assert picture.image.devicePixelRatio() == 2.0
    assert (picture.width, picture.height, picture.depth) == (40, 20, 5)
    assert picture.image.pixelColor(2, 2).name() == "#ff0000"
    assert picture.image.pixelColor(78, 38).alpha() == 0
    above = formula_pictures._picture_from_answer({"svg": svg_of(40, 20, -20), "depth": 3}, 1.0)
    assert above is not None
    assert above.depth == 3, "it does not go below its line, so the library's word counts"


@pytest.mark.parametrize(
    ("width", "height", "is_shown"),
    [
        (100, 80, True),
        (101, 10, False),
        (10, 101, False),
        (100, 81, False),  # Too many pixels.
    ],
)
def test_a_picture_that_is_too_large_is_none(
    application: QApplication,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    height: int,
    *,
    is_shown: bool,
) -> None:
    monkeypatch.setattr(formula_pictures, "WIDEST", 100)
    monkeypatch.setattr(formula_pictures, "MOST_PIXELS", 8_000)
    answer = {"svg": svg_of(width, height), "depth": 0}
    assert (formula_pictures._picture_from_answer(answer, 1.0) is not None) is is_shown
    half = {"svg": svg_of(width / 2, height / 2), "depth": 0}
    assert (formula_pictures._picture_from_answer(half, 2.0) is not None) is is_shown


@pytest.mark.parametrize("answer", [{}, {"error": "no"}, {"svg": "<svg"}, {"svg": "<svg/>"}])
def test_an_answer_without_a_picture_is_none(
    application: QApplication, expect: Expect, answer: dict[str, str]
) -> None:
    expect("SVG|svg", may_be_missing=True)
    assert formula_pictures._picture_from_answer(answer, 1.0) is None


def box_of(theme: Theme, width: float, picture_width: float, height: float = 20.0) -> FormulaBox:
    image = QImage(round(picture_width), round(height), QImage.Format.Format_RGB32)
    picture = FormulaPicture(image, picture_width, height, 3.0)
    return FormulaBox(DrawingStyle(theme), width, MathBlock("x^2"), picture, gap=7)


def test_a_formula_stands_in_the_middle_and_a_wide_one_is_made_smaller(theme: Theme) -> None:
    box = box_of(theme, 200, 100)
    assert box._place.getRect() == (50, 4, 100, 20)
    assert (box.height, box.width, box.gap) == (28, 200, 7)
    assert box.text == "$$x^2$$"
    fitting = box_of(theme, 200, 200)
    assert fitting._place.getRect() == (0, 4, 200, 20)
    wide = box_of(theme, 200, 400)
    assert wide._place.getRect() == (0, 4, 200, 10)
    assert wide.height == 18
    narrow = box_of(theme, 10, 80)
    assert narrow.width == 40


def test_a_formula_is_selected_from_its_left_or_its_right_half(theme: Theme) -> None:
    box = box_of(theme, 200, 100)
    assert box.nearest_offset(QPointF(99, 5)) == 0
    assert box.nearest_offset(QPointF(100, 5)) == len("$$x^2$$")


@pytest.mark.parametrize(
    ("marks", "is_marked"),
    [(TextMarks(), False), (TextMarks((0, 3)), True), (TextMarks(found=((0, 2),)), True)],
)
def test_a_chosen_or_found_formula_stands_on_a_colour(
    theme: Theme, marks: TextMarks, *, is_marked: bool
) -> None:
    box = box_of(theme, 200, 100)
    box._picture.image.fill(0)
    clear = QImage(100, 20, QImage.Format.Format_ARGB32)
    clear.fill(0)
    box._picture = replace(box._picture, image=clear)
    canvas = QImage(200, 30, QImage.Format.Format_RGB32)
    canvas.fill(0xFFFFFF)
    painter = QPainter(canvas)
    box.draw_box(painter, marks, near=False)
    painter.end()
    assert (canvas.pixelColor(100, 10).name() != "#ffffff") is is_marked
    assert canvas.pixelColor(20, 10).name() == "#ffffff"


async def test_a_formula_that_is_too_long_is_not_even_tried() -> None:
    too_long = FormulaRequest("x" * (LONGEST + 1), True, 12.0, "#000000")
    assert await draw_formulas([too_long, too_long]) == [None, None]
    assert await draw_formulas([]) == []
