"""From settings to running parts: what must be there, clients, plans, spools, loops with workers."""
