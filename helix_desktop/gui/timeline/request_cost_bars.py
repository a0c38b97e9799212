"""Bars of what each request cost: read from the cache, new, written again, and the reply."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter

from helix_desktop.engine.request_changes import CauseKind
from helix_desktop.engine.request_costs import AVOIDABLE, CauseCost, RequestCost
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.common.step_plot import PlotScale
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import tr

HEIGHT = 0.3  # The bar of the most expensive request is this fraction of the plot's height.
WIDEST = 24  # The maximum width of a bar in pixels, however far apart the bars are.
NARROW = (
    8  # Bars wider than this many pixels get an edge, as the areas behind have the same colours.
)
COLOURS = (
    "faint",
    "conversation",
    "danger",
    "output",
)  # The colours of a bar's four parts, from the bottom up.
READ, NEW, AGAIN, REPLY = range(4)


class RequestCostBars:
    """`seqs` are those of the chart's points. A request between steps belongs to the next point."""

    def __init__(self, requests: Sequence[RequestCost] = (), seqs: Sequence[int] = ()) -> None:
        placed = [(bisect_left(seqs, one.seq), one) for one in requests]
        self._requests = [(point, one) for point, one in placed if point < len(seqs)]
        self._points = [point for point, _ in self._requests]
        self._dearest = max((one.cost for _, one in self._requests), default=0.0)

    def draw_cost_bars(self, painter: QPainter, theme: Theme, scale: PlotScale) -> None:
        """Draws the bars. Of several requests in one pixel, the most expensive is drawn."""
        first, last = bisect_left(self._points, scale.first), bisect_right(self._points, scale.last)
        dearest: dict[int, RequestCost] = {}
        for point, request in self._requests[first:last]:
            x = round(scale.x_of_point(point))
            if x not in dearest or dearest[x].cost < request.cost:
                dearest[x] = request
        apart = min([WIDEST, *(after - before for before, after in pairwise(sorted(dearest)))])
        painter.setPen(theme.colour_of_token("panel") if apart > NARROW else Qt.PenStyle.NoPen)
        for x, request in dearest.items():
            bottom = scale.area.bottom()
            for dollars, colour in zip(_dollars_by_bar_part(request), COLOURS, strict=True):
                height = scale.area.height() * HEIGHT * dollars / (self._dearest or 1.0)
                bar = QRectF(x - apart * 0.3, bottom - height, max(1.0, apart * 0.6), height)
                painter.setBrush(theme.colour_of_token(colour))
                painter.drawRect(bar)
                bottom -= height

    def names_and_colours_of_parts(self) -> Sequence[tuple[str, str]]:
        """The name and colour of each part of a bar, from the bottom up; empty without bars."""
        names = (tr("read from the cache"), tr("new content"), tr("written again"), tr("reply"))
        return tuple(zip(names, COLOURS, strict=True)) if self._requests else ()

    def describe_costs(self, point: int) -> str:
        """Describes the cost of a point's requests, one line for each part, if any."""
        first, last = bisect_left(self._points, point), bisect_right(self._points, point)
        if not (requests := [one for _, one in self._requests[first:last]]):
            return ""
        lines = [
            tr("{cost} for this request", cost=format_dollars(sum(one.cost for one in requests)))
        ]
        for group, (name, _) in enumerate(self.names_and_colours_of_parts()):
            causes = [
                one
                for request in requests
                for one in request.causes
                if _bar_part_of_cause(one) == group
            ]
            if causes:
                tokens, dollars = sum(one.tokens for one in causes), sum(one.cost for one in causes)
                words = f"{name}: {format_dollars(dollars)}"
                lines.append(f"{words} · {format_token_count(tokens)}" if tokens else words)
        return "\n".join(lines)


def _bar_part_of_cause(one: CauseCost) -> int:
    kind = one.cause.kind
    if kind in AVOIDABLE or kind is CauseKind.FOLD:
        return AGAIN
    return {CauseKind.READ: READ, CauseKind.REPLY: REPLY}.get(kind, NEW)


def _dollars_by_bar_part(request: RequestCost) -> list[float]:
    dollars = [0.0] * len(COLOURS)
    for one in request.causes:
        dollars[_bar_part_of_cause(one)] += one.cost
    return dollars
