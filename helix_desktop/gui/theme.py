"""The look of the program: palette, fonts and style sheet, from the colour scheme and
the text zoom.

Every widget that paints itself asks a `Theme` for colours, fonts and sizes, and repaints on
`changed`. Everything else is styled by `resources/style/helix.qss`, where `$name` is a token and
`@13` a length that grows with the text zoom. A standard widget names its style with the property
`look` (`set_widget_look`): "pill", "primary", "chip", "muted", ...
"""

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPainter, QPalette
from PySide6.QtWidgets import QApplication, QPushButton, QWidget
from shiboken6 import isValid

from helix_desktop import resources
from helix_desktop.gui.colours import DARK, LIGHT, PALETTE_ROLES, Scheme, colour_token_of_kind

if TYPE_CHECKING:  # Imported for types only: the window must appear before the engine is loaded.
    from helix_desktop.engine.messages import ContextKind

SCHEMES = ("system", "light", "dark")
ZOOMS = (0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
TEXT = 13
MONO = 12

# Both fonts ship with the program (packaging/fonts.py). The system provides missing
# characters, such as Chinese ones.
TEXT_FAMILY = "Helix Text"
CODE_FAMILY = "Helix Code"
_JOINING_FEATURES = tuple(QFont.Tag.fromString(tag) for tag in ("liga", "clig", "calt", "dlig"))

_ROLES = {QPalette.ColorRole[role]: token for role, token in PALETTE_ROLES.items()}


class Theme(QObject):
    """`changed` is emitted after palette, style sheet and fonts have been applied."""

    changed = Signal()

    def __init__(self, *, scheme: str = "system") -> None:
        super().__init__()
        self._scheme = scheme
        self.text_zoom = 1.0
        self.is_dark = self._wants_dark()
        self._applied_inputs: tuple[object, ...] = ()
        self._colours: dict[str, QColor] = {}
        self._sans = TEXT_FAMILY
        self._mono = CODE_FAMILY
        self.set_fonts("", "")
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._apply_changed_system_scheme)

    @property
    def colour_tokens(self) -> Scheme:
        if self.is_dark:
            return DARK
        return LIGHT

    def colour_of_token(self, name: str) -> QColor:
        if name not in self._colours:
            self._colours[name] = QColor(self.colour_tokens[name])
        return self._colours[name]

    def fill_colour_of_kind(self, kind: "ContextKind") -> QColor:
        """The colour of a kind for meters, dots and marks."""
        return self.colour_of_token(colour_token_of_kind(kind))

    def text_colour_of_kind(self, kind: "ContextKind") -> QColor:
        """The colour of a kind for text, which needs more contrast."""
        return self.colour_of_token(f"{colour_token_of_kind(kind)}_text")

    def zoomed_pixels(self, length: float) -> int:
        """Converts a length of the design to pixels at the current text zoom."""
        return max(1, round(length * self.text_zoom))

    def fill_surface(
        self, painter: QPainter, rect: QRect | QRectF, token: str, radius: float
    ) -> None:
        """Draws a rounded surface without a border."""
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.colour_of_token(token))
        painter.drawRoundedRect(rect, radius, radius)

    def keep_lengths_scaled(
        self, owner: QObject, set_lengths: Callable[..., object], *lengths: float
    ) -> None:
        """Sets margins, spacings or widths now, and again after each zoom while `owner` exists."""

        def apply_scaled_lengths() -> None:
            if not isValid(owner):
                return
            scaled_lengths: list[int] = []
            for length in lengths:
                if length:
                    scaled_lengths.append(self.zoomed_pixels(length))
                else:
                    # `zoomed_pixels` returns at least 1, but a margin of 0 stays 0.
                    scaled_lengths.append(0)
            set_lengths(*scaled_lengths)

        apply_scaled_lengths()
        self.changed.connect(apply_scaled_lengths)

    def build_font(
        self, size: float = TEXT, *, weight: QFont.Weight = QFont.Weight.Normal, mono: bool = False
    ) -> QFont:
        font = QFont()
        font.setFamilies([self._sans, "sans-serif"])
        font.setPixelSize(self.zoomed_pixels(size))
        font.setWeight(weight)
        if mono:
            font.setFamilies([self._mono, "monospace"])
            font.setStyleHint(QFont.StyleHint.Monospace)
            font.setFixedPitch(True)
            # Without this, a font may draw `<=` as a single sign.
            for feature in _JOINING_FEATURES:
                font.setFeature(feature, 0)
        return font

    def monospaced_font(self, size: float = MONO) -> QFont:
        return self.build_font(size, mono=True)

    def draw_words(
        self,
        painter: QPainter,
        rect: QRect | QRectF,
        text: str,
        font: QFont,
        colour_token: str,
        alignment: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignVCenter,
    ) -> None:
        """Draws a text in a font and a colour, which the painter keeps."""
        painter.setFont(font)
        painter.setPen(self.colour_of_token(colour_token))
        painter.drawText(rect, alignment, text)

    def set_scheme_and_zoom(self, scheme: str, zoom: float) -> None:
        """Sets scheme and zoom together, so that the program is restyled only once."""
        self._scheme = "system"
        if scheme in SCHEMES:
            self._scheme = scheme
        self.text_zoom = _limit_zoom(zoom)
        if self._style_cache_key() != self._applied_inputs:
            self.apply_to_application()

    def set_zoom(self, zoom: float) -> None:
        self.text_zoom = _limit_zoom(zoom)
        self.apply_to_application()

    def set_fonts(self, text: str, code: str) -> None:
        """Sets the user's fonts; an empty name means the program's own.
        `apply_to_application` applies them.
        """
        _load_shipped_fonts()
        self._sans = text or TEXT_FAMILY
        self._mono = code or CODE_FAMILY

    def zoom_by_steps(self, steps: int) -> None:
        """Changes the text size by one step up (1) or down (-1); 0 restores the usual size."""
        if not steps:
            self.set_zoom(1.0)
            return
        nearest_zoom = min(ZOOMS, key=lambda zoom: abs(zoom - self.text_zoom))
        index = ZOOMS.index(nearest_zoom) + steps
        # The smallest and the largest zoom stay as they are.
        index = max(index, 0)
        index = min(index, len(ZOOMS) - 1)
        self.set_zoom(ZOOMS[index])

    def apply_to_application(self) -> None:
        self.is_dark = self._wants_dark()
        self._applied_inputs = self._style_cache_key()
        self._colours.clear()
        application = QApplication.instance()
        if isinstance(application, QApplication):
            application.setPalette(self.build_palette())
            application.setFont(self.build_font())
            style_sheet = self.build_style_sheet()
            # Qt styles every widget anew, even if the style sheet is the same.
            if style_sheet != application.styleSheet():
                application.setStyleSheet(style_sheet)
        self.changed.emit()

    def _style_cache_key(self) -> tuple[object, ...]:
        return self._wants_dark(), self.text_zoom, self._sans, self._mono

    def build_palette(self) -> QPalette:
        palette = QPalette()
        for role, name in _ROLES.items():
            palette.setColor(role, self.colour_of_token(name))
        disabled_colour = self.colour_of_token("faint")
        text_roles = (
            QPalette.ColorRole.Text,
            QPalette.ColorRole.WindowText,
            QPalette.ColorRole.ButtonText,
        )
        for role in text_roles:
            palette.setColor(QPalette.ColorGroup.Disabled, role, disabled_colour)
        return palette

    def build_style_sheet(self) -> str:
        template = (resources.resources_folder() / "style" / "helix.qss").read_text("utf-8")
        return fill_style_sheet(template, self.colour_tokens, self.text_zoom, mono=self._mono)

    def _wants_dark(self) -> bool:
        if self._scheme == "system":
            return QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark
        return self._scheme == "dark"

    def _apply_changed_system_scheme(self) -> None:
        if self._scheme == "system" and self._wants_dark() != self.is_dark:
            self.apply_to_application()


