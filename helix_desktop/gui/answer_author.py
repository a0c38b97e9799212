"""Finds the name above an answer: the connected agent, the program of an import, or Helix."""

from helix_desktop.engine.facts import ConversationStarted, Fact, ModelReplied
from helix_desktop.gui.translation import tr
from helix_desktop.histories.program_names import NAMES

PROGRAM_AUTHOR = "Helix"


def author_of_answer(started: ConversationStarted | None, answer: Fact | None) -> str:
    """The connected agent, the program of an imported history, or this one. `answer`: None until written."""
    if started is not None and started.agent:
        return started.agent
    imported = isinstance(answer, ModelReplied) and answer.request is None
    if started is not None and started.origin.kind and imported:
        return NAMES.get(started.origin.kind, tr("Agent"))
    return PROGRAM_AUTHOR


def name_over_answer(started: ConversationStarted | None, answer: Fact | None, chosen_model: str) -> str:
    """What stands over an answer in the chat: the author, or the model's name for an answer of this program. `chosen_model`: the one
    that was asked. Its name stays where the provider adds a date to it, so that an answer keeps its name when it is complete.
    """
    author = author_of_answer(started, answer)
    if author != PROGRAM_AUTHOR:
        return author
    chosen = chosen_model.rpartition("/")[2]
    answering = answer.model.rpartition("/")[2] if isinstance(answer, ModelReplied) else chosen
    return (chosen if chosen and answering.startswith(f"{chosen}-") else answering) or author
