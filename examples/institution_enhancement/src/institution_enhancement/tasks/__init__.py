"""What it is made of."""
