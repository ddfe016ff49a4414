"""`colonnade attack`: what an adversary can infer, measured beside chance; a verb per attack.

It is measured on small federations over data sets by name, or on somebody's own: FEDERATION.toml as it is.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli import attack_result
from colonnade.cli.names import DEFAULT_ALGORITHM, SUMS, WITH_SNAPSHOTS, algorithm_names, data_set_names, offering
from colonnade.cli.options import Changes, Pictures, Seed, Trials, json_option, was_given
from colonnade.cli.output import console, interrupted, tell
from colonnade.cli.verbs import Verb, Verbs
from colonnade.errors import SettingsError, unknown_name

if TYPE_CHECKING:
    from colonnade.data import FederatedData
    from colonnade.trials.attack import Measurement
    from colonnade.trials.attack import Trials as Repeated
    from colonnade.trials.attacked import Federated

BATCH_SIZE = 64

app = typer.Typer(
    cls=Verbs, help="Measure an attack: success ± deviation over trials, beside chance.", no_args_is_help=True
)

Own = Annotated[
    Path | None,
    typer.Argument(
        metavar="FEDERATION.toml",
        help="Your own federation, whose tables are on this machine: its data, models and settings as they are.",
        show_default=False,
    ),
]
Whose = Annotated[
    str,
    typer.Option("--party", help="With a file: the feature party that attacks, or is attacked.", show_default=False),
]
Algorithms = Annotated[
    list[str],
    typer.Option(
        "--algorithm",
        metavar="NAME",
        help="Whose federation. May be repeated.",
        autocompletion=offering(algorithm_names),
    ),
]
Data = Annotated[
    str,
    typer.Option(
        "--data",
        help="A data set by its name; the feature parties share its columns.",
        autocompletion=offering(data_set_names),
    ),
]
Noises = Annotated[
    list[float],
    typer.Option("--noise", metavar="NUMBER", help="Deviation of the noise on embeddings. May be repeated."),
]
Clip = Annotated[float, typer.Option("--clip", help="Norm bound of an embedding before its noise; 0: none.")]
Widths = Annotated[
    list[int], typer.Option("--width", metavar="COUNT", help="Numbers in an embedding. May be repeated.")
]
Epochs = Annotated[float, typer.Option("--epochs", help="How long the federation trains.")]
Rate = Annotated[
    float | None,
    typer.Option(
        "--learning-rate",
        help="Of the feature parties. Default: 0.1; 0.01 for zeroth order.",
        show_default=False,
    ),
]
MaxRows = Annotated[int, typer.Option("--max-rows", help="Use only this many rows; 0: all.", min=0)]
Out = Annotated[
    Path | None, typer.Option("--out", help="A new directory for attack.json and report.html.", show_default=False)
]
AsJson = Annotated[bool, json_option("Print the result as JSON, and nothing else.")]

OF_DATA_SETS = {
    *("algorithm", "data", "noise", "clip", "epochs", "learning_rate", "max_rows", "directions", "labels_epsilon"),
    *("width", "sums", "columns", "padding"),
}
"""What is asked of a federation over a data set; one's own file says it itself."""


