"""Card numbers and secrets: found, and masked in whatever is shown or logged."""
