"""What operators see of a fleet: a worker sends spans and figures with OpenTelemetry, Debian's
Prometheus stores the figures and evaluates our queries and alerts, and `fleet status` says
the same.

Debian has no OpenTelemetry collector, and its Prometheus does not take OpenTelemetry's
protocol. `Collector` stands in for one: it decodes what the worker sends with OpenTelemetry's
own messages, and offers the figures under the names that a collector gives them.

python -m tests.faults.fleet_operators      needs Debian's package prometheus
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from helix_desktop.resources import resources_folder
from helix_desktop.store.shared import row_encryption
from tests.faults.fleet_kill import Home
from tests.faults.store_report import report
from tests.peers import postgres
from tests.peers.chat_server import ChatServer, refused, reply
from tests.peers.peer import Answer, Seen
from tests.peers.serving import serve_in_thread

SECRET = "heliotrope"  # In each task's words, which no collector may get.
DONE = 4
FAILED = 7  # More than 5 within an hour are an alert.
NEED_YOU = 2
PATIENCE = 60.0
ALERTS = {"HelixTasksFail": "firing", "HelixTasksNeedYou": "pending"}
UNITS = {"s": "_seconds", "USD": "_USD"}


@dataclass
class Collector:
    """Receives OTLP over HTTP, and offers the last figures to Prometheus at /metrics."""

    series: dict[str, float] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def start(self) -> ThreadingHTTPServer:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.receive(self.path, body)
                self._answer(b"")

            def do_GET(self) -> None:
                self._answer(collector.as_text().encode())

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        serve_in_thread(server, "collector")
        return server

    def receive(self, path: str, body: bytes) -> None:
        self.bodies.append(body)
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    self.spans.extend(scope.spans)
            return
        for resource_metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            attributes = {each.key: each.value for each in resource_metrics.resource.attributes}
            instance = attributes["service.instance.id"].string_value
            for scope_metrics in resource_metrics.scope_metrics:
                for metric in scope_metrics.metrics:
                    self._keep_figures(metric, instance)

    def _keep_figures(self, metric: Metric, instance: str) -> None:
        name = metric.name.replace(".", "_") + UNITS.get(metric.unit, "")
        for point in metric.gauge.data_points:
            workspace = point.attributes[0].value.string_value
            labels = f'workspace="{workspace}",instance="{instance}"'
            self.series[f"{name}{{{labels}}}"] = _amount(point)

    def as_text(self) -> str:
        return "".join(f"{name} {amount}\n" for name, amount in dict(self.series).items())


def _amount(point: NumberDataPoint) -> float:
    if point.WhichOneof("value") == "as_int":
        return point.as_int
    return point.as_double


class Prometheus:
    """Debian's Prometheus, which asks a collector each second."""

    def __init__(self, folder: Path, collector_port: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        rules = resources_folder() / "monitoring" / "fleet_alerts.yaml"
        settings = folder / "prometheus.yml"
        settings.write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: ['{rules}']\n"
            "scrape_configs:\n- job_name: collector\n  honor_labels: true\n"
            f"  static_configs: [{{targets: ['127.0.0.1:{collector_port}']}}]\n"
        )
        log = (folder / "prometheus.log").open("wb")
        command = ["prometheus", f"--config.file={settings}", f"--storage.tsdb.path={folder}/data"]
        command.append(f"--web.listen-address={self._address}")
        self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def query(self, expression: str) -> float | None:
        """Return the value of a query with one answer, or None if there is none yet."""
        answered = self._get("query", query=expression)["result"]
        if not answered:
            return None
        (series,) = answered
        return float(series["value"][1])

    def alerts(self) -> dict[str, str]:
        return {
            alert["labels"]["alertname"]: alert["state"] for alert in self._get("alerts")["alerts"]
        }

    def _get(self, what: str, **parameters: str) -> Any:
        address = f"http://{self._address}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=10) as answered:
            return json.load(answered)["data"]

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def answer(seen: Seen) -> Answer:
    told = str(seen.body["messages"])
    results = [message for message in seen.body["messages"] if message["role"] == "tool"]
    if "Fail" in told:
        return refused(400)
    if "Ask" in told:
        return reply(calls=[("run_command", {"command": "rm -r /"})])
    if results:
        return reply(f"done, {SECRET}")
    return reply(calls=[("write_file", {"path": "a.txt", "content": SECRET})])


