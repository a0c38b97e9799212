from __future__ import annotations

from helix_desktop.engine.facts import Attachment, Recorded, Stored, Text, UserPart, UserSaid
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.chat.message_drafts import (
    encode_queued_message,
    find_unrecorded_messages,
    join_drafts,
)

GO_ON = (Text("go on"),)


def recorded(*parts: UserPart, at: float) -> Recorded:
    return Recorded("a", int(at), at, UserSaid(parts))


def test_a_message_that_was_recorded_before_the_program_was_killed_does_not_come_back() -> None:
    queued = [encode_queued_message(GO_ON, 10.0), encode_queued_message((Text("more"),), 11.0)]
    # The journal counts tokens; what the window kept has none.
    facts = [recorded(Text("go on", 2), at=12.0)]
    assert find_unrecorded_messages(queued, facts) == [(Text("more"),)]


def test_the_same_words_of_earlier_do_not_hide_a_message() -> None:
    queued = [encode_queued_message(GO_ON, 10.0)]
    assert find_unrecorded_messages(queued, [recorded(*GO_ON, at=5.0)]) == [GO_ON]


def test_a_word_that_was_queued_twice_and_recorded_once_comes_back_once() -> None:
    queued = [encode_queued_message(GO_ON, 10.0)] * 2
    assert find_unrecorded_messages(queued, [recorded(*GO_ON, at=12.0)]) == [GO_ON]


def test_a_long_message_is_known_by_its_content() -> None:
    text = "a long message " * 100
    content = text.encode()
    stored = Stored(Digest.of_content(content), len(content), 1, "text/plain")
    facts = [recorded(Attachment("message", stored, 300), at=12.0)]
    assert find_unrecorded_messages([encode_queued_message((Text(text),), 10.0)], facts) == []


def test_what_an_earlier_version_kept_comes_back() -> None:
    assert find_unrecorded_messages([{"text": "go on"}, "bare"], []) == [GO_ON, (Text("bare"),)]


def test_two_drafts_that_are_joined_stay_two_paragraphs() -> None:
    """The words of a message that was put back ran into those of the draft."""
    content = b"ok"
    file = Attachment("a.txt", Stored(Digest.of_content(content), 2, 1, "text/plain"), 1)
    assert join_drafts((Text("one"), file), (Text("two"),)) == (Text("one\n\ntwo"), file)
    assert join_drafts((), (Text("two"),)) == (Text("two"),)
    assert join_drafts((file,), ()) == (file,)
