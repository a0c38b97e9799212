from __future__ import annotations

import json

import pytest

from helix_desktop.tools.autorun_files import extract_runnable_text, is_autorun_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".git/config", True), ("a/.git/hooks/x", True), (".GIT/x", True), (".envrc", True), ("a/b/.vscode/tasks.json", True), (".vscode", False), (".cargo/config.toml", True),
        (".cargo/registry/x", False), (".config/autostart/x", True), (".config/x", False), ("lefthook-local.yml", True), ("src/a.py", False), ("git/config", False), ("package.json", True),
    ],
)  # fmt: skip
def test_names_of_files_that_are_run_later(path: str, *, expected: bool) -> None:
    assert is_autorun_path(path) is expected


def package(**scripts: str) -> bytes:
    return json.dumps({"scripts": scripts, "dependencies": {"a": "1"}}).encode()


def test_of_a_packages_scripts_what_runs_by_itself_or_was_changed_counts() -> None:
    assert not extract_runnable_text("package.json", package(dev="x", build="y"))
    assert extract_runnable_text("package.json", package(postinstall="x"))
    assert extract_runnable_text("package.json", package(test="x", pretest="y"))
    assert extract_runnable_text("package.json", package(test="y"), package(test="x"))
    assert not extract_runnable_text("package.json", package(test="x", dev="y"), package(test="x"))
    assert not extract_runnable_text(
        "package.json", package(postinstall="x", dev="y"), package(postinstall="x")
    )
    assert extract_runnable_text("package.json", b"not json")
    assert extract_runnable_text(".envrc", b"x")
    assert not extract_runnable_text(".envrc", b" \n")
