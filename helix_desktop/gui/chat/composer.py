"""The composer: text and attachments, queued messages, the permission mode, the meter,
Send and Stop.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from PySide6.QtCore import QLocale, QPoint, Qt, Signal
from PySide6.QtGui import QResizeEvent, QTextCursor
from PySide6.QtWidgets import QBoxLayout, QPushButton, QSizePolicy, QSpacerItem, QWidget

from helix_desktop.engine.context_usage import WindowMeter
from helix_desktop.engine.facts import Attachment, Text, UserPart
from helix_desktop.engine.message_identity import have_same_contents
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.engine.session_setup import QueuedMessage
from helix_desktop.engine.state.token_ledger import Savings
from helix_desktop.engine.view import ConversationState
from helix_desktop.gui.chat.attachment_chips import AttachmentChips
from helix_desktop.gui.chat.composer_text import ComposerTextEdit
from helix_desktop.gui.chat.message_drafts import (
    DraftPlace,
    EditedMessage,
    MessageDrafts,
    decode_draft_id,
    find_unrecorded_messages,
    join_drafts,
)
from helix_desktop.gui.chat.next_message_cost import NextMessageCostLabel
from helix_desktop.gui.chat.waiting_messages import WaitingMessageList
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.common.running_states import WORKING_STATES
from helix_desktop.gui.context_meter import ContextMeter, describe_window_fill
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile, new_draft_id
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.translation import format_number, tr, translate_name

KEPT_MESSAGES = 200  # So many sent messages of a workspace can be brought back.
LEAST_SHOWN_DOLLARS = 0.0005  # A smaller cost would be shown as nothing.
BAR = 60  # The minimum width of the meter in pixels.
MOST_BAR = 132  # The maximum width of the meter in pixels, at 100 % text size.
LEAST_BAR = 20  # The minimum width of the meter where there is no room for the figures.
# Beside several ways to send, so many pixels of the permission mode's name can be read.
READ_OF_MODE = 150
LEAST_BESIDE_WAYS = 110  # Attach, a shortened mode and a short bar need so many pixels.
# In a window of less height, queued messages, attachments and a text leave no room for margins.
LOW_WINDOW = 440
LEAST = 30  # The minimum width in pixels of the permission mode's shortened name.
LEAST_OF_ASKING_MODE = 90  # The same of a mode that asks, where the figures need the room.
# The permission modes that never ask the user. The second ends by itself.
ALLOW_ALL = "allow all"
ALLOW_ALL_FOR_AN_HOUR = "allow all for an hour"
MODES_WITHOUT_QUESTIONS = (ALLOW_ALL, ALLOW_ALL_FOR_AN_HOUR)
# The names of these modes say before what the user is asked.
ALLOW_EDITS = "allow edits"
MODES_THAT_SAY_WHAT_THEY_ASK = ("ask", ALLOW_EDITS)
MOST_EXCEPTIONS_IN_NAME = 2  # Only the hint and the menu name more.
# Used if the window is unknown.
UNKNOWN_METER = WindowMeter({}, used=0, window=0, reserve=0, factor=1.0)


class Composer(QWidget):
    """`sent` carries the parts of the message, whether it interrupts the agent, and the id of the
    draft that it was; `resent` the earlier message that it replaces, the parts and the id.
    """

    sent = Signal(object, bool, str)
    resent = Signal(int, object, str)
    # Carries the earlier message that is edited from now on, or 0.
    edited_message_changed = Signal(int)
    stop_wanted = Signal()
    fold_wanted = Signal()
    context_wanted = Signal()
    attach_wanted = Signal()
    mode_chosen = Signal(str)

    def __init__(
        self, theme: Theme, state_file: WindowStateFile, parent: QWidget | None = None
    ) -> None:
        """Builds the message box without a conversation. What it shows of one is told
        to it later.
        """
        super().__init__(parent)
        self._theme = theme
        self._state_file = state_file

        # The message: its draft, and the earlier message that it replaces, or 0.
        self.drafts = MessageDrafts(state_file)
        self.draft_place: DraftPlace = ("", "")
        self._begun_from_new: DraftPlace | None = None
        self._was_empty = True
        self._edited = 0
        # By this id the conversation knows the draft once it is sent. Empty without a draft.
        self.draft_id = ""
        # What the file had when it was shown, until it is certain that this was never sent.
        self._draft_of_file: tuple[UserPart, ...] = ()
        # The last message that was sent, and as it counts for an estimate.
        self._sent_parts: tuple[UserPart, ...] = ()
        self._sent_parts_for_estimate: tuple[UserPart, ...] = ()
        # The draft that was set aside while the user edits an earlier message.
        self._interrupted_draft: tuple[UserPart, ...] = ()

        # What is shown of the conversation.
        self._running = ConversationActivity.IDLE
        self._sends_only_when_done = False
        self._measured = UNKNOWN_METER
        self._cost = ""
        self._left_out = ""
        self._modes: Sequence[tuple[str, str]] = ()
        self._current_mode = ""
        self._mode_words = ""
        self._allowed_uses: Sequence[str] = ()
        self._never_asks = False  # True in a mode that allows everything.
        self._send_words = ""
        self._is_stop_beside = False  # Whether "Stop" is not in the line of the ways to send.

        widgets.set_surface_look(self, "composer")
        self.waiting = WaitingMessageList(self)
        self.attachments = AttachmentChips(theme, self)
        self.text = ComposerTextEdit(theme, self)
        self.text.setAcceptDrops(False)
        self._box = widgets.build_surface(self, "box")
        self._build_controls_beside_buttons()
        self._build_sending_buttons()
        self._lay_out_composer()
        self._connect_composer_signals()
        self.show_run_state(ConversationActivity.IDLE)

    def _build_controls_beside_buttons(self) -> None:
        """Builds what stands at the left of the buttons that send, and the chip above the text."""
        attach_hint = tr("Attach files or images")
        self._attach = self._build_composer_button(tr("+ Attach"), "quiet", attach_hint)
        self._mode = self._build_composer_button("", "quiet", tr("Permission mode"))
        self._mode.hide()
        editing_label = tr("Editing an earlier message  ✕")
        editing_hint = tr(
            "Cancel editing. What is dimmed leaves the conversation with the new message."
        )
        self._editing = self._build_composer_button(editing_label, "chip", editing_hint)
        self._editing.hide()

        context_hint = tr("Show what is in the context")
        self.context_button = self._build_composer_button("", "quiet", context_hint)
        widgets.HintAboveFilter(self.context_button)
        self.context_button.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.meter = ContextMeter(self._theme, height=5, parent=self.context_button)
        self._figures = widgets.build_plain_label("", "small", self.context_button, wraps=False)
        # A click on them is one on the button that they stand on.
        for widget in (self.meter, self._figures):
            widget.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)

    def _build_sending_buttons(self) -> None:
        fold_label = tr("Shorten first")
        self._fold = self._build_composer_button(fold_label, "link", fold_label)
        self._fold.hide()
        self.price = NextMessageCostLabel(self._fold, self)
        stop_hint = tr("Stop the agent (Esc)")
        self._stop = self._build_composer_button(tr("Stop"), "", stop_hint)
        steer_hint = tr(
            "Stops the answer that is being written. A running command ends first. (Ctrl+Enter)"
        )
        self._steer = self._build_composer_button(tr("Send now"), "", steer_hint)
        self._steer.hide()
        send_hint = tr("Send the message (Enter)")
        self._send = self._build_composer_button(tr("Send"), "primary", send_hint)

    def _build_composer_button(self, text: str, look: str, hint: str) -> QPushButton:
        button = widgets.build_push_button(text, self, look=look, name=hint, toolTip=hint)
        button.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        return button

    def _lay_out_composer(self) -> None:
        """Arranges the parts: queued messages above the box; inside it the attachments,
        the text, and a row of buttons whose two halves stand below each other in a
        narrow window.
        """
        self._beside = build_row(self._attach, self._mode, 1, self.price, self.context_button)
        # As high as "Send", which comes with the first letter: the box must not grow then. Where
        # "Send" has a row of its own, that height would be missing to the buttons.
        self._height_of_row = QSpacerItem(0, 0)
        self._beside.addItem(self._height_of_row)
        self._ways_row = build_row(1, self._fold, self._stop, self._steer, self._send)
        self._row = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._row.addLayout(self._beside, 1)
        self._row.addLayout(self._ways_row)
        meter = (self.meter, 1)
        margins = (6, 0, 6, 0)
        build_row(meter, self._figures, owner=self.context_button, margins=margins, spacing=12)
        editing = (self._editing, Qt.AlignmentFlag.AlignLeft)
        self._inside = build_column(
            editing, self.attachments, self.text, self._row, owner=self._box
        )
        self._column = widgets.build_surface(self, "plain")
        build_column(self.waiting, self._box, owner=self._column, margins=0)
        self._whole = build_row(1, (self._column, 100), 1, owner=self)
        self.restyle_composer()

    def _connect_composer_signals(self) -> None:
        """Connects each button and field to what it does."""
        self._send.clicked.connect(self._send_when_turn_has_ended)
        self._steer.clicked.connect(self._send_after_present_step)
        self._stop.clicked.connect(self.stop_wanted)
        self._fold.clicked.connect(self.fold_wanted)
        self.context_button.clicked.connect(self.context_wanted)
        self._editing.clicked.connect(self.stop_editing_and_restore_draft)
        self._attach.clicked.connect(self.attach_wanted)
        self._mode.clicked.connect(self.open_mode_menu)
        self.text.sending.connect(lambda steer: self.send_composed_message(steer=steer))
        self.text.queued_message_wanted.connect(self._edit_last_queued_message)
        self.text.textChanged.connect(self._save_draft_and_update_send_button)
        self.price.changed.connect(self._fit_controls_to_width)
        self.text.focused.connect(self._mark_box_as_focused)
        self.attachments.changed.connect(self._update_meter_with_attachments)
        self.attachments.changed.connect(self._save_draft_and_update_send_button)
        self._theme.changed.connect(self.restyle_composer)

    def _mark_box_as_focused(self, focused: bool) -> None:  # noqa: FBT001 -- as the signal says it
        if focused:
            set_widget_look(self._box, "focused-box")
        else:
            set_widget_look(self._box, "box")

    def show_draft_of(self, workspace: str, conversation: str, name: str) -> None:
        """Shows a conversation's draft and sent messages; the previous draft has been saved."""
        place = (workspace, conversation)
        self.text.setPlaceholderText(tr("Message {name}…", name=name.removesuffix("…").rstrip()))
        # If one placeholder replaces another, Qt does not repaint the field by itself.
        self.text.viewport().update()
        if place != self._begun_from_new:
            self._begun_from_new = None

        self._show_what_is_saved_for(place)
        sent_messages = self._state_file.get_remembered("history", workspace, default=list[str]())
        self.text.set_sent_messages(sent_messages)
        self._save_draft_and_update_send_button()

    def show_saved_draft(self) -> None:
        """Shows what somebody else has saved as the draft of this conversation."""
        self._show_what_is_saved_for(self.draft_place)
        self._save_draft_and_update_send_button()

    def _show_what_is_saved_for(self, place: DraftPlace) -> None:
        # Without a place, what is put into the text is not saved as a draft.
        self.draft_place = ("", "")
        self._edited = 0
        self._interrupted_draft = ()
        edited = self.drafts.get_edited_message(place)
        if edited is not None:
            self._edited = edited.seq
            self._interrupted_draft = edited.interrupted_draft
        self._editing.setVisible(edited is not None)
        self.edited_message_changed.emit(self._edited)
        draft = self.drafts.get_draft(place)
        self._show_draft(draft)
        self.draft_place = place
        self.draft_id = self.drafts.get_draft_id(place)
        self._draft_of_file = draft

    def _show_draft(self, draft: Sequence[UserPart]) -> None:
        words = ""
        attachments: list[Attachment] = []
        for part in draft:
            if isinstance(part, Text):
                words += part.text
            else:
                attachments.append(part)
        self.attachments.show_attachments(attachments)
        if words != self.text.toPlainText():
            self.text.setPlainText(words)
            self.text.moveCursor(QTextCursor.MoveOperation.End)

    def move_draft_to_new_conversation(self, conversation: str) -> None:
        """Uses the text that was typed meanwhile as the draft of the conversation,
        which was just created.
        """
        workspace, shown_conversation = self.draft_place
        if shown_conversation == "new":
            place = (workspace, conversation)
            self.drafts.move_draft(self.draft_place, place)
            self._begun_from_new = place

    def show_window_meter(
        self,
        meter: WindowMeter = UNKNOWN_METER,
        figures: Savings | None = None,
        *,
        has_price: bool = True,
    ) -> None:
        """Shows how full the window is, and the cost. A "+" stands for requests of unknown cost."""
        self._measured = meter
        self._cost = ""
        self._left_out = ""
        if not has_price:  # No figure stands there, and words would displace the meter.
            self._left_out = tr("The price is not known.")
        if figures is not None and (figures.paid >= LEAST_SHOWN_DOLLARS or figures.unpriced):
            self._cost = format_dollars(figures.paid)
            if figures.unpriced:
                self._cost += " +"
                words = tr("Not included: requests whose cost is unknown")
                self._left_out = f"{words}: {format_number(figures.unpriced)}"
        self._update_meter_with_attachments()

    def _update_meter_with_attachments(self) -> None:
        """Shows how full the model's context window is, with the files that wait in the
        message box as if they were sent already. Each part has two numbers: the tokens
        as the model counts them, which is an estimate where attachments are, and as
        they were counted here (`counted`).
        """
        meter = self._measured
        attached_as_counted = 0
        if meter.window:
            attached_as_counted = self.attachments.attached_token_count
        attached = round(attached_as_counted * meter.factor)

        shown_parts: list[tuple[ContextKind, int]] = []
        counted_parts: list[tuple[ContextKind, int]] = []
        for kind in ContextKind:
            tokens = meter.parts.get(kind, 0)
            tokens_as_counted = meter.counted.get(kind, 0)
            # Attachments will be part of the conversation once the message is sent.
            if kind is ContextKind.CONVERSATION:
                tokens += attached
                tokens_as_counted += attached_as_counted
            shown_parts.append((kind, tokens))
            counted_parts.append((kind, tokens_as_counted))
        is_estimate = meter.is_estimate or attached > 0
        self.meter.show_meter_parts(
            shown_parts, meter.window, is_estimate=is_estimate, counted=counted_parts
        )

        fill = describe_window_fill(shown_parts, meter.window)
        is_window_exceeded = sum(meter.parts.values()) + attached > meter.window
        if is_estimate and not is_window_exceeded:
            fill = f"≈ {fill}"
        figures = [fill]
        if self._cost:
            figures.append(self._cost)
        self._figures.setText(" · ".join(figures))
        description = self.meter.toolTip()
        if self._left_out:
            description = f"{description}\n{self._left_out}".strip()
        # The panel has the figures, and must not be hidden by them while it opens.
        hint = tr("Show what is in the context")
        self.context_button.setToolTip(f"{hint}\n{self._left_out}".strip())
        self.context_button.setAccessibleDescription(description)
        self._fit_controls_to_width()

    def show_run_state(
        self,
        running: ConversationActivity,
        *,
        is_folding: bool = False,
        sends_only_when_done: bool = False,
    ) -> None:
        """Shows what is running. `is_folding`: a fold is being written, for which
        messages do not wait. `sends_only_when_done`: the agent takes no message before
        the end of its turn.
        """
        self._running = running
        self._sends_only_when_done = sends_only_when_done
        self.price.offer_folding_only_if_idle(idle=running is ConversationActivity.IDLE)
        is_working = running in WORKING_STATES
        can_stop = is_working or is_folding
        if not can_stop and self.window().focusWidget() is self._stop:
            self.text.setFocus()  # Qt would move the focus from the hidden button to the far left.
        self._stop.setVisible(can_stop)

        stop_hint = tr("Stop the agent (Esc)")
        if is_folding and not is_working:
            stop_hint = tr("Stop shortening (Esc)")
        self._stop.setToolTip(stop_hint)
        self._stop.setAccessibleName(stop_hint)

        self._send_words = tr("Send")
        send_hint = tr("Send the message (Enter)")
        if is_working:
            self._send_words = tr("Send when done")
            send_hint = tr("Send when the agent is done (Enter)")
        self._send.setToolTip(send_hint)
        self._send.setAccessibleName(send_hint)
        self._save_draft_and_update_send_button()
        self._fit_controls_to_width()

    def show_permission_modes(
        self,
        modes: Sequence[tuple[str, str]],
        current: str,
        allowed_uses: Sequence[str] = (),
    ) -> None:
        """Shows the permission modes, which are pairs of name and label. `allowed_uses`: what rules
        allow although the mode asks, by its names in the table "what rules allow".
        """
        self._modes = modes
        self._current_mode = current
        self._allowed_uses = allowed_uses
        name = dict(modes).get(current, current)
        self._mode_words = name_mode_with_exceptions(current, name, allowed_uses)
        hint_lines = [
            tr("Permission mode"),
            describe_what_mode_asks(current),
            describe_what_rules_allow(allowed_uses),
        ]
        self._mode.setToolTip("\n".join(filter(None, hint_lines)))
        self._mode.setVisible(bool(modes))
        # A mode that never asks must be noticed all the time.
        self._never_asks = current in MODES_WITHOUT_QUESTIONS
        if self._never_asks:
            set_widget_look(self._mode, "danger-chip")
        else:
            set_widget_look(self._mode, "quiet")
        self._fit_controls_to_width()

    def show_waiting_messages(
        self, messages: Sequence[Sequence[UserPart]], steering_count: int = 0
    ) -> None:
        self.waiting.show_messages(messages, steering_count)
        self.text.has_queued_messages = bool(messages)

    def send_composed_message(self, *, steer: bool) -> None:
        parts = self.message_parts()
        if not parts:
            return
        # The pressed button is hidden with the last letter, and Qt would move the focus far away.
        if self._send.hasFocus() or self._steer.hasFocus():
            self.text.setFocus()
        edited = self._edited
        sent_draft_id = self.draft_id
        self._sent_parts = parts
        self._sent_parts_for_estimate = tuple(self.message_parts_with_tokens_to_send())
        self._add_to_sent_history(self.text.toPlainText())
        self.text.clear()
        self.attachments.show_attachments([])
        self.stop_editing_and_restore_draft()
        if edited:
            self.resent.emit(edited, parts, sent_draft_id)
        else:
            self.sent.emit(parts, steer, sent_draft_id)

    def edit_earlier_message(self, seq: int, parts: Sequence[UserPart]) -> None:
        """Edits the message at `seq`. When it is sent again, what followed it is rewound."""
        self.stop_editing_and_restore_draft()
        self._interrupted_draft = self.message_parts()
        self._edited = seq
        self.drafts.save_edited_message(
            self.draft_place, EditedMessage(seq, self._interrupted_draft)
        )
        self.text.clear()
        self.attachments.show_attachments([])
        self._editing.show()
        self.edited_message_changed.emit(seq)
        self.put_message_back(parts)

    def stop_editing_and_restore_draft(self) -> None:
        if self._edited:
            self._edited = 0
            self.drafts.save_edited_message(self.draft_place, None)
            self._editing.hide()
            self.edited_message_changed.emit(0)
            self.text.clear()
            self.attachments.show_attachments([])
            self._add_message_parts(self._interrupted_draft)

    @property
    def replaced_message(self) -> int:
        """The earlier message that is being edited, or 0."""
        return self._edited

    def message_parts(self) -> tuple[UserPart, ...]:
        words = self.text.toPlainText().strip()
        parts: list[UserPart] = []
        if words:
            parts.append(Text(words))
        parts.extend(self.attachments.listed_attachments)
        return tuple(parts)

    def message_parts_with_tokens_to_send(self) -> list[UserPart]:
        """Returns the message for an estimate: of a long document, only its outline is sent."""
        parts: list[UserPart] = [part for part in self.message_parts() if isinstance(part, Text)]
        parts += self.attachments.attachments_with_tokens_to_send()
        return parts

    def list_parts_for_estimate(self, sent_parts: tuple[UserPart, ...]) -> tuple[UserPart, ...]:
        """Returns a message with the tokens that are sent of it, as the chips said before it was
        sent. Of a message that was written elsewhere, all of each attachment counts.
        """
        if sent_parts == self._sent_parts:
            return self._sent_parts_for_estimate
        return sent_parts

    def put_message_back(self, parts: Sequence[UserPart], *, takes_focus: bool = True) -> None:
        """Puts a message back into the composer, above the text that is already there."""
        self._add_message_parts(parts)
        if takes_focus:
            self.text.setFocus()

    def _add_message_parts(self, parts: Sequence[UserPart]) -> None:
        texts = [part.text for part in parts if isinstance(part, Text)]
        if texts:
            words = "\n\n".join(texts)
            if self.text.toPlainText().strip():
                words += "\n\n"
            # Inserting text with a separate cursor leaves the user's cursor where it is.
            QTextCursor(self.text.document()).insertText(words)
            self.text.ensureCursorVisible()
        for part in parts:
            if isinstance(part, Attachment):
                self.attachments.add_attachment(part)

    def take_over_messages_of_last_start(
        self,
        conversation: ConversationState,
        queue: Iterable[QueuedMessage],
        ids_of_this_start: Collection[str] = (),
    ) -> None:
        """Turns messages that were not yet in the conversation's queue when the program ended into
        a draft, which only the user may send, and clears a draft that the conversation has: the
        program may have been ended before it could note what it had sent. `ids_of_this_start`: of
        messages that are being sent, and stay in the file until they are.
        """
        queued_ids: list[str] = []
        for queued in queue:
            queued_ids.append(queued.command_id)
        self._clear_draft_if_it_was_sent(conversation, queued_ids)
        messages = self._state_file.get_remembered(
            "waiting", *self.draft_place, default=list[object]()
        )
        if not messages:
            return
        kept_messages: list[object] = []
        others: list[object] = []
        for message in messages:
            draft_id = decode_draft_id(message)
            # One that an earlier version kept, without an id, may be any message of the queue.
            is_perhaps_queued = bool(queued_ids) and not draft_id
            if is_perhaps_queued or draft_id in ids_of_this_start:
                kept_messages.append(message)
            elif not draft_id or draft_id not in queued_ids:
                others.append(message)
        self._state_file.remember_value("waiting", *self.draft_place, value=kept_messages)
        parts_of_draft: list[UserPart] = []
        for message_parts in find_unrecorded_messages(others, conversation):
            parts_of_draft.extend(message_parts)
        self._add_message_parts(parts_of_draft)

    def _clear_draft_if_it_was_sent(
        self, conversation: ConversationState, queued_ids: Sequence[str]
    ) -> None:
        """Words decide nothing, because people send the same word twice. Where nobody knows, the
        draft stays: what is seen twice is not lost.
        """
        # From now on the draft is certainly unsent, so it keeps its id when it is changed.
        self._draft_of_file = ()
        if not self.draft_id:
            return
        is_recorded = self.draft_id in conversation.record.commands_of_messages
        if is_recorded or self.draft_id in queued_ids:
            self.text.clear()
            self.attachments.show_attachments(())
            self.stop_editing_and_restore_draft()

    def is_message_of(self, place: DraftPlace) -> bool:
        """Whether this composer writes the message at `place`, even if its conversation
        was created since.
        """
        if place == self.draft_place:
            return True
        place_before_creation = (self.draft_place[0], "new")
        return self.draft_place == self._begun_from_new and place == place_before_creation

    def add_and_tell_if_shown(
        self, place: DraftPlace, parts: Sequence[UserPart], *, takes_focus: bool = True
    ) -> bool:
        """Adds parts to the message at `place`, or to its draft if another one is
        shown; False in that case.
        """
        if self.is_message_of(place):
            self.put_message_back(parts, takes_focus=takes_focus)
            return True
        self.drafts.save_draft(place, join_drafts(self.drafts.get_draft(place), parts))
        return False

    def open_mode_menu(self) -> None:
        menu = widgets.build_popup_menu(self)
        for name, label in self._modes:
            choose_mode = partial(self.mode_chosen.emit, name)
            is_chosen = name == self._current_mode
            choice = widgets.add_menu_choice(menu, label, choose_mode, chosen=is_chosen)
            sentences = [describe_what_mode_asks(name)]
            if is_chosen:
                sentences.append(describe_what_rules_allow(self._allowed_uses))
            lines = list(filter(None, sentences))
            choice.setWhatsThis(" ".join(lines))  # A screen reader passes over the lines below.
            for line in lines:
                menu.addAction(line).setEnabled(False)
        # The composer is at the lower edge of the window, so the menu opens above the button.
        above_button = QPoint(0, -menu.sizeHint().height())
        menu.popup(self._mode.mapToGlobal(above_button))

    def _add_to_sent_history(self, words: str) -> None:
        workspace, _ = self.draft_place
        history = self._state_file.get_remembered("history", workspace, default=list[str]())
        is_repeated = bool(history) and history[-1] == words
        if words.strip() and not is_repeated:
            history = history[1 - KEPT_MESSAGES :]
            history.append(words)
            self._state_file.remember_value("history", workspace, value=history)
        self.text.set_sent_messages(history)

    def _save_draft_and_update_send_button(self) -> None:
        """Is called for each letter that the user types: shows "Send", and "Send now"
        while the agent works, if there is something to send, and saves the draft. The
        row of buttons is laid out again only when a button comes or goes.
        """
        is_working = self._running in WORKING_STATES
        words = self.text.toPlainText()
        has_message = bool(words.strip() or self.attachments.listed_attachments)
        # An edited message takes the place of an earlier one, for which the agent has to be idle.
        can_steer = is_working and not self._edited and not self._sends_only_when_done
        shows_steer = has_message and can_steer

        is_send_changed = self._send.isHidden() is has_message
        is_steer_changed = self._steer.isHidden() is shows_steer
        is_first_or_last_letter = has_message is self._was_empty
        if is_send_changed or is_steer_changed or is_first_or_last_letter:
            self._was_empty = not has_message
            self._send.setVisible(has_message)
            self._steer.setVisible(shows_steer)
            self._fit_controls_to_width()

        _, conversation = self.draft_place
        if conversation:
            draft: list[UserPart] = []
            if has_message:
                if words:
                    draft.append(Text(words))
                draft += self.attachments.listed_attachments
            self._choose_draft_id(draft)
            self.drafts.save_draft(self.draft_place, draft, draft_id=self.draft_id)

    def _choose_draft_id(self, draft: Sequence[UserPart]) -> None:
        """Gives a new draft an id, and another one to a draft of the file that is changed: the one
        of the file may have been sent before a kill, and what is written now was not.
        """
        is_of_file = bool(self._draft_of_file)
        is_changed = is_of_file and not have_same_contents(draft, self._draft_of_file)
        if is_changed:
            self._draft_of_file = ()
        if not draft:
            self.draft_id = ""
        elif is_changed or not self.draft_id:
            self.draft_id = new_draft_id()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_controls_to_width()

    def _fit_controls_to_width(self) -> None:
        """Fits a narrow window: hides the bar, shrinks "+ Attach" to its icon, shortens the name of
        a mode that asks, shows only a short bar, and last shortens every mode's name.
        """
        px = self._theme.zoomed_pixels
        self._show_mode_name(self._mode_words)
        self._attach.setText(tr("+ Attach"))
        self._stack_buttons_if_narrow()
        room = self._measure_room_beside_buttons()
        figures_width = self._figures.sizeHint().width() + px(22)

        is_window_known = self._measured.window > 0
        room_for_figures = 0
        least_room = 0
        if is_window_known:
            room_for_figures = figures_width
            least_room = px(LEAST_BAR)
        if room < room_for_figures:
            room += self._attach.sizeHint().width()
            self._attach.setText("+")
            room -= self._attach.sizeHint().width()
        if room < room_for_figures and self._is_mode_name_long_enough_for(room_for_figures - room):
            room += self._shorten_mode_name(room_for_figures - room)
        if room < least_room and not self._mode.isHidden():
            room += self._shorten_mode_name(least_room - room)

        price_width = 0
        # The price is shown once text is typed.
        if self.price.text() and self.text.toPlainText().strip():
            price_width = self.price.sizeHint().width() + px(10)
        if room < figures_width + price_width:
            price_width = 0
        self.price.setVisible(price_width > 0)
        self.context_button.setVisible(is_window_known and room >= px(LEAST_BAR))
        self._share_room_of_context_button(room, figures_width, price_width)

    def _send_when_turn_has_ended(self) -> None:
        self.send_composed_message(steer=False)

    def _send_after_present_step(self) -> None:
        self.send_composed_message(steer=True)

    def _edit_last_queued_message(self) -> None:
        last_index = len(self.waiting.shown_messages) - 1
        self.waiting.editing.emit(last_index)

    def _stack_buttons_if_narrow(self) -> None:
        """Puts the ways to send below the other controls where both do not fit in one line. If they
        do not fit in a line of their own, "Stop" goes beside the other controls, and last the words
        of both ways to send are shortened.
        """
        was_stop_beside = self._is_stop_beside
        self._is_stop_beside = False
        self._send.setText(self._send_words)
        self._steer.setText(tr("Send now"))
        needed_for_one_line = self._width_of_shown(self._ways()) + self._width_beside_ways()
        height_of_row = 0
        if self._inner_width() < needed_for_one_line:
            self._row.setDirection(QBoxLayout.Direction.TopToBottom)
        else:
            self._row.setDirection(QBoxLayout.Direction.LeftToRight)
            height_of_row = self._send.sizeHint().height()
        self._height_of_row.changeSize(0, height_of_row)
        self._beside.invalidate()

        if not self._do_ways_fit():
            self._is_stop_beside = True
            # The room without "Stop" may still be too narrow.
            if self._running in WORKING_STATES and not self._do_ways_fit():
                self._send.setText(tr("When done"))
                if not self._do_ways_fit():
                    self._steer.setText(tr("Now"))
        if self._is_stop_beside and not was_stop_beside:
            self._beside.insertWidget(2, self._stop)
        elif was_stop_beside and not self._is_stop_beside:
            self._ways_row.insertWidget(2, self._stop)

    def _width_beside_ways(self) -> int:
        """The pixels that the controls beside the ways to send need."""
        px = self._theme.zoomed_pixels
        shown_ways = [button for button in self._ways() if not button.isHidden()]
        if len(shown_ways) < 2 or self._is_window_low():
            return px(LEAST_BESIDE_WAYS)
        self._attach.setText("+")
        width = self._width_of_shown((self._attach, self._mode))
        self._attach.setText(tr("+ Attach"))
        if not self._mode.isHidden():
            name_width = self._mode.fontMetrics().horizontalAdvance(self._mode_words)
            width -= max(name_width - px(READ_OF_MODE), 0)
        if self._measured.window > 0:
            width += self._figures.sizeHint().width() + px(22)
        return max(width, px(LEAST_BESIDE_WAYS))

    def _do_ways_fit(self) -> bool:
        width = self._width_of_shown(self._ways()) - self._theme.zoomed_pixels(10)
        return width <= self._inner_width()

    def _ways(self) -> tuple[QPushButton, ...]:
        if self._is_stop_beside:
            return (self._fold, self._steer, self._send)
        return (self._fold, self._stop, self._steer, self._send)

    def _inner_width(self) -> int:
        px = self._theme.zoomed_pixels
        return min(self.width() - px(32), px(widgets.COLUMN)) - px(32)

    def _width_of_shown(self, buttons: Sequence[QPushButton]) -> int:
        width = 0
        for button in buttons:
            if not button.isHidden():
                width += button.sizeHint().width() + self._theme.zoomed_pixels(10)
        return width

    def _measure_room_beside_buttons(self) -> int:
        """The pixels that are left for the price, the meter and its figures."""
        room = self._inner_width() - self._width_of_shown((self._attach, self._mode))
        if self._is_stop_beside:
            room -= self._width_of_shown((self._stop,))
        if self._row.direction() == QBoxLayout.Direction.LeftToRight:
            room -= self._width_of_shown(self._ways())
        return room

    def _is_mode_name_long_enough_for(self, missing: int) -> bool:
        """Whether a mode that asks would still be recognised without these pixels. A mode that
        never asks must be read as a whole.
        """
        if self._mode.isHidden() or self._never_asks:
            return False
        name_width = self._mode.fontMetrics().horizontalAdvance(self._mode_words)
        return name_width - missing >= self._theme.zoomed_pixels(LEAST_OF_ASKING_MODE)

    def _shorten_mode_name(self, missing: int) -> int:
        """Shortens the mode by the missing pixels if it can, and returns how many it gave."""
        metrics = self._mode.fontMetrics()
        whole_width = metrics.horizontalAdvance(self._mode_words)
        least_width = self._theme.zoomed_pixels(LEAST)
        short_width = min(max(whole_width - missing, least_width), whole_width)
        short_name = metrics.elidedText(self._mode_words, Qt.TextElideMode.ElideRight, short_width)
        self._show_mode_name(short_name)
        return whole_width - short_width

    def _share_room_of_context_button(
        self, room: int, figures_width: int, price_width: int
    ) -> None:
        """Shows the figures where they fit, and the bar where it fits beside or instead of them."""
        has_figures = room >= figures_width
        has_bar = not has_figures or room >= figures_width + price_width + BAR
        self._figures.setVisible(has_figures)
        self.meter.setVisible(has_bar)
        if not has_bar:
            self.context_button.setFixedWidth(figures_width)
            return
        if has_figures:
            room -= price_width
        widest = figures_width + self._theme.zoomed_pixels(MOST_BAR)
        self.context_button.setFixedWidth(max(min(room, widest), 0))

    def _show_mode_name(self, words: str) -> None:
        self._mode.setText(f"{words.replace('&', '&&')} ▾")

    def _is_window_low(self) -> bool:
        return self.window().height() < self._theme.zoomed_pixels(LOW_WINDOW)

    def restyle_composer(self) -> None:
        """Sets margins and spaces, which are small in a low window so that the buttons keep
        their height.
        """
        px = self._theme.zoomed_pixels
        self._beside.setSpacing(px(10))
        self._ways_row.setSpacing(px(10))
        around_box = px(16)
        inside_box = px(14)
        if self._is_window_low():
            self._whole.setContentsMargins(around_box, px(3), around_box, px(4))
            self._inside.setContentsMargins(inside_box, px(4), inside_box, px(4))
            self._inside.setSpacing(px(2))
            self._row.setSpacing(px(2))
        else:
            self._whole.setContentsMargins(around_box, px(12), around_box, px(14))
            self._inside.setContentsMargins(inside_box, px(11), inside_box, px(11))
            self._inside.setSpacing(px(16))
            self._row.setSpacing(px(10))
        self._column.setMaximumWidth(px(widgets.COLUMN))


