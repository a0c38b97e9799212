"""A command line taken apart so far: the commands found, and the programs each of them would start.

`programs.py` is what others call; `started_by.py` knows the programs that start others in a way of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from helix_desktop.tools import starters
from helix_desktop.tools.command_line import read
from helix_desktop.tools.own_code import coded, may_start, plain_name, program, runs_in_sed
from helix_desktop.tools.shell_words import MANY, RESERVED, Hidden, Simple, certain
from helix_desktop.tools.starters import Prefix
from helix_desktop.values import dataclass

_DEEPEST = 10
_NO_PROGRAMS = RESERVED - {"time"}  # somebody takes one for a shell's own word, or means it as such
_SUBSTITUTION = re.compile(r"\$\(|`|<\(")


@dataclass(frozen=True, slots=True)
class Started:
    """A program that would be started, with its words as it gets them; `ANY` and `MANY` stand for what the shell fills in.
    `sure`: it surely is one; else it is a word that may be one.
    """

    words: tuple[str, ...]
    sure: bool = True

    @property
    def name(self) -> str:
        return program(self.words[0])


@dataclass(frozen=True, slots=True)
class Written:
    """A command as it is written in the line. `starts`: the programs it would start; `code`: it brings
    code of its own, or settings that start something.
    """

    words: tuple[str, ...]
    starts: tuple[Started, ...] = ()
    code: bool = False


Handler = Callable[["Line", list[str]], list[Started]]


@dataclass(slots=True)
class Line:
    """What was found in a line so far. `own`: how the words of a program that starts others are read, by its name."""

    own: Mapping[str, Handler]
    doubts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)  # files that are run
    placed: list[str] = field(default_factory=list)  # words of commands that put files somewhere
    depth: int = 0
    guessing: bool = False
    coded: bool = False  # the command just read brings code of its own
    given: list[str] = field(default_factory=list)  # what it reads from here documents
    places: bool = False
    moves_path: bool = False
    literal: bool = False  # a substitution stands in it as text
    sums: bool = False

    def read(self, text: str, *, bash: bool = True) -> tuple[list[Written], bool]:
        """The commands of a text a shell gets, and whether they are plain."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Hidden("it nests too many shells")
        reading = read(text)
        if reading.only_bash and not bash:
            raise Hidden("different shells interpret it differently")
        self.writes += reading.writes
        self.sums |= reading.sums
        commands = [one for simple in reading.commands for one in self.simple(simple)]
        self.depth -= 1
        return commands, reading.plain

    def check(self) -> None:
        """What only the whole line shows: files it makes and runs, and text it makes a program of."""
        made = [*self.writes, *self.placed]
        for script in self.scripts:
            name = program(script)
            if any(not certain(word) and ">" not in word for word in self.writes) or any(name in word for word in made):
                raise Hidden(f"it creates {name} and runs it")
        if self.moves_path and (self.places or self.writes):
            raise Hidden("it changes the search path for programs and puts files in a folder on that path")
        if self.sums and self.literal:
            raise Hidden("its arithmetic can run text as a command")

    def simple(self, simple: Simple) -> list[Written]:
        texts = [*simple.words, *(value for _, value in simple.sets)]
        self.literal |= any(_SUBSTITUTION.search(text) for text in texts)
        self.texts += [value for _, value in simple.sets]
        starts = [one for name, value in simple.sets for one in self.set(name, value)]
        if not simple.words:
            return [Written(one.words) for one in starts]
        doubts = len(self.doubts)
        self.coded = False
        self.given = simple.given
        starts += self.starts(tuple(simple.words), sure=True)[1:]
        self.given = []
        code = self.coded or len(self.doubts) > doubts
        return [Written(tuple(simple.words), tuple(starts), code)]

    def note(self, name: str, rest: Sequence[str]) -> None:
        """What is told of a program for the rules that hold something back."""
        if name in starters.PLACES:
            self.places = True
            self.placed += [word for word in rest if certain(word)]
        if (
            name not in starters.DATA
            and name not in starters.PREFIXES
            and name not in starters.SHELLS
            and name not in self.own
        ):
            self.texts += rest[1:] if name in starters.SUBCOMMANDS else rest
        if name not in starters.DATA:
            self.texts += self.given

    # --- variables ---------------------------------------------------------------------------------------------------

    def set(self, name: str, value: str) -> list[Started]:
        """What setting this variable would start."""
        if name == "PATH":
            self.moves_path = True
        if name in starters.LOADING_VARIABLES or name.startswith(starters.LOADING_BEGINNINGS):
            raise Hidden(f"it sets {name}, which can make programs run other programs")
        if name not in starters.COMMAND_VARIABLES or not value:
            return []
        return self.text(value)

    def sets(self, words: Sequence[str]) -> list[Started]:
        """Variables set by `export A=b`, `env A=b` and the like."""
        pairs = [word.partition("=") for word in words if "=" in word]
        if any(not certain(name) for name, _, _ in pairs):
            raise Hidden("the name of a variable comes from a shell expansion")
        return [one for name, _, value in pairs for one in self.set(name.removesuffix("+"), value)]

    # --- commands that start others ----------------------------------------------------------------------------------

    def text(self, text: str, *, bash: bool = True, sure: bool = True) -> list[Started]:
        """A command line inside a word, as a shell would run it."""
        if not certain(text):
            raise Hidden("another shell runs commands that come from a shell expansion")
        commands, _ = self.read(text, bash=bash)
        return [Started(one.words, one.sure and sure) for command in commands for one in _all(command)]

    def starts(self, words: tuple[str, ...], *, sure: bool) -> list[Started]:
        """The program these words start, and those it starts in turn."""
        if not words:
            return []
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Hidden("it starts programs through other programs")
        name = program(words[0])
        if not name or not certain(name) or MANY in words[0] or name in _NO_PROGRAMS or "=" in name:
            raise Hidden("the program to run comes from a shell expansion")
        if words[0] != name:
            self.scripts.append(words[0])
        self.note(name, words[1:])
        self.judge(words)
        found = [Started(words, sure)]
        if name.startswith("git-"):  # git's commands are programs of their own as well
            found += self.starts(("git", name.removeprefix("git-"), *words[1:]), sure=sure)
        found += [Started(one.words, one.sure and sure) for one in self.within(name, list(words[1:]))]
        self.depth -= 1
        return found

    def within(self, name: str, rest: list[str]) -> list[Started]:
        name = plain_name(name)
        if name in starters.SHELLS or name in starters.OTHER_SHELLS:
            return self.own["sh"](self, [name, *rest])
        if name in starters.MULTIPLE:
            return self.starts(tuple(rest), sure=True) if rest and not rest[0].startswith("--") else []
        if own := self.own.get(name):
            return own(self, rest)
        if prefix := starters.PREFIXES.get(name):
            return self.prefix(prefix, rest)
        if name in starters.LOOSE or (rest and rest[0] in starters.LOOSE_AFTER.get(name, ())):
            return self.guesses(rest)
        return self.options(name, rest)

    def prefix(self, prefix: Prefix, rest: list[str]) -> list[Started]:
        at = behind_options(prefix, rest)
        if at is None:
            return self.guesses(rest)
        own = rest[at : at + prefix.operands]
        if any(MANY in word for word in own):
            raise Hidden("the program to run comes from a shell expansion")
        at += len(own)
        found: list[Started] = []
        while prefix.sets and at < len(rest) and "=" in rest[at]:
            found += self.sets([rest[at]])
            at += 1
        return [*found, *self.starts(tuple(rest[at:]), sure=True)]

    def guesses(self, rest: Sequence[str]) -> list[Started]:
        """Any of these words may be a program with the words behind it."""
        if self.guessing:
            self.doubts.append("it starts programs through other programs")
            return []
        self.guessing = True
        found: list[Started] = []
        for at, word in enumerate(rest):
            value = word.partition("=")[2] if word.startswith("-") else word
            try:
                if " " in value:
                    found += self.text(value, sure=False)
                elif value:
                    found += self.starts((value, *rest[at + 1 :]), sure=False)
            except Hidden as hidden:
                self.doubts.append(str(hidden))
        self.guessing = False
        return found

    def options(self, name: str, rest: Sequence[str]) -> list[Started]:
        """Options whose value is a command."""
        given = values(rest, starters.COMMAND_OPTIONS.get(name, ()))
        if name == "tar":
            given += [word.partition("exec=")[2] for word in rest if "exec=" in word]
        return [one for value in given for one in self.text(value)]

    def script(self, path: str) -> list[Started]:
        if not certain(path.rpartition("/")[2]) or path.startswith(("/dev/", "/proc/")) or path == "-":
            raise Hidden("the script to run comes from a shell expansion")
        self.scripts.append(path)
        return []

    def judge(self, words: Sequence[str]) -> None:
        """Whether a program is given code of its own, as behind `python -c`, and whether that may start others."""
        name = plain_name(words[0])
        self.coded |= coded(words)
        reads = name in starters.CODE and all(word.startswith("-") for word in words[1:])
        if reads and not self.given and not {"--version", "-V", "-v"} & set(words):
            self.doubts.append(f"{name} reads a program from somewhere else")
        text = "\n".join([*words[1:], *self.given])
        if (coded(words) or reads) and may_start(text):
            self.doubts.append(f"{name} is given a program that may start others")
        if name in ("sed", "gsed") and runs_in_sed(words[1:]):
            self.doubts.append("sed is told to run something")


