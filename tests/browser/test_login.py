"""Logging in by the form over the real routes: no key, a wrong one, the right one, event streams, logging out."""

import threading
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

import hypergrid as hg
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.service import StandingQueries
from queries.web.app import Services, create_app
from queries.web.auth.access import COOKIE, Access, Rules
from queries.web.auth.keys import KeyStore
from queries.web.server import Server, listen
from tests.browser.pages import QUERIES, SMALL, axe, press_until, run, serious, show
from viz.site import site

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyStore]:
    made = KeyStore(tmp_path_factory.mktemp("keys") / "keys.sqlite")
    yield made
    made.close()


@pytest.fixture(scope="module")
def keys(store: KeyStore) -> dict[str, str]:
    """A key a scope."""
    return {
        scope: store.create(f"a-{scope}", scope, now_ns=time.time_ns())[1]
        for scope in ("read", "operate", "query", "write")
    }


@pytest.fixture(scope="module")
def rules() -> Rules:
    return Rules()


@pytest.fixture(scope="module")
def guarded(
    archive: hg.OpenArchive,
    standing: StandingQueries,
    store: KeyStore,
    keys: dict[str, str],
    rules: Rules,
) -> Iterator[str]:
    """Give the address of a server that answers to those who have a key, with the rates that it has by default."""
    access = Access(store, time.time_ns, rules)
    app = create_app(
        Runner(archive), Catalogue(archive, saved=QUERIES), services=Services(standing=standing), access=access
    )
    app.mount("/", site())
    ready = threading.Event()
    with listen("127.0.0.1", 0, access) as listening:
        server = Server(app, listening, lambda _address: ready.set())
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        assert ready.wait(30)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"


def log_in(page: Page, key: str) -> None:
    page.get_by_label("Access key").fill(key)
    page.get_by_role("dialog").get_by_role("button", name="Log in").click()
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_without_a_key_the_page_says_so_and_offers_the_form(page: Page, guarded: str, complaints: list[str]) -> None:
    page.goto(guarded)
    dialog = page.get_by_role("dialog", name="Login needed")
    expect(dialog).to_be_visible()
    expect(page.locator("#connection")).to_have_text("Login needed")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator("#no-data")).to_contain_text("hypergrid keys create")
    assert page.get_by_role("button", name="Run", exact=True).count() == 0
    page.locator("#no-data").get_by_role("button", name="Log in").click()
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Not now").click()
    page.locator("#log-in").click()
    expect(dialog).to_be_visible()
    assert complaints == [], "who is not let in asks for nothing that is refused"


def test_a_wrong_key_is_told_and_the_right_one_opens_the_page(page: Page, guarded: str, keys: dict[str, str]) -> None:
    page.goto(f"{guarded}#engine")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Access key").fill(keys["query"][:-1] + "_")
    dialog.get_by_role("button", name="Log in").click()
    told = dialog.get_by_role("alert")
    expect(told).to_contain_text("The access key opens nothing")
    expect(told).to_contain_text("check that it is complete")
    assert keys["query"][:-4] not in told.inner_text()
    expect(dialog.get_by_label("Access key")).to_be_focused()
    log_in(page, keys["query"])
    expect(page.locator("#page-engine")).to_be_visible()
    expect(page.locator("#tiles")).to_contain_text("Queries running")
    expect(page.locator("#who")).to_have_text("a-query (query)")
    expect(page.locator("#connection")).to_have_text("Connected")
    (cookie,) = [one for one in page.context.cookies() if one.get("name") == COOKIE]
    assert cookie.get("httpOnly") is True
    assert keys["query"] not in page.evaluate("() => JSON.stringify([document.cookie, { ...localStorage }])")


