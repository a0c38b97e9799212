from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helix_desktop import resources
from helix_desktop.engine.ports import AskedProgram
from helix_desktop.errors import InvalidInput
from helix_desktop.tools.command_lines.command_analysis import KnownPrograms, find_started_programs
from helix_desktop.tools.permission import (
    ActionEffect,
    PermissionMode,
    PermissionRule,
    ToolAction,
    choices_to_offer,
    covers_every_command,
    covers_nothing,
    decide_permission,
    describe_allowing_rule,
    describe_choice,
    describe_command_access,
    does_rule_fit,
    is_rule_for_script,
    is_rule_too_wide,
    list_asked_programs,
    list_folders_of_choices,
    list_uses_allowed_by_rules,
    rules_allow_action,
    rules_to_offer,
)

READ = ToolAction("read_file", ActionEffect.READ, "Read a", "a", path="a")
EDIT = ToolAction("edit_file", ActionEffect.EDIT, "Edit a", "-+", path="src/a.py")
RUN = ToolAction("run_command", ActionEffect.RUN, "Run", "git status", command="git status")
FETCH = ToolAction("fetch_url", ActionEffect.FETCH, "Fetch", "http://a", path="a.example")
FOREIGN = ToolAction("github__issue", ActionEffect.FOREIGN, "GitHub: issue", "{}")


def command(line: str, *, network: bool = False) -> ToolAction:
    return ToolAction("run_command", ActionEffect.RUN, "Run", line, command=line, network=network)


def verdict(
    action: ToolAction,
    mode: PermissionMode = PermissionMode.ASK,
    *rules: PermissionRule,
    sandboxed: bool = True,
) -> str:
    return decide_permission(action, mode, rules, sandboxed=sandboxed).verdict


@pytest.mark.parametrize(
    ("mode", "verdicts"),
    [
        (PermissionMode.READ_ONLY, ["allow", "deny", "deny", "ask", "ask"]),
        (PermissionMode.ASK, ["allow", "ask", "ask", "ask", "ask"]),
        (PermissionMode.ALLOW_EDITS, ["allow", "allow", "ask", "ask", "ask"]),
        (PermissionMode.ALLOW_ALL, ["allow", "allow", "allow", "allow", "allow"]),
    ],
)
def test_the_modes(mode: PermissionMode, verdicts: list[str]) -> None:
    assert [verdict(action, mode) for action in (READ, EDIT, RUN, FETCH, FOREIGN)] == verdicts


ACTION_OF_USE = {"edits": EDIT, "commands": RUN, "web pages": FETCH}
ACTION_OF_USE["MCP tools"] = replace(FOREIGN, only_reads=True)  # Others are refused in plan mode.


@pytest.mark.parametrize("mode", PermissionMode)
@pytest.mark.parametrize("sandboxed", [True, False])
@pytest.mark.parametrize(
    ("rules", "uses"),
    [
        ([PermissionRule("allow", "edit_file"), PermissionRule("allow", "write_file")], ["edits"]),
        ([PermissionRule("allow", "edit_file")], ["some edits"]),
        ([PermissionRule("allow", path="src/*")], ["some edits"]),
        ([PermissionRule("allow", "run_command")], ["commands"]),
        ([PermissionRule("allow", command="git *")], ["some commands"]),
        ([PermissionRule("allow", command="*")], []),
        ([PermissionRule("allow", "edit_file", command="src/a.py")], []),
        ([PermissionRule("allow", "run_command", path="src/*")], []),
        ([PermissionRule("allow", "fetch_url", path="a.example")], ["some web pages"]),
        ([PermissionRule("allow", "github__issue")], ["some MCP tools"]),
        ([PermissionRule("allow", "read_file")], []),
        ([PermissionRule("deny", "edit_file"), PermissionRule("ask", command="git *")], []),
        ([PermissionRule("allow")], ["edits", "commands", "some web pages", "some MCP tools"]),
    ],
)
def test_what_rules_are_said_to_allow_runs_without_a_question(
    rules: list[PermissionRule], uses: list[str], mode: PermissionMode, sandboxed: bool
) -> None:
    named = list_uses_allowed_by_rules(rules, mode, sandboxed=sandboxed)
    if mode is PermissionMode.ASK and sandboxed:
        assert list(named) == uses
    plain_names = {use.removeprefix("some ") for use in named}
    for use, action in ACTION_OF_USE.items():
        without_rules = verdict(action, mode, sandboxed=sandboxed)
        with_rules = verdict(action, mode, *rules, sandboxed=sandboxed)
        if with_rules == "allow" and without_rules != "allow":
            assert use in plain_names
        if with_rules == "deny" or without_rules == "allow":
            assert use not in plain_names


def test_without_a_sandbox_every_command_asks_each_time() -> None:
    rules = [PermissionRule("allow", "run_command"), PermissionRule("allow", command="git *")]
    for mode in (PermissionMode.ASK, PermissionMode.ALLOW_EDITS, PermissionMode.ALLOW_ALL):
        decision = decide_permission(RUN, mode, rules, sandboxed=False)
        assert (decision.verdict, decision.scopes) == ("ask", ("once",))


def test_a_rule_that_denies_wins_over_everything() -> None:
    rules = [PermissionRule("allow", "edit_file"), PermissionRule("deny", path="src/*")]
    assert verdict(EDIT, PermissionMode.ALLOW_ALL, *rules) == "deny"
    assert (
        verdict(
            ToolAction("edit_file", ActionEffect.EDIT, "", "", path="SRC/A.py"),
            PermissionMode.ALLOW_ALL,
            *rules,
        )
        == "deny"
    )
    assert (
        verdict(
            ToolAction("read_file", ActionEffect.READ, "", "", path="src/key"),
            PermissionMode.ASK,
            *rules,
        )
        == "deny"
    )


