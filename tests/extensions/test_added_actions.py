"""An action of an extension stands in the palette, knows where the user is, and fails alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop.extensions.added_actions import list_added_actions
from helix_desktop.extensions.extension_interfaces import ActionPlace
from helix_desktop.extensions.limited_calls import ExtensionFailed
from helix_desktop.gui import search_suggestions
from helix_desktop.program_folders import ProgramFolders
from tests.extensions.conftest import PACKAGES, WriteExtension
from tests.extensions.test_allowed_imports import allow, load

CODE = """
import threading
from helix_desktop.extensions.extension_interfaces import *
def run(place):
    {body}
extension = Extension("Notes", actions=[ExtensionAction("Note this folder", run, 0.2)])
"""
PLACE = ActionPlace("Thesis", "/home/ada/thesis", "0194")


async def test_it_is_found_in_the_palette_and_told_where_the_user_is(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    body = "return f'{place.workspace} {place.folder} {place.conversation}' + chr(27)"
    write_extension("notes", CODE.format(body=body))
    chosen: list[object] = []
    assert search_suggestions.suggest_actions_of_extensions(chosen.append) == []
    extensions = load(allow(where, "notes"))
    (item,) = search_suggestions.suggest_actions_of_extensions(chosen.append)
    assert (item.text, item.note) == ("Note this folder", "Notes")
    item.act()
    (action,) = list_added_actions()
    assert chosen == [action]
    assert await action.run_at_place(PLACE) == "Thesis /home/ada/thesis 0194"
    extensions.withdraw_everything()
    assert list_added_actions() == []


async def test_the_action_of_the_example_package_counts_the_words_of_the_folder_it_is_told(
    where: ProgramFolders, write_extension: WriteExtension, tmp_path: Path
) -> None:
    code = (PACKAGES / "word_tools" / "word_tools.py").read_text("utf-8")
    write_extension("words", code)
    load(allow(where, "words"))
    (action,) = list_added_actions()
    place = replace(PLACE, folder=str(tmp_path))
    assert "There is no README.md" in await action.run_at_place(place)
    (tmp_path / "README.md").write_text("to be or not", "utf-8")
    assert "4 words" in await action.run_at_place(place)


FAILURES = {
    "raise SystemExit": "raised SystemExit",
    "return 7": "int instead of a text",
    "threading.Event().wait()": "did not return",
}


@pytest.mark.parametrize("body", FAILURES)
async def test_one_that_fails_or_hangs_is_named_and_switched_off(
    body: str, where: ProgramFolders, write_extension: WriteExtension
) -> None:
    write_extension("notes", CODE.format(body=body))
    extensions = load(allow(where, "notes"))
    (action,) = list_added_actions()
    for _ in range(3):
        with pytest.raises(ExtensionFailed, match=FAILURES[body]):
            await action.run_at_place(PLACE)
        if "wait" in body:
            break
    assert list_added_actions() == []
    assert "The extension notes was switched off" in extensions.complaints[0]


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("[ExtensionAction('a\\nb', run)]", "one line"),
        ("[ExtensionAction('a', run, -1)]", "limit_seconds of a"),
        ("[ExtensionAction('a', run)] * 2", "declares the action a twice"),
        ("[run]", "is no ExtensionAction"),
    ],
)
def test_a_wrong_declaration_is_off(
    declared: str, said: str, where: ProgramFolders, write_extension: WriteExtension
) -> None:
    code = CODE.format(body="return ''")
    code += f"extension = Extension('Notes', actions={declared})"
    write_extension("notes", code)
    loaded = load(allow(where, "notes"))
    assert said in loaded.complaints[0]
    assert list_added_actions() == []
