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
    rows: list[list[bool]] = []
    for row in picture.matrix_iter(border=QUIET_MODULES):
        rows.append([bool(module) for module in row])
    return rows


def draw_qr_lines(text: str) -> list[str]:
    """Returns the code as lines of text for a terminal. A character shows two modules, one
    above the other.
    """
    rows = list(draw_qr_modules(text))
    if len(rows) % 2:
        empty_row = [False] * len(rows[0])
        rows.append(empty_row)
    lines: list[str] = []
    for index in range(0, len(rows), 2):
        upper_row = rows[index]
        lower_row = rows[index + 1]
        pairs = zip(upper_row, lower_row, strict=True)
        lines.append("".join(_CHARACTERS[pair] for pair in pairs))
    return lines
