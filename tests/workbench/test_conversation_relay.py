"""A conversation that goes on in another agent: as it is where it fits, else folded,
with every original within reach.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from helix_desktop.engine.facts import ModelReplied, ModelRole, Text, UserSaid
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import InvalidInput
from helix_desktop.histories import history_reading, subagent_files
from helix_desktop.histories.conversation_restoring import (
    RestoreRequest,
    describe_restored_session,
    write_restored_session,
)
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.token_counting import TiktokenCounter
from helix_desktop.workbench import Workbench
from helix_desktop.workbench.conversation_relay import FRAME_TOKENS
from helix_desktop.workbench.history_imports import HistoryImport
from tests.histories import written
from tests.workbench.conftest import Desks, desks, folder

__all__ = ["desks", "folder"]
NUMBERS = " ".join(map(str, range(4_000)))


def session_of_steps(turns: int, steps: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for turn in range(turns):
        rows.append(
            written.claude_said(
                len(rows), len(rows) - 1 if rows else None, f"order {turn}: “naïve”\n  and more"
            )
        )
        for step in range(steps):
            name = f"t{turn}-{step}"
            rows.append(
                written.claude_reply(
                    len(rows), len(rows) - 1, f"m{name}", written.use(name, command="seq 9")
                )
            )
            rows.append(
                written.claude_said(
                    len(rows), len(rows) - 1, [written.result(name, f"OUT {name} {NUMBERS}")]
                )
            )
        rows.append(
            written.claude_reply(len(rows), len(rows) - 1, f"e{turn}", written.text(f"end {turn}"))
        )
    return rows


async def imported(bench: Workbench, path: Path, turns: int, steps: int) -> str:
    file = written.lines(path / "session.jsonl", session_of_steps(turns, steps))
    result = await HistoryImport(bench.workspace, TiktokenCounter()).import_files([file])
    await bench._rows.read_all_rows()
    file.unlink()
    return result.imported[0].id


@pytest.mark.parametrize(("turns", "steps"), [(4, 2), (1, 8)])
async def test_what_does_not_fit_is_folded_in_a_fork_and_every_output_can_be_recalled(
    desks: Desks, folder: Path, tmp_path: Path, turns: int, steps: int
) -> None:
    bench = await desks().create_workspace("w", folder)
    conversation = await imported(bench, tmp_path, turns, steps)
    before = await bench.workspace.journal.read_facts(conversation)
    asked = RestoreRequest(conversation, "codex", str(folder), window=FRAME_TOKENS + 25_000)
    unfolded = await bench.relay.prepare_session_for_agent(asked, may_fold=False)
    assert (unfolded.is_folded, unfolded.fits) == (False, False)
    assert [row.id for row in bench.list_conversations() if not row.trashed] == [
        conversation
    ]  # No copy was made.
    restored = await bench.relay.prepare_session_for_agent(asked)
    assert (restored.is_folded, restored.fits) == (True, True)
    told = " ".join(describe_restored_session(restored, tmp_path))
    assert "The originals stay in this workspace's cache." in told
    assert "MCP" not in told
    assert await bench.workspace.journal.read_facts(conversation) == before
    text = restored.content.decode()
    assert f"order {turns - 1}: “naïve”" in text
    assert text.count(NUMBERS[:2_000]) < turns * steps
    for digest in set(re.findall(r"\b[0-9a-f]{64}\b", "".join(restored.texts))):
        assert await bench.workspace.cache.read_content(Digest.from_hex(digest))
    assert (
        await bench.relay.prepare_session_for_agent(
            RestoreRequest(conversation, "codex", str(folder))
        )
    ).is_folded is False


async def test_nothing_is_sent_to_a_model_that_nobody_agreed_to(
    desks: Desks, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorded conversation of another agent went to this workspace's provider, who
    charged for it.
    """
    bench = await desks().create_workspace("w", folder)
    conversation = await imported(bench, tmp_path, 4, 2)
    monkeypatch.setattr(bench.models, "client_for_role", lambda role: f"a model for {role}")
    asked = RestoreRequest(conversation, "codex", str(folder), window=FRAME_TOKENS + 25_000)
    for may_ask, models in (
        (False, [None] * 3),
        (True, ["a model for main", "a model for fast", "a model for long"]),
    ):
        known = {row.id for row in bench.list_conversations()}
        restored = await bench.relay.prepare_session_for_agent(asked, may_ask_model=may_ask)
        assert (restored.is_folded, restored.fits) == (True, True)
        (fork,) = {row.id for row in bench.list_conversations()} - known
        assert [bench._model_client_for(fork, role) for role in ModelRole] == models


