"""Worker processes for many small, independent runs."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")

MOST = 4  # each worker imports torch anew: more would cost more than they bring


@contextmanager
def workers() -> Iterator[Executor]:
    """A pool with one single-threaded worker a core.

    These tensors are too small to share among threads, and on one thread the number of cores changes no result.
    """
    pool = ProcessPoolExecutor(
        min(MOST, os.cpu_count() or 1), mp_context=multiprocessing.get_context("spawn"), initializer=_prepare
    )
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare() -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then stops the pool


def gather(pool: Executor, calls: Sequence[Callable[[], T]], tick: Callable[[], None]) -> list[T]:
    """The results of the calls in their order; ``tick`` is called after each."""
    futures = [pool.submit(call) for call in calls]
    for future in as_completed(futures):
        future.result()  # raises at once what a worker raised
        tick()
    return [future.result() for future in futures]
