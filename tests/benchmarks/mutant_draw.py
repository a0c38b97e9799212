"""How many of some mutants, drawn over the rooms of the package, their own tests notice.

python -m tests.benchmarks.mutant_draw SEED [COUNT] [ROOMS] [mirrored]

prints one line for each mutant and the share at the end. ROOMS is a name in
`ROOMS_BY_NAME`: "words" (the rooms that carry other people's words) if none is given.
With "mirrored" no other tests than the mirrored ones are tried, which takes half as
long.

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

The draw of 27 November 2026: seed 9701, 20 mutants of "acp", of "timeline" and of
"fleet" each, and 50 of "all". The draw of 28 November 2026: seed 7019, 40 mutants of
"work", and seed 7027, 40 more, after the tests that the first draw led to; seed 7103, 40 of
"work", that morning, and seed 7127, 40 of "work", after trials for what survived of it and of 80
of seed 7201; seed 7211, 40 of "work", after trials for what survived of 7127; seed 7307, 20
mutants of "acp", of "timeline" and of "fleet" each, and 50 of "all"; seed 7411, the same numbers
of the same rooms, that afternoon, after trials of modules by what their own files ran;
seed 7523, the same numbers of the same rooms, that evening, after trials of modules that
had no file of their own.
"""

from __future__ import annotations

