"""What stands around the window: the first start, connecting a model, the settings, desktop notifications, the tour."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from helix_desktop.engine.events import Running
from helix_desktop.gui.background import Spawn
from helix_desktop.gui.bring_in.port import Group, Histories, Outcome
from helix_desktop.gui.chat.trust_dialog import TrustDialog, asks
from helix_desktop.gui.connected.port import ConnectedAgents
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.frame.notify import Notifier
from helix_desktop.gui.links import Place, parse
from helix_desktop.gui.links import link as link_of
from helix_desktop.gui.main_window import TITLE, MainWindow
from helix_desktop.gui.model_acts import ModelActs
from helix_desktop.gui.ports import Brought, Workbench
from helix_desktop.gui.questions import ask_folder, ask_which, tell_text
from helix_desktop.gui.settings.program import Installation
from helix_desktop.gui.setup import Setup
from helix_desktop.gui.shared.policies import policy_choices
from helix_desktop.gui.tour import Tour
from helix_desktop.gui.words import tr
from helix_desktop.settings import NOTIFY_DONE, NOTIFY_FAILED, NOTIFY_WAITING

if TYPE_CHECKING:
    from helix_desktop.gui.settings.dialog import SettingsDialog


class Front(QObject):
    """Made when the stores can be opened. `tour_folder`: where the tour's sample lives."""

    def __init__(
        self, window: MainWindow, setup: Setup, installation: Installation, tour_folder: Path, spawn: Spawn
    ) -> None:
        super().__init__(window)
        self._window = window
        self._setup = setup
        self._installation = installation
        self._tour_folder = tour_folder
        self._settings: SettingsDialog | None = None
        self.models = ModelActs(window, setup)
        self._tour: Tour | None = None
        self._told: set[tuple[str, ...]] = set()  # workspaces, and what opening them found
        self._asked_for: set[tuple[str, str]] = set()  # what a folder brings, as it was when the user was told
        self._notifier = Notifier(window.windowIcon(), spawn, self)
        self._notifier.clicked.connect(self._clicked)
        welcome = window.welcome
        welcome.folder_wanted.connect(
            lambda: ask_folder(window, tr("Open folder as workspace"), window.create_workspace)
        )
        welcome.folder_given.connect(window.create_workspace)
        welcome.tour_wanted.connect(self.tour)
        welcome.import_wanted.connect(window.actions_["import-workspace"].trigger)
        welcome.bring_in_wanted.connect(self.bring_in)
        window.trying_again.connect(setup.ask_keyring_again)
        window.workbench_shown.connect(self._close_settings)
        window.workbench_shown.connect(self._look_for_rules)
        window.workbench_shown.connect(self._look_for_folders)
        window.workbench_shown.connect(self._look_at_what_came)
        window.setup_wanted.connect(self._first_model)
        window.settings_wanted.connect(self.open_settings)
        window.settled.connect(self._settled)
        window.settled.connect(lambda *_: self._look_for_rules())  # a file that was used may have brought some
        window.settled.connect(lambda *_: self._look_for_folders())
        window.actions_.on("tour", self.tour)
        window.actions_.on("lab", self.open_lab)
        window.actions_.on("bring-in", self.bring_in)
        window.actions_.on("connect-agent", self.connect_agents)
        self._histories: Histories | None = None
        self._agents: ConnectedAgents | None = None
        welcome.ready.connect(self._look_for_others)

    def _first_model(self) -> None:
        """A message is to be sent and no model is chosen: it goes by itself once there is one."""
        self.models.first(lambda: self._window.chat.composer.send(steer=False))

    # --- what opening found

    def _look_for_folders(self) -> None:
        """A folder that was moved or deleted is said when the workspace opens, and not only by the calls that fail."""
        window, bench = self._window, self._window.bench
        if bench is None:
            return

        def looked(gone: Sequence[Path]) -> None:
            if gone and window.bench is bench and not window.notices.text:
                words = tr(
                    "The folder {folder} is missing. History and cache are intact. Restore the folder, or choose another.",
                    folder=gone[0],
                )
                choose = window.actions_["workspace-folder"].trigger
                window.notices.tell(words, button=tr("Choose a folder…"), act=choose, stays=60_000)

        work = asyncio.to_thread(_gone, tuple(bench.folders))
        window.doing.do(work, name="look for the folders", then=looked, owner=window)

    def _look_at_what_came(self) -> None:
        """What had to be mended is said; what an import brought along is shown before it counts."""
        bench, notices = self._window.bench, self._window.notices
        if bench is None:
            return
        found = (bench.id, *bench.notes)
        if bench.notes and found not in self._told:
            self._told.add(found)
            text = "\n\n".join(map(said, bench.notes))
            words = tr("{name} was opened, but some of its files needed attention.", name=bench.name)
            title = tr("What happened when the workspace was opened")
            notices.tell(words, button=tr("Review"), act=lambda: tell_text(self._window, title, text), stays=60_000)
        if bench.proposals():
            self._ask_proposals(bench)

    def _ask_proposals(self, bench: Workbench) -> None:
        text = tr(
            "This workspace was imported. It contains folders, permissions, MCP servers or instructions from another computer. None of them take effect until you allow them:\n\n{proposals}",
            proposals=bench.proposals(),
        )

        def decide(accept: bool) -> None:  # noqa: FBT001 - a step of this very function
            async def decided() -> Workbench:
                await bench.decide_proposals(accept=accept)
                return await self._window.desk.reopen(bench.id)

            self._window.open_anew(bench.id, decided())

        ways = [(tr("Discard"), lambda: decide(False)), (tr("Allow"), lambda: decide(True))]
        ask_which(self._window, tr("Imported settings"), text, tr("Decide later"), ways)

    # --- rules files

    def _look_for_rules(self) -> None:
        """A rules file that is new or has changed is shown before it is followed."""
        bench, window = self._window.bench, self._window
        if bench is not None:
            work = asyncio.to_thread(lambda: bench.project.look().asking())
            then = partial(self._rules_found, bench)
            window.doing.do(work, name="look for rules files", then=then, owner=window)

    def _rules_found(self, bench: Workbench, files: Sequence[Brought]) -> None:
        new = [file for file in files if (file.key, file.text) not in self._asked_for]
        if new and self._window.bench is bench:
            self._asked_for.update((file.key, file.text) for file in new)
            self._window.notices.tell(
                asks(new), button=tr("Review"), act=lambda: self._show_rules(bench, new), stays=30_000
            )

    def _show_rules(self, bench: Workbench, files: Sequence[Brought]) -> None:
        def trust(seen: Sequence[Brought]) -> None:
            names = ", ".join(file.name for file in seen[:3]) + (" …" if len(seen) > 3 else "")
            used = tr("From the next step on, the agent will use: {names}", names=names)
            tell = self._window.notices.tell
            self._window.doing.do(
                bench.project.trust(*seen),
                name="trust what a folder brings",
                then=lambda _done: tell(used),
                owner=self._window,
            )

        TrustDialog(self._window.theme, files, trust, self._window).open()

    # --- settings

    def open_settings(self, page: str) -> None:
        """At a page; an open one is brought to the front. Its pages are imported when they are first looked at."""
        from helix_desktop.gui.settings.dialog import SettingsDialog

        if self._settings is None:
            self._settings = SettingsDialog(self._window, self._setup, self._installation)
            self._settings.model_chosen.connect(self.models.use)
            self._settings.finished.connect(lambda _result: self._settings_closed())
            self._settings.open_at(page)
            self._settings.show()
        else:
            self._settings.open_at(page)
            self._settings.raise_()

    def _close_settings(self) -> None:
        """They are about the workspace that was in front when they were opened."""
        if self._settings is not None:
            self._settings.reject()

    def _settings_closed(self) -> None:
        if self._settings is not None:
            self._settings.deleteLater()
        self._settings = None
        self._window.show_choices()

    def open_lab(self) -> None:
        """Other policies on conversations of the workspace in front."""
        from helix_desktop.gui.lab.dialog import Lab

        window = self._window
        if window.bench is not None:
            play, took = self._installation.play, lambda _policy: window.show_choices()
            Lab(window.bench, policy_choices(), play, window.doing, took, window.theme, window).open()

    # --- conversations of other programs

    def _of_others(self) -> Histories:
        if self._histories is None:
            self._histories = self._installation.histories(self._window.desk)
        return self._histories

    def _look_for_others(self) -> None:
        """Who starts with an empty program is told what is there to begin with."""
        window = self._window
        if window.page == "welcome":
            window.doing.do(self._of_others().find(), name="find conversations", then=self._found, owner=window)

    def _found(self, groups: Sequence[Group]) -> None:
        programs = ", ".join(dict.fromkeys(group.program for group in groups))
        self._window.welcome.show_found(sum(group.conversations for group in groups), programs)

    def bring_in(self, at_once: bool = False) -> None:  # noqa: FBT001, FBT002 - a slot
        """Find them, and bring them in."""
        from helix_desktop.gui.bring_in.dialog import BringInDialog

        window = self._window
        dialog = BringInDialog(window, window.doing, self._of_others(), self._brought_in, window.refresh_conversations)
        dialog.open()
        dialog.look(at_once=at_once)

    def connect_agents(self) -> None:
        """The gateway's switch, and a line to copy or a button for each agent."""
        from helix_desktop.gui.connected.dialog import AgentsDialog

        if self._agents is None:
            self._agents = self._installation.connected_agents()
        dialog = AgentsDialog(self._window, self._window.doing, self._agents)
        dialog.open()
        dialog.look()

    def _brought_in(self, outcome: Outcome) -> None:
        window = self._window
        window.refresh_workspaces()
        workspace, conversation = outcome.show
        if not workspace:
            return
        if window.bench is not None and window.bench.id == workspace:
            window.refresh_conversations()
        elif window.bench is None:
            window.go(Place("conversation", workspace, conversation))

    # --- notifications

    def _settled(self, workspace: str, conversation: str, running: Running, why: str) -> None:
        window, wanted = self._window, self._window.settings
        if window.isActiveWindow():
            return
        allowed = {Running.IDLE: NOTIFY_DONE, Running.ASKING: NOTIFY_WAITING, Running.FAILED: NOTIFY_FAILED}.get(
            running
        )
        if allowed is None or not wanted[allowed]:
            return
        words = {
            Running.IDLE: tr("The agent has finished."),
            Running.ASKING: tr("The agent is waiting for you: {why}", why=said(why)),
            Running.FAILED: tr("The agent stopped: {why}", why=said(why)),
        }
        title = window.title_of(workspace, conversation) or TITLE
        self._notifier.tell(title, words[running], link_of(Place("conversation", workspace, conversation)))

    def _clicked(self, place: str) -> None:
        self._window.window().raise_()
        self._window.window().activateWindow()
        if place:
            self._window.go(parse(place))

    # --- the tour

    def tour(self) -> None:
        """A workspace of its own on a sample folder, and a new conversation there for the user to begin."""
        window = self._window
        if self._tour is not None:
            return

        def made(bench: Workbench) -> None:
            if window.bench is not bench:
                window.show_workbench(bench)
            window.show_page("chat")
            window.begin_anew()
            self._tour = Tour(window, self._tour_over)

        work = self._installation.tour_workbench(window.desk, self._tour_folder)
        window.doing.do(work, name="begin the tour", then=made, owner=window)

    def _tour_over(self) -> None:
        self._tour = None


def _gone(folders: Sequence[Path]) -> Sequence[Path]:
    return [folder for folder in folders if not folder.is_dir()]
