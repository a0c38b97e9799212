"""Functions have few decisions, those inside expressions counted. The file still_dense.txt
lists the functions that have more: they may get fewer, and nobody adds one to the list.
"""

from __future__ import annotations

import ast

import pytest

from tests.readability import (
    MOST_DECISIONS,
    STILL_DENSE,
    count_decisions,
    list_functions,
    list_hard_expressions,
)


@pytest.mark.usefixtures("no_garbage")
def test_no_function_has_more_decisions_than_can_be_held_in_mind() -> None:
    allowed: dict[str, int] = {}
    for line in STILL_DENSE.read_text(encoding="utf-8").splitlines():
        decisions, _, name = line.partition(" ")
        allowed[name] = max(int(decisions), allowed.get(name, 0))
    denser = [
        function
        for function in list_functions()
        if function.decisions > allowed.get(function.name, MOST_DECISIONS)
    ]
    assert denser == [], "Make it plainer, or split it where one thought ends and another begins."


@pytest.mark.usefixtures("no_garbage")
def test_no_expression_decides_inside_another() -> None:
    assert list(list_hard_expressions()) == []


def test_decisions_inside_expressions_are_counted() -> None:
    source = """
def f(rows):
    for row in rows:
        try:
            name = row.name if row.name and row.is_open else ""
        except KeyError:
            continue
    return [row for row in rows if row.size]
"""
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    # The function, for, conditional, and, except, the comprehension and its condition.
    assert count_decisions(function) == 7
