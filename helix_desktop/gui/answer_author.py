"""Determines the name above an answer: the connected agent, the imported program, or Helix."""

from collections.abc import Sequence

from helix_desktop.engine.facts import ConversationStarted, Fact, ModelReplied, Recorded
from helix_desktop.gui.translation import tr
from helix_desktop.histories.added_formats import name_of_program

PROGRAM_AUTHOR = "Helix"


def author_of_answer(started: ConversationStarted | None, answer: Fact | None) -> str:
    """Returns the connected agent, the imported program, or this one. `answer` is None
    until it is written.
    """
    if started is not None and started.agent:
        return started.agent
    is_imported = answer is not None and getattr(answer, "request", None) is None
    if started is not None and started.origin.kind and is_imported:
        return name_of_program(started.origin.kind) or tr("Agent")
    return PROGRAM_AUTHOR


def agent_of_conversation(recorded: Sequence[Recorded]) -> str:
    """Returns the connected agent, or the program that recorded the conversation; empty
    if it is our own.
    """
    if not recorded:
        return ""
    started = recorded[0].fact
    if not isinstance(started, ConversationStarted):
        return ""
    return started.agent or name_of_program(started.origin.kind)


def name_over_answer(
    started: ConversationStarted | None, answer: Fact | None, chosen_model: str
) -> str:
    """Returns the name above an answer: its author, or the model for an answer of this program. If
    the provider appends a date to `chosen_model`, the name stays, so that it does not change at the
    end.
    """
    author = author_of_answer(started, answer)
    if author != PROGRAM_AUTHOR:
        return author
    _provider, _slash, chosen_name = chosen_model.rpartition("/")
    name = chosen_name
    if isinstance(answer, ModelReplied):
        _provider, _slash, name = answer.model.rpartition("/")
    if chosen_name and name.startswith(f"{chosen_name}-"):
        name = chosen_name
    return name or author
