"""Tokens over the steps of a conversation, a line for each policy, and its folds as marks on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QPointF, QSize, Qt
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.lab.port import Course
from helix_desktop.gui.meter import short
from helix_desktop.gui.shared.folds import kind_words
from helix_desktop.gui.shared.plot import Plot, Pyramid
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.words import numeral, tr
from helix_desktop.values import dataclass

# Never colour alone: each policy's line is dashed in a way of its own.
DASHES: Mapping[str, Sequence[float]] = {
    "helix": (6, 3), "observational": (1.5, 2), "layered": (), "none": (8, 3, 1.5, 3),
}  # fmt: skip
WIDTH = 1.8
FAR = 1 << 40
KEYS = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Home: -FAR, Qt.Key.Key_End: FAR}


def pen_of(policy: str, theme: Theme) -> QPen:
    """The line of a policy: its colour and its dashes."""
    pen = QPen(theme.policy(policy), WIDTH)
    if dashes := DASHES.get(policy, ()):
        pen.setDashPattern(dashes)
    return pen


class Sample(QWidget):
    """A policy's line beside its name, in the legend."""

    def __init__(self, policy: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._policy, self._theme = policy, theme
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(self._theme.px(30), self._theme.px(12))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(pen_of(self._policy, self._theme))
        middle = self.height() / 2
        painter.drawLine(QPointF(0, middle), QPointF(self.width(), middle))


@dataclass(frozen=True, slots=True)
class _Line:
    policy: str
    course: Course
    pyramid: Pyramid
    kinds: Mapping[int, Sequence[str]]  # of the folds at a step


class Lines(Plot):
    """Arrow keys move the step that is pointed at, plus and minus zoom; both as the mouse does."""

    def __init__(self, names: Mapping[str, str], theme: Theme, parent: QWidget | None = None) -> None:
        """`names`: the policies in words."""
        super().__init__(theme, parent, height=200)
        self._names = names
        self._lines: Sequence[_Line] = ()
        self._window = 0
        self._shown = 0
        self.setAccessibleName(tr("Tokens by step"))

    def show_courses(self, courses: Mapping[str, Course], window: int) -> None:
        """One conversation under each policy."""
        self._lines = [_line(policy, course) for policy, course in courses.items()]
        self._window, self._hover, self._whole = window, -1, True
        self._shown += 1
        self._fit()
        self._describe()
        self.update()

    def words_at(self, step: int) -> str:
        """What each policy sent at a step, a line for each."""
        lines = [tr("Step {n} of {total}", n=numeral(step + 1), total=numeral(self._count))]
        for line in self._lines:
            if step < len(line.course.steps):
                name, tokens = self._names.get(line.policy, line.policy), short(line.course.steps[step])
                folds = [kind_words(FoldKind(kind)) for kind in line.kinds.get(step, ())]
                lines.append(" · ".join([tr("{name}: {tokens} tokens", name=name, tokens=tokens), *folds]))
        return "\n".join(lines)

    def _describe(self) -> None:
        at = self._hover if 0 <= self._hover < self._count else self._count - 1
        self.setAccessibleDescription(self.words_at(at) if at >= 0 else self._nothing())

    # --- what a plot asks for

    @property
    def _count(self) -> int:
        return max((len(line.course.steps) for line in self._lines), default=0)

    @property
    def _top(self) -> float:
        return max(max(line.course.steps, default=0) for line in self._lines) * 1.1 or 1.0

    def _content(self) -> object:
        return self._shown

    def _nothing(self) -> str:
        return tr("No requests were sent.")

    def _draw(self, painter: QPainter, top: float) -> None:
        self._draw_scale(painter, top)
        for line in self._lines:
            self._draw_line(painter, line.pyramid, top, pen_of(line.policy, self._theme))
        for line in self._lines:
            self._draw_marks(painter, line, top)

    def _draw_scale(self, painter: QPainter, top: float) -> None:
        painter.setFont(self._theme.font(11))
        for tokens in ticks(top):
            y = round(self._y(tokens, top)) + 0.5
            painter.setPen(QPen(self._theme.colour("line"), 1))
            painter.drawLine(QPointF(0, y), QPointF(self.width(), y))
            painter.setPen(self._theme.colour("faint"))
            painter.drawText(QPointF(4, y - 4), short(tokens))
        if self._window <= top:
            colours = self._theme.colour("danger"), self._theme.colour("danger")
            words = tr("{n}-token window", n=short(self._window))
            self._draw_level(painter, self._window, top, colours, " " * 14 + words)

    def _draw_marks(self, painter: QPainter, line: _Line, top: float) -> None:
        """One mark for some pixels at most."""
        taken, width = -10.0, self._theme.px(4)
        for step in line.kinds:
            x = self._x(step)
            if self._first - 1 <= step <= self._last + 1 and x - taken >= width:
                taken = x
                place = QPointF(x, self._y(line.course.steps[step], top))
                self._draw_mark(painter, place, self._theme.policy(line.policy), 3.5)

    def _draw_over(self, painter: QPainter, top: float) -> None:
        if 0 <= self._hover < self._count:
            here = [line for line in self._lines if self._hover < len(line.course.steps)]
            dots = [(line.course.steps[self._hover], self._theme.policy(line.policy)) for line in here]
            self._draw_pointer(painter, top, dots, self.words_at(self._hover))

    # --- hands

    def keyPressEvent(self, event: QKeyEvent) -> None:
        by = KEYS.get(Qt.Key(event.key()))
        if by is None or not self._count:
            super().keyPressEvent(event)
            return
        start = self._hover if self._hover >= 0 else self._count - 1 if by < 0 else -1
        self._hover = min(max(start + by, 0), self._count - 1)
        if not self._first <= self._hover <= self._last:
            half = (self._last - self._first) / 2
            self._show(self._hover - half, self._hover + half)
        self._describe()
        self.update()


def ticks(top: float) -> list[int]:
    """Round numbers up to the top, five at the most, without nought."""
    step = 1
    while top / step > 5:
        step *= 5 if str(step).startswith("1") else 2
    return list(range(step, int(top) + 1, step))


def _line(policy: str, course: Course) -> _Line:
    kinds: dict[int, list[str]] = {}
    for step, kind in sorted(course.folds):
        kinds.setdefault(step, []).append(kind)
    return _Line(policy, course, Pyramid(course.steps), kinds)
