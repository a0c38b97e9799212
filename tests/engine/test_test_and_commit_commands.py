"""Which commands run tests or commit, and what their outputs report."""

from __future__ import annotations

import time

import pytest

from helix_desktop.engine import test_and_commit_commands as commands
from helix_desktop.engine.test_and_commit_commands import ReportedCommit


@pytest.mark.parametrize(
    ("command", "is_last"),
    [
        ("pytest -q", True),
        ("cd src && .venv/bin/python -m pytest -q 2>&1", True),
        ("python -m pytest -q | tail -5", False),
        ("pytest || true", False),
        ("FOO='a b' timeout 60 ./tests/runtests.py model_fields", True),
        ("bash -lc 'cd web; npm run test:unit'", True),
        ("go test ./... && go build", False),
        ("for n in 1 2; do cargo test; done", False),
        ("docker compose exec app pytest -x", True),
        ("uv run --all-extras pytest", True),
        ("make test-unit", True),
        ("python test_fix.py", True),
        ("cat > a.py <<'EOF' && pytest\nx\nEOF", True),
    ],
)
def test_commands_that_run_tests(command: str, is_last: bool) -> None:
    assert commands.runs_tests(command)
    assert commands.is_exit_code_of_tests(command) is is_last


@pytest.mark.parametrize(
    "command",
    [
        "echo 'pytest -q'",
        "cat > run.sh <<'EOF'\npytest\n" + "echo 1\n" * 1_000 + "EOF",
        "pip install pytest",
        "grep -rn pytest .",
        "cat jest.config.js",
        "pytest --version",
        "pytest --collect-only -q",
        "cargo test --no-run",
        "cat > run.sh <<EOF\npytest\nEOF\nls",
        "ls # then pytest",
        "git commit -m 'a; pytest'",
        "",
    ],
)
def test_commands_that_only_name_tests(command: str) -> None:
    assert not commands.runs_tests(command)


def test_commands_of_git_are_found_in_a_line() -> None:
    line = "cd a && git -C b add -A; git -c user.name='x y' commit -qm 'a && b' && git push"
    assert [git.verb for git in commands.find_git_commands(line)] == ["add", "commit", "push"]


@pytest.mark.parametrize(
    ("output", "commit"),
    [
        (
            "[main 1a2b3c4] Split it\n 2 files changed",
            ReportedCommit("main", "1a2b3c4", "Split it"),
        ),
        ("[main (root-commit) 1a2b3c4] x", ReportedCommit("main", "1a2b3c4", "x")),
        ("[detached HEAD 1a2b3c4] x", ReportedCommit("detached", "1a2b3c4", "x")),
        ("On branch main\nnothing to commit, working tree clean", None),
        ("12 [main] a list", None),
    ],
)
def test_the_commit_that_an_output_reports(output: str, commit: ReportedCommit | None) -> None:
    assert commands.find_reported_commit(output) == commit


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("Exit code 1\nFAILED", 1),
        ("Chunk ID: a\nWall time: 2.1 seconds\nProcess exited with code 0\nOutput:\nx", 0),
        ("Exit code: 3\nWall time: 1 seconds\nOutput:\nx", 3),
        ('{"output":"x","metadata":{"exit_code":2,"duration_seconds":1}}', 2),
        ("1 failed\n\nCommand exited with code 1", 1),
        ("all is well", None),
        ("we exit with code 7 here\nand go on", None),
        ("Output:\nExit code: 3\nand more", None),
    ],
)
def test_the_exit_code_that_an_agent_wrote_into_an_output(output: str, code: int | None) -> None:
    assert commands.read_exit_code(output) == code


@pytest.mark.parametrize(
    ("output", "summary"),
    [
        ("F.\n=== 2 failed, 3 passed in 1.20s ===\n", "2 failed, 3 passed in 1.20s"),
        ("Ran 3 tests in 0.1s\n\nFAILED (failures=1)", "Ran 3 tests in 0.1s / FAILED (failures=1)"),
        (
            "Tests:       1 failed, 2 passed, 3 total\nTime: 3s",
            "Tests:       1 failed, 2 passed, 3 total",
        ),
        ("\x1b[31m  4 failing\x1b[0m", "4 failing"),
        ("test result: ok. 3 passed; 0 failed;", "test result: ok. 3 passed; 0 failed;"),
        ('{"output":"3 passed in 1s","metadata":{"exit_code":0}}', "3 passed in 1s"),
        ("it broke\nat the end", "at the end"),
        ("", ""),
    ],
)
def test_the_summary_of_a_test_run(output: str, summary: str) -> None:
    assert commands.find_test_summary(output) == summary


def test_a_failure_before_the_last_suites_is_not_hidden() -> None:
    suites = [f"test result: ok. {number} passed; 0 failed;" for number in range(6)]
    output = "\n".join(["test result: FAILED. 1 passed; 1 failed;", *suites])
    assert commands.find_test_summary(output).startswith("test result: FAILED. 1 passed; 1 failed;")


@pytest.mark.parametrize(
    "run", ["'", '"', "\\", "a;", "((", "A=", "sudo ", "git -C x ", "$(", "-m "]
)
def test_hostile_commands_take_no_quadratic_time(run: str) -> None:
    started = time.thread_time()
    commands.runs_tests(run * (100_000 // len(run)))
    list(commands.find_git_commands(run * (100_000 // len(run))))
    commands.find_test_summary((run * 100 + "\n") * 1_000)
    assert time.thread_time() - started < 2


@pytest.mark.parametrize(
    ("command", "takes_all"),
    [
        ("git commit -am words", True),
        ("git commit --all -m words", True),
        ("git commit -ma", False),
        ("git commit --amend -m words", False),
        ("git commit -m words a.py", False),
    ],
)
def test_whether_a_commit_takes_all_changed_files(command: str, takes_all: bool) -> None:
    (commit,) = commands.find_git_commands(command)
    assert commit.takes_all_changes == takes_all
