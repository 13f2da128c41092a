"""The trials of a phase, in this process or in several."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess

import optuna
import torch

from ._result import TrialError
from ._studies import Phase, Search, calmly, ended, failure, open_storage, open_study, retry_lost, work

POLL = 0.2  # seconds between two looks at workers
DEATHS = 3  # of workers, in one phase


def do(
    storage: optuna.storages.BaseStorage, search: Search, phase: Phase, workers: int, tick: Callable[[int], None]
) -> None:
    """Do what is missing of a phase; ``tick`` gets the number of trials that ended."""
    study = open_study(storage, phase.name, search)

    said = -1

    def say() -> None:
        nonlocal said
        if (found := len(ended(study))) != said:
            said = found
            tick(found)

    say()
    if workers == 1:
        retry_lost(study)
        work(storage, search, phase, say)
        return
    for _ in range(DEATHS):
        retry_lost(study)
        if _together(study, search, phase, min(workers, max(1, phase.count - len(ended(study)))), say):
            return
    raise TrialError(f"workers were killed {DEATHS} times (out of memory?); try fewer of them: --workers")


def _together(study: optuna.Study, search: Search, phase: Phase, count: int, say: Callable[[], None]) -> bool:
    """Whether all workers came to a good end."""
    spawn = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // count)
    workers: list[BaseProcess] = [spawn.Process(target=_work, args=(search, phase, threads)) for _ in range(count)]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            while worker.is_alive():
                worker.join(POLL)
                say()
                if failed := failure(study):
                    raise failed
    except (pickle.PicklingError, AttributeError) as error:
        raise ValueError(
            f"several workers need a build that another process can import, which this one is not ({error}): "
            "give the path of a file, or workers=1"
        ) from None
    finally:  # where one fails, nobody waits for the others
        for worker in workers:
            if worker.is_alive():
                worker.kill()
        for worker in workers:
            if worker.pid is not None:
                worker.join()
    say()
    if failed := failure(study):
        raise failed
    return all(worker.exitcode == 0 for worker in workers)


def _work(search: Search, phase: Phase, threads: int) -> None:
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then stops its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with calmly(), suppress(TrialError):  # it is in the trial, where the parent reads it
        work(open_storage(search.folder), search, phase, lambda: None)


def _end_with_parent() -> None:
    """A parent that is killed cannot stop its workers, which would go on in its place."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
