"""What a lowered program asks of those who run it: who am I, and exchange this with my group.

Kernels know only this room. A program that runs alone is served here (`participant.SingleParticipant`); threads and processes
that run it together are in `xla_torch.distributed`, which implements the interface.
"""
