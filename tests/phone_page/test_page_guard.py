"""Who gets through to the page: paired devices, from the page itself. 0 of the others."""

from __future__ import annotations

import asyncio
import random
import secrets
import string
from collections.abc import AsyncIterator

import httpx
import pytest

from helix_desktop.phone_page import page_guard
from helix_desktop.phone_page.page_guard import COOKIE, HEADERS, LONGEST_BODY
from helix_desktop.phone_page.paired_devices import PairedDevices
from helix_desktop.workbench import Workbench
from tests.phone_page.conftest import HOST, ORIGIN, Phone

FORM = "application/x-www-form-urlencoded"
TRIES = 2_500  # Four times so many in this file.
REFUSED = {400, 401, 403, 405, 413, 415, 421}


async def test_every_answer_has_the_headers(browser: httpx.AsyncClient, phone: Phone) -> None:
    for answer in (await browser.get("/"), await phone.get("/"), await browser.get("/pair")):
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
    assert "frame-ancestors 'none'" in HEADERS["content-security-policy"]


HOSTS = [
    "evil.example",
    "evil.example:4357",
    "127.0.0.1.evil.example:4357",
    "127.0.0.1@evil.example",
    "localhost.:4357",
    "[::ffff:127.0.0.1]:4357",
    "0.0.0.0:4357",
    "127.0.0.2:4357",
    "",
    "127.0.0.1:4357:4357",
    "127.0.0.1:x",
    " ",
]


@pytest.mark.parametrize("host", HOSTS)
async def test_a_name_that_was_made_to_lead_here_reaches_nothing(phone: Phone, host: str) -> None:
    answer = await phone.get("/", host=host)
    assert answer.status_code == 421
    assert phone.device.name not in answer.text


@pytest.mark.parametrize("host", ["localhost:9999", "[::1]:4357", "127.0.0.1", "LOCALHOST:1"])
async def test_a_tunnel_reaches_it_at_any_port(phone: Phone, host: str) -> None:
    assert (await phone.get("/", host=host)).status_code == 200


async def test_a_host_or_cookie_that_comes_twice_is_refused(phone: Phone) -> None:
    for name in ("host", "cookie"):
        headers = [*phone.headers.items(), (name, phone.headers[name])]
        answer = await phone.browser.get(phone.address("/"), headers=headers)
        assert answer.status_code == 400


ORIGINS = [
    {},
    {"origin": "null"},
    {"origin": "https://127.0.0.1:4357"},
    {"origin": "http://evil.example"},
    {"origin": "http://127.0.0.1:4358"},
    {"origin": "http://127.0.0.1"},
    {"origin": f"{ORIGIN}/"},
    {"origin": ORIGIN, "sec-fetch-site": "cross-site"},
    {"origin": ORIGIN, "sec-fetch-site": "same-site"},
]


@pytest.mark.parametrize("origin", ORIGINS)
async def test_a_form_of_another_page_does_nothing(
    phone: Phone, bench: Workbench, origin: dict[str, str]
) -> None:
    session = await bench.start_conversation("Work")
    form = {"token": phone.device.form_token, "text": "hello"}
    path = phone.address(f"/w/{bench.id}/c/{session.id}/send")
    answer = await phone.browser.post(path, headers={**phone.headers, **origin}, data=form)
    assert answer.status_code == 403
    assert session.conversation.state.seq == 1


async def test_a_form_without_the_pages_own_token_does_nothing(
    phone: Phone, bench: Workbench
) -> None:
    session = await bench.start_conversation("Work")
    for token in ("", "x", secrets.token_hex(32), phone.cookie, phone.device.secret_hash):
        path = f"/w/{bench.id}/c/{session.id}/send"
        answer = await phone.post(path, token=token, text="hello")
        assert answer.status_code == 403
    assert session.conversation.state.seq == 1


async def test_other_kinds_of_bodies_and_methods_are_refused(phone: Phone) -> None:
    headers = {**phone.headers, "origin": ORIGIN}
    for kind in ("application/json", "text/plain", "multipart/form-data; boundary=a", ""):
        answer = await phone.browser.post("/pair", headers={**headers, "content-type": kind}, content=b"a=b")  # fmt: skip
        assert answer.status_code == 415
    kind = "application/x-www-form-urlencoded"
    long = await phone.browser.post(
        "/pair", headers={**headers, "content-type": kind}, content=b"a=" + b"x" * LONGEST_BODY
    )
    assert long.status_code == 413
    many = await phone.browser.post(
        "/pair", headers={**headers, "content-type": kind}, content=b"&".join([b"a=b"] * 10_000)
    )
    assert many.status_code == 400
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "HEAD"):
        answer = await phone.browser.request(method, "/", headers=headers)
        assert answer.status_code == 405


