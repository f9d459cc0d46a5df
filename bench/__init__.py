"""Benchmarks beside the raw client: `make bench`, or `python -m bench w1 cards`. A figure is a ratio within one run."""
