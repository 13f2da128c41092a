"""NYUv2 on small files written here in both layouts; metrics, normals and augmentation against brute force."""

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from madamoo.bench import MissingData, Split, get
from madamoo.bench.problems.supervised.nyuv2 import CENTRE, FOCAL, normals_from_depth


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADAMOO_CACHE", str(tmp_path / "cache"))


def write_mtan(root: Path, train: int = 17, val: int = 3, size: tuple[int, int] = (12, 16)) -> None:
    """Frames whose depth is constant and says which they are."""
    random = np.random.default_rng(0)
    for split, count, first in (("train", train, 1), ("val", val, 101)):
        for k in range(count):
            parts = {
                "image": random.random((*size, 3)),
                "label": random.integers(-1, 13, size).astype(np.float64),
                "depth": np.full((*size, 1), first + k, np.float32),
                "normal": random.normal(size=(*size, 3)),
            }
            for part, array in parts.items():
                (root / "nyuv2" / split / part).mkdir(parents=True, exist_ok=True)
                np.save(root / "nyuv2" / split / part / f"{k}.npy", array)


def write_small(root: Path, train: int = 17, test: int = 3) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    count = train + test
    order = random.permutation(count).astype(np.int16)
    arrays = {
        "x": random.integers(0, 256, (count, 72, 96, 3), dtype=np.uint8),
        "depth8": np.broadcast_to(np.arange(20, 20 + count, dtype=np.uint8)[:, None, None], (count, 72, 96)),
        "label13": random.choice([*range(13), 255], (count, 72, 96)).astype(np.uint8),
        "train_idx": order[:train],
        "test_idx": order[train:],
    }
    (root / "nyuv2").mkdir(exist_ok=True)
    np.savez(root / "nyuv2" / "nyuv2_72x96.npz", **arrays)
    return arrays


def profile(**options):
    return replace(get("nyuv2").profiles["paper"], options=options)


def depths(split: Split) -> list[float]:
    return split.targets[1][:, 0, 0].tolist()


def test_mtan_files(tmp_path):
    write_mtan(tmp_path)
    data = get("nyuv2").load(tmp_path, profile(), 0)
    assert get("nyuv2").shape(data) == ((3, 12, 16), (13, 1, 3))
    assert len(data.train) == 15 and depths(data.test) == [101.0, 102.0, 103.0]
    for split, folder, first in ((data.train, "train", 1), (data.validation, "train", 1), (data.test, "val", 101)):
        for k, depth in enumerate(depths(split)):
            image, label, normal = (
                np.load(tmp_path / "nyuv2" / folder / part / f"{int(depth) - first}.npy")
                for part in ("image", "label", "normal")
            )
            assert np.abs(split.inputs[k].numpy() / 255 - image.transpose(2, 0, 1)).max() <= 0.5 / 255 + 1e-6
            assert np.array_equal(split.targets[0][k].numpy(), label)
            unit = normal / np.linalg.norm(normal, axis=-1, keepdims=True)
            assert np.abs(split.targets[2][k].numpy() - unit.transpose(2, 0, 1)).max() < 1e-3


def test_splits_are_disjoint_stable_and_the_same_for_every_seed(tmp_path):
    write_mtan(tmp_path)
    data = get("nyuv2").load(tmp_path, profile(), 0)
    assert sorted(depths(data.train) + depths(data.validation)) == list(range(1, 18))
    again = get("nyuv2").load(tmp_path, profile(), 5)
    assert depths(again.train) == depths(data.train) and depths(again.validation) == depths(data.validation)


def test_mtan_files_made_smaller(tmp_path):
    write_mtan(tmp_path)
    large, small = (get("nyuv2").load(tmp_path, profile(**options), 0).train for options in ({}, {"size": (6, 8)}))
    means = large.inputs.double().unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2))
    assert (small.inputs - means).abs().max() <= 1.01  # each was rounded by itself
    for whole, part in zip(large.targets, small.targets, strict=True):
        assert torch.equal(part, whole[..., 1::2, 1::2])


