"""Pages in a real Chromium: what axe-core finds, what runs out of the page, what its console complains of.

`python tools/accessibility.py [NAME…]` (or `make accessible`, which builds the site first) opens pages of the built
site, and the pages of two runs that it makes: report, comparison, live page. Each is looked at 1280 pixels wide and
light, and 400 wide and dark. It ends with 1 if a finding is serious or critical, or a page is wider than its window.
With `--pictures FOLDER` it keeps a screenshot of each.
"""

import argparse
import queue
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import sync_playwright

from colonnade import Training, dataset, train
from colonnade.cli.application import app
from colonnade.watching.program import serve_page

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
PAGES = [
    *("", "tutorial/", "three-organisations/", "operations/", "privacy/", "privacy-in-five-minutes/", "settings/"),
    *("reference/python/", "reference/commands/", "which-algorithm/", "algorithms/vafl/", "algorithms/dpzv/"),
    *("linear-federations/", "reproduction/", "how-to/serve/", "how-to/own-data/", "run-directory/"),
]
VIEWS = ((1280, "light"), (400, "dark"))
SERIOUS = ("serious", "critical")
RUN = "{resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']}"


class Quiet(SimpleHTTPRequestHandler):
    """Pages of a folder, without a line for each."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def live_page(runs: list[Path]) -> Iterator[str]:
    said: queue.Queue[str] = queue.Queue()
    ended = threading.Event()
    server = threading.Thread(target=serve_page, args=(runs, None, "127.0.0.1:0", said.put, ended.is_set))
    server.start()
    try:
        yield said.get(timeout=60)
    finally:
        ended.set()
        server.join()


def made_pages(folder: Path) -> dict[str, Path]:
    """Two runs, their reports and the comparison of both."""
    plan = Training(epochs=2, batch_size=32, learning_rate=0.1)
    runs = [folder / name for name in ("vafl", "split")]
    for run in runs:
        train(dataset("digits", parties=2, max_rows=600), run.name, training=plan, out=run)
        command("report", str(run))
    command("compare", *map(str, runs), "--out", str(folder / "comparison.html"))
    return {"report": runs[0] / "report.html", "comparison": folder / "comparison.html"}


def command(*words: str) -> None:
    app(list(words), standalone_mode=False)


def looked_at(browser: Any, name: str, address: str, pictures: Path | None) -> int:
    """How many serious findings a page has; each is printed."""
    serious = 0
    for width, scheme in VIEWS:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce"
        )
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda said, found=complaints: found.append(said.text) if said.type == "error" else None)
        page.goto(address, wait_until="load")
        page.wait_for_timeout(300)
        page.add_script_tag(content=AXE)
        found = page.evaluate(f"axe.run(document, {RUN})")["violations"]
        wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if pictures is not None:
            page.screenshot(path=pictures / f"{name}-{width}-{scheme}.png".replace("/", "_"), full_page=True)
        context.close()
        for one in found:
            grave = one["impact"] in SERIOUS
            serious += grave
            where = "; ".join(str(node["target"][0]) for node in one["nodes"][:3])
            print(f"{name} {width} {scheme}: {one['impact']}: {one['id']} ({len(one['nodes'])}): {where}")
        for words in [*complaints, *([f"{wider} pixels wider than its window"] if wider > 0 else [])]:
            serious += 1
            print(f"{name} {width} {scheme}: {words}")
    return serious


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="pages of the site, or report, comparison, live; all by default")
    parser.add_argument("--pictures", type=Path)
    asked = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("Chromium is not installed: apt-get install chromium")
    if asked.pictures is not None:
        asked.pictures.mkdir(parents=True, exist_ok=True)
    wanted = set(asked.names or [*PAGES, "report", "comparison", "live"])
    serious = 0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, served(SITE) as site:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for page in filter(wanted.__contains__, PAGES):
            serious += looked_at(browser, page or "home", f"{site}/{page}", asked.pictures)
        if wanted - set(PAGES):
            made = made_pages(Path(folder))
            for name in sorted(wanted & set(made)):
                serious += looked_at(browser, name, made[name].as_uri(), asked.pictures)
            if "live" in wanted:
                with live_page([Path(folder, "vafl"), Path(folder, "split")]) as address:
                    serious += looked_at(browser, "live", address, asked.pictures)
        browser.close()
    print(f"{serious} serious findings")
    return 1 if serious else 0


if __name__ == "__main__":
    sys.exit(main())
