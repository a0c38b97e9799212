"""Sends messages, and answers requests of composer and palette: recall, `@`, `/`, search."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial

from PySide6.QtGui import QAction

from helix_desktop.engine.changes.folder_state import is_change_of_folder
from helix_desktop.engine.changes.turn_changes import FileChange, UndoOutlook
from helix_desktop.engine.facts import FoldKind, Text, UserPart, UserSaid
from helix_desktop.engine.ports import ClosedSearchResult, SearchHit
from helix_desktop.engine.search_query import split_query_into_words_and_filters
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui import search_suggestions
from helix_desktop.gui.changes.undo_dialog import shorten_name_list
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.chat.completion_list import CompletionOffer, CompletionRequest
from helix_desktop.gui.chat.message_drafts import DraftPlace, UnsentMessage
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.frame.command_palette import HEADING, PaletteItem
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.question_dialogs import ask_to_choose_one
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, format_number, tr
from helix_desktop.gui.workbench_types import (
    FileChanges,
    KnownWorkspace,
    NeededSummary,
    ProjectItem,
    Session,
    Workbench,
)
from helix_desktop.program_settings import ASK_ABOVE

# What other programs call our commands.
COMMANDS_ELSEWHERE = {"compact": "handover", "clear": "new"}
OnMessageNotSent = Callable[[HelixError | None], None]


def send_or_hold_message(window: MainWindow, parts: tuple[UserPart, ...], steer: bool) -> None:  # noqa: FBT001 - a slot
    """Sends a message to the open or a new conversation. What is not sent stays in the composer."""
    bench = window.current_workbench
    if window.chat.awaited_conversation:
        window.hold_message_until_open(UnsentMessage(parts, steer))
    elif bench is None:
        window.chat.composer.put_message_back(parts)
    elif not (bench.main_model_name or window.foreign_agent_name):
        window.chat.composer.put_message_back(parts)
        window.model_setup_wanted.emit()
    elif window.current_session is not None:
        not_sent = build_message_returner(window, parts)
        message = MessageToSend(window, bench, window.current_session, parts, not_sent, steer)
        message.expand_command_and_send()
    else:
        _begin_conversation_with(window, bench, parts)


def _begin_conversation_with(
    window: MainWindow, bench: Workbench, parts: tuple[UserPart, ...]
) -> None:
    """Starts a conversation, unless its first message would cost too much for the user."""
    chat = window.chat
    give_back = build_message_returner(window, parts)
    # Tells this new conversation from one that the user begins while it is being created.
    waits = f"new {id(parts)}"
    chat.awaited_conversation = waits

    def give_first_message_back(error: HelixError | None) -> None:
        if chat.awaited_conversation == waits:
            chat.awaited_conversation = ""
            chat.composer.show_waiting_messages([])
        give_back(error)
        for message in window.unsent_messages.pop_unsent_messages((bench.id, "new")):
            window.add_to_message_and_tell_if_current((bench.id, "new"), message.parts)

    def create_and_send() -> None:
        begun = partial(_send_first_message, window, bench, chat, parts, waits)
        window.run_for_window(
            bench.start_users_conversation(), then=begun, failed=give_first_message_back
        )

    def ask_about_price(unbegun: Session) -> None:
        send_or_ask_if_expensive(
            window,
            unbegun.context.estimate_cost_of_sending(parts),
            create_and_send,
            lambda: give_first_message_back(None),
        )

    if window.settings[ASK_ABOVE]:
        window.run_for_window(
            bench.open_draft_session(), then=ask_about_price, failed=give_first_message_back
        )
    else:
        create_and_send()


def _send_first_message(
    window: MainWindow,
    bench: Workbench,
    chat: ChatPage,
    parts: tuple[UserPart, ...],
    waits: str,
    session: Session,
) -> None:
    """Sends the message in any case, and shows the conversation unless the user has
    opened something else meanwhile.
    """
    unsent = window.unsent_messages.pop_unsent_messages((bench.id, "new"))
    if chat.awaited_conversation == waits:
        chat.composer.move_draft_to_new_conversation(session.id)
        window.show_session_if_current(bench, session, chat)
    message = MessageToSend(window, bench, session, parts, build_message_returner(window, parts))
    if message.command_name:
        give_back = message.trash_empty_conversation_and_give_back
        replace(message, not_sent=give_back).expand_command_and_send()
    else:
        message.send_now()
    window.refresh_conversations()
    send_held_messages(window, bench, session, unsent)


def send_messages_held_for_workspace(window: MainWindow) -> None:
    """Sends messages that were written before their workspace was open."""
    place = window.chat.composer.draft_place
    _workspace, conversation = place
    if conversation == "new":
        for message in window.unsent_messages.pop_unsent_messages(place):
            send_or_hold_message(window, message.parts, message.is_steering)


def send_held_messages(
    window: MainWindow, bench: Workbench, session: Session, messages: Sequence[UnsentMessage]
) -> None:
    """Sends what was written in a conversation while it was being opened."""
    place = (bench.id, session.id)
    for message in messages:
        not_sent = build_message_returner(window, message.parts, place)
        to_send = MessageToSend(window, bench, session, message.parts, not_sent)
        if not (bench.main_model_name or session.conversation.state.acp_agent):
            window.add_to_message_and_tell_if_current(place, message.parts)
            window.model_setup_wanted.emit()
        elif message.edited:
            to_send.resend_edited(message.edited)
        else:
            replace(to_send, steer=message.is_steering).expand_command_and_send()


async def find_files_to_undo(
    changes: FileChanges, conversation: str, seq: int
) -> tuple[Sequence[FileChange], str]:
    """Returns what changed after a message, and words about it, or none if only folders did."""
    files = await changes.changes_after_fact(conversation, seq)
    shown = [file for file in files if not is_change_of_folder(file.change)]
    if not shown:
        return files, ""
    names: list[str] = []
    for file in shown:
        cause = file.by
        if cause == "undo":
            cause = tr("undone")
        names.append(f"{make_safe_text(file.place)} ({cause})")
    description = format_count(
        len(names),
        "{n} file changed since this message: ",
        "{n} files changed since this message: ",
    )
    description += shorten_name_list(names)
    conflicting_paths: set[str] = set()
    for planned in await changes.plan_undo(shown):
        if planned.how is UndoOutlook.CONFLICT:
            conflicting_paths.add(planned.path)
    not_undone: list[str] = []
    for file in shown:
        if file.path_of_change in conflicting_paths:
            not_undone.append(make_safe_text(file.place))
    if not_undone:
        names_of_kept = shorten_name_list(not_undone)
        description += "\n" + tr("Changed later, so not undone: ") + names_of_kept
    return files, description


@dataclass(frozen=True, slots=True)
class MessageToSend:
    """A message to send. `not_sent` takes the error, or None if the user does not want it sent."""

    window: MainWindow
    bench: Workbench
    session: Session
    parts: tuple[UserPart, ...]
    not_sent: OnMessageNotSent
    steer: bool = False

    @property
    def command_name(self) -> str:
        """The word after a slash that begins the message."""
        first_part = self.parts[0]
        if not isinstance(first_part, Text):
            return ""
        command = re.match(r"/(\S+)", first_part.text)
        if command is None:
            return ""
        return command[1]

    def expand_command_and_send(self) -> None:
        name = self.command_name
        commands = self.bench.slash_commands
        known_names = [item.name for item in commands.list_slash_commands(self.session.id)]
        if name in known_names:

            def send_expanded(parts: tuple[UserPart, ...]) -> None:
                replace(self, parts=parts, steer=False).send_or_ask_about_price()

            work = commands.expand_command_message(self.session, self.parts)
            self.window.run_for_window(work, then=send_expanded, failed=self.not_sent)
        # A foreign agent has commands of its own, and "/etc/hosts" is a path and no command.
        elif self.session.conversation.state.acp_agent or not re.fullmatch(r"[a-z][\w-]*", name):
            self.send_or_ask_about_price()
        else:
            self._ask_about_unknown_command(known_names)

    def _ask_about_unknown_command(self, known_names: Sequence[str]) -> None:
        name = self.command_name
        sentences: list[str] = []
        if name not in search_suggestions.COMMANDS:
            sentences.append(tr("There is no command /{name}.", name=name))
        our_name = COMMANDS_ELSEWHERE.get(name, name)
        all_names = [*known_names, *search_suggestions.COMMANDS]
        for similar_name in get_close_matches(our_name, all_names, 1):
            sentences.append(tr("Did you mean /{name}?", name=similar_name))
        ways = [(tr("Send as text"), self.send_or_ask_about_price)]
        box = ask_to_choose_one(self.window, tr("Unknown command"), " ".join(sentences), "", ways)
        box.rejected.connect(lambda: self.not_sent(None))

    def send_or_ask_about_price(self) -> None:
        def fold_and_send() -> None:
            folding = self.session.fold_on_request(FoldKind.MARKER)
            self.window.run_for_window(
                folding, then=lambda _done: self.send_now(), failed=self.not_sent
            )

        needed = self.session.context.estimate_needed_summary()
        if needed is not None:
            self._ask_to_summarize(needed)
            return
        saving = self.session.context.estimate_saving_of_markers()
        price = self.session.context.estimate_cost_of_sending(self.parts)
        folding = None
        if saving:
            folding = (saving, fold_and_send)
        send_or_ask_if_expensive(
            self.window, price, self.send_now, lambda: self.not_sent(None), folding=folding
        )

    def _ask_to_summarize(self, needed: NeededSummary) -> None:
        """Says what it takes until a conversation that is too long can go on, and asks."""
        words = [
            tr(
                "This conversation is too long for the model: {used} of {window} tokens.",
                used=format_token_count(needed.used_tokens),
                window=format_token_count(needed.window_tokens),
            ),
            tr(
                "Before it can go on, about {n} requests summarize the older messages.",
                n=format_number(needed.requests),
            ),
        ]
        if needed.dollars:
            words.append(tr("That costs about {price}.", price=format_dollars(needed.dollars)))
        words.append(tr("Nothing is lost: everything can be searched and put back."))
        ways = [(tr("Summarize and send"), self.send_now)]
        box = ask_to_choose_one(
            self.window, tr("Summarize the older messages?"), " ".join(words), "", ways
        )
        box.rejected.connect(lambda: self.not_sent(None))

    def send_now(self) -> None:
        try:
            self.session.send_message(self.parts, steer=self.steer)
        except HelixError as error:
            self.not_sent(error)
        self.window.jump_to_end_of(self.session)

    def resend_edited(self, seq: int) -> None:
        """Sends it instead of an earlier one. What followed that is rewound, its
        changes to files if wanted.
        """
        window = self.window
        session = self.session
        changes = self.bench.file_changes_of(session.id)

        def send_again(_done: object = None) -> None:
            work = session.edit_and_resend(seq, self.parts)
            window.run_for_window(
                work, then=lambda _: window.jump_to_end_of(session), failed=self.not_sent
            )

        async def undo_changes(files: Sequence[FileChange]) -> None:
            session.refuse_while_running("edit and resend")
            undone = await changes.undo_file_changes(files, conversation=session.id)
            window.pages.changes.undo.report_undone(undone)

        def ask_about_changed_files(changed: tuple[Sequence[FileChange], str]) -> None:
            files, description = changed

            def undo_and_send() -> None:
                window.run_for_window(undo_changes(files), then=send_again, failed=self.not_sent)

            if not description:
                if changes.checkpoint_progress.state == "off":
                    window.notices.show_notice(
                        tr("Checkpoints are turned off, so files stay as they are.")
                    )
                send_again()
                return
            ways = [
                (tr("Keep these changes"), send_again),
                (tr("Undo these changes"), undo_and_send),
            ]
            title = tr("Send the edited message")
            box = ask_to_choose_one(window, title, description, "", ways)
            box.rejected.connect(edit_again)

        def find_changed_files() -> None:
            work = find_files_to_undo(changes, session.id, seq)
            window.run_for_window(work, then=ask_about_changed_files, failed=send_again)

        def edit_again() -> None:
            composer = window.chat.composer
            if composer.draft_place == (self.bench.id, session.id):
                composer.edit_earlier_message(seq, self.parts)
            else:
                self.not_sent(None)

        price = session.context.estimate_cost_of_sending(self.parts, instead_of=seq)
        send_or_ask_if_expensive(window, price, find_changed_files, edit_again)

    def trash_empty_conversation_and_give_back(self, error: HelixError | None) -> None:
        """Puts back a command that was to be the first message and was not sent. The conversation
        created for it goes to the trash, unless something else was said there meanwhile.
        """
        window = self.window
        session = self.session
        place = (self.bench.id, session.id)
        place_of_new = (self.bench.id, "new")

        def give_command_back() -> None:
            place_of_command = place
            if not is_begun:
                window.chat.composer.drafts.move_draft(place, place_of_new)
                place_of_command = place_of_new
            window.refresh_conversations()
            give_back = build_message_returner(window, self.parts, place_of_command)
            give_back(error)

        facts = session.conversation.state.facts
        has_message = any(isinstance(recorded.fact, UserSaid) for recorded in facts)
        is_begun = has_message or bool(session.queue)
        if is_begun:
            give_command_back()
        else:
            window.run_for_window(session.set_trashed(), then=lambda _done: give_command_back())


def send_or_ask_if_expensive(
    window: MainWindow,
    price: float,
    send_it: Callable[[], object],
    if_declined: Callable[[], object],
    *,
    folding: tuple[float, Callable[[], object]] | None = None,
) -> None:
    """Sends the message, after a question if it is expensive. `folding`: what folding
    first saves, and how.
    """
    # The setting is in cents; 0 means that the user is never asked.
    limit = window.settings[ASK_ABOVE] / 100
    if not limit or price <= limit:
        send_it()
        return
    words = tr(
        "This message would cost about {price}, which is more than your limit of {limit}. Nothing has been sent.",
        price=format_dollars(price), limit=format_dollars(limit),
    )  # fmt: skip
    ways = [(tr("Send"), send_it)]
    if folding:
        saving, fold_and_send = folding
        saved = format_dollars(saving)
        hint = tr("Shortening old outputs first saves about {saved}.", saved=saved)
        words = f"{words} {hint}"
        ways.insert(0, (tr("Shorten first, then send"), fold_and_send))
    box = ask_to_choose_one(window, tr("Send this message?"), words, "", ways)
    box.rejected.connect(if_declined)


def build_message_returner(
    window: MainWindow, parts: tuple[UserPart, ...], at: DraftPlace | None = None
) -> OnMessageNotSent:
    """Returns a function that puts an unsent message back into its composer and shows the error."""
    place = at or window.chat.composer.draft_place

    def give_message_back(error: HelixError | None) -> None:
        window.add_to_message_and_tell_if_current(place, parts)
        if error is not None:
            window.notices.show_error_notice(error)

    return give_message_back


def recall_into_draft(
    window: MainWindow, digest: Digest, lines: tuple[int, int] | None = None
) -> None:
    if window.current_session is not None:
        work = window.current_session.context.recall_as_attachment(digest, lines=lines)
        receive = window.build_attachment_receiver()
        window.run_for_window(work, then=lambda attachment: receive((attachment,)))
    elif window.current_workbench is not None:
        window.notices.show_notice(
            tr("Open a conversation first. The stored output is added to its next message.")
        )


def search_everywhere(window: MainWindow, words: str) -> None:
    """Searches all workspaces for the palette: the current one, the open ones, the closed ones."""
    try:
        split_query_into_words_and_filters(words)
    except InvalidInput as error:
        mistake = PaletteItem(translate_sentences(str(error)), act=str, kind=HEADING, enabled=False)
        window.palette_box.show_search_results(words, [mistake])
        return
    shown: list[PaletteItem] = []
    opened = sorted(
        window.workbenches.opened_workbenches(),
        key=lambda bench: bench is not window.current_workbench,
    )
    opened_ids = {bench.id for bench in opened}
    closed = [row for row in window.listed_workspaces if row.id not in opened_ids]

    def show_more_finds(finds: Sequence[PaletteItem]) -> None:
        shown.extend(finds)
        grouped = search_suggestions.group_search_suggestions(shown, more=bool(closed))
        window.palette_box.show_search_results(words, grouped, more=bool(closed))

    def show_hits_of_workspace(bench: Workbench, hits: Sequence[SearchHit]) -> None:
        # A hit names its workspace only if it is another one than the user is in.
        name = ""
        if bench is not window.current_workbench:
            name = bench.name
        titles = {row.id: row.title for row in bench.list_conversations()}
        suggestions = search_suggestions.suggest_search_hits(
            hits, titles, bench.id, window.go_to_place, words, name
        )
        show_more_finds(suggestions)

    for bench in opened:
        work = bench.workspace.index.search_index(words)
        window.run_for_window(work, then=partial(show_hits_of_workspace, bench))
    _search_next_closed_workspace(window, words, closed, show_more_finds)


def _search_next_closed_workspace(
    window: MainWindow,
    words: str,
    closed: list[KnownWorkspace],
    show: Callable[[Sequence[PaletteItem]], None],
) -> None:
    """Searches the next closed workspace, while somebody waits for the results."""
    if not closed or not window.palette_box.is_searching_for(words):
        return
    row = closed[0]

    def search_following(finds: Sequence[PaletteItem]) -> None:
        closed.pop(0)
        show(finds)
        _search_next_closed_workspace(window, words, closed, show)

    def suggest_opening(error: HelixError | None) -> list[PaletteItem]:
        return [search_suggestions.suggest_unsearched_workspace(row, error, window.go_to_place)]

    def show_closed_result(answer: ClosedSearchResult) -> None:
        suggestions = search_suggestions.suggest_search_hits(
            answer.hits, answer.titles, row.id, window.go_to_place, words, row.name
        )
        if answer.behind:
            suggestions.extend(suggest_opening(None))
        search_following(suggestions)

    work = window.workbenches.search_closed_workspace(row.id, words)
    window.run_for_window(
        work, then=show_closed_result, failed=lambda error: search_following(suggest_opening(error))
    )


def offer_completions(window: MainWindow, typed: CompletionRequest) -> None:
    bench = window.current_workbench
    session = window.current_session
    own: list[CompletionOffer] = []
    box = window.chat.composer.text
    run = partial(window.background_runner.run_in_background, owner=box)

    def show_with_own(offers: Sequence[CompletionOffer]) -> None:
        box.show_completion_offers(typed, [*offers, *own])

    if typed.trigger == "/":
        commands: Sequence[ProjectItem] = ()
        if bench is not None:
            conversation = window.showing.conversation_id
            commands = bench.slash_commands.list_slash_commands(conversation)
        own += search_suggestions.offer_slash_commands(window.window_actions, typed, commands)
        show_with_own(())
        if bench is not None and session is not None and window.foreign_agent_name:
            # The own commands are shown at once; the agent may need seconds to start.
            work = search_suggestions.start_agent_and_offer_commands(bench, session, typed)
            run(work, then=show_with_own)
    elif bench is not None:
        run(search_suggestions.offer_mentions(bench, typed), then=show_with_own)


def act_on_chosen_completion(window: MainWindow, offered: CompletionOffer) -> None:
    """Acts on a completion that is more than text: recalls an entry or runs a command."""
    if isinstance(offered.value, Digest):
        recall_into_draft(window, offered.value)
    elif (
        isinstance(offered.value, search_suggestions.OfferedResource)
        and window.current_workbench is not None
    ):
        work = window.current_workbench.attach_server_resource(
            offered.value.server, offered.value.uri
        )
        window.run_for_window(work, then=window.build_attachment_receiver())
    elif isinstance(offered.value, QAction):
        offered.value.trigger()
