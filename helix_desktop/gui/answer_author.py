"""Finds the name shown above an answer: the connected agent, the program it was imported from, or
Helix.
"""

from __future__ import annotations

from helix_desktop.engine.facts import ConversationStarted, Fact, ModelReplied
from helix_desktop.gui.translation import tr
from helix_desktop.histories.program_names import NAMES

PROGRAM_AUTHOR = "Helix"


def author_of_answer(started: ConversationStarted | None, answer: Fact | None) -> str:
    """Of a conversation that began so: the connected agent; for what was imported its program; else this one. `answer`: None while it
    is being written.
    """
    if started is not None and started.agent:
        return started.agent
    imported = isinstance(answer, ModelReplied) and answer.request is None
    if started is not None and started.origin.kind and imported:
        return NAMES.get(started.origin.kind, tr("Agent"))
    return PROGRAM_AUTHOR


def name_over_answer(started: ConversationStarted | None, answer: Fact | None, main_model: str) -> str:
    """What stands over an answer in the chat: the author, or the model's name for an answer of this program. `main_model`: of an
    answer that is being written.
    """
    author = author_of_answer(started, answer)
    model = answer.model if isinstance(answer, ModelReplied) else main_model
    return (author if author != PROGRAM_AUTHOR else model.rpartition("/")[2]) or author
