"""Histories as the programs write them, small: each with reasoning, a call, its output,
and a second turn.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

OUTPUT = "\n".join(f"line {number} of the output" for number in range(200))
Lines = Iterable[Mapping[str, Any]]


def lines(path: Path, values: Lines) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


# --- Claude Code


def claude_line(number: int, kind: str, parent: int | None, **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": f"u{number}",
        "parentUuid": None if parent is None else f"u{parent}",
        "sessionId": "session-1",
        "cwd": "/home/me/project",
        "version": "2.1.197",
        "timestamp": f"2026-01-02T03:04:{number % 60:02}.000Z",
        "isSidechain": False,
        **more,
    }


def claude_said(number: int, parent: int | None, content: Any, **more: Any) -> dict[str, Any]:
    return claude_line(number, "user", parent, message={"role": "user", "content": content}, **more)


def claude_reply(
    number: int, parent: int | None, name: str, *blocks: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 30,
        "output_tokens": 20,
    }
    message = {
        "id": name,
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": list(blocks),
        "usage": usage,
    }
    return claude_line(number, "assistant", parent, message=message, **more)


def thinking(text: str = "Let me think.") -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": "signed"}


def use(name: str, tool: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": tool, "input": arguments or {"command": "ls"}}


def result(name: str, text: Any = OUTPUT, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": text, **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def claude_session() -> list[dict[str, Any]]:
    return [
        claude_said(1, None, "list the files"),
        claude_reply(2, 1, "m1", thinking()),
        claude_reply(3, 2, "m1", text("I look.")),
        claude_reply(4, 3, "m1", use("t1")),
        claude_said(5, 4, [result("t1")]),
        claude_reply(6, 5, "m2", text("Done.")),
        claude_said(7, 6, "and again"),
        claude_reply(8, 7, "m3", text("Again.")),
    ]


def claude(folder: Path) -> Path:
    return lines(folder / "projects" / "-home-me-project" / "session-1.jsonl", claude_session())


# --- the others


def codex(folder: Path) -> Path:
    def item(second: int, **payload: Any) -> dict[str, Any]:
        return {
            "timestamp": f"2026-01-02T03:04:{second:02}.000Z",
            "type": "response_item",
            "payload": payload,
        }

    about = {
        "id": "thread-1",
        "cwd": "/home/me/project",
        "cli_version": "0.169.0",
        "base_instructions": {"text": "Be good."},
    }
    values = [
        {"timestamp": "2026-01-02T03:04:00.000Z", "type": "session_meta", "payload": about},
        {
            "timestamp": "2026-01-02T03:04:00.000Z",
            "type": "turn_context",
            "payload": {"model": "gpt-5"},
        },
        item(
            1,
            type="message",
            role="user",
            content=[{"type": "input_text", "text": "list the files"}],
        ),
        item(
            2,
            type="reasoning",
            id="rs_1",
            summary=[{"type": "summary_text", "text": "hm"}],
            encrypted_content="sealed",
        ),
        item(
            3,
            type="message",
            role="assistant",
            content=[{"type": "output_text", "text": "I look."}],
        ),
        item(4, type="function_call", name="exec_command", arguments='{"cmd": "ls"}', call_id="c1"),
        item(5, type="function_call_output", call_id="c1", output=OUTPUT),
        item(
            6,
            type="web_search_call",
            id="ws_1",
            action={"type": "search", "query": "qt"},
            status="completed",
        ),
        item(
            7, type="message", role="assistant", content=[{"type": "output_text", "text": "Done."}]
        ),
        item(8, type="message", role="user", content=[{"type": "input_text", "text": "and again"}]),
        item(
            9, type="message", role="assistant", content=[{"type": "output_text", "text": "Again."}]
        ),
    ]
    return lines(
        folder / "sessions" / "2026" / "01" / "02" / "rollout-2026-01-02T03-04-00-thread-1.jsonl",
        values,
    )


def opencode(folder: Path) -> Path:
    path = folder / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    state = {
        "status": "completed",
        "input": {"command": "ls"},
        "output": OUTPUT,
        "time": {"start": 3_000, "end": 4_000},
    }
    messages: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = [
        ("m1", {"role": "user"}, [{"type": "text", "text": "list the files"}]),
        (
            "m2",
            {
                "role": "assistant",
                "modelID": "claude-sonnet-4-5",
                "tokens": {"input": 40, "output": 20, "cache": {"read": 60}},
            },
            [
                {"type": "step-start"},
                {"type": "reasoning", "text": "hm"},
                {"type": "text", "text": "I look."},
                {"type": "tool", "tool": "bash", "callID": "c1", "state": state},
                {"type": "step-finish"},
            ],
        ),
        (
            "m3",
            {"role": "assistant", "modelID": "claude-sonnet-4-5"},
            [{"type": "text", "text": "Done."}],
        ),
        ("m4", {"role": "user"}, [{"type": "text", "text": "and again"}]),
        (
            "m5",
            {"role": "assistant", "modelID": "claude-sonnet-4-5"},
            [{"type": "text", "text": "Again."}],
        ),
    ]
    with closing(sqlite3.connect(path)) as made, made:
        made.execute(
            "CREATE TABLE session(id, parent_id, directory, title, version, time_created, time_updated)"
        )
        made.execute("CREATE TABLE message(id, session_id, time_created, data)")
        made.execute("CREATE TABLE part(id, message_id, session_id, data)")
        begun = 1_767_323_040_000
        made.execute(
            "INSERT INTO session VALUES('ses_1', NULL, '/home/me/project', 'Files', '1.18', ?, ?)",
            (begun, begun),
        )
        for at, (name, message, parts) in enumerate(messages):
            data = {**message, "time": {"created": begun + at * 1_000}}
            made.execute(
                "INSERT INTO message VALUES(?, 'ses_1', ?, ?)",
                (name, begun + at * 1_000, json.dumps(data)),
            )
            for number, part in enumerate(parts):
                made.execute(
                    "INSERT INTO part VALUES(?, ?, 'ses_1', ?)",
                    (f"{name}-{number}", name, json.dumps(part)),
                )
    return path


def gemini(folder: Path) -> Path:
    def record(name: str, kind: str, content: Any, **more: Any) -> dict[str, Any]:
        return {
            "id": name,
            "timestamp": "2026-01-02T03:04:05.000Z",
            "type": kind,
            "content": content,
            **more,
        }

    answer = {
        "functionResponse": {
            "id": "c1",
            "name": "run_shell_command",
            "response": {"output": OUTPUT},
        }
    }
    call = {
        "id": "c1",
        "name": "run_shell_command",
        "args": {"command": "ls"},
        "result": [answer],
        "status": "success",
    }
    thoughts = [{"subject": "Thinking", "description": "hm"}]
    reply = record("r1", "gemini", "I look.", thoughts=thoughts, model="gemini-2.5-flash")
    values = [
        {
            "sessionId": "chat-1",
            "projectHash": "0",
            "startTime": "2026-01-02T03:04:05.000Z",
            "kind": "main",
        },
        record("q1", "user", [{"text": "list the files"}]),
        reply,
        {"$set": {"lastUpdated": "2026-01-02T03:04:05.000Z"}},
        {**reply, "toolCalls": [call]},
        record("q2", "user", [answer]),
        record("r2", "gemini", "Done.", model="gemini-2.5-flash"),
        record("q3", "user", [{"text": "and again"}]),
        record("r3", "gemini", "Again.", model="gemini-2.5-flash"),
    ]
    path = lines(
        folder / "tmp" / "project" / "chats" / "session-2026-01-02T03-04-chat.jsonl", values
    )
    (folder / "tmp" / "project" / ".project_root").write_text("/home/me/project")
    return path


def pi(folder: Path) -> Path:
    def entry(name: str, parent: str | None, **message: Any) -> dict[str, Any]:
        return {
            "type": "message",
            "id": name,
            "parentId": parent,
            "timestamp": "2026-01-02T03:04:05.000Z",
            "message": message,
        }

    by = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-sonnet-4-5"}
    blocks = [
        {"type": "thinking", "thinking": "hm", "thinkingSignature": "signed"},
        {"type": "text", "text": "I look."},
        {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls"}},
    ]
    values = [
        {
            "type": "session",
            "version": 3,
            "id": "pi-1",
            "timestamp": "2026-01-02T03:04:05.000Z",
            "cwd": "/home/me/project",
        },
        entry("e1", None, role="user", content="list the files"),
        entry("e2", "e1", role="assistant", content=blocks, **by),
        entry(
            "e3",
            "e2",
            role="toolResult",
            toolCallId="c1",
            content=[{"type": "text", "text": OUTPUT}],
            isError=False,
        ),
        entry("e4", "e3", role="assistant", content=[{"type": "text", "text": "Done."}], **by),
        entry("e5", "e4", role="user", content="and again"),
        entry("e6", "e5", role="assistant", content=[{"type": "text", "text": "Again."}], **by),
    ]
    return lines(folder / "sessions" / "--home-me-project--" / "2026_pi-1.jsonl", values)


def qwen_line(number: int, kind: str, *parts: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A record that follows the one before it."""
    roles = {"assistant": "model"}
    return {
        "uuid": f"q{number}",
        "parentUuid": f"q{number - 1}" if number else None,
        "sessionId": "qwen-1",
        "timestamp": f"2026-01-02T03:04:{number % 60:02}.000Z",
        "type": kind,
        "cwd": "/home/me/project",
        "version": "0.24.4",
        "message": {"role": roles.get(kind, "user"), "parts": list(parts)},
        **more,
    }


