"""What a paired phone sees and does."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest

from helix_desktop.engine import facts
from helix_desktop.engine.facts import Decided, Text, TurnEnd, TurnEnded, UserSaid
from helix_desktop.engine.session import Session
from helix_desktop.phone_page import page_rendering
from helix_desktop.phone_page.open_hosts import OpenHosts
from helix_desktop.phone_page.paired_devices import PairedDevices
from helix_desktop.workbench import Workbench
from helix_desktop.workspace_host.followed_conversation import FollowedConversation
from helix_desktop.workspace_host.host_interface import FactsAdded, question_fingerprint
from tests.phone_page.conftest import Phone, hidden_fields, pair

LIMIT = 60


async def asking(session: Session, words: str = "write b.txt: text") -> None:
    session.send_message((Text(words),))
    async with asyncio.timeout(LIMIT):
        while not session.questions:
            await asyncio.sleep(0)


async def page_with(phone: Phone, path: str, words: str) -> str:
    """The page as soon as it has these words."""
    async with asyncio.timeout(LIMIT):
        while True:
            page = (await phone.get(path)).text
            if words in page:
                return page
            await asyncio.sleep(0.01)


async def test_the_list_says_what_waits_and_what_works(
    phone: Phone, bench: Workbench, hosts: OpenHosts
) -> None:
    session = await bench.start_conversation("Extract the lock manager")
    await bench.start_conversation("Another one")
    await asking(session)
    page = await page_with(phone, "/", "Needs you")
    assert "Extract the lock manager" in page
    assert "Create b.txt" in page
    assert page.index("Extract the lock manager") < page.index("Earlier")
    assert page.index("Earlier") < page.index("Another one")
    session.stop_turn()
    await session.wait_until_idle()
    await hosts.connect_to_open_workspaces()


async def test_the_exact_words_are_shown_and_allowed_once_in_the_devices_name(
    phone: Phone, bench: Workbench, folder: Path
) -> None:
    session = await bench.start_conversation("Work")
    await asking(session, "write b.txt: te\u202ext <b>bold</b>")
    path = f"/w/{bench.id}/c/{session.id}"
    page = await page_with(phone, path, "Allow once")
    assert "te⟨202E⟩xt &lt;b&gt;bold&lt;/b&gt;" in page
    assert "\u202e" not in page
    assert "Always" not in page
    answered = await phone.post(f"{path}/answer", answer="allow", **hidden_fields(page))
    assert answered.status_code == 303
    await asyncio.wait_for(session.wait_until_idle(), LIMIT)
    assert "bold" in (folder / "b.txt").read_text()
    told = [recorded.fact for recorded in session.all_facts]
    decided = [fact for fact in told if isinstance(fact, Decided) and fact.by == "user"]
    assert [(each.allowed, each.scope, each.device) for each in decided] == [
        (True, "once", "Ada's phone")
    ]
    assert bench.kit.permissions.rules == ()
    assert not bench.kit.permissions.rules_by_conversation
    # The same form a second time, as when a page is sent again.
    again = await phone.post(f"{path}/answer", answer="allow", **hidden_fields(page))
    assert again.status_code == 409


async def test_enter_in_the_field_for_words_never_allows(phone: Phone, bench: Workbench) -> None:
    """A browser presses the first button of the form for it, which was "Allow once"."""
    session = await bench.start_conversation("Work")
    await asking(session)
    page = await page_with(phone, f"/w/{bench.id}/c/{session.id}", "Allow once")
    (form,) = re.findall(r'<form [^>]*/answer".*?</form>', page, re.DOTALL)
    buttons = re.findall(r'<button [^>]*value="(\w+)"', form)
    assert buttons == ["deny", "allow"]
    session.stop_turn()
    await asyncio.wait_for(session.wait_until_idle(), LIMIT)


async def test_deny_with_words_reaches_the_agent(
    phone: Phone, bench: Workbench, folder: Path
) -> None:
    session = await bench.start_conversation("Work")
    await asking(session)
    path = f"/w/{bench.id}/c/{session.id}"
    page = await page_with(phone, path, "Allow once")
    both = await phone.post(
        f"{path}/answer", answer="allow", words="use another name", **hidden_fields(page)
    )
    assert both.status_code == 409
    assert "Nothing was allowed" in both.text
    await phone.post(
        f"{path}/answer", answer="deny", words="use another name", **hidden_fields(page)
    )
    await asyncio.wait_for(session.wait_until_idle(), LIMIT)
    assert not (folder / "b.txt").exists()
    assert any("use another name" in getattr(each.fact, "head", "") for each in session.all_facts)


async def test_a_form_for_other_words_allows_nothing(
    phone: Phone, bench: Workbench, folder: Path
) -> None:
    session = await bench.start_conversation("Work")
    await asking(session)
    path = f"/w/{bench.id}/c/{session.id}"
    fields = hidden_fields(await page_with(phone, path, "Allow once"))
    for wrong in ({"fingerprint": "0" * 64}, {"number": "2"}, {"number": "x"}, {"number": "-1"}):
        answered = await phone.post(f"{path}/answer", answer="allow", **{**fields, **wrong})
        assert answered.status_code == 409
    assert session.questions
    assert not (folder / "b.txt").exists()
    session.stop_turn()
    await session.wait_until_idle()


async def test_a_message_is_sent_and_a_turn_is_stopped(phone: Phone, bench: Workbench) -> None:
    session = await bench.start_conversation("Work")
    path = f"/w/{bench.id}/c/{session.id}"
    await phone.get("/")
    sent = await phone.post(f"{path}/send", text="write b.txt: text")
    assert (sent.status_code, sent.headers["location"]) == (303, phone.address(path))
    page = await page_with(phone, path, "Allow once")
    assert 'class="user"' in page
    assert "on workstation" in page
    stopped = await phone.post(f"{path}/stop")
    assert stopped.status_code == 303
    await asyncio.wait_for(session.wait_until_idle(), LIMIT)
    told = [recorded.fact for recorded in session.all_facts]
    assert any(isinstance(fact, UserSaid) for fact in told)
    ends = [fact for fact in told if isinstance(fact, TurnEnded)]
    assert [end.reason for end in ends] == [TurnEnd.STOPPED]
    empty = await phone.post(f"{path}/send", text="  ")
    assert (empty.status_code, "empty" in empty.text) == (409, True)


async def test_a_form_that_is_sent_twice_is_one_message(phone: Phone, bench: Workbench) -> None:
    session = await bench.start_conversation("Work")
    path = f"/w/{bench.id}/c/{session.id}"
    page = (await phone.get(path)).text
    (command_id,) = re.findall(r'name="id" value="([0-9a-f]+)"', page)
    for _ in range(2):
        sent = await phone.post(f"{path}/send", text="hello", id=command_id)
        assert sent.headers["location"] == phone.address(f"{path}?sent={command_id}")
    await asyncio.wait_for(session.wait_until_idle(), LIMIT)
    said = [entry for entry in session.all_facts if isinstance(entry.fact, UserSaid)]
    assert len(said) == 1


async def test_words_that_could_not_be_sent_are_shown_again(phone: Phone, bench: Workbench) -> None:
    session = await bench.start_conversation("Work")
    gone = f"/w/{bench.id}/c/nowhere"
    refused = await phone.post(f"{gone}/send", text="my <words>")
    assert refused.status_code == 404
    assert "my &lt;words&gt;" in refused.text
    late = await phone.post(
        f"/w/{bench.id}/c/{session.id}/answer", answer="deny", words="not this", number="9"
    )
    assert (late.status_code, "not this" in late.text) == (409, True)


async def test_who_may_only_look_changes_nothing(
    browser: httpx.AsyncClient, devices: PairedDevices, bench: Workbench, folder: Path
) -> None:
    phone = pair(browser, devices, may_allow=False)
    session = await bench.start_conversation("Work")
    await asking(session)
    path = f"/w/{bench.id}/c/{session.id}"
    page = await page_with(phone, path, "may only look")
    assert "Create b.txt" in page
    assert "<form" not in page
    number, question = next(iter(session.questions.items()))
    fields = {"number": str(number), "fingerprint": question_fingerprint(question)}
    for act, more in (
        ("answer", {"answer": "allow", **fields}),
        ("send", {"text": "hi"}),
        ("stop", {}),
    ):
        refused = await phone.post(f"{path}/{act}", **more)
        assert (refused.status_code, "may only look" in refused.text) == (403, True), act
    assert (await phone.post(f"/w/{bench.id}/open")).status_code == 403
    assert session.questions
    assert not (folder / "b.txt").exists()
    session.stop_turn()
    await session.wait_until_idle()


async def test_text_of_models_and_files_is_never_markup(phone: Phone, bench: Workbench) -> None:
    session = await bench.start_conversation("<script>alert(1)</script>")
    session.send_message((Text('hello <img src=x onerror=alert(1)> & "quotes"'),))
    await session.wait_until_idle()
    page = await page_with(phone, f"/w/{bench.id}/c/{session.id}", "onerror")
    assert "<img" not in page
    assert "<script>alert" not in page
    assert page.count("<script") == 1
    listed = await page_with(phone, "/", "alert(1)")
    assert listed.count("<script") == 1


HOSTILE_REPLY = """# Title

