"""`colonnade explain` as a user gives it: pages for each party, what they cost in privacy, and bad calls."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from command_line import colonnade as command
from command_line import draw_no_more, refused, toml
from tabled import frames

import colonnade
from colonnade.errors import RunError, SettingsError
from colonnade.federation.toml import write_toml
from colonnade.prediction.account import RowAccount, account_names
from colonnade.prediction.saved_model import find_model
from colonnade.privacy.gaussian import epsilon_of

PARTIES = ("label", "bank", "shop")


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_no_more(monkeypatch)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three tables."""
    folder = tmp_path_factory.mktemp("explained")
    for name, frame in frames().items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    settings = {
        "federation": {"label_party": "label"},
        "algorithm": {"name": "vafl"},
        "data": {"label": "bought"},
        "training": {"epochs": 4},
        "parties": {name: {"file": f"{name}.csv"} for name in PARTIES},
    }
    file = toml(str(folder / "federation.toml"), write_toml(settings))
    answer = command("run", file, "--out", folder / "run", "--no-report")
    assert answer.code == 0, answer.err
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished.parent, tmp_path / "all")
    return tmp_path / "all" / "run"


def test_each_party_gets_a_page_of_its_own_columns(run: Path) -> None:
    answer = command("explain", run, "--repeats", "1", "--json")
    assert answer.code == 0, answer.err
    assert set(answer.object["pages"]) == set(PARTIES)
    columns = {"label": ["visits"], "bank": ["age", "spent", "joined", "always"], "shop": ["city", "size"]}
    for party in PARTIES:
        shown = json.loads((run / "explain" / f"{party}.json").read_text())
        assert sorted(one["column"] for one in shown["columns"]) == sorted(columns[party])
        page = (run / "explain" / f"{party}.html").read_text()
        assert all((f">{name}<" in page) == (owner == party) for owner in PARTIES for name in columns[owner])
        assert (run / "explain" / f"{party}.html").stat().st_mode & 0o077 == 0
    assert not (run / "explain" / "everybody.json").exists()


def test_one_page_of_everything_on_request_alone(run: Path) -> None:
    answer = command("explain", run, "--repeats", "1", "--columns", "2", "--combined")
    assert "everybody:" in answer.out and "40 test rows" in answer.out, answer.err
    shown = json.loads((run / "explain" / "everybody.json").read_text())
    assert {one["party"] for one in shown["columns"]} == set(PARTIES)
    assert shown["left_out"] == 2
    command("explain", run, "--columns", "0")
    assert not (run / "explain" / "everybody.html").exists()


