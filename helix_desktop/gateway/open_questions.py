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
        question = {
            "process": os.getpid(),
            "purpose": purpose.value,
            "model": model,
            "input": usage.input,
            "cache_read": usage.cache_read,
        }
        # On a full disk, the question is asked all the same: only its cost may be forgotten.
        with suppress(OSError, StoreFailed):
            atomic_files.write_file_atomically(note, json.dumps(question), private=True)
        try:
            yield
        finally:
            with suppress(OSError):
                note.unlink(missing_ok=True)

    def take_unanswered(self, conversation: str) -> list[Spent]:
        """Return what the questions of an ended process cost, and forget them."""
        unanswered: list[Spent] = []
        notes = self.folder.glob(f"{conversation}-*.json")
        for note in sorted(notes):
            # A note that cannot be read is deleted like the others: nothing else would read it.
            with suppress(OSError, ValueError, KeyError, TypeError):
                question = json.loads(note.read_bytes())
                if question["process"] == os.getpid():
                    continue  # It is still being answered.
                purpose = Purpose(question["purpose"])
                model = str(question["model"])
                usage = Usage(int(question["input"]), int(question["cache_read"]))
                unanswered.append(Spent(purpose, model, usage))
            note.unlink(missing_ok=True)
        return unanswered
