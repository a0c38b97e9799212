"""The standard library's `dataclass`, at a tenth of its cost for each declaration.

The library compiles six methods of each class during the import, which for nearly 200
classes took a third of the start. Here each method is compiled when it is first called.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import cache, partial
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]
Fields = tuple[Field[Any], ...]
Known = dict[str, Any]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        return (
            _declare_dataclass(cls, **options)
            if cls is not None
            else lambda each: _declare_dataclass(each, **options)
        )


def _declare_dataclass(
    cls: type, *, eq: bool = True, frozen: bool = False, order: bool = False, **options: bool
) -> type:
    """Declares a dataclass. Methods that the class lacks are compiled by their first call."""
    if order:
        return dataclasses.dataclass(eq=eq, frozen=frozen, order=True, **options)(cls)
    own = {name for name, value in vars(cls).items() if value is not None}
    cls.__doc__ = (
        cls.__doc__ or cls.__name__
    )  # Otherwise `dataclass` would build a docstring, slowly.
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(cls)
    methods: dict[str, Any] = {
        "__init__": _compile_on_first_call(cls, "__init__", partial(_init_source, frozen=frozen)),
        "__repr__": _dataclass_repr,
    }
    if eq:
        methods |= {
            "__eq__": _compile_on_first_call(cls, "__eq__", _eq_source),
            "__hash__": _compile_on_first_call(cls, "__hash__", _hash_source) if frozen else None,
        }
    if frozen:
        methods |= {
            "__setattr__": _refuse_assignment,
            "__delattr__": _refuse_assignment,
            "__reduce__": _reduce_to_fields,
        }
    for name in methods.keys() - own:
        setattr(cls, name, methods[name])
    return cls


def _compile_on_first_call(
    cls: Any, name: str, source: Callable[[Any, Fields, Known], str]
) -> Callable[..., Any]:
    """Returns a method that is compiled on its first call and then replaces itself."""

    def compile_and_call(*given: Any, **named: Any) -> Any:
        if vars(cls)[name] is compile_and_call:
            known: Known = {"__set": object.__setattr__, "__missing": MISSING}
            exec(source(cls, dataclasses.fields(cls), known), known)  # noqa: S102 -- of names of fields only
            known[name].__qualname__ = f"{cls.__qualname__}.{name}"
            setattr(cls, name, known[name])
        return vars(cls)[name](*given, **named)

    return compile_and_call


def _init_source(cls: Any, fields: Fields, known: Known, *, frozen: bool) -> str:
    wanted = ", ".join(["self", *(_parameter_source(each, known) for each in fields if each.init)])
    lines = [
        _assignment_source(cls, each, known, frozen=frozen)
        for each in fields
        if each.init or _default_of_field(each) is not MISSING
    ]
    lines += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    return f"def __init__({wanted}):\n " + "\n ".join(lines or ["pass"])


def _default_of_field(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory


def _parameter_source(field: Field[Any], known: Known) -> str:
    if _default_of_field(field) is MISSING:
        return field.name
    known[f"_d_{field.name}"] = _default_of_field(field)
    return f"{field.name}={'__missing' if field.default is MISSING else f'_d_{field.name}'}"


def _assignment_source(cls: Any, field: Field[Any], known: Known, *, frozen: bool) -> str:
    name = value = field.name
    if frozen and (slot := getattr(cls, name, None)).__class__ is MemberDescriptorType:
        known[f"_s_{name}"] = slot.__set__  # Takes two thirds of the time of `object.__setattr__`.
    if not field.init:
        known[f"_d_{name}"], value = _default_of_field(field), f"_d_{name}"
    if field.default_factory is not MISSING:
        value = f"_d_{name}() if {name} is __missing else {name}" if field.init else f"_d_{name}()"
    if frozen:
        return (
            f"_s_{name}(self, {value})"
            if f"_s_{name}" in known
            else f"__set(self, {name!r}, {value})"
        )
    return f"self.{name} = {value}"


def _eq_source(_cls: Any, fields: Fields, _known: Known) -> str:
    names = [each.name for each in fields if each.compare]
    ours, theirs = (
        f"({''.join(f'{value}.{name}, ' for name in names)})" for value in ("self", "other")
    )
    return f"def __eq__(self, other):\n return {ours} == {theirs} if other.__class__ is self.__class__ else NotImplemented"


def _hash_source(_cls: Any, fields: Fields, _known: Known) -> str:
    names = [each.name for each in fields if (each.compare if each.hash is None else each.hash)]
    return f"def __hash__(self):\n return hash(({''.join(f'self.{name}, ' for name in names)}))"


@recursive_repr()
def _dataclass_repr(self: Any) -> str:
    shown = ", ".join(
        f"{each.name}={getattr(self, each.name)!r}"
        for each in dataclasses.fields(self)
        if each.repr
    )
    return f"{type(self).__qualname__}({shown})"


def _refuse_assignment(_self: object, name: str, *_: object) -> None:
    raise FrozenInstanceError(f"cannot change field {name!r}")


def _reduce_to_fields(self: Any) -> tuple[type, tuple[Any, ...]]:
    """Lets pickle call the class with all fields, which takes a third of the time of
    setting each.
    """
    return type(self), tuple([getattr(self, name) for name in _names_of_fields(self.__class__)])


@cache
def _names_of_fields(cls: Any) -> list[str]:
    return [each.name for each in dataclasses.fields(cls) if each.init]
