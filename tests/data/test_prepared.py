"""A party's own table: every column is taken as what it is, by its train rows alone, the same at any later time."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from threadpoolctl import threadpool_limits

from colonnade.data import ColumnSettings, DataSettings, PartyData, from_frames
from colonnade.data.fitting import prepare_own
from colonnade.data.preparation import prepare_table
from colonnade.data.prepared import ChosenRows, Preparation, Sheet
from colonnade.data.sources import read_table
from colonnade.errors import DataError, SettingsError


def prepared(columns: dict, train=None, test=(), data: DataSettings | None = None, **prepare: ColumnSettings):
    """Prepared columns by name, of the train rows and then of the test rows."""
    rows = len(next(iter(columns.values())))
    table = read_table(pd.DataFrame({"id": range(rows), **columns}), party="shop", id="id")
    train = np.arange(rows - len(test)) if train is None else np.array(train)
    return prepare_own(
        table,
        table.columns,
        train,
        np.array(test, dtype=np.intp),
        own=PartyData(prepare=prepare),
        data=data or DataSettings(),
        party="shop",
    )


def values(made) -> dict[str, list[float]]:
    both = np.concatenate([made.train.numpy(), made.test.numpy()])
    return {name: both[:, j].round(4).tolist() for j, name in enumerate(made.names)}


def test_numbers_come_out_as_in_a_table_prepared_at_once() -> None:
    matrix = np.random.default_rng(0).normal(5, 3, (400, 3))
    at_once = prepare_table(matrix[:300], matrix[300:], list("abc"), party="p", standardise=True, missing="refuse")
    made = prepared(dict(zip("abc", matrix.T, strict=True)), test=range(300, 400))
    assert made.train.equal(at_once.train) and made.test.equal(at_once.test)
    assert made.names == ("a", "b", "c")


@pytest.mark.parametrize("rows", [12, 40_000])
def test_rows_come_in_the_order_in_which_they_are_wanted_some_twice(rows: int) -> None:
    draw = np.random.default_rng(1)
    wanted = draw.integers(0, rows, rows - 1)
    columns = [draw.normal(size=rows).astype(np.float32) for _ in range(11)]
    chosen = ChosenRows(wanted)
    assert chosen.lying.tolist() == sorted(set(wanted.tolist()))
    sheet = Sheet(chosen, 12)
    for place, column in enumerate(columns):
        pieces = sheet.column(place + (place > 8))  # the tenth is somebody else's
        borders = np.cumsum([len(one) for one in pieces])[:-1]
        for piece, own in zip(pieces, np.split(column[chosen.lying], borders), strict=True):
            piece[:] = own
    filled = sheet.filled()
    assert (np.delete(filled, 9, axis=1) == np.stack(columns, axis=1)[wanted]).all() and not filled[:, 9].any()


def test_gaps_become_the_median_and_a_column_that_tells() -> None:
    made = values(prepared({"a": [1.0, None, 3.0, 8.0, None]}, test=[4], data=DataSettings(standardise=False)))
    assert made == {"a": [1, 3, 3, 8, 3], "a is missing": [0, 1, 0, 0, 1]}


def test_gaps_of_test_rows_alone_need_no_column() -> None:
    assert values(prepared({"a": [1.0, 3.0, None]}, test=[2])) == {"a": [-1, 1, 0]}


def test_numbers_are_cut_at_quantiles_and_taken_by_their_logarithm() -> None:
    asked = ColumnSettings(clip=(0.0, 0.75), log=True, standardise=False)
    made = values(prepared({"a": [-1.0, 0.0, 1.0, 3.0, 1e9, -1e9]}, test=[5], a=asked))
    assert made["a"] == pytest.approx([-np.log(2), 0, np.log(2), np.log(4), np.log(4), -np.log(2)], abs=1e-3)


def test_few_words_become_a_column_each_and_one_for_what_is_unseen() -> None:
    made = values(prepared({"c": ["red", " blue", "red", "?", "green", None]}, test=[4, 5]))
    assert made == {
        "c=blue": [0, 1, 0, 0, 0, 0],
        "c=red": [1, 0, 1, 0, 0, 0],
        "c is unseen": [0, 0, 0, 0, 1, 0],
        "c is missing": [0, 0, 0, 1, 0, 1],
    }


def test_rare_words_are_taken_as_unseen() -> None:
    made = prepared({"c": ["a"] * 500 + ["b"] * 498 + ["rare"] * 2})
    assert made.names == ("c=a", "c=b", "c is unseen")
    assert made.train[:, 2].sum() == 2


def test_many_words_are_hashed_and_sentences_are_cut_into_words() -> None:
    many = [f"Street {i}" for i in range(60)]
    texts = [f"the customer number {i} is content" for i in range(60)]
    made = prepared({"street": many, "note": texts}, street=ColumnSettings(), note=ColumnSettings(buckets=16))
    assert (made.train[:, :64].sum(1) == 1).all()
    assert made.train[:, 64:].square().sum(1).numpy() == pytest.approx(np.ones(60), abs=1e-5)
    assert len(made.names) == 64 + 16 and made.names[64] == "note words 1"


def test_an_order_of_categories_can_be_given() -> None:
    asked = ColumnSettings("ordinal", categories=("low", "middle", "high"), standardise=False)
    made = prepared({"c": ["high", "low", "middle", "?", "new"]}, test=[3, 4], c=asked)
    assert values(made) == {"c": [2, 0, 1, 0, 0]}


def test_numbers_and_dates_in_text_are_recognised() -> None:
    dates = ["2024-01-01", "2024-01-02", "2024-01-03", "NA"]
    made = prepared({"n": [" 1", "+2", "3e0", "2"], "d": dates}, data=DataSettings(standardise=False))
    assert values(made)["n"] == [1, 2, 3, 2]
    assert values(made)["d days"][:3] == [19723, 19724, 19725]
    assert {"d weekday sine", "d day cosine", "d is missing"} <= set(made.names)
    assert "d month sine" not in made.names  # which does not vary


def test_times_and_other_forms_of_dates() -> None:
    stamps = pd.to_datetime(["2024-01-01 06:00", "2024-01-01 18:00"])
    made = prepared(
        {"t": stamps, "g": ["31.12.2023", "01.01.2024"], "u": ["12/31/23", "01/02/24"]},
        u=ColumnSettings("date", format="%m/%d/%y", parts=("days",), standardise=False),
    )
    assert values(made)["t hour sine"] == [1, -1]
    assert values(made)["u days"] == [19722, 19724]
    assert values(made)["g days"] == [-1, 1]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("1.{:03},50", "numbers with thousands separators"),
        ("{},234.5", "numbers with thousands separators"),
        ("{} %", "numbers with thousands separators"),
        ("€ {}.5", "numbers with thousands separators"),
        ("1/{}/2024", "day and month cannot be told apart"),
        ("1/{}/2024 10:00:00 AM", "day and month cannot be told apart"),
    ],
)
def test_what_is_a_number_or_a_date_for_a_person_alone_is_not_taken_as_words_unasked(form: str, said: str) -> None:
    texts = [form.format(1 + number % 27) for number in range(40)]
    with pytest.raises(DataError, match=said) as told:
        prepared({"x": texts, "y": range(40)})
    assert texts[3] not in str(told.value)
    assert "x=" in " ".join(prepared({"x": texts, "y": range(40)}, x=ColumnSettings("one-hot")).names)


def test_words_with_numbers_in_them_stay_words() -> None:
    texts = ["10-19", "20-29", "192.168.0.1", "A/1", "1.2.3", "3 rooms"] * 6
    assert "x=10-19" in prepared({"x": texts, "y": range(36)}).names


def test_numbers_that_are_codes_can_be_taken_as_categories() -> None:
    made = prepared({"c": [1.0, 2.0, 1.0]}, c=ColumnSettings("one-hot"))
    assert made.names == ("c=1", "c=2", "c is unseen")


def test_all_complaints_come_at_once_and_show_no_value() -> None:
    rows = 20
    columns = {
        "income": [1.0] * 19 + [np.inf],
        "age": ["30"] * 18 + ["secret", "31"],
        "born": ["2000-01-01"] * 19 + ["2000-02-30"],
        "empty": [None] * rows,
        "list": [[1]] * rows,
    }
    with pytest.raises(DataError) as caught:
        prepared(columns)
    told = str(caught.value)
    assert "Party 'shop': its frame" in told
    assert "column 'income', row 20: is infinite" in told
    assert "column 'age', row 19: is text where a number belongs" in told
    assert "column 'born', row 20: is no date" in told
    assert "column 'empty' has no value in any train row" in told
    assert "column 'list' is of the type" in told
    assert "secret" not in told and "30" not in told.replace("02-30", "")


def test_rows_are_named_as_they_lie_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text("id,age\n" + "".join(f"{i},{i}\n" for i in range(30)) + "x,old\n")
    shop = tmp_path / "shop.csv"
    bank = pd.DataFrame({"id": [*map(str, range(30)), "x"], "y": [0, 1] * 15 + [1]})
    with pytest.raises(DataError, match=r"the file '.*shop.csv' cannot be used.*\n  column 'age', row 31: is text"):
        from_frames({"bank": bank, "shop": shop}, label_party="bank", label="y")


def test_gaps_can_be_refused() -> None:
    with pytest.raises(DataError, match="column 'a' misses a value in 1 train rows"):
        prepared({"a": [1.0, None], "b": [1, 2]}, data=DataSettings(missing="refuse"))


def test_too_large_numbers_and_parties_without_anything_to_tell_are_refused() -> None:
    with pytest.raises(DataError, match="column 'a', row 3: is too large for a 32-bit float"):
        prepared({"a": [0.0, 1e-30, 1e30]}, test=[2])
    with pytest.raises(DataError, match="each of its 1 columns is constant"):
        prepared({"a": [0.1, 0.1, 5.0]}, test=[2])


def test_a_column_can_be_left_out_and_one_that_is_not_there_is_named() -> None:
    assert prepared({"a": [1, 2], "b": [3, 4]}, b=ColumnSettings("leave-out")).names == ("a",)
    with pytest.raises(SettingsError, match=r"prepares a column 'incom'\. Did you mean 'income'"):
        prepared({"income": [1, 2]}, incom=ColumnSettings())


class Doubled:
    """An encoder of a user's own."""

    def __init__(self, largest: float = 1.0) -> None:
        self.largest = largest

    def fit(self, values: list) -> None:
        self.largest = max(value for value in values if value is not None)

    def transform(self, values: list) -> np.ndarray:
        return np.array([[0, 1] if value is None else [2 * value / self.largest, 0] for value in values])

    def to_values(self) -> dict:
        return {"largest": self.largest}

    @classmethod
    def from_values(cls, values: dict) -> "Doubled":
        return cls(values["largest"])


