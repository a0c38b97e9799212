"""Builds suggestions for the command palette and for `@` and `/` in the message box."""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.ports import VERSION, SearchHit
from helix_desktop.engine.search_query import stem_of_word
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, StoreBusy, shorten_to_line
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.chat.completion_list import CompletionOffer, CompletionRequest
from helix_desktop.gui.common.figure_formats import format_time_ago
from helix_desktop.gui.common.found_words import find_needle_spans, list_needles_of_query
from helix_desktop.gui.common.tool_words import words_for_tool
from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.frame.command_palette import HEADING, PaletteItem
from helix_desktop.gui.shown_workspace import ShownWorkspace, workbench_of_shown
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr, translate_name
from helix_desktop.gui.window_actions import ACTIONS_WITH_CONSEQUENCES, ActionRegistry
from helix_desktop.gui.workbench_types import KnownWorkspace, ProjectItem, Session, Workbench

LONGEST_TEXT = 200  # Longer texts of hits are cut to this many characters.
LONGEST_REMARK = 80
LONGEST_NAME = 60
MOST_CONVERSATIONS = 500
MOST_FILES = 6
MOST_ENTRIES = 4
# What the program itself calls a content that has no name.
NAMELESS_SOURCES = ("message", "details of a conversation")
# What stores the content of a file, or lines of it, with the file as its source.
TOOLS_WITH_FILES = frozenset(
    {VERSION, "read_file", "read", "read_document", "write_file", "edit_file", "edit"}
)
SHORTEST_TELLING_LINE = 20  # Before a found line of fewer characters, its command is shown, too.
LEAD = 20  # About this many characters are shown before the first word that was found.
_MARKDOWN_MARKS = re.compile(r"\*\*|`+|^[-*] ")
GoToPlace = Callable[[WindowPlace], object]

# The name of the window action that each slash command runs.
COMMANDS: Mapping[str, str] = {
    "new": "new",
    "fork": "fork",
    "rename": "rename",
    "old-outputs": "fold-marker",
    "dated-notes": "fold-observations",
    "fewer-notes": "fold-reflection",
    "shorten": "fold-handover",
    "regenerate": "regenerate",
    "attach": "attach",
    "model": "model",
    "long-conversations": "policy",
    "mode": "mode",
    "export": "export",
    "settings": "settings",
    "tour": "tour",
}


def suggest_actions(actions: ActionRegistry) -> list[PaletteItem]:
    items: list[PaletteItem] = []
    for declared in actions.list_searchable_actions():
        if declared.id == "palette":
            continue
        action = actions[declared.id]
        item = PaletteItem(
            declared.title,
            action.trigger,
            note=declared.group,
            key=actions.format_shortcut(declared.id),
            enabled=action.isEnabled(),
            why_not=actions.reason_why_disabled(declared.id),
            search_words=declared.search_words,
            is_only_found_by_words=bool(declared.home),
            answers_questions=True,
            has_consequences=declared.id in ACTIONS_WITH_CONSEQUENCES,
        )
        items.append(item)
    return items


def suggest_actions_of_extensions(run: Callable[[Any], object]) -> list[PaletteItem]:
    """Suggests what allowed extensions have added. `run` gets the chosen AddedAction."""
    # Few have one, so the start does not wait for this module.
    from helix_desktop.extensions.added_actions import list_added_actions

    items: list[PaletteItem] = []
    for action in list_added_actions():
        note = make_safe_text(action.title_of_extension)
        items.append(
            PaletteItem(action.title, partial(run, action), note=note, has_consequences=True)
        )
    return items


def suggest_help_pages(show: Callable[[str], object]) -> list[PaletteItem]:
    """Suggests the pages of the help. `show` gets a page's file."""
    from helix_desktop.gui.help_search import QUESTIONS, list_help_contents

    items: list[PaletteItem] = []
    for entry in list_help_contents():
        open_page = partial(show, entry.file)
        item = PaletteItem(
            entry.line,
            open_page,
            kind="entry",
            note=tr("Help"),
            # The questions of that page are suggested one by one.
            answers_questions=entry.file != QUESTIONS,
        )
        items.append(item)
    return items


