"""The OpenAPI document: FastAPI knows paths and parameters, this module adds every body, problem and event.

Bodies are not declared to FastAPI, because it would parse and validate them a second time and in its own words.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.responses import Response

from pai.protocol.wire import WireModel
from pai.settings import Settings
from pai_api.problem_schemas import PROBLEMS
from pai_api.problems import MEDIA_TYPE
from pai_api.schemas import NAMED, REFINED

JSON = "application/json"
EVENTS = "text/event-stream"
_TEMPLATE = "#/components/schemas/{model}"
_EVERYWHERE = (
    "validation_failed",
    "unauthenticated",
    "forbidden",
    "not_found",
    "rate_limited",
    "unavailable",
    "internal",
)
_SECURITY = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key (`pai_...`), a JSON Web Token, or what the application's own resolver takes.",
    },
    "watchToken": {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "For an EventSource, which cannot send headers: from `.../watch-token`, for one watch.",
    },
}
_DESCRIPTIONS = {
    401: "Nobody was recognised.",
    403: "Not allowed.",
    404: "It does not exist, or belongs to another identity.",
    409: "The state of the thread does not allow it.",
    413: "The body is too large.",
    416: "The range begins behind the end of the file.",
    422: "The request is not valid; nothing was changed.",
    429: "A limit is reached.",
    500: "A bug.",
    503: "The database is unreachable.",
}


def ref(name: str) -> dict[str, str]:
    return {"$ref": _TEMPLATE.format(model=name)}


def operation(
    operation_id: str,
    *,
    summary: str,
    tag: str,
    answers: Mapping[int, tuple[str, type[WireModel] | str | None]],
    body: type[WireModel] | None = None,
    body_required: bool = True,
    problems: Iterable[str] = (),
    media_type: str = JSON,
    example: Any = None,
    anywhere: bool = True,
) -> dict[str, Any]:
    """The keyword arguments that describe a route.

    `answers`: for each status a description and the model (or the name of a schema) of its body. `problems`: codes
    beyond those that every route can answer (`anywhere`).
    """
    codes = list(dict.fromkeys([*(_EVERYWHERE if anywhere else ()), *(["too_large"] if body else ()), *problems]))
    responses: dict[int | str, dict[str, Any]] = {
        status: _answer(description, model, media_type) for status, (description, model) in answers.items()
    }
    for status in sorted({PROBLEMS[code][0] for code in codes}):
        responses[status] = _problem_answer(status, [code for code in codes if PROBLEMS[code][0] == status])
    extra: dict[str, Any] = {}
    if body is not None:
        content: dict[str, Any] = {"schema": ref(body.__name__)}
        if example is not None:
            content["example"] = example
        extra["requestBody"] = {"required": body_required, "content": {JSON: content}}
    return {
        "operation_id": operation_id,
        "name": operation_id,
        "summary": summary,
        "tags": [tag],
        "status_code": next(iter(answers)),
        "response_description": next(iter(answers.values()))[0],
        "response_class": Response,
        "responses": responses,
        "openapi_extra": extra,
    }


def _answer(description: str, model: type[WireModel] | str | None, media_type: str) -> dict[str, Any]:
    if model is None:
        return {"description": description}
    schema = ref(model if isinstance(model, str) else model.__name__)
    return {"description": description, "content": {media_type: {"schema": schema}}}


def _problem_answer(status: int, codes: list[str]) -> dict[str, Any]:
    names = list(dict.fromkeys(PROBLEMS[code][1].__name__ for code in codes))
    schema: dict[str, Any] = ref(names[0]) if len(names) == 1 else {"anyOf": [ref(name) for name in names]}
    listed = ", ".join(f"`{code}`" for code in codes)
    return {
        "description": f"{_DESCRIPTIONS[status]} Codes: {listed}.",
        "content": {MEDIA_TYPE: {"schema": schema}},
    }


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document of an application whose routes are described by `operation`."""
    result = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    models = {model.__name__: model for model in _subclasses(WireModel)}
    used = {name: models[name] for name in _references(result["paths"]) if name in models}
    # FastAPI's own are the types of parameters.
    parameters = result.get("components", {}).get("schemas", {})
    schemas = {**parameters, **_components({**NAMED, **used}, models)}
    result["components"] = {"schemas": schemas, "securitySchemes": _SECURITY}
    _secure(result["paths"], settings=app.state.settings)
    return result


def _secure(paths: Mapping[str, Any], *, settings: Settings) -> None:
    """How each operation knows its caller: those that may answer 401 do."""
    bearer_only = settings.identity != "anonymous" and ":" not in settings.identity
    for operations in paths.values():
        for one in operations.values():
            if "401" in one["responses"]:
                takes_token = any(parameter["name"] == "token" for parameter in one.get("parameters", ()))
                one["security"] = [
                    {"bearer": []},
                    *([{"watchToken": []}] if takes_token else []),
                    *([] if bearer_only else [{}]),
                ]


def _references(value: Any) -> Iterator[str]:
    """The names of all schemas that are referred to."""
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference.rsplit("/", 1)[1]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _components(types: Mapping[str, Any], models: Mapping[str, type[WireModel]]) -> dict[str, Any]:
    inputs = [(name, "validation", TypeAdapter(type_)) for name, type_ in types.items()]
    roots, rest = TypeAdapter.json_schemas(inputs, ref_template=_TEMPLATE)  # type: ignore[arg-type]
    schemas: dict[str, Any] = rest.get("$defs", {})
    for (name, _), schema in roots.items():
        if schema != ref(str(name)):
            schemas[str(name)] = schema
    for name, schema in schemas.items():
        if name in models:
            _without_nulls(schema, nullable=models[name].nullable)
    for place, names in REFINED.items():
        _refine(schemas, place, names)
    return dict(sorted(schemas.items()))


def _subclasses(cls: type[WireModel]) -> Iterator[type[WireModel]]:
    """The records of the wire; a client in the same process has records of the same names for its own use."""
    for sub in cls.__subclasses__():
        if not sub.__module__.startswith("pai.client"):
            yield sub
        yield from _subclasses(sub)


def _without_nulls(schema: dict[str, Any], *, nullable: frozenset[str]) -> None:
    """An optional key is absent on the wire, never null, except where a null is data."""
    for key, value in schema.get("properties", {}).items():
        options = [option for option in value.get("anyOf", ()) if option.get("type") != "null"]
        if key in nullable or len(options) == len(value.get("anyOf", ())):
            continue
        del value["anyOf"]
        if value.get("default", ...) is None:
            del value["default"]
        value.update(options[0] if len(options) == 1 else {"anyOf": options})


def _refine(schemas: dict[str, Any], place: str, names: list[str]) -> None:
    owner, _, key = place.removesuffix("[]").partition(".")
    schema: dict[str, Any] = ref(names[0]) if len(names) == 1 else {"anyOf": [ref(name) for name in names]}
    slot = schemas[owner]["properties"][key]
    if place.endswith("[]"):
        slot["items"] = schema
    else:
        schemas[owner]["properties"][key] = schema
