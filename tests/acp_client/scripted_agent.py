"""An agent that does what the message says, word by word, with the standard library
alone: well-behaved, hostile or dying.

Run as `python scripted_agent.py [no-load]`. It keeps what its sessions were told in the
file that SCRIPTED_STATE names.
"""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

STATE = os.environ.get("SCRIPTED_STATE", "")
CAN_LOAD = "no-load" not in sys.argv
is_broken = False
provider: dict[str, Any] = {}  # Its address and headers, as they were set.
numbers = iter(range(1, 10**9))


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(session: str, update_kind: str, /, **values: Any) -> None:
    send(
        {
            "method": "session/update",
            "params": {"sessionId": session, "update": {"sessionUpdate": update_kind, **values}},
        }
    )


def say(session: str, text: str, kind: str = "agent_message_chunk") -> None:
    update(session, kind, content={"type": "text", "text": text})


def ask(method: str, **params: Any) -> Any:
    """Asks the client and waits for the answer; a cancel meanwhile is noted."""
    number = f"r{next(numbers)}"
    send({"id": number, "method": method, "params": params})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == number and "method" not in message:
            return message.get("result") if "error" not in message else message["error"]
        if message.get("method") == "session/cancel":
            continue
    sys.exit(0)


def remember(session: str, text: str) -> None:
    if STATE:
        with Path(STATE).open("a", encoding="utf-8") as file:
            file.write(json.dumps([session, text]) + "\n")


def call(session: str, identity: str, /, **values: Any) -> None:
    update(
        session,
        "tool_call",
        toolCallId=identity,
        **{"title": "work", "kind": "other", "status": "pending", **values},
    )


def done(
    session: str, identity: str, text: str = "done", status: str = "completed", **values: Any
) -> None:
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    update(
        session,
        "tool_call_update",
        toolCallId=identity,
        status=status,
        **{"content": content, **values},
    )


