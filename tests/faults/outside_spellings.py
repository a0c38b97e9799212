r"""Command lines that start a denied program, written from the shell's manual and not from the reader of commands.

    python -m tests.faults.outside_spellings [--lines 2000] [--seed 1] [--show]

`rm` and `git push` are spelled in many ways, inside up to three layers of wrappers, shells and other constructs. A failure is
a line that would run without asking although a rule denies the program and a real bash starts it. One line in eight is run by a
real bash too, with harmless programs of those names; what bash does not start is dropped. `@` stands for their folder.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.tools.permission import (
    ActionEffect,
    PermissionMode,
    PermissionRule,
    ToolAction,
    decide_permission,
)

RULES = {"rm": "rm *", "git": "git push *"}
FOLDER = (
    "/opt/outside/bin"  # what `@` is for the rules; the trial runs the line with its own folder
)
LONGEST = 6.0  # seconds for one line

NAMES = (  # ways to write the program's name %; $a is its first letter, $b the rest
    "%", "'%'", '"%"', "\\%", "$a''$b", '$a""$b', "$a\\$b", "'$a'$b", '"$a"\'$b\'', "$'%'", '$"%"', "$a\\\n$b",
    "$'$x$b'", "$'$o$b'", "$'$u$b'", "@/%", "@//%", "@/./%", "@/../bin/%", "bin/%", "./bin/%", '"@"/%', "$PWD/bin/%",
    '"$PWD"/bin/%', "~+/bin/%", "bin/[$a]$b", "b?n/%", "@/$a*$b", "$(echo %)", "`echo %`", '"$(echo %)"', "$(printf %%s %)",
    "$a$(:)$b", "$a$@$b", "$a$*$b", '$a"$@"$b', "${Q:-%}", "${Q-%}", "$a${Q}$b", '"${Q:-%}"', "${Q:-$a}$b", "$a${Q#z}$b",
    "$a$((0))$b", "$(rev <<<$r)", "$(echo $r|rev)", "$(echo $t|base64 -d)", "$(command -v %)", "$(type -P %)", "$(which %)",
)  # fmt: skip
BEFORE = (
    "A=1 ", "A=1 B='x y' ", "A=$(:) ", "A+=x ", "a[0]=1 ", "LC_ALL=C ", ">out ", "2>&1 ", "<in ", ">out 2>&1 ", "&>out ",
    "{fd}>out ", "A=1 >out ", "2>/dev/null A=1 ",
)  # fmt: skip
WRAPPERS = (
    "env", "env --", "env A=1", "env -u A", "env -i PATH=$PATH", "env - PATH=$PATH", "env -C .", "env --chdir=.", "env -uA B=2",
    "/usr/bin/env", "env --ignore-environment PATH=$PATH", "env env", "env -v", "env --default-signal", "env --block-signal=INT",
    "nice", "nice -n 5", "nice -5", "nice --adjustment=5", "nice -n5", "nohup", "nohup --", "sudo", "sudo -n", "sudo -E",
    "sudo -u root", "sudo --user=root", "sudo -u root -g root --", "sudo A=1", "doas", "doas -u root", "timeout 5",
    "timeout -s KILL 5", "timeout -k 1 5s", "timeout --foreground 5", "timeout --signal=9 0.5m", "timeout -v 5", "stdbuf -oL",
    "stdbuf -o 0 -e0", "stdbuf --output=L", "setsid", "setsid -w", "setsid --fork", "flock lock", "flock -n lock",
    "flock -w 2 lock", "flock -x -E 3 lock", "unshare", "unshare -m", "unshare --mount --fork", "unshare -r", "ionice",
    "ionice -c 3", "ionice -c2 -n7", "ionice -t", "chrt -o 0", "chrt --batch 0", "chrt -i 0", "taskset 1", "taskset -c 0",
    "taskset 0x1", "strace -o log", "strace -f -o log", "strace -e trace=none -o log", "xargs", "xargs -r", "xargs -n 1",
    "setpriv --no-new-privs", "setpriv", "prlimit --nofile=100", "setarch x86_64", "setarch -R", "linux64", "choom -n 1 --",
    "/usr/bin/time", "/usr/bin/time -o log", "/usr/bin/time -f %e", "busybox", "toybox", "busybox env", "busybox nice -n 3",
    "runuser -u root --", "chroot /", "chroot --userspec=0:0 /", "xargs -a in", "xargs -t -L1", "xargs -0", "xargs -P2 -n1",
    "start-stop-daemon --start --quiet --pidfile none --startas", "nsenter -t $$ -m", "watch -n 9", "watch -x -n 9",
)  # fmt: skip
BUILTINS = (
    "command", "command --", "command -p", "builtin command", "exec", "exec -a z", "exec -l", "exec --", "command exec",
    "builtin exec", "\\command", "com''mand", "builtin builtin command", "exec -a 'a b'", "exec -la z",
)  # fmt: skip
KEYWORDS = ("time", "time -p", "!", "time !", "! time", "coproc", "time --")
SHELLS = (
    "sh -c #", "bash -c #", "dash -c #", "zsh -c #", "ksh -c #", "bash -ec #", "bash -e -c #", "bash -c -- #", "bash -xc # z",
    "bash --norc -c #", "bash --norc --noprofile -c #", "bash -o pipefail -c #", "bash -O extglob -c #", "/bin/sh -c #",
    "bash +x -c #", "bash -o errexit -ec #", "sh -uc #", "env -S 'bash -c' #", "env bash -c #", "eval #", "eval -- #",
    "script -qc # log", "script -q -c # log", "script --command=# log", "script -q log -c #", "flock lock -c #", "su -c #",
    "flock -n lock --command #", "busybox sh -c #", "busybox ash -c #", "xargs -I{} sh -c #", "find bin -prune -exec sh -c # \\;",
    "find bin -prune -execdir bash -c # z {} +", "parallel ::: #", "parallel # ::: 1", "watch -n 9 #", "builtin eval #",
    "bash <<< #", "sh <<<#", "bash -s <<< #", "source /dev/stdin <<< #", ". /dev/stdin <<<#", "bash /dev/stdin <<< #",
    "trap # EXIT", "trap -- # 0", "trap # DEBUG; :", "trap # ERR; false", "runuser -c #", "su root -c #", "env -S #", "env -vS #",
    "env --split-string=#", 'x=#; eval "$x"', "x=#; $x", 'x=#; bash -c "$x"', "X=# bash -c 'eval \"$X\"'", 'set -- #; eval "$1"',
    "bash -c 'eval \"$1\"' z #", "bash -c '$0' #", "bash -c '\"$@\"' z sh -c #", 'mapfile -t x <<< #; eval "${x[0]}"',
    'read -r x <<< #; eval "$x"', 'printf -v x %s #; eval "$x"', 'declare x=#; eval "$x"', "alias z=#; eval z",
    "shopt -s expand_aliases\nalias z=#\nz", "echo # | sh", "echo # | bash", "printf %s # | bash -s", "echo # | xargs -I{} sh -c {}",
    "echo # >f; sh f", "echo # >f; . ./f", "echo # >f && source ./f", "echo # | tee f | sh", "BASH_ENV=f; echo # >f; BASH_ENV=f bash -c :",
    "echo # | (cat | sh)", "echo # | { sh; }", 'echo # | while read -r x; do eval "$x"; done', "PROMPT_COMMAND=# bash -ic :",
    "PS4='$('#')' bash -xc :", "ENV=f; exec 3<<<#; bash <&3", 'x=(#); eval "${x[@]}"', "awk -v x=# 'BEGIN{system(x)}'",
    "perl -e 'system shift' #", "python3 -c 'import os,sys;os.system(sys.argv[1])' #", "make -f - z <<< 'z:;@'#", "sed -n 1e# in",
)  # fmt: skip
LINES = (
    "(&)", "{ &; }", "&", ": && &", "false || &", ":; &", "& | cat", "echo a | &", "& & wait", "if :; then &; fi", "if &; then :; fi",
    "if false; then :; else &; fi", "if false; then :; elif &; then :; fi", "while &; do break; done", "until &; do break; done",
    "for i in 1; do &; done", "for ((i=0;i<1;i++)); do &; done", "case a in a) & ;; esac", "case a in (a|b) &;; esac",
    "case a in b) :;; *) & ;& c) :;; esac", "select i in 1; do &; break; done <<< 1", "f() { &; }; f", "function f { &; }; f",
    "function f() (&); f", "f() if :; then &; fi; f", "echo $(&)", "echo `&`", 'echo "$(&)"', 'echo "a ${Q:-$(&)}"', "x=$(&)",
    "x=`&`", "cat <(&)", "echo a > >(&)", ": $(( $(&) + 0 ))", "[[ -n $(&) ]]", '[ -n "$(&)" ]', "bash <<Z\n&\nZ", "sh <<'Z'\n&\nZ",
    "sh <<-Z\n\t&\n\tZ", "cat <<Z\n$(&)\nZ", "cat <<Z | sh\n&\nZ", "source /dev/fd/3 3<<Z\n&\nZ", "declare x=$(&)", "export x=`&`",
    "for i in $(&); do :; done", "case $(&) in *) ;; esac", ": ${Q:=$(&)}", "x[$(&)]=1", "cat <<< $(&)", "echo > $(&)o", "local=$(&) :",
    "coproc { &; }", "time { &; }", "! { &; }", "{ & ; } 2>&1 | cat", "# nothing\n&", ": # nothing\n&", "echo \\\n; &", "wait; &",
    "bash <(echo 1; cat <<'Z'\n&\nZ\n)", "source <(cat <<'Z'\n&\nZ\n)", "printf '%s' \"$(&)\" > o", "[[ a == a ]] && &", "((1)) && &",
    "trap 'f' EXIT; f() { &; }", "f() { g; }; g() { &; }; f", "exec 3< <(&); cat <&3", 'test -z "`&`"', "set -e; &", "cd . && &",
    "${Q+a}; &", "echo ${x[$(&)0]}", "let x=1; &", "true &\n&", "pushd . >o; &", "(cd .; (&))", "{ { &; }; }", "x=1; if ((x)); then &; fi",
)  # fmt: skip
GIT_OPTIONS = (
    "", "", "-C . ", "-c a.b=c ", "--no-pager ", "-p ", "--git-dir=.git ", "--git-dir .git ", "--work-tree=. ", "--bare ",
    "--namespace=a ", "-C . -c a.b=c ", "--no-replace-objects ", "--literal-pathspecs ", "--config-env=a.b=HOME ", "-C . --no-pager ",
    "--exec-path=@ ", "--work-tree . --git-dir . ", "--no-optional-locks ", "-c a.b ", "-P ", "--paginate -C '.' ", "--super-prefix=a/ ",
    "--attr-source HEAD ", "--config-env a.b=HOME ", "--no-advice ",
)  # fmt: skip
PUSHES = (
    "push origin main", "push origin main", "'push' origin main", "pu''sh origin main", "p\\ush origin main", "$'push' origin main",
    "push --force origin main", "pus\\\nh origin main", "{push,origin,main}", "$(echo push) origin main", "${Q:-push} origin main",
    "p${Q}ush origin main", "pus$'\\x68' origin main", "push", "-c alias.x=push x origin main", "-c alias.x='!git push' x",
    "-c alias.x='push origin' x main", "-c 'alias.x=!f() { git push; }; f' x", "-c Alias.X=push x origin main",
)  # fmt: skip
REMOVALS = (
    "-rf victim",
    "victim",
    "-f -- victim",
    "-r -f 'a b' victim",
    "$Q victim",
    "-rf {victim,gone}",
    "--force victim",
    "-rf victim/*",
)
WHOLE = {
    "rm": (
        "{rm,-rf,victim}", "{@/rm,-rf,victim}", "{env,rm,victim}", "x=rm; $x victim", "x=(rm victim); ${x[@]}", "set -- rm victim; $@",
        'set -- rm victim; "$@"', "r=r; m=m; $r$m victim", "f() { $@; }; f rm victim", "alias z=rm; eval 'z victim'",
        "shopt -s expand_aliases\nalias z='rm '\nz victim", "echo victim | xargs rm", "echo rm victim | xargs env", "ls | xargs -I{} rm {}",
        "find . -maxdepth 0 -exec rm {} \\;", "find . -maxdepth 0 -exec rm {} +", "find . -maxdepth 0 -execdir rm -f '{}' ';'",
        "yes | find . -maxdepth 0 -ok rm victim \\;", "yes | find . -maxdepth 0 -okdir rm victim \\;", "find bin -name rm -exec {} victim \\;",
        "find . -name a -o -exec rm -f {} \\; -quit", "env -S 'rm victim'", "env -S'rm victim'", "env -S 'A=1 rm victim'", "env '-Srm victim'",
        "env -S 'rm\\_victim'", "env -S '${Q}rm victim'", "env -iS 'PATH=@ rm victim'", "parallel rm ::: victim", "parallel rm {} ::: victim",
        "echo victim | parallel rm", "x=r?; bin/$x victim", "hash -p @/rm zz; zz victim", "cp bin/rm zz; ./zz victim", "ln -s @/rm zz; ./zz victim",
        "PATH=@:$PATH rm victim", "cd bin && ./rm victim", "(cd bin; ./rm ../victim)", "IFS=,; x=rm,victim; $x", "x=mr; ${x:1:1}${x:0:1} victim",
        "x=RM; ${x,,} victim", "x=rmz; ${x%z} victim", "x=azm; ${x/az/r} victim", "declare -n y=x; x=rm; $y victim", "y=x; x=rm; ${!y} victim",
        "for c in rm; do $c victim; done", "read c <<< rm; $c victim", "printf -v c rm; $c victim", "c=$(<f); ${c:-rm} victim", "coproc rm victim; wait",
        "command_not_found_handle() { rm victim; }; nosuch", "complete -C 'rm victim' z; compgen -C 'rm victim'", "enable -n echo; rm victim",
        "PS0='$(rm victim)' bash -ic : ", "mapfile -C 'rm victim #' -c 1 x <<< a", "bind -x '\"a\":rm'; rm victim", "tar cf /dev/null --checkpoint=1 --checkpoint-action=exec='rm victim' bin",
        "sort --compress-program=@/rm -S 1k <(seq 99999) >o", "awk 'BEGIN{system(\"rm victim\")}'", "awk 'BEGIN{\"rm victim\"|getline}'", "sed '1e rm victim' bin/rm",
        "perl -e 'exec qw(rm victim)'", "python3 -c 'import os; os.system(\"rm victim\")'", "split --filter='rm victim' bin/rm", "git -c alias.x='!rm victim' x",
        "vim -es -c '!rm victim' -c q", "ed <<< '!rm victim'", "make -f - <<< 'z:;rm victim'", "tmux -L z new -d 'rm victim'", "gdb -batch -ex 'shell rm victim'", "x=$'r\\x6d'; \"$x\" victim",
        "a=1; x[a=1]=rm; ${x[1]} victim", "{ echo rm victim; } | sh", "sh < <(echo rm victim)", "bash <(echo rm victim)", ". <(echo rm victim)", "exec 3<<<'rm victim'; . /dev/fd/3",
        "GIT_PAGER='rm victim' bash -c 'eval $GIT_PAGER'", "case rm in *) rm victim;; esac", "run-parts --arg=victim --regex='^rm$' bin", "xargs <<< 'rm victim' env", "xargs -a <(echo victim) rm",
        "xargs -I % % victim <<< rm", "echo 'rm victim' | tr a a | $SHELL", "echo cm0gdmljdGlt | base64 -d | sh", "timeout 5 nice -n 3 env A=1 rm victim", "dbus-run-session -- rm victim", "fakeroot rm victim",
    ),
    "git": (
        "{git,push,origin}", "x='git push'; $x", "x=git; $x push", "x=push; git $x", 'set -- git push; "$@"', 'a=(push origin); git "${a[@]}"',
        "echo push | xargs git", "echo origin | xargs git push", "xargs git <<< push", "find . -maxdepth 0 -exec git push \\;", "find . -maxdepth 0 -execdir git -C {} push \\;",
        "env -S 'git push'", "env -S 'git -C . push'", "parallel git push ::: origin", "parallel git ::: push", "GIT_DIR=.git git push", "GIT_TRACE=1 git -C . push origin",
        "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0=push git x", "git config alias.zz push; git zz", "git config --global alias.zz push && git zz origin",
        "git submodule foreach 'git push'", "git submodule foreach --recursive git push", "git bisect run git push", "git rebase -x 'git push' HEAD", "git rebase --exec='git push' main",
        "git -c alias.a=b -c alias.b=push a", "git -c alias.a='-C . push' a", "git --config-env=alias.x=X x", "alias g=git; eval 'g push'", 'g() { git "$@"; }; g push origin', "p() { git push; }; p",
        "git() { command git push; }; git status", "shopt -s expand_aliases\nalias git='git push'\ngit", "hash -p @/git zz; zz push", "ln -s @/git zz; ./zz push", "@/git-push origin", "git-push origin",
        "git \\\n  push origin", "git $'\\160ush'", "git p{us,}h", "git {-C,.,push}", "git ${x:=push}", 'git "$(echo push)"', "git `echo push`", "git $(echo -C . push)", "GIT_EDITOR='git push' bash -c '$GIT_EDITOR'",
        "for c in push; do git $c; done", "read c <<< push; git $c", "git p?sh; git push", "touch push; git p?sh", "touch push; git pu*", "git commit -m x && git push", "git status; git push &",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Spelling:
    """A line that starts `program`; `@` is the folder of the programs. `plain`: one
    simple command, which a wrapper may start.
    """

    program: str
    line: str
    plain: bool = True

    def at(self, folder: str) -> str:
        return self.line.replace("@", folder).replace("\x01", "@")


def name(program: str, form: str) -> str:
    first = program[0]
    rest = program[1:]
    filled = {
        "$x": f"\\x{ord(first):x}", "$o": f"\\{ord(first):o}", "$u": f"\\u{ord(first):04x}",
        "$t": base64.b64encode(program.encode()).decode(), "$a$(": first + "$(", "$r": program[::-1],
    }  # fmt: skip
    if "$((0))" in form:
        form = "$a$(: $((0)))$b"
    form = form.replace("%%", "\x02").replace("%", program).replace("\x02", "%")
    for key, value in filled.items():
        form = form.replace(key, value)
    # `$@` and `$*` are the shell's; they hide in the sign for the folder until the line is written.
    return form.replace("$a", first).replace("$b", rest).replace("$@", "$\x01")


def simple(program: str, chance: random.Random, form: str = "") -> str:
    """One simple command, its name spelled in some way."""
    spelled = name(program, form or chance.choice(NAMES if chance.random() < 0.6 else NAMES[:1]))
    if program == "git":
        return f"{spelled} {chance.choice(GIT_OPTIONS)}{chance.choice(PUSHES)}"
    return f"{spelled} {chance.choice(REMOVALS)}"


def quoted(text: str, chance: random.Random) -> str:
    kind = chance.randrange(4)
    if kind == 0 and "\x01" not in text:
        return "$'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
    if kind == 1:
        return '"' + "".join("\\" + sign if sign in '\\"$`' else sign for sign in text) + '"'
    return shlex.quote(text)


def _shell(inner: Spelling, form: str, chance: random.Random) -> Spelling:
    plain = not any(sign in form for sign in "|;\n<") and not form.startswith(
        ("eval", "trap", ".", "source", "builtin")
    )
    form = form.replace("@", "\x01")
    return Spelling(
        inner.program, form.replace("#", quoted(inner.line, chance), 1).replace("\x03", "#"), plain
    )


def _line(inner: Spelling, form: str) -> Spelling:
    if form.count("&") == 1:
        return Spelling(inner.program, form.replace("&", inner.line), plain=False)
    place = _place(form)
    return Spelling(inner.program, form[:place] + inner.line + form[place + 1 :], plain=False)


def _place(form: str) -> int:
    """Where the single `&` that stands for the line is, among `&&`, `2>&1` and the like."""
    bare = form.replace("&&", "__").replace(">&", "__").replace("<&", "__").replace(";&", "__")
    return (
        bare.rindex("&") if form.startswith("true &") or bare.count("&") == 1 else bare.index("&")
    )


def layered(inner: Spelling, chance: random.Random) -> Spelling:
    kind = chance.random()
    if inner.plain and kind < 0.3:
        return Spelling(inner.program, f"{chance.choice(WRAPPERS)} {inner.line}")
    if inner.plain and kind < 0.42:
        return Spelling(inner.program, f"{chance.choice(BUILTINS)} {inner.line}", plain=False)
    if inner.plain and kind < 0.5:
        return Spelling(inner.program, f"{chance.choice(KEYWORDS)} {inner.line}", plain=False)
    if inner.plain and kind < 0.56:
        return Spelling(inner.program, f"{chance.choice(BEFORE)}{inner.line}", plain=False)
    if kind < 0.8:
        return _shell(inner, chance.choice(SHELLS), chance)
    return _line(inner, chance.choice(LINES))


def spellings(count: int, seed: int) -> Iterator[Spelling]:
    """`count` different lines, half for each program."""
    chance = random.Random(seed)
    seen = set[str]()
    programs = tuple(RULES)
    while len(seen) < count:
        program = programs[len(seen) % 2]
        if chance.random() < 0.15:
            one = Spelling(
                program,
                chance.choice(WHOLE[program]).replace("$@", "$\x01").replace("[@]", "[\x01]"),
                plain=False,
            )
        else:
            one = Spelling(program, simple(program, chance))
        for _ in range(chance.randint(0, 3)):
            one = layered(one, chance)
        if one.line not in seen:
            seen.add(one.line)
            yield one


def unasked(one: Spelling, folder: str = FOLDER) -> bool:
    """Whether the line would run without a question, in spite of the rule, in any of
    the ways a user may have set it up.
    """
    line = one.at(folder)
    deny = PermissionRule("deny", "run_command", command=RULES[one.program])
    action = ToolAction("run_command", ActionEffect.RUN, "Run", line, command=line)
    return any(
        decide_permission(action, mode, rules, sandboxed=sandboxed).verdict == "allow"
        for mode, rules in (
            (PermissionMode.ALLOW_ALL, (deny,)),
            (PermissionMode.ASK, (deny,)),
            (PermissionMode.ASK, (PermissionRule("allow", "run_command"), deny)),
        )
        for sandboxed in (True, False)
    )


GIT = r"""#!/bin/bash
declare -A alias
for ((n = 0; n < ${GIT_CONFIG_COUNT:-0}; n++)); do
  key=GIT_CONFIG_KEY_$n value=GIT_CONFIG_VALUE_$n; alias[${!key,,}]=${!value}; done
