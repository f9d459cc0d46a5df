"""The spool: where letters wait that Kafka does not take, until it does. Off unless a place for it is configured."""