def _limit_zoom(zoom: float) -> float:
    smallest = ZOOMS[0]
    largest = ZOOMS[-1]
    return min(max(zoom, smallest), largest)


def fill_style_sheet(template: str, tokens: Scheme, zoom: float, *, mono: str = "monospace") -> str:
    """Fills in `$token` with its colour, `$mono` with the font and `@13` with zoomed pixels."""
    values = dict(tokens)
    values["mono"] = mono
    # The style sheet names the files of two kinds of arrows, each of which exists twice.
    values["arrow"] = (resources.resources_folder() / "style").as_posix()
    values["chevron"] = "light"
    if tokens is DARK:
        values["chevron"] = "dark"

    def fill_in_value(match: re.Match[str]) -> str:
        return values[match["name"]]

    def fill_in_pixels(match: re.Match[str]) -> str:
        pixels = round(float(match["length"]) * zoom)
        return f"{max(1, pixels)}px"

    filled = re.sub(r"\$(?P<name>[a-z_]+)", fill_in_value, template)
    return re.sub(r"@(?P<length>\d+(?:\.\d+)?)", fill_in_pixels, filled)


def set_widget_look(widget: QWidget, look: str) -> None:
    """Sets a widget's style, also when it changes later."""
    if widget.property("look") != look:
        widget.setProperty("look", look)
        _apply_style_again(widget)


def make_default_button(button: QPushButton) -> None:
    """Lets Return press this button of a dialog, and fills it, so that the picture says so. Nothing
    else makes a default button.
    """
    button.setDefault(True)
    set_widget_look(button, "primary")


def set_widget_mark(widget: QWidget, mark: str, *, is_set: bool) -> None:
    """Sets or clears a property that the style sheet asks for."""
    if bool(widget.property(mark)) != is_set:
        widget.setProperty(mark, is_set)
        _apply_style_again(widget)


def _apply_style_again(widget: QWidget) -> None:
    # Otherwise Qt does it when it shows the widget.
    if widget.testAttribute(Qt.WidgetAttribute.WA_WState_Polished):
        style = widget.style()
        style.unpolish(widget)
        style.polish(widget)


@cache
def _load_shipped_fonts() -> None:
    for file in sorted((resources.resources_folder() / "fonts").glob("*.[ot]tf")):
        QFontDatabase.addApplicationFont(str(file))
