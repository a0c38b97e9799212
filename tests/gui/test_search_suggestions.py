from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from helix_desktop.engine.list_rows import ConversationListRow as Row
from helix_desktop.engine.ports import EntryOrigin, SearchHit
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.strategies.handover import TITLE
from helix_desktop.errors import HelixError, StoreBusy, StoreFailed
from helix_desktop.gui import search_suggestions
from helix_desktop.gui.chat.completion_list import CompletionRequest
from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.frame.command_palette import match_palette_items
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.search_suggestions import suggest_unsearched_workspace
from helix_desktop.project.project_item import ProjectItem
from helix_desktop.store.all_workspaces import KnownWorkspace
from helix_desktop.store.workspace_settings import WorkspaceConfig
from tests.gui import story
from tests.gui.fake_desk import FakeWorkbench

ROWS = [
    Row("a", "Older", 1.0),
    Row("b", "Newer", 2.0, archived=True),
    Row("c", "Gone", 3.0, trashed=True),
]


def test_conversations_are_found_newest_first_and_never_in_the_trash() -> None:
    went: list[WindowPlace] = []
    finds = search_suggestions.suggest_conversations(ROWS, "one", went.append)
    assert [(find.text, find.note) for find in finds] == [
        ("Newer", "archived"),
        ("Older", "conversation"),
    ]
    finds[0].act()
    assert went == [WindowPlace("conversation", "one", "b")]


def test_a_hit_leads_to_its_message_or_entry() -> None:
    went: list[WindowPlace] = []
    digest = story.stored(story.TABLE).digest
    hits = [
        SearchHit("said\n  here", conversation="a", seq=7),
        SearchHit("text", digest=digest, about=EntryOrigin("read_file", "a.rs")),
    ]
    finds = search_suggestions.suggest_search_hits(hits, {"a": "Older"}, "one", went.append)
    assert [(find.text, find.kind) for find in finds] == [
        ("said here", "message"),
        ("a.rs: text", "entry"),
    ]
    assert finds[0].note == "Older"
    assert finds[1].note == "File that was read"
    for find in finds:
        find.act()
    assert went == [
        WindowPlace("conversation", "one", "a", 7),
        WindowPlace("entry", "one", digest=digest),
    ]


def test_equal_outputs_are_one_hit_which_leads_to_the_last_of_them() -> None:
    went: list[WindowPlace] = []
    hits = [SearchHit("the same output", conversation="a", seq=seq) for seq in (3, 5, 9)]
    hits.insert(1, SearchHit("another output", conversation="a", seq=4))
    finds = search_suggestions.suggest_search_hits(hits, {"a": "Older"}, "one", went.append)
    assert [find.text for find in finds] == ["the same output", "another output"]
    assert [find.note for find in finds] == ["Older · 3 times", "Older"]
    finds[0].act()
    assert went == [WindowPlace("conversation", "one", "a", 9)]


def test_a_hit_says_when_it_was_stored_and_equal_ones_when_the_newest_was() -> None:
    """Six versions of a file stood below each other in equal rows."""
    now = time.time()
    about = EntryOrigin("version", "app.py")
    old, new = Digest(b"o" * 32), Digest(b"n" * 32)
    hits = [
        SearchHit("def late_fee(days): return", old, about=about, time=now - 7_300),
        SearchHit("def late_fee(days): return", new, about=about, time=now - 130),
        SearchHit("It is done.", conversation="a", seq=3, time=now - 130),
        SearchHit("It is done.", conversation="a", seq=9, time=now - 3_700),
    ]
    finds = search_suggestions.suggest_search_hits(hits, {"a": "Older"}, "one", lambda _: None)
    assert [find.note for find in finds] == [
        "Version of a file · app.py · 2 times · 2 min ago",
        "Older · 2 times · 2 min ago",
    ]


def test_a_line_of_a_file_is_one_row_that_leads_to_the_newest() -> None:
    """It was six: three versions, what was read, and what two changes answered."""
    now = time.time()
    went: list[WindowPlace] = []
    line = "def late_fee(days): return 7 * days"
    kinds = ("edit_file", "read_file", "version", "edit_file", "version", "version")
    hits = [
        SearchHit(line, Digest(bytes([n]) * 32), about=EntryOrigin(kind, "app.py"), time=now - age)
        for n, (kind, age) in enumerate(zip(kinds, (500, 400, 130, 300, 200, 600), strict=True))
    ]
    hits.append(SearchHit(line, Digest(b"x" * 32), about=EntryOrigin("version", "old/app.py")))
    hits.append(SearchHit(line, Digest(b"y" * 32), about=EntryOrigin("run_command", "cat app.py")))
    finds = search_suggestions.suggest_search_hits(hits, {}, "one", went.append, "late")
    assert [find.note for find in finds] == [
        "Version of a file · app.py · 6 times · 2 min ago",
        "Version of a file · old/app.py",
        "Output of a command · cat app.py",
    ]
    finds[0].act()
    assert [place.digest for place in went] == [Digest(bytes([2]) * 32)]


