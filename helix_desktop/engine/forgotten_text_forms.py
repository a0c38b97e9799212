"""Finds a text in every form in which it may be stored, so that forgetting leaves none.

Tools write JSON whose strings hold JSON whose strings hold URLs. So there is no list of forms: one
pattern reads each character in all the ways it can be escaped, at any depth: by JSON, hexadecimal
codes, percent signs, entities or the quotes of a shell. The same is done for UTF-16 and UTF-32.
Base64 and hexadecimal digits are found if they are on one line.
"""

import base64
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from html.entities import codepoint2name
from itertools import groupby
from typing import AnyStr, Generic, cast

# The most backslashes in a row that are recognised, as in JSON nested six levels deep.
BACKSLASHES = 64
_LONGEST_ESCAPE = 48  # The most characters that escaping may turn a single character into.
_CODECS = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
# Encodings tried only if the text is not ASCII.
_LEGACY_ENCODINGS = ("latin-1", "cp1252", "gb18030", "shift_jis")
_ENTITIES = {'"': ("quot",), "&": ("amp",), "<": ("lt",), ">": ("gt",), "'": ("apos",)}
_NAMED = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_ESCAPE_SIGNS = ("\\u", "\\U", "\\x", "%", "&", "\0")  # Letters are escaped only with one of these.
_ESCAPABLE = 'bfnrtuxU"/'
# A core has the digits of a text in base64 that are the same whatever stands around it.
_SHORTEST_CORE = 5  # Fewer digits would be found in other words.
Escape = Callable[[str], str]


class TextForms:
    """All forms of a text that is to be forgotten, to search contents for.

    `overlap`: so many bytes of a piece of a long content are searched again with the next piece,
    because the text may lie across both.
    """

    def __init__(self, text: str) -> None:
        self._spellings = _unicode_spellings_of(text)
        self._codecs: tuple[str, ...] = _CODECS
        if not text.isascii():
            self._codecs = _CODECS + _LEGACY_ENCODINGS
        self._text_patterns: list[_FormPattern[str]] = []
        cores: list[str] = []
        for spelling in self._spellings:
            pattern = re.compile(_pattern_of_text(spelling, re.escape))
            hint = _SearchHint[str](spelling, re.escape)
            self._text_patterns.append(_FormPattern(pattern, hint, spelling))
            cores += _encode_in_base64_and_hex(spelling)
        self._cores = tuple(dict.fromkeys(cores))
        self._cores_bytes = tuple(core.encode() for core in self._cores)
        # The digits beside a core belong to the text, too, in part.
        core_patterns = [f"[\\w+/-]?{re.escape(core)}[\\w+/-]?=*" for core in self._cores]
        self._core_pattern = re.compile("|".join(core_patterns))
        self.overlap = max(map(len, self._spellings)) * _LONGEST_ESCAPE * 4

    @cached_property
    def _byte_patterns(self) -> "list[_FormPattern[bytes]]":
        patterns: list[_FormPattern[bytes]] = []
        for spelling in self._spellings:
            for codec in self._codecs:
                pattern = _pattern_in_encoding(spelling, codec)
                if pattern is not None:
                    patterns.append(pattern)
        return patterns

    def occurs_in_text(self, text: str) -> bool:
        if any(core in text for core in self._cores):
            return True
        return any(form.occurs_within(text) for form in self._text_patterns)

    def occurs_in_bytes(self, content: bytes) -> bool:
        if any(core in content for core in self._cores_bytes):
            return True
        return any(form.occurs_within(content) for form in self._byte_patterns)

    def blank_out(self, text: str, blank: str) -> str:
        """Blank out every form of the text. What is around it stays readable."""
        blanked_text = text
        for form in self._text_patterns:
            if form.occurs_within(blanked_text):
                blanked_text = form.pattern.sub(blank, blanked_text)
        if any(core in blanked_text for core in self._cores):
            blanked_text = self._core_pattern.sub(blank, blanked_text)
        return blanked_text


def _unicode_spellings_of(text: str) -> list[str]:
    """Return the text and, where they differ, its letters with and without separate accents."""
    composed = unicodedata.normalize("NFC", text)
    decomposed = unicodedata.normalize("NFD", text)
    return list(dict.fromkeys((text, composed, decomposed)))


class _SearchHint(Generic[AnyStr]):
    """Finds quickly where the slow pattern may match: by the longest word or an escape.

    Without a codec it is for text, with one for bytes. `signs`: content without any of these
    cannot have the text in any form.
    """

    def __init__(self, text: str, escape: Escape, codec: str = "") -> None:
        word = max(re.findall(r"\w+", text), key=len, default="")
        # Without a word, the slow pattern is tried everywhere.
        self.always = not word
        hints = ""
        if word:
            hints = _pattern_of_hints(word, escape)
        if codec in {"", "utf-8"}:
            signs = [word, *_ESCAPE_SIGNS]
        else:
            signs = [word, "\\", "%", "&"]

        encoded_hints: str | bytes = hints
        encoded_signs: Sequence[str | bytes] = signs
        if codec:
            encoded_hints = hints.encode("latin-1")
            encoded_signs = [sign.encode(codec) for sign in signs]
        self.pattern: re.Pattern[AnyStr] = re.compile(cast("AnyStr", encoded_hints))
        self.signs: list[AnyStr] = [cast("AnyStr", sign) for sign in encoded_signs]


