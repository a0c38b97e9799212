"""`conversation` from the command line."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helix_desktop import program_folders
from helix_desktop.commands import conversation_command, workspace_access
from helix_desktop.engine.facts import (
    Attachment,
    ConversationChanged,
    ConversationStarted,
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    Span,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)  # fmt: skip
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.request_building import INTERRUPTED
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import AmbiguousName, InvalidInput
from helix_desktop.store.conversation_rows import StoredConversation
from tests.commands.conftest import NOT_CONFIRMED, Helix
from tests.histories import written


@pytest.fixture
def workspace(tmp_path: Path) -> str:
    workspaces = workspace_access.open_all_workspaces(program_folders.find_program_folders())
    known = workspaces.create_stored_workspace("Work", tmp_path)

    async def fill() -> None:
        opened = await workspaces.open_stored_workspace(known.id)
        said = UserSaid((Text("please look", 40),))
        answer = ModelReplied((Text("I looked at all of it", 60),), "m", Stop.END)
        again = UserSaid((Text("and now?", 5),))
        folded = Folded("handover-1", FoldKind.HANDOVER, Span(2, 3), "what was done", 20, 100)
        await opened.journal.append_to_journal(
            "abc-1", [ConversationStarted("Looking"), said, answer, again, folded]
        )
        await opened.journal.append_to_journal("abd-2", [ConversationStarted("Other")])
        await opened.aclose()

    asyncio.run(fill())
    return known.id


def test_conversations_are_listed(helix: Helix, workspace: str) -> None:
    _, out, _ = helix("conversation", "list", "-w", "Work")
    assert {line.split()[0]: line.split()[-1] for line in out.splitlines()} == {
        "abc-1": "Looking",
        "abd-2": "Other",
    }
    _, out, _ = helix("conversation", "list", "-w", "Work", "--json")
    assert {row["title"] for row in json.loads(out)} == {"Looking", "Other"}


def test_a_sub_agent_is_marked_in_the_list(helix: Helix, workspace: str) -> None:
    asyncio.run(
        append(
            workspace, "child-3", ConversationStarted("Count them", parent="abc-1", parent_call="1")
        )
    )
    _, out, _ = helix("conversation", "list", "-w", "Work")
    (line,) = [line for line in out.splitlines() if line.startswith("child-3")]
    assert line.endswith("Count them  (sub-agent)")


def test_an_imported_branch_names_its_agent_too(
    helix: Helix, workspace: str, tmp_path: Path
) -> None:
    branch = [
        written.claude_said(20, 6, "another way"),
        written.claude_reply(21, 20, "m9", written.text("Yes.")),
    ]
    path = written.lines(tmp_path / "s.jsonl", [*written.claude_session(), *branch])
    assert helix("conversation", "import", "-w", "Work", str(path))[0] == 0
    listed = json.loads(helix("conversation", "list", "-w", "Work", "--json")[1])
    assert sorted(one["agent"] for one in listed) == ["", "", "Claude Code", "Claude Code"]


def test_what_is_in_the_trash_is_not_listed(helix: Helix, workspace: str) -> None:
    """A relay that found nothing to fold puts its fork there."""

    async def put_into_trash() -> None:
        known = workspace_access.open_all_workspaces(program_folders.find_program_folders())
        opened = await known.open_stored_workspace(workspace)
        await opened.journal.append_to_journal("abc-1", [ConversationChanged(trashed=True)])
        await opened.aclose()

    asyncio.run(put_into_trash())
    _, out, _ = helix("conversation", "list", "-w", "Work", "--json")
    assert [row["title"] for row in json.loads(out)] == ["Other"]


@pytest.mark.parametrize("begins", ["ab", "zz"])
def test_what_is_not_there_is_a_sentence(helix: Helix, workspace: str, begins: str) -> None:
    code, out, err = helix("conversation", "export", "-w", "Work", begins)
    assert code in (1, 2)
    assert (out, bool(err.strip())) == ("", True)


def test_a_conversation_is_deleted_for_good_when_that_is_confirmed(
    helix: Helix, workspace: str
) -> None:
    code, out, err = helix("conversation", "delete", "-w", "Work", "abc")
    assert (code, out.split()[-1], err) == (1, "Looking", NOT_CONFIRMED)
    assert helix("conversation", "delete", "-w", "Work", "abc", "--yes")[0] == 0
    _, out, _ = helix("conversation", "list", "-w", "Work", "--json")
    assert [row["title"] for row in json.loads(out)] == ["Other"]
    code, _, err = helix("conversation", "delete", "-w", "Work", "--yes")
    assert (code != 0, "No conversation was chosen" in err) == (True, True)


def test_what_was_recorded_is_forgotten_by_agent_time_and_folder(
    helix: Helix, workspace: str, tmp_path: Path
) -> None:
    codex = written.codex(tmp_path / "one")
    claude = written.claude(tmp_path / "two")
    assert helix("conversation", "import", "-w", "Work", str(codex), str(claude))[0] == 0

    def left() -> set[str]:
        rows = json.loads(helix("conversation", "list", "-w", "Work", "--json")[1])
        return {row["id"] for row in rows} - {"abc-1", "abd-2"}

    both = left()
    assert len(both) == 2
    for choice in (
        ["--before", "2020-01-01"],
        ["--folder", str(tmp_path / "elsewhere")],
        ["--agent", "goose"],
    ):
        assert helix("recorder", "forget", *choice, "--yes")[0] == 0
        assert left() == both
    assert (
        helix("recorder", "forget", "--agent", "Claude Code", "--folder", str(tmp_path), "--yes")[0]
        == 0
    )
    assert len(left()) == 1
    code, _, err = helix("recorder", "forget", "--agent", "nobody", "--yes")
    assert (code != 0, "no agent named nobody" in err) == (True, True)
    assert helix("recorder", "forget", "--before", "yesterday", "--yes")[0] != 0
    assert helix("recorder", "forget", "--before", "2999-01-01", "--yes")[0] == 0
    assert left() == set()


def test_a_session_file_is_named_as_one_and_said_to_be_one(
    helix: Helix, workspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    restore = ("conversation", "restore", "-w", "Work", "abc-1", "--to")
    for name in ("goose", "cluade"):
        code, out, err = helix(*restore, name)
        assert (code, out, f"There is no agent named {name} to continue in." in err) == (
            2,
            "",
            True,
        )
        assert f"or a file such as ./{name}." in err
    assert not {"goose", "cluade"}.intersection(each.name for each in tmp_path.iterdir())
    code, out, _ = helix(*restore, "./goose")
    assert code == 0
    assert (tmp_path / "goose").is_file()
    assert "run: claude --resume" not in out
    assert out.splitlines()[-1] == ("To continue in Claude Code, use --to claude.")
    told = json.loads(helix(*restore, "./second", "--json")[1])
    assert told.keys() == {
        "agent", "session", "path", "folder", "original", "messages", "compactions", "left_out_reasoning",
        "left_out_context", "calls_as_text", "folded", "fits", "version",
        "lines_too_long", "subagents",
    }  # fmt: skip
    assert (told["agent"], told["path"], told["original"]) == (
        "claude",
        str(tmp_path / "second"),
        False,
    )
    code, _, err = helix(*restore, "./third", "--before-compaction", "0")
    assert (code, "is not a number from 1" in err) == (2, True)
    assert not (tmp_path / "third").exists()


def test_a_conversation_is_named_by_its_title_too(helix: Helix, workspace: str) -> None:
    assert helix("cost", "-w", "Work", "-c", "Looking", "--json")[0] == 0
    assert helix("cost", "-w", "Work", "-c", "Look")[2].startswith(
        "There is no conversation with an ID that begins with Look"
    )


def test_what_was_said_is_found_in_its_conversation(helix: Helix, workspace: str) -> None:
    asyncio.run(work_with_tools(workspace))
    code, out, err = helix("conversation", "search", "-w", "Work", "looked", "all")
    assert (code, err) == (0, "")
    assert "abc-1  [3]  Looking\n    I looked at all of it\n" in out
    (found,) = json.loads(helix("conversation", "search", "-w", "Work", "pelican", "--json")[1])
    assert (found["conversation"], found["title"], found["seq"]) == (
        "tools",
        "Fix the pelican page",
        4,
    )
    assert (found["tool"], found["source"]) == ("Bash", "cat birds")
    said = helix("conversation", "search", "-w", "Work", "looked", "by:user")
    assert said == (0, "abc-1  [2]  Looking\n    please look\n", "")
    code, out, err = helix("conversation", "search", "-w", "Work", "nowhere")
    assert (code, out, err) == (
        1,
        "",
        "Nothing in this workspace's conversations contains 'nowhere'.\n",
    )
    assert helix("conversation", "search", "-w", "Work")[0] == 2
    code, out, err = helix("conversation", "search", "-w", "Work", "before:banana")
    assert (code > 1, out, "“banana” is not a date" in err) == (True, "", True)


def test_what_is_in_the_trash_is_not_found(helix: Helix, workspace: str) -> None:
    asyncio.run(append(workspace, "abc-1", ConversationChanged(trashed=True)))
    assert helix("conversation", "search", "-w", "Work", "looked")[:2] == (1, "")


def test_a_conversation_is_shown_in_pages(helix: Helix, workspace: str) -> None:
    asyncio.run(work_with_tools(workspace))
    show = ("conversation", "show", "-w", "Work", "tools", "--json")
    code, out, err = helix(*show, "--limit", "2")
    assert (code, err) == (0, "2 more messages. To see them, add --from 4.\n")
    assert [message["seq"] for message in json.loads(out)] == [2, 3]

    code, out, err = helix(*show, "--from", "4")
    assert (code, err) == (0, "")
    assert [message["by"] for message in json.loads(out)] == ["tool", "m"]
    assert helix("conversation", "show", "-w", "Work", "nobody")[0] == 1


def test_a_reply_of_an_unnamed_model_is_the_assistants(helix: Helix, workspace: str) -> None:
    reply = ModelReplied((Text("Found it."),), "", Stop.END)
    asyncio.run(append(workspace, "abc-1", reply))
    code, out, _ = helix("conversation", "show", "-w", "Work", "abc-1", "--json")
    assert code == 0
    assert json.loads(out)[-1]["by"] == "assistant"


def test_a_conversation_is_shown_as_text_with_the_way_to_each_output(
    helix: Helix, workspace: str
) -> None:
    asyncio.run(work_with_tools(workspace))
    code, out, err = helix("conversation", "show", "-w", "Work", "tools")
    assert (code, err) == (0, "")
    messages = [part.split("\n", 1) for part in out.split("\n\n") if part.strip()]
    authors = [heading.split()[-1] for heading, _ in messages]
    question, call, output, answer = (text for _, text in messages)
    assert authors == ["user", "m", "tool", "m"]
    assert question == "Where is the page?"
    assert call == 'I look.\n· Bash {"command": "cat birds"}'
    assert output.startswith("19 bytes, to read by: helix-desktop cache get ")
    assert answer.strip() == "It is there."

    name = output.split()[-1]
    assert helix("cache", "get", "-w", "Work", name)[1] == "the pelican, \x1b[2J big"[:19]


def test_an_output_that_was_forgotten_is_said_to_be(helix: Helix, workspace: str) -> None:
    """It named a command that answered that there is no such entry."""
    asyncio.run(work_with_tools(workspace))
    name = json.loads(helix("conversation", "show", "-w", "Work", "tools", "--json")[1])[2][
        "text"
    ].split()[-1]
    assert helix("forget", "-w", "Work", name, "--yes")[0] == 0
    shown = json.loads(helix("conversation", "show", "-w", "Work", "tools", "--json")[1])
    assert [one["text"] for one in shown if one["by"] == "tool"] == [
        "19 bytes, no longer stored: forgotten, or removed to free up space"
    ]


def test_a_call_without_a_result_is_not_shown_as_a_forgotten_output(
    helix: Helix, workspace: str
) -> None:
    reply = ModelReplied((ToolCall("1", "Bash", "{}"),), "m", Stop.CALLS)
    asyncio.run(append(workspace, "cut-1", UserSaid((Text("Look."),)), reply))
    shown = json.loads(helix("conversation", "show", "-w", "Work", "cut", "--json")[1])
    assert [one["text"] for one in shown if one["by"] == "tool"] == [INTERRUPTED]


def test_a_call_that_failed_is_shown_as_failed(helix: Helix, workspace: str) -> None:
    stored = Stored(Digest.of_content(b"no such file"), 12)
    reply = ModelReplied((ToolCall("1", "Bash", "{}"),), "m", Stop.CALLS)
    result = ToolReturned("1", stored, 3, ok=False)
    asyncio.run(append(workspace, "bad-1", UserSaid((Text("Look."),)), reply, result))
    shown = json.loads(helix("conversation", "show", "-w", "Work", "bad", "--json")[1])
    (text,) = [one["text"] for one in shown if one["by"] == "tool"]
    assert text.startswith("Failed. 12 bytes")


async def append(workspace: str, conversation: str, *added: Fact) -> None:
    known = workspace_access.open_all_workspaces(program_folders.find_program_folders())
    opened = await known.open_stored_workspace(workspace)
    await opened.journal.append_to_journal(conversation, list(added))
    await opened.aclose()


async def work_with_tools(workspace: str) -> None:
    known = workspace_access.open_all_workspaces(program_folders.find_program_folders())
    opened = await known.open_stored_workspace(workspace)
    stored = await opened.cache.store_content(
        b"the pelican, \x1b[2J big"[:19], EntryOrigin("Bash", "cat birds")
    )
    await opened.aclose()
    output = ToolReturned("1", Stored(stored.digest, stored.size), 4)
    call = ModelReplied(
        (Text("I look.", 2), ToolCall("1", "Bash", '{"command": "cat birds"}')), "m", Stop.CALLS
    )
    said = UserSaid((Text("Where is the page?", 5),))
    end = ModelReplied((Text("It is there.", 3),), "m", Stop.END)
    started = ConversationStarted("Fix the pelican page", agent="Claude Code")
    await append(workspace, "tools", started, said, call, output, end)


def test_edits_of_an_agent_that_nobody_follows_are_listed(helix: Helix, workspace: str) -> None:
    asyncio.run(work_with_tools(workspace))
    edits = [
        ("2", "Write", '{"file_path": "/w/new.md", "content": "x"}'),
        (
            "3",
            "Edit",
            '{"file_path": "/w/a.md", "old_string": "a", "new_string": "b", "replace_all": true}',
        ),
        (
            "4",
            "exec_command",
            json.dumps({"cmd": "apply_patch <<E\n*** Add File: b c.md\n+x\n*** Delete File: d\nE"}),
        ),
        ("5", "apply_patch", "*** Begin Patch\n*** Update File: e.py\n-x\n*** End Patch"),
        ("6", "Write", '{"file_path": "/w/failed", "content": "x"}'),
        ("7", "Read", '{"file_path": "/w/read"}'),
    ]
    calls = ModelReplied(tuple(ToolCall(*one) for one in edits), "m", Stop.CALLS)
    refused = ToolReturned("6", Stored(Digest.of_content(b""), 0), 0, ok=False)
    asyncio.run(append(workspace, "tools", calls, refused))
    code, out, err = helix("changes", "list", "-w", "Work", "-c", "tools")
    assert (code, err.startswith("tools is a conversation of Claude Code: ")) == (0, True)
    listed = [line.split("]", 1)[1].strip() for line in out.splitlines()]
    assert listed == [
        "Write  /w/new.md",
        "Edit  /w/a.md",
        "exec_command  b c.md",
        "exec_command  d",
        "apply_patch  e.py",
    ]
    told = json.loads(helix("changes", "list", "-w", "Work", "-c", "tools", "--json")[1])
    assert told["edits"][0] == {"seq": 6, "tool": "Write", "path": "/w/new.md"}
    for verb in ("show", "restore"):
        assert helix("changes", verb, "-w", "Work", "-c", "tools")[2] == err
    assert helix("changes", "list", "-w", "Work", "-c", "abc-1")[2] == ""


async def test_a_title_means_the_conversation_that_is_listed_and_not_its_copy_in_the_archive() -> (
    None
):
    """Each wrapped conversation was called ambiguous, as the recorder's copy of it is
    in the archive.
    """
    rows = [
        StoredConversation("a1", 1, 0.0, 0.0, title="fee"),
        StoredConversation("b1", 1, 0.0, 0.0, title="fee"),
    ]

    async def list_conversations() -> list[StoredConversation]:
        return rows

    workspace: Any = SimpleNamespace(journal=SimpleNamespace(list_conversations=list_conversations))
    with pytest.raises(AmbiguousName, match="2 conversations are called fee"):
        await workspace_access.find_conversation_by_prefix(workspace, "fee")
    for archived in (True, False):
        rows[0] = replace(rows[0], archived=archived, trashed=not archived)
        assert await workspace_access.find_conversation_by_prefix(workspace, "fee") == "b1"
        with pytest.raises(AmbiguousName):  # What is deleted is never chosen for the user.
            await workspace_access.find_conversation_by_prefix(workspace, "fee", listed_first=False)
    rows[1] = replace(rows[1], archived=True)
    with pytest.raises(AmbiguousName):
        await workspace_access.find_conversation_by_prefix(workspace, "fee")


def test_a_message_that_was_stored_as_a_file_is_no_addition_of_the_agent(
    helix: Helix, workspace: str
) -> None:
    """A paste that was too large for the window was said to be added by the agent."""

    async def append() -> str:
        opened = await workspace_access.open_all_workspaces(
            program_folders.find_program_folders()
        ).open_stored_workspace(workspace)
        origin = EntryOrigin(opened.id, "paste", "text/plain")
        stored = await opened.cache.store_content(b"a long paste", origin)
        pasted = UserSaid((Attachment("pasted text", stored),))
        await opened.journal.append_to_journal("ace-3", [ConversationStarted("Paste"), pasted])
        await opened.aclose()
        return str(stored.digest)[:16]

    digest = asyncio.run(append())
    shown = helix("conversation", "show", "-w", "Work", "Paste")[1]
    assert "added by the agent" not in shown
    assert f"pasted text: 12 bytes, to read by: helix-desktop cache get {digest}" in shown


# --- What its verbs say and take


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    conversation_command.add_conversation_commands(parser.add_subparsers())
    return parser.parse_args(["conversation", *words])


@pytest.mark.parametrize(
    ("words", "only_reads", "counts"),
    [
        (("list",), True, False),
        (("search", "word"), True, True),
        (("show", "c"), True, False),
        (("export", "c"), True, False),
        (("delete", "c"), False, False),
    ],
)
def test_only_what_changes_nothing_may_run_on_a_copy(
    words: tuple[str, ...], *, only_reads: bool, counts: bool
) -> None:
    arguments = parse(*words)
    assert getattr(arguments, "reads", False) is only_reads
    assert arguments.counts is counts
    assert not getattr(arguments, "only_entries", False)


def test_a_conversation_is_shown_from_its_beginning_and_by_fifties() -> None:
    usual = parse("show", "c")
    assert (usual.conversation, usual.start, usual.limit, usual.json) == ("c", 0, 50, False)
    chosen = parse("show", "c", "--from", "7", "--limit", "0", "--json", "-w", "Thesis")
    assert (chosen.start, chosen.limit, chosen.json) == (7, 0, True)
    assert chosen.workspace == "Thesis"
    with pytest.raises(SystemExit):
        parse("show", "c", "--limit", "-1")
    with pytest.raises(SystemExit):
        parse("export", "c", "--as", "another")


@pytest.mark.parametrize("verb", ["lend-key", "take-key-back"])
def test_a_key_is_lent_to_another_computer_only(verb: str) -> None:
    arguments = parse(verb, "c")
    with pytest.raises(InvalidInput, match="lent to another computer only"):
        arguments.run(arguments)
    assert arguments.elsewhere == f"conversation {verb}"
    if verb == "lend-key":
        assert arguments.provider == ""


def test_the_verbs_that_another_computer_has_are_named_as_they_are_there() -> None:
    assert parse("list").elsewhere == "conversation list"
    assert parse("show", "c").elsewhere == "conversation show"
    assert not hasattr(parse("export", "c"), "elsewhere")
