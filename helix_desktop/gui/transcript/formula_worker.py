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

SECONDS = 0.35  # The maximum processor time for one formula.


def serve_formula_requests() -> None:
    sys.path += [folder for folder in sys.argv[1].split(os.pathsep) if folder]
    from ziafont.config import config
    from ziamath.zmath import Latex

    # Without this, symbols would be defined once and used elsewhere, which Qt cannot
    # draw.
    config.svg2 = False
    for line in sys.stdin.buffer:
        wanted = json.loads(line)
        _limit_cpu_seconds(SECONDS)
        try:
            formula = Latex(
                wanted["latex"],
                size=wanted["size"],
                color=wanted["colour"],
                inline=not wanted["display"],
            )
            answer = {"svg": formula.svg(), "depth": -float(formula.getyofst())}
        except Exception:  # noqa: BLE001 - a model wrote it: whatever is wrong with it, its source is shown
            answer = {}
        _limit_cpu_seconds(0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _limit_cpu_seconds(seconds: float) -> None:
    if (
        sys.platform != "win32"
    ):  # Windows has no such timer. There, the parent process ends this process.
        signal.setitimer(signal.ITIMER_PROF, seconds)


if __name__ == "__main__":
    serve_formula_requests()
