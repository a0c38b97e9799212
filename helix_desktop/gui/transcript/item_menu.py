"""What the context menu of the chat offers for the item it was opened on."""

from helix_desktop.engine.facts import ModelReplied, PartRef, ToolReturned, UserSaid
from helix_desktop.gui.transcript import chat_intents
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.transcript_item import TranscriptItem, TranscriptItemKind
from helix_desktop.gui.translation import tr


def list_item_intents(items: TranscriptItems, index: int) -> list[tuple[str, chat_intents.ChatIntent]]:
    item = items.all[index]
    if item.recorded is None:
        return []
    found: list[tuple[str, chat_intents.ChatIntent]] = []
    if item.kind is TranscriptItemKind.USER:
        found.append((tr("Edit and resend…"), chat_intents.EditMessage(item.fact_seq)))
    if item.kind is TranscriptItemKind.REPLY:
        found.append((tr("Regenerate"), chat_intents.RegenerateAnswer(item.fact_seq)))
        found.append((tr("What the model saw"), chat_intents.ShowRequest(item.fact_seq)))
    found.append((tr("Fork from here"), chat_intents.ForkConversation(item.fact_seq)))
    found.append((tr("Rewind to here…"), chat_intents.RewindConversation(item.fact_seq)))
    ref = _part_ref_of(items, index, item)
    if ref is not None and ref in items.history.branch.pins:
        found.append((tr("Unpin"), chat_intents.UnpinPart(ref)))
    elif ref is not None:
        found.append((tr("Pin: never fold"), chat_intents.PinPart(ref)))
    return found


def _part_ref_of(items: TranscriptItems, index: int, item: TranscriptItem) -> PartRef | None:
    if item.kind is TranscriptItemKind.CALL:
        state = items.tool_call_state(index)
        return PartRef(state.returned_seq) if isinstance(state.returned, ToolReturned) else None
    if isinstance(item.source_fact, UserSaid):
        return PartRef(item.fact_seq, 0)
    return PartRef(item.fact_seq, item.part) if isinstance(item.source_fact, ModelReplied) else None