@app.command("label-inference", cls=Verb)
def label_inference(
    context: typer.Context,
    own: Own = None,
    algorithm: Algorithms = [DEFAULT_ALGORITHM],
    data: Data = "digits",
    trials: Trials = 5,
    seed: Seed = 0,
    noise: Noises = [0.0],
    clip: Clip = 0.0,
    epochs: Epochs = 1.0,
    learning_rate: Annotated[float, typer.Option(help="Of the feature parties.")] = 0.01,
    max_rows: MaxRows = 0,
    directions: Annotated[
        int | None, typer.Option(help="Zeroth order: perturbed embeddings in an upload.", show_default=False)
    ] = None,
    active: Annotated[
        bool, typer.Option("--active", help="A party that chooses its uploads to read labels out of mean losses.")
    ] = False,
    labels_epsilon: Annotated[
        float, typer.Option(help="With --active: the ε that noise on the answers keeps; 0: no noise.", min=0)
    ] = 0.0,
    changes: Changes = None,
    party: Whose = "",
    out: Out = None,
    figures: Pictures = None,
    as_json: AsJson = False,
) -> None:
    """Guess labels from gradients or losses, as a curious or an active feature party and as an eavesdropper."""
    if labels_epsilon > 0 and not active:
        raise SettingsError("--labels-epsilon is for an active party: leave it out, or add --active.")
    asked = _Asked(
        "label-inference", data, 2, trials, seed, max_rows, out, as_json, _own(context, own, changes, party), figures
    )
    federations = [
        _federated(one, own_noise, clip, None, epochs, learning_rate, directions)
        for one in algorithm
        for own_noise in noise
    ]
    if labels_epsilon > 0:
        federations = [_with_noised_answers(federated, labels_epsilon) for federated in federations]

    def measured(rows: "FederatedData", federated: "Federated", wanted: "Repeated") -> "list[Measurement]":
        from colonnade.trials.active_attack import active_label_inference
        from colonnade.trials.attack import label_inference

        return (active_label_inference if active else label_inference)(rows, federated, wanted, asked.say)

    asked.answer(federations, measured)


@app.command("model-completion", cls=Verb)
def model_completion(
    context: typer.Context,
    own: Own = None,
    algorithm: Algorithms = [DEFAULT_ALGORITHM],
    data: Data = "digits",
    trials: Trials = 5,
    seed: Seed = 0,
    noise: Noises = [0.0],
    clip: Clip = 0.0,
    epochs: Epochs = 40.0,
    learning_rate: Rate = None,
    max_rows: MaxRows = 0,
    labels_per_class: Annotated[
        list[int], typer.Option(metavar="COUNT", help="Labelled rows of each class. May be repeated.")
    ] = [4],
    width: Widths = [16],
    changes: Changes = None,
    party: Whose = "",
    out: Out = None,
    figures: Pictures = None,
    as_json: AsJson = False,
) -> None:
    """Guess labels from a trained bottom model and a few labelled rows."""
    asked = _Asked(
        "model-completion", data, 2, trials, seed, max_rows, out, as_json, _own(context, own, changes, party), figures
    )
    federations = [
        _federated(one, own_noise, clip, own_width, epochs, learning_rate)
        for one in algorithm
        for own_width in width
        for own_noise in noise
    ]

    def measured(rows: "FederatedData", federated: "Federated", wanted: "Repeated") -> "list[Measurement]":
        from colonnade.trials.attack import model_completion

        return model_completion(rows, federated, labels_per_class, wanted, asked.say)

    asked.answer(federations, measured)


@app.command("embedding-inversion", cls=Verb)
def embedding_inversion(
    context: typer.Context,
    own: Own = None,
    algorithm: Algorithms = [DEFAULT_ALGORITHM],
    data: Data = "digits",
    trials: Trials = 5,
    seed: Seed = 0,
    noise: Noises = [0.0],
    clip: Clip = 0.0,
    epochs: Epochs = 40.0,
    learning_rate: Rate = None,
    max_rows: MaxRows = 0,
    width: Widths = [16],
    auxiliary: Annotated[
        list[float], typer.Option(metavar="SHARE", help="The share of rows that is known whole. May be repeated.")
    ] = [0.05],
    inverse: Annotated[str, typer.Option(help="What learns the way back: ridge or mlp.")] = "ridge",
    last: Annotated[int, typer.Option(help="How many embeddings of a row are averaged.")] = 1,
    changes: Changes = None,
    party: Whose = "",
    out: Out = None,
    figures: Pictures = None,
    as_json: AsJson = False,
) -> None:
    """Guess columns from embeddings, after learning from rows that are known whole."""
    from colonnade.attacks.embedding_inversion import Inversion

    asked = _Asked(
        "embedding-inversion",
        data,
        2,
        trials,
        seed,
        max_rows,
        out,
        as_json,
        _own(context, own, changes, party),
        figures,
    )
    inversion = Inversion(inverse, last)
    federations = [
        _federated(one, own_noise, clip, own_width, epochs, learning_rate)
        for one in algorithm
        for own_width in width
        for own_noise in noise
    ]

    def measured(rows: "FederatedData", federated: "Federated", wanted: "Repeated") -> "list[Measurement]":
        from colonnade.trials.attack import embedding_inversion

        return embedding_inversion(rows, federated, auxiliary, inversion, wanted, asked.say)

    asked.answer(federations, measured)


