"""What a summary claims that nothing supports: found in 200 handovers with one false
sentence each, and not in 300 honest ones.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from helix_desktop.engine import facts, summary_claims
from helix_desktop.engine.conversation_details import NEWEST_OUTPUTS, DetailSource
from helix_desktop.engine.summary_claims import find_unsupported_claims
from helix_desktop.engine.view import build_state
from helix_desktop.store.in_memory_stores import MemoryCache
from tests.engine.claim_samples import Sample, false_handovers, honest_handovers


def sources_of(sample: Sample) -> list[DetailSource]:
    said = [DetailSource(1, "user", text) for text in sample.said]
    return [*said, *(DetailSource(2, "output", text) for text in sample.seen)]


def test_a_file_whose_name_has_several_dots_and_a_version_after_v_are_checked() -> None:
    sources = [DetailSource(1, "user", "See app/server.ts, docs/notes.txt and v1.47.0.")]
    summary = "Limits are in app/lib/pressure.server.ts now.\nA note is in docs/releases/2.2.8.txt.\nIt is at v1.48.2."
    found = [claim.partition(" — ")[0] for claim in find_unsupported_claims(summary, sources)]
    assert found == ["app/lib/pressure.server.ts", "docs/releases/2.2.8.txt", "1.48.2"]
    assert find_unsupported_claims("It is at v1.47.0.", sources) == []


def test_a_sentence_that_is_repeated_is_said_once() -> None:
    """The defect: of a model that looped, 60,000 equal sentences were checked one by
    one, which took ten seconds.
    """
    claims = find_unsupported_claims(
        "The limit is 9,731 MB.\n" * 3, [DetailSource(1, "user", "Go on.")]
    )
    assert claims == ["9,731 MB — The limit is 9,731 MB."]


def test_nearly_every_false_sentence_is_found() -> None:
    written, found = Counter[str](), Counter[str]()
    for sample, text, kind, sentence in false_handovers():
        claims = find_unsupported_claims(text, sources_of(sample))
        written[kind] += 1
        found[kind] += any(claim.rpartition(" — ")[2] in sentence for claim in claims)
    assert written.total() == 200
    assert (found["file"], found["number"], found["quotation"]) == (40, 40, 20)
    assert found["name"] >= 38
    assert found["said order"] + found["stated order"] >= 48


def test_honest_handovers_are_hardly_marked() -> None:
    marked = [
        bool(find_unsupported_claims(text, sources_of(sample)))
        for sample, text in honest_handovers()
    ]
    assert (len(marked), sum(marked) <= 6) == (300, True)


@pytest.mark.parametrize(
    ("summary", "found"),
    [
        (
            "The user wants a reproduction script in CHANGELOG.rst.",
            True,
        ),  # Only two words were said, and by chance.
        ("The user wants the totals rounded in `report.rst`, with a script.", False),
        ("These are what has to be worked off next.", False),  # What is left to do is no order.
        ("No change of the style is to be seen.", False),
        ("No line had been changed before.", False),
        ("It is open whether other totals have to be checked as well.", False),
        (
            "The user wants a script, so the error must be in the reproduction.",
            False,
        ),  # A conclusion.
        ("No CHANGELOG.rst stands behind the reproduction of this style.", False),
        ("Thirty runs of the reproduction, neither with a style.", False),
        ("The build system wants a style for each reproduction.", False),
        (
            "She wanted totals, and the reproduction has no style.",
            False,
        ),  # One word, and it was said.
        ("Agreed: no telemetry leaves the container.", True),
        ("The styles were to stay as they are, per instruction.", True),
        ("Pushes still need his OK first.", True),
        ("Styles were left out, as specified by the client.", True),
        ("The request was to leave the names out.", True),
        ("She'd also like a short style for the reproduction.", True),
    ],
)
def test_an_order_shares_more_than_two_words_with_the_user(summary: str, found: bool) -> None:
    sources = [
        DetailSource(1, "user", "Write a script that shows the rounded totals."),
        DetailSource(1, "user", "Put it into report.rst."),
        DetailSource(2, "output", "CHANGELOG.rst reproduction style"),
    ]
    assert bool(find_unsupported_claims(summary, sources)) is found


@pytest.mark.parametrize(
    "summary",
    [
        "It wrote 1,204,311 rows, or 1.2 million.",
        "The file took 117 KB, 0.12 MB as it were.",
        "The error was “no such file … in the folder”.",
        "1. The first of 9 steps [12] is done.",
        'every message: recall_history("handover-3"); it covers the numbers 3 to 912',
        "He changed `parse_row` in src/reader.rs, and/or its tests.",
        "Commit 4be91c7 has it.",
        "It runs under Python 3.9.",
    ],
)
def test_what_stands_there_in_another_form_is_supported(summary: str) -> None:
    seen = "Python 3.9.21: 1204311 rows, 117023 bytes in src/reader.rs: parse_row; No such  file or link in the folder; 4be91c7d00aa"
    assert find_unsupported_claims(summary, [DetailSource(1, "output", seen)]) == []


@pytest.mark.parametrize(
    "summary",
    [
        "She flies from Seattle by way of San Francisco.",
        "The listing is of December 2024 and names two Mastercards.",
        "The function has been changed, the class itself too.",
        "Le texte a été changé dans /app/main.py.",
        "It wrote about 48 KB.",
        "No answer was given yet.",
        "Neither flight suited her, since both leave early and she wants to depart after 11 AM EST.",
    ],
)
def test_what_a_reader_would_not_call_invented_is_not_marked(summary: str) -> None:
    seen = "SEA SFO 12/31/24 Mastercard 48506 bytes /app/main.py le texte dans"
    sources = [
        DetailSource(1, "user", "I would like to depart after 11am EST"),
        DetailSource(2, "output", seen),
    ]
    assert find_unsupported_claims(summary, sources) == []
    invented = "She flies from Savannah. The user forbids any other stop."
    assert len(find_unsupported_claims(invented, sources)) == 2


@pytest.mark.parametrize(
    "summary",
    [
        "Article.slug is the example.",
        "The OAuth selector has lost some lines.",
        "Three Stack Overflow questions are named.",
        "Tests go through tox with the py39 environment.",
        "Running that module gave six errors.",
        "Nobody has answered so far.",
        "What comes next is making it leave the method alone.",
    ],
)
def test_names_of_code_written_in_another_way_are_no_inventions(summary: str) -> None:
    """The defect: a tenth of the honest sentences of somebody who had not seen this
    search were marked.
    """
    seen = "class Article: slug = 1\nshowOAuthSelector() # stackoverflow.com/questions/4\ntox -epy39 -v src/article.py"
    assert find_unsupported_claims(summary, [DetailSource(1, "output", seen)]) == []


@pytest.mark.parametrize(
    ("summary", "found"),
    [
        ("Two certificates are worth $100 and $250, so $350 in total.", []),
        ("Of the 130 tests 25 failed, so 105 passed.", []),
        ("With 100,000 paths of 252 steps, 25.2 million steps are computed.", []),
        ("The legs cost 131, 163, 157 and 186, which is 637 without the insurance of 30.", []),
        ("Two certificates are worth $100 and $250, so $380 in total.", ["380"]),
        (
            "Of the 130 tests 24 failed, so 106 passed.",
            ["24", "106"],
        ),  # What is invented supports nothing.
        ("There is $350 left.", ["350"]),  # Any number is a sum of some others.
    ],
)
def test_a_figure_computed_from_others_of_its_sentence_is_supported(
    summary: str, found: list[str]
) -> None:
    """The defect: a third of the honest sentences that were marked say a sum or a difference."""
    seen = "amount 100 and 250; 131, 163, 157, 186 and 30; 130 tests: 25 failed; 100000 paths of 252 steps"
    claims = find_unsupported_claims(summary, [DetailSource(1, "output", seen)])
    assert claims == [f"{', '.join(found)} — {summary}"] * bool(found)


ISSUE = (
    "The linkcheck builder should look at local links. Today it only reads external ones. That is a pity for large documents. Our own "
    "have two hundred pages. We configure them in conf.py. Each section has a label. Please keep the order of the sections as it is."
)


@pytest.mark.parametrize(
    "order",
    [
        "The user wants a label switch in the builder.",
        "The user asked that the collector module not be modified.",
        "Anna also asked for a release note about labels.",
        "A release note has to describe the sections.",
    ],
)
def test_an_order_is_invented_if_its_words_are_scattered_over_a_message_or_only_in_outputs(
    order: str,
) -> None:
    """The defect: of such orders, two in five were taken for the user's."""
    outputs = "def modify_collector(module): pass", "see the note on each release"
    sources = [
        DetailSource(1, "user", ISSUE),
        *(DetailSource(2, "output", text) for text in outputs),
    ]
    assert find_unsupported_claims(order, sources) == [order]
    kept = "The user wants the builder to check local links as well, and the sections must stay in order."
    assert find_unsupported_claims(kept, sources) == []


