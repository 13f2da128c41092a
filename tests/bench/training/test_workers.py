import multiprocessing
import os
import time
from functools import partial

import pytest
import torch

from madamoo.bench.training._workers import cores, gather, workers


def test_cores_are_those_this_process_may_use():
    assert 1 <= cores() <= (os.cpu_count() or 1)


def test_calls_are_done_in_other_processes_on_one_thread_and_come_in_order():
    ticks = []
    with workers(1) as pool:
        found = gather(pool, [os.getpid, torch.get_num_threads, partial(pow, 2, 5)], lambda: ticks.append(1))
    assert found[0] != os.getpid() and found[1:] == [1, 32] and len(ticks) == 3


def test_an_interrupt_does_not_wait_for_what_is_under_way():
    before = set(multiprocessing.active_children())
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012, SIM117
        with workers(1) as pool:
            pool.submit(os.getpid).result()
            future = pool.submit(time.sleep, 3600.0)
            while not future.running():
                time.sleep(0.01)
            raise KeyboardInterrupt
    assert set(multiprocessing.active_children()) == before