def test_by_keyboard_and_the_session_outlives_the_page(
    page: Page, guarded: str, keys: dict[str, str], complaints: list[str]
) -> None:
    page.goto(f"{guarded}#explore")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.type(keys["query"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible()
    page.reload()
    page.wait_for_selector("body[data-ready=yes]")
    assert page.get_by_role("dialog").count() == 0
    press_until(page, "log-out")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Login needed")).to_be_visible()
    assert complaints == []


def test_events_come_to_who_is_logged_in(page: Page, guarded: str, keys: dict[str, str], complaints: list[str]) -> None:
    events: list[str] = []
    page.on("request", lambda request: events.append(request.url) if request.url.endswith("/events") else None)
    page.goto(f"{guarded}#explore")
    log_in(page, keys["query"])
    run(page, SMALL)
    assert events, "the answer is followed by events"
    expect(page.locator("#caption")).to_contain_text("100 % computed")
    for name in ("Stations", "Standing", "Engine"):
        show(page, name)
    page.locator("#plan-summary").click()
    expect(page.locator("#plan-graph svg")).to_be_visible()
    assert complaints == []


def test_logging_out_leaves_nothing_in_sight(page: Page, guarded: str, keys: dict[str, str]) -> None:
    page.goto(f"{guarded}#stations")
    log_in(page, keys["read"])
    expect(page.locator("#stations-list tbody tr").first).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("dialog", name="Login needed")).to_be_visible()
    assert page.locator("#stations-list").count() == 0
    asking = "() => fetch('api/v1/variables', {signal: AbortSignal.timeout(60000)}).then((answer) => answer.status)"
    assert page.evaluate(asking) == 401
    log_in(page, keys["read"])
    expect(page.locator("#stations-list tbody tr").first).to_be_visible()


def test_a_session_that_ends_is_told_where_one_is(
    page: Page, guarded: str, store: KeyStore, keys: dict[str, str]
) -> None:
    key, text = store.create("short", "query", now_ns=time.time_ns())
    page.goto(f"{guarded}#engine")
    log_in(page, text)
    expect(page.locator("#tiles")).to_contain_text("Queries running")
    store.revoke(key.id, now_ns=time.time_ns())
    expect(page.get_by_role("dialog", name="Login needed")).to_be_visible()
    log_in(page, keys["write"])
    expect(page.locator("#who")).to_have_text("a-write (write)")
    expect(page.locator("#connection")).to_have_text("Connected")


def test_who_watches_over_the_server_sees_what_it_does(
    page: Page, guarded: str, keys: dict[str, str], complaints: list[str]
) -> None:
    page.goto(f"{guarded}#engine")
    log_in(page, keys["operate"])
    for part in ("plan", "snapshots"):
        page.locator(f"#{part}-summary").click()
    expect(page.locator("#plan-graph")).to_contain_text("scope query")
    expect(page.locator("#snapshots")).to_contain_text("newest first")
    assert complaints == []


def test_who_may_read_sees_the_data_and_is_told_what_else_there_is(
    page: Page, guarded: str, keys: dict[str, str], complaints: list[str]
) -> None:
    page.goto(f"{guarded}#engine")
    log_in(page, keys["read"])
    expect(page.locator("#page-engine")).to_contain_text("scope operate")
    show(page, "Standing")
    expect(page.locator("#page-standing")).to_contain_text("scope operate")
    show(page, "Stations")
    expect(page.locator("#stations-list tbody tr").first).to_be_visible()
    expect(page.locator("#quality-list tbody tr").first).to_be_visible()
    expect(page.locator("#rejects")).to_contain_text("scope operate")
    assert complaints == []
    show(page, "Explore")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#notice")).to_contain_text("the key 'a-read' has 'read'")


def test_axe_finds_nothing_serious_in_the_form(page: Page, guarded: str) -> None:
    source = axe()
    if source is None:
        pytest.skip("axe-core is not where NODE_PATH says: npm install axe-core")
    page.goto(guarded)
    page.get_by_label("Access key").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").last).to_contain_text("opens nothing")
    assert serious(page, source) == []
