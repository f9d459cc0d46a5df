"""Pure decisions and bookkeeping: no I/O, no threads, no clock of its own. Everything may import this; it imports nothing of ours."""
