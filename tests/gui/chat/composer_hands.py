"""What a composer has sent."""

from __future__ import annotations

from PySide6.QtTest import QSignalSpy

from helix_desktop.gui.chat.composer import Composer


def sent(composer: Composer) -> QSignalSpy:
    return QSignalSpy(composer.sent)


TAKEN = {"bottom"}  # Ctrl+End moves in the text while there is one to move in
