"""The dialog to share a workspace: address, test and upload size, or its state and the
key to copy if it is shared.
"""

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.common.widgets import build_line_edit, build_plain_label, build_push_button
from helix_desktop.gui.question_dialogs import ask_to_confirm, ask_to_forget_keys
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.sharing import sharing_sentences
from helix_desktop.gui.sharing.sharing_form import SharingFormDialog, stack_widgets
from helix_desktop.gui.theme import set_widget_look
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.workbench_types import Workbench
from helix_desktop.histories.leaked_keys import longest_first, mask_key

MOST_SHOWN_SECRETS = 5
DOCKER_COMMAND = "docker run -d -p 127.0.0.1:5432:5432 -e POSTGRES_PASSWORD=try-it postgres"


class ShareWorkspaceDialog(SharingFormDialog):
    """Offers a file first and, if the user asks for it, a database. For a workspace that is shared
    already, it shows how others join.
    `export_wanted` carries the action of the window that writes a file for a colleague. `copy_wanted`:
    the shown conversation is to be copied as Markdown. `on_forgotten` gets each secret that was removed
    from the workspace, since drafts may have it, too. It is called even if the dialog is closed by then.
    """

    export_wanted = Signal(str)
    copy_wanted = Signal()

    def __init__(
        self,
        bench: Workbench,
        runner: BackgroundRunner,
        parent: QWidget,
        *,
        shows_conversation: bool = True,
        on_forgotten: Callable[[str], object] = str,
    ) -> None:
        super().__init__(runner, tr("Share this workspace"), parent)
        self._bench = bench
        self._shows_conversation = shows_conversation
        self._sharing = bench.sharing
        self._setup = bench.sharing_setup
        self.test = build_push_button(tr("Test"), self, self._test_shared_store)
        self.share = build_push_button(tr("Share"), self, self._share_workspace, "primary")
        self.copy_key = build_push_button(tr("Copy key"), self, self._copy_workspace_key)
        self.copy_address = build_push_button(tr("Copy address"), self, self._copy_store_address)
        self.stop = build_push_button(tr("Stop sharing…"), self, self._confirm_and_stop_sharing)
        self.close_ = build_push_button(tr("Close"), self, self.reject)
        self.standing = build_plain_label()
        self.amount = build_plain_label("", "muted")
        address_row = self._build_widget_row(self.address, self.test)
        self.with_database = build_push_button(
            tr("With a database, for a team (for administrators)…"),
            self,
            self._show_database_panel,
            "link",
            wraps=True,
        )
        self._rows_not_searched = list(bench.list_conversations())
        self._searched_count = 0
        self._secrets: list[str] = []
        self._on_forgotten = on_forgotten
        self.secrets_label = build_plain_label("", "muted")
        self.forget_secrets = build_push_button("", self, self._confirm_and_forget_secrets, "link")
        self.forget_secrets.hide()
        file_section = stack_widgets(
            self._build_file_section(), self._build_secrets_row(), spacing=8
        )
        self._file_panel = stack_widgets(file_section, self.with_database)
        self._database_panel = stack_widgets(
            build_plain_label(tr("For a team: share it live"), "heading"),
            self._build_sharing_explanation(),
            self._build_text_for_administrator(),
            address_row,
            self.password,
            self.amount,
            self._build_way_to_try(),
        )
        self._database_panel.hide()
        self._shared_panel = stack_widgets(self.standing, *self._build_joining_instructions())
        buttons = build_row(self.stop, 1, self.close_, self.share)
        panels = [self._file_panel, self._database_panel, self._shared_panel]
        self._lay_out_sharing_form(panels, buttons)
        stop_watching = self._sharing.watch_sharing(self._show_sharing_state)
        self.finished.connect(lambda _result: stop_watching())
        self.address.textChanged.connect(self._update_enabled_buttons)
        self.address.returnPressed.connect(self.test.click)
        self._show_sharing_state()
        runner.run_in_background(
            self._setup.measure_shared_amount(), then=self._show_upload_amount, owner=self
        )
        if self._sharing.sharing_state.state == "off":
            # What a shared workspace has may be in the database alone, and is there already.
            self._search_next_conversation_for_secrets()

    def _build_file_section(self) -> QWidget:
        text = tr("The whole workspace or one conversation, with its outputs. Your colleague opens the file with “Import workspace…” in Helix Desktop, or reads the conversation anywhere as Markdown.")  # fmt: skip
        workspace_button = build_push_button(
            tr("Export workspace…"), self, partial(self._export, "export-workspace")
        )
        conversation_button = build_push_button(
            tr("Export conversation…"), self, partial(self._export, "export")
        )
        copy_button = build_push_button(
            tr("Copy conversation as Markdown"), self, self._copy_conversation
        )
        for button in (conversation_button, copy_button):
            button.setEnabled(self._shows_conversation)
        buttons = QWidget(self)
        build_row(
            workspace_button,
            conversation_button,
            copy_button,
            1,
            owner=buttons,
            margins=0,
            spacing=8,
            wraps=True,
        )
        heading = build_plain_label(tr("For a colleague: give them a file"), "heading")
        return stack_widgets(
            heading, build_plain_label(text), buttons, _build_sentence_on_keys(), spacing=8
        )

    # --- What looks like a secret, before anything leaves this computer

    def _build_secrets_row(self) -> QWidget:
        row = QWidget(self)
        build_row((self.secrets_label, 1), self.forget_secrets, owner=row, margins=0, wraps=True)
        return row

    def _search_next_conversation_for_secrets(self) -> None:
        """Searches one conversation after another. Closing the dialog ends this."""
        self._show_found_secrets()
        if not self._rows_not_searched:
            return
        row = self._rows_not_searched.pop(0)
        self._runner.run_in_background(
            self._setup.find_secrets_of_conversation(row.id),
            then=self._add_secrets_and_continue,
            failed=self._continue_without_conversation,
            owner=self,
        )

    def _add_secrets_and_continue(self, found_secrets: Sequence[str]) -> None:
        self._searched_count += 1
        for secret in found_secrets:
            if secret not in self._secrets:
                self._secrets.append(secret)
        self._search_next_conversation_for_secrets()

    def _continue_without_conversation(self, _error: HelixError) -> None:
        # It is not counted: of a conversation that cannot be read, nothing is known.
        self._search_next_conversation_for_secrets()

    def _show_found_secrets(self) -> None:
        """Says what was found until now, masked, and how much was looked through."""
        searched = format_count(
            self._searched_count,
            "{n} conversation was searched.",
            "{n} conversations were searched.",
        )
        look = "muted"
        if self._secrets:
            look = "danger"
            masked_secrets = [mask_key(secret) for secret in self._secrets[:MOST_SHOWN_SECRETS]]
            if len(self._secrets) > MOST_SHOWN_SECRETS:
                masked_secrets.append("…")
            listed_secrets = ", ".join(masked_secrets)
            found = tr("This workspace contains what looks like secrets: {secrets}.", secrets=listed_secrets)  # fmt: skip
        elif self._rows_not_searched:
            found = tr("Looking for secrets…")
        else:
            found = tr(
                "Nothing that looks like a secret was found. Not every password can be recognized."
            )
        self.secrets_label.setText(join_sentences(found, searched))
        set_widget_look(self.secrets_label, look)
        forget_words = format_count(
            len(self._secrets), "Forget the secret…", "Forget the {n} secrets…"
        )
        self.forget_secrets.setText(forget_words)
        self.forget_secrets.setVisible(bool(self._secrets))

    def _confirm_and_forget_secrets(self) -> None:
        secrets = list(self._secrets)
        masked_secrets = [mask_key(secret) for secret in secrets]
        ask_to_forget_keys(self, masked_secrets, partial(self._forget_secrets, secrets))

    def _forget_secrets(self, secrets: Sequence[str]) -> None:
        forgetting = self._forget_each_secret(secrets)
        self._run_sharing_work(forgetting, tr("Forgetting…"), self._say_secrets_forgotten)

    async def _forget_each_secret(self, secrets: Sequence[str]) -> int:
        for secret in longest_first(secrets):
            await self._bench.forget_content(text=secret)
            self._on_forgotten(secret)
            self._secrets.remove(secret)
        return len(secrets)

    def _say_secrets_forgotten(self, count: int) -> None:
        self._show_found_secrets()
        forgotten = format_count(count, "{n} secret was removed.", "{n} secrets were removed.")
        self._show_sharing_status(forgotten)

    def _export(self, action: str) -> None:
        self.reject()
        self.export_wanted.emit(action)

    def _copy_conversation(self) -> None:
        self.reject()
        self.copy_wanted.emit()

    def _show_database_panel(self) -> None:
        """Shows what only a person with a database needs."""
        self.with_database.hide()
        self._database_panel.show()
        self.share.show()
        self.address.setFocus()
        self.adjustSize()

    def _build_text_for_administrator(self) -> QWidget:
        words = tr("You have no database? Whoever runs servers for you can set one up.")
        copy = build_push_button(
            tr("Copy a text for your administrator"), self, self._copy_text_for_administrator
        )
        row = QWidget(self)
        build_row(copy, 1, owner=row, margins=0)
        return stack_widgets(build_plain_label(words, "muted"), row, spacing=4)

    def _copy_text_for_administrator(self) -> None:
        """Copies what an administrator must know, to be sent by mail."""
        text = tr("Please set up a PostgreSQL database (version 13 or newer) with which we can share a workspace of Helix Desktop. I need its address, such as postgresql://USER@SERVER/DATABASE, and the password. The user must be allowed to create tables there, and our computers must reach the server. Everything is encrypted on our computers before it is sent: in the database stand random names, rounded sizes and times, but no text, titles or file names.")  # fmt: skip
        QGuiApplication.clipboard().setText(text)
        self._show_sharing_status(tr("The text was copied to the clipboard."))

    def _build_way_to_try(self) -> QWidget:
        text = tr("To try it on this computer, start a database with Docker, and use the address postgresql://postgres@localhost/postgres with the password “try-it”:")  # fmt: skip
        command = build_line_edit(
            tr("Command that starts a database"), "", self, text=DOCKER_COMMAND, readOnly=True
        )
        command.setCursorPosition(0)
        return stack_widgets(build_plain_label(text, "muted"), command, spacing=4)

    def _build_sharing_explanation(self) -> QLabel:
        text = tr(
            "Other computers can then read the conversations of “{name}” live and continue them. All computers use one PostgreSQL database. "
            "Everything is encrypted on this computer first, so whoever runs the database cannot read your data.",
            name=self._bench.name,
        )
        return build_plain_label(text)

    def _build_joining_instructions(self) -> list[QWidget]:
        steps = tr(
            "On another computer, open “Search everything”, choose “Join a shared workspace…”, and enter this address and the key. Whoever has "
            "the key and can reach the database can read this workspace, so send the key only through a channel you trust."
        )
        self.line = build_line_edit(tr("Address for another computer"), "", self, readOnly=True)
        dots = "helix1-" + "•" * 24
        key = build_line_edit(tr("Key of the shared workspace"), "", self, text=dots, readOnly=True)
        return [
            build_plain_label(steps, "muted"),
            self._build_widget_row(self.line, self.copy_address),
            self._build_widget_row(key, self.copy_key),
        ]

    def _show_sharing_state(self) -> None:
        status = self._sharing.sharing_state
        is_shared = status.state != "off"
        uses_database = self.with_database.isHidden()
        self._file_panel.setVisible(not is_shared)
        self._database_panel.setVisible(not is_shared and uses_database)
        self._shared_panel.setVisible(is_shared)
        self.share.setVisible(not is_shared and uses_database)
        self.stop.setVisible(is_shared)
        self.standing.setText(sharing_sentences.describe_sharing_fully(status))
        self.line.setText(status.address)
        self.line.setCursorPosition(0)
        self._update_enabled_buttons()

    def _show_upload_amount(self, amount: tuple[int, int, int]) -> None:
        conversation_count, entry_count, size = amount
        conversations = format_count(conversation_count, "{n} conversation", "{n} conversations")
        entries = format_count(entry_count, "{n} stored output", "{n} stored outputs")
        text = tr(
            "Sharing uploads {conversations} and {entries} ({size}), and everything that is added later. Files in the folder are not uploaded, except for content that agents read.",
            conversations=conversations,
            entries=entries,
            size=format_byte_size(size),
        )
        self.amount.setText(text)

    def _update_enabled_buttons(self, *, idle: bool = True) -> None:
        has_address = bool(self.address.text().strip())
        self.test.setEnabled(idle and has_address)
        self.share.setEnabled(idle and has_address)

    def _test_shared_store(self) -> None:
        testing = self._setup.test_store_address(self._address_with_password())
        self._run_sharing_work(testing, tr("Testing…"), self._show_tested_store)

    def _show_tested_store(self, store: str) -> None:
        self._show_sharing_status(tr("Connected to {store}.", store=store))

    def _share_workspace(self) -> None:
        starting = self._setup.start_sharing_at(self._address_with_password())
        self._run_sharing_work(starting, tr("Connecting…"), self._hide_sharing_status)

    def _hide_sharing_status(self, _result: object) -> None:
        self._show_sharing_status("")

    def _copy_workspace_key(self) -> None:
        self._run_sharing_work(self._setup.read_key_for_joining(), "", self._put_key_on_clipboard)

    def _put_key_on_clipboard(self, key: str) -> None:
        QGuiApplication.clipboard().setText(key)
        self._show_sharing_status(tr("The key was copied to the clipboard."))

    def _copy_store_address(self) -> None:
        QGuiApplication.clipboard().setText(self.line.text())
        self._show_sharing_status(
            tr("The address was copied to the clipboard, without the password.")
        )

    def _confirm_and_stop_sharing(self) -> None:
        text = tr("This computer stops sending and receiving changes. Everything it has sent stays in the shared store for the other computers. Nothing is removed from this computer.")  # fmt: skip

        title = tr("Stop sharing this workspace?")
        ask_to_confirm(self, title, text, tr("Stop sharing"), self._stop_sharing)

    def _stop_sharing(self) -> None:
        stopping = self._sharing.stop_sharing()
        self._run_sharing_work(stopping, "", self._show_what_remains)

    def _show_what_remains(self, sentence: str) -> None:
        self._show_sharing_status(translate_sentences(sentence))


def _build_sentence_on_keys() -> QLabel:
    text = tr("What is shared includes any passwords and other secrets in the conversations. API keys of models are never included. “Forget text everywhere…” (Ctrl+K) removes a secret from the whole workspace before you share it. Exporting a conversation asks whether to leave secrets out.")  # fmt: skip
    return build_plain_label(text, "muted")
