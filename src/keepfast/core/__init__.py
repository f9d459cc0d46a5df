"""Pure decisions and bookkeeping: no I/O, no threads, no clock. Imports nothing of ours; everything may import it."""
