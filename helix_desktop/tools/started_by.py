"""What the shell's own words and the wrappers with a grammar of their own start. Each takes the words behind its name."""

from __future__ import annotations

import re
import shlex

from helix_desktop.tools import starters
from helix_desktop.tools.shell_words import ANY, MANY, Hidden, certain
from helix_desktop.tools.started import Handler, Line, Started, behind_options, values
from helix_desktop.tools.started_by_git import of_git
from helix_desktop.tools.starters import Prefix

_REPLACED = re.compile(r"\{[\d#%./+-]*\}")


# --- shells and what is like one -------------------------------------------------------------------------------------


def of_shell(line: Line, words: list[str]) -> list[Started]:
    """`sh -c text`, or a script; a shell that reads commands from its input hides them. The first word is its name."""
    name, *rest = words
    if any(word in ("--version", "--help") for word in rest[:1]):
        return []
    at, runs = 0, False
    while at < len(rest) and rest[at][:1] in ("-", "+") and rest[at] not in ("-", "--"):
        word = rest[at]
        if not certain(word) or word in ("--rcfile", "--init-file"):
            raise Hidden("another shell runs commands that come from a shell expansion")
        at += 1
        if not word.startswith("--"):
            runs |= "c" in word[1:] and word[0] == "-"
            if "s" in word[1:] or "i" in word[1:]:
                raise Hidden("another shell reads commands that are not part of this command")
            at += word[-1] in "oO"
    at += rest[at : at + 1] in (["-"], ["--"])
    if at >= len(rest) or MANY in rest[at]:
        raise Hidden("another shell reads commands that are not part of this command")
    if not runs:
        return line.script(rest[at])
    if name in starters.OTHER_SHELLS:
        raise Hidden(f"{name} is not read")
    return line.text(rest[at], bash=name in ("bash", "rbash"))


def evaluated(line: Line, rest: list[str]) -> list[Started]:
    rest = rest[1:] if rest[:1] == ["--"] else rest
    if len(rest) < 2:
        return line.text(rest[0]) if rest else []
    return [*line.text(" ".join(rest)), *line.starts(tuple(rest), sure=False)]


def sourced(line: Line, rest: list[str]) -> list[Started]:
    return line.script(rest[0]) if rest else []


def trapped(line: Line, rest: list[str]) -> list[Started]:
    rest = rest[1:] if rest[:1] == ["--"] else rest
    return line.text(rest[0]) if rest and rest[0] not in ("-", "-l", "-p") else []


def of_command(line: Line, rest: list[str]) -> list[Started]:
    looks = rest and rest[0].startswith("-") and set(rest[0]) & set("vV")
    return [] if looks else line.prefix(starters.PREFIXES["command"], rest)


def renamed(_: Line, rest: list[str]) -> list[Started]:
    """`alias`, `hash -p`, `enable -f`, `bind`: afterwards a name is another program."""
    if rest and rest not in (["-p"], ["-r"], ["-a"]):
        raise Hidden("it changes which program a name refers to")
    return []


def declared(line: Line, rest: list[str]) -> list[Started]:
    if any(word.startswith("-") and "n" in word for word in rest) and "=" in " ".join(rest):
        raise Hidden("it makes one variable refer to another")
    line.sums |= any("[" in word.partition("=")[0] for word in rest)
    return line.sets(rest)


def read_into(line: Line, rest: list[str]) -> list[Started]:
    """`read A`, `printf -v A`, `getopts`: whatever is named may be set."""
    line.sums |= any("[" in word for word in rest)
    for word in rest:
        if word == "PATH" or word in starters.LOADING_VARIABLES or word in starters.COMMAND_VARIABLES:
            raise Hidden(f"it sets {word}, which can make programs run other programs")
    return []


def printed(line: Line, rest: list[str]) -> list[Started]:
    return read_into(line, rest[1:2]) if rest[:1] == ["-v"] else []


def calculated(line: Line, _: list[str]) -> list[Started]:
    line.sums = True
    return []


