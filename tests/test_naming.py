"""Names explain themselves no worse than they did. Who makes a figure better
tightens its limit here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.naming import NamingFigures, list_shared_functions, measure_names

LEAST = {"functions_in_one_file_percent": 96.0}
MOST = {
    "one_word_functions_percent": 3.0,
    "shared_class_names_percent": 1.0,
    "file_names_twice": 0,
}
PACKAGE = {
    "ports.py": """
from typing import Protocol

class Journal(Protocol):
    def append(self, fact: str) -> None: ...
    def read(self) -> str: ...
""",
    "files.py": """
import argparse

class FileJournal:
    def __init__(self) -> None:
        self.path = ""  # where it lies
    def append(self, fact: str) -> None: ...
    def read(self) -> str: ...
    def sync_to_disk(self) -> None: ...

class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None: ...

class QuietParser(Parser):
    def add_silently(self) -> None: ...
""",
    "sub/files.py": """
class Parser:
    def append(self, fact: str) -> None: ...

def open_all() -> None:
    def each() -> None: ...
""",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        path = tmp_path / "sample" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "sample"


@pytest.mark.usefixtures("no_garbage")
def test_names_are_as_good_as_they_were() -> None:
    figures = measure_names()
    worse = [
        f"{name}: {getattr(figures, name)} < {limit}"
        for name, limit in LEAST.items()
        if getattr(figures, name) < limit
    ]
    worse += [
        f"{name}: {getattr(figures, name)} > {limit}"
        for name, limit in MOST.items()
        if getattr(figures, name) > limit
    ]
    assert not worse, "Run `python -m tests.naming` and find clearer names."


def test_an_implementation_counts_with_its_protocol_and_a_library_s_method_not_at_all(
    package: Path,
) -> None:
    # append and read of the Protocol, sync_to_disk, add_silently, append of
    # sub/files.py, open_all and each
    assert list_shared_functions(package) == {"append": ["sample.ports", "sample.sub.files"]}
    assert measure_names(package) == NamingFigures(
        functions_in_one_file_percent=71.4,
        one_word_functions_percent=57.1,
        shared_class_names_percent=40.0,
        file_names_twice=1,
    )
