"""What stands on the page of a paired phone, and what its forms send."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from helix_desktop.engine import facts
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.messages import ReasoningDelta, TextDelta
from helix_desktop.engine.ports import AskedProgram, PermissionQuestion
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    FoldProgress,
    MessagesQueued,
    QuestionAsked,
    ReplyStreamed,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.phone_page import page_rendering
from helix_desktop.phone_page.page_rendering import ConversationPlace, ListedWorkspace
from helix_desktop.phone_page.paired_devices import PairedDevice
from helix_desktop.workspace_host.followed_conversation import FollowedConversation
from helix_desktop.workspace_host.host_interface import (
    FactsAdded,
    HostListRow,
    ReplyDelayed,
    question_fingerprint,
)

PHONE = PairedDevice("d1", "Ada's phone", "0" * 64, may_allow=True, paired=1.0)
LOOKER = replace(PHONE, may_allow=False)
PLACE = ConversationPlace("w1", "storage", "workstation", "c1", PHONE)
OUTPUT = facts.Stored(Digest.of_content(b"x"), 1)
QUESTION = PermissionQuestion(facts.ToolCall("1", "run", "{}"), "Run a command", "rm a.txt")


def conversation(*added: facts.Fact) -> FollowedConversation:
    shown = FollowedConversation()
    recorded = [facts.Recorded("c1", seq, 1.0, fact) for seq, fact in enumerate(added, 1)]
    shown.apply_event(FactsAdded(tuple(recorded)))
    return shown


def doing(activity: ConversationActivity, why: str = "") -> FollowedConversation:
    shown = FollowedConversation()
    shown.apply_event(ActivityChanged("c1", activity, why))
    return shown


def said(words: str, by: str = "") -> facts.UserSaid:
    return facts.UserSaid((facts.Text(words),), by=by)


def replied(*parts: facts.ReplyPart) -> facts.ModelReplied:
    return facts.ModelReplied(parts, "m", facts.Stop.END)


def returned(call: str, seconds: float, *, ok: bool = True) -> facts.ToolReturned:
    return facts.ToolReturned(call, OUTPUT, 1, ok=ok, seconds=seconds)


def words_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def entries_of(shown: FollowedConversation) -> list[str]:
    return [words_of(entry.html) for entry in page_rendering.build_page_entries(shown)]


# --- The list


def listed(
    title: str, activity: ConversationActivity = ConversationActivity.IDLE, **row: Any
) -> HostListRow:
    values: dict[str, Any] = {"updated": 1.0, **row}
    return HostListRow(
        ConversationListRow(title, title, **values), activity, "create <b>.txt" if activity else ""
    )


def list_of(rows: Sequence[HostListRow], device: PairedDevice = PHONE) -> str:
    return page_rendering.build_list([ListedWorkspace("w1", "storage", rows)], device)


def test_what_needs_somebody_stands_first_and_the_newest_of_the_others_before_older_ones() -> None:
    page = list_of(
        [
            listed("old", updated=1.0),
            listed("failed", ConversationActivity.FAILED, updated=3.0),
            listed("new", updated=2.0),
            listed("thinks", ConversationActivity.THINKING),
            listed("has tools", ConversationActivity.TOOLS),
            listed("asks", ConversationActivity.ASKING),
        ]
    )
    order = [
        "Needs",
        "you",
        "asks",
        "Working",
        "thinks",
        "has",
        "tools",
        "Earlier",
        "failed",
        "new",
        "old",
    ]
    found = re.findall(r"<h2>(.*?)</h2>|<b>(.*?)</b>", page)
    assert " ".join(heading or title for heading, title in found).split() == order
    assert '<span class="waits">create &lt;b&gt;.txt</span>' in page
    assert page.count("create") == 1  # Only what waits says for what.
    assert [page.count(f"<span>{word}</span>") for word in ("thinking", "running tools", "failed", "idle")] == [1, 1, 1, 0]  # fmt: skip
    assert f'<a href="{PHONE.own_path}/w/w1/c/asks">' in page


@pytest.mark.parametrize("put_away", [{"trashed": True}, {"archived": True}, {"parent": "p"}])
def test_what_was_put_away_and_what_sub_agents_do_is_not_listed(
    put_away: dict[str, Any],
) -> None:
    page = list_of([listed("shown"), listed("hidden", **put_away)])
    assert "shown" in page
    assert "hidden" not in page


def test_the_list_ends_after_the_last_thirty_that_rest() -> None:
    page = list_of([listed(f"row{number:02}.", updated=number) for number in range(40)])
    assert re.findall(r"<b>row(\d+)\.</b>", page) == [f"{number:02}" for number in range(39, 9, -1)]


def test_a_conversation_without_a_title_and_a_list_without_anything_say_so() -> None:
    assert "<b>New conversation</b>" in list_of([listed("")])
    assert list_of([]) == "<p>No workspace is open on the computer.</p>"


def test_a_closed_workspace_is_opened_only_by_a_device_that_may_allow() -> None:
    closed = ListedWorkspace("w2", "net & co", is_open=False)
    for device in (PHONE, LOOKER):
        page = page_rendering.build_list([closed], device)
        assert "Workspaces that are not open" in page
        assert "<b>net &amp; co</b>" in page
        assert (f'action="{PHONE.own_path}/w/w2/open"' in page) is device.may_allow


def test_nothing_on_the_page_turns_the_direction_of_what_stands_beside_it() -> None:
    turned = "\u202ename\u2066\u200f"
    row = ConversationListRow("c1", turned, updated=1.0)
    renamed = HostListRow(row, ConversationActivity.IDLE, "")
    workspace = ListedWorkspace("w1", turned, [renamed])
    closed = ListedWorkspace("w2", turned, is_open=False)
    place = replace(PLACE, workspace_name=turned, machine=turned)
    shown = conversation(
        facts.ConversationStarted(title=turned),
        said(turned),
        facts.ModelReplied((facts.Text(turned),), turned, facts.Stop.END),
    )
    shown.apply_event(ReplyStreamed("c1", TextDelta(turned)))
    list_html = page_rendering.build_list([workspace, closed], PHONE)
    page = list_html + page_rendering.build_conversation_page(place, shown)
    assert page.count("⟨202E⟩name⟨2066⟩⟨200F⟩") == 11
    assert re.search("[\u202e\u2066\u200f]", page) is None


def test_a_device_that_may_only_look_is_told_so() -> None:
    assert "may only look" in page_rendering.build_list_page("", LOOKER)
    page = page_rendering.build_list_page("", PHONE)
    assert "may only look" not in page
    assert f'data-events="{PHONE.own_path}/events"' in page


# --- Pages


def test_a_page_hears_of_changes_only_where_it_has_an_address_for_them() -> None:
    assert "data-events" not in page_rendering.build_page("Title", "")
    page = page_rendering.build_page("A < B", "", events='/e?"x')
    assert "<title>A &lt; B</title>" in page
    assert '<body data-events="/e?&quot;x">' in page


def test_a_refused_code_is_said_on_the_page_for_the_next_try() -> None:
    assert 'role="alert"' not in page_rendering.build_pairing_page()
    page = page_rendering.build_pairing_page("That <code> is not right.")
    assert '<p class="problem" role="alert">That &lt;code&gt; is not right.</p>' in page
    assert 'action="/pair"' in page


def test_an_error_gives_back_what_was_typed() -> None:
    assert "<textarea" not in page_rendering.build_error_page("It is gone.", PHONE)
    page = page_rendering.build_error_page("It is gone.", PHONE, "my </textarea> words")
    assert ">my &lt;/textarea&gt; words</textarea>" in page
    assert f'href="{PHONE.own_path}/"' in page


def test_a_conversation_has_a_field_for_words_only_where_they_may_be_sent() -> None:
    shown = conversation(said("Begin"))
    page = page_rendering.build_conversation_page(PLACE, shown)
    assert f'data-events="{PHONE.own_path}/w/w1/c/c1/events"' in page
    assert f'action="{PHONE.own_path}/w/w1/c/c1/send"' in page
    assert f'name="token" value="{PHONE.form_token}"' in page
    looking = page_rendering.build_conversation_page(replace(PLACE, device=LOOKER), shown)
    assert "Begin" in looking
    assert "<form" not in looking


def test_two_pages_send_two_messages_and_one_page_one() -> None:
    pages = [page_rendering.build_conversation_page(PLACE, conversation()) for _ in range(2)]
    ids = [re.findall(r'name="id" value="(\w+)"', page) for page in pages]
    assert [len(found) for found in ids] == [1, 1]
    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    ("activity", "stops"),
    [("idle", False), ("failed", False), ("thinking", True), ("running tools", True), ("waiting for you", True)],
)  # fmt: skip
def test_what_works_can_be_stopped(activity: str, stops: bool) -> None:
    shown = doing(ConversationActivity(activity))
    head = page_rendering.build_head(PLACE, shown)
    assert (f'action="{PHONE.own_path}/w/w1/c/c1/stop"' in head) is stops
    assert "/stop" not in page_rendering.build_head(replace(PLACE, device=LOOKER), shown)
    assert words_of(head).startswith("‹ New conversation storage · on workstation")


# --- What was said and done


def test_messages_and_replies_stand_in_their_order_with_what_their_calls_took() -> None:
    calls = (facts.ToolCall("1", "read", "{}"), facts.ToolCall("2", "run", "{}"))
    shown = conversation(
        said("Begin"),
        said("a rule", by="rules:AGENTS.md"),
        replied(facts.Text("First."), *calls, facts.Text("Second.")),
        returned("1", 2.4),
        returned("2", 3.2, ok=False),
        replied(facts.ToolCall("3", "read", "{}")),
        returned("3", 0.2),
        replied(facts.Text("Done.")),
        facts.TurnEnded(facts.TurnEnd.DONE),
    )
    assert entries_of(shown) == [
        "Begin",
        "m First. Second. › 2 calls, 6 s, 1 failed",
        "› 1 call, 0 s",
        "m Done.",
    ]
    ids = [entry.id for entry in page_rendering.build_page_entries(shown)]
    assert ids == ["e1", "e3", "e6", "e8"]


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        (facts.TurnEnded(facts.TurnEnd.STOPPED), "Stopped."),
        (facts.TurnEnded(facts.TurnEnd.STEP_LIMIT), "The turn reached its limit of steps."),
        (facts.TurnEnded(facts.TurnEnd.FAILED, "No <credit> left."), "No &lt;credit&gt; left."),
        (facts.TurnEnded(facts.TurnEnd.REPEATING), "The turn ended early."),
    ],
)
def test_a_turn_that_ended_early_says_why_below_its_last_step(
    end: facts.TurnEnded, sentence: str
) -> None:
    assert entries_of(conversation(said("Begin"), replied(facts.Text("Half")), end)) == [
        "Begin",
        "m Half",
        sentence,
    ]


def test_a_picture_in_a_message_is_named() -> None:
    picture = facts.Attachment("plan.png", OUTPUT)
    shown = conversation(facts.UserSaid((facts.Text("See:"), picture)))
    assert entries_of(shown) == ["See: [plan.png]"]


def test_the_page_has_the_last_sixty_entries() -> None:
    shown = conversation(*[said(f"word {number}") for number in range(70)])
    entries = entries_of(shown)
    assert (len(entries), entries[0], entries[-1]) == (60, "word 10", "word 69")


def test_a_long_message_says_how_much_of_it_is_in_the_window() -> None:
    whole = "word\n" * 8_000
    (entry,) = entries_of(conversation(said(whole)))
    assert entry == whole.replace("\n", " ").strip()
    (longer,) = entries_of(conversation(said(whole + "long\n" * 2_000)))
    assert longer == f"{entry} … 10,000 more characters are in the window."


# --- While it works


@pytest.mark.parametrize(
    ("activity", "words"),
    [
        ("idle", ""),
        ("waiting for you", ""),
        ("thinking", "thinking…"),
        ("running tools", "running tools…"),
        ("failed", "The &lt;network&gt; is gone"),
    ],
)
def test_what_happens_now_is_one_line(activity: str, words: str) -> None:
    shown = doing(ConversationActivity(activity), "The <network> is gone")
    assert words_of(page_rendering.build_live(shown)) == words


def test_a_pause_before_the_model_is_asked_again_is_said_with_its_reason() -> None:
    shown = doing(ConversationActivity.THINKING)
    shown.apply_event(ReplyDelayed("c1", "The <server> is busy.", 12.2))
    words = "Retrying in 12 s: The &lt;server&gt; is busy."
    assert words_of(page_rendering.build_live(shown)) == words
    shown.apply_event(ReplyStreamed("c1", ReasoningDelta("Well")))
    assert words_of(page_rendering.build_live(shown)) == "thinking…"
    shown.apply_event(ReplyDelayed("c1", "It is busy.", -1.0))
    assert words_of(page_rendering.build_live(shown)) == "Retrying: It is busy."
    shown.apply_event(ActivityChanged("c1", ConversationActivity.IDLE, ""))
    assert words_of(page_rendering.build_live(shown)) == ""


def test_a_summary_that_is_begun_meanwhile_does_not_stop_the_count_of_a_pause() -> None:
    shown = doing(ConversationActivity.THINKING)
    shown.apply_event(ReplyDelayed("c1", "It is busy.", 12.2))
    shown.apply_event(FoldProgress("c1", facts.FoldKind.HANDOVER))
    assert words_of(page_rendering.build_live(shown)) == "Retrying in 12 s: It is busy."


def test_a_message_that_waits_for_a_summary_says_so() -> None:
    shown = doing(ConversationActivity.THINKING)
    begun = FoldProgress("c1", facts.FoldKind.HANDOVER)
    waits = replace(begun, is_waited_for=True)
    for progress, words in (
        (begun, "thinking…"),
        (waits, "Waiting until the older messages are summarized."),
        (replace(waits, retry_why="busy", retry_seconds=4.2), "Retrying in 4 s: busy"),
        (replace(waits, done=True), "thinking…"),
    ):
        shown.apply_event(progress)
        assert words_of(page_rendering.build_live(shown)) == words


def test_the_end_of_the_text_that_is_written_stands_there() -> None:
    shown = FollowedConversation()
    shown.reply_text = "a" + "<" * 7_999 + "z"
    assert words_of(page_rendering.build_live(shown)) == "&lt;" * 7_999 + "z"


def test_messages_that_wait_are_counted() -> None:
    shown = FollowedConversation()
    for count, words in ((0, ""), (1, "1 message waits"), (2, "2 messages wait")):
        shown.apply_event(MessagesQueued("c1", ((facts.Text("x"),),) * count))
        expected = f"{words} for the end of the turn." if words else ""
        assert words_of(page_rendering.build_live(shown)) == expected


# --- Questions


def card(question: PermissionQuestion, device: PairedDevice = PHONE) -> str:
    shown = FollowedConversation()
    shown.apply_event(QuestionAsked("c1", 7, question))
    return page_rendering.build_questions(replace(PLACE, device=device), shown)


def test_a_card_has_every_word_before_its_buttons() -> None:
    programs = (
        AskedProgram("rm", deletes=("a.txt", "b.txt")),
        AskedProgram("tee", writes=("c\u202e.txt",)),
    )
    question = replace(
        QUESTION,
        by="clean up",
        why="it deletes <files>",
        programs=programs,
        command_access="sandbox_network",
    )
    assert words_of(card(question)) == (
        "Run a command Asked by a sub-agent working on: clean up It deletes &lt;files&gt; rm a.txt "
        "Runs in the sandbox, with network access. rm deletes a.txt, b.txt tee writes c⟨202E⟩.txt "
        "Deny Allow once"
    )


def test_a_reason_that_begins_with_a_host_keeps_its_first_letter() -> None:
    why = "printer.lan is a device on your local network (10.0.0.7)"
    assert why in words_of(card(replace(QUESTION, why=why)))


def test_a_card_without_more_to_say_has_no_empty_lines() -> None:
    assert words_of(card(replace(QUESTION, preview=""))) == "Run a command Deny Allow once"
    assert "<p>" not in card(QUESTION)


@pytest.mark.parametrize(
    ("access", "sentence"),
    [
        ("sandbox", "Runs in the sandbox, without network access."),
        ("no_sandbox", "Runs without a sandbox, with network access."),
    ],
)
def test_a_card_says_where_a_command_runs(access: str, sentence: str) -> None:
    assert f"<p>{sentence}</p>" in card(replace(QUESTION, command_access=access))


def test_a_card_says_what_to_notice_about_a_program() -> None:
    risky = AskedProgram("rm", risk="deletes elsewhere")
    assert "rm deletes outside this folder" in card(replace(QUESTION, programs=(risky,)))


def test_a_card_marks_the_letters_of_a_program_that_look_like_others() -> None:
    program = AskedProgram("ġit", risk="deletes elsewhere")
    page = card(replace(QUESTION, preview="ġit -C ġ/öffentlich", programs=(program,)))
    assert "<pre>⟨ġ 0121⟩it -C ġ/öffentlich</pre>" in page
    assert "⟨ġ 0121⟩it deletes outside" in page


def test_an_answer_names_the_question_that_was_read() -> None:
    page = card(QUESTION)
    assert f'action="{PHONE.own_path}/w/w1/c/c1/answer"' in page
    assert '<input type="hidden" name="number" value="7">' in page
    assert f'name="fingerprint" value="{question_fingerprint(QUESTION)}"' in page


def test_a_device_that_may_only_look_has_no_answer() -> None:
    page = card(QUESTION, LOOKER)
    assert "rm a.txt" in page
    assert "Answer on the computer" in page
    assert "<button" not in page


@pytest.mark.parametrize(
    "question",
    [
        replace(QUESTION, scopes=("conversation",)),
        replace(QUESTION, form="{}"),
        replace(QUESTION, plan=True),
    ],
)
def test_forms_plans_and_wider_answers_are_only_denied_here(question: PermissionQuestion) -> None:
    assert not page_rendering.is_answerable_on_page(question)
    page = card(question)
    assert "This can be allowed on the computer only." in page
    assert re.findall(r'value="(\w+)">\w', page) == ["deny"]


# --- Only what changed is sent


def test_a_device_is_sent_what_differs_from_what_it_has() -> None:
    shown = conversation(said("Begin"))
    sent: dict[str, str] = {}
    first = page_rendering.build_changed_parts(PLACE, shown, sent)
    assert set(first) == {"head", "live", "questions", "entries", "order"}
    assert page_rendering.build_changed_parts(PLACE, shown, sent) == {}

    shown.apply_event(FactsAdded((facts.Recorded("c1", 2, 1.0, replied(facts.Text("A"))),)))
    changed = page_rendering.build_changed_parts(PLACE, shown, sent)
    assert [identity for identity, _ in changed["entries"]] == ["e2"]
    assert set(changed) == {"entries", "order"}
    assert changed["order"] == ["e1", "e2"]

    shown.apply_event(ActivityChanged("c1", ConversationActivity.THINKING, ""))
    assert set(page_rendering.build_changed_parts(PLACE, shown, sent)) == {"head", "live"}


def test_entries_behind_a_rewind_go_from_the_page() -> None:
    sent: dict[str, str] = {}
    page_rendering.build_changed_parts(PLACE, conversation(said("A"), said("B")), sent)
    changed = page_rendering.build_changed_parts(PLACE, conversation(said("A")), sent)
    assert (changed["entries"], changed["order"]) == ([], ["e1"])
