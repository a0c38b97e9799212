"""logs.py: one object a line, for the user's eyes alone, and never a secret."""

from __future__ import annotations

import json
import logging
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import logs
from helix_desktop.logs import BLOT, LogRedaction
from tests.conftest import Expect

log = logging.getLogger("helix_desktop.somewhere")


@pytest.fixture
def redaction() -> LogRedaction:
    return LogRedaction()


@pytest.fixture
def file(tmp_path: Path, redaction: LogRedaction) -> Iterator[Path]:
    before = logging.getLogger().level
    stop = logs.start_logging(tmp_path / "logs", redaction)
    yield tmp_path / "logs" / "helix.log"
    stop()
    logging.getLogger().setLevel(before)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_record_is_one_line_whatever_is_in_it(file: Path) -> None:
    log.info("a line\nand another with %s", "ümlaut")
    (said,) = lines(file)
    assert (said["level"], said["from"], said["says"]) == (
        "info",
        "somewhere",
        "a line\nand another with ümlaut",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="the profile's own rights hold there")
def test_only_the_user_can_read_it(file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_known_secrets_are_blotted_out_wherever_they_stand(
    file: Path, redaction: LogRedaction, expect: Expect
) -> None:
    expect("failed with")
    redaction.add_secret_to_redact('pass"word\\1')
    redaction.add_secret_to_redact("abc")  # too short to be told from a word
    try:
        raise ValueError('pass"word\\1 is wrong')
    except ValueError:
        log.exception("failed with %s, abc", 'pass"word\\1')
    text = file.read_text(encoding="utf-8")
    assert "pass" not in text
    (said,) = lines(file)
    assert said["says"] == f"failed with {BLOT}, abc"
    assert (said["error"], said["words"]) == ("ValueError", ""), (
        "an error may quote what a user wrote"
    )
    assert said["trace"][0].startswith("test_logs.py:")


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-abcdefghijklmnop",
        "ghp_0123456789abcdefghij",
        "AIzaSyA0123456789abcdefghijk",
        "xoxb-123456789012-abcdef",
    ],
)
@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "Authorization: Bearer {}",
        "https://host/x?key={}&y=1",
        "http://me:{}@host/",
    ],
)
def test_what_looks_like_a_secret_is_blotted_out(
    redaction: LogRedaction, secret: str, around: str
) -> None:
    assert secret not in redaction(around.format(secret))


@pytest.mark.parametrize(
    "address",
    [
        "https://q7w9secret@host/x",
        "postgresql://me:q7@w9secret@host/x",
        "redis://:w9secret@host/0",
    ],
)
def test_a_token_or_password_in_an_address_is_blotted_out(
    redaction: LogRedaction, address: str
) -> None:
    redacted = redaction(f"no answer from {address} today")
    assert "w9secret" not in redacted
    assert redacted.endswith(("@host/x today", "@host/0 today"))


@pytest.mark.parametrize(
    "harmless", ["risk-averse", "task-list of 30 entries", "https://host/path?page=2", "sk-1"]
)
def test_words_are_left_alone(redaction: LogRedaction, harmless: str) -> None:
    assert redaction(harmless) == harmless


def test_it_rotates_and_keeps_a_few(tmp_path: Path, redaction: LogRedaction) -> None:
    before = logging.getLogger().level
    stop = logs.start_logging(tmp_path, redaction, megabytes=1)
    for number in range(8_000):
        log.info("%d %s", number, "x" * 900)
    stop()
    logging.getLogger().setLevel(before)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == [
        "helix.log",
        *(f"helix.log.{number}" for number in range(1, logs.KEPT_FILES + 1)),
    ]
    assert all(path.stat().st_size <= 1_001_000 for path in tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_no_reason_not_to_start(
    tmp_path: Path, redaction: LogRedaction
) -> None:
    (tmp_path / "logs").write_text("a file is in the way")
    logs.start_logging(tmp_path / "logs", redaction)()


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="only Linux has a file that is always full"
)
def test_a_full_disk_prints_no_traceback_on_the_terminal(
    tmp_path: Path, redaction: LogRedaction, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "helix.log").symlink_to("/dev/full")
    stop = logs.start_logging(tmp_path, redaction)
    log.info("nothing can be written")
    stop()
    assert capsys.readouterr().err == ""