class _FormPattern(Generic[AnyStr]):
    """The pattern for text, or for the bytes of one encoding."""

    def __init__(
        self, pattern: re.Pattern[AnyStr], hint: _SearchHint[AnyStr], text: str, width: int = 1
    ) -> None:
        self.pattern: re.Pattern[AnyStr] = pattern
        self._hint: _SearchHint[AnyStr] = hint
        self._around = len(text) * _LONGEST_ESCAPE * width

    def occurs_within(self, content: AnyStr) -> bool:
        """Whether the text is there in any form.

        The slow pattern is tried only around hints, each time on a stretch that is long enough
        for the longest form, so that what one stretch has covered need not be searched again.
        """
        if self._hint.always:
            return self.pattern.search(content) is not None
        if not any(sign in content for sign in self._hint.signs):
            return False
        # Up to here, every place where the text could begin has been searched.
        searched_until = 0
        for hit in self._hint.pattern.finditer(content):
            if hit.end() <= searched_until:
                continue
            start = max(0, hit.start() - self._around)
            if self.pattern.search(content, start, start + 8 * self._around):
                return True
            searched_until = start + 7 * self._around
        return False


def _pattern_of_hints(word: str, escape: Escape) -> str:
    """Match a word, its first letters in wide text, or any of its letters escaped."""
    hints = [escape(word)]
    nul_padding = _nul_padding_pattern(escape, least=1)
    first_letters = [escape(letter) for letter in word[:3]]
    hints.append(nul_padding.join(first_letters))
    for sign in dict.fromkeys(word):
        hints += _escape_beginnings(sign, escape)
    return f"(?:{'|'.join(hints)})"


def _pattern_in_encoding(text: str, codec: str) -> _FormPattern[bytes] | None:
    """Return the pattern, or None if the encoding lacks such characters."""

    # Bytes are read as Latin-1, which has a character for each of them.
    def escape(part: str) -> str:
        return re.escape(part.encode(codec).decode("latin-1"))

    try:
        pattern_text = _pattern_of_text(text, escape)
        pattern = re.compile(pattern_text.encode("latin-1"))
    except UnicodeEncodeError:
        return None
    hint = _SearchHint[bytes](text, escape, codec)
    bytes_of_a_letter = len("a".encode(codec))
    return _FormPattern(pattern, hint, text, bytes_of_a_letter)


def _pattern_of_text(text: str, escape: Escape) -> str:
    """Match each character in all its forms, and all escapes before the text."""
    character_patterns: list[str] = []
    for sign, equal_signs in groupby(text):
        times = len(list(equal_signs))
        character_patterns += _patterns_of_character(sign, times, escape)
    pattern = _nul_padding_pattern(escape).join(character_patterns)
    # A first letter that a backslash makes another character of would leave the backslash.
    if text[:1] in _ESCAPABLE:
        pattern = _any_backslashes_pattern(escape) + pattern
    return pattern


def _nul_padding_pattern(escape: Escape, least: int = 0) -> str:
    """Match what is between the characters of wide text read as UTF-8."""
    nul = escape("\0")
    nul_as_escape = _backslashes_pattern(escape) + escape("u0000")
    return f"(?:{nul}|{nul_as_escape}){{{least},3}}"


def _patterns_of_character(sign: str, times: int, escape: Escape) -> list[str]:
    """Match a character repeated `times` times. Each nesting doubles a run of backslashes."""
    escaped_forms = list(_escapes_of_character(sign, escape))
    if sign == "\\":
        backslash = _single_backslash_pattern(escape)
        run = f"{backslash}{{{times},{times * BACKSLASHES}}}"
        any_escaped_form = "|".join(escaped_forms)
        return [f"(?:{run}|(?:{any_escaped_form}){{{times}}})"]
    plain = escape(sign)
    if not sign.isalnum():
        plain = _any_backslashes_pattern(escape) + plain
    forms = list(_quote_escapes(sign, escape))
    forms.append(plain)
    forms += escaped_forms
    any_form = "|".join(forms)
    return [f"(?:{any_form})"] * times


def _any_backslashes_pattern(escape: Escape) -> str:
    return f"{_single_backslash_pattern(escape)}{{0,{BACKSLASHES}}}"


def _backslashes_pattern(escape: Escape) -> str:
    return f"{_single_backslash_pattern(escape)}{{1,{BACKSLASHES}}}"