def test_what_a_restricting_rule_says_of_a_tool_without_commands_is_a_path() -> None:
    """The defect: such a rule was listed like others, and never held."""
    for decision in ("deny", "ask"):
        rule = PermissionRule(decision, "edit_file", command="src/*")
        assert verdict(EDIT, PermissionMode.ALLOW_ALL, rule) == decision
        assert verdict(EDIT, PermissionMode.ALLOW_ALL, replace(rule, command="docs/*")) == "allow"
    assert (
        verdict(EDIT, PermissionMode.ASK, PermissionRule("allow", "edit_file", command="src/*"))
        == "ask"
    )
    assert verdict(EDIT, PermissionMode.ALLOW_ALL, PermissionRule("deny", command="*")) == "allow"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/a.py", "allow"),
        ("src/deep/a.py", "allow"),
        ("SRC/a.py", "ask"),
        ("lib/a.py", "ask"),
        ("", "ask"),
    ],
)
def test_a_rule_that_allows_a_path_holds_for_exactly_that_spelling(
    path: str, expected: str
) -> None:
    edit = ToolAction("edit_file", ActionEffect.EDIT, "", "", path=path)
    assert verdict(edit, PermissionMode.ASK, PermissionRule("allow", path="src/*")) == expected


def test_a_rule_that_asks_wins_over_one_that_allows() -> None:
    assert (
        verdict(
            EDIT,
            PermissionMode.ALLOW_ALL,
            PermissionRule("allow", "edit_file"),
            PermissionRule("ask", path="src/*"),
        )
        == "ask"
    )


def test_danger_asks_although_edits_are_allowed() -> None:
    hook = ToolAction(
        "write_file", ActionEffect.EDIT, "", "", path=".git/hooks/x", reason_to_ask="runs later"
    )
    assert verdict(hook, PermissionMode.ALLOW_EDITS, PermissionRule("allow", "write_file")) == "ask"
    assert verdict(hook, PermissionMode.ALLOW_ALL) == "allow"
    private = ToolAction(
        "fetch_url",
        ActionEffect.FETCH,
        "",
        "",
        path="router",
        reason_to_ask="your local network",
        asks_in_every_mode=True,
    )
    assert verdict(private, PermissionMode.ALLOW_ALL) == "ask"


@pytest.mark.parametrize(
    ("rule", "line", "fits"),
    [
        ("git status", "git status", True),
        ("git status", "git status -s", False),
        ("git status *", "git status -s", True),
        ("git status *", "git statusx", False),
        ("git status *", "git status && rm -rf x", False),
        ("git status *", "git status; rm x", False),
        ("git status *", "git status\nrm x", False),
        ("git status *", "git status $(rm x)", False),
        ("git status *", "git status | sh", False),
        ("git status *", "git status && git status -s", True),
        ("git status *", "PATH=/evil git status", False),
        ("git status *", "g'i't status", True),
        ("git status *", "/tmp/git status", False),
        ("git status *", "sudo git status", False),
        ("git *", "git -c core.pager=evil log", False),
    ],
)
def test_a_rule_about_a_command_is_not_stretched_to_another(
    rule: str, line: str, *, fits: bool
) -> None:
    assert verdict(
        command(line), PermissionMode.ASK, PermissionRule("allow", "run_command", command=rule)
    ) == ("allow" if fits else "ask")


ALLOWED = (
    "git log *",
    "git diff *",
    "ls *",
    "cargo test *",
    "npm test *",
    "python3 *",
    "find *",
    "tar *",
    "pytest -q *",
)
STRETCHES = (
    "{}; rm x", "{} && rm x", "{} || rm x", "{} | sh", "{} & rm x", "{}\nrm x", "{} $(rm x)", "{} `rm x`", '{} "$(rm x)"', "{} <(rm x)", "{} >(rm x)", "{} > ~/.bashrc", "{} >> x", "{} 2> x", "{} &> x", "{} <<< x", "{} $x", '{} "$@"',
    "if true; then {}; fi", "for i in 1; do {} $i; done", 'for i in -x; do {} "$i"; done', 'for i in $y; do {} "$i"; done', 'for i in a; do read i; {} "$i"; done', "f() {{ rm x; }}; {}", "PATH=/evil {}", "LD_PRELOAD=x {}", "GIT_PAGER=x {}", "A=1 {}", "sudo {}", "env {}", "nice {}", "timeout 5 {}", "nohup {}", "xargs {}", "exec {}", "eval {}",
    "command {}", "time {}", "./{}", "/tmp/{}", "~/{}", "bash -c '{}; rm x'", "sh {}", "{} *", "{} {{a,b}}", "\\{}", "alias ls=rm; {}", "({}; rm x)", "{{ rm x; {}; }}", "while {}; do rm x; done", "{} *.py", "{} x{{a,b}}", "{} < x", "trap 'rm x' EXIT; {}",
)  # fmt: skip
OPTIONS = (
    ("git *", "git -c core.pager=x log"), ("git *", "git -c alias.z='!x' z"), ("git *", "git --exec-path=x log"), ("git fetch *", "git fetch --upload-pack=x o"), ("git fetch *", "git fetch ext::x"), ("git push *", "git push --receive-pack=x o"), ("git push *", "git push --exec x o"),
    ("git merge *", "git merge -s x y"), ("git rebase *", "git rebase -x y"), ("git grep *", "git grep -Ox y"), ("git submodule *", "git submodule foreach x"), ("git bisect *", "git bisect run x"), ("git clone *", "git clone -c core.fsmonitor=x a"), ("git clone *", "git clone -u x a"),
    ("find *", "find . -exec rm {} +"), ("find *", "find . -execdir rm ';'"), ("tar *", "tar --to-command=x -xf a"), ("tar *", "tar -I x -xf a"), ("tar *", "tar --checkpoint-action=exec=x -cf a b"), ("python3 *", "python3 -c x"), ("python3 *", "python3 -Ic x"), ("python3 *", "python3 -"), ("perl *", "perl -e x"),
    ("node *", "node -e x"), ("ruby *", "ruby -e x"), ("awk *", "awk x y"), ("sed *", "sed s/a/b/e x"), ("xargs *", "xargs rm"), ("env *", "env rm x"), ("sort *", "sort --compress-program=x y"), ("rsync *", "rsync -e x a b"), ("rg *", "rg --pre x y"), ("go test *", "go test -exec x"), ("go build *", "go build -toolexec=x"),
    ("cargo build *", "cargo build --config x"), ("npm test *", "npm test --script-shell=x"), ("make *", "make --eval=x"), ("make *", "make SHELL=x"), ("bash *", "bash -c x"), ("sh *", "sh -c x"), ("mypy *", "mypy --python-executable x y"), ("uv *", "uv run x"), ("docker *", "docker run x"), ("watch *", "watch x"), ("vim *", "vim -c x"),
)  # fmt: skip


