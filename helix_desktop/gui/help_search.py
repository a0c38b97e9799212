"""Finds pages of the help, and the answers on its page of questions, for what somebody typed."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from PySide6.QtCore import QLocale

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.question_matching import (
    AnswerText,
    QuestionMatcher,
    is_worded_as_question,
)
from helix_desktop.gui.translation import tr
from helix_desktop.resources import resources_folder

_CONTENTS_LINE = re.compile(r"- \[([^]]+)\]\((\w[\w-]*\.md)\)(?:: |：)(.+)")
_QUESTION_LINE = re.compile(r"- \*\*(?:……|…) ?(.+?)\*\* ?(.+)")
_MARKDOWN_LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")
_MARKDOWN_SIGNS = re.compile(r"[*`|]|^\s*(?:[-+>]|\d+\.)\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
CONTENTS = "index.md"
QUESTIONS = "how.md"
RANK_OF_SUMMARY = 1  # Of a page whose title or summary has all words.
MOST_ANSWERS = 3  # Of the page of questions. Those that fit less would hide the pages.


def find_help_file(file: str) -> Path:
    """Returns a page in the window's language, or else in English."""
    pages = resources_folder() / "help"
    translated = pages / QLocale().name()[:2] / file
    if translated.is_file():
        return translated
    return pages / file


@dataclass(frozen=True, slots=True)
class HelpEntry:
    """A line of the help's contents: a page's file, its title, and what it is about."""

    file: str
    title: str
    summary: str

    @property
    def line(self) -> str:
        return f"{self.title}: {self.summary}"


def list_help_contents() -> tuple[HelpEntry, ...]:
    return _parse_help_contents(find_help_file(CONTENTS).read_text("utf-8"))


def _parse_help_contents(text: str) -> tuple[HelpEntry, ...]:
    entries: list[HelpEntry] = []
    for title, file, summary in _CONTENTS_LINE.findall(text.replace("`", "")):
        entries.append(HelpEntry(file, title, summary))
    return tuple(entries)


@dataclass(frozen=True, slots=True)
class HelpQuestion:
    """A question of the page of questions, without its beginning "How do I…", and its answer."""

    question: str
    answer: str


def list_help_questions() -> tuple[HelpQuestion, ...]:
    return _parse_help_questions(find_help_file(QUESTIONS).read_text("utf-8"))


def _parse_help_questions(text: str) -> tuple[HelpQuestion, ...]:
    questions: list[HelpQuestion] = []
    for line in text.splitlines():
        match = _QUESTION_LINE.match(line)
        if match is not None:
            questions.append(HelpQuestion(match[1], _without_markdown(match[2])))
    return tuple(questions)


@dataclass(frozen=True, slots=True)
class HelpFinding:
    """A line of what was found, the page that it opens, and the words to mark there."""

    line: str
    file: str
    words: tuple[str, ...] = ()


def find_help_pages(query: str) -> tuple[HelpFinding, ...]:
    """Finds what answers the query as a question, and the pages with all of its words.

    A page whose title or summary has all words as they were typed is meant by them, and comes
    first, unless the query is worded as a question. Then come the answers, then the other pages
    with all words.
    """
    words = tuple(query.casefold().split())
    findings: list[HelpFinding] = []
    literal_pages = _list_pages_with_all_words(query)
    if not is_worded_as_question(query):
        for page in literal_pages:
            is_meant = page.rank <= RANK_OF_SUMMARY and page.entry.file != QUESTIONS
            if is_meant:
                findings.append(HelpFinding(page.line, page.entry.file, words))
    listed_files = {finding.file for finding in findings}

    for answer in _find_answers(query):
        # The answers of the page of questions are listed one by one.
        if answer.file == QUESTIONS or answer.file not in listed_files:
            findings.append(answer)
            listed_files.add(answer.file)

    for page in literal_pages:
        if page.entry.file not in listed_files:
            findings.append(HelpFinding(page.line, page.entry.file, words))
    return tuple(findings)


def _find_answers(query: str) -> Sequence[HelpFinding]:
    if not query.split():
        return ()
    answers = _read_help_answers(find_help_file(QUESTIONS), find_help_file(CONTENTS))
    return answers.find_help_answers(query)


