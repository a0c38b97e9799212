"""Takes a command line apart: finds its commands and the programs that each of them would start.

Others call `command_analysis.py`, which knows programs that start others in their own ways.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.command_lines import program_tables, shell_parser
from helix_desktop.tools.command_lines.program_tables import WrapperProgram
from helix_desktop.tools.command_lines.shell_parser import MANY, UnreadableCommand, is_certain_word

_VERSION = re.compile(r"[\d.]+$")
# With `--version` alone, these say their version and do not read their input.
SAY_THEIR_VERSION = frozenset({"node", "nodejs", "perl", "python", "ruby"})
# No two parts match the same characters, so even very long words from a model cannot
# make this slow.
_SED_RUNS = re.compile(
    r"(?:^\s*|[;{}\n$!/\d][^\S\n]*)e(?:\s|$)|(?:^\s*|[;{}\n][^\S\n]*)(?:\d+|\$|/[^/\n]*/)"
    # In `1egit push`, nothing separates command and text.
    r"(?:,\s*(?:[+~]?\d+|\$|/[^/\n]*/))?\s*(?:!\s*)?e"
    r"|^\s*e\S+\s"
)
# Options of ssh, scp and sftp without a value, and behind them the one with a setting.
_SETTING_OF_SSH = re.compile(r"-[346AaBCfGgKkMNnOpqRrsTtVvXxYy]*o(?P<value>.*)", re.DOTALL)
# Settings of ssh whose value is a command line.
_COMMAND_OF_SSH = re.compile(
    r"\s*(?:ProxyCommand|LocalCommand|RemoteCommand|KnownHostsCommand)\s*[\s=]\s*(?P<command>.*)",
    re.IGNORECASE | re.DOTALL,
)
_SED_SIGN = re.compile(r"[^\w\s\\]")
_SED_FLAG = re.compile(r"[gpiImM0-9]*e")


def program_base_name(word: str) -> str:
    return word.rpartition("/")[2]


def name_without_version(word: str) -> str:
    """Return the program's name without its version: `python` for `/usr/bin/python3.11`."""
    name = program_base_name(word)
    # In `sqlite3` and `m4`, the figure is part of the name.
    is_whole_name = name in program_tables.WRAPPERS or name in program_tables.CODE_OPTIONS
    if is_whole_name:
        return name
    return _VERSION.sub("", name) or name


def is_interpreter_given_code(words: Sequence[str]) -> bool:
    """Whether an interpreter gets code by its options or from its input."""
    name = name_without_version(words[0])
    letters = program_tables.CODE_OPTIONS.get(name)
    if letters is None:
        return name in program_tables.SCRIPT_LANGUAGES
    for word in words[1:]:
        is_option = word.startswith(("-", "+"))
        if word == "-m" or not is_option:
            # It runs this module or file.
            return False
        if word == "-" or _is_code_option(word, letters):
            return True
    # Without a file, an interpreter reads its input. An editor opens a window instead.
    return name not in program_tables.EDITORS


def may_read_code_from_input(words: Sequence[str]) -> bool:
    """Whether what is piped into this command would be run as code: `python3 -`, `sqlite3 a.db`."""
    name = name_without_version(words[0])
    if name in program_tables.READS_COMMANDS:
        return True
    if name not in program_tables.CODE_OPTIONS:
        return False
    if name in SAY_THEIR_VERSION and list(words[1:]) == ["--version"]:
        return False
    if "-" in words[1:]:
        return True
    has_file = any(not word.startswith("-") for word in words[1:])
    return not has_file


def has_loading_option(words: Sequence[str]) -> bool:
    """Whether an option names code to load, settings, or a file to write. Long ones may
    be cut short.
    """
    program = name_without_version(words[0])
    letters, text = program_tables.LOADING_OPTIONS.get(program, ("", ""))
    options = text.replace("-", "").casefold().split()
    return any(_is_loading_option(word, letters, options) for word in words[1:])


