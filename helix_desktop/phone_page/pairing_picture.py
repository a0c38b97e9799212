"""The QR code that leads a phone to the page, with the pairing code filled in."""

from collections.abc import Sequence

import segno

QUIET_MODULES = 2  # Light modules around the code, which a camera needs.
# Two rows of modules are one line of text. Most terminals are dark, so light modules are drawn.
_CHARACTERS = {(True, True): " ", (True, False): "▄", (False, True): "▀", (False, False): "█"}


def pairing_link(pair_url: str, code: str) -> str:
    """Behind #, nothing is sent over the network: the page's own script reads it."""
    return f"{pair_url}#code={code}"


def draw_qr_modules(text: str) -> Sequence[Sequence[bool]]:
    """Returns the rows of the code's modules, with a light border. True is dark."""
    picture = segno.make(text, error="m", micro=False)
    return [[bool(module) for module in row] for row in picture.matrix_iter(border=QUIET_MODULES)]


def draw_qr_lines(text: str) -> list[str]:
    """Returns the code as lines of text for a terminal."""
    rows = list(draw_qr_modules(text))
    if len(rows) % 2:
        rows.append([False] * len(rows[0]))
    lines: list[str] = []
    for index in range(0, len(rows), 2):
        pairs = zip(rows[index], rows[index + 1], strict=True)
        lines.append("".join(_CHARACTERS[pair] for pair in pairs))
    return lines
