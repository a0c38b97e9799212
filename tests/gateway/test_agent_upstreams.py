"""Where an agent's own settings send its requests: files as the agents document them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.errors import ActionRefused, ConfigFileMistake
from helix_desktop.gateway import address_in_agent_settings, agent_upstreams
from helix_desktop.gateway.agent_upstreams import AgentSurroundings, AgentUpstream
from helix_desktop.gateway.agents import claude_code_agent, codex_agent, opencode_agent
from helix_desktop.gateway.known_agent import AgentStart
from helix_desktop.gateway.known_agents import KNOWN_AGENTS

COMPANY = "https://llm.company.example/anthropic"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path


def write(file: Path, content: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), "utf-8")
    return file


def found(agent: str, here: Path, *arguments: str, **environ: str) -> list[tuple[str, str]]:
    where = AgentSurroundings(environ, here, here / "work", arguments)
    return [(one.provider, one.address) for one in KNOWN_AGENTS[agent].find_upstreams(where)]


def source(agent: str, here: Path, *arguments: str, **environ: str) -> str:
    where = AgentSurroundings(environ, here, here / "work", arguments)
    return KNOWN_AGENTS[agent].find_upstreams(where)[-1].source


@pytest.mark.parametrize(
    ("agent", "variable"),
    [
        ("claude", "ANTHROPIC_BASE_URL"),
        ("codex", "OPENAI_BASE_URL"),
        ("gemini", "GOOGLE_GEMINI_BASE_URL"),
    ],
)
def test_the_environment_names_an_address(agent: str, variable: str, here: Path) -> None:
    assert found(agent, here) == [("", "")]
    assert found(agent, here, **{variable: COMPANY}) == [("", COMPANY)]
    with pytest.raises(ActionRefused, match=variable):
        found(agent, here, **{variable: "llm.company.example"})


def test_claude_codes_files_overrule_its_environment_and_the_nearest_file_wins(here: Path) -> None:
    user = write(here / ".claude" / "settings.json", {"env": {"ANTHROPIC_BASE_URL": COMPANY}})
    assert found("claude", here, ANTHROPIC_BASE_URL="https://other.example") == [("", COMPANY)]
    assert source("claude", here) == f"ANTHROPIC_BASE_URL in {user}, line 3"
    write(
        here / "work" / ".claude" / "settings.local.json",
        {"env": {"ANTHROPIC_BASE_URL": "https://project.example"}},
    )
    with pytest.raises(ActionRefused, match="have not trusted this folder"):
        found("claude", here)
    write(
        here / ".claude.json", {"projects": {str(here / "work"): {"hasTrustDialogAccepted": True}}}
    )
    assert found("claude", here) == [("", "https://project.example")]
    with pytest.raises(ActionRefused, match="--settings"):
        found("claude", here, "--settings", "mine.json")


def test_claude_code_with_signed_requests_is_refused(here: Path) -> None:
    with pytest.raises(ActionRefused, match="Amazon Bedrock"):
        found("claude", here, CLAUDE_CODE_USE_BEDROCK="1")
    assert found("claude", here, CLAUDE_CODE_USE_BEDROCK="0") == [("", "")]
    write(here / ".claude" / "settings.json", {"env": {"CLAUDE_CODE_USE_VERTEX": "1"}})
    with pytest.raises(ActionRefused, match=r"Vertex AI.*settings.json, line 3"):
        found("claude", here)


def test_codex_providers_and_profiles(here: Path) -> None:
    azure = "https://x.openai.azure.com/openai"
    config = (
        f'model_provider = "azure"\n[model_providers.azure]\nname = "A"\nbase_url = "{azure}"\n'
        'query_params = {api-version = "2025"}\n[model_providers.lab]\nbase_url = "http://lab:1/v1"\n'
        '[profiles.lab]\nmodel_provider = "lab"\n'
    )
    file = write(here / ".codex" / "config.toml", config)
    assert found("codex", here) == [("azure", azure)]
    assert source("codex", here) == f"{file}, line 4"
    assert found("codex", here, "-p", "lab") == [("lab", "http://lab:1/v1")]
    assert found("codex", here, "-c", 'model_provider="lab"') == [("lab", "http://lab:1/v1")]
    write(here / ".codex" / "work.config.toml", 'model_provider = "lab"')
    assert found("codex", here, "--profile=work") == [("lab", "http://lab:1/v1")]
    for arguments in (
        ["--oss"],
        ["-c", "model_providers.lab.base_url=x"],
        ["-c", "model_provider=ollama"],
    ):
        with pytest.raises(ActionRefused):
            found("codex", here, *arguments)
    write(file, "model_provider = ")
    with pytest.raises(ConfigFileMistake, match="not valid TOML"):
        found("codex", here)


def test_a_codex_provider_of_the_users_own_keeps_all_but_its_address(tmp_path: Path) -> None:
    url = "http://127.0.0.1:4356/t/a-token"
    launch = KNOWN_AGENTS["codex"].launch(
        AgentStart({AgentUpstream("azure", "https://x"): url}, ["exec"], {}, tmp_path)
    )
    told = " ".join(launch.command)
    assert 'model_providers.azure.base_url="http://127.0.0.1:4356"' in told
    assert "a-token" not in told
    assert "model_provider=" not in told


def test_opencode_with_comments_and_providers_of_its_own(here: Path) -> None:
    text = """{ // comments
      "provider": {
        /* "x": {"options": {"baseURL": "http://nobody"}}, */
        "corp": {"options": {"baseURL": "{env:CORP}/v1",},},
        "anthropic": {"options": {"baseURL": "https://a//b"}},
      },
    }"""
    write(here / ".config" / "opencode" / "opencode.jsonc", text)
    write(
        here / "work" / "opencode.json",
        {"provider": {"corp2": {"options": {"baseURL": "http://two/v1"}}}},
    )
    assert found("opencode", here, CORP="https://corp.example") == [
        ("", ""),
        ("corp", "https://corp.example/v1"),
        ("anthropic", "https://a//b"),
        ("corp2", "http://two/v1"),
    ]
    with pytest.raises(ActionRefused):
        found("opencode", here)  # CORP is not set


def test_each_opencode_and_pi_provider_has_its_own_address_of_the_gateway(tmp_path: Path) -> None:
    urls = {
        AgentUpstream(): "http://g/t/1",
        AgentUpstream("corp", "https://corp/v1"): "http://g/t/2",
    }
    launch = KNOWN_AGENTS["opencode"].launch(AgentStart(urls, [], {}, tmp_path))
    told: Any = json.loads(launch.environment["OPENCODE_CONFIG_CONTENT"])["provider"]
    assert told["corp"]["options"]["baseURL"] == "http://g/t/2"
    assert told["anthropic"]["options"]["baseURL"] == "http://g/t/1/v1"
    write(
        tmp_path / "pi" / "models.json",
        '{"providers": {"corp": {"baseUrl": "https://corp/v1", "api": "x"}} /* */}',
    )
    environ = {"PI_CODING_AGENT_DIR": str(tmp_path / "pi")}
    KNOWN_AGENTS["pi"].launch(AgentStart(urls, [], environ, tmp_path / "scratch"))
    told = json.loads((tmp_path / "scratch" / "models.json").read_text("utf-8"))["providers"]
    assert told["corp"] == {"baseUrl": "http://g/t/2", "api": "x"}
    assert told["openai"]["baseUrl"] == "http://g/t/1/v1"


def test_what_pi_writes_when_it_first_runs_is_in_the_folder_of_its_user(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    environ = {"PI_CODING_AGENT_DIR": str(tmp_path / "pi")}
    KNOWN_AGENTS["pi"].launch(AgentStart({AgentUpstream(): "http://g/t/1"}, [], environ, scratch))
    write(scratch / "sessions" / "of-a-folder" / "one.jsonl", "{}")
    write(scratch / "auth.json", "a login")
    assert (tmp_path / "pi" / "sessions" / "of-a-folder" / "one.jsonl").read_text("utf-8") == "{}"
    assert (tmp_path / "pi" / "auth.json").read_text("utf-8") == "a login"
    assert not (tmp_path / "pi" / "settings.json").exists()
    assert not (tmp_path / "pi" / "models.json").exists()


def test_gemini_reads_the_nearest_env_file(here: Path) -> None:
    write(here / ".gemini" / ".env", f'A=1\nexport GOOGLE_GEMINI_BASE_URL="{COMPANY}"\n')
    assert found("gemini", here) == [("", COMPANY)]
    assert found("gemini", here, GOOGLE_GEMINI_BASE_URL="https://shell.example") == [
        ("", "https://shell.example")
    ]
    write(here / "work" / ".env", "GOOGLE_GEMINI_BASE_URL=https://evil.example\n")
    with pytest.raises(ActionRefused, match="in your shell"):
        found("gemini", here)
    write(
        here / ".gemini" / "settings.json",
        {"security": {"auth": {"selectedType": "oauth-personal"}}},
    )
    with pytest.raises(ActionRefused, match="Google account"):
        found("gemini", here)


@pytest.mark.parametrize(
    "line",
    [
        "GOOGLE_GEMINI_BASE_URL=%s",
        "\ufeffGOOGLE_GEMINI_BASE_URL=%s",
        "  GOOGLE_GEMINI_BASE_URL = %s  # ours",
        "export  GOOGLE_GEMINI_BASE_URL='%s' # ours",
        "GOOGLE_GEMINI_BASE_URL: %s\r",
        "GOOGLE_GEMINI_BASE_URL=https://old.example\nGOOGLE_GEMINI_BASE_URL=%s",
    ],
)
def test_an_address_in_an_env_file_is_read_as_gemini_reads_it(here: Path, line: str) -> None:
    """Otherwise requests meant for a company's address would go to Google."""
    file = here / ".gemini" / ".env"
    write(file, f"GEMINI_API_KEY=k\n{line % COMPANY}\n")
    if line.startswith("\ufeff"):
        file.write_text(f"{line % COMPANY}\nGEMINI_API_KEY=k\n", "utf-8")
    assert found("gemini", here) == [("", COMPANY)]


