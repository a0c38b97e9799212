"""Says of an agent from npm that an old version of it is installed.

Newer versions of some agents need Node.js 22. With an older one, npm installs the last version that
still runs with it, and does not say so. An installed version names what it needs in its own
package, so nothing has to be started to know it.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import text_at

NEEDED_NODE = 22
# The packages whose newer versions need it, by the agent's program.
PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "pi": "@earendil-works/pi-coding-agent",
    "qwen": "@qwen-code/qwen-code",
}
# pi had this name before.
EARLIER_PACKAGES = {"pi": "@mariozechner/pi-coding-agent"}
_LEAST_NODE = re.compile(r"(\d+)")
# A program is in `dist` or `bin` of its package, at most this deep.
MOST_FOLDERS_ABOVE = 4


@dataclass(frozen=True, slots=True)
class OldAgent:
    """An installed agent whose newer versions need a newer Node.js."""

    program: str
    version: str


def find_old_agents() -> Iterator[OldAgent]:
    """Yield the agents in the PATH that are old versions."""
    for program in PACKAGES:
        old_agent = find_old_agent(program)
        if old_agent is not None:
            yield old_agent


def find_old_agent(program: str) -> OldAgent | None:
    """Return the agent with this program if an old version of it is in the PATH."""
    path = shutil.which(program)
    if path is None or program not in PACKAGES:
        return None
    package = _read_package_of_program(Path(path), program)
    if package is None:
        return None
    needed = _LEAST_NODE.search(text_at(package, "engines", "node"))
    if needed is None or int(needed[1]) >= NEEDED_NODE:
        return None
    return OldAgent(program, text_at(package, "version"))


def _read_package_of_program(path: Path, program: str) -> dict[str, object] | None:
    """Return what the package says that a program belongs to, or None if it is no package's."""
    names = {PACKAGES[program], EARLIER_PACKAGES.get(program)}
    for folder in path.resolve().parents[:MOST_FOLDERS_ABOVE]:
        try:
            package = json.loads((folder / "package.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(package, dict) and package.get("name") in names:
            return package
    return None
