"""Reading a shell command line: which commands are in it, wherever they are written, and with which words.

It reads what bash and POSIX shells read: quotes, expansions, substitutions, groups, loops, `case`, functions, here
documents (the words themselves: `shell_words.py`). What it does not know for certain raises `Hidden`, so that nobody
takes a guess for an answer. Grammars made for editors leave a substitution in a here document as plain text.
"""

from __future__ import annotations

import re

from helix_desktop.tools.shell_words import DEEPEST, MANY, Document, Hidden, Reading, Simple, Word, Words, certain

MOST_CHARACTERS = 200_000
_STRANGE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_REDIRECT = re.compile(r"(\d+|\{[A-Za-z_]\w*\})?(<<<|<<-|<<|<>|<&|<(?!\()|>>|>\||>&|>(?!\()|&>>?)")
_HARMLESS = re.compile(r"(?:2>&1|[12]?>[ \t]*/dev/null)")
_HANDLE = re.compile(r"\d+|-")
_JOINT = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|]")
_BREAK = r"(?=[\s;&|<>()]|$)"
_RESERVED = re.compile(
    rf"(if|then|else|elif|fi|do|done|while|until|for|select|case|esac|function|time|coproc|in|\{{|\}}|!|\[\[){_BREAK}"
)
_CLOSING = frozenset({"fi", "done", "esac", "}"})
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_FUNCTION = re.compile(r"[\w.:+-]+", re.ASCII)
_BRACKETS = re.compile(r"\([ \t]*\)")
_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(\[\w*\])?\+?=", re.ASCII)
_DELIMITER = re.compile(r"""(['"]?)([\w.,:+=@%/!-]+)\1|\\([\w.-]+)""")


def read(line: str) -> Reading:
    """Take a line apart; Hidden where that cannot be done for certain."""
    if len(line) > MOST_CHARACTERS:
        raise Hidden("it is too long to analyse")
    if _STRANGE.search(line):
        raise Hidden("it contains control characters")
    reader = _Reader(line, Reading(), 0)
    reader.commands("")
    return reader.found


class _Reader(Words):
    """A place in a text, and the commands that begin there."""

    # --- commands ----------------------------------------------------------------------------------------------------

    def commands(self, closing: str) -> None:
        """Everything up to the end, or to the bracket that closes a group."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise Hidden("it is nested too deeply")
        begins = True  # a command may begin here; if not, one has ended
        while (char := self.next()) not in ("", ")"):
            begins = self._piece(char, begins=begins)
        if char != closing or self.documents:
            raise Hidden("it has an unclosed quote or bracket")
        self.at += len(char)
        self.depth -= 1

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
            raise Hidden("it is not valid shell syntax")
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
            self.sum()
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
        self.blanks()
        if self.text.startswith("((", self.at):
            self.at += 2
            self.found.only_bash = True
            self.sum(";")
            return
        self.found.commands.append(Simple(sets=[(self._must(_NAME), MANY)]))
        self._space()
        if self._may(re.compile("in" + _BREAK)):
            while self.word() is not None:
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
            if self.next() in ("(", ")", "|", "&", "<", ">") and not self.substitutes():
                self.at += 1
            else:
                self._needed()

    def _simple(self) -> bool:
        """A command with everything in front of it and behind it; or the head of a function, behind which one begins."""
        one = Simple()
        while True:
            self.blanks()
            begin = self.at
            if redirect := _REDIRECT.match(self.text, begin):
                self._redirected(redirect, one.given)
            elif (word := self.word()) is None:
                break
            elif not one.words and (assigns := _ASSIGNS.match(self.text, begin)):
                one.sets.append((assigns[1], self._value(assigns, word)))
            else:
                one.words.append(word.text)
                self.found.plain = self.found.plain and word.written
                if self.next() == "(":
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
            raise Hidden("its brackets could not be parsed")
        self.found.plain = False
        self._must(_BRACKETS)
        self._space()
        return True

    # --- what lies between -------------------------------------------------------------------------------------------

    def _space(self) -> None:
        """Past blanks, comments and line ends."""
        while self.next() in ("\n", "#"):
            if self.text[self.at] == "#":
                self._comment()
            else:
                self._line_end()

    def _comment(self) -> None:
        self.found.plain = False
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _may(self, pattern: re.Pattern[str]) -> bool:
        self.blanks()
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found is not None

    def _must(self, pattern: re.Pattern[str]) -> str:
        self.blanks()
        begin = self.at
        if not self._may(pattern):
            raise Hidden("it is not valid shell syntax")
        return self.text[begin : self.at]

    def _needed(self) -> Word:
        word = self.word()
        if word is None:
            raise Hidden("it is not valid shell syntax")
        return word

    # --- redirections and here documents -----------------------------------------------------------------------------

    def _redirected(self, match: re.Match[str], given: list[str]) -> bool:
        """Past `> file` and the like; no command begins behind it."""
        self.at, operator = match.end(), match[2]
        self.blanks()
        begin = self.at
        word = self._needed()
        if not _HARMLESS.fullmatch(self.text[match.start() : self.at]):
            self.found.plain = False
        self.found.only_bash |= operator.startswith("&")
        if operator in ("<<", "<<-"):
            self.documents.append(_announced(self.text[begin : self.at], given, tabs=operator == "<<-"))
        elif operator == "<<<":
            given.append(word.text)
        elif ">" in operator and word.text != "/dev/null" and not (operator == ">&" and _HANDLE.fullmatch(word.text)):
            self.found.writes.append(word.text)
        return False

    def _line_end(self) -> None:
        self.at += 1
        documents, self.documents = self.documents, []
        for document in documents:
            text = self._document(document)
            document.given.append(text if document.quoted else self._inside(text))

    def _document(self, document: Document) -> str:
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
        raise Hidden("it has a here-document with no clear end")

    def _inside(self, text: str) -> str:
        """A here document the shell fills in, with marks in place of what it fills in."""
        reader = _Reader(text, self.found, self.depth)
        return reader.filled_in("", lines=True)


def _announced(raw: str, given: list[str], *, tabs: bool) -> Document:
    match = _DELIMITER.fullmatch(raw)
    if not match:
        raise Hidden("it has a here-document that could not be parsed")
    return Document(match[2] or match[3], bool(match[1] or match[3]), tabs, given)
