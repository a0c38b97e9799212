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
    lines = make_safe_text(text).split("\n")
    text = "\n".join(
        textwrap.fill(line, WIDEST_TOOLTIP) if len(line) > WIDEST_TOOLTIP else line
        for line in lines
    )
    if "<" not in text and "&lt;" not in text:
        return text
    from html import escape  # Its 2,000 entities would delay the start.

    return f"<qt>{escape(text, quote=False).replace(chr(10), '<br>')}</qt>"


def _visible_replacement(match: re.Match[str]) -> str:
    sign = match.group()
    if sign in _LINE_ENDS:
        return _LINE_ENDS[sign]
    code = ord(sign)
    if code < 0x20:
        return chr(0x2400 + code)
    if 0xD800 <= code <= 0xDFFF:
        return "\N{REPLACEMENT CHARACTER}"
    return sign if sign in _JOINERS and _is_needed_joiner(match) else f"⟨{code:04X}⟩"


def _is_needed_joiner(match: re.Match[str]) -> bool:
    """Whether a joiner is between characters of scripts or emoji that need it.
    Elsewhere, it only hides text.
    """
    text, at = match.string, match.start()
    around = text[max(0, at - 1) : at] + text[at + 1 : at + 2]
    return len(around) == 2 and all(
        ord(each) > 0x2FF and not 0x2000 <= ord(each) <= 0x206F for each in around
    )


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
