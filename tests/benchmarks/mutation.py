"""How many one-line mistakes in the modules that carry the truth the tests notice:
mutmut over engine/history and beside it.

python -m tests.benchmarks.mutation [MODULE ...]     goes on where the last run ended;
judged survivors stand in JUDGED

What is mutated, and with which tests, is in pyproject.toml ([tool.mutmut]); results lie
in mutants/. A benchmark: whole, it takes hours of one core.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.benchmarks.row import Figure, Row

ROOT = Path(__file__).parents[2]
QUICK = ("helix_desktop.engine.state.fold_covers",)
ASKED = 0.9
CAUGHT = frozenset({"killed", "timeout", "segfault", "suspicious"})
HISTORY = "helix_desktop.engine.state"
JUDGED: Mapping[str, str] = {  # a survivor, and why no test can or need catch it
    f"{HISTORY}.live_folds.xǁLiveFoldsǁtokens_without__mutmut_3": "the rest of the function comes to the same count",
    f"{HISTORY}.live_folds.xǁLiveFoldsǁtokens_without__mutmut_5": "a fold in force always has an item",
    f"{HISTORY}.fact_tree.xǁFactTreeǁfolds_at__mutmut_39": "numbers begin at 1",
    f"{HISTORY}.request_digest.x_digest_of__mutmut_11": "another spelling of the same encoding",
    f"{HISTORY}.request_digest.x_digest_of__mutmut_18": "Python's default is the same order of bytes",
    f"{HISTORY}.token_ledger.xǁTokenLedgerǁsavings_until__mutmut_1": "every caller gives the price",
    f"{HISTORY}.moment.xǁMomentǁmain_model_factor__mutmut_9": "no model has either name",
    f"{HISTORY}.branch.xǁConversationBranchǁoutput_at__mutmut_4": "the words of an error nobody reads",
    f"{HISTORY}.branch.xǁConversationBranchǁmay_nest__mutmut_5": "only slower: what cuts no item nests with every span",
    f"{HISTORY}.branch.xǁConversationBranchǁmay_nest__mutmut_12": "only slower: what cuts no item nests with every span",
    f"{HISTORY}.branch.xǁConversationBranchǁmay_nest__mutmut_14": "only slower: a part nests with every span",
    f"{HISTORY}.token_ledger.xǁTokenLedgerǁbilling_factor__mutmut_25": "the median of what is expected is what is expected",
    f"{HISTORY}.live_folds.xǁLiveFoldsǁbuild_items__mutmut_8": "the fold of a part is left out of one item alone",
    f"{HISTORY}.live_folds.xǁLiveFoldsǁ_build_document_item__mutmut_16": "a block is counted by its own number",
    f"{HISTORY}.live_folds.xǁLiveFoldsǁ_apply_mark__mutmut_5": "nothing else has an effect (`ConversationBranch.advance`)",
    "helix_desktop.engine.view.xǁConversationStateǁalready_holds__mutmut_4": "settings know no time",
}


def rows(*, quick: bool) -> list[Row]:
    """The share that is caught, module by module."""
    run(QUICK if quick else ())
    return [
        _row(module, counted)
        for module, counted in sorted(results().items())
        if sum(counted.values())
    ]


def run(modules: Sequence[str]) -> None:
    """Test the mutants of these modules, all without any, that were not tested yet."""
    chosen = [f"{module}*" for module in modules]
    subprocess.run(
        [sys.executable, "-m", "mutmut", "run", "--max-children", "1", *chosen],
        cwd=ROOT,
        check=False,
    )


def results() -> dict[str, Counter[str]]:
    """By module, how many mutants ended how; those that were not tested yet are left out."""
    said = subprocess.run(
        [sys.executable, "-m", "mutmut", "results", "--all", "true"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    found: dict[str, Counter[str]] = {}
    for line in said.splitlines():
        name, _, ended = line.strip().partition(": ")
        if ended and ended != "not checked" and name not in JUDGED:
            found.setdefault(name.rpartition(".")[0], Counter())[ended] += 1
    return found


def _row(module: str, counted: Counter[str]) -> Row:
    whole = sum(counted.values())
    caught = sum(number for ended, number in counted.items() if ended in CAUGHT)
    return Row(
        f"mutants of {module} that are caught", "share", Figure.of([caught / whole]), {}, f"≥ {ASKED:g}",
        caught >= ASKED * whole, note=f"{caught} of {whole}",
    )  # fmt: skip


def main() -> int:
    run(sys.argv[1:])
    for row in (_row(module, counted) for module, counted in sorted(results().items())):
        sys.stdout.write(f"{row.name}: {row.note}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
