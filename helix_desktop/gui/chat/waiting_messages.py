"""The messages that are queued while the agent works. Each can be edited, moved, sent at another
time, or deleted.
"""

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QPushButton, QSizePolicy, QWidget

from helix_desktop.engine.facts import Text, UserPart
from helix_desktop.gui.common.widgets import (
    build_plain_label,
    build_popup_menu,
    build_push_button,
    build_tool_button,
    open_menu_below,
    set_surface_look,
)
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import tr

LOW_IN_LINES = 28  # In a window of less height, only the next message is shown.
LEAST_MESSAGE_LETTERS = 40  # With less room for state and message, its buttons become a menu.


class OneLineLabel(QLabel):
    """Shows as much of a text as fits on one line."""

    def __init__(self, words: str, parent: QWidget) -> None:
        super().__init__(parent, textFormat=Qt.TextFormat.PlainText, text=words)
        self._words = words
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        metrics = self.fontMetrics()
        shown_words = metrics.elidedText(self._words, Qt.TextElideMode.ElideRight, self.width())
        self.setText(shown_words)


class WaitingMessageRow(QWidget):
    """One waiting message. Its buttons become a menu in a narrow window."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        set_surface_look(self, "soft")
        self.more = build_tool_button(tr("More actions"), self, "⋯")
        self.more.clicked.connect(self._open_message_menu)
        self.more.hide()

    def add_control(self, control: QWidget) -> None:
        layout = self.layout()
        if layout is not None:
            layout.addWidget(control)

    def _message_buttons(self) -> list[QPushButton]:
        return self.findChildren(QPushButton)

    def show_buttons_or_menu(self, width: int) -> None:
        metrics = self.fontMetrics()
        needed = LEAST_MESSAGE_LETTERS * metrics.averageCharWidth()
        for button in self._message_buttons():
            needed += button.sizeHint().width() + 4
        is_narrow = width < needed
        for button in self._message_buttons():
            button.setVisible(not is_narrow)
        self.more.setVisible(is_narrow)

    def _open_message_menu(self) -> None:
        menu = build_popup_menu(self)
        for button in self._message_buttons():
            label = button.text()
            if len(label) == 1:  # An arrow alone would say too little in a menu.
                label = button.toolTip()
            action = menu.addAction(label, button.click)
            action.setEnabled(button.isEnabled())
        open_menu_below(menu, self.more)


class WaitingMessageList(QWidget):
    """The queued messages, in the order in which they are sent. Each signal carries a message's
    place: `editing` takes it back, `discarding` deletes it, `moving` sends it one place earlier
    (-1) or later (1). `steering` sends it when the agent is done (False), or now (True), which is
    after a running command.
    """

    editing = Signal(int)
    discarding = Signal(int)
    moving = Signal(int, int)
    steering = Signal(int, bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent, accessibleName=tr("Queued messages"))
        self._rows = build_column(margins=0, spacing=4)
        self._message_rows: list[WaitingMessageRow] = []
        self._more = build_plain_label("", "faint", self, wraps=False)
        self._more.setContentsMargins(12, 0, 0, 0)
        build_column(self._rows, self._more, owner=self, margins=0, spacing=2)
        self.shown_messages: tuple[tuple[UserPart, ...], ...] = ()
        self._steering_count = 0
        self._waits_for_user = False
        self._goes_only_when_done = False
        self.setProperty("look", "plain")
        self.hide()

    def show_messages(
        self, messages: Sequence[Sequence[UserPart]], steering_count: int = 0
    ) -> None:
        """Shows the messages. The first `steering_count` of them go when the running command ends."""
        self.shown_messages = tuple(tuple(parts) for parts in messages)
        self._steering_count = steering_count
        self._build_rows()

    def show_when_sent(self, *, waits_for_user: bool, goes_only_when_done: bool = False) -> None:
        """Says when the messages are sent. `waits_for_user`: the agent was stopped, or failed, so
        they are sent only when the user continues. `goes_only_when_done`: the agent takes no
        message before the end of its turn, so that there is no other time to choose.
        """
        when_sent = (waits_for_user, goes_only_when_done)
        if when_sent != (self._waits_for_user, self._goes_only_when_done):
            self._waits_for_user = waits_for_user
            self._goes_only_when_done = goes_only_when_done
            self._build_rows()

    def _build_rows(self) -> None:
        messages = self.shown_messages
        steering_count = self._steering_count
        clear_layout(self._rows)
        self._message_rows = []
        for index in range(len(messages)):
            is_steering = index < steering_count
            # A message can be moved among those that are sent at the same time.
            if is_steering:
                first_place = 0
                last_place = steering_count - 1
            else:
                first_place = steering_count
                last_place = len(messages) - 1
            row = WaitingMessageRow(self)
            self._add_state_and_words(row, index, is_steering=is_steering)
            # At the left of the others, which keep their places when the arrows go: a message that
            # waits alone has no other to pass.
            if len(messages) > 1:
                self._add_move_buttons(row, index, first_place, last_place)
            self._add_ways_to_change(row, index, is_steering=is_steering)
            name_of_menu = f"{row.more.accessibleName()}: {self._beginning_of_message(index)}"
            row.more.setAccessibleName(name_of_menu)
            row.add_control(row.more)
            row.show()
            self._rows.addWidget(row)
            self._message_rows.append(row)
        self._fit_messages_to_window()
        self.setVisible(bool(messages))

    def _add_state_and_words(
        self, row: WaitingMessageRow, index: int, *, is_steering: bool
    ) -> None:
        """Shows when a queued message will be sent, and its first words."""
        text = message_as_one_line(self.shown_messages[index])
        first_words = " ".join(text[:400].split())
        words = OneLineLabel(first_words, row)
        words.setToolTip(safe_tooltip(text[:2_000]))
        state = self._describe_state(is_steering=is_steering)
        state_label = build_plain_label(state, "faint", row, wraps=False)
        # The messages begin below each other, whichever state stands before them.
        # The first message steers if any does, and the last one waits if any does.
        has_last_steering = len(self.shown_messages) == self._steering_count
        states = [
            self._describe_state(is_steering=self._steering_count > 0),
            self._describe_state(is_steering=has_last_steering),
        ]
        state_label.ensurePolished()  # The style sheet makes its letters smaller.
        widths = [state_label.fontMetrics().horizontalAdvance(words) for words in states]
        state_label.setMinimumWidth(max(widths))
        build_row(state_label, (words, 1), owner=row, margins=(12, 4, 6, 4), spacing=8)

    def _describe_state(self, *, is_steering: bool) -> str:
        """Says when a message is sent. `is_steering`: as soon as no tool runs, not after the whole
        turn.
        """
        if self._waits_for_user:
            return tr("When you continue")
        if is_steering and not self._goes_only_when_done:
            return tr("When the command ends")
        return tr("When done")

    def _add_ways_to_change(self, row: WaitingMessageRow, index: int, *, is_steering: bool) -> None:
        other_time = tr("Send now")
        hint_for_other_time = tr(
            "Stops the answer that is being written. A running command ends first."
        )
        if is_steering:
            other_time = tr("Send when done")
            hint_for_other_time = tr("Goes to the agent when it is done")
        # Without a running step or turn, there is nothing to wait for.
        has_other_time = not self._waits_for_user and not self._goes_only_when_done
        if has_other_time:
            send_at_other_time = partial(self.steering.emit, index, not is_steering)
            self._add_row_button(
                row, other_time, send_at_other_time, name=other_time, hint=hint_for_other_time
            )
        edit = partial(self.editing.emit, index)
        remove = partial(self.discarding.emit, index)
        self._add_row_button(row, tr("Edit"), edit)
        self._add_row_button(row, tr("Remove"), remove)

    def _add_move_buttons(
        self, row: WaitingMessageRow, index: int, first_place: int, last_place: int
    ) -> None:
        """Adds both arrows to each row, so that the others keep their places when a row goes."""
        move_up = partial(self.moving.emit, index, -1)
        earlier = self._add_row_button(row, "↑", move_up, hint=tr("Send this message earlier"))
        earlier.setEnabled(index > first_place)
        move_down = partial(self.moving.emit, index, 1)
        later = self._add_row_button(row, "↓", move_down, hint=tr("Send this message later"))
        later.setEnabled(index < last_place)

    def _add_row_button(
        self,
        row: WaitingMessageRow,
        label: str,
        act: Callable[[], object],
        *,
        name: str = "",
        hint: str = "",
    ) -> QPushButton:
        # A screen reader must say which of the messages the button is for.
        message = self._beginning_of_message(self._rows.count())
        spoken_name = f"{name or hint or label}: {message}"
        button = build_push_button(label, row, act, "link", name=spoken_name)
        button.setToolTip(safe_tooltip(hint))
        row.add_control(button)
        return button

    def _beginning_of_message(self, index: int) -> str:
        return message_as_one_line(self.shown_messages[index])[:80]

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_messages_to_window()

    def _fit_messages_to_window(self) -> None:
        """Puts what can be done with a message into a menu where the message has too little room,
        and shows only the next message in a low window.
        """
        is_low = self.window().height() < LOW_IN_LINES * self.fontMetrics().height()
        for index, row in enumerate(self._message_rows):
            row.show_buttons_or_menu(self.width())
            row.setVisible(index == 0 or not is_low)
        hidden = len(self._message_rows) - 1
        self._more.setText(tr("and {n} more", n=hidden))
        self._more.setVisible(is_low and hidden > 0)


def message_as_one_line(parts: Sequence[UserPart]) -> str:
    words: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            words.append(part.text)
        else:
            words.append(f"[{part.name}]")
    return " ".join(words)
