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
# The system prompt explains this in more detail.
KEEP_SENTENCE = "What you need of it if the output is long"
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
_HALF_OF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def parse_argument_text(text: str) -> dict[str, Any]:
    """Return the arguments as an object. Empty text means none."""
    if not text.strip():
        return {}
    arguments = parse_arguments(text)
    if arguments is not None:
        return _require_encodable_values(arguments, text)
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
    """Return the values, or refuse half of a character, which JSON can name but no text can
    have.
    """
    if _HALF_OF_CHARACTER.search(text):
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
    """Return the values as the schema wants them. InvalidInput names what does not fit.

    A value that only says that there is none, such as null, is left out first; then nothing
    required may be missing; then each value must fit.
    """
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = schema.get("required", ())
    argument_names = ", ".join(properties) or "none"
    given_values = {}
    for name, value in values.items():
        if name not in properties:
            raise InvalidInput(f"{tool} has no argument {name[:60]!r}; it was not run.", remedy=f"The tool takes: {argument_names}.")  # fmt: skip
        if not _means_no_argument(value, properties[name], optional=name not in required):
            given_values[name] = value
    for name in required:
        if name not in given_values:
            raise InvalidInput(f"{tool} needs the argument {name!r}; it was not run.", remedy=f"The tool takes: {argument_names}.")  # fmt: skip
    fitted_values = {}
    for name, value in given_values.items():
        fitted_values[name] = _fit_value_to_schema(value, properties[name], f"{tool}: {name}")
    return fitted_values


def _fit_value_to_schema(value: Any, schema: Mapping[str, Any], where: str) -> Any:
    """Return a value as its schema wants it, with the items and members in it. What models often
    write instead, such as "5" for 5, is corrected before it is checked. `where`: what errors
    call the value.
    """
    wanted_type = schema.get("type", "")
    corrected = _correct_plain_value(value, wanted_type)
    _check_value_against_schema(corrected, schema, where)
    if wanted_type == "array" and "items" in schema:
        fitted_items: list[Any] = []
        for number, item in enumerate(corrected, 1):
            place = f"{where}, item {number}"
            fitted_item = _fit_value_to_schema(item, schema["items"], place)
            fitted_items.append(fitted_item)
        return fitted_items
    if wanted_type == "object" and "properties" in schema:
        return fit_arguments_to_schema(corrected, schema, where)
    return corrected


def _check_value_against_schema(value: Any, schema: Mapping[str, Any], where: str) -> None:
    """Raise InvalidInput if the value is of another type, is not among the allowed ones or is
    too small.
    """
    wanted_type = schema.get("type", "")
    if wanted_type and not _is_of_type(value, wanted_type):
        given_type = _name_of_type(value)
        raise InvalidInput(
            f"{where} must be of type {wanted_type}, not {given_type}; the tool was not run."
        )
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(str(allowed_value) for allowed_value in schema["enum"])
        raise InvalidInput(f"{where} must be one of {allowed}; the tool was not run.")
    if "minimum" in schema and value < schema["minimum"]:
        least = schema["minimum"]
        raise InvalidInput(f"{where} must be {least} or more, not {value}; the tool was not run.")


def _is_of_type(value: Any, wanted_type: str) -> bool:
    # For Python, true is a number.
    if isinstance(value, bool):
        return wanted_type == "boolean"
    return isinstance(value, _TYPES[wanted_type])


def _name_of_type(value: Any) -> str:
    for name, types in _TYPES.items():
        if type(value) in types:
            return name
    return type(value).__name__


def correct_arguments_of_server_tool(
    values: Mapping[str, Any], schema: Mapping[str, Any]
) -> dict[str, Any]:
    """Correct obvious mistakes in a call of a foreign tool. The tool judges everything else."""
    properties = object_at(schema, "properties")
    required = list_at(schema, "required")
    corrected = {}
    for name, value in values.items():
        has_plain_type = isinstance(_declared_type(properties.get(name)), str)
        # Some models give null for what they leave out.
        if value is None and has_plain_type and name not in required:
            continue
        corrected[name] = _correct_foreign_value(value, properties.get(name))
    return corrected


def _correct_foreign_value(value: Any, schema: Any) -> Any:
    wanted_type = _declared_type(schema)
    if not isinstance(wanted_type, str):
        return value
    corrected = _correct_plain_value(value, wanted_type)
    if isinstance(corrected, _TYPES.get(wanted_type, ())):
        return corrected
    return value


def _declared_type(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return None
    return schema.get("type")


def _means_no_argument(value: Any, schema: Mapping[str, Any], *, optional: bool) -> bool:
    """Whether a value means none. Some models give every argument, as null, "", or 0 or
    -1 for a number.
    """
    if value is None:
        return True
    if not optional:
        return False
    if value == "":
        return True
    is_number_for_nothing = value in (0, -1) and value is not False
    return is_number_for_nothing and schema.get("minimum", value) > value


def _correct_plain_value(value: Any, wanted_type: str) -> Any:
    """Convert obvious mistakes of models: `"5"` for 5, 5 for `"5"`, or `"true"` for true."""
    if type(value) is int and wanted_type == "string":
        return str(value)
    if isinstance(value, float) and wanted_type == "integer" and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return _parse_value_in_text(value, wanted_type)
    return value


def _parse_value_in_text(value: str, wanted_type: str) -> Any:
    """Return the value that a text stands for, if the schema wants one of that type; else the
    text.
    """
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
    own_names = object_at(schema, "properties")
    if KEEP not in own_names:
        return KEEP
    name = f"{KEEP}_of_output"
    while name in own_names:
        name = f"{name}_"
    return name


def spec_with_keep(name: str, description: str, schema: Mapping[str, Any]) -> ToolSpec:
    """Return the tool as the model sees it, with the `keep` argument."""
    properties = dict(object_at(schema, "properties"))
    properties[keep_argument_name(schema)] = KEEP_SCHEMA
    schema_with_keep = dict(schema)
    schema_with_keep["type"] = "object"
    schema_with_keep["properties"] = properties
    return build_spec(name, description, schema_with_keep)


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
