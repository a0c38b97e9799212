"""What goes beyond the limits of checkpoints is left out: what is new first, and the largest of it first. The rest stays covered."""

from __future__ import annotations

from collections.abc import Iterable

from helix_desktop.engine.changes import tree
from helix_desktop.engine.changes.tree import Item, Kind
from helix_desktop.tools.changes.coverage import Coverage
from helix_desktop.tools.changes.walk import OVER, STAMP, Found, Known, Left, Wanted, leave_file_out
from helix_desktop.values import dataclass

_NAMED = 20  # files of a folder that are named one by one


@dataclass(slots=True)
class Amount:
    """How much is covered."""

    files: int = 0
    size_bytes: int = 0

    def add_records(self, records: Iterable[bytes], sign: int = 1) -> None:
        for record in records:
            self.add_item(tree.unpack(record[STAMP.size :]), sign)

    def add_item(self, item: Item | None, sign: int = 1) -> None:
        if item is not None and item.kind is Kind.FILE:
            self.files += sign
            self.size_bytes += sign * item.size

    def is_within(self, coverage: Coverage) -> bool:
        too_many = coverage.most_files and self.files > coverage.most_files
        return not too_many and not (coverage.most_bytes and self.size_bytes > coverage.most_bytes)


def leave_excess_out(found: Found, known: Known, coverage: Coverage, covered: Amount) -> None:
    """Take out of what was found what would go beyond the limits. `covered`: all that is known."""
    amount = Amount(covered.files + len(found.wanted), covered.size_bytes + sum(one.size for one in found.wanted))
    if amount.is_within(coverage):
        return
    for folder, names in found.folders.items():
        amount.add_records(known.get(folder, {}).values(), -1)
        amount.add_records((names or {}).values())
    out: set[str] = set()
    if coverage.most_bytes and amount.size_bytes > coverage.most_bytes:
        out |= _largest(found.wanted, known, amount.size_bytes - coverage.most_bytes)
    if coverage.most_files and amount.files - len(out) > coverage.most_files:
        out |= _fullest(found.wanted, known, out, amount.files - len(out) - coverage.most_files)
    if not out:
        return
    for one in found.wanted:
        if one.path in out:
            folder = one.path.rpartition("/")[0]
            leave_file_out(found, known, one, found.folders[folder] or {}, OVER)
    found.wanted = [one for one in found.wanted if one.path not in out]
    for folder, left in found.left.items():
        found.left[folder] = _by_folder(folder, left)


def _is_new(one: Wanted, known: Known) -> bool:
    folder, _, name = one.path.rpartition("/")
    return not known.get(folder, {}).get(name)


def _largest(wanted: list[Wanted], known: Known, excess: int) -> set[str]:
    out: set[str] = set()
    for one in sorted(wanted, key=lambda one: (not _is_new(one, known), -one.size, one.path)):
        if excess <= 0:
            break
        out.add(one.path)
        excess -= one.size
    return out


def _fullest(wanted: list[Wanted], known: Known, without: set[str], excess: int) -> set[str]:
    """New files of the folders that have most of them; a file that was covered is no further file."""
    by_folder: dict[str, list[str]] = {}
    for one in wanted:
        if one.path not in without and _is_new(one, known):
            by_folder.setdefault(one.path.rpartition("/")[0], []).append(one.path)
    out: set[str] = set()
    for paths in sorted(by_folder.values(), key=len, reverse=True):
        if len(out) >= excess:
            break
        out.update(paths)
    return out


def _by_folder(folder: str, left: list[Left]) -> list[Left]:
    """Thousands of names say nothing: then it is the folder, with their number."""
    over = [one for one in left if one.why == OVER]
    if len(over) <= _NAMED:
        return left
    return [
        *(one for one in left if one.why != OVER),
        Left(folder, f"{len(over):,} files in it are over the limit", is_beyond_limits=True),
    ]
