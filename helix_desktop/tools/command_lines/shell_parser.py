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
ENDS = frozenset(" \t\n;&|<>()")
# A pattern of file names whose beginning is written out: no name that it finds is an option.
_KNOWN_PATH = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_%+:,./*?-]*")
_WRITTEN = re.compile(r"""(?:'[^']*'|"[^"$`\\!]*"|[A-Za-z0-9_@%+=:,./^~-])++""")
RESERVED = frozenset(
    re.findall(
        r"\S+",
        "if then else elif fi do done while until for select case esac function time coproc { } ! [[",
    )
)
_SUMS = re.compile(r"[\w\s+\-*/%<>=!&|^~?:,]", re.ASCII)
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

    def __init__(self, text: str, found: ParsedLine, depth: int) -> None:
        self.text = text
        self.found = found
        self.depth = depth
        self.at = 0
        self.documents: list[HereDocument] = []

    @abstractmethod
    def parse_commands(self, closing: str) -> None:
        """Parse what a substitution runs, up to its closing bracket."""

    def peek_after_blanks(self) -> str:
        self.skip_blanks()
        return self.text[self.at : self.at + 1]

    def skip_blanks(self) -> None:
        while self.at < len(self.text):
            if self.text[self.at] in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            else:
                return

    def is_at_process_substitution(self) -> bool:
        return self.text.startswith(("<(", ">("), self.at)

    def parse_word(self) -> ShellWord | None:
        """Return the next word without quotes, or None if there is none."""
        char = self.peek_after_blanks()
        if not char or char == "#" or (char in ENDS and not self.is_at_process_substitution()):
            return None
        begin = self.at
        pieces: list[str] = []
        unquoted_pieces: list[str] = []
        while self.at < len(self.text):
            if self.text[self.at] in ENDS and not self.is_at_process_substitution():
                break
            if self.text.startswith("\\\n", self.at):
                behind = self.text[self.at + 2 : self.at + 3]
                if behind and behind not in ENDS and self.at > begin:
                    raise UnreadableCommand("a word is split across two lines")
                break
            piece, unquoted_piece = self._parse_piece_of_word()
            pieces.append(piece)
            unquoted_pieces.append(unquoted_piece)
        return self._build_word(begin, "".join(pieces), "".join(unquoted_pieces))

    def _build_word(self, begin: int, text: str, bare: str) -> ShellWord:
        """`bare`: the unquoted characters, which may have a special meaning."""
        raw = self.text[begin : self.at]
        if _SUBSTITUTION.search(text):
            self.found.has_quoted_substitution = True
        is_quoted = not set("\\'\"").isdisjoint(raw)
        if text in RESERVED and raw != text and not is_quoted:
            raise UnreadableCommand("it is not valid shell syntax")
        for char in bare:
            # Separators and control characters look like a space or like nothing.
            is_invisible = unicodedata.category(char).startswith(("Z", "C"))
            if is_invisible and char not in (ANY, MANY):
                raise UnreadableCommand("it contains invisible characters")
        if bare == text == "[":
            return ShellWord(text, is_literal=False)
        if _BRACES.search(bare):
            return ShellWord(MANY, is_literal=False)
        if bare.startswith("~"):
            text = ANY + text[1:]
        return ShellWord(
            text,
            is_literal=_WRITTEN.fullmatch(raw) is not None,
            is_known_path=_KNOWN_PATH.fullmatch(raw) is not None,
        )

    def _parse_piece_of_word(self) -> tuple[str, str]:  # noqa: PLR0911 -- one for each kind of quote
        """Parse a character, quoted piece or expansion. Return its text and its unquoted part."""
        char = self.text[self.at]
        if char == "'":
            return self._parse_single_quotes(), ""
        if char == '"':
            self.at += 1
            return self.parse_expanded_text('"'), ""
        if char == "\\":
            self.at += 2
            if self.at > len(self.text):
                raise UnreadableCommand("it ends with a backslash")
            return self.text[self.at - 1], ""
        if char == "$":
            return self._parse_dollar()
        if char == "`":
            self._parse_backquotes(quoted=False)
            return MANY, ""
        if self.is_at_process_substitution():
            self.found.add_doubt("it reads or writes another command as a file")
            self.at += 2
            self.parse_commands(")")
            return ANY, ""
        self.at += 1
        if char in "*?[" and not self._is_lone_bracket():
            return MANY, char
        return char, char

    def _is_lone_bracket(self) -> bool:
        """Whether the bracket just read is a word of its own, the command `[`."""
        before = self.text[self.at - 2 : self.at - 1]
        behind = self.text[self.at : self.at + 1]
        return (
            self.text[self.at - 1] == "["
            and (not before or before in ENDS)
            and (not behind or behind in ENDS)
        )

    def _parse_single_quotes(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise UnreadableCommand("it has an unclosed quote")
        text = self.text[self.at + 1 : end]
        self._refuse_line_end_before_documents(text)
        self.at = end + 1
        return text

    def _refuse_line_end_before_documents(self, text: str) -> None:
        if self.documents and "\n" in text:
            raise UnreadableCommand("it contains a here-document whose start cannot be determined")

    def parse_expanded_text(self, closing: str, *, lines: bool = False) -> str:
        """Parse text with expansions up to its closing quote. `lines`: in a here document."""
        pieces: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == closing:
                self.at += 1
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
                self.at += 1
        if closing:
            raise UnreadableCommand("it has an unclosed quote")
        return "".join(pieces)

    def _parse_escape(self, *, lines: bool) -> str:
        """Parse a backslash in double quotes, which escapes only five characters."""
        behind = self.text[self.at + 1 : self.at + 2]
        self.at += 2
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
            self.found.add_doubt("the shell fills in a part of it")
        self.at += 1
        behind = self.text[self.at : self.at + 1]
        if self.text.startswith("\\\n", self.at):
            raise UnreadableCommand("an expansion is split across two lines")
        if behind == "'" and not quoted:
            self.found.only_bash = True
            return self._parse_ansi_quotes(), ""
        if behind == '"' and not quoted:
            self.at += 1
            return self.parse_expanded_text('"'), ""
        return self._parse_expansion(quoted=quoted), ""

    def _parse_expansion(self, *, quoted: bool) -> str:
        """Skip what follows a dollar sign, and return the mark for it. A dollar sign that
        nothing follows is returned as it is.
        """
        behind = self.text[self.at : self.at + 1]
        # In quotes, an expansion remains one word.
        filled = MANY
        if quoted:
            filled = ANY
        parameter = _PARAMETER.match(self.text, self.at)
        if self.text.startswith("((", self.at):
            self.at += 2
            self.skip_arithmetic()
        elif behind == "(":
            self.at += 1
            self.parse_commands(")")
        elif behind == "[":
            raise UnreadableCommand("an arithmetic expression could not be parsed")
        elif behind == "{":
            self.at += 1
            if self._skip_braced_expansion(quoted=quoted):
                filled = MANY
        elif parameter:
            self.at = parameter.end()
            # `"$@"` is all arguments, each a word.
            if parameter[0] == "@":
                filled = MANY
        else:
            return "$"
        return filled

    def _is_known_loop_variable(self, *, quoted: bool) -> bool:
        """Whether a whole word is `"$name"`, the variable of a loop over words that are
        written out.
        """
        variable = _QUOTED_VARIABLE.match(self.text, self.at)
        is_whole_word = re.fullmatch(r"[ \t\n]\"", self.text[max(self.at - 2, 0) : self.at])
        if not quoted or variable is None or is_whole_word is None:
            return False
        name = variable[1] or variable[2]
        if name not in self.found.loop_variables:
            return False
        self.found.used_loop_variables.add(name)
        return True

    def _skip_braced_expansion(self, *, quoted: bool) -> bool:
        """Skip `${…}`. Return whether it can become several words even in quotes."""
        begin = self.at
        if self.text[begin : begin + 1] in (" ", "\t", "\n", "|", "\\"):
            raise UnreadableCommand("it has an expansion that could not be parsed")
        while not self.text.startswith("}", self.at):
            if self.at >= len(self.text):
                raise UnreadableCommand(
                    "it contains a $(…) or a similar expansion that is not closed"
                )
            self._skip_piece_in_braces(quoted=quoted)
        raw = self.text[begin : self.at]
        self.at += 1
        if re.search(r"@[A-Za-z]$", raw) or raw.startswith("!"):
            raise UnreadableCommand(
                "it reads a variable whose name or value could cause commands to run"
            )
        # An index, and the numbers in `${x:1:2}`, are calculated.
        self.found.has_arithmetic |= "[" in raw or bool(re.search(r":[^-+=?]", raw))
        return "@" in raw

    def _skip_piece_in_braces(self, *, quoted: bool) -> None:
        char = self.text[self.at]
        if (char == "'" and quoted) or char == "\n" or self.text.startswith("\\\n", self.at):
            raise UnreadableCommand("it has an expansion that could not be parsed")
        if char == '"':
            self.at += 1
            self.parse_expanded_text('"')
        elif char == "`":
            self._parse_backquotes(quoted=quoted)
        elif char == "$":
            self._parse_dollar(quoted=quoted)
        else:
            self._parse_piece_of_word()

    def skip_arithmetic(self, separators: str = "") -> None:
        """Skip a calculation, up to its two closing brackets."""
        self.found.has_arithmetic = True
        open_brackets = 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "$":
                self._parse_dollar(quoted=True)
                continue
            if char == ")" and open_brackets == 0:
                break
            if char == "(":
                open_brackets += 1
            elif char == ")":
                open_brackets -= 1
            elif char not in separators and not _SUMS.match(char):
                break
            self.at += 1
        if not self.text.startswith("))", self.at):
            raise UnreadableCommand("an arithmetic expression could not be parsed")
        self.at += 2

    def _parse_backquotes(self, *, quoted: bool) -> None:
        """Parse a substitution in backquotes, after removing one layer of backslashes."""
        self.found.add_doubt("the shell fills in a part of it")
        match = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL).match(self.text, self.at)
        if not match:
            raise UnreadableCommand("it has an unclosed backquote")
        self._refuse_line_end_before_documents(match[1])
        escaped = r"\\([$`\\])"
        if quoted:
            escaped = r'\\([$`\\"])'
        inner = re.sub(escaped, r"\1", match[1])
        type(self)(inner, self.found, self.depth).parse_commands("")
        self.at = match.end()

    def _parse_ansi_quotes(self) -> str:
        """Parse `$'…'`, in which characters may be written as numbers."""
        match = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL).match(self.text, self.at)
        if not match:
            raise UnreadableCommand("it has an unclosed quote")
        self._refuse_line_end_before_documents(match[1])
        self.at = match.end()
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
    return _ascii_or_any(int(hexadecimal or short or long, 16))


