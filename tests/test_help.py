"""The help pages: every link leads somewhere, and every command they show is one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from helix_desktop import commands, resources

PAGES = sorted((resources.folder() / "help").glob("*.md"))
README = Path(__file__).parent.parent / "README.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_to_a_page_or_picture(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).is_file()] == []


def test_every_page_can_be_reached_from_the_first() -> None:
    linked = set(re.findall(r"\]\(([^)#]+\.md)\)", (resources.folder() / "help/index.md").read_text(encoding="utf-8")))
    assert linked | {"index.md"} == {page.name for page in PAGES}


@pytest.mark.parametrize("page", [*PAGES, README], ids=lambda page: page.stem)
def test_every_command_shown_is_one(page: Path) -> None:
    shown = re.findall(
        r"^    (?:.*\| )?helix-desktop (.+?)(?:  +#.*)?$", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert shown or page.stem not in {"command-line", "README"}
    for line in shown:
        arguments = commands.parser().parse_args(shlex.split(line))
        assert callable(arguments.run), line