EVERYTHING = {
    "number": [1.0, 2.0, None, 4.0],
    "word": ["a", "b", "a", None],
    "date": ["2024-01-01", "2024-05-02", None, "2023-01-03"],
    "rank": ["low", "high", "low", "high"],
    "street": ["x", "y", "z", "x"],
    "text": ["one two", "two three", "three", "one"],
    "own": [1.0, 2.0, None, 4.0],
}


def test_a_column_whose_categories_are_all_others_now_is_refused() -> None:
    made = prepared({"town": ["Graz", "Linz"] * 10, "x": range(20)}).preparation

    def apply(towns: list) -> torch.Tensor:
        table = read_table(pd.DataFrame({"id": range(len(towns)), "town": towns, "x": 1}), party="shop", id="id")
        return made.apply(table, np.arange(len(towns)), party="shop")

    with pytest.raises(DataError, match="column 'town' has in none of its 20 rows a category that was there"):
        apply([8010, 4020] * 10)
    assert len(apply(["Graz"] + ["Wien"] * 19)) == 20
    assert len(apply(["Wien"])) == 1, "one new customer may come from anywhere"


def test_a_class_of_ones_own_that_fails_is_named_without_a_cell() -> None:
    with pytest.raises(DataError, match=r"Doubled.fit failed with ValueError: mend the class"):
        prepared({"a": [None, None], "b": [1, 2]}, a=ColumnSettings(f"{__name__}:Doubled"))
    with pytest.raises(DataError, match=r"Doubled.\w+ failed with TypeError") as told:
        prepared({"a": ["secret", "other"], "b": [1, 2]}, a=ColumnSettings(f"{__name__}:Doubled"))
    assert "secret" not in str(told.value)


