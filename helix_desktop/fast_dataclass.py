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
        if cls is not None:
            return _declare_dataclass(cls, **options)
        return partial(_declare_dataclass, **options)


def _declare_dataclass(
    cls: type, *, eq: bool = True, frozen: bool = False, order: bool = False, **options: bool
) -> type:
    """Declares a dataclass. Methods that the class lacks are compiled by their first call."""
    if order:
        return dataclasses.dataclass(eq=eq, frozen=frozen, order=True, **options)(cls)
    own = {name for name, value in vars(cls).items() if value is not None}
    if not cls.__doc__:
        cls.__doc__ = cls.__name__  # Otherwise `dataclass` would build a docstring, slowly.
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(cls)
    methods: dict[str, Any] = {
        "__init__": _compile_on_first_call(cls, "__init__", partial(_init_source, frozen=frozen)),
        "__repr__": _dataclass_repr,
    }
    if eq:
        methods["__eq__"] = _compile_on_first_call(cls, "__eq__", _eq_source)
        methods["__hash__"] = None  # What can change is no key of a dictionary.
    if eq and frozen:
        methods["__hash__"] = _compile_on_first_call(cls, "__hash__", _hash_source)
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
    parameters = ["self"]
    lines: list[str] = []
    for field in fields:
        if field.init:
            parameters.append(_parameter_source(field, known))
        if field.init or _default_of_field(field) is not MISSING:
            lines.append(_assignment_source(cls, field, known, frozen=frozen))
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    if not lines:
        lines.append("pass")
    return f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines)


def _default_of_field(field: Field[Any]) -> object:
    if field.default_factory is MISSING:
        return field.default
    return field.default_factory


def _parameter_source(field: Field[Any], known: Known) -> str:
    if _default_of_field(field) is MISSING:
        return field.name
    name_of_default = f"_d_{field.name}"
    known[name_of_default] = _default_of_field(field)
    if field.default is MISSING:  # Its factory is called in the body, once for each instance.
        return f"{field.name}=__missing"
    return f"{field.name}={name_of_default}"


def _assignment_source(cls: Any, field: Field[Any], known: Known, *, frozen: bool) -> str:
    name = field.name
    value = _value_source(field, known)
    if not frozen:
        return f"self.{name} = {value}"
    slot = getattr(cls, name, None)
    if isinstance(slot, MemberDescriptorType):
        known[f"_s_{name}"] = slot.__set__  # Takes two thirds of the time of `object.__setattr__`.
        return f"_s_{name}(self, {value})"
    return f"__set(self, {name!r}, {value})"


def _value_source(field: Field[Any], known: Known) -> str:
    """Returns the expression whose value the field gets: its parameter, or its default."""
    name = field.name
    has_factory = field.default_factory is not MISSING
    if field.init and has_factory:
        return f"_d_{name}() if {name} is __missing else {name}"
    if field.init:
        return name
    known[f"_d_{name}"] = _default_of_field(field)
    if has_factory:
        return f"_d_{name}()"
    return f"_d_{name}"


def _eq_source(_cls: Any, fields: Fields, _known: Known) -> str:
    names = [field.name for field in fields if field.compare]
    ours = "".join(f"self.{name}, " for name in names)
    theirs = "".join(f"other.{name}, " for name in names)
    return f"def __eq__(self, other):\n return ({ours}) == ({theirs}) if other.__class__ is self.__class__ else NotImplemented"


def _hash_source(_cls: Any, fields: Fields, _known: Known) -> str:
    values = ""
    for field in fields:
        is_hashed = field.hash
        if is_hashed is None:
            is_hashed = field.compare
        if is_hashed:
            values += f"self.{field.name}, "
    return f"def __hash__(self):\n return hash(({values}))"


@recursive_repr()
def _dataclass_repr(self: Any) -> str:
    shown: list[str] = []
    for field in dataclasses.fields(self):
        if field.repr:
            shown.append(f"{field.name}={getattr(self, field.name)!r}")
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_assignment(_self: object, name: str, *_: object) -> None:
    raise FrozenInstanceError(f"cannot change field {name!r}")


def _reduce_to_fields(self: Any) -> tuple[type, tuple[Any, ...]]:
    """Lets pickle call the class with all fields, which takes a third of the time of
    setting each.
    """
    values = [getattr(self, name) for name in _names_of_fields(self.__class__)]
    return type(self), tuple(values)


@cache
def _names_of_fields(cls: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(cls) if field.init]
