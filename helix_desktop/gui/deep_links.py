"""Deep links: `helix://` addresses from a closed list that lead to places in the window and do
nothing else.
helix://workspace/<id>                              a workspace
helix://workspace/<id>/conversation/<id>            a conversation
helix://workspace/<id>/conversation/<id>/<seq>      a message of it
helix://workspace/<id>/entry/<sha-256>              an entry of the cache
helix://workspace/<id>/fold/<conversation>/<fold>   a fold in the timeline
helix://settings                                    the settings
"""

import re
import stat
import sys
from contextlib import suppress
from pathlib import Path

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass

SCHEME = "helix"
LONGEST = 500
_OF_THE_WEB = frozenset({"http", "https", "mailto"})
_NAME = r"[A-Za-z0-9._-]{1,80}"
_FORMS = {
    "settings": re.compile(r"settings"),
    "workspace": re.compile(rf"workspace/(?P<workspace>{_NAME})"),
    "conversation": re.compile(
        rf"workspace/(?P<workspace>{_NAME})/conversation/(?P<conversation>{_NAME})(?:/(?P<seq>\d{{1,9}}))?"
    ),
    "entry": re.compile(rf"workspace/(?P<workspace>{_NAME})/entry/(?P<digest>[0-9a-f]{{64}})"),
    "fold": re.compile(
        rf"workspace/(?P<workspace>{_NAME})/fold/(?P<conversation>{_NAME})/(?P<fold>{_NAME})"
    ),
}

# The desktop only displays these files. It might run other files, so we open their folder instead.
_SHOWN_SUFFIXES = r"txt|md|rst|log|csv|tsv|jsonl?|ya?ml|toml|ini|cfg|conf|[ch]|cc|[ch]pp|rs|go|java|kt|swift|tsx?|s?css|sql|diff|patch|png|jpe?g|gif|webp|bmp|pdf"
_SOURCE_SUFFIXES = (
    "" if sys.platform == "win32" else "|py|jsx?|rb|pl|lua|php"
)  # Windows would run these files.
SHOWN_FILE = re.compile(rf".*\.({_SHOWN_SUFFIXES}{_SOURCE_SUFFIXES})", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class WindowPlace:
    """The target of a link. `kind`: settings, workspace, conversation, entry or fold.
    `words`: a search's words.
    """

    kind: str
    workspace: str = ""
    conversation: str = ""
    seq: int = 0
    digest: Digest | None = None
    fold: str = ""
    words: str = ""


def parse_deep_link(link: str) -> WindowPlace:
    """Parses a link into a place; raises InvalidInput for anything that is not on the list."""
    head, _, path = link.strip().partition("://")
    path = path.rstrip("/")
    for kind, form in _FORMS.items():
        found = form.fullmatch(path) if head.casefold() == SCHEME and len(link) <= LONGEST else None
        if found is not None:
            names = found.groupdict(default="")
            seq, digest = int(names.pop("seq", "") or 0), names.pop("digest", "")
            return WindowPlace(
                kind, **names, seq=seq, digest=Digest.from_hex(digest) if digest else None
            )
    raise InvalidInput(
        "This link doesn't lead to anything in Helix Desktop.",
        remedy="Links can open pages and entries, but they cannot start anything.",
    )


def format_deep_link(place: WindowPlace) -> str:
    if place.kind == "settings":
        return f"{SCHEME}://settings"
    path = f"{SCHEME}://workspace/{place.workspace}"
    if place.kind == "conversation":
        return f"{path}/conversation/{place.conversation}" + (f"/{place.seq}" if place.seq else "")
    if place.kind == "entry":
        return f"{path}/entry/{place.digest}"
    return f"{path}/fold/{place.conversation}/{place.fold}" if place.kind == "fold" else path


def open_in_browser(address: str) -> None:
    """Opens a web address that the user agreed to. Other kinds of addresses are ignored."""
    url = QUrl(address)
    if url.scheme().casefold() in _OF_THE_WEB:
        QDesktopServices.openUrl(url)


def open_in_desktop_program(path: Path) -> None:
    """Opens a file in the desktop's program for it, if the file is not executable."""
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(path)))


def open_file_or_its_folder(path: Path) -> None:
    """Opens a file in the desktop's program, or its folder if opening the file might run it."""
    mode = 0
    with suppress(OSError):
        mode = path.lstat().st_mode
    is_harmless = SHOWN_FILE.fullmatch(path.name) and stat.S_ISREG(mode) and not mode & 0o111
    open_in_desktop_program(path if is_harmless else path.parent)
