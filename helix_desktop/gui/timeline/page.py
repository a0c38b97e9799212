"""The timeline page: tokens over time, the folds of a conversation or of the workspace, and what each of them did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QActionGroup, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QMenu, QPushButton, QVBoxLayout, QWidget

from helix_desktop.engine import policy
from helix_desktop.engine.blocks import Kind, View
from helix_desktop.engine.difference import difference
from helix_desktop.engine.events import Event as SessionEvent
from helix_desktop.engine.events import FactAppended
from helix_desktop.engine.facts import FoldKind, PartRef, Recorded, ToolCall, ToolReturned
from helix_desktop.engine.history.moment import Moment
from helix_desktop.engine.view import state_of
from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.meter import short
from helix_desktop.gui.ports import Session, Workbench
from helix_desktop.gui.questions import ask_new_file
from helix_desktop.gui.save_text import save
from helix_desktop.gui.shared.past import Past, readable
from helix_desktop.gui.theme import Theme, set_look
from helix_desktop.gui.timeline import sentences
from helix_desktop.gui.timeline.chart import Chart, Threshold
from helix_desktop.gui.timeline.folds import FoldList, filtered
from helix_desktop.gui.timeline.now import FoldNow
from helix_desktop.gui.timeline.panel import FoldPanel, Shown
from helix_desktop.gui.timeline.story import Event, Story, merged
from helix_desktop.gui.transcript.intents import ShowInChat
from helix_desktop.gui.transcript.tool_lines import called
from helix_desktop.gui.views.compare import CompareDialog
from helix_desktop.gui.words import tr

SLICE = 0.003
FRAME = 16  # milliseconds
AT_ONCE = 64
NEAR = 400  # facts between a call and its output, at most


class TimelinePage(QWidget):
    """`panel` is the fold's document; the window puts it at the right. `wanted` carries values of `wants`."""

    wanted = Signal(object)

    def __init__(self, theme: Theme, doing: Doing, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._doing = doing
        self._session: Session | None = None
        self._bench: Workbench | None = None
        self.story = Story()
        self._others: list[Story] = []
        self._everywhere = False
        self._grown = False
        self._listed: tuple[int, int] = (0, 0)  # what the list was filled for
        self._read_to = 0
        self._kinds: frozenset[FoldKind] = frozenset()
        self._chosen: Event | None = None
        self._wanted_fold = ""
        self._reading: Iterator[None] = iter(())
        self.chart = Chart(theme, self)
        self.list = FoldList(theme, self)
        self.panel = FoldPanel(theme)
        self._past = Past(doing, self)
        self._slices = QTimer(self, interval=0)
        self._slices.timeout.connect(self._read_on)
        self._listing = QTimer(self, interval=FRAME, singleShot=True)
        self._listing.timeout.connect(self._show_changes)
        self._kind_pill = self._pill(tr("All kinds"))
        self._scope_pill = self._pill(tr("This conversation"))
        self._now = self._pill(tr("Fold now…"))
        self._export = self._pill(tr("Export timeline…"))
        self._more = self._pill("⋯")
        self._more.setAccessibleName(tr("More actions"))
        self._lay_out()
        self._fill_menus()
        self._connect()
        set_look(self, "page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)

    def _pill(self, text: str) -> QPushButton:
        pill = QPushButton(text, self)
        set_look(pill, "chip")
        return pill

    def _lay_out(self) -> None:
        chart = QVBoxLayout()
        self._theme.fit(self, chart.setContentsMargins, 24, 20, 20, 0)
        chart.addWidget(self.chart)
        row = QHBoxLayout()
        self._theme.fit(self, row.setContentsMargins, 24, 10, 20, 8)
        self._theme.fit(self, row.setSpacing, 6)
        row.addWidget(self._kind_pill)
        row.addWidget(self._scope_pill)
        row.addStretch(1)
        row.addWidget(self._now)
        row.addWidget(self._export)
        row.addWidget(self._more)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(chart)
        column.addLayout(row)
        column.addWidget(self.list, 1)
        self._theme.fit(self, self.setMinimumWidth, 260)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Where there is little room the commands are in one menu."""
        super().resizeEvent(event)
        narrow = self.width() < self._theme.px(520)
        for button in (self._now, self._export):
            button.setVisible(not narrow)
        self._more.setVisible(narrow)

    def _connect(self) -> None:
        self.chart.chosen.connect(self._choose)
        self.chart.step_chosen.connect(self._show_step)
        self.list.chosen.connect(self._choose)
        self.panel.wanted.connect(self.wanted)
        self.panel.undo_wanted.connect(self._undo)
        self.panel.redo_wanted.connect(self._redo)
        self.panel.compare_wanted.connect(self.compare)
        self.panel.before_after_wanted.connect(self.before_after)
        self.panel.edited.connect(self._edited)
        self._now.clicked.connect(self.hand_over)
        self._export.clicked.connect(self.export)

    # --- what the window calls

    def open(self, session: Session | None, bench: Workbench | None = None) -> None:
        """Show a conversation. `bench` gives the others of the workspace, when they are asked for."""
        self._session, self._bench = session, bench
        history = session.conversation.state if session is not None else None
        self.story, self._others, self._everywhere = Story(history), [], False
        self._scope_pill.menu().actions()[0].setChecked(True)
        self._scope_pill.setText(f"{tr('This conversation')} ▾")
        self._chosen, self._read_to = None, 0
        self.panel.clear()
        self._past.forget()
        self._reading = self._read()
        self._now.setEnabled(session is not None)
        self._slices.start()

    def hear(self, events: Sequence[SessionEvent]) -> None:
        """What has happened since the last time."""
        if self._session is None or self._slices.isActive():
            return
        came = [event.recorded for event in events if isinstance(event, FactAppended)]
        self._grown |= self._advance([each for each in came if each.conversation == self._session.id])
        if self._grown and self.isVisible():
            self._show_growth()

    def showEvent(self, event: QShowEvent) -> None:
        """While it is hidden nothing is drawn anew."""
        super().showEvent(event)
        if self._grown:
            self._show_growth()

    def _show_growth(self) -> None:
        """The chart now, and in a turn of its own the list: both together take more than a frame."""
        self._grown = False
        self.chart.grow()
        if self._listed != (self.story.changes, self.story.window):
            self._listing.start()

    def _show_changes(self) -> None:
        self._fill_list()
        self._show_chosen()

    def show_fold(self, fold: str) -> None:
        """Choose a fold, now or as soon as it has been read."""
        event = self.story.event_of(fold)
        if event is None:
            self._wanted_fold = fold
            return
        self._wanted_fold = ""
        self._choose(event)

    # --- reading

    def _read_on(self) -> None:
        """A slice of the work; a long conversation is there in some hundred milliseconds while the window lives."""
        until = time.perf_counter() + SLICE
        for _ in self._reading:
            if time.perf_counter() > until:
                self._slices.start()
                return
        self._slices.stop()

    def _read(self) -> Iterator[None]:
        """Read the facts and show them, in steps short enough for a slice. What is told meanwhile is read at the end."""
        facts = self.story.history.facts
        while self._read_to < len(facts):
            self._advance(facts[self._read_to : self._read_to + AT_ONCE])
            yield
        self.chart.show_story(self.story, self._thresholds())
        yield
        self._fill_list()
        self.list.doItemsLayout()
        yield
        if self._wanted_fold:
            self.show_fold(self._wanted_fold)
        newest = next((event for event in reversed(self.story.events) if event.folds), None)
        if self._chosen is None and newest is not None:
            self._chosen = newest
            self.list.select(newest)
            yield
            self._show_choice()
        if self._advance(facts[self._read_to :]):
            self._show_growth()

    def _advance(self, facts: Sequence[Recorded]) -> bool:
        """Read these; True when the story grew. What was read already, in slices, may still be told."""
        grown = False
        for recorded in facts:
            if recorded.seq > self._read_to:
                self._read_to = recorded.seq
                grown = self.story.advance(recorded) or grown
        return grown

    def _thresholds(self) -> Sequence[Threshold]:
        if self._session is None:
            return ()
        chosen = policy.from_fact(self._session.conversation.state.settings.policy)
        found: list[Threshold] = []
        if chosen.handover != "off":
            share = chosen.handover_share
            found.append((tr("hand over {share}%", share=round(100 * share)), Kind.HANDOVER, share))
        if chosen.observation:
            found.append(
                (
                    tr("reflect {share}%", share=round(100 * chosen.reflection_share)),
                    Kind.OBSERVATIONS,
                    chosen.reflection_share,
                )
            )
            found.append(
                (
                    tr("observe {share}%", share=round(100 * chosen.observation_share)),
                    Kind.OBSERVATIONS,
                    chosen.observation_share,
                )
            )
        return found

    def _fill_list(self) -> None:
        self._listed = self.story.changes, self.story.window
        events = self.story.events
        if self._everywhere:
            events = list(reversed(merged([self.story, *self._others])))
        self.list.show_events(filtered(events, self._kinds), self.story.window, keep=self._chosen)

    # --- what is chosen

    def _choose(self, event: Event) -> None:
        if event is not self._chosen:  # else it is the list that answers
            self._chosen = event
            self.list.select(event)
            self._show_choice()

    def _show_choice(self) -> None:
        event = self._chosen
        self.chart.select(event if event is not None and event.history is self.story.history else None)
        self._show_chosen()

    def _show_chosen(self) -> None:
        event = self._chosen
        if event is None:
            return
        story = self._story_of(event)
        earlier = story.handover_before(event) if event.kind is FoldKind.HANDOVER else None
        name = tr("Compare with {n}", n=earlier.folds[0].number) if earlier is not None else ""
        about = self._about if story is self.story else lambda ref: tr("#{n}", n=ref.seq)
        shown = Shown(event, story.window, name, about)
        self.panel.show_fold(shown)

    def _story_of(self, event: Event) -> Story:
        return next((story for story in self._others if event.history is story.history), self.story)

    def _about(self, ref: PartRef) -> str:
        """The call whose output a fold covers: it stands not far before it."""
        facts = self._session.conversation.state.facts if self._session is not None else []
        returned = facts[ref.seq - 1].fact if 0 < ref.seq <= len(facts) else None
        if isinstance(returned, ToolReturned):
            for recorded in reversed(facts[max(0, ref.seq - NEAR) : ref.seq - 1]):
                for part in getattr(recorded.fact, "parts", ()):
                    if isinstance(part, ToolCall) and part.id == returned.call:
                        return called(part.name, part.arguments)
        return tr("#{n}", n=ref.seq)

    def _show_step(self, seq: int) -> None:
        if self._session is not None:
            self.wanted.emit(ShowInChat(self._session.id, seq))

    # --- commands

    def _undo(self, folds: list[str]) -> None:
        self._command("undo a fold", lambda session: _each(session.undo, folds))

    def _redo(self, folds: list[str]) -> None:
        self._command("redo a fold", lambda session: _each(session.redo, folds))

    def _edited(self, fold: str, text: str) -> None:
        event = self._chosen

        def not_kept(error: HelixError) -> None:
            if event is not None:
                self.panel.give_back(event, text)
            self._doing.failed.emit(error)

        self._command("edit a document", lambda session: session.edit_document(fold, text), not_kept)

    def _command(
        self,
        name: str,
        act: Callable[[Session], Awaitable[None]],
        failed: Callable[[HelixError], None] | None = None,
    ) -> None:
        """On the fold that is shown, in the conversation it is of."""
        session, bench, event = self._session, self._bench, self._chosen
        if session is None or event is None:
            return
        other = self._story_of(event) is not self.story and bench is not None

        async def work() -> None:
            await act(await bench.session(event.conversation) if other and bench is not None else session)

        def done(_: None) -> None:
            if other:
                self._read_others()

        self._doing.do(work(), name=name, then=done, owner=self, failed=failed)

    def hand_over(self) -> None:
        """Ask what to keep, then fold."""
        if self._session is not None:
            FoldNow(self._session, self._doing, self).open()

    def compare(self) -> None:
        """The chosen handover beside the one before it, section by section."""
        event = self._chosen
        earlier = self._story_of(event).handover_before(event) if event is not None else None
        if event is None or earlier is None:
            return
        old, new = (sentences.sections(each.folds[0].text) for each in (earlier, event))
        titles = (sentences.title(earlier), sentences.title(event))
        CompareDialog(self._theme, titles, sentences.compared(old, new), self).open()

    def before_after(self) -> None:
        """What the model saw before the chosen fold and after it, side by side."""
        event, session = self._chosen, self._session
        if event is None or session is None or event.history is not self.story.history:
            return
        talk, facts = session.conversation, session.conversation.state.facts
        last = self._last_of(event, facts)

        def before(then: Moment) -> None:
            old = then.view()
            self._past.at(talk, last, lambda after: self._show_both(event, old, after.view(), facts))

        self._past.at(talk, event.seq - 1, before)

    def _last_of(self, event: Event, facts: Sequence[Recorded]) -> int:
        """The last fact of the batch."""
        names = {fold.fold for fold in event.folds}
        last = event.seq
        for recorded in facts[event.seq : event.seq + 4 * len(names)]:
            if getattr(recorded.fact, "fold", "") in names:
                last = recorded.seq
        return last

    def _show_both(self, event: Event, old: View, new: View, facts: Sequence[Recorded]) -> None:
        found = difference(old, new)
        before, after = (
            tr("Before {name}", name=sentences.title(event)),
            tr("After {name}", name=sentences.title(event)),
        )
        titles = (f"{before} · {short(found.before)}", f"{after} · {short(found.after)} ({found.tokens:+,})")
        CompareDialog(self._theme, titles, (readable(old, facts), readable(new, facts)), self).open()

    def export(self) -> None:
        """Write the story as Markdown to a file of the user's choice."""
        if self._session is None:
            return
        text = sentences.as_markdown(self.story, self._session.conversation.state.title or tr("Conversation"))

        def save_to(file: Path) -> None:
            self._doing.do(save(file, lambda: text), name="export", owner=self)

        ask_new_file(self, tr("Export timeline"), "story.md", save_to)

    # --- filters

    def _fill_menus(self) -> None:
        kinds = (
            (tr("All kinds"), frozenset[FoldKind]()),
            (tr("Handovers"), frozenset({FoldKind.HANDOVER, FoldKind.TRUNCATION})),
            (tr("Observations"), frozenset({FoldKind.OBSERVATIONS, FoldKind.REFLECTION})),
            (tr("Cached outputs"), frozenset({FoldKind.MARKER})),
            (tr("Excerpts"), frozenset({FoldKind.EXCERPT})),
        )
        self._menu(self._kind_pill, [(name, partial(self._choose_kinds, chosen)) for name, chosen in kinds])
        more = QMenu(self._more)
        more.addAction(tr("Fold now…"), self.hand_over)
        more.addAction(tr("Export timeline…"), self.export)
        self._more.setMenu(more)
        scopes = ((tr("This conversation"), False), (tr("Whole workspace"), True))
        self._menu(self._scope_pill, [(name, partial(self._choose_scope, everywhere=on)) for name, on in scopes])

    def _menu(self, pill: QPushButton, choices: Sequence[tuple[str, Callable[[], None]]]) -> None:
        menu = QMenu(pill)
        group = QActionGroup(menu)
        for number, (name, act) in enumerate(choices):
            action = menu.addAction(name)
            action.setCheckable(True)
            action.setChecked(number == 0)
            group.addAction(action)
            action.triggered.connect(partial(self._picked, pill, name, act))
        pill.setMenu(menu)
        pill.setText(f"{choices[0][0]} ▾")

    def _picked(self, pill: QPushButton, name: str, act: Callable[[], None], _: object = None) -> None:
        pill.setText(f"{name} ▾")
        act()

    def _choose_kinds(self, kinds: frozenset[FoldKind]) -> None:
        self._kinds = kinds
        self._fill_list()

    def _choose_scope(self, *, everywhere: bool) -> None:
        self._everywhere = everywhere
        self._fill_list()
        if everywhere and not self._others:
            self._read_others()

    def _read_others(self) -> None:
        session, bench = self._session, self._bench

        def take(stories: list[Story]) -> None:
            if self._session is session:
                self._others = stories
                self._fill_list()
                self._show_chosen()

        if session is not None and bench is not None:
            self._doing.do(_stories(bench, session.id), name="folds of the workspace", then=take, owner=self)


async def _each(command: Callable[[str], Awaitable[None]], folds: list[str]) -> None:
    for fold in folds:
        await command(fold)


async def _stories(bench: Workbench, but: str) -> list[Story]:
    """The stories of all other conversations, read one after another."""
    stories = []
    for row in bench.conversations():
        if row.id != but:
            facts = await bench.child(row.id)
            stories.append(await asyncio.to_thread(_story_of, facts))
    return stories


def _story_of(facts: Sequence[Recorded]) -> Story:
    story = Story(state_of(facts))
    story.extend(facts)
    return story
