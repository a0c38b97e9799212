"""What a card shows is what runs: values made to deceive are shown, and read back from
what is shown.

    python -m tests.faults.cards [--values 100000] [--seed 1]

Each value is a command, the arguments of an MCP tool, a path in a title, or two
versions of a file. A failure is a value that is not found again in what is shown, or a
sign in it that nobody can see.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
import unicodedata
from collections import Counter

from helix_desktop.engine import hidden_characters
from helix_desktop.engine.changes.git_patch import format_unified_diff
from helix_desktop.gui.sentence_translation import translate_title
from tests.unmarking import unmark_text

WORDS = [
    "rm -rf ~",
    "ls -la",
    "git push",
    "curl x | sh",
    "echo 'a b'",
    "&& ",
    "$(id)",
    "`id`",
    "\\\n",
    "#",
    "%s",
    "../../",
    ".git/hooks",
    "→",
    "→\t",
    "⟨…⟩\n",
    "⟨001B⟩",
    "⟨а 0430⟩",
    "--- a.txt",
    "+++ b",
    "@@ -1 +1 @@",
    "\\ No newline at end of file",
    "копия",
    "сору",
    "שלום",
    "مرحبا",
    "文件，；“你好”",
    "हिन्दी",
    "naïve",
    "café",
    "café",
    "👩\u200d💻",
]
TRAPS = [
    *map(
        chr,
        (
            *range(0x20),
            *range(0x7F, 0xA1),
            0xAD,
            0x61C,
            0x2800,
            0x3164,
            0xFEFF,
            0xFFFC,
            0xE0041,
            0xD83D,
            0xDC80,
        ),
    )
]
TRAPS += [
    *map(
        chr,
        (
            *range(0x2000, 0x2070),
            *range(0x300, 0x308),
            *range(0xFE00, 0xFE10),
            *range(0xFF01, 0xFF10),
        ),
    )
]
OSC = ("\x1b]", "\x1bP", "\x1b[8m", "\x1b[2K\r", "\x07", "\x1b\\")
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u200b-\u200d\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def value(chance: random.Random) -> str:
    """Words of commands and files, with whatever hides, turns or imitates something
    between them.
    """
    pieces = []
    for _ in range(chance.choice((1, 3, 8, 20))):
        kind = chance.random()
        if kind < 0.5:
            pieces.append(chance.choice(WORDS))
        elif kind < 0.7:
            pieces.append(chance.choice(TRAPS))
        elif kind < 0.8:
            pieces.append(chance.choice(OSC))
        elif kind < 0.9:
            pieces.append(chance.choice(" \n\t \\\"'"))
        else:
            pieces.append(
                chr(chance.choice((chance.randrange(0x3000), chance.randrange(0x110000))))
            )
    text = "".join(pieces)
    return text * 200 if chance.random() < 0.003 else text


def seen(text: str) -> str:
    """What is shown of it, which must hide nothing and give the value back."""
    told = hidden_characters.mark_text(text)
    if found := INVISIBLE.search(told.replace("\n", "")):
        raise ValueError(f"it shows {unicodedata.name(found[0], repr(found[0]))}")
    if max(map(len, told.split("\n"))) > hidden_characters.LONGEST_LINE + len(
        hidden_characters.GOES_ON
    ):
        raise ValueError("a line is too long")
    return unmark_text(told)


def command(chance: random.Random) -> bool:
    line = value(chance)
    return seen(line) == line


def arguments_of_a_tool(chance: random.Random) -> bool:
    given = {
        value(chance): value(chance),
        "list": [value(chance), chance.random(), None, {"deep": value(chance)}],
    }
    return bool(json.loads(seen(json.dumps(given, ensure_ascii=False, indent=2))) == given)


def path(chance: random.Random) -> bool:
    title = f"Edit {value(chance)}"
    told = translate_title(title, hidden_characters.mark_on_one_line)
    return "\n" not in told and INVISIBLE.search(told) is None and unmark_text(told) == title


def change(chance: random.Random) -> bool:
    before = "".join(
        value(chance) + chance.choice(("\n", "\r\n", "")) for _ in range(chance.randrange(6))
    )
    after = before.replace(chance.choice(WORDS), value(chance)) + chance.choice(("", value(chance)))
    return (
        before == after
        or patched(before, seen(format_unified_diff(before, after, "file"))) == after
    )


def patched(before: str, diff: str) -> str:
    """What the difference makes of the text."""
    old = before.split("\n")
    new = []
    at = 0
    rows = diff.split("\n")[2:-1]
    for number, row in enumerate(rows):
        if row.startswith("@@"):
            first, length = map(int, row.split()[1][1:].split(","))
            start = first - 1 if length else first
            new += old[at:start]
            at = start
        elif row[:1] in " -+":
            at += row[0] != "+"
            ends = number + 1 == len(rows) or not rows[number + 1].startswith("\\")
            new += [row[1:]] if row[0] != "-" else []
            if not ends and row[0] != "-":
                return "\n".join(new)
            if not ends and row[0] == "-":
                at = len(old)
    rest = old[at:] if at < len(old) else [""]
    return "\n".join([*new, *rest])


def trials(number: int, seed: int, found: Counter[str]) -> None:
    kinds = (command, arguments_of_a_tool, path, change)
    for each in range(number):
        kind = kinds[each % len(kinds)]
        chance = random.Random(f"{seed} {each}")
        try:
            same = kind(chance)
        except ValueError as error:
            found[f"LOST {kind.__name__} {each}: {error}"[:200]] += 1
            continue
        found["values" if same else f"LOST {kind.__name__} {each}"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found: Counter[str] = Counter()
    start = time.monotonic()
    trials(arguments.values, arguments.seed, found)
    lost = [key for key in found if key.startswith("LOST")]
    for key in lost[:10]:
        print(key)
    seconds = time.monotonic() - start
    print(
        f"cards: {found['values']:,} values; {len(lost)} failures; {seconds:.0f} s, seed {arguments.seed}"
    )
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
