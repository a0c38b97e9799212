"""What an extension may declare of each kind, and the sentence that says what it may not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.command_nouns import NOUNS
from helix_desktop.documents import document_kinds
from helix_desktop.documents.document_kinds import DocumentKind
from helix_desktop.errors import InvalidInput
from helix_desktop.extensions import (
    added_actions,
    added_fold_strategies,
    added_search_sources,
    offered_kinds,
)
from helix_desktop.extensions.extension_interfaces import (
    Extension,
    ExtensionAction,
    ExtensionCheck,
    ExtensionCommand,
    ExtensionFoldStrategy,
    ExtensionHistoryFormat,
    ExtensionSearchSource,
    ExtensionTool,
)
from helix_desktop.extensions.installed_extensions import AllowedExtensions, InstalledExtension
from helix_desktop.extensions.limited_calls import ExtensionFailed
from helix_desktop.extensions.offered_kinds import OFFERED_KINDS, OfferedKind
from helix_desktop.extensions.running_extension import RunningExtension
from helix_desktop.histories import added_formats
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.providers import provider_catalog
from helix_desktop.providers.known_provider import KnownProvider

INSTALLED = InstalledExtension("words", "word-tools", "1", "word_tools:extension", (), "")
FOLDER = Path("/nowhere/extensions")
KINDS = {kind.field: kind for kind in OFFERED_KINDS}


class Named(str):
    """A text that could give another answer at each question."""

    __slots__ = ()


async def run(_: object) -> str:
    return ""


def run_at_once(_: object) -> str:
    return ""


TOOL = ExtensionTool("count_words", "Counts words.", {}, run)
FORMAT = ExtensionHistoryFormat("talker", "Talker", lambda _, __: True, lambda _: ())
KIND = DocumentKind("rtf", "Rich text", (".rtf",), "page", "word_tools.rtf:read", "text/rtf")
PROVIDER = KnownProvider("acme", "Acme", "openai-chat", "https://acme.example/v1")
COMMAND = ExtensionCommand("words", "Counts words.", lambda _: None, lambda _: 0)
ACTION = ExtensionAction("Count words", lambda _: "")
SEARCH = ExtensionSearchSource("Wiki", lambda _: ())
STRATEGY = ExtensionFoldStrategy("short", choose=lambda _: None)
CHECK = ExtensionCheck("words", lambda: ())
DECLARED: dict[str, Any] = {
    "tools": TOOL,
    "history_formats": FORMAT,
    "document_kinds": KIND,
    "providers": PROVIDER,
    "commands": COMMAND,
    "actions": ACTION,
    "search_sources": SEARCH,
    "fold_strategies": STRATEGY,
    "doctor_checks": CHECK,
}


def refusal(field: str, **values: object) -> str:
    with pytest.raises(ExtensionFailed) as refused:
        KINDS[field].check(INSTALLED, replace(DECLARED[field], **values))
    return str(refused.value)


def allow(field: str, **values: object) -> None:
    KINDS[field].check(INSTALLED, replace(DECLARED[field], **values))


@pytest.mark.parametrize("kind", OFFERED_KINDS, ids=lambda kind: kind.field)
def test_what_is_declared_as_the_help_says_is_allowed_and_named(kind: OfferedKind) -> None:
    declared = DECLARED[kind.field]
    kind.check(INSTALLED, declared)
    assert isinstance(declared, kind.declared_type)
    name = kind.name_of(declared)
    assert name in (getattr(declared, field, "") for field in ("name", "kind", "noun", "title"))


def test_authors_see_the_details_of_a_format_a_kind_of_document_and_a_provider() -> None:
    details = {kind.field: kind.details(DECLARED[kind.field]) for kind in OFFERED_KINDS}
    assert {field: text for field, text in details.items() if text} == {
        "history_formats": "Talker, .jsonl, .json",
        "document_kinds": "Rich text, .rtf",
        "providers": "https://acme.example/v1",
    }


NAMED = [
    ("tools", "name", "digits and underscores"),
    ("history_formats", "kind", "digits, hyphens and underscores"),
    ("document_kinds", "name", "digits, hyphens and underscores"),
    ("commands", "noun", "digits, hyphens and underscores"),
    ("fold_strategies", "name", "digits, hyphens and underscores"),
]


@pytest.mark.parametrize(("field", "name", "allowed"), NAMED)
def test_a_name_has_plain_characters_and_forty_of_them(field: str, name: str, allowed: str) -> None:
    allow(field, **{name: "a_" + "b" * 38})
    for wrong in ("a" * 41, "", "a b", "wörter", "a/b"):
        assert f"must have only letters, {allowed}" in refusal(field, **{name: wrong})
    long = refusal(field, **{name: "c" * 41})
    assert repr("c" * 40) in long
    assert "c" * 41 not in long
    assert refusal(field, **{name: Named("x")}).endswith("is no text, but Named")
    assert refusal(field, **{name: None}).endswith("is no text, but NoneType")


def test_only_names_that_no_model_writes_may_have_hyphens() -> None:
    for field, name, _ in NAMED[1:]:
        allow(field, **{name: "a-b"})
    refusal("tools", name="a-b")


TITLED = [
    ("history_formats", "program"),
    ("document_kinds", "title"),
    ("providers", "title"),
    ("commands", "sentence"),
    ("actions", "title"),
    ("search_sources", "title"),
    ("doctor_checks", "name"),
]


@pytest.mark.parametrize(("field", "title"), TITLED)
def test_a_title_is_one_line(field: str, title: str) -> None:
    allow(field, **{title: "ä " * 40})
    for wrong in ("x" * 81, " ", "", "two\nlines", "\x1b[2J"):
        assert "must be one line of at most 80 characters" in refusal(field, **{title: wrong})
    assert "is no text, but int" in refusal(field, **{title: 1})


@pytest.mark.parametrize(
    ("field", "longest"), [("tools", 3_600), ("actions", 3_600), ("fold_strategies", 60)]
)
def test_a_call_takes_no_longer_than_anybody_waits(field: str, longest: int) -> None:
    for seconds in (0.1, 1, longest):
        allow(field, limit_seconds=seconds)
    for wrong in (0, -1, longest + 1, float("nan"), True, "5"):
        assert "must be a number of at most" in refusal(field, limit_seconds=wrong), wrong
    assert f"at most {longest}" in refusal(field, limit_seconds=longest + 1)


def test_a_tool_is_short_as_each_request_has_it() -> None:
    allow("tools", description="x" * 7_998)
    assert "have more than 8,000 characters" in refusal("tools", description="x" * 7_999)
    refusal("tools", description="x" * 7_000, schema={"a": "y" * 1_000})
    assert "is no text" in refusal("tools", description=b"")


def test_a_tool_that_would_block_is_refused() -> None:
    assert "must begin with `async def`" in refusal("tools", run=run_at_once)


@pytest.mark.parametrize("field", ["history_formats", "document_kinds"])
def test_endings_are_small_and_begin_with_a_period(field: str) -> None:
    name = KINDS[field].name_of(DECLARED[field])
    allow(field, endings=["." + "x" * 39])
    for wrong in ("txt", ".TXT", ".a/b", ".\n", "." + "x" * 40):
        said = refusal(field, endings=(wrong,))
        assert said.endswith(f"of {name} must be in lowercase and begin with a period")
    assert "is no text" in refusal(field, endings=(1,))


def test_endings_and_folders_are_lists_of_texts() -> None:
    assert "must be a list or a tuple of texts" in refusal("history_formats", endings=".txt")
    assert "must be a list or a tuple of texts" in refusal("history_formats", folders="~/talker")
    assert "must be a list or a tuple of texts" in refusal("document_kinds", endings={".rtf"})


def test_a_folder_of_histories_has_a_fixed_place() -> None:
    allow("history_formats", folders=["~/.talker", "/var/talker"])
    for wrong in ("talker", "../x", "~x", "~/a\nb", "/a\0b"):
        said = refusal("history_formats", folders=[wrong])
        assert said == 'a folder of talker must begin with "~/" or "/"'


def test_a_documents_reader_is_of_its_own_package() -> None:
    allow("document_kinds", reader="word_tools:read")
    for wrong in ("os:system", "word_tools.rtf", "helix_desktop.cli:main", "word_toolsx:read"):
        said = refusal("document_kinds", reader=wrong)
        assert said.endswith('of its own package, such as "word_tools:read"')


def test_a_kind_of_document_has_a_known_unit_and_a_plain_media_type() -> None:
    said = refusal("document_kinds", unit="verse" * 10)
    assert said.startswith("the unit of rtf must be one of page")
    assert said.endswith(f"not {('verse' * 8)!r}")
    for wrong in ("text/ä", "text/x\n"):
        assert "must be plain ASCII" in refusal("document_kinds", media_type=wrong)
    for field in ("unit", "reader", "media_type"):
        assert "is no text, but Named" in refusal("document_kinds", **{field: Named("page")})


def test_a_provider_has_plain_texts_and_values_that_are_known() -> None:
    assert "must have only lowercase letters" in refusal("providers", name="Acme Inc")
    for field in ("name", "kind", "base_url", "key_variable", "key_header"):
        assert "is no text, but Named" in refusal("providers", **{field: Named("x")})
    allow("providers", models={"m": {"window": 1_000}})
    said = refusal("providers", models={"m": {"windows": 1_000}})
    assert said.startswith("the model m of acme has a value named 'windows', and these are known: ")
    assert "window" in said.partition("known: ")[2]
    assert "the name of a model" in refusal("providers", models={"two\nlines": {}})


def test_a_provider_lists_no_more_models_than_anybody_reads() -> None:
    letters = len('{"m": {"window": ""}}')
    allow("providers", models={"m": {"window": "9" * (100_000 - letters)}})
    said = refusal("providers", models={"m": {"window": "9" * (100_001 - letters)}})
    assert said == "the models of acme have more than 100,000 characters"


def test_a_fold_strategy_has_a_function_and_no_coroutine() -> None:
    allow("fold_strategies", choose=None, write=lambda _: "")
    assert refusal("fold_strategies", choose=None) == "short has neither `choose` nor `write`"
    for field in ("choose", "write"):
        assert "must begin with `def`" in refusal("fold_strategies", **{field: run})


@pytest.mark.parametrize("noun", ["-help", *sorted(NOUNS)[:3]])
def test_the_programs_own_commands_are_not_replaced(noun: str) -> None:
    assert refusal("commands", noun=noun) == f"the command {noun} belongs to Helix Desktop"


def test_a_command_is_reserved_until_it_is_withdrawn() -> None:
    offer: Callable[..., Callable[[], None]] | None = KINDS["commands"].offer
    assert offer is not None
    withdraw = offer(None, COMMAND)
    with pytest.raises(ExtensionFailed, match="there is another command named words"):
        offer(None, COMMAND)
    withdraw()
    offer(None, COMMAND)()


def test_what_is_offered_is_there_until_it_is_withdrawn(where: ProgramFolders) -> None:
    extension = RunningExtension(INSTALLED, Extension("Words"), AllowedExtensions(where), [])
    lists: dict[str, Callable[[], list[str]]] = {
        "history_formats": lambda: [added.kind for added in added_formats.list_added_formats()],
        "document_kinds": lambda: [k.name for k in document_kinds.list_document_kinds()],
        "providers": lambda: list(provider_catalog.PRESETS),
        "actions": lambda: [added.title for added in added_actions.list_added_actions()],
        "search_sources": lambda: [
            s.title for s in added_search_sources.list_added_search_sources()
        ],
        "fold_strategies": lambda: [
            added.declared.name for added in added_fold_strategies.list_added_fold_strategies()
        ],
    }
    for field, list_names in lists.items():
        declared = DECLARED[field]
        if field == "document_kinds":
            declared = replace(KIND, reader="textwrap:read")
        name = KINDS[field].name_of(declared)
        before = list_names()
        offer = KINDS[field].offer
        assert offer is not None
        withdraw = offer(extension, declared)
        assert sorted(list_names()) == sorted([*before, name]), field
        withdraw()
        assert list_names() == before, field


# --- Where the reader of a document is found


def test_the_reader_is_found_beside_what_is_installed_with_it() -> None:
    package = offered_kinds._folders_of_module(FOLDER, "helix_desktop")
    module = offered_kinds._folders_of_module(FOLDER, "textwrap")
    assert package[0] == module[0] == str(FOLDER)
    root = str(Path(offered_kinds.__file__).parents[2])
    assert package[1:] == (root,)
    assert Path(module[1], "textwrap.py").is_file()
    # A package in that folder is named once.
    assert offered_kinds._folders_of_module(Path(root), "helix_desktop") == (root,)
    with pytest.raises(InvalidInput, match="not found"):
        offered_kinds._folders_of_module(FOLDER, "no_such_module")
