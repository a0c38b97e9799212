"""What must not be lost: collected, checked against a summary, chosen for the room
there is, inherited.
"""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine import conversation_details
from helix_desktop.engine.conversation_details import (
    Detail,
    DetailSource,
    choose_fitting_details,
    find_missing_critical_details,
    merge_details_and_replace_todos,
)
from helix_desktop.engine.details_entry import format_details_entry
from helix_desktop.engine.facts import FileChanged
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN
from tests.engine.agent import Words
from tests.engine.collecting import collect_details


def of_kind(found: list[Detail], kind: str) -> list[str]:
    return [detail.text for detail in found if detail.kind == kind]


def user(text: str, seq: int = 1) -> DetailSource:
    return DetailSource(seq, "user", text)


LONG = "\n" + "2026-11-22 a line of a log\n" * 40  # more than a message that is one demand


def test_the_rules_of_a_long_message_are_whole_sentences_word_for_word_with_their_seq() -> None:
    found = collect_details(
        [
            user(
                f"{LONG}You must  never touch main.py! It is old.\nAlways use x?y (don't ask!) here.\nBye",
                7,
            )
        ]
    )
    assert of_kind(found, "rule") == [
        "You must  never touch main.py!",
        "Always use x?y (don't ask!) here.",
    ]
    assert {detail.seq for detail in found} == {7}


def test_rules_in_other_languages() -> None:
    for sentence in (
        "Die Datei darf nicht gelöscht werden.",
        "Bitte immer Tabs verwenden.",
        "不要删除这个文件。",
        "必须使用制表符。",
        "N'utilise jamais cette table.",
        "Nunca borres este archivo.",
        "このファイルは削除しないでください。",
        "Никогда не удаляй этот файл.",
    ):
        assert of_kind(collect_details([user(sentence)]), "rule") == [sentence], sentence


@pytest.mark.parametrize(
    "answer",
    [
        "The user denied this call, so it was not run. The user said: Never delete build.",
        "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\nNever delete build.",
        "exec command rejected by user",
        NOT_BEGUN,
    ],
)
def test_a_refused_call_has_written_nothing_and_what_the_user_said_instead_is_a_rule(
    answer: str,
) -> None:
    call = DetailSource(
        5, "call", json.dumps({"command": "rm -rf build/cache\ntouch made.txt"}), "run_command"
    )
    found = collect_details(
        [user("Clean up", 1), call, DetailSource(6, "output", answer, "run_command", ok=False)]
    )
    assert of_kind(found, "written") == []
    assert ("Never delete build." in of_kind(found, "rule")) == ("said:" in answer)
    failed = DetailSource(6, "output", "make: *** [all] Error 2", "run_command", ok=False)
    assert of_kind(collect_details([user("Clean up", 1), call, failed]), "written") == []


def test_every_message_of_the_user_is_kept_whole() -> None:
    text = "Hello.\n\nNo rule   here,\nbut words."
    assert of_kind(collect_details([user(text)]), "message") == [text]


def test_decisions_are_what_the_assistant_asked_and_the_user_confirmed() -> None:
    found = collect_details(
        [
            DetailSource(1, "assistant", "I can do both. Shall I use SQLite?"),
            user("Yes, go ahead.", 2),
        ]
    )
    assert of_kind(found, "decision") == ["Shall I use SQLite? — Yes, go ahead."]
    assert (
        of_kind(
            collect_details([DetailSource(1, "assistant", "Shall I?"), user("No.", 2)]), "decision"
        )
        == []
    )


def test_files_written_and_read_and_changed() -> None:
    found = collect_details(
        [
            DetailSource(1, "call", '{"path": "src/new file/a.py", "text": "x"}', "write_file"),
            DetailSource(
                2,
                "output",
                "done",
                changes=(
                    FileChanged("b.py", None, Digest.of_content(b"b")),
                    FileChanged("c.py", Digest.of_content(b"c"), None),
                ),
            ),
            DetailSource(3, "call", '{"path": "docs/read.md"}', "read_file"),
            DetailSource(4, "output", "text"),
        ]
    )
    written = of_kind(found, "written")
    assert "created b.py" in written
    assert "deleted c.py" in written
    assert any("a.py" in text for text in written)
    assert "docs/read.md" in of_kind(found, "read")


