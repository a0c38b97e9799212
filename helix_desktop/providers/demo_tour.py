"""The guided tour: eight stations, each a real call. Where it stands is read from the calls that are still to be seen."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from helix_desktop.engine.blocks import ToolResult
from helix_desktop.engine.facts import ToolCall, ToolSpec
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.providers.wire import Json, Object, object_at, parse_object
from helix_desktop.values import dataclass

Arguments = Mapping[str, Json]
RECORDS, WANTED = 6000, 4711
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_TEXT_FILE = re.compile(
    r"^(\S.*\.(?:md|txt|rst|csv|py|toml|json|js|ts|c|h|cpp|go|rs|java|html|css|yml|yaml|cfg|ini|sh))  ([\d,]+)$"
)
LARGEST_READ = 20_000  # bytes of a file the tour reads on its own
_WORD = re.compile(r"[A-Za-z]{5,20}")


@dataclass(frozen=True, slots=True)
class Said:
    """What the script says, and the tools it calls, by name."""

    text: str
    calls: tuple[tuple[str, Arguments], ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """All the script knows. `done`: the calls since the user asked, each with its result as it is shown now."""

    asked: str
    done: tuple[tuple[ToolCall, ToolResult | None], ...]
    tools: Sequence[ToolSpec]
    texts: tuple[str, ...]
    note: str = ""

    def offers(self, name: str) -> bool:
        return any(tool.name == name for tool in self.tools)

    def results(self, station: Station) -> list[str]:
        """What the calls of a station returned."""
        return [result.text for call, result in self.done if result is not None and station_of(call) is station]


class Station(IntEnum):
    PLAN = 1
    LIST = 2
    READ = 3
    SEARCH = 4
    RUN = 5
    LARGE = 6
    RECALL = 7
    CLOSE = 8


PLAN = (
    ("Look at the folder", Station.LIST),
    ("Read some files side by side", Station.READ),
    ("Search in them", Station.SEARCH),
    ("Run a command", Station.RUN),
    ("Meet a large output, and recall a part of it by its hash", Station.RECALL),
)


def large_command() -> str:
    """A command that prints some thousand lines, on this system's shell."""
    if sys.platform == "win32":
        return f"for /L %i in (1,1,{RECORDS}) do @echo record %i value %i"
    return f"awk 'BEGIN {{ for (i = 1; i <= {RECORDS}; i++) printf \"record %d value %d\\n\", i, (i * 7919) % 10007 }}'"


def small_command() -> str:
    return "dir" if sys.platform == "win32" else "uname -s; date; ls | wc -l"


_STATION_OF: Mapping[str, Station] = {
    ToolName.LIST_FILES: Station.LIST,
    ToolName.READ_FILE: Station.READ,
    ToolName.SEARCH_FILES: Station.SEARCH,
    ToolName.RECALL: Station.RECALL,
    ToolName.SEARCH_CACHE: Station.RECALL,
}


def station_of(call: ToolCall) -> Station | None:
    """Which station made this call."""
    if call.name == ToolName.RUN_COMMAND:
        return Station.LARGE if "record" in call.arguments else Station.RUN
    if call.name == ToolName.SET_TODO:
        return Station.PLAN if '"doing"' in call.arguments else Station.CLOSE
    return _STATION_OF.get(call.name)


def next_step(scene: Scene) -> Said:
    """The first station behind the last one that can be seen and whose tool is offered; after the last, the closing
    words.
    """
    reached = max((one for call, _ in scene.done if (one := station_of(call)) is not None), default=None)
    heard = (
        f"I read your note: “{' '.join(scene.note.split())[:120]}”. The script cannot act on it.\n\n"
        if scene.note
        else ""
    )
    for station in Station:
        if reached is not None and station <= reached:
            continue
        said = STATIONS[station](scene)
        if said is not None:
            return Said(heard + said.text, said.calls)
    return Said(heard + _closing(scene))


# --- stations: what is said and called, or None where the tool is not offered ----------------------------------------


def _plan(scene: Scene) -> Said | None:
    greeting = (
        "I am the built-in demonstration: a script, not a language model. Everything else you see is real. The tools run in "
        "your folder, their outputs go into the cache, and what I am sent is the view the program made."
    )
    return (
        Said(f"{greeting}\n\nFirst a plan.", (((ToolName.SET_TODO, _todo("doing", 0))),))
        if scene.offers(ToolName.SET_TODO)
        else None
    )


def _todo(first: str, done: int) -> Arguments:
    """The plan with so many items done and the next one as `first` says."""
    states = ["done"] * done + [first] + ["open"] * len(PLAN)
    return {"items": [{"text": text, "state": states[at]} for at, (text, _) in enumerate(PLAN)]}


def _list(scene: Scene) -> Said | None:
    return Said("What is in this folder?", ((ToolName.LIST_FILES, {}),)) if scene.offers(ToolName.LIST_FILES) else None


def _read(scene: Scene) -> Said | None:
    names = _files_in(scene)[:3]
    if not names or not scene.offers(ToolName.READ_FILE):
        return None
    several = "them side by side: parallel calls run at the same time" if len(names) > 1 else "it"
    calls: tuple[tuple[str, Arguments], ...] = tuple((ToolName.READ_FILE, {"path": name}) for name in names)
    return Said(f"{', '.join(f'`{name}`' for name in names)}: I read {several}.", calls)


def _files_in(scene: Scene) -> list[str]:
    """Text files of the listing, as the tool wrote it, that are not too long to be looked at."""
    lines = [line for text in scene.results(Station.LIST) for line in text.splitlines()]
    matches = [match for line in lines if (match := _TEXT_FILE.match(line)) is not None]
    return [match[1] for match in matches if int(match[2].replace(",", "")) <= LARGEST_READ]


