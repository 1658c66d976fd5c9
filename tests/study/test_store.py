"""Rows come back as they were written, files of before a metric are read and widened, and damage is named."""
import os
import resource
import threading

import numpy as np
import pandas as pd
import pytest

from rolebregman.evaluation import METRICS
from rolebregman.study import COLUMNS, KEY, SEARCH, Store

ROW = dict(dataset="toy", head="mlp", seed=0, scale="quick", mrr=0.1 + 0.2, config="00123456", error="")


def test_columns_of_committed_files_keep_their_order_and_a_metric_more_is_free_to_come():
    first = (
        "dataset head seed scale ranking_accuracy direction_accuracy negative_rate mrr hits@1 hits@3 hits@10 auc "
        "average_precision gap_mean forward_preferred_rate tie_rate direction_prior_wrong direction_matched seconds "
        "peak_memory_mb parameters config commit versions error").split()
    assert [name for name in COLUMNS if name in first] == first
    assert set(COLUMNS) - set(first) <= {*METRICS, "filtered_mrr"}


def test_numbers_and_texts_come_back_as_they_were(tmp_path):
    store = Store(tmp_path / "rows.csv")
    row = dict(dataset="toy", head="mlp", seed=3, scale="quick", mrr=0.1 + 0.2, auc=1 / 3, config="00123456",
               commit="12e4567", error='ValueError: a "quoted", comma')
    store.append(row)
    found = store.rows().loc[0]
    assert {k: found[k] for k in row} == row and np.isnan(found["seconds"])


def test_other_columns_and_damaged_lines_are_errors(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="rows.csv has the columns a b; expected dataset"): Store(path).rows()
    path.write_text(",".join(COLUMNS) + "\n" + "," * 99 + "\n")
    with pytest.raises(ValueError, match=f"rows.csv, line 2: 100 fields, expected {len(COLUMNS)}; the line is damaged"):
        Store(path).rows()


@pytest.mark.parametrize("column, text", [("mrr", "0.9x"), ("seed", ""), ("seed", "1.5"), ("auc", "\ufffd")])
def test_a_damaged_number_is_named_with_file_line_and_column(tmp_path, column, text):
    store = Store(tmp_path / "rows.csv")
    for seed in (0, 1): store.append(dict(dataset="toy", head="mlp", seed=seed, mrr=0.5))
    fields = store.path.read_text().splitlines()[2].split(",")
    fields[COLUMNS.index(column)] = text
    with open(store.path, "a") as file: file.write(",".join(fields) + "\n")
    with pytest.raises(ValueError, match=rf"rows.csv, line 4: {column} is '{text}', no number; the line is damaged"):
        store.rows()


def test_a_file_that_is_no_text_is_an_error_that_names_it(tmp_path):
    store = Store(tmp_path / "rows.csv")
    store.append(dict(dataset="toy", head="mlp", seed=0, mrr=0.5))
    store.path.write_bytes(store.path.read_bytes().replace(b"0.5", b"\xff\x00"))
    with pytest.raises(ValueError, match="rows.csv, line 2: .*the line is damaged"): store.rows()


def test_columns_follow_from_the_metrics():
    assert [name for name in COLUMNS if name in METRICS] == list(METRICS)


@pytest.mark.parametrize("missing", [["tie_rate"], ["mrr", "auc"], ["error", "versions"], ["direction_matched"]])
def test_a_file_of_before_a_column_is_read(tmp_path, missing):
    before = [name for name in COLUMNS if name not in missing]
    Store(tmp_path / "rows.csv", before).append(ROW)
    rows = Store(tmp_path / "rows.csv").rows()
    assert list(rows.columns) == COLUMNS and len(rows) == 1
    for name in missing:
        assert rows.loc[0, name] == "" if name in ("error", "versions") else np.isnan(rows.loc[0, name])
    assert rows.loc[0, KEY].tolist() == ["toy", "mlp", 0, "quick", "00123456"]
    assert Store(tmp_path / "rows.csv").keys(failed=False) == {("toy", "mlp", 0, "quick", "00123456")}


