"""Which kind of command "always allow" may stand for. Only what is listed here gets a rule with a star; the rest, its own words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from helix_desktop.tools.started import Written
from helix_desktop.tools.starters import names

# Whatever their arguments are, they start nothing else; where an option does, `programs` sees it.
ALONE = names(
    """ls cat head tail wc grep egrep fgrep rg stat file du df date basename dirname realpath readlink diff cmp comm cut tr uniq
    rev nl seq sha256sum md5sum cksum pwd echo printf true false test [ mkdir rmdir touch rm mv cp ln chmod tree column fold
    od xxd hexdump strings jq base64 which whoami uname hostname id sleep sort
    pytest ruff mypy black isort flake8 pylint pyright bandit eslint prettier tsc jest vitest mocha biome stylelint
    gofmt rustfmt clang-format shellcheck shfmt hadolint yamllint markdownlint"""
)
# With one of these subcommands the same holds.
WITH = {
    "git": names(
        """status log show diff add commit branch tag blame shortlog describe rev-parse ls-files ls-tree cat-file stash restore
        switch checkout reset merge cherry-pick revert fetch pull push remote rm mv reflog name-rev rev-list count-objects"""
    ),
    "cargo": names("build check test clippy fmt doc tree metadata bench clean remove"),
    "go": names("build test vet fmt list doc version"),
    "npm": names("test ls outdated view audit"),
    "pnpm": names("test ls outdated audit"),
    "yarn": names("test list outdated audit"),
    "pip": names("list show freeze check"),
    "uv": names("tree"),
    "poetry": names("check show"),
    "docker": names("ps images logs inspect"),
    "kubectl": names("get describe logs"),
    "gh": names("pr issue repo release run"),
    "dotnet": names("build test restore clean"),
}
_BARE = re.compile(r"[A-Za-z0-9_@%+=:,./^-]+", re.ASCII)
# The shell's own words: what follows them is no argument.
KEYWORDS = names(". source eval exec command builtin trap alias export set unset shopt time")


def safe_prefix(words: Sequence[str]) -> bool:
    """Whether more arguments behind these words cannot make it start another program."""
    name = words[0]
    return name in ALONE or (len(words) > 1 and words[1] in WITH.get(name, ()))


def commands_for(one: Written) -> list[str]:
    """What a rule could say: `git log *`, `git log -3 *`, `git log -3`. Where another program could follow, the words alone."""
    whole = _joined(one.words)
    first = 1 if one.words[0] in ALONE else 2
    if one.starts or one.code or not safe_prefix(one.words):
        return [whole]
    return [*(f"{_joined(one.words[:count])} *" for count in range(first, len(one.words) + 1)), whole]


def _joined(words: Sequence[str]) -> str:
    return " ".join(word if _BARE.fullmatch(word) else shlex.quote(word) for word in words)
