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


# What each of these programs runs of a folder without asking: when an editor opens it, when a shell,
# an interpreter or a build tool is started in it.
@pytest.mark.parametrize(
    "path",
    [
        "hie.yaml", "buildServer.json", "tools/bazel", ".ycm_extra_conf.py", ".lintr", ".latexmkrc", "latexmkrc", "ansible.cfg",
        ".iex.exs", ".ocamlinit", ".luacheckrc", ".rubocop.yml", ".solargraph.yml", ".yardopts", ".byebugrc", ".standard.yml",
        ".credo.exs", ".formatter.exs", ".psysh.php", ".php-cs-fixer.php", ".php-cs-fixer.dist.php", ".markdownlint.cjs",
        ".markdownlint-cli2.jsonc", "cspell.config.mjs", ".textlintrc.js", ".remarkrc.mjs", ".graphqlrc.ts", "graphql.config.js",
        "tailwind.config.ts", "svelte.config.js", "postcss.config.mjs", ".postcssrc", ".tern-project", "config.nims", ".proverc",
        "analysis_options.yaml", "omnisharp.json", "Directory.Build.props", "Directory.Build.targets", ".golangci.yml",
        ".tflint.hcl", ".pants.rc", ".buckconfig.local", "site_scons/site_init.py", ".luarocks/config-5.4.lua", ".chef/knife.rb",
        ".lsp/config.edn", "gptme.toml", ".tabnine/mcp_servers.json", ".vibe/config.toml", ".grok/settings.json",
        ".copilot/config.json", ".run/x.run.xml", ".ipython/profile_default/startup/x.py", ".vimspector.json", ".pdm-python",
        "mypy.ini", ".mypy.ini", ".flake8", ".eslintrc", ".eslintrc.json", ".prettierrc", ".prettierrc.ts", ".stylelintrc.yaml",
        "default.nix", "manifest.scm", "guix.scm", ".config/zed/settings.json", ".config/plasma-workspace/env/x.sh",
        ".config/alacritty/alacritty.toml", ".local/share/dbus-1/services/x.service", "Library/LaunchAgents/x.plist",
        ".gradle/init.d/x.gradle", ".docker/config.json", ".kube/config", ".aws/config", "gtags.conf",
    ],
)  # fmt: skip
def test_what_an_opened_folder_makes_programs_run_counts_in_every_spelling(path: str) -> None:
    for spelling in (path, f"deep/down/{path}", path.upper(), path.swapcase()):
        assert is_autorun_path(spelling), spelling


@pytest.mark.parametrize(
    "path",
    ["vite.config.ts", "Makefile", "src/tools/bazel.py", "aws/config.py", "config/x", "docs/prettierrc.md", "a/run/b.xml",
     "pyproject.toml", "Cargo.toml", "build.gradle", "site/scons.py", "tests/conftest.py", ".github/workflows/ci.yml"],
)  # fmt: skip
def test_a_projects_own_code_is_no_file_that_runs_by_itself(path: str) -> None:
    assert not is_autorun_path(path)
