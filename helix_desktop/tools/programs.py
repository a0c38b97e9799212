"""Which programs a command line would start: through assignments, wrappers, shells, xargs, find, git's own options.

    programs("timeout 5 env A=1 git -C sub push")  # Known: timeout, env, git -C sub push, git push
    programs("$TOOL push")                         # Unknown: the shell fills in which program runs

`Unknown` is what the shell itself hides. What a program does inside (make, scripts, code of its own) is the sandbox's
matter. Pure: nothing is looked up on the disk.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from helix_desktop.tools import starters
from helix_desktop.tools.command_line import read
from helix_desktop.tools.shell_words import ANY, MANY, Hidden, Simple, certain
from helix_desktop.tools.starters import Prefix

_DEEPEST = 10
_SUBSTITUTION = re.compile(r"\$\(|`|<\(")
_VERSION = re.compile(r"[\d.]+$")
_SED_RUNS = re.compile(r"(?:^|[;{}\n$!/]|\d)\s*e(?:\s|$)|([^\w\s\\]).*\1.*\1[gpiImM0-9]*e")
_REPLACED = re.compile(r"\{[\d#%./+-]*\}")


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


@dataclass(frozen=True, slots=True)
class Known:
    """`plain`: nothing but commands written out in full. `doubts`: where a program is told what to start in a way that is
    not read. `texts`: words in which another program may be named. `writes`: files the shell writes for the line.
    """

    commands: tuple[Written, ...]
    plain: bool
    doubts: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    @property
    def programs(self) -> tuple[Started, ...]:
        """All that would be started, each before what it starts itself."""
        return tuple(one for command in self.commands for one in (Started(command.words), *command.starts))


@dataclass(frozen=True, slots=True)
class Unknown:
    """What would run is hidden. `reason`: the end of a sentence."""

    reason: str


@lru_cache(maxsize=64)
def programs(line: str) -> Known | Unknown:
    """What the line would start in a shell of this system."""
    if sys.platform == "win32":
        return Unknown("PowerShell is not read")
    try:
        return _Line().known(line)
    except Hidden as hidden:
        return Unknown(str(hidden))


def program(word: str) -> str:
    """The name of a program, without where it is."""
    return word.rpartition("/")[2]


def plain_name(word: str) -> str:
    """The same without a version: `python` for `/usr/bin/python3.11`."""
    name = program(word)
    return name if name in starters.PREFIXES else _VERSION.sub("", name) or name


@dataclass(slots=True)
class _Line:
    """What was found in a line so far."""

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

    def known(self, text: str) -> Known:
        commands, plain = self.read(text)
        self._check()
        return Known(tuple(commands), plain, tuple(self.doubts), tuple(self.texts), tuple(self.writes))

    def read(self, text: str, *, bash: bool = True) -> tuple[list[Written], bool]:
        """The commands of a text a shell gets, and whether they are plain."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Hidden("it starts shells within shells")
        reading = read(text)
        if reading.only_bash and not bash:
            raise Hidden("not every shell reads it in the same way")
        self.writes += reading.writes
        self.sums |= reading.sums
        commands = [one for simple in reading.commands for one in self._simple(simple)]
        self.depth -= 1
        return commands, reading.plain

    def _check(self) -> None:
        """What only the whole line shows: files it makes and runs, and text it makes a program of."""
        made = [*self.writes, *self.placed]
        for script in self.scripts:
            name = program(script)
            if any(not certain(word) and ">" not in word for word in self.writes) or any(name in word for word in made):
                raise Hidden(f"it makes {name} and runs it")
        if self.moves_path and (self.places or self.writes):
            raise Hidden("it changes where programs are found, and puts files there")
        if self.sums and self.literal:
            raise Hidden("it calculates with text that is run")

    def _simple(self, simple: Simple) -> list[Written]:
        texts = [*simple.words, *(value for _, value in simple.sets)]
        self.literal |= any(_SUBSTITUTION.search(text) for text in texts)
        self.texts += [value for _, value in simple.sets]
        starts = [one for name, value in simple.sets for one in self._set(name, value)]
        if not simple.words:
            return [Written(one.words) for one in starts]
        doubts = len(self.doubts)
        self.coded = False
        self.given = simple.given
        starts += self._starts(tuple(simple.words), sure=True)[1:]
        self.given = []
        code = self.coded or len(self.doubts) > doubts
        return [Written(tuple(simple.words), tuple(starts), code)]

    def _note(self, name: str, rest: Sequence[str]) -> None:
        """What is told of a program for the rules that hold something back."""
        if name in starters.PLACES:
            self.places = True
            self.placed += [word for word in rest if certain(word)]
        if (
            name not in starters.DATA
            and name not in starters.PREFIXES
            and name not in starters.SHELLS
            and name not in _OWN
        ):
            self.texts += rest[1:] if name in starters.SUBCOMMANDS else rest
        if name not in starters.DATA:
            self.texts += self.given

    # --- variables ---------------------------------------------------------------------------------------------------

    def _set(self, name: str, value: str) -> list[Started]:
        """What setting this variable would start."""
        if name == "PATH":
            self.moves_path = True
        if name in starters.LOADING_VARIABLES or name.startswith(starters.LOADING_BEGINNINGS):
            raise Hidden(f"it sets {name}, which can make programs run others")
        if name not in starters.COMMAND_VARIABLES or not value:
            return []
        return self._text(value)

    def _sets(self, words: Sequence[str]) -> list[Started]:
        """Variables set by `export A=b`, `env A=b` and the like."""
        pairs = [word.partition("=") for word in words if "=" in word]
        if any(not certain(name) for name, _, _ in pairs):
            raise Hidden("the shell fills in which variable is set")
        return [one for name, _, value in pairs for one in self._set(name.removesuffix("+"), value)]

    # --- commands that start others ----------------------------------------------------------------------------------

    def _text(self, text: str, *, bash: bool = True, sure: bool = True) -> list[Started]:
        """A command line inside a word, as a shell would run it."""
        if not certain(text):
            raise Hidden("the shell fills in what another shell runs")
        commands, _ = self.read(text, bash=bash)
        return [Started(one.words, one.sure and sure) for command in commands for one in _all(command)]

    def _starts(self, words: tuple[str, ...], *, sure: bool) -> list[Started]:
        """The program these words start, and those it starts in turn."""
        if not words:
            return []
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Hidden("it starts programs within programs")
        name = program(words[0])
        if not name or not certain(name) or MANY in words[0] or name == "coproc":
            raise Hidden("the shell fills in which program runs")
        if words[0] != name:
            self.scripts.append(words[0])
        self._note(name, words[1:])
        self._judge(words)
        found = [Started(words, sure)]
        found += [Started(one.words, one.sure and sure) for one in self._within(name, list(words[1:]))]
        self.depth -= 1
        return found

    def _within(self, name: str, rest: list[str]) -> list[Started]:
        name = plain_name(name)
        if name in starters.SHELLS or name in starters.OTHER_SHELLS:
            return self._shell(name, rest)
        if name in starters.MULTIPLE:
            return self._starts(tuple(rest), sure=True) if rest and not rest[0].startswith("--") else []
        if own := _OWN.get(name):
            return own(self, rest)
        if prefix := starters.PREFIXES.get(name):
            return self._prefix(prefix, rest)
        if name in starters.LOOSE or (rest and rest[0] in starters.LOOSE_AFTER.get(name, ())):
            return self._guesses(rest)
        return self._options(name, rest)

    def _prefix(self, prefix: Prefix, rest: list[str]) -> list[Started]:
        at = _behind_options(prefix, rest)
        if at is None:
            return self._guesses(rest)
        own = rest[at : at + prefix.operands]
        if any(MANY in word for word in own):
            raise Hidden("the shell fills in which program runs")
        at += len(own)
        found: list[Started] = []
        while prefix.sets and at < len(rest) and "=" in rest[at]:
            found += self._sets([rest[at]])
            at += 1
        return [*found, *self._starts(tuple(rest[at:]), sure=True)]

    def _guesses(self, rest: Sequence[str]) -> list[Started]:
        """Any of these words may be a program with the words behind it."""
        if self.guessing:
            return []
        self.guessing = True
        found: list[Started] = []
        for at, word in enumerate(rest):
            value = word.partition("=")[2] if word.startswith("-") else word
            try:
                if " " in value:
                    found += self._text(value, sure=False)
                elif value:
                    found += self._starts((value, *rest[at + 1 :]), sure=False)
            except Hidden as hidden:
                self.doubts.append(str(hidden))
        self.guessing = False
        return found

    def _options(self, name: str, rest: Sequence[str]) -> list[Started]:
        """Options whose value is a command."""
        values = _values(rest, starters.COMMAND_OPTIONS.get(name, ()))
        if name == "tar":
            values += [word.partition("exec=")[2] for word in rest if "exec=" in word]
        return [one for value in values for one in self._text(value)]

    # --- shells and what is like one -----------------------------------------------------------------------------------

    def _shell(self, name: str, rest: list[str]) -> list[Started]:
        """`sh -c text`, or a script; a shell that reads commands from its input hides them."""
        if any(word in ("--version", "--help") for word in rest[:1]):
            return []
        at, runs = 0, False
        while at < len(rest) and rest[at][:1] in ("-", "+") and rest[at] not in ("-", "--"):
            word = rest[at]
            if not certain(word) or word in ("--rcfile", "--init-file"):
                raise Hidden("the shell fills in what another shell runs")
            at += 1
            if not word.startswith("--"):
                runs |= "c" in word[1:] and word[0] == "-"
                if "s" in word[1:] or "i" in word[1:]:
                    raise Hidden("another shell reads what to run from somewhere else")
                at += word[-1] in "oO"
        at += rest[at : at + 1] in (["-"], ["--"])
        if at >= len(rest) or MANY in rest[at]:
            raise Hidden("another shell reads what to run from somewhere else")
        if not runs:
            return self._script(rest[at])
        if name in starters.OTHER_SHELLS:
            raise Hidden(f"{name} is not read")
        return self._text(rest[at], bash=name in ("bash", "rbash"))

    def _script(self, path: str) -> list[Started]:
        if not certain(path.rpartition("/")[2]) or path.startswith(("/dev/", "/proc/")) or path == "-":
            raise Hidden("the shell fills in which script runs")
        self.scripts.append(path)
        return []

    def eval(self, rest: list[str]) -> list[Started]:
        return self._text(" ".join(rest)) if rest else []

    def source(self, rest: list[str]) -> list[Started]:
        return self._script(rest[0]) if rest else []

    def trap(self, rest: list[str]) -> list[Started]:
        rest = rest[1:] if rest[:1] == ["--"] else rest
        return self._text(rest[0]) if rest and rest[0] not in ("-", "-l", "-p") else []

    def command(self, rest: list[str]) -> list[Started]:
        looks = rest and rest[0].startswith("-") and set(rest[0]) & set("vV")
        return [] if looks else self._prefix(starters.PREFIXES["command"], rest)

    def changes_names(self, rest: list[str]) -> list[Started]:
        """`alias`, `hash -p`, `enable -f`, `bind`: afterwards a name is another program."""
        if rest and rest not in (["-p"], ["-r"], ["-a"]):
            raise Hidden("it changes what names of programs mean")
        return []

    def declares(self, rest: list[str]) -> list[Started]:
        if any(word.startswith("-") and "n" in word for word in rest) and "=" in " ".join(rest):
            raise Hidden("it gives a variable a second name")
        self.sums |= any("[" in word.partition("=")[0] for word in rest)
        return self._sets(rest)

    def reads(self, rest: list[str]) -> list[Started]:
        """`read A`, `printf -v A`, `getopts`: whatever is named may be set."""
        self.sums |= any("[" in word for word in rest)
        for word in rest:
            if word == "PATH" or word in starters.LOADING_VARIABLES or word in starters.COMMAND_VARIABLES:
                raise Hidden(f"it sets {word}, which can make programs run others")
        return []

    def prints(self, rest: list[str]) -> list[Started]:
        return self.reads(rest[1:2]) if rest[:1] == ["-v"] else []

    def calculates(self, rest: list[str]) -> list[Started]:
        self.sums = True
        return []

    def tests(self, rest: list[str]) -> list[Started]:
        self.sums |= "-v" in rest or "-R" in rest
        return []

    # --- wrappers with a grammar of their own ----------------------------------------------------------------------------

    def env(self, rest: list[str]) -> list[Started]:
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
                return [*found, *self.env(_split(value) + rest), *self._guesses([value])]
            elif word.startswith(("--unset=", "--chdir=", "-u", "-C")) and certain(word):
                continue
            elif word.startswith("-"):
                return [*found, *self._guesses([word, *rest])]
            elif "=" in word and MANY not in word:
                found += self._sets([word])
            else:
                return [*found, *self._starts((word, *rest), sure=True)]
        return found

    def sudo(self, rest: list[str]) -> list[Started]:
        at = _behind_options(starters.PREFIXES["sudo"], rest)
        opens = any(re.match(r"-[A-Za-z]*[sie]|--(?:shell|login|edit)", word) for word in rest[:at])
        if opens and (at is None or at >= len(rest)):
            raise Hidden("another shell reads what to run from somewhere else")
        return self._prefix(starters.PREFIXES["sudo"], rest)

    def xargs(self, rest: list[str]) -> list[Started]:
        prefix = Prefix(
            "0prtxoe", "aEILnPsdJRS", starters.names("null interactive no-run-if-empty verbose exit show-limits open-tty"),
            starters.names("arg-file delimiter max-lines max-args max-procs max-chars eof replace process-slot-var"),
        )  # fmt: skip
        rest = ["-I{}" if word in ("-i", "--replace") else word for word in rest]
        rest = [
            f"-I{word[2:]}" if re.match(r"-i.", word) else word for word in rest if not re.fullmatch(r"-l\d*", word)
        ]
        at = _behind_options(prefix, rest)
        if at is None:
            return self._guesses(rest)
        words = rest[at:]
        for mark in _values(rest[:at], ("-I", "-J", "--replace")):
            words = [word.replace(mark, MANY) if mark else word for word in words]
        return self._starts((*words, MANY), sure=True) if words else []

    def find(self, rest: list[str]) -> list[Started]:
        found: list[Started] = []
        for at, word in enumerate(rest):
            if not certain(word) and word.startswith("-"):
                raise Hidden("the shell fills in what find does")
            if word in ("-exec", "-execdir", "-ok", "-okdir"):
                ends = [n for n in range(at + 1, len(rest)) if rest[n] in (";", "+")]
                words = rest[at + 1 : min(ends, default=len(rest))]
                found += self._starts(tuple(each.replace("{}", MANY) for each in words), sure=True)
        return found

    def parallel(self, rest: list[str]) -> list[Started]:
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
                return self._guesses(words)
            words = words[2 if takes else 1 :]
        if not words:
            raise Hidden("its arguments are run as commands")
        return [*self._text(_REPLACED.sub("$x", " ".join(words)) + ' "$@"'), *self._starts((*words, MANY), sure=False)]

    def flock(self, rest: list[str]) -> list[Started]:
        at = _behind_options(
            Prefix(
                "sexnuFo",
                "wE",
                words=frozenset({"timeout", "wait", "conflict-exit-code"}),
                bare=frozenset({"shared", "exclusive", "nonblock", "nb", "unlock", "close", "no-fork", "verbose"}),
            ),
            rest,
        )
        if at is None:
            return self._guesses(rest)
        behind = rest[at + 1 :]
        if behind[:1] in (["-c"], ["--command"]):
            return self._text(behind[1]) if len(behind) > 1 else []
        return self._starts(tuple(behind), sure=True) if behind else []

    def with_text(self, rest: list[str]) -> list[Started]:
        """`script -c text`, `su -c text`; without that, a shell reads what to run."""
        values = _values(rest, ("-c", "--command", "--session-command"), clusters=True)
        if "--" in rest:
            return self._guesses(rest)
        if not values and not any(word in ("--version", "--help", "-V", "-h") for word in rest):
            raise Hidden("another shell reads what to run from somewhere else")
        return [one for value in values for one in self._text(value, bash=False)]

    def runuser(self, rest: list[str]) -> list[Started]:
        if rest[:1] == ["-u"] and len(rest) > 2:
            return self._starts(tuple(rest[3:] if rest[2] == "--" else rest[2:]), sure=True)
        return self.with_text(rest)

    def watch(self, rest: list[str]) -> list[Started]:
        at = _behind_options(
            Prefix(
                "bcCdegprtwx",
                "nq",
                starters.names("beep color errexit chgexit no-title exec precise no-wrap differences"),
                frozenset(["interval"]),
            ),
            rest,
        )
        if at is None:
            return self._guesses(rest)
        return [*self._text(" ".join(rest[at:])), *self._starts(tuple(rest[at:]), sure=False)]

    def fd(self, rest: list[str]) -> list[Started]:
        for at, word in enumerate(rest):
            if word in ("-x", "-X", "--exec", "--exec-batch"):
                return self._starts(tuple(re.sub(r"\{[./]*\}", MANY, each) for each in rest[at + 1 :]), sure=True)
        return self._options("fd", rest)

    def make(self, rest: list[str]) -> list[Started]:
        if any(re.match(r"--eval|SHELL=|MAKEFLAGS=|\.SHELLFLAGS", word) for word in rest):
            self.doubts.append("make is given a recipe in the line")
        if "-" in rest or any(
            word.startswith(("-f-", "-f/dev", "--file=-", "--file=/dev")) or ANY in word for word in rest
        ):
            raise Hidden("make reads what to run from somewhere else")
        return []

    # --- git -----------------------------------------------------------------------------------------------------------

    def git(self, rest: list[str]) -> list[Started]:
        """The same command without git's own options, and what those and its subcommand start."""
        found: list[Started] = []
        at = 0
        while at < len(rest) and rest[at].startswith("-"):
            word = rest[at]
            name, equals, value = word.partition("=")
            if word in starters.GIT_VALUES:
                at += 1
                value = rest[at] if at < len(rest) else ""
            elif word.startswith("-c") and not equals and word not in starters.GIT_VALUES:
                name, value = "-c", word[2:]
            elif name not in starters.GIT_FLAGS and name not in starters.GIT_VALUES:
                self.doubts.append("git has an option that is not known")
            self._git_setting("-c" if word == "-c" else name, value)
            at += 1
        words = rest[at:]
        if not words:
            return found
        if not certain(words[0]):
            self.doubts.append("the shell fills in what git does")
        elif words[0] not in starters.GIT_COMMANDS:
            self.doubts.append(f"git {words[0]} may stand for something else")
        return [*([Started(("git", *words))] if at else []), *found, *self._git_command(words)]

    def _git_setting(self, option: str, value: str) -> None:
        if option in ("--exec-path", "--config-env") and value:
            self.doubts.append("git is told where its programs are")
        elif option == "-c" and not value.casefold().startswith(starters.GIT_SAFE_SETTINGS):
            self.doubts.append("git is given a setting that may run a program")
            self.texts.append(value)

    def _git_command(self, words: list[str]) -> list[Started]:
        name, rest = words[0], words[1:]
        if name == "submodule" and "foreach" in rest:
            behind = [
                word for word in rest[rest.index("foreach") + 1 :] if word not in ("--recursive", "-q", "--quiet")
            ]
            return self._text(" ".join(behind), bash=False)
        if name == "bisect" and rest[:1] == ["run"]:
            return self._starts(tuple(rest[1:]), sure=True)
        if name == "config" and any(word.casefold().startswith("alias.") for word in rest):
            self.doubts.append("git is given another name for a command")
        if name in ("filter-branch", "for-each-repo", "hook", "difftool", "mergetool", "instaweb", "send-email"):
            self.doubts.append(f"git {name} runs other programs")
        if name in ("merge", "pull") and any(re.match(r"-s|--strategy(=|$)", word) for word in rest):
            self.doubts.append("git is told which program merges")
        values = _values(rest, tuple(starters.GIT_COMMAND_OPTIONS - {"-u", "-x"}))
        if name == "rebase":
            values += _values(rest, ("-x",))
        if name in ("clone", "fetch", "ls-remote", "pull") and any("::" in word for word in rest):
            self.doubts.append("git is given an address that runs a program")
        if any(re.match(r"-O.|-O$|-u$|-c$|--config", word) for word in rest) and name in ("grep", "clone"):
            self.doubts.append(f"git {name} is given a program or a setting")
        return [one for value in values for one in self._text(value, bash=False)]

    # --- code of its own -------------------------------------------------------------------------------------------------

    def _judge(self, words: Sequence[str]) -> None:
        """Whether a program is given code of its own, as behind `python -c`, and whether that may start others."""
        name = plain_name(words[0])
        self.coded |= _coded(words)
        reads = name in starters.CODE and all(word.startswith("-") for word in words[1:])
        if reads and not self.given and not {"--version", "-V", "-v"} & set(words):
            self.doubts.append(f"{name} reads a program from somewhere else")
        text = "\n".join([*words[1:], *self.given])
        if (_coded(words) or reads) and (re.search(starters.STARTS, text) or not certain(text)):
            self.doubts.append(f"{name} is given a program that may start others")
        if name in ("sed", "gsed") and any(_SED_RUNS.search(word) for word in words[1:]):
            self.doubts.append("sed is told to run something")