def _is_loading_option(word: str, letters: str, options: Sequence[str]) -> bool:
    """`letters`: the short options of this program that load something; `options`: the long
    ones, without hyphens.
    """
    if not word.startswith("-"):
        return word.startswith("@") and "@" in letters  # A file with further arguments.
    # Some programs take the value behind a colon, and hyphens and capitals are no difference.
    name = re.split("[=:]", word.lstrip("-"))[0]
    name = name.replace("-", "").casefold()
    if name in options:
        return True
    if not word.startswith("--"):
        if not letters:
            return False
        # Behind up to three letters without a value, as in `-vvo file`.
        return re.match(f"-[A-Za-z0-9]{{0,3}}[{letters}]", word) is not None
    if not name or name in program_tables.UNLIKE_LOADING_OPTIONS:
        return False
    return any(option.startswith(name) for option in options)


def _is_code_option(word: str, letters: str) -> bool:
    """Whether a word is an option followed by code, such as `-c` or `--eval`. `letters`: the
    short options of this interpreter that are.
    """
    if word.startswith("+") or not is_certain_word(word):
        return True
    option_name = word.lstrip("-").partition("=")[0]
    if option_name in program_tables.CODE_WORDS:
        return True
    if word.startswith("--"):
        return False
    return not set(letters).isdisjoint(word[1:])


def may_start_programs(text: str) -> bool:
    """Whether code may start other programs, or is not fully known."""
    return bool(re.search(program_tables.STARTING_CODE, text)) or not is_certain_word(text)


_DEEPEST = 10
_NO_PROGRAMS = shell_parser.RESERVED - {"time"}  # Keywords of the shell, which start no program.


@dataclass(frozen=True, slots=True)
class StartedProgram:
    """A program that would be started. `ANY` and `MANY` stand for shell expansions."""

    words: tuple[str, ...]
    is_certain: bool = True  # False if the word merely might be a program.

    @property
    def program_name(self) -> str:
        return program_base_name(self.words[0])


@dataclass(frozen=True, slots=True)
class WrittenCommand:
    """`has_own_code`: it contains code, or settings that start something. `written_files`: files
    that its output is redirected to.
    """

    words: tuple[str, ...]
    started_programs: tuple[StartedProgram, ...] = ()
    has_own_code: bool = False
    written_files: tuple[str, ...] = ()


WrapperReader = Callable[["ProgramFinder", list[str]], list[StartedProgram]]


