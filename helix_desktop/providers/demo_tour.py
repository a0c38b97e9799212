"""The demonstration's tour: nine stations, each with a real call. The calls in the
request show where it is.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum

from helix_desktop.engine.facts import ToolCall, ToolSpec
from helix_desktop.engine.messages import ToolResult
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Json, object_at, parse_object
from helix_desktop.providers.demo_language import Say
from helix_desktop.resources import read_table

Arguments = Mapping[str, Json]
# The excerpt keeps one line; another one is recalled. All would fit into the window, so
# what is saved can be seen.
RECORDS = 1500
WANTED = 911
RECALLED = 1234
# The end of README.md in the tour's own folder, where alone the script changes a file,
# and what it is changed to.
OLD_END = "is in samples.csv.\n"
NEW_END = "is in samples.csv. The log of the last run is in run.log.\n"
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_TEXT_FILE = re.compile(
    r"^(\S.*\.(?:md|txt|rst|csv|py|toml|json|js|ts|c|h|cpp|go|rs|java|html|css|yml|yaml|cfg|ini|sh))  ([\d,]+)$"
)
LARGEST_READ = 20_000  # The tour reads files with more bytes only if asked to.
_WORD = re.compile(r"[A-Za-z]{5,20}")


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """What the script says, and the calls that it makes then: each a tool and its arguments."""

    text: str
    calls: tuple[tuple[str, Arguments], ...] = ()


@dataclass(frozen=True, slots=True)
class DemoScene:
    """What the script knows. `done`: calls since the user's question, each with its
    result as now shown.
    """

    asked: str
    done: tuple[tuple[ToolCall, ToolResult | None], ...]
    tools: Sequence[ToolSpec]
    texts: tuple[str, ...]
    say: Say
    note: str = ""

    def offers_tool(self, name: str) -> bool:
        return any(tool.name == name for tool in self.tools)

    def results_of_station(self, station: "TourStation") -> list[str]:
        """Return what the calls of a station returned, as far as it is shown."""
        texts: list[str] = []
        for call, result in self.done:
            if result is not None and station_of_call(call) is station:
                texts.append(result.text)
        return texts


class TourStation(IntEnum):
    """The stations of the tour, in their order."""

    PLAN = 1
    LIST = 2
    READ = 3
    SEARCH = 4
    EDIT = 5
    RUN = 6
    LARGE = 7
    RECALL = 8
    CLOSE = 9


PLAN = (
    "Look at the folder",
    "Read some files in parallel",
    "Search in them",
    "Run a command",
    "Produce a large output, and recall part of it by its hash",
)


def command_with_large_output() -> str:
    """Return a command that prints more than a thousand lines in this system's shell."""
    if sys.platform == "win32":
        return f"for /L %i in (1,1,{RECORDS}) do @echo record %i value %i"
    return f"awk 'BEGIN {{ for (i = 1; i <= {RECORDS}; i++) printf \"record %d value %d\\n\", i, (i * 7919) % 10007 }}'"


def station_of_call(call: ToolCall) -> TourStation | None:
    """Return the station of the tour that a call belongs to, or None."""
    if call.name == ToolName.RUN_COMMAND:
        if "record" in call.arguments:
            return TourStation.LARGE
        return TourStation.RUN
    if call.name == ToolName.SET_TODO:
        if '"doing"' in call.arguments:
            return TourStation.PLAN
        return TourStation.CLOSE
    station = read_table("demo")["stations"].get(call.name)
    if not station:
        return None
    return TourStation[station]


def next_tour_step(scene: DemoScene) -> ScriptedReply:
    """Return what the tour says and calls next, or its closing words.

    Which stations it has visited is seen from the calls in the request. Those whose tool
    this conversation does not offer are left out, as are those with nothing to show.
    """
    answer_to_note = _answer_note(scene)
    last_station = _last_visited_station(scene)
    for station in TourStation:
        if station <= last_station:
            continue
        tool, build_reply = STATIONS[station]
        if tool and not scene.offers_tool(tool):
            continue
        reply = build_reply(scene)
        if reply is not None:
            return ScriptedReply(answer_to_note + reply.text, reply.calls)
    return ScriptedReply(answer_to_note + _closing_words(scene))


def _last_visited_station(scene: DemoScene) -> int:
    """Return the number of the last station whose call is shown, or 0."""
    last_station = 0
    for call, _ in scene.done:
        station = station_of_call(call)
        if station is not None and station > last_station:
            last_station = station
    return last_station


def _answer_note(scene: DemoScene) -> str:
    """Return what is said to a note that the user sent meanwhile, or an empty string."""
    note = " ".join(scene.note.split())[:120]
    if not note:
        return ""
    sentence = scene.say("I read your note: “{note}”. The tour cannot act on it.", note=note)
    return f"{sentence}\n\n"


def _reply_with_call(words: str, tool: str, arguments: Arguments) -> ScriptedReply:
    """Return a reply with one call."""
    return ScriptedReply(words, ((tool, arguments),))