def run_trial(found: Counter[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="helix-operators-"))
    with ExitStack() as last:
        last.callback(shutil.rmtree, folder, ignore_errors=True)
        model = last.enter_context(ChatServer(default=answer))
        collector = Collector()
        collecting = collector.start()
        last.callback(collecting.server_close)
        last.callback(collecting.shutdown)
        # Only the workspaces that computers share stay open while they have no task.
        database = postgres.Server({"fsync": "off"}).start()
        last.callback(database.remove)
        key = row_encryption.format_key_line(row_encryption.new_workspace_key())
        shared = {"HELIX_STORE": database.url, "HELIX_STORE_KEY": key}
        home = Home(folder, "a", shared, model.base_url)
        home.run("workspace", "share", "Fleet", "--yes")
        words = ["model", "set", "-w", "Fleet", "peer/scripted"]
        for price in ("--input", "--output", "--cache-read", "--cache-write"):
            words += [price, "1000"]
        home.run(*words)
        prometheus = Prometheus(folder, collecting.server_port)
        last.callback(prometheus.end)
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collecting.server_port}",
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
            "OTEL_BSP_SCHEDULE_DELAY": "500",
        }
        worker = subprocess.Popen(
            [sys.executable, "-m", "helix_desktop", "worker", "-w", "Fleet", "--allow", "edits"],
            env={**os.environ, **home.environment, **environment},
            cwd=home.project,
            stdout=home.log,
            stderr=home.log,
        )
        last.callback(worker.wait, 60)
        last.callback(worker.terminate)
        # Prometheus must have seen figures before the failures, of which it sees the increase.
        has_worker = partial(_has_worker, prometheus)
        _wait_until(has_worker, lambda: "no worker reports", found)
        texts = ["Work"] * DONE + ["Fail"] * FAILED + ["Ask"] * NEED_YOU
        lines = "".join(f"{text} {SECRET} {number}\n" for number, text in enumerate(texts))
        home.run("task", "add", "-w", "Fleet", "-", given=lines)
        all_agree = partial(_figures_agree, home, prometheus)
        _wait_until(all_agree, lambda: f"figures differ: {_figures(home, prometheus)}", found)
        found["figures that agree"] = len(_figures(home, prometheus))
        has_alerts = partial(_has_alerts, prometheus)
        _wait_until(has_alerts, lambda: f"alerts: {prometheus.alerts()}", found)
        found["alerts"] = len(prometheus.alerts())
        _check_spans(collector, found)


def _wait_until(
    is_so: Callable[[], bool], describe: Callable[[], str], found: Counter[str]
) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            if is_so():
                return
        except OSError:  # Prometheus is just starting.
            pass
        time.sleep(0.5)
    found[f"LOST: {describe()}"] += 1


def _has_worker(prometheus: Prometheus) -> bool:
    return prometheus.query("sum(helix_workers)") == 1.0


def _has_alerts(prometheus: Prometheus) -> bool:
    return prometheus.alerts() == ALERTS


def _figures(home: Home, prometheus: Prometheus) -> dict[str, tuple[float | None, float]]:
    """Return each figure as Prometheus and as `fleet status` say it."""
    status = json.loads(home.run("fleet", "status", "-w", "Fleet", "--json"))
    said = {
        "helix_tasks_waiting": status["tasks"]["waiting"],
        "helix_tasks_running": status["tasks"]["running"],
        "helix_tasks_needs_you": status["tasks"]["needs-you"],
        "helix_tasks_dead_letters": status["tasks"]["dead-letter"],
        "helix_tasks_failed": status["tasks"]["failed"],
        "helix_tasks_done": status["tasks"]["done"],
        "helix_tasks_oldest_waiting_seconds": status["oldest_waiting_seconds"],
        "helix_tasks_setbacks": sum(status["setbacks"].values()),
        "helix_facts_unsent": sum(status["unsent_facts"].values()),
        "helix_spending_USD": status["cost"],
        "helix_workers": len(status["workers"]),
    }
    return {
        name: (prometheus.query(f"max by (workspace) ({name})"), amount)
        for name, amount in said.items()
    }


def _figures_agree(home: Home, prometheus: Prometheus) -> bool:
    figures = _figures(home, prometheus)
    ended = figures["helix_tasks_done"][1] + figures["helix_tasks_failed"][1]
    if ended != DONE + FAILED:
        return False
    for seen, said in figures.values():
        if seen is None or not math.isclose(seen, said):
            return False
    return True


def _check_spans(collector: Collector, found: Counter[str]) -> None:
    spans = Counter(span.name for span in collector.spans)
    for name, number in spans.items():
        found[f"spans {name}"] = number
    for name, least in {"invoke_agent": DONE, "chat": 2 * DONE, "execute_tool": DONE}.items():
        if spans[name] < least:
            found[f"LOST: spans {name}"] += 1
    asked_of_chat = {"gen_ai.usage.input_tokens", "helix.usage.dollars"}
    for span in collector.spans:
        names = {attribute.key for attribute in span.attributes}
        if span.name == "chat" and not asked_of_chat <= names:
            found["LOST: spans without tokens or dollars"] += 1
    secret = re.compile(SECRET.encode())
    told = sum(bool(secret.search(body)) for body in collector.bodies)
    if told:
        found["LOST: texts of tasks that the collector got"] = told


def main() -> int:
    return report("fleet_operators", 0, run_trial)


if __name__ == "__main__":
    raise SystemExit(main())
