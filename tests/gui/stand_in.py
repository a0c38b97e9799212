"""What the fakes of the window's tests are: they may be given wherever the real class
is expected.
"""

from __future__ import annotations

from typing import Any

_ANYTHING: Any = object


class StandIn(_ANYTHING):  # type: ignore[misc] # so that no test has to cast; test_fake_desk.py compares fake and real
    """Fits where the class it stands in for is expected."""
