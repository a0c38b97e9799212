"""An allowed extension in an open workspace: its tool is offered, asked about and run, its
format is imported on the command line, and what does not run is said at the opening.
"""

from __future__ import annotations

import json
from pathlib import Path

from helix_desktop.engine.facts import (
    FoldKind,
    ModelReplied,
    Stop,
    Text,
    ToolCall,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.ports import CallContext, PermissionAnswer, PermissionQuestion
from helix_desktop.extensions.installed_extensions import AllowedExtensions
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.commands.conftest import Helix, helix  # noqa: F401
from tests.extensions.conftest import PACKAGES, Install, WriteExtension
from tests.scripted_tour import ClockWithoutPauses

HISTORY = "# aider chat started at 2026-11-02 10:11:12\n\n#### What is 2 + 2?\n\nIt is 4.\n"


def allow(where: ProgramFolders, name: str) -> None:
    extensions = AllowedExtensions(where)
    extensions.allow_extension(extensions.find_extension(name).installed)


async def test_a_tool_is_offered_asked_about_and_run(
    where: ProgramFolders, install: Install, write_extension: WriteExtension, tmp_path: Path
) -> None:
    install(PACKAGES / "word_tools")
    allow(where, "words")
    write_extension("broken", "raise RuntimeError('broken')")
    allow(where, "broken")
    folder = tmp_path / "project"
    folder.mkdir()
    questions: list[PermissionQuestion] = []

    async def answer(question: PermissionQuestion) -> PermissionAnswer:
        questions.append(question)
        return PermissionAnswer(allowed=len(questions) > 1)

    secrets = SecretStorage(where.key_file, environ={})
    desk = Workbenches(where, secrets, clock=ClockWithoutPauses())
    try:
        bench = await desk.create_workspace("Thesis", folder)
        assert [note for note in bench.opening_notes if "broken" in note] == [
            "The extension broken was switched off: its module raised RuntimeError: broken."
        ]
        session = await bench.start_users_conversation()
        tools = session._services.tools
        assert "words__count_words" in {spec.name for spec in tools.offered_specs()}
        call = ToolCall("1", "words__count_words", json.dumps({"text": "to be or not"}))
        context = CallContext(session.id, answer, lambda _: None)
        refused = await tools.run_tool_call(call, context)
        assert refused.refused
        assert questions[0].title == "Words: count_words"
        assert "to be or not" in questions[0].preview
        allowed = await tools.run_tool_call(call, context)
        assert allowed.ok
        content = await bench.workspace.cache.read_content(allowed.output.digest)
        assert content.decode() == "4 words\n1 to\n1 be\n1 or"
        wrong = ToolCall("2", "words__count_words", json.dumps({"txt": 1}))
        assert not (await tools.run_tool_call(wrong, context)).ok
    finally:
        await desk.aclose()


async def test_a_fold_strategy_writes_the_summary_of_a_conversation_and_undo_brings_all_back(
    where: ProgramFolders, install: Install, tmp_path: Path
) -> None:
    install(PACKAGES / "plain_summary")
    allow(where, "plain-summary")
    folder = tmp_path / "project"
    folder.mkdir()
    desk = Workbenches(where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses())
    try:
        bench = await desk.create_workspace("Thesis", folder)
        session = await bench.start_users_conversation()
        conversation = session.conversation
        for number in range(12):
            asked = UserSaid((Text(f"What is {number}? {'word ' * 300}", 300),))
            answered = ModelReplied((Text("It is a number.", 4),), "demo/demo", Stop.END)
            await conversation.append_facts(asked, answered, TurnEnded(TurnEnd.DONE))
        shown_before = conversation.current_view()
        await session.fold_on_request(FoldKind.HANDOVER)
        (fold,) = conversation.state.branch.folds.values()
        assert fold.model == "Plain summaries (extension)"
        assert "What is 3?" in fold.text
        await session.folding.unfold(fold.fold)
        assert conversation.current_view() == shown_before
    finally:
        await desk.aclose()


async def test_an_extension_named_like_an_mcp_server_gets_no_rule_of_its_tools(
    where: ProgramFolders, install: Install, tmp_path: Path
) -> None:
    install(PACKAGES / "word_tools")
    allow(where, "words")
    folder = tmp_path / "project"
    folder.mkdir()
    desk = Workbenches(where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses())
    try:
        bench = await desk.create_workspace("Thesis", folder)
        session = await bench.start_users_conversation()
        tools = session._services.tools
        assert "words__count_words" in {spec.name for spec in tools.offered_specs()}
        await bench.mcp_servers.add_pasted_servers("false", name="words")
        assert "words__count_words" not in {spec.name for spec in tools.offered_specs()}
    finally:
        await desk.aclose()


def test_a_history_of_an_added_format_is_imported_and_found_unchanged_the_second_time(
    where: ProgramFolders,
    install: Install,
    tmp_path: Path,
    helix: Helix,  # noqa: F811
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    history = folder / ".aider.chat.history.md"
    history.write_text(HISTORY, "utf-8")
    home = where.data
    assert helix("--home", home, "workspace", "new", "Thesis", "--folder", folder)[0] == 0
    command = ("--home", home, "conversation", "import", "-w", "Thesis", "--json", history)
    assert "doesn't contain a session" in " ".join(json.loads(helix(*command)[1])["complaints"])
    install(PACKAGES / "aider_history")
    assert helix("--home", home, "extension", "allow", "aider-history", "--yes")[0] == 0
    from helix_desktop.extensions import extension_loading

    extension_loading.forget_loaded_extensions()  # As in a program that is started now.
    imported = json.loads(helix(*command)[1])
    assert len(imported["imported"]) == 1
    assert imported["complaints"] == []
    again = json.loads(helix(*command)[1])
    assert (len(again["imported"]), again["unchanged"]) == (0, 1)
    _, found, _ = helix("--home", home, "conversation", "search", "-w", "Thesis", "2 + 2")
    assert "What is 2 + 2?" in found


READS_WHOLE_SECONDS = """
from helix_desktop.engine.facts import (
    FoldKind,
    ModelReplied,
    Stop,
    Text,
    ToolCall,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.extensions.extension_interfaces import *
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession

def recognizes(path, beginning):
    return path.name == "talk.json"

def read(path):
    calls = [ToolCall("1", "open", "{}")]
    yield RecordedSession(name=str(path), kind="talker", session="one", messages=[
        RecordedMessage("user", "What is there?", time=1793614272),
        RecordedMessage("assistant", "I look.", calls=calls, time=1793614273),
        RecordedMessage("tool", "nothing", answers="1", ok=False),
    ])

form = ExtensionHistoryFormat("talker", "Talker", recognizes, read)
extension = Extension("Talker", history_formats=[form])
"""


def test_what_an_extension_reads_gets_the_types_that_the_journal_stores(
    where: ProgramFolders,
    write_extension: WriteExtension,
    tmp_path: Path,
    helix: Helix,  # noqa: F811
) -> None:
    history = tmp_path / "talk.json"
    history.write_text("{}", "utf-8")
    home = where.data
    write_extension("talker", READS_WHOLE_SECONDS)
    allow(where, "talker")
    assert helix("--home", home, "workspace", "new", "Thesis", "--folder", tmp_path)[0] == 0
    command = ("--home", home, "conversation", "import", "-w", "Thesis", "--json", history)
    assert len(json.loads(helix(*command)[1])["imported"]) == 1
    code, out, err = helix("--home", home, "conversation", "list", "-w", "Thesis", "--json")
    assert (code, err) == (0, "")
    (listed,) = json.loads(out)
    again = json.loads(helix(*command)[1])
    assert (again["imported"], again["unchanged"]) == ([], 1)
    code, out, err = helix("--home", home, "conversation", "show", "-w", "Thesis", listed["id"])
    assert (code, err) == (0, "")
    assert "What is there?" in out
