"""Saves layouts, drafts and input history of the window in one JSON file.

A file that cannot be read is kept under another name, and the window says so. Keys are paths
("draft", workspace, conversation), so that everything of a workspace can be removed with it.

Each window has a file of its own. What one forgets, it takes out of the files of the others, too. A
window that is open would write it again, so it is told by a file beside its own what was changed,
which it takes over before it writes, and when it comes to the front.
"""

import json
import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QObject, QTimer, Signal

from helix_desktop.atomic_files import ensure_private_folder, write_file_atomically
from helix_desktop.errors import HelixError, InvalidInput, StoreFailed

if TYPE_CHECKING:  # Importing these modules would take as long as the first paint.
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor, Future

    from helix_desktop.engine.forgotten_text_forms import TextForms

log = logging.getLogger(__name__)

# The delay before the file is written, so that it is not written on every key press.
WRITE_DELAY_MS = 200
# Earlier versions wrote under this key when they had saved the file.
SAVED_AT = "saved at"
DRAFT_ID = "id"  # The key of a draft's id in its value.
# The ending of the file in which other windows say what they have changed here.
CHANGED_BY_OTHERS = ".changed-by-others"
T = TypeVar("T")


class WindowStateFile(QObject):
    """Values can be anything that JSON can hold. Reading and remembering are instant;
    the file is written later. `changed_by_other_window`: what is shown has to be read again.
    """

    changed_by_other_window = Signal()

    def __init__(self, file: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._file = file
        # Errors that explain why drafts of earlier starts are missing.
        self.mistakes: list[HelixError] = []
        self._values: dict[str, object] = self._read_state_file()
        self._values.pop(SAVED_AT, None)
        self._writer: Executor | None = None
        self._newest_write: Future[None] | None = None
        self._timer = QTimer(self, interval=WRITE_DELAY_MS, singleShot=True)
        self._timer.timeout.connect(self._write_on_thread)
        self.take_changes_of_other_windows()

    def get_remembered(self, *key: str, default: T) -> T:
        """Returns the value if there is one of the default's type, or else the default."""
        value = self._values.get("/".join(key), default)
        if not isinstance(value, type(default)):
            return default
        return value

    def get_remembered_in_any_window(self, *key: str, default: T) -> T:
        """Returns the value of this window, or if it has none, that of the first one that has."""
        path = "/".join(key)
        if path in self._values:
            return self.get_remembered(*key, default=default)
        for file in sorted(self._file.parent.glob("window*.json")):
            if file == self._file:
                continue
            try:
                value = json.loads(file.read_text("utf-8")).get(path)
            except (OSError, ValueError, AttributeError, RecursionError) as error:
                log.warning("%s cannot be read: %s", file.name, error)
                continue
            if isinstance(value, type(default)):
                return value
        return default

    def remember_in_all_windows(self, *key: str, value: object) -> None:
        """Remembers what is the user's own order or choice, whichever window it was made in."""
        path = "/".join(key)
        self.remember_value(*key, value=value)
        self._change_files_of_other_windows(lambda values: values.update({path: value}))

    def remember_value(self, *key: str, value: object) -> None:
        """Remembers a value. An empty value is removed."""
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

    def start_waiting_write(self) -> None:
        """Writes now what waits to be written, because the window is about to be busy
        for longer than the delay.
        """
        if self._timer.isActive():
            self._write_on_thread()

    def forget_remembered_text(self, text: str, *, within: str) -> None:
        from helix_desktop.engine.forgotten_text_forms import TextForms

        traces = TextForms(text)
        _blank_text_in_values(self._values, traces, within)
        self.write_state_file()
        self._change_files_of_other_windows(
            partial(_blank_text_in_values, traces=traces, within=within)
        )
        try:
            for damaged_file in self._file.parent.glob(f"{self._file.stem}.damaged*"):
                damaged_file.unlink()
        except OSError as error:
            log.warning("a damaged file of the window could not be removed: %s", error)

    def forget_deleted_ids(self, *deleted_ids: str) -> None:
        """Removes what is remembered of workspaces or conversations that were deleted for ever."""
        _remove_values_of_ids(self._values, deleted_ids)
        self.write_state_file()
        self._change_files_of_other_windows(partial(_remove_values_of_ids, deleted_ids=deleted_ids))

    def take_changes_of_other_windows(self) -> None:
        """Takes over what another window has changed here since this one wrote its file last."""
        file = self._file.with_suffix(CHANGED_BY_OTHERS)
        changes = _read_changes(file)
        if not changes:
            return
        for path, value in changes.items():
            if value is None:
                self._values.pop(path, None)
            else:
                self._values[path] = value
        try:
            file.unlink()
        except OSError as error:
            log.warning("%s could not be removed: %s", file.name, error)
        self.changed_by_other_window.emit()

    def _change_files_of_other_windows(
        self, change: "Callable[[dict[str, object]], object]"
    ) -> None:
        """Changes what other windows remembered, too. One that is open knows its values from
        memory, so it is told of the changes.
        """
        for file in self._file.parent.glob("window*.json"):
            if file == self._file:
                continue
            try:
                values = json.loads(file.read_text("utf-8"))
                values_before = dict(values)
                change(values)
                content = json.dumps(values, ensure_ascii=False, indent=1)
            except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
                log.warning("%s cannot be read and stays as it is: %s", file.name, error)
                continue
            _tell_of_changes(file, values_before, values)
            _write_or_log_why_not(file, content.encode("utf-8", "replace"))

    async def write_and_wait(self) -> None:
        """Returns when all that is remembered now is on the disk. The window goes on meanwhile."""
        import asyncio

        self._write_on_thread()
        if self._newest_write is not None:
            await asyncio.wrap_future(self._newest_write)

    def write_state_file(self) -> None:
        """Returns when the file is on the disk. The old one stays complete until then."""
        self._write_on_thread().shutdown()
        self._writer = None  # An idle thread in the pool would keep the program from ending.

    def _write_on_thread(self) -> "Executor":
        """Writes one version after another on a thread, because the disk may be slow."""
        from helix_desktop import concurrency

        self._timer.stop()
        self.take_changes_of_other_windows()
        if self._writer is None:
            self._writer = concurrency.create_thread_pool("window's state", threads=1)
        text = json.dumps(self._values, ensure_ascii=False, indent=1)
        content = text.encode("utf-8", "replace")
        self._newest_write = self._writer.submit(_write_or_log_why_not, self._file, content)
        return self._writer

    def _read_state_file(self) -> dict[str, object]:
        try:
            values = json.loads(self._file.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            return self._rename_damaged_file(str(error))
        if not isinstance(values, dict):
            return self._rename_damaged_file("it holds no object")
        return values

    def _rename_damaged_file(self, reason: str) -> dict[str, object]:
        """Renames a damaged file, so that nothing in it is lost, and returns empty content."""
        log.warning("%s cannot be read and is set aside: %s", self._file.name, reason)
        new_name = self._find_free_name_for_damaged_file()
        try:
            self._file.replace(new_name)
        except OSError as error:
            log.warning("%s could not be set aside: %s", self._file.name, error)
            return {}
        message = (
            f"Drafts and the window's layout could not be read. Their file was kept as {new_name}."
        )
        self.mistakes.append(InvalidInput(message))
        return {}

    def _find_free_name_for_damaged_file(self) -> Path:
        name = self._file.with_suffix(".damaged")
        number = 0
        while name.exists():
            number += 1
            name = self._file.with_suffix(f".damaged{number}")
        return name


def new_draft_id() -> str:
    """Returns what a draft is known by in its conversation once it is sent, whatever it says."""
    return os.urandom(12).hex()


def _write_or_log_why_not(file: Path, content: bytes) -> None:
    try:
        ensure_private_folder(file.parent)
        write_file_atomically(file, content, private=True)
    except (OSError, StoreFailed) as error:
        log.warning("the window's layout and drafts could not be kept: %s", error)


def _read_changes(file: Path) -> dict[str, object]:
    """Returns the new value of each path that another window has changed, or None if it has
    removed the value.
    """
    try:
        changes = json.loads(file.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        log.warning("%s cannot be read: %s", file.name, error)
        return {}
    if not isinstance(changes, dict):
        return {}
    return changes


def _tell_of_changes(
    state_file: Path, values_before: dict[str, object], values: dict[str, object]
) -> None:
    """Writes beside the file of another window which of its values were changed."""
    file = state_file.with_suffix(CHANGED_BY_OTHERS)
    # The window may not have taken over the last changes yet.
    changes = _read_changes(file)
    for path, value_before in values_before.items():
        value = values.get(path)
        if value != value_before:
            changes[path] = value
    if changes:
        content = json.dumps(changes, ensure_ascii=False)
        _write_or_log_why_not(file, content.encode("utf-8", "replace"))


def _blank_text_in_values(values: dict[str, object], traces: "TextForms", within: str) -> None:
    for path, value in values.items():
        if within in path.split("/"):
            values[path] = _blank_text_in_value(value, traces)


def _remove_values_of_ids(values: dict[str, object], deleted_ids: "Sequence[str]") -> None:
    for path in list(values):
        names_in_path = path.split("/")
        if any(deleted_id in names_in_path for deleted_id in deleted_ids):
            del values[path]


def _blank_text_in_value(value: object, traces: "TextForms") -> object:
    match value:
        case str():
            return traces.blank_out(value, "")
        case list():
            blanked = [_blank_text_in_value(item, traces) for item in value]
            return [item for item in blanked if item != ""]
        case dict():
            items: dict[object, object] = {}
            for name, item in value.items():
                items[_blank_text_in_value(name, traces)] = _blank_text_in_value(item, traces)
            return items
    return value
