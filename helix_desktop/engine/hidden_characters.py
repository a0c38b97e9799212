"""Shows text exactly, so that a reader can tell from what is displayed which value will run.

Nothing is removed. Characters that are invisible, change the text direction or look like others
appear as a mark: `⟨001B⟩` is an escape character, `⟨а 0430⟩` a Cyrillic letter that looks like
a Latin one. The sign `⟨` itself is always marked, so no text can imitate a mark. A tab is
preceded by an arrow, trailing spaces end in a mark, and a line too long to lay out continues
after `⟨…⟩`. The value can be restored from what is shown; tests check this for 100,000 values.

Two kinds of names are marked more strictly, since no reading of the whole word helps there. In the
host of an address every letter that is not ASCII is marked, and behind the host stands what a
computer would look up: `https://b⟨ü 00FC⟩cher.de⟨= xn--bcher-kva.de⟩/`. A host without a scheme, as
in `curl bücher.de` or `scp a bücher.de:`, is known by the programs that take one. In the name of a program
that is started every Latin letter with a dot, a hook or the like is marked: `⟨ġ 0121⟩it`.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

from helix_desktop.fast_dataclass import dataclass

LONGEST_SAMPLE = 8_192  # So many bytes decide whether content is text.
LONGEST_LINE = 1_000  # Lines of more characters than this continue on the next displayed line.
GOES_ON = "⟨…⟩"
# Shown for a space at the very end of a line, where it would go unnoticed.
_MARKED_SPACE = "⟨0020⟩"
# This invisible mark keeps text in order after right-to-left words.
# If a value itself contains this mark, the mark is shown as a code.
_APART = "\u200e"
_SPECIAL = re.compile(r"[^\n\t\x20-\x7e]")
_WORDS = re.compile(r"([^\W_]+)")
# A host's mark may look like that of a character (`⟨= 1234⟩`), so it is looked for first.
_MARK = re.compile(rf"{_APART}|→(?=\t)|⟨= [^⟩]*⟩|⟨(?:. )?([0-9A-F]{{4,6}})⟩")
# What stands before a host, and the host up to the sign that ends it. A browser takes any number
# of slashes, in either direction, behind `https:`. A login before the host counts as a part of it.
_HOST = re.compile(
    r"(?:(?<=\w)://|(?:(?<=http)|(?<=https)):[/\\]+|(?<=[\w.+-])@)"
    r"([^\x00-\x20\x7f/?#\\\"'<>|;&()`${},，、；：！？（）「」『』《》【】]+)",
    re.IGNORECASE,
)
# Programs that take a host without a scheme as an argument or as the value of an option.
_TAKES_HOST = frozenset({
    "aria2c", "curl", "dig", "docker", "elinks", "ftp", "gh", "glab", "go", "helm", "host", "http",
    "httpie", "https", "links", "lynx", "mongosh", "mosh", "mysql", "nc", "ncat", "netcat", "nmap",
    "nslookup", "openssl", "ping", "ping6", "podman", "psql", "redis-cli", "rclone", "rsync", "scp",
    "sftp", "skopeo", "socat", "ssh", "ssh-copy-id", "ssh-keyscan", "sshfs", "telnet", "traceroute",
    "w3m", "wget", "whois", "xh",
})  # fmt: skip
# Those that do so only in front of a path: `git clone bücher.de:a/b`.
_TAKES_HOST_BEFORE_PATH = frozenset({"git", "jj"})
# A word, or the value of an option such as `-h` or `--host=`. A file's name may look the same.
_BARE_HOST = re.compile(
    r"(?:^|(?<=[\s'\"`=(,;|&<>\[{\\]))(?:-[A-Za-z])?"
    r"((?![-./~])[^\x00-\x20\x7f/?#\\\"'<>|;&()`${}=,\[\]，、；！？（）「」『』《》【】]+)",
)
_DOT_OF_HOST = re.compile("[.。．｡]")
_INNER_DOT = re.compile("[.．｡][^.]")
_INNER_DOT_OF_ANY_KIND = re.compile("[.。．｡][^.]")
# Bell, backspace, tab, line ends and escape stand in the output of terminals.
_CONTROLS_OF_NO_TEXT = bytes(set(range(0x20)) - set(b"\a\b\t\n\v\f\r\x1b"))
_LONGEST_HOST = 253  # The domain name system knows no longer ones.
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]+"
)

# Characters that can pass for a sign used in commands, for one another or for one of our own marks.
# Their Unicode decompositions do not show the similarity.
_ALIKE = frozenset(
    "‘’‚‛“”„‟′″‵‶ʹʺʻʼʽˈˊˋ´՚׳״‐‑‒–—―−⁃ˉ˗۔⁄∕╱⟋⧸∖⧵⧹╲⟍․‧∙ː˸։׃܃܄∶꞉⁏؛،؍"
    "٫ǀ∣⎪❘│┃⏐׀‹›❬❭❮❯˂˃≺≻⟨⟩〈〉❨❩❪❫❲❳❴❵∗⁎✱٭∼˜⁓ǃʔ♯٪꞊═⹀᛭➕˄ˆ⌃ˍıȷƨƽⱭ¦‖…‥"
    "¸×ƄƍƖƦƧƷƼǁȜȢȣɁ΄՝᜵᠃᠉᳓ẝỿ᾽᾿῀῾‴‷⁗⁁⁚₶℮∞∥∨∪≪≫⊤⋁⋃⋘⋙⋿⍳⍴⍺⏽⑊╳➖⟙⤫⤬⨠⨯⪥⫻⫽"
    "⸨⸩〃〔〕ꜨꜱꜲꜳꜴꜵꜶꜷꜸꜹꜺꜻꜼꜽꝎꝏꝚꝪꝮꝷꝸꞌꞘꞙꞟꞫꞲꞳꞴꬲꬵꬽꭇꭈꭎꭒꭚꭣ﴾﴿︰﹘﹨￨𝄔𝈆𝈍𝈏𝈒𝈓𝈖𝈪𝈶𝈷𝈺"
    "𝈻🄪🜀🜇🝌🝜🝨🝫🝬"
)
# Characters that are ordinary within Chinese or Japanese text,
# but can pass for a slash, a bar or a dash on their own.
_ALIKE_ALONE = frozenset("ノﾉ一丨丶丿ー口〜～〳〡゠〇⼃⼂㇓㇔")
# Letters of living alphabets that look like Latin letters. A word made only of them is marked.
_LOOKS_LATIN = frozenset(
    "асеорхуіјѕһԁԛԝьѵгкгүӏґАВСЕНІЈКМОРЅТХУҮԌԚԜЗбЬӀΑΒΕΖΗΙΚΜΝΟΡΤΥΧο"
    "νικρυαγτωϳϲϹσօոսհցզգՏԼՕՍյוןסاͺͿϒϜϱϺѡѴҽӠառք۰۱۵۷०ॽ০৪৭੦੧੪૦ଠ୦୨௦౦"
    "೦ഠ൦൭๐໐ဝ၀ყჿሀዐꙄꙇꚙꚘ𑓐𑜀𑜆𑜊𑜎𑜏"
)
# Letters of living alphabets that look like two Latin ones.
_LOOKS_LIKE_TWO = frozenset("ӕӔЫЮы")
# Alphabets rarely used in file names, with many letters that look Latin.
_RARE = frozenset({
    "CHEROKEE", "LISU", "DESERET", "OSAGE", "OLD", "GOTHIC", "COPTIC", "CARIAN", "LYCIAN",
    "LYDIAN", "RUNIC", "OGHAM", "WARANG", "MIAO", "ELBASAN", "CAUCASIAN", "TIFINAGH", "CANADIAN",
    "VAI", "BAMUM", "MEDEFAIDRIN",
})  # fmt: skip
_LONGEST_MARK = 300  # A mark has fewer characters.
_MOST_CARRIED = 8  # With more combining marks on one letter, the text below becomes unreadable.
_BLANK = frozenset(
    "\u2800\u3164\uffa0\u115f\u1160\u17b4\u17b5\U0001d159\u034f\u180b\u180c\u180d\u180f"
)


@dataclass(frozen=True, slots=True)
class _Command:
    """What the programs of a command line say of its words.

    `program_words`: words in which letters are marked that elsewhere belong to a living language.
    """

    program_words: frozenset[str] = frozenset()
    takes_host: bool = False
    takes_host_before_path: bool = False


_NO_COMMAND = _Command()


def is_mostly_text(content: bytes) -> bool:
    """Whether bytes read as text: almost all of it UTF-8, with a stray control character at most
    here and there. A single zero byte in a text hides nothing from people: it is shown as a mark.
    """
    sample = content[:LONGEST_SAMPLE]
    undecodable = sample.decode("utf-8", "replace").count("\N{REPLACEMENT CHARACTER}")
    controls = len(sample) - len(sample.translate(None, _CONTROLS_OF_NO_TEXT))
    has_few_controls = controls * 10 <= len(sample)
    return has_few_controls and undecodable <= max(3, len(sample) // 100)


def mark_text(text: str, programs: Iterable[str] = ()) -> str:
    """Return the text with hidden and look-alike characters marked, and long lines broken.

    `programs`: the names of the programs that the text, a command line, would start.
    """
    return "\n".join(marked_lines(text, programs))


def marked_lines(text: str, programs: Iterable[str] = ()) -> Iterator[str]:
    """Yield the lines of a text as they are shown, long ones in several."""
    command = _read_names_of_programs(programs)
    line_start = 0
    while line_start <= len(text):
        line_end = text.find("\n", line_start)
        if line_end < 0:
            line_end = len(text)
        line = _mark_suspect_characters_of_line(text[line_start:line_end], command)
        line = _mark_trailing_space(line)
        line = line.replace("\t", "→\t")
        yield from map(_keep_left_to_right, _break_long_line(line))
        line_start = line_end + 1


def mark_on_one_line(text: str) -> str:
    """Return the text on one line, with line ends and tabs marked."""
    return _mark_whole_text_on_one_line(text, _NO_COMMAND)


def mark_program(name: str) -> str:
    """Return the name of a program, or a rule for programs, on one line. Every letter that could
    pass for an ASCII one is marked.
    """
    return _mark_whole_text_on_one_line(name, _read_names_of_programs([name]))


def _mark_whole_text_on_one_line(text: str, command: _Command) -> str:
    line = _mark_trailing_space(_mark_suspect_characters_of_line(text, command))
    line = line.replace("\n", _mark_of_char("\n"))
    line = line.replace("\t", _mark_of_char("\t"))
    return _keep_left_to_right(line)


def _read_names_of_programs(names: Iterable[str]) -> _Command:
    words: set[str] = set()
    takes_host = False
    takes_host_before_path = False
    for name in names:
        if not name.isascii():
            words.update(_WORDS.findall(name))
        program_path = name.partition(" ")[0]
        program = program_path.rpartition("/")[2]
        takes_host |= program in _TAKES_HOST
        takes_host_before_path |= program in _TAKES_HOST_BEFORE_PATH
    return _Command(frozenset(words), takes_host, takes_host_before_path)


def count_marked_characters(text: str) -> int:
    return sum(mark[1] is not None for mark in _MARK.finditer(text))


def _mark_trailing_space(line: str) -> str:
    if not line.endswith(" "):
        return line
    return line[:-1] + _MARKED_SPACE


def _break_long_line(line: str) -> Iterator[str]:
    """Break a long line, but never within a mark, nor between a tab and its arrow."""
    start = 0
    while len(line) - start > LONGEST_LINE:
        end = start + LONGEST_LINE - 1  # Leaves room for the left-to-right mark.
        mark_start = line.rfind("⟨", end - _LONGEST_MARK, end)
        if mark_start >= 0 and line.find("⟩", mark_start, end) < 0:
            end = mark_start
        elif line[end - 1 : end + 1] == "→\t":
            end -= 1
        yield line[start:end] + GOES_ON
        start = end
    yield line[start:]


def _mark_suspect_characters_of_line(text: str, command: _Command) -> str:
    """Mark the characters of a line that are hidden or could pass for others."""
    if _SPECIAL.search(text) is None:
        return text
    program_words = command.program_words
    marked_pieces = []
    position = 0
    for start, end in _list_places_of_hosts(text, command):
        marked_pieces.append(_mark_words(text, position, start, program_words))
        marked_pieces.append(_mark_host(text[start:end]))
        position = end
    marked_pieces.append(_mark_words(text, position, len(text), program_words))
    return _RIGHT_TO_LEFT.sub(lambda run: run.group() + _APART, "".join(marked_pieces))


def _list_places_of_hosts(text: str, command: _Command) -> list[tuple[int, int]]:
    """Return where hosts begin and end that are not ASCII, in the order of the text."""
    places: list[tuple[int, int]] = []
    for found in _HOST.finditer(text):
        if not found[1].isascii():
            places.append(found.span(1))
    if not command.takes_host and not command.takes_host_before_path:
        return places

    bare_places: list[tuple[int, int]] = []
    known_places = iter([*places, (len(text), len(text) + 1)])
    known_start, known_end = next(known_places)
    for found in _BARE_HOST.finditer(text):
        start, end = found.span(1)
        while known_end <= start:
            known_start, known_end = next(known_places)
        is_known = known_start < end
        is_quoted = text[start - 1 : start] in ("'", '"')
        if not is_known and _can_be_bare_host(found[1], command, is_quoted=is_quoted):
            bare_places.append((start, end))
    return sorted(places + bare_places)


def _can_be_bare_host(word: str, command: _Command, *, is_quoted: bool) -> bool:
    """Whether a word of a command line is a host, perhaps with a port or a path behind a colon."""
    if word.isascii():
        return False
    name, colon, path = word.rpartition("@")[2].partition(":")
    # A dot that ends a sentence has nothing behind it, except in Chinese.
    inner_dot = _INNER_DOT_OF_ANY_KIND
    if is_quoted:
        inner_dot = _INNER_DOT
    has_dot = inner_dot.search(name) is not None
    if command.takes_host:
        return has_dot or bool(colon)
    return has_dot and bool(path)


def _mark_host(host: str) -> str:
    """Mark everything in a host that is not ASCII, and add the name that would be looked up."""
    login, at_sign, name_and_port = host.rpartition("@")
    name, colon, port = name_and_port.partition(":")  # Or the path, in an address of `scp`.
    name_to_look_up = _name_to_look_up(name)
    if name_to_look_up:
        name_to_look_up = f"⟨= {name_to_look_up}⟩"
    marked = []
    for part in (login, at_sign, name):
        marked.append(_mark_everything_but_ascii(part))
    marked.append(name_to_look_up)
    marked.append(_mark_everything_but_ascii(colon + port))
    return "".join(marked)


def _mark_everything_but_ascii(text: str) -> str:
    marked = []
    for sign in text:
        if sign.isascii():
            marked.append(sign)
        else:
            marked.append(_mark_of_char(sign))
    return "".join(marked)


def _name_to_look_up(name: str) -> str:
    """Return a host as the domain name system has it. Empty if it is ASCII or none at all."""
    is_unknown = any(unicodedata.category(sign) == "Cn" for sign in name)
    if name.isascii() or is_unknown:
        return ""
    labels = []
    for label in _DOT_OF_HOST.split(name):
        plain_label = _plain_label(label)
        if not plain_label.isascii():
            plain_label = f"xn--{plain_label.encode('punycode').decode('ascii')}"
        labels.append(plain_label)
    looked_up = ".".join(labels)
    if len(looked_up) > _LONGEST_HOST or _SPECIAL.search(looked_up) is not None:
        return ""
    return looked_up


def _plain_label(label: str) -> str:
    """Return a part of a host as it is compared: in small letters, without what is ignored."""
    plain_signs = []
    for sign in label:
        if sign in "ßẞς":  # These stay what they are, unlike elsewhere.
            plain_signs.append(sign.lower())
        elif not _is_ignored_in_host(sign):
            plain_signs.append(unicodedata.normalize("NFKC", sign).casefold())
    return unicodedata.normalize("NFKC", "".join(plain_signs))


def _is_ignored_in_host(sign: str) -> bool:
    if sign in "\u200c\u200d":  # Some languages need these joiners, so they count.
        return False
    is_variant = "\ufe00" <= sign <= "\ufe0f"
    return is_variant or sign in _BLANK or unicodedata.category(sign) == "Cf"


def _mark_words(text: str, start: int, end: int, program_words: frozenset[str]) -> str:
    """Mark a part of a line word by word."""
    marked_pieces = []
    position = start
    for number, piece in enumerate(_WORDS.split(text[start:end])):
        is_word = number % 2 == 1  # Words and what is between them take turns.
        if is_word:
            is_program = piece in program_words
            marked_pieces.append(_mark_word(piece, text, position, is_program=is_program))
        else:
            marked_pieces.append(_mark_suspect_characters(piece, text, position))
        position += len(piece)
    return "".join(marked_pieces)


def _keep_left_to_right(line: str) -> str:
    """Keep the words of a line in order even if it begins with a Hebrew or Arabic letter."""
    if not _RIGHT_TO_LEFT.search(line):
        return line
    return _APART + line


def _mark_word(word: str, text: str, position: int, *, is_program: bool) -> str:
    """Mark the letters that could pass for Latin ones: beside these, or if all of them could. In
    the name of a program, also those by which a language is written.
    """
    if word.isascii():
        return word
    is_mixed = any(sign.isascii() for sign in word)
    looks_latin = all(sign in _LOOKS_LATIN for sign in word)
    marked = []
    for number, sign in enumerate(word):
        is_deceptive = looks_latin or (is_mixed and _is_other_alphabet(sign))
        if is_program and _looks_ascii_without_its_marks(sign):
            is_deceptive = True
        if is_deceptive:
            marked.append(_mark_of_char(sign))
        else:
            marked.append(_mark_char_at(text, position + number))
    return "".join(marked)


def _looks_ascii_without_its_marks(sign: str) -> bool:
    """Whether a letter looks like an ASCII one, or two, but for a dot, a hook or an accent."""
    if sign.isascii():
        return False
    letter = unicodedata.normalize("NFD", sign)[0]
    return letter in _LOOKS_LATIN or sign in _LOOKS_LIKE_TWO or _script_of(sign) == "LATIN"


def _mark_suspect_characters(piece: str, text: str, position: int) -> str:
    """Mark a piece of the text that begins at a position."""
    if _SPECIAL.search(piece) is None:
        return piece
    piece_end = position + len(piece)
    return "".join(_mark_char_at(text, number) for number in range(position, piece_end))


def _mark_char_at(text: str, position: int) -> str:
    sign = text[position]
    is_usual_in_cjk = _is_wide(sign) and _is_beside_cjk(text, position)
    if _is_suspect(sign) and not is_usual_in_cjk:
        return _mark_of_char(sign)
    if _is_combining(sign) and not _is_usual_combination(text, position):
        return _mark_of_char(sign)
    return sign


@lru_cache(maxsize=4096)
def _mark_of_char(character: str) -> str:
    code = f"{ord(character):04X}"
    # These would not be seen, or would disturb the mark itself.
    if character in "⟨⟩" or _is_invisible(character):
        return f"⟨{code}⟩"
    if unicodedata.category(character)[0] in "MZ" or _RIGHT_TO_LEFT.match(character):
        return f"⟨{code}⟩"
    return f"⟨{character} {code}⟩"


@lru_cache(maxsize=8192)
def _is_suspect(sign: str) -> bool:
    """Whether a character is hidden or looks like another, wherever it appears."""
    if sign in "\n\t" or " " <= sign <= "~":
        return False
    if _is_invisible(sign) or sign in _ALIKE or sign in _ALIKE_ALONE:
        return True
    if unicodedata.normalize("NFC", sign) != sign:  # It stands for another character.
        return True
    # No language is written in the letters of phonetics.
    is_phonetic = "\u0250" <= sign <= "\u02ff" or "\u1d00" <= sign <= "\u1dbf"
    if is_phonetic or _script_of(sign) in _RARE:
        return True
    kind = unicodedata.decomposition(sign).partition(" ")[0]
    if kind == "<font>":  # A letter of mathematics, whatever its alphabet.
        return True
    plain = unicodedata.normalize("NFKC", sign)
    return kind in {"<wide>", "<narrow>", "<compat>", "<noBreak>"} and plain.isascii()


def _is_invisible(sign: str) -> bool:
    """Whether a character is not visible, such as a control character or an unusual space."""
    if "\ufe00" <= sign <= "\ufe0f" or "\U000e0000" <= sign <= "\U000e0fff":
        return True  # Selectors of a letter's variant, and tags.
    return sign in _BLANK or (sign != " " and not sign.isprintable())


@lru_cache(maxsize=4096)
def _is_other_alphabet(sign: str) -> bool:
    """Whether a letter or digit could be mistaken for a Latin one beside Latin ones."""
    if sign.isascii() or _is_wide(sign):
        return False
    return _script_of(sign) not in {"LATIN", "FEMININE", "MASCULINE", "MICRO"}


def _script_of(sign: str) -> str:
    return unicodedata.name(sign, "").partition(" ")[0]


def _is_wide(sign: str) -> bool:
    return unicodedata.east_asian_width(sign) in "WF" and not _is_invisible(sign)


def _is_beside_cjk(text: str, position: int) -> bool:
    """Whether a Chinese, Japanese or Korean character is directly before or after."""
    before = text[max(0, position - 1) : position]
    after = text[position + 1 : position + 2]
    for neighbour in before + after:
        is_wide_letter = unicodedata.east_asian_width(neighbour) == "W"
        if is_wide_letter and neighbour not in _ALIKE_ALONE:
            return True
    return False


def _is_combining(sign: str) -> bool:
    return unicodedata.category(sign) in {"Mn", "Me", "Mc"}


def _is_usual_combination(text: str, position: int) -> bool:
    """Whether a combining mark follows a letter of a script that uses it, in the usual order."""
    letter_position = position - 1
    first_position = max(0, position - _MOST_CARRIED)
    while letter_position > first_position and _is_combining(text[letter_position]):
        letter_position -= 1
    letter_with_marks = text[max(letter_position, 0) : position + 1]
    if len(letter_with_marks) < 2 or not letter_with_marks[0].isalpha():
        return False
    if unicodedata.normalize("NFC", letter_with_marks) != letter_with_marks:
        return False
    script = _script_of(letter_with_marks[0])
    if unicodedata.category(text[position]) == "Mc":
        # Such a mark takes room of its own, like a colon or a vowel's stroke.
        return _script_of(text[position]) == script
    return script not in {"LATIN", "GREEK", "CYRILLIC"}
