"""The page is whole, self-contained and honest: nothing unescaped, no privacy that was not there."""

import base64
import doctest
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from fake_runs import NOISED_PRIVACY, full_run, metric_line, small_run, write_lines

import colonnade
from colonnade.errors import RunError, SettingsError
from colonnade.reports import amounts, figures, write_comparison, write_report
from colonnade.reports.outcome_view import as_html

FIGURES_OF_A_FULL_RUN = {
    "bytes",
    "curves_exchanges",
    "curves_megabytes",
    "curves_seconds",
    "staleness",
    "timeline",
    "utilisation",
}
VOID = {"meta", "img", "input"}
SCRIPTS = 3  # the curves as data, uPlot, and our own
LANES = 2  # their data, and our own


class Outline(HTMLParser):
    """What a browser would find in a page: balanced tags, text, images, whatever loads from elsewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.images: list[bytes] = []
        self.sources: list[str] = []
        self.taken: list[str] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for key, value in attrs:
            if key == "src":
                kind, encoded = str(value).split(",", 1)
                assert kind == "data:image/png;base64"
                self.images.append(base64.b64decode(encoded, validate=True))
            elif key == "href" and (encoded := str(value).removeprefix("data:text/csv;charset=utf-8;base64,")) != value:
                self.taken.append(base64.b64decode(encoded, validate=True).decode())
            elif key in ("href", "srcset", "action") or key.startswith("on"):
                self.sources.append(str(value))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data + "\n"


def outline(page: Path) -> Outline:
    return Outline(page.read_text(encoding="utf-8"))


def change_summary(run: Path, **changes: Any) -> Path:
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | changes))
    return run


without_drawing = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = full_run(tmp_path_factory.mktemp("page") / "async", exchanges=200)
    write_report(run)
    return run


def test_a_report_holds_every_figure_and_needs_nothing_else(finished: Path) -> None:
    page = outline(finished / "report.html")
    assert {path.stem for path in (finished / "figures").iterdir()} == FIGURES_OF_A_FULL_RUN
    assert len(page.images) == page.tags.count("figcaption") == len(FIGURES_OF_A_FULL_RUN)
    for image in page.images:
        pixels = matplotlib.image.imread(io.BytesIO(image), format="png")
        assert np.ptp(pixels[..., :3]) > 0.5
    assert {one.partition(",")[0] for one in page.taken} == {"party", "age in exchanges", "message"}
    assert set(page.images) == {path.read_bytes() for path in (finished / "figures").iterdir()}
    assert page.sources == []
    assert not {"link", "iframe"} & set(page.tags) and page.tags.count("script") == SCRIPTS + LANES
    whole = (finished / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"url\(|@import|https?:", re.sub(r"<script>.*?</script>", "", whole, flags=re.DOTALL))
    assert "default-src 'none'" in whole and len(whole) < 1_000_000


def test_a_report_says_what_the_summary_says(finished: Path) -> None:
    text = outline(finished / "report.html").text
    for words in ("vafl on digits", "finished", "seed 1", "1,437 training rows", "optimiser.learning_rate"):
        assert words in text
    for words in ("EmbeddingUpload", "party4", "2.13.0", "late rows", "virtual seconds"):
        assert words in text
    assert "No value was noised. Nothing here is differentially private: ε = ∞." in text


@without_drawing
def test_the_answer_comes_first_and_beside_it_what_is_no_answer(tmp_path: Path) -> None:
    matched = {"bank": {"held": 1350, "matched": 1092, "used": 1092}}
    run = small_run(tmp_path / "run", [(1, 1.0, 0.5), (2, 2.0, 0.9)], baseline={"accuracy": 0.62})
    change_summary(run, data={"name": "loans", "rows_by_party": matched})
    text = outline(write_report(run)).text
    words = "Accuracy 90.00 % on the test rows: better than one prediction for all rows, which has 62.00 %."
    assert words in text and "Rows matched: bank 1,092 of 1,350." in text
    assert text.index(words) < text.index("Exchanges")
    change_summary(run, baseline={"accuracy": 0.95})
    assert "no better than one prediction for all rows" in outline(write_report(run)).text


def test_one_curve_is_shown_at_a_time_and_figures_follow_the_dark(finished: Path) -> None:
    page = (finished / "report.html").read_text(encoding="utf-8")
    assert len(re.findall(r'<input type="radio" name="axis"', page)) == 3 and page.count(" checked>") == 1
    assert re.search(r"prefers-color-scheme: dark\) \{\s+\.paper", page)


def test_figures_are_written_for_a_paper_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "png_bytes", lambda figure: b"png")
    run = small_run(tmp_path / "run", [(1, None, 0.5), (2, None, 0.9)])
    write_report(run, pictures=tmp_path / "paper")
    drawn = {path.stem: path.read_bytes() for path in (tmp_path / "paper").glob("*.svg")}
    assert {path.stem for path in (tmp_path / "paper").glob("*.png")} == drawn.keys()
    assert "curves_exchanges" in drawn and b">exchanges</text>" in drawn["curves_exchanges"]
    assert b"<dc:date>" not in drawn["curves_exchanges"]


@without_drawing
def test_curves_are_there_as_data(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", [(1, 1.0, 0.5), (2, 2.0, 0.9)])
    other = small_run(tmp_path / "other", [(1, 1.0, 0.5)])
    page = write_comparison([run, other], tmp_path / "both.html").read_text()
    told = json.loads(re.findall(r"data-curves>(.*?)</script>", page)[0])
    assert [one["name"] for one in told["curves"]] == ["run", "other"] and told["plots"][1]["title"] == "test accuracy"
    first = told["curves"][0]
    assert (first["exchanges"], first["seconds"], first["metric"]) == ([1, 2], [1.0, 2.0], [0.5, 0.9])
    assert first["megabytes"] == [0.0003, 0.0006]  # 300 bytes for each exchange


@without_drawing
def test_names_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert('1')</script>\" onload=\"x"
    run = small_run(
        tmp_path / "evil",
        [(1, 1.0, 0.5), (2, 2.0, 0.6)],
        algorithm=evil,
        status=evil,
        data={"name": evil, "parties": {evil: {"columns": 3}}},
        parties={evil: {"busy_seconds": 1, "idle_seconds": 1, "role": evil}},
        bytes_by_message={evil: 10},
        settings={evil: {evil: [evil]}},
        versions={evil: evil},
        test={"accuracy": 0.6, evil: 1.0},
        privacy={"events": [{"party": evil, "viewers": [evil]}], "conditions": [evil]},
    )
    other = small_run(tmp_path / "<b>", [(1, 1.0, 0.5)])
    for page in (write_report(run), write_comparison([run, other], tmp_path / "both.html")):
        found = outline(page)
        assert "b" not in found.tags and found.tags.count("script") == SCRIPTS
        assert found.sources == []
        assert evil in found.text


@without_drawing
def test_noised_values_are_told_event_by_event_without_a_promise(tmp_path: Path) -> None:
    run = change_summary(full_run(tmp_path / "noised", exchanges=40), privacy=NOISED_PRIVACY)
    text = outline(write_report(run)).text
    assert "No value was noised" not in text
    for words in ("gaussian", "max releases per row", "19", "each row is released at most once"):
        assert words in text
    assert "What that costs was not computed for this run" in text


def figure(direction: str, adversary: str, sound: float | None, **others: Any) -> dict[str, Any]:
    return {
        "direction": direction,
        "adversary": adversary,
        "claimed": None,
        "sound": sound,
        "conditional": None,
    } | others


@without_drawing
def test_figures_stand_in_a_table_with_their_conditions_in_words(tmp_path: Path) -> None:
    figures = [
        figure("labels of bank", "feature party shop", 12.5, claimed=1.0, conditions=["First.", "Second."]),
        figure("labels of bank", "all feature parties together", 12.5, claimed=1.0, conditions=["First."]),
        figure("columns of shop", "label party bank", None, conditional=7.0, conditions=["Third."]),
    ]
    privacy = {**NOISED_PRIVACY, "figures": figures, "formula": "paper", "direction": "labels of bank", "sound": 12.5}
    run = change_summary(full_run(tmp_path / "noised", exchanges=40), privacy=privacy)
    text = outline(write_report(run)).text
    for words in ("claimed ε", "sound ε", "12.5", "∞ (conditional: 7)", "1, 2", "Second.", "Third."):
        assert words in text
    assert "observed ε" not in text  # there is no audit
    assert "every other party, alone or together" in text  # both adversaries of the labels have the same figures
    assert "chosen by a paper's formula" in text
    other = full_run(tmp_path / "plain", exchanges=40)
    compared = outline(write_comparison([run, other], tmp_path / "both.html")).text
    assert "ε = 12.5 for labels of bank; claimed 2.5; δ = 1e-05; by the paper's formula." in compared


@without_drawing
def test_what_each_party_learnt_is_told_to_it(tmp_path: Path) -> None:
    learnt = [
        {"sender": "shop", "viewer": "bank", "kind": "EmbeddingUpload", "sentence": "bank saw 8 embeddings."},
        {"sender": "bank", "viewer": "shop", "kind": "GradientReply", "sentence": "shop saw 8 gradients."},
    ]
    run = change_summary(full_run(tmp_path / "told", exchanges=40), learnt=learnt)
    text = outline(write_report(run)).text
    assert text.index("What left shop") < text.index("bank saw 8 embeddings.") < text.index("What reached shop")
    assert text.count("bank saw 8 embeddings.") == text.count("shop saw 8 gradients.") == 2


def test_a_run_that_recorded_almost_nothing_still_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    (tmp_path / "summary.json").write_text("{}")
    page = outline(write_report(tmp_path))
    assert page.images == []
    assert "ε = ∞" in page.text
    assert "no complete line" in page.text


KEYS_OF_A_SUMMARY = [
    *("algorithm", "runtime", "seed", "exchanges", "epochs", "wall_seconds", "virtual_seconds", "bytes_up"),
    *("bytes_down", "bytes_by_message", "evaluation_bytes", "train_loss", "test", "headline", "staleness"),
    *("parties", "privacy", "counts", "versions", "data", "settings", "status"),
]


def once_of_the_same(draw: Callable[..., Any], look_at: Callable[[Any], dict[str, Any]]) -> Callable[[Any], Any]:
    """Figures that are made once of what they look at, which is all that they are given: to look at more fails."""
    made: dict[str, Any] = {}

    def drawn(run: Any) -> Any:
        seen = look_at(run)
        if (key := repr(seen)) not in made:
            made[key] = draw(SimpleNamespace(section=seen.__getitem__, **seen))
        return made[key]

    return drawn


def test_any_key_may_be_missing_null_or_of_another_kind(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Drawing is tested elsewhere and takes most of the time.
    monkeypatch.setattr(figures, "png_bytes", lambda figure: b"png")
    monkeypatch.setattr(figures, "learning_curves", lambda run, against: None)
    by_parties = once_of_the_same(figures.utilisation, lambda run: {"parties": run.parties})
    monkeypatch.setattr(figures, "utilisation", by_parties)
    for name, section in (("staleness_histogram", "staleness"), ("bytes_by_message",) * 2):
        by_section = once_of_the_same(
            getattr(figures, name), lambda run, section=section: {section: run.section(section)}
        )
        monkeypatch.setattr(figures, name, by_section)
    summary = json.loads((finished / "summary.json").read_text())
    assert set(KEYS_OF_A_SUMMARY) == set(summary)
    lines = [metric_line(1, 0.5), metric_line(2, 1.0, metric={"accuracy": 0.5})]
    write_lines(tmp_path / "metrics.jsonl", lines)
    for key in KEYS_OF_A_SUMMARY:
        without = {other: value for other, value in summary.items() if other != key}
        for changed in (
            without,
            summary | {key: None},
            summary | {key: ["odd"]},
            summary | {key: {"odd": None}},
        ):
            (tmp_path / "summary.json").write_text(json.dumps(changed))
            assert "ε = ∞" in outline(write_report(tmp_path)).text


@without_drawing
def test_an_interrupted_run_says_so_and_promises_no_privacy(tmp_path: Path) -> None:
    run = full_run(tmp_path / "crashed", exchanges=80)
    (run / "summary.json").unlink()
    with (run / "metrics.jsonl").open("a") as out:
        out.write('{"party": "label", "exch')
    text = outline(write_report(run)).text
    assert "interrupted before it wrote its summary" in text
    assert "No value was noised" not in text
    assert "Treat it as not private: ε = ∞" in text


@without_drawing
def test_a_diverged_run_says_where(tmp_path: Path) -> None:
    write_lines(tmp_path / "metrics.jsonl", [metric_line(1), metric_line(1200, loss=float("inf"))])
    assert "not a finite number at exchange 1,200" in outline(write_report(tmp_path)).text


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run(tmp_path / "run", [(1, 1.0, 0.5), (2, 2.0, 0.6)])
    (run / "report.html").write_text("the old page")

    replace = Path.replace

    def full_disk(self: Path, target: Path) -> Path:
        if target.name == "report.html":
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(RunError, match=r"could not be written \(No space left on device\)"):
        write_report(run)
    monkeypatch.undo()
    assert (run / "report.html").read_text() == "the old page"
    assert not list(run.rglob("*.partial"))
    write_report(run)
    assert "<!doctype html>" in (run / "report.html").read_text()
    assert not list(run.rglob("*.partial"))


@without_drawing
def test_a_comparison_names_the_faster_run(tmp_path: Path) -> None:
    fast = small_run(tmp_path / "fast", [(10, 1.0, 0.5), (20, 2.0, 0.8), (30, 3.0, 0.9)])
    slow = small_run(tmp_path / "slow", [(5, 4.0, 0.6), (10, 8.0, 0.8)], algorithm="split")
    page = outline(write_comparison([fast, slow], tmp_path / "made" / "both.html"))
    assert "fast reached it in 2.0 s (virtual seconds): 4.0× as fast as slow." in page.text
    assert "speed-up*" not in page.text
    assert len(page.images) == 3  # three pairs of curves; bars need no picture, and these runs have no timeline
    assert page.taken[0].splitlines()[1:] == ["fast,2.0,20,6000.0,4.0,0.9", "slow,8.0,10,3000.0,1.0,0.8"]


@without_drawing
def test_a_comparison_of_full_runs_shows_two_timelines(tmp_path: Path) -> None:
    runs = [full_run(tmp_path / "a", exchanges=60), full_run(tmp_path / "s", synchronous=True, exchanges=60)]
    page = outline(write_comparison(runs, tmp_path))
    assert (tmp_path / "comparison.html").is_file()
    assert len(page.images) == 4  # three pairs of curves, and both timelines in one
    assert "wait_for_all" in page.text
    differing, _, same = page.text.partition("What is the same")
    assert "batch_rows" not in differing and "batch_rows" in same


@without_drawing
def test_mixed_clocks_are_dashes_with_a_footnote(tmp_path: Path) -> None:
    simulated = small_run(tmp_path / "simulated", [(10, 1.0, 0.5), (20, 2.0, 0.8)])
    real = small_run(tmp_path / "real", [(10, None, 0.8)])
    page = outline(write_comparison([simulated, real], tmp_path / "both.html"))
    assert "time to target*" in page.text
    assert "never compared" in page.text
    assert "virtual seconds (simulated)" not in page.text
    assert len(page.images) == 2  # against exchanges, against megabytes


def test_a_comparison_needs_two_runs(tmp_path: Path) -> None:
    run = small_run(tmp_path / "only", [(1, 1.0, 0.5)])
    with pytest.raises(SettingsError, match="at least two run directories; 1 given"):
        write_comparison([run], tmp_path / "out.html")


def test_the_examples_of_amounts_hold() -> None:
    tried = doctest.testmod(amounts)
    assert tried.attempted > 5
    assert tried.failed == 0


def test_matplotlib_is_loaded_for_the_first_page_only() -> None:
    asked = "import sys, colonnade.reports; print('matplotlib' in sys.modules); colonnade.reports.write_report; "
    asked += "print('matplotlib' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]


# --- an outcome shows itself ------------------------------------------------------------------------------------


def test_an_outcome_is_one_line_at_a_prompt_and_a_table_with_a_curve_in_a_notebook() -> None:
    data = colonnade.dataset("iris", parties=2)
    outcome = colonnade.train(data, "vafl", training=colonnade.Training(epochs=3, batch_size=16))
    accuracy = f"{100 * outcome.summary['test']['accuracy']:.2f} %"
    assert repr(outcome) == f"<Outcome of vafl, finished: 3 epochs, 42 exchanges, 3 parties, test accuracy {accuracy}>"
    shown = outcome._repr_html_()
    assert accuracy in shown and "<table" in shown and len(shown) < 10_000
    points = re.findall(r'points="([^"]+)"', shown)[0].split()
    assert len(points) == len([line for line in outcome.metrics if line["metric"]]) > 2
    assert not re.search(r"<script|https?://", shown)


def test_an_outcome_without_evaluations_has_no_curve_and_names_are_not_markup() -> None:
    summary = {"algorithm": "<b>", "status": "stopped", "test": {}, "headline": "rmse", "parties": {}}
    shown = as_html(summary, [{"exchange": 1, "metric": None}])
    assert "svg" not in shown and "<b>" not in shown and "&lt;b&gt;" in shown
