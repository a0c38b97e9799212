"""Makes the fonts that ship with the program: the letters and signs that people read in
it, without ligatures.

Run after a new version of the fonts, with fontTools installed (the program does not
need it) and a folder that has Inter and JetBrains Mono (Debian: fonts-inter,
fonts-jetbrains-mono): `python packaging/fonts.py FOLDER`.

The fonts get names of our own. An Inter or a JetBrains Mono that somebody installed may
draw `<=` as one sign, and Qt would not say which of two fonts of one name it takes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "resources/fonts"
FAMILIES = {"Inter": "Helix Text", "JetBrainsMono": "Helix Code"}
STYLES = {
    "Inter": ("Regular", "Medium", "SemiBold", "Italic"),
    "JetBrainsMono": ("Regular", "SemiBold"),
}
# Latin, Greek, Cyrillic, Vietnamese, punctuation, currencies, arrows, mathematics,
# frames and other signs.
LETTERS = (
    *range(0x20, 0x530),
    *range(0x1E00, 0x1F00),
    *range(0x2000, 0x2800),
    *range(0x2C60, 0x2C80),
)
KEPT_FEATURES = (
    "kern",
    "mark",
    "mkmk",
    "ccmp",
    "locl",
    "tnum",
)  # nothing that draws two characters as one
LICENCE_ID, FULL_NAME, POSTSCRIPT_NAME, TYPOGRAPHIC_FAMILY, TYPOGRAPHIC_STYLE = 13, 4, 6, 16, 17


def build_font(source: Path, target: Path, family: str, style: str) -> None:
    """A subset of one font under our name."""
    from fontTools import subset, ttLib

    font = ttLib.TTFont(source, recalcTimestamp=False)
    options = subset.Options(
        layout_features=list(KEPT_FEATURES),
        name_IDs=["*"],
        notdef_outline=True,
        hinting=False,
        glyph_names=False,
    )
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=LETTERS)
    cutter.subset(font)
    rename_font(font["name"], family, style)
    font.save(target)


def rename_font(names: Any, family: str, style: str) -> None:
    """Family and style in every place where a system reads them; the copyright and the
    licence stay.
    """
    plain = style in {"Regular", "Italic"}
    given = {
        1: family if plain else f"{family} {style}", 2: style if plain else "Regular", 3: f"{family} {style}",
        FULL_NAME: f"{family} {style}", POSTSCRIPT_NAME: f"{family}-{style}".replace(" ", ""),
        TYPOGRAPHIC_FAMILY: family, TYPOGRAPHIC_STYLE: style,
    }  # fmt: skip
    for number in (*given, 18, 21, 22, 25):
        names.removeNames(nameID=number)
    for number, text in given.items():
        names.setName(text, number, 3, 1, 0x409)


def main() -> None:
    """Write every font; the licences beside them were written by hand."""
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, styles in STYLES.items():
        for style in styles:
            source = next(Path(sys.argv[1]).rglob(f"{name}-{style}.[ot]tf"))
            made = TARGET / f"{FAMILIES[name].replace(' ', '')}-{style}{source.suffix}"
            build_font(source, made, FAMILIES[name], style)


if __name__ == "__main__":
    main()
