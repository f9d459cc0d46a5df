"""The engine: one loop thread per consumer owns client, ledgers and lanes; workers get runs and hand back results."""
