"""Lays out formulas in a process that ends when one of them takes too long. A script.

    formula_worker.py FOLDERS      folders with the libraries, if any are needed

Standard input has a line of JSON for each formula (`latex`, `size`, `colour`,
`display`); standard output has a line of JSON with `svg` and `depth`, or `{}` for an
invalid formula. Each level of nesting doubles the work of the library, which cannot be
interrupted, so the system ends the process.
"""

import json
import os
import signal
import sys
from typing import Any

SECONDS = 0.35  # The maximum processor time for one formula.


def serve_formula_requests() -> None:
    """Answers each line of standard input, a formula, with a line that holds its
    picture, until the input ends. This runs in a process of its own: a formula that
    takes too long ends the process, not the program. The first argument lists the
    folders to import from.
    """
    for folder in sys.argv[1].split(os.pathsep):
        if folder:
            sys.path.append(folder)
    from ziafont.config import config

    # Without this, symbols would be defined once and used elsewhere, which Qt cannot
    # draw.
    config.svg2 = False
    for line in sys.stdin.buffer:
        request = json.loads(line)
        _limit_cpu_seconds(SECONDS)
        try:
            answer = _draw_formula(request)
        except Exception:  # noqa: BLE001 - a model wrote it: whatever is wrong with it, its source is shown
            answer = {}
        _limit_cpu_seconds(0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _draw_formula(request: dict[str, Any]) -> dict[str, Any]:
    from ziamath.zmath import Latex

    formula = Latex(
        request["latex"],
        size=request["size"],
        color=request["colour"],
        inline=not request["display"],
    )
    return {"svg": formula.svg(), "depth": -float(formula.getyofst())}


def _limit_cpu_seconds(seconds: float) -> None:
    # Windows has no such timer. There, the parent process ends this process.
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)


if __name__ == "__main__":
    serve_formula_requests()
