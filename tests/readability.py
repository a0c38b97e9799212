"""Counts what makes a function hard to read once: `python -m tests.readability` prints the
functions with the most decisions, and writes the list of those that are still to be made
plainer.

A decision is an `if`, a loop, an `except`, a `case`, a conditional expression, a `for` or
`if` of a comprehension, and each `and` or `or`. Those inside expressions count like
statements, because a reader has to make them too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "helix_desktop"
STILL_DENSE = ROOT / "tests" / "still_dense.txt"
MOST_DECISIONS = 12
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_DECISIONS = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
    ast.match_case,
    ast.Assert,
)
# Every conditional expression has one; most files have none.
_ELSE_OF_AN_EXPRESSION = re.compile(r"\belse\b(?!:)")
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class FunctionDecisions:
    """`name` is the path of the module and the name of the function in it."""

    name: str
    decisions: int


def list_functions(package: Path = PACKAGE) -> Iterator[FunctionDecisions]:
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package.parent).as_posix()
        for node, name in _functions_below(ast.parse(path.read_text(encoding="utf-8")), ""):
            yield FunctionDecisions(f"{module}:{name}", count_decisions(node))


def _functions_below(node: ast.AST, outer: str) -> Iterator[tuple[_Function, str]]:
    for child in ast.iter_child_nodes(node):
        name = outer
        if isinstance(child, _Function | ast.ClassDef):
            name = f"{outer}.{child.name}".lstrip(".")
        if isinstance(child, _Function):
            yield child, name
        yield from _functions_below(child, name)


def count_decisions(function: _Function) -> int:
    decisions = 1
    for node in _own_nodes(function):
        if isinstance(node, _DECISIONS):
            decisions += 1
        if isinstance(node, ast.comprehension):
            decisions += len(node.ifs)
        if isinstance(node, ast.BoolOp):
            decisions += len(node.values) - 1
    return decisions


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Everything in a function but the functions and classes inside it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function | ast.ClassDef):
            continue
        yield child
        yield from _own_nodes(child)


def list_hard_expressions(package: Path = PACKAGE) -> Iterator[str]:
    """The places of conditional expressions inside another, or inside a comprehension that
    has a condition.
    """
    for path in sorted(package.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not _ELSE_OF_AN_EXPRESSION.search(source):
            continue
        module = path.relative_to(package.parent).as_posix()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.IfExp) and _contains_conditional(node):
                yield f"{module}:{getattr(node, 'lineno', 0)}"
            has_condition = isinstance(node, _COMPREHENSIONS) and any(
                part.ifs for part in node.generators
            )
            if has_condition and _contains_conditional(node):
                yield f"{module}:{getattr(node, 'lineno', 0)}"


def _contains_conditional(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.IfExp) for inner in ast.walk(node) if inner is not node)


def main() -> None:
    dense = [function for function in list_functions() if function.decisions > MOST_DECISIONS]
    for function in sorted(dense, key=lambda function: -function.decisions)[:40]:
        print(f"{function.decisions:3} {function.name}")
    lines = [f"{function.decisions} {function.name}\n" for function in dense]
    STILL_DENSE.write_text("".join(lines), encoding="utf-8")
    print(f"{len(dense)} functions are in {STILL_DENSE.name}.")
    print(f"{len(list(list_hard_expressions()))} expressions are hard to read.")


if __name__ == "__main__":
    main()
