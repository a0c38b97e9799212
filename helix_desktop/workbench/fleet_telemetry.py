"""Sends what a worker does to an OpenTelemetry collector, if the operator wants that.

It is wanted where OTEL_EXPORTER_OTLP_ENDPOINT is set, as for other programs. The
packages are an extra (`pip install 'helix-desktop[telemetry]'`), and are imported only
then. `fleet status` shows the same figures without any of this.
"""

import logging
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from helix_desktop.errors import NotFound
from helix_desktop.store.fleet_notes import FleetState
from helix_desktop.store.fleet_tasks import FleetTaskCounts
from helix_desktop.workbench.fleet_traces import TraceSpan

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace import SpanProcessor

log = logging.getLogger(__name__)
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_NANOSECONDS = 1_000_000_000


class FleetTelemetry:
    """Spans of runs, and gauges of a workspace's tasks as they were counted last."""

    def __init__(self, workspace: str, processor: "SpanProcessor", reader: "MetricReader") -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        about = {
            "service.name": "helix-desktop",
            # Otherwise the figures of several workers are one series, which jumps between them.
            "service.instance.id": secrets.token_hex(6),
            "helix.workspace": workspace,
        }
        self._workspace = workspace
        resource = Resource.create(about)
        self._traces = TracerProvider(resource=resource)
        self._traces.add_span_processor(processor)
        self._tracer = self._traces.get_tracer("helix_desktop")
        self._metrics = MeterProvider([reader], resource=resource)
        self._amounts: dict[str, float] = {}
        self._describe_gauges()

    def _describe_gauges(self) -> None:
        meter = self._metrics.get_meter("helix_desktop")
        for name, unit, description in (
            ("helix.tasks.waiting", "{task}", "Tasks that wait for a worker or for other tasks"),
            ("helix.tasks.running", "{task}", "Tasks that a worker has"),
            ("helix.tasks.needs_you", "{task}", "Tasks that wait for a person's permission"),
            ("helix.tasks.dead_letters", "{task}", "Tasks that were given back too often"),
            ("helix.tasks.failed", "{task}", "Tasks in the history that failed"),
            ("helix.tasks.done", "{task}", "Tasks in the history that are done"),
            ("helix.tasks.oldest_waiting", "s", "How long the oldest waiting task has waited"),
            ("helix.tasks.setbacks", "{setback}", "How often this worker gave a task back"),
            ("helix.facts.unsent", "{fact}", "Facts that only this worker's computer has"),
            ("helix.spending", "USD", "What all tasks have cost"),
            ("helix.workers", "{worker}", "Workers that are alive"),
        ):
            observe = self._observer_of(name)
            meter.create_observable_gauge(name, [observe], unit, description)

    def _observer_of(self, name: str) -> "Callable[[CallbackOptions], Iterable[Observation]]":
        from opentelemetry.metrics import Observation

        def observe(_options: "CallbackOptions") -> "Iterable[Observation]":
            amount = self._amounts.get(name)
            if amount is None:
                return []
            return [Observation(amount, {"workspace": self._workspace})]

        return observe

    def note_counts(
        self, counts: FleetTaskCounts, state: FleetState, more: Mapping[str, float]
    ) -> None:
        """Keep the figures for the next export. `more`: by the gauge's name."""
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
            **more,
        }

    def send_span(self, span: TraceSpan) -> None:
        """Hand over a run's span with its children; a thread of the library sends them."""
        self._send_with_children(span, None)

    def _send_with_children(self, span: TraceSpan, parent: object) -> None:
        from opentelemetry import trace
        from opentelemetry.trace import Status, StatusCode

        within = trace.set_span_in_context(parent) if isinstance(parent, trace.Span) else None
        sent = self._tracer.start_span(
            span.name,
            within,
            attributes=dict(span.attributes),
            start_time=round(span.begin * _NANOSECONDS),
        )
        for event in span.events:
            when = round(event.time * _NANOSECONDS)
            sent.add_event(event.name, dict(event.attributes), when)
        for child in span.children:
            self._send_with_children(child, sent)
        if span.error:
            sent.set_status(Status(StatusCode.ERROR, span.error))
        sent.end(round(span.end * _NANOSECONDS))

    def close(self) -> None:
        """Send what waits. It blocks for at most the exporter's own limit."""
        self._traces.shutdown()
        self._metrics.shutdown()


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
