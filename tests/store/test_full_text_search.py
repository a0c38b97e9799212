from __future__ import annotations

import time

import pytest

from helix_desktop.engine.document_pages import format_document_text
from helix_desktop.engine.facts import (
    ConversationStarted,
    Fact,
    FileChanged,
    FilesChanged,
    Folded,
    FoldKind,
    ModelReplied,
    Origin,
    Span,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import VERSION, EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store import full_text_search
from helix_desktop.store.stored_workspace import StoredWorkspace

ENTRY = Stored(Digest.of_content(b""), 0)
SHELL = EntryOrigin("shell", "cat log")


async def test_a_hit_in_a_long_entry_has_its_line(workspace: StoredWorkspace) -> None:
    lines = [f"line {number} of many words" for number in range(1, 30_000)]
    lines[25_000] = "here is the needle"
    stored = await workspace.cache.store_content("\n".join(lines).encode(), SHELL)
    await workspace.index.wait_until_indexed()
    (hit,) = await workspace.index.search_index("needle")
    assert time.time() - hit.time < 600
    assert (hit.digest, hit.line, hit.snippet) == (stored.digest, 25_001, "here is the needle")


async def test_an_entry_is_found_once_however_often_it_says_it(workspace: StoredWorkspace) -> None:
    await workspace.cache.store_content(b"needle in a line\n" * 20_000, SHELL)
    await workspace.index.wait_until_indexed()
    assert len(await workspace.index.search_index("needle")) == 1


async def test_where_no_place_has_every_word_one_with_some_is_shown(
    workspace: StoredWorkspace,
) -> None:
    await workspace.cache.store_content(b"only apples here", SHELL)
    await workspace.cache.store_content(b"only pears here", SHELL)
    await workspace.index.wait_until_indexed()
    hits = await workspace.index.search_index("apples pears")
    assert [hit.has_all_words for hit in hits] == [False, False]
    assert [hit.has_all_words for hit in await workspace.index.search_index("apples here")] == [
        True
    ]
    assert len(await workspace.index.search_index("apples here")) == 1


async def test_a_message_is_found_once_although_a_fork_has_a_copy_of_it(
    workspace: StoredWorkspace,
) -> None:
    said = UserSaid((Text("here is the needle", 4),))
    for conversation in ("a", "other"):
        await workspace.journal.append_to_journal(conversation, [ConversationStarted(), said])
    await workspace.journal.fork_conversation("a", 2, "b")
    await workspace.journal.append_to_journal("b", [UserSaid((Text("another needle", 2),))])
    await workspace.index.wait_until_indexed()
    hits = await workspace.index.search_index("needle")
    assert sorted((hit.conversation, hit.seq) for hit in hits) == [("a", 2), ("b", 4), ("other", 2)]


async def test_the_better_place_comes_first(workspace: StoredWorkspace) -> None:
    await workspace.cache.store_content(
        b"needle once, and many other words besides, on and on and on", SHELL
    )
    best = await workspace.cache.store_content(b"needle needle needle", SHELL)
    await workspace.index.wait_until_indexed()
    assert (await workspace.index.search_index("needle"))[0].digest == best.digest


async def test_words_that_stand_in_one_line_come_before_words_that_are_far_apart(
    workspace: StoredWorkspace,
) -> None:
    apart = b"config one\n" + b"other words\n" * 30 + b"napoleon config config napoleon_x\nparam\n"
    await workspace.cache.store_content(apart, SHELL)
    best = await workspace.cache.store_content(
        b"other words\n" * 90 + b"napoleon config param\n", SHELL
    )
    await workspace.index.wait_until_indexed()
    assert (await workspace.index.search_index("config napoleon param"))[0].digest == best.digest


async def test_rare_words_and_the_rest_of_a_conversation_decide_where_no_place_has_all(
    workspace: StoredWorkspace,
) -> None:
    said = {
        "a": ["the garden", "we met at the lake", "party party party"],
        "b": ["a party of many", "a lighthouse, far away", "we saw the garden"],
    }
    for conversation, texts in said.items():
        await workspace.journal.append_to_journal(conversation, [ConversationStarted(conversation)])
        await workspace.journal.append_to_journal(
            conversation, [UserSaid((Text(text),)) for text in texts]
        )
    await workspace.index.wait_until_indexed()
    hits = await workspace.index.search_index("party lighthouse garden sailing")
    assert (hits[0].conversation, hits[0].seq) == ("b", 3)


async def test_words_that_stand_almost_everywhere_are_found_without_being_ranked(
    workspace: StoredWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_text_search, "RANKED", 5)
    digests: list[Digest] = []
    for number in range(12):
        text = f"common {number} rare{number % 4}"
        digests.append((await workspace.cache.store_content(text.encode(), SHELL)).digest)
    await workspace.index.wait_until_indexed()
    newest = await workspace.index.search_index("common", limit=3)
    assert [hit.digest for hit in newest] == [digests[11], digests[10], digests[9]]
    both = await workspace.index.search_index("common rare1")
    assert {hit.digest for hit in both} == {digests[1], digests[5], digests[9]}
    some = await workspace.index.search_index("common rare2 absent")
    assert {hit.digest for hit in some} == {digests[2], digests[6], digests[10]}


async def test_a_filter_finds_what_is_older_than_many_places_that_it_leaves_out(
    workspace: StoredWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_text_search, "WEIGHED", 3)
    oldest = await workspace.cache.store_content(b"common word", EntryOrigin("fetch", "page"))
    for number in range(12):
        await workspace.cache.store_content(f"common word {number}".encode(), SHELL)
    await workspace.index.wait_until_indexed()
    for ranked in (5_000, 20):  # As a word that is rare, and as one that stands almost everywhere.
        monkeypatch.setattr(full_text_search, "RANKED", ranked)
        hits = await workspace.index.search_index("common word tool:fetch", limit=1)
        assert [hit.digest for hit in hits] == [oldest.digest]


async def test_the_index_is_asked_once_for_each_word(workspace: StoredWorkspace) -> None:
    for number in range(300):
        await workspace.cache.store_content(
            f"in src/some_module/file_{number % 9}.py: w{number % 4}".encode(), SHELL
        )
    await workspace.index.wait_until_indexed()
    asked: list[str] = []
    connection = workspace.index._catalogue.connection
    connection.set_trace_callback(asked.append)
    assert await workspace.index.search_index("src/some_module/file_3.py w1 w2")
    connection.set_trace_callback(None)
    assert len([one for one in asked if one.startswith("SELECT") and " MATCH " in one]) == 3


async def test_what_the_user_said_comes_before_the_same_words_of_the_agent(
    workspace: StoredWorkspace,
) -> None:
    said: list[Fact] = [
        ModelReplied((Text("a blue lighthouse"),), "m", Stop.END),
        UserSaid((Text("a blue lighthouse"),)),
    ]
    for conversation, facts in (("a", said[:1]), ("b", said[1:]), ("c", said[:1])):
        await workspace.journal.append_to_journal(conversation, facts)
    await workspace.index.wait_until_indexed()
    assert (await workspace.index.search_index("blue lighthouse"))[0].conversation == "b"


@pytest.mark.parametrize(
    ("query", "first"),
    [("When was my lighthouse painted?", "user"), ("Welche Farbe hat mein lighthouse?", "user"),
     ("What colour is Ann's lighthouse?", "ann"), ("What does the agent say of the lighthouse in blue?", "agent")],
)  # fmt: skip
async def test_whom_a_question_names_is_found_first(
    workspace: StoredWorkspace, query: str, first: str
) -> None:
    said: dict[str, list[Fact]] = {
        "user": [
            UserSaid(
                (Text("I painted a lighthouse in green, and a mill, and a barn, and a bridge"),)
            )
        ],
        "ann": [
            ModelReplied(
                (Text("Ann: I painted a lighthouse in red, and a mill, and a barn"),), "m", Stop.END
            )
        ],
        "agent": [
            ModelReplied(
                (Text("The lighthouse is blue, and the lighthouse is old"),), "m", Stop.END
            )
        ],
    }
    for conversation, facts in said.items():
        await workspace.journal.append_to_journal(conversation, facts)
    await workspace.index.wait_until_indexed()
    assert (await workspace.index.search_index(query))[0].conversation == first


async def test_the_conversation_that_fits_as_a_whole_comes_first(
    workspace: StoredWorkspace,
) -> None:
    both = [
        UserSaid((Text(text),))
        for text in ("the alpha is here", "a", "b", "c", "and the bravo is there")
    ]
    await workspace.journal.append_to_journal("both", both)
    for name in ("one", "two", "three"):
        only = [
            UserSaid((Text(text),))
            for text in ("the alpha is here", "a", "b", "c", "and the alpha is there")
        ]
        await workspace.journal.append_to_journal(name, only)
    for number in range(3):
        await workspace.journal.append_to_journal(
            f"bravo {number}", [UserSaid((Text("and the bravo is there"),))]
        )
    await workspace.index.wait_until_indexed()
    found = await workspace.index.search_index("alpha bravo")
    assert [hit.conversation for hit in found[:2]] == ["both", "both"]


async def test_accents_and_scripts_without_blanks(workspace: StoredWorkspace) -> None:
    await workspace.cache.store_content("café au lait, 東京タワー".encode(), SHELL)
    await workspace.index.wait_until_indexed()
    for query in ("cafe", "CAFÉ", "京タ", "東京タワー"):
        assert len(await workspace.index.search_index(query)) == 1, query
    assert await workspace.index.search_index("京東") == ()


async def test_utf_16_is_searched_too(workspace: StoredWorkspace) -> None:
    await workspace.cache.store_content("a needle in UTF-16\n".encode("utf-16"), SHELL)
    await workspace.index.wait_until_indexed()
    (hit,) = await workspace.index.search_index("needle")
    assert hit.snippet == "a needle in UTF-16"


async def test_what_is_damaged_sends_nobody_there(workspace: StoredWorkspace) -> None:
    stored = await workspace.cache.store_content(b"a needle", SHELL)
    await workspace.journal.append_to_journal("c", [UserSaid((Text("a needle said"),))])
    await workspace.index.wait_until_indexed()
    cache = workspace._stores.cache
    thread = workspace._stores.thread
    await thread.run_work(
        cache.level.write_batch,
        [
            (
                b"b"
                + cache.reader.record_of_content(stored.digest).blob.to_bytes(8, "big")
                + bytes(4),
                b"\0a noodle",
            )
        ],
    )
    connection = workspace._stores.journal.connection
    await thread.run_work(
        connection.execute, "UPDATE facts SET fact = replace(fact, 'needle', 'noodle')"
    )
    assert await workspace.index.search_index("needle") == ()


@pytest.mark.parametrize(
    "query", ['"', "a*b", "(", "NEAR(a b)", "text:x", "-x", "x AND", "'", "*", "^x", "a\0b"]
)
async def test_no_query_is_an_error(workspace: StoredWorkspace, query: str) -> None:
    await workspace.cache.store_content(b"something", SHELL)
    await workspace.index.wait_until_indexed()
    assert await workspace.index.search_index(query) == ()


async def test_a_broken_index_is_made_anew(workspace: StoredWorkspace) -> None:
    await workspace.cache.store_content(b"a needle", SHELL)
    await workspace.index.wait_until_indexed()
    await workspace.index._writer.run_work(
        workspace.index._file.connection.execute, "DROP TABLE words"
    )
    await workspace.index.search_index("needle")
    await workspace.index.wait_until_indexed()
    assert len(await workspace.index.search_index("needle")) == 1


async def test_other_forms_of_a_word_are_found_in_english_and_german(
    workspace: StoredWorkspace,
) -> None:
    await workspace.cache.store_content(b"she painted a mural", SHELL)
    await workspace.cache.store_content(b"zwei offene Rechnungen", SHELL)
    await workspace.index.wait_until_indexed()
    for query in ("painting", "a mural painter", "Rechnung offen"):
        assert len(await workspace.index.search_index(query)) == 1, query


async def test_irregular_forms_of_a_word_are_found_but_not_inside_other_words(
    workspace: StoredWorkspace,
) -> None:
    for text in (
        b"she bought a lamp and ran home",
        b"er ging nach Hause",
        b"what was called is parent",
    ):
        await workspace.cache.store_content(text, SHELL)
    await workspace.index.wait_until_indexed()
    for query in ("buy lamp", "buying", "running", "runs home", "gehen Haus"):
        assert len(await workspace.index.search_index(query)) == 1, query
    assert not await workspace.index.search_index("lead rent")


async def test_parts_of_identifiers_and_runs_of_chinese_signs_are_found(
    workspace: StoredWorkspace,
) -> None:
    await workspace.cache.store_content(b"class LockManager: raise E_TIMEOUT_42", SHELL)
    await workspace.cache.store_content("缓存在五分钟后过期".encode(), SHELL)
    await workspace.index.wait_until_indexed()
    for query in ("lock manager", "LockManager", "timeout_42", "提供商的缓存过期了吗"):
        assert len(await workspace.index.search_index(query)) == 1, query


async def test_words_in_quotes_are_found_where_they_stand_side_by_side_and_nowhere_else(
    workspace: StoredWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_text_search, "WEIGHED", 3)
    oldest = await workspace.cache.store_content(
        "ran OUT of\nmémory, lib/thread_pool.py".encode(), SHELL
    )
    for number in range(12):
        await workspace.cache.store_content(
            f"of memory {number} pool lib/py/thread out".encode(), SHELL
        )
    await workspace.journal.append_to_journal("c", [UserSaid((Text("memory out of threads"),))])
    await workspace.index.wait_until_indexed()
    for query in (
        '"out of memory"',
        "lib/thread_pool.py",
        "thread_pool",
        "lib/thread*",
        '"out of mem*"',
        '"ran OUT" thread_pool',
    ):
        hits = await workspace.index.search_index(query, limit=1)
        assert [hit.digest for hit in hits] == [oldest.digest], query
    assert await workspace.index.search_index('"memory of out"') == ()


async def test_a_path_is_found_in_many_rows_that_have_most_of_its_words(
    workspace: StoredWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_text_search, "RANKED", 20)
    stored = [
        await workspace.cache.store_content(f"in src/module_{n % 3}/file_{n}.py".encode(), SHELL)
        for n in range(40)
    ]
    await workspace.index.wait_until_indexed()
    (hit,) = await workspace.index.search_index("src/module_1/file_4.py")
    assert hit.digest == stored[4].digest
    assert await workspace.index.search_index("src/module_2/file_4.py") == ()


async def test_an_identifier_is_found_by_its_other_forms(workspace: StoredWorkspace) -> None:
    await workspace.cache.store_content(b"raise LockManagerError", SHELL)
    await workspace.index.wait_until_indexed()
    for query in ("LockManagerErrors", "lock_manager_error", "ManagerError", "lockmanagererror"):
        assert len(await workspace.index.search_index(query)) == 1, query


async def test_of_places_with_some_of_the_words_those_with_more_and_with_others_near_come_first(
    workspace: StoredWorkspace,
) -> None:
    said = [
        "alpha alpha",
        "nothing",
        "alpha with bravo",
        "nothing",
        "nothing",
        "nothing",
        "nothing",
        "alpha again",
        "nothing",
        "nothing",
        "delta among several other words that are of no use",
    ]
    await workspace.journal.append_to_journal("c", [UserSaid((Text(text),)) for text in said])
    await workspace.index.wait_until_indexed()
    found = [hit.seq for hit in await workspace.index.search_index("alpha bravo charlie delta")]
    assert found[0] == 3
    assert set(found) == {1, 3, 8, 11}


async def test_filters_say_who_when_which_tool_and_which_file(workspace: StoredWorkspace) -> None:
    stored = await workspace.cache.store_content(b"a needle in a log", SHELL)
    call = ToolCall("c1", "run_command", '{"command": "find the needle in src/a.py"}')
    await workspace.journal.append_to_journal(
        "c",
        [
            ConversationStarted(agent="Claude Code"),
            UserSaid((Text("where is the needle?"),)),
            ModelReplied((Text("the needle is here"), call), "m", Stop.CALLS),
        ],
    )
    await workspace.journal.append_to_journal(
        "d", [ConversationStarted(), UserSaid((Text("my needle"),))]
    )
    await workspace.index.wait_until_indexed()

    async def found(query: str) -> set[tuple[str, int] | str]:
        hits = await workspace.index.search_index(query)
        return {
            "entry" if hit.digest == stored.digest else (hit.conversation, hit.seq) for hit in hits
        }

    everything = {"entry", ("c", 2), ("c", 3), ("d", 2)}
    assert await found("needle") == everything
    assert await found("needle by:user") == {("c", 2), ("d", 2)}
    assert await found("by:agent needle") == {("c", 3)}
    assert await found("needle by:tool") == {"entry"}
    assert await found("needle tool:shell") == {"entry"}
    assert await found("needle tool:run") == {("c", 3)}
    assert await found("needle file:log") == {"entry"}
    assert await found("needle file:src/a.py") == {("c", 3)}
    assert await found("needle agent:claude") == {("c", 2), ("c", 3)}
    assert await found("needle before:2020-01-01") == set()
    assert await found("needle after:2020-01-01") == everything


async def test_a_filter_alone_finds_the_newest_that_passes_it(workspace: StoredWorkspace) -> None:
    """`file:fees.py` found nothing, although the agent had read and edited this file."""
    for number in range(30):
        await workspace.cache.store_content(
            f"output {number}".encode(), EntryOrigin("run_command", f"ls {number}")
        )
    for number in range(3):
        await workspace.cache.store_content(
            f"fees {number}".encode(), EntryOrigin("read_file", "src/fees.py")
        )
    said = UserSaid((Text("look at src/fees.py", 4),))
    await workspace.journal.append_to_journal(
        "a", [ConversationStarted(), said, UserSaid((Text("thanks", 1),))]
    )
    await workspace.index.wait_until_indexed()
    found = await workspace.index.search_index("file:fees.py")
    assert [hit.snippet for hit in found if hit.digest] == ["fees 2", "fees 1", "fees 0"]
    assert [hit.snippet for hit in found if not hit.digest] == ["look at src/fees.py"]
    assert len(await workspace.index.search_index("tool:run_command", limit=20)) == 20
    assert len(await workspace.index.search_index("tool:read_file", entries_only=True)) == 3
    assert await workspace.index.search_index("tool:nothing") == ()
    assert await workspace.index.search_index("") == ()


async def test_a_file_is_found_by_what_changed_it_without_naming_it(
    workspace: StoredWorkspace,
) -> None:
    """A command such as `make` changed it, or the changes of a copy came into the folder."""
    changed = FilesChanged(
        ENTRY, ENTRY.digest, ENTRY.digest, 2, names=("src/main.py", "src/fees.py")
    )
    written = ToolReturned(
        "c1", ENTRY, 1, changes=(FileChanged("src/FEES.py", None, ENTRY.digest),)
    )
    said = UserSaid((Text("Changes from a copy\nsrc/fees.py"),))
    await workspace.journal.append_to_journal("a", [ConversationStarted(), changed, written, said])
    await workspace.index.wait_until_indexed()
    found = await workspace.index.search_index("file:fees.py")
    assert [(hit.seq, hit.snippet) for hit in found] == [
        (4, "src/fees.py"),
        (3, "src/FEES.py"),
        (2, "src/fees.py"),
    ]
    assert [hit.seq for hit in await workspace.index.search_index("fees.py")] == [4], (
        "words find what was said"
    )


async def test_what_an_agent_added_is_not_the_users(workspace: StoredWorkspace) -> None:
    """The defect: a reminder of Claude Code was found as words of the user, and weighed
    like them.
    """
    reminder = UserSaid((Text("<system-reminder>\nThe needle has changed.\n</system-reminder>"),))
    said = UserSaid((*reminder.parts, Text("where is the needle?")))
    for conversation, start in (
        ("c", ConversationStarted(origin=Origin("claude-code", "s"))),
        ("d", ConversationStarted()),
    ):
        await workspace.journal.append_to_journal(conversation, [start, reminder, said])
    await workspace.index.wait_until_indexed()

    async def found(query: str) -> set[tuple[str, int]]:
        return {(hit.conversation, hit.seq) for hit in await workspace.index.search_index(query)}

    users = {("c", 3), ("d", 2), ("d", 3)}  # What is typed here is the user's, whatever it says.
    assert await found("needle") == {("c", 2), *users}
    assert await found("needle by:user") == users
    assert await found("needle by:agent") == {("c", 2)}


RAW_PDF = (
    b"%PDF-1.4\n1 0 obj << /Font /Text >>\nBT -40 Td /F1 12 Tf (Loans rose by 12 percent.) Tj ET\n"
)


async def test_a_document_is_found_by_its_text_on_its_page_and_never_by_its_bytes(
    workspace: StoredWorkspace,
) -> None:
    """The hits of "text loans" were the source of a PDF and the line that describes its text."""
    about = EntryOrigin("user", "report.pdf", "application/pdf")
    original = await workspace.cache.store_content(RAW_PDF, about)
    # What a tool read from a file has no type, and is recognized by its first bytes.
    await workspace.cache.store_content(RAW_PDF + b"%old", EntryOrigin(VERSION, "report.pdf"))
    compressed = bytes(range(1, 256)) * 3 + b" Loans "
    await workspace.cache.store_content(compressed, EntryOrigin("run_command", "cat report.gz"))
    pages = [("", "Visitors"), ("", "Members"), ("Numbers", "Loans rose by 12 percent.\nMore.")]
    text = format_document_text("report.pdf", "page", 3, original.digest, pages)
    stored = await workspace.cache.store_content(text.encode(), EntryOrigin("user", "report.pdf"))
    await workspace.index.wait_until_indexed()
    (hit,) = await workspace.index.search_index("loans")
    assert (hit.digest, hit.snippet) == (stored.digest, "Loans rose by 12 percent.")
    assert (hit.page_unit, hit.page) == ("page", 3)
    assert text.splitlines()[hit.line - 1] == hit.snippet
    (title,) = await workspace.index.search_index("numbers")
    assert (title.snippet, title.page) == ("Numbers", 3)

    assert await workspace.index.search_index("Td Tf Tj") == ()
    (loose,) = await workspace.index.search_index("text loans")
    assert not loose.has_all_words, "only the line that gives the text its form has “text”"
    for words_of_form in ("original", "document", original.digest.hex):
        assert await workspace.index.search_index(words_of_form) == ()


async def test_a_hit_knows_who_said_it(workspace: StoredWorkspace) -> None:
    facts: list[Fact] = [
        ConversationStarted(),
        UserSaid((Text("the needle of the user"),)),
        ModelReplied((Text("the needle of the agent"),), "m", Stop.END),
        UserSaid((Text("the needle of a rule"),), by="rules:AGENTS.md"),
        Folded("f", FoldKind.HANDOVER, Span(2, 3), "the needle of a summary", 5, 50),
        Folded("g", FoldKind.EXCERPT, Span(2, 3), "the needle of an excerpt", 5, 50),
    ]
    await workspace.journal.append_to_journal("a", facts)
    await workspace.index.wait_until_indexed()
    hits = await workspace.index.search_index("needle")
    assert {hit.seq: hit.said_by for hit in hits} == {
        2: "user",
        3: "agent",
        4: "",
        5: "handover",
        6: "excerpt",
    }


async def test_the_file_comes_before_its_versions(workspace: StoredWorkspace) -> None:
    for content in (b"needle = needle()", b"needle = needle() # needle", b"needle(needle(needle))"):
        await workspace.cache.store_content(content, EntryOrigin(VERSION, "a.py"))
    await workspace.cache.store_content(
        b"def needle(): ... # read", EntryOrigin("read_file", "a.py")
    )
    await workspace.index.wait_until_indexed()
    hits = await workspace.index.search_index("needle")
    assert [hit.about.tool for hit in hits] == ["read_file", VERSION, VERSION, VERSION]


async def test_the_line_shown_says_what_the_name_beside_it_does_not(
    workspace: StoredWorkspace,
) -> None:
    text = "Annual report\nThe report is long.\nLoans rose.\n"
    await workspace.cache.store_content(text.encode(), EntryOrigin("user", "report.pdf"))
    await workspace.index.wait_until_indexed()
    (hit,) = await workspace.index.search_index("the report about loans")
    assert (hit.snippet, hit.line, hit.has_all_words) == ("Loans rose.", 3, True)
