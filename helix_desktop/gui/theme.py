"""The look of the program: scheme and zoom in, palette, fonts and style sheet out.

Every widget that paints itself asks a `Theme` for colours, fonts and sizes, and repaints on `changed`. Everything else
is styled by `resources/style/helix.qss`, where `$name` is a token and `@13` a length that grows with the text zoom.
A standard widget says what it is with the property `look` (`set_look`): "pill", "primary", "chip", "muted", ...
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

from helix_desktop import resources
from helix_desktop.gui.tokens import DARK, LIGHT, Tokens, fill_of, policy_colour

if TYPE_CHECKING:  # the window is painted before the engine is imported
    from helix_desktop.engine.blocks import Kind

SCHEMES = ("system", "light", "dark")
ZOOMS = (0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
TEXT = 13
MONO = 12

# Taken where the desktop names no font of its own but the generic one.
_SANS = ("Inter", "Noto Sans", "Source Sans 3", "Cantarell", "DejaVu Sans")
_MONO = ("JetBrains Mono", "Source Code Pro", "Noto Sans Mono", "DejaVu Sans Mono")
_GENERIC = {"", "Sans", "Sans Serif", "sans-serif", "DejaVu Sans", "Bitstream Vera Sans", "Monospace", "monospace"}
_GENERIC_MONO = _GENERIC | {"DejaVu Sans Mono", "Noto Sans Mono"}

_ROLES: dict[QPalette.ColorRole, str] = {
    QPalette.ColorRole.Window: "window",
    QPalette.ColorRole.WindowText: "text",
    QPalette.ColorRole.Base: "panel",
    QPalette.ColorRole.AlternateBase: "code",
    QPalette.ColorRole.Text: "text",
    QPalette.ColorRole.Button: "panel",
    QPalette.ColorRole.ButtonText: "text",
    QPalette.ColorRole.BrightText: "danger",
    QPalette.ColorRole.ToolTipBase: "panel",
    QPalette.ColorRole.ToolTipText: "text",
    QPalette.ColorRole.PlaceholderText: "faint",
    QPalette.ColorRole.Highlight: "accent",
    QPalette.ColorRole.HighlightedText: "on_accent",
    QPalette.ColorRole.Link: "accent",
    QPalette.ColorRole.LinkVisited: "accent",
    QPalette.ColorRole.Mid: "line",
    QPalette.ColorRole.Accent: "accent",
}


class Theme(QObject):
    """`changed` comes after palette, style sheet and fonts are in force."""

    changed = Signal()

    def __init__(self, *, scheme: str = "system") -> None:
        super().__init__()
        self._scheme = scheme
        self._zoom = 1.0
        self._dark = self._wants_dark()
        self._applied: tuple[object, ...] = ()
        self._colours: dict[str, QColor] = {}
        self._sans = self._mono = ""
        self.set_fonts("", "")
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._system_changed)

    # --- what others ask -----------------------------------------------------------------------------------------

    @property
    def tokens(self) -> Tokens:
        return DARK if self._dark else LIGHT

    @property
    def dark(self) -> bool:
        return self._dark

    @property
    def zoom(self) -> float:
        return self._zoom

    def colour(self, name: str) -> QColor:
        """A token as a colour. Shared: do not change it."""
        found = self._colours.get(name)
        if found is None:
            found = self._colours[name] = QColor(getattr(self.tokens, name))
        return found

    def kind(self, kind: Kind) -> QColor:
        """The fill of a kind: meters, dots, marks."""
        return self.colour(fill_of(kind))

    def kind_text(self, kind: Kind) -> QColor:
        """The same kind for words, which need more contrast."""
        return self.colour(f"{fill_of(kind)}_text")

    def policy(self, name: str) -> QColor:
        """What a policy is drawn in where several stand side by side."""
        return self.colour(policy_colour(name))

    def px(self, length: float) -> int:
        """A length of the pictures at the present text zoom."""
        return max(1, round(length * self._zoom))

    def fit(self, owner: QObject, give: Callable[..., object], *lengths: float) -> None:
        """Give margins, spacings or widths in lengths of the pictures: now, and at every other zoom while `owner` lives."""

        def fitted() -> None:
            if isValid(owner):
                give(*(self.px(length) if length else 0 for length in lengths))

        fitted()
        self.changed.connect(fitted)

    def font(self, size: float = TEXT, *, weight: QFont.Weight = QFont.Weight.Normal, mono: bool = False) -> QFont:
        font = QFont()
        font.setFamilies([self._mono, "monospace"] if mono else [self._sans, "sans-serif"])
        font.setPixelSize(self.px(size))
        font.setWeight(weight)
        if mono:
            font.setStyleHint(QFont.StyleHint.Monospace)
            font.setFixedPitch(True)
        return font

    def mono(self, size: float = MONO) -> QFont:
        return self.font(size, mono=True)

    # --- what the user chooses -----------------------------------------------------------------------------------

    def set_look(self, scheme: str, zoom: float) -> None:
        """Scheme and zoom at once: one restyling."""
        self._scheme = scheme if scheme in SCHEMES else "system"
        self._zoom = min(max(zoom, ZOOMS[0]), ZOOMS[-1])
        if self._look() != self._applied:
            self.apply()

    def set_zoom(self, zoom: float) -> None:
        self._zoom = min(max(zoom, ZOOMS[0]), ZOOMS[-1])
        self.apply()

    def set_fonts(self, text: str, code: str) -> None:
        """Families the user chose; an empty one means the system's own. In force with the next `apply`."""
        self._sans = text or _family(QFontDatabase.SystemFont.GeneralFont, _SANS, _GENERIC)
        self._mono = code or _family(QFontDatabase.SystemFont.FixedFont, _MONO, _GENERIC_MONO)

    def zoom_by(self, steps: int) -> None:
        """To the next larger (1) or smaller (-1) text size; 0 goes back to the usual one."""
        if steps == 0:
            return self.set_zoom(1.0)
        nearest = min(range(len(ZOOMS)), key=lambda i: abs(ZOOMS[i] - self._zoom))
        return self.set_zoom(ZOOMS[min(max(nearest + steps, 0), len(ZOOMS) - 1)])

    def apply(self) -> None:
        """Put palette, font and style sheet into force for the whole application."""
        self._dark = self._wants_dark()
        self._applied = self._look()
        self._colours.clear()
        application = QApplication.instance()
        if isinstance(application, QApplication):
            application.setPalette(self.palette())
            application.setFont(self.font())
            application.setStyleSheet(self.sheet())
        self.changed.emit()

    def _look(self) -> tuple[object, ...]:
        """All that the style sheet depends on."""
        return self._wants_dark(), self._zoom, self._sans, self._mono

    def palette(self) -> QPalette:
        palette = QPalette()
        for role, name in _ROLES.items():
            palette.setColor(role, self.colour(name))
        for role in (QPalette.ColorRole.Text, QPalette.ColorRole.WindowText, QPalette.ColorRole.ButtonText):
            palette.setColor(QPalette.ColorGroup.Disabled, role, self.colour("faint"))
        return palette

    def sheet(self) -> str:
        return fill_sheet(_template(), self.tokens, self._zoom, mono=self._mono)

    def _wants_dark(self) -> bool:
        if self._scheme == "system":
            return QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark
        return self._scheme == "dark"

    def _system_changed(self) -> None:
        if self._scheme == "system" and self._wants_dark() != self._dark:
            self.apply()


