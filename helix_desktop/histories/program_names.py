"""Display names of programs with readable histories, by kind of history (`KIND` of each module)."""

from collections.abc import Mapping, Sequence
from typing import Any

from helix_desktop.errors import InvalidInput
from helix_desktop.resources import read_json_resource

_PROGRAMS: Mapping[str, Mapping[str, Any]] = read_json_resource("history_programs.json")
NAMES: Mapping[str, str] = {kind: program["name"] for kind, program in _PROGRAMS.items()}
# The gateway and an agent's own history record the same reply at most this many seconds apart.
SAME_REPLY_SECONDS = 60.0
# How the reason of a fold ends that stands for an agent's own compaction. Its name comes before.
COMPACTED_HERE = " compacted the conversation here"
SHOWN_BY_OTHER = "the other program showed this instead"  # Why a recorded output is folded.
_KIND_BY_COMMAND: Mapping[str, str] = {
    program["command"]: kind for kind, program in _PROGRAMS.items() if "command" in program
}
# The kinds of agents that can continue a conversation, by the name passed to `conversation restore
# --to`. Each has a writer: the module `KIND_writer`. The window lists them from its start, which
# does not wait until the writers are loaded.
KINDS_TO_CONTINUE_IN: Mapping[str, str] = {
    command: kind
    for command, kind in _KIND_BY_COMMAND.items()
    if _PROGRAMS[kind].get("takes_conversations")
}
AGENTS_TO_CONTINUE_IN: Mapping[str, str] = {
    command: NAMES[kind] for command, kind in KINDS_TO_CONTINUE_IN.items()
}


def title_of_command(command: str) -> str:
    """Return the display name of the program that a command starts, or an empty text.

    It is the name under which the program's histories are imported, so that a session that the
    gateway sees and its file are known to be the same.
    """
    kind = _KIND_BY_COMMAND.get(command, "")
    return NAMES.get(kind, "")


def history_kinds_of_agents(names: Sequence[str]) -> list[str]:
    """Return the kinds of history for agents as people write them."""
    kind_by_name: dict[str, str] = {}
    for kind, title in NAMES.items():
        kind_by_name[kind.casefold()] = kind
        kind_by_name[title.casefold()] = kind
    kind_by_name.update(KINDS_TO_CONTINUE_IN)

    kinds: list[str] = []
    for name in names:
        named_kind = kind_by_name.get(name.casefold())
        if named_kind is None:
            raise InvalidInput(
                f"There is no agent named {name}.", remedy=f"Available: {', '.join(NAMES)}."
            )
        kinds.append(named_kind)
    return kinds
