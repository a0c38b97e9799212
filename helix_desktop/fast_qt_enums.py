"""Creates Qt's enums in a fifth of the time.

PySide6 creates all enums of a class when the class is first used: 4,500 members before the window is furnished. The standard library sets
each member of an enum twice and looks for it in all base classes. Here it creates the empty enum, and the members are added at once.
"""

import enum
import sys
from typing import Any

_create_by_library = enum.EnumType._create_  # type: ignore[attr-defined]


def _create_enum(cls: Any, class_name: str, names: Any, **options: Any) -> Any:
    known = {name for base in cls.__mro__ for name in vars(base)} | {"mro"}
    is_plain = isinstance(names, list) and not issubclass(cls, enum.Flag)
    if not is_plain or any(name in known or name[0] == "_" for name, _ in names):
        return _create_by_library(cls, class_name, names, **options)
    created = _create_by_library(cls, class_name, (), **options)
    members = created._value2member_map_
    for name, value in names:
        if value not in members:
            member = members[value] = created._new_member_(created, *((value,) if created._use_args_ else ()))
            vars(member).update(_value_=value, _name_=name, __objclass__=created, _sort_order_=len(members) - 1)
            created._member_names_.append(name)
        created._member_map_[name] = members[value]
        type.__setattr__(created, name, members[value])
    return created


if sys.version_info[:2] == (3, 11):  # Others keep other things in an enum, and set a member once.
    enum.EnumType._create_ = _create_enum  # type: ignore[attr-defined]
