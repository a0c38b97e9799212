"""Searches everything for the command palette, and completes `@` and `/` in the message box."""

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction

from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.ports import ClosedSearchResult
from helix_desktop.engine.search_query import split_query_into_words_and_filters
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui import search_suggestions
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.chat.completion_list import CompletionOffer, CompletionRequest
from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.frame.command_palette import HEADING, PaletteItem
from helix_desktop.gui.search_sources import SEARCH_SOURCES, SearchedWindow, Searching
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.shown_workspace import OTHER_COMPUTER, ShownWorkspace
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_contents import WindowContents
from helix_desktop.gui.workbench_types import KnownWorkspace, ProjectItem

if TYPE_CHECKING:
    from helix_desktop.extensions.added_actions import AddedAction

CONVERSATIONS_BEFORE_ACTIONS = 5  # The rest of the conversations stand below the actions.


@dataclass(frozen=True, order=True)
class SearchedPlace:
    """A place that is searched: the first one of each source, such as the shown workspace, comes
    before the second ones. Closed workspaces come last.
    """

    number_in_source: int
    source: str
    is_in_shown_workspace: bool


CLOSED_WORKSPACES = SearchedPlace(1_000_000, "", is_in_shown_workspace=False)


@dataclass(eq=False)
class PaletteSearch:
    """One search of the palette: which closed workspaces are left, which places have not answered,
    and what was found until now in each, in the order in which it is shown.
    """

    query: str
    unsearched_rows: list[KnownWorkspace]
    unanswered: set["SearchedPlace"] = field(default_factory=set)
    items_by_place: dict["SearchedPlace", list[PaletteItem]] = field(default_factory=dict)

    def list_items(self) -> list[PaletteItem]:
        items: list[PaletteItem] = []
        for place in sorted(self.items_by_place):
            items += self.items_by_place[place]
        return items

    def has_answer_of_shown_workspace(self) -> bool:
        """Whether the first hits are certain. Another workspace may be smaller and answer sooner."""
        return not any(place.is_in_shown_workspace for place in self.unanswered)


async def _note_as_answered(
    results: PaletteSearch, place: SearchedPlace, searching: Searching
) -> Sequence[PaletteItem]:
    """Awaits what is found in a place. One whose search fails has answered as well."""
    try:
        return await searching
    finally:
        results.unanswered.discard(place)