def test_small_file(tmp_path):
    arrays = write_small(tmp_path)
    data = get("nyuv2").load(tmp_path, profile(), 0)
    assert get("nyuv2").shape(data) == ((3, 72, 96), (13, 1, 3))
    for k, index in enumerate(arrays["test_idx"]):
        assert np.array_equal(data.test.inputs[k].numpy(), arrays["x"][index].transpose(2, 0, 1))
        labels = arrays["label13"][index].astype(int)
        assert np.array_equal(data.test.targets[0][k].numpy(), np.where(labels == 255, -1, labels))
        assert data.test.targets[1][k].numpy() == pytest.approx(arrays["depth8"][index] / 25.5)
    walls = data.test.targets[2][:, :, 2:-2, 2:-2].float()  # at the same depth everywhere: they face the camera
    assert torch.allclose(walls, torch.tensor([0.0, 0.0, -1.0])[:, None, None].expand_as(walls), atol=1e-3)


def test_profiles_choose_between_the_layouts(tmp_path):
    write_mtan(tmp_path)
    write_small(tmp_path)
    benchmark = get("nyuv2")
    sizes = {p: benchmark.load(tmp_path, benchmark.profiles[p], 0).train.inputs.shape[2:] for p in ("paper", "cpu")}
    assert sizes == {"paper": (12, 16), "cpu": (72, 96)}


def test_broken_folders_are_refused(tmp_path):
    with pytest.raises(MissingData, match=r"nyuv2/train/\{image,label,depth,normal\}"):
        get("nyuv2").load(tmp_path, profile(), 0)
    write_mtan(tmp_path)
    (tmp_path / "nyuv2" / "train" / "depth" / "3.npy").unlink()
    with pytest.raises(ValueError, match="depth has 16"):
        get("nyuv2").load(tmp_path, profile(), 0)


def test_normals_of_a_plane_are_the_cross_product_of_its_points():
    height, width = 72, 96
    u, v = np.meshgrid(np.arange(width), np.arange(height))
    fx, fy = FOCAL[0] * 0.15, FOCAL[1] * 0.15
    rays = np.stack([(u - (0.15 * (CENTRE[0] + 0.5) - 0.5)) / fx, (v - (0.15 * (CENTRE[1] + 0.5) - 0.5)) / fy], -1)
    rays = np.concatenate([rays, np.ones((height, width, 1))], -1)
    plane = np.array([0.1, 0.3, 0.4])  # plane . X = 1
    points = rays / (rays @ plane)[..., None]
    depth = torch.from_numpy(points[..., 2]).float()
    assert depth.min() > 0
    across, down = points[:-1, 1:] - points[:-1, :-1], points[1:, :-1] - points[:-1, :-1]
    expected = np.cross(down, across)
    expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    found = normals_from_depth(depth[None])[0].permute(1, 2, 0).numpy()
    assert np.abs(found[2:-2, 2:-2] - expected[2:-1, 2:-1]).max() < 1e-4
    assert (np.sum(found[2:-2, 2:-2] * points[2:-2, 2:-2], -1) < 0).all()  # towards the camera
    assert (found[:2] == 0).all() and (found[:, -2:] == 0).all()


def test_normals_are_unknown_near_holes_and_edges():
    depth = torch.full((1, 20, 20), 2.0)
    depth[0, 5, 5] = 0.0
    depth[0, :, 14:] = 4.0
    known = (normals_from_depth(depth)[0] != 0).any(0)
    expected = torch.zeros(20, 20, dtype=torch.bool)
    for i in range(2, 18):
        for j in range(2, 18):
            window = depth[0, i - 2 : i + 3, j - 2 : j + 3]
            expected[i, j] = bool(window.min() == window.max())
    assert torch.equal(known, expected)


