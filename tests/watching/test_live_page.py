"""The page in a real browser, about a training that runs: values change, buttons and keys act, no complaint is logged.

One browser and one training for all of it; what strangers are refused is tried on the same server.
"""

import http.client
import json
import os
import queue
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from colonnade import Training, dataset, train
from colonnade.reports.run_page import write_report
from colonnade.watching.program import serve_page


@contextmanager
def served(directories: list[Path], party: str | None = None) -> Iterator[str]:
    """The address of a page."""
    said: queue.Queue[str] = queue.Queue()
    ended = threading.Event()
    server = threading.Thread(target=serve_page, args=(directories, party, "127.0.0.1:0", said.put, ended.is_set))
    server.start()
    try:
        yield said.get(timeout=60)
    finally:
        ended.set()
        server.join()


class RunningTraining(threading.Thread):
    """A training that would take hours."""

    def __init__(self, out: Path) -> None:
        super().__init__(daemon=True)
        self.out = out
        self.begun = threading.Event()
        self.finished: bool | None = None
        self._is_over = False

    def run(self) -> None:
        plan = Training(epochs=1e6, batch_size=8, evaluate_every_epochs=5)
        outcome = train(
            dataset("iris", parties=2),
            "vafl",
            training=plan,
            out=self.out,
            watch=lambda line: self.begun.set(),
            stop_requested=lambda: self._is_over,
        )
        self.finished = outcome.finished

    def end(self) -> None:
        self._is_over = True
        self.join()


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTraining]:
    running = RunningTraining(tmp_path_factory.mktemp("runs") / "iris")
    running.start()
    assert running.begun.wait(60)
    yield running
    running.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("Chromium is not installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


def answer(address: str, method: str = "GET", body: str | None = None, **headers: str) -> int:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    connection.request(method, parts.path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    status = connection.getresponse().status
    connection.close()
    return status


def exchanges(page: Any) -> int:
    shown = page.evaluate("document.querySelector('[data-name=exchanges] b')?.textContent ?? '–'")
    return int(shown.replace(",", "").replace("–", "0"))


def wait_until(page: Any, holds: Callable[[], bool]) -> None:
    """The page's own policy forbids Playwright's `wait_for_function`, which evaluates text."""
    for _ in range(600):
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not come to pass within half a minute")


def test_strangers_are_refused(training: RunningTraining) -> None:
    with served([training.out]) as address:
        own = f"http://{urlsplit(address).netloc}"
        pause = '{"run": 0, "ask": "pause"}'
        assert answer(address) == 200
        assert (
            answer(f"{own}/") == 404 and answer(f"{own}/a-guess/") == 404 and answer(f"{address}metrics.jsonl") == 404
        )
        assert answer(address, Host="rebound.example:80") == 403
        assert answer(address, Host=f"rebound.example:{urlsplit(address).port}") == 403
        assert answer(address, Origin="http://elsewhere.example") == 403
        assert answer(address, Sec_Fetch_Site="cross-site") == 403
        assert answer(f"{address}ask", "POST", pause) == 403  # no origin: no browser's own page
        assert answer(f"{address}ask", "POST", pause, Origin="null") == 403
        assert answer(f"{address}ask", "POST", '{"run": 1, "ask": "pause"}', Origin=own) == 400
        assert answer(f"{address}ask", "POST", '{"run": 0, "ask": "dance"}', Origin=own) == 400
        assert answer(f"{address}ask", "POST", 2000 * "x", Origin=own) == 413
    with served([training.out], "party1") as address:
        assert answer(f"{address}ask", "POST", pause, Origin=f"http://{urlsplit(address).netloc}") == 403


def test_one_partys_page_shows_no_loss(training: RunningTraining, browser: Any) -> None:
    with served([training.out], "party1") as address:
        page = browser.new_page()
        page.goto(address)
        wait_until(page, lambda: exchanges(page) > 0)
        assert page.locator(".lane .party b").all_inner_texts() == ["party1"]
        assert page.locator("[data-name=loss], [data-name=accuracy], [data-name=staleness]").count() == 0
        assert page.is_visible("#rate .uplot") and not page.is_visible("#loss") and not page.is_visible("#done")
        wait_until(page, lambda: not page.locator("#rate.empty").count())
        assert page.is_disabled("#pause") and page.is_disabled("#stop")
        assert "seen by party1" in page.inner_text("#about")
        page.close()


def test_curves_of_a_report_are_explored(browser: Any, tmp_path: Path) -> None:
    lines = [
        {
            "party": "label",
            "exchange": at,
            "epoch": at / 4,
            "wall_seconds": at,
            "loss": 1 / at,
            "metric": {"accuracy": 0.5},
        }
        for at in (1, 2, 4)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    spans = [{"party": "label", "start": start, "end": start + 1, "what": "busy"} for start in (0, 2)]
    (tmp_path / "timeline.jsonl").write_text("".join(json.dumps(span) + "\n" for span in spans))
    complaints: list[str] = []
    page = browser.new_page()
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"file://{write_report(tmp_path)}")
    assert page.locator(".explorer .uplot").count() == 2 and not page.is_visible(".curves")
    page.hover(".explorer .u-over >> nth=0")
    assert page.inner_text(".explorer .u-series:nth-child(2) .u-value >> nth=0") == "0.5"  # the loss at exchange 2
    first = page.locator(".explorer .uplot").first
    assert first.get_attribute("aria-label") == (
        f"training loss against exchanges. {tmp_path.name}: from 1 to 0.25, between 0.25 and 1."
    )
    leftmost = []
    for keys in ("0", "+", "ArrowRight"):
        first.press(keys)
        page.hover(".explorer .u-over >> nth=0", position={"x": 3, "y": 50})
        leftmost.append(page.inner_text(".explorer .u-series:nth-child(1) .u-value >> nth=0"))
    assert leftmost == ["1", "2", "2"]  # from 1.75 to 3.25, and from 2.125 to 3.625
    with page.expect_download() as taken:
        page.locator(".explorer .controls button").first.click()
    lines = Path(taken.value.path()).read_text().splitlines()
    assert lines[0].startswith('"run","exchanges","megabytes","epochs","wall seconds","training loss"')
    assert len(lines) == 4 and lines[1].startswith(f'"{tmp_path.name}",1,')
    page.get_by_label("epochs").check()
    page.get_by_label("log scale of the training loss").check()
    assert page.locator(".explorer .u-legend").first.inner_text().startswith("epochs")
    assert page.inner_text(".lanes p") == "0 to 4 wall seconds. At work: label 50 %."
    page.locator(".lanes canvas").press("+")
    page.locator(".lanes canvas").press("ArrowLeft")
    page.locator(".lanes canvas").press("ArrowLeft")
    page.locator(".lanes canvas").press("+")
    assert page.inner_text(".lanes p") == "0.5 to 1.5 wall seconds. At work: label 50 %."
    page.dblclick(".lanes canvas")
    assert page.inner_text(".lanes p").startswith("0 to 4 ") and not page.is_visible(".pictured")
    page.emulate_media(media="print")
    assert page.is_visible(".pictured") and page.is_visible(".curves") and not page.is_visible(".explorer")
    page.close()
    assert complaints == []


def test_the_page_of_a_training_that_runs(training: RunningTraining, browser: Any) -> None:
    complaints: list[str] = []
    with served([training.out]) as address:
        page = browser.new_page(viewport={"width": 400, "height": 800})
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        wait_until(page, lambda: exchanges(page) > 0)

        def moved_on() -> bool:
            before = exchanges(page)
            wait_until(page, lambda: exchanges(page) > before)
            return True

        assert moved_on() and page.inner_text("#status") == "running"
        assert page.locator(".lane .party b").all_inner_texts() == ["label", "party1", "party2"]
        assert re.fullmatch(r"\d\.\d{4}", page.inner_text("[data-name=loss] b"))
        assert "GradientReply" in page.inner_text("#bytes") and page.locator(".uplot").count() == 4
        assert page.evaluate("document.documentElement.scrollWidth") == 400

        page.keyboard.press("p")
        page.wait_for_selector("#status.paused")
        rested = exchanges(page)
        page.wait_for_timeout(700)
        assert exchanges(page) == rested and training.is_alive()
        page.click("#pause")
        page.wait_for_selector("#status.running")
        assert moved_on()

        latest = exchanges(page)
        for _ in range(20):
            page.keyboard.press("ArrowLeft")
        wait_until(page, lambda: exchanges(page) < latest)
        assert page.get_attribute("#live", "aria-pressed") == "false"
        page.keyboard.press("l")
        page.wait_for_selector("#live[aria-pressed=true]")
        assert moved_on()

        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.keyboard.press("t")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light

        page.keyboard.press("s")
        page.keyboard.press("Enter")  # the first button: leave it
        assert not page.is_visible("#sure") and moved_on()
        page.keyboard.press("s")
        page.click("#sure button.danger")
        page.wait_for_selector("#status.stopped")
        training.join(30)
        assert training.finished is False and page.is_disabled("#stop")
        page.close()
    assert complaints == []
