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
from helix_desktop.processes.folders_of_agents import environment_for_openers

SCHEME = "helix"
LONGEST = 500
_OF_THE_WEB = frozenset({"http", "https", "mailto"})
# A name is never `..`, as no id is: see `fact_encoding.CONVERSATION_ID`.
_NAME = r"(?!\.)[A-Za-z0-9._-]{1,80}"
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

# Files that the desktop's programs only display. What is missing here on purpose might run or
# load something: scripts of a shell, HTML, SVG, documents with macros, programs.
_TEXTS = "txt|md|rst|log|csv|tsv|json|jsonl|yaml|yml|toml|ini|cfg|conf|diff|patch"
_SOURCES = "c|h|cc|cpp|hpp|rs|go|java|kt|swift|ts|tsx|css|scss|sql"
_PICTURES = "png|jpg|jpeg|gif|webp|bmp|pdf"
# Linux shows these in an editor. Windows runs them, and so does macOS: its Python, for example,
# brings a program that runs a .py file when it is opened.
_SCRIPTS = "py|js|jsx|rb|pl|lua|php"


def pattern_of_shown_files(platform: str) -> re.Pattern[str]:
    """Names of files that are displayed, and not run, when they are opened on this platform."""
    endings = f"{_TEXTS}|{_SOURCES}|{_PICTURES}"
    if platform not in ("win32", "darwin"):
        endings += f"|{_SCRIPTS}"
    return re.compile(rf".*\.({endings})", re.IGNORECASE | re.DOTALL)


SHOWN_FILE = pattern_of_shown_files(sys.platform)


@dataclass(frozen=True, slots=True)
class WindowPlace:
    """The target of a link. `kind`: settings, workspace, conversation, entry, fold, or
    changes (of a conversation), to which no link leads from outside.
    `words`: what was searched for, to be marked at the place. They are not part of a link.
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
    workspace = values.get("workspace", "")
    conversation = values.get("conversation", "")
    fold = values.get("fold", "")
    seq = 0
    if values.get("seq"):
        seq = int(values["seq"])
    digest: Digest | None = None
    if values.get("digest"):
        digest = Digest.from_hex(values["digest"])
    return WindowPlace(kind, workspace, conversation, seq, digest, fold)


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
        _open_with_desktop(url)


def open_in_desktop_program(path: Path) -> None:
    """Opens a file of ours or a folder in the desktop's program for it. It may run what it
    opens, so for a file of anybody else, use `open_file_or_its_folder`.
    """
    _open_with_desktop(QUrl.fromLocalFile(str(path)))


def _open_with_desktop(url: QUrl) -> None:
    with environment_for_openers():  # Qt starts `xdg-open` by its name.
        QDesktopServices.openUrl(url)


def open_file_or_its_folder(path: Path) -> None:
    """Opens a file in the desktop's program, or its folder if opening the file might run it."""
    mode = 0  # Of a file that is not there. It has no permissions and is no regular file.
    with suppress(OSError):
        # Not of what a link leads to: that could have another ending, or change meanwhile.
        mode = path.lstat().st_mode
    is_executable = bool(mode & 0o111)
    if SHOWN_FILE.fullmatch(path.name) and stat.S_ISREG(mode) and not is_executable:
        open_in_desktop_program(path)
    else:
        open_in_desktop_program(path.parent)
