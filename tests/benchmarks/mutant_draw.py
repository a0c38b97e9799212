"""How many of some mutants, drawn over the rooms that carry other people's words, their own tests notice.

python -m tests.benchmarks.mutant_draw SEED [COUNT]     one line for each mutant, the share at the end, then the survivors

A file is drawn by its size, a place in it by chance: a comparison, `and`, `or`, `not`, a number, what is returned, a call whose result
nobody takes. It is tried on a copy, with the tests that mirror the file and those of its room that name it. A file without any test is
drawn like the others: its mutants survive. Take a seed whose mutants nobody has seen; a benchmark, since 40 take half an hour of one core.
"""

from __future__ import annotations

import ast
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "helix_desktop"
ROOMS = ("gateway", "protocols", "histories", "store/shared", "tools/changes", "tools/permission.py")
SMALLEST = 600  # In bytes. What is smaller has no mutants worth the draw.
MOST_TESTS = 6  # Files of tests for one mutant.
LONGEST_SECONDS = 300.0  # A mutant that hangs is noticed.
COMPARED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COVERED_BY: Mapping[
    str, Sequence[str]
] = {  # Tests that carry another name: a port's, a server's, a helper's of two modules.
    "store/shared/s3_rows.py": ("store/shared/test_row_store.py",),
    "store/shared/postgres_rows.py": ("store/shared/test_row_store.py",),
    "tools/changes/folder_walk.py": ("tools/changes/test_checkpoints.py",),
    "gateway/gateway_server.py": ("gateway/test_gateway.py",),
    "gateway/gateway_app.py": ("gateway/test_gateway.py", "gateway/test_gateway_workspaces.py"),
    "protocols/reply_reader.py": ("protocols/openai_chat/test_chat_completions.py",),
    "histories/program_names.py": ("gui/test_answer_author.py",),
}


@dataclass(frozen=True)
class Mutant:
    """`path` is within the package; `text`: the whole file with the mistake in it."""

    path: str
    line: int
    was: str
    text: str


def draw_mutants(seed: int, count: int) -> Iterator[Mutant]:
    chance = random.Random(seed)
    found = [one for room in ROOMS for one in _files_of_room(ROOT / PACKAGE / room)]
    sizes = [path.stat().st_size for path in found]
    while count:
        (path,) = chance.choices(found, sizes)
        source = path.read_text("utf-8")
        places = _places_in(ast.parse(source))
        if places:
            yield _mutant_at(path, source, chance.choice(places))
            count -= 1


def _files_of_room(room: Path) -> list[Path]:
    files = [room] if room.is_file() else sorted(room.rglob("*.py"))
    return [path for path in files if path.stat().st_size > SMALLEST]


def _places_in(tree: ast.Module) -> list[ast.expr | ast.stmt]:
    functions = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    inside = (node for function in functions for node in ast.walk(function))
    return [node for node in inside if isinstance(node, ast.expr | ast.stmt) and _mistake_at(node) is not None]


def _mistake_at(node: ast.AST) -> str | None:  # noqa: PLR0911 -- one for each kind
    """What stands there instead; None where nothing is tried."""
    match node:
        case ast.Compare(left=left, ops=[first, *more], comparators=right) if type(first) in COMPARED:
            return f"({ast.unparse(ast.Compare(left, [COMPARED[type(first)](), *more], right))})"
        case ast.BoolOp(op=joined, values=values):
            return f"({ast.unparse(ast.BoolOp(ast.And() if isinstance(joined, ast.Or) else ast.Or(), values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"({ast.unparse(operand)})"
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return str(number + 1)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            return "return None"
        case ast.Expr(value=ast.Call() | ast.Await()):
            return "None"
    return None


def _mutant_at(path: Path, source: str, node: ast.expr | ast.stmt) -> Mutant:
    whole, lines = source.encode(), source.encode().splitlines(keepends=True)
    ends = (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)
    begin, end = (sum(map(len, lines[: line - 1])) + column for line, column in ends)
    text = (whole[:begin] + (_mistake_at(node) or "").encode() + whole[end:]).decode()
    return Mutant(path.relative_to(ROOT / PACKAGE).as_posix(), node.lineno, whole[begin:end].decode(), text)


def tests_of_file(path: str) -> list[str]:
    """The mirrored tests first, then those that are told to cover it, then those of the room that name it."""
    file = Path(path)
    mirrored = [file.parent / f"test_{file.name}", *map(Path, COVERED_BY.get(path, ()))]
    tests = ROOT / "tests"
    found = [one for one in mirrored if (tests / one).is_file()]
    near = (one.relative_to(tests) for one in sorted((tests / file.parts[0]).rglob("test_*.py")))
    found += [one for one in near if one not in found and file.stem in (tests / one).read_text("utf-8")]
    return [f"tests/{one.as_posix()}" for one in found[:MOST_TESTS]]


def is_noticed(mutant: Mutant, copy: Path) -> bool:
    tests, file = tests_of_file(mutant.path), copy / PACKAGE / mutant.path
    before = file.read_text("utf-8")
    file.write_text(mutant.text, "utf-8")
    try:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        ended = subprocess.run(command, cwd=copy, capture_output=True, timeout=LONGEST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(before, "utf-8")
    return bool(tests) and ended.returncode != 0


def main() -> int:
    seed, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 40
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory(prefix="helix-mutants-") as made:
        copy = Path(made) / "copy"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".venv", ".git", ".*_cache", "dist"))
        for number, mutant in enumerate(draw_mutants(seed, count), 1):
            noticed = is_noticed(mutant, copy)
            survivors += [] if noticed else [mutant]
            word = "noticed " if noticed else "survives"
            sys.stdout.write(f"{number:3} {word} {mutant.path}:{mutant.line} {' '.join(mutant.was.split())[:90]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{count - len(survivors)} of {count} are noticed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
