"""Keeps account of agents' requests that became no facts: they went on as they came, because they
were not understood or could not be recorded.

No conversation has them, so what they cost would be in no sum. Nothing of their text is kept.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import Usage
from helix_desktop.fast_dataclass import dataclass

NAME = "unread-requests.jsonl"


@dataclass(frozen=True, slots=True)
class UnreadRequest:
    """A request that its provider has answered. `is_estimate`: the provider has not said what it
    took, so that `usage` is what its length says.
    """

    time: float  # In seconds since 1970.
    agent: str
    model: str
    usage: Usage
    is_estimate: bool = False


@dataclass(slots=True)
class UnreadSum:
    """What is known of several. `unknown`: so many of them have been estimated, at
    `unknown_tokens`, which are not in `input`. Field names are keys of the status and of `cost`.
    """

    requests: int = 0
    input: int = 0
    output: int = 0
    cost: float = 0.0
    unknown: int = 0
    unknown_tokens: int = 0

    def add_unread_request(self, request: UnreadRequest) -> None:
        self.requests += 1
        if request.is_estimate:
            self.unknown += 1
            self.unknown_tokens += request.usage.input
            return
        self.input += request.usage.input
        self.output += request.usage.output
        self.cost += request.usage.cost

    def add_unread_sum(self, figures: Any) -> None:
        """Add what the status of a registration says."""
        self.requests += int(figures["requests"])
        self.input += int(figures["input"])
        self.output += int(figures["output"])
        self.cost += float(figures["cost"])
        self.unknown += int(figures["unknown"])
        self.unknown_tokens += int(figures["unknown_tokens"])


def sum_of_unread_requests(requests: Iterable[UnreadRequest]) -> UnreadSum:
    total = UnreadSum()
    for request in requests:
        total.add_unread_request(request)
    return total


def describe_unread_requests(total: UnreadSum) -> str:
    """Return a sentence about them, or an empty text if there are none."""
    if not total.requests:
        return ""
    known: list[str] = []
    if total.requests > total.unknown:
        reported = f"{total.input:,} tokens in and {total.output:,} out"
        if total.cost:
            reported += f" (${total.cost:.4f})"
        known.append(reported)
    if total.unknown:
        lengths = "its length, of 1 request"
        if total.unknown > 1:
            lengths = f"their length, of {total.unknown:,} requests"
        known.append(f"about {total.unknown_tokens:,} tokens, by {lengths} whose cost is not known")
    requests = "1 request went on unread, so no conversation has what it cost"
    if total.requests > 1:
        requests = (
            f"{total.requests:,} requests went on unread, so no conversation has what they cost"
        )
    return f"{requests}: {', and '.join(known)}."


@dataclass(frozen=True, slots=True)
class UnreadRequests:
    """Those of one workspace, of all processes. Without a file, none are kept."""

    file: Path | None = None

    def append_unread_request(self, request: UnreadRequest) -> None:
        """Add a request. On a full disk, it is in no sum."""
        if self.file is None:
            return
        line = json.dumps(asdict(request)).encode() + b"\n"
        with suppress(OSError):
            # One call writes a whole line, also if other processes add theirs.
            handle = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(handle, line)
            finally:
                os.close(handle)

    def read_unread_requests(self) -> list[UnreadRequest]:
        """Read all of them. A line that cannot be read is left out: another version wrote it."""
        if self.file is None:
            return []
        requests: list[UnreadRequest] = []
        with suppress(OSError):
            for line in self.file.read_bytes().splitlines():
                with suppress(ValueError, TypeError, KeyError):
                    requests.append(_parse_line(json.loads(line)))
        return requests


NOTHING_KEPT = UnreadRequests()


def unread_requests_of_workspace(folder: Path) -> UnreadRequests:
    return UnreadRequests(folder / NAME)


def _parse_line(entry: Any) -> UnreadRequest:
    usage_entry = entry["usage"]
    usage = Usage(
        input=int(usage_entry["input"]),
        cache_read=int(usage_entry["cache_read"]),
        cache_write=int(usage_entry["cache_write"]),
        output=int(usage_entry["output"]),
        cost=float(usage_entry["cost"]),
    )
    time = float(entry["time"])
    agent = str(entry["agent"])
    model = str(entry["model"])
    is_estimate = bool(entry["is_estimate"])
    return UnreadRequest(time, agent, model, usage, is_estimate)
