"""A tool's JSON schema in the part of the language Gemini takes.

It knows no references, no lists of types, no constants, no additional properties; a function whose arguments are an
object without properties is refused, and so are names of required properties that are not there. What it does not know is left out: the schema
then says less, and the tool checks its arguments anyway.
"""

from helix_desktop.json_values import Json, Object, list_at, object_at, text_at, value_at

_KEPT = frozenset({
    "description", "title", "nullable", "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "pattern",
})  # fmt: skip
_FORMATS = {"string": {"enum", "date-time"}, "number": {"float", "double"}, "integer": {"int32", "int64"}}
_DEEPEST = 24


def gemini_parameters(schema: Object) -> Object:
    """`{"parameters": …}` for a function's declaration; nothing for a function without arguments."""
    written = _convert_schema(schema, object_at(schema, "$defs") | object_at(schema, "definitions"), 0)
    return {"parameters": written} if written.get("properties") else {}


def _convert_schema(schema: Json, definitions: Object, depth: int) -> Object:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return {"type": "string"}
    schema = _resolve_reference(schema, definitions)
    alternatives = list_at(schema, "anyOf") or list_at(schema, "oneOf")
    if alternatives:
        return _convert_alternatives(schema, alternatives, definitions, depth)
    merged: Object = {}
    for part in list_at(schema, "allOf"):
        merged = {**merged, **object_at(part)}
    schema = {**merged, **schema}
    kind, nullable = _single_type(schema)
    written: Object = {"type": kind, **{name: value for name, value in schema.items() if name in _KEPT}}
    if nullable:
        written["nullable"] = True
    written.update(_schema_details(kind, schema, definitions, depth))
    return written


def _resolve_reference(schema: Object, definitions: Object) -> Object:
    """A reference becomes what it points at; what points at itself ends at the limit of depth."""
    name = text_at(schema, "$ref").rpartition("/")[2]
    if not name:
        return schema
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**object_at(definitions, name), **beside}


def _convert_alternatives(schema: Object, alternatives: list[Json], definitions: Object, depth: int) -> Object:
    real = [one for one in alternatives if value_at(one, "type") != "null"]
    nullable = len(real) < len(alternatives)
    options: list[Json] = [_convert_schema(one, definitions, depth + 1) for one in real]
    described: Object = {"description": schema["description"]} if text_at(schema, "description") else {}
    single = options[0] if len(options) == 1 else None
    written = {**single, **described} if isinstance(single, dict) else {**described, "anyOf": options}
    return {**written, "nullable": True} if nullable else written


def _single_type(schema: Object) -> tuple[str, bool]:
    """One type. Of several, the first that is not null; of none, what the rest tells."""
    kind = value_at(schema, "type")
    if isinstance(kind, list):
        real = [one for one in kind if isinstance(one, str) and one != "null"]
        return (real[0] if real else "string"), "null" in kind
    if isinstance(kind, str) and kind != "null":
        return kind, False
    if object_at(schema, "properties"):
        return "object", False
    return ("array" if "items" in schema else "string"), kind == "null"


def _schema_details(kind: str, schema: Object, definitions: Object, depth: int) -> Object:
    if kind == "object":
        return _object_schema(schema, definitions, depth)
    if kind == "array":
        return {"items": _convert_schema(value_at(schema, "items") or {"type": "string"}, definitions, depth + 1)}
    details: Object = {}
    allowed = list_at(schema, "enum") or ([schema["const"]] if "const" in schema else [])
    if kind == "string" and allowed:
        details["enum"] = [one for one in allowed if isinstance(one, str) and one]
    if text_at(schema, "format") in _FORMATS.get(kind, set()):
        details["format"] = schema["format"]
    return details


def _object_schema(schema: Object, definitions: Object, depth: int) -> Object:
    properties = {
        name: _convert_schema(one, definitions, depth + 1) for name, one in object_at(schema, "properties").items()
    }
    if not properties:
        return {}
    required: list[Json] = [
        name for name in list_at(schema, "required") if isinstance(name, str) and name in properties
    ]
    written: Object = {"properties": {**properties}}
    return {**written, "required": required} if required else written
