"""Uploads: bytes that are durable before they count, one sender at a time, nothing left behind."""

import hashlib
import shutil
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from sqlalchemy import select

from khot_server.datasets.incoming import Incoming, upload_file
from khot_server.datasets.limits import Limits
from khot_server.datasets.read_csv import read_csv
from khot_server.datasets.records import (
    BadTable,
    QuotaReached,
    UploadBusy,
    UploadConflict,
    UploadNotFound,
    WrongOffset,
)
from khot_server.datasets.store import DatasetStore
from khot_server.datasets.uploads import Sending
from khot_server.jobs.schema import datasets, uploads

CSV = b"a,b,label\n" + b"".join(b"%d,%d,%d\n" % (i, i * i, i % 2) for i in range(20))


def begin(store, header, upload_id="u", offset=0, tenant="t") -> Sending:
    sending = store.uploads.begin(tenant, upload_id, header, offset)
    assert isinstance(sending, Sending)
    return sending


def upload(store, data, header, upload_id="u", tenant="t") -> str:
    sending = begin(store, header, upload_id, tenant=tenant)
    sending.file.append(data, header)
    return finish(store, sending)


def finish(store, sending) -> str:
    """As the service does when all has come."""
    sending.file.check(sending.header)
    summary = read_csv(sending.file.path, sending.table, sending.header.sha256, Limits())
    store.uploads.complete(sending, summary)
    store.uploads.release(sending)
    return sending.dataset_id


def files(tmp_path) -> list[str]:
    """What there is beside the database."""
    found = (path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if "sqlite" not in path.name)


def rows(database, table) -> list:
    with database.reading() as connection:
        return connection.execute(select(table)).all()


def test_an_upload_becomes_a_data_set(store, header, tmp_path, clock):
    dataset = store.get("t", upload(store, CSV, header(CSV, name="mine.csv")))
    assert (dataset.name, dataset.size_bytes, dataset.tenant) == ("mine.csv", len(CSV), "t")
    assert dataset.sha256 == hashlib.sha256(CSV).hexdigest()
    assert dataset.create_time.timestamp() == clock.now
    assert [column.name for column in dataset.summary.columns] == ["a", "b", "label"]
    made = [
        f"datasets/{dataset.id}/{name}" for name in ("float32.bin", "layout.json", "summary.json")
    ]
    assert files(tmp_path) == made, "and the uploaded bytes are gone"
    state = store.uploads.get("t", "u")
    assert (state.offset, state.dataset_id) == (len(CSV), dataset.id)


def test_the_same_upload_is_one_data_set_and_the_same_file_may_be_two(store, header):
    first = upload(store, CSV, header(CSV))
    assert store.uploads.begin("t", "u", header(CSV), 0) == first
    assert store.uploads.begin("t", "u", header(CSV), 17) == first
    assert upload(store, CSV, header(CSV), "v") != first
    assert upload(store, CSV, header(CSV), tenant="another") != first


def test_a_broken_upload_goes_on_from_its_offset(store, header, tmp_path):
    told = header(CSV)
    sending = begin(store, told)
    sending.file.append(CSV[:10], told)
    store.uploads.release(sending, CSV[10:25])
    assert store.uploads.get("t", "u").offset == 25
    again = begin(store, told, offset=25)
    assert again.dataset_id != sending.dataset_id
    again.file.append(CSV[25:], told)
    finish(store, again)


def test_an_upload_may_begin_anew(store, header):
    told = header(CSV)
    sending = begin(store, told)
    sending.file.append(b"something else", told)
    store.uploads.release(sending)
    again = begin(store, told)
    assert again.file.size == 0
    again.file.append(CSV, told)
    finish(store, again)


@pytest.mark.parametrize("offset", [1, 9, 11, len(CSV)])
def test_another_offset_is_refused_and_changes_nothing(store, header, offset):
    told = header(CSV)
    store.uploads.release(begin(store, told), CSV[:10])
    with pytest.raises(WrongOffset, match=f"must be 0 or 10, what is there; got {offset}"):
        store.uploads.begin("t", "u", told, offset)
    assert store.uploads.get("t", "u").offset == 10
    store.uploads.release(begin(store, told, offset=10))