def test_providers_that_pass_by_and_subscriptions_are_known(here: Path) -> None:
    write(
        here / ".local" / "share" / "opencode" / "auth.json",
        {"openrouter": {}, "anthropic": {}, "corp": {}},
    )
    where = AgentSurroundings({}, here, here / "work")
    assert KNOWN_AGENTS["opencode"].list_bypassing_providers(
        where, [AgentUpstream("corp", "x")]
    ) == ["openrouter"]
    assert not KNOWN_AGENTS["claude"].uses_subscription(where)
    write(here / ".claude" / ".credentials.json", {"claudeAiOauth": {"accessToken": "x"}})
    assert KNOWN_AGENTS["claude"].uses_subscription(where)
    keyed = AgentSurroundings({"ANTHROPIC_API_KEY": "k"}, here, here / "work")
    assert not KNOWN_AGENTS["claude"].uses_subscription(keyed)


def test_an_installed_address_keeps_the_users_own_as_its_upstream(here: Path) -> None:
    write(here / ".claude" / "settings.json", {"env": {"ANTHROPIC_BASE_URL": COMPANY}})
    change = address_in_agent_settings.plan_address_install(KNOWN_AGENTS["claude"], 4356, here, {})
    address_in_agent_settings.install_address(change, here / "config")
    (registration,) = address_in_agent_settings.read_written_registrations(here / "config")
    assert registration.upstream == COMPANY
    write(
        here / ".pi" / "agent" / "models.json",
        {"providers": {"openai": {"baseUrl": "https://corp/v1"}}},
    )
    with pytest.raises(ActionRefused, match="for openai"):
        address_in_agent_settings.plan_address_install(KNOWN_AGENTS["pi"], 4356, here, {})


