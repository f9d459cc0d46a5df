"""What an exception means for its record: kind, code, outage, how long to wait. Decided by rules; never raises."""
