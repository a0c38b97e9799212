from __future__ import annotations

from pathlib import Path

from helix_desktop.engine.facts import ConversationStarted
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.store.store_ports import StoreJournal
from helix_desktop.store.store_thread import StoreThread
from helix_desktop.workbench.conversation_list_rows import ConversationListRows


async def test_reading_one_row_again_takes_no_longer_with_many_conversations(tmp_path: Path) -> None:
    """Another machine continues a conversation: with 10,000 here, each time all their rows were read."""
    file, thread = JournalFile(tmp_path / "journal.sqlite3"), StoreThread("store")
    rows, steps = ConversationListRows(StoreJournal(file, thread, lambda: None, lambda: None)), list[int]()
    for count in (10, 300):
        with file.in_one_transaction():
            for number in range(count):
                file.append_in_transaction(f"{count} {number}", [ConversationStarted(f"Title {count}")])
        looked: list[None] = []
        file.connection.set_progress_handler(lambda looked=looked: looked.append(None), 1)  # type: ignore[misc]
        await rows.reread_rows([f"{count} 5", "gone"])
        file.connection.set_progress_handler(None, 1)
        steps.append(len(looked))
    await thread.aclose()
    file.close()
    assert [(row.id, row.title) for row in rows] == [("10 5", "Title 10"), ("300 5", "Title 300")]
    assert steps[1] < 2 * steps[0]
