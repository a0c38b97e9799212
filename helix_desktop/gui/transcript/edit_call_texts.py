"""What an opened call of an editing tool shows: the changed lines, or the text of a new file.

The arguments of such a call are JSON with the file's text in it, which nobody can read.
"""

import json
from typing import Any

from helix_desktop.engine.changes.git_patch import format_unified_diff
from helix_desktop.engine.hidden_characters import mark_text
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.transcript.code_highlighting import highlight_language_of

# Other agents than ours call the same argument by other names.
OLD_TEXT_NAMES = ("old_text", "old_string", "oldText", "old_str")
NEW_TEXT_NAMES = ("new_text", "new_string", "newText", "new_str")
WHOLE_TEXT_NAMES = ("content", "file_text")
PATH_NAMES = ("path", "file_path", "filePath", "filename")
FILE_NAME_LINES = 2  # The difference begins with "--- file" and "+++ file".
# Larger arguments are not read, as comparing them takes long.
LONGEST_READ_ARGUMENTS = 200_000


@dataclass(frozen=True, slots=True)
class EditText:
    """A text and the language in which it is coloured."""

    text: str
    language: str


def describe_edit(arguments: str) -> EditText | None:
    """Returns what a call changes in a file, or nothing if these are no arguments of an edit."""
    values = _read_arguments(arguments)
    path = _first_text(values, PATH_NAMES)
    if not path:
        return None
    old_text = _first_text(values, OLD_TEXT_NAMES)
    new_text = _first_text(values, NEW_TEXT_NAMES)
    if old_text is not None and new_text is not None:
        return EditText(_format_changed_lines(old_text, new_text, path), "diff")
    whole_text = _first_text(values, WHOLE_TEXT_NAMES)
    if whole_text is not None:
        return EditText(mark_text(whole_text.rstrip("\n")), highlight_language_of(path))
    return None


def _read_arguments(arguments: str) -> dict[str, Any]:
    if len(arguments) > LONGEST_READ_ARGUMENTS:
        return {}
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    if isinstance(values, dict):
        return values
    return {}


def _first_text(values: dict[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        value = values.get(name)
        if isinstance(value, str):
            return value
    return None


def _format_changed_lines(old_text: str, new_text: str, path: str) -> str:
    """Returns the lines with - and +. The arguments do not say where in the file they stand, so
    the headers with line numbers are left out.
    """
    shown_lines: list[str] = []
    difference = format_unified_diff(old_text, new_text, path)
    for line in difference.split("\n")[FILE_NAME_LINES:]:
        is_header = line.startswith("@@")
        is_note = line.startswith("\\")  # "No newline at end of file": the text ends within it.
        if not is_header and not is_note:
            shown_lines.append(mark_text(line))
    return "\n".join(shown_lines).rstrip("\n")
