"""One box that finds everything: actions with their shortcuts, conversations, messages, entries.

What is at hand (actions, conversations) is shown with the first letter; the workspace's search follows as it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import shiboken6
from PySide6.QtCore import (
    QAbstractListModel,
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRect,
    QSize,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import QFontMetrics, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QLabel,
    QLineEdit,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.gui.icons import icon
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.words import tr

DELAY = 120  # milliseconds of quiet before the workspace is searched
WIDTH, ROW, SHOWN = 640, 36, 10

Index = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True, slots=True)
class Find:
    """One thing that can be chosen. `kind` is the icon's name; `key` a shortcut; `act` what choosing it does."""

    text: str
    act: Callable[[], object]
    kind: str = "action"
    note: str = ""
    key: str = ""
    enabled: bool = True


def matching(finds: Sequence[Find], words: str, limit: int = 40) -> list[Find]:
    """Those that hold every word, those that begin with the first word before the others."""
    wanted = words.casefold().split()
    if not wanted:
        return list(finds[:limit])
    found = [find for find in finds if all(word in f"{find.text} {find.note}".casefold() for word in wanted)]
    found.sort(key=lambda find: not find.text.casefold().startswith(wanted[0]))
    return found[:limit]


class Finds(QAbstractListModel):
    """What was found."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.finds: list[Find] = []

    def show(self, finds: list[Find]) -> None:
        self.beginResetModel()
        self.finds = finds
        self.endResetModel()

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.finds)

    def flags(self, index: Index) -> Qt.ItemFlag:
        usable = index.isValid() and self.finds[index.row()].enabled
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable if usable else Qt.ItemFlag.NoItemFlags

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        find = self.finds[index.row()]
        if role == Qt.ItemDataRole.UserRole:
            return find
        if role == Qt.ItemDataRole.DisplayRole:
            return find.text
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return ", ".join(filter(None, [find.text, find.note, find.key]))
        return None


class FindPainter(QStyledItemDelegate):
    """An icon, the text, where it is, and the shortcut at the end."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, self._theme.px(ROW))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        theme, px = self._theme, self._theme.px
        find: Find = index.data(Qt.ItemDataRole.UserRole)
        rect = QRect(option.rect).adjusted(px(8), 0, -px(8), 0)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if option.state & QStyle.StateFlag.State_Selected:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.colour("selected"))
            painter.drawRoundedRect(rect, 6, 6)
        inner = rect.adjusted(px(10), 0, -px(10), 0)
        middle = inner.center().y()
        icon(find.kind, theme.colour("muted")).paint(painter, QRect(inner.left(), middle - px(8), px(16), px(16)))
        inner.setLeft(inner.left() + px(26))
        inner.setRight(self._paint_end(painter, inner, find))
        painter.setFont(theme.font())
        painter.setPen(theme.colour("text" if find.enabled else "faint"))
        text = QFontMetrics(painter.font()).elidedText(find.text, Qt.TextElideMode.ElideRight, inner.width())
        painter.drawText(inner, Qt.AlignmentFlag.AlignVCenter, text)
        painter.restore()

    def _paint_end(self, painter: QPainter, inner: QRect, find: Find) -> int:
        """The shortcut, or where it was found. Returns where the room for the text ends."""
        painter.setFont(self._theme.font(11))
        painter.setPen(self._theme.colour("faint"))
        metrics = QFontMetrics(painter.font())
        text = metrics.elidedText(find.key or find.note, Qt.TextElideMode.ElideMiddle, inner.width() // 2)
        width = metrics.horizontalAdvance(text)
        painter.drawText(inner, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, text)
        return inner.right() - width - self._theme.px(12)


class Palette(QWidget):
    """Over the whole window. `at_hand()` is asked when it opens; `searching(words)` is answered with `show_found`."""

    searching = Signal(str)
    closed = Signal()

    def __init__(self, theme: Theme, at_hand: Callable[[], Sequence[Find]], parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._at_hand = at_hand
        self._known: Sequence[Find] = ()
        self._found: Sequence[Find] = ()
        self._searched = ""
        self._before: QWidget | None = None  # what had the keyboard
        self._box = QWidget(self)
        self._box.setProperty("look", "box")
        self._box.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.line = QLineEdit(self._box)
        self.line.setProperty("look", "palette")
        self.line.setPlaceholderText(tr("Find messages, entries, conversations and actions"))
        self.line.setAccessibleName(tr("Search everything"))
        self._model = Finds(self)
        self._list = QListView(self._box)
        self._list.setProperty("look", "plain")
        self._list.setModel(self._model)
        self._list.setItemDelegate(FindPainter(theme, self._list))
        self._list.setUniformItemSizes(True)
        self._list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._list.setAccessibleName(tr("Found"))
        inside = QVBoxLayout(self._box)
        inside.setContentsMargins(1, 1, 1, 8)
        inside.setSpacing(8)
        inside.addWidget(self.line)
        inside.addWidget(self._list)
        self._nothing = QLabel(tr("Nothing found"), self._list)
        self._nothing.setProperty("look", "muted")
        self._nothing.hide()
        self._timer = QTimer(self, interval=DELAY, singleShot=True)
        self._timer.timeout.connect(self._search)
        self.line.textChanged.connect(self._typed)
        self.line.installEventFilter(self)
        self._list.clicked.connect(lambda _index: self.choose())
        parent.installEventFilter(self)
        self.hide()

    @property
    def finds(self) -> list[Find]:
        return self._model.finds

    def open(self, words: str = "") -> None:
        if self.isHidden():
            self._before = self.window().focusWidget()
        self._known = self._at_hand()
        self._found, self._searched = (), ""
        self._nothing.hide()
        self.line.setText(words)
        self.line.selectAll()
        self._refill()
        if words:
            self._timer.start()
        self._place()
        self.show()
        self.raise_()
        self.line.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def close_it(self) -> None:
        self.hide()
        self.closed.emit()

    def leave(self) -> None:
        """Nothing was chosen: the keyboard goes back to where it was."""
        self.close_it()
        if self._before is not None and shiboken6.isValid(self._before) and self._before.isVisible():
            self._before.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def show_found(self, words: str, finds: Sequence[Find]) -> None:
        """What the workspace's search found; an answer to older words is dropped."""
        if words == self.line.text().strip():
            self._found = finds
            chosen = self._list.currentIndex().row()
            self._refill()
            self._nothing.setVisible(bool(words) and not self._model.rowCount())
            self._nothing.move(self._theme.px(14), self._theme.px(8))
            if chosen >= 0:  # what was found stands behind what is known
                self._list.setCurrentIndex(self._model.index(chosen))

    def choose(self) -> None:
        index = self._list.currentIndex()
        if not index.isValid() or not self._model.finds[index.row()].enabled:
            return
        act = self._model.finds[index.row()].act
        self.close_it()
        act()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.parentWidget() and event.type() == QEvent.Type.Resize:
            self._place()
        if watched is self.line and isinstance(event, QKeyEvent):
            if event.type() == QEvent.Type.ShortcutOverride and event.key() == Qt.Key.Key_Escape:
                event.accept()
                return True
            if event.type() == QEvent.Type.KeyPress:
                return self._key(event)
        return False

    def _key(self, event: QKeyEvent) -> bool:
        key = event.key()
        if key == Qt.Key.Key_Escape:
            self.leave()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.choose()
        elif key in (Qt.Key.Key_Down, Qt.Key.Key_Up, Qt.Key.Key_PageDown, Qt.Key.Key_PageUp):
            step = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_PageDown: SHOWN}.get(Qt.Key(key), -SHOWN)
            self._move(step)
        else:
            return key in (Qt.Key.Key_Tab, Qt.Key.Key_Backtab)
        return True

    def _move(self, steps: int) -> None:
        """Past what cannot be done now; a single step goes round at the ends."""
        usable = [at for at, find in enumerate(self._model.finds) if find.enabled]
        if not usable:
            return
        here = self._list.currentIndex().row()
        place = usable.index(here) if here in usable else 0
        place = (place + steps) % len(usable) if abs(steps) == 1 else min(max(place + steps, 0), len(usable) - 1)
        self._list.setCurrentIndex(self._model.index(usable[place]))

    def _typed(self, words: str) -> None:
        if not words.strip():
            self._found, self._searched = (), ""
        self._nothing.hide()
        self._refill()
        self._timer.start()

    def _search(self) -> None:
        words = self.line.text().strip()
        if words and words != self._searched:
            self._searched = words
            self.searching.emit(words)

    def _refill(self) -> None:
        self._model.show([*matching(self._known, self.line.text()), *self._found])
        first = next((at for at, find in enumerate(self._model.finds) if find.enabled), 0)
        self._list.setCurrentIndex(self._model.index(first))
        self._place()

    def _place(self) -> None:
        parent = self.parentWidget()
        if parent is None:
            return
        px = self._theme.px
        self.setGeometry(parent.rect())
        width = min(px(WIDTH), parent.width() - 32)
        rows = min(max(self._model.rowCount(), 1), SHOWN)
        height = min(px(ROW) * rows + px(68), parent.height() - px(96))
        self._box.setGeometry((parent.width() - width) // 2, px(80), width, height)

    def mousePressEvent(self, _event: object) -> None:
        self.leave()

    def paintEvent(self, event: QPaintEvent) -> None:
        shade = self._theme.colour("rail")
        painter = QPainter(self)
        painter.setOpacity(0.6)
        painter.fillRect(self.rect(), shade)
