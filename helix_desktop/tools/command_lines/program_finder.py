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
# No two parts match the same characters, so even very long words from a model cannot
# make this slow.
_SED_RUNS = re.compile(
    r"(?:^\s*|[;{}\n$!/\d][^\S\n]*)e(?:\s|$)|(?:^\s*|[;{}\n][^\S\n]*)(?:\d+|\$|/[^/\n]*/)"
    # In `1egit push`, nothing separates command and text.
    r"(?:,\s*(?:[+~]?\d+|\$|/[^/\n]*/))?\s*(?:!\s*)?e"
    r"|^\s*e\S+\s"
)
_SED_SIGN, _SED_FLAG = re.compile(r"[^\w\s\\]"), re.compile(r"[gpiImM0-9]*e")


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
    if (letters := program_tables.CODE_OPTIONS.get(name)) is None:
        return name in program_tables.SCRIPT_LANGUAGES
    for word in words[1:]:
        if word == "-m" or not word.startswith(("-", "+")):
            return False
        if word == "-" or _is_code_option(word, letters):
            return True
    return name not in program_tables.EDITORS


def may_read_code_from_input(words: Sequence[str]) -> bool:
    """Whether what is piped into this command would be run as code: `python3 -`, `sqlite3 a.db`."""
    name = name_without_version(words[0])
    if name in program_tables.READS_COMMANDS:
        return True
    if name not in program_tables.CODE_OPTIONS:
        return False
    files = [word for word in words[1:] if word == "-" or not word.startswith("-")]
    return not files or "-" in files


def has_loading_option(words: Sequence[str]) -> bool:
    """Whether an option names code to load, settings, or a file to write. Long ones may
    be cut short.
    """
    letters, text = program_tables.LOADING_OPTIONS.get(name_without_version(words[0]), ("", ""))
    options = text.replace("-", "").casefold().split()
    for word in words[1:]:
        name = re.split("[=:]", word.lstrip("-"))[0].replace("-", "").casefold()
        if word.startswith("--"):
            is_cut = name not in ("", *program_tables.UNLIKE_LOADING_OPTIONS)
            found = name in options or (
                is_cut and any(option.startswith(name) for option in options)
            )
        elif word.startswith("-"):
            found = name in options or bool(
                letters and re.match(f"-[A-Za-z]{{0,3}}[{letters}]", word)
            )
        else:
            found = word.startswith("@") and "@" in letters
        if found:
            return True
    return False


