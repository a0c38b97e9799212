"""The alerts for Prometheus: it can read them, they fire when they should, and they ask for
figures that workers send.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from helix_desktop.resources import resources_folder
from helix_desktop.store.fleet_notes import FleetState
from helix_desktop.store.fleet_tasks import FleetTaskCounts, FleetTaskState
from helix_desktop.workbench.fleet_telemetry import FleetTelemetry

RULES = resources_folder() / "monitoring" / "fleet_alerts.yaml"

TRIES = 5  # Debian's promtool itself crashes now and then, with a nil pointer of its own.


def run_promtool(*arguments: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    for _ in range(TRIES):
        done = subprocess.run(
            [promtool, *arguments], check=False, capture_output=True, text=True, timeout=60
        )
        if "panic: runtime error" not in done.stdout + done.stderr:
            break
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_reads_the_alerts() -> None:
    run_promtool("check", "rules", str(RULES))


def test_each_alert_fires_when_it_should(tmp_path: Path) -> None:
    trial = Path(__file__).with_name("fleet_alerts_test.yaml").read_text("utf-8")
    (tmp_path / "test.yaml").write_text(trial.replace("RULES", str(RULES)), "utf-8")
    run_promtool("test", "rules", str(tmp_path / "test.yaml"))


def test_the_alerts_ask_for_figures_that_workers_send_and_of_each_workspace() -> None:
    reader = InMemoryMetricReader()
    telemetry = FleetTelemetry("W", SimpleSpanProcessor(InMemorySpanExporter()), reader)
    by_state = dict.fromkeys((state.value for state in FleetTaskState), 1)
    names = ("helix.tasks.oldest_waiting", "helix.tasks.setbacks", "helix.facts.unsent")
    more = dict.fromkeys(names, 1.0)
    telemetry.note_counts(FleetTaskCounts(by_state, {}, 1.0, 1), FleetState(), more)
    data = reader.get_metrics_data()
    assert isinstance(data, MetricsData)
    sent = set()
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        (point,) = metric.data.data_points
        assert dict(point.attributes or {}) == {"workspace": "W"}
        sent.add(name_in_prometheus(metric.name, metric.unit))
    telemetry.close()
    asked = set(re.findall(r"(?<![:\w])helix_\w+", RULES.read_text("utf-8")))
    assert asked
    assert asked <= sent


def name_in_prometheus(name: str, unit: str | None) -> str:
    """As Prometheus and the OpenTelemetry collector translate it. Units in braces are left out."""
    plain = name.replace(".", "_")
    units = {"s": "_seconds", "USD": "_USD"}
    return plain + units.get(unit or "", "")
