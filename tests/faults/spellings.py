"""Command lines in every spelling: what a real shell starts is compared with what was
read from the line.

    python -m tests.faults.spellings [--lines 20000] [--seed 1]

Two parts. Denied commands are wrapped in everything that can start a program, up to
three deep; none may be let through in the mode that allows all. Then lines are thrown
together from a shell's tokens and run by a real bash, in a folder of its own where
every program only writes down that it was started: what was started and not read from
the line is a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from helix_desktop.tools.command_lines.command_analysis import KnownPrograms, find_started_programs
from helix_desktop.tools.permission import (
    ActionEffect,
    PermissionMode,
    PermissionRule,
    ToolAction,
    decide_permission,
)

DENIED = ("rm -rf x", "rm x", "git push origin", "git push --force", "curl http://a")
RULES = (
    PermissionRule("deny", command="rm *"),
    PermissionRule("deny", command="git push *"),
    PermissionRule("ask", command="curl *"),
)
# {} is the command as words, {q} the same as one quoted word.
WRAPS = (
    "{}", "A=1 {}", "A=1 B='2 3' {}", "env {}", "env -i PATH=$PATH {}", "env A=b {}", "env -u A {}", "env -S {q}", "/usr/bin/env {}", "nice {}", "nice -n 5 {}", "nice --adjustment=5 {}", "nohup {}", "nohup {} >/dev/null 2>&1 &",
    "setsid {}", "setsid -f -w {}", "timeout 5 {}", "timeout -s KILL -k 1 5s {}", "timeout --preserve-status 5 {}", "stdbuf -o0 {}", "stdbuf -oL -eL {}", "sudo {}", "sudo -n -u root {}", "sudo -- {}", "doas {}", "ionice -c2 -n7 {}",
    "chrt -b 0 {}", "taskset -c 0 {}", "taskset 1 {}", "time {}", "time -p {}", "command {}", "command -p -- {}", "exec {}", "exec -a x {}", "builtin command {}", "busybox {}", "busybox sh -c {q}", "bash -c {q}", "sh -c {q}",
    "bash -lc {q}", "bash -euo pipefail -c {q}", "bash --norc -c {q}", "dash -c {q}", "/bin/sh -ec {q}", "zsh -c {q}", "eval {q}", "eval {}", "trap {q} EXIT", "echo {q} | sh", "echo {q} | bash -s", "printf %s {q} | bash", "bash <<< {q}",
    "bash <<'E'\n{}\nE", "sh <<E\n{}\nE", "cat <<'E' | sh\n{}\nE", ". <(echo {q})", "source /dev/stdin <<< {q}", "echo {q} > s.sh; sh s.sh", "echo {q} > s.sh; chmod +x s.sh; ./s.sh", "echo {q} > s.sh && . ./s.sh", "tee s.sh <<< {q}; bash s.sh",
    "xargs {} < /dev/null", "echo x | xargs {}", "echo x | xargs -n1 -I{{}} {} {{}}", "echo {q} | xargs -I{{}} sh -c {{}}", "echo {q} | xargs env", "find . -maxdepth 0 -exec {} \\;", "find . -exec {} {{}} +",
    "find . -ok {} \\;", "find . -exec sh -c {q} \\;", "parallel {} ::: a", "parallel ::: {q}", "echo a | parallel {}", "flock /tmp/l {}", "flock -n /tmp/l -c {q}", "script -qc {q} /dev/null", "script /dev/null -c {q}", "unshare -r {}",
    "unshare --map-root-user --pid --fork {}", "watch -n1 {q}", "watch {}", "su -c {q}", "su root -c {q}", "runuser -u root -- {}", "chroot / {}", "strace -f {}", "strace -e trace=open -o /dev/null {}", "xvfb-run -a {}", "dbus-run-session -- {}", "systemd-run --user {}",
    "( {} )", "{{ {}; }}", "( ( {} ) )", "if true; then {}; fi", "while {}; do break; done", "until {}; do :; done", "for i in 1; do {}; done", "for ((i=0;i<1;i++)); do {}; done", "case a in a) {};; esac", "case a in (b|a) {} ;; esac",
    "! {}", "true && {}", "false || {}", "true; {}", "true & {}", "true | {}", "true |& {}", "true\n{}", "f() {{ {}; }}; f", "function f {{ {}; }}; f", "f() ( {} ); f", 'f() {{ "$@"; }}; f {}', "f() {{ $1 x; }}; f {}", "echo $( {} )", "echo `{}`",
    'echo "$( {} )"', "x=$( {} )", "cat <( {} )", "echo > >( {} )", "cat <<E\n$( {} )\nE", "cat <<E\n`{}`\nE", ": ${{x:=$( {} )}}", "echo ${{x:-$( {} )}}", "[[ -n $( {} ) ]]", "(( $( {} ) + 1 ))", "echo $(( $( {} ) ))", "a=( $( {} ) )", "select i in 1; do {}; done <<< 1",
    "coproc {}", "coproc X {{ {}; }}", ">/dev/null {}", "2>&1 {}", "</dev/null {}", "{{fd}}>/dev/null {}", "{} &", "alias z={q}; z", "shopt -s expand_aliases\nalias z={q}\nz", "x={q}; $x", "x={q}; eval $x", 'x={q}; eval "$x"', 'x={q}; bash -c "$x"', "x={q} bash -c '$x'",
    "awk 'BEGIN{{system(\"{}\")}}'", "perl -e 'system(\"{}\")'", "python3 -c 'import os; os.system(\"{}\")'", "ruby -e 'system(\"{}\")'", "node -e 'require(\"child_process\").execSync(\"{}\")'", "sed '1e {}' /etc/passwd", "vim -c '!{}' -c q", "git -c alias.z='!{}' z", "git -c core.pager={q} log",
    "GIT_PAGER={q} git log", "GIT_SSH_COMMAND={q} git fetch", "PAGER={q} man x", "tar cf /dev/null --checkpoint=1 --checkpoint-action=exec={q} .", "tar --to-command={q} -xf x", "tar -I {q} -cf x y", "rsync -e {q} a b:c", "sort --compress-program={q} x", "make -f - <<< {q}", "make SHELL={q} x", "make --eval={q}",
    "git submodule foreach {q}", "git bisect run {}", "git rebase -x {q} HEAD", "git filter-branch --tree-filter {q}", "uv run {}", "poetry run {}", "npx {}", "npm exec -- {}", "docker run x {}", "ssh host {}", "tmux new -d {q}", "screen -dm {}", "at now <<< {q}", "crontab - <<< {q}", "expect -c 'spawn {}'",
    "PS4='$({})'; set -x; true", "BASH_ENV=<(echo {q}) bash -c true", "ENV=x sh -i", "x='a[$({})]'; echo $((x))", "x='a[$({})]'; [[ -v $x ]]", "declare 'a[$({})]=1'", "printf -v 'a[$({})]' x", "mapfile -C {q} -c 1 < /etc/passwd", "compgen -C {q}", "complete -C {q} x", "hash -p /bin/rm ls; ls x",
    "enable -f x y; {}", "gdb -batch -ex 'shell {}'", "sqlite3 :memory: '.shell {}'", "ed <<< '!{}'", "socat - EXEC:{q}", "nc -e {q} h 1", "valgrind {}", "ltrace {}", "proot {}", "fakeroot {}", "eatmydata {}", "prlimit --nofile=10 {}", "numactl -N 0 {}", "setarch -R {}", "linux64 {}", "capsh -- -c {q}", "setpriv --reuid=0 {}", "nsenter -t 1 {}",
)  # fmt: skip
PROGRAMS = ("aa", "bb", "cc", "rm", "git", "sudo")
TOKENS = (
    *PROGRAMS, *PROGRAMS, "x", "y", "-x", "--", "1", "a=b", "x=aa", "$x", "${x}", "$(", ")", "`", "'", '"', "\\", "\\\n", "\n", ";", "&", "&&", "||", "|", "|&", "(", "{", "}", " ", " ", " ", "!", "#", "<", ">", ">>", "<<E", "<<'E'", "\nE\n", "<<<", "<(", ">(", "2>", "&>", "/dev/null",
    "if", "then", "else", "fi", "for", "in", "do", "done", "while", "case", "esac", ";;", "[[", "]]", "((", "))", "$((", "f()", "f", "function", "time", "env", "nice", "xargs", "eval", "exec", "command", "sh -c", "bash -c", "find . -maxdepth 0 -exec", "\\;", "+", "$'\\x61a'", '$"', "~", "*", "?", "[", "]", "{aa,bb}", "=", "timeout 1", "true", "false", "echo", "trap", "EXIT", "@", "%",
)  # fmt: skip
SHAPES = (
    "{}", "{} {}", "{}; {}", "( {} )", "{{ {}; }}", "if {}; then {}; else {}; fi", "for i in {}; do {}; done", "while {}; do {}; break; done", "case {} in {}) {};; *) {};; esac", "f() {{ {}; }}; f {}", "echo $({})", "echo `{}`", 'echo "{} $({})"', "cat <<E\n{} $({})\nE\n{}", "cat <<'E'\n{}\nE\n{}",
    "{} > y {}", "{} | {}", "{} && {} || {}", "env {}", "env x=1 {}", "nice -n 1 {}", "timeout 2 {}", "bash -c '{}'", 'sh -c "{}"', "eval '{}'", "echo x | xargs {}", "find . -maxdepth 0 -exec {} \\;", "x={} {}", "! {}", "{} & {}", "[[ {} ]] && {}", "echo $(( {} ))", '"{}"', "'{}'", "{}{}", "\\{}", "$'{}'", "#{}\n{}", "{} #{}\n{}", "{} \\\n{}", "trap '{}' EXIT", "exec {}", "command {}", "time {}", "<({}) {}", "{{aa,{}}}", "${{x:-{}}}", "x=({}) {}", "function g {{ {}; }}; g",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    begun = time.monotonic()
    let_through = [line for line in spellings(random.Random(arguments.seed)) if not held_back(line)]
    missed, known, started = compared(arguments.lines, arguments.seed)
    for line in let_through:
        print(f"LET THROUGH: {line!r}")
    for line, ran, named in missed:
        print(f"MISSED: {line!r} started {ran}, read {named}")
    failures = len(let_through) + len(missed)
    print(
        f"spellings: {len(spellings(random.Random(arguments.seed)))} spellings, {arguments.lines} lines run, {known} lines known,"
        f" {started} programs started; {failures} failures; {time.monotonic() - begun:.0f} s"
    )
    return int(failures > 0)


_OF_THE_SHELL = (
    "if",
    "while",
    "until",
    "for",
    "case",
    "true",
    "false",
    "function",
    "echo",
    "cat",
    "time ",
    "select",
    "coproc",
    "shopt",
    "eval",
    "bash <",
    "sh <",
)

# --- denied commands


def spellings(chance: random.Random) -> list[str]:
    """Every wrapper alone and in the words of a program in another spelling, and 1,500
    times two or three of them.
    """
    lines = [wrapped(wrap, denied) for wrap in WRAPS for denied in DENIED[:3]]
    lines += [spelled(denied, chance) for denied in DENIED for _ in range(60)]
    while len(lines) < 2500:
        line = chance.choice(DENIED)
        line = spelled(line, chance) if chance.random() < 0.4 else line
        for _ in range(chance.choice((2, 2, 3))):
            line = wrapped(chance.choice(WRAPS[:150]), line)
        lines.append(line)
    return lines


def wrapped(wrap: str, line: str) -> str:
    """A program is given words; what is more than words goes through a shell."""
    if (
        re.match(r"(A=\S+ )*[\w/-]{3,}", wrap)
        and ("{}" in wrap or wrap.startswith("env -S"))
        and (not wrap.startswith(_OF_THE_SHELL) or "| xargs" in wrap)
        and not re.fullmatch(r"[\w ./:-]+", line)
    ):
        line = wrapped("bash -c {q}", line)
    if "`{}`" in wrap:
        line = line.replace("`", "\\`")
    return wrap.format(line, q="'" + line.replace("'", "'\\''") + "'")


def spelled(line: str, chance: random.Random) -> str:
    """The same command with its words written in another way."""
    first, *rest = line.split(" ")
    ways = (
        lambda w: f"\\{w}", lambda w: f"'{w}'", lambda w: f'"{w}"', lambda w: f"{w[0]}''{w[1:]}", lambda w: f'{w[0]}"{w[1:]}"', lambda w: f"/usr/bin/{w}", lambda w: f"/bin/../bin/{w}", lambda w: f"$'\\x{ord(w[0]):02x}{w[1:]}'",
        lambda w: f"$'\\{ord(w[0]):o}{w[1:]}'", lambda w: f"{w[0]}\\\n{w[1:]}", lambda w: f"{w[0]}$@{w[1:]}", lambda w: f"{w[0]}${{x}}{w[1:]}", lambda w: f"{w[0]}$(){w[1:]}", lambda w: f"/bin/{w[0]}?" if len(w) == 2 else f"/usr/bin/{w[:-1]}[{w[-1]}]", lambda w: f"$(echo {w})", lambda w: f"{{{w},}}", lambda w: f"{w[0]}`true`{w[1:]}",
        lambda w: f'$"{w}"', lambda w: f"./{w}", lambda w: f"~/../../bin/{w}", lambda w: f"${{IFS:1:0}}{w}", lambda w: f"'{w[0]}'\"{w[1:]}\"",
    )  # fmt: skip
    options = {
        "git": (
            "git -C .",
            "git --no-pager",
            "git -c a.b=c",
            "git --git-dir=.git",
            "git --work-tree . --git-dir .git",
            "git -P",
        )
    }
    if first == "git" and chance.random() < 0.5:
        return " ".join([chance.choice(options["git"]), *rest])
    return " ".join([chance.choice(ways)(first), *rest])


def held_back(line: str) -> bool:
    action = ToolAction("run_command", ActionEffect.RUN, "", line, command=line)
    return (
        decide_permission(action, PermissionMode.ALLOW_ALL, RULES, sandboxed=True).verdict
        != "allow"
    )


# --- what a shell starts

RUNNER = r"""
import json, os, subprocess, sys
for number, line in enumerate(json.load(open(sys.argv[1]))):
    log = f"log{number}"
    open(log, "w").close()
    try:
        subprocess.run(["/bin/bash", "-c", line], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=3, env={"PATH": os.getcwd() + "/bin", "LOG": os.getcwd() + "/" + log, "HOME": os.getcwd()}, cwd="work")
    except subprocess.TimeoutExpired:
        pass
    print(json.dumps(sorted(set(open(log).read().split()))), flush=True)
    for name in os.listdir("work"):
        try: os.remove("work/" + name)
        except OSError: pass