async def test_another_page_cannot_fetch_or_frame_it_but_a_link_may_lead_here(
    phone: Phone,
) -> None:
    for mode in ("cors", "no-cors", "websocket"):
        for site in ("cross-site", "same-site"):
            answer = await phone.get("/", **{"sec-fetch-site": site, "sec-fetch-mode": mode})
            assert answer.status_code == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert (await phone.get("/", **link)).status_code == 200


def wrong_cookie(chance: random.Random, cookie: str) -> str:
    letters = string.ascii_letters + string.digits + "-_.\x00 \"'%;=\\"
    match chance.randrange(5):
        case 0:
            place = chance.randrange(len(cookie))
            other = chance.choice([each for each in letters if each != cookie[place]])
            return cookie[:place] + other + cookie[place + 1 :]
        case 1:
            return cookie[: chance.randrange(len(cookie))]
        case 2:
            return f"{secrets.token_hex(8)}.{cookie.partition('.')[2]}"
        case 3:
            return f"{cookie.partition('.')[0]}.{secrets.token_urlsafe(32)}"
        case _:
            return "".join(chance.choice(letters) for _ in range(chance.randrange(80)))


async def test_2500_wrong_cookies_open_nothing(phone: Phone) -> None:
    chance = random.Random(75)
    for _ in range(TRIES):
        cookie = wrong_cookie(chance, phone.cookie)
        headers = {"host": HOST, "cookie": f"{COOKIE}={cookie}".replace("\x00", "")}
        answer = await phone.browser.get(phone.address("/"), headers=headers)
        if answer.status_code == 200:
            # What follows a semicolon is another cookie.
            assert phone.cookie == cookie.partition(";")[0].strip()
            continue
        assert answer.status_code == 401
        assert "Pairs" not in answer.text


def cookies_sent_by_browser(page: httpx.Response, address: str) -> str:
    """What a browser that got this answer sends to another address: the port does not matter."""
    jar = httpx.Cookies()
    jar.extract_cookies(page)
    request = httpx.Request("GET", address)
    jar.set_cookie_header(request)
    sent: str = request.headers.get("cookie", "")
    return sent


async def test_a_server_at_another_port_of_this_computer_gets_no_cookie(
    browser: httpx.AsyncClient, devices: PairedDevices
) -> None:
    """The cookie was for every path, so an agent that serves a page here got it, and could answer
    its own questions with it.
    """
    code = devices.create_pairing_code(may_allow=True)
    paired = await browser.post(
        "/pair", headers={"origin": ORIGIN}, data={"code": code, "name": "x"}
    )
    (device,) = devices.list_devices()
    own_address = paired.headers["location"]
    assert own_address == f"{device.own_path}/"
    assert COOKIE in cookies_sent_by_browser(paired, f"{ORIGIN}{own_address}w/a/c/b/send")
    for port in (80, 3000, 4357, 8080):
        for path in ("", "/", "/d", "/d/", f"/d/{'0' * 32}/", "/w/a/c/b", "/pair", "/page.js"):
            assert cookies_sent_by_browser(paired, f"http://127.0.0.1:{port}{path}") == ""


async def test_a_cookie_counts_only_at_the_path_of_its_own_device(
    browser: httpx.AsyncClient, phone: Phone, devices: PairedDevices
) -> None:
    code = devices.create_pairing_code(may_allow=True)
    other, other_cookie = devices.pair_device(code, "Another")
    bare = {"host": HOST, "cookie": f"{COOKIE}={phone.cookie}"}
    for path in ("/", "/events", f"{other.own_path}/", f"/d/{'0' * 32}/", phone.device.own_path):
        assert (await browser.get(path, headers=bare)).status_code == 401
    # A server at another port can set a cookie of this name for every path, even a real one.
    for cookies in (f"{COOKIE}=x; {COOKIE}={phone.cookie}", f"{COOKIE}={phone.cookie};{COOKIE}=x", f"a=b,c; {COOKIE}={other_cookie}; {COOKIE}={phone.cookie}"):  # fmt: skip
        answer = await browser.get(phone.address("/"), headers={"host": HOST, "cookie": cookies})
        assert answer.status_code == 200


async def test_a_stolen_cookie_is_worth_nothing_after_the_device_was_revoked(
    phone: Phone, devices: PairedDevices, bench: Workbench
) -> None:
    session = await bench.start_conversation("Work")
    await phone.get("/")
    path = f"/w/{bench.id}/c/{session.id}"
    assert (await phone.get(path)).status_code == 200
    devices.revoke_device(phone.device.id)
    for address in ("/", path, f"{path}/events", "/events"):
        assert (await phone.get(address)).status_code == 401
    for act in ("send", "stop", "answer"):
        answer = await phone.post(f"{path}/{act}", text="hello")
        assert answer.status_code == 401
    assert session.conversation.state.seq == 1


