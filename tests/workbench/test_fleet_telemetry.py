"""What an OpenTelemetry collector gets from a worker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from helix_desktop.store.fleet_notes import FleetState
from helix_desktop.store.fleet_tasks import FleetTaskCounts, FleetTaskOrder, NewFleetTask
from helix_desktop.workbench.fleet_telemetry import ENDPOINT, FleetTelemetry, start_telemetry
from helix_desktop.workbench.fleet_traces import TraceEvent, TraceSpan
from tests.peers.chat_server import reply
from tests.workbench.conftest import Desks
from tests.workbench.test_fleet_worker import CALL, place, worker_of


def values_of(reader: InMemoryMetricReader) -> dict[str, float]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }


async def test_a_worker_sends_a_span_for_each_run_and_the_counts_of_its_tasks(
    desks: Desks, folder: Path
) -> None:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    telemetry = FleetTelemetry("tasks", SimpleSpanProcessor(exporter), reader)
    async with place(desks, folder, CALL, reply("It is made.")) as (bench, tasks, _):
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("write"))])
        worker = worker_of(bench, tasks)
        worker.telemetry = telemetry
        await asyncio.wait_for(worker.work_until_drained(until_empty=True), 60)
        spans = {span.name: span for span in exporter.get_finished_spans()}
        assert set(spans) == {"invoke_agent", "chat", "execute_tool"}
        run, call = spans["invoke_agent"], spans["execute_tool"]
        assert run.attributes is not None
        assert run.attributes["gen_ai.conversation.id"] == task
        assert run.context is not None
        assert call.parent is not None
        assert call.parent.span_id == run.context.span_id
        assert call.attributes is not None
        assert call.attributes["gen_ai.tool.name"] == "write_file"
        assert run.status.is_ok or run.status.is_unset


def test_gauges_show_the_counts_that_were_noted_last() -> None:
    reader = InMemoryMetricReader()
    telemetry = FleetTelemetry("tasks", SimpleSpanProcessor(InMemorySpanExporter()), reader)
    assert reader.get_metrics_data() is None
    names = ("waiting", "running", "needs-you", "dead-letter", "done", "failed", "cancelled")
    counts = FleetTaskCounts({name: 3 + at for at, name in enumerate(names)}, {"a": 4}, 1.5, 9)
    state = FleetState(workers={"a": False, "b": True})
    telemetry.note_counts(counts, state, {"helix.tasks.oldest_waiting": 60.0})
    assert values_of(reader) == {
        "helix.tasks.waiting": 3,
        "helix.tasks.running": 4,
        "helix.tasks.needs_you": 5,
        "helix.tasks.dead_letters": 6,
        "helix.tasks.done": 7,
        "helix.tasks.failed": 8,
        "helix.tasks.oldest_waiting": 60.0,
        "helix.spending": 1.5,
        "helix.workers": 2,
    }


def test_without_a_collector_nothing_is_sent_and_the_library_is_not_imported() -> None:
    assert start_telemetry("tasks", {}) is None
    program = (
        "import sys; from helix_desktop.workbench import fleet_telemetry;"
        "assert fleet_telemetry.start_telemetry('tasks', {}) is None;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_with_a_collector_in_the_environment_it_is_sent_there() -> None:
    telemetry = start_telemetry("tasks", {ENDPOINT: "http://127.0.0.1:9"})
    assert telemetry is not None
    telemetry.close()


def test_a_span_is_sent_with_its_times_events_children_and_failure() -> None:
    exporter = InMemorySpanExporter()
    telemetry = FleetTelemetry("tasks", SimpleSpanProcessor(exporter), InMemoryMetricReader())
    event = TraceEvent("shortened", 11.5, {"tokens": 7})
    child = TraceSpan("chat", 11.0, 12.0, {"model": "m"}, events=(event,))
    telemetry.send_span(
        TraceSpan("run", 10.0, 20.25, {"task": "t"}, "It failed.", children=(child,))
    )
    sent_child, sent = exporter.get_finished_spans()
    assert (sent.name, sent.start_time, sent.end_time) == ("run", 10 * 10**9, 20_250_000_000)
    assert dict(sent.attributes or {}) == {"task": "t"}
    assert (sent.status.is_ok, sent.status.description) == (False, "It failed.")
    assert sent.parent is None
    assert sent_child.parent is not None
    assert sent.context is not None
    assert sent_child.parent.span_id == sent.context.span_id
    assert (sent_child.start_time, sent_child.end_time) == (11 * 10**9, 12 * 10**9)
    assert sent_child.status.is_unset
    (sent_event,) = sent_child.events
    assert (sent_event.name, sent_event.timestamp) == ("shortened", 11_500_000_000)
    assert dict(sent_event.attributes or {}) == {"tokens": 7}
