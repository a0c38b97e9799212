"""Benchmarks that speak in their own form: what they say, read into rows, and what the
issues ask of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.row import Figure, Row

HEADS_OF = (
    "the system prompt and tools of "  # how the tables with another program's head are called
)
NAMED = "layered, where the agent knows the page"  # a row of the policies beside the others


@dataclass(frozen=True, slots=True)
class Adapted:
    """A module with a `main`: its arguments, those for a quick look, and how its rows are read."""

    measures: str
    read: Callable[[str], list[Row]]
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    screen: bool = False
    traces: bool = False


def _json(text: str) -> Any:
    return json.loads(text[text.index("{") :])


# --- the stores

PUT_LIMIT = 1.3
GET_LIMIT = 1.5
ROUNDS = 15  # of store_put, where nobody says otherwise


def store_put(text: str) -> list[Row]:
    """Ours beside its own parts and beside other stores; asked: at most 1.3 times its
    parts (put), 1.5 times (get), and faster than diskcache.
    """
    said = _json(text)
    rows = []
    for label, stores in said["stores"].items():
        for what, limit in (("put", PUT_LIMIT), ("get", GET_LIMIT)):
            found = {name: _spread(both[what]) for name, both in stores.items()}
            ours = found.pop("ours")
            ratio = ours.median / found["parts"].median
            met = ratio <= limit and ours.median < found["diskcache"].median
            asked = f"≤ {limit} × parts, < diskcache"
            rows.append(
                Row(
                    f"{what} of {label}",
                    "µs",
                    ours,
                    found,
                    asked,
                    met,
                    note=f"{ratio:.2f} × parts, {_beside_diskcache(what, ours, found)}",
                )
            )
    for name, value in said["port"].items():
        rows.append(Row(name, "µs", Figure(value, value, value)))
    return rows


LIKE_FOR_LIKE = {"put": "diskcache with sync", "get": "diskcache with hash check"}


def _beside_diskcache(what: str, ours: Figure, found: Mapping[str, Figure]) -> str:
    """By itself diskcache leaves files to the system and checks nothing: said beside
    the one that does what ours does.
    """
    fair = LIKE_FOR_LIKE[what]
    said = f"{ours.median / found['diskcache'].median:.2f} × diskcache"
    return f"{said}, {ours.median / found[fair].median:.2f} × {fair}" if fair in found else said


def _spread(three: list[float]) -> Figure:
    median, least, most = three
    return Figure(median, least, most, ROUNDS)


# begins of names in store_million's report, with the limit in the name's own unit
MILLION = (
    ("open (ms)", 500.0), ("first page", 50.0), ("sort by", 200.0), ("filter by", 200.0), ("scroll to", 200.0),
    ("search for a rare", 100.0), ("memory growth", 60.0), ("longest gap", 16.0),
)  # fmt: skip


def store_million(text: str) -> list[Row]:
    """A workspace with very many entries: what one looks at stays as quick as a small one's."""
    said = _json(text)
    entries = int(said.pop("entries"))
    rows = []
    for name, value in said.items():
        figure = Figure(*value) if isinstance(value, list) else Figure(value, value, value)
        limit = (
            next((limit for begin, limit in MILLION if name.startswith(begin)), None)
            if entries >= 1_000_000
            else None
        )
        plain, _, unit = name.partition(" (")
        asked = "" if limit is None else f"< {limit:g} {unit.rstrip(')')}"
        met = None if limit is None else figure.median < limit
        rows.append(
            Row(f"{plain}, {entries:,} entries", unit.rstrip(")"), figure, asked=asked, met=met)
        )
    return rows


# --- the window

FRAMES = re.compile(r"^  (.{24,34}?) +median +([\d.]+) +p99 +([\d.]+) +longest +([\d.]+) ms")
HOSTILE = re.compile(
    r"^  (.{30}) +as a fact +([\d.]+) \(.*\) +streamed +([\d.]+) \(.*\) +scrolled +([\d.]+) \(.*\)$"
)


def gui_transcript(text: str) -> list[Row]:
    """Frames: ours is the 99th percentile, the least the median of all frames, the most
    the longest one.
    """
    return list(_transcript_rows(text))


def _transcript_rows(text: str) -> Iterator[Row]:
    messages = ""
    for line in text.splitlines():
        if begun := re.match(r"^([\d,]+) messages", line):
            messages = begun[1]
        elif shown := re.match(r"^  opened and painted in (\d+) ms", line):
            ms = float(shown[1])
            yield Row(
                f"opened with {messages} messages",
                "ms",
                Figure(ms, ms, ms),
                asked="< 300 ms",
                met=ms < 300,
            )
        elif grown := re.match(r"^  memory grew by (-?\d+) MB", line):
            mb = float(grown[1])
            asked = "< 150 MB" if messages == "10,000" else ""
            yield Row(
                f"memory for {messages} messages",
                "MB",
                Figure(mb, mb, mb),
                asked=asked,
                met=mb < 150 if asked else None,
            )
        elif frame := FRAMES.match(line):
            yield _frame(frame, f", {messages} messages")
        elif bad := HOSTILE.match(line):
            taken = [float(each) for each in bad.groups()[1:]]
            figure = Figure(max(taken), min(taken), max(taken), 3)
            yield Row(
                f"longest gap: {bad[1].strip()}",
                "ms",
                figure,
                asked="< 100 ms",
                met=max(taken) < 100,
            )


