"""Whatever a program writes that is not read yet is said. Files made from real ones, with tables,
kinds and fields under other names, as a new version would write them.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.histories import history_finding, history_reading, unknown_shapes
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.history_rows import ReadingReport
from tests.faults import unknown_shapes as trial_of_unknown_shapes
from tests.histories import written
from tests.histories.test_conversation_restoring import FIXTURES, RECORDED

FILES = {
    "claude-code": FIXTURES / RECORDED["claude"][0] / RECORDED["claude"][1],
    "codex": FIXTURES / RECORDED["codex"][0] / RECORDED["codex"][1],
    "pi": FIXTURES / RECORDED["pi"][0] / RECORDED["pi"][1],
    "gemini-cli": FIXTURES
    / "gemini-cli/0.61/project/chats/session-2026-11-21T02-16-e1dea853.jsonl",
}
NATIVE = Path("/work/shared/traces/native")
TRIALS = 25


def read(path: Path, kind: str) -> tuple[list[Any], ReadingReport]:
    report = ReadingReport()
    return list(history_reading.read_sessions(path, report, kind)), report


def sentences(path: Path, kind: str) -> list[str]:
    report = read(path, kind)[1]
    return [*report.sentences_about_unknown(), *report.complaints]


@pytest.mark.parametrize("kind", sorted(FILES))
def test_what_a_program_wrote_is_known_to_the_last_field(kind: str) -> None:
    assert sentences(FILES[kind], kind) == []


@pytest.mark.parametrize("kind", sorted(set(written.KINDS) - {"openai", "anthropic"}))
def test_what_our_tests_write_is_known(kind: str, tmp_path: Path) -> None:
    assert sentences(written.KINDS[kind](tmp_path), kind) == []


@pytest.mark.skipif(not NATIVE.is_dir(), reason="these traces are beside the project")
def test_what_pi_1_6_and_an_ended_turn_of_codex_have_more_is_known(tmp_path: Path) -> None:
    tool = {"name": "read", "description": "reads", "parameters": {"type": "object"}}
    system: dict[str, Any] = {
        "role": "system",
        "content": "",
        "sections": {"docs": "x"},
        "toolsAdded": [tool],
    }
    cost = {"input": 0.1, "output": 0.1, "cacheRead": 0, "cacheWrite": 0, "total": 0.2}
    usage: dict[str, Any] = {
        "input": 1,
        "output": 1,
        "cacheRead": 0,
        "cacheWrite": 0,
        "totalTokens": 2,
    }
    usage |= {"cost": cost | {"totalFromProvider": False}, "cacheWrite1h": 0}
    reply: dict[str, Any] = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Done."}],
        "usage": usage,
    }
    reply |= {"stopReason": "stop", "rawStopReason": "end_turn", "durationMs": 250}
    rows: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "s", "timestamp": "2026-11-28T02:18:31.977Z", "cwd": "/work"}]  # fmt: skip
    for number, message in enumerate((system, {"role": "user", "content": "Hello"}, reply)):
        row: dict[str, Any] = {
            "type": "message",
            "id": f"m{number}",
            "timestamp": "2026-11-28T02:18:32.467Z",
        }
        rows.append(row | {"parentId": None, "message": message})
    written.lines(tmp_path / "2026-11-28T02-18-31-977Z_s.jsonl", rows)
    assert sentences(tmp_path / "2026-11-28T02-18-31-977Z_s.jsonl", "pi") == []

    codex_rows = [json.loads(line) for line in FILES["codex"].read_text("utf-8").splitlines()]
    aborted: dict[str, Any] = {"type": "turn_aborted", "turn_id": "t", "reason": "interrupted"}
    aborted |= {"started_at": 1795832312, "completed_at": 1795832313, "duration_ms": 800}
    codex_rows.append({"timestamp": "2026-11-28T02:18:32.467Z", "type": "event_msg", "payload": aborted})  # fmt: skip
    written.lines(tmp_path / FILES["codex"].name, codex_rows)
    assert sentences(tmp_path / FILES["codex"].name, "codex") == []


def test_traces_of_other_people_are_known() -> None:
    for path in NATIVE.rglob("*.jsonl"):
        assert sentences(path, path.relative_to(NATIVE).parts[0]) == []


def places_of_names(row: dict[str, Any], kind: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Every field of a row that a reader could want, with the object in which it stands."""
    known = unknown_shapes.known_shapes(kind)
    assert known is not None
    for name, value in row.items():
        yield row, name
        inner = value if isinstance(value, list) else [value]
        for item in inner if name not in known.free else ():
            if isinstance(item, dict):
                yield from places_of_names(item, kind)


