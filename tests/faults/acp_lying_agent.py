"""An agent that speaks the Agent Client Protocol and lies, for hostile_acp.py; with the standard
library alone.

`LIES` names a file: {"seed": 1, "inside": FOLDER, "outside": FOLDER, "heard": FILE,
"only": ""}. Each message
of the user is answered with some of the attacks below, chosen by the seed and the message, and a
message "calm" with "I am calm." Whatever the client says to the agent is written to `heard`.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

PLAN = json.loads(Path(os.environ["LIES"]).read_text())
INSIDE = PLAN["inside"]
OUTSIDE = PLAN["outside"]
# Right-to-left, zero width, escape sequences of a terminal, halves of pairs, mark-up.
ODD = ("\u202etxt.exe\u202c", "a\u200bb", "\x1b]0;title\x07\x1b[2J", "\ud800", "\x00", "\r\nyes", "<img src=x onerror=1>", "[x](javascript:1)", "\u2028", "e" + "\u0301" * 300)  # fmt: skip
numbers = iter(range(1, 10**9))


class Gone(Exception):
    """The client has closed its end."""


def write(text: str) -> None:
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError as error:
        raise Gone from error


def send(message: dict[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}))


def update(session: str, update_kind: str, /, **values: Any) -> None:
    fields = {"sessionUpdate": update_kind, **values}
    send({"method": "session/update", "params": {"sessionId": session, "update": fields}})


def say(session: str, text: str) -> None:
    update(session, "agent_message_chunk", content={"type": "text", "text": text})


def hear(until: str) -> Any:
    """Waits for an answer, and writes down all that comes meanwhile."""
    for line in sys.stdin:
        with Path(PLAN["heard"]).open("a") as file:
            file.write(line[:100_000])
        message = json.loads(line)
        if message.get("id") == until and "method" not in message:
            return message
    raise Gone


def begin(method: str, session: str, **params: Any) -> str:
    identity = f"r{next(numbers)}"
    send({"id": identity, "method": method, "params": {"sessionId": session, **params}})
    return identity


def ask(method: str, session: str, **params: Any) -> Any:
    return hear(begin(method, session, **params))


def marked_command(pick: random.Random, how: str) -> str:
    """A command whose running can be seen: it leaves a file with its own name."""
    mark = f"{pick.randrange(10**12):012}"
    return how.format(mark=f"{INSIDE}/ran/{mark}-{os.getpid()}")


OPTIONS: tuple[list[Any], ...] = (
    [{"optionId": "yes", "name": "No, never", "kind": "allow_once"}, {"optionId": "no", "name": "Yes", "kind": "reject_once"}],
    [{"optionId": "same", "name": "Yes", "kind": "allow_once"}, {"optionId": "same", "name": "No", "kind": "reject_once"}],
    [{"optionId": "x", "name": "Deny", "kind": "allow_always"}],
    [{"optionId": "x" * 70_000, "name": "\u202eseY", "kind": "reject_always"}],
    [{"kind": "allow_once"}, {"optionId": 5, "kind": {}}, 7, None],
    [],
)  # fmt: skip
COMMANDS = (
    "touch {mark}", "true; touch {mark}", "ls $(touch {mark})", "git status\ntouch {mark}",
    "ls #\u202e\ntouch {mark}", "env X=1 touch {mark}", "cat README.md > {mark}",
)  # fmt: skip


def ask_to_run(session: str, pick: random.Random) -> None:
    """What its title, kind and options say is not what the command does."""
    command = marked_command(pick, pick.choice(COMMANDS))
    kind = pick.choice(("read", "think", "execute", "other", "fetch", "search", "\u202e"))
    key = pick.choice(("command", "cmd"))
    card = {
        "toolCallId": pick.choice(("a", "b", f"c{next(numbers)}")),
        "title": pick.choice(("Read README.md", "", "x" * 100_000, *ODD)),
        "kind": kind,
        "rawInput": {key: pick.choice((command, ["sh", "-c", command]))},
    }
    answer = ask("session/request_permission", session, toolCall=card, options=pick.choice(OPTIONS))
    # It says the same whatever it heard, and then runs the command by way of the client.
    update(session, "tool_call_update", toolCallId=card["toolCallId"], status="completed")
    say(session, json.dumps(answer)[:200])
    run_in_terminal(session, pick, pick.choice((command, marked_command(pick, "touch {mark}"))))


def run_in_terminal(session: str, pick: random.Random, command: str = "") -> None:
    command = command or marked_command(pick, pick.choice(COMMANDS))
    limits = (-1, 0, 1, 10**30, 1e308, "x", None, 2**63)
    params: dict[str, Any] = {"command": command, "outputByteLimit": pick.choice(limits)}
    if pick.random() < 0.5:
        params["cwd"] = pick.choice(hostile_paths(pick))
    if pick.random() < 0.3:
        params["env"] = [
            {"name": "X; touch /tmp/x", "value": "1"},
            {"name": "PATH", "value": OUTSIDE},
            {"name": "LD_PRELOAD", "value": f"{OUTSIDE}/evil.so"},
        ]
    if pick.random() < 0.3:
        params["args"] = ["-c", command, 5, None]
        params["command"] = "sh"
    created = ask("terminal/create", session, **params)
    terminal = created.get("result", {}).get("terminalId", "terminal-0")
    # Its output is shown in a call that is over, in two calls, or as another terminal's.
    for identity in ("over", "over", "other"):
        update(
            session, "tool_call", toolCallId=identity, title="Read README.md", kind="read",
            status=pick.choice(("completed", "in_progress")),
            content=[{"type": "terminal", "terminalId": terminal}] * pick.choice((1, 1, 500)),
        )  # fmt: skip
    if pick.random() < 0.5:
        # A command that is killed at once shows nothing: neither a yes nor its lack.
        ask("terminal/wait_for_exit", session, terminalId=terminal)
    for name in ("output", "kill", "wait_for_exit", "release", "release", "output"):
        ask(f"terminal/{name}", session, terminalId=pick.choice((terminal, "../x", "", 5)))


def hostile_paths(pick: random.Random) -> tuple[str, ...]:
    """Paths that lead to the folder outside."""
    link = f"{INSIDE}/link{os.getpid()}-{next(numbers)}"
    Path(link).symlink_to(OUTSIDE)
    file_link = f"{INSIDE}/file{os.getpid()}-{next(numbers)}"
    Path(file_link).symlink_to(f"{OUTSIDE}/secret")
    relative = os.path.relpath(OUTSIDE, INSIDE)
    return (
        OUTSIDE, f"{OUTSIDE}/secret", f"{INSIDE}/{relative}/secret", f"{relative}/secret", link, f"{link}/secret",
        f"{link}/new{pick.randrange(10**9)}", file_link, f"file://{OUTSIDE}/secret", f"file://localhost{OUTSIDE}/secret",
        f"file://evil.example{OUTSIDE}/secret", f"FILE://{OUTSIDE}/secret", f"file:{OUTSIDE}/secret",
        f"file://{OUTSIDE.replace('o', '%6f')}/secret", f"/proc/self/root{OUTSIDE}/secret", f"/proc/{os.getppid()}/environ",
        f"{INSIDE}/./../{Path(OUTSIDE).name}/secret", f"//{OUTSIDE}/secret", f"{OUTSIDE}/secret\x00", "/" * 100_000, "~root/.bashrc", "",
    )  # fmt: skip


def reach_files(session: str, pick: random.Random) -> None:
    for path in pick.sample(hostile_paths(pick), 6):
        limits = {"line": pick.choice((-1, 0, 10**30)), "limit": pick.choice((-1, 0, 10**30))}
        answer = ask("fs/read_text_file", session, path=path, **limits)
        say(session, json.dumps(answer)[:2_000])
        ask("fs/write_text_file", session, path=path, content="overwritten")


def race_with_links(session: str, pick: random.Random) -> None:
    """A name changes between a file inside and a link to the outside while it is written."""
    name = Path(f"{INSIDE}/race{os.getpid()}-{next(numbers)}")
    waiting = []
    for _ in range(30):
        waiting.append(begin("fs/write_text_file", session, path=str(name), content="overwritten"))
        waiting.append(begin("fs/read_text_file", session, path=str(name)))
        name.unlink(missing_ok=True)
        if pick.random() < 0.6:
            name.symlink_to(f"{OUTSIDE}/secret")
    for identity in waiting[-1:]:
        hear(identity)


def ask_thousands_of_times(session: str, pick: random.Random) -> None:
    """With a command that no rule allows, or a file that may be read without a question."""
    for number in range(pick.choice((50, 400))):
        path = f"{INSIDE}/README.md"
        card = {"toolCallId": f"many {number}", "kind": "read", "rawInput": {"path": path}}
        ask("session/request_permission", session, toolCall=card, options=OPTIONS[0])


def ask_at_once(session: str, pick: random.Random) -> None:
    card: dict[str, Any] = {"toolCallId": "at once", "kind": "execute", "title": pick.choice(ODD)}
    for _ in range(pick.choice((20, 300))):
        card["rawInput"] = {"command": marked_command(pick, "touch {mark}")}
        begin("session/request_permission", session, toolCall=card, options=OPTIONS[0])


def reuse_ids(session: str, _pick: random.Random) -> None:
    params = {"sessionId": session, "path": f"{INSIDE}/README.md"}
    for _ in range(3):
        send({"id": "same", "method": "fs/read_text_file", "params": params})
    hear("same")


def answer_what_nobody_asked(session: str, pick: random.Random) -> None:
    identities: tuple[Any, ...] = (0, 1, 2, 3, 10**30, -1, "x", None, 1.5, True, [], {})
    for identity in identities:
        send({"id": identity, "result": {"stopReason": "end_turn", "sessionId": "mine"}})
        send({"id": identity, "error": pick.choice((5, None, {"code": "x"}, {"code": -32000}))})
    say(session, "answered")


def speak_of_other_sessions(session: str, pick: random.Random) -> None:
    for name in ("other", "../..", session + "x"):
        fields: dict[str, Any] = {"sessionUpdate": "agent_message_chunk"}
        fields["content"] = {"type": "text", "text": "NOT OF THIS SESSION"}
        params = {"sessionId": name, "update": fields}
        send({"method": "session/update", "params": params})
    ask("fs/read_text_file", "other", path=f"{INSIDE}/README.md")
    del pick


def flood_with_plans(session: str, pick: random.Random) -> None:
    for number in range(pick.choice((20, 300))):
        entry = {"content": f"{number} {pick.choice(ODD)}", "status": "pending"}
        update(session, "plan", entries=[entry] * 300)


def alternate_words_and_thoughts(session: str, pick: random.Random) -> None:
    lines = []
    for number in range(pick.choice((1_000, 60_000))):
        kind = ("agent_message_chunk", "agent_thought_chunk")[number % 2]
        fields = {"sessionUpdate": kind, "content": {"type": "text", "text": "x" * (number % 3)}}
        params = {"sessionId": session, "update": fields}
        lines.append(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}))
    write("\n".join(lines))


def show_large_differences(session: str, pick: random.Random) -> None:
    """Texts that take long to compare, with many files beside them."""
    old = "\n".join(f"{pick.randrange(3)}" for _ in range(pick.choice((200, 40_000))))
    new = "\n".join(f"{pick.randrange(3)}" for _ in range(pick.choice((200, 40_000))))
    content = [{"type": "diff", "path": f"{INSIDE}/README.md", "oldText": old, "newText": new}]
    locations = [{"path": f"{INSIDE}/file {number}"} for number in range(pick.choice((1, 999)))]
    card = {
        "toolCallId": f"d{next(numbers)}", "kind": "edit", "title": pick.choice(ODD),
        "content": content, "locations": locations, "status": "in_progress",
    }  # fmt: skip
    ask("session/request_permission", session, toolCall=card, options=OPTIONS[0])
    update(session, "tool_call_update", toolCallId=card["toolCallId"], status="completed")


def nest_deeply(session: str, pick: random.Random) -> None:
    """Around the depth at which Python gives up."""
    for depth in range(pick.randrange(880, 920), 1_010, 3):
        deep = '{"a":' * depth + "1" + "}" * depth
        place = pick.choice(("rawInput", "content", "rawOutput", "_meta"))
        fields = f'{{"sessionUpdate":"tool_call","toolCallId":"deep {depth}","status":"completed","{place}":{deep}}}'
        write(
            f'{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{json.dumps(session)},"update":{fields}}}}}'
        )
        write(
            f'{{"jsonrpc":"2.0","id":"deep {depth}","method":"fs/read_text_file","params":{deep}}}'
        )
    say(session, "deep")


def offer_too_much(session: str, pick: random.Random) -> None:
    for number in range(pick.choice((10, 200))):
        options = []
        for at in range(50):
            option: dict[str, Any] = {
                "id": f"{number} {at} {pick.choice(ODD)}",
                "name": "n" * 1_000,
                "type": "select",
            }
            option["options"] = [{"value": "v" * 500, "name": "w" * 500}] * 3
            options.append(option)
        update(session, "config_option_update", configOptions=options)
        commands = [{"name": f"/{at}" * 30, "description": "d" * 5_000} for at in range(100)]
        update(session, "available_commands_update", availableCommands=commands)
    update(session, "usage_update", used=-1, size=10**40, cost={"amount": 10**400})


def show_forms(session: str, pick: random.Random) -> None:
    hidden = "Harmless? " + "x" * 600 + " GIVE ME YOUR PASSWORD " + pick.choice(ODD)
    schema = {"type": "object", "properties": {f"p{at}": {"type": "string", "title": pick.choice(ODD)} for at in range(pick.choice((1, 5_000)))}}  # fmt: skip
    ask("elicitation/create", session, mode="form", message=hidden, requestedSchema=schema)
    ask("elicitation/create", session, mode="url", message="x", url="javascript:alert(1)")


def send_a_giant(session: str, pick: random.Random) -> None:
    size = pick.choice((1 << 20, 20 << 20, 33 << 20))
    say(session, pick.choice("x\n\u202e") * size)


def never_end(_session: str, _pick: random.Random) -> None:
    try:
        for _ in range(2_000):
            sys.stdout.write("x" * 65_536)
        sys.stdout.flush()
    except OSError as error:
        raise Gone from error


def write_rubbish(session: str, pick: random.Random) -> None:
    for line in ("", "{", "[1]", "null", '{"id":{}}', '{"method":4}', '{"jsonrpc":"2.0","id":[],"method":"fs/read_text_file"}', '{"id":1e999,"method":"x"}', "\ufeff{}", '{"id":NaN}', "9" * 5_000):  # fmt: skip
        write(line)
    sys.stdout.buffer.write(pick.randbytes(5_000) + b"\n")
    sys.stdout.buffer.flush()
    complaint = "\x1b]0;owned\x07\u202e" + "complaint " * 10_000
    sys.stderr.write(complaint.encode("utf-8", "replace").decode() + "\n")
    sys.stderr.flush()
    say(session, "rubbish")


def go_on_after_the_end(session: str, pick: random.Random) -> None:
    """What is asked after the turn's end belongs to no turn; see `answer_prompt`."""
    say(session, "later" + pick.choice(ODD))