def test_a_line_that_says_nothing_alone_is_shown_with_its_command() -> None:
    """Five outputs of one command were a single row that said "6000"."""
    digest = story.stored(story.TABLE).digest
    hits = [SearchHit("6000", conversation="a", seq=seq) for seq in (3, 5, 9)]
    hits.append(SearchHit("6000", digest=digest, about=EntryOrigin("run_command", "seq 1 6000")))
    finds = search_suggestions.suggest_search_hits(hits, {"a": "Older"}, "one", print, "6000")
    assert [find.text for find in finds] == ["seq 1 6000: 6000", "seq 1 6000: 6000"]
    assert finds[0].note == "Older · 3 times"
    assert finds[1].note == "Output of a command", "neither the command again nor 64 digits"


def test_equal_lines_of_different_outputs_are_two_hits() -> None:
    about = EntryOrigin("run_command", "git status")
    digests = [story.stored(text).digest for text in ("one", "two")]
    hits = [
        SearchHit("nothing to commit, working tree clean", digest, about=about)
        for digest in digests
    ]
    finds = search_suggestions.suggest_search_hits(hits, {}, "one", print, "commit")
    assert [find.note for find in finds] == ["Output of a command · git status"] * 2


def test_a_hit_says_in_plain_words_what_it_is() -> None:
    """They were called "handover · details of a conversation", "user · report.pdf" and "version"."""
    digest = story.stored(story.TABLE).digest
    page = {"page_unit": "page", "page": 3}
    hits = [
        SearchHit("I said so", conversation="a", seq=1, said_by="user"),
        SearchHit("it answered", conversation="a", seq=2, said_by="agent"),
        SearchHit("in short", conversation="a", seq=3, said_by="handover"),
        SearchHit("loans rose", digest, about=EntryOrigin("user", "report.pdf"), **page),  # type: ignore[arg-type]
        SearchHit("loans fell", digest, about=EntryOrigin("handover", "details of a conversation")),
        SearchHit("def loans(days): return", digest, about=EntryOrigin("version", "loans.py")),
        SearchHit("a long message", digest, about=EntryOrigin("user", "message")),
        SearchHit("rain is expected today", digest, about=EntryOrigin("weather__forecast", "Bern")),
    ]
    finds = search_suggestions.suggest_search_hits(hits, {"a": "Title"}, "one", print)
    assert [find.note for find in finds] == [
        "Your message · Title",
        "Answer · Title",
        "Summary · Title",
        "Page 3 of report.pdf",
        "Details behind a summary",
        "Version of a file · loans.py",
        "Your message",
        "Output of forecast (weather) · Bern",
    ]


def test_a_message_is_found_without_its_marks() -> None:
    hit = SearchHit("- **Rebased** on `main`", conversation="a", seq=7)
    (find,) = search_suggestions.suggest_search_hits([hit], {}, "one", print, "rebased")
    assert find.text == "Rebased on main"


def test_a_hit_begins_near_the_words_that_were_found_and_takes_them_along() -> None:
    went: list[WindowPlace] = []
    line = "a long path/to/some/file.py and more before the locks were taken, and what came after"
    (find,) = search_suggestions.suggest_search_hits(
        [SearchHit(line, conversation="a", seq=7)], {}, "one", went.append, "lock"
    )
    assert find.text == "…more before the locks were taken, and what came after"
    find.act()
    assert went == [WindowPlace("conversation", "one", "a", 7, words="lock")]
    digest = story.stored(story.TABLE).digest
    (output,) = search_suggestions.suggest_search_hits(
        [SearchHit(line, digest=digest)], {}, "one", went.append, "lock"
    )
    output.act()
    assert went[-1] == WindowPlace("entry", "one", digest=digest, words="lock")
    (other,) = search_suggestions.suggest_search_hits(
        [SearchHit(line, conversation="a", seq=7)], {}, "one", print, "nowhere"
    )
    assert other.text == line


def test_what_has_only_some_of_the_words_is_called_similar() -> None:
    def title_and_group(*hits: SearchHit, more: bool = False) -> list[str]:
        finds = search_suggestions.suggest_search_hits(hits, {}, "one", print, "own line")
        return [find.text for find in search_suggestions.group_search_suggestions(finds, more=more)]

    some = SearchHit("another line", conversation="a", seq=7, has_all_words=False)
    every = SearchHit("an own line", conversation="a", seq=8)
    assert title_and_group(every) == ["an own line"]
    assert title_and_group(some) == ["No exact match. Similar:", "another line"]
    assert title_and_group(some, more=True) == ["Similar:", "another line"]
    assert title_and_group(some, every) == [
        "With all words: 1",
        "an own line",
        "Similar:",
        "another line",
    ]


