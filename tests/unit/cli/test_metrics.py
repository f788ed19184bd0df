"""Workers serve their metrics where they are told to, and the dashboard shows only what is served."""

import json
import re
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from pai_api.metrics import Metrics as ApiMetrics
from pai_workers.metrics import Metrics, MetricsPortUnusable
from support.servers import free_port

DEPLOY = Path(__file__).parents[3] / "deploy"


def exported(registry: CollectorRegistry) -> set[str]:
    """Every name that a query may use."""
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
    return {family.name + suffix for family in registry.collect() for suffix in suffixes[family.type]}


def test_metrics_are_answered_on_the_port_and_not_after() -> None:
    metrics, port = Metrics(), free_port()
    metrics.watch(running=lambda: 3, slots=200)
    with metrics.served("127.0.0.1", port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        refused = pytest.raises(MetricsPortUnusable, match=f"PAI_WORKER_METRICS_PORT={port} .* a port of its own")
        with refused, Metrics().served("127.0.0.1", port):
            pass
    assert "pai_steps_running 3.0" in text
    assert "pai_worker_slots 200.0" in text
    with Metrics().served("127.0.0.1", port):
        pass
    with Metrics().served("127.0.0.1", None):
        pass


def test_the_dashboard_uses_only_metrics_that_are_served() -> None:
    there = exported(ApiMetrics().registry) | exported(Metrics().registry)
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    named = {name for query in queries for name in re.findall(r"\bpai_\w+", query)}
    assert named <= there
    assert {"pai_steps_total", "pai_takeovers_total", "pai_http_requests_total"} <= named


def test_prometheus_asks_the_processes_of_the_compose_file() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    scraped = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())["scrape_configs"]
    targets = {name for job in scraped for each in job["dns_sd_configs"] for name in each["names"]}
    assert targets == {"api", "worker"} <= set(services)
    ports = {job["job_name"]: job["dns_sd_configs"][0]["port"] for job in scraped}
    assert ports["pai-worker"] == services["worker"]["environment"]["PAI_WORKER_METRICS_PORT"]
