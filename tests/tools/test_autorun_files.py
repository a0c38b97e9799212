from __future__ import annotations

import json

import pytest

from helix_desktop.tools.autorun_files import (
    changes_what_runs,
    extract_runnable_text,
    is_autorun_path,
)


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
        "mypy.ini", ".mypy.ini", ".flake8", "pylintrc.toml", ".pylintrc.toml", ".eslintrc", ".eslintrc.json", ".prettierrc", ".prettierrc.ts", ".stylelintrc.yaml",
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
     "Cargo.toml", "build.gradle", "site/scons.py", "tests/conftest.py", ".github/workflows/ci.yml"],
)  # fmt: skip
def test_a_projects_own_code_is_no_file_that_runs_by_itself(path: str) -> None:
    assert not is_autorun_path(path)


PROJECT = '[project]\nname = "x"\ndependencies = ["a"]\n[tool.mypy]\nstrict = true\n[tool.poetry.plugins.x]\na = "b"\n'
SETUP = "[metadata]\nname = x\n[mypy]\nstrict = true\n[flake8]\nmax-line-length = 100\n"


@pytest.mark.parametrize(
    ("name", "before", "added"),
    [
        ("pyproject.toml", "[tool.mypy]\nstrict = true\n", 'plugins = ["x.py"]\n'),
        ("pyproject.toml", "[project]\n", '[tool.mypy]\nplugins = "x.py"\n'),
        ("pyproject.toml", PROJECT, '[tool.pylint]\ninit-hook = "x"\n'),
        ("pyproject.toml", PROJECT, '[tool.pylint.main]\ninit_hook = "x"\n'),
        ("pyproject.toml", PROJECT, '[tool.pylint.MASTER]\nload-plugins = ["x"]\n'),
        ("pyproject.toml", PROJECT, '[tool."p\\u0079lint".main]\n"init\\u002dhook" = "x"\n'),
        ("pyproject.toml", "", 'tool.pylint.main.init-hook = "x"\n'),
        ("pyproject.toml", "", '[tool]\nmypy = {python_executable = "./x"}\n'),
        ("pyproject.toml", "", '[tool.pylsp-mypy]\nmypy_command = ["x"]\n'),
        ("PyProject.toml", "\ufeff", '[tool.pylint.main]\ninit-hook = "x"\n'),
        ("pyproject.toml", "", "# pylint\n" + "x=1\n" * 100_000),
        ("pyproject.toml", "", "# pylint\nx=" + "[" * 50_000),
        ("pyproject.toml", "", "# pylint\n" + "a." * 20_000 + "b=1"),
        ("pyproject.toml", "", "# pylint\n" + 'a."\u2028".' * 4_000 + "b=1"),
        ("setup.cfg", SETUP, "[mypy]\nplugins = x.py\n"),
        ("setup.cfg", SETUP, "[DEFAULT]\nplugins = x.py\n"),
        ("setup.cfg", SETUP, "[DEFAULT]\nplugins=x\n" + "".join(f"k{n}=1\n[mypy{n}]\n" for n in range(9_000))),
        ("setup.cfg", SETUP, "[MYPY]\nPython_Executable: ./x\n"),
        ("setup.cfg", SETUP, "[tool:pylint]\ninit-hook=x\n"),
        ("tox.ini", SETUP, "[pylint.MAIN]\nload-plugins=x\n"),
        ("tox.ini", SETUP, "[flake8:local-plugins]\nextension =\n  X = x:Y\n"),
    ],
)  # fmt: skip
def test_settings_by_which_linters_run_code_count(name: str, before: str, added: str) -> None:
    after = (before + added).encode()
    assert changes_what_runs(f"deep/{name}", before.encode(), after)
    assert not changes_what_runs(f"deep/{name}", after, after)


@pytest.mark.parametrize(
    ("name", "before", "added"),
    [
        ("pyproject.toml", PROJECT, "[tool.ruff]\nline-length = 90\n[tool.pylint.format]\nmax-line-length = 90\n"),
        ("pyproject.toml", PROJECT, '[tool.other]\nplugins = "x"\n'),
        ("pyproject.toml", PROJECT, '[tool.pytest.ini_options]\naddopts = "-q"\n'),
        ("setup.cfg", SETUP, "[options]\nplugins = x\n[mypy-x.*]\nignore_missing_imports = true\n"),
        ("tox.ini", SETUP, "[testenv]\ncommands = x\n"),
        ("pyproject.toml", "[tool.mypy]\npython_executable = 'x'\n", "strict_equality = true\n"),
    ],
)  # fmt: skip
def test_other_settings_of_a_python_project_are_its_own(name: str, before: str, added: str) -> None:
    assert not changes_what_runs(name, before.encode(), (before + added).encode())
