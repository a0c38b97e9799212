"""Finds the files that ship with the program: `resources/` beside the package, or inside an installed one."""

import sys
from pathlib import Path


def resources_folder() -> Path:
    package = Path(__file__).parent
    bundled = Path(getattr(sys, "_MEIPASS", package)) / "resources"
    for place in (package.parent / "resources", package / "resources", bundled):
        if place.is_dir():
            return place
    raise FileNotFoundError(f"the resources folder is missing beside {package}")