def test_a_hit_by_its_call_shows_the_call() -> None:
    hit = SearchHit(
        "stopped",
        digest=story.stored(story.TABLE).digest,
        about=EntryOrigin("run_command", "cat own.txt"),
    )
    (find,) = search_suggestions.suggest_search_hits([hit], {}, "one", print, "own")
    assert (find.text, find.needles) == ("cat own.txt: stopped", ("own",))


def test_a_handover_is_called_so_and_not_by_the_mark_that_models_read() -> None:
    hits = [
        SearchHit(f"{TITLE}{more}", conversation="a", seq=7)
        for more in ("", "\n## Project Background")
    ]
    finds = search_suggestions.suggest_search_hits(hits, {}, "one", print, "file:fees.py")
    assert [find.text for find in finds] == ["Summary", "Summary ## Project Background"]


def test_every_command_is_an_action(window: MainWindow) -> None:
    assert all(
        window.window_actions[action] is not None for action in search_suggestions.COMMANDS.values()
    )
    window.window_actions.set_action_handler("tour", lambda: None)
    offers = search_suggestions.offer_slash_commands(
        window.window_actions, CompletionRequest("/", "", 0)
    )
    assert {offer.text for offer in offers} == {f"/{name}" for name in search_suggestions.COMMANDS}
    assert [
        offer.text
        for offer in search_suggestions.offer_slash_commands(
            window.window_actions, CompletionRequest("/", "mo", 0)
        )
    ][:2] == ["/model", "/mode"]


def test_a_command_that_is_typed_whole_stands_first(window: MainWindow) -> None:
    """`/mode` and Enter chose a model: `/model` begins with the same letters."""
    skills = [
        ProjectItem("skill", name, Path(name), "", "") for name in ("renew-keys", "model-card")
    ]
    for typed, first in (("mode", "/mode"), ("mod", "/model-card"), ("new", "/new")):
        request = CompletionRequest("/", typed, 0)
        offers = search_suggestions.offer_slash_commands(window.window_actions, request, skills)
        assert offers[0].text == first
    assert offers[1].text == "/renew-keys"


def test_a_command_that_cannot_be_done_now_is_not_offered(window: MainWindow) -> None:
    window.sides.show_session_or_new(None)
    assert "/fork" not in {
        offer.text
        for offer in search_suggestions.offer_slash_commands(
            window.window_actions, CompletionRequest("/", "fork", 0)
        )
    }


def test_mentions_are_files_and_then_entries() -> None:
    bench = FakeWorkbench("one", "#0d7d74", Path("/x"))
    offers = asyncio.run(
        search_suggestions.offer_mentions(bench, CompletionRequest("@", "Shard", 0))
    )
    assert [offer.value for offer in offers] == [story.stored(story.TABLE).digest]
    offers = asyncio.run(
        search_suggestions.offer_mentions(bench, CompletionRequest("@", "lock", 0))
    )
    assert [offer.inserted_text for offer in offers][:2] == [
        "@src/lock/manager.rs ",
        "@src/lock/table.rs ",
    ]


def test_who_types_shorten_is_first_offered_to_shorten(window: MainWindow) -> None:
    offered = search_suggestions.suggest_actions(window.window_actions)
    found = match_palette_items([*offered, *search_suggestions.suggest_help_pages(str)], "shorten")
    assert found[0].text == "Shorten now…"


def test_who_types_trash_is_not_offered_the_whole_workspace(window: MainWindow) -> None:
    found = match_palette_items(search_suggestions.suggest_actions(window.window_actions), "trash")
    texts = [item.text for item in found]
    assert texts == ["Workspaces in the trash…", "Move conversation to trash"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, "Not fully searched: the search index is out of date."),
        (StoreBusy("It is open."), "this workspace is open in another program"),
        (StoreFailed("It is damaged."), "Open the workspace to repair it."),
    ],
)
def test_a_workspace_that_was_not_searched_says_why_and_is_opened(
    tmp_path: Path, error: HelixError | None, words: str
) -> None:
    places: list[WindowPlace] = []
    row = KnownWorkspace("w1", tmp_path, WorkspaceConfig(name="Thesis"))
    item = suggest_unsearched_workspace(row, error, places.append)
    assert words in item.text
    assert item.note == "Thesis"
    item.act()
    assert places == [WindowPlace("workspace", "w1")]
