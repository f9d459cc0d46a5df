"""What a running app serves over HTTP: health, metrics, and a control API. One server, in threads of its own."""
