"""Keeps track of several answers to one message: where each begins, and which one is shown."""

from dataclasses import field

from helix_desktop.engine.facts import Rewound, UserSaid
from helix_desktop.engine.state.fact_tree import FactTree, Run
from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class AnswerChoice:
    """The number of the shown answer, from 1, and the newest fact of each answer. A
    single answer is no choice.
    """

    number: int = 0
    answer_ends: tuple[int, ...] = ()

    def neighbouring_answer_end(self, steps: int) -> int:
        """Returns the end of the answer before or after the shown one, or 0 if there is none."""
        index = self.number - 1 + steps
        if not 0 <= index < len(self.answer_ends):
            return 0
        return self.answer_ends[index]


@dataclass(slots=True)
class AlternativeAnswers:
    """Keeps, for each message answered again, where each answer begins and ends."""

    # The first fact of each answer, by message.
    _answer_begins: dict[int, list[int]] = field(default_factory=dict)
    # The last fact of each answer before the conversation left it, by the answer's first fact.
    _answer_ends: dict[int, int] = field(default_factory=dict)

    def add_answer_of_rewind(self, seq: int, fact: Rewound, record: FactTree) -> None:
        """Records for a rewind at `seq` where the answers on its branch end."""
        message = fact.to
        if fact.again and _is_user_message_before(message, seq, record):
            if message not in self._answer_begins:
                self._answer_begins[message] = self._record_end_of_first_answer_and_return_start(
                    message, seq, record
                )
            self._answer_begins[message].append(seq)
        all_begins: list[int] = []
        for begins in self._answer_begins.values():
            all_begins += begins
        self._set_left_answer_ends(seq, all_begins, record)

    def _record_end_of_first_answer_and_return_start(
        self, message: int, seq: int, record: FactTree
    ) -> list[int]:
        """Finds where the first answer begins if what follows the message belongs to
        it, and records where it ended.
        """
        begin = message + 1
        if not is_fact_on_path(record.runs_leading_to(begin), message):
            return []
        for rewind in record.rewinds:
            if begin < rewind <= seq:
                self._set_left_answer_ends(rewind, [begin], record)
        return [begin]

    def _set_left_answer_ends(self, rewind: int, begins: list[int], record: FactTree) -> None:
        """Sets the ends of the answers on the branch that a rewind leaves."""
        if not begins:
            return
        path = record.runs_leading_to(rewind - 1)
        for begin in begins:
            if is_fact_on_path(path, begin):
                self._answer_ends[begin] = rewind - 1

    def find_answer_choice(self, message: int, record: FactTree, newest_seq: int) -> AnswerChoice:
        """Finds which of a message's answers the branch that ends at `newest_seq`
        shows, and where each answer ends, so that "‹ 2/3 ›" can go to it. The shown
        answer still grows: it ends with the newest fact.
        """
        begins = self._answer_begins.get(message, ())
        if len(begins) < 2:
            return AnswerChoice()
        path = record.runs_leading_to(newest_seq)
        shown_number = 0
        answer_ends: list[int] = []
        for number, begin in enumerate(begins, 1):
            if not shown_number and is_fact_on_path(path, begin):
                shown_number = number
                answer_ends.append(newest_seq)
            else:
                answer_ends.append(self._answer_ends.get(begin, 0))
        if not shown_number:
            return AnswerChoice()
        return AnswerChoice(shown_number, tuple(answer_ends))


def _is_user_message_before(message: int, rewind: int, record: FactTree) -> bool:
    """Whether the fact `message` is the user's, and something stands between it and the rewind."""
    if not 0 < message < rewind - 1:
        return False
    recorded = record.facts[message - 1]  # Numbers of facts begin at 1.
    return isinstance(recorded.fact, UserSaid)


def is_fact_on_path(runs: list[Run], seq: int) -> bool:
    """Whether a fact is in one of the runs of facts that make a path through the tree."""
    for first, last in runs:
        if first <= seq <= last:
            return True
    return False
