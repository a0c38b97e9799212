"""Reads from a request how long its provider shall keep it in its cache, where it says so.

Claude Code asks for an hour. Until the first reply says what was written to the cache, only
the request shows it.
"""

from collections.abc import Mapping, Sequence

from helix_desktop.json_values import list_at, object_at, text_at
from helix_desktop.protocols.gateway_message import Json

MOST_MESSAGES_READ = 8  # A client has at most four marks, and some messages only name the field.
USUAL_MARK_SECONDS = 300
_SECONDS = {"5m": 300, "30m": 1_800, "1h": 3_600, "12h": 43_200}


def cache_seconds_asked_for(body: Mapping[str, Json], marked_messages: Sequence[Json]) -> int:
    """Return for how many seconds a request asks its history to be cached. 0: it does not say.

    `marked_messages`: those of its messages that may have a mark, in their order.
    """
    lifetime = text_at(body, "prompt_cache_options", "ttl")  # OpenAI's, for all marks.
    if lifetime:
        return _SECONDS.get(lifetime, 0)
    # Anthropic's mark on the whole request stands behind its last message.
    mark = object_at(body, "cache_control")
    if mark:
        return _seconds_of_mark(mark)
    for message in reversed(marked_messages[-MOST_MESSAGES_READ:]):
        for block in reversed(list_at(message, "content")):
            mark = object_at(block, "cache_control")
            if mark:
                return _seconds_of_mark(mark)
    return 0


def _seconds_of_mark(mark: Mapping[str, Json]) -> int:
    return _SECONDS.get(text_at(mark, "ttl"), USUAL_MARK_SECONDS)