def _is_code_option(word: str, letters: str) -> bool:
    if word.startswith("+") or not is_certain_word(word):
        return True
    if word.lstrip("-").partition("=")[0] in program_tables.CODE_WORDS:
        return True
    return not word.startswith("--") and bool(set(word[1:]) & set(letters))


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
    """`has_own_code`: it contains code, or settings that start something."""

    words: tuple[str, ...]
    started_programs: tuple[StartedProgram, ...] = ()
    has_own_code: bool = False


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
    placed_files: list[str] = field(
        default_factory=list
    )  # The arguments of commands that copy or write files.
    depth: int = 0
    is_guessing: bool = False
    has_inline_code: bool = False  # True if the arguments of the command just read contain code.
    here_documents: list[str] = field(
        default_factory=list
    )  # Here documents that are the input of the current command.
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
        reading = shell_parser.parse_command_line(text)
        if reading.only_bash and not bash:
            raise UnreadableCommand("different shells interpret it differently")
        self.written_files += reading.written_files
        self.has_arithmetic |= reading.has_arithmetic
        self.has_quoted_substitution |= reading.has_quoted_substitution
        commands = [
            one for simple in reading.commands for one in self.find_programs_started_by(simple)
        ]
        self.depth -= 1
        return commands, reading.unsure

    def check_whole_line(self) -> None:
        """Check what only the whole line shows: files it creates and runs, and text it
        runs as a program.
        """
        made = [*self.written_files, *self.placed_files]
        is_unsure = any(
            not is_certain_word(word) and ">" not in word for word in self.written_files
        )
        for name in map(program_base_name, self.scripts):
            if is_unsure or any(name in word for word in made):
                raise UnreadableCommand(f"it creates and runs {name}")
        if self.changes_path and (self.places_files or self.written_files):
            raise UnreadableCommand(
                "it changes the search path for programs and creates files in one of its folders"
            )
        if self.has_arithmetic and self.has_quoted_substitution:
            raise UnreadableCommand("an arithmetic expression can run text as a command")

    def find_programs_started_by(self, simple: shell_parser.SimpleCommand) -> list[WrittenCommand]:
        """Return the command with the programs that it starts."""
        self.texts += [value for _, value in simple.assignments]
        starts = [
            one for name, value in simple.assignments for one in self.find_in_variable(name, value)
        ]
        if not simple.words:
            return [WrittenCommand(one.words) for one in starts]
        doubts = len(self.doubts)
        self.has_inline_code = False
        self.here_documents = simple.here_documents
        starts += self.find_in_words(tuple(simple.words), sure=True)[1:]
        self.here_documents = []
        code = self.has_inline_code or len(self.doubts) > doubts
        return [WrittenCommand(tuple(simple.words), tuple(starts), code)]

    def collect_texts_and_placed_files(self, name: str, rest: Sequence[str]) -> None:
        """Collect words and files that only rules that deny or ask need."""
        if name in program_tables.FILE_PLACING_PROGRAMS:
            self.places_files = True
            self.placed_files += [word for word in rest if is_certain_word(word)]
        if name in program_tables.DATA_PROGRAMS:
            return
        if not any(
            name in known
            for known in (program_tables.WRAPPERS, program_tables.SHELLS, self.readers_by_program)
        ):
            self.texts += rest[1:] if name in program_tables.PROGRAMS_WITH_SUBCOMMANDS else rest
        self.texts += self.here_documents

    # --- Programs that variables name

    def find_in_variable(self, name: str, value: str) -> list[StartedProgram]:
        if name == "PATH":
            self.changes_path = True
        if name in program_tables.LOADING_VARIABLES or name.startswith(
            program_tables.LOADING_BEGINNINGS
        ):
            raise UnreadableCommand(f"it sets {name}, which can make programs run other programs")
        if name not in program_tables.COMMAND_VARIABLES or not value:
            return []
        return self.find_in_text(value)

    def find_in_assignments(self, words: Sequence[str]) -> list[StartedProgram]:
        """Find programs in variables that `export A=b`, `env A=b` and the like set."""
        pairs = [word.partition("=") for word in words if "=" in word]
        if any(not is_certain_word(name) for name, _, _ in pairs):
            raise UnreadableCommand("the name of a variable comes from a shell expansion")
        return [
            one
            for name, _, value in pairs
            for one in self.find_in_variable(name.removesuffix("+"), value)
        ]

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
        return [
            StartedProgram(one.words, one.is_certain and sure)
            for command in commands
            for one in (StartedProgram(command.words), *command.started_programs)
        ]

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
        if (
            not name
            or not is_certain_word(name)
            or MANY in words[0]
            or name in _NO_PROGRAMS
            or "=" in name
        ):
            raise UnreadableCommand("the program to run comes from a shell expansion")
        if words[0] != name:
            self.scripts.append(words[0])
        self.collect_texts_and_placed_files(name, words[1:])
        self.note_inline_code(words)
        found = [StartedProgram(words, sure)]
        if name.startswith("git-"):  # Each git command also exists as a program, such as git-push.
            found += self.find_in_words(("git", name.removeprefix("git-"), *words[1:]), sure=sure)
        found += [
            StartedProgram(one.words, one.is_certain and sure)
            for one in self.find_in_arguments(name, list(words[1:]))
        ]
        self.depth -= 1
        return found

    def find_in_arguments(self, name: str, rest: list[str]) -> list[StartedProgram]:
        name = name_without_version(name)
        if name in program_tables.SHELLS or name in program_tables.OTHER_SHELLS:
            return self.readers_by_program["sh"](self, [name, *rest])
        if name in program_tables.MULTI_CALL_PROGRAMS:
            return (
                self.find_in_words(tuple(rest), sure=True)
                if rest and not rest[0].startswith("--")
                else []
            )
        if own := self.readers_by_program.get(name):
            return own(self, rest)
        if prefix := program_tables.WRAPPERS.get(name):
            return self.started_by_wrapper(prefix, rest)
        if name in program_tables.LOOSE_WRAPPERS or (
            rest and rest[0] in program_tables.LOOSE_AFTER.get(name, ())
        ):
            return self.guess_programs(rest)
        return self.find_in_options(name, rest)

    def started_by_wrapper(self, prefix: WrapperProgram, rest: list[str]) -> list[StartedProgram]:
        if (at := find_end_of_options(prefix, rest)) is None:
            return self.guess_programs(rest)
        own = rest[at : at + prefix.operands]
        if any(MANY in word for word in own):
            raise UnreadableCommand("the program to run comes from a shell expansion")
        at += len(own)
        found: list[StartedProgram] = []
        while prefix.sets and at < len(rest) and "=" in rest[at]:
            found += self.find_in_assignments([rest[at]])
            at += 1
        return [*found, *self.find_in_words(tuple(rest[at:]), sure=True)]

    def guess_programs(self, rest: Sequence[str]) -> list[StartedProgram]:
        """Treat each of these words as a possible program with the words after it."""
        if self.is_guessing:
            self.doubts.append(
                "it starts programs through other programs, so it is not clear what will run"
            )
            return []
        self.is_guessing = True
        found: list[StartedProgram] = []
        for at, word in enumerate(rest):
            value = word.partition("=")[2] if word.startswith("-") else word
            try:
                if " " in value:
                    found += self.find_in_text(value, sure=False)
                elif value:
                    found += self.find_in_words((value, *rest[at + 1 :]), sure=False)
            except UnreadableCommand as hidden:
                self.doubts.append(str(hidden))
        self.is_guessing = False
        return found

    def find_in_options(self, name: str, rest: Sequence[str]) -> list[StartedProgram]:
        given = option_values(rest, program_tables.COMMAND_OPTIONS.get(name, ()))
        if name == "tar":
            given += [word.partition("exec=")[2] for word in rest if "exec=" in word]
        return [one for value in given for one in self.find_in_text(value)]

    def add_started_script(self, path: str) -> list[StartedProgram]:
        if (
            not is_certain_word(path.rpartition("/")[2])
            or path.startswith(("/dev/", "/proc/"))
            or path == "-"
        ):
            raise UnreadableCommand("the script to run comes from a shell expansion")
        self.scripts.append(path)
        return []

    def note_inline_code(self, words: Sequence[str]) -> None:
        """Note code in the arguments, as in `python -c`, and whether it may start programs."""
        name = name_without_version(words[0])
        self.has_inline_code |= is_interpreter_given_code(words) or has_loading_option(words)
        reads = name in program_tables.CODE_OPTIONS and all(
            word.startswith("-") for word in words[1:]
        )
        if reads and not self.here_documents and not {"--version", "-V", "-v"} & set(words):
            self.doubts.append(f"{name} reads a program from somewhere else")
        text = "\n".join([*words[1:], *self.here_documents])
        if (is_interpreter_given_code(words) or reads) and may_start_programs(text):
            self.doubts.append(f"{name} is given a program that may start others")
        if name in ("sed", "gsed") and any(map(_sed_may_run, words[1:])):
            self.doubts.append("sed is told to run something")


