"""The small project that the tour works on, and the model that answers there."""

import random
from pathlib import Path

from helix_desktop.atomic_files import create_folders

MODEL = "demo/demo"


def create_tour_folder(folder: Path) -> None:
    """Create a small project with code, a table and a long log, the same on every machine."""
    numbers = random.Random(1953)  # noqa: S311 - a sample, not a secret
    create_folders(folder / "src")
    (folder / "README.md").write_text(
        "# Base pairs\n\nCounts base pairs in sequences. The table of samples is in samples.csv.\n",
        encoding="utf-8",
    )
    functions = [
        f"def count_{name}(sequence):\n    return sequence.count({name!r})\n" for name in "ACGT"
    ]
    (folder / "src" / "pairs.py").write_text("\n\n".join(functions), encoding="utf-8")
    rows = ["sample,length,content"]
    for number in range(400):
        length = numbers.randint(200, 900)
        content = numbers.random()
        rows.append(f"s{number},{length},{content:.3f}")
    (folder / "samples.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")

    lines: list[str] = []
    for number in range(2_500):
        read_number = numbers.randint(1, 99999)
        quality = numbers.randint(10, 40)
        lines.append(f"{number:05d} read {read_number:05d} quality {quality}")
    # One line that a search finds among all others.
    lines[1_777] = "01777 ERROR adapter not trimmed in s177"
    (folder / "run.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
