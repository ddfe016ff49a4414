"""Versions of a party's model: the newest of a folder is taken when it changes, those before stay for a while.

All parties of a training have models of one name, by which a request says what it wants. So a new version is used once
everybody who is there has it, and no request is dropped for it. What is pinned stays, whatever comes.
"""

import logging
from pathlib import Path

from colonnade.errors import ColonnadeError
from colonnade.prediction.saved_model import SavedModel, find_model, read_model

log = logging.getLogger("colonnade.serving")

KEPT = 3
"""Versions in memory: the newest, and those that it can be rolled back to."""


def version_of(model: SavedModel) -> str:
    """What all parties of a training call it; of models that were trained in one place too."""
    return model.description.training[:16] or "unnamed"


class Versions:
    """The models of one folder, by version, the newest last."""

    def __init__(self, place: Path, party: str) -> None:
        self._place = place
        self._party = party
        self._stamp: tuple[int, int] = (0, 0)
        self.models: dict[str, SavedModel] = {}
        self.read()

    @property
    def newest(self) -> SavedModel:
        return next(reversed(self.models.values()))

    def read(self) -> bool:
        """Take up what is in the folder now. True: it is new."""
        folder = find_model(self._place, self._party)
        found = (folder / "model.json").stat()
        if (stamp := (found.st_mtime_ns, found.st_size)) == self._stamp:
            return False
        model = read_model(folder)
        self._stamp = stamp
        name = version_of(model)
        self.models.pop(name, None)
        self.models[name] = model
        while len(self.models) > KEPT:
            del self.models[next(iter(self.models))]
        return True

    def look(self) -> bool:
        """The same, of a folder that may be half written: what cannot be read yet is read the next time."""
        try:
            return self.read()
        except (ColonnadeError, OSError) as error:
            log.warning("the model's folder has changed and cannot be read, the model before serves: %s", error)
            return False