NAMED_CODE = """
pytest -p mod | pytest -pmod -q | pytest -qp mod | pytest -c x.ini | pytest -o addopts=-pmod | pytest --rootdir=x | pytest --confcutdir x
pytest --override-ini=x | pytest --config-file=x | pytest --rootd=x | pytest @args.txt | pytest --basetemp=src
mocha -r x | mocha --require=./x | mocha --config x | mocha -R ./x.js | mocha --loader x | mocha --node-option=require=x
eslint -c x | eslint --config x . | eslint --rulesdir x | eslint -f ./x.js . | eslint --plugin x | eslint --resolve-plugins-relative-to=x
jest -c x | jest --config=x | jest --globalSetup=x | jest --global-setup x | jest --setupFiles x | jest --setupFilesAfterEnv=x | jest --runner=x
vitest --config x | vitest -r x | vitest --poolOptions.forks.execArgv=--require=x | prettier --plugin=x . | stylelint --custom-syntax x
pylint --load-plugins=x a | pylint --rcfile=x a | pylint --init-hook=x a | pylint --load-pl x a | flake8 --config x | flake8 --append-config=x
mypy --config-file=x | mypy @x | pip list --python x | uv tree --python=x | uv tree -p x
go build -ldflags=-extld=x | go build -ldflags x | go test --exec x | go build -toolexec x | go vet -vettool=x | go build -overlay x
git log --output=x | git diff --outp=x | git show --output x | sort -o x y | sort -uox y | sort --outp=x y | tree -ao x | rg --pre x y
cargo build --config x | cargo build --manifest-path=x | cargo test -Zx | npm test --prefix x | npm test --script-shell=x | dotnet build -p:A=b
make -f x | make --file=x | make -sfx | find . -delete | find . -fprintf x y | find . -exec x ; | tar --checkpoint-action=exec=x -cf a b
tar --to-command x -xf a | rsync -e x a b | rsync --rsync-path=x a b | ssh -o ProxyCommand=x h | ssh -oProxyCommand=x h | ssh h x | awk x f
sed -i s/a/b/ f | sed w f | env x | xargs x | docker run -v /:/x a b | git -c core.pager=x log | npm --prefix x test | uv --python x tree
"""


def lines_of_table(table: str) -> list[str]:
    """Return the command lines of a table, in which " | " separates them."""
    return [line for line in table.replace("\n", " | ").split(" | ") if line]


def rule_for_words(line: str, count: int) -> PermissionRule:
    """Return the rule that allows whatever begins with so many words of a command line."""
    return PermissionRule("allow", command=f"{' '.join(line.split()[:count])} *")


def test_a_rule_for_a_prefix_does_not_cover_code_or_a_file_to_write_named_by_an_option() -> None:
    covered: list[str] = []
    for line in lines_of_table(NAMED_CODE.replace(" ;", " ';'")):
        rules = [rule_for_words(line, 1), rule_for_words(line, 2)]
        if rules_allow_action(rules, command(line)):
            covered.append(line)
    assert covered == []


EVERYDAY = """
pytest -q -x tests/a.py -k name | pytest -vvs --tb=short --co | pytest --cov=src -n auto | pytest -nauto --maxfail 3 | pytest --lf -ra
mocha -t 5000 --exit | eslint --fix src --ext .ts --cache | jest --coverage --ci -t name | jest --runInBand src | vitest run --coverage | vitest --run
pylint -E a.py --disable=x | mypy -p pkg --strict | ruff check --fix src | black -l 100 . | prettier --check src | tsc --noEmit -p .
go test -race -count=1 -cover ./... | go test -v -run Name | go build ./... | cargo test -q --release --target x | npm test -- --watch=false
git log --oneline -p -3 | git diff --stat | git log --output-indicator-new=x | sort -rnk2,3 f | sort -u f | tree -L 2 -I x | pip list --outdated
dotnet test -c Release --no-restore | find . -name x -type f | make -j4 test
"""


def test_a_rule_for_a_prefix_covers_what_is_written_every_day() -> None:
    asked_for: list[str] = []
    for line in lines_of_table(EVERYDAY):
        if not rules_allow_action([rule_for_words(line, 1)], command(line)):
            asked_for.append(line)
    assert asked_for == []


@pytest.mark.parametrize("rule", ALLOWED)
def test_no_rule_that_allows_is_stretched(rule: str) -> None:
    base = rule.removesuffix(" *")
    lines = [stretch.format(base) for stretch in STRETCHES]
    assert [
        line
        for line in lines
        if verdict(command(line), PermissionMode.ASK, PermissionRule("allow", command=rule))
        == "allow"
    ] == []


GROUPS = (
    "({})", "{{ {}; }}", "! {}", "{} # x", "{}\\\n x", "for i in 1; do {}; done", 'for i in a b; do {} "$i"; done',
    'for i in src/*.py; do {} "${{i}}"; done', "if {}; then {} -v; else {} x; fi", "while {}; do {}; done", "{} src/*.py",
    "{} | {} x && {} y",
)  # fmt: skip


