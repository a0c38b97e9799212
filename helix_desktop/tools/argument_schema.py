"""Parses a call's arguments, checks them against the tool's schema, and adds `keep` to every tool.

A model's mistake is answered with a sentence it can act on, never with a traceback.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from helix_desktop.engine.facts import ToolSpec
from helix_desktop.engine.tool_call_parsing import parse_arguments, parse_strict_json
from helix_desktop.errors import InvalidInput
from helix_desktop.json_values import list_at, object_at, text_at, without_fields

KEEP = "keep"
KEEP_SENTENCE = (
    "What you need of it if the output is long"  # The system prompt explains this in more detail.
)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_NUMBER = re.compile(r"-?\d{1,18}")
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def parse_argument_text(text: str) -> dict[str, Any]:
    """Return the arguments as an object. Empty text means none."""
    if not text.strip():
        return {}
    if (found := parse_arguments(text)) is not None:
        return _require_encodable_values(found, text)
    try:
        parse_strict_json(text)
    except RecursionError:
        raise InvalidInput("The arguments are nested too deeply; the tool was not run.") from None
    except ValueError as error:
        raise InvalidInput(
            f"The arguments are not valid JSON ({error}); the tool was not run.",
            remedy="Call the tool again with one JSON object. Check quotes and line breaks inside strings.",
        ) from None
    raise InvalidInput("The arguments must be one JSON object; the tool was not run.")


def _require_encodable_values(values: dict[str, Any], text: str) -> dict[str, Any]:
    if _HALF.search(text):
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                "The arguments contain an unpaired surrogate (half of a character), such as \\ud83d alone; the tool was not run.",
                remedy="Write the character itself, or both halves of the pair.",
            ) from None
    return values


def fit_arguments_to_schema(
    values: Mapping[str, Any], schema: Mapping[str, Any], tool: str
) -> dict[str, Any]:
    """Return the values as the schema wants them. InvalidInput names what does not fit."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = schema.get("required", ())
    given = {
        name: value
        for name, value in values.items()
        if name not in properties
        or not _means_no_argument(value, properties[name], optional=name not in required)
    }
    known = ", ".join(properties) or "none"
    for name in given:
        if name not in properties:
            raise InvalidInput(f"{tool} has no argument {name[:60]!r}; it was not run.", remedy=f"The tool takes: {known}.")  # fmt: skip
    for name in required:
        if name not in given:
            raise InvalidInput(f"{tool} needs the argument {name!r}; it was not run.", remedy=f"The tool takes: {known}.")  # fmt: skip
    return {
        name: _fit_value_to_schema(value, properties[name], f"{tool}: {name}")
        for name, value in given.items()
    }


def _fit_value_to_schema(value: Any, schema: Mapping[str, Any], where: str) -> Any:
    wanted = schema.get("type", "")
    value = _correct_plain_value(value, wanted)
    if wanted and (
        not isinstance(value, _TYPES[wanted]) or (isinstance(value, bool) and wanted != "boolean")
    ):
        given = next(
            (name for name, types in _TYPES.items() if type(value) in types), type(value).__name__
        )
        raise InvalidInput(f"{where} must be of type {wanted}, not {given}; the tool was not run.")
    if "enum" in schema and value not in schema["enum"]:
        raise InvalidInput(
            f"{where} must be one of {', '.join(map(str, schema['enum']))}; the tool was not run."
        )
    if "minimum" in schema and value < schema["minimum"]:
        raise InvalidInput(
            f"{where} must be {schema['minimum']} or more, not {value}; the tool was not run."
        )
    if wanted == "array" and "items" in schema:
        return [
            _fit_value_to_schema(item, schema["items"], f"{where}, item {index}")
            for index, item in enumerate(value, 1)
        ]
    if wanted == "object" and "properties" in schema:
        return fit_arguments_to_schema(value, schema, where)
    return value


def correct_arguments_of_server_tool(
    values: Mapping[str, Any], schema: Mapping[str, Any]
) -> dict[str, Any]:
    """Correct obvious mistakes in a call of a foreign tool. The tool judges everything else."""
    known, needed = object_at(schema, "properties"), list_at(schema, "required")
    return {
        name: _correct_foreign_value(value, known.get(name))
        for name, value in values.items()
        if value is not None
        or name in needed
        or not isinstance(_declared_type(known.get(name)), str)
    }


def _correct_foreign_value(value: Any, schema: Any) -> Any:
    wanted = _declared_type(schema)
    if not isinstance(wanted, str):
        return value
    meant = _correct_plain_value(value, wanted)
    return meant if isinstance(meant, _TYPES.get(wanted, ())) else value


def _declared_type(schema: Any) -> Any:
    return schema.get("type") if isinstance(schema, dict) else None


def _means_no_argument(value: Any, schema: Mapping[str, Any], *, optional: bool) -> bool:
    """Whether a value means none. Some models give every argument, as null, "", or 0 or
    -1 for a number.
    """
    if value is None or not optional:
        return value is None
    return value == "" or (
        value in (0, -1) and value is not False and schema.get("minimum", value) > value
    )


def _correct_plain_value(value: Any, wanted_type: str) -> Any:
    """Convert obvious mistakes of models: `"5"` for 5, 5 for `"5"`, or `"true"` for true."""
    if type(value) is int and wanted_type == "string":
        return str(value)
    if isinstance(value, float) and wanted_type == "integer" and value.is_integer():
        return int(value)
    return _parse_value_in_text(value, wanted_type) if isinstance(value, str) else value


def _parse_value_in_text(value: str, wanted_type: str) -> Any:
    if wanted_type == "integer" and _NUMBER.fullmatch(value.strip()):
        return int(value)
    if wanted_type == "boolean" and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if wanted_type in ("array", "object"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def keep_argument_name(schema: Mapping[str, Any]) -> str:
    """Return the name of the `keep` argument, changed if the tool has an argument of that name."""
    own, name = object_at(schema, "properties"), KEEP
    while name in own:
        name = f"{name}_of_output" if name == KEEP else f"{name}_"
    return name


def spec_with_keep(name: str, description: str, schema: Mapping[str, Any]) -> ToolSpec:
    """Return the tool as the model sees it, with the `keep` argument."""
    properties = {**object_at(schema, "properties"), keep_argument_name(schema): KEEP_SCHEMA}
    return build_spec(name, description, {**schema, "type": "object", "properties": properties})


def build_spec(name: str, description: str, schema: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(
        name, description, json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    )


def split_off_keep_argument(
    values: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """Split the arguments into the tool's own and what the call asked to keep of a long output."""
    name = keep_argument_name(schema)
    return without_fields(values, name), text_at(values, name).strip()[:2_000]


KEEP_SCHEMA = {"type": "string", "description": KEEP_SENTENCE}