def test_metrics_against_plain_loops():
    torch.manual_seed(0)
    n, height, width = 6, 5, 7
    outputs = [torch.randn(n, 13, height, width), torch.rand(n, 1, height, width), torch.randn(n, 3, height, width)]
    outputs[0][:, 11:] = -9.0  # 11 is never predicted; 12 also never occurs
    labels = torch.randint(-1, 12, (n, height, width))
    depth = torch.rand(n, height, width) * (torch.rand(n, height, width) > 0.3)
    normals = torch.nn.functional.normalize(torch.randn(n, 3, height, width), dim=1) * (depth > 0)[:, None]
    targets = (labels, depth, normals)
    benchmark = get("nyuv2")
    pieces = [benchmark.tally([z[a:b] for z in outputs], [y[a:b] for y in targets]) for a, b in ((0, 2), (2, 6))]
    found = benchmark.summarise({name: pieces[0][name] + pieces[1][name] for name in pieces[0]})

    both, either = [0] * 13, [0] * 13
    right = total = 0
    absolute, relative, angles = [], [], []
    for k in range(n):
        for i in range(height):
            for j in range(width):
                truth, guess = labels[k, i, j].item(), outputs[0][k, :, i, j].argmax().item()
                if truth >= 0:
                    total += 1
                    right += truth == guess
                    both[truth] += truth == guess
                    for c in {truth, guess}:
                        either[c] += 1
                if depth[k, i, j] > 0:
                    absolute.append(abs(outputs[1][k, 0, i, j].item() - depth[k, i, j].item()))
                    relative.append(absolute[-1] / depth[k, i, j].item())
                    a, b = outputs[2][k, :, i, j].double().numpy(), normals[k, :, i, j].double().numpy()
                    angles.append(math.degrees(math.acos(a @ b / np.linalg.norm(a) / np.linalg.norm(b))))
    expected = {
        "miou": 100 * np.mean([x / y for x, y in zip(both, either, strict=True) if y]),
        "pix_acc": 100 * right / total,
        "abs_err": np.mean(absolute),
        "rel_err": np.mean(relative),
        "angle_mean": np.mean(angles),
        "angle_median": sorted(angles)[(len(angles) - 1) // 2],
        **{f"within_{int(t)}": 100 * np.mean([x < t for x in angles]) for t in (11.25, 22.5, 30.0)},
    }
    assert either[12] == 0 and either[11] > 0 and both[11] == 0
    bases = (38.30, 63.76, 0.6754, 0.2780, 25.01, 19.21, 30.14, 57.20, 69.15)
    signs = (1, 1, -1, -1, -1, -1, 1, 1, 1)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=0.006 if name == "angle_median" else 1e-4), name
    improvements = [s * (found[m] - b) / b for s, m, b in zip(signs, expected, bases, strict=True)]
    assert found["delta_m"] == pytest.approx(100 * np.mean(improvements))
    assert list(found) == [metric.name for metric in benchmark.metrics]

    losses = [loss.item() for loss in benchmark.criteria(outputs, targets)]
    log = outputs[0].log_softmax(1)
    entropies = [
        -log[k, labels[k, i, j], i, j].item() for k, i, j in np.ndindex(n, height, width) if labels[k, i, j] >= 0
    ]
    cosines = [math.cos(math.radians(angle)) for angle in angles]
    assert losses == pytest.approx([np.mean(entropies), np.mean(absolute), 1 - np.mean(cosines)], rel=1e-4)


def test_losses_of_a_batch_without_any_truth_are_zero():
    outputs = [torch.randn(1, c, 4, 4, requires_grad=True) for c in (13, 1, 3)]
    targets = (torch.full((1, 4, 4), -1), torch.zeros(1, 4, 4), torch.zeros(1, 3, 4, 4))
    losses = get("nyuv2").criteria(outputs, targets)
    assert [loss.item() for loss in losses] == [0.0, 0.0, 0.0]
    sum(losses).backward()
    assert all(output.grad.isfinite().all() for output in outputs)


