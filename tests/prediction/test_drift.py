"""Drift: rows of the same kind have not drifted, others have; a profile holds no row, and lies with its owner."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import colonnade, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from colonnade import load_model
from colonnade.prediction.profile import drift_of, drift_of_numbers, profile_of, quantiles_of

ROWS = 600


def people(seed: int, rows: int = ROWS, older: float = 0.0, towns: str = "Graz Linz Wien") -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    town = np.array(towns.split())[draw.integers(0, 3, rows)]
    return pd.DataFrame(
        {
            "id": [f"{seed}-{i}" for i in range(rows)],
            "age": draw.normal(40 + older, 10, rows).round(1),
            "town": town,
            "paid": np.where(draw.normal(size=rows) + 0.05 * draw.normal(40, 10, rows) > 2, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drift")
    table = people(0)
    table[["id", "age", "town"]].to_csv(folder / "shop.csv", index=False)
    table[["id", "paid"]].to_csv(folder / "bank.csv", index=False)
    (folder / "federation.toml").write_text(
        '[federation]\nlabel_party = "bank"\n[data]\nlabel = "paid"\nrows = "intersection"\n[training]\nepochs = 1\n'
        '[parties.shop]\nfile = "shop.csv"\n[parties.bank]\nfile = "bank.csv"\n',
        encoding="utf-8",
    )
    assert colonnade("run", folder / "federation.toml", "--out", folder / "run", "--no-report").code == 0
    return folder / "run"


def told(run: Path, *more: str | Path) -> dict[str, dict[str, str]]:
    found = colonnade("drift", run, "--json", *more).object
    return {party: {one["column"]: one["verdict"] for one in drifts} for party, drifts in found.items()}


def test_rows_of_the_same_kind_have_not_drifted(run: Path, tmp_path: Path) -> None:
    assert told(run) == {"shop": {"age": "as before", "town": "as before"}}
    people(1).to_parquet(tmp_path / "new.parquet")
    assert told(run, "--table", f"shop={tmp_path / 'new.parquet'}")["shop"] == {"age": "as before", "town": "as before"}


@pytest.mark.parametrize(
    "values",
    [[0.0], [0, 1], [0, 0, 0, 1], [0] * 16 + [1], [0, 1, 1, 2, 2, 2, 3, 5], np.sin(2 * np.pi * np.arange(7) / 7)],
    ids=["constant", "yes or no", "a quarter", "a sixteenth", "counts", "weekdays"],
)
@pytest.mark.parametrize("rows", [256, 4096])
def test_values_that_many_rows_have_have_not_drifted_by_themselves(values: list[float], rows: int) -> None:
    """Standardised as float32, with more digits than a profile keeps, and in the very same shares."""
    column = np.resize(np.array(values), 5 * rows)
    prepared = torch.from_numpy(((column - 0.3712345) / 1.1234567).astype(np.float32))[:, None]
    profile = profile_of(prepared[:rows], ["x"])
    assert profile is not None
    (found,) = drift_of(profile, prepared)
    assert found.index < 0.01 and found.distance is not None and found.distance < 0.01, found
    (other,) = drift_of(profile, prepared + 3.0)
    assert other.verdict == "drifted", other


def test_older_people_of_other_towns_have(run: Path, tmp_path: Path) -> None:
    people(2, older=8).to_csv(tmp_path / "older.csv", index=False)
    assert told(run, "--table", f"shop={tmp_path / 'older.csv'}")["shop"] == {"age": "drifted", "town": "as before"}
    people(3, towns="Graz Bregenz Lustenau").to_csv(tmp_path / "towns.csv", index=False)
    assert told(run, "--table", f"shop={tmp_path / 'towns.csv'}")["shop"] == {"age": "as before", "town": "drifted"}


def test_the_model_of_one_party_is_enough(run: Path, tmp_path: Path) -> None:
    people(2, older=8).to_csv(tmp_path / "older.csv", index=False)
    answer = colonnade("drift", run / "model" / "shop", "--table", tmp_path / "older.csv")
    assert answer.code == 0 and "drifted" in answer.out and "age" in answer.out


def test_predictions_at_the_label_party(run: Path, tmp_path: Path) -> None:
    people(4).to_csv(tmp_path / "new.csv", index=False)
    table = f"shop={tmp_path / 'new.csv'}"
    assert colonnade("predict", run, "--out", tmp_path / "said.csv", "--table", table).code == 0
    name = "probability of yes"
    assert told(run, "--predictions", tmp_path / "said.csv") == {"bank": {name: "as before"}}
    said = pd.read_csv(tmp_path / "said.csv")
    said[name] = 0.5 * said[name]
    said.to_csv(tmp_path / "other.csv", index=False)
    assert told(run, "--predictions", tmp_path / "other.csv") == {"bank": {name: "drifted"}}


def test_a_profile_lies_with_its_owner_and_holds_no_row(run: Path) -> None:
    shop = (run / "model" / "shop" / "profile.json").read_text(encoding="utf-8")
    bank = (run / "model" / "bank" / "profile.json").read_text(encoding="utf-8")
    assert "age" in shop and "age" not in bank and "town" not in bank
    profile = json.loads(shop)
    model = load_model(run)
    prepared = model.parties["shop"].preparation  # type: ignore[union-attr]
    assert prepared is not None
    age = next(one for one in profile["columns"] if one["name"] == "age")["quantiles"]
    assert len(age) <= profile["rows"] / 10  # ten rows between two of them
    assert (run / "model" / "shop" / "profile.json").stat().st_mode & 0o077 == 0


def test_bad_input(run: Path, tmp_path: Path) -> None:
    people(5, rows=20).to_csv(tmp_path / "few.csv", index=False)
    assert "has 20 rows" in refused("drift", run, "--table", f"shop={tmp_path / 'few.csv'}")
    assert "give PARTY=FILE" in refused("drift", run, "--table", tmp_path / "few.csv")
    assert "no party with a model here 'telco'" in refused("drift", run, "--table", "telco=x.csv").replace(
        "There is ", ""
    )
    people(5).drop(columns="town").to_csv(tmp_path / "lacks.csv", index=False)
    assert "lacks columns" in refused("drift", run, "--table", f"shop={tmp_path / 'lacks.csv'}")
    assert "has no column 'probability of yes'" in refused("drift", run, "--predictions", tmp_path / "lacks.csv")
    assert "holds no model" in refused("drift", tmp_path)


def test_a_damaged_profile_is_said(run: Path, tmp_path: Path) -> None:
    model = load_model(run)
    folder = model.save(tmp_path / "model")
    assert (folder / "shop" / "profile.json").read_bytes() == (run / "model" / "shop" / "profile.json").read_bytes()
    (folder / "shop" / "profile.json").write_bytes(b"{}")
    assert "is damaged" in refused("drift", folder, "--table", "shop=x.csv")


def test_few_rows_and_images_have_no_profile() -> None:
    assert profile_of(torch.zeros(99, 2), ["a", "b"]) is None
    assert profile_of(torch.zeros(200, 2, 2), ["a", "b"]) is None


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(-1, 1), st.booleans())
def test_the_distance_is_that_of_scipy(seed: int, shift: float, discrete: bool) -> None:
    draw = np.random.default_rng(seed)
    before, now = draw.normal(size=3000), draw.normal(shift, size=500)
    if discrete:
        before, now = before.round(), now.round()
    found = drift_of_numbers("x", quantiles_of(before), now, 3000)
    assert found.distance == pytest.approx(ks_2samp(before, now).statistic, abs=0.03)


def test_chance_is_what_chance_gives() -> None:
    """The mean index of many pairs of samples of one distribution, beside the formula."""
    draw = np.random.default_rng(0)
    profile = profile_of(torch.from_numpy(draw.normal(size=(2000, 200))), [str(i) for i in range(200)])
    assert profile is not None
    found = drift_of(profile, torch.from_numpy(draw.normal(size=(400, 200))))
    assert np.mean([one.index for one in found]) == pytest.approx(found[0].chance, rel=0.15)
    assert all(one.verdict == "as before" for one in found)
