"""Let every write of the usual operations of Lance fail once, and look what is reported and what can be read then.

The dataset is opened with a new `lance.Session`, so that nothing that the writer remembers helps. Where a write is
reported, the kind of its file is that of the same write without faults (index files are written side by side, so that
these may be mistaken for each other). Usage: every_write.py [OPERATION ...]
"""

import ctypes
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path

HERE = Path(__file__).parent
WIDTH = 32
SIZES = 300, 30_000
INDEX = {"metric": "dot", "num_partitions": 4}


def rows(first, count):
    numbers = np.random.default_rng(first).standard_normal(count * WIDTH).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(numbers, WIDTH)
    return pa.table({"id": [f"i{number:06}" for number in range(first, first + count)], "vector": vectors})


def opened(path):
    return lance.dataset(path, session=lance.Session())


def ids(count):
    return ", ".join(f"'i{number:06}'" for number in range(0, 2 * count, 2))


def indexed(path, size):
    lance.write_dataset(rows(0, size), path)
    opened(path).create_scalar_index("id", "BTREE")
    opened(path).create_index("vector", "IVF_FLAT", **INDEX)


def in_pieces(path, size):
    indexed(path, size)
    for part in range(3):
        opened(path).insert(rows(size + part * size // 3, size // 3))


OPERATIONS = {  # what is there before, what is done, and how many rows there are then
    "create": (lambda path, size: None, lambda path, size: lance.write_dataset(rows(0, size), path), 1),
    "append": (indexed, lambda path, size: opened(path).insert(rows(size, size)), 2),
    "delete": (indexed, lambda path, size: opened(path).delete(f"id IN ({ids(size // 4)})"), 3 / 4),
    "create BTREE": (lambda path, size: lance.write_dataset(rows(0, size), path),
                     lambda path, size: opened(path).create_scalar_index("id", "BTREE"), 1),
    "create IVF_FLAT": (lambda path, size: lance.write_dataset(rows(0, size), path),
                        lambda path, size: opened(path).create_index("vector", "IVF_FLAT", **INDEX), 1),
    "compact": (in_pieces, lambda path, size: opened(path).optimize.compact_files(), 2),
    "optimize indices": (in_pieces, lambda path, size: opened(path).optimize.optimize_indices(), 2),
}  # fmt: skip


def committed(table, version):
    table.checkout_version(version).insert(rows(900_000, 1))
    return True


def unreadable(path, count):
    """Return what fails with the last version."""
    query = {"column": "vector", "q": np.ones(WIDTH, np.float32), "k": 5, "nprobes": 4}
    last = opened(path).version
    checks = {
        "rows": lambda table: len(table.to_table()) == count,
        "a search by id": lambda table: len(table.to_table(filter="id = 'i000001'")) == 1,
        "a search by vector": lambda table: len(table.to_table(nearest=query)) == 5,
        "a commit on top of the version before": lambda table: last == 1 or committed(table, last - 1),
        "a clean-up of old versions": lambda table: table.cleanup_old_versions(
            retain_versions=1, delete_unverified=True
        ),
    }
    wrong = []
    for name, check in checks.items():
        try:
            fine = check(opened(path))
        except BaseException as error:  # Lance may panic
            fine = False
            MESSAGES.setdefault(name, " ".join(str(error).replace(path.lstrip("/"), "...").split())[:200])
        wrong += [] if fine else [name]
    return wrong


def name_of(path, inode):
    """Return what kind of file has this number."""
    for file in Path(path).rglob("*"):
        if file.stat().st_ino == inode:
            return "/".join(["_indices", file.name] if "_indices" in file.parts else [file.parent.name, file.suffix])
    return "(replaced since)"


def prepared(folder, operation, size):
    path = f"{folder}/{operation.replace(' ', '_')}-{size}"
    shutil.rmtree(path, ignore_errors=True)
    template = f"{folder}/before-{OPERATIONS[operation][0].__name__}-{operation}-{size}"
    if not Path(template).exists():
        Path(template).mkdir()
        OPERATIONS[operation][0](f"{template}/it", size)
    if Path(template, "it").exists():
        shutil.copytree(f"{template}/it", path)
    return path


def trials(folder, operation, size, number):
    _, act, share = OPERATIONS[operation]
    path = prepared(folder, operation, size)
    LIBRARY.fail_write(os.fsencode(path), 0, 0)
    act(path, size)
    kinds = [name_of(path, LIBRARY.inode_of(nth + 1)) for nth in range(LIBRARY.writes())]
    for nth, kind in enumerate(kinds, start=1):
        path = prepared(folder, operation, size)
        LIBRARY.fail_write(os.fsencode(path), nth, number)
        try:
            act(path, size)
        except BaseException:
            LIBRARY.fail_write(b"", 0, 0)
            yield kind, "reported"
            continue
        inodes = [LIBRARY.inode_of(one + 1) for one in range(LIBRARY.writes())]
        LIBRARY.fail_write(b"", 0, 0)
        LAST.append(inodes[nth - 1] not in inodes[nth:])
        kind = name_of(path, inodes[nth - 1])
        wrong = ", ".join(unreadable(path, int(size * share)))
        yield kind, f"swallowed; these fail: {wrong}" if wrong else "swallowed; all is read"


def main(folder, operations):
    print(f"pylance {lance.__version__}")
    for operation, size in product(operations or OPERATIONS, SIZES):
        numbers = errno.ENOSPC, errno.EIO
        told = Counter(one for number in numbers for one in trials(folder, operation, size, number))
        print(f"\n{operation}, {size:,} rows: {sum(told.values())} writes failed, one at a time")
        for (kind, outcome), count in sorted(told.items()):
            print(f"  {count:3} {kind:27} {outcome}")
    print(f"\nOf {len(LAST)} swallowed writes {sum(LAST)} were the last one of their file.")
    print("The first messages:")
    for name, message in MESSAGES.items():
        print(f"  {name}: {message}")


if __name__ == "__main__":
    if "LD_PRELOAD" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            library = f"{folder}/fail_write.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, HERE / "fail_write.c", "-ldl"], check=True)
            environment = {**os.environ, "LD_PRELOAD": library, "TMPDIR": folder}
            raise SystemExit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)
    os.environ.setdefault("LANCE_LOG", "error")
    import lance
    import numpy as np
    import pyarrow as pa

    MESSAGES, LAST = {}, []
    LIBRARY = ctypes.CDLL(None)
    LIBRARY.inode_of.restype = LIBRARY.writes.restype = ctypes.c_long
    LIBRARY.fail_write.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
    with tempfile.TemporaryDirectory() as folder:
        main(folder, sys.argv[1:])
