"""Which kind of command "always allow" may stand for. Only what is listed here gets a rule with a star; the rest, its own words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from helix_desktop.tools.command_lines.program_finder import WrittenCommand
from helix_desktop.tools.command_lines.program_tables import word_set

# These start nothing else, whatever their arguments. If an option does, the program finder sees it.
SAFE_PROGRAMS = word_set(
    """ls cat head tail wc grep egrep fgrep rg stat file du df date basename dirname realpath readlink diff cmp comm cut tr uniq
    rev nl seq sha256sum md5sum cksum pwd echo printf true false test [ mkdir rmdir touch rm mv cp ln chmod tree column fold
    od xxd hexdump strings jq base64 which whoami uname hostname id sleep sort
    pytest ruff mypy black isort flake8 pylint pyright bandit eslint prettier tsc jest vitest mocha biome stylelint
    gofmt rustfmt clang-format shellcheck shfmt hadolint yamllint markdownlint"""
)
# With one of these subcommands, the same is true.
SAFE_SUBCOMMANDS = {
    "git": word_set(
        """status log show diff add commit branch tag blame shortlog describe rev-parse ls-files ls-tree cat-file stash restore
        switch checkout reset merge cherry-pick revert fetch pull push remote rm mv reflog name-rev rev-list count-objects"""
    ),
    "cargo": word_set("build check test clippy fmt doc tree metadata bench clean remove"),
    "go": word_set("build test vet fmt list doc version"),
    "npm": word_set("test ls outdated view audit"),
    "pnpm": word_set("test ls outdated audit"),
    "yarn": word_set("test list outdated audit"),
    "pip": word_set("list show freeze check"),
    "uv": word_set("tree"),
    "poetry": word_set("check show"),
    "docker": word_set("ps images logs inspect"),
    "kubectl": word_set("get describe logs"),
    "gh": word_set("pr issue repo release run"),
    "dotnet": word_set("build test restore clean"),
}
_BARE = re.compile(r"[A-Za-z0-9_@%+=:,./^-]+", re.ASCII)
# The shell's own words: what follows them is no argument.
SHELL_KEYWORDS = word_set(". source eval exec command builtin trap alias export set unset shopt time")


def is_safe_prefix(words: Sequence[str]) -> bool:
    """Whether more arguments behind these words cannot make it start another program."""
    name = words[0]
    return name in SAFE_PROGRAMS or (len(words) > 1 and words[1] in SAFE_SUBCOMMANDS.get(name, ()))


def rule_commands_for(one: WrittenCommand) -> list[str]:
    """What a rule could say: `git log *`, `git log -3 *`, `git log -3`. Where another program could follow, the words alone."""
    whole = _quote_words(one.words)
    first = 1 if one.words[0] in SAFE_PROGRAMS else 2
    if one.started_programs or one.has_own_code or not is_safe_prefix(one.words):
        return [whole]
    return [*(f"{_quote_words(one.words[:count])} *" for count in range(first, len(one.words) + 1)), whole]


def _quote_words(words: Sequence[str]) -> str:
    return " ".join(word if _BARE.fullmatch(word) else shlex.quote(word) for word in words)
