"""Uses what the workspace's folders contain for agents: rules, skills and descriptions
of agents.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine import context_usage
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import ModelReplied, RulesSet, ToolCall, ToolReturned, ToolSpec
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.engine.session_setup import StandingNote
from helix_desktop.engine.tool_call_parsing import PATH_KEYS, parse_arguments
from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.project.project_files import ProjectItems, read_project_files
from helix_desktop.project.project_item import ProjectItem
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.tools import built_in_tool, hidden_files, tools_on_demand
from helix_desktop.tools.tools_on_demand import OnDemandTools, RequestHeadRoom, SourceCatalogue
from helix_desktop.tools.workspace_roots import WorkspaceRoots
from helix_desktop.workbench import system_prompt_and_settings

USE_SKILL = "use_skill"
MOST_TOUCHED = 5_000


@dataclass(slots=True)
class UsedProjectItems:
    """The paths, skills and files that a conversation has used, updated from each fact once."""

    paths: dict[Path, None] = field(default_factory=dict)
    skills: dict[str, None] = field(default_factory=dict)
    read: int = 0

    def update_from_facts(
        self, state: ConversationState, roots: Sequence[Path]
    ) -> "UsedProjectItems":
        for recorded in state.facts[self.read :]:
            fact = recorded.fact
            if isinstance(fact, ModelReplied):
                for part in fact.parts:
                    if isinstance(part, ToolCall):
                        self._collect_skills_and_paths_of_call(part, roots)
            elif isinstance(fact, ToolReturned):
                for change in fact.changes:
                    self._add_touched_path(change.path, roots)
        self.read = len(state.facts)
        return self

    def _collect_skills_and_paths_of_call(self, call: ToolCall, roots: Sequence[Path]) -> None:
        values = parse_arguments(call.arguments) or {}
        if call.name == USE_SKILL and isinstance(values.get("name"), str):
            self.skills[values["name"]] = None
        for key in PATH_KEYS:
            if isinstance(values.get(key), str):
                self._add_touched_path(values[key], roots)

    def _add_touched_path(self, path_text: str, roots: Sequence[Path]) -> None:
        if len(path_text) > 4_096 or "\0" in path_text or len(self.paths) >= MOST_TOUCHED:
            return
        for root in roots:
            path = Path(path_text) if Path(path_text).is_absolute() else root / path_text
            if ".." not in path.parts and path.is_relative_to(root):
                self.paths[path] = None


class WorkspaceRulesAndSkills:
    """The rules and skills of one workspace. `now` was found last; `listeners` are
    called if that changes.
    """

    def __init__(self, workspace: StoredWorkspace) -> None:
        self.now = ProjectItems()
        self.listeners: list[Callable[[], None]] = []
        self._workspace = workspace
        self._used: dict[str, UsedProjectItems] = {}

    def read_project_folders(self) -> ProjectItems:
        settings = self._workspace.settings
        touched = [path for used in tuple(self._used.values()) for path in tuple(used.paths)]
        patterns = system_prompt_and_settings.parse_hidden_patterns(settings)
        roots = replace(
            WorkspaceRoots.from_folders([Path(root) for root in settings.roots]),
            is_hidden_inside=lambda inside: hidden_files.matches_hidden_patterns(inside, patterns),
        )
        return read_project_files(
            settings.roots, settings.trusted, settings.off, touched, roots.is_hidden_path
        )

    async def reread_project_folders(self) -> ProjectItems:
        """Read the folders in a thread, and call the listeners if something has changed."""
        found = await asyncio.to_thread(self.read_project_folders)
        if found != self.now:
            self.now = found
            for listener in tuple(self.listeners):
                listener()
        return found

    async def rules_and_notes_for_step(
        self, conversation: str, state: ConversationState, tokens: TokenCounter
    ) -> tuple[tuple[RulesSet, ...], tuple[StandingNote, ...]]:
        """Return the rules for a conversation's next request, and notes that hold from then on."""
        roots = [Path(root) for root in self._workspace.settings.roots]
        used = self._used.setdefault(conversation, UsedProjectItems()).update_from_facts(
            state, roots
        )
        found = await self.reread_project_folders()
        rules = _rules_for_prompt(found, state, tokens)
        notes = (
            *_notes_on_nested_rules(found, used.paths, state),
            *_notes_with_skill_texts(found, used.skills, state),
        )
        return rules, notes

    def skill_tools(self) -> tuple[built_in_tool.BuiltInTool, ...]:
        return (built_in_tool.declare_tool(USE_SKILL, self._run_use_skill),)

    async def _run_use_skill(
        self, args: built_in_tool.ToolArguments, _: built_in_tool.ToolResources
    ) -> built_in_tool.ToolOutput:
        item = (await self.reread_project_folders()).find_item("skill", args.text_argument("name"))
        if item is None:
            known = ", ".join(each.name for each in self.now.items_in_force("skill")) or "none"
            raise NotFound(
                f"There is no skill {args.text_argument('name')[:80]!r}.",
                remedy=f"Available: {known}.",
            )
        return built_in_tool.ToolOutput(
            f"The instructions of {item.name} follow. Its files are in {item.path.parent}.",
            source=item.name,
        )

    def list_usable_skills_and_agents(self) -> Sequence[SourceCatalogue]:
        skills = [
            tools_on_demand.SourceSummary(item.name, item.about)
            for item in self._skills_for_agents()
        ]
        found = [
            SourceCatalogue(
                f'Skills; read one with call_tool("{USE_SKILL}") before work it is for:',
                tuple(skills),
            )
        ]
        agents = [
            tools_on_demand.SourceSummary(item.name, item.about)
            for item in self.now.items_in_force("agent")
        ]
        found.append(SourceCatalogue("Agents to delegate to by name:", tuple(agents)))
        return found

    def searchable_skill_specs(self) -> Sequence[ToolSpec]:
        return [
            ToolSpec(
                USE_SKILL,
                f"The skill {item.name}: {item.about}",
                json.dumps({"name": item.name}, ensure_ascii=False),
            )
            for item in self._skills_for_agents()
        ]

    def _skills_for_agents(self) -> list[ProjectItem]:
        skills = self.now.items_in_force("skill")
        return [
            item
            for item in skills
            if str(item.values.get("disable-model-invocation", "")).lower() != "true"
        ]

    async def trust_items(self, *items: ProjectItem) -> None:
        """Trust these items with exactly the content that the user has seen."""
        agreed = {item.settings_key: item.content_sha256 for item in items}
        await self._change_project_settings(
            lambda now: {"permissions.trusted": {**now.trusted, **agreed}}
        )

    async def switch_item(self, key: str, *, on: bool) -> None:
        """Turn an item on or off, whether it is trusted or not."""
        await self._change_project_settings(
            lambda now: {"permissions.off": sorted({*now.off} - {key} if on else {*now.off, key})}
        )

    async def _change_project_settings(self, changes: Callable[..., dict[str, object]]) -> None:
        await asyncio.to_thread(self._workspace.change_settings, changes)
        await self.reread_project_folders()

    def build_tools_on_demand(
        self, conversation: Conversation, tokens: TokenCounter, finder: tools_on_demand.ToolFinder
    ) -> OnDemandTools:
        """Build them with the tokens that the conversation's policy and its model's
        window allow for tools.
        """

        def compute_tool_room() -> RequestHeadRoom:
            ahead = conversation.expected_state
            chosen = conversation.policy_at(ahead)
            window = context_usage.window_tokens(ahead, chosen)
            return RequestHeadRoom(int(chosen.tools_share * window), chosen.catalogue_tokens)

        return OnDemandTools(
            tokens,
            finder,
            compute_tool_room,
            lambda: conversation.state.settings.tools.tools,
            self.list_usable_skills_and_agents,
            self.searchable_skill_specs,
        )


