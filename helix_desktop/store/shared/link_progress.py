"""Notes of this machine on the shared store: what was sent, which tombstones were obeyed, and what must
still be forgotten there. One small file in the workspace. Without it, everything is compared again.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path

from helix_desktop import atomic_files
from helix_desktop.errors import WrittenByNewerVersion
from helix_desktop.fast_dataclass import dataclass

PROGRESS_FILE = "shared.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class LinkProgress:
    """`sent`: entries up to this number are in the store or need not be. `obeyed`: the mark of the last
    tombstones applied. `published`: when used rows were last announced. `burying`: entries to forget there,
    and their chunks (0: unknown). `renewing`: entries to describe anew. `space`: workspace and store.
    """

    space: str = ""
    machine: str = field(default_factory=lambda: secrets.token_hex(16))
    sent: int = 0
    obeyed: int = 0
    contact: float = 0.0
    published: float = 0.0
    burying: Mapping[str, int] = field(default_factory=dict)
    renewing: Sequence[str] = ()

    def progress_if_same_space(self, space: str) -> "LinkProgress":
        """Return these notes if they are about this store, or else empty ones."""
        return self if self.space == space else LinkProgress(space, self.machine)


def read_link_progress(folder: Path) -> LinkProgress:
    try:
        held = json.loads((folder / PROGRESS_FILE).read_text(encoding="utf-8"))
        if int(held.pop("version")) > VERSION:
            raise WrittenByNewerVersion(
                "The local record of the shared store was written by a newer version of Helix Desktop.",
                remedy="Update Helix Desktop.",
            )
        return LinkProgress(**held)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return LinkProgress()


def write_link_progress(folder: Path, noted: LinkProgress) -> None:
    """Write the notes. They are on disk when this returns."""
    atomic_files.write_file_atomically(
        folder / PROGRESS_FILE, json.dumps({"version": VERSION, **asdict(noted)}), private=True
    )