def _frame(frame: re.Match[str], of: str) -> Row:
    median, p99, longest = (float(each) for each in frame.groups()[1:])
    figure = Figure(p99, median, longest, 100)
    return Row(
        frame[1].strip() + of,
        "ms, p99 (median to longest in parentheses)",
        figure,
        asked="< 16 ms",
        met=p99 < 16,
    )


def gui_timeline(text: str) -> list[Row]:
    """The timeline of a very long conversation: how long until it is drawn, and its frames."""
    rows = []
    for line in text.splitlines():
        if begun := re.match(
            r"^([\d,]+ steps, [\d,]+ folds).* \(longest gap ([\d.]+) ms\), drawn in (\d+) ms", line
        ):
            gap = float(begun[2])
            drawn = float(begun[3])
            rows.append(
                Row(
                    f"{begun[1]} drawn",
                    "ms",
                    Figure(drawn, drawn, drawn),
                    asked="< 200 ms",
                    met=drawn < 200,
                )
            )
            rows.append(
                Row(
                    "longest event-loop gap while drawing",
                    "ms",
                    Figure(gap, gap, gap),
                    asked="< 50 ms",
                    met=gap < 50,
                )
            )
        elif frame := FRAMES.match(line):
            rows.append(_frame(frame, ""))
    return rows


GAPS = re.compile(r"gaps: p99 +([\d.]+), longest +([\d.]+) ms")
CACHE = (  # what a line says, the row's name, what is asked of it in ms
    (r"entries: page shown in (\d+) ms", "page shown", 100),
    (r"sorted by (\w+) +in +(\d+) ms", "sorted by {}", 500),
    (r"^ +([\d,]+) of it chosen in +(\d+) ms", "filter that leaves {} entries", 500),
    (r"rows there in (\d+) ms \(median\)", "rows shown after a jump", 0),
    (r"^  scrolled:()", "scrolling", 0),
    (r"their hashes copied in (\d+) ms", "copying all hashes", 0),
    (r"first page, checked, shown in (\d+) ms", "first page of a 200 MB entry", 100),
)


def gui_cache(text: str) -> list[Row]:
    """The cache page: how long until shown, and the waits of the event loop meanwhile."""
    return list(_cache_rows(text))


def _cache_rows(text: str) -> Iterator[Row]:
    for line in text.splitlines():
        gaps = GAPS.search(line)
        for pattern, name, limit in CACHE:
            if (found := re.search(pattern, line)) is None:
                continue
            named = name.format(found[1])
            ms = found.groups()[-1]
            if ms:
                taken = float(ms)
                met = taken < limit if limit else None
                yield Row(
                    named,
                    "ms",
                    Figure(taken, taken, taken),
                    asked=f"< {limit} ms" if limit else "",
                    met=met,
                )
            if gaps:
                p99 = float(gaps[1])
                longest = float(gaps[2])
                yield Row(
                    f"{named}: event-loop delay",
                    "ms, p99 (longest in parentheses)",
                    Figure(p99, p99, longest, 2),
                    asked="< 16 ms",
                    met=p99 < 16,
                )
        if grown := re.search(r"memory grew by (-?\d+) MB", line):
            mb = float(grown[1])
            yield Row("memory growth", "MB", Figure(mb, mb, mb), asked="< 80 MB", met=mb < 80)


# --- policies


def policies(text: str) -> list[Row]:
    """What `layered` is billed as a share of sending everything, recalls and head
    included, beside every other policy.
    """
    rows = []
    tables = _json(text)
    heads = {name: tables.pop(name) for name in list(tables) if name.startswith(HEADS_OF)}
    first = next(iter(tables.values()))["no management"]
    for table, said in tables.items():
        whole = said["no management"]
        named = said.pop(NAMED, None)
        shares = {name: _share(one, whole) for name, one in said.items()}
        ours = shares.pop("layered")
        others = {name: figure for name, figure in shares.items() if name != "no management"}
        cheapest = min(
            figure.median
            for name, figure in others.items()
            if name not in {"helix", "observational", "none"}
        )
        kept = said["layered"]["retention_plain"]
        met = ours.median <= cheapest + 1e-9
        note = (
            f"plain retention {kept:.3f}, tokens sent {said['layered']['sent'] / whole['sent']:.3f}"
        )
        rows.append(
            Row(
                f"bill with `layered` ({table})",
                "as a share of the bill for sending everything",
                ours,
                others,
                "no other preset is cheaper",
                met,
                note=note,
            )
        )
        if named:
            rows += [_retention(said), *_asked_of_layered(said["layered"], named, whole)]
    return rows + [_headed(name, said, first) for name, said in heads.items()]


