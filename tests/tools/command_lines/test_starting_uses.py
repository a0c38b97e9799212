"""A rule for a prefix covers no use that starts a program which no word names.

`tests/faults/starting_uses.py` runs such uses, made of manual pages.
"""

from __future__ import annotations

import random
import shlex

import pytest

from helix_desktop.tools.command_lines import program_tables
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
    "git am -i",
    "git citool",
    "git config --edit",
    "git gui",
    "git help log",
    "git maintenance start",
    "git notes add",
    "git notes edit -m x",
    "git rebase -i main",
    "git rebase --interactive main",
    "gh browse",
    "gh codespace ssh",
    "gh auth login",
    "gh config set pager x",
    "gh repo clone a/b -- -c core.sshCommand=x",
    "glab mr view 3 --web",
    "glab config set browser x",
    "glab duo ask x",
    "npm docs left-pad",
    "npm config edit",
    "npm config set script-shell x",
    "go bug",
    "patch --ed -p1",
    "patch -p1 -e a.patch",
    "crontab a.txt",
    "systemctl edit a",
    "sqlite3 a.db .shell",
    "sqlite3 a.db .sy",
    "hg commit",
    "svn ci",
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
    "scp -o ProxyCommand=x a b:",
    "scp -oProxyCommand=x a b:",
    "scp -3F settings a b:",
    "sftp -o ProxyCommand=x b",
    "wget -e use_askpass=x http://a",
    "wget --exec=use_askpass=x http://a",
    "curl --engine x http://a",
    "apt-get -o Dpkg::Pre-Invoke::=x update",
    "apt-get -oDpkg::Pre-Invoke::=x update",
    "tox --override testenv.commands=x",
    "svn log --config-option config:helpers:diff-cmd=x",
    "pandoc -F x a",
    "pandoc --lua-filter=x a",
    "gpg --photo-viewer x a",
    "openssl req -engine x",
    "pdflatex -shell-escape a",
    "rustc -Clinker=x a.rs",
    "gcc -B/tmp a.c",
    "gcc -wrapper x a.c",
    "g++ -specs=x a.cc",
    "clang -fplugin=x a.c",
    "ar --plugin x a",
    "helm install --post-renderer x a b",
    "bat --pager=x a",
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

