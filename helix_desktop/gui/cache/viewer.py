"""One entry: its whole hash, whether it was checked, where it is used, what can be done with it, and its content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtGui import QGuiApplication, QImage, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QMenu, QPushButton, QToolButton, QVBoxLayout, QWidget

from helix_desktop.engine.catalogue import Row, Use
from helix_desktop.engine.digest import Digest
from helix_desktop.errors import CacheCorrupt, HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.cache.body import EntryBody
from helix_desktop.gui.cache.shapes import Shape
from helix_desktop.gui.cache_port import Catalogue
from helix_desktop.gui.shared.chip import ChipLabel, HashLabel
from helix_desktop.gui.shared.figures import day
from helix_desktop.gui.theme import Theme, set_look
from helix_desktop.gui.transcript.harmless import harmless
from helix_desktop.gui.transcript.intents import Recall, ShowInChat
from helix_desktop.gui.words import count, tr

_SHOWN_USES = 30


class EntryViewer(QWidget):
    """`wanted` carries what the window has to do; `save_wanted` and `forget_wanted` are the page's."""

    wanted = Signal(object)
    save_wanted = Signal()
    compare_wanted = Signal()
    verify_wanted = Signal()
    pin_wanted = Signal(bool)
    forget_wanted = Signal()

    def __init__(self, theme: Theme, doing: Doing, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._doing = doing
        self.row: Row | None = None
        self.uses: Sequence[Use] = ()
        self.body = EntryBody(theme, doing, self)
        self._hash = HashLabel(theme, self)
        self._checked = ChipLabel(theme, self)
        self._used = QToolButton(self)
        set_look(self._used, "chip")
        self._used.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self._used.setAccessibleName(tr("Used in"))
        self._shape = QToolButton(self)
        set_look(self._shape, "chip")
        self._shape.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self._shape.setAccessibleName(tr("View as"))
        self._copy = self._button(tr("Copy"), self.copy)
        self._save = self._button(tr("Save as…"), self.save_wanted.emit)
        self._show = self._button(tr("Show in chat"), self.show_in_chat)
        self._recall = self._button(tr("Recall into chat"), self.recall, look="primary")
        self._more = QToolButton(self)
        self._more.setText("⋯")
        set_look(self._more, "icon")
        self._more.setAccessibleName(tr("More actions"))
        self._more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self._more.setMenu(self._menu())
        self._lay_out(theme)
        self.body.read.connect(self._was_read)
        self.body.failed.connect(self._not_read)
        self.body.shaped.connect(self._shapes)
        self.body.chosen.connect(self._name_recall)
        self.clear()

    @property
    def recall_button(self) -> QPushButton:
        return self._recall

    def _lay_out(self, theme: Theme) -> None:
        head = QHBoxLayout()
        theme.fit(self, head.setSpacing, 10)
        for widget in (self._hash, self._checked, self._used, self._shape):
            head.addWidget(widget)
        head.addStretch(1)
        for button in (self._copy, self._save, self._show, self._recall, self._more):
            head.addWidget(button)
        column = QVBoxLayout(self)
        theme.fit(self, column.setContentsMargins, 20, 14, 20, 14)
        theme.fit(self, column.setSpacing, 10)
        column.addLayout(head)
        column.addWidget(self.body, 1)
        theme.fit(self, self.setMinimumWidth, 300)
        theme.changed.connect(self._settle)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._settle()

    def _settle(self) -> None:
        """Where there is little room for the size of the text the second buttons are in the menu alone."""
        roomy = self._theme.px(840)
        for button in (self._copy, self._save, self._show):
            button.setVisible(self.width() >= roomy)
        self._show_hash()

    def _show_hash(self) -> None:
        if self.row is not None:
            digest = self.row.stored.digest
            roomy = self.width() >= self._theme.px(1_120)  # beside the longest words of all languages
            self._hash.setText(f"{digest.hex[:16]}…{digest.hex[-12:]}" if roomy else digest.short)

    def _button(self, words: str, act: Callable[[], None], look: str = "") -> QPushButton:
        button = QPushButton(words, self)
        if look:
            set_look(button, look)
        button.clicked.connect(lambda _: act())
        return button

    def _menu(self) -> QMenu:
        menu = QMenu(self)
        menu.addAction(tr("Copy"), self.copy)
        menu.addAction(tr("Save as…"), self.save_wanted.emit)
        menu.addAction(tr("Show in chat"), self.show_in_chat)
        menu.addSeparator()
        menu.addAction(tr("Copy the hash"), self._copy_hash)
        self._pin = menu.addAction(tr("Pin: never remove"), self._toggle_pin)
        menu.addAction(tr("Verify"), self.verify_wanted.emit)
        self._compare = menu.addAction(tr("Compare selected"), self.compare_wanted.emit)
        menu.addSeparator()
        menu.addAction(tr("Forget permanently…"), self.forget_wanted.emit)
        return menu

    # --- what is shown

    def clear(self) -> None:
        """No entry."""
        self.row, self.uses = None, ()
        self._enable(there=False)
        self._hash.setText("")
        for chip in (self._checked, self._used, self._shape):
            chip.hide()
        self.body.say(tr("Select an entry to see its content."))

    def open(self, catalogue: Catalogue, row: Row) -> None:
        """Show an entry; the same one again only brings its figures up to date."""
        same = self.row is not None and self.row.stored.digest == row.stored.digest and self.row.gone == row.gone
        self.row = row
        self._pin.setText(tr("Unpin") if row.pinned else tr("Pin: never remove"))
        if same:
            return
        self.uses = ()
        digest = row.stored.digest
        self._show_hash()
        self._hash.setToolTip(digest.hex)
        self._checked.hide()
        self._shape.hide()
        self._enable(there=not row.gone)
        if row.gone:
            self._say_gone(row)
        else:
            self.body.open(catalogue, row.stored, row.about)
        self._doing.do(catalogue.index.uses(digest), name="uses of an entry", then=self._take_uses(digest), owner=self)

    def allow_compare(self, *, two: bool) -> None:
        self._compare.setEnabled(two)

    def say_checked(self, *, good: bool) -> None:
        """The entry's bytes were compared with its hash."""
        self._checked.say(tr("verified") if good else tr("damaged"), "strong" if good else "danger")
        self._checked.show()

    # --- what can be done

    def copy(self) -> None:
        """The selected part of the text, else all that is shown."""
        found, clipboard = self.body.copied(), QGuiApplication.clipboard()
        if isinstance(found, QImage):
            clipboard.setImage(found)
        else:
            clipboard.setText(found)

    def show_in_chat(self) -> None:
        """To the place that used it last."""
        if self.uses:
            last = max(self.uses, key=lambda use: use.time)
            self.wanted.emit(ShowInChat(last.conversation, last.seq))

    def recall(self) -> None:
        """The entry, or the selected lines of it, into the next message."""
        if self.row is not None:
            self.wanted.emit(Recall(self.row.stored.digest, self.body.chosen_lines()))

    def _copy_hash(self) -> None:
        if self.row is not None:
            QGuiApplication.clipboard().setText(self.row.stored.digest.hex)

    def _toggle_pin(self) -> None:
        if self.row is not None:
            self.pin_wanted.emit(not self.row.pinned)

    # --- below

    def _enable(self, *, there: bool) -> None:
        for button in (self._copy, self._save, self._recall):
            button.setEnabled(there)
        self._more.setEnabled(self.row is not None)
        self._show.setEnabled(False)

    def _say_gone(self, row: Row) -> None:
        what = harmless(f"{row.about.tool} {row.about.source}").strip()
        words = tr("The content of this entry was removed to free up space. Description: {what}.", what=what)
        self.body.say(words + "\n" + tr("Run the tool again to get the content back."))

    def _was_read(self) -> None:
        self.say_checked(good=True)

    def _not_read(self, error: HelixError) -> None:
        if isinstance(error, CacheCorrupt):
            self.say_checked(good=False)
        self._copy.setEnabled(False)
        self._recall.setEnabled(False)

    def _shapes(self, shapes: Sequence[Shape]) -> None:
        menu = _fresh_menu(self._shape)
        names = {
            Shape.TEXT: tr("Text"),
            Shape.JSON: tr("JSON tree"),
            Shape.TABLE: tr("Table"),
            Shape.IMAGE: tr("Image"),
            Shape.HEX: tr("Hex"),
        }
        for shape in shapes:
            menu.addAction(names[shape], partial(self._reshape, shape, names[shape]))
        self._shape.setText(f"{names[self.body.shape]} ▾")
        self._shape.setVisible(len(shapes) > 1)

    def _reshape(self, shape: Shape, name: str) -> None:
        self.body.reshape(shape)
        self._shape.setText(f"{name} ▾")
        self._name_recall()

    def _name_recall(self) -> None:
        lines = self.body.chosen_lines()
        one = tr("Recall line {n}", n=lines[0]) if lines and lines[0] == lines[1] else ""
        some = tr("Recall lines {a}–{b}", a=lines[0], b=lines[1]) if lines else tr("Recall into chat")
        self._recall.setText(one or some)

    def _take_uses(self, digest: Digest) -> Callable[[Sequence[Use]], None]:
        def take(uses: Sequence[Use]) -> None:
            if self.row is None or self.row.stored.digest != digest:
                return
            self.uses = uses
            self._show.setEnabled(bool(uses))
            self._used.setText(count(len(uses), "used in {n} message", "used in {n} messages"))
            self._used.setVisible(True)
            menu = _fresh_menu(self._used)
            for use in sorted(uses, key=lambda each: -each.time)[:_SHOWN_USES]:
                words = tr("{how}, {when}", how=use.how, when=day(use.time))
                place = ShowInChat(use.conversation, use.seq)
                menu.addAction(words, partial(self.wanted.emit, place))
            self._used.setEnabled(bool(uses))

        return take


def _fresh_menu(button: QToolButton) -> QMenu:
    """The button's menu, empty."""
    menu = button.menu()
    if menu is None:
        menu = QMenu(button)
        button.setMenu(menu)
    menu.clear()
    return menu
