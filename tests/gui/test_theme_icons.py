from __future__ import annotations

import pytest

from helix_desktop import resources
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.theme_icons import build_icon

ICONS = sorted(
    file.stem
    for file in (resources.resources_folder() / "icons").glob("*.svg")
    if not file.name.startswith("helix")  # the program's own has colours of its own
)


@pytest.mark.parametrize("name", ICONS)
def test_every_icon_is_drawn_in_the_colour(theme: Theme, name: str) -> None:
    drawn = build_icon(name, theme.colour_of_token("danger")).pixmap(24, 24).toImage()
    colours = {
        drawn.pixelColor(x, y).name()
        for x in range(24)
        for y in range(24)
        if drawn.pixelColor(x, y).alpha() == 255
    }
    assert theme.colour_tokens["danger"] in colours or colours == set()
    assert any(drawn.pixelColor(x, y).alpha() for x in range(24) for y in range(24))


def test_icons_take_their_colour_from_the_scheme() -> None:
    folder = resources.resources_folder() / "icons"
    assert ICONS
    assert all("currentColor" in (folder / f"{name}.svg").read_text("utf-8") for name in ICONS)