while [[ $1 == -* ]]; do case $1 in
  -c) [[ $2 == *=* ]] && { key=${2%%=*}; alias[${key,,}]=${2#*=}; }; shift;;
  -C|--git-dir|--work-tree|--namespace|--attr-source|--config-env) shift;;
  esac; shift; done
[[ -f CONFIG ]] && . CONFIG
case $1 in
  push) echo git >> MARK; exit;;
  config) [[ $2 == --global ]] && shift; echo "alias[$2]='$3'" > CONFIG; exit;;
  submodule|bisect) shift 2; [[ $1 == --recursive ]] && shift; exec sh -c "$*";;
  rebase) [[ $2 == -x ]] && exec sh -c "$3"; exec sh -c "${2#--exec=}";;
esac
found=${alias[alias.${1,,}]}; shift
[[ $found == '!'* ]] && exec sh -c "${found#!} \"\$@\"" z "$@"
[[ $found ]] || exit 1
export GIT_CONFIG_COUNT=0; for key in "${!alias[@]}"; do
  export GIT_CONFIG_KEY_$GIT_CONFIG_COUNT="$key" GIT_CONFIG_VALUE_$GIT_CONFIG_COUNT="${alias[$key]}"; ((GIT_CONFIG_COUNT++)); done
exec BIN/git $found "$@"
"""
SUDO = '#!/bin/bash\nwhile [[ $1 == -* || $1 == *=* ]]; do case $1 in -u|-g) shift;; --) shift; break;; esac; shift; done\nexec "$@"\n'
BUSYBOX = '#!/bin/bash\n[[ $1 == ash ]] && { shift; exec sh "$@"; }\nexec "$@"\n'
PARALLEL = (
    '#!/bin/bash\nc=(); while (($#)) && [[ $1 != ::: ]]; do c+=("$1"); shift; done\n'
    'shift; (($#)) || mapfile -t items; (($#)) && items=("$@")\n'
    'for i in "${items[@]}"; do if [[ "${c[*]}" == *{}* ]]; then x="${c[*]}"; bash -c "${x//\\{\\}/$i}"; '
    'else bash -c "${c[*]} $i"; fi; done\n'
)


class Bench:
    """A folder with harmless `rm` and `has_git`, and stand-ins for wrappers that are
    not everywhere.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mark = root / "started"
        self.bin = root / "work" / "bin"
        self.tools = root / "tools"
        self.bin.mkdir(parents=True)
        self.tools.mkdir()
        git = (
            GIT.replace("MARK", str(self.mark))
            .replace("CONFIG", str(root / "config"))
            .replace("BIN", str(self.bin))
        )
        git = git.replace("GIT_" + str(root / "config") + "_", "GIT_CONFIG_")
        self._program(self.bin / "git", git)
        self._program(self.bin / "git-push", f"#!/bin/sh\necho git >> {self.mark}\n")
        self._program(self.bin / "rm", f"#!/bin/sh\necho rm >> {self.mark}\n")
        stand_ins = {
            "sudo": SUDO,
            "doas": SUDO,
            "busybox": BUSYBOX,
            "toybox": BUSYBOX,
            "parallel": PARALLEL,
        }
        stand_ins |= dict.fromkeys(("zsh", "ksh"), '#!/bin/bash\nexec bash "$@"\n')
        for wrapper, text in stand_ins.items():
            self._program(self.tools / wrapper, text)

    def _program(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def starts(self, one: Spelling) -> bool:
        """Whether bash starts the program; asked again every moment, since some
        wrappers do not end.
        """
        self.mark.unlink(missing_ok=True)
        (self.root / "config").unlink(missing_ok=True)
        work = self.root / "work"
        for path in work.iterdir():
            if path != self.bin and not path.is_dir():
                path.unlink()
        (work / "in").write_text("1\n")
        environment = {
            "PATH": f"{self.bin}:{self.tools}:/usr/bin:/bin",
            "HOME": str(work),
            "TERM": "xterm",
            "SHELL": "/bin/bash",
            "X": "push",
        }
        with subprocess.Popen(
            ["bash", "-c", one.at(str(self.bin))], cwd=work, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            return self._seen(process, one.program)

    def _seen(self, process: subprocess.Popen[bytes], program: str) -> bool:
        until = time.monotonic() + LONGEST
        ended = 0.0
        try:
            while time.monotonic() < until:
                if self.mark.exists() and program in self.mark.read_text().split():
                    return True
                if process.poll() is not None:
                    ended = ended or time.monotonic()
                    if time.monotonic() - ended > 0.3:  # what was left behind has this long
                        return False
                time.sleep(0.005)
            return False
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def fixed() -> list[Spelling]:
    """About 150 lines that need no shell to be judged."""
    chance = random.Random(0)
    found = [Spelling("rm", f"{name('rm', form)} -rf victim") for form in NAMES]
    found += [
        Spelling(program, line.replace("$@", "$\x01").replace("[@]", "[\x01]"), plain=False)
        for program, lines in WHOLE.items()
        for line in lines[::2]
    ]
    push = Spelling("git", "git -C . push origin main")
    found += [layered(push, chance) for _ in range(40)]
    return found


def trial(count: int, seed: int, say: Callable[[str], None]) -> Counter[str]:
    found: Counter[str] = Counter()
    everything = list(spellings(count, seed))
    run = {one.line for one in random.Random(seed).sample(everything, max(1, count // 8))}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        bench = Bench(Path(folder))
        for one in everything:
            escapes = unasked(one)
            found["unasked"] += escapes
            if not (one.line in run or escapes):
                continue
            started = bench.starts(one)
            found["started" if started else "dropped"] += one.line in run
            if not started:
                say(f"dropped{' (unasked)' if escapes else ''}: {one.program}: {one.line!r}")
            elif escapes:
                found["FAILED"] += 1
                print(f"FAILED {one.program}: {one.line!r}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--show", action="store_true", help="name the lines that bash did not start"
    )
    arguments = parser.parse_args()
    begun = time.monotonic()
    found = trial(arguments.lines, arguments.seed, print if arguments.show else lambda _: None)
    print(
        f"outside spellings: {arguments.lines} lines, {found['started']} started by bash, {found['dropped']} dropped; "
        f"{found['FAILED']} failures; {time.monotonic() - begun:.0f} s, seed {arguments.seed}"
    )
    return 1 if found["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