async def test_a_folded_conversation_before_a_compaction_ends_there(
    desks: Desks, folder: Path, tmp_path: Path
) -> None:
    bench = await desks().create_workspace("w", folder)
    conversation = await imported(bench, tmp_path, 4, 1)
    short = RestoreRequest(conversation, "pi", str(folder), is_folded=True)
    once = await bench.relay.prepare_session_for_agent(short)
    assert (once.compactions, "end 3" in "".join(once.texts)) == (1, True)
    (fork,) = [row for row in bench.list_conversations() if row.id != conversation]
    assert fork.title.endswith("→ pi")
    assert fork.archived, (
        "it stood in the list beside the original, and only holds what pi can recall"
    )
    again = await bench.relay.prepare_session_for_agent(
        RestoreRequest(fork.id, "pi", str(folder), before_compaction=1)
    )
    assert (again.compactions, again.is_folded) == (0, False)
    assert (
        sum(
            isinstance(one.fact, ModelReplied)
            for one in await bench.workspace.journal.read_facts(fork.id)
        )
        == 8
    )


@pytest.mark.parametrize("window", [-1, 100, FRAME_TOKENS, 2**40])
async def test_a_window_that_no_agent_can_have_is_refused_before_anything_is_written(
    desks: Desks, folder: Path, tmp_path: Path, window: int
) -> None:
    """Its fork would have a window below 0, which made every later export of the
    workspace impossible to import.
    """
    bench = await desks().create_workspace("w", folder)
    conversation = await imported(bench, tmp_path, 1, 1)
    with pytest.raises(InvalidInput, match=f"cannot have {window:,} tokens"):
        await bench.relay.prepare_session_for_agent(
            RestoreRequest(conversation, "codex", str(folder), window=window)
        )
    assert [row.id for row in bench.list_conversations()] == [conversation]


async def test_a_short_turn_is_not_said_to_be_folded(
    desks: Desks, folder: Path, tmp_path: Path
) -> None:
    """Gemini CLI's sessions often have a single turn of small outputs, in which a fold
    makes nothing shorter.
    """
    bench = await desks().create_workspace("w", folder)
    rows = [
        written.claude_said(0, None, "order"),
        written.claude_reply(1, 0, "m", written.text("end")),
    ]
    result = await HistoryImport(bench.workspace, TiktokenCounter()).import_files(
        [written.lines(tmp_path / "s.jsonl", rows)]
    )
    await bench._rows.read_all_rows()
    asked = RestoreRequest(result.imported[0].id, "codex", str(folder), is_folded=True)
    restored = await bench.relay.prepare_session_for_agent(asked)
    assert (restored.is_folded, restored.fits) == (False, True)
    assert "folded" not in " ".join(describe_restored_session(restored, tmp_path))
    assert [row.id for row in bench.list_conversations() if not row.trashed] == [
        asked.conversation
    ], "a fork without a fold was left"


async def test_the_agent_gets_the_workspaces_server(
    desks: Desks, folder: Path, tmp_path: Path
) -> None:
    bench = await desks().create_workspace("w", folder)
    places = HistoryPlaces(tmp_path, {})
    assert "was added to" in bench.relay.add_mcp_server("claude", folder, places)
    assert "is already in" in bench.relay.add_mcp_server("claude", folder, places)
    (server,) = json.loads((folder / ".mcp.json").read_text())["mcpServers"].values()
    # Else Claude Code asks the model without waiting, and a server that starts slowly
    # is missing for the whole turn.
    assert server["alwaysLoad"] is True
    assert server["args"][-4:] == [
        str(bench.workspace.folder.parents[1]),
        "mcp",
        "--workspace",
        bench.id,
    ]
    assert str(tmp_path / ".pi" / "agent" / "mcp.json") in bench.relay.add_mcp_server(
        "pi", folder, places
    )
    (server,) = json.loads((tmp_path / ".pi" / "agent" / "mcp.json").read_text())[
        "mcpServers"
    ].values()
    assert server["exposure"] == "direct"


SETTINGS_OF_SUBAGENT = '{"agentType": "Explore", "model": "claude-haiku"}'
# A stranger's session would say with these where the agent works, and what it may do unasked.
PERMISSIONS_OF_SUBAGENT = {
    "worktreePath": "/",
    "worktreeBranch": "x",
    "cwd": "/",
    "permissionMode": "bypassPermissions",
    "spawnMode": "dontAsk",
    "takesNoHooks": True,
    "launchedWithDefaults": True,
    "whatTheNextVersionAdds": True,
}


