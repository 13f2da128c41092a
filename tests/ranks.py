"""Groups of processes that are started once and then run many cases: ``ranks.run(function, ...)`` on each of them."""

import multiprocessing
import pickle
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed as dist

TIMEOUT = 20.0  # seconds that a process waits for the others; a case may take twice as long
FORK = multiprocessing.get_context("fork")  # torch is imported already


def _serve(rank, count, file, pipe):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{file}", rank=rank, world_size=count, timeout=timedelta(seconds=TIMEOUT)
    )
    pipe.send("ready")
    while (task := pipe.recv()) is not None:
        function, args, options = task
        try:
            found = function(*args, **options)
        except Exception as error:
            error.add_note(f"on rank {rank}:\n{traceback.format_exc()}") if hasattr(error, "add_note") else None
            found = _Failed(error)
        pipe.send(found)
    dist.destroy_process_group()


class _Failed:
    def __init__(self, error):
        try:
            self.error = pickle.loads(pickle.dumps(error))
        except Exception:
            self.error = RuntimeError(repr(error))


class Ranks:
    """``count`` processes of one group. A case that hangs ends them; the next case has new ones."""

    def __init__(self, count):
        self.count, self.processes, self.pipes = count, [], []

    def _start(self):
        file = Path(tempfile.mkdtemp()) / "store"
        for rank in range(self.count):
            ours, theirs = FORK.Pipe()
            process = FORK.Process(target=_serve, args=(rank, self.count, file, theirs), daemon=True)
            process.start()
            self.processes.append(process)
            self.pipes.append(ours)
        self._answers()

    def _answers(self):
        found = []
        for pipe in self.pipes:
            if not pipe.poll(2 * TIMEOUT):
                self.stop()
                raise TimeoutError("a process of the group hangs")
            found.append(pipe.recv())
        return found

    def outcomes(self, function, *args, **options):
        """What the function returns on each rank, or the exception that it raises there."""
        if not self.processes:
            self._start()
        for pipe in self.pipes:
            pipe.send((function, args, options))
        return [x.error if isinstance(x, _Failed) else x for x in self._answers()]

    def run(self, function, *args, **options):
        """What the function returns on each rank; an exception is raised here."""
        found = self.outcomes(function, *args, **options)
        for error in found:
            if isinstance(error, Exception):
                raise error
        return found

    def stop(self):
        for process in self.processes:
            process.kill()
            process.join()
        self.processes, self.pipes = [], []
