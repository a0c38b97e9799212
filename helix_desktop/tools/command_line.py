"""Reading a shell command line: which commands are in it, wherever they are written, and with which words.

It reads what bash and POSIX shells read: quotes, expansions, substitutions, groups, loops, `case`, functions, here
documents. Quotes are taken off; what the shell would fill in becomes `ANY` (some text inside a word) or `MANY` (any
number of words). What it does not know for certain raises `Hidden`, so that nobody takes a guess for an answer.

No parser for editors is used: those leave a substitution in a here document, or an open brace, as plain text.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field

ANY, MANY = "\0", "\1"  # neither can be part of a command line
MOST_CHARACTERS, DEEPEST = 200_000, 30
_WRITTEN = re.compile(r"""(?:'[^']*'|"[^"$`\\!]*"|[A-Za-z0-9_@%+=:,./^~-]+)+""")
_STRANGE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_REDIRECT = re.compile(r"(\d+|\{[A-Za-z_]\w*\})?(<<<|<<-|<<|<>|<&|<(?!\()|>>|>\||>&|>(?!\()|&>>?)")
_HARMLESS = re.compile(r"(?:2>&1|[12]?>[ \t]*/dev/null)")
_HANDLE = re.compile(r"\d+|-")
_JOINT = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|]")
_ENDS = frozenset(" \t\n;&|<>()")
_BREAK = r"(?=[\s;&|<>()]|$)"
_RESERVED = re.compile(
    rf"(if|then|else|elif|fi|do|done|while|until|for|select|case|esac|function|time|coproc|in|\{{|\}}|!|\[\[){_BREAK}"
)
_RESERVED_WORDS = frozenset(
    re.findall(r"\S+", "if then else elif fi do done while until for select case esac function time coproc { } ! [[")
)
_CLOSING = frozenset({"fi", "done", "esac", "}"})
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_FUNCTION = re.compile(r"[\w.:+-]+", re.ASCII)
_BRACKETS = re.compile(r"\([ \t]*\)")
_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(\[\w*\])?\+?=", re.ASCII)
_SUMS = re.compile(r"[\w\s+\-*/%<>=!&|^~?:,]", re.ASCII)
_PARAMETER = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_DELIMITER = re.compile(r"""(['"]?)([\w.,:+=@%/!-]+)\1|\\([\w.-]+)""")
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


def read(line: str) -> Reading:
    """Take a line apart; Hidden where that cannot be done for certain."""
    if len(line) > MOST_CHARACTERS:
        raise Hidden("it is too long to be read")
    if _STRANGE.search(line):
        raise Hidden("there are control characters in it")
    reader = _Reader(line, Reading(), 0)
    reader.commands("")
    return reader.found


def certain(word: str) -> bool:
    """Whether nothing of the word is filled in by the shell."""
    return ANY not in word and MANY not in word


@dataclass(slots=True)
class _Document:
    """A here document that was announced: its text begins on the next line."""

    delimiter: str
    quoted: bool
    tabs: bool
    given: list[str]


