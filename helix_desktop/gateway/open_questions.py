"""Remembers the questions to agents' models that are not answered yet, in a file each.

The provider bills them even if this process is killed meanwhile, as a handover of 42,000 tokens
was. The next process that opens the conversation records what they cost, by estimate.
"""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from helix_desktop import atomic_files
from helix_desktop.engine.facts import Purpose, Spent, Usage
from helix_desktop.errors import StoreFailed
from helix_desktop.fast_dataclass import dataclass

FOLDER = "open-questions"


@dataclass(frozen=True, slots=True)
class OpenQuestions:
    """The questions about the conversations of one workspace, which only one process has open."""

    folder: Path

    @contextmanager
    def remember_until_answered(
        self, conversation: str, purpose: Purpose, model: str, usage: Usage
    ) -> Iterator[None]:
        """Keep a note of a question. `usage`: what it costs at least."""
        note = self.folder / f"{conversation}-{secrets.token_hex(6)}.json"
        told = {
            "process": os.getpid(),
            "purpose": purpose.value,
            "model": model,
            "input": usage.input,
            "cache_read": usage.cache_read,
        }
        with suppress(OSError, StoreFailed):  # A question is not worth less on a full disk.
            atomic_files.write_file_atomically(note, json.dumps(told), private=True)
        try:
            yield
        finally:
            with suppress(OSError):
                note.unlink(missing_ok=True)

    def take_unanswered(self, conversation: str) -> list[Spent]:
        """Return what the questions of an ended process cost, and forget them."""
        found = []
        for note in sorted(self.folder.glob(f"{conversation}-*.json")):
            with suppress(OSError, ValueError, KeyError, TypeError):
                told = json.loads(note.read_bytes())
                if told["process"] == os.getpid():
                    continue  # It is still being answered.
                usage = Usage(int(told["input"]), int(told["cache_read"]))
                found.append(Spent(Purpose(told["purpose"]), str(told["model"]), usage))
            note.unlink(missing_ok=True)
        return found