def test_a_rule_covers_its_command_also_in_groups_lists_pipes_and_loops() -> None:
    rule = PermissionRule("allow", command="ls *")
    verdicts: dict[str, str] = {}
    for group in GROUPS:
        line = group.format("ls", "ls", "ls")
        verdicts[line] = verdict(command(line), PermissionMode.ASK, rule)
    assert verdicts == dict.fromkeys(verdicts, "allow")


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("ls -la | head -3", ["ls *, head *", "ls -la, head -3"]),
        (
            "git log | head -3; git status",
            ["git log *, head *, git status *", "git log, head -3, git status"],
        ),
        ("wc -l a | sort", ["sort *", "sort"]),
        ("wc -l a | wc", []),
        ('for f in a b; do grep x "$f"; done', ["grep *", "grep x *"]),
        ("ls src/*.py", ["ls *"]),
        ("ls | xargs rm", ["ls *, xargs rm", "ls, xargs rm"]),
        ("ls; make", ["ls *, make", "ls, make"]),
        ("ls | tee out.txt", ["ls *, tee out.txt", "ls, tee out.txt"]),
        ("cd src && pytest -q", ["cd src, pytest *", "cd src, pytest -q"]),
    ],
)
def test_always_names_exactly_the_programs_that_are_missing(line: str, missing: list[str]) -> None:
    rules = [PermissionRule("allow", command="wc *")]
    choices = choices_to_offer(command(line), rules)
    assert [describe_choice(choice) for choice in choices] == missing
    for choice in choices:
        assert verdict(command(line), PermissionMode.ASK, *rules, *choice) == "allow"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ls $HOME", "the shell fills in a part of it"),
        ("ls > x", "it writes a file"),
        ("ls *.py", "a file whose name begins with - would be an option for it"),
        ("A=1 ls", "it sets a variable"),
        ("ls & ls", "a part of it goes on in the background"),
        ("f() { ls; }; f", "it defines a function"),
        ("ls < x", "it is given an input"),
        ("cat x | python3", "a program in it may run what another one prints"),
        ("cat x | python3 -", "a program in it may run what another one prints"),
        ("echo .shell | sqlite3 a.db", "a program in it may run what another one prints"),
    ],
)
def test_where_no_rule_can_be_sure_the_reason_is_said(line: str, why: str) -> None:
    decision = decide_permission(command(line), PermissionMode.ASK, (), sandboxed=True)
    assert decision.scopes == ("once",)
    assert decision.reason.endswith(f"this one can only be allowed once, because {why}")


@pytest.mark.parametrize(
    "line", ["cat x | python3", "cat x | sqlite3 a.db", "cat x | perl -", "cat x | bc"]
)
def test_no_rule_covers_what_one_program_gives_another_to_run(line: str) -> None:
    program = line.partition(" | ")[2]
    rules = [PermissionRule("allow", command=each) for each in ("cat *", program, f"{program} *")]
    assert verdict(command(line), PermissionMode.ASK, *rules) == "ask"
    assert verdict(command("python3 a.py | cat"), PermissionMode.ASK, PermissionRule("allow", command="cat *"), PermissionRule("allow", command="python3 a.py")) == "allow"  # fmt: skip


def test_a_program_that_only_says_its_version_runs_nothing_that_is_piped() -> None:
    """The reason for asking only once was that it may run what `cat` prints."""
    line = command("python3 --version | cat")
    decision = decide_permission(line, PermissionMode.ASK, (), sandboxed=True)
    assert "always" in decision.scopes
    rules = [PermissionRule("allow", command=each) for each in ("python3 --version", "cat *")]
    assert verdict(line, PermissionMode.ASK, *rules) == "allow"
    for piped_into in ("python3 --version -", "python3 -i --version"):
        decision = decide_permission(
            command(f"cat x | {piped_into}"), PermissionMode.ASK, (), sandboxed=True
        )
        assert decision.scopes == ("once",), piped_into


def test_a_command_line_is_shown_as_the_programs_that_it_starts() -> None:
    rules = [PermissionRule("allow", command="tail *")]
    action = command("pytest -q --durations=10 tests | tail -n 30 | tee timings.txt && git log -3")
    assert list_asked_programs(action, rules) == (
        AskedProgram("pytest"),
        AskedProgram("tail", is_allowed=True),
        AskedProgram("tee", writes=("timings.txt",)),
        AskedProgram("git log"),
    )
    assert [one.name for one in list_asked_programs(command("sudo nice git push"), ())] == [
        "sudo",
        "nice",
        "git push",
    ]
    assert list_asked_programs(command("$x"), ()) == ()


@pytest.mark.parametrize(
    ("line", "programs"),
    [
        (
            "rm -rf data/old && echo gone > gone.txt",
            (AskedProgram("rm", deletes=("data/old",)), AskedProgram("echo", writes=("gone.txt",))),
        ),
        ("sort a >> b 2>/dev/null", (AskedProgram("sort", writes=("b",)),)),
        ("make 2>&1 | tee log", (AskedProgram("make"), AskedProgram("tee", writes=("log",)))),
        ("tee a > b", (AskedProgram("tee", writes=("a", "b")),)),
        ("cat < in > $out", (AskedProgram("cat", writes=("…",)),)),
        ("(cd x; ls) > list", (AskedProgram("cd"), AskedProgram("ls", writes=("list",)))),
        (
            "sudo rm a",
            (AskedProgram("sudo", risk="administrator"), AskedProgram("rm", deletes=("a",))),
        ),
    ],
)
def test_what_a_command_line_writes_and_deletes_is_named(
    line: str, programs: tuple[AskedProgram, ...]
) -> None:
    """`rm` was said to write, and a file behind `>` was not named at all."""
    assert list_asked_programs(command(line), ()) == programs