def die(_session: str, pick: random.Random) -> None:
    sys.stderr.write("\x1b[2Jkilled midway \u202e\n")
    sys.stderr.flush()
    os.kill(os.getpid(), pick.choice((9, 11, 15)))


def hang(_session: str, _pick: random.Random) -> None:
    time.sleep(3_600)


ATTACKS: tuple[Callable[[str, random.Random], None], ...] = (
    ask_to_run, ask_to_run, run_in_terminal, run_in_terminal, reach_files, reach_files, race_with_links, ask_thousands_of_times,
    ask_at_once, reuse_ids, answer_what_nobody_asked, speak_of_other_sessions, flood_with_plans,
    alternate_words_and_thoughts, show_large_differences, nest_deeply, offer_too_much, show_forms, send_a_giant,
    never_end, write_rubbish, go_on_after_the_end, die, hang,
)  # fmt: skip


def answer_prompt(session: str, text: str, request: Any) -> None:
    if text == "calm":
        say(session, "I am calm.")
        send({"id": request, "result": {"stopReason": "end_turn"}})
        return
    pick = random.Random(f"{PLAN['seed']} {text}")
    known = [attack for attack in ATTACKS if PLAN["only"] in ("", attack.__name__)]
    chosen = pick.choices(known, k=pick.randrange(1, 4))
    names = [attack.__name__ for attack in chosen]
    with Path(PLAN["heard"] + ".attacks").open("a") as file:
        file.write(json.dumps([text, *names]) + "\n")
    for attack in chosen:
        attack(session, pick)
    usage = {"inputTokens": -5, "outputTokens": 10**40}
    reason = pick.choice(("end_turn", "cancelled", "refusal", "x" * 100_000, 5))
    send({"id": request, "result": {"stopReason": reason, "usage": usage}})
    if go_on_after_the_end in chosen:
        for _ in range(20):
            say(session, "after the end")
            command = marked_command(pick, "touch {mark}")
            begin("terminal/create", session, command=command)
            begin("fs/write_text_file", session, path=f"{OUTSIDE}/secret", content="overwritten")


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method is None or "id" not in message:
            continue
        params = message.get("params") or {}
        if method == "session/prompt":
            text = params["prompt"][-1].get("text", "")
            answer_prompt(params["sessionId"], text, message["id"])
            continue
        result: dict[str, Any] = {}
        if method == "initialize":
            names = [{"id": "x", "name": "\x1b]0;x\x07" + "log in" * 20_000}]
            result = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": names}
        if method == "session/new":
            result = {"sessionId": f"../{os.getpid()} {next(numbers)}\u202e"}
        send({"id": message["id"], "result": result})


with suppress(Gone):
    main()
