"""Holds the only table of colours; everything that is drawn takes its colour from here by name.

Every text token has a contrast of 4.5:1 on every surface it may stand on (tests/gui/test_colour_tokens.py checks this),
so some differ a little from the design: `muted`, `faint`, `accent`, `handover` and, in the dark table, `danger` and
`on_accent`. `line` divides surfaces; `edge` is the border of buttons and fields, with 3:1 on all of them. A kind has
two colours: the fill of meters, dots and marks, and a darker or lighter one for words (`*_text`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from helix_desktop.fast_dataclass import dataclass

if TYPE_CHECKING:  # The window must be painted before the engine is imported.
    from helix_desktop.engine.blocks import ContextKind


@dataclass(frozen=True, slots=True)
class ColourTokens:
    """One scheme. Values are #rrggbb."""

    window: str
    panel: str
    rail: str
    line: str
    edge: str
    selected: str
    code: str
    accent_soft: str
    text: str
    muted: str
    faint: str
    accent: str
    on_accent: str
    danger: str
    danger_soft: str
    added_soft: str
    free: str
    system: str
    handover: str
    observations: str
    conversation: str
    output: str
    system_text: str
    handover_text: str
    observations_text: str
    conversation_text: str
    output_text: str
    found: str
    found_current: str
    code_keyword: str
    code_string: str
    code_number: str
    code_comment: str
    code_name: str
    code_type: str


LIGHT = ColourTokens(
    window="#f7f7f5",
    panel="#ffffff",
    rail="#ecece8",
    line="#e2e2dc",
    edge="#80848a",
    selected="#e9ebe6",
    code="#f3f3ef",
    accent_soft="#e3f2f0",
    text="#1c1d1f",
    muted="#585c63",
    faint="#666a71",
    accent="#0c756c",
    on_accent="#ffffff",
    danger="#c2362b",
    danger_soft="#fbe9e7",
    added_soft="#e2f3e4",
    free="#e7e7e1",
    system="#64748b",
    handover="#bd7100",
    observations="#7c4dcc",
    conversation="#2f6bd8",
    output="#0d9488",
    system_text="#56647a",
    handover_text="#92580a",
    observations_text="#7646c8",
    conversation_text="#2a60c4",
    output_text="#0b746b",
    found="#ffe9a8",
    found_current="#ffc94d",
    code_keyword="#8a3fb0",
    code_string="#2a6a34",
    code_number="#9a4b00",
    code_comment="#666a71",
    code_name="#2457b3",
    code_type="#0b6b78",
)

DARK = ColourTokens(
    window="#17181a",
    panel="#1e2022",
    rail="#131416",
    line="#2e3134",
    edge="#747980",
    selected="#282b2e",
    code="#25282b",
    accent_soft="#173230",
    text="#e8e8e6",
    muted="#a3a8b0",
    faint="#91969e",
    accent="#3bb8ab",
    on_accent="#08201d",
    danger="#ed8178",
    danger_soft="#3a2322",
    added_soft="#1d3323",
    free="#2c2f32",
    system="#8492a6",
    handover="#e5a13a",
    observations="#a784e8",
    conversation="#6f9df0",
    output="#35b5a8",
    system_text="#909db0",
    handover_text="#e5a13a",
    observations_text="#b094ea",
    conversation_text="#7ba5f2",
    output_text="#3bb8ab",
    found="#463a10",
    found_current="#7a6212",
    code_keyword="#d3a4f0",
    code_string="#94cf9b",
    code_number="#eab27a",
    code_comment="#91969e",
    code_name="#8fb8fb",
    code_type="#74c9d6",
)

# Colours of the rail's squares. Their white initials need a contrast of at least 4.5:1.
WORKSPACE_COLOURS = (
    "#0d7d74",
    "#8b5e3c",
    "#4a5fa5",
    "#9a3b66",
    "#55713a",
    "#6b4fa0",
    "#a1482c",
    "#3b6c8a",
)


def fill_token_of_kind(kind: ContextKind) -> str:
    """The token of a kind of context; with `_text` behind it the one for words."""
    return kind.name.lower()


def _relative_luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def readable_text_colour(colour: str) -> str:
    """White or black, whichever can be read better on a colour the user or a file chose."""
    return "#ffffff" if contrast_ratio("#ffffff", colour) >= 4.5 else "#1c1d1f"


def contrast_ratio(one: str, other: str) -> float:
    """The ratio of WCAG 2: from 1 (the same) to 21 (black on white)."""
    darker, lighter = sorted((_relative_luminance(one), _relative_luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)
