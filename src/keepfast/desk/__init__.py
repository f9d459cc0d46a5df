"""The desk: inspects dead letters, groups them by cause, and replays them."""
