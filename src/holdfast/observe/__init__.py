"""What holdfast shows of itself: logs, metrics, lag, traces."""