def _sed_may_run(script: str) -> bool:
    """Whether a sed script has the command `e`, or the flag `e` after the third
    delimiter (`s/a/b/e`).
    """
    pieces = (
        line.split(sign)[3:] for line in script.split("\n") for sign in set(_SED_SIGN.findall(line))
    )
    return bool(_SED_RUNS.search(script)) or any(
        _SED_FLAG.match(one) for behind in pieces for one in behind
    )


def find_end_of_options(prefix: WrapperProgram, rest: Sequence[str]) -> int | None:
    """Return where a wrapper's own options end, or None if one is unknown."""
    at = 0
    while at < len(rest) and rest[at].startswith("-") and rest[at] != "-":
        word = rest[at]
        at += 1
        if word == "--":
            return at
        if not is_certain_word(word.partition("=")[0]):
            raise UnreadableCommand("the program to run comes from a shell expansion")
        takes_next_word = _takes_next_word(prefix, word)
        if takes_next_word is None:
            return None
        if takes_next_word:
            # More words than one may come of it, and the second would be the program.
            if at < len(rest) and MANY in rest[at]:
                raise UnreadableCommand("the program to run comes from a shell expansion")
            at += 1
    return at


def _takes_next_word(prefix: WrapperProgram, word: str) -> bool | None:
    """Whether the value of this option is the next word. None: the option is unknown."""
    if word.startswith("--"):
        name, equals, _ = word[2:].partition("=")
        if name in prefix.words:
            return not equals
        return False if name in prefix.bare else None
    # Letters without a value, until one takes the rest of the word or the next word.
    for number, letter in enumerate(word[1:], 1):
        if letter in prefix.takes:
            return number == len(word) - 1
        if letter not in prefix.flags:
            return None
    return False


def option_values(
    rest: Sequence[str], options: Sequence[str], *, clusters: bool = False
) -> list[str]:
    """Return the values of these options, however attached, even if long ones are cut short."""
    values = []
    for number, word in enumerate(rest):
        next_word = rest[number + 1] if number + 1 < len(rest) else ""
        for option in options:
            value = _value_of_option(word, next_word, option, clusters=clusters)
            if value is not None:
                values.append(value)
    return values


def _value_of_option(word: str, next_word: str, option: str, *, clusters: bool) -> str | None:
    """The value that this word gives the option, or None if it is another option."""
    name, equals, value = word.partition("=")
    if len(option) > 2:
        is_cut_short = name.startswith("--") and name not in program_tables.WHOLE_OPTIONS
        if name == option or (is_cut_short and option.startswith(name)):
            return value if equals else next_word
    if word == option:
        return next_word
    is_letter = len(option) == 2 and not option.startswith("--")
    if is_letter and word.startswith(option):
        return word[2:]
    if clusters and len(option) == 2 and re.fullmatch(rf"-[A-Za-z]+{option[-1]}", word):
        return next_word
    return None
