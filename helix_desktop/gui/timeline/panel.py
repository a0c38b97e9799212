"""One fold: its figures, what the model reads in place of the original, where that came from, and how to take it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QHBoxLayout,
    QPlainTextEdit,
    QPushButton,
    QSizePolicy,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.engine.blocks import Kind
from helix_desktop.engine.facts import Folded, FoldKind, PartRef
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.meter import paint_bar
from helix_desktop.gui.shared.chip import ChipLabel
from helix_desktop.gui.shared.elided import ElidedLabel
from helix_desktop.gui.shared.folds import colour_kind, covered, kept
from helix_desktop.gui.shared.plain import plain_label
from helix_desktop.gui.theme import Theme, set_look
from helix_desktop.gui.timeline import sentences
from helix_desktop.gui.timeline.story import Event
from helix_desktop.gui.transcript.bars import CallBox, ChipsBox
from helix_desktop.gui.transcript.boxes import Address, Box, Key, More, Toggle, Words, note
from helix_desktop.gui.transcript.drawing import Ink
from helix_desktop.gui.transcript.intents import OpenEntry, ShowInChat
from helix_desktop.gui.transcript.markdown import Paragraph, Span
from helix_desktop.gui.transcript.prose import prose
from helix_desktop.gui.transcript.tool_lines import CallLine, Chip, Look
from helix_desktop.gui.views.boxes_view import BoxesView
from helix_desktop.gui.words import count, tr
from helix_desktop.values import dataclass

_WRITTEN = frozenset({FoldKind.HANDOVER, FoldKind.OBSERVATIONS, FoldKind.REFLECTION, FoldKind.TRUNCATION})
_BEFORE_AFTER: Key = ("before and after",)


@dataclass(frozen=True, slots=True)
class Shown:
    """What the panel is given of an event. `about`: what a call covered by a fold was."""

    event: Event
    window: int
    earlier: str
    about: Callable[[PartRef], str]

    @property
    def live(self) -> bool:
        return self.event.live

    @property
    def text(self) -> str:
        """The document as it stands."""
        return self.event.folds[0].text if self.event.made else ""

    def undone(self, fold: str) -> bool:
        return fold not in self.event.history.branch.live


class Bars(QWidget):
    """Before and after, on the window."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._event: Event | None = None
        self._window = 0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.fit(self, self.setFixedHeight, 20)

    def show_event(self, event: Event, window: int) -> None:
        self._event, self._window = event, max(window, event.before)
        self.setAccessibleName(sentences.figures(event))
        self.update()

    def paintEvent(self, _: QPaintEvent) -> None:
        if self._event is None:
            return
        painter = QPainter(self)
        kind = colour_kind(self._event.kind or FoldKind.HANDOVER)
        height = self._theme.px(8)
        before = kind if kind is Kind.OUTPUT else Kind.CONVERSATION
        rows = ((before, self._event.before), (kind, self._event.after))
        for number, (colour, tokens) in enumerate(rows):
            bar = QRectF(0, number * (height + self._theme.px(4)), self.width(), height)
            paint_bar(painter, bar, [(colour, tokens)], self._window, self._theme)
        painter.end()


