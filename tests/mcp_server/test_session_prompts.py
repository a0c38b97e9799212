"""What a person asks for in an agent's terminal: a real gateway with an agent's
conversation, and the MCP server the agent starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import mcp
import mcp_types as types

from helix_desktop import program_folders
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.conftest import Expect
from tests.gateway.running import TOOL, Agent, running
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says

OUTPUT = "".join(f"row {number}\n" for number in range(3000))


def _script(asked: Asked) -> Sequence[Block]:
    done = asked.raw.count(b"tool_result")
    return [Says("done")] if done >= 3 else [Calls(TOOL, {"command": str(done)})]


async def _told(client: mcp.Client, name: str, words: str = "") -> str:
    found = await client.get_prompt(name, {"words": words} if words else {})
    return str(found.messages[0].content.text)  # type: ignore[union-attr]


async def _typed(client: mcp.Client, line: str) -> str:
    """What Claude Code sends when a person types this after the slash: one word for
    each argument that the prompt lists.
    """
    name, *words = line.split()
    (prompt,) = (one for one in (await client.list_prompts()).prompts if one.name == name)
    arguments = dict(zip((each.name for each in prompt.arguments or []), words, strict=False))
    found = await client.get_prompt(name, arguments)
    return str(found.messages[0].content.text)  # type: ignore[union-attr]


async def _typed_in_gemini_cli(client: mcp.Client, line: str) -> str:
    """The words are for the required arguments, all of them if there is only one."""
    name, *words = line.split()
    (prompt,) = (one for one in (await client.list_prompts()).prompts if one.name == name)
    assert [each.name for each in prompt.arguments or [] if each.required] == ["words"]
    return await _told(client, name, " ".join(words))


@asynccontextmanager
async def _agent_with_outputs(
    home: Path,
    outputs: Sequence[str],
    script: Callable[[Asked], Sequence[Block]] | None = None,
    others: Sequence[GatewayRegistration] = (),
) -> AsyncIterator[tuple[Agent, mcp.Client, Provider]]:
    """An agent that has read these outputs, and the MCP server beside it."""

    def call_for_each(asked: Asked) -> Sequence[Block]:
        done = asked.raw.count(b"tool_result")
        return (
            [Says("done")] if done >= len(outputs) else [Calls(TOOL, {"command": f"part {done}"})]
        )

    workspaces = AllWorkspaces(program_folders.find_program_folders(home).workspaces_folder)
    named = workspaces.create_stored_workspace("w").id
    program = [sys.executable, "-m", "helix_desktop", "--home", str(home)]
    server = mcp.StdioServerParameters(
        command=program[0], args=[*program[1:], "mcp", "--workspace", named]
    )
    with (
        Provider(script or call_for_each) as provider,
        running(
            home,
            provider.url,
            serves=True,
            workspace=named,
            others=[replace(one, upstream=provider.url, workspace=named) for one in others],
        ) as url,
    ):
        headers = {"user-agent": "claude-cli/2.1.331"}
        agent = Agent("anthropic", url, session="a session", headers=headers)
        left = iter(outputs)
        agent.units.append({"role": "user", "content": [_text("<system-reminder>Be short.</system-reminder>"), _text("Look around.")]})  # fmt: skip
        while calls := agent.ask():
            agent.results([(call, name, next(left)) for call, name, _ in calls])
        async with mcp.Client(server, cache=None) as client:
            yield agent, client, provider


def _text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


STEPS = [
    "\n".join(
        [
            f"step {step}: it took {step * 7} seconds",
            *(f"line {step} of {number}" for number in range(100)),
        ]
    )
    for step in range(1, 13)
]


async def test_what_is_recalled_has_all_the_words_that_were_typed(
    tmp_path: Path, expect: Expect
) -> None:
    expect("recall refused")
    async with _agent_with_outputs(tmp_path, STEPS) as (_, client, _):
        for number in (2, 1, 12):
            assert f"step {number}: it took {number * 7} seconds" in await _typed(
                client, f"recall step {number}"
            )
        told = await _typed(client, "recall took 14 seconds")
        assert "step 2: it took 14 seconds" in told
        assert told == await _typed(client, 'recall "took 14 seconds"')
        assert "\nline 9 of 77\n" in await _typed(
            client, "recall line 9 of 77"
        )  # Every output has these words somewhere.
        name = told.partition("cached content ")[2][:64]
        assert "step 2: it took 14 seconds" in await _typed(client, f"recall {name}")
        assert "step 2: it took 14 seconds" in await _typed(client, f"recall {name[:12]}")
        unknown = await _typed(client, "recall pomegranate")
        assert "Nothing in the cache contains 'pomegranate'." in unknown
        assert "hash" not in unknown.partition("Use other")[0]
        assert "A query is needed" in await _typed(client, "recall")
        assert "No entry" in await _typed(client, f"recall {'0' * 64}")


async def test_kept_is_the_part_with_the_words_also_deep_in_an_output(
    tmp_path: Path, expect: Expect
) -> None:
    expect("keep refused")
    async with _agent_with_outputs(tmp_path, [OUTPUT, *STEPS]) as (agent, client, provider):
        kept = await _typed(client, "keep look around")
        assert "word for word: Look around." in kept
        assert "row 2777" in await _typed(client, "keep row 2777")
        assert "Nothing has these words" in await _typed(client, "keep pomegranate")
        assert "step 12: it took" in await _typed(client, "keep")
        # What was typed and answered is in the conversation from then on, and is not
        # what is meant the next time.
        agent.units.append(
            {
                "role": "user",
                "content": [_text("<command-args>look around</command-args>"), _text(kept)],
            }
        )
        agent.ask()
        assert "word for word: Look around." in await _typed(client, "keep look around")
        assert provider.refused == []


async def test_without_an_output_nothing_is_kept_and_the_answer_says_so(
    tmp_path: Path, expect: Expect
) -> None:
    for refused in ("keep", "undo_fold", "fold_now"):
        expect(f"{refused} refused")
    async with _agent_with_outputs(tmp_path, []) as (_, client, _):
        assert "There is no output yet" in await _typed(client, "keep")
        assert "Nothing is folded" in await _typed(client, "undo_fold")
        assert "Folds: 0." in await _typed(client, "context of this")
        assert "could not do what I asked for" in await _typed(client, "fold_now please")


async def test_gemini_cli_which_fills_required_arguments_alone_hands_over_what_was_typed(
    tmp_path: Path,
) -> None:
    async with _agent_with_outputs(tmp_path, STEPS[:3]) as (_, client, _):
        required: dict[str, list[str]] = {}
        for prompt in (await client.list_prompts()).prompts:
            arguments = prompt.arguments or []
            required[prompt.name] = [each.name for each in arguments if each.required]
        assert required["recall"] == ["words"]
        assert required["keep"] == [], "Claude Code keeps the last output"
        gemini = types.Implementation(name="gemini-cli-mcp-client", version="1")
        async with mcp.Client(client.server, client_info=gemini, cache=None) as own:
            for line in ("recall took 14 seconds", "keep took 14 seconds"):
                assert "took 14 seconds" in await _typed_in_gemini_cli(own, line)


async def test_words_mean_the_conversation_of_the_agent_in_whose_terminal_they_were_typed(
    tmp_path: Path,
) -> None:
    async with _agent_with_outputs(tmp_path, STEPS[:1]) as (agent, client, _):
        other = Agent(
            "anthropic", agent.url, session="another", headers={"user-agent": "codex_exec/0.169"}
        )
        other.say("Paint the fence.")
        other.ask()
        newest = await _typed(client, "context")
        assert "Conversation: Paint the fence." in newest
        for name, title in (
            ("claude-code", "Look around."),
            ("codex-mcp-client", "Paint the fence."),
        ):
            info = types.Implementation(name=name, version="1")
            async with mcp.Client(client.server, client_info=info, cache=None) as own:
                assert f"Conversation: {title}" in await _typed(own, "context")


async def _context_by_environment(server: object, **environment: str) -> str:
    """What is told to a Claude Code that started the server in this environment."""
    assert isinstance(server, mcp.StdioServerParameters)
    info = types.Implementation(name="claude-code", version="1")
    started = server.model_copy(update={"env": {**os.environ, **environment}})
    async with mcp.Client(started, client_info=info, cache=None) as own:
        return await _told(own, "context")


async def test_of_two_claude_codes_each_is_told_of_its_own_session(tmp_path: Path) -> None:
    async with _agent_with_outputs(tmp_path, STEPS[:1]) as (agent, client, _):
        other = Agent("anthropic", agent.url, session="another", headers=agent.headers)
        other.say("Paint the fence.")
        other.ask()
        titles = {
            "a session": "Look around.",
            "another": "Paint the fence.",
            "unknown": "Paint the fence.",
        }
        for session, title in titles.items():
            told = await _context_by_environment(client.server, CLAUDE_CODE_SESSION_ID=session)
            assert f"Conversation: {title}" in told


async def test_after_clear_a_claude_code_that_wrap_did_not_start_is_told_of_its_new_session(
    tmp_path: Path,
) -> None:
    info = types.Implementation(name="claude-code", version="1")
    async with _agent_with_outputs(tmp_path, STEPS[:1]) as (agent, client, _):
        server = client.server
        assert isinstance(server, mcp.StdioServerParameters)

        def begin(session: str, words: str) -> None:
            begun = Agent("anthropic", agent.url, session=session, headers=agent.headers)
            begun.say(words)
            begun.ask()

        def started_by(session: str) -> mcp.StdioServerParameters:
            environment = {**os.environ, "CLAUDE_CODE_SESSION_ID": session}
            return server.model_copy(update={"env": environment})

        async with mcp.Client(started_by("first"), client_info=info, cache=None) as one:
            begin("first", "Mow the lawn.")
            assert "Conversation: Mow the lawn." in await _told(one, "context")
            begin("after clear", "Water the roses.")
            assert "Conversation: Water the roses." in await _told(one, "context")
            async with mcp.Client(started_by("second"), client_info=info, cache=None) as other:
                begin("second", "Paint the fence.")
                assert "Conversation: Paint the fence." in await _told(other, "context")
                assert "Conversation: Water the roses." in await _told(one, "context"), (
                    "it is known to be its own"
                )
                begin("of one of the two", "Feed the cat.")
                assert "Conversation: Water the roses." in await _told(one, "context")
                assert "Conversation: Paint the fence." in await _told(other, "context")


async def test_of_two_wrapped_agents_each_is_told_of_its_newest_conversation_also_after_clear(
    tmp_path: Path, expect: Expect
) -> None:
    expect("context refused")
    others = [GatewayRegistration(name) for name in ("one", "two", "three")]
    async with _agent_with_outputs(tmp_path, [], others=others) as (agent, client, _):
        urls = {
            one.token: agent.url.replace(agent.url.rpartition("/")[2], one.token) for one in others
        }
        for name, words in (
            ("one", "Mow the lawn."),
            ("one", "Water the roses."),
            ("two", "Paint the fence."),
        ):
            asking = Agent("anthropic", urls[name], session=words, headers=agent.headers)
            asking.say(words)
            asking.ask()
        for name, title in (("one", "Water the roses."), ("two", "Paint the fence.")):
            told = await _context_by_environment(
                client.server,
                HELIX_WRAP_ADDRESSES=urls[name],
                CLAUDE_CODE_SESSION_ID="Mow the lawn.",
            )
            assert f"Conversation: {title}" in told
        told = await _context_by_environment(client.server, HELIX_WRAP_ADDRESSES=urls["three"])
        assert (
            "could not do what I asked for" in told
        )  # It has sent nothing yet, and others' are not its own.


async def test_an_agents_terminal_shows_the_context_and_keeps_recalls_and_undoes(
    tmp_path: Path, expect: Expect
) -> None:
    expect("fold_now refused")
    workspaces = AllWorkspaces(program_folders.find_program_folders(tmp_path).workspaces_folder)
    named = workspaces.create_stored_workspace("w").id
    program = [sys.executable, "-m", "helix_desktop", "--home", str(tmp_path)]
    server = mcp.StdioServerParameters(
        command=program[0], args=[*program[1:], "mcp", "--workspace", named]
    )
    with (
        Provider(_script) as provider,
        running(tmp_path, provider.url, serves=True, workspace=named) as url,
    ):
        agent = Agent("anthropic", url, session="a session")
        agent.say("look around")
        while calls := agent.ask():
            agent.results(
                [(call, name, f"output {len(agent.units)}\n{OUTPUT}") for call, name, _ in calls]
            )
        async with mcp.Client(server, cache=None) as client:
            names = [one.name for one in (await client.list_prompts()).prompts]
            assert names == ["context", "fold_now", "keep", "undo_fold", "recall"]
            assert "Folds: 3." in await _told(client, "context")
            assert "shown in full again" in await _told(client, "undo_fold")
            assert "Folds: 2." in await _told(client, "context")
            assert "stays in the context" in await _told(client, "keep", "look around")
            assert "row 2999" in await _told(client, "recall", "row 2999")
            assert "could not do what I asked for" in await _told(
                client, "fold_now"
            )  # nothing is old yet
        agent.say("go on")
        agent.ask()
        assert provider.asked[-1].raw.count(b"row 1500") == 1  # what was undone is sent in full
        assert provider.refused == []
