"""The settings of the agents after the gateway's address was put in: the user's own
stay as they were.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.errors import ActionRefused, InvalidInput
from helix_desktop.gateway import known_agents
from helix_desktop.gateway.agent_upstreams import AgentSurroundings, AgentUpstream
from helix_desktop.gateway.agents import gemini_cli_agent
from helix_desktop.gateway.known_agent import AgentLaunch, AgentStart, except_from_proxy

DIRECT = "NO_PROXY=127.0.0.1,localhost\nno_proxy=127.0.0.1,localhost\n"


def test_gemini_keeps_the_users_variables_and_has_one_address() -> None:
    before = "GEMINI_API_KEY=k\nGOOGLE_GEMINI_BASE_URL=http://old\nX=1"
    after = gemini_cli_agent._change_gemini_settings(before, "http://127.0.0.1:1/a", {})
    assert after == f"GEMINI_API_KEY=k\nX=1\nGOOGLE_GEMINI_BASE_URL=http://127.0.0.1:1/a\n{DIRECT}"
    again = gemini_cli_agent._change_gemini_settings(after, "http://b", {})
    assert again == after.replace("http://127.0.0.1:1/a", "http://b")
    assert (
        gemini_cli_agent._change_gemini_settings("", "http://b", {})
        == f"GOOGLE_GEMINI_BASE_URL=http://b\n{DIRECT}"
    )


# --- how they are started

URL = "http://127.0.0.1:1/t/token"


def start(
    name: str, scratch: Path, *arguments: str, urls: Any = None, **environ: str
) -> AgentLaunch:
    given = AgentStart(urls or {AgentUpstream(): URL}, arguments, environ, scratch)
    return known_agents.find_known_agent(name).launch(given)


def test_an_agent_nobody_knows_is_named_with_those_there_are() -> None:
    assert known_agents.find_known_agent("codex").program == "codex"
    with pytest.raises(
        InvalidInput, match=r"'what' is not a known agent\. Choose one of claude, codex, "
    ):
        known_agents.find_known_agent("what")


def test_claude_code_is_given_its_address_and_keeps_its_tool_search(tmp_path: Path) -> None:
    made = start("claude", tmp_path / "scratch", "-p", "hi")
    assert made.command == ("claude", "-p", "hi")
    assert made.environment == {"ANTHROPIC_BASE_URL": URL, "ENABLE_TOOL_SEARCH": "true"}
    assert (
        start("claude", tmp_path, ENABLE_TOOL_SEARCH="false").environment["ENABLE_TOOL_SEARCH"]
        == "false"
    )
    assert not (tmp_path / "scratch").exists()
    from_file = {AgentUpstream(source="settings.json"): URL}
    made = start("claude", tmp_path / "scratch", "-p", urls=from_file)
    file = tmp_path / "scratch" / "settings.json"
    assert made.command == ("claude", "--settings", str(file), "-p")
    direct = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    assert json.loads(file.read_text()) == {"env": {"ANTHROPIC_BASE_URL": URL, **direct}}


def test_settings_of_claude_code_that_name_exceptions_from_a_proxy_do_not_bring_it_back(
    tmp_path: Path,
) -> None:
    made = start(
        "claude", tmp_path, "-p", NO_PROXY="x.example"
    )  # as its settings say, not the shell
    assert made.command == ("claude", "--settings", str(tmp_path / "settings.json"), "-p")
    told = json.loads((tmp_path / "settings.json").read_text())["env"]
    assert told["NO_PROXY"] == told["no_proxy"] == "x.example,127.0.0.1,localhost"
    with pytest.raises(ActionRefused, match="without --settings"):
        start("claude", tmp_path, "--settings", "{}", NO_PROXY="x.example")
    assert except_from_proxy({"no_proxy": "*"})["NO_PROXY"] == "*"


def test_an_env_file_that_sends_the_gateway_to_a_proxy_stops_an_agent_that_may_read_it(
    tmp_path: Path,
) -> None:
    """Seen with aider 0.86: the proxy got the key, as the file is stronger than the environment."""
    agent = known_agents.build_agent_of_command(("aider",), "openai")
    where = AgentSurroundings({}, tmp_path / "home", tmp_path / "work" / "below")
    file = tmp_path / "work" / ".env"
    file.parent.mkdir()
    file.write_text("HTTP_PROXY=http://proxy:3128\n", "utf-8")
    assert agent.find_upstreams(where) == [AgentUpstream()]
    file.write_text("HTTP_PROXY=http://proxy:3128\nNO_PROXY=x.example\n", "utf-8")
    with pytest.raises(ActionRefused, match="would send its key and the conversation to the HTTP"):
        agent.find_upstreams(where)
    file.write_bytes(b"NAME=\xe4\n")
    assert agent.find_upstreams(where) == [AgentUpstream()], "no agent reads this either"


def test_an_address_in_an_env_file_is_said_before_an_agent_that_may_read_it(
    tmp_path: Path,
) -> None:
    """Seen with aider 0.86: it went past the gateway, and only the last line said so."""
    agent = known_agents.build_agent_of_command(("aider",), "openai")
    where = AgentSurroundings({}, tmp_path / "home", tmp_path / "work" / "below")
    file = tmp_path / "work" / ".env"
    file.parent.mkdir()
    file.write_text("ANTHROPIC_BASE_URL=https://llm.example\n", "utf-8")
    assert agent.list_bypassing_providers(where, ()) == [], "it speaks another protocol"
    file.write_text("OPENAI_API_BASE=https://llm.example/v1\n", "utf-8")
    (said,) = agent.list_bypassing_providers(where, ())
    assert said == f"the address in {file} (OPENAI_API_BASE), if the agent reads that file,"


def test_a_folder_with_the_name_of_an_env_file_is_no_settings_file(tmp_path: Path) -> None:
    """A virtual environment of Python may have this name."""
    (tmp_path / ".env").mkdir()
    where = AgentSurroundings({}, tmp_path / "home", tmp_path)
    gemini = known_agents.find_known_agent("gemini")
    aider = known_agents.build_agent_of_command(("aider",), "openai")
    for agent in (gemini, aider):
        assert agent.find_upstreams(where) == [AgentUpstream()]


def test_codex_never_has_its_token_on_the_command_line(tmp_path: Path) -> None:
    by_key = start("codex", tmp_path, OPENAI_API_KEY="k", CODEX_HOME=str(tmp_path))
    assert by_key.environment["HELIX_GATEWAY_TOKEN"] == "token"
    assert by_key.command[-1] == 'model_provider="helix"'
    assert 'env_key="OPENAI_API_KEY"' in by_key.command[4]

    own = start("codex", tmp_path, "exec", urls={AgentUpstream("mine"): URL})
    assert own.command[2] == 'model_providers.mine.base_url="http://127.0.0.1:1"'
    assert own.command[4].startswith("model_providers.mine.env_http_headers.")
    assert (own.command[4].endswith('="HELIX_GATEWAY_TOKEN"'), own.command[5]) == (True, "exec")
    assert own.environment == {"HELIX_GATEWAY_TOKEN": "token"}

    assert own.command[-1] == "exec"
    for made in (by_key, own):
        assert not any("/t/token" in word for word in made.command)


def test_what_codex_resumes_of_its_usual_provider_does_not_go_around_the_gateway(
    tmp_path: Path,
) -> None:
    """Seen with 0.171: `wrap codex app-server` with a key alone resumed a session that `wrap codex
    exec` had begun, and sent it to OpenAI's own address instead of the one after --upstream.
    """
    environ = {"OPENAI_API_KEY": "k", "CODEX_HOME": str(tmp_path)}
    made = start("codex", tmp_path, "app-server", **environ)
    assert 'model_provider="helix"' in made.command, "for the sessions that are begun there"
    assert 'openai_base_url="http://127.0.0.1:1/v1"' in made.command
    assert made.environment["OPENAI_PROJECT"] == "helix-token:token"
    codex = known_agents.find_known_agent("codex")
    said = codex.notice(AgentSurroundings(environ, tmp_path, tmp_path, ("app-server",)))
    assert "the app-server sends no key" in said, "its request had none"
    (tmp_path / "auth.json").write_text("{}")
    assert not codex.notice(AgentSurroundings(environ, tmp_path, tmp_path, ("app-server",)))


def test_a_project_in_codexs_env_file_stops_it_where_it_would_replace_the_token(
    tmp_path: Path,
) -> None:
    """The gateway would refuse each of its requests, as this header has the token."""
    codex = known_agents.find_known_agent("codex")
    (tmp_path / "auth.json").write_text("{}")
    (tmp_path / ".env").write_text("OPENAI_PROJECT=proj_1\n", "utf-8")
    environ = {"OPENAI_API_KEY": "k", "CODEX_HOME": str(tmp_path)}
    where = AgentSurroundings(environ, tmp_path, tmp_path)
    with pytest.raises(ActionRefused, match="would take the place of the gateway's token"):
        codex.find_upstreams(where)
    (tmp_path / "auth.json").unlink()
    assert codex.find_upstreams(where) == [AgentUpstream()], "it sends a header of our own"
    in_shell = AgentSurroundings(environ, tmp_path, tmp_path, ("exec", "do it"))
    with pytest.raises(ActionRefused, match="would take the place of the gateway's token"):
        codex.find_upstreams(in_shell)


def test_codex_keeps_its_usual_provider_where_it_is_signed_in(tmp_path: Path) -> None:
    """It resumes a session only with the provider that began it."""
    (tmp_path / "auth.json").write_text("{}")
    environ = {"OPENAI_API_KEY": "k", "CODEX_HOME": str(tmp_path), "OPENAI_PROJECT": "proj_1"}
    made = start("codex", tmp_path, "exec", **environ)
    assert made.command[:3] == ("codex", "-c", 'openai_base_url="http://127.0.0.1:1/v1"')
    # Sessions that earlier versions of this program began name this provider.
    assert made.command[4].startswith("model_providers.helix={")
    assert made.environment["OPENAI_PROJECT"] == "helix-token:token proj_1"
    assert not any("/t/token" in word or "token:" in word for word in made.command)
    assert not any(word.startswith("model_provider=") for word in made.command)


ID_OF_SESSION = "019aa000-1111-7222-8333-444455556666"


def write_codex_session(home: Path, provider: str, name: str = ID_OF_SESSION) -> None:
    file = home / "sessions" / "2026" / "11" / "28" / f"rollout-2026-11-28T10-00-00-{name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    meta = {"id": name, "cwd": str(Path.cwd()), "model_provider": provider}
    file.write_text(json.dumps({"type": "session_meta", "payload": meta}) + "\n", "utf-8")


@pytest.mark.parametrize(
    ("arguments", "provider_of_session", "is_begun_with_gateway"),
    [
        (("exec", "do it"), "", False),
        (("do it",), "", True),
        (("resume", ID_OF_SESSION), "openai", False),
        (("exec", "resume", ID_OF_SESSION, "go on"), "openai", False),
        (("exec", "resume", ID_OF_SESSION, "go on"), "helix", True),
        (("exec", "resume", "--last", "go on"), "helix", True),
        (("resume", "--last"), "openai", False),
        (("exec", "resume", "--last", "go on"), "", False),
    ],
)
def test_codex_with_a_key_alone_keeps_the_provider_of_the_session_that_it_resumes(
    tmp_path: Path,
    arguments: Sequence[str],
    provider_of_session: str,
    is_begun_with_gateway: bool,
) -> None:
    """With another provider it says “Cannot change this thread's model provider”, or begins a new
    session in silence.
    """
    if provider_of_session:
        write_codex_session(tmp_path, provider_of_session)
    environ = {"OPENAI_API_KEY": "k", "CODEX_HOME": str(tmp_path)}
    made = start("codex", tmp_path, *arguments, **environ)
    assert ('model_provider="helix"' in made.command) == is_begun_with_gateway
    key_of_run = made.environment.get("CODEX_API_KEY", "")
    assert key_of_run == ("" if is_begun_with_gateway else "k")
    codex = known_agents.find_known_agent("codex")
    said = codex.notice(AgentSurroundings(environ, tmp_path, tmp_path, arguments))
    assert ("“helix-desktop wrap codex” only" in said) == is_begun_with_gateway


def test_opencode_is_given_every_address_beside_what_the_user_set(tmp_path: Path) -> None:
    urls = {AgentUpstream(): URL, AgentUpstream("openai"): "http://own"}
    made = start(
        "opencode", tmp_path, "run", urls=urls, OPENCODE_CONFIG_CONTENT='{"theme": "dark"} // mine'
    )
    assert made.command == ("opencode", "run")
    settings = json.loads(made.environment["OPENCODE_CONFIG_CONTENT"])
    assert settings["theme"] == "dark"
    assert {name: one["options"]["baseURL"] for name, one in settings["provider"].items()} == {
        "anthropic": f"{URL}/v1",
        "openai": "http://own",
        "google": f"{URL}/v1beta",
    }


def test_gemini_and_pi_are_given_their_addresses(tmp_path: Path) -> None:
    made = start("gemini", tmp_path, "-p", "hi")
    assert (made.command, made.environment["GOOGLE_GEMINI_BASE_URL"]) == (
        ("gemini", "-p", "hi"),
        URL,
    )
    defaults = Path(made.environment["GEMINI_CLI_SYSTEM_DEFAULTS_PATH"])
    assert json.loads(defaults.read_text())["security"]["auth"]["selectedType"] == "gemini-api-key"
    for given in (
        {"GOOGLE_GENAI_USE_VERTEXAI": "true"},
        {"GEMINI_CLI_SYSTEM_DEFAULTS_PATH": str(defaults)},
    ):
        assert start("gemini", tmp_path, **given).environment == {"GOOGLE_GEMINI_BASE_URL": URL}
    own, scratch = tmp_path / "own", tmp_path / "deep" / "scratch"
    own.mkdir()
    (own / "models.json").write_text('{"providers": {"mine": {"baseUrl": "http://mine"}}}')
    (own / "settings.json").write_text("{}")
    made = start("pi", scratch, "hi", PI_CODING_AGENT_DIR=str(own))
    assert (made.command, made.environment) == (("pi", "hi"), {"PI_CODING_AGENT_DIR": str(scratch)})
    assert (scratch / "settings.json").readlink() == own / "settings.json"
    models = json.loads((scratch / "models.json").read_text())
    assert {name: one["baseUrl"] for name, one in models["providers"].items()} == {
        "mine": "http://mine", "anthropic": URL, "openai": f"{URL}/v1", "google": f"{URL}/v1beta",
    }  # fmt: skip
    assert not (scratch / "models.json").is_symlink()
    bare = start("pi", tmp_path / "bare", PI_CODING_AGENT_DIR=str(tmp_path / "missing"))
    assert bare.command == ("pi",)
    (written,) = (one.name for one in (tmp_path / "bare").iterdir() if not one.is_symlink())
    assert written == "models.json"


def test_any_other_command_gets_the_address_where_it_takes_it(tmp_path: Path) -> None:
    agent = known_agents.build_agent_of_command(
        ["env", "X=1", "/opt/mine", "--url={url}"], "openai-chat"
    )
    assert agent.name == "mine"
    made = agent.launch(AgentStart({AgentUpstream(): URL}, ["more"], {}, tmp_path))
    assert made.command[:3] == ("env", "X=1", "/opt/mine")
    (address,) = set(made.environment.values())
    assert (made.command[3:], address.startswith(URL)) == ((f"--url={address}", "more"), True)
    assert known_agents.build_agent_of_command(["/opt/mine"], "anthropic").name == "mine"
    assert agent.file(tmp_path, {}) == tmp_path
    assert agent.change("as it is", URL, {}) == "as it is"


# --- what `install` changes


def test_each_agents_settings_are_where_it_reads_them(tmp_path: Path) -> None:
    def file(name: str, **environ: str) -> str:
        return str(known_agents.find_known_agent(name).file(tmp_path, environ)).removeprefix(
            f"{tmp_path}/"
        )

    names = ("claude", "codex", "opencode", "gemini", "pi")
    assert [file(name) for name in names] == [
        ".claude/settings.json", ".codex/config.toml", ".config/opencode/opencode.json", ".gemini/.env",
        ".pi/agent/models.json",
    ]  # fmt: skip
    variables = {
        "CLAUDE_CONFIG_DIR": "/c",
        "CODEX_HOME": "/x",
        "XDG_CONFIG_HOME": "/o",
        "PI_CODING_AGENT_DIR": "/p",
    }
    assert [file(name, **variables) for name in names] == [
        "/c/settings.json", "/x/config.toml", "/o/opencode/opencode.json", ".gemini/.env", "/p/models.json",
    ]  # fmt: skip
    (tmp_path / ".config" / "opencode").mkdir(parents=True)
    (tmp_path / ".config" / "opencode" / "opencode.jsonc").touch()
    assert file("opencode") == ".config/opencode/opencode.jsonc"
    (tmp_path / ".config" / "opencode" / "opencode.json").touch()
    assert file("opencode") == ".config/opencode/opencode.json"


def test_the_users_settings_stay_beside_the_address() -> None:
    change = {name: agent.change for name, agent in known_agents.KNOWN_AGENTS.items()}
    claude = json.loads(change["claude"]('{"model": "opus", "env": {"A": "1"}}', URL, {}))
    direct = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    own = {"A": "1", "ANTHROPIC_BASE_URL": URL, "ENABLE_TOOL_SEARCH": "true"}
    assert claude == {"model": "opus", "env": {**own, **direct}}
    kept = json.loads(change["claude"]('{"env": {"ENABLE_TOOL_SEARCH": "false"}}', URL, {}))
    assert kept["env"]["ENABLE_TOOL_SEARCH"] == "false"
    codex = tomllib.loads(
        change["codex"]('model = "m"\n[model_providers.mine]\nname = "x"\n', URL, {})
    )
    assert codex == {
        "model": "m",
        "openai_base_url": f"{URL}/v1",
        "model_providers": {"mine": {"name": "x"}},
    }
    opencode = json.loads(change["opencode"]('{"theme": "x"}', URL, {}))
    assert (opencode["theme"], opencode["provider"]["google"]["options"]["baseURL"]) == (
        "x",
        f"{URL}/v1beta",
    )
    pi = json.loads(change["pi"]('{"a": 1}', URL, {}))
    assert (pi["a"], pi["providers"]["anthropic"]["baseUrl"]) == (1, URL)


@pytest.mark.parametrize("name", ["claude", "opencode", "pi"])
def test_settings_that_are_no_json_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        known_agents.KNOWN_AGENTS[name].change("{broken", URL, {})


def test_settings_for_a_codex_that_is_not_signed_in_say_that_it_sends_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.delenv("CODEX_API_KEY", raising=False)
    codex = known_agents.find_known_agent("codex")
    assert "sends no key there" in codex.notice_of_settings()
    (tmp_path / "auth.json").write_text("{}")
    assert not codex.notice_of_settings()
