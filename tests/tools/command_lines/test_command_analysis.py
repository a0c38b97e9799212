from __future__ import annotations

import pytest

from helix_desktop.tools.command_lines import command_analysis
from helix_desktop.tools.command_lines.command_analysis import (
    KnownPrograms,
    UnknownPrograms,
    find_started_programs,
)
from helix_desktop.tools.command_lines.program_finder import program_base_name
from helix_desktop.tools.command_lines.shell_parser import ANY, MANY


def started(line: str) -> list[str]:
    known = find_started_programs(line)
    assert isinstance(known, KnownPrograms), f"{line}: {known}"
    return [
        " ".join(one.words).replace(MANY, "…").replace(ANY, "?")
        for one in known.all_programs
        if one.is_certain
    ]


STARTS_RM = (
    "A=1 rm x", "/bin/rm x", "'rm' x", "env A=1 rm x", "env -i -u B rm x", "env -S 'rm x'", "nice -n 5 rm x", "nice -5 rm x",
    "nohup rm x", "setsid -w rm x", "sudo -u root A=1 rm x", "doas -u root rm x", "timeout -k 1 --signal=KILL 5 rm x", "stdbuf -oL rm x",
    "ionice -c 3 rm x", "time -p rm x", "/usr/bin/time -f %e rm x", "command -p rm x", "exec -a ls rm x", "builtin rm x",
    "flock /tmp/l rm x", "flock /tmp/l -c 'rm x'", "script -qc 'rm x' /dev/null", "script /dev/null -c 'rm x'", "unshare -Ur rm x",
    "su root -c 'rm x'", "runuser -u me -- rm x", "chroot / rm x", "busybox rm x", "busybox sh -c 'rm x'", "watch -n 1 rm x",
    "bash -c 'rm x'", "bash -lc 'rm x'", "bash -o pipefail -c 'rm x'", "sh -c 'sh -c \"rm x\"'", "eval 'rm x'", "trap 'rm x' EXIT",
    "echo x | xargs rm", "xargs -n1 -I{} sh -c 'rm x'", "find . -exec rm {} +", "find . -name a -ok rm {} \\; -print", "parallel rm ::: x",
    "git submodule foreach 'rm x'", "git bisect run rm x", "git rebase -x 'rm x' main", "tar --to-command='rm x' -xf a", "tar --checkpoint-action=exec='rm x' -cf a b",
    "sort --compress-program=rm a", "rsync -e 'rm x' a b", "GIT_PAGER='rm x' git log", "fd -x rm x", "f() { rm x; }; f", "echo $(rm x)", "ls & rm x", "a | b |& rm x",
)  # fmt: skip


def test_a_program_is_found_behind_what_starts_it() -> None:
    for line in STARTS_RM:
        known = find_started_programs(line)
        assert isinstance(known, KnownPrograms), line
        certain = {program.program_name for program in known.all_programs if program.is_certain}
        assert "rm" in certain, line


def test_each_program_comes_with_its_own_words() -> None:
    assert started("timeout 5 env A=1 git -C sub push origin | tail -1") == [
        "timeout 5 env A=1 git -C sub push origin",
        "env A=1 git -C sub push origin",
        "git -C sub push origin",
        "git push origin",
        "tail -1",
    ]
    assert started("find . -name '*.pyc' -exec rm -f {} +")[1] == "rm -f …"


HIDDEN_BY_SHELL = (
    "$X foo", '"$X" foo', "$(echo rm) x", "r? x", "/bin/r* x", "{rm,x}", "rm{,} x", "eval $x", "echo rm x | sh", "curl -s u | bash -s", "bash <<< 'rm x'",
    'bash -c "$x"', "sh -c '$0 x' rm", "sh -c '\"$@\"' _ rm x", "xargs -I{} {} x", "xargs sh -c", "find . -exec {} \\;", "env $x", "timeout $t rm x", "sudo $x",
    "sudo -s", "source <(echo rm)", ". /dev/stdin", "alias ls=rm", "hash -p /bin/rm ls", "enable -f x y", "BASH_ENV=x bash y", "PS4='$(rm x)' bash -x y",
    "printf -v PATH /tmp", "export $x=1", "declare -n a=PATH", "echo rm > s; sh s", "cp /bin/rm ./ls; ./ls x", "ln -s /bin/rm a && PATH=. a x", "x='a[$(rm x)]'; echo $((x))",
    "make -f - x", "zsh -c 'rm x'", "sh -c '[[ a && rm x ]]'", "sh -c '((rm x))'", "parallel ::: 'rm x'", "script x", "f() { $1 x; }; f rm", 'trap "$x" EXIT',
)  # fmt: skip