def suggest_help_answers(show: Callable[[str, str], object]) -> list[PaletteItem]:
    """Suggests the questions that the help answers. `show` gets a page's file and the question."""
    from helix_desktop.gui.help_search import QUESTIONS, list_help_questions

    items: list[PaletteItem] = []
    for question in list_help_questions():
        item = PaletteItem(
            tr("How do I… {question}", question=question.question),
            partial(show, QUESTIONS, question.question),
            kind="entry",
            note=tr("Help"),
            search_words=question.answer,
            is_only_found_by_words=True,
            answers_questions=True,
        )
        items.append(item)
    return items


def suggest_conversations(
    rows: Sequence[ConversationListRow], workspace: str, go: GoToPlace
) -> list[PaletteItem]:
    """Suggests conversations, the newest first, without those in the trash."""
    rows_to_suggest = [row for row in rows if not row.trashed]
    rows_to_suggest.sort(key=lambda row: row.updated, reverse=True)
    items: list[PaletteItem] = []
    for row in rows_to_suggest[:MOST_CONVERSATIONS]:
        note = tr("conversation")
        if row.archived:
            note = tr("archived")
        go_there = partial(go, WindowPlace("conversation", workspace, row.id))
        title = row.title or tr("New conversation")
        items.append(PaletteItem(title, go_there, kind="message", note=note))
    return items


def suggest_workspaces(rows: Sequence[KnownWorkspace], go: GoToPlace) -> list[PaletteItem]:
    items: list[PaletteItem] = []
    note = tr("workspace")
    for row in rows:
        place = WindowPlace("workspace", row.id)
        go_there = partial(go, place)
        items.append(PaletteItem(row.name, go_there, kind="folder", note=note))
    return items


def suggest_search_hits(
    hits: Sequence[SearchHit],
    titles: Mapping[str, str],
    workspace: str,
    go: GoToPlace,
    query: str = "",
    workspace_name: str = "",
) -> list[PaletteItem]:
    """Suggests messages and entries that a search found, equal ones once, with how many they are.
    `titles`: those of the conversations, by their ids. `workspace_name` is empty for the current
    workspace.
    """
    needles = list_needles_of_query(query)
    stems = [stem_of_word(word) for word in query.split()]
    sources = _map_texts_of_outputs_to_sources(hits)
    item_by_key: dict[EqualHits, PaletteItem] = {}
    counts: Counter[EqualHits] = Counter()
    newest_times: dict[EqualHits, float] = {}
    for hit in hits:
        source = hit.about.source or sources.get(hit.snippet, "")
        if hit.page or source in NAMELESS_SOURCES:
            source = ""  # The note says where it is.
        text = _text_of_hit(hit, source, stems, needles)
        note = _note_of_hit(hit, text, titles)
        key = EqualHits.of_hit(hit, text, note, workspace_name)
        counts[key] += 1
        if hit.time < newest_times.get(key, 0.0):
            continue  # The row leads to the newest of the equal ones.
        newest_times[key] = hit.time
        go_to_hit = partial(go, _place_of_hit(hit, workspace, query))
        icon = _icon_of_hit(hit)
        is_similar = not hit.has_all_words
        item_by_key[key] = PaletteItem(
            text,
            go_to_hit,
            icon,
            note,
            needles=needles,
            is_similar=is_similar,
            workspace=workspace_name,
        )
    items: list[PaletteItem] = []
    for key, item in item_by_key.items():
        counted_item = _say_how_often(item, counts[key])
        items.append(_say_when(counted_item, newest_times[key]))
    return items


