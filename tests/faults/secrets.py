"""Every kind of secret named in every place of a pasted configuration: none may get through.

python -m tests.faults.secrets [--pairs 100000] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from pathlib import Path

from helix_desktop.secrets import SecretStorage
from tests.secret_places import KEPT, PLANTED, given, pairs
from tests.test_secrets import MemoryKeyring


async def tried(count: int, seed: int) -> int:
    keyring = MemoryKeyring()
    with tempfile.TemporaryDirectory() as folder:
        secrets = SecretStorage(
            Path(folder) / "keys.json",
            keyring=lambda: keyring,
            environ={"HELIX_KEY_OPENAI": PLANTED, "OPENAI_API_KEY": PLANTED},
        )
        for secret in KEPT.values():
            await secrets.store_secret_at(secret, PLANTED)
        chosen = list(pairs())
        random.Random(seed).shuffle(chosen)
        through = [pair for pair in chosen[:count] if PLANTED in await given(pair, secrets)]
    for pair in through[:20]:
        print(f"got through: {pair}")
    print(f"{len(chosen[:count])} pairs: {len(through)} got through")
    return 1 if through else 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    return asyncio.run(tried(chosen.pairs, chosen.seed))


if __name__ == "__main__":
    raise SystemExit(main())
