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


def started_by_git(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find the command without git's own options, and what these and its subcommand start."""
    subcommand_position = _read_options_of_git(finder, arguments)
    words = arguments[subcommand_position:]
    if not words:
        return []
    if not is_certain_word(words[0]):
        finder.doubts.append("the shell fills in what git does")
    elif words[0] not in program_tables.GIT_COMMANDS:
        finder.doubts.append(f"git {words[0]} may stand for something else")
    started: list[StartedProgram] = []
    if subcommand_position > 0:
        # A rule about `git push` also means `git -C folder push`.
        started.append(StartedProgram(("git", *words)))
    started += _started_by_git_subcommand(finder, words)
    return started


def _read_options_of_git(finder: ProgramFinder, arguments: Sequence[str]) -> int:
    """Return where git's own options end, before the name of the subcommand. Notes doubts
    about them: an unknown option, or a value that may make git run a program.
    """
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        word = arguments[position]
        position += 1
        name, equals, attached_value = word.partition("=")
        if word in program_tables.GIT_VALUES:
            next_word = "".join(arguments[position : position + 1])
            position += 1
            _doubt_git_setting(finder, word, next_word)
        elif word.startswith("-c") and not equals:
            # The setting follows at once, as in `-calias.x`.
            _doubt_git_setting(finder, "-c", word.removeprefix("-c"))
        else:
            if name not in program_tables.GIT_FLAGS and name not in program_tables.GIT_VALUES:
                finder.doubts.append("git has an option that is not known")
            _doubt_git_setting(finder, name, attached_value)
    return position


def _doubt_git_setting(finder: ProgramFinder, option: str, value: str) -> None:
    if option in ("--exec-path", "--config-env") and value:
        finder.doubts.append("git is told where its programs are")
    elif option == "-c" and not value.casefold().startswith(program_tables.GIT_SAFE_SETTINGS):
        finder.doubts.append("git is given a setting that may run a program")
        finder.texts.append(value)


def _started_by_git_subcommand(finder: ProgramFinder, words: list[str]) -> list[StartedProgram]:
    """Find the programs that a subcommand of git, with its arguments, says to run.

    `git submodule foreach` and `git bisect run` are followed by a command. Others have
    options whose value is one. What git may run beyond that becomes a doubt of the finder.
    """
    name = words[0]
    arguments = words[1:]
    if name == "submodule" and "foreach" in arguments:
        own_options = ("--recursive", "-q", "--quiet")
        words_after_foreach = arguments[arguments.index("foreach") + 1 :]
        command_words = [word for word in words_after_foreach if word not in own_options]
        return finder.find_in_text(" ".join(command_words), bash=False)
    if name == "bisect" and arguments[:1] == ["run"]:
        return finder.find_in_words(tuple(arguments[1:]), sure=True)
    finder.doubts += _list_doubts_about_git(name, arguments)
    # `-u` and `-x` mean something else for most subcommands.
    options = tuple(program_tables.GIT_COMMAND_OPTIONS - {"-u", "-x"})
    commands = program_finder.option_values(arguments, options)
    if name == "rebase":
        commands += program_finder.option_values(arguments, ("-x",), clusters=True)
    started: list[StartedProgram] = []
    for command in commands:
        started += finder.find_in_text(command, bash=False)
    return started


# Subcommands that exist to run other programs.
_RUNNING_GIT_COMMANDS = frozenset(
    {"filter-branch", "for-each-repo", "hook", "difftool", "mergetool", "instaweb", "send-email"}
)
_GIVEN_TO_GREP_OR_CLONE = re.compile(r"-O.|-O$|-u$|-c$|--config")


def _list_doubts_about_git(name: str, arguments: Sequence[str]) -> list[str]:
    """Return why it is not sure what a subcommand of git starts, each a rule of its own."""
    doubts = []
    if name == "config" and any(word.casefold().startswith("alias.") for word in arguments):
        doubts.append("git is given another name for a command")
    if name in _RUNNING_GIT_COMMANDS:
        doubts.append(f"git {name} runs other programs")
    if _names_merge_strategy(name, arguments):
        doubts.append("git is told which program merges")
    # `ext::sh -c …` is an address.
    is_remote = name in ("clone", "fetch", "ls-remote", "pull")
    if is_remote and any("::" in word for word in arguments):
        doubts.append("git is given an address that runs a program")
    if name in ("grep", "clone") and any(map(_GIVEN_TO_GREP_OR_CLONE.match, arguments)):
        doubts.append(f"git {name} is given a program or a setting")
    return doubts


def _names_merge_strategy(name: str, arguments: Sequence[str]) -> bool:
    """Whether git is given a strategy, which is a program: `git merge -s x` runs git-merge-x."""
    option_beginnings: tuple[str, ...] = ("--stra",)
    if name in ("merge", "pull", "rebase"):
        option_beginnings = ("--stra", "-s")
    # `--strategy-option` only has a value for the strategy.
    strategy_words = [word for word in arguments if not word.startswith("--strategy-")]
    return any(word.startswith(option_beginnings) for word in strategy_words)


_REPLACED = re.compile(r"\{[\d#%./+-]*\}")


def started_by_shell(finder: ProgramFinder, words: list[str]) -> list[StartedProgram]:
    """Find programs in `sh -c text` or a script. Refuses commands that a shell reads
    from its input.

    After a shell's options comes the text to run, or the path of the script. A word that
    contains `MANY` may turn into several words or into none, so it could be anything.
    """
    shell = words[0]
    arguments = words[1:]
    if arguments[:1] in (["--version"], ["--help"]):
        return []
    options = _read_shell_options(arguments)
    words_after_options = _without_leading_dashes(arguments[options.word_count :])
    if not words_after_options or MANY in words_after_options[0]:
        raise UnreadableCommand("another shell reads commands that are not part of this command")
    text_or_script = words_after_options[0]
    if not options.runs_text:
        return finder.add_started_script(text_or_script)
    if shell in program_tables.OTHER_SHELLS:
        raise UnreadableCommand(f"the commands that {shell} would run cannot be read")
    return finder.find_in_text(text_or_script, bash=shell in ("bash", "rbash"))


def _without_leading_dashes(words: list[str]) -> list[str]:
    """Return the words without the `-` or `--` that ends a shell's options."""
    if words[:1] in (["-"], ["--"]):
        return words[1:]
    return words


@dataclass(frozen=True, slots=True)
class _ShellOptions:
    """`word_count`: how many words are options or their values. `runs_text`: `-c` is one of
    them.
    """

    word_count: int
    runs_text: bool


def _read_shell_options(arguments: Sequence[str]) -> _ShellOptions:
    """Read the options at the beginning of a shell's arguments, up to the first other word."""
    position = 0
    runs_text = False
    while position < len(arguments):
        word = arguments[position]
        if not word.startswith(("-", "+")) or word in ("-", "--"):
            break
        _refuse_shell_option(word)
        position += 1
        if word.startswith("--"):
            continue
        if word.startswith("-") and "c" in word:
            runs_text = True
        # `-o` and `-O` take the next word as their value, also at the end of a group as in `-eo`.
        if word.endswith(("o", "O")):
            position += 1
    return _ShellOptions(position, runs_text)


def _refuse_shell_option(word: str) -> None:
    """Refuse an option with which a shell runs what is not part of this command."""
    if not is_certain_word(word) or word in ("--rcfile", "--init-file"):
        raise UnreadableCommand("a second shell would run commands produced by a shell expansion")
    is_group_of_letters = not word.startswith("--")
    if is_group_of_letters and ("s" in word or "i" in word):
        raise UnreadableCommand("another shell reads commands that are not part of this command")


def started_by_eval(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find programs in the arguments of `eval`, which the shell joins and reads as a new line."""
    words = _without_end_of_options(arguments)
    if not words:
        return []
    started = finder.find_in_text(" ".join(words))
    # Quotes in the joined words may change what is meant, so the words as they are count as well.
    if len(words) > 1:
        started = started + finder.find_in_words(tuple(words), sure=False)
    return started


def _without_end_of_options(words: list[str]) -> list[str]:
    if words[:1] == ["--"]:
        return words[1:]
    return words


def started_by_source(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    if not arguments:
        return []
    return finder.add_started_script(arguments[0])


def started_by_trap(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find programs in `trap text signal`, where a shell runs the text at the signal."""
    words = _without_end_of_options(arguments)
    # `-` restores a signal, and the options only list traps.
    if not words or words[0] in ("-", "-l", "-p"):
        return []
    return finder.find_in_text(words[0])


def started_by_command(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    if arguments and arguments[0].startswith("-"):
        # `command -v name` only says where a program is.
        options = arguments[0]
        if "v" in options or "V" in options:
            return []
    return finder.started_by_wrapper(program_tables.WRAPPERS["command"], arguments)


def refuse_renaming(_: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Refuse `alias`, `hash -p`, `enable -f` and `bind`, which change which program a
    name means.
    """
    if arguments and arguments not in (["-p"], ["-r"], ["-a"]):
        raise UnreadableCommand("it can change which program a command name runs")
    return []


def started_by_declare(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find programs in the values that `export`, `declare` and the like give to variables."""
    sets_a_value = any("=" in word for word in arguments)
    for word in arguments:
        # With `-n`, the value is the name of another variable.
        makes_reference = word.startswith("-") and "n" in word
        if sets_a_value and makes_reference:
            raise UnreadableCommand("it makes one variable refer to another")
        # With `-i`, and in an array's index, the shell calculates.
        variable = word.partition("=")[0]
        if "[" in variable or re.match(r"-\w*i", word):
            finder.has_arithmetic = True
    return finder.find_in_assignments(arguments)


def started_by_printf(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Refuse `printf -v` for risky variables. Without it, printf only prints."""
    if arguments[:1] != ["-v"]:
        return []
    return refuse_risky_variables(finder, arguments[1:2])


_STARTING_VARIABLES = frozenset(program_tables.LOADING_VARIABLES).union(
    program_tables.COMMAND_VARIABLES
)


def refuse_risky_variables(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Refuse `read A`, `printf -v A` and `getopts` for risky variables, since they can set any."""
    # Bash evaluates an array's index, and an index can contain a command.
    finder.has_arithmetic |= "[" in "".join(arguments)
    for word in arguments:
        if word == "PATH" or word in _STARTING_VARIABLES:
            raise UnreadableCommand(f"it sets {word}, which can make programs run other programs")
    return []


def mark_arithmetic(finder: ProgramFinder, _: list[str]) -> list[StartedProgram]:
    finder.has_arithmetic = True
    return []


def mark_arithmetic_of_test(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    finder.has_arithmetic |= "-v" in arguments or "-R" in arguments
    return []


# --- Commands that run others, each with its own rules for arguments


_FLAGS_OF_ENV = frozenset(
    {"-", "-i", "-0", "-v", "--", "--ignore-environment", "--null", "--debug"}
)
_OPTIONS_OF_ENV_WITH_VALUE = ("-u", "-C", "--unset", "--chdir")
_ATTACHED_VALUES_OF_ENV = ("--unset=", "--chdir=", "-u", "-C")


def started_by_env(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find programs in `env NAME=value program …`: its options come first, then variables,
    whose values may name programs, too, and then the command. Empties `arguments`.
    """
    started: list[StartedProgram] = []
    while arguments:
        word = arguments.pop(0)
        if word in _FLAGS_OF_ENV:
            continue
        if word in _OPTIONS_OF_ENV_WITH_VALUE and arguments and MANY not in arguments[0]:
            arguments.pop(0)
        elif re.match(r"-[vi]*S|--split-string", word):
            return started + _started_by_split_text(finder, word, arguments)
        elif word.startswith(_ATTACHED_VALUES_OF_ENV) and is_certain_word(word):
            continue
        elif word.startswith("-"):
            return started + finder.guess_programs([word, *arguments])
        elif "=" in word and MANY not in word:
            started += finder.find_in_assignments([word])
        else:
            return started + finder.find_in_words((word, *arguments), sure=True)
    return started


def _started_by_split_text(
    finder: ProgramFinder, option: str, arguments: list[str]
) -> list[StartedProgram]:
    """Find programs in `env -S text`, which splits the text into arguments of its own."""
    text = option.partition("=")[2]
    if not option.startswith("--"):
        text = option[option.index("S") + 1 :]
    if not text and arguments:
        text = arguments.pop(0)
    started = started_by_env(finder, _split_env_text(text) + arguments)
    return started + finder.guess_programs([text])


def started_by_sudo(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find the program that sudo runs as another user. Refuses to let it open a shell or an
    editor without a command.
    """
    sudo = program_tables.WRAPPERS["sudo"]
    command_start = program_finder.find_end_of_options(sudo, arguments)
    has_command = command_start is not None and command_start < len(arguments)
    if not has_command:
        for word in arguments[:command_start]:
            # `-s`, `-i` and `-e` open a shell or an editor.
            if re.match(r"-[A-Za-z]*[sie]|--(?:shell|login|edit)", word):
                raise UnreadableCommand(
                    "another shell reads commands that are not part of this command"
                )
    return finder.started_by_wrapper(sudo, arguments)


_XARGS = WrapperProgram(
    "0prtxoe", "aEILnPsdJRS", program_tables.word_set("null interactive no-run-if-empty verbose exit show-limits open-tty"),
    program_tables.word_set("arg-file delimiter max-lines max-args max-procs max-chars eof replace process-slot-var"),
)  # fmt: skip


def started_by_xargs(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find the program that xargs runs. Its own options come first, and behind the program and
    its arguments it adds words from its input, which are not known here.
    """
    modern_arguments = _modernise_options_of_xargs(arguments)
    command_start = program_finder.find_end_of_options(_XARGS, modern_arguments)
    if command_start is None:
        return finder.guess_programs(modern_arguments)
    words = modern_arguments[command_start:]
    if not words:
        return []
    # What xargs fills in may be any number of words.
    options = modern_arguments[:command_start]
    for mark in program_finder.option_values(options, ("-I", "-J", "--replace")):
        if mark:
            words = [word.replace(mark, MANY) for word in words]
    return finder.find_in_words((*words, MANY), sure=True)


def _modernise_options_of_xargs(words: Sequence[str]) -> list[str]:
    """Replace `-i` and `-l`, older spellings whose value is optional, by what they mean."""
    modern_arguments = []
    for word in words:
        if word in ("-i", "--replace"):
            modern_arguments.append("-I{}")
        elif re.match(r"-i.", word):
            modern_arguments.append(f"-I{word.removeprefix('-i')}")
        elif not re.fullmatch(r"-l\d*", word):
            modern_arguments.append(word)
    return modern_arguments


def started_by_find(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find the commands of `find … -exec command ;`. In these, `{}` stands for each path found."""
    started: list[StartedProgram] = []
    for position, word in enumerate(arguments):
        if not is_certain_word(word) and word.startswith("-"):
            raise UnreadableCommand("a `find` option comes from a shell expansion")
        if word not in ("-exec", "-execdir", "-ok", "-okdir"):
            continue
        command: list[str] = []
        for argument in arguments[position + 1 :]:
            if argument in (";", "+"):
                break
            command.append(argument.replace("{}", MANY))
        started += finder.find_in_words(tuple(command), sure=True)
    return started


_PARALLEL_OPTION_WITH_VALUE = re.compile(
    r"-[jnNPILSaCdEsl]|--(?:jobs|max-args|max-procs|colsep|arg-file|delay|timeout|joblog|results)"
)
_PARALLEL_FLAG = re.compile(
    r"-[jnNPL]\d+|-[kmqutX0]+|--(?:keep-order|quote|verbose|dry-run|bar|eta|null|xargs|no-notice|line-buffer|tag|ungroup)"
)


def started_by_parallel(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find programs in GNU parallel's command, which is text for a shell. Refuses to
    guess without one.
    """
    words: list[str] = []
    for word in arguments:
        # `:::` begins the arguments that the command is run with.
        if re.fullmatch(r":::[:+]*", word):
            break
        words.append(word)
    while words and words[0].startswith("-"):
        if _PARALLEL_OPTION_WITH_VALUE.fullmatch(words[0]):
            words = words[2:]
        elif _PARALLEL_FLAG.fullmatch(words[0]):
            words = words[1:]
        else:
            return finder.guess_programs(words)
    if not words:
        raise UnreadableCommand("its arguments are run as commands")
    shell_text = _REPLACED.sub("$x", " ".join(words)) + ' "$@"'
    started = finder.find_in_text(shell_text)
    return started + finder.find_in_words((*words, MANY), sure=False)


_FLOCK = WrapperProgram(
    "sexnuFo",
    "wE",
    program_tables.word_set("shared exclusive nonblock nb unlock close no-fork verbose"),
    program_tables.word_set("timeout wait conflict-exit-code"),
)


def started_by_flock(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find the program of `flock file command`, which runs while the file is locked. After
    `-c`, it is a text for a shell.
    """
    lock_file = program_finder.find_end_of_options(_FLOCK, arguments)
    if lock_file is None:
        return finder.guess_programs(arguments)
    command = arguments[lock_file + 1 :]
    if not command:
        return []
    if command[0] not in ("-c", "--command"):
        return finder.find_in_words(tuple(command), sure=True)
    if len(command) == 1:
        return []
    return finder.find_in_text(command[1])


def started_by_su_or_script(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find programs in `script -c text` and `su -c text`. Without that, a shell reads
    what to run.
    """
    texts = program_finder.option_values(
        arguments, ("-c", "--command", "--session-command"), clusters=True
    )
    if "--" in arguments:
        return finder.guess_programs(arguments)
    only_informs = any(word in ("--version", "--help", "-V", "-h") for word in arguments)
    if not texts and not only_informs:
        raise UnreadableCommand("another shell reads commands that are not part of this command")
    started: list[StartedProgram] = []
    for text in texts:
        started += finder.find_in_text(text, bash=False)
    return started


def started_by_runuser(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find the program of `runuser -u user command`, or the text that a shell runs in its other
    forms.
    """
    # `runuser -u user command` starts the command itself, without a shell.
    if arguments[:1] != ["-u"] or len(arguments) < 3:
        return started_by_su_or_script(finder, arguments)
    command = _without_end_of_options(arguments[2:])
    return finder.find_in_words(tuple(command), sure=True)


_WATCH = WrapperProgram(
    "bcCdegprtwx",
    "nq",
    program_tables.word_set("beep color errexit chgexit no-title exec precise no-wrap differences"),
    program_tables.word_set("interval"),
)


def started_by_watch(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find the program that watch runs again and again."""
    command_start = program_finder.find_end_of_options(_WATCH, arguments)
    if command_start is None:
        return finder.guess_programs(arguments)
    # Whether a shell reads the words depends on `--exec`, so both readings count.
    words = arguments[command_start:]
    started = finder.find_in_text(" ".join(words))
    return started + finder.find_in_words(tuple(words), sure=False)


def started_by_fd(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Find the command of `fd … --exec command`, which takes all words behind the option."""
    for position, word in enumerate(arguments):
        if word not in ("-x", "-X", "--exec", "--exec-batch"):
            continue
        command = []
        for argument in arguments[position + 1 :]:
            # fd puts the paths that it finds in place of `{}`, `{/}` and the like.
            command.append(re.sub(r"\{[./]*\}", MANY, argument))
        return finder.find_in_words(tuple(command), sure=True)
    return finder.find_in_options("fd", arguments)


def started_by_make(finder: ProgramFinder, arguments: list[str]) -> list[StartedProgram]:
    """Note a doubt about recipes on the command line, and refuse a makefile that is not known."""
    if any(re.match(r"--eval|SHELL=|MAKEFLAGS=|\.SHELLFLAGS", word) for word in arguments):
        finder.doubts.append("make gets a recipe on the command line")
    for word in arguments:
        # The makefile may come from the input, from a device, or from a shell expansion.
        is_from_input = word == "-" or word.startswith(("-f-", "-f/dev", "--file=-", "--file=/dev"))
        if is_from_input or ANY in word:
            raise UnreadableCommand("make runs commands from a makefile that is not shown here")
    return []


def _split_env_text(text: str) -> list[str]:
    """Split the text of `env -S` into words. Refuse one in which something would be filled in."""
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
    "printf": started_by_printf,
    "read": refuse_risky_variables, "wait": refuse_risky_variables, "getopts": refuse_risky_variables,
    "let": mark_arithmetic, "unset": mark_arithmetic, "test": mark_arithmetic_of_test, "[": mark_arithmetic_of_test,
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), started_by_declare),
    **dict.fromkeys(
        ("alias", "enable", "hash", "bind", "fc", "complete", "compgen", "mapfile_callback"), refuse_renaming
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KnownPrograms:
    """What a line would run, as far as it is known."""

    commands: tuple[program_finder.WrittenCommand, ...]
    unsure: tuple[str, ...] = ()  # Why no rule that allows can be about this line.
    doubts: tuple[str, ...] = ()  # Places that may start programs in ways not understood.
    texts: tuple[str, ...] = ()  # Words that may name another program.

    @property
    def all_programs(self) -> tuple[StartedProgram, ...]:
        """Return all programs that would be started, each before those it starts itself."""
        programs: list[StartedProgram] = []
        for command in self.commands:
            programs.append(StartedProgram(command.words))
            programs += command.started_programs
        return tuple(programs)


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
    finder = ProgramFinder(WRAPPER_READERS)
    commands, unsure = finder.find_commands(text)
    finder.check_whole_line()
    return KnownPrograms(tuple(commands), tuple(unsure), tuple(finder.doubts), tuple(finder.texts))


# A word that means the same to a shell without quotes.
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
    other arguments could start a program, only the last. One click allows the first: the
    whole command if it changes files.
    """
    words = command.words
    exact_command = _quote_words(words)
    shortest_prefix = count_safe_prefix(words)
    if command.started_programs or command.has_own_code or shortest_prefix == 0:
        return [exact_command]
    if starts_unnamed_program(words):
        return [exact_command]
    certain_words = list(takewhile(is_certain_word, words))
    rules = []
    for count in range(shortest_prefix, len(certain_words) + 1):
        rules.append(f"{_quote_words(words[:count])} *")
    if len(certain_words) == len(words):
        rules.append(exact_command)
    if not program_tables.CHANGING_WORDS.isdisjoint(words[:2]):
        rules.reverse()
    return rules


def name_of_command(words: Sequence[str]) -> str:
    """What a person calls it: `ls`, `git log`, `gh pr list`. Shell expansions are shown as `…`."""
    count = max(count_safe_prefix(words), 1)
    has_subcommands = words[0] in program_tables.PROGRAMS_WITH_SUBCOMMANDS | {"git"}
    if count == 1 and has_subcommands:
        names_subcommand = len(words) > 1 and not words[1].startswith("-")
        if names_subcommand:
            count = 2
    return describe_word(" ".join(words[:count]))


def list_written_files(words: Sequence[str]) -> tuple[str, ...]:
    """The files that the words name as written, for programs whose every operand is one."""
    if words[0] not in program_tables.WRITES_OPERANDS:
        return ()
    return _list_operands(words)


def list_deleted_files(words: Sequence[str]) -> tuple[str, ...]:
    """The files that the words name as deleted, for programs that delete every operand."""
    if words[0] not in program_tables.DELETES_OPERANDS:
        return ()
    return _list_operands(words)


def _list_operands(words: Sequence[str]) -> tuple[str, ...]:
    operands = [word for word in words[1:] if not word.startswith("-")]
    return tuple(map(describe_word, operands))


def describe_word(word: str) -> str:
    """Show a word to a person. Shell expansions are shown as `…`."""
    return word.replace(ANY, "…").replace(MANY, "…")


def _quote_words(words: Sequence[str]) -> str:
    quoted = []
    for word in words:
        if _BARE.fullmatch(word):
            quoted.append(word)
        else:
            quoted.append(shlex.quote(word))
    return " ".join(quoted)
