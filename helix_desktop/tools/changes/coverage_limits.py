"""Leaves out files beyond the limits of checkpoints: new ones, the largest first.
Covered ones stay.
"""

from collections.abc import Iterable

from helix_desktop.engine.changes.folder_state import PathKind, TreeItem, unpack_item
from helix_desktop.engine.changes.turn_changes import UncoveredPath
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes import folder_walk
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage

_NAMED = 20  # The maximum number of uncovered files that are named for each folder.


@dataclass(slots=True)
class CoveredAmount:
    files: int = 0
    size_bytes: int = 0

    def add_records(self, records: Iterable[bytes], sign: int = 1) -> None:
        for record in records:
            self.add_item(unpack_item(record[folder_walk.STAMP.size :]), sign)

    def add_item(self, item: TreeItem | None, sign: int = 1) -> None:
        if item is not None and item.kind is PathKind.FILE:
            self.files += sign
            self.size_bytes += sign * item.size

    def is_within_limits(self, coverage: CheckpointCoverage) -> bool:
        too_many = coverage.most_files and self.files > coverage.most_files
        return not too_many and not (coverage.most_bytes and self.size_bytes > coverage.most_bytes)


def leave_out_beyond_limits(
    found: folder_walk.WalkResult,
    known: folder_walk.KnownRecords,
    coverage: CheckpointCoverage,
    covered: CoveredAmount,
) -> None:
    """Remove from `found` what exceeds the limits. `covered`: the amount of everything known."""
    amount = CoveredAmount(
        covered.files + len(found.wanted),
        covered.size_bytes + sum(one.size for one in found.wanted),
    )
    if amount.is_within_limits(coverage):
        return
    for folder, names in found.folders.items():
        amount.add_records(known.get(folder, {}).values(), -1)
        amount.add_records((names or {}).values())
    out: set[str] = set()
    if coverage.most_bytes and amount.size_bytes > coverage.most_bytes:
        out |= _new_then_largest_to_leave_out(
            found.wanted, known, amount.size_bytes - coverage.most_bytes
        )
    if coverage.most_files and amount.files - len(out) > coverage.most_files:
        out |= _most_numerous_to_leave_out(
            found.wanted, known, out, amount.files - len(out) - coverage.most_files
        )
    if not out:
        return
    for one in found.wanted:
        if one.path in out:
            folder = one.path.rpartition("/")[0]
            folder_walk.leave_out_file(
                found, known, one, found.folders[folder] or {}, folder_walk.OVER
            )
    found.wanted = [one for one in found.wanted if one.path not in out]
    for folder, left in found.uncovered.items():
        found.uncovered[folder] = _shorten_uncovered_list(folder, left)


def _is_new_file(one: folder_walk.WantedFile, known: folder_walk.KnownRecords) -> bool:
    folder, _, name = one.path.rpartition("/")
    return not known.get(folder, {}).get(name)


def _new_then_largest_to_leave_out(
    wanted: list[folder_walk.WantedFile], known: folder_walk.KnownRecords, excess: int
) -> set[str]:
    out: set[str] = set()
    for one in sorted(wanted, key=lambda one: (not _is_new_file(one, known), -one.size, one.path)):
        if excess <= 0:
            break
        out.add(one.path)
        excess -= one.size
    return out


def _most_numerous_to_leave_out(
    wanted: list[folder_walk.WantedFile],
    known: folder_walk.KnownRecords,
    without: set[str],
    excess: int,
) -> set[str]:
    """Choose new files from the folders with the most of them. Covered files do not
    count as new.
    """
    by_folder: dict[str, list[str]] = {}
    for one in wanted:
        if one.path not in without and _is_new_file(one, known):
            by_folder.setdefault(one.path.rpartition("/")[0], []).append(one.path)
    out: set[str] = set()
    for paths in sorted(by_folder.values(), key=len, reverse=True):
        if len(out) >= excess:
            break
        out.update(paths)
    return out


def _shorten_uncovered_list(folder: str, left: list[UncoveredPath]) -> list[UncoveredPath]:
    """Replace a list of thousands of names by the folder and their number."""
    over = [one for one in left if one.why == folder_walk.OVER]
    if len(over) <= _NAMED:
        return left
    return [
        *(one for one in left if one.why != folder_walk.OVER),
        UncoveredPath(folder, f"files in it over the limit: {len(over):,}", is_beyond_limits=True),
    ]
