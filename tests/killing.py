"""Runs that are killed after so many steps: how fast the machine is does not matter."""

import multiprocessing
import os
import signal
import time

import torch

from madamoo.bench.training import Training, _run, train

AHEAD = 3  # steps that a run may make while it is being killed


def save_each_step(module=_run):
    """Checkpoints are written less often than asked where writing takes long; not from here on."""
    module.max = lambda *values: 0.0 if values[0] == 0.0 else max(*values)


def _train(config, folder, gate, options):
    torch.set_num_threads(1)
    advance = Training.advance

    def gated(self):
        gate.acquire()
        return advance(self)

    Training.advance = gated
    save_each_step()
    train(config, folder, checkpoint_every=0.0, **options)


def kill_after(config, folder, steps, pause, **options):
    """Do or go on with a run in a process of its own, and kill it ``pause`` seconds after it made so many steps.

    It may make a few more, and no more than these: it is killed at work, in the middle of a write, or waiting.
    """
    fork = multiprocessing.get_context("fork")
    gate = fork.Semaphore(steps + AHEAD)
    process = fork.Process(target=_train, args=(config, folder, gate, options))
    process.start()
    while gate.get_value() > AHEAD:
        assert process.is_alive(), "the run ended before its time"
        time.sleep(0.001)
    time.sleep(pause)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
