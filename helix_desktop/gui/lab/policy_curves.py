"""Tokens over the steps of a conversation, a line for each policy, and its folds as marks on it."""

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QPointF, QSize, Qt
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from helix_desktop.engine.facts import FoldKind
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.lab.replay_lab_port import PolicyOutcome
from helix_desktop.gui.shared.fold_descriptions import describe_fold_kind
from helix_desktop.gui.shared.step_plot import MinMaxPyramid, StepPlot, compute_axis_ticks
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_number, tr

# Each policy has its own dashes, so that colour is never the only difference.
DASHES: Mapping[str, Sequence[float]] = {
    "helix": (6, 3), "observational": (1.5, 2), "layered": (), "keeps_most": (10, 2), "none": (8, 3, 1.5, 3),
}  # fmt: skip
WIDTH = 1.8
WHOLE_PLOT = 1 << 40
KEY_STEPS = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Home: -WHOLE_PLOT, Qt.Key.Key_End: WHOLE_PLOT}


def build_policy_pen(policy: str, theme: Theme) -> QPen:
    """The line of a policy: its colour and its dashes."""
    pen = QPen(theme.colour_of_policy(policy), WIDTH)
    if dashes := DASHES.get(policy, ()):
        pen.setDashPattern(dashes)
    return pen


class PolicyPenSample(QWidget):
    """A policy's line beside its name, in the legend."""

    def __init__(self, policy: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._policy, self._theme = policy, theme
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(self._theme.zoomed_pixels(30), self._theme.zoomed_pixels(12))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(build_policy_pen(self._policy, self._theme))
        middle = self.height() / 2
        painter.drawLine(QPointF(0, middle), QPointF(self.width(), middle))


@dataclass(frozen=True, slots=True)
class _PolicyCurve:
    outcome: PolicyOutcome
    pyramid: MinMaxPyramid
    kinds: Mapping[int, Sequence[str]]  # The kinds of folds at each step.


class PolicyCurves(StepPlot):
    """A curve of tokens for each policy. Arrow keys move the highlighted step, plus and minus zoom, as the mouse does."""

    def __init__(self, names: Mapping[str, str], theme: Theme, parent: QWidget | None = None) -> None:
        """`names`: the policies in words."""
        super().__init__(theme, parent, height=200)
        self._names = names
        self._lines: Sequence[_PolicyCurve] = ()
        self._window = 0
        self._shown_times = 0
        self.setAccessibleName(tr("Tokens by step"))

    def plot_policies(self, outcomes: Sequence[PolicyOutcome], window: int) -> None:
        self._lines = [_build_policy_curve(outcome) for outcome in outcomes]
        self._window, self._hover, self._whole = window, -1, True
        self._shown_times += 1
        self._keep_span_in_range()
        self._update_curves_description()
        self.update()

    def words_at(self, step: int) -> str:
        """What each policy sent at a step, a line for each."""
        lines = [tr("Step {n} of {total}", n=format_number(step + 1), total=format_number(self._count_points))]
        for line in self._lines:
            if step < len(line.outcome.steps):
                name, tokens = (
                    self._names.get(line.outcome.policy, line.outcome.policy),
                    format_token_count(line.outcome.steps[step]),
                )
                folds = [describe_fold_kind(FoldKind(kind)) for kind in line.kinds.get(step, ())]
                lines.append(" · ".join([tr("{name}: {tokens} tokens", name=name, tokens=tokens), *folds]))
        return "\n".join(lines)

    def _update_curves_description(self) -> None:
        at = self._hover if 0 <= self._hover < self._count_points else self._count_points - 1
        self.setAccessibleDescription(self.words_at(at) if at >= 0 else self._empty_plot_text())

    @property
    def _count_points(self) -> int:
        return max((len(line.outcome.steps) for line in self._lines), default=0)

    @property
    def _top_tokens(self) -> float:
        return max(max(line.outcome.steps, default=0) for line in self._lines) * 1.1 or 1.0

    def _plot_cache_key(self) -> object:
        return self._shown_times

    def _empty_plot_text(self) -> str:
        return tr("No requests were sent.")

    def _draw_plot_background(self, painter: QPainter, top: float) -> None:
        self._draw_token_scale(painter, top)
        for line in self._lines:
            self._draw_line(painter, line.pyramid, top, build_policy_pen(line.outcome.policy, self._theme))
        for line in self._lines:
            self._draw_fold_marks(painter, line, top)

    def _draw_token_scale(self, painter: QPainter, top: float) -> None:
        painter.setFont(self._theme.build_font(11))
        for tokens in compute_axis_ticks(top):
            y = round(self._y_of_token_count(tokens, top)) + 0.5
            painter.setPen(QPen(self._theme.colour_of_token("line"), 1))
            painter.drawLine(QPointF(0, y), QPointF(self.width(), y))
            painter.setPen(self._theme.colour_of_token("faint"))
            painter.drawText(QPointF(4, y - 4), format_token_count(tokens))
        if self._window <= top:
            colours = self._theme.colour_of_token("danger"), self._theme.colour_of_token("danger")
            words = tr("{n}-token window", n=format_token_count(self._window))
            self._draw_level(painter, self._window, top, colours, " " * 14 + words)

    def _draw_fold_marks(self, painter: QPainter, line: _PolicyCurve, top: float) -> None:
        """Draws at most one mark every few pixels."""
        taken, width = -10.0, self._theme.zoomed_pixels(4)
        for step in line.kinds:
            x = self._pixel_x_of_point(step)
            if self._first - 1 <= step <= self._last + 1 and x - taken >= width:
                taken = x
                place = QPointF(x, self._y_of_token_count(line.outcome.steps[step], top))
                self._draw_mark(painter, place, self._theme.colour_of_policy(line.outcome.policy), 3.5)

    def _draw_choice_and_pointer(self, painter: QPainter, top: float) -> None:
        if 0 <= self._hover < self._count_points:
            here = [line for line in self._lines if self._hover < len(line.outcome.steps)]
            dots = [
                (line.outcome.steps[self._hover], self._theme.colour_of_policy(line.outcome.policy)) for line in here
            ]
            self._draw_pointer(painter, top, dots, self.words_at(self._hover))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        by = KEY_STEPS.get(Qt.Key(event.key()))
        if by is None or not self._count_points:
            super().keyPressEvent(event)
            return
        start = self._hover if self._hover >= 0 else self._count_points - 1 if by < 0 else -1
        self._hover = min(max(start + by, 0), self._count_points - 1)
        if not self._first <= self._hover <= self._last:
            half = (self._last - self._first) / 2
            self._show_point_span(self._hover - half, self._hover + half)
        self._update_curves_description()
        self.update()


def _build_policy_curve(outcome: PolicyOutcome) -> _PolicyCurve:
    kinds: dict[int, list[str]] = {}
    for step, kind in sorted(outcome.folds):
        kinds.setdefault(step, []).append(kind)
    return _PolicyCurve(outcome, MinMaxPyramid(outcome.steps), kinds)
