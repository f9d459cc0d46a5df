"""What the examples of the documentation call: a shop's own code, which does nothing."""