def test_what_was_connected_leaves_no_empty_folder(here: Path) -> None:
    change = address_in_agent_settings.plan_address_install(KNOWN_AGENTS["gemini"], 4356, here, {})
    address_in_agent_settings.install_address(change, here / "config")
    address_in_agent_settings.remove_address(
        address_in_agent_settings.plan_address_removal(KNOWN_AGENTS["gemini"], here / "config"),
        here / "config",
    )
    assert not (here / ".gemini").exists()


@pytest.mark.parametrize("agent", KNOWN_AGENTS)
def test_a_run_of_an_agent_that_is_connected_does_not_go_through_the_gateway_twice(
    agent: str, here: Path
) -> None:
    change = address_in_agent_settings.plan_address_install(KNOWN_AGENTS[agent], 4356, here, {})
    address_in_agent_settings.install_address(change, here / "config")
    upstreams = KNOWN_AGENTS[agent].find_upstreams(AgentSurroundings({}, here, here / "work"))
    assert "127.0.0.1:4356" in "".join(one.address for one in upstreams)
    passed = address_in_agent_settings.resolve_own_addresses(upstreams, here / "config")
    assert [(one.provider, one.address) for one in passed] == [("", "")]


def test_opencode_reads_no_project_file_above_the_repository(here: Path) -> None:
    (here / "work" / ".git").mkdir()
    write(
        here / "opencode.json", {"provider": {"corp": {"options": {"baseURL": "http://nobody/v1"}}}}
    )
    assert found("opencode", here) == [("", "")]