def fill_sheet(template: str, tokens: Tokens, zoom: float, *, mono: str = "monospace") -> str:
    """Replace `$token` by its colour, `$mono` by the monospaced family and `@13` by so many pixels at this zoom."""
    own = {
        "mono": mono,
        "arrow": (resources.folder() / "style").as_posix(),
        "chevron": "dark" if tokens is DARK else "light",
    }
    values = asdict(tokens) | own
    named = re.sub(r"\$([a-z_]+)", lambda found: values[found[1]], template)
    return re.sub(r"@(\d+(?:\.\d+)?)", lambda found: f"{max(1, round(float(found[1]) * zoom))}px", named)


def set_look(widget: QWidget, look: str) -> None:
    """Say what a widget is to the style sheet; also later, when it becomes something else."""
    if widget.property("look") == look:
        return
    widget.setProperty("look", look)
    style = widget.style()
    style.unpolish(widget)
    style.polish(widget)


def _template() -> str:
    return (resources.folder() / "style" / "helix.qss").read_text("utf-8")


def _family(system: QFontDatabase.SystemFont, wanted: tuple[str, ...], generic: set[str]) -> str:
    named = QFontDatabase.systemFont(system).family()
    if named not in generic:
        return named
    return next((family for family in wanted if QFontDatabase.hasFamily(family)), named)
