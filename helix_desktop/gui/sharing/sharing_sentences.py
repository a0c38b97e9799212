"""Describes the state of a shared workspace in words."""

from helix_desktop.gui.common.figure_formats import format_time_of_day
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.translation import format_count, tr, translate_name
from helix_desktop.gui.workbench_types import SharingStatus


def describe_sharing_briefly(standing: SharingStatus) -> str:
    """Describes it in a few words, for the line below the workspace's name; empty if not shared."""
    if standing.state == "away":
        return tr("Shared: offline since {time}", time=format_time_of_day(standing.since))
    if standing.state == "waiting":
        return format_count(
            standing.waiting, "Shared: {n} change to send", "Shared: {n} changes to send"
        )
    return translate_name("sharing", standing.state)


def describe_sharing_fully(standing: SharingStatus) -> str:
    """Describes it in full sentences, with what prevents syncing."""
    waiting = format_count(
        standing.waiting,
        "{n} change has not been sent yet. The change is stored on this computer.",
        "{n} changes have not been sent yet. The changes are stored on this computer.",
    )
    since = format_time_of_day(standing.since)
    sentences = [translate_name("sharing in full", standing.state, time=since)]
    cannot_send = standing.state in ("away", "refused")
    if standing.state == "waiting" or (standing.waiting and cannot_send):
        sentences.append(waiting)
    if standing.why:
        sentences.append(translate_sentences(standing.why))
    return "\n".join(filter(None, sentences))
