"""A self-contained page of a replay: the totals as a table, and tokens over steps for each session and policy.

No script, no font and no picture from elsewhere; it reads the same in ten years. Names from files are escaped.
"""

from collections.abc import Iterator, Sequence
from html import escape

from helix_desktop.replay.replay_figures import ReplayFigures
from helix_desktop.replay.text_report import LEGEND, REPORT_COLUMNS, PolicyResult, plotted_folds, report_cells

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 260, 56, 28, 12
POINTS = 700  # The most points of a line. Of a longer session, the highest points are kept.
COLOURS = ("#0b6e8f", "#b4460f", "#5a7d1e", "#7a3e9d", "#8a6d00", "#a3224f", "#45566a", "#00746b")
DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 2", "10 4", "4 2 1 2", "3 5")
STYLE = """
:root { color-scheme: light dark; --ink: #1b2430; --quiet: #5b6876; --line: #d5dbe1; --ground: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --quiet: #9aa7b4; --line: #39434e; --ground: #14191f; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1rem; margin: 2rem 0 .25rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; color: var(--quiet); }
p, figcaption { color: var(--quiet); } figure { margin: 0; } svg { max-width: 100%; height: auto; display: block; }
svg text { fill: var(--quiet); font-size: 11px; } .grid { stroke: var(--line); } .window { stroke: var(--quiet); stroke-dasharray: 2 4; }
.key { display: inline-block; margin-right: 1.2rem; } .key svg { display: inline-block; vertical-align: middle; }
"""


def format_html_report(results: Sequence[PolicyResult], note: str) -> str:
    """The whole page. `note` says under which prices and terms it was made."""
    sessions = zip(*(result.sessions for result in results), strict=True)
    names = [result.policy for result in results]
    body = [
        "<h1>Replay</h1>",
        f"<p>{escape(note)}</p>",
        *_totals_table(results),
        f"<p>{escape(LEGEND)}</p>",
        *(piece for figures in sessions for piece in _session_figure(names, figures)),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Replay</title><style>{STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _totals_table(results: Sequence[PolicyResult]) -> Iterator[str]:
    headings = ["policy", *(name for name, _ in REPORT_COLUMNS[1:])]
    yield f'<div class="scroll"><table><thead><tr>{"".join(f"<th>{name}</th>" for name in headings)}</tr></thead><tbody>'
    for result in results:
        cells = report_cells(result.total_figures, result.policy)
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    yield "</tbody></table></div>"


# --- the plot of one session -----------------------------------------------------------------------------------------


def _session_figure(names: Sequence[str], figures: Sequence[ReplayFigures]) -> Iterator[str]:
    """Tokens of each step's request, a line per policy; a dot where something was folded other than an excerpt."""
    first = figures[0]
    highest = max([1, *(step for one in figures for step in one.steps)])
    yield f"<h2>{escape(first.name)}</h2><figure>"
    label = f"Tokens over {len(first.steps)} steps under {', '.join(names)}"
    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(label)}">'
    yield from _figure_axes(highest, first)
    for index, (name, one) in enumerate(zip(names, figures, strict=True)):
        yield from _policy_line(index, name, one, highest)
    yield "</svg><figcaption>" + "".join(_figure_legend(names)) + "</figcaption></figure>"


def _figure_axes(highest: int, first: ReplayFigures) -> Iterator[str]:
    for tokens in _axis_ticks(highest):
        y = _y_of_tokens(tokens, highest)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_format_thousands(tokens)}</text>'
    if first.window <= highest:
        y = _y_of_tokens(first.window, highest)
        yield f'<line class="window" x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{WIDTH - 8}" y="{y - 4:.1f}" text-anchor="end">window</text>'
    yield f'<text x="{LEFT}" y="{HEIGHT - 8}">step 1</text>'
    yield f'<text x="{WIDTH - 8}" y="{HEIGHT - 8}" text-anchor="end">step {len(first.steps)}</text>'


def _policy_line(index: int, name: str, one: ReplayFigures, highest: int) -> Iterator[str]:
    colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
    count = len(one.steps)
    points = " ".join(
        f"{_x_of_step(at, count):.1f},{_y_of_tokens(tokens, highest):.1f}" for at, tokens in _thin_steps(one.steps)
    )
    yield (
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dash}" points="{points}">'
        f"<title>{escape(name)}</title></polyline>"
    )
    for at, kind in plotted_folds(one):
        y = _y_of_tokens(one.steps[at], highest)
        said = f"{name}: {kind} before step {at + 1}"
        yield f'<circle cx="{_x_of_step(at, count):.1f}" cy="{y:.1f}" r="2.4" fill="{colour}"><title>{escape(said)}</title></circle>'


def _figure_legend(names: Sequence[str]) -> Iterator[str]:
    for index, name in enumerate(names):
        colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
        sample = f'<line x1="0" x2="26" y1="5" y2="5" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
        yield f'<span class="key"><svg width="30" height="10" aria-hidden="true">{sample}</svg>{escape(name)}</span>'


def _thin_steps(steps: Sequence[int]) -> Iterator[tuple[int, int]]:
    stride = max(1, -(-len(steps) // POINTS))
    for start in range(0, len(steps), stride):
        at = max(range(start, min(start + stride, len(steps))), key=steps.__getitem__)
        yield at, steps[at]


def _axis_ticks(highest: int) -> Iterator[int]:
    step = 1
    while highest / step > 5:
        step *= 5 if str(step).startswith("1") else 2
    yield from range(0, highest + 1, step)


def _format_thousands(tokens: int) -> str:
    return f"{tokens / 1000:g}K" if tokens >= 1000 else str(tokens)


def _x_of_step(at: int, count: int) -> float:
    return LEFT + (WIDTH - 8 - LEFT) * at / max(1, count - 1)


def _y_of_tokens(tokens: int, highest: int) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - tokens / highest)
