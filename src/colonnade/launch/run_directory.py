"""A run's directory: made for a new run, checked for one that goes on, and held against a second process.

It keeps the run's settings, and digests of settings and data: a run that is resumed is the one that was begun.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from colonnade.data.federated import FederatedData, data_digest
from colonnade.errors import DataError, RunError, SettingsError
from colonnade.federation.file import digest, with_new_settings
from colonnade.federation.toml import write_toml
from colonnade.files import json_of, make_folder, read_private, take_over, toml_of, write_atomically
from colonnade.launch.extension import EPOCHS, check_finished, is_longer, write_longer
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.run_lock import only_process_in
from colonnade.runtimes.simulate.settings import Simulate

# Among the checkpoints, which are their owners' own: a digest of a few labels could be guessed.
_DIGESTS = "checkpoints/data.json"
_AS_GOOD = {Ray.name, "track"}
"""Another cluster, or more of it, is as good; and who is told of a run is no part of it."""


@contextmanager
def opened(
    directory: Path, runtime: str, settings: Mapping[str, Any], digests: Mapping[str, str], resume: bool
) -> Iterator[None]:
    """A run directory, made or checked, and held against a second process. `digests`: of what it is made from."""
    extends = False
    if resume:
        _check_whose(directory)
        extends = _check(directory, runtime, settings, digests)
    else:
        _make(directory, runtime, settings, digests)
    with only_process_in(directory):
        if extends:
            text = write_toml(settings).encode()
            write_longer(directory, _DIGESTS, text, _settings_digest(toml_of(text)))
        yield


def extension_of(directory: Path | None) -> int:
    """How often the plan of the run there was extended after its end."""
    return 0 if directory is None else int(json_of(read_private(directory / _DIGESTS)).get("extension", 0))


@contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """A disk that is full while a run is under way: one sentence, and what was saved stays."""
    try:
        yield
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # nobody reads what the watcher prints
            raise
        raise RunError(
            f"The run directory {directory} could not be written: {error.strerror}. Free some space, then continue "
            "with --resume from the last checkpoint."
        ) from error


def continues_trace(trace: bool, traced: bool) -> bool:
    """Whether a resumed run is traced: exactly if it was before, since half a trace cannot be replayed."""
    if trace and not traced:
        raise SettingsError("This run was started without --trace, and a trace must begin with the run: leave it out.")
    return traced


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names under which two tables differ."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def _make(directory: Path, runtime: str, settings: Mapping[str, Any], data: Mapping[str, str]) -> None:
    try:
        make_folder(directory, exist_ok=False)
    except FileExistsError:
        raise SettingsError(
            f"The directory {directory} exists already. Choose another one with --out, continue that run with "
            "--resume, or remove it."
        ) from None
    except OSError as error:
        raise SettingsError(
            f"The run directory {directory} could not be made: {error.strerror}. Choose another one with --out."
        ) from None
    try:
        text = write_toml(settings)
        write_atomically(directory / "federation.toml", text.encode())
        make_folder((directory / _DIGESTS).parent)
        agreed = {"runtime": runtime, "settings": _settings_digest(toml_of(text.encode()))}
        write_atomically(directory / _DIGESTS, json.dumps({**data, **agreed}).encode())
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise RunError(
            f"The run directory {directory} could not be written: {error.strerror}. Free some space, or choose "
            "another one with --out."
        ) from None


def _check_whose(directory: Path) -> None:
    """Refuse to go on from what another user may have laid out or changed: a planted secret is no secret."""
    try:
        take_over(directory)
    except FileNotFoundError:
        raise SettingsError(f"{directory} is not a run to resume: it is not there.") from None
    except OSError as error:
        raise RunError(f"The run directory {directory} cannot be read: {error.strerror}.") from None


def _check(directory: Path, runtime: str, settings: Mapping[str, Any], data: Mapping[str, str]) -> bool:
    """Refuse to go on with other settings, another runtime or other data than those the run was started with.

    More epochs may be asked for after the end: True, if they are.
    """
    kept = directory / "federation.toml"
    if not kept.exists():
        raise SettingsError(f"{directory} is not a run to resume: it has no federation.toml.")
    try:
        before = toml_of(read_private(kept))
        digests = json_of(read_private(directory / _DIGESTS))
        if not isinstance(digests, dict):
            raise ValueError(_DIGESTS)
    except (OSError, ValueError):
        raise RunError(
            f"The run in {directory} cannot be resumed: its federation.toml or {_DIGESTS} is missing or torn. "
            "Start a new run in another directory."
        ) from None
    found, longer = _settings_digest(before), digests.pop("longer", None)
    extends: bool = found == longer  # that was asked for before, and interrupted
    digests.pop("extension", None)
    if digests.pop("settings", "") != found and not extends:
        raise SettingsError(
            f"{kept} was changed after its run was started, which has kept a digest of its settings. What was "
            "trained and released so far was by the settings before: put those back, or start a new run with the "
            "others in another directory (--out)."
        )
    before = with_new_settings(before)
    different = sorted(
        f"{section}.{name}"
        for section in {**before, **settings}.keys() - _AS_GOOD
        for name in differences(before.get(section, {}), settings.get(section, {}))
    )
    if different == [EPOCHS] and is_longer(before, settings):
        check_finished(directory)
        extends = True
    elif different:
        raise SettingsError(
            f"The run in {directory} was started with other settings: {', '.join(different[:5])} differ. "
            f"Resume with {kept}, or start a new run in another directory."
        )
    ran_under = digests.pop("runtime", Simulate.name)
    if ran_under != runtime:
        raise SettingsError(f"The run in {directory} was started with --runtime {ran_under}: resume it with that.")
    changed = differences(digests, data)
    if changed:
        raise DataError(
            f"The data have changed since the run in {directory} was started: {', '.join(sorted(changed))}. "
            "Resume with the data it was started with, or start a new run."
        )
    return extends


def changed_data(directory: Path, data: FederatedData) -> list[str]:
    """What of these data is not as it was when the run in this directory was started."""
    try:
        kept = json_of(read_private(directory / _DIGESTS))
    except (OSError, ValueError):
        raise RunError(f"{directory / _DIGESTS} is missing or torn: the data cannot be told from others.") from None
    now = data_digests(data)
    return differences({name: kept.get(name) for name in now}, now)


def _settings_digest(values: Mapping[str, Any]) -> str:
    """Of the values of a federation.toml, as they are read; another cluster, or more of it, is as good."""
    return digest({section: content for section, content in values.items() if section != Ray.name})


def data_digests(data: FederatedData) -> dict[str, str]:
    """What tells whether a resumed run sees the same data, and if not, whose have changed."""
    columns = {f"columns of {name}": data_digest(held) for name, held in data.columns.items()}
    labels = data_digest(data.labels)
    return {"rows or their order": data.row_digest, "labels": labels, **columns}
