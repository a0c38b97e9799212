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

    def files_over_limit(self, coverage: CheckpointCoverage) -> int:
        if not coverage.most_files:
            return 0
        return max(0, self.files - coverage.most_files)

    def bytes_over_limit(self, coverage: CheckpointCoverage) -> int:
        if not coverage.most_bytes:
            return 0
        return max(0, self.size_bytes - coverage.most_bytes)

    def is_within_limits(self, coverage: CheckpointCoverage) -> bool:
        return not self.files_over_limit(coverage) and not self.bytes_over_limit(coverage)


def leave_out_beyond_limits(
    found: folder_walk.WalkResult,
    known: folder_walk.KnownRecords,
    coverage: CheckpointCoverage,
    covered: CoveredAmount,
) -> None:
    """Remove from `found` what exceeds the limits. `covered`: the amount of everything known."""
    wanted_bytes = sum(file.size for file in found.wanted)
    amount = CoveredAmount(covered.files + len(found.wanted), covered.size_bytes + wanted_bytes)
    if amount.is_within_limits(coverage):
        return
    for folder, names in found.folders.items():
        amount.add_records(known.get(folder, {}).values(), -1)
        amount.add_records((names or {}).values())
    left_out = _new_then_largest_to_leave_out(
        found.wanted, known, amount.bytes_over_limit(coverage)
    )
    amount.files -= len(left_out)
    left_out |= _most_numerous_to_leave_out(
        found.wanted, known, left_out, amount.files_over_limit(coverage)
    )
    if left_out:
        _leave_out_files(found, known, left_out)


def _leave_out_files(
    found: folder_walk.WalkResult, known: folder_walk.KnownRecords, paths: set[str]
) -> None:
    kept = []
    for file in found.wanted:
        if file.path not in paths:
            kept.append(file)
            continue
        folder, _, _ = file.path.rpartition("/")
        names = found.folders[folder] or {}
        folder_walk.leave_out_file(found, known, file, names, folder_walk.OVER)
    found.wanted = kept
    for folder, uncovered in found.uncovered.items():
        found.uncovered[folder] = _shorten_uncovered_list(folder, uncovered)


def _is_new_file(file: folder_walk.WantedFile, known: folder_walk.KnownRecords) -> bool:
    folder, _, name = file.path.rpartition("/")
    return not known.get(folder, {}).get(name)


def _new_then_largest_to_leave_out(
    wanted: list[folder_walk.WantedFile], known: folder_walk.KnownRecords, excess: int
) -> set[str]:
    def new_then_largest(file: folder_walk.WantedFile) -> tuple[bool, int, str]:
        return not _is_new_file(file, known), -file.size, file.path

    left_out: set[str] = set()
    if excess <= 0:
        return left_out
    for file in sorted(wanted, key=new_then_largest):
        if excess <= 0:
            break
        left_out.add(file.path)
        excess -= file.size
    return left_out


def _most_numerous_to_leave_out(
    wanted: list[folder_walk.WantedFile],
    known: folder_walk.KnownRecords,
    without: set[str],
    excess: int,
) -> set[str]:
    """Choose new files from the folders with the most of them. Covered files do not
    count as new.
    """
    left_out: set[str] = set()
    if excess <= 0:
        return left_out
    paths_by_folder: dict[str, list[str]] = {}
    for file in wanted:
        if file.path not in without and _is_new_file(file, known):
            folder, _, _ = file.path.rpartition("/")
            paths_by_folder.setdefault(folder, []).append(file.path)
    for paths in sorted(paths_by_folder.values(), key=len, reverse=True):
        if len(left_out) >= excess:
            break
        left_out.update(paths)
    return left_out


def _shorten_uncovered_list(folder: str, uncovered: list[UncoveredPath]) -> list[UncoveredPath]:
    """Replace a list of thousands of names by the folder and their number."""
    others = [path for path in uncovered if path.why != folder_walk.OVER]
    over_limit = len(uncovered) - len(others)
    if over_limit <= _NAMED:
        return uncovered
    why = f"files in it over the limit: {over_limit:,}"
    return [*others, UncoveredPath(folder, why, is_beyond_limits=True)]
