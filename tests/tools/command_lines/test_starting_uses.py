"""A rule for a prefix covers no use that starts a program which no word names.

`tests/faults/starting_uses.py` runs such uses, made of manual pages.
"""

from __future__ import annotations

from helix_desktop.tools.command_lines.starting_uses import starts_unnamed_program
from helix_desktop.tools.permission import (
    ActionEffect,
    PermissionMode,
    PermissionRule,
    ToolAction,
    decide_permission,
    rules_to_offer,
)

STARTING = [
    "git branch --edit-description",
    "git branch --edit-d",
    "git describe --help",
    "git log --help",
    "git cat-file --filters HEAD:a.txt",
    "git cat-file --textconv HEAD:a.txt",
    "git cat-file --textc HEAD:a.txt",
    "git log --ext-diff -p",
    "git log --format=%GS",
    "git log --show-signature",
    "git add -e",
    "git add -pu",
    "git add --interactive",
    "git commit",
    "git commit -a",
    "git commit --amend",
    "git commit -c HEAD",
    "git commit -S -m x",
    "git commit -m x -e",
    "git commit --fixup=amend:HEAD",
    "git tag -a v1",
    "git tag -s v1 -m x",
    "git tag -v v1",
    "git pull --rebase=interactive",
    "git pull --rebase=i",
    "git merge --edit main",
    "git push --signed",
    "git reset -p",
    "gh pr --web",
    "gh pr list --web",
    "gh pr view 3 -w",
    "diff -l a b",
    "diff -ul a b",
    "file -z a.gz",
    "rg -z word",
    "mypy --install-types a.py",
    "cargo doc --open",
    "npm audit fix",
    "jest --watch",
    "eslint --init",
    "eslint --env-info a.js",
    "biome check --staged",
    "vitest run --typecheck",
    "vitest run --browser.enabled",
    "go doc -http",
]
# What these would start or write is an option's value, or stands in settings that they name.
LOADING = [
    "go build -o /tmp/a ./...",
    "go build -toolexec=x ./...",
    "go build -mod=mod ./...",
    "go build -overlay a.json ./...",
    "go test -exec x ./...",
    "go test -coverprofile=c.out ./...",
    "go test -test.coverprofile=c.out ./...",
    "go test -test.outputdir /tmp ./...",
    "go test --test.gocoverdir=/tmp ./...",
    "go test -fuzz=FuzzA ./a",
    "go test -test.fuzz=FuzzA ./a",
    "go test -artifacts ./...",
    "go vet -vettool=x ./...",
    "go vet -fix ./...",
    "pyright --createstub requests",
    "pyright --pythonpath /tmp/python a.py",
    "pyright -p /tmp/other",
    "pyright --venvpath=/tmp a.py",
    "gofmt -cpuprofile=a.out a.go",
]
PLAIN = [
    "git log --oneline -5",
    "git log -S word --text",
    "git log --follow -p a.txt",
    "git diff --text --exit-code",
    "git diff --stat",
    "git branch -a",
    "git commit -m 'Fix it'",
    "git commit -am x",
    "git commit --amend --no-edit",
    "git commit -F message.txt",
    "git merge --verify main",
    "git tag v1",
    "git tag -a v1 -m x",
    "git add -A",
    "git pull --rebase",
    "git pull --rebase=merges",
    "gh pr list --limit 3",
    "diff -u a b",
    "file -b a",
    "rg -n word",
    "pytest --pdb tests/a.py",
    "cargo doc",
    "npm audit",
    "go build ./...",
    "go test -v -run TestA ./...",
    "go test -race -count=1 -test.v ./...",
    "go vet ./...",
    "pyright --outputjson a.py",
    "pyright --pythonversion 3.11 --stats a.py",
]


def command(line: str) -> ToolAction:
    return ToolAction("run_command", ActionEffect.RUN, "Run", line, command=line)


def offered(line: str) -> list[str]:
    return [rule.command for rule in rules_to_offer(command(line))]


def verdict_with_rule(line: str, allowed_command: str) -> str:
    """Return what is decided about a command line where one rule allows a command."""
    rule = PermissionRule("allow", command=allowed_command)
    return decide_permission(command(line), PermissionMode.ASK, [rule], sandboxed=True).verdict


def find_prefixes_that_allow(line: str, most_words: int) -> list[str]:
    """Return the rules for the first words of a line that allow it."""
    words = line.split()
    prefixes = [f"{' '.join(words[:count])} *" for count in range(1, most_words + 1)]
    return [prefix for prefix in prefixes if verdict_with_rule(line, prefix) != "ask"]


def test_what_starts_an_unnamed_program_is_asked_for_in_spite_of_a_rule() -> None:
    for line in STARTING:
        assert find_prefixes_that_allow(line, 3) == [], line
        assert all(not rule.endswith(" *") for rule in offered(line)), line


def test_what_loads_or_writes_by_its_options_is_asked_for_in_spite_of_a_rule() -> None:
    for line in LOADING:
        assert find_prefixes_that_allow(line, 2) == [], line


def test_exactly_this_command_can_still_be_allowed() -> None:
    lines = [*STARTING, *LOADING]
    assert [line for line in lines if verdict_with_rule(line, line) != "allow"] == []


def test_everyday_uses_are_covered_as_before() -> None:
    for line in PLAIN:
        assert not starts_unnamed_program(line.split()), line
        assert any(rule.endswith(" *") for rule in offered(line)), line


def test_a_subcommand_of_a_subcommand_is_named_in_full() -> None:
    assert offered("gh pr view 3 --comments")[-1].startswith("gh pr view")
    assert "gh pr *" not in offered("gh pr view 3")
    assert offered("gh pr create") == ["gh pr create"]
