"""The pieces of the command line: numbers, mistakes in one sentence, and the figures of a
model that can be overridden.
"""

from __future__ import annotations

import argparse

import pytest

from helix_desktop.command_nouns import NOUNS
from helix_desktop.commands import build_command_line_parser
from helix_desktop.commands.model_command import FIGURES
from helix_desktop.commands.option_parsing import parse_number, parse_ordinal, parse_port


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("1,000", 1_000), (str(10**18 - 1), 10**18 - 1)]
)
def test_numbers_are_read_with_commas(text: str, number: int) -> None:
    assert parse_number(text) == number


@pytest.mark.parametrize("text", ["-1", "many", "1.5", str(10**18), ""])
def test_what_is_no_number_is_said(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number of 0 or more"):
        parse_number(text)


def test_an_ordinal_begins_at_one_and_a_port_ends() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="number from 1"):
        parse_ordinal("0")
    with pytest.raises(argparse.ArgumentTypeError, match="port number"):
        parse_port("65536")


def test_every_figure_of_a_model_has_an_option() -> None:
    given = ["model", "set", "demo"]
    for figure in FIGURES:
        given += [f"--{figure.replace('_', '-')}", "5"]
    arguments = build_command_line_parser(given).parse_args(given)
    assert [getattr(arguments, figure) for figure in FIGURES] == [5] * len(FIGURES)


@pytest.mark.parametrize("noun", NOUNS)
def test_each_noun_is_built_alone_as_among_all(noun: str) -> None:
    alone = build_command_line_parser([noun]).format_help()
    assert noun in alone


def test_a_mistake_is_one_sentence_with_a_way_to_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_command_line_parser(["model"]).parse_args(["model", "set", "demo", "--window", "x"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said == "Argument --window: 'x' is not a number. See helix-desktop model set --help.\n"


def test_the_agents_help_is_no_option_of_wrap() -> None:
    arguments = build_command_line_parser(["wrap"]).parse_args(["wrap", "claude"])
    assert "--dry-run" in arguments.own_options
    assert "-w" in arguments.own_options
    assert "--help" not in arguments.own_options
