from __future__ import annotations

import json
import re
import string
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from PySide6.QtCore import QLocale
from PySide6.QtWidgets import QLabel, QWidget

from helix_desktop import program_settings
from helix_desktop.engine.facts import FoldFailed, FoldKind, Recorded, ToolCall, TurnEnd, TurnEnded
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.errors import StoreBusy
from helix_desktop.gui import sentence_translation as saying
from helix_desktop.gui import translation
from helix_desktop.gui.chat.permission_card import PermissionQuestionCard
from helix_desktop.gui.frame.notices import Notices
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.mcp_server_card import describe_server_state
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from tests.gui import below, story
from tests.gui.fake_setup import listed_server

LANGUAGES = [name for name in program_settings.LANGUAGES if name != "en"]
NOT_SHOWN = {  # what the window shows nothing of
    "window_start.py", "cli.py", "acp_agent", "commands", "console.py", "mcp_server", "desktop", "gui", "running_instance.py",
    "engine/content_recall.py",  # a tool's answers, for the model
    "replay/stand_in_model.py",
    "phone_page",  # said on the page for phones
    "store/in_memory_stores.py",  # the same sentences as the journal and the cache
}  # fmt: skip
LEFT_OUT = {
    "A conversation must have an ID.",  # mistakes of the program itself
    "The start and the length of the part must both be 0 or greater.",
    "[It ended early: {}.",  # for the model that delegated
    "The system refused: {}",  # for the model whose call it was
    "The workspace in {} is open in another program (process ).",  # said only with a number
    *("Python", "Qt", "SQLite", "LevelDB"),
    "not all of them could be read and written",  # only together with a sentence that is there
    "the disk is full",
}
FILES_PUT_BACK = {
    "workspace_roots.py",
    "change_restoring.py",
    "private_git_copy.py",
    "git_runner.py",
}  # what is told after a rewind or an undo
PUT_TOGETHER = {
    "This copy was last used with a newer version of Helix Desktop, and only that version can bring it back.",
    "What describes this copy cannot be read.",  # both are first values of a copy, and then raised
    # in folds that earlier versions wrote
    "The text was written again, because {} of its sentences had no basis in these messages.",
    "keeping these messages has cost {} input tokens so far, and a handover document would cost {}",
    "observations take up {} of the context window",
    "unfolded history takes up {} of the context window",
    "an output of {} tokens",
    "an output of {} tokens, shortened at the agent's request",
    "{}: {} tokens, over {} of the context window",
    "replaced now, because another fold changes the context anyway",
    "the provider's cache has expired, and {} tokens are freed",
    "replacing outputs from #{} onward frees {} tokens and saves money",
    "Nothing was shortened: you stopped it",  # in the source, of several pieces
    "the output has {} tokens, and more than {} are shortened",
    "the output has {} tokens, and more than {} are shortened, in the way that the agent asked for",
    "this workspace asks before commands, and it can only be allowed once: {}",
    "this workspace asks before commands, and it can only be allowed once: a program in it may run what another one prints",
    "the output has {} tokens, more than the {} that are shown whole; the agent said what to keep",
    "the output has {} tokens, and the outputs of this step were too long together; the agent said what to keep",
    "the output has {} tokens, and the outputs of this step were too long together, in the way that the agent asked for",
    "it closed the connection.",
    "it sent a message of more than {} bytes.",
    "the connection was lost.",
    "what it sent does not follow the protocol ({}).",
    "Last output: {} Retrying in {} s.",
    "the text was too long",
    "{}, with the text in several parts: {}",
    "{}, with the text in one part: {}",
    "{}, using this conversation's context: {}",
    "{}, using its large context window: {}",
    "Something that {} writes is not read yet: {}. It is kept as it is. Its versions {} were seen.",
    "Something that {} writes is not read yet: {}. Its file stays as it is. Its versions {} were seen.",
    # what was left out of a history, behind its file's name
    "{}: the last line is cut off; everything before it was read.",
    "{}, line {}: {}; the line was left out.",
    "{}, line {}: the JSON is broken here; messages read before it: {}.",
    "{}, line {}: the JSON is broken here; the file was left out.",
    # in the window, but below `tr`
    "Drafts and the window's layout could not be read. Their file was kept as {}.",
}


def modules() -> Iterator[Path]:
    for file in sorted(below.PACKAGE.rglob("*.py")):
        module = file.relative_to(below.PACKAGE)
        if module.parts[0] not in NOT_SHOWN and module.as_posix() not in NOT_SHOWN:
            yield module


