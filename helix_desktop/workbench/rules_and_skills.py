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
from helix_desktop.engine.facts import (
    ModelReplied,
    ModelRole,
    RulesSet,
    ToolCall,
    ToolReturned,
    ToolSpec,
)
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.engine.session_setup import StandingNote
from helix_desktop.engine.tool_call_parsing import PATH_KEYS, parse_arguments
from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.project.project_files import ProjectItems, read_project_files
from helix_desktop.project.project_item import ProjectItem
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_settings import WorkspaceConfig
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
        """Note the paths and skills in the facts since the last time."""
        new_facts = state.facts[self.read :]
        for recorded in new_facts:
            fact = recorded.fact
            if isinstance(fact, ToolReturned):
                for change in fact.changes:
                    self._add_touched_path(change.path, roots)
            if not isinstance(fact, ModelReplied):
                continue
            for part in fact.parts:
                if isinstance(part, ToolCall):
                    self._collect_skills_and_paths_of_call(part, roots)
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
            path = root / path_text  # An absolute path stays as it is.
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
        """Read rules, skills, commands, hooks and agents from the workspace's and the
        user's folders.
        """
        settings = self._workspace.settings
        touched: list[Path] = []
        # Copies, because this runs in a thread, and conversations go on meanwhile.
        for used in tuple(self._used.values()):
            touched += tuple(used.paths)
        patterns = system_prompt_and_settings.parse_hidden_patterns(settings)

        def is_hidden_inside(inside: str) -> bool:
            return hidden_files.matches_hidden_patterns(inside, patterns)

        all_roots = WorkspaceRoots.from_folders([Path(root) for root in settings.roots])
        roots = replace(all_roots, is_hidden_inside=is_hidden_inside)
        return read_project_files(
            settings.roots, settings.trusted, settings.off, touched, roots.is_hidden_path
        )

    async def reread_project_folders(self) -> ProjectItems:
        """Read the folders in a thread, and call the listeners if something has changed."""
        items = await asyncio.to_thread(self.read_project_folders)
        if items != self.now:
            self.now = items
            for listener in tuple(self.listeners):
                listener()
        return items

    async def rules_and_notes_for_step(
        self, conversation: str, state: ConversationState, tokens: TokenCounter
    ) -> tuple[tuple[RulesSet, ...], tuple[StandingNote, ...]]:
        """Return the rules for a conversation's next request, and notes that hold from then on."""
        roots = [Path(root) for root in self._workspace.settings.roots]
        used = self._used.setdefault(conversation, UsedProjectItems())
        used.update_from_facts(state, roots)
        items = await self.reread_project_folders()
        rules = _rules_for_prompt(items, state, tokens)
        notes = _notes_on_nested_rules(items, used.paths, state)
        notes += _notes_with_skill_texts(items, used.skills, state)
        return rules, tuple(notes)

    def skill_tools(self) -> tuple[built_in_tool.BuiltInTool, ...]:
        return (built_in_tool.BuiltInTool(_USE_SKILL, self._run_use_skill),)

    async def _run_use_skill(
        self, args: built_in_tool.ToolArguments, _: built_in_tool.ToolResources
    ) -> built_in_tool.ToolOutput:
        """Tell the model that a skill follows. Its text is added with the next step."""
        name = args.text_argument("name")
        items = await self.reread_project_folders()
        item = items.find_item("skill", name)
        if item is None:
            names = ", ".join(skill.name for skill in self.now.items_in_force("skill"))
            raise NotFound(
                f"There is no skill {name[:80]!r}.", remedy=f"Available: {names or 'none'}."
            )
        return built_in_tool.ToolOutput(
            f"The instructions of {item.name} follow. Its files are in {item.path.parent}.",
            source=item.name,
        )

    def list_usable_skills_and_agents(self) -> Sequence[SourceCatalogue]:
        skills_title = f'Skills; read one with call_tool("{USE_SKILL}") before work it is for:'
        agents_title = "Agents to delegate to by name:"
        return [
            SourceCatalogue(skills_title, _summaries_of(self._skills_for_agents())),
            SourceCatalogue(agents_title, _summaries_of(self.now.items_in_force("agent"))),
        ]

    def searchable_skill_specs(self) -> Sequence[ToolSpec]:
        specs: list[ToolSpec] = []
        for item in self._skills_for_agents():
            description = f"The skill {item.name}: {item.about}"
            schema = json.dumps({"name": item.name}, ensure_ascii=False)
            specs.append(ToolSpec(USE_SKILL, description, schema))
        return specs

    def _skills_for_agents(self) -> list[ProjectItem]:
        skills: list[ProjectItem] = []
        for item in self.now.items_in_force("skill"):
            is_for_user_alone = str(item.values.get("disable-model-invocation", "")).lower()
            if is_for_user_alone != "true":
                skills.append(item)
        return skills

    async def trust_items(self, *items: ProjectItem) -> None:
        """Trust these items with exactly the content that the user has seen."""

        def with_trusted_items(settings: WorkspaceConfig) -> dict[str, object]:
            trusted = dict(settings.trusted)
            for item in items:
                trusted[item.settings_key] = item.content_sha256
            return {"permissions.trusted": trusted}

        await self._change_project_settings(with_trusted_items)

    async def switch_item(self, key: str, *, on: bool) -> None:
        """Turn an item on or off, whether it is trusted or not."""

        def with_switched_item(settings: WorkspaceConfig) -> dict[str, object]:
            off = set(settings.off)
            if on:
                off.discard(key)
            else:
                off.add(key)
            return {"permissions.off": sorted(off)}

        await self._change_project_settings(with_switched_item)

    async def _change_project_settings(
        self, changes: Callable[[WorkspaceConfig], dict[str, object]]
    ) -> None:
        await asyncio.to_thread(self._workspace.change_settings, changes)
        await self.reread_project_folders()

    def build_tools_on_demand(
        self, conversation: Conversation, tokens: TokenCounter, finder: tools_on_demand.ToolFinder
    ) -> OnDemandTools:
        """Build them with the tokens that the conversation's policy and its model's
        window allow for tools.
        """

        def compute_tool_room() -> RequestHeadRoom:
            expected_state = conversation.expected_state
            policy = conversation.policy_at(expected_state)
            chosen_model = expected_state.settings.model_for_role(ModelRole.MAIN)
            window = context_usage.window_tokens(chosen_model, policy)
            tokens_for_tools = int(policy.tools_share * window)
            return RequestHeadRoom(tokens_for_tools, policy.catalogue_tokens)

        return OnDemandTools(
            tokens,
            finder,
            compute_tool_room,
            lambda: conversation.state.settings.tools.tools,
            self.list_usable_skills_and_agents,
            self.searchable_skill_specs,
        )


