"""What the window tells in passing: one line at the lower edge, with a button that undoes or helps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.icons import icon
from helix_desktop.gui.shared.plain import plain_label
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.markdown import uncoded
from helix_desktop.gui.words import tr

SHOWN = 6_000
SHOWN_ERROR = 15_000
TOGETHER = 1_500  # milliseconds
MOST = 4
WIDTH = 560

_MOVED = frozenset({QEvent.Type.Resize, QEvent.Type.Show, QEvent.Type.Hide})


class Notices(QWidget):
    """One notice at a time over the lower edge of its parent; the newest wins. Errors stay longer.

    One that offers more than an undo, such as to read what opening had to mend, comes back after the newer one, until
    another workspace is in front: what is offered is about the one that was. An undo comes back after one that offers
    nothing, such as an error of something else.
    """

    def __init__(self, theme: Theme, parent: QWidget, lifted: Callable[[], int] = lambda: 0) -> None:
        """`lifted`: how much room is left free below, so that the composer is never covered."""
        super().__init__(parent)
        self._theme = theme
        self._lifted = lifted
        self._undo: Callable[[], object] | None = None
        self._errors: list[str] = []
        self._offered: Callable[[], None] | None = None  # tells again the one that is shown
        self._more = False  # what is offered is no undo
        self._later: list[Callable[[], None]] = []
        self.setProperty("look", "notice")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName(tr("Notice"))
        self._text = plain_label(parent=self)
        self._button = QPushButton(self)
        self._button.clicked.connect(self.act)
        self._close = QPushButton(self)
        self._close.setAccessibleName(tr("Dismiss"))
        self._close.clicked.connect(self._leave)
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 8, 8, 8)
        row.setSpacing(8)
        row.addWidget(self._text, 1)
        row.addWidget(self._button)
        row.addWidget(self._close)
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._over)
        parent.installEventFilter(self)
        self.hide()

    @property
    def text(self) -> str:
        return self._text.text() if not self.isHidden() else ""

    def tell(self, text: str, *, button: str = "", act: Callable[[], object] | None = None, stays: int = SHOWN) -> None:
        """Show a sentence; `act` is done when its button is pressed."""
        if self._offered is not None and not self.isHidden() and (self._more or act is None):
            self._later.append(self._offered)
        self._offered = partial(self.tell, text, button=button, act=act, stays=stays) if act is not None else None
        self._more = bool(button)
        self._undo = act
        self._errors = []
        text = uncoded(text)
        self._text.setText(text)
        self._button.setText(button or tr("Undo"))
        self._button.setVisible(act is not None)
        self._close.setIcon(icon("close", self._theme.colour("panel")))
        self._place()
        self.show()
        self.raise_()
        self._timer.start(stays)
        announce(self, text)

    def tell_error(self, error: HelixError) -> None:
        """What happened, and what to do. Errors of one moment, as of files dropped together, stand together."""
        together = self._errors if self.text and self._timer.remainingTime() > SHOWN_ERROR - TOGETHER else []
        text = said(str(error))
        told = [*(each for each in together if each != text), text]
        lines = told if len(told) <= MOST else [tr("And {n} more:", n=len(told) - MOST), *told[-MOST:]]
        self.tell("\n".join(lines), stays=SHOWN_ERROR)
        self._errors = told

    def act(self) -> None:
        """Do what the button offers."""
        act, self._undo, self._offered = self._undo, None, None
        self._leave()
        if act is not None:
            act()

    def undo(self) -> None:
        """By the shortcut, which means no other offer."""
        if not self._more:
            self.act()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """What it stands in, and what it stands above: it moves with them."""
        if event.type() in _MOVED and not self.isHidden():
            self._place()
        return False

    def _over(self) -> None:
        """A notice somebody is reading, or whose button has the focus, stays."""
        if self.underMouse() or self._button.hasFocus():
            self._timer.start(SHOWN)
        else:
            self._leave()

    def drop_offers(self) -> None:
        """Nothing that is offered is meant any more."""
        self._later.clear()
        if self._more:
            self._offered, self._undo, self._more = None, None, False
            self.hide()

    def _leave(self) -> None:
        self.hide()
        if self._later:
            self._later.pop()()

    def _place(self) -> None:
        parent = self.parentWidget()
        if parent is None:
            return
        width = min(parent.width() - 32, self._theme.px(WIDTH))
        self.setFixedWidth(width)
        height = max(self.heightForWidth(width), self.sizeHint().height())
        self.setGeometry((parent.width() - width) // 2, parent.height() - height - 16 - self._lifted(), width, height)


def announce(widget: QWidget, text: str) -> None:
    """Let a screen reader say it now."""
    if QAccessible.isActive():
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(widget, text))
