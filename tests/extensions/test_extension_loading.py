"""Allowed extensions work, and none that fails or hangs takes anything with it."""

from __future__ import annotations

import pytest

from helix_desktop.engine.ports import CallContext
from helix_desktop.extensions import extension_loading, running_extension
from helix_desktop.extensions.extension_loading import LoadedExtensions
from helix_desktop.extensions.installed_extensions import AllowedExtensions, ExtensionState
from helix_desktop.histories import history_reading
from helix_desktop.program_folders import ProgramFolders
from tests.extensions.conftest import PACKAGES, Install, WriteExtension

DECLARES = "from helix_desktop.extensions.extension_interfaces import *\n"
A_TOOL = DECLARES + (
    "async def run(values):\n    {body}\n"
    "extension = Extension('Tools', tools=[ExtensionTool('act', 'Acts', {{'type': 'object'}}, run, limit_seconds=0.3)])\n"
)
CONTEXT = CallContext("conversation", lambda _: pytest.fail("nobody asks here"), lambda _: None)
# By name: the code, and what the sentence about it says.
BROKEN = {
    "raises": ("raise RuntimeError('broken')", "its module raised RuntimeError: broken"),
    "exits": ("raise SystemExit(3)", "its module raised SystemExit: 3"),
    "no_syntax": ("def (", "its module raised SyntaxError"),
    "missing": ("import a_module_that_nobody_has", "its module raised ModuleNotFoundError"),
    "no_extension": ("extension = 7", "is no Extension, but int"),
    "no_name": ("other = 7", "its module raised AttributeError"),
    "interface": (DECLARES + "extension = Extension('New', interface=2)", "version 2 of the interface"),
    "tool_name": (
        DECLARES + "extension = Extension('T', tools=[ExtensionTool('a b', '', {}, print)])",
        "must have only letters",
    ),
    "twice": (
        DECLARES + "tool = ExtensionTool('a', '', {}, None)\nextension = Extension('T', tools=[tool, tool])",
        "declares the tool a twice",
    ),
    "plain_function": (
        DECLARES + "def run(values): return ''\nextension = Extension('T', tools=[ExtensionTool('a', '', {}, run)])",
        "the function of its tool a must begin with `async def`",
    ),
    "claims_kind": (
        DECLARES
        + "form = ExtensionHistoryFormat('claude-code', 'Claude', None, None)\n"
        + "extension = Extension('H', history_formats=[form])",
        "belongs to Helix Desktop",
    ),
}  # fmt: skip


def load(where: ProgramFolders) -> LoadedExtensions:
    extensions = LoadedExtensions(AllowedExtensions(where))
    for known in extensions.decisions.list_extensions():
        extensions.decisions.allow_extension(known.installed)
    extensions.load_allowed()
    return extensions


async def test_an_allowed_tool_answers(where: ProgramFolders, install: Install) -> None:
    install(PACKAGES / "word_tools")
    extensions = load(where)
    assert extensions.complaints == []
    (tool,) = extensions.list_tools()
    assert tool.spec.name == "words__count_words"
    assert tool.title_for_question == "Words: count_words"
    result = await tool.call_foreign_tool({"text": "to be or not to be"}, CONTEXT)
    assert result.ok
    assert result.text == "6 words\n2 to\n2 be\n1 or"


def test_an_added_format_is_read(
    where: ProgramFolders, install: Install, tmp_path_factory: pytest.TempPathFactory
) -> None:
    install(PACKAGES / "aider_history")
    file = tmp_path_factory.mktemp("project") / ".aider.chat.history.md"
    file.write_text(
        "\n# aider chat started at 2026-11-02 10:11:12\n\n> Aider v0.86.2\n"
        "#### What does main.py do?\n#### And why?\n\nIt counts.\n\nBecause it was asked to.\n"
        "\n# aider chat started at 2026-11-03 09:00:00\n\n#### Hello\n\nHello.\n",
        "utf-8",
    )
    load(where)
    sessions = history_reading.read_history_file(file).recordings
    texts = [[(message.role, message.text) for message in each.messages] for each in sessions]
    assert texts == [
        [
            ("user", "What does main.py do?\nAnd why?"),
            ("assistant", "It counts.\n\nBecause it was asked to."),
        ],
        [("user", "Hello"), ("assistant", "Hello.")],
    ]
    assert {each.kind for each in sessions} == {"aider"}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_extension_is_switched_off_with_its_reason_and_another_one_works(
    name: str, where: ProgramFolders, write_extension: WriteExtension
) -> None:
    code, reason = BROKEN[name]
    write_extension(name, code)
    write_extension("works", A_TOOL.format(body="return 'done'"))
    extensions = load(where)
    assert [tool.spec.name for tool in extensions.list_tools()] == ["works__act"]
    (complaint,) = extensions.complaints
    assert complaint.startswith(f"The extension {name} was switched off: ")
    assert reason in complaint
    assert AllowedExtensions(where).find_extension(name).state is ExtensionState.FAILED


def test_an_import_that_hangs_is_given_up(
    where: ProgramFolders,
    write_extension: WriteExtension,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extension_loading, "IMPORT_SECONDS", 0.2)
    write_extension("hangs_at_once", "import threading\nthreading.Event().wait()")
    extensions = load(where)
    assert extensions.running == []
    assert "did not return within" in extensions.complaints[0]


HANGS = {
    "hangs_thread": "import threading; threading.Event().wait()",
    "hangs_loop": "import asyncio; await asyncio.Event().wait()",
}


@pytest.mark.parametrize("name", HANGS)
async def test_a_call_that_hangs_ends_and_switches_the_extension_off(
    name: str, where: ProgramFolders, write_extension: WriteExtension
) -> None:
    write_extension(name, A_TOOL.format(body=HANGS[name]))
    extensions = load(where)
    (tool,) = extensions.list_tools()
    result = await tool.call_foreign_tool({}, CONTEXT)
    assert not result.ok
    assert "was switched off: act did not return" in result.text
    assert extensions.list_tools() == []
    assert AllowedExtensions(where).find_extension(name).state is ExtensionState.FAILED


@pytest.mark.parametrize("body", ["raise SystemExit(1)", "return 7", "1 / 0"])
async def test_calls_that_fail_are_told_and_the_third_in_a_row_ends_it(
    body: str, where: ProgramFolders, write_extension: WriteExtension
) -> None:
    write_extension("fails", A_TOOL.format(body=body))
    extensions = load(where)
    for _ in range(running_extension.MOST_FAILURES):
        (tool,) = extensions.list_tools()
        result = await tool.call_foreign_tool({}, CONTEXT)
        assert not result.ok
        assert "act failed with" in result.text
    assert extensions.list_tools() == []


def test_without_a_decision_nothing_is_looked_for(
    where: ProgramFolders,
    write_extension: WriteExtension,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(10):
        write_extension(f"off{number}", "raise RuntimeError")
    monkeypatch.setattr(
        AllowedExtensions, "list_extensions", lambda _: pytest.fail("packages were looked at")
    )
    extensions = LoadedExtensions(AllowedExtensions(where))
    extensions.load_allowed()
    assert extensions.running == []
