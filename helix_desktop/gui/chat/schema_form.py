"""A small form built from a JSON schema, for values that an MCP server requests (elicitation).

It supports flat objects of texts, numbers, yes-or-no values and choices, as the protocol allows.
Anything else is entered as JSON.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QFormLayout, QLabel, QLineEdit, QPlainTextEdit, QWidget

from helix_desktop.errors import InvalidInput
from helix_desktop.gui.common.widgets import build_combo_box, build_plain_label, build_surface
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr
from helix_desktop.json_values import list_at, object_at


class SchemaForm(QWidget):
    """`values_as_json()` raises InvalidInput for a wrong field. `entered`: Enter was
    pressed in a field.
    """

    entered = Signal()

    def __init__(self, schema: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("look", "plain")
        self._readers: dict[str, Callable[[], Any]] = {}
        self._layout = QFormLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        try:
            declared = json.loads(schema)
        except ValueError:
            declared = {}
        self._required = set(map(str, list_at(declared, "required")))
        for name, about in object_at(declared, "properties").items():
            self._add_schema_field(str(name), object_at(about))

    @property
    def first_field(self) -> QWidget | None:
        item = self._layout.itemAt(0, QFormLayout.ItemRole.FieldRole)
        return item.widget() if item is not None else None

    def values_as_json(self) -> str:
        found: dict[str, Any] = {}
        for name, read in self._readers.items():
            if (value := read()) not in ("", None, []):
                found[name] = value
            elif name in self._required:
                raise InvalidInput(tr("{name} is required.", name=name))
        return json.dumps(found, ensure_ascii=False)

    def _add_schema_field(self, name: str, about: Mapping[str, Any]) -> None:
        title = str(about.get("title") or name)
        widget, self._readers[name] = self._build_schema_field(name, about)
        widget.setAccessibleName(title)
        self._layout.addRow(
            self._build_field_label(f"{title} *" if name in self._required else title), widget
        )
        if sentence := str(about.get("description") or ""):
            note = self._build_field_label(sentence)
            note.setProperty("look", "small")
            note.setWordWrap(True)
            self._layout.addRow("", note)

    def _build_field_label(self, text: str) -> QLabel:
        return build_plain_label(make_safe_text(text[:500]), parent=self, wraps=False)

    def _build_schema_field(
        self, name: str, about: Mapping[str, Any]
    ) -> tuple[QWidget, Callable[[], Any]]:
        kind, default = about.get("type"), about.get("default")
        if choices := _list_schema_choices(about):
            box = build_combo_box(make_safe_text(str(about.get("title") or name)[:500]), self)
            for value, words in [
                *([] if name in self._required else [("", tr("(none)"))]),
                *choices,
            ]:
                box.addItem(words, value)
            box.setCurrentIndex(max(box.findData(default), 0))
            return box, box.currentData
        if kind == "array" and (choices := _list_schema_choices(object_at(about, "items"))):
            return self._build_multiple_choice(
                choices, default if isinstance(default, list) else []
            )
        if kind == "boolean":
            check = QCheckBox(self)
            check.setChecked(bool(default))
            return check, check.isChecked
        if kind in ("string", "number", "integer"):
            line = QLineEdit("" if default is None else str(default), self)
            line.returnPressed.connect(lambda: self.entered.emit() if line.isModified() else None)
            return (
                line,
                lambda: (
                    _parse_field_number(name, line.text(), str(kind))
                    if kind != "string"
                    else line.text()
                ),
            )
        text = QPlainTextEdit(self)
        text.setProperty("look", "mono")
        return text, lambda: _parse_field_json(name, text.toPlainText())

    def _build_multiple_choice(
        self, choices: list[tuple[Any, str]], chosen: list[Any]
    ) -> tuple[QWidget, Callable[[], Any]]:
        group = build_surface(self, "plain")
        column = build_column(owner=group, margins=0)
        checks = []
        for value, words in choices:
            check = QCheckBox(words.replace("&", "&&"), group)
            check.setChecked(value in chosen)
            column.addWidget(check)
            checks.append((value, check))
        return group, lambda: [value for value, check in checks if check.isChecked()]


def _list_schema_choices(about: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Returns choices and labels, in any of the forms that versions of the protocol define."""
    named = about.get("oneOf") or about.get("anyOf")
    if isinstance(named, list):
        constants = [each for each in map(object_at, named) if "const" in each]
        return [(each["const"], str(each.get("title", each["const"]))) for each in constants]
    values, words = about.get("enum"), about.get("enumNames")
    if not isinstance(values, list):
        return []
    if not isinstance(words, list) or len(words) != len(values):
        words = values
    return [(value, str(word)) for value, word in zip(values, words, strict=True)]


def _parse_field_number(name: str, text: str, kind: str) -> float | None:
    if not text.strip():
        return None
    try:
        return int(text) if kind == "integer" else float(text)
    except ValueError as error:
        raise InvalidInput(tr("{name} must be a number.", name=name)) from error


def _parse_field_json(name: str, text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else None
    except ValueError as error:
        raise InvalidInput(tr("{name} must be JSON.", name=name)) from error
