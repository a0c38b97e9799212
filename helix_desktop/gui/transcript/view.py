"""The chat as one scroll area that draws its items itself: what is not in sight costs nothing.

Three things never happen: a jump of what the reader looks at when something above changes its height; an end of
following but by the reader's own gesture; a paint that waits for a long text.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from itertools import chain

from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QAccessible, QPainter, QPaintEvent, QPen, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QAbstractScrollArea, QAbstractSlider, QFrame, QWidget

from helix_desktop.engine.events import (
    Answered,
    Asked,
    CallMoved,
    Event,
    FactAppended,
    StateChanged,
    Streamed,
    ToolShowed,
)
from helix_desktop.engine.facts import ModelReplied, Text
from helix_desktop.engine.view import State
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.bars import CallBox
from helix_desktop.gui.transcript.boxes import Box
from helix_desktop.gui.transcript.cards import CardBox, retrying
from helix_desktop.gui.transcript.column import Column, Drawn, moved
from helix_desktop.gui.transcript.content import Content
from helix_desktop.gui.transcript.drawing import NO_MARKS, Ink, Marks
from helix_desktop.gui.transcript.finding import Finding
from helix_desktop.gui.transcript.item import ItemKind
from helix_desktop.gui.transcript.item_layout import Laid
from helix_desktop.gui.transcript.page import Page
from helix_desktop.gui.transcript.projection import Items
from helix_desktop.gui.transcript.selection import Selection
from helix_desktop.gui.transcript.stack import Spot
from helix_desktop.gui.transcript.tool_lines import call_line
from helix_desktop.gui.words import tr

COLUMN = 720
MARGIN = 24
BUDGET = 0.006
SLICE = 0.004
LETTING_GO = 0.001
STEP = 40
DESCRIBED = 4_000
MANY = 1_000  # facts: more are read in a thread
EDGE = 4  # pixels by which something may be drawn outside of its place

_FETCHING = frozenset({ItemKind.CALL, ItemKind.USER})


class Canvas(QAbstractScrollArea):
    """Drawing and scrolling; `TranscriptView` adds what a person does with it."""

    following_changed = Signal(bool)
    answered = Signal(str)

    def __init__(self, theme: Theme, content: Content, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self.items = Items()
        self.selection = Selection()
        self.finding: Finding | None = None
        self.current = -1
        self._content = content
        self._follow = True
        self._moving = False
        self._near: Box | None = None
        self._spot: tuple[int, Spot] | None = None
        self.over: QWidget | None = None  # a button over the lower edge
        self._drawn: Drawn = {}
        self._floated = QRect()  # where something was drawn over the items
        self.column = Column(Page(Ink(theme), float(COLUMN), self.items, content, time.time))
        self._ready: Column | None = None
        self._left: Iterator[None] = iter(())  # conversations that are let go of
        self._letting_go = QTimer(self, interval=0)
        self._letting_go.timeout.connect(self._let_go)
        self._later = QTimer(self, interval=0, singleShot=True)
        self._later.timeout.connect(self._go_on)
        self._describing = QTimer(self, interval=400, singleShot=True)
        self._describing.timeout.connect(self._describe)
        self._clock = QTimer(self, interval=100)
        self._clock.timeout.connect(self._tick)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalScrollBar().setSingleStep(STEP)
        self.verticalScrollBar().actionTriggered.connect(self._gesture)
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setAccessibleName(tr("Conversation"))
        theme.changed.connect(self._restyled)
        content.arrived.connect(self._arrived)
        content.drawn.connect(self._formulas_drawn)

    # --- what is shown

    def open(self, history: State) -> None:
        """Show a conversation, from its end."""
        ready, self._ready = self._ready, None
        if ready is None or ready.page.items.history is not history or ready.page.ink is not self.column.page.ink:
            ready = self._column_of(history)
        self._left = chain(self._left, self.items.let_go())
        self._letting_go.start()
        self.column, self.items = ready, ready.page.items
        for recorded in history.facts[self.items.told :]:
            self.column.apply(self.items.advance(recorded))
        self.selection.clear()
        self.finding, self.current, self._spot, self._near = None, -1, None, None
        self._fit_width()
        self._set_following(following=True)
        self._refresh()

    def _let_go(self) -> None:
        until = time.perf_counter() + LETTING_GO
        for _ in self._left:
            if time.perf_counter() > until:
                return
        self._letting_go.stop()

    async def prepare(self, history: State) -> None:
        """Read a long history in a thread, for `open`."""
        if len(history.facts) > MANY:
            self._ready = await asyncio.to_thread(self._column_of, history)
            gc.freeze()  # so many items that last are not looked through again at every collection

    def _column_of(self, history: State) -> Column:
        items, old = Items(history), self.column.page
        items.extend(history.facts[:])
        return Column(Page(old.ink, old.width, items, self._content, old.now))

    def hear(self, events: Sequence[Event]) -> None:
        """What has happened since the last time."""
        place = self.place()
        for event in events:
            self._heard(event)
        self._run_clock()
        if self.isVisible() or not self._follow:
            self._refresh(self._again_at(place), anew=False)
        appended = (event.recorded.fact for event in events if isinstance(event, FactAppended))
        for answer in filter(None, (_spoken(fact) for fact in appended if isinstance(fact, ModelReplied))):
            self.answered.emit(answer)

    def _heard(self, event: Event) -> None:
        items, apply, now = self.items, self.column.apply, self.column.page.now
        match event:
            case FactAppended(recorded):
                apply(items.advance(recorded))
            case Streamed(_, delta):
                apply(items.stream(delta, now()))
            case ToolShowed(_, call, text):
                apply(items.show(call, text))
            case CallMoved(_, call, stage):
                apply(items.moved(call, stage, now()))
            case StateChanged(_, running):
                apply(items.state(running))
            case Asked(_, number, question):
                apply(items.asked(number, question.call.id))
            case Answered(_, number):
                apply(items.answered(number, now()))

    def showEvent(self, event: QShowEvent) -> None:
        """While it is hidden and follows the end, nothing is laid out."""
        super().showEvent(event)
        self._refresh()

    @property
    def following(self) -> bool:
        return self._follow

    def jump_to_end(self) -> None:
        self._set_following(following=True)
        self._refresh()

    def place(self) -> tuple[int, int, bool]:
        """Where the reader is: a fact, how far below its top, and whether the end is followed."""
        y = self.verticalScrollBar().value()
        index = self.column.at(y)
        if index < 0 or self._follow:
            return 0, 0, True
        seq = self.items.all[index].seq
        return seq, y - self.column.heights.top(self.items.at_seq(seq)), False

    def _again_at(self, place: tuple[int, int, bool]) -> int | None:
        """Where the view has to stand so that the reader sees what was there before; None where the end is followed."""
        seq, below, follow = place
        index = self.items.at_seq(seq)
        return None if follow or index < 0 or not seq else self.column.heights.top(index) + below

    def go_to(self, place: tuple[int, int, bool]) -> None:
        seq, below, follow = place
        index = self.items.at_seq(seq)
        if follow or index < 0:
            self.jump_to_end()
            return
        self._set_following(following=False)
        for number in range(index, len(self.items.all)):
            self.column.whole(number)
            if self.items.all[number].seq != seq:
                break
        self._refresh(self.column.heights.top(index) + below, anchor=index)

    def show_index(self, index: int, offset: int = 0) -> None:
        """Bring an item, or a place in it, into sight, a third below the top."""
        if not 0 <= index < len(self.items.all):
            return
        if (change := self.items.reveal(index)) is not None:
            self.column.apply(change)
        self._set_following(following=False)
        inner = self.column.whole(index).caret(offset).top() if offset else 0
        wanted = int(self.column.top(index) + inner - self.viewport().height() / 3)
        self._refresh(max(0, wanted), anchor=index)

    # --- keeping still

    def _refresh(self, y: int | None = None, *, anchor: int = -1, anew: bool = True) -> None:
        """Lay out what is in sight, for a moment, put the view where it belongs, and draw: all of it `anew`, or what differs."""
        complete = True
        height = self.viewport().height()
        if len(self.column.heights):
            y = self.verticalScrollBar().value() if y is None else y
            until = time.perf_counter() + BUDGET
            if self._follow:
                y, complete = self._settle_at_end(height, until)
            else:
                y = min(y, max(0, self.column.total - height))
                y, complete = self.column.settle(y, height, until, anchor=anchor)
            self._describing.start()
            if not complete or not self._later.isActive():
                self._later.start()
        self._place(y or 0)
        self._draw(anew=anew)

    def _draw(self, *, anew: bool) -> None:
        """What only stands elsewhere now is moved, not drawn again."""
        viewport = self.viewport()
        before, self._drawn = self._drawn, self._standing()
        marked = not self.selection.empty or self.finding is not None
        whole = self.devicePixelRatioF().is_integer()  # else a place of the view has no edge on the screen
        found = moved(before, self._drawn) if whole and not (anew or marked) else None
        if found is None:
            viewport.update()
            return
        by, places = found
        free = viewport.rect()
        if self.over is not None and self.over.isVisible():
            free.setBottom(self.over.y() - 1)  # Qt moves nothing that something else lies over
        if by:
            viewport.scroll(0, by, free)
            viewport.update(0, free.bottom() + 1, viewport.width(), viewport.height())
        for top, bottom in places:
            viewport.update(0, int(top) - EDGE, viewport.width(), int(bottom - top) + 2 * EDGE + 1)
        was, floats = self._floated.translated(0, by), self._floating()
        if was != floats:
            viewport.update(was)
            viewport.update(floats)

    def _standing(self) -> Drawn:
        return self.column.drawn(self.verticalScrollBar().value(), self.viewport().height())

    def _floating(self) -> QRect:
        """Where something is to be drawn over the items."""
        return QRect()

    def _describe(self) -> None:
        """What is in sight, for a screen reader."""
        if QAccessible.isActive():
            y, height = self.verticalScrollBar().value(), self.viewport().height()
            laid = [self.column.known(index) for index in self.column.shown(y, height)]
            texts = [each.text(0, each.length) for each in laid if each is not None]
            self.setAccessibleDescription("\n".join(texts)[:DESCRIBED])

    def _settle_at_end(self, height: int, until: float) -> tuple[int, bool]:
        """From the last item upwards, so that the end is right at once."""
        for _ in range(8):
            y = max(0, self.column.total - height)
            before = self.column.total
            _, complete = self.column.settle(y, height, until)
            if self.column.total == before or time.perf_counter() > until:
                break
        return max(0, self.column.total - height), complete

    def _place(self, y: int) -> None:
        bar = self.verticalScrollBar()
        height = self.viewport().height()
        self._moving = True
        bar.setRange(0, max(0, self.column.total - height) if len(self.column.heights) else 0)
        bar.setPageStep(height)
        bar.setValue(y)
        self._moving = False

    def _go_on(self) -> None:
        """A slice of what can be done while nothing else is: the rest in sight, colours, the next screen."""
        y, height = self.verticalScrollBar().value(), self.viewport().height()
        until = time.perf_counter() + SLICE
        if not all(self._complete(index) for index in self.column.shown(y, height)):
            self._refresh(anew=False)
            return
        for index in self.column.shown(y, height):
            laid = self.column.known(index)
            if laid is not None and laid.colourless:
                if laid.colour(until):
                    self.viewport().update()
                self._later.start()
                return
        if self._follow:
            return
        y, ready = self.column.prepare(y, height, until)
        self._place(y)
        if not ready:
            self._later.start()

    def _complete(self, index: int) -> bool:
        laid = self.column.known(index)
        return laid is not None and laid.done

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        if not self._moving:
            self._refresh(anew=False)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_width()
        self._refresh()

    def _fit_width(self) -> None:
        width = float(min(self.theme.px(COLUMN), max(200, self.width() - 2 * MARGIN)))
        if width != self.column.page.width:
            self.column.restyle(self.column.page.ink, width)

    def _restyled(self) -> None:
        page = self.column.page
        self.column.restyle(Ink(self.theme), page.width)
        self._fit_width()
        self.column.load()
        self._refresh()

    def _arrived(self) -> None:
        """Content that was missing has come: lay out again what waits for it."""
        self.column.drop_all(_FETCHING)
        self._refresh()

    def _formulas_drawn(self) -> None:
        self.column.drop_waiting()
        self._refresh()

    def _gesture(self, action: int) -> None:
        """Only what the reader does ends the following of the end, or begins it again."""
        bar = self.verticalScrollBar()
        if action != QAbstractSlider.SliderAction.SliderNoAction.value:
            self._set_following(following=bar.sliderPosition() >= bar.maximum() - 2)

    def _set_following(self, *, following: bool) -> None:
        if following != self._follow:
            self._follow = following
            self.following_changed.emit(following)

    # --- time

    def _run_clock(self) -> None:
        if self.items.running_calls() or self.items.waiting >= 0:
            self._clock.start()
        else:
            self._clock.stop()

    def _tick(self) -> None:
        """The elapsed time of what runs."""
        for index in self.items.running_calls():
            laid = self.column.known(index)
            line = next((box for box in laid.boxes[:2] if isinstance(box, CallBox)), None) if laid is not None else None
            if line is not None:
                line.say(call_line(self.items.call(index), self.column.page.now()))
        laid = self.column.known(self.items.waiting)
        if laid is not None and laid.boxes and isinstance(laid.boxes[0], CardBox):
            laid.boxes[0].say(retrying(self.items.until - self.column.page.now()))
        self.viewport().update()

    # --- drawing

    @property
    def left(self) -> int:
        return round((self.width() - self.column.page.width) / 2)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        for place in event.region():  # type: ignore[attr-defined]  # its rectangles
            painter.setClipRect(place)
            self._paint(painter, place)
            if place == self.viewport().rect():
                self._drawn = self._standing()  # more may have been laid out meanwhile
        painter.end()

    def _paint(self, painter: QPainter, place: QRect) -> None:
        """What stands at a place of the viewport."""
        painter.fillRect(place, self.theme.colour("panel"))
        y, first, height = self.verticalScrollBar().value(), place.top() - EDGE, place.height() + 2 * EDGE
        for index in self.column.shown(y + first, height):
            laid = self.column.known(index)
            if laid is None or not laid.boxes:
                continue
            top = self.column.top(index) - y
            painter.save()
            painter.translate(self.left, top)
            marks, near = self._marks(index, laid), self._near_of(index, laid)
            laid.paint(painter, first - top, first + height - top, marks, near)
            if self._spot is not None and self._spot[0] == index:
                self._paint_focus(painter, laid)
            painter.restore()

    def _near_of(self, index: int, laid: Laid) -> Box | None:
        """The box the keyboard is on, else the one under the pointer: it shows what can be done with it."""
        if (
            self._spot is not None
            and self._spot[0] == index
            and self.hasFocus()
            and 0 <= self._spot[1].box < len(laid.boxes)
        ):
            return laid.boxes[self._spot[1].box]
        return self._near

    def _marks(self, index: int, laid: Laid) -> Marks:
        selected = self.selection.within(index, laid.length)
        if self.finding is None or not self.finding.needle:
            return Marks(selected) if selected[1] > selected[0] else NO_MARKS
        found = laid.found(self.finding.needle)
        current = -1
        if self.current >= 0 and self.current < len(self.finding.places) and self.finding.places[self.current] == index:
            current = min(self.finding.within(self.current), len(found) - 1)
        return Marks(selected, found, current) if found or selected[1] > selected[0] else NO_MARKS

    def _paint_focus(self, painter: QPainter, laid: Laid) -> None:
        if self._spot is None or not self.hasFocus() or self._spot[1] not in laid.spots():
            return
        _, place = laid.spot(self._spot[1])
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self.theme.colour("accent"), 2))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(place.adjusted(-1, -1, 1, 1), 6, 6)

    # --- places

    def item_at(self, point: QPointF | QPoint) -> tuple[int, QPointF]:
        """The item under a point of the viewport, and the point as that item sees it."""
        y = int(point.y()) + self.verticalScrollBar().value()
        index = self.column.at(y)
        if index < 0:
            return -1, QPointF()
        return index, QPointF(point.x() - self.left, y - self.column.top(index))

    def rect_of(self, index: int, inner: QRectF) -> QRectF:
        """A place in an item, in the viewport."""
        return inner.translated(self.left, self.column.top(index) - self.verticalScrollBar().value())


def _spoken(fact: ModelReplied) -> str:
    return "\n".join(part.text for part in fact.parts if isinstance(part, Text))
