"""A small form built from a JSON schema, for values that an MCP server requests (elicitation).

It supports flat objects of texts, numbers, yes-or-no values and choices, as the protocol allows.
Anything else is entered as JSON.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QFormLayout, QLabel, QLineEdit, QPlainTextEdit, QWidget

from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.widgets import build_combo_box, build_plain_label, build_surface
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr
from helix_desktop.json_values import list_at, object_at

LONGEST_LINE = 60  # So many characters are in sight in a field or label of one line.


@dataclass(frozen=True, slots=True)
class SchemaChoice:
    """A value that the server allows, and the words that people read for it."""

    value: Any
    label: str


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A field of the form. `read_value` returns what is entered, or raises InvalidInput."""

    widget: QWidget
    read_value: Callable[[], Any]


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
            form_schema = json.loads(schema)
        except (ValueError, RecursionError):  # A form without fields still lets the user decline.
            form_schema = {}
        self._required = {str(name) for name in list_at(form_schema, "required")}
        for name, field_schema in object_at(form_schema, "properties").items():
            self._add_schema_field(str(name), object_at(field_schema))

    @property
    def first_field(self) -> QWidget | None:
        item = self._layout.itemAt(0, QFormLayout.ItemRole.FieldRole)
        if item is None:
            return None
        return item.widget()

    def values_as_json(self) -> str:
        values: dict[str, Any] = {}
        for name, read_value in self._readers.items():
            value = read_value()
            # An empty field is left out, so that "" does not count as an entered value.
            if value not in ("", None, []):
                values[name] = value
            elif name in self._required:
                raise InvalidInput(tr("{name} is required.", name=name))
        return json.dumps(values, ensure_ascii=False)

    def _add_schema_field(self, name: str, field_schema: Mapping[str, Any]) -> None:
        """Adds a field for a property of the JSON Schema, with its title, and its
        description below it. A star marks what has to be filled in.
        """
        title = str(field_schema.get("title") or name)
        field = self._build_schema_field(name, field_schema)
        self._readers[name] = field.read_value
        field.widget.setAccessibleName(title)
        label = title
        if name in self._required:
            label = f"{title} *"
        self._layout.addRow(self._build_field_label(label), field.widget)
        description = str(field_schema.get("description") or "")
        if description:
            note = self._build_field_label(description)
            note.setProperty("look", "small")
            note.setWordWrap(True)
            self._layout.addRow("", note)

    def _build_field_label(self, text: str) -> QLabel:
        is_long = len(text) > LONGEST_LINE
        return build_plain_label(make_safe_text(text), parent=self, wraps=is_long)

    def _build_schema_field(self, name: str, field_schema: Mapping[str, Any]) -> SchemaField:
        """Chooses the field that suits a property: a list of choices, a check box, a
        line, or, for what none of them can hold, a text in JSON.
        """
        kind = field_schema.get("type")
        choices = _list_schema_choices(field_schema)
        if choices:
            return self._build_single_choice(name, field_schema, choices)
        if kind == "array":
            item_choices = _list_schema_choices(object_at(field_schema, "items"))
            if item_choices:
                chosen_values = list_at(field_schema, "default")
                return self._build_multiple_choice(item_choices, chosen_values)
        if kind == "boolean":
            check_box = QCheckBox(self)
            check_box.setChecked(field_schema.get("default") is True)
            return SchemaField(check_box, check_box.isChecked)
        if kind in ("string", "number", "integer"):
            return self._build_line_field(name, field_schema, str(kind))
        text = QPlainTextEdit(self, tabChangesFocus=True)
        text.setProperty("look", "mono")
        return SchemaField(text, lambda: _parse_field_json(name, text.toPlainText()))

    def _build_single_choice(
        self, name: str, field_schema: Mapping[str, Any], choices: list[SchemaChoice]
    ) -> SchemaField:
        title = str(field_schema.get("title") or name)
        combo_box = build_combo_box(make_safe_text(title), self)
        if name not in self._required:
            combo_box.addItem(tr("(none)"), "")
        for choice in choices:
            combo_box.addItem(make_safe_text(choice.label), choice.value)
        default_index = combo_box.findData(field_schema.get("default"))
        combo_box.setCurrentIndex(max(default_index, 0))
        return SchemaField(combo_box, combo_box.currentData)

    def _build_line_field(
        self, name: str, field_schema: Mapping[str, Any], kind: str
    ) -> SchemaField:
        """Builds a field of one line for a text or a number. Enter sends the form."""
        line_edit = QLineEdit(self)
        default = field_schema.get("default")
        if default is not None and _is_seen_whole(str(default)):
            line_edit.setText(str(default))

        def send_if_edited() -> None:
            # Enter in an untouched field could send values that nobody has looked at.
            if line_edit.isModified():
                self.entered.emit()

        def read_value() -> Any:
            if kind == "string":
                return line_edit.text()
            return _parse_field_number(name, line_edit.text(), kind)

        line_edit.returnPressed.connect(send_if_edited)
        return SchemaField(line_edit, read_value)

    def _build_multiple_choice(
        self, choices: list[SchemaChoice], chosen_values: list[Any]
    ) -> SchemaField:
        """Builds a check box for each choice. The field's value is the list of those
        checked.
        """
        group = build_surface(self, "plain")
        column = build_column(owner=group, margins=0)
        check_boxes: list[tuple[Any, QCheckBox]] = []
        for choice in choices:
            # Qt would take "&" for the mark of a shortcut key.
            check_box = QCheckBox(make_safe_text(choice.label).replace("&", "&&"), group)
            check_box.setChecked(choice.value in chosen_values)
            column.addWidget(check_box)
            check_boxes.append((choice.value, check_box))

        def read_checked_values() -> list[Any]:
            return [value for value, check_box in check_boxes if check_box.isChecked()]

        return SchemaField(group, read_checked_values)


def _is_seen_whole(default: str) -> bool:
    """Whether a text that a server puts into a line is all in sight. What is sent in the user's name
    must be.
    """
    return len(default) <= LONGEST_LINE and make_safe_text(default) == default


def _list_schema_choices(field_schema: Mapping[str, Any]) -> list[SchemaChoice]:
    """Returns choices and labels, in any of the forms that versions of the protocol define."""
    alternatives = field_schema.get("oneOf") or field_schema.get("anyOf")
    if isinstance(alternatives, list):
        return _choices_of_alternatives(alternatives)
    values = field_schema.get("enum")
    if not isinstance(values, list):
        return []
    labels = field_schema.get("enumNames")
    if not isinstance(labels, list) or len(labels) != len(values):
        labels = values
    choices: list[SchemaChoice] = []
    for value, label in zip(values, labels, strict=True):
        choices.append(SchemaChoice(value, str(label)))
    return choices


def _choices_of_alternatives(alternatives: list[Any]) -> list[SchemaChoice]:
    choices: list[SchemaChoice] = []
    for alternative in map(object_at, alternatives):
        if "const" in alternative:
            value = alternative["const"]
            label = str(alternative.get("title", value))
            choices.append(SchemaChoice(value, label))
    return choices


def _parse_field_number(name: str, text: str, kind: str) -> float | None:
    if not text.strip():
        return None
    try:
        if kind == "integer":
            return int(text)
        number = float(text)
    except ValueError as error:
        raise InvalidInput(tr("{name} must be a number.", name=name)) from error
    if not math.isfinite(number):  # There is no such number in JSON.
        raise InvalidInput(tr("{name} must be a number.", name=name))
    return number


def _parse_field_json(name: str, text: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(tr("{name} must be JSON.", name=name)) from error