async def test_a_form_that_was_begun_before_the_device_was_revoked_does_nothing(
    phone: Phone, devices: PairedDevices, bench: Workbench
) -> None:
    """The defect: a thief could begin forms, and send the rest when the device had long been revoked."""
    session = await bench.start_conversation("Work")
    path = f"/w/{bench.id}/c/{session.id}"
    assert (await phone.get(path)).status_code == 200

    async def send_slowly() -> AsyncIterator[bytes]:
        yield f"token={phone.device.form_token}&text=run+it".encode()
        devices.revoke_device(phone.device.id)
        yield b"+now"

    headers = {**phone.headers, "origin": ORIGIN, "content-type": FORM}
    address = phone.address(f"{path}/send")
    answer = await phone.browser.post(address, headers=headers, content=send_slowly())
    assert answer.status_code == 401
    assert session.conversation.state.seq == 1


async def test_a_form_that_does_not_arrive_holds_no_connection(
    browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_guard, "FORM_SECONDS", 0.02)

    async def send_no_end() -> AsyncIterator[bytes]:
        yield b"code="
        await asyncio.Event().wait()

    headers = {"origin": ORIGIN, "content-type": FORM}
    answer = await browser.post("/pair", headers=headers, content=send_no_end())
    assert answer.status_code == 408


async def test_slow_forms_of_strangers_leave_room_for_the_paired(
    browser: httpx.AsyncClient, phone: Phone
) -> None:
    may_end = asyncio.Event()

    async def send_slowly() -> AsyncIterator[bytes]:
        yield b"code="
        await may_end.wait()

    headers = {"origin": ORIGIN, "content-type": FORM}
    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        forms: list[asyncio.Task[httpx.Response]] = []
        for _ in range(page_guard.MOST_FORMS_OF_STRANGERS + 1):
            sending = browser.post("/pair", headers=headers, content=send_slowly())
            forms.append(group.create_task(sending))
        ended, _ = await asyncio.wait(forms, return_when=asyncio.FIRST_COMPLETED)
        assert [form.result().status_code for form in ended] == [503]
        assert (await phone.get("/")).status_code == 200
        may_end.set()
    assert (await browser.post("/pair", headers=headers, content=b"code=x")).status_code == 403


async def test_2500_replayed_and_guessed_pairings_pair_nothing(
    browser: httpx.AsyncClient, devices: PairedDevices
) -> None:
    chance = random.Random(76)
    code = devices.create_pairing_code(may_allow=True)
    devices.pair_device(code, "Ada's phone")
    for number in range(TRIES):
        if number % 100 == 0:
            devices.create_pairing_code(may_allow=True)
        guess = "".join(chance.choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(10))
        form = {"code": chance.choice([code, guess]), "name": "x"}
        answer = await browser.post("/pair", headers={"origin": ORIGIN}, data=form)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    assert len(devices.list_devices()) == 1


async def test_5000_odd_requests_reach_nothing_and_break_nothing(
    browser: httpx.AsyncClient, phone: Phone, bench: Workbench
) -> None:
    chance = random.Random(77)
    session = await bench.start_conversation("Work")
    path = f"/w/{bench.id}/c/{session.id}"
    paths = ["/", f"{phone.device.own_path}/", f"/d/{'a' * 32}{path}", path, f"{path}/send", f"{path}/stop", f"{path}/answer", f"/w/{bench.id}/open", "/events", "//", "/pair/../", "/%2e%2e/", "/w/../c/x"]  # fmt: skip
    names = ["host", "origin", "cookie", "sec-fetch-site", "content-type", "x-forwarded-host", "forwarded", "authorization"]  # fmt: skip
    values = [HOST, ORIGIN, "evil", "null", "same-origin", "application/x-www-form-urlencoded", f"{COOKIE}=x", "a" * 5_000, ""]  # fmt: skip
    for _ in range(2 * TRIES):
        headers = {chance.choice(names): chance.choice(values) for _ in range(4)}
        method = chance.choice(["GET", "POST", "PUT"])
        body = chance.randbytes(chance.randrange(200))
        answer = await browser.request(method, chance.choice(paths), headers=headers, content=body)
        assert answer.status_code in REFUSED, (method, headers)
        assert bench.name not in answer.text
    assert session.conversation.state.seq == 1
    assert (await phone.get("/")).status_code == 200
