"""A write of Lance that fails, is acknowledged all the same, and leaves a dataset that nobody can read.

No file may become larger than 4,096 bytes while rows are deleted: the write of the deletion file fails (EFBIG), as on a
full disk; those of the other files, which are smaller, do not.
"""

import resource
import subprocess
import sys
import tempfile

import lance
import pyarrow as pa

READ = "import sys, lance; print(lance.dataset(sys.argv[1]).to_table().num_rows, 'rows')"

with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/numbers.lance"
    dataset = lance.write_dataset(pa.table({"number": range(100_000)}), path)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, limit[1]))
    deleted = dataset.delete("number % 2 = 0")
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    print(f"pylance {lance.__version__}: delete() returned {deleted}, version {dataset.version}")
    fresh = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True)
    message = (fresh.stdout or fresh.stderr).strip().splitlines()[-1].replace(folder.lstrip("/"), "...")
    print("a fresh process:", message)
