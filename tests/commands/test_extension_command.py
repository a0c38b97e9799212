"""Extensions are listed, allowed after the whole question, and switched off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helix_desktop.commands.extension_command import CONSENT
from tests.commands.conftest import Helix
from tests.extensions.conftest import WriteExtension, where, write_extension  # noqa: F401

DECLARES = "from helix_desktop.extensions.extension_interfaces import *\n"
HARMLESS = DECLARES + "extension = Extension('Harmless')\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_an_extension_is_listed_allowed_and_switched_off(
    home: Path,
    helix: Helix,
    write_extension: WriteExtension,  # noqa: F811
) -> None:
    code, output, _ = helix("--home", home, "extension", "list")
    assert (code, f"Their folder is {home / 'extensions'}." in output) == (0, True)
    write_extension("harmless", HARMLESS)
    code, output, _ = helix("--home", home, "extension", "list")
    assert (code, output) == (0, "harmless  extension_harmless 1.0  off\n")
    code, output, error = helix("--home", home, "extension", "allow", "harmless")
    assert code == 1
    assert CONSENT in output
    assert "SHA-256" in output
    assert "Nothing was changed" in error
    code, output, _ = helix("--home", home, "extension", "allow", "harmless", "--yes")
    assert (code, output) == (
        0,
        "harmless 1.0 is allowed. It runs in programs that you start from now on.\n",
    )
    (listed,) = json.loads(helix("--home", home, "extension", "list", "--json")[1])
    assert listed["state"] == "allowed"
    code, output, _ = helix("--home", home, "extension", "off", "harmless")
    assert code == 0
    (listed,) = json.loads(helix("--home", home, "extension", "list", "--json")[1])
    assert listed["state"] == "off"


def test_a_name_with_hidden_characters_is_shown_with_them(
    home: Path,
    helix: Helix,
    write_extension: WriteExtension,  # noqa: F811
) -> None:
    write_extension("gnirts\u202e", HARMLESS)
    _, output, _ = helix("--home", home, "extension", "list")
    assert "\u202e" not in output
    assert "202E" in output


def test_an_unknown_name_is_a_mistake(home: Path, helix: Helix) -> None:
    code, _, error = helix("--home", home, "extension", "allow", "nothing")
    assert code == 1
    assert "There is no extension named 'nothing'" in error


def test_one_that_cannot_be_allowed_is_refused_before_the_question(
    home: Path,
    helix: Helix,
    write_extension: WriteExtension,  # noqa: F811
) -> None:
    write_extension("linked", "", target="linked_words:extension")
    package = home / "extensions" / "linked_words"
    package.mkdir()
    (package / "__init__.py").write_text(HARMLESS, "utf-8")
    (package / "more").symlink_to(home)
    code, output, error = helix("--home", home, "extension", "allow", "linked")
    assert (code, output) == (1, "")
    assert "more is a link to a folder" in error
    _, output, _ = helix("--home", home, "extension", "list")
    assert "more is a link to a folder" in output
