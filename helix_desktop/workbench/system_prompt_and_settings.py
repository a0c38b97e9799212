"""What a conversation depends on besides its messages: system prompt, policy, models,
limits, permissions.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from helix_desktop import resources
from helix_desktop.engine import context_policy
from helix_desktop.engine.facts import ModelRole, ModelSet, PolicySet, SystemSet
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.engine.session_setup import TurnLimits
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.project.project_item import ProjectItem, text_or_empty
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_settings import WorkspaceConfig
from helix_desktop.tools import hidden_files
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.permission import PermissionMode, PermissionRule
from helix_desktop.tools.toolbox import WorkspacePermissions
from helix_desktop.workbench.model_roles import WorkspaceModels

OWN = "The user's own instructions, for every workspace:"
OWN_HERE = (
    "The user's own instructions for this workspace. Where they differ from others, follow these:"
)


def build_system_prompt(
    name: str, roots: Sequence[str], tokens: TokenCounter, everywhere: str = "", here: str = ""
) -> SystemSet:
    """Build the same prompt for every request. `everywhere`, `here`: the user's instructions."""
    text = (resources.resources_folder() / "system_prompt.md").read_text(encoding="utf-8")
    text = text.replace("{workspace}", name).replace("{roots}", ", ".join(roots) or "none")
    if everywhere.strip():
        text = f"{text.rstrip()}\n\n{OWN}\n\n{everywhere.strip()}"
    if here.strip():
        text = f"{text.rstrip()}\n\n{OWN_HERE}\n\n{here.strip()}"
    return SystemSet(text, tokens.count_tokens(text))


def apply_model_choices(model: ModelSet, settings: WorkspaceConfig) -> ModelSet:
    """Add what the user chose for the main model: its effort, temperature and top_p."""
    if model.role is not ModelRole.MAIN:
        return model
    return replace(
        model, effort=settings.effort, temperature=settings.temperature, top_p=settings.top_p
    )


def build_policy_fact(preset: str, values: Mapping[str, Any]) -> PolicySet:
    """Return the policy of the settings. Raises InvalidInput for a value that no policy has."""
    policy = context_policy.preset_policy(preset or context_policy.DEFAULT_PRESET)
    return policy.with_thresholds(values).to_policy_fact()


def find_policy_mistake(settings: WorkspaceConfig) -> str:
    """Return what is wrong with the policy of the settings, or an empty text."""
    try:
        build_policy_fact(settings.preset, settings.policy)
    except InvalidInput as mistake:
        return str(mistake)
    return ""


def system_prompt_for_role(
    system: SystemSet, role: ProjectItem | None, tokens: TokenCounter
) -> SystemSet:
    """Return the program's own prompt, followed by what an agent's file says about its work."""
    if role is None:
        return system
    text = f"{system.text}\n\nYou are the agent {role.name} of this workspace. What its file says of your work:\n\n{role.body}"
    return SystemSet(text, tokens.count_tokens(text))


def policy_of_role(role: ProjectItem | None, preset: str, values: Mapping[str, Any]) -> PolicySet:
    """Return the policy that an agent's file names, or else the one of the settings."""
    if role is not None:
        preset_of_role = text_or_empty(role.values.get("policy"))
        if preset_of_role in context_policy.PRESETS:
            return build_policy_fact(preset_of_role, values={})
    return build_policy_fact(preset, values)


def model_of_role(
    role: ProjectItem | None, models_by_role: Mapping[str, str], models: WorkspaceModels
) -> str:
    """Return the model that an agent's file names, if it is configured. Empty: the
    model of its parent.
    """
    if role is None:
        return ""
    model_name = text_or_empty(role.values.get("model"))
    if model_name == "haiku":
        # In an agent's file, it stands for the fast model.
        return models_by_role.get("fast", "")
    if "/" in model_name:
        with suppress(HelixError):
            models.model_by_name(model_name)
            return model_name
    return ""


def parse_turn_limits(table: Mapping[str, Any]) -> TurnLimits:
    """Return the limits in the settings, with defaults for those that are not set."""
    defaults = asdict(TurnLimits())
    limits: dict[str, Any] = {}
    for name, value in table.items():
        if name in defaults:
            type_of_limit = type(defaults[name])
            limits[name] = type_of_limit(value)
    return TurnLimits(**limits)


def parse_coverage(table: Mapping[str, Any]) -> CheckpointCoverage:
    """Return what checkpoints cover, with defaults for what is not set."""
    values_set: dict[str, Any] = {}
    for name in ("most_files", "most_bytes", "off", "leave_out"):
        if name in table:
            values_set[name] = table[name]
    if "leave_out" in values_set:
        values_set["leave_out"] = tuple(values_set["leave_out"])
    return CheckpointCoverage(**values_set)


def parse_hidden_patterns(settings: WorkspaceConfig) -> tuple[str, ...]:
    if settings.hidden is None:
        return hidden_files.DEFAULT
    return settings.hidden


def parse_permissions(settings: WorkspaceConfig) -> WorkspacePermissions:
    """Return what the agent may do by the settings. An unknown mode counts as `ask`."""
    try:
        mode = PermissionMode(settings.mode)
    except ValueError:
        mode = PermissionMode.ASK
    rules = [PermissionRule.parse_permission_rule(table) for table in settings.rules]
    return WorkspacePermissions(mode=mode, rules=tuple(rules))


def save_permission_rule(workspace: StoredWorkspace, rule: PermissionRule) -> None:
    """The user chose "always": save the rule in the workspace."""
    workspace.change_settings(
        lambda settings: {"permissions.rules": list(settings.rules) + [rule.as_rule_table()]}
    )