# No rule is offered for these, but one that the user wrote covers them.
PLAIN_FOR_WRITTEN_RULES = [
    "git rebase main",
    "git notes add -m x",
    "git config user.name",
    "gh pr view 3",
    "gh repo clone a/b",
    "glab mr view 3",
    "cargo build",
    "cargo +nightly build",
    "patch -p1 -i a.patch",
    "scp a b:",
    "wget -q http://a",
    "curl -sS http://a",
    "gcc -fPIC -Wall -o a a.c",
    "tar cf a.tar b",
    "openssl version",
    "sqlite3 a.db",
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


def test_everyday_uses_are_covered_by_a_rule_that_the_user_wrote() -> None:
    for line in PLAIN_FOR_WRITTEN_RULES:
        program = line.split()[0]
        assert verdict_with_rule(line, f"{program} *") == "allow", line


# Every word is a command, a host or a number that some of these take.
FOREIGN_WORDS = [
    "x",
    "dash",
    "co",
    "prs",
    "nextest",
    "watch-it",
    "pr2",
    "PR",
    "api-x",
    "./x",
    "origin",
]


@pytest.mark.parametrize("program", sorted(program_tables.OWN_COMMANDS))
def test_a_rule_for_a_program_covers_no_alias_or_extension_of_it(program: str) -> None:
    """An alias of `gh` may be any command line (`gh alias set x '!rm -rf .'`)."""
    own_commands = program_tables.OWN_COMMANDS[program]
    tried = 0
    for word in FOREIGN_WORDS:
        assert word not in own_commands
        for line in (
            f"{program} {word}",
            f"{program} {word} --help",
            f"{program} -R {word} pr view",
        ):
            assert verdict_with_rule(line, f"{program} *") == "ask", line
            tried += 1
        # A rule that names the extension is for it.
        assert verdict_with_rule(f"{program} {word} y", f"{program} {word} *") == "allow"
    assert tried == 33


WEB_SPELLINGS = ["--web", "--web=true", "-w", "-cw", "-wc"]
# Commands of each program that open a browser, an editor or another program if they are told to.
GH_COMMANDS = """
pr/list pr/view pr/diff pr/create pr/checks issue/list issue/view issue/create repo/view run/view workflow/view
release/view label/list gist/view project/view ruleset/view search/repos search/prs search/issues search/code
"""
GLAB_COMMANDS = "mr/list mr/view mr/create issue/list issue/view issue/create repo/view release/view ci/view ci/trace"
EDITOR_SPELLINGS = ["--editor", "-e", "-ce"]
VARIABLES = """
GH_PAGER GH_BROWSER GH_EDITOR GH_HOST GH_CONFIG_DIR GH_PATH GH_TOKEN GLAB_PAGER GLAB_CONFIG_DIR GITLAB_HOST BROWSER
PAGER EDITOR VISUAL GIT_EDITOR HTTPS_PROXY
"""


@pytest.mark.parametrize(("program", "commands"), [("gh", GH_COMMANDS), ("glab", GLAB_COMMANDS)])
def test_no_rule_covers_a_use_of_gh_or_glab_that_opens_something(
    program: str, commands: str
) -> None:
    lines: list[str] = []
    for command_name in commands.split():
        words = f"{program} {command_name.replace('/', ' ')}"
        spellings = list(WEB_SPELLINGS)
        if program == "gh":
            spellings += EDITOR_SPELLINGS
        for spelling in spellings:
            lines += [f"{words} {spelling}", f"{words} 3 {spelling}", f"{words} {spelling} 3"]
        lines += [f"{variable}=x {words} 3" for variable in VARIABLES.split()]
    assert len(lines) >= 300
    for line in lines:
        assert find_prefixes_that_allow(line, 4) == [], line


@pytest.mark.parametrize(
    "line",
    [
        "tar cIf 'rm -rf .' a.tar b",
        "tar cfI a.tar 'rm -rf .' b",
        "tar xFf 'rm -rf .' a.tar",
        "tar bcfI 20 a.tar 'rm -rf .'",
        "scp -o 'ProxyCommand=rm -rf .' a b:",
        "scp -oProxyCommand='rm -rf .' a b:",
        "sftp -o 'ProxyCommand rm -rf .' b",
        "ssh -o 'proxycommand = rm -rf .' b",
        "ssh -o PermitLocalCommand=yes -o 'LocalCommand=\"rm -rf .\"' b",
        "ssh -oKnownHostsCommand='rm -rf .' b true",
        "ssh -4o 'ProxyCommand=rm -rf .' b",
        "ssh -vvo'ProxyCommand=rm -rf .' b",
        "scp -3o 'ProxyCommand=rm -rf .' a b:",
        "sftp -qo 'ProxyCommand=rm -rf .' b",
    ],
)
def test_a_rule_that_denies_reaches_commands_in_values_of_tar_and_ssh(line: str) -> None:
    rules = [PermissionRule("deny", command="rm *"), PermissionRule("allow", command="tar *")]
    decided = decide_permission(command(line), PermissionMode.ALLOW_ALL, rules, sandboxed=True)
    assert decided.verdict == "deny"


# Uses that start ./evil, which one of their words names: {} is the command, and a long option ends
# with `=`.
NAMING = [
    "scp -S {} a h:b", "scp -rS {} a h:b", "scp -oProxyCommand={} a h:b", "scp -o ProxyCommand={} a h:b", "sftp -S {} h",
    "ssh -o ProxyCommand={} h", "ssh -4oProxyCommand={} h ls", "rsync -e {} a h:b", "rsync -ae {} a h:b",
    "rsync -ave{} a h:b", "rsync --rsh={} a h:b", "rsync --rsync-path={} a h:b", "tar xf a.tar --to-command={}",
    "tar xf a.tar --use-compress-program={}", "tar -I {} -xf a.tar", "tar -xvI {} -f a.tar", "tar xIf {} a.tar",
    "tar xf a.tar --checkpoint-action=exec={} --checkpoint=1", "tar xMf a.tar --info-script={}", "find . -exec {} ;",
    "find . -name x -exec {} +", "find . -execdir {} ;", "find . -ok {} ;", "xargs {}", "xargs -n1 {}", "xargs -I% {} %",
    "xargs env {}", "git -c core.fsmonitor={} status", "git -ccore.sshCommand={} fetch", "git -c alias.x=!{} x",
    "git fetch --upload-pack={} origin", "git clone --upload-pack={} a b", "git clone -u {} a b", "git rebase --exec={} main",
    "git clone -c core.fsmonitor={} a b", "git push --receive-pack={} origin", "git ls-remote --upload-pack={} .",
    "git archive --remote=. --exec={} HEAD", "git grep -O{} x", "git grep --open-files-in-pager={} x", "git rebase -x {} main",
    "git bisect run {}", "git submodule foreach {}", "git difftool --extcmd={}", "git filter-branch --tree-filter={}",
    "env {}", "env -S {}", "env --split-string={}", "env -i {}", "env A=1 {}", "env -iS {}", "sort --compress-program={} a",
    "zip -T -TT {} a.zip a", "zip -T -TT{} a.zip a", "split --filter={} a", "man -P {} ls", "man -aP {} ls", "man --pager={} ls",
    "make SHELL={}", "npm exec {}", "npm --silent exec {}", "npm -s x {}", "npm test --script-shell={}", "npm explore x -- {}",
    "pnpm -s exec {}", "yarn --silent exec {}", "uv run {}", "uv -q run {}", "uv --quiet tool run {}", "poetry -q run {}",
    "bundle --verbose exec {}", "conda -v run {}", "pipenv --quiet run {}", "tox -q exec -- {}", "flatpak --user run {}",
    "ip -n x netns exec y {}", "jj --no-pager util exec {}", "hg -q bisect -c {}", "cargo -q watch -x {}",
    "rg --pre={} x", "fd -x {}", "fd -Hx {}", "fd -HIX {}", "fd --exec={}", "ag --pager={} x", "strace {}", "strace -o|{} ls",
    "strace -fo!{} ls", "tcpdump -z {} -G1 -w x", "tcpdump -nz {} -r a", "wget --use-askpass={} https://a", "nice {}",
    "nice -n5 {}", "timeout 5 {}", "timeout -k1 5 {}", "nohup {}", "stdbuf -oL {}", "setsid -w {}", "watch {}", "flock a {}",
    "flock a -c {}", "script -qc {} x", "busybox {}", "go test -exec={} ./...", "go build -toolexec={}", "docker exec x {}",
]  # fmt: skip
# Uses whose code or settings start something: no word is the name of a program.
RUNNING_CODE = [
    """awk 'BEGIN{system("./evil")}'""", """awk '{print|"./evil"}' a""", "awk -f x.awk", "gawk -lx 1", "sed 'e ./evil' a",
    "sed -n '1e ./evil' a", "sed s/a/b/e a", "sed s,a,b,ge a", "sed -f x.sed a", "sed '-s' '--expression=e ./evil' a",
    "vim -c :!./evil a", "vim +!./evil a", "vim -S x a", "vim -u x a", "vim --cmd !./evil", "nvim -u x a", "ex -u x a",
    "less +!./evil a", "less ++!./evil a", "less -k x a", "less --lesskey-src=x a", "make -f evil.mk", "make -fevil",
    "make --makefile=evil", "make --eval=x:;./evil", "make -E x:;./evil", "git clone --template=x a b", "env PATH=. ls",
    "env LD_PRELOAD=./x.so ls", "rsync --daemon --config=x", "go env -w GOFLAGS=-toolexec=./evil", "gcc -wrapper ./evil a.c",
    "pytest -p evil", "python3 -c x", "perl -e x", "wget -e use_askpass=./evil https://a", "scp -F x a h:b",
    "ssh -F x h", "git --exec-path=. status", "git --config-env=core.pager=X log", "git help x", "tox -c x",
]  # fmt: skip
LINES_OF_USES = 2_000


def dress_use(use: str, chance: random.Random) -> str:
    """The same command in another spelling: quotes, escapes, cut options, and what stands around."""
    program, *words = shlex.split(use.replace("{}", "./evil"))
    spelled = [spell_word(shorten_option(word, chance), chance) for word in words]
    name = chance.choice([program, program, f"/usr/bin/{program}", f"\\{program}", f"'{program}'", f"command {program}"])  # fmt: skip
    line = " ".join([name, *spelled])
    around = chance.choice(["{}", "{}", "{}", "A=1 {}", "ls; {}", "true && {}", "{} | cat", "({})", "if true; then {}; fi", "echo $({})", "! {}", "ls >/dev/null 2>&1; {}", "ls\n{}"])  # fmt: skip
    return around.replace("{}", line)


def shorten_option(word: str, chance: random.Random) -> str:
    """Git, tar and others take the beginning of a long option for it."""
    name, equals, value = word.partition("=")
    if not name.startswith("--") or not equals or len(name) < 9 or chance.random() < 0.5:
        return word
    return f"{name[: chance.randint(7, len(name))]}={value}"


def spell_word(word: str, chance: random.Random) -> str:
    place = chance.randrange(len(word))
    way = chance.randrange(6)
    if way == 0:
        codes = "".join(f"\\x{byte:02x}" for byte in word.encode())
        return f"$'{codes}'"
    if way == 1 and word.isascii() and word[place].isalnum():
        quoted_letter = f"\\{word[place]}"
        return shlex.quote(word[:place]) + quoted_letter + shlex.quote(word[place + 1 :])
    if way == 2:
        return shlex.quote(word[:place]) + shlex.quote(word[place:])
    return shlex.quote(word)


def list_rules_for(program: str) -> list[PermissionRule]:
    """Those that are offered for plain uses of the program and of what stands beside it, and
    `program *` as a user may write it.
    """
    rules = [
        PermissionRule("allow", command=line) for line in ("ls", "ls *", "cat", "true", "echo *")
    ]
    rules.append(PermissionRule("allow", command=f"{program} *"))
    for plain in (f"{program} a", f"{program} status", f"{program} -v", f"{program} test"):
        rules += rules_to_offer(command(plain))
    return list(dict.fromkeys(rules))


def test_no_rule_for_other_uses_covers_one_that_starts_something_in_whatever_spelling() -> None:
    """Not covered before but for spelling: `npm --silent exec`, `rsync -ae`, `fd -Hx`, `ag --pager`."""
    chance = random.Random(2911)
    uses = NAMING + RUNNING_CODE
    rules_by_program = {use.split()[0]: list_rules_for(use.split()[0]) for use in uses}
    covered: list[str] = []
    for _ in range(LINES_OF_USES):
        use = chance.choice(uses)
        line = dress_use(use, chance)
        rules = rules_by_program[use.split()[0]]
        decision = decide_permission(command(line), PermissionMode.ASK, rules, sandboxed=True)
        if decision.verdict == "allow":
            covered.append(line)
    assert covered == []


def test_a_rule_that_denies_reaches_what_a_word_names_in_whatever_spelling() -> None:
    chance = random.Random(2912)
    rules = [PermissionRule("deny", command="evil *"), PermissionRule("deny", command="evil")]
    allowed: list[str] = []
    verdicts = {"deny": 0, "ask": 0}
    for _ in range(LINES_OF_USES):
        line = dress_use(chance.choice(NAMING), chance)
        decision = decide_permission(command(line), PermissionMode.ALLOW_ALL, rules, sandboxed=True)
        if decision.verdict == "allow":
            allowed.append(line)
        else:
            verdicts[decision.verdict] += 1
    assert allowed == []
    # What starts it is not always known by its words: then it is asked for.
    assert verdicts["deny"] > 0.6 * LINES_OF_USES, verdicts
