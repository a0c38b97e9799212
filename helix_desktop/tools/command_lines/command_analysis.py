"""Finds the programs that a command line would start, also through wrappers, shells,
xargs and find.
"""

import re
import shlex
import sys
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.command_lines import program_finder, program_tables
from helix_desktop.tools.command_lines.program_finder import ProgramFinder, StartedProgram
from helix_desktop.tools.command_lines.program_tables import WrapperProgram
from helix_desktop.tools.command_lines.shell_parser import (
    ANY,
    MANY,
    UnreadableCommand,
    is_certain_word,
)
from helix_desktop.tools.command_lines.starting_uses import starts_unnamed_program


def started_by_git(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    """Find the command without git's own options, and what these and its subcommand start."""
    found: list[StartedProgram] = []
    at = 0
    while at < len(rest) and rest[at].startswith("-"):
        word = rest[at]
        name, equals, value = word.partition("=")
        if word in program_tables.GIT_VALUES:
            at += 1
            value = rest[at] if at < len(rest) else ""
        elif word.startswith("-c") and not equals and word not in program_tables.GIT_VALUES:
            name, value = "-c", word[2:]
        elif name not in program_tables.GIT_FLAGS and name not in program_tables.GIT_VALUES:
            finder.doubts.append("git has an option that is not known")
        _doubt_git_setting(finder, "-c" if word == "-c" else name, value)
        at += 1
    if not (words := rest[at:]):
        return found
    if not is_certain_word(words[0]):
        finder.doubts.append("the shell fills in what git does")
    elif words[0] not in program_tables.GIT_COMMANDS:
        finder.doubts.append(f"git {words[0]} may stand for something else")
    return [
        *([StartedProgram(("git", *words))] if at else []),
        *found,
        *_started_by_git_subcommand(finder, words),
    ]


def _doubt_git_setting(finder: ProgramFinder, option: str, value: str) -> None:
    if option in ("--exec-path", "--config-env") and value:
        finder.doubts.append("git is told where its programs are")
    elif option == "-c" and not value.casefold().startswith(program_tables.GIT_SAFE_SETTINGS):
        finder.doubts.append("git is given a setting that may run a program")
        finder.texts.append(value)


def _started_by_git_subcommand(finder: ProgramFinder, words: list[str]) -> list[StartedProgram]:
    name = words[0]
    rest = words[1:]
    if name == "submodule" and "foreach" in rest:
        own_options = ("--recursive", "-q", "--quiet")
        behind = [word for word in rest[rest.index("foreach") + 1 :] if word not in own_options]
        return finder.find_in_text(" ".join(behind), bash=False)
    if name == "bisect" and rest[:1] == ["run"]:
        return finder.find_in_words(tuple(rest[1:]), sure=True)
    finder.doubts += _list_doubts_about_git(name, rest)
    # `-u` and `-x` mean something else for most subcommands.
    options = tuple(program_tables.GIT_COMMAND_OPTIONS - {"-u", "-x"})
    commands = program_finder.option_values(rest, options)
    if name == "rebase":
        commands += program_finder.option_values(rest, ("-x",), clusters=True)
    started: list[StartedProgram] = []
    for command in commands:
        started += finder.find_in_text(command, bash=False)
    return started


# Subcommands that exist to run other programs.
_RUNNING_GIT_COMMANDS = frozenset(
    {"filter-branch", "for-each-repo", "hook", "difftool", "mergetool", "instaweb", "send-email"}
)
_GIVEN_TO_GREP_OR_CLONE = re.compile(r"-O.|-O$|-u$|-c$|--config")


def _list_doubts_about_git(name: str, rest: Sequence[str]) -> list[str]:
    """Return why it is not sure what a subcommand of git starts, each a rule of its own."""
    doubts = []
    if name == "config" and any(word.casefold().startswith("alias.") for word in rest):
        doubts.append("git is given another name for a command")
    if name in _RUNNING_GIT_COMMANDS:
        doubts.append(f"git {name} runs other programs")
    # A strategy is a program: `git merge -s x` runs git-merge-x.
    beginnings = ["--stra"]
    if name in ("merge", "pull", "rebase"):
        beginnings.append("-s")
    for word in rest:
        if word.startswith(tuple(beginnings)) and not word.startswith("--strategy-"):
            doubts.append("git is told which program merges")
            break
    # `ext::sh -c …` is an address.
    is_remote = name in ("clone", "fetch", "ls-remote", "pull")
    if is_remote and any("::" in word for word in rest):
        doubts.append("git is given an address that runs a program")
    if name in ("grep", "clone") and any(map(_GIVEN_TO_GREP_OR_CLONE.match, rest)):
        doubts.append(f"git {name} is given a program or a setting")
    return doubts


_REPLACED = re.compile(r"\{[\d#%./+-]*\}")


def started_by_shell(finder: ProgramFinder, words: list[str]) -> list[StartedProgram]:
    """Find programs in `sh -c text` or a script. Refuses commands that a shell reads
    from its input.
    """
    name, *rest = words
    if any(word in ("--version", "--help") for word in rest[:1]):
        return []
    at, runs = 0, False
    while at < len(rest) and rest[at][:1] in ("-", "+") and rest[at] not in ("-", "--"):
        word = rest[at]
        if not is_certain_word(word) or word in ("--rcfile", "--init-file"):
            raise UnreadableCommand(
                "a second shell would run commands produced by a shell expansion"
            )
        at += 1
        if not word.startswith("--"):
            runs |= "c" in word[1:] and word[0] == "-"
            if "s" in word[1:] or "i" in word[1:]:
                raise UnreadableCommand(
                    "another shell reads commands that are not part of this command"
                )
            at += word[-1] in "oO"
    at += rest[at : at + 1] in (["-"], ["--"])
    if at >= len(rest) or MANY in rest[at]:
        raise UnreadableCommand("another shell reads commands that are not part of this command")
    if not runs:
        return finder.add_started_script(rest[at])
    if name in program_tables.OTHER_SHELLS:
        raise UnreadableCommand(f"the commands that {name} would run cannot be read")
    return finder.find_in_text(rest[at], bash=name in ("bash", "rbash"))


def started_by_eval(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    rest = rest[1:] if rest[:1] == ["--"] else rest
    if len(rest) < 2:
        return finder.find_in_text(rest[0]) if rest else []
    return [*finder.find_in_text(" ".join(rest)), *finder.find_in_words(tuple(rest), sure=False)]


def started_by_source(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    return finder.add_started_script(rest[0]) if rest else []


def started_by_trap(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    rest = rest[1:] if rest[:1] == ["--"] else rest
    return finder.find_in_text(rest[0]) if rest and rest[0] not in ("-", "-l", "-p") else []


def started_by_command(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    looks = rest and rest[0].startswith("-") and set(rest[0]) & set("vV")
    return [] if looks else finder.started_by_wrapper(program_tables.WRAPPERS["command"], rest)


def refuse_renaming(_: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    """Refuse `alias`, `hash -p`, `enable -f` and `bind`, which change which program a
    name means.
    """
    if rest and rest not in (["-p"], ["-r"], ["-a"]):
        raise UnreadableCommand("it can change which program a command name runs")
    return []


def started_by_declare(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    if any(word.startswith("-") and "n" in word for word in rest) and "=" in " ".join(rest):
        raise UnreadableCommand("it makes one variable refer to another")
    finder.has_arithmetic |= any("[" in word.partition("=")[0] for word in rest)
    finder.has_arithmetic |= any(re.match(r"-\w*i", word) for word in rest)
    return finder.find_in_assignments(rest)


def refuse_risky_variables(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    """Refuse `read A`, `printf -v A` and `getopts` for risky variables, since they can set any."""
    finder.has_arithmetic |= any("[" in word for word in rest)
    for word in rest:
        if (
            word == "PATH"
            or word in program_tables.LOADING_VARIABLES
            or word in program_tables.COMMAND_VARIABLES
        ):
            raise UnreadableCommand(f"it sets {word}, which can make programs run other programs")
    return []


def mark_arithmetic(finder: ProgramFinder, _: list[str]) -> list[StartedProgram]:
    finder.has_arithmetic = True
    return []


def mark_arithmetic_of_test(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    finder.has_arithmetic |= "-v" in rest or "-R" in rest
    return []


# --- Commands that run others, each with its own rules for arguments


def started_by_env(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
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
            return [
                *found,
                *started_by_env(finder, _split_env_text(value) + rest),
                *finder.guess_programs([value]),
            ]
        elif word.startswith(("--unset=", "--chdir=", "-u", "-C")) and is_certain_word(word):
            continue
        elif word.startswith("-"):
            return [*found, *finder.guess_programs([word, *rest])]
        elif "=" in word and MANY not in word:
            found += finder.find_in_assignments([word])
        else:
            return [*found, *finder.find_in_words((word, *rest), sure=True)]
    return found


def started_by_sudo(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    at = program_finder.find_end_of_options(program_tables.WRAPPERS["sudo"], rest)
    opens = any(re.match(r"-[A-Za-z]*[sie]|--(?:shell|login|edit)", word) for word in rest[:at])
    if opens and (at is None or at >= len(rest)):
        raise UnreadableCommand("another shell reads commands that are not part of this command")
    return finder.started_by_wrapper(program_tables.WRAPPERS["sudo"], rest)


def started_by_xargs(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    prefix = WrapperProgram(
        "0prtxoe", "aEILnPsdJRS", program_tables.word_set("null interactive no-run-if-empty verbose exit show-limits open-tty"),
        program_tables.word_set("arg-file delimiter max-lines max-args max-procs max-chars eof replace process-slot-var"),
    )  # fmt: skip
    rest = ["-I{}" if word in ("-i", "--replace") else word for word in rest]
    rest = [
        f"-I{word[2:]}" if re.match(r"-i.", word) else word
        for word in rest
        if not re.fullmatch(r"-l\d*", word)
    ]
    if (at := program_finder.find_end_of_options(prefix, rest)) is None:
        return finder.guess_programs(rest)
    words = rest[at:]
    for mark in program_finder.option_values(rest[:at], ("-I", "-J", "--replace")):
        words = [word.replace(mark, MANY) if mark else word for word in words]
    return finder.find_in_words((*words, MANY), sure=True) if words else []


def started_by_find(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    found: list[StartedProgram] = []
    for at, word in enumerate(rest):
        if not is_certain_word(word) and word.startswith("-"):
            raise UnreadableCommand("a `find` option comes from a shell expansion")
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            ends = [n for n in range(at + 1, len(rest)) if rest[n] in (";", "+")]
            words = rest[at + 1 : min(ends, default=len(rest))]
            found += finder.find_in_words(
                tuple(each.replace("{}", MANY) for each in words), sure=True
            )
    return found


def started_by_parallel(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    """Find programs in GNU parallel's command, which is text for a shell. Refuses to
    guess without one.
    """
    ends = [n for n, word in enumerate(rest) if re.fullmatch(r":::[:+]*", word)]
    words = rest[: min(ends, default=len(rest))]
    while words and words[0].startswith("-"):
        takes = re.fullmatch(
            r"-[jnNPILSaCdEsl]|--(?:jobs|max-args|max-procs|colsep|arg-file|delay|timeout|joblog|results)",
            words[0],
        )
        flag = re.fullmatch(
            r"-[jnNPL]\d+|-[kmqutX0]+|--(?:keep-order|quote|verbose|dry-run|bar|eta|null|xargs|no-notice|line-buffer|tag|ungroup)",
            words[0],
        )
        if not takes and not flag:
            return finder.guess_programs(words)
        words = words[2 if takes else 1 :]
    if not words:
        raise UnreadableCommand("its arguments are run as commands")
    return [
        *finder.find_in_text(_REPLACED.sub("$x", " ".join(words)) + ' "$@"'),
        *finder.find_in_words((*words, MANY), sure=False),
    ]


def started_by_flock(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    bare = program_tables.word_set("shared exclusive nonblock nb unlock close no-fork verbose")
    prefix = WrapperProgram(
        "sexnuFo", "wE", bare, program_tables.word_set("timeout wait conflict-exit-code")
    )
    if (at := program_finder.find_end_of_options(prefix, rest)) is None:
        return finder.guess_programs(rest)
    behind = rest[at + 1 :]
    if behind[:1] in (["-c"], ["--command"]):
        return finder.find_in_text(behind[1]) if len(behind) > 1 else []
    return finder.find_in_words(tuple(behind), sure=True) if behind else []


def started_by_su_or_script(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    """Find programs in `script -c text` and `su -c text`. Without that, a shell reads
    what to run.
    """
    found = program_finder.option_values(
        rest, ("-c", "--command", "--session-command"), clusters=True
    )
    if "--" in rest:
        return finder.guess_programs(rest)
    if not found and not any(word in ("--version", "--help", "-V", "-h") for word in rest):
        raise UnreadableCommand("another shell reads commands that are not part of this command")
    return [one for value in found for one in finder.find_in_text(value, bash=False)]


def started_by_runuser(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    if rest[:1] == ["-u"] and len(rest) > 2:
        return finder.find_in_words(tuple(rest[3:] if rest[2] == "--" else rest[2:]), sure=True)
    return started_by_su_or_script(finder, rest)


def started_by_watch(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    bare = program_tables.word_set(
        "beep color errexit chgexit no-title exec precise no-wrap differences"
    )
    prefix = WrapperProgram("bcCdegprtwx", "nq", bare, program_tables.word_set("interval"))
    if (at := program_finder.find_end_of_options(prefix, rest)) is None:
        return finder.guess_programs(rest)
    return [
        *finder.find_in_text(" ".join(rest[at:])),
        *finder.find_in_words(tuple(rest[at:]), sure=False),
    ]


def started_by_fd(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    for at, word in enumerate(rest):
        if word in ("-x", "-X", "--exec", "--exec-batch"):
            return finder.find_in_words(
                tuple(re.sub(r"\{[./]*\}", MANY, each) for each in rest[at + 1 :]), sure=True
            )
    return finder.find_in_options("fd", rest)


def started_by_make(finder: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    if any(re.match(r"--eval|SHELL=|MAKEFLAGS=|\.SHELLFLAGS", word) for word in rest):
        finder.doubts.append("make gets a recipe on the command line")
    if "-" in rest or any(
        word.startswith(("-f-", "-f/dev", "--file=-", "--file=/dev")) or ANY in word
        for word in rest
    ):
        raise UnreadableCommand("make runs commands from a makefile that is not shown here")
    return []


def _split_env_text(text: str) -> list[str]:
    if not is_certain_word(text) or "\\" in text or "$" in text:
        raise UnreadableCommand("the program to run comes from a shell expansion")
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        raise UnreadableCommand("it has an unclosed quote") from None


WRAPPER_READERS: dict[str, program_finder.WrapperReader] = {
    "sh": started_by_shell, "eval": started_by_eval, "source": started_by_source, ".": started_by_source,
    "trap": started_by_trap, "command": started_by_command, "env": started_by_env, "sudo": started_by_sudo,
    "xargs": started_by_xargs, "find": started_by_find, "parallel": started_by_parallel, "flock": started_by_flock,
    "script": started_by_su_or_script, "su": started_by_su_or_script, "sg": started_by_su_or_script,
    "runuser": started_by_runuser, "watch": started_by_watch, "fd": started_by_fd, "fdfind": started_by_fd,
    "make": started_by_make, "gmake": started_by_make, "git": started_by_git,
    "printf": lambda finder, rest: refuse_risky_variables(finder, rest[1:2]) if rest[:1] == ["-v"] else [],
    "read": refuse_risky_variables, "wait": refuse_risky_variables, "getopts": refuse_risky_variables,
    "let": mark_arithmetic, "unset": mark_arithmetic, "test": mark_arithmetic_of_test, "[": mark_arithmetic_of_test,
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), started_by_declare),
    **dict.fromkeys(
        ("alias", "enable", "hash", "bind", "fc", "complete", "compgen", "mapfile_callback"), refuse_renaming
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KnownPrograms:
    commands: tuple[program_finder.WrittenCommand, ...]
    unsure: tuple[str, ...] = ()  # Why no rule that allows can be about this line.
    doubts: tuple[str, ...] = ()  # Places that may start programs in ways not understood.
    texts: tuple[str, ...] = ()  # Words that may name another program.

    @property
    def all_programs(self) -> tuple[StartedProgram, ...]:
        """Return all programs that would be started, each before those it starts itself."""
        return tuple(
            one
            for command in self.commands
            for one in (StartedProgram(command.words), *command.started_programs)
        )


@dataclass(frozen=True, slots=True)
class UnknownPrograms:
    """What would run is hidden. `reason` is the end of a sentence."""

    reason: str


@lru_cache(maxsize=64)
def find_started_programs(line: str) -> KnownPrograms | UnknownPrograms:
    """Return the programs that the line would start in a shell of this system."""
    if sys.platform == "win32":
        return UnknownPrograms("commands for PowerShell cannot be read")
    try:
        return _find_known_programs(line)
    except UnreadableCommand as hidden:
        return UnknownPrograms(str(hidden))
    except RecursionError:
        return UnknownPrograms("it is nested too deeply")


def _find_known_programs(text: str) -> KnownPrograms:
    line = ProgramFinder(WRAPPER_READERS)
    commands, unsure = line.find_commands(text)
    line.check_whole_line()
    return KnownPrograms(tuple(commands), tuple(unsure), tuple(line.doubts), tuple(line.texts))


_BARE = re.compile(r"[A-Za-z0-9_@%+=:,./^-]+", re.ASCII)


def is_safe_prefix(words: Sequence[str]) -> bool:
    """Whether no further arguments could make this command start another program, apart
    from those that `starts_unnamed_program` knows.
    """
    return count_safe_prefix(words) > 0


def count_safe_prefix(words: Sequence[str]) -> int:
    """How many words a rule must name at least: `ls`, `git log`, `gh pr list`. 0: no
    number of words is enough.
    """
    name = words[0]
    if name in program_tables.SAFE_PROGRAMS:
        return 1
    subcommands = program_tables.SAFE_SUBCOMMANDS.get(name, frozenset())
    if len(words) > 1 and words[1] in subcommands:
        return 2
    if len(words) > 2 and f"{words[1]}/{words[2]}" in subcommands:
        return 3
    return 0


def suggest_rule_commands(command: program_finder.WrittenCommand) -> list[str]:
    """Return what a rule could allow: `git log *`, `git log -3 *` or `git log -3`. If
    other arguments

    could start a program, only the last. One click allows the first: the whole command
    if it changes files.
    """
    words = command.words
    whole = _quote_words(words)
    first = count_safe_prefix(words)
    is_exact_only = (
        command.started_programs
        or command.has_own_code
        or first == 0
        or starts_unnamed_program(words)
    )
    if is_exact_only:
        return [whole]
    certain = len(list(takewhile(is_certain_word, words)))
    rules = [f"{_quote_words(words[:count])} *" for count in range(first, certain + 1)]
    if certain == len(words):
        rules.append(whole)
    if program_tables.CHANGING_WORDS.isdisjoint(words[:2]):
        return rules
    return rules[::-1]


def name_of_command(words: Sequence[str]) -> str:
    """What a person calls it: `ls`, `git log`, `gh pr list`. Shell expansions are shown as `…`."""
    count = max(count_safe_prefix(words), 1)
    if count == 1 and words[0] in program_tables.PROGRAMS_WITH_SUBCOMMANDS | {"git"}:
        count = 2 if words[1:2] and not words[1].startswith("-") else 1
    return " ".join(words[:count]).replace(ANY, "…").replace(MANY, "…")


def list_written_files(words: Sequence[str]) -> tuple[str, ...]:
    """The files that the words name as written, for programs whose every operand is one."""
    if words[0] not in program_tables.WRITES_OPERANDS:
        return ()
    operands = [word for word in words[1:] if not word.startswith("-")]
    return tuple(word.replace(ANY, "…").replace(MANY, "…") for word in operands)


def _quote_words(words: Sequence[str]) -> str:
    return " ".join(word if _BARE.fullmatch(word) else shlex.quote(word) for word in words)
