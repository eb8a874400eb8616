"""Participants of a program: replicas and partitions, their groups, and the queues that link a program with its host."""