def _headed(name: str, said: Mapping[str, Any], whole: Mapping[str, Any]) -> Row:
    """In the same unit as the others: of sending everything with our own head."""
    shares = {policy: _share(one, whole) for policy, one in said.items()}
    tokens = said["layered"]["head_tokens"]
    unit = "as a share of the bill for sending everything with our own"
    return Row(f"bill with {name}, {tokens:,} tokens", unit, shares.pop("layered"), shares)


def _retention(said: Mapping[str, Any]) -> Row:
    kept = {
        name: Figure(*[one["retention_plain"]] * 3)
        for name, one in said.items()
        if name != "no management"
    }
    ours = kept.pop("layered")
    return Row("`layered`: plain retention", "", ours, kept, "≥ 0.90", ours.median >= 0.90)


def _effective(one: Mapping[str, Any], whole: Mapping[str, Any]) -> float:
    return float(one["effective"] / whole["effective"])


def _part(one: Mapping[str, Any], name: str) -> float:
    """A group of the sessions beside sending all of it."""
    group = one[name]
    return float(group["effective"] / group["none"]["billed"]) if group["sessions"] else 0.0


def _asked_of_layered(
    one: Mapping[str, Any], named: Mapping[str, Any], whole: Mapping[str, Any]
) -> list[Row]:
    """What is asked of `layered` on the traces at their own prices, whatever others do."""
    limits: tuple[tuple[str, float, str, bool | None], ...] = (
        ("effective tokens, as a share of sending everything, if the agent knows which page to recall", _effective(named, whole), "≤ 0.42", _effective(named, whole) <= 0.42),
        ("plain retention, if the agent knows which page to recall", named["retention_plain"], "≥ 0.90", named["retention_plain"] >= 0.90),
        ("effective tokens, as a share of sending everything, if the agent must search", _effective(one, whole), "", None),
        ("effective tokens of recalls, as a share of sending everything", one["recalls_billed"] / whole["effective"], "", None),
        ("effective tokens of searches in summarized text, as a share of sending everything", one["searches_billed"] / whole["effective"], "", None),
        ("effective tokens in sessions that fit in the window, as a share of sending everything", _part(one, "fitting"), "", None),
        ("effective tokens in sessions that overflow the window, as a share of sending everything", _part(one, "overflowing"), "", None),
        ("tokens sent, as a share of sending everything", one["sent"] / whole["sent"], "≤ 0.25", one["sent"] / whole["sent"] <= 0.25),
        ("system prompt and tool tokens in every request", one["head_tokens"], "≤ 2,000", one["head_tokens"] <= 2_000),
        ("largest request, as a share of the window", one["peak"], "≤ 0.5", one["peak"] <= 0.5),
        ("median request, as a share of the window", one["median_use"], "< 0.3", one["median_use"] < 0.3),
        ("requests that overflow", one["overflowed"], "0", one["overflowed"] == 0),
        ("illegal requests", one["illegal_requests"], "0", one["illegal_requests"] == 0),
        ("failed recalls", one["recalls_failed"], "0", one["recalls_failed"] == 0),
        ("details lost", one["details"]["lost"], "0", one["details"]["lost"] == 0),
    )  # fmt: skip
    return [
        Row(f"`layered`: {name}", "", Figure(value, value, value), asked=asked, met=met)
        for name, value, asked, met in limits
    ]


def _share(one: Mapping[str, Any], whole: Mapping[str, Any]) -> Figure:
    share = _effective(one, whole)
    return Figure(share, share, share)


ADAPTED: Mapping[str, Adapted] = {
    "store_put": Adapted(
        "how long it takes to store an entry durably and to read it with a hash check, compared with the individual steps, and with plyvel, sqlite, lmdb, diskcache and files", store_put, ("--json",),
        ("--json", "--rounds", "5"),
    ),
    "store_million": Adapted(
        "how fast a workspace with a million entries is", store_million, ("--json",), ("--json", "--entries", "100000")
    ),
    "gui_transcript": Adapted(
        "how fast the chat is with 10,000 and 100,000 messages, and with text made to slow it down", gui_transcript, (), ("10000",), screen=True
    ),
    "gui_cache": Adapted("how fast the Cache page is with a million entries", gui_cache, (), ("100000",), screen=True),
    "gui_timeline": Adapted(
        "how fast the timeline is with 50,000 steps and 5,000 folds", gui_timeline, (), ("5000",), screen=True
    ),
    "policies": Adapted(
        "what ten recorded sessions cost with each of the four presets and four price tables, compared with public systems. The first column of the table shows the preset `layered`. The bill includes the system prompt and the tools, which are part of every request. The bill also includes summaries, "
        "and recalls of text that a reply uses but the context no longer shows. The bill follows the rules of Anthropic's cache. If a policy keeps the originals, the agent must search for the text it recalls, including text that summaries replaced. "
        "One row shows what the preset `layered` would cost if the agent always knew which part of the stored text to recall. The bill does not include the cost of rules files, of MCP tools, of mistakes that an agent makes because it did not recall something, or of the text that a real model would write in a summary. "
        'The help page "What shortening saves" explains how the bill is calculated and shows the results for all 31 sessions',
        policies, ("--json",), ("--json",), traces=True,
    ),
}  # fmt: skip