def test_an_agent_that_nobody_describes_is_asked_for_its_address_by_its_protocols_variables() -> (
    None
):
    named = {
        "OPENAI_BASE_URL": "",
        "OPENAI_API_BASE": "https://company.example/v1",
        "ANTHROPIC_BASE_URL": "https://a.example",
    }
    found = agent_upstreams.find_protocol_upstream("openai-chat", named)
    assert (found.address, found.source) == (
        "https://company.example/v1",
        "OPENAI_API_BASE in the environment",
    )
    assert not found.is_from_file
    assert (
        agent_upstreams.find_protocol_upstream("gemini", named) == agent_upstreams.AgentUpstream()
    )
    assert (
        agent_upstreams.find_protocol_upstream("gemini", {})
        .describe_route()
        .endswith("names another address")
    )


def test_an_agent_nobody_described_has_the_address_of_its_protocols_variables() -> None:
    find = agent_upstreams.find_protocol_upstream
    first, second = agent_upstreams.PROTOCOLS_OF_AGENTS["gemini"].address_variables
    assert find("gemini", {}) == find("gemini", {first: "", second: ""}) == AgentUpstream()
    assert find("gemini", {second: COMPANY}) == AgentUpstream(
        "", COMPANY, f"{second} in the environment"
    )
    assert (
        find("gemini", {first: "https://first.example", second: COMPANY}).address
        == "https://first.example"
    )
    for wrong in ("llm.company.example", "ftp://llm.company.example"):
        with pytest.raises(ActionRefused, match=first):
            find("gemini", {first: wrong})
    assert find("gemini", {first: "http://here:1"}).address == "http://here:1"


def test_a_route_says_its_source_and_a_file_may_overrule_the_environment() -> None:
    usual = AgentUpstream()
    environment = AgentUpstream("", COMPANY, "OPENAI_BASE_URL in the environment")
    of_file = AgentUpstream("lab", COMPANY, "/home/me/config.toml, line 3")
    assert [one.is_from_file for one in (usual, environment, of_file)] == [False, False, True]
    assert (
        usual.describe_route()
        == "requests: to their usual provider; no setting names another address"
    )
    assert (
        of_file.describe_route()
        == f"the provider lab: to {COMPANY}, as /home/me/config.toml, line 3 says"
    )
    assert environment.describe_route().startswith(f"requests: to {COMPANY}, as OPENAI_BASE_URL")