def test_a_failing_command_with_its_error_lines_and_what_solved_it() -> None:
    failing = [
        DetailSource(1, "call", '{"command": "pytest -q"}', "run"),
        DetailSource(
            2,
            "output",
            "collected 3\nE   AssertionError: 1 != 2\nFAILED tests/test_a.py::test_one",
            "run",
            ok=False,
        ),
    ]
    (failure,) = of_kind(collect_details(failing), "failure")
    assert "pytest -q" in failure
    assert "AssertionError: 1 != 2" in failure
    solved = failing + [
        DetailSource(3, "call", '{"command": "pytest -q --fixed"}', "run"),
        DetailSource(4, "output", "3 passed", "run"),
    ]
    found = collect_details(solved)
    assert of_kind(found, "failure") == []
    (lesson,) = of_kind(found, "lesson")
    assert "AssertionError" in lesson
    assert "then worked: pytest -q --fixed" in lesson
    solved_as_before = failing + failing[:1] + [DetailSource(4, "output", "3 passed", "run")]
    (lesson,) = of_kind(collect_details(solved_as_before), "lesson")
    assert lesson.endswith("— then it worked")


@pytest.mark.parametrize("why", [NOT_BEGUN, "The user denied this call, so it was not run."])
def test_a_call_that_was_not_run_did_not_fail(why: str) -> None:
    stopped = [
        DetailSource(1, "call", '{"command": "make deploy"}', "run"),
        DetailSource(2, "output", why, "run", ok=False),
    ]
    (failure,) = of_kind(collect_details(stopped), "failure")
    assert failure == f"make deploy: {why}"


@pytest.mark.parametrize("why", [NOT_BEGUN, "The user denied this call, so it was not run."])
def test_a_call_that_was_not_run_is_solved_only_by_the_same_command(why: str) -> None:
    stopped = [
        DetailSource(1, "call", '{"command": "echo danger > danger.txt"}', "run"),
        DetailSource(2, "output", why, "run", ok=False),
    ]

    def found_with(command: str) -> tuple[list[str], list[str]]:
        worked = [
            DetailSource(3, "call", json.dumps({"command": command}), "run"),
            DetailSource(4, "output", "done", "run"),
        ]
        found = collect_details(stopped + worked)
        return of_kind(found, "failure"), of_kind(found, "lesson")

    assert found_with("seq 100 190; echo part 1") == ([f"echo danger > danger.txt: {why}"], [])
    failures, (lesson,) = found_with("echo danger > danger.txt")
    assert (failures, lesson.endswith("— then it worked")) == ([], True)


def test_each_way_in_which_the_same_fails_is_kept_and_what_solves_it_solves_all() -> None:
    tries = [
        DetailSource(number, role, text, "run")
        for number, (role, text) in enumerate(
            [
                ("call", '{"command": "pytest -q"}'),
                ("output", "KeyError: 'name'"),
                ("call", '{"command": "pytest -q"}'),
                ("output", "TypeError: not a list"),
            ]
        )
    ]
    assert len(of_kind(collect_details(tries), "failure")) == 2
    works = [
        DetailSource(5, "call", '{"command": "pytest -q"}', "run"),
        DetailSource(6, "output", "1 passed", "run"),
    ]
    found = collect_details(tries + works)
    assert (len(of_kind(found, "failure")), len(of_kind(found, "lesson"))) == (0, 2)


def test_errors_a_person_pastes_are_failures() -> None:
    found = collect_details([user(f"See this:{LONG}KeyError: 'name'\nWhat is it?")])
    assert of_kind(found, "failure") == ["KeyError: 'name'"]


def test_addresses_paths_identifiers_and_errors_of_every_message() -> None:
    long_address = "https://example.org/a(b)?" + "x=1&" * 500
    found = collect_details(
        [
            DetailSource(
                1,
                "output",
                f"see {long_address} and /var/log/app.log\nfatal: the_long_identifier_42 is gone",
            ),
            DetailSource(2, "assistant", "I looked at config/settings.toml and commit 3f9a1c2b."),
            DetailSource(3, "call", '{"path": "C:\\\\Users\\\\a\\\\b.txt"}', "read"),
        ]
    )
    assert of_kind(found, "url") == [long_address]
    assert {"/var/log/app.log", "config/settings.toml"} <= set(of_kind(found, "path"))
    everything = format_details_entry(found)
    for wanted in (
        "the_long_identifier_42",
        "3f9a1c2b",
        "C:\\Users\\a\\b.txt",
        "fatal: the_long_identifier_42 is gone",
    ):
        assert wanted in everything


