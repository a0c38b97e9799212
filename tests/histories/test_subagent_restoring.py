"""Where the files of sub-agents go is decided by names in a journal, which others may have written."""

from __future__ import annotations

import pytest

from helix_desktop.engine.facts import (
    ConversationStarted,
    ModelReplied,
    Origin,
    Recorded,
    Stop,
    Text,
    UserSaid,
)
from helix_desktop.histories.conversation_restoring import RestoredSession
from helix_desktop.histories.subagent_restoring import add_subagents

SESSION = "0b0e7f0e-7a9c-4b53-9d0c-3b1a4f6b2c11"


def paths_of_files(session: str, path: str) -> list[str]:
    """The files for a sub-agent whose conversation says that it comes from there."""
    started = ConversationStarted("t", origin=Origin("claude-code", session, path))
    facts = [
        Recorded("c", 1, 1.0, started),
        Recorded("c", 2, 1.0, UserSaid((Text("look"),))),
        Recorded("c", 3, 1.0, ModelReplied((Text("Seen."),), "m", Stop.END)),
    ]
    main = RestoredSession("claude", SESSION, "/f", b"", True, 1, 0, ())
    restored = add_subagents(main, [facts], lambda _: None)
    return [file.path for file in restored.files_of_subagents]


@pytest.mark.parametrize(
    ("session", "path", "expected"),
    [
        ("agent-a1", "/p/s1/subagents/agent-a1.jsonl", [f"{SESSION}/subagents/agent-a1.jsonl"]),
        ("agent-a1", "/p/s1/subagents/w/agent-a1.jsonl", [f"{SESSION}/subagents/w/agent-a1.jsonl"]),
        ("agent-a1#12ab", "/p/agent-a1.jsonl", ["agent-a1.jsonl"]),
        ("agent-/../../../evil", "/p/agent-a1.jsonl", []),
        ("agent-a\\..\\evil", "/p/agent-a1.jsonl", []),
        ("agent-a1", "/p/s1/subagents/../../../agent-a1.jsonl", []),
    ],
)
def test_no_name_leads_out_of_the_folder_of_the_session(
    session: str, path: str, expected: list[str]
) -> None:
    assert paths_of_files(session, path) == expected
