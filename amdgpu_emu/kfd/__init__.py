"""The emulated /dev/kfd: amdkfd's ioctls and maps, as `kfd_chardev.c` and its neighbours answer them.

file: an open descriptor and its table of calls; process: what all opens of a process share; memory, sharing: buffers;
buffers: the rules for a queue's own buffers; queues, doorbells: queues and how they run; events: waiting;
svm: ranges of the process's own addresses; misc: the rest.
"""