def test_a_row_behind_rows_of_before_a_column_shifts_nothing(tmp_path):
    path = tmp_path / "rows.csv"
    old = Store(path, [name for name in COLUMNS if name not in ("auc", "tie_rate")])
    quoted = 'ValueError: "a", b\nc'
    for seed in (0, 1): old.append(dict(ROW, seed=seed, average_precision=1 / 3, error=quoted * seed))
    before = old.rows()
    store = Store(path, SEARCH)
    store.append(dict(ROW, seed=2, auc=0.5, settings='{"lr": 0.1}'))
    rows = store.rows()
    pd.testing.assert_frame_equal(rows.loc[:1, before.columns], before, check_exact=True)
    assert rows["auc"].isna().tolist() == [True, True, False] and rows["settings"].tolist() == ["", "", '{"lr": 0.1}']
    size = path.stat().st_size
    store.append(dict(ROW, seed=3))
    assert path.stat().st_size - size < 200, "from then on a row is a line"
    with pytest.raises(ValueError, match="This version does not know auc tie_rate settings: move the file away"):
        old.append(ROW)
    assert len(store.rows()) == 4


def test_a_file_of_today_is_not_written_anew(tmp_path):
    store = Store(tmp_path / "rows.csv")
    store.append(ROW)
    head = store.path.read_bytes()
    store.append(dict(ROW, seed=1))
    assert store.path.read_bytes().startswith(head)


def test_a_file_in_which_no_fit_can_be_recognised_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("dataset,head,mrr\ntoy,mlp,0.5\n")
    with pytest.raises(ValueError, match="This version needs dataset head seed scale config"):
        Store(tmp_path / "rows.csv").rows()


def test_two_that_widen_the_same_file_lose_no_row(tmp_path):
    path = tmp_path / "rows.csv"
    Store(path, [name for name in COLUMNS if name != "mrr"]).append(ROW)
    def write(first):
        for seed in range(first, first + 20): Store(path).append(dict(ROW, seed=seed, mrr=0.5))
    threads = [threading.Thread(target=write, args=(first,)) for first in (100, 200)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert len(Store(path).rows()) == 41


@pytest.fixture
def limited():
    "A function that sets how long a file may become in this process: what a full disk does, it takes a part of a write"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("part", [0, 1, 40, 9_000])
def test_a_row_for_which_there_is_no_room_is_an_error_and_leaves_whole_rows(tmp_path, limited, part):
    store = Store(tmp_path / "rows.csv")
    for seed in range(3): store.append(dict(ROW, seed=seed))
    before = store.path.read_bytes()
    limited(len(before) + part)
    with pytest.raises(OSError, match="File too large") as error:
        for seed in range(3, 5000): store.append(dict(ROW, seed=seed, error="x" * 300))
    assert str(error.value.filename) == str(store.path)
    after = store.path.read_bytes()
    assert after.startswith(before) and after.endswith(b"\n")
    rows = store.rows()
    assert rows["seed"].tolist() == list(range(len(rows))) and (len(rows) == 3) == (part < 300)


def test_the_first_row_and_outcomes_for_which_there_is_no_room(tmp_path, limited):
    store = Store(tmp_path / "rows.csv", outcomes=True)
    limited(200)
    with pytest.raises(OSError, match="rows.csv"): store.append(ROW)
    with pytest.raises(OSError, match="rows_pairs.csv"):
        store.append(ROW | dict(outcomes=dict(pairs="ab", candidates=3, rank="x" * 500)))
    limited(resource.RLIM_INFINITY if resource.getrlimit(resource.RLIMIT_FSIZE)[1] < 0 else 10**9)
    store.append(ROW)
    assert len(store.rows()) == 1 and os.path.getsize(store.path) > 200


def test_a_file_that_is_widened_with_no_room_stays_as_it_is(tmp_path, limited):
    old = Store(tmp_path / "rows.csv", [name for name in COLUMNS if name != "auc"])
    for seed in range(9): old.append(dict(ROW, seed=seed))
    before = old.path.read_bytes()
    limited(len(before))
    with pytest.raises(OSError, match="rows.csv"): Store(old.path).append(ROW)
    assert old.path.read_bytes() == before
