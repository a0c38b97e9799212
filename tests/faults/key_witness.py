"""The program, with a witness of what the X server brought to its process: `python -m
tests.faults.key_witness LOG`.

Whatever Qt or the program does with a key, its press is in the log before anybody else
sees it, as a keycode in a line. So a word that a busy computer never brought to the
window can be told from one that the window lost.
"""

import ctypes
import os
import sys
from typing import Any

from PySide6.QtCore import QAbstractNativeEventFilter
from PySide6.QtWidgets import QApplication

from helix_desktop import window_start

KEY_PRESS = 2  # of xcb's events; their first byte, the second is the keycode


class KeyWitness(QAbstractNativeEventFilter):
    def __init__(self, log: int) -> None:
        super().__init__()
        self._log = log

    def nativeEventFilter(self, kind: Any, message: Any) -> Any:  # noqa: N802 - Qt's name
        event = ctypes.string_at(int(message), 2)
        if event[0] & 0x7F == KEY_PRESS:
            os.write(self._log, b"%d\n" % event[1])
        return False, 0


def main() -> int:
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    witness = KeyWitness(log)
    create = window_start._create_qt_application

    def create_with_witness() -> QApplication:
        application = create()
        application.installNativeEventFilter(witness)
        return application

    window_start._create_qt_application = create_with_witness
    return window_start.main(argv=[])


if __name__ == "__main__":
    sys.exit(main())
