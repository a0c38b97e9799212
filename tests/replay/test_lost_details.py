"""What folds may have lost, found without the engine's means."""

from __future__ import annotations

from helix_desktop.engine.facts import PartRef, Stored, Text, ToolCall
from helix_desktop.engine.messages import Block, ContextKind, Role
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import NotFound
from helix_desktop.histories.recorded_session import RecordedMessage
from helix_desktop.replay import lost_details, simulated_clock
from helix_desktop.replay.lost_details import ReachableText
from tests.replay.sessions import returned, says, user


def test_what_must_not_be_lost() -> None:
    said = set(
        lost_details.details_of_recorded_message(
            user("Hello. You must use tabs! See https://example.org/a?b=1.")
        )
    )
    assert {"You must use tabs!", "https://example.org/a?b=1"} <= said
    assert "Hello." not in said
    printed = set(
        lost_details.details_of_recorded_message(
            returned("c", "ok\nFAILED tests/test_a.py::test_b\nValueError: no such thing")
        )
    )
    assert {"FAILED tests/test_a.py::test_b", "ValueError: no such thing"} <= printed
    called = set(
        lost_details.details_of_recorded_message(
            says(
                "", ToolCall("c", "write", '{"path": "a/b.py", "text": "first\\nlong_identifier"}')
            )
        )
    )
    assert {"a/b.py", "long_identifier"} <= called


def test_arguments_are_read_without_their_escapes() -> None:
    assert (
        lost_details.text_or_json_values('{"a": "x\\ny", "b": [1, {"c": "z"}]}')
        == "a\nx\ny\nb\n1\nc\nz"
    )
    assert lost_details.text_or_json_values("{broken") == "{broken"
    assert lost_details.text_or_json_values("plain") == "plain"


def test_a_detail_stands_whatever_the_space_in_it() -> None:
    standing = ReachableText(["You must\n  use tabs!", "long_identifier"])
    assert standing.unreachable_details(
        ["You must use tabs!", "long_identifier", "other_identifier", " "]
    ) == {"other_identifier"}


def test_every_hash_of_a_view_is_found() -> None:
    named, behind, shown = (Digest.of_content(text) for text in (b"named", b"behind", b"shown"))
    text = f'[CACHED] recall_cached_content("{named.hex}")\nand {Digest.of_content(b"no call").hex}'
    blocks = [
        Block(
            ContextKind.OUTPUT, Role.TOOL, PartRef(1), Text(text), 1, cached=(Stored(behind, 1),)
        ),
        Block(ContextKind.OUTPUT, Role.TOOL, PartRef(2), Stored(shown, 1), 1),
    ]
    found = list(
        lost_details.digests_in_view(
            blocks, lambda block: block.content.text if isinstance(block.content, Text) else ""
        )
    )
    assert found == [named, behind, shown]


def test_a_recall_is_proved_by_its_hash() -> None:
    digest = Digest.of_content(b"right")

    async def right(_: Digest) -> bytes:
        return b"right"

    async def wrong(_: Digest) -> bytes:
        return b"wrong"

    async def nothing(_: Digest) -> bytes:
        raise NotFound("It is not there.")

    assert (
        simulated_clock.run_on_jumping_loop(lost_details.recall_and_verify(digest, right))
        == b"right"
    )
    assert (
        simulated_clock.run_on_jumping_loop(lost_details.recall_and_verify(digest, wrong)) is None
    )
    assert (
        simulated_clock.run_on_jumping_loop(lost_details.recall_and_verify(digest, nothing)) is None
    )


def test_what_another_programs_cache_is_said_to_hold_is_told_apart() -> None:
    message = RecordedMessage("tool", f'see recall_cached_content("{"ab" * 32}") and "{"cd" * 32}"')
    assert [digest.hex for digest in lost_details.digests_in_message(message)] == ["ab" * 32]


def test_a_nul_is_looked_for_as_requests_show_it() -> None:
    standing = lost_details.ReachableText(["ValueError: half \N{SYMBOL FOR NULL} of it"])
    assert standing.holds_detail("ValueError: half \0 of it")
