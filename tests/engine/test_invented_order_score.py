"""How likely a sentence states an order that nobody gave."""

import pytest

from helix_desktop.engine.invented_order_score import SaidWords, stems_in_pieces, stems_of

SAID = "Please make the importer stream the file. No new dependencies, and the public API has to stay as it is."


def is_invented(sentence: str, said: str = SAID, agreed: str = "") -> bool:
    words = SaidWords([said], [agreed], [sentence])
    return words.is_invented(sentence, stems_in_pieces(words.wanted, [said, agreed]))


@pytest.mark.parametrize(
    "order",
    [
        "No new dependencies are wanted.",
        "The public API must stay as it is.",
        "The user wants the importer to stream the file.",
    ],
)
def test_an_order_that_a_user_gave_is_not_invented_and_one_that_nobody_gave_is(order: str) -> None:
    assert not is_invented(order)
    assert is_invented(order, "Look at the tower.")


def test_a_number_is_not_torn_at_its_comma() -> None:
    """A part of the sentence had a word that the whole did not have, and the timeline
    of its handover failed.
    """
    assert not is_invented(
        "The importer must stay below 1,200 lines.", "Keep the importer below 1,200 lines."
    )


def test_a_report_is_no_order() -> None:
    assert not is_invented("The reader was rewritten and seven benchmarks became faster.")


def test_a_word_is_found_in_another_form_and_a_number_in_words() -> None:
    assert stems_of("Three tests failed") == stems_of("3 failing test")
    assert stems_in_pieces({"fix", "comp"}, ["They fixed the computer."]) == {"fix"}
