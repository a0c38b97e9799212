from __future__ import annotations

import pytest

from helix_desktop.gui.transcript.file_references import (
    FileReference,
    find_file_reference_at,
    find_file_references,
)


@pytest.mark.parametrize(
    ("text", "path", "first", "last"),
    [
        ("see src/lock/manager.rs:118 for it", "src/lock/manager.rs", 118, 118),
        ("src/a.py:12: def count(", "src/a.py", 12, 12),
        ("src/a.py:12:5: error", "src/a.py", 12, 12),
        ("in lock.py:3-9.", "lock.py", 3, 9),
        ("docs/a.md#L10-L20", "docs/a.md", 10, 20),
        ('File "tests/test_a.py", line 33, in test', "tests/test_a.py", 33, 33),
        ("src\\main.cs(14,3): error CS1002", "src\\main.cs", 14, 14),
        ("/home/me/project/notes.txt is new", "/home/me/project/notes.txt", 0, 0),
        ("see terms.pdf, page 2.", "terms.pdf", 2, 2),
        ("(docs/terms.pdf p. 12)", "docs/terms.pdf", 12, 12),
        ("siehe terms.pdf, Seite 3", "terms.pdf", 3, 3),
        ("参见 terms.pdf，第 4 页", "terms.pdf", 4, 4),
        ("notes.md, page 2", "notes.md", 0, 0),
        ("./run.sh", "./run.sh", 0, 0),
        ("(README.md)", "README.md", 0, 0),
        ("the file summary.html.", "summary.html", 0, 0),
        ("C:\\work\\a.py:7", "C:\\work\\a.py", 7, 7),
        ("pkg.mod/v2.1/a_b-c.tsx", "pkg.mod/v2.1/a_b-c.tsx", 0, 0),
        (".github/workflows/ci.yml:3", ".github/workflows/ci.yml", 3, 3),
        ("in web/.eslintrc.json", "web/.eslintrc.json", 0, 0),
        ("Makefile:12: *** missing separator.", "Makefile", 12, 12),
        ("add it to .gitignore.", ".gitignore", 0, 0),
        ("(docker/Dockerfile)", "docker/Dockerfile", 0, 0),
        ("bin/run:7: not found", "bin/run", 7, 7),
        ('File "bin/run", line 7, in main', "bin/run", 7, 7),
        ("/etc/passwd:3", "/etc/passwd", 3, 3),
        ("./configure:5-9", "./configure", 5, 9),
    ],
)
def test_a_path_is_found_with_its_line(text: str, path: str, first: int, last: int) -> None:
    (found,) = find_file_references(text)
    assert (found.path, found.first_line, found.last_line) == (path, first, last)


@pytest.mark.parametrize(
    "text",
    [
        "e.g. this, i.e. that, etc.",
        "version 3.5 of 2.0.1",
        "https://example.org/docs/page.html",
        "and/or, yes/no",
        "3/4:5 at 10/12:30",
        "https://example.org/page:80",
        "the Makefiles, my.Makefile-like",
        "a .5 of ..gitignore",
        "os.path.join(a, b)",
        "user@example.org",
        "12.345,67 and 1.000",
        "x" * 5_000 + " a.py",
    ],
)
def test_what_is_no_path_is_none(text: str) -> None:
    assert list(find_file_references(text)) == []


def test_the_reference_under_a_position() -> None:
    text = "a.py:1 and b.py:2"
    assert find_file_reference_at(text, 12) == FileReference(11, 17, "b.py", 2, 2)
    assert find_file_reference_at(text, 8) is None
