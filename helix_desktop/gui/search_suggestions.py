"""Builds suggestions for the command palette and for `@` and `/` in the message box."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.ports import SearchHit
from helix_desktop.engine.search_query import stem_of_word
from helix_desktop.errors import HelixError, StoreBusy
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.chat.completion_list import CompletionOffer, CompletionRequest
from helix_desktop.gui.common.found_words import find_needle_spans, list_needles_of_query
from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.frame.command_palette import HEADING, PaletteItem
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr, translate_name
from helix_desktop.gui.window_actions import ActionRegistry
from helix_desktop.gui.workbench_types import KnownWorkspace, ProjectItem, Session, Workbench

LEAD = 20  # About this many characters are shown before the first word that was found.
GoToPlace = Callable[[WindowPlace], object]

# The name of the window action that each slash command runs.
COMMANDS: Mapping[str, str] = {
    "new": "new",
    "fork": "fork",
    "rename": "rename",
    "cache": "fold-marker",
    "observe": "fold-observations",
    "reflect": "fold-reflection",
    "handover": "fold-handover",
    "shorten": "fold-handover",
    "regenerate": "regenerate",
    "attach": "attach",
    "model": "model",
    "policy": "policy",
    "mode": "mode",
    "export": "export",
    "settings": "settings",
    "tour": "tour",
}


def suggest_actions(actions: ActionRegistry) -> list[PaletteItem]:
    return [
        PaletteItem(
            each.title,
            actions[each.id].trigger,
            note=each.group,
            key=actions.format_shortcut(each.id),
            enabled=actions[each.id].isEnabled(),
        )
        for each in actions
        if each.id != "palette"
    ]


def suggest_help_pages(show: Callable[[str], object]) -> list[PaletteItem]:
    from helix_desktop.gui.help_dialog import list_help_contents

    return [
        PaletteItem(f"{title}: {about}", partial(show, file), kind="entry", note=tr("Help"))
        for file, title, about in list_help_contents()
    ]


def suggest_conversations(
    rows: Sequence[ConversationListRow], workspace: str, go: GoToPlace
) -> list[PaletteItem]:
    """Suggests conversations, the newest first, without those in the trash."""

    def conversation_suggestion(row: ConversationListRow) -> PaletteItem:
        place = WindowPlace("conversation", workspace, row.id)
        note = tr("archived") if row.archived else tr("conversation")
        return PaletteItem(
            row.title or tr("New conversation"), lambda: go(place), kind="message", note=note
        )

    newest = sorted(
        (row for row in rows if not row.trashed), key=lambda row: row.updated, reverse=True
    )
    return [conversation_suggestion(row) for row in newest[:500]]


def suggest_workspaces(rows: Sequence[KnownWorkspace], go: GoToPlace) -> list[PaletteItem]:
    return [
        PaletteItem(
            row.name,
            partial(go, WindowPlace("workspace", row.id)),
            kind="folder",
            note=tr("workspace"),
        )
        for row in rows
    ]


def suggest_search_hits(
    hits: Sequence[SearchHit],
    titles: Mapping[str, str],
    workspace: str,
    go: GoToPlace,
    words: str = "",
    name: str = "",
) -> list[PaletteItem]:
    """Suggests messages and entries that a search found, equal ones once. `name`: the
    workspace, if not the current one.
    """
    from helix_desktop.engine.strategies.handover import TITLE

    title = translate_name("kind of context", "handover")
    stems, needles = [stem_of_word(word) for word in words.split()], list_needles_of_query(words)

    def search_hit_suggestion(hit: SearchHit) -> PaletteItem:
        text = _cut_to_begin_near_words(" ".join(hit.snippet.replace(TITLE, title).split()), stems)[
            :200
        ]
        if not find_needle_spans(needles, text) and find_needle_spans(needles, hit.about.source):
            text = f"{hit.about.source}: {text}"  # The words are in the call, not in its output.
        if hit.digest is not None:
            place, kind = WindowPlace("entry", workspace, digest=hit.digest), "entry"
            notes = [name, hit.about.tool, hit.about.source, hit.digest.short_hex]
        else:
            place, kind = (
                WindowPlace("conversation", workspace, hit.conversation, hit.seq, words=words),
                "message",
            )
            notes = [name, titles.get(hit.conversation, "")]
        note, similar = " · ".join(filter(None, notes)), not hit.has_all_words
        return PaletteItem(
            text, partial(go, place), kind, note, needles=needles, is_similar=similar
        )

    return list(
        {(item.text, item.note): item for item in map(search_hit_suggestion, hits)}.values()
    )


def group_search_suggestions(finds: Sequence[PaletteItem], *, more: bool) -> list[PaletteItem]:
    """Separates what has all words from what has some, and says so. `more`: the search goes on."""
    unsearched = [find for find in finds if find.kind == "folder"]
    exact = [find for find in finds if not find.is_similar and find.kind != "folder"]
    similar = [find for find in finds if find.is_similar]
    if not similar:
        return [*exact, *unsearched]
    title = tr("Similar:") if exact or more else tr("No exact match. Similar:")
    heading = partial(PaletteItem, act=str, kind=HEADING, enabled=False)
    above = [heading(tr("With all words: {n}", n=len(exact)))] if exact else []
    return [*above, *exact, heading(title), *similar, *unsearched]


def _cut_to_begin_near_words(text: str, stems: Sequence[str]) -> str:
    """Omits text long before the first found word, since a row shows only a beginning."""
    first = min((at for stem in stems if (at := text.casefold().find(stem)) >= 0), default=0)
    return (
        f"…{text[first - LEAD :].partition(' ')[2] or text[first:]}" if first > 2 * LEAD else text
    )


def suggest_unsearched_workspace(
    row: KnownWorkspace, error: HelixError | None, go: GoToPlace
) -> PaletteItem:
    """Suggests opening a workspace that could not be searched completely, or says why
    it cannot be opened.
    """
    words = tr(
        "Not fully searched: the search index is out of date. Open this workspace to update it."
    )
    if error is not None:
        words = tr("Not searched: this workspace cannot be read. Open the workspace to repair it.")
    if isinstance(error, StoreBusy):
        words = tr("Not searched: this workspace is open in another program")
    return PaletteItem(
        words, lambda: go(WindowPlace("workspace", row.id)), kind="folder", note=row.name
    )


def offer_slash_commands(
    actions: ActionRegistry, asked: CompletionRequest, brought: Sequence[ProjectItem] = ()
) -> list[CompletionOffer]:
    """Offers commands for `/`: the exact one, those that begin so, then those that
    contain the letters.
    """
    letters = asked.typed_letters.casefold()
    programs = [
        CompletionOffer(f"/{name}", value=action, icon="action", remark=action.text())
        for name, action in ((name, actions[action]) for name, action in COMMANDS.items())
        if action.isEnabled() and (name.startswith(letters) or letters in action.text().casefold())
    ]
    own = [
        CompletionOffer(f"/{item.name}", f"/{item.name} ", icon="entry", remark=item.about[:80])
        for item in brought
        if letters in item.name.casefold()
    ]
    names, typed = [*own, *programs], f"/{letters}"
    return sorted(
        names, key=lambda offer: (offer.text != typed, not offer.text.casefold().startswith(typed))
    )


async def start_agent_and_offer_commands(
    bench: Workbench, session: Session, asked: CompletionRequest
) -> list[CompletionOffer]:
    """Offers the slash commands of the foreign agent in the conversation, which is
    started for that.
    """
    letters = asked.typed_letters.casefold()
    await bench.acp.start_agent(session.conversation)
    return [
        CompletionOffer(
            f"/{make_safe_text(name)}", f"/{name} ", icon="entry", remark=make_safe_text(about)[:80]
        )
        for name, about in bench.acp.list_agent_commands(session.id).items()
        if letters in name.casefold()
    ]


async def offer_mentions(bench: Workbench, asked: CompletionRequest) -> list[CompletionOffer]:
    """Offers completions for `@`: the workspace's files by name, then entries of the
    cache by content.
    """
    files = await bench.complete_file_paths(asked.typed_letters, 6)
    offers = [
        CompletionOffer(name, f"@{name} ", icon="folder" if name.endswith("/") else "entry")
        for name in files
    ]
    letters = asked.typed_letters.casefold()
    offers += [
        CompletionOffer(
            f"{each.server}: {each.name}",
            value=OfferedResource(each.server, each.uri),
            icon="entry",
            remark=each.uri[:60],
        )
        for each in bench.mcp_servers.list_offered_resources()
        if letters and letters in f"{each.server}:{each.name} {each.uri}".casefold()
    ]
    if len(asked.typed_letters) >= 2 and ":" not in asked.typed_letters:  # Names have no filters.
        hits = await bench.workspace.index.search_index(asked.typed_letters, limit=12)
        offers += [_offer_cache_entry(hit) for hit in hits if hit.digest is not None][:4]
    return offers


@dataclass(frozen=True, slots=True)
class OfferedResource:
    server: str
    uri: str


def _offer_cache_entry(hit: SearchHit) -> CompletionOffer:
    name = " ".join(filter(None, [hit.about.tool, hit.about.source])) or hit.snippet[:60]
    return CompletionOffer(
        name, value=hit.digest, icon="archive", remark=hit.digest.short_hex if hit.digest else ""
    )
