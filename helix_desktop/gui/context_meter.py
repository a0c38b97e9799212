"""Draws the context meter, which shows how full the model's window is and with what.

The composer and the inspector share one widget; rows of lists share one function.
"""

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from helix_desktop.engine.facts import ModelRole
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.state.moment import Moment
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_number, format_percent, tr, translate_name

MeterParts = Sequence[tuple[ContextKind, int]]


class ContextMeter(QWidget):
    """A bar with a part for each kind, in the order of `ContextKind`, on the background
    of the free window.
    """

    def __init__(self, theme: Theme, *, height: int = 5, parent: QWidget | None = None) -> None:
        super().__init__(parent, accessibleName=tr("Context"))
        self._theme = theme
        self._height = height
        self._parts: MeterParts = ()
        self._window = 0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.updateGeometry)
        theme.changed.connect(self.update)

    def show_meter_parts(
        self,
        parts: MeterParts,
        window: int,
        *,
        is_estimate: bool = False,
        counted: MeterParts = (),
    ) -> None:
        """Shows the parts. `window` is the model's context window in tokens. For `counted`,
        see `describe_meter`.
        """
        self._parts = tuple(parts)
        self._window = window
        description = describe_meter(parts, window, is_estimate=is_estimate, counted=counted)
        self.setAccessibleDescription(description)
        self.setToolTip(description)
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(80, self._theme.zoomed_pixels(self._height))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        height = self._theme.zoomed_pixels(self._height)
        bar = QRectF(0, (self.height() - height) / 2, self.width(), height)
        right_to_left = self.layoutDirection() == Qt.LayoutDirection.RightToLeft
        paint_meter_bar(
            painter, bar, self._parts, self._window, self._theme, right_to_left=right_to_left
        )


def paint_meter_bar(
    painter: QPainter,
    bar: QRectF,
    parts: MeterParts,
    window: int,
    theme: Theme,
    *,
    right_to_left: bool = False,
) -> None:
    """Draws the bar with round ends, and one pixel between two kinds."""
    radius = bar.height() / 2
    outline = QPainterPath()
    outline.addRoundedRect(bar, radius, radius)
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.fillPath(outline, theme.colour_of_token("free"))
    painter.setClipPath(outline)
    for segment in meter_segments(parts, window, bar.width()):
        if right_to_left:
            left = bar.right() - segment.start - segment.width
        else:
            left = bar.left() + segment.start
        rect = QRectF(left, bar.top(), segment.width, bar.height())
        painter.fillRect(rect, theme.fill_colour_of_kind(segment.kind))
    painter.restore()


@dataclass(frozen=True, slots=True)
class MeterSegment:
    """The part of the bar that a kind of context takes, in pixels from its beginning."""

    kind: ContextKind
    start: float
    width: float


def meter_segments(parts: MeterParts, window: int, bar_width: float) -> list[MeterSegment]:
    """Returns the segment of each part that is not empty. Together, they are no wider than the
    bar.
    """
    used_tokens = sum(tokens for _kind, tokens in parts)
    # A context that is too long for the window fills the whole bar.
    pixels_per_token = bar_width / max(window, used_tokens, 1)
    segments: list[MeterSegment] = []
    start = 0.0
    for kind, tokens in parts:
        if tokens <= 0:
            continue
        width = tokens * pixels_per_token
        # One pixel is left free between two segments.
        segments.append(MeterSegment(kind, start, max(width - 1, 1.0)))
        start += width
    return segments


def filled_window_percent(parts: MeterParts, window: int) -> int:
    if not window:
        return 0
    return round(100 * sum(tokens for _, tokens in parts) / window)


def has_unknown_window(state: Moment) -> bool:
    """Whether nobody has said how large the window of the conversation's model is."""
    model = state.settings.model_for_role(ModelRole.MAIN)
    return model is not None and model.window <= 0