def environment(
    agent: str, here: Path, folder: Path | None = None, **environ: str
) -> dict[str, str]:
    where = AgentSurroundings(environ, here, folder or here / "work")
    return dict(KNOWN_AGENTS[agent].read_environment(where))


def test_what_claude_codes_files_say_of_the_environment_counts_where_the_user_trusts_the_folder(
    here: Path,
) -> None:
    write(here / ".claude" / "settings.json", {"env": {"A": "user", "B": "user", "C": 1}})
    write(here / "work" / ".claude" / "settings.json", {"env": {"B": "project"}})
    assert environment("claude", here, A="shell", D="shell") == {
        "A": "user",
        "B": "user",
        "C": "1",
        "D": "shell",
    }
    write(here / ".claude.json", {"projects": {str(here): {"hasTrustDialogAccepted": True}}})
    assert environment("claude", here)["B"] == "project", "a folder below a trusted one is trusted"
    assert environment("codex", here, A="shell") == {"A": "shell"}
    (here / ".claude.json").unlink()
    assert environment("claude", here, here)["B"] == "user", "at home the user's own files count"


def test_codexs_own_env_file_is_stronger_than_the_environment(here: Path) -> None:
    write(here / ".codex" / ".env", f"A=file\nOPENAI_BASE_URL={COMPANY}\nCODEX_API_KEY=k\n")
    assert environment("codex", here, A="shell", D="shell") == {
        "A": "file",
        "D": "shell",
        "OPENAI_BASE_URL": COMPANY,
    }
    assert found("codex", here, OPENAI_BASE_URL="https://other.example") == [("", COMPANY)]


@pytest.mark.parametrize("exceptions", ["NO_PROXY=x.example", "export no_proxy=''"])
def test_codex_is_not_started_where_its_env_file_sends_the_gateway_to_a_proxy(
    here: Path, exceptions: str
) -> None:
    """Seen with 0.171: the proxy got the key, as the file is stronger than what `wrap` sets."""
    file = write(here / ".codex" / ".env", f"{exceptions}\n")
    assert found("codex", here) == [("", "")], "there is no proxy"
    with pytest.raises(ActionRefused, match="so the HTTP proxy in https_proxy would get its key"):
        found("codex", here, https_proxy="http://proxy:3128")
    write(file, f"{exceptions}\nHTTP_PROXY=http://proxy:3128\n")
    with pytest.raises(
        ActionRefused, match=r"(?i)no_proxy in .*\.env does not contain 127\.0\.0\.1"
    ):
        found("codex", here)
    write(file, "HTTP_PROXY=http://proxy:3128\nNO_PROXY=x.example,127.0.0.1\n")
    assert found("codex", here) == [("", "")]


def test_the_proxy_in_pis_settings_counts_unless_a_variable_names_one(here: Path) -> None:
    write(here / ".pi" / "agent" / "settings.json", {"httpProxy": " http://proxy:3128 "})
    assert environment("pi", here, HTTP_PROXY="http://shell:1") == {
        "HTTP_PROXY": "http://shell:1",
        "HTTPS_PROXY": "http://proxy:3128",
    }


def test_the_line_of_an_address_is_named(here: Path) -> None:
    file = write(here / ".codex" / "config.toml", f'openai_base_url = "{COMPANY}"\n')
    assert source("codex", here) == f"{file}, line 1"
    file.write_text(f'\n\nopenai_base_url = "{COMPANY}"\n')
    assert source("codex", here) == f"{file}, line 3"


def test_settings_in_the_arguments_are_refused_and_other_arguments_are_not(here: Path) -> None:
    write(here / ".claude" / "settings.json", {"env": {"ANTHROPIC_BASE_URL": COMPANY}})
    assert found("claude", here, "--model", "opus", "--print") == [("", COMPANY)]
    for arguments in (("-p", "--settings", "{}"), ("--settings={}",)):
        with pytest.raises(ActionRefused, match="wrap replaces with --settings"):
            found("claude", here, *arguments)


