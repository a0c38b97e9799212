"""Leaves out files beyond the limits of checkpoints: new ones, the largest first.
Covered ones stay.
"""

from collections.abc import Iterable
from operator import attrgetter

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
    walk_result: folder_walk.WalkResult,
    known_records: folder_walk.KnownRecords,
    coverage: CheckpointCoverage,
    covered: CoveredAmount,
) -> None:
    """Remove from `walk_result` what exceeds the limits. `covered`: the amount of everything known.

    `wanted` are the files whose content is to be stored. Those that are in the result replace what
    was known of their folders, so that is not counted twice. First so many are left out that the
    bytes fit, then so many that their number does.
    """
    wanted = walk_result.wanted
    file_count = covered.files + len(wanted)
    size_bytes = covered.size_bytes + sum(file.size for file in wanted)
    amount = CoveredAmount(file_count, size_bytes)
    if amount.is_within_limits(coverage):
        return
    for folder, names in walk_result.folders.items():
        records_before = known_records.get(folder, {})
        records_now = names or {}
        amount.add_records(records_before.values(), -1)
        amount.add_records(records_now.values())
    bytes_over_limit = amount.bytes_over_limit(coverage)
    left_out = _new_then_largest_to_leave_out(wanted, known_records, bytes_over_limit)
    amount.files -= len(left_out)
    files_over_limit = amount.files_over_limit(coverage)
    left_out |= _most_numerous_to_leave_out(wanted, known_records, left_out, files_over_limit)
    if left_out:
        _leave_out_files(walk_result, known_records, left_out)


def _leave_out_files(
    walk_result: folder_walk.WalkResult, known_records: folder_walk.KnownRecords, paths: set[str]
) -> None:
    """Take these files out of the result, and name them as not covered."""
    files_within_limits = []
    for file in walk_result.wanted:
        if file.path not in paths:
            files_within_limits.append(file)
            continue
        folder, _, _ = file.path.rpartition("/")
        names = walk_result.folders[folder] or {}
        folder_walk.leave_out_file(walk_result, known_records, file, names, folder_walk.OVER)
    walk_result.wanted = files_within_limits
    for folder, uncovered in walk_result.uncovered.items():
        walk_result.uncovered[folder] = _shorten_uncovered_list(folder, uncovered)


def _is_new_file(file: folder_walk.WantedFile, known_records: folder_walk.KnownRecords) -> bool:
    folder, _, name = file.path.rpartition("/")
    return not known_records.get(folder, {}).get(name)


def _new_then_largest_to_leave_out(
    wanted_files: list[folder_walk.WantedFile],
    known_records: folder_walk.KnownRecords,
    bytes_to_leave_out: int,
) -> set[str]:
    """Choose files until so many bytes are left out: new ones first, and of these the largest."""
    new_files = []
    covered_files = []
    for file in sorted(wanted_files, key=attrgetter("path")):
        if _is_new_file(file, known_records):
            new_files.append(file)
        else:
            covered_files.append(file)
    new_files.sort(key=attrgetter("size"), reverse=True)
    covered_files.sort(key=attrgetter("size"), reverse=True)

    left_out: set[str] = set()
    bytes_left_out = 0
    for file in new_files + covered_files:
        if bytes_left_out >= bytes_to_leave_out:
            break
        left_out.add(file.path)
        bytes_left_out += file.size
    return left_out


def _most_numerous_to_leave_out(
    wanted_files: list[folder_walk.WantedFile],
    known_records: folder_walk.KnownRecords,
    already_left_out: set[str],
    files_to_leave_out: int,
) -> set[str]:
    """Choose new files from the folders with the most of them. Covered files do not
    count as new.
    """
    left_out: set[str] = set()
    if files_to_leave_out <= 0:
        return left_out
    paths_by_folder: dict[str, list[str]] = {}
    for file in wanted_files:
        if file.path not in already_left_out and _is_new_file(file, known_records):
            folder, _, _ = file.path.rpartition("/")
            paths_by_folder.setdefault(folder, []).append(file.path)
    for paths in sorted(paths_by_folder.values(), key=len, reverse=True):
        if len(left_out) >= files_to_leave_out:
            break
        left_out.update(paths)
    return left_out


def _shorten_uncovered_list(folder: str, uncovered: list[UncoveredPath]) -> list[UncoveredPath]:
    """Replace a list of thousands of names by the folder and their number."""
    others = [path for path in uncovered if path.why != folder_walk.OVER]
    over_limit_count = len(uncovered) - len(others)
    if over_limit_count <= _NAMED:
        return uncovered
    summary = f"files in it over the limit: {over_limit_count:,}"
    return [*others, UncoveredPath(folder, summary, is_beyond_limits=True)]
