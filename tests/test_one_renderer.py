"""What a person allows is shown by one renderer (`engine/hidden_characters.py`), whole and with marks.

A surface that asks without it is forbidden, and so is one that prints what came from elsewhere
past `console.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import helix_desktop

PACKAGE = Path(helix_desktop.__file__).parent
# What shows a text exactly: these functions, and the widgets and texts that are made by them.
RENDERERS = {
    "mark_text", "mark_on_one_line", "mark_program", "marked_lines", "ExactTextView", "ExactDifferenceView", "build_exact_preview",
    "ConsentQuestion", "ConsentDialog", "TrustDialog", "TaskQuestionView", "PermissionQuestionPanel", "PermissionQuestionCard", "FullSizeDialog",
}  # fmt: skip
# What gives permission. Only a module that shows by the renderer what is allowed may call it.
CONSENTS = {
    "answer_question", "as_permission", "answer_task", "trust_items", "decide_imported_question", "add_pasted_servers",
    "toggle_agent_connection",
}  # fmt: skip
CONSENTS_ELSEWHERE = {
    "commands/turn_output.py": "answers by the names that the user gave on the command line, and shows nothing",
    "phone_page/page_app.py": "passes on what was pressed on the card of page_rendering.py, with the fingerprint of its words",
    "commands/project_command.py": "`project trust` needs the hash that `project show` printed below the marked text",
    "gui/message_sending.py": "passes on what was pressed on the card",
}
# The exact value of a question. Outside of a renderer it is only asked whether there is one.
EXACT_VALUES = {"preview", "full_description_without_secrets", "proposed"}
EXACT_VALUES_ELSEWHERE = {
    (
        "gui/chat/permission_card.py",
        "preview",
    ): "a plan as edited, cleaned; its width; the address that is opened",
    ("acp_agent/editor_conversation.py", "preview"): "a plan, which the editor draws as Markdown",
    (
        "gui/settings/mcp_servers_page.py",
        "full_description_without_secrets",
    ): "joined, then a ConsentQuestion",
    (
        "gui/settings/mcp_server_card.py",
        "full_description_without_secrets",
    ): "cut, then marked, in the list of servers that were agreed to",
    ("commands/workspace_command.py", "proposed"): "made into questions, whose text is marked",
}
SURFACES = ("gui/", "commands/", "acp_agent/", "phone_page/")
# What asks by itself, and the one module that may.
DOORS = {
    "QMessageBox": {"gui/question_dialogs.py", "gui/screen_fitting.py", "gui/main_window.py"},
    "QInputDialog": {"gui/question_dialogs.py"},
    "input": {"commands/workspace_access.py"},
    "RequestPermissionRequest": {"acp_agent/editor_conversation.py"},
}
# Output that is no text for people: protocols of worker processes.
PRINTS = {
    "console.py", "documents/document_worker.py", "gui/preview/svg_worker.py", "gui/transcript/formula_worker.py", "tools/regex_search_worker.py", "tools/html_worker.py",
}  # fmt: skip


# Without one of these words, nothing in a file prints.
PRINTING = re.compile(r"\bprint\b|stdout|stderr")


def offences(source: str, file: str) -> list[str]:
    if not file.startswith(SURFACES) and not PRINTING.search(source):
        return []
    tree = ast.parse(source)
    return sorted({*_asking(tree, file), *_printing(tree, file)})


def _asking(tree: ast.Module, file: str) -> Iterator[str]:
    if not file.startswith(SURFACES):
        return
    names = _all_names(tree)
    if not RENDERERS & names and file not in CONSENTS_ELSEWHERE:
        for consent in CONSENTS & names:
            yield f"{file}: {consent} without a renderer"
    yield from _other_doors(tree, file, names)
    yield from _values_without_renderer(tree, file, names)


def _other_doors(tree: ast.Module, file: str, names: set[str]) -> Iterator[str]:
    called = {_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for door, modules in DOORS.items():
        used = names
        if door == "input":  # `input` is a figure of tokens as well.
            used = called
        if door in used and file not in modules:
            yield f"{file}: {door}"


def _values_without_renderer(tree: ast.Module, file: str, names: set[str]) -> Iterator[str]:
    if not EXACT_VALUES & names:
        return
    shown_or_tested = _inside_renderer_calls(tree) | _tested_values(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr not in EXACT_VALUES:
            continue
        # The window has a pane called preview as well.
        if node.attr == "preview" and "question" not in ast.unparse(node.value):
            continue
        if id(node) in shown_or_tested or (file, node.attr) in EXACT_VALUES_ELSEWHERE:
            continue
        yield f"{file}: {node.attr} is not shown by a renderer"


def _all_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                names.add(name)
    return names


def _inside_renderer_calls(tree: ast.Module) -> set[int]:
    """The identities of all nodes that are part of what a renderer is given."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in RENDERERS:
            inside.update(id(part) for part in ast.walk(node))
    return inside


def _tested_values(tree: ast.Module) -> set[int]:
    """The identities of what is only asked whether it is there: `if question.preview`."""
    tested: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.IfExp)):
            tested.add(id(node.test))
            if isinstance(node.test, ast.BoolOp):
                tested.update(id(value) for value in node.test.values)
    return tested


def _printing(tree: ast.Module, file: str) -> Iterator[str]:
    if file in PRINTS:
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{file}: print"
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("write", "writelines"):
            target = ast.unparse(node.func.value)
            if "stdout" in target or "stderr" in target:
                yield f"{file}: {target}.{node.func.attr}"


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


@pytest.mark.usefixtures("no_garbage")
def test_nothing_asks_or_prints_past_the_renderer() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        found += offences(path.read_text(encoding="utf-8"), file)
    assert found == []


def test_every_exception_is_still_needed() -> None:
    for file in {*CONSENTS_ELSEWHERE, *(file for file, _ in EXACT_VALUES_ELSEWHERE)}:
        assert (PACKAGE / file).is_file()
    for file, name in EXACT_VALUES_ELSEWHERE:
        assert f".{name}" in (PACKAGE / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("label.setText(question.preview)", "preview is not shown by a renderer"),
        ("session.answer_question(1, answer)", "answer_question without a renderer"),
        ("QMessageBox(parent)", "QMessageBox"),
        ("answer = input('Allow? ')", "input"),
        ("print(task.result.answer)", "print"),
        ("sys.stdout.write(text)", "sys.stdout.write"),
        ("run = session.answer_question", "answer_question without a renderer"),
    ],
)
def test_a_surface_that_asks_by_itself_is_found(source: str, why: str) -> None:
    assert any(why in offence for offence in offences(source, "gui/new_surface.py"))


def test_a_surface_that_uses_the_renderer_is_not() -> None:
    source = "label.setText(mark_text(question.preview))\nsession.answer_question(1, answer)"
    assert offences(source, "gui/new_surface.py") == []