def coordinates(n: int, height: int = 12, width: int = 24) -> Split:
    """Frames in which every pixel says where it is: label row, normal's y column, depth 1, image both."""
    rows = torch.arange(height)[:, None].expand(height, width)
    columns = torch.arange(width).expand(height, width)
    image = torch.stack([20 * rows, 10 * columns, torch.zeros_like(rows)])
    normal = torch.stack([torch.ones(height, width), columns.float(), torch.zeros(height, width)])
    each = (image.byte(), rows.to(torch.int8), torch.ones(height, width), normal.half())
    image, label, depth, normal = (x.expand(n, *x.shape) for x in each)
    return Split(image, (label, depth, normal))


def test_augmentation_moves_all_parts_alike():
    batch = coordinates(200)
    made = get("nyuv2").prepare(batch, torch.Generator().manual_seed(0))
    seen = set()
    for image, label, depth, normal in zip(made.inputs, *made.targets, strict=True):
        scale = 1 / depth[0, 0].item()
        assert (depth == depth[0, 0]).all() and min(abs(scale - s) for s in (1.0, 1.2, 1.5)) < 1e-5
        mirrored = normal[0, 0, 0].item() == -1
        assert (normal[0] == normal[0, 0, 0]).all()
        rows, columns = label, normal[1]
        assert (rows.diff(dim=0) >= 0).all() and (
            (columns.diff(dim=1) <= 0) if mirrored else (columns.diff(dim=1) >= 0)
        ).all()
        height, width = (int(x / scale + 1e-6) for x in (12, 24))
        assert rows.max() - rows.min() == height - 1 and columns.max() - columns.min() == width - 1
        bytes_ = (image + 1) * 127.5  # bilinear: within a pixel of what the nearest pixel says
        assert (bytes_[0] / 20 - rows).abs().max() < 0.6 and (bytes_[1] / 10 - columns).abs().max() < 0.6
        seen.add((round(scale, 1), mirrored, rows.min().item(), columns.min().item()))
    assert {(scale, mirrored) for scale, mirrored, *_ in seen} == {
        (s, m) for s in (1.0, 1.2, 1.5) for m in (False, True)
    }
    assert {row for scale, _, row, _ in seen if scale == 1.5} == set(range(5))  # all places, both ends included
    assert {column for scale, *_, column in seen if scale == 1.2} == set(range(5))


def test_augmentation_comes_from_the_generator_and_only_in_training():
    batch = coordinates(8)
    first, second, third = (
        get("nyuv2").prepare(batch, torch.Generator().manual_seed(seed)).inputs for seed in (0, 0, 1)
    )
    assert torch.equal(first, second) and not torch.equal(first, third)
    plain = get("nyuv2").prepare(batch, None)
    assert torch.equal(plain.inputs, batch.inputs / 127.5 - 1) and torch.equal(
        plain.targets[0], batch.targets[0].long()
    )


def test_real_file():
    root = os.environ.get("MADAMOO_DATA")
    if not root or not (Path(root) / "nyuv2" / "nyuv2_72x96.npz").is_file():
        pytest.skip("MADAMOO_DATA is unset or has no nyuv2/nyuv2_72x96.npz")
    benchmark = get("nyuv2")
    data = benchmark.load(Path(root), benchmark.profiles["cpu"], 0)
    assert [len(data.train), len(data.validation), len(data.test)] == [700, 95, 654]
    labels, depth, normals = data.train.targets
    assert labels.unique().tolist() == list(range(-1, 13)) and depth.min() > 0 and depth.max() < 10
    lengths = normals.float().norm(dim=1)
    known = lengths > 0
    assert (lengths[known] - 1).abs().max() < 2e-3 and known.float().mean() > 0.6
    assert (normals[:, 2][known] < 0).float().mean() > 0.97  # towards the camera
    # Floors (class 4) face up, which is -y, as the camera is held level.
    assert normals[:, 1][known & (labels == 4)].float().mean() < -0.7