@pytest.mark.parametrize(
    "before", ["5", "_", "n", "\\n", "\u2011", "\u00ad", "-", "(", "=", "见", "ß", "²"]
)
def test_an_address_is_found_behind_any_character(before: str) -> None:
    address = "https://example.org/page?x=1"
    assert of_kind(
        collect_details([DetailSource(1, "output", f"see {before}{address} there")]), "url"
    ) == [address]


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (
            "build/[39mapi.auth.login-CVJuo__N.js[0m",
            "api.auth.login-CVJuo__N.js",
        ),  # Behind a terminal's colour.
        ("Updating 1e448b..04ef02a", "1e448b..04ef02a"),
        ("打开settings_panel窗口", "settings_panel"),
    ],
)
def test_a_name_is_found_behind_any_character(said: str, name: str) -> None:
    assert any(
        name in found
        for found in of_kind(collect_details([DetailSource(1, "output", said)]), "identifier")
    )


def test_an_identifier_that_begins_with_a_digit_is_listed_once() -> None:
    whole = "3f9a8b7c-12ab-4cde-9f01-a2b3c4d5e6f7"
    assert of_kind(
        collect_details([DetailSource(1, "output", f"id {whole} done")]), "identifier"
    ) == [whole]


def test_a_long_token_is_listed_to_its_end() -> None:
    token = "eyJhbGciOiJIUzI1NiJ9" * 20
    assert of_kind(
        collect_details([DetailSource(1, "output", f"token {token} done")]), "identifier"
    ) == [token]


def test_names_of_files_of_every_shape() -> None:
    shapes = [
        "/tmp",
        ".gitignore",
        "~/.bashrc",
        "../up/one.rs",
        "src/",
        "application.properties",
        "a.py",
        "D:\\x\\y.txt",
        "docs/ü/é.md",
    ]
    found = of_kind(
        collect_details([DetailSource(1, "assistant", "see " + " and ".join(shapes) + " there")]),
        "path",
    )
    assert set(shapes) <= set(found)


def test_lines_that_look_like_errors() -> None:
    lines = [
        "npm ERR! code 1",
        "bash: foo: command not found",
        "E   assert 1 == 2",
        "java.io.IOException: x",
        "ENOENT: gone",
        "Unable to open",
    ]
    fine = ["all is well", "3 passed", "Done."]
    found = list(conversation_details.find_error_lines("\n".join(lines + fine)))
    assert found == [line.strip() for line in lines]


_TEXTS = st.lists(
    st.sampled_from(["the", "FAİLED", "tıme out", "Timed  Out", "killed", "E  x", "E\u2003\u2003y", "a.b/c-9", "naïve_Name12", "x=1.5.2", "~/z",
     "https://a.b/c?d", "see:/etc/hosts,", "C:\\d\\e", "ValueError", "no such", "\u2717", "ﬁle.txt", "\x1c", "\u0130", "0123-abcd", ".env", "İnvalid"])
    | st.text(max_size=12),
    max_size=30,
).flatmap(lambda words: st.lists(st.sampled_from([" ", "\n", "\t", ",", "", "\u2028"]), min_size=len(words), max_size=len(words)).map(lambda gaps: "".join(itertools.chain(*zip(words, gaps, strict=True)))))  # fmt: skip


@given(_TEXTS)
def test_what_is_not_looked_at_is_none(text: str) -> None:
    """What each pattern finds in the whole text is what is found, though most of it is
    never shown to them.
    """
    lines = dict.fromkeys(
        line.strip()
        for line in text.splitlines()
        if conversation_details._ERROR.search(line.strip())
    )
    assert list(conversation_details.find_error_lines(text)) == list(lines)
    found = collect_details([DetailSource(1, "assistant", text)])
    paths = dict.fromkeys(conversation_details._PATH.findall(text))
    assert of_kind(found, "path") == list(paths)
    assert of_kind(found, "url") == list(dict.fromkeys(conversation_details._URL.findall(text)))
    names = dict.fromkeys(
        (
            *conversation_details._IDENTIFIER.findall(text),
            *conversation_details._NUMBERED.findall(text),
        )
    )
    assert of_kind(found, "identifier") == [name for name in names if name not in paths]