def test_a_setting_for_another_kind_of_column_is_named() -> None:
    with pytest.raises(DataError, match="column 'a' is taken as one-hot, and its setting `log` is for number and date"):
        prepared({"a": ["x", "y"], "b": [1, 2]}, a=ColumnSettings(log=True))
    with pytest.raises(DataError, match="column 'b' is taken as number, and its setting `buckets` is for hashed"):
        prepared({"a": ["x", "y"], "b": [1, 2]}, b=ColumnSettings(buckets=3))


def test_what_was_learnt_is_plain_and_does_the_same_again() -> None:
    asked = {
        "rank": ColumnSettings("ordinal"),
        "street": ColumnSettings("hashed", buckets=4),
        "text": ColumnSettings("text", buckets=8),
        "own": ColumnSettings(f"{__name__}:Doubled"),
    }
    made = prepared(EVERYTHING, test=[3], **asked)
    again = Preparation.from_values(json.loads(json.dumps(made.preparation.to_values())))
    assert again.names == made.names
    table = read_table(pd.DataFrame({"id": range(4), **EVERYTHING}), party="shop", id="id")
    assert again.apply(table, np.array([3, 0]), party="shop").equal(torch.stack([made.test[0], made.train[0]]))
    assert "Preparation(7 columns" in repr(again)
    with pytest.raises(DataError, match="lacks columns that the model was trained with: word"):
        again.apply(
            read_table(pd.DataFrame({"id": range(4), **EVERYTHING}).drop(columns="word"), party="shop", id="id"),
            np.array([0]),
            party="shop",
        )