def test_a_sentence_copied_from_an_output_is_no_invention() -> None:
    """The defect: a summary that copied it was written again, and the bill of a
    recorded session rose by two points.
    """
    copied = "If you want to manipulate this list, use the function below."
    sources = [
        DetailSource(1, "user", "Go on."),
        DetailSource(2, "output", f"# {copied}\ndef manipulate(): ..."),
    ]
    assert find_unsupported_claims(f"{copied}\nIf you want to manipulate this", sources) == []


def test_a_claim_stands_before_its_sentence() -> None:
    sources = [DetailSource(1, "user", "look at a.py"), DetailSource(2, "output", "fine")]
    assert find_unsupported_claims("- a.py was read, and other.py too.\n- other.py", sources) == [
        "other.py — a.py was read, and other.py too.",
        "other.py",
    ]
    order = (
        "The user wants Mallory to approve it."  # The defect: a sentence stood before itself, too.
    )
    assert find_unsupported_claims(order, sources) == [f"Mallory — {order}"]


def test_no_other_thread_waits_long_for_a_search() -> None:
    """A pattern that searches one text lets no other thread run, and an output can be
    one line of a megabyte.
    """
    texts = summary_claims.SourceTexts().with_sources(
        [DetailSource(1, "output", "_-" * 500_000 + "\nend")]
    )
    pieces = list(summary_claims._KnownWords(texts, [])._pieces())
    assert max(map(len, pieces)) == summary_claims.SEARCHED_PIECE
    assert pieces[-1] == "end"


