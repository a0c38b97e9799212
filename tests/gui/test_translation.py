from __future__ import annotations

import ast
import json
import string
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QLocale, QTranslator
from PySide6.QtWidgets import QApplication

from helix_desktop import program_settings
from helix_desktop.engine import context_policy
from helix_desktop.engine.facts import FoldKind
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui import translation
from helix_desktop.gui.cache.content_shapes import ContentShape
from helix_desktop.gui.transcript.tool_call_lines import CallStatus
from helix_desktop.gui.translation import format_count, tr, translation_catalogue_path
from helix_desktop.gui.window_actions import read_declared_actions
from helix_desktop.program_settings import LANGUAGES
from helix_desktop.tools.home_access import OPENINGS

PACKAGE = Path(translation.__file__).parents[1]
SPEAKING = [file for part in ("gui", "desktop") for file in (PACKAGE / part).rglob("*.py")]
CATALOGUES = [name for name in LANGUAGES if name != "en"]


def written() -> Iterator[tuple[str, str]]:
    """Every text the code hands to `tr` or `format_count`, and where."""
    for file in SPEAKING:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("tr", "format_count")
            ):
                wanted = node.args[:1] if node.func.id == "tr" else node.args[1:3]
                for argument in wanted:
                    yield from ((text, f"{file.name}:{node.lineno}") for text in texts_of(argument))


def texts_of(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from texts_of(node.body)
        yield from texts_of(node.orelse)


def declared() -> Iterator[tuple[str, str]]:
    """What is declared elsewhere and shown on a page of the settings."""
    for setting in program_settings.ALL:
        yield from (
            (text, setting.key)
            for text in (setting.title, setting.sentence, setting.section, setting.unit)
        )
    for threshold in context_policy.declared_thresholds().values():
        threshold_texts = (threshold.title, threshold.sentence, threshold.group, threshold.unit)
        yield from ((text, threshold.name) for text in threshold_texts)
    yield from ((sentence, f"preset {name}") for name, sentence in context_policy.PRESETS.items())
    yield from (
        (text, f"opening {one.name}")
        for one in OPENINGS
        for text in (one.title, one.what_it_gives_away)
    )
    for action in read_declared_actions():
        action_texts = (action.title, action.group, action.search_words)
        yield from ((text, f"action {action.id}") for text in action_texts)
    for table, names in translation.read_shown_names().items():
        yield from ((name, f"{table} {value}") for value, name in names.items())
    for mode in (
        "Read only",
        "Plan: change nothing until I approve a plan",
        "Ask before changes and commands",
        "Allow edits, ask before commands",
        "Allow everything for an hour",
        "Allow everything",
    ):
        yield mode, "modes"


def names_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.fixture(scope="module")
def everything() -> dict[str, str]:
    """Every text, and where it stands."""
    return dict([*declared(), *written()])


@pytest.mark.parametrize("language", CATALOGUES)
def test_a_catalogue_is_complete_and_holds_nothing_else(
    language: str, everything: dict[str, str]
) -> None:
    known = json.loads(translation_catalogue_path(language).read_text("utf-8"))
    assert {text: where for text, where in everything.items() if text and not known.get(text)} == {}
    assert [text for text in known if text not in everything] == []


@pytest.mark.parametrize("language", CATALOGUES)
def test_what_is_put_in_stays(language: str) -> None:
    known = json.loads(translation_catalogue_path(language).read_text("utf-8"))
    assert {text: other for text, other in known.items() if names_in(text) != names_in(other)} == {}


@pytest.mark.parametrize(
    ("table", "members"),
    [
        ("kind of context", ContextKind), ("kind of fold", FoldKind), ("state of a conversation", ConversationActivity),
        ("content shape", ContentShape), ("preset", context_policy.PRESETS), ("state of a call", set(CallStatus) - {CallStatus.REFUSED}),
    ],
)  # fmt: skip
def test_every_member_has_a_name(table: str, members: Iterable[str]) -> None:
    assert set(translation.read_shown_names()[table]) == {str(member) for member in members}


def test_texts_are_translated_and_filled() -> None:
    translation.set_translations(
        {"Hello {name}": "你好，{name}", "{n} message": "{n} 条", "{n} messages": "{n} 条"}
    )
    try:
        assert tr("Hello {name}", name="Ada") == "你好，Ada"
        assert tr("Not known") == "Not known"
        assert format_count(1, "{n} message", "{n} messages") == "1 条"
        assert format_count(1_200, "{n} message", "{n} messages") == "1,200 条"
    finally:
        translation.set_translations({})
    assert tr("Hello {name}", name="Ada") == "Hello Ada"


def test_a_brace_in_what_is_put_in_is_only_text(application: QApplication) -> None:
    assert tr("Contacting {service}…", service="{0} {name}") == "Contacting {0} {name}…"


def test_a_chosen_language_is_put_into_force(application: QApplication) -> None:
    assert translation.choose_window_language("zh_CN") == "zh_CN"
    assert translation.choose_window_language("xx") in LANGUAGES
    translation.install_language(application, "zh_CN")
    translators = application.findChildren(QTranslator)
    try:
        assert tr("Settings") == "设置"
        assert QCoreApplication.translate("QPlatformTheme", "Cancel") == "取消"
        assert {type(each) for each in translators} == {QTranslator}, (
            "Python must not be asked under the locks of Qt"
        )
    finally:
        translation.set_translations({})
        for translator in translators:
            application.removeTranslator(translator)
        QLocale.setDefault(QLocale("en_GB"))


@pytest.mark.parametrize("count", [0, 1, 999, 1_000, 1_499, 12_345_678])
def test_a_count_is_written_in_one_way_whoever_puts_it_in(count: int) -> None:
    """1499 stood beside 1,499: one of them had not been formatted."""
    by_tr = tr("{n} conversations", n=count)
    assert by_tr == format_count(count, "{n} conversations", "{n} conversations")
    assert by_tr == f"{count:,} conversations"
    assert tr("Add line {n} to next message", n=str(count)) == f"Add line {count} to next message"
