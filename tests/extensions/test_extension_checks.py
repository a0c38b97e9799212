"""The check for authors accepts a format that keeps its promises, and names each that is broken."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import ToolCall
from helix_desktop.extensions import extension_loading
from helix_desktop.extensions.extension_checks import (
    check_fold_strategy,
    check_history_format,
    describe_read_sessions,
)
from helix_desktop.extensions.extension_interfaces import (
    ActionPlace,
    ChosenFold,
    Extension,
    ExtensionFoldStrategy,
    ExtensionHistoryFormat,
    FoldableContext,
    MessageToFold,
)
from helix_desktop.extensions.extension_offers import check_declaration
from helix_desktop.extensions.installed_extensions import InstalledExtension
from helix_desktop.histories.recorded_session import (
    HistoryUnreadable,
    RecordedMessage,
    RecordedSession,
)
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.resources import resources_folder
from tests.commands.conftest import Helix, helix  # noqa: F401
from tests.extensions.conftest import PACKAGES, WriteExtension
from tests.extensions.test_extension_in_workbench import HISTORY, allow

TALK = """{"type": "talk", "id": "one", "folder": "/home/ada/project"}
{"type": "said", "by": "user", "text": "What does main.py do?", "time": 1793614272}
{"type": "said", "by": "assistant", "text": "I read it.", "time": 1793614274, "calls": [{"id": "1", "tool": "read", "input": {"path": "main.py"}}]}
{"type": "result", "call": "1", "output": "print(2)"}
{"type": "said", "by": "assistant", "text": "It prints 2.", "time": 1793614277, "model": "talker-large"}
"""
LINES = """{"type": "head", "id": "one"}
{"type": "user", "text": "What is there?"}
{"type": "assistant", "text": "Nothing."}
"""


def read_lines(path: Path) -> Iterable[RecordedSession | str]:
    """A format as a careful author writes it."""
    session = ""
    messages: list[RecordedMessage] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError:
            yield f"line {number} is damaged"
            continue
        if row["type"] == "head":
            session = row["id"]
        else:
            messages.append(RecordedMessage(row["type"], row["text"]))
    if not session:
        raise HistoryUnreadable("it has no head")
    yield RecordedSession(name=str(path), session=session, messages=tuple(messages))


def recognizes_lines(_path: Path, beginning: bytes) -> bool:
    return b'"head"' in beginning


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    path.write_text(LINES, "utf-8")
    return path


def check(
    example: Path,
    read: Callable[[Path], Iterable[RecordedSession | str]] = read_lines,
    recognizes: Callable[[Path, bytes], bool] = recognizes_lines,
) -> list[str]:
    return check_history_format(ExtensionHistoryFormat("t", "T", recognizes, read), example)


def test_a_format_that_keeps_its_promises_has_no_problems(example: Path) -> None:
    assert check(example) == []


def test_the_example_of_the_help_has_no_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(PACKAGES / "aider_history")
    import aider_history  # type: ignore[import-not-found]

    example = tmp_path / ".aider.chat.history.md"
    example.write_text(HISTORY, "utf-8")
    problems = check_history_format(aider_history.extension.history_formats[0], example)
    del sys.modules["aider_history"]
    assert problems == []


def test_the_code_of_the_page_for_authors_works(tmp_path: Path) -> None:
    page = (resources_folder() / "help" / "extensions.md").read_text("utf-8")
    parts = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    exec("from helix_desktop.extensions.extension_interfaces import *", names)  # noqa: S102 - our page
    for code in parts[1:]:  # The first one only lists the classes.
        if "from talker import" not in code:  # The test of a package imports the package.
            exec(code, names)  # noqa: S102
    example = tmp_path / "example.talk"
    example.write_text(TALK, "utf-8")
    assert check_history_format(names["history"], example) == []
    declared = Extension(
        "Page",
        tools=[names["tool"]],
        history_formats=[names["history"]],
        document_kinds=[names["kind"]],
        providers=[names["provider"]],
        commands=[names["command"]],
        doctor_checks=[names["check"]],
        search_sources=[names["wiki"]],
        actions=[names["action"]],
        fold_strategies=[names["strategy"]],
    )
    installed = InstalledExtension("page", "page", "1", "subtitle_reader:extension", (), "")
    assert check_declaration(installed, declared).title == "Page"
    assert check_fold_strategy(names["strategy"]) == []


def test_the_command_and_the_action_of_the_page_for_authors_do_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (resources_folder() / "help" / "extensions.md").read_text("utf-8")
    names: dict[str, Any] = {}
    exec("from helix_desktop.extensions.extension_interfaces import *", names)  # noqa: S102 - our page
    for title in ("A command", "An action"):
        section = page.partition(f"### {title}\n")[2]
        code = section.partition("```python\n")[2].partition("```")[0]
        exec(code, names)  # noqa: S102
    text_file = tmp_path / "text.txt"
    text_file.write_text("to be or not", "utf-8")
    command = names["command"]
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command.run(parser.parse_args([str(text_file)])) == 0
    assert capsys.readouterr().out == "4\n"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert names["action"].run(ActionPlace("Work", "/a", "")) == "Noted /a."
    assert (tmp_path / "folders.txt").read_text("utf-8") == "/a\n"


def test_a_fold_strategy_is_tried_with_an_example_conversation() -> None:
    def choose_newest(context: FoldableContext) -> ChosenFold:
        return ChosenFold(context.messages[-1].number + 1, "x")

    def write_number(messages: Sequence[MessageToFold]) -> str:
        return len(messages)  # type: ignore[return-value]

    wrong = ExtensionFoldStrategy("wrong", choose_newest, write_number)
    problems = check_fold_strategy(wrong)
    assert "`choose` of wrong chose 31" in problems[0]
    assert "`write` of wrong returned int" in problems[1]
    assert "neither" in check_fold_strategy(ExtensionFoldStrategy("none"))[0]


def test_a_name_with_another_ending_is_named(example: Path) -> None:
    other = example.rename(example.with_suffix(".talk"))
    assert "not found in a folder" in check(other)[0]


def test_a_look_that_is_wrong_or_fails_is_named(example: Path) -> None:
    assert "returned false" in check(example, recognizes=lambda _path, _beginning: False)[0]
    problems = check(example, recognizes=lambda _path, _beginning: True)
    assert "of another program that begins with b''" in problems[0]
    (problem,) = check(example, recognizes=lambda _path, beginning: beginning[0] == 123)
    assert "`recognizes` raised IndexError" in problem


def test_an_identity_that_changes_is_named(example: Path) -> None:
    def read_with_size(path: Path) -> Iterable[RecordedSession]:
        messages = (RecordedMessage("assistant", "a"),)
        session = str(path.stat().st_size)
        yield RecordedSession(name="n", session=session, messages=messages)

    assert "would be imported twice" in check(example, read_with_size)[0]


def test_an_error_for_a_part_of_a_file_is_named(example: Path) -> None:
    def read_carelessly(path: Path) -> Iterable[RecordedSession]:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        messages = [RecordedMessage(row["type"], row["text"]) for row in rows[1:]]
        yield RecordedSession(name="n", session=rows[0]["id"], messages=tuple(messages))

    problems = check(example, read_carelessly)
    assert "the first 0% of the example, `read` raised IndexError" in problems[0]
    assert "a damaged copy, `read` raised UnicodeDecodeError" in problems[-1]


def test_a_result_without_its_call_and_a_missing_reply_are_named(example: Path) -> None:
    def read_result(path: Path) -> Iterable[RecordedSession]:
        messages = (RecordedMessage("tool", "a", answers="7"),)
        yield RecordedSession(name=str(path), session="one", messages=messages)

    problems = check(example, read_result)
    assert "a result answers '7'" in problems[0]
    assert "No session has a message with the role assistant" in problems[1]


def test_a_result_is_of_the_last_reply_and_comes_once(example: Path) -> None:
    """The check accepted both, and they were imported as outputs that answer no call."""

    def read_results(path: Path) -> Iterable[RecordedSession]:
        call = ToolCall("7", "read_file", "{}")
        first_reply = RecordedMessage("assistant", "", calls=(call,))
        reply_by_parts = RecordedMessage("assistant", "", parts=(replace(call, id="8"),))
        messages = (
            first_reply,
            RecordedMessage("tool", "a", answers="7"),
            RecordedMessage("tool", "twice", answers="7"),
            reply_by_parts,
            RecordedMessage("tool", "b", answers="8"),
            RecordedMessage("assistant", "Done."),
            RecordedMessage("tool", "late", answers="8"),
        )
        yield RecordedSession(name=str(path), session="one", messages=messages)

    twice, late = check(example, read_results)
    assert "a result answers '7'" in twice
    assert "a result answers '8'" in late


def test_a_text_that_cannot_be_stored_is_named_once_for_each_field(example: Path) -> None:
    """It was imported with other characters, and nobody was told."""

    def read_broken_text(path: Path) -> Iterable[RecordedSession]:
        half = "\ud83d"
        call = ToolCall("7", half, "{}")
        messages = (
            RecordedMessage("user", half),
            RecordedMessage("assistant", half, calls=(call,)),
            RecordedMessage("tool", "ok \U0001f600", answers="7"),
        )
        yield RecordedSession(name=str(path), session="one", title=half, messages=messages)

    problems = check(example, read_broken_text)
    named_fields = [problem.split(", ")[1].split()[0] for problem in problems]
    assert named_fields == ["RecordedMessage.text", "RecordedSession.title", "ToolCall.name"]


@pytest.mark.parametrize("arguments", ['{"path":', "[]", ""])
def test_arguments_that_are_no_json_object_are_named(example: Path, arguments: str) -> None:
    """They were imported, and shown as broken text."""

    def read_call(path: Path) -> Iterable[RecordedSession]:
        calls = (ToolCall("7", "read_file", arguments),)
        messages = (RecordedMessage("assistant", "", calls=calls),)
        yield RecordedSession(name=str(path), session="one", messages=messages)

    assert "the arguments of the call '7' are no JSON object" in check(example, read_call)[0]


def test_a_file_that_is_changed_and_a_wrong_type_are_named(example: Path) -> None:
    def read_and_write(path: Path) -> Iterable[RecordedSession | str]:
        yield from read_lines(path)
        path.write_text(path.read_text("utf-8", "replace") + "\n", "utf-8")

    assert "has changed the file" in check(example, read_and_write)[0]

    def read_number(_: Path) -> Iterable[RecordedSession]:
        return [7]  # type: ignore[list-item]

    assert "returned int instead of a RecordedSession" in check(example, read_number)[0]


def code_of_package(name: str) -> str:
    return (PACKAGES / name / f"{name}.py").read_text("utf-8")


def test_one_command_checks_a_format_with_an_example(
    where: ProgramFolders,
    write_extension: WriteExtension,
    tmp_path: Path,
    helix: Helix,  # noqa: F811
) -> None:
    command = ("--home", where.data, "extension", "check", "aider")
    write_extension("aider", code_of_package("aider_history"))
    code, _, err = helix(*command)
    assert (code, "The extension aider is off." in err) == (1, True)
    allow(where, "aider")
    extension_loading.forget_loaded_extensions()
    example = tmp_path / ".aider.chat.history.md"
    example.write_text(HISTORY, "utf-8")
    code, out, _ = helix(*command, example)
    assert (code, "format of histories  aider" in out, "as they should be" in out) == (
        0,
        True,
        True,
    )
    example.write_text(HISTORY.partition("It is")[0], "utf-8")
    code, out, _ = helix(*command, example)
    assert (code, "No session has a message with the role assistant" in out) == (1, True)


def test_an_author_is_told_why_an_extension_does_not_run(
    where: ProgramFolders,
    write_extension: WriteExtension,
    helix: Helix,  # noqa: F811
) -> None:
    write_extension("words", "raise RuntimeError('no dictionary')\n")
    allow(where, "words")
    command = ("--home", where.data, "extension", "check", "words")
    for _ in range(2):  # It is not loaded again, and the reason stays known.
        code, _, err = helix(*command)
        assert (code, "its module raised RuntimeError: no dictionary" in err) == (1, True)
        extension_loading.forget_loaded_extensions()

    write_extension("words", code_of_package("word_tools"))
    code, _, err = helix(*command)
    assert (code, "has changed since you allowed it" in err) == (1, True)


def test_a_tool_is_tried_from_the_command_line(
    where: ProgramFolders,
    write_extension: WriteExtension,
    helix: Helix,  # noqa: F811
) -> None:
    write_extension("words", code_of_package("word_tools"))
    allow(where, "words")
    command = ("--home", where.data, "extension", "call", "words")
    code, out, _ = helix(*command, "count_words", '{"text": "to be or not"}')
    assert (code, "4 words" in out) == (0, True)
    assert helix(*command, "count_words", "{")[0] == 2
    assert "Its parameters" in helix(*command, "count_words", "{}")[2]
    assert "Available: count_words" in helix(*command, "count")[2]


def test_a_kind_of_documents_is_checked_with_an_example(
    where: ProgramFolders,
    write_extension: WriteExtension,
    tmp_path: Path,
    helix: Helix,  # noqa: F811
) -> None:
    own_reader = code_of_package("subtitle_reader").replace("subtitle_reader:", "extension_srt:")
    careless = own_reader.replace('if "-->" not in text:', "if not content[1]:")
    write_extension("srt", careless)
    allow(where, "srt")
    example = tmp_path / "film.srt"
    example.write_text("1\n00:00:01,000 --> 00:00:02,000\nHello.\n", "utf-8")
    code, out, _ = helix("--home", where.data, "extension", "check", "srt", example)
    assert (code, "could not be read" in out) == (1, False)
    assert "For the first byte of the example, the reader failed. Raise DocumentDamaged" in out
    assert "IndexError" in out


def test_a_search_is_tried_from_the_command_line(
    where: ProgramFolders,
    write_extension: WriteExtension,
    helix: Helix,  # noqa: F811
) -> None:
    write_extension(
        "wiki",
        """