@dataclass(slots=True)
class ProgramFinder:
    """Collects what a line starts. `readers_by_program`: for programs that start
    others, how to read their words.
    """

    readers_by_program: Mapping[str, WrapperReader]
    doubts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    written_files: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)  # Files that this command runs as scripts.
    # The arguments of commands that copy or write files.
    placed_files: list[str] = field(default_factory=list)
    depth: int = 0
    is_guessing: bool = False
    has_inline_code: bool = False  # True if the arguments of the command just read contain code.
    # Here documents that are the input of the current command.
    here_documents: list[str] = field(default_factory=list)
    places_files: bool = False
    changes_path: bool = False
    has_quoted_substitution: bool = False
    has_arithmetic: bool = False

    def find_commands(
        self, text: str, *, bash: bool = True
    ) -> tuple[list[WrittenCommand], list[str]]:
        """Return the commands in a text for a shell, and what of them is not sure."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise UnreadableCommand("it nests too many shells")
        parsed_line = shell_parser.parse_command_line(text)
        if parsed_line.only_bash and not bash:
            raise UnreadableCommand("different shells interpret it differently")
        self.written_files += parsed_line.written_files
        self.has_arithmetic |= parsed_line.has_arithmetic
        self.has_quoted_substitution |= parsed_line.has_quoted_substitution
        commands: list[WrittenCommand] = []
        for simple_command in parsed_line.commands:
            commands += self.find_programs_started_by(simple_command)
        self.depth -= 1
        return commands, parsed_line.unsure

    def check_whole_line(self) -> None:
        """Check what only the whole line shows: files it creates and runs, and text it
        runs as a program.
        """
        for script in self.scripts:
            name = program_base_name(script)
            if self._may_create_file(name):
                raise UnreadableCommand(f"it creates and runs {name}")
        if self.changes_path and (self.places_files or self.written_files):
            raise UnreadableCommand(
                "it changes the search path for programs and creates files in one of its folders"
            )
        if self.has_arithmetic and self.has_quoted_substitution:
            raise UnreadableCommand("an arithmetic expression can run text as a command")

    def _may_create_file(self, name: str) -> bool:
        for path in self.written_files:
            # The shell fills in the name of a file that is written.
            if not is_certain_word(path) and ">" not in path:
                return True
        return any(name in path for path in self.written_files + self.placed_files)

    def find_programs_started_by(self, simple: shell_parser.SimpleCommand) -> list[WrittenCommand]:
        """Return the command with the programs that it starts."""
        self.texts += [value for _, value in simple.assignments]
        started: list[StartedProgram] = []
        for name, value in simple.assignments:
            started += self.find_in_variable(name, value)
        if not simple.words:
            return [WrittenCommand(program.words) for program in started]
        doubt_count_before = len(self.doubts)
        self.has_inline_code = False
        self.here_documents = simple.here_documents
        # The first of these is the command itself.
        started += self.find_in_words(tuple(simple.words), sure=True)[1:]
        self.here_documents = []
        has_own_code = self.has_inline_code or len(self.doubts) > doubt_count_before
        written_files = tuple(simple.written_files)
        return [WrittenCommand(tuple(simple.words), tuple(started), has_own_code, written_files)]

    def collect_texts_and_placed_files(self, name: str, arguments: Sequence[str]) -> None:
        """Collect words and files that only rules that deny or ask need."""
        if name in program_tables.FILE_PLACING_PROGRAMS:
            self.places_files = True
            self.placed_files += [word for word in arguments if is_certain_word(word)]
        if name in program_tables.DATA_PROGRAMS:
            return
        # What these start is found by reading their words.
        starts_others = (
            name in program_tables.WRAPPERS
            or name in program_tables.SHELLS
            or name in self.readers_by_program
        )
        if not starts_others and name in program_tables.PROGRAMS_WITH_SUBCOMMANDS:
            self.texts += arguments[1:]
        elif not starts_others:
            self.texts += arguments
        self.texts += self.here_documents

    # --- Programs that variables name

    def find_in_variable(self, name: str, value: str) -> list[StartedProgram]:
        """Find programs in the value of a variable that holds a command, such as `PAGER`.
        Refuse variables that make other programs load code.
        """
        if name == "PATH":
            self.changes_path = True
            # `env PATH=. ls` starts another ls. No rule for a prefix means that one.
            self.has_inline_code = True
        begins_like_loading = name.startswith(program_tables.LOADING_BEGINNINGS)
        if name in program_tables.LOADING_VARIABLES or begins_like_loading:
            raise UnreadableCommand(f"it sets {name}, which can make programs run other programs")
        if name not in program_tables.COMMAND_VARIABLES or not value:
            return []
        return self.find_in_text(value)

    def find_in_assignments(self, words: Sequence[str]) -> list[StartedProgram]:
        """Find programs in variables that `export A=b`, `env A=b` and the like set."""
        assignments = [word for word in words if "=" in word]
        for assignment in assignments:
            if not is_certain_word(assignment.partition("=")[0]):
                raise UnreadableCommand("the name of a variable comes from a shell expansion")
        started: list[StartedProgram] = []
        for assignment in assignments:
            name, _, value = assignment.partition("=")
            # `A+=b` appends to a variable.
            started += self.find_in_variable(name.removesuffix("+"), value)
        return started

    # --- Programs that other commands start

    def find_in_text(
        self, text: str, *, bash: bool = True, sure: bool = True
    ) -> list[StartedProgram]:
        """Find programs in a word that a shell would run as a command line."""
        if not is_certain_word(text):
            raise UnreadableCommand(
                "a second shell would run commands produced by a shell expansion"
            )
        commands, _ = self.find_commands(text, bash=bash)
        started: list[StartedProgram] = []
        for command in commands:
            started.append(StartedProgram(command.words, sure))
            started += _as_certain_as(command.started_programs, sure=sure)
        return started

    def find_in_words(self, words: tuple[str, ...], *, sure: bool) -> list[StartedProgram]:
        """Return the program that these words start, and those that it starts in turn."""
        if not words:
            return []
        self.depth += 1
        if self.depth > _DEEPEST:
            raise UnreadableCommand(
                "it starts programs through other programs, so it is not clear what will run"
            )
        name = program_base_name(words[0])
        if MANY in words[0] or not _can_be_program(name):
            raise UnreadableCommand("the program to run comes from a shell expansion")
        if words[0] != name:
            self.scripts.append(words[0])
        self.collect_texts_and_placed_files(name, words[1:])
        self.note_inline_code(words)
        started = [StartedProgram(words, sure)]
        if name.startswith("git-"):  # Each git command also exists as a program, such as git-push.
            started += self.find_in_words(("git", name.removeprefix("git-"), *words[1:]), sure=sure)
        in_arguments = self.find_in_arguments(name, list(words[1:]))
        started += _as_certain_as(in_arguments, sure=sure)
        self.depth -= 1
        return started

    def find_in_arguments(self, name: str, arguments: list[str]) -> list[StartedProgram]:  # noqa: PLR0911 -- one for each way of starting others
        """Find the programs that this program starts, by what it does with its arguments: a
        shell, one file for many programs (busybox), a program with a reader of its own (env),
        a wrapper that runs the command after its options (nice), a wrapper of which it is not
        known where that command begins, or any other program.
        """
        program = name_without_version(name)
        if program in program_tables.SHELLS or program in program_tables.OTHER_SHELLS:
            return self.readers_by_program["sh"](self, [program, *arguments])
        if program in program_tables.MULTI_CALL_PROGRAMS:
            # An option such as `busybox --list` starts nothing.
            if not arguments or arguments[0].startswith("--"):
                return []
            return self.find_in_words(tuple(arguments), sure=True)
        reader = self.readers_by_program.get(program)
        if reader:
            return reader(self, arguments)
        wrapper = program_tables.WRAPPERS.get(program)
        if wrapper:
            return self.started_by_wrapper(wrapper, arguments)
        is_loose_wrapper = program in program_tables.LOOSE_WRAPPERS
        if is_loose_wrapper or _has_starting_subcommand(program, arguments):
            started = self.guess_programs(arguments)
            if program in ("ssh", "strace"):
                started += self.find_in_options(program, arguments)
            return started
        return self.find_in_options(program, arguments)

    def started_by_wrapper(
        self, wrapper: WrapperProgram, arguments: list[str]
    ) -> list[StartedProgram]:
        """Find the program that a wrapper runs, such as `make` in `timeout -k 5 60 make`.

        Its own options come first, then its own words (here 60), then, for some wrappers,
        variables such as `CC=gcc`, and the rest is the command.
        """
        end_of_options = find_end_of_options(wrapper, arguments)
        if end_of_options is None:
            return self.guess_programs(arguments)
        words_after_options = arguments[end_of_options:]
        own_words = words_after_options[: wrapper.operands]
        # An expansion into several words would move the program to another place.
        if any(MANY in word for word in own_words):
            raise UnreadableCommand("the program to run comes from a shell expansion")
        command_words = words_after_options[len(own_words) :]
        started: list[StartedProgram] = []
        while wrapper.sets and command_words and "=" in command_words[0]:
            assignment = command_words.pop(0)
            started += self.find_in_assignments([assignment])
        return started + self.find_in_words(tuple(command_words), sure=True)

    def guess_programs(self, arguments: Sequence[str]) -> list[StartedProgram]:
        """Treat each of these words as a possible program with the words after it."""
        if self.is_guessing:
            self.doubts.append(
                "it starts programs through other programs, so it is not clear what will run"
            )
            return []
        self.is_guessing = True
        started: list[StartedProgram] = []
        for position, word in enumerate(arguments):
            value = word
            if word.startswith("-"):
                value = word.partition("=")[2]
            try:
                if " " in value:
                    started += self.find_in_text(value, sure=False)
                elif value:
                    started += self.find_in_words((value, *arguments[position + 1 :]), sure=False)
            except UnreadableCommand as hidden:
                self.doubts.append(str(hidden))
        self.is_guessing = False
        return started

    def find_in_options(self, name: str, arguments: Sequence[str]) -> list[StartedProgram]:
        options = program_tables.COMMAND_OPTIONS.get(name, ())
        texts = option_values(arguments, options) + _values_in_clusters(arguments, options)
        if name == "tar":
            # `--checkpoint-action=exec=command` has the command behind a second equals sign.
            texts += [word.partition("exec=")[2] for word in arguments if "exec=" in word]
            texts += _commands_of_old_style_tar(arguments)
        if name in ("ssh", "scp", "sftp"):
            for setting in _list_settings_of_ssh(arguments):
                texts.append(_command_of_ssh_setting(setting))
        if name == "zip":
            texts += [word[3:] for word in arguments if re.match("-TT.", word)]
        if name == "strace":
            texts += _commands_that_strace_writes_to(arguments)
        started: list[StartedProgram] = []
        for text in texts:
            started += self.find_in_text(text)
        return started

    def add_started_script(self, path: str) -> list[StartedProgram]:
        """Note that this file is run as a script. Refuse one that is not known, or that is the
        input.
        """
        is_from_input = path == "-" or path.startswith(("/dev/", "/proc/"))
        if is_from_input or not is_certain_word(program_base_name(path)):
            raise UnreadableCommand("the script to run comes from a shell expansion")
        self.scripts.append(path)
        return []

    def note_inline_code(self, words: Sequence[str]) -> None:
        """Note code in the arguments, as in `python -c`, and whether it may start programs."""
        name = name_without_version(words[0])
        is_given_code = is_interpreter_given_code(words)
        self.has_inline_code |= is_given_code or has_loading_option(words)
        reads_program = _reads_program_from_input(name, words)
        if reads_program and not self.here_documents:
            only_informs = not {"--version", "-V", "-v"}.isdisjoint(words)
            if not only_informs:
                self.doubts.append(f"{name} reads a program from somewhere else")
        if is_given_code or reads_program:
            code = "\n".join(list(words[1:]) + self.here_documents)
            if may_start_programs(code):
                self.doubts.append(f"{name} is given a program that may start others")
        if name in ("sed", "gsed") and any(map(_sed_may_run, words[1:])):
            self.doubts.append("sed is told to run something")


def _has_starting_subcommand(program: str, arguments: Sequence[str]) -> bool:
    """Whether the program starts another one behind one of its words, as in `npm exec`. Behind
    options, as in `npm --silent exec`, it may be any word: who knows which options have a value.
    """
    starting_subcommands = program_tables.LOOSE_AFTER.get(program)
    if not starting_subcommands or not arguments:
        return False
    if not arguments[0].startswith(("-", "+")):
        return arguments[0] in starting_subcommands
    return not set(arguments).isdisjoint(starting_subcommands)


def _commands_that_strace_writes_to(arguments: Sequence[str]) -> list[str]:
    """Return the commands of `strace -o '|command'`: the sign makes a command of a file's name."""
    outputs = option_values(arguments, ("-o", "--output"))
    outputs += _values_in_clusters(arguments, ("-o",))
    return [output[1:] for output in outputs if output.startswith(("|", "!"))]


