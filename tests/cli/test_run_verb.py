"""`colonnade run`, the ways that lead to a run directory: data of every kind, every option, changed settings."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from command_line import IRIS, assert_same_run, colonnade, metrics, tables, toml, write_tables

from colonnade.federation.file import read_federation
from colonnade.trace import read_trace


def kept(run: str) -> dict[str, dict[str, object]]:
    """The federation.toml that a run keeps."""
    return tomllib.loads(Path(run, "federation.toml").read_text())


def test_a_named_set_from_file_to_report() -> None:
    answer = colonnade("run", toml("flowers.toml", IRIS))
    assert answer.code == 0, answer.err
    assert "test accuracy" in answer.out and "Report:        runs/iris-vafl-0/report.html" in answer.out
    run = Path("runs/iris-vafl-0")
    summary = json.loads((run / "summary.json").read_text())
    # 112 of the 150 rows train, so 7 batches of 16 an epoch; 2 epochs of 2 parties.
    assert (summary["exchanges"], summary["epochs"], summary["status"]) == (28, 2.0, "finished")
    assert metrics(run)[-1]["exchange"] == 28
    assert not (run / "trace").exists()
    # The directory holds the whole federation: it reads back, with every default filled in.
    federation = read_federation(run / "federation.toml")
    assert (federation.training.epochs, federation.training.l2, federation.data.set) == (2.0, "auto", "iris")


def test_json_is_one_object_and_nothing_else() -> None:
    answer = colonnade("run", toml("flowers.toml", IRIS), "--json", "--no-report", "--out", "mine")
    assert answer.object == json.loads(Path("mine/summary.json").read_text())
    assert (answer.code, answer.err) == (0, "")
    assert not Path("mine/report.html").exists()


def test_files_of_three_kinds_meet_by_id() -> None:
    answer = colonnade("run", write_tables(), "--json", "--no-report", "--out", "mine")
    data = answer.object["data"]
    assert (data["rows"], data["test_rows"], data["task"]) == (30, 10, "binary")
    # The bank has the label and a column of its own, so it holds a bottom model too.
    assert data["parties"] == {"shop": {"columns": 2}, "clinic": {"columns": 1}, "bank": {"columns": 1}}
    assert set(answer.object["test"]) == {"accuracy", "auc", "f1", "log_loss"}
    assert Path(kept("mine")["parties"]["shop"]["file"]).is_absolute()  # type: ignore[index]


def test_parties_may_name_their_columns_and_bottom_models() -> None:
    federation = write_tables()
    with federation.open("a") as file:
        file.write('[parties.shop.bottom]\nkind = "linear"\nembedding = 3\n')
    chosen = ("--set", 'parties.shop.columns=["returns"]', "--set", "bottom.embedding=5")
    assert colonnade("run", federation, *chosen, "--json", "--out", "mine").object["data"]["parties"]["shop"] == {
        "columns": 1
    }
    uploads = [json.loads(line) for line in Path("mine/metrics.jsonl").read_text().splitlines()]
    assert uploads and kept("mine")["parties"]["shop"]["bottom"]["kind"] == "linear"  # type: ignore[index]


def test_columns_of_a_set_by_name() -> None:
    named = """
    [data]
    set = "wine"
    split = "named-columns"
    [parties.lab]
    columns = ["hue", "ash"]
    [parties.label]
    columns = ["proline"]
    """
    answer = colonnade("run", toml("wine.toml", named), "--set", "training.epochs=1", "--json", "--no-report")
    assert answer.object["data"]["parties"] == {"lab": {"columns": 2}, "label": {"columns": 1}}


@pytest.mark.parametrize("kind", ["cnn", "lstm", "mlp"])
def test_strips_of_images(kind: str) -> None:
    strips = toml("strips.toml", '[data]\nset = "digits"\nsplit = "row-strips"\nparties = 2\nmax_rows = 200\n')
    chosen = ("--set", f"bottom.kind={kind}", "--set", "bottom.hidden=[8]", "--set", "training.epochs=2")
    answer = colonnade("run", strips, *chosen, "--json", "--no-report")
    assert answer.object["data"]["parties"] == {"party1": {"columns": 32}, "party2": {"columns": 32}}
    losses = [line["loss"] for line in metrics(Path("runs/digits-vafl-0")) if line["loss"] is not None]
    assert losses[-1] < losses[0]


def test_regression() -> None:
    spent = tables()["bank"]
    spent["default"] = np.linspace(-1.0, 1.0, len(spent))
    answer = colonnade("run", write_tables(bank=spent), "--json", "--no-report")
    assert answer.object["data"]["task"] == "regression"
    assert set(answer.object["test"]) == {"rmse", "r2"}
    assert "test rmse" in colonnade("run", "three.toml", "--out", "again", "--no-report").out


@pytest.mark.parametrize("algorithm", ["vafl", "split", "centralised"])
def test_a_training_that_diverges_is_a_failed_run(algorithm: str) -> None:
    chosen = ("--set", f"algorithm.name={algorithm}", "--set", "training.learning_rate=1e30")
    answer = colonnade("run", toml("flowers.toml", IRIS), *chosen, "--out", "mine", "--json")
    *notes, sentence = [line for line in answer.err.split("colonnade: ") if line]
    assert (answer.code, answer.out) == (1, "")
    if algorithm != "split":  # whose first answer is beyond every bound
        assert "goes on from a good model, with steps of 1/2" in " ".join(" ".join(notes).split())
    assert "diverged" in sentence and "lower training.learning_rate" in sentence.lower()
    assert Path("mine/metrics.jsonl").exists() and not Path("mine/summary.json").exists()


@pytest.mark.parametrize("algorithm", ["vafl", "split", "centralised"])
def test_every_algorithm_runs_the_same_file(algorithm: str) -> None:
    """Also one that trains alone: how slow its peers would have been is then of no matter."""
    slow = toml("slow.toml", IRIS + "[simulate.parties.party2]\nslowdown = 3.0\n")
    answer = colonnade("run", slow, "--set", f"algorithm.name={algorithm}", "--json", "--no-report")
    assert (answer.object["algorithm"], answer.object["status"]) == (algorithm, "finished")


@pytest.mark.parametrize(
    ("change", "section", "name", "value"),
    [
        ("training.epochs=3", "training", "epochs", 3.0),
        ("training.learning_rate=1e-2", "training", "learning_rate", 0.01),
        ("training.optimiser=adam", "training", "optimiser", "adam"),
        ('training.optimiser="adam"', "training", "optimiser", "adam"),
        ("algorithm.warm_up=true", "algorithm", "warm_up", True),
        ("algorithm.activation_seconds.party1=0.5", "algorithm", "activation_seconds", {"party1": 0.5}),
        ("top.hidden=[3, 4]", "top", "hidden", [3, 4]),
        ("simulate.latency_seconds={distribution='uniform', mean=2}", "simulate", "latency_seconds", None),
        ("federation.name=my own", "federation", "name", "my own"),
        ("data.test_fraction=0", "data", "test_fraction", 0.0),
    ],
)
def test_set_changes_a_setting_of_any_type(change: str, section: str, name: str, value: object) -> None:
    answer = colonnade("run", toml("flowers.toml", IRIS), "--set", change, "--out", "mine", "--json", "--no-report")
    assert answer.code == 0, answer.err
    found = kept("mine")[section][name]
    assert found == ({"distribution": "uniform", "mean": 2} if value is None else value)


def test_set_reaches_into_nested_tables_and_may_be_repeated() -> None:
    four = toml("four.toml", IRIS.replace("parties = 2", "parties = 4"))
    changes = ("--set", "simulate.parties.party4.slowdown=3", "--set", "training.epochs=1")
    slow = colonnade("run", four, *changes, "--json", "--no-report", "--out", "slow").object
    fast = colonnade("run", four, *changes[2:], "--json", "--no-report", "--out", "fast").object
    assert kept("slow")["simulate"]["parties"]["party4"]["slowdown"] == 3.0  # type: ignore[index]
    assert slow["parties"]["party4"]["exchanges"] < fast["parties"]["party4"]["exchanges"]


def test_another_algorithm_does_not_inherit_settings() -> None:
    waiting = toml("waiting.toml", IRIS + '[algorithm]\nname = "vafl"\nwait_for = 2\n')
    colonnade("run", waiting, "--set", "algorithm.name=split", "--out", "mine", "--no-report")
    assert kept("mine")["algorithm"] == {"name": "split", "party_timeout_seconds": 0.0}


def test_a_trace_is_written_when_asked_for() -> None:
    assert colonnade("run", toml("flowers.toml", IRIS), "--trace", "--no-report", "--out", "mine").code == 0
    assert sorted(path.name for path in Path("mine/trace").iterdir()) == ["label.trace", "party1.trace", "party2.trace"]
    sent = [record for record in read_trace(Path("mine/trace/party1.trace")) if record.type == "Send"]
    assert len(sent) >= 14  # an upload an exchange


def test_a_finished_run_resumes_to_itself() -> None:
    flowers = toml("flowers.toml", IRIS)
    for run in ("one", "two"):
        assert colonnade("run", flowers, "--no-report", "--out", run).code == 0
    answer = colonnade("run", "two", "--resume", "--no-report", "--json")
    assert answer.object["status"] == "finished"
    assert_same_run(Path("one"), Path("two"))


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    flowers = toml("flowers.toml", IRIS)
    for run in ("one", "two"):
        colonnade("run", flowers, "--no-report", "--out", run)
    colonnade("run", flowers, "--no-report", "--set", "federation.seed=1")
    assert_same_run(Path("one"), Path("two"))
    assert metrics(Path("runs/iris-vafl-1")) != metrics(Path("one"))


def test_noised_releases_are_counted() -> None:
    noised = ("--set", "privacy.noise=0.5", "--set", "privacy.clip=1")
    answer = colonnade("run", toml("flowers.toml", IRIS), *noised, "--out", "mine", "--no-report")
    assert "ε = " in answer.out and "columns of party" in answer.out
    assert Path("mine/ledger.jsonl").read_text()
