"""`re.compile` for patterns of modules that the start imports. Each is compiled when it is first used.

Compiling them all took 10 ms of the start, and most of them are not needed before a conversation is shown.
"""

import re
from typing import TYPE_CHECKING, Any

__all__ = ["lazy_pattern"]


class PatternCompiledWhenUsed:
    def __init__(self, pattern: str, flags: int) -> None:
        self._source = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """Gets a method of the compiled pattern and remembers it, so that it costs nothing the next time."""
        found = getattr(re.compile(*self._source), name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    from re import compile as lazy_pattern
else:

    def lazy_pattern(pattern: str, flags: int = 0) -> PatternCompiledWhenUsed:
        return PatternCompiledWhenUsed(pattern, flags)
