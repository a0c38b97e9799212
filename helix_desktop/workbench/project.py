"""What the workspace's folders bring, in use: rules that come into force, skills that are read, commands that are said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from pathlib import Path

from helix_desktop.engine.calls import PATH_KEYS, object_in
from helix_desktop.engine.collaborators import Note
from helix_desktop.engine.facts import ModelReplied, RulesSet, ToolCall, ToolReturned, ToolSpec
from helix_desktop.engine.ports import Tokens
from helix_desktop.engine.view import State
from helix_desktop.errors import NotThere
from helix_desktop.project import folder
from helix_desktop.project.folder import Brought
from helix_desktop.project.item import Item
from helix_desktop.store.workspace import Workspace
from helix_desktop.tools.on_demand import Catalogue, SourceLine
from helix_desktop.tools.tool import Arguments, Result, Tool, Use, fields, text
from helix_desktop.values import dataclass

USE_SKILL = "use_skill"
_ABOUT_SKILL = "Read a skill's instructions. They then hold word for word."
_SKILL_SCHEMA = fields("name", name=text("The skill's name"))
MOST_TOUCHED = 5_000


@dataclass(slots=True)
class Used:
    """What one conversation has touched and read so far, read off its facts once each."""

    paths: dict[Path, None] = field(default_factory=dict)
    skills: dict[str, None] = field(default_factory=dict)
    read: int = 0

    def take(self, state: State, roots: Sequence[Path]) -> Used:
        for recorded in state.facts[self.read :]:
            fact = recorded.fact
            if isinstance(fact, ModelReplied):
                for part in fact.parts:
                    if isinstance(part, ToolCall):
                        self._called(part, roots)
            elif isinstance(fact, ToolReturned):
                for change in fact.changes:
                    self._touch(change.path, roots)
        self.read = len(state.facts)
        return self

    def _called(self, call: ToolCall, roots: Sequence[Path]) -> None:
        values = object_in(call.arguments) or {}
        if call.name == USE_SKILL and isinstance(values.get("name"), str):
            self.skills[values["name"]] = None
        for key in PATH_KEYS:
            if isinstance(values.get(key), str):
                self._touch(values[key], roots)

    def _touch(self, said: str, roots: Sequence[Path]) -> None:
        if len(said) > 4_096 or "\0" in said or len(self.paths) >= MOST_TOUCHED:
            return
        for root in roots:
            path = Path(said) if Path(said).is_absolute() else root / said
            if ".." not in path.parts and path.is_relative_to(root):
                self.paths[path] = None


class Project:
    """Of one workspace. `now` is what was found when it was last looked for; `changed` is called when that is something else."""

    def __init__(self, workspace: Workspace) -> None:
        self.now = Brought()
        self.listeners: list[Callable[[], None]] = []
        self._workspace = workspace
        self._used: dict[str, Used] = {}

    def used(self, conversation: str) -> Used:
        return self._used.setdefault(conversation, Used())

    def look(self) -> Brought:
        """Read the folders now."""
        settings = self._workspace.settings
        touched = [path for used in tuple(self._used.values()) for path in tuple(used.paths)]
        return folder.look(settings.roots, settings.trusted, settings.off, touched)

    async def look_again(self) -> Brought:
        """`look`, beside the loop; who shows it hears of what is different."""
        found = await asyncio.to_thread(self.look)
        if found != self.now:
            self.now = found
            for listener in tuple(self.listeners):
                listener()
        return found

    async def for_step(
        self, conversation: str, state: State, tokens: Tokens
    ) -> tuple[tuple[RulesSet, ...], tuple[Note, ...]]:
        """The rules in front of a conversation's next request, and what holds from there on."""
        roots = [Path(root) for root in self._workspace.settings.roots]
        used = self.used(conversation).take(state, roots)
        found = await self.look_again()
        rules = _head(found, state, tokens)
        notes = (*_nested(found, used.paths, state), *_skills(found, used.skills, state))
        return rules, notes

    def tools(self) -> tuple[Tool, ...]:
        return (Tool(USE_SKILL, _ABOUT_SKILL, _SKILL_SCHEMA, self._use_skill, rare=True),)

    async def _use_skill(self, args: Arguments, _: Use) -> Result:
        item = (await self.look_again()).find("skill", args.text("name"))
        if item is None:
            known = ", ".join(each.name for each in self.now.in_force("skill")) or "none"
            raise NotThere(f"There is no skill {args.text('name')[:80]!r}.", remedy=f"Available: {known}.")
        return Result(f"The instructions of {item.name} follow. Its files are in {item.path.parent}.", source=item.name)

    def catalogues(self) -> Sequence[Catalogue]:
        """The skills and agents there are, a line each."""
        skills = [SourceLine(item.name, item.about) for item in self.now.in_force("skill") if not _only_by_hand(item)]
        found = [Catalogue(f'Skills; read one with call_tool("{USE_SKILL}") before work it is for:', tuple(skills))]
        agents = [SourceLine(item.name, item.about) for item in self.now.in_force("agent")]
        found.append(Catalogue("Agents to delegate to by name:", tuple(agents)))
        return found

    def searchable(self) -> Sequence[ToolSpec]:
        """Skills as the search for tools finds them."""
        return [
            ToolSpec(
                USE_SKILL, f"The skill {item.name}: {item.about}", json.dumps({"name": item.name}, ensure_ascii=False)
            )
            for item in self.now.in_force("skill")
            if not _only_by_hand(item)
        ]

    async def trust(self, *items: Item) -> None:
        """The user has seen exactly these contents and agrees: one change, whatever their number."""
        agreed = {item.key: item.sha256 for item in items}
        await self._change(lambda now: {"permissions.trusted": {**now.trusted, **agreed}})

    async def switch(self, key: str, *, on: bool) -> None:
        """Use an item, or do not, whatever else is decided about it."""
        await self._change(lambda now: {"permissions.off": sorted({*now.off} - {key} if on else {*now.off, key})})

    async def _change(self, changes: Callable[..., dict[str, object]]) -> None:
        await asyncio.to_thread(self._workspace.change, changes)
        await self.look_again()


