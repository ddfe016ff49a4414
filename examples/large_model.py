"""A pre-trained transformer of 22.7 million parameters, fine-tuned by a party in the memory of the model alone.

A shop has what its customers wrote; a bank, who stayed, and how long they have been customers. The shop's bottom model
is all-MiniLM-L6-v2 whole, to which gradients and an optimiser's memory would add one to three times its size: `dpzv`
needs neither. With a rank, the transformer stays as it is, and adapters of that rank beside it are trained.

Needs `pip install 'colonnade[transformers]'`. All texts come from a seeded generator, and nothing is downloaded.
Usage: python examples/large_model.py [RANK]
"""

import sys

import numpy as np
import pandas as pd

import colonnade
from colonnade import BottomSettings, Training
from colonnade.data import ColumnSettings

WHAT = [
    "parcel",
    "invoice",
    "website",
    "shoes",
    "jacket",
    "refund",
    "courier",
    "voucher",
    "zip",
    "battery",
    "lamp",
    "kettle",
    "order",
]
STAYS = """arrived early and I am delighted|works like a charm|was sorted out within the hour|exceeded what I hoped for
made my whole family smile|looks even better than in the picture|was fixed with a friendly call|is a joy to use
could not be easier|will be my choice again""".replace("\n", "|").split("|")
LEAVES = """never turned up and nobody cares|broke on the first day|was charged twice and ignored since
is a disgrace for that money|left me waiting for three weeks|smells awful and goes back|still has not been answered
ruined our holiday|was the last straw for me|fell apart in my hands""".replace("\n", "|").split("|")


def tables(customers: int, seed: int = 7) -> dict[str, pd.DataFrame]:
    """One table a party, by customer."""
    generator = np.random.default_rng(seed)
    glad = generator.random(customers) < 0.5
    words = [f"The {generator.choice(WHAT)} {generator.choice(STAYS if one else LEAVES)}." for one in glad]
    years = generator.gamma(2.0, 2.0, customers)
    chance = 1 / (1 + np.exp(-(5 * glad - 2.5 + 0.4 * (years - 4))))
    stayed = generator.random(customers) < chance
    ids = np.arange(customers)
    return {
        "bank": pd.DataFrame({"id": ids, "years": years.round(1), "stayed": np.where(stayed, "yes", "no")}),
        "shop": pd.DataFrame({"id": ids, "message": words}),
    }


def main(lora: int = 0, customers: int = 800, epochs: float = 4) -> float:
    data = colonnade.from_frames(
        tables(customers),
        label_party="bank",
        label="stayed",
        prepare={"shop": {"message": ColumnSettings(kind="tokens", tokens=24)}},
    )
    outcome = colonnade.train(
        data,
        colonnade.Dpzv(distribution="signs"),  # which are drawn eight times as fast as normals
        bottom={"shop": BottomSettings("transformer", embedding=32, lora=lora)},
        training=Training(epochs=epochs, batch_size=16),
    )
    accuracy = float(outcome.summary["test"]["accuracy"])
    print(f"accuracy {accuracy:.3f} on {data.test_rows} test rows")
    return accuracy


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
