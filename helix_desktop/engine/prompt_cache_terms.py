"""Knows on what terms providers cache prompts, and learns how long where they do not say.

A decision to fold weighs what the provider's cache costs: what writing to it costs, how
long it keeps what was sent, and from which size on. Claude Code asks for an hour at
twice the input price; a rule for five minutes folded before pauses that would have cost
nothing. What an agent asked for is seen in what its provider charges (`Usage`).
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

from helix_desktop.engine import facts
from helix_desktop.engine.fold_economics import RelativePrices, relative_prices
from helix_desktop.engine.state.moment import Moment
from helix_desktop.fast_dataclass import dataclass

USUAL_SECONDS = 300.0  # Assumed of a provider of which nothing is known.
HOUR_SECONDS = 3_600.0
LOOK_BACK_BLOCKS = 20  # How far before a mark a cached beginning is found, where that counts.
LEARNED_FROM_STEPS = 200  # Pauses before so many of the last steps say how long a cache lasts.
READ_SHARE = 0.5  # A request that reads this share of the one before has found it in the cache.
LOST_SHARE = 0.1  # One that reads less than this share has not.
WRITING_STEPS = 50  # In so many of the last steps, one that wrote to the cache is looked for.


@dataclass(frozen=True, slots=True)
class CacheTerms:
    """How a provider caches the prompts of some models. `write`: the price of a written token,
    as a share of the input price. `seconds`: how long it is kept after its last use.
    `is_exact`: it is dropped then; otherwise it is kept at least so long.
    `look_back_blocks`: how far before a mark a cached beginning is found; 0: marks are not needed.
    """

    models: re.Pattern[str]
    write: float
    seconds: float
    least_tokens: int
    look_back_blocks: int = 0
    is_exact: bool = False
    source: str = ""
    as_of: str = "2026-11-26"


ANTHROPIC = "platform.claude.com/docs/en/build-with-claude/prompt-caching"
OPENAI = "developers.openai.com/api/docs/guides/prompt-caching"
GOOGLE = "ai.google.dev/gemini-api/docs/caching"
DEEPSEEK = "api-docs.deepseek.com/guides/kv_cache"


def _anthropic_terms(models: str, least_tokens: int) -> CacheTerms:
    """Return the usual terms, of five minutes. `for_an_hour` makes those of an hour of them."""
    return CacheTerms(
        models=re.compile(models),
        write=1.25,
        seconds=300.0,
        least_tokens=least_tokens,
        look_back_blocks=LOOK_BACK_BLOCKS,
        is_exact=True,
        source=ANTHROPIC,
    )


# The first row that matches a model's name, without its provider, holds.
CACHE_TERMS = (
    _anthropic_terms(r"claude-(?:3-haiku|3-5-haiku|haiku-3|sonnet-4-6)", 2_048),
    _anthropic_terms(r"claude-(?:3-|opus-4(?:-1|-2\d|$)|opus-4$|sonnet-4(?:-5|-2\d|$))", 1_024),
    _anthropic_terms(r"claude-", 4_096),
    # From GPT-5.5 on, a day is the default, and nothing else can be chosen.
    CacheTerms(re.compile(r"gpt-(?:5\.[5-9]|[6-9])"), 1.0, 86_400.0, 1_024, source=OPENAI),
    # Five to ten minutes, and up to an hour where there is room.
    CacheTerms(re.compile(r"gpt-|o\d|codex|chatgpt-"), 1.0, 300.0, 1_024, source=OPENAI),
    CacheTerms(re.compile(r"gemini-"), 1.0, 300.0, 2_048, source=GOOGLE),
    CacheTerms(re.compile(r"deepseek-"), 1.0, 3_600.0, 64, source=DEEPSEEK),
)
# Amazon Bedrock's names begin with the maker, and before that with a region: `eu.anthropic.`
_BEDROCK_PREFIX = re.compile(r"^(?:[a-z-]+\.)?anthropic\.")
# No provider keeps a cache for longer.
LONGEST_SECONDS = 86_400.0
# All providers cache the beginning of a request that has so many tokens.
UNKNOWN_TERMS = CacheTerms(re.compile(""), 1.0, USUAL_SECONDS, 4_096)


def cache_terms_of_model(model: str, *, for_an_hour: bool = False) -> CacheTerms:
    """Return the terms of a model, also by the name that a provider in between gives it."""
    name = _BEDROCK_PREFIX.sub("", model.rpartition("/")[2].lower())
    terms = _documented_terms(name)
    if for_an_hour:
        return replace(terms, write=facts.HOUR_WRITE_PRICE, seconds=HOUR_SECONDS, is_exact=True)
    return terms


def _documented_terms(model_name: str) -> CacheTerms:
    for terms in CACHE_TERMS:
        if terms.models.match(model_name):
            return terms
    return UNKNOWN_TERMS


def is_cached_for_an_hour(state: Moment) -> bool:
    """Whether the main model's last request that wrote to the cache asked for an hour."""
    for reply in _last_replies(state, WRITING_STEPS):
        if reply.usage.cache_write:
            return reply.usage.is_cached_for_an_hour
    # Until a provider has charged something, only the agent's request says for how long it
    # is cached. Where writing costs nothing more, an hour has no price of its own.
    chosen = _main_model(state)
    if chosen is None or chosen.cache_seconds < HOUR_SECONDS:
        return False
    return cache_terms_of_model(chosen.model).is_exact


