"""Finds files in a workspace's folders. It blocks, so it is called in threads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def existing_folders(folders: Sequence[Any]) -> list[str]:
    return [str(folder) for folder in folders if Path(str(folder)).is_dir()]


def find_paths_below(folder: Path, wanted: str, limit: int) -> list[str]:
    """The shortest first. Breadth first, without hidden ones, some thousands of places at most."""
    found: list[str] = []
    waiting, looked = [folder], 0
    while waiting and looked < 20_000 and len(found) < limit * 5:
        place = waiting.pop(0)
        try:
            inside = sorted(place.iterdir())
        except OSError:
            continue
        for path in inside:
            looked += 1
            if path.name.startswith(".") or path.is_symlink():
                continue
            if path.is_dir():
                waiting.append(path)
            name = path.relative_to(folder).as_posix()
            if wanted in name.lower():
                found.append(name)
    return sorted(found, key=lambda name: (len(name), name))[:limit]
