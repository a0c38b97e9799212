"""A folder in which something hostile works, with a secret beside it that it must not touch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

SECRET = "words that only the user knows"


@dataclass
class GuardedFolder:
    """What ran there leaves a file in `inside/ran`, whose name the trial has in `allowed` if somebody
    said yes to it. `only`: the one attack that is tried, or all.
    """

    place: Path
    seed: int
    only: str = ""
    failures: list[str] = field(default_factory=list)
    allowed: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def inside(self) -> Path:
        return self.place / "project"

    @property
    def outside(self) -> Path:
        return self.place / "outside"

    @property
    def home(self) -> Path:
        return self.place / "home"

    def prepare_folders(self) -> None:
        for folder in (self.inside / "ran", self.outside):
            folder.mkdir(parents=True)
        (self.inside / "README.md").write_text("# Pairs\n")
        (self.outside / "secret").write_text(SECRET)

    def check_outside(self, name: str) -> None:
        names = [path.name for path in self.outside.iterdir()]
        if names != ["secret"]:
            self.fail(name, f"outside there is {names}")
        if (self.outside / "secret").read_text() != SECRET:
            self.fail(name, "the file outside was written")

    def take_what_ran(self, name: str) -> list[str]:
        """Return what ran after a yes, and forget all that ran."""
        ran_after_yes: list[str] = []
        for ran in (self.inside / "ran").iterdir():
            if ran.name in self.allowed:
                ran_after_yes.append(ran.name)
            else:
                self.fail(name, f"{ran.name} ran without an answer")
            ran.unlink()
        self.counts["commands that ran after a yes"] += len(ran_after_yes)
        return ran_after_yes

    def fail(self, name: str, what: str) -> None:
        self.failures.append(f"{name}: {what}")
        print(f"FAILED: {self.failures[-1][:1_800]}", flush=True)