import argparse
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
ROOMS_BY_NAME: Mapping[str, Sequence[str]] = {
    "words": (
        "gateway",
        "protocols",
        "histories",
        "store/shared",
        "tools/changes",
        "tools/permission.py",
    ),
    "acp": ("acp_client", "acp_agent", "commands/acp_command.py"),
    "timeline": ("gui/timeline",),
    "fleet": (
        "store/fleet_*.py",
        "workbench/fleet_*.py",
        "workbench/claimed_fleet_task.py",
        "workbench/worker_claims.py",
        "gui/fleet",
        "commands/fleet_command.py",
        "commands/task_command.py",
        "commands/worker_command.py",
    ),
    "work": (
        "engine",
        "store",
        "tools",
        "acp_client",
        "acp_agent",
        "project",
        "documents",
        "replay",
        "commands",
        "gui/timeline",
    ),
    "all": ("**/*.py",),
}
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
    "commands/added_commands.py": ("extensions/test_commands.py",),
    "engine/message_queue.py": ("engine/test_session.py",),
    "tools/regex_search_worker.py": ("tools/test_regex_search.py",),
    "documents/document_archive.py": ("documents/test_document_reading.py",),
    "documents/document_worker.py": ("documents/test_document_reading.py",),
    "documents/section_builder.py": ("documents/test_document_reading.py",),
    "documents/text_tables.py": ("documents/test_document_reading.py",),
    "documents/readers/csv_reader.py": ("documents/test_document_reading.py",),
    "documents/readers/epub_reader.py": ("documents/test_document_reading.py",),
    "documents/readers/html_reader.py": ("documents/test_document_reading.py",),
    "documents/readers/notebook_reader.py": ("documents/test_document_reading.py",),
    "documents/readers/open_document_reader.py": ("documents/test_document_reading.py",),
    "documents/readers/pdf_reader.py": ("documents/test_document_reading.py",),
    "documents/readers/powerpoint_reader.py": ("documents/test_document_reading.py",),
    "documents/readers/spreadsheet_reader.py": ("documents/test_document_reading.py",),
    "documents/readers/word_reader.py": ("documents/test_document_reading.py",),
    "store/shared/s3_rows.py": ("store/shared/test_row_store.py",),
    "store/shared/postgres_rows.py": ("store/shared/test_row_store.py",),
    "tools/changes/folder_walk.py": ("tools/changes/test_checkpoints.py",),
    "gateway/gateway_server.py": ("gateway/test_gateway.py",),
    "gateway/gateway_app.py": ("gateway/test_gateway.py", "gateway/test_gateway_workspaces.py"),
    "protocols/reply_reader.py": ("protocols/openai_chat/test_chat_client.py",),
    "histories/program_names.py": ("gui/test_answer_author.py",),
    "protocols/openai_chat/chat_reply_reader.py": ("protocols/openai_chat/test_chat_client.py",),
    "store/shared/postgres_heads.py": ("store/shared/test_conversation_heads.py",),
    "store/shared/postgres_pool.py": ("store/shared/test_postgres_rows.py",),
    "tools/changes/known_folders.py": ("tools/changes/test_checkpoints.py",),
    "tools/changes/change_attribution.py": ("tools/changes/test_checkpoints.py",),
    "acp_agent/editor_conversation.py": ("acp_agent/test_editor_requests.py",),
    "acp_agent/conversation_options.py": ("acp_agent/test_editor_requests.py",),
    "acp_agent/console_transport.py": ("acp_agent/test_editors.py",),
    "gui/timeline/request_cost_bars.py": ("gui/timeline/test_timeline_page.py",),
    "gui/timeline/fold_panel.py": ("gui/timeline/test_timeline_page.py",),
    "gui/timeline/fold_now_dialog.py": ("gui/timeline/test_timeline_page.py",),
    "gui/timeline/fold_list.py": ("gui/timeline/test_timeline_page.py",),
    "gui/timeline/timeline_marks.py": ("gui/timeline/test_timeline_chart.py",),
    "gui/fleet/task_question_view.py": ("gui/fleet/test_fleet_dialog.py",),
    "gui/fleet/task_answer_buttons.py": ("gui/fleet/test_fleet_dialog.py",),
    "gui/fleet/task_answer_view.py": ("gui/fleet/test_fleet_dialog.py",),
    "gui/fleet/fleet_rows.py": ("gui/fleet/test_fleet_dialog.py",),
    "gui/fleet/fleet_list.py": ("gui/fleet/test_fleet_dialog.py",),
    "gui/fleet/fleet_tasks_page.py": ("gui/fleet/test_fleet_dialog.py",),
    "gui/fleet/fleet_schedules_page.py": ("gui/fleet/test_fleet_dialog.py",),
    "gui/fleet/fleet_computers_page.py": ("gui/fleet/test_fleet_dialog.py",),
    "gui/fleet/fleet_conversations_page.py": ("gui/fleet/test_fleet_dialog.py",),
    "gui/fleet/task_detail_card.py": ("gui/fleet/test_fleet_dialog.py",),
    "store/fleet_task_list.py": ("store/shared/test_fleet_task_list.py",),
    "store/fleet_statements.py": ("store/shared/test_fleet_task_list.py",),
    "store/fleet_task_history.py": ("store/shared/test_fleet_task_list.py",),
    "store/fleet_task_reading.py": ("store/shared/test_fleet_task_list.py",),
    "store/fleet_tasks.py": ("store/shared/test_fleet_task_list.py",),
    "store/fleet_notes.py": (
        "store/shared/test_fleet_task_list.py",
        "workbench/test_fleet_telemetry.py",
    ),
    "store/fleet_task_encoding.py": (
        "store/shared/test_fleet_task_upgrade.py",
        "store/shared/test_fleet_task_list.py",
    ),
    "workbench/fleet_task_run.py": ("workbench/test_fleet_worker.py",),
    "commands/fleet_command.py": ("commands/test_task_command.py",),
    "commands/worker_command.py": ("commands/test_task_command.py",),
    "store/fleet_task_moving.py": ("store/shared/test_moved_fleet_tasks.py",),
    "store/procrastinate_jobs.py": ("store/shared/test_procrastinate_jobs.py",),
    "store/procrastinate_task_queue.py": ("store/shared/test_procrastinate_task_queue.py",),
    "workspace_host/client_session.py": ("workspace_host/test_client_workspace.py",),
    "workspace_host/host_line.py": ("workspace_host/test_client_workspace.py",),
    "workspace_host/sent_changes.py": ("workspace_host/test_client_changes.py",),
    "workspace_host/local_workspace_host.py": ("workspace_host/test_conformance.py",),
    "workspace_host/remote_workspace_host.py": ("workspace_host/test_conformance.py",),
    "workspace_host/host_interface.py": ("workspace_host/test_conformance.py",),
    "workspace_host/window_commands.py": ("workspace_host/test_conformance.py",),
    "workspace_host/host_server.py": ("workspace_host/test_host_wire.py",),
    "workspace_host/ssh_address.py": ("workspace_host/test_ssh_host.py",),
    "gateway/agents/claude_code_agent.py": ("gateway/test_known_agents.py",),
    "gateway/agents/codex_agent.py": ("gateway/test_known_agents.py",),
    "gateway/agents/gemini_cli_agent.py": ("gateway/test_known_agents.py",),
    "gateway/agents/opencode_agent.py": ("gateway/test_known_agents.py",),
    "gateway/agents/pi_agent.py": ("gateway/test_known_agents.py",),
}


@dataclass(frozen=True)
class Mutant:
    """`path` is within the package; `text`: the whole file with the mistake in it."""

    path: str
    line: int
    was: str
    text: str


def draw_mutants(seed: int, count: int, rooms: Sequence[str]) -> Iterator[Mutant]:
    """`count` mutants of files in these rooms: the same ones for the same seed and code."""
    chance = random.Random(seed)
    paths = _files_of_rooms(rooms)
    sizes = [path.stat().st_size for path in paths]
    drawn = 0
    while drawn < count:
        (path,) = chance.choices(paths, sizes)
        source = path.read_text("utf-8")
        places = _places_in(ast.parse(source))
        if places:
            yield _mutant_at(path, source, chance.choice(places))
            drawn += 1


