"""Reading a shell command line: which commands are in it, wherever they are written, and with which words.

It reads what bash and POSIX shells read: quotes, expansions, substitutions, groups, loops, `case`, functions, here
documents (the words themselves: `shell_words.py`). What it does not know for certain raises `UnreadableCommand`, so that nobody
takes a guess for an answer. Grammars made for editors leave a substitution in a here document as plain text.
"""

from __future__ import annotations

import re

from helix_desktop.tools.command_lines.shell_words import (
    DEEPEST,
    MANY,
    HereDocument,
    ParsedLine,
    ShellWord,
    ShellWordParser,
    SimpleCommand,
    UnreadableCommand,
    is_certain_word,
)

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


def parse_command_line(line: str) -> ParsedLine:
    """Parses a line. Raises UnreadableCommand if that cannot be done with certainty."""
    if len(line) > MOST_CHARACTERS:
        raise UnreadableCommand("it is too long to analyse")
    if _STRANGE.search(line):
        raise UnreadableCommand("it contains control characters")
    reader = _CommandParser(line, ParsedLine(), 0)
    reader.parse_commands("")
    return reader.found


class _CommandParser(ShellWordParser):
    """A place in a text, and the commands that begin there."""

    # --- commands ----------------------------------------------------------------------------------------------------

    def parse_commands(self, closing: str) -> None:
        """Everything up to the end, or to the bracket that closes a group."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise UnreadableCommand("it is nested too deeply")
        begins = True  # True if a command may begin here, False if one has just ended.
        while (char := self.next_character()) not in ("", ")"):
            begins = self._parse_next_piece(char, begins=begins)
        if char != closing or self.documents:
            raise UnreadableCommand("it has an unclosed quote or bracket")
        self.at += len(char)
        self.depth -= 1

    def _parse_next_piece(self, char: str, *, begins: bool) -> bool:  # noqa: PLR0911 -- one for each thing a line is made of
        """Parses one command, separator or reserved word; returns whether a command may begin next."""
        if char == "\n":
            self._parse_line_end()
            return True
        if char == "#":
            self._skip_comment()
            return begins
        if redirect := _REDIRECT.match(self.text, self.at):
            return self._parse_simple_command() if begins else self._parse_redirection(redirect, [])
        if joint := _JOINT.match(self.text, self.at):
            self._parse_separator(joint)
            return True
        if char == "(":
            self._parse_group()
            return False
        if word := _RESERVED.match(self.text, self.at):
            return self._parse_reserved_word(word)
        if not begins:
            raise UnreadableCommand("it is not valid shell syntax")
        return self._parse_simple_command()

    def _parse_separator(self, joint: re.Match[str]) -> None:
        self.at = joint.end()
        if joint[0] not in (";", "&&", "||", "|"):
            self.found.is_plain = False
        if joint[0] in (";;", ";&", ";;&"):
            self._parse_case_patterns()

    def _parse_group(self) -> None:
        self.found.is_plain = False
        self.at += 1
        if self.text.startswith("(", self.at):
            self.at += 1
            self.found.only_bash = True
            self.skip_arithmetic()
        else:
            self.parse_commands(")")

    def _parse_reserved_word(self, match: re.Match[str]) -> bool:
        """Past a reserved word and what belongs to it; whether a command may begin behind it."""
        self.found.is_plain = False
        self.at = match.end()
        match match[1]:
            case "for" | "select":
                self._parse_loop_head()
            case "case":
                self._parse_case_head()
            case "function":
                self._require_match(_FUNCTION)
                self._skip_match(_BRACKETS)
                self._skip_space_and_comments()
            case "[[":
                self._parse_test()
                return False
            case "time":
                while self._skip_match(re.compile(rf"(-p|--){_BREAK}")):
                    pass
                self.found.commands.append(SimpleCommand(["time"]))
            case "coproc" | "in":
                raise UnreadableCommand(f"it uses {match[1]}")
        return match[1] not in _CLOSING

    def _parse_loop_head(self) -> None:
        self.skip_blanks()
        if self.text.startswith("((", self.at):
            self.at += 2
            self.found.only_bash = True
            self.skip_arithmetic(";")
            return
        self.found.commands.append(SimpleCommand(assignments=[(self._require_match(_NAME), MANY)]))
        self._skip_space_and_comments()
        if self._skip_match(re.compile("in" + _BREAK)):
            while self.parse_word() is not None:
                pass

    def _parse_case_head(self) -> None:
        self._require_word()
        self._skip_space_and_comments()
        self._require_match(re.compile("in" + _BREAK))
        self._parse_case_patterns()

    def _parse_case_patterns(self) -> None:
        """What stands in front of the commands of a case, up to the bracket behind it."""
        self._skip_space_and_comments()
        if re.compile("esac" + _BREAK).match(self.text, self.at):
            return
        self._skip_match(re.compile(r"\("))
        self._require_word()
        while not self._skip_match(re.compile(r"\)")):
            self._require_match(re.compile(r"\|"))
            self._require_word()

    def _parse_test(self) -> None:
        """`[[ … ]]`: its words may hold substitutions; it runs nothing else."""
        self.found.only_bash = True
        while True:
            self._skip_space_and_comments()
            if self._skip_match(re.compile(r"\]\]" + _BREAK)):
                return
            if self.next_character() in ("(", ")", "|", "&", "<", ">") and not self.is_at_substitution():
                self.at += 1
            else:
                self._require_word()

    def _parse_simple_command(self) -> bool:
        """A command with everything in front of it and behind it; or the head of a function, behind which one begins."""
        one = SimpleCommand()
        while True:
            self.skip_blanks()
            begin = self.at
            if redirect := _REDIRECT.match(self.text, begin):
                self._parse_redirection(redirect, one.here_documents)
            elif (word := self.parse_word()) is None:
                break
            elif not one.words and (assigns := _ASSIGNS.match(self.text, begin)):
                one.assignments.append((assigns[1], self._parse_assigned_value(assigns, word)))
            else:
                one.words.append(word.text)
                self.found.is_plain = self.found.is_plain and word.is_literal
                if self.next_character() == "(":
                    return self._parse_function_head(one.words)
        self.found.is_plain = self.found.is_plain and not one.assignments
        self.found.commands.append(one)
        return False

    def _parse_assigned_value(self, assigns: re.Match[str], word: ShellWord) -> str:
        """What a variable is set to; a list of values is read word by word."""
        if self.at > assigns.end() or not self.text.startswith("(", self.at):
            return word.text[len(assigns[0]) :]
        self.at += 1
        self._skip_space_and_comments()
        while not self._skip_match(re.compile(r"\)")):
            self._require_word()
            self._skip_space_and_comments()
        return MANY

    def _parse_function_head(self, words: list[str]) -> bool:
        if len(words) != 1 or not is_certain_word(words[0]):
            raise UnreadableCommand("its brackets could not be parsed")
        self.found.is_plain = False
        self._require_match(_BRACKETS)
        self._skip_space_and_comments()
        return True

    def _skip_space_and_comments(self) -> None:
        """Past blanks, comments and line ends."""
        while self.next_character() in ("\n", "#"):
            if self.text[self.at] == "#":
                self._skip_comment()
            else:
                self._parse_line_end()

    def _skip_comment(self) -> None:
        self.found.is_plain = False
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _skip_match(self, pattern: re.Pattern[str]) -> bool:
        self.skip_blanks()
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found is not None

    def _require_match(self, pattern: re.Pattern[str]) -> str:
        self.skip_blanks()
        begin = self.at
        if not self._skip_match(pattern):
            raise UnreadableCommand("it is not valid shell syntax")
        return self.text[begin : self.at]

    def _require_word(self) -> ShellWord:
        word = self.parse_word()
        if word is None:
            raise UnreadableCommand("it is not valid shell syntax")
        return word

    # --- redirections and here documents -----------------------------------------------------------------------------

    def _parse_redirection(self, match: re.Match[str], given: list[str]) -> bool:
        """Past `> file` and the like; no command begins behind it."""
        self.at, operator = match.end(), match[2]
        self.skip_blanks()
        begin = self.at
        word = self._require_word()
        if not _HARMLESS.fullmatch(self.text[match.start() : self.at]):
            self.found.is_plain = False
        self.found.only_bash |= operator.startswith("&")
        if operator in ("<<", "<<-"):
            self.documents.append(_parse_document_start(self.text[begin : self.at], given, tabs=operator == "<<-"))
        elif operator == "<<<":
            given.append(word.text)
        elif ">" in operator and word.text != "/dev/null" and not (operator == ">&" and _HANDLE.fullmatch(word.text)):
            self.found.written_files.append(word.text)
        return False

    def _parse_line_end(self) -> None:
        self.at += 1
        documents, self.documents = self.documents, []
        for document in documents:
            text = self._read_here_document(document)
            document.texts_of_command.append(text if document.quoted else self._parse_expanded_document(text))

    def _read_here_document(self, document: HereDocument) -> str:
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
        raise UnreadableCommand("it has a here-document with no clear end")

    def _parse_expanded_document(self, text: str) -> str:
        """A here document the shell fills in, with marks in place of what it fills in."""
        reader = _CommandParser(text, self.found, self.depth)
        return reader.parse_expanded_text("", lines=True)


def _parse_document_start(raw: str, given: list[str], *, tabs: bool) -> HereDocument:
    match = _DELIMITER.fullmatch(raw)
    if not match:
        raise UnreadableCommand("it has a here-document that could not be parsed")
    return HereDocument(match[2] or match[3], bool(match[1] or match[3]), tabs, given)
