from __future__ import annotations

from tests.providers.conftest import clock, connections

__all__ = ["clock", "connections"]
