"""The page's HTML. Every text is escaped; what is asked for permission goes through the one renderer."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from markdown_it import MarkdownIt

from helix_desktop.console import escape_control_characters
from helix_desktop.engine import facts
from helix_desktop.engine.hidden_characters import mark_on_one_line, mark_program, mark_text
from helix_desktop.engine.ports import AskedProgram, PermissionQuestion
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.errors import format_things
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.phone_page.paired_devices import PairedDevice
from helix_desktop.resources import read_json_resource
from helix_desktop.workspace_host.followed_conversation import FollowedConversation
from helix_desktop.workspace_host.host_interface import (
    HostListRow,
    new_command_id,
    question_fingerprint,
)

MOST_ENTRIES = 60
MOST_ROWS = 30
LONGEST_TEXT = 40_000  # Of a message or reply. All of it is in the window.
LONGEST_LIVE_TEXT = 8_000
# Markup in a reply is text, and what would be loaded from elsewhere is none: no HTML, no pictures.
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
_WHERE_COMMANDS_RUN = {
    "sandbox": "Runs in the sandbox, without network access.",
    "sandbox_network": "Runs in the sandbox, with network access.",
    "no_sandbox": "Runs without a sandbox, with network access.",
}
_ENDS = {
    facts.TurnEnd.STOPPED: "Stopped.",
    facts.TurnEnd.STEP_LIMIT: "The turn reached its limit of steps.",
}


@dataclass(frozen=True, slots=True)
class ConversationPlace:
    """Where forms of a conversation are sent, and who looks at it."""

    workspace: str
    workspace_name: str
    machine: str
    conversation: str
    device: PairedDevice

    @property
    def address(self) -> str:
        return f"{self.device.own_path}/w/{self.workspace}/c/{self.conversation}"


@dataclass(frozen=True, slots=True)
class ListedWorkspace:
    id: str
    name: str
    rows: Sequence[HostListRow] = ()
    is_open: bool = True


def escape_html(text: str) -> str:
    return html.escape(text, quote=True)


def escape_foreign_text(text: str) -> str:
    """Escape a name or a text of a model. What would turn the direction of the text around it is
    made visible. For what needs consent, the words are marked before.
    """
    return escape_html(escape_control_characters(text))


def build_page(title: str, body: str, *, events: str = "") -> str:
    """`events`: where the script hears of changes, or empty."""
    source = ""
    if events:
        source = f' data-events="{escape_html(events)}"'
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape_foreign_text(title)}</title>
<link rel="icon" href="/icon.svg"><link rel="stylesheet" href="/style.css"><script src="/page.js" defer></script>
</head><body{source}>{body}</body></html>"""


def build_pairing_page(problem: str = "") -> str:
    problem_html = ""
    if problem:
        problem_html = f'<p class="problem" role="alert">{escape_html(problem)}</p>'
    body = f"""<main class="narrow"><h1>Pair this device</h1>
<p>Enter the code that your computer shows: in Helix Desktop under Settings &gt; General &gt; Phone &gt; Pair a device…, or after the command <code>helix-desktop resident page pair</code>.</p>{problem_html}
<form method="post" action="/pair">
<label>Code <input name="code" autocomplete="off" autocapitalize="characters" required></label>
<label>Name of this device <input name="name" maxlength="60" required></label>
<button class="primary">Pair</button></form></main>"""
    return build_page("Pair this device", body)


def build_error_page(sentence: str, device: PairedDevice | None, typed_words: str = "") -> str:
    """`typed_words`: what the user sent, which is nowhere else now."""
    list_address = "/"
    if device is not None:
        list_address = f"{device.own_path}/"
    words = ""
    if typed_words:
        words = f'<label>Your words were not sent. Copy them, and try again: <textarea readonly rows="6">{escape_html(typed_words)}</textarea></label>'
    body = f'<main class="narrow"><p role="alert">{escape_html(sentence)}</p>{words}<p><a href="{list_address}">Back to the list</a></p></main>'
    return build_page("Helix Desktop", body)


# --- The list


def build_list_page(list_html: str, device: PairedDevice) -> str:
    note = ""
    if not device.may_allow:
        note = "<p>This device may only look.</p>"
    body = f'<main class="list"><h1>Helix Desktop</h1>{note}<div id="list">{list_html}</div></main>'
    return build_page("Helix Desktop", body, events=f"{device.own_path}/events")