def tested(line: Line, rest: list[str]) -> list[Started]:
    line.sums |= "-v" in rest or "-R" in rest
    return []


# --- wrappers with a grammar of their own ----------------------------------------------------------------------------


def of_env(line: Line, rest: list[str]) -> list[Started]:
    found: list[Started] = []
    while rest:
        word = rest.pop(0)
        if word in ("-", "-i", "-0", "-v", "--", "--ignore-environment", "--null", "--debug"):
            continue
        if word in ("-u", "-C", "--unset", "--chdir") and rest and MANY not in rest[0]:
            rest.pop(0)
        elif re.match(r"-[vi]*S|--split-string", word):
            value = word.partition("=")[2] if word.startswith("--") else word[word.index("S") + 1 :]
            value = value or (rest.pop(0) if rest else "")
            return [*found, *of_env(line, _split(value) + rest), *line.guesses([value])]
        elif word.startswith(("--unset=", "--chdir=", "-u", "-C")) and certain(word):
            continue
        elif word.startswith("-"):
            return [*found, *line.guesses([word, *rest])]
        elif "=" in word and MANY not in word:
            found += line.sets([word])
        else:
            return [*found, *line.starts((word, *rest), sure=True)]
    return found


def of_sudo(line: Line, rest: list[str]) -> list[Started]:
    at = behind_options(starters.PREFIXES["sudo"], rest)
    opens = any(re.match(r"-[A-Za-z]*[sie]|--(?:shell|login|edit)", word) for word in rest[:at])
    if opens and (at is None or at >= len(rest)):
        raise Hidden("another shell reads commands that are not part of this command")
    return line.prefix(starters.PREFIXES["sudo"], rest)


def of_xargs(line: Line, rest: list[str]) -> list[Started]:
    prefix = Prefix(
        "0prtxoe", "aEILnPsdJRS", starters.names("null interactive no-run-if-empty verbose exit show-limits open-tty"),
        starters.names("arg-file delimiter max-lines max-args max-procs max-chars eof replace process-slot-var"),
    )  # fmt: skip
    rest = ["-I{}" if word in ("-i", "--replace") else word for word in rest]
    rest = [f"-I{word[2:]}" if re.match(r"-i.", word) else word for word in rest if not re.fullmatch(r"-l\d*", word)]
    at = behind_options(prefix, rest)
    if at is None:
        return line.guesses(rest)
    words = rest[at:]
    for mark in values(rest[:at], ("-I", "-J", "--replace")):
        words = [word.replace(mark, MANY) if mark else word for word in words]
    return line.starts((*words, MANY), sure=True) if words else []


def of_find(line: Line, rest: list[str]) -> list[Started]:
    found: list[Started] = []
    for at, word in enumerate(rest):
        if not certain(word) and word.startswith("-"):
            raise Hidden("a `find` option comes from a shell expansion")
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            ends = [n for n in range(at + 1, len(rest)) if rest[n] in (";", "+")]
            words = rest[at + 1 : min(ends, default=len(rest))]
            found += line.starts(tuple(each.replace("{}", MANY) for each in words), sure=True)
    return found


def of_parallel(line: Line, rest: list[str]) -> list[Started]:
    """The command is a text for a shell; without one, each argument is."""
    ends = [n for n, word in enumerate(rest) if re.fullmatch(r":::[:+]*", word)]
    words = rest[: min(ends, default=len(rest))]
    while words and words[0].startswith("-"):
        takes = re.fullmatch(
            r"-[jnNPILSaCdEsl]|--(?:jobs|max-args|max-procs|colsep|arg-file|delay|timeout|joblog|results)", words[0]
        )
        flag = re.fullmatch(
            r"-[jnNPL]\d+|-[kmqutX0]+|--(?:keep-order|quote|verbose|dry-run|bar|eta|null|xargs|no-notice|line-buffer|tag|ungroup)",
            words[0],
        )
        if not takes and not flag:
            return line.guesses(words)
        words = words[2 if takes else 1 :]
    if not words:
        raise Hidden("its arguments are run as commands")
    return [*line.text(_REPLACED.sub("$x", " ".join(words)) + ' "$@"'), *line.starts((*words, MANY), sure=False)]