# --- The tour's stations: what each says and calls, or None if it has nothing to show


def _plan_step(scene: DemoScene) -> ScriptedReply:
    greeting = scene.say(
        "I am a built-in script, not a language model. Everything else is real: the tools, the cache, and what I am sent."
    )
    words = f"{greeting}\n\n{scene.say('First, a plan.')}"
    plan = _todo_arguments(scene, state_of_next="doing", done_count=0)
    return _reply_with_call(words, ToolName.SET_TODO, plan)


def _todo_arguments(scene: DemoScene, *, state_of_next: str, done_count: int) -> Arguments:
    """Return the plan with so many items done, and the next one in this state."""
    items: list[Json] = []
    for index, text in enumerate(PLAN):
        if index < done_count:
            state = "done"
        elif index == done_count:
            state = state_of_next
        else:
            state = "open"
        items.append({"text": scene.say(text), "state": state})
    return {"items": items}


def _build_file_listing_reply(scene: DemoScene) -> ScriptedReply:
    words = scene.say("What is in this folder?")
    return _reply_with_call(words, ToolName.LIST_FILES, {})


def _build_file_reading_reply(scene: DemoScene) -> ScriptedReply | None:
    """Read some of the listed files in parallel."""
    names = _readable_listed_files(scene)[:3]
    if not names:
        return None
    sentence = "I read {files}."
    if len(names) > 1:
        sentence = "I read these files in parallel: {files}. The calls run at the same time."
    quoted_names = [f"`{name}`" for name in names]
    words = scene.say(sentence, files=", ".join(quoted_names))
    calls: list[tuple[str, Arguments]] = [(ToolName.READ_FILE, {"path": name}) for name in names]
    return ScriptedReply(words, tuple(calls))


def _readable_listed_files(scene: DemoScene) -> list[str]:
    """Return the text files in the tool's listing that are short enough to read."""
    names: list[str] = []
    for listing in scene.results_of_station(TourStation.LIST):
        for line in listing.splitlines():
            match = _TEXT_FILE.match(line)
            if match is None:
                continue
            size = int(match[2].replace(",", ""))
            if size <= LARGEST_READ:
                names.append(match[1])
    return names


def _search_step(scene: DemoScene) -> ScriptedReply:
    """Search for the longest word that was read. Of several, the last in the alphabet."""
    longest_word = "the"
    for text in scene.results_of_station(TourStation.READ):
        for word in _WORD.findall(text[:4000]):
            is_longer = len(word) > len(longest_word)
            is_later = len(word) == len(longest_word) and word > longest_word
            if is_longer or is_later:
                longest_word = word
    words = scene.say("I search the folder for “{word}”.", word=longest_word)
    return _reply_with_call(words, ToolName.SEARCH_FILES, {"pattern": longest_word})


def _edit_step(scene: DemoScene) -> ScriptedReply | None:
    """Add a sentence to the README of the tour's own folder. No other folder is changed."""
    sentence = f"The table of samples {OLD_END}"
    texts = scene.results_of_station(TourStation.READ)
    has_read_sentence = any(sentence in text for text in texts)
    if not has_read_sentence:
        return None
    words = scene.say("README.md does not mention run.log, so I add a sentence.")
    arguments = {"path": "README.md", "old_text": OLD_END, "new_text": NEW_END}
    return _reply_with_call(words, ToolName.EDIT_FILE, arguments)


def _run_step(scene: DemoScene) -> ScriptedReply:
    words = scene.say(
        "Next, I run a command, in a sandbox if this system has one. Depending on the permission mode, you are asked first."
    )
    command = "uname -s; date; ls | wc -l"
    if sys.platform == "win32":
        command = "dir"
    return _reply_with_call(words, ToolName.RUN_COMMAND, {"command": command})


def _large_output_step(scene: DemoScene) -> ScriptedReply:
    words = scene.say(
        "I run a command with {n} lines of output. All of them are stored; only the lines that I need are sent to the model.",
        n=RECORDS,
    )
    arguments = add_keep_argument_if_large({"command": command_with_large_output()}, "large", scene)
    return _reply_with_call(words, ToolName.RUN_COMMAND, arguments)


def _recall_step(scene: DemoScene) -> ScriptedReply | None:
    """Recall a part of an output that the request shows only in part.

    The whole output is in the cache under its hash: that of the large one, or of another that
    was shortened. Without the tool for it, the cache is searched.
    """
    if scene.offers_tool(ToolName.RECALL):
        large_outputs = _hashes_in(scene.results_of_station(TourStation.LARGE))
        if large_outputs:
            return _recall_record(scene, large_outputs[0])
        markers = _hashes_in(reversed(scene.texts))
        if markers:
            return _recall_beginning(scene, markers[0])
    if scene.offers_tool(ToolName.SEARCH_CACHE):
        words = scene.say("I search the cache for it.")
        return _reply_with_call(words, ToolName.SEARCH_CACHE, {"query": f"record {RECALLED}"})
    return None


