"""Seconds of a message between two processes of one machine, through memory that both see or through TCP.

Through memory is how OpenMPI carries messages within a machine, with which AsySQN's experiments were made: the sender
copies its numbers and says so, the other, who looks all the time, copies them out and says so.
"""

import multiprocessing
import socket
import threading
import time
from multiprocessing.shared_memory import SharedMemory
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

PATIENT_LOOKS = 10_000
"""After so many a process gives its core away: the other may be waiting for it."""


def through_memory(numbers: int, times: int) -> float:
    """The median of `times` messages, each copied in by one process and out by the other."""
    memory = SharedMemory(create=True, size=16 + 8 * numbers)
    other = multiprocessing.get_context("spawn").Process(target=_copy_out, args=(memory.name, numbers, times))
    try:
        other.start()
        took = _copy_in(memory, numbers, times)
        other.join()
    finally:
        memory.close()
        memory.unlink()
    return median(took)


def _copy_in(memory: SharedMemory, numbers: int, times: int) -> list[float]:
    turns, there = _views(memory, numbers)
    sent, took = np.zeros(numbers), []
    _wait_for(turns, 1, READY)
    for turn in range(1, times + 1):
        began = perf_counter()
        there[:] = sent
        turns[0] = turn
        _wait_for(turns, 1, turn)
        took.append(perf_counter() - began)
    return took


def _copy_out(name: str, numbers: int, times: int) -> None:
    memory = SharedMemory(name)
    turns, there = _views(memory, numbers)
    taken = np.empty(numbers)
    turns[1] = READY
    for turn in range(1, times + 1):
        _wait_for(turns, 0, turn)
        taken[:] = there
        turns[1] = turn
    del turns, there  # or the memory could not be closed
    memory.close()


READY = -1


def _views(memory: SharedMemory, numbers: int) -> tuple[Any, Any]:
    """Two counters, the sender's and the receiver's, and the numbers."""
    return np.ndarray(2, np.int64, memory.buf), np.ndarray(numbers, np.float64, memory.buf, 16)


def _wait_for(turns: Any, whose: int, turn: int) -> None:
    looks = 0
    while turns[whose] != turn:
        looks += 1
        if looks % PATIENT_LOOKS == 0:
            time.sleep(0)


def through_tcp(numbers: int, times: int) -> float:
    """The same through a TCP connection of this machine, and a byte back."""
    payload = b"\0" * (8 * numbers)
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=_answer, args=(server, len(payload), times), daemon=True)
        answering.start()
        took = []
        with socket.create_connection(server.getsockname()) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(times):
                began = perf_counter()
                link.sendall(payload)
                link.recv(1)
                took.append(perf_counter() - began)
        answering.join()
    return median(took)


def _answer(server: socket.socket, size: int, times: int) -> None:
    link, _ = server.accept()
    with link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(times):
            left = size
            while left:
                left -= len(link.recv(min(left, 1 << 20)))
            link.sendall(b"\1")