def qwen_call(name: str) -> dict[str, Any]:
    arguments = {"command": "ls"}
    return {"functionCall": {"id": name, "name": "run_shell_command", "args": arguments}}


def qwen_result(name: str, **response: str) -> dict[str, Any]:
    answer = {"id": name, "name": "run_shell_command", "response": response}
    return {"functionResponse": answer}


def qwen_session() -> list[dict[str, Any]]:
    thought = {"text": "hm", "thought": True}
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 5,
    }
    by = {"model": "qwen3-coder", "usageMetadata": usage}
    return [
        qwen_line(0, "user", {"text": "list the files"}),
        qwen_line(1, "assistant", thought, {"text": "I look."}, qwen_call("c1"), **by),
        qwen_line(2, "tool_result", qwen_result("c1", output=OUTPUT)),
        qwen_line(3, "assistant", {"text": "Done."}, **by),
        qwen_line(4, "user", {"text": "and again"}),
        qwen_line(5, "assistant", {"text": "Again."}, **by),
    ]


def qwen(folder: Path) -> Path:
    chats = folder / ".qwen" / "projects" / "-home-me-project" / "chats"
    return lines(chats / "qwen-1.jsonl", qwen_session())


def copilot_event(number: int, kind: str, /, agent: str = "", **data: Any) -> dict[str, Any]:
    event: dict[str, Any] = {
        "type": kind,
        "data": data,
        "id": f"e{number}",
        "timestamp": f"2026-01-02T03:04:{number % 60:02}.000Z",
        "parentId": f"e{number - 1}" if number else None,
    }
    if agent:
        event["agentId"] = agent
    return event