def test_texts_are_packed_small_and_unpacked_as_they_were() -> None:
    texts = ["one line\nanother", "", "half a pair \ud83d", "output " * 50_000]
    packed = summary_claims.SourceTexts()
    for text in texts:
        packed = packed.with_sources([DetailSource(1, "output", text)])
    assert list(packed.unpack_texts()) == texts
    assert sum(map(len, packed.packed)) < 5_000
    assert (
        find_unsupported_claims(
            "It is in src/known.py.",
            [],
            packed.with_sources([DetailSource(2, "user", "see src/known.py")]),
        )
        == []
    )
    assert find_unsupported_claims("It is in src/known.py.", [], packed)


def test_the_list_of_newest_outputs_is_no_claim() -> None:
    assert (
        find_unsupported_claims(
            f"{NEWEST_OUTPUTS}\n- src/gone.py", [DetailSource(1, "user", "Go on.")]
        )
        == []
    )


def test_where_claude_code_keeps_its_transcript_is_no_claim() -> None:
    text = "It works. For details, read the full transcript at: /home/me/.claude/projects/-p/5a1c.jsonl"
    assert (
        find_unsupported_claims(text, [DetailSource(1, "output", "it works, for details see it")])
        == []
    )


def test_what_claude_code_writes_around_its_summary_is_no_claim() -> None:
    """The defect: each compaction of Claude Code was said to quote "I'll continue",
    which nobody had said.
    """
    frame = (
        "This session is being continued from a previous conversation that ran out of context. The summary below covers the earlier"
        " portion of the conversation.\n\nSummary:\n{summary}\n\nIf you need specific details from before compaction (like exact code"
        " snippets, error messages, or content you generated), read the full transcript at: /home/me/.claude/projects/-p/5a1c.jsonl\n"
        "Continue the conversation from where it left off without asking the user any further questions. Resume directly — do not"
        ' acknowledge the summary, do not recap what was happening, do not preface with "I\'ll continue" or similar. Pick up the last'
        " task as if the break never happened.\n"
        "The messages after this summary are the most recent messages from before compaction, kept verbatim. The summary was written"
        " without seeing them, so something it says has not happened yet may already have happened in them."
    )
    sources = [DetailSource(1, "user", "please sum up the invoices")]
    assert (
        find_unsupported_claims(frame.format(summary="The invoices were summed up."), sources) == []
    )
    (found,) = find_unsupported_claims(
        frame.format(summary="It was sent to Margarethe Oelkers."), sources
    )
    assert "Margarethe Oelkers" in found


