"""Detects card numbers and secrets, and masks them in everything that is shown or logged."""
