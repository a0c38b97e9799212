"""Sends what a worker does to an OpenTelemetry collector, if the operator wants that.

It is wanted where OTEL_EXPORTER_OTLP_ENDPOINT is set, as for other programs. The
packages are an extra (`pip install 'helix-desktop[telemetry]'`), and are imported only
then. `fleet status` shows the counts of tasks and workers, and the costs, without any of this.
"""

import logging
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from helix_desktop.errors import NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.fleet_notes import FleetState
from helix_desktop.store.fleet_tasks import FleetTaskCounts
from helix_desktop.workbench.fleet_traces import TraceSpan

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Span

log = logging.getLogger(__name__)
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_NANOSECONDS = 1_000_000_000  # In a second.


@dataclass(frozen=True, slots=True)
class _Gauge:
    name: str
    unit: str
    description: str


_GAUGES = (
    _Gauge("helix.tasks.waiting", "{task}", "Tasks that wait for a worker or for other tasks"),
    _Gauge("helix.tasks.running", "{task}", "Tasks that a worker has"),
    _Gauge("helix.tasks.needs_you", "{task}", "Tasks that wait for a person's permission"),
    _Gauge("helix.tasks.dead_letters", "{task}", "Tasks that were given back too often"),
    _Gauge("helix.tasks.failed", "{task}", "Tasks in the history that failed"),
    _Gauge("helix.tasks.done", "{task}", "Tasks in the history that are done"),
    _Gauge("helix.tasks.oldest_waiting", "s", "How long the oldest waiting task has waited"),
    _Gauge("helix.tasks.setbacks", "{setback}", "How often this worker gave a task back"),
    _Gauge("helix.facts.unsent", "{fact}", "Facts that only this worker's computer has"),
    _Gauge("helix.spending", "USD", "What all tasks have cost"),
    _Gauge("helix.workers", "{worker}", "Workers that are alive"),
)


class FleetTelemetry:
    """Spans of runs, and gauges of a workspace's tasks as they were counted last."""

    def __init__(self, workspace: str, processor: "SpanProcessor", reader: "MetricReader") -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        description = {
            "service.name": "helix-desktop",
            # Otherwise the figures of several workers are one series, which jumps between them.
            "service.instance.id": secrets.token_hex(6),
            "helix.workspace": workspace,
        }
        self._workspace = workspace
        resource = Resource.create(description)
        self._traces = TracerProvider(resource=resource)
        self._traces.add_span_processor(processor)
        self._tracer = self._traces.get_tracer("helix_desktop")
        self._metrics = MeterProvider([reader], resource=resource)
        self._amounts: dict[str, float] = {}
        self._describe_gauges()

    def _describe_gauges(self) -> None:
        meter = self._metrics.get_meter("helix_desktop")
        for gauge in _GAUGES:
            observe = self._build_observer(gauge.name)
            meter.create_observable_gauge(gauge.name, [observe], gauge.unit, gauge.description)

    def _build_observer(self, name: str) -> "Callable[[CallbackOptions], Iterable[Observation]]":
        from opentelemetry.metrics import Observation

        def observe(_options: "CallbackOptions") -> "Iterable[Observation]":
            amount = self._amounts.get(name)
            if amount is None:
                return []
            return [Observation(amount, {"workspace": self._workspace})]

        return observe

    def note_counts(
        self, counts: FleetTaskCounts, state: FleetState, other_amounts: Mapping[str, float]
    ) -> None:
        """Keep the figures for the next export. `other_amounts`: by the gauge's name."""
        by_state = counts.by_state
        self._amounts = {
            "helix.tasks.waiting": by_state["waiting"],
            "helix.tasks.running": by_state["running"],
            "helix.tasks.needs_you": by_state["needs-you"],
            "helix.tasks.dead_letters": by_state["dead-letter"],
            "helix.tasks.failed": by_state["failed"],
            "helix.tasks.done": by_state["done"],
            "helix.spending": counts.dollars,
            "helix.workers": len(state.workers),
            **other_amounts,
        }

    def send_span(self, span: TraceSpan) -> None:
        """Hand over a run's span with its children; a thread of the library sends them."""
        self._send_with_children(span, parent=None)

    def _send_with_children(self, span: TraceSpan, *, parent: "Span | None") -> None:
        from opentelemetry import trace
        from opentelemetry.trace import Status, StatusCode

        parent_context = None
        if parent is not None:
            parent_context = trace.set_span_in_context(parent)
        open_span = self._tracer.start_span(
            span.name,
            parent_context,
            attributes=dict(span.attributes),
            start_time=_to_nanoseconds(span.begin),
        )
        for event in span.events:
            open_span.add_event(event.name, dict(event.attributes), _to_nanoseconds(event.time))
        for child in span.children:
            self._send_with_children(child, parent=open_span)
        if span.error:
            open_span.set_status(Status(StatusCode.ERROR, span.error))
        open_span.end(_to_nanoseconds(span.end))

    def close(self) -> None:
        """Send what waits. It blocks for at most the exporter's own limit."""
        self._traces.shutdown()
        self._metrics.shutdown()


def _to_nanoseconds(seconds: float) -> int:
    return round(seconds * _NANOSECONDS)


def start_telemetry(
    workspace: str, environ: Mapping[str, str] = os.environ
) -> FleetTelemetry | None:
    """Return what sends to the collector of the environment, or None without one."""
    if not environ.get(ENDPOINT):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise NotFound(
            f"{ENDPOINT} is set, but the packages of OpenTelemetry are not installed.",
            remedy="Install the extra telemetry, or unset the variable.",
        ) from error
    processor = BatchSpanProcessor(OTLPSpanExporter())
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    return FleetTelemetry(workspace, processor, reader)
