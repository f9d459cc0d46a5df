"""Adds to each institution the name of its parent company."""
