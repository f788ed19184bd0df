"""The files of `deploy/` parse, agree with each other, and name what exists."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pai.settings import Settings

DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / "helm" / "pai"
TEMPLATES = sorted((CHART / "templates").glob("*.yaml"))
VARIABLES = {name for name, _, _ in Settings.table()}


def parsed(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def test_compose_runs_every_process_after_what_it_needs() -> None:
    services = parsed(DEPLOY / "compose.yaml")["services"]
    commands = {" ".join(service["command"]) for service in services.values() if "command" in service}
    assert {"paictl api", "paictl worker", "paictl db upgrade"} <= commands
    for name in ("api", "worker"):
        needs = services[name]["depends_on"]
        assert needs["migrate"]["condition"] == "service_completed_successfully"
        assert all(service in services for service in needs)


def test_every_variable_that_is_set_is_a_setting() -> None:
    texts = [path.read_text() for path in DEPLOY.rglob("*") if path.is_file()]
    named = {name for text in texts for name in re.findall(r"\bPAI_[A-Z_]+\b", text)}
    assert named
    assert named <= VARIABLES


def test_values_that_the_chart_uses_are_there() -> None:
    values = parsed(CHART / "values.yaml")
    used = {path for file in CHART.rglob("*.*") for path in re.findall(r"\.Values\.([A-Za-z.]+)", file.read_text())}
    assert len(used) > 20
    for path in used:
        found: Any = values
        for key in path.rstrip(".").split("."):
            assert key in found, path
            found = found[key]


def test_every_value_is_used() -> None:
    text = "".join(file.read_text() for file in CHART.rglob("templates/*"))

    def paths(values: dict[str, Any], prefix: str = ".Values") -> list[str]:
        nested = [
            paths(value, f"{prefix}.{key}") if isinstance(value, dict) and value else [f"{prefix}.{key}"]
            for key, value in values.items()
        ]
        return [path for group in nested for path in group]

    for path in paths(parsed(CHART / "values.yaml")):
        whole = [path.rsplit(".", depth)[0] for depth in range(1, path.count(".") - 1)]
        assert any(re.search(rf"{re.escape(name)}\b", text) for name in [path, *whole]), path


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_templates_are_yaml_once_the_actions_are_taken_out(template: Path) -> None:
    text = re.sub(r"^\s*\{\{-.*\}\}\n", "", template.read_text(), flags=re.MULTILINE)
    text = re.sub(r"\{\{.*?\}\}", "x", text)
    documents = [document for document in yaml.safe_load_all(text) if document]
    assert documents
    for document in documents:
        assert {"apiVersion", "kind", "metadata"} <= set(document)


def test_a_stopping_worker_gets_longer_than_it_drains() -> None:
    drain = Settings.model_fields["drain_seconds"].default.total_seconds()
    assert parsed(CHART / "values.yaml")["worker"]["terminationGracePeriodSeconds"] > drain
    assert int(parsed(DEPLOY / "compose.yaml")["services"]["worker"]["stop_grace_period"].removesuffix("s")) > drain


def test_the_queue_that_scales_the_workers_is_the_default_one() -> None:
    assert parsed(CHART / "values.yaml")["worker"]["keda"]["queue"] == Settings.model_fields["default_queue"].default


def test_the_image_runs_as_nobody_in_particular() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert "USER 10001" in lines
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    for source in (name for names in copied for name in names):
        assert (DEPLOY.parent / source).exists(), source