def test_edits_are_allowed_once_in_their_folder_or_everywhere() -> None:
    here, everywhere = choices_to_offer(EDIT)
    assert (describe_choice(here), describe_choice(everywhere)) == (
        "src/*",
        "edit_file, write_file",
    )
    assert list_folders_of_choices(EDIT, (here, everywhere)) == ("src", ".")
    in_root = replace(EDIT, path="a.py")
    assert list_folders_of_choices(in_root, choices_to_offer(in_root)) == (".",)
    # Edits were allowed in a conversation, and the next new file was asked about again.
    (in_workspace,) = choices_to_offer(in_root)
    new_file = replace(EDIT, tool="write_file", path="new.py")
    assert verdict(new_file, PermissionMode.ASK, *in_workspace) == "allow"
    outside = replace(EDIT, path="/etc/a.py")
    assert list_folders_of_choices(outside, choices_to_offer(outside)) == ()
    other = replace(EDIT, path="lib/b.py")
    below = replace(EDIT, tool="write_file", path="src/deep/c.py")
    assert [verdict(each, PermissionMode.ASK, *here) for each in (EDIT, below, other)] == [
        "allow",
        "allow",
        "ask",
    ]
    assert verdict(other, PermissionMode.ASK, *everywhere) == "allow"
    starred = replace(EDIT, path="a*[b]/c.py")
    (rules, _) = choices_to_offer(starred)
    assert verdict(starred, PermissionMode.ASK, *rules) == "allow"
    assert verdict(replace(EDIT, path="axxb/c.py"), PermissionMode.ASK, *rules) == "ask"


def test_options_that_start_a_program_are_asked_for() -> None:
    assert [
        line
        for rule, line in OPTIONS
        if verdict(command(line), PermissionMode.ASK, PermissionRule("allow", command=rule))
        == "allow"
    ] == []


def test_each_command_of_a_line_needs_a_rule_of_its_own() -> None:
    rules = [PermissionRule("allow", command="git *"), PermissionRule("allow", command="tail *")]
    assert verdict(command("git log | tail -3"), PermissionMode.ASK, *rules) == "allow"
    assert verdict(command("git log | head -3"), PermissionMode.ASK, *rules) == "ask"


def test_the_network_needs_a_rule_that_says_so() -> None:
    assert (
        verdict(
            command("npm install", network=True),
            PermissionMode.ASK,
            PermissionRule("allow", command="npm *"),
        )
        == "ask"
    )
    assert (
        verdict(
            command("npm install", network=True),
            PermissionMode.ASK,
            PermissionRule("allow", command="npm *", network=True),
        )
        == "allow"
    )


@pytest.mark.parametrize(
    "line", ["rm -rf x", "git status; rm -rf x", "$(rm -rf x)", 'r"m" -rf x', "sudo rm -rf x"]
)
def test_a_forbidden_command_is_found_anywhere_in_a_line(line: str) -> None:
    assert (
        verdict(
            command(line),
            PermissionMode.ALLOW_ALL,
            PermissionRule("deny", command="rm *"),
            PermissionRule("deny", command="sudo *"),
        )
        == "deny"
    )


@pytest.mark.parametrize("line", ["$X -rf x", "eval $x", "echo cm0= | base64 -d | sh > x"])
def test_what_the_shell_hides_is_asked_for_in_every_mode_that_does_not_refuse(line: str) -> None:
    for mode in (PermissionMode.ASK, PermissionMode.ALLOW_EDITS, PermissionMode.ALLOW_ALL):
        decision = decide_permission(
            command(line), mode, [PermissionRule("allow", "run_command")], sandboxed=True
        )
        assert (decision.verdict, decision.scopes) == ("ask", ("once",))
    assert verdict(command(line), PermissionMode.READ_ONLY) == "deny"


@pytest.mark.parametrize(
    ("rule", "line", "expected"),
    [
        ("rm *", "A=1 /bin/rm x", "deny"),
        ("rm", "rm -r x", "deny"),
        ("git push *", "git -C . --no-pager push", "deny"),
        ("git push *", "/usr/bin/git push", "deny"),
        ("git push *", "git $what", "ask"),
        ("git push *", "git -c alias.p=push p", "ask"),
        ("git push *", "git log --grep push", "allow"),
        ("git push --force *", "git push origin main --force", "deny"),
        ("git push --force *", "git push origin main", "allow"),
        ("rm -rf *", "rm -f -r x", "deny"),
        ("rm -rf *", "rm x", "allow"),
        ("npm publish *", "npm --prefix sub publish", "ask"),
        ("rm *", 'perl -e \'unlink; exec "rm", "x"\'', "ask"),
        ("rm *", "weird-runner rm x", "ask"),
        ("rm *", "uv run rm x", "ask"),
        ("rm *", "echo rm x", "allow"),
        ("rm *", "git commit -m 'rm x'", "allow"),
        ("rm *", "grep -rn rm .", "allow"),
        ("rm *", "docker run --rm image ls", "allow"),
    ],
)
def test_a_rule_that_denies_means_the_program_however_it_is_started(
    rule: str, line: str, expected: str
) -> None:
    assert (
        verdict(command(line), PermissionMode.ALLOW_ALL, PermissionRule("deny", command=rule))
        == expected
    )


@pytest.mark.parametrize(
    ("line", "remembered"),
    [
        ("git status -s", "git status *"),
        ("pytest -q tests", "pytest *"),
        ("python x.py", "python x.py"),
        ("bash -c 'rm x'", "bash -c 'rm x'"),
        ("./run.sh now", "./run.sh now"),
        ("python3.11 -m pytest", "python3.11 -m pytest"),
        ("uv run pytest", "uv run pytest"),
        ("tar xf a.tar", "tar xf a.tar"),
        ("git config user.name x", "git config user.name x"),
        ("cargo test -q", "cargo test *"),
        ("git -c a=b log", "git -c a=b log"),
    ],
)
def test_always_means_this_kind_of_command_and_no_more(line: str, remembered: str) -> None:
    rules = rules_to_offer(command(line))
    assert rules[0].command == remembered
    assert all(rules_allow_action([rule], command(line)) for rule in rules)


@pytest.mark.parametrize(
    "line",
    [
        "git log | sh",
        "ls *.py",
        "echo $HOME",
        "",
        "A=1 ls",
        "command ls",
        "exec ls",
        "~/ls",
        "'time' ls",
    ],
)
def test_always_is_not_offered_for_what_no_rule_can_describe(line: str) -> None:
    assert rules_to_offer(command(line)) == ()
    decision = decide_permission(command(line), PermissionMode.ASK, (), sandboxed=True)
    assert decision.scopes == ("once",)
    assert "can only be allowed once" in decision.reason or decision.separate_permission == "hidden"


