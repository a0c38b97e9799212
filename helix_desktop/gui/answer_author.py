"""Finds the name shown above an answer: the connected agent, the program it was imported from, or
Helix.
"""

from __future__ import annotations

from helix_desktop.engine.facts import ConversationStarted, Fact, ModelReplied
from helix_desktop.gui.translation import tr
from helix_desktop.histories.program_names import NAMES


def author_of_answer(started: ConversationStarted | None, answer: Fact | None) -> str:
    """Of a conversation that began so: the connected agent; for what was imported its program; else this one. `answer`: None while it
    is being written.
    """
    if started is not None and started.agent:
        return started.agent
    imported = isinstance(answer, ModelReplied) and answer.request is None
    if started is not None and started.origin.kind and imported:
        return NAMES.get(started.origin.kind, tr("Agent"))
    return "Helix"
