"""The Chat page: the transcript, open questions and the composer."""

from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QKeyEvent, QResizeEvent, QTextCursor
from PySide6.QtWidgets import QStackedWidget, QWidget

from helix_desktop.engine.facts import Text
from helix_desktop.engine.view import ConversationState
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.attachment_chips import has_files_or_picture
from helix_desktop.gui.chat.composer import Composer
from helix_desktop.gui.chat.empty_conversation import EmptyConversationPanel
from helix_desktop.gui.chat.foreign_writer_line import ForeignWriterLine
from helix_desktop.gui.chat.message_drafts import DraftPlace
from helix_desktop.gui.chat.permission_card import PermissionQuestionPanel
from helix_desktop.gui.chat.rewrite_cost_line import RewriteCostLine
from helix_desktop.gui.chat.turn_end_help import TurnEndHelpLine
from helix_desktop.gui.common.escape_key import EscapeCloser
from helix_desktop.gui.common.widgets import (
    build_plain_label,
    build_scroll_area,
    build_surface,
    set_surface_look,
)
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.session_signals import EventBridge
from helix_desktop.gui.shown_workspace import ShownSession
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import tr

if TYPE_CHECKING:
    from helix_desktop.gui.transcript.content_fetching import TranscriptContentSource
    from helix_desktop.gui.transcript.transcript_pane import TranscriptPane

# The price of the next message is updated this many milliseconds after the last change.
MEASURE_PAUSE_MS = 100
SLOW_MS = 300  # If loading a conversation takes longer, "Loading…" appears.
# A question that does not fit leaves so many pixels to the transcript above it, unless it would
# have fewer than ROOM_OF_QUESTION itself. Both grow with the text size.
ROOM_OF_TRANSCRIPT = 96
ROOM_OF_QUESTION = 560


