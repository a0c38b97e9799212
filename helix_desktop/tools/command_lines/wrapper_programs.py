"""What the shell's own words and the wrappers with a grammar of their own start. Each takes the words behind its name."""

from __future__ import annotations

import re
import shlex

from helix_desktop.tools.command_lines import program_tables
from helix_desktop.tools.command_lines.git_programs import find_behind_git
from helix_desktop.tools.command_lines.program_finder import (
    ProgramFinder,
    StartedProgram,
    WrapperReader,
    find_end_of_options,
    option_values,
)
from helix_desktop.tools.command_lines.program_tables import WrapperProgram
from helix_desktop.tools.command_lines.shell_words import ANY, MANY, UnreadableCommand, is_certain_word

_REPLACED = re.compile(r"\{[\d#%./+-]*\}")


def find_behind_shell(line: ProgramFinder, words: list[str]) -> list[StartedProgram]:
    """`sh -c text`, or a script; a shell that reads commands from its input hides them. The first word is its name."""
    name, *rest = words
    if any(word in ("--version", "--help") for word in rest[:1]):
        return []
    at, runs = 0, False
    while at < len(rest) and rest[at][:1] in ("-", "+") and rest[at] not in ("-", "--"):
        word = rest[at]
        if not is_certain_word(word) or word in ("--rcfile", "--init-file"):
            raise UnreadableCommand("another shell runs commands that come from a shell expansion")
        at += 1
        if not word.startswith("--"):
            runs |= "c" in word[1:] and word[0] == "-"
            if "s" in word[1:] or "i" in word[1:]:
                raise UnreadableCommand("another shell reads commands that are not part of this command")
            at += word[-1] in "oO"
    at += rest[at : at + 1] in (["-"], ["--"])
    if at >= len(rest) or MANY in rest[at]:
        raise UnreadableCommand("another shell reads commands that are not part of this command")
    if not runs:
        return line.note_script(rest[at])
    if name in program_tables.OTHER_SHELLS:
        raise UnreadableCommand(f"{name} is not read")
    return line.find_in_text(rest[at], bash=name in ("bash", "rbash"))


