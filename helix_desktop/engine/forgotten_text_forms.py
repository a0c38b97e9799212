"""Finds a text in every form in which it may be stored, so that forgetting leaves none.

Tools write JSON whose strings hold JSON whose strings hold URLs. So there is no list of forms: one
pattern reads each character in all the ways it can be escaped, at any depth: by JSON, hexadecimal
codes, percent signs, entities or the quotes of a shell. The same is done for UTF-16 and UTF-32.
Base64 and hexadecimal digits are found if they are on one line.
"""

import base64
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cached_property
from html.entities import codepoint2name
from itertools import groupby
from typing import AnyStr, Generic, cast

BACKSLASHES = (
    64  # The most backslashes in a row that are recognised, as in JSON nested six levels deep.
)
_LONGEST_ESCAPE = 48  # The most characters that escaping may turn a single character into.
_CODECS = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_LEGACY_ENCODINGS = (
    "latin-1",
    "cp1252",
    "gb18030",
    "shift_jis",
)  # Encodings tried only if the text is not ASCII.
_ENTITIES = {'"': ("quot",), "&": ("amp",), "<": ("lt",), ">": ("gt",), "'": ("apos",)}
_NAMED = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_ESCAPE_SIGNS = ("\\u", "\\U", "\\x", "%", "&", "\0")  # Letters are escaped only with one of these.
_SHORTEST_CORE = 5
Escape = Callable[[str], str]


