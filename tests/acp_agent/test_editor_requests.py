"""The agent over real standard streams, asked by the official SDK's client."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from acp import RequestError, text_block
from acp.client.connection import ClientSideConnection
from acp.helpers import (
    embedded_blob_resource,
    embedded_text_resource,
    image_block,
    resource_block,
    resource_link_block,
)

from helix_desktop import cli, program_folders
from helix_desktop.acp_agent import editor_requests
from helix_desktop.acp_agent.agent_description import build_initialize_result
from helix_desktop.acp_agent.conversation_updates import ClientAbilities
from helix_desktop.acp_agent.editor_requests import EditorAgent
from helix_desktop.acp_agent.workspace_switch import LONGEST_MESSAGE
from helix_desktop.commands import workspace_access
from helix_desktop.engine.facts import ConversationChanged, Text, UserSaid
from helix_desktop.errors import ActionRefused, InvalidInput
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.acp_agent.editor import ROOT, Editor, started
from tests.acp_agent.editor_in_process import Answer, choose, connected, new_session, words
from tests.documents import written_documents
from tests.peers.chat_server import ChatServer, reply
from tests.turns import lasted
from tests.workbench.conftest import Desks

PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "a.txt").write_text("alpha\nbeta\n")
    return made


async def test_a_folder_that_has_no_workspace_gets_one_and_its_turns_are_those_of_the_window(
    tmp_path: Path, folder: Path
) -> None:
    home = tmp_path / "home"
    editor = Editor({str(folder / "a.txt"): "alpha\nunsaved\n"})
    async with started(editor, home, folder) as agent:
        session_id = await _a_new_session_asks_for_a_model_first(agent, folder)
        await _what_the_editor_shows_is_read(agent, session_id, editor, folder)
        await _an_unsaved_file_is_not_written_and_a_new_one_is(agent, session_id, editor, folder)
        listed = await agent.list_sessions(cwd=str(folder))
        assert [one.session_id for one in listed.sessions] == [session_id]
    command = ["--home", str(home), "conversation", "list", "-w", "project"]
    assert await asyncio.to_thread(cli.main, command) == 0


async def _a_new_session_asks_for_a_model_first(agent: ClientSideConnection, folder: Path) -> str:
    session = await agent.new_session(cwd=str(folder), mcp_servers=[])
    assert session.modes is not None
    assert [mode.id for mode in session.modes.available_modes][:2] == ["read only", "plan"]
    with pytest.raises(RequestError, match="No model has been chosen"):
        await agent.prompt(session_id=session.session_id, prompt=[text_block("hello")])
    chosen = await agent.set_config_option("model", session.session_id, "demo/demo")
    assert chosen is not None
    option_ids = [option.id for option in chosen.config_options]
    assert option_ids == ["mode", "model", "effort", "policy"]
    return session.session_id


async def _what_the_editor_shows_is_read(
    agent: ClientSideConnection, session_id: str, editor: Editor, folder: Path
) -> None:
    answer = await agent.prompt(session_id=session_id, prompt=[text_block("read a.txt")])
    assert answer.stop_reason == "end_turn"
    assert "unsaved" in editor.said()  # what the editor shows, not what is on the disk
    statuses = [update.status for update in editor.of_kind("tool_call_update")]
    assert statuses == ["in_progress", "completed"]
    assert editor.of_kind("tool_call")[0].locations[0].path == str(folder / "a.txt")
    assert editor.of_kind("usage_update")[-1].size == 32_000


async def _an_unsaved_file_is_not_written_and_a_new_one_is(
    agent: ClientSideConnection, session_id: str, editor: Editor, folder: Path
) -> None:
    await agent.prompt(session_id=session_id, prompt=[text_block("write a.txt: text")])
    assert (folder / "a.txt").read_text() == "alpha\nbeta\n"
    assert "not saved" in editor.said()
    await agent.prompt(session_id=session_id, prompt=[text_block("write b.txt: text")])
    assert (folder / "b.txt").read_text() == "text\n"
    card, options = editor.asked[0]
    assert card.title == "Create b.txt"
    option_ids = [option.option_id for option in options]
    assert option_ids == ["once:0", "conversation:0", "always:0", "deny"]
    diff = editor.of_kind("tool_call_update")[-1].content[0]
    assert (diff.path, diff.old_text, diff.new_text) == (str(folder / "b.txt"), None, "text\n")


async def test_sessions_are_loaded_forked_resumed_closed_and_put_into_the_trash(
    tmp_path: Path, folder: Path
) -> None:
    home = tmp_path / "home"
    assert (
        await asyncio.to_thread(
            cli.main, ["--home", str(home), "workspace", "new", "w", "--folder", str(folder)]
        )
        == 0
    )
    assert (
        await asyncio.to_thread(
            cli.main, ["--home", str(home), "model", "set", "-w", "w", "demo/demo"]
        )
        == 0
    )
    editor = Editor()
    async with started(editor, home, folder) as agent:
        new = await agent.new_session(cwd=str(folder), mcp_servers=[])
        await agent.set_session_mode(session_id=new.session_id, mode_id="allow edits")
        assert editor.of_kind("current_mode_update")[-1].current_mode_id == "allow edits"
        await agent.prompt(session_id=new.session_id, prompt=[text_block("read a.txt")])
        with pytest.raises(RequestError, match="not a project folder"):
            await agent.new_session(cwd="/", mcp_servers=[])
        with pytest.raises(RequestError, match="outside the folders"):
            await agent.load_session(
                cwd=str(folder),
                session_id=new.session_id,
                mcp_servers=[],
                additional_directories=["/etc"],
            )
    editor = Editor()
    async with started(editor, home, folder) as agent:
        await agent.load_session(cwd=str(folder), session_id=new.session_id, mcp_servers=[])
        assert editor.of_kind("user_message_chunk")[0].content.text == "read a.txt"
        assert "alpha" in editor.said()
        assert editor.of_kind("tool_call_update")[0].status == "completed"
        fork = await agent.fork_session(cwd=str(folder), session_id=new.session_id)
        editor.updates.clear()
        await agent.resume_session(cwd=str(folder), session_id=fork.session_id)
        await agent.prompt(session_id=fork.session_id, prompt=[text_block("list")])
        assert not editor.of_kind(
            "user_message_chunk"
        )  # what the editor sent itself is not sent back
        await agent.close_session(session_id=fork.session_id)
        await agent._conn.send_request("session/delete", {"sessionId": fork.session_id})
        listed = await agent.list_sessions(cwd=str(folder))
        assert [one.session_id for one in listed.sessions] == [new.session_id]
        with pytest.raises(RequestError, match="no conversation"):
            await agent.load_session(cwd=str(folder), session_id=fork.session_id, mcp_servers=[])


async def test_thoughts_plans_terminals_pictures_and_files_go_both_ways(
    tmp_path: Path, folder: Path
) -> None:
    home = tmp_path / "home"
    editor = Editor()
    todo = (
        "set_todo",
        {"items": [{"text": "look", "state": "doing"}, {"text": "tell", "state": "open"}]},
    )
    command = ("run_command", {"command": "echo printed"})
    with ChatServer(
        [reply(reasoning="hm, so", calls=[todo, command]), reply("done"), reply("seen")]
    ) as server:
        base = ["--home", str(home)]
        assert (
            await asyncio.to_thread(
                cli.main, [*base, "provider", "add", "peer", "--base-url", server.base_url]
            )
            == 0
        )
        async with started(editor, home, folder) as agent:
            new = await agent.new_session(cwd=str(folder), mcp_servers=[])
            await agent.set_config_option("model", new.session_id, "peer/scripted")
            await agent.prompt(session_id=new.session_id, prompt=[text_block("go")])
            thoughts = "".join(
                update.content.text for update in editor.of_kind("agent_thought_chunk")
            )
            assert thoughts == "hm, so"
            entries = editor.of_kind("plan")[0].entries
            assert [(one.content, one.status) for one in entries] == [
                ("look", "in_progress"),
                ("tell", "pending"),
            ]
            results = [
                update
                for update in editor.of_kind("tool_call_update")
                if update.status == "completed"
            ]
            assert "printed" in str(results)
            report = base64.b64encode(written_documents.pdf()).decode()
            await agent.prompt(
                session_id=new.session_id,
                prompt=[
                    text_block("what is this?"),
                    image_block(PICTURE, "image/png"),
                    resource_block(embedded_text_resource("file:///outside/notes.md", "a note")),
                    resource_link_block("a.txt", f"file://{folder}/a.txt"),
                    resource_block(embedded_blob_resource("file:///outside/report.pdf", report)),
                ],
            )
            sent = str(server.bodies[-1]["messages"][-1])
            assert "a note" in sent
            assert written_documents.TITLE in sent
            assert f"[a.txt]({folder}/a.txt)" in sent
            with pytest.raises(RequestError, match="base64"):
                await agent.prompt(
                    session_id=new.session_id, prompt=[image_block("%%%", "image/png")]
                )
            assert len(server.bodies) == 3


async def test_a_conversation_of_an_editor_is_live_in_a_window_that_opens_later(
    tmp_path: Path, folder: Path
) -> None:
    """The window gets the workspace, and the editor goes on in it without noticing."""
    editor = Editor()
    where = program_folders.find_program_folders(tmp_path / "home")
    async with started(editor, tmp_path / "home", folder) as agent:
        new = await agent.new_session(cwd=str(folder), mcp_servers=[])
        await agent.set_config_option("model", new.session_id, "demo/demo")
        await agent.prompt(session_id=new.session_id, prompt=[text_block("read a.txt")])
        unused = await agent.new_session(cwd=str(folder), mcp_servers=[])
        serve = partial(workspace_access.listen_for_commands, where=where)
        window = Workbenches(where, SecretStorage(where.key_file, environ={}), serve=serve)
        try:
            bench = await window.open_workspace("project")
            assert [row.id for row in bench.list_conversations()] == [new.session_id]
            heard: list[str] = []
            bench.subscribe_to_events(lambda event: heard.append(type(event).__name__))
            editor.updates.clear()
            async with asyncio.timeout(60):
                while not await answered(
                    agent, new.session_id
                ):  # until the editor's process has found the window
                    await asyncio.sleep(0.05)
            assert "text" in (folder / "d.txt").read_text()
            assert "ReplyStreamed" in heard
            await agent.set_config_option("model", unused.session_id, "demo/demo")
            answer = await agent.prompt(
                session_id=unused.session_id, prompt=[text_block("read a.txt")]
            )
            assert answer.stop_reason == "end_turn"  # a panel that was opened before the window
            session = await bench.open_session(new.session_id)
            session.send_message((Text("read a.txt"),))
            await session.wait_until_idle()
            while not editor.of_kind(
                "user_message_chunk"
            ):  # what is written in the window is shown in the editor
                await asyncio.sleep(0.01)
        finally:
            await window.aclose()
        assert editor.said().count("alpha") == 2
        (folder / "d.txt").unlink()
        async with asyncio.timeout(60):
            # The window has been closed. The session goes on in the editor's own process.
            while not await answered(agent, new.session_id):
                await asyncio.sleep(0.05)
        assert (folder / "d.txt").exists()


async def answered(agent: ClientSideConnection, session: str) -> bool:
    try:
        await agent.prompt(session_id=session, prompt=[text_block("write d.txt: text")])
    except RequestError as error:
        return not any(word in str(error) for word in ("moved", "closed"))
    return True


@dataclass(frozen=True)
class HostileEditor:
    """What it asks for has a name each, which is the id of the request."""

    to_agent: asyncio.StreamWriter
    answers: asyncio.StreamReader
    folder: str

    def send(self, content: bytes) -> None:
        self.to_agent.write(content)

    def ask(self, identity: object, method: str, **params: object) -> None:
        request = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
        self.send(json.dumps(request).encode() + b"\n")

    def send_garbage(self) -> None:
        self.send(b"\x00\xff not json\n" * 500)
        self.send(b"[]\n{}\n")
        self.send(b'{"jsonrpc":"2.0","method":"session/unknown"}\n' * 500)
        self.send(b"x" * (LONGEST_MESSAGE + 1) + b"\n")
        self.send(b"[" * 100_000 + b"\n")
        for depth in range(970, 990):  # Some of these could be read, but not be passed on.
            deep = b"[" * depth + b"]" * depth
            self.send(b'{"id":"None","method":"session/list","params":{"x":%b}}\n' % deep)
        for identity in ('"0:["', '"0:1"', "{}", "null", "7"):  # answers to what nobody asked
            self.send(f'{{"jsonrpc":"2.0","id":{identity},"result":{{}}}}\n'.encode())

    def ask_for_what_is_nowhere(self) -> set[str]:
        """The names of these requests, all of which must be refused."""
        names = {"outside"}
        circle = Path(self.folder, "circle")
        circle.symlink_to(circle)
        places = ("/\0", "/\ud800", "/" + "x" * 100_000, "..", 5, str(circle), f"{circle}/x")
        for number, place in enumerate(places):
            self.ask(f"nowhere {number}", "session/new", cwd=place, mcpServers=[])
            names.add(f"nowhere {number}")
        self.ask(
            "outside",
            "session/load",
            cwd=self.folder,
            sessionId="../../etc",
            mcpServers=[],
            additionalDirectories=["/"],
        )
        return names

    def ask_with_wrong_parameters(self) -> set[str]:
        """The names of these requests, all of which must be refused."""
        names: set[str] = set()
        for number, parameters in enumerate(WRONG_PARAMETERS):
            for method in METHODS_OF_SESSION:
                self.ask(f"{method} {number}", f"session/{method}", cwd=self.folder, **parameters)
                names.add(f"{method} {number}")
        return names

    async def read_answers(self, count: int) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        async with asyncio.timeout(60):
            while len(found) < count:
                answer = json.loads(await self.answers.readline())
                # A method is something that the session tells on its own.
                if "method" not in answer:
                    found[str(answer.get("id"))] = answer
        return found

    async def begin_long_turn(self, session: str) -> None:
        """Comes back when its command runs."""
        model = {"configId": "model", "value": "demo/demo"}
        self.ask("model", "session/set_config_option", sessionId=session, **model)
        self.ask("mode", "session/set_mode", sessionId=session, modeId="allow all")
        words = [{"type": "text", "text": "run sleep 1000"}]
        self.ask("turn", "session/prompt", sessionId=session, prompt=words)
        async with asyncio.timeout(60):
            while b'"in_progress"' not in await self.answers.readline():
                pass


METHODS_OF_SESSION = (
    "load",
    "resume",
    "fork",
    "prompt",
    "close",
    "delete",
    "set_mode",
    "set_config_option",
    "nonsense",
)
WRONG_PARAMETERS: tuple[dict[str, Any], ...] = (
    {},
    {"sessionId": 5},
    {"sessionId": "x" * 5_000},
    {"sessionId": None, "prompt": {}},
)


async def test_a_hostile_editor_gets_errors_and_the_program_ends_at_once(
    tmp_path: Path, folder: Path
) -> None:
    """Garbage, floods, wrong parameters for every method, and then silence in the
    middle of a line.
    """
    command = [sys.executable, "-m", "helix_desktop", "--home", str(tmp_path / "home"), "acp"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = asyncio.subprocess.PIPE
    agent = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=env, stdin=pipe, stdout=pipe
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    editor = HostileEditor(agent.stdin, agent.stdout, str(folder))
    editor.send_garbage()
    editor.ask("new", "session/new", cwd=str(folder), mcpServers=[])
    refused = editor.ask_for_what_is_nowhere() | editor.ask_with_wrong_parameters()
    for number in range(300):
        editor.ask(f"flood {number}", "session/list", cwd=str(folder))
    editor.ask("last", "session/list", cwd=str(folder))

    # Those above, "new" and "last", and "None" for what has no id.
    found = await editor.read_answers(len(refused) + 300 + 3)
    errors = {name: answer["error"] for name, answer in found.items() if "error" in answer}
    assert errors.keys() == refused | {"None"}
    assert all(len(error["message"]) < 600 for error in errors.values())

    await editor.begin_long_turn(found["new"]["result"]["sessionId"])
    editor.send(b'{"jsonrpc":"2.0","id":1,"method":"session/pro')
    agent.stdin.close()
    assert await lasted(agent.wait()) < 10  # a second where nothing else runs
    assert agent.returncode == 0


async def test_an_editor_has_no_more_sessions_open_than_it_may(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editor_requests, "MOST_OPEN", 2)
    bench = await desks().create_workspace("w", folder)
    agent = EditorAgent(bench)
    agent._client = cast(Any, SilentEditor())
    for name in ("one", "two", "one"):
        agent._open_editor_conversation(name)
    with pytest.raises(ActionRefused, match="More than 2 sessions"):
        agent._open_editor_conversation("three")
    await agent.aclose()


class SilentEditor:
    """Takes what it is told, and answers nothing."""

    async def session_update(self, **_: Any) -> None:
        return None


async def test_an_editor_that_goes_away_leaves_no_conversation_open(
    desks: Desks, folder: Path
) -> None:
    """What runs for it, such as a question to it, is over, and a file is read from the disk again."""
    bench = await desks().create_workspace("w", folder)
    agent = EditorAgent(bench)
    agent._abilities = ClientAbilities(reads_files=True)
    agent._client = cast(Any, SilentEditor())
    agent._open_editor_conversation("one")
    assert "one" in bench.kit.resources.editor_files
    await agent.aclose()
    assert bench.kit.resources.editor_files == {}


# --- In this process


@pytest.fixture
async def bench(desks: Desks, folder: Path) -> Workbench:
    opened = await desks().create_workspace("w", folder)
    await opened.choose_model_for_role("demo/demo")
    return opened


async def stored_conversations(bench: Workbench, count: int) -> list[str]:
    """The newest first, as they are listed."""
    ids = []
    for number in range(count):
        session = await bench.start_conversation()
        said = UserSaid((Text(f"words {number}"),))
        await session.conversation.append_facts(said, ConversationChanged(title=f"Title {number}"))
        ids.append(session.id)
    return [row.id for row in bench.list_conversations() if row.id in ids]


async def test_conversations_are_listed_a_page_at_a_time(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editor_requests, "PAGE", 2)
    ids = await stored_conversations(bench, 5)
    agent = EditorAgent(bench)
    first = await agent.list_sessions()
    assert [one["sessionId"] for one in first["sessions"]] == ids[:2]
    assert first["sessions"][0]["cwd"] == str(bench.main_folder)
    assert first["sessions"][0]["title"] == "Title 4"
    assert first["sessions"][0]["updatedAt"].endswith("+00:00")
    second = await agent.list_sessions(cwd="/elsewhere", cursor=first["nextCursor"])
    assert [one["sessionId"] for one in second["sessions"]] == ids[2:4]
    assert second["sessions"][0]["cwd"] == "/elsewhere"
    last = await agent.list_sessions(cursor=second["nextCursor"])
    assert [one["sessionId"] for one in last["sessions"]] == ids[4:]
    assert "nextCursor" not in last
    monkeypatch.setattr(editor_requests, "PAGE", 5)
    assert "nextCursor" not in await agent.list_sessions()
    for wrong in ("x", "²", "-1", ""):
        listed = await agent.list_sessions(cursor=wrong)
        assert [one["sessionId"] for one in listed["sessions"]] == ids, "from the beginning"


async def test_what_others_wrote_or_what_is_in_the_trash_is_not_listed(bench: Workbench) -> None:
    shown, in_trash = await stored_conversations(bench, 2)
    await (await bench.open_session(in_trash)).set_trashed()
    child = await bench.start_conversation(parent=shown)
    await child.conversation.append_facts(UserSaid((Text("words"),)))
    listed = await EditorAgent(bench).list_sessions()
    assert [one["sessionId"] for one in listed["sessions"]] == [shown]


async def test_a_stored_conversation_is_loaded_with_its_history_and_resumed_without(
    bench: Workbench,
) -> None:
    (stored,) = await stored_conversations(bench, 1)
    where: dict[str, Any] = {"cwd": str(bench.main_folder), "mcpServers": []}
    async with connected(bench) as editor:
        resumed = await editor.request("session/resume", sessionId=stored, **where)
        assert [option["id"] for option in resumed["configOptions"]][:2] == ["mode", "model"]
        assert editor.updates_of("user_message_chunk") == []
        loaded = await editor.request("session/load", sessionId=stored, **where)
        assert loaded["modes"]["availableModes"]
        (message,) = editor.updates_of("user_message_chunk")
        assert message["content"]["text"] == "words 0"


async def test_a_fork_has_an_id_of_its_own_and_is_open(bench: Workbench) -> None:
    (stored,) = await stored_conversations(bench, 1)
    async with connected(bench) as editor:
        fork = await editor.request(
            "session/fork", sessionId=stored, cwd=str(bench.main_folder), mcpServers=[]
        )
        assert fork["sessionId"] != stored
        assert fork["configOptions"]
        assert bench.conversation_row(fork["sessionId"]) is not None
        await editor.request("session/close", sessionId=fork["sessionId"])


async def test_what_is_deleted_is_in_the_trash_and_cannot_be_opened_from_the_editor(
    bench: Workbench,
) -> None:
    (stored,) = await stored_conversations(bench, 1)
    async with connected(bench) as editor:
        assert await editor.request("session/delete", sessionId=stored) == {}
        row = bench.conversation_row(stored)
        assert row is not None
        assert row.trashed
        for method in ("session/load", "session/prompt", "session/delete"):
            error = await editor.refusal(
                method,
                sessionId=stored,
                cwd=str(bench.main_folder),
                mcpServers=[],
                prompt=words("hello"),
            )
            assert error["message"].startswith(f"There is no conversation {stored} in w.")
        unsent = await new_session(editor, bench)
        assert await editor.request("session/delete", sessionId=unsent) == {}
        assert bench.conversation_row(unsent) is None


async def test_an_id_that_an_earlier_process_gave_out_is_open_again_but_no_other_word(
    bench: Workbench,
) -> None:
    async with connected(bench) as editor:
        await editor.request("session/set_mode", sessionId="ab" * 10, modeId="plan")
        assert bench.permission_mode == "plan"
        for wrong in ("AB" * 10, "ab" * 11, "a" * 19, "../etc"):
            error = await editor.refusal("session/set_mode", sessionId=wrong, modeId="plan")
            assert error["message"].startswith("There is no conversation")


async def test_a_mode_holds_for_the_workspace_and_is_told_to_all_its_conversations(
    bench: Workbench,
) -> None:
    async with connected(bench) as editor:
        first, second = [await new_session(editor, bench) for _ in range(2)]
        editor.updates.clear()
        answer = await editor.request(
            "session/set_config_option", sessionId=first, configId="mode", value="allow all"
        )
        mode = next(option for option in answer["configOptions"] if option["id"] == "mode")
        assert mode["currentValue"] == "allow all"
        await editor.wait_until(lambda: len(editor.updates_of("config_option_update")) >= 2)
        assert second


async def test_each_folder_that_is_named_must_be_one_of_the_workspace(
    bench: Workbench, tmp_path: Path
) -> None:
    inside = bench.main_folder / "src"
    inside.mkdir()
    agent = EditorAgent(bench)
    check = agent._remember_abilities_and_check_folders
    fine: list[Any] = [
        None,
        {"cwd": 5},
        {"cwd": str(bench.main_folder)},
        {"cwd": str(inside), "additionalDirectories": [str(inside), 7]},
    ]
    for params in fine:
        check("session/new", params)
    outside: list[Any] = [
        {"cwd": str(tmp_path)},
        {"cwd": str(inside / ".." / "..")},
        {"cwd": str(inside), "additionalDirectories": [str(inside), "/"]},
    ]
    for params in outside:
        with pytest.raises(ActionRefused, match="is outside the folders of w"):
            check("session/new", params)
    check("session/list", {"clientCapabilities": {"fs": {"readTextFile": True}}})
    assert agent._abilities == ClientAbilities(), "only the first request says what it can"
    check("initialize", {"clientCapabilities": {"fs": {"readTextFile": True}}})
    assert agent._abilities == ClientAbilities(reads_files=True)


async def parts_of(bench: Workbench, block: Any) -> list[Any]:
    return list(await editor_requests._convert_prompt_block(bench, "c", block))


async def test_each_kind_of_content_becomes_what_the_agent_can_read(bench: Workbench) -> None:
    assert await parts_of(bench, text_block("words")) == [Text("words")]
    link = resource_link_block("a.txt", "file:///home/a%20b/a.txt")
    assert await parts_of(bench, link) == [Text("[a.txt](/home/a b/a.txt)")]
    with pytest.raises(InvalidInput, match="image is a picture, and the model does not see"):
        await parts_of(bench, image_block(PICTURE, "image/png"))
    text = resource_block(embedded_text_resource("file:///x/notes.txt", "text"))
    (attached,) = await parts_of(bench, text)
    assert (attached.name, attached.stored.media_type) == ("/x/notes.txt", "text/plain")
    assert await bench.workspace.cache.read_content(attached.stored.digest) == b"text"
    encoded = base64.b64encode(b"from a blob").decode()
    blob = resource_block(embedded_blob_resource("file:///x/b.txt", encoded))
    (sent,) = await parts_of(bench, blob)
    assert sent.name == "/x/b.txt"
    assert await bench.workspace.cache.read_content(sent.stored.digest) == b"from a blob"
    with pytest.raises(InvalidInput, match="kind of content cannot be sent"):
        await parts_of(bench, object())
    for wrong in ("%%%", "QQ=\u00e4"):
        with pytest.raises(InvalidInput, match="image is not valid base64"):
            await parts_of(bench, image_block(wrong, "image/png"))


async def test_an_empty_message_is_refused(bench: Workbench) -> None:
    async with connected(bench) as editor:
        session = await new_session(editor, bench)
        error = await editor.refusal("session/prompt", sessionId=session, prompt=[])
        assert error["message"].startswith("The message is empty.")
        assert bench.conversation_row(session) is None


async def test_events_reach_their_conversation_and_nothing_else(bench: Workbench) -> None:
    shown, hidden = await stored_conversations(bench, 2)
    where: dict[str, Any] = {"cwd": str(bench.main_folder), "mcpServers": []}
    async with connected(bench) as editor:
        await editor.request("session/resume", sessionId=shown, **where)
        for name in (hidden, shown):
            session = await bench.open_session(name)
            await session.conversation.append_facts(ConversationChanged(title=f"Title {name}"))
        await editor.wait_until(lambda: editor.updates_of("session_info_update"))
        titles = [update["title"] for update in editor.updates_of("session_info_update")]
        assert titles == [f"Title {shown}"]


def cancelled_with_an_option(request: dict[str, Any]) -> dict[str, Any]:
    """The editor cancels, and names an option all the same."""
    option = request["params"]["options"][0]["optionId"]
    return {"result": {"outcome": {"outcome": "cancelled", "optionId": option}}}


@pytest.mark.parametrize("answer", [choose("deny"), cancelled_with_an_option])
async def test_what_the_editor_denies_or_cancels_is_not_done_and_the_turn_goes_on(
    bench: Workbench, answer: Answer
) -> None:
    async with connected(bench) as editor:
        editor.answers["session/request_permission"] = answer
        session = await new_session(editor, bench)
        assert await editor.prompt(session, "write c.txt: text") == {"stopReason": "end_turn"}
        assert len(editor.asked) == 1
        assert not (bench.main_folder / "c.txt").exists()
        assert editor.updates_of("tool_call_update")[-1]["status"] == "failed"


@pytest.mark.parametrize("closing", ["session/close", "session/delete"])
async def test_a_message_of_a_session_that_is_closed_meanwhile_is_answered(
    bench: Workbench, closing: str
) -> None:
    """The editor waited for the end of the turn for ever."""
    async with connected(bench) as editor:
        session = await new_session(editor, bench)
        turn = editor.begin_request(
            "session/prompt", sessionId=session, prompt=words("write c.txt: text")
        )
        await editor.wait_until(lambda: editor.asked)
        await editor.request(closing, sessionId=session)
        answer = await asyncio.wait_for(turn, 60)
        assert answer["result"] == {"stopReason": "cancelled"}
        assert not (bench.main_folder / "c.txt").exists()


async def test_an_editor_that_begins_is_told_what_the_agent_is_and_can_do(
    bench: Workbench,
) -> None:
    async with connected(bench) as editor:
        answer = await editor.request("initialize", protocolVersion=1, clientCapabilities={})
        assert answer == json.loads(json.dumps(build_initialize_result()))
        assert answer["protocolVersion"] == 1