def test_options_of_codex_are_read_in_both_forms_and_one_without_a_value_is_none(
    here: Path,
) -> None:
    text = f'[model_providers.lab]\nbase_url = "{COMPANY}"\n[profiles.p]\nmodel_provider = "lab"\n'
    write(here / ".codex" / "config.toml", text)
    for arguments in (
        ("-p", "p"),
        ("--profile=p",),
        ("--profile", "p"),
        ("-c", 'model_provider="lab"'),
    ):
        assert found("codex", here, *arguments) == [("lab", COMPANY)]
    assert found("codex", here, "exec", "p") == found("codex", here, "hello", "-p") == [("", "")]
    assert found("codex", here, "-c", "model=x", OPENAI_BASE_URL="https://other.example") == [
        ("", "https://other.example")
    ]
    address = 'openai_base_url = "https://openai.example"\nmodel_provider = "lab"\n'
    write(here / ".codex" / "config.toml", address + text)
    assert found("codex", here) == [("lab", COMPANY)]
    with pytest.raises(ActionRefused, match="its provider 'built' is built in"):
        found("codex", here, "-c", "model_provider=built")


def test_the_nearest_env_file_of_gemini_is_the_only_one(here: Path) -> None:
    write(here / ".env", f"GOOGLE_GEMINI_BASE_URL={COMPANY}\n")
    assert found("gemini", here) == [("", COMPANY)]
    write(here / "work" / ".env", "OTHER=1\n")
    assert found("gemini", here) == [("", "")]
    write(here / "work" / ".gemini" / ".env", "")
    assert found("gemini", here) == [("", "")], "an empty one is passed over"


@pytest.mark.parametrize("moved", [False, True])
def test_a_subscription_is_known_by_the_agents_own_files(here: Path, moved: bool) -> None:
    def subscribed(agent: str, **environ: str) -> bool:
        folders = (
            {"CODEX_HOME": str(here / "codex"), "CLAUDE_CONFIG_DIR": str(here / "claude")}
            if moved
            else {}
        )
        where = AgentSurroundings({**folders, **environ}, here, here / "work")
        return KNOWN_AGENTS[agent].uses_subscription(where)

    codex, claude = (
        (here / "codex", here / "claude") if moved else (here / ".codex", here / ".claude")
    )
    assert [subscribed(agent) for agent in ("codex", "claude", "pi")] == [False] * 3
    assert subscribed("claude", CLAUDE_CODE_OAUTH_TOKEN="t")
    write(codex / "auth.json", {"tokens": {}})
    assert not subscribed("codex")
    write(codex / "auth.json", {"tokens": {"access_token": "x"}})
    write(claude / ".credentials.json", {"claudeAiOauth": {"accessToken": "x"}})
    assert [subscribed(agent) for agent in ("codex", "claude", "pi")] == [True, True, False]
    assert not subscribed("codex", CODEX_API_KEY="k")
    assert not subscribed("claude", ANTHROPIC_AUTH_TOKEN="k")


@pytest.mark.parametrize("name", ["MANTLE", "ANTHROPIC_AWS", "ANTHROPIC_GOOGLE_CLOUD", "FOUNDRY"])
def test_claude_code_at_every_cloud_is_refused_wherever_it_is_chosen(name: str, here: Path) -> None:
    variable = f"CLAUDE_CODE_USE_{name}"
    with pytest.raises(ActionRefused, match=variable):
        found("claude", here, **{variable: "1"})
    with pytest.raises(ActionRefused, match=variable):
        found("claude", here, "--settings", json.dumps({"env": {variable: "1"}}))


