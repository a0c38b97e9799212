"""What a conversation depends on besides what is said: system prompt, trusted rules files, policy, models, limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import tomlkit

from helix_desktop import resources
from helix_desktop.engine import policy
from helix_desktop.engine.collaborators import Limits
from helix_desktop.engine.facts import ModelRole, ModelSet, PolicySet, SystemSet
from helix_desktop.engine.ports import Tokens
from helix_desktop.errors import HelixError
from helix_desktop.project.item import Item, plain
from helix_desktop.store.config import Settings
from helix_desktop.tools import hidden_files
from helix_desktop.tools.changes.coverage import Coverage
from helix_desktop.tools.openings import Opened
from helix_desktop.tools.permission import Mode, Rule, too_wide
from helix_desktop.tools.runner import Permissions
from helix_desktop.workbench.models import Models

OWN = "The user's own instructions, for every workspace:"
OWN_HERE = "The user's own instructions for this workspace. Where they differ from others, follow these:"


def system_prompt(name: str, roots: Sequence[str], tokens: Tokens, everywhere: str = "", here: str = "") -> SystemSet:
    """The program's own words to the agent, then the user's: `everywhere`, and `here`. The same from request to request."""
    text = (resources.folder() / "system_prompt.md").read_text(encoding="utf-8")
    text = text.replace("{workspace}", name).replace("{roots}", ", ".join(roots) or "none")
    if everywhere.strip():
        text = f"{text.rstrip()}\n\n{OWN}\n\n{everywhere.strip()}"
    if here.strip():
        text = f"{text.rstrip()}\n\n{OWN_HERE}\n\n{here.strip()}"
    return SystemSet(text, tokens.count(text))


def with_choices(model: ModelSet, settings: Settings) -> ModelSet:
    """What the user chose for the main model: how long it thinks, its temperature."""
    if model.role is not ModelRole.MAIN:
        return model
    return replace(model, effort=settings.effort, temperature=settings.temperature, top_p=settings.top_p)


def policy_fact(preset: str, values: Mapping[str, Any]) -> PolicySet:
    """The policy of the settings; WrongUse where a value is no policy's."""
    return policy.preset(preset or policy.DEFAULT_PRESET).with_values(values).to_fact()


def for_role(system: SystemSet, role: Item | None, tokens: Tokens) -> SystemSet:
    """The program's own words, then what an agent's file says of its work."""
    if role is None:
        return system
    text = f"{system.text}\n\nYou are the agent {role.name} of this workspace. What its file says of your work:\n\n{role.body}"
    return SystemSet(text, tokens.count(text))


def policy_of(role: Item | None, preset: str, values: Mapping[str, Any]) -> PolicySet:
    """An agent's own policy where its file names one that is known."""
    own = plain(role.values.get("policy")) if role is not None else ""
    return policy_fact(own, {}) if own in policy.PRESETS else policy_fact(preset, values)


def model_of(role: Item | None, chosen: Mapping[str, str], models: Models) -> str:
    """The model an agent's file names: one that is configured, or a small one for Claude's; empty: as its parent."""
    said = plain(role.values.get("model")) if role is not None else ""
    if "/" in said:
        with suppress(HelixError):
            models.named(said)
            return said
    return chosen.get("fast", "") if said == "haiku" else ""


def limits_of(table: Mapping[str, Any]) -> Limits:
    """The limits of the settings, the default for what is not said there."""
    usual = asdict(Limits())
    given = {name: type(usual[name])(value) for name, value in table.items() if name in usual}
    return Limits(**given)


def coverage(table: Mapping[str, Any]) -> Coverage:
    """What checkpoints cover, the default for what is not said."""
    usual = Coverage()
    given = {name: table[name] for name in ("most_files", "most_bytes", "off") if name in table}
    return replace(usual, **given, leave_out=tuple(table.get("leave_out", usual.leave_out)))


def opened(settings: Settings) -> Opened:
    """What of the user's home is open to commands."""
    return Opened(settings.openings, settings.readable)


def hidden(settings: Settings) -> tuple[str, ...]:
    """Patterns of the files that no agent sees."""
    return hidden_files.DEFAULT if settings.hidden is None else settings.hidden


def proposals(proposed: Mapping[str, Any]) -> str:
    """As TOML, the way workspace.toml would hold it: nothing is left out and nothing is put nicely."""
    return tomlkit.dumps(dict(proposed)).strip() if proposed else ""


def permissions(settings: Settings) -> Permissions:
    """What the agent may do, as the settings have it; a mode nobody knows asks."""
    try:
        mode = Mode(settings.mode)
    except ValueError:
        mode = Mode.ASK
    return Permissions(mode=mode, rules=tuple(Rule.parse(table) for table in settings.rules))


def wide_rules(permissions: Permissions, shown: Sequence[str]) -> list[str]:
    """Rules that allow other programs as well, as older versions made them, without those the user was told of."""
    return [rule.command for rule in permissions.rules if too_wide(rule) and rule.command not in shown]