def test_a_page_of_empty_lines_takes_no_quadratic_time() -> None:
    """A pattern holds the interpreter: for seconds the window would not be painted."""
    start = time.thread_time()
    assert not find_unsupported_claims(
        "\n" * 60_000 + "It was 1.5.", [DetailSource(1, "user", "It was 1.5.")]
    )
    assert time.thread_time() - start < 2


@pytest.mark.parametrize("piece", ["„", "wh", "a_", "Ab ", "1."])
def test_of_a_sentence_without_an_end_only_a_part_is_searched_at_once(piece: str) -> None:
    """No other thread runs while a pattern searches."""
    claims = find_unsupported_claims(
        piece * 10_000 + " src/gone.py", [DetailSource(1, "user", "Go on.")]
    )
    assert "src/gone.py" in claims[-1]
    assert all(len(claim.rpartition(" — ")[2]) <= summary_claims.SEARCHED_PIECE for claim in claims)


@pytest.mark.parametrize(
    ("summary", "found"),
    [
        ("Both segments cost 362 USD.", ""),
        ("The cards hold 270 dollars between them.", ""),
        ("The refunds add up to $8,046.", ""),
        ("The nonstop would have been $163, so this one costs him 27 more.", ""),
        ("Some 1,500 lines are gone.", ""),
        ("Both segments cost 372 USD.", "372"),
        ("The refunds add up to $8,146.", "8,146"),
        ("1,500 lines are gone.", "1,500"),
        (
            "The machine with id 21 was restarted.",
            "21",
        ),  # Only prices are added up, as chance would support all else.
    ],
)
def test_sums_of_listed_prices_and_roundings_that_say_so_are_supported(
    summary: str, found: str
) -> None:
    """The defect: of the honest sentences that were marked, a third had a sum of prices
    that stood in one list.
    """
    seen = (
        '[{"price": 172, "leg": 1}, {"price": 190, "leg": 2}] {"amount": 157} {"amount": 113}\nid 8\nid 13\n'
        '{"amount": -5680}, {"amount": -2366} price 163 removed 1543 lines'
    )
    claims = find_unsupported_claims(summary, [DetailSource(1, "output", seen)])
    assert claims == ([f"{found} — {summary}"] if found else [])


def test_the_line_numbers_of_a_listing_support_only_what_is_said_of_lines() -> None:
    """The defect: "47 of the 52 tests pass" was supported by a file of sixty lines."""
    listing = "\n".join(f"{number:6}\tpass" for number in range(1, 61))
    sources = [DetailSource(1, "user", "Run the tests."), DetailSource(2, "output", listing)]
    assert find_unsupported_claims("It passes in line 47.", sources) == []
    assert find_unsupported_claims("47\tpass", sources) == []  # Copied with its number.
    assert find_unsupported_claims("47 of the 52 tests pass.", sources) == [
        "47, 52 — 47 of the 52 tests pass."
    ]


def test_differences_of_any_two_figures_support_nothing_if_there_are_many() -> None:
    seen = " ".join(f"{each * 1.37 % 20:.4f}" for each in range(1, 120))
    claims = find_unsupported_claims(
        "The call comes out at 12.4135.", [DetailSource(1, "output", seen)]
    )
    assert claims == ["12.4135 — The call comes out at 12.4135."]


