"""What a model's card says: what was trained, on how much, how well, at what cost in privacy, and which weights.

Made from the files of a run directory or of saved models, and from nothing else. It is meant to be shown: shapes and
numbers, no column or class name, no path, nothing of a row. What a folder does not know is null.
"""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.errors import DataError, RunError, SettingsError
from colonnade.files import check_depth, json_of, read_whole
from colonnade.reports.observed import audit_of, observe
from colonnade.reports.rundir import Run

FORMAT = 1
"""Of card.json. A reader refuses a higher one."""
_SETTINGS = {
    "algorithm": None,  # all of it
    "training": None,
    "privacy": None,
    "bottom": None,
    "top": None,
    "data": ("set", "parties", "test_fraction", "validation", "standardise", "missing", "rows", "max_rows"),
}
"""What is shown of the settings: nothing that names a file, a column or a machine."""
_FIGURES = ("direction", "adversary", "claimed", "sound", "conditional", "observed", "conditions")


def card_of(folder: Path) -> dict[str, Any]:
    """The card of a run directory, of a folder of models, or of one party's model."""
    if not folder.is_dir():
        raise SettingsError(f"There is no directory {str(folder)!r}. Name a run's directory, or a folder with a model.")
    summary = _read(folder / "summary.json") if (folder / "summary.json").is_file() else None
    models = _models(folder)
    if summary is None and not models:
        raise SettingsError(
            f"{folder} is neither a run's directory nor a model: there is no summary.json in it, and no model.json."
        )
    described = next(iter(models.values()), {})
    card = {
        "model": _model(summary, described, folder),
        "data": _data(summary, described),
        "settings": _settings(summary, described),
        "training": _training(summary),
        "metrics": _metrics(summary),
        "privacy": None if summary is None else _privacy(summary, folder),
        "weights": {name: one["weights_sha256"] for name, one in sorted(models.items())},
        "versions": dict((summary or described).get("versions") or {}),
    }
    return {name: _finite(value) for name, value in card.items()}


def weights_of(folder: Path) -> dict[str, str]:
    """The digest of each party's weights in a folder."""
    return {name: one["weights_sha256"] for name, one in _models(folder).items()}


# --- parts --------------------------------------------------------------------------------------------------------


def _model(summary: Mapping[str, Any] | None, described: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    told = summary or {}
    federation = (told.get("settings") or {}).get("federation") or {}
    algorithm = told.get("algorithm") or (described.get("algorithm") or {}).get("name")
    roles = told.get("parties") or {}
    label = described.get("label_party") or next((name for name, one in roles.items() if one["role"] == "label"), None)
    return {
        "name": federation.get("name") or (told.get("data") or {}).get("name") or folder.resolve().name,
        "of_party": told.get("party") or _only_party(folder),
        "algorithm": algorithm,
        "runtime": told.get("runtime"),
        "status": told.get("status"),
        "task": described.get("task") or (told.get("data") or {}).get("task"),
        "classes": described.get("class_count"),
        "label_party": label,
        "feature_parties": described.get("feature_parties") or [name for name in roles if name != label],
    }


def _only_party(folder: Path) -> str | None:
    """Whose it is, if it is one party's model."""
    path = folder / "model.json"
    return str(_read(path)["party"]) if path.is_file() else None


def _data(summary: Mapping[str, Any] | None, described: Mapping[str, Any]) -> dict[str, Any]:
    told = (summary or {}).get("data") or {}
    columns = {name: one.get("columns") for name, one in (told.get("parties") or {}).items()}
    return {
        "rows": told.get("rows"),
        "test_rows": told.get("test_rows"),
        "validation_rows": told.get("validation_rows", 0 if told else None),
        "row_shapes": described.get("shapes") or {name: [count] for name, count in columns.items()},
        "embedding_widths": described.get("widths") or None,
    }


def _settings(summary: Mapping[str, Any] | None, described: Mapping[str, Any]) -> dict[str, Any]:
    told = (summary or {}).get("settings") or {name: described.get(name) for name in ("algorithm", "bottom", "top")}
    found: dict[str, Any] = {}
    for section, names in _SETTINGS.items():
        values = told.get(section)
        if isinstance(values, Mapping):
            found[section] = {name: values[name] for name in names or values if name in values}
    if isinstance(found.get("training", {}).get("class_weight"), Mapping):
        found["training"]["class_weight"] = "by class"  # whose names are the label party's own
    # Where one person ran everybody, noise follows from the seed: whoever knows it can take the noise off.
    noised = bool(((summary or {}).get("privacy") or {}).get("events"))
    return found if noised or summary is None else {**found, "seed": summary.get("seed")}


def _training(summary: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if summary is None:
        return None
    return {name: summary.get(name) for name in ("exchanges", "epochs", "train_loss", "bytes_up", "bytes_down")}


def _metrics(summary: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if summary is None or "test" not in summary:
        return None
    return {name: summary.get(name) for name in ("headline", "test", "validation", "kept")}


def _privacy(summary: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    told = summary.get("privacy") or {}
    figures = [one for one in told.get("figures") or [] if isinstance(one, Mapping)]
    run = Run(folder, folder.resolve().name, summary, (), ())
    audits = audit_of(run)
    seen = observe(run, figures, audits) if audits and figures else None
    shown = figures if seen is None else seen.figures
    return {
        "noised": bool(told.get("events")),
        "delta": told.get("delta"),
        "formula": told.get("formula"),
        "unprotected": told.get("unprotected") or [],
        "figures": [{name: one.get(name) for name in _FIGURES} for one in shown],
        "audit": None if seen is None else seen.words,
        "conditions": told.get("conditions") or [],
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity: what is not finite is null."""
    if isinstance(value, Mapping):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- files --------------------------------------------------------------------------------------------------------


def _models(folder: Path) -> dict[str, dict[str, Any]]:
    """What each model.json says, by party, once its weights are found to be those it names."""
    inside = folder / "model" if (folder / "model").is_dir() else folder
    places = (
        [inside] if (inside / "model.json").is_file() else sorted(path.parent for path in inside.glob("*/model.json"))
    )
    found = {}
    for place in places:
        described = _read(place / "model.json")
        if not isinstance(described.get("party"), str) or not isinstance(described.get("weights_sha256"), str):
            raise DataError(f"{place / 'model.json'} is damaged: it is not what was written.")
        try:
            digest = hashlib.sha256(read_whole(place / "weights.safetensors")).hexdigest()
        except OSError as error:
            raise DataError(f"{place / 'weights.safetensors'} cannot be read: {error.strerror}.") from None
        if digest != described["weights_sha256"]:
            raise DataError(
                f"{place / 'weights.safetensors'} is damaged: it is not what was written. Take it from a copy, or from "
                "its run again."
            )
        found[described["party"]] = described
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json_of(read_whole(path))
        check_depth(value)
    except OSError as error:
        raise RunError(f"{path} could not be read: {error.strerror}.") from None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RunError(f"{path} is damaged: it is not what was written. Take it from a copy.")
    return value
