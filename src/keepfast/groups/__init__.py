"""Consumer groups: their lag, and plans to move their offsets."""
