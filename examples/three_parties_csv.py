"""Makes the files of the tutorial: three parties' CSV files, and the federation.toml that joins them.

A bank knows who paid back a loan and some columns of its own; a shop and a phone company know other columns about the
same customers. All numbers come from a seeded generator. Usage: python examples/three_parties_csv.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

FEDERATION = """\
# What all parties share. The bank holds the label, so it is the label party.
[federation]
name = "loans"
label_party = "bank"
seed = 0

[data]
id = "customer"
label = "paid_back"
rows = "intersection"  # train on the customers that all three know

[parties.shop]
file = "shop.csv"

[parties.phone]
file = "phone.csv"

[parties.bank]
file = "bank.csv"
columns = ["income", "debt"]  # leave the branch number out

[algorithm]
name = "vafl"

[training]
epochs = 30
batch_size = 32
learning_rate = 0.1

[simulate.parties.phone]
slowdown = 3.0  # a straggler
"""


def tables(customers: int = 2000, seed: int = 7) -> dict[str, pd.DataFrame]:
    """One table a party. Every party lacks some customers, and each keeps them in an order of its own."""
    generator = np.random.default_rng(seed)
    ids = np.array([f"c{number:05d}" for number in range(customers)])
    thrift, habit, mobility = generator.normal(size=(3, customers))
    chance = 1 / (1 + np.exp(-2.5 * (thrift + habit * mobility)))
    bank = {
        "income": np.exp(10 + 0.4 * thrift + 0.2 * generator.normal(size=customers)).round(),
        "debt": np.exp(8 - 0.5 * thrift + 0.5 * generator.normal(size=customers)).round(),
        "branch": generator.integers(1, 40, customers),
        "paid_back": np.where(generator.random(customers) < chance, "yes", "no"),
    }
    shop = {
        "orders": generator.poisson(np.exp(2 + 0.6 * habit)),
        "returned_share": (1 / (1 + np.exp(2 + habit + 0.5 * generator.normal(size=customers)))).round(3),
        "mean_basket": np.exp(3.5 + 0.3 * habit + 0.2 * generator.normal(size=customers)).round(2),
    }
    phone = {
        "calls_abroad": generator.poisson(np.exp(1 + 0.8 * mobility)),
        "contract_months": (24 - 6 * mobility + 3 * generator.normal(size=customers)).clip(1).round(),
        "cells_visited": generator.poisson(np.exp(3 + 0.4 * mobility)),
    }
    made = {}
    for party, columns in {"bank": bank, "shop": shop, "phone": phone}.items():
        known = generator.permutation(customers)[: int(0.95 * customers)]
        made[party] = pd.DataFrame({"customer": ids, **columns}).iloc[known]
    return made


def main(folder: Path, customers: int = 2000) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for party, table in tables(customers).items():
        table.to_csv(folder / f"{party}.csv", index=False)
        print(f"{folder / party}.csv: {len(table)} customers, columns {', '.join(table.columns[1:])}")
    (folder / "federation.toml").write_text(FEDERATION, encoding="utf-8")
    print(f"Now run: colonnade run {folder / 'federation.toml'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "loans"))