def test_only_one_call_holds_an_upload(store, header):
    told = header(CSV)
    sending = begin(store, told)
    with pytest.raises(UploadBusy, match="must be sent by one call at a time"):
        store.uploads.begin("t", "u", told, 0)
    other = begin(store, told, "v")
    store.uploads.release(sending)
    store.uploads.release(begin(store, told))
    store.uploads.release(other)


def test_of_many_that_begin_at_once_one_does(store, header):
    told, barrier, found = header(CSV), threading.Barrier(8), []

    def run() -> None:
        barrier.wait()
        try:
            found.append(store.uploads.begin("t", "u", told, 0))
        except UploadBusy as error:
            found.append(error)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (held,) = (one for one in found if isinstance(one, Sending))
    assert len(found) == 8
    store.uploads.release(held)


def test_the_hold_of_a_process_ends_with_it(tmp_path):
    code = "import sys, pathlib; from khot_server.datasets.incoming import Incoming; "
    code += "Incoming(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    path = tmp_path / "file"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UploadBusy, match="got one that another call sends"):
            Incoming(path)
        other.kill()
    Incoming(path).close()


def test_another_header_is_a_conflict_and_the_bytes_stay(store, header):
    told = header(CSV)
    store.uploads.release(begin(store, told), CSV[:10])
    for other in (
        header(CSV, name="another"),
        header(CSV + b"1,2,3\n"),
        replace(told, sha256="0" * 64),
    ):
        with pytest.raises(UploadConflict, match="got 'u' with another header"):
            store.uploads.begin("t", "u", other, 0)
    assert store.uploads.get("t", "u").offset == 10
    done = begin(store, told, offset=10)
    done.file.append(CSV[10:], told)
    finish(store, done)
    with pytest.raises(UploadConflict, match="got 'u' with another header"):
        store.uploads.begin("t", "u", header(CSV, name="another"), 0)


def test_more_bytes_than_declared_are_refused_before_they_are_written(store, header):
    told = header(CSV)
    sending = begin(store, told)
    sending.file.append(CSV[:-1], told)
    with pytest.raises(
        BadTable, match=f"must be {len(CSV)} bytes, as declared; got {len(CSV) + 1}"
    ):
        sending.file.append(CSV[-1:] + b"x", told)
    assert sending.file.size == len(CSV) - 1
    store.uploads.release(sending)


def test_truncated_and_other_bytes_are_refused(store, header):
    told = header(CSV)
    sending = begin(store, told)
    sending.file.append(CSV[:-1], told)
    with pytest.raises(
        BadTable, match=f"must be {len(CSV)} bytes, as declared; got {len(CSV) - 1}"
    ):
        sending.file.check(told)
    sending.file.append(b"x", told)
    with pytest.raises(BadTable, match=f"SHA-256 must be {told.sha256}, as declared; got"):
        sending.file.check(told)
    store.uploads.release(sending)


def test_of_a_discarded_upload_nothing_is_left(store, header, database, tmp_path):
    told = header(CSV)
    sending = begin(store, told)
    sending.file.append(CSV[:10], told)
    sending.table.mkdir(parents=True)
    (sending.table / "half").write_bytes(b"x")
    store.uploads.discard(sending)
    store.uploads.release(sending, b"more")
    assert files(tmp_path) == [] and rows(database, uploads) == []
    with pytest.raises(UploadNotFound, match="must be an upload of 't' that was begun; got 'u'"):
        store.uploads.get("t", "u")
    upload(store, CSV, told)


def test_a_tenant_sees_its_own_uploads_alone(store, header):
    store.uploads.release(begin(store, header(CSV)), b"a")
    with pytest.raises(UploadNotFound, match="must be an upload of 'another'"):
        store.uploads.get("another", "u")
    assert upload_file("a", "b") != upload_file("b", "a")


def test_the_quota_counts_tables_and_what_is_under_way(database, tmp_path, clock, header):
    store = DatasetStore(database, tmp_path, clock=clock, max_tenant_bytes=3000)
    big = replace(header(CSV), size_bytes=2900)
    store.uploads.release(begin(store, big, "big"))
    with pytest.raises(QuotaReached, match=f"of 't' must take at most 3000 .* {len(CSV)} more"):
        store.uploads.begin("t", "u", header(CSV), 0)
    assert len(rows(database, uploads)) == 1
    assert files(tmp_path) == [f"uploads/{upload_file('t', 'big')}"]
    upload(store, CSV, header(CSV), tenant="another")
    discarded = begin(store, big, "big")
    store.uploads.discard(discarded)
    store.uploads.release(discarded)
    used = store.get("t", upload(store, CSV, header(CSV))).summary.table_bytes
    assert 240 < used < 3000
    with pytest.raises(QuotaReached, match=f"got {3001 - used} more than {used}"):
        store.uploads.begin("t", "v", replace(big, size_bytes=3001 - used), 0)
    store.uploads.release(begin(store, replace(big, size_bytes=3000 - used), "v"))


