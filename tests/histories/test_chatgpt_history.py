"""Exports of ChatGPT: trees of messages, as the public descriptions of the format have them."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.errors import InvalidInput
from helix_desktop.histories.history_reading import read_history_file

Node = dict[str, Any]


def node(name: str, parent: str | None, role: str, *parts: object, **more: Any) -> tuple[str, Node]:
    content = more.pop("content", {"content_type": "text", "parts": list(parts)})
    author = {"role": role, "name": more.pop("author", None)}
    message = {
        "id": name, "author": author, "content": content, "create_time": 1.5e9, "recipient": "all", "metadata": {}, **more,
    }  # fmt: skip
    return name, {"id": name, "parent": parent, "children": [], "message": message}


def conversation(*nodes: tuple[str, Node], title: str = "A walk", name: str = "c1") -> Node:
    mapping: dict[str, Node] = {"root": {"id": "root", "parent": None, "children": []}}
    mapping.update(dict(nodes))
    for key, value in mapping.items():
        if value["parent"] is not None:
            mapping[value["parent"]]["children"].append(key)
    return {
        "title": title,
        "conversation_id": name,
        "current_node": list(mapping)[-1],
        "mapping": mapping,
    }


def write(folder: Path, *conversations: Mapping[str, Any]) -> Path:
    file = folder / "conversations.json"
    file.write_text(json.dumps(conversations), encoding="utf-8")
    return file


def test_a_conversation_is_read_with_its_title_model_and_reasoning(tmp_path: Path) -> None:
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "I think."}]}
    custom = {"content_type": "user_editable_context", "user_instructions": "Be brief."}
    file = write(
        tmp_path,
        conversation(
            node("i", "root", "user", content=custom),
            node("a", "i", "user", "Where does it go?"),
            node("t", "a", "assistant", content=thoughts),
            node("b", "t", "assistant", "Up the hill.", metadata={"model_slug": "gpt-5"}),
        ),
    )
    (session,) = read_history_file(file).recordings
    assert (session.kind, session.session, session.title) == ("chatgpt", "c1", "A walk")
    assert [(one.role, one.text) for one in session.messages] == [
        ("system", "Be brief."),
        ("user", "Where does it go?"),
        ("assistant", "Up the hill."),
    ]
    answer = session.messages[-1]
    assert (answer.model, answer.reasoning, answer.time) == ("gpt-5", "I think.", 1.5e9)


def test_what_chatgpt_remembered_is_read_and_an_unknown_content_is_said(tmp_path: Path) -> None:
    memory = {"content_type": "model_editable_context", "model_set_context": "Likes hills."}
    unknown = {"content_type": "hologram", "frames": ["a"]}
    file = write(
        tmp_path,
        conversation(
            node("m", "root", "assistant", content=memory),
            node("a", "m", "user", "Where?"),
            node("u", "a", "assistant", content=unknown),
            node("e", "u", "assistant", content={"content_type": "text", "parts": [""]}),
            node("b", "e", "assistant", "Up the hill."),
        ),
    )
    imported = read_history_file(file)
    (session,) = imported.recordings
    assert [(one.role, one.text) for one in session.messages] == [
        ("system", "Likes hills."),
        ("user", "Where?"),
        ("assistant", "Up the hill."),
    ]
    (complaint,) = imported.complaints
    assert "content hologram (1)" in complaint


def test_edited_messages_and_other_answers_are_branches(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        conversation(
            node("a", "root", "user", "One"),
            node("b", "a", "assistant", "First"),
            node("c", "a", "assistant", "Second"),
            node("d", "b", "user", "Go on"),
            node("e", "d", "assistant", "Done"),
            node("f", "b", "user", "Edited"),
            node("g", "f", "assistant", "Done too"),
        ),
    )
    sessions = read_history_file(file).recordings
    told = {tuple(message.text for message in session.messages) for session in sessions}
    assert told == {
        ("One", "First", "Go on", "Done"),
        ("One", "First", "Edited", "Done too"),
        ("One", "Second"),
    }
    assert sessions[0].session == "c1"
    assert [(one.forked_from, one.forked_at) for one in sessions[1:]] == [("c1", 2), ("c1", 1)]


def test_calls_of_tools_have_their_results(tmp_path: Path) -> None:
    code = {"content_type": "code", "text": "1 + 1"}
    printed = {"content_type": "execution_output", "text": "2"}
    file = write(
        tmp_path,
        conversation(
            node("a", "root", "user", "Count"),
            node("b", "a", "assistant", content=code, recipient="python"),
            node("c", "b", "tool", content=printed, author="python"),
            node("d", "c", "tool", "The text of a file", author="file_search"),
            node("e", "d", "assistant", "Two."),
        ),
    )
    (session,) = read_history_file(file).recordings
    _, call, result, beside, _ = session.messages
    assert [(one.name, json.loads(one.arguments)) for one in call.calls] == [
        ("python", {"input": "1 + 1"})
    ]
    assert (result.answers, result.text) == (call.calls[0].id, "2")
    assert (beside.text, beside.beside) == ("[file_search]\nThe text of a file", True)


def test_marks_of_references_become_links_as_the_program_itself_shows_them(tmp_path: Path) -> None:
    """Answers that searched the web were full of signs that no font shows."""
    known = "\ue200cite\ue202turn0search0\ue201"
    link = "([example.org](https://example.org/mean))"
    references = [{"matched_text": known, "alt": link}, {"matched_text": " ", "alt": "no mark"}]
    file = write(
        tmp_path,
        conversation(
            node("a", "root", "user", "What is a mean?"),
            node(
                "b",
                "a",
                "assistant",
                f"A sum, divided. {known} \ue200i\ue202turn0image1\ue201Done.",
                metadata={"content_references": references},
            ),
        ),
    )
    (session,) = read_history_file(file).recordings
    assert session.messages[-1].text == f"A sum, divided. {link} Done."


def test_pictures_are_named_where_they_stood(tmp_path: Path) -> None:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-x1"}
    content = {"content_type": "multimodal_text", "parts": [picture, "What is this?"]}
    talk = conversation(
        node("a", "root", "user", content=content), node("b", "a", "assistant", "A hill.")
    )
    (session,) = read_history_file(write(tmp_path, talk)).recordings
    assert session.messages[0].text == "[image file-x1]\nWhat is this?"


def zipped(folder: Path, members: Mapping[str, str]) -> Path:
    file = folder / "export.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return file


def talk_named(name: str) -> Node:
    question = node("a", "root", "user", f"Question {name}")
    return conversation(question, node("b", "a", "assistant", "Answer"), name=name)


def test_the_zip_file_of_the_export_is_read_as_it_came(tmp_path: Path) -> None:
    first = json.dumps([talk_named("one"), talk_named("two")])
    second = json.dumps([talk_named("three")])
    members = {"x.png": "?", "e/conversations-000.json": first, "e/conversations-001.json": second}
    sessions = read_history_file(zipped(tmp_path, members)).recordings
    assert {session.session for session in sessions} == {"one", "two", "three"}


@pytest.mark.parametrize("content", ["[", "{}", "[]", "[1]", '[{"mapping": {}}]'])
def test_a_damaged_export_says_what_is_wrong(tmp_path: Path, content: str) -> None:
    with pytest.raises(InvalidInput):
        read_history_file(zipped(tmp_path, {"conversations.json": content}))
    with pytest.raises(InvalidInput, match=r"has no conversations\.json"):
        read_history_file(zipped(tmp_path, {"other.json": content}))
    file = tmp_path / "broken.zip"
    file.write_bytes(b"PK\x03\x04 no zip file")
    with pytest.raises(InvalidInput):
        read_history_file(file)


@pytest.mark.parametrize("seed", range(20))
def test_no_message_of_a_hostile_tree_is_lost_or_read_for_ever(tmp_path: Path, seed: int) -> None:
    """Parents and children may name anything: themselves, each other, nothing."""
    chance = random.Random(seed)
    names = [f"n{number}" for number in range(30)]
    mapping: dict[str, Any] = {}
    for name in names:
        children = [chance.choice([*names, "gone", 3]) for _ in range(chance.randrange(4))]
        role = chance.choice(["user", "assistant", "tool", "system", "robot"])
        _, value = node(name, chance.choice([*names, None, "gone"]), role, f"text of {name}")
        mapping[name] = {**value, "children": children}
    good = talk_named("good")
    talk = {"title": 3, "id": f"seed {seed}", "current_node": "n1", "mapping": mapping}
    sessions = read_history_file(write(tmp_path, talk, good)).recordings
    assert "good" in {session.session for session in sessions}


def test_of_several_calls_of_a_tool_each_gets_one_result(tmp_path: Path) -> None:
    code = {"content_type": "code", "text": "1"}
    file = write(
        tmp_path,
        conversation(
            node("a", "root", "user", "Count"),
            node("b", "a", "assistant", content=code, recipient="python"),
            node("c", "b", "assistant", content=code, recipient="browser"),
            node("d", "c", "assistant", content=code, recipient="python"),
            node("e", "d", "tool", "last", author="python"),
            node("f", "e", "tool", "first", author="python"),
            node("g", "f", "tool", "page", author="browser.open"),
            node("h", "g", "tool", "unasked", author="python"),
        ),
    )
    (session,) = read_history_file(file).recordings
    results = [
        (each.text, each.answers) for each in session.messages if each.role == "tool" or each.beside
    ]
    assert results == [
        ("first", "b"),
        ("page", "c"),
        ("last", "d"),
        ("[python]\nunasked", ""),
    ]
