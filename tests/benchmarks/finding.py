"""Finding a tool among many: `python -m tests.benchmarks.finding [--metatool FOLDER] [--stable FOLDER]`.

How often the right tool is among the first five, beside plain BM25 over the same texts; what 9,000 tools of 60 servers cost in
front of a request; how long a search takes; and the bill of 40 steps with tools on demand, with all definitions sent, and with
an array of tools that grows with what was found. The sets are public (HowieHwong/MetaTool, THUNLP-MT/StableToolBench): a
folder with a copy of one is given, and nothing of them is kept here.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from helix_desktop.engine.facts import ToolSpec
from helix_desktop.tokens import Counter as Tokens
from helix_desktop.tools import schema
from helix_desktop.tools.on_demand import Finder, OnDemand, _searched
from helix_desktop.tools.ranking import Ranking

Texts = Sequence[tuple[str, str]]
Questions = Sequence[tuple[str, frozenset[int]]]
FIRST = 5
STEPS, OUTPUT, REPLY = 40, 600, 120  # of the bill: steps, tokens of an output and of a reply
READ, WRITE, OUT = 0.1, 1.25, 5.0  # prices as shares of the input price


class Plain:
    """BM25 as it stands in every textbook: words in lower case, k = 1.5, b = 0.75."""

    def __init__(self, texts: Texts) -> None:
        found = [re.findall(r"[a-z0-9]+", f"{name} {said}".lower()) for name, said in texts]
        self.lengths = [len(words) for words in found]
        self.mean = sum(self.lengths) / len(found)
        self.places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, words in enumerate(found):
            for word, count in Counter(words).items():
                self.places[word].append((number, count))

    def best(self, question: str, limit: int) -> Sequence[int]:
        scores: dict[int, float] = defaultdict(float)
        for word in re.findall(r"[a-z0-9]+", question.lower()):
            places = self.places.get(word, ())
            weight = math.log(1 + (len(self.lengths) - len(places) + 0.5) / (len(places) + 0.5))
            for number, count in places:
                scores[number] += (
                    weight * count * 2.5 / (count + 1.5 * (0.25 + 0.75 * self.lengths[number] / self.mean))
                )
        return sorted(scores, key=lambda number: (-scores[number], number))[:limit]


def metatool(folder: Path) -> tuple[Texts, Questions]:
    described: dict[str, str] = json.loads((folder / "dataset" / "plugin_des.json").read_text())
    at = {name: number for number, name in enumerate(described)}
    with (folder / "dataset" / "data" / "all_clean_data.csv").open(newline="") as file:
        rows = [(row["Query"], frozenset({at[row["Tool"]]})) for row in csv.DictReader(file)]
    random.Random(7).shuffle(rows)
    return tuple(described.items()), rows


def stable(folder: Path) -> tuple[Texts, Questions]:
    """Every API any question of the set lists is a tool; right are those the question names as relevant."""
    texts: dict[tuple[str, str], tuple[str, str]] = {}
    asked: list[tuple[str, list[tuple[str, str]]]] = []
    for file in sorted((folder / "solvable_queries" / "test_instruction").glob("*.json")):
        for one in json.loads(file.read_text()):
            for api in one["api_list"]:
                parameters = [*api.get("required_parameters", ()), *api.get("optional_parameters", ())]
                said = " ".join(f"{p.get('name', '')} {p.get('description', '')}" for p in parameters)
                key = (api["tool_name"], api["api_name"])
                texts.setdefault(key, (f"{key[0]} {key[1]}", f"{api.get('api_description', '')} {said}"))
            asked.append((one["query"], [(tool, name) for tool, name in one.get("relevant APIs", ())]))
    at = {key: number for number, key in enumerate(texts)}
    return tuple(texts.values()), [
        (query, frozenset(at[key] for key in keys if key in at)) for query, keys in asked if any(k in at for k in keys)
    ]


def recall(best: Callable[[str, int], Sequence[int]], questions: Questions) -> float:
    """The share of the right tools that are among the first five."""
    return sum(len(right & set(best(said, FIRST))) / len(right) for said, right in questions) / len(questions)


def compare(name: str, texts: Texts, questions: Questions) -> None:
    plain, ours = Plain(texts), Ranking(texts)
    half = len(questions) // 2
    print(f"{name}: {len(texts)} tools, {len(questions)} questions")
    for which, part in (("first half", questions[:half]), ("second half", questions[half:]), ("all", questions)):
        print(f"  {which:11} plain BM25 {recall(plain.best, part):.3f}   ours {recall(ours.best, part):.3f}")


def nine_thousand() -> list[ToolSpec]:
    """150 tools each of 60 servers, with descriptions and parameters of usual length."""
    verbs = ("create", "list", "update", "delete", "search", "export", "import", "archive", "share", "count")
    things = ("issue", "invoice", "contact", "ticket", "file", "event", "report", "order", "message", "customer", "task", "page", "user", "label", "payment")  # fmt: skip
    made = []
    for server in range(60):
        for verb in verbs:
            for thing in things:
                properties = {
                    f"{thing}_id": {"type": "string", "description": f"The id of the {thing}"},
                    "filter": {"type": "string", "description": f"Only {thing}s that fit this expression"},
                    "limit": {"type": "integer", "description": "How many at the most"},
                }
                said = f"{verb.capitalize()} a {thing} in system {server}. Returns the {thing} with all its fields and links."
                made.append(
                    ToolSpec(
                        f"server{server}__{verb}_{thing}",
                        said,
                        json.dumps({"type": "object", "properties": properties}),
                    )
                )
    return made


def standing(specs: Sequence[ToolSpec]) -> None:
    tokens = Tokens()
    demand = OnDemand(tokens, Finder())
    started = time.perf_counter()
    sent = [schema.offered(s.name, s.description, json.loads(s.schema)) for s in demand.offered(specs, ())]
    seconds = time.perf_counter() - started
    used = sum(tokens.count(spec.name + spec.description + spec.schema) for spec in sent)
    print(
        f"{len(specs):,} tools of 60 servers: {len(sent)} definitions sent, {used:,} tokens; not sent: {demand.withheld[1]:,}"
    )
    print(f"  decided in {seconds * 1000:.0f} ms")
    started = time.perf_counter()
    ranking = Ranking([(spec.name, _searched(spec)) for spec in specs])
    print(f"  search made in {time.perf_counter() - started:.2f} s")
    times = []
    for question in (
        "create an invoice for a customer",
        "which tickets are open in system 41",
        "share the report",
        "count",
        "list the fields and links of an id with a filter expression and a limit in a system that fits what it returns",
    ) * 10:
        started = time.thread_time()
        ranking.best(question, FIRST)
        times.append(time.thread_time() - started)
    times.sort()
    print(
        f"  a search, in time of the processor: median {times[len(times) // 2] * 1000:.1f} ms, longest {times[-1] * 1000:.1f} ms"
    )


def bill(specs: Sequence[ToolSpec]) -> None:
    """40 steps that use ten tools, each called four times; system prompt and tools stand in front and are cached."""
    tokens = Tokens()
    definition = [tokens.count(s.name + s.description + s.schema) for s in specs]
    ten = definition[:10]
    demand = sum(tokens.count(s.name + s.description + s.schema) for s in OnDemand(tokens, Finder()).offered(specs, ()))
    found = 5 * sum(ten) // 10  # what a search returns
    rows = {
        "all definitions sent": _cost(front=[sum(definition)] * STEPS, searches=0, found=0),
        "the array grows with each tool found": _cost(
            front=[demand + sum(ten[: step // 4 + 1]) for step in range(STEPS)], searches=10, found=found
        ),
        "tools on demand": _cost(front=[demand] * STEPS, searches=10, found=found),
    }
    print(f"the bill of {STEPS} steps, in input tokens at the full price:")
    for name, cost in rows.items():
        print(f"  {name:38} {cost:12,.0f}")


def _cost(front: Sequence[int], searches: int, found: int) -> float:
    """Cache reads for what stood there before, writes for what is new; a changed front is written whole, and all behind it."""
    total, cached, history = 0.0, 0, 0
    before = -1
    calls = []
    for step in range(STEPS):
        calls += [found] if searches and step % (STEPS // searches) == 0 else []
        calls.append(OUTPUT)
    at = 0
    for output in calls:
        size = front[min(at, STEPS - 1)] + history
        kept = cached if front[min(at, STEPS - 1)] == before else 0
        total += kept * READ + (size - kept) * WRITE + REPLY * OUT
        before, cached = front[min(at, STEPS - 1)], size
        history += output + REPLY
        at += output == OUTPUT
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metatool", type=Path)
    parser.add_argument("--stable", type=Path)
    wanted = parser.parse_args()
    if wanted.metatool:
        compare("MetaTool", *metatool(wanted.metatool))
    if wanted.stable:
        compare("StableToolBench, solvable questions", *stable(wanted.stable))
    specs = nine_thousand()
    standing(specs)
    bill(specs)


if __name__ == "__main__":
    main()
