from __future__ import annotations

import pytest

from helix_desktop.tools.hidden_files import (
    DEFAULT,
    is_hidden_only_by_place,
    matches_hidden_patterns,
)


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "app/.env",
        ".env.local",
        ".ENV",
        "server.pem",
        "deploy/id_ed25519",
        "tls/site.KEY",
        "id_rsa.bak",
        ".env.production",
        "node_modules/.env",
    ],
)
def test_secrets_of_a_project_are_hidden_by_default(path: str) -> None:
    assert matches_hidden_patterns(path, DEFAULT)


@pytest.mark.parametrize(
    "path",
    [
        ".env.example",
        ".env.local.example",
        "app/.env.template",
        "id_ed25519.pub",
        "id_map.py",
        "environment.py",
        "keys.py",
        ".envrc",
        "node_modules/x/test.pem",
        "node_modules/x/.env.example",
        ".venv/lib/python3.11/site-packages/certifi/cacert.pem",
        ".env/bin/python",
        "src/main.pem/a.py",
    ],
)
def test_what_only_looks_like_one_is_seen(path: str) -> None:
    assert not matches_hidden_patterns(path, DEFAULT)


@pytest.mark.parametrize(
    ("pattern", "path", "hidden"),
    [
        ("secrets/", "secrets/a/b.txt", True),
        ("secrets/", "app/secrets/b.txt", True),
        ("secrets/", "secrets", False),
        ("config/prod.toml", "config/prod.toml", True),
        ("config/prod.toml", "app/config/prod.toml", False),
        ("/only.txt", "only.txt", True),
        ("**/deep.txt", "a/b/deep.txt", True),
        ("a/private/", "a/private/x", True),
        ("a/private/", "b/a/private/x", False),
        ("", "a", False),
    ],
)
def test_patterns_fit_as_in_gitignore(pattern: str, path: str, *, hidden: bool) -> None:
    assert matches_hidden_patterns(path, [pattern]) is hidden


@pytest.mark.parametrize(
    ("path", "more", "by_place"),
    [
        ("app/.env", (), False),
        ("tls/site.key", (), True),
        ("node_modules/x/.env", ("secrets/",), False),
        ("secrets/prod.yml", ("secrets/",), True),
        ("app/.env", ("!fixtures/",), True),
    ],
)
def test_what_another_folder_would_show(
    path: str, more: tuple[str, ...], *, by_place: bool
) -> None:
    assert is_hidden_only_by_place(path, (*DEFAULT, *more)) is by_place


def test_the_last_pattern_decides() -> None:
    assert not matches_hidden_patterns("a.key", ["*.key", "!a.key"])
    assert matches_hidden_patterns("a.key", ["!a.key", "*.key"])
