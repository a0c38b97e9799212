"""What this machine has noted of the shared store: how far the cache was sent, which tombstones were obeyed, what is still to
be forgotten there. One small file in the workspace. Without it all is compared again from its start.
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
    """`sent`: entries of the cache up to this number are in the store, or are none that is sent. `obeyed`: the mark up to which
    tombstones were. `published`: when it last said what it uses. `burying`: entries that were forgotten here and not there yet, and how many chunks they have (0: not known).
    `renewing`: entries whose description was changed here and not there yet. `space`: the workspace and store all this is true of.
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
        """The same for this store; what was noted of another one does not hold here."""
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
    """On the disk when this returns."""
    atomic_files.write_file_atomically(
        folder / PROGRESS_FILE, json.dumps({"version": VERSION, **asdict(noted)}), private=True
    )
