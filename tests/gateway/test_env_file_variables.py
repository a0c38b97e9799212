"""Variables are read from an agent's `.env` file as its library reads them, and written there."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.gateway.env_file_variables import (
    read_env_file_variable,
    read_env_file_variables,
    set_env_file_variables,
)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("KEY=plain", "plain"),
        ("export KEY = spaced words  # a comment", "spaced words"),
        ("  KEY: colon", "colon"),
        ('KEY="in # quotes"  # a comment', "in # quotes"),
        ("KEY='in \"single\" ones'", 'in "single" ones'),
        ('KEY=""', ""),
        ("KEY=", ""),
        ("KEY=first\nKEY=second", "second"),
        ("OTHER=x\n#KEY=commented", ""),
        ('KEY="two\nlines"', "two\nlines"),
    ],
)
def test_a_variable_is_what_dotenv_says(tmp_path: Path, line: str, value: str) -> None:
    file = tmp_path / ".env"
    file.write_text(line)
    assert read_env_file_variable(file, "KEY") == value


def test_all_variables_of_a_file_and_none_of_a_missing_one(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    assert read_env_file_variables(file) == {}
    file.write_text("A.b-C=1\nnonsense\nD=2\n")
    assert read_env_file_variables(file) == {"A.b-C": "1", "D": "2"}


def test_what_is_written_replaces_the_same_name_alone_and_is_read_again(tmp_path: Path) -> None:
    text = "# mine\nKEY=old\nexport URL=old\nKEYS=kept"
    written = set_env_file_variables(text, {"URL": "https://x", "KEY": "new"})
    assert written == "# mine\nKEYS=kept\nURL=https://x\nKEY=new\n"
    file = tmp_path / ".env"
    file.write_text(written)
    assert read_env_file_variables(file) == {"KEYS": "kept", "URL": "https://x", "KEY": "new"}
    assert set_env_file_variables("", {"A": "1"}) == "A=1\n"


def test_a_line_with_blanks_is_overruled_by_the_one_that_is_written(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text(set_env_file_variables("KEY = old", {"KEY": "new"}))
    assert read_env_file_variable(file, "KEY") == "new"
