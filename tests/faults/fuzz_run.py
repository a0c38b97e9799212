"""Coverage-guided fuzzing of every parser that reads what others wrote
(fuzz_targets.py), with atheris.

python -m tests.faults.fuzz_run [--seconds 30] [--seed 1] [--target NAME]      so many
seconds for each

Each target runs in a process of its own, for libFuzzer ends with its process. The input
that broke one is printed. Where atheris is not installed, random changes of the corpus
are tried instead, and the report says so.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.faults.store_report import report

LONGEST = 4_000
HANGS = 20  # seconds one input may take


def trials(seconds: float, seed: int, names: list[str], found: Counter[str]) -> None:
    for name in names:
        command = [
            sys.executable,
            "-m",
            "tests.faults.fuzz_run",
            "--inside",
            name,
            "--seconds",
            str(seconds),
            "--seed",
            str(seed),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
        runs = re.findall(r"(?:Done |#)(\d+)", done.stdout + done.stderr)
        found["inputs"] += max((int(run) for run in runs), default=0)
        found["targets"] += 1
        if "without atheris" in done.stdout:
            found["without atheris"] += 1
        if done.returncode:
            told = re.search(r"BROKEN .*", done.stdout) or re.search(
                r".*(?:Error|Exception|timeout|libFuzzer).*", done.stdout + done.stderr
            )
            found[f"LOST in {name}: {told.group() if told else done.stderr[-300:]}"] += 1


def watched(run: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """The target, that tells what broke it."""

    def tried(data: bytes) -> None:
        try:
            run(data)
        except BaseException as error:
            print(
                f"BROKEN {type(error).__name__}: {error}"[:300].replace("\n", " "),
                f"by {data!r}",
                flush=True,
            )
            raise

    return tried


def inside(name: str, seconds: float, seed: int) -> None:
    try:
        import atheris  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        _without(name, seconds, seed)
        return
    with atheris.instrument_imports(include=["helix_desktop", "markdown_it", "tomlkit"]):
        from tests.faults.fuzz_targets import TARGETS
    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="helix-corpus-") as folder:
        for number, data in enumerate(target.corpus):
            (Path(folder) / str(number)).write_bytes(data)
        options = [
            f"-max_total_time={max(1, round(seconds))}",
            f"-seed={seed}",
            f"-max_len={LONGEST}",
            f"-timeout={HANGS}",
        ]
        atheris.Setup(
            [sys.argv[0], *options, f"-artifact_prefix={folder}/", folder], watched(target.run)
        )
        atheris.Fuzz()


def _without(name: str, seconds: float, seed: int) -> None:
    """Random changes of the corpus, for as long."""
    from tests.faults.fuzz_targets import TARGETS

    target = TARGETS[name]
    chance = random.Random(seed)
    tried = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        watched(target.run)(changed(target.corpus, chance))
        tried += 1
    print(f"Done {tried} inputs, without atheris")


def changed(corpus: tuple[bytes, ...], chance: random.Random) -> bytes:
    """An entry of the corpus with some bytes changed, doubled, taken out, or put in
    from another entry.
    """
    data = bytearray(chance.choice(corpus))
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(data))
        other = chance.choice(corpus)
        cut = chance.randint(0, len(other))
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = chance.choice(
                    (b"\x00", b"\xff", b'"', b"{", b"\n", b"[", b"\\", b"0", b"`", b"|")
                )
            case 1:
                del data[at : at + chance.randint(1, 20)]
            case 2:
                data[at:at] = other[cut : cut + chance.randint(1, 60)]
            case _:
                data[at:at] = data[max(0, at - 30) : at] * chance.randint(1, 8)
    return bytes(data[:LONGEST])


def names() -> list[str]:
    from tests.faults.fuzz_targets import TARGETS

    return list(TARGETS)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", default="")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.inside, arguments.seconds, arguments.seed)
        return 0
    chosen = [arguments.target] if arguments.target else names()
    return report(
        "fuzz",
        arguments.seed,
        lambda found: trials(arguments.seconds, arguments.seed, chosen, found),
    )


if __name__ == "__main__":
    sys.exit(main())