def test_what_the_shell_hides_is_unknown() -> None:
    for line in HIDDEN_BY_SHELL:
        assert isinstance(find_started_programs(line), UnknownPrograms), line


@pytest.mark.parametrize(
    "line",
    [
        'cd src && for f in *.py; do wc -l "$f"; done | sort -n | tail -5', "n=$(wc -l < f); echo $((n + 1))", "python3 - <<'E'\nprint(1)\nE", "bash run.sh a b",
        "make test", "npm run build", "source .venv/bin/activate && pytest -q", "export PATH=$PATH:/usr/local/go/bin && go test ./...", "git commit -m \"$(cat <<'E'\nfix\nE\n)\"",
        "[ -f x ] || touch x", "chmod +x run.sh && ./run.sh", "grep -rn 'rm -rf' . | head", "cat > a.py <<'E'\nimport os\nE\npython a.py", "xargs -0 grep x < list", 'while IFS= read -r l; do echo "$l"; done < f',
    ],
)  # fmt: skip
def test_what_agents_write_every_day_is_known(line: str) -> None:
    known = find_started_programs(line)
    assert isinstance(known, KnownPrograms), known
    assert not known.doubts


@pytest.mark.parametrize(
    "line",
    [
        "python -c 'print(1)'", "python3.11 -Ic 'x'", "perl -ne 'x'", "node --eval x", "ruby -e x", "awk '{print $1}' f", "sed -n 1p f", "vim -c x f", "python -", "timeout 5 python -c x",
        "env python3 -c x", "php -r x", "xargs perl -e x",
    ],
)  # fmt: skip
def test_code_in_a_command_is_told(line: str) -> None:
    known = find_started_programs(line)
    assert isinstance(known, KnownPrograms)
    assert any(one.has_own_code for one in known.commands)


@pytest.mark.parametrize(
    "line", ["python x.py -c", "python -m pytest -c x", "pytest -q", "perl x.pl -e", "node x.js"]
)
def test_a_script_with_options_of_its_own_is_no_code_in_a_command(line: str) -> None:
    known = find_started_programs(line)
    assert isinstance(known, KnownPrograms)
    assert not any(one.has_own_code for one in known.commands)


@pytest.mark.parametrize(
    "line",
    [
        "git -c alias.p=push p", "git p", "git -c core.pager=x log", "git config alias.p push", "sed '1e x' f", "sed 's/a/b/e' f", "awk 'BEGIN{system(x)}'", "python -c 'import subprocess'",
        "echo x | python", "make --eval='x:;y'", "git --exec-path=x log", "git clone ext::x y", "git difftool -x y", "strace --new $x",
    ],
)  # fmt: skip
def test_what_may_start_something_unseen_is_doubted(line: str) -> None:
    known = find_started_programs(line)
    assert isinstance(known, KnownPrograms), known
    assert known.doubts


def test_words_behind_options_nobody_knows_are_guesses() -> None:
    known = find_started_programs("unshare --something new rm x")
    assert isinstance(known, KnownPrograms)
    assert {one.program_name for one in known.all_programs if not one.is_certain} >= {"new", "rm"}


def test_the_name_of_a_program() -> None:
    assert [
        program_base_name("/usr/bin/rm"),
        program_base_name("./a"),
        program_base_name("git"),
    ] == ["rm", "a", "git"]


