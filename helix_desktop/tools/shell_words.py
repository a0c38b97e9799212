"""The words of a shell command line: quotes, escapes and expansions, down to the single character.

Quotes are taken off; what the shell would fill in becomes `ANY` (some text inside a word) or `MANY` (any number of
words). What is not known for certain raises `Hidden`. `command_line.py` reads the commands around the words.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from dataclasses import field

from helix_desktop.values import dataclass

ANY, MANY = "\0", "\1"  # neither can be part of a command line
DEEPEST = 30
ENDS = frozenset(" \t\n;&|<>()")
_WRITTEN = re.compile(r"""(?:'[^']*'|"[^"$`\\!]*"|[A-Za-z0-9_@%+=:,./^~-]+)+""")
RESERVED = frozenset(
    re.findall(r"\S+", "if then else elif fi do done while until for select case esac function time coproc { } ! [[")
)
_SUMS = re.compile(r"[\w\s+\-*/%<>=!&|^~?:,]", re.ASCII)
_PARAMETER = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}|\{.*\{.*\}", re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|c(.)|(.))", re.DOTALL
)
_ESCAPED = {"a": 7, "b": 8, "e": 27, "E": 27, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}


class Hidden(Exception):
    """What would run cannot be told from the line; why, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Word:
    """`text` without quotes; `written`: it is there word for word, in plain quotes at most."""

    text: str
    written: bool


@dataclass(slots=True)
class Simple:
    """One command. `sets`: variables set in front of it, or alone; `given`: texts it reads from here documents."""

    words: list[str] = field(default_factory=list)
    sets: list[tuple[str, str]] = field(default_factory=list)
    given: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Reading:
    """All commands of a line. `plain`: nothing but commands written out in full, joined by `;`, `&&`, `||`, `|` and line
    ends. `writes`: the files it writes by itself. `only_bash`: other shells read it in another way. `sums`: it calculates.
    """

    commands: list[Simple] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    plain: bool = True
    only_bash: bool = False
    sums: bool = False


def certain(word: str) -> bool:
    """Whether nothing of the word is filled in by the shell."""
    return ANY not in word and MANY not in word


@dataclass(slots=True)
class Document:
    """A here document that was announced: its text begins on the next line."""

    delimiter: str
    quoted: bool
    tabs: bool
    given: list[str]


class Words(ABC):
    """A place in a text, and the word that begins there. Substitutions are read by the same reader; those in backquotes, by
    one of their own.
    """

    def __init__(self, text: str, found: Reading, depth: int) -> None:
        self.text, self.found, self.depth = text, found, depth
        self.at = 0
        self.documents: list[Document] = []

    @abstractmethod
    def commands(self, closing: str) -> None:
        """What a substitution runs, up to the bracket that closes it."""

    def next(self) -> str:
        self.blanks()
        return self.text[self.at : self.at + 1]

    def blanks(self) -> None:
        while self.at < len(self.text):
            if self.text[self.at] in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.found.plain = False
                self.at += 2
            else:
                return

    # --- words -------------------------------------------------------------------------------------------------------

    def substitutes(self) -> bool:
        return self.text.startswith(("<(", ">("), self.at)

    def word(self) -> Word | None:
        """The next word without its quotes; None where there is none."""
        char = self.next()
        if not char or char == "#" or (char in ENDS and not self.substitutes()):
            return None
        begin, pieces, bare = self.at, [], []
        while self.at < len(self.text):
            if self.text[self.at] in ENDS and not self.substitutes():
                break
            if self.text.startswith("\\\n", self.at):
                self._continuation(begin)
                break
            read, shell = self._unit()
            pieces.append(read)
            bare.append(shell)
        return self._made(begin, "".join(pieces), "".join(bare))

    def _made(self, begin: int, text: str, bare: str) -> Word:
        """`bare`: the characters without quotes, which may mean more than themselves."""
        raw = self.text[begin : self.at]
        if text in RESERVED and raw != text and "\\" not in raw and not set(raw) & set("'\""):
            raise Hidden("it is not valid shell syntax")
        if any(unicodedata.category(char)[0] in "ZC" and char not in (ANY, MANY) for char in bare):
            raise Hidden("it contains invisible characters")
        if bare == text == "[":
            return Word(text, written=False)
        if _BRACES.search(bare):
            return Word(MANY, written=False)
        if bare.startswith("~"):
            text = ANY + text[1:]
        return Word(text, _WRITTEN.fullmatch(raw) is not None)

    def _continuation(self, begin: int) -> None:
        behind = self.text[self.at + 2 : self.at + 3]
        if behind and behind not in ENDS and self.at > begin:
            raise Hidden("a word is split across two lines")

    def _unit(self) -> tuple[str, str]:  # noqa: PLR0911 -- one for each kind of quote
        """One character, quoted piece or expansion: as read, and what of it stands without quotes."""
        char = self.text[self.at]
        if char == "'":
            return self._single(), ""
        if char == '"':
            self.at += 1
            return self.filled_in('"'), ""
        if char == "\\":
            self.at += 2
            if self.at > len(self.text):
                raise Hidden("it ends with a backslash")
            return self.text[self.at - 1], ""
        if char == "$":
            return self._dollar()
        if char == "`":
            self._backquotes(quoted=False)
            return MANY, ""
        if self.substitutes():
            self.found.plain = False
            self.at += 2
            self.commands(")")
            return ANY, ""
        self.at += 1
        return (MANY, char) if char in "*?[" and not self._alone() else (char, char)

    def _alone(self) -> bool:
        """Whether the bracket just read is a word of its own: the command `[`."""
        before, behind = self.text[self.at - 2 : self.at - 1], self.text[self.at : self.at + 1]
        return self.text[self.at - 1] == "[" and (not before or before in ENDS) and (not behind or behind in ENDS)

    def _single(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Hidden("it has an unclosed quote")
        text = self.text[self.at + 1 : end]
        self._no_line_end_before_documents(text)
        self.at = end + 1
        return text

    def _no_line_end_before_documents(self, text: str) -> None:
        if self.documents and "\n" in text:
            raise Hidden("it contains a here-document whose start can't be determined")

    def filled_in(self, closing: str, *, lines: bool = False) -> str:
        """Text in which the shell fills in expansions, up to its closing quote. `lines`: of a here document."""
        pieces: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == closing:
                self.at += 1
                return "".join(pieces)
            if char == "\\":
                pieces.append(self._escaped(lines=lines))
            elif char == "$":
                pieces.append(self._dollar(quoted=True)[0])
            elif char == "`":
                self._backquotes(quoted=not lines)
                pieces.append(ANY)
            else:
                self._no_line_end_before_documents(char)
                pieces.append(char)
                self.at += 1
        if closing:
            raise Hidden("it has an unclosed quote")
        return "".join(pieces)

    def _escaped(self, *, lines: bool) -> str:
        """A backslash between double quotes keeps its meaning before five characters only."""
        behind = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if behind == "\n":
            return ""
        return behind if behind and behind in ("$`\\" if lines else '$`"\\') else f"\\{behind}"

    # --- expansions --------------------------------------------------------------------------------------------------

    def _dollar(self, *, quoted: bool = False) -> tuple[str, str]:
        """What begins with a dollar: as read, and what of it stands without quotes."""
        self.found.plain = False
        self.at += 1
        behind = self.text[self.at : self.at + 1]
        if self.text.startswith("\\\n", self.at):
            raise Hidden("an expansion is split across two lines")
        if behind == "'" and not quoted:
            self.found.only_bash = True
            return self._ansi(), ""
        if behind == '"' and not quoted:
            self.at += 1
            return self.filled_in('"'), ""
        filled = ANY if quoted else MANY
        if self.text.startswith("((", self.at):
            self.at += 2
            self.sum()
        elif behind == "(":
            self.at += 1
            self.commands(")")
        elif behind == "[":
            raise Hidden("its arithmetic could not be parsed")
        elif behind == "{":
            self.at += 1
            filled = MANY if self._parameter(quoted=quoted) else filled
        elif name := _PARAMETER.match(self.text, self.at):
            self.at = name.end()
            filled = MANY if name[0] == "@" else filled
        else:
            return "$", ""
        return filled, ""

    def _parameter(self, *, quoted: bool) -> bool:
        """Past `${…}`; whether it can come to several words even between quotes."""
        begin = self.at
        if self.text[begin : begin + 1] in (" ", "\t", "\n", "|", "\\"):
            raise Hidden("it has an expansion that could not be parsed")
        while not self.text.startswith("}", self.at):
            if self.at >= len(self.text):
                raise Hidden("it has an unclosed expansion")
            char = self.text[self.at]
            if (char == "'" and quoted) or char == "\n" or self.text.startswith("\\\n", self.at):
                raise Hidden("it has an expansion that could not be parsed")
            if char == '"':
                self.at += 1
                self.filled_in('"')
            elif char == "`":
                self._backquotes(quoted=quoted)
            elif char == "$":
                self._dollar(quoted=quoted)
            else:
                self._unit()
        raw = self.text[begin : self.at]
        self.at += 1
        if re.search(r"@[A-Za-z]$", raw) or raw.startswith("!"):
            raise Hidden("it reads a variable whose name or value could cause commands to run")
        self.found.sums |= "[" in raw or bool(re.search(r":[^-+=?]", raw))
        return "@" in raw

    def sum(self, also: str = "") -> None:
        """Past a calculation, up to its two closing brackets."""
        self.found.sums = True
        open_ = 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "$":
                self._dollar(quoted=True)
                continue
            if char == ")" and not open_:
                break
            if char not in "()" and char not in also and not _SUMS.match(char):
                break
            open_ += (char == "(") - (char == ")")
            self.at += 1
        if not self.text.startswith("))", self.at):
            raise Hidden("its arithmetic could not be parsed")
        self.at += 2

    def _backquotes(self, *, quoted: bool) -> None:
        """Past a substitution in backquotes: what is in it is read when one layer of backslashes is off."""
        self.found.plain = False
        match = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL).match(self.text, self.at)
        if not match:
            raise Hidden("it has an unclosed backquote")
        self._no_line_end_before_documents(match[1])
        inner = re.sub(r'\\([$`\\"])' if quoted else r"\\([$`\\])", r"\1", match[1])
        type(self)(inner, self.found, self.depth).commands("")
        self.at = match.end()

    def _ansi(self) -> str:
        """`$'…'`, in which characters may be written by their number."""
        match = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL).match(self.text, self.at)
        if not match:
            raise Hidden("it has an unclosed quote")
        self._no_line_end_before_documents(match[1])
        self.at = match.end()
        return _ESCAPE.sub(_unescaped, match[1])


def _unescaped(match: re.Match[str]) -> str:
    """A character of `$'…'`; one that ends or breaks the text reads as ANY."""
    hexadecimal, octal, short, long, control, other = match.groups()
    if control:
        return ANY
    if other:
        return chr(_ESCAPED[other]) if other in _ESCAPED else other if other in "'\"\\?" else f"\\{other}"
    code = int(octal, 8) & 0xFF if octal else int(hexadecimal or short or long, 16)
    return chr(code) if 1 < code < 0x80 else ANY