def find_behind_eval(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    rest = rest[1:] if rest[:1] == ["--"] else rest
    if len(rest) < 2:
        return line.find_in_text(rest[0]) if rest else []
    return [*line.find_in_text(" ".join(rest)), *line.find_in_words(tuple(rest), sure=False)]


def find_behind_source(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    return line.note_script(rest[0]) if rest else []


def find_behind_trap(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    rest = rest[1:] if rest[:1] == ["--"] else rest
    return line.find_in_text(rest[0]) if rest and rest[0] not in ("-", "-l", "-p") else []


def find_behind_command(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    looks = rest and rest[0].startswith("-") and set(rest[0]) & set("vV")
    return [] if looks else line.find_behind_wrapper(program_tables.WRAPPERS["command"], rest)


def refuse_renaming(_: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    """`alias`, `hash -p`, `enable -f`, `bind`: afterwards a name is another program."""
    if rest and rest not in (["-p"], ["-r"], ["-a"]):
        raise UnreadableCommand("it changes which program a name refers to")
    return []


def find_behind_declare(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    if any(word.startswith("-") and "n" in word for word in rest) and "=" in " ".join(rest):
        raise UnreadableCommand("it makes one variable refer to another")
    line.has_arithmetic |= any("[" in word.partition("=")[0] for word in rest)
    return line.find_in_assignments(rest)


def check_variables_read(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    """`read A`, `printf -v A`, `getopts`: whatever is named may be set."""
    line.has_arithmetic |= any("[" in word for word in rest)
    for word in rest:
        if word == "PATH" or word in program_tables.LOADING_VARIABLES or word in program_tables.COMMAND_VARIABLES:
            raise UnreadableCommand(f"it sets {word}, which can make programs run other programs")
    return []


def find_behind_printf(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    return check_variables_read(line, rest[1:2]) if rest[:1] == ["-v"] else []


def note_arithmetic(line: ProgramFinder, _: list[str]) -> list[StartedProgram]:
    line.has_arithmetic = True
    return []


def note_test_command(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    line.has_arithmetic |= "-v" in rest or "-R" in rest
    return []


# --- wrappers with a grammar of their own ----------------------------------------------------------------------------


def find_behind_env(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    found: list[StartedProgram] = []
    while rest:
        word = rest.pop(0)
        if word in ("-", "-i", "-0", "-v", "--", "--ignore-environment", "--null", "--debug"):
            continue
        if word in ("-u", "-C", "--unset", "--chdir") and rest and MANY not in rest[0]:
            rest.pop(0)
        elif re.match(r"-[vi]*S|--split-string", word):
            value = word.partition("=")[2] if word.startswith("--") else word[word.index("S") + 1 :]
            value = value or (rest.pop(0) if rest else "")
            return [*found, *find_behind_env(line, _split_env_text(value) + rest), *line.guess_programs([value])]
        elif word.startswith(("--unset=", "--chdir=", "-u", "-C")) and is_certain_word(word):
            continue
        elif word.startswith("-"):
            return [*found, *line.guess_programs([word, *rest])]
        elif "=" in word and MANY not in word:
            found += line.find_in_assignments([word])
        else:
            return [*found, *line.find_in_words((word, *rest), sure=True)]
    return found


def find_behind_sudo(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    at = find_end_of_options(program_tables.WRAPPERS["sudo"], rest)
    opens = any(re.match(r"-[A-Za-z]*[sie]|--(?:shell|login|edit)", word) for word in rest[:at])
    if opens and (at is None or at >= len(rest)):
        raise UnreadableCommand("another shell reads commands that are not part of this command")
    return line.find_behind_wrapper(program_tables.WRAPPERS["sudo"], rest)


def find_behind_xargs(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    prefix = WrapperProgram(
        "0prtxoe", "aEILnPsdJRS", program_tables.word_set("null interactive no-run-if-empty verbose exit show-limits open-tty"),
        program_tables.word_set("arg-file delimiter max-lines max-args max-procs max-chars eof replace process-slot-var"),
    )  # fmt: skip
    rest = ["-I{}" if word in ("-i", "--replace") else word for word in rest]
    rest = [f"-I{word[2:]}" if re.match(r"-i.", word) else word for word in rest if not re.fullmatch(r"-l\d*", word)]
    at = find_end_of_options(prefix, rest)
    if at is None:
        return line.guess_programs(rest)
    words = rest[at:]
    for mark in option_values(rest[:at], ("-I", "-J", "--replace")):
        words = [word.replace(mark, MANY) if mark else word for word in words]
    return line.find_in_words((*words, MANY), sure=True) if words else []


def find_behind_find(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    found: list[StartedProgram] = []
    for at, word in enumerate(rest):
        if not is_certain_word(word) and word.startswith("-"):
            raise UnreadableCommand("a `find` option comes from a shell expansion")
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            ends = [n for n in range(at + 1, len(rest)) if rest[n] in (";", "+")]
            words = rest[at + 1 : min(ends, default=len(rest))]
            found += line.find_in_words(tuple(each.replace("{}", MANY) for each in words), sure=True)
    return found


def find_behind_parallel(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
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
            return line.guess_programs(words)
        words = words[2 if takes else 1 :]
    if not words:
        raise UnreadableCommand("its arguments are run as commands")
    return [
        *line.find_in_text(_REPLACED.sub("$x", " ".join(words)) + ' "$@"'),
        *line.find_in_words((*words, MANY), sure=False),
    ]


def find_behind_flock(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    at = find_end_of_options(
        WrapperProgram(
            "sexnuFo",
            "wE",
            words=frozenset({"timeout", "wait", "conflict-exit-code"}),
            bare=frozenset({"shared", "exclusive", "nonblock", "nb", "unlock", "close", "no-fork", "verbose"}),
        ),
        rest,
    )
    if at is None:
        return line.guess_programs(rest)
    behind = rest[at + 1 :]
    if behind[:1] in (["-c"], ["--command"]):
        return line.find_in_text(behind[1]) if len(behind) > 1 else []
    return line.find_in_words(tuple(behind), sure=True) if behind else []


def find_behind_su_or_script(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    """`script -c text`, `su -c text`; without that, a shell reads what to run."""
    found = option_values(rest, ("-c", "--command", "--session-command"), clusters=True)
    if "--" in rest:
        return line.guess_programs(rest)
    if not found and not any(word in ("--version", "--help", "-V", "-h") for word in rest):
        raise UnreadableCommand("another shell reads commands that are not part of this command")
    return [one for value in found for one in line.find_in_text(value, bash=False)]


def find_behind_runuser(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    if rest[:1] == ["-u"] and len(rest) > 2:
        return line.find_in_words(tuple(rest[3:] if rest[2] == "--" else rest[2:]), sure=True)
    return find_behind_su_or_script(line, rest)


def find_behind_watch(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    at = find_end_of_options(
        WrapperProgram(
            "bcCdegprtwx",
            "nq",
            program_tables.word_set("beep color errexit chgexit no-title exec precise no-wrap differences"),
            frozenset(["interval"]),
        ),
        rest,
    )
    if at is None:
        return line.guess_programs(rest)
    return [*line.find_in_text(" ".join(rest[at:])), *line.find_in_words(tuple(rest[at:]), sure=False)]


def find_behind_fd(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    for at, word in enumerate(rest):
        if word in ("-x", "-X", "--exec", "--exec-batch"):
            return line.find_in_words(tuple(re.sub(r"\{[./]*\}", MANY, each) for each in rest[at + 1 :]), sure=True)
    return line.find_in_options("fd", rest)


def find_behind_make(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    if any(re.match(r"--eval|SHELL=|MAKEFLAGS=|\.SHELLFLAGS", word) for word in rest):
        line.doubts.append("make gets a recipe on the command line")
    if "-" in rest or any(
        word.startswith(("-f-", "-f/dev", "--file=-", "--file=/dev")) or ANY in word for word in rest
    ):
        raise UnreadableCommand("make reads recipes that are not part of the command")
    return []


def _split_env_text(text: str) -> list[str]:
    """As `env -S` does."""
    if not is_certain_word(text) or "\\" in text or "$" in text:
        raise UnreadableCommand("the program to run comes from a shell expansion")
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        raise UnreadableCommand("it has an unclosed quote") from None


WRAPPER_READERS: dict[str, WrapperReader] = {
    "sh": find_behind_shell,
    "eval": find_behind_eval,
    "source": find_behind_source,
    ".": find_behind_source,
    "trap": find_behind_trap,
    "command": find_behind_command,
    "env": find_behind_env,
    "sudo": find_behind_sudo,
    "xargs": find_behind_xargs,
    "find": find_behind_find,
    "parallel": find_behind_parallel,
    "flock": find_behind_flock,
    "script": find_behind_su_or_script,
    "su": find_behind_su_or_script,
    "sg": find_behind_su_or_script,
    "runuser": find_behind_runuser,
    "watch": find_behind_watch,
    "fd": find_behind_fd,
    "fdfind": find_behind_fd,
    "make": find_behind_make,
    "gmake": find_behind_make,
    "git": find_behind_git,
    "printf": find_behind_printf,
    "read": check_variables_read,
    "getopts": check_variables_read,
    "let": note_arithmetic,
    "unset": note_arithmetic,
    "test": note_test_command,
    "[": note_test_command,
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), find_behind_declare),
    **dict.fromkeys(
        ("alias", "enable", "hash", "bind", "fc", "complete", "compgen", "mapfile_callback"), refuse_renaming
    ),
}
