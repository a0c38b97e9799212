"""`helix-desktop replay`: what it reads, prints and writes, and how it refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from helix_desktop import cli


def session(folder: Path, name: str = "a.jsonl", *, steps: int = 6) -> Path:
    lines: list[Mapping[str, object]] = [
        {"role": "user", "content": "You must never touch golden.json. Begin."}
    ]
    for number in range(steps):
        call = {
            "id": f"c{number}",
            "function": {"name": "read", "arguments": '{"path": "src/module_file.py"}'},
        }
        lines.append({"role": "assistant", "content": f"Step {number}", "tool_calls": [call]})
        lines.append(
            {
                "role": "tool",
                "tool_call_id": f"c{number}",
                "content": "some_long_identifier = 1\n" * 900,
            }
        )
    path = folder / name
    path.write_text(
        "\n".join(map(json.dumps, [*lines, {"role": "assistant", "content": "Done."}])),
        encoding="utf-8",
    )
    return path


def run(*arguments: object) -> int:
    return cli.main(["replay", *map(str, arguments)])


def test_one_line_per_session_and_a_total(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session(tmp_path)
    session(tmp_path, "b.jsonl")
    assert run(tmp_path) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0].startswith("layered · window 128,000")
    assert "a.jsonl" in lines[2]
    assert "b.jsonl" in lines[3]
    assert lines[4].startswith("total")
    assert "layered 2/2 b.jsonl: 14 messages" in said.err


def test_json_has_the_shape_that_is_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(session(tmp_path), "--json", "--policy", "helix", "--window", "200000") == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["policy"], value["window"]) == ("helix", 200_000)
    assert value["total"]["steps"] == value["sessions"][0]["steps"] == 7
    assert value["total"]["illegal_requests"] == 0
    assert value["total"]["undo_identical"] is True


def test_policies_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(session(tmp_path), "--compare", "layered,none", "--json") == 0
    policies = json.loads(capsys.readouterr().out)["policies"]
    assert list(policies) == ["layered", "none"]
    assert policies["layered"]["total"]["sent"] <= policies["none"]["total"]["sent"]


def test_thresholds_and_prices_can_be_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = session(tmp_path)
    assert (
        run(
            path,
            "--json",
            "--set",
            "admission_tokens=60000",
            "--set",
            "admission_batch_tokens=60000",
        )
        == 0
    )
    usual = json.loads(capsys.readouterr().out)["total"]
    assert run(path, "--json", "--set", "admission=off", "--cache-read", "0.5") == 0
    dear = json.loads(capsys.readouterr().out)["total"]
    assert usual["folds"].get("excerpt", 0) == dear["folds"].get("excerpt", 0) == 0
    assert dear["billed"] > usual["billed"]
    assert run(path, "--json", "--set", "admission=off", "--cache-read", "0.5") == 0
    assert json.loads(capsys.readouterr().out)["total"]["billed"] == dear["billed"]


def test_bad_lines_are_named_and_the_rest_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = session(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + "\n{oops\n", encoding="utf-8")
    assert run(path) == 0
    assert f"{path}, line 15: this is not a JSON object" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policy", "laered"], "Did you mean 'layered'"),
        (["--set", "admision=off"], "Did you mean 'admission'"),
        (["--set", "nothing"], "Use --set key=value"),
    ],
)
def test_wrong_use_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(session(tmp_path, steps=1), *arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--window", "many"], ["--window", "5"], ["--cache-read", "-1"], ["--stand-in", "drunk"]],
)
def test_arguments_that_cannot_be_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(session(tmp_path, steps=1), *arguments)
    assert ended.value.code == 2


def test_a_missing_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "none.jsonl") == 1
    assert "cannot be read" in capsys.readouterr().err
