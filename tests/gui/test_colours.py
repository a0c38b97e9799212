from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import pytest
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QRadioButton, QWidget

from helix_desktop import resources
from helix_desktop.engine.messages import ContextKind
from helix_desktop.gui import colours
from helix_desktop.gui.colours import (
    DARK,
    LIGHT,
    Scheme,
    colour_token_of_kind,
    contrast_ratio,
)
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.drawing_style import DrawingStyle, TextMarks

STYLE = (resources.resources_folder() / "style" / "helix.qss").read_text("utf-8")
SCHEMES = pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
SURFACES = (
    "window",
    "panel",
    "rail",
    "selected",
    "code",
    "accent_soft",
    "danger_soft",
    "added_soft",
)
EDGE_ALONE = re.compile(
    r"(QLineEdit|QPlainTextEdit|QTextEdit|QSpinBox|QComboBox|Q\w+::indicator|QScrollBar::handle)"
)
TEXT = ("text", "muted", "faint", "accent", "danger")
NAMES = tuple(LIGHT)
KIND_TEXT = tuple(name for name in NAMES if name.endswith("_text"))
KINDS = [name.removesuffix("_text") for name in KIND_TEXT]
SYNTAX = [name for name in NAMES if name.startswith("code_")]


def pairs_below(
    least: float, scheme: Scheme, names: Sequence[str], surfaces: Sequence[str]
) -> list[tuple[str, str]]:
    """The colours, each with the ground on which it does not stand out as much as asked."""
    return [
        (name, surface)
        for name, surface in itertools.product(names, surfaces)
        if contrast_ratio(scheme[name], scheme[surface]) < least
    ]


@SCHEMES
def test_text_can_be_read_on_every_surface(scheme: Scheme) -> None:
    assert pairs_below(4.5, scheme, TEXT + KIND_TEXT, SURFACES) == []


@SCHEMES
def test_code_can_be_read_in_blocks_and_differences(scheme: Scheme) -> None:
    assert len(SYNTAX) > 3
    assert pairs_below(4.5, scheme, SYNTAX, ["code", "panel", "added_soft", "danger_soft"]) == []


@SCHEMES
def test_words_on_coloured_ground_can_be_read(scheme: Scheme) -> None:
    assert contrast_ratio(scheme["on_accent"], scheme["accent"]) >= 4.5
    assert contrast_ratio(scheme["danger"], scheme["danger_soft"]) >= 4.5
    assert contrast_ratio(scheme["muted"], scheme["found"]) >= 4.5
    assert contrast_ratio(scheme["text"], scheme["found_current"]) >= 4.5


@SCHEMES
def test_what_is_found_or_selected_is_in_the_texts_colour(
    scheme: Scheme, application: object
) -> None:
    """Faint and coloured words could not be read on these: 1.97:1 on a place that was
    found in the dark.
    """
    ink = DrawingStyle(Theme(scheme="dark" if scheme is DARK else "light"))
    overlays = ink.overlay_formats(TextMarks((2, 4), ((0, 1), (5, 6)), 1))
    assert [each.format.foreground().color().name() for each in overlays] == [scheme["text"]] * 3
    over = ink.selection_colour
    share = ink.selection_colour.alphaF()
    for under in map(QColor, (scheme["panel"], scheme["code"], scheme["window"])):
        channels = (
            (under.red(), over.red()),
            (under.green(), over.green()),
            (under.blue(), over.blue()),
        )
        mixed = QColor(*(round(one + (other - one) * share) for one, other in channels))
        assert contrast_ratio(scheme["text"], mixed.name()) >= 4.5


@SCHEMES
@pytest.mark.parametrize("kind", ContextKind)
def test_a_kind_stands_out_from_the_free_part_of_the_meter(
    scheme: Scheme, kind: ContextKind
) -> None:
    assert contrast_ratio(scheme[colour_token_of_kind(kind)], scheme["free"]) >= 3


@pytest.mark.parametrize("colour", colours.WORKSPACE_COLOURS)
def test_white_initials_can_be_read_on_every_workspace_colour(colour: str) -> None:
    assert contrast_ratio("#ffffff", colour) >= 4.5


@SCHEMES
def test_the_edge_of_a_control_can_be_seen(scheme: Scheme) -> None:
    edges = ["edge", "accent", "faint", "danger", "handover"]
    assert pairs_below(3, scheme, edges, SURFACES) == []


def test_what_only_its_edge_shows_has_one_that_can_be_seen() -> None:
    """A button says in words what it is, so its outline may be as light as a line; a
    field without words is only its edge.
    """
    for selectors, rules in re.findall(r"([^{}]+)\{([^}]*)\}", STYLE):
        bare = [
            each
            for each in selectors.split(",")
            if EDGE_ALONE.match(each.strip()) and "search" not in each
        ]
        if bare and ":pressed" not in selectors:
            assert "$line" not in rules.replace("border-bottom: 1px solid $line", ""), selectors


@pytest.mark.parametrize("name", ["light", "dark"])
def test_a_choice_that_is_not_chosen_can_be_seen(theme: Theme, name: str) -> None:
    """Qt drew the circle itself, in the dark nearly in the colour of the ground."""
    theme.set_scheme_and_zoom(name, 1.0)
    ground = QWidget()
    choice = QRadioButton("Keep more", ground)
    choice.setAutoExclusive(False)
    ground.resize(200, 40)
    ground.show()
    picture = ground.grab().toImage()
    place = choice.geometry()
    left_of_words = range(place.left(), place.left() + 20)
    colours = {
        picture.pixelColor(x, y).name()
        for x in left_of_words
        for y in range(place.top(), place.bottom())
    }
    panel = LIGHT["panel"] if name == "light" else DARK["panel"]
    assert max(contrast_ratio(colour, panel) for colour in colours) >= 2.8
    theme.set_scheme_and_zoom("light", 1.0)


def test_what_a_field_is_for_can_be_read() -> None:
    """Where the style sheet does not say it, Qt takes half of the text's colour: 3.28:1."""
    inputs = next(
        block for block in STYLE.split("}") if "QLineEdit, QPlainTextEdit, QTextEdit" in block
    )
    assert "placeholder-text-color: $faint" in inputs
    assert "border: 1px solid $edge" in inputs


@SCHEMES
def test_every_token_is_a_colour(scheme: Scheme) -> None:
    assert all(re.fullmatch(r"#[0-9a-f]{6}", scheme[name]) for name in NAMES)


def test_contrast_knows_its_ends() -> None:
    assert contrast_ratio("#000000", "#ffffff") == pytest.approx(21)
    assert contrast_ratio("#777777", "#777777") == 1
