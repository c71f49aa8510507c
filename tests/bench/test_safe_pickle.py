"""The restricted reader gives exactly the arrays of a pickle of arrays, and runs nothing of any other."""

import os
import pickle
import pickletools

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from toporo.bench.safe_pickle import read_arrays
from toporo.errors import UnsafeFileError

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
}


@pytest.fixture
def written(tmp_path):
    """Writes bytes, or pickles what is not bytes, and returns the path."""

    def write(content, protocol=4):
        path = tmp_path / "data.pkl"
        path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol))
        return path

    return write


@pytest.mark.parametrize("protocol", range(2, 6))
def test_reads_what_numpy_writes(written, protocol):
    """... whichever of pickle's protocols was the default when the file was made (5 is, from Python 3.14 on)."""
    read = read_arrays(written(ARRAYS, protocol))
    assert read.keys() == ARRAYS.keys()
    for key, expected in ARRAYS.items():
        assert read[key].dtype == expected.dtype, key
        assert read[key].shape == expected.shape, key
        assert_array_equal(read[key], expected, err_msg=key)
        read[key][...] = 0  # its own memory, not the file's


def test_reads_an_array_without_entries(written):
    assert read_arrays(written({"a": np.zeros((0, 2))}))["a"].shape == (0, 2)


def test_reads_what_older_numpy_wrote(written):
    """numpy 1 pickles name numpy.core, numpy 2 names numpy._core."""
    content = pickle.dumps({"a": np.arange(3)}, protocol=3)
    assert content.count(b"numpy._core.multiarray") == 1
    assert_array_equal(read_arrays(written(content.replace(b"numpy._core", b"numpy.core")))["a"], [0, 1, 2])


class Payload:
    """What a hostile file holds: a call, made as soon as a plain reader meets it."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("wrap", [lambda p: p, lambda p: {"data": p}, lambda p: {"data": np.array([p], dtype=object)}])
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_command_is_refused_and_not_run(written, tmp_path, wrap, protocol):
    """The payload would make a folder; the plain reader shows that it does."""
    mark = tmp_path / "executed"
    path = written(wrap(Payload(os.mkdir, str(mark))), protocol)
    with pytest.raises(UnsafeFileError, match="nothing in the file was executed"):
        read_arrays(path)
    assert not mark.exists()
    with path.open("rb") as stream:
        pickle.load(stream)
    assert mark.exists()


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (Payload(os.system, "true"), r"(posix|nt)\.system"),
        (Payload(eval, "1 + 1"), r"builtins\.eval"),
        (Payload(getattr, "text", "upper"), r"builtins\.getattr"),
        (Payload(np.fromfile, "/etc/hostname"), r"numpy(\._core\.multiarray)?\.fromfile"),
        (Payload(np.ndarray, (2,)), "a direct call of numpy.ndarray"),
    ],
    ids=["system", "eval", "getattr", "another numpy function", "ndarray itself"],
)
def test_a_reference_is_refused_by_its_name(written, payload, named):
    with pytest.raises(UnsafeFileError, match=f"data.pkl holds (a reference to )?{named}"):
        read_arrays(written({"data": payload}))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ([np.ones(2)], "holds a list"),
        (np.ones(2), "holds a _?[Aa]rray"),
        ({"a": [1, 2]}, "holds list under 'a'"),
        ({"a": 3}, "holds int under 'a'"),
        ({"a": {"b": np.ones(2)}}, "holds dict under 'a'"),
        ({1: np.ones(2)}, "under 1"),
        ({"a": np.array([1, "x"], dtype=object)}, "type 'O8', which is not a number type"),
        ({"a": np.array(["text"])}, "type 'U4', which is not a number type"),
        ({"a": np.zeros(2, dtype="f8,i4")}, "type 'V12', which is not a number type"),
        ({"a": np.float64(1.0)}, r"a reference to numpy\._core\.multiarray\.scalar"),
        ({"a": np.ma.masked_array([1.0])}, r"a reference to numpy\.ma"),
    ],
    ids=[
        "list",
        "bare array",
        "list inside",
        "number",
        "nested",
        "key",
        "objects",
        "text",
        "records",
        "scalar",
        "masked",
    ],
)
def test_anything_but_a_dict_of_number_arrays_is_refused(written, content, found):
    with pytest.raises(UnsafeFileError, match=f"{found}.*Expected a pickled dict of numpy arrays"):
        read_arrays(written(content))


@pytest.mark.parametrize("code", ["O", "f8,O", "object", "i4,i4", ""])
def test_a_forged_type_code_gets_no_other_type_in(written, code):
    """The type is text in the file; text that numpy would read as objects or records is refused as well."""
    forged = pickle.dumps({"a": np.zeros(2)}, protocol=3).replace(
        b"X\x02\x00\x00\x00f8", b"X" + len(code).to_bytes(4, "little") + code.encode()
    )
    with pytest.raises(UnsafeFileError):
        read_arrays(written(forged))


@pytest.mark.parametrize("protocol", [3, 4])
def test_a_file_cut_anywhere_is_refused(written, protocol):
    content = pickle.dumps({"a": np.arange(6.0).reshape(2, 3)}, protocol=protocol)
    for length in range(len(content)):
        with pytest.raises(UnsafeFileError, match="nothing in the file was executed"):
            read_arrays(written(content[:length]))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"data,label\n1,2\n",
        b"\x80\x04\x8d" + b"\xff" * 8 + b".",
        b"\x80\x04}\x94Pelsewhere\n.",
        b"\x80\x02\x82\x01.",
        pickle.dumps({"a": np.zeros(2)}, protocol=3).replace(b"K\x02\x85", b"K\x03\x85"),
        pickle.dumps({"a": np.zeros(2)}, protocol=3).replace(b"K\x02\x85", b"\x8a\x10" + b"\x7f" * 16 + b"\x85"),
    ],
    ids=["empty", "text", "impossible length", "persistent id", "extension", "wrong shape", "huge shape"],
)
def test_a_malformed_file_is_refused(written, content):
    with pytest.raises(UnsafeFileError, match="nothing in the file was executed"):
        read_arrays(written(content))


def test_the_forged_files_are_what_they_claim():
    """Guards the replacements above: the bytes they look for do occur."""
    content = pickle.dumps({"a": np.zeros(2)}, protocol=3)
    assert content.count(b"X\x02\x00\x00\x00f8") == content.count(b"K\x02\x85") == 1
    assert "BUILD" in {opcode.name for opcode, _, _ in pickletools.genops(content)}
