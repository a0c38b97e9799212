"""The lines of an agent's file come back as the agent wrote them, and no content is stored twice."""

from __future__ import annotations

import base64
import json

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.histories import kept_lines

TEXT = "naïve “words”, a tab\tand\na line: \u2028 \x01 \\ " * 20
PICTURE = bytes(range(256)) * 4
STORED = {Digest.of_content(one): one for one in (TEXT.encode(), PICTURE)}
DIGESTS = {digest.hex for digest in STORED}


def line_of(value: object) -> bytes:
    """A line as JavaScript and Rust write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def test_lines_with_stored_contents_come_back_byte_for_byte_and_are_short() -> None:
    picture = base64.b64encode(PICTURE).decode()
    lines = [
        line_of({"b": TEXT, "a": [TEXT, {"data": picture}], "n": 1.0}),
        line_of({"image_url": f"data:image/png;base64,{picture}"}),
        b'{"short": "text",  "spaces" : true}\n',
    ]
    kept = kept_lines.replace_stored_contents(lines, DIGESTS)
    assert [len(line) < 200 for line in kept] == [False, True, True]
    assert len(kept[0]) < 300
    assert kept_lines.restore_contents(kept, STORED.get) == lines


def test_a_text_that_another_program_escaped_differently_stays_as_it_is() -> None:
    line = json.dumps({"a": TEXT}).encode() + b"\n"  # With \\u escapes.
    assert kept_lines.replace_stored_contents([line], DIGESTS) == [line]


def test_a_text_that_only_contains_a_stored_one_stays_as_it_is() -> None:
    line = line_of({"a": f"{TEXT}."})
    assert kept_lines.replace_stored_contents([line], DIGESTS) == [line]


def test_without_one_of_its_contents_nothing_comes_back() -> None:
    kept = kept_lines.replace_stored_contents([line_of({"a": TEXT})], DIGESTS)
    assert kept_lines.restore_contents(kept, lambda _: None) is None


def test_contents_that_no_fact_has_stand_in_the_lines_themselves() -> None:
    other = "another text of the agent's own " * 20
    contents = {Digest.of_content(text.encode()): text.encode() for text in (TEXT, other)}
    digests = {digest.hex for digest in contents}
    lines = [line_of({"a": TEXT, "b": other})]
    kept = kept_lines.replace_stored_contents(lines, digests)
    kept = kept_lines.put_back_contents(kept, DIGESTS, contents.get)
    assert other.encode() in kept[0]
    assert TEXT.encode() not in kept[0]
    only_text = {Digest.of_content(TEXT.encode()): TEXT.encode()}
    assert kept_lines.restore_contents(kept, only_text.get) == lines


def test_a_line_that_is_no_json_cannot_forge_a_marker() -> None:
    forged = b'{"a":"\0t%b\0"}\n' % Digest.of_content(TEXT.encode()).hex.encode()
    assert kept_lines.replace_stored_contents([forged], DIGESTS) == []


def test_only_new_lines_are_stored_while_the_file_grows() -> None:
    first = kept_lines.build_kept_lines([], [b"1\n", b"2\n"])
    assert kept_lines.build_kept_lines([first], [b"1\n", b"2\n"]) == b""
    more = kept_lines.build_kept_lines([first], [b"1\n", b"2\n", b"3 \r 3\n"])
    assert more == kept_lines.CONTINUES + b"3 \r 3\n"
    assert kept_lines.join_kept_lines([first, more]) == [b"1\n", b"2\n", b"3 \r 3\n"]


def test_what_a_shorter_file_had_before_stays_kept() -> None:
    first = kept_lines.build_kept_lines([], [b"1\n", b"2\n"])
    assert kept_lines.build_kept_lines([first], [b"1\n"]) == b""


def test_a_file_that_was_written_anew_takes_the_place_of_the_earlier_lines() -> None:
    first = kept_lines.build_kept_lines([], [b"1\n", b"2\n"])
    other = kept_lines.build_kept_lines([first], [b"1\n", b"other\n"])
    assert kept_lines.join_kept_lines([first, other]) == [b"1\n", b"other\n"]
