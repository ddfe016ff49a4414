"""An LSTM reads a strip of a grey image row of pixels by row of pixels, as it reads a series."""

import pytest
import torch

from colonnade.errors import SettingsError
from colonnade.models.bottom import BottomSettings, build_bottom
from colonnade.models.network import initialise, network_for

LSTM = BottomSettings("lstm", embedding=3, hidden=(5,))


def test_a_strip_is_the_series_of_its_rows_of_pixels() -> None:
    strip, series = build_bottom(LSTM, (1, 4, 8)), build_bottom(LSTM, (4, 8))
    initialise(strip, 1)
    initialise(series, 1)
    pixels = torch.randn(6, 1, 4, 8)
    embedded = strip(pixels)
    torch.testing.assert_close(embedded, series(pixels[:, 0]), rtol=0, atol=0)
    assert not torch.equal(embedded, strip(pixels.flip(2)))  # the order of the rows matters


def test_a_strip_trains() -> None:
    module = build_bottom(LSTM, (1, 2, 8))
    initialise(module, 1)
    network = network_for(module)
    outputs, kept = network.forward(torch.randn(6, 1, 2, 8))
    gradients, _ = network.backward(kept, torch.ones_like(outputs))
    assert [gradient.shape for gradient in gradients] == [parameter.shape for parameter in network.parameters]
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


def test_colours_are_no_series() -> None:
    with pytest.raises(SettingsError, match=r"'lstm' was given rows of shape \(3, 4, 8\)"):
        build_bottom(LSTM, (3, 4, 8))