"""
REAL = ("env", "nice", "xargs", "find", "timeout", "sh", "bash", "cat", "true", "false", "echo")


def compared(count: int, seed: int) -> tuple[list[tuple[str, list[str], list[str]]], int, int]:
    """Lines that started what was not read; how many were known, and how many programs
    were started by them.
    """
    chance = random.Random(seed)
    lines = [line for line in (made(chance) for _ in range(count)) if "\0" not in line]
    missed = []
    known = 0
    started = 0
    for line, ran in zip(lines, run(lines), strict=True):
        read = find_started_programs(line)
        if not isinstance(read, KnownPrograms):
            continue
        known += 1
        started += len(ran)
        names = {one.program_name for one in read.all_programs}
        if not read.doubts and not set(ran) <= names:
            missed.append((line, ran, sorted(names)))
    return missed, known, started


def made(chance: random.Random) -> str:
    """A line of tokens, or of shapes in shapes."""
    if chance.random() < 0.5:
        return "".join(
            token + chance.choice(("", " ", " "))
            for token in chance.choices(TOKENS, k=chance.randint(2, 9))
        )
    line = chance.choice(PROGRAMS)
    for _ in range(chance.randint(1, 3)):
        shape = chance.choice(SHAPES)
        holes = shape.count("{}")
        place = chance.randrange(holes)
        fill = [line if n == place else chance.choice((*PROGRAMS, *TOKENS)) for n in range(holes)]
        line = shape.format(*fill)
    return line


def run(lines: list[str]) -> list[list[str]]:
    """What each line starts in a real bash, held in by bubblewrap."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        home = Path(folder)
        (home / "bin").mkdir()
        (home / "work").mkdir()
        for name in PROGRAMS:
            (home / "bin" / name).write_text(f'#!/bin/sh\necho {name} >> "$LOG"\n')
            (home / "bin" / name).chmod(0o755)
        for name in REAL:
            (home / "bin" / name).symlink_to(shutil.which(name) or "/bin/false")
        (home / "lines").write_text(json.dumps(lines))
        (home / "runner.py").write_text(RUNNER)
        box = [
            "bwrap",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--tmpfs",
            "/tmp",
            "--tmpfs",
            "/run",
        ]
        box += [
            "--bind",
            folder,
            folder,
            "--unshare-all",
            "--die-with-parent",
            "--cap-drop",
            "ALL",
            "--chdir",
            folder,
        ]
        said = subprocess.run(
            [*box, os.path.realpath(sys.executable), "runner.py", "lines"],
            capture_output=True,
            text=True,
            check=True,
        )
    return [json.loads(line) for line in said.stdout.splitlines()]


if __name__ == "__main__":
    sys.exit(main())