def _search(scene: Scene) -> Said | None:
    if not scene.offers(ToolName.SEARCH_FILES):
        return None
    words = [word for text in scene.results(Station.READ) for word in _WORD.findall(text[:4000])]
    word = max(words, key=lambda one: (len(one), one), default="the")
    return Said(
        f"I search the folder for “{word}”, a word I have just read.", ((ToolName.SEARCH_FILES, {"pattern": word}),)
    )


def _run(scene: Scene) -> Said | None:
    if not scene.offers(ToolName.RUN_COMMAND):
        return None
    words = "A command, in the sandbox where this system has one. Depending on the permission mode you are asked first."
    return Said(words, ((ToolName.RUN_COMMAND, {"command": small_command()}),))


def _large(scene: Scene) -> Said | None:
    if not scene.offers(ToolName.RUN_COMMAND):
        return None
    words = (
        f"Now one that prints {RECORDS:,} lines. With the call I say what I need of them, so the program can keep the whole "
        "in its cache and show me a short excerpt."
    )
    return Said(words, ((ToolName.RUN_COMMAND, with_keep({"command": large_command()}, "large", scene.tools)),))


def _recall(scene: Scene) -> Said | None:
    found = [digest for text in scene.results(Station.LARGE) for digest in _HASH.findall(text)]
    anywhere = [digest for text in reversed(scene.texts) for digest in _HASH.findall(text)]
    if found and scene.offers(ToolName.RECALL):
        words = f"The excerpt names the hash of the whole. I recall line {WANTED:,} of it from the cache."
        return Said(words, ((ToolName.RECALL, {"sha256": found[0], "grep": f"^record {WANTED} "}),))
    if anywhere and scene.offers(ToolName.RECALL):
        words = "Something earlier stands here as a marker with its hash. I bring the beginning of the original back."
        return Said(words, ((ToolName.RECALL, {"sha256": anywhere[0], "lines": "1-20"}),))
    if scene.offers(ToolName.SEARCH_CACHE):
        return Said("I look for it in the cache.", ((ToolName.SEARCH_CACHE, {"query": f"record {WANTED}"}),))
    return None


def _close(scene: Scene) -> Said | None:
    return Said("", ((ToolName.SET_TODO, _todo("done", len(PLAN))),)) if scene.offers(ToolName.SET_TODO) else None


STATIONS: Mapping[Station, Callable[[Scene], Said | None]] = {
    Station.PLAN: _plan,
    Station.LIST: _list,
    Station.READ: _read,
    Station.SEARCH: _search,
    Station.RUN: _run,
    Station.LARGE: _large,
    Station.RECALL: _recall,
    Station.CLOSE: _close,
}


def _closing(scene: Scene) -> str:
    """What happened, with what can really be seen of it, refusals included."""
    failed = [call.name for call, result in scene.done if result is not None and not result.ok]
    folded = sum(result.text.startswith("[CACHED]") for _, result in scene.done if result is not None)
    recalled = scene.results(Station.RECALL)
    lines = [f"Done. I can still see {len(scene.done)} calls, all of them real."]
    if recalled and f"record {WANTED}" in recalled[-1]:
        found = next(line for line in recalled[-1].splitlines() if f"record {WANTED}" in line)
        lines.append(f"The recalled line reads `{found.strip()[:120]}`; I had never been sent it before.")
    if folded:
        lines.append(f"{folded} older outputs are now markers in what I am sent; their originals are in the cache.")
    if failed:
        lines.append(
            f"Not done, or refused: {', '.join(sorted(set(failed)))}. That is shown to me as the call's result."
        )
    lines.append("Next, open the context inspector, fold now and undo it. Then choose a real model at the top right.")
    return "\n\n".join(lines)


# --- single calls ----------------------------------------------------------------------------------------------------


def call_for(verb: str, rest: str) -> tuple[str, Arguments]:
    """The tool a word of the user's names, and its arguments."""
    name, argument = _CALLS[verb]
    if verb == "large":
        return name, {"command": large_command()}
    if verb == "todo":
        return name, {"items": [{"text": item.strip(), "state": "open"} for item in rest.split(";") if item.strip()]}
    if verb == "write":
        path, _, text = rest.partition(":")
        return name, {"path": path.strip(), "content": f"{text.strip()}\n"}
    return name, {argument: rest} if rest else {}


_CALLS = {
    "list": (ToolName.LIST_FILES, "path"),
    "read": (ToolName.READ_FILE, "path"),
    "search": (ToolName.SEARCH_FILES, "pattern"),
    "run": (ToolName.RUN_COMMAND, "command"),
    "large": (ToolName.RUN_COMMAND, "command"),
    "recall": (ToolName.RECALL, "sha256"),
    "find": (ToolName.SEARCH_CACHE, "query"),
    "todo": (ToolName.SET_TODO, "items"),
    "write": (ToolName.WRITE_FILE, "path"),
    ToolName.DELEGATE: (ToolName.DELEGATE, "task"),
}


def with_keep(arguments: Arguments, verb: str, tools: Sequence[ToolSpec]) -> Arguments:
    """With the words that say what is needed of a long output, where the tool offers an argument for them."""
    if verb != "large":
        return arguments
    tool = next((one for one in tools if one.name == ToolName.RUN_COMMAND), None)
    properties: Object = object_at(parse_object(tool.schema), "properties") if tool else {}
    name = next((one for one in properties if one.startswith("keep")), "")
    return {**arguments, name: f"the line of record {WANTED}, and how many records there are"} if name else arguments
