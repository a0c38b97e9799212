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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STATE = os.environ.get("SCRIPTED_STATE", "")
CAN_LOAD = "no-load" not in sys.argv
is_broken = False
loaded_sessions: set[str] = set()
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


# --- What the words of a message make the agent do


Words = list[str]  # What stands in the line behind the word itself.


def say_words(session: str, rest: Words) -> None:
    say(session, " ".join(rest))


def ask_model(session: str, rest: Words) -> None:
    """Asks the provider that the client set, or the one of the environment, and says its answer."""
    request_body = {
        "model": "scripted",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": " ".join(rest)}],
        "tools": [{"name": "work", "description": "Works", "input_schema": {"type": "object"}}],
    }
    headers = {
        "content-type": "application/json",
        "authorization": "Bearer acp-proxy",
        "x-claude-code-session-id": session,
        "anthropic-version": "1",
    }
    headers.update(provider.get("headers", {}))
    base = provider.get("baseUrl") or os.environ["SCRIPTED_PROVIDER"]
    body = json.dumps(request_body).encode()
    request = urllib.request.Request(f"{base}/v1/messages", body, headers)  # noqa: S310 -- the test's own
    with urllib.request.urlopen(request) as answer:  # noqa: S310 -- the test's own
        reply = json.load(answer)
    say(session, reply["content"][0]["text"])


def think(session: str, rest: Words) -> None:
    say(session, " ".join(rest), "agent_thought_chunk")


def plan(session: str, _rest: Words) -> None:
    entry = {"content": "one", "priority": "high", "status": "in_progress"}
    update(session, "plan", entries=[entry])


def work(session: str, _rest: Words) -> None:
    """Two calls at once; the second one ends first."""
    say(session, "I begin. ")
    call(session, "a", rawInput={"path": "x"})
    call(session, "b", kind="read", title="Read y")
    update(session, "tool_call_update", toolCallId="a", status="in_progress")
    done(session, "b", "y's text")
    done(session, "a", "x's text")
    say(session, "I am done.")


def show_diff(session: str, rest: Words) -> None:
    (path,) = rest
    content = [{"type": "diff", "path": path, "oldText": "old\n", "newText": "new\n"}]
    call(session, "d", kind="edit", title="Edit", content=content)
    update(session, "tool_call_update", toolCallId="d", status="completed")


def change_file(session: str, rest: Words) -> None:
    path, text = rest
    call(session, f"change {path}", kind="edit", title="Edit")
    Path(path).write_text(text + "\n")
    done(session, f"change {path}")


def ask_permission_many_times(session: str, rest: Words) -> None:
    """`NUMBER`: for so many commands at once, without waiting for an answer."""
    for _ in range(int(rest[0])):
        number = next(numbers)
        tool_call = {"toolCallId": f"p{number}", "rawInput": {"command": f"touch {number}"}}
        options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
        params = {"sessionId": session, "toolCall": tool_call, "options": options}
        send({"id": f"r{number}", "method": "session/request_permission", "params": params})


def ask_permission(session: str, rest: Words) -> None:
    """`KIND WHAT`, and for an edit the new text, or `OLD->NEW`: a part of the file and what
    it becomes.
    """
    kind, target, *text_words = rest
    text = " ".join(text_words)
    old_part, _, new_part = text.partition("->")
    content = []
    if new_part:
        content.append(diff_of(target, old_part, new_part))
    elif text_words:
        old_text = Path(target).read_text()
        content.extend(diff_of(target, old_text, word) for word in text_words)
    input_key = "command" if kind == "execute" else "path"
    tool_call: dict[str, Any] = {
        "toolCallId": f"p{next(numbers)}",
        "title": f"{kind} {target}",
        "kind": kind,
        "rawInput": {input_key: target},
        "content": content,
    }
    options = [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ]
    answer = ask(
        "session/request_permission", sessionId=session, toolCall=tool_call, options=options
    )
    if answer["outcome"]["outcome"] != "cancelled":
        done(session, tool_call["toolCallId"], json.dumps(answer))
    say(session, json.dumps(answer))


