"""Any torch module as a bottom model: one with dropout for the party with most columns, built-in ones for the others.

The module takes [rows, columns of that party] and returns [rows, features]. Dropout draws from the party's own
generator, is on in training and off in evaluation. A module keeps the weights it was built with, so torch is seeded
before it is built: that makes the run repeatable.
"""

import torch
from torch import nn

import colonnade


def bottom(columns: int) -> nn.Module:
    return nn.Sequential(nn.Linear(columns, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 8))


def main(epochs: float = 40) -> colonnade.Outcome:
    wine = colonnade.dataset("wine", parties=3)
    columns = wine.columns["party1"].shape[0]
    torch.manual_seed(0)
    outcome = colonnade.train(
        wine,
        colonnade.Vafl(),
        bottom={"party1": bottom(columns), "party2": colonnade.BottomSettings(embedding=8)},
        training=colonnade.Training(epochs=epochs, batch_size=16, learning_rate=0.1),
    )
    print(f"accuracy {outcome.summary['test']['accuracy']:.3f}")
    print(outcome.models["party1"]["bottom"])
    return outcome


if __name__ == "__main__":
    main()
