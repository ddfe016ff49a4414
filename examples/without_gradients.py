"""A bottom model without gradients: decision stumps, each of which only says whether a column is above its threshold.

The derivative of such an answer by its threshold is zero wherever it exists, so no algorithm that back-propagates can
move a threshold. `cascaded` compares the losses at the thresholds and near them instead. All start 1.5 deviations above
the mean; beside the learnt ones the example shows what the same top model makes of thresholds that stay there.
"""

import torch

import colonnade
from colonnade import Cascaded, FlatModel, TopSettings, Training


def above(thresholds: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return (rows > thresholds).float()


def main(epochs: float = 15) -> dict[str, float]:
    patients = colonnade.dataset("breast_cancer", parties=3)
    stumps = {name: FlatModel(torch.full(own.shape, 1.5), above) for name, own in patients.columns.items()}
    looks = Cascaded(smoothing_radius=0.1, directions=4)  # near enough to see a row change sides
    accuracy = {}
    for thresholds, learning_rate in (("fixed", 1e-9), ("learnt", 0.2)):
        outcome = colonnade.train(
            patients,
            looks,
            bottom=stumps,
            top=TopSettings("concat-linear"),
            training=Training(
                epochs=epochs, batch_size=32, learning_rate=learning_rate, optimiser="sgd", top_learning_rate=0.2
            ),
        )
        accuracy[thresholds] = outcome.summary["test"]["accuracy"]
        print(f"{thresholds:7} thresholds   accuracy {accuracy[thresholds]:.3f}")
    print(outcome.models["party1"]["bottom"].vector.data)
    return accuracy


if __name__ == "__main__":
    main()