@app.command("product-inference", cls=Verb)
def product_inference(
    context: typer.Context,
    own: Own = None,
    algorithm: Algorithms = [WITH_SNAPSHOTS],  # full passes show every row's product, again and again
    data: Data = "breast_cancer",
    trials: Trials = 5,
    seed: Seed = 0,
    epochs: Epochs = 10.0,
    max_rows: MaxRows = 0,
    sums: Annotated[
        list[str],
        typer.Option(
            metavar="KIND",
            help="How products are summed: plain, two-tree or pairwise. May be repeated.",
            autocompletion=offering(SUMS),
        ),
    ] = list(SUMS),
    columns: Annotated[
        list[int], typer.Option(metavar="COUNT", help="Columns of the attacked party. May be repeated.")
    ] = [1],
    padding: Annotated[
        list[int], typer.Option(metavar="COUNT", help="Columns of zeros that it adds. May be repeated.")
    ] = [0],
    knows: Annotated[
        list[str],
        typer.Option(
            metavar="WHAT",
            help="What the adversary knows of the column: rows (a few values), range (its ends) or introduction "
            "(nothing but what the party told everybody). May be repeated.",
        ),
    ] = ["rows"],
    known_rows: Annotated[
        int | None, typer.Option(help="Rows whose value is known. Default: 5.", show_default=False)
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="A value this near counts as found, in deviations of the column.")
    ] = 0.1,
    changes: Changes = None,
    party: Whose = "",
    out: Out = None,
    figures: Pictures = None,
    as_json: AsJson = False,
) -> None:
    """Guess a party's single column and its weight from products that pass by."""
    from colonnade.trials.attack import ExposedParty

    # Masked sums of fewer than three parties hide nothing.
    asked = _Asked(
        "product-inference", data, 3, trials, seed, max_rows, out, as_json, _own(context, own, changes, party), figures
    )
    if known_rows is not None and "rows" not in knows:
        raise SettingsError("--known-rows is for an adversary that knows rows: leave it out, or add --knows rows.")
    known = ExposedParty.known_rows if known_rows is None else known_rows
    exposures = [
        ExposedParty(count, zeros, kind, known, tolerance, as_it_is=own is not None)
        for count in columns
        for zeros in padding
        for kind in knows
    ]

    def measured(rows: "FederatedData", federated: "Federated", wanted: "Repeated") -> "list[Measurement]":
        from colonnade.trials.attack import product_inference

        return [
            line for exposed in exposures for line in product_inference(rows, federated, exposed, wanted, asked.say)
        ]

    asked.answer([_linear(one, scheme, epochs) for one in algorithm for scheme in sums], measured)


@dataclass(frozen=True)
class _Own:
    """Somebody's own federation: its file, changes to it, and the party that attacks or is attacked."""

    file: Path
    changes: list[str]
    party: str


def _own(context: typer.Context, file: Path | None, changes: list[str] | None, party: str) -> _Own | None:
    if file is None:
        if changes or party:
            raise SettingsError("--set and --party are for a federation of your own: give its FEDERATION.toml, too.")
        return None
    for name in sorted(one for one in OF_DATA_SETS & context.params.keys() if was_given(context, one)):
        option = "--" + name.replace("_", "-")
        raise SettingsError(
            f"{option} is for federations over a data set; {file} says this itself. Leave it out, or change the file's "
            "settings with --set."
        )
    return _Own(file, changes or [], party)


