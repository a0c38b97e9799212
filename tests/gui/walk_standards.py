"""What a folder brings, plan mode and agents at work, in the real window: by real mouse
and keyboard.

Run by test_walk_standards.py under a screen. `python -m tests.gui.walk_standards HOME
[PICTURES [LOOK]]`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, TypeVar

from PySide6.QtWidgets import QApplication, QCheckBox, QWidget

from helix_desktop import program_folders
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.engine.facts import Fact, TurnEnded, UserSaid
from helix_desktop.engine.session import Session
from helix_desktop.gui.chat.trust_dialog import TrustDialog
from helix_desktop.gui.settings.rules_and_skills_page import RulesAndSkillsPage
from helix_desktop.gui.settings.settings_dialog import SettingsDialog
from helix_desktop.gui.subagents_dialog import SubagentsDialog
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.gui.hands import allow, click, key, press, type_
from tests.gui.walk_context import shown
from tests.mcp_client.world import SCRIPT
from tests.peers.chat_server import ChatServer, reply
from tests.peers.peer import Answer, Pause, Seen
from tests.soak.driven import HOME, drive, until

SKILLS = 60
AGENTS = 12
AT_ONCE = 6
PLAN = "1. Read src/pairs.py\n2. Let `count` take any iterable\n3. Run the tests"
STEPS: dict[str, list[list[tuple[str, dict[str, Any]]]]] = {
    "look into src": [[("read_file", {"path": "src/pairs.py"})]],
    "write the notes": [
        [("call_tool", {"name": "use_skill", "arguments": {"name": "release-notes"}})]
    ],
    "make a plan": [[("call_tool", {"name": "present_plan", "arguments": {"plan": PLAN}})]],
    "find a tool": [
        [("find_tools", {"query": "tool 41"})],
        [("call_tool", {"name": "many__tool41", "arguments": {}})],
    ],
    "send them out": [
        [("delegate", {"task": f"TASK {n}: read part {n} of the log"}) for n in range(AGENTS)]
    ],
}
W = TypeVar("W", bound=QWidget)


class Model(ChatServer):
    """Answers by the words of the user; an agent that was delegated to works for minutes."""

    def answer(self, seen: Seen) -> Answer:
        if seen.method == "GET":
            return self.listing(seen)
        messages = seen.body["messages"]
        said = [json.dumps(message["content"]) for message in messages if message["role"] == "user"]
        if any("TASK " in words for words in said):
            done = reply("Done.")
            return Answer(pieces=(Pause(240.0), *done.pieces))
        asked = max(
            (
                (words.rfind(key), at, key)
                for at, words in enumerate(said)
                for key in STEPS
                if key in words
            ),
            key=lambda f: (f[1], f[0]),
            default=None,
        )
        if asked is None:
            return reply("Hello.")
        since = [at for at, message in enumerate(messages) if message["role"] == "user"][asked[1]]
        done_ = sum(bool(message.get("tool_calls")) for message in messages[since:])
        steps = STEPS[asked[2]]
        return (
            reply("I am at it.", calls=steps[done_])
            if done_ < len(steps)
            else reply("That is done.")
        )


def fill(folder: Path) -> None:
    """Rules at two depths, skills, a command, a hook, an agent."""
    texts = {
        "AGENTS.md": "# Rules\n\nWrite short sentences. Run the tests before you say that you are done.\n",
        "src/AGENTS.md": "In src: four spaces, no tabs.\n",
        "src/pairs.py": "def count(sequence):\n    return len(sequence)\n",
        "README.md": "# Pairs\n",
        ".claude/commands/look.md": "---\ndescription: Look at a part\nargument-hint: part\nallowed-tools: Bash(date:*)\n---\nlook into $1, today: !`date +%F`\n",
        ".claude/agents/reviewer.md": "---\nname: reviewer\ndescription: Reviews a change\ntools: Read, Grep\n---\nYou review code.\n",
        ".claude/settings.json": json.dumps(
            {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "python3 .claude/check.py", "timeout": 5}]}],
                       "SubagentStart": [{"hooks": [{"type": "command", "command": "true"}]}]}}
        ),
        ".claude/check.py": "import json, sys\n\ncall = json.load(sys.stdin)\nif 'rm -rf' in call['tool_input'].get('command', ''):\n    print('Not that.', file=sys.stderr)\n    sys.exit(2)\n",
    }  # fmt: skip
    names = ["release-notes", *(f"skill-{number}" for number in range(1, SKILLS))]
    for name in names:
        texts[f".claude/skills/{name}/SKILL.md"] = (
            f"---\nname: {name}\ndescription: How {name.replace('-', ' ')} is done here\n---\n# {name}\n\n"
            "1. Read the history.\n2. Write one line a change.\n"
        )
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def prepare(home: Path, base_url: str, look: str) -> None:
    folder = home / "project"
    folder.mkdir(parents=True)
    fill(folder)

    async def make() -> None:
        where = program_folders.find_program_folders(home / HOME)
        desk = Workbenches(where, SecretStorage(where.key_file, environ={}))
        desk.configured.save_provider(ProviderConfig("peer", base_url=base_url))
        bench = await desk.create_workspace("walk", folder)
        await bench.choose_model_for_role("peer/scripted")
        await bench.choose_context_policy("layered", {"tools_share": 0.0})
        await bench.change_settings({"limits.agents_at_once": AT_ONCE})
        await bench.change_settings(
            {"mcp.many": {"command": sys.executable, "args": [str(SCRIPT), "many"]}}
        )
        await desk.aclose()
        if look:
            where.settings_file.parent.mkdir(parents=True, exist_ok=True)
            where.settings_file.write_text(f'[appearance]\ntheme = "{look}"\n')

    asyncio.run(make())


class Walk:
    def __init__(self, run: WindowProgram, home: Path, pictures: Path | None) -> None:
        self.window = run.window
        self.folder = home / "project"
        self._pictures = pictures
        self._number = 0
        self._ends = 0  # turns that have ended and were waited for

    @property
    def bench(self) -> Workbench:
        assert isinstance(self.window.current_workbench, Workbench)
        return self.window.current_workbench

    @property
    def session(self) -> Session:
        assert isinstance(self.window.current_session, Session)
        return self.window.current_session

    async def go(self) -> None:
        await until(lambda: self.window.current_workbench is not None)
        await until(self.window.isActiveWindow)
        if size := os.environ.get("WALK_SIZE"):
            self.window.window().resize(*map(int, size.split("x")))
            await asyncio.sleep(0.5)
        await self._trust()
        await self._page()
        await self._nested()
        await self._skill()
        await self._command()
        await self._tools()
        await self._plan()
        await self._agents()

    async def _trust(self) -> None:
        """Many items in one dialog."""
        await self._shot("notice")
        await press(self.window.window(), "Review")
        dialog = await shown(TrustDialog)
        await self._shot("trust")
        await click(dialog.filter)
        await type_("hook")
        await self._shot("trust-filtered")
        dialog.close()
        await self.bench.project.trust_items(
            *self.bench.project.read_project_folders().items_to_ask_about()
        )

    async def _page(self) -> None:
        self.window.window_actions["brought"].trigger()
        dialog = await shown(SettingsDialog)
        await until(lambda: bool(dialog.findChildren(QCheckBox)))
        await self._shot("page")
        page = dialog.findChild(RulesAndSkillsPage)
        assert page is not None
        dialog.close()

    async def _nested(self) -> None:
        await self._say("look into src")
        await self._ended()
        await self._shot("nested-rules")

    async def _skill(self) -> None:
        await self._say("write the notes")
        await self._ended()
        await self._shot("skill")

    async def _command(self) -> None:
        await click(self.window.chat.composer.text)
        await type_("/lo")
        await self._shot("completion")
        await type_("ok src")
        await key("Return")
        await until(lambda: self.window.chat.approvals.visible_card is not None)
        await self._shot("shell-line-asked")
        await allow(self.window.chat.approvals)
        await self._ended()
        await self._shot("command-sent")

    async def _tools(self) -> None:
        await until(
            lambda: bool(self.bench.mcp_servers.list_offered_server_tools())
        )  # a server starts in the background
        await self._say("find a tool")
        await until(lambda: self.window.chat.approvals.visible_card is not None)
        await self._shot("tool-asked")
        await allow(self.window.chat.approvals)
        await self._ended()
        await self._shot("tool-found")
        await key("alt+5")
        await self._shot("page-5")
        await key("alt+1")

    async def _plan(self) -> None:
        await self.bench.choose_permission_mode("plan")
        await self._say("make a plan")
        await until(lambda: self.window.chat.approvals.visible_card is not None)
        await self._shot("plan")
        card = self.window.chat.approvals.visible_card
        assert card is not None
        assert card._plan is not None
        await click(card._plan)
        await key("ctrl+End")
        await key("Return")
        await type_("4. Say what changed")
        await self._shot("plan-edited")
        await press(card, "Approve and ask")
        await self._ended()
        _, approved = self.session.conversation.state.branch.notes["plan"]
        assert approved.endswith(f"{PLAN}\n4. Say what changed")
        await self._shot("plan-approved")
        assert self.bench.permission_mode == "ask"

    async def _agents(self) -> None:
        await self._say("send them out")
        await until(lambda: self._states().count("working") == AT_ONCE)
        self.window.window_actions["agents"].trigger()
        dialog = await shown(SubagentsDialog)
        await self._shot("agents")
        await press(dialog, "Stop all")
        await until(lambda: set(self._states()) == {"stopped"})
        await self._shot("agents-stopped")
        dialog.close()

    def _states(self) -> list[str]:
        return [row.state for row in self.bench.workforce.list_agent_rows(self.session.id)]

    async def _say(self, words: str) -> None:
        await click(self.window.chat.composer.text)
        await type_(words)
        before = self._count(UserSaid)
        await key("Return")
        await until(lambda: self._count(UserSaid) > before)

    def _count(self, kind: type[Fact]) -> int:
        session = self.window.current_session
        return (
            sum(isinstance(each.fact, kind) for each in session.all_facts)
            if isinstance(session, Session)
            else 0
        )

    async def _ended(self) -> None:
        """The turn that was begun last."""
        self._ends += 1
        await until(
            lambda: self._count(TurnEnded) == self._ends and self.session.running.value == "idle"
        )

    async def _shot(self, name: str) -> None:
        if self._pictures is not None:
            self._number += 1
            await asyncio.sleep(0.5)
            screen = QApplication.primaryScreen()
            screen.grabWindow(0).save(str(self._pictures / f"{self._number:02}-{name}.png"))


if __name__ == "__main__":
    at = Path(sys.argv[1])
    shots = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    with Model() as model:
        prepare(at, model.base_url, sys.argv[3] if len(sys.argv) > 3 else "")
        sys.exit(drive(at, lambda run: Walk(run, at, shots).go()))
