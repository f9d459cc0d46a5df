"""The engine's surroundings without threads, sockets or real time: the same seed gives the same trace.

Start with `world.World`; an oracle reads `world.trace`.
"""
