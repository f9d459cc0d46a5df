"""The desk: inspects dead letters, groups them by cause, and replays them; lag and offsets of groups."""