def describe_context_of_other_agent(agent: str) -> str:
    """Says why no figures stand where those of a conversation usually do."""
    return tr(
        "{agent} keeps its own context. What it sends to its model is not known here.", agent=agent
    )


def describe_window_fill(parts: MeterParts, window: int) -> str:
    """Describes how full the window is: a percentage, or words if it is too full. Empty
    if that is unknown.
    """
    if not window:
        return ""
    if sum(tokens for _, tokens in parts) > window:
        return tr("too long for this model")
    return tr("{share} full", share=format_percent(filled_window_percent(parts, window) / 100))


def describe_meter(
    parts: MeterParts, window: int, *, is_estimate: bool = False, counted: MeterParts = ()
) -> str:
    """Describes the meter for a tooltip and screen readers. `is_estimate`: no figures
    were reported yet. `counted`: the size of each kind as all pages show it, if the
    model counts otherwise.
    """
    used = sum(tokens for _, tokens in parts)
    head = tr(
        "{used} of {window} tokens, {share}",
        used=format_token_count(used),
        window=format_token_count(window),
        share=describe_window_fill(parts, window),
    )
    if is_estimate:
        head = f"≈ {head}"
    lines = [head]
    for kind, tokens in counted or parts:
        if tokens:
            lines.append(f"{context_kind_name(kind)}: {format_token_count(tokens)}")
    difference = describe_count_difference(parts, counted, is_estimate=is_estimate)
    if difference is not None:
        lines.append(f"{difference.words}: {difference.figure}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class CountDifference:
    """The row that makes the sizes of all kinds add up to what is used."""

    words: str
    figure: str  # How many tokens more or fewer, such as "+548".


def colour_of_count_difference(theme: Theme) -> QColor:
    """The colour of that row, in lists and charts: it is of no kind, and not free either."""
    colour = QColor(theme.colour_of_token("faint"))
    colour.setAlpha(110)
    return colour


def describe_count_difference(
    parts: MeterParts, counted: MeterParts, *, is_estimate: bool
) -> CountDifference | None:
    """Describes how many tokens more or fewer the model counts than the sizes of all kinds add up
    to. None if both count the same. `is_estimate`: the model has not said yet what it counts.
    """
    if not counted:
        return None
    tokens_of_model = sum(tokens for _kind, tokens in parts)
    counted_tokens = sum(tokens for _kind, tokens in counted)
    difference = tokens_of_model - counted_tokens
    if difference == 0:
        return None
    if difference > 0:
        words = tr("These sizes are estimates; the model counts more")
        if is_estimate:
            words = tr("These sizes are estimates; the model probably counts more")
        return CountDifference(words, f"+{format_token_count(difference)}")
    words = tr("These sizes are estimates; the model counts fewer")
    if is_estimate:
        words = tr("These sizes are estimates; the model probably counts fewer")
    return CountDifference(words, f"−{format_token_count(-difference)}")


def context_kind_name(kind: ContextKind) -> str:
    return translate_name("kind of context", kind)


def format_token_count(tokens: float) -> str:
    """Formats a number of tokens in a few characters: 31, 4.8K, 128K, 2.91M."""
    if tokens < 1_000:
        return format_number(tokens)
    if tokens < 999_950:
        decimals = 0
        if round(tokens / 100) % 10:
            decimals = 1
        return format_number(tokens / 1_000, decimals) + "K"
    return format_number(tokens / 1_000_000, 2) + "M"


def round_tokens_as_shown(tokens: float) -> float:
    """Returns the number that `format_token_count` shows, to compute with what people can add up."""
    unit = token_rounding(tokens)
    return round(tokens / unit) * unit


def token_rounding(tokens: float) -> int:
    """Returns what the last digit that `format_token_count` shows stands for."""
    if tokens < 1_000:
        return 1
    if tokens < 999_950:
        return 100
    return 10_000


def describe_token_count(tokens: float) -> str:
    if tokens == 1:
        return tr("{n} token", n=1)
    return tr("{n} tokens", n=format_token_count(tokens))
