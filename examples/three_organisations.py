"""Makes the tables and settings of three organisations, as they are in life: another kind each, dirty, with gaps.

A bank has a CSV file with `;` and decimal commas, a shop a Parquet file with words and dates, a clinic a table of a
database. All invented. Usage: python examples/three_organisations.py FOLDER [DATABASE], where DATABASE is an
SQLAlchemy address such as postgresql+psycopg://clinic:${CLINIC_PASSWORD}@localhost/visits (in single quotes: the
password is read from the environment, here and later by Colonnade); without one, an SQLite file is made.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import sqlalchemy

SHARED = """\
# What all three share. It is compared when they meet.
[federation]
name = "credit"
label_party = "bank"
seed = 1

[data]
id = "customer"
label = "paid_back"
rows = "aligned"
validation = 0.1

[alignment.rules.customer]
case = "lower"
spaces = "strip"

[parties.bank]
[parties.shop]
[parties.clinic]

[algorithm]
name = "vafl"
wait_for = 2

[training]
epochs = 20

[network]
address = "127.0.0.1:{port}"
"""
OWN = """\
# {name}'s own: it never leaves.
[party]
name = "{name}"{listen}
out = "run"

[data]
{source}
aligned = "run-align"

[keys]
certificate = "{name}.pem"
key = "{name}.key"
authority = "authority.pem"
revoked = "revoked.txt"
"""


def tables(customers: int = 1500, seed: int = 11) -> dict[str, pd.DataFrame]:
    """One per organisation, each with nine in ten of the customers, in an order of its own."""
    draw = np.random.default_rng(seed)
    ids = np.array([f"C{number:05}" for number in range(customers)])
    thrift, habit, health = draw.normal(size=(3, customers))
    paid_back = np.where(thrift + habit + health + 0.3 * draw.normal(size=customers) > 0, "yes", "no")
    jobs = np.select([thrift < -0.5, thrift < 0.5], ["casual", "clerk"], "civil servant")
    bank = {"income": np.exp(10 + 0.4 * thrift).round(2), "job": jobs, "paid_back": paid_back}
    days = np.datetime64("2024-01-01") + (200 + 60 * habit).clip(0).astype(int)
    shop = {"orders": draw.poisson(np.exp(1.5 + 0.6 * habit)), "last order": days, "favourite": _favourite(habit)}
    clinic = {"visits": draw.poisson(np.exp(1 - 0.7 * health)), "smoker": np.where(health < -0.3, "yes", "no")}
    made = {}
    for name, columns in {"bank": bank, "shop": shop, "clinic": clinic}.items():
        known = draw.permutation(customers)[: customers * 9 // 10]
        made[name] = pd.DataFrame({"customer": ids, **columns}).iloc[known].reset_index(drop=True)
    made["shop"]["customer"] = made["shop"]["customer"].str.lower() + " "  # the same customers, written otherwise
    for name, column in (("bank", "income"), ("shop", "orders"), ("clinic", "smoker")):
        gaps = draw.random(len(made[name])) < 0.05
        made[name][column] = made[name][column].convert_dtypes().mask(gaps)
    return made


def _favourite(habit: np.ndarray) -> np.ndarray:
    return np.select([habit < -0.4, habit < 0.4], ["garden", "books"], "tools")


def main(folder: Path, database: str = "", port: int = 7443, customers: int = 1500) -> None:
    made = tables(customers)
    database = database or "sqlite:///clinic.sqlite"  # relative to the clinic's party.toml
    for name in made:
        (folder / name).mkdir(parents=True, exist_ok=True)
    made["bank"]["income"] = made["bank"]["income"].astype(float)
    made["bank"].to_csv(folder / "bank" / "bank.csv", sep=";", decimal=",", na_rep="?", index=False)
    made["shop"].to_parquet(folder / "shop" / "shop.parquet", index=False)
    address = os.path.expandvars(database).replace("sqlite:///", f"sqlite:///{folder}/clinic/")
    engine = sqlalchemy.create_engine(address)
    made["clinic"].to_sql("patients", engine, index=False, if_exists="replace")
    engine.dispose()
    query = "SELECT customer, visits, smoker FROM patients ORDER BY customer"
    sources = {
        "bank": 'file = "bank.csv"',
        "shop": 'file = "shop.parquet"',
        "clinic": f'database = "{database}"\nsql = "{query}"',
    }
    for name, source in sources.items():
        listen = f'\nlisten = "127.0.0.1:{port}"' if name == "bank" else ""
        (folder / name / "federation.toml").write_text(SHARED.format(port=port), encoding="utf-8")
        own = OWN.format(name=name, listen=listen, source=source)
        (folder / name / "party.toml").write_text(own, encoding="utf-8")
        print(f"{name}: {len(made[name])} customers, columns {', '.join(made[name].columns[1:])}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