def _all(command: Written) -> tuple[Started, ...]:
    return (Started(command.words), *command.starts)


def _coded(words: Sequence[str]) -> bool:
    """Whether an interpreter is given a program in its options, or reads one from its input."""
    name = plain_name(words[0])
    letters = starters.CODE.get(name)
    if letters is None:
        return name in starters.WRITTEN_IN
    for word in words[1:]:
        if word == "-m" or not word.startswith(("-", "+")):
            return False
        if word == "-" or _is_code_option(word, letters):
            return True
    return name not in starters.EDITORS


def _is_code_option(word: str, letters: str) -> bool:
    if word.startswith("+") or not certain(word) or word.lstrip("-").partition("=")[0] in starters.CODE_WORDS:
        return True
    return not word.startswith("--") and bool(set(word[1:]) & set(letters))


def _behind_options(prefix: Prefix, rest: Sequence[str]) -> int | None:
    """Where a wrapper's own options end; None where one of them is not known."""
    at = 0
    while at < len(rest) and rest[at].startswith("-") and rest[at] != "-":
        word = rest[at]
        at += 1
        if word == "--":
            return at
        if not certain(word.partition("=")[0]):
            raise Hidden("the shell fills in which program runs")
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
            raise Hidden("the shell fills in which program runs")
        at += skip
    return at