def prices_of_main_model(state: Moment) -> RelativePrices:
    """Return the main model's prices as its requests pay them."""
    prices = relative_prices(_main_model(state))
    if not is_cached_for_an_hour(state):
        return prices
    return replace(prices, write=max(prices.write * facts.HOUR_WRITE, facts.HOUR_WRITE_PRICE))


def cache_lifetime_seconds(state: Moment) -> float:
    """Return how many seconds the provider keeps what the last request sent."""
    if is_cached_for_an_hour(state):
        return HOUR_SECONDS
    chosen = _main_model(state)
    if chosen is None:
        return _learn_lifetime(state, UNKNOWN_TERMS.seconds)
    terms = cache_terms_of_model(chosen.model)
    documented = terms.seconds
    if chosen.cache_seconds:
        documented = float(chosen.cache_seconds)
    if terms.is_exact:
        return documented
    return _learn_lifetime(state, documented)


def _learn_lifetime(state: Moment, assumed: float) -> float:
    """Return how long the provider seems to keep what it was sent, by the pauses so far.

    A pause after which the cache was still read shows that it lasts at least as long, and one
    after which it was not that it lasts less.
    """
    longest_outlived = 0.0
    pauses_that_ended_it: list[float] = []
    for earlier, later in itertools.pairwise(_last_steps(state, LEARNED_FROM_STEPS)):
        pause = _time_of_request(later) - earlier.time
        share_read = _share_read_from_cache(earlier, later)
        if pause > LONGEST_SECONDS:
            continue  # The computer's clock was set meanwhile, or nothing is there any more.
        if share_read >= READ_SHARE:
            longest_outlived = max(longest_outlived, pause)
        elif share_read < LOST_SHARE and not _was_changed_between(state, earlier.seq, later.seq):
            pauses_that_ended_it.append(pause)
    lifetime = max(assumed, longest_outlived)
    for pause in pauses_that_ended_it:
        # A miss after a pause that the cache outlives at other times has another reason.
        if pause > longest_outlived:
            lifetime = min(lifetime, pause)
    return lifetime


def _main_model(state: Moment) -> facts.ModelSet | None:
    return state.settings.model_for_role(facts.ModelRole.MAIN)


def _last_steps(state: Moment, count: int) -> Iterator[facts.Recorded]:
    """Yield the last steps with a reported usage, oldest first."""
    recorded_facts = state.record.facts
    for seq in state.branch.steps[-count:]:
        fact = recorded_facts[seq - 1].fact
        if isinstance(fact, facts.ModelReplied) and fact.usage.input:
            yield recorded_facts[seq - 1]


def _last_replies(state: Moment, count: int) -> Iterator[facts.ModelReplied]:
    """Yield the last steps' replies, newest first."""
    recorded_facts = state.record.facts
    for seq in reversed(state.branch.steps[-count:]):
        fact = recorded_facts[seq - 1].fact
        if isinstance(fact, facts.ModelReplied):
            yield fact


def _time_of_request(step: facts.Recorded) -> float:
    """Return when a step's request was sent. The reply was recorded when it was complete."""
    if not isinstance(step.fact, facts.ModelReplied):
        return step.time
    return step.time - step.fact.seconds


def _share_read_from_cache(earlier_step: facts.Recorded, later_step: facts.Recorded) -> float:
    """Return which share of the earlier step's request the later one read from the cache."""
    earlier = earlier_step.fact
    later = later_step.fact
    if not isinstance(earlier, facts.ModelReplied) or not isinstance(later, facts.ModelReplied):
        return 1.0
    if earlier.model != later.model:
        return LOST_SHARE  # Another model has a cache of its own: this says nothing.
    return later.usage.cache_read / earlier.usage.input


_CHANGES_WHAT_WAS_SENT = (
    facts.Folded, facts.Unfolded, facts.Refolded, facts.Rewound, facts.DocumentEdited,
    facts.SystemSet, facts.ToolsOffered, facts.RulesSet, facts.ModelSet,
)  # fmt: skip


def _was_changed_between(state: Moment, earlier_seq: int, later_seq: int) -> bool:
    """Whether what was sent before has changed, so that a cache could not be read anyway."""
    # Facts count from 1, so this begins behind the earlier one and ends before the later one.
    facts_between = state.record.facts[earlier_seq : later_seq - 1]
    return any(isinstance(recorded.fact, _CHANGES_WHAT_WAS_SENT) for recorded in facts_between)
