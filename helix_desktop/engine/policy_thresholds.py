"""Declares every threshold of a policy once: what it means, its values and its range.

`layered` is the default preset. Another preset is named where its value differs.
The settings, `--set`, the checks and the help are made from these declarations.
"""

from collections.abc import Mapping
from dataclasses import field

from helix_desktop.fast_dataclass import dataclass

Value = float | int | str | bool


@dataclass(frozen=True, slots=True)
class Threshold:
    """One declared value. `default`: in the default preset. `others`: in the presets that differ."""

    name: str
    group: str
    title: str
    sentence: str
    default: Value
    others: Mapping[str, Value] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    low: float = 0
    high: float = 0
    unit: str = ""

    @property
    def value_type(self) -> type:
        """Return bool, int, float or str."""
        return type(self.default)

    def value_in_preset(self, preset: str) -> Value:
        return self.others.get(preset, self.default)

    def describe_allowed_values(self) -> str:
        """Return what may be set, to complete the sentence "expected …"."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.value_type is bool:
            return "true or false"
        if self.value_type is int:
            number = "a whole number"
        else:
            number = "a number"
        return f"{number} from {self.low:g} to {self.high:g} {self.unit}".rstrip()


THRESHOLDS = (
    Threshold(
        name="admission",
        group="Large outputs",
        title="When a large output arrives",
        sentence=(
            "How to handle a large output: keep all of it, ask the agent which parts it needs, "
            "have the agent name these parts in advance, or show the agent an excerpt."
        ),
        default="ahead",
        others={"helix": "off", "observational": "ask", "none": "off"},
        choices=("off", "ask", "ahead", "auto"),
    ),
    Threshold(
        name="admission_tokens",
        group="Large outputs",
        title="Shorten outputs longer than",
        sentence="Outputs longer than this are shortened as soon as they arrive.",
        default=4000,
        low=500,
        high=200000,
        unit="tokens",
    ),
    Threshold(
        name="admission_command_tokens",
        group="Large outputs",
        title="Shorten command outputs longer than",
        sentence=(
            "Command outputs longer than this are shortened as soon as they arrive. In a log, "
            "the beginning, the end and the errors usually matter most."
        ),
        default=2000,
        others={"helix": 4000, "observational": 4000, "none": 4000},
        low=500,
        high=200000,
        unit="tokens",
    ),
    Threshold(
        name="admission_batch_tokens",
        group="Large outputs",
        title="Shorten outputs of parallel calls that total more than",
        sentence=(
            "If the outputs of parallel tool calls add up to more than this, the longest "
            "outputs are shortened."
        ),
        default=12000,
        low=1000,
        high=500000,
        unit="tokens",
    ),
    Threshold(
        name="admission_wait",
        group="Large outputs",
        title="Wait for outputs to be shortened",
        sentence=(
            "How long to wait for the agent to shorten outputs before using excerpts instead."
        ),
        default=10.0,
        low=0,
        high=120,
        unit="seconds",
    ),
    Threshold(
        name="preview_tokens",
        group="Large outputs",
        title="Length of an excerpt",
        sentence="Approximate length of the excerpt that replaces a large output.",
        default=500,
        low=100,
        high=4000,
        unit="tokens",
    ),
    Threshold(
        name="oversized_share",
        group="Large outputs",
        title="Shorten messages larger than",
        sentence=(
            "Messages and attachments larger than this share of the context window are stored "
            "in full, but only an excerpt is sent."
        ),
        default=0.25,
        others={"none": 1.0},
        low=0.05,
        high=1,
    ),
    Threshold(
        name="caching",
        group="Old outputs",
        title="Replace old outputs with one-line markers",
        sentence=(
            "When old outputs are replaced with one-line markers: never, after a number of "
            "steps, or when this saves money."
        ),
        default="pays",
        others={"helix": "steps", "observational": "off", "keeps_most": "off", "none": "off"},
        choices=("off", "steps", "pays"),
    ),
    Threshold(
        name="caching_steps",
        group="Old outputs",
        title="Steps before an output is replaced with a marker",
        sentence=("The number of steps after which an output is replaced with a one-line marker."),
        default=10,
        low=1,
        high=1000,
        unit="steps",
    ),
    Threshold(
        name="caching_tokens",
        group="Old outputs",
        title="Shortest tool output to replace",
        sentence="Tool outputs shorter than this are never replaced with markers.",
        default=500,
        low=100,
        high=100000,
        unit="tokens",
    ),
    Threshold(
        name="caching_least",
        group="Old outputs",
        title="Minimum tokens freed by replacing outputs",
        sentence=(
            "To save money, old outputs are replaced only if this frees at least this many "
            "tokens, or an eighth of the context window, whichever is less."
        ),
        default=4000,
        low=0,
        high=200000,
        unit="tokens",
    ),
    Threshold(
        name="caching_cold_share",
        group="Old outputs",
        title="After a pause, free at least this share of the context",
        sentence=(
            "After a pause that is long enough for the provider's cache to expire, old outputs "
            "are replaced if at least this share of the context would be freed."
        ),
        default=0.3333333333333333,
        low=0.01,
        high=1,
    ),
    Threshold(
        name="arguments",
        group="Old outputs",
        title="Also replace long arguments of old tool calls",
        sentence="Long arguments of old tool calls are also replaced with one-line markers.",
        default=False,
    ),
    Threshold(
        name="argument_tokens",
        group="Old outputs",
        title="Shortest tool-call argument to replace",
        sentence="In old tool calls, arguments shorter than this are kept in full.",
        default=1000,
        low=200,
        high=100000,
        unit="tokens",
    ),
    Threshold(
        name="observation",
        group="Observations",
        title="Condense older messages into observations",
        sentence="A long history is condensed into a dated list of observations.",
        default=False,
        others={"observational": True},
    ),
    Threshold(
        name="observation_share",
        group="Observations",
        title="Share of the context window at which older messages are condensed",
        sentence=(
            "If older messages take up more than this share of the context window at the end of "
            "a turn, they are condensed into dated observations."
        ),
        default=0.3,
        low=0.02,
        high=0.9,
    ),
    Threshold(
        name="reflection_share",
        group="Observations",
        title="Share of the context window at which observations are merged",
        sentence=(
            "If observations take up more than this share of the context window, they are "
            "merged into a shorter list, called a reflection."
        ),
        default=0.5,
        low=0.02,
        high=0.9,
    ),
    Threshold(
        name="handover",
        group="Handover",
        title="Write handover documents",
        sentence=(
            "When a handover document replaces older messages: never, only when the next "
            "request wouldn't fit, when a set share of the context window is used, or when this "
            "saves money."
        ),
        default="pays",
        others={"helix": "share", "observational": "panic", "none": "off"},
        choices=("off", "panic", "share", "pays"),
    ),
    Threshold(
        name="handover_share",
        group="Handover",
        title="Always write a handover document at",
        sentence=(
            "When the model's context window is this full, a handover document always replaces "
            "older messages."
        ),
        default=0.85,
        low=0.1,
        high=0.98,
    ),
    Threshold(
        name="handover_floor_tokens",
        group="Handover",
        title="Minimum context for a handover document (tokens)",
        sentence=(
            "To save money, a handover document is written only if the conversation is longer "
            "than this many tokens or the share of the context window that is set below, "
            "whichever is smaller."
        ),
        default=38400,
        others={"keeps_most": 1000000},
        low=0,
        high=1000000,
        unit="tokens",
    ),
    Threshold(
        name="handover_floor_share",
        group="Handover",
        title="Minimum context for a handover document (share of the context window)",
        sentence=(
            "To save money, a handover document is written only if the conversation is longer "
            "than this share of the model's context window or the number of tokens that is set "
            "above, whichever is smaller."
        ),
        default=0.3,
        others={"keeps_most": 0.55},
        low=0,
        high=1,
    ),
    Threshold(
        name="handover_facts",
        group="Handover",
        title="Minimum number of records to replace with a handover document",
        sentence=(
            "A handover document is written only if it replaces at least this many records, "
            "such as messages and outputs."
        ),
        default=6,
        low=1,
        high=1000,
        unit="records",
    ),
    Threshold(
        name="handover_cooldown",
        group="Handover",
        title="Time between handover documents",
        sentence="Minimum time between two handover documents.",
        default=60.0,
        low=0,
        high=86400,
        unit="seconds",
    ),
    Threshold(
        name="handover_writer",
        group="Handover",
        title="Model that writes handover documents",
        sentence=(
            "Which model writes handover documents: the main model, the fast model, or "
            "whichever is cheaper."
        ),
        default="cheapest",
        choices=("cheapest", "main", "fast"),
    ),
    Threshold(
        name="critical_tokens",
        group="Handover",
        title="Space for details in a handover document",
        sentence=("Space in a handover document for important details that the model left out."),
        default=1500,
        low=200,
        high=20000,
        unit="tokens",
    ),
    Threshold(
        name="keep_alive_dollars",
        group="Pauses",
        title="Keep the provider's cache alive during a pause",
        sentence=(
            "The maximum cost of keeping the context in the provider's cache during one pause "
            "between messages. The cache is kept alive only while this is likely to cost less "
            "than sending the whole context again. 0 means that the cache is not kept alive."
        ),
        default=0.0,
        low=0,
        high=100,
        unit="dollars",
    ),
    Threshold(
        name="tools_share",
        group="Tools",
        title="Use tool search when tools exceed",
        sentence=(
            "If MCP tools would take up more than this share of the context window, the agent "
            "searches for tools instead."
        ),
        default=0.08,
        low=0,
        high=1,
    ),
    Threshold(
        name="catalogue_tokens",
        group="Tools",
        title="Space reserved for tool lists",
        sentence=(
            "Space in each request for listing servers, skills and agents. The agent can search "
            "for those that are not listed."
        ),
        default=2000,
        low=0,
        high=50000,
        unit="tokens",
    ),
    Threshold(
        name="truncation",
        group="Safety",
        title="Cut off history as a last resort",
        sentence=(
            "If everything else fails, old history is replaced with its important details and "
            "hashes. No model is used."
        ),
        default=True,
        others={"none": False},
    ),
    Threshold(
        name="tail_steps",
        group="Safety",
        title="Recent steps to leave unfolded",
        sentence="In a running turn, this many recent steps are never folded.",
        default=4,
        others={"helix": 8, "observational": 8, "keeps_most": 8, "none": 8},
        low=1,
        high=200,
        unit="steps",
    ),
    Threshold(
        name="progress",
        group="Safety",
        title="Minimum reduction per fold",
        sentence="A fold must shorten the text it replaces by at least this share.",
        default=0.1,
        low=0,
        high=0.9,
    ),
    Threshold(
        name="failures",
        group="Safety",
        title="Failures in a row before a folding strategy is turned off",
        sentence=(
            "After this many failures in a row, a folding strategy is turned off until you turn "
            "it back on."
        ),
        default=3,
        low=1,
        high=100,
    ),
    Threshold(
        name="summary_wait",
        group="Safety",
        title="Time limit for a summary",
        sentence=(
            "How long a model that writes a summary may go without a word before another model is "
            "tried."
        ),
        default=180.0,
        low=0.01,
        high=3600,
        unit="seconds",
    ),
    Threshold(
        name="panic_wait",
        group="Safety",
        title="Time limit for a summary when the context window is full",
        sentence=(
            "How long to wait without a word of a summary before continuing without one, if the "
            "next request wouldn't fit in the context window."
        ),
        default=60.0,
        low=0,
        high=3600,
        unit="seconds",
    ),
    Threshold(
        name="panic_silence",
        group="Safety",
        title="Time limit for a model that doesn't respond",
        sentence=(
            "If the model that writes a summary doesn't respond for this long, Helix Desktop "
            "stops waiting for it."
        ),
        default=15.0,
        low=0,
        high=3600,
        unit="seconds",
    ),
    Threshold(
        name="window",
        group="Safety",
        title="Default size of a model's context window",
        sentence=("The size to assume if a model does not report the size of its context window."),
        default=128000,
        low=2000,
        high=100000000,
        unit="tokens",
    ),
    Threshold(
        name="reserve_reply",
        group="Safety",
        title="Space for the reply",
        sentence=("Space reserved for the reply, up to a tenth of the model's context window."),
        default=8000,
        low=0,
        high=1000000,
        unit="tokens",
    ),
    Threshold(
        name="reserve_summary",
        group="Safety",
        title="Space for a summary",
        sentence="Space reserved for a summary, up to a twentieth of the context window.",
        default=3000,
        low=0,
        high=100000,
        unit="tokens",
    ),
)