@cache
def gathered() -> dict[str, str]:
    """The sentences the window may show, and where. What a tool says is shown as the
    model got it.
    """
    found = {}
    for module in modules():
        tools = module.parts[0] == "tools" and module.name not in FILES_PUT_BACK
        found.update(dict.fromkeys(below.texts(module, with_errors=not tools), module.as_posix()))
    return {text: where for text, where in found.items() if text not in LEFT_OUT}


def table(language: str) -> dict[str, str]:
    return dict(json.loads(translation.sentences_file(language).read_text("utf-8")))


def bare(template: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", template)


def names_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.fixture
def chinese() -> Iterator[None]:
    translation.set_translations(
        json.loads(translation.translation_catalogue_path("zh_CN").read_text("utf-8")),
        table("zh_CN"),
    )
    yield
    translation.set_translations({})


@pytest.mark.usefixtures("no_garbage")
def test_what_is_said_below_the_window_is_in_the_table_of_each_language_and_nothing_else() -> None:
    """In one test: the workers of a run would each read the source, which takes ten seconds."""
    written = below.written() | set(gathered()) | PUT_TOGETHER
    for language in LANGUAGES:
        known = {bare(text) for text in table(language)}
        assert {text: where for text, where in gathered().items() if text not in known} == {}, (
            language
        )
        assert [
            text for text in table(language) if len(text) > 2 and bare(text) not in written
        ] == [], language


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_put_in_stays(language: str) -> None:
    assert {
        text: other for text, other in table(language).items() if names_in(text) != names_in(other)
    } == {}
    assert [text for text in table(language) if not bare(text).replace("{}", "").strip(" :.")] == []


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize(
    ("text", "other"),
    [
        (
            "The next message needs shortening first: 31,100 of 32,000 tokens (97%), 4,800 reserved for the reply and a summary.",
            "发送下一条消息之前需要先缩短：31,100 / 32,000 token（97%），为回复和摘要预留 4,800。",
        ),
        (
            "Outputs become one line each after 10 steps. A summary when the window is 80% full.",
            "输出在 10 步之后各缩短为一行。窗口占用 80% 时写摘要。",
        ),
        (
            "the next request would not fit: 3 parts, 9,000 tokens in total",
            "下一个请求将放不下：3 个部分，共 9,000 token",
        ),
        (
            "gpt, using this conversation's context: The model's reply was empty.; mini, with the text in one part: the text was too long",
            "gpt（利用自身上下文）：模型的回复为空。；mini（整篇）：文本过长",
        ),
        (
            "There is no key for handover. Run `helix-desktop provider add handover --key` to enter the key, or set K in the environment.",
            "handover 没有密钥。可在设置的“提供商”中填写，或运行 `helix-desktop provider add handover --key`，也可使用环境变量 K。",
        ),
        (
            "OpenAI says: Wrong {key}: it wants you to sign in. Set a new key for this provider.",
            "OpenAI 答复：Wrong {key}: it wants you to sign in. 请重新设置此提供商的密钥。",
        ),
        ("This workspace asks before commands", "此工作区在运行命令前询问"),
        ("It closed the connection. Retrying in 4 s.", "它关闭了连接。4 秒后重试。"),
        (
            "It did not respond within 30 seconds. Last output: listening on 1. Retrying in 4 s.",
            "它未在 30 秒内应答。它最后写道：listening on 1. 4 秒后重试。",
        ),
        ("Today has cost $2.10; the limit is $2.00.", "今天已花费 $2.10；上限为 $2.00。"),
        ("Edit src/a b.py", "修改 src/a b.py"),
        ("Read timed out.", "Read timed out."),
        (
            "Nobody has ever said that. Nothing was changed.",
            "Nobody has ever said that. 未作任何更改。",
        ),
        ("line one\n\nNothing was sent.\nline two", "line one\n\nNothing was sent.\nline two"),
    ],
)
def test_sentences_are_recognised_and_what_is_put_in_is_not_changed(text: str, other: str) -> None:
    assert translate_sentences(text) == other


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (
            "The next message needs shortening first: 31,100 of 32,000 tokens (97%), 4,800 reserved for the reply and a summary.",
            "Vor der nächsten Nachricht muss gekürzt werden: 31,100 von 32,000 Tokens (97%), 4,800 für die Antwort und eine Zusammenfassung reserviert.",
        ),
        (
            "Next: summary.",
            "Als Nächstes: Zusammenfassung.",
        ),
        (
            "Cannot rewind while the agent is working.",
            "Während der Agent arbeitet, ist das nicht möglich: Zurückspulen.",
        ),
        (
            "This workspace asks before anything is fetched from the web",
            "Dieser Arbeitsbereich fragt vor jedem Abruf",
        ),
        ("this workspace asks before changes", "dieser Arbeitsbereich fragt vor Änderungen"),
        (
            "Today has cost $2.10; the limit is $2.00.",
            "Heute: $2.10 ausgegeben; die Grenze ist $2.00.",
        ),
    ],
)
def test_a_phrase_begins_a_german_sentence_as_it_begins_an_english_one(
    text: str, other: str
) -> None:
    translation.set_translations({}, table("de"))
    try:
        assert translate_sentences(text) == other
    finally:
        translation.set_translations({})