def _rules_for_prompt(
    found: ProjectItems, state: ConversationState, tokens: TokenCounter
) -> tuple[RulesSet, ...]:
    """Return trusted rules files. One that has changed is used as it was when trusted."""
    holding = [item for item in found.items_in_force("rules") if not item.is_nested]
    facts = [
        RulesSet(str(item.path), item.body, tokens.count_tokens(item.body)) for item in holding
    ]
    waiting = {
        str(item.path)
        for item in found.items_of_kind("rules")
        if item.known and not item.trusted and not item.off
    }
    there = {fact.path for fact in facts} | waiting
    return (
        *facts,
        *(
            RulesSet(known.path, "", 0)
            for _, known in state.settings.rules
            if known.path not in there
        ),
    )


def _notes_on_nested_rules(
    found: ProjectItems, touched: Iterable[Path], state: ConversationState
) -> list[StandingNote]:
    """Return rules that apply to paths this conversation used, and revoke those that are gone."""
    paths = tuple(touched)
    notes, there = [], set()
    for item in found.items_of_kind("rules"):
        by = f"rules:{item.path}"
        if item.is_nested and (by in state.branch.notes or item.applies_to(paths)):
            if item.is_in_force:
                said = f"[Rules from {item.path}. They hold for the files below {item.below}.]"
                notes.append(StandingNote(by, f"{said}\n\n{item.body}"))
            if not item.off:
                there.add(by)
    gone = [by for by in state.branch.notes if by.startswith("rules:") and by not in there]
    return notes + [StandingNote(by, "") for by in gone]


def _notes_with_skill_texts(
    found: ProjectItems, used: Iterable[str], state: ConversationState
) -> list[StandingNote]:
    notes = []
    for name in used:
        item = found.find_item("skill", name)
        by = f"skill:{name}"
        if item is not None:
            where = f"Its files are in {item.path.parent}."
            notes.append(
                StandingNote(by, f"[The skill {name}, word for word. {where}]\n\n{item.body}")
            )
        elif by in state.branch.notes and not any(
            each.name == name for each in found.items_of_kind("skill")
        ):
            notes.append(StandingNote(by, ""))
    return notes
