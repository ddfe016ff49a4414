"""Arguments and options that several verbs share, each declared once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from colonnade.errors import SettingsError


def json_option(help: str) -> Any:
    """`--json`, which every verb that prints a result has; help says what is printed."""
    return typer.Option("--json", help=help)


FederationFile = Annotated[Path, typer.Argument(metavar="FEDERATION.toml", help="The file.", show_default=False)]
SharedFile = Annotated[
    Path, typer.Argument(metavar="FEDERATION.toml", help="What all parties share.", show_default=False)
]
PartyFile = Annotated[
    Path, typer.Option("--party", metavar="PARTY.toml", help="This party's own file.", show_default=False)
]
PartyDirectory = Annotated[
    Path | None, typer.Option("--out", help="This party's run directory. Default: runs/NAME-PARTY.", show_default=False)
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.NAME=VALUE",
        help="Change a setting of the file, such as training.epochs=20. May be repeated. `colonnade settings` says "
        "what there is.",
        show_default=False,
    ),
]
Trace = Annotated[bool, typer.Option("--trace", help="Record every event and effect, for replay.")]
RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.", show_default=False)]
Trials = Annotated[int, typer.Option("--trials", help="Independent trials, each with a seed of its own.", min=1)]
Seed = Annotated[int, typer.Option("--seed", help="The seed of the first trial.", min=0)]
PartyModel = Annotated[
    Path | None,
    typer.Option(
        "--model",
        help="With --party: the run directory of its training, or its model's folder. Default: runs/NAME-PARTY.",
        show_default=False,
    ),
]
Watched = Annotated[
    bool, typer.Option("--watch", help="Show the run on a live page while it goes on; its address is printed.")
]
WatchAddress = Annotated[
    str, typer.Option("--watch-address", metavar="HOST:PORT", help="With --watch: where the page is served.")
]
Tracked = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="NAME=WHERE",
        help="Tell another program of the run too, such as mlflow=sqlite:///mlflow.db, tensorboard=FOLDER, "
        "wandb=PROJECT or module:Class=TEXT. May be repeated.",
        show_default=False,
    ),
]
Pictures = Annotated[
    Path | None,
    typer.Option(
        "--figures",
        metavar="FOLDER",
        help="Write the figures here as well, as PNG and as SVG files for a paper.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", help="Processes on this machine. Default: one per core.", min=1, show_default=False),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--address", help="Run the cells on this Ray cluster instead: auto, ray://HOST:PORT.", show_default=False
    ),
]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        help="Where models compute: cpu, cuda, mps or auto; of one party as NAME=cuda. May be repeated.",
        show_default="cpu",
    ),
]


def was_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line, and is no default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def check_where(workers: int | None, address: str | None) -> None:
    """Cells run in processes or on a cluster."""
    if address is not None and workers is not None:
        raise SettingsError("--workers are processes of this machine, --address is a cluster: give one of the two.")


def devices_of(given: list[str]) -> str | dict[str, str]:
    """Of everybody, or by party."""
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    for one in given:
        if "=" not in one:
            raise SettingsError(f"--device {one}: with several, say whose each is, such as --device party1={one}.")
    return dict(one.split("=", 1) for one in given)
