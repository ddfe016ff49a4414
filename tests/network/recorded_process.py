"""A nursery of party processes over Unix sockets that write down every byte they give to a socket."""

import importlib
import os
import sys
from pathlib import Path

from started_party import record_bytes

from colonnade import party_process
from colonnade.runtimes.nursery import tend


def run(arguments: list[str]) -> int:
    record_bytes(Path(os.environ["COLONNADE_TEST_RECORD"]) / str(os.getpid()))
    return party_process.run(arguments)


if __name__ == "__main__":
    importlib.import_module("sklearn.metrics")
    tend(int(sys.argv[1]), run)
