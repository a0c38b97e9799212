"""The help pages: every link leads somewhere, and every command they show is one."""

from __future__ import annotations

import argparse
import functools
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

from helix_desktop import commands, resources

PAGES = sorted((resources.resources_folder() / "help").glob("*.md"))
TRANSLATED = sorted((resources.resources_folder() / "help").glob("*/*.md"))
README = Path(__file__).parent.parent / "README.md"
SECURITY = Path(__file__).parent.parent / "SECURITY.md"
MANUAL = Path(__file__).parent.parent / "packaging/linux/helix-desktop.1"

# What other programs show, and parts of pages.
NOT_OF_THE_WINDOW = {
    "Please fix the fee",  # A message of the user.
    "Report a vulnerability",
    "Invalid auth method selected",
    "Add Custom Agent",
    "Add",
    "Custom",
    "How it was tested",
    "Connected agents",
    "Changes from a copy",
    "Imported conversations",
    "Shared",  # The beginning of a line.
    "I",
    "my",
}
PAGES_OF_WINDOWS = ("Chat", "Changes", "Cache", "Timeline", "Conversations")
SETTINGS_PLACES = re.compile(r"(?<!\w)Settings > ([A-Z][^.,;>)*|]*)(?: > ([A-Z][^.,;>)*|(]*))?")


@functools.cache
def _labels_of_the_window() -> list[re.Pattern[str]]:
    """Every text that the window shows, with any words where it leaves room for them."""
    texts = resources.read_json_resource("translations/de.json")
    labels = []
    for text in texts:
        if "{" in text and len(re.findall(r"[^\W\d]", re.sub(r"{\w+}", "", text))) < 4:
            continue  # Such as "{n} of {total}", which fits too much.
        plain = re.escape(text.replace("&", "").rstrip("…"))
        labels.append(re.compile(re.sub(r"\\{\w+\\}", ".+", plain)))
    return labels


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_a_translated_page_has_what_the_english_one_has(page: Path) -> None:
    """The same headings, lists, tables, pictures and links, and every command, setting
    and file that it names.
    """

    def built_of(text: str) -> list[object]:
        blocks = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
        rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        lines = [re.match(r"#+ |- |\d\. |\||$", line) for line in rest.splitlines()]
        shapes = [line[0] if line else "text" for line in lines]
        return [
            blocks,
            shapes,
            Counter(re.findall(r"\]\((?:\.\./)?([^)]+)\)", rest)),
            {*re.findall("`[^`]+`", rest)},
        ]

    english = page.parent.parent / page.name
    assert built_of(page.read_text(encoding="utf-8")) == built_of(
        english.read_text(encoding="utf-8")
    )
    folder = english.parent
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [
        one for one in targets if not any((at / one).is_file() for at in (page.parent, folder))
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_to_a_page_or_picture(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).is_file()] == []


def test_every_page_can_be_reached_from_the_first() -> None:
    linked = set(
        re.findall(
            r"\]\(([^)#]+\.md)\)",
            (resources.resources_folder() / "help/index.md").read_text(encoding="utf-8"),
        )
    )
    assert linked | {"index.md"} == {page.name for page in PAGES}


@pytest.mark.parametrize("page", [*PAGES, README, SECURITY], ids=lambda page: page.stem)
def test_every_label_and_place_that_is_named_is_in_the_window(page: Path) -> None:
    """Labels in “…”, and Settings > PAGE > SECTION."""
    if page.stem in ("figures", "fleet", "savings"):
        return  # These quote rows of their own tables.
    text = page.read_text(encoding="utf-8")
    labels = _labels_of_the_window()
    for label in set(re.findall("“([^”]+)”", text)) - NOT_OF_THE_WINDOW:
        assert any(shown.fullmatch(label.rstrip("…")) for shown in labels), label
    pages = resources.read_json_resource("shown_names.json")["page of the settings"].values()
    for title, section in SETTINGS_PLACES.findall(text):
        place = next((page for page in pages if title.startswith(page)), "")
        assert place, title
        assert not section or any(shown.fullmatch(section) for shown in labels), section