class ChatPage(QWidget):
    """Shows one conversation. There is one such page, or two side by side.
    `intent_requested` is the transcript's.
    """

    intent_requested = Signal(object)

    def __init__(
        self,
        theme: Theme,
        state_file: WindowStateFile,
        source: "TranscriptContentSource",
        runner: BackgroundRunner,
        parent: QWidget | None = None,
    ) -> None:
        """Builds the page: the conversation, and below it the message box with what may
        stand above it, such as a permission question. `source` reads what a
        conversation refers to.
        """
        super().__init__(parent, acceptDrops=True)
        self._theme = theme
        self._state_file = state_file
        self._transcript_arguments = theme, runner, source, self

        self.session: ShownSession | None = None
        # `ConversationSides` sets these two. The first is the conversation that is being opened
        # or created, in whose draft the user writes meanwhile.
        self.awaited_conversation = ""
        # The second is the one requested last. What arrives for an earlier one is not shown.
        self.wanted_conversation = ""
        # The conversation of which only the newest messages are shown, as all of it is being read.
        self._place_of_newest_messages: DraftPlace = ("", "")
        # It, as far as it can be stopped and answered already.
        self.opening_session: ShownSession | None = None
        # Set by `chat_progress`: the session whose context the meter below the message box shows.
        self.measured_session: ShownSession | None = None
        self.bridge = EventBridge(self)
        # Runs out when the price of the next message is to be computed again.
        self.measuring = QTimer(self, interval=MEASURE_PAUSE_MS, singleShot=True)

        self.setProperty("look", "page")
        self.approvals = PermissionQuestionPanel(theme, self)
        self.turn_end_help = TurnEndHelpLine(theme, self)
        self.rewrite_cost = RewriteCostLine(theme, runner, self)
        self.composer = Composer(theme, state_file, self)
        self.foreign = ForeignWriterLine(theme, self)
        self.approvals.left.connect(self.composer.text.setFocus)
        self._build_transcript_place(theme)
        self.controls = (
            self.approvals,
            self.turn_end_help,
            self.rewrite_cost,
            self.composer,
            self.foreign,
        )
        self._notice_room = build_surface(self, "page")
        self._notice_room.hide()
        self._wanted_notice_room = 0  # What it gets once no mouse is on the transcript.
        self._transcript_place.installEventFilter(self)
        build_column(
            (self._transcript_place, 1),
            self._notice_room,
            *self.controls,
            owner=self,
            margins=0,
            spacing=0,
        )

    def _send_demo_prompt(self, words: str) -> None:
        parts = (Text(words),)
        self.composer.sent.emit(parts, False, "")

    def _say_that_it_is_loading(self) -> None:
        self._loading.setText(tr("Loading…"))

    def _build_transcript_place(self, theme: Theme) -> None:
        """Builds the place of the transcript: until there is one, suggestions or "Loading…"."""
        self.empty = EmptyConversationPanel(theme, self)
        self.empty.suggested.connect(self._fill_in_suggestion)
        self.empty.demo_prompt_chosen.connect(self._send_demo_prompt)
        self._loading = build_plain_label("", "faint", self)
        self._loading.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._slow = QTimer(self, interval=SLOW_MS, singleShot=True)
        self._slow.timeout.connect(self._say_that_it_is_loading)
        self._start = build_scroll_area(self.empty, self)
        self._transcript_place = QStackedWidget(self)
        # The page looks the same before the conversation is there.
        set_surface_look(self._transcript_place, "page")
        self._transcript_place.addWidget(self._loading)
        self._transcript_place.addWidget(self._start)

    @cached_property
    def transcript(self) -> "TranscriptPane":
        """It is built when a conversation is shown: until then, the start would wait for it."""
        from helix_desktop.gui.transcript.transcript_pane import TranscriptPane

        pane = TranscriptPane(*self._transcript_arguments)
        pane.intent_requested.connect(self.intent_requested)
        # A program that is killed saves no place when it ends: it would open at an older one.
        pane.view.scrolling.following_changed.connect(self._forget_reading_place_at_end)
        # On the page, so that Escape in the message box closes the bar, too.
        EscapeCloser(self, pane.is_find_bar_open, pane.close_find_bar)
        self._transcript_place.addWidget(pane)
        pane.view.mark_edited_message(self.composer.replaced_message)
        self.composer.edited_message_changed.connect(pane.view.mark_edited_message)
        return pane

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.composer.restyle_composer()
        self._fit_transcript_to_question()
        super().resizeEvent(event)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:  # A question may have appeared or grown.
            self._fit_transcript_to_question()
        return super().event(event)

    def _fit_transcript_to_question(self) -> None:
        """Gives a question all the room it needs, but beside a long one leaves lines of
        the transcript.
        """
        needed_height = 0
        for control in self.controls:
            if not control.isHidden():
                needed_height += control.sizeHint().height()
        missing_height = needed_height - self.height()
        if missing_height < 0:  # The whole question is in sight, which matters more.
            self._transcript_place.setMinimumSize(1, 1)
            return
        card = self.approvals.visible_card
        if card is not None:
            card.show_columns_if_only_they_fit(missing_height)
        px = self._theme.zoomed_pixels
        height_of_transcript = min(self.height() - px(ROOM_OF_QUESTION), px(ROOM_OF_TRANSCRIPT))
        self._transcript_place.setMinimumSize(1, max(height_of_transcript, 1))

    def reserve_room_for_notice(self, height: int) -> None:
        """Keeps so much room free below the transcript; 0: none. While the mouse is on the transcript,
        its text stays where it is: it would move while somebody aims. So a notice that comes lies
        over it, and the room of one that has gone stays, until the mouse has left.
        """
        self._wanted_notice_room = height
        if not self._transcript_place.underMouse():
            self.fit_room_to_notice()

    def fit_room_to_notice(self) -> None:
        """Gives a notice its room at once, or takes it back: the text has moved anyway."""
        self._notice_room.setFixedHeight(self._wanted_notice_room)
        self._notice_room.setVisible(self._wanted_notice_room > 0)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Gives a notice its room, or takes it back, once the mouse has left the transcript."""
        if watched is self._transcript_place and event.type() == QEvent.Type.Leave:
            self.fit_room_to_notice()
        return super().eventFilter(watched, event)

    def height_of_composer_and_question(self) -> int:
        """The height at the lower edge that must stay free: the composer and the
        questions above it.
        """
        # Where another program writes the conversation, a line stands instead of the composer.
        if self.foreign.isHidden():
            height = self.composer.height()
        else:
            height = self.foreign.height()
        for control in (self.approvals, self.turn_end_help, self.rewrite_cost):
            if control.isVisible():
                height += control.height()
        return height

    def show_transcript_or_start(
        self, name: str, *, begun: bool, loads: bool = False, scripted: bool = False
    ) -> None:
        """Shows the transcript, or the start panel before the first message. `name`: the workspace.
        `loads`: the transcript is still being read. `scripted`: the model is the built-in demo,
        which answers by a script and needs other suggestions.
        """
        self.empty.show_workspace_name(name)
        self.empty.show_demo_or_usual_suggestions(scripted=scripted)
        self._loading.setText("")
        self._slow.start()
        if not begun:
            self._transcript_place.setCurrentWidget(self._start)
        elif loads:
            self._transcript_place.setCurrentWidget(self._loading)
        else:
            self._transcript_place.setCurrentWidget(self.transcript)

    def explain_loading(self, explanation: str) -> None:
        """Says at once why the conversation is not there yet, instead of "Loading…" later."""
        self._slow.stop()
        self._loading.setText(explanation)

    def is_reading_place_among(self, newest_state: ConversationState, place: DraftPlace) -> bool:
        """Whether the newest messages of a conversation have the place where the reader left it."""
        reading_place = self._remembered_reading_place(place)
        if reading_place is None:  # The reader was at the end.
            return True
        seq, _pixels_below_top, _follows_end = reading_place
        return newest_state.record.messages[0] <= seq

    def show_newest_messages(self, newest_state: ConversationState, place: DraftPlace) -> None:
        """Shows the end of a conversation while all of it is being read."""
        self._slow.stop()
        self.transcript.open_transcript(newest_state, self._remembered_reading_place(place))
        self._place_of_newest_messages = place
        self.show_transcript()

    def open_transcript_of(self, session: ShownSession | None, place: DraftPlace) -> None:
        """Shows a session's transcript where the reader left it, or an empty one."""
        self.session = session
        if session is None:
            self._place_of_newest_messages = ("", "")
            # The transcript is built when it is first needed, which it is not to show nothing.
            if "transcript" in vars(self):
                self.transcript.open_transcript(ConversationState(), None)
            return
        reading_place = self._remembered_reading_place(place)
        selected = None
        if self._place_of_newest_messages == place:
            reading_place = self.transcript.view.reading_position()
            selected = self.transcript.view.selection_by_facts()
        self._place_of_newest_messages = ("", "")
        self.transcript.open_transcript(session.conversation.state, reading_place)
        if selected is not None:
            self.transcript.view.restore_selection(selected)

    def _remembered_reading_place(self, place: DraftPlace) -> tuple[int, int, bool] | None:
        """Returns where the reader was: a fact, the pixels below its top, and that the view does
        not follow the end. None if the reader was at the end.
        """
        remembered = self._state_file.get_remembered("place", *place, default=list[int]())
        if len(remembered) != 2:
            return None
        seq, pixels_below_top = remembered
        # Anything else in the file is no place.
        if not isinstance(seq, int) or not isinstance(pixels_below_top, int):
            return None
        return seq, pixels_below_top, False

    @property
    def steered_session(self) -> ShownSession | None:
        """The conversation that is stopped and answered here, even if not all of it is there yet."""
        return self.session or self.opening_session

    def steer_opening_session(self, opening: ShownSession) -> None:
        """Follows what a conversation does whose newest messages are shown."""
        self.opening_session = opening
        self.bridge.listen_to_session(opening.subscribe_to_events)

    def leave_session(self) -> None:
        """Cleans up before this page shows another conversation or none."""
        self.bridge.stop_listening_to_session()
        self.save_reading_place()
        self.session = None
        self.opening_session = None
        self.awaited_conversation = ""

    def save_reading_place(self) -> None:
        """Saves the reading place. At the end of the conversation nothing is saved."""
        if self.session is None:
            return
        seq, pixels_below_top, _follows_end = self.transcript.view.reading_position()
        reading_place = [seq, pixels_below_top]
        # In a window of another size, the same place may not be at the end.
        if self.transcript.view.is_scrolled_to_end:
            reading_place = []
        # The message box belongs to the session's workspace until the session is left.
        workspace, _ = self.composer.draft_place
        self._state_file.remember_value("place", workspace, self.session.id, value=reading_place)

    def _forget_reading_place_at_end(self, follows_end: bool) -> None:  # noqa: FBT001 - the signal's
        if follows_end:
            self.save_reading_place()

    def show_transcript(self) -> None:
        self._transcript_place.setCurrentWidget(self.transcript)

    def show_foreign_writer_or_composer(self, agent: str, machine: str = "") -> None:
        """Shows the connected agent or other computer that writes this conversation, or
        else the composer.
        """
        self.foreign.show_foreign_writer(agent, machine)
        self.composer.setVisible(not agent and not machine)
        self.turn_end_help.elsewhere = bool(agent or machine)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        wanted = has_files_or_picture(event.mimeData()) or event.mimeData().hasText()
        if wanted and not self.composer.isHidden():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        self.composer.text.insertFromMimeData(event.mimeData())
        event.acceptProposedAction()
        self.composer.text.setFocus()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Puts letters typed elsewhere into the message, so that a user who scrolled
        can go on writing.
        """
        typed = event.text()
        is_letter = bool(typed.strip()) and typed.isprintable()
        if not is_letter or _is_shortcut(event.modifiers()) or self.composer.isHidden():
            super().keyPressEvent(event)
            return
        self.composer.text.setFocus()
        self.composer.text.insertPlainText(typed)

    def _fill_in_suggestion(self, words: str) -> None:
        self.composer.text.setPlainText(words)
        self.composer.text.moveCursor(QTextCursor.MoveOperation.End)
        self.composer.text.setFocus()


def _is_shortcut(modifiers: Qt.KeyboardModifier) -> bool:
    """Whether a key with these modifiers is a command, and no character of the message."""
    has_control = bool(modifiers & Qt.KeyboardModifier.ControlModifier)
    has_alt = bool(modifiers & Qt.KeyboardModifier.AltModifier)
    has_meta = bool(modifiers & Qt.KeyboardModifier.MetaModifier)
    if has_control and has_alt:  # AltGr on Windows, which types "@" on a German keyboard.
        return has_meta
    return has_control or has_alt or has_meta