def act(session: str, words: list[str], prompt: list[Any]) -> None:  # noqa: C901, PLR0912, PLR0915 -- a script
    match words:
        case ["say", *rest]:
            say(session, " ".join(rest))
        case ["echo-prompt"]:
            say(session, json.dumps(prompt))
        case ["ask-model", *rest]:
            asked: dict[str, Any] = {
                "model": "scripted",
                "max_tokens": 9,
                "messages": [{"role": "user", "content": " ".join(rest)}],
            }
            asked["tools"] = [
                {"name": "work", "description": "Works", "input_schema": {"type": "object"}}
            ]
            given = {"content-type": "application/json", "authorization": "Bearer acp-proxy"}
            given |= {
                "x-claude-code-session-id": session,
                "anthropic-version": "1",
                **provider.get("headers", {}),
            }
            address = f"{provider.get('baseUrl') or os.environ['SCRIPTED_PROVIDER']}/v1/messages"
            request = urllib.request.Request(address, json.dumps(asked).encode(), given)  # noqa: S310 -- the test's own
            with urllib.request.urlopen(request) as answer:  # noqa: S310 -- the test's own
                say(session, json.load(answer)["content"][0]["text"])
        case ["think", *rest]:
            say(session, " ".join(rest), "agent_thought_chunk")
        case ["plan"]:
            update(
                session,
                "plan",
                entries=[{"content": "one", "priority": "high", "status": "in_progress"}],
            )
        case ["work"]:
            say(session, "I begin. ")
            call(session, "a", rawInput={"path": "x"})
            call(session, "b", kind="read", title="Read y")
            update(session, "tool_call_update", toolCallId="a", status="in_progress")
            done(session, "b", "y's text")
            done(session, "a", "x's text")
            say(session, "I am done.")
        case ["diff", path]:
            content = [{"type": "diff", "path": path, "oldText": "old\n", "newText": "new\n"}]
            call(session, "d", kind="edit", title="Edit", content=content)
            update(session, "tool_call_update", toolCallId="d", status="completed")
        case ["change", path, text]:
            call(session, f"change {path}", kind="edit", title="Edit")
            Path(path).write_text(text + "\n")
            done(session, f"change {path}")
        case ["permit", kind, what, *text]:
            key = "command" if kind == "execute" else "path"
            part, _, whole = " ".join(text).partition("->")
            text, old = ([whole], part) if whole else (text, Path(what).read_text() if text else "")
            wanted: dict[str, Any] = {
                "toolCallId": f"p{next(numbers)}",
                "title": f"{kind} {what}",
                "kind": kind,
                "rawInput": {key: what},
                "content": [
                    {"type": "diff", "path": what, "oldText": old, "newText": one + "\n"}
                    for one in text
                ],
            }
            options = [
                {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
                {"optionId": "no", "name": "No", "kind": "reject_once"},
            ]
            answer = ask(
                "session/request_permission", sessionId=session, toolCall=wanted, options=options
            )
            if answer["outcome"]["outcome"] != "cancelled":
                done(session, wanted["toolCallId"], json.dumps(answer))
            say(session, json.dumps(answer))
        case ["ask", method, *rest]:
            say(session, json.dumps(ask(method, sessionId=session, **json.loads(" ".join(rest)))))
        case ["begin", method, *rest]:
            send(
                {
                    "id": "begun",
                    "method": method,
                    "params": {"sessionId": session, **json.loads(" ".join(rest))},
                }
            )
        case ["tell", *rest]:
            update(session, "tool_call_update", **json.loads(" ".join(rest)))
        case ["await-file", path]:
            while not Path(path).exists():
                time.sleep(0.01)
        case ["await-begun"]:
            while json.loads(sys.stdin.readline()).get("id") != "begun":
                pass
        case ["read", path]:
            say(session, json.dumps(ask("fs/read_text_file", sessionId=session, path=path)))
        case ["write", path, text]:
            say(
                session,
                json.dumps(
                    ask("fs/write_text_file", sessionId=session, path=path, content=text + "\n")
                ),
            )
        case ["run" | "run-shown-late" as how, *rest]:
            made = ask("terminal/create", sessionId=session, command=" ".join(rest))
            terminal = made["terminalId"]
            for _ in range(50 if how == "run-shown-late" else 0):
                ask("fs/read_text_file", sessionId=session, path="/nowhere")
            call(
                session,
                "t",
                kind="execute",
                status="in_progress",
                content=[{"type": "terminal", "terminalId": terminal}],
            )
            ended = ask("terminal/wait_for_exit", sessionId=session, terminalId=terminal)
            printed = ask("terminal/output", sessionId=session, terminalId=terminal)
            ask("terminal/release", sessionId=session, terminalId=terminal)
            update(session, "tool_call_update", toolCallId="t", status="completed")
            say(session, json.dumps([ended, printed]))
        case ["run-in", place, *rest]:
            made = ask(
                "terminal/create",
                sessionId=session,
                command=" ".join(rest),
                cwd="" if place == "-" else place,
            )
            ask("terminal/wait_for_exit", sessionId=session, terminalId=made["terminalId"])
        case [
            "run-under-its-id",
            *rest,
        ]:  # A call of its own takes the id it was told of the terminal.
            terminal = ask("terminal/create", sessionId=session, command=" ".join(rest))[
                "terminalId"
            ]
            call(session, terminal, title="mine", status="in_progress")
            done(session, terminal, "faked")
            ask("terminal/wait_for_exit", sessionId=session, terminalId=terminal)
            ask("terminal/release", sessionId=session, terminalId=terminal)
        case ["run-and-kill", *rest]:
            made = ask("terminal/create", sessionId=session, command=" ".join(rest))
            while not ask("terminal/output", sessionId=session, terminalId=made["terminalId"])[
                "output"
            ]:
                time.sleep(0.01)
            ask("terminal/kill", sessionId=session, terminalId=made["terminalId"])
            say(
                session,
                json.dumps(
                    ask("terminal/output", sessionId=session, terminalId=made["terminalId"])
                ),
            )
        case ["form"]:
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            say(
                session,
                json.dumps(
                    ask(
                        "elicitation/create",
                        sessionId=session,
                        mode="form",
                        message="Who?",
                        requestedSchema=schema,
                    )
                ),
            )
        case ["last-words"]:  # what it is made of is gone, and the next prompt fails
            global is_broken  # noqa: PLW0603
            is_broken = True
        case ["die"]:
            sys.stderr.write("out of memory\n")
            sys.stderr.flush()
            os._exit(3)
        case ["hang"]:
            time.sleep(3600)
        case ["deaf"]:
            for _ in sys.stdin:
                pass
        case ["strange"]:
            sys.stdout.write('no json\n[1]\n{"id": {}}\n{"id": 1, "error": 5}\n{"method": 4}\n\n\n')
            update(session, "something_new", deep={"a": 1})
            send({"method": "session/update", "params": []})
            send({"method": "other/note", "params": {}})
            say(session, json.dumps(ask("other/method")))
            update(
                session, "tool_call_update", toolCallId=None, status="completed", content="no list"
            )
        case ["flood"]:
            while True:
                say(session, "flood " * 10)
        case ["calls"]:
            for number in range(10**9):
                call(session, f"c{number}", status="in_progress")
        case ["endless"]:
            while True:
                sys.stdout.write("x" * 65536)
        case ["requests", count, path, *same]:
            asked = {
                "jsonrpc": "2.0",
                "method": "fs/read_text_file",
                "params": {"sessionId": session, "path": path},
            }
            lines = [
                json.dumps({"id": "same" if same else f"m{number}", **asked})
                for number in range(int(count))
            ]
            sys.stdout.write("\n".join([*lines, ""]))
            sys.stdout.flush()
            time.sleep(3600)
        case ["crowd"]:
            say(session, "x" * 3_000_000)


def main() -> None:  # noqa: C901, PLR0912, PLR0915 -- a script
    mode, web = "ask", False
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        session = params.get("sessionId", "")
        result: Any = {}
        modes = {
            "currentModeId": mode,
            "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "auto", "name": "Auto"}],
        }
        match method:
            case "initialize":
                if "mute" in sys.argv:
                    time.sleep(3600)
                more: dict[str, Any] = (
                    {"sessionCapabilities": {"resume": {}}} if "says-resume" in sys.argv else {}
                )
                more |= {"providers": {}} if "routed" in sys.argv else {}
                capable = {
                    **more,
                    "loadSession": CAN_LOAD,
                    "promptCapabilities": {"image": "no-images" not in sys.argv},
                }
                result = {
                    "protocolVersion": 1,
                    "agentCapabilities": capable,
                    "authMethods": [{"id": "x", "name": "Log in"}],
                }
            case "providers/list":
                listed = {"providerId": "main", "supported": ["anthropic"], "required": False}
                current = {"apiType": "anthropic", "baseUrl": os.environ["SCRIPTED_PROVIDER"]}
                result = {"providers": [{**listed, "current": current}]}
            case "providers/set":
                provider.update(params)
                remember("provider", params["providerId"])
            case "session/new":
                session = f"s{os.getpid()}-{next(numbers)}"
                offered = [{"name": "review", "description": "Looks at the changes"}]
                update(session, "available_commands_update", availableCommands=offered)
                option = {"type": "boolean", "id": "web", "name": "Web", "currentValue": web}
                result = {"sessionId": session, "modes": modes, "configOptions": [option]}
            case "session/resume":
                send(
                    {"id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
                )
                continue
            case "session/load":
                say(session, "said long ago")
                remember(session, "[loaded]")
                result = {"modes": modes}
            case "session/set_mode":
                mode = params["modeId"]
            case "session/set_config_option":
                web = params["value"]
                remember(session, f"{params['configId']} is {'on' if web is True else web}")
            case "session/prompt":
                if is_broken:
                    remember(session, "[failed]")
                    send(
                        {
                            "id": message["id"],
                            "error": {"code": -32603, "message": "The process exited"},
                        }
                    )
                    continue
                text = "\n".join(part.get("text", "") for part in params["prompt"])
                remember(session, text)
                if "needs-login" in sys.argv:
                    send(
                        {
                            "id": message["id"],
                            "error": {"code": -32000, "message": "Authentication required"},
                        }
                    )
                    continue
                last = params["prompt"][-1].get("text", "")
                for act_line in last.splitlines():
                    act(session, act_line.split(" "), params["prompt"])
                update(
                    session,
                    "usage_update",
                    used=10,
                    size=50_000,
                    cost={"amount": 0.25, "currency": "USD"},
                )
                result = {"stopReason": "end_turn", "usage": {"inputTokens": 7, "outputTokens": 3}}
            case _:
                if "id" not in message:
                    continue
        send({"id": message["id"], "result": result})


main()
