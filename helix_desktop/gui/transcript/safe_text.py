"""Makes text from models, tools and files safe to look at.

Characters that could hide something from the reader, change the direction of other text, or control
a terminal are removed (escape sequences) or made visible (`⟨202E⟩`). What languages need stays:
joiners between letters, direction marks. This is for reading outputs. For text that needs consent,
`engine/hidden_characters.py` removes nothing.
"""

import re
import textwrap
import unicodedata

WIDEST_TOOLTIP = 90  # Longer lines of a tooltip are wrapped after this many characters.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI sequences, which set colours and move the cursor.
    # OSC, DCS and similar sequences, which set titles, links and the clipboard.
    r"|\x1b[\]P^_X][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)"
    r"|\x1b[@-Z\\-_a-z0-9=>()#%]"
)
_SUSPECT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u115f\u1160\u180e\u200b-\u200d\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffc"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
_JOINERS = "\u200c\u200d"
_LINE_ENDS = {"\x0b": "\n", "\x0c": "\n", "\x85": "\n", "\u2028": "\n", "\u2029": "\n", "\r": "\n"}


def make_safe_text(text: str) -> str:
    """Returns the text with nothing hidden in it. Fast for ordinary text."""
    if _SUSPECT.search(text) is None:
        return text
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _SUSPECT.sub(_visible_replacement, text.replace("\r\n", "\n"))


def terminal_output_text(text: str) -> str:
    """Returns an output as a terminal would show it: what a carriage return overwrote
    is removed.
    """
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return make_safe_text(text)


def safe_tooltip(text: str) -> str:
    """Returns a safe tooltip: Qt would interpret markup in it, and does not wrap it."""
    lines: list[str] = []
    for line in make_safe_text(text).split("\n"):
        if len(line) > WIDEST_TOOLTIP:
            lines.append(textwrap.fill(line, WIDEST_TOOLTIP))
        else:
            lines.append(line)
    words = "\n".join(lines)
    if "<" not in words and "&lt;" not in words:
        return words
    from html import escape  # Its 2,000 entities would delay the start.

    markup = escape(words, quote=False).replace("\n", "<br>")
    return f"<qt>{markup}</qt>"


def _visible_replacement(match: re.Match[str]) -> str:
    sign = match.group()
    if sign in _LINE_ENDS:
        return _LINE_ENDS[sign]
    code = ord(sign)
    if code < 0x20:
        return chr(0x2400 + code)
    if 0xD800 <= code <= 0xDFFF:
        return "\N{REPLACEMENT CHARACTER}"
    if sign in _JOINERS and _is_needed_joiner(match):
        return sign
    return f"⟨{code:04X}⟩"


def _is_needed_joiner(match: re.Match[str]) -> bool:
    """Whether a joiner is between characters of scripts or emoji that need it.
    Elsewhere, it only hides text.
    """
    text = match.string
    index = match.start()
    if index == 0 or index + 1 >= len(text):
        return False
    for neighbour in (text[index - 1], text[index + 1]):
        code = ord(neighbour)
        is_latin = code <= 0x2FF
        is_general_punctuation = 0x2000 <= code <= 0x206F
        if is_latin or is_general_punctuation:
            return False
    return True


def without_backticks(text: str) -> str:
    return re.sub(r"`([^`\n]+)`", r"\1", text)


def is_right_to_left(text: str) -> bool:
    if text.isascii():
        return False
    for sign in text[:500]:
        direction = unicodedata.bidirectional(sign)
        if direction in {"R", "AL"}:
            return True
        if direction == "L":
            return False
    return False