def rename_a_field(rows: list[dict[str, Any]], kind: str, chance: random.Random) -> str:
    """Rename a field wherever it stands in messages, and return its name."""
    places = [
        place
        for row in rows
        if not unknown_shapes.is_row_of_notes(kind, row)
        for place in places_of_names(row, kind)
    ]
    name = chance.choice(sorted({name for _, name in places}))
    for holder, own in places:
        if own == name and own in holder:
            holder[f"{own}V2"] = holder.pop(own)
    return name


def rename_a_kind(rows: list[dict[str, Any]], chance: random.Random) -> str:
    """Rename a kind of row, or of what is in one, wherever it stands, and return its name."""
    holders = [row for row in rows if isinstance(row.get("type"), str)]
    holders += [row["payload"] for row in rows if isinstance(row.get("payload"), dict)]
    holders = [holder for holder in holders if isinstance(holder.get("type"), str)]
    name: str = chance.choice(sorted({holder["type"] for holder in holders}))
    for holder in holders:
        if holder["type"] == name:
            holder["type"] = f"{name}_v2"
    return name


@pytest.mark.parametrize("kind", sorted(FILES))
def test_no_renamed_field_or_kind_is_silent(kind: str, tmp_path: Path) -> None:
    text = FILES[kind].read_text("utf-8")
    for trial in range(TRIALS):
        chance = random.Random(f"{kind} {trial}")
        rows = [json.loads(line) for line in text.splitlines()]
        renamed = (
            rename_a_kind(rows, chance) if trial % 3 == 0 else rename_a_field(rows, kind, chance)
        )
        path = written.lines(tmp_path / str(trial) / FILES[kind].name, rows)
        assert sentences(path, kind), (trial, renamed)


def test_no_renamed_table_or_column_of_a_database_is_silent(tmp_path: Path) -> None:
    for number, table in enumerate(("session", "message", "part")):
        share = tmp_path / str(number) / ".local" / "share"
        path = written.opencode(share)
        with closing(sqlite3.connect(path)) as made, made:
            made.execute(f"ALTER TABLE {table} RENAME TO {table}_v3")
        said = sentences(path, "opencode")
        assert any(f"the table {table}_v3" in sentence for sentence in said), table
        places = HistoryPlaces(tmp_path / str(number), {})
        assert len(list(history_finding.find_unread_databases(places))) == 1
        assert [*history_finding.find_histories(places)], "never taken for nothing"
    for table, column in (("message", "data"), ("part", "data"), ("part", "message_id"), ("message", "session_id")):  # fmt: skip
        path = written.opencode(tmp_path / f"{table} {column}")
        with closing(sqlite3.connect(path)) as made, made:
            made.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO {column}_v3")
        assert sentences(path, "opencode"), column


def test_what_is_unknown_is_counted_kept_and_said_with_the_version(tmp_path: Path) -> None:
    rows = [
        *written.claude_session(),
        written.claude_line(9, "thought-graph", 8),
        written.claude_said(10, 9, "more", mood="good", message_v2={}),
    ]
    path = written.lines(tmp_path / "session-1.jsonl", rows)
    (session,), report = read(path, "claude-code")
    assert [message.text for message in session.messages][-1] == "more"
    assert report.unknown == Counter(
        {"thought-graph": 1, "the field mood": 1, "the field message_v2": 1}
    )
    assert [json.loads(line)["uuid"] for line in report.unread] == ["u10", "u9"]
    (sentence,) = report.sentences_about_unknown()
    assert sentence == (
        "Something that Claude Code 2.1.197 writes is not read yet: the field message_v2 (1), "
        "the field mood (1), thought-graph (1). It is kept as it is. "
        "Its versions 1.0 to 2.1.332 were seen."
    )


def test_names_within_what_a_tool_was_given_are_free() -> None:
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"anything": {"at": "all"}}}
    row = {"type": "assistant", "message": {"content": [call]}}
    assert unknown_shapes.unknown_fields("claude-code", row) == set()
    row["message"]["content"][0]["effort_v2"] = 1  # type: ignore[index]
    assert unknown_shapes.unknown_fields("claude-code", row) == {"effort_v2"}
    assert unknown_shapes.unknown_fields("messages", {"anything": 1}) == set()