def test_the_user_is_shown_the_rule_and_narrower_ones() -> None:
    rules = rules_to_offer(command("git log -3 --stat", network=True))
    assert [describe_allowing_rule(rule) for rule in rules] == [
        "git log * (with network access)",
        "git log -3 * (with network access)",
        "git log -3 --stat * (with network access)",
        "git log -3 --stat (with network access)",
    ]
    fetch = ToolAction("fetch_url", ActionEffect.FETCH, "", "", path="https://a.b/c")
    assert [describe_allowing_rule(rule) for rule in rules_to_offer(fetch)] == ["https://a.b/c"]


def test_rules_come_back_from_the_settings_as_they_were() -> None:
    rule = PermissionRule("allow", "run_command", command="git *", network=True)
    assert rule.as_rule_table() == {
        "decision": "allow",
        "tool": "run_command",
        "command": "git *",
        "network": True,
    }
    assert PermissionRule.parse_permission_rule(rule.as_rule_table()) == rule


@pytest.mark.parametrize(
    "values", [{}, {"decision": "yes"}, {"decision": "allow", "comand": "x"}, {"tool": "x"}]
)
def test_a_mistake_in_a_rule_is_never_a_permission(values: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        PermissionRule.parse_permission_rule(values)


@pytest.mark.parametrize(
    ("action", "sandboxed", "expected"),
    [
        (READ, True, "allow"),
        (EDIT, True, "deny"),
        (command("ls"), True, "ask"),
        (command("ls"), False, "deny"),
        (command("ls", network=True), True, "deny"),
        (command("ls", network=True), False, "deny"),
        (ToolAction("run_command", ActionEffect.RUN, "", "ls", command="ls", reason_to_ask="outside the sandbox"), True, "deny"),
        (FOREIGN, True, "deny"),
        (ToolAction("github__issue", ActionEffect.FOREIGN, "", "{}", only_reads=True), True, "ask"),
    ],
)  # fmt: skip
def test_plan_mode_lets_only_happen_what_changes_nothing(
    action: ToolAction, *, sandboxed: bool, expected: str
) -> None:
    """Whatever the rules allow: a sandboxed command with the network once passed
    unnoticed by every test.
    """
    rules = [PermissionRule("allow", action.tool)] if expected == "deny" else []
    assert verdict(action, PermissionMode.PLAN, *rules, sandboxed=sandboxed) == expected


@pytest.mark.parametrize(
    ("action", "rule", "expected"),
    [
        (RUN, PermissionRule("allow", "edit_file"), "ask"),
        (EDIT, PermissionRule("allow", "run_command"), "ask"),
        (RUN, PermissionRule("allow", path="src/*"), "ask"),
        (EDIT, PermissionRule("allow", command="git *"), "ask"),
        (command("git log | tee log; date"), PermissionRule("allow", "run_command"), "allow"),
    ],
)
def test_a_rule_allows_nothing_but_what_it_is_about(
    action: ToolAction, rule: PermissionRule, expected: str
) -> None:
    assert verdict(action, PermissionMode.ASK, rule) == expected


def verdict_where_denied(action: ToolAction, **rule: Any) -> str:
    """What becomes of an action where everything is allowed but what this rule denies."""
    return verdict(action, PermissionMode.ALLOW_ALL, PermissionRule("deny", **rule))


@pytest.mark.parametrize(
    "rule",
    [
        {"tool": "edit_file"},
        {"tool": "edit_file", "network": True},
        {"network": True},
        {"path": "src/*"},
    ],
)
def test_a_rule_that_denies_something_else_holds_back_no_command(rule: dict[str, Any]) -> None:
    assert verdict_where_denied(RUN, **rule) == "allow"


def test_a_rule_that_denies_the_network_holds_back_what_wants_it_and_its_tool_counts() -> None:
    fetch = command("git fetch", network=True)
    assert verdict_where_denied(fetch, network=True) == "deny"
    assert verdict_where_denied(fetch, tool="edit_file", network=True) == "allow"


def test_a_rule_that_denies_a_command_holds_back_no_edit() -> None:
    assert verdict_where_denied(EDIT, command="git *") == "allow"


def denied_lines(pattern: str, *lines: str) -> dict[str, str]:
    """What becomes of each command line where a rule denies this pattern."""
    return {line: verdict_where_denied(command(line), command=pattern) for line in lines}


def test_options_of_a_rule_are_found_in_a_command_and_all_of_them_must_be_there() -> None:
    assert denied_lines("rm -r", "rm -r x") == {"rm -r x": "deny"}
    assert denied_lines("rm -rf", "rm -f x", "rm -r x") == {"rm -f x": "allow", "rm -r x": "allow"}


def test_a_long_option_is_the_same_with_a_value_or_cut_short_and_not_with_more_letters() -> None:
    assert denied_lines(
        "git push --force",
        "git push --force=main",
        "git push --forc=main",
        "git push --forceful",
    ) == {
        "git push --force=main": "deny",
        "git push --forc=main": "deny",
        "git push --forceful": "allow",
    }
    assert denied_lines("rm --recursive *", "rm --recurs x") == {"rm --recurs x": "deny"}
    assert denied_lines("rm --recursive", "rm -- x") == {"rm -- x": "allow"}


def test_a_star_within_a_word_stands_for_letters() -> None:
    assert denied_lines("git push --fo*ce", "git push --force") == {"git push --force": "deny"}
    assert denied_lines(
        "git push --force*",
        "git push --force-with-lease",
        "git push",
        "eval git push --force-with-lease $X",
    ) == {
        "git push --force-with-lease": "deny",
        "git push": "allow",
        "eval git push --force-with-lease $X": "deny",
    }
    assert denied_lines("rm -r*", "rm -fr a") == {"rm -fr a": "deny"}


def test_a_star_at_the_end_of_a_word_takes_longer_words_and_one_behind_it_does_not() -> None:
    assert denied_lines("git push*", "git pushall") == {"git pushall": "deny"}
    assert denied_lines("rm*", "rmdir a") == {"rmdir a": "deny"}
    assert denied_lines("rm *", "rmdir a") == {"rmdir a": "allow"}


def test_a_word_that_nobody_knows_is_asked_about_where_it_could_be_what_is_denied() -> None:
    assert denied_lines("git push", "git $what", "git status $what") == {
        "git $what": "ask",
        "git status $what": "allow",
    }
    assert denied_lines(
        "git push --force",
        "git push $what",
        "git push origin $what",
        "git push origin *",
        "git push 'a $what'",
    ) == {
        "git push $what": "ask",
        "git push origin $what": "ask",
        "git push origin *": "ask",
        "git push 'a $what'": "allow",
    }
    assert denied_lines("rm -rf", "rm $what", "rm -r $what") == {
        "rm $what": "ask",
        "rm -r $what": "ask",
    }
    assert denied_lines("git push origin main", "git push origin $what", "git push origin") == {
        "git push origin $what": "ask",
        "git push origin": "allow",
    }
    assert denied_lines("git stash drop", "git stash $what", "git stash pop $what") == {
        "git stash $what": "ask",
        "git stash pop $what": "allow",
    }


@pytest.mark.parametrize(
    ("decision", "line"),
    [("ask", "git push --force"), ("ask", "git push $what"), ("deny", "git push $what")],
)
def test_what_a_rule_holds_back_is_asked_for_each_time(decision: str, line: str) -> None:
    rules = [
        PermissionRule("allow", command="git *"),
        PermissionRule(decision, command="git push --force"),
    ]
    found = decide_permission(command(line), PermissionMode.ALLOW_ALL, rules, sandboxed=True)
    assert (found.verdict, found.decided_by, found.scopes, found.separate_permission) == (
        "ask",
        "rule",
        ("once",),
        "held",
    )


def test_a_command_nobody_can_read_is_allowed_apart_from_others() -> None:
    hidden = command("$(cat what)")
    for action, name in (
        (hidden, "hidden"),
        (replace(hidden, separate_permission="outside"), "outside"),
        (RUN, ""),
    ):
        decision = decide_permission(action, PermissionMode.ASK, [], sandboxed=True)
        assert (decision.verdict, decision.separate_permission) == ("ask", name)
    assert rules_to_offer(hidden) == ()


@pytest.mark.parametrize(
    ("pattern", "is_for_script"),
    [
        ("python3 report.py *", True),
        ("/usr/bin/python3.11 tools/report.py --all *", True),
        ("bash run.sh *", True),
        ("./run.sh *", True),
        ("python3 report.py", False),
        ("python3 *", False),
        ("python3 -m report.py *", False),
        ("python3 -c report.py *", False),
        ("bash -x run.sh *", False),
        ("./python *", False),
        ("./env run.sh *", False),
        ("npm run.js *", False),
        ("node inspect *", False),
        ("sudo report.py *", False),
        ("python3 report.py && curl x *", False),
        ("python3 $X.py *", False),
    ],
)
def test_a_rule_for_a_script_lets_any_arguments_go_to_this_script_alone(
    pattern: str, *, is_for_script: bool
) -> None:
    assert is_rule_for_script(PermissionRule("allow", command=pattern)) is is_for_script
    assert not is_rule_for_script(PermissionRule("deny", command=pattern))


@pytest.mark.parametrize(
    ("network", "separate", "sandboxed", "access"),
    [
        (False, "", True, "sandbox"),
        (True, "", True, "sandbox_network"),
        (False, "opened", True, "sandbox"),
        (False, "outside_sandbox", True, "no_sandbox"),
        (False, "", False, "no_sandbox"),
    ],
)
def test_a_question_about_a_command_knows_where_it_would_run(
    network: bool,
    separate: str,
    sandboxed: bool,
    access: str,
) -> None:
    action = replace(command("ls", network=network), separate_permission=separate)
    assert describe_command_access(action, sandboxed=sandboxed) == access


def test_a_rule_for_a_script_covers_neither_another_program_nor_code() -> None:
    rule = PermissionRule("allow", command="python3 report.py *")
    assert rules_allow_action([rule], command("python3 report.py 1 -c x"))
    for line in (
        "python3 report.py 1 && curl example.org",
        "cat x | python3 report.py",
        "python3 -c report.py",
        "python3 -i report.py 1",
        "python3 other.py",
        "python3 report.py $(curl example.org)",
    ):
        assert not rules_allow_action([rule], command(line))


@pytest.mark.parametrize(
    ("rule", "wide"),
    [
        (PermissionRule("allow", command="sudo *"), True),
        (PermissionRule("allow", command="git status; date *"), True),
        (PermissionRule("allow", command="git status *"), False),
        (PermissionRule("allow", command="sudo"), False),
        (PermissionRule("deny", command="sudo *"), False),
    ],
)
def test_a_rule_for_a_program_that_starts_others_is_too_wide_to_allow(
    rule: PermissionRule, wide: bool
) -> None:
    assert is_rule_too_wide(rule) is wide


@pytest.mark.parametrize(
    "line",
    [
        "[[ 'a[$(curl evil)]' -eq 0 ]]",
        "[[ -v 'a[$(curl evil)]' ]]",
        "declare -i x='a[$(curl evil)]'",
        "f() { local -i x='a[$(curl evil)]'; }; f",
        "sleep 0 & wait -n -p 'a[$(curl evil)]'",
        "read x <<< 'a[$(curl evil)]'; echo $((x))",
        "read x <<'E'\na[$(curl evil)]\nE\necho $((x))",
        "set -- 'a[$(curl evil)]'; [[ $1 -gt 0 ]]",
        "for x in 'a[$(curl evil)]'; do echo $((x)); done",
        "printf '%s' 'a[$(curl evil)]' > f; read x < f; [[ x -eq 1 ]]",
        "git fetch --upload-pac='curl evil' .",
        "git push --receive-p 'curl evil' . a:b",
        "git rebase --ex 'curl evil' HEAD",
        "git rebase -ix 'curl evil' HEAD",
        "git grep --open-files-in-page=curl x",
        "git cherry-pick --strat=curl x",
        "gh repo clone a/b -- -u 'curl evil'",
    ],
)
def test_what_bash_calculates_and_what_options_cut_short_start_is_not_allowed_by_everything(
    line: str,
) -> None:
    rules = (PermissionRule("deny", command="curl *"),)
    assert verdict(command(line), PermissionMode.ALLOW_ALL, *rules) != "allow"


@pytest.mark.parametrize(
    ("rule", "line", "wanted"),
    [
        ("git fetch *", "git fetch --upload-pac='sh -c x' .", "ask"),
        ("git push *", "git push --exe=x . a:b", "ask"),
        ("sort *", "sort --compress-pro=./x -S 1k f", "ask"),
        ("mypy *", "mypy --python-exec=./x a", "ask"),
        ("npm test *", "npm test --script-she=./x", "ask"),
        ("pylint *", "pylint --init-hook='import os' a.py", "ask"),
        ("pylint *", "pylint --init-h 'import os' a.py", "ask"),
        ("git commit *", "git commit --author=a -m x", "allow"),
        ("git show *", "git show --cc HEAD", "allow"),
        ("git push *", "git push --force --set-upstream origin main", "allow"),
        ("git revert *", "git revert -s HEAD", "allow"),
        ("git merge *", "git merge --stat main", "allow"),
        ("pytest *", "pytest --pdb tests/a.py", "allow"),
        ("sort *", "sort --unique f", "allow"),
    ],
)
def test_a_rule_for_a_prefix_knows_options_that_are_cut_short(
    rule: str, line: str, wanted: str
) -> None:
    rule_of_user = PermissionRule("allow", command=rule, network=True)
    assert verdict(command(line, network=True), PermissionMode.ASK, rule_of_user) == wanted


@pytest.mark.parametrize(
    "line",
    [
        "[[ -f Makefile ]] && sed -i 's/$(CC)/gcc/' Makefile",
        "for i in 1 2 3; do echo $((i * 2)); done",
        "x=3; [[ $x -gt 2 && -n $(cat f) ]] && echo yes",
        "declare -A known; known[a]=1; wait",
        "grep '$(CC)' Makefile; wait $!",
    ],
)
def test_ordinary_calculations_hide_nothing(line: str) -> None:
    assert isinstance(find_started_programs(line), KnownPrograms)


def test_a_rule_is_tried_as_it_would_decide() -> None:
    allow_ls = PermissionRule("allow", tool="run_command", command="ls *")
    assert does_rule_fit(allow_ls, "ls -la")
    assert not does_rule_fit(allow_ls, "ls; rm -r build")
    assert not does_rule_fit(allow_ls, 'eval "$X"'), "nobody knows what it runs"
    deny_push = PermissionRule("deny", command="git push *")
    assert does_rule_fit(deny_push, "cd a && git push --force")
    edits = PermissionRule("allow", tool="edit_file", path="docs/*")
    assert does_rule_fit(edits, "docs/a.md")
    assert not does_rule_fit(edits, "src/a.py")


@pytest.mark.parametrize(
    ("line", "risk"),
    [
        ("git push --force origin main", "overwrites on server"),
        ("git push -fu origin main", "overwrites on server"),
        ("git push origin +main", "overwrites on server"),
        ("git push --force-with-lease=main:abc origin", "overwrites on server"),
        ("git -C other push --force", "overwrites on server"),
        ("git push origin :old", "deletes on server"),
        ("git push origin main", ""),
        ("git push --follow-tags", ""),
        ("git reset --hard HEAD~3", "discards changes"),
        ("git reset HEAD a.py", ""),
        ("git clean -xdf", "deletes unknown files"),
        ("git branch -D topic", "deletes branch"),
        ("git branch -d topic", ""),
        ("sudo apt-get update", "administrator"),
        ("npm publish --access public", "publishes"),
        ("npm run publish", ""),
    ],
)
def test_what_a_person_should_notice_about_a_command_is_marked(line: str, risk: str) -> None:
    """`git push --force` stood on the card like any other program."""
    programs = list_asked_programs(command(line), ())
    assert risk in {program.risk for program in programs}
    if not risk:
        assert {program.risk for program in programs} == {""}


def test_every_risk_has_words_for_the_card() -> None:
    uses = resources.read_table("risky_uses")["uses"]
    words = resources.read_json_resource("shown_names.json")["risk of a program"]
    assert {use["risk"] for use in uses} == set(words)


def test_a_rule_without_the_network_is_named_as_the_reason_to_ask() -> None:
    """The card said that commands are asked about here, though a rule allowed this one."""
    action = command("git fetch", network=True)
    rules = [PermissionRule("allow", tool="run_command", command="git fetch")]
    decision = decide_permission(action, PermissionMode.ASK, rules, sandboxed=True)
    assert (decision.verdict, decision.reason) == (
        "ask",
        "a rule in this workspace allows it, but not with network access",
    )


@pytest.mark.parametrize(
    ("rule", "nothing", "everything"),
    [
        (PermissionRule("allow", command="*"), True, False),
        (PermissionRule("allow", tool="run_command"), False, True),
        (PermissionRule("allow"), False, True),
        (PermissionRule("allow", tool="edit_file"), False, False),
        (PermissionRule("allow", command="git status *"), False, False),
        (PermissionRule("deny", command="*"), False, False),
        (PermissionRule("deny"), False, False),
    ],
)
def test_rules_that_allow_nothing_or_every_command_are_known(
    rule: PermissionRule, nothing: bool, everything: bool
) -> None:
    assert (covers_nothing(rule), covers_every_command(rule)) == (nothing, everything)
