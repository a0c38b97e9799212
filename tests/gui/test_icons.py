from __future__ import annotations

import re
from pathlib import Path

import pytest

from helix_desktop import resources
from helix_desktop.gui import icons
from helix_desktop.gui.icons import icon
from helix_desktop.gui.theme import Theme

PACKAGE = Path(icons.__file__).parent
USED = sorted(
    {name for file in PACKAGE.rglob("*.py") for name in re.findall(r'\bicon\(\s*"([a-z-]+)"', file.read_text("utf-8"))}
)


@pytest.mark.parametrize("name", USED)
def test_every_icon_that_is_asked_for_is_drawn_in_the_colour(theme: Theme, name: str) -> None:
    drawn = icon(name, theme.colour("danger")).pixmap(24, 24).toImage()
    colours = {
        drawn.pixelColor(x, y).name() for x in range(24) for y in range(24) if drawn.pixelColor(x, y).alpha() == 255
    }
    assert theme.tokens.danger in colours or colours == set()
    assert any(drawn.pixelColor(x, y).alpha() for x in range(24) for y in range(24))


def test_icons_take_their_colour_from_the_scheme() -> None:
    ours = [file for file in (resources.folder() / "icons").glob("*.svg") if not file.name.startswith("helix")]
    assert all("currentColor" in file.read_text("utf-8") for file in ours)
