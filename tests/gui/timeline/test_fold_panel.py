"""What stands below the text of a summary."""

from __future__ import annotations

from dataclasses import replace

from helix_desktop.engine.facts import Folded, Unfolded
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.conversation_timeline import ConversationTimeline
from helix_desktop.gui.timeline.fold_panel import (
    FoldPanel,
    ShownFold,
    _build_replaced_boxes,
)
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from tests.gui.timeline.conftest import Written


def test_the_details_of_a_summary_lead_to_the_text_that_holds_the_rest(
    theme: Theme, written: Written
) -> None:
    recorded = written.facts[-2]
    summary = recorded.fact
    assert isinstance(summary, Folded)
    stored = Digest.of_content(b"details")
    written.facts[-2] = replace(recorded, fact=replace(summary, entries=(stored,)))
    story = ConversationTimeline()
    story.read_all_facts(written.facts)
    shown = ShownFold(story.events[-1], window=128_000, earlier="")
    boxes = list(_build_replaced_boxes(shown, DrawingStyle(theme), 400.0))
    texts = [str(getattr(box, "text", "")) for box in boxes]
    assert any(text.startswith("Important details found: 42.") for text in texts)
    assert stored.short_hex in texts


def test_the_reason_stands_first_and_an_undone_summary_says_what_may_still_be_shortened(
    theme: Theme, written: Written
) -> None:
    """After a summary was undone, another one was tried of later messages, and nothing said so."""
    story = ConversationTimeline()
    story.read_all_facts(written.facts)
    panel = FoldPanel(theme)
    panel.resize(500, 400)
    shown = ShownFold(story.events[-1], window=128_000, earlier="")
    panel.show_fold_document(shown)
    assert panel.document.all_text().startswith("Why it was shortened: ")
    assert "You undid this" not in panel.document.all_text()
    written.add(Unfolded("h2"))
    story.read_next_fact(written.facts[-1])
    panel.show_fold_document(shown)
    assert "Later messages can be." in panel.document.all_text()
