"""Pages in a real Chromium: what axe-core finds, what runs out of the page, what its console complains of.

`python tools/accessibility.py [NAME…]` (or `make accessible`, which builds the site first) opens every page of the
built site, and pages of runs that it makes: report, comparison, live page, sweep, attack, audit, reproduction. Each is
looked at 1280 pixels wide and light, and 400 wide and dark. It ends with 1 if a finding is serious or critical, or a
page is wider than its window.
With `--pictures FOLDER` it keeps a screenshot of each.
"""

import argparse
import json
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
from colonnade.reports.reproduction_page import reproduction_page
from colonnade.reproductions.recorded import FOLDER
from colonnade.watching.program import serve_page

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
MADE = ("report", "comparison", "sweep", "attack", "audit", "reproduction")
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
    """Two runs, their reports and the comparison of both; a small sweep, attack and audit; a recorded reproduction."""
    plan = Training(epochs=2, batch_size=32, learning_rate=0.1)
    runs = [folder / name for name in ("vafl", "split")]
    for run in runs:
        train(dataset("digits", parties=2, max_rows=600), run.name, training=plan, out=run)
        command("report", str(run))
    command("compare", *map(str, runs), "--out", str(folder / "comparison.html"))
    (folder / "f.toml").write_text('[data]\nset = "iris"\nparties = 2\n[training]\nepochs = 2\n', encoding="utf-8")
    few = ("--set-each", "training.learning_rate=0.01,0.1", "--seeds", "0,1", "--workers", "1")
    command("sweep", str(folder / "f.toml"), *few, "--out", str(folder / "sweep"))
    command("attack", "label-inference", "--trials", "2", "--max-rows", "200", "--out", str(folder / "attack"))
    small = ("--rows", "256", "--batch-size", "4", "--epochs", "2", "--page", str(folder / "audit.html"))
    command("audit", "vafl", *small)
    recorded = json.loads(FOLDER.joinpath("vafl-figure-3-quick.json").read_text(encoding="utf-8"))
    (folder / "reproduction.html").write_text(reproduction_page(recorded, "VAFL"), encoding="utf-8")
    places = ("vafl/report", "comparison", "sweep/sweep", "attack/report", "audit", "reproduction")
    return {name: folder / f"{place}.html" for name, place in zip(MADE, places, strict=True)}


def pages_of_site() -> list[str]:
    """Every page, as its address ends; that of a page that is not found is none to look at."""
    return sorted(str(path.parent.relative_to(SITE)).replace(".", "", 1) + "/" for path in SITE.rglob("index.html"))


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
    pages = ["" if one == "/" else one for one in pages_of_site()]
    wanted = set(asked.names or [*pages, *MADE, "live"])
    if unknown := wanted - {*pages, *MADE, "live"}:
        sys.exit(f"There is no page {', '.join(sorted(unknown))}.")
    serious = 0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, served(SITE) as site:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for page in filter(wanted.__contains__, pages):
            serious += looked_at(browser, page or "home", f"{site}/{page}", asked.pictures)
        if wanted - set(pages):
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
