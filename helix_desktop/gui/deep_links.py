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
_SOURCE_SUFFIXES = "|py|jsx?|rb|pl|lua|php"
if sys.platform == "win32":  # Windows would run these files.
    _SOURCE_SUFFIXES = ""
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
    scheme, _, path = link.strip().partition("://")
    if scheme.casefold() == SCHEME and len(link) <= LONGEST:
        for kind, form in _FORMS.items():
            match = form.fullmatch(path.rstrip("/"))
            if match is not None:
                return _build_place(kind, match.groupdict(default=""))
    raise InvalidInput(
        "This link doesn't lead to anything in Helix Desktop.",
        remedy="Links can open pages and entries, but they cannot start anything.",
    )


def _build_place(kind: str, values: dict[str, str]) -> WindowPlace:
    digest: Digest | None = None
    if values.get("digest"):
        digest = Digest.from_hex(values["digest"])
    return WindowPlace(
        kind,
        values.get("workspace", ""),
        values.get("conversation", ""),
        int(values.get("seq") or 0),
        digest,
        values.get("fold", ""),
    )


def format_deep_link(place: WindowPlace) -> str:
    if place.kind == "settings":
        return f"{SCHEME}://settings"
    path = f"{SCHEME}://workspace/{place.workspace}"
    if place.kind == "conversation" and place.seq:
        return f"{path}/conversation/{place.conversation}/{place.seq}"
    if place.kind == "conversation":
        return f"{path}/conversation/{place.conversation}"
    if place.kind == "entry":
        return f"{path}/entry/{place.digest}"
    if place.kind == "fold":
        return f"{path}/fold/{place.conversation}/{place.fold}"
    return path


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
    is_executable = bool(mode & 0o111)
    if SHOWN_FILE.fullmatch(path.name) and stat.S_ISREG(mode) and not is_executable:
        open_in_desktop_program(path)
    else:
        open_in_desktop_program(path.parent)
