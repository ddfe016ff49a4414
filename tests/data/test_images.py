"""Images in a party's own table: pixels by hand, gaps, what is no image, and a model that is trained on them."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import colonnade
from colonnade.data import ColumnSettings
from colonnade.data.prepared import Preparation
from colonnade.data.sources import read_table
from colonnade.errors import DataError, SettingsError


def png(shade: int, side: int = 4) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (side, side), (shade, 0, 255)).save(out, "PNG")
    return out.getvalue()


def federation(cells: list[object], **asked: object) -> colonnade.FederatedData:
    rows = len(cells)
    bank = pd.DataFrame({"id": range(rows), "paid": [row % 2 for row in range(rows)]})
    shop = pd.DataFrame({"id": range(rows), "photo": cells})
    kind = ColumnSettings(kind="image", **{"size": (2, 3), **asked})  # type: ignore[arg-type]
    frames = {"bank": bank, "shop": shop}
    return colonnade.from_frames(
        frames,
        label_party="bank",
        label="paid",
        prepare={"shop": {"photo": kind}},
        test_fraction=0.25,
        standardise=False,
    )


def test_pixels_are_channels_height_and_width_from_0_to_1() -> None:
    data = federation([png(51 * (row % 5)) for row in range(8)])
    held = data.columns["shop"]
    assert held.shape == (3, 2, 3) and len(held.names) == 18
    both = torch.cat([held.train, held.test])
    assert sorted({round(float(shade), 4) for shade in both[:, 0].flatten()}) == [0, 0.2, 0.4, 0.6, 0.8]
    assert (both[:, 1] == 0).all() and (both[:, 2] == 1).all()


def test_channels_are_standardised_by_train_rows_and_a_gap_is_their_mean() -> None:
    cells: list[object] = [png(shade) for shade in (0, 255, 0, 255, 0, 255, 0)] + [None]
    held = federation(cells, standardise=True, channels=1, missing="mean").columns["shop"]
    both = torch.cat([held.train, held.test])
    gap = [row for row in both if not row.any()]
    assert len(gap) == 1 and held.shape == (1, 2, 3)
    shades = {round(float(row.flatten()[0]), 3) for row in both if row.any()}
    assert len(shades) == 2 and min(shades) < 0 < max(shades)


def test_a_prediction_prepares_as_the_training_did(tmp_path: Path) -> None:
    held = federation([png(30 * row) for row in range(8)], standardise=True).columns["shop"]
    assert held.preparation is not None
    again = Preparation.from_values(held.preparation.to_values())
    for row in range(8):
        (tmp_path / f"{row}.png").write_bytes(png(30 * row))
    table = pd.DataFrame({"id": range(8), "photo": [str(tmp_path / f"{row}.png") for row in range(8)]})
    found = again.apply(read_table(table, party="shop", id="id"), np.arange(8), party="shop")
    both = {tuple(row.flatten().tolist()) for row in torch.cat([held.train, held.test])}
    assert found.shape == (8, 3, 2, 3) and {tuple(row.flatten().tolist()) for row in found} == both


@pytest.mark.parametrize("wrong", [b"secret cell", "no/such/secret.png", png(9, 8)[:44]])
def test_what_is_no_image_is_named_by_row_and_column_and_not_repeated(wrong: object) -> None:
    cells = [png(9)] * 7 + [wrong] if isinstance(wrong, bytes) else [__file__.replace(".py", ".none")] * 7 + [wrong]
    with pytest.raises(DataError) as refused:
        federation(cells)
    told = str(refused.value)
    assert "its frame" in told and "column 'photo', row" in told and "is no image" in told
    assert "secret" not in told


def test_numbers_are_no_images_and_bytes_without_a_kind_get_a_hint() -> None:
    with pytest.raises(DataError, match="bytes of image files, or paths"):
        federation([1, 2, 3, 4, 5, 6, 7, 8])
    shop = pd.DataFrame({"id": range(4), "photo": [png(1)] * 4})
    bank = pd.DataFrame({"id": range(4), "paid": [0, 1, 0, 1]})
    with pytest.raises(DataError, match="kind = 'image'"):
        colonnade.from_frames({"bank": bank, "shop": shop}, label_party="bank", label="paid")


@pytest.mark.parametrize("asked", [{"size": ()}, {"size": (0, 3)}, {"channels": 2}, {"kind": "number"}])
def test_settings_that_cannot_be_are_refused(asked: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"size|channels"):
        ColumnSettings(**{"kind": "image", "size": (2, 2), **asked})  # type: ignore[arg-type]


def test_a_cnn_is_trained_on_them_saved_and_predicts_from_files(tmp_path: Path) -> None:
    rows = 24
    for row in range(rows):
        (tmp_path / f"{row}.png").write_bytes(png(255 * (row % 2), 8))
    pd.DataFrame({"id": range(rows), "photo": [f"{row}.png" for row in range(rows)]}).to_csv(
        tmp_path / "shop.csv", index=False
    )
    pd.DataFrame({"id": range(rows), "paid": [row % 2 for row in range(rows)]}).to_csv(
        tmp_path / "bank.csv", index=False
    )
    (tmp_path / "federation.toml").write_text(
        '[federation]\nlabel_party = "bank"\n[data]\nlabel = "paid"\n[bottom]\nkind = "cnn"\nchannels = [4]\n'
        '[training]\nepochs = 8\nbatch_size = 6\n[parties.bank]\nfile = "bank.csv"\n[parties.shop]\nfile = "shop.csv"\n'
        '[parties.shop.prepare.photo]\nkind = "image"\nsize = [8, 8]\n'
    )
    from colonnade.cli.application import command

    command()(
        ["run", str(tmp_path / "federation.toml"), "--out", str(tmp_path / "run"), "--json"], standalone_mode=False
    )
    found = colonnade.predict(tmp_path / "run")
    assert [int(value) for value in found.predicted] == [int(one) % 2 for one in found.ids]
