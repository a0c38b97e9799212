from __future__ import annotations

import pytest

from helix_desktop.tools.command_lines.command_analysis import (
    KnownPrograms,
    find_started_programs,
    is_safe_prefix,
    suggest_rule_commands,
)


@pytest.mark.parametrize(
    ("words", "safe"),
    [
        ("ls", True),
        ("git log", True),
        ("git config", False),
        ("git", False),
        ("npm run", False),
        ("gh repo", False),  # What stands behind `--` is for git.
        ("env", False),
        ("x", False),
    ],
)
def test_which_words_may_be_followed_by_anything(words: str, *, safe: bool) -> None:
    assert is_safe_prefix(words.split()) is safe


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("git log -3", "git log *"),
        ("git -C x log", "git -C x log"),
        ("grep -rn 'a b' .", "grep *"),
        ("rm -rf src/old.py", "rm -rf src/old.py"),
        ("git push --force", "git push --force"),
        ("setsid ls", "setsid ls"),
        ("rg --pre x y", "rg --pre x y"),
        ("echo '*'", "echo *"),
        ("tool '*' 'it''s'", "tool '*' its"),
    ],
)
def test_what_always_stands_for(line: str, kept: str) -> None:
    known = find_started_programs(line)
    assert isinstance(known, KnownPrograms)
    assert suggest_rule_commands(known.commands[0])[0] == kept
