"""Describes the state of a shared workspace in words."""

from helix_desktop.gui.common.figure_formats import format_time_of_day
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.translation import format_count, tr, translate_name
from helix_desktop.gui.workbench_types import SharingStatus


def describe_sharing_briefly(status: SharingStatus) -> str:
    """Describes it in a few words, for the line below the workspace's name; empty if not shared."""
    if status.state == "away":
        return tr("Shared: offline since {time}", time=format_time_of_day(status.since))
    if status.state == "waiting":
        return format_count(
            status.waiting, "Shared: {n} change to send", "Shared: {n} changes to send"
        )
    return translate_name("sharing", status.state)


def describe_sharing_fully(status: SharingStatus) -> str:
    """Describes it in full sentences, with what prevents syncing."""
    unsent_sentence = format_count(
        status.waiting,
        "{n} change has not been sent yet. The change is stored on this computer.",
        "{n} changes have not been sent yet. The changes are stored on this computer.",
    )
    since = format_time_of_day(status.since)
    sentences = [translate_name("sharing in full", status.state, time=since)]
    cannot_send = status.state in ("away", "refused")
    if status.state == "waiting" or (status.waiting and cannot_send):
        sentences.append(unsent_sentence)
    if status.why:
        sentences.append(translate_sentences(status.why))
    return "\n".join(filter(None, sentences))
