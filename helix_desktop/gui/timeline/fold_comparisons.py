"""Compares a fold with what was before it: two handovers by section, or what the model saw before and after."""

from collections.abc import Sequence

from PySide6.QtWidgets import QWidget

from helix_desktop.engine.facts import Recorded
from helix_desktop.engine.history.moment import Moment
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.shared.past_moments import PastMomentLoader, format_view_as_text
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline import fold_sentences
from helix_desktop.gui.timeline.conversation_timeline import TimelineEvent
from helix_desktop.gui.translation import tr
from helix_desktop.gui.views.text_comparison import TextComparisonDialog
from helix_desktop.gui.workbench_types import Conversation


def compare_documents(
    earlier: TimelineEvent, event: TimelineEvent, doing: BackgroundRunner, theme: Theme, parent: QWidget
) -> None:
    """A handover beside the one before it, section by section."""
    old, new = (fold_sentences.split_document_sections(each.current_folds[0].text) for each in (earlier, event))
    titles = (fold_sentences.describe_event_title(earlier), fold_sentences.describe_event_title(event))
    TextComparisonDialog(doing, theme, titles, fold_sentences.align_document_sections(old, new), parent).open()


def compare_views_around_fold(
    event: TimelineEvent,
    conversation: Conversation,
    past: PastMomentLoader,
    doing: BackgroundRunner,
    theme: Theme,
    parent: QWidget,
) -> None:
    """What the model saw before a fold and after it, side by side."""
    facts = conversation.state.facts
    name, last = fold_sentences.describe_event_title(event), _last_seq_of_batch(event, facts)

    def show_both(before: Moment, after: Moment) -> None:
        old, new = before.take_view(), after.take_view()
        was, now = before.counted_tokens, after.counted_tokens
        titles = (
            f"{tr('Before {name}', name=name)} · {format_token_count(was)}",
            f"{tr('After {name}', name=name)} · {format_token_count(now)} ({now - was:+,})",
        )
        texts = format_view_as_text(old, facts), format_view_as_text(new, facts)
        TextComparisonDialog(doing, theme, titles, texts, parent).open()

    past.compute_moment_at(
        conversation,
        event.seq - 1,
        lambda before: past.compute_moment_at(conversation, last, lambda after: show_both(before, after)),
    )


def _last_seq_of_batch(event: TimelineEvent, facts: Sequence[Recorded]) -> int:
    names = {fold.fold for fold in event.current_folds}
    last = event.seq
    for recorded in facts[event.seq : event.seq + 4 * len(names)]:
        if getattr(recorded.fact, "fold", "") in names:
            last = recorded.seq
    return last
