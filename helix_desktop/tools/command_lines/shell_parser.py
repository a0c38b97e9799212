"""Parses a shell command line into its commands, wherever they are, and their words.

It reads what bash and POSIX shells read: quotes, expansions, substitutions, groups,
loops, `case`, functions, here documents. Quotes are removed; expansions become `ANY`
(some text in a word) or `MANY` (any number of words). What is not certain raises
`UnreadableCommand`, so that nobody mistakes a guess for an answer. Grammars made for
editors leave a substitution in a here document as plain text.
"""

import re
import unicodedata
from abc import ABC, abstractmethod
from dataclasses import field

from helix_desktop.fast_dataclass import dataclass

# These stand for what a shell expansion fills in. No command line contains such characters.
ANY = "\0"  # Some text within one word.
MANY = "\1"  # Any number of words.
DEEPEST = 30
WORD_ENDS = frozenset(" \t\n;&|<>()")
# A pattern of file names whose beginning is written out: no name that it finds is an option.
_KNOWN_PATH = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_%+:,./*?-]*")
_WRITTEN = re.compile(r"""(?:'[^']*'|"[^"$`\\!]*"|[A-Za-z0-9_@%+=:,./^~-])++""")
RESERVED = frozenset(
    re.findall(
        r"\S+",
        "if then else elif fi do done while until for select case esac function time coproc { } ! [[",
    )
)
_ARITHMETIC_CHARACTER = re.compile(r"[\w\s+\-*/%<>=!&|^~?:,]", re.ASCII)
_PARAMETER = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_QUOTED_VARIABLE = re.compile(
    r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})\"(?=[\s;&|<>()]|\Z)", re.ASCII
)
_BRACES = re.compile(r"\{(?>[^{}]*?(?:,|\.\.))[^{}]*\}|\A(?>.*?\{)(?>.*?\{).*\}", re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|c(.)|(.))",
    re.DOTALL,
)
_ESCAPED = {"a": 7, "b": 8, "e": 27, "E": 27, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}


_SUBSTITUTION = re.compile(r"\$\(|`|<\(")


class UnreadableCommand(Exception):
    """It is not clear what the line would run. The message is the end of a sentence."""


@dataclass(frozen=True, slots=True)
class ShellWord:
    """`text` has no quotes. `is_literal`: it was written word for word, at most in plain quotes."""

    text: str
    is_literal: bool
    is_known_path: bool = False  # A pattern such as `src/*.py`: only names that begin so.

    @property
    def may_be_option(self) -> bool:
        """Whether it may become a word that begins with a dash, or several words."""
        return not (self.is_literal or self.is_known_path) or self.text.startswith("-")


@dataclass(slots=True)
class SimpleCommand:
    """One command. `assignments`: variables set in front of it, or alone.
    `here_documents`: its input texts. `written_files`: files that its output is redirected to.
    """

    words: list[str] = field(default_factory=list)
    assignments: list[tuple[str, str]] = field(default_factory=list)
    here_documents: list[str] = field(default_factory=list)
    written_files: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ParsedLine:
    """All commands of a line. `unsure`: why a rule that allows cannot be about this line,
    as ends of a sentence; empty if all its words are known. `written_files`: files that
    redirections write. `only_bash`: other shells read it differently. `has_arithmetic`: it
    calculates, which runs a `has_quoted_substitution`, too.
    """

    commands: list[SimpleCommand] = field(default_factory=list)
    written_files: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    # Variables of loops: those whose values are written out, and none of which can be an option;
    # those of all other loops; and those that a command uses although nothing else is known of them.
    loop_variables: set[str] = field(default_factory=set)
    unknown_loop_variables: set[str] = field(default_factory=set)
    used_loop_variables: set[str] = field(default_factory=set)
    only_bash: bool = False
    has_arithmetic: bool = False
    has_quoted_substitution: bool = False

    def add_doubt(self, reason: str) -> None:
        if reason not in self.unsure:
            self.unsure.append(reason)


def is_certain_word(word: str) -> bool:
    """Whether the word contains no shell expansion."""
    return ANY not in word and MANY not in word


@dataclass(slots=True)
class HereDocument:
    """A here document whose text begins on the next line."""

    delimiter: str
    quoted: bool
    tabs: bool
    texts_of_command: list[str]


