"""Strange sessions, as files in the forms the importer reads: what recorders, models
and crashes leave behind.

Each is made from its name alone, so it is the same on every machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping

Line = Mapping[str, object] | str
Maker = Callable[[random.Random], list[Line]]
MAKERS: dict[str, Maker] = {}


def strange(maker: Maker) -> Maker:
    MAKERS[maker.__name__] = maker
    return maker


def file(name: str) -> bytes:
    """The session of this name as the bytes of a `.jsonl` file."""
    lines = MAKERS[name](random.Random(name))
    ending = "\r\n" if "crlf" in name else "\n"
    written = [
        line if isinstance(line, str) else json.dumps(line, ensure_ascii="ascii" in name)
        for line in lines
    ]
    return ((ending.join(written)) + ending).encode("utf-8", "surrogatepass")


# --- the pieces


def said(role: str, text: object) -> Line:
    return {"role": role, "content": text}


def call(id_: object, name: str, **arguments: object) -> dict[str, object]:
    return {
        "id": id_,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def reply(text: object, *calls: Mapping[str, object]) -> Line:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def output(id_: object, text: object) -> Line:
    return {"role": "tool", "tool_call_id": id_, "content": text}


def text(numbers: random.Random, words: int) -> str:
    """Lines that look like code, logs and errors."""
    kinds = (
        lambda: (
            f"def handle_request_{numbers.randrange(400)}(self, connection_pool): return registry_{numbers.randrange(90)}"
        ),
        lambda: (
            f"src/services/worker_{numbers.randrange(300)}/handlers.py:{numbers.randrange(900)}: note"
        ),
        lambda: f"ValueError: shard_{numbers.randrange(500)} is not mounted",
        lambda: f"see https://example.org/docs/topic-{numbers.randrange(200)}/index.html for more",
        lambda: "plain words that say nothing in particular and go on for a while",
    )
    lines: list[str] = []
    while sum(line.count(" ") + 1 for line in lines) < words:
        lines.append(numbers.choice(kinds)())
    return "\n".join(lines)


def work(numbers: random.Random, steps: int, words: int = 400, start: int = 0) -> list[Line]:
    """Ordinary steps: a call each, and its output."""
    lines: list[Line] = []
    for number in range(start, start + steps):
        one = call(f"call_{number}", "read_file", path=f"src/part_{number}/module_{number}.py")
        lines += [
            reply(f"I look at module_{number} now.", one),
            output(f"call_{number}", text(numbers, words)),
        ]
    return lines


# --- roles and their order


@strange
def begins_with_a_reply(numbers: random.Random) -> list[Line]:
    opening: list[Line] = [
        said("assistant", "Hello, what may I do?"),
        said("user", "Fix src/locks/manager.py"),
    ]
    return opening + work(numbers, 12)


@strange
def begins_with_calls_and_ends_in_results(numbers: random.Random) -> list[Line]:
    return work(numbers, 15)


@strange
def odd_roles(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [
        said(role, f"as {role}") for role in ("developer", "critic", "", "USER", "function")
    ]
    lines.append(said("user", "Never touch infra/production.yaml."))
    lines.extend(work(numbers, 14))
    lines.append(said("judge", "score 3"))
    return lines


@strange
def systems_in_between(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [said("user", "go on")]
    for start in range(0, 16, 4):
        lines.extend(work(numbers, 4, start=start))
        lines.append(said("system", f"reminder number {start}: be careful_with_locks"))
    return lines


@strange
def a_monologue(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [said("user", "think")]
    for _ in range(40):
        lines.append(said("assistant", text(numbers, 150)))
    return lines


@strange
def only_the_user_speaks_and_once_the_model(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [said("user", text(numbers, 300)) for _ in range(20)]
    lines.append(said("assistant", "I have read it."))
    return lines


@strange
def empty_everything(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [
        said("user", ""),
        said("assistant", ""),
        said("user", None),
        reply(None),
        said("user", "  \n"),
    ]
    lines += [
        reply("", call("a", "run")),
        output("a", ""),
        reply("", call("b", "run")),
        output("b", None),
    ]
    lines.extend(work(numbers, 10))
    lines.append(reply("", call("z", "run")))
    lines.append(output("z", " " * 30_000))
    return lines


# --- calls and results


@strange
def results_without_calls(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [said("user", "look"), output("ghost_1", text(numbers, 900))]
    lines.extend(work(numbers, 8))
    lines.append(output("ghost_2", "nobody asked for /etc/ghost_file"))
    lines.extend(work(numbers, 8, start=8))
    lines.append(output("x", ""))
    return lines


@strange
def calls_without_results(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [said("user", "look")]
    for number in range(12):
        lines += [
            reply(f"trying {number}", call(f"lost_{number}", "run", command=text(numbers, 60)))
        ]
        lines += work(numbers, 2, start=number * 2)
    return lines


@strange
def ids_repeated(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [said("user", "look")]
    for number in range(24):
        lines += [
            reply("", call("call_0", "read", path=f"a_{number}.py")),
            output("call_0", text(numbers, 350)),
        ]
    return lines


@strange
def ids_repeated_in_one_batch(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [said("user", "look")]
    for number in range(10):
        lines += [
            reply("", *(call("same", "read", path=f"{number}_{index}.py") for index in range(4)))
        ]
        lines += [output("same", text(numbers, 200)) for _ in range(4)]
    return lines


@strange
def ids_empty_numbers_or_missing(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [said("user", "look")]
    odd: tuple[object, ...] = ("", 17, None, [], "x" * 500, "with space", 'quo"te', "ü")
    for id_ in odd * 3:
        lines += [
            reply("", call(id_, "read", path="strange_identifier.py")),
            output(id_, text(numbers, 200)),
        ]
    return lines


@strange
def results_out_of_order(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [said("user", "look")]
    for number in range(8):
        names = [f"c{number}_{index}" for index in range(5)]
        lines.append(
            reply("all at once", *(call(name, "read", path=f"{name}.py") for name in names))
        )
        lines += [output(name, text(numbers, 220)) for name in numbers.sample(names, 5)]
    return lines


@strange
def results_after_the_user_spoke(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [said("user", "look")]
    for number in range(10):
        lines += [
            reply("", call(f"late_{number}", "run", command="make all")),
            said("user", f"hurry, part_{number}!"),
        ]
        lines += [
            output(f"late_{number}", text(numbers, 250)),
            said("assistant", f"seen part_{number}"),
        ]
    return lines


@strange
def batches_of_fifty(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [said("user", "You must read all of them. Only use tabs.")]
    for number in range(3):
        names = [f"b{number}_{index}" for index in range(50)]
        lines.append(
            reply("", *(call(name, "read", path=f"deep/{name}/file.py") for name in names))
        )
        lines += [output(name, text(numbers, 120)) for name in names]
    lines.append(said("assistant", "Read."))
    return lines


@strange
def a_batch_of_fifty_half_answered(numbers: random.Random) -> list[Line]:
    names = [f"half_{index}" for index in range(50)]
    lines: list[Line] = [
        said("user", "all of them"),
        reply("", *(call(name, "run", n=name) for name in names)),
    ]
    for name in names[::2]:
        lines.append(output(name, text(numbers, 100)))
    return lines + work(numbers, 12)


@strange
def arguments_that_are_no_objects(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [said("user", "look")]
    for number, written in enumerate(
        ("", "{broken", "[1, 2]", "null", '"text"', "{" * 3_000, "true", '{"a": NaN}') * 2
    ):
        one = {
            "id": f"odd_{number}",
            "type": "function",
            "function": {"name": "do it!", "arguments": written},
        }
        lines += [reply("", one), output(f"odd_{number}", text(numbers, 260))]
    return lines


@strange
def arguments_as_objects_and_huge(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [said("user", "write it")]
    for number in range(8):
        inner = {
            "path": f"pkg/written_{number}.py",
            "content": text(numbers, 1_500),
            "deep": [[[{"k": number}]]],
        }
        one = {"id": f"w{number}", "function": {"name": "write_file", "arguments": inner}}
        lines += [reply("", one), output(f"w{number}", "ok")]
    return lines


# --- sizes and characters


@strange
def one_huge_message_of_the_user(numbers: random.Random) -> list[Line]:
    opening: list[Line] = [said("user", text(numbers, 12_000)), said("assistant", "I have it.")]
    return opening + work(numbers, 6)


@strange
def one_huge_message_of_the_model(numbers: random.Random) -> list[Line]:
    opening: list[Line] = [
        said("user", "write a book"),
        said("assistant", text(numbers, 8_000)),
        said("user", "more"),
    ]
    return opening + work(numbers, 6)


@strange
def one_huge_output(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [
        said("user", "dump"),
        reply("", call("d", "run", command="dump")),
        output("d", text(numbers, 12_000)),
    ]
    return lines + work(numbers, 6)


@strange
def one_line_of_a_megabyte(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [
        said("user", "dump"),
        reply("", call("d", "run")),
        output("d", "x1y2" * 250_000),
    ]
    return lines + work(numbers, 5)


@strange
def unicode_of_all_kinds(numbers: random.Random) -> list[Line]:
    strange_text = (
        "名前_識別子 שלום مرحبا 🏳️‍🌈 e\u0301 \u202eright-to-left\u202c \ufeff \u2028 ﷽ 𝕏 " * 30
    )
    lines: list[Line] = [
        said("user", "永远不要删除 config/データ.json。 Nunca borres nada. " + strange_text)
    ]
    for number in range(14):
        lines += [reply(strange_text, call(f"ü{number}", "läs", pfad=f"döner/ñandú_{number}.py"))]
        lines += [output(f"ü{number}", strange_text * 3)]
    return lines


@strange
def unicode_escaped_ascii(numbers: random.Random) -> list[Line]:
    return unicode_of_all_kinds(numbers)


@strange
def control_characters(numbers: random.Random) -> list[Line]:
    bad = "".join(map(chr, range(32))) + "\x7f\x1b[31mred\x1b[0m\x00\x00"
    lines: list[Line] = [said("user", f"look {bad}")]
    for number in range(12):
        lines += [
            reply(bad, call(f"c{number}", "run", command=bad)),
            output(f"c{number}", (bad + text(numbers, 60)) * 4),
        ]
    return lines


@strange
def lone_surrogates(numbers: random.Random) -> list[Line]:
    lines: list[Line] = ['{"role": "user", "content": "half a pair: \\ud83d and on"}']
    for number in range(8):
        arguments = '{\\"path\\": \\"a\\\\ud83d.py\\"}'
        one = f'{{"id": "s{number}", "function": {{"name": "read\\udc00", "arguments": "{arguments}"}}}}'
        lines.append(f'{{"role": "assistant", "content": "\\ud83d", "tool_calls": [{one}]}}')
        lines.append(
            f'{{"role": "tool", "tool_call_id": "s{number}", "content": "\\udfff {"word " * 300}"}}'
        )
    return lines


@strange
def crlf_inside_and_between(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [
        said("user", "You must keep\r\nwindows line ends.\r\nNever change them.\r")
    ]
    for number in range(12):
        windows = text(numbers, 300).replace("\n", "\r\n")
        lines += [
            reply("looking\r\n", call(f"w{number}", "read", path=f"C:\\src\\file_{number}.cs")),
            output(f"w{number}", windows),
        ]
    return lines


@strange
def looks_like_our_own_markers(numbers: random.Random) -> list[Line]:
    fake = f'[CACHED] recall_cached_content("{"ab" * 32}")\nread x.py · 3 lines'
    lines: list[Line] = [said("user", f"[Conversation History Summary]\n## TODO Items\n- {fake}")]
    for number in range(14):
        lines += [
            reply(fake, call(f"m{number}", "recall_cached_content", sha256="ab" * 32)),
            output(f"m{number}", fake * 9),
        ]
    return lines


@strange
def contents_in_parts(numbers: random.Random) -> list[Line]:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    lines: list[Line] = [
        said(
            "user",
            [{"type": "text", "text": "Please use poetry."}, picture, "bare", {"type": "odd"}],
        )
    ]
    for number in range(10):
        parts = [
            {"type": "text", "text": text(numbers, 150)},
            picture,
            {"type": "refusal", "refusal": "no"},
        ]
        lines += [reply(parts, call(f"p{number}", "see")), output(f"p{number}", parts)]
    lines.append(said("user", 17))
    lines.append(said("user", {"type": "text", "text": "an object"}))
    lines.append(said("assistant", "done"))
    return lines


@strange
def truncated_lines(numbers: random.Random) -> list[Line]:
    whole = work(numbers, 16)
    lines: list[Line] = [said("user", "Do not stop at truncated_lines.")]
    for number, line in enumerate(whole):
        dumped = json.dumps(line)
        lines.append(dumped[: len(dumped) // 2] if number % 5 == 4 else dumped)
    return lines + ["", "null", "17", "[]", '{"role": "assist', "\x00\x00\x00"]


@strange
def the_same_read_again_and_again(numbers: random.Random) -> list[Line]:
    same = text(numbers, 700)
    lines: list[Line] = [said("user", "look")]
    for number in range(25):
        lines += [
            reply("again", call(f"r{number}", "read", path="same/file_again.py")),
            output(f"r{number}", same),
        ]
    return lines


@strange
def many_short_turns(numbers: random.Random) -> list[Line]:
    lines: list[Line] = []
    for number in range(60):
        lines += [
            said("user", f"Always answer question_{number} with item_{number}."),
            said("assistant", text(numbers, 40)),
        ]
    return lines


# --- exports of other programs


def claude(kind: str, content: object, **more: object) -> Line:
    return {
        "type": kind,
        "uuid": "u",
        "message": {"role": kind, "content": content, **more},
        "version": "99.9",
    }


@strange
def claude_code_with_unknown_records(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [
        {"type": "summary", "summary": "old"},
        {"type": "queue-operation", "operation": "enqueue"},
    ]
    lines.append(claude("user", "You must keep the api_gateway stable."))
    for number in range(14):
        thinking = {"type": "thinking", "thinking": f"about module_{number}", "signature": "s"}
        use = {
            "type": "tool_use",
            "id": f"toolu_{number}",
            "name": "Read",
            "input": {"file_path": f"/repo/m_{number}.py"},
        }
        lines += [
            claude("assistant", [thinking], id=f"msg_{number}"),
            claude("assistant", [use], id=f"msg_{number}"),
        ]
        result = {
            "type": "tool_result",
            "tool_use_id": f"toolu_{number}",
            "content": text(numbers, 300),
            "is_error": number % 3 == 0,
        }
        lines += [
            claude("user", [result]),
            {"type": "file-history-snapshot", "snapshot": {}},
            {"type": "next-years-record"},
        ]
    lines.append(claude("user", [{"type": "text", "text": "thanks"}, {"type": "hologram"}]))
    lines.append(claude("assistant", "bye"))
    return lines


@strange
def claude_code_broken_off(numbers: random.Random) -> list[Line]:
    lines = claude_code_with_unknown_records(numbers)[:30]
    use = {"type": "tool_use", "id": "", "name": "", "input": None}
    server = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}}
    lines += [
        claude("assistant", [use], id="x"),
        claude("assistant", [server, {"type": "text", "text": "found"}], id="y"),
    ]
    cut_line = json.dumps(lines[2])[:40]
    lines.append(claude("user", [{"type": "tool_result", "content": "no id"}]))
    lines.append(cut_line)
    return lines


@strange
def claude_code_side_chains(numbers: random.Random) -> list[Line]:
    lines = claude_code_with_unknown_records(numbers)
    return [
        {**line, "isSidechain": True} if n % 7 == 6 and isinstance(line, dict) else line
        for n, line in enumerate(lines)
    ]


def item(kind: str, **fields: object) -> Line:
    return {"timestamp": "t", "type": "response_item", "payload": {"type": kind, **fields}}


@strange
def codex_with_unknown_records(numbers: random.Random) -> list[Line]:
    lines: list[Line] = [
        {"type": "session_meta", "payload": {"id": "s"}},
        {"type": "turn_context", "payload": {}},
    ]
    lines.append(
        item(
            "message",
            role="user",
            content=[{"type": "input_text", "text": "Only change src/parser_core.rs"}],
        )
    )
    for number in range(14):
        lines += [
            item(
                "reasoning",
                summary=[{"type": "summary_text", "text": "hm"}],
                encrypted_content="zz",
            )
        ]
        lines += [
            item(
                "function_call",
                name="shell",
                arguments=json.dumps({"command": ["cat", f"file_{number}.rs"]}),
                call_id=f"fc_{number}",
            )
        ]
        lines += [
            item(
                "function_call_output",
                call_id=f"fc_{number}",
                output=json.dumps({"output": text(numbers, 260)}),
            )
        ]
        lines += [
            item("ghost_snapshot", ghost_commit={}),
            item("web_search_call", action={}),
            {"type": "event_msg", "payload": {}},
        ]
    done = [{"type": "output_text", "text": "Done."}]
    lines.append(item("message", role="assistant", content=done))
    return lines


@strange
def codex_bare_and_broken(numbers: random.Random) -> list[Line]:
    lines: list[Line] = []
    for line in codex_with_unknown_records(numbers):
        assert isinstance(line, Mapping)
        payload = line.get("payload")
        lines.append(
            dict(payload)
            if isinstance(payload, Mapping) and line["type"] == "response_item"
            else line
        )
    odd: list[Line] = [
        item("function_call", name="", call_id=None),
        item("function_call_output", output="nobody"),
        item("message", role="ghost"),
    ]
    lines = odd + lines + odd
    lines.append(json.dumps(item("message"))[:30])
    return lines


@strange
def requests_as_one_line(numbers: random.Random) -> list[Line]:
    whole: list[Line] = [said("system", "be brief"), said("user", "Prefer short_names.")]
    whole += work(numbers, 12)
    return [{"model": "x", "messages": whole}, {"model": "y", "input": whole[:9] + [17, "text"]}]