@dataclass(frozen=True, slots=True)
class EqualHits:
    """What hits have in common that are one row: the found line, and where it stands."""

    text: str
    note: str
    file: str
    digest: Digest | None

    @classmethod
    def of_hit(cls, hit: SearchHit, text: str, note: str, workspace_name: str) -> "EqualHits":
        """The same line of a file is one row, however often the file was read, changed or stored.
        Outputs of commands with the same line are as many as their contents.
        """
        is_of_file = hit.about.tool in TOOLS_WITH_FILES and hit.about.source
        if is_of_file and not hit.page:
            return cls(text, workspace_name, hit.about.source, None)
        return cls(text, note, "", hit.digest)


def _place_of_hit(hit: SearchHit, workspace: str, query: str) -> WindowPlace:
    if hit.digest is not None:
        return WindowPlace("entry", workspace, digest=hit.digest, words=query)
    return WindowPlace("conversation", workspace, hit.conversation, hit.seq, words=query)


def _icon_of_hit(hit: SearchHit) -> str:
    if hit.digest is not None:
        return "entry"
    return "message"


def _note_of_hit(hit: SearchHit, text: str, titles: Mapping[str, str]) -> str:
    """Says what a hit is and where: whose message in which conversation, or what was stored."""
    if hit.digest is None:
        speaker = ""
        if hit.said_by:
            speaker = translate_name("message that was found", hit.said_by, otherwise="")
        notes = [speaker, titles.get(hit.conversation, "")]
        return " · ".join(filter(None, notes))
    if hit.page:
        return translate_name(
            "page that was found", hit.page_unit, n=hit.page, name=hit.about.source
        )
    if hit.about.source in NAMELESS_SOURCES or text.startswith(f"{hit.about.source}: "):
        source = ""
    else:
        source = hit.about.source
    return " · ".join(filter(None, [_words_for_stored_output(hit), source]))


def _words_for_stored_output(hit: SearchHit) -> str:
    tool = hit.about.tool
    if tool == "user" and hit.about.source == "message":
        return translate_name("message that was found", "user")
    tool_name = make_safe_text(words_for_tool(tool))
    output_of_tool = tr("Output of {tool}", tool=tool_name)
    return translate_name("stored output that was found", tool, otherwise=output_of_tool)


def _say_how_often(item: PaletteItem, count: int) -> PaletteItem:
    """Adds to an item how many equal ones it stands for, if it stands for several."""
    if count == 1:
        return item
    note = tr("{n} times", n=count)
    if item.note:
        note = f"{item.note} · {note}"
    return replace(item, note=note)


def _say_when(item: PaletteItem, moment: float) -> PaletteItem:
    """Adds to an item when it was stored or said, the newest of equal ones, if that is known."""
    if not moment:
        return item
    notes = [item.note, format_time_ago(moment, time.time())]
    return replace(item, note=" · ".join(filter(None, notes)))


def _map_texts_of_outputs_to_sources(hits: Sequence[SearchHit]) -> dict[str, str]:
    """Returns what the found outputs came from, by their found lines.

    What a conversation shows of such an output is found as well, but does not say its source.
    """
    sources: dict[str, str] = {}
    for hit in hits:
        if hit.digest is not None and hit.about.source:
            sources.setdefault(hit.snippet, hit.about.source)
    return sources


def _text_of_hit(
    hit: SearchHit, source: str, stems: Sequence[str], needles: tuple[str, ...]
) -> str:
    from helix_desktop.engine.strategies.handover import TITLE

    heading = translate_name("kind of context", "handover")
    on_one_line = " ".join(hit.snippet.replace(TITLE, heading).split())
    if hit.digest is None:
        on_one_line = _MARKDOWN_MARKS.sub("", on_one_line)  # Messages are drawn without them, too.
    text = _cut_to_begin_near_words(on_one_line, stems)[:LONGEST_TEXT]
    # The words may be in the call, not in its output. A line such as "6000" alone says nothing.
    is_in_call_only = not find_needle_spans(needles, text) and find_needle_spans(needles, source)
    says_nothing_alone = source and len(text) < SHORTEST_TELLING_LINE
    if is_in_call_only or says_nothing_alone:
        return f"{source}: {text}"
    return text