@pytest.mark.parametrize(
    ("language", "pages", "menu_named"),
    [
        ("en", [*PAGES, README, SECURITY], "the {menu} menu"),
        ("de", [page for page in TRANSLATED if page.parent.name == "de"], "Menü „{menu}“"),
        ("zh_CN", [page for page in TRANSLATED if page.parent.name == "zh"], "“{menu}”菜单"),
    ],
)
def test_no_page_sends_the_reader_to_a_menu_of_the_menu_bar(
    language: str, pages: list[Path], menu_named: str
) -> None:
    """Only a Mac shows a menu bar. The command palette has every command everywhere."""
    menus = list(resources.read_json_resource("window_actions.json"))
    if language != "en":
        words = resources.read_json_resource(f"translations/{language}.json")
        menus = [words[menu] for menu in menus]
    named = []
    for page in pages:
        text = page.read_text(encoding="utf-8").replace("*", "").lower()
        for menu in menus:
            if menu_named.format(menu=menu).lower() in text:
                named.append((page.name, menu))
    assert named == []


@pytest.mark.parametrize("page", [*PAGES, README], ids=lambda page: page.stem)
def test_every_page_of_the_settings_that_is_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace("*", "")
    pages = resources.read_json_resource("shown_names.json")["page of the settings"].values()
    named = re.findall(r"(\w+) page (?:of|in) the settings", text)
    assert [word for word in named if not any(page.endswith(word) for page in pages)] == []


@pytest.mark.parametrize(
    ("folder", "language", "pattern"),
    [
        ("de", "de", "Seite „([^“]+)“"),
        ("zh", "zh_CN", "“([^”]+)”页"),
    ],
)
def test_every_page_that_a_translated_help_names_exists(
    folder: str, language: str, pattern: str
) -> None:
    words = resources.read_json_resource(f"translations/{language}.json")
    names = resources.read_json_resource("shown_names.json")["page of the settings"].values()
    titles = {words[name] for name in [*names, *PAGES_OF_WINDOWS]}
    for page in TRANSLATED:
        if page.parent.name == folder:
            named = set(re.findall(pattern, page.read_text(encoding="utf-8")))
            assert named <= titles, page.name


def test_the_programs_own_sentences_name_pages_that_the_settings_have() -> None:
    pages = resources.read_json_resource("shown_names.json")["page of the settings"].values()
    named = []
    for file in (Path(__file__).parent.parent / "helix_desktop").rglob("*.py"):
        named += re.findall("Settings > ([A-Z][^.,;>]*)", file.read_text(encoding="utf-8"))
    assert named
    assert [name for name in named if not name.strip().startswith(tuple(pages))] == []


@functools.cache
def _whole_command_line() -> argparse.ArgumentParser:
    """The parser that knows every command, built once: it takes .1 s."""
    return commands.build_command_line_parser()


@pytest.mark.parametrize("page", [*PAGES, README], ids=lambda page: page.stem)
def test_every_command_shown_is_one(page: Path) -> None:
    shown = re.findall(
        r"^(?:[^`\n]*\| )?helix-desktop (.+?)(?:  +#.*)?$",
        page.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert shown or page.stem not in {"command-line", "README"}
    for line in shown:
        arguments = _whole_command_line().parse_args(shlex.split(line))
        assert callable(arguments.run), line


def test_the_folder_of_the_printed_service_is_not_inside_the_programs_own() -> None:
    """Tools refuse the program's folders: with the work inside HELIX_HOME, each call of
    each task failed.
    """
    page = (resources.resources_folder() / "help/workers.md").read_text(encoding="utf-8")
    home, base = (
        Path(re.findall(f"^{name}=(.+)$", page, re.MULTILINE)[0])
        for name in ("HELIX_HOME", "WorkingDirectory")
    )
    (work,) = set(re.findall(r"workspace join --folder (\w+) --name", page))
    assert not (base / work).is_relative_to(home)


def test_the_manual_page_names_every_command_and_its_verbs() -> None:
    said = MANUAL.read_text(encoding="utf-8").replace("\\", "").partition(".SH COMMANDS")[2]
    named = [word for noun, verbs in _commands().items() for word in (noun, *verbs)]
    assert [word for word in named if not re.search(rf"\b{word}\b", said)] == []
    assert re.search(r"\b130\b", said)


def test_every_command_but_the_server_can_answer_in_json() -> None:
    nouns = _below(commands.build_command_line_parser())
    leaves = {
        f"{noun} {verb}": below for noun in nouns for verb, below in _below(nouns[noun]).items()
    }
    leaves |= {
        noun: parser
        for noun, parser in nouns.items()
        if noun not in ("mcp", "acp", "gateway", "host") and not _below(parser)
    }
    assert [name for name, parser in leaves.items() if "--json" not in parser.format_help()] == []


def _commands() -> dict[str, list[str]]:
    return {
        noun: list(_below(parser))
        for noun, parser in _below(commands.build_command_line_parser()).items()
    }


def _below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
