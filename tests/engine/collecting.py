"""Details of messages that are all there at once."""

from __future__ import annotations

from collections.abc import Iterable

from helix_desktop.engine.conversation_details import Detail, DetailCollector, DetailSource


def collect_details(sources: Iterable[DetailSource]) -> list[Detail]:
    """Each detail once, by kind and in the order first seen."""
    collecting = DetailCollector()
    collecting.collect_from_sources(sources, lambda: None)
    return collecting.finish_collecting()
