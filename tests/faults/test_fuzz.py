"""The fuzzed parsers in their short form: the corpus, the same random changes of it on
every run, and what once broke one.
"""

from __future__ import annotations

import random

import pytest

from tests.faults.fuzz_run import changed
from tests.faults.fuzz_targets import TARGETS

BROKE: dict[str, tuple[bytes, ...]] = {"mcp": (b"https://ttp\x91\xff]\x00", b"http://[a")}


@pytest.mark.parametrize("name", TARGETS)
def test_only_what_is_documented_comes_out(name: str) -> None:
    target = TARGETS[name]
    chance = random.Random(20)
    for data in (
        *target.corpus,
        *BROKE.get(name, ()),
        *(changed(target.corpus, chance) for _ in range(150)),
    ):
        target.run(data)
