"""Text from elsewhere stays in its fence."""

from __future__ import annotations

from helix_desktop.engine.code_fences import wrap_in_code_fence


def test_a_fence_is_longer_than_any_in_the_text() -> None:
    assert wrap_in_code_fence("a\n```\n# not a heading") == "````\na\n```\n# not a heading\n````"
    assert wrap_in_code_fence("print()\n", "python") == "```python\nprint()\n```"
