"""How things stand with the shared store, in words."""

from __future__ import annotations

from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.shared.figures import clock
from helix_desktop.gui.sharing_port import Standing
from helix_desktop.gui.words import count, numeral, tr


def line(standing: Standing) -> str:
    """In a few words, for the workspace's line; empty where it is not shared."""
    if standing.state == "away":
        return tr("Shared: offline since {time}", time=clock(standing.since))
    if standing.state == "waiting":
        return tr("Shared: {n} waiting", n=numeral(standing.waiting))
    words = {
        "starting": tr("Shared: connecting…"),
        "in step": tr("Shared: in sync"),
        "refused": tr("Shared: needs your attention"),
    }
    return words.get(standing.state, "")


def whole(standing: Standing) -> str:
    """The same in sentences, with what is in the way."""
    waiting = count(
        standing.waiting,
        "{n} change has not been sent yet. It is stored on this computer.",
        "{n} changes have not been sent yet. They are stored on this computer.",
    )
    unsent = [waiting] if standing.waiting else []
    sentences = {
        "off": [tr("This workspace is not shared.")],
        "starting": [tr("Connecting to the shared store…")],
        "in step": [tr("Everything is in sync with the shared store.")],
        "waiting": [waiting],
        "away": [tr("The shared store has not responded since {time}.", time=clock(standing.since)), *unsent],
        "refused": unsent,
    }
    found = sentences.get(standing.state, [])
    return "\n".join([*found, said(standing.why)] if standing.why else found)