from helix_desktop.extensions.extension_interfaces import *

def search(text):
    if text == "script":
        yield FoundPage("Bad", "javascript:alert(1)")
    yield FoundPage(f"About {text}", "https://wiki.example.org/a")

extension = Extension("Wiki", search_sources=[ExtensionSearchSource("Wiki", search)])
""",
    )
    allow(where, "wiki")
    command = ("--home", where.data, "extension", "search", "wiki")
    code, out, _ = helix(*command, "release")
    assert (code, "About release  https://wiki.example.org/a" in out) == (0, True)
    code, out, _ = helix(*command, "script")
    assert code == 1
    assert "Wiki failed: it returned the address 'javascript:alert(1)'." in out


def test_a_schema_that_is_none_is_named_and_ends_no_call(
    where: ProgramFolders,
    write_extension: WriteExtension,
    helix: Helix,  # noqa: F811
) -> None:
    """The defect: a type that does not exist passed the check, and a call ended the command."""
    tool = code_of_package("word_tools").replace('"type": "object"', '"type": "objct"')
    write_extension("words", tool)
    allow(where, "words")
    code, out, _ = helix("--home", where.data, "extension", "check", "words")
    assert code == 1
    assert "The schema of count_words is no JSON schema" in out
    command = ("--home", where.data, "extension", "call", "words")
    code, out, err = helix(*command, "count_words", '{"text": "to be or not"}')
    assert (code, "4 words" in out, "Traceback" in err) == (0, True, False)


def test_a_declaration_that_is_not_offered_is_named_in_a_test(example: Path) -> None:
    wrong = ExtensionHistoryFormat("t", "T", recognizes_lines, read_lines, endings=".jsonl")
    (problem,) = check_history_format(wrong, example)
    assert problem == (
        "The format cannot be offered: the endings of t must be a list or a tuple of texts."
    )


def test_the_check_says_how_much_was_read(example: Path) -> None:
    declared = ExtensionHistoryFormat("t", "T", recognizes_lines, read_lines)
    example.write_text(LINES + "{broken\n", "utf-8")
    assert describe_read_sessions(declared, example) == [
        f"Read {example}: 2 messages, 0 calls",
        "Left out: line 4 is damaged",
    ]


def test_a_test_of_a_package_finds_the_package(tmp_path: Path) -> None:
    """The defect: importing Helix Desktop took the package's own folder from Python's path."""
    (tmp_path / "talker.py").write_text("number = 7\n", "utf-8")
    (tmp_path / "test_talker.py").write_text(
        "import helix_desktop\nfrom talker import number\n\ndef test_it():\n    assert number == 7\n",
        "utf-8",
    )
    for command in (("pytest", "test_talker.py"), ("helix_desktop.cli", "--version")):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
