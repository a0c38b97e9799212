"""Settings of other programs: read with comments, and changed without losing anything."""

from __future__ import annotations

import pytest

from helix_desktop.commented_json import parse_commented_json, set_commented_json
from helix_desktop.errors import ConfigFileMistake

ENTRY = {"url": "http://127.0.0.1"}


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{ }",
        "",
        '{"a": 1}',
        '{\n  "a": 1, // one\n  /* and "b" { */\n}\n',
        '{"a": "no // comment", "b": null,}',
        '{"b": {"c": 1}, "b": {"d": {}, "c": 2}}',
        "{\n  // nothing yet\n}\n",
    ],
)
def test_a_value_that_was_set_is_read_and_the_rest_is_as_it_was(text: str) -> None:
    changed = set_commented_json(text, ("b", "c"), ENTRY)
    expected = parse_commented_json(text, "settings.json")
    inner = expected.get("b") or {}
    assert parse_commented_json(changed, "settings.json") == expected | {"b": inner | {"c": ENTRY}}
    for comment in ("// one", '/* and "b" { */', "// nothing yet"):
        assert (comment in changed) is (comment in text)


@pytest.mark.parametrize("text", ['{\r\n  "a": 1\r\n}\r\n', "{\r\n}\r\n", "{\r\n  // x\r\n}\r\n"])
def test_windows_line_ends_stay(text: str) -> None:
    changed = set_commented_json(text, ("b",), ENTRY)
    assert changed.count("\n") == changed.count("\r\n") > text.count("\n")
    assert parse_commented_json(changed, "settings.json")["b"] == ENTRY


@pytest.mark.parametrize("text", ['\ufeff{"a": 1}', "\ufeff"])
def test_a_byte_order_mark_is_no_mistake(text: str) -> None:
    parse_commented_json(text, "settings.json")
    changed = set_commented_json(text, ("b",), ENTRY)
    assert parse_commented_json(changed, "settings.json")["b"] == ENTRY


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": ' + "[" * 100_000, "nonsense"])
def test_what_is_no_object_is_said_with_the_name_of_the_file(text: str) -> None:
    with pytest.raises(ConfigFileMistake, match=r"settings\.json"):
        parse_commented_json(text, "settings.json")