def _all(command: Written) -> tuple[Started, ...]:
    return (Started(command.words), *command.starts)


def behind_options(prefix: Prefix, rest: Sequence[str]) -> int | None:
    """Where a wrapper's own options end; None where one of them is not known."""
    at = 0
    while at < len(rest) and rest[at].startswith("-") and rest[at] != "-":
        word = rest[at]
        at += 1
        if word == "--":
            return at
        if not certain(word.partition("=")[0]):
            raise Hidden("the program to run comes from a shell expansion")
        if word.startswith("--"):
            name, equals, _ = word[2:].partition("=")
            if name not in prefix.words and name not in prefix.bare:
                return None
            skip = name in prefix.words and not equals
        else:
            taker = next((n for n, letter in enumerate(word[1:], 1) if letter in prefix.takes), 0)
            known = word[1 : taker or len(word)]
            if any(letter not in prefix.flags for letter in known):
                return None
            skip = taker == len(word) - 1 and taker > 0
        if skip and MANY in "".join(rest[at : at + 1]):
            raise Hidden("the program to run comes from a shell expansion")
        at += skip
    return at


def values(rest: Sequence[str], options: Sequence[str], *, clusters: bool = False) -> list[str]:
    """The values of these options, however they are attached."""
    found = []
    for at, word in enumerate(rest):
        for option in options:
            behind = rest[at + 1] if at + 1 < len(rest) else ""
            if word == option:
                found.append(behind)
            elif len(option) > 2 and word.startswith(f"{option}="):
                found.append(word[len(option) + 1 :])
            elif not option.startswith("--") and len(option) == 2 and word.startswith(option):
                found.append(word[2:])
            elif clusters and re.fullmatch(rf"-[A-Za-z]+{option[-1]}", word) and len(option) == 2:
                found.append(behind)
    return found
