"""Remembers layouts, drafts and input history between two starts of the window, in one JSON file.

It holds nothing that would be missed like a conversation: a file that cannot be read is set aside and begun anew. Keys
are paths ("draft", workspace, conversation), so that what belongs to a workspace can be dropped with it.
"""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QObject, QTimer

from helix_desktop.atomic_files import ensure_private_folder, make_path_private

if TYPE_CHECKING:  # Compiling its regular expressions would take as long as the first paint.
    from helix_desktop.engine.forgotten_text_forms import TextForms

log = logging.getLogger(__name__)

WRITE_DELAY_MS = 400  # Writing waits this long, so that the file is not written at every key.
T = TypeVar("T")


class WindowMemory(QObject):
    """Values are what JSON can hold. Reading and remembering are instant; writing follows."""

    def __init__(self, file: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._file = file
        self._values: dict[str, object] = _read_memory_file(file)
        self._timer = QTimer(self, interval=WRITE_DELAY_MS, singleShot=True)
        self._timer.timeout.connect(self.write_memory_file)

    def get_remembered(self, *key: str, default: T) -> T:
        """The value, when there is one of the default's type."""
        found = self._values.get("/".join(key), default)
        return found if isinstance(found, type(default)) else default

    def remember_value(self, *key: str, value: object) -> None:
        """An empty value is forgotten."""
        path = "/".join(key)
        if self._values.get(path) == value:
            return
        if value in ("", [], {}, None):
            self._values.pop(path, None)
        else:
            self._values[path] = value
        # The timer is not restarted, so that text is saved even if the user never pauses.
        if not self._timer.isActive():
            self._timer.start()

    def forget_remembered_text(self, text: str, *, within: str) -> None:
        """Removes a text from all that is remembered for a workspace, on the disk and in a damaged file too."""
        from helix_desktop.engine.forgotten_text_forms import TextForms

        traces = TextForms(text)
        for path, value in self._values.items():
            if within in path.split("/"):
                self._values[path] = _blank_text_in_value(value, traces)
        self.write_memory_file()
        try:
            self._file.with_suffix(".damaged").unlink(missing_ok=True)
        except OSError as error:
            log.warning("a damaged file of the window could not be removed: %s", error)

    def forget_deleted_ids(self, *gone: str) -> None:
        """All that is kept of workspaces or conversations that were deleted for good."""
        self._values = {path: value for path, value in self._values.items() if not {*gone} & {*path.split("/")}}
        self.write_memory_file()

    def write_memory_file(self) -> None:
        """Write now; the old file stays whole until the new one is."""
        self._timer.stop()
        try:
            ensure_private_folder(self._file.parent)
            new = self._file.with_suffix(".new")
            new.write_text(json.dumps(self._values, ensure_ascii=False, indent=1), "utf-8", "replace")
            make_path_private(new)
            new.replace(self._file)
        except OSError as error:
            log.warning("the window's layout and drafts could not be kept: %s", error)


def _read_memory_file(file: Path) -> dict[str, object]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read and is set aside: %s", file.name, error)
        try:
            file.replace(file.with_suffix(".damaged"))
        except OSError as failure:
            log.warning("%s could not be set aside: %s", file.name, failure)
        return {}
    return found if isinstance(found, dict) else {}


def _blank_text_in_value(value: object, traces: "TextForms") -> object:
    match value:
        case str():
            return traces.blank_out(value, "")
        case list():
            return [left for each in value if (left := _blank_text_in_value(each, traces)) != ""]
        case dict():
            return {
                _blank_text_in_value(name, traces): _blank_text_in_value(each, traces) for name, each in value.items()
            }
    return value
