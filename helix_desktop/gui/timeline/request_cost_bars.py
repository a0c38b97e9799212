"""Bars of what each request cost: read from the cache, new, written again, and the reply."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter

from helix_desktop.engine.request_changes import CauseKind
from helix_desktop.engine.request_costs import AVOIDABLE, CauseCost, RequestCost
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.common.step_plot import PlotScale
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import tr

HEIGHT = 0.3  # The bar of the most expensive request is this fraction of the plot's height.
WIDEST = 24  # The maximum width of a bar in pixels, however far apart the bars are.
# Bars wider than this many pixels get an edge, as the areas behind have the same colours.
NARROW = 8


class BarPart(IntEnum):
    """The parts of a bar, from the bottom up."""

    READ = 0
    NEW = 1
    AGAIN = 2
    REPLY = 3


COLOURS = {
    BarPart.READ: "faint",
    BarPart.NEW: "conversation",
    BarPart.AGAIN: "danger",
    BarPart.REPLY: "output",
}


@dataclass(frozen=True, slots=True)
class PlacedRequest:
    """A request, and the point of the chart that it belongs to."""

    point: int
    request: RequestCost


class RequestCostBars:
    """`seqs` are those of the chart's points. A request between steps belongs to the next point."""

    def __init__(self, requests: Sequence[RequestCost] = (), seqs: Sequence[int] = ()) -> None:
        self._placed: list[PlacedRequest] = []
        for request in requests:
            point = bisect_left(seqs, request.seq)
            if point < len(seqs):
                self._placed.append(PlacedRequest(point, request))
        self._highest_cost = max((placed.request.cost for placed in self._placed), default=0.0)

    def _requests_between(self, first_point: float, last_point: float) -> list[PlacedRequest]:
        begin = bisect_left(self._placed, first_point, key=_point_of_request)
        end = bisect_right(self._placed, last_point, key=_point_of_request)
        return self._placed[begin:end]

    def draw_cost_bars(self, painter: QPainter, theme: Theme, scale: PlotScale) -> None:
        """Draws a bar for each request, with what the parts of the request cost one on another.

        All bars are as wide as the two that stand closest allow. Where several requests share one
        place, only the dearest is drawn.
        """
        request_at_x = self._dearest_request_at_each_x(scale)
        bar_distance = WIDEST
        for x_before, x_after in pairwise(sorted(request_at_x)):
            bar_distance = min(bar_distance, x_after - x_before)
        painter.setPen(Qt.PenStyle.NoPen)
        if bar_distance > NARROW:
            painter.setPen(theme.colour_of_token("panel"))

        bar_width = max(1.0, bar_distance * 0.6)
        full_height = scale.area.height() * HEIGHT
        for x, request in request_at_x.items():
            bar_left = x - bar_distance * 0.3
            part_bottom = scale.area.bottom()
            for part, dollars in _dollars_by_bar_part(request).items():
                share = dollars / (self._highest_cost or 1.0)
                part_height = full_height * share
                part_top = part_bottom - part_height
                painter.setBrush(theme.colour_of_token(COLOURS[part]))
                painter.drawRect(QRectF(bar_left, part_top, bar_width, part_height))
                part_bottom = part_top

    def _dearest_request_at_each_x(self, scale: PlotScale) -> dict[int, RequestCost]:
        """Of several requests in one pixel, only the most expensive can be drawn."""
        request_at_x: dict[int, RequestCost] = {}
        for placed in self._requests_between(scale.first, scale.last):
            x = round(scale.x_of_point(placed.point))
            request_there = request_at_x.get(x)
            if request_there is None or request_there.cost < placed.request.cost:
                request_at_x[x] = placed.request
        return request_at_x

    def names_and_colours_of_parts(self) -> Sequence[tuple[str, str]]:
        """The name and colour of each part of a bar, from the bottom up; empty without bars."""
        if not self._placed:
            return ()
        return [(_name_bar_part(part), COLOURS[part]) for part in BarPart]

    def describe_costs(self, point: int) -> str:
        """Describes the cost of a point's requests, one line for each part, if any."""
        requests = [placed.request for placed in self._requests_between(point, point)]
        if not requests:
            return ""
        total = sum(request.cost for request in requests)
        lines = [tr("{cost} for this request", cost=format_dollars(total))]
        causes: list[CauseCost] = []
        for request in requests:
            causes += request.causes
        for part in BarPart:
            causes_of_part = [cause for cause in causes if _bar_part_of_cause(cause) == part]
            if causes_of_part:
                lines.append(_describe_bar_part(part, causes_of_part))
        return "\n".join(lines)


def _point_of_request(placed: PlacedRequest) -> int:
    return placed.point


def _name_bar_part(part: BarPart) -> str:
    names = {
        BarPart.READ: tr("read from the cache"),
        BarPart.NEW: tr("new content"),
        BarPart.AGAIN: tr("written again"),
        BarPart.REPLY: tr("reply"),
    }
    return names[part]


def _describe_bar_part(part: BarPart, causes: Sequence[CauseCost]) -> str:
    dollars = sum(cause.cost for cause in causes)
    words = f"{_name_bar_part(part)}: {format_dollars(dollars)}"
    tokens = sum(cause.tokens for cause in causes)
    if tokens:
        words += f" · {format_token_count(tokens)}"
    return words


def _bar_part_of_cause(cause: CauseCost) -> BarPart:
    kind = cause.cause.kind
    if kind in AVOIDABLE or kind is CauseKind.FOLD:
        return BarPart.AGAIN
    if kind is CauseKind.READ:
        return BarPart.READ
    if kind is CauseKind.REPLY:
        return BarPart.REPLY
    return BarPart.NEW


def _dollars_by_bar_part(request: RequestCost) -> dict[BarPart, float]:
    dollars = dict.fromkeys(BarPart, 0.0)
    for cause in request.causes:
        dollars[_bar_part_of_cause(cause)] += cause.cost
    return dollars
