"""What a person asked for in the chat, in the timeline or beside it, done."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from helix_desktop.engine.facts import UserSaid
from helix_desktop.gui import pictures, sending
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.links import Place, open_link
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.ports import Session
from helix_desktop.gui.questions import ask_which
from helix_desktop.gui.transcript import intents
from helix_desktop.gui.words import numeral, tr

MOST_LINES = 8  # of what a rewind did to files


def do(window: MainWindow, want: intents.Want) -> None:
    """One of the values of `transcript/intents.py`."""
    bench, session = window.bench, window.session
    workspace = bench.id if bench else ""
    match want:
        case intents.Recall(digest, lines):
            sending.recall(window, digest, lines)
        case intents.OpenEntry(digest):
            window.go(Place("entry", workspace, digest=digest))
        case intents.OpenFold(fold):
            window.go(Place("fold", workspace, session.id if session else "", fold=fold))
        case intents.OpenChanges(seq, path):
            window.show_page("changes")
            window.pages.changes.show_turn(seq, path)
        case intents.OpenConversation(conversation):
            window.go(Place("conversation", workspace, conversation))
        case intents.OpenSubAgent(call):
            _open_sub_agent(window, call)
        case intents.ShowInChat(conversation, seq):
            window.go(Place("conversation", workspace, conversation, seq))
        case intents.OpenLink() | intents.OpenPicture() | intents.SetKey() | intents.ChooseModel():
            _open_beside(window, want)
        case _:
            _in_conversation(window, want)


def _open_beside(
    window: MainWindow, want: intents.OpenLink | intents.OpenPicture | intents.SetKey | intents.ChooseModel
) -> None:
    """What opens a window or a list of its own."""
    match want:
        case intents.OpenLink(address):
            open_link(address)
        case intents.OpenPicture(stored, name):
            pictures.open_(window.bench, window.doing, stored, name, window)
        case intents.SetKey():
            window.settings_wanted.emit("providers")
        case intents.ChooseModel():
            window.actions_["model"].trigger()


def _open_sub_agent(window: MainWindow, call: str) -> None:
    """The newest that this call of the open conversation has begun: some models number their calls anew in every reply."""
    session, bench = window.session, window.bench
    if session is None or bench is None:
        return
    begun = [row for row in window.rows() if (row.parent, row.parent_call) == (session.id, call)]
    if begun:
        window.go(Place("conversation", bench.id, max(begun, key=lambda row: row.updated).id))
    else:
        window.notices.tell(tr("The sub-agent hasn't started yet."))


def _in_conversation(window: MainWindow, want: intents.Want) -> None:
    session, run = window.session, partial(window.doing.do, owner=window)
    if session is None:
        return
    match want:
        case intents.Edit(seq):
            _edit(window, session, seq)
        case intents.Regenerate(seq):
            run(session.regenerate(seq), name="regenerate", then=lambda _done: window.pages.follow())
        case intents.ChooseAnswer(end):
            run(session.choose_answer(end), name="choose another answer")
        case intents.Pin(ref):
            run(session.pin(ref), name="pin")
        case intents.Unpin(ref):
            run(session.unpin(ref), name="unpin")
        case _:
            _elsewhere(window, session, want)


def _elsewhere(window: MainWindow, session: Session, want: intents.Want) -> None:
    """What is about the conversation and asks, shows or opens something."""
    match want:
        case intents.GoOn():
            window.trying_again.emit()
            session.resume()
        case intents.TryNow():
            session.try_now()
        case intents.ShowRequest(seq):
            window.pages.inspector.show_request_of(seq)
        case intents.Rewind(seq):
            _rewind(window, session, seq)
        case intents.Fork(seq):
            row = window.row()
            if window.bench is not None and row is not None:
                window.acts.fork(window.bench, row, seq)


def _edit(window: MainWindow, session: Session, seq: int) -> None:
    fact = session.conversation.state.facts[seq - 1].fact
    if isinstance(fact, UserSaid):
        window.chat.composer.edit(seq, fact.parts)


def _rewind(window: MainWindow, session: Session, seq: int) -> None:
    """Of the conversation it was asked for, whichever is in front when the question is answered."""

    def rewind(*, restore: bool) -> None:
        window.doing.do(session.rewind(seq, restore_files=restore), name="rewind", then=told, owner=window)

    def told(lines: Sequence[str]) -> None:
        rest = [tr("and {n} more", n=numeral(len(lines) - MOST_LINES))] if len(lines) > MOST_LINES else []
        window.notices.tell("\n".join([tr("Conversation rewound."), *map(said, lines[:MOST_LINES]), *rest]))

    text = tr("Rewind to this point? Later messages stay in the journal, and you can return to them.")
    ways = [
        (tr("Rewind"), partial(rewind, restore=False)),
        (tr("Rewind and restore files"), partial(rewind, restore=True)),
    ]
    ask_which(window, tr("Rewind"), text, "", ways)
