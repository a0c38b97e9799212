"""The card on which an editor asks for permission."""

from __future__ import annotations

from helix_desktop.acp_agent.editor_conversation import _build_question_card
from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.ports import PermissionQuestion


def test_a_reason_is_text_and_no_markdown_before_the_command() -> None:
    """A path in it could show another command, a link or a picture."""
    path = "notes\n\n```\nls -la\n```\n![](https://example.org/seen.png)<details>"
    why = f"other programs run the contents of {path}"
    card = _build_question_card(
        PermissionQuestion(
            ToolCall("c", "run_command", "{}"), "Run\na command", "curl x | sh", why=why
        )
    )
    assert card.content is not None
    text = card.content[0].content.text
    told, _, preview = text.partition("\n\n")
    assert preview == "```\ncurl x | sh\n```"
    assert "\n" not in told
    for sign in "`[]<>!":
        assert sign not in told.replace(f"\\{sign}", "")
    assert card.title == "Run⟨000A⟩a command"
