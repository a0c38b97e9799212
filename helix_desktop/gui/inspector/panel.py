"""The context inspector: how full the window is and with what, every block of it, at this step or at any earlier one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QCursor, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QMenu, QPushButton, QSlider, QVBoxLayout, QWidget

from helix_desktop.engine import budget, policy
from helix_desktop.engine.blocks import Kind
from helix_desktop.engine.events import Event, FactAppended, Folding, Measured
from helix_desktop.engine.facts import FoldKind, ModelReplied, PartRef, Recorded, Span
from helix_desktop.engine.history.ledger import saw_of
from helix_desktop.engine.history.moment import Moment
from helix_desktop.engine.policy import Policy
from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.inspector import figures
from helix_desktop.gui.inspector.figures import Part
from helix_desktop.gui.inspector.request import RequestDialog, described, forms
from helix_desktop.gui.inspector.rows import FigureBox, MeterBox, heading
from helix_desktop.gui.meter import kind_name, short
from helix_desktop.gui.ports import Session, Workbench
from helix_desktop.gui.shared.figures import clock, money
from helix_desktop.gui.shared.folds import kind_words
from helix_desktop.gui.shared.past import Past, source
from helix_desktop.gui.theme import Theme, set_look
from helix_desktop.gui.timeline.now import FoldNow
from helix_desktop.gui.transcript.bars import HeadBox
from helix_desktop.gui.transcript.boxes import Box, Key, More, Toggle, note
from helix_desktop.gui.transcript.drawing import Ink
from helix_desktop.gui.transcript.intents import OpenEntry, OpenFold, ShowInChat
from helix_desktop.gui.views.boxes_view import BoxesView
from helix_desktop.gui.words import count, numeral, tr

SOON = 120
SLICE = 0.003
AT_ONCE = 128
SHOWN_BLOCKS = 300
_BLOCKS: Key = ("blocks",)
_REQUEST: Key = ("request",)
_FOLD: Key = ("fold",)


class Inspector(QWidget):
    """`wanted` carries values of `wants`."""

    wanted = Signal(object)
    looked_at = Signal(object)  # the moment: the seq of its newest fact, None for now

    def __init__(self, theme: Theme, doing: Doing, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._doing = doing
        self._session: Session | None = None
        self._bench: Workbench | None = None
        self._steps: list[Recorded] = []
        self._unread: Iterator[Recorded] = iter(())
        self._read_to = 0
        self._parts: list[Part] = []
        self._folding: dict[FoldKind, str] = {}
        self._open: set[Key] = set()
        self._past = Past(doing, self)
        self.view = BoxesView(theme, self, surface="window", pad=(16, 16))
        self.view.setAccessibleName(tr("Context"))
        self.view.acted.connect(self._act)
        self.slider = QSlider(Qt.Orientation.Horizontal, self)
        self.slider.setAccessibleName(tr("Step"))
        self._step = QLabel(self)
        set_look(self._step, "faint")
        self._now = QPushButton(tr("Now"), self)
        set_look(self._now, "chip")
        self._lay_out()
        self._soon = QTimer(self, interval=SOON, singleShot=True)
        self._soon.timeout.connect(self._refresh)
        self._reading = QTimer(self, interval=0)
        self._reading.timeout.connect(self._read_on)
        self.slider.valueChanged.connect(lambda _: self._soon.start())
        self._now.clicked.connect(self._to_now)
        set_look(self, "inspector")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)

    def _lay_out(self) -> None:
        foot = QVBoxLayout()
        self._theme.fit(self, foot.setContentsMargins, 16, 8, 16, 12)
        self._theme.fit(self, foot.setSpacing, 4)
        row = QHBoxLayout()
        row.addWidget(self._step, 1)
        row.addWidget(self._now)
        foot.addLayout(row)
        foot.addWidget(self.slider)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.view, 1)
        column.addLayout(foot)
        self._theme.fit(self, self.setMinimumWidth, 220)

    # --- what the window calls

    def open(self, session: Session | None, bench: Workbench | None = None) -> None:
        """Show a conversation as it is now."""
        self._session, self._bench = session, bench
        self._steps, self._folding = [], {}
        facts = session.conversation.state.facts if session is not None else []
        self._past.forget()
        self._unread, self._read_to = iter(facts), 0
        self._set_slider(at_end=True)
        self._reading.start()

    def hear(self, events: Sequence[Event]) -> None:
        """What has happened since the last time."""
        for event in events:
            if isinstance(event, FactAppended) and self._session is not None:
                new = event.recorded.seq > self._read_to and not self._reading.isActive()  # else a slice reads it
                if new and event.recorded.conversation == self._session.id:
                    self._take(event.recorded)
            elif isinstance(event, Folding):
                self._note_folding(event)
        told = any(isinstance(event, FactAppended | Folding | Measured) for event in events)
        if told and self.isVisible() and not self._soon.isActive():
            self._soon.start()

    def showEvent(self, event: QShowEvent) -> None:
        """While it is hidden nothing is worked out."""
        super().showEvent(event)
        self._soon.start()

    def _note_folding(self, event: Folding) -> None:
        if event.done:
            self._folding.pop(event.kind, None)
        else:
            self._folding[event.kind] = event.why

    # --- reading

    def _read_on(self) -> None:
        until = time.perf_counter() + SLICE
        for number, recorded in enumerate(self._unread):
            self._take(recorded)
            if number % AT_ONCE == AT_ONCE - 1 and time.perf_counter() > until:
                return
        self._reading.stop()
        self._refresh()

    def _take(self, recorded: Recorded) -> None:
        self._read_to = recorded.seq
        if isinstance(recorded.fact, ModelReplied):
            self._steps.append(recorded)

    def _set_slider(self, *, at_end: bool) -> None:
        last = len(self._steps)
        self.slider.blockSignals(True)
        self.slider.setRange(0, last)
        self.slider.setVisible(last > 0)
        if at_end:
            self.slider.setValue(last)
        self.slider.blockSignals(False)

    @property
    def _is_now(self) -> bool:
        return self.slider.value() >= self.slider.maximum()

    def _to_now(self) -> None:
        self.slider.setValue(self.slider.maximum())

    def _refresh(self) -> None:
        """Show the step the slider is at: the next request at its end, else what a reply had seen."""
        self._set_slider(at_end=self._is_now)
        self._now.setVisible(not self._is_now)
        if self._session is None:
            self.view.show_boxes(lambda ink, width: [note(ink, width, tr("What is sent to the model appears here."))])
            self._step.setText("")
            return
        if self._is_now:
            self.looked_at.emit(None)
            steps = len(self._steps)
            self._step.setText(tr("Now, after step {n}", n=numeral(steps)) if steps else tr("Now"))
            self._past.forget()
            self._show(self._session.conversation.ahead)
            return
        step = self._steps[self.slider.value()]
        words = tr(
            "Step {n} of {all} · {when}",
            n=numeral(self.slider.value() + 1),
            all=numeral(len(self._steps)),
            when=clock(step.time),
        )
        self._step.setText(words)
        self.looked_at.emit(saw_of(step))
        self._past.at(self._session.conversation, saw_of(step), self._show)

    def _show(self, state: Moment) -> None:
        chosen = policy.from_fact(state.settings.policy)
        meter = budget.meter(state, chosen)
        self._parts = figures.parts(state)
        self.view.show_boxes(lambda ink, width: self._boxes(ink, width, state, meter, chosen), keep_place=True)

    # --- what is shown

    def _boxes(self, ink: Ink, width: float, state: Moment, meter: budget.Meter, chosen: Policy) -> Iterator[Box]:
        px = ink.px
        title = tr("Context · ≈ {used} of {window}", used=short(meter.used), window=short(meter.window))
        yield heading(ink, width, title)
        yield MeterBox(ink, width, meter.parts, meter.window, thresholds(chosen), gap=float(px(10)))
        yield from self._kinds(ink, width, state, meter)
        yield heading(ink, width, tr("Largest in context"), gap=float(px(22)))
        for number, part in enumerate(figures.largest(self._parts)):
            gap = float(px(10)) if number == 0 else 0.0
            yield FigureBox(ink, width, part.name, short(part.tokens), mono=part.code, act=_block(part), gap=gap)
        yield heading(ink, width, tr("This session"), gap=float(px(22)))
        session = self._session if self._is_now else None  # what was paid was paid to the model of then
        paid = session.conversation.state if session is not None else state
        rows = figures.savings(budget.savings(paid))
        for number, (words, figure, good) in enumerate(rows):
            yield FigureBox(ink, width, words, figure, accent=good, gap=float(px(10)) if number == 0 else 0.0)
        if self._is_now:
            yield from self._next(ink, width)
        yield from self._blocks(ink, width, state)

    def _kinds(self, ink: Ink, width: float, state: Moment, meter: budget.Meter) -> Iterator[Box]:
        gap = float(ink.px(12))
        for kind in Kind:
            name = figures.handover_name(state) if kind is Kind.HANDOVER else kind_name(kind)
            yield FigureBox(ink, width, name, short(meter.parts.get(kind, 0)), dot=ink.theme.kind(kind), gap=gap)
            gap = 0.0
        held = short(state.branch.recallable)
        yield FigureBox(ink, width, tr("Cached, recallable"), held, dot=ink.theme.kind(Kind.OUTPUT), ring=True)
        tools = state.settings.tools
        sent = tr("Tools sent: {n}", n=numeral(len(tools.tools)))
        yield FigureBox(ink, width, sent, short(tools.tokens))
        if tools.withheld:
            words = tr("Tools found by search: {n}", n=numeral(tools.withheld))
            yield FigureBox(ink, width, words, short(tools.withheld_tokens))

    def _next(self, ink: Ink, width: float) -> Iterator[Box]:
        yield heading(ink, width, tr("Coming up"), gap=float(ink.px(22)))
        for kind, why in self._folding.items():
            yield note(
                ink,
                width,
                tr("In progress: {kind}. {why}", kind=kind_words(kind), why=said(why)),
                gap=float(ink.px(6)),
                colour="accent",
            )
        if self._session is not None:
            yield note(ink, width, said(self._session.forecast()), gap=float(ink.px(6)))
        yield More(ink, width, tr("Fold now…"), Toggle(_FOLD), gap=float(ink.px(4)))

    def _blocks(self, ink: Ink, width: float, state: Moment) -> Iterator[Box]:
        opened = _BLOCKS in self._open
        yield More(ink, width, tr("Show the request"), Toggle(_REQUEST), gap=float(ink.px(4)))
        words = count(len(self._parts), "{n} block, in order", "{n} blocks, in order")
        yield HeadBox(ink, width, words, Toggle(_BLOCKS), opened=opened, gap=float(ink.px(16)))
        if not opened:
            return
        for part in self._parts[:SHOWN_BLOCKS]:
            block = part.block
            name = f"{tr('pinned')} · {part.name}" if block.pinned else part.name
            cost = money(part.cost) if part.cost else kind_name(block.kind)
            dot = ink.theme.kind(block.kind)
            ring = bool(block.fold) and isinstance(block.source, PartRef)
            yield FigureBox(
                ink, width, name, short(part.tokens), dot=dot, ring=ring, mono=part.code, act=_block(part), more=cost
            )
        if len(self._parts) > SHOWN_BLOCKS:
            yield note(ink, width, tr("and {n} more", n=numeral(len(self._parts) - SHOWN_BLOCKS)))
        for ref in state.branch.exclusions:
            name = tr("excluded: #{n}", n=ref.seq if isinstance(ref, PartRef) else ref.first)
            yield FigureBox(ink, width, name, tr("Include"), accent=True, act=Toggle(("include", ref)))

    # --- what is done

    def _act(self, act: object) -> None:
        if not isinstance(act, Toggle):
            self.wanted.emit(act)
        elif act.key == _BLOCKS:
            self._open ^= {_BLOCKS}
            self._refresh()
        elif act.key == _REQUEST:
            self.show_request()
        elif act.key == _FOLD:
            self._fold_now()
        elif act.key[0] == "include" and self._session is not None and isinstance(act.key[1], PartRef | Span):
            self._doing.do(self._session.include(act.key[1]), name="include a part", owner=self)
        elif act.key[0] == "block":
            self.menu_of(int(str(act.key[1]))).popup(QCursor.pos() if self.underMouse() else self._middle())

    def _middle(self) -> QPoint:
        return self.view.viewport().mapToGlobal(self.view.viewport().rect().center())

    def menu_of(self, number: int) -> QMenu:
        """What can be done with a block."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        session = self._session
        if session is None or not 0 <= number < len(self._parts):
            return menu
        part = self._parts[number]
        block, ref = part.block, part.block.source
        self._about(menu, part)
        seq = ref.seq if isinstance(ref, PartRef) else ref.last
        menu.addAction(tr("Show in chat"), lambda: self.wanted.emit(ShowInChat(session.id, seq)))
        for stored in block.cached[:1]:
            menu.addAction(tr("Open the entry"), partial(self.wanted.emit, OpenEntry(stored.digest)))
        if block.fold:
            menu.addAction(tr("Open the fold"), lambda: self.wanted.emit(OpenFold(block.fold)))
            menu.addAction(tr("Restore the original"), self._doer(lambda: session.undo(block.fold)))
        if block.kind is not Kind.SYSTEM and isinstance(ref, PartRef):
            pin: Callable[[], object] = (lambda: session.unpin(ref)) if block.pinned else (lambda: session.pin(ref))
            menu.addAction(tr("Unpin") if block.pinned else tr("Pin: never fold"), self._doer(pin))
            menu.addAction(tr("Exclude from context"), self._doer(lambda: session.exclude(ref)))
        if block.kind is Kind.OUTPUT and not block.fold:
            menu.addAction(tr("Cache old outputs now"), self._doer(lambda: session.fold_now(FoldKind.MARKER)))
        return menu

    def _about(self, menu: QMenu, part: Part) -> None:
        figure = tr("{n} tokens", n=numeral(part.tokens))
        cost = " · " + tr("{money} per request", money=money(part.cost)) if part.cost else ""
        said = menu.addAction(f"{kind_name(part.block.kind)} · {source(part.block)} · {figure}{cost}")
        said.setEnabled(False)
        menu.addSeparator()

    def _doer(self, make: Callable[[], object]) -> Callable[[], object]:
        return lambda: self._doing.do(make(), name="a change of the context", owner=self)  # type: ignore[arg-type]

    def _fold_now(self) -> None:
        if self._session is not None:
            FoldNow(self._session, self._doing, self).open()

    def show_request(self) -> None:
        """The request of the step shown, as it is or was sent."""
        session = self._session
        if session is None:
            return
        step = None if self._is_now else self._steps[self.slider.value()].seq
        self._open_request(session, step, self._step.text())

    def show_request_of(self, seq: int) -> None:
        """What the model was sent for the reply `seq`."""
        number = next((at for at, step in enumerate(self._steps, 1) if step.seq == seq), 0)
        if self._session is not None:
            self._open_request(self._session, seq, tr("Step {n}", n=numeral(number)) if number else "")

    def _open_request(self, session: Session, step: int | None, title: str) -> None:
        def show(found: tuple[str, dict[str, list[str]]]) -> None:
            if self._session is session:
                RequestDialog(self._theme, title, *found, self).open()

        self._doing.do(self._request(session, step), name="the request of a step", then=show, owner=self)

    async def _request(self, session: Session, step: int | None) -> tuple[str, dict[str, list[str]]]:
        """How long it is and whether it was sent so; and to read, and as it went out. A provider that was removed since does not keep it from
        being read.
        """
        request, wire = await session.request_at(step), None
        with suppress(HelixError):
            wire = await self._bench.wire(session.id, step, request) if self._bench is not None else None
        as_sent = await asyncio.to_thread(session.is_as_sent, step, request) if step is not None else None
        return described(request, as_sent=as_sent), await asyncio.to_thread(forms, request, wire)


def thresholds(chosen: Policy) -> str:
    """The thresholds in a line: observe 30% · reflect 50% · hand over 85%."""
    parts = []
    if chosen.observation:
        parts.append(tr("observe {share}%", share=round(100 * chosen.observation_share)))
        parts.append(tr("reflect {share}%", share=round(100 * chosen.reflection_share)))
    if chosen.handover != "off":
        parts.append(tr("hand over {share}%", share=round(100 * chosen.handover_share)))
    return " · ".join(parts)


def _block(part: Part) -> Toggle:
    return Toggle(("block", part.number))
