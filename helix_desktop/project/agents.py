"""Agents as files: a name, what they are for, their tools, model and policy in front, their instructions behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from helix_desktop.engine import policy
from helix_desktop.errors import WrongUse
from helix_desktop.project.item import Item, front_matter, listed, plain, text_of

PLACES = (".agents/agents", ".claude/agents", ".opencode/agent", ".opencode/agents")
_KNOWN = frozenset({"name", "description", "tools", "model", "policy", "agents", "color", "mode", "disallowedTools"})


def of_place(place: Path, within: Path, *, own: bool = False) -> Iterator[Item]:
    try:
        files = sorted(place.rglob("*.md"))[:500]
    except OSError:
        return
    for path in files:
        text = text_of(path, within)
        if text is not None:
            yield _agent(path, text, own=own)


def _agent(path: Path, text: str, *, own: bool) -> Item:
    try:
        values, body = front_matter(text)
    except WrongUse as error:
        return Item("agent", path.stem, path, text, "", own=own, notes=(str(error),), broken=True)
    name = plain(values.get("name")) or path.stem
    about = " ".join(plain(values.get("description")).split())
    notes = [f"{key} is not supported for an agent and does nothing here." for key in values if key not in _KNOWN]
    broken = False
    if not re.fullmatch(r"[\w.-]{1,64}", name):
        notes, broken = [*notes, f"{name[:60]!r} is no name for an agent: letters, digits, hyphens and dots."], True
    chosen = plain(values.get("policy"))
    if chosen and chosen not in policy.PRESETS:
        notes.append(f"There is no policy named {chosen!r}, so the workspace's policy is used.")
    return Item("agent", name, path, text, body.strip(), about[:1_024], own, values, tuple(notes), broken=broken)


def tools_of(item: Item) -> tuple[str, ...]:
    """The only tools it gets, as its file names them; empty: all."""
    return listed(item.values.get("tools"))


def may_call(item: Item) -> tuple[str, ...]:
    """The agents it may delegate to."""
    return listed(item.values.get("agents"))
