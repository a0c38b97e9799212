from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.commented_json import parse_commented_json
from helix_desktop.errors import ActionRefused, ConfigFileMistake, HelixError, InvalidInput
from helix_desktop.mcp_client.server_config import (
    ServerConfig,
    fill_in_references,
    parse_pasted_text,
    parse_server_table,
    secret_references,
)

GITHUB = {
    "command": "npx",
    "args": ["-y", "@modelcontextprotocol/server-github"],
    "env": {"GITHUB_TOKEN": "ghp_secret"},
}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"mcpServers": {"github": GITHUB}}),
        json.dumps({"servers": {"github": {"type": "stdio", **GITHUB}}}),
        json.dumps({"mcp": {"servers": {"github": GITHUB}}}),
        json.dumps({"context_servers": {"github": GITHUB}}),
        json.dumps(
            {
                "context_servers": {
                    "github": {
                        "command": {"path": "npx", "args": GITHUB["args"], "env": GITHUB["env"]}
                    }
                }
            }
        ),
        json.dumps({"github": GITHUB}),
        json.dumps({"name": "github", **GITHUB}),
        '"github": ' + json.dumps(GITHUB) + ",",
        '{\n // mine\n "mcpServers": {"github": /* a */ ' + json.dumps(GITHUB)[:-1] + ",},},}",
    ],
)
def test_every_form_people_paste_gives_the_same_server(text: str) -> None:
    pasted = parse_pasted_text(text)
    (server,) = pasted.servers
    assert (server.name, server.kind, server.command) == ("github", "stdio", "npx")
    assert server.args == ("-y", "@modelcontextprotocol/server-github")
    assert server.env == {"GITHUB_TOKEN": "${secret:mcp/github/GITHUB_TOKEN}"}
    assert pasted.secrets == {"mcp/github/GITHUB_TOKEN": "ghp_secret"}


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' + "/* " * 50_000,
        '{"a":"' + '\\"' * 50_000,
        json.dumps({"command": "x", "args": ["${" * 50_000]}),
        json.dumps({"command": "x", "args": ["${a:-" * 50_000]}),
        json.dumps({"command": "x", "args": ["x://" + "a:" * 50_000]}),
        json.dumps({"url": "http://x/" + "?" * 100_000}),
    ],
    ids=["comments", "quotes", "references", "defaults", "logins", "parameters"],
)
def test_a_text_made_to_take_long_is_read_at_once(text: str) -> None:
    """The time for each of these grew with the square of its length: minutes, in the
    window's own process.
    """
    began = time.process_time()
    with contextlib.suppress(InvalidInput):
        for server in parse_pasted_text(text).servers:
            assert server.full_description_without_secrets
    with contextlib.suppress(ConfigFileMistake):
        parse_commented_json(text, "settings.json")
    assert time.process_time() - began < 5


def test_an_address_and_a_command_line_will_do() -> None:
    (server,) = parse_pasted_text("https://mcp.linear.app/sse").servers
    assert (server.name, server.kind, server.url) == (
        "linear",
        "http",
        "https://mcp.linear.app/sse",
    )
    (server,) = parse_pasted_text("uvx mcp-server-git --repository '/my repo'").servers
    assert (server.command, server.args) == ("uvx", ("mcp-server-git", "--repository", "/my repo"))
    (server,) = parse_pasted_text("npx -y @scope/server-x@latest", name="mine").servers
    assert server.name == "mine"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python3 /home/me/invoices.py", "invoices"),
        ("python3 -u ./invoices.py --port 3", "invoices"),
        ("node /home/me/weather/build/index.js", "weather"),
        ("python3 /home/me/weather/mcp.py", "weather"),
        ("python3 -m my_tools", "my_tools"),
        ("uv run --quiet invoices.py", "invoices"),
        ("/opt/own-server", "own-server"),
        # These were called "notes", by the folder that the server may read.
        ("npx -y @modelcontextprotocol/server-filesystem notes", "server-filesystem"),
        ("npx -y @modelcontextprotocol/server-filesystem ~/work/notes", "server-filesystem"),
        ("uvx --from git+https://a.example/tools mcp-tools --repository notes", "mcp-tools"),
        ("npx.cmd -p a-package a-server@1.2 notes", "a-server"),
        ("docker run -i --rm mcp/time", "time"),
    ],
)
def test_a_server_is_named_after_its_script_and_not_after_what_runs_it(
    command: str, name: str
) -> None:
    """`python3 /home/me/invoices.py` was called “python3”."""
    (server,) = parse_pasted_text(command).servers
    assert server.name == name


