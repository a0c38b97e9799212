"""The notes of a machine on its shared store: what was sent, which tombstones were
obeyed, and what must still be forgotten there. One small file in the workspace. Without
it, everything is compared again.
"""

import hashlib
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path

from helix_desktop.atomic_files import write_file_atomically
from helix_desktop.errors import WrittenByNewerVersion
from helix_desktop.fast_dataclass import dataclass

PROGRESS_FILE = "shared.json"
VERSION = 1
# What Linux calls this computer; missing elsewhere and in many containers.
COMPUTER = Path("/etc/machine-id")
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class LinkProgress:
    """`sent`: entries up to this number are in the store or need not be. `obeyed`: the
    mark of the last tombstones applied. `published`: when used rows were last
    announced. `burying`: entries to forget there, and their chunks (0: unknown).
    `renewing`: entries to describe anew. `space`: workspace and store.
    """

    space: str = ""
    machine: str = field(default_factory=lambda: secrets.token_hex(16))
    sent: int = 0
    obeyed: int = 0
    contact: float = 0.0
    published: float = 0.0
    burying: Mapping[str, int] = field(default_factory=dict)
    renewing: Sequence[str] = ()

    def is_announcement_due(self, now: float) -> bool:
        """Whether used rows must be announced again: each day, as others remove rows that
        nobody announces. A time far in the future was noted while the clock was wrong.
        """
        return abs(now - self.published) > _DAY

    def without_notes(self, buried: Collection[str], renewed: Collection[str]) -> "LinkProgress":
        """Return this without the notes of these entries. Others may have been noted meanwhile."""
        still_burying = dict(self.burying)
        for name in buried:
            still_burying.pop(name, None)
        still_renewing = [name for name in self.renewing if name not in renewed]
        return replace(self, burying=still_burying, renewing=still_renewing)

    def progress_if_same_space(self, space: str) -> "LinkProgress":
        """Return these notes if they are about this store, or else empty ones."""
        if self.space == space:
            return self
        return LinkProgress(space, self.machine)


def read_link_progress(folder: Path) -> LinkProgress:
    """Read the notes. Missing or unreadable ones count as none, as all is compared again then. In a
    copy of a workspace's folder, the machine gets a name of its own.
    """
    try:
        content = json.loads((folder / PROGRESS_FILE).read_text(encoding="utf-8"))
        if int(content.pop("version")) > VERSION:
            raise WrittenByNewerVersion(
                "The local record of the shared store was written by a newer version of Helix Desktop."
            )
        progress = LinkProgress(**content)
        machine = build_machine_name(folder, progress.machine)
    except (FileNotFoundError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return LinkProgress(machine=build_machine_name(folder))
    if machine == progress.machine:
        return progress
    # This is a copy of the folder, which has announced nothing yet.
    return replace(progress, machine=machine, published=0.0)


def build_machine_name(folder: Path, known_name: str = "") -> str:
    """Return the name by which a shared store knows this workspace on this computer: `known_name` if
    it still fits the folder, or a new one.

    A name has 16 bytes (hex): half is random, and half is made from that and from the folder's
    place. So a copy of the folder gets another name: with the same one, each would remove rows that
    only the other uses.
    """
    folder_identity = ""
    with suppress(OSError):
        folder_identity = f"{folder.stat().st_ino}"
        folder_identity += COMPUTER.read_text(encoding="utf-8")
    name_for_this_folder = _complete_machine_name(known_name[:16], folder_identity)
    if known_name == name_for_this_folder:
        return known_name
    return _complete_machine_name(secrets.token_hex(8), folder_identity)


def _complete_machine_name(random_half: str, folder_identity: str) -> str:
    digest = hashlib.sha256(f"{random_half} {folder_identity}".encode()).hexdigest()
    return random_half + digest[:16]


def write_link_progress(folder: Path, progress: LinkProgress) -> None:
    """Write the notes. They are on disk when this returns."""
    write_file_atomically(
        folder / PROGRESS_FILE, json.dumps({"version": VERSION, **asdict(progress)}), private=True
    )