@dataclass(frozen=True)
class _Asked:
    """What all attacks are asked alike: on which data, how often, and where the result goes."""

    name: str
    data: str
    parties: int
    trials: int
    seed: int
    max_rows: int
    out: Path | None
    as_json: bool
    own: _Own | None
    figures: Path | None

    def __post_init__(self) -> None:
        if self.out is not None and self.out.exists():
            raise SettingsError(f"{self.out} exists already. Choose another directory with --out, or remove it.")

    def say(self, line: str) -> None:
        """Tell whoever waits how far it is."""
        tell(f"{self.name}: {line}")

    def answer(
        self,
        federations: "Sequence[Federated]",
        measured: "Callable[[FederatedData, Federated, Repeated], list[Measurement]]",
    ) -> None:
        """Attack every federation, or somebody's own alone, and print and write what came of it."""
        from colonnade.trials.attack import Trials as Repeated

        wanted = Repeated(self.trials, self.seed)
        began = time.perf_counter()
        with interrupted("Nothing was written."):
            rows, attacked = self._own_federation(self.own) if self.own else self._over_data_set(federations)
            lines = [line for federated in attacked for line in measured(rows, federated, wanted)]
        result = attack_result.as_values(self.name, rows, wanted, lines, time.perf_counter() - began, attacked)
        page = None if self.out is None else attack_result.write(self.out, result)
        if self.figures is not None:
            attack_result.draw(self.figures, result)
        if self.as_json:
            print(json.dumps(result))
            return
        console.print(attack_result.table_of(self.name, rows, lines, self.trials))
        if page is not None:
            console.print(f"Report: {page}", markup=False, soft_wrap=True)

    def _over_data_set(self, federations: "Sequence[Federated]") -> "tuple[FederatedData, Sequence[Federated]]":
        from colonnade.data import dataset

        return dataset(self.data, parties=self.parties, max_rows=self.max_rows), federations

    def _own_federation(self, own: _Own) -> "tuple[FederatedData, Sequence[Federated]]":
        from colonnade.trials.attacked import own_federation

        rows, federated = own_federation(own.file, own.changes, own.party)
        return rows, [federated]


def _federated(
    algorithm: str,
    noise: float,
    clip: float,
    width: int | None,
    epochs: float,
    learning_rate: float | None,
    directions: int | None = None,
) -> "Federated":
    """A federation of split models. Without a width, its bottoms are linear and its label party only sums."""
    from colonnade import algorithms
    from colonnade.algorithms.training import Training
    from colonnade.models.bottom import BottomSettings
    from colonnade.privacy.noise import PerturbationSettings
    from colonnade.trials.attacked import Federated

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
    direct = width is None
    rate = 0.01 if direct or zeroth_order else 0.1
    training = Training(
        epochs=epochs,
        batch_size=BATCH_SIZE,
        learning_rate=rate if learning_rate is None else learning_rate,
        optimiser="sgd",
        top_learning_rate=0.1 if zeroth_order and not direct and said.top_needs_gradients else "auto",
        evaluate_every_epochs=0,
        end_when_diverged=False,  # who attacks may keep below any such bound
    )
    # With a label party that only sums, bottoms are as wide as the outputs; linear ones make it softmax regression.
    bottom = BottomSettings(kind="linear") if width is None else BottomSettings(embedding=width)
    return Federated(settings, training, bottom, privacy=PerturbationSettings(noise=noise, clip=clip))


def _with_noised_answers(federated: "Federated", epsilon: float) -> "Federated":
    """The same with a target for labels, which a top model by DP-SGD does not undo."""
    if not federated.conversation.noised_answers:
        raise SettingsError(f"--labels-epsilon: the answers of {federated.name} cannot be noised.")
    return replace(
        federated,
        algorithm=replace(federated.algorithm, server_update="dp-sgd", clip=1.0),
        privacy=replace(federated.privacy, labels_epsilon=epsilon),
    )


def _linear(algorithm: str, sums: str, epochs: float) -> "Federated":
    from colonnade import algorithms
    from colonnade.algorithms.training import Training
    from colonnade.trials.attack import check_sends_products
    from colonnade.trials.attacked import Federated

    check_sends_products(algorithm)
    if sums not in SUMS:
        raise unknown_name("kind of sums", sums, SUMS)
    training = Training(epochs, BATCH_SIZE, l2=1e-4, evaluate_every_epochs=0, end_when_diverged=False)
    return Federated(replace(algorithms.find(algorithm).settings(), sums=sums), training)
