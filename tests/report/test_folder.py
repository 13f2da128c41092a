"""The perception-distortion plane on the page of a folder."""

from madamoo.report.folder import plane_blocks


def record(solver, optimizer, seed, metrics, benchmark="brain-t1"):
    return {
        "config": {"benchmark": benchmark, "solver": solver, "optimizer": optimizer, "seed": seed},
        "metrics": metrics,
    }


def test_each_run_with_both_metrics_is_a_dot_of_its_solver_and_optimizer():
    found = plane_blocks(
        [
            record("ls", "adam", 0, {"psnr": 20.0, "lpips": 0.3}),
            record("ls", "adam", 1, {"psnr": 20.5, "lpips": 0.31}),
            record("uw", "madam", 0, {"psnr": 19.0, "lpips": 0.2}),
            record("uw", "madam", 1, None),  # diverged
            record("uw", "madam", 2, {"psnr": 19.0, "lpips": None}),
            record("ls", "adam", 0, {"dice": 90.0}, "ph2"),
        ]
    )
    (figure,) = found
    dots = {trace["name"]: list(zip(trace["x"], trace["y"], strict=True)) for trace in figure.data}
    assert dots == {"ls, Adam": [(20.0, 0.3), (20.5, 0.31)], "uw, MAdam": [(19.0, 0.2)]}
    assert figure.title == "brain-t1" and all(trace["mode"] == "markers" for trace in figure.data)
    assert "rangemode" not in figure.layout["xaxis"], "PSNR does not begin at zero"
    assert not plane_blocks([record("ls", "adam", 0, {"dice": 90.0}, "ph2")])