def _ascii_or_any(code: int) -> str:
    # 0 and 1 are the marks, and above ASCII the locale decides which character is meant.
    if 1 < code < 0x80:
        return chr(code)
    return ANY


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
    if _STRANGE.search(line):
        raise UnreadableCommand("it contains control characters")
    reader = _CommandParser(line, ParsedLine(), 0)
    reader.parse_commands("")
    _doubt_changed_loop_variables(reader.found)
    return reader.found


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
        self.at += len(char)
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
        redirection = _REDIRECT.match(self.text, self.at)
        if redirection and may_begin:
            return self._parse_simple_command()
        if redirection:
            # Behind a group or a loop, it is about all commands in there. The last one stands for them.
            group = SimpleCommand()
            self._parse_redirection(redirection, group)
            if self.found.commands:
                self.found.commands[-1].written_files += group.written_files
            return False
        joint = _JOINT.match(self.text, self.at)
        if joint:
            self._skip_separator_and_case_patterns(joint)
            return True
        if char == "(":
            self._parse_group()
            return False
        reserved_word = _RESERVED.match(self.text, self.at)
        if reserved_word:
            return self._parse_reserved_word(reserved_word)
        if not may_begin:
            raise UnreadableCommand("it is not valid shell syntax")
        return self._parse_simple_command()

    def _skip_separator_and_case_patterns(self, joint: re.Match[str]) -> None:
        self.at = joint.end()
        if joint[0] == "&":
            self.found.add_doubt("a part of it goes on in the background")
        elif joint[0] == "|&":
            self.found.add_doubt("shells read |& differently")
        if joint[0] in (";;", ";&", ";;&"):
            self._parse_case_patterns()

    def _parse_group(self) -> None:
        self.at += 1
        if self.text.startswith("(", self.at):
            self.found.add_doubt("it calculates")
            self.at += 1
            self.found.only_bash = True
            self.skip_arithmetic()
        else:
            self.parse_commands(")")

    def _parse_reserved_word(self, match: re.Match[str]) -> bool:
        """Skip a reserved word and what belongs to it. Return whether a command may follow."""
        if match[1] in _CHANGES_MEANING:
            self.found.add_doubt(f"it uses {match[1]}")
        self.at = match.end()
        match match[1]:
            case "for" | "select":
                self._parse_loop_head()
            case "case":
                self._parse_required_word()
                self._skip_space_and_comments()
                self._skip_required_match(re.compile("in" + _BREAK))
                self._parse_case_patterns()
            case "function":
                self._skip_required_match(_FUNCTION)
                self._skip_if_matching(_BRACKETS)
                self._skip_space_and_comments()
            case "[[":
                self._parse_double_bracket_test()
                return False
            case "time":
                while self._skip_if_matching(re.compile(rf"(-p|--){_BREAK}")):
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
            self.found.add_doubt("it calculates")
            self.skip_arithmetic(";")
            return
        name = self._skip_required_match(_NAME)
        self.found.commands.append(SimpleCommand(assignments=[(name, MANY)]))
        self._skip_space_and_comments()
        words: list[ShellWord] = []
        if self._skip_if_matching(re.compile("in" + _BREAK)):
            word = self.parse_word()
            while word is not None:
                words.append(word)
                word = self.parse_word()
        # The loop runs over nothing but these, and a value that begins with a dash may be an option.
        if words and not any(word.may_be_option for word in words):
            self.found.loop_variables.add(name)
        else:
            self.found.unknown_loop_variables.add(name)

    def _parse_case_patterns(self) -> None:
        """Skip the patterns of a case branch, up to the closing bracket."""
        self._skip_space_and_comments()
        if re.compile("esac" + _BREAK).match(self.text, self.at):
            return
        self._skip_if_matching(re.compile(r"\("))
        self._parse_required_word()
        while not self._skip_if_matching(re.compile(r"\)")):
            self._skip_required_match(re.compile(r"\|"))
            self._parse_required_word()

    def _parse_double_bracket_test(self) -> None:
        """Parse `[[ … ]]`. Its words may contain substitutions; it runs nothing else."""
        self.found.only_bash = True
        while True:
            self._skip_space_and_comments()
            if self._skip_if_matching(re.compile(r"\]\]" + _BREAK)):
                return
            is_operator = self.peek_after_blanks() in ("(", ")", "|", "&", "<", ">")
            if is_operator and not self.is_at_process_substitution():
                self.at += 1
                continue
            word = self._parse_required_word().text
            # An expansion may become one of these tests.
            if word in _CALCULATING_TESTS or not is_certain_word(word[:1]):
                self.found.has_arithmetic = True

    def _parse_simple_command(self) -> bool:
        """Parse a simple command or a function's head. Return whether a command may follow."""
        command = SimpleCommand()
        while True:
            self.skip_blanks()
            begin = self.at
            redirection = _REDIRECT.match(self.text, begin)
            if redirection:
                self._parse_redirection(redirection, command)
                continue
            word = self.parse_word()
            if word is None:
                break
            assigned = _ASSIGNS.match(self.text, begin)
            # Behind the program's name, `A=b` is an argument like any other.
            if assigned and not command.words:
                value = self._parse_assigned_value(assigned, word)
                command.assignments.append((assigned[1], value))
                continue
            command.words.append(word.text)
            self._doubt_word(word, is_first=len(command.words) == 1)
            if self.peek_after_blanks() == "(":
                return self._parse_function_head(command.words)
        if command.assignments:
            self.found.add_doubt("it sets a variable")
        self.found.commands.append(command)
        return False

    def _doubt_word(self, word: ShellWord, *, is_first: bool) -> None:
        if word.is_literal or (word.is_known_path and not is_first):
            return
        if word.text == ANY and self.found.used_loop_variables:
            return  # Any other expansion has its own doubt.
        if word.text.startswith(MANY):
            self.found.add_doubt("a file whose name begins with - would be an option for it")
        else:
            self.found.add_doubt("a word of it is not written out plainly")

    def _parse_assigned_value(self, assigns: re.Match[str], word: ShellWord) -> str:
        """Return a variable's value. A list of values is read word by word."""
        if self.at > assigns.end() or not self.text.startswith("(", self.at):
            return word.text[len(assigns[0]) :]
        self.at += 1
        self._skip_space_and_comments()
        while not self._skip_if_matching(re.compile(r"\)")):
            self._parse_required_word()
            self._skip_space_and_comments()
        return MANY

    def _parse_function_head(self, words: list[str]) -> bool:
        if len(words) != 1 or not is_certain_word(words[0]):
            raise UnreadableCommand("the brackets could not be parsed")
        self.found.add_doubt("it defines a function")
        self._skip_required_match(_BRACKETS)
        self._skip_space_and_comments()
        return True

    def _skip_space_and_comments(self) -> None:
        while self.peek_after_blanks() in ("\n", "#"):
            if self.text[self.at] == "#":
                self._skip_comment()
            else:
                self._parse_line_end()

    def _skip_comment(self) -> None:
        self.at = self._find_end_of_line()

    def _find_end_of_line(self) -> int:
        end = self.text.find("\n", self.at)
        if end < 0:
            return len(self.text)
        return end

    def _skip_if_matching(self, pattern: re.Pattern[str]) -> bool:
        self.skip_blanks()
        match = pattern.match(self.text, self.at)
        if match is None:
            return False
        self.at = match.end()
        return True

    def _skip_required_match(self, pattern: re.Pattern[str]) -> str:
        self.skip_blanks()
        begin = self.at
        if not self._skip_if_matching(pattern):
            raise UnreadableCommand("it is not valid shell syntax")
        return self.text[begin : self.at]

    def _parse_required_word(self) -> ShellWord:
        word = self.parse_word()
        if word is None:
            raise UnreadableCommand("it is not valid shell syntax")
        return word

    # --- Redirections and here documents

    def _parse_redirection(self, match: re.Match[str], command: SimpleCommand) -> None:
        """Skip `> file` and the like, and note what it writes or gives to the command."""
        self.at = match.end()
        operator = match[2]
        writes = ">" in operator
        self.skip_blanks()
        begin = self.at
        word = self._parse_required_word()
        is_harmless = _HARMLESS.fullmatch(self.text[match.start() : self.at])
        if writes and not is_harmless:
            self.found.add_doubt("it writes a file")
        elif not is_harmless:
            self.found.add_doubt("it is given an input")
        if operator.startswith("&"):
            self.found.only_bash = True
        if operator in ("<<", "<<-"):
            raw = self.text[begin : self.at]
            texts = command.here_documents
            document = _parse_here_document_start(raw, texts, tabs=operator == "<<-")
            self.documents.append(document)
        elif operator == "<<<":
            command.here_documents.append(word.text)
        elif writes and word.text != "/dev/null":
            # `>&2` names an open file, but `>& name` writes one.
            is_open_file = operator == ">&" and _HANDLE.fullmatch(word.text)
            if not is_open_file:
                self.found.written_files.append(word.text)
                command.written_files.append(word.text)

    def _parse_line_end(self) -> None:
        self.at += 1
        # The texts of here documents begin on the next line, in the order of their operators.
        documents = self.documents
        self.documents = []
        for document in documents:
            text = self._read_here_document(document)
            if not document.quoted:
                text = self._parse_expanded_document(text)
            if _SUBSTITUTION.search(text):
                self.found.has_quoted_substitution = True
            document.texts_of_command.append(text)

    def _read_here_document(self, document: HereDocument) -> str:
        """Return the text up to its delimiter. Refuses joined lines that make the
        delimiter ambiguous.
        """
        lines: list[str] = []
        is_continued = False
        while self.at < len(self.text):
            end = self._find_end_of_line()
            line = self.text[self.at : end]
            self.at = min(end + 1, len(self.text))
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
        reader = _CommandParser(text, self.found, self.depth)
        return reader.parse_expanded_text("", lines=True)


def _parse_here_document_start(raw: str, texts: list[str], *, tabs: bool) -> HereDocument:
    match = _DELIMITER.fullmatch(raw)
    if not match:
        raise UnreadableCommand("it has a here-document that could not be parsed")
    return HereDocument(
        delimiter=match[2] or match[3],
        quoted=bool(match[1] or match[3]),
        tabs=tabs,
        texts_of_command=texts,
    )
