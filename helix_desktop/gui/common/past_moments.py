"""Computes a conversation's state as of any of its facts, and formats it as text."""

from collections.abc import Callable, Mapping, Sequence

from PySide6.QtCore import QObject

from helix_desktop.engine import facts
from helix_desktop.engine.messages import Block, View
from helix_desktop.engine.state.moment import Moment
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.context_meter import context_kind_name, format_token_count
from helix_desktop.gui.shown_workspace import ShownHistory
from helix_desktop.gui.translation import tr


class PastMomentLoader:
    """Computes one moment at a time. A later request cancels an earlier one."""

    def __init__(self, doing: BackgroundRunner, owner: QObject) -> None:
        self._doing = doing
        self._owner = owner
        self._asked = 0

    def cancel_pending_question(self) -> None:
        self._asked += 1

    def compute_moment_at(
        self, conversation: ShownHistory, seq: int, then: Callable[[Moment], None]
    ) -> None:
        """Calls `then` with the state at the time when `seq` was the newest fact,
        computed in a thread.
        """
        self.cancel_pending_question()
        number = self._asked

        def deliver_moment(moment: Moment) -> None:
            if number == self._asked:
                then(moment)

        self._doing.run_in_background(
            conversation.moment_at(seq), then=deliver_moment, owner=self._owner
        )


def facts_shown_whole(view: View, recorded_facts: Sequence[facts.Recorded]) -> list[facts.Recorded]:
    """Returns the facts that a view shows without folding, such as outputs."""
    shown_facts: list[facts.Recorded] = []
    for block in view.blocks:
        if isinstance(block.source, facts.PartRef):
            # Numbers of facts begin at 1.
            shown_facts.append(recorded_facts[block.source.seq - 1])
    return shown_facts


def format_view_as_text(view: View, texts: Mapping[facts.Stored, str]) -> str:
    """Formats a view as text, block by block. Long outputs are represented by their
    entries. `texts`: short outputs.
    """
    block_texts: list[str] = []
    for block in view.blocks:
        kind = context_kind_name(block.kind)
        source = describe_block_source(block)
        tokens = format_token_count(block.tokens)
        content = format_block_content(block, texts)
        block_texts.append(f"── {kind} · {source} · {tokens} ──\n{content}")
    return "\n\n".join(block_texts)


def describe_block_source(block: Block) -> str:
    """Describes where a block comes from: the number of its fact, or the range that it covers."""
    cover = block.source
    if isinstance(cover, facts.Span):
        return tr("#{first} to #{last}", first=str(cover.first), last=str(cover.last))
    return tr("#{n}", n=str(cover.seq))


def format_block_content(block: Block, texts: Mapping[facts.Stored, str]) -> str:
    content = block.content
    if isinstance(content, facts.Text | facts.Reasoning):
        return content.text
    if isinstance(content, facts.ToolCall):
        return f"{content.name} {content.arguments}"
    if isinstance(content, facts.Attachment):
        content = content.stored
    if content in texts:
        return texts[content]
    size = format_byte_size(content.size)
    return tr("[stored output {hash}, {size}]", hash=content.digest.short_hex, size=size)