def diff_of(path: str, old_text: str, new_line: str) -> dict[str, str]:
    return {"type": "diff", "path": path, "oldText": old_text, "newText": new_line + "\n"}


def ask_anything(session: str, rest: Words) -> None:
    """`METHOD PARAMS`: any request to the client, whose answer is said."""
    method, *params = rest
    answer = ask(method, sessionId=session, **json.loads(" ".join(params)))
    say(session, json.dumps(answer))


def begin_request(session: str, rest: Words) -> None:
    """Like `ask`, without waiting for the answer; `await-begun` does that."""
    method, *params = rest
    all_params = {"sessionId": session, **json.loads(" ".join(params))}
    send({"id": "begun", "method": method, "params": all_params})


def await_begun(_session: str, _rest: Words) -> None:
    while json.loads(sys.stdin.readline()).get("id") != "begun":
        pass


def tell_of_call(session: str, rest: Words) -> None:
    update(session, "tool_call_update", **json.loads(" ".join(rest)))


def await_file(_session: str, rest: Words) -> None:
    (path,) = rest
    while not Path(path).exists():
        time.sleep(0.01)


def read_file(session: str, rest: Words) -> None:
    (path,) = rest
    say(session, json.dumps(ask("fs/read_text_file", sessionId=session, path=path)))


def write_file(session: str, rest: Words) -> None:
    path, text = rest
    answer = ask("fs/write_text_file", sessionId=session, path=path, content=text + "\n")
    say(session, json.dumps(answer))


# --- Commands that the client runs for the agent


def create_terminal(session: str, command: Words, **more: str) -> str:
    created = ask("terminal/create", sessionId=session, command=" ".join(command), **more)
    return str(created["terminalId"])


def terminal(action: str, session: str, terminal_id: str) -> Any:
    return ask(f"terminal/{action}", sessionId=session, terminalId=terminal_id)


def run(session: str, rest: Words) -> None:
    show_terminal(session, create_terminal(session, rest), rest)


def run_shown_late(session: str, rest: Words) -> None:
    """The client has much to answer before it learns to which call the terminal belongs."""
    terminal_id = create_terminal(session, rest)
    for _ in range(50):
        ask("fs/read_text_file", sessionId=session, path="/nowhere")
    show_terminal(session, terminal_id, rest)


def show_terminal(
    session: str, terminal_id: str, command: Words, identity: str = "t", **values: Any
) -> None:
    content = [{"type": "terminal", "terminalId": terminal_id}]
    said = {"kind": "execute", "rawInput": {"command": " ".join(command)}, **values}
    call(session, identity, status="in_progress", content=content, **said)
    ended = terminal("wait_for_exit", session, terminal_id)
    printed = terminal("output", session, terminal_id)
    terminal("release", session, terminal_id)
    update(session, "tool_call_update", toolCallId=identity, status="completed")
    say(session, json.dumps([ended, printed]))


def run_as(session: str, rest: Words) -> None:
    """`CALL TITLE COMMAND`: the call that shows the terminal says that it does something else."""
    identity, title, *command = rest
    terminal_id = create_terminal(session, command)
    show_terminal(session, terminal_id, command, identity, title=title, rawInput={"path": "x"})


def speak_elsewhere(session: str, rest: Words) -> None:
    """`PATH`: words and a request of a session that is not the conversation's."""
    say("another session", "not of this session")
    say(session, json.dumps(ask("fs/read_text_file", sessionId="another", path=rest[0])))


def run_in_folder(session: str, rest: Words) -> None:
    """`FOLDER COMMAND`; a folder of `-` is none at all."""
    folder, *command = rest
    if folder == "-":
        folder = ""
    terminal_id = create_terminal(session, command, cwd=folder)
    terminal("wait_for_exit", session, terminal_id)


def run_under_its_id(session: str, rest: Words) -> None:
    """A call of the agent's own takes the id that it was told of the terminal."""
    terminal_id = create_terminal(session, rest)
    call(session, terminal_id, title="mine", status="in_progress")
    done(session, terminal_id, "faked")
    terminal("wait_for_exit", session, terminal_id)
    terminal("release", session, terminal_id)


