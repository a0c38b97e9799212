"""`helix-desktop NOUN` of an extension: found, run, and never instead of one of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.extensions.extension_loading import forget_loaded_extensions
from helix_desktop.extensions.installed_extensions import AllowedExtensions
from helix_desktop.program_folders import ProgramFolders
from tests.commands.conftest import Helix, helix  # noqa: F401
from tests.extensions.conftest import PACKAGES, Install, WriteExtension

COMMAND = """
import sys
from helix_desktop.extensions.extension_interfaces import Extension, ExtensionCommand

def add_arguments(parser):
    {arguments}

def run(arguments):
    {body}

command = ExtensionCommand({noun!r}, "act at 100 %", add_arguments, run)
extension = Extension("Command", commands=[command])
"""


def allow_all(where: ProgramFolders) -> None:
    forget_loaded_extensions()  # As in a program that is started now.
    decisions = AllowedExtensions(where)
    for known in decisions.list_extensions():
        decisions.allow_extension(known.installed)


def test_a_command_is_there_once_it_is_allowed(
    where: ProgramFolders,
    install: Install,
    tmp_path: Path,
    helix: Helix,  # noqa: F811
) -> None:
    install(PACKAGES / "word_tools")
    file = tmp_path / "text"
    file.write_text("to be or not", "utf-8")
    assert helix("--home", where.data, "count-words", file)[0] == 2
    allow_all(where)
    assert helix("--home", where.data, "count-words", file) == (
        0,
        "4 words\n1 to\n1 be\n1 or\n",
        "",
    )
    code, out, _ = helix("--home", where.data, "--help")
    assert code == 0
    assert "count the words of a file" in out
    code, _, err = helix("--home", where.data, "count-words")
    assert code == 2
    assert "required: file" in err


FAILS = {
    "raise RuntimeError('broken')": (1, "The command act of the extension acts failed with RuntimeError: broken"),
    "sys.exit(3)": (1, "failed with SystemExit: 3"),
    "return 7": (7, ""),
    "return 'text'": (0, ""),
}  # fmt: skip


@pytest.mark.parametrize("body", FAILS)
def test_a_command_that_fails_is_a_sentence(
    body: str,
    where: ProgramFolders,
    write_extension: WriteExtension,
    helix: Helix,  # noqa: F811
) -> None:
    write_extension("acts", COMMAND.format(noun="act", arguments="pass", body=body))
    allow_all(where)
    code, _, err = helix("--home", where.data, "act")
    expected_code, sentence = FAILS[body]
    assert code == expected_code
    assert sentence in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("noun", "arguments", "sentence"),
    [
        ("doctor", "pass", "the command doctor belongs to Helix Desktop"),
        ("a b", "pass", "must have only letters"),
        ("act", "raise KeyError", "declaring the arguments of its command act raised KeyError"),
        ("act", "parser.add_argument('--places')", "has an argument named places"),
    ],
)
def test_a_command_that_cannot_be_offered_is_named_and_the_others_work(
    noun: str,
    arguments: str,
    sentence: str,
    where: ProgramFolders,
    write_extension: WriteExtension,
    helix: Helix,  # noqa: F811
) -> None:
    write_extension("acts", COMMAND.format(noun=noun, arguments=arguments, body="return 3"))
    write_extension("works", COMMAND.format(noun="work", arguments="pass", body="return 5"))
    allow_all(where)
    code, _, err = helix("--home", where.data, "work")
    assert code == 5
    assert "The extension acts was switched off: " in err
    assert sentence in err
    forget_loaded_extensions()
    assert helix("--home", where.data, "work") == (5, "", "")


def test_a_command_of_ours_looks_at_no_extension(
    where: ProgramFolders,
    write_extension: WriteExtension,
    helix: Helix,  # noqa: F811
) -> None:
    write_extension("acts", "import pathlib\npathlib.Path(__file__).with_name('ran').touch()")
    allow_all(where)
    assert helix("--home", where.data, "extension", "list")[0] == 0
    assert not (where.extensions_folder / "ran").exists()
