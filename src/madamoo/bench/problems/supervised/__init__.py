"""Benchmarks of samples with targets. One file each, with a mapping ``BENCHMARKS`` of what it offers, by name."""
