"""Models by name: they take the shapes they promise, and refuse others in a sentence."""

import pytest
import torch
from torch import nn

from colonnade.errors import SettingsError
from colonnade.models.bottom import BOTTOMS, BottomSettings, build_bottom
from colonnade.models.dense import is_dense
from colonnade.models.network import initialise, output_width
from colonnade.models.top import TOPS, TopSettings, build_top

IMAGES = [(1, 1), (1, 8), (8, 1), (7, 28), (14, 14), (3, 5), (3, 32, 8), (2, 1, 4), (1, 28, 28)]


@pytest.mark.parametrize("shape", IMAGES)
@pytest.mark.parametrize("kind", ["linear", "mlp", "cnn", "multi-view"])
def test_bottoms_take_strips_and_patches(kind: str, shape: tuple[int, ...]) -> None:
    module = build_bottom(BottomSettings(kind, embedding=5), shape)
    assert module(torch.randn(3, *shape)).shape == (3, 5)
    assert output_width(module, shape) == 5


def test_a_multi_view_model_does_not_mind_the_order_of_views() -> None:
    module = build_bottom(BottomSettings("multi-view", embedding=5, output_activation=False), (3, 6, 6))
    rows = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(module(rows), module(rows[:, [2, 0, 1]]))
    # One view is a cnn; of several the largest values count.
    assert isinstance(module, nn.Sequential)
    each = torch.stack([module[0].model(rows[:, [view]]) for view in range(3)])
    torch.testing.assert_close(module(rows), each.amax(0))
    with pytest.raises(SettingsError, match="'multi-view' was given rows of shape \\(9,\\)"):
        build_bottom(BottomSettings("multi-view"), (9,))


@pytest.mark.parametrize("shape", [(1, 1), (12, 3)])
def test_lstm_takes_series(shape: tuple[int, ...]) -> None:
    module = build_bottom(BottomSettings("lstm", embedding=5, hidden=(7,)), shape)
    assert output_width(module, shape) == 5


def test_lstm_embeds_the_last_hidden_state() -> None:
    module = build_bottom(BottomSettings("lstm", embedding=2, hidden=(3,), output_activation=False), (4, 2))
    assert isinstance(module, nn.Sequential)
    series = torch.randn(5, 4, 2)
    states, _ = module[0].lstm(series)
    torch.testing.assert_close(module(series), module[1](states[:, -1]))


@pytest.mark.parametrize("kind", [kind for kind in BOTTOMS if kind != "transformer"])  # test_pretrained.py
def test_the_output_activation(kind: str) -> None:
    rows = torch.randn(50, 6, 4, generator=torch.Generator().manual_seed(0))
    for activation in (True, False):
        module = build_bottom(BottomSettings(kind, output_activation=activation), (6, 4))
        initialise(module, 3)
        assert bool((module(rows) >= 0).all()) == (activation and kind != "linear")
    # Under a top that only sums, embeddings are the outputs: of their width, and of either sign.
    module = build_bottom(BottomSettings(kind), (6, 4), outputs=3)
    initialise(module, 3)
    assert module(rows).shape == (50, 3) and bool((module(rows) < 0).any())


def test_an_mlp_without_hidden_layers_is_linear_and_relu() -> None:
    module = build_bottom(BottomSettings(hidden=(), embedding=128), (196,))
    assert [type(layer) for layer in module.children()] == [nn.Linear, nn.ReLU]


@pytest.mark.parametrize("kind", TOPS)
def test_tops_map_embeddings_to_outputs_in_closed_form(kind: str) -> None:
    module = build_top(TopSettings(kind), widths=[4, 4, 4], outputs=4)
    assert output_width(module, (12,)) == 4
    assert is_dense(module)


def test_tops_by_hand() -> None:
    embeddings = torch.tensor([[1.0, 2.0, 10.0, 20.0]])
    total = build_top(TopSettings("sum"), [2, 2], 2)
    assert total(embeddings).tolist() == [[11.0, 22.0]]  # the bias starts at zero
    total.load_state_dict({"1.bias": torch.tensor([0.5, -0.5])})
    assert total(embeddings).tolist() == [[11.5, 21.5]]
    linear = build_top(TopSettings("concat-linear"), [3, 1], 1)
    linear.load_state_dict({"0.weight": torch.ones(1, 4), "0.bias": torch.zeros(1)})
    assert linear(embeddings).tolist() == [[33.0]]


def test_concatenating_tops_take_unequal_widths_and_summing_ones_do_not() -> None:
    assert output_width(build_top(TopSettings("concat-mlp"), [2, 5], 3), (7,)) == 3
    for kind in ("sum", "sum-mlp"):
        with pytest.raises(SettingsError, match="widths \\[2, 5\\]"):
            build_top(TopSettings(kind), [2, 5], 2)
    with pytest.raises(SettingsError, match="Give every bottom the width 3"):
        build_top(TopSettings("sum"), [2, 2], 3)
    with pytest.raises(SettingsError, match="without any embedding"):
        build_top(TopSettings(), [], 3)


def test_misspelt_names_offer_the_nearest() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'mlp'"):
        BottomSettings("mlpp")
    with pytest.raises(SettingsError, match="Did you mean 'concat-mlp'"):
        TopSettings("concat_mlp")


def test_bottoms_refuse_shapes_that_do_not_fit() -> None:
    with pytest.raises(SettingsError, match="'cnn' was given rows of shape \\(9,\\)"):
        build_bottom(BottomSettings("cnn"), (9,))
    with pytest.raises(SettingsError, match="'lstm' was given rows of shape \\(9,\\)"):
        build_bottom(BottomSettings("lstm"), (9,))
    with pytest.raises(SettingsError, match="without features"):
        build_bottom(BottomSettings(), ())


@pytest.mark.parametrize(
    "bad",
    [
        {"embedding": 0},
        {"hidden": (3, -1)},
        {"channels": (1.5,)},
        {"kind": "lstm", "hidden": ()},
        {"kind": "cnn", "channels": ()},
    ],
)
def test_bad_sizes_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=list(bad)[-1]):
        BottomSettings(**bad)  # type: ignore[arg-type]
