"""One benchmark in a process of its own: its rows as JSON, on the last line it says.
`python -m tests.benchmarks.one NAME [quick]`.
"""

from __future__ import annotations

import importlib
import json
import sys


def main(name: str, quick: str = "") -> int:
    rows = importlib.import_module(f"tests.benchmarks.{name}").rows(quick=bool(quick))
    print("\n" + json.dumps([row.as_json() for row in rows], ensure_ascii=False), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