class HelpAnswers:
    """Finds the questions and pages of the help that answer what somebody asks."""

    def __init__(self, entries: Sequence[HelpEntry], questions: Sequence[HelpQuestion]) -> None:
        self._findings: list[HelpFinding] = []
        texts: list[AnswerText] = []
        for entry in entries:
            # The page of questions is found by each of its questions.
            if entry.file != QUESTIONS:
                texts.append(AnswerText(entry.title, entry.summary))
                self._findings.append(HelpFinding(entry.line, entry.file))
        for question in questions:
            texts.append(AnswerText(question.question, question.answer))
            asked = tr("How do I… {question}", question=question.question)
            line = f"{asked} {question.answer}"
            whole_question = (question.question.casefold(),)
            self._findings.append(HelpFinding(line, QUESTIONS, whole_question))
        self._matcher = QuestionMatcher(texts)

    def find_help_answers(self, query: str) -> list[HelpFinding]:
        """Returns the best answers, the best first. None for words that the help does not have."""
        positions = self._matcher.positions_of_answers(query, MOST_ANSWERS)
        return [self._findings[position] for position in positions]


@cache
def _read_help_answers(questions_file: Path, contents_file: Path) -> HelpAnswers:
    """Builds the answers once for each language: the files of another one are others."""
    entries = _parse_help_contents(contents_file.read_text("utf-8"))
    questions = _parse_help_questions(questions_file.read_text("utf-8"))
    return HelpAnswers(entries, questions)


def _list_pages_with_all_words(query: str) -> list["FoundHelpPage"]:
    """Returns pages with all words of the query. The line of each is its title and the sentence
    that has the words, or else what the page is about.

    Pages with the words in their title come first, then those with the words in what they are
    about, in a heading or as they were typed, in one sentence, and in their text alone. Among
    these, those whose sentence has the words as they were typed, then those with the most hits.
    """
    words = query.casefold().split()
    pages: list[FoundHelpPage] = []
    for entry in list_help_contents():
        text = _read_help_text(find_help_file(entry.file))
        found_page = _search_help_page(entry, text, words)
        if found_page is not None:
            pages.append(found_page)
    pages.sort(key=lambda page: page.hits, reverse=True)
    phrase = " ".join(words)
    pages.sort(key=lambda page: phrase not in page.passage.casefold())
    pages.sort(key=lambda page: page.rank)
    return pages


@dataclass(frozen=True, slots=True)
class FoundHelpPage:
    """`passage`: the sentence with the words, or nothing where no sentence has all of them."""

    entry: HelpEntry
    rank: int
    hits: int
    passage: str

    @property
    def line(self) -> str:
        if self.passage:
            return f"{self.entry.title}: {self.passage}"
        return self.entry.line


def _search_help_page(entry: HelpEntry, text: str, words: Sequence[str]) -> FoundHelpPage | None:
    if not _has_all_words(f"{entry.line} {text}", words):
        return None
    folded_text = text.casefold()
    hits = 0
    for word in words:
        hits += folded_text.count(word)
    passage = ""
    if words:
        passage = _find_sentence(text, words)
    rank = _rank_help_page(entry, text, words, passage)
    return FoundHelpPage(entry, rank, hits, passage)


def _rank_help_page(entry: HelpEntry, text: str, words: Sequence[str], passage: str) -> int:
    """Returns 0 for the pages that come first, and 4 for those that come last."""
    if _has_all_words(entry.title, words):
        return 0
    if _has_all_words(entry.line, words):
        return RANK_OF_SUMMARY
    if not passage:
        return 4
    if " ".join(words) in passage.casefold():
        return 2
    for line in text.splitlines():
        if line.startswith("#") and _has_all_words(line, words):
            return 2
    return 3


def _has_all_words(text: str, words: Sequence[str]) -> bool:
    folded_text = text.casefold()
    return all(word in folded_text for word in words)


def _find_sentence(text: str, words: Sequence[str]) -> str:
    """Returns the shortest sentence with all words, without the signs of Markdown."""
    shortest = ""
    # A name alone with a full stop, such as "Sandbox.", tells the reader nothing.
    least_length = len(" ".join(words)) + 2
    for sentence in _list_sentences(text):
        is_shortest = not shortest or len(sentence) < len(shortest)
        says_more = len(sentence) > least_length
        if says_more and is_shortest and _has_all_words(sentence, words):
            shortest = sentence.strip()
    return shortest


@cache
def _read_help_text(file: Path) -> str:
    """Reads a page once: it is searched at each key that is typed."""
    return file.read_text("utf-8")


@cache
def _list_sentences(text: str) -> tuple[str, ...]:
    """Returns the sentences of a page but for its headings, without the signs of Markdown."""
    sentences: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            sentences += _SENTENCE_END.split(_without_markdown(line))
    return tuple(sentences)


def _without_markdown(line: str) -> str:
    return _MARKDOWN_SIGNS.sub("", _MARKDOWN_LINK.sub(r"\1", line))
