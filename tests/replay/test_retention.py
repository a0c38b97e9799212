"""How much of what the agent uses still stood in view."""

from __future__ import annotations

from helix_desktop.engine.facts import PartRef, Stored, Text, ToolCall
from helix_desktop.engine.messages import Block, ContextKind, Role
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.replay.retention import ReferenceRetention
from tests.replay.sessions import says, user

STORED = Stored(Digest.of_content(b"x"), 1)


def block(
    content: Text | ToolCall | Stored,
    kind: ContextKind = ContextKind.CONVERSATION,
    role: Role = Role.USER,
) -> Block:
    return Block(kind, role, PartRef(1), content, 1)


def test_what_came_earlier_and_stands_counts() -> None:
    retention = ReferenceRetention(lambda _: "stored_identifier")
    retention.remember_identifiers_of(
        user("first_identifier and second_identifier and stored_identifier")
    )
    retention.set_current_view([block(Text("first_identifier")), block(STORED)])
    retention.count_known_identifiers_in(
        says(
            "first_identifier, never_heard_before",
            ToolCall("c", "f", '"second_identifier stored_identifier"'),
        )
    )
    assert (retention.used, retention.standing) == (3, 2)


def test_short_words_are_no_identifiers() -> None:
    retention = ReferenceRetention(lambda _: "")
    retention.remember_identifiers_of(user("short words only"))
    retention.count_known_identifiers_in(says("short words only"))
    assert retention.standing == retention.used


def test_summaries_count_as_nothing_and_the_system_prompt_stands() -> None:
    retention = ReferenceRetention(lambda _: "")
    retention.remember_identifiers_of(user("first_identifier"))
    text = Text("first_identifier")
    retention.set_current_view(
        [block(text, ContextKind.HANDOVER), block(text, ContextKind.OBSERVATIONS)]
    )
    retention.count_known_identifiers_in(says("first_identifier"))
    assert (retention.standing, bool(retention.used)) == (0, True)
    retention.set_current_view([block(text, ContextKind.SYSTEM, Role.SYSTEM)])
    retention.count_known_identifiers_in(says("first_identifier"))
    assert retention.standing * 2 == retention.used


def test_what_leaves_the_view_counts_no_more() -> None:
    retention = ReferenceRetention(lambda _: "")
    retention.remember_identifiers_of(user("first_identifier"))
    one = block(Text("first_identifier"))
    other = block(ToolCall("c", "f", '{"path": "first_identifier"}'))
    for shown in ([one, other], [other], []):
        retention.set_current_view(shown)
        retention.count_known_identifiers_in(says("first_identifier"))
    assert (retention.used, retention.standing) == (3, 2)