class FoldPanel(QWidget):
    """`wanted` carries values of `wants`; the other signals are commands on the fold shown."""

    wanted = Signal(object)
    undo_wanted = Signal(object)
    redo_wanted = Signal(object)
    compare_wanted = Signal()
    before_after_wanted = Signal()
    edited = Signal(str, str)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._shown: Shown | None = None
        self._looks: object = None  # what of it may change
        self._drafts: dict[tuple[str, str], str] = {}  # wordings that were left open, by conversation and fold
        self._title = ElidedLabel(self)
        set_look(self._title, "title")
        self._kept = ChipLabel(theme, self)
        self._edit = self._button(tr("Edit"), self._begin_edit)
        self._compare = self._button("", self.compare_wanted.emit)
        self._undo = self._button(tr("Undo"), self._switch)
        self._bars = Bars(theme, self)
        self._figures = plain_label("", "small", self)
        self.document = BoxesView(theme, self, pad=(16, 4))
        self.document.setAccessibleName(tr("The text shown in place of the original"))
        self.document.acted.connect(self._act)
        self._editor = QPlainTextEdit(self)
        self._editor.setAccessibleName(tr("The text shown in place of the original"))
        set_look(self._editor, "mono")
        self._stack = QStackedWidget(self)
        self._stack.addWidget(self.document)
        self._stack.addWidget(self._edit_page())
        self._lay_out()
        set_look(self, "page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.clear()

    @property
    def undo_button(self) -> QPushButton:
        return self._undo

    def _lay_out(self) -> None:
        px = self._theme.px
        named = QHBoxLayout()
        self._theme.fit(self, named.setSpacing, 8)
        named.addWidget(self._title)
        named.addWidget(self._kept)
        named.addStretch(1)
        buttons = QHBoxLayout()
        self._theme.fit(self, buttons.setSpacing, 8)
        for button in (self._edit, self._compare, self._undo):
            buttons.addWidget(button)
        self._head = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._theme.fit(self, self._head.setSpacing, 8)
        self._head.addLayout(named, 1)
        self._head.addLayout(buttons)
        top = QVBoxLayout()
        self._theme.fit(self, top.setContentsMargins, 16, 14, 16, 0)
        self._theme.fit(self, top.setSpacing, 6)
        top.addLayout(self._head)
        top.addSpacing(px(6))
        top.addWidget(self._bars)
        top.addWidget(self._figures)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(top)
        column.addWidget(self._stack, 1)
        self._theme.fit(self, self.setMinimumWidth, 260)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Where there is little room the buttons stand under the title."""
        super().resizeEvent(event)
        narrow = self.width() < self._theme.px(470)
        way = QBoxLayout.Direction.TopToBottom if narrow else QBoxLayout.Direction.LeftToRight
        if self._head.direction() is not way:
            self._head.setDirection(way)

    def _edit_page(self) -> QWidget:
        page = QWidget(self)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(self._button(tr("Cancel"), self._end_edit))
        save = self._button(tr("Save my version"), self._save_edit)
        set_look(save, "primary")
        row.addWidget(save)
        column = QVBoxLayout(page)
        self._theme.fit(self, column.setContentsMargins, 16, 0, 16, 14)
        column.addWidget(self._editor, 1)
        column.addLayout(row)
        return page

    def _button(self, text: str, act: Callable[[], None]) -> QPushButton:
        button = QPushButton(text, self)
        button.clicked.connect(lambda _: act())
        return button

    # --- what is shown

    def clear(self) -> None:
        self._put_by()
        self._shown = None
        self._title.say(tr("Folds"))
        for widget in (self._kept, self._edit, self._compare, self._undo, self._bars, self._figures):
            widget.hide()
        empty = tr("Select a fold to see what the model sees instead of the original, compare the two, or undo it.")
        self.document.show_boxes(lambda ink, width: [note(ink, width, empty)])
        self._stack.setCurrentIndex(0)

    def show_fold(self, shown: Shown) -> None:
        """Show a fold. A wording that was left open is there again with its fold."""
        same = self._shown is not None and self._shown.event is shown.event
        if not same:
            self._put_by()
        self._shown = shown
        event = shown.event
        folds = event.folds
        looks = (folds, [shown.undone(fold.fold) for fold in folds], shown.window, shown.earlier)
        if same and looks == self._looks:
            return
        self._looks = looks
        self._title.say(sentences.title(event))
        fold = folds[0] if folds else None
        self._kept.say(kept(fold.details) if fold else "", "strong")
        self._bars.setVisible(fold is not None)
        self._figures.setVisible(fold is not None)
        self._undo.setVisible(fold is not None)
        self._undo.setText(tr("Undo") if shown.live else tr("Redo"))
        self._compare.setVisible(bool(shown.earlier))
        self._compare.setText(shown.earlier)
        self._edit.setVisible(fold is not None and fold.kind in _WRITTEN and shown.live)
        if fold is not None:
            self._bars.show_event(event, shown.window)
            words = sentences.figures(event).replace(" ", "\u00a0")
            self._figures.setText(words.replace("·\u00a0", "· "))  # a number stays with its unit
        if not same:
            draft = self._drafts.get(_key(shown))
            self._editor.setPlainText(draft or "")
            self._stack.setCurrentIndex(int(draft is not None and not self._edit.isHidden()))
        self.document.show_boxes(lambda ink, width: self._boxes(shown, ink, width), keep_place=same)

    def _boxes(self, shown: Shown, ink: Ink, width: float) -> Iterator[Box]:
        event = shown.event
        if not event.folds:
            yield note(ink, width, tr("The conversation starts here. Nothing has been folded yet."))
            return
        if event.kind in _WRITTEN:
            yield from _document(shown.text, ink, width)
        else:
            yield from _parts(shown, ink, width)
        yield from _replaced(shown, ink, width)

    def _act(self, act: object) -> None:
        if isinstance(act, Address) and act.address.startswith("helix-seq:") and self._shown is not None:
            self.wanted.emit(ShowInChat(self._shown.event.conversation, int(act.address.partition(":")[2])))
        elif isinstance(act, Toggle):
            self._toggle(act)
        else:
            self.wanted.emit(act)

    def _toggle(self, act: Toggle) -> None:
        if act.key == _BEFORE_AFTER:
            self.before_after_wanted.emit()
        elif act.key[:1] == ("fold",) and self._shown is not None:
            name = str(act.key[1])
            (self.redo_wanted if self._shown.undone(name) else self.undo_wanted).emit([name])

    def _switch(self) -> None:
        if self._shown is not None:
            self._put_by()
            self._stack.setCurrentIndex(0)
            names = [fold.fold for fold in self._shown.event.folds]
            (self.undo_wanted if self._shown.live else self.redo_wanted).emit(names)

    # --- editing

    def _begin_edit(self) -> None:
        if self._shown is not None:
            self._editor.setPlainText(self._shown.text)
            self._stack.setCurrentIndex(1)
            self._editor.setFocus()

    def give_back(self, event: Event, text: str) -> None:
        """A wording that could not be kept: it is there again with its fold."""
        self._drafts[event.conversation, event.name] = text
        if self._shown is not None and self._shown.event is event and self._stack.currentIndex() == 0:
            self._editor.setPlainText(text)
            self._stack.setCurrentIndex(1)

    def _put_by(self) -> None:
        if self._shown is not None and self._stack.currentIndex() == 1:
            self._drafts[_key(self._shown)] = self._editor.toPlainText()

    def _end_edit(self) -> None:
        if self._shown is not None:
            self._drafts.pop(_key(self._shown), None)
        self._stack.setCurrentIndex(0)

    def _save_edit(self) -> None:
        text, shown = self._editor.toPlainText(), self._shown
        self._end_edit()
        if shown is not None and text.strip() and text != shown.text:
            self.edited.emit(shown.event.name, text)


def _key(shown: Shown) -> tuple[str, str]:
    return shown.event.conversation, shown.event.name


def _document(text: str, ink: Ink, width: float) -> Iterator[Box]:
    """The sections, each with its sources: numbers lead into the chat, hashes to their entries. What stands before the
    first of them is for the model, or its own ("Here is the handover:").
    """
    found = sentences.sections(text)
    named = any(name for name, _ in found)
    for name, written in found:
        if named and not name:
            continue
        titled = not name and written.startswith("[")
        body = written.partition("\n")[2].strip() if titled else written
        if name:
            yield heading(name, ink, width)
        yield from prose(ink, width, sentences.with_links(body))
        digests = sentences.hashes(body)
        if digests:
            chips = [Chip(digest.short, strong=True, mono=True, want=OpenEntry(digest)) for digest in digests]
            yield ChipsBox(ink, width, chips, gap=float(ink.px(4)))


def _parts(shown: Shown, ink: Ink, width: float) -> Iterator[Box]:
    """Each output a batch of folds covers, with its entry; “Restore” takes back this one alone."""
    event = shown.event
    for number, fold in enumerate(event.folds[:200]):
        undone = shown.undone(fold.fold)
        chips = [Chip(digest.short, strong=True, mono=True, want=OpenEntry(digest)) for digest in fold.entries[:1]]
        about = shown.about(fold.cover) if isinstance(fold.cover, PartRef) else ""
        right = tr("Cache again") if undone else tr("Restore")
        line = CallLine(about or tr("output"), Look.DONE if undone else Look.CACHED, tuple(chips), right)
        open_it = OpenEntry(fold.entries[0]) if fold.entries else Toggle(_BEFORE_AFTER)
        back = Toggle(("fold", fold.fold))
        yield CallBox(ink, width, line, open_it, right=back, gap=float(ink.px(6) if number else 0))
    if event.kind is FoldKind.EXCERPT:
        for fold in event.folds[:20]:
            yield heading(tr("What the model sees"), ink, width)
            yield from prose(ink, width, f"```\n{fold.text}\n```")


def _replaced(shown: Shown, ink: Ink, width: float) -> Iterator[Box]:
    event = shown.event
    fold: Folded = event.folds[0]
    if fold.why:
        yield heading(tr("Why"), ink, width)
        yield note(ink, width, said(fold.why)[:1_000], font=ink.text)
    if described := sentences.details(event):
        yield heading(tr("Details"), ink, width)
        yield note(ink, width, described, font=ink.text)
        if fold.entries:
            chip = Chip(fold.entries[0].short, strong=True, mono=True, want=OpenEntry(fold.entries[0]))
            yield ChipsBox(ink, width, [chip], gap=float(ink.px(4)))
    parts = [fold.cover for fold in event.folds if isinstance(fold.cover, PartRef)]
    yield heading(tr("Replaced outputs") if parts else tr("Replaced messages"), ink, width)
    number = len(parts) or covered(fold)
    sentence = (
        count(number, "{n} output, still in the cache.", "{n} outputs, all still in the cache.")
        if parts
        else (count(number, "{n} message, still in the journal.", "{n} messages, all still in the journal."))
    )
    yield note(ink, width, sentence, font=ink.text)
    act = Toggle(_BEFORE_AFTER)
    yield More(ink, width, tr("Compare what the model saw before and after"), act, gap=float(ink.px(2)))


def heading(text: str, ink: Ink, width: float) -> Words:
    return Words(ink, width, Paragraph((Span(text),)), gap=float(ink.px(12)), font=ink.name)
