"""An agent that sends what a file says, for acp_examples.py; with the standard library alone.

`ACP_REPLAY` names the file: {"initialize": RESULT, "session/new": RESULT, "turns":
[[MESSAGE, ...], ...]}. Each prompt plays the next turn: a message with an id is a
request, whose answer is waited for and noted in `ACP_REPLAY`.answers, a line each.
"$session" and "$terminal" in a message stand for those that there are.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

script = Path(os.environ["ACP_REPLAY"])
terminal = ""


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def play(messages: list[dict[str, Any]], session: str) -> None:
    global terminal  # noqa: PLW0603
    for number, each in enumerate(messages):
        text = json.dumps(each).replace("$session", session).replace("$terminal", terminal)
        message = json.loads(text)
        if "id" not in message:
            send(message)
            continue
        message["id"] = f"replay {number}"
        send(message)
        for line in sys.stdin:
            answer = json.loads(line)
            if answer.get("id") == message["id"] and "method" not in answer:
                break
        result = answer.get("result")
        if isinstance(result, dict) and "terminalId" in result:
            terminal = result["terminalId"]
        with script.with_suffix(".answers").open("a") as file:
            file.write(json.dumps({"asked": message, "answer": answer}) + "\n")


def main() -> None:
    plan = json.loads(script.read_text())
    played = script.with_suffix(
        ".played"
    )  # another process of this agent goes on with the next turn
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method is None or "id" not in message:
            continue
        result = plan.get(method, {})
        if method == "session/new":
            result = {"sessionId": "replayed", **result}
        if method == "session/prompt":
            done = len(played.read_text()) if played.exists() else 0
            with played.open("a") as file:
                file.write(".")
            play(
                plan["turns"][done] if done < len(plan["turns"]) else [],
                message["params"]["sessionId"],
            )
            result = {"stopReason": "end_turn"}
        send({"id": message["id"], "result": result})


main()