def of_flock(line: Line, rest: list[str]) -> list[Started]:
    at = behind_options(
        Prefix(
            "sexnuFo",
            "wE",
            words=frozenset({"timeout", "wait", "conflict-exit-code"}),
            bare=frozenset({"shared", "exclusive", "nonblock", "nb", "unlock", "close", "no-fork", "verbose"}),
        ),
        rest,
    )
    if at is None:
        return line.guesses(rest)
    behind = rest[at + 1 :]
    if behind[:1] in (["-c"], ["--command"]):
        return line.text(behind[1]) if len(behind) > 1 else []
    return line.starts(tuple(behind), sure=True) if behind else []


def of_text(line: Line, rest: list[str]) -> list[Started]:
    """`script -c text`, `su -c text`; without that, a shell reads what to run."""
    found = values(rest, ("-c", "--command", "--session-command"), clusters=True)
    if "--" in rest:
        return line.guesses(rest)
    if not found and not any(word in ("--version", "--help", "-V", "-h") for word in rest):
        raise Hidden("another shell reads commands that are not part of this command")
    return [one for value in found for one in line.text(value, bash=False)]


def of_runuser(line: Line, rest: list[str]) -> list[Started]:
    if rest[:1] == ["-u"] and len(rest) > 2:
        return line.starts(tuple(rest[3:] if rest[2] == "--" else rest[2:]), sure=True)
    return of_text(line, rest)


def of_watch(line: Line, rest: list[str]) -> list[Started]:
    at = behind_options(
        Prefix(
            "bcCdegprtwx",
            "nq",
            starters.names("beep color errexit chgexit no-title exec precise no-wrap differences"),
            frozenset(["interval"]),
        ),
        rest,
    )
    if at is None:
        return line.guesses(rest)
    return [*line.text(" ".join(rest[at:])), *line.starts(tuple(rest[at:]), sure=False)]


def of_fd(line: Line, rest: list[str]) -> list[Started]:
    for at, word in enumerate(rest):
        if word in ("-x", "-X", "--exec", "--exec-batch"):
            return line.starts(tuple(re.sub(r"\{[./]*\}", MANY, each) for each in rest[at + 1 :]), sure=True)
    return line.options("fd", rest)


def of_make(line: Line, rest: list[str]) -> list[Started]:
    if any(re.match(r"--eval|SHELL=|MAKEFLAGS=|\.SHELLFLAGS", word) for word in rest):
        line.doubts.append("make gets a recipe on the command line")
    if "-" in rest or any(
        word.startswith(("-f-", "-f/dev", "--file=-", "--file=/dev")) or ANY in word for word in rest
    ):
        raise Hidden("make reads recipes that are not part of the command")
    return []


def _split(text: str) -> list[str]:
    """As `env -S` does."""
    if not certain(text) or "\\" in text or "$" in text:
        raise Hidden("the program to run comes from a shell expansion")
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        raise Hidden("it has an unclosed quote") from None


OWN: dict[str, Handler] = {
    "sh": of_shell,
    "eval": evaluated,
    "source": sourced,
    ".": sourced,
    "trap": trapped,
    "command": of_command,
    "env": of_env,
    "sudo": of_sudo,
    "xargs": of_xargs,
    "find": of_find,
    "parallel": of_parallel,
    "flock": of_flock,
    "script": of_text,
    "su": of_text,
    "sg": of_text,
    "runuser": of_runuser,
    "watch": of_watch,
    "fd": of_fd,
    "fdfind": of_fd,
    "make": of_make,
    "gmake": of_make,
    "git": of_git,
    "printf": printed,
    "read": read_into,
    "getopts": read_into,
    "let": calculated,
    "unset": calculated,
    "test": tested,
    "[": tested,
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), declared),
    **dict.fromkeys(("alias", "enable", "hash", "bind", "fc", "complete", "compgen", "mapfile_callback"), renamed),
}