def group_search_suggestions(finds: Sequence[PaletteItem], *, more: bool) -> list[PaletteItem]:
    """Separates what has all words from what has some, and says so. `more`: the search goes on."""
    unsearched: list[PaletteItem] = []
    named: list[PaletteItem] = []
    exact: list[PaletteItem] = []
    similar: list[PaletteItem] = []
    for find in finds:
        if find.kind == "folder":
            unsearched.append(find)
        elif find.is_similar:
            similar.append(find)
        elif find.is_named:
            named.append(find)
        else:
            exact.append(find)
    exact = named + exact
    if not similar:
        return _group_by_workspace(exact) + unsearched
    items: list[PaletteItem] = []
    if exact:
        heading_of_exact = tr("With all words: {n}", n=len(exact))
        items.append(_build_heading(heading_of_exact))
    items += _group_by_workspace(exact)
    heading_of_similar = tr("Similar:")
    if not exact and not more:
        heading_of_similar = tr("No exact match. Similar:")
    items.append(_build_heading(heading_of_similar))
    return items + _group_by_workspace(similar) + unsearched


def _group_by_workspace(finds: Sequence[PaletteItem]) -> list[PaletteItem]:
    """Puts what was found in other workspaces below their names, behind that of the shown one."""
    finds_by_workspace: dict[str, list[PaletteItem]] = {"": []}
    for find in finds:
        finds_by_workspace.setdefault(find.workspace, []).append(find)
    items = finds_by_workspace.pop("")
    for workspace, finds_there in finds_by_workspace.items():
        items.append(_build_heading(tr("In {workspace}:", workspace=make_safe_text(workspace))))
        items += finds_there
    return items


def _build_heading(text: str) -> PaletteItem:
    return PaletteItem(text, act=str, kind=HEADING, enabled=False)


def _cut_to_begin_near_words(text: str, stems: Sequence[str]) -> str:
    """Omits text long before the first found word, since a row shows only a beginning."""
    folded_text = text.casefold()
    found_positions: list[int] = []
    for stem in stems:
        position = folded_text.find(stem)
        if position >= 0:
            found_positions.append(position)
    if not found_positions:
        return text
    first_position = min(found_positions)
    if first_position <= 2 * LEAD:
        return text
    # The text may be cut within a word. It begins with the next whole word, if there is another
    # one before the word that was found.
    _cut_word, _space, from_next_word = text[first_position - LEAD :].partition(" ")
    if from_next_word:
        return f"…{from_next_word}"
    return f"…{text[first_position:]}"


def suggest_unsearched_workspace(
    row: KnownWorkspace, error: HelixError | None, go: GoToPlace
) -> PaletteItem:
    """Suggests opening a workspace that could not be searched completely, or says why
    it cannot be opened.
    """
    if error is None:
        text = tr(
            "Not fully searched: the search index is out of date. Open this workspace to update it."
        )
    elif isinstance(error, StoreBusy):
        text = tr("Not searched: this workspace is open in another program")
    else:
        text = tr("Not searched: this workspace cannot be read. Open the workspace to repair it.")
    open_workspace = partial(go, WindowPlace("workspace", row.id))
    return PaletteItem(text, open_workspace, kind="folder", note=row.name)