def _files_of_rooms(rooms: Sequence[str]) -> list[Path]:
    """The modules that are drawn from; a room may be a folder, a file or a pattern."""
    paths: list[Path] = []
    for room in rooms:
        for place in sorted((ROOT / PACKAGE).glob(room)):
            if place.is_dir():
                paths.extend(sorted(place.rglob("*.py")))
            else:
                paths.append(place)
    return [path for path in paths if path.stat().st_size > SMALLEST]


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
    encoded = source.encode()
    begin = _offset(encoded, node.lineno, node.col_offset)
    end = _offset(encoded, node.end_lineno or node.lineno, node.end_col_offset or 0)
    mistake = (_mistake_at(node) or "").encode()
    return Mutant(
        path.relative_to(ROOT / PACKAGE).as_posix(),
        node.lineno,
        encoded[begin:end].decode(),
        (encoded[:begin] + mistake + encoded[end:]).decode(),
    )


def _offset(encoded: bytes, line: int, column: int) -> int:
    """Where a place lies in the bytes of a file; `ast` counts columns in bytes."""
    lines = encoded.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + column


def tests_of_file(path: str) -> list[str]:
    """The mirrored tests first, then those that are told to cover it, then those of the
    room that name it.
    """
    tests = mirrored_tests(path)
    room = ROOT / "tests" / Path(path).parts[0]
    module = Path(path).stem
    for file in sorted(room.rglob("test_*.py")):
        name = file.relative_to(ROOT).as_posix()
        if name not in tests and module in file.read_text("utf-8"):
            tests.append(name)
    return tests[:MOST_TESTS]


def mirrored_tests(path: str) -> list[str]:
    file = Path(path)
    names = [(file.parent / f"test_{file.name}").as_posix()]
    names.extend(COVERED_BY.get(path, ()))
    return [f"tests/{name}" for name in names if (ROOT / "tests" / name).is_file()]


def who_notices(mutant: Mutant, copy: Path, *, only_mirrored: bool) -> tuple[str, str]:
    """Whether the mirrored tests notice it, those near them or none ("survives"), and
    which test failed.
    """
    mirrored = mirrored_tests(mutant.path)
    failed = _find_noticing_test(mutant, copy, mirrored)
    if failed:
        return "noticed", failed
    if only_mirrored:
        return "survives", ""
    near = [test for test in tests_of_file(mutant.path) if test not in mirrored]
    failed = _find_noticing_test(mutant, copy, near)
    if failed:
        return "near", failed
    return "survives", ""


def _find_noticing_test(mutant: Mutant, copy: Path, tests: Sequence[str]) -> str:
    if not tests:
        return ""
    file = copy / PACKAGE / mutant.path
    before = file.read_text("utf-8")
    failing_anyway = frozenset[str]()
    for _ in range(2):
        file.write_text(mutant.text, "utf-8")
        failed, _ = _run_tests(copy, tests, failing_anyway)
        file.write_text(before, "utf-8")
        if not failed:
            return ""
        (first,) = failed
        suspects = [first]
        if first == NO_END:
            suspects = list(tests)
        without, seconds = _run_tests(copy, suspects)
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
    ]
    if stops:
        command.append("-x")
    command.extend(tests)
    command.extend(f"--deselect={test}" for test in left_out)
    begun = time.monotonic()
    with subprocess.Popen(
        command,
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
    arguments = argparse.ArgumentParser()
    arguments.add_argument("seed", type=int)
    arguments.add_argument("count", type=int, nargs="?", default=40)
    arguments.add_argument("rooms", choices=ROOMS_BY_NAME, nargs="?", default="words")
    arguments.add_argument("only", choices=["mirrored"], nargs="?")
    given = arguments.parse_args()
    words: list[str] = []
    with tempfile.TemporaryDirectory(prefix="helix-mutants-") as made:
        copy = Path(made) / "copy"
        shutil.copytree(
            ROOT,
            copy,
            symlinks=True,
            ignore=shutil.ignore_patterns(".venv", ".git", ".*_cache", "dist"),
        )
        # All are drawn at once, since somebody may edit the files meanwhile.
        mutants = tuple(draw_mutants(given.seed, given.count, ROOMS_BY_NAME[given.rooms]))
        for number, mutant in enumerate(mutants, 1):
            word, test = who_notices(mutant, copy, only_mirrored=given.only is not None)
            words.append(word)
            was = " ".join(mutant.was.split())[:90]
            sys.stdout.write(f"{number:3} {word:8} {mutant.path}:{mutant.line} {was}  {test}\n")
            sys.stdout.flush()
    noticed = words.count("noticed")
    near = words.count("near")
    sys.stdout.write(
        f"{noticed} of {given.count} are noticed by the mirrored tests, {near} more by others of the room\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