<script>alert(2)</script> <iframe src="http://evil.example"></iframe>

![p](http://evil.example/pixel.png) [a](javascript:alert(3)) [b](data:text/html,x) <http://evil.example>

| a | b |
|---|---|
| `<b>` | x |

```html
</code></pre><script>alert(4)</script>
```
"""


def test_a_reply_is_shown_with_its_structure_but_runs_and_loads_nothing() -> None:
    shown = FollowedConversation()
    reply = facts.ModelReplied((facts.Text(HOSTILE_REPLY),), "<i>model</i>", facts.Stop.END)
    shown.apply_event(FactsAdded((facts.Recorded("c", 1, 1.0, reply),)))
    (entry,) = page_rendering.build_page_entries(shown)
    assert "<h1>Title</h1>" in entry.html
    assert "<td><code>&lt;b&gt;</code></td>" in entry.html
    for tag in ("<script", "<iframe", "<img", "<i>", "<b>", 'href="javascript', 'href="data'):
        assert tag not in entry.html
    assert not re.findall(r"<[a-z]+[^>]* src=", entry.html)
    links = re.findall(r"""href="([^"]*)""", entry.html)  # They lead there if they are pressed.
    assert set(links) == {"http://evil.example", "http://evil.example/pixel.png"}


async def test_what_is_not_there_is_said(phone: Phone, bench: Workbench) -> None:
    missing = await phone.get("/w/nothing/c/nothing")
    assert missing.status_code == 404
    assert "not open" in missing.text
    await phone.get("/")
    unknown = await phone.get(f"/w/{bench.id}/c/nothing")
    assert unknown.status_code == 404
    assert (await phone.get("/etc/passwd")).status_code == 404


async def test_the_page_needs_nothing_from_elsewhere(phone: Phone, bench: Workbench) -> None:
    session = await bench.start_conversation("Work")
    await phone.get("/")
    for path in ("/", f"/w/{bench.id}/c/{session.id}", "/pair", "/style.css", "/page.js"):
        answer = await phone.get(path)
        assert answer.status_code == 200, path
        assert "http://" not in answer.text, path
        assert "https://" not in answer.text, path
        assert " style=" not in answer.text, path
        assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("code", ["", "AAAAA-AAAAA", "x" * 10_000, "<b>"])
async def test_a_wrong_code_pairs_nothing(
    browser: httpx.AsyncClient, devices: PairedDevices, code: str
) -> None:
    devices.create_pairing_code(may_allow=True)
    headers = {"origin": "http://127.0.0.1:4357"}
    answer = await browser.post("/pair", headers=headers, data={"code": code, "name": "x"})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert list(devices.list_devices()) == []


async def test_a_code_pairs_a_browser_that_is_then_let_in(
    browser: httpx.AsyncClient, devices: PairedDevices, bench: Workbench
) -> None:
    await bench.start_conversation("Work")
    assert (await browser.get("/")).status_code == 401
    code = devices.create_pairing_code(may_allow=True)
    headers = {"origin": "http://127.0.0.1:4357"}
    form = {"code": code.lower().replace("-", " "), "name": "Ada's phone"}
    answer = await browser.post("/pair", headers=headers, data=form)
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    listed = await browser.get(answer.headers["location"])
    assert listed.status_code == 200
    assert bench.name in listed.text
    assert (await browser.get("/")).status_code == 401
