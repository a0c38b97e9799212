"""The account of requests that went on unread."""

from __future__ import annotations

from pathlib import Path

from helix_desktop.engine.facts import Usage
from helix_desktop.workbench.unread_requests import (
    NOTHING_KEPT,
    UnreadRequest,
    UnreadSum,
    describe_unread_requests,
    sum_of_unread_requests,
    unread_requests_of_workspace,
)

REPORTED = UnreadRequest(1.0, "Codex", "gpt-5", Usage(1200, 1000, 0, 34, cost=0.0123))
BY_LENGTH = UnreadRequest(2.0, "Codex", "", Usage(300), is_estimate=True)


def test_what_is_known_of_the_cost_is_said_apart_from_what_is_not() -> None:
    assert describe_unread_requests(UnreadSum()) == ""
    assert describe_unread_requests(sum_of_unread_requests([REPORTED])) == (
        "1 request went on unread, so no conversation has what it cost: 1,200 tokens in and 34 out ($0.0123)."
    )
    assert describe_unread_requests(sum_of_unread_requests([BY_LENGTH, BY_LENGTH])) == (
        "2 requests went on unread, so no conversation has what they cost: about 600 tokens, by their length, of 2 requests whose cost is not known."
    )
    assert describe_unread_requests(sum_of_unread_requests([REPORTED, BY_LENGTH])) == (
        "2 requests went on unread, so no conversation has what they cost: 1,200 tokens in and 34 out ($0.0123), "
        "and about 300 tokens, by its length, of 1 request whose cost is not known."
    )


def test_the_account_is_read_as_it_was_written_but_for_lines_of_another_version(
    tmp_path: Path,
) -> None:
    account = unread_requests_of_workspace(tmp_path)
    assert account.read_unread_requests() == []
    account.append_unread_request(REPORTED)
    with (tmp_path / "unread-requests.jsonl").open("ab") as file:
        file.write(b'[]\n{"time": 1}\nnot json\n')
    account.append_unread_request(BY_LENGTH)
    assert account.read_unread_requests() == [REPORTED, BY_LENGTH]
    NOTHING_KEPT.append_unread_request(REPORTED)
    assert NOTHING_KEPT.read_unread_requests() == []