class ShellWordParser(ABC):
    """Parses the word at a position in a text. Substitutions use the same parser,
    except those in backquotes.
    """

    def __init__(self, text: str, line: ParsedLine, depth: int) -> None:
        self.text = text
        self.line = line
        self.depth = depth
        self.position = 0
        self.documents: list[HereDocument] = []

    @abstractmethod
    def parse_commands(self, closing: str) -> None:
        """Parse what a substitution runs, up to its closing bracket."""

    def peek_after_blanks(self) -> str:
        self.skip_blanks()
        return self.text[self.position : self.position + 1]

    def skip_blanks(self) -> None:
        while self.position < len(self.text):
            if self.text[self.position] in " \t":
                self.position += 1
            elif self.text.startswith("\\\n", self.position):
                self.position += 2
            else:
                return

    def is_at_process_substitution(self) -> bool:
        return self.text.startswith(("<(", ">("), self.position)

    def parse_word(self) -> ShellWord | None:
        """Return the next word without quotes, or None if there is none."""
        char = self.peek_after_blanks()
        if not char or char == "#" or self._is_at_end_of_word():
            return None
        start = self.position
        pieces: list[str] = []
        unquoted_pieces: list[str] = []
        while self.position < len(self.text) and not self._is_at_end_of_word():
            if self.text.startswith("\\\n", self.position):
                behind = self.text[self.position + 2 : self.position + 3]
                if behind and behind not in WORD_ENDS and self.position > start:
                    raise UnreadableCommand("a word is split across two lines")
                break
            piece, unquoted_piece = self._parse_piece_of_word()
            pieces.append(piece)
            unquoted_pieces.append(unquoted_piece)
        return self._build_word(start, "".join(pieces), "".join(unquoted_pieces))

    def _is_at_end_of_word(self) -> bool:
        """Whether a word cannot go on here. `<(…)` and `>(…)` are parts of a word."""
        if self.text[self.position] not in WORD_ENDS:
            return False
        return not self.is_at_process_substitution()

    def _build_word(self, start: int, text: str, unquoted_text: str) -> ShellWord:
        """`unquoted_text`: the unquoted characters, which may have a special meaning."""
        written_text = self.text[start : self.position]
        if _SUBSTITUTION.search(text):
            self.line.has_quoted_substitution = True
        is_quoted = not set("\\'\"").isdisjoint(written_text)
        if text in RESERVED and written_text != text and not is_quoted:
            raise UnreadableCommand("it is not valid shell syntax")
        for char in unquoted_text:
            # Separators and control characters look like a space or like nothing.
            is_invisible = unicodedata.category(char).startswith(("Z", "C"))
            if is_invisible and char not in (ANY, MANY):
                raise UnreadableCommand("it contains invisible characters")
        if unquoted_text == text == "[":
            return ShellWord(text, is_literal=False)
        if _BRACES.search(unquoted_text):
            return ShellWord(MANY, is_literal=False)
        if unquoted_text.startswith("~"):
            text = ANY + text[1:]
        return ShellWord(
            text,
            is_literal=_WRITTEN.fullmatch(written_text) is not None,
            is_known_path=_KNOWN_PATH.fullmatch(written_text) is not None,
        )

    def _parse_piece_of_word(self) -> tuple[str, str]:  # noqa: PLR0911 -- one for each kind of quote
        """Parse a character, quoted piece or expansion. Return its text and its unquoted part."""
        char = self.text[self.position]
        if char == "'":
            return self._parse_single_quotes(), ""
        if char == '"':
            self.position += 1
            return self.parse_expanded_text('"'), ""
        if char == "\\":
            self.position += 2
            if self.position > len(self.text):
                raise UnreadableCommand("it ends with a backslash")
            return self.text[self.position - 1], ""
        if char == "$":
            return self._parse_dollar()
        if char == "`":
            self._parse_backquotes(quoted=False)
            return MANY, ""
        if self.is_at_process_substitution():
            self.line.add_doubt("it reads or writes another command as a file")
            self.position += 2
            self.parse_commands(")")
            return ANY, ""
        self.position += 1
        if char in "*?[" and not self._is_lone_bracket():
            return MANY, char
        return char, char

    def _is_lone_bracket(self) -> bool:
        """Whether the character just read is a bracket that is a word of its own: the command
        `[`.
        """
        if self.text[self.position - 1] != "[":
            return False
        # Both are empty at the beginning and at the end of the text.
        before = self.text[self.position - 2 : self.position - 1]
        behind = self.text[self.position : self.position + 1]
        begins_word = not before or before in WORD_ENDS
        ends_word = not behind or behind in WORD_ENDS
        return begins_word and ends_word

    def _parse_single_quotes(self) -> str:
        """Return the text in single quotes, in which nothing has a special meaning."""
        end = self.text.find("'", self.position + 1)
        if end < 0:
            raise UnreadableCommand("it has an unclosed quote")
        text = self.text[self.position + 1 : end]
        self._refuse_line_end_before_documents(text)
        self.position = end + 1
        return text

    def _refuse_line_end_before_documents(self, text: str) -> None:
        """Refuse a line end in a quoted text if the text of a here document should begin on the
        next line.
        """
        if self.documents and "\n" in text:
            raise UnreadableCommand("it contains a here-document whose start cannot be determined")

    def parse_expanded_text(self, closing: str, *, lines: bool = False) -> str:
        """Parse text with expansions up to its closing quote. `lines`: in a here document."""
        pieces: list[str] = []
        while self.position < len(self.text):
            char = self.text[self.position]
            if char == closing:
                self.position += 1
                return "".join(pieces)
            if char == "\\":
                pieces.append(self._parse_escape(lines=lines))
            elif char == "$":
                pieces.append(self._parse_dollar(quoted=True)[0])
            elif char == "`":
                self._parse_backquotes(quoted=not lines)
                pieces.append(ANY)
            else:
                self._refuse_line_end_before_documents(char)
                pieces.append(char)
                self.position += 1
        if closing:
            raise UnreadableCommand("it has an unclosed quote")
        return "".join(pieces)

    def _parse_escape(self, *, lines: bool) -> str:
        """Parse a backslash in double quotes, which escapes only five characters."""
        behind = self.text[self.position + 1 : self.position + 2]
        self.position += 2
        if behind == "\n":
            return ""
        # In a here document, a double quote has no meaning that could be escaped.
        escapable = {"$", "`", "\\"}
        if not lines:
            escapable.add('"')
        if behind in escapable:
            return behind
        return f"\\{behind}"

    def _parse_dollar(self, *, quoted: bool = False) -> tuple[str, str]:
        """Parse what follows a dollar sign. Return its text and its unquoted part."""
        if not self._is_known_loop_variable(quoted=quoted):
            self.line.add_doubt("the shell fills in a part of it")
        self.position += 1
        behind = self.text[self.position : self.position + 1]
        if self.text.startswith("\\\n", self.position):
            raise UnreadableCommand("an expansion is split across two lines")
        if behind == "'" and not quoted:
            self.line.only_bash = True
            return self._parse_ansi_quotes(), ""
        if behind == '"' and not quoted:
            self.position += 1
            return self.parse_expanded_text('"'), ""
        return self._parse_expansion(quoted=quoted), ""

    def _parse_expansion(self, *, quoted: bool) -> str:
        """Skip what follows a dollar sign, and return the mark that stands in the word for what
        the shell will fill in.

        The mark is `ANY` in quotes, where the result stays within one word. Outside of quotes
        it is `MANY`, since the shell splits the result into any number of words. What a
        substitution runs is parsed as commands. A dollar sign that nothing follows is returned
        as it is.
        """
        mark = ANY if quoted else MANY
        next_character = self.text[self.position : self.position + 1]
        parameter = _PARAMETER.match(self.text, self.position)
        if self.text.startswith("((", self.position):  # `$((1 + 2))` is a calculation.
            self.position += 2
            self.skip_arithmetic()
        elif next_character == "(":  # `$(command)` is what the command prints.
            self.position += 1
            self.parse_commands(")")
        elif next_character == "[":  # `$[1 + 2]` is an old form of a calculation.
            raise UnreadableCommand("an arithmetic expression could not be parsed")
        elif next_character == "{":  # `${name}` is a variable, perhaps with a change to its value.
            self.position += 1
            can_be_several_words = self._skip_braced_expansion(quoted=quoted)
            if can_be_several_words:
                mark = MANY
        elif parameter:  # `$name` or `$1`
            self.position = parameter.end()
            # `"$@"` is all arguments, each a word, even in quotes.
            if parameter[0] == "@":
                mark = MANY
        else:
            mark = "$"
        return mark

    def _is_known_loop_variable(self, *, quoted: bool) -> bool:
        """Whether a whole word is `"$name"`, the variable of a loop over words that are
        written out.
        """
        variable = _QUOTED_VARIABLE.match(self.text, self.position)
        is_whole_word = re.fullmatch(
            r"[ \t\n]\"", self.text[max(self.position - 2, 0) : self.position]
        )
        if not quoted or variable is None or is_whole_word is None:
            return False
        name = variable[1] or variable[2]
        if name not in self.line.loop_variables:
            return False
        self.line.used_loop_variables.add(name)
        return True

    def _skip_braced_expansion(self, *, quoted: bool) -> bool:
        """Skip `${…}`. Return whether it can become several words even in quotes."""
        start = self.position
        if self.text[start : start + 1] in (" ", "\t", "\n", "|", "\\"):
            raise UnreadableCommand("it has an expansion that could not be parsed")
        while not self.text.startswith("}", self.position):
            if self.position >= len(self.text):
                raise UnreadableCommand(
                    "it contains a $(…) or a similar expansion that is not closed"
                )
            self._skip_piece_in_braces(quoted=quoted)
        expansion = self.text[start : self.position]
        self.position += 1
        if re.search(r"@[A-Za-z]$", expansion) or expansion.startswith("!"):
            raise UnreadableCommand(
                "it reads a variable whose name or value could cause commands to run"
            )
        # An index, and the numbers in `${x:1:2}`, are calculated.
        self.line.has_arithmetic |= "[" in expansion or bool(re.search(r":[^-+=?]", expansion))
        return "@" in expansion

    def _skip_piece_in_braces(self, *, quoted: bool) -> None:
        """Skip the next quoted text, expansion or character inside `${…}`. Refuse what shells
        read in different ways there.
        """
        char = self.text[self.position]
        is_quote_within_quotes = char == "'" and quoted
        ends_line = char == "\n" or self.text.startswith("\\\n", self.position)
        if is_quote_within_quotes or ends_line:
            raise UnreadableCommand("it has an expansion that could not be parsed")
        if char == '"':
            self.position += 1
            self.parse_expanded_text('"')
        elif char == "`":
            self._parse_backquotes(quoted=quoted)
        elif char == "$":
            self._parse_dollar(quoted=quoted)
        else:
            self._parse_piece_of_word()

    def skip_arithmetic(self, separators: str = "") -> None:
        """Skip a calculation, up to its two closing brackets."""
        self.line.has_arithmetic = True
        open_brackets = 0
        while self.position < len(self.text):
            char = self.text[self.position]
            if char == "$":
                self._parse_dollar(quoted=True)
                continue
            if char == ")" and open_brackets == 0:
                break
            if char == "(":
                open_brackets += 1
            elif char == ")":
                open_brackets -= 1
            elif char not in separators and not _ARITHMETIC_CHARACTER.match(char):
                break
            self.position += 1
        if not self.text.startswith("))", self.position):
            raise UnreadableCommand("an arithmetic expression could not be parsed")
        self.position += 2

    def _parse_backquotes(self, *, quoted: bool) -> None:
        """Parse a substitution in backquotes, after removing one layer of backslashes."""
        self.line.add_doubt("the shell fills in a part of it")
        match = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL).match(self.text, self.position)
        if not match:
            raise UnreadableCommand("it has an unclosed backquote")
        self._refuse_line_end_before_documents(match[1])
        escaped_character = r"\\([$`\\])"
        if quoted:
            escaped_character = r'\\([$`\\"])'
        inner_commands = re.sub(escaped_character, r"\1", match[1])
        type(self)(inner_commands, self.line, self.depth).parse_commands("")
        self.position = match.end()

    def _parse_ansi_quotes(self) -> str:
        """Parse `$'…'`, in which characters may be written as numbers."""
        match = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL).match(self.text, self.position)
        if not match:
            raise UnreadableCommand("it has an unclosed quote")
        self._refuse_line_end_before_documents(match[1])
        self.position = match.end()
        return _ESCAPE.sub(_decode_escape, match[1])


