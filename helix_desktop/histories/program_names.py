"""Display names of programs with readable histories, by kind of history (`KIND` of each module)."""

from collections.abc import Mapping, Sequence

from helix_desktop.errors import InvalidInput
from helix_desktop.resources import read_json_resource

NAMES: Mapping[str, str] = read_json_resource("history_programs.json")
# The gateway and an agent's own history record the same reply at most this many seconds apart.
SAME_REPLY_SECONDS = 60.0
SHOWN_BY_OTHER = "the other program showed this instead"  # Why a recorded output is folded.
# Agents that can continue a conversation (the first of `NAMES`), by the name passed to
# `conversation restore --to`.
AGENTS_TO_CONTINUE_IN = dict(
    zip(("claude", "codex", "opencode", "gemini", "pi"), NAMES.values(), strict=False)
)


def history_kinds_of_agents(names: Sequence[str]) -> list[str]:
    """Return the kinds of history for agents as people write them."""
    known = {name.casefold(): kind for kind, title in NAMES.items() for name in (kind, title)}
    known |= {agent: known[title.casefold()] for agent, title in AGENTS_TO_CONTINUE_IN.items()}
    if unknown := [name for name in names if name.casefold() not in known]:
        raise InvalidInput(
            f"There is no agent named {unknown[0]}.", remedy=f"Available: {', '.join(NAMES)}."
        )
    return [known[name.casefold()] for name in names]