def test_claude_codes_settings_in_the_arguments_count(here: Path) -> None:
    own = {"env": {"ANTHROPIC_BASE_URL": COMPANY, "A": "given"}}
    write(here / "work" / "mine.json", own)
    for given in (json.dumps(own), "mine.json", str(here / "work" / "mine.json")):
        with pytest.raises(ActionRefused, match="its arguments name an address"):
            found("claude", here, "--settings", given)
        with pytest.raises(ActionRefused, match="its arguments name an address"):
            found("claude", here, f"--settings={given}")
    where = AgentSurroundings({"A": "shell"}, here, here / "work", ("--settings", "mine.json"))
    assert KNOWN_AGENTS["claude"].read_environment(where)["A"] == "given"


def test_claude_codes_files_count_only_if_it_reads_them(here: Path) -> None:
    write(here / ".claude" / "settings.json", {"env": {"ANTHROPIC_BASE_URL": COMPANY}})
    write(
        here / ".claude.json", {"projects": {str(here / "work"): {"hasTrustDialogAccepted": True}}}
    )
    write(
        here / "work" / ".claude" / "settings.json",
        {"env": {"ANTHROPIC_BASE_URL": "https://project.example"}},
    )
    assert found("claude", here) == [("", "https://project.example")]
    assert found("claude", here, "--setting-sources", "user") == [("", COMPANY)]
    assert found("claude", here, "--setting-sources=local") == [("", "")]
    assert found("claude", here, "--restricted") == [("", "")]


def test_an_address_in_any_of_claude_codes_managed_files_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        claude_code_agent, "CLAUDE_MANAGED_SETTINGS", here / "etc" / "managed-settings.json"
    )
    dropped = write(
        here / "etc" / "managed-settings.d" / "10-llm.json",
        {"env": {"ANTHROPIC_BASE_URL": COMPANY}},
    )
    with pytest.raises(ActionRefused, match=rf"your organization sets its address \({dropped}"):
        found("claude", here)


@pytest.mark.parametrize(
    "option", ["--bg", "--background", "--cloud=a task", "--teleport", "--desktop"]
)
def test_claude_code_that_does_not_run_in_this_terminal_is_refused(option: str, here: Path) -> None:
    with pytest.raises(ActionRefused, match=r"with .* it does not run in this terminal"):
        found("claude", here, option)


def test_a_key_in_claude_codes_settings_comes_before_its_subscription(here: Path) -> None:
    def subscribed(*arguments: str) -> bool:
        where = AgentSurroundings({}, here, here / "work", arguments)
        return KNOWN_AGENTS["claude"].uses_subscription(where)

    write(here / ".claude" / ".credentials.json", {"claudeAiOauth": {"accessToken": "x"}})
    assert subscribed()
    assert not subscribed("--settings", '{"apiKeyHelper": "security find-generic-password"}')
    write(here / ".claude" / "settings.json", {"apiKeyHelper": "pass show anthropic"})
    assert not subscribed()
    write(here / ".claude" / "settings.json", {"env": {"ANTHROPIC_API_KEY": "k"}})
    assert not subscribed()


def test_codex_is_refused_if_its_arguments_or_its_organization_name_an_address(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codex_agent, "CODEX_SYSTEM_FOLDER", here / "etc")
    write(here / ".codex" / "config.toml", f'[model_providers.lab]\nbase_url = "{COMPANY}"\n')
    with pytest.raises(ActionRefused, match="its arguments name an address"):
        found(
            "codex", here, "-c", 'model_providers.lab={name="L",base_url="https://other.example"}'
        )
    assert found("codex", here, "-cmodel_provider=lab") == [("lab", COMPANY)]
    write(
        here / "etc" / "config.toml",
        f'model_provider = "all"\n[model_providers.all]\nbase_url = "{COMPANY}/all"\n',
    )
    assert found("codex", here) == [("all", f"{COMPANY}/all")]
    write(here / "etc" / "managed_config.toml", 'model_provider = "all"\n')
    with pytest.raises(ActionRefused, match="your organization sets its provider"):
        found("codex", here)