def copilot_session() -> list[dict[str, Any]]:
    start: dict[str, Any] = {
        "sessionId": "copilot-1",
        "copilotVersion": "1.0.102",
        "context": {"cwd": "/home/me/project"},
    }
    call = {"toolCallId": "c1", "name": "bash", "arguments": {"command": "ls"}}
    usage = {
        "apiCallId": "r1",
        "inputTokens": 100,
        "cacheReadTokens": 60,
        "cacheWriteTokens": 30,
        "outputTokens": 20,
    }
    first_reply: dict[str, Any] = {
        "content": "I look.",
        "reasoningText": "hm",
        "toolRequests": [call],
    }
    return [
        copilot_event(0, "session.start", **start),
        copilot_event(1, "user.message", content="list the files"),
        copilot_event(2, "session.usage_record", usage=usage),
        copilot_event(3, "assistant.message", model="gpt-5", apiCallId="r1", **first_reply),
        copilot_event(
            4, "tool.execution_complete", toolCallId="c1", success=True, result={"content": OUTPUT}
        ),
        copilot_event(5, "assistant.message", model="gpt-5", content="Done.", toolRequests=[]),
        copilot_event(6, "user.message", content="and again"),
        copilot_event(7, "assistant.message", model="gpt-5", content="Again.", toolRequests=[]),
    ]