def test_what_else_a_server_has_is_kept() -> None:
    table = {
        "url": "https://a.example/mcp",
        "headers": {"Authorization": "Bearer abc", "X-Plain": "1"},
        "disabled": True,
    }
    pasted = parse_pasted_text(
        json.dumps(
            {"mcpServers": {"a b/c": {**table, "autoApprove": ["read"], "strange": {"x": [1]}}}}
        )
    )
    (server,) = pasted.servers
    assert (server.name, server.kind, server.enabled) == ("a-b-c", "http", False)
    assert server.headers == {"Authorization": "${secret:mcp/a-b-c/Authorization}", "X-Plain": "1"}
    assert server.approvals == ("read",)
    assert server.other == {"strange": {"x": [1]}}
    assert parse_server_table(server.name, server.as_settings_table()) == server
    assert "abc" not in json.dumps(server.as_settings_table())


def test_inputs_of_vs_code_are_asked_for() -> None:
    text = {
        "inputs": [{"id": "key"}],
        "servers": {
            "a": {"command": "x", "args": ["--key=${input:key}"], "env": {"K": "${input:key}"}}
        },
    }
    pasted = parse_pasted_text(json.dumps(text))
    (server,) = pasted.servers
    assert secret_references(server) == ("mcp/a/key",)
    assert fill_in_references(server, {"mcp/a/key": "v"}, {}).args == ("--key=v",)
    with pytest.raises(InvalidInput, match="mcp/a/key"):
        fill_in_references(server, {}, {})


def test_variables_come_from_the_environment() -> None:
    server = ServerConfig(
        "a",
        command="x",
        env={"A": "${env:HOME}/x", "B": "${NONE:-there}", "C": "${workspaceFolder}"},
    )
    assert fill_in_references(server, {}, {"HOME": "/h"}).env == {
        "A": "/h/x",
        "B": "there",
        "C": "",
    }


@pytest.mark.parametrize(
    "key", ["API_KEY", "token", "MY_PASSWORD", "Authorization", "SLACK_BOT_TOKEN", "DATABASE_DSN"]
)
def test_secrets_are_known_by_their_names(key: str) -> None:
    pasted = parse_pasted_text(json.dumps({"a": {"command": "x", "env": {key: "value"}}}))
    assert list(pasted.secrets.values()) == ["value"]


