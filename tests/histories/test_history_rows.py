"""Reading what may be anything."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from helix_desktop.histories import history_rows
from helix_desktop.histories.recorded_session import RecordedPicture


def test_texts_of_every_shape() -> None:
    assert history_rows.text_of_message_content(None) == ""
    assert history_rows.text_of_message_content("a") == "a"
    assert history_rows.text_of_message_content({"type": "text", "text": "a"}) == "a"
    assert (
        history_rows.text_of_message_content(["a", {"output_text": "b"}, {"type": "audio"}, {}])
        == "a\nb\n[audio]"
    )


def test_what_is_no_content_is_unreadable() -> None:
    with pytest.raises(history_rows.UnreadableRow, match="type float"):
        history_rows.text_of_message_content(1.5)


def test_arguments_stay_as_they_were_written() -> None:
    assert history_rows.format_arguments(None) == "{}"
    assert history_rows.format_arguments("as it is") == "as it is"


def row(line: bytes = b"", **value: object) -> history_rows.HistoryRow:
    return history_rows.HistoryRow(value, "a.jsonl, line 3", line)


class Rows(history_rows.HistoryMessages):
    """A format whose rows have a text; some kinds of rows are no messages."""

    def read_row(self, value: Mapping[str, object]) -> None:
        if value.get("kind"):
            self.report.add_left_out_row(str(value["kind"]))
        else:
            self.add_user_message(value.get("text"), 5.0, beside=bool(value.get("beside")))


def test_rows_that_cannot_be_read_are_told_and_kept_and_do_not_end_the_reading() -> None:
    report = history_rows.ReadingReport()
    assert report.complaint_sentences("a.jsonl") == ()
    reader = Rows(report).read_rows(
        [
            row(b"1\n", text="first"),
            row(b"2\n", text=1.5),
            row(b"3\n", kind="snapshot"),
            row(b"4\n", kind="snapshot"),
            row(b"5\n", kind="hook"),
            row(b"6", kind="half"),
            row(b"7\n", text="last", beside=True),
        ]
    )
    assert [(one.role, one.text, one.beside, one.time) for one in reader.messages] == [
        ("user", "first", False, 5.0),
        ("user", "last", True, 5.0),
    ]
    assert report.unread == [b"2", b"3", b"4", b"5"], "what the agent still writes is read later"
    complaint, kinds = report.complaint_sentences("a.jsonl")
    assert complaint.startswith("a.jsonl, line 3: a content of type float")
    assert complaint.endswith("; the line was left out.")
    assert kinds.endswith(": half (1), hook (1), snapshot (2).")
    report.add_left_out_row("other", {"of": "ä part"})
    assert report.unread[-1] == '{"of": "ä part"}'.encode()


def test_complaints_alone_are_told_without_a_list_of_kinds() -> None:
    report = history_rows.ReadingReport()
    report.complain_about_row(row(b"x\n"), "why")
    assert report.complaint_sentences("a") == ("a.jsonl, line 3: why; the line was left out.",)
    report = history_rows.ReadingReport()
    report.add_left_out_row("snapshot")
    assert report.unread == []


def test_only_words_or_pictures_make_a_message_and_a_compaction_stands_where_it_came() -> None:
    reader = Rows(history_rows.ReadingReport())
    nothing: list[object] = ["", "  \n", [], None]
    for content in nothing:
        reader.add_user_message(content, 1.0)
    assert reader.messages == []
    reader.add_user_message(
        [{"type": "image", "source": {"media_type": "image/png", "data": "AAAA"}}], 1.0
    )
    (picture,) = reader.messages[0].pictures
    assert (reader.messages[0].text, picture.media_type, picture.data) == (
        "",
        "image/png",
        b"\0\0\0",
    )
    reader.add_compaction("short", 2.0, "auto")
    reader.add_compaction("shorter", 3.0, "manual", keep=0)
    assert [(one.at, one.keep, one.text, one.time, one.why) for one in reader.compactions] == [
        (1, 1, "short", 2.0, "auto"),
        (1, 0, "shorter", 3.0, "manual"),
    ]


@pytest.mark.parametrize(
    ("value", "time"),
    [
        ("2026-01-02T03:04:05Z", 1767323045.0),
        ("2026-01-02T03:04:05", 1767323045.0),
        ("2026-01-02T03:04:05+01:00", 1767319445.0),
        ("1950-01-01T00:00:00Z", 0.0),
        ("yesterday", 0.0),
        (1767323045, 1767323045.0),
        (1767323045.25, 1767323045.25),
        (1767323045250, 1767323045.25),
        (1767323045250000, 1767323045.25),
        (99_999_999_999, 99_999_999_999.0),
        (100_000_000_000, 100_000_000.0),
        (1e17, 0.0),
        (0.5, 0.5),
        (0, 0.0),
        (-1, 0.0),
        (True, 0.0),
        (float("nan"), 0.0),
        (float("inf"), 0.0),
        (None, 0.0),
        ([], 0.0),
    ],
)
def test_a_time_in_any_unit_is_seconds(value: object, time: float) -> None:
    assert history_rows.parse_time(value) == time


@pytest.mark.parametrize(
    ("value", "cost"),
    [
        (0.25, 0.25),
        (3, 3.0),
        (0, 0.0),
        (-0.1, 0.0),
        (1e9, 0.0),
        (999_999_999, 999_999_999.0),
        (True, 0.0),
        ("1", 0.0),
    ],
)
def test_a_cost_is_a_number_of_dollars_that_can_be(value: object, cost: float) -> None:
    assert history_rows.cost_or_zero(value) == cost


def test_a_picture_is_what_can_be_decoded() -> None:
    read = history_rows.decode_picture
    assert read("image/png", "AAAA", "a.png") == RecordedPicture("image/png", b"\0\0\0", "a.png")
    for kind in ("", None, 3):
        assert read(kind, "AAAA") == RecordedPicture("application/octet-stream", b"\0\0\0")
    assert [read("image/png", data) for data in ("", None, "A", "A A A A!", 7)] == [None] * 5


def test_a_data_url_is_a_picture_only_as_base64() -> None:
    read = history_rows.picture_from_data_url
    assert read("data:image/png;base64,AAAA") == RecordedPicture("image/png", b"\0\0\0")
    assert read("data:image/png;name=a;base64,AAAA") == RecordedPicture("image/png", b"\0\0\0")
    assert [
        read(url) for url in ("data:image/png,AAAA", "https://a.example/;base64,AAAA", None, 3)
    ] == [None] * 4


def test_pictures_stand_in_content_in_the_shapes_of_all_protocols() -> None:
    url = "data:image/png;base64,AAAA"
    shapes: list[object] = [
        {"type": "image", "source": {"media_type": "image/png", "data": "AAAA"}, "title": "t"},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "input_image", "image_url": url},
        {"type": "file", "url": url},
    ]
    assert [one.name for one in history_rows.pictures_in_content(shapes)] == [
        "t",
        "",
        "",
        "",
        "",
        "",
    ]
    assert {one.data for one in history_rows.pictures_in_content(shapes)} == {b"\0\0\0"}
    assert len(history_rows.pictures_in_content(shapes[1])) == 1
    assert (
        history_rows.pictures_in_content([{"type": "text", "text": "a"}, {"type": "image"}]) == ()
    )
    text, pictures = history_rows.text_and_pictures(
        [{"type": "text", "text": "look"}, shapes[0], shapes[3]]
    )
    assert (text, len(pictures)) == ("look", 2)
    text, pictures = history_rows.text_and_pictures(["see", shapes[0], "and say"])
    assert (text, len(pictures)) == ("see\nand say", 1), "words that are no object are words too"
    assert history_rows.pictures_in_content(["see", shapes[0]]) == (pictures[0],)
    with pytest.raises(history_rows.UnreadableRow):
        history_rows.text_and_pictures([5, shapes[0]])


def test_a_tool_result_names_its_call_and_whether_it_failed() -> None:
    read = history_rows.read_tool_result
    done = read({"tool_use_id": "c1", "content": "out"}, 4.0, "tool_use_id", "is_error")
    assert (done.role, done.text, done.answers, done.ok, done.time) == (
        "tool",
        "out",
        "c1",
        True,
        4.0,
    )
    assert not read({"tool_use_id": "c1", "is_error": True}, 4.0, "tool_use_id", "is_error").ok
    assert read({"tool_use_id": "c1", "is_error": False}, 4.0, "tool_use_id", "is_error").ok
    for block in ({}, {"tool_use_id": ""}, {"tool_use_id": 3}):
        with pytest.raises(history_rows.UnreadableRow, match="names no call"):
            read(block, 4.0, "tool_use_id", "is_error")


@pytest.mark.parametrize(("identity", "name"), [("", "read"), ("c1", ""), ("", "")])
def test_a_call_without_an_id_or_a_name_is_unreadable(identity: str, name: str) -> None:
    with pytest.raises(history_rows.UnreadableRow, match="a call has no id or no name"):
        history_rows.checked_tool_call(identity, name, "{}")
    call = history_rows.checked_tool_call("c1", "read", {"path": "a"})
    assert (call.id, call.name, call.arguments) == ("c1", "read", '{"path": "a"}')
    assert history_rows.checked_tool_call("c1", "read", None).arguments == "{}"
