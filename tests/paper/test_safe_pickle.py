"""The published pickles are read as arrays; anything else in a file is an error, and nothing in it is run."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from toporo.errors import DataError
from toporo.paper.safe_pickle import MAX_BYTES, read_arrays

ARRAYS = {
    "floats": np.linspace(0, 1, 6).reshape(2, 3),
    "integers": np.arange(5),
    "bytes": np.arange(4, dtype=np.uint8),
    "booleans": np.array([True, False]),
    "single": np.ones((2, 2, 2), dtype=np.float32),
    "big endian": np.arange(3, dtype=">i4"),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": np.arange(10.0)[::2],
    "one number": np.array(3.5),
    "empty": np.ones((0, 2)),
}


@pytest.fixture
def written(tmp_path):
    """Writes bytes, or pickles what is not bytes, and returns the path."""

    def write(content, protocol=4):
        path = tmp_path / "data.pkl"
        path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol))
        return path

    return write


@pytest.mark.parametrize("protocol", [3, 4])
def test_reads_what_numpy_writes(written, protocol):
    """With the protocols that were Python 3's default up to Python 3.13."""
    read = read_arrays(written(ARRAYS, protocol))
    assert read.keys() == ARRAYS.keys()
    for key, expected in ARRAYS.items():
        assert read[key].dtype == expected.dtype, key
        assert read[key].shape == expected.shape, key
        assert_array_equal(read[key], expected, err_msg=key)


class Payload:
    """A call that a plain reader makes as soon as it meets it."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (Payload(eval, "1 + 1"), r"a reference to builtins\.eval"),
        (Payload(np.fromfile, "here"), r"a reference to numpy(\._core\.multiarray)?\.fromfile"),
        (Payload(np.ndarray, (2,)), "no attribute 'state'"),
    ],
)
def test_a_reference_is_refused_by_its_name(written, payload, named):
    with pytest.raises(DataError, match=named):
        read_arrays(written({"data": payload}))


@pytest.mark.parametrize("protocol", [0, 4])
def test_a_command_is_refused_and_not_run(written, tmp_path, protocol):
    """The payload would make a folder; the plain reader shows that it does."""
    mark = tmp_path / "executed"
    path = written({"data": np.array([Payload(os.mkdir, str(mark))], dtype=object)}, protocol)
    with pytest.raises(DataError, match="nothing in the file was executed"):
        read_arrays(path)
    assert not mark.exists()
    with path.open("rb") as stream:
        pickle.load(stream)
    assert mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        np.ones(2),
        {"a": 3},
        {"a": {"b": np.ones(2)}},
        {1: np.ones(2)},
        {"a": np.array([1, "x"], dtype=object)},
        {"a": np.zeros(2, dtype="f8,i4")},
        b"",
        pickle.dumps({"a": np.zeros(2)})[:-9],
        b"\x80\x04}\x94Pelsewhere\n.",
        pickle.dumps({"a": np.zeros(2)}, protocol=3).replace(b"K\x02\x85", b"K\x03\x85"),
        b"\x80\x03}X\1\0\0\0acnumpy.core.multiarray\n_reconstruct\n)Rs.",
    ],
)
def test_anything_but_a_dict_of_number_arrays_is_refused(written, content):
    with pytest.raises(DataError, match="Expected a pickled dict of numpy arrays"):
        read_arrays(written(content))


# ---------------------------------------------------------------- bombs

BOMBS = {
    "memory": b"\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nJ\xff\xff\xff\x7f\x85C\1b\x87R.",
    "time: a tuple of twice the one before, as a name": b"\x80\x02})q\0" + b"h\0h\0\x86q\0" * 200 + b"Ns.",
    "time: such a tuple as the type of an array": b"\x80\x02)q\0"
    + b"h\0h\0\x86q\0" * 200
    + b"}X\1\0\0\0acnumpy.core.multiarray\n_reconstruct\n)R(K\1K\1\x85"
    + b"cnumpy\ndtype\nh\0\x85R(K\3X\1\0\0\0<NNNtb\x89C\10\0\0\0\0\0\0\0\0tbs.",
}
CHILD = """
import resource, sys
from pathlib import Path
from toporo.paper.safe_pickle import read_arrays
from toporo.errors import DataError

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_arrays(Path(sys.argv[1]))
except DataError as error:
    print(str(error)[-33:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**16)  # 64 MiB
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the memory that was taken")
@pytest.mark.parametrize("content", BOMBS.values(), ids=BOMBS)
def test_a_bomb_neither_crashes_nor_exhausts(written, content):
    done = subprocess.run([sys.executable, "-c", CHILD, written(content)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing in the file was executed.\nTrue\n", "")


def test_large_files_are_refused(written):
    with pytest.raises(DataError, match=f"more than {MAX_BYTES} bytes"):
        read_arrays(written({"a": np.zeros(MAX_BYTES // 8)}))