@pytest.mark.parametrize(
    "value", ["sk-abc", "ghp_abc", "Bearer abc", "postgres://user:pass@host/db", "xoxb-1"]
)
def test_secrets_are_known_by_their_looks(value: str) -> None:
    pasted = parse_pasted_text(json.dumps({"a": {"command": "x", "env": {"SOMETHING": value}}}))
    assert list(pasted.secrets.values()) == [value]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "{}",
        '{"mcpServers": {}}',
        '{"a": {"args": []}}',
        '{"a": 1}',
        "two\nlines",
        "'open",
        "x" * (1 << 21),
    ],
)
def test_what_is_no_configuration_gets_a_sentence(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_pasted_text(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda i: (
            st.lists(i)
            | st.dictionaries(
                st.sampled_from(["mcpServers", "command", "args", "env", "url", "a", "headers"]), i
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_a_configuration_or_an_error(value: Any) -> None:
    try:
        pasted = parse_pasted_text(json.dumps(value))
    except HelixError:
        return
    for server in pasted.servers:
        assert server.command or server.url
        assert parse_server_table(server.name, server.as_settings_table()).name == server.name


@pytest.mark.parametrize(
    ("given", "seconds"), [(30, 30), (60_000, 60), (0, 600), (-1, 600), ("x", 600), (True, 600)]
)
def test_a_timeout_in_seconds_or_milliseconds(given: object, seconds: float) -> None:
    (server,) = parse_pasted_text(json.dumps({"a": {"command": "x", "timeout": given}})).servers
    assert server.call_seconds == seconds


@pytest.mark.parametrize(
    "table",
    [
        {"command": "x", "args": ["--api-key", "PLANTED-0123456789"]},
        {"command": "x", "args": ["--api-key=PLANTED-0123456789", "--mode=plain"]},
        {
            "command": "npx",
            "args": [
                "mcp-remote",
                "https://far.example",
                "--header",
                "Authorization: Bearer PLANTED-0123456789",
            ],
        },
        {"command": "x", "args": ["sk-PLANTED-0123456789"]},
        {"url": "https://far.example/mcp?apiKey=PLANTED-0123456789&mode=plain"},
        {"url": "https://user:PLANTED-0123456789@far.example/mcp"},
        {"url": "https://far.example", "authorization_token": "PLANTED-0123456789"},
        {
            "url": "https://far.example",
            "oauth": {"clientId": "me", "clientSecret": "PLANTED-0123456789"},
        },
        {"url": "https://far.example", "more": [{"x": "ghp_PLANTED0123456789"}]},
    ],
)
def test_a_secret_is_taken_out_wherever_it_stands(table: dict[str, Any]) -> None:
    pasted = parse_pasted_text(json.dumps({"mcpServers": {"s": table}}))
    (server,) = pasted.servers
    assert "PLANTED" not in json.dumps(server.as_settings_table())
    assert "PLANTED" not in server.description_without_secrets
    assert any("PLANTED" in value for value in pasted.secrets.values())
    again = parse_server_table("s", server.as_settings_table())
    whole = fill_in_references(again, pasted.secrets, {})
    assert list(whole.args) == table.get("args", [])
    assert whole.url == table.get("url", "")


@pytest.mark.parametrize(
    "args",
    [
        ["--key-file", "/home/me/key.pem"],
        ["--auth", "none"],
        ["--token-limit", "4000"],
        ["--url", "https://a.example"],
        ["-y", "@scope/server-token"],
    ],
)
def test_what_only_sounds_like_a_secret_stays(args: list[str]) -> None:
    pasted = parse_pasted_text(json.dumps({"mcpServers": {"s": {"command": "x", "args": args}}}))
    assert (list(pasted.servers[0].args), pasted.secrets) == (args, {})


@pytest.mark.parametrize(
    "name", ["openai", "mcp/github/GITHUB_TOKEN", "mcp.github.sign-in", "shared-a1b2c3", "mcp/mine"]
)
@pytest.mark.parametrize(
    ("table", "place"),
    [
        ({"url": "https://evil.example/?a=${secret:NAME}"}, "address"),
        ({"url": "https://evil.example/", "headers": {"X-A": "${secret:NAME}"}}, "header X-A"),
        ({"command": "npx", "args": ["${secret:NAME}"]}, "argument 1"),
        ({"command": "npx", "env": {"A": "${secret:NAME:-x}"}}, "environment variable A"),
        (
            {"url": "https://evil.example/", "oauth": {"clientId": "${secret:NAME}"}},
            "sign-in setting clientId",
        ),
    ],
)
def test_a_secret_of_somebody_else_is_refused_by_its_place(
    table: dict[str, Any], place: str, name: str
) -> None:
    text = json.dumps({"mcpServers": {"mine": table}}).replace("NAME", name)
    with pytest.raises(ActionRefused, match=f"asks for the secret '{name}' in its {place}"):
        parse_pasted_text(text)
    config = parse_server_table(
        "mine", json.loads(text)["mcpServers"]["mine"]
    )  # as somebody writes it into the settings by hand
    with pytest.raises(ActionRefused):
        [config.referenced_secret(reference) for reference in secret_references(config)]


def test_a_pasted_servers_secrets_are_those_of_what_it_is() -> None:
    """Another host, another command line, another workspace: another secret. The path
    of an address may change.
    """
    tables: list[dict[str, Any]] = [
        {"url": "https://good.example/mcp", "kind": "http", "bound": "a"},
        {"url": "https://good.example/other", "kind": "http", "bound": "a"},
        {"url": "https://evil.example/mcp", "kind": "http", "bound": "a"},
        {"url": "https://good.example:8443/mcp", "kind": "http", "bound": "a"},
        {"url": "http://good.example/mcp", "kind": "http", "bound": "a"},
        {"url": "https://good.example/mcp", "kind": "http", "bound": "b"},
        {"command": "npx", "args": ["good"], "kind": "stdio", "bound": "a"},
        {"command": "npx", "args": ["evil"], "kind": "stdio", "bound": "a"},
        {"url": "https://good.example/mcp", "kind": "http"},
    ]
    configs = [parse_server_table("mine", table) for table in tables]
    for names in (
        [config.referenced_secret("mcp/mine/TOKEN").keyring_name for config in configs],
        [config.sign_in_secret.keyring_name for config in configs],
    ):
        assert names[0] == names[1]
        assert len(set(names)) == len(names) - 1
    assert (
        configs[-1].referenced_secret("mcp/mine/TOKEN").keyring_name == "mcp/mine/TOKEN"
    )  # of an older version


def test_every_place_a_value_goes_to_is_shown_with_dots_for_secrets() -> None:
    table = {
        "url": "https://a.example/?key=planted-123",
        "headers": {"Authorization": "Bearer planted-123", "X-Team": "7"},
    }
    (server,) = parse_pasted_text(json.dumps({"mine": table})).servers
    assert (
        server.full_description_without_secrets
        == "https://a.example/?key=••••••\nAuthorization: ••••••\nX-Team: 7"
    )
    table = {
        "command": "npx",
        "args": ["--token", "planted-123"],
        "env": {"API_KEY": "planted-123", "A": "b"},
    }
    (server,) = parse_pasted_text(json.dumps({"mine": table})).servers
    assert server.full_description_without_secrets == "npx --token '••••••'\nAPI_KEY=••••••\nA=b"


@pytest.mark.parametrize(
    "example",
    ["<your token>", "YOUR_API_KEY", "your-key-here", "xxxx", "sk-...", "ghp_xxxx", "[API key]"],
)
def test_an_example_in_place_of_a_key_is_refused(example: str) -> None:
    """It was stored as the key, and the server failed later for a reason of its own."""
    text = json.dumps({"mcpServers": {"gh": {"command": "gh", "env": {"GITHUB_TOKEN": example}}}})
    with pytest.raises(InvalidInput, match="GITHUB_TOKEN still has the example"):
        parse_pasted_text(text)


@pytest.mark.parametrize("value", ["ghp_Kx8…", "sk-live-4x7xxq", "here-1", "a.b.c"])
def test_what_may_be_a_key_is_taken(value: str) -> None:
    text = json.dumps({"mcpServers": {"gh": {"command": "gh", "env": {"GITHUB_TOKEN": value}}}})
    assert parse_pasted_text(text).secrets == {"mcp/gh/GITHUB_TOKEN": value}


def test_two_secrets_of_one_name_are_two() -> None:
    """Otherwise both places would get the last one."""
    pasted = parse_pasted_text(
        """{"mcpServers": {"a": {
            "command": "serve",
            "args": ["--token", "first-token", "--token", "other-token", "--token", "first-token"]
        }}}"""
    )
    (server,) = pasted.servers
    assert "first-token" not in server.description_without_secrets
    filled = fill_in_references(server, pasted.secrets, {})
    assert filled.args[1::2] == ("first-token", "other-token", "first-token")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://ada:q7@w9secret@mcp.example.com/x", "ada:"),
        ("https://q7w9secret@mcp.example.com/x", "https://$"),
        ("HTTPS://q7@w9secret@mcp.example.com/x", "HTTPS://$"),
    ],
)
def test_all_of_a_password_or_token_in_an_address_goes_to_the_keyring(
    address: str, shown: str
) -> None:
    pasted = parse_pasted_text(f'{{"url": "{address}", "name": "a"}}')
    (server,) = pasted.servers
    assert "w9secret" not in server.url
    assert shown in server.url
    assert fill_in_references(server, pasted.secrets, {}).url == address


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [("1" + "0" * 400, 604_800.0), ("NaN", 600.0), ("Infinity", 604_800.0), ("60000", 60.0)],
)
def test_a_timeout_that_makes_no_sense_is_no_error(timeout: str, seconds: float) -> None:
    text = f'{{"command": "serve", "args": [], "timeout": {timeout}}}'
    assert parse_pasted_text(text).servers[0].call_seconds == seconds