class _Reader:
    """A place in a text. Substitutions are read by the same reader; those in backquotes, by one of their own."""

    def __init__(self, text: str, found: Reading, depth: int) -> None:
        self.text, self.found, self.depth = text, found, depth
        self.at = 0
        self._documents: list[_Document] = []

    # --- commands ----------------------------------------------------------------------------------------------------

    def commands(self, closing: str) -> None:
        """Everything up to the end, or to the bracket that closes a group."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise Hidden("it is nested too deeply")
        begins = True  # a command may begin here; if not, one has ended
        while (char := self._next()) not in ("", ")"):
            begins = self._piece(char, begins=begins)
        if char != closing or self._documents:
            raise Hidden("something in it is not closed")
        self.at += len(char)
        self.depth -= 1

    def _next(self) -> str:
        self._blanks()
        return self.text[self.at : self.at + 1]

    def _piece(self, char: str, *, begins: bool) -> bool:  # noqa: PLR0911 -- one for each thing a line is made of
        """Past one command, joint or reserved word; whether a command may begin behind it."""
        if char == "\n":
            self._line_end()
            return True
        if char == "#":
            self._comment()
            return begins
        if redirect := _REDIRECT.match(self.text, self.at):
            return self._simple() if begins else self._redirected(redirect, [])
        if joint := _JOINT.match(self.text, self.at):
            self._joint(joint)
            return True
        if char == "(":
            self._group()
            return False
        if word := _RESERVED.match(self.text, self.at):
            return self._reserved(word)
        if not begins:
            raise Hidden("it is not written as a shell reads it")
        return self._simple()

    def _joint(self, joint: re.Match[str]) -> None:
        self.at = joint.end()
        if joint[0] not in (";", "&&", "||", "|"):
            self.found.plain = False
        if joint[0] in (";;", ";&", ";;&"):
            self._patterns()

    def _group(self) -> None:
        self.found.plain = False
        self.at += 1
        if self.text.startswith("(", self.at):
            self.at += 1
            self.found.only_bash = True
            self._sum()
        else:
            self.commands(")")

    def _reserved(self, match: re.Match[str]) -> bool:
        """Past a reserved word and what belongs to it; whether a command may begin behind it."""
        self.found.plain = False
        self.at = match.end()
        match match[1]:
            case "for" | "select":
                self._loop()
            case "case":
                self._case()
            case "function":
                self._must(_FUNCTION)
                self._may(_BRACKETS)
                self._space()
            case "[[":
                self._test()
                return False
            case "time":
                while self._may(re.compile(rf"(-p|--){_BREAK}")):
                    pass
                self.found.commands.append(Simple(["time"]))
            case "coproc" | "in":
                raise Hidden(f"it uses {match[1]}")
        return match[1] not in _CLOSING

    def _loop(self) -> None:
        self._blanks()
        if self.text.startswith("((", self.at):
            self.at += 2
            self.found.only_bash = True
            self._sum(";")
            return
        self.found.commands.append(Simple(sets=[(self._must(_NAME), MANY)]))
        self._space()
        if self._may(re.compile("in" + _BREAK)):
            while self._word() is not None:
                pass

    def _case(self) -> None:
        self._needed()
        self._space()
        self._must(re.compile("in" + _BREAK))
        self._patterns()

    def _patterns(self) -> None:
        """What stands in front of the commands of a case, up to the bracket behind it."""
        self._space()
        if re.compile("esac" + _BREAK).match(self.text, self.at):
            return
        self._may(re.compile(r"\("))
        self._needed()
        while not self._may(re.compile(r"\)")):
            self._must(re.compile(r"\|"))
            self._needed()

    def _test(self) -> None:
        """`[[ … ]]`: its words may hold substitutions; it runs nothing else."""
        self.found.only_bash = True
        while True:
            self._space()
            if self._may(re.compile(r"\]\]" + _BREAK)):
                return
            if self._next() in ("(", ")", "|", "&", "<", ">") and not self._substitutes():
                self.at += 1
            else:
                self._needed()

    def _simple(self) -> bool:
        """A command with everything in front of it and behind it; or the head of a function, behind which one begins."""
        one = Simple()
        while True:
            self._blanks()
            begin = self.at
            if redirect := _REDIRECT.match(self.text, begin):
                self._redirected(redirect, one.given)
            elif (word := self._word()) is None:
                break
            elif not one.words and (assigns := _ASSIGNS.match(self.text, begin)):
                one.sets.append((assigns[1], self._value(assigns, word)))
            else:
                one.words.append(word.text)
                self.found.plain = self.found.plain and word.written
                if self._next() == "(":
                    return self._function(one.words)
        self.found.plain = self.found.plain and not one.sets
        self.found.commands.append(one)
        return False

    def _value(self, assigns: re.Match[str], word: Word) -> str:
        """What a variable is set to; a list of values is read word by word."""
        if self.at > assigns.end() or not self.text.startswith("(", self.at):
            return word.text[len(assigns[0]) :]
        self.at += 1
        self._space()
        while not self._may(re.compile(r"\)")):
            self._needed()
            self._space()
        return MANY

    def _function(self, words: list[str]) -> bool:
        if len(words) != 1 or not certain(words[0]):
            raise Hidden("there are brackets in it that are not understood")
        self.found.plain = False
        self._must(_BRACKETS)
        self._space()
        return True

    # --- what lies between -------------------------------------------------------------------------------------------

    def _blanks(self) -> None:
        while self.at < len(self.text):
            if self.text[self.at] in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.found.plain = False
                self.at += 2
            else:
                return

    def _space(self) -> None:
        """Past blanks, comments and line ends."""
        while self._next() in ("\n", "#"):
            if self.text[self.at] == "#":
                self._comment()
            else:
                self._line_end()

    def _comment(self) -> None:
        self.found.plain = False
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _may(self, pattern: re.Pattern[str]) -> bool:
        self._blanks()
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found is not None

    def _must(self, pattern: re.Pattern[str]) -> str:
        self._blanks()
        begin = self.at
        if not self._may(pattern):
            raise Hidden("it is not written as a shell reads it")
        return self.text[begin : self.at]

    def _needed(self) -> Word:
        word = self._word()
        if word is None:
            raise Hidden("it is not written as a shell reads it")
        return word

    # --- redirections and here documents -----------------------------------------------------------------------------

    def _redirected(self, match: re.Match[str], given: list[str]) -> bool:
        """Past `> file` and the like; no command begins behind it."""
        self.at, operator = match.end(), match[2]
        self._blanks()
        begin = self.at
        word = self._needed()
        if not _HARMLESS.fullmatch(self.text[match.start() : self.at]):
            self.found.plain = False
        self.found.only_bash |= operator.startswith("&")
        if operator in ("<<", "<<-"):
            self._documents.append(_announced(self.text[begin : self.at], given, tabs=operator == "<<-"))
        elif operator == "<<<":
            given.append(word.text)
        elif ">" in operator and word.text != "/dev/null" and not (operator == ">&" and _HANDLE.fullmatch(word.text)):
            self.found.writes.append(word.text)
        return False

    def _line_end(self) -> None:
        self.at += 1
        documents, self._documents = self._documents, []
        for document in documents:
            text = self._document(document)
            document.given.append(text if document.quoted else self._inside(text))

    def _document(self, document: _Document) -> str:
        """The text up to its delimiter. Where lines are joined, a delimiter could be read in two ways."""
        lines: list[str] = []
        continued = False
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            line = self.text[self.at : end if end >= 0 else len(self.text)]
            self.at = end + 1 if end >= 0 else len(self.text)
            line = line.lstrip("\t") if document.tabs else line
            if line == document.delimiter and not continued:
                return "".join(f"{each}\n" for each in lines)
            if continued and document.delimiter.endswith(line):
                break
            odd = (len(line) - len(line.rstrip("\\"))) % 2 == 1
            continued = odd and not document.quoted
            lines.append(line)
        raise Hidden("a here document in it has no clear end")

    def _inside(self, text: str) -> str:
        """A here document the shell fills in, with marks in place of what it fills in."""
        reader = _Reader(text, self.found, self.depth)
        return reader.filled_in("", lines=True)

    # --- words -------------------------------------------------------------------------------------------------------

    def _substitutes(self) -> bool:
        return self.text.startswith(("<(", ">("), self.at)

    def _word(self) -> Word | None:
        """The next word without its quotes; None where there is none."""
        char = self._next()
        if not char or char == "#" or (char in _ENDS and not self._substitutes()):
            return None
        begin, pieces, bare = self.at, [], []
        while self.at < len(self.text):
            if self.text[self.at] in _ENDS and not self._substitutes():
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
        if text in _RESERVED_WORDS and raw != text and "\\" not in raw and not set(raw) & set("'\""):
            raise Hidden("it is not written as a shell reads it")
        if any(unicodedata.category(char)[0] in "ZC" and char not in (ANY, MANY) for char in bare):
            raise Hidden("there are characters in it that cannot be seen")
        if bare == text == "[":
            return Word(text, written=False)
        if _BRACES.search(bare):
            return Word(MANY, written=False)
        if bare.startswith("~"):
            text = ANY + text[1:]
        return Word(text, _WRITTEN.fullmatch(raw) is not None)

    def _continuation(self, begin: int) -> None:
        behind = self.text[self.at + 2 : self.at + 3]
        if behind and behind not in _ENDS and self.at > begin:
            raise Hidden("a word in it is broken over two lines")

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
                raise Hidden("it ends in a backslash")
            return self.text[self.at - 1], ""
        if char == "$":
            return self._dollar()
        if char == "`":
            self._backquotes(quoted=False)
            return MANY, ""
        if self._substitutes():
            self.found.plain = False
            self.at += 2
            self.commands(")")
            return ANY, ""
        self.at += 1
        return (MANY, char) if char in "*?[" and not self._alone() else (char, char)

    def _alone(self) -> bool:
        """Whether the bracket just read is a word of its own: the command `[`."""
        before, behind = self.text[self.at - 2 : self.at - 1], self.text[self.at : self.at + 1]
        return self.text[self.at - 1] == "[" and (not before or before in _ENDS) and (not behind or behind in _ENDS)

    def _single(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Hidden("a quote in it is not closed")
        text = self.text[self.at + 1 : end]
        self._no_line_end_before_documents(text)
        self.at = end + 1
        return text

    def _no_line_end_before_documents(self, text: str) -> None:
        if self._documents and "\n" in text:
            raise Hidden("a here document in it has no clear beginning")

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
            raise Hidden("a quote in it is not closed")
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
            raise Hidden("an expansion in it is broken over two lines")
        if behind == "'" and not quoted:
            self.found.only_bash = True
            return self._ansi(), ""
        if behind == '"' and not quoted:
            self.at += 1
            return self.filled_in('"'), ""
        filled = ANY if quoted else MANY
        if self.text.startswith("((", self.at):
            self.at += 2
            self._sum()
        elif behind == "(":
            self.at += 1
            self.commands(")")
        elif behind == "[":
            raise Hidden("it calculates in a way that is not read")
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
            raise Hidden("it has an expansion that is not read")
        while not self.text.startswith("}", self.at):
            if self.at >= len(self.text):
                raise Hidden("an expansion in it is not closed")
            char = self.text[self.at]
            if (char == "'" and quoted) or char == "\n" or self.text.startswith("\\\n", self.at):
                raise Hidden("it has an expansion that is not read")
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
            raise Hidden("it reads a variable whose name or value is run")
        self.found.sums |= "[" in raw or bool(re.search(r":[^-+=?]", raw))
        return "@" in raw

    def _sum(self, also: str = "") -> None:
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
            raise Hidden("it calculates in a way that is not read")
        self.at += 2

    def _backquotes(self, *, quoted: bool) -> None:
        """Past a substitution in backquotes: what is in it is read when one layer of backslashes is off."""
        self.found.plain = False
        match = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL).match(self.text, self.at)
        if not match:
            raise Hidden("a backquote in it is not closed")
        self._no_line_end_before_documents(match[1])
        inner = re.sub(r'\\([$`\\"])' if quoted else r"\\([$`\\])", r"\1", match[1])
        _Reader(inner, self.found, self.depth).commands("")
        self.at = match.end()

    def _ansi(self) -> str:
        """`$'…'`, in which characters may be written by their number."""
        match = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL).match(self.text, self.at)
        if not match:
            raise Hidden("a quote in it is not closed")
        self._no_line_end_before_documents(match[1])
        self.at = match.end()
        return _ESCAPE.sub(_unescaped, match[1])


def _announced(raw: str, given: list[str], *, tabs: bool) -> _Document:
    match = _DELIMITER.fullmatch(raw)
    if not match:
        raise Hidden("a here document in it is not understood")
    return _Document(match[2] or match[3], bool(match[1] or match[3]), tabs, given)


def _unescaped(match: re.Match[str]) -> str:
    """A character of `$'…'`; one that ends or breaks the text reads as ANY."""
    hexadecimal, octal, short, long, control, other = match.groups()
    if control:
        return ANY
    if other:
        return chr(_ESCAPED[other]) if other in _ESCAPED else other if other in "'\"\\?" else f"\\{other}"
    code = int(octal, 8) & 0xFF if octal else int(hexadecimal or short or long, 16)
    return chr(code) if 1 < code < 0x80 else ANY