@pytest.mark.parametrize(
    ("begin", "repeated", "end"),
    [
        ("sed '", "/", "'"), ("sed '", "\n", "'"), ("sed '1", " ", "x'"), ("sed -i '", "s/old_name/new_name/;", "' src/a.py"),
        ("echo ", "a", "$x"), ("echo ", "{", ""), ("echo {", ",", ""),
    ],
)  # fmt: skip
def test_what_a_long_line_starts_is_found_in_time_that_grows_with_its_length(
    begin: str, repeated: str, end: str
) -> None:
    """A model writes these lines, and the window waits: some of them would have taken
    longer than anybody lives.
    """
    for times in (50, 90_000 // len(repeated)):
        assert isinstance(find_started_programs(f"{begin}{repeated * times}{end}"), KnownPrograms)


@pytest.mark.parametrize(
    ("script", "runs"),
    [
        ("s/a/b/e", True), ("s/a/b/ge", True), ("s|a|b|Ie", True), ("1e x", True), ("1 ! e x", True), ("x\n\n e x", True), ("$!e", True),
        ("s/a/b/g", False), ("y/abc/xyz/", False), ("s/one/e/;s|two|e|", False), ("1p\n2d", False),
    ],
)  # fmt: skip
def test_sed_is_told_to_run_something(script: str, runs: bool) -> None:
    known = find_started_programs(f"sed '{script}' f")
    assert isinstance(known, KnownPrograms)
    assert bool(known.doubts) == runs


@pytest.mark.parametrize("opening", ["${a:-", '"${a:-', "$((", "$(", "<("])
def test_what_is_nested_too_deeply_is_unknown(opening: str) -> None:
    assert find_started_programs(f"echo {opening * 10_000}") == UnknownPrograms(
        "it is nested too deeply"
    )


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        ("ls", ["ls *", "ls"]),
        ("ls -l a", ["ls *", "ls -l *", "ls -l a *", "ls -l a"]),
        ("git log -3", ["git log *", "git log -3 *", "git log -3"]),
        (
            "gh pr list -L 3",
            ["gh pr list -L 3", "gh pr list -L 3 *", "gh pr list -L *", "gh pr list *"],
        ),
        # One click allows what is changed here and nothing else.
        (
            "git commit -m 'a b'",
            ["git commit -m 'a b'", "git commit -m 'a b' *", "git commit -m *", "git commit *"],
        ),
        ("python3 x.py", ["python3 x.py"]),
    ],
)
def test_a_rule_may_allow_more_arguments_only_where_none_starts_a_program(
    line: str, rules: list[str]
) -> None:
    known = find_started_programs(line)
    assert isinstance(known, KnownPrograms)
    (command,) = known.commands
    assert command_analysis.suggest_rule_commands(command) == rules


@pytest.mark.parametrize(
    ("words", "count", "name"),
    [
        (["ls", "-l"], 1, "ls"),
        (["git", "log", "-3"], 2, "git log"),
        (["git", "-C", "x"], 0, "git"),
        (["git"], 0, "git"),
        (["gh", "pr", "list", "-L", "3"], 3, "gh pr list"),
        (["gh", "pr"], 0, "gh pr"),
        (["unknown", "words"], 0, "unknown"),
    ],
)
def test_a_command_is_called_by_as_many_words_as_a_rule_must_name(
    words: list[str], count: int, name: str
) -> None:
    assert command_analysis.count_safe_prefix(words) == count
    assert command_analysis.is_safe_prefix(words) == (count > 0)
    assert command_analysis.name_of_command(words) == name


def test_files_are_named_where_every_operand_is_one() -> None:
    assert command_analysis.list_deleted_files(["rm", "-rf", "a", f"b{ANY}"]) == ("a", "b…")
    assert command_analysis.list_deleted_files(["ls", "a"]) == ()
    assert command_analysis.list_written_files(["touch", "-c", "a", "b"]) == ("a", "b")
    assert command_analysis.list_written_files(["cat", "a"]) == ()
    assert command_analysis.describe_word(f"{MANY} x{ANY}") == "… x…"
