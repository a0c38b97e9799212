"""`tour`: everything once, without a network, and a report that adds up with the journal."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from helix_desktop import cli


def test_the_report_adds_up_with_the_journal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tour"
    assert cli.main(["tour", "--json", "--out", str(out)]) == 0
    report = json.loads(capfd.readouterr().out)
    assert json.loads((out / "report.json").read_text()) == report
    assert "| saved |" in (out / "report.md").read_text()
    (journal,) = out.glob("home/workspaces/*/journal.sqlite3")
    with closing(sqlite3.connect(journal)) as connection:
        facts = [json.loads(text) for (text,) in connection.execute("SELECT fact FROM facts ORDER BY seq")]
    assert report["facts"] == len(facts)
    assert report["sent"] == sum(fact.get("usage", {}).get("input", 0) for fact in facts)
    folds = [fact for fact in facts if fact["fact"] == "Folded"]
    assert report["folded_tokens"] == sum(fold["tokens_before"] for fold in folds)
    assert sum(report["folds"].values()) == len(folds)
    assert report["folds"]["handover"] == 1
    assert report["undo_identical"]
    assert report["recalls"] >= 2
    assert set(report["recalled"]) == {digest for fold in folds for digest in fold["entries"]}
    assert 0.25 < report["saved"] < 1  # beside a summary at the limit of the window
    details = report["details"]
    assert details["found"] == details["kept"] + details["added"] + details["entry"]


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    assert cli.main(["tour", "--out", str(folder)]) == 2
    assert "is not empty" in capfd.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("reader", ["gone", "full"])
def test_a_reader_who_has_seen_enough_or_a_full_file_is_no_mistake_of_ours(reader: str, tmp_path: Path) -> None:
    if reader == "full" and not Path("/dev/full").exists():
        pytest.skip("a full device")
    program = [sys.executable, "-m", "helix_desktop", "tour", "--out", str(tmp_path / "tour")]
    if reader == "full":
        with open("/dev/full", "wb") as full:  # noqa: PTH123
            ran = subprocess.run(program, stdout=full, stderr=-1, check=False)
        code, said = ran.returncode, ran.stderr
    else:
        with subprocess.Popen(program, stdout=-1, stderr=-1) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            running.stdout.close()
            code, said = running.wait(60), running.stderr.read()
    if reader == "gone":
        assert (code, said) == (0, b"")
    else:
        assert code == 1
        assert said.startswith(b"The disk is full"), said
        assert said.count(b"\n") == 1