def _values(rest: Sequence[str], options: Sequence[str], *, clusters: bool = False) -> list[str]:
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


def _split(text: str) -> list[str]:
    """As `env -S` does."""
    if not certain(text) or "\\" in text or "$" in text:
        raise Hidden("the shell fills in which program runs")
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        raise Hidden("a quote in it is not closed") from None


_OWN: dict[str, Callable[[_Line, list[str]], list[Started]]] = {
    "eval": _Line.eval,
    "source": _Line.source,
    ".": _Line.source,
    "trap": _Line.trap,
    "command": _Line.command,
    "env": _Line.env,
    "sudo": _Line.sudo,
    "xargs": _Line.xargs,
    "find": _Line.find,
    "parallel": _Line.parallel,
    "flock": _Line.flock,
    "script": _Line.with_text,
    "su": _Line.with_text,
    "sg": _Line.with_text,
    "runuser": _Line.runuser,
    "watch": _Line.watch,
    "fd": _Line.fd,
    "fdfind": _Line.fd,
    "make": _Line.make,
    "gmake": _Line.make,
    "git": _Line.git,
    "printf": _Line.prints,
    "read": _Line.reads,
    "getopts": _Line.reads,
    "let": _Line.calculates,
    "unset": _Line.calculates,
    "test": _Line.tests,
    "[": _Line.tests,
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), _Line.declares),
    **dict.fromkeys(
        ("alias", "enable", "hash", "bind", "fc", "complete", "compgen", "mapfile_callback"), _Line.changes_names
    ),
}
