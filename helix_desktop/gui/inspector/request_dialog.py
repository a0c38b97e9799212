"""A dialog that shows a request: as readable text and as the JSON its provider got."""

import json
from collections.abc import Mapping
from typing import Any

from PySide6.QtGui import QGuiApplication, QKeySequence, QShortcut
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.engine.messages import Image, Message, MessagePart, Request, Role, ToolResult
from helix_desktop.engine.strategies.all_strategies import STRATEGIES
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.escape_key import EscapeCloser
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.inspector.request_text_view import RequestTextView
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.transcript_pane import FindBar
from helix_desktop.gui.translation import format_count, tr, translate_name

# The first words of what the program itself wrote in place of older messages.
FOLD_TITLES = tuple(strategy.title for strategy in STRATEGIES.values())
# A model's name, and the body of the request that its provider receives.
ProviderBody = tuple[str, Mapping[str, Any]]


class RequestDialog(widgets.TransientDialog):
    """Shows a request as text and as the provider got it, to read, find in and copy. Its
    forms are built in a thread.
    """

    def __init__(
        self,
        theme: Theme,
        title: str,
        description: str,
        forms: Mapping[str, list[str]],
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(title, parent, 900, 640)
        self.view = RequestTextView(theme, self)
        self._forms = forms
        self.form = widgets.build_combo_box(tr("View as"), self)
        self.form.addItems(list(self._forms))
        self.form.currentTextChanged.connect(self._show_request_form)
        self.find_bar = FindBar(self, tr("Find in this request"))
        self.find_bar.hide()
        self._found_number = 0
        self._connect_find_bar()
        self._show_request_form(self.form.currentText())
        description_label = widgets.build_plain_label(description, "small", self)
        copy_button = widgets.build_push_button(tr("Copy"), self, self._copy_request)
        find_words = tr("Find")
        find_button = widgets.build_push_button(find_words, self, self.open_find_bar)
        find_button.setToolTip(f"{find_words} (Ctrl+F)")
        close_button = widgets.build_push_button(tr("Close"), self, self.reject)
        head = build_row((description_label, 1), self.form, find_button, copy_button)
        foot = build_row(1, close_button)
        build_column(head, self.find_bar, (self.view, 1), foot, owner=self)
        self.view.setFocus()

    def _connect_find_bar(self) -> None:
        shortcut = QShortcut(QKeySequence(QKeySequence.StandardKey.Find), self)
        shortcut.activated.connect(self.open_find_bar)
        self.find_bar.changed.connect(self._find_words)
        self.find_bar.stepped.connect(self._step_to_found_place)
        self.find_bar.closed.connect(self._close_find_bar)
        EscapeCloser(self, self.find_bar.isVisible, self._close_find_bar)

    def open_find_bar(self) -> None:
        self.find_bar.show()
        self.find_bar.field.setFocus()
        self.find_bar.field.selectAll()

    def _close_find_bar(self) -> None:
        self.find_bar.hide()
        self.view.find_in_text("")
        self.view.setFocus()

    def _find_words(self, words: str) -> None:
        self.view.find_in_text(words)
        self._show_found_place(0)

    def _step_to_found_place(self, steps: int) -> None:
        self._show_found_place(self._found_number + steps)

    def _show_found_place(self, number: int) -> None:
        count = len(self.view.found_places)
        self._found_number = 0
        if count:
            self._found_number = number % count  # After the last place comes the first again.
            self.view.show_found_place(self._found_number)
        self.find_bar.show_hit_count(self._found_number, count, done=True)

    def _show_request_form(self, form: str) -> None:
        self.view.show_request_text(self._forms[form])
        if self.find_bar.isVisible():
            self._find_words(self.find_bar.field.text())

    def _copy_request(self) -> None:
        text = self.view.selected_text() or "\n".join(self._forms[self.form.currentText()])
        QGuiApplication.clipboard().setText(text)


def describe_request(request: Request, *, as_sent: bool | None) -> str:
    """Describes the request's length and whether it was sent so. `as_sent`: None
    without a digest.
    """
    length = format_count(len(request.messages), "{n} message", "{n} messages")
    if as_sent is None:
        return f"{length} · {tr('not sent yet: goes out with your next message')}"
    if as_sent:
        return f"{length} · {tr('verified: exactly what was sent')}"
    reason = tr("not exactly what was sent: some content was removed or is damaged")
    return f"{length} · {reason}"


def build_request_forms(
    request: Request, provider_body: ProviderBody | None
) -> dict[str, list[str]]:
    """Returns the forms in which a request can be shown, by name, as lines."""
    forms = {tr("Readable"): format_request_as_text(request)}
    if provider_body is not None:
        model, body = provider_body
        body_text = json.dumps(body, indent=2, ensure_ascii=False)
        forms[tr("As sent to {model}", model=model)] = body_text.split("\n")
    return forms


def format_request_as_text(request: Request) -> list[str]:
    """Formats a whole request as text. A line before each message names its role."""
    texts = [f"── {tr('system')} ──", request.system]
    for number, message in enumerate(request.messages, 1):
        speaker = ""
        for part in message.parts:
            # A summary is sent in one message with what the user said next.
            speaker_of_part = _name_speaker(message, part)
            if speaker_of_part != speaker:
                speaker = speaker_of_part
                texts.append(f"── {number} · {speaker} ──")
            texts.append(_format_message_part(part))
        if number == request.stable:
            texts.append(f"── {tr('the provider may have cached everything up to here')} ──")
    if request.tools:
        texts.append(f"── {tr('tools')} ──")
        texts += [f"{tool.name}: {tool.description}\n{tool.schema}" for tool in request.tools]
    return "\n".join(texts).split("\n")  # A text may have several lines.


def _name_speaker(message: Message, part: MessagePart) -> str:
    """Who says a part. Summaries and outputs of tools are sent under the user's name."""
    role = message.role
    if role is Role.USER and isinstance(part, ToolResult):
        role = Role.TOOL
    if role is Role.USER and isinstance(part, Text) and part.text.startswith(FOLD_TITLES):
        return tr("Summary")
    return translate_name("message of a request", role.value, otherwise=role.value)


def _format_message_part(part: MessagePart) -> str:
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Reasoning):
        return f"[{tr('reasoning')}] {part.text}"
    if isinstance(part, ToolCall):
        return f"[{tr('call')} {part.id}] {part.name} {part.arguments}"
    if isinstance(part, ToolResult):
        head = f"{tr('result')} {part.call}"
        if not part.ok:
            head += f", {tr('failed')}"
        if part.images:
            head += f" + {format_count(len(part.images), '{n} picture', '{n} pictures')}"
        return f"[{head}]\n{part.text}"
    if isinstance(part, Image):
        return f"[{part.media_type}, {format_byte_size(len(part.data))}]"
    return str(part)
