from __future__ import annotations

import re
from pathlib import Path

import pytest

from helix_desktop import resources
from helix_desktop.gui import theme_icons
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.theme_icons import build_icon

PACKAGE = Path(theme_icons.__file__).parent
USED = sorted(
    {name for file in PACKAGE.rglob("*.py") for name in re.findall(r'\bicon\(\s*"([a-z-]+)"', file.read_text("utf-8"))}
)


@pytest.mark.parametrize("name", USED)
def test_every_icon_that_is_asked_for_is_drawn_in_the_colour(theme: Theme, name: str) -> None:
    drawn = build_icon(name, theme.colour_of_token("danger")).pixmap(24, 24).toImage()
    colours = {
        drawn.pixelColor(x, y).name() for x in range(24) for y in range(24) if drawn.pixelColor(x, y).alpha() == 255
    }
    assert theme.colour_tokens.danger in colours or colours == set()
    assert any(drawn.pixelColor(x, y).alpha() for x in range(24) for y in range(24))


def test_icons_take_their_colour_from_the_scheme() -> None:
    ours = [
        file for file in (resources.resources_folder() / "icons").glob("*.svg") if not file.name.startswith("helix")
    ]
    assert all("currentColor" in file.read_text("utf-8") for file in ours)