@pytest.mark.parametrize("wrong", [{}, {"columns": [{"kind": "number"}]}, {"columns": [{"name": "a", "format": ""}]}])
def test_values_that_are_no_preparation_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"."):
        Preparation.from_values(wrong)


def test_a_class_that_is_no_encoder_is_refused() -> None:
    with pytest.raises(SettingsError, match="cannot be imported"):
        prepared({"a": [1, 2]}, a=ColumnSettings("no_such_module:Thing"))
    with pytest.raises(SettingsError, match="has no fit, transform, to_values, from_values"):
        prepared({"a": [1, 2]}, a=ColumnSettings("pathlib:Path"))


def test_every_kind_of_frame_gives_the_same(tmp_path: Path) -> None:
    shop = pd.DataFrame({"id": range(8), "n": [1.0, 2, None, 4] * 2, "c": ["a", "b", None, "a"] * 2})
    bank = pd.DataFrame({"id": range(8), "y": ["no", "yes"] * 4})
    shop.to_parquet(tmp_path / "shop.parquet")
    shop.to_feather(tmp_path / "shop.feather")
    shop.to_csv(tmp_path / "shop.tsv", sep="\t", index=False)
    kinds = [
        shop,
        pl.from_pandas(shop),
        pl.from_pandas(shop).lazy(),
        pa.Table.from_pandas(shop),
        *(tmp_path / name for name in ("shop.parquet", "shop.feather", "shop.tsv")),
    ]
    made = [from_frames({"bank": bank, "shop": kind}, label_party="bank", label="y") for kind in kinds]
    for other in made[1:]:
        assert other.columns["shop"].train.equal(made[0].columns["shop"].train)
        assert other.columns["shop"].names == made[0].columns["shop"].names
        assert other.row_digest == made[0].row_digest
    assert made[0].labels.classes == ("no", "yes")
    assert made[0].row_counts["shop"] == (8, 8, 8)


def test_intervals_and_numbers_of_any_size_are_taken_from_pandas() -> None:
    ages = pd.cut(pd.Series(range(40)), 2)
    made = prepared({"age": ages, "large": [2**70 + 2**60 * number for number in range(40)], "none": [None, "x"] * 20})
    assert made.names[:4] == ("age=(-0.039, 19.5]", "age=(19.5, 39.0]", "age is unseen", "large")


def test_a_poor_match_warns_and_any_two_values_are_classes() -> None:
    bank = pd.DataFrame({"id": [f"{i:03d}" for i in range(20)] + ["a", "b"], "y": [0.25, 0.75] * 11})
    shop = pd.DataFrame({"id": [*range(20), "a", "b"], "n": range(22)})
    with pytest.warns(UserWarning, match=r"Fewer than half .* 22 would be if leading zeros are ignored"):
        data = from_frames(
            {"bank": bank, "shop": shop}, label_party="bank", label="y", rows="intersection", test_fraction=0
        )
    assert data.row_counts["bank"] == (22, 2, 2)
    assert (data.labels.task, data.labels.classes) == ("binary", (0.25, 0.75))


def test_a_scale_does_not_depend_on_the_number_of_threads():
    draws = np.random.default_rng(0).normal(size=(20, 40_000))
    scales = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            made = prepared({f"x{place}": column for place, column in enumerate(draws)})
        scales.append([column.encoder for column in made.preparation.columns])
    assert scales[0] == scales[1]
