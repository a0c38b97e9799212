"""What the requests that were sent would have cost with another model.

The requests and the replies are those that were recorded, with what the provider counted. Only the
prices are of the other model: nobody knows how many steps it would have taken.
"""

from collections.abc import Sequence
from dataclasses import replace

from helix_desktop.engine.context_usage import compute_cost
from helix_desktop.engine.facts import ModelReplied, ModelRole, ModelSet, Recorded, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.model_setup_port import ModelChoice
from helix_desktop.gui.translation import format_count, tr


@dataclass(frozen=True, slots=True)
class SentRequests:
    """The requests of some conversations: what was counted for each, and the longest one.
    `windows`: the context windows in which they were sent, if those are known, the first one first.
    `is_window_known`: nobody had to assume how large the window of the next request is.
    """

    usages: tuple[Usage, ...] = ()
    windows: tuple[int, ...] = ()
    is_window_known: bool = True

    @property
    def longest(self) -> int:
        lengths = [usage.input for usage in self.usages]
        return max(lengths, default=0)


def collect_sent_requests(histories: Sequence[Sequence[Recorded]]) -> SentRequests:
    usages: list[Usage] = []
    windows: list[int] = []
    is_window_known = True
    for history in histories:
        window = 0
        for recorded in history:
            fact = recorded.fact
            if isinstance(fact, ModelSet) and fact.role is ModelRole.MAIN:
                window = fact.window
            if not isinstance(fact, ModelReplied) or not fact.usage.input:
                continue
            usages.append(fact.usage)
            if window and window not in windows:
                windows.append(window)
        if window <= 0:
            is_window_known = False
    return SentRequests(tuple(usages), tuple(windows), is_window_known)


def cost_with_model(requests: SentRequests, model: ModelChoice) -> float:
    """Returns what these requests would have cost, in dollars; 0 if the model has no price."""
    prices = ModelSet(
        ModelRole.MAIN,
        model.name,
        model.window,
        price_input=model.price_input,
        price_output=model.price_output,
        price_cache_read=model.price_cache_read,
        price_cache_write=model.price_cache_write,
    )
    dollars = 0.0
    for usage in requests.usages:
        # What was really paid is left out, so that the other model's prices count.
        dollars += compute_cost(replace(usage, cost=0.0), prices)
    return dollars


def describe_cost_with_model(requests: SentRequests, model: ModelChoice, paid: float) -> str:
    """Says what the same requests would have cost, beside what was `paid`."""
    if not requests.usages:
        return tr("No request was counted here yet.")
    if model.window and requests.longest > model.window:
        return tr(
            "The longest request had {tokens} tokens, and {model} takes {window}. It would have had to be shortened more.",
            tokens=format_token_count(requests.longest),
            model=model.id,
            window=format_token_count(model.window),
        )
    count = format_count(len(requests.usages), "The same request", "The same {n} requests")
    if model.local:
        return tr("{requests} would have been free, as {model} runs on this computer.", requests=count, model=model.id)  # fmt: skip
    cost = cost_with_model(requests, model)
    if not cost:
        return tr("No price is known for {model}.", model=model.id)
    words = tr("{requests} would have cost {cost} with {model}", requests=count, cost=format_dollars(cost), model=model.id)  # fmt: skip
    if paid:
        words += tr(", instead of {paid}", paid=format_dollars(paid))
    return words + tr(". It might have taken more or fewer steps.")