def test_the_same_seed_finds_the_same(run: Path, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        assert command("explain", run, "--repeats", "1", "--rows", "20", "--out", tmp_path / folder).code == 0
    one, other = ((tmp_path / folder / "shop.json").read_bytes() for folder in ("a", "b"))
    assert one == other


def test_changed_tables_are_refused(run: Path) -> None:
    bank = Path(json.loads((run / "summary.json").read_text())["settings"]["parties"]["bank"]["file"])
    kept = bank.read_bytes()
    frame = pd.read_csv(bank, dtype={"id": str})
    frame.loc[3, "age"] = 99
    frame.to_csv(bank, index=False)
    try:
        assert "columns of bank" in refused("explain", run)
    finally:
        bank.write_bytes(kept)


def test_wrong_calls_are_named(run: Path, tmp_path: Path) -> None:
    assert "it has no federation.toml" in refused("explain", tmp_path)
    assert "Did you mean 'test'" in refused("explain", run, "--on", "tset")
    assert "give 2 or more" in refused("explain", run, "--rows", "1")
    assert "There are 0 validation rows" in refused("explain", run, "--on", "validation")
    for party in ("bank", "shop"):
        shutil.rmtree(run / "model" / party)
    assert "holds the model of label alone" in refused("explain", run)
    shutil.rmtree(run / "model")
    assert "holds no model" in refused("explain", run)


# --- what it costs ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def iris() -> colonnade.FederatedData:
    return colonnade.dataset("iris", parties=2)


NOISE = colonnade.PerturbationSettings(noise=5.0, clip=1.0)
BRIEF = colonnade.Training(epochs=0.5, batch_size=16)


def test_noised_embeddings_are_counted_after_the_training(iris: colonnade.FederatedData, tmp_path: Path) -> None:
    outcome = colonnade.train(iris, "vafl", training=BRIEF, privacy=NOISE, out=tmp_path / "run")
    (before,) = [
        one["max_releases_per_row"]
        for one in outcome.summary["privacy"]["events"]
        if one["protects"] == "columns of party1, test rows"
    ]
    settings = colonnade.ExplainSettings(repeats=3)
    found = colonnade.explain(tmp_path / "run", iris, settings)
    more = 1 + 2 * 3  # its rows as they are, and two columns three times
    lines = [json.loads(line) for line in (tmp_path / "run" / "explain" / "ledger.jsonl").read_text().splitlines()]
    assert len([line for line in lines if line["party"] == "party1"]) == more
    assert {(line["noise"], line["sensitivity"], line["rows"]) for line in lines} == {(5.0, 2.0, iris.test_rows)}
    cost = (2 / 5) ** 2
    assert found.epsilon["party1"] == pytest.approx(epsilon_of(((before + more) * cost) ** 0.5, 1e-5))
    again = colonnade.explain(tmp_path / "run", iris, settings)
    assert again.epsilon["party1"] == pytest.approx(epsilon_of(((before + 2 * more) * cost) ** 0.5, 1e-5))
    assert again.loss != found.loss  # its noise is new
    assert {one.gradient for columns in found.columns.values() for one in columns} == {None}
    assert "noisy embeddings" in found.of("party1")["learnt"][0]
    with (tmp_path / "run" / "explain" / "ledger.jsonl").open("ab") as ledger:
        ledger.write(b'{"party": "par')  # a process was killed while it wrote
    assert colonnade.explain(tmp_path / "run", iris, settings).epsilon["party1"] == pytest.approx(
        epsilon_of(((before + 3 * more) * cost) ** 0.5, 1e-5)
    )
    (tmp_path / "run" / "explain" / "ledger.jsonl").write_bytes(b"not a line\n")
    with pytest.raises(RunError, match="no longer known"):
        colonnade.explain(tmp_path / "run", iris, settings)


def test_explanations_are_counted_in_the_account_that_predictions_use(tmp_path: Path) -> None:
    iris = colonnade.dataset("iris", parties=2)
    colonnade.train(iris, "vafl", training=BRIEF, privacy=NOISE, out=tmp_path / "run")
    account, cost = RowAccount(find_model(tmp_path / "run", "party1")), (2 / 5) ** 2
    names = account_names(iris.ids("party1")["test rows"])
    trained = account.totals()
    account.add({names[0]: 100 * cost})  # which a prediction may have cost a row
    found = colonnade.explain(tmp_path / "run", iris, colonnade.ExplainSettings(columns=0))
    now = account.totals()
    assert [now[name] - trained[name] for name in names[:2]] == pytest.approx([101 * cost, cost])
    assert found.epsilon["party1"] == pytest.approx(epsilon_of(now[names[0]] ** 0.5, 1e-5))
    (find_model(tmp_path / "run", "party1") / "account.msgpack").write_bytes(b"torn")
    with pytest.raises(RunError, match=r"account\.msgpack is missing or damaged"):
        colonnade.explain(tmp_path / "run", iris)


def test_a_target_is_kept(iris: colonnade.FederatedData) -> None:
    training = colonnade.Training(epochs=0.5, batch_size=16)
    target = colonnade.PerturbationSettings(columns_epsilon=8.0, noise=4.0, clip=1.0, bottom_update="frozen")
    outcome = colonnade.train(iris, "vafl", training=training, privacy=target)
    with pytest.raises(SettingsError, match=r"the run's target is 8.*Ask for fewer columns or repeats") as said:
        colonnade.explain(outcome, iris, colonnade.ExplainSettings(repeats=50))
    assert "release each row of party1 101 more times" in str(said.value)
    assert colonnade.explain(outcome, iris, colonnade.ExplainSettings(columns=0)).epsilon["party1"] < 8  # type: ignore[operator]
    planned = colonnade.PerturbationSettings(columns_epsilon=8.0, clip=1.0, bottom_update="frozen")
    spent = colonnade.train(iris, "vafl", training=training, privacy=planned)  # with as little noise as will do
    with pytest.raises(SettingsError, match=r"leaves 0 releases per row"):
        colonnade.explain(spent, iris, colonnade.ExplainSettings(columns=0))


def test_protected_labels_are_told_to_nobody(iris: colonnade.FederatedData, tmp_path: Path) -> None:
    outcome = colonnade.train(iris, colonnade.Dpzv(noise=1.0), training=BRIEF, out=tmp_path / "run")
    found = colonnade.explain(outcome, iris, colonnade.ExplainSettings(repeats=1))
    assert found.told == ("label",)
    assert {path.name for path in (tmp_path / "run" / "explain").glob("*.json")} == {"label.json"}
    assert "is told nothing" in found.learnt["party1"]
