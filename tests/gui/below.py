"""The sentences of the source below the window, as templates: found by reading the
code, so that none is forgotten.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from helix_desktop import errors
from helix_desktop.gui import translation

PACKAGE = Path(translation.__file__).parents[1]
NAMED = {
    "why",
    "remedy",
    "danger",
    "cut",
    "unfolded",
}  # what is given by these names, or kept under them, is read by people
PLACES = {  # which argument of what is read by people
    "FoldPlan": (2,),
    "PlannedClearing": (2,),
    "PermissionDecision": (2,),
    "UnreadableCommand": (0,),
    "ToolAction": (2,),
    "permit_reading": (2,),
    "PermissionQuestion": (1, 3),
    "LinkStatus": (1,),
    "McpConnectionStatus": (1,),
    "TurnEnded": (1,),
    "FleetTaskResult": (0,),
    "FoldFailed": (1,),
    "note": (0,),
    "_refuse_while_running": (0,),
    "_refuse_while_held": (0,),
    "ask_and_write": (2,),
    "_set_store_trouble": (1,),
    "_record_fold_failure": (1,),
    "convert_sqlite_error": (1,),
    "convert_leveldb_error": (1,),
    "quarantine_entry": (1,),
    "DoctorFinding": (0, 2, 3),
    "_damaged_entry_error": (2,),
    "_damaged_fact_error": (2,),
}
RETURNED = {
    "describe_next_fold",
    "describe_policy_outlook",
    "format_meter",
    "_describe_sharing",
    "_explain_failure",
    "_describe_timeout",
    "_describe_failure",
    "wait_and_return_why_given_up",
    "_decide_if_always_asked",
    "_reason_not_read",
    "_undo_file_change",
}
LISTS = {"notes", "warnings", "later", "lost"}
MOST = 8  # ways one sentence may come out
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=…)\s+(?=[A-Z])")


class Scopes(NamedTuple):
    """Where a name is looked up: the function it stands in, then the module; `seen`:
    names that are looked up already.
    """

    inner: ast.AST
    module: ast.AST
    seen: frozenset[str] = frozenset()


def texts(module: Path, *, with_errors: bool = True) -> set[str]:
    """Every sentence of a module that a person may read, what is put in as `{}`."""
    tree = ast.parse((PACKAGE / module).read_text("utf-8"))
    kinds = _kinds_of_errors(tree) if with_errors else set()
    named = NAMED if with_errors else NAMED - {"remedy"}
    found: set[str] = set()
    for scope, node in _scoped(tree):
        for expression in _read_by_people(node, kinds, named, getattr(scope, "name", "")):
            for text in itertools.islice(_alternatives(expression, Scopes(scope, tree)), MOST):
                found.update(sentences(text))
    return found


def _kinds_of_errors(tree: ast.Module) -> set[str]:
    """The names of the errors that a module may raise with a sentence, its own among them."""
    kinds = {name for name, value in vars(errors).items() if isinstance(value, type)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and _is_error(node, kinds):
            kinds.add(node.name)
    return kinds | {"Broken", "NobodyThere", "NothingWritten"}


def sentences(text: str) -> Iterator[str]:
    """One by one; what is put in before or behind as a sentence of its own is none of this text."""
    for each in _SENTENCE.split(" ".join(text.split())):
        alone = re.sub(r"(?<=[.!?])\{\}$", "", re.sub(r"^(\{\} ?)+(?=[A-Z][a-z])", "", each))
        if re.search(r"[A-Za-z]{2}", alone):
            yield alone


def _scoped(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Every node with the innermost function around it."""
    waiting: list[tuple[ast.AST, ast.AST]] = [(tree, tree)]
    while waiting:
        scope, node = waiting.pop()
        yield scope, node
        inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else scope
        waiting += [(inner, child) for child in ast.iter_child_nodes(node)]


def _is_error(node: ast.ClassDef, kinds: set[str]) -> bool:
    return any(isinstance(base, ast.Name) and base.id in kinds for base in node.bases)


