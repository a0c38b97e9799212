"""What can be done with a conversation of the list: rename, pin, archive, trash, fork, export. Slips can be undone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtWidgets import QWidget

from helix_desktop.engine.ports import Emptied
from helix_desktop.engine.rows import ConversationRow
from helix_desktop.gui import export
from helix_desktop.gui.background import Doing
from helix_desktop.gui.frame.notices import Notices
from helix_desktop.gui.ports import Session, Workbench
from helix_desktop.gui.questions import ask_new_file, ask_text, ask_yes
from helix_desktop.gui.save_text import file_name, save
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.words import count, tr

SUFFIX = {"markdown": ".md", "json": ".json", "html": ".html", "claude-code": ".jsonl", "openai": ".jsonl"}


class ConversationActs:
    """`changed` is called after the list is another one, `gone` with conversations that were deleted for good; `opened` with a
    workspace and a session of it to show.
    """

    def __init__(
        self,
        window: QWidget,
        doing: Doing,
        notices: Notices,
        *,
        changed: Callable[[], object],
        gone: Callable[..., object],
        opened: Callable[[Workbench, Session], object],
    ) -> None:
        self._window = window
        self._doing = doing
        self._notices = notices
        self._changed = changed
        self._gone = gone
        self._opened = opened

    def do(self, what: str, bench: Workbench, row: ConversationRow) -> None:
        """One of the names of the conversation's menu."""
        acts: dict[str, Callable[[Workbench, ConversationRow], None]] = {
            "rename": self.rename,
            "pin": self.pin,
            "archive": self.archive,
            "trash": self.trash,
            "restore": self.restore,
            "fork": self.fork,
            **{f"export-{form}": partial(self.export, form=form) for form in SUFFIX},
        }
        acts[what](bench, row)

    def rename(self, bench: Workbench, row: ConversationRow) -> None:
        def named(title: str) -> None:
            async def work() -> None:
                await (await bench.session(row.id)).rename(title)

            self._doing.do(work(), name="rename a conversation", then=lambda _done: self._changed())

        ask_text(self._window, tr("Rename conversation"), tr("Title"), row.title, named)

    def pin(self, bench: Workbench, row: ConversationRow) -> None:
        async def work() -> None:
            await (await bench.session(row.id)).pin_conversation(pinned=not row.pinned)

        self._doing.do(work(), name="pin a conversation", then=lambda _done: self._changed())

    def archive(self, bench: Workbench, row: ConversationRow) -> None:
        async def put(archived: bool) -> None:  # noqa: FBT001 - a step of this very function
            await (await bench.session(row.id)).archive(archived=archived)

        def undo() -> None:
            self._doing.do(put(row.archived), name="take back an archiving", then=lambda _done: self._changed())

        def told(_done: None) -> None:
            self._changed()
            words = tr("“{title}” was unarchived.") if row.archived else tr("“{title}” was archived.")
            self._notices.tell(words.format(title=row.title or tr("New conversation")), act=undo)

        self._doing.do(put(not row.archived), name="archive a conversation", then=told)

    def trash(self, bench: Workbench, row: ConversationRow) -> None:
        def told(_done: None) -> None:
            self._changed()
            words = tr("“{title}” was moved to the trash.", title=row.title or tr("New conversation"))
            self._notices.tell(words, act=lambda: self.restore(bench, row))

        self._doing.do(self._trash(bench, row, trashed=True), name="trash a conversation", then=told)

    def restore(self, bench: Workbench, row: ConversationRow) -> None:
        work = self._trash(bench, row, trashed=False)
        self._doing.do(work, name="restore a conversation", then=lambda _done: self._changed())

    def empty_trash(self, bench: Workbench) -> None:
        """Every conversation in the trash, for good; asked first."""
        number = sum(row.trashed for row in bench.conversations())
        text = count(
            number,
            "{n} conversation in the trash will be deleted permanently, along with cached content that nothing else uses. This can't be undone.",
            "{n} conversations in the trash will be deleted permanently, along with cached content that nothing else uses. This can't be undone.",
        )

        def emptied(gone: Emptied) -> None:
            self._gone(*gone.conversations)
            self._changed()
            words = count(len(gone.conversations), "{n} conversation deleted", "{n} conversations deleted")
            self._notices.tell(tr("{what}, {size} freed.", what=words, size=size(gone.bytes)))

        def empty() -> None:
            self._doing.do(bench.empty_trash(), name="empty the trash", then=emptied)

        ask_yes(self._window, tr("Empty trash"), text, tr("Delete permanently"), empty)

    def fork(self, bench: Workbench, row: ConversationRow, at: int = 0) -> None:
        """At its end, or at the fact `at`; the fork is opened."""

        def made(session: Session) -> None:
            self._changed()
            self._opened(bench, session)

        title = _fork_title(row.title, [each.title for each in bench.conversations()])
        self._doing.do(bench.fork(row.id, at, title=title), name="fork a conversation", then=made)

    def export(self, bench: Workbench, row: ConversationRow, form: str) -> None:
        """Asks where to; the file is written in a thread."""

        def save_to(file: Path) -> None:
            def told(gone: int) -> None:
                words = [tr("Saved as {file}.", file=file.name)]
                if gone:
                    words.append(
                        count(
                            gone,
                            "{n} output is missing: it was removed from the cache or is damaged.",
                            "{n} outputs are missing: they were removed from the cache or are damaged.",
                        )
                    )
                self._notices.tell("\n".join(words))

            self._doing.do(self._export(bench, row, form, file), name="export a conversation", then=told)

        name = file_name(row.title, "conversation") + SUFFIX[form]
        if form == "claude-code":  # which looks for a session by the name of its file
            from helix_desktop.histories import writing

            name = f"{writing.session_of(row.id)}{SUFFIX[form]}"
        ask_new_file(self._window, tr("Export conversation"), name, save_to)

    async def _trash(self, bench: Workbench, row: ConversationRow, *, trashed: bool) -> None:
        await (await bench.session(row.id)).trash(trashed=trashed)

    async def _export(self, bench: Workbench, row: ConversationRow, form: str, file: Path) -> int:
        """Gives how many outputs could not be read."""
        from helix_desktop.histories import writing

        facts = list((await bench.session(row.id)).conversation.state.facts)
        named = [] if form == "json" else export.named(facts)
        if form in writing.FORMATS:
            named = writing.named(facts)
        contents = await bench.workspace.cache.contents(named)
        texts = {digest: content.decode("utf-8", "replace") for digest, content in contents.items()}
        folder = str(next(iter(bench.folders), ""))
        makers: dict[str, Callable[[], str]] = {
            "json": lambda: export.as_json(row.title, facts),
            "html": lambda: export.as_html(row.title, facts, texts.get),
            "markdown": lambda: export.as_markdown(row.title, facts, texts.get),
            "claude-code": lambda: _lines(writing.claude_code(facts, contents.get, folder)),
            "openai": lambda: _lines(writing.openai(facts, contents.get)),
        }
        await save(file, makers[form])
        return len(set(named) - set(texts))


def _lines(values: Iterable[object]) -> str:
    return "".join(f"{json.dumps(value, ensure_ascii=False)}\n" for value in values)


def _fork_title(title: str, taken: Sequence[str]) -> str:
    """What tells a fork from its parent, and from other forks of it."""
    if not title:
        return ""
    first = tr("{title} (fork)", title=title)
    numbered = (tr("{title} (fork {n})", title=title, n=n) for n in range(2, len(taken) + 3))
    return first if first not in taken else next(each for each in numbered if each not in taken)
