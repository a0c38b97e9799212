"""Each replay of these tests has its requests judged twice: by the engine's rules, and
by a second opinion on them.
"""

from __future__ import annotations

import pytest

from helix_desktop.engine import request_building
from helix_desktop.engine.messages import Request
from tests import request_legality


@pytest.fixture(autouse=True)
def judge_requests_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    find_violations = request_building.find_violations

    def find_all(request: Request) -> list[str]:
        return [*find_violations(request), *request_legality.find_complaints(request)]

    monkeypatch.setattr(request_building, "find_violations", find_all)
