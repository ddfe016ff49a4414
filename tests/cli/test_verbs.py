"""The verbs besides `run`, what every verb says about itself, and what a terminal shows."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from command_line import IRIS, Answer, colonnade, draw_no_more, refused, toml

from colonnade.algorithms import ALGORITHMS
from colonnade.benchmarks import runtimes
from colonnade.cli.application import app
from colonnade.data import names
from colonnade.exit_codes import ExitCode
from colonnade.runtimes.processes.fork_server import ForkServer

VERBS = [
    ("demo",),
    ("run",),
    ("join",),
    ("leave",),
    ("certs",),
    ("certs", "init"),
    ("certs", "issue"),
    ("certs", "revoke"),
    ("certs", "show"),
    ("sweep",),
    ("tune",),
    ("plan",),
    ("align",),
    ("predict",),
    ("serve",),
    ("watch",),
    ("explain",),
    ("export",),
    ("card",),
    ("drift",),
    ("report",),
    ("replay",),
    ("compare",),
    ("account",),
    ("attack",),
    ("attack", "label-inference"),
    ("attack", "model-completion"),
    ("attack", "embedding-inversion"),
    ("attack", "product-inference"),
    ("audit",),
    ("bench",),
    ("reproduce",),
    ("algorithms",),
    ("settings",),
    ("data",),
    ("data", "list"),
    ("data", "get"),
]


def runs(*seeds: int) -> list[str]:
    flowers = toml("flowers.toml", IRIS)
    for seed in seeds:
        made = colonnade("run", flowers, "--no-report", "--set", f"federation.seed={seed}")
        assert made.code == 0, made.err
    return [f"runs/iris-vafl-{seed}" for seed in seeds]


def test_every_verb_is_here() -> None:
    commands = {command.name for command in app.registered_commands}
    assert commands | {group.name for group in app.registered_groups} == {verb for verb, *_ in VERBS}


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_says_what_the_verb_does_and_explains_every_option(verb: tuple[str, ...]) -> None:
    answer = colonnade(*verb, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert f"Usage: colonnade {' '.join(verb)}" in answer.out
    inside = [line.strip("│ ") for line in answer.out.splitlines() if line.startswith("│ ")]
    for line in inside:
        if line.startswith("--"):
            assert len(line.split()) > 3, f"{line!r} is not explained"


@pytest.mark.usefixtures("drawn_figures")
def test_the_demo() -> None:
    Path("colonnade-demo").mkdir()
    answer = colonnade("demo", "--json")
    told = answer.object
    assert (answer.code, answer.err) == (0, "")
    assert told["report"] == "colonnade-demo-2/report.html" and Path(told["report"]).exists()
    assert [row["algorithm"] for row in told["rows"]] == ["split", "vafl"]
    split, vafl = (row["seconds_to_target"] for row in told["rows"])
    # party4 takes three times as long: whoever waits for it is some three times slower.
    assert 2 < split / vafl < 5
    assert all(abs(row["final_metric"] - told["centralised_accuracy"]) < 0.02 for row in told["rows"])
    assert not [*Path("colonnade-demo").iterdir()]


def test_the_demo_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.cli.demo.EPOCHS", 2.0)
    answer = colonnade("demo", "--out", "mine")
    assert answer.code == 0, answer.err
    for words in ("party4 is three times slower", "centralised", "speed-up", "Report: mine/report.html"):
        assert words in answer.out
    assert "Not every run reached 95%." in answer.out  # two epochs do not, and nothing else is claimed


def test_a_demo_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.runtimes.interrupt.StopOnInterrupt.__call__", lambda stop: True)
    assert refused("demo", "--json", code=ExitCode.INTERRUPTED) == "Stopped. Run the demo again to see it whole."


@pytest.mark.usefixtures("drawn_figures")
def test_report(monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = runs(0)
    assert colonnade("report", run) == Answer(0, f"Report: {run}/report.html\n", "")
    page = Path(run, "report.html").read_text()
    assert "<html" in page and "http://" not in page.replace("http://www.w3.org", "")
    draw_no_more(monkeypatch)
    assert colonnade("report", run, "--json").object == {"report": f"{run}/report.html"}


def test_report_of_what_is_no_run() -> None:
    Path("empty").mkdir()
    assert "'empty' is not a run directory: metrics.jsonl is missing" in refused("report", "empty")
    assert "There is no run directory 'absent'" in refused("report", "absent")
    assert not [*Path("empty").iterdir()]


@pytest.mark.usefixtures("drawn_figures")
def test_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    two = runs(0, 1)
    answer = colonnade("compare", *two, "--json", "--out", "both.html")
    assert [row["name"] for row in answer.object["rows"]] == ["iris-vafl-0", "iris-vafl-1"]
    assert answer.object["report"] == "both.html" and Path("both.html").exists()
    draw_no_more(monkeypatch)
    shown = colonnade("compare", *two)
    assert (shown.code, shown.err) == (0, "")
    assert "vafl" in shown.out and "Report: comparison.html" in shown.out


def test_compare_needs_two_runs_and_a_target_that_is_a_number() -> None:
    (run,) = runs(0)
    assert "needs at least two run directories; 1 given" in refused("compare", run)
    assert "There is no run directory 'absent'" in refused("compare", run, "absent")
    assert "must be a finite number" in refused("compare", run, run, "--target", "nan")
    assert not Path("comparison.html").exists()


def test_settings_are_explained_by_section_by_algorithm_and_by_name() -> None:
    said = colonnade("settings", "training.batch_size").out
    assert said.startswith('batch_size: a whole number or "auto", in rows, default "auto"\n    of an upload.')
    (wait_for, *_) = json.loads(colonnade("settings", "vafl", "--json").out)
    assert wait_for == {
        "section": "vafl",
        "name": "wait_for",
        "type": "a whole number",
        "default": 1,
        "unit": "parties",
        "meaning": "t: update once uploads of so many distinct parties are there",
    }
    every = json.loads(colonnade("settings", "--json").out)
    assert {"data", "parties.NAME.prepare.COLUMN", "keys", "fcg"} <= {one["section"] for one in every}
    assert not [one for one in every if not one["meaning"] or "](" in one["meaning"]]
    assert "epochs, batch_size" in colonnade("settings").out


def test_a_setting_that_there_is_not_is_refused_with_the_nearest() -> None:
    assert "Did you mean 'epochs'" in refused("settings", "training.epoch")
    assert "Did you mean 'training'" in refused("settings", "trainin")


def test_algorithms() -> None:
    listed = json.loads(colonnade("algorithms", "--json").out)
    assert [one["name"] for one in listed] == list(ALGORITHMS)
    assert next(one for one in listed if one["name"] == "vafl")["settings"]["wait_for"] == 1
    assert all(name in colonnade("algorithms").out for name in ALGORITHMS)


def test_data_list() -> None:
    listed = json.loads(colonnade("data", "list", "--json").out)
    assert [one["name"] for one in listed] == [facts.name for facts in names()]
    assert {"name": "iris", "rows": 150, "columns": 4, "task": "multiclass", "source": "scikit-learn"} in listed
    assert all(facts.name in colonnade("data", "list").out for facts in names())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full to write to")
def test_output_that_cannot_be_written() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "colonnade", "data", "list"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        "colonnade: The output could not be written: No space left on device.\n",
    )


def test_bench_knows_its_benchmarks() -> None:
    assert "There is no benchmark 'splt'. Did you mean 'split'? Known: " in refused("bench", "splt")


def test_bench_runtimes_gives_every_key_that_has_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the measuring itself left out: 4 exchanges a second of everything, and 100 exchanges become 99."""
    for measured in ("_label_step_rate", "_processes_rate", "_network_rate"):
        monkeypatch.setattr(runtimes, measured, lambda *_, **__: 4.0)
    monkeypatch.setattr(runtimes, "_linear_rates", lambda: dict.fromkeys(runtimes.LINEAR_EPOCHS, 4.0))
    monkeypatch.setattr(runtimes, "_seconds_to_the_same_loss", lambda _: (6.0, 2.0))
    monkeypatch.setattr(
        runtimes.start, "start_seconds", lambda: {"network_start_cpu_seconds": 1.0, "processes_start_cpu_seconds": 1.0}
    )
    monkeypatch.setattr(runtimes.slow_links, "link_rate", lambda in_flight, _: 3.0 * in_flight)
    away = {"others_exchanges_per_second_before": 100.0, "others_exchanges_per_second_meanwhile": 99.0}
    monkeypatch.setattr(runtimes.absence, "rate_lost_percent", lambda: {**away, "rate_lost_percent": 1.0})
    monkeypatch.setattr(runtimes, "mnist_shaped", lambda: None)
    bare = {"bare_sockets_over_in_process": 1.0, "bare_tls_over_in_process": 1.0}
    monkeypatch.setattr(runtimes.bare_carriers, "bare_over_alone", lambda _: bare)
    shown = colonnade("bench", "runtimes", "--json").object
    assert shown["targets"].keys() <= shown["ratios"].keys()
    assert (shown["ratios"]["in_flight_gain"], shown["targets"]["in_flight_gain"]) == (4.0, ">= 3")
    assert (shown["ratios"]["rate_lost_percent"], shown["targets"]["rate_lost_percent"]) == (1.0, "<= 5")
    table = colonnade("bench", "runtimes").out
    assert "rate_lost_percent" in table and "in_flight_gain" in table and "MISSED" in table  # 4 a second is too few


