"""How many of some mutants, drawn over the rooms that carry other people's words, their
own tests notice.

python -m tests.benchmarks.mutant_draw SEED [COUNT]     one line for each mutant, the
share at the end, then the survivors

A file is drawn by its size, a place in it by chance: a comparison, `and`, `or`, `not`,
a number, what is returned, a call whose result nobody takes. It is tried on a copy,
first with the tests that mirror the file, then with those of its room that name it:
"noticed" and "near" say which of them did, and the share is given of both. A file
without any test is drawn like the others: its mutants survive.

A test that fails is run again without the mutant: one that fails then too (a busy
machine, a test that is broken anyway) has noticed nothing, and the mutant is tried once
more without all that do. Tests that do not end have noticed a mutant only if they end
in a sixth of that time without it. Take a seed whose mutants nobody has seen; a
benchmark, since 40 take half an hour of one core.
"""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "helix_desktop"
ROOMS = (
    "gateway",
    "protocols",
    "histories",
    "store/shared",
    "tools/changes",
    "tools/permission.py",
)
SMALLEST = 600  # In bytes. What is smaller has no mutants worth the draw.
MOST_TESTS = 6  # Files of tests for one mutant.
LONGEST_SECONDS = 300.0
NO_END = "no end"
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
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
    "protocols/reply_reader.py": ("protocols/openai_chat/test_chat_client.py",),
    "histories/program_names.py": ("gui/test_answer_author.py",),
    "gateway/taken_out_messages.py": ("gateway/test_taken_out.py",),
    "protocols/openai_chat/chat_reply_reader.py": ("protocols/openai_chat/test_chat_client.py",),
    "store/shared/postgres_heads.py": ("store/shared/test_conversation_heads.py",),
    "store/shared/postgres_pool.py": ("store/shared/test_postgres_rows.py",),
    "tools/changes/known_folders.py": ("tools/changes/test_checkpoints.py",),
    "tools/changes/change_attribution.py": ("tools/changes/test_checkpoints.py",),
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
    functions = (
        one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    inside = (node for function in functions for node in ast.walk(function))
    return [
        node
        for node in inside
        if isinstance(node, ast.expr | ast.stmt) and _mistake_at(node) is not None
    ]


def _mistake_at(node: ast.AST) -> str | None:  # noqa: PLR0911 -- one for each kind
    """What stands there instead; None where nothing is tried."""
    match node:
        case ast.Compare(left=left, ops=[first, *more], comparators=right) if (
            type(first) in COMPARED
        ):
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
    ends = (
        (node.lineno, node.col_offset),
        (node.end_lineno or node.lineno, node.end_col_offset or 0),
    )
    begin, end = (sum(map(len, lines[: line - 1])) + column for line, column in ends)
    text = (whole[:begin] + (_mistake_at(node) or "").encode() + whole[end:]).decode()
    return Mutant(
        path.relative_to(ROOT / PACKAGE).as_posix(), node.lineno, whole[begin:end].decode(), text
    )


def tests_of_file(path: str) -> list[str]:
    """The mirrored tests first, then those that are told to cover it, then those of the
    room that name it.
    """
    mirrored = mirrored_tests(path)
    file, tests = Path(path), ROOT / "tests"
    near = (
        f"tests/{one.relative_to(tests).as_posix()}"
        for one in sorted((tests / file.parts[0]).rglob("test_*.py"))
    )
    mirrored += [
        one for one in near if one not in mirrored and file.stem in (ROOT / one).read_text("utf-8")
    ]
    return mirrored[:MOST_TESTS]


def mirrored_tests(path: str) -> list[str]:
    file = Path(path)
    found = [file.parent / f"test_{file.name}", *map(Path, COVERED_BY.get(path, ()))]
    return [f"tests/{one.as_posix()}" for one in found if (ROOT / "tests" / one).is_file()]


def who_notices(mutant: Mutant, copy: Path) -> tuple[str, str]:
    """Whether the mirrored tests notice it, those near them or none ("survives"), and
    which test failed.
    """
    mirrored = mirrored_tests(mutant.path)
    near = [one for one in tests_of_file(mutant.path) if one not in mirrored]
    for word, tests in (("noticed", mirrored), ("near", near)):
        if failed := _find_noticing_test(mutant, copy, tests):
            return word, failed
    return "survives", ""


def _find_noticing_test(mutant: Mutant, copy: Path, tests: Sequence[str]) -> str:
    if not tests:
        return ""
    file = copy / PACKAGE / mutant.path
    before, failing_anyway = file.read_text("utf-8"), frozenset[str]()
    for _ in range(2):
        file.write_text(mutant.text, "utf-8")
        failed, _ = _run_tests(copy, tests, failing_anyway)
        file.write_text(before, "utf-8")
        if not failed:
            return ""
        (first,) = failed
        without, seconds = _run_tests(copy, tests if first == NO_END else [first])
        if not without and (first != NO_END or seconds < LONGEST_SECONDS / 6):
            return first
        failing_anyway, _ = _run_tests(copy, tests, stops=False)
    return ""


def _run_tests(
    copy: Path, tests: Sequence[str], left_out: Collection[str] = (), *, stops: bool = True
) -> tuple[frozenset[str], float]:
    """The tests that failed, the first alone if it `stops` there, and how long all took."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *(["-x"] if stops else []),
        *tests,
    ]
    begun = time.monotonic()
    with subprocess.Popen(
        [*command, *(f"--deselect={one}" for one in left_out)],
        cwd=copy,
        env={
            **os.environ,
            "PYTHONPATH": str(copy),
            "PYTHONDONTWRITEBYTECODE": "1",
        },  # In processes they start as well.
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return frozenset([NO_END]), time.monotonic() - begun
    took = time.monotonic() - begun
    if not process.returncode:
        return frozenset(), took
    return frozenset(FAILED.findall(said)) or frozenset(tests[:1]), took


def main() -> int:
    seed, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 40
    words: list[str] = []
    with tempfile.TemporaryDirectory(prefix="helix-mutants-") as made:
        copy = Path(made) / "copy"
        shutil.copytree(
            ROOT,
            copy,
            symlinks=True,
            ignore=shutil.ignore_patterns(".venv", ".git", ".*_cache", "dist"),
        )
        for number, mutant in enumerate(
            tuple(draw_mutants(seed, count)), 1
        ):  # All at once: the files may be edited meanwhile.
            word, test = who_notices(mutant, copy)
            words.append(word)
            was = " ".join(mutant.was.split())[:90]
            sys.stdout.write(f"{number:3} {word:8} {mutant.path}:{mutant.line} {was}  {test}\n")
            sys.stdout.flush()
    noticed, near = words.count("noticed"), words.count("near")
    sys.stdout.write(
        f"{noticed} of {count} are noticed by the mirrored tests, {near} more by others of the room\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