def describe_what_mode_asks(mode: str) -> str:
    """Says what a permission mode still asks, or nothing about a mode that is not known here."""
    return translate_name("what a permission mode still asks", mode)


def describe_what_rules_allow(allowed_uses: Sequence[str]) -> str:
    """Says what the agent does without a question although the mode asks, or nothing."""
    names = _name_uses(allowed_uses)
    if not names:
        return ""
    return tr("Already allowed: {uses}.", uses=QLocale().createSeparatedList(names))


def name_mode_with_exceptions(mode: str, own_name: str, allowed_uses: Sequence[str]) -> str:
    """Returns another name for a mode that says by its own name that it asks before what rules
    allow. Any other mode keeps its own name.
    """
    names = _name_uses(allowed_uses)
    if not names or mode not in MODES_THAT_SAY_WHAT_THEY_ASK:
        return own_name
    if mode == ALLOW_EDITS:
        names = _name_uses(["edits", *allowed_uses])
    if len(names) > MOST_EXCEPTIONS_IN_NAME:
        return tr("Ask, with exceptions")
    return tr("Ask, but allow {uses}", uses=QLocale().createSeparatedList(names))


def _name_uses(allowed_uses: Sequence[str]) -> Sequence[str]:
    """Returns the known uses in the user's language. A newer host may know others."""
    names: list[str] = []
    for use in allowed_uses:
        name = translate_name("what rules allow", use)
        if name:
            names.append(name)
    return names