def build_list(workspaces: Sequence[ListedWorkspace], device: PairedDevice) -> str:
    """Builds the list of conversations by what they do, and of the workspaces that are closed."""
    waiting: list[str] = []
    working: list[str] = []
    resting: list[tuple[float, str]] = []  # Each with the time of its last change.
    for workspace in workspaces:
        for listed in _list_own_conversations(workspace):
            item = _build_row(workspace, listed, device)
            if listed.running is ConversationActivity.ASKING:
                waiting.append(item)
            elif listed.running in (ConversationActivity.THINKING, ConversationActivity.TOOLS):
                working.append(item)
            else:
                resting.append((listed.row.updated, item))

    resting.sort(reverse=True)
    earlier = [item for _, item in resting[:MOST_ROWS]]
    parts = [
        _build_group("Needs you", waiting),
        _build_group("Working", working),
        _build_group("Earlier", earlier),
        _build_closed_workspaces(workspaces, device),
    ]
    return "".join(parts) or "<p>No workspace is open on the computer.</p>"


def _list_own_conversations(workspace: ListedWorkspace) -> list[HostListRow]:
    """Returns the conversations that the user began, without those put away."""
    own_conversations: list[HostListRow] = []
    for listed in workspace.rows:
        is_put_away = listed.row.trashed or listed.row.archived
        if not is_put_away and not listed.row.parent:
            own_conversations.append(listed)
    return own_conversations