def _decode_escape(match: re.Match[str]) -> str:
    """Decode a character of `$'…'`. One that ends or breaks the text becomes ANY."""
    hexadecimal, octal, short, long, control, other = match.groups()
    if control:
        return ANY
    if other in _ESCAPED:
        return chr(_ESCAPED[other])
    if other and other in "'\"\\?":
        return str(other)
    if other:
        return f"\\{other}"
    if octal:
        return _ascii_or_any(int(octal, 8) & 0xFF)
    hexadecimal_digits = hexadecimal or short or long
    return _ascii_or_any(int(hexadecimal_digits, 16))


def _ascii_or_any(code: int) -> str:
    # 0 and 1 are the marks, and above ASCII the locale decides which character is meant.
    if 1 < code < 0x80:
        return chr(code)
    return ANY


MOST_CHARACTERS = 200_000
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_REDIRECT = re.compile(r"(\d+|\{[A-Za-z_]\w*\})?(<<<|<<-|<<|<>|<&|<(?!\()|>>|>\||>&|>(?!\()|&>>?)")
_HARMLESS = re.compile(r"(?:2>&1|[12]?>[ \t]*/dev/null)")
_OPEN_FILE_NUMBER = re.compile(r"\d+|-")
_SEPARATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|]")
_WORD_BOUNDARY = r"(?=[\s;&|<>()]|$)"
_RESERVED = re.compile(
    rf"(if|then|else|elif|fi|do|done|while|until|for|select|case|esac|function|time|coproc|in|\{{|\}}|!|\[\[){_WORD_BOUNDARY}"
)
# A function gives a program's name another meaning. The others are rare, so no rule is about them.
_CHANGES_MEANING = frozenset({"function", "select", "case", "esac", "coproc", "time", "[["})
# Builtins that may give a loop's variable another value.
_SETTING_BUILTINS = frozenset(
    [
        "read",
        "declare",
        "typeset",
        "local",
        "export",
        "readonly",
        "let",
        "getopts",
        "mapfile",
        "readarray",
        "unset",
        "eval",
        "source",
        ".",
        "command",
        "builtin",
        "wait",
    ]
)
_CLOSING = frozenset({"fi", "done", "esac", "}"})
_CALCULATING_TESTS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"})
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_FUNCTION = re.compile(r"[\w.:+-]+", re.ASCII)
_BRACKETS = re.compile(r"\([ \t]*\)")
_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(\[\w*\])?\+?=", re.ASCII)
_DELIMITER = re.compile(r"""(['"]?)([\w.,:+=@%/!-]+)\1|\\([\w.-]+)""")


