"""Draws functions and comments for a reader who does not know the program: `python -m
tests.naming_sample SEED [PACKAGE]`.

The reader says from name and signature alone what a function does, and what a comment
means; a judge with the code decides. The seed is committed before anybody looks, so
that nobody can choose what is drawn: those of 25 November 2026 are 61126, 61127 and
61128. One reader read all three, and one judge called 91, 91 and 92 of 100 functions
right. That of 26 November 2026 is 61226:
88 of 100 functions of ours and 90 of 100 of qutebrowser, which the reader knew, were called right, and 98 of 100 comments.
"""

from __future__ import annotations

import ast
import io
import json
import random
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.naming import PACKAGE

COUNT = 100


def functions(package: Path) -> Iterator[tuple[str, str]]:
    """Where each function stands, and its signature; those that Python names are left out."""
    for path in sorted(package.rglob("*.py")):
        for owner, node in _with_owner(ast.parse(path.read_text("utf-8")), ""):
            if not (node.name.startswith("__") and node.name.endswith("__")):
                bare = type(node)(**{**node.__dict__, "body": [], "decorator_list": []})
                yield (
                    f"{path.relative_to(package)}:{node.lineno}",
                    f"{owner}{ast.unparse(bare).strip().rstrip(':')}",
                )


def comments(package: Path) -> Iterator[tuple[str, str]]:
    """Where each comment stands, and the line with it; what tools read is left out."""
    for path in sorted(package.rglob("*.py")):
        text = path.read_text("utf-8")
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and not token.string.startswith(
                ("# noqa", "# type:", "# fmt:", "# ruff:", "#!")
            ):
                lines = text.splitlines()[token.start[0] - 1 : token.start[0] + 1]
                yield (
                    f"{path.relative_to(package)}:{token.start[0]}",
                    "\n".join(line.strip() for line in lines),
                )


def _with_owner(
    node: ast.AST, owner: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield owner, child
        elif isinstance(child, ast.ClassDef):
            yield from _with_owner(child, f"class {child.name}: ")
        elif not isinstance(child, ast.expr):
            yield from _with_owner(child, owner)


def draw(seed: int, package: Path) -> dict[str, list[tuple[str, str]]]:
    """The sample of this seed."""
    chance = random.Random(seed)
    return {
        "functions": chance.sample(list(functions(package)), COUNT),
        "comments": chance.sample(list(comments(package)), COUNT),
    }


if __name__ == "__main__":
    sample = draw(int(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else PACKAGE)
    sys.stdout.write(json.dumps(sample, indent=1))