def _hashes_in(texts: Iterable[str]) -> list[str]:
    hashes: list[str] = []
    for text in texts:
        hashes.extend(_HASH.findall(text))
    return hashes


def _recall_record(scene: DemoScene, digest: str) -> ScriptedReply:
    words = scene.say(
        "The excerpt gives the hash of the whole output. I recall line {n} from the cache.",
        n=RECALLED,
    )
    arguments: Arguments = {"sha256": digest, "grep": f"^record {RECALLED} "}
    return _reply_with_call(words, ToolName.RECALL, arguments)


def _recall_beginning(scene: DemoScene, digest: str) -> ScriptedReply:
    words = scene.say(
        "An earlier output is now only one line with a hash. I recall the beginning of the original."
    )
    return _reply_with_call(words, ToolName.RECALL, {"sha256": digest, "lines": "1-20"})


def _close_step(scene: DemoScene) -> ScriptedReply:
    finished_plan = _todo_arguments(scene, state_of_next="done", done_count=len(PLAN))
    return _reply_with_call("", ToolName.SET_TODO, finished_plan)


# By station: the tool it needs (a recall can use two), and its reply's builder.
STATIONS: Mapping[TourStation, tuple[str, Callable[[DemoScene], ScriptedReply | None]]] = {
    TourStation.PLAN: (ToolName.SET_TODO, _plan_step),
    TourStation.LIST: (ToolName.LIST_FILES, _build_file_listing_reply),
    TourStation.READ: (ToolName.READ_FILE, _build_file_reading_reply),
    TourStation.SEARCH: (ToolName.SEARCH_FILES, _search_step),
    TourStation.EDIT: (ToolName.EDIT_FILE, _edit_step),
    TourStation.RUN: (ToolName.RUN_COMMAND, _run_step),
    TourStation.LARGE: (ToolName.RUN_COMMAND, _large_output_step),
    TourStation.RECALL: ("", _recall_step),
    TourStation.CLOSE: (ToolName.SET_TODO, _close_step),
}


def _closing_words(scene: DemoScene) -> str:
    """Return what happened, as far as it can be seen, including refusals."""
    say = scene.say
    lines = [say("Done. I made {n} calls, all of them real.", n=len(scene.done))]
    recalled_line = _recalled_line(scene)
    if recalled_line:
        sentence = "The recalled line is `{line}`. It had not been sent to me before."
        lines.append(say(sentence, line=recalled_line))

    folded_count = 0
    failed_tools: set[str] = set()
    for call, result in scene.done:
        if result is None:
            continue
        if result.text.startswith("[CACHED]"):
            folded_count += 1
        if not result.ok:
            failed_tools.add(call.name)
    if folded_count:
        sentence = "From now on, I am sent one line for each of {n} older outputs. The originals are in the cache."
        lines.append(say(sentence, n=folded_count))
    if failed_tools:
        tools = ", ".join(sorted(failed_tools))
        sentence = "Failed or denied: {tools}. The result of each call says so."
        lines.append(say(sentence, tools=tools))
    sentence = "Next, undo the change on the Changes page. Then click the meter, choose “Shorten now…”, and undo the shortening. For real work, choose a model at the top right."
    lines.append(say(sentence))
    return "\n\n".join(lines)


def _recalled_line(scene: DemoScene) -> str:
    """Return the line that the tour recalled from the cache, or an empty string."""
    recalled = scene.results_of_station(TourStation.RECALL)
    if not recalled:
        return ""
    for line in recalled[-1].splitlines():
        if f"record {RECALLED}" in line:
            return line.strip()[:120]
    return ""


# --- A single call that the user's message requests


def tool_call_for_word(word: str, words_behind: str) -> tuple[str, Arguments]:
    """Return the tool and the arguments that a user's command stands for."""
    name, argument = read_table("demo")["calls"][word].split()
    if word == "large":
        return name, {"command": command_with_large_output()}
    if word == "todo":
        items: list[Json] = []
        for item in words_behind.split(";"):
            text = item.strip()
            if text:
                items.append({"text": text, "state": "open"})
        return name, {"items": items}
    if word == "write":
        path, _, text = words_behind.partition(":")
        return name, {"path": path.strip(), "content": f"{text.strip()}\n"}
    if not words_behind:
        return name, {}
    return name, {argument: words_behind}


def add_keep_argument_if_large(arguments: Arguments, demo_word: str, scene: DemoScene) -> Arguments:
    """Say what to keep of the large output, if the tool has an argument for that."""
    if demo_word != "large":
        return arguments
    for tool in scene.tools:
        if tool.name != ToolName.RUN_COMMAND:
            continue
        for argument in object_at(parse_object(tool.schema), "properties"):
            if argument.startswith("keep"):
                arguments_with_wish = dict(arguments)
                arguments_with_wish[argument] = scene.say(
                    "the line of record {n}, and how many records there are", n=WANTED
                )
                return arguments_with_wish
    return arguments
