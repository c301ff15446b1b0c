"""Records: JSON both ways, means, files."""

import json
from pathlib import Path

import pytest

from treadle.bench.environment import parse_row
from treadle.bench.option_text import options_from_plain, parse_options, plain_options
from treadle.bench.records import CaseRecord, document, geometric_mean, group_means, read, write
from treadle.errors import TreadleError
from treadle.options import CompileOptions


def case(name: str, ratio: float, group: str = "g", status: str = "ok") -> CaseRecord:
    ms = {"treadle": 1.0, "torch": ratio, "torch.compile": 2 * ratio}
    return CaseRecord(name, group, status=status, ms=ms, ratio={"torch": ratio, "torch.compile": 2 * ratio})  # pyright: ignore[reportArgumentType]


def test_the_faster_peer_counts() -> None:
    assert (case("a", 1.25).best_peer, case("a", 1.25).best_ratio) == ("torch", 1.25)
    assert CaseRecord("a", ms={"treadle": 1.0}).best_ratio is None


def test_a_copy_is_no_peer() -> None:
    record = case("a", 1.25)
    record.ms["copy"], record.of_copy = 0.5, 0.5
    assert (record.best_peer, record.best_ratio) == ("torch", 1.25)
    assert group_means([record]) == {"g": pytest.approx(1.25), "all": pytest.approx(1.25)}
    alone = CaseRecord("a", ms={"treadle": 1.0, "copy": 0.5}, of_copy=0.5)
    assert (alone.best_peer, alone.best_ratio) == ("", None)


def test_records_from_before_there_were_copies_are_read() -> None:
    old = {name: value for name, value in case("a", 1.5).plain().items() if name != "of_copy"}
    assert CaseRecord.from_plain(old) == case("a", 1.5)


def test_a_wrong_result_has_no_ratio_and_no_part_in_means() -> None:
    records = [case("a", 4.0), case("b", 1.0), case("c", 0.25, "h"), case("d", 100.0, "h", "wrong")]
    means = group_means(records)
    assert means["g"] == pytest.approx(2.0)
    assert means["h"] == pytest.approx(0.25)
    assert means["all"] == pytest.approx(1.0)
    assert geometric_mean([]) is None
    assert group_means([case("d", 2.0, "h", "wrong")]) == {}


def test_a_file_reads_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "results" / "x.json"
    records = [case("a", 1.5), CaseRecord("b", status="timeout", message="no answer")]
    write(path, document({"device": "d"}, records))
    assert read(path) == records
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]
    content = json.loads(path.read_text())
    assert content["cases"][0]["best_ratio"] == 1.5
    assert content["environment"] == {"device": "d"}


@pytest.mark.parametrize("text", ["", "[]", '{"cases": [{}]}', '{"cases": [1]}'])
def test_a_file_that_is_no_result(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(TreadleError, match="TR901"):
        read(path)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TreadleError, match="TR902"):
        write(tmp_path / "file" / "x.json", {})


def test_a_row_of_nvidia_smi() -> None:
    assert parse_row("1755 MHz, 690.1 W\n", ("clock", "power")) == {"clock": "1755 MHz", "power": "690.1 W"}
    assert parse_row("No devices were found", ("clock", "power")) == {}


def test_options_as_text() -> None:
    plain = parse_options(["num_stages=4", "tile=128x256,64", "f32_precision=tf32"])
    assert plain == {"num_stages": 4, "tile": [128, 256, 64], "f32_precision": "tf32"}
    options = options_from_plain(CompileOptions(consumer_warpgroups=2), plain)
    assert options == CompileOptions(consumer_warpgroups=2, num_stages=4, tile=(128, 256, 64), f32_precision="tf32")
    assert options_from_plain(CompileOptions(), json.loads(json.dumps(plain_options(options)))) == options
    assert plain_options(CompileOptions()) == {}
    assert parse_options(["split_reduction=4", "index_bits=64"]) == {"split_reduction": "4", "index_bits": 64}


@pytest.mark.parametrize(
    "text", ["num_stages", "ring=1", "num_stages=four", "verify=maybe", "tile=1,b", "f32_precision=half", "split_reduction=some"]
)
def test_options_that_are_none(text: str) -> None:
    with pytest.raises(TreadleError, match="TR822"):
        parse_options([text])
