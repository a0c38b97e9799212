"""Formulas made to take long: each is drawn within half a second of work, or its source
stands in its place.

python -m tests.faults.formulas [--formulas 500] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource

from helix_desktop.gui.transcript.formula_pictures import LONGEST, FormulaRequest, draw_formulas
from tests.gui.transcript.hostile_formulas import hostile_formula

MOST_SECONDS = 0.5


def _work(latex: str) -> tuple[float, bool]:
    """Seconds of the processor's time for one formula with a process of its own, and
    whether it was drawn.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    (made,) = asyncio.run(
        draw_formulas([FormulaRequest(latex, display=True, size=17.0, colour="#000000", ratio=2.0)])
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, made is not None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--formulas", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtGui import QGuiApplication

    application = QGuiApplication([])
    start = min(_work("x")[0] for _ in range(3))  # of the process itself, with the libraries
    slowest = 0.0
    slow = 0
    drawn = 0
    for seed in range(chosen.seed, chosen.seed + chosen.formulas):
        latex = hostile_formula(seed)
        assert len(latex) <= LONGEST
        work, is_drawn = _work(latex)
        slowest = max(slowest, work - start)
        drawn += is_drawn
        if work - start > MOST_SECONDS:
            slow += 1
            print(f"seed {seed}: {work - start:.2f} s: {latex}")
    print(
        f"{chosen.formulas} formulas: {drawn} drawn, {slow} took too long; at most {slowest:.2f} s of work"
    )
    application.quit()
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
