"""From the composer to the conversation: sending, recalling into a message, what `@` and `/` offer, the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FoldKind, Text, UserPart, UserSaid
from helix_desktop.engine.ports import Found, Hit
from helix_desktop.errors import HelixError
from helix_desktop.gui import finding
from helix_desktop.gui.chat.completion import Asked, Offer
from helix_desktop.gui.chat.composer import Composer
from helix_desktop.gui.chat.drafts import DraftPlace, UnsentMessage
from helix_desktop.gui.frame.notices import Notices
from helix_desktop.gui.frame.palette import Find
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.ports import Session, Workbench, WorkspaceRow
from helix_desktop.gui.questions import ask_which
from helix_desktop.gui.shared.figures import money
from helix_desktop.gui.words import tr
from helix_desktop.settings import ASK_ABOVE

NotSent = Callable[[HelixError | None], None]


def send(window: MainWindow, parts: tuple[UserPart, ...], steer: bool) -> None:  # noqa: FBT001 - a slot
    """Say something in the open conversation, or begin one with it. Words that cannot be sent stay."""
    bench = window.bench
    if window.awaited:
        window.hold_message(UnsentMessage(parts, steer))
    elif bench is None:
        window.chat.composer.take(parts)
    elif not bench.model:
        window.chat.composer.take(parts)
        window.setup_wanted.emit()
    elif window.session is not None and _is_command(bench, parts):
        not_sent = given_back(window.chat.composer, window.notices, parts)
        _expand(window, bench, window.session, parts, not_sent)
    elif window.session is not None:
        _say(window, window.session, parts, given_back(window.chat.composer, window.notices, parts), steer=steer)
    else:
        _begin(window, bench, parts)


def _begin(window: MainWindow, bench: Workbench, parts: tuple[UserPart, ...]) -> None:
    """A conversation; none where its first message costs too much for the user."""
    give_back = given_back(window.chat.composer, window.notices, parts)
    waits = window.awaited = f"new {id(parts)}"

    def not_sent(error: HelixError | None) -> None:
        if window.awaited == waits:
            window.awaited = ""
            window.chat.composer.show_queue([])
        give_back(error)
        for message in window.unsent.take((bench.id, "new")):
            window.chat.composer.hold((bench.id, "new"), message.parts)

    def begin() -> None:
        begun = partial(_begun, window, bench, parts, waits)
        window.doing.do(bench.new_conversation(), name="begin a conversation", then=begun, failed=not_sent)

    def ask(unbegun: Session) -> None:
        ask_first(window, unbegun.price_with(parts), begin, lambda: not_sent(None))

    if window.settings[ASK_ABOVE]:
        window.doing.do(bench.unbegun(), name="price a first message", then=ask, failed=not_sent)
    else:
        begin()


def _begun(window: MainWindow, bench: Workbench, parts: tuple[UserPart, ...], waits: str, session: Session) -> None:
    """It is said in any case; shown, unless the user has opened something else meanwhile."""
    unsent = window.unsent.take((bench.id, "new"))
    if window.awaited == waits:
        window.chat.composer.name_new(session.id)
        window.show_session_of(bench, session)
    if _is_command(bench, parts):
        _expand(window, bench, session, parts, partial(_unsaid, window, bench, session, parts))
    else:
        _send(window, session, parts, given_back(window.chat.composer, window.notices, parts))
    window.refresh_conversations()
    send_held(window, bench, session, unsent)


def send_held(window: MainWindow, bench: Workbench, session: Session, messages: Sequence[UnsentMessage]) -> None:
    """Send what was written while the conversation was being opened, where it was written."""
    place = (bench.id, session.id)
    for message in messages:
        not_sent = given_back(window.chat.composer, window.notices, message.parts, place)
        if not bench.model:
            window.chat.composer.hold(place, message.parts)
            window.setup_wanted.emit()
        elif message.edited:
            resend(window, session, message.edited, message.parts, not_sent)
        elif _is_command(bench, message.parts):
            _expand(window, bench, session, message.parts, not_sent)
        else:
            _say(window, session, message.parts, not_sent, steer=message.is_steering)


def resend(window: MainWindow, session: Session, seq: int, parts: tuple[UserPart, ...], not_sent: NotSent) -> None:
    """Send an earlier message again as it was changed; what came after it is rewound."""

    def send_again() -> None:
        work, follow = session.edit_and_resend(seq, parts), window.pages.follow
        window.doing.do(work, name="edit and resend", then=lambda _done: follow(), owner=window, failed=not_sent)

    ask_first(window, session.price_with(parts, instead_of=seq), send_again, lambda: not_sent(None))


def _unsaid(
    window: MainWindow, bench: Workbench, session: Session, parts: tuple[UserPart, ...], error: HelixError | None
) -> None:
    """A command that was to be the first message was not sent: the conversation begun for it goes to the trash, unless something
    else was said there meanwhile, and the command is where it was written.
    """

    def back() -> None:
        if not begun:
            window.chat.composer.drafts.move((bench.id, session.id), (bench.id, "new"))
        window.refresh_conversations()
        window.chat.composer.hold((bench.id, session.id if begun else "new"), parts)
        if error is not None:
            window.notices.tell_error(error)

    begun = session.queue or any(isinstance(each.fact, UserSaid) for each in session.conversation.state.facts)
    if begun:
        back()
    else:
        window.doing.do(session.trash(), name="drop an empty conversation", then=lambda _done: back(), owner=window)


def _is_command(bench: Workbench, parts: tuple[UserPart, ...]) -> bool:
    """Whether it begins with a slash and the name of a command or a skill of the folders."""
    first = parts[0] if parts else None
    name = first.text[1:].split(maxsplit=1)[:1] if isinstance(first, Text) and first.text.startswith("/") else []
    return bool(name) and any(item.name == name[0] for item in bench.commands())


def _expand(
    window: MainWindow, bench: Workbench, session: Session, parts: tuple[UserPart, ...], not_sent: NotSent
) -> None:
    def say(whole: tuple[UserPart, ...]) -> None:
        _say(window, session, whole, not_sent)

    window.doing.do(bench.expanded(session, parts), name="fill in a command", then=say, failed=not_sent)


def _send(
    window: MainWindow, session: Session, parts: tuple[UserPart, ...], not_sent: NotSent, *, steer: bool = False
) -> None:
    try:
        session.send(parts, steer=steer)
    except HelixError as error:
        not_sent(error)
    window.pages.follow()


def _say(
    window: MainWindow, session: Session, parts: tuple[UserPart, ...], not_sent: NotSent, *, steer: bool = False
) -> None:
    say = partial(_send, window, session, parts, not_sent, steer=steer)

    def fold_and_say() -> None:
        window.doing.do(
            session.fold_now(FoldKind.MARKER),
            name="fold first",
            then=lambda _done: say(),
            owner=window,
            failed=not_sent,
        )

    saves = session.fold_first()
    folding = (saves, fold_and_say) if saves else None
    ask_first(window, session.price_with(parts), say, lambda: not_sent(None), folding=folding)


def ask_first(
    window: MainWindow,
    price: float,
    say: Callable[[], object],
    not_wanted: Callable[[], object],
    *,
    folding: tuple[float, Callable[[], object]] | None = None,
) -> None:
    """Say it; asked first where it costs more than the user wants to pay without being asked. `folding`: what that saves, and how."""
    most = window.settings[ASK_ABOVE] / 100
    if not most or price <= most:
        say()
        return
    words = tr(
        "This message would cost about {price}, more than the {limit} you set. Nothing has been sent.",
        price=money(price), limit=money(most),
    )  # fmt: skip
    ways = [(tr("Send"), say)]
    if folding:
        saves, fold_and_say = folding
        words = f"{words} {tr('Folding old outputs first saves about {saved}.', saved=money(saves))}"
        ways.insert(0, (tr("Fold first, then send"), fold_and_say))
    ask_which(window, tr("Send this message?"), words, "", ways).rejected.connect(not_wanted)


def given_back(
    composer: Composer, notices: Notices, parts: tuple[UserPart, ...], at: DraftPlace | None = None
) -> NotSent:
    """For what was not said: the words are where they were written, and an error is shown."""
    place = at or composer.place

    def give_back(error: HelixError | None) -> None:
        composer.hold(place, parts)
        if error is not None:
            notices.tell_error(error)

    return give_back


def recall(window: MainWindow, digest: Digest, lines: tuple[int, int] | None = None) -> None:
    """Put an entry, or lines of it, into the next message."""
    if window.session is not None:
        work = window.session.recall(digest, lines=lines)
        window.doing.do(work, name="recall", then=window.attacher(), owner=window)
    elif window.bench is not None:
        window.notices.tell(tr("Open a conversation first. The entry is added to its next message."))


def search(window: MainWindow, words: str) -> None:
    """Ask all workspaces for what the box that finds everything is looking for: first those that are open, the one in front before
    the others, then the closed ones, one after the other.
    """
    shown: list[Find] = []
    opened = window.open_workspaces()
    closed = [row for row in window.workspaces() if all(row.id != bench.id for bench in opened)]

    def show(finds: Sequence[Find]) -> None:
        shown.extend(finds)
        shown.sort(key=lambda find: find.kind == "folder")  # what was not searched comes last
        window.palette_.show_found(words, shown, more=bool(closed))

    def found(bench: Workbench, hits: Sequence[Hit]) -> None:
        name = "" if bench is window.bench else bench.name
        titles = {row.id: row.title for row in bench.conversations()}
        show(finding.of_hits(hits, titles, bench.id, window.go, name))

    for bench in opened:
        work = bench.workspace.index.search(words)
        window.doing.do(work, name="search everything", then=partial(found, bench), owner=window)
    _search_closed(window, words, closed, show)


def _search_closed(
    window: MainWindow, words: str, closed: list[WorkspaceRow], show: Callable[[Sequence[Find]], None]
) -> None:
    """The next of them, as long as somebody waits for it."""
    if not closed or not window.palette_.awaits(words):
        return
    row = closed[0]

    def go_on(finds: Sequence[Find]) -> None:
        closed.pop(0)
        show(finds)
        _search_closed(window, words, closed, show)

    def found(answer: Found) -> None:
        behind = [finding.not_searched(row, None, window.go)] if answer.behind else []
        go_on([*finding.of_hits(answer.hits, answer.titles, row.id, window.go, row.name), *behind])

    window.doing.do(
        window.desk.search_closed(row.id, words),
        name="search a closed workspace",
        then=found,
        owner=window,
        failed=lambda error: go_on([finding.not_searched(row, error, window.go)]),
    )


def offer(window: MainWindow, typed: Asked) -> None:
    """Answer what is typed behind `@` or `/`."""
    composer = window.chat.composer
    if typed.sign == "/":
        named = window.bench.commands() if window.bench is not None else ()
        composer.offer(typed, finding.commands(window.actions_, typed, named))
    elif window.bench is not None:
        work = finding.mentions(window.bench, typed)
        window.doing.do(work, name="look for mentions", then=lambda found: composer.offer(typed, found), owner=window)


def take(window: MainWindow, offered: Offer) -> None:
    """What was taken is more than text: an entry to recall, a command to run."""
    if isinstance(offered.value, Digest):
        recall(window, offered.value)
    elif isinstance(offered.value, finding.Resource) and window.bench is not None:
        work = window.bench.attach_resource(offered.value.server, offered.value.uri)
        window.doing.do(work, name="attach a resource", then=window.attacher(), owner=window)
    else:
        finding.run(offered)
