"""Dead letters: how they look and how they get to their topic."""
