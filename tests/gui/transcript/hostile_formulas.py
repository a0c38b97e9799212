"""Formulas of any allowed length, from a seed: deep, wide, tall and broken ones."""

from __future__ import annotations

import random

from helix_desktop.gui.transcript.formula_pictures import LONGEST

_AROUND = (
    r"\frac{1}{%}", r"\frac{%}{2}", r"x^{%}", r"x_{%}", r"x_{%}^{2}", r"\sqrt{%}", r"\sqrt[3]{%}", r"\left(%\right)", r"\left\{%\right.", r"\overline{%}", r"\hat{%}", r"\overbrace{%}", r"\binom{%}{2}", r"\mathbf{%}", r"\text{%}", r"{%}",
    r"\begin{pmatrix}%&1\\2&3\end{pmatrix}", r"\sum_{%}^{n} a", r"\int_{%} dx", r"\lim_{%} a", r"\begin{cases}%\\1\end{cases}", r"\color{red}{%}", r"\cfrac{1}{1+%}", r"\stackrel{a}{%}", r"\underset{%}{=}", r"\dfrac{%}{%}", r"%^{%}", r"\boxed{%}",
)  # fmt: skip
_LEAVES = (
    "x",
    "a+b",
    r"\alpha",
    "1",
    r"\infty",
    "",
    "{",
    r"\\",
    "&",
    r"\nothing",
    "中",
    r"\hspace{99999em}",
    r"\rule{9cm}{9cm}",
    "x" * 50,
    r"\sum" * 20,
    "^",
    "_",
    "'" * 30,
    r"\Huge x",
    r"\quad" * 20,
)


def hostile_formula(seed: int) -> str:
    chance = random.Random(seed)
    made = chance.choice(_LEAVES)
    alike = chance.choice(_AROUND) if chance.random() < 0.5 else ""
    longest = chance.randrange(10, LONGEST + 1)
    while True:
        outer = (alike or chance.choice(_AROUND)).replace("%", made)
        if len(outer) > longest:
            return made if chance.random() < 0.7 else (made * LONGEST)[:longest] or "x"
        made = outer if len(outer) > len(made) else outer + "x"
