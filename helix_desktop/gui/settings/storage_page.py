"""The page of a workspace's disk space: limit, backup, verification, freeing up space."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import shiboken6
from PySide6.QtWidgets import QPushButton

from helix_desktop.engine.cache_entry_rows import CacheEntryFigures
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.figure_formats import format_byte_size, format_date_and_time
from helix_desktop.gui.common.setting_fields import FieldDeclaration, Value
from helix_desktop.gui.question_dialogs import ask_to_confirm
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.installation_port import Installation, SpaceToFree
from helix_desktop.gui.settings.settings_page import SettingsPage
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.workbench_types import Workbench

MEGABYTE = 1_000_000


class StoragePage(SettingsPage):
    def __init__(self, bench: Workbench, program: Installation, runner: BackgroundRunner) -> None:
        super().__init__(tr("Storage"))
        self._bench = bench
        self._program = program
        self._runner = runner
        self._figures = self.add_sentence(tr("Counting…"))
        self._folder = self.add_sentence("", "mono")
        self._over_limit_label = self.add_sentence("", "danger")
        self._over_limit_label.hide()
        limit_field = FieldDeclaration(
            "limit",
            tr("Limit"),
            tr(
                "If the stored outputs take up more than this, this page says so. Nothing is removed automatically."
            ),
            bench.workspace.settings.limit // MEGABYTE,
            most=2_000_000,
            unit="MB",
            unset=tr("No limit"),
        )
        self.add_field(limit_field, self._set_cache_limit)
        self.add_heading(tr("Maintenance"))
        self._add_maintenance_buttons()
        self._add_removal_buttons()
        self._status_label = self.add_sentence("")
        self.refresh_storage()

    def _add_maintenance_buttons(self) -> None:
        """Adds what changes nothing that anybody could miss."""
        about_backup = tr("Saves a copy of the conversations to the workspace's own folder. To keep a copy elsewhere, export the workspace.")  # fmt: skip
        back_up = partial(self._program.back_up_workspace, self._bench)
        self._add_maintenance_button(tr("Back up now"), about_backup, back_up)

        about_verifying = tr("Reads everything that is stored and compares it with its hash.")
        verify = partial(
            self._program.verify_workspace_entries, self._bench, self._show_maintenance_progress
        )
        self._add_maintenance_button(
            tr("Verify everything that is stored"), about_verifying, verify, stoppable=True
        )

        about_repair = tr("Repairs damaged files of the cache, and restores lost outputs from where else they are.")  # fmt: skip
        repair = partial(self._program.repair_workspace_cache, self._bench)
        self._add_maintenance_button(tr("Repair the cache"), about_repair, repair)

    def _add_removal_buttons(self) -> None:
        """Adds what frees space, exports the workspace, or forgets a text."""
        self._free_space_button = self.add_page_button(
            tr("Free up space…"), self._estimate_and_ask_to_free_space
        )
        about_freeing = tr("Removes content that no conversation uses, until the cache is within its limit. The descriptions of this content are kept.")  # fmt: skip
        self._add_button_explanation(about_freeing)

        export = partial(self.wanted.emit, "export-workspace")
        self.add_page_button(tr("Export workspace…"), export)
        about_export = tr(
            "The file contains the workspace's history and cache. Exports include any passwords and other secrets in the conversations. API keys of models are never included."
        )
        self._add_button_explanation(about_export)

        forget = partial(self.wanted.emit, "forget-text")
        self.add_page_button(tr("Forget text everywhere…"), forget)
        about_forgetting = tr(
            "Permanently removes a leaked password or other secret from conversations, the cache and backups."
        )
        self._add_button_explanation(about_forgetting)

    def refresh_storage(self) -> None:
        work = self._program.measure_workspace_storage(self._bench)
        self._runner.run_in_background(work, then=self._show_storage, owner=self)

    def _show_storage(self, measured: tuple[CacheEntryFigures, float]) -> None:
        """Shows how much the workspace stores, when it was last backed up (0: never), and a
        warning if its cache is over the limit.
        """
        cache, backup = measured
        figures = tr(
            "{entries}, {size}, compressed to {taken}",
            entries=format_count(cache.entries, "{n} stored output", "{n} stored outputs"),
            size=format_byte_size(cache.size),
            taken=format_byte_size(cache.kept),
        )
        last_backup = tr("none")
        if backup:
            last_backup = format_date_and_time(backup)
        self._figures.setText(f"{figures}\n{tr('Last backup: {when}', when=last_backup)}")
        self._folder.setText(str(self._bench.workspace.folder))

        limit = self._bench.workspace.settings.limit
        excess = cache.kept - limit
        is_over_limit = bool(limit) and excess > 0
        if is_over_limit:
            warning = tr(
                "{size} over the limit. Nothing is removed automatically.",
                size=format_byte_size(excess),
            )
            self._over_limit_label.setText(warning)
        self._over_limit_label.setVisible(is_over_limit)

    def _estimate_and_ask_to_free_space(self) -> None:
        self._runner.run_in_background(
            self._program.estimate_space_to_free(self._bench),
            then=self._ask_to_free_space,
            failed=self._show_estimate_failure,
            owner=self,
        )

    def _show_estimate_failure(self, error: HelixError) -> None:
        self._status_label.setText(translate_sentences(str(error)))

    def _ask_to_free_space(self, estimate: SpaceToFree) -> None:
        """Asks whether to remove the stored outputs that no conversation uses, and removes them
        if the user agrees. If there are none, it says so instead of asking.
        """
        if not estimate.entries:
            if estimate.over:
                status = tr(
                    "Every stored output is used by a conversation. Empty the trash, or raise the limit."
                )
            else:
                status = tr("Nothing to free up.")
            self._status_label.setText(status)
            return

        names = "\n".join(estimate.names)
        if estimate.entries > len(estimate.names):
            names += "\n…"
        what_goes = format_count(
            estimate.entries,
            "{n} stored output that no conversation uses will be removed:",
            "{n} stored outputs that no conversation uses will be removed:",
        )
        what_stays = tr(
            "{size} will be freed. The content can no longer be recalled, but its description is kept.",
            size=format_byte_size(estimate.freed),
        )

        excess = tr("{size} over the limit.", size=format_byte_size(estimate.over))
        paragraphs = [excess, what_goes, names, what_stays]
        if estimate.left:
            remaining_excess = format_byte_size(estimate.left)
            paragraphs.append(
                tr("The cache would still be {size} over the limit.", size=remaining_excess)
            )

        question = "\n\n".join(paragraphs)
        ask_to_confirm(self, tr("Free up space"), question, tr("Remove"), self._free_space)

    def _free_space(self) -> None:
        self._run_maintenance(self._free_space_button, self._program.free_up_space(self._bench))

    def _add_maintenance_button(
        self,
        text: str,
        sentence: str,
        work: Callable[[], Coroutine[Any, Any, str]],
        *,
        stoppable: bool = False,
    ) -> None:
        button = self.add_page_button(
            text, lambda: self._run_maintenance(button, work(), stoppable=stoppable)
        )
        self._add_button_explanation(sentence)

    def _add_button_explanation(self, text: str) -> None:
        """Explains the button above, with less space between them than to the next button."""
        self.add_sentence(text, "small").setContentsMargins(0, 0, 0, 10)

    def _run_maintenance(
        self, button: QPushButton, work: Coroutine[Any, Any, str], *, stoppable: bool = False
    ) -> None:
        """Runs the work. `stoppable`: it stops when the page is closed, because nobody
        would see the result.
        """
        button.setEnabled(False)
        self._status_label.setText(tr("Working…"))
        started_work = self._runner.run_in_background(
            work,
            then=partial(self._show_maintenance_result, button),
            failed=partial(self._show_maintenance_failure, button),
            owner=self,
        )
        if stoppable:
            self.destroyed.connect(lambda _page: started_work.cancel())

    def _show_maintenance_result(self, button: QPushButton, result: str) -> None:
        button.setEnabled(True)
        self._status_label.setText(result)
        self.refresh_storage()

    def _show_maintenance_failure(self, button: QPushButton, error: HelixError) -> None:
        self._show_maintenance_result(button, translate_sentences(str(error)))

    def _show_maintenance_progress(self, text: str) -> None:
        if shiboken6.isValid(self):
            self._status_label.setText(text)

    def _set_cache_limit(self, value: Value) -> None:
        work = self._bench.change_settings({"limits.cache_bytes": int(value) * MEGABYTE})
        self._runner.run_in_background(work, then=lambda _done: self.refresh_storage(), owner=self)
