"""What the window's annotations name is there when the program runs, and nothing else."""

from __future__ import annotations

import pytest

from helix_desktop.gui import workbench_types


def test_each_name_is_a_class_and_any_other_is_missing() -> None:
    for name in workbench_types.__all__:
        assert isinstance(getattr(workbench_types, name), type)
    with pytest.raises(AttributeError, match="Workhorse"):
        _ = workbench_types.Workhorse  # type: ignore[attr-defined]
