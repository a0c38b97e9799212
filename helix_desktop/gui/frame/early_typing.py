"""Keeps what the user types before the window is ready. It belongs to the conversation whose
message box was shown last.

Letters are saved to that conversation's draft at once, so nothing is lost if the program is killed
while it loads. The first paint imports this module, so it must not import the engine: it knows the
shape of a draft and nothing about messages.
"""

from typing import Any

from PySide6.QtGui import QKeyEvent

from helix_desktop.gui.saved_layouts_and_drafts import (
    DRAFT_ID,
    WindowStateFile,
    new_draft_id,
)
from helix_desktop.json_values import text_at

# Values of Qt.Key and Qt.KeyboardModifier. Importing Qt's enums would delay the start by 25 ms.
RETURN = 0x01000004
ENTER = 0x01000005
BACKSPACE = 0x01000003
LETTER_N = 0x4E
SHIFT = 0x02000000
CONTROL = 0x04000000
ALT = 0x08000000
META = 0x10000000


class EarlyTyping:
    """Keeps what the user types and sends until the window and the conversation are open."""

    def __init__(self, state_file: WindowStateFile) -> None:
        self._state_file = state_file
        workspace = state_file.get_remembered("workspace", default="")
        conversation = state_file.get_remembered("conversation", workspace, default="") or "new"
        self.draft_owner = (workspace, conversation)
        box = state_file.get_remembered("box", default=dict[str, object]())
        self.name = text_at(box, "name")
        # "Opening NAME…", in the user's language: a catalogue would take as long as the first paint.
        self.words_while_opening = text_at(box, "opening")
        page = state_file.get_remembered("layout", workspace, "page", default="chat")
        was_box_shown = box.get("is_shown", True) is True
        self.has_box = bool(workspace) and page == "chat" and was_box_shown
        self.enter_sends = not state_file.get_remembered("newline-with-enter", default=False)
        no_message: dict[str, object] = {}
        edited_message = state_file.get_remembered(
            "edit", workspace, conversation, default=no_message
        )
        self.is_edit = bool(edited_message)
        self.sent_messages: list[dict[str, Any]] = []
        self.sent_by_conversation = {self.draft_owner: self.sent_messages}
        # Of the drafts that were typed since the start. What the file had before may have been sent.
        self._draft_ids: dict[tuple[str, str], str] = {}

    @property
    def typed_text(self) -> str:
        return text_at(self._saved_draft, "text")

    def apply_key_to_message(self, event: QKeyEvent) -> bool:
        """Returns whether the key belongs to the message. Shortcuts and cursor keys do
        nothing yet.
        """
        modifiers = event.modifiers().value
        if modifiers & CONTROL and modifiers & ALT:
            # AltGr on Windows, which types "@" on a German keyboard.
            modifiers &= ~(CONTROL | ALT)
        if not self.has_box or modifiers & (ALT | META):
            return False
        key = event.key()
        if key in (RETURN, ENTER):
            self._send_or_begin_line(modifiers)
        elif modifiers == CONTROL and key == LETTER_N:
            self._turn_to_new_conversation()
        elif modifiers & CONTROL:
            return False
        elif key == BACKSPACE:
            self._save_draft_text(self.typed_text[:-1])
        elif event.text().isprintable():
            self.append_typed_text(event.text())
        return True

    def _send_or_begin_line(self, modifiers: int) -> None:
        wants_to_send = self.enter_sends or modifiers & CONTROL
        # An edited message rewinds the conversation, which has to be open for that.
        if modifiers & SHIFT or self.is_edit or not wants_to_send:
            self.append_typed_text("\n")
        elif self.typed_text.strip() or self._saved_draft.get("attachments"):
            self._queue_typed_message()

    def _turn_to_new_conversation(self) -> None:
        workspace, _conversation = self.draft_owner
        self.draft_owner = (workspace, "new")
        self.is_edit = False
        self.sent_messages = self.sent_by_conversation.setdefault(self.draft_owner, [])

    def append_typed_text(self, text: str) -> None:
        self._save_draft_text(self.typed_text + text)

    def _queue_typed_message(self) -> None:
        """Saves the message as waiting. A waiting message that is not sent becomes a
        draft again.
        """
        message = dict(self._saved_draft)
        message["text"] = self.typed_text.strip()
        workspace, conversation = self.draft_owner
        remembered = self._state_file.get_remembered(
            "waiting", workspace, conversation, default=list[object]()
        )
        waiting_messages = list(remembered)
        waiting_messages.append(message)
        self._state_file.remember_value("waiting", workspace, conversation, value=waiting_messages)
        self._state_file.remember_value("draft", workspace, conversation, value={})
        self._draft_ids.pop(self.draft_owner, None)
        self.sent_messages.append(message)

    @property
    def _saved_draft(self) -> dict[str, Any]:
        workspace, conversation = self.draft_owner
        return self._state_file.get_remembered(
            "draft", workspace, conversation, default=dict[str, Any]()
        )

    def _save_draft_text(self, text: str) -> None:
        attachments = self._saved_draft.get("attachments", [])
        draft: dict[str, Any] = {}
        if text or attachments:
            draft_id = self._draft_ids.setdefault(self.draft_owner, new_draft_id())
            draft = {"text": text, "attachments": attachments, DRAFT_ID: draft_id}
        workspace, conversation = self.draft_owner
        self._state_file.remember_value("draft", workspace, conversation, value=draft)
