"""Draws pairs of functions of equal length, one of ours and one of another program, for
a stranger who says which is easier to follow.

`python -m tests.benchmarks.reading_pairs OUTPUT NAME=FOLDER [NAME=FOLDER ...]` writes the
pairs without names to OUTPUT/pairs.md and which side is ours to OUTPUT/key.txt. The seed
was committed before anybody looked at a pair.
"""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SEED = 2611284
PAIRS = 60
FEWEST_LINES = 15
MOST_LINES = 60
PACKAGE = Path(__file__).parents[2] / "helix_desktop"


@dataclass(frozen=True)
class DrawnFunction:
    source: str
    lines: int


def main() -> None:
    output = Path(sys.argv[1])
    folders = dict(argument.split("=", 1) for argument in sys.argv[2:])
    names = ["helix_desktop", "helix-desktop", "Helix Desktop", "helix", *folders]
    ours = list(list_functions(PACKAGE, names))
    others = [
        function for folder in folders.values() for function in list_functions(Path(folder), names)
    ]
    write_pairs(output, ours, others)


def list_functions(folder: Path, names: list[str]) -> Iterator[DrawnFunction]:
    """Every function of a length that can be read in a minute, in the order of its file."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        try:
            tree = ast.parse(text)
        except SyntaxError:  # Some of mitmproxy's files need a newer Python than this one.
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            source = remove_names(ast.get_source_segment(text, node) or "", names)
            lines = source.count("\n") + 1
            if FEWEST_LINES <= lines <= MOST_LINES:
                yield DrawnFunction(source, lines)


def remove_names(source: str, names: list[str]) -> str:
    for name in names:
        source = re.sub(re.escape(name), "program", source, flags=re.IGNORECASE)
    return source


def write_pairs(output: Path, ours: list[DrawnFunction], others: list[DrawnFunction]) -> None:
    chosen = random.Random(SEED)
    pages: list[str] = []
    key: list[str] = []
    for number in range(1, PAIRS + 1):
        own = chosen.choice(ours)
        same_length = [other for other in others if other.lines == own.lines]
        pair = [own, chosen.choice(same_length or others)]
        chosen.shuffle(pair)
        own_side = "AB"[pair.index(own)]
        key.append(f"{number} {own_side}")
        pages.append(f"# Pair {number}\n")
        for side, function in zip("AB", pair, strict=True):
            pages.append(f"## {number} {side}\n\n```python\n{function.source}\n```\n")
    output.mkdir(parents=True, exist_ok=True)
    output.joinpath("pairs.md").write_text("\n".join(pages), encoding="utf-8")
    output.joinpath("key.txt").write_text("\n".join(key) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
