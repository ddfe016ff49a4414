"""`[track]`: which programs are told of a run besides its directory, and where each of them keeps runs.

A run's settings are kept with it and shown in its report, so no password belongs in here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from urllib.parse import urlsplit

from colonnade.errors import SettingsError, unknown_name

FROM_ENVIRONMENT = "environment"


@dataclass(frozen=True)
class Track:
    """`[track]`: who is told of a run, and where each of them keeps it."""

    mlflow: str = ""
    """a tracking URI; `environment`: what `MLFLOW_TRACKING_URI` says; `""`: MLflow is not told"""
    tensorboard: str = ""
    """a folder, relative to this file, in which each run gets one of its own"""
    wandb: str = ""
    """a project of Weights & Biases"""
    own: Mapping[str, str] = field(default_factory=dict)
    """`[track.own]`: sinks of your own, `"module:Class"` and the text that it is made with"""

    def __post_init__(self) -> None:
        for path in self.own:
            if not is_import_path(path):
                raise SettingsError(f"[track.own] {path!r} is no import path: write it as module:Class.")
        try:
            has_password = urlsplit(self.mlflow).password is not None
        except ValueError:  # perhaps for a character of a password: nothing of it is shown
            raise SettingsError(
                "track.mlflow is no address. Write it as http://HOST:PORT or sqlite:///FILE; an address with a "
                "password belongs in MLFLOW_TRACKING_URI."
            ) from None
        if has_password:
            raise SettingsError(
                "track.mlflow holds a password, but settings are kept with the run and shown in its report. Put the "
                'address into the environment variable MLFLOW_TRACKING_URI, and write mlflow = "environment".'
            )

    @property
    def sinks(self) -> dict[str, str]:
        """Who is told, by name, and where each keeps it."""
        named = {name: str(getattr(self, name)) for name in BUILT_IN if getattr(self, name)}
        return {**named, **self.own}

    def with_absolute_folders(self, base: Path) -> "Track":
        """The same from any folder."""
        return replace(self, tensorboard=self.tensorboard and str((base / self.tensorboard).resolve()))

    def __bool__(self) -> bool:
        return bool(self.sinks)


BUILT_IN = tuple(one.name for one in fields(Track) if one.name != "own")


def is_import_path(name: str) -> bool:
    module, colon, cls = name.partition(":")
    return bool(colon) and cls.isidentifier() and all(part.isidentifier() for part in module.split("."))


def track_of(sinks: "Mapping[str, str] | Track | None") -> Track:
    """From names, or import paths, and what each is given.

    >>> track_of({"tensorboard": "runs/board", "ours.board:Wall": "hall"}).own
    {'ours.board:Wall': 'hall'}
    """
    if sinks is None or isinstance(sinks, Track):
        return sinks or Track()
    for name, where in sinks.items():
        if name not in BUILT_IN and not is_import_path(name):
            raise unknown_name("sink (or module:Class)", name, BUILT_IN)
        if not where and name in BUILT_IN:
            raise SettingsError(f"track: say where {name} keeps runs, such as {_EXAMPLES[name]}.")
    named = {name: where for name, where in sinks.items() if name in BUILT_IN}
    return Track(**named, own={name: where for name, where in sinks.items() if name not in BUILT_IN})


def with_asked(track: Track, asked: Sequence[str]) -> Track:
    """And those that the command line asks for, as NAME=WHERE, in place of those of the same name."""
    sinks: dict[str, str] = {}
    for one in asked:
        name, equals, where = one.partition("=")
        if not equals:
            raise SettingsError(f"--track {one!r}: write it as NAME=WHERE, such as {_EXAMPLES['mlflow']}.")
        sinks[name.strip()] = where.strip()
    return track_of({**track.sinks, **sinks}).with_absolute_folders(Path.cwd())


_EXAMPLES = {
    "mlflow": "mlflow=sqlite:///mlflow.db",
    "tensorboard": "tensorboard=runs/tensorboard",
    "wandb": "wandb=my-project",
}
