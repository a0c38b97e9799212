"""A small form made from a JSON schema: what a server asks the user for (elicitation).

Flat objects of texts, numbers, yes-or-no and choices, as the protocol allows. Anything else is asked for as JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from PySide6.QtWidgets import QCheckBox, QComboBox, QFormLayout, QLabel, QLineEdit, QPlainTextEdit, QWidget

from helix_desktop.errors import WrongUse
from helix_desktop.gui.words import tr


class SchemaForm(QWidget):
    """`values()` gives the JSON text, or raises WrongUse that names the field."""

    def __init__(self, schema: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("look", "plain")
        self._readers: dict[str, Callable[[], Any]] = {}
        self._layout = QFormLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        declared = _object(schema)
        properties = declared.get("properties")
        self._required = {str(name) for name in declared.get("required") or ()}
        for name, about in properties.items() if isinstance(properties, Mapping) else ():
            self._add(str(name), about if isinstance(about, Mapping) else {})

    def values(self) -> str:
        found: dict[str, Any] = {}
        for name, read in self._readers.items():
            value = read()
            if value not in ("", None):
                found[name] = value
            elif name in self._required:
                raise WrongUse(tr("{name} is needed.", name=name))
        return json.dumps(found, ensure_ascii=False)

    def _add(self, name: str, about: Mapping[str, Any]) -> None:
        title = str(about.get("title") or name)
        widget, self._readers[name] = self._field(name, about)
        widget.setAccessibleName(title)
        self._layout.addRow(title, widget)
        sentence = str(about.get("description") or "")
        if sentence:
            note = QLabel(sentence[:500], self)
            note.setProperty("look", "small")
            note.setWordWrap(True)
            note.setTextFormat(note.textFormat().PlainText)
            self._layout.addRow("", note)

    def _field(self, name: str, about: Mapping[str, Any]) -> tuple[QWidget, Callable[[], Any]]:
        kind, default = about.get("type"), about.get("default")
        if isinstance(about.get("enum"), list):
            box = QComboBox(self)
            box.addItems([str(each) for each in about["enum"]])
            box.setCurrentText(str(default or about["enum"][0]))
            return box, box.currentText
        if kind == "boolean":
            check = QCheckBox(self)
            check.setChecked(bool(default))
            return check, check.isChecked
        if kind in ("string", "number", "integer"):
            line = QLineEdit("" if default is None else str(default), self)
            return line, lambda: _number(name, line.text(), str(kind)) if kind != "string" else line.text()
        text = QPlainTextEdit(self)
        text.setProperty("look", "mono")
        return text, lambda: _json(name, text.toPlainText())


def _object(schema: str) -> Mapping[str, Any]:
    try:
        found = json.loads(schema)
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _number(name: str, text: str, kind: str) -> float | None:
    if not text.strip():
        return None
    try:
        return int(text) if kind == "integer" else float(text)
    except ValueError as error:
        raise WrongUse(tr("{name} has to be a number.", name=name)) from error


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else None
    except ValueError as error:
        raise WrongUse(tr("{name} has to be JSON.", name=name)) from error
