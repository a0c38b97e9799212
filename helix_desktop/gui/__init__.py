"""The desktop window. It listens to the journal and calls session commands; the layers below must not import it.

Importing it makes PySide6 load faster, so `window_start.py` imports it before PySide6.
"""

import builtins
import enum
import sys
from typing import Any

_create_checked_enum: Any = vars(enum.EnumType).get("_create_")
_declare_without_checks: Any = vars(enum).get("_simple_enum")
_class_bodies: dict[Any, dict[str, Any]] = {}  # What all enums of one kind have in common.


def _create_enum(cls: Any, class_name: str, names: Any, **options: Any) -> Any:
    """Declares an enum of PySide6, which gives a list of pairs, without checks: in a quarter of the time."""
    module = options["module"] or sys._getframe(2).f_globals.get("__name__")  # noqa: SLF001
    has_pairs = isinstance(names, list) and not isinstance([*names, ()][0], str)
    if options["module"] or options["type"] or not has_pairs:
        return _create_checked_enum(cls, class_name, names, **{**options, "module": module})
    if cls not in _class_bodies:
        declared = vars(_declare_without_checks(cls)(type("empty", (), {})))
        _class_bodies[cls] = {name: declared[name] for name in declared.keys() - {"__dict__", "__weakref__"}}
    own: dict[str, Any] = {"__module__": module, "__doc__": None, "_unhashable_values_": []}
    own |= {"_member_names_": [], "_member_map_": {}, "_value2member_map_": {}}
    created = type.__new__(type(cls), class_name, (cls,), {**_class_bodies[cls], **own})
    if issubclass(cls, enum.Flag):
        type.__setattr__(created, "_boundary_", options["boundary"] or cls._boundary_)
    _add_enum_members(created, names)
    return created


def _add_enum_members(created: Any, pairs: list[tuple[str, int]]) -> None:
    """Adds the members as attributes of the class, as Python does from 3.12 on: each use of one is faster, too."""
    new, takes_value, is_flag = created._new_member_, created._use_args_, issubclass(created, enum.Flag)
    by_value, by_name, names = created._value2member_map_, created._member_map_, created._member_names_
    every_bit = single_bits = 0
    for name, value in pairs:
        if (member := by_value.get(value)) is None:
            member = by_value[value] = new(created, value) if takes_value else new(created)
            order = len(names)
            vars(member).update(_value_=value, _name_=name, __objclass__=created, _sort_order_=order)
            every_bit |= value
            if not is_flag or (value > 0 and value.bit_count() == 1):
                names.append(name)
                single_bits |= value
        by_name[name] = member
        type.__setattr__(created, name, member)
    if is_flag:
        values = [by_name[name]._value_ for name in names]
        masks = {
            "_flag_mask_": every_bit,
            "_singles_mask_": single_bits,
            "_all_bits_": (1 << every_bit.bit_length()) - 1,
        }
        by_order = {"_iter_member_": created._iter_member_by_def_} if values != sorted(values) else {}
        for name, mask in {**masks, **by_order}.items():
            type.__setattr__(created, name, mask)


if sys.version_info < (3, 14) and _create_checked_enum and _declare_without_checks:  # Later ones were not tried.
    setattr(enum.EnumType, "_create_", _create_enum)  # noqa: B010
import PySide6.QtCore  # noqa: E402 -- The first one names the library that is missing.
import PySide6.QtWidgets  # noqa: E402, F401

# PySide6 replaces Python's import function with one that reads each module's source, to look for Qt's names.
# Our modules need no such check, so Python's own function is restored. This saves 10 MB, and 80 ms at the start.
builtins.__import__ = getattr(builtins, "__orig_import__", builtins.__import__)