def test_a_terminal_shows_progress(fork_server: ForkServer, tmp_path: Path) -> None:
    """A bar with exchanges of all exchanges, their rate, loss, metric and time left, in eighty columns."""
    flowers = toml("flowers.toml", IRIS)
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    options = json.dumps({"folder": str(Path.cwd()), "terminal": os.ttyname(its)})
    command = ["run", str(flowers), "--set", "training.epochs=20", "--no-report"]
    process = fork_server.start("colonnade", [options, *command], tmp_path / "log.txt")
    shown = b""
    while True:
        ended = process.poll() is not None  # and has said all
        if select.select([ours], [], [], 0.05)[0]:
            shown += os.read(ours, 65536)
        elif ended:
            break
    os.close(its)
    os.close(ours)
    process.close()
    text = shown.decode()
    assert process.returncode == 0, text
    bar = next(line for line in reversed(text.split("\r")) if "━" in line)
    assert "280/280" in bar and "exchanges/s" in bar and "loss 0." in bar and "accuracy 0." in bar and "0:00:0" in bar
    assert len(bar.rpartition("\x1b[?25l")[2].splitlines()[0]) <= 80  # what is left out hides the cursor
    assert "test accuracy" in text


def test_elsewhere_progress_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.cli.progress.SECONDS_BETWEEN_LINES", 0.0)
    answer = colonnade("run", toml("flowers.toml", IRIS), "--no-report")
    last = answer.err.splitlines()[-1]
    assert last.startswith("vafl: 28/28 exchanges, ") and "exchanges/s  loss " in last  # nothing is left
    assert "━" not in answer.out


@pytest.mark.parametrize("algorithm", ["afsvrg", "fsaga", "fcg", "centralised"])
def test_progress_ends_where_it_said(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where not every exchange is a batch: never more than the total, and all of it in the end."""
    monkeypatch.setattr("colonnade.cli.progress.SECONDS_BETWEEN_LINES", 0.0)
    answer = colonnade("run", toml("flowers.toml", IRIS), "--set", f"algorithm.name={algorithm}", "--no-report")
    told = [(int(done), int(total)) for done, total in re.findall(r": (\d+)/(\d+) (?:exchanges|steps)", answer.err)]
    assert len(told) > 1 and all(done <= total for done, total in told)
    assert told[-1][0] == told[-1][1] > 0


def test_compare_into_a_place_that_is_no_directory() -> None:
    two = runs(0, 1)
    assert "flowers.toml/both.html could not be written" in refused(
        "compare", *two, "--out", "flowers.toml/both.html", code=1
    )
