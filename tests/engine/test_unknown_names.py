"""Names, paths and figures of a document that stand in none of its messages."""

from __future__ import annotations

import time

import pytest

from helix_desktop.engine.conversation_details import KEPT_HEADING
from helix_desktop.engine.unknown_names import find_unknown_names

TEXTS = [
    "I changed src/app/reader.py and its read_header().",
    "it took 1,250 ms in 3.5 runs",
    "XmlReader",
]


@pytest.mark.parametrize(
    ("sentence", "names"),
    [
        ("The reader is in reader.py, see read_header.", ""),
        ("It took 1250 ms, 3 times [12, 15].", ""),
        ("The writer is in src/app/writer.py.", "src/app/writer.py"),
        ("Call `parse_all` first.", "parse_all"),
        ("It took 1300 ms.", "1300"),
        ("XmlReader and JsonReader agree.", "JsonReader"),
        ("All is well, on the whole.", ""),
    ],
)
def test_a_name_that_stands_nowhere_is_marked(sentence: str, names: str) -> None:
    document = f"[Summary]\nHandover 1 of a/never.py\n\n## Completed Work\n{sentence}"
    assert find_unknown_names(document, TEXTS) == (
        [f"{names} — {_shown(sentence)}"] if names else []
    )


def _shown(sentence: str) -> str:
    return sentence.replace(" [12, 15]", "")


def test_what_the_program_wrote_itself_is_not_looked_at() -> None:
    state = "State of the work at number 99\n- Last test run [98]: `never_seen`"
    kept = f"## User Preferences\nNothing.\n{KEPT_HEADING}\n- use never/there.py [3]"
    document = f"[Summary]\n{state}\n\n{kept}\n\n## TODO Items\nwrite gone.py"
    assert find_unknown_names(document, TEXTS) == ["gone.py — write gone.py"]


def test_long_documents_and_sources_are_read_in_time() -> None:
    document = "## Completed Work\n" + "\n".join(f"see part_{number}.py" for number in range(300))
    started = time.thread_time()
    assert len(find_unknown_names(document, ["a/b.c " * 500_000])) == 300
    assert time.thread_time() - started < 5