def test_in_english_nothing_is_looked_at() -> None:
    assert translate_sentences("Nothing was changed.") == "Nothing was changed."


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize(
    "text",
    [
        "In a: " * 50_000,
        "Nothing was shortened: " * 20_000,
        ". " * 100_000,
        "Cannot " + "{fold} while " * 30_000,
        "A fold, is; being. made " * 20_000,
        "{} is {} has {}: {}" * 10_000,
        "",
        "{",
    ],
)
def test_long_and_hostile_texts_are_no_trouble(text: str) -> None:
    started = time.process_time()
    told = translate_sentences(text)
    assert time.process_time() - started < 1.0
    assert told.endswith(text[saying.LONGEST_TEXT :])


@pytest.mark.usefixtures("chinese")
def test_a_notice_says_an_error_in_the_language(theme: Theme) -> None:
    parent = QWidget()
    notices = Notices(theme, parent)
    notices.show_error_notice(
        StoreBusy(
            "ws is already open in this program.",
            remedy="Use the workspace in the window where it is open.",
        )
    )
    assert notices.shown_text == "ws 已在此程序中打开。请在已打开该工作区的窗口中使用它。"


@pytest.mark.usefixtures("chinese")
def test_a_question_is_asked_in_the_language_and_a_server_speaks_for_itself(theme: Theme) -> None:
    asked = PermissionQuestion(
        story.call(1, "write_file"), "Create a.py", "+a", "this workspace asks before changes"
    )
    parent = QWidget()
    card = PermissionQuestionCard(theme, asked, parent)
    assert [label.text() for label in card.findChildren(QLabel)][:2] == [
        "新建 a.py？",
        "此工作区在修改前询问",
    ]
    page = PermissionQuestion(
        ToolCall("", "x__elicitation", ""),
        "The server x has a question",
        "https://x",
        "Nothing was sent.",
        ("once",),
    )
    card = PermissionQuestionCard(theme, page, parent)
    assert [label.text() for label in card.findChildren(QLabel)][:2] == [
        "服务器 x 有一个问题",
        "Nothing was sent.",
    ]


@pytest.mark.usefixtures("chinese")
def test_ends_failures_and_servers_are_told_in_the_language() -> None:
    ended = TurnEnded(TurnEnd.SPENDING_LIMIT, "Today has cost $3.00; the limit is $2.00.")
    failed = FoldFailed(FoldKind.HANDOVER, "No model is available to write the summary.")
    items = TranscriptItems()
    items.add_many_facts([Recorded("c", 1, 0.0, ended), Recorded("c", 2, 0.0, failed)])
    assert [item.text for item in items.all] == [
        "已达到花费上限。今天已花费 $3.00；上限为 $2.00。",
        "摘要：没有可用来写摘要的模型。",
    ]
    server = listed_server("x", "x", "failed", "It closed the connection. Retrying in 5 s.")
    assert describe_server_state(server, now=0.0) == "失败 · 它关闭了连接。5 秒后重试。"


def test_numbers_of_a_sentence_are_grouped_as_in_the_language() -> None:
    before = QLocale()
    translation.set_translations({"{n}%": "{n} %"}, table("de"))
    try:
        QLocale.setDefault(QLocale("de"))
        spent = translate_sentences(
            "The agents in this conversation have cost $3.00; the limit is $1,250.50."
        )
        assert ("3,00" in spent, "1.250,50" in spent) == (True, True)
        told = translate_sentences(
            "The next message needs shortening first: 8,100 of 32,000 tokens (25.5%), 8,000 reserved for the reply and a summary."
        )
        assert (
            told
            == "Vor der nächsten Nachricht muss gekürzt werden: 8.100 von 32.000 Tokens (25,5 %), 8.000 für die Antwort und eine Zusammenfassung reserviert."
        )
    finally:
        QLocale.setDefault(before)
        translation.set_translations({})


def test_the_name_of_a_local_server_is_translated_within_a_sentence() -> None:
    translation.set_translations({}, table("de"))
    try:
        said = translate_sentences("Local server on port 8877 says: internal error.")
    finally:
        translation.set_translations({})
    assert said == "Lokaler Server auf Port 8877 meldet: internal error."