@pytest.mark.parametrize(
    ("summary", "found"),
    [
        ("The switch is called viewcode-skip-builder.", "viewcode-skip-builder"),
        ("By default gpt-4.1-mini is taken.", "gpt-4.1-mini"),
        ("A second candidate, FEDMX, was rejected.", "FEDMX"),
        ("Forty-nine runs were red.", ""),
        ("She mixes French into her English.", ""),
        ("It was for Aarav Patil.", "Aarav Patil"),  # API is not his abbreviation.
        ("Nine runs of it were red.", ""),
        ("New reservation, no bags.", ""),
        ("The event is called builder-inited.", ""),
    ],
)
def test_names_with_hyphens_or_in_capitals_are_names(summary: str, found: str) -> None:
    seen = "viewcode, skip it in each builder: gpt 4 or 1.1 mini; builder_inited; FEMKX; ORD EWR IAH; API; Bonjour"
    claims = find_unsupported_claims(summary, [DetailSource(1, "output", seen)])
    assert claims == ([f"{found} — {summary}"] if found else [])


@pytest.mark.parametrize(
    "statement",
    [
        "The refunds should arrive in a week.",
        "The insurance shouldn't have counted either.",
    ],
)
def test_reasons_and_expectations_are_no_orders(statement: str) -> None:
    assert find_unsupported_claims(statement, [DetailSource(1, "user", "Go on.")]) == []


def test_what_the_settings_and_the_messages_times_say_is_supported() -> None:
    """The defect: a rule of the system prompt, the day of a message or the number of
    calls was taken for invented.
    """

    async def claims_of(text: str) -> Sequence[str]:
        call = facts.ToolCall("", "run", '{"command": "tox -e py39"}')
        made: list[facts.Fact] = [
            facts.SystemSet("Each extra bag costs 55 dollars.", 9),
            facts.UserSaid((facts.Text("Go on."),)),
            *(facts.ModelReplied((call,), "claude-haiku", facts.Stop.CALLS) for _ in range(31)),
        ]
        noon = 1758283200.0  # 19 September 2025
        history = build_state(
            facts.Recorded("c", at, noon, fact) for at, fact in enumerate(made, 1)
        )
        fold = facts.Folded("f", facts.FoldKind.HANDOVER, facts.Span(2, len(made)), text, 0, 0)
        return await summary_claims.find_unsupported_claims_of_fold(history, fold, MemoryCache())

    honest = "On Friday, 19 September 2025, Haiku ran it 31 times. A bag costs 55 dollars."
    assert asyncio.run(claims_of(honest)) == []
    invented = "On 23 August it ran 36 times."
    assert asyncio.run(claims_of(invented)) == [f"August, 23, 36 — {invented}"]


@pytest.mark.parametrize(
    "order",
    [
        "Silva capped the charge at three hundred francs.",
        "A tolerance of ten percent was granted.",
        "Condominiums count as well, according to the person asking.",
        "Support for Oracle was waived: that was settled at the outset.",
        "The new chapter has been approved and may go into print.",
        "Agreed with the customer: insurance is to be added once the difference is settled.",
        "Screenshots were declared taboo.",
        "The owner gave leave to drop Windows.",
        "Documentation is to follow in a second request, as discussed.",
        "He'd rather have two small patches than one big one.",
    ],
)
def test_an_order_is_recognised_by_a_person_who_wills_or_by_an_agreement(order: str) -> None:
    """The defect: of eighteen orders that a stranger had invented, eleven were not even
    taken for orders.
    """
    said = [DetailSource(1, "user", "Look at the tower.")]
    assert len(find_unsupported_claims(order, said)) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "The booking tool insisted on more dollars.",
        "A likely remedy is to bring the old cache back.",
        "He wanted a margin of two percent.",
        "It flies on a Monday, by Eastern time.",
    ],
)
def test_what_programs_insist_on_and_what_would_help_is_no_order(statement: str) -> None:
    assert (
        find_unsupported_claims(statement, [DetailSource(1, "user", "A margin of 2 % please.")])
        == []
    )


