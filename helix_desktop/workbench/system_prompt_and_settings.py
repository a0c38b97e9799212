"""What a conversation depends on besides what is said: system prompt, trusted rules files, policy, models, limits."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from helix_desktop import resources
from helix_desktop.engine import context_policy
from helix_desktop.engine.facts import ModelRole, ModelSet, PolicySet, SystemSet
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.engine.session_setup import TurnLimits
from helix_desktop.errors import HelixError
from helix_desktop.project.project_item import ProjectItem, text_or_empty
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_settings import WorkspaceConfig
from helix_desktop.tools import hidden_files
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.permission import PermissionMode, PermissionRule, is_rule_too_wide
from helix_desktop.tools.toolbox import WorkspacePermissions
from helix_desktop.workbench.model_roles import WorkspaceModels

OWN = "The user's own instructions, for every workspace:"
OWN_HERE = "The user's own instructions for this workspace. Where they differ from others, follow these:"


def build_system_prompt(
    name: str, roots: Sequence[str], tokens: TokenCounter, everywhere: str = "", here: str = ""
) -> SystemSet:
    """`everywhere` and `here` are the user's. The same for every request, so it stays cached."""
    text = (resources.resources_folder() / "system_prompt.md").read_text(encoding="utf-8")
    text = text.replace("{workspace}", name).replace("{roots}", ", ".join(roots) or "none")
    if everywhere.strip():
        text = f"{text.rstrip()}\n\n{OWN}\n\n{everywhere.strip()}"
    if here.strip():
        text = f"{text.rstrip()}\n\n{OWN_HERE}\n\n{here.strip()}"
    return SystemSet(text, tokens.count_tokens(text))


def apply_model_choices(model: ModelSet, settings: WorkspaceConfig) -> ModelSet:
    """What the user chose for the main model: how long it thinks, its temperature."""
    if model.role is not ModelRole.MAIN:
        return model
    return replace(model, effort=settings.effort, temperature=settings.temperature, top_p=settings.top_p)


def build_policy_fact(preset: str, values: Mapping[str, Any]) -> PolicySet:
    """The policy of the settings; InvalidInput where a value is no policy's."""
    return (
        context_policy.preset_policy(preset or context_policy.DEFAULT_PRESET).with_thresholds(values).to_policy_fact()
    )


def system_prompt_for_role(system: SystemSet, role: ProjectItem | None, tokens: TokenCounter) -> SystemSet:
    """The program's own words, then what an agent's file says of its work."""
    if role is None:
        return system
    text = f"{system.text}\n\nYou are the agent {role.name} of this workspace. What its file says of your work:\n\n{role.body}"
    return SystemSet(text, tokens.count_tokens(text))


def policy_of_role(role: ProjectItem | None, preset: str, values: Mapping[str, Any]) -> PolicySet:
    """An agent's own policy where its file names one that is known."""
    own = text_or_empty(role.values.get("policy")) if role is not None else ""
    return build_policy_fact(own, {}) if own in context_policy.PRESETS else build_policy_fact(preset, values)


def model_of_role(role: ProjectItem | None, chosen: Mapping[str, str], models: WorkspaceModels) -> str:
    """The model an agent's file names: one that is configured, or a small one for Claude's; empty: as its parent."""
    said = text_or_empty(role.values.get("model")) if role is not None else ""
    if "/" in said:
        with suppress(HelixError):
            models.model_by_name(said)
            return said
    return chosen.get("fast", "") if said == "haiku" else ""


def parse_turn_limits(table: Mapping[str, Any]) -> TurnLimits:
    """The limits of the settings, the default for what is not said there."""
    usual = asdict(TurnLimits())
    given = {name: type(usual[name])(value) for name, value in table.items() if name in usual}
    return TurnLimits(**given)


def parse_coverage(table: Mapping[str, Any]) -> CheckpointCoverage:
    """What checkpoints cover, the default for what is not said."""
    usual = CheckpointCoverage()
    given = {name: table[name] for name in ("most_files", "most_bytes", "off") if name in table}
    return replace(usual, **given, leave_out=tuple(table.get("leave_out", usual.leave_out)))


def parse_hidden_patterns(settings: WorkspaceConfig) -> tuple[str, ...]:
    return hidden_files.DEFAULT if settings.hidden is None else settings.hidden


def parse_permissions(settings: WorkspaceConfig) -> WorkspacePermissions:
    """What the agent may do, as the settings have it; a mode nobody knows asks."""
    try:
        mode = PermissionMode(settings.mode)
    except ValueError:
        mode = PermissionMode.ASK
    return WorkspacePermissions(
        mode=mode, rules=tuple(PermissionRule.parse_permission_rule(table) for table in settings.rules)
    )


def report_wide_rules(workspace: StoredWorkspace, permissions: WorkspacePermissions) -> tuple[str, ...]:
    """Sentences about rules that allow other programs as well, as older versions made them; each rule is reported once."""
    shown = workspace.settings.shown
    found = [rule.command for rule in permissions.rules if is_rule_too_wide(rule) and rule.command not in shown]
    notes: list[str] = []
    for command in found:
        notes.append(  # noqa: PERF401 -- sentences are looked for in what is appended
            f"The rule {command} also allows other programs. You can remove this rule in Settings > Permissions."
        )
    if found:
        with suppress(HelixError):
            workspace.change_settings(lambda now: {"permissions.shown": [*now.shown, *found]})
    return tuple(notes)


def save_permission_rule(workspace: StoredWorkspace, rule: PermissionRule) -> None:
    """The user chose "always": save the rule in the workspace."""
    workspace.change_settings(lambda now: {"permissions.rules": [*now.rules, rule.as_rule_table()]})
