"""Short texts on a ground of their own, and hashes that can be copied."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor

from helix_desktop.gui.common.chip_labels import ChipLabel, DigestLabel
from helix_desktop.gui.theme import Theme


def test_a_chip_is_as_wide_as_its_text_and_gone_without_one(theme: Theme) -> None:
    chip = ChipLabel(theme)
    chip.set_chip_text("word")
    short = chip.sizeHint()
    assert not chip.isHidden()
    assert chip.accessibleName() == "word"
    chip.set_chip_text("many more words")
    assert chip.sizeHint().width() > short.width()
    assert chip.sizeHint().height() == short.height() == theme.zoomed_pixels(20)
    chip.set_chip_text("")
    assert chip.isHidden()
    assert chip.sizeHint().width() == theme.zoomed_pixels(16)


@pytest.mark.parametrize(
    ("look", "ground"), [("strong", "accent_soft"), ("danger", "danger_soft"), ("plain", "")]
)
def test_only_what_matters_has_a_ground(theme: Theme, look: str, ground: str) -> None:
    chip = ChipLabel(theme)
    chip.set_chip_text("x" * 8, look)
    chip.resize(120, 20)
    chip.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground)
    picture = chip.grab().toImage()
    inside = picture.pixelColor(8, 4)
    if ground:
        expected = QColor(theme.colour_of_token(ground))
        assert inside.rgb() == expected.rgb()
    else:
        assert inside.rgb() not in {
            theme.colour_of_token(name).rgb() for name in ("accent_soft", "danger_soft")
        }
        assert picture.pixelColor(60, 0).rgb() == theme.colour_of_token("line").rgb()


def test_a_hash_can_be_selected_and_grows_with_the_text(theme: Theme) -> None:
    label = DigestLabel(theme)
    flags = label.textInteractionFlags()
    assert flags & Qt.TextInteractionFlag.TextSelectableByMouse
    assert flags & Qt.TextInteractionFlag.TextSelectableByKeyboard
    assert f"font-size: {theme.zoomed_pixels(12)}px" in label.styleSheet()
    before = label.styleSheet()
    theme.set_zoom(2.0)
    assert label.styleSheet() != before
    assert f"font-size: {theme.zoomed_pixels(12)}px" in label.styleSheet()
    theme.set_zoom(1.0)
