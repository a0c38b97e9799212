"""Reading what may be anything."""

from __future__ import annotations

import pytest

from helix_desktop.histories import history_rows


def test_texts_of_every_shape() -> None:
    assert history_rows.text_of_message_content(None) == ""
    assert history_rows.text_of_message_content("a") == "a"
    assert history_rows.text_of_message_content({"type": "text", "text": "a"}) == "a"
    assert history_rows.text_of_message_content(["a", {"output_text": "b"}, {"type": "audio"}, {}]) == "a\nb\n[audio]"


def test_what_is_no_content_is_unreadable() -> None:
    with pytest.raises(history_rows.UnreadableRow, match="type float"):
        history_rows.text_of_message_content(1.5)


def test_arguments_stay_as_they_were_written() -> None:
    assert history_rows.arguments_json(None) == "{}"
    assert history_rows.arguments_json("as it is") == "as it is"
