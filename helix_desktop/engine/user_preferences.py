"""Keeps what the user demands, and tells what was fulfilled or replaced since.

A handover repeats the user's demands word for word in every request that follows. A
task that was done long ago, or a rule that the user has taken back, would be followed
again. Both stay in the document's entry, where they can be found.
"""

import re

from helix_desktop.engine.search_query import STOP_WORDS
from helix_desktop.engine.stated_rules_and_decisions import states_a_rule, states_a_wish
from helix_desktop.fast_dataclass import dataclass

STEM_LETTERS = 6  # Words that share this many first letters count as forms of one word.
# A demand is replaced by a later one that has at least this share of its words.
REPLACING_SHARE = 0.5

_WORD = re.compile(r"[^\W_]+")
_FILE = re.compile(r"[\w./~-]*\w\.[A-Za-z]\w{0,9}\b")
# A place in a file, as reviews and compilers name it: the sentence is about the code there.
_PLACE = re.compile(r"\w\.[A-Za-z]\w{0,9}:\d+|\blines? \d+")
# With these alone a sentence demands something once. All other words of rules are lasting.
_ONCE = re.compile(
    r"\b(?:must|shall|make sure|ensure|required|remember to|at least|at most|instead of"
    r"|muss|müssen|musst|soll|sollst|sollen|sollte)\b|必须|必須|应该|應該|至少|最多|务必|務必",
    re.IGNORECASE,
)
_REPLACES = re.compile(
    r"\b(?:instead|no longer|any ?more|after all|forget|ignore what|changed my mind|rather than"
    r"|you (?:may|can)|(?:is|are) (?:now )?(?:fine|ok|okay|allowed)|stop using"
    r"|statt|stattdessen|nicht mehr|doch nicht|vergiss|du darfst|ihr dürft"
    r"|plutôt|au lieu|ya no|en vez de)\b|改用|不再|而不是|可以",
    re.IGNORECASE,
)


@dataclass(slots=True)
class StatedDemand:
    """A sentence or message of the user, and what became of it. `times`: how often it was said."""

    text: str
    seq: int
    times: int
    words: frozenset[str]
    files: frozenset[str]  # Those that it names and the agent has not changed since.
    is_lasting: bool
    is_task: bool  # It is about the work itself: it states no rule, or names files.
    is_answered: bool = False  # The agent has worked on it and answered.
    is_settled: bool = False  # It was fulfilled or replaced.

    @property
    def is_fulfilled(self) -> bool:
        if self.is_lasting or self.files:
            return False
        return self.is_task and self.is_answered


class UserPreferences:
    """The user's demands, in the order in which they were stated."""

    def __init__(self) -> None:
        self.demands: list[StatedDemand] = []
        # A long conversation has very many demands, so what each message may change is known apart.
        self._unanswered_tasks: list[StatedDemand] = []
        self._answered_tasks: list[StatedDemand] = []
        self._naming_files: list[StatedDemand] = []

    def add_demand(self, text: str, seq: int, times: int = 1) -> None:
        """Add a demand. If it says "instead" or the like, similar earlier ones are settled."""
        demand = _read_demand(text, seq, times)
        if _REPLACES.search(text):
            for earlier in self.demands:
                if _is_replaced(earlier, demand):
                    earlier.is_settled = True
        self.demands.append(demand)
        if demand.is_task and not demand.is_lasting:
            self._unanswered_tasks.append(demand)
        if demand.files:
            self._naming_files.append(demand)

    def add_changed_file(self, path: str) -> None:
        """Note that the agent changed a file, which a demand may have named."""
        for demand in self._naming_files:
            unchanged_files = [file for file in demand.files if not _is_same_file(file, path)]
            demand.files = frozenset(unchanged_files)
        self._naming_files = [demand for demand in self._naming_files if demand.files]

    def add_answer(self) -> None:
        """Note that the agent has worked and ended its turn with an answer."""
        for demand in self._unanswered_tasks:
            demand.is_answered = True
        self._answered_tasks += self._unanswered_tasks
        self._unanswered_tasks = []

    def add_next_message(self) -> None:
        """Note that the user went on: what was answered before is fulfilled."""
        unfulfilled_tasks: list[StatedDemand] = []
        for demand in self._answered_tasks:
            if demand.is_fulfilled:
                demand.is_settled = True
            else:
                unfulfilled_tasks.append(demand)
        self._answered_tasks = unfulfilled_tasks


def _read_demand(text: str, seq: int, times: int) -> StatedDemand:
    """Find out whether a demand is for good, such as a rule, or a task that can be fulfilled."""
    is_about_place = bool(_PLACE.search(text))
    is_lasting = states_a_rule(_ONCE.sub(" ", text)) and not is_about_place
    files = frozenset(_FILE.findall(text))
    states_work = not (states_a_rule(text) or states_a_wish(text))
    is_task = states_work or bool(files)
    return StatedDemand(text, seq, times, _content_words(text), files, is_lasting, is_task)


def _content_words(text: str) -> frozenset[str]:
    """Return the beginnings of the words that say something."""
    stems = set()
    for word in _WORD.findall(text):
        lower_word = word.casefold()
        if lower_word not in STOP_WORDS:
            stems.add(lower_word[:STEM_LETTERS])
    return frozenset(stems)


def _is_replaced(earlier: StatedDemand, later: StatedDemand) -> bool:
    shared_words = earlier.words & later.words
    if not shared_words:
        return False
    return len(shared_words) >= REPLACING_SHARE * len(earlier.words)


def _is_same_file(name: str, path: str) -> bool:
    """Whether a name in a message means the file at a path."""
    plain_name = name.removeprefix("./").strip("/")
    plain_path = path.strip("/")
    # Either may have more folders in front than the other.
    return f"/{path}".endswith(f"/{plain_name}") or f"/{plain_name}".endswith(f"/{plain_path}")
