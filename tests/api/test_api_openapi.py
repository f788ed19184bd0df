"""The document is complete: nobody has to read code to call a route."""

from collections.abc import Iterator
from typing import Any

import pytest
from api_parts import registry
from fastapi import FastAPI
from starlette.routing import Route

from pai.protocol import errors
from pai.settings import Settings
from pai_api.app import create_app
from pai_api.problem_schemas import PROBLEMS

METHODS = {"get", "post", "patch", "delete", "put"}
BODIES = {"post", "patch"}
NO_MUTATIONS = {
    "post /api/pai/{agent}/threads/{thread_id}/watch-token",
    "post /api/pai/{agent}/heads/watch-token",
}
UPLOAD = "post /api/pai/{agent}/files"
"""Its body is the file itself."""
NO_KEY = {"post /api/pai/{agent}/files/{file_id}/url"}
"""It changes nothing."""
SIGNED = "get /api/pai/{agent}/files/{file_id}/content"
"""Its URL is the credential."""
DOCUMENTATION = {"/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc"}


@pytest.fixture(scope="module")
def application() -> FastAPI:
    return create_app(Settings(), registry())


@pytest.fixture(scope="module")
def document(application: FastAPI) -> dict[str, Any]:
    return application.openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert method in METHODS
            yield f"{method} {path}", operation


def schemas_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every media type object of a request or response."""
    for content in value.get("content", {}).values():
        yield content["schema"]


def resolve(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def test_every_route_that_answers_is_described(application: FastAPI, document: dict[str, Any]) -> None:
    served = {
        f"{method.lower()} {route.path}"
        for route in application.routes
        if isinstance(route, Route) and route.path not in DOCUMENTATION
        for method in route.methods or ()
    }
    described = {name for name, _ in operations(document)}
    assert described == served
    assert "post /api/pai/{agent}/threads/{thread_id}/send" in described


def test_every_operation_says_what_it_is(document: dict[str, Any]) -> None:
    identifiers = [operation["operationId"] for _, operation in operations(document)]
    assert len(identifiers) == len(set(identifiers))
    for name, operation in operations(document):
        assert operation["summary"], name
        assert operation["description"], name
        assert operation["tags"], name
        assert set(operation["tags"]) <= {tag["name"] for tag in document["tags"]}, name


def test_every_path_parameter_is_described(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        described = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
        assert described == {piece[1:-1] for piece in name.split("/") if piece.startswith("{")}, name
        assert all(one["description"] for one in operation.get("parameters", ())), name


def test_every_route_of_an_agent_takes_an_owner(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        described = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "header"}
        takes = name == "get /api/pai/threads" or (" /api/pai/{agent}" in name and name != SIGNED)
        assert ("X-Pai-Owner" in described) == takes, name


def test_every_mutation_takes_a_typed_body_and_a_key(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        if name.split()[0] in BODIES and name not in NO_MUTATIONS:
            [schema] = schemas_in(operation["requestBody"])
            assert name == UPLOAD or resolve(document, schema)["properties"], name
            assert name in NO_KEY or "Idempotency-Key" in {one["name"] for one in operation["parameters"]}, name
        else:
            assert "requestBody" not in operation, name


def test_every_answer_has_a_description_and_a_typed_body(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        assert any(status.startswith("2") for status in operation["responses"]), name
        for status, response in operation["responses"].items():
            assert response["description"], (name, status)
            schemas = list(schemas_in(response))
            assert len(schemas) == (0 if status == "204" else 1), (name, status)
            for schema in schemas:
                resolved = resolve(document, schema)
                assert resolved.keys() & {"properties", "anyOf", "oneOf", "type"}, (name, status)
                assert resolved.get("type") != "object" or resolved["properties"], (name, status)


def test_every_failure_is_a_problem(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        failures = {status for status in operation["responses"] if status >= "400"}
        if name.startswith("get /api/pai") or name.split()[0] != "get":
            assert failures >= {"401", "403", "404", "422", "500", "503"} - ({"401"} if name == SIGNED else set()), name
        for status in failures - ({"503"} if name == "get /readyz" else set()):
            content = operation["responses"][status]["content"]
            assert set(content) == {"application/problem+json"}, (name, status)


def test_every_operation_says_who_may_call_it(document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"]
    for name, operation in operations(document):
        assert ("security" in operation) == ("401" in operation["responses"]), name
        for requirement in operation.get("security", ()):
            assert requirement.keys() <= schemes.keys(), name
        accepts_token = {"watchToken": []} in operation.get("security", ())
        assert accepts_token == name.endswith("/watch"), name


def test_credentials_are_optional_only_where_they_may_be() -> None:
    for identity, optional in (("keys", False), ("anonymous", True), ("api_parts:by_header", True)):
        described = create_app(Settings(identity=identity), registry()).openapi()
        assert all(({} in one["security"]) == optional for _, one in operations(described) if "security" in one)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for item in value.values():
                yield from references(item)
        elif isinstance(value, list):
            for item in value:
                yield from references(item)

    found = set(references(document))
    assert found <= {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


def test_watches_are_described_as_event_streams(document: dict[str, Any]) -> None:
    for path, event in (("/threads/{thread_id}/watch", "WatchEvent"), ("/heads/watch", "ThreadHeadEvent")):
        operation = document["paths"][f"/api/pai/{{agent}}{path}"]["get"]
        assert set(operation["responses"]["200"]["content"]) == {"text/event-stream"}
        schema = operation["responses"]["200"]["content"]["text/event-stream"]["schema"]
        assert schema == {"$ref": f"#/components/schemas/{event}"}
    schemas = document["components"]["schemas"]
    assert schemas["ChunkEvent"]["properties"]["chunk"] == {"$ref": "#/components/schemas/UIMessageChunk"}
    assert len(schemas["WatchEvent"]["anyOf"]) == 6


def test_optional_keys_are_absent_and_never_null(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["RunState"]["properties"]["startedAt"] == {"title": "Startedat", "type": "string"}
    nullable = schemas["TransportState"]["properties"]["activeRunId"]
    assert {"type": "null"} in nullable["anyOf"]


def test_every_error_of_the_tree_has_its_status_in_the_document() -> None:
    for cls in vars(errors).values():
        if isinstance(cls, type) and issubclass(cls, errors.PaiError) and vars(cls).get("code") in PROBLEMS:
            assert PROBLEMS[cls.code][0] == cls.status, cls
