"""Keeps what is typed before the window is furnished. It belongs to the conversation whose message box was shown last.

Letters go straight into the draft of that conversation, so a program that is killed while it loads has lost none of them.
Light on purpose: the first paint imports it, so it knows the shape of a draft and nothing of messages.
"""

from __future__ import annotations

from typing import Any

from PySide6.QtGui import QKeyEvent

from helix_desktop.gui.memory import Memory

RETURN, ENTER, BACKSPACE = 0x01000004, 0x01000005, 0x01000003  # Qt.Key, whose enum takes 25 ms to make
SHIFT, CONTROL, ALT, META = 0x02000000, 0x04000000, 0x08000000, 0x10000000


class EarlyWords:
    """`sent`: the messages that Enter has sent already, oldest first, as drafts are written. They go out once the conversation is open."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        workspace = memory.get("workspace", default="")
        conversation = memory.get("conversation", workspace, default="") or "new"
        self.place = (workspace, conversation)
        box = memory.get("box", default=dict[str, object]())
        name = box.get("name", "")
        self.name = name if isinstance(name, str) else ""
        page = memory.get("layout", workspace, "page", default="chat")
        self.has_box = bool(workspace) and page == "chat" and box.get("is_shown", True) is True
        self.enter_sends = not memory.get("newline-with-enter", default=False)
        self.is_edit = bool(memory.get("edit", *self.place, default=dict[str, object]()))
        self.sent: list[dict[str, Any]] = []

    @property
    def text(self) -> str:
        words = self._draft.get("text", "")
        return words if isinstance(words, str) else ""

    def press(self, event: QKeyEvent) -> bool:
        """Whether the key was one of a message. Keys that move a cursor, and shortcuts, do nothing yet."""
        held = event.modifiers().value
        if not self.has_box or held & (ALT | META):
            return False
        key = event.key()
        if key in (RETURN, ENTER):
            self._press_return(shift=bool(held & SHIFT), control=bool(held & CONTROL))
        elif held & CONTROL:
            return False
        elif key == BACKSPACE:
            self._write(self.text[:-1])
        elif event.text().isprintable():
            self.add(event.text())
        return True

    def add(self, words: str) -> None:
        self._write(self.text + words)

    def _press_return(self, *, shift: bool, control: bool) -> None:
        if shift or self.is_edit or not (self.enter_sends or control):
            self.add("\n")
        elif self.text.strip() or self._draft.get("attachments"):
            self._send()

    def _send(self) -> None:
        """It waits in the memory, where a message that was not sent becomes a draft again."""
        message = {**self._draft, "text": self.text.strip()}
        waiting = self._memory.get("waiting", *self.place, default=list[object]())
        self._memory.put("waiting", *self.place, value=[*waiting, message])
        self._memory.put("draft", *self.place, value={})
        self.sent.append(message)

    @property
    def _draft(self) -> dict[str, Any]:
        return self._memory.get("draft", *self.place, default=dict[str, Any]())

    def _write(self, text: str) -> None:
        held = self._draft.get("attachments", [])
        self._memory.put("draft", *self.place, value={"text": text, "attachments": held} if text or held else {})