def copilot(folder: Path) -> Path:
    session = folder / ".copilot" / "session-state" / "copilot-1"
    return lines(session / "events.jsonl", copilot_session())


def cline(folder: Path) -> Path:
    path = folder / "tasks" / "1767323045000" / "api_conversation_history.json"
    path.parent.mkdir(parents=True)
    messages = [
        {"role": "user", "content": [text("list the files")]},
        {
            "role": "assistant",
            "content": [thinking(), text("I look."), use("t1", "execute_command")],
        },
        {"role": "user", "content": [result("t1", [text(OUTPUT)])]},
        {"role": "assistant", "content": [text("Done.")]},
        {"role": "user", "content": [text("and again")]},
        {"role": "assistant", "content": [text("Again.")]},
    ]
    path.write_text(json.dumps(messages), encoding="utf-8")
    return path


def goose(folder: Path) -> Path:
    path = folder / "goose" / "sessions" / "sessions.db"
    path.parent.mkdir(parents=True)
    call = {
        "status": "success",
        "value": {"name": "developer__shell", "arguments": {"command": "ls"}},
    }
    answer = {"status": "success", "value": [{"type": "text", "text": OUTPUT}]}
    messages: list[tuple[str, list[dict[str, Any]]]] = [
        ("user", [text("list the files")]),
        ("assistant", [text("I look."), {"type": "toolRequest", "id": "c1", "toolCall": call}]),
        ("user", [{"type": "toolResponse", "id": "c1", "toolResult": answer}]),
        ("assistant", [text("Done.")]),
        ("user", [text("and again")]),
        ("assistant", [text("Again.")]),
    ]
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE sessions(id, name, working_dir, created_at, updated_at)")
        made.execute(
            "CREATE TABLE messages(id INTEGER PRIMARY KEY, session_id, role, content_json, created_timestamp, metadata_json)"
        )
        made.execute(
            "INSERT INTO sessions VALUES('g1', 'Files', '/home/me/project', '2026-01-02 03:04:05', '2026-01-02 03:04:09')"
        )
        for at, (role, content) in enumerate(messages):
            row = ("g1", role, json.dumps(content), 1_767_323_045 + at, "{}")
            made.execute(
                "INSERT INTO messages(session_id, role, content_json, created_timestamp, metadata_json) VALUES(?, ?, ?, ?, ?)",
                row,
            )
    return path


def openai(folder: Path) -> Path:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "read", "arguments": '{"path": "x.py"}'},
    }
    values: list[dict[str, Any]] = [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "list the files"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": OUTPUT},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "and again"},
        {"role": "assistant", "content": "Again."},
    ]
    return lines(folder / "trace.jsonl", values)


def anthropic(folder: Path) -> Path:
    path = folder / "request.json"
    messages = json.loads(cline(folder).read_text())
    path.write_text(json.dumps({"system": "Be good.", "messages": messages}))
    return path


KINDS: Mapping[str, Callable[[Path], Path]] = {
    "claude-code": claude,
    "codex": codex,
    "opencode": opencode,
    "gemini-cli": gemini,
    "pi": pi,
    "qwen-code": qwen,
    "copilot-cli": copilot,
    "cline": cline,
    "goose": goose,
    "openai": openai,
    "anthropic": anthropic,
}
