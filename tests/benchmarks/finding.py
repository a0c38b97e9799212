"""Finding a tool among many: `python -m tests.benchmarks.finding [--metatool FOLDER]
[--stable FOLDER]`.

How often the right tool is among the first five, beside plain BM25 over the same texts.
The sets are public (HowieHwong/MetaTool, THUNLP-MT/StableToolBench): a folder with a
copy of one is given, and nothing of them is kept here. What thousands of tools cost is
measured in many_tools.py.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from helix_desktop.tools.tool_ranking import TextRanking

Texts = Sequence[tuple[str, str]]
Questions = Sequence[tuple[str, frozenset[int]]]
ApiKey = tuple[str, str]  # The tool and the name.
FIRST = 5


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
                    weight
                    * count
                    * 2.5
                    / (count + 1.5 * (0.25 + 0.75 * self.lengths[number] / self.mean))
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
    """Every API any question of the set lists is a tool; right are those the question
    names as relevant.
    """
    texts: dict[ApiKey, tuple[str, str]] = {}
    asked: list[tuple[str, list[ApiKey]]] = []
    for file in sorted((folder / "solvable_queries" / "test_instruction").glob("*.json")):
        for question in json.loads(file.read_text()):
            for api in question["api_list"]:
                key = (api["tool_name"], api["api_name"])
                texts.setdefault(key, (f"{key[0]} {key[1]}", _describe_api(api)))
            relevant = [(tool, name) for tool, name in question.get("relevant APIs", ())]
            asked.append((question["query"], relevant))
    number_of_tool = {key: number for number, key in enumerate(texts)}
    questions: list[tuple[str, frozenset[int]]] = []
    for query, relevant in asked:
        right = frozenset(number_of_tool[key] for key in relevant if key in number_of_tool)
        if right:
            questions.append((query, right))
    return tuple(texts.values()), questions


def _describe_api(api: dict[str, Any]) -> str:
    """What it does, and each of its parameters."""
    words = [api.get("api_description", "")]
    for kind in ("required_parameters", "optional_parameters"):
        for parameter in api.get(kind, ()):
            words.append(f"{parameter.get('name', '')} {parameter.get('description', '')}")
    return " ".join(words)


def recall(best: Callable[[str, int], Sequence[int]], questions: Questions) -> float:
    """The share of the right tools that are among the first five."""
    return sum(len(right & set(best(said, FIRST))) / len(right) for said, right in questions) / len(
        questions
    )


def compare(name: str, texts: Texts, questions: Questions) -> None:
    plain = Plain(texts)
    ours = TextRanking(texts)
    half = len(questions) // 2
    print(f"{name}: {len(texts)} tools, {len(questions)} questions")
    for which, part in (
        ("first half", questions[:half]),
        ("second half", questions[half:]),
        ("all", questions),
    ):
        print(
            f"  {which:11} plain BM25 {recall(plain.best, part):.3f}   ours {recall(ours.find_best_texts, part):.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metatool", type=Path)
    parser.add_argument("--stable", type=Path)
    wanted = parser.parse_args()
    if wanted.metatool:
        compare("MetaTool", *metatool(wanted.metatool))
    if wanted.stable:
        compare("StableToolBench, solvable questions", *stable(wanted.stable))


if __name__ == "__main__":
    main()
