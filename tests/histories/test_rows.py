"""Reading what may be anything."""

from __future__ import annotations

import pytest

from helix_desktop.histories import rows


def test_texts_of_every_shape() -> None:
    assert rows.text_of(None) == ""
    assert rows.text_of("a") == "a"
    assert rows.text_of({"type": "text", "text": "a"}) == "a"
    assert rows.text_of(["a", {"output_text": "b"}, {"type": "audio"}, {}]) == "a\nb\n[audio]"


def test_what_is_no_content_is_unreadable() -> None:
    with pytest.raises(rows.Unreadable, match="type float"):
        rows.text_of(1.5)


def test_fields() -> None:
    assert rows.string({"a": 1, "b": "", "c": "x"}, "a", "b", "c") == "x"
    assert rows.string({}, "a") == ""
    assert rows.mapping(["no"]) == {}
    assert rows.arguments_of(None) == "{}"
    assert rows.arguments_of("as it is") == "as it is"