@pytest.mark.parametrize(
    "run", ["x", "a+", "a-", "a.", "a/", "/", "~", ".", "9", "1-", "A_", "saved a", "http", "\\"]
)
def test_long_runs_of_anything_are_read_in_time(run: str) -> None:
    """A pattern that goes back and forth would take hours here."""
    for role in ("output", "user", "assistant"):
        assert collect_details([DetailSource(1, role, run * (70_000 // len(run)))]) is not None


def test_uploads() -> None:
    found = collect_details([DetailSource(1, "user", "see", names=("a.pdf abcd",))])
    assert of_kind(found, "artifact") == ["a.pdf abcd"]


def test_the_same_detail_met_again_is_newer_and_counts_more() -> None:
    (rule,) = [
        d
        for d in collect_details([user("Never do it.", 1), user("Never do it.", 9)])
        if d.kind == "rule"
    ]
    assert (rule.seq, rule.times) == (9, 2)


def test_missing_are_the_critical_ones_the_text_does_not_contain() -> None:
    found = [
        Detail("rule", "Never   do it.", 1),
        Detail("rule", "Always do that.", 2),
        Detail("url", "https://a.b", 3),
    ]
    assert find_missing_critical_details(found, "He said: Never do it. [1]") == [found[1]]


def test_the_newest_and_most_repeated_come_first_and_no_kind_crowds_out_the_others() -> None:
    rules = [
        Detail("rule", f"rule number {number} must be kept in mind by everyone", number)
        for number in range(100)
    ]
    repeated = Detail("rule", "an old rule must be kept", 0, times=5)
    todo = [Detail("todo", "write the tests", 0)]
    taken = choose_fitting_details(rules + [repeated] + todo, 200, Words())
    assert repeated in taken
    assert todo[0] in taken
    assert rules[-1] in taken
    assert rules[0] not in taken
    assert (
        sum(
            Words().count_tokens(conversation_details.format_document_line(detail))
            for detail in taken
        )
        <= 200
    )
    assert [detail.seq for detail in taken] == sorted(detail.seq for detail in taken)


def test_a_standing_rule_from_the_beginning_comes_before_what_was_asked_since() -> None:
    standing_rule = Detail("rule", "You must never use tabs.", 1)
    asked_since = [Detail("rule", f"show page {number}", number) for number in range(2, 80)]
    taken = choose_fitting_details([standing_rule, *asked_since], 60, Words())
    assert standing_rule in taken
    assert asked_since[-1] in taken
    assert asked_since[0] not in taken


def test_demands_come_before_wishes() -> None:
    demands = [Detail("rule", f"you must keep rule {number}", number) for number in range(10)]
    wishes = [Detail("wish", f"I want it to be {number}", 100 + number) for number in range(50)]
    taken = choose_fitting_details(wishes + demands, 90, Words())
    assert set(demands) <= set(taken)


def test_the_words_of_an_agent_take_no_more_than_their_share() -> None:
    said = [
        Detail(kind, f"the agent found out {number}", number)
        for number in range(30)
        for kind in ("lesson", "report")
    ]
    assert (
        sum(
            Words().count_tokens(conversation_details.format_document_line(detail))
            for detail in choose_fitting_details(said, 400, Words())
        )
        <= 80
    )


def test_room_one_kind_leaves_is_taken_by_others() -> None:
    rules = [Detail("rule", f"you must keep rule {number}", number) for number in range(10)]
    assert len(choose_fitting_details(rules, 100, Words())) == 10


def test_nothing_fits_no_room() -> None:
    assert choose_fitting_details([Detail("rule", "must", 1)], 0, Words()) == []


def test_details_are_inherited_and_the_plan_is_the_present_one() -> None:
    before = [
        Detail("rule", "Never.", 1),
        Detail("todo", "old item", 0),
        Detail("url", "https://a", 2),
    ]
    found = merge_details_and_replace_todos(
        before, [Detail("rule", "Never.", 9)], [("new item", "open"), ("done item", "done")]
    )
    assert found == [
        Detail("rule", "Never.", 9, 2),
        Detail("url", "https://a", 2),
        Detail("todo", "new item", 0),
    ]


def test_collecting_is_the_same_every_time() -> None:
    sources = [
        DetailSource(
            1, "output", " ".join(f"some_identifier_{number}/path.py" for number in range(500))
        )
    ]
    assert format_details_entry(collect_details(sources)) == format_details_entry(
        collect_details(sources)
    )


def test_long_texts_are_read_in_pieces_cut_at_lines() -> None:
    text = "x" * 100_000 + "\n" + "y" * 10
    assert "".join(conversation_details.split_into_pieces_at_line_ends(text)) == text
    assert list(conversation_details.split_into_pieces_at_line_ends("a\nb")) == ["a\nb"]
    assert (
        max(map(len, conversation_details.split_into_pieces_at_line_ends("z" * 200_000)))
        == conversation_details.SEARCHED_PIECE
    )


def test_details_that_an_entry_has_no_room_for_are_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a long history they took twice the memory of the history."""
    calls = [
        DetailSource(number, "call", f'{{"command": "cat file_{number}"}}', "bash")
        for number in range(2, 500)
    ]
    whole = format_details_entry(collect_details([user("Never touch main.py!")] + calls))
    monkeypatch.setattr(conversation_details, "REFERENCE_LIMIT", 3_000)
    collecting = conversation_details.DetailCollector()
    for source in [user("Never touch main.py!")] + calls:
        collecting.collect_from_sources([source], lambda: None)
        assert (
            sum(len(text) for alike in collecting.merged.values() for text in alike)
            <= 3_000 * 5 // 4
        )
    kept = [
        line
        for line in format_details_entry(collecting.finish_collecting()).split("\n")[1:]
        if line
    ]
    assert kept == whole.split("\n")[1 : len(kept) + 1]
    assert kept[0] == "rule [1] Never touch main.py!"


def test_the_numbered_lines_of_a_log_are_no_details() -> None:
    log = DetailSource(
        2, "output", "\n".join(f"worker_{number} took task_{number}" for number in range(20_000))
    )
    found = collect_details([user("Never touch main.py!"), log])
    assert [detail.text for detail in found if detail.is_critical] == ["Never touch main.py!"]
    assert len(found) <= 2 * conversation_details.MOST_NUMBERED_WORDS + 10


def test_figures_decisions_and_open_tasks() -> None:
    found = collect_details(
        [
            user(f"{LONG}It has to answer in 200 ms. Let's go with SQLite. Nothing else.", 1),
            DetailSource(2, "assistant", "Left:\n- [ ] write the migration\n- [x] the schema"),
        ]
    )
    assert of_kind(found, "figure") == ["It has to answer in 200 ms."]
    assert of_kind(found, "decision") == ["Let's go with SQLite."]
    assert of_kind(found, "todo") == ["write the migration"]


def test_a_command_that_proves_something_is_kept_and_one_that_only_looks_is_not() -> None:
    found = collect_details(
        [
            DetailSource(1, "call", '{"command": "cd src && pytest -q tests/test_a.py"}', "bash"),
            DetailSource(2, "output", "3 passed", "bash"),
            DetailSource(3, "call", '{"command": "cat a.py"}', "bash"),
            DetailSource(4, "output", "raise ValueError  # Error: it says", "bash"),
        ]
    )
    assert of_kind(found, "works") == ["cd src && pytest -q tests/test_a.py"]
    assert of_kind(found, "failure") == []


def test_of_the_lists_of_tasks_that_calls_give_the_last_one_counts() -> None:
    lists = [
        [{"content": "write the parser", "status": "pending"}],
        [{"content": "test it", "status": "in_progress"}],
    ]
    calls = [
        DetailSource(seq, "call", json.dumps({"todos": tasks}), "TodoWrite")
        for seq, tasks in enumerate(lists, 1)
    ]
    assert of_kind(collect_details(calls), "todo") == ["test it"]


def test_what_an_agent_says_it_leaves_open_takes_the_place_of_what_it_said_before() -> None:
    said = [
        DetailSource(1, "assistant", "Remaining:\n- write it\n- test it"),
        user("Go on, please", 2),
        DetailSource(3, "assistant", "Remaining:\n- test it"),
    ]
    assert of_kind(collect_details(said), "todo") == ["test it"]


def test_a_yes_with_a_demand_is_shown_once() -> None:
    asked = DetailSource(1, "assistant", "Shall I use SQLite?")
    found = collect_details([asked, user("Yes. But never touch main.py", 2)])
    assert of_kind(found, "decision") == ["Shall I use SQLite? — Yes."]
    assert of_kind(found, "rule") == ["Yes. But never touch main.py"]


def test_a_short_message_is_a_demand_and_a_nod_is_none() -> None:
    said = "Split the reader from the writer. Then run the checks"
    assert of_kind(collect_details([user(said)]), "rule") == [said]
    asked = DetailSource(1, "assistant", "Shall I go on with all of it?")
    assert of_kind(collect_details([asked, user("Yes, go on with all of it", 2)]), "rule") == []
    assert of_kind(collect_details([asked, user("Yes, but never touch main.py", 2)]), "rule") == [
        "Yes, but never touch main.py"
    ]
    nods = [
        "go on",
        "[Request interrupted by user]",
        "Yes!",
        "ok, do it",
        "thanks a lot",
        "继续",
        "…",
    ]
    assert (
        of_kind(collect_details([user(said, at) for at, said in enumerate(nods, 1)]), "rule") == []
    )


@pytest.mark.parametrize(
    "said",
    [
        "show the log",
        "hello again",
        "run it",
        "Zeig das Log",
        "把日志显示出来",
        "Correct the header",
    ],
)
def test_short_messages_of_the_user_stand_in_the_document(said: str) -> None:
    """A handover listed two of four messages: what had less than 15 characters was
    taken for a nod.
    """
    assert of_kind(collect_details([user(said)]), "rule") == [said]


def call(seq: int, tool: str, **given: str) -> DetailSource:
    return DetailSource(seq, "call", json.dumps(given), tool)


def test_what_an_agent_found_before_a_change_is_a_lesson_and_what_it_does_next_is_none() -> None:
    found = "The parser reads the header twice because the stream is not rewound after it was tried. Let me see where that happens:"
    reads = call(1, "read_file", path="a.py")
    writes = call(1, "write_file", path="a.py", text="x")
    assert of_kind(
        collect_details([DetailSource(1, "assistant", found), reads, writes]), "lesson"
    ) == [found]
    assert of_kind(collect_details([DetailSource(1, "assistant", found), reads]), "lesson") == []
    assert (
        of_kind(
            collect_details(
                [DetailSource(1, "assistant", found), call(2, "write_file", path="a.py", text="x")]
            ),
            "lesson",
        )
        == []
    )


def test_of_an_answer_after_work_the_beginning_is_a_report() -> None:
    said = "Done. The parser rewinds the stream now, " + "and so do the other readers, " * 40
    asked = user("Mend the parser, please", 1)
    answer = DetailSource(4, "assistant", said)
    for works, report in (("make", [f"{said[:600]} [cut]"]), ("cat a.py", [])):
        assert (
            of_kind(
                collect_details(
                    [
                        asked,
                        call(2, "bash", command=works),
                        DetailSource(3, "output", "ok", "bash"),
                        answer,
                    ]
                ),
                "report",
            )
            == report
        )


def test_the_causes_an_answer_names_and_what_it_leaves_are_kept_to_its_end() -> None:
    said = f"**Cause:** the stream is not rewound.\n{'It was long. ' * 60}\nRemaining:\n- test the writer\n\nNotes:\n- none"
    found = collect_details([DetailSource(1, "assistant", said)])
    assert of_kind(found, "lesson") == ["**Cause:** the stream is not rewound."]
    assert of_kind(found, "todo") == ["test the writer"]


def test_a_file_is_written_where_the_call_worked() -> None:
    edit = call(1, "edit_file", path="a.py", old_text="x", new_text="y")
    assert (
        of_kind(
            collect_details(
                [edit, DetailSource(2, "output", "the text is not there", "edit_file", ok=False)]
            ),
            "written",
        )
        == []
    )
    assert of_kind(
        collect_details([edit, DetailSource(2, "output", "done", "edit_file")]), "written"
    ) == ["a.py"]
    assert of_kind(collect_details([edit]), "written") == []  # nothing has answered it yet
    changed = DetailSource(
        2, "output", "done", changes=(FileChanged("a.py", None, Digest.of_content(b"b")),)
    )
    assert of_kind(collect_details([edit, changed]), "written") == ["created a.py"]
    command = call(1, "bash", command="echo x > a.py && make")
    assert (
        of_kind(collect_details([command, DetailSource(2, "output", "ok", "bash")]), "written")
        == []
    )


def test_what_only_a_call_names_is_found_as_it_is_written_and_not_as_json_writes_it() -> None:
    found = collect_details([call(1, "fetch", address='https://example.org/a?q="b"', note="x")])
    assert of_kind(found, "url") == ["https://example.org/a?q="]
    found = collect_details([call(1, "run_command", command="make\t/var/log/only_here.log")])
    assert "/var/log/only_here.log" in of_kind(found, "path")
