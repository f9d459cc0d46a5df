"""A broker, its clients, a disk and a clock in memory, without threads or real time, the same for the same seed."""