class TextForms:
    """The forms of a text. `overlap`: bytes of a piece to search again with the next one."""

    def __init__(self, text: str) -> None:
        self._spelled = [
            *dict.fromkeys([text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD"))])
        ]
        self._text = [
            _FormPattern(
                re.compile(_pattern_of_text(each, re.escape)), _SearchHint(each, re.escape), each
            )
            for each in self._spelled
        ]
        self._codecs = _CODECS if text.isascii() else _CODECS + _LEGACY_ENCODINGS
        self._cores = tuple(
            dict.fromkeys(
                core for each in self._spelled for core in _encode_in_base64_and_hex(each)
            )
        )
        self._cores_bytes = tuple(core.encode() for core in self._cores)
        self._core = re.compile(
            "|".join(f"[\\w+/-]?{re.escape(core)}[\\w+/-]?=*" for core in self._cores)
        )
        self.overlap = max(map(len, self._spelled)) * _LONGEST_ESCAPE * 4

    @cached_property
    def _byte_patterns(self) -> "list[_FormPattern[bytes]]":
        return [
            form
            for each in self._spelled
            for codec in self._codecs
            if (form := _pattern_in_encoding(each, codec))
        ]

    def occurs_in_text(self, text: str) -> bool:
        return any(core in text for core in self._cores) or any(
            form.occurs_within(text) for form in self._text
        )

    def occurs_in_bytes(self, content: bytes) -> bool:
        return any(core in content for core in self._cores_bytes) or any(
            form.occurs_within(content) for form in self._byte_patterns
        )

    def blank_out(self, text: str, blank: str) -> str:
        """Blank out every form of the text. What is around it stays readable."""
        for form in self._text:
            if form.occurs_within(text):
                text = form.pattern.sub(blank, text)
        return self._core.sub(blank, text) if any(core in text for core in self._cores) else text


class _SearchHint(Generic[AnyStr]):
    """Finds quickly where the slow pattern may match: by the longest word or an escape."""

    def __init__(self, text: str, escape: Escape, codec: str = "") -> None:
        run = max(re.findall(r"\w+", text), key=len, default="")
        codes: list[str] = [
            code for sign in dict.fromkeys(run) for code in _escape_beginnings(sign, escape)
        ]
        spread = _nul_padding_pattern(escape, least=1).join(map(escape, run[:3]))
        pattern = f"(?:{'|'.join([escape(run), spread, *codes])})" if run else ""
        self.found: re.Pattern[AnyStr] = re.compile(
            cast("AnyStr", pattern.encode("latin-1") if codec else pattern)
        )
        self.always = not run
        signs = [run, *_ESCAPE_SIGNS] if codec in {"", "utf-8"} else [run, "\\", "%", "&"]
        self.signs: list[AnyStr] = [
            cast("AnyStr", sign.encode(codec) if codec else sign) for sign in signs
        ]


class _FormPattern(Generic[AnyStr]):
    """The pattern for text, or for the bytes of one encoding."""

    def __init__(
        self, pattern: re.Pattern[AnyStr], hint: _SearchHint[AnyStr], text: str, width: int = 1
    ) -> None:
        self.pattern: re.Pattern[AnyStr] = pattern
        self._hint: _SearchHint[AnyStr] = hint
        self._around = len(text) * _LONGEST_ESCAPE * width

    def occurs_within(self, content: AnyStr) -> bool:
        if self._hint.always:
            return self.pattern.search(content) is not None
        if not any(sign in content for sign in self._hint.signs):
            return False
        covered = 0
        for hit in self._hint.found.finditer(content):
            if hit.end() > covered:
                start = max(0, hit.start() - self._around)
                if self.pattern.search(content, start, start + 8 * self._around):
                    return True
                covered = start + 7 * self._around
        return False


def _pattern_in_encoding(text: str, codec: str) -> _FormPattern[bytes] | None:
    """Return the pattern, or None if the encoding lacks such characters."""

    def escape(part: str) -> str:
        return re.escape(part.encode(codec).decode("latin-1"))

    try:
        pattern = re.compile(_pattern_of_text(text, escape).encode("latin-1"))
    except UnicodeEncodeError:
        return None
    return _FormPattern(pattern, _SearchHint(text, escape, codec), text, len("a".encode(codec)))


def _pattern_of_text(text: str, escape: Escape) -> str:
    """Match each character in all its forms, and all escapes before the text."""
    runs = [(sign, len(list(same))) for sign, same in groupby(text)]
    signs = [each for sign, times in runs for each in _patterns_of_character(sign, times, escape)]
    before = (
        f"{_single_backslash_pattern(escape)}{{0,{BACKSLASHES}}}"
        if text[:1] in 'bfnrtuxU"/'
        else ""
    )
    return before + _nul_padding_pattern(escape).join(signs)


def _nul_padding_pattern(escape: Escape, least: int = 0) -> str:
    """Match what is between the characters of wide text read as UTF-8."""
    return f"(?:{escape(chr(0))}|{_backslashes_pattern(escape)}{escape('u0000')}){{{least},3}}"


def _patterns_of_character(sign: str, times: int, escape: Escape) -> list[str]:
    """Match a character repeated `times` times. Each nesting doubles a run of backslashes."""
    if sign == "\\":
        run = f"{_single_backslash_pattern(escape)}{{{times},{times * BACKSLASHES}}}"
        return [f"(?:{run}|(?:{'|'.join(_escapes_of_character(sign, escape))}){{{times}}})"]
    plain = (
        [escape(sign)]
        if sign.isalnum()
        else [f"{_single_backslash_pattern(escape)}{{0,{BACKSLASHES}}}{escape(sign)}"]
    )
    return [
        f"(?:{'|'.join([*_quote_escapes(sign, escape), *plain, *_escapes_of_character(sign, escape)])})"
    ] * times


def _backslashes_pattern(escape: Escape) -> str:
    return f"{_single_backslash_pattern(escape)}{{1,{BACKSLASHES}}}"


def _single_backslash_pattern(escape: Escape) -> str:
    """Match a backslash with the zeros between characters of wide text read as UTF-8."""
    return f"(?:{escape(chr(92))}(?:{escape(chr(0))}){{0,3}})"


def _quote_escapes(sign: str, escape: Escape) -> Iterator[str]:
    """Yield the forms that shells, CSV and SQL use within quotes of the same kind."""
    if sign == "'":
        yield from (escape(form) for form in ("'\"'\"'", "'\\''", "''"))
    if sign == '"':
        yield escape('""')


def _escapes_of_character(sign: str, escape: Escape) -> Iterator[str]:
    slashes = _backslashes_pattern(escape)
    units, byte_codes = _utf16_escapes(sign, escape), _percent_escapes(sign, escape)
    yield "".join(f"{slashes}{unit}" for unit in units)
    yield from (f"{slashes}{code}" for code in _numeric_escapes(sign, escape))
    if sign in _NAMED:
        yield f"{slashes}{escape(_NAMED[sign])}"
    if sign == " ":
        yield escape("+")
    yield "".join(byte_codes)
    yield from _html_entities(sign, escape)


def _escape_beginnings(sign: str, escape: Escape) -> Iterator[str]:
    """Yield the beginnings of a character's escaped forms, without the backslashes before them."""
    yield _utf16_escapes(sign, escape)[0]
    yield from _numeric_escapes(sign, escape)
    yield _percent_escapes(sign, escape)[0]
    yield from _html_entities(sign, escape)


def _utf16_escapes(sign: str, escape: Escape) -> list[str]:
    raw = sign.encode("utf-16-be", "surrogatepass").hex()
    return [
        f"{escape('u')}{_hex_pattern(raw[at : at + 4], escape)}" for at in range(0, len(raw), 4)
    ]


def _numeric_escapes(sign: str, escape: Escape) -> Iterator[str]:
    code = ord(sign)
    yield f"{escape('U')}{_hex_pattern(f'{code:08x}', escape)}"
    yield f"{escape('u{')}{_hex_pattern(f'{code:x}', escape)}{escape('}')}"
    if code < 0x100:
        yield f"{escape('x')}{_hex_pattern(f'{code:02x}', escape)}"


def _percent_escapes(sign: str, escape: Escape) -> list[str]:
    raw = sign.encode("utf-8", "replace")
    return [
        f"{escape('%')}(?:{escape('25')}){{0,4}}{_hex_pattern(f'{byte:02x}', escape)}"
        for byte in raw
    ]


def _html_entities(sign: str, escape: Escape) -> Iterator[str]:
    code, again = ord(sign), f"{escape('&')}(?:{escape('amp;')}){{0,4}}"
    yield f"{again}{escape(f'#{code};')}"
    yield f"{again}{escape('#')}(?:{escape('x')}|{escape('X')}){_hex_pattern(f'{code:x}', escape)}{escape(';')}"
    names = [*_ENTITIES.get(sign, ()), *([codepoint2name[code]] if code in codepoint2name else [])]
    yield from (f"{again}{escape(f'{name};')}" for name in dict.fromkeys(names))


def _hex_pattern(digits: str, escape: Escape) -> str:
    """Match hexadecimal digits in either case."""
    return "".join(
        f"(?:{escape(digit)}|{escape(digit.upper())})" if digit.isalpha() else escape(digit)
        for digit in digits
    )


def _encode_in_base64_and_hex(text: str) -> Iterator[str]:
    """Yield the text in hexadecimal digits, and in base64 for each offset of three."""
    for codec in ("utf-8", "utf-16-le"):
        raw = text.encode(codec, "surrogatepass")
        yield from (raw.hex(), raw.hex().upper())
        for offset in range(3):
            whole = base64.b64encode(b"\0" * offset + raw).decode().rstrip("=")
            core = whole[(offset * 8 + 5) // 6 : (offset + len(raw)) * 8 // 6]
            if len(core) >= _SHORTEST_CORE:
                yield from (
                    core,
                    core.replace("+", "-").replace("/", "_"),
                    core.replace("/", "\\/"),
                )