@pytest.mark.parametrize(
    "order",
    [
        "The owner suggested caching the sums.",
        "Mocks are not welcome here.",
        "Sums may be rounded up where that is simpler.",
        "Tuesday evening at the latest, said the lead.",
        "Exact figures are of no interest to him.",
        "Amelia set a limit of three pages.",
        "Ignoring rounded sums is fine with the reviewer.",
        "Rounding can be skipped, according to the ticket.",
        "A second opinion was asked for.",
        "Ms Davis does not mind a delay.",
        "Speed takes precedence over beauty.",
        "Hands off the parser.",
        "Sofia will not fly before noon.",
    ],
)
def test_a_rule_or_permission_is_an_order_also_without_a_person_who_wants_it(order: str) -> None:
    """The defect: orders that permit, limit or rank were taken for reports of what happened."""
    assert len(find_unsupported_claims(order, [DetailSource(1, "user", "Look at the tower.")])) == 1


def test_words_that_a_user_writes_all_the_time_hardly_support_an_order() -> None:
    """The defect: two words of the topic, which stand in most sentences, supported any
    order about it.
    """
    said = "Local links fail. I list local links. Links to local files too. Local links again! No local links, please."
    sources = [DetailSource(1, "user", f"{said} Mark a broken one in red.")]
    assert find_unsupported_claims("The user wants local links to be optional by default.", sources)
    assert find_unsupported_claims("The user wants broken local links in red.", sources) == []


def test_a_short_answer_supports_what_was_proposed_before_it() -> None:
    """The defect: what a user had agreed to with a word was said to be invented."""
    proposed = DetailSource(1, "assistant", "Shall I charge the Visa for both upgrades?")
    claim = "The client agreed to charge both upgrades to the Visa."
    assert find_unsupported_claims(claim, [proposed, DetailSource(2, "user", "Yes, go on.")]) == []
    assert find_unsupported_claims(claim, [proposed, DetailSource(2, "user", "Wait. " * 50)]) == [
        claim
    ]
    assert find_unsupported_claims(claim, [DetailSource(2, "user", "Yes, go on."), proposed]) == [
        claim
    ]


@pytest.mark.parametrize(
    ("summary", "found"),
    [
        ("It broke with release 1.7.9.", "1.7.9"),
        ("It broke with release 1.7.6.", ""),
        ("It was seen on 5.11.2025.", ""),  # A date may be written in another way in the source.
        ("The ticket was closed by hargreave.", "hargreave"),
        ("Jorgensen closed the ticket.", "Jorgensen"),
        ("Ncsaba closed the ticket.", ""),
    ],
)
def test_versions_and_who_did_something_have_a_source(summary: str, found: str) -> None:
    """The defect: with two dots, a number was less than any that is searched for."""
    seen = "sphinx==1.7.6, the ticket was closed by ncsaba 2025-11-05"
    claims = find_unsupported_claims(summary, [DetailSource(1, "output", seen)])
    assert claims == ([f"{found} — {summary}"] if found else [])


@pytest.mark.parametrize(
    ("summary", "found"),
    [
        ("The hooks are run by huskytool.", "huskytool"),
        ("It is compared with deskpilot-mcp.", "deskpilot-mcp"),
        ("Podmanix replaces the daemon.", "Podmanix"),
        ("It was taken over verbatim and run by hand.", ""),
        ("Rebooking was refused.", ""),
        ("Case handed to a human agent.", ""),
        ("It flies to Orlando (New York–Newark first).", ""),
        ("It flies to Phoenix.", "Phoenix"),
    ],
)
def test_a_word_that_is_hardly_english_may_be_a_name(summary: str, found: str) -> None:
    """The defect: a name in small letters or in the first place was not searched for, a
    city not found by its airport.
    """
    claims = find_unsupported_claims(
        summary, [DetailSource(1, "output", "the daemon, from MCO by EWR and JFK")]
    )
    assert claims == ([f"{found} — {summary}"] if found else [])
