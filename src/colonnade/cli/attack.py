"""`colonnade attack`: what an adversary can infer, measured on small federations, beside chance."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from colonnade import algorithms
from colonnade.algorithms.row import Passes
from colonnade.algorithms.training import Training
from colonnade.attacks.embedding_inversion import Inversion
from colonnade.cli.output import console, errors, interrupted
from colonnade.data import FederatedData, dataset
from colonnade.errors import RunError, SettingsError, unknown_name
from colonnade.files import write_atomically
from colonnade.models.bottom import BottomSettings
from colonnade.privacy.noise import PerturbationSettings
from colonnade.reports.attack_page import attack_page
from colonnade.trials.attack import (
    ExposedParty,
    Federated,
    Measurement,
    Trials,
    check_sends_products,
    embedding_inversion,
    label_inference,
    model_completion,
    product_inference,
)

ATTACKS = ("label-inference", "model-completion", "embedding-inversion", "product-inference")
SPLIT = ATTACKS[:3]
PARTIES = {**dict.fromkeys(SPLIT, 2), "product-inference": 3}  # masked sums of fewer hide nothing
DATA = {**dict.fromkeys(SPLIT, "digits"), "product-inference": "breast_cancer"}
# Snapshots are full passes: they show every row's product, again and again.
_WITH_SNAPSHOTS = algorithms.which(
    lambda row: row.conversation is not None and row.conversation.passes is Passes.SNAPSHOTS
)
ALGORITHM = {
    **dict.fromkeys(SPLIT, algorithms.DEFAULT),
    "product-inference": _WITH_SNAPSHOTS[0].name,
}
SUMS = ("plain", "two-tree", "pairwise")
BATCH_SIZE = 64

# Options that only some attacks have; given to another one they would silently do nothing.
_OWN = {
    "--directions": ("label-inference",),
    "--labels-per-class": ("model-completion",),
    "--auxiliary": ("embedding-inversion",),
    "--inverse": ("embedding-inversion",),
    "--last": ("embedding-inversion",),
    "--width": ("model-completion", "embedding-inversion"),
    "--noise": SPLIT,
    "--clip": SPLIT,
    "--learning-rate": SPLIT,
    "--sums": ("product-inference",),
    "--columns": ("product-inference",),
    "--padding": ("product-inference",),
    "--knows": ("product-inference",),
    "--known-rows": ("product-inference",),
    "--tolerance": ("product-inference",),
}


def attack(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"Which one: {', '.join(ATTACKS)}.", show_default=False)],
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            help="Whose federation; may be repeated. Default: "
            f"{ALGORITHM['label-inference']}; {ALGORITHM['product-inference']} for product-inference.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="A data set by its name; two feature parties share its columns, three for product-inference. "
            "Default: digits; breast_cancer for product-inference.",
            show_default=False,
        ),
    ] = None,
    trials: Annotated[int, typer.Option(help="Independent trials, each with a seed of its own.", min=1)] = 5,
    seed: Annotated[int, typer.Option(help="Of the first trial.", min=0)] = 0,
    noise: Annotated[
        list[float] | None,
        typer.Option(help="Deviation of the noise on embeddings; may be repeated. Default: 0.", show_default=False),
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(
            help="Norm bound of an embedding before its noise; 0: none. Default: 0.",
            show_default=False,
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(help="Default: 1 for label-inference, 10 for product-inference, else 40.", show_default=False),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Of the feature parties. Default: 0.1; 0.01 in label-inference and for zeroth order.",
            show_default=False,
        ),
    ] = None,
    max_rows: Annotated[int, typer.Option(help="Use only so many rows; 0: all.", min=0)] = 0,
    directions: Annotated[
        int | None,
        typer.Option(help="label-inference, zeroth order: perturbed embeddings an upload.", show_default=False),
    ] = None,
    labels_per_class: Annotated[
        list[int] | None,
        typer.Option(
            help="For model-completion: labelled rows a class; may be repeated. Default: 4.", show_default=False
        ),
    ] = None,
    width: Annotated[
        list[int] | None,
        typer.Option(help="Numbers in an embedding; may be repeated. Default: 16.", show_default=False),
    ] = None,
    auxiliary: Annotated[
        list[float] | None,
        typer.Option(
            help="For embedding-inversion: share of rows known whole; may be repeated. Default: 0.05.",
            show_default=False,
        ),
    ] = None,
    inverse: Annotated[
        str | None, typer.Option(help="For embedding-inversion: ridge or mlp. Default: ridge.", show_default=False)
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(help="For embedding-inversion: embeddings of a row to average. Default: 1.", show_default=False),
    ] = None,
    sums: Annotated[
        list[str] | None,
        typer.Option(
            help="For product-inference: plain, two-tree or pairwise; may be repeated. Default: all three.",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        list[int] | None,
        typer.Option(
            help="For product-inference: columns of the attacked party; may be repeated. Default: 1.",
            show_default=False,
        ),
    ] = None,
    padding: Annotated[
        list[int] | None,
        typer.Option(
            help="For product-inference: columns of zeros that it adds; may be repeated. Default: 0.",
            show_default=False,
        ),
    ] = None,
    knows: Annotated[
        list[str] | None,
        typer.Option(
            help="For product-inference: what the adversary knows of the column: rows (a few values), range (its ends) "
            "or introduction (nothing but what the party told all); may be repeated. Default: rows.",
            show_default=False,
        ),
    ] = None,
    known_rows: Annotated[
        int | None,
        typer.Option(help="For product-inference: rows whose value is known. Default: 5.", show_default=False),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="For product-inference: a value this near counts as found, in deviations of the column. Default: 0.1.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A new directory for attack.json and report.html.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")] = False,
) -> None:
    """Measure an attack: success ± deviation over trials, beside chance."""
    if name not in ATTACKS:
        raise unknown_name("attack", name, ATTACKS)
    given = {
        "--directions": directions,
        "--labels-per-class": labels_per_class,
        "--auxiliary": auxiliary,
        "--inverse": inverse,
        "--last": last,
        "--width": width,
        "--noise": noise,
        "--clip": clip,
        "--learning-rate": learning_rate,
        "--sums": sums,
        "--columns": columns,
        "--padding": padding,
        "--knows": knows,
        "--known-rows": known_rows,
        "--tolerance": tolerance,
    }
    for option, value in given.items():
        if value is not None and name not in _OWN[option]:
            raise SettingsError(f"{option} belongs to {' and '.join(_OWN[option])}, not to {name}: leave it out.")
    if out is not None and out.exists():
        raise SettingsError(f"{out} exists already. Choose another directory with --out, or remove it.")
    wanted = Trials(trials, seed)
    inversion = Inversion(inverse or "ridge", last or 1)
    chosen = algorithm or [ALGORITHM[name]]
    if name == "product-inference":
        if known_rows is not None and "rows" not in (knows or ["rows"]):
            raise SettingsError("--known-rows is for an adversary that knows rows: leave it out, or add --knows rows.")
        given_here: dict[str, Any] = {"known_rows": known_rows, "tolerance": tolerance}
        exposures = [
            replace(
                ExposedParty(own, zeros, kind), **{key: value for key, value in given_here.items() if value is not None}
            )
            for own in columns or [1]
            for zeros in padding or [0]
            for kind in knows or ["rows"]
        ]
        federations = [_linear(one, scheme, epochs) for one in chosen for scheme in sums or SUMS]
    else:
        exposures = []
        federations = [
            _federated(name, one, own_noise, clip or 0.0, own_width, epochs, learning_rate, directions)
            for one in chosen
            for own_width in width or [16]
            for own_noise in noise or [0.0]
        ]
    began = time.perf_counter()
    lines: list[Measurement] = []
    with interrupted("Nothing was written."):
        rows = dataset(data or DATA[name], parties=PARTIES[name], max_rows=max_rows)
        say = _progress(name)
        for federated in federations:
            if name == "label-inference":
                lines += label_inference(rows, federated, wanted, say)
            elif name == "model-completion":
                lines += model_completion(rows, federated, labels_per_class or [4], wanted, say)
            elif name == "embedding-inversion":
                lines += embedding_inversion(rows, federated, auxiliary or [0.05], inversion, wanted, say)
            for exposed in exposures:
                lines += product_inference(rows, federated, exposed, wanted, say)
    result = _result(name, rows, wanted, lines, time.perf_counter() - began)
    page = None if out is None else _write(out, result)
    if as_json:
        print(json.dumps(result))
        return
    console.print(_table(name, rows, lines, trials))
    if page is not None:
        console.print(f"Report: {page}", markup=False, soft_wrap=True)


def _federated(
    attack_name: str,
    algorithm: str,
    noise: float,
    clip: float,
    width: int,
    epochs: float | None,
    learning_rate: float | None,
    directions: int | None,
) -> Federated:
    chosen = algorithms.find(algorithm)
    said = chosen.conversation
    if said is None:
        raise SettingsError(f"{algorithm!r} sends no message, so there is nothing to attack: choose another algorithm.")
    settings = chosen.settings()
    zeroth_order = not said.bottom_needs_gradients
    if directions is not None:
        if not hasattr(settings, "directions"):
            raise SettingsError(f"--directions is for algorithms that have several, and {algorithm!r} has not.")
        settings = replace(settings, directions=directions)
    direct = attack_name == "label-inference"
    rate = 0.01 if direct or zeroth_order else 0.1
    training = Training(
        epochs=epochs if epochs is not None else 1.0 if direct else 40.0,
        batch_size=BATCH_SIZE,
        learning_rate=rate if learning_rate is None else learning_rate,
        top_learning_rate=0.1 if zeroth_order and not direct and said.top_needs_gradients else None,
        evaluate_every_epochs=0,
    )
    # With a label party that only sums, bottoms are as wide as the outputs; linear ones make it softmax regression.
    bottom = BottomSettings(kind="linear") if direct else BottomSettings(embedding=width)
    return Federated(settings, training, bottom, privacy=PerturbationSettings(noise=noise, clip=clip))


def _linear(algorithm: str, sums: str, epochs: float | None) -> Federated:
    check_sends_products(algorithm)
    if sums not in SUMS:
        raise unknown_name("kind of sums", sums, SUMS)
    training = Training(
        epochs=10.0 if epochs is None else epochs, batch_size=BATCH_SIZE, l2=1e-4, evaluate_every_epochs=0
    )
    return Federated(replace(algorithms.find(algorithm).settings(), sums=sums), training)


def _progress(name: str) -> Callable[[str], None]:
    return lambda line: errors.print(f"{name}: {line}", markup=False, highlight=False, soft_wrap=True)


def _result(name: str, data: FederatedData, trials: Trials, lines: list[Measurement], seconds: float) -> dict[str, Any]:
    return {
        "name": name,
        "data": data.name,
        "rows": [line.as_values() for line in lines],
        "training_rows": data.rows,
        "trials": trials.count,
        "seed": trials.seed,
        "seconds": round(seconds, 1),
    }


def _write(out: Path, result: dict[str, Any]) -> Path:
    page = out / "report.html"
    try:
        out.mkdir(parents=True)
        write_atomically(out / "attack.json", json.dumps(result, indent=1).encode())
        write_atomically(page, attack_page(result).encode())
    except OSError as error:
        raise RunError(
            f"The directory {out} could not be written: {error.strerror}. Free some space, or choose another one with "
            "--out."
        ) from None
    return page


def _table(name: str, data: FederatedData, lines: list[Measurement], trials: int) -> Table:
    several = f"{trials} trials" if trials > 1 else "1 trial"
    every = list(dict.fromkeys(key for line in lines for key in line.conditions))
    # What is the same in all lines stands below the table, which would grow wider than a terminal otherwise.
    conditions = [
        key for key in every if any(line.conditions.get(key) != lines[0].conditions.get(key) for line in lines)
    ]
    same = ", ".join(f"{key} {lines[0].conditions[key]:g}" for key in every if key not in conditions)
    table = Table(title=f"{name} on {data.name}: {data.rows:,} training rows, {several}", caption=same or None)
    for heading in ("algorithm", "adversary"):
        table.add_column(heading)
    beside = list(dict.fromkeys(key for line in lines for key in line.beside))
    for heading in (*conditions, lines[0].measure, *beside):
        table.add_column(heading, justify="right", no_wrap=heading == lines[0].measure)
    for line in lines:
        share = line.measure == "success"
        table.add_row(
            line.algorithm,
            line.adversary,
            *(f"{line.conditions[key]:g}" if key in line.conditions else "–" for key in conditions),
            f"{_told(line.mean, share)} ± {_told(line.deviation, share)}",
            *(_told(line.beside[key], share or key == "joint model") for key in beside),
        )
    return table


def _told(value: float, share: bool) -> str:
    if math.isnan(value):
        return "–"
    return f"{100 * value:.1f} %" if share else f"{value:.3f}"