def test_many_names_are_counted() -> None:
    found = Counter({f"field {number}": 1 for number in range(12)})
    sentence = unknown_shapes.describe_unknown_shapes("codex", "", found, is_kept=False)
    assert "and 4 more. Its file stays as it is." in sentence
    assert sentence.startswith("Something that Codex writes is not read yet: ")


def test_what_the_recorder_found_is_noted_for_the_check_of_the_installation(tmp_path: Path) -> None:
    assert unknown_shapes.read_noted_sentences(tmp_path) == []
    unknown_shapes.note_sentences(tmp_path, ["one", "two"])
    assert unknown_shapes.read_noted_sentences(tmp_path) == ["one", "two"]
    (tmp_path / unknown_shapes.NOTED).write_text('{"no": "list"}')
    assert unknown_shapes.read_noted_sentences(tmp_path) == []


def test_what_a_newer_version_may_write_otherwise_is_said_or_read_as_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Values that are deeper, higher, in lists, in other forms: see the trial for many more."""
    made = trial_of_unknown_shapes.main(["--files", "14", "--seed", "1"])
    assert made == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"timestamp": "27/11/2026 18:00:00"}, {"timestamp in another form"}),
        ({"timestamp": None}, set()),
        ({"timestamp": 1_764_266_400}, set()),
        ({"type": None}, {"type in another form"}),
        ({"isMeta": "yes"}, {"isMeta in another form"}),
        ({"message": [{"role": "user"}]}, {"message in another form"}),
        ({"message": {"content": [["words"]]}}, {"content in another form"}),
        ({"message": {"usage": {"input_tokens": "5"}}}, {"input_tokens in another form"}),
        ({"message": {"input_tokens": 5}}, {"input_tokens in another place"}),
        ({"message": {"usage": {"input_tokens": 5}}}, set()),
        ({"type": "custom-title", "customTitle": "A copy (restored)"}, set()),
        ({"type": "ai-title", "aiTitle": "What it is about"}, set()),
    ],
)
def test_a_field_in_another_form_or_place_is_named(fields: dict[str, Any], said: set[str]) -> None:
    assert unknown_shapes.unknown_fields("claude-code", {"type": "user", **fields}) == said


def test_a_new_column_of_a_table_that_is_read_is_said(tmp_path: Path) -> None:
    path = written.goose(tmp_path / ".local" / "share")
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("ALTER TABLE messages ADD COLUMN branch TEXT")
    (sentence,) = sentences(path, "goose")
    assert "the column branch of the table messages (1)" in sentence
    (found,) = history_finding.find_unread_databases(HistoryPlaces(tmp_path, {}))
    assert found == sentence


@pytest.mark.parametrize(
    ("kind", "row", "said"),
    [
        # What a reader looks for stands in certain fields alone, so one level higher is elsewhere.
        (
            "codex",
            {"type": "session_meta", "payload": {"text": "Be brief."}},
            {"text in another place"},
        ),
        (
            "codex",
            {"type": "session_meta", "payload": {"base_instructions": {"text": "Be brief."}}},
            set(),
        ),
        (
            "copilot-cli",
            {"type": "tool.execution_complete", "data": {"result": {"data": {"content": "ls"}}}},
            {"data in another place"},
        ),
        # What each reply took is known to the last field, whatever it is in.
        (
            "qwen-code",
            {"type": "assistant", "usageMetadata": {"value": {"promptTokenCount": 5}}},
            {"value"},
        ),
        (
            "qwen-code",
            {"type": "assistant", "usageMetadata": {"promptTokenCount": "5"}},
            {"promptTokenCount in another form"},
        ),
        (
            "cline",
            {"role": "assistant", "metrics": {"tokens": {"promptV2": 5}}},
            {"promptV2"},
        ),
        # Rows that are no messages, but of which a reader takes something.
        ("pi", {"type": "session", "id": "s", "cwdV2": "/work"}, {"cwdV2"}),
        (
            "copilot-cli",
            {
                "type": "session.start",
                "data": {"sessionId": "s", "copilotVersion": "1", "context": {"cwdV2": "/work"}},
            },
            {"cwd in another place"},
        ),
        (
            "copilot-cli",
            {
                "type": "session.start",
                "data": {"sessionId": "s", "copilotVersion": 1, "context": {"cwd": "/", "x": 1}},
            },
            {"copilotVersion in another form"},
        ),
    ],
)
def test_what_a_reader_takes_from_a_row_is_missed(
    kind: str, row: dict[str, Any], said: set[str]
) -> None:
    assert not unknown_shapes.is_row_of_notes(kind, row)
    assert unknown_shapes.unknown_fields(kind, row) == said
