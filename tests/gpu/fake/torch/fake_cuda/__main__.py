import runpy
import sys
from pathlib import Path

import fake_cuda

if len(sys.argv) < 2:
    sys.exit("python -m fake_cuda SCRIPT ARGUMENTS")
del sys.argv[0]
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
fake_cuda.install()
runpy.run_path(sys.argv[0], run_name="__main__")
