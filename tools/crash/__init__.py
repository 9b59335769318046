"""Crash trials: a gallery is killed while it writes, reopened by a fresh process, and held to what it promised.

world.py says what every vector ought to be, twin.py keeps in plain Python what the gallery ought to hold, script.py
writes to both and to a log that survives the kill, disk.py stops the process at named points, power.py takes away what
was never made durable, check.py compares, bugs.py plants bugs that have to be caught, and trials.py runs it all.
beside.py reads, and takes turns to write, meanwhile. faults.py and fault.c reach below the libraries, where sweep.py
lets every call of every operation fail once; ext4.py is a real file system that loses its power. attached.py,
collections.py and qdrant.py try upgrades beside the applications of shop.py and applications.py; server.py and
milvus_server.py start the databases.
"""
