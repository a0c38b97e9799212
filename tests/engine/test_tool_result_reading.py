"""What a call did, read from its arguments and its output."""

from __future__ import annotations

import json
import time

import pytest

from helix_desktop.engine import tool_result_reading


def changed(tool: str, **given: object) -> list[str]:
    arguments = json.dumps(given)
    found = tool_result_reading.parse_call_arguments(arguments)
    return list(
        tool_result_reading.find_changed_paths(
            tool, found, tool_result_reading.command_of_call(tool, found, arguments), arguments
        )
    )


@pytest.mark.parametrize(
    ("tool", "given", "files"),
    [
        ("write_file", {"path": "a.py", "content": "see b.py"}, ["a.py"]),
        ("Edit", {"file_path": "a.py", "old_string": "x", "new_string": "y"}, ["a.py"]),
        ("edit", {"path": "a.py", "oldText": "x", "newText": "y"}, ["a.py"]),
        ("MultiEdit", {"file_path": "a.py", "edits": []}, ["a.py"]),
        ("editor", {"command": "view", "path": "a.py"}, []),
        ("editor", {"command": "create", "path": "a.py", "file_text": "x"}, ["a.py"]),
        ("read_file", {"path": "a.py"}, []),
        ("bash", {"command": "cat > new.py <<'EOF'\nx > y\nEOF"}, []),
        ("bash", {"command": "node -e 'const f = () => import(`./a.js`)'"}, []),
        ("bash", {"command": "echo '<a>Logout</a>' > x.html"}, []),
        (
            "apply_patch",
            {"input": "*** Begin Patch\n*** Update File: a b.py\n@@\n*** Add File: c.py\n+x"},
            ["a b.py", "c.py"],
        ),
        (
            "apply_patch",
            {"input": "*** Begin Patch\n*** Add File: ä.py\n*** Update File: src\\new.py\n@@"},
            ["ä.py", "src\\new.py"],
        ),
        (
            "shell",
            {"command": ["apply_patch", "*** Begin Patch\n*** Delete File: d.py\n*** End Patch"]},
            ["d.py"],
        ),
        (
            "shell",
            {
                "command": [
                    "bash",
                    "-lc",
                    "apply_patch <<'E'\n*** Begin Patch\n*** Update File: e.py\n*** Move to: f.py\nE",
                ]
            },
            ["e.py", "f.py"],
        ),
        ("bash", {"command": "pytest 2>&1 | tail > /dev/null"}, []),
        ("bash", {"command": "grep -n x a.py"}, []),
        ("bash", {"command": "# x -> y\nsed -i '' 's/x => y/z -> y/' a.py"}, []),
    ],
)
def test_the_files_a_call_changes(tool: str, given: dict[str, object], files: list[str]) -> None:
    assert changed(tool, **given) == files


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n  x\nValueError: bad",
        "bash: foo: command not found",
        "E   assert 1 == 2",
        "make: *** [all] Error 2",
        "\x1b[1m\x1b[31mE       AttributeError: no such thing\x1b[0m",
    ],
)
def test_a_command_that_failed_says_why(text: str) -> None:
    assert tool_result_reading.describe_failure(text, ok=True, command=True)
    assert not tool_result_reading.describe_failure(f"a file\n{text}", ok=True, command=False)


def test_what_only_mentions_an_error_is_no_failure() -> None:
    assert (
        tool_result_reading.describe_failure(
            "12: raise ValueError\n13: # Error: no", ok=True, command=True
        )
        == ""
    )


def test_a_tool_that_says_it_failed_says_why_in_its_words_and_a_command_in_its_last_line() -> None:
    said = "not found in file.\nText: x"
    assert (
        tool_result_reading.describe_failure(said, ok=False, command=False)
        == "not found in file. Text: x"
    )
    assert tool_result_reading.describe_failure(said, ok=False, command=True) == "Text: x"


def test_an_output_that_is_nothing_but_an_error_is_a_failure_of_any_tool() -> None:
    assert (
        tool_result_reading.describe_failure(
            "Error: the card is not known\n", ok=True, command=False
        )
        == "Error: the card is not known"
    )
    assert (
        tool_result_reading.describe_failure(
            "Error: one\nof a file that was read", ok=True, command=False
        )
        == ""
    )


def test_what_a_person_pastes_says_what_failed_as_programs_end_or_with_a_place_in_a_file() -> None:
    pasted = "CI fails:\n  app/auth.ts:35:11 lint/noImplicitAnyLet\nError: it ended\nsee app/auth.ts:35 for more\nat 12:30:45 today"
    assert tool_result_reading.find_pasted_errors(pasted) == [
        "app/auth.ts:35:11 lint/noImplicitAnyLet",
        "Error: it ended",
    ]


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        ("cat > new.py <<'EOF'\nx > y\nEOF", True),
        ("mv a.py b.py && rm -f c.py", True),
        ("sed -i 's/x => y/z -> y/' a.py", True),
        ("pytest 2>&1 | tail > /dev/null", False),
        ("grep -n x a.py", False),
    ],
)
def test_a_command_that_seems_to_change_files_has_a_mark_on_the_timeline(
    command: str, changes: bool
) -> None:
    assert tool_result_reading.guess_if_command_changes_files(command) is changes


