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

# Other programs with readable histories, by the command that starts them.
_OTHER_COMMANDS = {
    "qwen": "qwen-code",
    "copilot": "copilot-cli",
    "cline": "cline",
    "goose": "goose",
}


def title_of_command(command: str) -> str:
    """Return the display name of the program that a command starts, or an empty text.

    It is the name under which the program's histories are imported, so that a session that the
    gateway sees and its file are known to be the same.
    """
    if command in AGENTS_TO_CONTINUE_IN:
        return AGENTS_TO_CONTINUE_IN[command]
    kind = _OTHER_COMMANDS.get(command, "")
    return NAMES.get(kind, "")


def history_kinds_of_agents(names: Sequence[str]) -> list[str]:
    """Return the kinds of history for agents as people write them."""
    kind_by_name: dict[str, str] = {}
    for kind, title in NAMES.items():
        kind_by_name[kind.casefold()] = kind
        kind_by_name[title.casefold()] = kind
    for agent, title in AGENTS_TO_CONTINUE_IN.items():
        kind_by_name[agent] = kind_by_name[title.casefold()]

    kinds: list[str] = []
    for name in names:
        named_kind = kind_by_name.get(name.casefold())
        if named_kind is None:
            raise InvalidInput(
                f"There is no agent named {name}.", remedy=f"Available: {', '.join(NAMES)}."
            )
        kinds.append(named_kind)
    return kinds
