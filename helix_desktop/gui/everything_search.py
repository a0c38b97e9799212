"""Searches everything for the command palette, and completes `@` and `/` in the message box."""

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction

from helix_desktop.engine.ports import ClosedSearchResult, SearchHit
from helix_desktop.engine.search_query import split_query_into_words_and_filters
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.gui import search_suggestions
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.chat.completion_list import CompletionOffer, CompletionRequest
from helix_desktop.gui.conversation_sides import ConversationSides
from helix_desktop.gui.frame.command_palette import HEADING, CommandPalette, PaletteItem
from helix_desktop.gui.frame.window_layout import WindowFrame
from helix_desktop.gui.open_workspaces import OpenWorkspaces
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import KnownWorkspace, ProjectItem, Workbench

CONVERSATIONS_BEFORE_ACTIONS = 5  # The rest of the conversations stand below the actions.


class EverythingSearch(QObject):
    """Fills the palette, and answers the message box's requests for completions."""

    def __init__(
        self,
        parts: WindowParts,
        frame: WindowFrame,
        palette: CommandPalette,
        workspaces: OpenWorkspaces,
        sides: ConversationSides,
    ) -> None:
        super().__init__(frame)
        self._parts = parts
        self._showing = parts.showing
        self._palette = palette
        self._workspaces = workspaces
        self._sides = sides
        self._go_to_place = parts.requests.place_wanted.emit
        palette.search_wanted.connect(self.search_everywhere)
        palette.closed.connect(sides.focus_current_composer)
        frame.sidebar.search.search_everywhere_wanted.connect(palette.open_palette)
        on = parts.actions.set_action_handler
        on("palette", lambda: palette.open_palette(frame.sidebar.search.text()))
        on("find-workspace", self._ask_for_workspace)
        on("beside", self._ask_for_conversation_beside, when=self._showing.has_workspace)
        sides.call_for_each_side(self._complete_in)

    def _complete_in(self, side: ChatPage) -> None:
        text = side.composer.text
        self._sides.connect_side(side, text.offers_wanted, self.offer_completions)
        self._sides.connect_side(side, text.offer_taken, self.act_on_chosen_completion)

    # --- The palette

    def list_suggestions_before_search(self) -> Sequence[PaletteItem]:
        from helix_desktop.gui.help_dialog import open_help

        rows = self._sides.list_rows()
        conversations = search_suggestions.suggest_conversations(
            rows, self._showing.workspace_id, self._go_to_place
        )
        others = self._workspaces.rows_of_others()
        items = conversations[:CONVERSATIONS_BEFORE_ACTIONS]
        items += search_suggestions.suggest_workspaces(others, self._go_to_place)
        items += search_suggestions.suggest_actions(self._parts.actions)
        items += conversations[CONVERSATIONS_BEFORE_ACTIONS:]
        items += search_suggestions.suggest_help_pages(partial(open_help, self._parts.widget))
        return items

    def _ask_for_workspace(self) -> None:
        others = self._workspaces.rows_of_others()
        if not others:
            self._parts.actions["open-folder"].trigger()
            return
        known = search_suggestions.suggest_workspaces(others, self._go_to_place)
        self._palette.open_palette(known=known, hint=tr("Search workspaces"))

    def _ask_for_conversation_beside(self) -> None:
        rows = [row for row in self._sides.list_rows() if self._sides.find_side(row.id) is None]
        known = search_suggestions.suggest_conversations(
            rows,
            self._showing.workspace_id,
            lambda place: self._sides.go_to_conversation(place.conversation, beside=True),
        )
        hint = tr("Search conversations")
        if not known:
            hint = tr("There is no other conversation in this workspace.")
        self._palette.open_palette(known=known, hint=hint)

    def search_everywhere(self, words: str) -> None:
        """Searches all workspaces: the current one, the open ones, then the closed ones."""
        try:
            split_query_into_words_and_filters(words)
        except InvalidInput as error:
            text = translate_sentences(str(error))
            mistake = PaletteItem(text, act=str, kind=HEADING, enabled=False)
            self._palette.show_search_results(words, [mistake])
            return
        shown: list[PaletteItem] = []
        opened = sorted(
            self._workspaces.workbenches.opened_workbenches(),
            key=lambda bench: bench is not self._showing.bench,
        )
        opened_ids = {bench.id for bench in opened}
        closed = [row for row in self._workspaces.listed if row.id not in opened_ids]

        def show_more_finds(finds: Sequence[PaletteItem]) -> None:
            shown.extend(finds)
            grouped = search_suggestions.group_search_suggestions(shown, more=bool(closed))
            self._palette.show_search_results(words, grouped, more=bool(closed))

        def show_hits_of_workspace(bench: Workbench, hits: Sequence[SearchHit]) -> None:
            # A hit names its workspace only if it is another one than the user is in.
            name = ""
            if bench is not self._showing.bench:
                name = bench.name
            titles = {row.id: row.title for row in bench.list_conversations()}
            suggestions = search_suggestions.suggest_search_hits(
                hits, titles, bench.id, self._go_to_place, words, name
            )
            show_more_finds(suggestions)

        for bench in opened:
            work = bench.workspace.index.search_index(words)
            self._parts.run_for_window(work, then=partial(show_hits_of_workspace, bench))
        self._search_next_closed_workspace(words, closed, show_more_finds)

    def _search_next_closed_workspace(
        self,
        words: str,
        closed: list[KnownWorkspace],
        show: Callable[[Sequence[PaletteItem]], None],
    ) -> None:
        """Searches the next closed workspace, while somebody waits for the results."""
        if not closed or not self._palette.is_searching_for(words):
            return
        row = closed[0]

        def search_following(finds: Sequence[PaletteItem]) -> None:
            closed.pop(0)
            show(finds)
            self._search_next_closed_workspace(words, closed, show)

        def suggest_opening(error: HelixError | None) -> list[PaletteItem]:
            go = self._go_to_place
            return [search_suggestions.suggest_unsearched_workspace(row, error, go)]

        def show_closed_result(answer: ClosedSearchResult) -> None:
            suggestions = search_suggestions.suggest_search_hits(
                answer.hits, answer.titles, row.id, self._go_to_place, words, row.name
            )
            if answer.behind:
                suggestions.extend(suggest_opening(None))
            search_following(suggestions)

        def offer_opening_instead(error: HelixError) -> None:
            search_following(suggest_opening(error))

        work = self._workspaces.workbenches.search_closed_workspace(row.id, words)
        self._parts.run_for_window(work, then=show_closed_result, failed=offer_opening_instead)

    # --- Completions in the message box

    def offer_completions(self, typed: CompletionRequest) -> None:
        bench = self._showing.bench
        session = self._showing.session
        own: list[CompletionOffer] = []
        box = self._sides.current.composer.text
        run = partial(self._parts.runner.run_in_background, owner=box)

        def show_with_own(offers: Sequence[CompletionOffer]) -> None:
            box.show_completion_offers(typed, [*offers, *own])

        if typed.trigger == "/":
            commands: Sequence[ProjectItem] = ()
            if bench is not None:
                conversation = self._showing.conversation_id
                commands = bench.slash_commands.list_slash_commands(conversation)
            own += search_suggestions.offer_slash_commands(self._parts.actions, typed, commands)
            show_with_own(())
            if bench is not None and session is not None and self._showing.foreign_agent:
                # The own commands are shown at once; the agent may need seconds to start.
                work = search_suggestions.start_agent_and_offer_commands(bench, session, typed)
                run(work, then=show_with_own)
        elif bench is not None:
            run(search_suggestions.offer_mentions(bench, typed), then=show_with_own)

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
        session = self._showing.session
        if session is not None:
            receive = self._sides.build_attachment_receiver()
            work = session.context.recall_as_attachment(digest, lines=lines)
            self._parts.run_for_window(work, then=lambda attachment: receive((attachment,)))
        elif self._showing.has_workspace():
            self._parts.notices.show_notice(
                tr("Open a conversation first. The stored output is added to its next message.")
            )