def _only_by_hand(item: Item) -> bool:
    return str(item.values.get("disable-model-invocation", "")).lower() == "true"


def _head(found: Brought, state: State, tokens: Tokens) -> tuple[RulesSet, ...]:
    """Trusted files of the roots; one that is gone or switched off is taken out; one that changed stays as it was trusted."""
    holding = [item for item in found.in_force("rules") if not item.nested]
    facts = [RulesSet(str(item.path), item.body, tokens.count(item.body)) for item in holding]
    waiting = {str(item.path) for item in found.of("rules") if item.known and not item.trusted and not item.off}
    there = {fact.path for fact in facts} | waiting
    return (*facts, *(RulesSet(known.path, "", 0) for _, known in state.settings.rules if known.path not in there))


def _nested(found: Brought, touched: Iterable[Path], state: State) -> list[Note]:
    """Those a file of this conversation has brought into force; one that is gone or off is taken back."""
    paths = tuple(touched)
    notes, there = [], set()
    for item in found.of("rules"):
        by = f"rules:{item.path}"
        if item.nested and (by in state.branch.notes or item.holds_for(paths)):
            if item.in_force:
                notes.append(
                    Note(by, f"[Rules from {item.path}. They hold for the files below {item.below}.]\n\n{item.body}")
                )
            if not item.off:
                there.add(by)
    gone = [by for by in state.branch.notes if by.startswith("rules:") and by not in there]
    return notes + [Note(by, "") for by in gone]


def _skills(found: Brought, used: Iterable[str], state: State) -> list[Note]:
    notes = []
    for name in used:
        item = found.find("skill", name)
        by = f"skill:{name}"
        if item is not None:
            where = f"Its files are in {item.path.parent}."
            notes.append(Note(by, f"[The skill {name}, word for word. {where}]\n\n{item.body}"))
        elif by in state.branch.notes and not any(each.name == name for each in found.of("skill")):
            notes.append(Note(by, ""))
    return notes
