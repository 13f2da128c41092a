"""The benchmarks. One file each, with a list ``BENCHMARKS`` of what it offers, by name."""
