"""What can be found: for the box that finds everything, and for `@` and `/` in the composer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from PySide6.QtGui import QAction

from helix_desktop.engine.ports import Hit
from helix_desktop.engine.rows import ConversationRow
from helix_desktop.errors import HelixError, StoreBusy
from helix_desktop.gui.actions import Actions
from helix_desktop.gui.chat.completion import Asked, Offer
from helix_desktop.gui.frame.palette import Find
from helix_desktop.gui.links import Place
from helix_desktop.gui.ports import Brought, Workbench, WorkspaceRow
from helix_desktop.gui.words import tr
from helix_desktop.values import dataclass

Go = Callable[[Place], object]

# Actions that make sense as a command while writing, and what they are called there.
COMMANDS = {
    "new": "new",
    "fork": "fork",
    "rename": "rename",
    "cache": "fold-marker",
    "observe": "fold-observations",
    "reflect": "fold-reflection",
    "handover": "fold-handover",
    "regenerate": "regenerate",
    "attach": "attach",
    "model": "model",
    "policy": "policy",
    "mode": "mode",
    "export": "export-markdown",
    "settings": "settings",
    "tour": "tour",
}


def of_actions(actions: Actions) -> list[Find]:
    return [
        Find(
            each.title,
            actions[each.id].trigger,
            note=each.group,
            key=actions.shortcut(each.id),
            enabled=actions[each.id].isEnabled(),
        )
        for each in actions
        if each.id != "palette"
    ]


def of_conversations(rows: Sequence[ConversationRow], workspace: str, go: Go) -> list[Find]:
    """Newest first; what is in the trash is not found."""

    def find(row: ConversationRow) -> Find:
        place = Place("conversation", workspace, row.id)
        note = tr("archived") if row.archived else tr("conversation")
        return Find(row.title or tr("New conversation"), lambda: go(place), kind="message", note=note)

    newest = sorted((row for row in rows if not row.trashed), key=lambda row: row.updated, reverse=True)
    return [find(row) for row in newest[:500]]


def of_workspaces(rows: Sequence[WorkspaceRow], go: Go) -> list[Find]:
    def find(row: WorkspaceRow) -> Find:
        return Find(row.name, lambda: go(Place("workspace", row.id)), kind="folder", note=tr("workspace"))

    return [find(row) for row in rows]


def of_hits(hits: Sequence[Hit], titles: Mapping[str, str], workspace: str, go: Go, name: str = "") -> list[Find]:
    """Messages and entries a workspace's search found; `name`: of the workspace, where it is not the one in front."""

    def find(hit: Hit) -> Find:
        text = " ".join(hit.snippet.split())[:200]
        if hit.digest is not None:
            note = " · ".join(filter(None, [name, hit.about.tool, hit.about.source, hit.digest.short]))
            return Find(text, lambda: go(Place("entry", workspace, digest=hit.digest)), kind="entry", note=note)
        place = Place("conversation", workspace, hit.conversation, hit.seq)
        return Find(
            text,
            lambda: go(place),
            kind="message",
            note=" · ".join(filter(None, [name, titles.get(hit.conversation, "")])),
        )

    return [find(hit) for hit in hits]


def not_searched(row: WorkspaceRow, error: HelixError | None, go: Go) -> Find:
    """A workspace that could not be searched, or not all of it; choosing it opens it, or says why that cannot be done."""
    words = tr("Not fully searched: the search index is out of date. Open this workspace to update it.")
    if error is not None:
        words = tr("Not searched: this workspace can't be read. Open it to repair it.")
    if isinstance(error, StoreBusy):
        words = tr("Not searched: this workspace is open in another program")
    return Find(words, lambda: go(Place("workspace", row.id)), kind="folder", note=row.name)


def commands(actions: Actions, asked: Asked, brought: Sequence[Brought] = ()) -> list[Offer]:
    """What `/` offers: the folders' own commands and skills, then the program's commands that begin so, then those whose title holds the letters."""
    letters = asked.letters.casefold()
    offers = []
    for name, action in COMMANDS.items():
        title = actions[action].text()
        if actions[action].isEnabled() and (name.startswith(letters) or letters in title.casefold()):
            offers.append(
                (not name.startswith(letters), Offer(f"/{name}", value=actions[action], icon="action", note=title))
            )
    own = [
        Offer(f"/{item.name}", f"/{item.name} ", icon="entry", note=item.about[:80])
        for item in brought
        if letters in item.name.casefold()
    ]
    return [*own, *(offer for _, offer in sorted(offers, key=lambda pair: pair[0]))]


async def mentions(bench: Workbench, asked: Asked) -> list[Offer]:
    """What `@` offers: files of the workspace by name, then entries of the cache by their content."""
    files = await bench.files(asked.letters, 6)
    offers = [Offer(name, f"@{name} ", icon="folder" if name.endswith("/") else "entry") for name in files]
    letters = asked.letters.casefold()
    for server, uri, name in bench.resources():
        if letters and letters in f"{server}:{name} {uri}".casefold():
            offers.append(Offer(f"{server}: {name}", value=Resource(server, uri), icon="entry", note=uri[:60]))
    if len(asked.letters) >= 2:
        hits = await bench.workspace.index.search(asked.letters, limit=12)
        offers += [_entry(hit) for hit in hits if hit.digest is not None][:4]
    return offers


@dataclass(frozen=True, slots=True)
class Resource:
    """What a server offers to be attached."""

    server: str
    uri: str


def _entry(hit: Hit) -> Offer:
    name = " ".join(filter(None, [hit.about.tool, hit.about.source])) or hit.snippet[:60]
    return Offer(name, value=hit.digest, icon="archive", note=hit.digest.short if hit.digest else "")


def run(offer: Offer) -> None:
    """Do what a command of `/` stands for."""
    if isinstance(offer.value, QAction):
        offer.value.trigger()