def offer_slash_commands(
    actions: ActionRegistry, request: CompletionRequest, own_commands: Sequence[ProjectItem] = ()
) -> list[CompletionOffer]:
    """Offers commands for `/`: the exact one, those that begin so, then those that contain the
    letters. `own_commands`: the slash commands of the user and of the workspace's folder.
    """
    letters = request.typed_letters.casefold()
    offers: list[CompletionOffer] = []
    for item in own_commands:
        if letters in item.name.casefold():
            text = f"/{item.name}"
            remark = item.about[:LONGEST_REMARK]
            offers.append(CompletionOffer(text, f"{text} ", icon="entry", remark=remark))
    for name, action_name in COMMANDS.items():
        action = actions[action_name]
        is_meant = name.startswith(letters) or letters in action.text().casefold()
        if action.isEnabled() and is_meant:
            text = f"/{name}"
            offers.append(CompletionOffer(text, value=action, icon="action", remark=action.text()))

    typed_command = f"/{letters}"
    exact: list[CompletionOffer] = []
    beginning_so: list[CompletionOffer] = []
    containing: list[CompletionOffer] = []
    for offer in offers:
        if offer.text == typed_command:
            exact.append(offer)
        elif offer.text.casefold().startswith(typed_command):
            beginning_so.append(offer)
        else:
            containing.append(offer)
    return exact + beginning_so + containing


async def start_agent_and_offer_commands(
    bench: Workbench, session: Session, request: CompletionRequest
) -> list[CompletionOffer]:
    """Offers the slash commands of the foreign agent in the conversation, which is
    started for that.
    """
    letters = request.typed_letters.casefold()
    await bench.acp.start_agent(session.conversation)
    offers: list[CompletionOffer] = []
    for name, description in bench.acp.list_agent_commands(session.id).items():
        if letters in name.casefold():
            text = f"/{make_safe_text(name)}"
            remark = make_safe_text(description)[:LONGEST_REMARK]
            offers.append(CompletionOffer(text, f"/{name} ", icon="entry", remark=remark))
    return offers


async def offer_mentions(
    workspace: ShownWorkspace, request: CompletionRequest
) -> list[CompletionOffer]:
    """Offers completions for `@`: the workspace's files by name, resources of servers (only if the
    workspace is open here), then entries of the cache by content.
    """
    letters = request.typed_letters
    offers: list[CompletionOffer] = []
    for path in await workspace.complete_file_paths(letters, MOST_FILES):
        icon = "entry"
        if path.endswith("/"):
            icon = "folder"
        offers.append(CompletionOffer(path, f"@{path} ", icon=icon))
    bench = workbench_of_shown(workspace)
    if letters and bench is not None:
        offers += _offer_server_resources(bench, letters.casefold())
    # A single letter would find nearly everything, and a colon belongs to a filter, not to a name.
    if len(letters) >= 2 and ":" not in letters:
        offers += await _offer_cache_entries(workspace, letters)
    return offers


async def _offer_cache_entries(workspace: ShownWorkspace, letters: str) -> list[CompletionOffer]:
    offers: list[CompletionOffer] = []
    # Some of the hits are messages, so more are asked for than are offered.
    for hit in await workspace.catalogue.index.search_index(letters, limit=3 * MOST_ENTRIES):
        if hit.digest is None or len(offers) == MOST_ENTRIES:
            continue
        tool = words_for_tool(hit.about.tool)
        description = " ".join(filter(None, [tool, hit.about.source]))
        name = description or hit.snippet[:LONGEST_NAME]
        # What was found in it tells it from others of the same name, and a hash tells nothing.
        remark = ""
        if description:
            remark = make_safe_text(shorten_to_line(hit.snippet, LONGEST_NAME))
        offers.append(CompletionOffer(name, value=hit.digest, icon="archive", remark=remark))
    return offers


def _offer_server_resources(bench: Workbench, letters: str) -> list[CompletionOffer]:
    offers: list[CompletionOffer] = []
    for resource in bench.mcp_servers.list_offered_resources():
        name = f"{resource.server}:{resource.name} {resource.uri}"
        if letters not in name.casefold():
            continue
        offer = CompletionOffer(
            f"{resource.server}: {resource.name}",
            value=OfferedResource(resource.server, resource.uri),
            icon="entry",
            remark=resource.uri[:LONGEST_NAME],
        )
        offers.append(offer)
    return offers


@dataclass(frozen=True, slots=True)
class OfferedResource:
    server: str
    uri: str
