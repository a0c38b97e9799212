"""The composer: text and attachments, what waits, the permission mode, the meter, Send and Stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QMenu, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from helix_desktop.engine.blocks import Kind
from helix_desktop.engine.budget import NextMessage
from helix_desktop.engine.events import Running
from helix_desktop.engine.facts import Attachment, Text, UserPart
from helix_desktop.gui.chat.attachments import Attachments, read
from helix_desktop.gui.chat.column import COLUMN
from helix_desktop.gui.chat.completion import Asked, Completion, Offer
from helix_desktop.gui.chat.composer_text import ComposerText
from helix_desktop.gui.chat.drafts import DraftPlace, Drafts, EditedMessage
from helix_desktop.gui.chat.queued_messages import WaitingMessages, in_words
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.meter import Meter, short, spoken
from helix_desktop.gui.ports import ALLOW_ALL
from helix_desktop.gui.shared.figures import money
from helix_desktop.gui.shared.plain import push_button
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.words import numeral, tr

BAR = 60
AGING = 15_000  # milliseconds
LEAST_SAVED = 0.001  # dollars
LEAST = 30  # pixels of the permission mode that is shortened


class Composer(QWidget):
    """`sent(parts, steer)`. `offers_wanted(asked)` is answered with `offer`; `taken(offer)` what was not just text."""

    sent = Signal(object, bool)
    resent = Signal(int, object)
    stop_wanted = Signal()
    fold_wanted = Signal()
    attach_wanted = Signal()
    files_given = Signal(object)
    long_pasted = Signal(str)
    mode_chosen = Signal(str)
    offers_wanted = Signal(object)
    taken = Signal(object)
    editing = Signal(int)
    dropping = Signal(int)

    def __init__(self, theme: Theme, memory: Memory, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._memory = memory
        self.drafts = Drafts(memory)
        self._place: DraftPlace = ("", "")
        self._begun_from_new: DraftPlace | None = None
        self._running = Running.IDLE
        self._asked: Asked | None = None
        self._edited = 0
        self._aside: tuple[UserPart, ...] = ()  # what was begun before an earlier message was edited
        self._known = False  # how full the window is
        self._measured: tuple[Mapping[Kind, int], int, float, float] = ({}, 0, 0.0, 1.0)
        self._modes: Sequence[tuple[str, str]] = ()
        self._mode_words = ""
        self.setProperty("look", "composer")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.waiting = WaitingMessages(self)
        self.attachments = Attachments(theme, self)
        self.text = ComposerText(theme, self)
        self.text.setAcceptDrops(False)
        self._box = QWidget(self)
        self._box.setProperty("look", "box")
        self._box.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._attach = self._button(tr("+ Attach"), "chip", tr("Attach files or images"))
        self._mode = self._button("", "chip", tr("Permission mode"))
        self._mode.hide()
        self._editing = self._button(tr("Editing an earlier message  ✕"), "chip", tr("Cancel editing"))
        self._editing.clicked.connect(self.stop_editing)
        self._editing.hide()
        self.meter = Meter(theme, height=5, parent=self)
        self._figures = QLabel(self)
        self._figures.setProperty("look", "small")
        self._price = QLabel(self)
        self._price.setProperty("look", "small")
        self._fold = self._button(tr("Fold first"), "link", tr("Fold first"))
        self._fold.hide()
        self._next: NextMessage | None = None
        self._saves: Callable[[], float] = float
        self.now: Callable[[], float] = time.time
        self._aging = QTimer(self, interval=AGING)
        self._aging.timeout.connect(self._tell_price)
        self._stop = self._button(tr("Stop"), "", tr("Stop the agent (Esc)"))
        self._send = self._button(tr("Send"), "primary", tr("Send the message (Enter)"))
        self._lay_out()
        self._connect()
        self.show_running(Running.IDLE)

    def _button(self, text: str, look: str, hint: str) -> QPushButton:
        button = push_button(text, self, look=look)
        button.setToolTip(hint)
        button.setAccessibleName(hint)
        button.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        return button

    def _lay_out(self) -> None:
        self._row = QHBoxLayout()
        self._row.addWidget(self._attach)
        self._row.addWidget(self._mode)
        self._row.addSpacing(8)
        self._row.addWidget(self.meter, 100)
        self._row.addStretch(1)
        self._row.addWidget(self._figures)
        self._row.addWidget(self._price)
        self._row.addWidget(self._fold)
        self._row.addWidget(self._stop)
        self._row.addWidget(self._send)
        self._inside = QVBoxLayout(self._box)
        self._inside.addWidget(self._editing, 0, Qt.AlignmentFlag.AlignLeft)
        self._inside.addWidget(self.attachments)
        self._inside.addWidget(self.text)
        self._inside.addLayout(self._row)
        self._column = QWidget(self)
        self._column.setProperty("look", "plain")
        column = QVBoxLayout(self._column)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.waiting)
        column.addWidget(self._box)
        self._whole = QHBoxLayout(self)
        self._whole.addStretch(1)
        self._whole.addWidget(self._column, 100)
        self._whole.addStretch(1)
        self._restyled()

    def _connect(self) -> None:
        self._send.clicked.connect(lambda: self.send(steer=False))
        self._stop.clicked.connect(self.stop_wanted)
        self._fold.clicked.connect(self.fold_wanted)
        self._attach.clicked.connect(self.attach_wanted)
        self._mode.clicked.connect(self.open_modes)
        self.text.sending.connect(lambda steer: self.send(steer=steer))
        self.text.textChanged.connect(self._changed)
        self.text.asking.connect(self._ask)
        self.text.files_given.connect(self.files_given)
        self.text.long_pasted.connect(self.long_pasted)
        self.text.focused.connect(self._show_focus)
        self.attachments.changed.connect(self._tell_meter)
        self.attachments.changed.connect(self._changed)
        self.waiting.editing.connect(self.editing)
        self.waiting.dropping.connect(self.dropping)
        self._theme.changed.connect(self._restyled)

    # --- what is shown -------------------------------------------------------------------------------------------

    def show_conversation(self, workspace: str, conversation: str, name: str) -> None:
        """Bring the draft and the history of a conversation; the last one's draft is kept already."""
        place = (workspace, conversation)
        self.text.setPlaceholderText(tr("Message {name}…", name=name))
        if place != self._begun_from_new:
            self._begun_from_new = None
        self._place = ("", "")
        draft, edited = self.drafts.draft(place), self.drafts.edited(place)
        self._edited, self._aside = (edited.seq, edited.aside) if edited else (0, ())
        self._editing.setVisible(edited is not None)
        self.attachments.show_these([part for part in draft if isinstance(part, Attachment)])
        words = "".join(part.text for part in draft if isinstance(part, Text))
        if words != self.text.toPlainText():
            self.text.setPlainText(words)
            self.text.moveCursor(self.text.textCursor().MoveOperation.End)
        self.text.show_history(self._memory.get("history", workspace, default=list[str]()))
        self._place = place
        self._changed()

    def name_new(self, conversation: str) -> None:
        """The conversation that had not begun is `conversation` now; what was typed meanwhile is its draft."""
        before, after = self._place, (self._place[0], conversation)
        if before[1] == "new":
            self.drafts.move(before, after)
            self._begun_from_new = after

    def show_meter(self, parts: Mapping[Kind, int], window: int, cost: float = 0.0, factor: float = 1.0) -> None:
        """`factor`: billed tokens per counted one; what is attached is counted."""
        self._measured = (parts, window, cost, factor)
        self._known = window > 0
        self._tell_meter()

    def _tell_meter(self) -> None:
        """With what is attached to the message that is being written."""
        parts, window, cost, factor = self._measured
        attached = round(self.attachments.tokens * factor) if window else 0
        more = {Kind.CONVERSATION: attached}
        ordered = [(kind, parts.get(kind, 0) + more.get(kind, 0)) for kind in Kind]
        self.meter.show_parts(ordered, window)
        figures = f"{short(sum(parts.values()) + attached)} / {short(window)}"
        self._figures.setText(f"{figures} · {tr('${n}', n=numeral(cost, 2))}" if cost >= 0.005 else figures)
        self._figures.setToolTip(spoken(ordered, window))
        self._fit()

    def show_price(self, price: NextMessage | None, saves: Callable[[], float] = float) -> None:
        """What the next message costs; nothing where that is not known. `saves`: what folding first would save, asked while nothing
        runs.
        """
        self._next, self._saves = price, saves
        self._tell_price()

    def _tell_price(self) -> None:
        """Again while the provider's cache grows old."""
        price, now = self._next, self.now()
        words = [tr("Next message: about {price}", price=_about(price.price(now)))] if price else []
        if price and price.warm_until:
            left = math.ceil((price.warm_until - now) / 60)
            words.append(tr("cache warm for {n} min", n=left) if left > 0 else tr("cache expired"))
        self._price.setText(" · ".join(words))
        self._price.setToolTip(_price_told(price) if price else "")
        self._price.setAccessibleDescription(self._price.toolTip())
        saved = self._saves() if price and not price.is_warm(now) and self._running is Running.IDLE else 0.0
        self._fold.setVisible(saved >= LEAST_SAVED)
        hint = tr(
            "Old outputs are replaced with markers before the message is sent. This saves about {saved}. You can recall the outputs later.",
            saved=money(saved),
        )
        self._fold.setToolTip(hint)
        self._aging.start() if price and price.is_warm(now) and price.warm_until else self._aging.stop()
        self._fit()

    def show_running(self, running: Running) -> None:
        self._running = running
        self._tell_price()
        works = running in (Running.THINKING, Running.TOOLS, Running.ASKING)
        self._stop.setVisible(works)
        self._send.setText(tr("Queue") if works else tr("Send"))
        hint = tr("Send when the agent finishes (Enter), or after its current step (Ctrl+Enter)")
        self._send.setToolTip(hint if works else tr("Send the message (Enter)"))
        self._changed()
        self._fit()

    def show_modes(self, modes: Sequence[tuple[str, str]], current: str) -> None:
        """The permission modes, as (name, words)."""
        self._modes = modes
        self._mode_words = dict(modes).get(current, current)
        self._mode.setVisible(bool(modes))
        self._mode.setProperty("look", "danger-chip" if current == ALLOW_ALL else "chip")
        self._mode.style().unpolish(self._mode)
        self._mode.style().polish(self._mode)
        self._fit()

    def show_queue(self, messages: Sequence[Sequence[UserPart]]) -> None:
        self.waiting.show_texts([in_words(parts) for parts in messages])

    # --- what is done --------------------------------------------------------------------------------------------

    def send(self, *, steer: bool) -> None:
        """Hand the message over and empty the composer."""
        parts = self.parts()
        if not parts:
            return
        edited = self._edited
        self._remember(self.text.toPlainText())
        self.text.clear()
        self.attachments.show_these([])
        self.stop_editing()
        if edited:
            self.resent.emit(edited, parts)
        else:
            self.sent.emit(parts, steer)

    def edit(self, seq: int, parts: Sequence[UserPart]) -> None:
        """Change the message at `seq` and send it again; what comes after it is rewound then."""
        self.stop_editing()
        self._aside, self._edited = self.parts(), seq
        self.drafts.keep_edited(self._place, EditedMessage(seq, self._aside))
        self.text.clear()
        self.attachments.show_these([])
        self._editing.show()
        self.take(parts)

    def stop_editing(self) -> None:
        """The next message is a new one: the one that was begun before."""
        if self._edited:
            self._edited = 0
            self.drafts.keep_edited(self._place, None)
            self._editing.hide()
            self.text.clear()
            self.attachments.show_these([])
            self._add(self._aside)

    def parts(self) -> tuple[UserPart, ...]:
        words = self.text.toPlainText().strip()
        return (*((Text(words),) if words else ()), *self.attachments.held)

    def take(self, parts: Sequence[UserPart]) -> None:
        """Put a message back to be changed; what stands there already stays above it."""
        self._add(parts)
        self.text.setFocus()

    def drop(self, parts: Sequence[UserPart]) -> None:
        """These were sent in another way: nothing stays of them, unless they were changed meanwhile."""
        if tuple(parts) == self.parts():
            self.text.clear()
            self.attachments.show_these([])

    def _add(self, parts: Sequence[UserPart]) -> None:
        words = [part.text for part in parts if isinstance(part, Text)]
        if words:
            self.text.setPlainText(_joined(self.text.toPlainText().strip(), words))
            self.text.moveCursor(self.text.textCursor().MoveOperation.End)
        for part in parts:
            if isinstance(part, Attachment):
                self.attachments.add(part)

    def bring_back(self) -> None:
        """Messages that waited here when the program ended: they are a draft now, and sent by nobody but the user."""
        waited = self._memory.get("waiting", *self._place, default=list[object]())
        self._memory.put("waiting", *self._place, value=[])
        for message in waited:
            self._add(read(message))

    @property
    def place(self) -> DraftPlace:
        """Where what stands here belongs to."""
        return self._place

    def hold(self, place: DraftPlace, parts: Sequence[UserPart]) -> bool:
        """Into the message that is written at a place; False where another one is shown by now: then into its draft."""
        begun = self._place == self._begun_from_new and place == (self._place[0], "new")
        if place == self._place or begun:
            self.take(parts)
            return True
        self.drafts.keep(place, (*self.drafts.draft(place), *parts))
        return False

    def open_modes(self) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for name, words in self._modes:
            action = menu.addAction(words)
            action.setCheckable(True)
            action.setChecked(words == self._mode_words)
            action.triggered.connect(lambda _checked=False, n=name: self.mode_chosen.emit(n))
        menu.popup(self._mode.mapToGlobal(QPoint(0, -menu.sizeHint().height())))

    def _remember(self, words: str) -> None:
        workspace, _ = self._place
        history = self._memory.get("history", workspace, default=list[str]())
        if words.strip() and (not history or history[-1] != words):
            history = [*history, words][-200:]
            self._memory.put("history", workspace, value=history)
        self.text.show_history(history)

    def _changed(self) -> None:
        works = self._running in (Running.THINKING, Running.TOOLS, Running.ASKING)
        words = self.text.toPlainText()
        filled = bool(words.strip() or self.attachments.held)
        if self._send.isHidden() is (filled or not works):
            self._send.setVisible(filled or not works)
            self._fit()
        if self._place[1]:
            self.drafts.keep(self._place, (Text(words), *self.attachments.held) if filled else ())

    # --- completion ----------------------------------------------------------------------------------------------

    def offer(self, asked: Asked, offers: Sequence[Offer]) -> None:
        """Answer `offers_wanted`; an answer to something that is not asked any more is dropped."""
        if asked != self._asked:
            return
        popup = self._popup()
        corner = self._box.mapTo(self.window(), QPoint(0, -4))
        popup.offer(offers, corner, min(self._box.width(), self._theme.px(480)))

    def _ask(self, asked: Asked | None) -> None:
        self._asked = asked
        if asked is not None:
            self.offers_wanted.emit(asked)
        elif self.text.completion is not None:
            self.text.completion.hide()

    def _popup(self) -> Completion:
        if self.text.completion is None:
            self.text.completion = Completion(self._theme, self.window())
            self.text.completion.taken.connect(self._take_offer)
        return self.text.completion

    def _take_offer(self, offer: Offer) -> None:
        if self._asked is not None:
            self.text.replace_asked(self._asked, offer.insert)
        self._asked = None
        if offer.value is not None:
            self.taken.emit(offer)

    # --- looks ---------------------------------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Where there is little room the bar goes first, then the price, then the figures: the inspector has bar and
        figures. Then the mode is shortened.
        """
        px = self._theme.px
        self._show_mode(self._mode_words)
        room = min(self.width() - px(32), px(COLUMN)) - px(32)
        buttons = [
            each for each in (self._attach, self._mode, self._fold, self._stop, self._send) if not each.isHidden()
        ]
        room -= sum(each.sizeHint().width() + px(10) for each in buttons)
        if room < 0:
            metrics = self._mode.fontMetrics()
            least = max(metrics.horizontalAdvance(self._mode_words) + room, px(LEAST))
            self._show_mode(metrics.elidedText(self._mode_words, Qt.TextElideMode.ElideRight, least))
        figures = self._figures.sizeHint().width() + px(18)
        self._figures.setVisible(self._known and room >= figures)
        price = self._price.sizeHint().width() + px(10) if self._price.text() else 0
        self._price.setVisible(price > 0 and room >= figures + price)
        self.meter.setVisible(self._known and room >= figures + price + px(BAR))

    def _show_mode(self, words: str) -> None:
        self._mode.setText(words.replace("&", "&&"))

    def _show_focus(self, focused: bool) -> None:  # noqa: FBT001 - a slot
        self._box.setProperty("focused", "true" if focused else "false")
        self._box.style().unpolish(self._box)
        self._box.style().polish(self._box)

    def _restyled(self) -> None:
        px = self._theme.px
        self._whole.setContentsMargins(px(16), px(12), px(16), px(14))
        self._inside.setContentsMargins(px(14), px(11), px(14), px(11))
        self._inside.setSpacing(px(16))
        self._row.setSpacing(px(10))
        self._column.setMaximumWidth(px(COLUMN))


def _joined(text: str, more: Sequence[str]) -> str:
    return "\n\n".join(filter(None, [text, *more]))


def _about(dollars: float) -> str:
    return money(max(dollars, 0.001))


def _price_told(price: NextMessage) -> str:
    """The price in words: both states of the cache, and what is left out."""
    reply = tr("Assumes a reply of typical length for this conversation: {tokens} tokens.", tokens=short(price.reply))
    return "\n".join(
        [
            tr("While the provider's cache is warm: {price}", price=_about(price.warm)),
            tr("After the cache has expired: {price}", price=_about(price.cold)),
            reply
            if price.reply
            else tr("The reply is not included: this conversation has no replies yet to base an estimate on."),
            tr("Not included: the text and files you are about to send, and further steps if the agent uses tools."),
        ]
    )