def test_a_table_that_is_larger_than_its_file_may_be_too_large(database, tmp_path, header):
    """Then the bytes stay: the tenant may make room, and need not send them again."""
    store = DatasetStore(database, tmp_path, max_tenant_bytes=len(CSV) + 10)
    told = header(CSV)
    sending = begin(store, told)
    sending.file.append(CSV, told)
    with pytest.raises(QuotaReached, match="more than 0"):
        finish(store, sending)
    store.uploads.release(sending)
    assert rows(database, datasets) == [] and store.uploads.get("t", "u").offset == len(CSV)
    assert files(tmp_path) == [f"uploads/{upload_file('t', 'u')}"]


def test_a_quota_that_is_reached_is_relieved_of_what_was_given_up(store, header, clock):
    half = replace(header(CSV), size_bytes=(1 << 20) - 100)
    store.uploads.release(begin(store, half, "old"), b"abc")
    with pytest.raises(QuotaReached, match="more than"):
        store.uploads.begin("t", "u", header(CSV), 0)
    clock.now += 86401
    store.uploads.release(begin(store, header(CSV), "u"))
    with pytest.raises(UploadNotFound, match="got 'old'"):
        store.uploads.get("t", "old")


def test_stale_uploads_go_but_not_those_that_are_held_or_fresh(store, header, clock, tmp_path):
    held = begin(store, header(CSV), "held")
    store.uploads.release(begin(store, header(CSV), "stale"), b"abc")
    done = upload(store, CSV, header(CSV), "done")
    clock.now += 86401
    store.uploads.release(begin(store, header(CSV), "fresh"), b"abc")
    store.sweep()
    with pytest.raises(UploadNotFound, match="got 'stale'"):
        store.uploads.get("t", "stale")
    assert store.uploads.get("t", "held").offset == 0
    assert store.uploads.get("t", "fresh").offset == 3
    assert store.uploads.get("t", "done").dataset_id == done
    kept = {upload_file("t", name) for name in ("held", "fresh")}
    assert {path.name for path in (tmp_path / "uploads").iterdir()} == kept
    store.uploads.release(held)


def test_orphans_go_and_what_is_on_its_way_stays(store, header, tmp_path, database):
    kept = upload(store, CSV, header(CSV), "done")
    sending = begin(store, header(CSV))
    sending.table.mkdir()
    for name in ("0" * 32, f"{'1' * 32}.tmp"):
        (tmp_path / "datasets" / name).mkdir()
        (tmp_path / "datasets" / name / "float32.bin").write_bytes(b"x")
    (tmp_path / "uploads" / ("2" * 32)).write_bytes(b"x")
    store.sweep()
    assert {path.name for path in (tmp_path / "datasets").iterdir()} == {kept, sending.table.name}
    assert {path.name for path in (tmp_path / "uploads").iterdir()} == {upload_file("t", "u")}
    store.uploads.release(sending)
    after_a_crash = DatasetStore(database, tmp_path)
    shutil.copytree(tmp_path / "datasets" / kept, sending.table)
    after_a_crash.sweep()
    assert {path.name for path in (tmp_path / "datasets").iterdir()} == {kept}


def test_an_upload_that_ended_between_two_looks_is_not_made_again(store, header, monkeypatch):
    """Another call completes it after the first look, and before the file is held."""
    told, looked = header(CSV), []
    known = store.uploads._known

    def look(connection, *args):
        row = known(connection, *args)
        if not looked:
            looked.append(row)
            looked.append(upload(store, CSV, told))
        return row

    monkeypatch.setattr(store.uploads, "_known", look)
    assert store.uploads.begin("t", "u", told, 0) == looked[1]
    assert not any((store._state_dir / "uploads").iterdir())
