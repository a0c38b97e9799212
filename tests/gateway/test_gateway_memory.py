"""What the gateway remembers from one request to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helix_desktop.errors import StoreFailed
from helix_desktop.gateway.gateway_memory import NOT_FOLDED, GatewayMemory
from tests.gateway.test_request_handling import QUESTION, understood

Json = Any


@pytest.mark.parametrize(
    ("token", "folds", "why"),
    [
        ("sk-ant-oat01-x", False, NOT_FOLDED),
        ("sk-ant-oat01-x", True, ""),
        ("sk-ant-api-x", False, ""),
    ],
)
def test_what_an_agent_did_last_is_counted_with_why_it_is_not_folded(
    token: str, folds: bool, why: str
) -> None:
    memory = GatewayMemory()
    incoming, request = understood([QUESTION], folds=folds)
    incoming = replace(incoming, headers={"authorization": f"Bearer {token}"})
    for count in (1, 2):
        activity = memory.count_agent_request(request, incoming)
        assert (activity.requests, activity.unfolded) == (count, why)
    assert list(memory.agent_activity) == [request.arrival.agent]


def test_why_requests_are_not_recorded_is_kept_for_the_status() -> None:
    memory = GatewayMemory()
    memory.remember_unrecorded("a", StoreFailed("The disk is full."))
    memory.remember_unrecorded("b", RuntimeError("a mistake"))
    assert memory.unrecorded == {"a": "The disk is full.", "b": "The reason is in the log."}