class EverythingSearch(QObject):
    """Fills the palette, and answers the message box's requests for completions."""

    def __init__(self, contents: WindowContents) -> None:
        super().__init__(contents.frame)
        self._parts = contents.parts
        self._showing = contents.parts.showing
        self._palette = contents.palette
        self._workspaces = contents.workspaces
        self._sides = contents.sides
        self._search_field = contents.frame.sidebar.search
        self._go_to_place = self._parts.requests.place_wanted.emit
        self._palette.search_wanted.connect(self.search_everywhere)
        self._palette.closed.connect(self._sides.focus_current_composer)
        self._search_field.search_everywhere_wanted.connect(self._palette.open_palette)
        set_handler = self._parts.actions.set_action_handler
        set_handler("palette", self._open_palette)
        set_handler("find-workspace", self._ask_for_workspace)
        set_handler("beside", self._ask_for_conversation_beside, when=self._showing.has_workspace)
        self._sides.call_for_each_side(self._complete_in)

    def _complete_in(self, side: ChatPage) -> None:
        text = side.composer.text
        self._sides.connect_side(side, text.offers_wanted, self.offer_completions)
        self._sides.connect_side(side, text.offer_taken, self.act_on_chosen_completion)

    # --- The palette

    def _open_palette(self) -> None:
        self._palette.open_palette(self._search_field.text())

    def list_suggestions_before_search(self) -> Sequence[PaletteItem]:
        rows = self._sides.list_rows()
        conversations = search_suggestions.suggest_conversations(
            rows, self._showing.workspace_id, self._go_to_place
        )
        other_workspaces = self._workspaces.rows_of_others()
        items = conversations[:CONVERSATIONS_BEFORE_ACTIONS]
        items += search_suggestions.suggest_workspaces(other_workspaces, self._go_to_place)
        items += search_suggestions.suggest_actions(self._parts.actions)
        items += search_suggestions.suggest_actions_of_extensions(self._run_action_of_extension)
        items += conversations[CONVERSATIONS_BEFORE_ACTIONS:]
        items += search_suggestions.suggest_help_pages(self._open_help_at_typed_words)
        items += search_suggestions.suggest_help_answers(self._open_help_at_question)
        return items

    def _open_help_at_typed_words(self, file: str) -> None:
        from helix_desktop.gui.help_dialog import open_help

        typed_words = self._palette.line.text().casefold().split()
        open_help(self._parts.widget, file, typed_words)

    def _open_help_at_question(self, file: str, question: str) -> None:
        from helix_desktop.gui.help_dialog import open_help

        open_help(self._parts.widget, file, (question.casefold(),))

    def _run_action_of_extension(self, action: "AddedAction") -> None:
        from helix_desktop.extensions.extension_interfaces import ActionPlace

        workspace = ""
        folder = ""
        bench = self._showing.bench
        if bench is not None:
            workspace = bench.name
            folder = str(bench.main_folder)
        place = ActionPlace(workspace, folder, self._showing.conversation_id)
        self._parts.run_for_window(action.run_at_place(place), then=self._say_result_of_action)

    def _say_result_of_action(self, text: str) -> None:
        if text:
            self._parts.notices.show_notice(text)

    def _ask_for_workspace(self) -> None:
        other_workspaces = self._workspaces.rows_of_others()
        if not other_workspaces:
            self._parts.actions["open-folder"].trigger()
            return
        items = search_suggestions.suggest_workspaces(other_workspaces, self._go_to_place)
        self.ask_for_one_of(items, tr("Search workspaces"))

    def _ask_for_conversation_beside(self) -> None:
        rows_not_shown: list[ConversationListRow] = []
        for row in self._sides.list_rows():
            if self._sides.find_side(row.id) is None:
                rows_not_shown.append(row)
        items = search_suggestions.suggest_conversations(
            rows_not_shown, self._showing.workspace_id, self._open_place_beside
        )
        hint = tr("Search conversations")
        if not items:
            hint = tr("There is no other conversation in this workspace.")
        self.ask_for_one_of(items, hint)

    def ask_for_one_of(self, items: Sequence[PaletteItem], hint: str) -> None:
        """Lists these items alone in the palette. `hint` stands in its empty field."""
        self._palette.open_palette(known=items, hint=hint)

    def _open_place_beside(self, place: WindowPlace) -> None:
        self._sides.go_to_conversation(place.conversation, beside=True)

    def search_everywhere(self, query: str) -> None:
        """Searches all workspaces: the current one, the open ones, then the closed ones."""
        try:
            split_query_into_words_and_filters(query)
        except InvalidInput as error:
            text = translate_sentences(str(error))
            mistake = PaletteItem(text, act=str, kind=HEADING, enabled=False)
            self._palette.show_search_results(query, [mistake])
            return

        opened = self._list_opened_workspaces()
        closed_rows = self._list_closed_workspaces(opened)
        results = PaletteSearch(query, closed_rows)
        if not opened and not closed_rows:
            self._palette.show_search_results(query, ())
        searches = self._begin_searches(query, opened)
        # All are noted before the first one answers: its answer is not yet that of the search.
        results.unanswered.update(searches)
        for place, searching in searches.items():
            show = partial(self._show_more_results, results, place)
            answering = _note_as_answered(results, place, searching)
            self._parts.run_for_window(answering, then=show)
        self._search_next_closed_workspace(results)

    def _list_opened_workspaces(self) -> list[ShownWorkspace]:
        """Returns the shown workspace first, wherever it is open, then those of this process."""
        opened: list[ShownWorkspace] = list(self._workspaces.workbenches.opened_workbenches())
        shown_workspace = self._showing.workspace
        if shown_workspace is not None:
            if shown_workspace in opened:
                opened.remove(shown_workspace)
            opened.insert(0, shown_workspace)
        return opened

    def _list_closed_workspaces(self, opened: Sequence[ShownWorkspace]) -> list[KnownWorkspace]:
        opened_ids = {workspace.id for workspace in opened}
        closed_rows: list[KnownWorkspace] = []
        for row in self._workspaces.listed:
            # What is on another computer is searched only while it is shown.
            is_searched_here = not row.id.startswith(OTHER_COMPUTER)
            if row.id not in opened_ids and is_searched_here:
                closed_rows.append(row)
        return closed_rows

    def _begin_searches(
        self, query: str, opened: Sequence[ShownWorkspace]
    ) -> dict[SearchedPlace, Searching]:
        window = SearchedWindow(
            opened,
            self._showing.workspace,
            self._showing.workspace_id,
            self._go_to_place,
            self._parts.requests.file_wanted.emit,
        )
        searches: dict[SearchedPlace, Searching] = {}
        for source in SEARCH_SOURCES:
            for number, searching in enumerate(source.begin(window, query)):
                is_in_shown_workspace = (
                    source.begins_with_shown_workspace
                    and number == 0
                    and self._showing.workspace is not None
                )
                place = SearchedPlace(number, source.name, is_in_shown_workspace)
                searches[place] = searching
        return searches

    def _search_next_closed_workspace(self, results: PaletteSearch) -> None:
        """Searches the next closed workspace, while somebody waits for the results."""
        if not results.unsearched_rows or not self._palette.is_searching_for(results.query):
            return
        row = results.unsearched_rows[0]
        search = self._workspaces.search_workspace_not_shown(row.id, results.query)
        show_hits = partial(self._show_hits_of_closed_workspace, results, row)
        offer_to_open = partial(self._offer_to_open_unsearched_workspace, results, row)
        self._parts.run_for_window(search, then=show_hits, failed=offer_to_open)

    def _show_hits_of_closed_workspace(
        self, results: PaletteSearch, row: KnownWorkspace, answer: ClosedSearchResult
    ) -> None:
        items = search_suggestions.suggest_search_hits(
            answer.hits, answer.titles, row.id, self._go_to_place, results.query, row.name
        )
        if answer.behind:
            # Its index lacks what was said last, so it is searched whole once it is open.
            items.append(
                search_suggestions.suggest_unsearched_workspace(row, None, self._go_to_place)
            )
        self._go_on_after_closed_workspace(results, items)

    def _offer_to_open_unsearched_workspace(
        self, results: PaletteSearch, row: KnownWorkspace, error: HelixError
    ) -> None:
        item = search_suggestions.suggest_unsearched_workspace(row, error, self._go_to_place)
        self._go_on_after_closed_workspace(results, [item])

    def _go_on_after_closed_workspace(
        self, results: PaletteSearch, items: Sequence[PaletteItem]
    ) -> None:
        results.unsearched_rows.pop(0)
        self._show_more_results(results, CLOSED_WORKSPACES, items)
        self._search_next_closed_workspace(results)

    def _show_more_results(
        self, results: PaletteSearch, place: SearchedPlace, items: Sequence[PaletteItem]
    ) -> None:
        results.items_by_place.setdefault(place, []).extend(items)
        has_more = bool(results.unsearched_rows or results.unanswered)
        found_items = results.list_items()
        grouped_items = search_suggestions.group_search_suggestions(found_items, more=has_more)
        self._palette.show_search_results(
            results.query,
            grouped_items,
            more=has_more,
            is_first_certain=results.has_answer_of_shown_workspace(),
        )

    # --- Completions in the message box

    def offer_completions(self, typed: CompletionRequest) -> None:
        workspace = self._showing.workspace
        message_box = self._sides.current.composer.text
        run = partial(self._parts.runner.run_in_background, owner=message_box)
        show = partial(message_box.show_completion_offers, typed)
        if typed.trigger != "/":
            if workspace is not None:
                run(search_suggestions.offer_mentions(workspace, typed), then=show)
            return

        own_commands: Sequence[ProjectItem] = ()
        if workspace is not None:
            conversation = self._showing.conversation_id
            own_commands = workspace.slash_commands.list_slash_commands(conversation)
        own_offers = search_suggestions.offer_slash_commands(
            self._parts.actions, typed, own_commands
        )
        show(own_offers)
        bench = self._showing.bench
        session = self._showing.session
        if bench is not None and session is not None and self._showing.foreign_agent:
            # The own commands are shown at once; the agent may need seconds to start.
            starting = search_suggestions.start_agent_and_offer_commands(bench, session, typed)
            run(starting, then=lambda agent_offers: show(list(agent_offers) + own_offers))

    def act_on_chosen_completion(self, offered: CompletionOffer) -> None:
        """Acts on a completion that is more than text: recalls an entry or runs a command."""
        chosen = offered.value
        bench = self._showing.bench
        if isinstance(chosen, Digest):
            self.recall_into_draft(chosen)
        elif isinstance(chosen, search_suggestions.OfferedResource) and bench is not None:
            work = bench.attach_server_resource(chosen.server, chosen.uri)
            self._parts.run_for_window(work, then=self._sides.build_attachment_receiver())
        elif isinstance(chosen, QAction):
            chosen.trigger()

    def recall_into_draft(self, digest: Digest, lines: tuple[int, int] | None = None) -> None:
        """Attaches a stored output to the message that is being written."""
        session = self._showing.conversation
        if session is not None:
            receive = self._sides.build_attachment_receiver()
            work = session.context.recall_as_attachment(digest, lines=lines)
            self._parts.run_for_window(work, then=lambda attachment: receive((attachment,)))
        elif self._showing.has_workspace():
            self._parts.notices.show_notice(
                tr("Open a conversation first. The stored output is added to its next message.")
            )