def run_and_kill(session: str, rest: Words) -> None:
    terminal_id = create_terminal(session, rest)
    while not terminal("output", session, terminal_id)["output"]:
        time.sleep(0.01)
    terminal("kill", session, terminal_id)
    say(session, json.dumps(terminal("output", session, terminal_id)))


def show_form(session: str, _rest: Words) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    answer = ask(
        "elicitation/create",
        sessionId=session,
        mode="form",
        message="Who?",
        requestedSchema=schema,
    )
    say(session, json.dumps(answer))


# --- How an agent misbehaves


def break_session(_session: str, _rest: Words) -> None:
    """What the session is made of is gone, and the next prompt fails."""
    global is_broken  # noqa: PLW0603
    is_broken = True


def die(_session: str, _rest: Words) -> None:
    sys.stderr.write("out of memory\n")
    sys.stderr.flush()
    os._exit(3)


def hang(_session: str, _rest: Words) -> None:
    time.sleep(3600)


def be_deaf(_session: str, _rest: Words) -> None:
    for _ in sys.stdin:
        pass


def be_strange(session: str, _rest: Words) -> None:
    sys.stdout.write('no json\n[1]\n{"id": {}}\n{"id": 1, "error": 5}\n{"method": 4}\n\n\n')
    update(session, "something_new", deep={"a": 1})
    send({"method": "session/update", "params": []})
    send({"method": "other/note", "params": {}})
    say(session, json.dumps(ask("other/method")))
    update(session, "tool_call_update", toolCallId=None, status="completed", content="no list")


def flood(session: str, _rest: Words) -> None:
    while True:
        say(session, "flood " * 10)


def begin_many_calls(session: str, _rest: Words) -> None:
    for number in range(10**9):
        call(session, f"c{number}", status="in_progress")


def never_end_a_line(_session: str, _rest: Words) -> None:
    while True:
        sys.stdout.write("x" * 65536)


def send_many_requests(session: str, rest: Words) -> None:
    """`COUNT PATH`, and `same` if all bear one id."""
    count, path, *same = rest
    params = {"sessionId": session, "path": path}
    lines: list[str] = []
    for number in range(int(count)):
        request_id = "same" if same else f"m{number}"
        request = {
            "id": request_id,
            "jsonrpc": "2.0",
            "method": "fs/read_text_file",
            "params": params,
        }
        lines.append(json.dumps(request) + "\n")
    # In one piece: this output has no buffer, so a quick client could answer each before the next.
    sys.stdout.write("".join(lines))
    sys.stdout.flush()
    time.sleep(3600)


def say_too_much(session: str, _rest: Words) -> None:
    say(session, "x" * 3_000_000)


ACTIONS: dict[str, Callable[[str, Words], None]] = {
    "say": say_words,
    "ask-model": ask_model,
    "think": think,
    "plan": plan,
    "work": work,
    "diff": show_diff,
    "change": change_file,
    "permit": ask_permission,
    "permit-many": ask_permission_many_times,
    "ask": ask_anything,
    "begin": begin_request,
    "await-begun": await_begun,
    "tell": tell_of_call,
    "await-file": await_file,
    "read": read_file,
    "write": write_file,
    "run": run,
    "run-shown-late": run_shown_late,
    "run-in": run_in_folder,
    "run-as": run_as,
    "elsewhere": speak_elsewhere,
    "run-under-its-id": run_under_its_id,
    "run-and-kill": run_and_kill,
    "form": show_form,
    "last-words": break_session,
    "die": die,
    "hang": hang,
    "deaf": be_deaf,
    "strange": be_strange,
    "flood": flood,
    "calls": begin_many_calls,
    "endless": never_end_a_line,
    "requests": send_many_requests,
    "crowd": say_too_much,
}


def act(session: str, line: str, prompt: list[Any]) -> None:
    """Does what a line of the message says. Other lines are ordinary words, and do nothing."""
    word, *rest = line.split(" ")
    if word == "echo-prompt":
        say(session, json.dumps(prompt))
    elif word in ACTIONS:
        ACTIONS[word](session, rest)