def _values_in_clusters(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the values of short options that stand behind others, as in `rsync -ave ssh` or
    `-avessh`. Some of these letters may be the value of one before them.
    """
    values: list[str] = []
    for number, word in enumerate(arguments):
        for option in options:
            if len(option) != 2:
                continue
            match = re.match(
                rf"-[A-Za-z0-9]+?{re.escape(option[1])}(?P<value>.*)\Z", word, re.DOTALL
            )
            if match is None:
                continue
            if match["value"]:
                values.append(match["value"])
            else:
                values += arguments[number + 1 : number + 2]
    return values


def _commands_of_old_style_tar(arguments: Sequence[str]) -> list[str]:
    """Return the programs that `tar cIf zstd a.tar folder` names: letters without a hyphen, and
    their values behind them, in the order of the letters.
    """
    if not arguments or arguments[0].startswith("-"):
        return []
    letters_with_value = [letter for letter in arguments[0] if letter in "bCfFgHIKLNTVX"]
    commands: list[str] = []
    # There may be fewer values than letters.
    for letter, value in zip(letters_with_value, arguments[1:], strict=False):
        if letter in "IF":
            commands.append(value)
    return commands


def _list_settings_of_ssh(arguments: Sequence[str]) -> list[str]:
    """Return the values of `-o`, also behind options without a value, as in `-4vo NAME=VALUE`."""
    settings: list[str] = []
    for number, word in enumerate(arguments):
        match = _SETTING_OF_SSH.match(word)
        if match is None:
            continue
        if match["value"]:
            settings.append(match["value"])
        else:
            settings += arguments[number + 1 : number + 2]
    return settings


def _command_of_ssh_setting(setting: str) -> str:
    """Return the command in `ProxyCommand=nc %h %p`, or nothing if the setting starts none."""
    match = _COMMAND_OF_SSH.match(setting)
    if match is None:
        return ""
    return match["command"].strip('"')


def _can_be_program(name: str) -> bool:
    """Whether this name of a program is known in full."""
    if not name or not is_certain_word(name):
        return False
    # A word with "=" sets a variable.
    return name not in _NO_PROGRAMS and "=" not in name


def _reads_program_from_input(name: str, words: Sequence[str]) -> bool:
    """Whether this is an interpreter without a file."""
    has_only_options = all(word.startswith("-") for word in words[1:])
    return has_only_options and name in program_tables.CODE_OPTIONS


def _as_certain_as(programs: Sequence[StartedProgram], *, sure: bool) -> list[StartedProgram]:
    """Return programs of a command that is itself only certain if `sure`."""
    return [StartedProgram(program.words, program.is_certain and sure) for program in programs]


def _sed_may_run(script: str) -> bool:
    """Whether a sed script has the command `e`, or the flag `e` after the third
    delimiter (`s/a/b/e`).
    """
    if _SED_RUNS.search(script):
        return True
    for line in script.split("\n"):
        # Any sign may be the delimiter.
        for delimiter in set(_SED_SIGN.findall(line)):
            behind_third_delimiter = line.split(delimiter)[3:]
            if any(map(_SED_FLAG.match, behind_third_delimiter)):
                return True
    return False


def find_end_of_options(wrapper: WrapperProgram, arguments: Sequence[str]) -> int | None:
    """Return where a wrapper's own options end, or None if one is unknown."""
    position = 0
    while position < len(arguments):
        word = arguments[position]
        if word == "-" or not word.startswith("-"):
            break
        position += 1
        if word == "--":
            return position
        if not is_certain_word(word.partition("=")[0]):
            raise UnreadableCommand("the program to run comes from a shell expansion")
        takes_next_word = _takes_next_word(wrapper, word)
        if takes_next_word is None:
            return None
        if not takes_next_word:
            continue
        # More words than one may come of it, and the second would be the program.
        if MANY in "".join(arguments[position : position + 1]):
            raise UnreadableCommand("the program to run comes from a shell expansion")
        position += 1
    return position


def _takes_next_word(wrapper: WrapperProgram, word: str) -> bool | None:
    """Whether the value of this option is the next word. None: the option is unknown."""
    if word.startswith("--"):
        name, equals, _ = word[2:].partition("=")
        if name in wrapper.words:
            return not equals
        if name in wrapper.bare:
            return False
        return None
    # Letters without a value, until one takes the rest of the word or, at its end, the next word.
    last_position = len(word) - 1
    for position, letter in enumerate(word[1:], 1):
        if letter in wrapper.takes:
            return position == last_position
        if letter not in wrapper.flags:
            return None
    return False


def option_values(
    arguments: Sequence[str], options: Sequence[str], *, clusters: bool = False
) -> list[str]:
    """Return the values of these options, however attached, even if long ones are cut short."""
    values = []
    for number, word in enumerate(arguments):
        next_word = ""
        if number + 1 < len(arguments):
            next_word = arguments[number + 1]
        for option in options:
            value = _value_of_option(word, next_word, option, clusters=clusters)
            if value is not None:
                values.append(value)
    return values


def _value_of_option(word: str, next_word: str, option: str, *, clusters: bool) -> str | None:
    """The value that this word gives the option, or None if it is another option."""
    if word == option:
        return next_word
    if len(option) > 2:
        return _value_of_long_option(word, next_word, option)
    if word.startswith(option):
        return word[2:]
    # The last letter of several, as `-xe`.
    if clusters and re.fullmatch(rf"-[A-Za-z]+{option[-1]}", word):
        return next_word
    return None


def _value_of_long_option(word: str, next_word: str, option: str) -> str | None:
    """The value that this word gives a long option, which may be cut short, or None if it is
    another option.
    """
    name, equals, value = word.partition("=")
    is_cut_short = name.startswith("--") and name not in program_tables.WHOLE_OPTIONS
    if name != option and not (is_cut_short and option.startswith(name)):
        return None
    if equals:
        return value
    return next_word
