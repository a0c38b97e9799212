"""Short notices at the lower edge of the window, with a button for an undo or another action."""

import re
from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QHideEvent
from PySide6.QtWidgets import QWidget

from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button, set_surface_look
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.theme_icons import build_icon
from helix_desktop.gui.transcript.safe_text import without_backticks
from helix_desktop.gui.translation import tr

NOTICE_MS = 6_000
ERROR_NOTICE_MS = 15_000
ERRORS_TOGETHER_MS = 1_500  # Errors that follow each other within this time share one notice.
MAX_ERROR_LINES = 4
WIDTH = 560
SPACE_BELOW = 16
_LONG_WORD = re.compile(r"[!-~]{32}(?=[!-~]{8})")

_PLACEMENT_EVENTS = frozenset({QEvent.Type.Resize, QEvent.Type.Show, QEvent.Type.Hide})


@dataclass(frozen=True, slots=True)
class WaitingOffer:
    """An offer whose notice was replaced. `subject`: what it is about, if it can be withdrawn."""

    subject: str
    show_again: Callable[[], None]


class Notices(QWidget):
    """Shows one notice at a time; the newest replaces the one before. Errors stay longer.

    A replaced notice with an offer is shown again later: an undo after a notice without an offer,
    any other offer until the user changes the workspace.

    `room_changed` carries the height that a page keeps free below its text, so that a notice covers
    none of it. The chat does so for all of them, as the newest answer is down there; the other
    pages, whose buttons would move, only while `stays_until_answered`.
    """

    room_changed = Signal(int)

    def __init__(
        self, theme: Theme, parent: QWidget, reserved_height_below: Callable[[], int] = lambda: 0
    ) -> None:
        """`reserved_height_below` returns the height to keep free, so that the composer
        stays visible.
        """
        super().__init__(parent, accessibleName=tr("Notice"))
        self._theme = theme
        self._reserved_height_below = reserved_height_below
        self._action: Callable[[], object] | None = None
        self._when_dismissed: Callable[[], object] | None = None
        self._errors: list[str] = []
        self._repeat_shown_offer: Callable[[], None] | None = None  # Shows the current offer again.
        self._offers_more_than_undo = False  # True if the offer is not an undo.
        self._shown_subject = ""
        self._waiting_offers: list[WaitingOffer] = []
        set_surface_look(self, "notice")
        self._text = build_plain_label(parent=self)
        self._button = build_push_button("", self, self.run_notice_action)
        self._close = build_push_button("", self, self._dismiss_notice, name=tr("Dismiss"))
        text = (self._text, 1)
        margins = (16, 8, 8, 8)
        build_row(text, self._button, self._close, owner=self, margins=margins, spacing=8)
        self.stays_until_answered = False
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._close_notice_unless_in_use)
        parent.installEventFilter(self)
        self._button.installEventFilter(self)
        self.hide()

    @property
    def shown_text(self) -> str:
        if self.isHidden():
            return ""
        return self._text.text().replace("\u200b", "")

    def show_done_elsewhere(self) -> None:
        """Says where what was asked for can be done, if another process has the workspace open."""
        self.show_notice(
            tr("This is done where the workspace was opened first: in another window, or on the other computer.")
        )  # fmt: skip

    def show_notice(
        self,
        text: str,
        *,
        button: str = "",
        act: Callable[[], object] | None = None,
        shown_ms: int | None = NOTICE_MS,
        when_dismissed: Callable[[], object] | None = None,
        subject: str = "",
    ) -> None:
        """Shows a notice, with a button if something can be done by `act`.

        `shown_ms` is None for a notice that stays until the user presses one of its buttons.
        `when_dismissed` is called if the user closes it without pressing the first one.
        `subject` names what it is about, for `withdraw_offers_about`.
        """
        # An undo is replaced for good by another offer, which would otherwise be undone instead.
        is_replaced_offer_kept = self._offers_more_than_undo or act is None
        is_shown = not self.isHidden()
        if is_shown and is_replaced_offer_kept and self._repeat_shown_offer is not None:
            offer = WaitingOffer(self._shown_subject, self._repeat_shown_offer)
            self._waiting_offers.append(offer)
        self._repeat_shown_offer = None
        if act is not None:
            self._repeat_shown_offer = partial(
                self.show_notice,
                text,
                button=button,
                act=act,
                shown_ms=shown_ms,
                when_dismissed=when_dismissed,
                subject=subject,
            )
        self._shown_subject = subject
        self._offers_more_than_undo = bool(button)
        self._action = act
        self._when_dismissed = when_dismissed
        self._errors = []
        text = without_backticks(text)
        # A hash in it wraps instead of being cut.
        self._text.setText(_LONG_WORD.sub("\\g<0>\u200b", text))
        self._button.setText(button or tr("Undo"))
        self._button.setVisible(act is not None)
        self._close.setIcon(build_icon("close", self._theme.colour_of_token("panel")))
        self.stays_until_answered = shown_ms is None
        self._place_notice()
        self.show()
        self.raise_()
        self._timer.stop()
        if shown_ms is not None:
            self._timer.start(shown_ms)
        announce_to_screen_reader(self, text)

    def show_error_notice(self, error: HelixError) -> None:
        """Shows what happened and what to do. Errors within a moment share one notice."""
        text = translate_sentences(str(error))
        shown_since_ms = ERROR_NOTICE_MS - self._timer.remainingTime()
        errors: list[str] = []
        if self.shown_text and shown_since_ms < ERRORS_TOGETHER_MS:
            errors = [earlier for earlier in self._errors if earlier != text]
        errors.append(text)
        lines = errors[-MAX_ERROR_LINES:]
        hidden = len(errors) - MAX_ERROR_LINES
        if hidden > 0:
            lines.insert(0, tr("Earlier errors not shown here: {n}", n=hidden))
        self.show_notice("\n".join(lines), shown_ms=ERROR_NOTICE_MS)
        self._errors = errors

    def run_notice_action(self) -> None:
        action = self._action
        self._action = None
        self._repeat_shown_offer = None
        self._close_notice_and_show_waiting_offer()
        if action is not None:
            action()

    def _dismiss_notice(self) -> None:
        when_dismissed = self._when_dismissed
        self._when_dismissed = None
        self._close_notice_and_show_waiting_offer()
        if when_dismissed is not None:
            when_dismissed()

    def run_notice_undo(self) -> None:
        """Runs the offer for the Undo shortcut, but only if it is an undo."""
        if not self._offers_more_than_undo:
            self.run_notice_action()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Moves the notice when its parent or the composer changes its size."""
        if watched is self._button:
            # The second half of a double click was not meant for a notice that has just come.
            return event.type() == QEvent.Type.MouseButtonDblClick
        if event.type() in _PLACEMENT_EVENTS and not self.isHidden():
            self._place_notice()
        return False

    def _close_notice_unless_in_use(self) -> None:
        if self.underMouse() or self._button.hasFocus():
            self._timer.start(NOTICE_MS)
        else:
            self._close_notice_and_show_waiting_offer()

    def discard_offers(self) -> None:
        """Discards all offers, because they concern the workspace that was open before."""
        self._waiting_offers.clear()
        if self._offers_more_than_undo:
            self._repeat_shown_offer = None
            self._action = None
            self._offers_more_than_undo = False
            self.hide()

    def withdraw_offers_about(self, subject: str) -> None:
        """Takes back offers, shown or waiting, because what they are about is not shown any more."""
        self._waiting_offers = [offer for offer in self._waiting_offers if offer.subject != subject]
        if self.isHidden() or self._shown_subject != subject:
            return
        self._repeat_shown_offer = None
        self._action = None
        self._when_dismissed = None
        self._offers_more_than_undo = False
        self._close_notice_and_show_waiting_offer()

    def _close_notice_and_show_waiting_offer(self) -> None:
        self.hide()
        if self._waiting_offers:
            newest_offer = self._waiting_offers.pop()
            newest_offer.show_again()

    def _place_notice(self) -> None:
        parent = self.parentWidget()
        if parent is None:
            return
        width = min(parent.width() - 32, self._theme.zoomed_pixels(WIDTH))
        self.setFixedWidth(width)
        height = max(self.heightForWidth(width), self.sizeHint().height())
        left = (parent.width() - width) // 2
        top = parent.height() - height - SPACE_BELOW - self._reserved_height_below()
        self.setGeometry(left, top, width, height)
        self.room_changed.emit(height + 2 * SPACE_BELOW)

    def repeat_room(self) -> None:
        """Tells the room again, because another page is shown."""
        if self.isHidden():
            self.room_changed.emit(0)
        else:
            self._place_notice()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.room_changed.emit(0)


def announce_to_screen_reader(widget: QWidget, text: str) -> None:
    if QAccessible.isActive():
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(widget, text))
