"""Creates Qt's enums in a fifth of the time.

PySide6 creates all enums of a class when the class is first used: 4,500 members before the window is furnished. The standard library sets
each member of an enum twice and looks for it in all base classes. Here it creates the empty enum, and the members are added at once.
"""

from __future__ import annotations

import enum
import sys
from typing import Any

_create_by_library = enum.EnumType._create_  # type: ignore[attr-defined]


def _create_enum(cls: Any, class_name: str, names: Any, **options: Any) -> Any:
    known = {name for base in cls.__mro__ for name in vars(base)} | {"mro"}
    if not isinstance(names, list) or any(name in known or name[0] == "_" for name, _ in names):
        return _create_by_library(cls, class_name, names, **options)
    created = _create_by_library(cls, class_name, (), **options)
    _add_members(created, names, is_flag=issubclass(created, enum.Flag))
    return created


def _add_members(created: Any, members: list[tuple[str, int]], *, is_flag: bool) -> None:
    by_name, by_value, order = created._member_map_, created._value2member_map_, created._member_names_
    for name, value in members:
        member = by_value.get(value)
        if member is None:
            member = created._new_member_(created, *((value,) if created._use_args_ else ()))
            vars(member).update(_value_=value, _name_=name, __objclass__=created, _sort_order_=len(order))
            by_value[value] = member
            is_single = not value & (value - 1)
            if not is_flag or (is_single and value):
                order.append(name)
            if is_flag:
                created._flag_mask_ |= value
                created._singles_mask_ |= value if is_single else 0
                created._all_bits_ = 2 ** created._flag_mask_.bit_length() - 1
        by_name[name] = member
        type.__setattr__(created, name, member)
    singles = [member._value_ for member in created] if is_flag else []
    if singles != sorted(singles):
        created._iter_member_ = created._iter_member_by_def_


if sys.version_info[:2] == (3, 11):  # Others keep other things in an enum, and set a member once.
    enum.EnumType._create_ = _create_enum  # type: ignore[attr-defined]
