"""Worker processes for many small, independent runs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def workers(count: int | None = None) -> Iterator[Executor]:
    """A pool with one single-threaded worker a core, or ``count`` of them.

    The lab's tensors are small: two runs side by side are faster than one run on two threads.
    """
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(count or cores(), mp_context=multiprocessing.get_context("spawn"), initializer=_prepare)
    try:
        yield pool
    except BaseException:  # Ctrl-C, or an error that makes the rest useless: nobody waits for what is under way
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare() -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then stops the pool
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed cannot stop its workers, which would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def gather(pool: Executor, calls: Sequence[Callable[[], T]], tick: Callable[[], None]) -> list[T]:
    """The results of the calls in their order; ``tick`` is called after each."""
    futures = [pool.submit(call) for call in calls]
    for future in as_completed(futures):
        future.result()  # raises at once what a worker raised
        tick()
    return [future.result() for future in futures]