def test_opencode_reads_its_environment_and_all_its_folders(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settings(address: str) -> dict[str, Any]:
        return {"provider": {"anthropic": {"options": {"baseURL": f"https://{address}/v1"}}}}

    def address(**environ: str) -> str:
        return dict(found("opencode", here, ANTHROPIC_BASE_URL="https://shell/v1", **environ))[
            "anthropic"
        ]

    (here / "work" / ".git").mkdir()
    assert address() == "https://shell/v1"
    assert found("opencode", here, OPENAI_BASE_URL=COMPANY) == [("", ""), ("openai", COMPANY)]
    write(here / "work" / "opencode.json", settings("project"))
    assert address() == "https://project/v1"
    write(here / "work" / ".opencode" / "opencode.jsonc", settings("folder"))
    assert address() == "https://folder/v1"
    write(here / ".opencode" / "opencode.json", settings("home"))
    assert address() == "https://home/v1"
    write(here / "own" / "opencode.json", settings("own"))
    assert address(OPENCODE_CONFIG_DIR=str(here / "own")) == "https://own/v1"
    assert address(OPENCODE_CONFIG_CONTENT=json.dumps(settings("given"))) == "https://given/v1"
    monkeypatch.setattr(opencode_agent, "OPENCODE_MANAGED_FOLDER", here / "etc")
    write(here / "etc" / "opencode.json", settings("managed"))
    with pytest.raises(ActionRefused, match="your organization sets its providers"):
        address()


def test_a_chosen_provider_that_passes_by_is_named_without_a_sign_in(here: Path) -> None:
    def passing(agent: str, *arguments: str) -> list[str]:
        where = AgentSurroundings({}, here, here / "work", arguments)
        return KNOWN_AGENTS[agent].list_bypassing_providers(where, [AgentUpstream("corp", "x")])

    assert passing("claude", "--model", "openrouter/x") == []
    for agent in ("opencode", "pi"):
        assert (
            passing(agent)
            == passing(agent, "-m", "anthropic/claude")
            == passing(agent, "-m", "corp/a/b")
            == []
        )
        assert passing(agent, "--model=openrouter/anthropic/claude") == ["openrouter"]
    assert passing("pi", "--provider", "groq", "--model", "openai/gpt-oss") == ["groq"]
    write(here / ".config" / "opencode" / "opencode.json", {"model": "opencode/big-pickle"})
    assert (passing("opencode"), passing("opencode", "-m", "openai/gpt")) == (["opencode"], [])
    write(here / ".pi" / "agent" / "settings.json", {"defaultProvider": "github-copilot"})
    assert (passing("pi"), passing("pi", "--provider", "anthropic")) == (["github-copilot"], [])
    own = {
        "corp": {"models": [{"id": "a"}]},
        "anthropic": {"models": [{"id": "b", "baseUrl": COMPANY}]},
    }
    write(here / ".pi" / "agent" / "models.json", {"providers": own})
    assert passing("pi", "--provider", "corp") == ["anthropic"], (
        "its model has an address of its own"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and devices are files there are none of")
@pytest.mark.parametrize("kind", ["pipe", "endless device", "gigabytes"])
@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("claude", ".claude/settings.json"),
        ("gemini", ".env"),
        ("qwen", ".env"),
        ("qwen", ".qwen/settings.json"),
        ("opencode", "opencode.json"),
        ("pi", "../.pi/agent/models.json"),
    ],
)
def test_a_projects_settings_that_never_end_are_named(
    agent: str, name: str, kind: str, here: Path
) -> None:
    """A repository may have a link to a device. wrap read it until the memory was full."""
    file = here / "work" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "endless device":
        file.symlink_to("/dev/zero")
    else:
        with file.open("wb") as created:
            created.truncate(8 << 30)
    with pytest.raises(ConfigFileMistake, match="cannot tell where the agent sends its requests"):
        found(agent, here)