# --- The session's requests


class RequestFailed(Exception):
    """The request is answered with this error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message}


@dataclass
class Choices:
    """What the user chose for the session."""

    mode: str = "ask"
    web: bool | str = False

    def modes(self) -> dict[str, Any]:
        available = [{"id": "ask", "name": "Ask"}, {"id": "auto", "name": "Auto"}]
        return {"currentModeId": self.mode, "availableModes": available}


def describe_agent() -> dict[str, Any]:
    if "mute" in sys.argv:
        time.sleep(3600)
    capabilities: dict[str, Any] = {
        "loadSession": CAN_LOAD,
        "promptCapabilities": {"image": "no-images" not in sys.argv},
    }
    if "says-resume" in sys.argv:
        capabilities["sessionCapabilities"] = {"resume": {}}
    if "routed" in sys.argv:
        capabilities["providers"] = {}
    return {
        "protocolVersion": 1,
        "agentCapabilities": capabilities,
        "authMethods": [{"id": "x", "name": "Log in"}],
    }


def list_providers() -> dict[str, Any]:
    current = {"apiType": "anthropic", "baseUrl": os.environ["SCRIPTED_PROVIDER"]}
    listed = {
        "providerId": "main",
        "supported": ["anthropic"],
        "required": False,
        "current": current,
    }
    return {"providers": [listed]}


def start_session(choices: Choices) -> dict[str, Any]:
    session = f"s{os.getpid()}-{next(numbers)}"
    offered = [{"name": "review", "description": "Looks at the changes"}]
    update(session, "available_commands_update", availableCommands=offered)
    option = {"type": "boolean", "id": "web", "name": "Web", "currentValue": choices.web}
    return {"sessionId": session, "modes": choices.modes(), "configOptions": [option]}


def answer_prompt(session: str, prompt: list[Any]) -> dict[str, Any]:
    """Each line of the last part is an action; the parts before it are what was attached."""
    if is_broken:
        remember(session, "[failed]")
        raise RequestFailed(-32603, "The process exited")
    if "spoils-loaded" in sys.argv and session in loaded_sessions:
        remember(session, "[refused]")
        if "speak first" in prompt[-1].get("text", ""):
            say(session, "two ")
        refusal = "invalid_request_error: content 2 answers 4 calls, and 3 were made"
        raise RequestFailed(-32603, refusal)
    remember(session, "\n".join(part.get("text", "") for part in prompt))
    if "needs-login" in sys.argv:
        raise RequestFailed(-32000, "Authentication required")
    for line in prompt[-1].get("text", "").splitlines():
        act(session, line, prompt)
    cost = {"amount": 0.25, "currency": "USD"}
    update(session, "usage_update", used=10, size=50_000, cost=cost)
    return {"stopReason": "end_turn", "usage": {"inputTokens": 7, "outputTokens": 3}}


def answer_request(method: str, params: dict[str, Any], choices: Choices) -> dict[str, Any]:
    session = params.get("sessionId", "")
    match method:
        case "initialize":
            return describe_agent()
        case "providers/list":
            return list_providers()
        case "providers/set":
            provider.update(params)
            remember("provider", params["providerId"])
        case "session/new":
            return start_session(choices)
        case "session/resume":
            raise RequestFailed(-32601, "Method not found")
        case "session/load":
            say(session, "said long ago")
            remember(session, "[loaded]")
            loaded_sessions.add(session)
            return {"modes": choices.modes()}
        case "session/set_mode":
            choices.mode = params["modeId"]
        case "session/set_config_option":
            choices.web = params["value"]
            shown = "on" if choices.web is True else choices.web
            remember(session, f"{params['configId']} is {shown}")
        case "session/prompt":
            return answer_prompt(session, params["prompt"])
    return {}


def main() -> None:
    choices = Choices()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        try:
            result = answer_request(message["method"], message.get("params") or {}, choices)
        except RequestFailed as failure:
            send({"id": message["id"], "error": failure.error})
        else:
            send({"id": message["id"], "result": result})


main()