def _read_by_people(
    node: ast.AST, kinds: set[str], named: set[str], function: str
) -> Iterator[ast.expr]:
    if isinstance(node, ast.Return) and function in RETURNED and node.value is not None:
        yield node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if _named(target) in named:
                yield node.value
    # A text that grows: the name stands for all that it may come out as.
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        if node.target.id in named:
            yield node.target
    elif isinstance(node, ast.Call):
        yield from _arguments_read_by_people(node, kinds, named)


def _arguments_read_by_people(
    call: ast.Call, kinds: set[str], named: set[str]
) -> Iterator[ast.expr]:
    name = _named(call.func)
    places = (0,) if name in kinds else PLACES.get(name, ())
    for place, argument in enumerate(call.args):
        if place in places:
            yield argument
    for keyword in call.keywords:
        if keyword.arg in named:
            yield keyword.value
    if name == "append" and isinstance(call.func, ast.Attribute):
        if _named(call.func.value) in LISTS:
            yield call.args[0]


def _named(node: ast.expr) -> str:
    return (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else ""
    )


def _alternatives(node: ast.expr, scopes: Scopes) -> Iterator[str]:
    """What an expression may come out as; nothing where that cannot be seen."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _alternatives_or_gap(node.body, scopes)
        yield from _alternatives_or_gap(node.orelse, scopes)
    elif isinstance(node, ast.BoolOp):
        for each in node.values:
            yield from _alternatives(each, scopes)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for begin in _alternatives_or_gap(node.left, scopes):
            for end in _alternatives_or_gap(node.right, scopes):
                yield begin + end
    elif isinstance(node, ast.JoinedStr):
        pieces = [_inserted(each, scopes) for each in node.values]
        yield from map("".join, itertools.product(*pieces))
    elif isinstance(node, ast.Name):
        yield from _alternatives_of_name(node.id, scopes)


def _alternatives_or_gap(node: ast.expr, scopes: Scopes) -> list[str]:
    """As `_alternatives`, but a place to be filled where nothing can be seen."""
    return list(_alternatives(node, scopes)) or ["{}"]


def _alternatives_of_name(name: str, scopes: Scopes) -> list[str]:
    inner = scopes._replace(seen=scopes.seen | {name})
    texts: list[str] = []
    for value in _assigned(name, scopes):
        texts += _alternatives(value, inner)
    # What is added by `+=`, which usually stands under a condition.
    for addition in _added(name, scopes):
        endings = _alternatives_or_gap(addition, inner)
        texts += [text + end for text in texts for end in endings]
    return texts


def _inserted(node: ast.expr, scopes: Scopes) -> list[str]:
    """A piece of an f-string: what is put in stands as `{}`, unless it is one of a few
    words of ours.
    """
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    assert isinstance(node, ast.FormattedValue)
    values = [node.value]
    inner = scopes
    if isinstance(node.value, ast.Name):
        values = list(_assigned(node.value.id, scopes))
        inner = scopes._replace(seen=scopes.seen | {node.value.id})
    # A name that gets one text first and another one under a condition, like an expression
    # with `if` and `else`.
    are_texts = len(values) > 1 and all(_is_text(value) for value in values)
    known: list[str] = []
    for value in values:
        if are_texts or isinstance(value, ast.IfExp):
            known += _alternatives(value, inner)
    return known or ["{}"]


def _added(name: str, scopes: Scopes) -> Iterator[ast.expr]:
    if name in scopes.seen:
        return
    for node in ast.walk(scopes.inner):
        if isinstance(node, ast.AugAssign) and _named(node.target) == name:
            yield node.value


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    return isinstance(node, ast.JoinedStr)


def _assigned(name: str, scopes: Scopes) -> Iterator[ast.expr]:
    """What a name stands for: of a function's own names, else of a module's constants.
    Never by way of itself.
    """
    if name in scopes.seen:
        return
    for scope in (scopes.inner, scopes.module) if name.isupper() else (scopes.inner,):
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id == name for t in node.targets
            ):
                yield node.value


@cache
@cache
def written() -> set[str]:
    """Every text in the source below the window, in the same form: what the table may hold."""
    found: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        if "gui" not in file.parts:
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.update(sentences(node.value))
                elif isinstance(node, ast.JoinedStr):
                    pieces = [
                        str(each.value) if isinstance(each, ast.Constant) else "{}"
                        for each in node.values
                    ]
                    found.update(sentences("".join(pieces)))
    return found
