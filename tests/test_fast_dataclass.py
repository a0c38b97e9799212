"""Our `dataclass` beside the library's: the same class declared twice does the same."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, cast

import pytest

from helix_desktop import fast_dataclass

Declare = Callable[..., Any]


def both(declare: Callable[[Declare], Any]) -> tuple[Any, Any]:
    return declare(fast_dataclass.dataclass), declare(dataclasses.dataclass)


def point(declare: Declare, **options: bool) -> Any:
    class Point:
        x: int
        y: int = 2
        names: list[str] = field(default_factory=list, compare=False)
        hidden: int = field(default=7, repr=False, hash=False)
        seen: dict[str, int] = field(default_factory=dict, init=False, compare=False)

    return declare(**options)(Point)


OPTIONS = [{}, {"slots": True}, {"frozen": True}, {"frozen": True, "slots": True}, {"eq": False}, {"order": True}]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_value_is_made_compared_shown_and_changed_as_the_librarys(
    options: dict[str, bool],
) -> None:
    ours, theirs = both(lambda declare: point(declare, **options))

    def answers(kind: Any) -> list[object]:
        one = kind(x=1)
        two = kind(x=1, names=["a"])
        other = dataclasses.replace(one, x=3, hidden=8)
        return [
            repr(one), repr(other), one == two, one != other, one == (1, 2), kind.__match_args__, dataclasses.asdict(two),
            one.names is two.names, one.seen, hasattr(one, "__dict__"), kind.__hash__ is None, attempt(lambda: hash(one) == hash(two)),
            attempt(lambda: setattr(one, "x", 5)), attempt(lambda: delattr(two, "y")), repr(one), attempt(lambda: kind(1, 2, 3, 4, 5, 6)),
            attempt(kind), copy.copy(other) == other, repr(copy.deepcopy(other)),
        ]  # fmt: skip

    assert answers(ours) == answers(theirs)


def attempt(act: Callable[[], object]) -> object:
    try:
        return act()
    except (TypeError, AttributeError) as error:
        return type(error)


def test_what_the_class_says_itself_is_left() -> None:
    def declare(made: Declare) -> Any:
        @made(frozen=True, slots=True)
        class Own:  # noqa: PLW1641 -- it gets one
            x: int

            def __repr__(self) -> str:
                return "own"

            def __eq__(self, other: object) -> bool:
                return True

            def __post_init__(self) -> None:
                if self.x < 0:
                    raise ValueError

        return Own

    for kind in both(declare):
        assert repr(kind(1)) == "own"
        assert kind(1) == kind(2)
        assert hash(kind(1)) == hash(kind(1))
        with pytest.raises(ValueError, match=r"^$"):
            kind(-1)


def test_a_class_under_another_has_the_fields_of_both() -> None:
    def declare(made: Declare) -> Any:
        @made(frozen=True, slots=True)
        class Base:
            a: int
            b: str = "b"

        @made(frozen=True, slots=True)
        class Under(Base):
            c: int = 3

        base = cast("Any", Base)
        under = cast("Any", Under)
        shown = [repr(value).rpartition(".")[2] for value in (under(1), base(2))]
        return [shown, under(1) == under(1, "b", 3), base(1) == under(1)]

    ours, theirs = both(declare)
    assert ours == theirs


def test_a_class_without_fields_and_one_that_holds_itself() -> None:
    def declare(made: Declare) -> Any:
        @made(frozen=True, slots=True)
        class Empty:
            pass

        @made(slots=True)
        class Ring:
            next: Any = None

        ring = Ring()
        ring.next = ring
        return [
            Empty() == Empty(),
            hash(Empty()) == hash(Empty()),
            repr(Empty())[-7:],
            repr(ring).count("Ring"),
        ]

    ours, theirs = both(declare)
    assert ours == theirs


@fast_dataclass.dataclass(frozen=True, slots=True)
class Packed:
    x: int
    y: tuple[int, ...] = ()


@fast_dataclass.dataclass(frozen=True, slots=True)
class Holder:
    x: int
    held: tuple[Packed, ...] = ()


def test_a_value_can_be_pickled_and_copied() -> None:
    for value in (Packed(1, (2,)), Holder(3, held=(Packed(1), Packed(2, (3,))))):
        assert (
            pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == copy.copy(value) == value  # noqa: S301 -- our own
        )
