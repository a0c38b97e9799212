"""Sessions of opencode."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from helix_desktop.histories import history_reading
from tests.histories import written


def test_what_was_reverted_is_a_branch(tmp_path: Path) -> None:
    path = written.opencode(tmp_path)
    (before,) = history_reading.read_history_file(path).recordings
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("ALTER TABLE session ADD COLUMN revert")
        made.execute("UPDATE session SET revert = ?", (json.dumps({"messageID": "m4"}),))
    stands, branch = history_reading.read_history_file(path).recordings
    assert (stands.session, stands.messages) == ("ses_1", before.messages[:-2])
    assert (branch.session, branch.forked_from, branch.forked_at) == ("ses_1#m4", "ses_1", len(stands.messages))
    assert branch.messages == before.messages