def parse_command_line(line: str) -> ParsedLine:
    """Parse a line. Raises UnreadableCommand if that is not possible with certainty."""
    if len(line) > MOST_CHARACTERS:
        raise UnreadableCommand("it is too long to analyze")
    if _CONTROL_CHARACTER.search(line):
        raise UnreadableCommand("it contains control characters")
    parser = _CommandParser(line, ParsedLine(), 0)
    parser.parse_commands("")
    _doubt_changed_loop_variables(parser.line)
    return parser.line


def _doubt_changed_loop_variables(line: ParsedLine) -> None:
    """Doubt a loop's variable that something else in the line may set."""
    if not line.used_loop_variables:
        return
    sets_variable = any(_sets_variable(command.words) for command in line.commands)
    is_of_unknown_loop = not line.used_loop_variables.isdisjoint(line.unknown_loop_variables)
    if sets_variable or is_of_unknown_loop:
        line.add_doubt("it may change the variable of its loop")


def _sets_variable(words: list[str]) -> bool:
    if not words:
        return False
    if words[0] == "printf":  # With -v, it prints into a variable.
        return len(words) > 1 and words[1].startswith("-")
    return words[0] in _SETTING_BUILTINS


class _CommandParser(ShellWordParser):
    """Parses commands and the keywords around them, and adds them to the parsed line."""

    # --- Commands, and what separates them

    def parse_commands(self, closing: str) -> None:
        """Parse everything up to the end, or to the bracket that closes a group."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise UnreadableCommand("it is nested too deeply")
        may_begin = True
        char = self.peek_after_blanks()
        while char not in ("", ")"):
            may_begin = self._parse_next_piece(char, may_begin=may_begin)
            char = self.peek_after_blanks()
        if char != closing or self.documents:
            raise UnreadableCommand("it has an unclosed quote or bracket")
        self.position += len(char)
        self.depth -= 1

    def _parse_next_piece(self, char: str, *, may_begin: bool) -> bool:  # noqa: PLR0911 -- one for each thing a line is made of
        """Parse a command, separator or reserved word. `may_begin`: a command may begin here.
        Return whether one may begin next.
        """
        if char == "\n":
            self._parse_line_end()
            return True
        if char == "#":
            self._skip_comment()
            return may_begin
        redirection = _REDIRECT.match(self.text, self.position)
        if redirection and may_begin:
            return self._parse_simple_command()
        if redirection:
            # Behind a group or a loop, it is about all commands in there. The last one stands for them.
            group = SimpleCommand()
            self._parse_redirection(redirection, group)
            if self.line.commands:
                self.line.commands[-1].written_files += group.written_files
            return False
        joint = _SEPARATOR.match(self.text, self.position)
        if joint:
            self._skip_separator_and_case_patterns(joint)
            return True
        if char == "(":
            self._parse_group()
            return False
        reserved_word = _RESERVED.match(self.text, self.position)
        if reserved_word:
            return self._parse_reserved_word(reserved_word)
        if not may_begin:
            raise UnreadableCommand("it is not valid shell syntax")
        return self._parse_simple_command()

    def _skip_separator_and_case_patterns(self, joint: re.Match[str]) -> None:
        """Skip what separates two commands. Behind the `;;` of a `case`, the patterns of the
        next branch follow.
        """
        self.position = joint.end()
        if joint[0] == "&":
            self.line.add_doubt("a part of it goes on in the background")
        elif joint[0] == "|&":
            self.line.add_doubt("shells read |& differently")
        if joint[0] in (";;", ";&", ";;&"):
            self._parse_case_patterns()

    def _parse_group(self) -> None:
        """Parse what stands in brackets: commands, or a calculation in double brackets."""
        self.position += 1
        if self.text.startswith("(", self.position):
            self.line.add_doubt("it calculates")
            self.position += 1
            self.line.only_bash = True
            self.skip_arithmetic()
        else:
            self.parse_commands(")")

    def _parse_reserved_word(self, match: re.Match[str]) -> bool:
        """Skip a reserved word and what belongs to it. Return whether a command may follow."""
        if match[1] in _CHANGES_MEANING:
            self.line.add_doubt(f"it uses {match[1]}")
        self.position = match.end()
        match match[1]:
            case "for" | "select":
                self._parse_loop_head()
            case "case":
                self._parse_required_word()
                self._skip_space_and_comments()
                self._skip_required_match(re.compile("in" + _WORD_BOUNDARY))
                self._parse_case_patterns()
            case "function":
                self._skip_required_match(_FUNCTION)
                self._skip_if_matching(_BRACKETS)
                self._skip_space_and_comments()
            case "[[":
                self._parse_double_bracket_test()
                return False
            case "time":
                while self._skip_if_matching(re.compile(rf"(-p|--){_WORD_BOUNDARY}")):
                    pass
                self.line.commands.append(SimpleCommand(["time"]))
            case "coproc" | "in":
                raise UnreadableCommand(f"it uses {match[1]}")
        return match[1] not in _CLOSING

    def _parse_loop_head(self) -> None:
        """Parse what follows `for`: a calculation in double brackets, or the name of the loop's
        variable and the words that it takes one after the other.

        The name is noted as a known loop variable if all of these words are written out and none
        may be an option: then it is certain what `"$name"` in the loop can be.
        """
        self.skip_blanks()
        if self.text.startswith("((", self.position):
            self.position += 2
            self.line.only_bash = True
            self.line.add_doubt("it calculates")
            self.skip_arithmetic(";")
            return
        name = self._skip_required_match(_NAME)
        self.line.commands.append(SimpleCommand(assignments=[(name, MANY)]))
        self._skip_space_and_comments()
        words: list[ShellWord] = []
        if self._skip_if_matching(re.compile("in" + _WORD_BOUNDARY)):
            word = self.parse_word()
            while word is not None:
                words.append(word)
                word = self.parse_word()
        if words and not any(word.may_be_option for word in words):
            self.line.loop_variables.add(name)
        else:
            self.line.unknown_loop_variables.add(name)

    def _parse_case_patterns(self) -> None:
        """Skip the patterns of a case branch, up to the closing bracket."""
        self._skip_space_and_comments()
        if re.compile("esac" + _WORD_BOUNDARY).match(self.text, self.position):
            return
        self._skip_if_matching(re.compile(r"\("))
        self._parse_required_word()
        while not self._skip_if_matching(re.compile(r"\)")):
            self._skip_required_match(re.compile(r"\|"))
            self._parse_required_word()

    def _parse_double_bracket_test(self) -> None:
        """Parse `[[ … ]]`. Its words may contain substitutions; it runs nothing else."""
        self.line.only_bash = True
        while True:
            self._skip_space_and_comments()
            if self._skip_if_matching(re.compile(r"\]\]" + _WORD_BOUNDARY)):
                return
            is_operator = self.peek_after_blanks() in ("(", ")", "|", "&", "<", ">")
            if is_operator and not self.is_at_process_substitution():
                self.position += 1
                continue
            word = self._parse_required_word().text
            # An expansion may become one of these tests.
            if word in _CALCULATING_TESTS or not is_certain_word(word[:1]):
                self.line.has_arithmetic = True

    def _parse_simple_command(self) -> bool:
        """Parse a simple command or a function's head. Return whether a command may follow."""
        command = SimpleCommand()
        while True:
            self.skip_blanks()
            word_start = self.position
            redirection = _REDIRECT.match(self.text, word_start)
            if redirection:
                self._parse_redirection(redirection, command)
                continue
            word = self.parse_word()
            if word is None:
                break
            assignment = _ASSIGNS.match(self.text, word_start)
            # Behind the program's name, `A=b` is an argument like any other.
            if assignment and not command.words:
                value = self._parse_assigned_value(assignment, word)
                command.assignments.append((assignment[1], value))
                continue
            command.words.append(word.text)
            self._doubt_word(word, is_first=len(command.words) == 1)
            if self.peek_after_blanks() == "(":
                return self._parse_function_head(command.words)
        if command.assignments:
            self.line.add_doubt("it sets a variable")
        self.line.commands.append(command)
        return False

    def _doubt_word(self, word: ShellWord, *, is_first: bool) -> None:
        """Note a doubt about a word that is not written out, as a rule cannot know what it will
        be.
        """
        if word.is_literal or (word.is_known_path and not is_first):
            return
        if word.text == ANY and self.line.used_loop_variables:
            return  # Any other expansion has its own doubt.
        if word.text.startswith(MANY):
            self.line.add_doubt("a file whose name begins with - would be an option for it")
        else:
            self.line.add_doubt("a word of it is not written out plainly")

    def _parse_assigned_value(self, assignment: re.Match[str], word: ShellWord) -> str:
        """Return a variable's value. A list of values is read word by word."""
        if self.position > assignment.end() or not self.text.startswith("(", self.position):
            return word.text[len(assignment[0]) :]
        self.position += 1
        self._skip_space_and_comments()
        while not self._skip_if_matching(re.compile(r"\)")):
            self._parse_required_word()
            self._skip_space_and_comments()
        return MANY

    def _parse_function_head(self, words: list[str]) -> bool:
        """Parse the brackets behind a function's name. Return True, as its commands follow."""
        if len(words) != 1 or not is_certain_word(words[0]):
            raise UnreadableCommand("the brackets could not be parsed")
        self.line.add_doubt("it defines a function")
        self._skip_required_match(_BRACKETS)
        self._skip_space_and_comments()
        return True

    def _skip_space_and_comments(self) -> None:
        while self.peek_after_blanks() in ("\n", "#"):
            if self.text[self.position] == "#":
                self._skip_comment()
            else:
                self._parse_line_end()

    def _skip_comment(self) -> None:
        self.position = self._find_end_of_line()

    def _find_end_of_line(self) -> int:
        end = self.text.find("\n", self.position)
        if end < 0:
            return len(self.text)
        return end

    def _skip_if_matching(self, pattern: re.Pattern[str]) -> bool:
        self.skip_blanks()
        match = pattern.match(self.text, self.position)
        if match is None:
            return False
        self.position = match.end()
        return True

    def _skip_required_match(self, pattern: re.Pattern[str]) -> str:
        self.skip_blanks()
        start = self.position
        if not self._skip_if_matching(pattern):
            raise UnreadableCommand("it is not valid shell syntax")
        return self.text[start : self.position]

    def _parse_required_word(self) -> ShellWord:
        word = self.parse_word()
        if word is None:
            raise UnreadableCommand("it is not valid shell syntax")
        return word

    # --- Redirections and here documents

    def _parse_redirection(self, match: re.Match[str], command: SimpleCommand) -> None:
        """Skip `> file` and the like, and note what it writes or gives to the command."""
        self.position = match.end()
        operator = match[2]
        writes = ">" in operator
        self.skip_blanks()
        target_start = self.position
        target = self._parse_required_word()
        is_harmless = _HARMLESS.fullmatch(self.text[match.start() : self.position])
        if writes and not is_harmless:
            self.line.add_doubt("it writes a file")
        elif not is_harmless:
            self.line.add_doubt("it is given an input")
        if operator.startswith("&"):
            self.line.only_bash = True
        if operator in ("<<", "<<-"):
            written_target = self.text[target_start : self.position]
            texts = command.here_documents
            document = _parse_here_document_start(written_target, texts, tabs=operator == "<<-")
            self.documents.append(document)
        elif operator == "<<<":
            command.here_documents.append(target.text)
        elif writes and target.text != "/dev/null":
            # `>&2` names an open file, but `>& name` writes one.
            is_open_file = operator == ">&" and _OPEN_FILE_NUMBER.fullmatch(target.text)
            if not is_open_file:
                self.line.written_files.append(target.text)
                command.written_files.append(target.text)

    def _parse_line_end(self) -> None:
        """Go on to the next line, and read the texts of here documents (inputs written into the
        command line) that begin there, in the order of their operators.
        """
        self.position += 1
        documents = self.documents
        self.documents = []
        for document in documents:
            text = self._read_here_document(document)
            if not document.quoted:
                text = self._parse_expanded_document(text)
            if _SUBSTITUTION.search(text):
                self.line.has_quoted_substitution = True
            document.texts_of_command.append(text)

    def _read_here_document(self, document: HereDocument) -> str:
        """Return the text up to its delimiter. Refuses joined lines that make the
        delimiter ambiguous.
        """
        lines: list[str] = []
        is_continued = False
        while self.position < len(self.text):
            end = self._find_end_of_line()
            line = self.text[self.position : end]
            self.position = min(end + 1, len(self.text))
            if document.tabs:
                line = line.lstrip("\t")
            if line == document.delimiter and not is_continued:
                return "".join(f"{line_before}\n" for line_before in lines)
            if is_continued and document.delimiter.endswith(line):
                break
            # Two backslashes are one that is escaped. A single one joins this line and the next.
            backslash_count = len(line) - len(line.rstrip("\\"))
            is_continued = backslash_count % 2 == 1 and not document.quoted
            lines.append(line)
        raise UnreadableCommand("it has a here-document with no clear end")

    def _parse_expanded_document(self, text: str) -> str:
        """Return a here document with marks in place of its expansions."""
        parser = _CommandParser(text, self.line, self.depth)
        return parser.parse_expanded_text("", lines=True)


def _parse_here_document_start(
    written_delimiter: str, texts: list[str], *, tabs: bool
) -> HereDocument:
    """Return the here document that ends at this delimiter. If any of it is quoted, nothing is
    expanded in its text. `tabs`: tabs at the beginning of its lines do not count.
    """
    match = _DELIMITER.fullmatch(written_delimiter)
    if not match:
        raise UnreadableCommand("it has a here-document that could not be parsed")
    delimiter = match[2] or match[3]
    is_quoted = bool(match[1] or match[3])
    return HereDocument(delimiter, quoted=is_quoted, tabs=tabs, texts_of_command=texts)