def _single_backslash_pattern(escape: Escape) -> str:
    """Match a backslash with the zeros between characters of wide text read as UTF-8."""
    backslash = escape("\\")
    nul = escape("\0")
    return f"(?:{backslash}(?:{nul}){{0,3}})"


def _quote_escapes(sign: str, escape: Escape) -> Iterator[str]:
    """Yield the forms that shells, CSV and SQL use within quotes of the same kind."""
    if sign == "'":
        yield escape("'\"'\"'")
        yield escape("'\\''")
        yield escape("''")
    if sign == '"':
        yield escape('""')


def _escapes_of_character(sign: str, escape: Escape) -> Iterator[str]:
    """Yield a pattern for each way in which JSON, a URL or HTML may escape a character."""
    slashes = _backslashes_pattern(escape)
    yield "".join(f"{slashes}{unit}" for unit in _utf16_escapes(sign, escape))
    for code in _numeric_escapes(sign, escape):
        yield f"{slashes}{code}"
    if sign in _NAMED:
        yield f"{slashes}{escape(_NAMED[sign])}"
    if sign == " ":  # In the query of a URL.
        yield escape("+")
    yield "".join(_percent_escapes(sign, escape))
    yield from _html_entities(sign, escape)


def _escape_beginnings(sign: str, escape: Escape) -> Iterator[str]:
    """Yield the beginnings of a character's escaped forms, without the backslashes before them."""
    yield _utf16_escapes(sign, escape)[0]
    yield from _numeric_escapes(sign, escape)
    yield _percent_escapes(sign, escape)[0]
    yield from _html_entities(sign, escape)


def _utf16_escapes(sign: str, escape: Escape) -> list[str]:
    """Return JSON's escapes: two, a surrogate pair, for a character beyond 16 bits."""
    digits = sign.encode("utf-16-be", "surrogatepass").hex()
    units: list[str] = []
    for start in range(0, len(digits), 4):
        units.append(escape("u") + _hex_pattern(digits[start : start + 4], escape))
    return units


def _numeric_escapes(sign: str, escape: Escape) -> Iterator[str]:
    code = ord(sign)
    yield f"{escape('U')}{_hex_pattern(f'{code:08x}', escape)}"
    yield f"{escape('u{')}{_hex_pattern(f'{code:x}', escape)}{escape('}')}"
    if code < 0x100:
        yield f"{escape('x')}{_hex_pattern(f'{code:02x}', escape)}"


def _percent_escapes(sign: str, escape: Escape) -> list[str]:
    """Return an escape for each byte. `%25` is an escaped percent sign, in a URL within a URL."""
    percent = f"{escape('%')}(?:{escape('25')}){{0,4}}"
    escapes: list[str] = []
    for byte in sign.encode("utf-8", "replace"):
        escapes.append(percent + _hex_pattern(f"{byte:02x}", escape))
    return escapes


def _html_entities(sign: str, escape: Escape) -> Iterator[str]:
    """Yield patterns of a character's entities: by decimal number, hexadecimal number and name.

    The ampersand of an entity within an entity is escaped itself: `&amp;amp;`.
    """
    code = ord(sign)
    ampersand = f"{escape('&')}(?:{escape('amp;')}){{0,4}}"
    yield f"{ampersand}{escape(f'#{code};')}"
    either_x = f"(?:{escape('x')}|{escape('X')})"
    digits = _hex_pattern(f"{code:x}", escape)
    yield f"{ampersand}{escape('#')}{either_x}{digits}{escape(';')}"
    names = list(_ENTITIES.get(sign, ()))
    if code in codepoint2name:
        names.append(codepoint2name[code])
    for name in dict.fromkeys(names):
        yield f"{ampersand}{escape(f'{name};')}"


def _hex_pattern(digits: str, escape: Escape) -> str:
    """Match hexadecimal digits in either case."""
    patterns: list[str] = []
    for digit in digits:
        pattern = escape(digit)
        if digit.isalpha():
            capital = escape(digit.upper())
            pattern = f"(?:{pattern}|{capital})"
        patterns.append(pattern)
    return "".join(patterns)


def _encode_in_base64_and_hex(text: str) -> Iterator[str]:
    """Yield the text in hexadecimal digits, and in base64 for each offset of three."""
    for codec in ("utf-8", "utf-16-le"):
        raw = text.encode(codec, "surrogatepass")
        yield raw.hex()
        yield raw.hex().upper()
        for offset in range(3):
            padded_raw = b"\0" * offset + raw
            digits = base64.b64encode(padded_raw).decode().rstrip("=")
            # Only digits all of whose six bits are the text's, and not of its neighbours.
            first_digit = (offset * 8 + 5) // 6
            end_digit = len(padded_raw) * 8 // 6
            core = digits[first_digit:end_digit]
            if len(core) >= _SHORTEST_CORE:
                yield core
                yield core.replace("+", "-").replace("/", "_")  # As in URLs.
                yield core.replace("/", "\\/")  # As some programs write JSON.
