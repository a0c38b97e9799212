from __future__ import annotations

import re

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtGui import QFont, QFontInfo, QPalette, QTextLayout
from PySide6.QtWidgets import QApplication, QPlainTextEdit, QPushButton, QWidget

from helix_desktop import resources
from helix_desktop.engine.messages import ContextKind
from helix_desktop.gui.colours import DARK, LIGHT
from helix_desktop.gui.theme import Theme, fill_style_sheet, set_widget_look


def test_the_sheet_takes_colours_and_lengths_from_the_table() -> None:
    sheet = fill_style_sheet(
        "a { color: $text; font-size: @13; border: 1px solid $line }", LIGHT, 2.0
    )
    assert sheet == "a { color: #1c1d1f; font-size: 26px; border: 1px solid #e2e2dc }"


def test_the_real_sheet_leaves_nothing_open(theme: Theme) -> None:
    assert not re.search(r"[$@]", re.sub(r'url\("[^"]*"\)', "", theme.build_style_sheet()))


def test_a_misspelt_token_is_found_at_once() -> None:
    with pytest.raises(KeyError):
        fill_style_sheet("a { color: $colour_of_nothing }", LIGHT, 1.0)


def test_switching_the_scheme_changes_palette_and_colours_at_once(theme: Theme) -> None:
    seen: list[str] = []
    theme.changed.connect(lambda: seen.append(theme.colour_of_token("panel").name()))
    theme.set_scheme_and_zoom("dark", theme.text_zoom)
    assert seen == [DARK["panel"]]
    assert QApplication.palette().color(QPalette.ColorRole.Base).name() == DARK["panel"]
    theme.set_scheme_and_zoom("light", theme.text_zoom)
    assert seen == [DARK["panel"], LIGHT["panel"]]


def test_a_scheme_nobody_knows_means_as_the_system(theme: Theme) -> None:
    theme.set_scheme_and_zoom("sepia", theme.text_zoom)
    assert theme._scheme == "system"


def test_zoom_goes_by_steps_and_stops_at_its_ends(theme: Theme) -> None:
    assert theme.build_font().pixelSize() == 13
    theme.zoom_by_steps(1)
    assert theme.text_zoom == 1.1
    for _ in range(20):
        theme.zoom_by_steps(1)
    assert theme.text_zoom == 3.0
    assert theme.build_font().pixelSize() == 39
    theme.zoom_by_steps(0)
    assert theme.zoomed_pixels(48) == 48


def test_kinds_have_a_fill_and_a_colour_for_words(theme: Theme) -> None:
    assert theme.fill_colour_of_kind(ContextKind.HANDOVER).name() == LIGHT["handover"]
    assert theme.text_colour_of_kind(ContextKind.HANDOVER).name() == LIGHT["handover_text"]


def test_a_look_can_change_later(theme: Theme) -> None:
    button = QPushButton("Send")
    set_widget_look(button, "primary")
    button.ensurePolished()
    primary = button.palette().color(QPalette.ColorRole.ButtonText)
    set_widget_look(button, "link")
    assert primary.name() == LIGHT["on_accent"]
    assert button.palette().color(QPalette.ColorRole.ButtonText).name() == LIGHT["accent"]


def test_lengths_follow_the_zoom_while_their_owner_lives(theme: Theme) -> None:
    owner = QWidget()
    widths = list[tuple[int, ...]]()
    theme.keep_lengths_scaled(owner, lambda *lengths: widths.append(lengths), 20, 0)
    theme.set_zoom(2.0)
    owner.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    theme.set_zoom(1.0)
    assert widths == [(20, 0), (40, 0)]


def _glyph_indexes(text: str, font: QFont) -> list[int]:
    layout = QTextLayout(text, font)
    layout.beginLayout()
    layout.createLine()
    layout.endLayout()
    return [index for run in layout.glyphRuns() for index in run.glyphIndexes()]


@pytest.mark.parametrize("mono", [False, True])
def test_text_is_drawn_in_a_font_that_ships_with_the_program(theme: Theme, mono: bool) -> None:
    used = QFontInfo(theme.build_font(mono=mono))
    assert used.family() == ("Helix Code" if mono else "Helix Text")
    assert used.fixedPitch() == mono


@pytest.mark.parametrize("mono", [False, True])
@pytest.mark.parametrize("weight", [QFont.Weight.Normal, QFont.Weight.DemiBold])
@pytest.mark.parametrize(
    "text", ["a <= b", "a != b", "=> -> === !== ::", "ff fi fl ffi", "0x10 /* */ // www && |>"]
)
def test_no_two_characters_are_drawn_as_one(
    theme: Theme, mono: bool, weight: QFont.Weight, text: str
) -> None:
    font = theme.build_font(mono=mono, weight=weight)
    alone = [index for character in text for index in _glyph_indexes(character, font)]
    assert _glyph_indexes(text, font) == alone


def test_a_code_font_of_the_users_choice_joins_no_characters_either(theme: Theme) -> None:
    theme.set_fonts("", "JetBrains Mono")
    font = theme.build_font(mono=True)
    assert font.families()[0] == "JetBrains Mono"
    assert {bytes(tag.toString().data()).decode(): font.featureValue(tag) for tag in font.featureTags()} == {
        "calt": 0, "clig": 0, "dlig": 0, "liga": 0,
    }  # fmt: skip


def test_styles_of_the_sheet_keep_characters_apart(theme: Theme) -> None:
    """A family that a style sheet names is a new font: what the application's font
    leaves out must hold there too.
    """
    box = QPlainTextEdit()
    set_widget_look(box, "mono")
    box.ensurePolished()
    assert box.font().families()[0] == "Helix Code"
    assert _glyph_indexes("<=", box.font()) == [
        *_glyph_indexes("<", box.font()),
        *_glyph_indexes("=", box.font()),
    ]


def test_the_shipped_fonts_have_their_licences() -> None:
    folder = resources.resources_folder() / "fonts"
    families = {path.name.partition("-")[0] for path in folder.glob("*.[ot]tf")}
    assert families == {"HelixText", "HelixCode"}
    for family in families:
        licence = (folder / f"{family}-LICENSE.txt").read_text("utf-8")
        assert "SIL OPEN FONT LICENSE" in licence
        assert licence.startswith("Copyright")
