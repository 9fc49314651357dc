"""The OpenAPI 3.1 document of the HTTP door, built from the contract."""

from __future__ import annotations

from typing import Any

from engine.contract import HTTP_STATUS, SEARCH_KNOWLEDGE_SCHEMA, TOOL_DESCRIPTION, TOOL_TITLE

_MEANINGS = {
    400: "The request is malformed.",
    401: "No valid credential.",
    403: "The credential lacks the scope, or the origin is not allowed.",
    404: "The base, item or revision is not available to this caller.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    415: "The content type is not application/json.",
    500: "A fault of ours; its id is found again in the logs.",
    503: "The runtime is disabled or overloaded; ask again after Retry-After seconds.",
}

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}


def _object(optional: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _nullable(kind: str) -> dict[str, Any]:
    return {"type": [kind, "null"]}


def _schemas() -> dict[str, Any]:
    source = _object(type=_TEXT, ref=_TEXT)
    result = _object(
        knowledge_base_id=_TEXT,
        knowledge_item_id=_TEXT,
        knowledge_revision_id=_TEXT,
        title=_TEXT,
        excerpt=_TEXT,
        excerpt_offset=_COUNT,
        source=source,
        citation=_object(title=_TEXT, revision_id=_TEXT, content_sha256=_TEXT, published_at=_TEXT),
        reference=_TEXT,
        scores=_object(
            score={"type": "number"},
            lexical=_nullable("number"),
            semantic=_nullable("number"),
            lexical_rank=_nullable("integer"),
            semantic_rank=_nullable("integer"),
        ),
    )
    coverage = _object(shards=_COUNT, answered=_COUNT, fraction={"type": "number"})
    return {
        "Arguments": SEARCH_KNOWLEDGE_SCHEMA,
        "Search": _object(
            ("coverage",),
            type={"const": "knowledge_search"},
            results={"type": "array", "items": result},
            coverage=coverage,
        ),
        "Explanation": _object(
            type={"const": "knowledge_explanation"},
            certified={"type": "boolean"},
            uncertified_because={"type": "array", "items": _TEXT},
            state={"type": ["object", "null"]},
            query={"type": "object"},
            effort={"type": "object"},
            shards={"type": "array", "items": {"type": "object"}},
            results={"type": "array", "items": {"type": "object"}},
            answer=_reference("Search"),
        ),
        "Knowledge": _object(
            type={"const": "knowledge"},
            owner=_TEXT,
            team=_nullable("string"),
            scope=_TEXT,
            knowledge_base_id=_TEXT,
            knowledge_item_id=_TEXT,
            knowledge_revision_id=_TEXT,
            title=_TEXT,
            content=_TEXT,
            locator=_object(
                content_sha256=_TEXT, char_start=_COUNT, char_end=_COUNT, language=_TEXT
            ),
            source=source,
            reference=_TEXT,
            content_offset=_COUNT,
            content_limit=_COUNT,
            content_total_chars=_COUNT,
            content_truncated={"type": "boolean"},
        ),
        "Error": _object(
            type={"enum": ["knowledge_error", "knowledge_unavailable"]},
            error=_object(
                ("parameter",),
                code={"enum": list(HTTP_STATUS)},
                message=_TEXT,
                parameter=_TEXT,
            ),
        ),
    }


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _responses(answer: dict[str, Any], *statuses: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "200": {"description": "The answer.", "content": _json(answer)},
    }
    for status in statuses:
        response = {"description": _MEANINGS[status], "content": _json(_reference("Error"))}
        if status == 503:
            response["headers"] = {"Retry-After": {"schema": {"type": "integer", "minimum": 1}}}
        found[str(status)] = response
    return found


def _read(name: str, *ids: str) -> dict[str, Any]:
    described = SEARCH_KNOWLEDGE_SCHEMA["properties"]
    parameters = [{"name": part, "in": "path", "required": True, "schema": _TEXT} for part in ids]
    for part in ("offset", "limit_chars", "knowledge_base_id"):
        schema = {key: value for key, value in described[part].items() if key != "description"}
        text = described[part]["description"]
        parameters.append({"name": part, "in": "query", "schema": schema, "description": text})
    return {
        "get": {
            "operationId": name,
            "summary": "Read a window of one item.",
            "description": "Ids are percent-encoded, `/` as `%2F`.",
            "parameters": parameters,
            "responses": _responses(_reference("Knowledge"), 400, 401, 403, 404, 500, 503),
        }
    }


def document() -> dict[str, Any]:
    """Build the document."""
    either = {"oneOf": [_reference("Search"), _reference("Knowledge")]}
    search = {
        "operationId": "search",
        "summary": TOOL_TITLE,
        "description": TOOL_DESCRIPTION,
        "requestBody": {"required": True, "content": _json(_reference("Arguments"))},
        "responses": _responses(either, 400, 401, 403, 404, 408, 413, 415, 500, 503),
    }
    explain = {
        "operationId": "explain",
        "summary": "Show the arithmetic of a search. For operators.",
        "description": (
            "Takes the arguments of a search. Needs the scope `knowledge:operate` besides "
            "`knowledge:read`; what it answers may change between versions."
        ),
        "requestBody": {"required": True, "content": _json(_reference("Arguments"))},
        "responses": _responses(_reference("Explanation"), 400, 401, 403, 404, 413, 415, 500, 503),
    }
    probe = {"200": {"description": "Yes."}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Octavo", "version": "1", "description": "Published knowledge."},
        "security": [{}, {"bearer": []}],
        "paths": {
            "/v1/search": {"post": search},
            "/v1/explain": {"post": explain},
            "/v1/items/{item}": _read("read_item", "item"),
            "/v1/items/{item}/revisions/{revision}": _read("read_revision", "item", "revision"),
            "/healthz": {"get": {"summary": "Does it live?", "security": [], "responses": probe}},
            "/readyz": {
                "get": {
                    "summary": "Can it answer?",
                    "security": [],
                    "responses": {**probe, "503": {"description": "Not yet."}},
                }
            },
        },
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }
