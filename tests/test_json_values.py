from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop import json_values

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(texts, values, max_size=5))
def test_a_body_made_item_by_item_is_the_same(body: Any) -> None:
    assert json_values.dump_json_body(body) == json_values.dump_json(body)
    assert json_values.parse_json(json_values.dump_json_body(body)) == body


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", '{"a": Infinity}', "[" * 100_000, '{"a":' * 50_000, "9" * 5000]
)
def test_what_is_no_json_is_a_value_error_and_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_values.parse_json(text)
    assert json_values.parse_object(text) is None


@given(values, st.lists(texts | st.integers(-3, 3), max_size=4))
def test_looking_something_up_never_fails(value: Any, path: list[Any]) -> None:
    json_values.value_at(value, *path)
    assert isinstance(json_values.text_at(value, *(path or ["a"])), str)
    assert json_values.number_at(value, *path) >= 0
    assert isinstance(json_values.list_at(value, *path), list)
    assert isinstance(json_values.object_at(value, *path), dict)


DOCUMENT: Any = {"a": {"b": ["x", {"c": "y"}, 3]}, "n": 4.5, "no": None, "t": "text"}


def test_a_path_goes_through_objects_and_lists() -> None:
    assert json_values.value_at(DOCUMENT) is DOCUMENT
    assert json_values.text_at(DOCUMENT, "t") == "text"
    assert (
        json_values.text_at(DOCUMENT, "a", "b", 1, "c")
        == json_values.checked_text_at(DOCUMENT, "a", "b", 1, "c")
        == "y"
    )
    assert (
        json_values.text_at(DOCUMENT, "a", "b", 0)
        == json_values.text_at(["x"], 0)
        == json_values.text_at(["x"], -1)
        == "x"
    )
    assert (
        json_values.value_at(DOCUMENT, "a", "b", 3)
        is json_values.value_at(DOCUMENT, "a", "b", -4)
        is None
    )
    assert json_values.number_at(DOCUMENT, "a", "b", 2) == 3
    assert json_values.objects_at(DOCUMENT, "a", "b") == [{"c": "y"}]


def test_a_value_of_another_shape_is_an_empty_one() -> None:
    for wrong in (None, True, 1, "abc", ["x"]):
        assert json_values.object_at(wrong) == {}
        assert json_values.text_at(wrong, "t") == json_values.first_text(wrong, "t", "u") == ""
    assert json_values.text_at("abc", 0) == ""
    assert json_values.text_at(DOCUMENT, "n") == json_values.text_at(DOCUMENT, "t", "deeper") == ""
    assert (
        json_values.list_at({"a": "abc"}, "a") == json_values.objects_at({"a": {"b": 1}}, "a") == []
    )


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (7, 7),
        (7.9, 7),
        (True, 0),
        (False, 0),
        (-1, 0),
        ("7", 0),
        (float("nan"), 0),
        (float("inf"), 10**11),
        (10**400, 10**11),
        (-(10**400), 0),
        (0, 0),
    ],
)
def test_a_count_is_a_number_that_can_be_counted(given: Any, read: int) -> None:
    assert json_values.number_at({"n": given}, "n") == json_values.number_at(given) == read


@pytest.mark.parametrize(
    "given", [10**400, -(10**400), float("nan"), float("inf"), True, "1", [], 2.5]
)
def test_an_amount_is_a_number_that_can_be_added_up(given: Any) -> None:
    amount = json_values.amount_at({"n": given}, "n")
    assert type(amount) is float
    assert 0 <= amount <= json_values.LARGEST_NUMBER


def test_the_first_text_of_several_fields() -> None:
    assert json_values.first_text({"a": 1, "b": "", "c": "x", "d": "y"}, "a", "b", "c", "d") == "x"
    assert json_values.first_text({}, "a") == ""


def test_words_of_another_shape_are_refused() -> None:
    assert json_values.checked_text_at({"t": None}, "t") == ""
    with pytest.raises(ValueError, match=r"a\.t is no text"):
        json_values.checked_text_at({"a": {"t": 1}}, "a", "t")
    with pytest.raises(ValueError, match="object"):
        json_values.require_object([])


def test_halves_of_surrogate_pairs_stay_in_the_text_and_not_in_the_bytes() -> None:
    assert json_values.format_json_value({"ä": ["\ud800", 1]}) == '{"ä":["\ud800",1]}'
    assert json_values.dump_json({"ä": ["\ud800", 1]}) == '{"ä":["?",1]}'.encode()


def test_whoever_expects_broken_json_expects_json_that_is_nested_too_deeply() -> None:
    """Python's reader raises RecursionError for it, which no handler of ValueError catches."""
    surprised: list[str] = []
    package = Path(json_values.__file__).parent
    for file in package.rglob("*.py"):
        source = file.read_text("utf-8")
        if "json.loads" not in source:  # nine of ten files, which need no parsing
            continue
        for line, caught in list_errors_caught_around_loads(ast.parse(source)):
            if "ValueError" in caught and "RecursionError" not in caught:
                surprised.append(f"{file.relative_to(package)}:{line}")
    assert not surprised


def list_errors_caught_around_loads(tree: ast.Module) -> Iterator[tuple[int, set[str]]]:
    """Yields the line of each `json.loads`, and the names of the errors caught around it."""
    parents: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            parents[child] = node
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "json.loads":
            continue
        caught: set[str] = set()
        inner: ast.AST = node
        while inner in parents:
            outer = parents[inner]
            if isinstance(outer, ast.Try) and inner in outer.body:
                for handler in outer.handlers:
                    if handler.type is not None:
                        caught.update(
                            name.id for name in ast.walk(handler.type) if isinstance(name, ast.Name)
                        )
            inner = outer
        yield node.lineno, caught


def count_signs(value: Any) -> int:
    """The brackets that open and the commas of a JSON text, without those in strings."""
    if not isinstance(value, list | dict):
        return 0
    members = list(value.values()) if isinstance(value, dict) else value
    return max(len(members), 1) + sum(map(count_signs, members))


@given(values)
def test_values_are_counted_without_parsing(value: Any) -> None:
    signs = count_signs(value)
    text = json_values.dump_json(value)
    assert not json_values.has_more_values(text, signs)
    if signs:
        assert json_values.has_more_values(text, signs - 1)


def test_values_of_a_text_in_pieces_are_counted_and_those_within_strings_are_not() -> None:
    limit = json_values.ValueLimit(100)
    table = b'{"a": "' + b"1,2,3;" * 1_000
    for start in range(0, len(table), 50):
        assert not limit.is_exceeded_with(table[start : start + 50])
    assert not limit.is_exceeded_with(b'"}')
    limit.begin_text()
    pieces = [b"[0,0,0,", *[b"0,0,0,"] * 200]
    assert any(limit.is_exceeded_with(piece) for piece in pieces)


def test_long_texts_are_no_values() -> None:
    text = json_values.dump_json({"a": 'x,[{"\\",' * 10_000, "b": ["\\", ",,,,", '\\"']})
    assert not json_values.has_more_values(text, 5)
    assert json_values.has_more_values(text, 3)
