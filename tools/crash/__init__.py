"""Crash trials: a process is killed while it writes to a gallery, and a new process checks every guarantee.

world.py defines the expected vectors. twin.py is a reference model of the gallery in plain Python. script.py writes to
both, and to a log that survives the kill. disk.py stops the process at named points, power.py removes what was not made
durable, and check.py compares gallery and twin. bugs.py plants bugs that the checks must catch; trials.py runs a trial,
run.py many of them. beside.py reads concurrently, and writes in turns. faults.py and fault.c inject faults into system
calls; sweep.py lets every call of every operation fail once. ext4.py is a real file system that loses power.
attached.py, collections.py and qdrant.py test upgrades next to the applications of shop.py and applications.py.
server.py, milvus_server.py, chroma_server.py and object_server.py start the databases.
"""
