"""Dead letters: what they hold, how they look on the wire, and how they get to their topic."""
