"""Recorded shapes as they are read, and every kind of line that is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from aotc.base.errors import AotcError
from aotc.spec.payload import Value
from aotc.spec.traffic import read_traffic

INPUTS = (
    Value(name="ids", dtype="int64", shape=("batch", "seq")),
    Value(name="mask", dtype="int64", shape=("batch", "seq")),
    Value(name="image", dtype="float32", shape=("batch", 3, 8, 8)),
)


def write(folder: Path, text: str, name: str = "t.jsonl") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_shapes_by_input(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"ids": [1, 40], "mask": [1, 40], "image": [1, 3, 8, 8]}\n\n'
        '{"ids": [2, 7], "mask": [2, 7], "image": [2, 3, 8, 8], "count": 3}\n'
        '{"ids": [1, 40], "mask": [1, 40], "image": [1, 3, 8, 8]}',
    )
    found = read_traffic(path, INPUTS)
    assert found.dims == ("batch", "seq")
    assert found.counts == {(1, 40): 2, (2, 7): 3}
    assert found.requests == 5
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert list(found.sizes()) == [({"batch": 1, "seq": 40}, 2), ({"batch": 2, "seq": 7}, 3)]


def test_sizes_by_dim_or_position(tmp_path: Path) -> None:
    path = write(tmp_path, '{"batch": 1, "ids.1": 40}\n{"batch": 1, "seq": 0}\n')
    assert read_traffic(path, INPUTS).counts == {(1, 40): 1, (1, 0): 1}
    assert read_traffic(write(tmp_path, '{"seq": 5}\n')).dims == ("seq",)


def test_a_table(tmp_path: Path) -> None:
    path = write(tmp_path, "batch,seq,count\n1,40,2\n\n 2 , 7 ,1\n", "t.csv")
    found = read_traffic(path, INPUTS)
    assert (found.dims, found.counts) == (("batch", "seq"), {(1, 40): 2, (2, 7): 1})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"seq": 4',
            "AOTC-S020 the line is not JSON [{at}] (found not JSON: Expecting ',' "
            "delimiter: line 1 column 10 (char 9))",
        ),
        ("[1, 2]", "AOTC-S020 the line holds no shapes [{at}] (expected an object; found [1, 2])"),
        ("{}", "AOTC-S020 the line holds no shapes [{at}] (expected an object; found {{}})"),
        (
            '{"ids": [1, 2], "mask": [1, 3]}',
            "AOTC-S020 dim 'seq' has two sizes [{at}] (expected one; found 2 and 3)",
        ),
        (
            '{"id": [1, 2]}',
            "AOTC-S020 the model has no input 'id'; did you mean 'ids'? [{at}]"
            " (expected ids, mask, image; found id)",
        ),
        (
            '{"batc": 1}',
            "AOTC-S020 the model has no dim 'batc'; did you mean 'batch'? [{at}]"
            " (expected batch, seq; found batc)",
        ),
        (
            '{"ids": [1, 2, 3]}',
            "AOTC-S021 the shape of 'ids' has another rank [{at}]"
            " (expected 2: [batch, seq]; found 3: [1, 2, 3])",
        ),
        (
            '{"image": [1, 4, 8, 8]}',
            "AOTC-S021 the shape of 'image' has another fixed size [{at}] (expected 3; found 4)",
        ),
        (
            '{"ids": [1, -2]}',
            "AOTC-S022 the size of 'ids' is impossible [{at}] (expected 0..2147483647; found -2)",
        ),
        (
            '{"seq": 4294967296}',
            "AOTC-S022 the size of 'seq' is impossible [{at}]"
            " (expected 0..2147483647; found 4294967296)",
        ),
        (
            '{"seq": 4.5}',
            "AOTC-S022 the size of 'seq' is not an integer [{at}] (expected an integer; found 4.5)",
        ),
        (
            '{"seq": true}',
            "AOTC-S022 the size of 'seq' is not an integer [{at}]"
            " (expected an integer; found True)",
        ),
    ],
)
def test_a_line_that_cannot_be_used(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path, f'{{"batch": 1, "seq": 4}}\n{line}\n')
    with pytest.raises(AotcError) as caught:
        read_traffic(path, INPUTS)
    assert caught.value.line() == message.format(at=f"{path}, line 2")
    assert caught.value.exit_status == 3


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("1,2\n", "AOTC-S020", "the header does not name dims"),
        ("seq,seq\n1,2\n", "AOTC-S020", "the header does not name dims"),
        ("batch,seq\n1\n", "AOTC-S020", "as many cells as the header"),
        ("seq\nlong\n", "AOTC-S022", "not an integer"),
        ("seq\n-1\n", "AOTC-S022", "impossible"),
        ("seq\n", "AOTC-S023", "holds no request"),
        ("", "AOTC-S023", "holds no request"),
        ('seq\n"1\n', "AOTC-S020", "the line is not CSV"),
    ],
)
def test_a_table_that_cannot_be_used(tmp_path: Path, text: str, code: str, says: str) -> None:
    with pytest.raises(AotcError) as caught:
        read_traffic(write(tmp_path, text, "t.csv"), INPUTS)
    assert caught.value.code == code
    assert says in caught.value.what


def test_an_empty_file_and_a_missing_one(tmp_path: Path) -> None:
    with pytest.raises(AotcError, match="AOTC-S023"):
        read_traffic(write(tmp_path, "\n \n"), INPUTS)
    with pytest.raises(AotcError, match="AOTC-I001"):
        read_traffic(tmp_path / "none.jsonl", INPUTS)


def test_lines_that_count_no_request(tmp_path: Path) -> None:
    path = write(tmp_path, '{"seq": 5, "count": 0}\n{"seq": 7, "count": 2}\n')
    assert read_traffic(path).counts == {(7,): 2}
    with pytest.raises(AotcError, match="AOTC-S023"):
        read_traffic(write(tmp_path, '{"seq": 5, "count": 0}\n'))


def test_a_table_of_a_spreadsheet(tmp_path: Path) -> None:
    """Such files begin with a byte order mark, and their lines end in two characters."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbfbatch,seq\r\n1,40\r\n")
    assert read_traffic(path, INPUTS).counts == {(1, 40): 1}


def test_every_bad_line_is_named_up_to_twenty(tmp_path: Path) -> None:
    path = write(tmp_path, '{"seq": -1}\n{"seq": 1}\n' + '{"seq": -2}\n' * 30)
    with pytest.raises(AotcError) as caught:
        read_traffic(path)
    errors = [caught.value, *caught.value.also]
    assert [error.where for error in errors] == [
        f"{path}, line {number}" for number in (1, *range(3, 22))
    ]


def test_requests_name_the_same_dims(tmp_path: Path) -> None:
    with pytest.raises(AotcError, match="AOTC-S020 requests name different dims"):
        read_traffic(write(tmp_path, '{"seq": 1}\n{"batch": 1, "seq": 2}\n'))
