"""One file calls collectives, and in one process all of them are the identity."""

import re
from pathlib import Path

import torch

import madamoo
from madamoo.gradients import Processes

CALLS = re.compile(
    r"\b(all_reduce|all_gather|all_gather_object|broadcast|broadcast_object_list|reduce_scatter|barrier|"
    r"all_to_all|full_tensor|redistribute|distribute_tensor)\("
)


def test_one_file_calls_collectives():
    root = Path(madamoo.__file__).parent
    found = {p.relative_to(root).as_posix() for p in root.rglob("*.py") if CALLS.search(p.read_text(encoding="utf-8"))}
    assert found == {"gradients/_processes.py"}


def test_one_process():
    one, x = Processes(), torch.tensor([1.0, torch.nan])
    assert Processes.of(None).count == one.count == 1 and one.rank == 0
    assert one.sum(x) is x and one.largest(x) is x and one.means([x])[0] is x and one.joined(x, 0, 2) is x
    assert one.gather("thing") == ["thing"] and one.any(True) and not one.any(False)


def _measured():
    processes = Processes.of(None)
    rank = processes.rank
    x = torch.tensor([1.0, float(rank), torch.nan if rank else 0.0])
    means = processes.means([x[:2], torch.ones(2, 2, dtype=torch.float64) * rank, x[:0]])
    parts = torch.arange(10.0).view(2, 5).chunk(4, dim=1)
    part = parts[rank] if rank < len(parts) else torch.empty(2, 0)
    return (
        processes.count,
        processes.sum(x),
        processes.largest(x),
        means,
        processes.joined(part, 1, 5),
        processes.any(rank == 2),
    )


def test_four_processes(four):
    for count, total, largest, means, joined, found in four.run(_measured):
        assert count == 4 and found
        assert total[:2].tolist() == [4.0, 6.0] and bool(total[2].isnan())
        assert largest.tolist() == [1.0, 3.0, torch.inf]
        assert [m.tolist() for m in means] == [[1.0, 1.5], [[1.5, 1.5], [1.5, 1.5]], []]
        assert torch.equal(joined, torch.arange(10.0).view(2, 5))
