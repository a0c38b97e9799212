"""Checks what an extension declares, and offers it where the program's own things are offered.

Either all of a declaration is offered, or nothing of it. What is checked of each kind of thing, and
where it is offered, is declared in `offered_kinds.py`.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from helix_desktop.errors import HelixError
from helix_desktop.extensions.extension_interfaces import INTERFACE_VERSION, Extension
from helix_desktop.extensions.installed_extensions import InstalledExtension
from helix_desktop.extensions.limited_calls import ExtensionFailed
from helix_desktop.extensions.offered_kinds import (
    OFFERED_KINDS,
    OfferedKind,
    check_name,
    check_title,
)
from helix_desktop.extensions.running_extension import RunningExtension, Withdraw

MOST_OF_A_KIND = 50


def check_declaration(installed: InstalledExtension, declared: Extension) -> Extension:
    """Check all that no other part of the program checks. Returns a copy that cannot change.

    Raises ExtensionFailed with the end of the sentence "The extension X was switched off: …".
    """
    if declared.interface != INTERFACE_VERSION:
        raise ExtensionFailed(
            f"it was written for version {declared.interface!r} of the interface, and this program has version {INTERFACE_VERSION}"
        )
    check_name("entry point", installed.name)
    check_title("its title", declared.title)
    things_by_field: dict[str, Any] = {}
    for kind in OFFERED_KINDS:
        things_by_field[kind.field] = _copy_some(kind, getattr(declared, kind.field))
    for kind in OFFERED_KINDS:
        _check_things(installed, kind, things_by_field[kind.field])
    return Extension(declared.title, **things_by_field)


def _copy_some(kind: OfferedKind, declared: Iterable[object]) -> tuple[Any, ...]:
    """Return the declared things. They may come from an iterator that never ends."""
    things = tuple(islice(declared, MOST_OF_A_KIND + 1))
    if len(things) > MOST_OF_A_KIND:
        raise ExtensionFailed(f"it declares more than {MOST_OF_A_KIND} {kind.plural}")
    for thing in things:
        if type(thing) is not kind.declared_type:
            raise ExtensionFailed(
                f"one of its {kind.plural} is no {kind.declared_type.__name__}, but {type(thing).__name__}"
            )
    return things


def _check_things(installed: InstalledExtension, kind: OfferedKind, things: Iterable[Any]) -> None:
    names: set[str] = set()
    for thing in things:
        kind.check(installed, thing)
        name = kind.name_of(thing)
        if name in names:
            raise ExtensionFailed(f"it declares the {kind.title} {name} twice")
        names.add(name)


def offer_declared_things(extension: RunningExtension) -> list[Withdraw]:
    """Offer what is not asked for at each call, as tools are. Returns how it is withdrawn."""
    withdraws: list[Withdraw] = []
    try:
        for kind in OFFERED_KINDS:
            if kind.offer is None:
                continue
            for thing in getattr(extension.declared, kind.field):
                withdraws.append(kind.offer(extension, thing))
    except HelixError as error:
        for withdraw in withdraws:
            withdraw()
        raise ExtensionFailed(error.what.rstrip(".")) from error
    return withdraws
