"""What stands below the text of a summary."""

from __future__ import annotations

from dataclasses import replace

from helix_desktop.engine.facts import Folded
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.conversation_timeline import ConversationTimeline
from helix_desktop.gui.timeline.fold_panel import ShownFold, _build_replaced_boxes
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
