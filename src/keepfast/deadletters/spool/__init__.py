"""The spool: stores letters that Kafka does not accept, until it does. Off unless a URL is configured."""