def _build_group(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    return f"<h2>{title}</h2><ul>{''.join(items)}</ul>"


def _build_row(workspace: ListedWorkspace, listed: HostListRow, device: PairedDevice) -> str:
    """Builds a link to a conversation, with what it waits for or does now."""
    activity = ""
    if listed.running is ConversationActivity.ASKING:
        question = escape_html(mark_on_one_line(listed.why))
        activity = f'<span class="waits">{question}</span>'
    elif listed.running is not ConversationActivity.IDLE:
        running = escape_html(listed.running.value)
        activity = f"<span>{running}</span>"
    title = escape_foreign_text(listed.row.title or "New conversation")
    name = escape_foreign_text(workspace.name)
    workspace_id = escape_html(workspace.id)
    conversation_id = escape_html(listed.row.id)
    path = f"{device.own_path}/w/{workspace_id}/c/{conversation_id}"
    return f'<li><a href="{path}"><b>{title}</b><span>{name}</span>{activity}</a></li>'


def _build_closed_workspaces(workspaces: Sequence[ListedWorkspace], device: PairedDevice) -> str:
    items: list[str] = []
    for workspace in workspaces:
        if workspace.is_open:
            continue
        button = ""
        if device.may_allow:
            button = _build_page_form(
                f"{device.own_path}/w/{workspace.id}/open",
                device,
                "<button>Open</button>",
                css="inline",
            )
        items.append(f"<li><div><b>{escape_foreign_text(workspace.name)}</b>{button}</div></li>")
    return _build_group("Workspaces that are not open", items)


# --- A conversation


def build_conversation_page(place: ConversationPlace, shown: FollowedConversation) -> str:
    entries = "".join(entry.html for entry in build_page_entries(shown))
    composer = ""
    if place.device.may_allow:
        box = '<textarea name="text" rows="1" placeholder="Say what to do…" aria-label="Message" required></textarea>'
        button = '<button class="send" aria-label="Send">↑</button>'
        # A form that a browser sends twice, because the line broke, is one message.
        command_id = f'<input type="hidden" name="id" value="{new_command_id()}">'
        composer = _build_page_form(
            f"{place.address}/send", place.device, command_id + box + button, css="composer"
        )
    body = f"""<header id="head">{build_head(place, shown)}</header>
<main><div id="entries">{entries}</div><div id="live" aria-live="polite">{build_live(shown)}</div>
<div id="questions">{build_questions(place, shown)}</div></main>
<footer>{composer}</footer>"""
    title = shown.state.title or "Conversation"
    return build_page(title, body, events=f"{place.address}/events")


def build_head(place: ConversationPlace, shown: FollowedConversation) -> str:
    stop = ""
    is_working = shown.running not in (ConversationActivity.IDLE, ConversationActivity.FAILED)
    if is_working and place.device.may_allow:
        button = '<button class="stop">Stop</button>'
        stop = _build_page_form(f"{place.address}/stop", place.device, button, css="inline")
    title = escape_foreign_text(shown.state.title or "New conversation")
    where = escape_foreign_text(f"{place.workspace_name} · on {place.machine}")
    return f'<a class="back" href="{place.device.own_path}/" aria-label="Back to the list">‹</a><div><h1>{title}</h1><p>{where}</p></div>{stop}'


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A message, or a step with its calls. `id` is its element's, which stays when it changes."""

    id: str
    html: str


@dataclass(slots=True)
class _Step:
    """A reply with the calls that it made."""

    seq: int
    model: str
    text: str
    calls: int
    failed_calls: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class _Entries:
    """Steps are collected before they are drawn, as results of calls follow their reply."""

    done: list[PageEntry] = field(default_factory=list)
    step: _Step | None = None

    def finish_step(self) -> None:
        if self.step is not None:
            self.done.append(_build_step(self.step))
            self.step = None


def build_page_entries(shown: FollowedConversation) -> Sequence[PageEntry]:
    """Returns the last entries of the conversation, oldest first."""
    entries = _Entries()
    for recorded in shown.state.facts_on_path():
        _add_fact_to_entries(entries, recorded)
    entries.finish_step()
    return entries.done[-MOST_ENTRIES:]


def _add_fact_to_entries(entries: _Entries, recorded: facts.Recorded) -> None:
    fact = recorded.fact
    if isinstance(fact, facts.UserSaid) and not fact.by:
        message = _build_message(recorded.seq, fact)
        entries.finish_step()
        entries.done.append(message)
    elif isinstance(fact, facts.ModelReplied):
        entries.finish_step()
        entries.step = _begin_step(recorded.seq, fact)
    elif isinstance(fact, facts.ToolReturned) and entries.step is not None:
        entries.step.seconds += fact.seconds
        if not fact.ok:
            entries.step.failed_calls += 1
    elif isinstance(fact, facts.TurnEnded) and fact.reason is not facts.TurnEnd.DONE:
        note = _build_note_of_early_end(recorded.seq, fact)
        entries.finish_step()
        entries.done.append(note)


def _build_note_of_early_end(seq: int, end: facts.TurnEnded) -> PageEntry:
    identity = f"e{seq}"
    sentence = end.why or _ENDS.get(end.reason, "The turn ended early.")
    text = escape_html(mark_on_one_line(sentence))
    return PageEntry(identity, f'<p class="note" id="{identity}">{text}</p>')


def _begin_step(seq: int, reply: facts.ModelReplied) -> _Step:
    texts: list[str] = []
    calls = 0
    for part in reply.parts:
        if isinstance(part, facts.Text):
            texts.append(part.text)
        elif isinstance(part, facts.ToolCall):
            calls += 1
    return _Step(seq, reply.model, "\n\n".join(texts), calls)


def _build_message(seq: int, said: facts.UserSaid) -> PageEntry:
    texts: list[str] = []
    for part in said.parts:
        if isinstance(part, facts.Text):
            texts.append(part.text)
        else:
            texts.append(f"[{part.name}]")
    identity = f"e{seq}"
    marked_text = mark_text("\n".join(texts))
    shown_text = escape_html(_cut(marked_text))
    return PageEntry(identity, f'<article class="user" id="{identity}">{shown_text}</article>')


def _build_step(step: _Step) -> PageEntry:
    identity = f"e{step.seq}"
    parts = [f'<article class="reply" id="{identity}">']
    if step.text:
        text = _MARKDOWN.render(escape_control_characters(_cut(step.text)))
        parts.append(f'<h3>{escape_foreign_text(step.model)}</h3><div class="text">{text}</div>')
    if step.calls:
        calls = format_things(step.calls, "call", "calls")
        line = f"› {calls}, {step.seconds:.0f} s"
        if step.failed_calls:
            line += f", {step.failed_calls} failed"
        parts.append(f'<p class="calls">{line}</p>')
    parts.append("</article>")
    return PageEntry(identity, "".join(parts))


def _cut(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    left_out = len(text) - LONGEST_TEXT
    return f"{text[:LONGEST_TEXT]}\n… {left_out:,} more characters are in the window."


def build_live(shown: FollowedConversation) -> str:
    """What changes while the agent works: the text that is being written, and what waits."""
    parts: list[str] = []
    if shown.reply_text:
        text = escape_foreign_text(shown.reply_text[-LONGEST_LIVE_TEXT:])
        parts.append(f'<article class="reply"><div>{text}</div></article>')
    if shown.running is ConversationActivity.FAILED:
        reason = escape_html(mark_on_one_line(shown.why))
        parts.append(f'<p class="problem">{reason}</p>')
    elif shown.running not in (ConversationActivity.IDLE, ConversationActivity.ASKING):
        activity = shown.describe_wait() or f"{shown.running.value}…"
        parts.append(f'<p class="calls">{escape_html(activity)}</p>')
    if shown.queued is not None and shown.queued.messages:
        count = len(shown.queued.messages)
        waiting = format_things(count, "message waits", "messages wait")
        parts.append(f'<p class="calls">{waiting} for the end of the turn.</p>')
    return "".join(parts)


def build_questions(place: ConversationPlace, shown: FollowedConversation) -> str:
    cards: list[str] = []
    for number, question in shown.questions.items():
        cards.append(_build_phone_card(place, number, question))
    return "".join(cards)


def _build_phone_card(place: ConversationPlace, number: int, question: PermissionQuestion) -> str:
    """Shows every word of the question. The buttons stand below all of it."""
    title = escape_html(mark_on_one_line(question.title))
    parts = [f'<section class="ask"><h2>{title}</h2>']
    if question.by:
        task = escape_html(mark_text(question.by))
        parts.append(f"<p>Asked by a sub-agent working on: {task}</p>")
    if question.why:
        reason = escape_html(mark_text(question.why_as_sentence))
        parts.append(f"<p>{reason}</p>")
    if question.preview:
        preview = escape_html(mark_text(question.preview, question.program_names))
        parts.append(f"<pre>{preview}</pre>")
    if question.command_access in _WHERE_COMMANDS_RUN:
        parts.append(f"<p>{_WHERE_COMMANDS_RUN[question.command_access]}</p>")
    for program in question.programs:
        parts.append(_build_line_about_risk(program))
        parts.append(_build_line_about_program(program.name, "deletes", program.deletes))
        parts.append(_build_line_about_program(program.name, "writes", program.writes))
    if place.device.may_allow:
        parts.append(_build_answer_form(place, number, question))
    else:
        parts.append("<p>This device may only look. Answer on the computer.</p>")
    parts.append("</section>")
    return "".join(parts)


def _build_line_about_risk(program: AskedProgram) -> str:
    """Says what to notice about a program's use. Empty if there is nothing."""
    if not program.risk:
        return ""
    risk = read_json_resource("shown_names.json")["risk of a program"][program.risk]
    line = f"{mark_program(program.name)} {risk}"
    return f'<p class="waits">{escape_html(line)}</p>'


def _build_line_about_program(name: str, verb: str, files: Sequence[str]) -> str:
    """Says which files a program of the command changes. Empty if there are none."""
    if not files:
        return ""
    file_names = ", ".join(mark_on_one_line(file) for file in files)
    line = f"{mark_program(name)} {verb} {file_names}"
    return f'<p class="waits">{escape_html(line)}</p>'


def _build_answer_form(place: ConversationPlace, number: int, question: PermissionQuestion) -> str:
    fingerprint = question_fingerprint(question)
    hidden = f'<input type="hidden" name="number" value="{number}"><input type="hidden" name="fingerprint" value="{fingerprint}">'
    deny = '<button name="answer" value="deny">Deny</button>'
    words = '<input name="words" placeholder="Say what to do instead…" aria-label="Say what to do instead" maxlength="4000">'
    if is_answerable_on_page(question):
        allow = '<button class="primary" name="answer" value="allow">Allow once</button>'
        # Enter in the text field presses the first button, which must never be the one that allows.
        buttons = f'<div class="answers">{deny}{allow}</div>'
    else:
        note = "<p>This can be allowed on the computer only.</p>"
        buttons = f'{note}<div class="answers">{deny}</div>'
    return _build_page_form(f"{place.address}/answer", place.device, hidden + buttons + words)


def is_answerable_on_page(question: PermissionQuestion) -> bool:
    """Whether it is allowed or not, once. Forms, plans and wider answers belong to the window."""
    return "once" in question.scopes and not question.form and not question.plan


def _build_page_form(action: str, device: PairedDevice, content: str, *, css: str = "") -> str:
    token = f'<input type="hidden" name="token" value="{device.form_token}">'
    return (
        f'<form method="post" action="{escape_html(action)}" class="{css}">{token}{content}</form>'
    )


def build_changed_parts(
    place: ConversationPlace, shown: FollowedConversation, sent: dict[str, str]
) -> Mapping[str, Any]:
    """Returns the parts that differ from what a device was sent, and remembers them in `sent`."""
    parts = {
        "head": build_head(place, shown),
        "live": build_live(shown),
        "questions": build_questions(place, shown),
    }
    changed: dict[str, Any] = {}
    for name, content in parts.items():
        if sent.get(name) != content:
            changed[name] = content

    ids: list[str] = []
    changed_entries: list[tuple[str, str]] = []
    for entry in build_page_entries(shown):
        ids.append(entry.id)
        if sent.get(entry.id) != entry.html:
            changed_entries.append((entry.id, entry.html))
    # The order says which entries have gone, such as those behind a rewind.
    order = " ".join(ids)
    if changed_entries or sent.get("order") != order:
        changed["entries"] = changed_entries
        changed["order"] = ids

    sent.update(parts)
    sent.update(changed_entries)
    sent["order"] = order
    return changed