def test_what_is_cut_says_so() -> None:
    assert tool_result_reading.shorten_with_mark("x" * 20, 20) == "x" * 20
    assert tool_result_reading.shorten_with_mark("x" * 21, 20) == "x" * 14 + " [cut]"
    why = tool_result_reading.describe_failure("Error: " + "y" * 500, ok=False, command=True)
    assert why.endswith(" [cut]")
    assert len(why) == tool_result_reading.LONGEST_REASON


def test_commands_that_prove_something() -> None:
    assert tool_result_reading.is_verifying_command("cd a && python -m pytest -q")
    assert tool_result_reading.is_verifying_command("npm run check")
    assert not tool_result_reading.is_verifying_command("cat Makefile.md")
    assert not tool_result_reading.is_verifying_command("cat > run.sh <<EOF\npytest\nEOF")


def test_the_open_tasks_of_a_list() -> None:
    tasks = [
        {"content": "write", "status": "pending"},
        {"step": "read", "status": "in_progress"},
        {"content": "x", "status": "completed"},
    ]
    assert tool_result_reading.find_open_tasks({"todos": tasks}) == ["write", "read"]
    assert tool_result_reading.find_open_tasks({"plan": []}) == []
    assert tool_result_reading.find_open_tasks({"plan": "later"}) is None
    # Nothing says which of these are open, so it must not be said that none is.
    assert tool_result_reading.find_open_tasks({"tasks": ["write", "read"]}) is None
    assert tool_result_reading.find_open_tasks({"tasks": [{"prompt": "Look for x"}]}) is None
    assert tool_result_reading.is_verifying_command("git add -A && git commit -m x")
    assert not tool_result_reading.is_verifying_command("git status")


def test_two_calls_try_the_same_where_they_run_the_same_program() -> None:
    def subject(line: str) -> str:
        return tool_result_reading.key_shared_by_attempts("bash", {"command": line}, line)

    assert subject("cd a && pytest -q") == subject("pytest -x tests")
    assert subject("npm run build") != subject("git status")


@pytest.mark.parametrize("opening", ["<<a", "<<a\n", "<<ab ", "<<-'a' \n", "<<"])
def test_here_documents_without_an_end_take_no_quadratic_time(opening: str) -> None:
    """A pattern holds the interpreter: for a minute the window would not be painted."""
    command = opening * (60_000 // len(opening)) + "a" * 10_000 + "\npytest -q"
    start = time.thread_time()
    assert tool_result_reading.is_verifying_command(command)
    assert time.thread_time() - start < 2


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        ("cat > a <<'EOF'\nx\nEOF\npytest", "cat > a \npytest"),
        ("cat <<EOF\n<<END\nEOF\nmake <<-END\n END\nEND", "cat \nmake "),
        ("cat <<A <<B\na\nA\nb\nB\nls", "cat  \nls"),
        ("cat <<'EOF' > a && pytest\nx\nEOF\nls", "cat  > a && pytest\nls"),
        ("cat <<-EOF\n\tx\n\tEOF\nls", "cat \nls"),
        ("cat <<'END-OF.x'\nx\nEND-OF.x\nls", "cat \nls"),
        ("grep a <<< EOF\nls\nEOF", "grep a <<< EOF\nls\nEOF"),
        ("cat <<EOF\nEOFS\n EOF\nmake", "cat <<EOF\nEOFS\n EOF\nmake"),
        ('cat << "E"\nE', "cat "),
        ("cat <<\\E\nx\nE\nls", "cat \nls"),
        ("echo 1", "echo 1"),
    ],
)
def test_here_documents_are_left_out_of_a_command(command: str, rest: str) -> None:
    assert tool_result_reading.strip_here_documents(command) == rest


def test_a_file_written_from_a_here_document_is_a_change() -> None:
    assert tool_result_reading.guess_if_command_changes_files("cat <<'EOF' > a.py\nx\nEOF")
    long_text = "word > than\n" * 1_000
    command = f"wc -l <<'EOF'\n{long_text}EOF"
    assert not tool_result_reading.guess_if_command_changes_files(command)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ('{"file_path": "/app/solve.py", "content": "import numpy"}', "/app/solve.py"),
        ('{"content": "import numpy as np", "file_path": "/app/so', "/app/so"),
        ('{"command": "python3\\n  solve.py", "description": "Run it"}', "python3 solve.py"),
        ('{"command": "view", "path": "src/lock.rs"}', "view src/lock.rs"),
        ('{"path": "src", "pattern": "fn lock"}', "fn lock src"),
        ('{"todo": "Größe messen"}', "Größe messen"),
        ('{"query": "a\\u0000b\\ud800c"}', "a b?c"),
        ('{"lines": [1, 2]}', '{"lines": [1, 2]}'),
        ("no JSON at\n all", "no JSON at all"),
        ("", ""),
    ],
)
def test_an_output_is_named_by_what_its_call_is_about(arguments: str, name: str) -> None:
    assert tool_result_reading.describe_call_as_source(arguments) == name


def test_a_name_of_an_output_is_short() -> None:
    assert (
        tool_result_reading.describe_call_as_source(json.dumps({"command": "x" * 9_000}))
        == "x" * 200
    )
