"""Forms that a server asks to be filled in."""

from __future__ import annotations

import json

import pytest
from PySide6.QtWidgets import QCheckBox, QComboBox, QLabel, QLineEdit

from helix_desktop.errors import InvalidInput
from helix_desktop.gui.chat.schema_form import SchemaForm
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import make_safe_text
from tests.gui.chat.test_permission_card import SCHEMA


def test_a_form_is_made_from_a_schema(theme: Theme) -> None:
    form = SchemaForm(SCHEMA)
    with pytest.raises(InvalidInput, match="name is required"):
        form.values_as_json()
    lines = form.findChildren(QLineEdit)
    lines[0].setText("Ada")
    form.findChildren(QCheckBox)[0].setChecked(True)
    assert form.findChildren(QComboBox)[0].currentText() == "green"
    assert json.loads(form.values_as_json()) == {"name": "Ada", "colour": "green", "sure": True}
    lines[1].setText("old")
    with pytest.raises(InvalidInput, match="age must be a number"):
        form.values_as_json()


@pytest.mark.parametrize("schema", ["", "[]", "{", '{"properties": 3}', '{"properties": {"x": 1}}'])
def test_a_broken_schema_makes_an_empty_or_a_plain_form(theme: Theme, schema: str) -> None:
    assert json.loads(SchemaForm(schema).values_as_json()) in ({}, {"x": None})


def test_nothing_in_a_servers_form_is_hidden(theme: Theme) -> None:
    hiding = "yes\u202eon"
    long_title = "yes " * 300 + "and delete all"
    properties = {
        "one": {"type": "string", "enum": [hiding]},
        "many": {"type": "array", "items": {"enum": [hiding]}},
        "sure": {"type": "boolean", "title": long_title},
    }
    form = SchemaForm(json.dumps({"properties": properties, "required": ["one"]}))
    (single_choice,) = form.findChildren(QComboBox)
    marked = make_safe_text(hiding)
    assert "\u202e" not in marked
    assert single_choice.itemText(0) == marked
    assert form.findChildren(QCheckBox)[0].text() == marked
    assert make_safe_text(long_title) in [label.text() for label in form.findChildren(QLabel)]


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ({"type": "string", "default": "Ada"}, {"x": "Ada"}),
        ({"type": "string", "default": "Ada" + " " * 300 + "and a secret"}, {}),
        ({"type": "string", "default": "Ada\u200b"}, {}),
        ({"type": "integer", "default": 10**400}, {}),
        ({"type": "boolean", "default": "false"}, {"x": False}),
    ],
)
def test_what_a_server_fills_in_is_sent_only_if_it_is_all_in_sight(
    field: object, sent: object, theme: Theme
) -> None:
    form = SchemaForm(json.dumps({"properties": {"x": field}}))
    assert json.loads(form.values_as_json()) == sent


def test_a_number_that_json_cannot_hold_is_not_sent(theme: Theme) -> None:
    form = SchemaForm(json.dumps({"properties": {"x": {"type": "number", "default": "1e999"}}}))
    with pytest.raises(InvalidInput, match="x must be a number"):
        form.values_as_json()


def test_choices_with_words_and_several_of_them(theme: Theme) -> None:
    either = {
        "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}],
        "type": "string",
    }
    many = {"type": "array", "items": {"enum": ["a", "b", "c"]}, "default": ["b"]}
    older = {"type": "string", "enum": ["1", "2"], "enumNames": ["One", "Two"]}
    schema = {
        "properties": {"colour": either, "letters": many, "number": older},
        "required": ["colour"],
    }
    form = SchemaForm(json.dumps(schema))
    colour, number = form.findChildren(QComboBox)
    assert [colour.itemText(at) for at in range(colour.count())] == ["Red", "Green"]
    assert [number.itemText(at) for at in range(number.count())] == ["(none)", "One", "Two"]
    colour.setCurrentIndex(1)
    form.findChildren(QCheckBox)[0].setChecked(True)
    assert json.loads(form.values_as_json()) == {"colour": "g", "letters": ["a", "b"]}