def session_with_subagents(agent_folder: Path) -> Path:
    """A session of Claude Code with a sub-agent in its own folder, as it writes them today, one
    beside it, as versions of 2025 did, and one in its own file, as the first versions did.
    """
    rows = written.claude_session()
    rows += rows_of_subagent("in_file", 20)
    file = written.lines(agent_folder / "projects" / "-home-me-project" / "session-1.jsonl", rows)
    own_folder = file.parent / "session-1" / "subagents"
    written.lines(own_folder / "agent-today.jsonl", rows_of_subagent("today", 30))
    (own_folder / "agent-today.meta.json").write_text(SETTINGS_OF_SUBAGENT)
    written.lines(file.parent / "agent-older.jsonl", rows_of_subagent("older", 40))
    return file


def rows_of_subagent(name: str, number: int) -> list[dict[str, object]]:
    of_subagent = {"isSidechain": True, "agentId": name}
    return [
        written.claude_said(number, None, f"look as {name}", **of_subagent),
        written.claude_reply(
            number + 1, number, f"m{name}", written.use(f"t{name}"), **of_subagent
        ),
        written.claude_said(
            number + 2, number + 1, [written.result(f"t{name}", f"OUT {name}")], **of_subagent
        ),
        written.claude_reply(
            number + 3, number + 2, f"e{name}", written.text(f"Seen by {name}."), **of_subagent
        ),
    ]


async def import_with_subagents(bench: Workbench, file: Path) -> str:
    """Import the session, and return its conversation."""
    files = subagent_files.list_files_with_subagents(file)
    await HistoryImport(bench.workspace, TiktokenCounter()).import_files(files)
    await bench._rows.read_all_rows()
    (conversation,) = [row.id for row in bench.list_conversations() if not row.parent]
    return conversation


async def test_claude_code_gets_the_files_of_its_sub_agents_back(
    desks: Desks, folder: Path, tmp_path: Path
) -> None:
    """Without them it says that a sub-agent which was at work has failed, cannot go on with it,
    and sends other bytes than before.
    """
    file = session_with_subagents(tmp_path / ".claude")
    own_folder = file.parent / "session-1" / "subagents"
    today = (own_folder / "agent-today.jsonl").read_bytes()
    (own_folder / "agent-today.meta.json").write_text(
        json.dumps({**json.loads(SETTINGS_OF_SUBAGENT), **PERMISSIONS_OF_SUBAGENT})
    )
    older = (file.parent / "agent-older.jsonl").read_bytes()
    bench = await desks().create_workspace("w", folder)
    conversation = await import_with_subagents(bench, file)
    shutil.rmtree(tmp_path / ".claude")

    request = RestoreRequest(conversation, "claude", str(folder))
    restored = await bench.relay.prepare_session_for_agent(request)
    path = write_restored_session(restored, HistoryPlaces(tmp_path, {}))
    new_id = restored.session.encode()
    own_folder = path.parent / restored.session / "subagents"
    assert (own_folder / "agent-today.jsonl").read_bytes() == today.replace(b"session-1", new_id)
    assert (own_folder / "agent-today.meta.json").read_text() == SETTINGS_OF_SUBAGENT
    assert (path.parent / "agent-older.jsonl").read_bytes() == older.replace(b"session-1", new_id)
    assert path.read_bytes().count(b'"agentId": "in_file"') == 4
    told = list(describe_restored_session(restored, path))
    assert "Histories of sub-agents that were saved with it: 2." in told


async def test_sub_agents_whose_lines_were_not_kept_come_back_from_their_messages(
    desks: Desks, folder: Path, tmp_path: Path
) -> None:
    """Earlier versions kept no lines of them. Also, where the conversation went on here."""
    file = session_with_subagents(tmp_path / ".claude")
    bench = await desks().create_workspace("w", folder)
    conversation = await import_with_subagents(bench, file)
    shutil.rmtree(tmp_path / ".claude")
    for row in bench.list_conversations():
        session = await bench.open_session(row.id)
        await session.conversation.append_facts(UserSaid((Text("said here"),)))

    request = RestoreRequest(conversation, "claude", str(folder))
    restored = await bench.relay.prepare_session_for_agent(request)
    path = write_restored_session(restored, HistoryPlaces(tmp_path, {}))
    assert not restored.is_original
    own_folder = path.parent / restored.session / "subagents"
    for saved in (path, own_folder / "agent-today.jsonl", path.parent / "agent-older.jsonl"):
        last_recording = history_reading.read_history_file(saved).recordings[-1]
        name_of_subagent = last_recording.session.removeprefix("agent-")
        texts = [message.text for message in last_recording.messages]
        assert texts[-2:] == [f"Seen by {name_of_subagent}.", "said here"]
        assert last_recording.parent == restored.session
