"""The only table of colours. Everything that is drawn takes its colours from here, by token.

Every text token has a contrast of 4.5:1 on every surface it is used on (tests/gui/test_colours.py
checks this), so some differ a little from the design: `muted`, `faint`, `accent`, `handover` and, in
the dark table, `danger` and `on_accent`. `line` divides surfaces; `edge` is the border of buttons
and fields, with 3:1 on all of them. A kind of context has two colours: one for meters, dots and
marks, and a darker or lighter one for text (`*_text`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Imported for types only: the window must appear before the engine is loaded.
    from helix_desktop.engine.messages import ContextKind


Scheme = Mapping[str, str]  # The colour of each token, as #rrggbb.
_LIGHT_AND_DARK = {
    "window": ("#f7f7f5", "#17181a"),
    "panel": ("#ffffff", "#1e2022"),
    "rail": ("#ecece8", "#131416"),
    "line": ("#e2e2dc", "#2e3134"),
    "edge": ("#80848a", "#747980"),
    "selected": ("#e9ebe6", "#282b2e"),
    "code": ("#f3f3ef", "#25282b"),
    "accent_soft": ("#e3f2f0", "#173230"),
    "text": ("#1c1d1f", "#e8e8e6"),
    "muted": ("#585c63", "#a3a8b0"),
    "faint": ("#666a71", "#91969e"),
    "accent": ("#0c756c", "#3bb8ab"),
    "on_accent": ("#ffffff", "#08201d"),
    "danger": ("#c2362b", "#ed8178"),
    "danger_soft": ("#fbe9e7", "#3a2322"),
    "added_soft": ("#e2f3e4", "#1d3323"),
    "free": ("#e7e7e1", "#2c2f32"),
    "system": ("#64748b", "#8492a6"),
    "handover": ("#bd7100", "#e5a13a"),
    "observations": ("#7c4dcc", "#a784e8"),
    "conversation": ("#2f6bd8", "#6f9df0"),
    "output": ("#0d9488", "#35b5a8"),
    "system_text": ("#56647a", "#909db0"),
    "handover_text": ("#92580a", "#e5a13a"),
    "observations_text": ("#7646c8", "#b094ea"),
    "conversation_text": ("#2a60c4", "#7ba5f2"),
    "output_text": ("#0b746b", "#3bb8ab"),
    "found": ("#ffe9a8", "#463a10"),
    "found_current": ("#ffc94d", "#7a6212"),
    "code_keyword": ("#8a3fb0", "#d3a4f0"),
    "code_string": ("#2a6a34", "#94cf9b"),
    "code_number": ("#9a4b00", "#eab27a"),
    "code_comment": ("#666a71", "#91969e"),
    "code_name": ("#2457b3", "#8fb8fb"),
    "code_type": ("#0b6b78", "#74c9d6"),
}
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
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def readable_text_colour(colour: str) -> str:
    """Returns white or black, whichever is more readable on a colour."""
    return "#ffffff" if contrast_ratio("#ffffff", colour) >= 4.5 else "#1c1d1f"


def contrast_ratio(one: str, other: str) -> float:
    """Returns the WCAG 2 contrast ratio, from 1 (the same) to 21 (black on white)."""
    darker, lighter = sorted((_relative_luminance(one), _relative_luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)
