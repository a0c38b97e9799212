"""Gives out the colours of `resources/style`: of each token, the light one and the dark one.

Everything that is drawn takes its colours from here, by token.

Every text token has a contrast of 4.5:1 on every surface it is used on
(tests/gui/test_colours.py checks this), so some differ a little from the design:
`muted`, `faint`, `accent`, `handover` and, in the dark table, `danger` and `on_accent`.
`line` divides surfaces; `edge` is the border of buttons and fields, with 3:1 on all of
them. A kind of context has two colours: one for meters, dots and marks, and a darker or
lighter one for text (`*_text`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from helix_desktop.resources import read_json_resource

if TYPE_CHECKING:  # Imported for types only: the window must appear before the engine is loaded.
    from helix_desktop.engine.messages import ContextKind


Scheme = Mapping[str, str]  # The colour of each token, as #rrggbb.
_LIGHT_AND_DARK = read_json_resource("style/colours.json")
PALETTE_ROLES: Scheme = read_json_resource("style/palette_roles.json")
LIGHT: Scheme = {name: light for name, (light, _) in _LIGHT_AND_DARK.items()}
DARK: Scheme = {name: dark for name, (_, dark) in _LIGHT_AND_DARK.items()}

# The colours of workspaces in the rail. Their white initials need a contrast of at least 4.5:1.
WORKSPACE_COLOURS = (
    "#0d7d74", "#8b5e3c", "#4a5fa5", "#9a3b66", "#55713a", "#6b4fa0", "#a1482c", "#3b6c8a",
)  # fmt: skip


def colour_token_of_kind(kind: "ContextKind") -> str:
    """The colour token of a kind of context. With `_text` appended, it is the token for text."""
    return kind.name.lower()


def _relative_luminance(colour: str) -> float:
    red = _linear_channel(colour[1:3])
    green = _linear_channel(colour[3:5])
    blue = _linear_channel(colour[5:7])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear_channel(digits: str) -> float:
    """Returns how bright a channel of a colour is, as WCAG 2 computes it."""
    share = int(digits, 16) / 255
    if share <= 0.03928:
        return share / 12.92
    return float(((share + 0.055) / 1.055) ** 2.4)


def readable_text_colour(colour: str) -> str:
    """Returns white or black, whichever is more readable on a colour."""
    if contrast_ratio("#ffffff", colour) >= 4.5:
        return "#ffffff"
    return "#1c1d1f"


def contrast_ratio(colour: str, other_colour: str) -> float:
    """Returns the WCAG 2 contrast ratio, from 1 (the same) to 21 (black on white)."""
    luminance = _relative_luminance(colour)
    other_luminance = _relative_luminance(other_colour)
    lighter = max(luminance, other_luminance)
    darker = min(luminance, other_luminance)
    return (lighter + 0.05) / (darker + 0.05)