def _summaries_of(items: Iterable[ProjectItem]) -> tuple[tools_on_demand.SourceSummary, ...]:
    return tuple(tools_on_demand.SourceSummary(item.name, item.about) for item in items)


def _rules_for_prompt(
    items: ProjectItems, state: ConversationState, tokens: TokenCounter
) -> tuple[RulesSet, ...]:
    """Return trusted rules files. One that has changed is used as it was when trusted."""
    facts: list[RulesSet] = []
    kept_paths: set[str] = set()
    for item in items.items_in_force("rules"):
        if not item.is_nested:
            path = str(item.path)
            token_count = tokens.count_tokens(item.body)
            facts.append(RulesSet(path, item.body, token_count))
            kept_paths.add(path)
    for item in items.items_of_kind("rules"):
        # It has changed: until the user has decided, what was trusted goes on to hold.
        if item.known and not item.trusted and not item.off:
            kept_paths.add(str(item.path))
    for _, known_rules in state.settings.rules:
        if known_rules.path not in kept_paths:
            facts.append(RulesSet(known_rules.path, "", 0))
    return tuple(facts)


def _notes_on_nested_rules(
    items: ProjectItems, touched: Iterable[Path], state: ConversationState
) -> list[StandingNote]:
    """Return rules that apply to paths this conversation used, and revoke those that are gone."""
    paths = tuple(touched)
    notes: list[StandingNote] = []
    kept_authors: set[str] = set()
    for item in items.items_of_kind("rules"):
        author = f"rules:{item.path}"
        if not item.is_nested:
            continue
        if author not in state.branch.notes and not item.applies_to(paths):
            continue
        if item.is_in_force:
            head = f"[Rules from {item.path}. They hold for the files below {item.below}.]"
            notes.append(StandingNote(author, f"{head}\n\n{item.body}"))
        if not item.off:
            kept_authors.add(author)
    for author in state.branch.notes:
        if author.startswith("rules:") and author not in kept_authors:
            notes.append(StandingNote(author, ""))
    return notes


def _notes_with_skill_texts(
    items: ProjectItems, used: Iterable[str], state: ConversationState
) -> list[StandingNote]:
    """Return the texts of the skills that a conversation uses, and revoke those that
    are gone.
    """
    existing_names = {item.name for item in items.items_of_kind("skill")}
    notes: list[StandingNote] = []
    for name in used:
        author = f"skill:{name}"
        item = items.find_item("skill", name)
        if item is not None:
            head = f"[The skill {name}, word for word. Its files are in {item.path.parent}.]"
            notes.append(StandingNote(author, f"{head}\n\n{item.body}"))
        elif author in state.branch.notes and name not in existing_names:
            notes.append(StandingNote(author, ""))
    return notes


_USE_SKILL = built_in_tool.ToolDeclaration(
    USE_SKILL,
    "Read a skill's instructions. They then hold word for word.",
    {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "The skill's name"}},
        "required": ["name"],
    },
    is_rare=True,
)
