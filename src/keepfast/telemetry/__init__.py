"""What keepfast shows of itself: logs, metrics, lag, traces."""
