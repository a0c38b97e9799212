"""What a workspace keeps on the disk, and looking after it: limit, back up, verify, make room."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import shiboken6
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton

from helix_desktop.gui.background import Doing
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.questions import ask_yes
from helix_desktop.gui.settings.fields import Declared, Value, row
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.settings.program import Going, Installation, Kept
from helix_desktop.gui.shared.figures import day, size
from helix_desktop.gui.words import count, tr

MEGABYTE = 1_000_000


class StoragePage(Page):
    """`export_wanted`: the whole workspace as a file; `forget_wanted`: a text out of all of it."""

    export_wanted = Signal()
    forget_wanted = Signal()

    def __init__(self, bench: Workbench, program: Installation, doing: Doing) -> None:
        super().__init__(tr("Storage"))
        self._bench, self._program, self._doing = bench, program, doing
        self._figures = self.sentence(tr("Counting…"))
        self._folder = self.sentence("", "mono")
        self._over = self.sentence("", "danger")
        self._over.hide()
        limit = bench.workspace.settings.limit // MEGABYTE
        declared = Declared(
            "limit",
            tr("Limit"),
            tr("Maximum size of the cache. 0 means no limit."),
            limit,
            least=0,
            most=2_000_000,
            unit="MB",
            unset=tr("No limit"),
        )
        self.add(row(declared, self._set_limit, self.inside))
        self.heading(tr("Maintenance"))
        self._act(
            tr("Back up now"), tr("Saves a copy of the journal in the same folder."), lambda: program.back_up(bench)
        )
        self._act(
            tr("Verify all entries"),
            tr("Reads all content and compares it with its hashes."),
            lambda: program.verify(bench, self._so_far),
            ends=True,
        )
        self._room = self.button(tr("Free up space…"))
        self._room.clicked.connect(self._ask_room)
        self._about(
            tr("Removes content that no conversation uses, until the cache is within its limit. Descriptions are kept.")
        )
        self._export = self.button(tr("Export workspace…"))
        self._export.clicked.connect(self.export_wanted)
        self._about(tr("History and cache in one file. Keys are never included."))
        self._forget = self.button(tr("Forget text everywhere…"))
        self._forget.clicked.connect(self.forget_wanted)
        self._about(tr("Permanently removes a leaked key or password from conversations, the cache and backups."))
        self._said = self.sentence("")
        self.refresh()

    def refresh(self) -> None:
        work = self._program.kept(self._bench)
        self._doing.do(work, name="count what is kept", then=self._show, owner=self)

    def _show(self, kept: Kept) -> None:
        entries = count(kept.entries, "{n} entry", "{n} entries")
        figures = tr(
            "{entries}, {size}, compressed to {taken}", entries=entries, size=size(kept.size), taken=size(kept.taken)
        )
        last = day(kept.backup) if kept.backup else tr("none")
        self._figures.setText(f"{figures}\n{tr('Last backup: {when}', when=last)}")
        self._folder.setText(str(kept.folder))
        over = kept.taken - kept.limit if kept.limit else 0
        self._over.setText(tr("{size} over the limit. Nothing is removed automatically.", size=size(over)))
        self._over.setVisible(over > 0)

    # --- room

    def _ask_room(self) -> None:
        """What would go is said first."""
        work = self._program.going(self._bench)
        self._doing.do(work, name="what would go", then=self._say_going, owner=self, failed=lambda e: self._say(str(e)))

    def _say_going(self, going: Going) -> None:
        if not going.entries:
            self._say(
                tr("Every entry is used by a conversation. Empty the trash, or raise the limit.")
                if going.over
                else tr("Nothing to free up.")
            )
            return
        words = [
            tr("{size} over the limit.", size=size(going.over)),
            count(
                going.entries,
                "{n} entry that no conversation uses will be removed:",
                "{n} entries that no conversation uses will be removed:",
            ),
            "\n".join([*going.names, "…"] if going.entries > len(going.names) else going.names),
            tr(
                "This frees {size}. The content can no longer be recalled, but its description is kept.",
                size=size(going.freed),
            ),
        ]
        if going.left:
            words.append(tr("The cache would still be {size} over the limit.", size=size(going.left)))
        ask_yes(self, tr("Free up space"), "\n\n".join(words), tr("Remove"), self._make_room)

    def _make_room(self) -> None:
        self._run(self._room, self._program.collect(self._bench), tr("Free up space"))

    def _act(
        self, text: str, sentence: str, work: Callable[[], Coroutine[Any, Any, str]], *, ends: bool = False
    ) -> None:
        button = self.button(text)
        self._about(sentence)
        button.clicked.connect(lambda _checked=False: self._run(button, work(), text, ends=ends))

    def _about(self, text: str) -> None:
        """What the button above does: nearer to it than to the next one."""
        self.sentence(text, "small").setContentsMargins(0, 0, 0, 10)

    def _run(self, button: QPushButton, work: Coroutine[Any, Any, str], text: str, *, ends: bool = False) -> None:
        """`ends`: with this page, since there is nobody to hear of it then."""

        def done(said: str) -> None:
            button.setEnabled(True)
            self._say(said)
            self.refresh()

        button.setEnabled(False)
        self._say(tr("Working…"))
        running = self._doing.do(work, name=text, then=done, owner=self, failed=lambda error: done(said(str(error))))
        if ends:
            self.destroyed.connect(lambda _page: running.cancel())

    def _so_far(self, text: str) -> None:
        if shiboken6.isValid(self):
            self._say(text)

    def _say(self, text: str) -> None:
        self._said.setText(text)

    def _set_limit(self, value: Value) -> None:
        work = self._bench.change({"limits.cache_bytes": int(value) * MEGABYTE})
        self._doing.do(work, name="set the limit", then=lambda _done: self.refresh(), owner=self)
